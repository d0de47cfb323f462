"""Values and dtypes of a table as JSON holds them, and back; exact, and no code run on reading."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

Packed = list[Any]

# name -> (type, to JSON, from JSON). Integers are text: readers of JSON may hold 53 bits only.
_KINDS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "none": (type(None), lambda _: None, lambda _: None),
    "NaT": (type(pd.NaT), lambda _: None, lambda _: pd.NaT),
    "NA": (type(pd.NA), lambda _: None, lambda _: pd.NA),
    "bool": (bool, bool, bool),
    "int": (int, str, int),
    "float": (float, float.hex, float.fromhex),
    "str": (str, str, str),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "uuid": (uuid.UUID, str, uuid.UUID),
    "timestamp": (
        pd.Timestamp,
        lambda t: [_utc(t).isoformat(), None if t.tz is None else str(t.tz)],
        lambda packed: _moment(*packed),
    ),
    "timedelta": (pd.Timedelta, pd.Timedelta.isoformat, pd.Timedelta),
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
        lambda packed: pd.Period(ordinal=packed[0], freq=packed[1]),
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
_NAMES = {kind: name for name, (kind, _, _) in _KINDS.items()}


def pack_value(value: Any) -> Packed:
    """A value as ``[kind, payload]``.

    Examples
    --------
    >>> pack_value((1, "a"))
    ['tuple', [['int', '1'], ['str', 'a']]]
    >>> unpack_value(pack_value(0.1))
    0.1

    Raises
    ------
    TypeError
        If it is of a type that cannot be written without pickle.
    """
    if isinstance(value, np.generic):
        value = value.item()
    name = _NAMES.get(type(value))
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

    Examples
    --------
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

    Examples
    --------
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

        schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(payload)))
        return pd.ArrowDtype(schema.field(0).type)
    return pd.api.types.pandas_dtype(payload)


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


def _utc(moment: pd.Timestamp) -> pd.Timestamp:
    return moment if moment.tz is None else moment.tz_convert("UTC").tz_localize(None)


def _moment(text: str, zone: str | None) -> pd.Timestamp:
    moment = pd.Timestamp(text)
    return moment if zone is None else moment.tz_localize("UTC").tz_convert(zone)
