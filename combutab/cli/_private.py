"""``combutab synth --epsilon``: a synthetic table whose generator is differentially private."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from combutab.cli._console import UserError, echo, echo_on_terminal, refusals
from combutab.core.text import counted

if TYPE_CHECKING:
    import pandas as pd

_NEEDS = "is for a differentially private generator: --epsilon 1"
_LOOKS = "reads rows without noise, which breaks the guarantee of --epsilon; leave it out"
_UNUSED = "has no effect with --epsilon; leave it out"


def check_private_options(
    epsilon: float | None,
    private: Mapping[str, Any],
    looking: Mapping[str, Any],
    unused: Mapping[str, Any],
) -> None:
    """Refuse options that need --epsilon, or break what it promises, before a table is read.

    ``private`` are those that need it, ``looking`` those that read rows otherwise, ``unused`` the
    others that it does not go with; values are None where an option is not given.
    """
    if epsilon is None:
        for option, value in private.items():
            if value is not None:
                raise UserError(f"{option} {_NEEDS}")
        return
    for reasons, why in ((looking, _LOOKS), (unused, _UNUSED)):
        for option, value in reasons.items():
            if value is not None:
                raise UserError(f"{option} {why}")
    if private["--rows-per-person"] is not None and private["--person"] is None:
        raise UserError("--rows-per-person needs --person COLUMN")
    for option in ("--bounds", "--categories"):
        for text in private[option] or ():
            if "=" not in text and not (option == "--categories" and Path(text).is_file()):
                form = "COLUMN=LOW..HIGH" if option == "--bounds" else "COLUMN=ONE|OTHER, or a file"
                raise UserError(f"{option} {text} is not {form}")


def read_bounds(texts: Sequence[str] | None, table: pd.DataFrame) -> dict[Any, tuple[Any, Any]]:
    """Read ``COLUMN=LOW..HIGH`` as a column's bounds: numbers as its dtype has them, or dates.

    >>> import pandas as pd
    >>> read_bounds(["age=0..120"], pd.DataFrame({"age": [1, 2]}))
    {'age': (0, 120)}
    """
    found: dict[Any, tuple[Any, Any]] = {}
    for text in texts or ():
        name, _, value = text.rpartition("=")
        ends: list[Any] = value.split("..")
        column = _column_of("--bounds", name, table)
        kind = getattr(table[column].dtype, "kind", "O")
        if len(ends) != 2 or not all(end.strip() for end in ends):
            raise UserError(f"--bounds {text} is not COLUMN=LOW..HIGH, such as age=0..120")
        if kind in "iuf":
            try:
                ends = [int(end) if kind in "iu" else float(end) for end in ends]
            except ValueError as error:
                what = "whole numbers" if kind in "iu" else "numbers"
                raise UserError(
                    f"--bounds {text}: {name} has {what}, so give such bounds"
                ) from error
        found[column] = (ends[0], ends[1])
    return found


def read_categories(texts: Sequence[str] | None, table: pd.DataFrame) -> dict[Any, list[Any]]:
    """Read ``COLUMN=ONE|OTHER``, or files of JSON with lists by column.

    >>> import pandas as pd
    >>> read_categories(["size=1|2"], pd.DataFrame({"size": [1, 2]}))
    {'size': [1, 2]}
    """
    found: dict[Any, list[Any]] = {}
    for text in texts or ():
        if "=" not in text:
            try:
                read = json.loads(Path(text).read_text("utf-8"))
            except (OSError, ValueError) as error:
                raise UserError(f"--categories {text} cannot be read as JSON: {error}") from error
            if not isinstance(read, dict) or not all(isinstance(v, list) for v in read.values()):
                raise UserError(
                    f'--categories {text} must hold lists by column, such as {{"city": ["Rome"]}}'
                )
            found |= {_column_of("--categories", n, table): v for n, v in read.items()}
            continue
        name, _, value = text.partition("=")
        column = _column_of("--categories", name, table)
        values: list[Any] = value.split("|")
        if getattr(table[column].dtype, "kind", "O") in "iuf":
            try:
                values = [float(v) if "." in v else int(v) for v in values]
            except ValueError as error:
                raise UserError(
                    f"--categories {text}: {name} has numbers, so give numbers"
                ) from error
        found[column] = values
    return found


def _column_of(option: str, name: str, table: pd.DataFrame) -> Any:
    from combutab.cli._options import find_columns

    found = find_columns(option, [name], table.columns)
    if len(found) != 1:
        raise UserError(f"{option} {name} must name one column")
    return found[0]


def describe_promise(epsilon: float, delta: float, whom: str) -> str:
    """Describe in words what (epsilon, delta) promises.

    >>> describe_promise(1.0, 1e-6, "row")[:75]
    'The rows are (1, 1e-06)-differentially private: an attacker who knows all o'
    """
    most = 1 / (1 + math.exp(-epsilon))
    return (
        f"The rows are ({epsilon:g}, {delta:g})-differentially private: an attacker who knows all "
        f"other rows can increase the certainty of a guess about one {whom} from 50 % to at most "
        f"{100 * most:.0f} %, except with a probability of {delta:g}. Budgets add up: each release "
        "of the same table adds its own."
    )


def synthesize(
    table: pd.DataFrame,
    forms: Any,
    out: Path,
    *,
    params: dict[str, Any],
    person: str | None,
    discrete: list[Any],
    rows: int | None,
    condition: list[str] | None,
    shares: list[str] | None,
    seed: int,
    save: Path | None,
) -> None:
    """Fit a private generator, and write rows and the generator's file."""
    from combutab.cli import _generators
    from combutab.cli._conditions import parse_conditions, parse_shares
    from combutab.generators import PrivateSynthesizer

    whose = None if person is None else _column_of("--person", person, table)
    with refusals(ValueError, TypeError, ImportError):
        model = PrivateSynthesizer(**params, random_state=seed)
        model.fit(table, person=whose, discrete_columns=discrete or "auto")
    conditions = parse_conditions(condition, model.encoder_, forms)
    wanted = parse_shares(shares, model.encoder_, forms, conditions)
    _generators.save_generator(model, save, forms)
    n_rows = model.n_rows_ if rows is None else rows
    if _generators.is_streamed(out, condition, shares):
        _generators.stream_rows(model, forms, n_rows, seed, out)
    else:
        _generators.check_size(n_rows, table.shape[1])
        _generators.write_rows(model, forms, n_rows, conditions, wanted, seed, out)
    echo_on_terminal(f"Wrote {counted(n_rows, 'row')} to {out}")
    echo(describe_promise(model.epsilon_, model.delta_, "row" if whose is None else "person"))
