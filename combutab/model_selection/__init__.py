"""Grid search, and comparisons of activations and models."""

from combutab.model_selection._baselines import GUESSES
from combutab.model_selection._comparison import (
    compare_activations,
    compare_models,
    run_comparison,
)
from combutab.model_selection._journal import checkpoint_differences, count_checkpoint_fits
from combutab.model_selection._models import DEFAULT_MODELS, score_classifier, score_regressor
from combutab.model_selection._plan import (
    BASELINES,
    DEFAULT_ACTIVATIONS,
    ComparisonPlan,
    plan_comparison,
)
from combutab.model_selection._result import ActivationComparison, ModelComparison, shown_range
from combutab.model_selection._search import StackedGridSearchCV
from combutab.model_selection._target import ComparisonError

__all__ = [
    "BASELINES",
    "DEFAULT_ACTIVATIONS",
    "DEFAULT_MODELS",
    "GUESSES",
    "ActivationComparison",
    "ComparisonError",
    "ComparisonPlan",
    "ModelComparison",
    "StackedGridSearchCV",
    "checkpoint_differences",
    "compare_activations",
    "compare_models",
    "count_checkpoint_fits",
    "plan_comparison",
    "run_comparison",
    "score_classifier",
    "score_regressor",
    "shown_range",
]
