"""Kernels made of others: each for some of the units, or one between two affine maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from combutab.activations.kernels._kernel import Gradients, Kernel, Maybe, Memory, Vectors, sum_to

T = TypeVar("T", Tensor, Tensor | None)


@dataclass(frozen=True)
class Slices(Kernel):
    """A kernel for each run of neighbouring units: (start, length, kernel)."""

    parts: tuple[tuple[int, int, Kernel], ...]

    @property
    def unitwise(self) -> bool:  # type: ignore[override]
        return all(kernel.unitwise for _, _, kernel in self.parts)

    @property
    def keeps_input(self) -> bool:  # type: ignore[override]
        return any(kernel.keeps_input for _, _, kernel in self.parts)

    @property
    def keeps_output(self) -> bool:  # type: ignore[override]
        return any(kernel.keeps_output for _, _, kernel in self.parts)

    @property
    def n_vectors(self) -> int:  # type: ignore[override]
        return sum(kernel.n_vectors for _, _, kernel in self.parts)

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        given = iter(vectors)
        pieces = []
        for i, (start, length, kernel) in enumerate(self.parts):
            own = [next(given) for _ in range(kernel.n_vectors)]
            x_i = _narrow(x, start, length)
            out_i = x_i if out is x else _narrow(out, start, length)
            pieces.append(kernel.forward(x_i, own, memory.part(str(i)), out_i))
        return torch.cat(pieces, -1) if out is None else out

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        given = iter(vectors)
        pieces: list[Tensor] = []
        grads: list[Tensor | None] = []
        for i, (start, length, kernel) in enumerate(self.parts):
            own = [next(given) for _ in range(kernel.n_vectors)]
            x_i = _narrow(x, start, length) if kernel.keeps_input else None
            y_i = _narrow(y, start, length) if kernel.keeps_output else None
            grad_i = _narrow(grad, start, length)
            out_i = grad_i if out is grad else _narrow(out, start, length)
            grad_in, by_own = kernel.backward(x_i, y_i, grad_i, own, memory.part(str(i)), out_i)
            pieces.append(grad_in)
            grads.extend(by_own)
        return torch.cat(pieces, -1) if out is None else out, grads


def _narrow(x: T, start: int, length: int) -> T:
    return None if x is None else x.narrow(-1, start, length)


@dataclass(frozen=True)
class Scattered(Kernel):
    """A kernel for the units that the first vector gives each part; all see the whole width."""

    parts: tuple[Kernel, ...]

    @property
    def keeps_input(self) -> bool:  # type: ignore[override]
        return any(kernel.keeps_input for kernel in self.parts)

    @property
    def keeps_output(self) -> bool:  # type: ignore[override]
        return any(kernel.keeps_output for kernel in self.parts)

    @property
    def n_vectors(self) -> int:  # type: ignore[override]
        return 1 + sum(kernel.n_vectors for kernel in self.parts)

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        given = iter(vectors[1:])
        y = x if out is None or out is x else out.copy_(x)
        for i, kernel in enumerate(self.parts):
            mine, own = vectors[0] == i, [next(given) for _ in range(kernel.n_vectors)]
            memory[f"of {i}"] = mine
            # autograd would multiply what is not its own by 0, which may be infinite
            shown = y if out is not None else torch.where(mine, y, 0.0)
            y_i = kernel.forward(shown, own, memory.part(str(i)), memory.work("result", *x.shape))
            y = torch.where(mine, y_i, y, out=out)
        return y

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        given = iter(vectors[1:])
        grads: list[Tensor | None] = [None]
        grad = grad if out is None or out is grad else out.copy_(grad)
        for i, kernel in enumerate(self.parts):
            mine, own = memory[f"of {i}"], [next(given) for _ in range(kernel.n_vectors)]
            work = memory.work("result", *grad.shape)
            grad_i, by_own = kernel.backward(x, y, grad, own, memory.part(str(i)), work)
            grad = torch.where(mine, grad_i, grad, out=out)
            grads += [None if v is None else torch.where(mine, v, 0.0) for v in by_own]
        return grad, grads


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
