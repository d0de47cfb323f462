"""Fit to Parquet files that are larger than memory, and predict on them."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self, overload

import numpy as np
import pandas as pd
import torch
from sklearn.base import _fit_context
from sklearn.utils.validation import check_is_fitted

from combutab._bytes import parse_bytes
from combutab._device import mind_forks
from combutab._random import Purpose, derive
from combutab._random_state import seed_from
from combutab._ranks import sharing
from combutab.estimators._base import BaseMLP
from combutab.estimators.fitting import Prepared, epoch_tasks, train_shared_stream
from combutab.estimators.parquet._memory import RowCosts, plan_memory, rows_read
from combutab.estimators.parquet._predicting import PREDICT_ROWS, write_predictions
from combutab.estimators.parquet._rows import ParquetRows, Source
from combutab.estimators.parquet._targets import TargetLearner
from combutab.preprocessing import ColumnKind, ParquetTable, Paths
from combutab.training import Rows

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
        columns: Sequence[str] | None = None,
        sample_weight: str | None = None,
        memory_limit: int | str = "1GB",
        filesystem: Any = None,
    ) -> Self:
        """Fit to Parquet files that need not fit in memory.

        The files are read in record batches: once to learn the encoding and the target, then once
        an epoch (and once for the validation rows). An epoch opens row groups in a random order,
        several at a time, fills a window with a few rows of each by turns, and trains on the
        window's rows in random order, so that rows are shuffled as far as the window reaches;
        each is seen once an epoch. While it trains on a window, a thread fills the next. A table
        that fits in the window is read once and then trained on as `fit` does. What is learned is
        what `fit` learns, but that the quantiles of ``numeric_encoding="quantile"`` and
        ``"robust"`` and of bins are those of a sample of 100,000 rows (of fewer under a small
        limit), and that ``early_stopping`` holds out a random share of the rows that is not
        stratified, at most as many as a sixteenth of the limit holds.

        Parameters
        ----------
        path : path, or sequence of paths
            A Parquet file, a folder (all ``*.parquet`` in it and in its folders; those that are
            named ``column=value`` are columns too), a pattern (``"sales/2024-*.parquet"``), a URI
            (``"s3://bucket/folder"``), or several of these. All files have the same columns.
        target : str, or sequence of str
            The target's column; a regressor takes several.
        columns : sequence of str, optional
            The features; by default all columns but the target and the weights.
        sample_weight : str, optional
            The column of the rows' weights. Rows of weight 0 are left out.
        memory_limit : int or str, default="1GB"
            Memory that the fit may take beside what the process has already: bytes, or text such
            as ``"500MB"`` or ``"2GiB"``. Distinct categories and the network count, the input's
            size does not matter.
        filesystem : FileSystem of pyarrow or fsspec, optional
            What the paths are on, where a URI does not say it.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            Without pyarrow (``pip install 'combutab[parquet]'``).
        FileNotFoundError
            If there is no such file, or none in the folder or of the pattern.
        ValueError
            If a file cannot be read or has other columns than the first (it names the file), the
            columns cannot be used, the target has missing values or one class, or
            the limit is too small; it says how much is needed.
        RuntimeError
            If processes share the fit, and another of them has ended it.

        Notes
        -----
        In a process group of ``torch.distributed`` members or rows are shared out as by ``fit``:
        each process reads all files, in memory of its own, and trains on its share.

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
        mind_forks()
        limit = parse_bytes(memory_limit)
        self._check_parameters()
        if self.solver == "lbfgs":
            raise ValueError("solver='lbfgs' needs all rows at once; use 'adam', 'adamw' or 'sgd'")
        if self.warm_start:
            raise ValueError("fit_parquet starts anew: set warm_start=False")
        if self.bagging is not None:
            raise ValueError(
                f"bagging={self.bagging!r} needs each member to see rows of its own, and "
                "fit_parquet reads the rows once for all members; set bagging=None"
            )
        what = target, None if columns is None else list(columns), sample_weight, limit
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
            most = limit // 16 // costs.read
            held_out = _held_out(self.validation_fraction, table.n_rows, most)
        seed = seed_from(self.random_state)
        source = Source(table, features, targets, sample_weight, seed, held_out)
        self.__dict__.pop("_states", None)  # a fit that fails leaves no fitted estimator
        n_train, n_val = self._learn(source, learner, limit, n_read)
        stream = ParquetRows(source, self, learner, n_train, n_read)
        val = torch.arange(n_val) if n_val else None
        job = self._build(Prepared(stream.validation(n_val), torch.arange(0), val, stream))
        costs = replace(costs, encoded=stream.row_bytes)
        stream.plan = plan_memory(limit, costs, job, n_train, n_val)

        def some() -> tuple[Rows, list[torch.Tensor]]:
            arrays, _ = self.encoder_.to_state()
            return stream.first(), [torch.from_numpy(array) for array in arrays.values()]

        try:
            found = partial(self._learned, job, fresh=True)
            with epoch_tasks(self, job, found, streamed=True) as told:
                results = train_shared_stream(job, stream, [*self._all_callbacks(), *told], some)
                return self._keep(job, results)
        finally:
            stream.close()

    def _learn(
        self, source: Source, learner: TargetLearner, limit: int, n_read: int
    ) -> tuple[int, int]:
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
        self.encoder_ = self._new_encoder().fit_batches(
            batches(),
            header=header,
            # a 32nd of the limit, of which the sample holds up to five copies
            n_sample=min(_SAMPLE_ROWS, max(1000, limit // 256 // len(header.columns))),
            max_distinct=limit // 4 // _CATEGORY_BYTES,
            seed=derive(source.seed, Purpose.ENCODER_ROWS),
            owner=self,
        )
        learner.finish(source.targets)
        return int(n_rows[0]), int(n_rows[1])

    @overload
    def predict_parquet(
        self, path: Paths, method: str = ..., *, out: None = ..., filesystem: Any = ...
    ) -> np.ndarray: ...

    @overload
    def predict_parquet(
        self,
        path: Paths,
        method: str = ...,
        *,
        out: str | os.PathLike[str],
        keep: str | Sequence[str] = ...,
        filesystem: Any = ...,
    ) -> None: ...

    def predict_parquet(
        self,
        path: Paths,
        method: str = "predict",
        *,
        out: str | os.PathLike[str] | None = None,
        keep: str | Sequence[str] = (),
        filesystem: Any = None,
    ) -> np.ndarray | None:
        """Predict for the rows of Parquet files, a part at a time.

        Parameters
        ----------
        path, filesystem
            As in `fit_parquet`; columns beside the features are not read.
        method : str, default="predict"
            The method that predicts a part, ``"predict_proba"`` for example.
        out : path, optional
            A Parquet file for the predictions, or a URI (``"s3://bucket/predictions.parquet"``):
            then memory holds a part at a time, and nothing is returned. Its columns are those to
            keep, then ``prediction``, or ``prediction_0``, ... of several targets;
            ``probability_<class>`` of ``"predict_proba"``, and the like of another method. It is
            written beside its place and moved there when it is whole: after an error or Ctrl-C
            nothing is left, and a file that was there is as it was.
        keep : sequence of str, or "all", default=()
            Columns of the table that the file has as well, as they are.

        Returns
        -------
        ndarray of shape (n_samples, ...), or None
            What the method returns, in the order of the files' rows; None with ``out``.

        Raises
        ------
        FileNotFoundError, ValueError
            As `fit_parquet` does of the files; and if a column is not there, or ``out`` is one of
            the files that are read.
        OSError
            If ``out`` cannot be written: no such folder, a read-only one, a full disk.

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
        predict = getattr(self, method)
        parts = table.batches(list(features), PREDICT_ROWS)
        return np.concatenate([predict(frame) for _, frame in parts])


def _features(
    table: ParquetTable, targets: list[str], weight: str | None, columns: Sequence[str] | None
) -> list[str]:
    """The columns that the network sees, after checks of all names and types."""
    others = {*targets, weight}
    features = [c for c in table.columns if c not in others] if columns is None else list(columns)
    repeated = sorted({c for c in features if features.count(c) > 1})
    if repeated or len(set(targets)) < len(targets):
        raise ValueError(f"columns are named more than once: {repeated or targets}")
    both = [c for c in (*features, weight) if c in targets] + [c for c in features if c == weight]
    if both:
        raise ValueError(
            f"columns {both} have two parts to play among columns={columns}, target={targets} "
            f"and sample_weight={weight!r}; give them one"
        )
    table.check_columns([*targets, *([] if weight is None else [weight]), *features])
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
    """Check what is known of the target without reading it."""
    if learner.single and len(targets) > 1:
        raise ValueError(f"a classifier learns one target column, got target={targets}")
    for name in targets:
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


def _held_out(fraction: float, n_rows: int, most: int) -> float:
    """Share of rows that validate."""
    share = min(fraction, most / n_rows)
    if share * n_rows < 2:
        raise ValueError(
            "The validation set is too small. Increase 'validation_fraction' or memory_limit: "
            f"validation_fraction={fraction} of {n_rows} rows, of which "
            f"memory_limit allows {most}"
        )
    return share
