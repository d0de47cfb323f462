"""The CombU paper's network, as parameters that stay when the estimators' defaults change."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

PAPER_BATCH = 500  # rows
_SMALL_TABLE = 1000  # rows; the paper's border between its two networks
_SMALL, _LARGE = (128,) * 2, (256,) * 5  # hidden layers of 3 and of 6 linear layers

_BOTH: Mapping[str, Any] = MappingProxyType(
    {
        "hidden_layer_sizes": "paper",
        "activation": "combu",
        "solver": "adam",
        "alpha": 0.0001,
        "batch_size": "paper",
        "learning_rate": "constant",
        "learning_rate_init": 0.0005,
        "power_t": 0.5,
        "max_iter": 200,
        "shuffle": True,
        "tol": 1e-4,
        "momentum": 0.9,
        "nesterovs_momentum": True,
        "early_stopping": False,
        "validation_fraction": 0.1,
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-8,
        "n_iter_no_change": 10,
        "max_fun": 15000,
        "early_stopping_scoring": None,
        "dropout": 0.1,
        "weight_decay": 0.01,
        "max_grad_norm": None,
        "normalization": "none",
        "proxy_norm": False,
        "init": "torch",
        "n_members": 1,
        "bagging": None,
        "categorical_features": "from_dtype",
        "numeric_encoding": "standard",
        "max_onehot": 32,
        "min_frequency": 5,
        "embedding_dim": 8,
        "numeric_embedding": "none",
        "numeric_embedding_dim": 4,
        "n_frequencies": 16,
        "n_bins": 48,
        "frequency_scale": 0.1,
        "scale_inputs": False,
        "learning_rate_factors": None,
        "regularization_schedule": "constant",
        "precision": "float32",
    }
)
_RECIPES: Mapping[str, Mapping[str, Any]] = {
    "classification": {**_BOTH, "class_weight": None, "label_smoothing": 0.0, "calibration": None},
    "regression": {
        **_BOTH,
        "loss": "squared_error",
        "quantiles": (0.05, 0.5, 0.95),
        "scale_target": True,
        "clip_predictions": False,
    },
}


def paper_recipe(task: Literal["classification", "regression"], **changes: Any) -> dict[str, Any]:
    """The CombU paper's network: parameters of MLPClassifier or MLPRegressor.

    Every parameter that the network, its encoding or its training depends on is among them; not
    those of where, whence and how loudly it trains: ``random_state``, ``device``, ``warm_start``,
    ``callbacks``, ``verbose``, ``track_metric``.

    Parameters
    ----------
    task : {"classification", "regression"}
        ``"classification"`` for MLPClassifier, ``"regression"`` for MLPRegressor.
    **changes
        Parameters that are to have other values, or more of them.

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        If there is no such task.

    References
    ----------
    The CombU paper, appendix B: 3 linear layers of 128 units below 1,000 rows, else 6 of 256;
    Adam at a rate of 5e-4, batches of 500, dropout 0.1.

    Examples
    --------
    >>> from combutab import MLPClassifier, MLPRegressor, paper_recipe
    >>> clf = MLPClassifier(**paper_recipe("classification", max_iter=500, random_state=0))
    >>> clf.learning_rate_init, clf.dropout, clf.max_iter
    (0.0005, 0.1, 500)
    >>> MLPRegressor(**paper_recipe("regression")).clip_predictions
    False
    """
    if task not in _RECIPES:
        raise ValueError(f"task must be one of {', '.join(map(repr, _RECIPES))}, got {task!r}")
    return {**_RECIPES[task], **changes}


def paper_hidden_layer_sizes(n_rows: int) -> tuple[int, ...]:
    """Return the widths of the paper's network for so many rows."""
    return _SMALL if n_rows < _SMALL_TABLE else _LARGE
