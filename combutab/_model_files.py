"""Files of fitted models without pickle: safetensors for arrays, JSON in the header for the rest.

A file contains no code, and loading runs none. Parameters are validated as by the constructor, and
callables are names in ``combutab.activations``.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

import combutab.activations as activations
from combutab._version import __version__
from combutab.constructions import ConstructedNetwork
from combutab.core.device import resolve_device
from combutab.core.files import (
    MODEL_FORMAT,
    Field,
    check_fields,
    check_parameters,
    check_writable,
    kind,
    number,
    read_model,
    reading,
    several,
    text,
    whole,
    write_model,
)
from combutab.core.rng import seed_from
from combutab.core.state import add_kind, pack, unpack
from combutab.core.world import broadcast, current

_LARGEST = 2**16  # whole number that an activation is made with
_MOST_EMPTY = 2**10  # networks of a table that has only constants, which are nothing
_COLUMN = several(number(finite=False))  # of the history
_CLASSES: dict[str, type[Loadable]] = {}
ACTIVATION = Field(
    "an activation of this library",
    lambda v: (
        (type(v) is str and len(v) <= 100)
        or isinstance(v, functools.partial)
        or (isinstance(v, type) and issubclass(v, nn.Module))
    ),
)


@dataclass(frozen=True)
class Saved:
    """The content of a model file except its parameters; header and tensors are not decoded."""

    fitted: dict[str, Any]
    history: pd.DataFrame
    header: dict[str, Any]
    tensors: dict[str, np.ndarray]

    def arrays(self) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
        """Split the arrays into the encoder's and each network's, which are all that there are."""
        n_members = self.header["n_members"]
        check_finite(self.tensors)
        if type(n_members) is not int or n_members < 1:
            raise ValueError(f"n_members is {str(n_members)[:20]}, there must be one at least")
        if n_members > max(len(self.tensors), _MOST_EMPTY):
            raise ValueError(
                f"its header asks for {str(n_members)[:20]} networks, it has {len(self.tensors)} "
                "arrays"
            )
        encoder: dict[str, np.ndarray] = {}
        members: list[dict[str, np.ndarray]] = [{} for _ in range(n_members)]
        parts = {"encoder": encoder} | {f"member.{i}": member for i, member in enumerate(members)}
        for name, array in self.tensors.items():
            part, _, key = name.partition(".")
            if part == "member":
                number, _, key = key.partition(".")
                part = f"member.{number}"
            if part not in parts:
                raise ValueError(f"the array {name[:100]!r} is of none of its {n_members} networks")
            parts[part][key] = array
        return encoder, members


class Loadable(ABC):
    """A model that can be saved to a file and loaded from it."""

    encoder_: Any
    history_: pd.DataFrame
    _states: list[dict[str, np.ndarray]]  # of the members' networks

    @abstractmethod
    def _to_save(self) -> tuple[Iterable[str], dict[str, Any]]:
        """Name the fitted attributes that a file has, and give what else its header is to have."""

    @abstractmethod
    def _restore(self, saved: Saved) -> None:
        """Restore the fitted state from a file; raises ValueError if its parts do not match."""

    def _file_content(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The header and the arrays of the file of a fitted model."""
        head = model_header(self)  # first: its errors name a parameter
        arrays, encoder = self.encoder_.to_state()
        tensors = {f"encoder.{name}": array for name, array in arrays.items()}
        for i, state in enumerate(self._states):
            tensors |= {f"member.{i}.{name}": array for name, array in state.items()}
        check_finite(tensors)
        names, parts = self._to_save()
        history = {str(name): column.tolist() for name, column in self.history_.items()}
        header = {
            **head,
            "fitted": {name: encode(getattr(self, name), name) for name in names},
            "encoder": encoder,
            "n_members": len(self._states),
            "history": {name: encode(column, name) for name, column in history.items()},
            **parts,
        }
        return header, tensors

    @abstractmethod
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file; the docstring of the class describes its content."""
        write_model(path, *file_content(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | torch.device = "auto") -> Self:
        """Read a model of this class that ``save`` wrote; no code of the file's is run.

        Parameters
        ----------
        path : str or path
        device : str or torch.device, default="auto"
            Where it computes; independent of where it was trained.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is not a model of this class.
        """
        header, tensors = read_model(path)
        if "checkpoint" in header:
            raise ValueError(
                f"{path} is a checkpoint of a training, not a model: fit(..., checkpoint=) goes on "
                "from it"
            )
        resolve_device(device)
        with reading(path, cls.__name__):
            return restore(cls, path, header, tensors, device)


L = TypeVar("L", bound=Loadable)
V = TypeVar("V")


def restore(
    cls: type[L],
    path: str | os.PathLike[str],
    header: dict[str, Any],
    tensors: dict[str, np.ndarray],
    device: str | torch.device,
) -> L:
    """The fitted model of a header and arrays, as from `file_content`."""
    model: L = make_model(cls, path, header, device)
    fitted = unpack(header["fitted"])
    history = unpack(header["history"])
    check_fields(history, dict.fromkeys(history, _COLUMN), "the history")
    model._restore(Saved(fitted, pd.DataFrame(history), header, tensors))
    return model


def loadable(cls: type[L]) -> type[L]:
    """Register a class for ``load``, and generators for the command line."""
    _CLASSES[cls.__name__] = cls
    return cls


def loadable_classes() -> list[type[Loadable]]:
    """All registered classes, which are those of imported modules."""
    return list(_CLASSES.values())


def load(path: str | os.PathLike[str], *, device: str | torch.device = "auto") -> Any:
    """Load a fitted model from a file that its ``save`` method wrote.

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
    package = importlib.import_module("combutab")
    if name not in _CLASSES and name in package.__all__:
        getattr(package, name)  # importing the class registers it
    if name not in _CLASSES:
        raise ValueError(f"{path} holds a {name}, which is none of {sorted(_CLASSES)}")
    return _CLASSES[name].load(path, device=device)


def model_header(model: Any) -> dict[str, Any]:
    """The header of a model file: format, version, class and parameters."""
    return {
        "format": MODEL_FORMAT,
        "version": __version__,
        "class": type(model).__name__,
        "params": {
            name: encode(value, name)
            for name, value in model.get_params(deep=False).items()
            # of a process or of the table that was fitted, not of a model
            if name not in ("callbacks", "device", "validation_split")
        },
    }


def file_content(model: Loadable) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of the file that a fitted model's ``save`` writes."""
    check_is_fitted(model)
    return model._file_content()


def check_finite(tensors: dict[str, np.ndarray]) -> None:
    """Refuse arrays with numbers that are not finite."""
    for name, array in tensors.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"the array {name} has numbers that are not finite")


def check_layers(state: dict[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse weights whose shapes differ from the header, before a network is built."""
    for name, shape in shapes.items():
        actual = state[name].shape if name in state else None
        if actual != shape:
            raise ValueError(
                f"its header asks for weights {name} of shape {shape}, and the state does not fit "
                f"the network: it has {'none' if actual is None else actual}"
            )


def check_state(state: Mapping[str, np.ndarray], loaded: dict[str, torch.Tensor]) -> None:
    """Refuse arrays that a network has converted on loading."""
    for name, tensor in loaded.items():
        array, loaded_array = state[name], tensor.cpu().numpy()
        if array.shape != loaded_array.shape or array.dtype != loaded_array.dtype:
            raise ValueError(
                f"{name} is {array.dtype}{list(array.shape)}, the network has "
                f"{loaded_array.dtype}{list(loaded_array.shape)}"
            )


def make_model(
    cls: Any, path: str | os.PathLike[str], header: dict[str, Any], device: str | torch.device
) -> Any:
    """The unfitted model of a file header, with checked parameters."""
    if header["class"] != cls.__name__:
        raise ValueError(f"{path} holds a {header['class']}, not a {cls.__name__}")
    unknown = sorted(set(header["params"]) - set(inspect.signature(cls).parameters))
    if unknown:
        raise ValueError(
            f"{path} was written by combutab {header['version']} and has parameters that this "
            f"version ({__version__}) lacks: {unknown}"
        )
    params = unpack(header["params"])
    model = cls(**params, device=device)
    check_parameters(model)
    return model


def with_prefix(tensors: Mapping[str, V], prefix: str) -> dict[str, V]:
    """The arrays whose names have a prefix, by their names without it."""
    return {n.removeprefix(prefix): a for n, a in tensors.items() if n.startswith(prefix)}


# ---- Parameters as JSON: the kinds of `core.state`, and activations by name ----------------------


def encode(value: Any, name: str) -> Any:
    """A parameter or fitted attribute as JSON; raises ValueError with its name if impossible.

    Ranges, sets, and columns of pandas become lists.
    """
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)  # the same bytes in each process
    elif isinstance(value, range | pd.Index | pd.Series):
        value = list(value)
    try:
        return pack(value)
    except TypeError as error:
        if isinstance(value, np.ndarray):
            raise ValueError(f"{name} cannot be saved: {error}") from error
        raise ValueError(
            f"{name}={value!r} cannot be saved, a {type(value).__name__}: a model file has "
            "numbers, text, dates, lists, dicts, classes of combutab.activations and partial "
            "functions of these, but no other code; convert it, or pickle the estimator"
        ) from error


def _write_activation(factory: type) -> str:
    name = factory.__name__
    if name not in activations.__all__ or getattr(activations, name) is not factory:
        raise TypeError(f"{factory!r} is not a class of combutab.activations")
    return name


def _read_activation(name: str) -> type[nn.Module]:
    factory = getattr(activations, name) if name in activations.__all__ else None
    if not isinstance(factory, type) or not issubclass(factory, nn.Module):
        raise ValueError(f"{name!r} is not a class of combutab.activations")
    return factory


def _read_partial(packed: list[Any]) -> functools.partial[nn.Module]:
    factory, args, keywords = packed
    if not isinstance(factory, type):
        raise ValueError(f"{str(factory)[:100]!r} is not a class of combutab.activations")
    _refuse_large([*args, keywords], factory.__name__)
    return functools.partial(factory, *args, **keywords)


def _refuse_large(value: Any, name: str) -> None:
    """Refuse arguments for which an activation would need much memory."""
    if isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            _refuse_large(item, name)
    elif isinstance(value, int | float) and not -_LARGEST <= value <= _LARGEST:
        raise ValueError(f"{name} is made with {str(value)[:20]}, at most {_LARGEST} is read")


add_kind(type, "activation", _write_activation, _read_activation)
add_kind(functools.partial, "partial", lambda p: [p.func, list(p.args), p.keywords], _read_partial)
add_kind(
    ConstructedNetwork,
    "construction",
    ConstructedNetwork.to_state,
    ConstructedNetwork.from_state,
)
add_kind(torch.device, "device", str, torch.device)


# ---- Checkpoints: files from which a training continues ------------------------------------------

SECONDS = 30.0  # minimum between two writes


_PROGRESS = {"seed": whole(0, 2**64), "table": text(64), "parts": kind(dict)}
_ROWS = 1 << 16  # of a table that are hashed at once, to save memory


class Checkpoint:
    """A file to which a training is written regularly, and from which it continues.

    It is complete at any time. All random numbers are functions of the ``seed``, the epoch and the
    step, so a continued training has the same result as an uninterrupted one. The model is
    unfitted, and its parameters are part of the file. If ranks share a fit, only the first one
    reads and writes, and sends the content to the others.

    Parameters
    ----------
    path : path
    model : estimator
        Unfitted.
    free : collection of str
        Parameters that may differ between the fits of one training.

    Raises ValueError if the file is not a checkpoint, or one of another training. Raises OSError if
    no file can be written there.
    """

    def __init__(self, path: str | os.PathLike[str], model: Any, free: Collection[str]) -> None:
        self.path = Path(path)
        self._header = model_header(model)
        self.written = -np.inf  # after the first epoch it is written at once
        self.is_changed = False
        self._is_mine = current().number == 0
        content = broadcast(self._read(free) if self._is_mine else None)
        state, self.arrays = content or ({}, {})
        self.seed: int = state["seed"] if state else seed_from(model.random_state)
        self._table: str | None = state.get("table")
        self.parts: dict[str, Any] = state.get("parts", {})

    def _read(self, free: Collection[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """Read the file if it exists; otherwise check that it can be written."""
        folder = self.path.parent
        if not folder.is_dir():
            raise FileNotFoundError(f"the folder {folder} does not exist; create it first")
        try:  # not after half a minute of training
            check_writable(folder)
        except OSError as error:
            raise OSError(f"no file can be written in {folder}: {error.strerror}") from error
        if not self.path.exists():
            return None
        header, arrays = read_model(self.path)
        if "checkpoint" not in header:
            raise ValueError(f"{self.path} is a model, not a checkpoint; choose another file")
        with reading(self.path, "checkpoint"):
            check_fields(header["checkpoint"], _PROGRESS, "the checkpoint")
            self._refuse_other(header, free)
        return header["checkpoint"], arrays

    def _refuse_other(self, header: dict[str, Any], free: Collection[str]) -> None:
        for name in ("class", "version"):
            if header[name] != self._header[name]:
                raise ValueError(
                    f"{self.path} is of {name} {header[name]!r}, this training is of "
                    f"{self._header[name]!r}; remove the file to start again"
                )
        for name, value in self._header["params"].items():
            saved_value, new_value = unpack(header["params"].get(name)), unpack(value)
            if isinstance(saved_value, list | tuple) and isinstance(new_value, list | tuple):
                saved_value, new_value = list(saved_value), list(new_value)
            if name not in free and not _same_parameter(saved_value, new_value):
                raise ValueError(
                    f"{self.path} is of a training with {name}={saved_value!r}, this one has "
                    f"{name}={new_value!r}; remove the file to start again"
                )

    def begin(self, words: str, tables: Iterable[torch.Tensor | None]) -> None:
        """Identify the data by text and tensors; raises ValueError if the file has other data.

        The file contains their SHA-256, from which rows cannot be computed.
        """
        digest = hashlib.sha256(words.encode())
        for tensor in tables:
            digest.update(str(None if tensor is None else tuple(tensor.shape)).encode())
            for part in () if tensor is None else tensor.split(_ROWS):
                digest.update(part.cpu().contiguous().numpy().tobytes())
        table = digest.hexdigest()
        if self._table not in (None, table):
            raise ValueError(
                f"{self.path} is of a training on another table or kind of device; remove the "
                "file to start again"
            )
        self._table = table

    def part(self, prefix: str = "") -> CheckpointPart:
        """The part of one stack of the training, whose arrays have this prefix."""
        return CheckpointPart(self, prefix)

    def write(self) -> None:
        """Write the last state, unless it is written already."""
        if not self.is_changed:
            return
        state = {"seed": self.seed, "table": self._table, "parts": self.parts}
        try:
            if self._is_mine:
                write_model(self.path, {**self._header, "checkpoint": state}, self.arrays)
        except Exception as error:  # a full disk, say: the training itself is not lost
            warnings.warn(
                f"the training could not be written to {self.path}, and goes on: {error}",
                stacklevel=2,
            )
        self.is_changed, self.written = False, time.monotonic()


Restore = Callable[[dict[str, np.ndarray], dict[str, Any]], int]


@dataclass(frozen=True)
class CheckpointPart:
    """The part of a stack in the checkpoint of its training."""

    file: Checkpoint
    prefix: str

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the last write."""
        return time.monotonic() - self.file.written >= SECONDS

    def load(self, restore: Restore) -> int:
        """Restore the part, if it exists; returns its number of epochs."""
        if self.prefix not in self.file.parts:
            return 0
        with reading(self.file.path, "checkpoint of this training"):
            arrays = with_prefix(self.file.arrays, self.prefix)
            return restore(arrays, self.file.parts[self.prefix])

    def set_state(self, arrays: Mapping[str, np.ndarray], progress: Mapping[str, Any]) -> None:
        """Set the state of the part, and write it if a write is due."""
        file, prefix = self.file, self.prefix
        remaining = {n: array for n, array in file.arrays.items() if not n.startswith(prefix)}
        file.arrays = remaining | {prefix + name: array for name, array in arrays.items()}
        file.parts[prefix], file.is_changed = progress, True
        if self.is_due:
            file.write()

    def write(self) -> None:
        """Write the last state, unless it is written already."""
        self.file.write()


def _same_parameter(saved_value: Any, new_value: Any) -> bool:
    arrays = np.ndarray | pd.Series | pd.Index
    if isinstance(saved_value, arrays) or isinstance(new_value, arrays):
        return np.array_equal(saved_value, new_value)
    return bool(saved_value == new_value)
