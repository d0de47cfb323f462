"""A fitted generator as a file, and back."""

from __future__ import annotations

import dataclasses
import itertools
import os
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from combutab._device import resolve_device
from combutab._model_files import (
    decode,
    encode,
    make_model,
    model_header,
    read_model,
    with_prefix,
    write_model,
)
from combutab.generators._records import SampledShape
from combutab.preprocessing import ModeEncoder

_FITTED = ("n_iter_", "n_features_in_", "_seed", "_n_sampled")


def save_generator(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted generator; see ``BaseGenerator.save``."""
    check_is_fitted(model)
    arrays, encoder = model.encoder_.to_state()
    tensors = {f"encoder.{name}": array for name, array in arrays.items()}
    for i, state in enumerate(model._states):
        tensors |= {f"member.{i}.{name}": array for name, array in state.items()}
    history = model.history_.to_dict("list")
    header = {
        **model_header(model),
        "fitted": {name: encode(getattr(model, name), name) for name in _FITTED},
        "shape": encode(dataclasses.asdict(model._shape), "shape"),
        "encoder": encoder,
        "n_members": len(model._states),
        "history": {name: encode(column, name) for name, column in history.items()},
    }
    write_model(path, header, tensors)


def load_generator(cls: Any, path: str | os.PathLike[str], device: str | torch.device) -> Any:
    """Read a fitted generator of this class; see ``BaseGenerator.load``."""
    header, tensors = read_model(path)
    if "checkpoint" in header:
        raise ValueError(
            f"{path} is a checkpoint of a training, not a model: fit(..., checkpoint=) goes on "
            "from it"
        )
    resolve_device(device)
    try:
        model = make_model(cls, path, header, device)
        for name in _FITTED:
            setattr(model, name, decode(header["fitted"][name]))
        model._shape = SampledShape(**decode(header["shape"]))
        model.encoder_ = ModeEncoder.from_state(with_prefix(tensors, "encoder."), header["encoder"])
        model._states = [with_prefix(tensors, f"member.{i}.") for i in range(header["n_members"])]
        history = pd.DataFrame({n: decode(v) for n, v in header["history"].items()})
        model.history_ = history.astype({"member": np.int64, "epoch": np.int64})  # it may be empty
        if hasattr(model.encoder_, "feature_names_in_"):
            model.feature_names_in_ = model.encoder_.feature_names_in_
        _refuse_too_few(model, path)
        model._sampler()  # names and shapes fit the network, or it says which does not
    except (LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"{path} is damaged: its header and arrays do not make a {cls.__name__} ({error!r})"
        ) from error
    return model


def _refuse_too_few(model: Any, path: str | os.PathLike[str]) -> None:
    """Refuse a header that asks for a network larger than the arrays, before it is built."""
    shape = model._shape
    dims = [shape.embedding_dim, *shape.widths]
    least = max(dims[0], sum(a * b for a, b in itertools.pairwise(dims)))
    there = min((sum(a.size for a in state.values()) for state in model._states), default=0)
    if model.encoder_.layout_.spans and (least > there or shape.n_members != len(model._states)):
        raise ValueError(
            f"{path} is damaged: its header asks for {shape.n_members} networks of at least "
            f"{least} weights, it has {len(model._states)} of {there}"
        )
