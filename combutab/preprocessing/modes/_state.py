"""A fitted ModeEncoder as numeric arrays and JSON, and back; no pickle, no code run on load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, get_args

import numpy as np
import pandas as pd

from combutab._fields import (
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
from combutab.preprocessing.modes._bins import Bins
from combutab.preprocessing.modes._columns import (
    CategoryColumn,
    Column,
    IdentifierColumn,
    NumberColumn,
)
from combutab.preprocessing.modes._grids import HELD, Grids
from combutab.preprocessing.modes._identifiers import Identifiers, Kind
from combutab.preprocessing.modes._mixtures import Mixture
from combutab.preprocessing.modes._numbers import FloatFormat, Format, TickFormat
from combutab.preprocessing.modes._tables import TableSchema
from combutab.preprocessing.modes._values import (
    pack_dtype,
    pack_value,
    pack_values,
    read_dtype,
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
