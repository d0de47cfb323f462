"""What MLPClassifier and MLPRegressor share: the way of a table through ``fit`` and ``predict``."""

from __future__ import annotations

import sys
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from combutab._device import Precision, mind_forks, resolve_device
from combutab._random import fold_in, seed_from
from combutab.estimators._constraints import PARAMETER_CONSTRAINTS, check_parameters
from combutab.estimators._continued import check_settled, settled
from combutab.estimators._data import Prepared, prepare
from combutab.estimators._initial import initial_states, initial_widths
from combutab.estimators._jobs import Job, train_jobs
from combutab.estimators._outcome import absorb
from combutab.estimators._prefitted import FitHandout, take_over
from combutab.estimators._streaming import FromParquet
from combutab.estimators._streaming_targets import TargetLearner
from combutab.estimators._weights import Weights
from combutab.nn import Member, MLPShape, StackedMLP
from combutab.training import (
    PER_STEP,
    Callback,
    Loss,
    MemberPlan,
    MemberResult,
    MemberStart,
    OptimizerConfig,
    TrainConfig,
    VerboseLines,
    compilation,
    uninterrupted,
)

_DEFAULT_BATCH = 500  # the CombU paper's
_SMALL_TABLE = 1000  # rows; the CombU paper's border between its two networks
_SMALL, _LARGE = (128,) * 2, (256,) * 5  # hidden layers of 3 and of 6 linear layers
_MEMBER = 1  # purpose of the estimator's seed
# Matrix products round otherwise in the rows left over from their blocks: with a multiple of this
# many rows a prediction depends on the rows beside it by the last bit at most.
_MIN_ROWS = 16
_PREDICT_UNITS = 1 << 20  # units of a layer computed at a time: a few MB, within the caches


class BaseMLP(FromParquet, Weights, BaseEstimator, metaclass=ABCMeta):
    """Fit and predict for both estimators; two hooks, ``_encode_target`` and ``_loss``."""

    _parameter_constraints = PARAMETER_CONSTRAINTS

    # ---- hooks -----------------------------------------------------------------------------

    @abstractmethod
    def _encode_target(
        self, y: Any, weight: np.ndarray | None, *, reset: bool, validation: bool = False
    ) -> np.ndarray:
        """Targets -> what the loss takes: (n,) int64 or (n, T) float; reset sets attributes."""

    @abstractmethod
    def _loss(self) -> Loss:
        """The loss of the fitted target."""

    @abstractmethod
    def _target_learner(self) -> TargetLearner:
        """What learns a target that comes in parts."""

    @abstractmethod
    def _n_raw_outputs(self) -> int:
        """Width of the network's last layer."""

    def _output_units(self) -> tuple[np.ndarray, np.ndarray]:
        """Shift and scale that a raw output has been rid of: none for logits."""
        return np.zeros(self._n_raw_outputs()), np.ones(self._n_raw_outputs())

    _seeded: int | None  # the random_state that ``_seed`` came of
    _score_name: str  # of the validation score: "accuracy" or "r2"
    _data_parameters: tuple[str, ...] = (  # all that ``_prepare`` depends on
        "solver",
        "categorical_features",
        "numeric_encoding",
        "max_onehot",
        "min_frequency",
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
        if take_over(self, X):
            return self
        fresh = not (self.warm_start and self.__sklearn_is_fitted__())
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
    ) -> Prepared:
        """Check and encode the data; sets what ``fit`` learns before it trains."""
        self._check_parameters()
        if fresh:
            self.__dict__.pop("_states", None)  # a fit that fails leaves no fitted estimator
        else:
            check_settled(self)
        return prepare(self, X, y, sample_weight, X_val, y_val, fresh=fresh)

    def _check_parameters(self) -> None:
        """What scikit-learn's validation cannot see; before any work on the data."""
        check_parameters(self)

    def _settled_parameters(self) -> dict[str, Any]:
        """What a fit settles for those that go on from it."""
        return settled(self)

    def _data_key(self) -> str:
        """Equal for estimators that ``_prepare`` the same way."""
        values = {
            n: v for n, v in self.get_params(deep=False).items() if n in self._data_parameters
        }
        if self.early_stopping:
            seeded = isinstance(self.random_state, Integral)
            values["random_state"] = self.random_state if seeded else f"of {id(self)}"
        with np.printoptions(threshold=sys.maxsize):  # all of a long mask
            return repr(values)

    def _total_weight(self, target: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        return weight

    def _stratify(self, target: np.ndarray) -> np.ndarray | None:
        return None

    def _job(self, prepared: Prepared, *, fresh: bool = True, epochs: int | None = None) -> Job:
        """What to train, from the parameters and the encoded data."""
        device = resolve_device(self.device)
        if fresh:
            self._shape = self._make_shape(prepared.n_train)
            self._made_with = self._settled_parameters()
        seeded = int(self.random_state) if isinstance(self.random_state, Integral) else None
        if fresh or seeded not in (None, self._seeded):
            self._seed, self._seeded = seed_from(self.random_state), seeded
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
            batch_size=self._checked_batch_size(prepared.n_train),
            max_epochs=epochs or self.max_iter,
            score=scored,
            learning_rate=self.learning_rate,
            power_t=self.power_t,
            shuffle=self.shuffle,
            tol=self.tol,
            n_iter_no_change=self.n_iter_no_change,
            max_grad_norm=self.max_grad_norm,
            track_metric=self.track_metric,
            precision=Precision(self.precision),
            compilation=compilation(),
        )
        starts: Sequence[MemberStart | None] = [None] * self.n_members
        states = None
        if not fresh:
            states = tuple(
                {name: torch.from_numpy(value) for name, value in state.items()}
                for state in self._states
            )
            starts = self._starts(continued=epochs is not None)
        members = tuple(Member(seed, self.activation, self.dropout) for seed in seeds)
        if fresh:
            states = initial_states(self, self._shape, members)
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
            init=self.init if isinstance(self.init, str) else "torch",
        )

    def _hidden_layer_sizes(self, n_rows: int) -> tuple[int, ...]:
        sizes = self.hidden_layer_sizes
        widths = None  # of "auto"
        if not isinstance(sizes, str):
            widths = tuple(int(s) for s in sizes) if hasattr(sizes, "__iter__") else (int(sizes),)
        if not isinstance(self.init, str):
            return initial_widths(self.init, self.activation, widths)
        if widths is None:
            return _SMALL if n_rows < _SMALL_TABLE else _LARGE
        return widths

    def _checked_batch_size(self, n_rows: int) -> int:
        if self.batch_size == "auto" or self.solver == "lbfgs":
            return _DEFAULT_BATCH
        if self.batch_size > n_rows:
            warnings.warn(
                f"Got `batch_size` {self.batch_size}, larger than the {n_rows} rows to train on. "
                "It is going to be clipped",
                stacklevel=5,
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
                learning_rate=progress["learning_rate"]
                if continued and self.learning_rate != "constant"
                else None,
            )
            for progress in self._progress
        ]

    def _all_callbacks(self) -> list[Callback]:
        callbacks = list(self.callbacks or ())
        return [VerboseLines(), *callbacks] if self.verbose else callbacks

    def _absorb(
        self,
        job: Job,
        results: Sequence[MemberResult],
        *,
        fresh: bool = True,
        converges: bool = True,
    ) -> Self:
        """Take over what training found; warn or raise where it did not go well."""
        with uninterrupted():
            absorb(self, job, results, fresh=fresh, converges=converges)
        return self

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any) -> BaseMLP:
        """One epoch over the given rows; the first call learns the encoding."""
        if self.early_stopping:
            raise ValueError("partial_fit does not support early_stopping=True")
        if self.learning_rate in PER_STEP:
            raise ValueError(
                f"partial_fit cannot follow learning_rate={self.learning_rate!r}, which needs to "
                "know when training ends; use 'constant', 'invscaling' or 'adaptive'"
            )
        fresh = not self.__sklearn_is_fitted__()
        prepared = self._prepare(X, y, sample_weight, fresh=fresh)
        job = self._job(prepared, fresh=fresh, epochs=1)
        (results,) = train_jobs([job], self._all_callbacks())
        n_iter = 0 if fresh else int(getattr(self, "n_iter_", 0))
        self._absorb(job, results, fresh=fresh, converges=False)  # in one epoch
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
        mind_forks()
        table = self.encoder_.encode(X, owner=self)
        net = self._network()
        precision = Precision(self._trained[1])
        width = max((self._shape.n_inputs, *self._shape.hidden))
        chunk = _PREDICT_UNITS // (width * net.n_members) // _MIN_ROWS * _MIN_ROWS or _MIN_ROWS
        context = precision.context(net.device)
        n_rows = len(table.dense)
        whole = n_rows // chunk * chunk  # of these rows no copy is made
        parts = []
        for dense, codes in (
            (torch.from_numpy(table.dense[:whole]), torch.from_numpy(table.codes[:whole])),
            (_padded(table.dense[whole:]), _padded(table.codes[whole:])),
        ):
            if len(dense):
                parts.append(net.predict(dense.to(net.dtype), codes, chunk, context).cpu())
        return torch.cat(parts, 1)[:, :n_rows]

    # ---- scikit-learn's questions --------------------------------------------------------------

    _handout: FitHandout | None = None  # of the estimator that a stacked search clones

    def __sklearn_clone__(self) -> Self:
        clone = super().__sklearn_clone__()
        if self._handout is not None:
            self._handout.equip(clone)
        return clone

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_states")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.non_deterministic = False
        return tags


def _padded(array: np.ndarray) -> Tensor:
    """A multiple of ``_MIN_ROWS`` rows, the last repeated."""
    missing = -len(array) % _MIN_ROWS
    if missing:
        array = np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
    return torch.from_numpy(array)
