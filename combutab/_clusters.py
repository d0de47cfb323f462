"""Dask and Ray as joblib's backends: what these lack for a run that lasts."""

from __future__ import annotations

import asyncio
import copy
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


class WorkerDied(RuntimeError):
    """The workers that were given a task died, one after the other."""


@dataclass(frozen=True)
class Failed:
    """In place of a task's result: what it raised, or a `WorkerDied`."""

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
    """Tell whether this thread works on a task of Dask, whose joblib would share it out anew."""
    return _worker() is not None


def unwanted() -> bool:
    """Tell whether the task that this thread works on was cancelled: Dask ends no thread."""
    worker = _worker()
    if worker is None:
        return False
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled"


def mended(active: Any) -> Any:
    """Give joblib's backend of Dask or Ray again, with what it lacks; others as they are."""
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
    """What joblib's Dask backend lacks, as its first base."""

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
            except Exception as error:  # the worker that a table went to is gone, or there is none
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
    """What Ray's backend for joblib lacks, as its first base."""

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
            (_run_stored, (sent[0], call, *map(self._store, sent[1:])), named)
            for call, sent, named in func.items
        ]
        return super().submit(batch, tell)

    def _store(self, each: Any) -> Any:
        import ray

        if not isinstance(each, np.ndarray):
            return each
        if id(each) not in self._stored:
            self._stored[id(each)] = each, ray.put(each)
        return self._stored[id(each)][1]


def _run_stored(position: int, call: Callable[..., Any], *sent: Any) -> tuple[int, Any]:
    """Do a task whose arrays are in Ray's store, read where they are."""
    import ray

    return call(position, *(ray.get(a) if isinstance(a, ray.ObjectRef) else a for a in sent))


def _died(batch: Any, error: Exception) -> list[tuple[int, Failed]]:
    """Give the results of a batch of tasks whose worker died."""
    words = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return [(sent[0], Failed(WorkerDied(words))) for _, sent, _ in batch.items]
