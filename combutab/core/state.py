"""Convert the state of models to numeric arrays and JSON, and back, exactly and without code.
``pack`` writes the values that a fitted model consists of: numbers, text, dates, dtypes, columns
of a table, and dataclasses whose fields ``declare`` names. ``unpack`` reads them. Files may
be forged: dtypes and time zones must be in a list, the fields of a dataclass are checked against
its declaration, and nothing is larger than the text that describes it.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import math
import re
import uuid
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from combutab.core.files import Field, check_fields

T = TypeVar("T")
Arrays = dict[str, np.ndarray]

_SIGN = "@"  # first character of the name of a kind, the only key of an object in JSON
_MAX_TEXT = 10_000  # maximum width of an array of fixed-width text, in characters
_MAX_ARROW_BYTES = 2**16  # maximum size of the description of a dtype of pyarrow
_MAX_DIGITS = 4300  # maximum number of digits of a decimal, and maximum exponent


@dataclass(frozen=True)
class Kind:
    """A type whose values are written as a simpler value, which is then packed itself."""

    name: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


_KINDS: dict[type, Kind] = {}
_READERS: dict[str, Callable[[Any], Any]] = {}


def add_kind(
    type_: type, name: str, write: Callable[[Any], Any], read: Callable[[Any], Any]
) -> None:
    """Register a type for `pack`; ``read`` checks the simpler value that ``write`` returns."""
    _KINDS[type_] = Kind(name, write, read)
    _READERS[name] = read


def declare(
    cls: type[T], fields: Mapping[str, Field], check: Callable[[T], None] = lambda record: None
) -> None:
    """Register a dataclass with these fields for `pack`.

    Reading raises ValueError if a field differs from its declaration, or if ``check``, which
    compares the fields, raises it.
    """

    def read(values: Any) -> T:
        check_fields(values, fields, f"the state's {cls.__name__}")
        record = cls(**values)
        check(record)
        return record

    add_kind(cls, cls.__name__, lambda record: {n: getattr(record, n) for n in fields}, read)


def pack(value: Any, arrays: Arrays | None = None, name: str = "") -> Any:
    """Convert a value to JSON; a type that JSON lacks becomes an object with the name of its kind.

    With ``arrays``, numeric arrays are stored in it, under names of their positions in the value.

    >>> pack({"a": (1, 0.5), "b": float("inf")})
    {'a': {'@tuple': [1, 0.5]}, 'b': {'@float': 'inf'}}
    >>> unpack(pack(pd.Timestamp("2024-01-01", tz="UTC")))
    Timestamp('2024-01-01 00:00:00+0000', tz='UTC')

    Raises TypeError if a value is of a type that cannot be written without pickle.
    """
    if isinstance(value, np.generic):
        item = value.item()
        is_count = value.dtype.kind in "mM" and isinstance(item, int)  # such as nanoseconds
        value = value if is_count else item
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list):
        return [pack(element, arrays, f"{name}.{i}") for i, element in enumerate(value)]
    if isinstance(value, dict) and not any(_is_odd(key) for key in value):
        stem = f"{name}." if name else ""
        return {key: pack(element, arrays, f"{stem}{key}") for key, element in value.items()}
    if arrays is not None and isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        arrays[name] = value.copy()
        return {f"{_SIGN}array": name}
    value_kind = next((_KINDS[base] for base in type(value).__mro__ if base in _KINDS), None)
    if value_kind is None:
        raise TypeError(
            f"a value of type {type(value).__name__} cannot be saved: {value!r}; convert its "
            "column to text, numbers or dates before fit"
        )
    return {f"{_SIGN}{value_kind.name}": pack(value_kind.write(value), arrays, name)}


def _is_odd(key: Any) -> bool:
    return not isinstance(key, str) or key.startswith(_SIGN)


def unpack(packed: Any, arrays: Arrays | None = None) -> Any:
    """Restore a value that ``pack`` has converted; its arrays are removed from ``arrays``.

    Raises ValueError if a kind is unknown, if an array is missing, or if a value is invalid for its
    kind.
    """
    if isinstance(packed, list):
        return [unpack(item, arrays) for item in packed]
    if not isinstance(packed, dict):
        return packed
    key = next(iter(packed)) if len(packed) == 1 else ""
    if not key.startswith(_SIGN):
        return {name: unpack(item, arrays) for name, item in packed.items()}
    payload = packed[key]
    if key == f"{_SIGN}array" and isinstance(payload, str):
        if arrays is None or payload not in arrays:
            raise ValueError(f"the state lacks the array {payload[:100]!r}")
        return arrays.pop(payload).copy()
    if key[1:] not in _READERS:
        raise ValueError(f"the state has a value of the unknown kind {key[:100]!r}")
    return _READERS[key[1:]](unpack(payload, arrays))


def with_lists(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Convert parameters for `pack`: sets, ranges, Series and other collections become lists.

    >>> with_lists({"columns": range(2), "strategy": "mixture"})
    {'columns': [0, 1], 'strategy': 'mixture'}
    """
    return {
        name: list(value)
        if pd.api.types.is_list_like(value) and not isinstance(value, Mapping)
        else value
        for name, value in parameters.items()
    }


def unpack_all(
    packed: Any, arrays: Mapping[str, np.ndarray], fields: Mapping[str, Field], where: str
) -> dict[str, Any]:
    """Unpack a dict of declared fields; raises ValueError if it does not need all the arrays."""
    remaining_arrays = dict(arrays)
    values: dict[str, Any] = unpack(packed, remaining_arrays)
    if remaining_arrays:
        raise ValueError(f"{where} has the arrays {sorted(remaining_arrays)} without a place"[:500])
    check_fields(values, fields, where)
    return values


# ---- Python's values, and those of numpy and pandas ----------------------------------------------

_ISO_MOMENT = re.compile(
    r"[-+]?\d{1,10}-\d\d-\d\d([T ][\d:.]{2,20})?([+-]\d\d:\d\d(:\d\d)?)?", re.ASCII
)
_ISO_DURATION = re.compile(r"[-+]?P[-+\dDTHMS.]{1,60}", re.ASCII)
_OFFSET = re.compile(r"(?:UTC)?([+-])(\d\d):?(\d\d)(?::(\d\d))?", re.ASCII)
_FREQUENCY = re.compile(r"[A-Za-z0-9-]{1,20}", re.ASCII)


def _matched(text: str, pattern: re.Pattern[str], what: str) -> str:
    """Return a text such as a moment if it has this pattern; pandas would also accept "now"."""
    if len(text) > 64 or not pattern.fullmatch(text):
        raise ValueError(f"{text[:100]!r} is no {what}")
    return text


def _read_float(text: str) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise ValueError(f"{text[:100]!r} is no number that JSON lacks")
    return float(text)


def _read_pairs(pairs: list[list[Any]]) -> dict[Any, Any]:
    pairs_by_key = dict(pairs)
    if len(pairs_by_key) != len(pairs):
        raise ValueError("it has a key twice")
    return pairs_by_key


def _read_decimal(text: str) -> decimal.Decimal:
    value = decimal.Decimal(text) if len(text) <= _MAX_DIGITS else None
    if (
        value is None
        or (value.is_finite() and abs(value.adjusted()) > _MAX_DIGITS)
        or value.is_snan()
    ):
        raise ValueError(f"{text[:100]!r} is no decimal that is read")
    return value


@functools.cache
def _zone_names() -> set[str]:
    return zoneinfo.available_timezones() | {"UTC"}


def _read_zone(name: str) -> Any:
    """Read a time zone from a known name or a fixed offset; no file path is accepted."""
    if name in _zone_names():
        return name
    offset = _OFFSET.fullmatch(name)
    if offset is None:
        raise ValueError(f"there is no time zone {name[:100]!r}")
    hours, minutes, seconds = (int(part or 0) for part in offset.groups()[1:])
    delta = datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return datetime.timezone(-delta if offset[1] == "-" else delta)


def _write_moment(moment: pd.Timestamp) -> list[str | None]:
    if moment.tz is None:
        return [moment.isoformat(), None]
    try:
        _read_zone(str(moment.tz))
    except ValueError as error:
        raise TypeError(
            f"{error} by name, so that moments there cannot be saved; convert them before fit, to "
            "UTC say"
        ) from None
    return [moment.tz_convert("UTC").tz_localize(None).isoformat(), str(moment.tz)]


def _read_moment(packed: list[Any]) -> pd.Timestamp:
    text, zone = packed
    moment = pd.Timestamp(_matched(text, _ISO_MOMENT, "moment"))
    return moment if zone is None else moment.tz_localize("UTC").tz_convert(_read_zone(zone))


def _write_array(array: np.ndarray) -> list[Any]:
    if array.dtype.kind not in "biufUSO":
        raise TypeError(f"an array of dtype {array.dtype} cannot be saved")
    values: list[Any] = array.tolist()
    if array.dtype.kind in "US" and array.size:  # as wide as the longest text
        array = np.array(values)
    return [values, "object" if array.dtype.kind == "O" else array.dtype.str]


def _read_array(packed: list[Any]) -> np.ndarray:
    values, name = packed
    if name == "object":
        return np.array(values, dtype=object)
    dtype = np.dtype(name) if isinstance(name, str) and len(name) < 20 else None
    if dtype is None or dtype.kind not in "biufUS":
        raise ValueError(f"it has an array of the unknown dtype {name!r}"[:200])
    array = np.array(values)
    if dtype.kind in "US" and array.size * dtype.itemsize > array.nbytes:
        raise ValueError(f"it has an array of the dtype {name}, whose texts are shorter")
    return array.astype(dtype)


def _checked_dtype(dtype: Any) -> Any:
    """Raise ValueError for the name of a dtype, for which pandas may read files or need memory."""
    if not isinstance(dtype, np.dtype | pd.api.extensions.ExtensionDtype):
        raise ValueError(f"{str(dtype)[:100]!r} is no dtype")
    return dtype


def _read_series(packed: list[Any]) -> pd.Series:
    values, dtype = packed
    return pd.Series(values, dtype=_checked_dtype(dtype))


def _write_index(index: pd.Index) -> list[Any]:
    dtype = None if isinstance(index, pd.MultiIndex) else index.dtype
    return [index.astype(object).tolist(), dtype, list(index.names)]


def _read_index(packed: list[Any]) -> pd.Index:
    values, dtype, levels = packed
    if dtype is None:
        return pd.MultiIndex.from_tuples(values, names=levels)
    return pd.Index(values, dtype=_checked_dtype(dtype), name=levels[0], tupleize_cols=False)


_VALUES: list[tuple[type, str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    (float, "float", repr, _read_float),
    (tuple, "tuple", list, tuple),
    (frozenset, "frozenset", lambda values: sorted(values, key=repr), frozenset),
    (dict, "dict", lambda values: [list(pair) for pair in values.items()], _read_pairs),
    (type(pd.NaT), "NaT", lambda _: None, lambda _: pd.NaT),
    (type(pd.NA), "NA", lambda _: None, lambda _: pd.NA),
    (bytes, "bytes", bytes.hex, bytes.fromhex),
    (decimal.Decimal, "decimal", str, _read_decimal),
    (uuid.UUID, "uuid", str, uuid.UUID),
    (pd.Timestamp, "timestamp", _write_moment, _read_moment),
    (
        pd.Timedelta,
        "timedelta",
        pd.Timedelta.isoformat,
        lambda text: pd.Timedelta(_matched(text, _ISO_DURATION, "duration")),
    ),
    (datetime.datetime, "datetime", datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    (datetime.date, "date", datetime.date.isoformat, datetime.date.fromisoformat),
    (datetime.time, "time", datetime.time.isoformat, datetime.time.fromisoformat),
    (
        datetime.timedelta,
        "delta",
        lambda t: [t.days, t.seconds, t.microseconds],
        lambda parts: datetime.timedelta(*parts),
    ),
    (
        pd.Period,
        "period",
        lambda p: [p.ordinal, p.freqstr],
        lambda parts: pd.Period(ordinal=parts[0], freq=_matched(parts[1], _FREQUENCY, "frequency")),
    ),
    (
        pd.Interval,
        "interval",
        lambda i: [i.left, i.right, i.closed],
        lambda parts: pd.Interval(*parts),
    ),
    (np.ndarray, "array", _write_array, _read_array),
    (pd.Series, "series", lambda s: [s.astype(object).tolist(), s.dtype], _read_series),
    (pd.Index, "index", _write_index, _read_index),
    # the state of a generator of random numbers is not part of a model
    (np.random.Generator, "generator", lambda _: None, lambda _: None),
    (np.random.RandomState, "generator", lambda _: None, lambda _: None),
]


# ---- Dtypes --------------------------------------------------------------------------------------

_PLAIN_DTYPE = re.compile(
    r"bool|boolean|object|u?int(8|16|32|64)|U?Int(8|16|32|64)|[fF]loat(16|32|64|96|128)"
    r"|(datetime64|timedelta64)\[(s|ms|us|ns)\]|[<>|=]?[biuf]\d{0,2}"
    r"|[<>=]?[mM]8\[\d{0,4}(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]"
    rf"|period\[{_FREQUENCY.pattern}\]"
    r"|interval\[(u?int64|float64|datetime64\[(s|ms|us|ns)\]|timedelta64\[(s|ms|us|ns)\])"
    r", (left|right|both|neither)\]",
    re.ASCII,
)
_ZONED = re.compile(r"datetime64\[(s|ms|us|ns), ([^\]]{1,64})\]")
_TEXTS = re.compile(r"[<>=|]?[US](\d{1,9})", re.ASCII)


def read_dtype(name: str) -> Any:
    """Return the dtype of numpy or pandas with this name.

    Raises ValueError if no column or array of a table can have it.

    >>> read_dtype("<U10")
    dtype('<U10')
    >>> read_dtype("S2000000000")
    Traceback (most recent call last):
        ...
    ValueError: there is no dtype 'S2000000000' of columns
    """
    texts, zoned = _TEXTS.fullmatch(name), _ZONED.fullmatch(name)
    make: Any = pd.DatetimeTZDtype
    if texts and int(texts[1]) <= _MAX_TEXT:
        return np.dtype(name)
    if zoned:
        return make(zoned[1], _read_zone(zoned[2]))
    if name == "|O":  # numpy's name for object
        return np.dtype(object)
    if _PLAIN_DTYPE.fullmatch(name):
        return pd.api.types.pandas_dtype(name)
    raise ValueError(f"there is no dtype {name[:100]!r} of columns")


def _write_dtype(dtype: Any) -> str:
    name = dtype.str if isinstance(dtype, np.dtype) else str(dtype)
    try:
        read_dtype(name)
    except ValueError as error:
        raise TypeError(
            f"{error}, so that one cannot be saved; convert the column before fit"
        ) from None
    return name


def _write_string_dtype(dtype: Any) -> list[str]:
    # Before pandas 3, some text dtypes have no na_value; theirs is NA.
    return [dtype.storage, "NA" if getattr(dtype, "na_value", pd.NA) is pd.NA else "NaN"]


def _read_string_dtype(packed: list[str]) -> Any:
    """Read a text dtype; without pyarrow, its storage is Python's."""
    make: Any = pd.StringDtype
    storage, missing_value = packed
    for option in (storage, "python"):
        try:
            return make(option) if missing_value == "NA" else make(option, na_value=np.nan)
        except ImportError:  # pyarrow is missing; the other storage does not need it
            continue
        except TypeError:  # pandas before 2.3, where columns of text are objects
            return np.dtype(object)
    raise AssertionError("python storage needs nothing")


def _write_categories(dtype: Any) -> list[Any]:
    categories = dtype.categories
    return [categories.astype(object).tolist(), categories.dtype, bool(dtype.ordered)]


def _read_categories(packed: list[Any]) -> pd.CategoricalDtype:
    values, dtype, ordered = packed
    return pd.CategoricalDtype(pd.Index(values, dtype=_checked_dtype(dtype)), ordered=ordered)


def _write_arrow(dtype: Any) -> str:
    import pyarrow as pa

    schema = pa.schema([pa.field("column", dtype.pyarrow_dtype)])
    return str(schema.serialize().to_pybytes().hex())


def _read_arrow(text: str) -> Any:
    import pyarrow as pa

    packed_schema = bytes.fromhex(text)
    if len(packed_schema) > _MAX_ARROW_BYTES or b"ARROW:" in packed_schema:
        raise ValueError("there is a dtype of pyarrow with an extension, which is not read")
    schema = pa.ipc.read_schema(pa.py_buffer(packed_schema))
    return pd.ArrowDtype(_plain_arrow(schema.field(0).type))


def _plain_arrow(dtype: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(dtype):
        _plain_arrow(dtype.value_type)
    elif (
        types.is_nested(dtype)
        or isinstance(dtype, pa.BaseExtensionType)
        or (types.is_fixed_size_binary(dtype) and dtype.byte_width > _MAX_TEXT)
    ):
        raise ValueError(f"there is no dtype {str(dtype)[:100]} of columns")
    if types.is_timestamp(dtype) and dtype.tz is not None:
        _read_zone(dtype.tz)
    return dtype


_DTYPES: list[tuple[type, str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    (np.dtype, "dtype", _write_dtype, read_dtype),
    (pd.api.extensions.ExtensionDtype, "dtype", _write_dtype, read_dtype),
    (pd.StringDtype, "string dtype", _write_string_dtype, _read_string_dtype),
    (pd.CategoricalDtype, "category dtype", _write_categories, _read_categories),
    (pd.ArrowDtype, "arrow dtype", _write_arrow, _read_arrow),
    (
        pd.SparseDtype,
        "sparse dtype",
        lambda dtype: [dtype.subtype, dtype.fill_value],
        lambda packed: pd.SparseDtype(_checked_dtype(packed[0]), packed[1]),
    ),
]
for _row in (*_VALUES, *_DTYPES):
    add_kind(*_row)
