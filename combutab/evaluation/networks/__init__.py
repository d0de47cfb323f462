"""Statistics of a network's layers: means, saturation, dead units, power, as it trains or after.

For any torch module; imports no other part of evaluation.
"""

from combutab.evaluation.networks._activation_recorder import ActivationRecorder
from combutab.evaluation.networks._activation_stats import ActivationStats, activation_stats
from combutab.evaluation.networks._power import channelwise_linearity, power_decomposition

__all__ = [
    "ActivationRecorder",
    "ActivationStats",
    "activation_stats",
    "channelwise_linearity",
    "power_decomposition",
]
