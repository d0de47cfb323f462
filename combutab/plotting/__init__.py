"""Figures of matplotlib, and displays as scikit-learn's, that touch no global state."""

from combutab.plotting._comparison import (
    ActivationComparisonDisplay,
    plot_comparison,
    plot_critical_difference,
)
from combutab.plotting._layers import plot_activation_means, plot_fluctuation, plot_power
from combutab.plotting._pack import PackDisplay, plot_pack
from combutab.plotting._robustness import plot_robustness
from combutab.plotting._training import LossCurveDisplay, plot_loss_curve

__all__ = [
    "ActivationComparisonDisplay",
    "LossCurveDisplay",
    "PackDisplay",
    "plot_activation_means",
    "plot_comparison",
    "plot_critical_difference",
    "plot_fluctuation",
    "plot_loss_curve",
    "plot_pack",
    "plot_power",
    "plot_robustness",
]
