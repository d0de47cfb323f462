"""Grid search and comparison of activations, with networks trained together in stacks."""

from combutab.model_selection._comparison import (
    GUESSES,
    ActivationComparison,
    compare_activations,
    run_comparison,
    shown_range,
)
from combutab.model_selection._journal import checkpoint_differences
from combutab.model_selection._plan import (
    BASELINES,
    DEFAULT_ACTIVATIONS,
    ComparisonError,
    ComparisonPlan,
    plan_comparison,
)
from combutab.model_selection._scores import score_classifier, score_regressor
from combutab.model_selection._search import StackedGridSearchCV

__all__ = [
    "BASELINES",
    "DEFAULT_ACTIVATIONS",
    "GUESSES",
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
