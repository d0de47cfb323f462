"""Figures of training: loss curves, and the members of a pack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import pandas as pd
from sklearn.utils.validation import check_is_fitted

from combutab.core.html import LearningCurves, learning_curves
from combutab.plotting._display import Display, label_rows, tidy
from combutab.plotting._networks import COLORS, line_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from combutab.estimators import PackClassifier, PackRegressor


# ---- Figures of how training went ----------------------------------------------------------------

_HEIGHT, _WIDTH = 2.4, 7.2  # inches of a panel


class LossCurveDisplay(Display):
    """Plot of the training loss by epoch, and below it the score of the validation rows.

    A generator with several losses has one panel per loss. Thin lines are the members of an
    ensemble; the thick line is their mean, until the first of them ends. Dots are the epochs whose
    weights are kept. With ``early_stopping_scoring="loss"`` the last panel has the validation loss.

    Parameters
    ----------
    curves : mapping of name to LearningCurves
        Curves of each estimator, as read by ``from_estimator``.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The panel of the training loss.
    axes_ : ndarray of matplotlib.axes.Axes
        One panel per loss, and one of the validation rows if they have scores.
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
        """Draw the curves of one or more fitted estimators.

        Parameters
        ----------
        estimator : fitted estimator, sequence of them, or mapping of name to estimator
            Estimators of `combutab` (also packs and generators), or of scikit-learn with a
            ``loss_curve_``. After several calls of ``fit`` with ``warm_start``, or of
            ``partial_fit``, all epochs are drawn for one network, and those of the last call for an
            ensemble.
        ax : matplotlib.axes.Axes, or sequence of them, optional
            Axes to draw into: one, which is divided among the panels, or one per panel. By default
            those of a new figure.

        Returns
        -------
        LossCurveDisplay

        Raises
        ------
        ValueError
            If no estimator is given, an estimator has no epochs (as with ``solver="lbfgs"``), or
            ``ax`` does not fit the number of panels.
        sklearn.exceptions.NotFittedError
            If an estimator is not fitted.
        """
        curves = {
            name: _curves(name, fitted) for name, fitted in _named_estimators(estimator).items()
        }
        return cls(curves=curves).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw again; ``ax`` as in ``from_estimator``."""
        from matplotlib.lines import Line2D

        tables = list(self.curves.values())
        words = {curves.validation for curves in tables if curves.scored}
        labels = {column: label for curves in tables for column, label in curves.panels().items()}
        if words:  # the last panel; scores of several kinds are not relabelled
            labels["validation_score"] = labels.pop("validation_score")
            if len(words) > 1:
                labels["validation_score"] = "validation score"
        size = (_WIDTH, 0.7 + _HEIGHT * len(labels))
        panels = self._make_panels(ax, len(labels), 1, size, sharex=True)
        for i, curves in enumerate(tables):
            for column, axes in zip(labels, panels, strict=True):
                if column in curves.panels():
                    table = curves.of_each(column, as_scores=len(words) > 1)
                    _draw_curves(axes, table, curves.best_epochs(), line_of(i))
        for axes, label in zip(panels, labels.values(), strict=True):
            axes.set_ylabel(label, parse_math=False)
            tidy(axes, grid="y")
            axes.locator_params("x", integer=True)
        panels[-1].set_xlabel("epoch")
        for axes in panels[:-1]:
            if axes.get_shared_x_axes().joined(axes, panels[-1]):
                axes.tick_params(labelbottom=False)
        self.figure_.align_ylabels(panels)
        names = [name for name in self.curves if name]
        handles = [Line2D([], [], label=n, **line_of(i)) for i, n in enumerate(names)]
        if any(curves.table["member"].nunique() > 1 for curves in self.curves.values()):
            thin = Line2D([], [], color="0.45", linewidth=0.7, alpha=0.6, label="a member")
            handles += [thin, Line2D([], [], color="0.45", linewidth=2.0, label="mean of members")]
        if any(curves.best_epochs() for curves in self.curves.values()):
            marker_label = "epoch whose weights are kept"
            handles.append(
                Line2D([], [], marker="o", color="0.45", linestyle="", label=marker_label)
            )
        self._make_legend(handles, top=True)
        return self


def plot_loss_curve(estimators: Any) -> Figure:
    """Draw the training loss by epoch, and below it the score of the validation rows.

    It is the figure of `LossCurveDisplay`.

    Parameters
    ----------
    estimators : fitted estimator, sequence of them, or mapping of name to estimator
        As in `LossCurveDisplay.from_estimator`, which raises the same errors.

    Returns
    -------
    matplotlib.figure.Figure
        It is not registered with pyplot: save it with ``figure.savefig(path)``. The panels are
        ``figure.axes`` (for a log scale, ``figure.axes[0].set_yscale("log")``).

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


def _named_estimators(estimators: Any) -> dict[str, Any]:
    if isinstance(estimators, Mapping):
        by_name = {str(name): fitted for name, fitted in estimators.items()}
    elif isinstance(estimators, Sequence):
        by_name = {str(i): fitted for i, fitted in enumerate(estimators, 1)}
    else:
        by_name = {"": estimators}
    if not by_name:
        raise ValueError("nothing to draw: no estimators are given")
    return by_name


def _curves(name: str, estimator: Any) -> LearningCurves:
    check_is_fitted(estimator)
    try:
        return learning_curves(estimator)
    except ValueError as error:
        of = f" of {name!r}" if name else ""
        raise ValueError(f"the {type(estimator).__name__}{of} {error}") from None


def _draw_curves(
    axes: Any, table: pd.DataFrame, best: Mapping[Any, int], line: Mapping[str, Any]
) -> None:
    """One estimator's lines in one panel, a column per member."""
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


# ---- The figure of a pack: which of its members are in the ensemble, and how good each is --------

_ROW = 0.24  # inches a member


class PackDisplay(Display):
    """Plot of each member's weight in a pack's ensemble (left) and validation loss (right).

    Members are grouped by activation, the one with the largest total weight first, and sorted by
    weight within an activation. Vertical lines on the right mark the losses of the best member and
    of the ensemble. Without validation rows, the right panel is empty.

    Parameters
    ----------
    members : DataFrame
        Attribute ``members_`` of a pack.
    validation_loss, best_member_validation_loss : float or None, default=None
        Attributes ``validation_loss_`` and ``best_member_validation_loss_`` of a pack.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The panel of the weights.
    axes_ : ndarray of matplotlib.axes.Axes
        ``ax_`` and the panel of the losses.
    figure_ : matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab import PackClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> pack = PackClassifier(n_members=3, max_iter=3, random_state=0).fit(X, y)
    >>> [axes.get_xlabel() for axes in PackDisplay.from_estimator(pack).axes_]
    ['weight in the ensemble', 'validation loss']
    """

    def __init__(
        self,
        *,
        members: pd.DataFrame,
        validation_loss: float | None = None,
        best_member_validation_loss: float | None = None,
    ) -> None:
        self.members = members
        self.validation_loss = validation_loss
        self.best_member_validation_loss = best_member_validation_loss

    @classmethod
    def from_estimator(cls, estimator: PackClassifier | PackRegressor, *, ax: Any = None) -> Self:
        """Draw a fitted pack.

        Parameters
        ----------
        estimator : PackClassifier or PackRegressor
            Fitted pack.
        ax : matplotlib.axes.Axes, or sequence of two, optional
            Axes to draw into: one, which is divided, or two. The default is a new figure.

        Returns
        -------
        PackDisplay

        Raises
        ------
        TypeError
            If the estimator is not a pack.
        sklearn.exceptions.NotFittedError
            If the pack is not fitted.
        ValueError
            If ``ax`` cannot be divided, or has another number of axes.
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "members_"):
            raise TypeError(
                "PackDisplay draws a PackClassifier or PackRegressor, got "
                f"{type(estimator).__name__}; LossCurveDisplay draws other estimators of combutab"
            )
        display = cls(
            members=estimator.members_,
            validation_loss=estimator.validation_loss_,
            best_member_validation_loss=estimator.best_member_validation_loss_,
        )
        return display.plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw again; ``ax`` as in ``from_estimator``."""
        by_name = self.members.groupby("activation", sort=False)["weight"].sum()
        names = by_name.sort_values(ascending=False, kind="stable").index.tolist()
        members = self.members.assign(rank=self.members["activation"].map(names.index))
        members = members.sort_values(
            ["rank", "weight", "validation_loss"], ascending=[True, False, True]
        )
        size = (8.6, max(3.0, 1.2 + _ROW * len(members)))
        positions, colors = range(len(members)), [COLORS[i % len(COLORS)] for i in members["rank"]]
        weights, losses = self._make_panels(ax, 1, 2, size, sharey=True)
        weights.barh(positions, members["weight"], color=colors, height=0.7)
        losses.scatter(members["validation_loss"], positions, c=colors, s=28, zorder=3)
        lines = [
            losses.axvline(value, linestyle=style, color="0.25", linewidth=1.2, label=name)
            for value, style, name in (
                (self.best_member_validation_loss, ":", "best member alone"),
                (self.validation_loss, "-", "ensemble"),
            )
            if value is not None
        ]
        labels = [f"{row.activation} {row.member}" for row in members.itertuples()]
        weights.set_xlabel("weight in the ensemble")
        losses.set_xlabel("validation loss")
        if weights.get_shared_y_axes().joined(weights, losses):
            losses.tick_params(labelleft=False)
        for axes in (weights, losses):
            label_rows(axes, labels, "y", fontsize=8)
        self._make_legend(lines)
        return self


def plot_pack(pack: PackClassifier | PackRegressor) -> Figure:
    """Draw each member's weight in the ensemble (left) and validation loss (right).

    It is the figure of `PackDisplay`.

    Parameters
    ----------
    pack : PackClassifier or PackRegressor
        As in `PackDisplay.from_estimator`, which raises the same errors.

    Returns
    -------
    matplotlib.figure.Figure
        It is not registered with pyplot: save it with ``figure.savefig(path)``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab import PackClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> pack = PackClassifier(n_members=3, max_iter=3, random_state=0).fit(X, y)
    >>> [axes.get_xlabel() for axes in plot_pack(pack).axes]
    ['weight in the ensemble', 'validation loss']
    """
    figure: Figure = PackDisplay.from_estimator(pack).figure_
    return figure
