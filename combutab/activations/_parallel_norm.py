"""PLN and PLS: normalisation inside small groups of units, used as an activation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from torch import Tensor

from combutab.activations.kernels import (
    Activation,
    Kernel,
    Slices,
    Standardize,
    known,
    wide,
)


class _ParallelNorm(Activation):
    unitwise = False
    _center: bool
    _smallest: int  # the smallest group the normalisation is defined for

    def __init__(
        self,
        width: int,
        norm_size: int | Sequence[int] = 8,
        *,
        eps: float = 1e-5,
        dim: int = -1,
    ) -> None:
        super().__init__()
        self.width, self.norm_size, self.eps, self.dim = width, norm_size, eps, dim
        sizes = self._sizes(width, norm_size)
        # Neighbouring groups of one size are normalised together: (groups, size).
        self.runs = [(len(list(run)), size) for size, run in groupby(sizes)]

    def _sizes(self, width: int, norm_size: int | Sequence[int]) -> list[int]:
        name, smallest = type(self).__name__, self._smallest
        hint = "; use PLS for single units" if smallest > 1 else ""
        requested = list(norm_size) if isinstance(norm_size, Sequence) else [int(norm_size)]
        if not requested or min(requested) < smallest:
            raise ValueError(
                f"norm_size must be at least {smallest} for {name}, got {norm_size=}{hint}"
            )
        if width < smallest:
            raise ValueError(f"width must be at least {smallest} for {name}, got {width=}{hint}")
        if isinstance(norm_size, Sequence):
            if sum(requested) != width:
                raise ValueError(
                    f"the sizes in norm_size must sum to the width {width}, got "
                    f"{norm_size=}, which sums to {sum(requested)}"
                )
            return requested
        groups, remainder = divmod(width, requested[0])
        sizes = requested * groups
        if remainder >= smallest:
            sizes.append(remainder)
        elif remainder:  # too small for a group: it joins the last one
            sizes[-1] += remainder
        return sizes

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        self.check_width(x)
        return super().forward(wide(x)).to(x.dtype)

    def kernel(self) -> Kernel:
        kernels, runs, start = [], [], 0
        for groups, size in self.runs:
            length = groups * size
            kernels.append(Standardize(size, length, self.eps, self._center))
            runs.append((start, length))
            start += length
        return kernels[0] if len(kernels) == 1 else Slices(tuple(kernels), tuple(runs))

    def extra_repr(self) -> str:
        return f"{self.width}, norm_size={self.norm_size}, eps={self.eps}, dim={self.dim}"


@known
class PLN(_ParallelNorm):
    """Parallel layer normalisation (PLN): standardise each group of units, without affine step.

    Parameters
    ----------
    width : int
        Number of features, at least 2.
    norm_size : int or sequence of int, default 8
        Number of units per group, at least 2. If an int does not divide ``width``, the last group
        is smaller; a remainder of one unit joins the previous group. A sequence has the size of
        each group; they must sum to ``width``.
    eps : float, default 1e-5
        Added to the variance. Statistics are computed in float32 for half-precision inputs.
    dim : int, default -1
        The feature axis. For images (batch, channels, height, width) use ``dim=1``: groups are
        along the channels, and the statistics are computed for each position.

    Shape
    -----
    (..., width) -> (..., width).

    Raises
    ------
    ValueError
        If a group or the width is smaller than 2, the sizes do not sum to the width, or the
        input has another width.

    References
    ----------
    "Universal approximation theorem of networks activated by normalization", Eq. (3).

    Examples
    --------
    >>> import torch
    >>> PLN(4, norm_size=2)(torch.tensor([[1.0, 3.0, 5.0, -5.0]]))
    tensor([[-1.0000,  1.0000,  1.0000, -1.0000]])
    """

    _center, _smallest = True, 2


@known
class PLS(_ParallelNorm):
    """Parallel layer scaling (PLS): divide each group of units by its root mean square.

    Parameters
    ----------
    width : int
        Number of features.
    norm_size : int or sequence of int, default 8
        Number of units per group, at least 1. If an int does not divide ``width``, the last group
        is smaller. A sequence has the size of each group; they must sum to ``width``.
    eps : float, default 1e-5
        Added to the mean square. The output is therefore scale invariant only for inputs much
        larger than ``sqrt(eps)``. Statistics are computed in float32 for half-precision inputs.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width).

    Raises
    ------
    ValueError
        If a group is empty, the sizes do not sum to the width, or the input has another width.

    References
    ----------
    "Universal approximation theorem of networks activated by normalization", Eq. (6).

    Examples
    --------
    >>> import torch
    >>> PLS(4, norm_size=2)(torch.tensor([[1.0, 7.0, 5.0, -5.0]]))
    tensor([[ 0.2000,  1.4000,  1.0000, -1.0000]])
    """

    _center, _smallest = False, 1
