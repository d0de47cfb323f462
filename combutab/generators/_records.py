"""What the training of generators is given and gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from combutab._device import Precision
from combutab.nn import ActivationSpec, Member, RowSpans, StackedNetwork
from combutab.preprocessing import ModeTable, RowLayout
from combutab.training import RowOptimizer


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

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True)
class GeneratorPlan:
    """One member: what it is, and its own rates."""

    member: Member
    generator_lr: float = 2e-4
    discriminator_lr: float = 2e-4
    generator_decay: float = 1e-6
    discriminator_decay: float = 1e-6


@dataclass(frozen=True)
class SampledShape:
    """The network that makes rows as it was fitted, whatever an estimator's parameters are now."""

    embedding_dim: int
    widths: tuple[int, ...]
    activation: ActivationSpec
    n_members: int
    normalization: str
    proxy_norm: bool
    precision: str
    conditional: bool  # takes a condition vector


@dataclass
class GeneratorResult:
    """What came of one member: the state of the network that makes rows, and curves by epoch."""

    state: dict[str, Tensor]
    losses: dict[str, list[float]] = field(default_factory=dict)
    reason: str = "epochs"  # or "no_improvement", "callback", "interrupted", "diverged"


def make_spans(layout: RowLayout, device: torch.device, precision: Precision) -> RowSpans:
    """The operations on rows of a layout; its discrete columns may be conditions."""
    categories = [i for i, span in enumerate(layout.spans) if span.kind == "category"]
    return RowSpans(
        layout.n_values,
        layout.sizes,
        categories,
        never=layout.never,
        device=device,
        dtype=precision.dtype,
    )


def update(
    network: StackedNetwork,
    optimizer: RowOptimizer,
    rates: Sequence[float],
    decays: Sequence[float],
) -> None:
    """One step along the gradients, and along those of decay / 2 |parameters|^2."""
    values, grads = network.flat.values, network.flat.grads
    assert grads is not None
    if len(set(decays)) == 1:
        grads.add_(values, alpha=decays[0])
    else:
        column = torch.tensor(list(decays), dtype=values.dtype, device=values.device)
        grads.addcmul_(values, column.unsqueeze(1))
    optimizer.step(values, grads, range(len(rates)), rates, [0.0] * len(rates))
