"""Run jobs in parallel by joblib: on one machine, or on the workers of Dask or Ray."""

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

# ---- Features for long runs that joblib's backends of Dask and Ray lack --------------------------


class WorkerDied(RuntimeError):
    """Several workers died while they ran the same task."""


@dataclass(frozen=True)
class Failed:
    """The error of a task, or a `WorkerDied`, instead of its result."""

    error: Exception


def _worker() -> Any:
    """Return the Dask worker whose task this thread runs, or None."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_worker()
    except ValueError:  # the thread belongs to no worker
        return None


def on_worker() -> bool:
    """Tell whether this thread runs a task of Dask, which must not distribute its work again."""
    return _worker() is not None


def unwanted() -> bool:
    """Tell whether the task of this thread was cancelled; Dask does not end the thread itself."""
    worker = _worker()
    if worker is None:
        return False
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled"


def patched(active: Any) -> Any:
    """Add the missing features to joblib's backend of Dask or Ray; return others unchanged."""
    cls = type(active)
    if cls.__name__ == "DaskDistributedBackend":
        return type(cls.__name__, (_Dask, cls), {})(
            client=active.client,
            wait_for_workers_timeout=active.wait_for_workers_timeout,
            **active.submit_kwargs,
        )
    if cls.__name__ == "RayBackend":
        restarts = {
            "max_restarts": -1,
            "max_task_retries": 2,
        }  # by default, Ray restarts no worker that dies
        return type(cls.__name__, (_Ray, cls), {})(
            nesting_level=active.nesting_level,
            inner_max_num_threads=active.inner_max_num_threads,
            ray_remote_args=restarts | (active.ray_remote_args or {}),
            **active.backend_kwargs,
        )
    return active


_Backend: Any = object  # so that mypy accepts the methods of the other base class


class _Dask(_Backend):
    """Mixin with features that joblib's Dask backend lacks."""

    pre_dispatch = "all"  # a worker keeps a table only while pending tasks need it

    def effective_n_jobs(self, n_jobs: int) -> int:
        # with one job, joblib would run the tasks in this process
        return max(2, super().effective_n_jobs(n_jobs))

    def start_call(self) -> None:
        self._aborted = False
        super().start_call()

    async def _to_func_args(self, func: Any) -> Any:
        deadline = time.monotonic() + (self.wait_for_workers_timeout or 0)
        while not self._aborted:
            try:
                func_args = await super()._to_func_args(func)
            except Exception as error:  # the worker with the table died, or there is no worker
                if time.monotonic() > deadline or self.client.status != "running":
                    func.tell(error)
                    raise
                self.call_data_futures.clear()  # the cached futures would fail again
                await asyncio.sleep(0.1)
            else:
                if not self._aborted:  # not aborted while the table was sent
                    return func_args
        raise asyncio.CancelledError

    def submit(self, func: Any, callback: Any = None) -> Any:
        """Report a task without a result to joblib, which would wait for it forever."""
        from distributed.scheduler import KilledWorker

        def tell(future: Any) -> None:
            error = future.exception()
            if error is not None:
                callback(
                    _worker_died_results(func, error) if isinstance(error, KilledWorker) else error
                )

        func.tell = callback
        future = super().submit(func, callback)
        future.add_done_callback(tell)
        return future

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all tasks, also those that were not sent yet, and release their results."""
        super().abort_everything(ensure_ready)
        if self.client.status == "running":
            self.client.sync(self._cancel)

    async def _cancel(self) -> None:
        self._aborted = True
        await self.client.cancel(list(self._results), asynchronous=True, force=True)
        async with self.waiting_futures.condition:  # wakes the collector of results
            self.waiting_futures.condition.notify_all()


class _Ray(_Backend):
    """Mixin with features that Ray's backend for joblib lacks."""

    supports_return_generator = True  # joblib disables it for local pools, which cannot stop early

    def start_call(self) -> None:
        self._stored: dict[int, tuple[np.ndarray, Any]] = {}  # by id, with Ray's reference
        super().start_call()

    def submit(self, func: Any, callback: Any = None) -> Any:
        """Store each array once; with a newer joblib, the backend would send it with each task."""
        from ray.exceptions import RayActorError

        def tell(result: Any) -> None:
            callback(
                _worker_died_results(func, result) if isinstance(result, RayActorError) else result
            )

        batch = copy.copy(func)
        batch.items = [
            (_run_stored, (args[0], call, *map(self._store, args[1:])), kwargs)
            for call, args, kwargs in func.items
        ]
        return super().submit(batch, tell)

    def terminate(self) -> None:
        """Kill the workers; Ray would treat those that end on request as failed, and retry."""
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


def _run_stored(position: int, call: Callable[..., Any], *stored_arguments: Any) -> tuple[int, Any]:
    """Run a task whose arrays are in Ray's object store."""
    import ray

    return call(
        position,
        *(
            ray.get(argument) if isinstance(argument, ray.ObjectRef) else argument
            for argument in stored_arguments
        ),
    )


def _worker_died_results(batch: Any, error: Exception) -> list[tuple[int, Failed]]:
    """Build the results of a batch of tasks whose worker died."""
    return [(args[0], Failed(WorkerDied(_describe_error(error)))) for _, args, _ in batch.items]


# ---- Parallel tasks in threads, or on the backend of joblib's context ----------------------------

_MIN_SEPARATE_BYTES = 1000  # smaller arguments are sent with each task


class BrokenBackend(BrokenExecutor):
    """A cluster failed as a whole, for example because its scheduler ended or data were lost."""


class OtherVersions(RuntimeError):
    """A worker has other versions than the process that sent it a task."""


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, and return its result or `Failed` with its error."""
    try:
        return function(*arguments)
    except Exception as error:  # the caller handles it
        return Failed(error)


def on_cluster() -> bool:
    """Tell whether joblib's context runs tasks elsewhere than in local threads or processes."""
    active, _ = get_active_backend(prefer="threads")
    local_backends = [BACKENDS.get(name) for name in ("loky", "multiprocessing")]
    return not getattr(active, "supports_sharedmem", False) and type(active) not in local_backends


def gathered(
    function: Callable[..., Any],
    tasks: Iterable[Sequence[Any]],
    *,
    n_jobs: int | None,
    shared: Iterable[Any] = (),
) -> list[Any]:
    """Call ``function(*task)`` for each task by joblib, and list the results in order.

    The first error is raised. The parameters are those of `completed`, which is used on a cluster.
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
    """Call ``function(*task)`` for each task, and yield results as soon as they are done.

    Tasks that a cluster loses are sent again, as long as other tasks return results. Tasks whose
    workers died are sent again at the end, one at a time.

    Parameters
    ----------
    function : callable
    tasks : iterable of sequences
        Arguments.
    n_jobs : int, optional
        Number of jobs as in joblib; by default on a cluster, all its workers.
    shared : iterable
        Objects that several tasks use (tensors, arrays, tables). Objects with equal content are
        sent only once to other processes, if joblib's backend can. They outlive the call.

    Yields
    ------
    (int, object)
        Position of a task, and its result or `Failed`.

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
    all_tasks, pack_task = list(tasks), _Sender(shared).pack
    packed = ((i, (i, *pack_task(function, task))) for i, task in enumerate(all_tasks))
    if not on_cluster():
        yield from _results(n_jobs, (delayed(_run_sent)(*task) for _, task in packed))
        return
    pending: dict[int, tuple[Any, ...]] = {}  # tasks without a result
    interrupted_tasks = []
    n_results, n_results_before = 0, -1  # -1: a first failure never ends the call

    def calls_for(numbered_tasks: Iterable[tuple[int, tuple[Any, ...]]]) -> Iterator[Any]:
        for i, task in numbered_tasks:
            pending[i] = task
            yield delayed(_run_sent)(*task)

    while n_results < len(all_tasks):
        try:
            for i, result in _cluster_results(n_jobs, calls_for(chain([*pending.items()], packed))):
                n_results += 1
                task = pending.pop(i)
                if _failed_with(result, WorkerDied):
                    interrupted_tasks.append((i, task))
                else:
                    yield i, result
        except BrokenBackend as broken:
            if n_results == n_results_before:
                raise
            warnings.warn(
                f"{broken}; unfinished tasks are sent again", RuntimeWarning, stacklevel=2
            )
            n_results_before = n_results
    for (
        task
    ) in interrupted_tasks:  # one at a time: one task may have killed the other tasks' worker
        yield from _cluster_results(n_jobs, calls_for([task]))


def _cluster_results(n_jobs: int | None, calls: Iterable[Any]) -> Generator[tuple[int, Any]]:
    """Yield results as they are done; errors of the cluster itself become `BrokenBackend`."""
    active, _ = get_active_backend(prefer="threads")
    try:
        yield from _results(n_jobs, calls)
    except OtherVersions:
        raise
    except Exception as error:
        message = f"{type(active).__name__} of joblib ended with {_describe_error(error)}"
        raise BrokenBackend(message) from error


def _results(n_jobs: int | None, calls: Iterable[Any]) -> Generator[tuple[int, Any]]:
    active, backend_jobs = get_active_backend(prefer="threads")
    options: dict[str, Any] = {"n_jobs": n_jobs, "prefer": "threads"}
    if on_cluster():
        backend = options["backend"] = patched(active)
        options["pre_dispatch"] = getattr(backend, "pre_dispatch", "2 * n_jobs")
        options["n_jobs"] = n_jobs or backend_jobs or -1
    try:
        parallel = Parallel(return_as="generator_unordered", **options)
    except ValueError:  # backends such as "multiprocessing" return all results at once
        parallel = Parallel(**options)
    outputs = (output for output in parallel(calls))
    is_finished = False
    try:
        for i, result in outputs:
            if _failed_with(result, OtherVersions):
                raise result.error
            yield i, result
        is_finished = True
    finally:
        if not is_finished:  # after an interrupt or an error
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # warns that tasks are cancelled
                outputs.close()


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)}"


def _failed_with(result: Any, kind: type[Exception]) -> bool:
    return isinstance(result, Failed) and isinstance(result.error, kind)


def _run(position: int, function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[int, Any]:
    return position, attempt(function, *arguments)


# ---- sending tasks to other processes ----------------------------------------------------------


class _Sender:
    """Pickles tasks; shared objects are sent separately, as arrays.

    Joblib's backends send an array that is an argument of several calls only once: 'dask' scatters
    it, 'loky' maps it into memory; for 'ray' see `_Ray`.
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
            if array.nbytes < _MIN_SEPARATE_BYTES:
                continue
            content = array.dtype.str, array.shape, hashlib.blake2b(array.data.cast("B")).digest()
            position = positions.setdefault(content, len(self._arrays))
            if position == len(self._arrays):
                self._arrays.append(array)
            self._positions[id(item)] = kind, position
            self._objects.append(item)

    def pack(self, function: Callable[..., Any], task: Sequence[Any]) -> tuple[Any, ...]:
        """Build the arguments of `_run_sent` except the first."""
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, self._positions)
        try:
            pickler.dump((function, *task))
        except Exception as error:  # only this task fails; the others can be sent
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
    """Omits objects that are sent separately; functions of a script are pickled as code."""

    def __init__(self, buffer: io.BytesIO, positions: dict[int, tuple[str, int]]) -> None:
        super().__init__(buffer)
        self.used: dict[int, int] = {}  # position of an array among all arrays -> in this task
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

    def persistent_load(self, reference: tuple[str, int]) -> Any:
        if reference not in self._unpacked:
            kind, position = reference
            array = self._arrays[position]
            if kind == "object":
                self._unpacked[reference] = pickle.loads(array.data)
            else:  # torch does not accept read-only arrays
                array = array if array.flags.writeable else np.array(array)
                self._unpacked[reference] = torch.from_numpy(array) if kind == "tensor" else array
        return self._unpacked[reference]


def _versions() -> dict[str, str]:
    return {"combutab": __version__, "torch": torch.__version__.split("+")[0]}


def _run_sent(
    position: int, versions: dict[str, str], packed: bytes, *arrays: np.ndarray
) -> tuple[int, Any]:
    """Run a task from another process; it is not unpickled if the versions differ."""
    worker_versions = _versions()
    if worker_versions != versions:
        installed, expected = (
            ", ".join(f"{name} {version}" for name, version in package_versions.items())
            for package_versions in (worker_versions, versions)
        )
        message = (
            f"process {os.getpid()} on {platform.node()} has {installed}, and was sent a task by a "
            f"process with {expected}: install the same versions on all workers"
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
    """Convert an error to one that can be pickled, with its traceback as a note."""
    try:
        portable = pickle.loads(pickle.dumps(error))
    except Exception:  # classes of errors may fail in any way
        portable = RuntimeError(f"{type(error).__name__}: {error}")
    portable.add_note("".join(traceback.format_exception(error)))
    return portable
