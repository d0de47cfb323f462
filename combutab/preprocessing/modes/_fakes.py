"""Realistic values by Faker (names, e-mail addresses, ...) for columns that are not learned."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import pandas as pd

from combutab.core.text import known_instead, no_column
from combutab.preprocessing._columns import ColumnKind, column_kind

_PERSONAL = ("name", "first_name", "last_name", "email", "user_name")  # of one person in a row
_DOMAINS = ("example.com", "example.org", "example.net")  # belong to no one (RFC 2606)
_NO_DECOMPOSITION = str.maketrans({"ß": "ss", "ø": "o", "æ": "ae", "ł": "l", "đ": "d", "ı": "i"})
_N_CHECKED = 10_000  # values that are compared with the real ones
_N_VARIANTS = 4  # that are tried, until none of these is a real one
_MIN_UNIQUE = 50  # different values of a column that never repeats; fewer may differ by chance
_MAX_TRIES = 1000  # for a value that differs from all before


@dataclass(frozen=True)
class Fakes:
    """Values that Faker makes: each follows from a seed and the number of its row.

    Examples
    --------
    >>> Fakes("email", "en_US", seed=0).make(2) == Fakes("email", "en_US", seed=0).make(2)
    True

    Parameters
    ----------
    provider, locale : str
        A method of Faker without arguments, and its locale.
    seed : int
        Values of one row with the same seed and ``person`` belong to one person.
    person : int, default=0
        0 for the first column of this provider, 1 for the second.
    unique : bool, default=False
        Whether no value repeats.
    variant : int, default=0
        Form of the values: number of additional first names, or of digits, or another draw.
    domain : str
        Domain of e-mail addresses.
    """

    provider: str
    locale: str
    seed: int
    person: int = 0
    unique: bool = False
    variant: int = 0
    domain: str = _DOMAINS[0]
    _values: list[str] = field(default_factory=list, init=False, repr=False, compare=False)
    kind: ClassVar[Literal["text"]] = "text"

    def make(self, n: int, before: int = 0) -> list[str]:
        """Make the values of n rows, after those of the rows before.

        Raises ValueError if the provider has too few different values for a column without
        repetitions.
        """
        faker = make_faker(self.locale)
        if not self.unique:
            return [self._value(faker, i, self.variant) for i in range(before, before + n)]
        values = self._values[: before + n]
        used = set(values)
        for i in range(len(values), before + n):
            for variant in range(self.variant, self.variant + _MAX_TRIES):
                value = self._value(faker, i, variant)
                if value not in used:
                    break
            else:
                self._values[:] = values
                raise ValueError(
                    f"Faker's {self.provider!r} has too few different values for {before + n:,} "
                    "rows of a column without repetitions; request fewer rows, or fit with another "
                    "provider"
                )
            used.add(value)
            values.append(value)
        if len(values) > len(self._values):
            self._values[:] = values
        return values[before:]

    def make_most(self, n: int) -> list[str]:
        """Make the values of the first n rows, or of fewer if there are not enough different ones.

        >>> len(Fakes("boolean", "en_US", seed=0, unique=True).make_most(9))
        2
        """
        with suppress(ValueError):
            return self.make(n)
        return list(self._values)

    def _value(self, faker: Any, row: int, variant: int) -> str:
        key = f"{self.seed} {self.person} {row}"
        if self.provider not in _PERSONAL:
            faker.seed_instance(f"{key} {self.provider} {variant}")
            return str(getattr(faker, self.provider)())
        faker.seed_instance(key)
        gender = faker.random.choice(("female", "male"))
        first, last = (getattr(faker, f"{part}_name_{gender}")() for part in ("first", "last"))
        more = [getattr(faker, f"first_name_{gender}")() for _ in range(variant)]
        if self.provider == "last_name":
            return "-".join([last, *(getattr(faker, f"last_name_{gender}")() for _ in more)])
        if self.provider == "first_name":
            return " ".join([first, *more])
        if self.provider == "name":
            return _full_name(faker, [first, *more], last)
        words = [word for word in map(_latin_letters, (first, last)) if word] or ["user"]
        is_latin = words != ["user"]
        n_digits = variant + 4 * (not is_latin)
        account = ".".join(words) + "".join(faker.random.choices(string.digits, k=n_digits))
        return f"{account}@{self.domain}" if self.provider == "email" else account


def _full_name(faker: Any, first: list[str], last: str) -> str:
    """First names and last name in the order of the locale."""
    form = next(iter(faker.provider("faker.providers.person").formats))
    is_last_first = form.find("last_name") < form.find("first_name")
    names = [last, *first] if is_last_first else [*first, last]
    return (" " if " " in form else "").join(names)


def _latin_letters(text: str) -> str:
    """The lower-case letters of a to z.

    >>> _latin_letters("Søren-Jürgen")
    'sorenjurgen'
    """
    lower = text.lower().translate(_NO_DECOMPOSITION)
    return re.sub("[^a-z]", "", unicodedata.normalize("NFKD", lower))


def make_faker(locale: str) -> Any:
    """Make a generator of Faker, whose random numbers are its own.

    Raises ImportError if Faker is not installed, ValueError if there is no such locale.
    """
    try:
        from faker import Factory
        from faker.config import AVAILABLE_LOCALES
    except ModuleNotFoundError as error:
        raise ImportError(
            "realistic values (fake) need Faker: pip install 'combutab[faker]'"
        ) from error
    if locale not in AVAILABLE_LOCALES:
        advice = known_instead(locale, sorted(AVAILABLE_LOCALES))
        raise ValueError(f"Faker has no locale {locale!r}; {advice}")
    return Factory.create(locale, use_weighting=False)  # which takes a tenth of the time


def choose_fakes(
    fake: Mapping[Any, str] | None,
    names: Sequence[Any] | None,
    columns: Sequence[pd.Series],
    seed: int,
) -> dict[int, Fakes]:
    """Choose what replaces the values of columns, by position.

    ``fake`` has a provider of Faker, or "provider:locale", by column. Raises ValueError if there is
    no such column, provider or locale, or values cannot be made for a column.
    """
    if not fake:
        return {}
    if names is None:
        raise ValueError("fake has names of columns, so that X must be a DataFrame, got an array")
    position = {name: j for j, name in enumerate(names)}
    chosen, n_columns = {}, Counter[str]()
    for name, text in fake.items():
        if name not in position:
            raise ValueError(f"fake: {no_column(name, names)}")
        provider, _, locale = str(text).partition(":")
        locale = locale or "en_US"
        j, label = position[name], f"fake={{{name!r}: {text!r}}}"
        _check_provider(provider, locale, label)
        fakes = Fakes(provider, locale, seed, n_columns[provider])
        n_columns[provider] += 1
        chosen[j] = _fit_fakes(fakes, columns[j], label)
    return chosen


def _check_provider(provider: str, locale: str, label: str) -> None:
    """Refuse names that are no methods of Faker without arguments that return text."""
    faker = make_faker(locale)
    names = {name for p in faker.get_providers() for name in dir(p) if name[0] != "_"}
    providers = [name for name in sorted(names) if callable(getattr(faker, name, None))]
    if provider not in providers:
        advice = known_instead(provider, providers)
        raise ValueError(f"{label}: Faker has no {provider!r}; {advice}")
    faker.seed_instance(0)
    try:
        value = getattr(faker, provider)()
    except Exception as error:
        raise ValueError(f"{label}: Faker's {provider!r} needs arguments ({error})") from error
    if isinstance(value, bytes | Collection) and not isinstance(value, str):
        raise ValueError(f"{label}: Faker's {provider!r} makes {type(value).__name__}, not text")


def _fit_fakes(fakes: Fakes, column: pd.Series, label: str) -> Fakes:
    """Find a form of the values in which the first ones are not among those of the column."""
    if column_kind(column, of_categories=True) != ColumnKind.TEXT:
        raise ValueError(
            f"{label}: Faker makes text, but the column has the dtype {column.dtype}; convert it "
            "to text, or leave it out of fake"
        )
    present = column.dropna().astype(str)
    real = {value.casefold() for value in present.unique()}
    domains = {value.rpartition("@")[2] for value in real}
    more = (f"mail{k}.example" for k in range(1, len(real) + 2))
    domain = next(domain for domain in (*_DOMAINS, *more) if domain not in domains)
    is_unique = len(present) >= _MIN_UNIQUE and present.is_unique
    for variant in range(_N_VARIANTS):
        fakes = replace(fakes, unique=is_unique, variant=variant, domain=domain)
        if real.isdisjoint(map(str.casefold, fakes.make_most(_N_CHECKED))):
            return replace(fakes)  # without the values
    raise ValueError(
        f"{label}: Faker's {fakes.provider!r} makes values that the column has too, so that real "
        "ones would be among the new ones; choose a provider with more different values, or "
        "another locale, or leave the column out of fake"
    )
