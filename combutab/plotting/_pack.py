"""The figure of a pack: which of its members are in the ensemble, and how good each is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sklearn.utils.validation import check_is_fitted

from combutab.plotting._layers import COLORS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from combutab.estimators import PackClassifier, PackRegressor

_ROW = 0.24  # inches a member


def plot_pack(pack: PackClassifier | PackRegressor) -> Figure:
    """Draw each member's weight in the ensemble (left) and validation loss (right).

    Members stand by activation, the one of the largest weight first, and within it by weight. On
    the right, lines mark the best member alone and the ensemble; without rows set aside there is
    nothing on the right.

    Parameters
    ----------
    pack : PackClassifier or PackRegressor
        Fitted.

    Returns
    -------
    matplotlib.figure.Figure
        Not known to pyplot; ``figure.savefig(path)`` writes it.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the pack is not fitted.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab import PackClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> pack = PackClassifier(n_members=3, max_iter=3, random_state=0).fit(X, y)
    >>> [axes.get_xlabel() for axes in plot_pack(pack).axes]
    ['weight in the ensemble', 'validation loss']
    """
    from matplotlib.figure import Figure

    check_is_fitted(pack)
    shares = pack.activation_weights_
    names = shares.index.tolist()
    members = pack.members_.assign(rank=pack.members_["activation"].map(names.index))
    members = members.sort_values(
        ["rank", "weight", "validation_loss"], ascending=[True, False, True]
    )
    places, colors = range(len(members)), [COLORS[i % len(COLORS)] for i in members["rank"]]
    figure = Figure(figsize=(8.6, max(3.0, 1.2 + _ROW * len(members))), layout="constrained")
    weights, losses = figure.subplots(1, 2, sharey=True)
    weights.barh(places, members["weight"], color=colors, height=0.7)
    losses.scatter(members["validation_loss"], places, c=colors, s=28, zorder=3)
    for value, style, name in (
        (pack.best_member_validation_loss_, ":", "best member alone"),
        (pack.validation_loss_, "-", "ensemble"),
    ):
        if value is not None:
            losses.axvline(value, linestyle=style, color="0.25", linewidth=1.2, label=name)
    labels = [f"{row.activation} {row.member}" for row in members.itertuples()]
    weights.set_yticks(places, labels, parse_math=False, fontsize=8)
    weights.set_ylim(len(members) - 0.5, -0.5)
    weights.set_xlabel("weight in the ensemble")
    losses.set_xlabel("validation loss")
    for axes in (weights, losses):
        axes.grid(axis="y", color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right"]].set_visible(False)
    if pack.validation_loss_ is not None:
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure
