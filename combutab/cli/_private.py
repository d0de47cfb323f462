"""``combutab synth --epsilon``: train a differentially private generator, and write its rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from combutab.cli import _options
from combutab.cli._console import UserError, echo, refusals
from combutab.core.text import counted, describe_guarantee

if TYPE_CHECKING:
    import pandas as pd

    from combutab.datasets.formats import FileFormat

# Options that read rows without noise, and options that a private generator does not have
_LOOKING = ("report", "suggest_constraints", "holdout")
_UNUSED = (
    "model",
    "activation",
    "min_frequency",
    "max_time",
    "batch_size",
    "checkpoint",
    "device",
    "fake",
)


@dataclass(frozen=True, kw_only=True)
class PrivateOptions(_options.RowOptions, _options.GeneratorOptions):
    """The options of `combutab synth`, including those of differential privacy.

    Rows
    ----
    rows : NUMBER, default as many as DATA has
        Number of rows to write.

    Differential privacy
    --------------------
    epsilon : NUMBER
        Train a differentially private generator with this privacy budget: 1 is strict, 10 is loose.
        Needs OpenDP. Bounds and categories of columns are estimated with noise, unless --bounds and
        --categories give them.
    delta : NUMBER, default 1e-6
        With --epsilon: probability with which the privacy guarantee may fail.
    bounds : COLUMN=LOW..HIGH
        With --epsilon: lower and upper bound of a column, known without looking at the table, such
        as "age=0..120" or "since=2000-01-01..2030-12-31". Can be repeated.
    categories : COLUMN=ONE|OTHER
        With --epsilon: categories of a column, known without looking at the table, such as
        "city=Rome|Oslo", or a JSON file with a list for each column. Can be repeated.
    person : COLUMN
        With --epsilon: column that identifies the person whom a row belongs to. All rows of a
        person are protected together.
    rows_per_person : NUMBER, default 1
        With --person: maximum number of rows used per person.
    """

    rows: _options.OptionalCount = None
    epsilon: float | None = None
    delta: float | None = None
    bounds: list[str] | None = None
    categories: list[str] | None = None
    person: str | None = None
    rows_per_person: _options.OptionalCount = None


def check_private_options(options: PrivateOptions) -> None:
    """Raise UserError if options need --epsilon, or if they break its guarantee."""
    if options.epsilon is None:
        for option in options.changed("delta", "bounds", "categories", "person", "rows_per_person"):
            raise UserError(f"{option} is for a differentially private generator: --epsilon 1")
        return
    for option in options.changed(*_LOOKING):
        raise UserError(
            f"{option} reads rows without noise, which breaks the guarantee of --epsilon; leave "
            "it out"
        )
    for option, value in options.changed(*_UNUSED).items():
        if (option, value) != ("--device", "cpu"):
            raise UserError(f"{option} has no effect with --epsilon; leave it out")
    if options.rows_per_person is not None and options.person is None:
        raise UserError("--rows-per-person needs --person COLUMN")
    for text in options.bounds or ():
        if "=" not in text:
            raise UserError(f"--bounds {text} is not COLUMN=LOW..HIGH")
    for text in options.categories or ():
        if "=" not in text and not Path(text).is_file():
            raise UserError(f"--categories {text} is not COLUMN=ONE|OTHER, or a file")


def read_bounds(texts: Sequence[str] | None, table: pd.DataFrame) -> dict[Any, tuple[Any, Any]]:
    """Parse ``COLUMN=LOW..HIGH`` as the bounds of a column: numbers of its dtype, or dates.

    >>> import pandas as pd
    >>> read_bounds(["age=0..120"], pd.DataFrame({"age": [1, 2]}))
    {'age': (0, 120)}
    """
    bounds: dict[Any, tuple[Any, Any]] = {}
    for text in texts or ():
        name, _, value = text.rpartition("=")
        column, ends = _options.column_named("--bounds", name, table), value.split("..")
        if len(ends) != 2 or not all(map(str.strip, ends)):
            raise UserError(f"--bounds {text} is not COLUMN=LOW..HIGH, such as age=0..120")
        low, high = _read_values(f"--bounds {text}: {name}", ends, table[column])
        bounds[column] = (low, high)
    return bounds


def _read_values(name: str, texts: list[str], column: pd.Series) -> list[Any]:
    """Read texts as numbers, if the column has numbers."""
    kind = getattr(column.dtype, "kind", "O")
    if kind not in "iuf":
        return texts
    try:
        return [int(text) if kind in "iu" else float(text) for text in texts]
    except ValueError as error:
        numbers = "whole numbers" if kind in "iu" else "numbers"
        raise UserError(f"{name} has {numbers}, so give such values") from error


def read_categories(texts: Sequence[str] | None, table: pd.DataFrame) -> dict[Any, list[Any]]:
    """Parse ``COLUMN=ONE|OTHER``, or read JSON files with a list for each column.

    >>> import pandas as pd
    >>> read_categories(["size=1|2"], pd.DataFrame({"size": [1, 2]}))
    {'size': [1, 2]}
    """
    categories: dict[Any, list[Any]] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if equals:
            column = _options.column_named("--categories", name, table)
            values = _read_values(f"--categories {text}: {name}", value.split("|"), table[column])
            categories[column] = values
            continue
        try:
            lists = dict(json.loads(Path(text).read_text("utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise UserError(
                f"--categories {text} cannot be read as JSON with a list for each column, such as "
                f'{{"city": ["Rome"]}}: {error}'
            ) from error
        for name, values in lists.items():
            categories[_options.column_named("--categories", name, table)] = values
    return categories


def synthesize(
    table: pd.DataFrame, forms: FileFormat, discrete: list[Any], options: PrivateOptions
) -> None:
    """Fit a differentially private generator, and write its rows and its file."""
    from combutab.cli import _generators
    from combutab.cli._conditions import split_names
    from combutab.generators import PrivateSynthesizer

    for option, texts in (("--condition", options.condition), ("--shares", options.shares)):
        split_names(option, texts, [*map(str, table)])  # before the budget is spent
    identifiers = None if options.identifiers == ["none"] else options.identifiers
    parameters: dict[str, Any] = {
        "epsilon": options.epsilon,
        "delta": options.delta,
        "max_rows_per_person": options.rows_per_person,
        "epochs": options.epochs,
        "bounds": read_bounds(options.bounds, table),
        "categories": read_categories(options.categories, table),
        "identifiers": _options.find_columns("--identifiers", identifiers, table.columns),
        "constraints": _generators.read_rules(options.constraints),
        "random_state": options.seed,
    }
    parameters = {name: value for name, value in parameters.items() if value is not None}
    person = options.person
    if person is not None:
        person = _options.column_named("--person", person, table)
    with refusals(ValueError, TypeError, ImportError):
        model = PrivateSynthesizer(**parameters)
        model.fit(table, person=person, discrete_columns=discrete or "auto")
    _generators.save_generator(model, options.save, forms)
    n_rows = model.n_rows_ if options.rows is None else options.rows
    file = "was not saved (--save)" if options.save is None else f"is in {options.save}"
    with refusals(UserError, prefix=f"the budget is spent, and the generator {file}: "):
        _generators.write_sample(model, forms, options, n_rows, options.out)
    options.echo_done(f"Wrote {counted(n_rows, 'row')} to {options.out}")
    echo(describe_guarantee(model.epsilon_, model.delta_, "row" if person is None else "person"))
