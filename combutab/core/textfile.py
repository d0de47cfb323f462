"""Text files that hold tables: their bytes, encoding, separator and header, without pandas."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import re
import zlib
from collections import Counter
from contextlib import suppress
from pathlib import Path

SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
EXCEL = (".xlsx", ".xlsm")
EXTENSIONS = (*SEPARATORS, ".parquet", *EXCEL)
_SEPARATOR_NAMES = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a vertical bar"}
_SIGNATURES = {  # the first bytes of files that are often met under a wrong name
    b"PAR1": "a Parquet file: rename it to .parquet",
    b"PK\x03\x04": "a zip archive or a spreadsheet: rename it to .xlsx, or export it as CSV",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet (.xls): save it as .xlsx, or export it as CSV",
    b"\x1f\x8b": "compressed with gzip: rename it to .csv.gz",
}
_MARKS = {  # byte order marks; the first four bytes of UTF-32 begin as those of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_HEAD = 1 << 20  # bytes in which the header is, and rows that tell the separator
_ROWS = 200  # that tell it
_SIMPLE = re.compile(r"[-+]?\d[\d.,:/ T-]*")  # a number, or a date
# four accented letters or signs in a row are of no language that is written in Latin letters
_NOT_LATIN = re.compile("[\u00a1-\u00aa\u00ac-\u00ba\u00bc-\u00ff]{4}")
_C1 = re.compile("[\x80-\x9f]")  # no letters in latin-1, and letters in cp1252


class TableError(ValueError):
    """Raised if a table or its target cannot be used; its message is one line."""


def extension_of(path: Path) -> str:
    """The ending of a table's file, which is there; raises TableError if no table can be read."""
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


def check_separator(sep: str) -> str:
    """Return a separator; raises TableError if it cannot be one."""
    if len(sep) != 1 or sep.isalnum() or sep in "\"'\r\n\0.+-_":
        raise TableError(f"sep must be a single character, such as ; or tab, got {sep!r}")
    return sep


def read_bytes(path: Path, unzip: bool, most: int = -1) -> bytes:
    """The bytes of a file, or the first ones; raises TableError where it cannot be read."""
    try:
        with path.open("rb") as file:
            if not unzip:
                return file.read(most)
            with gzip.open(file) as unzipped:
                return unzipped.read(most)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(f"{path} is not a complete gzip file: {error}") from error
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror or error}") from error


def text_of(path: Path, data: bytes, encoding: str) -> str:
    """Decode a file's bytes; raises TableError if they are no text in this encoding, or empty."""
    for signature, what in _SIGNATURES.items():
        if data.startswith(signature):
            raise TableError(f"{path} is {what}")
    text = _decode(path, data, encoding)
    if not text.strip():
        raise TableError(f"{path} is empty")
    if re.match(r"sep=.\r?\n", text):
        raise TableError(
            f"{path} begins with {text[:5]!r}, which only spreadsheets read; remove this line"
        )
    return text


def _decode(path: Path, data: bytes, encoding: str) -> str:
    """Decode the bytes; the error of text in another encoding names it if the bytes tell it."""
    try:
        codec = codecs.lookup(encoding).name
    except LookupError as error:
        raise TableError(
            f"{encoding!r} is not a known encoding; use a name such as utf-8, cp1252 or latin-1"
        ) from error
    marked = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    text = why = ""
    try:
        text = data.decode("utf-8-sig" if codec == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        where = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        why = f"is not {encoding}: {where}"
    except UnicodeError as error:  # of utf-16 without its mark
        why = f"is not {encoding}: {error}"
    if marked is not None and not codec.startswith(("utf-16", "utf-32")):
        why = f"is {marked.upper()} text"
    elif "\0" in text:
        why = "has NUL bytes"
    elif codec == "iso8859-1" and _C1.search(text):
        why = f"is not {encoding}"
    if not why:
        return text
    likely = marked
    if marked is None or codec.startswith(marked):
        likely = _likely_encoding(data, codec)
    if likely is None and b"\0" in data:
        raise TableError(f"{path} has NUL bytes, so it is not a text file; save the table as CSV")
    if likely is None:
        way_out = "pass its encoding, such as encoding='shift_jis', 'gbk' or 'cp1251'"
    else:
        way_out = f"try encoding={likely!r}"
    raise TableError(f"{path} {why}; {way_out}, or save the file as UTF-8")


def _likely_encoding(data: bytes, codec: str) -> str | None:
    """The encoding that bytes seem to be of, other than the one that was tried."""
    if b"\0" in data:  # every second byte of Latin text in UTF-16
        head = data[:1000]
        even, odd = head[::2].count(0), head[1::2].count(0)
        if len(data) % 2 or max(even, odd) < 0.4 * len(head) / 2 or min(even, odd) > 0:
            return None
        name = "utf-16-le" if odd else "utf-16-be"
        return None if name == codec else name
    for name in ("utf-8", "cp1252" if re.search(rb"[\x80-\x9f]", data) else "latin-1"):
        if codecs.lookup(name).name != codec:
            with suppress(UnicodeDecodeError):
                data.decode(name)
                return name
    return None


# ---- What a file's bytes tell: encoding and separator --------------------------------------------


def detect_encoding(data: bytes, known: str | None = None) -> str:
    """The encoding of a text: UTF-8, UTF-16 or UTF-32 by its mark, else the known one.

    If none is known, cp1252 where bytes 0x80 to 0x9f say so, latin-1 where there are none.
    Bytes that are none of these, or of other letters than Latin ones, are called UTF-8, in which
    reading them is an error.

    >>> [detect_encoding(text) for text in ("Größe".encode(), b"Gr\\xf6\\xdfe", b"5 \\x80")]
    ['utf-8', 'latin-1', 'cp1252']
    """
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            return name
    with suppress(UnicodeDecodeError):
        data.decode()
        return "utf-8"
    if known not in (None, "utf-8"):
        return known
    likely = None if b"\0" in data else _likely_encoding(data, "utf-8")
    if likely is None or _NOT_LATIN.search(data.decode(likely)):
        return "utf-8"
    return likely


def detect_separator(text: str, usual: str) -> str:
    """The separator by which all of the first rows have as many cells as the header, several.

    Of two such, the one that leaves more numbers and dates whole; the usual one if there is none.

    >>> detect_separator("price;n\\n1,5;2\\n10;3\\n", ","), detect_separator("a\\n1\\n", ",")
    (';', ',')
    """
    whole = len(text) <= _HEAD
    lines = text[:_HEAD] if whole else text[: text.rfind("\n", 0, _HEAD) + 1]
    found: dict[str, tuple[float, bool, int]] = {}
    likely = usual
    for separator in (usual, *(each for each in _SEPARATOR_NAMES if each != usual)):
        with suppress(csv.Error):
            reader = csv.reader(io.StringIO(lines, newline=""), delimiter=separator)
            rows = [row for row in itertools.islice(reader, _ROWS) if row]
            n = len(rows[0]) if rows else 0
            if n > 1 and likely == usual and separator != usual:
                likely = separator
            if n > 1 and {len(row) for row in rows} == {n}:
                cells = [cell.strip() for row in rows[1:] for cell in row]
                simple = sum(_SIMPLE.fullmatch(cell) is not None for cell in cells)
                found[separator] = (simple / max(1, len(cells)), separator == usual, n)
    if found:
        return max(found, key=found.__getitem__)
    header = next(iter(csv.reader(io.StringIO(lines, newline=""), delimiter=usual)), [])
    return likely if len(header) == 1 else usual


def read_header(path: Path, sep: str | None, encoding: str | None) -> list[str] | None:
    """The columns' names in a table's file; None of a file that is not text.

    Raises TableError as reading the table does, as far as its first rows tell.
    """
    extension = extension_of(path)
    if extension not in SEPARATORS:
        if not path.stat().st_size:
            raise TableError(f"{path} is empty")
        return None
    usual = check_separator(SEPARATORS[extension] if sep is None else sep)
    data = read_bytes(path, extension.endswith(".gz"), _HEAD)
    if len(data) == _HEAD and not data.startswith(tuple(_MARKS)):  # a letter may be cut
        data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1] or data
    text = text_of(path, data, encoding or detect_encoding(data))
    separator = usual if sep is not None else detect_separator(text, usual)
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        header = next(row for row in rows if row)
    except csv.Error as error:
        raise TableError(f"cannot parse {path}: line 1: {error}") from error
    refuse_repeated_names(str(path), header)
    return [name or f"Unnamed: {j}" for j, name in enumerate(header)]  # as pandas calls them


# ---- Rows ----------------------------------------------------------------------------------------


def check_rows(path: Path, text: str, separator: str) -> None:
    """Refuse what pandas lets pass: short rows are filled, long ones shift the columns."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        header = next(row for row in rows if row)
        if len(header) == 1:
            _refuse_separator(path, header[0], separator)
        refuse_repeated_names(str(path), header)
        if _is_regular(text, separator):
            return
        for row in rows:
            if row and len(row) != len(header):
                raise TableError(
                    f"{path}: line {rows.line_num} has {len(row)} fields, "
                    f"but the header has {len(header)}; correct this line"
                )
    except csv.Error as error:
        raise TableError(
            f"cannot parse {path}: line {rows.line_num}: {error}; correct this line"
        ) from error


def _is_regular(text: str, separator: str) -> bool:
    """Tell from counts alone, several times faster than by parsing, that all rows are as long."""
    if '"' in text or "\r" in text.replace("\r\n", ""):
        return False
    return len({line.count(separator) for line in text.split("\n") if line.rstrip("\r")}) == 1


def _refuse_separator(path: Path, header: str, separator: str) -> None:
    counts = {other: header.count(other) for other in _SEPARATOR_NAMES if other != separator}
    likely = max(counts, key=counts.__getitem__)
    if counts[likely]:
        raise TableError(
            f"{path} has only one column when split at "
            f"{_SEPARATOR_NAMES.get(separator, repr(separator))}; the separator seems to be "
            f"{_SEPARATOR_NAMES[likely]}; use sep={likely!r}"
        )


def refuse_repeated_names(where: str, names: list[str]) -> None:
    """Raise TableError if columns share a name."""
    repeated = [name for name, count in Counter(names).items() if count > 1 and name]
    if repeated:
        header = "; is the header missing?" if all(map(_reads_as_number, repeated)) else ""
        named = ", ".join(map(repr, repeated))
        raise TableError(
            f"{where} has more than one column named {named}{header or '; rename them'}"
        )


def _reads_as_number(name: str) -> bool:
    return name.replace(".", "", 1).lstrip("+-").isdecimal()
