"""Model selection with stacks."""

from combutab.model_selection._scores import METRICS, score_classifier, score_regressor
from combutab.model_selection._search import StackedGridSearchCV
from combutab.model_selection.comparison import (
    BASELINES,
    DEFAULT_ACTIVATIONS,
    GUESSES,
    ActivationComparison,
    ComparisonError,
    ComparisonPlan,
    checkpoint_differences,
    compare_activations,
    plan_comparison,
    run_comparison,
    shown_range,
)

__all__ = [
    "BASELINES",
    "DEFAULT_ACTIVATIONS",
    "GUESSES",
    "METRICS",
    "ActivationComparison",
    "ComparisonError",
    "ComparisonPlan",
    "StackedGridSearchCV",
    "checkpoint_differences",
    "compare_activations",
    "plan_comparison",
    "run_comparison",
    "score_classifier",
    "score_regressor",
    "shown_range",
]
