"""scikit-learn's scorers of a network in training, on the rows that are set aside."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import check_scoring
from torch import Tensor

from combutab.training import Rows


@dataclass(frozen=True)
class GivenOutputs:
    """Stands in for the pass through a network whose raw outputs are there already."""

    raw: Tensor

    def __call__(self, X: Any) -> Tensor:
        return self.raw


def answering(estimator: Any, raw: Tensor) -> Any:
    """A copy of an estimator that answers with these raw outputs, whatever rows it is shown."""
    shown = copy.copy(estimator)
    shown.__dict__ |= {"_raw": GivenOutputs(raw.cpu()), "_states": []}
    return shown


@dataclass(frozen=True, eq=False)
class OutputScorer:
    """A scorer of raw outputs: (n_heads, n, n_outputs), encoded targets, weights -> its score.

    ``estimator`` is what the scorer is shown: a copy of the one in training, that answers with
    these outputs.
    """

    estimator: Any
    decode: Callable[[np.ndarray], np.ndarray]
    scorer: Callable[..., float]
    scoring: Any  # what the user asked for

    def __call__(self, raw: Tensor, y: Tensor, weight: Tensor | None) -> float:
        shown = answering(self.estimator, raw)
        rows, more = np.zeros((raw.shape[1], 1)), {}
        if weight is not None:
            more["sample_weight"] = weight.cpu().numpy().astype(np.float64)
        try:
            return float(self.scorer(shown, rows, self.decode(y.cpu().numpy()), **more))
        except ValueError as error:
            raise ValueError(
                f"early_stopping_scoring={self.scoring!r} cannot score the rows set aside: {error}"
            ) from error


def output_scorer(
    estimator: Any, scoring: Any, decode: Callable[[np.ndarray], np.ndarray], rows: Rows, width: int
) -> OutputScorer:
    """The scorer that ``early_stopping_scoring`` names, tried on rows with outputs of zero.

    Raises ValueError if scikit-learn knows none of that name, or it cannot score such rows.
    """
    scorer = check_scoring(estimator, scoring=scoring)
    made = OutputScorer(copy.copy(estimator), decode, scorer, scoring)
    made(rows.dense.new_zeros(1, len(rows.y), width), rows.y, rows.weight)
    return made
