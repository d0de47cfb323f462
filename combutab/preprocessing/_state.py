"""A fitted TableEncoder as numeric arrays and JSON, and back; no pickle, no code run on load."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from combutab.preprocessing._categories import CategoryMap, Key
from combutab.preprocessing._columns import Kind
from combutab.preprocessing._numeric import NumericScaler

if TYPE_CHECKING:
    from combutab.preprocessing._encoder import TableEncoder

_FORMAT = 1


@dataclass(frozen=True)
class EncoderState:
    """What `TableEncoder.from_state` needs."""

    parameters: dict[str, Any]
    kinds: tuple[Kind, ...]
    feature_names: list[str] | None
    scaler: NumericScaler
    category_maps: tuple[CategoryMap, ...]


def encoder_state(encoder: TableEncoder) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays of the numeric columns' statistics, and all else as JSON-able values."""
    scaler = encoder.numeric_scaler_
    arrays = {f.name: getattr(scaler, f.name).copy() for f in fields(scaler) if f.name != "method"}
    names = getattr(encoder, "feature_names_in_", None)
    meta = {
        "format": _FORMAT,
        "parameters": {k: _plain(v) for k, v in encoder.get_params(deep=False).items()},
        "scaling": scaler.method,
        "kinds": list(encoder.kinds_),
        "feature_names": None if names is None else [str(name) for name in names],
        "categories": [
            {
                "column": each.column,
                "keys": [_pack(key) for key in each.keys],
                "missing": each.missing,
                "onehot": each.onehot,
            }
            for each in encoder.category_maps_
        ],
    }
    return arrays, meta


def decoder_state(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> EncoderState:
    """What `encoder_state` wrote, read back."""
    if meta.get("format") != _FORMAT:
        raise ValueError(
            f"the encoder's state has format {meta.get('format')!r}, this version reads "
            f"{_FORMAT}; load it with the version of combutab that saved it"
        )
    absent = [f.name for f in fields(NumericScaler) if f.name not in {"method", *arrays}]
    if absent:
        raise ValueError(
            f"the encoder's state lacks the arrays {absent}, it has {sorted(arrays)}; pass all "
            "that to_state returned"
        )
    scaler_arrays = {
        f.name: np.array(arrays[f.name]) for f in fields(NumericScaler) if f.name != "method"
    }
    maps = tuple(
        CategoryMap(
            column=int(each["column"]),
            keys=tuple(_unpack(*packed) for packed in each["keys"]),
            missing=bool(each["missing"]),
            onehot=bool(each["onehot"]),
        )
        for each in meta["categories"]
    )
    return EncoderState(
        parameters=dict(meta["parameters"]),
        kinds=tuple(meta["kinds"]),
        feature_names=meta["feature_names"],
        scaler=NumericScaler(method=meta["scaling"], **scaler_arrays),
        category_maps=maps,
    )


def _plain(value: Any) -> Any:
    """A parameter as JSON holds it: array-likes become lists of Python scalars."""
    if value is None or isinstance(value, str | bool | int):
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
        return float.fromhex(value)
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind == "datetime":
        return pd.Timestamp(value)
    if kind == "timedelta":
        return pd.Timedelta(value)
    return {"bool": bool, "int": int, "str": str}[kind](value)
