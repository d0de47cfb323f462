"""LayerAct: an activation whose scale looks at the whole layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from combutab.activations._known import known
from combutab.activations._standardize import standardize


def _hard_sigmoid(n: Tensor) -> Tensor:
    return F.hardtanh(n, -3.0, 3.0) / 6 + 0.5  # F.hardsigmoid has no second derivative


@known(lambda module: module.scale in (torch.sigmoid, _hard_sigmoid))
class LayerAct(nn.Module):
    """Layer-level activation ``y * scale(n)``, n being y standardised over the layer's features.

    Parameters
    ----------
    scale : callable, default torch.sigmoid
        Elementwise, increasing, Lipschitz, between 0 and 1, with ``scale(0) = 1/2``
        (Definition 3.1); a function or a module.
    alpha : float, default 1e-5
        Added to the variance, which is the biased one.
    dim : int, default -1
        The feature axis; mean and variance are over it alone.

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
        dim = self.dim if self.dim < 0 else self.dim - x.ndim
        return x * self.scale(standardize(x, dim, self.alpha))

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, dim={self.dim}"


@known()
class LASiLU(LayerAct):
    """LayerAct with the logistic sigmoid as its scale.

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


@known()
class LAHardSiLU(LayerAct):
    """LayerAct with the hard sigmoid, ``min(1, max(0, n / 6 + 1/2))``, as its scale.

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
