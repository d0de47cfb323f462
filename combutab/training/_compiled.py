"""The forward and backward pass of a training step as compiled code, on a GPU a CUDA graph."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import FunctionType
from typing import Generic, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


@dataclass(frozen=True)
class Compilation:
    """The device whose steps are compiled, and the backend of ``torch.compile``."""

    device: str
    backend: str

    def of(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """Compile a function; a trace that breaks is an error, as is a shape that changes."""
        graphs = self.device == "cuda" and self.backend == "inductor"
        mode = "reduce-overhead" if graphs else None
        return torch.compile(
            function, fullgraph=True, dynamic=False, backend=self.backend, mode=mode
        )


_wanted: list[Compilation | None] = [None]  # in a list: shared by threads that train side by side


@contextmanager
def compiled(*, device: str = "cuda", backend: str = "inductor") -> Iterator[None]:
    """Compile the training steps of fits that begin within this context, by ``torch.compile``.

    Forward and backward pass become fused kernels, replayed as a CUDA graph
    (``mode="reduce-overhead"``). Numbers are those of the usual steps, to rounding. An epoch's
    last, smaller batch, batches of members with fewer rows than others, CTGAN, and fits that ranks
    share take the usual steps; so does, with a warning, a fit that cannot be compiled (a module
    that looks at values, say). Each fit compiles anew, and again when members of its stack end:
    seconds that only long fits make up for.

    NOTE: off by default, because it has run on a CPU only. Before that changes,
    ``benchmarks/speed/gpu.py`` has to show on a GPU that it is faster.

    Parameters
    ----------
    device : str, default "cuda"
        The type of device on which steps are compiled; fits on others are not affected.
    backend : str, default "inductor"
        Of ``torch.compile``; on a CPU, inductor needs a C++ compiler and "aot_eager" none.

    >>> from combutab import MLPClassifier
    >>> with compiled():
    ...     net = MLPClassifier(max_iter=5, device="cpu", n_iter_no_change=float("inf")).fit(
    ...         [[0.0], [1.0]], [0, 1])
    >>> net.n_iter_
    5
    """
    before, _wanted[0] = _wanted[0], Compilation(device, backend)
    try:
        yield
    finally:
        _wanted[0] = before


def compilation() -> Compilation | None:
    """Return what ``compiled`` asks for, None outside it."""
    return _wanted[0]


class CompiledGradients(Generic[Result]):
    """Sets a batch's gradients by compiled code, where it can.

    Parameters
    ----------
    how : Compilation
    forward : callable
        Of tensors (or None) to a scalar, and whatever else the caller wants.
    backward : callable
        Given the scalar, sets the gradients.
    """

    def __init__(
        self,
        how: Compilation,
        forward: Callable[..., tuple[Tensor, Result]],
        backward: Callable[[Tensor], None],
    ) -> None:
        self._how, self._forward, self._backward = how, forward, backward
        self._failed = False
        self.reset()

    def reset(self) -> None:
        """Forget what was compiled: members were dropped, and shapes changed."""
        self._run: Callable[..., tuple[Tensor, Result]] | None = None
        self._shape: torch.Size | None = None

    def __call__(self, first: Tensor, *others: Tensor | None) -> Result | None:
        """Run the step; return what ``forward`` gave but the scalar, None to take it as usual."""
        if self._shape is None:  # an epoch's last batch may be smaller than the first
            self._shape = first.shape
        if self._failed or first.shape != self._shape:
            return None
        quiet: AbstractContextManager[object] = nullcontext()
        if self._run is None:
            self._run = self._how.of(_with_code_of_its_own(self._forward))
            quiet = warnings.catch_warnings(action="ignore")  # torch's, of its compiler's insides
        try:
            with quiet:
                return self._gradients(self._run, first, *others)
        # torch's compilers have no common class of exceptions; a graph is recorded in later calls
        except Exception as error:
            reason = textwrap.shorten(f"{type(error).__name__}: {error}", 300)
            warnings.warn(f"the training step is not compiled: {reason}", stacklevel=2)
            self._failed, self._run = True, None
            return None

    def _gradients(
        self, run: Callable[..., tuple[Tensor, Result]], *inputs: Tensor | None
    ) -> Result:
        if self._how.device == "cuda":
            torch.compiler.cudagraph_mark_step_begin()
        total, result = run(*inputs)
        self._backward(total)
        return result


def _with_code_of_its_own(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function; torch keeps a few compilations for each code object, and then no more."""

    def call(*inputs: Tensor | None) -> Result:
        return function(*inputs)

    return FunctionType(call.__code__.replace(), globals(), closure=call.__closure__)
