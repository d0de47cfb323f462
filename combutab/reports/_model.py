"""The report of a fitted model: its training, its scores and its explanations."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import is_classifier

from combutab._version import __version__
from combutab.core.rng import RandomState, as_generator
from combutab.core.text import counted, join_names
from combutab.evaluation import PredictionScores, evaluate_predictions
from combutab.inspection import (
    Attributions,
    PartialDependence,
    PermutationImportance,
    attributions,
    leaking_columns,
    partial_dependence,
    permutation_importance,
)
from combutab.plotting import (
    AttributionDisplay,
    PartialDependenceDisplay,
    PermutationImportanceDisplay,
)
from combutab.preprocessing import as_pandas
from combutab.reports._charts import least_rows, shorten_middle
from combutab.reports._page import inline_svg, number, render, svg_style, versions

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

_CURVES = 6  # columns whose partial dependence is drawn, the most important ones
_BINS = 10  # of a calibration curve, and groups of predicted numbers
_ENOUGH = 50  # rows for either
_LINES = 50  # rows that are drawn (ICE)
_UNEVEN = 0.25  # share of a class, below which the threshold of two classes matters
_NOT_TOLD = {"callbacks", "verbose", "device", "n_jobs"}  # parameters that change no model


@dataclass(frozen=True, eq=False)
class ModelReport:
    """Result of `report_model`: scores and explanations of a fitted model, for `write_report`.

    Attributes
    ----------
    model : str
        Class of the estimator.
    target : str or None
        Name of the target.
    facts : dict of str to str
        Facts about the training.
    scored : str
        Sentence that describes the rows of the scores and importances.
    scores : PredictionScores or None
        Scores on these rows.
    importance : PermutationImportance or None
        Permutation importances on these rows.
    dependences : list of PartialDependence
        Partial dependence of the most important columns.
    attributions : Attributions or None
        Attributions of the explained rows.
    columns : DataFrame
        One row per column: its kind, the share of missing values, and its encoding.
    warnings : list of str
        Warnings of the training.
    file : str
        Name of the model file, for the examples of its use.
    min_frequency : float
        Number of rows, or share of them, that must have a category for the report to show it.
    leaks : Series
        Scores of the columns that predict the target nearly perfectly by themselves.
    """

    model: str
    target: str | None
    facts: dict[str, str]
    scored: str
    scores: PredictionScores | None
    importance: PermutationImportance | None
    dependences: list[PartialDependence]
    attributions: Attributions | None
    columns: pd.DataFrame
    warnings: list[str] = field(default_factory=list)
    file: str = "model.safetensors"
    min_frequency: float = 5
    leaks: pd.Series = field(default_factory=lambda: pd.Series(dtype=np.float64))

    @property
    def title(self) -> str:
        """Title of the page."""
        return "Prediction" if self.target is None else f"Prediction of {self.target}"


def report_model(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    scores: PredictionScores | None = None,
    with_scores: bool = True,
    explain: Any = None,
    target: str | None = None,
    facts: Mapping[str, str] | None = None,
    scored: str = "",
    warnings: Sequence[str] = (),
    file: str = "model.safetensors",
    scoring: str | None = None,
    n_repeats: int = 10,
    columns: Sequence[Any] | None = None,
    min_frequency: float = 5,
    random_state: RandomState = 0,
) -> ModelReport:
    """Evaluate and explain a fitted model on new rows, for a report.

    Parameters
    ----------
    estimator : fitted classifier or regressor
        An estimator of this library or of scikit-learn. A classifier needs ``predict_proba`` or
        ``decision_function``.
    X : table of shape (n_samples, n_features)
        Rows that the model was not trained on.
    y : array-like of shape (n_samples,), optional
        Their targets. Without them, there are no scores and no importances.
    scores : PredictionScores, optional
        Known scores, such as those of `combutab.evaluation.evaluate_held_out`. By default they are
        computed from X and y.
    with_scores : bool, default=True
        Whether to compute scores if they are not given. Use False if X has training rows, on which
        the scores would be too good.
    explain : table, optional
        Rows whose predictions are attributed to the columns. The report shows their values.
    target : str, optional
        Name of the target; by default the name of ``y``, if it has one.
    facts : mapping of str to str, optional
        Additional facts about the training, such as its time.
    scored : str, optional
        Sentence that describes the rows of X. By default it has their number.
    warnings : sequence of str, optional
        Warnings of the training.
    file : str, default="model.safetensors"
        Name of the model file, for the examples of its use.
    scoring : str, optional
        Metric of the importances, and main metric of the scores. By default ROC AUC or R2.
    n_repeats : int, default=10
        Number of repeats of the permutation importance.
    columns : sequence of column names, optional
        Columns of the partial dependence plots; by default the six most important ones.
    min_frequency : int or float, default=5
        Number of rows, or share of them, that must have a category for the report to show it.
    random_state : int, RandomState, Generator or None, default=0
        Random seed for bootstrap samples, shuffles and samples of rows.

    Returns
    -------
    ModelReport

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab import MLPClassifier
    >>> from combutab.reports import report_model, write_report
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> clf = MLPClassifier(max_iter=30, random_state=0).fit(X[::2], y[::2])
    >>> found = report_model(clf, X[1::2], y[1::2], n_repeats=2)
    >>> found.title, found.scores.metric, len(found.dependences)
    ('Prediction of target', 'roc_auc', 4)
    """
    frame = as_pandas(X)
    frame = frame if isinstance(frame, pd.DataFrame) else pd.DataFrame(np.asarray(frame))
    min_rows = least_rows(min_frequency, len(frame))
    rng = as_generator(random_state)
    if target is None and getattr(y, "name", None) is not None:
        target = str(y.name)
    importance = None
    if y is not None:
        if scores is None and with_scores:
            scores = evaluate_predictions(estimator, X, y, scoring=scoring, random_state=rng)
        importance = permutation_importance(
            estimator, X, y, scoring=scoring, n_repeats=n_repeats, random_state=rng
        )
    if columns is None:
        columns = list(frame) if importance is None else importance.table["column"].tolist()
        columns = columns[:_CURVES]
    dependences = partial_dependence(estimator, X, columns, random_state=rng)
    row_attributions = (
        None if explain is None else attributions(estimator, explain, X, random_state=rng)
    )
    leaks = pd.Series(dtype=np.float64)
    if scores is not None and y is not None and scores.y_true.ndim == 1:
        y_pred = scores.y_pred if len(scores.y_pred) == len(frame) else None
        leaks = leaking_columns(frame, y, task=scores.task, y_pred=y_pred, random_state=rng)
    return ModelReport(
        type(estimator).__name__,
        target,
        {**(facts or {}), **model_facts(estimator), **_uncertainty_facts(estimator, X)},
        scored or f"The scores and importances are computed on {counted(len(frame), 'row')}.",
        scores,
        importance,
        [_shown_values(dependence, frame, min_rows) for dependence in dependences],
        row_attributions,
        column_table(estimator, frame),
        list(dict.fromkeys(map(str, warnings))),
        file,
        min_frequency,
        leaks,
    )


def _describe_leaks(leaks: pd.Series) -> str:
    """Write which columns leak the target, and what to do about it."""
    if leaks.empty:
        return ""
    subject = "The column" if len(leaks) == 1 else "Each of the columns"
    return (
        f"{subject} {join_names(map(repr, leaks.index), 5)} predicts the target nearly perfectly "
        "by itself. If it is known only after the target, or contains it in another form, the "
        "scores do not apply to new rows: leave it out and train again."
    )


def _shown_values(
    dependence: PartialDependence, frame: pd.DataFrame, min_rows: int
) -> PartialDependence:
    """Without the categories that too few rows have."""
    if not dependence.categorical:
        return dependence
    counts = frame[dependence.column].value_counts()
    positions = [i for i, value in enumerate(dependence.values) if counts.get(value, 0) >= min_rows]
    return replace(
        dependence,
        values=[dependence.values[i] for i in positions],
        average=dependence.average.iloc[positions].reset_index(drop=True),
        individual=dependence.individual[:, :, positions],
    )


def model_facts(estimator: Any) -> dict[str, str]:
    """Facts about a fitted estimator: epochs, networks, parameters, versions."""
    facts = {"Model": type(estimator).__name__}
    if hasattr(estimator, "n_features_in_"):
        facts["Feature columns"] = f"{estimator.n_features_in_:,}"
    classes = getattr(estimator, "classes_", None)
    if is_classifier(estimator) and classes is not None:
        facts["Classes"] = f"{len(classes):,}"
    members = getattr(estimator, "members_", None)
    if members is not None:
        n_selected = int((members["weight"] > 0).sum())
        facts["Members"] = f"{len(members):,} trained, {n_selected:,} of them in the ensemble"
    elif hasattr(estimator, "history_"):
        facts["Networks"] = f"{max(1, estimator.history_['member'].nunique()):,}"
    if hasattr(estimator, "n_iter_"):
        history = getattr(estimator, "history_", None)
        n_epochs = np.max(estimator.n_iter_) if history is None else history["epoch"].max()
        facts["Epochs"] = f"{n_epochs:,}"
    defaults = inspect.signature(type(estimator)).parameters
    changed = [
        f"{name}={value!r}"
        for name, value in estimator.get_params(deep=False).items()
        if name not in _NOT_TOLD
        and name in defaults
        and not _is_default(value, defaults[name].default)
    ]
    facts["Non-default parameters"] = ", ".join(changed)[:1000] or "none"
    facts["Versions"] = ", ".join(
        f"{name} {library_version}" for name, library_version in versions().items()
    )
    return facts


def _uncertainty_facts(estimator: Any, X: Any) -> dict[str, str]:
    """Mean size of the conformal intervals or sets of labels, if the estimator has them."""
    predict = getattr(estimator, "predict_interval", None) or getattr(
        estimator, "predict_set", None
    )
    try:
        regions = None if predict is None else predict(X, coverage=0.9)
    except ValueError:  # no rows were set aside, or there are several labels per row
        regions = None
    if regions is None:
        return {}
    if is_classifier(estimator):
        return {"90 % sets of labels": f"{regions.sum(1).mean():.2f} labels on average"}
    half_widths = np.ptp(regions, axis=-1).reshape(len(regions), -1).mean(0) / 2
    sizes = ", ".join(f"± {number(size)}" for size in half_widths)
    return {"90 % prediction intervals": f"{sizes} on average"}


def _is_default(value: Any, default: Any) -> bool:
    try:
        return bool(value is default or value == default)
    except ValueError:  # arrays
        return False


def column_table(estimator: Any, X: pd.DataFrame) -> pd.DataFrame:
    """One row per column of a table: its kind, its missing values and its encoding."""
    encoder = getattr(estimator, "encoder_", None)
    missing = X.isna().mean().to_numpy()
    if encoder is None or len(encoder.kinds_) != X.shape[1]:
        kinds, became = [str(dtype) for dtype in X.dtypes], [""] * X.shape[1]
    else:
        kinds, maps = list(map(str, encoder.kinds_)), {m.column: m for m in encoder.category_maps_}
        words = list(encoder.describe_columns().values())
        became = [_became(encoder, maps.get(j), j, words[j]) for j in range(X.shape[1])]
    columns = {"column": list(X.columns), "kind": kinds, "missing": missing, "became": became}
    return pd.DataFrame(columns)


def _became(encoder: Any, categories: Any, column: int, words: str) -> str:
    if words.startswith(("date", "free text")):
        return words.partition(": ")[2]
    spans = [span for span in encoder.spans_ if span.column == column]
    width = sum(span.slice.stop - span.slice.start for span in spans)
    if categories is None:
        indicated = any(span.kind == "indicator" for span in spans)
        plural = "" if width == 1 else "s"
        return f"{width} input{plural}" + ", one of them marks missing values" * indicated
    n = len(categories.keys)
    description = f"{n:,} categor{'y' if n == 1 else 'ies'}"
    if not n:
        return "not used: no category is frequent enough"
    description += (
        ", rarer ones joined into one" if categories.rare or not categories.onehot else ""
    )
    return f"{description}; {'one-hot' if categories.onehot else 'embedding'}"


# ---- The page ------------------------------------------------------------------------------------


def model_page(report: ModelReport) -> str:
    """Render the report of a model as one self-contained HTML page."""
    with svg_style():
        figures = {
            "importance": _importance_figure(report.importance),
            "dependences": _dependence_figure(report.dependences),
            "fit": _fit_figure(report.scores),
            "rows": _row_figures(report.attributions),
        }
    sections = [
        ("scores", "Scores", report.scores),
        ("importance", "Importance", report.importance),
        ("dependence", "Dependence", report.dependences),
        ("rows", "Rows", report.attributions),
        ("columns", "Columns", True),
        ("use", "How to use", True),
        ("reading", "How to read", True),
    ]
    return render(
        "model.html",
        version=__version__,
        sections=[(anchor, name) for anchor, name, has_content in sections if has_content],
        found=report,
        figures=figures,
        score_rows=[] if report.scores is None else report.scores.formatted().reset_index()
        .rename(columns={"index": "metric", "95 % interval": "interval"}).to_dict("records"),
        verdict=_verdict(report.scores),
        leaks=_describe_leaks(report.leaks),
        thresholds=_threshold_rows(report.scores),
        said={
            "importance": _importance_said(report.importance),
            "dependences": _dependences_said(report.dependences),
            "rows": _rows_said(report.attributions),
        },
        confusion=_confusion_rows(report.scores),
        errors=_errors(report.scores),
        least=report.min_frequency,
    )  # fmt: skip


def _verdict(scores: PredictionScores | None) -> str:
    """Whether the model beats the baseline, in a sentence."""
    if scores is None:
        return ""
    row: Any = scores.table.loc[scores.metric]
    title, score, baseline = row["title"], row["score"], row["baseline"]
    scores_text = f"{title} is {number(score)}, and {number(baseline)} for the baseline"
    if not scores.beats_baseline:
        return f"The model is no better than the baseline: {scores_text}."
    if scores.no_interval:
        return f"{scores_text}. Whether the model is better is uncertain: {scores.no_interval}."
    mae: Any = scores.table.loc["mae"] if "mae" in scores.table.index else row
    if np.isnan(row["low"]) and mae["high"] >= mae["baseline"]:  # large errors, such as of R2
        return (
            f"{scores_text}. Whether the model is better is uncertain: a few rows determine this "
            "score, and MAE is not clearly better."
        )
    ends = (row["low"], row["high"])
    near = ends[0] <= baseline <= ends[1]
    if near:
        return (
            f"The model may be no better than the baseline: {scores_text}, which is within the "
            "95 % interval."
        )
    return f"The model is better than the baseline: {scores_text}."


def _threshold_rows(scores: PredictionScores | None) -> dict[str, Any] | None:
    """Precision and recall by threshold, if one of two classes is rare."""
    thresholds = None if scores is None else scores.thresholds
    if scores is None or thresholds is None or scores.n_rows < _ENOUGH:
        return None
    share = float(np.mean(scores.y_true == thresholds.columns.name))
    if min(share, 1 - share) >= _UNEVEN:
        return None
    rows = [
        (f"{threshold:g}", *("–" if np.isnan(value) else f"{100 * value:.0f} %" for value in row))
        for threshold, row in zip(thresholds.index, thresholds.to_numpy(), strict=True)
    ]
    return {"name": shorten_middle(str(thresholds.columns.name), 24), "rows": rows}


def _confusion_rows(scores: PredictionScores | None) -> dict[str, Any] | None:
    if scores is None or scores.confusion is None:
        return None
    table = scores.confusion
    names = [shorten_middle(str(name), 24) for name in table.columns]
    rows = [(shorten_middle(str(name), 24), row.tolist()) for name, row in table.iterrows()]
    return {"names": names, "rows": rows}


def _errors(scores: PredictionScores | None) -> list[tuple[str, str, str]]:
    """Quantiles of the absolute errors. The largest, which is one row's, is left out."""
    if scores is None or scores.errors is None:
        return []
    table = scores.errors[scores.errors.index < 1]
    numbers = table[["model", "baseline"]].to_numpy(dtype=float)
    return [
        (f"{100 * share:g} %", number(error), number(baseline_error))
        for share, (error, baseline_error) in zip(table.index.to_numpy(float), numbers, strict=True)
    ]


def _importance_said(importance: PermutationImportance | None) -> str:
    """Which columns matter most."""
    if importance is None:
        return ""
    names = importance.table.loc[importance.table["low"] > 0, "column"].astype(str).tolist()
    if not names:
        return "No column has an importance whose 95 % interval is above 0."
    first_names, n = ", ".join(names[:3]), len(importance.table)
    verb = "has" if len(names) == 1 else "have"
    return (
        f"Most important: {first_names}. {len(names)} of {counted(n, 'column')} {verb} an "
        "importance whose 95 % interval is above 0."
    )


def _dependences_said(dependences: Sequence[PartialDependence]) -> str:
    """The column with which the mean prediction changes most."""
    spans = [
        (float(np.ptp(column.to_numpy(dtype=float))), dependence.column, name, column)
        for dependence in dependences
        for name, column in dependence.average.items()
        if len(column)
    ]
    if not spans:
        return ""
    _, column, name, values = max(spans, key=lambda span: span[0])
    low, high = number(float(values.min())), number(float(values.max()))
    return f"Largest effect: {column}, where the mean {name} ranges from {low} to {high}."


def _rows_said(explained: Attributions | None) -> list[str]:
    """The prediction of each row, and the column with the largest contribution."""
    sentences = []
    for i in range(0 if explained is None else len(explained.values)):
        assert explained is not None
        values = explained.values.iloc[i].to_numpy(dtype=float)
        largest = int(np.abs(values).argmax())
        answer, base = float(explained.predictions[i]), float(explained.base_values[i])
        sentences.append(
            f"Row {explained.values.index[i]}: {explained.outputs[i]} {number(answer)} (mean of "
            f"other rows: {number(base)}). Largest contribution: "
            f"{explained.values.columns[largest]}, {number(float(values[largest]))}."
        )
    return sentences


def _importance_figure(importance: PermutationImportance | None) -> Markup | str:
    if importance is None:
        return ""
    figure = PermutationImportanceDisplay.from_results(importance).figure_
    numbers = importance.table[["importance", "low", "high"]].to_numpy(dtype=float)[:20]
    descriptions = [
        f"{name}: {number(mean)}, from {number(low)} to {number(high)}"
        for name, (mean, low, high) in zip(importance.table["column"], numbers, strict=False)
    ]
    return inline_svg(figure, "Permutation importance", "; ".join(descriptions), kind="fixed")


def _dependence_figure(dependences: list[PartialDependence]) -> Markup | str:
    nonempty = [dependence for dependence in dependences if dependence.values]
    if not nonempty:
        return ""
    figure = PartialDependenceDisplay.from_results(nonempty, n_lines=_LINES).figure_
    descriptions = []
    for dependence in nonempty:
        for name, column in dependence.average.items():
            mean = column.to_numpy(dtype=float)
            descriptions.append(f"{dependence.column}: mean {name} from {number(mean.min())} to "
                        f"{number(mean.max())}")  # fmt: skip
    return inline_svg(figure, "Partial dependence", "; ".join(descriptions), kind="fixed")


def _row_figures(explained: Attributions | None) -> list[Markup]:
    if explained is None:
        return []
    figures = []
    for i, label in enumerate(explained.values.index):
        values = explained.values.iloc[i]
        values = values.iloc[np.argsort(-values.abs().to_numpy(), kind="stable")]
        largest = zip(values.index[:10], values.to_numpy(float)[:10].tolist(), strict=True)
        descriptions = [f"{name}: {number(value)}" for name, value in largest]
        figure = AttributionDisplay.from_results(explained, i).figure_
        figures.append(
            inline_svg(
                figure, f"Attributions of row {label}", "; ".join(descriptions), kind="fixed"
            )
        )
    return figures


def _fit_figure(scores: PredictionScores | None) -> tuple[Markup, str] | None:
    """A calibration curve, or a plot of predicted and true numbers, and its title."""
    if scores is None or scores.n_rows < _ENOUGH or scores.y_true.ndim > 1:
        return None
    if scores.y_proba is not None and scores.classes is not None:
        classes = scores.classes.tolist()
        if len(classes) == 2:
            x, hit = scores.y_proba[:, 1], scores.y_true == scores.classes[1]
            names = f"predicted probability of {classes[1]!r}", f"observed share of {classes[1]!r}"
        else:
            predicted = pd.Index(scores.classes).get_indexer(pd.Index(scores.y_pred))
            x = scores.y_proba[np.arange(scores.n_rows), predicted]
            hit = scores.y_true == scores.y_pred
            names = "probability of the predicted class", "share of correct predictions"
        title, limits = "Calibration curve", (0.0, 1.0)
    elif scores.task == "regression":
        x, hit = scores.y_pred, scores.y_true
        names, title = ("predicted value", "true value"), "Predicted and true values"
        limits = None
    else:
        return None
    figure, description = _grouped(np.asarray(x, float), np.asarray(hit, float), names, limits)
    return inline_svg(figure, title, description, kind="fixed"), title


def _grouped(
    x: np.ndarray, y: np.ndarray, names: tuple[str, str], limits: tuple[float, float] | None
) -> tuple[Figure, str]:
    """Means of y over groups of equally many rows, by x; without limits, also most of y."""
    from matplotlib.figure import Figure

    n_groups = max(2, min(_BINS, len(x) // 20))
    order = np.argsort(x, kind="stable")
    groups = np.array_split(order, n_groups)
    at = np.array([x[rows].mean() for rows in groups])
    mean = np.array([y[rows].mean() for rows in groups])
    figure = Figure(figsize=(4.6, 3.4), layout="constrained")
    axes = figure.add_subplot()
    ends = limits or (float(min(at.min(), mean.min())), float(max(at.max(), mean.max())))
    axes.plot(ends, ends, color="0.45", linestyle="--", linewidth=0.9)
    if limits is None:
        low, high = np.array([np.quantile(y[rows], [0.1, 0.9]) for rows in groups]).T
    else:
        half = 1.96 * np.sqrt(mean * (1 - mean) / np.array([len(rows) for rows in groups]))
        low, high = np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1)
    axes.vlines(at, low, high, color="#0072B2", linewidth=1.6)
    axes.plot(at, mean, "o", color="#0072B2", markersize=5)
    axes.set_xlabel(names[0], parse_math=False)
    axes.set_ylabel(names[1], parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    points = "; ".join(f"{number(a)}: {number(b)}" for a, b in zip(at, mean, strict=True))
    return figure, f"Means of groups of rows: {points}"
