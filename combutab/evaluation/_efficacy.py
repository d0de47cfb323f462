"""Efficacy of synthetic tables for learning: train on synthetic, test on real."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from combutab.core.parallel import gathered
from combutab.core.rng import seed_from
from combutab.evaluation._alignment import AlignedTables, align_tables
from combutab.preprocessing import TableEncoder, UnlearnedWarning, as_pandas, infer_task

# ---- The models that `ml_efficacy` trains, by name -----------------------------------------------

Task = Literal["classification", "regression"]
Learners = str | Sequence[str] | Mapping[str, Any]

_SMALL = 1000  # rows; below, the CombU paper trains its smaller network, for longer


def _mlp(task: Task, **parameters: Any) -> Any:
    from combutab.estimators import MLPClassifier, MLPRegressor, paper_recipe

    kind = MLPClassifier if task == "classification" else MLPRegressor
    # as the other learners' encoding: what is learned here is not kept
    own = {"activation": "relu", "early_stopping": True, "min_frequency": 1}
    return kind(**paper_recipe(task, **own | parameters))


def _paper_mlp(task: Task, n_rows: int) -> Any:
    """The CombU paper's network and its training, appendix B."""
    # NOTE[DIFF]: the paper does not say which activation the scoring network has; ReLU favours none
    small = n_rows < _SMALL
    return _mlp(
        task,
        early_stopping=False,
        hidden_layer_sizes=(128,) * 2 if small else (256,) * 5,
        max_iter=500 if small else 200,
        n_iter_no_change=math.inf,
        alpha=0.0,
        dropout=0.1,
        learning_rate_init=5e-4,
    )


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
_PAPER = "paper_mlp"


def _make_learner(name: str, task: Task, n_rows: int) -> Any:
    if name == _PAPER:
        return _paper_mlp(task, n_rows)
    if name == "mlp":
        return _mlp(task)
    library, classifier, regressor, parameters = _LIBRARY_LEARNERS[name]
    try:
        module = import_module(library)
    except ModuleNotFoundError as error:
        raise ImportError(f"the learner {name!r} needs it: pip install {library}") from error
    return getattr(module, classifier if task == "classification" else regressor)(**parameters)


def make_learners(
    learners: Learners, task: Task, *, n_rows: int, random_state: int
) -> dict[str, Any]:
    """Make unfitted estimators by name.

    ``n_rows`` is of the whole data set, which the paper's network depends on; ``random_state`` goes
    to those that have one and leave it open. Raises ValueError if a name is unknown, there is none,
    or an estimator is for the other task; ImportError without a named learner's library.
    """
    if isinstance(learners, Mapping):
        made = {str(name): clone(estimator) for name, estimator in learners.items()}
        _check_task(made, task)
    else:
        made = {name: _make_learner(name, task, n_rows) for name in _learner_names(learners)}
    if not made:
        raise ValueError("learners is empty; name at least one, or take 'standard'")
    return {name: _seeded(learner, random_state) for name, learner in made.items()}


def _learner_names(learners: str | Sequence[str]) -> list[str]:
    if learners == "standard":
        return [name for name in _KNOWN if name not in _OPTIONAL or find_spec(name) is not None]
    if learners == "paper":
        return [_PAPER]
    names = [learners] if isinstance(learners, str) else list(learners)
    for name in names:
        if name not in (*_KNOWN, _PAPER):
            known = ", ".join(["standard", "paper", *_KNOWN, _PAPER])
            raise ValueError(
                f"unknown learner {name!r}; known are {known}, and a mapping of names to "
                "scikit-learn estimators may be given"
            )
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
    """Set the random states that are None, also those of the learner's parts."""
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

    Raises ValueError if there is none, or a name is that of the real rows.
    """
    groups = synthetic if isinstance(synthetic, Mapping) else {"synthetic": synthetic}
    labelled: dict[str, tuple[str, Any]] = {}
    for source, tables in groups.items():
        if source in (REAL, "real_train", "real_test"):
            raise ValueError(f"{source!r} is a name of the real rows; call {source!r} otherwise")
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


def encode_features(train: Any, *others: Any) -> list[np.ndarray]:
    """Features as float32 arrays of equal width; all that is learned is learned from ``train``."""
    encoder = TableEncoder(min_frequency=1)  # what is learned here is not kept
    with no_word_of_names():
        first = encoder.fit_encode(train)
    sizes = np.array(encoder.cardinalities_, dtype=np.float32)
    return [
        # codes of many categories between 0 and 1, of the size of the scaled columns
        np.hstack([encoded.dense, encoded.codes.astype(np.float32) / sizes])
        for encoded in (first, *(encoder.encode(other, fitted=True) for other in others))
    ]


def ordered(table: pd.DataFrame, rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Sort by keys, each as its values first come in ``rows``."""
    ranks = [
        table[name].map({key: i for i, key in enumerate(rows[name].unique())}) for name in keys
    ]
    return table.iloc[np.lexsort(ranks[::-1])].reset_index(drop=True)


# ---- Train a learner on one table, and score it on another ---------------------------------------

CLASS_METRICS = ("accuracy", "f1_macro", "f1_binary", "roc_auc", "log_loss")
REGRESSION_METRICS = ("r2", "mae", "mse")
GREATER_IS_BETTER = {
    name: name not in ("mae", "mse", "log_loss") for name in CLASS_METRICS + REGRESSION_METRICS
}

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
    positive : int or None
        The number of the class that the binary F1 is of.
    scale : float
        Unit of the errors of a regression, in the target's own.
    """

    task: Task
    target: Any
    classes: tuple[Any, ...]
    positive: int | None
    scale: float

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the scores."""
        if self.task == "regression":
            return REGRESSION_METRICS
        return tuple(m for m in CLASS_METRICS if m != "f1_binary" or self.positive is not None)

    def side(self, table: pd.DataFrame) -> Side:
        """Features and target of the rows that have one."""
        known = table[table[self.target].notna()]
        y = known[self.target]
        values = y.cat.codes if self.task == "classification" else y
        dtype = np.intp if self.task == "classification" else np.float64
        return Side(
            with_text_names(known.drop(columns=self.target)).reset_index(drop=True),
            values.to_numpy(dtype=dtype),
            len(table) - len(known),
        )


@dataclass(frozen=True)
class Side:
    """Rows to learn from or to score on; ``y`` holds numbers of classes, or quantities."""

    X: pd.DataFrame
    y: np.ndarray
    n_left_out: int


class Split:
    """The rows to train on and to test on; encoded once for all learners that need it.

    ``resamples`` are places of test rows drawn again, of shape (n_resamples, n), if there are any.
    """

    def __init__(self, train: Side, test: Side, resamples: np.ndarray | None = None) -> None:
        self.train, self.test, self.resamples = train, test, resamples

    def features(self, learner: Any) -> tuple[Any, Any]:
        """Return the features of the training and of the test rows, as the learner takes them."""
        return (self.train.X, self.test.X) if takes_tables(learner) else self._arrays

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        train, test = encode_features(self.train.X, self.test.X)
        return train, test


def score_learner(
    learner: Any, split: Split, problem: Problem
) -> tuple[Scores, list[str], dict[str, np.ndarray]]:
    """Scores of a learner on the test rows, what is to be known of them, and some on resamples."""
    notes: list[str] = []
    if split.train.n_left_out:
        notes.append(f"{split.train.n_left_out} rows without a target are left out")
    values = split.train.y
    if (values == values[0]).all():
        what = "class" if problem.task == "classification" else "target value"
        notes.append(f"one {what} to learn from: the prediction is constant")
        fitted = None
    else:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = _fit_learner(clone(learner), split, problem, notes)
        for each in caught:
            if issubclass(each.category, ConvergenceWarning):
                notes.append("the training did not converge")
            else:
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    score = _score_classes if problem.task == "classification" else _score_quantities
    scores, again = score(fitted, split, problem, notes)
    return scores, list(dict.fromkeys(notes)), again


@dataclass(frozen=True)
class _Fitted:
    """A learner that was trained on numbers from 0, or on a scaled target, and the way back."""

    estimator: Any
    classes: np.ndarray
    mean: float = 0.0
    std: float = 1.0


def _fit_learner(learner: Any, split: Split, problem: Problem, notes: list[str]) -> _Fitted:
    y = split.train.y
    X, _ = split.features(learner)
    if problem.task == "classification":
        classes, local, counts = np.unique(y, return_inverse=True, return_counts=True)
        too_few = counts.min() < 2 or len(y) * _HELD_OUT < len(classes)
        if too_few and getattr(learner, "early_stopping", False):
            # which holds out rows of each class, and refuses where it cannot
            learner.set_params(early_stopping=False)
            notes.append("no early stopping: a class has too few rows")
        with no_word_of_names():
            return _Fitted(learner.fit(X, local), classes)
    mean, std = float(y.mean()), float(y.std())
    with no_word_of_names():
        return _Fitted(learner.fit(X, (y - mean) / std), np.empty(0), mean, std)


def _score_classes(
    fitted: _Fitted | None, split: Split, problem: Problem, notes: list[str]
) -> tuple[Scores, dict[str, np.ndarray]]:
    from sklearn.metrics import f1_score, roc_auc_score

    truth = split.test.y
    present = np.unique(truth)
    unknown = np.setdiff1d(present, split.train.y)
    if len(unknown):
        # not by name: a class of one test row is that row's own
        some = "a class" if len(unknown) == 1 else f"{len(unknown)} classes"
        notes.append(f"no rows to learn {some} of the test rows from")
    if fitted is None:
        predicted = np.full(len(truth), split.train.y[0])
        chances = np.eye(len(problem.classes))[predicted]
    else:
        predicted, chances = _predict_classes(fitted, split, len(problem.classes), notes)
    area = np.nan
    if len(present) > 1:
        # one class against the rest, the mean over classes; those never learned score 0.5
        area = float(np.mean([roc_auc_score(truth == c, chances[:, c]) for c in present]))
    else:
        notes.append("one class in the test rows: no ROC AUC")
    log_loss = np.nan
    if fitted is None or hasattr(fitted.estimator, "predict_proba"):
        given = chances[np.arange(len(truth)), truth]  # 0 of a class that was never learned
        log_loss = -float(np.log(np.maximum(given, np.finfo(np.float64).eps)).mean())
    scores = {
        "accuracy": float((predicted == truth).mean()),
        "f1_macro": float(
            f1_score(truth, predicted, labels=present, average="macro", zero_division=0)
        ),
        "roc_auc": area,
        "log_loss": log_loss,
    }
    if problem.positive is not None:
        hits = (truth == problem.positive, predicted == problem.positive)
        scores["f1_binary"] = float(f1_score(*hits, zero_division=0))
    again = {}
    if split.resamples is not None:
        again["accuracy"] = (predicted == truth)[split.resamples].mean(axis=1)
        again["roc_auc"] = _areas(truth, chances, present, split.resamples)
    return scores, again


def _areas(
    truth: np.ndarray, chances: np.ndarray, classes: np.ndarray, resamples: np.ndarray
) -> np.ndarray:
    """The mean area under the ROC curve over the classes that a resample has; NaN of one alone."""
    from scipy.stats import rankdata

    areas = np.full((len(classes), len(resamples)), np.nan)
    for area, code in zip(areas, classes, strict=True):
        hit = (truth == code)[resamples]
        n = hit.sum(axis=1)
        m = hit.shape[1] - n
        ranks = np.where(hit, rankdata(chances[:, code][resamples], axis=1), 0.0).sum(axis=1)
        known = (n > 0) & (m > 0)
        area[known] = ((ranks - n * (n + 1) / 2)[known]) / (n * m)[known]
    there = ~np.isnan(areas)
    total = np.where(there, areas, 0.0).sum(axis=0)
    return np.where(there.any(axis=0), total / np.maximum(there.sum(axis=0), 1), np.nan)


def _predict_classes(
    fitted: _Fitted, split: Split, n_classes: int, notes: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the predicted classes, and a column of scores for each class."""
    estimator = fitted.estimator
    _, X = split.features(estimator)
    own = np.asarray(estimator.predict(X)).ravel().astype(np.intp)
    predicted = fitted.classes[own]
    chances = np.zeros((len(predicted), n_classes))
    learned = fitted.classes[np.asarray(estimator.classes_, dtype=np.intp)]
    if hasattr(estimator, "predict_proba"):
        chances[:, learned] = estimator.predict_proba(X)
    elif hasattr(estimator, "decision_function"):
        distance = np.asarray(estimator.decision_function(X))
        if distance.ndim == 1:
            distance = np.column_stack([-distance, distance])
        chances[:, learned] = distance
    else:
        chances[np.arange(len(predicted)), predicted] = 1.0
        notes.append("ROC AUC of the predicted labels: the learner gives no probabilities")
    return predicted, chances


def _score_quantities(
    fitted: _Fitted | None, split: Split, problem: Problem, notes: list[str]
) -> tuple[Scores, dict[str, np.ndarray]]:
    truth = split.test.y
    if fitted is None:
        predicted = np.full(len(truth), split.train.y[0])
    else:
        _, X = split.features(fitted.estimator)
        own = np.asarray(fitted.estimator.predict(X), dtype=np.float64).ravel()
        predicted = fitted.mean + fitted.std * own
    error = (predicted - truth) / problem.scale
    if not np.isfinite(error).all():
        raise ValueError("predictions are not finite")
    mse, varies = float((error**2).mean()), np.ptp(truth) > 0
    if not varies:
        notes.append("one target value in the test rows: no R2")
    scores = {
        "r2": 1.0 - mse / float((truth / problem.scale).var()) if varies else np.nan,
        "mae": float(np.abs(error).mean()),
        "mse": mse,
    }
    again = {}
    if split.resamples is not None:
        errors = (error**2)[split.resamples].mean(axis=1)
        variances = (truth / problem.scale)[split.resamples].var(axis=1)
        differ = variances > 0
        again["r2"] = np.where(differ, 1.0 - errors / np.where(differ, variances, 1.0), np.nan)
    return scores, again


# ---- Efficacy of synthetic tables for learning: train on synthetic, test on real -----------------

_REAL_TABLES = ("real_train", "real_test", "real")
_MOST_DRAWN = 5000  # test rows in a resample


def ml_efficacy(
    *,
    real_train: pd.DataFrame,
    real_test: pd.DataFrame,
    synthetic: Tables,
    target: Any,
    task: Task | Literal["auto"] = "auto",
    learners: Learners = "standard",
    pos_label: Any = None,
    n_resamples: int = 0,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Train models on synthetic rows and on real ones, and score both on the same real test rows.

    A synthetic table is worth learning from as far as its models come near those of the real one:
    ``gap`` is what they lack. Everything that is learned, also scales and categories, is learned
    from the rows trained on alone.

    Parameters
    ----------
    real_train, real_test : DataFrame
        The rows that the generator learned from, and others that it has not seen.
    synthetic : DataFrame, list of DataFrame, or mapping of name to either
        Columns as those of ``real_train``, in any order; values may have other dtypes. Several
        samples of one generator are averaged; a mapping compares several generators.
    target : column name
    task : {"auto", "classification", "regression"}, default="auto"
        "auto" asks `combutab.preprocessing.infer_task`, with the real rows.
    learners : "standard", "paper", name(s), or mapping of name to estimator, default="standard"
        "standard": "linear" (logistic or ridge regression), "decision_tree", "random_forest",
        "hist_gradient_boosting", "mlp" (ours, with early stopping), and "xgboost" and "catboost"
        where they are installed. "paper": "paper_mlp", the CombU paper's network, with ReLU.
        Own estimators are given the columns as `TableEncoder` encodes them, scikit-learn pipelines
        the table as it is.
    pos_label : class, optional
        The positive class of ``f1_binary``, which is left out otherwise.
    n_resamples : int, default=0
        How often test rows are drawn again for the columns "se" and "gap_se", at least 2; with 0
        these are left out.
    random_state : int, RandomState or None, default=0
        Of the learners; each begins with the same one on every table. And of what is drawn.
    n_jobs : int, optional
        Tables that are learned from at the same time, by joblib.

    Returns
    -------
    DataFrame, one row a learner, metric and source
        ``learner``; ``metric``; ``source``: "real", or "synthetic" (the names of a mapping);
        ``mean`` and ``sd`` (ddof 1, NaN for one table) over the samples; ``gap``, how much worse
        than "real" the mean is, in either direction of the metric; ``n_tables``; ``note``: what is
        to be known of the score, "" where there is nothing. With ``n_resamples``, ``se`` and
        ``gap_se``, standard errors of ``mean`` and ``gap`` by the bootstrap over the test rows, of
        accuracy, roc_auc and r2 (NaN of the others).

        Metrics of a classification are accuracy, f1_macro and roc_auc (over the classes in the
        test rows; one against the rest, where there are several), f1_binary, and log_loss (NaN of
        a learner without probabilities; one of 0 counts as float64's precision, as scikit-learn
        has it); of a regression r2, and mae and mse with the target in standard deviations of
        ``real_train``'s.

    Raises
    ------
    ValueError
        Columns are missing or added (the message lists them), there is no row with a target, or an
        argument is not one of those above.
    ImportError
        A learner that was named needs a library that is not there.

    Notes
    -----
    Rows without a target are left out. A table with one class alone, from which nothing can be
    learned, scores as the constant prediction does, its ROC AUC as 0.5.

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
    problem, aligned = make_problem(tables, target, task, pos_label)
    test = problem.side(aligned["real_test"])
    resamples = _resamples(len(test.y), n_resamples, seed_from(random_state))
    n_rows = len(aligned["real_train"]) + len(aligned["real_test"])
    models = make_learners(
        learners, problem.task, n_rows=n_rows, random_state=seed_from(random_state)
    )
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
        for source, found in zip(sources.values(), results, strict=True)
        for row in found
    ]
    table = _summarise_samples(pd.DataFrame(rows))
    return table if resamples is None else _with_errors(table, rows, resamples, len(test.y))


@dataclass(frozen=True)
class EfficacyScorer:
    """A scorer of generators, for `cross_val_score` and searches: what a model learns from samples.

    Called with a fitted generator and held-out real rows, it samples a table, trains a learner on
    it, and scores that on the real rows; greater is better, errors are negated. The generator needs
    ``sample(n)``.

    Parameters
    ----------
    target : column name
    metric : str, optional
        As in `ml_efficacy`; by default "r2", or "roc_auc" of a classification.
    learner : str, default="hist_gradient_boosting"
        A name of `ml_efficacy`'s, or a scikit-learn estimator.
    n_samples : int, optional
        Rows to sample; as many as there are real ones by default. In cross-validation that is fewer
        than the generator was trained on.
    task, pos_label, random_state
        As in `ml_efficacy`.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from combutab import TVAE
    >>> from sklearn.model_selection import cross_val_score
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"a": rng.normal(size=200)}).assign(b=lambda t: 2 * t["a"])
    >>> scorer = EfficacyScorer(target="b", metric="mae", learner="linear")
    >>> scores = cross_val_score(TVAE(epochs=1, random_state=0), table, scoring=scorer, cv=2)
    >>> scores.shape
    (2,)
    """

    target: Any
    metric: str | None = None
    learner: Any = "hist_gradient_boosting"
    n_samples: int | None = None
    task: Task | Literal["auto"] = "auto"
    pos_label: Any = None
    random_state: Any = 0

    def __call__(self, generator: Any, X: pd.DataFrame, y: Any = None) -> float:
        """Score a fitted generator on real rows ``X``, which hold the target; ``y`` is ignored."""
        synthetic = generator.sample(len(X) if self.n_samples is None else self.n_samples)
        tables = {"real": X, "synthetic": synthetic}
        problem, aligned = make_problem(tables, self.target, self.task, self.pos_label)
        metric = self.metric or ("r2" if problem.task == "regression" else "roc_auc")
        if metric not in problem.metrics:
            raise ValueError(
                f"metric must be one of {', '.join(problem.metrics)} for a {problem.task}, got "
                f"{metric!r}" + (" (f1_binary needs pos_label)" if metric == "f1_binary" else "")
            )
        named = isinstance(self.learner, str)
        models = make_learners(
            [self.learner] if named else {"learner": self.learner},
            problem.task,
            n_rows=len(X),
            random_state=seed_from(self.random_state),
        )
        train, test = problem.side(aligned["synthetic"]), problem.side(aligned["real"])
        rows = _score_table(train, test, problem, models, "synthetic")
        score = next(row["score"] for row in rows if row["metric"] == metric)
        return score if GREATER_IS_BETTER[metric] else -score


def make_problem(
    tables: Mapping[str, Any], target: Any, task: Task | Literal["auto"], pos_label: Any
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
        if aligned.kinds[target] == "category":  # by what it was before: text may be no labels
            column = pd.DataFrame(as_pandas(tables[reference]))[target]
            infer_task(column, name=f"the target {target!r}")
        task = infer_task(pd.concat(real).dropna())
    if task == "regression":
        if aligned.kinds[target] != "number":
            raise ValueError(
                f"a regression needs numbers, but the target {target!r} is a "
                f"{aligned.kinds[target]}; set task='classification', or make it numbers"
            )
        if pos_label is not None:
            raise ValueError(f"pos_label={pos_label!r} is for a classification, this is a {task}")
        scale = float(real[0].std(ddof=0)) if real[0].nunique() > 1 else 1.0
        return Problem(task, target, (), None, scale), aligned
    if aligned.kinds[target] != "category":
        aligned = align_tables(tables, reference=reference, categorical=[target])
    classes = tuple(aligned[reference][target].cat.categories)
    if pos_label is not None and pos_label not in classes:
        raise ValueError(
            f"pos_label={pos_label!r} is no class of {target!r}; there are "
            + ", ".join(map(repr, classes))
        )
    positive = None if pos_label is None else classes.index(pos_label)
    return Problem(task, target, classes, positive, 1.0), aligned


def _score_table(
    train: Side,
    test: Side,
    problem: Problem,
    models: Mapping[str, Any],
    label: str,
    resamples: np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """A row for each learner and metric."""
    split = Split(train, test, resamples)
    rows = []
    for name, model in models.items():
        try:
            scores, notes, again = score_learner(model, split, problem)
        except Exception as error:
            error.add_note(f"The learner {name!r}, trained on {label}.")
            raise
        note = "; ".join(notes)
        rows += [
            {
                "learner": name,
                "metric": metric,
                "score": scores[metric],
                "note": note,
                "again": again.get(metric),
            }
            for metric in problem.metrics
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
    means = {key: np.mean(each, axis=0) for key, each in again.items()}
    errors, gaps = [], []
    for key in zip(table["learner"], table["metric"], table["source"], strict=True):
        errors.append(_deviation(means[key]))
        gaps.append(_deviation(means[(*key[:2], REAL)] - means[key]))
    smaller = np.sqrt(size / n)  # fewer rows were drawn than there are
    return table.assign(se=np.array(errors) * smaller, gap_se=np.array(gaps) * smaller)


def _deviation(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1)) if len(known) > 1 else np.nan


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
    behind = real.loc[list(zip(table["learner"], table["metric"], strict=True))].to_numpy()
    sign = table["metric"].map(GREATER_IS_BETTER).map({True: 1.0, False: -1.0})
    table["gap"] = sign * (behind - table["mean"]) + 0.0  # not -0
    return table[[*keys, "mean", "sd", "gap", "n_tables", "note"]]
