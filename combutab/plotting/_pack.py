"""The figure of a pack: which of its members are in the ensemble, and how good each is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pandas as pd
from sklearn.utils.validation import check_is_fitted

from combutab.plotting._display import Display
from combutab.plotting._layers import COLORS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from combutab.estimators import PackClassifier, PackRegressor

_ROW = 0.24  # inches a member


class PackDisplay(Display):
    """Each member's weight in a pack's ensemble (left) and its validation loss (right).

    Members stand by activation, the one of the largest weight first, and within it by weight. On
    the right, lines mark the best member alone and the ensemble; without rows set aside there is
    nothing on the right.

    Parameters
    ----------
    members : DataFrame
        As a pack's ``members_``.
    validation_loss, best_member_validation_loss : float or None
        As a pack's attributes.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The panel of the weights.
    axes_ : ndarray of matplotlib.axes.Axes
        It, and the panel of the losses.
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
            Fitted.
        ax : matplotlib.axes.Axes, or sequence of two, optional
            Where to draw; one is divided. By default a figure of its own.

        Returns
        -------
        PackDisplay

        Raises
        ------
        TypeError
            If it is no pack.
        sklearn.exceptions.NotFittedError
            If the pack is not fitted.
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "members_"):
            raise TypeError(
                f"PackDisplay is of a PackClassifier or PackRegressor, got "
                f"{type(estimator).__name__}; use LossCurveDisplay"
            )
        display = cls(
            members=estimator.members_,
            validation_loss=estimator.validation_loss_,
            best_member_validation_loss=estimator.best_member_validation_loss_,
        )
        return display.plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw once more; ``ax`` as of ``from_estimator``."""
        by_name = self.members.groupby("activation", sort=False)["weight"].sum()
        names = by_name.sort_values(ascending=False, kind="stable").index.tolist()
        members = self.members.assign(rank=self.members["activation"].map(names.index))
        members = members.sort_values(
            ["rank", "weight", "validation_loss"], ascending=[True, False, True]
        )
        size = (8.6, max(3.0, 1.2 + _ROW * len(members)))
        places, colors = range(len(members)), [COLORS[i % len(COLORS)] for i in members["rank"]]
        weights, losses = self._make_panels(ax, 1, 2, size, sharey=True)
        weights.barh(places, members["weight"], color=colors, height=0.7)
        losses.scatter(members["validation_loss"], places, c=colors, s=28, zorder=3)
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
            axes.set_yticks(places, labels, parse_math=False, fontsize=8)
            axes.set_ylim(len(members) - 0.5, -0.5)
            axes.grid(axis="y", color="0.92", linewidth=0.8)
            axes.set_axisbelow(True)
            axes.tick_params(axis="y", length=0)
            axes.spines[["top", "right"]].set_visible(False)
        self._make_legend(lines)
        return self


def plot_pack(pack: PackClassifier | PackRegressor) -> Figure:
    """Draw each member's weight in the ensemble (left) and validation loss (right).

    It is the figure of `PackDisplay`, and raises the same errors.

    Returns
    -------
    matplotlib.figure.Figure
        Not known to pyplot; ``figure.savefig(path)`` writes it.

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
