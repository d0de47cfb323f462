"""What a file may say of a fitted estimator, and how its parts must agree."""

from __future__ import annotations

from typing import Any

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
    text,
    whole,
)
from combutab._model_files import ACTIVATION
from combutab.training import make_regression_loss

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
_OWN: dict[str, dict[str, Field]] = {
    "MLPClassifier": {"classes_": kind(np.ndarray), "_multilabel": kind(bool)},
    "MLPRegressor": {
        "_one_dimensional": kind(bool),
        "_trained_loss": pair(text(100), several(number())),
        "_y_mean": kind(np.ndarray),
        "_y_scale": kind(np.ndarray),
    },
}


def check_fitted_fields(name: str, fitted: Any) -> None:
    """Refuse attributes that an estimator of this class does not learn, or learns otherwise.

    Raises
    ------
    ValueError
    """
    fields = FITTED | _OWN[name]
    for each in fitted if isinstance(fitted, dict) else ():
        if each not in fields:
            raise ValueError(f"it sets {each!r}, which no estimator learns")
    check_fields(fitted, fields, "what was fitted")


def check_agreement(model: Any, n_members: int) -> None:
    """Refuse parts of a loaded estimator that do not belong together.

    Raises
    ------
    ValueError
        It names the first of them.
    """
    spec, encoder = model._spec, model.encoder_
    names = getattr(model, "feature_names_in_", None)
    known = getattr(encoder, "feature_names_in_", None)
    found = {
        "n_features_in_": (model.n_features_in_, encoder.n_features_in_),
        "feature_names_in_": (_listed(names), _listed(known)),
        "n_dense": (spec.n_dense, encoder.n_dense_),
        "cardinalities": (spec.cardinalities, encoder.cardinalities_),
        "n_layers_": (model.n_layers_, len(spec.widths)),
        "n_members": (len(model._trained[0]), n_members),
        "progress": (len(model._progress), n_members),
    }
    own = _of_regressor(model) if hasattr(model, "_trained_loss") else _of_classifier(model)
    for name, (there, here) in (found | own).items():
        if there != here:
            raise ValueError(f"{name} is {str(there)[:100]}, the rest of it has {str(here)[:100]}")


def _listed(names: np.ndarray | None) -> list[Any] | None:
    return None if names is None else names.tolist()


def _of_classifier(model: Any) -> dict[str, tuple[Any, Any]]:
    labels = model.classes_.tolist()
    if model.classes_.ndim != 1 or not all(type(v) in (bool, int, float, str) for v in labels):
        raise ValueError("classes_ must be a list of labels")
    n = len(labels)
    several_outputs = model._multilabel or n > 2
    return {
        "classes_": (len(set(labels)), max(n, 1)),
        "n_outputs_": (model.n_outputs_, n if several_outputs else 1),
        "n_outputs": (model._spec.n_outputs, model.n_outputs_),
        "out_activation_": (
            model.out_activation_,
            "logistic" if model._multilabel or n <= 2 else "softmax",
        ),
    }


def _of_regressor(model: Any) -> dict[str, tuple[Any, Any]]:
    name, quantiles = model._trained_loss
    loss = make_regression_loss(name, quantiles)
    mean, scale = model._y_mean, model._y_scale
    whole_line = mean.dtype.kind == scale.dtype.kind == "f" and np.isfinite([mean, scale]).all()
    if not whole_line or not (scale > 0).all():
        raise ValueError("_y_mean and _y_scale must be finite numbers, and scales positive")
    if any(not 0 < q < 1 for q in quantiles) or list(quantiles) != sorted(set(quantiles)):
        raise ValueError(f"quantiles must lie in (0, 1) and increase, got {quantiles}"[:200])
    return {
        "_y_mean": (mean.shape, (model.n_outputs_,)),
        "_y_scale": (scale.shape, (model.n_outputs_,)),
        "n_outputs": (model._spec.n_outputs, model.n_outputs_ * loss.n_per_target),
        "out_activation_": (model.out_activation_, "exp" if name == "poisson" else "identity"),
        "_one_dimensional": (model._one_dimensional and model.n_outputs_ > 1, False),
    }
