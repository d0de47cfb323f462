"""A fitted ModeEncoder as numeric arrays and JSON, and back; no pickle, no code run on load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from combutab.preprocessing._identifiers import Identifiers
from combutab.preprocessing._mixtures import Mixture
from combutab.preprocessing._mode_columns import (
    CategoryColumn,
    Column,
    IdentifierColumn,
    NumberColumn,
)
from combutab.preprocessing._mode_numbers import FloatFormat, Format, TickFormat
from combutab.preprocessing._mode_tables import TableSchema
from combutab.preprocessing._mode_values import (
    pack_dtype,
    pack_value,
    pack_values,
    unpack_dtype,
    unpack_value,
    unpack_values,
)

_FORMAT = 1
_FORMATS: dict[str, type[TickFormat] | type[FloatFormat]] = {
    "ticks": TickFormat,
    "floats": FloatFormat,
}
_ARRAYS = ("weights", "means", "sds", "counts")


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
        "schema": _pack_schema(schema),
        "columns": [_pack_column(column) for column in columns],
    }
    return {name: np.concatenate([empty[name], *parts]) for name, parts in arrays.items()}, meta


def read_state(
    arrays: dict[str, np.ndarray], meta: dict[str, Any]
) -> tuple[dict[str, Any], TableSchema, list[Column]]:
    """What `write_state` was given."""
    if meta.get("format") != _FORMAT:
        raise ValueError(
            f"the encoder's state has format {meta.get('format')!r}, this version reads "
            f"{_FORMAT}; load it with the version of combutab that saved it"
        )
    sizes = {
        kind: [each["size"] for each in meta["columns"] if (each["kind"] in _FORMATS) == continuous]
        for kind, continuous in (("counts", False), ("modes", True))
    }
    needed = {name: sum(sizes["counts" if name == "counts" else "modes"]) for name in _ARRAYS}
    wrong = [name for name in _ARRAYS if name not in arrays or len(arrays[name]) != needed[name]]
    if wrong:
        raise ValueError(
            f"the encoder's state lacks the arrays {wrong} or has them of another length; pass "
            "all that to_state returned"
        )
    counts = iter(_split(arrays["counts"], sizes["counts"]))
    modes = zip(*(_split(arrays[f.name], sizes["modes"]) for f in fields(Mixture)), strict=True)
    columns: list[Column] = []
    for each in meta["columns"]:
        if each["kind"] == "category":
            values = pd.Series(unpack_values(each["values"]), dtype=unpack_dtype(each["dtype"]))
            rare = each.get("rare", False)  # files of older versions lack it
            columns.append(CategoryColumn(values, each["missing"], next(counts), rare))
        elif each["kind"] == "identifier":
            made = Identifiers(**{name: unpack_value(v) for name, v in each["made"].items()})
            dtype = unpack_dtype(each["dtype"])
            columns.append(IdentifierColumn(dtype, made, each["missing"], next(counts)))
        else:
            mixture, rare = Mixture(*next(modes)), each.get("rare", False)
            columns.append(NumberColumn(_unpack_format(each), mixture, each["missing"], rare))
    parameters = {name: _unpack_parameter(value) for name, value in meta["parameters"].items()}
    return parameters, _unpack_schema(meta["schema"]), columns


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
    }


def _unpack_format(packed: dict[str, Any]) -> Format:
    numbers = {name: unpack_value(each) for name, each in packed["numbers"].items()}
    return _FORMATS[packed["kind"]](dtype=unpack_dtype(packed["dtype"]), **numbers)


def _pack_schema(schema: TableSchema) -> dict[str, Any]:
    names = schema.names
    return {
        "names": pack_values(names.tolist()),
        "dtype": None if isinstance(names, pd.MultiIndex) else pack_dtype(names.dtype),
        "levels": pack_values(list(names.names)),
        "array_dtype": None if schema.array_dtype is None else schema.array_dtype.str,
    }


def _unpack_schema(packed: dict[str, Any]) -> TableSchema:
    values, levels = unpack_values(packed["names"]), unpack_values(packed["levels"])
    names: pd.Index
    if packed["dtype"] is None:
        names = pd.MultiIndex.from_tuples(values, names=levels)
    else:
        names = pd.Index(
            values, dtype=unpack_dtype(packed["dtype"]), name=levels[0], tupleize_cols=False
        )
    array_dtype = packed["array_dtype"]
    return TableSchema(names, None if array_dtype is None else np.dtype(array_dtype))


def _pack_parameter(value: Any) -> list[Any]:
    if isinstance(value, np.random.RandomState | np.random.Generator):
        value = None
    if value is None or isinstance(value, str | int | float | np.generic):
        return ["value", pack_value(value)]
    return ["list", pack_values(list(value))]


def _unpack_parameter(packed: Sequence[Any]) -> Any:
    kind, payload = packed
    return unpack_value(payload) if kind == "value" else unpack_values(payload)
