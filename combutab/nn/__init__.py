"""Stacked layers and networks: M models of one shape as one batched program."""

from combutab.nn._activation import ActivationSpec, StackedActivation, build_activation
from combutab.nn._activation_check import check_activation
from combutab.nn._dropout import MaskMaker
from combutab.nn._inputs import NUMERIC_EMBEDDINGS, StackedInputs
from combutab.nn._layers import (
    INITIALISATIONS,
    NORMALIZATIONS,
    NTK,
    StackedEmbedding,
    StackedLinear,
    StackedNorm,
)
from combutab.nn._stack import (
    ROLES,
    Member,
    StackedNetwork,
    check_proxy_norm,
    fill_gradients,
)
from combutab.nn.engine import Chain, PenaltyPass, Scratch
from combutab.nn.networks import (
    ChainNetwork,
    MLPSpec,
    NetworkSpec,
    RowSpans,
    SpanColumns,
    StackedCritic,
    StackedGenerator,
    StackedMLP,
    StackedRowDecoder,
    StackedRowEncoder,
    StackedTabM,
    TableNetwork,
    TabMSpec,
    frozen,
    gradient_penalty,
)

__all__ = [
    "INITIALISATIONS",
    "NORMALIZATIONS",
    "NTK",
    "NUMERIC_EMBEDDINGS",
    "ROLES",
    "ActivationSpec",
    "Chain",
    "ChainNetwork",
    "MLPSpec",
    "MaskMaker",
    "Member",
    "NetworkSpec",
    "PenaltyPass",
    "RowSpans",
    "Scratch",
    "SpanColumns",
    "StackedActivation",
    "StackedCritic",
    "StackedEmbedding",
    "StackedGenerator",
    "StackedInputs",
    "StackedLinear",
    "StackedMLP",
    "StackedNetwork",
    "StackedNorm",
    "StackedRowDecoder",
    "StackedRowEncoder",
    "StackedTabM",
    "TabMSpec",
    "TableNetwork",
    "build_activation",
    "check_activation",
    "check_proxy_norm",
    "fill_gradients",
    "frozen",
    "gradient_penalty",
]
