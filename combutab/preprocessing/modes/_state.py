"""A fitted ModeEncoder, its values and dtypes, as arrays and JSON; no code is run on reading."""

from __future__ import annotations

import datetime
import decimal
import functools
import math
import re
import uuid
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, get_args

import numpy as np
import pandas as pd

from combutab.core.fields import (
    check_fields,
    choice,
    kind,
    nullable,
    number,
    optional,
    several,
    text,
    whole,
)
from combutab.preprocessing.modes._columns import (
    CategoryColumn,
    Column,
    IdentifierColumn,
    Identifiers,
    Kind,
    NumberColumn,
)
from combutab.preprocessing.modes._numbers import (
    HELD,
    Bins,
    FloatFormat,
    Format,
    Grids,
    Mixture,
    TickFormat,
)
from combutab.preprocessing.modes._tables import TableSchema

# ---- Values and dtypes of a table as JSON holds them, and back; exact, and no code run on
# reading
# What is read may be a stranger's: dtypes and time zones are those of a list, and nothing is larger
# than the text that says it.

Packed = list[Any]

_LONGEST = 1000  # characters of an array's texts
_ARROW = 2**16  # bytes that say a dtype of pyarrow
_DIGITS = 4300  # of an integer or a decimal, and a decimal's exponent
_MOMENT = re.compile(
    r"[-+]?\d{1,10}-\d\d-\d\d([T ][\d:.]{2,20})?([+-]\d\d:\d\d(:\d\d)?)?", re.ASCII
)
_DURATION = re.compile(r"[-+]?P[-+\dDTHMS.]{1,60}", re.ASCII)
_OFFSET = re.compile(r"(?:UTC)?([+-])(\d\d):?(\d\d)(?::(\d\d))?", re.ASCII)
_FREQUENCY = r"[A-Za-z0-9-]{1,20}"
_PLAIN = re.compile(
    r"bool|boolean|object|u?int(8|16|32|64)|U?Int(8|16|32|64)|[fF]loat(16|32|64|96|128)"
    r"|(datetime64|timedelta64)\[(s|ms|us|ns)\]|[<>|=]?[biuf]\d{0,2}"
    r"|[<>=]?[mM]8\[\d{0,4}(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]"
    rf"|period\[{_FREQUENCY}\]"
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
    "float": (float, float.hex, lambda text: read_number(text, finite=False)),
    "str": (str, str, str),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "decimal": (decimal.Decimal, str, lambda text: _decimal(text)),
    "uuid": (uuid.UUID, str, uuid.UUID),
    "timestamp": (
        pd.Timestamp,
        lambda t: [_utc(t).isoformat(), None if t.tz is None else _zone_name(t.tz)],
        lambda packed: _moment(*packed),
    ),
    "timedelta": (pd.Timedelta, pd.Timedelta.isoformat, lambda text: read_duration(text)),
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
        lambda packed: pd.Period(ordinal=packed[0], freq=_frequency(packed[1])),
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

    >>> pack_value((1, "a"))
    ['tuple', [['int', '1'], ['str', 'a']]]
    >>> unpack_value(pack_value(0.1))
    0.1

    Raises TypeError if it is of a type that cannot be written without pickle.
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
        if len(packed_schema) > _ARROW or b"ARROW:" in packed_schema:  # an extension's code
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
    if texts and int(texts[1]) <= max(_LONGEST, longest):
        return np.dtype(name)
    if zoned:
        return make(zoned[1], _zone(zoned[2]))
    if name == "|O":  # an array's, which pandas calls object
        return np.dtype(object)
    if _PLAIN.fullmatch(name):
        return pd.api.types.pandas_dtype(name)
    if name in ("str", "string", "category"):  # of pandas 3, and as earlier versions wrote
        return pd.api.types.pandas_dtype(name)
    raise ValueError(f"there is no dtype {name[:100]!r} of columns")


def read_moment(text: str) -> pd.Timestamp:
    """A moment in ISO 8601; not "now", which pandas would take."""
    if len(text) > 64 or not _MOMENT.fullmatch(text):
        raise ValueError(f"{text[:100]!r} is no moment")
    return pd.Timestamp(text)


def read_duration(text: str) -> pd.Timedelta:
    """A duration in ISO 8601."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text[:100]!r} is no duration")
    return pd.Timedelta(text)


def read_number(text: str, *, finite: bool = True) -> float:
    """A float in hexadecimal digits."""
    value = float.fromhex(text)
    if len(text) > 64 or (finite and not math.isfinite(value)):
        raise ValueError(f"{text[:100]!r} is no finite number")
    return value


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
        _zone(dtype.tz)
    if types.is_fixed_size_binary(dtype) and dtype.byte_width > _LONGEST:
        raise ValueError(f"there is no dtype {str(dtype)[:100]} of columns")
    return dtype


def _decimal(text: str) -> decimal.Decimal:
    value = decimal.Decimal(text) if len(text) <= _DIGITS else None
    if value is None or (value.is_finite() and abs(value.adjusted()) > _DIGITS) or value.is_snan():
        raise ValueError(f"{text[:100]!r} is no decimal that is read")
    return value


def _frequency(name: str) -> str:
    if not re.fullmatch(_FREQUENCY, name):
        raise ValueError(f"{name[:100]!r} is no frequency")
    return name


@functools.cache
def _zones() -> set[str]:
    return zoneinfo.available_timezones() | {"UTC"}


def _zone(name: str) -> Any:
    """A time zone by its name, or a fixed offset; never a file."""
    if name in _zones():
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
        _zone(str(zone))
    except ValueError as error:
        raise TypeError(
            f"{error} by name, so that moments there cannot be saved; convert them before fit, to "
            "UTC say"
        ) from None
    return str(zone)


def _utc(moment: pd.Timestamp) -> pd.Timestamp:
    return moment if moment.tz is None else moment.tz_convert("UTC").tz_localize(None)


def _moment(text: str, zone: str | None) -> pd.Timestamp:
    moment = read_moment(text)
    return moment if zone is None else moment.tz_localize("UTC").tz_convert(_zone(zone))


# ---- A fitted ModeEncoder as numeric arrays and JSON, and back; no pickle, no code run on load

_FORMAT = 1
_FORMATS: dict[str, type[TickFormat] | type[FloatFormat]] = {
    "ticks": TickFormat,
    "floats": FloatFormat,
}
_ARRAYS = ("weights", "means", "sds", "counts")
_STATE = {
    "format": choice(_FORMAT),
    "parameters": kind(dict),
    "schema": kind(dict),
    "columns": several(kind(dict), 1),
}
_SCHEMA = {
    "names": kind(dict),
    "dtype": nullable(kind(list)),
    "levels": kind(dict),
    "array_dtype": nullable(kind(str)),
}
_OF_ANY = {"size": whole(1), "dtype": kind(list), "missing": kind(bool)}
_RARE = {"rare": optional(kind(bool))}
_COLUMNS = {
    "category": {**_OF_ANY, **_RARE, "kind": choice("category"), "values": kind(dict)},
    "identifier": {**_OF_ANY, "kind": choice("identifier"), "made": kind(dict)},
    **{
        name: {
            **(_OF_ANY | _RARE),
            "kind": choice(name),
            "numbers": kind(dict),
            "grids": optional(nullable(kind(dict))),
        }
        for name in _FORMATS
    },
}
_MADE = {
    "kind": choice(*get_args(Kind)),
    "start": whole(0, 2**63 - 1),
    "prefix": text(100),
    "suffix": text(100),
}
_GRIDS = {"decimals": whole(0, 22), "steps": kind(list), "shares": kind(list)}
_WIDE = whole(-(2**63), 2**64 - 1)
_NUMBERS = {
    "ticks": {"low": _WIDE, "high": _WIDE, "step": whole(1, 2**63)},
    "floats": {
        "low": number(),
        "high": number(),
        "exponent": whole(-1200, 1200),
        "decimals": nullable(whole(0, 400)),
    },
}


def write_state(
    parameters: dict[str, Any], schema: TableSchema, columns: Sequence[Column]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Modes and counts of all columns as arrays, one after another; all else JSON can hold."""
    arrays: dict[str, list[np.ndarray]] = {name: [] for name in _ARRAYS}
    for column in columns:
        if isinstance(column, NumberColumn):
            for field in fields(Mixture):
                arrays[field.name].append(getattr(column.mixture, field.name))
        else:
            arrays["counts"].append(column.counts)
    empty = {name: np.empty(0, np.int64 if name == "counts" else np.float64) for name in _ARRAYS}
    meta = {
        "format": _FORMAT,
        "parameters": {name: _pack_parameter(value) for name, value in parameters.items()},
        "schema": _pack_schema(schema, _longest(columns)),
        "columns": [_pack_column(column) for column in columns],
    }
    return {name: np.concatenate([empty[name], *parts]) for name, parts in arrays.items()}, meta


def read_state(
    arrays: dict[str, np.ndarray], meta: dict[str, Any]
) -> tuple[dict[str, Any], TableSchema, list[Column]]:
    """Read what `write_state` wrote."""
    if meta.get("format") != _FORMAT:
        raise ValueError(
            f"the encoder's state has format {meta.get('format')!r}, this version reads "
            f"{_FORMAT}; load it with the version of combutab that saved it"
        )
    check_fields(meta, _STATE, "the encoder's state")
    check_fields(meta["schema"], _SCHEMA, "the encoder's schema")
    for each in meta["columns"]:
        check_fields(each, _COLUMNS.get(str(each.get("kind")), _OF_ANY), "the encoder's columns")
    sizes = {
        name: [each["size"] for each in meta["columns"] if (each["kind"] in _FORMATS) == modal]
        for name, modal in (("counts", False), ("modes", True))
    }
    needed = {name: sum(sizes["counts" if name == "counts" else "modes"]) for name in _ARRAYS}
    wrong = [name for name in _ARRAYS if name not in arrays or len(arrays[name]) != needed[name]]
    if wrong:
        raise ValueError(
            f"the encoder's state lacks the arrays {wrong} or has them of another length; pass "
            "all that to_state returned"
        )
    _refuse_unlike(arrays)
    parameters = {name: _unpack_parameter(value) for name, value in meta["parameters"].items()}
    made = Bins if parameters.get("strategy") == "quantile" else Mixture
    counts = iter(_split(arrays["counts"], sizes["counts"]))
    modes = zip(*(_split(arrays[f.name], sizes["modes"]) for f in fields(Mixture)), strict=True)
    columns: list[Column] = []
    for each in meta["columns"]:
        if each["kind"] == "category":
            columns.append(_unpack_categories(each, next(counts)))
        elif each["kind"] == "identifier":
            columns.append(_unpack_identifiers(each, next(counts)))
        else:
            mixture, rare = made(*next(modes)), each.get("rare", False)
            grids = _unpack_grids(each.get("grids"))
            numbers = _unpack_format(each)
            columns.append(NumberColumn(numbers, mixture, each["missing"], rare, grids))
    schema = _unpack_schema(meta["schema"], _longest(columns))
    if len(schema.names) != len(columns) or not schema.names.is_unique:
        raise ValueError(
            f"the encoder's state has {len(schema.names.unique())} names for {len(columns)} columns"
        )
    return parameters, schema, columns


def _longest(columns: Sequence[Column]) -> int:
    """Characters of the longest category."""
    found = [c.keys for c in columns if isinstance(c, CategoryColumn)]
    return max(
        (len(key) for keys in found for key in keys if isinstance(key, str | bytes)), default=0
    )


def _refuse_unlike(arrays: dict[str, np.ndarray]) -> None:
    """Refuse arrays that are none of mixtures and counts."""
    wrong = [
        name
        for name in arrays
        if name not in _ARRAYS
        or arrays[name].ndim != 1
        or arrays[name].dtype != (np.int64 if name == "counts" else np.float64)
        or not np.isfinite(arrays[name]).all()
        or (name != "means" and not (arrays[name] > 0).all())
    ]
    if wrong:
        raise ValueError(
            f"the encoder's state has arrays {wrong} that are no counts or modes; pass all that "
            "to_state returned"
        )


def _unpack_categories(packed: dict[str, Any], counts: np.ndarray) -> CategoryColumn:
    values = pd.Series(unpack_values(packed["values"]), dtype=unpack_dtype(packed["dtype"]))
    rare = packed.get("rare", False)  # files of older versions lack it
    column = CategoryColumn(values, packed["missing"], counts, rare)
    absent = values.isna().to_numpy(dtype=bool)
    n_distinct = len(column.codes)
    if column.size != packed["size"] or n_distinct + packed["missing"] != len(values):
        raise ValueError(
            f"the encoder's state has a column of {packed['size']} values of which {n_distinct} "
            "differ"
        )
    if absent[: len(values) - packed["missing"]].any() or absent[-1] != packed["missing"]:
        raise ValueError("the encoder's state has missing values where a column has none")
    return column


def _unpack_identifiers(packed: dict[str, Any], counts: np.ndarray) -> IdentifierColumn:
    made = {name: unpack_value(value) for name, value in packed["made"].items()}
    check_fields(made, _MADE, "the identifiers of the encoder's columns")
    column = IdentifierColumn(
        unpack_dtype(packed["dtype"]), Identifiers(**made), packed["missing"], counts
    )
    if column.size != packed["size"]:
        raise ValueError(
            f"the encoder's state has identifiers of size {packed['size']}, which is {column.size}"
        )
    return column


def _split(array: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    return [part.copy() for part in np.split(np.asarray(array), np.cumsum(sizes[:-1], dtype=int))]


def _pack_column(column: Column) -> dict[str, Any]:
    if isinstance(column, CategoryColumn):
        return {
            "kind": "category",
            "size": column.size,
            "dtype": pack_dtype(column.values.dtype),
            "values": pack_values(column.values.astype(object).tolist()),
            "missing": column.missing,
            "rare": column.rare,
        }
    if isinstance(column, IdentifierColumn):
        made = {each.name: getattr(column.made, each.name) for each in fields(Identifiers)}
        return {
            "kind": "identifier",
            "size": column.size,
            "dtype": pack_dtype(column.dtype),
            "made": {name: pack_value(value) for name, value in made.items()},
            "missing": column.missing,
        }
    kind = next(name for name, each in _FORMATS.items() if isinstance(column.format, each))
    numbers = {
        field.name: pack_value(getattr(column.format, field.name))
        for field in fields(column.format)
        if field.name != "dtype"
    }
    return {
        "kind": kind,
        "size": len(column.mixture.weights),
        "dtype": pack_dtype(column.format.dtype),
        "numbers": numbers,
        "missing": column.missing,
        "rare": column.rare,
        "grids": None if column.grids is None else _pack_grids(column.grids),
    }


def _pack_grids(grids: Grids) -> dict[str, Any]:
    return {
        "decimals": grids.decimals,
        "steps": list(grids.steps),
        "shares": list(grids.shares),
    }


def _unpack_grids(packed: dict[str, Any] | None) -> Grids | None:
    if packed is None:
        return None
    what = "the grids of the encoder's columns"
    check_fields(packed, _GRIDS, what)
    steps, shares = packed["steps"], packed["shares"]
    held = all(type(step) is int and 0 < step < HELD for step in steps)
    held = held and all(type(share) is float and 0.0 < share <= 1.0 for share in shares)
    if not held or not steps or len(steps) != len(shares) or steps != sorted(set(steps)):
        raise ValueError(
            f"{what} must have ascending steps and a share of each, got {packed}"[:500]
        )
    return Grids(packed["decimals"], tuple(steps), tuple(shares))


def _unpack_format(packed: dict[str, Any]) -> Format:
    numbers = {name: unpack_value(each) for name, each in packed["numbers"].items()}
    check_fields(numbers, _NUMBERS[packed["kind"]], "the numbers of the encoder's columns")
    if numbers["low"] > numbers["high"]:
        raise ValueError("the encoder's state has a column whose least number is above its largest")
    return _FORMATS[packed["kind"]](dtype=unpack_dtype(packed["dtype"]), **numbers)


def _pack_schema(schema: TableSchema, longest: int) -> dict[str, Any]:
    names = schema.names
    if schema.array_dtype is not None:
        try:
            read_dtype(schema.array_dtype.str, longest)
        except ValueError as error:
            raise TypeError(f"{error} that can be saved; convert the array before fit") from None
    return {
        "names": pack_values(names.tolist()),
        "dtype": None if isinstance(names, pd.MultiIndex) else pack_dtype(names.dtype),
        "levels": pack_values(list(names.names)),
        "array_dtype": None if schema.array_dtype is None else schema.array_dtype.str,
    }


def _unpack_schema(packed: dict[str, Any], longest: int) -> TableSchema:
    values, levels = unpack_values(packed["names"]), unpack_values(packed["levels"])
    names: pd.Index
    if packed["dtype"] is None:
        names = pd.MultiIndex.from_tuples(values, names=levels)
    else:
        names = pd.Index(
            values, dtype=unpack_dtype(packed["dtype"]), name=levels[0], tupleize_cols=False
        )
    array_dtype = packed["array_dtype"]
    return TableSchema(names, None if array_dtype is None else read_dtype(array_dtype, longest))


def _pack_parameter(value: Any) -> list[Any]:
    if isinstance(value, np.random.RandomState | np.random.Generator):
        value = None
    if value is None or isinstance(value, str | int | float | np.generic):
        return ["value", pack_value(value)]
    return ["list", pack_values(list(value))]


def _unpack_parameter(packed: Sequence[Any]) -> Any:
    kind, payload = packed
    return unpack_value(payload) if kind == "value" else unpack_values(payload)
