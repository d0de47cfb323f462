"""The reader of files that hold tables: typed columns, or the cells as they are written."""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from combutab.core.text import counted, one_line
from combutab.core.textfile import (
    EXCEL,
    SEPARATORS,
    Reading,
    TableError,
    check_rows,
    check_separator,
    detect_encoding,
    detect_separator,
    extension_of,
    header_words,
    read_bytes,
    refuse_repeated_names,
    text_of,
)

# Usual marks of missing values that may be values: Namibia, "None" of several levels, a surname
_MARKS = ("NA", "N/A", "n/a", "NULL", "null", "None", "nan", "NaN")
_MIN_CODES = 2  # other values that are codes of the same form as a mark
_MAX_CODE_LENGTH = 4
_MIN_SHARE_OF_WORDS = 0.5  # values that begin with a letter in a column of words
_N_FIRST_ROWS = 200  # in which the header is looked for
_N_SHOWN = 5  # columns that a note names


class TableFile:
    """A file that holds a table, from which columns are read with types or as text.

    Parameters
    ----------
    path : Path
    reading : Reading
        How the file is read. What is None is detected.
    known : Reading, optional
        How a table like this one was read, for what the bytes do not tell.

    Attributes
    ----------
    reading : Reading
        With the separator and the encoding of a text file.
    notes : list of str
        What ``table`` left out or read otherwise than it may look, one sentence each.
    value_marks : dict
        Texts such as "NA" that are values and not missing, by column.

    Raises
    ------
    TableError
        If the file cannot be read, or holds no table.
    """

    def __init__(self, path: Path, reading: Reading, known: Reading | None = None) -> None:
        self.path, self.reading, self.known = path, reading, known
        self.notes: list[str] = []
        self.value_marks = {name: list(m) for name, m in (reading.value_marks or {}).items()}
        self._extension = extension_of(path)
        self.is_text = self._extension in SEPARATORS
        if reading.sheet is not None and self._extension not in EXCEL:
            raise TableError(f"{path} has no sheets; leave sheet={reading.sheet!r} out")
        if reading.header_row is not None and self._extension == ".parquet":
            raise TableError(f"{path} has no lines; leave header_row={reading.header_row} out")
        if reading.n_lines_above < 0:
            raise TableError(f"header_row must be at least 1, got {reading.header_row}")

    @cached_property
    def _text(self) -> str:
        reading, known = self.reading, self.known or Reading()
        data = read_bytes(self.path, unzip=self._extension.endswith(".gz"))
        encoding = reading.encoding or detect_encoding(data, known.encoding)
        text = text_of(self.path, data, encoding, reading.n_lines_above)
        usual = SEPARATORS[self._extension]
        if reading.sep is not None:
            separator = check_separator(reading.sep)
        else:
            separator = detect_separator(text, known.sep if known.sep and usual == "," else usual)
        self.reading = replace(reading, sep=separator, encoding=encoding)
        text, notes = check_rows(self.path, text, separator, reading)
        self.notes += notes
        return text

    def table(self) -> pd.DataFrame:
        """Read all columns with their types, and take note of what is left out."""
        if self._extension == ".parquet":
            table = self._without_marks(_read_parquet(self.path))
        elif self.is_text:
            table = self._parsed_text()
        else:
            table = self._parsed_sheet()
        if table.empty:
            raise TableError(f"{self.path} has a header and no rows")
        return table

    def cells(
        self, columns: Sequence[int] | None = None, *, only_empty: bool = False
    ) -> pd.DataFrame:
        """Read some columns of a text file as they are written.

        Marks of missing values are missing as in ``table``, or only empty cells are.
        """
        if not self.is_text:
            raise TableError(f"{self.path} is no text file: its cells have types")
        if only_empty:
            marks: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}
            return self._parse(dtype=str, usecols=columns, **marks)
        cells = self._parse(dtype=str, usecols=columns, na_values=list(self.reading.missing))
        names = [name for name in cells if self.value_marks.get(str(name))]
        if names:
            places = None if columns is None else sorted(columns)
            raw = self.cells(places, only_empty=True)
            for name in names:
                is_value = raw[name].isin(self.value_marks[str(name)])
                cells[name] = cells[name].mask(is_value, raw[name])
        return cells

    def _parse(self, **options: Any) -> pd.DataFrame:
        text = self._text
        try:
            return pd.read_csv(io.StringIO(text), sep=self.reading.sep, index_col=False, **options)
        except ValueError as error:  # pandas' ParserError and EmptyDataError are ValueErrors
            raise TableError(f"cannot parse {self.path}: {one_line(error)}") from error

    def _parsed_text(self) -> pd.DataFrame:
        exact: dict[str, Any] = {"decimal": self.reading.decimal or ".", "low_memory": False}
        if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):
            # pandas' own parser would write some numbers otherwise than it has read them
            exact["float_precision"] = "round_trip"
        table = self._parse(na_values=list(self.reading.missing), **exact)
        marks = "|".join(map(re.escape, _MARKS))
        edge = rf"[{re.escape(str(self.reading.sep))}\r\n]"
        if not re.search(rf'(?:^|{edge})"?(?:{marks})"?(?:$|{edge})', self._text):
            return table
        return self._with_value_marks(table, lambda places: self.cells(places, only_empty=True))

    # ---- Marks of missing values that may be values ----------------------------------------------

    def _with_value_marks(
        self, table: pd.DataFrame, raw_cells: Callable[[list[int]], pd.DataFrame]
    ) -> pd.DataFrame:
        """The table with marks such as "NA" where they are values; notes where they may be."""
        incomplete = [j for j in range(table.shape[1]) if table.iloc[:, j].isna().any()]
        if not incomplete:
            return table
        raw = raw_cells(incomplete)
        counts: list[dict[str, int]] = []
        of_numbers: set[str] = set()
        for i, j in enumerate(incomplete):
            column, cells = table.iloc[:, j], raw.iloc[:, i]
            marks = cells[column.isna() & cells.isin(_MARKS)].value_counts(sort=False)
            counts.append({str(mark): int(n) for mark, n in marks.items()})
            if column.notna().any() and not _are_words(column):
                of_numbers |= counts[-1].keys()
        unclear: dict[tuple[str, bool], dict[str, int]] = {}
        for i, j in enumerate(incomplete):
            name, column = str(table.columns[j]), table.iloc[:, j]
            values = self._value_marks_of(name, column, counts[i].keys() - of_numbers)
            if values:
                self.value_marks[name] = values
                table.isetitem(j, _with_values(column, raw.iloc[:, i], values))
            for mark, n_rows in counts[i].items() if self.reading.value_marks is None else ():
                is_option = mark in (*self.reading.missing, *self.reading.not_missing)
                is_word = mark not in of_numbers and _are_words(column)
                if not is_option and (is_word or _have_form_of(mark, column)):
                    unclear.setdefault((mark, mark in values), {})[name] = n_rows
        self.notes += [_mark_words(*key, columns) for key, columns in unclear.items()]
        return table

    def _value_marks_of(self, name: str, column: pd.Series, marks: Collection[str]) -> list[str]:
        """The marks that are values of a column."""
        known = self.reading.value_marks
        values = list(self.reading.not_missing) if _is_text(column) else []
        if known is not None:
            values += known.get(name, ())
        elif _is_text(column):
            codes = [mark for mark in sorted(marks) if _have_form_of(mark, column)]
            values += [mark for mark in codes if mark not in self.reading.missing]
        return list(dict.fromkeys(values))

    def _without_marks(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table of a Parquet file without the marks that the reading names."""
        for j in range(table.shape[1]) if self.reading.missing else ():
            column: Any = table.iloc[:, j]
            if _is_text(column):
                table.isetitem(j, column.mask(column.isin(self.reading.missing)))
        return table

    # ---- Workbooks -------------------------------------------------------------------------------

    def _parsed_sheet(self) -> pd.DataFrame:
        """Read a sheet of a workbook, the first one by default."""
        try:
            import openpyxl  # noqa: F401
        except ImportError as error:
            raise ImportError(
                f"reading {self.path} needs openpyxl: pip install openpyxl"
            ) from error
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # openpyxl's, of styles and charts
                with pd.ExcelFile(self.path, engine="openpyxl") as book:
                    return self._parsed_book(book)
        except TableError:
            raise
        except (OSError, ValueError, zipfile.BadZipFile, KeyError) as error:
            raise TableError(f"cannot read {self.path}: {one_line(error)}") from error

    def _parsed_book(self, book: pd.ExcelFile) -> pd.DataFrame:
        sheet, above = self._sheet_of(list(map(str, book.sheet_names))), self.reading.n_lines_above
        head: Any = book.parse(sheet, header=None, nrows=above + _N_FIRST_ROWS, dtype=object)
        rows = [
            (i + 1, ["" if pd.isna(cell) else str(cell) for cell in row])
            for i, row in enumerate(head.to_numpy())
        ]
        if self.reading.header_row is None:  # blank rows may stand above the header
            above = next((i for i, (_, row) in enumerate(rows) if any(row)), 0)
        suggestion = header_words(rows[above:])
        # the header as it is in the file: pandas numbers names that are there twice
        names = rows[above][1] if above < len(rows) else []
        refuse_repeated_names(str(self.path), names, suggestion)
        self.notes += [] if suggestion is None else [suggestion]
        skipped = list(range(above))
        options: dict[str, Any] = {"sheet_name": sheet, "na_values": list(self.reading.missing)}
        table: Any = book.parse(skiprows=skipped, **options)
        if table.shape[1] > 1:
            is_empty = table.isna().all(axis=1)
            if is_empty.any() and not is_empty.all():
                self.notes.append(f"{counted(int(is_empty.sum()), 'row')} without a value left out")
                skipped += [above + 1 + int(i) for i in is_empty.to_numpy().nonzero()[0]]
                table = book.parse(skiprows=skipped, **options)
        options |= {"na_values": [""], "keep_default_na": False}
        columns = [
            j
            for j in range(table.shape[1])
            if (j < len(names) and names[j].strip()) or table.iloc[:, j].notna().any()
        ]
        if len(columns) < table.shape[1]:
            n_unnamed = table.shape[1] - len(columns)
            self.notes.append(f"{counted(n_unnamed, 'column')} without a name and a value left out")

        def raw_cells(places: list[int]) -> pd.DataFrame:
            raw: Any = book.parse(skiprows=skipped, dtype=object, **options)
            return raw.iloc[:, columns].iloc[:, places]

        return self._with_value_marks(table.iloc[:, columns].rename(columns=str), raw_cells)

    def _sheet_of(self, names: list[str]) -> str:
        """The name of the sheet to read; takes note of other sheets."""
        sheet = self.reading.sheet
        others = [name for name in names if name != sheet]
        listed = ", ".join(map(repr, others[:3])) + (", ..." if len(others) > 3 else "")
        if sheet is None:
            first, others = names[0], names[1:]
            if others:
                self.notes.append(
                    f"the file has {len(names)} sheets, and the first, {first!r}, is read; to "
                    f"read another ({', '.join(map(repr, others[:3]))}"
                    f"{', ...' if len(others) > 3 else ''}), use sheet={others[0]!r}"
                )
            return first
        if sheet in names:
            return sheet
        if sheet.isdecimal() and 0 < int(sheet) <= len(names):
            return names[int(sheet) - 1]
        raise TableError(f"{self.path} has no sheet {sheet!r}; there are {listed}")


# ---- What a column holds -------------------------------------------------------------------------


def _is_text(column: pd.Series) -> bool:
    """Tell whether all values of a column are texts."""
    is_object = column.dtype == object or pd.api.types.is_string_dtype(column.dtype)
    return is_object and pd.api.types.infer_dtype(column, skipna=True) == "string"


def _are_words(column: pd.Series) -> bool:
    """Tell whether most values of a column begin with a letter, unlike numbers and dates."""
    if not _is_text(column):
        return False
    values = column.dropna().unique()
    n_words = sum(str(value).strip()[:1].isalpha() for value in values)
    return n_words >= _MIN_SHARE_OF_WORDS * len(values)


def _have_form_of(mark: str, column: pd.Series) -> bool:
    """Tell whether all values are codes of the same form as a mark, such as DE and ZA for NA."""
    case = "[A-Z]" if mark.isupper() else "[a-z]"
    form = re.compile(rf"{case}{{{len(mark)}}}")
    if form.fullmatch(mark) is None or len(mark) > _MAX_CODE_LENGTH or not _is_text(column):
        return False
    values = column.dropna().unique()
    return len(values) >= _MIN_CODES and all(form.fullmatch(value) for value in values)


def _with_values(column: pd.Series, cells: pd.Series, marks: list[str]) -> Any:
    """A column with the cells of these marks, which were read as missing."""
    values: Any = column.astype(object).mask(cells.isin(marks) & column.isna(), cells)
    return values.astype(column.dtype) if _is_text(column) else values


def _mark_words(mark: str, is_value: bool, columns: dict[str, int]) -> str:
    names = list(columns)
    more = f" and {len(names) - _N_SHOWN} more" if len(names) > _N_SHOWN else ""
    where = (
        f"{', '.join(map(repr, names[:_N_SHOWN]))}{more} ({counted(sum(columns.values()), 'row')})"
    )
    if is_value:
        return (
            f"{mark!r} is read as a value of {where}, because the other values are codes of the "
            f"same form; use missing=[{mark!r}] if it stands for missing values"
        )
    return (
        f"{mark!r} is read as a missing value in {where}; use not_missing=[{mark!r}] if it is a "
        "value"
    )


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install pyarrow") from error
    try:
        with pq.ParquetFile(path) as file:
            refuse_repeated_names(str(path), list(file.schema_arrow.names))
            table = file.read().to_pandas()
    except TableError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(f"cannot read {path}: {one_line(error)}") from error
    # A stored index with a name is a column of the user's; one without is a row count.
    return table.reset_index(drop=all(name is None for name in table.index.names))
