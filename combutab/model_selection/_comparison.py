"""Compare activations or models on a table: which is best, and is the difference significant?"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import has_fit_parameter

from combutab.core.metrics import METRICS
from combutab.core.parallel import on_cluster
from combutab.core.progress import bar_width, left_column, make_bar
from combutab.core.text import one_line
from combutab.estimators import FitOutcome, FitTask, fit_stacked
from combutab.evaluation import compare_with_best
from combutab.model_selection._baselines import judge, score_baseline
from combutab.model_selection._journal import Journal, Record
from combutab.model_selection._models import DEFAULT_MODELS, is_network, score_estimator
from combutab.model_selection._plan import (
    BASELINES,
    ComparisonPlan,
    Recipe,
    plan_comparison,
)
from combutab.model_selection._result import ModelComparison
from combutab.model_selection._sentences import other_measures, sentences, write_advice
from combutab.model_selection._target import ComparisonError
from combutab.nn import ActivationSpec
from combutab.preprocessing import expecting_later_rows
from combutab.training import Callback, EpochReport


def run_comparison(
    plan: ComparisonPlan,
    *,
    progress: Progress | bool | None = None,
    refit: bool = True,
    n_jobs: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> ModelComparison:
    """Train and score all activations or models of a plan, and compare them.

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
    ModelComparison

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
    with progress_bar(progress, plan.data, plan.n_networks, plan.fit_noun, refit) as report:
        counter = NetworkCounter(report)
        scored, refused = _score_baselines(plan, journal)
        results, errors = _train_and_score(plan, journal, counter, n_jobs)
        complete = [name for name in plan.names if name not in errors]
        if not complete:
            raise ComparisonError(
                f"no {plan.group} could be trained in all folds: {next(iter(errors.values()))}"
            )
        trained = results[results[plan.group].isin(complete)]
        summary, baselines = judge(plan, _summarise(plan, trained), results, scored)
        best = str(summary.iloc[0, 0])
        estimator = _refit(plan, best, counter) if refit else None
    others_beat = other_measures(plan, summary, trained, scored)
    words = sentences(plan, summary, trained, scored, baselines, others_beat)
    words += _left_out_sentences(plan, results, errors, refused)
    advice = write_advice(summary, baselines, plan.measure.greater_is_better)
    return ModelComparison(
        data=plan.data,
        task=plan.task,
        metric=plan.metric,
        results=results,
        summary=summary,
        sentences="\n".join([*words, f"Advice: {advice}"]),
        best=best,
        best_estimator=estimator,
        settings=plan.settings | plan.estimator_params,
        baselines=baselines,
        baseline_results=scored,
        other_measures=others_beat,
        guess_metric=plan.guess_metric,
    )


def _summarise(plan: ComparisonPlan, results: pd.DataFrame) -> pd.DataFrame:
    """Test each activation or model against the best one."""
    summary = compare_with_best(
        results,
        score=plan.metric,
        group=plan.group,
        n_train=plan.n_train,
        n_test=plan.n_test,
        greater_is_better=plan.measure.greater_is_better,
        test=plan.test,
    )
    # Student's interval can exceed the range of a score, but its mean cannot.
    ends = ["low", "high"]
    summary[ends] = summary[ends].clip(plan.measure.low, plan.measure.high)
    return summary


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


@dataclass
class _Fits:
    """The fits of a comparison: their keys, tasks, and the records of those that are scored."""

    plan: ComparisonPlan
    journal: Journal
    keys: list[dict[str, Any]]
    tasks: list[FitTask]
    records: list[Record | None]
    bugs: list[Exception] = field(default_factory=list)

    def store(self, outcomes: Mapping[int, FitOutcome]) -> None:
        """Score the estimators at these positions, and add the scores to the journal."""
        new_records = []
        for i, outcome in outcomes.items():
            key, estimator = self.keys[i], self.tasks[i].estimator
            if self.records[i] is None:
                test = self.plan.rows(self.plan.splits[key["fold"]][1])
                try:
                    scores = _scored_record(self.plan, estimator, outcome, *test)
                except Exception as bug:  # raised once the others are stored
                    self.bugs.append(bug)
                    continue
                new_records.append(key | scores)
                self.records[i] = new_records[-1]
            estimator.__dict__.clear()  # free the memory of the model
        self.journal.add(new_records)

    def train_stacks(self, positions: list[int], counter: NetworkCounter, n_jobs: Any) -> None:
        """Train networks together in stacks."""
        one_by_one = n_jobs == 1 or (n_jobs is None and not on_cluster())
        fit_stacked(
            [self.tasks[i] for i in positions],
            n_jobs=None if one_by_one else n_jobs,
            callbacks=[counter] if one_by_one else [],
            on_progress=counter.count,
            on_fitted=lambda outcomes: self.store({positions[i]: o for i, o in outcomes.items()}),
            skip={i for i, position in enumerate(positions) if self.records[position] is not None},
        )

    def train_one(self, position: int) -> None:
        """Train a model that is not trained in a stack."""
        if self.records[position] is None:
            self.store({position: _fit_model(self.tasks[position])})


def _train_and_score(
    plan: ComparisonPlan, journal: Journal, counter: NetworkCounter, n_jobs: int | None
) -> tuple[pd.DataFrame, dict[str, str]]:
    """All fits' scores, and of each activation or model with a failed fit its first error."""
    train = [plan.rows(rows) for rows, _ in plan.splits]
    groups = [plan.groups_of(rows) for rows, _ in plan.splits]
    keys: list[dict[str, Any]] = [
        {plan.group: name, "fold": fold, "seed": seed}
        for name in plan.names
        for fold in range(len(plan.splits))
        for seed in range(plan.seeds)
    ]
    tasks = [
        FitTask(plan.estimator(name, fold, seed), X, y, data_key=fold, groups=groups[fold])
        for name, fold, seed in (key.values() for key in keys)
        for X, y in (train[fold],)
    ]
    fits = _Fits(plan, journal, keys, tasks, [journal.get(**key) for key in keys])
    networks = [i for i, task in enumerate(tasks) if is_network(task.estimator)]
    stacks = counter
    if plan.models:  # a model can have several networks: progress counts its fits
        stacks = NetworkCounter(lambda done: None)
    with warnings.catch_warnings():  # the results say which networks are constant
        warnings.filterwarnings("ignore", "The classifier predicts class", ConvergenceWarning)
        if networks:
            fits.train_stacks(networks, stacks, n_jobs)
        n_finished = len(networks)
        for position in sorted(set(range(len(tasks))) - set(networks)):
            counter.count(n_finished)
            fits.train_one(position)
            n_finished += 1
    if plan.models:
        counter.count(len(tasks))
    if fits.bugs:
        raise fits.bugs[0]
    records = [record for record in fits.records if record is not None]
    columns = ["seconds", "constant"] if plan.models else ["seconds", "epochs", "constant"]
    return _tabulated(plan, records, [plan.group, "fold", "seed"], columns)


def _fit_model(task: FitTask) -> FitOutcome:
    """Fit an estimator; a ValueError is in the outcome, other errors are raised."""
    outcome, started = FitOutcome(0.0), time.perf_counter()
    groups = {}
    if task.groups is not None and has_fit_parameter(task.estimator, "groups"):
        groups["groups"] = task.groups
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Training interrupted", UserWarning)
        try:
            task.estimator.fit(task.X, task.y, **groups)
        except UserWarning as warning:
            if "Training interrupted" in str(warning):
                raise KeyboardInterrupt from None
            raise
        except ValueError as error:
            outcome.error = error
    outcome.seconds = time.perf_counter() - started
    return outcome


def _scored_record(
    plan: ComparisonPlan, estimator: Any, outcome: FitOutcome, X: Any, y: np.ndarray
) -> dict[str, Any]:
    """Make the record of a fit. A ValueError is in it: the model diverged; others are raised."""
    scores: dict[str, float] = dict.fromkeys(METRICS[plan.task], np.nan)
    error, constant = outcome.error, False
    if error is None:
        try:
            with expecting_later_rows():
                scores, constant = score_estimator(
                    estimator, X, y, plan.task, plan.target_std, plan.positive
                )
        except ValueError as diverged:
            error = diverged
    if error is not None and not isinstance(error, ValueError):
        raise error
    return {
        **scores,
        "seconds": outcome.seconds,
        "epochs": getattr(estimator, "n_iter_", 0) if plan.activations else 0,
        "constant": constant,
        "error": None if error is None else one_line(error),
    }


def _left_out_sentences(
    plan: ComparisonPlan, results: pd.DataFrame, errors: dict[str, str], refused: dict[str, str]
) -> list[str]:
    n_fits = len(plan.splits) * plan.seeds
    failed = results.loc[results[plan.metric].isna(), plan.group].value_counts()
    return [
        *(
            f"{name} is left out, because {failed[name]} of its {n_fits} fits failed: {error}"
            for name, error in errors.items()
        ),
        *(f"The baseline {name} is left out: {error}" for name, error in refused.items()),
    ]


def _refit(plan: ComparisonPlan, name: str, counter: NetworkCounter) -> Any:
    estimator = plan.estimator(name)
    task = FitTask(estimator, plan.X, plan.y, "all", groups=plan.groups_of(np.arange(len(plan.y))))
    if plan.activations:
        (outcome,) = fit_stacked([task], callbacks=[counter])
    else:
        outcome = _fit_model(task)
        counter.count(plan.n_networks + 1)
    if outcome.error is not None:
        raise ComparisonError(
            f"{name} could not be fitted to all rows: {one_line(outcome.error)}"
        ) from outcome.error
    return estimator


_RUN_ARGUMENTS = ("progress", "refit", "n_jobs", "checkpoint")


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
) -> ModelComparison:
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
    ModelComparison

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
    plan_arguments = dict(locals())
    run_arguments = {name: plan_arguments.pop(name) for name in _RUN_ARGUMENTS}
    return run_comparison(plan_comparison(**plan_arguments), **run_arguments)


def compare_models(
    X: Any,
    y: Any,
    *,
    task: Literal["auto", "classification", "regression"] = "auto",
    models: Sequence[str] | Mapping[str, Any] | None = None,
    seeds: int = 1,
    folds: int = 5,
    scoring: str | None = None,
    test: Literal["corrected-t", "wilcoxon"] = "corrected-t",
    device: str = "auto",
    random_state: int = 0,
    name: str = "data",
    progress: Progress | bool | None = None,
    refit: bool = True,
    n_jobs: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    cv: Any = None,
    groups: Any = None,
) -> ModelComparison:
    """Compare models on one table by cross-validation: a leaderboard with significance tests.

    All models are trained on the same folds, and compared with a guess that ignores the features.

    Parameters
    ----------
    X, y, task, folds, scoring, test, device, name, progress, refit, n_jobs, checkpoint, cv, groups
        As in `compare_activations`. The folds, metrics and tests are the same.
    models : sequence of names, or dict of name -> name or estimator, optional
        "mlp" (MLPClassifier or MLPRegressor), "tabm", "pack", "boosting" (scikit-learn's
        HistGradientBoosting) and "linear" (logistic or ridge regression), with default parameters.
        Boosting and the linear model are fitted to the columns that the networks are trained on.
        Values of a dict can also be unfitted estimators of scikit-learn's API, which are fitted to
        the table as it is; a classifier needs ``predict_proba``. The default is mlp, pack, boosting
        and linear.
    seeds : int, default=1
        Number of fits per fold. Their scores are averaged.
    random_state : int, default=0
        Seed of the folds, and of all parameters ``random_state`` of the models.

    Returns
    -------
    ModelComparison

    Raises
    ------
    ComparisonError
        If the data or a setting does not allow the comparison.
    Exception
        Any error of an estimator in ``models`` that is not a ValueError ends the comparison. Fits
        that were scored before are lost without ``checkpoint``; with it, the next call continues
        after them. After a ValueError the comparison goes on, and leaves this model out.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> models = {"linear": "linear", "neighbors": KNeighborsClassifier()}
    >>> compared = compare_models(X, y, models=models, folds=3)
    >>> compared.summary["model"].tolist()
    ['neighbors', 'linear']
    """
    models = DEFAULT_MODELS if models is None else models
    plan_arguments = {**locals(), "baselines": "guess"}
    run_arguments = {name: plan_arguments.pop(name) for name in _RUN_ARGUMENTS}
    return run_comparison(plan_comparison(**plan_arguments), **run_arguments)


# ---- Progress of a comparison, on a terminal or in a notebook ------------------------------------

Progress = Callable[[float], None]


@contextmanager
def progress_bar(
    progress: Progress | bool | None, data: str, total: int, noun: str, refit: bool
) -> Iterator[Progress]:
    """Yield what to call with the number of finished fits: the user's, or a bar's.

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
        TextColumn(f"{{task.fields[shown]:.0f}}/{total} {noun}s"),
        left_column(),
        transient=True,
    )
    task = bar.add_task(data, total=total + refit, shown=0, end=np.inf)
    with bar:
        yield lambda done: bar.update(task, completed=done, shown=min(done, total))


class NetworkCounter(Callback):
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
        # the loop turns Ctrl-C into early results and would continue with the next stack
        failed = sys.exc_info()[0] is not None
        if not failed and any(result.reason == "interrupted" for result in self.results()):
            raise KeyboardInterrupt
        self.finished += self.n_members
        self.progress(self.finished)
