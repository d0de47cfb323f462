"""Whole networks, M members of each at a time: MLPs for tables, and those of CTGAN and TVAE.

Made of nn's layers and of nn.engine; estimators and generators take them from nn.
"""

from combutab.nn.networks._cascade import (
    N_TIME,
    BlurredCrossEntropy,
    CodeInputs,
    StackedCascade,
    time_inputs,
)
from combutab.nn.networks._generative import (
    StackedCritic,
    StackedGenerator,
    StackedRowDecoder,
    StackedRowEncoder,
)
from combutab.nn.networks._mlp import MLPSpec, StackedMLP
from combutab.nn.networks._network import ChainNetwork, TableNetwork
from combutab.nn.networks._penalty import frozen, gradient_penalty
from combutab.nn.networks._span_columns import SpanColumns
from combutab.nn.networks._spans import RowSpans
from combutab.nn.networks._spec import NetworkSpec
from combutab.nn.networks._tabm import StackedTabM, TabMSpec

__all__ = [
    "N_TIME",
    "BlurredCrossEntropy",
    "ChainNetwork",
    "CodeInputs",
    "MLPSpec",
    "NetworkSpec",
    "RowSpans",
    "SpanColumns",
    "StackedCascade",
    "StackedCritic",
    "StackedGenerator",
    "StackedMLP",
    "StackedRowDecoder",
    "StackedRowEncoder",
    "StackedTabM",
    "TabMSpec",
    "TableNetwork",
    "frozen",
    "gradient_penalty",
    "time_inputs",
]
