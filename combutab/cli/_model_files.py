"""Model files that a command is given, and what is checked before a generator is trained."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from combutab._model_files import decode, load, read_model, write_model
from combutab.cli._console import UserError, note, say_on_terminal
from combutab.cli._tables import FileFormat, ending, find_formulas
from combutab.core.device import resolve_device
from combutab.generators import find_generators
from combutab.preprocessing import ModeEncoder

# ---- The header of a model's file that a command is given ----------------------------------------


@contextmanager
def model_header(
    path: Path, names: Collection[str], lack: str, maker: str
) -> Iterator[dict[str, Any]]:
    """Give the header of a file of one of these classes; what goes wrong with it is a UserError.

    ``lack`` is what others do not do, ``maker`` the command that writes such files.
    """
    try:
        header, _ = read_model(path, arrays=False)
        if header["class"] not in names:
            *others, last = sorted(names, key=str.lower)
            raise UserError(
                f"{path} holds a {header['class']}, which {lack}; give a file of a "
                f"{', '.join(others)} or {last}, such as `{maker}` writes"
            )
        yield header
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged: {error!r}") from error
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error


# ---- Files of generators, which know the forms of a table too, and what they tell of its origin

_KEY = "forms"  # of the header of a model's file


@contextmanager
def generator_header(path: Path) -> Iterator[dict[str, Any]]:
    """Give the header of a generator's file; what goes wrong with the file is a UserError."""
    names, maker = find_generators(), "combutab synth --save"
    with model_header(path, names, "makes no rows", maker) as header:
        yield header


def read_made(path: Path) -> dict[str, str]:
    """Read a generator's description from its file."""
    with generator_header(path) as header:
        return describe(header)


def describe(header: Mapping[str, Any]) -> dict[str, str]:
    """Kind, version and parameters of a generator, from the header of its file.

    >>> describe({"class": "TVAE", "version": "0.1.0", "params": {"epochs": 300}})
    {'Generator': 'TVAE of combutab 0.1.0', 'epochs': '300'}
    """
    made = {"Generator": f"{header['class']} of combutab {header['version']}"}
    return made | {str(name): str(decode(value)) for name, value in header["params"].items()}


def save_generator(generator: Any, forms: FileFormat, path: Path) -> None:
    """Write a generator's file that knows the forms too."""
    generator.save(path)
    header, arrays = read_model(path)
    write_model(path, {**header, _KEY: forms.to_json()}, arrays)


def load_generator(path: Path, device: str) -> tuple[Any, FileFormat]:
    """Read a generator's file, and the forms that it knows; as `generator_header` does."""
    with generator_header(path) as header:
        generator = load(path, device=device)
        forms = FileFormat.from_json(header[_KEY]) if _KEY in header else FileFormat()
    return generator, forms


# ---- What is looked at, and told of, before a generator learns a table from a file ---------------

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
