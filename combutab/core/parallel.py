"""Jobs over processes by joblib: on one machine, or on Dask's and Ray's workers."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import io
import os
import pickle
import platform
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any

import cloudpickle
import numpy as np
import torch
from joblib import Parallel, delayed
from joblib.parallel import BACKENDS, get_active_backend

from combutab._version import __version__
from combutab.core.text import one_line

# ---- Dask and Ray as joblib's backends: features that long runs need -----------------------------


class WorkerDied(RuntimeError):
    """The workers that were given a task died, one after the other."""


@dataclass(frozen=True)
class Failed:
    """The error of a task, or a `WorkerDied`, instead of its result."""

    error: Exception


def _worker() -> Any:
    """The Dask worker whose task this thread works on, or None."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_worker()
    except ValueError:  # the thread is no worker's
        return None


def on_worker() -> bool:
    """Whether this thread works on a task of Dask, which must not distribute its work again."""
    return _worker() is not None


def unwanted() -> bool:
    """Tell whether the task that this thread works on was cancelled: Dask ends no thread."""
    worker = _worker()
    if worker is None:
        return False
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled"


def patched(active: Any) -> Any:
    """Joblib's backend of Dask or Ray with the missing features; other backends unchanged."""
    kind = type(active)
    if kind.__name__ == "DaskDistributedBackend":
        return type(kind.__name__, (_Dask, kind), {})(
            client=active.client,
            wait_for_workers_timeout=active.wait_for_workers_timeout,
            **active.submit_kwargs,
        )
    if kind.__name__ == "RayBackend":
        restarts = {"max_restarts": -1, "max_task_retries": 2}  # of workers that die; none else
        return type(kind.__name__, (_Ray, kind), {})(
            nesting_level=active.nesting_level,
            inner_max_num_threads=active.inner_max_num_threads,
            ray_remote_args=restarts | (active.ray_remote_args or {}),
            **active.backend_kwargs,
        )
    return active


_Backend: Any = object  # as which mypy knows the other base's methods


class _Dask(_Backend):
    """Missing features of joblib's Dask backend, as its first base."""

    pre_dispatch = "all"  # a worker keeps a table as long as tasks that are known wait for it

    def effective_n_jobs(self, n_jobs: int) -> int:
        # joblib would do the tasks of a single worker in this process
        return max(2, super().effective_n_jobs(n_jobs))

    def start_call(self) -> None:
        self._aborted = False
        super().start_call()

    async def _to_func_args(self, func: Any) -> Any:
        end = time.monotonic() + (self.wait_for_workers_timeout or 0)
        while not self._aborted:
            try:
                sent = await super()._to_func_args(func)
            except Exception as error:  # the worker with the table has died, or there is no worker
                if time.monotonic() > end or self.client.status != "running":
                    func.tell(error)
                    raise
                self.call_data_futures.clear()  # which would fail again
                await asyncio.sleep(0.1)
            else:
                if not self._aborted:  # while the table went to a worker
                    return sent
        raise asyncio.CancelledError

    def submit(self, func: Any, callback: Any = None) -> Any:
        """Tell joblib of a task that has no result, for which it would wait for ever."""
        from distributed.scheduler import KilledWorker

        def tell(sent: Any) -> None:
            error = sent.exception()
            if error is not None:
                callback(_died(func, error) if isinstance(error, KilledWorker) else error)

        func.tell = callback
        sent = super().submit(func, callback)
        sent.add_done_callback(tell)
        return sent

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the tasks, those not yet sent too, and let go of the results that are there."""
        super().abort_everything(ensure_ready)
        if self.client.status == "running":
            self.client.sync(self._cancel)

    async def _cancel(self) -> None:
        self._aborted = True
        await self.client.cancel(list(self._results), asynchronous=True, force=True)
        async with self.waiting_futures.condition:  # where what collects results would wait on
            self.waiting_futures.condition.notify_all()


class _Ray(_Backend):
    """Missing features of Ray's backend for joblib, as its first base."""

    supports_return_generator = True  # joblib's pools of this machine cannot be left midway

    def start_call(self) -> None:
        self._stored: dict[int, tuple[np.ndarray, Any]] = {}  # by id, with Ray's reference
        super().start_call()

    def submit(self, func: Any, callback: Any = None) -> Any:
        """Store arrays once, which the backend would send with each task of a newer joblib."""
        from ray.exceptions import RayActorError

        def tell(out: Any) -> None:
            callback(_died(func, out) if isinstance(out, RayActorError) else out)

        batch = copy.copy(func)
        batch.items = [
            (_run_stored, (sent[0], call, *map(self._store, sent[1:])), arguments)
            for call, sent, arguments in func.items
        ]
        return super().submit(batch, tell)

    def terminate(self) -> None:
        """Kill the workers: one that is asked to end has failed, says Ray, which would retry."""
        import ray

        actors = getattr(self._pool, "_actor_pool", [])
        while actors:
            ray.kill(actors.pop()[0])
        super().terminate()

    def _store(self, argument: Any) -> Any:
        import ray

        if not isinstance(argument, np.ndarray):
            return argument
        if id(argument) not in self._stored:
            self._stored[id(argument)] = argument, ray.put(argument)
        return self._stored[id(argument)][1]


def _run_stored(position: int, call: Callable[..., Any], *sent: Any) -> tuple[int, Any]:
    """Do a task whose arrays are in Ray's store, read where they are."""
    import ray

    return call(position, *(ray.get(a) if isinstance(a, ray.ObjectRef) else a for a in sent))


def _died(batch: Any, error: Exception) -> list[tuple[int, Failed]]:
    """Give the results of a batch of tasks whose worker died."""
    return [(sent[0], Failed(WorkerDied(_line(error)))) for _, sent, _ in batch.items]


# ---- Tasks at the same time: in threads, or wherever joblib's context sends them -----------------

_SEPARATE = 1000  # bytes: smaller arguments go along with each task


class BrokenBackend(BrokenExecutor):
    """A cluster ended a run, not one of its tasks: its scheduler is gone, or data are lost."""


class OtherVersions(RuntimeError):
    """A worker has other versions than the process that sent it a task."""


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function, or `Failed` with its error."""
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

    Tasks that a cluster loses are sent again, as long as any result comes back. Tasks whose workers
    died are sent again at the end, one by one.

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
    all_tasks, send = list(tasks), _Sender(shared).pack
    packed = ((i, (i, *send(function, task))) for i, task in enumerate(all_tasks))
    if not on_cluster():
        yield from _results(n_jobs, (delayed(_run_sent)(*task) for _, task in packed))
        return
    out: dict[int, tuple[Any, ...]] = {}  # tasks without a result
    died = []
    n_back, n_before = 0, -1  # the first time all is sent again even if nothing came back

    def calls_for(some: Iterable[tuple[int, tuple[Any, ...]]]) -> Iterator[Any]:
        for i, task in some:
            out[i] = task
            yield delayed(_run_sent)(*task)

    while n_back < len(all_tasks):
        try:
            for i, result in _cluster_results(n_jobs, calls_for(chain([*out.items()], packed))):
                n_back += 1
                task = out.pop(i)
                if _is(result, WorkerDied):
                    died.append((i, task))
                else:
                    yield i, result
        except BrokenBackend as broken:
            if n_back == n_before:
                raise
            warnings.warn(
                f"{broken}; unfinished tasks are sent again", RuntimeWarning, stacklevel=2
            )
            n_before = n_back
    for task in died:  # one may have taken the others along
        yield from _cluster_results(n_jobs, calls_for([task]))


def _cluster_results(n_jobs: int | None, calls: Iterable[Any]) -> Generator[tuple[int, Any]]:
    """Results as they are done; whatever ends the run as a whole is a `BrokenBackend`."""
    active, _ = get_active_backend(prefer="threads")
    try:
        yield from _results(n_jobs, calls)
    except OtherVersions:
        raise
    except Exception as error:
        said = f"{type(active).__name__} of joblib ended with {_line(error)}"
        raise BrokenBackend(said) from error


def _results(n_jobs: int | None, calls: Iterable[Any]) -> Generator[tuple[int, Any]]:
    active, backend_jobs = get_active_backend(prefer="threads")
    options: dict[str, Any] = {"n_jobs": n_jobs, "prefer": "threads"}
    if on_cluster():
        backend = options["backend"] = patched(active)
        options["pre_dispatch"] = getattr(backend, "pre_dispatch", "2 * n_jobs")
        options["n_jobs"] = n_jobs or backend_jobs or -1
    try:
        parallel = Parallel(return_as="generator_unordered", **options)
    except ValueError:  # backends that give all results at once, as "multiprocessing"
        parallel = Parallel(**options)
    outputs = (output for output in parallel(calls))
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
    return f"{type(error).__name__}: {one_line(error)}"


def _is(result: Any, kind: type[Exception]) -> bool:
    return isinstance(result, Failed) and isinstance(result.error, kind)


def _run(position: int, function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[int, Any]:
    return position, attempt(function, *arguments)


# ---- to other processes ------------------------------------------------------------------------


class _Sender:
    """Packs tasks; shared objects are sent separately, as arrays.

    Joblib's backends send an array only once if it is an argument of the call: 'dask' scatters it,
    'loky' maps it into memory; for 'ray' see `_Ray`.
    """

    def __init__(self, shared: Iterable[Any]) -> None:
        self._arrays: list[np.ndarray] = []
        self._positions: dict[int, tuple[str, int]] = {}  # by the object's id
        self._objects = []  # kept while their ids are in use
        positions: dict[object, int] = {}
        for item in shared:
            if id(item) in self._positions:
                continue
            kind, array = _array_to_send(item)
            if array.nbytes < _SEPARATE:
                continue
            content = array.dtype.str, array.shape, hashlib.blake2b(array.data.cast("B")).digest()
            position = positions.setdefault(content, len(self._arrays))
            if position == len(self._arrays):
                self._arrays.append(array)
            self._positions[id(item)] = kind, position
            self._objects.append(item)

    def pack(self, function: Callable[..., Any], task: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments of `_run_sent` except the first."""
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, self._positions)
        try:
            pickler.dump((function, *task))
        except Exception as error:  # the task's own: the others can be sent
            return self.pack(_raise, [_portable(error)])
        return (
            _versions(),
            buffer.getvalue(),
            *(self._arrays[position] for position in pickler.used),
        )


def _array_to_send(item: Any) -> tuple[str, np.ndarray]:
    if isinstance(item, torch.Tensor):
        return "tensor", np.ascontiguousarray(item.numpy())
    if isinstance(item, np.ndarray) and not item.dtype.hasobject:
        return "array", np.ascontiguousarray(item)
    return "object", np.frombuffer(cloudpickle.dumps(item), np.uint8)


class _Pickler(cloudpickle.Pickler):
    """Leaves out objects that are sent separately; functions of a script are sent as code."""

    def __init__(self, buffer: io.BytesIO, positions: dict[int, tuple[str, int]]) -> None:
        super().__init__(buffer)
        self.used: dict[int, int] = {}  # an array's place among all, and among the task's
        self._positions = positions

    def persistent_id(self, item: Any) -> tuple[str, int] | None:
        entry = self._positions.get(id(item))
        if entry is None:
            return None
        kind, position = entry
        return kind, self.used.setdefault(position, len(self.used))


class _Unpickler(pickle.Unpickler):
    def __init__(self, packed: bytes, arrays: Sequence[np.ndarray]) -> None:
        super().__init__(io.BytesIO(packed))
        self._arrays, self._unpacked = arrays, dict[tuple[str, int], Any]()

    def persistent_load(self, which: tuple[str, int]) -> Any:
        if which not in self._unpacked:
            kind, position = which
            array = self._arrays[position]
            if kind == "object":
                self._unpacked[which] = pickle.loads(array.data)
            else:  # torch takes no array that is not to be written
                array = array if array.flags.writeable else np.array(array)
                self._unpacked[which] = torch.from_numpy(array) if kind == "tensor" else array
        return self._unpacked[which]


def _versions() -> dict[str, str]:
    return {"combutab": __version__, "torch": torch.__version__.split("+")[0]}


def _run_sent(
    position: int, versions: dict[str, str], packed: bytes, *arrays: np.ndarray
) -> tuple[int, Any]:
    """Do a task that another process sent; nothing of it is unpacked by another version."""
    own_versions = _versions()
    if own_versions != versions:
        theirs, ours = (
            ", ".join(f"{name} {version}" for name, version in listed.items())
            for listed in (own_versions, versions)
        )
        message = (
            f"process {os.getpid()} on {platform.node()} has {theirs}, and was sent a task by a "
            f"process with {ours}: install the same versions on all workers"
        )
        return position, Failed(OtherVersions(message))

    def run() -> Any:
        function, *arguments = _Unpickler(packed, arrays).load()
        return function(*arguments)

    result = attempt(run)
    return position, Failed(_portable(result.error)) if isinstance(result, Failed) else result


def _raise(error: Exception) -> None:
    raise error


def _portable(error: Exception) -> Exception:
    """Give an error that can be sent back, with the lines of code that led to it."""
    try:
        portable = pickle.loads(pickle.dumps(error))
    except Exception:  # whatever classes of errors come to
        portable = RuntimeError(f"{type(error).__name__}: {error}")
    portable.add_note("".join(traceback.format_exception(error)))
    return portable
