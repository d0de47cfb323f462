"""Statistics of differences between models: tests, ranks, intervals, sentences.

Knows scores alone, and imports nothing of combutab but how a random_state is read.
"""

from combutab.evaluation.stats._intervals import (
    Interval,
    bootstrap_interval,
    corrected_interval,
    t_interval,
)
from combutab.evaluation.stats._nemenyi import NemenyiResult, nemenyi
from combutab.evaluation.stats._pairs import compare_pairs
from combutab.evaluation.stats._ranks import compare_with_best, mean_ranks
from combutab.evaluation.stats._sentences import (
    interval_words,
    p_words,
    summarise,
    summarise_nemenyi,
    summarise_pairs,
)
from combutab.evaluation.stats._significance import (
    Significance,
    corrected_resampled_ttest,
    friedman,
    holm,
    wilcoxon,
)

__all__ = [
    "Interval",
    "NemenyiResult",
    "Significance",
    "bootstrap_interval",
    "compare_pairs",
    "compare_with_best",
    "corrected_interval",
    "corrected_resampled_ttest",
    "friedman",
    "holm",
    "interval_words",
    "mean_ranks",
    "nemenyi",
    "p_words",
    "summarise",
    "summarise_nemenyi",
    "summarise_pairs",
    "t_interval",
    "wilcoxon",
]
