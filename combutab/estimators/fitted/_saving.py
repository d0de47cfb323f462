"""A fitted estimator as a file, and back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from combutab._device import resolve_device
from combutab._fields import check_fields
from combutab._model_files import (
    check_finite,
    check_layers,
    check_state,
    decode,
    encode,
    make_model,
    model_header,
    read_model,
    split_members,
    write_model,
)
from combutab._safe_files import reading
from combutab.estimators.fitted._loaded import (
    COLUMN,
    PROGRESS,
    check_agreement,
    check_fitted_fields,
)
from combutab.estimators.fitted._outcome import LazyNetwork
from combutab.nn import NetworkSpec
from combutab.preprocessing import TableEncoder

if TYPE_CHECKING:
    from combutab.estimators.fitted._fitted import Fitted

F = TypeVar("F", bound="Fitted")

# kept elsewhere in the file, or not part of a model
_NOT_IN_HEADER = {"_states", "_spec", "_net", "_progress", "encoder_", "history_"}


def save_estimator(model: Fitted, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator; see ``Weights.save``."""
    check_is_fitted(model)
    arrays, encoder = model.encoder_.to_state()
    tensors = {f"encoder.{name}": array for name, array in arrays.items()}
    for i, state in enumerate(model._states):
        for name, array in state.items():
            tensors[f"member.{i}.{name}"] = array
    check_finite(tensors)
    parameters = model.get_params(deep=False)
    history = {str(name): column.tolist() for name, column in model.history_.items()}
    header = {
        **model_header(model),
        "fitted": {
            name: encode(value, name)
            for name, value in vars(model).items()
            if name not in _NOT_IN_HEADER and name not in parameters
        },
        "shape": model._spec.to_json(),
        "encoder": encoder,
        "n_members": len(model._states),
        "progress": [
            {name: encode(value, name) for name, value in member.items() if name != "optimizer"}
            for member in model._progress
        ],
        "history": {name: encode(column, name) for name, column in history.items()},
    }
    write_model(path, header, tensors)


def load_estimator(cls: type[F], path: str | os.PathLike[str], device: str | torch.device) -> F:
    """Read a fitted estimator of this class; see ``Weights.load``."""
    header, tensors = read_model(path)
    resolve_device(device)
    with reading(path, cls.__name__):
        return _rebuild(cls, path, header, tensors, device)


def _rebuild(
    cls: type[F],
    path: str | os.PathLike[str],
    header: dict[str, Any],
    tensors: dict[str, np.ndarray],
    device: str | torch.device,
) -> F:
    model: F = make_model(cls, path, header, device)
    fitted = {name: decode(value) for name, value in header["fitted"].items()}
    check_fitted_fields(cls._fitted_fields, fitted)
    model.__dict__.update(fitted)
    model._spec = NetworkSpec.from_json(header["shape"])
    arrays, states = split_members(tensors, header["n_members"])
    model._states = [{_name_now(n): array for n, array in state.items()} for state in states]
    model.encoder_ = TableEncoder.from_state(arrays, header["encoder"])
    progress = [{n: decode(v) for n, v in member.items()} for member in header["progress"]]
    for member in progress:
        check_fields(member, PROGRESS, "the progress")
    model._progress = [{**member, "optimizer": {}} for member in progress]
    history = {n: decode(v) for n, v in header["history"].items()}
    check_fields(history, dict.fromkeys(history, COLUMN), "the history")
    model.history_ = pd.DataFrame(history)
    for state in model._states:
        check_layers(state, model._spec.array_shapes())
    check_agreement(model, len(model._states))
    model.__dict__.setdefault("_made_with", {})  # files of earlier versions do not say
    model.__dict__.setdefault("_seeded", None)
    model._net = LazyNetwork()
    _check_network(model)
    return model


def _name_now(name: str) -> str:
    """Rename a weight of a file that was written before the inputs were a module."""
    return f"inputs.{name}" if name.startswith("embeddings.") else name


def _check_network(model: Fitted) -> None:
    """Refuse weights that do not fit the network, or make it answer what is no number."""
    net, spec = model._network(), model._spec
    for i, state in enumerate(model._states):
        check_state(state, net.member_state(i))
    dense = torch.zeros(1, spec.n_dense, dtype=net.dtype)
    codes = torch.zeros(1, len(spec.cardinalities), dtype=torch.int64)
    if not net.predict(dense, codes, 1).isfinite().all():
        raise ValueError("its weights give predictions that are not finite")
