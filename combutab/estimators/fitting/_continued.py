"""Settings that warm_start and partial_fit cannot change: those that made network and encoding."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
import torch

from combutab.constructions import ConstructedNetwork
from combutab.estimators.fitting._stacks import activation_key

# Parameters of the training, which take effect at once. All others are settled by the first fit.
_OF_TRAINING = {
    *("solver", "alpha", "batch_size", "learning_rate", "learning_rate_init", "power_t"),
    *("max_iter", "shuffle", "random_state", "tol", "verbose", "warm_start", "momentum"),
    *("nesterovs_momentum", "early_stopping", "validation_fraction", "beta_1", "beta_2"),
    *("early_stopping_scoring", "learning_rate_factors", "regularization_schedule"),
    *("epsilon", "n_iter_no_change", "max_fun", "dropout", "weight_decay", "max_grad_norm"),
    *("device", "precision", "track_metric", "callbacks", "class_weight", "label_smoothing"),
    *("calibration", "bagging"),
}


def settled(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a fit settles, as values that can be compared and written to a file."""
    return {n: _plain(v, n) for n, v in parameters.items() if n not in _OF_TRAINING}


def check_settled(
    wanted: Mapping[str, Any], made: Mapping[str, Any], n_wanted: int, n_made: int
) -> None:
    """Refuse to go on from a fit with settled parameters, or members, that it could not follow."""
    for name, value in wanted.items():
        made_with = made.get(name, value)
        if value != made_with:
            raise ValueError(
                f"{name}={_words(value)}, but the fitted network that warm_start or partial_fit "
                f"goes on from was made with {name}={_words(made_with)}; set that again, or begin "
                "anew: set warm_start=False and call fit"
            )
    if n_made != n_wanted:  # after an interrupt
        raise ValueError(
            f"n_members={n_wanted}, but the fitted network that warm_start or partial_fit goes on "
            f"from has {n_made}; set that, or begin anew: set warm_start=False and call fit"
        )


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, ConstructedNetwork):
        return _digest(value)
    if isinstance(value, Integral) and name == "hidden_layer_sizes":
        return (int(value),)
    if callable(value):
        return activation_key(value)
    if hasattr(value, "__iter__") and not isinstance(value, str):
        return tuple(_plain(each, "") for each in value)
    return value


def _digest(network: ConstructedNetwork) -> str:
    """Return a digest that is equal for networks of equal weights, before and after a file."""
    digest = hashlib.sha256(repr(network.inputs).encode())
    with torch.no_grad():
        for weights in network.parameters():
            digest.update(weights.cpu().double().numpy().tobytes())
    return f"a network of weights {digest.hexdigest()[:16]}"


def _words(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 80 else f"{words[:60]}..."
