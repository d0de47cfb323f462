"""What the openml client's requests lack: time limits, a progress bar, faults told apart.

The client asks through requests and, for Parquet files, through minio; both end in urllib3. It
waits for an answer without limit, and no setting of its own can change that.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from combutab._bars import make_bar

CONNECT_SECONDS = 10.0
READ_SECONDS = 30.0  # between two pieces of an answer


class Transport:
    """Stands between the openml client and urllib3 for one data set.

    Every fault that may pass (no connection, silence, a server error, an answer that breaks off)
    leaves as urllib3's MaxRetryError, on which the client takes the ARFF file in place of the
    Parquet one.

    Parameters
    ----------
    label : str
        Stands in front of the progress bar.
    seconds : float
        Time for all requests together.
    closed : bool
        Whether every request is refused, as without a network.

    Attributes
    ----------
    without_parquet : bool
        Whether requests for Parquet files are refused; False at first.
    last_status : int
        HTTP status of the last answer.
    """

    def __init__(self, label: str, seconds: float = math.inf, *, closed: bool = False) -> None:
        self._end = time.monotonic() + seconds
        self._label = label
        self._seconds = seconds
        self._closed = closed
        self.without_parquet = False
        self.last_status = 0
        self._bar: Any = None

    def seconds_left(self) -> float:
        return self._end - time.monotonic()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Guard this thread's requests; those of other threads go their way."""
        import urllib3

        pool_class = urllib3.HTTPConnectionPool
        original: Callable[..., Any] = pool_class.urlopen
        owner = threading.get_ident()

        def urlopen(pool: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != owner:
                return original(pool, method, url, *args, **kwargs)
            return self._urlopen(original, pool, method, url, *args, **kwargs)

        if not self._closed:
            self._bar = _progress()
            self._task = self._bar.add_task(self._label, total=None, visible=False)
        setattr(pool_class, "urlopen", urlopen)  # noqa: B010 - mypy takes no assigned method
        try:
            with self._bar or nullcontext():
                yield
        finally:
            setattr(pool_class, "urlopen", original)  # noqa: B010

    def _urlopen(
        self,
        original: Callable[..., Any],
        pool: Any,
        method: str,
        url: str,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError, MaxRetryError

        if self._closed or (self.without_parquet and url.endswith(".pq")):
            raise MaxRetryError(pool, url, OSError("not asked for"))
        self._check_time(pool, url)
        left = self.seconds_left()
        kwargs["timeout"] = Timeout(
            connect=min(CONNECT_SECONDS, left), read=min(READ_SECONDS, left)
        )
        kwargs["retries"] = False  # minio would try five times on its own
        try:
            response = original(pool, method, url, *args, **kwargs)
        except HTTPError as error:
            raise MaxRetryError(pool, url, error) from error
        self.last_status = response.status
        if response.status >= 500 or response.status == 429:
            response.close()
            reason = OSError(f"server answered {response.status} {response.reason}")
            raise MaxRetryError(pool, url, reason)

        def stream(amt: int = 2**16, decode_content: bool | None = None) -> Iterator[bytes]:
            try:
                yield from self._pieces(response, pool, url, decode_content)
            finally:
                if response.length_remaining:  # what is left of it is of no use to anybody
                    response.close()

        response.stream = stream
        return response

    def _pieces(
        self, response: Any, pool: Any, url: str, decode_content: bool | None
    ) -> Iterator[bytes]:
        from urllib3.exceptions import HTTPError, MaxRetryError

        total = int(response.headers.get("Content-Length") or 0) or None
        self._bar.update(self._task, completed=0, total=total, visible=True)
        while True:
            self._check_time(pool, url)
            try:
                # read1 gives what is there: no server can hold a read by sending byte by byte
                piece = response.read1(2**16, decode_content=decode_content)
            except HTTPError as error:
                raise MaxRetryError(pool, url, error) from error
            if not piece:
                return
            self._bar.update(self._task, completed=response.tell())
            yield piece

    def _check_time(self, pool: Any, url: str) -> None:
        from urllib3.exceptions import MaxRetryError

        if self.seconds_left() <= 0:
            raise MaxRetryError(pool, url, OSError(f"not done in {self._seconds:g} seconds"))


def _progress() -> Any:
    """A bar on standard error, gone when done."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return make_bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        transient=True,
    )
