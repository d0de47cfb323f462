"""scikit-learn's scorers of a network in training, on the rows that are set aside."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import check_scoring
from torch import Tensor


@dataclass(frozen=True)
class _Given:
    """Stands in for the pass through a network whose raw outputs are there already."""

    raw: Tensor

    def __call__(self, X: Any) -> Tensor:
        return self.raw


@dataclass(frozen=True, eq=False)
class OutputScorer:
    """A scorer of raw outputs: (n_heads, n, n_outputs), encoded targets, weights -> its score.

    ``estimator`` is what the scorer is shown: a copy of the one in training, that answers with
    these outputs.
    """

    estimator: Any
    decode: Callable[[np.ndarray], np.ndarray]
    scorer: Callable[..., float]

    def __call__(self, raw: Tensor, y: Tensor, weight: Tensor | None) -> float:
        shown = copy.copy(self.estimator)
        shown.__dict__ |= {"_raw": _Given(raw.cpu()), "_states": []}
        rows, more = np.zeros((raw.shape[1], 1)), {}
        if weight is not None:
            more["sample_weight"] = weight.cpu().numpy().astype(np.float64)
        return float(self.scorer(shown, rows, self.decode(y.cpu().numpy()), **more))


def output_scorer(
    estimator: Any, scoring: Any, decode: Callable[[np.ndarray], np.ndarray]
) -> OutputScorer:
    """The scorer that ``early_stopping_scoring`` names, of this estimator's networks.

    Raises
    ------
    ValueError
        If scikit-learn knows none of that name.
    """
    return OutputScorer(copy.copy(estimator), decode, check_scoring(estimator, scoring=scoring))
