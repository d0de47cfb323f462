"""A training step as a CUDA graph: recorded once, replayed with one call.

Of use where it takes longer to launch a step's hundred small kernels than to run them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from combutab.training._steps import StepInputs

_WARM_UPS = 3  # steps that run as usual before one is recorded: libraries set themselves up
_wanted = [False]  # in a list: shared by the threads that train side by side


@contextmanager
def cuda_graphs() -> Iterator[None]:
    """Replay training steps as CUDA graphs in fits that begin within this context.

    Numbers are those of the usual steps, but for learning rates, which are rounded to float32.
    A fit on a CPU is not affected. Off by default.

    NOTE: this has run on a CPU only, where the tests replay recorded operators in place of a
    graph. Before it becomes the default, ``benchmarks/speed_gpu.py`` has to show on a GPU that
    it is faster for small stacks and slower for none.

    >>> from combutab import MLPClassifier
    >>> with cuda_graphs():
    ...     MLPClassifier(max_iter=5, device="cpu", n_iter_no_change=float("inf")).fit(
    ...         [[0.0], [1.0]], [0, 1])
    MLPClassifier(device='cpu', max_iter=5, n_iter_no_change=inf)
    """
    before = _wanted[0]
    _wanted[0] = True
    try:
        yield
    finally:
        _wanted[0] = before


def graphs_wanted() -> bool:
    """Whether ``cuda_graphs`` is entered."""
    return _wanted[0]


Recorder = Callable[[Callable[[], None], torch.device], Callable[[], None]]


def _record_cuda(run: Callable[[], None], device: torch.device) -> Callable[[], None]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        run()
    return graph.replay


# What records a step on a device of this kind, without running it: tests add the CPU.
RECORDERS: dict[str, Recorder] = {"cuda": _record_cuda}


class GraphedStep:
    """Calls ``step`` with its inputs, for full batches by replaying a recording of it.

    The recorded step reads its inputs where they were when it was recorded, so each step's are
    copied there first: three small copies on the device.

    Parameters
    ----------
    step : callable
        ``step(inputs)``; all that it reads and writes besides stays in its place.
    device : torch.device
        Of a kind in ``RECORDERS``.
    """

    def __init__(self, step: Callable[[StepInputs], None], device: torch.device) -> None:
        self._step, self._device = step, device
        self._record: Recorder | None = RECORDERS[device.type]
        self.reset()

    def reset(self) -> None:
        """Forget the recording: members were dropped, and tensors moved."""
        self._static: StepInputs | None = None
        self._replay: Callable[[], None] | None = None
        self._n_warm = 0

    def __call__(self, inputs: StepInputs) -> None:
        static = self._static
        if self._record is None or inputs.filling.valid is not None:
            self._step(inputs)
        elif static is None:
            self._static = _copies(inputs)
            self._warm_up(self._static)
        elif static.index.shape != inputs.index.shape:
            self._step(inputs)  # the last batch, smaller than the others
        else:
            _load(inputs, static)
            if static.groups != inputs.groups:
                self._static = static = replace(static, groups=inputs.groups)
                self._replay = None  # its memory is free for the new recording
            if self._n_warm < _WARM_UPS:
                self._warm_up(static)
            else:
                self._run(static)

    def _run(self, static: StepInputs) -> None:
        if self._replay is None:
            assert self._record is not None
            try:
                self._replay = self._record(lambda: self._step(static), self._device)
            except RuntimeError as error:
                warnings.warn(f"no CUDA graph of the training step: {error}", stacklevel=2)
                self._record = None
                self._step(static)
                return
        self._replay()

    def _warm_up(self, static: StepInputs) -> None:
        """An ordinary step, on a stream of its own as recordings need it."""
        self._n_warm += 1
        if self._device.type != "cuda":
            self._step(static)
            return
        stream, current = torch.cuda.Stream(self._device), torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            self._step(static)
        current.wait_stream(stream)


def _tensors(inputs: StepInputs) -> list[Tensor]:
    return [t for t in (inputs.index, inputs.keys, inputs.rates) if isinstance(t, Tensor)]


def _copies(inputs: StepInputs) -> StepInputs:
    assert isinstance(inputs.rates, Tensor)
    keys = None if inputs.keys is None else inputs.keys.clone()
    return replace(
        inputs,
        index=inputs.index.contiguous().clone(),
        keys=keys,
        rates=inputs.rates.clone(),
    )


def _load(inputs: StepInputs, static: StepInputs) -> None:
    for source, target in zip(_tensors(inputs), _tensors(static), strict=True):
        target.copy_(source)
