"""Saving without pickle: one safetensors file that holds the arrays, and JSON in its header.

Nothing in the file is code, and loading runs none: parameters are checked by the constructor's
own validation, callables are only those of ``combutab.activations``, by name.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from sklearn.utils.validation import check_is_fitted

import combutab.activations as activations
from combutab._device import resolve_device
from combutab._version import __version__
from combutab.estimators._lazy import LazyNetwork
from combutab.nn import MLPShape
from combutab.preprocessing import TableEncoder

_FORMAT = 1
_KEY = "combutab"  # of the JSON in the file's header


# kept elsewhere in the file, or not part of a model
_NOT_IN_HEADER = {"_states", "_shape", "_net", "_progress", "encoder_", "history_"}
# all that fit sets besides: a file that names others is refused
_FITTED = {
    *("n_features_in_", "feature_names_in_", "classes_", "n_outputs_", "out_activation_"),
    *("n_layers_", "t_", "n_iter_", "loss_", "best_loss_", "loss_curve_", "validation_scores_"),
    *("best_validation_score_", "_seed", "_trained", "_multilabel", "_one_dimensional"),
    *("_trained_loss", "_y_mean", "_y_scale"),
}


def save_estimator(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator; see ``BaseMLP.save``."""
    check_is_fitted(model)
    arrays, encoder = model.encoder_.to_state()
    tensors = {f"encoder.{name}": np.ascontiguousarray(a) for name, a in arrays.items()}
    for i, state in enumerate(model._states):
        for name, array in state.items():
            tensors[f"member.{i}.{name}"] = np.ascontiguousarray(array)
    parameters = model.get_params(deep=False)
    history = model.history_.to_dict("list")
    header = {
        "format": _FORMAT,
        "version": __version__,
        "class": type(model).__name__,
        "params": {
            name: _encode(value, name)
            for name, value in parameters.items()
            if name not in ("callbacks", "device")  # of a process, not of a model
        },
        "fitted": {
            name: _encode(value, name)
            for name, value in vars(model).items()
            if name not in _NOT_IN_HEADER and name not in parameters
        },
        "shape": asdict(model._shape),
        "encoder": encoder,
        "n_members": len(model._states),
        "progress": [
            {name: _encode(value, name) for name, value in member.items() if name != "optimizer"}
            for member in model._progress
        ],
        "history": {name: _encode(column, name) for name, column in history.items()},
    }
    _write(tensors, {_KEY: json.dumps(header)}, Path(path))


def load_estimator(cls: Any, path: str | os.PathLike[str], device: str | torch.device) -> Any:
    """Read a fitted estimator of this class; see ``BaseMLP.load``."""
    header, tensors = _read(Path(path))
    if header["class"] != cls.__name__:
        raise ValueError(f"{path} holds a {header['class']}, not a {cls.__name__}")
    resolve_device(device)
    try:
        return _rebuild(cls, path, header, tensors, device)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{path} is damaged: its header and arrays do not make a {cls.__name__} ({error!r})"
        ) from error


def _rebuild(
    cls: Any,
    path: str | os.PathLike[str],
    header: dict[str, Any],
    tensors: dict[str, np.ndarray],
    device: str | torch.device,
) -> Any:
    unknown = sorted(set(header["params"]) - set(inspect.signature(cls).parameters))
    if unknown:
        raise ValueError(
            f"{path} was written by combutab {header['version']} and has parameters that this "
            f"version ({__version__}) lacks: {unknown}"
        )
    params = {name: _decode(value) for name, value in header["params"].items()}
    model = cls(**params, device=device)
    model._validate_params()
    for name, value in header["fitted"].items():
        if name not in _FITTED:
            raise ValueError(f"{path} sets {name!r}, which no estimator learns")
        setattr(model, name, _decode(value))
    shape = {n: tuple(v) if isinstance(v, list) else v for n, v in header["shape"].items()}
    model._shape = MLPShape(**shape)  # type: ignore[arg-type]
    model.encoder_ = TableEncoder.from_state(_with_prefix(tensors, "encoder."), header["encoder"])
    model._states = [_with_prefix(tensors, f"member.{i}.") for i in range(header["n_members"])]
    model._progress = [
        {**{n: _decode(v) for n, v in member.items()}, "optimizer": {}}
        for member in header["progress"]
    ]
    model.history_ = pd.DataFrame({n: _decode(v) for n, v in header["history"].items()})
    model._net = LazyNetwork()
    model._network()  # names and shapes fit the network, or it says which does not
    return model


def saved_class(path: str | os.PathLike[str]) -> str:
    """The name of the class whose estimator a file holds."""
    header, _ = _read(Path(path), arrays=False)
    return str(header["class"])


def _with_prefix(tensors: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {n.removeprefix(prefix): a for n, a in tensors.items() if n.startswith(prefix)}


def _write(tensors: dict[str, np.ndarray], metadata: dict[str, str], path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder {folder} does not exist; create it first")
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=path.name, suffix=".part")
    os.close(handle)
    try:
        save_file(tensors, temporary, metadata)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp's files are private; a model is as any file
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _read(path: Path, *, arrays: bool = True) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
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


def _encode(value: Any, name: str) -> Any:
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
        return {"tuple": [_encode(v, name) for v in value]}
    if isinstance(value, list):
        return [_encode(v, name) for v in value]
    if isinstance(value, dict):
        return {"dict": [[_encode(k, name), _encode(v, name)] for k, v in value.items()]}
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufUSO":
            raise ValueError(f"{name} has dtype {value.dtype}, which save cannot write")
        dtype = "object" if value.dtype.kind == "O" else value.dtype.str
        return {"array": [_encode(v, name) for v in value.tolist()], "dtype": dtype}
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None  # its state is not part of the model
    if isinstance(value, functools.partial) and _is_ours(value.func):
        return {
            "partial": value.func.__name__,
            "args": [_encode(v, name) for v in value.args],
            "keywords": _encode(dict(value.keywords), name),
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


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "tuple" in value:
        return tuple(_decode(v) for v in value["tuple"])
    if "dict" in value:
        return {_decode(k): _decode(v) for k, v in value["dict"]}
    if "array" in value:
        return np.array([_decode(v) for v in value["array"]], dtype=np.dtype(value["dtype"]))
    name = value["partial"]
    if name not in activations.__all__:
        raise ValueError(f"{name!r} is not a class of combutab.activations")
    factory = getattr(activations, name)
    keywords, args = _decode(value["keywords"]), [_decode(v) for v in value["args"]]
    return functools.partial(factory, *args, **keywords) if keywords or args else factory
