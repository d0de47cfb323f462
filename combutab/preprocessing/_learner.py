"""Scales and categories of a table that comes in parts, in one pass and bounded memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from combutab.preprocessing._blocks import Block, ColumnsBlock, pieces
from combutab.preprocessing._categories import CategoryCounts
from combutab.preprocessing._kinds import ColumnKind
from combutab.preprocessing._moments import Moments, RunningMoments
from combutab.preprocessing._numeric import Method, NumericScaler, make_scaler
from combutab.preprocessing._table import Table


class RowSample:
    """A uniform sample of rows that come in parts: those of the smallest random numbers.

    It depends on the seed and on the order of the rows, not on how they are parted. All are kept
    while there are no more than ``n_rows``.
    """

    def __init__(self, n_rows: int, seed: int) -> None:
        self._n_rows = n_rows
        self._random = np.random.default_rng(seed)
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._held = 0

    def add(self, rows: np.ndarray, weight: np.ndarray | None) -> None:
        """Take rows, (n, n_columns), and their weights, (n,)."""
        order = self._random.random(len(rows))
        share = np.ones(len(rows)) if weight is None else weight
        self._parts.append((order, rows.copy(), share))
        self._held += len(rows)
        if self._held > 2 * self._n_rows:
            self._cut()

    def _cut(self) -> None:
        order, rows, share = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        if len(order) > self._n_rows:
            kept = np.sort(np.argpartition(order, self._n_rows - 1)[: self._n_rows])
            order, rows, share = order[kept], rows[kept], share[kept]
        self._parts, self._held = [(order, rows, share)], len(order)

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows, (n, n_columns), and their weights, (n,)."""
        self._cut()
        return self._parts[0][1:]


class TableLearner:
    """Learns what `TableEncoder.fit` would, from the parts of a table one after another.

    ``labels`` are how errors name the columns. "quantile", "robust" and the edges of ``n_bins``
    take their quantiles from ``n_sample`` rows; ``max_distinct`` categories may be held, over all
    columns.
    """

    def __init__(
        self,
        labels: Sequence[str],
        kinds: Sequence[ColumnKind],
        method: Method,
        n_sample: int,
        max_distinct: int | None = None,
        seed: int = 0,
        n_bins: int | None = None,
    ) -> None:
        self._n_bins = n_bins
        self._labels, self._kinds, self._method = labels, kinds, method
        self._numeric = [j for j, kind in enumerate(kinds) if kind != "category"]
        self._truths = np.array([kinds[j] == "bool" for j in self._numeric], dtype=bool)
        self._moments = RunningMoments(len(self._numeric), lambda i: labels[self._numeric[i]])
        needed = method in ("quantile", "robust") or n_bins is not None
        self._sample = RowSample(n_sample, seed) if needed else None
        self._tolerance = np.zeros(len(self._numeric))
        self._counts = {j: CategoryCounts() for j, k in enumerate(kinds) if k == "category"}
        self._max_distinct = max_distinct
        self.n_rows = 0

    def add(self, table: Table, weight: np.ndarray | None = None) -> None:
        """Take one part, and the positive weights of its rows."""
        self.n_rows += table.n_rows
        block: Block = table.block(self._numeric, self._kinds)
        self._tolerance = np.maximum(self._tolerance, block.tolerance)
        for piece in pieces(block):
            rows = block.rows(piece.start, piece.stop)
            share = None if weight is None else weight[piece]
            if self._sample is not None:
                self._sample.add(rows, share)
            self._moments.add(rows, share)
        for j, counts in self._counts.items():
            counts.add(table.factors(j))
        self._check_distinct()

    def _check_distinct(self) -> None:
        if self._max_distinct is None:
            return
        sizes = {j: len(counts.seen) for j, counts in self._counts.items()}
        if sum(sizes.values()) > self._max_distinct:
            worst = max(sizes, key=sizes.__getitem__)
            raise ValueError(
                f"{self._labels[worst]} has more than {sizes[worst]} distinct categories, "
                f"and the memory allowed holds {self._max_distinct} of all columns; leave the "
                "column out, or allow more memory"
            )

    def scaler(self, min_frequency: float) -> NumericScaler:
        """Give the scaler of the numeric columns."""
        stats, weight = self._moments.result(), None
        columns: list[np.ndarray] = [np.empty(0)] * len(self._numeric)
        if self._sample is not None:
            rows, weight = self._sample.result()
            columns, weight = _filled(rows, weight, stats)
        sample = ColumnsBlock(columns, len(columns[0]) if columns else 0)
        sample.tolerance = self._tolerance
        return make_scaler(
            stats,
            sample,
            self._method,
            self._truths,
            weight,
            min_frequency,
            self.n_rows,
            self._n_bins,
        )

    @property
    def counts(self) -> dict[int, CategoryCounts]:
        """The categories of the categorical columns, by position."""
        return self._counts


def _filled(
    rows: np.ndarray, weight: np.ndarray, stats: Moments
) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Columns of a sample; one of which it has no value gets two a deviation from the mean."""
    columns = list(rows.T)
    empty = np.isnan(rows).all(axis=0) & ~np.isnan(stats.low)
    if empty.any():
        with np.errstate(over="ignore"):
            ends = np.stack([stats.mean - stats.std, stats.mean + stats.std])
        ends = np.where(empty, np.clip(ends, stats.low, stats.high), np.nan)
        columns = list(np.concatenate([rows, ends]).T)
        weight = np.append(weight, [1.0, 1.0])
    return columns, None if (weight == 1).all() else weight
