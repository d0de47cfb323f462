"""PLN and PLS: normalisation inside small groups of units, used as an activation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from combutab.activations._elementwise import HALF

_EXACT = ("none", "ieee")


def _ones_in_blocks(groups: int, size: int) -> Tensor | None:
    """Ones where two units share a group, for the widest run of groups up to 16 units.

    The run divides a row, so a product with these blocks never crosses rows: what is in one
    sample (or member) cannot reach another, not even a NaN.
    """
    if size > 16:
        return None
    run = next(n for n in range(16 // size, 0, -1) if groups % n == 0)
    return torch.block_diag(*[torch.ones(size, size, dtype=torch.float64)] * run)


def _exact_product(x: Tensor) -> bool:
    """Whether a matrix product keeps this tensor's precision."""
    if x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    return x.dtype is torch.float64 or getattr(matmul, "fp32_precision", "none") in _EXACT


def _group_mean(x: Tensor, axis: int, ones: Tensor | None) -> Tensor:
    """Mean over ``axis``, of a shape that broadcasts against x.

    Reductions over a last axis of 2 to 16 numbers are slow on a CPU; a product with ones in
    diagonal blocks is several times faster and broadcasts on its way.
    """
    if ones is None or axis != -1 or not _exact_product(x):
        return x.mean(axis, keepdim=True)
    sums = x.reshape(-1, len(ones)) @ ones.to(x.dtype)
    return (sums / x.shape[-1]).view(x.shape)


class _Standardize(torch.autograd.Function):
    """x -> ((x - mean) rstd, rstd) over one axis; saves both outputs, not x.

    ``rstd`` is an output, not an intermediate, so that the second derivative sees it.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, axis: int, eps: float, center: bool, ones: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if center:
            x = x - _group_mean(x, axis, ones)
        rstd = (_group_mean(x * x, axis, ones) + eps).rsqrt_()
        return x * rstd, rstd

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, ctx.axis, _, ctx.center, ctx.ones = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, Tensor]:
        out, rstd = ctx.saved_tensors
        along_out = (tangent * out).mean(ctx.axis, keepdim=True)
        if ctx.center:
            tangent = tangent - tangent.mean(ctx.axis, keepdim=True)
        return (tangent - out * along_out) * rstd, -along_out * rstd * rstd

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, grad_rstd: Tensor | None
    ) -> tuple[Tensor | None, None, None, None, None]:
        out, rstd = ctx.saved_tensors
        axis, ones = ctx.axis, ctx.ones
        grad_in = None
        if grad is not None:
            centered = grad - _group_mean(grad, axis, ones) if ctx.center else grad
            along_out = _group_mean(grad * out, axis, ones)
            grad_in = torch.addcmul(centered, out, along_out, value=-1) * rstd
        if grad_rstd is not None:  # only when the gradient itself is differentiated
            if grad_rstd.shape != out.shape:
                grad_rstd = grad_rstd / out.shape[axis]
            else:
                grad_rstd = _group_mean(grad_rstd, axis, ones)
            from_rstd = out * (rstd * rstd * grad_rstd)
            grad_in = -from_rstd if grad_in is None else grad_in - from_rstd
        return grad_in, None, None, None, None


def standardize(
    x: Tensor, axis: int, eps: float, center: bool = True, ones: Tensor | None = None
) -> Tensor:
    """Standardise (or RMS-scale, without centring) over one negative axis, in at least float32."""
    wide = x.float() if x.dtype in HALF else x
    if torch.compiler.is_compiling():  # the compiler fuses the plain expression itself
        if center:
            wide = wide - wide.mean(axis, keepdim=True)
        out = wide * torch.rsqrt((wide * wide).mean(axis, keepdim=True) + eps)
    else:
        out, _ = _Standardize.apply(wide, axis, eps, center, ones)
    return out.to(x.dtype)


class _ParallelNorm(nn.Module):
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
        # Neighbouring groups of one size are normalised together: (start, groups, size).
        self.runs: list[tuple[int, int, int]] = []
        start = 0
        for size in sizes:
            if self.runs and self.runs[-1][2] == size:
                first, groups, _ = self.runs[-1]
                self.runs[-1] = (first, groups + 1, size)
            else:
                self.runs.append((start, 1, size))
            start += size
        self._ones = [_ones_in_blocks(groups, size) for _, groups, size in self.runs]

    def _sizes(self, width: int, norm_size: int | Sequence[int]) -> list[int]:
        name, least = type(self).__name__, self._smallest
        hint = "; use PLS for single units" if least > 1 else ""
        asked = [norm_size] if isinstance(norm_size, int) else list(norm_size)
        if not asked or min(asked) < least:
            raise ValueError(
                f"norm_size must be at least {least} for {name}, got {norm_size=}{hint}"
            )
        if width < least:
            raise ValueError(f"width must be at least {least} for {name}, got {width=}{hint}")
        if not isinstance(norm_size, int):
            if sum(asked) != width:
                raise ValueError(
                    f"the sizes in norm_size must sum to the width {width}, got "
                    f"{norm_size=}, which sums to {sum(asked)}"
                )
            return asked
        groups, rest = divmod(width, norm_size)
        sizes = [norm_size] * groups
        if rest >= least:
            sizes.append(rest)
        elif rest:  # too small to stand alone: it joins its neighbour
            sizes[-1] += rest
        return sizes

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        dim = self.dim if self.dim < 0 else self.dim - x.ndim
        if x.shape[dim] != self.width:
            raise ValueError(
                f"{type(self).__name__} was built for {self.width} features, got {x.shape[dim]} "
                f"along dim={self.dim} of an input of shape {tuple(x.shape)}; build it for that "
                "width or set dim to the feature axis"
            )
        pieces = [
            standardize(
                x.narrow(dim, start, groups * size).unflatten(dim, (groups, size)),
                dim,
                self.eps,
                self._center,
                ones,
            ).flatten(dim - 1, dim)
            for (start, groups, size), ones in zip(self.runs, self._ones, strict=True)
        ]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim)

    def extra_repr(self) -> str:
        return f"{self.width}, norm_size={self.norm_size}, eps={self.eps}, dim={self.dim}"


class PLN(_ParallelNorm):
    """Parallel layer normalisation: every group of units is standardised, without affine.

    Parameters
    ----------
    width : int
        Number of features, at least 2.
    norm_size : int or sequence of int, default 8
        Units in a group, at least 2. With an int that does not divide ``width`` the last
        group takes the rest; a rest of one unit joins the group before it. A sequence gives
        each group's size and sums to ``width``.
    eps : float, default 1e-5
        Added to the variance. Statistics are computed in float32 for half-precision inputs.
    dim : int, default -1
        The feature axis; on images (batch, channels, height, width) take ``dim=1``: groups run
        along channels, statistics are per position.

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
    >>> PLN(4, norm_size=2)(torch.tensor([[1.0, 3.0, 5.0, -5.0]]))
    tensor([[-1.0000,  1.0000,  1.0000, -1.0000]])
    """

    _center, _smallest = True, 2


class PLS(_ParallelNorm):
    """Parallel layer scaling: every group of units is divided by its root mean square.

    Parameters
    ----------
    width : int
        Number of features.
    norm_size : int or sequence of int, default 8
        Units in a group, at least 1. With an int that does not divide ``width`` the last
        group takes the rest. A sequence gives each group's size and sums to ``width``.
    eps : float, default 1e-5
        Added to the mean square, so scale invariance holds for inputs well above its root.
        Statistics are computed in float32 for half-precision inputs.
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
    >>> PLS(4, norm_size=2)(torch.tensor([[1.0, 7.0, 5.0, -5.0]]))
    tensor([[ 0.2000,  1.4000,  1.0000, -1.0000]])
    """

    _center, _smallest = False, 1
