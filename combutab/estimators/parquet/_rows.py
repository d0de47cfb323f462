"""The rows of Parquet files as a training loop takes them: encoded, shuffled, window by window."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from combutab._device import Precision, resolve_device
from combutab._random import Purpose, derive, random_permutations, random_uniform
from combutab.estimators.fitted import Fitted
from combutab.estimators.fitting import check_weights, encoded_rows
from combutab.estimators.parquet._ahead import OneAhead
from combutab.estimators.parquet._memory import MemoryPlan
from combutab.estimators.parquet._targets import TargetLearner
from combutab.preprocessing import ParquetTable, RowGroup
from combutab.training import Rows


@dataclass(frozen=True, eq=False)
class Source:
    """A table in files: which of its columns are what, and which of its rows validate."""

    table: ParquetTable
    features: list[str]
    targets: list[str]
    weight: str | None
    seed: int
    held_out: float
    """Share of rows that validate."""

    @property
    def columns(self) -> list[str]:
        """All that is read."""
        return [*self.features, *self.targets, *([] if self.weight is None else [self.weight])]

    def parts(
        self, n_rows: int, groups: Sequence[RowGroup] | None = None
    ) -> Iterator[tuple[pd.DataFrame, np.ndarray | None, np.ndarray]]:
        """Rows of weight above 0, at most n_rows at a time: all columns, weights, which train."""
        for first, frame in self.table.batches(self.columns, n_rows, groups):
            key = derive(self.seed, Purpose.SPLIT)
            draws = random_uniform([key], len(frame), first=first)[0]
            trains = draws.numpy() >= self.held_out
            weight = None
            if self.weight is not None:
                weight = self._weights(frame, first)
                if not weight.all():
                    kept = weight > 0
                    frame, weight, trains = frame[kept], weight[kept], trains[kept]
            if len(frame):
                yield frame, weight, trains

    def _weights(self, frame: pd.DataFrame, first: int) -> np.ndarray:
        weight = frame[self.weight].to_numpy(np.float64, na_value=np.nan)
        wrong = ~(np.isfinite(weight) & (weight >= 0))
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"the weights in column {self.weight!r} must be at least 0 and finite, got "
                f"{weight[row]} in row {first + row} (counted from 0)"
            )
        check_weights(weight, f"the weights in column {self.weight!r}")
        return weight


class ParquetRows:
    """Training rows of Parquet files, as ``combutab.training.RowStream``.

    An epoch opens row groups in a random order, several at a time, and takes a few rows of each by
    turns until a window is full. A table that one window holds is read once, in its order. The
    estimator has learned its encoding, and the learner the target; ``n_read`` rows are read at a
    time until ``plan`` is set.
    """

    def __init__(
        self, source: Source, estimator: Fitted, learner: TargetLearner, n_rows: int, n_read: int
    ) -> None:
        self.source, self.estimator, self.learner = source, estimator, learner
        self.n_rows, self.plan = n_rows, MemoryPlan(n_read, 1, n_rows)
        self.device = resolve_device(estimator.device)
        self.dtype = Precision(estimator.precision).dtype
        self._places: list[Rows] = []
        self._whole: Rows | None = None
        self._windows: Generator[Rows, None, None] | None = None

    def windows(self, epoch: int) -> Iterator[Rows]:
        """Each training row once, in windows whose memory is used again.

        While one is in use, a thread fills the next.
        """
        self.close()
        self._windows = self._each_window(epoch)
        return self._windows

    def close(self) -> None:
        """End the thread of an epoch that was left in the middle."""
        if self._windows is not None:
            self._windows.close()
            self._windows = None

    def _each_window(self, epoch: int) -> Generator[Rows, None, None]:
        if self._whole is not None:
            yield self._whole
            return
        size = min(self.plan.window, self.n_rows)
        if size == self.n_rows:
            for rows, n in self._filled(self._in_order(), size, 1):
                self.source.table.release()
                self._whole = self._to_device(rows, n)
                yield self._whole
            return

        def fill(stopped: Callable[[], bool]) -> Generator[tuple[Rows, int], None, None]:
            parts = self._by_turns(epoch) if self.estimator.shuffle else self._in_order()
            return self._filled(itertools.takewhile(lambda _: not stopped(), parts), size, 2)

        with OneAhead(fill) as filled:
            for rows, n in filled:
                self.source.table.release()
                yield self._to_device(rows, n)

    def _filled(
        self, parts: Iterator[Any], size: int, n_places: int
    ) -> Generator[tuple[Rows, int], None, None]:
        """Encoded rows, size at a time and the rest: the place that they fill, and how many."""
        filled, turn = 0, 0
        for part in self._encoded(parts, validation=False):
            taken = 0
            while taken < len(part.dense):
                if len(self._places) <= turn:
                    self._places.append(_empty(part, size))
                n = min(len(part.dense) - taken, size - filled)
                _copy(part, taken, self._places[turn], filled, n)
                taken, filled = taken + n, filled + n
                if filled == size:
                    yield self._places[turn], size
                    filled, turn = 0, (turn + 1) % n_places
        if filled:
            yield self._places[turn], filled

    @property
    def row_bytes(self) -> int:
        """Bytes of an encoded row."""
        encoder = self.estimator.encoder_
        n_numbers = encoder.n_dense_ + len(self.source.targets) + 1
        return self.dtype.itemsize * n_numbers + 8 * len(encoder.cardinalities_)

    def first(self) -> Rows:
        """A few training rows, the table's first."""
        return next(self._encoded(self._in_order(), validation=False))

    def validation(self, n_rows: int) -> Rows:
        """The validation rows, in the table's order; none where there are none."""
        rows, filled = None, 0
        for part in self._encoded(self._in_order(), validation=bool(n_rows)):
            rows = rows or _empty(part, n_rows)
            if not n_rows:
                break
            _copy(part, 0, rows, filled, len(part.dense))
            filled += len(part.dense)
        assert rows is not None
        return self._to_device(rows, n_rows)

    def _in_order(self) -> Iterator[Any]:
        return self.source.parts(self.plan.read)

    def _by_turns(self, epoch: int) -> Iterator[Any]:
        """Parts of several row groups by turns, the groups in a random order."""
        groups = self.source.table.groups
        key = derive(self.source.seed, Purpose.ROW_GROUPS, epoch)
        order = random_permutations([key], [len(groups)])[0].tolist()
        n_lanes = min(self.plan.lanes, len(groups))
        shuffled = [groups[i] for i in order]
        lanes = deque(
            self.source.parts(self.plan.read, shuffled[lane::n_lanes]) for lane in range(n_lanes)
        )
        while lanes:
            lane = lanes.popleft()
            part = next(lane, None)
            if part is not None:
                yield part
                lanes.append(lane)

    def _encoded(self, parts: Iterator[Any], *, validation: bool) -> Iterator[Rows]:
        source = self.source
        for frame, weight, trains in parts:
            kept = ~trains if validation else trains
            if not kept.all():
                if not kept.any():
                    continue
                frame, weight = frame[kept], None if weight is None else weight[kept]
            table = self.estimator.encoder_.encode(frame[source.features], owner=self.estimator)
            y = self.learner.encode(frame[source.targets])
            if not validation:
                weight = self.learner.weigh(y, weight)
            yield encoded_rows(table, y, weight, self.dtype)

    def _to_device(self, rows: Rows, n: int) -> Rows:
        return rows.each(lambda tensor: tensor[:n].to(self.device))


def _empty(part: Rows, n_rows: int) -> Rows:
    """Allocate rows like those of a part."""
    return part.each(lambda tensor: tensor.new_empty(n_rows, *tensor.shape[1:]))


def _copy(part: Rows, start: int, rows: Rows, at: int, n: int) -> None:
    """Copy n rows of a part, from ``start`` on, to ``rows``, from ``at`` on."""
    for source, target in (
        (part.dense, rows.dense),
        (part.y, rows.y),
        (part.codes, rows.codes),
        (part.weight, rows.weight),
    ):
        if source is not None and target is not None:
            target[at : at + n] = source[start : start + n]
