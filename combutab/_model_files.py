"""Files of fitted models without pickle: safetensors for arrays, JSON in the header for the rest.

Nothing in such a file is code, and loading runs none: parameters are checked by the constructor's
own validation, callables are only those of ``combutab.activations``, by name.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

import combutab.activations as activations
from combutab._version import __version__
from combutab._whole_files import whole_file
from combutab.constructions import ConstructedNetwork

_FORMAT = 1
_KEY = "combutab"  # of the JSON in the file's header
_CLASSES: dict[str, Any] = {}
T = TypeVar("T", bound=type)


def loadable(cls: T) -> T:
    """Let ``load`` find a class, which has ``load(path, device=)`` of its own."""
    _CLASSES[cls.__name__] = cls
    return cls


def load(path: str | os.PathLike[str], *, device: str | torch.device = "auto") -> Any:
    """Read any model that ``save`` wrote; the file says which it is.

    Parameters
    ----------
    path : str or path
    device : str or torch.device, default="auto"
        Where it computes.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, or it is not a model of this library.
    """
    name = str(read_model(path, arrays=False)[0]["class"])
    if name not in _CLASSES:
        raise ValueError(f"{path} holds a {name}, which is none of {sorted(_CLASSES)}")
    return _CLASSES[name].load(path, device=device)


def model_header(model: Any) -> dict[str, Any]:
    """What every model's file says of it: its class, and its parameters."""
    return {
        "format": _FORMAT,
        "version": __version__,
        "class": type(model).__name__,
        "params": {
            name: encode(value, name)
            for name, value in model.get_params(deep=False).items()
            if name not in ("callbacks", "device")  # of a process, not of a model
        },
    }


def write_model(
    path: str | os.PathLike[str], header: dict[str, Any], tensors: dict[str, np.ndarray]
) -> None:
    """Write a model's file; a failure leaves no half-written one."""
    tensors = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    with whole_file(path) as place:
        save_file(tensors, place, {_KEY: json.dumps(header)})


def read_model(
    path: str | os.PathLike[str], *, arrays: bool = True
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header of a model's file, and its arrays by name."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a directory; name a file in it")
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()} if arrays else {}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file, or is cut short: {error}") from error
    if _KEY not in metadata:
        raise ValueError(f"{path} is a safetensors file, but not a model of combutab")
    try:
        header = json.loads(metadata[_KEY])
    except ValueError as error:
        raise ValueError(f"{path} is damaged: its header is not JSON ({error})") from error
    if not isinstance(header, dict) or not {"format", "class"} <= set(header):
        raise ValueError(f"{path} is damaged: its header is not that of a model of combutab")
    if header["format"] != _FORMAT:
        raise ValueError(
            f"{path} has format {header['format']}, this version of combutab reads {_FORMAT}"
        )
    return header, tensors


def make_model(
    cls: Any, path: str | os.PathLike[str], header: dict[str, Any], device: str | torch.device
) -> Any:
    """The unfitted model that a file's header describes, its parameters checked."""
    if header["class"] != cls.__name__:
        raise ValueError(f"{path} holds a {header['class']}, not a {cls.__name__}")
    unknown = sorted(set(header["params"]) - set(inspect.signature(cls).parameters))
    if unknown:
        raise ValueError(
            f"{path} was written by combutab {header['version']} and has parameters that this "
            f"version ({__version__}) lacks: {unknown}"
        )
    params = {name: decode(value) for name, value in header["params"].items()}
    model = cls(**params, device=device)
    model._validate_params()
    return model


def with_prefix(tensors: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, by the rest of their names."""
    return {n.removeprefix(prefix): a for n, a in tensors.items() if n.startswith(prefix)}


def encode(value: Any, name: str) -> Any:
    """A value as JSON; what JSON lacks becomes a one-key object."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, np.bool_):
        return int(value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, tuple):
        return {"tuple": [encode(v, name) for v in value]}
    if isinstance(value, list):
        return [encode(v, name) for v in value]
    if isinstance(value, dict):
        return {"dict": [[encode(k, name), encode(v, name)] for k, v in value.items()]}
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufUSO":
            raise ValueError(f"{name} has dtype {value.dtype}, which save cannot write")
        dtype = "object" if value.dtype.kind == "O" else value.dtype.str
        return {"array": [encode(v, name) for v in value.tolist()], "dtype": dtype}
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None  # its state is not part of the model
    if isinstance(value, ConstructedNetwork):
        return {"construction": encode(value.to_state(), name)}
    if isinstance(value, functools.partial) and _is_ours(value.func):
        return {
            "partial": value.func.__name__,
            "args": [encode(v, name) for v in value.args],
            "keywords": encode(dict(value.keywords), name),
        }
    if _is_ours(value):
        return {"partial": value.__name__, "args": [], "keywords": {"dict": []}}
    raise ValueError(
        f"{name}={value!r} cannot be saved without code: use a name, a class of "
        "combutab.activations or a functools.partial of one; or pickle the estimator"
    )


def _is_ours(value: Any) -> bool:
    name = getattr(value, "__name__", "")
    return name in activations.__all__ and getattr(activations, name) is value


def decode(value: Any) -> Any:
    """What ``encode`` was given."""
    if isinstance(value, list):
        return [decode(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "tuple" in value:
        return tuple(decode(v) for v in value["tuple"])
    if "dict" in value:
        return {decode(k): decode(v) for k, v in value["dict"]}
    if "array" in value:
        return np.array([decode(v) for v in value["array"]], dtype=np.dtype(value["dtype"]))
    if "construction" in value:
        return ConstructedNetwork.from_state(decode(value["construction"]))
    name = value["partial"]
    if name not in activations.__all__:
        raise ValueError(f"{name!r} is not a class of combutab.activations")
    factory = getattr(activations, name)
    keywords, args = decode(value["keywords"]), [decode(v) for v in value["args"]]
    return functools.partial(factory, *args, **keywords) if keywords or args else factory
