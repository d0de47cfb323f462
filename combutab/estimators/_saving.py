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
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from sklearn.utils.validation import check_is_fitted

import combutab.activations as activations
from combutab._version import __version__
from combutab.estimators._lazy import LazyNetwork
from combutab.nn import MLPShape
from combutab.preprocessing import TableEncoder

_FORMAT = 1
_KEY = "combutab"  # of the JSON in the file's header


class SavingMixin:
    """``save`` and ``load`` for fitted estimators."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file (safetensors with JSON in its header).

        The file holds no training data and no optimiser state, and loads on any device. It is
        written beside its place and moved there, so a failure leaves no half-written file.

        Raises
        ------
        ValueError
            If a parameter cannot be written without code (a custom activation, say).
        """
        check_is_fitted(self)
        arrays, encoder = self.encoder_.to_state()
        tensors = {f"encoder.{name}": np.ascontiguousarray(a) for name, a in arrays.items()}
        for i, state in enumerate(self._states):
            for name, array in state.items():
                tensors[f"member.{i}.{name}"] = np.ascontiguousarray(array)
        fitted = {
            name: _encode(value, name)
            for name, value in vars(self).items()
            if name not in _NOT_IN_HEADER
            and not name.startswith("__")
            and name not in self.get_params(deep=False)
        }
        header = {
            "format": _FORMAT,
            "version": __version__,
            "class": type(self).__name__,
            "params": {
                name: _encode(value, name)
                for name, value in self.get_params(deep=False).items()
                if name not in ("callbacks", "device")  # of a process, not of a model
            },
            "fitted": fitted,
            "shape": asdict(self._shape),
            "encoder": encoder,
            "n_members": len(self._states),
        }
        _write(tensors, {_KEY: json.dumps(header)}, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | torch.device = "auto") -> Self:
        """Read an estimator that ``save`` wrote.

        Parameters
        ----------
        path : str or path
        device : str or torch.device, default="auto"
            Where it predicts; independent of where it was trained.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is not a model of this class.
        """
        header, tensors = _read(Path(path))
        if header["class"] != cls.__name__:
            raise ValueError(f"{path} holds a {header['class']}, not a {cls.__name__}")
        known = set(inspect.signature(cls).parameters)
        unknown = sorted(set(header["params"]) - known)
        if unknown:
            raise ValueError(
                f"{path} was written by combutab {header['version']} and has parameters that this "
                f"version ({__version__}) lacks: {unknown}"
            )
        params = {name: _decode(value) for name, value in header["params"].items()}
        model = cls(**params, device=device)
        model._validate_params()
        for name, value in header["fitted"].items():
            setattr(model, name, _decode(value))
        shape = header["shape"]
        model._shape = MLPShape(
            **{n: tuple(v) if isinstance(v, list) else v for n, v in shape.items()}
        )
        model.encoder_ = TableEncoder.from_state(
            {n.removeprefix("encoder."): a for n, a in tensors.items() if n.startswith("encoder.")},
            header["encoder"],
        )
        model._states = []
        for i in range(header["n_members"]):
            prefix = f"member.{i}."
            model._states.append(
                {n.removeprefix(prefix): a for n, a in tensors.items() if n.startswith(prefix)}
            )
        model._net = LazyNetwork()
        model._network()  # names and shapes fit the network, or it says which does not
        return model


_NOT_IN_HEADER = {"_states", "_shape", "_net", "_progress", "encoder_", "history_"}


def load(path: str | os.PathLike[str], *, device: str | torch.device = "auto") -> Any:
    """Read any estimator that ``save`` wrote; the file says which it is.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, or it is not a model of this library.
    """
    from combutab.estimators._classifier import MLPClassifier
    from combutab.estimators._regressor import MLPRegressor

    header, _ = _read(Path(path), arrays=False)
    classes: dict[str, type[SavingMixin]] = {
        "MLPClassifier": MLPClassifier,
        "MLPRegressor": MLPRegressor,
    }
    if header["class"] not in classes:
        raise ValueError(f"{path} holds a {header['class']}, which is none of {sorted(classes)}")
    return classes[header["class"]].load(path, device=device)


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
    header = json.loads(metadata[_KEY])
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
