"""A fitted TableEncoder as numeric arrays and JSON, and back; no pickle, no code run on load."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd

from combutab._fields import check_fields, choice, kind, nullable, optional, pair, several, whole
from combutab.preprocessing._categories import CategoryMap, Key
from combutab.preprocessing._kinds import ColumnKind
from combutab.preprocessing._numeric import Method, NumericScaler
from combutab.preprocessing.modes import read_duration, read_moment, read_number

if TYPE_CHECKING:
    from combutab.preprocessing._encoder import TableEncoder

_FORMAT = 1
_ENCODED = ("number", "bool", "datetime", "timedelta", "category")
_STATE = {
    "format": choice(_FORMAT),
    "parameters": kind(dict),
    "scaling": choice(*get_args(Method)),
    "kinds": several(choice(*_ENCODED), 1),
    "feature_names": nullable(several(kind(str))),
    "categories": several(kind(dict)),
}
_KEYS = ("bool", "int", "float", "str", "bytes", "datetime", "timedelta")
_CATEGORY = {
    "column": whole(),
    "keys": several(pair(choice(*_KEYS), kind(str, bool))),
    "missing": kind(bool),
    "onehot": kind(bool),
    "rare": optional(kind(bool)),
}
_ARRAYS = tuple(f.name for f in fields(NumericScaler) if f.name != "method")
_TRUTHS = ("constant", "unscaled", "missing")  # of the scaler's arrays
_OF_QUANTILES = ("knots", "edges")  # the others have an entry a column


@dataclass(frozen=True)
class EncoderState:
    """The state of a fitted TableEncoder."""

    parameters: dict[str, Any]
    kinds: tuple[ColumnKind, ...]
    feature_names: list[str] | None
    scaler: NumericScaler
    category_maps: tuple[CategoryMap, ...]


def encoder_state(encoder: TableEncoder) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays of the numeric columns' statistics, and all else as JSON-able values."""
    scaler = encoder.numeric_scaler_
    names = [name for name in _ARRAYS if name != "edges" or len(scaler.edges)]
    arrays = {name: getattr(scaler, name).copy() for name in names}
    columns = getattr(encoder, "feature_names_in_", None)
    meta = {
        "format": _FORMAT,
        "parameters": {k: _plain(v) for k, v in encoder.get_params(deep=False).items()},
        "scaling": scaler.method,
        "kinds": list(map(str, encoder.kinds_)),
        "feature_names": None if columns is None else [str(name) for name in columns],
        "categories": [
            {
                "column": each.column,
                "keys": [_pack(key) for key in each.keys],
                "missing": each.missing,
                "onehot": each.onehot,
                "rare": each.rare,
            }
            for each in encoder.category_maps_
        ],
    }
    return arrays, meta


def decoder_state(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> EncoderState:
    """Read what `encoder_state` wrote."""
    if meta.get("format") != _FORMAT:
        raise ValueError(
            f"the encoder's state has format {meta.get('format')!r}, this version reads "
            f"{_FORMAT}; load it with the version of combutab that saved it"
        )
    check_fields(meta, _STATE, "the encoder's state")
    for each in meta["categories"]:
        check_fields(each, _CATEGORY, "the encoder's categories")
    absent = [name for name in _ARRAYS if name not in {"edges", *arrays}]
    if absent:
        raise ValueError(
            f"the encoder's state lacks the arrays {absent}, it has {sorted(arrays)}; pass all "
            "that to_state returned"
        )
    scaler_arrays = {name: np.array(arrays[name]) for name in _ARRAYS if name in arrays}
    maps = tuple(
        CategoryMap(
            column=int(each["column"]),
            keys=tuple(_unpack(*packed) for packed in each["keys"]),
            missing=bool(each["missing"]),
            onehot=bool(each["onehot"]),
            rare=bool(each.get("rare", False)),  # files before it have none
        )
        for each in meta["categories"]
    )
    _refuse_unlike(meta, scaler_arrays, maps, len(arrays))
    scaler_arrays.setdefault("edges", np.empty((0, len(scaler_arrays["centre"]))))
    return EncoderState(
        parameters=dict(meta["parameters"]),
        kinds=tuple(map(ColumnKind, meta["kinds"])),
        feature_names=meta["feature_names"],
        scaler=NumericScaler(method=meta["scaling"], **scaler_arrays),
        category_maps=maps,
    )


def _refuse_unlike(
    meta: dict[str, Any],
    arrays: dict[str, np.ndarray],
    maps: tuple[CategoryMap, ...],
    n_arrays: int,
) -> None:
    """Refuse a state whose parts are not of one table, or that makes what is no number."""
    names, kinds = meta["feature_names"], meta["kinds"]
    numeric = sum(each != "category" for each in kinds)
    wrong = [
        name
        for name, array in arrays.items()
        if array.shape != (*array.shape[: name in _OF_QUANTILES], numeric)
        or array.dtype != (np.bool_ if name in _TRUTHS else np.float64)
        or not np.isfinite(array).all()
    ]
    if wrong or n_arrays != len(arrays) or not (arrays["scale"] > 0).all():
        raise ValueError(
            f"the encoder's state has arrays that do not fit its {numeric} numeric columns: {wrong}"
        )
    quantiles = [arrays[name] for name in _OF_QUANTILES if name in arrays]
    lacks = (meta["scaling"] == "quantile") != (len(arrays["knots"]) > 0)
    if lacks or any((np.diff(each, axis=0) < 0).any() for each in quantiles):
        raise ValueError("the encoder's state has quantiles that do not increase, or lacks them")
    if [each.column for each in maps] != [j for j, k in enumerate(kinds) if k == "category"]:
        raise ValueError("the encoder's state has the categories of other columns than its kinds")
    if any(len(each._position) != len(each.keys) for each in maps):
        raise ValueError("the encoder's state has a category twice")
    if names is not None and len({*names}) != len(kinds):
        raise ValueError(f"the encoder's state has {len(names)} names for {len(kinds)} columns")


def _plain(value: Any) -> Any:
    """A parameter as JSON holds it: array-likes become lists of Python scalars."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    return [_plain(each) for each in value]


def _pack(key: Key) -> list[Any]:
    """A category as [type, value]: JSON alone would not tell a date from text."""
    if isinstance(key, bool):
        return ["bool", key]
    if isinstance(key, int):
        return ["int", str(key)]  # text: readers of JSON may hold numbers in 53 bits
    if isinstance(key, float):
        return ["float", key.hex()]
    if isinstance(key, bytes):
        return ["bytes", key.hex()]
    if isinstance(key, pd.Timestamp):
        return ["datetime", key.isoformat()]
    if isinstance(key, pd.Timedelta):
        return ["timedelta", key.isoformat()]
    return ["str", str(key)]


def _unpack(kind: str, value: Any) -> Key:
    if kind == "float":
        return read_number(value)
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind == "datetime":
        return read_moment(value)
    if kind == "timedelta":
        return read_duration(value)
    if (kind == "bool") != isinstance(value, bool):
        raise ValueError(f"a category is {value!r}, which is no {kind}"[:200])
    return {"bool": bool, "int": int, "str": str}[kind](value)
