"""Triton kernels of CombU, PLN, PLS, LayerAct and ProxyNorm: each reads and writes memory once.

All compute in float32, whatever the format of the tensors. A program works on a tile of rows and
columns, held in registers from the load to the store.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from combutab.activations._functions import Span

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError(
        "fused_kernels() needs triton, which torch's CUDA builds for Linux bring along; "
        "pip install triton, or leave fused_kernels() out"
    ) from error

_TILE = 2048  # numbers in a program's tile: 16 a thread, four loads of 16 bytes in float32
_SUMMED_TILE = 1024  # smaller where sums stay in registers too
_SUMMED_ROWS = 128  # rows that a program adds up

SCALES = {"none": 0, "sigmoid": 1, "hard_sigmoid": 2}


# ---- units that have functions of their own ---------------------------------------------------


@triton.jit
def _expm1(x):  # of x <= 0
    # exp(x) - 1 loses a small x's digits; the next term of the series is below 5e-8 of the sum
    series = x * (1 + x * (1 / 2 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720))))))
    return tl.where(x > -0.25, series, tl.exp(x) - 1)


@triton.jit
def _log1p(x):  # of x >= 0
    # what 1 + x loses of a small x, the quotient gives back (Kahan)
    u = 1 + x
    kept = tl.where(u == 1, 1.0, u - 1)
    log = tl.log(u)
    return tl.where(x < 1, tl.where(u == 1, x, log * (x / kept)), log)


@triton.jit
def _phi(x, columns, first, past, elu_start, elu_stop, log_start, log_stop):
    """ReLU, ELU and NLReLU, each on its columns; a tile that has none of a kind skips it."""
    out = tl.where(x < 0, 0.0, x)  # NaN stays
    if (first < elu_stop) & (past > elu_start):
        is_elu = (columns >= elu_start) & (columns < elu_stop)
        out = tl.where(is_elu & (x < 0), _expm1(x), out)
    if (first < log_stop) & (past > log_start):
        is_log = (columns >= log_start) & (columns < log_stop)
        out = tl.where(is_log, _log1p(out), out)
    return out


@triton.jit
def _times_slope(grad, out, columns, first, past, elu_start, elu_stop, log_start, log_stop):
    """The gradient times the slope, which follows from the output."""
    result = tl.where(out <= 0, 0.0, grad)
    if (first < elu_stop) & (past > elu_start):
        is_elu = (columns >= elu_start) & (columns < elu_stop)
        result = tl.where(is_elu, grad + grad * tl.where(out > 0, 0.0, out), result)
    if (first < log_stop) & (past > log_start):
        is_log = (columns >= log_start) & (columns < log_stop)
        result = tl.where(is_log, result * tl.exp(-out), result)
    return result


_BOUNDS = ["elu_start", "elu_stop", "log_start", "log_stop"]


@triton.jit(do_not_specialize=_BOUNDS)
def _combu_kernel(
    x, grad, result, n_rows, width, elu_start, elu_stop, log_start, log_stop,
    BACKWARD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Forward: phi(x). Backward: the gradient by x, given phi(x) in its place."""
    n_blocks = tl.cdiv(width, COLUMNS)
    first = tl.program_id(0) % n_blocks * COLUMNS
    row = (tl.program_id(0) // n_blocks).to(tl.int64) * ROWS
    rows, columns = tl.arange(0, ROWS)[:, None], first + tl.arange(0, COLUMNS)[None, :]
    inside = (row + rows < n_rows) & (columns < width)
    places = row * width + (rows * width + columns)
    values = tl.load(x + places, mask=inside, other=0).to(tl.float32)
    past = first + COLUMNS
    if BACKWARD:
        above = tl.load(grad + places, mask=inside, other=0).to(tl.float32)
        values = _times_slope(
            above, values, columns, first, past, elu_start, elu_stop, log_start, log_stop
        )
    else:
        values = _phi(values, columns, first, past, elu_start, elu_stop, log_start, log_stop)
    tl.store(result + places, values.to(result.dtype.element_ty), mask=inside)


def combu(x: Tensor, spans: Sequence[Span]) -> Tensor:
    """ReLU, ELU and NLReLU on spans of the last axis of a contiguous tensor."""
    return run_combu(x, x, torch.empty_like(x), spans, backward=False)


def combu_backward(grad: Tensor, out: Tensor, spans: Sequence[Span]) -> Tensor:
    """The gradient by the input, given that by the output and the output, both contiguous."""
    return run_combu(out, grad, torch.empty_like(grad), spans, backward=True)


def run_combu(
    x: Tensor, grad: Tensor, result: Tensor, spans: Sequence[Span], backward: bool
) -> Tensor:
    """``combu`` or ``combu_backward`` (x is then the output) into ``result``, which may be x."""
    width = x.shape[-1]
    bounds, columns = _bounds(spans), _columns(spans, width)
    n_rows, rows = x.numel() // width, _TILE // columns
    grid = (triton.cdiv(n_rows, rows) * triton.cdiv(width, columns),)
    with torch.cuda.device_of(x):
        _combu_kernel[grid](
            x, grad, result, n_rows, width, *bounds, BACKWARD=backward, ROWS=rows, COLUMNS=columns
        )
    return result


def _bounds(spans: Sequence[Span]) -> tuple[int, int, int, int]:
    """Where ELU and NLReLU begin and end; all other units are ReLU."""
    found = {name: (start, start + length) for name, start, length in spans}
    return *found.get("elu", (0, 0)), *found.get("nlrelu", (0, 0))


def _columns(spans: Sequence[Span], width: int) -> int:
    """The widest tile, up to 256, whose columns all have one function; or 128, mixed."""
    common = math.gcd(width, *(start for _, start, _ in spans))
    power = common & -common
    return min(power, 256) if power >= 32 else min(128, triton.next_power_of_2(width))


# ---- rows and groups that are standardised ----------------------------------------------------


@triton.jit
def _scale(n, SCALE: tl.constexpr):
    """s(n) of LayerAct, and its derivative."""
    if SCALE == 1:
        s = tl.sigmoid(n)
        slope = s * (1 - s)
    else:
        s = tl.where(n < -3, -3.0, tl.where(n > 3, 3.0, n)) / 6 + 0.5
        slope = tl.where((n <= -3) | (n >= 3), 0.0, 1 / 6)
    return s, slope


@triton.jit
def _normalise_kernel(
    x, out, mean, rstd, n_rows, eps,
    SIZE: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    CENTER: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS
    rows, columns = tl.arange(0, ROWS), tl.arange(0, PADDED)
    inside = (row + rows < n_rows)[:, None] & (columns < SIZE)[None, :]
    places = row * SIZE + (rows[:, None] * SIZE + columns[None, :])
    values = tl.load(x + places, mask=inside, other=0).to(tl.float32)
    n = values
    if CENTER:
        # rounded division: a constant group of any size is then exactly its own mean
        average = tl.div_rn(tl.sum(values, 1), SIZE * 1.0)
        n = tl.where(inside, values - average[:, None], 0.0)
        if SCALE > 0:
            tl.store(mean + row + rows, average, mask=row + rows < n_rows)
    inverse = tl.rsqrt(tl.sum(n * n, 1) / SIZE + eps)
    tl.store(rstd + row + rows, inverse, mask=row + rows < n_rows)
    n = n * inverse[:, None]
    if SCALE > 0:
        s, _ = _scale(n, SCALE)
        n = values * s  # LayerAct Eq. (6)
    tl.store(out + places, n.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _normalise_backward_kernel(
    grad, kept, mean, rstd, result, n_rows,
    SIZE: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    CENTER: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """``kept`` is the output, or the input where there is a scale."""
    row = tl.program_id(0).to(tl.int64) * ROWS
    rows, columns = tl.arange(0, ROWS), tl.arange(0, PADDED)
    real = row + rows < n_rows
    inside = real[:, None] & (columns < SIZE)[None, :]
    places = row * SIZE + (rows[:, None] * SIZE + columns[None, :])
    above = tl.load(grad + places, mask=inside, other=0).to(tl.float32)
    values = tl.load(kept + places, mask=inside, other=0).to(tl.float32)
    inverse = tl.load(rstd + row + rows, mask=real, other=0)
    n = values
    direct = above
    if SCALE > 0:
        average = tl.load(mean + row + rows, mask=real, other=0)
        n = tl.where(inside, (values - average[:, None]) * inverse[:, None], 0.0)
        s, slope = _scale(n, SCALE)
        direct = above * s
        above = above * values * slope
    through = above - n * (tl.sum(above * n, 1) / SIZE)[:, None]
    if CENTER:
        through -= (tl.sum(above, 1) / SIZE)[:, None]
    through *= inverse[:, None]
    if SCALE > 0:
        through += direct
    tl.store(result + places, through.to(result.dtype.element_ty), mask=inside)


def normalise(
    x: Tensor, eps: float, center: bool = True, scale: str = "none"
) -> tuple[Tensor, Tensor, Tensor]:
    """The last axis standardised, or ``x scale(standardised x)``; means, 1 / deviations.

    Shape
    -----
    x, contiguous : (..., size) -> (..., size), (..., 1), (..., 1), the last two in float32
    """
    out = torch.empty_like(x)
    mean = torch.empty(*x.shape[:-1], 1, dtype=torch.float32, device=x.device)
    rstd = torch.empty_like(mean)
    n_rows, grid, options = _rows(x, center, scale)
    with torch.cuda.device_of(x):
        _normalise_kernel[grid](x, out, mean, rstd, n_rows, eps, **options)
    return out, mean, rstd


def normalise_backward(
    grad: Tensor, kept: Tensor, mean: Tensor, rstd: Tensor, center: bool, scale: str = "none"
) -> Tensor:
    """The gradient by ``normalise``'s input; ``kept`` is its output, with a scale its input."""
    result = torch.empty_like(kept)
    n_rows, grid, options = _rows(kept, center, scale)
    with torch.cuda.device_of(kept):
        _normalise_backward_kernel[grid](grad, kept, mean, rstd, result, n_rows, **options)
    return result


def _rows(x: Tensor, center: bool, scale: str) -> tuple[int, tuple[int], dict[str, Any]]:
    """Rows, the grid, and what the kernels are compiled for."""
    size = x.shape[-1]
    padded = triton.next_power_of_2(size)
    n_rows, rows = x.numel() // size, max(1, _TILE // padded)
    options = {"SIZE": size, "PADDED": padded, "ROWS": rows, "CENTER": center}
    warps = min(16, max(4, padded // 512))
    options |= {"SCALE": SCALES[scale], "num_warps": warps}
    return n_rows, (triton.cdiv(n_rows, rows),), options


# ---- ProxyNorm --------------------------------------------------------------------------------


@triton.jit
def _of_columns(vector, member, column, width):
    """A member's numbers for these columns, as a row."""
    numbers = tl.load(vector + member * width + column, mask=column < width, other=0)
    return numbers.to(tl.float32)[None, :]


@triton.jit(do_not_specialize=_BOUNDS)
def _proxy_norm_kernel(
    y, gamma, beta, ratio, shift, out, n_rows, width, elu_start, elu_stop, log_start, log_stop,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """phi(gamma y + beta) ratio + shift, for the rows of one member."""
    n_blocks = tl.cdiv(width, COLUMNS)
    first = tl.program_id(0) % n_blocks * COLUMNS
    row = tl.program_id(0) // n_blocks * ROWS
    rows, column = tl.arange(0, ROWS)[:, None], first + tl.arange(0, COLUMNS)
    columns = column[None, :]
    member = tl.program_id(1).to(tl.int64)
    inside = (row + rows < n_rows) & (columns < width)
    places = (member * n_rows + row) * width + (rows * width + columns)
    values = tl.load(y + places, mask=inside, other=0).to(tl.float32)
    values *= _of_columns(gamma, member, column, width)
    values += _of_columns(beta, member, column, width)
    past = first + COLUMNS
    values = _phi(values, columns, first, past, elu_start, elu_stop, log_start, log_stop)
    values *= _of_columns(ratio, member, column, width)
    values += _of_columns(shift, member, column, width)
    tl.store(out + places, values.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=_BOUNDS)
def _proxy_norm_backward_kernel(
    grad, y, gamma, beta, ratio, result, sums, n_rows, width,
    elu_start, elu_stop, log_start, log_stop,
    SUMMED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient by y, and over SUMMED rows the sums that the other gradients are made of."""
    n_blocks = tl.cdiv(width, COLUMNS)
    first = tl.program_id(0) % n_blocks * COLUMNS
    chunk = tl.program_id(0) // n_blocks
    rows, column = tl.arange(0, ROWS)[:, None], first + tl.arange(0, COLUMNS)
    columns = column[None, :]
    member = tl.program_id(1).to(tl.int64)
    past = first + COLUMNS
    gain = _of_columns(gamma, member, column, width)
    offset = _of_columns(beta, member, column, width)
    factor = _of_columns(ratio, member, column, width)
    by_gamma = tl.zeros((ROWS, COLUMNS), tl.float32)
    by_beta = tl.zeros((ROWS, COLUMNS), tl.float32)
    by_ratio = tl.zeros((ROWS, COLUMNS), tl.float32)
    by_shift = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, SUMMED, ROWS):
        row = chunk * SUMMED + start
        inside = (row + rows < n_rows) & (columns < width)
        places = (member * n_rows + row) * width + (rows * width + columns)
        above = tl.load(grad + places, mask=inside, other=0).to(tl.float32)
        values = tl.load(y + places, mask=inside, other=0).to(tl.float32)
        z = _phi(
            values * gain + offset, columns, first, past, elu_start, elu_stop, log_start, log_stop
        )
        by_ratio += above * z
        by_shift += above
        inner = _times_slope(
            above * factor, z, columns, first, past, elu_start, elu_stop, log_start, log_stop
        )
        by_gamma += inner * values
        by_beta += inner
        tl.store(result + places, (inner * gain).to(result.dtype.element_ty), mask=inside)
    n_chunks = tl.cdiv(n_rows, SUMMED)
    into = sums + (member * n_chunks + chunk) * 4 * width + column
    tl.store(into, tl.sum(by_gamma, 0), mask=column < width)
    tl.store(into + width, tl.sum(by_beta, 0), mask=column < width)
    tl.store(into + 2 * width, tl.sum(by_ratio, 0), mask=column < width)
    tl.store(into + 3 * width, tl.sum(by_shift, 0), mask=column < width)


def proxy_norm(
    y: Tensor, gamma: Tensor, beta: Tensor, ratio: Tensor, shift: Tensor, spans: Sequence[Span]
) -> Tensor:
    """``phi(gamma y + beta) ratio + shift``, phi on spans of the last axis as in ``combu``.

    Shape
    -----
    y : (..., width), and the others (width,); or y : (members, n, width) and the others
    (members, 1, width). All contiguous.
    """
    out, width = torch.empty_like(y), y.shape[-1]
    members = gamma.numel() // width
    n_rows, columns = y.numel() // width // members, _columns(spans, width)
    rows = _TILE // columns
    grid = (triton.cdiv(n_rows, rows) * triton.cdiv(width, columns), members)
    with torch.cuda.device_of(y):
        _proxy_norm_kernel[grid](
            y, gamma, beta, ratio, shift, out, n_rows, width, *_bounds(spans),
            ROWS=rows, COLUMNS=columns,
        )  # fmt: skip
    return out


def proxy_norm_backward(
    grad: Tensor, y: Tensor, gamma: Tensor, beta: Tensor, ratio: Tensor, spans: Sequence[Span]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients by y, gamma, beta, ratio and shift; the last four in float32."""
    result, width = torch.empty_like(y), y.shape[-1]
    members = gamma.numel() // width
    n_rows, columns = y.numel() // width // members, _columns(spans, width)
    n_chunks = triton.cdiv(n_rows, _SUMMED_ROWS)
    sums = torch.empty(members, n_chunks, 4, width, dtype=torch.float32, device=y.device)
    grid = (n_chunks * triton.cdiv(width, columns), members)
    with torch.cuda.device_of(y):
        _proxy_norm_backward_kernel[grid](
            grad, y, gamma, beta, ratio, result, sums, n_rows, width, *_bounds(spans),
            SUMMED=_SUMMED_ROWS, ROWS=_SUMMED_TILE // columns, COLUMNS=columns,
        )  # fmt: skip
    by_gamma, by_beta, by_ratio, by_shift = sums.sum(1).view(members, 4, width).unbind(1)
    shape = gamma.shape
    return (
        result, by_gamma.reshape(shape), by_beta.reshape(shape), by_ratio.reshape(shape),
        by_shift.reshape(shape),
    )  # fmt: skip
