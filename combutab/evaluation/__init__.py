"""Whether differences between models are real, and how good and safe a synthetic table is."""

from ._alignment import AlignedTables, align_tables
from ._detection import DetectionScorer, detection
from ._efficacy import EfficacyScorer, ml_efficacy
from ._fidelity import FidelityScorer, fidelity
from ._intervals import Interval, bootstrap_interval, corrected_interval, t_interval
from ._nemenyi import NemenyiResult, nemenyi
from ._pairs import compare_pairs
from ._privacy import privacy
from ._ranks import compare_with_best, mean_ranks
from ._significance import Significance, corrected_resampled_ttest, friedman, holm, wilcoxon
from ._words import summarise, summarise_nemenyi, summarise_pairs

__all__ = [
    "AlignedTables",
    "DetectionScorer",
    "EfficacyScorer",
    "FidelityScorer",
    "Interval",
    "NemenyiResult",
    "Significance",
    "align_tables",
    "bootstrap_interval",
    "compare_pairs",
    "compare_with_best",
    "corrected_interval",
    "corrected_resampled_ttest",
    "detection",
    "fidelity",
    "friedman",
    "holm",
    "mean_ranks",
    "ml_efficacy",
    "nemenyi",
    "privacy",
    "summarise",
    "summarise_nemenyi",
    "summarise_pairs",
    "t_interval",
    "wilcoxon",
]
