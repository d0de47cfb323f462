"""A unit-wise function between two affine maps, as ProxyNorm, DyT and Derf have it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from combutab.activations.kernels._kernel import Gradients, Kernel, Maybe, Memory, Vectors, sum_to


@dataclass(frozen=True)
class Affine(Kernel):
    """phi(gamma x + beta) scale + shift; its vectors are these four, and phi's."""

    phi: Kernel
    keeps_input: bool = True
    keeps_output: bool = False

    @property
    def n_vectors(self) -> int:  # type: ignore[override]
        return 4 + self.phi.n_vectors

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        gamma, beta, scale, shift, *own = vectors
        # ProxyNorm Eq. (7), Derf Eq. (10)
        z_out = memory.keep("z", *x.shape)
        apart = memory.keep("into phi", *x.shape) if self.phi.keeps_input else z_out
        into_phi = torch.addcmul(beta, x, gamma, out=apart)
        z = self.phi.forward(into_phi, own, memory.part("phi"), z_out)
        memory["into phi"], memory["z"] = into_phi, z
        return torch.addcmul(shift, z, scale, out=out)

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        assert x is not None
        gamma, beta, scale, shift, *own = vectors
        work = memory.work("product", *x.shape)
        by_scale = sum_to(torch.mul(grad, memory["z"], out=work), scale)
        by_shift = sum_to(grad, shift)
        grad = torch.mul(grad, scale, out=out)
        kept = memory["into phi"], memory["z"]
        grad, by_own = self.phi.backward(*kept, grad, own, memory.part("phi"), out)
        by_beta = sum_to(grad, beta)
        by_gamma = sum_to(torch.mul(grad, x, out=work), gamma)
        return torch.mul(grad, gamma, out=out), (by_gamma, by_beta, by_scale, by_shift, *by_own)
