"""What comes next made in a thread, while what came last is made use of."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Generic, TypeVar

T = TypeVar("T")


class OneAhead(Generic[T]):
    """Items that another thread makes, one ahead.

    ``make(stopped)`` is a generator of them, which ends early once ``stopped()`` is true. While an
    item is in use the next one is made; it is done with when the next one is asked for, so that two
    places hold all of them in turn. What is raised in the thread is raised by the iteration.

    Examples
    --------
    >>> with OneAhead(lambda stopped: (i * i for i in range(3))) as items:
    ...     list(items)
    [0, 1, 4]
    """

    def __init__(self, make: Callable[[Callable[[], bool]], Generator[T, None, None]]) -> None:
        self._make = make
        self._stop = threading.Event()
        self._wanted = threading.Semaphore(1)  # items that may be begun
        self._made: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
        # a daemon: a process that ends does not wait for what nobody takes
        self._thread = threading.Thread(target=self._run, name="combutab-ahead", daemon=True)

    def __enter__(self) -> OneAhead[T]:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._wanted.release()
        self._thread.join()

    def __iter__(self) -> Iterator[T]:
        while True:
            item, error = self._made.get()
            if error is not None:
                raise error
            if item is None:
                return
            self._wanted.release()
            yield item

    def _run(self) -> None:
        try:
            with closing(self._make(self._stop.is_set)) as items:
                while True:
                    self._wanted.acquire()
                    item = None if self._stop.is_set() else next(items, None)
                    self._made.put((item, None))
                    if item is None:
                        return
        except BaseException as error:  # of whatever sort, it is for who waits for an item
            self._made.put((None, error))
