"""Efficacy of synthetic tables for learning: train on synthetic, test on real."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from combutab.core.device import limit_openmp, tree_threads
from combutab.core.metrics import METRICS
from combutab.core.parallel import gathered
from combutab.core.rng import seed_from
from combutab.core.scorers import positive_class, score_predictions
from combutab.core.scores import as_positive, class_scores
from combutab.evaluation._alignment import AlignedTables, align_tables
from combutab.preprocessing import Table, TableEncoder, UnlearnedWarning, infer_task

# ---- The models that `ml_efficacy` trains, by name -----------------------------------------------

Task = Literal["classification", "regression"]
Learners = str | Sequence[str] | Mapping[str, Any]

# name: module, classifier, regressor, and parameters of both
_LIBRARY_LEARNERS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    # with a little of a penalty: one-hot columns are linearly dependent
    "linear": ("sklearn.linear_model", "LogisticRegression", "Ridge", {"max_iter": 1000}),
    "decision_tree": ("sklearn.tree", "DecisionTreeClassifier", "DecisionTreeRegressor", {}),
    "random_forest": ("sklearn.ensemble", "RandomForestClassifier", "RandomForestRegressor", {}),
    "hist_gradient_boosting": (
        *("sklearn.ensemble", "HistGradientBoostingClassifier", "HistGradientBoostingRegressor"),
        {},
    ),
    "xgboost": ("xgboost", "XGBClassifier", "XGBRegressor", {}),
    "catboost": (
        *("catboost", "CatBoostClassifier", "CatBoostRegressor"),
        {"verbose": False, "allow_writing_files": False},
    ),
}
_OPTIONAL = ("xgboost", "catboost")
_KNOWN = ("linear", "decision_tree", "random_forest", "hist_gradient_boosting", "mlp", *_OPTIONAL)


def _make_learner(name: str, task: Task) -> Any:
    if name == "mlp":
        from combutab.estimators import MLPClassifier, MLPRegressor, paper_recipe

        kind = MLPClassifier if task == "classification" else MLPRegressor
        # The encoding is as that of the other learners, because the network is not stored.
        settings = {"activation": "relu", "early_stopping": True, "min_frequency": 1}
        return kind(**paper_recipe(task, **settings))
    library, classifier, regressor, parameters = _LIBRARY_LEARNERS[name]
    try:
        module = import_module(library)
    except ModuleNotFoundError as error:
        raise ImportError(f"the learner {name!r} needs it: pip install {library}") from error
    return getattr(module, classifier if task == "classification" else regressor)(**parameters)


def make_learners(learners: Learners, task: Task, *, random_state: int) -> dict[str, Any]:
    """Make unfitted estimators by name.

    ``random_state`` goes to those that have one and leave it open. Raises ValueError if a name is
    unknown, there is none, or an estimator is for the other task; ImportError without a named
    learner's library.
    """
    if isinstance(learners, Mapping):
        estimators = {str(name): clone(estimator) for name, estimator in learners.items()}
        _check_task(estimators, task)
    else:
        estimators = {name: _make_learner(name, task) for name in _learner_names(learners)}
    if not estimators:
        raise ValueError("learners is empty; name at least one, or take 'standard'")
    return {name: _seeded(learner, random_state) for name, learner in estimators.items()}


def _learner_names(learners: str | Sequence[str]) -> list[str]:
    if learners == "standard":
        return [name for name in _KNOWN if name not in _OPTIONAL or find_spec(name) is not None]
    names = [learners] if isinstance(learners, str) else list(learners)
    for name in names:
        if name not in _KNOWN:
            raise ValueError(f"unknown learner {name!r}; known are standard, {', '.join(_KNOWN)}")
    return list(dict.fromkeys(names))


def _check_task(learners: Mapping[str, Any], task: Task) -> None:
    from sklearn.base import is_classifier, is_regressor

    fits = is_classifier if task == "classification" else is_regressor
    for name, learner in learners.items():
        if not fits(learner):
            raise ValueError(
                f"the task is {task}, but the learner {name!r} is {learner!r}; take one for this "
                "task, or set task="
            )


def _seeded(learner: Any, random_state: int) -> Any:
    """Set the random states that are None, also those of nested estimators."""
    open_ones = {
        name: random_state % 2**32  # scikit-learn takes no more
        for name, value in learner.get_params().items()
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    return learner.set_params(**open_ones)


def takes_tables(learner: Any) -> bool:
    """Say whether an estimator is given tables as they are, rather than encoded arrays."""
    from sklearn.pipeline import Pipeline
    from sklearn.utils import get_tags

    return isinstance(learner, Pipeline) or bool(get_tags(learner).input_tags.string)


# ---- The tables that evaluators are given, and the table that they return ------------------------

REAL = "real"
Tables = Any  # one table, a list of them, or a mapping of name to either


def label_tables(synthetic: Tables) -> dict[str, tuple[str, Any]]:
    """The source that each table is a sample of, and the table, by a label for errors.

    Tables without a name are samples of "synthetic".

    Raises ValueError without tables, or for a name of the real rows.
    """
    groups = synthetic if isinstance(synthetic, Mapping) else {"synthetic": synthetic}
    labelled: dict[str, tuple[str, Any]] = {}
    for source, tables in groups.items():
        if source in (REAL, "real_train", "real_test"):
            raise ValueError(f"{source!r} is a name of the real rows; use another name")
        # a list of rows is a table, a list of tables is not
        several = isinstance(tables, list | tuple) and (not tables or _is_table(tables[0]))
        samples = list(tables) if several else [tables]
        for i, table in enumerate(samples):
            labelled[f"{source}[{i}]" if len(samples) > 1 else str(source)] = (str(source), table)
        if not samples:
            raise ValueError(f"{source} is an empty list; give at least one table")
    if not labelled:
        raise ValueError("synthetic is empty; give a table, or a list or mapping of tables")
    return labelled


def align_synthetic(
    real: Mapping[str, Any], synthetic: Tables, categorical: Collection[Hashable] = ()
) -> tuple[AlignedTables, dict[str, str]]:
    """Align real and synthetic tables with the first real one; and the source of each label."""
    labelled = label_tables(synthetic)
    if twice := [label for label in labelled if label in real]:
        raise ValueError(f"{twice[0]!r} is a name of the real rows; rename the synthetic table")
    tables = {**real, **{label: table for label, (_, table) in labelled.items()}}
    aligned = align_tables(tables, reference=next(iter(real)), categorical=categorical)
    return aligned, {label: source for label, (source, _) in labelled.items()}


def by_source(
    measured: Iterable[tuple[Hashable, str, Any]],
) -> Iterator[tuple[Any, str, list[Any]]]:
    """Group values by measure and source, in the order of their first occurrence."""
    groups: dict[Hashable, dict[str, list[Any]]] = {}
    for measure, source, value in measured:
        groups.setdefault(measure, {}).setdefault(source, []).append(value)
    for measure, sources in groups.items():
        for source, samples in sources.items():
            yield measure, source, samples


def at_least(value: int, minimum: int, name: str) -> int:
    """The value of a parameter, if it is an integer and no less."""
    if not isinstance(value, int | np.integer) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}")
    return int(value)


def mean_and_sd(values: Sequence[float]) -> tuple[float, float, int]:
    """Mean, standard deviation (ddof 1, NaN of one) and number."""
    array = np.array(values)
    sd = array.std(ddof=1) if len(array) > 1 else np.nan
    return float(array.mean()), float(sd), len(array)


def _is_table(thing: Any) -> bool:
    return hasattr(thing, "columns") or np.ndim(thing) == 2


def with_text_names(table: pd.DataFrame) -> pd.DataFrame:
    """The table with names of columns that scikit-learn takes: text, or all of one kind.

    >>> with_text_names(pd.DataFrame({"a": [1], 0: [2], "0": [3]})).columns.tolist()
    ['column 0', 'column 1', 'column 2']
    """
    if len({isinstance(name, str) for name in table.columns}) < 2:
        return table
    return table.set_axis([f"column {j}" for j in range(table.shape[1])], axis=1)


@contextmanager
def no_word_of_names() -> Iterator[None]:
    """Leave out the encoder's warning of columns whose values all differ, as names of rows do.

    No learner learns anything of other rows from them, and its way out is not for tables that are
    judged.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UnlearnedWarning)
        yield


def encode_features(train: Any, *tables: Any) -> list[np.ndarray]:
    """Features as float32 arrays of equal width; all that is learned is learned from ``train``."""
    # The encoder is not stored; parts of dates would hide near copies among more columns.
    encoder = TableEncoder(min_frequency=1, date_features=["number"])
    with no_word_of_names():
        first = encoder.fit_encode(train)
    sizes = np.array(encoder.cardinalities_, dtype=np.float32)
    return [
        # codes of many categories between 0 and 1, of the size of the scaled columns
        np.hstack([encoded.dense, encoded.codes.astype(np.float32) / sizes])
        for encoded in (first, *(encoder.encode(table, fitted=True) for table in tables))
    ]


def ordered(table: pd.DataFrame, rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Sort by keys, each as its values first come in ``rows``."""
    ranks = [
        table[name].map({key: i for i, key in enumerate(rows[name].unique())}) for name in keys
    ]
    return table.iloc[np.lexsort(ranks[::-1])].reset_index(drop=True)


# ---- Train a learner on one table, and score it on another ---------------------------------------

_HELD_OUT = 0.1  # share of the rows that early stopping holds out

Scores = dict[str, float]


@dataclass(frozen=True)
class Problem:
    """A prediction problem on aligned tables.

    Attributes
    ----------
    task : {"classification", "regression"}
    target : name of the column
    classes : tuple
        Of all tables; empty for a regression.
    scale : float
        Unit of the errors of a regression, in the target's own.
    positive : int, default=1
        Number of the positive class of two.
    """

    task: Task
    target: Any
    classes: tuple[Any, ...]
    scale: float
    positive: int = 1

    def side(self, table: pd.DataFrame) -> Side:
        """Features and target of the rows that have one."""
        labelled = table[table[self.target].notna()]
        y, dtype = labelled[self.target], "float64"
        if self.task == "classification":
            y, dtype = y.cat.codes, "intp"
        X = with_text_names(labelled.drop(columns=self.target)).reset_index(drop=True)
        return Side(X, y.to_numpy(dtype=dtype), len(table) - len(labelled))


@dataclass(frozen=True)
class Side:
    """Rows to learn from or to score on; ``y`` holds numbers of classes, or quantities."""

    X: pd.DataFrame
    y: np.ndarray
    n_left_out: int


@dataclass(frozen=True)
class Split:
    """The rows to train on and to test on, their features as the learner takes them.

    ``resamples`` are places of test rows drawn again, of shape (n_resamples, n), if there are any.
    """

    X: Any
    y: np.ndarray
    X_test: Any
    truth: np.ndarray
    resamples: np.ndarray | None = None


@np.errstate(invalid="ignore")  # OpenBLAS can set this flag although all numbers are finite
def score_learner(
    learner: Any, split: Split, problem: Problem
) -> tuple[Scores, list[str], dict[str, np.ndarray]]:
    """Scores of a learner on the test rows, notes on them, and scores on bootstrap samples."""
    with limit_tree_threads(learner, split.X):
        return _score_learner(learner, split, problem)


def _score_learner(
    learner: Any, split: Split, problem: Problem
) -> tuple[Scores, list[str], dict[str, np.ndarray]]:
    notes: list[str] = []
    is_class = problem.task == "classification"
    fitted = None
    if (split.y == split.y[0]).all():
        what = "class" if is_class else "target value"
        notes.append(f"the rows have only one {what}, so the prediction is constant")
    else:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with no_word_of_names():
                fitted = (_fit_classes if is_class else _fit_quantities)(learner, split, notes)
        for warning in caught:
            if issubclass(warning.category, ConvergenceWarning):
                notes.append("the training did not converge")
            else:
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )
    scores, again = (_score_classes if is_class else _score_quantities)(
        fitted, split, problem, notes
    )
    return scores, list(dict.fromkeys(notes)), again


def limit_tree_threads(learner: Any, X: Any) -> AbstractContextManager[None]:
    """Limit the threads of scikit-learn's gradient boosting, which go by the size of the table."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if isinstance(learner, HistGradientBoostingClassifier | HistGradientBoostingRegressor):
        return limit_openmp(tree_threads(X.size))
    return nullcontext()


def _fit_classes(learner: Any, split: Split, notes: list[str]) -> Any:
    """A clone of the learner, trained on the numbers of the classes that are there, from 0."""
    classes, local, counts = np.unique(split.y, return_inverse=True, return_counts=True)
    learner = clone(learner)
    if counts.min() < 2 or len(split.y) * _HELD_OUT < len(classes):
        _stop_late(learner, notes, "a class has too few rows")
    return learner.fit(split.X, local)


def _fit_quantities(learner: Any, split: Split, notes: list[str]) -> Any:
    """A clone of the learner, trained on the scaled target."""
    learner = clone(learner)
    if len(split.y) * _HELD_OUT <= 1:
        _stop_late(learner, notes, "there are too few rows")
    return learner.fit(split.X, (split.y - split.y.mean()) / split.y.std())


def _stop_late(learner: Any, notes: list[str], why: str) -> None:
    """Turn early stopping off, which holds out rows, of each class, and refuses where it cannot."""
    if getattr(learner, "early_stopping", False):
        learner.set_params(early_stopping=False)
        notes.append(f"no early stopping: {why}")


def _score_classes(
    fitted: Any, split: Split, problem: Problem, notes: list[str]
) -> tuple[Scores, dict[str, np.ndarray]]:
    truth = split.truth
    present = np.unique(truth)
    unknown = np.setdiff1d(present, split.y)
    if len(unknown):
        # not by name: a class of one test row is that row's own
        some = "a class" if len(unknown) == 1 else f"{len(unknown)} classes"
        notes.append(f"no rows to learn {some} of the test rows from")
    if fitted is None:
        predicted = np.full(len(truth), split.y[0])
        chances = np.eye(len(problem.classes))[predicted]
    else:
        predicted, chances = _predict_classes(fitted, split, len(problem.classes), notes)
    if len(present) == 1:
        notes.append("one class in the test rows: no ROC AUC")
    truth, predicted, chances = as_positive(problem.positive, truth, predicted, chances)
    # one class against the rest, the mean over classes; those never learned score 0.5
    metrics = METRICS["classification"]
    scores = score_predictions("classification", truth, predicted, chances)
    with_chances = fitted is None or hasattr(fitted, "predict_proba")
    scores |= {} if with_chances else {"log_loss": np.nan}
    again: dict[str, np.ndarray] = {}
    if split.resamples is not None:
        curves = _curve_scores(truth, chances, split.resamples)
        again = dict(zip(("roc_auc", "average_precision"), curves, strict=True))
        for name in metrics.keys() - again.keys():
            drawn = (
                metrics[name].values(truth[rows], predicted[rows], chances[rows])
                for rows in split.resamples
            )
            again[name] = np.fromiter(drawn, float)
        again |= {} if with_chances else {"log_loss": np.full(len(split.resamples), np.nan)}
    return scores, again


def _curve_scores(
    truth: np.ndarray, chances: np.ndarray, resamples: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """ROC AUC and average precision of each resample, as the metrics of these names have them.

    A class that a resample lacks, or has in all rows, has no score in it.
    """
    from scipy.stats import rankdata

    n_classes = chances.shape[1]
    areas, precisions = [], []
    for code in [1] if n_classes == 2 else range(n_classes):
        hit, chance = (truth == code)[resamples], chances[:, code][resamples]
        n, m = hit.sum(axis=1), (~hit).sum(axis=1)
        has_both = (n > 0) & (m > 0)
        ranks = np.where(hit, rankdata(chance, axis=1), 0.0).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            areas.append(np.where(has_both, (ranks - n * (n + 1) / 2) / (n * m), np.nan))
            order = np.argsort(-chance, axis=1)
            sorted_hits = np.take_along_axis(hit, order, axis=1)
            # rows that have at least a row's chance, and how many of them are hits
            n_as_likely = rankdata(-chance, method="max", axis=1).astype(np.intp)
            n_as_likely = np.take_along_axis(n_as_likely, order, axis=1)
            hits = np.take_along_axis(sorted_hits.cumsum(axis=1), n_as_likely - 1, axis=1)
            precision = (sorted_hits * hits / n_as_likely).sum(axis=1) / n
        precisions.append(np.where(has_both, precision, np.nan))
    return _mean_of_known(areas), _mean_of_known(precisions)


def _mean_of_known(scores: list[np.ndarray]) -> np.ndarray:
    """The mean over classes of the scores that are known; NaN of none."""
    is_known = ~np.isnan(scores)
    total = np.where(is_known, scores, 0.0).sum(axis=0)
    return np.where(is_known.any(axis=0), total / np.maximum(is_known.sum(axis=0), 1), np.nan)


def _predict_classes(
    fitted: Any, split: Split, n_classes: int, notes: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the predicted classes, and a column of scores for each class."""
    classes = np.unique(split.y)
    predicted = classes[np.asarray(fitted.predict(split.X_test)).ravel().astype(np.intp)]
    chances = np.zeros((len(predicted), n_classes))
    learned = classes[np.asarray(fitted.classes_, dtype=np.intp)]
    response = class_scores(fitted, split.X_test)
    if response is not None:
        chances[:, learned] = response[0]
    else:
        chances[np.arange(len(predicted)), predicted] = 1.0
        notes.append("ROC AUC of the predicted labels: the learner gives no probabilities")
    return predicted, chances


def _score_quantities(
    fitted: Any, split: Split, problem: Problem, notes: list[str]
) -> tuple[Scores, dict[str, np.ndarray]]:
    truth = split.truth
    if fitted is None:
        predicted = np.full(len(truth), split.y[0])
    else:
        scaled = np.asarray(fitted.predict(split.X_test), dtype=np.float64).ravel()
        predicted = split.y.mean() + split.y.std() * scaled
    if not np.isfinite(predicted).all():
        raise ValueError("predictions are not finite")
    truth, predicted = truth / problem.scale, predicted / problem.scale
    scores = score_predictions("regression", truth, predicted, predicted)
    if np.ptp(truth) == 0:
        notes.append("one target value in the test rows: no R2")
        scores["r2"] = np.nan
    if split.resamples is None:
        return scores, {}
    errors, drawn_targets = np.abs(predicted - truth)[split.resamples], truth[split.resamples]
    mse, variances = (errors**2).mean(axis=1), drawn_targets.var(axis=1)
    differ, zeros = variances > 0, (drawn_targets == 0).any(axis=1)
    again = {"mae": errors.mean(axis=1), "mse": mse, "rmse": np.sqrt(mse)}
    again["r2"] = np.where(differ, 1.0 - mse / np.where(differ, variances, 1.0), np.nan)
    shares = errors / np.where(drawn_targets == 0, 1.0, np.abs(drawn_targets))
    return scores, again | {"mape": np.where(zeros, np.nan, shares.mean(axis=1))}


# ---- Efficacy of synthetic tables for learning: train on synthetic, test on real -----------------

_REAL_TABLES = ("real_train", "real_test")
_MOST_DRAWN = 5000  # test rows in a resample


def ml_efficacy(
    *,
    real_train: pd.DataFrame,
    real_test: pd.DataFrame,
    synthetic: Tables,
    target: Any,
    task: Task | Literal["auto"] = "auto",
    learners: Learners = "standard",
    n_resamples: int = 0,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Train on synthetic and on real rows, test on real rows: the utility of synthetic tables.

    The same models are trained on the synthetic rows and on the real training rows, and scored on
    the same real test rows. ``gap`` is the difference. The encoding of the columns (scales and
    categories) is also learned from the training rows only.

    Parameters
    ----------
    real_train, real_test : DataFrame
        Training rows of the generator, and real rows that it was not trained on.
    synthetic : DataFrame, list of DataFrame, or mapping of name to either
        Synthetic rows, with the columns of ``real_train`` in any order; dtypes may differ. A list
        has several samples of one generator, which are averaged; a mapping has several generators.
    target : column name
        Column to predict.
    task : {"auto", "classification", "regression"}, default="auto"
        Prediction task. "auto" infers it from the real rows by `combutab.preprocessing.infer_task`.
    learners : "standard", name(s), or mapping of name to estimator, default="standard"
        "standard": "linear" (logistic or ridge regression), "decision_tree", "random_forest",
        "hist_gradient_boosting", "mlp" (`MLPClassifier` or `MLPRegressor` of this library, with
        early stopping), and "xgboost" and "catboost" if they are installed. Estimators in a mapping
        get the columns as `TableEncoder` encodes them; scikit-learn pipelines get the table.
    n_resamples : int, default=0
        Number of bootstrap samples of the test rows for the columns "se" and "gap_se", at least 2.
        With 0 there are no such columns.
    random_state : int, RandomState or None, default=0
        Random seed for the learners, the same for each table, and for the bootstrap.
    n_jobs : int, optional
        Number of tables that models are trained on at the same time, by joblib.

    Returns
    -------
    DataFrame, one row per learner, metric and source
        ``learner``; ``metric``; ``source`` ("real", and "synthetic" or the names of the mapping);
        ``mean`` and ``sd`` (ddof 1, NaN for one table) over the samples; ``gap`` (how much worse
        the mean is than that of "real"; positive is worse for every metric); ``n_tables``;
        ``note`` (a remark on the score, "" if there is none). With ``n_resamples`` also ``se`` and
        ``gap_se``, the bootstrap standard errors of ``mean`` and ``gap`` over the test rows.

        The metrics are those of ``combutab.evaluation.METRICS``, for the classes in the test rows.
        Of two classes, F1 and average precision are those of 1 or True, or else of the rarer one in
        the real rows.
        log_loss is NaN for a learner without probabilities, and mape if a target is 0. mae and rmse
        are in standard deviations of the target in ``real_train``, mse in its variances.

    Raises
    ------
    ValueError
        If columns are missing or added (the message lists them), no row has a target, or an
        argument has another value than those above.
    ImportError
        If a learner in ``learners`` needs a library that is not installed.

    Notes
    -----
    Rows without a target are left out. A table with only one class scores as the constant
    prediction, with a ROC AUC of 0.5.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> real = pd.DataFrame({"a": rng.normal(size=400), "b": rng.choice(["x", "y"], 400)})
    >>> real["y"] = 2 * real["a"] + (real["b"] == "x")
    >>> shuffled = real[:300].apply(lambda column: rng.permutation(column))
    >>> table = ml_efficacy(
    ...     real_train=real[:300], real_test=real[300:], target="y", learners="linear",
    ...     synthetic={"copy": real[:300], "shuffled": shuffled},
    ... )
    >>> table.loc[table["metric"] == "r2", ["source", "mean", "gap"]].round(1)
         source  mean  gap
    0      real   1.0  0.0
    1      copy   1.0  0.0
    2  shuffled  -0.0  1.0
    """
    labelled = label_tables(synthetic)
    tables = {"real_train": real_train, "real_test": real_test}
    tables |= {label: table for label, (_, table) in labelled.items()}
    problem, aligned = make_problem(tables, target, task)
    test = problem.side(aligned["real_test"])
    resamples = _resamples(len(test.y), n_resamples, seed_from(random_state))
    models = make_learners(learners, problem.task, random_state=seed_from(random_state))
    sources = {"real_train": REAL} | {label: source for label, (source, _) in labelled.items()}
    results = gathered(
        _score_table,
        (
            (problem.side(aligned[label]), test, problem, models, label, resamples)
            for label in sources
        ),
        n_jobs=n_jobs,
        shared=[test],
    )
    rows = [
        {"source": source, **row}
        for source, scores in zip(sources.values(), results, strict=True)
        for row in scores
    ]
    table = _summarise_samples(pd.DataFrame(rows))
    return table if resamples is None else _with_errors(table, rows, resamples, len(test.y))


def make_problem(
    tables: Mapping[str, Any], target: Any, task: Task | Literal["auto"]
) -> tuple[Problem, AlignedTables]:
    """Make the prediction problem, and align all tables with the first one."""
    if task not in ("auto", "classification", "regression"):
        raise ValueError(f"task must be 'auto', 'classification' or 'regression', got {task!r}")
    reference = next(iter(tables))
    aligned = align_tables(tables, reference=reference)
    if target not in aligned.kinds:
        columns = ", ".join(map(repr, aligned.kinds))
        raise ValueError(f"there is no column {target!r} for a target; there are {columns}")
    if len(aligned.kinds) < 2:
        raise ValueError(f"there is no column beside the target {target!r} to predict it from")
    for name, table in aligned.tables.items():
        if table[target].isna().all():
            raise ValueError(f"no row of {name} has a target: {target!r} is missing in all of them")
    real = [table[target] for name, table in aligned.tables.items() if name in _REAL_TABLES]
    if task == "auto":
        if (
            aligned.kinds[target] == "category"
        ):  # The values before the alignment show whether text is labels.
            column = Table(tables[reference]).columns_by_name()[target]
            infer_task(column, name=f"the target {target!r}")
        task = infer_task(pd.concat(real).dropna())
    if task == "regression":
        if aligned.kinds[target] != "number":
            raise ValueError(
                f"a regression needs numbers, but the target {target!r} is a "
                f"{aligned.kinds[target]}; set task='classification', or make it numbers"
            )
        scale = float(real[0].std(ddof=0)) if real[0].nunique() > 1 else 1.0
        return Problem(task, target, (), scale), aligned
    if aligned.kinds[target] != "category":
        aligned = align_tables(tables, reference=reference, categorical=[target])
    classes = aligned[reference][target].cat.categories
    tables_of_real = [name for name in aligned.tables if name in _REAL_TABLES]
    codes = np.concatenate([aligned[name][target].cat.codes for name in tables_of_real])
    counts = np.bincount(codes[codes >= 0], minlength=len(classes))
    positive = positive_class(classes.to_numpy(), counts) if len(classes) == 2 else 1
    return Problem(task, target, tuple(classes), 1.0, positive), aligned


def _score_table(
    train: Side,
    test: Side,
    problem: Problem,
    models: Mapping[str, Any],
    label: str,
    resamples: np.ndarray | None,
) -> list[dict[str, Any]]:
    """A row for each learner and metric."""
    tables = train.X, test.X
    arrays: Any = None if all(map(takes_tables, models.values())) else encode_features(*tables)
    left_out = [f"{train.n_left_out} rows without a target are left out"] * bool(train.n_left_out)
    rows = []
    for name, model in models.items():
        X, X_test = tables if takes_tables(model) else arrays
        split = Split(X, train.y, X_test, test.y, resamples)
        try:
            scores, notes, again = score_learner(model, split, problem)
        except Exception as error:
            error.add_note(f"The learner {name!r}, trained on {label}.")
            raise
        note = "; ".join(left_out + notes)
        rows += [
            {
                "learner": name,
                "metric": metric,
                "score": scores[metric],
                "note": note,
                "again": again.get(metric),
            }
            for metric in METRICS[problem.task]
        ]
    return rows


def _resamples(n: int, n_resamples: int, seed: int) -> np.ndarray | None:
    """Places of test rows that are drawn again, of many of them a part."""
    if not isinstance(n_resamples, int | np.integer) or n_resamples < 0 or n_resamples == 1:
        raise ValueError(f"n_resamples must be 0 or an integer of at least 2, got {n_resamples!r}")
    if not n_resamples:
        return None
    return np.random.default_rng(seed).integers(n, size=(n_resamples, min(n, _MOST_DRAWN)))


def _with_errors(
    table: pd.DataFrame, rows: list[dict[str, Any]], resamples: np.ndarray, n: int
) -> pd.DataFrame:
    """Add standard errors: of the mean over a source's samples, and of its gap to the real rows."""
    n_resamples, size = resamples.shape
    again: dict[tuple[str, ...], list[np.ndarray]] = {}
    for row in rows:
        scores = np.full(n_resamples, np.nan) if row["again"] is None else row["again"]
        again.setdefault((row["learner"], row["metric"], row["source"]), []).append(scores)
    means = {key: np.mean(samples, axis=0) for key, samples in again.items()}
    errors, gaps = [], []
    for key in zip(table["learner"], table["metric"], table["source"], strict=True):
        errors.append(_deviation(means[key]))
        gaps.append(_deviation(means[(*key[:2], REAL)] - means[key]))
    smaller = np.sqrt(size / n)  # fewer rows were drawn than there are
    return table.assign(se=np.array(errors) * smaller, gap_se=np.array(gaps) * smaller)


def _deviation(values: np.ndarray) -> float:
    finite = values[~np.isnan(values)]
    return float(finite.std(ddof=1)) if len(finite) > 1 else np.nan


def _summarise_samples(scores: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over the samples of a source, and the gap to the real rows."""
    keys = ["learner", "metric", "source"]
    groups = scores.groupby(keys, sort=False)
    columns = {
        "mean": groups["score"].mean(),
        "sd": groups["score"].std(),
        "n_tables": groups.size(),
        "note": groups["note"].agg(lambda notes: "; ".join(dict.fromkeys(filter(None, notes)))),
    }
    table = ordered(pd.DataFrame(columns).reset_index(), scores, keys)
    real = table[table["source"] == REAL].set_index(["learner", "metric"])["mean"]
    real_means = real.loc[list(zip(table["learner"], table["metric"], strict=True))].to_numpy()
    metrics = METRICS["classification"] | METRICS["regression"]
    sign = table["metric"].map(lambda name: 1.0 if metrics[name].greater_is_better else -1.0)
    table["gap"] = sign * (real_means - table["mean"]) + 0.0  # not -0
    return table[[*keys, "mean", "sd", "gap", "n_tables", "note"]]
