"""Fits to Parquet files that are larger than memory, and predictions on them."""

from __future__ import annotations

import itertools
import os
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.base import _fit_context
from sklearn.utils.validation import check_is_fitted

from combutab.core.device import Precision, guard_forks, resolve_device
from combutab.core.rng import Stream, fold_in, random_permutations, random_uniform, seed_from
from combutab.core.rows import rows_of_table
from combutab.core.text import RESERVE, as_names, check_limit, parse_bytes
from combutab.core.world import sharing
from combutab.estimators._base import BaseMLP, Prepared, encoded_rows
from combutab.estimators._jobs import Job, epoch_tasks, train_shared
from combutab.estimators._targets import Target, TargetLearner, check_weights, refuse_text
from combutab.preprocessing import (
    ColumnKind,
    ParquetTable,
    Paths,
    RowGroup,
    TableEncoder,
    parquet_parts,
)
from combutab.training import Rows

# ---- The shares of a memory limit that the parts of a streamed fit get ---------------------------

# Copies of the weights: themselves, gradients, two moments of Adam, the optimiser's scratch, the
# best so far, and at the end the results with their optimiser.
_NETWORK_COPIES = 10
_STEP_COPIES = 6  # of a batch's activations: forward, backward, masks and their like
_ORDER_BYTES = 56  # a row and member: random numbers, sorted, and their places, as int64
_MIN_READ = 1024  # rows that are read at a time, at least
_MAX_READ = 1 << 14  # and at most: more rows are no faster
_SHARDS = 8
_INSTEAD = "use fewer columns, members or units, or a smaller batch_size"


@dataclass(frozen=True)
class RowCosts:
    """Bytes that rows take."""

    open_group: int
    """Bytes of an open row group."""
    read: int
    """Bytes of a row while it is read."""
    encoded: int = 0
    """Bytes of an encoded row."""


@dataclass(frozen=True)
class MemoryPlan:
    """The plan that a limit allows; all counts are of rows but the shards."""

    read: int
    """Rows read at a time."""
    shards: int
    """Number of row groups that are read in turn."""
    window: int
    """Rows that are trained on before others are read, a whole number of batches."""


def rows_read(limit: int, costs: RowCosts) -> int:
    """Find how many rows to read at a time from one row group at a time.

    Raises ValueError if the limit is too small for the smallest number.
    """
    needed = RESERVE + costs.open_group + _MIN_READ * costs.read
    check_limit(limit, needed, f"{_MIN_READ} rows of the file", _INSTEAD)
    return min(_MAX_READ, max(_MIN_READ, (limit - needed) // 4 // costs.read))


def plan_memory(limit: int, costs: RowCosts, job: Job, n_train: int, n_val: int) -> MemoryPlan:
    """Divide the memory that the network does not need into the window and reading.

    Raises ValueError if the limit is too small; it says how much is needed.
    """
    spec, n_members, batch_size = job.spec, len(job.members), job.config.batch_size
    itemsize = job.config.precision.dtype.itemsize
    fixed = RESERVE + n_val * costs.encoded
    fixed += n_members * itemsize * spec.n_weights * _NETWORK_COPIES
    units, peak = sum(spec.widths), spec.peak_units
    units += peak if peak > max(spec.widths) else 0  # what embeddings of numbers are made from
    fixed += n_members * itemsize * batch_size * units * _STEP_COPIES
    order = _ORDER_BYTES * n_members
    row = 2 * costs.encoded + order  # of a window, and of the next one
    read = costs.read + 2 * costs.encoded
    needed = fixed + costs.open_group + _MIN_READ * read + 2 * batch_size * row
    check_limit(limit, needed, "one block of rows and the network", _INSTEAD)
    available = limit - fixed
    shards = min(_SHARDS, max(1, available // 4 // costs.open_group))
    n_read = min(_MAX_READ, max(_MIN_READ, available // 8 // read))
    free = available - shards * costs.open_group - n_read * read
    if n_train * (costs.encoded + order) <= free:  # one window holds all
        return MemoryPlan(n_read, shards, -(-n_train // batch_size) * batch_size)
    return MemoryPlan(n_read, shards, max(2, free // row // batch_size) * batch_size)


# ---- Prefetching in a thread ---------------------------------------------------------------------

T = TypeVar("T")


def prefetched(make: Callable[[Callable[[], bool]], Generator[T]]) -> Generator[T]:
    """Items that another thread makes, one ahead.

    ``make(stopped)`` is a generator of them, which ends early once ``stopped()`` is true. While an
    item is in use the next one is made. An item is no longer used when the next one is requested,
    so that two buffers suffice. The iteration raises the errors of the thread.

    Examples
    --------
    >>> list(prefetched(lambda stopped: (i * i for i in range(3))))
    [0, 1, 4]
    """
    stop = threading.Event()
    with closing(make(stop.is_set)) as items, ThreadPoolExecutor(1, "combutab-ahead") as thread:
        ahead = thread.submit(next, items, None)
        try:
            while (item := ahead.result()) is not None:
                ahead = thread.submit(next, items, None)
                yield item
        finally:
            ahead.cancel()
            stop.set()


# ---- The rows of Parquet files for training: encoded, shuffled, window by window -----------------


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
            key = fold_in(self.seed, Stream.SPLIT)
            draws = random_uniform([key], len(frame), first=first)[0]
            trains = draws.numpy() >= self.held_out
            weight = None
            if self.weight is not None:
                weight = frame[self.weight].to_numpy(np.float64, na_value=np.nan)
                check_weights(weight, f"the weights in column {self.weight!r}", first)
                if not weight.all():
                    has_weight = weight > 0
                    frame, weight, trains = (
                        frame[has_weight],
                        weight[has_weight],
                        trains[has_weight],
                    )
            if len(frame):
                yield frame, weight, trains


@dataclass(eq=False)
class ParquetRows:
    """Training rows of Parquet files, as ``combutab.training.RowStream``.

    An epoch opens row groups in random order, several at a time, and takes a few rows of each in
    turn until a window is full. A table that fits into one window is read once, in its order. The
    learner has learned the target.
    """

    source: Source
    estimator: StreamedMLP
    encoder: TableEncoder
    target: Target
    learner: TargetLearner
    n_rows: int
    plan: MemoryPlan
    _places: list[Rows] = field(default_factory=list)
    _whole: Rows | None = None
    _windows: Generator[Rows] | None = None

    def windows(self, epoch: int) -> Iterator[Rows]:
        """Yield each training row once, in windows whose memory is reused.

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

    def _each_window(self, epoch: int) -> Generator[Rows]:
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

        def fill(stopped: Callable[[], bool]) -> Generator[tuple[Rows, int]]:
            parts = self._by_turns(epoch) if self.estimator.shuffle else self._in_order()
            return self._filled(itertools.takewhile(lambda _: not stopped(), parts), size, 2)

        with closing(prefetched(fill)) as filled:
            for rows, n in filled:
                self.source.table.release()
                yield self._to_device(rows, n)

    def _filled(
        self, parts: Iterator[Any], size: int, n_places: int
    ) -> Generator[tuple[Rows, int]]:
        """Encoded rows, size at a time and the rest: the place that they fill, and how many."""
        filled, turn = 0, 0
        for part in self._encoded(parts, validation=False):
            start = 0
            while start < len(part.dense):
                if len(self._places) <= turn:
                    self._places.append(_empty(part, size))
                n = min(len(part.dense) - start, size - filled)
                _copy(part, start, self._places[turn], filled, n)
                start, filled = start + n, filled + n
                if filled == size:
                    yield self._places[turn], size
                    filled, turn = 0, (turn + 1) % n_places
        if filled:
            yield self._places[turn], filled

    @property
    def row_bytes(self) -> int:
        """Bytes of an encoded row."""
        n_numbers = self.encoder.n_dense_ + len(self.source.targets) + 1
        itemsize = Precision(self.estimator.precision).dtype.itemsize
        return itemsize * n_numbers + 8 * len(self.encoder.cardinalities_)

    def first(self) -> Rows:
        """A few training rows, the table's first."""
        return next(self._encoded(self._in_order(), validation=False))

    def validation(self, n_rows: int) -> Rows:
        """The validation rows in the order of the table, which may be empty."""
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
        """Alternate between parts of several row groups, in random order of groups."""
        groups = self.source.table.groups
        key = fold_in(self.source.seed, Stream.ROW_GROUPS, epoch)
        order = random_permutations([key], [len(groups)])[0].tolist()
        n_shards = min(self.plan.shards, len(groups))
        shuffled = [groups[i] for i in order]
        shards = deque(
            self.source.parts(self.plan.read, shuffled[shard::n_shards])
            for shard in range(n_shards)
        )
        while shards:
            shard = shards.popleft()
            part = next(shard, None)
            if part is not None:
                yield part
                shards.append(shard)

    def _encoded(self, parts: Iterator[Any], *, validation: bool) -> Iterator[Rows]:
        source = self.source
        for frame, weight, trains in parts:
            mask = ~trains if validation else trains
            if not mask.all():
                if not mask.any():
                    continue
                frame, weight = frame[mask], None if weight is None else weight[mask]
            X = frame[source.features]
            with rows_of_table(None):
                table = self.encoder.encode(X, owner=self.estimator, fitted=True)
            y = self.target.encode_columns(frame[source.targets], self.estimator.precision)
            weight = self.learner.weigh(y, weight)
            if weight is not None:
                check_weights(weight, "class_weight times sample_weight")
            yield encoded_rows([table], y, weight, Precision(self.estimator.precision).dtype)

    def _to_device(self, rows: Rows, n: int) -> Rows:
        device = resolve_device(self.estimator.device)
        return rows.each(lambda tensor: tensor[:n].to(device))


def _empty(part: Rows, n_rows: int) -> Rows:
    """Allocate rows like those of a part."""
    return part.each(lambda tensor: tensor.new_empty(n_rows, *tensor.shape[1:]))


def _copy(part: Rows, start: int, rows: Rows, at: int, n: int) -> None:
    """Copy n rows of a part, from ``start`` on, to ``rows``, from ``at`` on."""
    for source, target in zip(part.tensors(), rows.tensors(), strict=True):
        if source is not None and target is not None:
            target[at : at + n] = source[start : start + n]


# ---- Predictions as the columns of a Parquet file ------------------------------------------------

PREDICT_ROWS = 1 << 16
_NAMES = {"predict": "prediction", "predict_proba": "probability"}


def write_predictions(
    estimator: Any,
    table: ParquetTable,
    features: list[str],
    method: str,
    out: str | os.PathLike[str],
    keep: str | Sequence[str],
) -> None:
    """Write the predictions of a method for each row, after the columns to keep."""
    names = _kept(table, keep)
    table.refuse_place(out)
    predict = getattr(estimator, method)
    extra = [name for name in names if name not in features]
    with parquet_parts(out) as parts:
        for first, part in table.arrow_batches([*features, *extra], PREDICT_ROWS):
            with rows_of_table(range(first, first + len(part))):
                predicted = predict(table.to_frame(part.select(features)))
            rows = part.select(names)
            for name, values in _prediction_columns(estimator, method, predicted).items():
                if name in names:
                    raise ValueError(
                        f"the table has a column {name!r}, as the predictions are to be called; "
                        "leave it out of keep"
                    )
                rows = rows.append_column(name, table.to_arrow(values))
            parts.write(rows)


def _kept(table: ParquetTable, keep: str | Sequence[str]) -> list[str]:
    if isinstance(keep, str) and keep != "all":
        raise ValueError(f"keep must be 'all' or a list of columns, such as [{keep!r}]")
    names = table.columns if isinstance(keep, str) else list(keep)
    if len(set(names)) < len(names):
        raise ValueError(f"columns are named more than once: keep={names}")
    table.check_names(names)
    return names


def _prediction_columns(
    estimator: Any, method: str, predicted: np.ndarray
) -> dict[str, np.ndarray]:
    """Name the columns of predictions, (n,) or (n, k)."""
    stem = _NAMES.get(method, method)
    if predicted.ndim == 1:
        return {stem: predicted}
    ends: list[Any] = list(range(predicted.shape[1]))
    classes = list(getattr(estimator, "classes_", ()))
    if method != "predict" and len(classes) == len(ends):
        ends = classes
    return {f"{stem}_{end}": predicted[:, j] for j, end in enumerate(ends)}


# ---- Fit to Parquet files that are larger than memory, and predict on them -----------------------

_SAMPLE_ROWS = 100_000  # for quantiles
_CATEGORY_BYTES = 500  # that a distinct category takes: counted, in the encoder, in an embedding


class StreamedMLP(BaseMLP):
    """``fit_parquet`` and ``predict_parquet`` of both estimators."""

    @abstractmethod
    def _target_learner(self) -> TargetLearner:
        """Build what learns a target that comes in parts."""

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_parquet(
        self,
        path: Paths,
        target: str | Sequence[str],
        *,
        columns: str | Sequence[str] | None = None,
        sample_weight: str | None = None,
        memory_limit: int | str = "1GB",
        filesystem: Any = None,
    ) -> Self:
        """Fit to Parquet files that may be larger than memory.

        The files are read once to learn the encoding and the target, once per epoch, and once for
        the validation rows. In an epoch, several row groups in random order are open at a time. A
        window in memory is filled with a few rows of each in turn, and its rows are trained on in
        random order. Rows are therefore shuffled within the window, and each row is used once per
        epoch. A thread fills the next window during the training. If the table fits in the window,
        it is read once and then trained on as in `fit`.

        The result is that of `fit`, with three differences. The quantiles of
        ``numeric_encoding="quantile"`` and ``"robust"`` and of bins are computed from a sample of
        100,000 rows (fewer with a small memory limit). The rows that are read first decide whether
        a column of text is read as dates, times, numbers, free text or categories. And
        ``early_stopping`` sets aside a random share of the rows that is not stratified, and not
        larger than a sixteenth of the memory limit.

        Parameters
        ----------
        path : path, or sequence of paths
            A Parquet file, a folder (all ``*.parquet`` files in it and its subfolders; subfolders
            named ``column=value`` add this column), a pattern (``"sales/2024-*.parquet"``), a URI
            (``"s3://bucket/folder"``), or several of these. All files have the same columns.
        target : str, or sequence of str
            Target column; for a regressor also several.
        columns : str or sequence of str, optional
            Feature columns. By default all columns except the target and the weights.
        sample_weight : str, optional
            Column of the weights of the rows. Rows of weight 0 are left out.
        memory_limit : int or str, default="1GB"
            Memory that the fit may use in addition to that of the process so far: bytes, or text
            such as ``"500MB"`` or ``"2GiB"``. It includes distinct categories and the network. It
            does not depend on the number of rows.
        filesystem : FileSystem of pyarrow or fsspec, optional
            File system of the paths, if it does not follow from a URI.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            If pyarrow is not installed (``pip install pyarrow``).
        FileNotFoundError
            If there is no such file, or no Parquet file in the folder or with the pattern.
        ValueError
            If a file cannot be read or has other columns than the first (the message names it), the
            columns cannot be used, the target has missing values or only one class, or the memory
            limit is too small (the message has the required memory).
        RuntimeError
            If several processes share the fit, and another one of them has ended.

        Notes
        -----
        In a process group of ``torch.distributed``, processes divide the members or rows between
        them as in ``fit``. Each process reads all files in its own memory, and trains on its part.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from combutab import MLPRegressor
        >>> from combutab.datasets import make_formula
        >>> X, y = make_formula("ar", n_samples=600, random_state=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "table.parquet"
        ...     X.assign(y=y).to_parquet(path, row_group_size=100)
        ...     reg = MLPRegressor(max_iter=3, n_iter_no_change=float("inf"), random_state=0)
        ...     reg = reg.fit_parquet(path, "y", memory_limit="100MB")
        >>> reg.predict(X).shape
        (600,)
        """
        guard_forks()
        limit = parse_bytes(memory_limit)
        self._check_parameters()
        if self.solver == "lbfgs":
            raise ValueError("solver='lbfgs' needs all rows at once; use 'adam', 'adamw' or 'sgd'")
        if self.warm_start:
            raise ValueError("fit_parquet starts anew: set warm_start=False")
        if self.validation_split is not None:
            raise ValueError(
                "fit_parquet sets a random share of the rows aside: set validation_split=None"
            )
        if self.bagging is not None:
            raise ValueError(
                f"bagging={self.bagging!r} needs each member to see rows of its own, and "
                "fit_parquet reads the rows once for all members; set bagging=None"
            )
        what = target, None if columns is None else as_names(columns), sample_weight, limit
        with sharing(partial(self._words, what)):
            return self._fit_files(ParquetTable(path, filesystem), *what)

    def _fit_files(
        self,
        table: ParquetTable,
        target: str | Sequence[str],
        columns: Sequence[str] | None,
        sample_weight: str | None,
        limit: int,
    ) -> Self:
        learner = self._target_learner()
        targets = [target] if isinstance(target, str) else list(target)
        features = _features(table, targets, sample_weight, columns)
        _check_targets(table, targets, learner, weighted=sample_weight is not None)
        used = [*features, *targets, *([] if sample_weight is None else [sample_weight])]
        costs = RowCosts(table.reader_bytes(used), table.row_bytes(used))
        n_read = rows_read(limit, costs)
        held_out = 0.0
        if self._stops_early(table.n_rows):
            max_val = limit // 16 // costs.read
            held_out = _held_out(self.validation_fraction, table.n_rows, max_val)
        seed = seed_from(self.random_state)
        source = Source(table, features, targets, sample_weight, seed, held_out)
        self.__dict__.pop("_states", None)  # a fit that fails leaves no fitted estimator
        encoder, n_train, n_val = self._learn(source, learner, limit, n_read)
        learned = encoder, learner.finish(targets)
        plan = MemoryPlan(n_read, 1, n_train)  # until the network is known
        stream = ParquetRows(source, self, *learned, learner, n_train, plan)
        val = torch.arange(n_val) if n_val else None
        job = self._make_job(
            Prepared(stream.validation(n_val), ((torch.arange(0), val),), *learned, stream)
        )
        costs = replace(costs, encoded=stream.row_bytes)
        stream.plan = plan_memory(limit, costs, job, n_train, n_val)

        def tables() -> list[torch.Tensor | None]:  # that tell ranks apart
            arrays, _ = self.encoder_.to_state()
            return [*stream.first().tensors(), *map(torch.from_numpy, arrays.values())]

        try:
            attributes = partial(self._fitted_attributes, job, is_new=True)
            with epoch_tasks(self, job, attributes, streamed=True) as tasks:
                callbacks = [*self._all_callbacks(), *tasks]
                results = train_shared(job, callbacks, stream=stream, tables=tables)
                return self._keep_results(job, results)
        finally:
            stream.close()

    def _learn(
        self, source: Source, learner: TargetLearner, limit: int, n_read: int
    ) -> tuple[TableEncoder, int, int]:
        """Learn encoding and target in one pass; how many rows train, and how many validate."""
        n_rows = np.zeros(2, dtype=np.int64)

        def batches() -> Iterator[tuple[pd.DataFrame, np.ndarray | None]]:
            for frame, weight, trains in source.parts(n_read):
                y = frame[source.targets]
                missing = y.isna().sum()
                if missing.any():
                    _refuse_missing(str(missing.idxmax()), int(missing.max()))
                learner.add(y, weight, trains)
                n_rows[:] += trains.sum(), (~trains).sum()
                X = frame[source.features]
                if not trains.all():
                    X, weight = X[trains], None if weight is None else weight[trains]
                if len(X):
                    yield X, weight
            if not n_rows[0]:
                raise ValueError(
                    f"the weights in column {source.weight!r} are zero for every row: nothing is "
                    "left to fit"
                )

        header = source.table.header(source.features)
        for name in source.features:  # text is categories to us, and may be free text
            if str(source.table.type_of(name)) in ("string", "large_string", "string_view"):
                header[name] = header[name].astype(object)
        encoder = self.make_encoder().fit_batches(
            batches(),
            header=header,
            # a 32nd of the limit; there are up to five copies of the sample
            n_sample=min(_SAMPLE_ROWS, max(1000, limit // 256 // len(header.columns))),
            max_distinct=limit // 4 // _CATEGORY_BYTES,
            seed=fold_in(source.seed, Stream.ENCODER_ROWS),
            owner=self,
        )
        return encoder, int(n_rows[0]), int(n_rows[1])

    def predict_parquet(
        self,
        path: Paths,
        method: str = "predict",
        *,
        out: str | os.PathLike[str] | None = None,
        keep: str | Sequence[str] = (),
        filesystem: Any = None,
    ) -> Any:
        """Predict the rows of Parquet files in parts.

        Parameters
        ----------
        path, filesystem
            As in `fit_parquet`. Only the feature columns are read.
        method : str, default="predict"
            Method for the predictions, such as ``"predict_proba"``.
        out : path, optional
            Parquet file for the predictions, or a URI (``"s3://bucket/predictions.parquet"``).
            Memory then holds one part at a time, and nothing is returned. The columns of the file
            are those of ``keep``, and ``prediction`` (``prediction_0``, ... for several targets),
            or ``probability_<class>`` for ``"predict_proba"``, and similar for other methods. The
            file appears when it is complete. After an error or Ctrl-C there is no new file, and an
            existing file is not changed.
        keep : sequence of str, or "all", default=()
            Columns of the table to write with the predictions.

        Returns
        -------
        ndarray of shape (n_samples, ...), or None
            Predictions in the order of the rows of the files; None with ``out``.

        Raises
        ------
        FileNotFoundError, ValueError
            As in `fit_parquet`; also if a column is missing, or ``out`` is one of the files of the
            table.
        OSError
            If ``out`` cannot be written, such as in a missing or read-only folder, or on a full
            disk.

        Examples
        --------
        >>> import tempfile
        >>> import pandas as pd
        >>> from combutab import MLPClassifier
        >>> X = pd.DataFrame({"x": np.arange(300.0)})
        >>> clf = MLPClassifier(max_iter=1, n_iter_no_change=float("inf"), random_state=0)
        >>> clf = clf.fit(X, np.where(X["x"] < 150, "low", "high"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     X.assign(id=range(300)).to_parquet(f"{folder}/table.parquet")
        ...     clf.predict_parquet(f"{folder}/table.parquet", "predict_proba",
        ...                         out=f"{folder}/out.parquet", keep=["id"])
        ...     list(pd.read_parquet(f"{folder}/out.parquet"))
        ['id', 'probability_high', 'probability_low']
        """
        check_is_fitted(self)
        features = getattr(self, "feature_names_in_", None)
        if features is None:
            raise ValueError(
                "predict_parquet goes by the columns' names, but the estimator was fitted on a "
                "table without names; fit it on a DataFrame or with fit_parquet"
            )
        if out is None and len(keep):
            raise ValueError(f"keep={keep!r} is of the file that is written; name it with out")
        table = ParquetTable(path, filesystem)
        table.check_columns(list(features))
        if out is not None:
            write_predictions(self, table, list(features), method, out, keep)
            return None
        predict, predictions = getattr(self, method), []
        for first, frame in table.batches(list(features), PREDICT_ROWS):
            with rows_of_table(range(first, first + len(frame))):
                predictions.append(predict(frame))
        return np.concatenate(predictions)


def _features(
    table: ParquetTable, targets: list[str], weight: str | None, columns: Sequence[str] | None
) -> list[str]:
    """The columns that the network sees, after checks of all names and types."""
    excluded = {*targets, weight}
    features = [c for c in table.columns if c not in excluded] if columns is None else list(columns)
    used = [*features, *targets, *([] if weight is None else [weight])]
    repeated = sorted({name for name in used if used.count(name) > 1})
    if repeated:
        raise ValueError(
            f"columns {repeated} are named more than once among columns={columns}, "
            f"target={targets} and sample_weight={weight!r}; give each one part to play"
        )
    table.check_columns(used)
    if not targets or not features:
        what = "target" if not targets else "column beside the target: nothing to learn from"
        raise ValueError(f"there is no {what}; the table's columns are {table.columns}")
    if weight is not None and table.kind(weight) not in (ColumnKind.BOOL, ColumnKind.NUMBER):
        raise ValueError(
            f"sample_weight={weight!r} is a column of type {table.type_of(weight)}, not of numbers"
        )
    return features


def _check_targets(
    table: ParquetTable, targets: list[str], learner: TargetLearner, *, weighted: bool
) -> None:
    """Check the target as far as possible without reading it."""
    if learner.single and len(targets) > 1:
        raise ValueError(f"a classifier learns one target column, got target={targets}")
    for name in targets:
        if not learner.single and table.kind(name) is ColumnKind.CATEGORY:  # text, among numbers?
            for first, part in table.batches([name], PREDICT_ROWS):
                with rows_of_table(range(first, first + len(part))):
                    refuse_text(part[name], f"the target {name!r}")
        if table.kind(name) not in learner.kinds:
            raise ValueError(
                f"the target {name!r} is of type {table.type_of(name)}, which this estimator "
                "cannot learn; MLPRegressor takes numbers, MLPClassifier labels"
            )
        missing = table.n_missing(name)
        if missing and not weighted:  # rows of weight 0 may lack it
            _refuse_missing(name, missing)


def _refuse_missing(name: str, count: int) -> None:
    raise ValueError(f"the target {name!r} has {count} missing value(s); drop those rows first")


def _held_out(fraction: float, n_rows: int, max_rows: int) -> float:
    """Share of rows that validate."""
    share = min(fraction, max_rows / n_rows)
    if share * n_rows < 2:
        raise ValueError(
            "The validation set is too small. Increase 'validation_fraction' or memory_limit: "
            f"validation_fraction={fraction} of {n_rows} rows, of which "
            f"memory_limit allows {max_rows}"
        )
    return share
