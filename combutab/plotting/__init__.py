"""Matplotlib figures and scikit-learn displays."""

from combutab.plotting._comparison import (
    ActivationComparisonDisplay,
    plot_comparison,
    plot_critical_difference,
)
from combutab.plotting._inspection import (
    AttributionDisplay,
    PartialDependenceDisplay,
    PermutationImportanceDisplay,
)
from combutab.plotting._networks import plot_power, plot_robustness
from combutab.plotting._schema import plot_schema
from combutab.plotting._training import LossCurveDisplay, PackDisplay, plot_loss_curve, plot_pack

__all__ = [
    "ActivationComparisonDisplay",
    "AttributionDisplay",
    "LossCurveDisplay",
    "PackDisplay",
    "PartialDependenceDisplay",
    "PermutationImportanceDisplay",
    "plot_comparison",
    "plot_critical_difference",
    "plot_loss_curve",
    "plot_pack",
    "plot_power",
    "plot_robustness",
    "plot_schema",
]
