"""The parameters that both estimators share: what each may be, and what follows from it."""

from __future__ import annotations

import math
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.metrics import check_scoring
from sklearn.utils._param_validation import HasMethods, Interval, Options, RealNotInt, StrOptions

from combutab.constructions import ConstructedNetwork
from combutab.core.device import PRECISIONS, Precision, resolve_device
from combutab.core.html import FittedHTML
from combutab.core.tasks import CallbackSupport
from combutab.core.text import parse_seconds
from combutab.estimators._initial import check_initial, initial_widths
from combutab.estimators._jobs import architecture_parameters
from combutab.nn import (
    INITIALISATIONS,
    NORMALIZATIONS,
    NUMERIC_EMBEDDINGS,
    ROLES,
    ActivationSpec,
    StackedNorm,
    check_activation,
    check_proxy_norm,
)
from combutab.preprocessing import TableEncoder, check_date_features
from combutab.training import (
    PER_STEP,
    SCHEDULES,
    SOLVERS,
    Callback,
    Loss,
    OptimizerConfig,
    TrainConfig,
    VerboseLines,
)

# ---- The CombU paper's network, as parameters that stay when the estimators' defaults change -----

PAPER_BATCH = 500  # rows
_SMALL_TABLE = 1000  # rows; the paper's border between its two networks
_SMALL, _LARGE = (128,) * 2, (256,) * 5  # hidden layers of 3 and of 6 linear layers

_BOTH: Mapping[str, Any] = MappingProxyType(
    {
        "hidden_layer_sizes": "paper",
        "activation": "combu",
        "solver": "adam",
        "alpha": 0.0001,
        "batch_size": "paper",
        "learning_rate": "constant",
        "learning_rate_init": 0.0005,
        "power_t": 0.5,
        "max_iter": 200,
        "shuffle": True,
        "tol": 1e-4,
        "momentum": 0.9,
        "nesterovs_momentum": True,
        "early_stopping": False,
        "validation_fraction": 0.1,
        "validation_split": None,
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-8,
        "n_iter_no_change": 10,
        "max_fun": 15000,
        "early_stopping_scoring": None,
        "dropout": 0.1,
        "weight_decay": 0.01,
        "max_grad_norm": None,
        "normalization": "none",
        "proxy_norm": False,
        "init": "torch",
        "n_members": 1,
        "bagging": None,
        "categorical_features": "from_dtype",
        "numeric_encoding": "standard",
        "max_onehot": 32,
        "min_frequency": 5,
        "embedding_dim": 8,
        "numeric_embedding": "none",
        "numeric_embedding_dim": 4,
        "n_frequencies": 16,
        "n_bins": 48,
        "date_features": ("number",),
        "text_features": "ignore",
        "frequency_scale": 0.1,
        "scale_inputs": False,
        "learning_rate_factors": None,
        "regularization_schedule": "constant",
        "precision": "float32",
    }
)
_RECIPES: Mapping[str, Mapping[str, Any]] = {
    "classification": {**_BOTH, "class_weight": None, "label_smoothing": 0.0, "calibration": None},
    "regression": {
        **_BOTH,
        "loss": "squared_error",
        "quantiles": (0.05, 0.5, 0.95),
        "scale_target": True,
        "clip_predictions": False,
    },
}


def paper_recipe(task: Literal["classification", "regression"], **changes: Any) -> dict[str, Any]:
    """The CombU paper's network: parameters of MLPClassifier or MLPRegressor.

    Every parameter that the network, its encoding or its training depends on is among them; not
    those of where, whence, how long and how loudly it trains: ``random_state``, ``device``,
    ``warm_start``, ``max_time``, ``callbacks``, ``verbose``, ``track_metric``.

    Parameters
    ----------
    task : {"classification", "regression"}
        ``"classification"`` for MLPClassifier, ``"regression"`` for MLPRegressor.
    **changes
        Parameters that are to have other values, or more of them.

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        If there is no such task.

    References
    ----------
    The CombU paper, appendix B: 3 linear layers of 128 units below 1,000 rows, else 6 of 256;
    Adam at a rate of 5e-4, batches of 500, dropout 0.1.

    Examples
    --------
    >>> from combutab import MLPClassifier, MLPRegressor, paper_recipe
    >>> clf = MLPClassifier(**paper_recipe("classification", max_iter=500, random_state=0))
    >>> clf.learning_rate_init, clf.dropout, clf.max_iter
    (0.0005, 0.1, 500)
    >>> MLPRegressor(**paper_recipe("regression")).clip_predictions
    False
    """
    if task not in _RECIPES:
        raise ValueError(f"task must be one of {', '.join(map(repr, _RECIPES))}, got {task!r}")
    return {**_RECIPES[task], **changes}


_HIDDEN = (256, 256)  # layers of "auto"
_RATE_FACTORS = {"bias": 0.1, "scale": 6.0}  # of "auto"; RealMLP's for these two
AUTO_ROWS = 200  # from which on early_stopping="auto" sets some aside


COUNT = Interval(Integral, 1, None, closed="left")
INFINITE = Options(Real, {np.inf})
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
SHARE = Interval(Real, 0, 1, closed="left")
RANDOM_STATE = ("random_state", np.random.Generator)
DATE_FEATURES = (StrOptions({"auto"}), "array-like")
TEXT_FEATURES = StrOptions({"auto", "ignore"})
CATEGORICAL_FEATURES = (StrOptions({"from_dtype"}), "array-like", None)


def parameter(default: Any, *allowed: object) -> Any:
    """Declare a constructor's parameter in a dataclass: its default, and what else it may be.

    ``allowed`` are constraints of ``sklearn.utils._param_validation``.
    """
    return field(default=default, metadata={"allowed": list(allowed)})


class DeclaredParameters:
    """Gives classes ``_parameter_constraints``: their bases', and those of `parameter`."""

    _parameter_constraints: ClassVar[Mapping[str, Sequence[object]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        found: dict[str, Sequence[object]] = {}
        for each in reversed(cls.__mro__):
            found |= vars(each).get("_parameter_constraints", {})
        declared = {n: each.metadata for n, each in vars(cls).items() if isinstance(each, Field)}
        found |= {n: data["allowed"] for n, data in declared.items() if "allowed" in data}
        cls._parameter_constraints = found


class _Positional(
    FittedHTML, CallbackSupport, DeclaredParameters, BaseEstimator, metaclass=ABCMeta
):
    """Parameters that may be given by position, in an order that is each class's own."""

    hidden_layer_sizes: str | int | Sequence[int]
    activation: ActivationSpec

    _parameter_constraints = {
        "hidden_layer_sizes": [StrOptions({"auto", "paper"}), "array-like", COUNT],
        "activation": [str, callable],
    }


@dataclass(eq=False, repr=False, kw_only=True)
class Parameters(_Positional):
    """The constructors' parameters, by name.

    Parameters
    ----------
    hidden_layer_sizes : "auto", "paper", int or sequence of int, default="auto"
        Units of each hidden layer. ``"paper"`` is the CombU paper's rule: (128, 128) below 1,000
        training rows, else (256,) * 5. ``"auto"`` is (256, 256).
    activation : str or callable, default="combu"
        A name of ``combutab.activations.ACTIVATIONS`` (``"relu"``, ``"combu"``, ``"pln-8"``,
        ``"la-silu"``, scikit-learn's ``"logistic"``, ...) or a callable ``width -> nn.Module``.
    solver : {"adam", "adamw", "sgd", "lbfgs"}, default="adamw"
        ``"lbfgs"`` uses all rows at once, without dropout, early stopping or callbacks.
    alpha : float, default=0.0
        Strength of the L2 penalty on the weights, divided by the batch's rows as in scikit-learn.
    batch_size : int, "auto" or "paper", default="auto"
        Rows in a batch. ``"auto"`` is a power of two: near an eighth of the training rows, from 32
        to 256, and from 65,536 rows on near a 256th of them, up to 2048; ``"paper"`` is 500.
    learning_rate : str, default="coslog4"
        Schedule: scikit-learn's ``"constant"``, ``"invscaling"`` and ``"adaptive"``, or
        ``"cosine"``, ``"one-cycle"``, ``"flat-cosine"``, ``"coslog4"`` over ``max_iter`` epochs
        (constant in ``partial_fit``); for every solver but lbfgs. ``"coslog4"`` falls to zero after
        a 15th, a fifth, seven 15ths and all of the epochs, as networks overfit some tables early
        and others late; the best epoch is kept.
    learning_rate_init : float, default=0.004, of regressors 0.008
        Initial (for ``"one-cycle"``: largest) learning rate.
    power_t : float, default=0.5
        Exponent of ``"invscaling"``.
    max_iter : int, default=100
        Epochs at most (lbfgs: iterations).
    shuffle : bool, default=True
        Draw the rows anew for each epoch's batches.
    random_state : int, RandomState, Generator or None, default=None
        Fixes weights, shuffles, dropout and the validation split; global state is never touched.
    tol : float, default=1e-6
        Improvement that counts, in loss or validation score.
    verbose : bool or int, default=False
        Print a line an epoch. For a bar, pass ``callbacks=[combutab.training.ProgressBar()]``.
    warm_start : bool, default=False
        Go on from the previous fit's weights and encoding. Parameters that shape these (layers,
        activation, normalisation, encoding, loss, ``n_members``, ...) cannot be changed meanwhile;
        those of the training can, and another integer as ``random_state`` shuffles and drops anew.
        As in scikit-learn, each fit that reaches ``max_iter`` gives a ``ConvergenceWarning``, also
        with ``n_iter_no_change=inf``.
    momentum, nesterovs_momentum : float, default=0.9, and bool, default=True
        Of ``solver="sgd"``.
    early_stopping : bool or "auto", default="auto"
        Set ``validation_fraction`` of the rows aside (stratified for classes), stop when their
        score stalls, and keep the best epoch's weights. ``"auto"`` does so from 200 rows on.
    validation_fraction : float, default=0.2
        Share of rows set aside by each network.
    early_stopping_scoring : str, callable or None, default="loss"
        The score of the rows set aside: ``"loss"``, which is minus the training's loss (without
        label smoothing), any of scikit-learn's scorers, or None for accuracy and R2.
    beta_1, beta_2, epsilon : float, default=0.9, 0.95, 1e-8
        Of Adam.
    n_iter_no_change : int or inf, default=30
        Epochs without improvement after which training stops; ``inf`` runs ``max_iter`` epochs.
    max_fun : int, default=15000
        Function calls of lbfgs at most.
    max_time : float, str or None, default=None
        Seconds, or text such as ``"90s"``, ``"2min"`` or ``"1h"``, after which training ends with
        the epoch; the best one so far is kept. Such a fit cannot be repeated exactly. In searches
        it is the time of each stack of networks. Not for lbfgs.
    validation_split : splitter, iterable of (train, test), array-like or None, default=None
        Which rows are set aside, instead of a random ``validation_fraction``: one of scikit-learn's
        splitters or the splits themselves; a boolean mask of the validation rows, or their
        positions; or one integer for each row, its fold (-1: always trains). Use it where rows are
        not independent: ``TimeSeriesSplit()``, or a mask of the latest rows, for a series, so that
        networks are validated on rows later than those they train on. The first split is used (of
        ``TimeSeriesSplit`` the last), the first two by the two networks of ``n_members="auto"``,
        and all with ``bagging="cv"``. Files do not hold it. For rows that belong to groups, such as
        the visits of one patient, give ``groups`` to ``fit``.
    dropout : float, default=0.15
        Share of hidden units dropped in training, rounded to 1/256 (but never to 0).
    weight_decay : float, default=0.02
        Decoupled decay of the weights, used by ``solver="adamw"`` alone.
    max_grad_norm : float or None, default=None
        Clip each member's gradient to this Euclidean norm.
    normalization : {"none", "batch", "layer", "group", "rms", "pln", "pls"}, default="none"
        Between each linear layer and its activation; groups are of 8 units.
    proxy_norm : bool, default=False
        Follow layer or group normalisation by proxy normalisation of the activation.
    init : str or ConstructedNetwork, default="torch"
        Initial weights: ``"torch"``, ``"kaiming"``, ``"xavier"``, ``"lecun"``, ``"ntk"`` or
        ``"data"``. ``"ntk"`` divides them by the square root of a layer's inputs in the forward
        pass, so that one learning rate suits all widths; ``"data"`` as well, and has each unit vary
        by 1 over the training rows and its zero between some of them. A network of
        ``combutab.constructions``, in the units of the table and the target, is where the training
        starts: a known law is fitted further, not learned anew. It needs ``dropout=0``, CombU (of a
        trigonometric law ``activation="complex-combu"``), inputs that are scaled alone (all as in
        ``paper_recipe``), and room in the hidden layers (``"auto"``: as much as it takes); units
        left over start as usual, unread. Its outputs are the target (classifier: the logits).
    n_members : int or "auto", default="auto"
        Number of networks, trained from different seeds as one stack; predictions are their mean.
        ``"auto"`` trains two where ``fit`` sets rows of the table aside (`early_stopping`): they
        set different rows aside, so that all rows train, and encoding and target's scaling are
        learned of all rows. It trains five with ``bagging="cv"``, and one else: on small tables,
        with ``X_val`` or lbfgs, in ``partial_fit`` and ``fit_parquet``, and where
        ``validation_fraction`` or ``validation_split`` leaves no other rows to set aside. One takes
        half the time of two.
    bagging : {"cv"} or None, default=None
        ``"cv"`` splits the rows into as many folds as members (stratified for classes): each member
        trains on the others and has its own fold as validation rows, so that all rows train and
        every member stops early and keeps its best epoch, whatever ``early_stopping`` says.
        Encoding and target's scaling are learned of all rows. Needs ``n_members`` of 2 or more;
        not for lbfgs, ``warm_start``, ``partial_fit``, ``fit_parquet``, nor with ``X_val``.
    categorical_features : "from_dtype", array-like or None, default="from_dtype"
        Which columns are categories: by dtype, by mask, positions or names, or none.
    numeric_encoding : {"standard", "quantile", "robust", "none"}, default="robust"
        Scaling of numeric columns.
    max_onehot : int, default=8
        Categorical columns of more categories are embedded instead of one-hot encoded.
    min_frequency : int or float, default=5
        Rows, or share of them, that a value must have to be kept in the fitted estimator and its
        files. Rarer categories become one, as which unseen ones count too; quantiles are taken of
        means of so many neighbours. 1 keeps all.
    date_features : "auto" or list of str, default="auto"
        What a date becomes: a list of ``"number"`` (seconds, scaled like other numbers), and of
        ``"hour"``, ``"dayofweek"``, ``"day"``, ``"month"`` and ``"dayofyear"``, each a sine and a
        cosine of the local time. ``"auto"`` takes the number and those that the dates have and
        cover; `combutab.preprocessing.TableEncoder` has the rule. Leave ``"number"`` out where new
        rows are later than all training rows and no trend is to be extrapolated.
    text_features : {"auto", "ignore"}, default="auto"
        What becomes of columns of free text: up to 30 numbers each, from hashed n-grams of
        characters by a truncated SVD, or nothing. `combutab.preprocessing.TableEncoder` says which
        columns are free text.
    embedding_dim : int, default=8
        Width of those embeddings.
    numeric_embedding : {"none", "pbld", "piecewise-linear"}, default="pbld"
        Numbers as they are, or each as ``numeric_embedding_dim`` numbers: itself and linear maps of
        cosines of learned frequencies, as RealMLP has it; or piecewise-linear functions, whose
        kinks are at quantiles of the training rows, as TabM has it.
    numeric_embedding_dim, n_frequencies, frequency_scale : int, int and float, default=4, 16, 0.1
        Of those embeddings; the scale is the standard deviation of the first frequencies.
    n_bins : int, default=48
        Bins of the piecewise-linear functions at most, which have as many pieces.
    scale_inputs : bool, default=True
        Multiply each input of the first layer by a learned factor.
    learning_rate_factors : dict, "auto" or None, default="auto"
        Factors of the learning rate by parameters' role: "weight", "bias", "normalization",
        "activation", "embedding", "scale". ``"auto"`` is 6 for the scale and 0.1 for biases; None
        is 1 for all.
    regularization_schedule : str, default="flat-cosine"
        How dropout and weight decay change from epoch to epoch, over ``max_iter`` of them:
        ``"constant"``, or one of the schedules of ``learning_rate`` by the step.
    device : str or torch.device, default="auto"
        ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
    precision : {"float32", "float64", "bf16-mixed"}, default="float32"
        What the network computes in. Predictions are float64, of that precision.
    track_metric : bool, default=False
        Also record, in ``history_``, the accuracy (regressor: the mean absolute error, in the units
        of the scaled target) on each epoch's training batches, as trained, dropout included.
    callbacks : list of combutab.training.Callback or None, default=None
        Told of every epoch; may stop the training. `combutab.evaluation.ActivationRecorder` records
        what the units do. scikit-learn's own (1.9 and later) are given by ``set_callbacks``: a
        ``sklearn.callback.ProgressBar`` of a search or a pipeline shows our epochs, too.
    """

    solver: str = parameter("adamw", StrOptions(set(SOLVERS)))
    alpha: float = parameter(0.0, NOT_NEGATIVE)
    batch_size: int | str = parameter("auto", StrOptions({"auto", "paper"}), COUNT)
    learning_rate: str = parameter("coslog4", StrOptions(set(SCHEDULES)))
    learning_rate_init: float = parameter(0.004, POSITIVE)
    power_t: float = parameter(0.5, NOT_NEGATIVE)
    max_iter: int = parameter(100, COUNT)
    shuffle: bool = parameter(True, "boolean")
    random_state: Any = parameter(None, *RANDOM_STATE)
    tol: float = parameter(1e-6, NOT_NEGATIVE)
    verbose: bool | int = parameter(False, "verbose")
    warm_start: bool = parameter(False, "boolean")
    momentum: float = parameter(0.9, Interval(Real, 0, 1, closed="both"))
    nesterovs_momentum: bool = parameter(True, "boolean")
    early_stopping: bool | str = parameter("auto", "boolean", StrOptions({"auto"}))
    validation_fraction: float = parameter(0.2, SHARE)
    beta_1: float = parameter(0.9, SHARE)
    beta_2: float = parameter(0.95, SHARE)
    epsilon: float = parameter(1e-8, POSITIVE)
    n_iter_no_change: float = parameter(30, COUNT, INFINITE)
    max_fun: int = parameter(15000, COUNT)
    early_stopping_scoring: str | Callable[..., float] | None = parameter(
        "loss", None, str, callable
    )
    max_time: float | str | None = parameter(None, None, str, POSITIVE)
    validation_split: Any = parameter(
        None, None, "array-like", HasMethods(["split", "get_n_splits"])
    )
    dropout: float = parameter(0.15, SHARE)
    weight_decay: float = parameter(0.02, NOT_NEGATIVE)
    max_grad_norm: float | None = parameter(None, None, POSITIVE)
    normalization: str = parameter("none", StrOptions(set(NORMALIZATIONS)))
    proxy_norm: bool = parameter(False, "boolean")
    init: str | ConstructedNetwork = parameter(
        "torch", StrOptions(set(INITIALISATIONS)), ConstructedNetwork
    )
    n_members: int | str = parameter("auto", StrOptions({"auto"}), COUNT)
    bagging: str | None = parameter(None, StrOptions({"cv"}), None)
    categorical_features: Any = parameter("from_dtype", *CATEGORICAL_FEATURES)
    numeric_encoding: Literal["standard", "quantile", "robust", "none"] = parameter(
        "robust", StrOptions({"standard", "quantile", "robust", "none"})
    )
    max_onehot: int = parameter(8, Interval(Integral, 0, None, closed="left"))
    min_frequency: float = parameter(5, COUNT, Interval(RealNotInt, 0, 1, closed="neither"))
    date_features: Any = parameter("auto", *DATE_FEATURES)
    text_features: Literal["auto", "ignore"] = parameter("auto", TEXT_FEATURES)
    embedding_dim: int = parameter(8, COUNT)
    numeric_embedding: str = parameter("pbld", StrOptions(set(NUMERIC_EMBEDDINGS)))
    numeric_embedding_dim: int = parameter(4, Interval(Integral, 2, None, closed="left"))
    n_bins: int = parameter(48, COUNT)
    n_frequencies: int = parameter(16, COUNT)
    frequency_scale: float = parameter(0.1, NOT_NEGATIVE)
    scale_inputs: bool = parameter(True, "boolean")
    learning_rate_factors: Mapping[str, float] | str | None = parameter(
        "auto", dict, StrOptions({"auto"}), None
    )
    regularization_schedule: str = parameter("flat-cosine", StrOptions({"constant", *PER_STEP}))
    device: str | torch.device = parameter("auto", str, torch.device)
    precision: str = parameter("float32", StrOptions(set(PRECISIONS)))
    track_metric: bool = parameter(False, "boolean")
    callbacks: Sequence[Callback] | None = parameter(None, list, tuple, None)

    @abstractmethod
    def _loss(self) -> Loss:
        """The loss of the fitted target."""

    def checked(self) -> Self:
        """The estimator itself, once all its parameters are checked; ValueError if one is wrong."""
        self._validate_params()
        self._check_parameters()
        return self

    def _check_parameters(self) -> None:
        """Check what scikit-learn's validation cannot see, before any work on the data."""
        resolve_device(self.device)
        check_date_features(self.date_features)
        sizes = self.hidden_layer_sizes
        if not isinstance(sizes, str):
            as_list = list(sizes) if isinstance(sizes, Iterable) else [sizes]
            if any(not isinstance(s, Integral) or s <= 0 for s in as_list):
                raise ValueError(f"hidden_layer_sizes must be > 0, got {as_list}.")
        if not isinstance(self.init, str):
            check_initial(self.init, self.get_params(deep=False))
        for width in set(self._hidden_layer_sizes(0)):
            check_activation(self.activation, width, proxy_norm=self.proxy_norm)
            if self.normalization != "none":
                StackedNorm(self.normalization, width, 1)
        check_proxy_norm(self.proxy_norm, self.normalization)
        if self.early_stopping_scoring not in (None, "loss"):
            check_scoring(self, scoring=self.early_stopping_scoring)
        parse_seconds(self.max_time)
        if self.max_time is not None and self.solver == "lbfgs":
            raise ValueError("solver='lbfgs' has no epochs to end with: set max_time=None")
        if self.validation_split is not None and (
            self.solver == "lbfgs" or (self.early_stopping is False and self.bagging is None)
        ):
            why = "solver='lbfgs'" if self.solver == "lbfgs" else "early_stopping=False"
            raise ValueError(
                f"{why} sets no rows aside, and validation_split is given; set one of them to "
                "another value"
            )
        check_rate_factors(self._rate_factors())
        for callback in self.callbacks or ():
            if not callable(getattr(callback, "on_epoch_end", None)):
                raise ValueError(
                    f"callbacks must be combutab.training.Callback objects, got {callback!r}"
                )

    def _calibrates(self) -> bool:
        """Tell whether outputs are scaled to suit the rows set aside."""
        return False

    def _stops_early(self, n_rows: int, min_rows: int = AUTO_ROWS) -> bool:
        """Tell whether some of so many rows are set aside, "auto" from ``min_rows`` on."""
        if self.solver == "lbfgs":  # as in scikit-learn
            return False
        if self.early_stopping == "auto":
            return n_rows >= min_rows
        return bool(self.early_stopping)

    def _architecture_parameters(self) -> dict[str, Any]:
        """Return what a fit settles for those that go on from it."""
        return architecture_parameters(self.get_params(deep=False))

    def _hidden_layer_sizes(self, n_rows: int) -> tuple[int, ...]:
        sizes, widths = self.hidden_layer_sizes, None
        if not isinstance(sizes, str):
            widths = tuple(map(int, sizes if isinstance(sizes, Iterable) else [sizes]))
        if not isinstance(self.init, str):
            return initial_widths(self.init, self.activation, widths)
        if widths is None and sizes == "paper":
            return _SMALL if n_rows < _SMALL_TABLE else _LARGE
        return _HIDDEN if widths is None else widths

    def make_encoder(self) -> TableEncoder:
        """Make an unfitted encoder of the table, as the parameters ask for."""
        return TableEncoder(
            categorical_features=self.categorical_features,
            numeric=self.numeric_encoding,
            max_onehot=self.max_onehot,
            min_frequency=self.min_frequency,
            n_bins=self.n_bins if self.numeric_embedding == "piecewise-linear" else None,
            date_features=self.date_features,
            text_features=self.text_features,
        )

    def _train_config(self, n_rows: int, score: str | None, epochs: int | None) -> TrainConfig:
        endless = epochs is not None  # partial_fit's, which does not know when training ends
        learning_rate, regularization_schedule = (
            "constant" if endless and schedule in PER_STEP else schedule
            for schedule in (self.learning_rate, self.regularization_schedule)
        )
        return TrainConfig(
            loss=self._loss(),
            optimizer=OptimizerConfig(
                self.solver,
                self.beta_1,
                self.beta_2,
                self.epsilon,
                self.momentum,
                self.nesterovs_momentum,
            ),
            batch_size=self._checked_batch_size(n_rows),
            max_epochs=epochs or self.max_iter,
            max_seconds=parse_seconds(self.max_time),
            score=score,
            calibrated=score is not None and self._calibrates(),
            learning_rate=learning_rate,
            rate_factors=tuple(sorted(self._rate_factors().items())),
            regularization_schedule=regularization_schedule,
            power_t=self.power_t,
            shuffle=self.shuffle,
            tol=self.tol,
            n_iter_no_change=self.n_iter_no_change,
            max_grad_norm=self.max_grad_norm,
            track_metric=self.track_metric,
            precision=Precision(self.precision),
        )

    def _rate_factors(self) -> Mapping[str, float]:
        factors = self.learning_rate_factors
        return _RATE_FACTORS if isinstance(factors, str) else factors or {}

    def _checked_batch_size(self, n_rows: int) -> int:
        if self.batch_size == "paper":
            return PAPER_BATCH
        if isinstance(self.batch_size, str) or self.solver == "lbfgs":
            return _auto_batch_size(n_rows)
        if self.batch_size > n_rows:
            warnings.warn(
                f"Got `batch_size` {self.batch_size}, larger than the {n_rows} rows to train on. "
                "It is going to be clipped",
                stacklevel=6,
            )
        return int(self.batch_size)

    def _all_callbacks(self) -> list[Callback]:
        callbacks = list(self.callbacks or ())
        return [VerboseLines(), *callbacks] if self.verbose else callbacks


def _auto_batch_size(n_rows: int) -> int:
    """An eighth of a small table, 256 rows of most, and a 256th of a large one.

    >>> [_auto_batch_size(n) for n in (20, 1000, 10**4, 10**6, 10**8)]
    [32, 128, 256, 2048, 2048]
    """
    wanted = min(max(n_rows / 8, 32), 256)
    return int(min(2 ** round(math.log2(max(wanted, n_rows / 256))), 2048))


def check_rate_factors(factors: Mapping[str, float]) -> None:
    """Refuse factors of roles that no parameter has, or that are no positive numbers."""
    for role, factor in factors.items():
        if role not in ROLES:
            raise ValueError(
                f"learning_rate_factors knows {', '.join(map(repr, ROLES))}, got {role!r}"
            )
        if isinstance(factor, bool) or not isinstance(factor, Real) or not 0 < factor < np.inf:
            raise ValueError(
                f"learning_rate_factors[{role!r}] must be a positive number, got {factor!r}"
            )
