"""Figures of how training went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from combutab.plotting._layers import line_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT, _WIDTH = 2.4, 7.2  # inches of a panel
_SCORES = {"r2": "R²"}
_VALIDATION_LOSS = "validation loss"


def plot_loss_curve(estimators: Any) -> Figure:
    """Draw the training loss by epoch, and below it the score of the validation rows.

    Members of an ensemble are thin lines, their mean is a thick one, as far as all of them train;
    dots are the epochs whose weights are kept. What ``early_stopping_scoring="loss"`` scores is
    drawn as the loss that it is.

    Parameters
    ----------
    estimators : fitted estimator, sequence of them, or mapping of name to estimator
        Of `combutab`, or of scikit-learn with a ``loss_curve_``. Of several ``fit`` calls with
        ``warm_start``, or of ``partial_fit``, all epochs of one network are drawn, and of an
        ensemble those of the last call.

    Returns
    -------
    matplotlib.figure.Figure
        Not known to pyplot; ``figure.savefig(path)`` writes it, and ``figure.axes`` are the panels
        (``figure.axes[0].set_yscale("log")``, say).

    Raises
    ------
    ValueError
        There is nothing to draw, or an estimator has no epochs, as with ``solver="lbfgs"``.
    sklearn.exceptions.NotFittedError
        An estimator is not fitted.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab import MLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MLPClassifier(max_iter=5, n_iter_no_change=float("inf"), early_stopping=True,
    ...                     early_stopping_scoring="accuracy", n_members=3, random_state=0)
    >>> figure = plot_loss_curve(clf.fit(X, y))
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['training loss', 'validation accuracy']
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    named = _named(estimators)
    curves = {name: _curve(name, estimator) for name, estimator in named.items()}
    labels = {
        name: _score_label(named[name])
        for name, curve in curves.items()
        if curve["validation_score"].notna().any()
    }
    different = set(labels.values())
    label = different.pop() if len(different) == 1 else "validation score"
    panels = ["train_loss", "validation_score"] if labels else ["train_loss"]
    figure = Figure(figsize=(_WIDTH, 0.7 + _HEIGHT * len(panels)), layout="constrained")
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False).ravel()
    for i, (name, curve) in enumerate(curves.items()):
        best = _best_epochs(curve) if name in labels else {}
        if label == _VALIDATION_LOSS:
            curve = curve.assign(validation_score=-curve["validation_score"])
        for column, axes in zip(panels, grid, strict=True):
            _draw(axes, curve, column, best, line_of(i))
    for axes in grid:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.xaxis.get_major_locator().set_params(integer=True)
    grid[0].set_ylabel("training loss")
    grid[-1].set_xlabel("epoch")
    if labels:
        grid[1].set_ylabel(label, parse_math=False)
    figure.align_ylabels(grid)
    handles = [Line2D([], [], label=name, **line_of(i)) for i, name in enumerate(named) if name]
    if any(curve["member"].nunique() > 1 for curve in curves.values()):
        thin = Line2D([], [], color="0.45", linewidth=0.7, alpha=0.6, label="a member")
        handles += [thin, Line2D([], [], color="0.45", linewidth=2.0, label="mean of members")]
    if labels:
        kept = "epoch whose weights are kept"
        handles.append(Line2D([], [], marker="o", color="0.45", linestyle="", label=kept))
    if handles:
        figure.legend(
            handles=handles,
            loc="outside upper center",
            ncols=min(len(handles), 4),
            frameon=False,
            fontsize=9,
        )
    return figure


def _named(estimators: Any) -> dict[str, Any]:
    if isinstance(estimators, Mapping):
        named = {str(name): each for name, each in estimators.items()}
    elif isinstance(estimators, Sequence):
        named = {str(i): each for i, each in enumerate(estimators, 1)}
    else:
        named = {"": estimators}
    if not named:
        raise ValueError("nothing to draw: no estimators are given")
    return named


def _curve(name: str, estimator: Any) -> pd.DataFrame:
    """Columns member, epoch, train_loss and validation_score; what counts as better is larger."""
    check_is_fitted(estimator)
    history = getattr(estimator, "history_", None)
    losses = getattr(estimator, "loss_curve_", None) or []
    if history is None or (history["member"].nunique() == 1 and len(history) < len(losses)):
        scores = getattr(estimator, "validation_scores_", None) or []
        history = pd.DataFrame({"member": 0, "epoch": np.arange(len(losses)) + 1})
        # of earlier calls there may be none
        history["train_loss"] = np.asarray(losses, dtype=float)
        history["validation_score"] = [np.nan] * (len(losses) - len(scores)) + list(scores)
    if history.empty:
        of = f" of {name!r}" if name else ""
        raise ValueError(
            f"the {type(estimator).__name__}{of} has no epochs to draw; solver='lbfgs' has none"
        )
    return history


def _score_label(estimator: Any) -> str:
    scoring = getattr(estimator, "early_stopping_scoring", None)
    scoring = scoring or getattr(estimator, "_score_name", "score")
    words = scoring if isinstance(scoring, str) else getattr(scoring, "__name__", "score")
    return f"validation {_SCORES.get(words, words)}"


def _best_epochs(curve: pd.DataFrame) -> dict[Any, int]:
    """The epoch with the best score, by member; the first of equals, as training keeps it."""
    scored = curve[curve["validation_score"].notna()]
    places = scored.groupby("member")["validation_score"].idxmax()
    rows = scored.loc[places]
    return dict(zip(rows["member"].tolist(), rows["epoch"].tolist(), strict=True))


def _draw(
    axes: Any, curve: pd.DataFrame, column: str, best: Mapping[Any, int], line: Mapping[str, Any]
) -> None:
    """One estimator's lines in one panel."""
    table = curve.pivot(index="epoch", columns="member", values=column)
    several = table.shape[1] > 1
    marker = "." if len(table) == 1 else ""
    for member in table.columns.tolist():
        values = table[member]
        width, alpha = (0.7, 0.6) if several else (1.6, 1.0)
        axes.plot(table.index, values, linewidth=width, alpha=alpha, marker=marker, **line)
        if member in best:
            epoch = best[member]
            axes.plot(
                epoch,
                values[epoch],
                marker="o",
                markersize=4 if several else 6,
                color=line["color"],
                linestyle="",
                zorder=4,
            )
    if several:
        together = table.dropna()
        axes.plot(together.index, together.mean(axis=1), linewidth=2.0, marker=marker, **line)
