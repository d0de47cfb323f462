"""The base of MLPClassifier and MLPRegressor: the way of a table through ``fit``."""

from __future__ import annotations

import os
import sys
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from numbers import Integral
from operator import itemgetter
from typing import Any, Self

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from sklearn.base import BaseEstimator, _fit_context
from sklearn.model_selection import TimeSeriesSplit
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_consistent_length,
)
from torch import Tensor

from combutab._model_files import Checkpoint
from combutab.core.device import Precision, guard_forks, resolve_device
from combutab.core.metrics import plain_name
from combutab.core.rng import Stream, fold_in, holding, seed_from
from combutab.core.rows import rows_of_table
from combutab.core.splits import (
    RowOrder,
    Split,
    check_folds,
    count_repeated_rows,
    group_codes,
    random_hold_out,
    shuffled_folds,
    validation_parts,
    validation_splits,
)
from combutab.core.world import broadcast, plain_parameters, sharing
from combutab.estimators._fitted import (
    Fitted,
    Unfinished,
    build_network,
    held_out_answers,
    unfinished,
    validation_outputs,
)
from combutab.estimators._initial import initial_states
from combutab.estimators._jobs import (
    Job,
    OutOfFold,
    Scorer,
    check_architecture,
    epoch_tasks,
    output_scorer,
    train_job,
    train_shared,
)
from combutab.estimators._parameters import AUTO_ROWS, validate_parameters
from combutab.estimators._targets import Target, check_missing, check_weights, learn_scores
from combutab.nn import Member, MLPSpec, NetworkSpec
from combutab.preprocessing import (
    EncodedTable,
    TableEncoder,
    as_numpy,
    as_pandas,
    as_table,
    expecting_later_rows,
    refuse_cells,
)
from combutab.training import (
    PER_STEP,
    MaskedLoss,
    MemberPlan,
    MemberResult,
    Rows,
    RowStream,
    uninterrupted,
)

# ---- Folds of bagging="cv" and of packs ----------------------------------------------------------

_BAGGED = 5  # members of n_members="auto" with bagging="cv"
_AUTO_MEMBERS = (
    3  # of n_members="auto" without, where a fifth of the rows can be set aside for each
)


# ---- The data of a fit, from its arguments to encoded rows ---------------------------------------


@dataclass(frozen=True)
class FitMode:
    """How a fit begins: with new networks or fitted ones, for all epochs or for a single one."""

    is_new: bool = True
    partial: bool = False
    """Whether it is a call of ``partial_fit``."""
    classes: np.ndarray | None = None
    """All labels, if ``partial_fit`` was called with them."""


NEW_FIT = FitMode()


@dataclass(frozen=True)
class FitData:
    """Arguments of ``fit`` after all checks. Rows of weight 0 are not used."""

    X: Any
    y: Any
    weight: np.ndarray | None  # (n,) of all rows of X
    groups: np.ndarray | None  # (n,)
    rows: np.ndarray  # (n_used,) positions of rows with a positive weight
    targets: np.ndarray  # (n_used, ...)
    labels: np.ndarray | None  # (n_used,) classes that splits are stratified by
    owner: BaseEstimator  # estimator that error messages name
    X_val: Any = None
    targets_val: np.ndarray | None = None

    @property
    def used_groups(self) -> np.ndarray | None:
        """Groups of the used rows, (n_used,)."""
        return None if self.groups is None else self.groups[self.rows]


@dataclass(frozen=True)
class EncodedTarget:
    """The target of a fit, and its encoded values and weights in the order of the encoded rows."""

    target: Target
    y: np.ndarray
    weight: np.ndarray | None
    """Weights of rows times those of their classes, for training and for scores."""


@dataclass(frozen=True)
class Prepared:
    """Encoded data of one fit: all rows, the splits of these rows, the encoder and the target.

    There is one split for all members, or there are several, which members get in turn. With a
    stream, its rows are the training rows, and ``rows`` are the validation rows.
    """

    rows: Rows
    splits: Sequence[tuple[Tensor, Tensor | None]]  # positions of training and of validation rows
    encoder: TableEncoder
    target: Target
    stream: RowStream | None = None
    out_of_fold: OutOfFold | None = None  # set if validation rows are rows of X

    @property
    def n_train(self) -> int:
        """Smallest number of training rows of a member."""
        if self.stream is not None:
            return self.stream.n_rows
        return min(len(train) for train, _ in self.splits)

    def val_parts(self, train: Tensor, val: Tensor, n_parts: int) -> Tensor:
        """Divide the validation rows of a split into parts, (n_val,)."""
        if self.out_of_fold is not None:
            return self.out_of_fold.parts(self.rows.y, train, val, n_parts)
        return torch.from_numpy(validation_parts(self.rows.y[val].numpy(), n_parts))

    def count_repeated_rows(self, X: Any, y: Any) -> int:
        """Count the validation rows of the given table that are also training rows."""
        if self.out_of_fold is None:
            return 0
        rows = self.out_of_fold.rows
        splits = [(rows[train], rows[val]) for train, val in self.splits if val is not None]
        table, targets = (as_pandas(as_numpy(data)) for data in (X, y))
        return count_repeated_rows(table, targets, splits)[0]


def _checked_table(X: Any, y: Any, estimator: str) -> Any:
    """Return a table whose rows can be selected; ValueError if the table or y cannot be used."""
    if y is None:
        raise ValueError(
            f"This {estimator} estimator requires y to be passed, but the target y is None."
        )
    first = X[0] if isinstance(X, list | tuple) and X else X
    if isinstance(first, str | os.PathLike) and (first is X or str(first).endswith(".parquet")):
        raise ValueError(
            f"fit takes a table, got the path {str(first)!r}: read it first (pandas.read_parquet), "
            "or use fit_parquet of MLPClassifier or MLPRegressor, which reads it in parts"
        )
    X = as_table(X)
    if getattr(X, "ndim", 2) > 2:
        raise ValueError(f"Found array with dim {X.ndim}, while {estimator} needs rows and columns")
    refuse_cells(X)
    check_consistent_length(X, y)
    if not scipy.sparse.issparse(y):  # scikit-learn does not check text
        check_missing(np.asarray(y))
    return X


def _checked_weight(sample_weight: Any, n_rows: int) -> np.ndarray:
    """Weights as float64, (n_rows,); ValueError if one is not valid or all are 0."""
    weight: np.ndarray = _check_sample_weight(
        sample_weight, np.empty((n_rows, 1)), dtype=np.float64, ensure_non_negative=True
    )
    check_weights(weight, "sample_weight")
    if not weight.any():
        raise ValueError("sample_weight is zero for every row: nothing is left to fit")
    return weight


def _select_rows(table: Any, rows: np.ndarray) -> Any:
    """Select increasing positions of rows; without a copy if these are all rows."""
    return table if len(rows) == _num_samples(table) else _safe_indexing(table, rows)


def _check_total_weights(weight: np.ndarray, order: RowOrder) -> None:
    """Refuse weights that leave no training row, or no validation row of a split."""
    check_weights(weight, "class_weight times sample_weight")
    if not weight[: order.n_train].any():
        raise ValueError("class_weight leaves every row with weight 0: nothing is left to fit")
    if not all(weight[val].any() for _, val in order.splits):
        raise ValueError(
            "class_weight leaves every validation row with weight 0: no epoch can be scored. Give "
            "the classes of these rows a positive weight, or choose other validation rows"
        )


def encoded_rows(
    tables: Sequence[EncodedTable],
    target: np.ndarray,
    weight: np.ndarray | None,
    dtype: torch.dtype,
) -> Rows:
    """Join the rows of tables as the tensors that a network takes."""
    y = torch.from_numpy(np.ascontiguousarray(target))
    dense = [torch.from_numpy(table.dense).to(dtype) for table in tables]
    codes = [torch.from_numpy(table.codes) for table in tables if table.codes.shape[1]]
    return Rows(
        dense[0] if len(tables) == 1 else torch.cat(dense),
        y if y.dtype == torch.int64 else y.to(dtype),
        torch.cat(codes) if len(codes) > 1 else next(iter(codes), None),
        None if weight is None else torch.from_numpy(weight).to(dtype),
    )


# Parts of the validation rows. Each is predicted by the epoch that is best on the other parts. A
# scorer of scikit-learn is called for each part after every epoch, which takes long.
N_PARTS, N_PARTS_SCORER = 5, 2

# ---- The estimator -------------------------------------------------------------------------------


class BaseMLP(Fitted):
    """Base class of `MLPClassifier`, `MLPRegressor` and the TabM estimators.

    ``fit`` validates and encodes the data, builds the networks, trains them, and keeps the results.
    A subclass defines the target (``_learn_target``), the loss (``_loss``), and the network if it
    is not a multilayer perceptron (``_make_spec``).
    """

    # ---- hooks -----------------------------------------------------------------------------

    @abstractmethod
    def _checked_target(self, y: Any, name: str, owner: BaseEstimator) -> np.ndarray:
        """Targets as an array, which errors call ``name``."""

    @abstractmethod
    def _learn_target(
        self,
        y: np.ndarray,
        weight: np.ndarray | None,
        train_rows: np.ndarray,
        classes: np.ndarray | None,
    ) -> Target:
        """The target of checked y; ``classes`` are all labels there are, where that is known.

        All labels of y are classes. Everything else is learned from the training rows.
        """

    def _labels(self, y: np.ndarray) -> np.ndarray | None:
        """Labels by which splits are stratified, if any."""
        return None

    def _weigh(
        self, target: Target, encoded: np.ndarray, weight: np.ndarray | None, n_train: int
    ) -> np.ndarray | None:
        """Weights of rows with these encoded targets. The first ``n_train`` are training rows."""
        return weight

    def _make_spec(self, n_rows: int) -> NetworkSpec:
        """Describe the network for the fitted encoder and target."""
        embedding: dict[str, Any] = {}
        if self.numeric_embedding != "none":
            embedding = {
                "n_numeric": self.encoder_.numeric_scaler_.n_columns,
                "numeric_embedding": self.numeric_embedding,
                "numeric_embedding_dim": int(self.numeric_embedding_dim),
                "n_bins": int(self.n_bins),
                "n_frequencies": int(self.n_frequencies),
                "frequency_scale": float(self.frequency_scale),
            }
        return MLPSpec(
            n_dense=self.encoder_.n_dense_,
            hidden=self._hidden_layer_sizes(n_rows),
            n_outputs=self.target_.n_raw_outputs,
            cardinalities=self.encoder_.cardinalities_,
            ordered=self.encoder_.ordered_,
            embedding_dim=self.embedding_dim,
            normalization=self.normalization,
            proxy_norm=self.proxy_norm,
            init=self.init if isinstance(self.init, str) else "torch",
            scale_inputs=self.scale_inputs,
            **embedding,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.bagging is None:
            return
        n_members = self.n_members
        if not isinstance(n_members, str) and n_members < 2:
            raise ValueError(
                f"bagging='cv' gives each member a fold of its own: it needs n_members of at least "
                f"2 (5, say), got {n_members=}"
            )
        if self.solver == "lbfgs":
            raise ValueError(
                "bagging='cv' has each member keep its best epoch on its fold, and solver='lbfgs' "
                "has no epochs; use 'adam', 'adamw' or 'sgd', or bagging=None"
            )
        if self.warm_start:
            raise ValueError(
                "bagging='cv' with warm_start=True might validate members on rows that they have "
                "trained on; set warm_start=False, or bagging=None to go on from the fitted members"
            )

    # ---- fit ---------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        *,
        groups: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Fit to a table.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_samples, n_features)
            Columns may be numeric, boolean, categorical, text or dates, with missing values.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets. Missing cells of several targets (NaN) have no part in the loss and the scores.
        sample_weight : array-like of shape (n_samples,), optional
            Rows of weight 0 are left out.
        X_val, y_val : as X and y, optional
            Validation rows. Training stops early on them and keeps the weights of the best epoch,
            for any value of ``early_stopping``.
        groups : array-like of shape (n_samples,), optional
            Group of each row, such as a customer or a patient. Whole groups are set aside for
            validation, so that the validation score is that of new groups. If ``validation_split``
            is a splitter, the groups are passed to it.
        checkpoint : path, optional
            File to which the state of the training is written every half minute and at its end. If
            the file exists, the training continues from it, with the same result as without an
            interruption. It contains the parameters, the weights and edges of bins with the
            optimiser's moments, the learning curves, the outputs for validation rows, and a SHA-256
            of the encoded table, but no rows.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the data cannot be used, the training diverged to weights that are not finite, or
            the checkpoint belongs to another fit.
        RuntimeError
            If several processes share the fit, and another one of them has ended.

        Notes
        -----
        In a process group of ``torch.distributed``, such as that of ``torchrun``, all processes
        must call ``fit`` with the whole table. They divide the members between them, or the rows of
        each batch, and all end with the same model, bit for bit. The order of sums differs from
        that in one process, so the model differs from that of one process by rounding errors, which
        training amplifies. Callbacks, warnings and the checkpoint are those of rank 0. After Ctrl-C
        there is no model. Within ``combutab.training.unshared()`` each process fits separately.
        """
        mode = FitMode(is_new=not (self.warm_start and self.__sklearn_is_fitted__()))
        self._validate(mode)
        optional = sample_weight is None, X_val is None, mode.is_new
        with sharing(partial(self._words, optional)), self._file(broadcast(checkpoint)) as file:
            data = check_data(self, X, y, sample_weight, groups)
            data = add_validation(self, data, X_val, y_val)
            prepared = encode_data(self, data, self._split_rows(data, mode), mode)
            job = self._make_job(prepared, mode)
            attributes = partial(self._fitted_attributes, job, is_new=mode.is_new)
            with epoch_tasks(self, job, attributes, X, y, sample_weight) as tasks:
                results = train_shared(job, [*self._all_callbacks(), *tasks], file=file)
                self._keep_results(job, results, mode)
            if hasattr(self, "oof_folds_"):
                self.oof_n_repeated_ = prepared.count_repeated_rows(X, y)
        self.network()  # the first prediction does not build it
        return self

    def _words(self, call: tuple[Any, ...]) -> str:
        """Describe the fit in words that are the same in all processes."""
        return f"{type(self).__name__} {plain_parameters(self)} {call}"

    @contextmanager
    def _file(self, path: str | os.PathLike[str] | None) -> Iterator[Checkpoint | None]:
        """Open the checkpoint of a fit, and use its seed for all random numbers of the fit."""
        if path is None:
            yield None
            return
        if self.solver == "lbfgs" or self.warm_start:
            which = "warm_start=True" if self.warm_start else "solver='lbfgs'"
            raise ValueError(
                f"{which} takes no checkpoint: a file is of one training from its beginning, by "
                "'adam', 'adamw' or 'sgd'"
            )
        file = Checkpoint(path, self, free=("verbose", "max_time"))
        with holding(file.seed):
            yield file

    def _validate(self, mode: FitMode = NEW_FIT) -> None:
        """Check the parameters; a fit that fails later leaves no fitted estimator."""
        self._check_parameters()
        if mode.is_new:
            self.__dict__.pop("_states", None)
        else:
            check_architecture(
                self._architecture_parameters(), self._architecture, len(self._states)
            )

    # ---- the steps of fit: check, split, encode ----------------------------------------------

    def _split_rows(
        self, data: FitData, mode: FitMode = NEW_FIT, min_rows: int = AUTO_ROWS
    ) -> Sequence[Split]:
        """Split the used rows as the parameters say; no split if all rows train.

        ``early_stopping="auto"`` sets rows aside if there are at least ``min_rows``.

        With ``n_members="auto"`` there are three splits with different validation rows, or
        fewer if there are not enough rows, or an earlier fit has fewer networks.
        """
        if data.X_val is not None:
            return []
        n_rows, labels, groups = len(data.rows), data.labels, data.used_groups
        user_splits = None
        if self.validation_split is not None:
            user_splits = validation_splits(
                self.validation_split, "validation_split", data.X, data.y, data.groups, data.weight
            )
        if self.bagging is not None:
            return self._bagging_splits(n_rows, labels, groups, user_splits)
        if user_splits is None and not self._stops_early(n_rows, min_rows):
            return []
        n_splits = 1
        if self.n_members == "auto":
            n_splits = _AUTO_MEMBERS if mode.is_new else len(self._states)
        if user_splits is not None:
            latest = isinstance(self.validation_split, TimeSeriesSplit)
            return user_splits[-1:] if latest else user_splits[:n_splits]
        n_val = int(np.ceil(self.validation_fraction * n_rows))
        if n_val < 2:
            raise ValueError(
                "The validation set is too small. Increase 'validation_fraction' or the size of "
                f"your dataset: validation_fraction={self.validation_fraction} of {n_rows} rows."
            )
        seed = fold_in(seed_from(self.random_state), Stream.SPLIT)
        if groups is not None:
            n_folds = max(2, min(round(1 / self.validation_fraction), len(pd.unique(groups))))
            check_folds("early stopping", n_folds, labels, groups)
            return shuffled_folds(n_folds, n_rows, labels, groups, seed % (1 << 32))[:n_splits]
        splits, rows = list[Split](), np.arange(n_rows)
        training_rows = rows  # of all splits
        while len(splits) < n_splits and (not splits or len(training_rows) >= n_val + 2):
            strata = None if labels is None else labels[training_rows]
            training_rows, val = random_hold_out(training_rows, strata, n_val, seed % (1 << 32))
            splits.append((np.setdiff1d(rows, val), val))
            seed = fold_in(seed, Stream.SPLIT)
        return splits

    def _bagging_splits(
        self,
        n_rows: int,
        labels: np.ndarray | None,
        groups: np.ndarray | None,
        user_splits: list[Split] | None,
    ) -> Sequence[Split]:
        """Make the splits of ``bagging="cv"``."""
        n_members = _BAGGED if self.n_members == "auto" else int(self.n_members)
        if user_splits is not None:
            n_members = len(user_splits) if self.n_members == "auto" else n_members
            if not 2 <= len(user_splits) <= n_members:
                raise ValueError(
                    "bagging='cv' needs at least two splits, and a member for each: "
                    f"validation_split has {len(user_splits)}, n_members={self.n_members!r}"
                )
            return user_splits
        seed = fold_in(seed_from(self.random_state), Stream.SPLIT)
        if n_rows < 2 * n_members:
            raise ValueError(
                f"bagging='cv' needs at least two rows per member: {n_members=} is too many for "
                f"n_samples={n_rows}"
            )
        check_folds(f"bagging='cv', {n_members=}", n_members, labels, groups)
        return shuffled_folds(n_members, n_rows, labels, groups, seed % (1 << 32))

    def _prepare(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Prepared:
        """Check, split and encode the data of a new fit without ``X_val``."""
        data = check_data(self, X, y, sample_weight, groups)
        return encode_data(self, data, self._split_rows(data))

    def _encode_target(self, data: FitData, order: RowOrder, mode: FitMode) -> EncodedTarget:
        """Learn and encode the target, and compute the weights of the rows."""
        weight = None if data.weight is None else data.weight[data.rows]
        train_rows = order.order[: order.n_train]
        if mode.is_new:
            target = self._learn_target(data.targets, weight, train_rows, mode.classes)
        else:
            target = self.target_.widened(data.targets[train_rows])
        complete = not (mode.is_new or mode.partial)
        y = target.encode(data.targets, self.precision, complete=complete)[order.order]
        weight = None if weight is None else weight[order.order]
        if data.targets_val is not None:
            y = np.concatenate([y, target.encode(data.targets_val, self.precision)])
            if weight is not None:
                weight = np.concatenate([weight, np.ones(len(data.targets_val))])
        weight = self._weigh(target, y, weight, order.n_train)
        if weight is not None:
            _check_total_weights(weight, order)
        return EncodedTarget(target, y, weight)

    def _encode_tables(
        self, data: FitData, order: RowOrder, mode: FitMode
    ) -> tuple[TableEncoder, list[EncodedTable]]:
        """Encode the rows that train, and the validation rows that do not."""
        rows, owner = data.rows[order.order], data.owner
        train_rows, other_rows = rows[: order.n_train], rows[order.n_train :]
        X, X_val = _select_rows(data.X, train_rows), data.X_val
        if len(other_rows):
            X_val = _select_rows(data.X, other_rows)
        if mode.is_new:
            encoder = self.make_encoder()
            weight = None if data.weight is None else data.weight[train_rows]
            with rows_of_table(train_rows):
                tables = [encoder.fit_encode(X, weight, owner=owner)]
        else:
            encoder = self.encoder_
            with rows_of_table(train_rows):
                tables = [encoder.encode(X, owner=owner)]
        if X_val is not None:
            val_rows = other_rows if len(other_rows) else range(_num_samples(X_val))
            with expecting_later_rows(), rows_of_table(val_rows):
                tables.append(encoder.encode(X_val, owner=owner, fitted=data.X_val is None))
        return encoder, tables

    def _encoding_key(self) -> str:
        """Return a key that is equal for estimators that encode data in the same way."""
        values = self.make_encoder().get_params(deep=False)
        names = (*self._parameters_of("data"), *self._parameters_of("target"))
        values |= {name: getattr(self, name) for name in names}
        if self.bagging is not None or self.n_members == "auto":
            values["n_members"] = self.n_members
        if self.early_stopping is not False or self.bagging is not None:
            seeded = isinstance(self.random_state, Integral)
            values["random_state"] = self.random_state if seeded else f"of {id(self)}"
        with np.printoptions(threshold=sys.maxsize):  # all of a long mask
            return repr(values)

    # ---- the steps of fit: networks, training, results ---------------------------------------

    def _make_job(self, prepared: Prepared, mode: FitMode = NEW_FIT) -> Job:
        """Build the training job: the stack of networks, the encoded data, and the settings."""
        self._adopt(prepared.encoder, prepared.target)
        if mode.is_new:
            self._spec = self._make_spec(prepared.n_train)
            self._architecture = self._architecture_parameters()
        seeded = int(self.random_state) if isinstance(self.random_state, Integral) else None
        if mode.is_new or seeded not in (None, self._seeded):
            self._seed, self._seeded = seed_from(self.random_state), seeded
        n_members = self.n_members
        if n_members == "auto":
            n_members = len(prepared.splits) if mode.is_new else len(self._states)
        seeds = [fold_in(self._seed, Stream.MEMBER, i) for i in range(int(n_members))]
        edges = self.encoder_.numeric_scaler_.edges
        bins = torch.from_numpy(edges.T.copy()) if len(edges) else None
        members = tuple(Member(seed, self.activation, self.dropout, bins) for seed in seeds)
        score, scorer = self._validation_score(prepared)
        config = self._train_config(prepared.n_train, score, partial=mode.partial)
        if prepared.rows.y.isnan().any():
            if scorer is not None:
                raise ValueError(
                    f"early_stopping_scoring={self.early_stopping_scoring!r} cannot score "
                    "missing targets; use None or 'loss'"
                )
            config = replace(config, loss=MaskedLoss.of(config.loss))
        return Job(
            self._spec,
            config,
            members,
            self._member_plans(prepared, seeds, scorer, mode),
            prepared.rows,
            resolve_device(self.device),
            self.max_fun,
            self._start_states(members, mode),
            prepared.out_of_fold,
        )

    def _validation_score(self, prepared: Prepared) -> tuple[str | None, Scorer | None]:
        """Name the score of validation rows for the training, and make its scorer if it is one."""
        if prepared.splits[0][1] is None:
            return None, None
        target, scoring = prepared.target, self.early_stopping_scoring
        if scoring is None or (
            isinstance(scoring, str) and plain_name(scoring) == target.score_name
        ):
            return target.score_name, None
        if isinstance(scoring, str) and plain_name(scoring) in ("loss", "log_loss"):
            return "loss", None
        scorers = [
            output_scorer(
                self, scoring, target, prepared.rows.each(itemgetter(val)), prepared.rows.y
            )
            for _, val in prepared.splits
        ]
        return "scorer", scorers[-1]

    def _member_plans(
        self, prepared: Prepared, seeds: Sequence[int], scorer: Scorer | None, mode: FitMode
    ) -> tuple[MemberPlan, ...]:
        """Make the plan of each member; members have the splits in turn."""
        starts = [None] * len(seeds) if mode.is_new else self._starts(mode)
        plans = []
        for seed, start, (train, val) in zip(seeds, starts, cycle(prepared.splits)):
            parts = None
            # An earlier fit has chosen the first weights of a warm start by all validation rows.
            if mode.is_new and val is not None:
                n_parts = N_PARTS if scorer is None else N_PARTS_SCORER
                parts = prepared.val_parts(train, val, n_parts)
            plans.append(
                MemberPlan(
                    seed=seed,
                    rows=train,
                    learning_rate=self.learning_rate_init,
                    alpha=self.alpha,
                    weight_decay=self.weight_decay if self.solver == "adamw" else 0.0,
                    val_rows=val,
                    val_parts=parts,
                    start=start,
                    scorer=scorer,
                )
            )
        return tuple(plans)

    def _start_states(
        self, members: Sequence[Member], mode: FitMode
    ) -> tuple[dict[str, torch.Tensor], ...] | None:
        """The weights that the members begin with; None if these are drawn."""
        if not mode.is_new:
            states = self._states
            return tuple({n: torch.from_numpy(v) for n, v in state.items()} for state in states)
        if isinstance(self.init, str):
            return None
        units = self.target_.units()
        return initial_states(self.init, self._spec, members, self.encoder_, units)

    def _starts(self, mode: FitMode) -> list[MemberResult | None]:
        """The progress of the fitted members that training continues from."""
        return [
            MemberResult(
                epochs=progress["epochs"],
                t=progress["t"],
                optimizer={n: torch.from_numpy(v) for n, v in progress["optimizer"].items()}
                if mode.partial and progress["optimizer"]
                else {},
                best_loss=progress["best_loss"],
                n_iter_no_improvement=progress["n_idle"] if mode.partial else 0,
                next_learning_rate=progress["learning_rate"]
                if mode.partial and self.learning_rate not in ("constant", *PER_STEP)
                else None,
            )
            for progress in self._progress
        ]

    def _keep_results(
        self,
        job: Job,
        results: Sequence[MemberResult],
        mode: FitMode = NEW_FIT,
        collected: list[Unfinished] | None = None,
    ) -> Self:
        """Store the results of the training, with a warning or an error if it failed.

        Warnings about the training are appended to ``collected`` if it is given.
        """
        held_out = self.target_.held_out_name
        optional = {"loss_curve_", held_out, "oof_folds_", "oof_groups_", "oof_n_repeated_"}
        with uninterrupted():
            attributes = self._fitted_attributes(job, results, is_new=mode.is_new)
            outputs = validation_outputs(job, results)
            attributes["_conformal"] = (
                learn_scores(self.target_, outputs, job.rows) if outputs else []
            )
            if outputs and job.out_of_fold is not None:
                attributes[held_out] = held_out_answers(job.out_of_fold, outputs, self.target_)
                n_folds = 1 if job.out_of_fold.same_rows else len(results)
                attributes |= job.out_of_fold.attributes(job.plans[:n_folds])
            for name in optional & vars(self).keys():
                delattr(self, name)  # the new fit may not set it
            self.__dict__.update(attributes)
            notes = unfinished(
                job,
                results,
                converges=not mode.partial,
                in_parts=not mode.partial and self.warm_start,
            )
            for note in notes if collected is None else ():
                warnings.warn(note.words, note.category, stacklevel=4)
            if collected is not None:
                collected.extend(notes)
            if not mode.partial:
                self._check_answers(job, results)
        return self

    def _set_networks(self, job: Job, results: Sequence[MemberResult], factor: float) -> None:
        self.n_members = len(job.members)
        self._spec, self._architecture = job.spec, self._architecture_parameters()
        self.__dict__.update(self._fitted_attributes(job, results, is_new=True))
        if factor != 1:
            net = build_network(self)
            for i in range(self.n_members):
                net.scale_outputs(i, factor)
                self._states[i] = {n: v.cpu().numpy() for n, v in net.member_state(i).items()}

    def _check_answers(self, job: Job, results: Sequence[MemberResult]) -> None:
        """Warn of a network that has learned nothing, for targets where this can be detected."""

    @available_if(lambda self: self._supports_partial_fit())
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train one epoch on the given rows.

        The first call learns the encoding and builds the network. Parameters that shape the network
        cannot be changed afterwards. Parameters of the training can; another solver starts without
        momentum. ``max_iter``, ``max_time``, ``max_fun``, ``warm_start``, ``validation_fraction``,
        ``validation_split`` and ``early_stopping_scoring`` have no effect. ``tol`` and
        ``n_iter_no_change`` only have one with ``learning_rate="adaptive"``. Schedules of
        ``learning_rate`` over ``max_iter`` epochs and ``regularization_schedule`` have no effect
        either: learning rate, dropout and weight decay are constant, because the number of epochs
        is not known. ``early_stopping="auto"`` sets no rows aside; True raises an error.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.

        Returns
        -------
        self

        Notes
        -----
        It is not available with ``solver="lbfgs"`` or ``bagging="cv"``.
        """
        return self._partial_fit(X, y, sample_weight)

    def _partial_fit(
        self, X: Any, y: Any, sample_weight: Any, classes: np.ndarray | None = None
    ) -> Self:
        """One epoch over the given rows; the first call learns the encoding."""
        if self.early_stopping is True:
            raise ValueError("partial_fit does not support early_stopping=True")
        mode = FitMode(not self.__sklearn_is_fitted__(), partial=True, classes=classes)
        self._validate(mode)
        prepared = encode_data(self, check_data(self, X, y, sample_weight), mode=mode)
        job = self._make_job(prepared, mode)
        results = train_job(job, self._all_callbacks())
        n_iter = 0 if mode.is_new else int(getattr(self, "n_iter_", 0))
        self._keep_results(job, results, mode)
        self.n_iter_ = n_iter + 1
        return self

    def _supports_partial_fit(self) -> bool:
        if self.solver == "lbfgs":
            raise AttributeError(
                "partial_fit is only available for stochastic optimizers. lbfgs is not stochastic."
            )
        if self.bagging == "cv":
            raise AttributeError(
                "partial_fit is only available with bagging=None: the folds of bagging='cv' are of "
                "all rows."
            )
        return True


# ---- Steps of a fit that packs and `fit_stacked` share ------------------------------------------


def check_data(
    estimator: BaseMLP,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    groups: Any = None,
    owner: BaseEstimator | None = None,
) -> FitData:
    """Check the table, the targets, the weights and the groups.

    ``owner`` is the estimator that error messages name, by default ``estimator``.
    """
    guard_forks()
    owner = estimator if owner is None else owner
    y = as_numpy(y, "y")
    X = _checked_table(as_numpy(X), y, type(owner).__name__)
    n_rows = _num_samples(X)
    codes = group_codes(as_numpy(groups, "groups"), n_rows)
    weight, rows = None, np.arange(n_rows)
    if sample_weight is not None:
        weight = _checked_weight(as_numpy(sample_weight, "sample_weight"), n_rows)
        rows = np.flatnonzero(weight)
    with rows_of_table(rows):
        targets = estimator._checked_target(_select_rows(y, rows), "y", owner)
    return FitData(X, y, weight, codes, rows, targets, estimator._labels(targets), owner)


def add_validation(estimator: BaseMLP, data: FitData, X_val: Any, y_val: Any) -> FitData:
    """Check ``X_val`` and ``y_val``, if there are any, and add them to the data."""
    if X_val is None and y_val is None:
        return data
    if X_val is None or y_val is None:
        raise ValueError(
            f"X_val and y_val go together, got only {'y_val' if X_val is None else 'X_val'}"
        )
    if estimator.solver == "lbfgs":
        raise ValueError("solver='lbfgs' takes no X_val and y_val: it does not stop early")
    if estimator.bagging is not None:
        raise ValueError(
            f"bagging={estimator.bagging!r} takes no X_val and y_val: each member validates on a "
            "fold of its own; set bagging=None"
        )
    if estimator.validation_split is not None:
        raise ValueError("X_val and validation_split do not go together; set validation_split=None")
    y_val = as_numpy(y_val, "y_val")
    X_val = _checked_table(as_numpy(X_val), y_val, type(data.owner).__name__)
    targets = estimator._checked_target(y_val, "y_val", data.owner)
    return replace(data, X_val=X_val, targets_val=targets)


def encode_data(
    estimator: BaseMLP, data: FitData, splits: Sequence[Split] = (), mode: FitMode = NEW_FIT
) -> Prepared:
    """Encode the table and the targets, with the training rows of any split first.

    A new encoding, the scale of the target and balanced class weights are learned from these
    rows.
    """
    order = RowOrder.of_splits(splits, len(data.rows))
    if data.targets_val is not None:  # rows of X_val come last
        val = np.arange(order.n_train, order.n_train + len(data.targets_val))
        order = replace(order, splits=[(order.order, val)])
    encoded = estimator._encode_target(data, order, mode)
    encoder, tables = estimator._encode_tables(data, order, mode)
    dtype = Precision(estimator.precision).dtype
    rows = encoded_rows(tables, encoded.y, encoded.weight, dtype)
    out_of_fold = None
    # an earlier fit may have trained on the validation rows of a single split
    if splits and (mode.is_new or len(splits) > 1):
        rows_given = data.rows[order.order]
        groups = None if data.groups is None else data.groups[rows_given]
        out_of_fold = OutOfFold(rows_given, _num_samples(data.X), len(splits) == 1, groups)
    positions: Sequence[tuple[Tensor, Tensor | None]] = [
        (torch.from_numpy(train), torch.from_numpy(val)) for train, val in order.splits
    ] or [(torch.arange(order.n_train), None)]
    return Prepared(rows, positions, encoder, encoded.target, None, out_of_fold)


@dataclass(frozen=True)
class FitTask:
    """One fit for `fit_stacked`: an unfitted estimator, which is fitted in place, and its data.

    ``data_key`` is equal for tasks with the same rows, such as the number of the fold. Their table
    is then encoded once for all estimators with the same encoding parameters.
    """

    estimator: BaseMLP
    X: Any
    y: Any
    data_key: object
    sample_weight: Any = None
    groups: Any = None


def prepare_job(task: FitTask, encoded: dict[object, Prepared]) -> Job:
    """Make the training job of a task; ``encoded`` caches encoded tables for other tasks."""
    estimator = validate_parameters(task.estimator)
    key = (task.data_key, type(estimator), estimator._encoding_key())
    if key not in encoded:
        encoded[key] = estimator._prepare(task.X, task.y, task.sample_weight, task.groups)
    return estimator._make_job(encoded[key])


def keep_results(
    estimator: BaseMLP, job: Job, results: Sequence[MemberResult], notes: list[Unfinished]
) -> None:
    """Store the results of a training in an estimator, and append its warnings to ``notes``."""
    estimator._keep_results(job, results, collected=notes)


def set_networks(
    estimator: BaseMLP, job: Job, results: Sequence[MemberResult], factor: float
) -> None:
    """Store trained networks in an estimator, with their raw outputs multiplied by ``factor``."""
    estimator._set_networks(job, results, factor)


def fold_job(estimator: BaseMLP, prepared: Prepared, fold: int) -> Job:
    """Make the training job of an estimator on one fold."""
    prepared = replace(prepared, splits=(prepared.splits[fold],), out_of_fold=None)
    with warnings.catch_warnings():  # a batch can have fewer rows in a small fold
        warnings.filterwarnings("ignore", "Got `batch_size`")
        return estimator._make_job(prepared)
