"""Compare activations on a table: which is best, and is the difference real?"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.linalg import LinAlgWarning
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning

from combutab.core.html import ChartRow, interval_chart, result_html
from combutab.core.metrics import METRICS, NOT_SHOWN, Metric
from combutab.core.parallel import on_cluster
from combutab.core.progress import bar_width, left_column, make_bar
from combutab.core.rng import Stream, fold_in
from combutab.core.scores import guess_targets
from combutab.core.text import counted, one_line
from combutab.core.threads import limit_openmp, tree_threads
from combutab.estimators import BaseMLP, FitOutcome, FitTask, fit_stacked
from combutab.evaluation import (
    compare_with_best,
    corrected_interval,
    holm,
    p_words,
    summarise,
)
from combutab.model_selection._journal import Journal, Record
from combutab.model_selection._plan import (
    BASELINES,
    ComparisonError,
    ComparisonPlan,
    Recipe,
    Task,
    epoch_words,
    plan_comparison,
)
from combutab.model_selection._scores import score_network, score_numbers, score_probabilities
from combutab.nn import ActivationSpec
from combutab.preprocessing import binary_unit, expecting_later_rows
from combutab.training import Callback, EpochReport

# ---- The result of a comparison of activations, and the scores that a picture of it shows --------

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
        The column of ``results`` by which the activations are compared.
    results : DataFrame, one row per fit
        data, activation, fold, seed, n_train, n_test, the task's scores (roc_auc, log_loss,
        accuracy, balanced_accuracy, average_precision, f1, f1_macro; or r2, mae, rmse, mse, mape),
        seconds, epochs, and constant (whether the network predicts the same class, or nearly the
        same number, for all rows of its test fold although their targets differ). mae and rmse are
        in standard deviations of the target, mse in variances, mape in shares of the target. A fit
        that diverged has NaN for its scores.
    summary : DataFrame, one row per activation, the best first
        As from `combutab.evaluation.compare_with_best`: activation, mean, low, high, mean_rank, p,
        distinguishable, n_resamples, test. The 95 % intervals from low to high are clipped to the
        range of the score. If the guess is a baseline, also p_guess (p-value of the same test
        against the guess by ``guess_metric``, Holm-adjusted over the activations) and beats_guess
        (whether the activation is better and p_guess < 0.05). Activations with a failed fit are
        left out.
    sentences : str
        The result in sentences, one per line.
    best : str
        The activation with the best mean, even if it does not beat the guess (see ``winner``).
    best_estimator : MLPClassifier, MLPRegressor or None
        The best activation's network, fitted to all rows; None with ``refit=False``.
    settings : dict
        The settings, with the values that were chosen for ``"auto"`` and None: recipe, seeds,
        folds, epochs, hidden, split, test, device, random_state, baselines, and the
        ``estimator_params``.
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
    best_estimator: BaseMLP | None
    settings: dict[str, Any]
    baselines: pd.DataFrame = field(default_factory=pd.DataFrame)
    baseline_results: pd.DataFrame = field(default_factory=pd.DataFrame)
    other_measures: str = ""
    guess_metric: str = ""

    @property
    def winner(self) -> str | None:
        """The best activation, if it beats the guess or there is no guess; else None."""
        beats = self.summary.get("beats_guess")
        return self.best if beats is None or bool(beats.iloc[0]) else None

    @property
    def measure(self) -> Metric:
        """The metric with its title, range, unit and direction."""
        return METRICS[self.task][self.metric]

    def _repr_html_(self) -> str:
        """The result in a notebook: means with their intervals, the sentences, and the tables."""
        kinds = (("activation", self.summary, False), ("baseline", self.baselines, True))
        rows = [
            ChartRow(str(line[kind]), line["mean"], line["low"], line["high"], baseline)
            for kind, table, baseline in kinds
            for line in table.to_dict("records")
        ]
        ends = shown_range(self.results, self.summary, self.metric, self.baselines)
        caption = f"Mean {self.measure.description} and 95 % interval; baselines in orange."
        return result_html(
            f"{self.data}: which activation is best? {self.measure.title}, {self.design}",
            self.sentences.splitlines(),
            interval_chart(rows, ends, caption),
            caption,
            [("Activations", self.summary), ("Baselines", self.baselines)],
        )

    @property
    def design(self) -> str:
        """The numbers of folds, seeds and epochs, for titles."""
        folds, seeds = self.settings["folds"], self.settings["seeds"]
        kind = {"random": "", "groups": " of whole groups"}
        split = self.settings.get("split", "random")  # results of earlier versions have none
        by = kind.get(split, f" ({split})")
        return f"{folds} folds{by} x {seeds} seed{'s' * (seeds > 1)}, {epoch_words(self.settings)}"


def shown_range(
    results: pd.DataFrame, summary: pd.DataFrame, metric: str, baselines: pd.DataFrame
) -> tuple[float, float]:
    """Return the ends of an axis that shows all activations, and the baselines near them.

    Parameters
    ----------
    results, summary, baselines : DataFrame
        Attributes of an `ActivationComparison`; ``baselines`` may be empty.
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
    folds = results.groupby(["activation", "fold"])[metric].mean()
    complete_folds = folds[folds.index.get_level_values("activation").isin(summary["activation"])]
    values = np.concatenate([complete_folds, summary["low"], summary["high"]])
    low, high = float(values.min()), float(values.max())
    room = _WIDER * ((high - low) or 0.05 * abs(low) or 0.5)
    for _, line in baselines.iterrows():
        # the interval of a baseline may be long: its mean decides, its ends are cut
        if max(high, line["mean"]) - min(low, line["mean"]) <= room:
            low = min(low, line["mean"], max(line["low"], high - room))
            high = max(high, line["mean"], min(line["high"], low + room))
    return float(low), float(high)


# ---- Progress of a comparison, and the time left, on a terminal or in a notebook -----------------

Progress = Callable[[float], None]


@contextmanager
def progress_bar(
    progress: Progress | bool | None, data: str, total: int, refit: bool
) -> Iterator[Progress]:
    """Yield what to call with the number of networks that are trained: the user's, or a bar's.

    With ``refit`` one more is trained than the ``total`` that is shown. The bar is drawn on a
    terminal's standard error or below a notebook's cell; elsewhere, as in a pipe, nothing is.
    """
    if callable(progress) or not progress:
        yield progress or (lambda done: None)
        return
    from rich.progress import BarColumn, TextColumn
    from rich.table import Column

    width = bar_width()
    name = Column(no_wrap=True, overflow="ellipsis", max_width=max(4, width // 4))
    bar = make_bar(
        TextColumn("{task.description}", markup=False, table_column=name),
        BarColumn(min(40, max(4, width - width // 4 - 36))),
        TextColumn(f"{{task.fields[shown]:.0f}}/{total} networks"),
        left_column(),
        transient=True,
    )
    task = bar.add_task(data, total=total + refit, shown=0, end=np.inf)
    with bar:
        yield lambda done: bar.update(task, completed=done, shown=min(done, total))


class _NetworkCounter(Callback):
    """Counts networks for the progress, and lets an interrupt end more than one stack."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.finished = 0.0

    def count(self, n_networks: float) -> None:
        """Set the number of networks that are trained, here and in other threads."""
        self.finished = n_networks
        self.progress(n_networks)

    def on_train_results(self, results: Callable[[], list[Any]]) -> None:
        self.results = results

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        self.n_members = n_members

    def on_epoch_end(self, report: EpochReport) -> None:
        self.progress(self.finished + self.n_members * report.epoch / report.max_epochs)

    def on_train_end(self) -> None:
        # the loop turns Ctrl-C into early results and would go on with the next stack
        failed = sys.exc_info()[0] is not None
        if not failed and any(result.reason == "interrupted" for result in self.results()):
            raise KeyboardInterrupt
        self.finished += self.n_members
        self.progress(self.finished)


# ---- Baselines of a comparison: a guess, a linear model and boosted trees ------------------------

GUESSES = {
    "accuracy": "always the most frequent class",
    "balanced_accuracy": "always the most frequent class",
    "f1": "classes drawn as often as they occur",
    "f1_macro": "classes drawn as often as they occur",
    "roc_auc": "the same for every row",
    "average_precision": "the same for every row",
    "log_loss": "the class frequencies for every row",
    "r2": "always the mean",
    "mae": "always the median",
    "rmse": "always the mean",
    "mse": "always the mean",
    "mape": "always the number with the least MAPE",
}
"""Prediction of the baseline "guess" for each metric, in words."""

_DRAWS, _DRAWN_ROWS = 20, 100_000  # of random guesses: their mean is a score with less noise
_MAX_CATEGORIES = 255  # of boosted trees: a column of more is taken for a number


def score_baseline(plan: ComparisonPlan, name: str, fold: int) -> dict[str, Any]:
    """Fit a baseline to a fold's training rows; its scores on the others, and seconds.

    A baseline that cannot be fitted has NaN for scores, and ``error`` says why.
    """
    train, test = plan.splits[fold]
    started, error = time.perf_counter(), None
    scores: dict[str, float] = dict.fromkeys(METRICS[plan.task], np.nan)
    with warnings.catch_warnings():  # advice to whoever has chosen the learner
        for category in (ConvergenceWarning, LinAlgWarning):
            warnings.simplefilter("ignore", category)
        try:
            scores |= _guess(plan, fold) if name == "guess" else _learner(plan, name, train, test)
        except ValueError as refused:
            error = one_line(refused)
    return {**scores, "seconds": time.perf_counter() - started, "error": error}


def _target_unit(plan: ComparisonPlan) -> float:
    """Return the divisor of huge and tiny targets, whose squares float64 does not hold; else 1."""
    return float(binary_unit(np.asarray(plan.target_std)))


def _guess(plan: ComparisonPlan, fold: int) -> dict[str, float]:
    """Return the score of each metric by the guess that is right for it."""
    train, test = plan.splits[fold]
    y, truth = plan.y[train], plan.y[test]
    unit = _target_unit(plan)
    if plan.task == "regression":
        constants: dict[str, float] = {
            "mape": _least_mape(y / unit),
            "mae": float(np.median(y / unit)),
            "mean": float(np.mean(y / unit)),
        }
        graded = {
            name: score_numbers(np.full(len(test), constant * unit), truth, plan.target_std)
            for name, constant in constants.items()
        }
        return graded["mean"] | {name: graded[name][name] for name in ("mae", "mape")}
    classes, codes = np.unique(y, return_inverse=True)
    shares = guess_targets("", codes, len(test), len(classes))[1]
    scores = score_probabilities(shares, classes, truth, plan.positive)
    n_draws = int(np.clip(_DRAWN_ROWS // len(test), 1, _DRAWS))
    drawn_scores = []
    for i in range(n_draws):
        key = fold_in(plan.random_state, Stream.GUESSES, fold, i)
        guess = DummyClassifier(strategy="stratified", random_state=key >> 32)
        drawn = guess.fit(np.zeros((len(train), 1)), y).predict_proba(np.zeros((len(test), 1)))
        drawn_scores.append(score_probabilities(drawn, classes, truth, plan.positive))
    return scores | {
        name: float(np.mean([draw[name] for draw in drawn_scores])) for name in ("f1", "f1_macro")
    }


def _least_mape(y: np.ndarray) -> float:
    """Return the constant of the least MAPE: the median, weighted by 1 / abs(y)."""
    y = np.sort(y[y != 0])
    weight = np.cumsum(1 / np.abs(y))
    return float(y[np.searchsorted(weight, weight[-1] / 2)])


def _learner(
    plan: ComparisonPlan, name: str, train: np.ndarray, test: np.ndarray
) -> dict[str, float]:
    """Scores of scikit-learn's estimator, on the columns that the networks are given."""
    encoder = plan.encoder()
    X, y = plan.rows(train)
    unseen, truth = plan.rows(test)
    rows, unseen_rows = (
        np.hstack([table.dense, table.codes]).astype(np.float64)
        for table in (encoder.fit_encode(X), encoder.encode(unseen, fitted=True))
    )
    make = _linear_model if name == "linear" else _boosting
    model = make(plan, encoder.n_dense_, encoder.cardinalities_)
    with limit_openmp(tree_threads(rows.size)):
        if plan.task == "regression":
            unit = _target_unit(plan)
            answers = model.fit(rows, y / unit).predict(unseen_rows) * unit
            return score_numbers(answers, truth, plan.target_std)
        model.fit(rows, y)
        probabilities = model.predict_proba(unseen_rows)
        return score_probabilities(probabilities, model.classes_, truth, plan.positive)


def _linear_model(plan: ComparisonPlan, n_dense: int, cardinalities: Sequence[int]) -> Any:
    """Logistic or ridge regression; columns of many categories are one-hot, too."""
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    model = LogisticRegression(max_iter=1000) if plan.task == "classification" else Ridge()
    if not cardinalities:
        return model
    encoder = make_column_transformer(
        ("passthrough", slice(n_dense)),
        (OneHotEncoder(handle_unknown="ignore"), slice(n_dense, None)),
        sparse_threshold=1.0,
    )
    return make_pipeline(encoder, model)


def _boosting(plan: ComparisonPlan, n_dense: int, cardinalities: Sequence[int]) -> Any:
    from sklearn import ensemble

    few = [size <= _MAX_CATEGORIES for size in cardinalities]
    task = "Classifier" if plan.task == "classification" else "Regressor"
    return getattr(ensemble, f"HistGradientBoosting{task}")(
        categorical_features=np.array([False] * n_dense + few),
        random_state=fold_in(plan.random_state, Stream.BASELINE) >> 32,
    )


# ---- Tests of activations against baselines, and the result in sentences -------------------------

_ALPHA = 0.05


def judge(
    plan: ComparisonPlan, summary: pd.DataFrame, results: pd.DataFrame, scored: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Test activations and baselines against each other, by the plan's test over the folds.

    ``summary`` is of the activations, the best first; it is returned with ``p_guess`` and
    ``beats_guess`` where the guess is among the baselines, and with a table of one row a baseline,
    the best first. ``results`` and ``scored`` have the scores of the networks, and of the baselines
    by fold.
    """
    nets = _fold_means(results, summary, plan.metric)
    by_name = {
        str(name): rows.sort_values("fold")[plan.metric].to_numpy()
        for name, rows in scored.groupby("baseline", sort=False)
    }
    complete = {name: scores for name, scores in by_name.items() if np.isfinite(scores).all()}
    best = next(iter(nets.values()))
    learners = [name for name in complete if name != "guess"]
    p = dict(
        zip(learners, holm([plan.p_value(best, complete[name]) for name in learners]), strict=True)
    )
    if "guess" in complete:
        p["guess"] = holm([plan.p_value(scores, complete["guess"]) for scores in nets.values()])[0]
        metric = plan.guess_metric
        guess = scored[scored["baseline"] == "guess"].sort_values("fold")[metric].to_numpy()
        tested = _fold_means(results, summary, metric).values()
        p_guess = holm([plan.p_value(scores, guess) for scores in tested])
        better = [plan.is_better(scores.mean(), guess.mean(), metric) for scores in tested]
        summary = summary.assign(p_guess=p_guess, beats_guess=(p_guess < _ALPHA) & better)
    rows = []
    for name, scores in complete.items():
        interval = corrected_interval(scores, n_train=plan.n_train, n_test=plan.n_test)
        low, high = np.clip([interval.low, interval.high], plan.measure.low, plan.measure.high)
        rows.append({"baseline": name, "mean": interval.mean, "low": low, "high": high})
    table = pd.DataFrame(rows, columns=["baseline", "mean", "low", "high"])
    table["p"] = [float(p[name]) for name in complete]
    table["distinguishable"] = table["p"] < _ALPHA
    table["n_resamples"] = len(plan.splits)
    table["test"] = plan.test
    order = table["mean"].argsort(kind="stable")
    order = order[::-1] if plan.measure.greater_is_better else order
    return summary, table.iloc[order].reset_index(drop=True)


def _fold_means(results: pd.DataFrame, summary: pd.DataFrame, metric: str) -> dict[str, np.ndarray]:
    """Each activation's scores by fold, the mean of its seeds, in the order of the summary."""
    folds = results.groupby(["activation", "fold"])[metric].mean()
    return {name: folds[name].to_numpy() for name in summary["activation"]}


def other_measures(
    plan: ComparisonPlan, summary: pd.DataFrame, results: pd.DataFrame, scored: pd.DataFrame
) -> str:
    """Name the metrics by which an activation beats the guess, if the best one does not.

    All activations and metrics are tested together, with Holm's correction. The sentence is empty
    if there is no such metric.
    """
    if "beats_guess" not in summary or summary["beats_guess"].iloc[0]:
        return ""
    guesses = scored[scored["baseline"] == "guess"].sort_values("fold")
    tested = []
    for metric, measure in METRICS[plan.task].items():
        guess = guesses[metric].to_numpy()
        for name, scores in _fold_means(results, summary, metric).items():
            if metric != plan.guess_metric and np.isfinite([scores, guess]).all():
                ahead = (scores.mean() - guess.mean()) * (1 if measure.greater_is_better else -1)
                words = f"{measure.title} ({name} {scores.mean():.4g}, guessing {guess.mean():.4g}"
                tested.append((metric, ahead, plan.p_value(scores, guess), words))
    corrected: Any = holm([p for _, _, p, _ in tested]) if tested else []
    best: dict[str, tuple[float, str]] = {}
    for (metric, ahead, _, words), p in zip(tested, corrected, strict=True):
        if p < _ALPHA and ahead > best.get(metric, (0.0, ""))[0]:
            best[metric] = ahead, f"{words}, {p_words(p)})"
    listing = _and(f"by {words}" for _, words in best.values()) if best else ""
    return f"Some activation is significantly better than guessing {listing}." if best else ""


def sentences(
    plan: ComparisonPlan,
    summary: pd.DataFrame,
    results: pd.DataFrame,
    scored: pd.DataFrame,
    baselines: pd.DataFrame,
    others_beat: str,
) -> list[str]:
    """Say the summary in sentences, the verdict first; ``others_beat`` is `other_measures`."""
    first, *other_lines = summarise(summary, score=plan.measure.title).splitlines()
    guesses = scored[scored["baseline"] == "guess"]
    lines = [first]
    if "beats_guess" in summary:
        lines = _guess_sentences(plan, first, summary, results, guesses, others_beat)
    lines += _learner_sentences(plan, summary, baselines[baselines["baseline"] != "guess"])
    lines += [*other_lines, _measures_sentence(plan, summary, results, guesses)]
    return [*lines, *_constant_sentences(plan, results)]


def _guess_sentences(
    plan: ComparisonPlan,
    first: str,
    summary: pd.DataFrame,
    results: pd.DataFrame,
    guesses: pd.DataFrame,
    others_beat: str,
) -> list[str]:
    best, metric = summary.iloc[0], plan.guess_metric
    name, label, p = best["activation"], METRICS[plan.task][metric].title, p_words(best["p_guess"])
    mean, score = float(guesses[metric].mean()), _mean_score(results, name, metric)
    guess = f"guessing ({GUESSES[metric]}) has a mean {label} of {mean:.4g}"
    beaten = summary["beats_guess"].astype(bool)
    if best["beats_guess"]:
        lines = [first, f"It is significantly better than guessing ({p}): {guess}."]
        if metric != plan.metric:
            lines[1] = (
                f"It is significantly better than guessing by {label} ({score:.4g}, guessing "
                f"{mean:.4g}, {p})."
            )
            lines += _no_better_words(plan, best, float(guesses[plan.metric].mean()))
        short = f"Not significantly better than guessing at the {100 * _ALPHA:g} % level"
        return lines + _beating_words(short, summary[~beaten])
    none = f"{name}, which has the best mean, is not significantly better than guessing by {label}"
    if not beaten.any():
        none = f"No activation is significantly better than guessing by {label}"
    n, k = len(summary), int(best["n_resamples"])
    if plan.test == "wilcoxon" and n * 2.0 ** (1 - k) >= _ALPHA:
        why = (
            f"with {k} resamples the Wilcoxon test cannot find a significant difference for "
            f"{counted(n, 'activation')}"
        )
    elif plan.is_better(score, mean, metric):
        why = f"{name} is not significantly different from it ({p})"
    else:
        why = f"{name} has {score:.4g}"
    return [
        f"{none}: {guess}, and {why}.",
        *([others_beat] if others_beat else ()),
        f"Among the activations, {first}",
        *_beating_words("Significantly better than guessing", summary[beaten]),
    ]


def _no_better_words(plan: ComparisonPlan, best: pd.Series, guess: float) -> list[str]:
    """Sentence for a guess that is as good by a metric of predicted labels."""
    if plan.is_better(best["mean"], guess):
        return []
    return [
        f"By {plan.measure.title}, guessing ({GUESSES[plan.metric]}) is at least as good, with "
        f"{guess:.4g}. For imbalanced classes, compare by roc_auc, average_precision or log_loss."
    ]


def _measures_sentence(
    plan: ComparisonPlan, summary: pd.DataFrame, results: pd.DataFrame, guesses: pd.DataFrame
) -> str:
    """Give the best activation's mean by the other measures, and their units."""
    best = summary["activation"].iloc[0]
    scores_listed: list[str] = []
    units: dict[str, list[str]] = {}
    for metric, measure in METRICS[plan.task].items():
        score = _mean_score(results, best, metric)
        if metric not in (plan.metric, *NOT_SHOWN) and np.isfinite(score):
            guess = f" (guessing {guesses[metric].mean():.3g})" if len(guesses) else ""
            scores_listed.append(f"{measure.title} {score:.4g}{guess}")
            if measure.unit:
                units.setdefault(measure.unit, []).append(measure.title)
    units_listed = [
        f"{_and(titles)} {'are' if len(titles) > 1 else 'is'} in {unit}"
        for unit, titles in units.items()
    ]
    return f"Other metrics of {best}: {_and(scores_listed)}." + (
        f" {_and(units_listed)}." if units_listed else ""
    )


def _mean_score(results: pd.DataFrame, activation: str, metric: str) -> float:
    return float(results.loc[results["activation"] == activation, metric].mean(skipna=False))


def _beating_words(what: str, rows: pd.DataFrame) -> list[str]:
    names_and_p = (
        f"{name} ({p_words(p)})"
        for name, p in zip(rows["activation"], rows["p_guess"], strict=True)
    )
    return [f"{what}: {', '.join(names_and_p)}."] if len(rows) else []


def _learner_sentences(
    plan: ComparisonPlan, summary: pd.DataFrame, learners: pd.DataFrame
) -> list[str]:
    """Compare the best activation with the trained baselines."""
    best = summary.iloc[0]
    better = learners["mean"].map(lambda mean: plan.is_better(mean, best["mean"]))
    differs = learners["distinguishable"].astype(bool)
    lines = []
    for rows, verdict in (
        (learners[differs & better], f"Better than {best['activation']}"),
        (learners[~differs], f"Baselines not significantly different from {best['activation']}"),
        (learners[differs & ~better], f"Worse than {best['activation']}"),
    ):
        names_and_scores = [
            f"{name} {mean:.4g} ({p_words(p)})"
            for name, mean, p in rows[["baseline", "mean", "p"]].to_numpy()
        ]
        if names_and_scores:
            lines.append(f"{verdict}: {', '.join(names_and_scores)}.")
    return lines


def _constant_sentences(plan: ComparisonPlan, results: pd.DataFrame) -> list[str]:
    """Name the networks that give the same answer to all rows."""
    counts = results.groupby("activation", sort=False)["constant"].sum()
    n_fits = len(plan.splits) * plan.seeds
    answer = "the same class" if plan.task == "classification" else "nearly the same number"
    if not counts.any():
        return []
    if (counts == n_fits).all():
        which = f"All {counts.sum()} networks"
    else:
        which = "Networks of " + _and(
            f"{name} ({n} of {n_fits})" for name, n in counts.items() if n
        )
    return [f"{which} predict {answer} for every row of their test fold."]


def _and(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


# ---- Compare activations on a table: which is best, and is the difference real? ------------------


def run_comparison(
    plan: ComparisonPlan,
    *,
    progress: Progress | bool | None = None,
    refit: bool = True,
    n_jobs: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> ActivationComparison:
    """Train and score all networks of a plan, and compare the activations.

    Parameters
    ----------
    plan : ComparisonPlan
        Result of `plan_comparison`.
    progress : callable or bool, optional
        True shows a bar on a terminal, or a line in a notebook, with the time left. A callable is
        called after each epoch with the number of networks trained so far, in fractions: 3.5 when 7
        networks are half-way. With ``refit`` it ends at ``n_networks + 1``. By default nothing is
        shown.
    refit : bool, default=True
        Fit the best activation's network to all rows.
    n_jobs : int, optional
        Number of stacks that are trained at the same time, in threads or with joblib's current
        backend, each with its share of the cores. More than one is faster for small networks, which
        do not use several cores. None is one stack, or all workers of a cluster (``"dask"``,
        ``"ray"``). A callable ``progress`` is called from the threads, one call at a time. If a
        worker process of ``"loky"`` dies, the remaining stacks are trained in this process, with a
        RuntimeWarning; ``"multiprocessing"`` would wait forever. If a worker of a cluster dies,
        another one trains its stack.
    checkpoint : path, optional
        File to which scores are added as soon as a stack is trained. If it exists, its scores are
        reused and only the other networks are trained, so that an interrupted comparison continues
        with the same results. The file is not deleted. If it can no longer be written, the
        comparison continues with a warning.

    Returns
    -------
    ActivationComparison

    Raises
    ------
    ComparisonError
        If no activation could be trained in all folds, the best one could not be refitted, or
        ``checkpoint`` cannot be read or belongs to other data, settings or versions.
    KeyboardInterrupt
        If the user interrupts: half-trained networks are not compared.
    RuntimeError
        If the scheduler of a cluster cannot be reached, the workers of a stack die each time, or a
        worker has another version of the package or of torch.
    """
    journal = Journal(checkpoint, plan)
    with progress_bar(progress, plan.data, plan.n_networks, refit) as report:
        counter = _NetworkCounter(report)
        scored, refused = _score_baselines(plan, journal)
        results, errors = _train_and_score(plan, journal, counter, n_jobs)
        complete = [name for name in plan.activations if name not in errors]
        if not complete:
            raise ComparisonError(
                f"no activation could be trained in all folds: {next(iter(errors.values()))}"
            )
        summary = compare_with_best(
            results[results["activation"].isin(complete)],
            score=plan.metric,
            n_train=plan.n_train,
            n_test=plan.n_test,
            greater_is_better=plan.measure.greater_is_better,
            test=plan.test,
        )
        # Student's interval knows no bounds; where the score cannot lie, its mean cannot either
        ends = ["low", "high"]
        summary[ends] = summary[ends].clip(plan.measure.low, plan.measure.high)
        summary, baselines = judge(plan, summary, results, scored)
        best = str(summary["activation"].iloc[0])
        estimator = _refit(plan, best, counter) if refit else None
    trained = results[results["activation"].isin(complete)]
    others_beat = other_measures(plan, summary, trained, scored)
    words = sentences(plan, summary, trained, scored, baselines, others_beat)
    return ActivationComparison(
        data=plan.data,
        task=plan.task,
        metric=plan.metric,
        results=results,
        summary=summary,
        sentences="\n".join([*words, *_left_out_sentences(plan, results, errors, refused)]),
        best=best,
        best_estimator=estimator,
        settings=plan.settings | plan.estimator_params,
        baselines=baselines,
        baseline_results=scored,
        other_measures=others_beat,
        guess_metric=plan.guess_metric,
    )


def _score_baselines(plan: ComparisonPlan, journal: Journal) -> tuple[pd.DataFrame, dict[str, str]]:
    """All baselines' scores by fold, and of each that failed its first error."""
    records = []
    for name in plan.baselines:
        for fold in range(len(plan.splits)):
            what: dict[str, Any] = {"baseline": name, "fold": fold}
            record = journal.get(**what)
            if record is None:
                record = what | score_baseline(plan, name, fold)
                journal.add([record])
            records.append(record)
    return _tabulated(plan, records, ["baseline", "fold"], ["seconds"])


def _tabulated(
    plan: ComparisonPlan, records: Sequence[Record], what: list[str], also: list[str]
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Scores of fits as a table, and the first error of each model that has one."""
    table = pd.DataFrame(records, columns=[*what, *METRICS[plan.task], *also, "error"])
    sizes = np.array([[len(part) for part in split] for split in plan.splits])
    n_train, n_test = sizes[table["fold"].astype(int)].T
    table.insert(0, "data", plan.data)
    table.insert(len(what) + 1, "n_train", n_train)
    table.insert(len(what) + 2, "n_test", n_test)
    failed = table.dropna(subset="error").drop_duplicates(what[0])
    errors = dict(zip(failed[what[0]], failed["error"], strict=True))
    return table.drop(columns="error"), errors


def _train_and_score(
    plan: ComparisonPlan, journal: Journal, counter: _NetworkCounter, n_jobs: int | None
) -> tuple[pd.DataFrame, dict[str, str]]:
    """All fits' scores, and of each activation with a failed fit its first error."""
    train = [plan.rows(rows) for rows, _ in plan.splits]
    test = [plan.rows(rows) for _, rows in plan.splits]
    groups = [plan.groups_of(rows) for rows, _ in plan.splits]
    keys: list[dict[str, Any]] = [
        {"activation": name, "fold": fold, "seed": seed}
        for name in plan.activations
        for fold in range(len(plan.splits))
        for seed in range(plan.seeds)
    ]
    records = [journal.get(**key) for key in keys]
    stored = {i for i, record in enumerate(records) if record is not None}
    tasks = [
        FitTask(plan.estimator(name, fold, seed), X, y, data_key=fold, groups=groups[fold])
        for name, fold, seed in (key.values() for key in keys)
        for X, y in (train[fold],)
    ]
    bugs: list[Exception] = []

    def keep(outcomes: Mapping[int, FitOutcome]) -> None:
        new = []
        for i, outcome in outcomes.items():
            key, estimator = keys[i], tasks[i].estimator
            if i not in stored:
                try:
                    scores = _scored_record(plan, estimator, outcome, *test[key["fold"]])
                except Exception as bug:  # raised once the others are kept
                    bugs.append(bug)
                    continue
                new.append(key | scores)
                records[i] = new[-1]
            estimator.__dict__.clear()  # let go: all networks' copies take memory
        journal.add(new)

    one_by_one = n_jobs == 1 or (n_jobs is None and not on_cluster())
    callbacks, jobs = ([counter], None) if one_by_one else ([], n_jobs)
    with warnings.catch_warnings():  # the results say which networks answer one thing ("constant")
        warnings.filterwarnings("ignore", "The classifier predicts class", ConvergenceWarning)
        fit_stacked(
            tasks,
            n_jobs=jobs,
            callbacks=callbacks,
            on_progress=counter.count,
            on_fitted=keep,
            skip=stored,
        )
    if bugs:
        raise bugs[0]
    done = [record for record in records if record is not None]
    return _tabulated(plan, done, ["activation", "fold", "seed"], ["seconds", "epochs", "constant"])


def _scored_record(
    plan: ComparisonPlan, estimator: BaseMLP, outcome: FitOutcome, X: Any, y: np.ndarray
) -> dict[str, Any]:
    """Make the record of a fit. A ValueError is in it: the network diverged; others are raised."""
    scores: dict[str, float] = dict.fromkeys(METRICS[plan.task], np.nan)
    error, constant = outcome.error, False
    if error is None:
        try:
            with expecting_later_rows():
                scores, constant = score_network(estimator, X, y, plan.target_std, plan.positive)
        except ValueError as diverged:
            error = diverged
    if error is not None and not isinstance(error, ValueError):
        raise error
    return {
        **scores,
        "seconds": outcome.seconds,
        "epochs": getattr(estimator, "n_iter_", 0),
        "constant": constant,
        "error": None if error is None else one_line(error),
    }


def _left_out_sentences(
    plan: ComparisonPlan, results: pd.DataFrame, errors: dict[str, str], refused: dict[str, str]
) -> list[str]:
    n_fits = len(plan.splits) * plan.seeds
    failed = results.loc[results[plan.metric].isna(), "activation"].value_counts()
    return [
        *(
            f"{name} is left out, because {failed[name]} of its {n_fits} fits failed: {error}"
            for name, error in errors.items()
        ),
        *(f"The baseline {name} is left out: {error}" for name, error in refused.items()),
    ]


def _refit(plan: ComparisonPlan, activation: str, counter: _NetworkCounter) -> BaseMLP:
    estimator = plan.estimator(activation)
    task = FitTask(estimator, plan.X, plan.y, "all", groups=plan.groups_of(np.arange(len(plan.y))))
    (outcome,) = fit_stacked([task], callbacks=[counter])
    if outcome.error is not None:
        raise ComparisonError(
            f"{activation} could not be fitted to all rows: {one_line(outcome.error)}"
        ) from outcome.error
    return estimator


def compare_activations(
    X: Any,
    y: Any,
    *,
    task: Literal["auto", "classification", "regression"] = "auto",
    activations: Sequence[str] | Mapping[str, ActivationSpec] | None = None,
    seeds: int = 5,
    folds: int = 5,
    epochs: int | None = None,
    hidden: Literal["auto"] | Sequence[int] = "auto",
    scoring: str | None = None,
    test: Literal["corrected-t", "wilcoxon"] = "corrected-t",
    device: str = "auto",
    random_state: int = 0,
    estimator_params: Mapping[str, Any] | None = None,
    baselines: str | Sequence[str] | None = BASELINES,
    recipe: Recipe = "default",
    name: str = "data",
    progress: Progress | bool | None = None,
    refit: bool = True,
    n_jobs: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    cv: Any = None,
    groups: Any = None,
) -> ActivationComparison:
    """Compare activation functions on one table by cross-validation over several seeds.

    The networks of all activations, folds and seeds are trained together. Folds are stratified by
    class (regression: shuffled) and are the same for every activation. The preprocessing is fitted
    on the training rows of each fold. Seeds change initial weights, shuffling and dropout, but not
    the folds. The statistical unit is therefore the fold: scores are averaged over seeds first.

    Parameters
    ----------
    X : DataFrame or array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Target without missing values, and not constant. Without ``cv`` and ``groups``, a class with
        fewer rows than folds is missing from some test folds, with a warning, and a class with a
        single row raises an error. With them, a class that a fold is tested on but not trained on
        raises an error.
    task : {"auto", "classification", "regression"}, default="auto"
        Kind of target. ``"auto"`` uses `combutab.preprocessing.infer_task`.
    activations : sequence of names, or dict of name -> activation, optional
        Activations to compare: names in ``ACTIVATIONS``, ``"pln-N"`` or ``"pls-N"``. Values of a
        dict can also be callables width -> nn.Module. The default is ``DEFAULT_ACTIVATIONS``: the
        seven of the CombU paper, PLN-4 and the two LayerActs.
    seeds, folds : int, default=5
        Number of seeds per fold, and of folds.
    epochs : int, optional
        Number of epochs. With ``recipe="default"`` it is the maximum, because networks stop early;
        the default is the estimators' ``max_iter``. With ``recipe="paper"`` all epochs are trained;
        the default is 80. For more than 3,500 training rows it is the number of epochs of about 600
        optimizer steps, but at least 20.
    hidden : "auto" or sequence of int, default="auto"
        Number of units in each hidden layer. ``"auto"`` uses the sizes of the recipe.
    scoring : str, optional
        Metric: roc_auc, log_loss, accuracy, balanced_accuracy, average_precision, f1 or f1_macro;
        r2, mae, rmse, mse or mape. The default is r2 for regression and accuracy for
        classification; if one class has more than two thirds of the rows, it is roc_auc (log_loss
        if a class is missing from a test fold).
    test : {"corrected-t", "wilcoxon"}, default="corrected-t"
        Test of each activation against the best one, with Holm's adjustment.
    device : str, default="auto"
        Device of the training: ``"auto"`` (a GPU if there is one), ``"cpu"`` or ``"cuda"``.
    random_state : int, default=0
        Seed of the folds and of all networks.
    estimator_params : dict, optional
        Other parameters of the estimators, such as ``{"dropout": 0.0}``. Parameters that the
        comparison sets raise an error: ``activation`` (use ``activations``),
        ``hidden_layer_sizes`` (``hidden``), ``max_iter`` and ``n_iter_no_change`` (``epochs``),
        ``callbacks`` (``progress``), ``random_state`` and ``device``.
    baselines : sequence of str, default=("guess", "linear", "boosting")
        Models to compare the networks with, on the same folds and encoded columns: scikit-learn's
        DummyClassifier or DummyRegressor, LogisticRegression or Ridge, and HistGradientBoosting,
        once per fold. An activation that is not significantly better than the guess is not reported
        as the winner. This test uses ROC AUC instead of accuracy, balanced accuracy and F1, which
        have little power for imbalanced classes, if every test fold has every class. None or () for
        no baselines.
    recipe : {"default", "paper"}, default="default"
        Networks in which the activations are compared: those of the estimators' default parameters,
        with early stopping, or those of the CombU paper (`paper_recipe`), which are trained for a
        fixed number of epochs. In both cases there is one network per seed.
    name : str, default="data"
        Name of the data set in ``results``.
    progress, refit, n_jobs, checkpoint
        As in `run_comparison`.
    cv : scikit-learn splitter, iterable of (train, test) rows, or array-like, optional
        Splits to use instead of ``folds``, such as ``TimeSeriesSplit(5)`` for a time series. An
        array has the number of the test fold of each row. The guide's chapter on statistics has the
        assumptions of the tests for such splits.
    groups : array-like of shape (n_samples,), optional
        Group of each row, such as its customer. Rows of a group are in the same fold. Without
        ``cv`` they are split into ``folds`` folds, for classification with the classes as balanced
        as possible.

    Returns
    -------
    ActivationComparison

    Raises
    ------
    ComparisonError
        If the data or a setting does not allow the comparison. It is a ValueError with a message of
        one line. `run_comparison` raises further errors.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> found = compare_activations(X, y, activations=["relu", "combu"], seeds=2, folds=3,
    ...                             epochs=5, hidden=[16])
    >>> found.task, found.metric, len(found.results)
    ('classification', 'accuracy', 12)
    >>> sorted(found.summary["activation"])
    ['combu', 'relu']
    """
    plan = plan_comparison(
        X,
        y,
        task=task,
        activations=activations,
        seeds=seeds,
        folds=folds,
        epochs=epochs,
        hidden=hidden,
        scoring=scoring,
        test=test,
        device=device,
        random_state=random_state,
        estimator_params=estimator_params,
        baselines=baselines,
        recipe=recipe,
        name=name,
        cv=cv,
        groups=groups,
    )
    return run_comparison(
        plan, progress=progress, refit=refit, n_jobs=n_jobs, checkpoint=checkpoint
    )
