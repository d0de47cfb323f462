"""Values and dtypes of a table as JSON holds them, and back: exact, and no code is run on reading.

What is read may be a stranger's: dtypes and time zones are those of a list, and nothing is larger
than the text that says it.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import re
import uuid
import zoneinfo
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

Packed = list[Any]

_MAX_TEXT = 1000  # characters of an array's texts
_MAX_ARROW_BYTES = 2**16  # bytes that say a dtype of pyarrow
_MAX_DIGITS = 4300  # of an integer or a decimal, and a decimal's exponent
_ISO_MOMENT = re.compile(
    r"[-+]?\d{1,10}-\d\d-\d\d([T ][\d:.]{2,20})?([+-]\d\d:\d\d(:\d\d)?)?", re.ASCII
)
_ISO_DURATION = re.compile(r"[-+]?P[-+\dDTHMS.]{1,60}", re.ASCII)
_OFFSET = re.compile(r"(?:UTC)?([+-])(\d\d):?(\d\d)(?::(\d\d))?", re.ASCII)
_FREQUENCY = re.compile(r"[A-Za-z0-9-]{1,20}", re.ASCII)
_HEXADECIMAL = re.compile(r"[-+.\w]+", re.ASCII)
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

# name -> (type, to JSON, from JSON). Integers are text: readers of JSON may hold 53 bits only.
_KINDS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "none": (type(None), lambda _: None, lambda _: None),
    "NaT": (type(pd.NaT), lambda _: None, lambda _: pd.NaT),
    "NA": (type(pd.NA), lambda _: None, lambda _: pd.NA),
    "bool": (bool, bool, bool),
    "int": (int, str, int),
    "float": (
        float,
        float.hex,
        lambda text: float.fromhex(_matched(text, _HEXADECIMAL, "number")),
    ),
    "str": (str, str, str),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "decimal": (decimal.Decimal, str, lambda text: _read_decimal(text)),
    "uuid": (uuid.UUID, str, uuid.UUID),
    "timestamp": (
        pd.Timestamp,
        lambda t: [_utc(t).isoformat(), None if t.tz is None else _zone_name(t.tz)],
        lambda packed: _read_zoned_moment(*packed),
    ),
    "timedelta": (
        pd.Timedelta,
        pd.Timedelta.isoformat,
        lambda text: pd.Timedelta(_matched(text, _ISO_DURATION, "duration")),
    ),
    "datetime": (
        datetime.datetime,
        datetime.datetime.isoformat,
        datetime.datetime.fromisoformat,
    ),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
    "delta": (
        datetime.timedelta,
        lambda t: [t.days, t.seconds, t.microseconds],
        lambda packed: datetime.timedelta(*packed),
    ),
    "period": (
        pd.Period,
        lambda p: [p.ordinal, p.freqstr],
        lambda packed: pd.Period(
            ordinal=packed[0], freq=_matched(packed[1], _FREQUENCY, "frequency")
        ),
    ),
    "interval": (
        pd.Interval,
        lambda i: [pack_value(i.left), pack_value(i.right), i.closed],
        lambda packed: pd.Interval(unpack_value(packed[0]), unpack_value(packed[1]), packed[2]),
    ),
    "tuple": (
        tuple,
        lambda values: [pack_value(value) for value in values],
        lambda packed: tuple(unpack_value(each) for each in packed),
    ),
    "frozenset": (
        frozenset,
        lambda values: sorted((pack_value(value) for value in values), key=repr),
        lambda packed: frozenset(unpack_value(each) for each in packed),
    ),
}
_KIND_NAMES = {kind: name for name, (kind, _, _) in _KINDS.items()}


def pack_value(value: Any) -> Packed:
    """A value as ``[kind, payload]``.

    >>> pack_value((1, "a"))
    ['tuple', [['int', '1'], ['str', 'a']]]
    >>> unpack_value(pack_value(0.1))
    0.1

    Raises TypeError if it is of a type that cannot be written without pickle.
    """
    if isinstance(value, np.generic):
        value = value.item()
    name = _KIND_NAMES.get(type(value))
    if name is None:
        raise TypeError(
            f"a value of type {type(value).__name__} cannot be saved: {value!r}; convert its "
            "column to text, numbers or dates before fit"
        )
    return [name, _KINDS[name][1](value)]


def unpack_value(packed: Sequence[Any]) -> Any:
    """The value that `pack_value` was given."""
    name, payload = packed
    return _KINDS[name][2](payload)


def pack_values(values: Sequence[Any]) -> dict[str, Any]:
    """Many values, with their kind written once where they share it.

    >>> pack_values(["a", "b"])
    {'kind': 'str', 'values': ['a', 'b']}
    """
    packed = [pack_value(value) for value in values]
    kinds = {kind for kind, _ in packed}
    if len(kinds) == 1:
        return {"kind": kinds.pop(), "values": [payload for _, payload in packed]}
    return {"kind": None, "values": packed}


def unpack_values(packed: dict[str, Any]) -> list[Any]:
    """The values that `pack_values` was given."""
    if packed["kind"] is None:
        return [unpack_value(each) for each in packed["values"]]
    unpack = _KINDS[packed["kind"]][2]
    return [unpack(each) for each in packed["values"]]


def pack_dtype(dtype: Any) -> Packed:
    """A numpy or pandas dtype as ``[kind, payload]``.

    >>> pack_dtype(np.dtype("float32"))
    ['name', 'float32']
    """
    if isinstance(dtype, pd.StringDtype):
        # Before pandas 3 not every text dtype has na_value; where it has not, it is NA.
        absent = "NaN" if getattr(dtype, "na_value", pd.NA) is not pd.NA else "NA"
        return ["string", [dtype.storage, absent]]
    if isinstance(dtype, pd.CategoricalDtype):
        categories: Any = dtype.categories
        values = pack_values(categories.astype(object).tolist())
        return ["category", [values, pack_dtype(categories.dtype), bool(dtype.ordered)]]
    if isinstance(dtype, pd.ArrowDtype):
        import pyarrow as pa

        schema = pa.schema([pa.field("column", dtype.pyarrow_dtype)])
        return ["arrow", schema.serialize().to_pybytes().hex()]
    if isinstance(dtype, pd.SparseDtype):
        return ["sparse", [pack_dtype(dtype.subtype), pack_value(dtype.fill_value)]]
    try:
        read_dtype(str(dtype))
    except ValueError as error:
        raise TypeError(
            f"{error}, so that one cannot be saved; convert the column before fit"
        ) from None
    return ["name", str(dtype)]


def unpack_dtype(packed: Sequence[Any]) -> Any:
    """The dtype that `pack_dtype` was given; text is Python's where pyarrow is absent."""
    kind, payload = packed
    if kind == "string":
        return _string_dtype(*payload)
    if kind == "category":
        values, dtype, ordered = payload
        categories = pd.Index(unpack_values(values), dtype=unpack_dtype(dtype))
        return pd.CategoricalDtype(categories, ordered=ordered)
    if kind == "sparse":
        return pd.SparseDtype(unpack_dtype(payload[0]), unpack_value(payload[1]))
    if kind == "arrow":
        import pyarrow as pa

        packed_schema = bytes.fromhex(payload)
        if len(packed_schema) > _MAX_ARROW_BYTES or b"ARROW:" in packed_schema:
            raise ValueError("there is a dtype of pyarrow with an extension, which is not read")
        schema = pa.ipc.read_schema(pa.py_buffer(packed_schema))
        return pd.ArrowDtype(_plain_arrow(schema.field(0).type))
    return read_dtype(payload)


def read_dtype(name: str, longest: int = 0) -> Any:
    """The dtype of this name, of numpy or pandas; texts are of a thousand or ``longest`` at most.

    Raises ValueError if it is none that a column of a table has.

    >>> read_dtype("<U10")
    dtype('<U10')
    >>> read_dtype("S2000000000")
    Traceback (most recent call last):
        ...
    ValueError: there is no dtype 'S2000000000' of columns
    """
    texts, zoned = _TEXTS.fullmatch(name), _ZONED.fullmatch(name)
    make: Any = pd.DatetimeTZDtype
    if texts and int(texts[1]) <= max(_MAX_TEXT, longest):
        return np.dtype(name)
    if zoned:
        return make(zoned[1], _read_zone(zoned[2]))
    if name == "|O":  # an array's, which pandas calls object
        return np.dtype(object)
    if _PLAIN_DTYPE.fullmatch(name):
        return pd.api.types.pandas_dtype(name)
    if name in ("str", "string", "category"):  # of pandas 3, and as earlier versions wrote
        return pd.api.types.pandas_dtype(name)
    raise ValueError(f"there is no dtype {name[:100]!r} of columns")


def _matched(text: str, pattern: re.Pattern[str], what: str) -> str:
    """The text of a moment, say, if it is one: pandas would take "now" too."""
    if len(text) > 64 or not pattern.fullmatch(text):
        raise ValueError(f"{text[:100]!r} is no {what}")
    return text


def _string_dtype(storage: str, absent: str) -> Any:
    make: Any = pd.StringDtype
    for each in (storage, "python"):
        try:
            return make(each) if absent == "NA" else make(each, na_value=np.nan)
        except ImportError:  # pyarrow, which the other storage does without
            continue
        except TypeError:  # pandas before 2.3, whose own text columns are objects
            return np.dtype(object)
    raise AssertionError("python storage needs nothing")


def _plain_arrow(dtype: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(dtype):
        _plain_arrow(dtype.value_type)
    elif types.is_nested(dtype) or isinstance(dtype, pa.BaseExtensionType):
        raise ValueError(f"there is no dtype {str(dtype)[:100]} of columns")
    if types.is_timestamp(dtype) and dtype.tz is not None:
        _read_zone(dtype.tz)
    if types.is_fixed_size_binary(dtype) and dtype.byte_width > _MAX_TEXT:
        raise ValueError(f"there is no dtype {str(dtype)[:100]} of columns")
    return dtype


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
    """A time zone by its name, or a fixed offset; never a file."""
    if name in _zone_names():
        return name
    offset = _OFFSET.fullmatch(name)
    if offset is None:
        raise ValueError(f"there is no time zone {name[:100]!r}")
    hours, minutes, seconds = (int(part or 0) for part in offset.groups()[1:])
    delta = datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return datetime.timezone(-delta if offset[1] == "-" else delta)


def _zone_name(zone: Any) -> str:
    """Name a time zone as ``_zone`` reads it."""
    try:
        _read_zone(str(zone))
    except ValueError as error:
        raise TypeError(
            f"{error} by name, so that moments there cannot be saved; convert them before fit, to "
            "UTC say"
        ) from None
    return str(zone)


def _utc(moment: pd.Timestamp) -> pd.Timestamp:
    return moment if moment.tz is None else moment.tz_convert("UTC").tz_localize(None)


def _read_zoned_moment(text: str, zone: str | None) -> pd.Timestamp:
    moment = pd.Timestamp(_matched(text, _ISO_MOMENT, "moment"))
    return moment if zone is None else moment.tz_localize("UTC").tz_convert(_read_zone(zone))


def pack_parameters(parameters: dict[str, Any]) -> dict[str, list[Any]]:
    """Parameters of an encoder: values or lists of them; a generator of random numbers is None."""
    return {name: _pack_parameter(value) for name, value in parameters.items()}


def unpack_parameters(packed: dict[str, Sequence[Any]]) -> dict[str, Any]:
    """The parameters that `pack_parameters` was given."""
    return {
        name: unpack_value(payload) if kind == "value" else unpack_values(payload)
        for name, (kind, payload) in packed.items()
    }


def _pack_parameter(value: Any) -> list[Any]:
    if isinstance(value, np.random.RandomState | np.random.Generator):
        value = None
    if value is None or isinstance(value, str | int | float | np.generic):
        return ["value", pack_value(value)]
    return ["list", pack_values(list(value))]
