"""``compare_activations``: plan, runs, journal, verdict.

Uses the estimators and evaluation; the pages and the command use what it found.
"""

from combutab.model_selection.comparison._baselines import GUESSES
from combutab.model_selection.comparison._compare import compare_activations, run_comparison
from combutab.model_selection.comparison._found import ActivationComparison, shown_range
from combutab.model_selection.comparison._journal import checkpoint_differences
from combutab.model_selection.comparison._plan import (
    BASELINES,
    DEFAULT_ACTIVATIONS,
    ComparisonError,
    ComparisonPlan,
    plan_comparison,
)

__all__ = [
    "BASELINES",
    "DEFAULT_ACTIVATIONS",
    "GUESSES",
    "ActivationComparison",
    "ComparisonError",
    "ComparisonPlan",
    "checkpoint_differences",
    "compare_activations",
    "plan_comparison",
    "run_comparison",
    "shown_range",
]
