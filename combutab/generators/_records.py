"""Records: what the training and sampling of generators are given and give back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from combutab._device import PRECISIONS, Precision
from combutab._fields import Field, check_fields, choice, kind, several, whole
from combutab._model_files import ACTIVATION
from combutab.nn import NORMALIZATIONS, ActivationSpec, Member, RowSpans, StackedNetwork
from combutab.preprocessing import ModeTable, RowLayout

NetworkT = TypeVar("NetworkT", bound=StackedNetwork)  # that makes rows
Curves = dict[str, list[np.ndarray]]  # a loss of each member by epoch
State = dict[str, Tensor]  # of a member
_MOVED = 1 << 16  # rows at a time


@dataclass(frozen=True)
class TableRows:
    """An encoded table on its device, each row once: values (N, n_values), codes (N, n_spans)."""

    values: Tensor
    codes: Tensor

    @classmethod
    def on(cls, device: torch.device, table: ModeTable, dtype: torch.dtype) -> TableRows:
        """Copy an encoded table to a device."""
        values = torch.from_numpy(table.values).to(device, dtype)
        return cls(values, torch.from_numpy(table.codes).to(device))

    def __getitem__(self, index: Tensor) -> TableRows:
        return TableRows(self.values[index], self.codes[index])

    def keep(self, index: Tensor) -> TableRows:
        """Keep rows, given in their order, in the memory of all: no copy is made."""
        for tensor in (self.values, self.codes):
            for start in range(0, len(index), _MOVED):
                part = index[start : start + _MOVED]
                tensor[start : start + len(part)] = tensor[part]
        return TableRows(self.values[: len(index)], self.codes[: len(index)])

    def __len__(self) -> int:
        return len(self.codes)


class Rates(NamedTuple):
    """Rates of a network's optimiser: learning rate, and decay / 2 |parameters|^2 of the loss."""

    lr: float
    decay: float = 0.0


@dataclass(frozen=True)
class GeneratorPlan:
    """One member: what it is, and its own rates.

    ``rates`` has each network that is trained by steps; callbacks are told the first one's.
    """

    member: Member
    rates: Mapping[str, Rates]


@dataclass(frozen=True, kw_only=True)
class SampledShape(ABC, Generic[NetworkT]):
    """The network that makes rows as it was fitted, whatever an estimator's parameters are now.

    A file has the fields as JSON: a subclass's ``FIELDS`` say what those of its own may be.
    """

    widths: tuple[int, ...]
    activation: ActivationSpec
    n_members: int
    normalization: str
    proxy_norm: bool
    precision: str
    conditional: bool = False  # takes a condition vector

    FIELDS: ClassVar[dict[str, Field]] = {
        "widths": several(whole(1)),
        "activation": ACTIVATION,
        "n_members": whole(1, 2**62),
        "normalization": choice(*NORMALIZATIONS),
        "proxy_norm": kind(bool),
        "precision": choice(*PRECISIONS),
    }

    @classmethod
    def of(cls, model: object, widths: tuple[int, ...]) -> Self:
        """Make the shape that a model's parameters, named as the fields, ask for."""
        named = {f.name: getattr(model, f.name) for f in fields(cls) if hasattr(model, f.name)}
        return cls(**named, widths=widths)

    @classmethod
    def read(cls, values: Any) -> Self:
        """Read the record that a file describes.

        Raises ValueError if a field is missing, unknown, or not what it may be.
        """
        check_fields(values, {**cls.FIELDS, "conditional": choice(cls.conditional)}, "the shape")
        return cls(**values)

    @abstractmethod
    def linear_shapes(self, spans: RowSpans) -> dict[str, tuple[int, ...]]:
        """The shapes of a member's weights, by name, known before a network is made."""

    @abstractmethod
    def build(self, spans: RowSpans, members: Sequence[Member]) -> NetworkT:
        """The network, weights as they come."""


@dataclass(frozen=True, kw_only=True)
class LatentShape(SampledShape[NetworkT]):
    """The shape of a network that makes rows of a latent vector."""

    embedding_dim: int

    FIELDS = {**SampledShape.FIELDS, "embedding_dim": whole(1, 2**62)}


class Points(NamedTuple):
    """Values of a column of which each row is to have one, by the code that they have."""

    value_index: int
    by_code: Mapping[int, Sequence[float]]


class RowsAsked(NamedTuple):
    """Rows asked of a network: ``n_rows`` rows a member, each by the member's key."""

    keys: Sequence[int]
    n_rows: int
    condition: Tensor  # (M, n_rows, n_condition); of no width where the network takes none
    allowed: Mapping[int, Sequence[int]]  # span -> the codes that may be drawn
    # of networks that draw some columns beside others that are given
    codes: Tensor | None = None  # (M, n_rows, n_spans): those that are given; -1 where none is
    values: Tensor | None = None  # (M, n_rows, n_values), as codes; NaN where none is
    points: Mapping[int, Points] = {}  # span -> the values wanted there


class RowsDrawn(NamedTuple):
    """Rows of each member: (M, n_rows, n_values), (M, n_rows, n_spans) int64, (M, n_rows)."""

    values: Tensor
    codes: Tensor
    mass: Tensor  # how probable the allowed codes were


ENDS = {  # why a training ended, and what a fitted generator says of it
    "epochs": "",
    "no_improvement": ", ended by early stopping",
    "max_time": ", ended by max_time",
    "callback": ", ended by a callback",
    "interrupted": ", ended by Ctrl-C",
}


@dataclass
class GeneratorResult:
    """The result of one member: the state of the network that makes rows, and curves by epoch."""

    state: State
    losses: dict[str, list[float]] = field(default_factory=dict)
    reason: str = "epochs"  # of ENDS, or "diverged"

    @property
    def n_epochs(self) -> int:
        return len(next(iter(self.losses.values()), []))


def make_spans(layout: RowLayout, device: torch.device, precision: Precision) -> RowSpans:
    """The operations on rows of a layout; its discrete columns may be conditions."""
    categories = [i for i, span in enumerate(layout.spans) if span.kind == "category"]
    return RowSpans(
        layout.n_values,
        layout.sizes,
        categories,
        missing=[i for i, span in enumerate(layout.spans) if span.missing],
        never=layout.never,
        device=device,
        dtype=precision.dtype,
    )
