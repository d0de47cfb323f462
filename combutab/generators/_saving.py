"""A fitted generator as a file, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from combutab._device import Precision
from combutab._fields import check_fields, choice, nullable, optional, whole
from combutab._model_files import Saved, check_layers, check_state, decode, encode
from combutab.generators._contract import Generator
from combutab.generators._records import ENDS, make_spans
from combutab.generators.sampling import FREE

_FITTED = {
    "n_iter_": whole(),
    "n_features_in_": whole(1),
    "_seed": whole(0, 2**64),
    "_n_sampled": whole(0, 2**62),
    "_n_rows": optional(nullable(whole())),
    "_ended": optional(choice(*ENDS)),
}


def parts_to_save(model: Generator[Any]) -> tuple[Iterable[str], dict[str, Any]]:
    """Name the fitted attributes of a generator's file, and give what else its header has."""
    return _FITTED, {"shape": encode(dataclasses.asdict(model._shape), "shape")}


def restore(model: Generator[Any], saved: Saved) -> None:
    """Take over what a file has, once its parts are known to belong together."""
    check_fields(saved.fitted, _FITTED, "what was fitted")
    vars(model).update(saved.fitted)
    model._shape = model._make_shape().read(decode(saved.header["shape"]))
    # it may be empty
    model.history_ = saved.history.astype({"member": np.int64, "epoch": np.int64})
    if model._shape.n_members != saved.header["n_members"]:
        raise ValueError(
            f"its header asks for {model._shape.n_members} networks, and for "
            f"{saved.header['n_members']}"
        )
    arrays, model._states = saved.arrays()
    model.encoder_ = model._encoder_class.from_state(arrays, saved.header["encoder"])
    if model.n_features_in_ != model.encoder_.n_features_in_:
        raise ValueError(
            f"n_features_in_ is {model.n_features_in_}, its encoder has "
            f"{model.encoder_.n_features_in_}"
        )
    if hasattr(model.encoder_, "feature_names_in_"):
        model.feature_names_in_ = model.encoder_.feature_names_in_
    _refuse_other_layers(model)
    _check_network(model)


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
