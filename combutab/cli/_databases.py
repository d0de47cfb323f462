"""Databases on the command line: several tables with keys, in files or in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from combutab.cli import _options
from combutab.cli._console import UserError, refusals
from combutab.core.text import counted, known_instead
from combutab.core.textfile import EXCEL, EXTENSIONS

if TYPE_CHECKING:
    import pandas as pd

    from combutab.datasets.formats import FileFormat

MODEL = "TabFlowTables"  # the class of a saved generator of databases
_FILES = "files"  # key in the header of a model file: the names of the files of its tables


@dataclass(frozen=True, kw_only=True)
class DatabaseOptions(_options.Options):
    """Options for several tables with keys.

    Several tables
    --------------
    key : CHILD.COLUMN=PARENT.COLUMN
        Foreign key: column of a child table whose values are those of a column of its parent table,
        such as visits.patient=patients.id. Tables have the names of their files. Can be repeated.
        auto proposes keys by names and values.
    order_by : TABLE=COLUMN
        Column of numbers or dates by which the rows of a parent are ordered, such as visits=date.
        Can be repeated for different tables.
    lookup : TABLE
        Table whose rows are not synthetic, such as products or countries. Can be repeated.
    """

    key: list[str] | None = None
    order_by: list[str] | None = None
    lookup: list[str] | None = None


def refuse_options(options: _options.Options, *names: str, several: bool) -> None:
    """Raise UserError for options of single tables, or of ``several`` tables."""
    for option in options.changed(*names):
        if several:
            raise UserError(f"{option} is for several tables: give their files, or a folder")
        raise UserError(f"{option} cannot be used with several tables; leave it out")


# ---- Files of a database -------------------------------------------------------------------------


def find_table_files(paths: Sequence[Path]) -> dict[str, Path]:
    """The files of a database by the names of its tables; those of a folder are sorted by name."""
    files: dict[str, Path] = {}
    for path in paths:
        inside = [path]
        if path.is_dir():
            inside = [file for file in sorted(path.iterdir()) if _table_name(file) is not None]
            if not inside:
                raise UserError(
                    f"the folder {path} has no files of tables: {', '.join(EXTENSIONS)}"
                )
        for file in inside:
            name = _table_name(file) or file.name
            if name in files:
                raise UserError(f"{files[name]} and {file} are both a table {name!r}; rename one")
            files[name] = file
    return files


def _table_name(path: Path) -> str | None:
    """The name of a file without its ending, or None if it is no table."""
    endings = [ending for ending in EXTENSIONS if path.name.lower().endswith(ending)]
    return path.name[: -len(endings[0])] if endings and not path.name.startswith(".") else None


def read_database(
    files: Mapping[str, Path], options: _options.ReadOptions, like: Mapping[str, FileFormat]
) -> tuple[dict[str, pd.DataFrame], dict[str, FileFormat]]:
    """Read the tables of a database and their formats."""
    from combutab.cli import _files

    tables, forms = {}, {}
    for name, path in files.items():
        tables[name], forms[name] = _files.read_file(path, options.reading, like.get(name))
    return tables, forms


def check_folder_of_tables(
    files: Mapping[str, str], inputs: Mapping[str, Path], options: Any
) -> None:
    """Check that the files of a database can be written, and the model."""
    outputs = {f"OUT/{file}": options.out / file for file in files.values()}
    _options.check_outputs(outputs, inputs, make_folders=True)
    for path in outputs.values():
        _options.check_outputs({}, {}, table=path)


def write_database(
    tables: Mapping[str, pd.DataFrame],
    forms: Mapping[str, FileFormat],
    files: Mapping[str, str],
    options: Any,
) -> None:
    from combutab.cli import _files

    with _options.writing(options.out):
        options.out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        forms[name].guarded |= options.guard_formulas
        _files.hint_at_formulas(table, forms[name], options.out / files[name])
        _files.write_table(table, forms[name], options.out / files[name])
    rows = ", ".join(f"{name}: {counted(len(table), 'row')}" for name, table in tables.items())
    options.echo_done(f"Wrote {rows} to {options.out}")


# ---- Keys and columns that options name ----------------------------------------------------------


def check_names(options: DatabaseOptions, tables: Sequence[str]) -> None:
    """Check the form of options and the tables they name, before the files are read."""
    for text in options.key or ():
        if text != "auto":
            parse_key(text, tables)
    if options.key and "auto" in options.key and len(options.key) > 1:
        raise UserError("--key auto proposes all keys; leave the others out, or auto")
    _parse_order(options.order_by, tables)
    for name in options.lookup or ():
        _find_table(f"--lookup {name}", name, tables)


def parse_key(text: str, tables: Sequence[str]) -> tuple[str, str, str, str]:
    """Parse ``CHILD.COLUMN=PARENT.COLUMN``.

    >>> parse_key("visits.patient=patients.id", ["patients", "visits"])
    ('visits', 'patient', 'patients', 'id')
    """
    option, (child, sign, parent) = f"--key {text}", text.partition("=")
    if not sign:
        raise UserError(f"{option} is not CHILD.COLUMN=PARENT.COLUMN, such as visits.who=people.id")
    sides: list[str] = []
    for side in (child, parent):
        names = [name for name in tables if side.startswith(f"{name}.")]
        table = max(names, key=len, default=None)
        if table is None:
            table = _find_table(option, side.partition(".")[0], tables)
            raise UserError(f"{option}: name a column of the table {table!r}, as {table}.COLUMN")
        sides += [table, side[len(table) + 1 :]]
    return (sides[0], sides[1], sides[2], sides[3])


def _find_table(option: str, name: str, tables: Sequence[str]) -> str:
    if name not in tables:
        raise UserError(f"{option}: there is no table {name!r}; {known_instead(name, tables)}")
    return name


def _parse_order(texts: Sequence[str] | None, tables: Sequence[str]) -> dict[str, str]:
    order = {}
    for text in texts or ():
        name, sign, column = text.partition("=")
        if not sign:
            raise UserError(f"--order-by {text} is not TABLE=COLUMN, such as visits=date")
        order[_find_table(f"--order-by {text}", name, tables)] = column
    return order


def parse_database(options: DatabaseOptions, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """The parameters keys, order_by and lookup; those that no option names are left out."""
    parsed: dict[str, Any] = {}
    names = [*tables]
    if options.key:
        keys = [parse_key(text, names) for text in options.key if text != "auto"]
        for text, (child, column, parent, parent_column) in zip(options.key, keys, strict=False):
            for table, name in ((child, column), (parent, parent_column)):
                _options.column_named(f"--key {text}", name, tables[table])
        parsed["keys"] = keys or "auto"
    if options.order_by:
        parsed["order_by"] = order = _parse_order(options.order_by, names)
        for table, column in order.items():
            _options.column_named(f"--order-by {table}={column}", column, tables[table])
    if options.lookup:
        parsed["lookup"] = options.lookup
    return parsed


# ---- Synthetic databases -------------------------------------------------------------------------


def written_name(path: Path) -> str:
    """The name of the file to write: that of the file that was read, Excel files as text."""
    is_workbook = path.name.lower().endswith(EXCEL)
    return f"{_table_name(path) or path.name}.csv" if is_workbook else path.name


def model_content(
    model: Any, forms: Mapping[str, FileFormat], files: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of a model file, with the formats and names of the files of its tables."""
    from combutab._model_files import file_content
    from combutab.datasets.formats import HEADER_KEY

    header, arrays = file_content(model)
    formats = {name: asdict(form) for name, form in forms.items()}
    return {**header, HEADER_KEY: formats, _FILES: dict(files)}, arrays


def is_database_model(path: Path) -> bool:
    """Say whether a file holds a generator of several tables."""
    from combutab.core.files import read_model

    with refusals(OSError, ValueError):
        return bool(read_model(path, arrays=False)[0]["class"] == MODEL)


def load_database_model(
    path: Path, device: str
) -> tuple[Any, dict[str, FileFormat], dict[str, str]]:
    """Load a generator of several tables, with the formats and names of their files."""
    from combutab._model_files import load
    from combutab.core.files import check_fields, read_model, text
    from combutab.datasets.formats import HEADER_KEY, FileFormat

    with refusals(OSError, ValueError):
        header, _ = read_model(path, arrays=False)
        model = load(path, device=device)
        formats, files = header.get(HEADER_KEY, {}), header.get(_FILES, {})
        files = {name: str(files.get(name, f"{name}.csv")) for name in model.tables_}
        check_fields(files, dict.fromkeys(files, text()), "the names of files")
        forms = {
            name: FileFormat.from_json(formats[name]) if name in formats else FileFormat()
            for name in files
        }
    for name, file in files.items():
        if Path(file).name != file:  # a file from elsewhere must not lead out of the folder
            raise UserError(f"{path} is damaged: the file of table {name!r} is {file!r}")
    return model, forms, files
