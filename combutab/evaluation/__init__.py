"""Scores, significance tests, robustness, and the quality of synthetic tables."""

from combutab.core.metrics import METRICS, Metric
from combutab.core.scorers import find_metric
from combutab.evaluation._alignment import AlignedTables, align_tables
from combutab.evaluation._detection import detection, detection_parts
from combutab.evaluation._disclosure import attribute_inference, singling_out
from combutab.evaluation._efficacy import ml_efficacy
from combutab.evaluation._fidelity import fidelity
from combutab.evaluation._membership import membership_inference
from combutab.evaluation._networks import (
    ActivationStats,
    activation_stats,
    power_decomposition,
)
from combutab.evaluation._privacy import near_copies, privacy
from combutab.evaluation._robustness import (
    CORRUPTIONS,
    Corruption,
    Robustness,
    corrupt,
    robustness,
)
from combutab.evaluation._scores import (
    PredictionScores,
    evaluate_held_out,
    evaluate_predictions,
)
from combutab.evaluation._sentences import (
    interval_words,
    p_words,
    summarise,
    summarise_nemenyi,
    summarise_pairs,
)
from combutab.evaluation._statistics import (
    Interval,
    NemenyiResult,
    Significance,
    bootstrap_interval,
    compare_pairs,
    compare_with_best,
    corrected_interval,
    corrected_resampled_ttest,
    friedman,
    holm,
    mean_ranks,
    nemenyi,
    t_interval,
    wilcoxon,
)
from combutab.evaluation._tables import AlignedDatabases, compare_databases

__all__ = [
    "CORRUPTIONS",
    "METRICS",
    "ActivationStats",
    "AlignedDatabases",
    "AlignedTables",
    "Corruption",
    "Interval",
    "Metric",
    "NemenyiResult",
    "PredictionScores",
    "Robustness",
    "Significance",
    "activation_stats",
    "align_tables",
    "attribute_inference",
    "bootstrap_interval",
    "compare_databases",
    "compare_pairs",
    "compare_with_best",
    "corrected_interval",
    "corrected_resampled_ttest",
    "corrupt",
    "detection",
    "detection_parts",
    "evaluate_held_out",
    "evaluate_predictions",
    "fidelity",
    "find_metric",
    "friedman",
    "holm",
    "interval_words",
    "mean_ranks",
    "membership_inference",
    "ml_efficacy",
    "near_copies",
    "nemenyi",
    "p_words",
    "power_decomposition",
    "privacy",
    "robustness",
    "singling_out",
    "summarise",
    "summarise_nemenyi",
    "summarise_pairs",
    "t_interval",
    "wilcoxon",
]
