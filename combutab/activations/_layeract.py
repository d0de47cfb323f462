"""LayerAct: an activation whose scale looks at the whole layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from combutab.activations.kernels import (
    Activation,
    Gradients,
    Kernel,
    Maybe,
    Memory,
    Pointwise,
    Standardize,
    Torch,
    Vectors,
    into,
    known,
    wide,
)


@dataclass(frozen=True)
class _HardSigmoid(Pointwise):
    keeps_input: bool = True
    keeps_output: bool = False

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        if out is None:
            return F.hardtanh(x, -3.0, 3.0) / 6 + 0.5  # F.hardsigmoid has no second derivative
        return torch.clamp(x, -3, 3, out=out).div_(6).add_(0.5)

    def times_slope(
        self, x_or_y: Tensor, grad: Tensor, memory: Memory, out: Maybe = None
    ) -> Tensor:
        grad = into(torch.ops.aten.hardtanh_backward, out, grad, x_or_y, -3, 3)
        return torch.div(grad, 6, out=out)


def _hard_sigmoid(n: Tensor) -> Tensor:
    return _HardSigmoid().forward(n, (), Memory())


@dataclass(frozen=True)
class LayerScale(Kernel):
    """y -> y s(n), n being y standardised over all units."""

    scale: Pointwise
    alpha: float
    unitwise: bool = False
    keeps_input: bool = True
    keeps_output: bool = False

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        # LayerAct Eq. (6)
        n = self._standardize(x).forward(x, (), memory)
        return torch.mul(
            x, self.scale.forward(n, (), memory, memory.work("scale", *x.shape)), out=out
        )

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        assert x is not None
        # once more: cheaper than memory for each layer
        n = self._standardize(x).forward(x, (), memory)
        scale = self.scale.forward(n, (), memory, memory.work("scale", *x.shape))
        through = torch.mul(x, grad, out=memory.work("through", *x.shape))
        grad = torch.mul(grad, scale, out=out)
        n_or_scale = n if self.scale.keeps_input else scale
        through = self.scale.times_slope(
            n_or_scale, through, memory, memory.work("through", *x.shape)
        )
        through, _ = self._standardize(x).backward(None, n, through, (), memory)
        return torch.add(grad, through, out=out), ()

    def _standardize(self, x: Tensor) -> Standardize:
        return Standardize(x.shape[-1], x.shape[-1], self.alpha)


_SCALES: dict[Callable[[Tensor], Tensor], Pointwise] = {
    torch.sigmoid: Torch("sigmoid"),
    _hard_sigmoid: _HardSigmoid(),
}


@known
class LayerAct(Activation):
    """Layer-level activation ``y * scale(n)``, where n is y standardised over the layer's features.

    Parameters
    ----------
    scale : callable, default torch.sigmoid
        Elementwise function or module: increasing, Lipschitz, with values between 0 and 1 and
        ``scale(0) = 1/2`` (Definition 3.1).
    alpha : float, default 1e-5
        Added to the biased variance.
    dim : int, default -1
        The feature axis, over which mean and variance are computed.

    Shape
    -----
    (..., width) -> (..., width), any width.

    Raises
    ------
    TypeError
        If ``scale`` is not callable.
    ValueError
        If ``scale(0)`` is not 1/2.

    References
    ----------
    "LayerAct: advanced activation mechanism for robust inference of CNNs", Eq. (6).

    Examples
    --------
    >>> LayerAct(lambda n: 0.5 + torch.atan(n) / torch.pi)(torch.tensor([[1.0, 3.0]]))
    tensor([[0.2500, 2.2500]])
    """

    unitwise = False

    @property
    def has_known_parts(self) -> bool:
        return self.scale in _SCALES

    def __init__(
        self,
        scale: Callable[[Tensor], Tensor] = torch.sigmoid,
        *,
        alpha: float = 1e-5,
        dim: int = -1,
    ) -> None:
        super().__init__()
        if not callable(scale):
            raise TypeError(f"scale must be a function of a tensor, got {scale!r}")
        with torch.no_grad():
            at_zero = float(scale(torch.zeros(1)))
        if abs(at_zero - 0.5) > 1e-6:
            raise ValueError(
                f"scale(0) must be 1/2 (Definition 3.1), got {at_zero}; use a function such as "
                "torch.sigmoid"
            )
        self.scale, self.alpha, self.dim = scale, alpha, dim

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        # LayerAct Eq. (6)
        # NOTE[DIFF]: the published code divides by the unbiased variance forward and uses the
        # biased one's derivative backward; we take Eq. (6)'s biased variance in both, because
        # only then is the gradient that of the function.
        kernel = self.kernel()
        if kernel is not None:
            return self.run(kernel, wide(x)).to(x.dtype)
        width = x.shape[self.dim]
        n = self.run(Standardize(width, width, self.alpha), wide(x)).to(x.dtype)
        return x * self.scale(n)

    def kernel(self) -> Kernel | None:
        scale = _SCALES.get(self.scale)
        return None if scale is None else LayerScale(scale, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, dim={self.dim}"


@known
class LASiLU(LayerAct):
    """LA-SiLU: LayerAct with the logistic sigmoid as scale.

    Parameters
    ----------
    alpha : float, default 1e-5
        Added to the biased variance.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width), any width.

    References
    ----------
    "LayerAct: advanced activation mechanism for robust inference of CNNs", Eq. (6) and
    section 3.1.

    Examples
    --------
    >>> LASiLU()(torch.tensor([[1.0, 3.0]]))
    tensor([[0.2689, 2.1932]])
    """

    def __init__(self, *, alpha: float = 1e-5, dim: int = -1) -> None:
        super().__init__(torch.sigmoid, alpha=alpha, dim=dim)


@known
class LAHardSiLU(LayerAct):
    """LA-HardSiLU: LayerAct with the hard sigmoid ``min(1, max(0, n / 6 + 1/2))`` as scale.

    Parameters
    ----------
    alpha : float, default 1e-5
        Added to the biased variance.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width), any width.

    References
    ----------
    "LayerAct: advanced activation mechanism for robust inference of CNNs", Eq. (6) and
    section 3.1.

    Examples
    --------
    >>> LAHardSiLU()(torch.tensor([[1.0, 3.0]]))
    tensor([[0.3333, 2.0000]])
    """

    def __init__(self, *, alpha: float = 1e-5, dim: int = -1) -> None:
        super().__init__(_hard_sigmoid, alpha=alpha, dim=dim)
