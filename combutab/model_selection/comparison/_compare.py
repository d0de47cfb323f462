"""Compare activations on a table: which is best, and is the difference real?"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from combutab._parallel import on_cluster
from combutab.estimators import BaseMLP, FitOutcome, FitTask, fit_stacked
from combutab.evaluation import compare_with_best
from combutab.model_selection._scores import METRICS, grade
from combutab.model_selection.comparison._baselines import score_baseline
from combutab.model_selection.comparison._found import ActivationComparison
from combutab.model_selection.comparison._journal import Journal
from combutab.model_selection.comparison._plan import (
    BASELINES,
    ComparisonError,
    ComparisonPlan,
    Recipe,
    plan_comparison,
)
from combutab.model_selection.comparison._progress import Progress, Watch, shown_progress
from combutab.model_selection.comparison._verdict import judge, sentences
from combutab.nn import ActivationSpec


def run_comparison(
    plan: ComparisonPlan,
    *,
    progress: Progress | bool | None = None,
    refit: bool = True,
    n_jobs: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> ActivationComparison:
    """Train all networks of a plan, score and compare them.

    Parameters
    ----------
    plan : ComparisonPlan
    progress : callable or bool, optional
        True draws a bar on a terminal, or a line in a notebook, with the time that is left. A
        callable is called after each epoch with the number of networks trained so far, in
        fractions: 3.5 once 7 are half-way. With ``refit`` it ends at ``n_networks + 1``.
    refit : bool, default=True
        Fit the best activation's network to all rows.
    n_jobs : int, optional
        Stacks that train at the same time, each in a thread (or as joblib's current backend says)
        with its share of the cores. Small networks do not fill several cores otherwise. A callable
        ``progress`` is then called from these threads, one at a time. Where a worker process of
        ``"loky"`` dies, a RuntimeWarning says so and what is left trains in this one;
        ``"multiprocessing"`` would wait for ever. On a cluster (``"dask"``, ``"ray"``) None is all
        its workers, and what a worker died with is trained by another.
    checkpoint : path, optional
        A file that scores are added to as stacks of networks are finished. If it is there, its
        scores are taken over and the other networks trained: what was interrupted or killed goes
        on, with the same results. It is left in place.

    Raises
    ------
    ComparisonError
        If no activation could be trained in all folds, or ``checkpoint`` is of other data,
        settings or versions.
    KeyboardInterrupt
        If the user interrupts: a comparison of half-trained networks says nothing.
    RuntimeError
        If a cluster's scheduler is gone, a stack's workers die each time, or a worker has another
        version of the package or of torch.
    """
    journal = Journal(checkpoint, plan)
    with shown_progress(progress, plan.data, plan.n_networks + refit) as show:
        watch = Watch(show)
        scored, refused = _score_baselines(plan, journal)
        results, errors = _train_and_score(plan, journal, watch, n_jobs)
        complete = [name for name in plan.activations if name not in errors]
        if not complete:
            raise ComparisonError(
                f"no activation could be trained in all folds: {next(iter(errors.values()))}"
            )
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
        summary, baselines = judge(plan, summary, results, scored)
        best = str(summary["activation"].iloc[0])
        estimator = _refit(plan, best, watch) if refit else None
    words = sentences(plan, summary, results[results["activation"].isin(complete)], baselines)
    return ActivationComparison(
        data=plan.data,
        task=plan.task,
        metric=plan.metric,
        results=results,
        summary=summary,
        sentences="\n".join([*words, *_left_out(plan, results, errors, refused)]),
        best=best,
        best_estimator=estimator,
        settings={
            "recipe": plan.recipe,
            "seeds": plan.seeds,
            "folds": len(plan.splits),
            "epochs": plan.epochs,
            "hidden": plan.hidden,
            "test": plan.test,
            "device": plan.device,
            "random_state": plan.random_state,
            "baselines": plan.baselines,
            **plan.estimator_params,
        },
        baselines=baselines,
        baseline_results=scored,
    )


def _score_baselines(plan: ComparisonPlan, journal: Journal) -> tuple[pd.DataFrame, dict[str, str]]:
    """All baselines' scores by fold, and of each that failed its first error."""
    rows: list[dict[str, Any]] = []
    errors: dict[str, str] = {}
    for name in plan.baselines:
        for fold, (train, test) in enumerate(plan.splits):
            what: dict[str, Any] = {"baseline": name, "fold": fold}
            record = journal.get(**what)
            if record is None:
                record = what | score_baseline(plan, name, fold)
                journal.add([record])
            sizes = {"n_train": len(train), "n_test": len(test)}
            scores = {part: record[part] for part in (*METRICS[plan.task], "seconds")}
            rows.append({"data": plan.data, **what, **sizes, **scores})
            if record["error"] is not None:
                errors.setdefault(name, str(record["error"]))
    head = ["data", "baseline", "fold", "n_train", "n_test", *METRICS[plan.task], "seconds"]
    return pd.DataFrame(rows, columns=head), errors


def _train_and_score(
    plan: ComparisonPlan, journal: Journal, watch: Watch, n_jobs: int | None
) -> tuple[pd.DataFrame, dict[str, str]]:
    """All fits' scores, and of each activation with a failed fit its first error."""
    train = [plan.rows(rows) for rows, _ in plan.splits]
    test = [plan.rows(rows) for _, rows in plan.splits]
    places: list[dict[str, Any]] = [
        {"activation": name, "fold": fold, "seed": seed}
        for name in plan.activations
        for fold in range(len(plan.splits))
        for seed in range(plan.seeds)
    ]
    records = [journal.get(**place) for place in places]
    kept = {i for i, record in enumerate(records) if record is not None}
    tasks = [
        FitTask(plan.estimator(name, fold, seed), X, y, data_key=fold)
        for name, fold, seed in (place.values() for place in places)
        for X, y in (train[fold],)
    ]
    bugs: list[Exception] = []

    def keep(outcomes: Mapping[int, FitOutcome]) -> None:
        new = []
        for i, outcome in outcomes.items():
            place, estimator = places[i], tasks[i].estimator
            if i not in kept:
                try:
                    scores = _score(plan, estimator, outcome, *test[place["fold"]])
                except Exception as bug:  # fit_stacked would train anew
                    bugs.append(bug)
                    continue
                new.append(place | scores)
                records[i] = new[-1]
            estimator.__dict__.clear()  # let go: all networks' copies take memory
        journal.add(new)

    one_by_one = n_jobs == 1 or (n_jobs is None and not on_cluster())
    callbacks, jobs = ([watch], None) if one_by_one else ([], n_jobs)
    with warnings.catch_warnings():  # the results say which networks answer one thing ("constant")
        warnings.filterwarnings("ignore", "The classifier answers class", ConvergenceWarning)
        fit_stacked(
            tasks,
            n_jobs=jobs,
            callbacks=callbacks,
            on_progress=watch.tell,
            on_fitted=keep,
            skip=kept,
        )
    if bugs:
        raise bugs[0]
    rows: list[dict[str, Any]] = []
    errors: dict[str, str] = {}
    for place, record in zip(places, records, strict=True):
        assert record is not None
        if record["error"] is not None:
            errors.setdefault(place["activation"], record["error"])
        sizes = {"n_train": len(train[place["fold"]][1]), "n_test": len(test[place["fold"]][1])}
        parts = (*METRICS[plan.task], "seconds", "epochs", "constant")
        rows.append({"data": plan.data, **place, **sizes, **{p: record[p] for p in parts}})
    return pd.DataFrame(rows), errors


def _score(
    plan: ComparisonPlan, estimator: BaseMLP, outcome: FitOutcome, X: Any, y: np.ndarray
) -> dict[str, Any]:
    """Make the record of a fit. A ValueError is in it: the network diverged; others are raised."""
    scores: dict[str, float] = dict.fromkeys(METRICS[plan.task], np.nan)
    error, constant = outcome.error, False
    if error is None:
        try:
            scores, constant = grade(estimator, X, y, plan.target_std)
        except ValueError as diverged:
            error = diverged
    if error is not None and not isinstance(error, ValueError):
        raise error
    return {
        **scores,
        "seconds": outcome.seconds,
        "epochs": getattr(estimator, "n_iter_", 0),
        "constant": constant,
        "error": None if error is None else _one_line(error),
    }


def _left_out(
    plan: ComparisonPlan, results: pd.DataFrame, errors: dict[str, str], refused: dict[str, str]
) -> list[str]:
    n_fits = len(plan.splits) * plan.seeds
    failed = results.loc[results[plan.metric].isna(), "activation"].value_counts()
    return [
        *(
            f"{name} is left out, {failed[name]} of its {n_fits} fits failed: {error}"
            for name, error in errors.items()
        ),
        *(f"The baseline {name} is left out: {error}" for name, error in refused.items()),
    ]


def _refit(plan: ComparisonPlan, activation: str, watch: Watch) -> BaseMLP:
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
    baselines: str | Sequence[str] | None = BASELINES,
    recipe: Recipe = "paper",
    name: str = "data",
    progress: Progress | bool | None = None,
    refit: bool = True,
    n_jobs: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
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
        the optimiser take, but at least 20. Of ``recipe="default"`` the estimators' ``max_iter``.
    hidden : "auto" or sequence of int, default="auto"
        Hidden layers; ``"auto"`` is the recipe's rule for the folds' number of training rows.
    metric : str, optional
        What to compare by: accuracy (default), f1, log_loss or roc_auc; r2 (default), mae or mse.
    test : {"corrected-t", "wilcoxon"}, default="corrected-t"
        Against the best, with Holm's correction.
    device : str, default="auto"
    random_state : int, default=0
        Of the folds and of every network's seed.
    estimator_params : dict, optional
        Other parameters of the estimators, such as ``{"dropout": 0.0}``.
    baselines : sequence of str, default=("guess", "linear", "boosting")
        What the networks are measured against, on the same folds and the same encoded columns:
        scikit-learn's DummyClassifier or DummyRegressor, LogisticRegression or Ridge, and
        HistGradientBoosting, once a fold. An activation that does not beat the guess is no winner.
        None or () for none.
    recipe : {"paper", "default"}, default="paper"
        The networks that the activations are compared in: the CombU paper's (`paper_recipe`), or
        the estimators' defaults, which take longer. Either way all epochs are trained.
    name : str, default="data"
        What ``results`` calls the data set.
    progress, refit, n_jobs, checkpoint
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
        baselines=baselines,
        recipe=recipe,
        name=name,
    )
    return run_comparison(
        plan, progress=progress, refit=refit, n_jobs=n_jobs, checkpoint=checkpoint
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
