"""The multilayer perceptron of the estimators, M of them at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from combutab._random import Purpose, derive
from combutab.nn._activation import StackedActivation
from combutab.nn._dropout import MaskMaker
from combutab.nn._layers import StackedEmbedding, StackedLinear, StackedNorm
from combutab.nn._stack import Member, StackedNetwork, check_proxy_norm
from combutab.nn.engine import Chain


@dataclass(frozen=True)
class MLPShape:
    """What all members of a stack share.

    ``cardinalities`` are those of the columns that come as integer codes, each of which gets an
    embedding of ``embedding_dim`` (or its cardinality, if that is smaller).
    """

    n_dense: int
    hidden: tuple[int, ...]
    n_outputs: int
    cardinalities: tuple[int, ...] = ()
    embedding_dim: int = 8
    normalization: str = "none"
    proxy_norm: bool = False
    init: str = "torch"

    def __post_init__(self) -> None:
        check_proxy_norm(self.proxy_norm, self.normalization)

    @property
    def n_inputs(self) -> int:
        """Width of the first linear layer's input: dense columns and embeddings."""
        return self.n_dense + sum(min(self.embedding_dim, c) for c in self.cardinalities)


class StackedMLP(StackedNetwork):
    """M perceptrons of one shape: linear, normalisation, activation, dropout; linear at the end.

    Members must be sorted so that those of one activation are neighbours.

    Parameters
    ----------
    shape : MLPShape
    members : sequence of Member
    dtype : torch.dtype
    device : torch.device or str

    Shape
    -----
    dense : (M, batch, n_dense), codes : (M, batch, n_codes) int64 -> (M, batch, n_outputs)

    >>> shape = MLPShape(n_dense=4, hidden=(16, 16), n_outputs=3)
    >>> net = StackedMLP(shape, [Member(0, "relu"), Member(1, "combu")])
    >>> net(torch.zeros(2, 5, 4)).shape
    torch.Size([2, 5, 3])
    """

    def __init__(
        self,
        shape: MLPShape,
        members: Sequence[Member],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(members)
        self.shape = shape
        m = len(self.members)
        generators = [
            torch.Generator().manual_seed(derive(member.seed, Purpose.WEIGHTS) >> 1)
            for member in self.members
        ]
        self.embeddings = nn.ModuleList(
            StackedEmbedding(c, min(shape.embedding_dim, c), generators, dtype=dtype)
            for c in shape.cardinalities
        )
        widths = (shape.n_inputs, *shape.hidden, shape.n_outputs)
        self.linears = nn.ModuleList(
            StackedLinear(n_in, n_out, generators, init=shape.init, dtype=dtype)
            for n_in, n_out in itertools.pairwise(widths)
        )
        self.norms = nn.ModuleList(
            nn.Identity()
            if shape.normalization == "none"
            else StackedNorm(
                shape.normalization, width, m, affine=not shape.proxy_norm, dtype=dtype
            )
            for width in shape.hidden
        )
        self.activations = nn.ModuleList(
            StackedActivation(
                [member.activation for member in self.members],
                width,
                [derive(m.seed, Purpose.ACTIVATION, layer) >> 1 for m in self.members],
                proxy_norm=shape.proxy_norm,
                dtype=dtype,
            )
            for layer, width in enumerate(shape.hidden)
        )
        self.to(device)
        self._flatten(dtype, torch.device(device))
        self._step = self._make_step()

    def mask_maker(self) -> MaskMaker:
        """The dropout masks of this stack's layers and rates."""
        return MaskMaker(
            self.shape.hidden,
            [member.dropout for member in self.members],
            device=self.device,
            dtype=self.dtype,
        )

    def forward(
        self,
        dense: Tensor,
        codes: Tensor | None = None,
        masks: Sequence[Tensor] | None = None,
        valid: Tensor | None = None,
    ) -> Tensor:
        h = self._join(dense, codes)
        layers = zip(self.linears, self.norms, self.activations, strict=False)
        for i, (linear, norm, activation) in enumerate(layers):
            h = linear(h)
            h = norm(h, valid) if isinstance(norm, StackedNorm) else h
            h = activation(h, valid)
            if masks is not None:
                h = h * masks[i]
        return self.linears[-1](h)

    def _join(self, dense: Tensor, codes: Tensor | None) -> Tensor:
        """The first linear layer's input: dense columns, then embeddings."""
        if codes is None or not len(self.embeddings):
            return dense
        vectors = [table(codes[..., i]) for i, table in enumerate(self.embeddings)]
        return torch.cat([dense, *vectors], dim=-1)

    def gradients(
        self,
        dense: Tensor,
        objective: Callable[[Tensor], Tensor],
        codes: Tensor | None = None,
        masks: Sequence[Tensor] | None = None,
        valid: Tensor | None = None,
        context: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Set ``flat.grads`` to the derivatives of ``objective(raw outputs)``, a scalar.

        Networks on a CPU, and plain ones on any device, take steps in memory of their own; the
        others go through autograd within ``context`` (an autocast, say). ``masks`` are used up.
        """
        if self._step is not None and context is nullcontext:
            rows = self._join(dense, codes)
            by_rows = self._step.run(rows, masks, objective, valid)
            if by_rows is not None:
                self._embeddings_backward(rows, by_rows)
            return
        with context():
            raw = self(dense, codes, masks, valid)
        self.flat.backward(objective(raw))

    @torch.inference_mode()
    def predict(
        self,
        dense: Tensor,
        codes: Tensor | None,
        chunk: int,
        context: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> Tensor:
        """Raw outputs without dropout of rows that all members share, ``chunk`` rows at a time.

        Buffers belong to the call, so that threads may predict with one network.

        Shape
        -----
        dense : (n, n_dense), codes : (n, n_codes) int64 -> (M, n, n_outputs)
        """
        step = self._make_step(training=False) if context is nullcontext else None
        outputs = []
        for start in range(0, len(dense), chunk):
            part = dense[start : start + chunk].to(self.device)
            part = part.expand(self.n_members, *part.shape)
            part_codes = None
            if codes is not None:
                part_codes = codes[start : start + chunk].to(self.device)
                part_codes = part_codes.expand(self.n_members, *part_codes.shape)
            if step is not None:
                outputs.append(step.outputs(self._join(part, part_codes)))
                continue
            with context():
                outputs.append(self(part, part_codes).to(self.dtype))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)

    def _make_step(self, *, training: bool = True) -> Chain | None:
        step = Chain(
            [cast(StackedLinear, layer) for layer in self.linears],
            list(self.norms),
            [cast(StackedActivation, slot) for slot in self.activations],
            self.flat if training else None,
        )
        return step if self.device.type == "cpu" or step.plain else None

    def _embeddings_backward(self, rows: Tensor, by_rows: Tensor) -> None:
        tables = [cast(StackedEmbedding, table) for table in self.embeddings]
        grads = torch.autograd.grad(rows, [table.weight for table in tables], by_rows)
        for table, grad in zip(tables, grads, strict=True):
            self.flat.gradient_of(table, "weight").copy_(grad)

    def select(self, keep: Sequence[int]) -> None:
        """Drop all members but these (increasing positions)."""
        super().select(keep)
        if self._step is not None:
            self._step.refresh()
