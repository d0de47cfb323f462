"""Whether differences between models are real, what networks do, how good synthetic tables are."""

from ._activation_recorder import ActivationRecorder
from ._activation_stats import ActivationStats, activation_stats
from ._alignment import AlignedTables, align_tables
from ._detection import DetectionScorer, detection
from ._efficacy import EfficacyScorer, ml_efficacy
from ._fidelity import FidelityScorer, fidelity
from ._intervals import Interval, bootstrap_interval, corrected_interval, t_interval
from ._nemenyi import NemenyiResult, nemenyi
from ._pairs import compare_pairs
from ._power import channelwise_linearity, power_decomposition
from ._privacy import privacy
from ._ranks import compare_with_best, mean_ranks
from ._robustness import Robustness, robustness
from ._robustness_corruptions import CORRUPTIONS, Corruption, corrupt
from ._significance import Significance, corrected_resampled_ttest, friedman, holm, wilcoxon
from ._words import (
    interval_words,
    p_words,
    summarise,
    summarise_nemenyi,
    summarise_pairs,
)

__all__ = [
    "CORRUPTIONS",
    "ActivationRecorder",
    "ActivationStats",
    "AlignedTables",
    "Corruption",
    "DetectionScorer",
    "EfficacyScorer",
    "FidelityScorer",
    "Interval",
    "NemenyiResult",
    "Robustness",
    "Significance",
    "activation_stats",
    "align_tables",
    "bootstrap_interval",
    "channelwise_linearity",
    "compare_pairs",
    "compare_with_best",
    "corrected_interval",
    "corrected_resampled_ttest",
    "corrupt",
    "detection",
    "fidelity",
    "friedman",
    "holm",
    "interval_words",
    "mean_ranks",
    "ml_efficacy",
    "nemenyi",
    "p_words",
    "power_decomposition",
    "privacy",
    "robustness",
    "summarise",
    "summarise_nemenyi",
    "summarise_pairs",
    "t_interval",
    "wilcoxon",
]
