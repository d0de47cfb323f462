"""Tasks at the same time: in threads, or wherever joblib's context sends them."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import platform
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from itertools import chain
from typing import Any

import cloudpickle
import numpy as np
import torch
from joblib import Parallel, delayed
from joblib.parallel import BACKENDS, get_active_backend

from combutab._clusters import Failed, WorkerDied, mended
from combutab._version import __version__

_SEPARATE = 1000  # bytes: smaller arguments go along with each task


class BrokenBackend(BrokenExecutor):
    """A cluster ended a run, not one of its tasks: its scheduler is gone, or data are lost."""


class OtherVersions(RuntimeError):
    """A worker has other versions than the process that sent it a task."""


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Give what a function gives, or `Failed` with what it raises."""
    try:
        return function(*arguments)
    except Exception as error:  # the caller decides
        return Failed(error)


def on_cluster() -> bool:
    """Tell whether joblib's context names more than this machine's threads and processes."""
    active, _ = get_active_backend(prefer="threads")
    local = [BACKENDS.get(name) for name in ("loky", "multiprocessing")]
    return not getattr(active, "supports_sharedmem", False) and type(active) not in local


def gathered(
    function: Callable[..., Any],
    tasks: Iterable[Sequence[Any]],
    *,
    n_jobs: int | None,
    shared: Iterable[Any] = (),
) -> list[Any]:
    """List ``function(*task)`` for each task, in order, by joblib; the first error is raised.

    Parameters as of `completed`, which does it on a cluster.
    """
    if not on_cluster():
        return Parallel(n_jobs=n_jobs)(delayed(function)(*task) for task in tasks)
    results = {}
    for i, result in completed(function, tasks, n_jobs=n_jobs, shared=shared):
        if isinstance(result, Failed):
            raise result.error
        results[i] = result
    return [results[i] for i in sorted(results)]


def completed(
    function: Callable[..., Any],
    tasks: Iterable[Sequence[Any]],
    *,
    n_jobs: int | None,
    shared: Iterable[Any] = (),
) -> Generator[tuple[int, Any]]:
    """Call ``function(*task)`` for each task; results come as they are done.

    What a cluster loses is sent again: all that is not back, as long as anything comes back; and,
    at the end and one by one, the tasks that workers died with.

    Parameters
    ----------
    function : callable
    tasks : iterable of sequences
        Arguments.
    n_jobs : int, optional
        As joblib has it; on a cluster by default all its workers.
    shared : iterable
        Objects that several tasks hold (tensors, arrays, tables): each of them, and all that are
        equal, is sent once to other processes, where joblib's backend can. They outlive the call.

    Yields
    ------
    (int, object)
        A task's position, and its result or `Failed`.

    Raises
    ------
    BrokenBackend
        If a cluster fails as a whole.
    OtherVersions
        If a worker has another version of the package or of torch.
    """
    active, _ = get_active_backend(prefer="threads")
    if getattr(active, "supports_sharedmem", False):
        calls = (delayed(_run)(i, function, task) for i, task in enumerate(tasks))
        yield from _results(n_jobs, calls)
        return
    wanted, send = list(tasks), _Sender(shared).pack
    packed = ((i, (i, *send(function, task))) for i, task in enumerate(wanted))
    if not on_cluster():
        yield from _results(n_jobs, (delayed(_run_sent)(*task) for _, task in packed))
        return
    out: dict[int, tuple[Any, ...]] = {}  # what is not back
    died = []
    n_back, n_before = 0, -1  # the first time all is sent again even if nothing came back

    def calls_for(some: Iterable[tuple[int, tuple[Any, ...]]]) -> Iterator[Any]:
        for i, task in some:
            out[i] = task
            yield delayed(_run_sent)(*task)

    while n_back < len(wanted):
        try:
            for i, result in _results(n_jobs, calls_for(chain([*out.items()], packed))):
                n_back += 1
                task = out.pop(i)
                if _is(result, WorkerDied):
                    died.append((i, task))
                else:
                    yield i, result
        except OtherVersions:
            raise
        except Exception as error:
            broken = _broken(active, error)
            if n_back == n_before:
                raise broken from error
            warnings.warn(f"{broken}; what is not back is sent again", RuntimeWarning, stacklevel=2)
            n_before = n_back
    for task in died:  # one may have taken the others along
        try:
            yield from _results(n_jobs, calls_for([task]))
        except OtherVersions:
            raise
        except Exception as error:
            raise _broken(active, error) from error


def _broken(active: Any, error: Exception) -> BrokenBackend:
    return BrokenBackend(f"{type(active).__name__} of joblib ended with {_line(error)}")


def _results(n_jobs: int | None, calls: Iterable[Any]) -> Generator[tuple[int, Any]]:
    active, wanted = get_active_backend(prefer="threads")
    options: dict[str, Any] = {"n_jobs": n_jobs, "prefer": "threads"}
    if on_cluster():
        backend = options["backend"] = mended(active)
        options["pre_dispatch"] = getattr(backend, "pre_dispatch", "2 * n_jobs")
        options["n_jobs"] = n_jobs or wanted or -1
    try:
        parallel = Parallel(return_as="generator_unordered", **options)
    except ValueError:  # backends that give all results at once, as "multiprocessing"
        parallel = Parallel(**options)
    outputs = (found for found in parallel(calls))
    finished = False
    try:
        for i, result in outputs:
            if _is(result, OtherVersions):
                raise result.error
            yield i, result
        finished = True
    finally:
        if not finished:  # after an interrupt or an error
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that the rest is cancelled
                outputs.close()


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _is(result: Any, kind: type[Exception]) -> bool:
    return isinstance(result, Failed) and isinstance(result.error, kind)


def _run(position: int, function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[int, Any]:
    return position, attempt(function, *arguments)


# ---- to other processes ------------------------------------------------------------------------


class _Sender:
    """Packs tasks, without what they share: that goes beside them, as arrays.

    An array that is an argument by itself is what joblib's backends know how to send once: 'dask'
    scatters it, 'loky' maps it into memory; for 'ray' see `_Ray`.
    """

    def __init__(self, shared: Iterable[Any]) -> None:
        self._arrays: list[np.ndarray] = []
        self._places: dict[int, tuple[str, int]] = {}  # by the object's id
        self._kept = []  # as long as their ids are in use
        found: dict[object, int] = {}
        for each in shared:
            if id(each) in self._places:
                continue
            kind, array = _as_array(each)
            if array.nbytes < _SEPARATE:
                continue
            content = array.dtype.str, array.shape, hashlib.blake2b(array.data.cast("B")).digest()
            place = found.setdefault(content, len(self._arrays))
            if place == len(self._arrays):
                self._arrays.append(array)
            self._places[id(each)] = kind, place
            self._kept.append(each)

    def pack(self, function: Callable[..., Any], task: Sequence[Any]) -> tuple[Any, ...]:
        """Give the arguments of `_run_sent` but the first."""
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, self._places)
        try:
            pickler.dump((function, *task))
        except Exception as error:  # the task's own: the others can be sent
            return self.pack(_raise, [_portable(error)])
        return _versions(), buffer.getvalue(), *(self._arrays[place] for place in pickler.used)


def _as_array(each: Any) -> tuple[str, np.ndarray]:
    if isinstance(each, torch.Tensor):
        return "tensor", np.ascontiguousarray(each.numpy())
    if isinstance(each, np.ndarray) and not each.dtype.hasobject:
        return "array", np.ascontiguousarray(each)
    return "object", np.frombuffer(cloudpickle.dumps(each), np.uint8)


class _Pickler(cloudpickle.Pickler):
    """Leaves out what is sent beside; functions of a script are sent by their code."""

    def __init__(self, buffer: io.BytesIO, places: dict[int, tuple[str, int]]) -> None:
        super().__init__(buffer)
        self.used: dict[int, int] = {}  # an array's place among all, and among the task's
        self._places = places

    def persistent_id(self, each: Any) -> tuple[str, int] | None:
        found = self._places.get(id(each))
        if found is None:
            return None
        kind, place = found
        return kind, self.used.setdefault(place, len(self.used))


class _Unpickler(pickle.Unpickler):
    def __init__(self, packed: bytes, arrays: Sequence[np.ndarray]) -> None:
        super().__init__(io.BytesIO(packed))
        self._arrays, self._made = arrays, dict[tuple[str, int], Any]()

    def persistent_load(self, which: tuple[str, int]) -> Any:
        if which not in self._made:
            kind, place = which
            array = self._arrays[place]
            if kind == "object":
                self._made[which] = pickle.loads(array.data)
            else:  # torch takes no array that is not to be written
                array = array if array.flags.writeable else np.array(array)
                self._made[which] = torch.from_numpy(array) if kind == "tensor" else array
        return self._made[which]


def _versions() -> dict[str, str]:
    return {"combutab": __version__, "torch": torch.__version__.split("+")[0]}


def _run_sent(
    position: int, versions: dict[str, str], packed: bytes, *arrays: np.ndarray
) -> tuple[int, Any]:
    """Do a task that another process sent; nothing of it is unpacked by another version."""
    here = _versions()
    if here != versions:
        theirs, ours = (
            ", ".join(f"{name} {version}" for name, version in each.items())
            for each in (here, versions)
        )
        message = (
            f"process {os.getpid()} on {platform.node()} has {theirs}, and was sent a task by a "
            f"process with {ours}: install the same versions on all workers"
        )
        return position, Failed(OtherVersions(message))
    result = attempt(lambda: _call(*_Unpickler(packed, arrays).load()))
    return position, Failed(_portable(result.error)) if isinstance(result, Failed) else result


def _raise(error: Exception) -> None:
    raise error


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _portable(error: Exception) -> Exception:
    """Give an error that can be sent back, with the lines of code that led to it."""
    try:
        found = pickle.loads(pickle.dumps(error))
    except Exception:  # whatever classes of errors come to
        found = RuntimeError(f"{type(error).__name__}: {error}")
    found.add_note("".join(traceback.format_exception(error)))
    return found
