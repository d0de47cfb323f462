"""Model selection with stacks."""

from combutab.model_selection._compare import (
    ActivationComparison,
    compare_activations,
    run_comparison,
)
from combutab.model_selection._plan import (
    DEFAULT_ACTIVATIONS,
    ComparisonError,
    ComparisonPlan,
    plan_comparison,
)
from combutab.model_selection._scores import METRICS, score_classifier, score_regressor
from combutab.model_selection._search import StackedGridSearchCV

__all__ = [
    "DEFAULT_ACTIVATIONS",
    "METRICS",
    "ActivationComparison",
    "ComparisonError",
    "ComparisonPlan",
    "StackedGridSearchCV",
    "compare_activations",
    "plan_comparison",
    "run_comparison",
    "score_classifier",
    "score_regressor",
]
