"""What is looked at, and told of, before a generator learns a table from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from combutab._device import resolve_device
from combutab._model_files import read_model
from combutab.cli._console import UserError, note, say_on_terminal
from combutab.cli.tables._forms import FileFormat, ending, find_formulas
from combutab.preprocessing import ModeEncoder

_FEW = 10  # values of whole numbers that are likely to be categories


def check_device(device: str) -> None:
    """Refuse a device that torch does not have."""
    try:
        resolve_device(device)
    except ValueError as error:
        raise UserError(str(error)) from error


def leave_out(table: pd.DataFrame, dropped: list[Any]) -> pd.DataFrame:
    """Leave columns out of a table, of which enough is to be left."""
    kept = table.drop(columns=dropped)
    if kept.shape[1] == 0:
        raise UserError("--drop leaves no column")
    if len(kept) < 2:
        raise UserError("the table has 1 row; at least 2 are needed")
    return kept


def probe(table: pd.DataFrame, listed: list[Any], kept: Mapping[str, Any]) -> ModeEncoder:
    """Fit the generator's encoder without the modes, which take time.

    Raises UserError if the table cannot be encoded.
    """
    discrete: Any = "auto"
    if listed:
        discrete = [name for name in table if name in listed or _is_discrete(table[name])]
    try:
        return ModeEncoder(discrete_columns=discrete, n_modes=1, max_rows=1, **kept).fit(table)
    except (ValueError, TypeError) as error:
        raise UserError(f"{error}; or leave the column out with --drop") from error


def _is_discrete(column: pd.Series) -> bool:
    """Tell whether "auto" would take a column for a discrete one."""
    types = pd.api.types
    return bool(
        types.is_bool_dtype(column.dtype)
        or not (
            types.is_numeric_dtype(column.dtype)
            or types.is_datetime64_any_dtype(column.dtype)
            or types.is_timedelta64_dtype(column.dtype)
        )
    )


def check_replaceable(save: Path, option: str = "--save") -> None:
    """Let a model take the place of a model alone, not of a table or of a training's checkpoint."""
    if not save.exists() or save.stat().st_size == 0:
        return
    what = "is no file of a model"
    try:
        header, _ = read_model(save, arrays=False)
        what = "is the checkpoint of a training" if "checkpoint" in header else ""
    except (OSError, ValueError, KeyError):
        pass
    if what:
        raise UserError(f"{option}: {save} is there, and {what}; choose another file, or remove it")


def check_savable(columns: ModeEncoder) -> None:
    """Refuse a table with values that no generator's file can hold."""
    try:
        columns.to_state()
    except TypeError as error:
        raise UserError(str(error)) from error


def tell_of_formulas(table: pd.DataFrame, forms: FileFormat, out: Path) -> None:
    """Name the columns of text that a spreadsheet would run."""
    found = [] if forms.guarded or ending(out) == ".parquet" else find_formulas(table)
    if found:
        named = ", ".join(map(repr, found[:5])) + (", ..." if len(found) > 5 else "")
        note(
            f"a spreadsheet that opens {out} would take text of {named} for formulas; "
            "--guard-formulas puts a ' before it"
        )


def tell_of_few_values(table: pd.DataFrame) -> None:
    """Name the columns of whole numbers that may well be categories."""
    whole = [name for name in table if pd.api.types.is_integer_dtype(table[name].dtype)]
    few = [str(name) for name in whole if 1 < table[name].nunique() <= _FEW]
    if few:
        more = f" and {len(few) - 5} more" if len(few) > 5 else ""
        say_on_terminal(
            f"{', '.join(few[:5])}{more} are taken for quantities, with few values each; if they "
            "are categories, name them with --discrete"
        )
