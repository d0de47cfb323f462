"""Stacked layers and networks: M models of one shape as one batched program."""

from combutab.nn._activation import ActivationSpec, StackedActivation, build_activation
from combutab.nn._activation_check import check_activation
from combutab.nn._block_pass import BlockPass
from combutab.nn._critic_pass import CriticPass
from combutab.nn._dropout import MaskMaker
from combutab.nn._generative import (
    StackedCritic,
    StackedGenerator,
    StackedRowDecoder,
    StackedRowEncoder,
)
from combutab.nn._layers import (
    INITIALISATIONS,
    NORMALIZATIONS,
    StackedEmbedding,
    StackedLinear,
    StackedNorm,
)
from combutab.nn._mlp import MLPShape, StackedMLP
from combutab.nn._penalty import frozen, gradient_penalty
from combutab.nn._scratch import Scratch
from combutab.nn._span_columns import SpanColumns
from combutab.nn._spans import RowSpans
from combutab.nn._stack import Member, StackedNetwork, fill_gradients

__all__ = [
    "INITIALISATIONS",
    "NORMALIZATIONS",
    "ActivationSpec",
    "BlockPass",
    "CriticPass",
    "MLPShape",
    "MaskMaker",
    "Member",
    "RowSpans",
    "Scratch",
    "SpanColumns",
    "StackedActivation",
    "StackedCritic",
    "StackedEmbedding",
    "StackedGenerator",
    "StackedLinear",
    "StackedMLP",
    "StackedNetwork",
    "StackedNorm",
    "StackedRowDecoder",
    "StackedRowEncoder",
    "build_activation",
    "check_activation",
    "fill_gradients",
    "frozen",
    "gradient_penalty",
]
