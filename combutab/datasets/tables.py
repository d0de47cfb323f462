"""Read tables from files, as typed columns or as the text of the cells."""

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

from combutab.core.text import counted, list_names, one_line
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

# Usual marks of missing values that may be values: Namibia, a category "None", a surname
_MARKS = ("NA", "N/A", "n/a", "NULL", "null", "None", "nan", "NaN")
_MIN_CODES = 2  # number of other values that are codes of the same form as a mark
_MAX_CODE_LENGTH = 4
_MIN_SHARE_OF_WORDS = 0.5  # share of values that begin with a letter, in a column of words
_N_FIRST_ROWS = 200  # rows that are searched for the header


class TableFile:
    """A file that holds a table, from which columns are read with types or as text.

    Parameters
    ----------
    path : Path
    reading : Reading
        Settings for reading the file. None means that a setting is detected.
    known_reading : Reading, optional
        Settings of a similar table, for properties that cannot be detected.

    Attributes
    ----------
    reading : Reading
        Settings, with the separator and the encoding of a text file.
    notes : list of str
        Sentences on rows and columns that ``table`` left out, and on values that are ambiguous.
    value_marks : dict
        For each column, texts such as "NA" that are values and not missing.

    Raises
    ------
    TableError
        If the file cannot be read, or holds no table.
    """

    def __init__(self, path: Path, reading: Reading, known_reading: Reading | None = None) -> None:
        self.path, self.reading, self.known_reading = path, reading, known_reading
        self.notes: list[str] = []
        self._number_texts: dict[int, pd.Series] = {}
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
        reading, known_reading = self.reading, self.known_reading or Reading()
        data = read_bytes(self.path, unzip=self._extension.endswith(".gz"))
        encoding = reading.encoding or detect_encoding(data, known_reading.encoding)
        text = text_of(self.path, data, encoding, reading.n_lines_above)
        usual_separator = SEPARATORS[self._extension]
        if reading.sep is not None:
            separator = check_separator(reading.sep)
        else:
            separator = detect_separator(
                text,
                known_reading.sep
                if known_reading.sep and usual_separator == ","
                else usual_separator,
            )
        self.reading = replace(reading, sep=separator, encoding=encoding)
        text, notes = check_rows(self.path, text, separator, reading)
        self.notes += notes
        return text

    def table(self) -> pd.DataFrame:
        """Read all columns with their types; ``notes`` lists omitted rows and columns."""
        if self._extension == ".parquet":
            table = self._remove_missing_marks(_read_parquet(self.path))
        elif self.is_text:
            table = self._parse_text()
        else:
            table = self._remove_missing_marks(self._parse_sheet())
        if table.empty:
            raise TableError(f"{self.path} has a header and no rows")
        return table

    def cells(
        self, columns: Sequence[int] | None = None, *, only_empty: bool = False
    ) -> pd.DataFrame:
        """Read columns of a text file as text.

        Missing values are the same as in ``table`` or, with ``only_empty``, only empty cells.
        """
        if not self.is_text:
            raise TableError(f"{self.path} is no text file: its cells have types")
        if only_empty:
            marks: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}
            return self._parse(dtype=str, usecols=columns, **marks)
        cells = self._parse(dtype=str, usecols=columns, na_values=list(self.reading.missing))
        names = [name for name in cells if self.value_marks.get(str(name))]
        if names:
            positions = None if columns is None else sorted(columns)
            raw_cells = self.cells(positions, only_empty=True)
            for name in names:
                is_value = raw_cells[name].isin(self.value_marks[str(name)])
                cells[name] = cells[name].mask(is_value, raw_cells[name])
        return cells

    def workbook_texts(self, position: int) -> pd.Series | None:
        """Read a column of numbers of a workbook as text, if all its cells are text."""
        if self._extension in EXCEL and not self._number_texts:
            self._parse_sheet()
        return self._number_texts.get(position)

    def _parse(self, **options: Any) -> pd.DataFrame:
        text = self._text
        try:
            return pd.read_csv(io.StringIO(text), sep=self.reading.sep, index_col=False, **options)
        except ValueError as error:  # pandas' ParserError and EmptyDataError are ValueErrors
            raise TableError(f"cannot parse {self.path}: {one_line(error)}") from error

    def _parse_text(self) -> pd.DataFrame:
        options: dict[str, Any] = {"decimal": self.reading.decimal or ".", "low_memory": False}
        if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):
            # pandas' own parser does not read back all numbers exactly as they were written
            options["float_precision"] = "round_trip"
        marks = list(self.reading.missing)
        table = self._parse(na_values=marks, **options)
        positions = [j for j in range(table.shape[1]) if _is_text(table.iloc[:, j])]
        if positions and re.search(r"\d{19}", self._text):
            # pandas reads the missing cells of a column of integers beyond 2**63 as text
            is_missing = self._parse(dtype=str, usecols=positions, na_values=marks).isna()
            for i, j in enumerate(positions):
                column: Any = table.iloc[:, j]
                table.isetitem(j, column.mask(is_missing.iloc[:, i]))
        mark_pattern = "|".join(map(re.escape, _MARKS))
        edge = rf"[{re.escape(str(self.reading.sep))}\r\n]"
        if not re.search(rf'(?:^|{edge})"?(?:{mark_pattern})"?(?:$|{edge})', self._text):
            return table
        return self._restore_value_marks(
            table, lambda positions: self.cells(positions, only_empty=True)
        )

    # ---- Marks of missing values that may be values ----------------------------------------------

    def _restore_value_marks(
        self, table: pd.DataFrame, raw_cells: Callable[[list[int]], pd.DataFrame]
    ) -> pd.DataFrame:
        """Restore marks such as "NA" that are values; ``notes`` lists ambiguous columns."""
        incomplete = [
            position for position in range(table.shape[1]) if table.iloc[:, position].isna().any()
        ]
        if not incomplete:
            return table
        raw_table = raw_cells(incomplete)
        counts: list[dict[str, int]] = []
        marks_of_numbers: set[str] = set()
        for i, position in enumerate(incomplete):
            column, cells = table.iloc[:, position], raw_table.iloc[:, i]
            marks = cells[column.isna() & cells.isin(_MARKS)].value_counts(sort=False)
            counts.append({str(mark): int(n) for mark, n in marks.items()})
            if column.notna().any() and not _are_words(column):
                marks_of_numbers |= counts[-1].keys()
        unclear: dict[tuple[str, bool], dict[str, int]] = {}
        for i, position in enumerate(incomplete):
            name, column = str(table.columns[position]), table.iloc[:, position]
            values = self._find_value_marks(name, column, counts[i].keys() - marks_of_numbers)
            if values:
                self.value_marks[name] = values
                table.isetitem(position, _restore_values(column, raw_table.iloc[:, i], values))
            for mark, n_rows in counts[i].items() if self.reading.value_marks is None else ():
                is_option = mark in (*self.reading.missing, *self.reading.not_missing)
                is_word = mark not in marks_of_numbers and _are_words(column)
                if not is_option and (is_word or _are_codes_like(mark, column)):
                    unclear.setdefault((mark, mark in values), {})[name] = n_rows
        self.notes += [_describe_mark(*key, columns) for key, columns in unclear.items()]
        return table

    def _find_value_marks(self, name: str, column: pd.Series, marks: Collection[str]) -> list[str]:
        """Find the marks that are values of a column."""
        known_marks = self.reading.value_marks
        values = list(self.reading.not_missing) if _is_text(column) else []
        if known_marks is not None:
            values += known_marks.get(name, ())
        elif _is_text(column):
            codes = [mark for mark in sorted(marks) if _are_codes_like(mark, column)]
            values += [mark for mark in codes if mark not in self.reading.missing]
        return list(dict.fromkeys(values))

    def _remove_missing_marks(self, table: pd.DataFrame) -> pd.DataFrame:
        """Replace the marks that the settings name by missing values, where cells have types."""
        marks = self.reading.missing
        numbers: list[float] = [int(mark) for mark in marks if re.fullmatch(r"[+-]?\d{1,18}", mark)]
        numbers += [float(mark) for mark in marks if re.fullmatch(r"[+-]?\d*\.\d+", mark)]
        for j in range(table.shape[1]) if marks else ():
            column: Any = table.iloc[:, j]
            is_number = pd.api.types.is_any_real_numeric_dtype(column.dtype)
            if _is_text(column) or is_number:
                table.isetitem(j, column.mask(column.isin(numbers if is_number else marks)))
        return table

    # ---- Workbooks -------------------------------------------------------------------------------

    def _parse_sheet(self) -> pd.DataFrame:
        """Read a sheet of a workbook, the first one by default."""
        try:
            import openpyxl  # noqa: F401
        except ImportError as error:
            raise ImportError(
                f"reading {self.path} needs openpyxl: pip install openpyxl"
            ) from error
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # openpyxl warns of styles and charts
                with pd.ExcelFile(self.path, engine="openpyxl") as book:
                    return self._parse_workbook(book)
        except TableError:
            raise
        except (OSError, ValueError, zipfile.BadZipFile, KeyError) as error:
            raise TableError(f"cannot read {self.path}: {one_line(error)}") from error

    def _parse_workbook(self, book: pd.ExcelFile) -> pd.DataFrame:
        sheet, n_lines_above = (
            self._find_sheet(list(map(str, book.sheet_names))),
            self.reading.n_lines_above,
        )
        first_rows: Any = book.parse(
            sheet, header=None, nrows=n_lines_above + _N_FIRST_ROWS, dtype=object
        )
        rows = [
            (i + 1, ["" if pd.isna(cell) else str(cell) for cell in row])
            for i, row in enumerate(first_rows.to_numpy())
        ]
        if self.reading.header_row is None:  # there may be blank rows above the header
            n_lines_above = next((i for i, (_, row) in enumerate(rows) if any(row)), 0)
        suggestion = header_words(rows[n_lines_above:])
        # the names in the file: pandas numbers repeated names
        names = rows[n_lines_above][1] if n_lines_above < len(rows) else []
        refuse_repeated_names(str(self.path), names, suggestion)
        self.notes += [] if suggestion is None else [suggestion]
        skipped_rows = list(range(n_lines_above))
        options: dict[str, Any] = {"sheet_name": sheet, "na_values": list(self.reading.missing)}
        table: Any = book.parse(skiprows=skipped_rows, **options)
        if table.shape[1] > 1:
            is_empty = table.isna().all(axis=1)
            if is_empty.any() and not is_empty.all():
                self.notes.append(f"{counted(int(is_empty.sum()), 'row')} without a value left out")
                skipped_rows += [
                    n_lines_above + 1 + int(i) for i in is_empty.to_numpy().nonzero()[0]
                ]
                table = book.parse(skiprows=skipped_rows, **options)
        options |= {"na_values": [""], "keep_default_na": False}
        columns = [
            j
            for j in range(table.shape[1])
            if (j < len(names) and names[j].strip()) or table.iloc[:, j].notna().any()
        ]
        if len(columns) < table.shape[1]:
            n_unnamed = table.shape[1] - len(columns)
            self.notes.append(f"{counted(n_unnamed, 'column')} without a name and a value left out")

        def raw_cells(positions: list[int]) -> pd.DataFrame:
            raw_table: Any = book.parse(skiprows=skipped_rows, dtype=object, **options)
            return raw_table.iloc[:, columns].iloc[:, positions]

        table = table.iloc[:, columns].rename(columns=str)
        first_cells = first_rows.iloc[n_lines_above + 1 :, columns]
        with_texts = [
            i
            for i in range(table.shape[1])
            if pd.api.types.is_any_real_numeric_dtype(table.dtypes.iloc[i])
            and any(isinstance(cell, str) for cell in first_cells.iloc[:, i])
        ]
        if with_texts:
            self._restore_codes(table, with_texts, raw_cells(with_texts))
        return self._restore_value_marks(table, raw_cells)

    def _restore_codes(
        self, table: pd.DataFrame, positions: list[int], raw_table: pd.DataFrame
    ) -> None:
        """Restore codes such as 00501 in text cells, which pandas reads as numbers."""
        for i, position in enumerate(positions):
            column = table.iloc[:, position]
            cells: Any = raw_table.iloc[:, i].mask(column.isna())
            is_text = cells.dropna().map(lambda cell: isinstance(cell, str))
            if is_text.all():
                self._number_texts[position] = cells
            if are_codes(cells.dropna()[is_text]):
                table.isetitem(position, cells.map(str, na_action="ignore"))

    def _find_sheet(self, names: list[str]) -> str:
        """Find the name of the sheet to read; ``notes`` lists the other sheets."""
        sheet = self.reading.sheet
        other_names = [name for name in names if name != sheet]
        if sheet is None:
            first_name, other_names = names[0], names[1:]
            if other_names:
                self.notes.append(
                    f"the file has {len(names)} sheets, and the first, {first_name!r}, is read; to "
                    f"read another ({list_names(other_names, 3)}), use sheet={other_names[0]!r}"
                )
            return first_name
        if sheet in names:
            return sheet
        if sheet.isdecimal() and 0 < int(sheet) <= len(names):
            return names[int(sheet) - 1]
        raise TableError(f"{self.path} has no sheet {sheet!r}; there are {list_names(names, 3)}")


# ---- Kinds of columns ----------------------------------------------------------------------------


def are_codes(texts: pd.Series) -> bool:
    """Tell whether integers in text would lose a leading zero, or the plus of phone numbers."""
    has_zero = texts.str.contains(r"^\s*[+-]?0\d", regex=True).any()
    return bool(has_zero or (len(texts) and texts.str.fullmatch(r"\s*\+\d{7,}\s*").all()))


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


def _are_codes_like(mark: str, column: pd.Series) -> bool:
    """Tell whether all values are codes in the form of a mark, such as DE and ZA for NA."""
    case = "[A-Z]" if mark.isupper() else "[a-z]"
    form = re.compile(rf"{case}{{{len(mark)}}}")
    if form.fullmatch(mark) is None or len(mark) > _MAX_CODE_LENGTH or not _is_text(column):
        return False
    values = column.dropna().unique()
    return len(values) >= _MIN_CODES and all(form.fullmatch(value) for value in values)


def _restore_values(column: pd.Series, cells: pd.Series, marks: list[str]) -> Any:
    """Restore the cells of a column that hold these marks and were read as missing."""
    values: Any = column.astype(object).mask(cells.isin(marks) & column.isna(), cells)
    return values.astype(column.dtype) if _is_text(column) else values


def _describe_mark(mark: str, is_value: bool, columns: dict[str, int]) -> str:
    location = f"{list_names([*columns])} ({counted(sum(columns.values()), 'row')})"
    if is_value:
        return (
            f"{mark!r} is read as a value of {location}, because the other values are codes of "
            f"the same form; use missing=[{mark!r}] if it stands for missing values"
        )
    return (
        f"{mark!r} is read as a missing value in {location}; use not_missing=[{mark!r}] if it is "
        "a value"
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
    # A stored index with a name is a column of the user; an index without a name is a row number.
    return table.reset_index(drop=all(name is None for name in table.index.names))
