"""The base of MLPClassifier and MLPRegressor: the way of a table through ``fit``."""

from __future__ import annotations

import os
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from numbers import Integral
from operator import itemgetter
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from sklearn.base import BaseEstimator, _fit_context
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
    train_test_split,
)
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
from combutab.core.repeated import count_repeated_rows
from combutab.core.rng import Stream, fold_in, holding, seed_from
from combutab.core.world import broadcast, plain_parameters, sharing
from combutab.estimators._fitted import (
    Fitted,
    Unfinished,
    held_out_answers,
    unfinished,
)
from combutab.estimators._initial import initial_states
from combutab.estimators._jobs import (
    Job,
    OutOfFold,
    check_architecture,
    epoch_tasks,
    output_scorer,
    train_job,
    train_shared,
)
from combutab.estimators._parameters import AUTO_ROWS
from combutab.estimators._targets import Target, check_weights
from combutab.nn import Member, MLPSpec, NetworkSpec
from combutab.preprocessing import (
    EncodedTable,
    TableEncoder,
    as_numpy,
    as_pandas,
    expecting_later_rows,
    is_polars,
    refuse_cells,
)
from combutab.training import (
    PER_STEP,
    MemberPlan,
    MemberResult,
    Rows,
    RowStream,
    uninterrupted,
)

Split = tuple[np.ndarray, np.ndarray]
"""Positions of training and of validation rows."""
Splitter = Callable[[int, np.ndarray | None, np.ndarray | None], Sequence[Split]]
"""The number of rows, their labels and their groups -> splits; none if no rows are set aside."""

# ---- Folds of bagging="cv" and of packs ----------------------------------------------------------

_BAGGED = 5  # members of n_members="auto" with bagging="cv"


def check_bagging(parameters: Mapping[str, Any]) -> None:
    """Refuse what does not go with a fold a member, before the data are seen."""
    if parameters["bagging"] is None:
        return
    n_members = parameters["n_members"]
    if n_members != "auto" and n_members < 2:
        raise ValueError(
            f"bagging='cv' gives each member a fold of its own: it needs n_members of at least 2 "
            f"(5, say), got {n_members=}"
        )
    if parameters["solver"] == "lbfgs":
        raise ValueError(
            "bagging='cv' has each member keep its best epoch on its fold, and solver='lbfgs' has "
            "no epochs; use 'adam', 'adamw' or 'sgd', or bagging=None"
        )
    if parameters["warm_start"]:
        raise ValueError(
            "bagging='cv' with warm_start=True might validate members on rows that they have "
            "trained on; set warm_start=False, or bagging=None to go on from the fitted members"
        )


def shuffled_folds(
    asked: str,
    n_folds: int,
    n_rows: int,
    seed: int,
    labels: np.ndarray | None,
    groups: np.ndarray | None = None,
) -> Sequence[Split]:
    """Training and validation rows of each fold, with equal shares of each of the labels.

    Rows of one of the ``groups`` are in one fold; shares are then as equal as groups allow.

    Raises ValueError, beginning with what was ``asked``, if a label has too few rows, or there are
    too few groups.
    """
    state = fold_in(seed, Stream.SPLIT) % (1 << 32)
    if groups is not None:
        return _group_folds(asked, n_folds, groups, labels, state)
    folds = KFold(n_folds, shuffle=True, random_state=state)
    if labels is not None:
        names, counts = np.unique(labels, return_counts=True)
        if counts.min() < n_folds:
            rarest = names[counts.argmin()]
            raise ValueError(
                f"{asked} needs a row of each class in every fold, and class {rarest} has "
                f"{counts.min()} row(s); use fewer folds, or leave that class out"
            )
        folds = StratifiedKFold(n_folds, shuffle=True, random_state=state)
    return list(folds.split(np.empty(n_rows), labels))


def _group_folds(
    asked: str, n_folds: int, groups: np.ndarray, labels: np.ndarray | None, state: int
) -> list[Split]:
    n_groups = len(pd.unique(groups))
    if n_groups < n_folds:
        raise ValueError(
            f"{asked} needs a group for each of {n_folds} folds, and groups has {n_groups} "
            f"different value{'s' * (n_groups != 1)} in {len(groups)} rows"
        )
    kind = GroupKFold if labels is None else StratifiedGroupKFold
    splitter = kind(n_folds, shuffle=True, random_state=state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a label that some folds lack
        return list(splitter.split(np.empty(len(groups)), labels, groups))


def _rows_of_splits(splits: Sequence[Split], n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the rows that a member trains on, and of those that all members set aside.

    Without splits all rows train.
    """
    if not splits:
        return np.arange(n_rows), np.arange(0)
    trains, validates = np.zeros(n_rows, dtype=bool), np.zeros(n_rows, dtype=bool)
    for train, val in splits:
        trains[train], validates[val] = True, True
    return np.flatnonzero(trains), np.flatnonzero(validates & ~trains)


def _moved(splits: Sequence[Split], order: np.ndarray) -> list[Split]:
    """Splits of the rows in the new order."""
    places = np.empty(order.max() + 1, dtype=np.int64)
    places[order] = np.arange(len(order))
    return [(places[train], places[val]) for train, val in splits]


def _as_tensors(splits: Sequence[Split], n_rows: int) -> Sequence[tuple[Tensor, Tensor | None]]:
    """The splits, or without any one of all rows, which all train."""
    if not splits:
        return [(torch.arange(n_rows), None)]
    return [(torch.from_numpy(train), torch.from_numpy(val)) for train, val in splits]


# ---- Data of a fit, from arguments to encoded rows: checks, weights, validation split, targets


@dataclass(frozen=True)
class Prepared:
    """Encoded data of one fit: all rows, which of them train and which validate, and what encodes.

    There is one split for all members, or several, which they take in turns. With a stream, its
    rows train, and ``rows`` are the validation rows alone.

    Weights are those of the rows times those of their classes, for training and for scores.
    """

    rows: Rows
    splits: Sequence[tuple[Tensor, Tensor | None]]  # positions of training and of validation rows
    encoder: TableEncoder
    target: Target
    stream: RowStream | None = None
    out_of_fold: OutOfFold | None = None  # where members set aside different rows

    @property
    def n_train(self) -> int:
        """Training rows of the member that has the fewest."""
        if self.stream is not None:
            return self.stream.n_rows
        return min(len(train) for train, _ in self.splits)

    def count_repeated_rows(self, X: Any, y: Any) -> int:
        """Count the rows set aside of the given table that are also training rows."""
        if self.out_of_fold is None:
            return 0
        rows = self.out_of_fold.kept
        splits = [(rows[train], rows[val]) for train, val in self.splits if val is not None]
        table, targets = (as_pandas(as_numpy(data)) for data in (X, y))
        return count_repeated_rows(table, targets, splits)[0]


def check_given(
    X: Any, y: Any, X_val: Any, y_val: Any, *, solver: str, name: str
) -> tuple[Any, Any]:
    """Refuse arguments of ``fit`` that do not go together; return both tables, indexable."""
    if (X_val is None) != (y_val is None):
        given = "X_val" if y_val is None else "y_val"
        raise ValueError(f"X_val and y_val go together, got only {given}")
    if X_val is not None and solver == "lbfgs":
        raise ValueError("solver='lbfgs' takes no X_val and y_val: it does not stop early")
    if y is None:
        raise ValueError(
            f"This {name} estimator requires y to be passed, but the target y is None."
        )
    X, X_val = _indexable(X), _indexable(X_val)
    if getattr(X, "ndim", 2) > 2:
        raise ValueError(f"Found array with dim {X.ndim}, while {name} needs rows and columns")
    for each in (X, X_val):
        refuse_cells(each)
    check_consistent_length(X, y)
    _check_no_missing(y)
    if X_val is not None:
        check_consistent_length(X_val, y_val)
        _check_no_missing(y_val)
    return X, X_val


def checked_groups(groups: Any, X: Any) -> np.ndarray | None:
    """The group of each row as a number, (n_samples,).

    Raises ValueError if there is not one for each row, or one is missing.
    """
    if groups is None:
        return None
    values = pd.Series(np.asarray(as_numpy(groups, "groups"), dtype=object).tolist())
    if len(values) != _num_samples(X):
        raise ValueError(f"groups has {len(values)} values for {_num_samples(X)} rows")
    codes = pd.factorize(values)[0]
    if (codes < 0).any():
        raise ValueError(
            f"groups has {(codes < 0).sum()} missing values; give those rows groups, or drop them"
        )
    return codes


def _indexable(X: Any) -> Any:
    """Sparse formats, pyarrow tables and others whose rows cannot be picked, as ones that can."""
    first = X[0] if isinstance(X, list | tuple) and X else X
    if isinstance(first, str | os.PathLike) and (first is X or str(first).endswith(".parquet")):
        raise ValueError(
            f"fit takes a table, got the path {str(first)!r}: read it first (pandas.read_parquet), "
            "or use fit_parquet of MLPClassifier or MLPRegressor, which reads it in parts"
        )
    is_polars(X)  # raises the error about lazy frames
    if scipy.sparse.issparse(X):
        return X.tocsr()
    if type(X).__module__.startswith("pyarrow"):
        return X.to_pandas()
    if X is None or hasattr(X, "__getitem__") or hasattr(X, "iloc"):
        return X
    return np.asarray(X)


def _check_no_missing(y: Any) -> None:
    """Missing targets: scikit-learn's checks pass over those of text, and name no way out."""
    if scipy.sparse.issparse(y):
        return
    labels = np.asarray(y)
    if labels.ndim and labels.dtype.kind in "OTf" and pd.isna(labels).any():
        raise ValueError(
            "Input y contains NaN (missing values); drop those rows first, such as by "
            "table.dropna(subset=[target])"
        )


def weighted_rows(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Leave out rows of weight 0, which must not shape the encoding either.

    The last of what is returned are the positions of the rows that are left.

    Raises ValueError if nothing is left, or a weight is none.
    """
    n_rows = _num_samples(X)
    weight = _check_sample_weight(
        sample_weight, np.empty((n_rows, 1)), dtype=np.float64, ensure_non_negative=True
    )
    check_weights(weight, "sample_weight")
    kept = np.flatnonzero(weight)
    if not len(kept):
        raise ValueError("sample_weight is zero for every row: nothing is left to fit")
    if len(kept) == n_rows:
        return X, y, weight, kept
    return _safe_indexing(X, kept), _safe_indexing(y, kept), weight[kept], kept


def _check_total_weights(weight: np.ndarray, n_train: int, splits: Sequence[Split]) -> None:
    """Refuse weights of classes with which no row trains, or none of a member's rows validates."""
    check_weights(weight, "class_weight times sample_weight")
    if not weight[:n_train].any():
        raise ValueError("class_weight leaves every row with weight 0: nothing is left to fit")
    if not all(weight[val].any() for _, val in splits):
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
    """Encode the rows of tables, one below the other, as the tensors that a network takes."""
    y = torch.from_numpy(np.ascontiguousarray(target))
    dense = [torch.from_numpy(table.dense).to(dtype) for table in tables]
    codes = [torch.from_numpy(table.codes) for table in tables]
    return Rows(
        dense[0] if len(tables) == 1 else torch.cat(dense),
        y if y.dtype == torch.int64 else y.to(dtype),
        None if not codes[0].shape[1] else codes[0] if len(tables) == 1 else torch.cat(codes),
        None if weight is None else torch.from_numpy(weight).to(dtype),
    )


# Parts of the validation rows, of which each is predicted by the epoch that is best on the others.
# A scorer of scikit-learn is called for each of them after every epoch, which takes long.
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
        """Labels of which training and validation rows are to have equal shares, if any."""
        return None

    def _weigh(
        self, target: Target, encoded: np.ndarray, weight: np.ndarray | None, n_train: int
    ) -> np.ndarray | None:
        """The weights of rows of these encoded targets, of which the first ``n_train`` train."""
        return weight

    def _make_spec(self, n_rows: int) -> NetworkSpec:
        """The network, for an encoding and a target that are learned."""
        return MLPSpec(
            n_dense=self.encoder_.n_dense_,
            hidden=self._hidden_layer_sizes(n_rows),
            n_outputs=self.target_.n_raw_outputs,
            cardinalities=self.encoder_.cardinalities_,
            embedding_dim=self.embedding_dim,
            normalization=self.normalization,
            proxy_norm=self.proxy_norm,
            init=self.init if isinstance(self.init, str) else "torch",
            **self._input_settings(),
        )

    def _input_settings(self) -> dict[str, Any]:
        """Return the spec's fields that say what becomes of numbers before the first layer."""
        settings: dict[str, Any] = {"scale_inputs": self.scale_inputs}
        if self.numeric_embedding != "none":
            settings |= {
                "n_numeric": self.encoder_.numeric_scaler_.n_columns,
                "numeric_embedding": self.numeric_embedding,
                "numeric_embedding_dim": int(self.numeric_embedding_dim),
                "n_bins": int(self.n_bins),
                "n_frequencies": int(self.n_frequencies),
                "frequency_scale": float(self.frequency_scale),
            }
        return settings

    # what ``encode_data`` depends on beside the encoder's parameters
    _data_parameters: ClassVar[tuple[str, ...]] = (
        *("solver", "precision", "early_stopping", "validation_fraction", "warm_start", "bagging"),
        "validation_split",
    )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_bagging(self.get_params(deep=False))

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
            Targets.
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
        fresh = not (self.warm_start and self.__sklearn_is_fitted__())
        self._validate(fresh=fresh)
        given = sample_weight is None, X_val is None, fresh
        with sharing(partial(self._words, given)), self._file(broadcast(checkpoint)) as file:
            prepared = self.encode_data(
                X, y, sample_weight, X_val, y_val, groups=groups, fresh=fresh
            )
            job = self.make_job(prepared, fresh=fresh)
            found = partial(self._fitted_attributes, job, fresh=fresh)
            with epoch_tasks(self, job, found, X, y, sample_weight) as told:
                results = train_shared(job, [*self._all_callbacks(), *told], file=file)
                self.keep_results(job, results, fresh=fresh)
            self._set_repeated_rows(prepared, X, y)
        self.network()  # so that the first prediction need not wait for it
        return self

    def _words(self, given: tuple[Any, ...]) -> str:
        """What is fitted, in words that are the same in all processes that fit it."""
        return f"{type(self).__name__} {plain_parameters(self)} {given}"

    @contextmanager
    def _file(self, path: str | os.PathLike[str] | None) -> Iterator[Checkpoint | None]:
        """The file of the fit that is done within, by whose seed all is drawn."""
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

    def _validate(self, *, fresh: bool = True) -> None:
        """Check the parameters; a fit that fails from here on leaves no fitted estimator."""
        self._check_parameters()
        if fresh:
            self.__dict__.pop("_states", None)
        else:
            check_architecture(
                self._architecture_parameters(), self._architecture, len(self._states)
            )

    def encode_data(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        *,
        fresh: bool = True,
        split: bool | Splitter = True,
        classes: np.ndarray | None = None,
        owner: BaseEstimator | None = None,
        min_rows: int = AUTO_ROWS,
        groups: Any = None,
    ) -> Prepared:
        """Check and encode the data.

        A new encoding, the scale of the target and balanced class weights are learned from the rows
        that at least one member trains on, and from no others.

        ``owner`` is the estimator to name in errors about the table. With ``min_rows`` rows or
        more, ``early_stopping="auto"`` sets rows aside. A callable ``split`` sets rows aside
        instead of the parameters.
        """
        guard_forks()
        owner = self if owner is None else owner
        X, y, X_val, y_val = as_numpy(X), as_numpy(y, "y"), as_numpy(X_val), as_numpy(y_val, "y")
        sample_weight = as_numpy(sample_weight, "sample_weight")
        X, X_val = check_given(X, y, X_val, y_val, solver=self.solver, name=type(owner).__name__)
        n_given, groups = _num_samples(X), checked_groups(groups, X)
        if X_val is not None:
            self._check_no_other_validation()
        elif split is True:
            split = self._splitter(X, y, sample_weight, groups, fresh=fresh, min_rows=min_rows)
        weight, kept = None, np.arange(n_given)
        if sample_weight is not None:
            X, y, weight, kept = weighted_rows(X, y, sample_weight)
            groups = None if groups is None else groups[kept]
        y = self._checked_target(y, "y", owner)
        splits: Sequence[Split] = []
        if X_val is None and callable(split):
            splits = split(len(y), self._labels(y), groups)
        train_rows, other_rows = _rows_of_splits(splits, len(y))
        if fresh:
            target = self._learn_target(y, weight, train_rows, classes)
        else:
            target = self.target_.widened(y[train_rows])
        encoded = target.encode(y, self.precision, complete=not fresh and bool(split))
        out_of_fold = None
        if splits:
            order = np.concatenate([train_rows, other_rows])
            encoded, kept = encoded[order], kept[order]
            weight = None if weight is None else weight[order]
            groups = None if groups is None else groups[order]
            if len(other_rows):
                X, X_val = _safe_indexing(X, train_rows), _safe_indexing(X, other_rows)
            splits = _moved(splits, order)
            if fresh or len(splits) > 1:  # an earlier fit may have trained on the rows of one split
                out_of_fold = OutOfFold(kept, n_given, len(splits) == 1, groups)
        elif y_val is not None:
            y_val = self._checked_target(y_val, "y_val", owner)
            encoded = np.concatenate([encoded, target.encode(y_val, self.precision)])
            weight = None if weight is None else np.concatenate([weight, np.ones(len(y_val))])
            splits = [(train_rows, np.arange(len(y), len(encoded)))]
        n_train = len(train_rows)
        total = self._weigh(target, encoded, weight, n_train)
        if total is not None:
            _check_total_weights(total, n_train, splits)
        encoder = self.make_encoder() if fresh else self.encoder_
        if fresh:
            train_weight = None if weight is None else weight[:n_train]
            tables = [encoder.fit_encode(X, train_weight, owner=owner)]
        else:
            tables = [encoder.encode(X, owner=owner)]
        if X_val is not None:
            with expecting_later_rows():
                tables.append(encoder.encode(X_val, owner=owner, fitted=y_val is None))
        rows = encoded_rows(tables, encoded, total, Precision(self.precision).dtype)
        return Prepared(rows, _as_tensors(splits, n_train), encoder, target, None, out_of_fold)

    def _check_no_other_validation(self) -> None:
        """Refuse parameters that set rows aside where X_val is given."""
        if self.bagging is not None:
            raise ValueError(
                f"bagging={self.bagging!r} takes no X_val and y_val: each member validates on a "
                "fold of its own; set bagging=None"
            )
        if self.validation_split is not None:
            raise ValueError(
                "X_val and validation_split do not go together; set validation_split=None"
            )

    def _splitter(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: np.ndarray | None,
        *,
        fresh: bool,
        min_rows: int,
    ) -> Splitter:
        """What sets rows of this table aside, as the parameters ask for."""
        from combutab.core.splits import validation_splits

        cv, given = self.validation_split, None
        if cv is not None:
            given = validation_splits(cv, "validation_split", X, y, groups, sample_weight)

        def split(
            n_rows: int, labels: np.ndarray | None, groups: np.ndarray | None
        ) -> Sequence[Split]:
            if self.bagging is not None:
                return self._folds(n_rows, labels, groups, given)
            if given is not None or self._stops_early(n_rows, min_rows):
                return self._parts(n_rows, labels, groups, given, fresh=fresh)
            return []

        return split

    def _folds(
        self,
        n_rows: int,
        labels: np.ndarray | None,
        groups: np.ndarray | None,
        given: list[Split] | None,
    ) -> Sequence[Split]:
        """The splits of ``bagging="cv"``."""
        n_members = _BAGGED if self.n_members == "auto" else int(self.n_members)
        if given is not None:
            n_members = len(given) if self.n_members == "auto" else n_members
            if not 2 <= len(given) <= n_members:
                raise ValueError(
                    "bagging='cv' needs at least two splits, and a member for each: "
                    f"validation_split has {len(given)}, n_members={self.n_members!r}"
                )
            return given
        seed = seed_from(self.random_state)
        if n_rows < 2 * n_members:
            raise ValueError(
                f"bagging='cv' needs two rows a member at least: {n_members=} is too many for "
                f"n_samples={n_rows}"
            )
        asked = f"bagging='cv', {n_members=}"
        return shuffled_folds(asked, n_members, n_rows, seed, labels, groups)

    def _parts(
        self,
        n_rows: int,
        labels: np.ndarray | None,
        groups: np.ndarray | None,
        given: list[Split] | None,
        *,
        fresh: bool,
    ) -> list[Split]:
        """One split, or two that set different rows aside, equally many, where there are enough.

        There are two for two networks that ``n_members="auto"`` makes, or has made.
        """
        two = self.n_members == "auto" and (fresh or len(self._states) == 2)
        if given is not None:
            last = isinstance(self.validation_split, TimeSeriesSplit)
            return given[-1:] if last else given[: 1 + two]
        if groups is not None:
            self._n_held_out(n_rows)
            n_folds = max(2, min(round(1 / self.validation_fraction), len(pd.unique(groups))))
            state = fold_in(seed_from(self.random_state), Stream.SPLIT) % (1 << 32)
            return _group_folds("early stopping", n_folds, groups, labels, state)[: 1 + two]
        train, val = self._split(n_rows, labels)
        if not two or len(train) < len(val) + 2:
            return [(train, val)]
        rest, other = self._split(n_rows, labels, among=train)
        return [(train, val), (np.sort(np.concatenate([rest, val])), other)]

    def _split(
        self, n_rows: int, labels: np.ndarray | None, among: np.ndarray | None = None
    ) -> Split:
        """Positions of the rows that train, and of those that are set aside, both increasing.

        With ``among`` it splits these rows alone, and sets as many aside as of all. The only row of
        a label trains, if enough others are left.

        Raises ValueError if there would be fewer than two of the latter.
        """
        n_val, strata = self._n_held_out(n_rows), labels
        rows, seed = np.arange(n_rows), fold_in(seed_from(self.random_state), Stream.SPLIT)
        if among is not None:
            rows, seed = among, fold_in(seed, Stream.SPLIT)
            strata = None if strata is None else strata[among]
        single_rows = np.arange(0)
        if strata is not None:
            codes, counts = np.unique(strata, return_inverse=True, return_counts=True)[1:]
            is_single, n_labels = counts[codes] == 1, (counts > 1).sum()
            if (~is_single).sum() > n_val:
                single_rows, rows, strata = rows[is_single], rows[~is_single], strata[~is_single]
            if len(single_rows) < is_single.sum() or n_labels > min(n_val, len(rows) - n_val):
                strata = None  # a side would lack a label
        train, val = train_test_split(
            rows, test_size=n_val, random_state=seed % (1 << 32), stratify=strata
        )
        return np.sort(np.concatenate([train, single_rows])), np.sort(val)

    def _n_held_out(self, n_rows: int) -> int:
        """Rows that each network sets aside; raises ValueError if these are fewer than two."""
        n_val = int(np.ceil(self.validation_fraction * n_rows))
        if n_val < 2:
            raise ValueError(
                "The validation set is too small. Increase 'validation_fraction' or the size of "
                f"your dataset: validation_fraction={self.validation_fraction} of {n_rows} rows."
            )
        return n_val

    def encoding_key(self) -> str:
        """Return a key that is equal for estimators whose ``encode_data`` does the same."""
        values = self.make_encoder().get_params(deep=False)
        values |= {name: getattr(self, name) for name in self._data_parameters}
        if self.bagging is not None or self.n_members == "auto":
            values["n_members"] = self.n_members
        if self.early_stopping is not False or self.bagging is not None:
            seeded = isinstance(self.random_state, Integral)
            values["random_state"] = self.random_state if seeded else f"of {id(self)}"
        with np.printoptions(threshold=sys.maxsize):  # all of a long mask
            return repr(values)

    def make_job(self, prepared: Prepared, *, fresh: bool = True, epochs: int | None = None) -> Job:
        """Build the training job: the stack of networks, the encoded data, and the settings."""
        self._adopt(prepared.encoder, prepared.target)
        if fresh:
            self._spec = self._make_spec(prepared.n_train)
            self._architecture = self._architecture_parameters()
        seeded = int(self.random_state) if isinstance(self.random_state, Integral) else None
        if fresh or seeded not in (None, self._seeded):
            self._seed, self._seeded = seed_from(self.random_state), seeded
        n_members = self.n_members
        if n_members == "auto":
            n_members = len(prepared.splits) if fresh else len(self._states)
        seeds = [fold_in(self._seed, Stream.MEMBER, i) for i in range(int(n_members))]
        edges = self.encoder_.numeric_scaler_.edges
        bins = torch.from_numpy(edges.T.copy()) if len(edges) else None
        members = tuple(Member(seed, self.activation, self.dropout, bins) for seed in seeds)
        splits = list(islice(cycle(prepared.splits), len(seeds)))
        target = prepared.target
        score, scorer, scoring = None, None, self.early_stopping_scoring or target.score_name
        if isinstance(scoring, str) and plain_name(scoring) in ("log_loss", target.score_name):
            scoring = "loss" if plain_name(scoring) == "log_loss" else target.score_name
        if splits[0][1] is not None:
            score = scoring if scoring in ("loss", target.score_name) else "scorer"
            if score == "scorer":
                for _, val in prepared.splits:
                    held_out = prepared.rows.each(itemgetter(val))
                    scorer = output_scorer(self, scoring, target, held_out, prepared.rows.y)
        parts: list[Tensor | None] = [None] * len(splits)
        # An earlier fit has chosen the weights that a warm start begins with by all of these rows.
        if fresh and prepared.out_of_fold is not None:
            divide, y = prepared.out_of_fold.parts, prepared.rows.y
            n_parts = N_PARTS_SCORER if score == "scorer" else N_PARTS
            parts = [
                None if val is None else divide(y, train, val, n_parts) for train, val in splits
            ]
        starts = [None] * len(seeds) if fresh else self._starts(continued=epochs is not None)
        plans = tuple(
            MemberPlan(
                seed=seed,
                rows=train,
                learning_rate=self.learning_rate_init,
                alpha=self.alpha,
                weight_decay=self.weight_decay if self.solver == "adamw" else 0.0,
                val_rows=val,
                val_parts=val_parts,
                start=start,
                scorer=scorer,
            )
            for seed, start, (train, val), val_parts in zip(
                seeds, starts, splits, parts, strict=True
            )
        )
        return Job(
            self._spec,
            self._train_config(prepared.n_train, score, epochs),
            members,
            plans,
            prepared.rows,
            resolve_device(self.device),
            self.max_fun,
            self._start_states(members, fresh=fresh),
            prepared.out_of_fold,
        )

    def _start_states(
        self, members: Sequence[Member], *, fresh: bool
    ) -> tuple[dict[str, torch.Tensor], ...] | None:
        """The weights that the members begin with; None if these are drawn."""
        if not fresh:
            states = self._states
            return tuple({n: torch.from_numpy(v) for n, v in state.items()} for state in states)
        if isinstance(self.init, str):
            return None
        units = self.target_.units()
        return initial_states(self.init, self._spec, members, self.encoder_, units)

    def _starts(self, *, continued: bool) -> list[MemberResult | None]:
        return [
            MemberResult(
                epochs=progress["epochs"],
                t=progress["t"],
                optimizer={n: torch.from_numpy(v) for n, v in progress["optimizer"].items()}
                if continued and progress["optimizer"]
                else {},
                best_loss=progress["best_loss"],
                n_iter_no_improvement=progress["n_idle"] if continued else 0,
                next_learning_rate=progress["learning_rate"]
                if continued and self.learning_rate not in ("constant", *PER_STEP)
                else None,
            )
            for progress in self._progress
        ]

    def keep_results(
        self,
        job: Job,
        results: Sequence[MemberResult],
        *,
        fresh: bool = True,
        converges: bool = True,
        collected: list[Unfinished] | None = None,
    ) -> Self:
        """Store the results of the training, with a warning or an error if it failed.

        Warnings about the training are appended to ``collected`` if it is given.
        """
        held_out = self.target_.held_out_name
        names = {"loss_curve_", held_out, "oof_folds_", "oof_groups_", "oof_n_repeated_"}
        with uninterrupted():
            found = self._fitted_attributes(job, results, fresh=fresh)
            for name in names & vars(self).keys():
                delattr(self, name)  # which lbfgs, or a fit to all rows, has none of
            self.__dict__.update(found)
            if results[0].held_out is not None:
                setattr(self, held_out, held_out_answers(job, results, self.target_))
                self._set_folds(job, len(results))
            notes = unfinished(
                job, results, converges=converges, in_parts=converges and self.warm_start
            )
            for note in notes if collected is None else ():
                warnings.warn(note.words, note.category, stacklevel=4)
            if collected is not None:
                collected.extend(notes)
            if converges:
                self._check_answers(job, results)
        return self

    def _set_repeated_rows(self, prepared: Prepared, X: Any, y: Any) -> None:
        if hasattr(self, "oof_folds_"):
            self.oof_n_repeated_ = prepared.count_repeated_rows(X, y)

    def _set_folds(self, job: Job, n_members: int) -> None:
        """Set the attributes that describe the rows set aside."""
        assert job.out_of_fold is not None
        plans = job.plans[: 1 if job.out_of_fold.same_rows else n_members]
        splits = [(plan.rows, plan.val_rows) for plan in plans if plan.val_rows is not None]
        self.oof_folds_ = job.out_of_fold.folds(splits)
        groups = job.out_of_fold.dependent_rows(splits)
        if groups is not None:
            self.oof_groups_ = groups

    def become(self, job: Job, results: Sequence[MemberResult], factor: float = 1.0) -> None:
        """Make this the fitted estimator of given networks, with raw outputs times ``factor``."""
        self.n_members = len(job.members)
        self._spec, self._architecture = job.spec, self._architecture_parameters()
        self.__dict__.update(self._fitted_attributes(job, results, fresh=True))
        if factor != 1:
            net = self.built_network()
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
        fresh = not self.__sklearn_is_fitted__()
        self._validate(fresh=fresh)
        prepared = self.encode_data(X, y, sample_weight, fresh=fresh, split=False, classes=classes)
        job = self.make_job(prepared, fresh=fresh, epochs=1)
        results = train_job(job, self._all_callbacks())
        n_iter = 0 if fresh else int(getattr(self, "n_iter_", 0))
        self.keep_results(job, results, fresh=fresh, converges=False)  # in one epoch
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
