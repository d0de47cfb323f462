"""Declared fields of a saved estimator, and how its parts must agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

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
from combutab._model_files import ACTIVATION

if TYPE_CHECKING:
    from combutab.estimators.fitted._fitted import Fitted

_COUNT, _LONG, _ANY = whole(), whole(0, 2**62), number(finite=False)
_CURVE = several(_ANY)
COLUMN = several(_ANY)  # of the history
PROGRESS = {
    "epochs": _COUNT,
    "t": _LONG,
    "best_loss": nullable(_ANY),
    "n_idle": _COUNT,
    "learning_rate": nullable(number()),
}
# all that fit sets besides: a file that names others is refused
FITTED = {
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


def check_fitted_fields(own: Mapping[str, Field], fitted: Any) -> None:
    """Refuse attributes that no estimator learns, nor a class with these of its own."""
    fields = {**FITTED, **own}
    for each in fitted if isinstance(fitted, dict) else ():
        if each not in fields:
            raise ValueError(f"it sets {each!r}, which no estimator learns")
    check_fields(fitted, fields, "what was fitted")


def check_agreement(model: Fitted, n_members: int) -> None:
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
