"""Figures of how training went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import pandas as pd
from sklearn.utils.validation import check_is_fitted

from combutab._histories import LearningCurves, learning_curves
from combutab.plotting._display import Display
from combutab.plotting._layers import line_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT, _WIDTH = 2.4, 7.2  # inches of a panel


class LossCurveDisplay(Display):
    """The training loss by epoch, and below it the score of the validation rows.

    A generator of several losses has a panel for each. Members of an ensemble are thin lines, their
    mean is a thick one, as far as all of them train; dots are the epochs whose weights are kept.
    What ``early_stopping_scoring="loss"`` scores is drawn as the loss that it is.

    Parameters
    ----------
    curves : mapping of name to LearningCurves
        As ``from_estimator`` reads them.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The panel of the training loss.
    axes_ : ndarray of matplotlib.axes.Axes
        A panel a loss, and that of the validation rows if there are scores of them.
    figure_ : matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab import MLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MLPClassifier(max_iter=5, early_stopping=True, n_members=3, random_state=0,
    ...                     n_iter_no_change=float("inf"))
    >>> display = LossCurveDisplay.from_estimator(clf.fit(X, y))
    >>> [axes.get_ylabel() for axes in display.axes_]
    ['training loss', 'validation loss']
    """

    def __init__(self, *, curves: Mapping[str, LearningCurves]) -> None:
        self.curves = dict(curves)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the curves of a fitted estimator, or of several.

        Parameters
        ----------
        estimator : fitted estimator, sequence of them, or mapping of name to estimator
            Of `combutab` (a pack or generator, too), or of scikit-learn with a ``loss_curve_``. Of
            several ``fit`` calls with ``warm_start``, or of ``partial_fit``, all epochs of one
            network are drawn, and of an ensemble those of the last call.
        ax : matplotlib.axes.Axes, or sequence of them, optional
            Where to draw: one, which is divided among the panels, or one a panel. By default a
            figure of its own.

        Returns
        -------
        LossCurveDisplay

        Raises
        ------
        ValueError
            There is nothing to draw, or an estimator has no epochs, as with ``solver="lbfgs"``.
        sklearn.exceptions.NotFittedError
            An estimator is not fitted.
        """
        curves = {name: _curves(name, each) for name, each in _named(estimator).items()}
        return cls(curves=curves).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw once more; ``ax`` as of ``from_estimator``."""
        from matplotlib.lines import Line2D

        shown = list(self.curves.values())
        words = {curves.validation for curves in shown if curves.scored}
        labels = {column: label for curves in shown for column, label in curves.panels().items()}
        if words:  # the last panel; scores of several kinds stay what they are
            labels["validation_score"] = labels.pop("validation_score")
            if len(words) > 1:
                labels["validation_score"] = "validation score"
        size = (_WIDTH, 0.7 + _HEIGHT * len(labels))
        panels = self._make_panels(ax, len(labels), 1, size, sharex=True)
        for i, curves in enumerate(shown):
            for column, axes in zip(labels, panels, strict=True):
                if column in curves.panels():
                    table = curves.of_each(column, as_scores=len(words) > 1)
                    _draw(axes, table, curves.best_epochs(), line_of(i))
        for axes, label in zip(panels, labels.values(), strict=True):
            axes.set_ylabel(label, parse_math=False)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="0.92", linewidth=0.8)
            axes.set_axisbelow(True)
            axes.locator_params("x", integer=True)
        panels[-1].set_xlabel("epoch")
        for axes in panels[:-1]:
            if axes.get_shared_x_axes().joined(axes, panels[-1]):
                axes.tick_params(labelbottom=False)
        self.figure_.align_ylabels(panels)
        named = [name for name in self.curves if name]
        handles = [Line2D([], [], label=n, **line_of(i)) for i, n in enumerate(named)]
        if any(curves.table["member"].nunique() > 1 for curves in self.curves.values()):
            thin = Line2D([], [], color="0.45", linewidth=0.7, alpha=0.6, label="a member")
            handles += [thin, Line2D([], [], color="0.45", linewidth=2.0, label="mean of members")]
        if any(curves.best_epochs() for curves in self.curves.values()):
            kept = "epoch whose weights are kept"
            handles.append(Line2D([], [], marker="o", color="0.45", linestyle="", label=kept))
        self._make_legend(handles, top=True)
        return self


def plot_loss_curve(estimators: Any) -> Figure:
    """Draw the training loss by epoch, and below it the score of the validation rows.

    It is the figure of `LossCurveDisplay`, which takes estimators as this does, and raises the same
    errors.

    Returns
    -------
    matplotlib.figure.Figure
        Not known to pyplot; ``figure.savefig(path)`` writes it, and ``figure.axes`` are the panels
        (``figure.axes[0].set_yscale("log")``, say).

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
    figure: Figure = LossCurveDisplay.from_estimator(estimators).figure_
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


def _curves(name: str, estimator: Any) -> LearningCurves:
    check_is_fitted(estimator)
    try:
        return learning_curves(estimator)
    except ValueError as error:
        of = f" of {name!r}" if name else ""
        raise ValueError(f"the {type(estimator).__name__}{of} {error}") from None


def _draw(axes: Any, table: pd.DataFrame, best: Mapping[Any, int], line: Mapping[str, Any]) -> None:
    """One estimator's lines in one panel, a column a member."""
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
