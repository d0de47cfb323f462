"""Permutation importance, partial dependence and leakage, on the columns of the user's table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn import inspection
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import resample
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from combutab.core.rng import RandomState, as_generator
from combutab.core.scorers import positive_class
from combutab.core.scores import (
    as_positive,
    class_labels,
    class_positions,
    class_scores,
    needs_method,
    one_hot,
    predict_labels,
)
from combutab.core.text import align_columns, as_names, counted, known_instead, no_column
from combutab.evaluation import find_metric
from combutab.preprocessing import (
    ColumnKind,
    Table,
    as_numpy,
    as_pandas,
    column_kind,
    dtype_kind,
    plain_labels,
)

# ---- The explained table as a data frame, and the explained output of the model ------------------


def as_frame(estimator: Any, X: Any, name: str = "X") -> pd.DataFrame:
    """A table as a frame, whose columns have the names that the estimator knows.

    Raises ValueError if there are no rows, or columns have the same name.
    """
    check_is_fitted(estimator)
    table = Table(X, name, accept_sparse=True)
    table.refuse_empty()
    frame, feature_names = table.frame(), getattr(estimator, "feature_names_in_", ())
    if table.names is None and len(feature_names) == table.n_columns:
        frame.columns = pd.Index(feature_names)
    for form in getattr(getattr(estimator, "encoder_", None), "text_forms_", ()):
        column = frame.columns[form.column]
        frame = frame.assign(**{column: form.read(frame[column], f"column {column!r}")})
    return frame


def predicted(estimator: Any, X: Any) -> np.ndarray:
    """Probabilities or scores of the classes, or predicted numbers: (n_samples, n_outputs).

    Raises ValueError for a classifier that has neither ``predict_proba`` nor
    ``decision_function``.
    """
    if not is_classifier(estimator):
        numbers = predict_labels(estimator, X)
        return numbers.reshape(len(numbers), -1)
    class_labels(estimator)  # raises for several targets with more than two classes
    response = class_scores(estimator, X)
    if response is None:
        raise ValueError(needs_method("an explanation", "decision_function"))
    return response[0]


@dataclass(frozen=True)
class Outputs:
    """The outputs of `predicted`: a name for each, and the label by which ``target`` selects it."""

    names: list[str]
    labels: list[Any]
    classifies: bool
    multilabel: bool = False

    @classmethod
    def of(cls, estimator: Any, X: Any) -> Outputs:
        """Outputs of a fitted estimator for rows such as these."""
        n_outputs = predicted(estimator, X[:1]).shape[1]
        if is_classifier(estimator):
            labels = class_labels(estimator).tolist()
            what = "probability" if hasattr(estimator, "predict_proba") else "decision function"
            multilabel = predict_labels(estimator, X[:1]).ndim == 2
            return cls([f"{what} of {label!r}" for label in labels], labels, True, multilabel)
        names = [f"output {i}" for i in range(n_outputs)] if n_outputs > 1 else ["prediction"]
        return cls(names, list(range(n_outputs)), False)

    def find(self, target: Any) -> int | None:
        """Position of the output that ``target`` names: a class, or the position of a number.

        The default is the only output or the second of two classes, or None if there are more.
        """
        if target is None:
            two_classes = self.classifies and len(self.labels) == 2 and not self.multilabel
            if two_classes:
                return 1
            return 0 if len(self.labels) == 1 else None
        target = target.item() if isinstance(target, np.generic) else target
        if target not in self.labels:
            what = "a class" if self.classifies else "an output"
            raise ValueError(
                f"target={target!r} is not {what}; {known_instead(target, self.labels)}"
            )
        return self.labels.index(target)


def sampled_rows(n_rows: int, max_rows: int | None, rng: np.random.Generator) -> np.ndarray:
    """Positions of all rows, or of ``max_rows`` of them drawn without replacement, in order."""
    if max_rows is None or n_rows <= max_rows:
        return np.arange(n_rows)
    return np.sort(rng.choice(n_rows, max_rows, replace=False))


def _check_least(name: str, value: Any, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}")


# ---- Permutation importance ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PermutationImportance:
    """Result of `permutation_importance`: loss of score when a column is shuffled.

    Attributes
    ----------
    table : DataFrame
        One row per column of the table, the most important first: ``column``, ``importance`` (the
        mean loss of score) and ``low`` and ``high``, the ends of its 95 % interval.
    importances : DataFrame of shape (n_repeats, n_columns)
        The loss of score in each repeat.
    scoring : str
        Name of the score, such as "ROC AUC".
    greater_is_better : bool
        Whether the importance is a decrease of the score. Otherwise it is an increase.
    score : float
        Score without shuffling, the mean over the repeats.
    n_rows : int
        Number of rows per repeat.
    """

    table: pd.DataFrame
    importances: pd.DataFrame
    scoring: str
    greater_is_better: bool
    score: float
    n_rows: int

    def __repr__(self) -> str:
        title = f"PermutationImportance: {self.effect}, {self.n_rows} rows per repeat"
        return f"{title}\n{self.table.head(10)}"

    def __str__(self) -> str:
        ends = zip(self.table["low"], self.table["high"], strict=True)
        columns: dict[str, Iterable[object]] = {
            name: self.table[name] for name in ("column", "importance")
        }
        columns["95 % interval"] = [f"{low:.4g} to {high:.4g}" for low, high in ends]
        return (
            f"Permutation importance: {self.effect} when a column is shuffled ({self.scoring} "
            f"{self.score:.4g}, {counted(self.n_rows, 'row')})\n\n{align_columns(columns, '.4g')}"
        )

    @property
    def effect(self) -> str:
        """Description of the importance, such as "decrease of ROC AUC"."""
        return f"{'decrease' if self.greater_is_better else 'increase'} of {self.scoring}"


def permutation_importance(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    scoring: str | Callable[..., float] | None = None,
    n_repeats: int = 10,
    max_samples: int = 2000,
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> PermutationImportance:
    """Measure how much the score of a fitted model decreases when a column is shuffled.

    Each repeat is scikit-learn's `permutation_importance` on a bootstrap sample of the rows
    (stratified by class), so that the intervals include the variation of the shuffles and that of
    the rows. The columns of the table are shuffled before they are encoded, so that a categorical
    column is one column.

    Use rows that the model was not trained on. On training rows, columns seem important if the
    model has overfitted to them. If two columns have the same information, the model can use either
    of them, and both can seem unimportant.

    Parameters
    ----------
    estimator : fitted classifier or regressor
        An estimator of this library or of scikit-learn, including pipelines.
    X : table of shape (n_samples, n_features)
        Rows to compute the score on.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Their targets.
    scoring : str, callable or None, default=None
        Name of a metric (see `combutab.evaluation.find_metric`), or a function of an estimator, X
        and y for which greater is better. None is R2 for regression and ROC AUC for classification
        (for more than two classes, the mean of one class against the rest), log loss if ``y`` has
        only one class, or accuracy if the classifier has neither ``predict_proba`` nor
        ``decision_function``. Metrics of classes, such as accuracy, are those of ``predict``.
    n_repeats : int, default=10
        Number of bootstrap samples, in each of which every column is shuffled once; at least 2.
    max_samples : int, default=2000
        Maximum number of rows per bootstrap sample. With more rows the intervals are narrower and
        the computation is slower.
    random_state : int, RandomState, Generator or None, default=None
        Random seed for the samples and shuffles.
    n_jobs : int or None, default=None
        Number of processes that share the columns, as in scikit-learn.

    Returns
    -------
    PermutationImportance

    Raises
    ------
    ValueError
        If X and y have different numbers of rows, y has missing values, or the score is not a
        number.

    References
    ----------
    L. Breiman, "Random forests", Machine Learning 45, 2001.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab import MLPClassifier
    >>> from combutab.inspection import permutation_importance
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> clf = MLPClassifier(random_state=0).fit(X[::2], y[::2])
    >>> found = permutation_importance(clf, X[1::2], y[1::2], random_state=0)
    >>> found.scoring, found.table["column"].iloc[0][:5]
    ('ROC AUC', 'petal')
    """
    _check_least("n_repeats", n_repeats, 2)
    _check_least("max_samples", max_samples, 2)
    X, labels = as_frame(estimator, X), np.asarray(as_numpy(as_pandas(y, "y"), "y"))
    check_consistent_length(X, labels)
    if n_missing := int(pd.isna(labels).sum()):
        raise ValueError(f"y has {n_missing} missing values; leave these rows out")
    name, greater_is_better, scorer = _scorer(estimator, X, labels, scoring)
    rng = as_generator(random_state)
    strata = labels if is_classifier(estimator) and labels.ndim == 1 else None
    rows, scores, n_rows = np.arange(len(X)), [], min(len(X), max_samples)
    decreases = np.empty((n_repeats, X.shape[1]))
    for repeat in range(n_repeats):
        seed, shuffle = (int(number) for number in rng.integers(2**31, size=2))
        drawn = resample(rows, n_samples=n_rows, stratify=strata, random_state=seed)
        sample, sample_labels = X.iloc[drawn].reset_index(drop=True), labels[drawn]
        scores.append(float(scorer(estimator, sample, sample_labels)))
        if not np.isfinite(scores[-1]):
            raise ValueError(
                f"{name} is {scores[-1]} on {counted(len(X), 'row')}; use another metric, or more "
                "rows"
            )
        result = inspection.permutation_importance(
            estimator,
            sample,
            sample_labels,
            scoring=scorer,
            n_repeats=1,
            n_jobs=n_jobs,
            random_state=shuffle,
        )
        decreases[repeat] = result.importances[:, 0]
    mean, spread = decreases.mean(0), decreases.std(0, ddof=1)
    # of one bootstrap sample: the variance due to new rows
    half = stats.t.ppf(0.975, n_repeats - 1) * spread
    table = pd.DataFrame({"column": list(X.columns), "importance": mean})
    table = table.assign(low=mean - half, high=mean + half)
    table = table.sort_values("importance", ascending=False, kind="stable", ignore_index=True)
    frame = pd.DataFrame(decreases, columns=X.columns)
    score = float(np.mean(scores)) * (1 if greater_is_better else -1)
    return PermutationImportance(table, frame, name, greater_is_better, score, n_rows)


def _scorer(
    estimator: Any, X: Any, y: np.ndarray, scoring: str | Callable[..., float] | None
) -> tuple[str, bool, Callable[..., float]]:
    """The score's name, whether greater is better, and what computes it, greater for better."""
    if callable(scoring):
        return getattr(scoring, "__name__", "score"), True, scoring
    task = "classification" if is_classifier(estimator) else "regression"
    if scoring is None:
        scoring = _default_scoring(estimator, X, y, task)
    metric = find_metric(scoring, task)
    sign = 1 if metric.greater_is_better else -1
    if task == "regression":

        def score_numbers(model: Any, X: Any, y: np.ndarray) -> float:
            numbers = predict_labels(model, X)
            return sign * metric.values(y, numbers, numbers)

        return metric.title, metric.greater_is_better, score_numbers
    classes, positive = class_labels(estimator), 1
    positions = class_positions(y, classes, "y")  # raises for an unknown class
    if len(classes) == 2 and positions.ndim == 1:
        positive = positive_class(classes, np.bincount(positions, minlength=2))
    if metric.response_method != "predict":
        response = class_scores(estimator, X[:1])
        if response is None or not metric.accepts(response[1]):
            raise ValueError(needs_method(metric.name, metric.response_method))

    def score_classes(model: Any, X: Any, y: np.ndarray) -> float:
        truth = class_positions(y, classes, "y")
        if metric.response_method == "predict":
            labels = class_positions(predict_labels(model, X), classes, "a prediction")
            answers = as_positive(positive, truth, labels, one_hot(labels, len(classes)))
            return sign * metric.values(*answers)
        response = class_scores(model, X)
        assert response is not None  # checked above
        return sign * metric.values(*as_positive(positive, truth, truth, response[0]))

    return metric.title, metric.greater_is_better, score_classes


def _default_scoring(estimator: Any, X: Any, y: np.ndarray, task: str) -> str:
    """R2; ROC AUC, or accuracy for a classifier without scores; log loss for a single class."""
    if task == "regression":
        return "r2"
    response = class_scores(estimator, X[:1])
    if response is None:
        return "accuracy"
    one_class = y.ndim == 1 and len(pd.unique(pd.Series(y))) == 1
    if not one_class:
        return "roc_auc"
    return "log_loss" if response[1] == "predict_proba" else "accuracy"


# ---- Partial dependence and individual conditional expectation -----------------------------------

_MOST_CATEGORIES = 20
_ENDS = 0.05, 0.95  # quantiles between which numbers are varied


@dataclass(frozen=True, eq=False)
class PartialDependence:
    """Result of `partial_dependence`: predictions with one column set to several values.

    Attributes
    ----------
    column : hashable
        The varied column.
    values : list
        Its values: numbers and dates in ascending order, categories by frequency.
    categorical : bool
        Whether the values are categories.
    average : DataFrame of shape (n_values, n_outputs)
        Partial dependence: the mean prediction over the rows, with one column per output.
    individual : ndarray of shape (n_outputs, n_rows, n_values)
        Prediction for each row (ICE, individual conditional expectation).
    """

    column: Hashable
    values: list[Any]
    categorical: bool
    average: pd.DataFrame
    individual: np.ndarray

    def __repr__(self) -> str:
        _, n_rows, n_values = self.individual.shape
        return f"PartialDependence({self.column!r}, n_values={n_values}, n_rows={n_rows})"

    @property
    def table(self) -> pd.DataFrame:
        """One row per value and output: the mean, and the 5 % and 95 % quantiles over the rows."""
        parts = []
        for name, rows in zip(self.average.columns, self.individual, strict=True):
            low, high = np.quantile(rows, [0.05, 0.95], axis=0)
            index_columns = {"column": self.column, "value": self.values, "output": name}
            predictions = {"mean": self.average[name].to_numpy(), "low": low, "high": high}
            parts.append(pd.DataFrame({**index_columns, **predictions}))
        return pd.concat(parts, ignore_index=True)


def partial_dependence(
    estimator: Any,
    X: Any,
    columns: Hashable | Sequence[Hashable] | None = None,
    *,
    target: Any = None,
    n_values: int = 20,
    max_samples: int = 200,
    random_state: RandomState = None,
) -> list[PartialDependence]:
    """Compute partial dependence and ICE curves by scikit-learn's `partial_dependence`.

    Numbers and dates are varied between their 5 % and 95 % quantiles, categories and booleans over
    their most frequent values. Unlike scikit-learn's function, it also accepts integers, dates, and
    columns with missing values. Missing values of other columns are kept, and a column is not set
    to missing.

    A column is varied while all others are kept. If columns are correlated, this creates rows that
    do not occur in the data.

    Parameters
    ----------
    estimator : fitted classifier or regressor
        An estimator of this library or of scikit-learn, including pipelines. The predictions are
        those of a regressor, or ``predict_proba`` or else ``decision_function`` of a classifier.
    X : table of shape (n_samples, n_features)
        Rows whose columns are varied.
    columns : column name or sequence of column names, optional
        Columns to vary; by default all.
    target : class label or int, optional
        Class, or position of one of several outputs. By default the second of two classes, or all
        classes or outputs if there are more.
    n_values : int, default=20
        Maximum number of values of a column of numbers or dates. For categories, the 20 most
        frequent are used.
    max_samples : int, default=200
        Maximum number of rows, sampled at random.
    random_state : int, RandomState, Generator or None, default=None
        Random seed for sampling these rows.

    Returns
    -------
    list of PartialDependence
        One result per column. Empty columns are left out.

    Raises
    ------
    ValueError
        If a column, class or output does not exist, or a classifier only predicts labels.

    References
    ----------
    A. Goldstein, A. Kapelner, J. Bleich and E. Pitkin, "Peeking inside the black box", Journal of
    Computational and Graphical Statistics 24, 2015.

    Examples
    --------
    >>> import pandas as pd
    >>> from combutab import MLPRegressor
    >>> from combutab.inspection import partial_dependence
    >>> X = pd.DataFrame({"size": [20, 35, 50, 90] * 10, "kind": ["a", "b"] * 20})
    >>> reg = MLPRegressor(max_iter=10, n_iter_no_change=float("inf"), random_state=0)
    >>> size, kind = partial_dependence(reg.fit(X, X["size"] * 10.0), X)
    >>> size.values, kind.values, size.average.shape, size.individual.shape
    ([20.0, 35.0, 50.0, 90.0], ['a', 'b'], (4, 1), (1, 40, 4))
    """
    _check_least("n_values", n_values, 2)
    _check_least("max_samples", max_samples, 1)
    frame = as_frame(estimator, X)
    chosen = list(frame.columns) if columns is None else as_names(columns)
    for name in chosen:
        if name not in frame.columns:
            raise ValueError(no_column(name, frame.columns))
    outputs = Outputs.of(estimator, frame)
    names, position = outputs.names, outputs.find(target)
    if (
        outputs.multilabel and len(names) == 2 and position == 0
    ):  # which scikit-learn takes for two classes
        raise ValueError(
            f"of two labels there is the partial dependence of the second only, got {target=}; fit "
            "a classifier for this label"
        )
    rows = sampled_rows(len(frame), max_samples, as_generator(random_state))
    results = []
    for name in chosen:
        values, categorical = _values_to_set(estimator, frame, name, n_values)
        if values:
            individual = _set_in_turn(estimator, frame.iloc[rows], name, values, categorical)
            output_names = (
                names if len(individual) > 1 else [names[-1]]
            )  # of two classes, the second
            if position is not None and len(individual) > 1:
                individual, output_names = individual[position : position + 1], [names[position]]
            elif position == 0 and len(names) == 2:
                has_probabilities = hasattr(estimator, "predict_proba")
                individual = 1 - individual if has_probabilities else -individual
                output_names = [names[0]]
            average = pd.DataFrame(individual.mean(1).T, columns=output_names)
            results.append(PartialDependence(name, values, categorical, average, individual))
    return results


def _values_to_set(
    estimator: Any, frame: pd.DataFrame, name: Hashable, n_values: int
) -> tuple[list[Any], bool]:
    """The values that a column is set to, and whether they are categories."""
    column = frame[name].dropna()
    kinds = getattr(getattr(estimator, "encoder_", None), "kinds_", None)
    position = int(frame.columns.get_indexer(pd.Index([name]))[0])
    kind = column_kind(column) if kinds is None else kinds[position]
    ordered = kind in (ColumnKind.NUMBER, ColumnKind.DATETIME, ColumnKind.TIMEDELTA)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if not ordered:
        return column.value_counts().index[:_MOST_CATEGORIES].tolist(), True
    if kind == ColumnKind.NUMBER:
        column = column.astype(np.float64)
        column = column[np.isfinite(column)]
    distinct = column.drop_duplicates().sort_values()
    if len(distinct) > n_values:
        at = np.linspace(*_ENDS, n_values)
        distinct = column.quantile(at, interpolation="nearest").drop_duplicates()
    return distinct.tolist(), False


def _set_in_turn(
    estimator: Any, frame: pd.DataFrame, name: Hashable, values: list[Any], categorical: bool
) -> np.ndarray:
    """Predictions with a column set to each value: (n_outputs, n_rows, n_values)."""
    position = int(frame.columns.get_indexer(pd.Index([name]))[0])
    grid = np.empty(len(values), dtype=object)
    grid[:] = values
    if dtype_kind(frame[name].dtype) == ColumnKind.NUMBER:
        # scikit-learn sets no whole numbers, nor numbers of pandas' own dtypes
        dtype = object if categorical else np.float64
        frame, grid = frame.copy(), grid.astype(dtype)
        frame[name] = frame[name].astype(dtype)
    with warnings.catch_warnings():
        # a value in all rows may be one that fit has not kept
        warnings.filterwarnings("ignore", ".* values of .* are known to the model", UserWarning)
        result = inspection.partial_dependence(
            estimator,
            frame,
            [position],
            custom_values={position: grid},
            kind="individual",
            method="brute",
        )
    individual: np.ndarray = np.asarray(result["individual"], dtype=np.float64)
    return individual


# ---- Target leakage: columns that predict the target nearly perfectly by themselves --------------

_FOLDS = 3
_NEARLY_PERFECT = 0.9  # accuracy or R2


def leaking_columns(
    X: Any,
    y: Any,
    *,
    task: str,
    y_pred: Any = None,
    threshold: float = 0.995,
    max_rows: int = 2000,
    random_state: RandomState = 0,
) -> pd.Series:
    """Find the columns that predict the target nearly perfectly by themselves.

    These columns often contain the target in another form, or are known only after it. A decision
    tree per column is scored by cross-validation.

    Parameters
    ----------
    X : table of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Classes or numbers, without missing values.
    task : {"classification", "regression"}
    y_pred : array-like of shape (n_samples,), optional
        Predictions of a model for these rows. If their accuracy or R2 is below 0.9, no column is
        tried, because a model of all columns is at least as good as one column.
    threshold : float, default=0.995
        Score above which a column is returned: ROC AUC (mean of one class against the others), or
        R2.
    max_rows : int, default=2000
        Number of rows to use; a random sample of larger tables.
    random_state : int, RandomState, Generator or None, default=0
        Random seed for the sample of rows and the folds.

    Returns
    -------
    Series
        Scores, by column, in descending order. It is empty if a class or the table has too few rows
        for three folds.

    Raises
    ------
    ValueError
        If ``task`` is unknown, y has two dimensions, or the numbers of rows differ.

    Examples
    --------
    >>> price = np.linspace(1, 9, 90)
    >>> table = pd.DataFrame({"price_with_tax": 1.2 * price, "color": ["red", "blue"] * 45})
    >>> leaking_columns(table, price, task="regression").index.tolist()
    ['price_with_tax']
    """
    if task not in ("classification", "regression"):
        raise ValueError(f"task must be 'classification' or 'regression', got {task!r}")
    frame, target = Table(X).frame(), np.asarray(y)
    if target.ndim != 1:
        raise ValueError(f"y must have one dimension, got shape {target.shape}; pass one target")
    if len(frame) != len(target):
        raise ValueError(f"X and y have different numbers of rows: {len(frame)} and {len(target)}")
    is_classification = task == "classification"
    measure = accuracy_score if is_classification else r2_score
    target = plain_labels(target) if is_classification else target.astype(np.float64)
    if y_pred is not None:
        y_pred = np.asarray(y_pred)
        y_pred = plain_labels(y_pred) if is_classification else y_pred.astype(np.float64)
        if measure(target, y_pred) < _NEARLY_PERFECT:
            return pd.Series(dtype=np.float64)
    rng = as_generator(random_state)
    rows = sampled_rows(len(frame), max_rows, rng)
    frame, target = frame.iloc[rows], target[rows]
    seed = int(rng.integers(2**31))
    target = np.unique(target, return_inverse=True)[1] if is_classification else _scale(target)
    n_least = np.bincount(target).min() if is_classification else len(target)
    if n_least < _FOLDS or np.all(target == target[0]):
        return pd.Series(dtype=np.float64)
    folds = (StratifiedKFold if is_classification else KFold)(
        _FOLDS, shuffle=True, random_state=seed
    )
    tree_class = DecisionTreeClassifier if is_classification else DecisionTreeRegressor
    scoring = "roc_auc_ovr" if is_classification else "r2"
    scores = {}
    for name, column in frame.items():
        model = tree_class(random_state=seed)
        values = _as_numbers(column)[:, None]
        score = cross_val_score(model, values, target, cv=folds, scoring=scoring).mean()
        if score > threshold:
            scores[name] = score
    return pd.Series(scores, dtype=np.float64).sort_values(ascending=False)


def _as_numbers(column: pd.Series) -> np.ndarray:
    """Scale numbers and dates to 0 to 1, and give other values codes, rare ones the same code."""
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return _scale(column.astype("int64").where(column.notna()).to_numpy(dtype=np.float64))
    if pd.api.types.is_numeric_dtype(column.dtype):
        return _scale(column.to_numpy(dtype=np.float64, na_value=np.nan))
    codes = pd.factorize(column.astype(str))[0]
    is_rare = np.bincount(codes)[codes] < _FOLDS
    return np.where(is_rare, -1.0, codes)


def _scale(values: np.ndarray) -> np.ndarray:
    """Scale finite numbers to 0 to 1, as trees compute in float32; the others become missing."""
    is_finite = np.isfinite(values)
    if not is_finite.any():
        return np.zeros(len(values))
    values = np.where(is_finite, values, np.nan) / (np.abs(values[is_finite]).max() or 1.0)
    values -= np.nanmin(values)
    return values / (np.nanmax(values) or 1.0)
