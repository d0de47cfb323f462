"""A fitted ModeEncoder as numeric arrays and JSON, and back; no pickle, no code run on load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar, get_args

import numpy as np
import pandas as pd

from combutab.core.files import (
    Field,
    check_fields,
    choice,
    kind,
    nullable,
    number,
    several,
    text,
    whole,
)
from combutab.preprocessing._values import (
    pack_dtype,
    pack_parameters,
    pack_value,
    pack_values,
    read_dtype,
    unpack_dtype,
    unpack_parameters,
    unpack_value,
    unpack_values,
)
from combutab.preprocessing.modes._columns import (
    CategoryColumn,
    IdentifierColumn,
    IdentifierKind,
    Identifiers,
    ModeColumn,
    NumberColumn,
    TableSchema,
)
from combutab.preprocessing.modes._numbers import (
    HELD,
    Bins,
    FloatFormat,
    Format,
    Mixture,
    RoundingSteps,
    TickFormat,
)

T = TypeVar("T")

_ROWS_FORMAT = 1
_ROWS_STATE = {
    "format": choice(_ROWS_FORMAT),
    "parameters": kind(dict),
    "schema": kind(dict),
    "columns": several(kind(dict), 1),
}
_SCHEMA_FIELDS = {
    "names": kind(dict),
    "dtype": nullable(kind(list)),
    "levels": kind(dict),
    "array_dtype": nullable(kind(str)),
}
_FORMATS: dict[str, type[Format]] = {"ticks": TickFormat, "floats": FloatFormat}
_COMMON_FIELDS = {
    "kind": choice("category", "identifier", *_FORMATS),
    "dtype": kind(list),
    "missing": kind(bool),
}
_NUMBER_COLUMN = {
    **_COMMON_FIELDS,
    "rare": kind(bool),
    "format": kind(dict),
    "rounding_steps": nullable(kind(dict)),
}
_COLUMN_FIELDS = {
    "category": {**_COMMON_FIELDS, "values": kind(dict), "rare": kind(bool)},
    "identifier": {**_COMMON_FIELDS, "made": kind(dict)},
    **dict.fromkeys(_FORMATS, _NUMBER_COLUMN),
}
_INT64_OR_UINT64 = whole(-(2**63), 2**64 - 1)
_SHARE_FIELD = Field("a share of the rows", lambda v: type(v) is float and 0.0 < v <= 1.0)
_RECORDS: dict[type, dict[str, Field]] = {
    Identifiers: {
        "kind": choice(*get_args(IdentifierKind)),
        "start": whole(0, 2**63 - 1),
        "prefix": text(100),
        "suffix": text(100),
    },
    TickFormat: {"low": _INT64_OR_UINT64, "high": _INT64_OR_UINT64, "step": whole(1, 2**63)},
    FloatFormat: {
        "low": number(),
        "high": number(),
        "exponent": whole(-1200, 1200),
        "decimals": nullable(whole(0, 400)),
    },
    RoundingSteps: {
        "decimals": whole(0, 22),
        "steps": several(whole(1, HELD - 1), 1),
        "shares": several(_SHARE_FIELD, 1),
    },
}


def write_state(
    parameters: dict[str, Any], schema: TableSchema, columns: Sequence[ModeColumn]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Modes or counts of each column as arrays, all else as JSON can hold it."""
    arrays: dict[str, np.ndarray] = {}
    for j, column in enumerate(columns):
        of_modes = isinstance(column, NumberColumn)
        source = column.mixture if isinstance(column, NumberColumn) else column
        arrays |= {f"{name}.{j}": getattr(source, name).copy() for name in _array_names(of_modes)}
    return arrays, {
        "format": _ROWS_FORMAT,
        "parameters": pack_parameters(parameters),
        "schema": _pack_schema(schema, _longest(columns)),
        "columns": [_pack_column(column) for column in columns],
    }


def read_state(
    arrays: dict[str, np.ndarray], meta: dict[str, Any]
) -> tuple[dict[str, Any], TableSchema, list[ModeColumn]]:
    """Read what `write_state` wrote."""
    if meta.get("format") != _ROWS_FORMAT:
        raise ValueError(
            f"the encoder's state has format {meta.get('format')!r}, this version reads "
            f"{_ROWS_FORMAT}; load it with the version of combutab that saved it"
        )
    check_fields(meta, _ROWS_STATE, "the encoder's state")
    check_fields(meta["schema"], _SCHEMA_FIELDS, "the encoder's schema")
    parameters = unpack_parameters(meta["parameters"])
    made = Bins if parameters["strategy"] == "quantile" else Mixture
    columns, left = [], dict(arrays)
    for j, each in enumerate(meta["columns"]):
        check_fields(
            each, _COLUMN_FIELDS.get(str(each.get("kind")), _COMMON_FIELDS), "the encoder's columns"
        )
        own = [_take_array(left, f"{name}.{j}") for name in _array_names("format" in each)]
        columns.append(_unpack_column(each, own, made))
    if left:
        raise ValueError(f"the encoder's state has arrays {list(left)} of no column"[:200])
    schema = _unpack_schema(meta["schema"], _longest(columns))
    if len(schema.names) != len(columns) or not schema.names.is_unique:
        raise ValueError(
            f"the encoder's state has {len(schema.names.unique())} names for {len(columns)} columns"
        )
    return parameters, schema, columns


def _array_names(of_modes: bool) -> Sequence[str]:
    return [each.name for each in fields(Mixture)] if of_modes else ["counts"]


def _take_array(arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Take an array of a mixture's modes, or of counts, out of a state; refuse what is none."""
    if name not in arrays:
        raise ValueError(
            f"the encoder's state lacks the arrays {[name]}; pass all that to_state returned"
        )
    array = np.array(arrays.pop(name))
    dtype = np.int64 if name.startswith("counts") else np.float64
    held = array.ndim == 1 and len(array) and array.dtype == dtype and np.isfinite(array).all()
    if not held or (not name.startswith("means") and not (array > 0).all()):
        raise ValueError(f"the array {name} of the encoder's state has no counts or modes")
    return array


def _longest(columns: Sequence[ModeColumn]) -> int:
    """Characters of the longest category."""
    found = [c.keys for c in columns if isinstance(c, CategoryColumn)]
    return max(
        (len(key) for keys in found for key in keys if isinstance(key, str | bytes)), default=0
    )


# ---- One column ----------------------------------------------------------------------------------


def _pack_column(column: ModeColumn) -> dict[str, Any]:
    if isinstance(column, CategoryColumn):
        return {
            "kind": "category",
            "dtype": pack_dtype(column.values.dtype),
            "values": pack_values(column.values.astype(object).tolist()),
            "missing": column.missing,
            "rare": column.rare,
        }
    if isinstance(column, IdentifierColumn):
        return {
            "kind": "identifier",
            "dtype": pack_dtype(column.dtype),
            "made": _pack_record(column.made),
            "missing": column.missing,
        }
    return {
        "kind": next(name for name, kind in _FORMATS.items() if type(column.format) is kind),
        "dtype": pack_dtype(column.format.dtype),
        "format": _pack_record(column.format),
        "missing": column.missing,
        "rare": column.rare,
        "rounding_steps": None
        if column.rounding_steps is None
        else _pack_record(column.rounding_steps),
    }


def _unpack_column(
    packed: Mapping[str, Any], arrays: list[np.ndarray], made: type[Mixture]
) -> ModeColumn:
    dtype, missing = unpack_dtype(packed["dtype"]), packed["missing"]
    if packed["kind"] == "category":
        values = pd.Series(unpack_values(packed["values"]), dtype=dtype)
        return _checked(CategoryColumn(values, missing, arrays[0], packed["rare"]))
    if packed["kind"] == "identifier":
        names = _unpack_record(Identifiers, packed["made"], "the identifiers")
        column = IdentifierColumn(dtype, names, missing, arrays[0])
        if column.size != len(column.counts):
            raise ValueError(
                f"the encoder's state has {len(column.counts)} counts of identifiers, which needs "
                f"{column.size}"
            )
        return column
    if len({len(array) for array in arrays}) > 1:
        raise ValueError("the encoder's state has modes of a column of several lengths")
    kind = _FORMATS[packed["kind"]]
    format = _unpack_record(kind, packed["format"], "the numbers", dtype=dtype)
    if format.low > format.high:
        raise ValueError("the encoder's state has a column whose least number is above its largest")
    steps = None
    if packed["rounding_steps"] is not None:
        steps = _unpack_record(RoundingSteps, packed["rounding_steps"], "the rounding steps")
        if len(steps.steps) != len(steps.shares) or list(steps.steps) != sorted({*steps.steps}):
            raise ValueError(
                "the rounding steps of the encoder's columns must ascend and have a share each"
            )
    return NumberColumn(format, made(*arrays), missing, packed["rare"], steps)


def _checked(column: CategoryColumn) -> CategoryColumn:
    """A column of categories that were read, if they are distinct and missing where it says."""
    values, n_distinct = column.values, len(column.codes)
    absent = values.isna().to_numpy(dtype=bool)
    if column.size != len(column.counts) or n_distinct + column.missing != len(values):
        raise ValueError(
            f"the encoder's state has a column of {len(column.counts)} values of which "
            f"{n_distinct} differ"
        )
    if absent[: len(values) - column.missing].any() or (column.missing and not absent[-1]):
        raise ValueError("the encoder's state has missing values where a column has none")
    return column


def _pack_record(record: Any) -> dict[str, Any]:
    return {name: pack_value(getattr(record, name)) for name in _RECORDS[type(record)]}


def _unpack_record(kind: type[T], packed: Mapping[str, Any], what: str, **rest: Any) -> T:
    values = {name: unpack_value(each) for name, each in packed.items()}
    check_fields(values, _RECORDS[kind], f"{what} of the encoder's columns")
    return kind(**values, **rest)


# ---- The names of the columns --------------------------------------------------------------------


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
