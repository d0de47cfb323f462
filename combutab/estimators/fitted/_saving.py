"""A fitted estimator as a file, and back: its declared fields, and how its parts must agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from combutab._device import PRECISIONS
from combutab._fields import (
    Field,
    check_fields,
    choice,
    kind,
    nullable,
    number,
    optional,
    pair,
    several,
    whole,
)
from combutab._model_files import ACTIVATION, Saved, check_layers, check_state, decode, encode
from combutab.estimators.fitted._outcome import LazyNetwork
from combutab.nn import NetworkSpec
from combutab.preprocessing import TableEncoder

if TYPE_CHECKING:
    from combutab.estimators.fitted._fitted import Fitted

_COUNT, _LONG, _ANY = whole(), whole(0, 2**62), number(finite=False)
_CURVE = several(_ANY)
_PROGRESS = {
    "epochs": _COUNT,
    "t": _LONG,
    "best_loss": nullable(_ANY),
    "n_idle": _COUNT,
    "learning_rate": nullable(number()),
}
# all that fit sets besides: a file that names others is refused
_FITTED = {
    "n_features_in_": whole(1),
    "feature_names_in_": optional(kind(np.ndarray)),
    "n_outputs_": whole(1),
    "out_activation_": choice("logistic", "softmax", "identity", "exp"),
    "n_layers_": whole(2),
    "t_": _LONG,
    "n_iter_": _COUNT,
    "loss_": nullable(_ANY),
    "best_loss_": nullable(_ANY),
    "loss_curve_": optional(_CURVE),
    "validation_scores_": nullable(_CURVE),
    "best_validation_score_": nullable(_ANY),
    "_seed": whole(0, 2**64),
    "_trained": pair(several(ACTIVATION, 1), choice(*PRECISIONS)),
    "_made_with": optional(kind(dict)),
    "_seeded": optional(nullable(whole(0, 2**64))),
}


def parts_to_save(model: Fitted) -> tuple[Iterable[str], dict[str, Any]]:
    """Name the fitted attributes of an estimator's file, and give what else its header has."""
    fields = {**_FITTED, **model._fitted_fields}
    names = [name for name in vars(model) if name in fields]
    progress = [
        {name: encode(value, name) for name, value in member.items() if name != "optimizer"}
        for member in model._progress
    ]
    return names, {"shape": model._spec.to_json(), "progress": progress}


def restore(model: Fitted, saved: Saved) -> None:
    """Take over what a file has, once its parts are known to belong together."""
    _check_fitted(model._fitted_fields, saved.fitted)
    model.__dict__.update(saved.fitted)
    model._spec = NetworkSpec.from_json(saved.header["shape"])
    arrays, states = saved.arrays()
    model._states = [{_name_now(n): array for n, array in state.items()} for state in states]
    model.encoder_ = TableEncoder.from_state(arrays, saved.header["encoder"])
    progress = [{n: decode(v) for n, v in member.items()} for member in saved.header["progress"]]
    for member in progress:
        check_fields(member, _PROGRESS, "the progress")
    model._progress = [{**member, "optimizer": {}} for member in progress]
    model.history_ = saved.history
    for state in model._states:
        check_layers(state, model._spec.array_shapes())
    _check_agreement(model, len(model._states))
    model.__dict__.setdefault("_made_with", {})  # files of earlier versions do not say
    model.__dict__.setdefault("_seeded", None)
    model._net = LazyNetwork()
    _check_network(model)


def _check_fitted(own: Mapping[str, Field], fitted: dict[str, Any]) -> None:
    """Refuse attributes that no estimator learns, nor a class with these of its own."""
    fields = {**_FITTED, **own}
    for each in fitted:
        if each not in fields:
            raise ValueError(f"it sets {each!r}, which no estimator learns")
    check_fields(fitted, fields, "what was fitted")


def _name_now(name: str) -> str:
    """Rename a weight of a file that was written before the inputs were a module."""
    return f"inputs.{name}" if name.startswith("embeddings.") else name


def _check_agreement(model: Fitted, n_members: int) -> None:
    """Refuse parts of a loaded estimator that do not belong together, naming the first."""
    spec, encoder = model._spec, model.encoder_
    names = getattr(model, "feature_names_in_", None)
    known = getattr(encoder, "feature_names_in_", None)
    found: dict[str, tuple[object, object]] = {
        "n_features_in_": (model.n_features_in_, encoder.n_features_in_),
        "feature_names_in_": (_listed(names), _listed(known)),
        "n_dense": (spec.n_dense, encoder.n_dense_),
        "cardinalities": (spec.cardinalities, encoder.cardinalities_),
        "n_layers_": (model.n_layers_, len(spec.widths)),
        "n_members": (len(model._trained[0]), n_members),
        "progress": (len(model._progress), n_members),
    }
    for name, (there, here) in {**found, **model._check_loaded()}.items():
        if there != here:
            raise ValueError(f"{name} is {str(there)[:100]}, the rest of it has {str(here)[:100]}")


def _listed(names: np.ndarray | None) -> list[Any] | None:
    return None if names is None else names.tolist()


def _check_network(model: Fitted) -> None:
    """Refuse weights that do not fit the network, or make it answer what is no number."""
    net, spec = model._network(), model._spec
    for i, state in enumerate(model._states):
        check_state(state, net.member_state(i))
    dense = torch.zeros(1, spec.n_dense, dtype=net.dtype)
    codes = torch.zeros(1, len(spec.cardinalities), dtype=torch.int64)
    if not net.predict(dense, codes, 1).isfinite().all():
        raise ValueError("its weights give predictions that are not finite")
