"""Fits on several processes: the rank of this process, and communication between ranks.

The processes are those of ``torch.distributed``, in a group that the program has initialised, or
those of ``torchrun``, which sets environment variables.
"""

from __future__ import annotations

import atexit
import gc
import itertools
import multiprocessing
import os
import secrets
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from datetime import timedelta
from numbers import Number
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # torch takes a second to import, and a single process does not need it here
    from torch import Tensor

T = TypeVar("T")

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_MAX_WAIT = 2.0  # seconds to wait for the error message of a rank that ended
_ROWS_PER_PART = 1 << 16  # rows that are summarized at a time
_TOLERANCE = 1e-6  # relative difference of equal tables, as processors round differently
_OF_PROCESS = {"callbacks", "device", "n_jobs", "verbose"}  # parameters that may differ by rank
_current: ContextVar[World | None] = ContextVar("world", default=None)
_numbers = itertools.count()  # numbers of shared fits, equal on all ranks


class RankError(RuntimeError):
    """A shared fit has ended because another rank ended it."""


class World:
    """The processes that share a fit: this one is rank ``number`` of ``count``.

    This class is a single process, which does not communicate; `Ranks` are several.
    """

    number, count = 0, 1

    def span(self, n: int) -> tuple[int, int]:
        """Return the start and the end of this rank's share of n items."""
        return n * self.number // self.count, n * (self.number + 1) // self.count

    def all_reduce(self, tensor: Tensor) -> None:
        """Add up the ranks' tensors in place."""

    def broadcast(self, tensor: Tensor) -> None:
        """Overwrite a tensor with that of rank 0."""

    def broadcast_object(self, value: T) -> T:
        """Return the value of rank 0."""
        return value

    def all(self, is_true: Tensor) -> Tensor:
        """Tell which booleans are true on all ranks."""
        return is_true

    def all_gather(self, share: Tensor, n: int) -> Tensor:
        """Gather all ranks' shares of n items, (M, share, ...), as (M, n, ...).

        An item may have several entries; each rank must have at least one item.
        """
        return share

    def all_gather_list(self, share: list[T], n: int) -> list[T]:
        """Gather all ranks' shares of n items as a list; raises ValueError if n differs."""
        return share


ONE_PROCESS = World()


class Ranks(World):
    """Several processes of ``torch.distributed`` that share a fit."""

    def __init__(self, group: Any) -> None:
        import torch.distributed as dist

        self._dist, self._group = dist, group
        self.world = dist.group.WORLD
        self.number, self.count = dist.get_rank(group), dist.get_world_size(group)
        self._fit = -1
        self._cuda_group: Any = None

    def begin(self, fit_description: str) -> None:
        """Wait until all ranks begin the next fit; raises ValueError if their fits differ."""
        self._fit = next(_numbers)
        descriptions = self.all_gather_object(fit_description)
        for number, description in enumerate(descriptions):
            if description != descriptions[0]:
                raise ValueError(_describe_mismatch(number, "other parameters"))

    def all_reduce(self, tensor: Tensor) -> None:
        self._communicate(lambda: self._dist.all_reduce(tensor, group=self._group_for(tensor)))

    def broadcast(self, tensor: Tensor) -> None:
        self._communicate(
            lambda: self._dist.broadcast(tensor, group=self._group_for(tensor), group_src=0)
        )

    def all(self, is_true: Tensor) -> Tensor:
        import torch

        missing = (~is_true).to(torch.int64)
        self.all_reduce(missing)
        return missing == 0

    def all_gather(self, share: Tensor, n: int) -> Tensor:
        import torch

        start, stop = self.span(n)
        n_entries = share.shape[1] // (stop - start)
        dtype = torch.uint8 if share.dtype == torch.bool else share.dtype
        gathered = share.new_zeros((share.shape[0], n * n_entries, *share.shape[2:]), dtype=dtype)
        gathered[:, start * n_entries : stop * n_entries] = share
        self.all_reduce(gathered)
        return gathered.to(share.dtype)

    def broadcast_object(self, value: T) -> T:
        values = [value]
        self._communicate(
            lambda: self._dist.broadcast_object_list(values, group=self._group, group_src=0)
        )
        return values[0]

    def all_gather_object(self, value: T) -> list[T]:
        """Return the values of all ranks, in the order of the ranks."""
        values: list[Any] = [None] * self.count
        self._communicate(lambda: self._dist.all_gather_object(values, value, group=self._group))
        return values

    def each(self, train: Callable[[], T]) -> list[T]:
        """Call ``train`` without communication, and return the results of all ranks."""
        with unshared():
            result = train()
        return self.all_gather_object(result)

    def share(self, n: int, train: Callable[[slice], list[Any]]) -> list[Any]:
        """Train this rank's share of n members as `each` does; the results are those of all."""

        def train_share() -> list[Any]:
            results = train(slice(*self.span(n)))
            if any(result.reason == "interrupted" for result in results):
                raise KeyboardInterrupt
            return results

        return [result for results in self.each(train_share) for result in results]

    def all_gather_list(self, share: list[T], n: int) -> list[T]:
        shares = self.all_gather_object((n, share))
        for number, (n_items, _) in enumerate(shares):
            if n_items != shares[0][0]:
                raise ValueError(_describe_mismatch(number, "another table"))
        return [item for _, rank_share in shares for item in rank_share]

    def _group_for(self, tensor: Tensor) -> Any:
        """Find the group for tensors of this device: NCCL's if each rank has a different GPU."""
        if not tensor.is_cuda:
            return self._group
        if self._cuda_group is None:
            import torch

            device = tensor.device
            gpus = self.all_gather_object(
                (socket.gethostname(), str(torch.cuda.get_device_properties(device)))
            )
            has_nccl = len(set(gpus)) == self.count and self._dist.is_nccl_available()
            self._cuda_group = self._group
            if has_nccl:
                self._cuda_group = self._dist.new_group(backend="nccl", timeout=_timeout())
        return self._cuda_group

    # ---- the end of a fit ------------------------------------------------------------------------

    def end(self) -> None:
        """Wait for all ranks; if one of them fails, the fit fails on all."""
        self.all_gather_object(None)

    def leave(self, error: BaseException) -> None:
        """Send the other ranks the reason why this one ends the fit, and leave the group."""
        global _ranks
        _ranks = None
        if not isinstance(error, RankError):
            words = f"rank {self.number} ended it with {type(error).__name__}: {error}"
            with suppress(Exception):  # the store may have ended
                self._store().compare_set(f"combutab/{self._fit}", "", words)
        groups, self._group, self._cuda_group = {self._group, self._cuda_group}, None, None
        for group in groups - {None}:  # ranks that wait for this one receive an error at once
            with suppress(Exception):
                group.abort() if hasattr(group, "abort") else None
            with suppress(Exception):
                self._dist.destroy_process_group(group)

    def _communicate(self, call: Callable[[], object]) -> None:
        """Communicate; an error names the rank that ended the fit, and the reason."""
        try:
            call()
        except (RuntimeError, ConnectionError) as error:
            raise RankError(
                f"the fit that {self.count} ranks shared is over: {self._explain_end(error)}"
            ) from error

    def _explain_end(self, error: Exception) -> str:
        key, deadline = f"combutab/{self._fit}", time.monotonic() + _MAX_WAIT
        with suppress(Exception):
            while not (is_explained := self._store().check([key])) and time.monotonic() < deadline:
                time.sleep(0.05)
            if is_explained:
                return str(self._store().get(key).decode())
        return (
            "another rank ended without a word (killed, or out of memory), did not call fit as "
            f"this one did, or is later than the process group's timeout of {_timeout()}: {error}"
        )

    def _store(self) -> Any:
        return self._dist.distributed_c10d._get_default_store()


_ranks: Ranks | None = None


def current() -> World:
    """Return the processes that share the current fit."""
    return _current.get() or ONE_PROCESS


def broadcast(value: T) -> T:
    """Return the value of rank 0 if ranks share a fit, otherwise the value itself."""
    return current().broadcast_object(value)


def check_same(ranks: Ranks, tables: Sequence[Tensor | None]) -> None:
    """Raise ValueError if tables differ between ranks, because sums over ranks would be wrong."""
    import torch

    first_outline, *outlines = ranks.all_gather_object(_summarize(tables))
    for number, other_outline in enumerate(outlines, 1):
        if other_outline.shape != first_outline.shape or not torch.allclose(
            other_outline, first_outline, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True
        ):
            raise ValueError(_describe_mismatch(number, "another table"))


def refuse_mixed_rows(mixed: str | None) -> None:
    """Raise ValueError if ranks share the rows of batches that a part of the training mixes."""
    n_ranks = current().count
    if n_ranks > 1 and mixed is not None:
        raise ValueError(
            f"{mixed} looks at the rows of a batch together, which {n_ranks} ranks would see "
            f"in parts: use something else, or n_members of at least {n_ranks} without "
            "callbacks, verbose and checkpoint, which are then shared out"
        )


def _describe_mismatch(number: int, difference: str) -> str:
    return (
        f"rank {number} was given {difference} than rank 0: all ranks that share a fit are to be "
        "given the same table, targets and parameters; to fit a model of each rank's own, use "
        "combutab.training.unshared()"
    )


def plain_parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters that affect a model and whose text is equal in all processes."""
    parameters = estimator.get_params(deep=False).items()
    return {
        name: value for name, value in parameters if name not in _OF_PROCESS and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool | str | Number)


def _summarize(tables: Sequence[Tensor | None]) -> Tensor:
    """Compute a few numbers that depend on the values and the order of the rows."""
    import torch

    sizes = [0.0 if table is None else table.numel() for table in tables]
    numbers = [torch.tensor(sizes, dtype=torch.float64)]
    for table in tables:
        if table is None:
            continue
        rows = table.flatten(1) if table.ndim > 1 else table.unsqueeze(1)
        total = torch.zeros(rows.shape[1], dtype=torch.float64, device=table.device)
        for start in range(0, len(table), _ROWS_PER_PART):
            row_part = rows[start : start + _ROWS_PER_PART].double()
            positions = torch.arange(start + 1, start + 1 + len(row_part), device=table.device)
            total += (positions.double() / len(table)) @ row_part
        numbers.append(total.cpu() / len(table))
    return torch.cat(numbers)


@contextmanager
def sharing(describe_fit: Callable[[], str]) -> Iterator[None]:
    """Share a fit in this context with the other ranks, if there are any.

    ``describe_fit`` must return the same text on all ranks. An error of one rank ends the fit on
    all ranks. Nested fits are not shared again. Fits in threads other than the main thread are not
    shared either, because their communication would mix.
    """
    if _current.get() is not None or threading.current_thread() is not threading.main_thread():
        with unshared():
            yield
        return
    ranks = _find_ranks()
    if ranks is None:
        yield
        return
    token = _current.set(ranks)
    warnings_context = warnings.catch_warnings(action="ignore") if ranks.number else nullcontext()
    try:
        with warnings_context, _own_gpu():  # rank 0 reports
            ranks.begin(describe_fit())
            yield
            ranks.end()
    except BaseException as error:
        ranks.leave(error)
        raise
    finally:
        _current.reset(token)


@contextmanager
def unshared() -> Iterator[None]:
    """Fit as a single process in this context, also if there are other ranks.

    >>> from combutab import MLPRegressor
    >>> with unshared():
    ...     net = MLPRegressor(max_iter=2, learning_rate="cosine").fit([[0.0]] * 9, [1.0] * 9)
    >>> net.n_iter_
    2
    """
    token = _current.set(ONE_PROCESS)
    try:
        yield
    finally:
        _current.reset(token)


def _find_ranks() -> Ranks | None:
    """Find the ranks that this process belongs to; None if it is the only process."""
    global _ranks
    import torch.distributed as dist

    if not dist.is_available():
        return None
    if not dist.is_initialized():
        if not all(name in os.environ for name in _TORCHRUN) or os.environ["WORLD_SIZE"] == "1":
            return None
        if multiprocessing.parent_process() is not None:
            return None  # a worker that a rank has started, which is not a rank
        store, number, count = next(dist.rendezvous("env://"))
        store = dist.PrefixStore(_agree_on_store_prefix(store, number, count), store)
        dist.init_process_group("gloo", store=store, rank=number, world_size=count)
        atexit.register(_leave_process_group)
    if dist.get_world_size() == 1:
        return None
    if _ranks is None or _ranks.world is not dist.group.WORLD:
        _ranks = Ranks(dist.new_group(backend="gloo", timeout=_timeout()))
    return _ranks


def _timeout() -> timedelta:
    """Return the timeout of the process group, which new groups do not inherit.

    It is the one that was passed to ``init_process_group``, or torch's default.
    """
    import torch.distributed as dist

    world = dist.group.WORLD
    assert world is not None
    timeouts: list[timedelta] = []
    for device in world._device_types:
        with suppress(AttributeError, RuntimeError):  # some backends have no timeout
            timeouts.append(world._get_backend(device).options._timeout)
    return max(timeouts, default=dist.default_pg_timeout)


def _agree_on_store_prefix(store: Any, number: int, count: int) -> str:
    """Agree on an unused prefix for the keys of the store.

    torchrun's store survives restarts, and keeps the addresses of processes that have ended.
    Therefore each rank announces itself by a new name, and rank 0 replies with the prefix.
    """
    unique_name, deadline = secrets.token_hex(8), time.monotonic() + store.timeout.total_seconds()
    if number:
        store.set(f"hello/{number}", unique_name)
        part = store.get(f"welcome/{unique_name}").decode()
        store.set(f"here/{part}/{number}", "")
        return str(part)
    missing = set(range(1, count))
    while missing := {
        number_missing
        for number_missing in missing
        if not store.check([f"here/{unique_name}/{number_missing}"])
    }:
        if time.monotonic() > deadline:
            raise RankError(f"the ranks {sorted(missing)} of {count} have not called fit")
        for number_missing in missing:
            if store.check([f"hello/{number_missing}"]):
                store.set(f"welcome/{store.get(f'hello/{number_missing}').decode()}", unique_name)
        time.sleep(0.02)
    return unique_name


def _leave_process_group() -> None:
    global _ranks
    import torch.distributed as dist

    if dist.is_initialized():
        _ranks = None  # gloo's threads abort an interpreter that ends before the groups
        dist.destroy_process_group()
        gc.collect()


def _own_gpu() -> Any:
    """Return a context in which "cuda" is the GPU of this rank under torchrun."""
    import torch

    number = os.environ.get("LOCAL_RANK", "")
    if torch.cuda.is_available() and number.isdigit() and torch.cuda.current_device() == 0:
        return torch.cuda.device(int(number) % torch.cuda.device_count())
    return nullcontext()
