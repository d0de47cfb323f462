"""A fitted generator as a file, and back."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from combutab._device import Precision, resolve_device
from combutab._fields import check_fields, number, several, whole
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
from combutab.generators._contract import Generator
from combutab.generators._records import make_spans
from combutab.generators.sampling import FREE

_LONG = whole(0, 2**62)
_FITTED = {
    "n_iter_": whole(),
    "n_features_in_": whole(1),
    "_seed": whole(0, 2**64),
    "_n_sampled": _LONG,
}
_COLUMN = several(number(finite=False))

G = TypeVar("G", bound=Generator[Any])


def save_generator(model: Generator[Any], path: str | os.PathLike[str]) -> None:
    """Write a fitted generator; see ``BaseGenerator.save``."""
    check_is_fitted(model)
    arrays, encoder = model.encoder_.to_state()
    tensors = {f"encoder.{name}": array for name, array in arrays.items()}
    for i, state in enumerate(model._states):
        tensors |= {f"member.{i}.{name}": array for name, array in state.items()}
    check_finite(tensors)
    history = model.history_.to_dict("list")
    header = {
        **model_header(model),
        "fitted": {name: encode(getattr(model, name), name) for name in _FITTED},
        "shape": encode(dataclasses.asdict(model._shape), "shape"),
        "encoder": encoder,
        "n_members": len(model._states),
        "history": {name: encode(column, str(name)) for name, column in history.items()},
    }
    write_model(path, header, tensors)


def load_generator(cls: type[G], path: str | os.PathLike[str], device: str | torch.device) -> G:
    """Read a fitted generator of this class; see ``BaseGenerator.load``."""
    header, tensors = read_model(path)
    if "checkpoint" in header:
        raise ValueError(
            f"{path} is a checkpoint of a training, not a model: fit(..., checkpoint=) goes on "
            "from it"
        )
    resolve_device(device)
    with reading(path, cls.__name__):
        return _rebuild(cls, path, header, tensors, device)


def _rebuild(
    cls: type[G],
    path: str | os.PathLike[str],
    header: dict[str, Any],
    tensors: dict[str, np.ndarray],
    device: str | torch.device,
) -> G:
    model: G = make_model(cls, path, header, device)
    fitted = {name: decode(value) for name, value in header["fitted"].items()}
    check_fields(fitted, _FITTED, "what was fitted")
    vars(model).update(fitted)
    model._shape = model._make_shape().read(decode(header["shape"]))
    history = {n: decode(v) for n, v in header["history"].items()}
    check_fields(history, dict.fromkeys(history, _COLUMN), "the history")
    # it may be empty
    model.history_ = pd.DataFrame(history).astype({"member": np.int64, "epoch": np.int64})
    if model._shape.n_members != header["n_members"]:
        raise ValueError(
            f"its header asks for {model._shape.n_members} networks, and for {header['n_members']}"
        )
    arrays, model._states = split_members(tensors, header["n_members"])
    model.encoder_ = model._encoder_class.from_state(arrays, header["encoder"])
    if model.n_features_in_ != model.encoder_.n_features_in_:
        raise ValueError(
            f"n_features_in_ is {model.n_features_in_}, its encoder has "
            f"{model.encoder_.n_features_in_}"
        )
    if hasattr(model.encoder_, "feature_names_in_"):
        model.feature_names_in_ = model.encoder_.feature_names_in_
    _refuse_other_layers(model)
    _check_network(model)
    return model


def _refuse_other_layers(model: Generator[Any]) -> None:
    """Refuse a header that asks for other networks than the arrays are of, before they are made."""
    shape = model._shape
    spans = make_spans(model.encoder_.layout_, torch.device("cpu"), Precision(shape.precision))
    if not spans.n_spans:  # all columns are constant
        if any(model._states):
            raise ValueError("it has weights, but no column that is not constant")
        return
    layers = shape.linear_shapes(spans)
    for state in model._states:
        check_layers(state, layers)


def _check_network(model: Generator[Any]) -> None:
    """Refuse weights that do not fit the network, or rows that cannot be made."""
    sampler = model._sampler()
    if sampler.network is not None:
        for i, state in enumerate(model._states):
            check_state(state, sampler.network.member_state(i))
    free = np.full(1, FREE)
    model.encoder_.decode(*sampler.generate(1, free, free, 0))
