"""Whether differences between models are real: tests, intervals, ranks."""

from ._intervals import Interval, bootstrap_interval, corrected_interval, t_interval
from ._ranks import compare_with_best, mean_ranks, summarise
from ._significance import Significance, corrected_resampled_ttest, friedman, holm, wilcoxon

__all__ = [
    "Interval",
    "Significance",
    "bootstrap_interval",
    "compare_with_best",
    "corrected_interval",
    "corrected_resampled_ttest",
    "friedman",
    "holm",
    "mean_ranks",
    "summarise",
    "t_interval",
    "wilcoxon",
]
