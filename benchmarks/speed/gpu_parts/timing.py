"""What the parts of speed.gpu share: their lines of results, and a device's clock."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import torch

from benchmarks.speed.common import in_turns

Run = Callable[[Callable[[], None]], object]  # given a function that marks the end of a phase
_HEAD_START = 2_000_000  # clock ticks, about a millisecond, in which the host queues its work


@dataclass(frozen=True)
class Line:
    """One number: ``share`` is what it is of its reference, which ``target`` is about."""

    part: str
    what: str
    way: str
    value: float
    unit: str
    share: float = math.nan
    target: float = math.nan
    difference: float = math.nan  # largest from the CPU's numbers, relative to their largest
    tolerance: float = math.nan
    note: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the numbers are the CPU's; True where nothing was compared."""
        return not math.isfinite(self.tolerance) or self.difference <= self.tolerance

    def judged(self) -> Line:
        """Itself, or without its value where the numbers are wrong: speed is then worth nothing."""
        if self.agrees:
            return self
        note = f"differs from the CPU by {self.difference:.1e}, over {self.tolerance:.0e}"
        return replace(self, value=math.nan, share=math.nan, note=note)


def phases(run: Run, device: torch.device, head_start: bool = True) -> list[float]:
    """Seconds of each phase of one run, by the device's own clock.

    With a head start the device sleeps while the host queues the run, so that launches cost
    nothing, as in a CUDA graph: what is timed is the kernels.
    """
    if device.type != "cuda":
        moments = [time.perf_counter()]
        run(lambda: moments.append(time.perf_counter()))
        return [b - a for a, b in pairwise(moments)]
    events = [torch.cuda.Event(enable_timing=True)]

    def mark() -> None:
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()

    torch.cuda.synchronize(device)
    if head_start:
        torch.cuda._sleep(_HEAD_START)
    events[0].record()
    run(mark)
    torch.cuda.synchronize(device)
    return [a.elapsed_time(b) / 1e3 for a, b in pairwise(events)]


def median_phases(
    runs: Mapping[str, Run], device: torch.device, repeats: int
) -> dict[str, list[float]]:
    """Median seconds of each phase of each run; the first three turns are a warm-up."""
    found = in_turns({n: partial(phases, run, device) for n, run in runs.items()}, repeats, 3)
    return {
        name: [statistics.median(phase) for phase in zip(*seconds, strict=True)]
        for name, seconds in found.items()
    }


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest, relative to the largest expected number; infinite where one is not finite."""
    found, expected = found.detach().double().cpu(), expected.detach().double().cpu()
    if not found.isfinite().all():
        return math.inf
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-30))


@contextmanager
def tf32(wanted: bool) -> Iterator[None]:
    """Products of float32 matrices by TF32, or in full float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if wanted else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
