"""The result of a comparison of activations, and the scores that a picture of it shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from combutab.estimators import BaseMLP
from combutab.model_selection._scores import METRICS, Metric, Task

_WIDER = 3.0  # times the activations' own range: further off, baselines would squeeze them


@dataclass(frozen=True, eq=False)
class ActivationComparison:
    """Result of `compare_activations`.

    Attributes
    ----------
    data : str
        Name of the data set.
    task : {"classification", "regression"}
    metric : str
        The column of ``results`` that the activations are compared by.
    results : DataFrame, one row a fit
        data, activation, fold, seed, n_train, n_test, the task's scores (accuracy, f1, log_loss,
        roc_auc; or r2, mae, mse), seconds, epochs, and constant: whether the network answers the
        same for all rows of its test fold. A fit that diverged has no scores.
    summary : DataFrame, one row an activation, the best first
        As from `combutab.evaluation.compare_with_best`: activation, mean, low, high, mean_rank, p,
        distinguishable, n_resamples, test; intervals end where the score's range does. With the
        guess among the baselines also p_guess, of the same test against it, with Holm's correction
        for all activations, and beats_guess: better than it, and p_guess < 0.05.
    sentences : str
        The summary in words, one sentence a line.
    best : str
        The activation of the best mean, which need be no winner.
    best_estimator : MLPClassifier or MLPRegressor or None
        The best activation's network, fitted to all rows; None where ``refit=False``.
    settings : dict
        What was asked for and what ``"auto"`` became: recipe, seeds, folds, epochs, hidden, test,
        device, random_state, baselines.
    baselines : DataFrame, one row a baseline, the best first
        baseline, mean, low, high, n_resamples and test as in ``summary``; p of the best activation
        against it (of the guess: the p_guess; of the others with Holm's correction for these) and
        distinguishable, whether p < 0.05.
    baseline_results : DataFrame, one row a baseline and fold
        data, baseline, fold, n_train, n_test, the task's scores and seconds. The guess has each
        score from the guess that is right for it: accuracy from the most frequent class, f1 from
        classes drawn as often as they occur, log_loss and roc_auc from the classes' shares, mae
        from the median, r2 and mse from the mean.
    """

    data: str
    task: Task
    metric: str
    results: pd.DataFrame
    summary: pd.DataFrame
    sentences: str
    best: str
    best_estimator: BaseMLP | None
    settings: dict[str, Any]
    baselines: pd.DataFrame = field(default_factory=pd.DataFrame)
    baseline_results: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def winner(self) -> str | None:
        """The best activation, if it beats the guess or there is no guess; else None."""
        beats = self.summary.get("beats_guess")
        return self.best if beats is None or bool(beats.iloc[0]) else None

    @property
    def measure(self) -> Metric:
        """The metric's name for people, its unit, and which way is better."""
        return METRICS[self.task][self.metric]

    @property
    def design(self) -> str:
        """The numbers of folds, seeds and epochs, for titles."""
        folds, seeds, epochs = (self.settings[name] for name in ("folds", "seeds", "epochs"))
        return (
            f"{folds} folds x {seeds} seed{'s' * (seeds > 1)}, {epochs} epoch{'s' * (epochs > 1)}"
        )


def shown_range(
    results: pd.DataFrame, summary: pd.DataFrame, metric: str, baselines: pd.DataFrame
) -> tuple[float, float]:
    """Return the ends of an axis that shows all activations, and the baselines near them.

    Parameters
    ----------
    results, summary, baselines : DataFrame
        As of an `ActivationComparison`; the baselines may be none.
    metric : str

    Examples
    --------
    >>> results = pd.DataFrame({"activation": ["relu"] * 2, "fold": [0, 1], "r2": [0.5, 0.7]})
    >>> summary = pd.DataFrame({"activation": ["relu"], "low": [0.4], "high": [0.8]})
    >>> baselines = pd.DataFrame({"mean": [0.3, -5.0], "low": [0.2, -6.0], "high": [0.4, -4.0]})
    >>> shown_range(results, summary, "r2", baselines)
    (0.2, 0.8)
    """
    folds = results.groupby(["activation", "fold"])[metric].mean()
    known = folds[folds.index.get_level_values("activation").isin(summary["activation"])]
    values = np.concatenate([known, summary["low"], summary["high"]])
    low, high = float(values.min()), float(values.max())
    room = _WIDER * ((high - low) or 0.05 * abs(low) or 0.5)
    for _, line in baselines.iterrows():
        # the interval of a baseline may be long: its mean decides, its ends are cut
        if max(high, line["mean"]) - min(low, line["mean"]) <= room:
            low = min(low, line["mean"], max(line["low"], high - room))
            high = max(high, line["mean"], min(line["high"], low + room))
    return float(low), float(high)
