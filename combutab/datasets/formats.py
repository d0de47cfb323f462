"""Tables with the format in which their files hold dates, booleans and numbers.

A table is read with its format, such as ``31.12.2024`` for dates and ``1.507,67 €`` for numbers, so
that later tables can be read and written in the same format.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types

from combutab.core.dates import (
    DATE_FORMATS,
    DAY_FORMATS,
    find_date_format,
    offsets_differ,
    read_dates,
    write_dates,
)
from combutab.core.files import Field, check_fields, choice, nullable, optional
from combutab.core.progress import interrupts_first
from combutab.core.text import list_names
from combutab.core.textfile import EXCEL, SEPARATORS, Reading, TableError, usual_separator
from combutab.datasets.tables import TableFile, are_codes
from combutab.preprocessing import ColumnKind, column_kind
from combutab.preprocessing.amounts import Amounts, amounts_in, as_numbers, choose_marks
from combutab.preprocessing.amounts import Form as AmountForm

HEADER_KEY = "forms"  # of the format in the header of a model file
# Text that may be a formula, and is not a number
_FORMULA = re.compile(r"[=@＝＠\t\r\n]|[-+－＋](?![\d.,\s]*$)")

# Text that certainly is a formula
_CALL = re.compile(r"[=@＝＠\t\r]|[-+－＋].*[(|!]")


@dataclass
class FileFormat:
    """The format of the values in a file. The keys of each mapping are column names as text.

    ``dates`` maps each column of dates to its format, if a text file writes the dates differently
    from pandas, or a Parquet file has no time of day. ``truth`` holds the words for false and true.
    ``amounts`` says how numbers are written that have a unit, or other marks than the rest of the
    file. ``sep`` and ``decimal`` are set if a text file does not use the usual ones. ``encoding``
    is that of the file that was read; files are always written as UTF-8. If ``guarded``, a text
    file has a ``'`` before text that a spreadsheet would run as a formula. ``header_row``,
    ``sheet``, ``missing``, ``not_missing`` and ``value_marks`` are those of the `Reading`.
    """

    dates: dict[str, str] = field(default_factory=dict)
    truth: dict[str, list[str]] = field(default_factory=dict)
    sep: str | None = None
    decimal: str = "."
    guarded: bool = False
    encoding: str = "utf-8"
    amounts: dict[str, AmountForm] = field(default_factory=dict)
    header_row: int | None = None
    sheet: str | None = None
    missing: list[str] = field(default_factory=list)
    not_missing: list[str] = field(default_factory=list)
    value_marks: dict[str, list[str]] = field(default_factory=dict)

    def reading_of(self, path: Path) -> Reading:
        """Return the settings that read a file in the same way as the table of this format."""
        return Reading(
            sep=self.sep or usual_separator(path),
            decimal=self.decimal,
            encoding=self.encoding,
            header_row=None if path.name.lower().endswith(".parquet") else self.header_row,
            sheet=self.sheet if path.name.lower().endswith(EXCEL) else None,
            missing=tuple(self.missing),
            not_missing=tuple(self.not_missing),
            value_marks=self.value_marks,
        )

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> FileFormat | None:
        """Read the format from the header of a model file; None if it has none."""
        return cls.from_json(header[HEADER_KEY]) if HEADER_KEY in header else None

    @classmethod
    def from_json(cls, value: Any) -> FileFormat:
        """Check and load the format in a model file, which may come from an untrusted source.

        Raises ValueError if ``read_file`` could not have returned this format.
        """
        check_fields(value, _FORMAT, "the format of the table")
        amounts = value.get("amounts", {}).items()
        return cls(
            **{**value, "amounts": {name: AmountForm.from_json(form) for name, form in amounts}}
        )


def _is_encoding(name: Any) -> bool:
    try:
        return bool(codecs.lookup(name))
    except (LookupError, TypeError):
        return False


def _are_texts(value: Any) -> bool:
    return type(value) is list and all(type(text) is str for text in value)


_FORMAT = {
    "dates": Field(
        "known forms of dates", lambda v: type(v) is dict and set(v.values()) <= set(DATE_FORMATS)
    ),
    "truth": Field(
        "two words each for false and true",
        lambda v: (
            type(v) is dict
            and all(
                type(words) is list and list(map(type, words)) == [str, str] for words in v.values()
            )
        ),
    ),
    "sep": nullable(Field("a separator", lambda v: type(v) is str and v != "")),
    "decimal": choice(".", ","),
    "guarded": choice(True, False),
    "encoding": Field("a known encoding", _is_encoding),
    "amounts": optional(Field("forms by column", lambda v: type(v) is dict)),
    "header_row": optional(nullable(Field("a line", lambda v: type(v) is int and v > 0))),
    "sheet": optional(nullable(Field("a name", lambda v: type(v) is str))),
    "missing": optional(Field("a list of texts", _are_texts)),
    "not_missing": optional(Field("a list of texts", _are_texts)),
    "value_marks": optional(
        Field("texts by column", lambda v: type(v) is dict and all(map(_are_texts, v.values())))
    ),
}


# ---- reading -----------------------------------------------------------------------------------


def read_with_format(
    path: Path, reading: Reading, like: FileFormat | None = None
) -> tuple[pd.DataFrame, FileFormat, list[str]]:
    """Read a table as `read_table` does, the format of its values, and notes for the user.

    In a text file, a column holds

    - dates, if all its values are dates in one format (year first, or day or month first if the
      values are unambiguous), with or without a time;
    - integers, also if some are missing;
    - numbers, if all its values are amounts in one format, such as ``1.507,67 €``;
    - text, if its numbers have leading zeros that would be lost (``00501``), or are phone numbers
      with a plus sign.

    If neither the options nor the values determine a part of the format, it is taken from ``like``,
    the format of a table that was read before. A note says if the file is not UTF-8 with the usual
    separator and decimal point.

    Raises TableError as ``read_table`` does, and if the library for Parquet or Excel is missing.
    """
    file = _open_table(path, reading, like)
    try:
        with interrupts_first():  # pandas reports Ctrl-C as a broken file
            table = file.table()
    except ImportError as error:  # the message names the package to install
        raise TableError(str(error)) from error
    if path.name.lower().endswith(".parquet"):
        table, forms = _set_parquet_dtypes(table, path)
    else:
        forms = FileFormat(header_row=file.reading.header_row, sheet=file.reading.sheet)
    forms.missing, forms.not_missing = list(file.reading.missing), list(file.reading.not_missing)
    forms.value_marks = file.value_marks
    if file.is_text:
        table, utc_columns = _convert_columns(table, file, forms, like)
        description = _describe_format(reading, forms, usual_separator(path) or "", utc_columns)
    elif path.name.lower().endswith(EXCEL):  # whose cells have types
        table = _convert_workbook_amounts(table.apply(_to_integers), forms, file.reading, like)
        description = _describe_format(reading, forms, "")
    else:
        description = ""
    if description:
        file.notes.append(f"read {description}")
    return table, forms, file.notes


def _open_table(path: Path, reading: Reading, like: FileFormat | None) -> TableFile:
    """Open a file with the settings of the options, and otherwise those of ``like``."""
    if reading.decimal is None and reading.thousands in (".", ","):
        reading = replace(reading, decimal={".": ",", ",": "."}[reading.thousands])
    if like is None:
        return TableFile(path, reading)
    known_reading = like.reading_of(path)
    reading = replace(
        reading,
        header_row=reading.header_row or known_reading.header_row,
        sheet=reading.sheet or known_reading.sheet,
        missing=tuple(dict.fromkeys((*reading.missing, *known_reading.missing))),
        not_missing=tuple(dict.fromkeys((*reading.not_missing, *known_reading.not_missing))),
        value_marks=known_reading.value_marks,
    )
    return TableFile(path, reading, known_reading)


def _convert_columns(
    table: pd.DataFrame, file: TableFile, forms: FileFormat, like: FileFormat | None
) -> tuple[pd.DataFrame, list[str]]:
    """Convert the columns of a text file by their cells; also list the date columns in UTC.

    ``forms`` stores how the cells are written.
    """
    usual_sep, reading = usual_separator(file.path), file.reading
    forms.sep = None if reading.sep == usual_sep else reading.sep
    forms.decimal = reading.decimal or "."
    forms.encoding = reading.encoding or "utf-8"
    positions = [j for j in range(table.shape[1]) if _loses_form(table.iloc[:, j])]
    cells = file.cells(positions) if positions else pd.DataFrame(index=table.index)

    def convert(name: str, column: pd.Series) -> pd.Series:
        return _convert_column(column, cells[name], name, forms) if name in cells else column

    table = _change_columns(table, convert)
    zoned_columns = [name for name, form in forms.dates.items() if "%z" in form]
    utc_columns = [name for name in zoned_columns if offsets_differ(cells[name])]
    return _convert_amounts(table, cells, forms, file, like), utc_columns


def _present_texts(cells: pd.Series) -> pd.Series:
    return cells.dropna().drop_duplicates().str.strip()


# ---- Numbers: decimal marks, marks between thousands, and units ----------------------------------

_FEW_NUMBERS = 100  # up to so few distinct numbers, 1.1 and 1.10 may be two versions


def _convert_amounts(
    table: pd.DataFrame,
    cells: pd.DataFrame,
    forms: FileFormat,
    file: TableFile,
    like: FileFormat | None,
) -> pd.DataFrame:
    """Convert amounts in text to numbers; ``forms`` stores their format and the decimal mark."""
    sep, decimal, thousands = (
        getattr(file.reading, name) or "" for name in ("sep", "decimal", "thousands")
    )
    amounts: dict[str, Amounts] = {}
    for name in map(str, cells):
        if column_kind(table[name]) == ColumnKind.TEXT:
            values = Amounts.split(_present_texts(cells[name]))
            amounts |= {} if values is None else {name: values}
    # in a file with commas as separators, points are usually decimal points
    any_float = not decimal and bool(amounts or sep != "," or like is not None)
    float_positions = [
        position for position, name in enumerate(table) if _may_be_misread(table[name], any_float)
    ]
    cells = cells.join(file.cells(float_positions).drop(columns=cells.columns, errors="ignore"))
    has_point = False
    for name in map(str, table.columns[float_positions]):
        texts = _present_texts(cells[name])
        file.notes += _describe_merged(name, texts)
        values = Amounts.split(texts) if not decimal else None
        is_known = like is not None and name in like.amounts
        if values is not None and (is_known or len(values.marks) > 1):
            amounts[name] = values
        else:
            has_point |= bool(texts.str.contains(".", regex=False).any())
    known_marks = _known_marks(amounts, like)
    clear_decimals = {
        values.decimal
        for name, values in amounts.items()
        if name not in known_marks and not values.is_list(sep)
    }
    clear_decimals = (clear_decimals | ({"."} if has_point and not decimal else set())) - {""}
    if not decimal and len(clear_decimals) == 1:
        decimal = clear_decimals.pop()
    elif not decimal and like is not None:
        decimal = like.decimal
    elif not decimal and not clear_decimals and sep == ",":
        decimal = "."
    forms.decimal = decimal or "."
    file.notes += _describe_points(table, amounts, known_marks, decimal, sep)
    for name, values in amounts.items():
        if name in known_marks:
            marks: tuple[str, str] | None = known_marks[name]
        elif values.is_list(sep) and decimal != ",":
            continue
        else:
            marks = None if file.reading.decimal else values.choose("", thousands)
            marks = marks or values.choose(decimal, thousands)
        if marks is None or (types.is_float_dtype(table[name].dtype) and marks == (".", "")):
            continue
        table[name] = as_numbers(cells[name], values.numbers(*marks))
        _note_form(forms, name, values.form(*marks))
    return table


def _may_be_misread(column: pd.Series, any_float: bool) -> bool:
    """Tell whether pandas may have read other numbers than the cells of a column hold."""
    if not types.is_float_dtype(column.dtype) or column.isna().all():
        return False
    return any_float or column.nunique() <= _FEW_NUMBERS or bool((column.dropna() % 1 == 0).all())


def _known_marks(
    amounts: dict[str, Amounts], like: FileFormat | None
) -> dict[str, tuple[str, str]]:
    """Find the marks of columns that are written as in ``like``, a format that was read before."""
    known_marks = {}
    for name, values in amounts.items():
        form = None if like is None else like.amounts.get(name)
        if form is not None and form.read(values.parts) is not None:
            known_marks[name] = form.decimal, form.thousands
    return known_marks


def _describe_points(
    table: pd.DataFrame,
    amounts: dict[str, Amounts],
    known_marks: Collection[str],
    decimal: str,
    sep: str,
) -> list[str]:
    """Name the columns of numbers such as 1.234 in which the meaning of the point is unclear."""
    unclear_columns = [
        name
        for name in amounts
        if name not in known_marks and types.is_float_dtype(table[name].dtype)
    ]
    if not unclear_columns or decimal or sep == ",":
        return []
    example = next(iter(amounts[unclear_columns[0]].parts))
    return [
        f"{list_names(unclear_columns)}: points are read as decimal points, as in {example}; use "
        "thousands='.' to read them as thousands separators"
    ]


def _describe_merged(name: str, texts: pd.Series) -> list[str]:
    """Note if texts of a column become the same number, or a code becomes a number."""
    notes = []
    codes = texts[texts.str.fullmatch(r"\d+[eE]\d+")]
    if len(codes):
        notes.append(
            f"{name!r} is read as numbers, {codes.iloc[0]} as {float(codes.iloc[0]):.15g}; if "
            "these are codes, write them so that they are no numbers, such as with a letter in "
            "front"
        )
    with_zero = texts[texts.str.fullmatch(r"[+-]?\d*\.\d*[1-9]0+")]
    merged = with_zero[with_zero.str.rstrip("0").isin(texts)]
    if len(merged):
        text = merged.iloc[0].rstrip("0")
        notes.append(
            f"{name!r} is read as numbers, {text} and {merged.iloc[0]} as the same one; if these "
            "are versions or codes, write them with a letter in front"
        )
    return notes


def _convert_workbook_amounts(
    table: pd.DataFrame, forms: FileFormat, reading: Reading, like: FileFormat | None
) -> pd.DataFrame:
    """Convert amounts in a workbook's text to numbers; ``forms`` stores their format."""
    amounts = {name: values for name in table if (values := amounts_in(table[name])) is not None}
    converted = choose_marks(amounts, reading.decimal or "", reading.thousands or "")
    for name, values in amounts.items():
        known_form = None if like is None else like.amounts.get(str(name))
        if known_form is not None and known_form.read(values.parts) is not None:
            converted[name] = (known_form.decimal, known_form.thousands), values
    for name, (marks, values) in converted.items():
        table[name] = as_numbers(table[name], values.numbers(*marks))
        _note_form(forms, str(name), values.form(*marks))
    return table


def _note_form(forms: FileFormat, name: str, form: AmountForm) -> None:
    """Store how the numbers of a column are written, if they differ from the rest of the file."""
    if form.unit or form.thousands or form.decimal not in ("", forms.decimal) or not form.plain:
        forms.amounts[name] = form


def _describe_format(
    reading: Reading, forms: FileFormat, usual_sep: str, utc_columns: Sequence[str] = ()
) -> str:
    """Describe the detected properties of a file's format that are not the usual ones."""
    thousands_marks = dict.fromkeys(
        "' '" if form.thousands.isspace() else repr(form.thousands)
        for form in forms.amounts.values()
        if form.thousands
    )
    sep = forms.sep or usual_sep
    are_detected = {
        f"separator {sep!r}": reading.sep is None and forms.sep,
        f"decimal {forms.decimal!r}": reading.decimal is None and forms.decimal != ".",
        f"thousands {' and '.join(thousands_marks)}": reading.thousands is None and thousands_marks,
        f"encoding {forms.encoding}": reading.encoding is None and forms.encoding != "utf-8",
    }
    details = [detail for detail, is_detected in are_detected.items() if is_detected]
    units: dict[str, list[str]] = {}
    for name, form in forms.amounts.items():
        units.setdefault(form.unit, []).append(name)
    column_phrases = [
        f"{list_names(names)} as numbers in {unit}" for unit, names in units.items() if unit
    ]
    if utc_columns:
        column_phrases.append(
            f"{list_names(utc_columns)} in UTC, because the time zone offsets differ"
        )
    detected_format = f"with {', '.join(details)}" if details else ""
    return "; ".join(phrase for phrase in (detected_format, ", ".join(column_phrases)) if phrase)


def _change_columns(
    table: pd.DataFrame, change: Callable[[str, pd.Series], pd.Series]
) -> pd.DataFrame:
    """Apply ``change`` to each column; it is called with the column's name as text."""
    columns = {j: change(str(name), table.iloc[:, j]) for j, name in enumerate(table.columns)}
    changed_table = pd.DataFrame(columns)
    changed_table.columns = table.columns  # names may be other values than text
    return changed_table


def _loses_form(column: pd.Series) -> bool:
    """Tell whether the text of a column may be lost in the values that pandas has read."""
    may_be_integers = types.is_float_dtype(column.dtype) and column.isna().any()
    return bool(not types.is_float_dtype(column.dtype) or may_be_integers)


def _convert_column(column: pd.Series, cells: pd.Series, name: str, forms: FileFormat) -> pd.Series:
    """Convert a column to a better dtype if its cells allow; ``forms`` stores their format."""
    present_texts = _present_texts(cells)
    if present_texts.empty:
        return column
    if column_kind(column) == ColumnKind.BOOL:
        words = {cell.casefold(): cell for cell in present_texts}
        forms.truth[name] = [words.get("false", "False"), words.get("true", "True")]
        return column
    if types.is_numeric_dtype(column.dtype):
        if are_codes(present_texts):
            return cells
        if types.is_float_dtype(column.dtype) and present_texts.str.fullmatch(r"[+-]?\d+").all():
            try:
                return cells.astype("Int64")
            except (TypeError, ValueError, OverflowError):  # beyond 64 bits
                return column
        return column
    date_format = (
        find_date_format(present_texts) if types.is_string_dtype(present_texts.dtype) else None
    )
    if date_format is None:
        return column
    forms.dates[name] = date_format
    return read_dates(cells, date_format)


def _to_integers(column: pd.Series) -> pd.Series:
    """Convert integers with missing values, which pandas reads as floats, to integers."""
    if column.dtype.kind == "f" and column.isna().any() and (column.dropna() % 1 == 0).all():
        return column.astype("Int64")
    return column


def _set_parquet_dtypes(table: pd.DataFrame, path: Path) -> tuple[pd.DataFrame, FileFormat]:
    """Convert the columns of a Parquet file to dtypes that a generator recognizes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = {field.name: field.type for field in pq.read_schema(path)}
    forms = FileFormat()

    def convert(name: str, column: pd.Series) -> pd.Series:
        inferred_type = types.infer_dtype(column, skipna=True) if column.dtype == object else ""
        if inferred_type == "date":
            forms.dates[name] = "%Y-%m-%d"
            return pd.to_datetime(column)
        if inferred_type == "decimal":
            return column.astype(float)
        if column.dtype.kind == "f" and pa.types.is_integer(schema.get(name, pa.null())):
            # pandas reads integers with missing values as floats, which have 53 bits
            with pq.ParquetFile(path) as file:
                integers = file.read(columns=[name]).column(name)
            dtype = "UInt64" if pa.types.is_uint64(integers.type) else "Int64"
            exact: pd.Series = pd.Series(integers.to_pylist(), column.index, dtype=dtype)
            return exact.mask(column.isna())  # also where --missing names a number
        return column

    return _change_columns(table, convert), forms


# ---- writing -----------------------------------------------------------------------------------


def write_with_format(table: pd.DataFrame, forms: FileFormat, file: Any, suffix: str) -> None:
    """Write a table to a path or stream, as a file with the ending ``suffix``.

    The same table gives the same bytes. If both the separator and the decimal mark would be commas,
    the separator is a semicolon, because numbers such as ``1,5`` may be read as lists.
    """
    if suffix == ".parquet":
        # the RangeIndex is kept: without an index, column names would become text
        as_parquet(table, forms).to_parquet(file)
        return
    sep = (suffix.startswith(".csv") and forms.sep) or SEPARATORS[suffix]
    gzip_options: Any = {"method": "gzip", "mtime": 0}
    as_written(table, forms).to_csv(
        file,
        sep=";" if sep == forms.decimal else sep,
        decimal=forms.decimal,
        index=False,
        compression=gzip_options if suffix.endswith(".gz") else None,
    )


def formula_columns(table: pd.DataFrame) -> list[str]:
    """List the columns whose names or text a spreadsheet would run as formulas.

    >>> formula_columns(pd.DataFrame({"a": ["=1+1", "b"], "c": ["-5", "-x"]}))
    ['a']
    """
    formulas = []
    for name, column in table.items():
        texts = column.dropna() if not types.is_numeric_dtype(column.dtype) else ()
        if any(isinstance(text, str) and _CALL.match(text) for text in (name, *texts)):
            formulas.append(str(name))
    return formulas


def as_written(table: pd.DataFrame, forms: FileFormat) -> pd.DataFrame:
    """Convert the values of a table to those of a text file in this format."""

    def as_text(name: str, column: pd.Series) -> pd.Series:
        is_date = types.is_datetime64_any_dtype(column.dtype)
        if name in forms.amounts and types.is_numeric_dtype(column.dtype):
            return column.astype(object).map(forms.amounts[name].write, na_action="ignore")
        if name in forms.dates and is_date:
            column = write_dates(column, forms.dates[name])
        elif name in forms.truth:
            column = column.map(dict(zip((False, True), forms.truth[name], strict=True)))
        if not forms.guarded or is_date or types.is_numeric_dtype(column.dtype):
            return column
        return column.astype(object).map(_guard, na_action="ignore")

    rewritten = _change_columns(table, as_text)
    return rewritten.rename(columns=_guard) if forms.guarded else rewritten


def as_parquet(table: pd.DataFrame, forms: FileFormat) -> pd.DataFrame:
    """Convert columns of days to dates without a time of day, as Parquet files hold them."""

    def as_day(name: str, column: pd.Series) -> pd.Series:
        is_day = forms.dates.get(name) in DAY_FORMATS and types.is_datetime64_any_dtype(
            column.dtype
        )
        return column.dt.date if is_day else column

    return _change_columns(table, as_day)


def _guard(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value
