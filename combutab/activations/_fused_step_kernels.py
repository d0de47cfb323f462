"""Triton kernels for a training loop that owns its memory: activations in place, dropout masks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from combutab.activations._functions import Span
from combutab.activations._fused_kernels import (
    _BOUNDS,
    _TILE,
    _bounds,
    _columns,
    _phi,
    _times_slope,
    run_combu,
    tl,
    triton,
)


@triton.jit(do_not_specialize=_BOUNDS)
def _drop_kernel(
    x, mask, out, n_rows, width, stride, elu_start, elu_stop, log_start, log_stop,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    n_blocks = tl.cdiv(width, COLUMNS)
    first = tl.program_id(0) % n_blocks * COLUMNS
    row = (tl.program_id(0) // n_blocks).to(tl.int64) * ROWS
    rows, columns = tl.arange(0, ROWS)[:, None], first + tl.arange(0, COLUMNS)[None, :]
    inside = (row + rows < n_rows) & (columns < width)
    places = row * width + (rows * width + columns)
    there = row * stride + (rows * stride + columns)
    past = first + COLUMNS
    values = tl.load(x + places, mask=inside, other=0).to(tl.float32)
    factors = tl.load(mask + there, mask=inside, other=0).to(tl.float32)
    values = _phi(values, columns, first, past, elu_start, elu_stop, log_start, log_stop)
    dropped = (values * factors).to(out.dtype.element_ty)
    tl.store(out + places, dropped, mask=inside)
    slopes = _times_slope(
        factors, values, columns, first, past, elu_start, elu_stop, log_start, log_stop
    )
    tl.store(mask + there, slopes.to(mask.dtype.element_ty), mask=inside)


def drop_(x: Tensor, mask: Tensor, out: Tensor, spans: Sequence[Span]) -> None:
    """``out`` becomes phi(x) mask, and mask becomes mask phi'(x).

    Shape
    -----
    x, out, contiguous : (members, rows, width); mask the same, its rows apart by any stride
    """
    width = x.shape[-1]
    columns, n_rows = _columns(spans, width), x.numel() // width
    rows = _TILE // columns
    grid = (triton.cdiv(n_rows, rows) * triton.cdiv(width, columns),)
    with torch.cuda.device_of(x):
        _drop_kernel[grid](
            x, mask, out, n_rows, width, mask.stride(-2), *_bounds(spans),
            ROWS=rows, COLUMNS=columns,
        )  # fmt: skip


def forward_(x: Tensor, spans: Sequence[Span]) -> None:
    """x becomes phi(x); contiguous."""
    run_combu(x, x, x, spans, backward=False)


def backward_(kept: Tensor, grad: Tensor, spans: Sequence[Span]) -> None:
    """grad becomes grad phi'(x), given phi(x); both contiguous."""
    run_combu(kept, grad, grad, spans, backward=True)


@triton.jit
def _masks_kernel(starts, dropped, scale, out, n, BLOCK: tl.constexpr):
    """Byte i % 8 of SplitMix64's draw i // 8 decides on unit i, as in ``combutab._random``."""
    member = tl.program_id(1).to(tl.int64)
    units = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    counter = (units // 8 + 1).to(tl.uint64) * 0x9E3779B97F4A7C15
    z = tl.load(starts + member).to(tl.uint64, bitcast=True) + counter
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    z = z ^ (z >> 31)
    byte = ((z >> (units % 8 * 8).to(tl.uint64)) & 255).to(tl.int32)
    kept = byte >= tl.load(dropped + member).to(tl.int32)
    masks = tl.where(kept, tl.load(scale + member), 0.0)
    tl.store(out + member * n + units, masks.to(out.dtype.element_ty), mask=units < n)


def masks_(starts: Tensor, dropped: Tensor, scale: Tensor, out: Tensor) -> None:
    """Dropout masks of all members, from where their counters start.

    Shape
    -----
    starts (int64), dropped (uint8), scale : M numbers each; out, contiguous : (M, ...)
    """
    n = out.numel() // len(out)
    with torch.cuda.device_of(out):
        _masks_kernel[(triton.cdiv(n, 1024), len(out))](starts, dropped, scale, out, n, BLOCK=1024)
