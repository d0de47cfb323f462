"""One fit on several processes: the rank of this process, and communication between ranks.

The processes are those of ``torch.distributed``: of a group that the program has initialised, or of
``torchrun``, as its environment variables show.
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

if TYPE_CHECKING:  # torch takes a second to import, and one process needs nothing of it here
    from torch import Tensor

T = TypeVar("T")

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_WORD = 2.0  # seconds in which the error of a rank that ended is looked for
_PART = 1 << 16  # rows that are looked at at once
_NEAR = 1e-6  # tables that differ by less are one, encoded by processors that round differently
_OF_PROCESS = {"callbacks", "device", "n_jobs", "verbose"}  # parameters
_current: ContextVar[World | None] = ContextVar("world", default=None)
_numbers = itertools.count()  # of shared fits: the same on all ranks


class RankError(RuntimeError):
    """A fit that ranks share has ended because another of them did."""


class World:
    """The processes that share a fit: this one is rank ``number`` of ``count``.

    Here there is one, which has nobody to communicate with; `Ranks` are several.
    """

    number, count = 0, 1

    def span(self, n: int) -> tuple[int, int]:
        """First and end of this rank's share of n things in a row."""
        return n * self.number // self.count, n * (self.number + 1) // self.count

    def all_reduce(self, tensor: Tensor) -> None:
        """Add up the ranks' tensors in place."""

    def broadcast(self, tensor: Tensor) -> None:
        """Overwrite a tensor with that of rank 0."""

    def broadcast_object(self, value: T) -> T:
        """Return what rank 0 has."""
        return value

    def all(self, truths: Tensor) -> Tensor:
        """Tell which booleans are true on all ranks."""
        return truths

    def all_gather(self, share: Tensor, n: int) -> Tensor:
        """Gather all ranks' shares of n items, (M, share, ...), as (M, n, ...).

        An item may have several entries; each rank must have at least one item.
        """
        return share

    def all_gather_list(self, share: list[T], n: int) -> list[T]:
        """All ranks' shares of n things, as a list; raises ValueError if n is not the same."""
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

    def begin(self, what: str) -> None:
        """Wait for all to begin the next fit; raises ValueError if it is not the same."""
        self._fit = next(_numbers)
        descriptions = self.all_gather_object(what)
        for number, description in enumerate(descriptions):
            if description != descriptions[0]:
                raise ValueError(_unlike(number, "other parameters"))

    def all_reduce(self, tensor: Tensor) -> None:
        self._communicate(lambda: self._dist.all_reduce(tensor, group=self._of(tensor)))

    def broadcast(self, tensor: Tensor) -> None:
        self._communicate(lambda: self._dist.broadcast(tensor, group=self._of(tensor), group_src=0))

    def all(self, truths: Tensor) -> Tensor:
        import torch

        missing = (~truths).to(torch.int64)
        self.all_reduce(missing)
        return missing == 0

    def all_gather(self, share: Tensor, n: int) -> Tensor:
        import torch

        start, stop = self.span(n)
        k = share.shape[1] // (stop - start)
        number = torch.uint8 if share.dtype == torch.bool else share.dtype
        gathered = share.new_zeros((share.shape[0], n * k, *share.shape[2:]), dtype=number)
        gathered[:, start * k : stop * k] = share
        self.all_reduce(gathered)
        return gathered.to(share.dtype)

    def broadcast_object(self, value: T) -> T:
        values = [value]
        self._communicate(
            lambda: self._dist.broadcast_object_list(values, group=self._group, group_src=0)
        )
        return values[0]

    def all_gather_object(self, value: T) -> list[T]:
        """Return what each rank has, in their order."""
        values: list[Any] = [None] * self.count
        self._communicate(lambda: self._dist.all_gather_object(values, value, group=self._group))
        return values

    def each(self, train: Callable[[], T]) -> list[T]:
        """Return the results of all ranks, which train without communication."""
        with unshared():
            result = train()
        return self.all_gather_object(result)

    def all_gather_list(self, share: list[T], n: int) -> list[T]:
        shares = self.all_gather_object((n, share))
        for number, (n_there, _) in enumerate(shares):
            if n_there != shares[0][0]:
                raise ValueError(_unlike(number, "another table"))
        return [item for _, part in shares for item in part]

    def _of(self, tensor: Tensor) -> Any:
        """The group for tensors of this device: NCCL's if each rank has a different GPU."""
        if not tensor.is_cuda:
            return self._group
        if self._cuda_group is None:
            import torch

            at = tensor.device
            gpus = self.all_gather_object(
                (socket.gethostname(), str(torch.cuda.get_device_properties(at)))
            )
            has_nccl = len(set(gpus)) == self.count and self._dist.is_nccl_available()
            self._cuda_group = self._group
            if has_nccl:
                self._cuda_group = self._dist.new_group(backend="nccl", timeout=_timeout())
        return self._cuda_group

    # ---- the end of a fit ------------------------------------------------------------------------

    def end(self) -> None:
        """Wait for all ranks: a fit that one of them could not finish, none has finished."""
        self.all_gather_object(None)

    def leave(self, error: BaseException) -> None:
        """Send the other ranks the reason why this one ends the fit, and leave the group."""
        global _ranks
        _ranks = None
        if not isinstance(error, RankError):
            words = f"rank {self.number} ended it with {type(error).__name__}: {error}"
            with suppress(Exception):  # there may be nobody left to tell
                self._store().compare_set(f"combutab/{self._fit}", "", words)
        groups, self._group, self._cuda_group = {self._group, self._cuda_group}, None, None
        for group in groups - {None}:  # ranks that wait for this one receive an error at once
            with suppress(Exception):
                group.abort() if hasattr(group, "abort") else None
            with suppress(Exception):
                self._dist.destroy_process_group(group)

    def _communicate(self, call: Callable[[], object]) -> None:
        """Communicate; an error says which rank ended the fit, and why."""
        try:
            call()
        except (RuntimeError, ConnectionError) as error:
            raise RankError(
                f"the fit that {self.count} ranks shared is over: {self._why(error)}"
            ) from error

    def _why(self, error: Exception) -> str:
        key, until = f"combutab/{self._fit}", time.monotonic() + _WORD
        with suppress(Exception):
            while not (is_explained := self._store().check([key])) and time.monotonic() < until:
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
    """The processes that share the current fit."""
    return _current.get() or ONE_PROCESS


def broadcast(value: T) -> T:
    """Return rank 0's value where ranks share a fit, else the value itself."""
    return current().broadcast_object(value)


def check_same(ranks: Ranks, tables: Sequence[Tensor | None]) -> None:
    """Refuse tables that differ by rank: sums over their rows would be meaningless."""
    import torch

    outline, *outlines = ranks.all_gather_object(_outline(tables))
    for number, their_outline in enumerate(outlines, 1):
        if their_outline.shape != outline.shape or not torch.allclose(
            their_outline, outline, rtol=_NEAR, atol=_NEAR, equal_nan=True
        ):
            raise ValueError(_unlike(number, "another table"))


def _unlike(number: int, what: str) -> str:
    return (
        f"rank {number} was given {what} than rank 0: all ranks that share a fit are to be given "
        "the same table, targets and parameters; to fit a model of each rank's own, use "
        "combutab.training.unshared()"
    )


def plain_parameters(estimator: Any) -> dict[str, Any]:
    """The parameters that shape a model and have equal text in all processes."""
    parameters = estimator.get_params(deep=False).items()
    return {n: value for n, value in parameters if n not in _OF_PROCESS and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool | str | Number)


def _outline(tables: Sequence[Tensor | None]) -> Tensor:
    """A few numbers that differ for other rows, or another order of the rows."""
    import torch

    sizes = [0.0 if table is None else table.numel() for table in tables]
    numbers = [torch.tensor(sizes, dtype=torch.float64)]
    for table in tables:
        if table is None:
            continue
        rows = table.flatten(1) if table.ndim > 1 else table.unsqueeze(1)
        total = torch.zeros(rows.shape[1], dtype=torch.float64, device=table.device)
        for start in range(0, len(table), _PART):
            part = rows[start : start + _PART].double()
            positions = torch.arange(start + 1, start + 1 + len(part), device=table.device)
            total += (positions.double() / len(table)) @ part
        numbers.append(total.cpu() / len(table))
    return torch.cat(numbers)


@contextmanager
def sharing(what: Callable[[], str]) -> Iterator[None]:
    """Share a fit in this context with the other ranks, if there are any.

    ``what`` describes the fit, and must be equal on all ranks. An error of one rank ends the fit on
    all. Nested fits are not shared again, and neither are fits in threads other than the main one,
    because their calls would mix.
    """
    if _current.get() is not None or threading.current_thread() is not threading.main_thread():
        with unshared():
            yield
        return
    ranks = _find()
    if ranks is None:
        yield
        return
    token = _current.set(ranks)
    quiet = warnings.catch_warnings(action="ignore") if ranks.number else nullcontext()
    try:
        with quiet, _own_gpu():  # rank 0 reports
            ranks.begin(what())
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


def _find() -> Ranks | None:
    """The ranks that this process is one of; None if it is the only one."""
    global _ranks
    import torch.distributed as dist

    if not dist.is_available():
        return None
    if not dist.is_initialized():
        if not all(name in os.environ for name in _TORCHRUN) or os.environ["WORLD_SIZE"] == "1":
            return None
        if multiprocessing.parent_process() is not None:
            return None  # a worker that a rank has started, and not a rank
        store, number, count = next(dist.rendezvous("env://"))
        store = dist.PrefixStore(_fresh_part(store, number, count), store)
        dist.init_process_group("gloo", store=store, rank=number, world_size=count)
        atexit.register(_part)
    if dist.get_world_size() == 1:
        return None
    if _ranks is None or _ranks.world is not dist.group.WORLD:
        _ranks = Ranks(dist.new_group(backend="gloo", timeout=_timeout()))
    return _ranks


def _timeout() -> timedelta:
    """The process group's timeout: what its maker gave ``init_process_group``, or torch's own.

    New groups have torch's default unless it is passed.
    """
    import torch.distributed as dist

    world = dist.group.WORLD
    assert world is not None
    timeouts: list[timedelta] = []
    for device in world._device_types:
        with suppress(AttributeError, RuntimeError):  # not every backend tells
            timeouts.append(world._get_backend(device).options._timeout)
    return max(timeouts, default=dist.default_pg_timeout)


def _fresh_part(store: Any, number: int, count: int) -> str:
    """Agree on a part of the store that nobody has written to.

    torchrun's store survives restarts, with the addresses of processes that have ended. So each
    rank announces itself by a new name, and rank 0 answers with the part of the store to use.
    """
    own_name, until = secrets.token_hex(8), time.monotonic() + store.timeout.total_seconds()
    if number:
        store.set(f"hello/{number}", own_name)
        part = store.get(f"welcome/{own_name}").decode()
        store.set(f"here/{part}/{number}", "")
        return str(part)
    missing = set(range(1, count))
    while missing := {
        number_missing
        for number_missing in missing
        if not store.check([f"here/{own_name}/{number_missing}"])
    }:
        if time.monotonic() > until:
            raise RankError(f"the ranks {sorted(missing)} of {count} have not called fit")
        for number_missing in missing:
            if store.check([f"hello/{number_missing}"]):
                store.set(f"welcome/{store.get(f'hello/{number_missing}').decode()}", own_name)
        time.sleep(0.02)
    return own_name


def _part() -> None:
    global _ranks
    import torch.distributed as dist

    if dist.is_initialized():
        _ranks = None  # gloo's threads abort an interpreter that ends before its groups
        dist.destroy_process_group()
        gc.collect()


def _own_gpu() -> Any:
    """The context in which "cuda" is the GPU that torchrun counts as this rank's."""
    import torch

    number = os.environ.get("LOCAL_RANK", "")
    if torch.cuda.is_available() and number.isdigit() and torch.cuda.current_device() == 0:
        return torch.cuda.device(int(number) % torch.cuda.device_count())
    return nullcontext()
