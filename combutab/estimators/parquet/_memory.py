"""The shares of a memory limit that the parts of a streamed fit get."""

from __future__ import annotations

from dataclasses import dataclass

from combutab.estimators.fitting import Job

# Copies of the weights: themselves, gradients, two moments of Adam, the optimiser's scratch, the
# best so far, and at the end the results with their optimiser.
_NETWORK_COPIES = 10
_STEP_COPIES = 6  # of a batch's activations: forward, backward, masks and their like
_ORDER_BYTES = 56  # a row and member: random numbers, sorted, and their places, as int64
_FEWEST = 1024  # rows that are read at a time, at least
_MOST = 1 << 14  # and at most: more rows are no faster
_LANES = 8
_RESERVE = 32 << 20  # what allocators keep for themselves


@dataclass(frozen=True)
class RowCosts:
    """Bytes that rows take."""

    open_group: int
    """Bytes of an open row group, whatever is read of it."""
    read: int
    """Bytes of a row while it is read."""
    encoded: int = 0
    """Bytes of a row as the network takes it."""


@dataclass(frozen=True)
class MemoryPlan:
    """The plan that a limit allows; all counts are of rows but the lanes."""

    read: int
    """Rows read at a time."""
    lanes: int
    """Row groups read by turns."""
    window: int
    """Rows that are trained on before others are read, a whole number of batches."""


def rows_read(limit: int, costs: RowCosts) -> int:
    """Find how many rows to read at a time from one row group at a time.

    Raises ValueError if the limit is too small for the smallest number.
    """
    needed = _RESERVE + costs.open_group + _FEWEST * costs.read
    if needed > limit:
        _refuse(limit, needed, f"{_FEWEST} rows of the file")
    return min(_MOST, max(_FEWEST, (limit - needed) // 4 // costs.read))


def plan_memory(limit: int, costs: RowCosts, job: Job, n_train: int, n_val: int) -> MemoryPlan:
    """Share out what the network and the validation rows leave to the window and to reading.

    Raises ValueError if the limit is too small; it says how much is needed.
    """
    spec, n_members, batch_size = job.spec, len(job.members), job.config.batch_size
    itemsize = job.config.precision.dtype.itemsize
    fixed = _RESERVE + n_val * costs.encoded
    fixed += n_members * itemsize * spec.n_weights * _NETWORK_COPIES
    units, peak = sum(spec.widths), spec.peak_units
    units += peak if peak > max(spec.widths) else 0  # what embeddings of numbers are made from
    fixed += n_members * itemsize * batch_size * units * _STEP_COPIES
    order = _ORDER_BYTES * n_members
    row = 2 * costs.encoded + order  # of a window, and of the next one
    read = costs.read + 2 * costs.encoded
    needed = fixed + costs.open_group + _FEWEST * read + 2 * batch_size * row
    if needed > limit:
        _refuse(limit, needed, "one block of rows and the network")
    rest = limit - fixed
    lanes = min(_LANES, max(1, rest // 4 // costs.open_group))
    n_read = min(_MOST, max(_FEWEST, rest // 8 // read))
    left = rest - lanes * costs.open_group - n_read * read
    if n_train * (costs.encoded + order) <= left:  # one window holds all
        return MemoryPlan(n_read, lanes, -(-n_train // batch_size) * batch_size)
    return MemoryPlan(n_read, lanes, max(2, left // row // batch_size) * batch_size)


def _refuse(limit: int, needed: int, what: str) -> None:
    raise ValueError(
        f"memory_limit of {limit} bytes is too small for {what}: at least {needed} bytes "
        f"({-(-needed // 10**6)}MB) are needed; raise it, or use fewer columns, members or units, "
        "or a smaller batch_size"
    )
