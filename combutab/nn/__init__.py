"""Layers and networks that train several models as one batched program."""

from combutab.nn._cascade import (
    BlurredCrossEntropy,
    CodeInputs,
    StackedCascade,
    time_inputs,
)
from combutab.nn._generative import (
    StackedCritic,
    StackedGenerator,
    StackedRowDecoder,
    StackedRowEncoder,
    frozen,
    gradient_penalty,
)
from combutab.nn._layers import (
    INITIALISATIONS,
    NORMALIZATIONS,
    NTK,
    ActivationSpec,
    MaskMaker,
    StackedActivation,
    StackedLinear,
    StackedNorm,
    build_activation,
)
from combutab.nn._mlp import (
    NUMERIC_EMBEDDINGS,
    MLPSpec,
    StackedInputs,
    StackedMLP,
    TabMSpec,
)
from combutab.nn._network import (
    ROLES,
    ChainNetwork,
    Member,
    NetworkSpec,
    StackedNetwork,
    TableNetwork,
    check_activation,
    check_proxy_norm,
    fill_gradients,
)
from combutab.nn._spans import RowSpans

__all__ = [
    "INITIALISATIONS",
    "NORMALIZATIONS",
    "NTK",
    "NUMERIC_EMBEDDINGS",
    "ROLES",
    "ActivationSpec",
    "BlurredCrossEntropy",
    "ChainNetwork",
    "CodeInputs",
    "MLPSpec",
    "MaskMaker",
    "Member",
    "NetworkSpec",
    "RowSpans",
    "StackedActivation",
    "StackedCascade",
    "StackedCritic",
    "StackedGenerator",
    "StackedInputs",
    "StackedLinear",
    "StackedMLP",
    "StackedNetwork",
    "StackedNorm",
    "StackedRowDecoder",
    "StackedRowEncoder",
    "TabMSpec",
    "TableNetwork",
    "build_activation",
    "check_activation",
    "check_proxy_norm",
    "fill_gradients",
    "frozen",
    "gradient_penalty",
    "time_inputs",
]
