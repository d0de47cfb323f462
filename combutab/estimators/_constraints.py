"""What each parameter of the estimators may be, for scikit-learn's validation."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, Options, RealNotInt, StrOptions

from combutab._device import PRECISIONS, resolve_device
from combutab.constructions import ConstructedNetwork
from combutab.estimators._initial import check_initial
from combutab.nn import (
    INITIALISATIONS,
    NORMALIZATIONS,
    StackedNorm,
    check_activation,
    check_proxy_norm,
)
from combutab.training import SCHEDULES, SOLVERS

PARAMETER_CONSTRAINTS: dict[str, list[Any]] = {
    "hidden_layer_sizes": [
        StrOptions({"auto"}),
        "array-like",
        Interval(Integral, 1, None, closed="left"),
    ],
    "activation": [str, callable],
    "solver": [StrOptions(set(SOLVERS))],
    "alpha": [Interval(Real, 0, None, closed="left")],
    "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    "learning_rate": [StrOptions(set(SCHEDULES))],
    "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
    "power_t": [Interval(Real, 0, None, closed="left")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "shuffle": ["boolean"],
    "random_state": ["random_state", np.random.Generator],
    "tol": [Interval(Real, 0, None, closed="left")],
    "verbose": ["verbose"],
    "warm_start": ["boolean"],
    "momentum": [Interval(Real, 0, 1, closed="both")],
    "nesterovs_momentum": ["boolean"],
    "early_stopping": ["boolean"],
    "validation_fraction": [Interval(Real, 0, 1, closed="left")],
    "beta_1": [Interval(Real, 0, 1, closed="left")],
    "beta_2": [Interval(Real, 0, 1, closed="left")],
    "epsilon": [Interval(Real, 0, None, closed="neither")],
    "n_iter_no_change": [
        Interval(Integral, 1, None, closed="left"),
        Options(Real, {np.inf}),
    ],
    "max_fun": [Interval(Integral, 1, None, closed="left")],
    "dropout": [Interval(Real, 0, 1, closed="left")],
    "weight_decay": [Interval(Real, 0, None, closed="left")],
    "max_grad_norm": [None, Interval(Real, 0, None, closed="neither")],
    "normalization": [StrOptions(set(NORMALIZATIONS))],
    "proxy_norm": ["boolean"],
    "init": [StrOptions(set(INITIALISATIONS)), ConstructedNetwork],
    "n_members": [Interval(Integral, 1, None, closed="left")],
    "categorical_features": [StrOptions({"from_dtype"}), "array-like", None],
    "numeric_encoding": [StrOptions({"standard", "quantile", "robust", "none"})],
    "max_onehot": [Interval(Integral, 0, None, closed="left")],
    "min_frequency": [
        Interval(Integral, 1, None, closed="left"),
        Interval(RealNotInt, 0, 1, closed="neither"),
    ],
    "embedding_dim": [Interval(Integral, 1, None, closed="left")],
    "device": [str, torch.device],
    "precision": [StrOptions(set(PRECISIONS))],
    "track_metric": ["boolean"],
    "callbacks": [list, tuple, None],
}


def check_parameters(estimator: Any) -> None:
    """What scikit-learn's validation cannot see."""
    resolve_device(estimator.device)
    sizes = estimator.hidden_layer_sizes
    if not isinstance(sizes, str):
        as_list = list(sizes) if hasattr(sizes, "__iter__") else [sizes]
        if any(not isinstance(s, Integral) or s <= 0 for s in as_list):
            raise ValueError(f"hidden_layer_sizes must be > 0, got {as_list}.")
    if not isinstance(estimator.init, str):
        check_initial(estimator)
    for width in set(estimator._hidden_layer_sizes(0)):
        check_activation(estimator.activation, width, proxy_norm=estimator.proxy_norm)
        if estimator.normalization != "none":
            StackedNorm(estimator.normalization, width, 1)
    check_proxy_norm(estimator.proxy_norm, estimator.normalization)
    for callback in estimator.callbacks or ():
        if not callable(getattr(callback, "on_epoch_end", None)):
            raise ValueError(
                f"callbacks must be combutab.training.Callback objects, got {callback!r}"
            )
