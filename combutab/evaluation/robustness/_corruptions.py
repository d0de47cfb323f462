"""Ways in which a table goes wrong, each in five severities."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd

from combutab._random import Purpose, derive
from combutab._random_state import seed_from
from combutab._suggestions import did_you_mean
from combutab.evaluation.robustness._columns import (
    Column,
    Kind,
    numbers_of,
    read_columns,
    replaced,
    with_numbers,
    with_values,
    without,
)

SEVERITIES = (1, 2, 3, 4, 5)
OwnCorruption = Callable[[pd.DataFrame, int, np.random.Generator], pd.DataFrame]
Numbers = np.ndarray
Change = Callable[[pd.Series, Column, float, np.random.Generator], pd.Series]


@dataclass(frozen=True)
class Corruption:
    """A way in which columns go wrong.

    Attributes
    ----------
    change : callable
        ``(column, reference column, level, generator) -> column``.
    levels : tuple of 5 floats
        Of the severities 1 to 5; what they mean is in ``description``.
    kinds : tuple of str
        Of the columns that it acts on: "number", "category", "time".
    description : str
    share_of_columns : bool
        Whether the level is the share of the columns that go wrong, at least one; else all do.
    """

    change: Change
    levels: tuple[float, float, float, float, float]
    kinds: tuple[Kind, ...]
    description: str
    share_of_columns: bool = False


def _numeric(
    change: Callable[[Numbers, Column, float, np.random.Generator], Numbers],
) -> Change:
    """A change of numbers as a change of columns."""

    def changed(
        column: pd.Series, reference: Column, level: float, rng: np.random.Generator
    ) -> pd.Series:
        return with_numbers(column, change(numbers_of(column), reference, level, rng))

    return changed


def _gaussian(x: Numbers, column: Column, level: float, rng: np.random.Generator) -> Numbers:
    return x + level * column.sd * rng.standard_normal(len(x))


def _heavy_tailed(x: Numbers, column: Column, level: float, rng: np.random.Generator) -> Numbers:
    return x + level * column.sd * rng.standard_t(2, len(x))


def _scale(x: Numbers, column: Column, level: float, rng: np.random.Generator) -> Numbers:
    return x * (1.0 + level) if rng.random() < 0.5 else x / (1.0 + level)


def _shift(x: Numbers, column: Column, level: float, rng: np.random.Generator) -> Numbers:
    return x + level * column.sd * (1.0 if rng.random() < 0.5 else -1.0)


def _clip(x: Numbers, column: Column, level: float, rng: np.random.Generator) -> Numbers:
    if not len(column.numbers):
        return x
    return np.clip(x, *np.quantile(column.numbers, [level, 1.0 - level]))


def _round(x: Numbers, column: Column, level: float, rng: np.random.Generator) -> Numbers:
    step = level * column.sd
    return np.round(x / step) * step if step > 0 else x


def _miss(
    column: pd.Series, reference: Column, level: float, rng: np.random.Generator
) -> pd.Series:
    return without(column, rng.random(len(column)) < level)


def _swap(
    column: pd.Series, reference: Column, level: float, rng: np.random.Generator
) -> pd.Series:
    hit, pick = rng.random(len(column)) < level, rng.random(len(column))
    known = pd.Index(reference.categories, dtype=object)
    if isinstance(column.dtype, pd.CategoricalDtype):
        known = known[known.isin(column.cat.categories)]
    current = known.get_indexer(pd.Index(column.to_numpy(dtype=object), dtype=object))
    others = len(known) - (current >= 0)
    hit &= (others > 0) & column.notna().to_numpy()
    chosen = np.floor(pick * others).astype(np.intp)
    chosen += (current >= 0) & (chosen >= current)  # any but its own
    return with_values(column, hit, known.to_numpy()[chosen[hit]])


def _stick(
    column: pd.Series, reference: Column, level: float, rng: np.random.Generator
) -> pd.Series:
    typical = reference.typical
    if typical is None:
        return column
    if reference.kind == "number":
        return with_numbers(column, np.full(len(column), float(typical)))
    return pd.Series([typical] * len(column), index=column.index, name=column.name).astype(
        column.dtype
    )


_NUMBERS: tuple[Kind, ...] = ("number",)
_ALL: tuple[Kind, ...] = ("number", "category", "time")

CORRUPTIONS: dict[str, Corruption] = {
    "gaussian_noise": Corruption(
        _numeric(_gaussian),
        (0.1, 0.2, 0.3, 0.5, 1.0),
        _NUMBERS,
        "normal noise of so many standard deviations of the column",
    ),
    "heavy_tailed_noise": Corruption(
        _numeric(_heavy_tailed),
        (0.05, 0.1, 0.15, 0.25, 0.5),
        _NUMBERS,
        "noise of Student's t with 2 degrees of freedom, times so many standard deviations",
    ),
    "scale": Corruption(
        _numeric(_scale),
        (0.05, 0.1, 0.2, 0.5, 1.0),
        _NUMBERS,
        "another unit: the column times 1 + level, or divided by it",
    ),
    "shift": Corruption(
        _numeric(_shift),
        (0.1, 0.2, 0.3, 0.5, 1.0),
        _NUMBERS,
        "another zero: the column up or down by so many of its standard deviations",
    ),
    "clipping": Corruption(
        _numeric(_clip),
        (0.01, 0.05, 0.1, 0.2, 0.4),
        _NUMBERS,
        "values beyond this quantile, at both ends, become the quantile",
    ),
    "rounding": Corruption(
        _numeric(_round),
        (0.25, 0.5, 1.0, 1.5, 2.0),
        _NUMBERS,
        "to multiples of so many standard deviations of the column",
    ),
    "category_swap": Corruption(
        _swap,
        (0.02, 0.05, 0.1, 0.2, 0.4),
        ("category",),
        "this share of the categories and truths become another one of the column's",
    ),
    "missing": Corruption(
        _miss, (0.02, 0.05, 0.1, 0.2, 0.4), _ALL, "this share of the values are missing"
    ),
    "column_dropout": Corruption(
        _stick,
        (0.1, 0.2, 0.3, 0.4, 0.5),
        _ALL,
        "this share of the columns, at least one, are stuck at their median or most frequent "
        "category",
        share_of_columns=True,
    ),
}
"""Name -> `Corruption`: the ways that `robustness` and `corrupt` know."""


def corrupt(
    X: pd.DataFrame,
    corruption: str | OwnCorruption,
    severity: int,
    *,
    X_reference: pd.DataFrame | None = None,
    categorical: Iterable[Hashable] = (),
    random_state: Any = 0,
) -> pd.DataFrame:
    """A table gone wrong, as `robustness` makes it.

    Parameters
    ----------
    X : DataFrame
        Left as it is.
    corruption : str or callable
        A name in `CORRUPTIONS`, or ``(table, severity, numpy Generator) -> table``.
    severity : int from 1 to 5
    X_reference : DataFrame, optional
        Gives standard deviations, quantiles, medians and categories; by default X.
    categorical : list of column names, default=()
        Columns of numbers that are codes of categories.
    random_state : None, int or RandomState, default=0

    Returns
    -------
    DataFrame
        With X's columns and rows. See the notes of `robustness` on dtypes.

    Raises
    ------
    TypeError, ValueError
        As `robustness`.

    Examples
    --------
    >>> X = pd.DataFrame({"age": [20, 30, 60], "city": ["Rome", "Oslo", "Rome"]})
    >>> corrupt(X, "clipping", 5)
        age  city
    0  28.0  Rome
    1  30.0  Oslo
    2  36.0  Rome
    """
    if not isinstance(X, pd.DataFrame):
        raise TypeError(f"X must be a pandas DataFrame, got {type(X).__name__}")
    corrupter = Corrupter(X if X_reference is None else X_reference, categorical, random_state)
    check_same_columns(X, corrupter)
    (chosen,) = read_corruptions([corruption], corrupter).items()
    (severity,) = read_severities([severity])
    return corrupter(X, *chosen, severity)


class Corrupter:
    """Makes tables go wrong by the scales of a reference.

    What is drawn depends on the seed, the corruption's name and the column's place, but not on the
    severity: a value that is missing at severity 1 is missing at 5 as well.
    """

    def __init__(
        self, reference: pd.DataFrame, categorical: Iterable[Hashable], random_state: Any
    ) -> None:
        self.columns = read_columns(reference, categorical)
        self.seed = seed_from(random_state)

    def acted_on(self, corruption: Corruption) -> list[Any]:
        """Names of the columns that a corruption can act on."""
        return [name for name, each in self.columns.items() if each.kind in corruption.kinds]

    def __call__(
        self, table: pd.DataFrame, name: str, corruption: Corruption | OwnCorruption, severity: int
    ) -> pd.DataFrame:
        """The table gone wrong."""
        key = crc32(name.encode())
        if not isinstance(corruption, Corruption):
            found = corruption(table.copy(), severity, self._draws(Purpose.CORRUPTION, key))
            _check_result(found, table, name)
            return found
        level = corruption.levels[severity - 1]
        names = self.acted_on(corruption)
        if corruption.share_of_columns:
            order = self._draws(Purpose.CORRUPTION, key).permutation(len(names))
            names = [names[i] for i in order[: max(1, round(level * len(names)))]]
        places = {column: place for place, column in enumerate(self.columns)}
        changed = {}
        for column in names:
            rng = self._draws(Purpose.CORRUPTED_COLUMN, key, places[column])
            reference = self.columns[column]
            changed[column] = corruption.change(table[column], reference, level, rng)
        return replaced(table, changed)

    def _draws(self, purpose: Purpose, *positions: int) -> np.random.Generator:
        return np.random.default_rng(derive(self.seed, purpose, *positions))


def read_corruptions(
    corruptions: Iterable[str | OwnCorruption] | Mapping[str, OwnCorruption] | None,
    corrupter: Corrupter,
) -> dict[str, Corruption | OwnCorruption]:
    """Return the corruptions asked for, by name; by default all that act on some column.

    Raises ValueError if a name is unknown, or no column is of its kind; TypeError if one is neither
    a name nor a function.
    """
    if corruptions is None:
        return {name: each for name, each in CORRUPTIONS.items() if corrupter.acted_on(each)}
    if isinstance(corruptions, str):
        corruptions = [corruptions]
    if not isinstance(corruptions, Mapping):
        each_once = list(corruptions)
        names = [x if isinstance(x, str) else getattr(x, "__name__", repr(x)) for x in each_once]
        if len(set(names)) < len(names):
            raise ValueError(f"corruptions share a name: {names}; give a mapping of names to them")
        corruptions = dict(zip(names, each_once, strict=True))
    chosen: dict[str, Corruption | OwnCorruption] = {}
    for name, each in corruptions.items():
        if callable(each):
            chosen[name] = each
        elif isinstance(each, str):
            chosen[name] = _named(each, corrupter)
        else:
            raise TypeError(f"a corruption is a name or a function, got {name}={each!r}")
    if not chosen:
        raise ValueError("corruptions is empty; name some of " + ", ".join(CORRUPTIONS))
    return chosen


def _named(name: str, corrupter: Corrupter) -> Corruption:
    if name not in CORRUPTIONS:
        hint = did_you_mean(name, CORRUPTIONS, n=1)
        raise ValueError(
            f"unknown corruption {name!r}{f' ({hint})' if hint else ''}; known: "
            f"{', '.join(CORRUPTIONS)}, or a function (table, severity, generator) -> table"
        )
    corruption = CORRUPTIONS[name]
    if not corrupter.acted_on(corruption):
        raise ValueError(
            f"corruption {name!r} acts on {' and '.join(corruption.kinds)} columns, and the table "
            "has none; leave it out, or name columns of codes in categorical="
        )
    return corruption


def read_severities(severities: Iterable[int]) -> list[int]:
    """Sort the severities, each once.

    Raises ValueError if there is none, or one is not a whole number from 1 to 5.
    """
    asked = list(severities)
    if not asked or any(each not in SEVERITIES for each in asked):
        raise ValueError(f"severities must be some of {SEVERITIES}, got {asked}")
    return sorted({int(each) for each in asked})


def check_same_columns(table: pd.DataFrame, corrupter: Corrupter) -> None:
    """Refuse a reference whose columns are not the table's."""
    ours, theirs = list(table.columns), list(corrupter.columns)
    if set(ours) != set(theirs):
        lacking = [str(name) for name in ours if name not in theirs]
        added = [str(name) for name in theirs if name not in ours]
        raise ValueError(f"X_reference must have X's columns: it lacks {lacking}, and adds {added}")


def _check_result(found: Any, table: pd.DataFrame, name: str) -> None:
    if not isinstance(found, pd.DataFrame):
        raise TypeError(f"corruption {name!r} must return a DataFrame, got {type(found).__name__}")
    if list(found.columns) != list(table.columns) or len(found) != len(table):
        raise ValueError(
            f"corruption {name!r} must keep the columns and the number of rows, got "
            f"{found.shape} of {table.shape}"
        )
