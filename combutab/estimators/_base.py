"""What MLPClassifier and MLPRegressor share: the way of a table through ``fit`` and ``predict``."""

from __future__ import annotations

import os
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_consistent_length,
    check_is_fitted,
)
from torch import Tensor

from combutab._device import PRECISIONS, Precision, resolve_device
from combutab._random import fold_in, seed_from
from combutab.estimators._jobs import Job, train_jobs
from combutab.estimators._lazy import LazyNetwork
from combutab.estimators._prefitted import take_prefitted
from combutab.estimators._saving import load_estimator, save_estimator
from combutab.nn import INITIALISATIONS, NORMALIZATIONS, Member, MLPShape, StackedMLP
from combutab.preprocessing import TableEncoder
from combutab.training import (
    SCHEDULES,
    SOLVERS,
    Callback,
    Loss,
    MemberPlan,
    MemberResult,
    MemberStart,
    OptimizerConfig,
    Rows,
    TrainConfig,
    VerboseLines,
)

_DEFAULT_BATCH = 500  # the CombU paper's
_SMALL_TABLE = 1000  # rows; the CombU paper's border between its two networks
_SMALL, _LARGE = (128,) * 2, (256,) * 5  # hidden layers of 3 and of 6 linear layers
_MEMBER, _SPLIT = 1, 2  # purposes of the estimator's seed
# Matrix products of fewer rows take another path, which rounds otherwise: padding to this many
# makes a row's prediction the same whatever rows are predicted beside it.
_MIN_ROWS = 16
_PREDICT_UNITS = 1 << 22  # hidden units computed at a time: bounds the memory of predict


@dataclass(frozen=True)
class _Prepared:
    """Encoded data of one fit: all rows, and which train and which validate."""

    rows: Rows
    train: Tensor
    val: Tensor | None


class BaseMLP(BaseEstimator, metaclass=ABCMeta):
    """Fit and predict for both estimators; two hooks, ``_encode_target`` and ``_loss``."""

    _parameter_constraints: dict[str, list[Any]] = {
        "hidden_layer_sizes": [
            StrOptions({"auto"}),
            "array-like",
            Interval(Integral, 1, None, closed="left"),
        ],
        "activation": [str, callable],
        "solver": [StrOptions(set(SOLVERS))],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "learning_rate": [StrOptions(set(SCHEDULES))],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "power_t": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "shuffle": ["boolean"],
        "random_state": ["random_state", np.random.Generator],
        "tol": [Interval(Real, 0, None, closed="left")],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
        "momentum": [Interval(Real, 0, 1, closed="both")],
        "nesterovs_momentum": ["boolean"],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="left")],
        "beta_1": [Interval(Real, 0, 1, closed="left")],
        "beta_2": [Interval(Real, 0, 1, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "n_iter_no_change": [
            Interval(Integral, 1, None, closed="left"),
            Options(Real, {np.inf}),
        ],
        "max_fun": [Interval(Integral, 1, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "max_grad_norm": [None, Interval(Real, 0, None, closed="neither")],
        "normalization": [StrOptions(set(NORMALIZATIONS))],
        "proxy_norm": ["boolean"],
        "init": [StrOptions(set(INITIALISATIONS))],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "categorical_features": [StrOptions({"from_dtype"}), "array-like", None],
        "numeric_encoding": [StrOptions({"standard", "quantile", "robust", "none"})],
        "max_onehot": [Interval(Integral, 0, None, closed="left")],
        "embedding_dim": [Interval(Integral, 1, None, closed="left")],
        "device": [str, torch.device],
        "precision": [StrOptions(set(PRECISIONS))],
        "callbacks": [list, tuple, None],
    }

    # ---- hooks -----------------------------------------------------------------------------

    @abstractmethod
    def _encode_target(self, y: Any, weight: np.ndarray | None, *, reset: bool) -> np.ndarray:
        """Targets of fit -> what the loss takes: (n,) int64 or (n, T) float; sets attributes."""

    @abstractmethod
    def _loss(self) -> Loss:
        """The loss of the fitted target."""

    @abstractmethod
    def _n_raw_outputs(self) -> int:
        """Width of the network's last layer."""

    _score_name: str  # of the validation score: "accuracy" or "r2"
    _data_parameters: tuple[str, ...] = (  # all that ``_prepare`` depends on
        "categorical_features",
        "numeric_encoding",
        "max_onehot",
        "precision",
        "early_stopping",
        "validation_fraction",
        "warm_start",
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
    ) -> BaseMLP:
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
            Your own validation set. Given one, training stops early on it, and the weights of the
            best epoch are kept, whatever ``early_stopping`` says.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the data cannot be used, or training produced weights that are not finite.
        """
        if take_prefitted(self):
            return self
        fresh = not (self.warm_start and hasattr(self, "encoder_"))
        prepared = self._prepare(X, y, sample_weight, X_val, y_val, fresh=fresh)
        job = self._job(prepared, fresh=fresh)
        (results,) = train_jobs([job], self._all_callbacks())
        return self._absorb(job, results, fresh=fresh)

    def _prepare(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        *,
        fresh: bool = True,
    ) -> _Prepared:
        """Check and encode the data; sets what ``fit`` learns before it trains."""
        if (X_val is None) != (y_val is None):
            given = "X_val" if y_val is None else "y_val"
            raise ValueError(f"X_val and y_val go together, got only {given}")
        self._check_hidden_layer_sizes()
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None."
            )
        X, y = self._check_lengths(X, y)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(
                sample_weight,
                np.empty((_num_samples(X), 1)),
                dtype=np.float64,
                ensure_non_negative=True,
            )
            if not weight.any():
                raise ValueError("sample_weight is zero for every row: nothing is left to fit")
            if not weight.all():  # such rows must not shape the encoding either
                kept = np.flatnonzero(weight)
                X, y, weight = _safe_indexing(X, kept), _safe_indexing(y, kept), weight[kept]
        target = self._encode_target(y, weight, reset=fresh)
        split = self._split(target, X_val is not None)
        if split is not None:
            X_val = _safe_indexing(X, split[1])
            X, target_val, target = _safe_indexing(X, split[0]), target[split[1]], target[split[0]]
            weight_val = None if weight is None else weight[split[1]]
            weight = None if weight is None else weight[split[0]]
        elif X_val is not None:
            check_consistent_length(X_val, y_val)
            target_val = self._encode_target(y_val, None, reset=False)
            weight_val = None
        if fresh:
            self.encoder_ = TableEncoder(
                categorical_features=self.categorical_features,
                numeric=self.numeric_encoding,
                max_onehot=self.max_onehot,
            )
            table = self.encoder_.fit_encode(X, weight, owner=self)
        else:
            table = self.encoder_.encode(X, owner=self)
        weight = self._total_weight(target, weight)
        rows = self._to_rows(table, target, weight)
        train = torch.arange(len(target))
        if X_val is None:
            return _Prepared(rows, train, None)
        val_rows = self._to_rows(self.encoder_.encode(X_val, owner=self), target_val, weight_val)
        both = Rows(
            torch.cat([rows.dense, val_rows.dense]),
            torch.cat([rows.y, val_rows.y]),
            None
            if rows.codes is None or val_rows.codes is None
            else torch.cat([rows.codes, val_rows.codes]),
            None
            if rows.weight is None and val_rows.weight is None
            else torch.cat([_weights(rows), _weights(val_rows)]),
        )
        return _Prepared(both, train, torch.arange(len(target), len(both.dense)))

    def _data_key(self) -> str:
        """Equal for estimators that ``_prepare`` the same way."""
        values = {
            n: v for n, v in self.get_params(deep=False).items() if n in self._data_parameters
        }
        if self.early_stopping:
            seeded = isinstance(self.random_state, Integral)
            values["random_state"] = self.random_state if seeded else object()
        return repr(values)

    def _check_lengths(self, X: Any, y: Any) -> tuple[Any, Any]:
        if isinstance(X, list | tuple):
            X = np.asarray(X)
        check_consistent_length(X, y)
        return X, y

    def _total_weight(self, target: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        return weight

    def _split(self, target: np.ndarray, own_set: bool) -> tuple[np.ndarray, np.ndarray] | None:
        """Positions of training and validation rows, or None where nothing is set aside."""
        if not self.early_stopping or own_set:
            return None
        seed = fold_in(seed_from(self.random_state), _SPLIT) % (1 << 32)
        train, val = train_test_split(
            np.arange(len(target)),
            test_size=self.validation_fraction,
            random_state=seed,
            stratify=self._stratify(target),
        )
        if len(val) < 2:
            raise ValueError(
                "The validation set is too small. Increase 'validation_fraction' or the size of "
                f"your dataset: validation_fraction={self.validation_fraction} of {len(target)} "
                "rows."
            )
        return np.sort(train), np.sort(val)

    def _stratify(self, target: np.ndarray) -> np.ndarray | None:
        return None

    def _to_rows(self, table: Any, target: np.ndarray, weight: np.ndarray | None) -> Rows:
        dtype = Precision(self.precision).dtype
        y = torch.from_numpy(np.ascontiguousarray(target))
        return Rows(
            torch.from_numpy(np.ascontiguousarray(table.dense)).to(dtype),
            y if y.dtype == torch.int64 else y.to(dtype),
            torch.from_numpy(np.ascontiguousarray(table.codes)) if table.codes.shape[1] else None,
            None if weight is None else torch.from_numpy(weight).to(dtype),
        )

    def _job(self, prepared: _Prepared, *, fresh: bool = True, epochs: int | None = None) -> Job:
        """What to train, from the parameters and the encoded data."""
        device = resolve_device(self.device)
        if fresh:
            self._seed = seed_from(self.random_state)
            self._shape = self._make_shape(len(prepared.train))
        seeds = [fold_in(self._seed, _MEMBER, i) for i in range(self.n_members)]
        scored = self._score_name if prepared.val is not None else None
        config = TrainConfig(
            loss=self._loss(),
            optimizer=OptimizerConfig(
                self.solver,
                self.beta_1,
                self.beta_2,
                self.epsilon,
                self.momentum,
                self.nesterovs_momentum,
            ),
            batch_size=self._checked_batch_size(len(prepared.train)),
            max_epochs=epochs or self.max_iter,
            score=scored,
            learning_rate=self.learning_rate,
            power_t=self.power_t,
            shuffle=self.shuffle,
            tol=self.tol,
            n_iter_no_change=self.n_iter_no_change,
            max_grad_norm=self.max_grad_norm,
            precision=Precision(self.precision),
        )
        starts: Sequence[MemberStart | None] = [None] * self.n_members
        states = None
        if not fresh:
            if len(self._states) != self.n_members:
                raise ValueError(
                    f"n_members={self.n_members}, but the fitted estimator that warm_start or "
                    f"partial_fit goes on from has {len(self._states)}; set warm_start=False"
                )
            states = tuple(
                {name: torch.from_numpy(value) for name, value in state.items()}
                for state in self._states
            )
            starts = self._starts(continued=epochs is not None)
        members = tuple(Member(seed, self.activation, self.dropout) for seed in seeds)
        plans = tuple(
            MemberPlan(
                seed=seed,
                rows=prepared.train,
                learning_rate=self.learning_rate_init,
                alpha=self.alpha,
                weight_decay=self.weight_decay if self.solver == "adamw" else 0.0,
                val_rows=prepared.val,
                start=start,
            )
            for seed, start in zip(seeds, starts, strict=True)
        )
        return Job(self._shape, config, members, plans, prepared.rows, device, self.max_fun, states)

    def _make_shape(self, n_rows: int) -> MLPShape:
        hidden = self._hidden_layer_sizes(n_rows)
        return MLPShape(
            n_dense=self.encoder_.n_dense_,
            hidden=hidden,
            n_outputs=self._n_raw_outputs(),
            cardinalities=self.encoder_.cardinalities_,
            embedding_dim=self.embedding_dim,
            normalization=self.normalization,
            proxy_norm=self.proxy_norm,
            init=self.init,
        )

    def _check_hidden_layer_sizes(self) -> None:
        sizes = self.hidden_layer_sizes
        if isinstance(sizes, str):
            return
        as_list = list(sizes) if hasattr(sizes, "__iter__") else [sizes]
        if any(not isinstance(s, Integral) or s <= 0 for s in as_list):
            raise ValueError(f"hidden_layer_sizes must be > 0, got {as_list}.")

    def _hidden_layer_sizes(self, n_rows: int) -> tuple[int, ...]:
        sizes = self.hidden_layer_sizes
        if isinstance(sizes, str):
            return _SMALL if n_rows < _SMALL_TABLE else _LARGE
        return tuple(int(s) for s in sizes) if hasattr(sizes, "__iter__") else (int(sizes),)

    def _checked_batch_size(self, n_rows: int) -> int:
        if self.batch_size == "auto":
            return _DEFAULT_BATCH
        if self.batch_size > n_rows:
            warnings.warn(
                f"Got `batch_size` {self.batch_size}, larger than the {n_rows} rows to train on. "
                "It is going to be clipped",
                stacklevel=4,
            )
        return int(self.batch_size)

    def _starts(self, *, continued: bool) -> list[MemberStart]:
        return [
            MemberStart(
                epochs=progress["epochs"],
                t=progress["t"],
                optimizer={n: torch.from_numpy(v) for n, v in progress["optimizer"].items()}
                if continued and progress["optimizer"]
                else None,
                best_loss=progress["best_loss"],
                n_idle=progress["n_idle"] if continued else 0,
            )
            for progress in self._progress
        ]

    def _all_callbacks(self) -> list[Callback]:
        callbacks = list(self.callbacks or ())
        for callback in callbacks:
            if not callable(getattr(callback, "on_epoch_end", None)):
                raise ValueError(
                    f"callbacks must be combutab.training.Callback objects, got {callback!r}"
                )
        return [VerboseLines(), *callbacks] if self.verbose else callbacks

    def _absorb(self, job: Job, results: Sequence[MemberResult], *, fresh: bool = True) -> BaseMLP:
        """Take over what training found; warn or raise where it did not go well."""
        diverged = [i for i, r in enumerate(results) if r.reason == "diverged"]
        finite = all(torch.isfinite(v).all() for r in results for v in r.state.values())
        if diverged or not finite:
            raise ValueError(
                "Solver produced non-finite parameter weights. The input data may contain large "
                "values and need to be preprocessed. Or lower learning_rate_init="
                f"{self.learning_rate_init}, or set max_grad_norm."
            )
        first = results[0]
        self._states = [{n: v.numpy() for n, v in r.state.items()} for r in results]
        self._progress: list[dict[str, Any]] = [
            {
                "epochs": r.epochs,
                "t": r.t,
                "best_loss": r.best_loss,
                "n_idle": r.n_idle,
                "optimizer": {n: v.numpy() for n, v in r.optimizer.items()},
            }
            for r in results
        ]
        self._net = LazyNetwork()
        self._trained = (
            tuple(member.activation for member in job.members),
            self.precision,
        )
        self.n_layers_ = len(job.shape.hidden) + 2
        self.t_ = first.t
        stochastic = job.config.optimizer.solver != "lbfgs"
        self.n_iter_ = len(first.train_loss) if stochastic else first.epochs
        self.loss_ = first.train_loss[-1] if first.train_loss else first.best_loss
        if stochastic:
            earlier: list[float] = [] if fresh else self.loss_curve_
            self.loss_curve_: list[float] = [*earlier, *first.train_loss]
        scored = job.config.score is not None
        self.best_loss_ = None if scored else first.best_loss
        self.validation_scores_ = first.validation_score if scored else None
        self.best_validation_score_ = first.best_score if scored else None
        self.history_ = _history(results)
        self._warn_of(results, job)
        return self

    def _warn_of(self, results: Sequence[MemberResult], job: Job) -> None:
        reasons = {r.reason for r in results}
        if "interrupted" in reasons:
            warnings.warn(
                "Training interrupted by user: the best weights so far are kept.", stacklevel=3
            )
        stochastic = job.config.optimizer.solver != "lbfgs"
        # asked to run a fixed number of epochs, it did as asked
        open_ended = np.isfinite(self.n_iter_no_change) and job.config.max_epochs == self.max_iter
        if "max_iter" in reasons and stochastic and open_ended and not self._partial:
            warnings.warn(
                f"Stochastic Optimizer: Maximum iterations ({self.max_iter}) reached and the "
                "optimization hasn't converged yet.",
                ConvergenceWarning,
                stacklevel=3,
            )

    _partial = False

    @available_if(lambda self: self._supports_partial_fit())
    def _partial_fit(self, X: Any, y: Any, sample_weight: Any) -> BaseMLP:
        """One epoch over the given rows; the first call learns the encoding."""
        if self.early_stopping:
            raise ValueError("partial_fit does not support early_stopping=True")
        fresh = not hasattr(self, "encoder_")
        prepared = self._prepare(X, y, sample_weight, fresh=fresh)
        job = self._job(prepared, fresh=fresh, epochs=1)
        (results,) = train_jobs([job], self._all_callbacks())
        n_iter = 0 if fresh else self.n_iter_
        self._partial = True
        try:
            self._absorb(job, results, fresh=fresh)
        finally:
            del self._partial
        self.n_iter_ = n_iter + 1
        return self

    def _supports_partial_fit(self) -> bool:
        if self.solver == "lbfgs":
            raise AttributeError(
                "partial_fit is only available for stochastic optimizers. lbfgs is not stochastic."
            )
        return True

    # ---- the fitted network --------------------------------------------------------------------

    def _network(self) -> StackedMLP:
        """The members as one stack, built from their saved states when first needed."""
        device = resolve_device(self.device)
        net = self._net.network
        if net is None or net.device != device:
            activations, precision = self._trained
            net = StackedMLP(
                self._shape,
                [Member(0, activation) for activation in activations],
                dtype=Precision(precision).dtype,
                device=device,
            )
            for i, state in enumerate(self._states):
                net.load_member(i, {n: torch.from_numpy(v) for n, v in state.items()})
            self._net.network = net.eval()
        return net

    @torch.inference_mode()
    def _raw(self, X: Any) -> Tensor:
        """Raw outputs of every member: (n_members, n_samples, n_outputs), on the CPU."""
        check_is_fitted(self)
        table = self.encoder_.encode(X, owner=self)
        net = self._network()
        precision = Precision(self._trained[1])
        dense, codes = _padded(table.dense), _padded(table.codes)
        dense = dense.to(net.dtype)
        width = max((self._shape.n_inputs, *self._shape.hidden))
        chunk = max(_MIN_ROWS, _PREDICT_UNITS // (width * net.n_members))
        outputs = []
        for start in range(0, len(dense), chunk):
            part = dense[start : start + chunk].to(net.device)
            part_codes = codes[start : start + chunk].to(net.device)
            with precision.autocast(net.device):
                raw = net(
                    part.expand(net.n_members, *part.shape),
                    part_codes.expand(net.n_members, *part_codes.shape),
                )
            outputs.append(raw.to(net.dtype).cpu())
        raw = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)
        return raw[:, : len(table.dense)]

    # ---- files ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file (safetensors with JSON in its header).

        The file holds no training data and no optimiser state, and loads on any device. It is
        written beside its place and moved there, so a failure leaves no half-written file.

        Raises
        ------
        ValueError
            If a parameter cannot be written without code (a custom activation, say).
        """
        save_estimator(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | torch.device = "auto") -> Self:
        """Read an estimator that ``save`` wrote; no code of the file's is run.

        Parameters
        ----------
        path : str or path
        device : str or torch.device, default="auto"
            Where it predicts; independent of where it was trained.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is not a model of this class.
        """
        return load_estimator(cls, path, device)

    @property
    def coefs_(self) -> list[np.ndarray]:
        """Weight matrices (in, out) of the first member; the first acts on encoded features."""
        return self._layer_arrays("weight")

    @property
    def intercepts_(self) -> list[np.ndarray]:
        """Bias vectors (out,) of the first member's layers."""
        return self._layer_arrays("bias")

    def _layer_arrays(self, name: str) -> list[np.ndarray]:
        if not hasattr(self, "_states"):
            raise AttributeError(f"{type(self).__name__} is not fitted: call fit first")
        state = self._states[0]
        arrays = [state[f"linears.{i}.{name}"] for i in range(self.n_layers_ - 1)]
        if name == "bias":
            return [a.reshape(-1) for a in arrays]
        if self._shape.init == "ntk":
            return [a / np.sqrt(a.shape[0]) for a in arrays]
        return arrays

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.non_deterministic = False
        return tags


def _padded(array: np.ndarray) -> Tensor:
    """At least ``_MIN_ROWS`` rows, the last repeated."""
    missing = _MIN_ROWS - len(array)
    if missing > 0:
        array = np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
    return torch.from_numpy(array)


def _weights(rows: Rows) -> Tensor:
    return torch.ones_like(rows.dense[:, 0]) if rows.weight is None else rows.weight


def _history(results: Sequence[MemberResult]) -> pd.DataFrame:
    """Tidy history: one row a member and epoch."""
    frames = [
        pd.DataFrame(
            {
                "member": i,
                "epoch": np.arange(1, len(r.train_loss) + 1) + r.epochs - len(r.train_loss),
                "train_loss": r.train_loss,
                "validation_score": r.validation_score or np.nan,
                "learning_rate": r.learning_rate,
            }
        )
        for i, r in enumerate(results)
    ]
    return pd.concat(frames, ignore_index=True)
