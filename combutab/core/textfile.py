"""Read the text of table files, and detect encoding, separator and header; without pandas."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from combutab.core.text import counted, list_names

SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
EXCEL = (".xlsx", ".xlsm")
EXTENSIONS = (*SEPARATORS, ".parquet", *EXCEL)
_SEPARATOR_NAMES = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a vertical bar"}
_SIGNATURES = {  # the first bytes of files that often have a wrong file ending
    b"PAR1": "a Parquet file: rename it to .parquet",
    b"PK\x03\x04": "a zip archive or a spreadsheet: rename it to .xlsx, or export it as CSV",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet (.xls): save it as .xlsx, or export it as CSV",
    b"\x1f\x8b": "compressed with gzip: rename it to .csv.gz",
}
_MARKS = {  # byte order marks; UTF-32 comes first, because its mark begins like that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_HEAD = 1 << 20  # bytes that are read to detect the header and the separator
_ROWS = 200  # rows that are read to detect them
_MIN_SHARE_OF_ROWS = 0.9  # rows with the same number of cells, if the first lines are a title
_MAX_LINES_ABOVE = 50  # lines above the header
_MAX_SHARE_FOREIGN = 0.1  # non-ASCII bytes in a text of Latin letters with few accents
_AROUND = 12  # bytes to show before and after one that cannot be decoded
_SIMPLE = re.compile(r"[-+]?\d[\d.,:/ T-]*")  # a number, or a date
# no language in Latin letters has four accented letters or signs in a row
_NOT_LATIN = re.compile("[\u00a1-\u00aa\u00ac-\u00ba\u00bc-\u00ff]{4}")
_C1 = re.compile("[\x80-\x9f]")  # control characters in latin-1, letters in cp1252


# cp1252 as browsers read it: the five bytes without a letter are control characters
_CP1252 = {byte: bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(128, 160)}


class TableError(ValueError):
    """Raised if a table or its target cannot be used; its message is one line."""


@dataclass(frozen=True)
class Reading:
    """Settings for reading a table from its file. None means that a setting is detected.

    ``header_row`` is the line of the header, from 1, and ``sheet`` the name or number of the sheet
    of a workbook. ``missing`` lists texts that stand for missing values in addition to the usual
    marks. ``not_missing`` lists usual marks that are values in text columns. ``value_marks`` maps
    columns to such marks, if they are known from a table that was read before.
    """

    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    thousands: str | None = None
    header_row: int | None = None
    sheet: str | None = None
    missing: tuple[str, ...] = ()
    not_missing: tuple[str, ...] = ()
    value_marks: Mapping[str, Sequence[str]] | None = None

    @property
    def n_lines_above(self) -> int:
        """Number of lines above the header."""
        return (self.header_row or 1) - 1


def extension_of(path: Path) -> str:
    """Find the ending of a table's file; raises TableError if it is unknown or no file exists."""
    name = path.name.lower()
    if not path.exists():
        raise TableError(f"there is no file {path}")
    if path.is_dir():
        raise TableError(f"{path} is a directory; give the file in it")
    for extension in EXTENSIONS:
        if name.endswith(extension):
            return extension
    raise TableError(
        f"cannot read {path}: use a file with one of the endings {', '.join(EXTENSIONS)}"
    )


def usual_separator(path: Path) -> str | None:
    """Find the separator of a text file by its ending; None for other files."""
    name = path.name.lower()
    return next((SEPARATORS[ending] for ending in SEPARATORS if name.endswith(ending)), None)


def check_separator(sep: str) -> str:
    """Return a separator; raises TableError if it cannot be one."""
    if len(sep) != 1 or sep.isalnum() or sep in "\"'\r\n\0.+-_":
        raise TableError(f"sep must be a single character, such as ; or tab, got {sep!r}")
    return sep


def read_bytes(path: Path, unzip: bool) -> bytes:
    """Read the bytes of a file; raises TableError if it cannot be read."""
    try:
        with path.open("rb") as file:
            if not unzip:
                return file.read()
            with gzip.open(file) as unzipped:
                return unzipped.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(f"{path} is not a complete gzip file: {error}") from error
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror or error}") from error


def text_of(path: Path, data: bytes, encoding: str, n_lines_above: int = 0) -> str:
    """Decode the bytes of a file, and return the text from the header on.

    Raises TableError if the bytes are not text in this encoding, or if there is no text.
    """
    for signature, file_type in _SIGNATURES.items():
        if data.startswith(signature):
            raise TableError(f"{path} is {file_type}")
    text = _decode(path, data, encoding)
    if not text.strip():
        raise TableError(f"{path} is empty")
    if n_lines_above:
        lines_above = re.match(rf"(?:[^\r\n]*(?:\r\n|\r|\n)){{{n_lines_above}}}", text)
        text = "" if lines_above is None else text[lines_above.end() :]
        if not text.strip():
            raise TableError(f"{path} has no text in line {n_lines_above + 1} or below it")
    if re.match(r"sep=.\r?\n", text):
        raise TableError(
            f"{path} begins with {text[:5]!r}, which only spreadsheets read; use "
            f"header_row={n_lines_above + 2}, or remove this line"
        )
    return text


def _decode(path: Path, data: bytes, encoding: str) -> str:
    """Decode the bytes; an error names the encoding that seems to be right, if one does."""
    try:
        codec = codecs.lookup(encoding).name
    except LookupError as error:
        raise TableError(
            f"{encoding!r} is not a known encoding; use a name such as utf-8, cp1252 or latin-1"
        ) from error
    marked_encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    text, problem, position = "", "", None
    try:
        if codec == "cp1252":
            text = data.decode("latin-1").translate(_CP1252)
        else:
            text = data.decode("utf-8-sig" if codec == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        position = error.start
        problem = f"is not {encoding}: byte 0x{data[position]:02x} at offset {position}"
    except UnicodeError as error:  # utf-16 without a byte order mark
        problem = f"is not {encoding}: {error}"
    if marked_encoding is not None and not codec.startswith(("utf-16", "utf-32")):
        problem = f"is {marked_encoding.upper()} text"
    elif "\0" in text:
        problem = "has NUL bytes"
    elif codec == "iso8859-1" and _C1.search(text):
        problem = f"is not {encoding}"
    if not problem:
        return text
    likely_encoding = marked_encoding
    if marked_encoding is None or codec.startswith(marked_encoding):
        likely_encoding = _likely_encoding(data, codec)
    if likely_encoding is None and b"\0" in data:
        raise TableError(f"{path} has NUL bytes, so it is not a text file; save the table as CSV")
    is_latin = likely_encoding not in ("latin-1", "cp1252") or not _NOT_LATIN.search(
        data.decode("latin-1")
    )
    if likely_encoding is not None and is_latin:
        suggestion = f"try encoding={likely_encoding!r}"
    elif position is not None and _share_foreign(data) <= _MAX_SHARE_FOREIGN:
        problem += f" ({_readings_around(data, position)})"
        suggestion = "try encoding='cp1252', or another one such as mac_roman, shift_jis or cp1251"
    else:
        suggestion = "pass its encoding, such as encoding='shift_jis', 'gbk' or 'cp1251'"
    raise TableError(f"{path} {problem}; {suggestion}, or save the file as UTF-8")


def _share_foreign(data: bytes) -> float:
    """Compute the share of bytes that are not ASCII."""
    return len(data.translate(None, bytes(range(128)))) / len(data)


def _readings_around(data: bytes, position: int) -> str:
    """Show the text around a byte as decoded by two encodings of Latin letters."""
    bytes_before = re.split(rb"[\r\n]", data[max(0, position - _AROUND) : position])[-1]
    excerpt = bytes_before + re.split(rb"[\r\n]", data[position : position + _AROUND])[0]
    cp1252 = excerpt.decode("latin-1").translate(_CP1252)
    return f"cp1252 reads {cp1252!r} there, mac_roman {excerpt.decode('mac_roman')!r}"


def _likely_encoding(data: bytes, codec: str) -> str | None:
    """Guess the encoding of the bytes, except the one that was tried."""
    if b"\0" in data:  # every second byte of Latin text in UTF-16
        head = data[:1000]
        n_zeros_even, n_zeros_odd = head[::2].count(0), head[1::2].count(0)
        if (
            len(data) % 2
            or max(n_zeros_even, n_zeros_odd) < 0.4 * len(head) / 2
            or min(n_zeros_even, n_zeros_odd) > 0
        ):
            return None
        name = "utf-16-le" if n_zeros_odd else "utf-16-be"
        return None if name == codec else name
    for name in ("utf-8", "cp1252" if re.search(rb"[\x80-\x9f]", data) else "latin-1"):
        if codecs.lookup(name).name != codec:
            with suppress(UnicodeDecodeError):
                data.decode(name)
                return name
    return None


# ---- Detecting the encoding and the separator ----------------------------------------------------


def detect_encoding(data: bytes, known_encoding: str | None = None) -> str:
    """Detect the encoding of a text.

    A byte order mark means UTF-16 or UTF-32. Valid UTF-8 is UTF-8, and other bytes have the
    ``known_encoding``. Without it, the encoding is cp1252 if there are bytes 0x80 to 0x9f, and
    latin-1 otherwise. If none of these fit, or if the letters are not Latin, the result is UTF-8,
    which raises an error on reading.

    >>> [detect_encoding(text) for text in ("Größe".encode(), b"Gr\\xf6\\xdfe", b"5 \\x80")]
    ['utf-8', 'latin-1', 'cp1252']
    """
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            return name
    with suppress(UnicodeDecodeError):
        data.decode()
        return "utf-8"
    if known_encoding not in (None, "utf-8"):
        return known_encoding
    likely_encoding = None if b"\0" in data else _likely_encoding(data, "utf-8")
    if likely_encoding is None or _NOT_LATIN.search(data.decode(likely_encoding)):
        return "utf-8"
    return likely_encoding


def detect_separator(text: str, usual_separator: str) -> str:
    """Detect the separator by which the first rows have the same number of cells, at least two.

    If several separators do, the one that splits fewer numbers and dates is chosen; if none does,
    the usual one. With lines above the header, only most rows need the same number of cells.

    >>> detect_separator("price;n\\n1,5;2\\n10;3\\n", ","), detect_separator("a\\n1\\n", ",")
    (';', ',')
    """
    is_complete = len(text) <= _HEAD
    first_lines = text[:_HEAD] if is_complete else text[: text.rfind("\n", 0, _HEAD) + 1]
    scores: dict[str, tuple[bool, float, bool, int]] = {}
    likely_separator = usual_separator
    for separator in (
        usual_separator,
        *(mark for mark in _SEPARATOR_NAMES if mark != usual_separator),
    ):
        with suppress(csv.Error):
            reader = csv.reader(io.StringIO(first_lines, newline=""), delimiter=separator)
            rows = [row for row in itertools.islice(reader, _ROWS) if row]
            n_header_cells = len(rows[0]) if rows else 0
            if (
                n_header_cells > 1
                and likely_separator == usual_separator
                and separator != usual_separator
            ):
                likely_separator = separator
            n_cells, n_rows = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
            is_regular = n_header_cells > 1 and n_rows == len(rows)
            if is_regular or (n_cells > 1 and n_rows >= _MIN_SHARE_OF_ROWS * len(rows)):
                cells = [cell.strip() for row in rows[1:] for cell in row]
                n_simple = sum(_SIMPLE.fullmatch(cell) is not None for cell in cells)
                simple_share = n_simple / max(1, len(cells))
                scores[separator] = (
                    is_regular,
                    simple_share,
                    separator == usual_separator,
                    n_cells,
                )
    regular = [separator for separator, score in scores.items() if score[0]]
    header = next(
        iter(csv.reader(io.StringIO(first_lines, newline=""), delimiter=usual_separator)), []
    )
    if regular or (scores and len(header) == 1):
        return max(scores, key=scores.__getitem__)
    return likely_separator if len(header) == 1 else usual_separator


def _numbered_rows(text: str, separator: str, reading: Reading) -> Iterator[tuple[int, list[str]]]:
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    for row in rows:
        yield rows.line_num + reading.n_lines_above, row


# ---- A header that is not in the first line ------------------------------------------------------


def header_words(rows: Sequence[tuple[int, list[str]]]) -> str | None:
    """Suggest which of the first rows is the header, if it does not seem to be the first one.

    >>> header_words([(1, ["Sales"]), (3, ["day", "n"]), (4, ["3.5.", "7"]), (5, ["4.5.", "8"])])
    'line 3 seems to be the header (day, n); use header_row=3'
    """
    rows = [(line, [cell.strip() for cell in row]) for line, row in rows]
    rows = [(line, row) for line, row in rows if any(row)]
    position = _header_position([row for _, row in rows])
    if not position:
        return None
    line, row = rows[position]
    names = [cell for cell in row if cell]
    listed = list_names(names, 3, str)
    return f"line {line} seems to be the header ({listed}); use header_row={line}"


def _header_position(rows: list[list[str]]) -> int:
    """Find the position of the row that seems to be the header; 0 if first or unclear."""
    for position in range(1, min(_MAX_LINES_ABOVE, len(rows) - 2)):
        header, rows_below = rows[position], rows[position + 1 :]
        names = [name for name in header if name]
        if (
            len(names) < 2
            or not _are_names(names)
            or any(len(other_row) != len(header) for other_row in rows_below)
        ):
            continue
        columns = [[row[j] for row in rows_below if row[j]] for j in range(len(header))]
        numeric = [j for j, column in enumerate(columns) if column and all(map(_is_simple, column))]
        if not numeric or any(column and not header[j] for j, column in enumerate(columns)):
            continue
        first_row, *rows_between = rows[:position]
        n_first = sum(map(bool, first_row))
        is_first_as_good = n_first == len(names) and _are_names(
            first_row
        )  # a row of units follows the header
        are_notes = all(
            len(row) != len(header) or not all(_is_simple(row[j]) for j in numeric)
            for row in rows_between
        )
        if are_notes and not (is_first_as_good and position == 1):
            return position
    return 0


def _are_names(cells: list[str]) -> bool:
    return all(cells) and len(set(cells)) == len(cells) and not any(map(_is_simple, cells))


def _is_simple(cell: str) -> bool:
    return _SIMPLE.fullmatch(cell) is not None


# ---- Rows ----------------------------------------------------------------------------------------


def check_rows(path: Path, text: str, separator: str, reading: Reading) -> tuple[str, list[str]]:
    """Raise TableError for rows that are too short or too long, which pandas would accept.

    Returns the text without empty rows and without columns that have no name and no value, and
    notes on the rows and columns that were left out.
    """
    numbered_rows = _numbered_rows(text, separator, reading)
    rows: list[tuple[int, list[str]]] = []
    try:
        for line, row in itertools.islice(numbered_rows, _ROWS):
            rows.append((line, row))
        suggestion = header_words(rows)
        header = _header_of(path, rows)
        if len(header) == 1:
            _refuse_separator(path, header[0], separator)
        is_regular = all(map(str.strip, header)) and _is_regular(text, separator)
        if not is_regular:
            rows += numbered_rows
    except csv.Error as error:
        line = rows[-1][0] + 1 if rows else reading.n_lines_above + 1
        raise TableError(f"cannot parse {path}: line {line}: {error}; correct this line") from error
    if not is_regular:
        text, notes = _without_empty(path, rows, text, separator, suggestion)
    else:
        notes = []
    refuse_repeated_names(str(path), header, suggestion)
    return text, notes if suggestion is None else [suggestion, *notes]


def _header_of(path: Path, rows: list[tuple[int, list[str]]]) -> list[str]:
    header = next((row for _, row in rows if any(map(str.strip, row))), None)
    if header is None:
        raise TableError(f"{path} is empty")
    return header


def _without_empty(
    path: Path,
    rows: list[tuple[int, list[str]]],
    text: str,
    separator: str,
    suggestion: str | None,
) -> tuple[str, list[str]]:
    """Remove empty rows and empty columns without a name; also return notes on them.

    Raises TableError if a row has more or fewer cells than the header.
    """
    header = _header_of(path, rows)
    filled_columns = {j for j, name in enumerate(header) if name.strip()}
    header_position = next(i for i, (_, row) in enumerate(rows) if row is header)
    n_empty = sum(bool(row) for _, row in rows[:header_position])
    present_rows = []
    for line, row in rows[header_position + 1 :]:
        filled_positions = [j for j, cell in enumerate(row) if cell.strip()]
        filled_columns.update(filled_positions)
        if filled_positions or (row and len(header) == 1):
            present_rows.append((line, row))
        else:
            n_empty += bool(row)
    columns = sorted(j for j in filled_columns if j < len(header))
    for line, row in present_rows:
        if len(row) <= columns[-1] or any(map(str.strip, row[len(header) :])):
            raise TableError(
                f"{path}: line {line} has {len(row)} fields, but the header has {len(header)}; "
                f"{suggestion or 'correct this line'}"
            )
    if not n_empty and all(len(row) == len(header) == len(columns) for _, row in present_rows):
        return text, []
    if text.count('"') % 2:
        raise TableError(f"cannot parse {path}: a quotation mark is not closed")
    notes = [f"{counted(n_empty, 'row')} without a value left out"] if n_empty else []
    n_unnamed = len(header) - len(columns)
    if n_unnamed:
        notes.append(f"{counted(n_unnamed, 'column')} without a name and a value left out")
    output = io.StringIO(newline="")
    writer = csv.writer(output, delimiter=separator, lineterminator="\r\n")
    writer.writerow([header[j] for j in columns])
    writer.writerows([row[j] for j in columns] for _, row in present_rows)
    return output.getvalue(), notes


def _is_regular(text: str, separator: str) -> bool:
    """Tell whether all rows have the same number of separators, without parsing them.

    Counting is several times faster. A text with empty rows is not regular.
    """
    if '"' in text or "\r" in text.replace("\r\n", ""):
        return False
    if re.search(rf"(?m)^[{re.escape(separator)} ]+\r?$", text):
        return False
    return len({line.count(separator) for line in text.split("\n") if line.rstrip("\r")}) == 1


def _refuse_separator(path: Path, header: str, separator: str) -> None:
    counts = {
        candidate: header.count(candidate)
        for candidate in _SEPARATOR_NAMES
        if candidate != separator
    }
    likely_separator = max(counts, key=counts.__getitem__)
    if counts[likely_separator]:
        raise TableError(
            f"{path} has only one column when split at "
            f"{_SEPARATOR_NAMES.get(separator, repr(separator))}; the separator seems to be "
            f"{_SEPARATOR_NAMES[likely_separator]}; use sep={likely_separator!r}"
        )


def refuse_repeated_names(where: str, names: list[str], suggestion: str | None = None) -> None:
    """Raise TableError if columns share a name; ``suggestion`` is a fix, if one is known."""
    repeated = [name for name, count in Counter(names).items() if count > 1 and name.strip()]
    if repeated:
        is_missing = all(map(_reads_as_number, repeated))
        fix = suggestion or ("is the header missing?" if is_missing else "rename them")
        name_list = ", ".join(map(repr, repeated))
        raise TableError(f"{where} has more than one column named {name_list}; {fix}")


def _reads_as_number(name: str) -> bool:
    return name.replace(".", "", 1).lstrip("+-").isdecimal()
