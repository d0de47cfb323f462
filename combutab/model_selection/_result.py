"""The result of a comparison, and the scores that a picture of it shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.html import ChartRow, interval_chart, result_html
from combutab.core.metrics import METRICS, Metric
from combutab.core.text import counted, format_p
from combutab.evaluation import interval_words
from combutab.model_selection._plan import epoch_words
from combutab.model_selection._sentences import write_advice
from combutab.model_selection._target import Task

_WIDER = 3.0  # times the activations' own range: further off, baselines would squeeze them


@dataclass(frozen=True, eq=False)
class ModelComparison:
    """Result of `compare_models` and `compare_activations`.

    Attributes
    ----------
    data : str
        Name of the data set.
    task : {"classification", "regression"}
    metric : str
        The column of ``results`` by which the activations or models are compared.
    results : DataFrame, one row per fit
        data, activation or model, fold, seed, n_train, n_test, the task's scores (roc_auc,
        log_loss, accuracy, balanced_accuracy, average_precision, f1, f1_macro; or r2, mae, rmse,
        mse, mape), seconds, epochs (only of activations), and constant (whether the predictions are
        the same class, or nearly the same number, for all rows of the test fold although their
        targets differ). mae and rmse are in standard deviations of the target, mse in variances,
        mape in fractions of the target. A fit that diverged has NaN for its scores.
    summary : DataFrame, one row per activation or model, the best first
        As from `combutab.evaluation.compare_with_best`: activation or model, mean, low, high,
        mean_rank, p, distinguishable, n_resamples, test. The 95 % intervals from low to high are
        clipped to the range of the score. If the guess is a baseline, also p_guess (p-value of the
        same test against the guess by ``guess_metric``, Holm-adjusted over the rows) and
        beats_guess (whether the row is better and p_guess < 0.05). Activations and models with a
        failed fit are left out.
    sentences : str
        The result in sentences, one per line. The last one is the advice.
    best : str
        The activation or model with the best mean, even if it does not beat the guess (see
        ``winner``).
    best_estimator : estimator or None
        The best model, or the network of the best activation, fitted to all rows; None with
        ``refit=False``.
    settings : dict
        The settings, with the values that were chosen for ``"auto"`` and None: seeds, folds, split,
        test, device, random_state and baselines; for activations also recipe, epochs, hidden and
        the ``estimator_params``, for models their parameters.
    baselines : DataFrame, one row per baseline, the best first
        baseline, mean, low, high, n_resamples and test as in ``summary``; p (p-value of the best
        activation against the baseline by ``metric``) and distinguishable (whether p < 0.05). p is
        Holm-adjusted: for the guess over all activations, for the others over these baselines.
    baseline_results : DataFrame, one row per baseline and fold
        data, baseline, fold, n_train, n_test, the task's scores and seconds. The guess predicts
        what suits each score: the most frequent class for accuracy and balanced accuracy, classes
        drawn by their frequencies for f1 and f1_macro, the class frequencies for scores of
        probabilities, the median for mae, the number with the smallest MAPE for mape, and the mean
        for r2, rmse and mse.
    other_measures : str
        If the best activation does not beat the guess by ``guess_metric``, a sentence that names
        the metrics by which an activation does; else empty. ``sentences`` contains it too.
    guess_metric : str
        The metric by which activations are tested against the guess: ``metric``, or ROC AUC instead
        of a metric of predicted labels, which has little power for imbalanced classes. ROC AUC is
        used only if every test fold has every class.
    """

    data: str
    task: Task
    metric: str
    results: pd.DataFrame
    summary: pd.DataFrame
    sentences: str
    best: str
    best_estimator: Any
    settings: dict[str, Any]
    baselines: pd.DataFrame = field(default_factory=pd.DataFrame)
    baseline_results: pd.DataFrame = field(default_factory=pd.DataFrame)
    other_measures: str = ""
    guess_metric: str = ""

    @property
    def group(self) -> str:
        """The first column of the summary: activation or model."""
        return str(self.summary.columns[0])

    @property
    def winner(self) -> str | None:
        """The best one, if it beats the guess or there is no guess; else None."""
        beats = self.summary.get("beats_guess")
        return self.best if beats is None or bool(beats.iloc[0]) else None

    @property
    def advice(self) -> str:
        """What to do, in a sentence or two."""
        return write_advice(self.summary, self.baselines, self.measure.greater_is_better)

    @property
    def measure(self) -> Metric:
        """The metric with its title, range, unit and direction."""
        return METRICS[self.task][self.metric]

    def formatted(self) -> pd.DataFrame:
        """Format the summary and the baselines as text, one row per activation, model or baseline.

        The largest mean has four digits.
        """
        rows = [*self.summary.to_dict("records"), *self.baselines.to_dict("records")]
        largest = float(self.summary["mean"].abs().max())
        digits = int(np.clip(3 - np.floor(np.log10(largest)), 0, 8)) if largest > 0 else 4
        words = {True: "yes", False: "no", None: ""}
        table = pd.DataFrame(
            {
                self.group: row.get(self.group) or row["baseline"],
                "mean": f"{row['mean']:,.{digits}f}",
                "95 % interval": interval_words(row["low"], row["high"], digits)
                or "same in all folds",
                "mean rank": f"{row['mean_rank']:.2f}" if "mean_rank" in row else "",
                "p-value (Holm)": format_p(row["p"]) if i else "",
                "differs from best": words[bool(row["distinguishable"])],
                "beats guess": words[row.get("beats_guess")],
            }
            for i, row in enumerate(rows)
        )
        table.loc[0, "differs from best"] = "(best)" if self.winner else "–"
        return table if "beats_guess" in self.summary else table.drop(columns="beats guess")

    def __repr__(self) -> str:
        return f"ModelComparison: {self.measure.title}, {self.design}\n{self.sentences}"

    def _repr_html_(self) -> str:
        """The result in a notebook: means with their intervals, the sentences, and the tables."""
        kinds = ((self.group, self.summary, False), ("baseline", self.baselines, True))
        rows = [
            ChartRow(str(line[kind]), line["mean"], line["low"], line["high"], baseline)
            for kind, table, baseline in kinds
            for line in table.to_dict("records")
        ]
        ends = shown_range(self.results, self.summary, self.metric, self.baselines)
        caption = f"Mean {self.measure.description} and 95 % interval; baselines in orange."
        return result_html(
            f"{self.data}: which {self.group} is best? {self.measure.title}, {self.design}",
            self.sentences.splitlines(),
            interval_chart(rows, ends, caption),
            caption,
            [(f"{self.group.capitalize()}s", self.summary), ("Baselines", self.baselines)],
        )

    @property
    def design(self) -> str:
        """The numbers of folds, seeds and epochs, for titles."""
        folds, seeds = self.settings["folds"], self.settings["seeds"]
        kind = {"random": "", "groups": " of whole groups"}
        split = self.settings.get("split", "random")  # results of earlier versions have none
        by = kind.get(split, f" ({split})")
        design = f"{folds} folds{by} x {counted(seeds, 'seed')}"
        return f"{design}, {epoch_words(self.settings)}" if "epochs" in self.settings else design


ActivationComparison = ModelComparison
"""Result of `compare_activations`, the same class as that of `compare_models`."""


def shown_range(
    results: pd.DataFrame, summary: pd.DataFrame, metric: str, baselines: pd.DataFrame
) -> tuple[float, float]:
    """Return the ends of an axis that shows all activations or models, and the baselines near them.

    Parameters
    ----------
    results, summary, baselines : DataFrame
        Attributes of a `ModelComparison`; ``baselines`` may be empty.
    metric : str
        Column of ``results``.

    Returns
    -------
    low, high : float

    Examples
    --------
    >>> results = pd.DataFrame({"activation": ["relu"] * 2, "fold": [0, 1], "r2": [0.5, 0.7]})
    >>> summary = pd.DataFrame({"activation": ["relu"], "low": [0.4], "high": [0.8]})
    >>> baselines = pd.DataFrame({"mean": [0.3, -5.0], "low": [0.2, -6.0], "high": [0.4, -4.0]})
    >>> shown_range(results, summary, "r2", baselines)
    (0.2, 0.8)
    """
    group = summary.columns[0]
    folds = results.groupby([group, "fold"])[metric].mean()
    complete_folds = folds[folds.index.get_level_values(group).isin(summary[group])]
    values = np.concatenate([complete_folds, summary["low"], summary["high"]])
    low, high = float(values.min()), float(values.max())
    room = _WIDER * ((high - low) or 0.05 * abs(low) or 0.5)
    for _, line in baselines.iterrows():
        # the interval of a baseline may be long: its mean decides, its ends are cut
        if max(high, line["mean"]) - min(low, line["mean"]) <= room:
            low = min(low, line["mean"], max(line["low"], high - room))
            high = max(high, line["mean"], min(line["high"], low + room))
    return float(low), float(high)
