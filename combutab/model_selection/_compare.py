"""Which activation is best on a table, and is the difference real?"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from combutab.estimators import BaseMLP, FitTask, fit_stacked
from combutab.evaluation import compare_with_best, summarise
from combutab.model_selection._plan import ComparisonError, ComparisonPlan, plan_comparison
from combutab.model_selection._scores import (
    METRICS,
    Metric,
    Task,
    score_classifier,
    score_regressor,
)
from combutab.nn import ActivationSpec
from combutab.preprocessing import RunningMoments
from combutab.training import Callback, EpochReport

Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class ActivationComparison:
    """What `compare_activations` found.

    Attributes
    ----------
    data : str
        Name of the data set.
    task : {"classification", "regression"}
    metric : str
        The column of ``results`` that the activations are compared by.
    results : DataFrame, one row a fit
        data, activation, fold, seed, n_train, n_test, the task's scores (accuracy, f1, log_loss,
        roc_auc; or r2, mae, mse), seconds and epochs. A fit that diverged has no scores.
    summary : DataFrame, one row an activation, the best first
        As from `combutab.evaluation.compare_with_best`; intervals end where the score's range does.
    sentences : str
        The summary in words, one sentence a line.
    best : str
        The activation of the best mean.
    best_estimator : MLPClassifier or MLPRegressor or None
        The best activation's network, fitted to all rows; None where ``refit=False``.
    settings : dict
        What was asked for and what ``"auto"`` became: seeds, folds, epochs, hidden, test, device,
        random_state.
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

    @property
    def measure(self) -> Metric:
        """The metric's name for people, its unit, and which way is better."""
        return METRICS[self.task][self.metric]

    @property
    def design(self) -> str:
        """How the scores came about, for titles."""
        folds, seeds, epochs = (self.settings[name] for name in ("folds", "seeds", "epochs"))
        return (
            f"{folds} folds x {seeds} seed{'s' * (seeds > 1)}, {epochs} epoch{'s' * (epochs > 1)}"
        )


def run_comparison(
    plan: ComparisonPlan,
    *,
    progress: Progress | None = None,
    refit: bool = True,
    n_jobs: int | None = None,
) -> ActivationComparison:
    """Train all networks of a plan, score and compare them.

    Parameters
    ----------
    plan : ComparisonPlan
    progress : callable, optional
        Called after each epoch with the number of networks trained so far, in fractions: 3.5
        once 7 are half-way. With ``refit`` it ends at ``n_networks + 1``.
    refit : bool, default=True
        Fit the best activation's network to all rows.
    n_jobs : int, optional
        Stacks that train at the same time, each in a thread (or as joblib's current backend says)
        with its share of the cores. Small networks do not fill several cores otherwise. Progress
        then comes by the stack. Where a worker process of ``"loky"`` dies, a RuntimeWarning says
        so and all stacks train again in this one; ``"multiprocessing"`` would wait for ever.

    Raises
    ------
    ComparisonError
        If no activation could be trained in all folds.
    KeyboardInterrupt
        If the user interrupts: a comparison of half-trained networks says nothing.
    """
    watch = _Watch(progress or (lambda done: None))
    results, errors = _train_and_score(plan, watch, n_jobs)
    complete = [name for name in plan.activations if name not in errors]
    if not complete:
        error = next(iter(errors.values()))
        raise ComparisonError(
            f"no activation could be trained in all folds: {_one_line(error)}"
        ) from error
    measure = METRICS[plan.task][plan.metric]
    summary = compare_with_best(
        results[results["activation"].isin(complete)],
        score=plan.metric,
        n_train=plan.n_train,
        n_test=plan.n_test,
        greater_is_better=measure.greater_is_better,
        test=plan.test,
    )
    # Student's interval knows no bounds; where the score cannot lie, its mean cannot either
    ends = ["low", "high"]
    summary[ends] = summary[ends].clip(measure.low, measure.high)
    best = str(summary["activation"].iloc[0])
    return ActivationComparison(
        data=plan.data,
        task=plan.task,
        metric=plan.metric,
        results=results,
        summary=summary,
        sentences="\n".join(
            [summarise(summary, score=measure.label), *_left_out(plan, results, errors)]
        ),
        best=best,
        best_estimator=_refit(plan, best, watch) if refit else None,
        settings={
            "seeds": plan.seeds,
            "folds": len(plan.splits),
            "epochs": plan.epochs,
            "hidden": plan.hidden,
            "test": plan.test,
            "device": plan.device,
            "random_state": plan.random_state,
            **plan.estimator_params,
        },
    )


def _train_and_score(
    plan: ComparisonPlan, watch: _Watch, n_jobs: int | None
) -> tuple[pd.DataFrame, dict[str, Exception]]:
    """All fits' scores, and of each activation with a failed fit its first error."""
    train = [plan.rows(rows) for rows, _ in plan.splits]
    test = [plan.rows(rows) for _, rows in plan.splits]
    places = [
        (name, fold, seed)
        for name in plan.activations
        for fold in range(len(plan.splits))
        for seed in range(plan.seeds)
    ]
    tasks = [
        FitTask(plan.estimator(name, fold, seed), *train[fold], data_key=fold)
        for name, fold, seed in places
    ]
    if n_jobs in (None, 1):
        outcomes = fit_stacked(tasks, callbacks=[watch])
    else:
        outcomes = fit_stacked(tasks, n_jobs=n_jobs, on_done=watch.add)
    estimators = deque(task.estimator for task in tasks)
    del tasks
    records: list[dict[str, Any]] = []
    errors: dict[str, Exception] = {}
    for (name, fold, seed), outcome in zip(places, outcomes, strict=True):
        estimator = estimators.popleft()  # let go once scored: all networks' copies take memory
        scores, error = dict.fromkeys(METRICS[plan.task], np.nan), outcome.error
        if error is None:
            try:
                scores = _score(plan, estimator, *test[fold])
            except ValueError as diverged:
                error = diverged
        if error is not None:
            if not isinstance(error, ValueError):
                raise error
            errors.setdefault(name, error)
        records.append(
            {
                "data": plan.data,
                "activation": name,
                "fold": fold,
                "seed": seed,
                "n_train": len(train[fold][1]),
                "n_test": len(test[fold][1]),
                **scores,
                "seconds": outcome.seconds,
                "epochs": getattr(estimator, "n_iter_", 0),
            }
        )
    return pd.DataFrame(records), errors


def _score(plan: ComparisonPlan, estimator: BaseMLP, X: Any, y: np.ndarray) -> dict[str, float]:
    if plan.task == "classification":
        return score_classifier(estimator, X, y)
    moments = RunningMoments(1)
    moments.add(plan.y[:, None].astype(np.float64))
    return score_regressor(estimator, X, y, target_std=float(moments.result().std[0]))


def _left_out(
    plan: ComparisonPlan, results: pd.DataFrame, errors: dict[str, Exception]
) -> list[str]:
    n_fits = len(plan.splits) * plan.seeds
    failed = results.loc[results[plan.metric].isna(), "activation"].value_counts()
    return [
        f"{name} is left out, {failed[name]} of its {n_fits} fits failed: {_one_line(error)}"
        for name, error in errors.items()
    ]


def _refit(plan: ComparisonPlan, activation: str, watch: _Watch) -> BaseMLP:
    estimator = plan.estimator(activation)
    (outcome,) = fit_stacked([FitTask(estimator, plan.X, plan.y, "all")], callbacks=[watch])
    if outcome.error is not None:
        raise ComparisonError(
            f"{activation} could not be fitted to all rows: {_one_line(outcome.error)}"
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
    metric: str | None = None,
    test: Literal["corrected-t", "wilcoxon"] = "corrected-t",
    device: str = "auto",
    random_state: int = 0,
    estimator_params: Mapping[str, Any] | None = None,
    name: str = "data",
    progress: Progress | None = None,
    refit: bool = True,
    n_jobs: int | None = None,
) -> ActivationComparison:
    """Compare activation functions on one table by cross-validation over several seeds.

    All activations x folds x seeds train as stacks, each network for the same fixed number of
    epochs. Folds are stratified by class (regression: shuffled) and the same for every
    activation; preprocessing is fitted inside each fold. Seeds change initial weights, shuffles
    and dropout, not the folds, so the statistical unit is the fold: scores are averaged over
    seeds first.

    Parameters
    ----------
    X : DataFrame or array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Complete and not constant. A class with fewer rows than folds is missing from some test
        folds, with a warning; a class with a single row cannot be both learned and tested.
    task : {"auto", "classification", "regression"}, default="auto"
        ``"auto"`` asks `combutab.preprocessing.infer_task`.
    activations : sequence of names, or dict of name -> activation, optional
        Names in ``ACTIVATIONS``, ``"pln-N"``, ``"pls-N"``; a dict's values may also be callables
        width -> nn.Module. Default: ``DEFAULT_ACTIVATIONS``, the CombU paper's seven with PLN-4
        and the two LayerActs.
    seeds, folds : int, default=5
    epochs : int, optional
        Default: 80; for tables of more than 3,500 training rows as many as about 600 steps of
        the optimiser take, but at least 20.
    hidden : "auto" or sequence of int, default="auto"
        Hidden layers; ``"auto"`` is the estimators' rule for the folds' number of training rows.
    metric : str, optional
        What to compare by: accuracy (default), f1, log_loss or roc_auc; r2 (default), mae or mse.
    test : {"corrected-t", "wilcoxon"}, default="corrected-t"
        Against the best, with Holm's correction.
    device : str, default="auto"
    random_state : int, default=0
        Of the folds and of every network's seed.
    estimator_params : dict, optional
        Other parameters of the estimators, such as ``{"dropout": 0.0}``.
    name : str, default="data"
        What ``results`` calls the data set.
    progress, refit, n_jobs
        As in `run_comparison`.

    Returns
    -------
    ActivationComparison

    Raises
    ------
    ComparisonError
        If the data or a setting does not allow the comparison (a ValueError of one line).

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
        metric=metric,
        test=test,
        device=device,
        random_state=random_state,
        estimator_params=estimator_params,
        name=name,
    )
    return run_comparison(plan, progress=progress, refit=refit, n_jobs=n_jobs)


class _Watch(Callback):
    """Counts networks for the progress, and lets an interrupt end more than one stack."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.finished = 0.0

    def add(self, n_networks: int) -> None:
        """Count networks that another thread has finished."""
        self.finished += n_networks
        self.progress(self.finished)

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        self.n_members, self.max_epochs = n_members, max_epochs
        self.epoch, self.any_finite = 0, True

    def on_epoch_end(self, report: EpochReport) -> None:
        self.epoch = report.epoch
        self.any_finite = bool(np.isfinite(report.train_loss).any())
        self.progress(self.finished + self.n_members * report.epoch / report.max_epochs)

    def on_train_end(self) -> None:
        # The loop turns Ctrl-C into early results and would go on with the next stack. Stacks
        # that neither fail nor diverge as a whole have no other early end here.
        stopped = self.epoch < self.max_epochs and self.any_finite
        if stopped and sys.exc_info()[0] is None:
            raise KeyboardInterrupt
        self.add(self.n_members)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
