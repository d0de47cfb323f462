"""The parameters that both estimators share, and settings that follow from them."""

from __future__ import annotations

import inspect
import math
import re
import textwrap
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils._param_validation import HasMethods, Interval, RealNotInt, StrOptions

from combutab.constructions import ConstructedNetwork
from combutab.core.device import PRECISIONS, Precision, resolve_device
from combutab.core.files import check_parameters
from combutab.core.html import FittedHTML
from combutab.core.parameters import (
    COUNT,
    INFINITE,
    NOT_NEGATIVE,
    POSITIVE,
    RANDOM_STATE,
    SHARE,
    DeclaredParameters,
    parameter,
)
from combutab.core.scorers import scorer_name
from combutab.core.tasks import CallbackSupport, check_callbacks
from combutab.core.text import parse_seconds
from combutab.estimators._initial import check_initial, initial_widths
from combutab.estimators._jobs import comparable_parameter
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
    """Return the parameters of MLPClassifier or MLPRegressor for the CombU paper's network.

    It contains all parameters of the network, the encoding and the training, except
    ``random_state``, ``device``, ``warm_start``, ``max_time``, ``callbacks``, ``verbose`` and
    ``track_metric``.

    Parameters
    ----------
    task : {"classification", "regression"}
        ``"classification"`` for MLPClassifier, ``"regression"`` for MLPRegressor.
    **changes
        Parameters with other values, or additional parameters.

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        If the task is unknown.

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
_MIN_CYCLE_GAIN = 0.02  # of the validation loss, by a cycle of the learning rate
_RATE_FACTORS = {"bias": 0.1, "scale": 6.0}  # of "auto"; RealMLP's for these two
AUTO_ROWS = 200  # from which on early_stopping="auto" sets some aside


DATE_FEATURES = (StrOptions({"auto"}), "array-like")
TEXT_FEATURES = StrOptions({"auto", "ignore"})
CATEGORICAL_FEATURES = (StrOptions({"from_dtype"}), "array-like", None)


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


ParametersT = TypeVar("ParametersT", bound="Parameters")


@dataclass(eq=False, repr=False, kw_only=True)
class Parameters(_Positional):
    """The constructors' parameters, by name.

    Parameters
    ----------
    hidden_layer_sizes : "auto", "paper", int or sequence of int, default="auto"
        Number of units in each hidden layer. ``"auto"`` is (256, 256). ``"paper"`` is the rule of
        the CombU paper: (128, 128) for fewer than 1,000 training rows, (256,) * 5 otherwise.
    activation : str or callable, default="combu"
        Activation function of the hidden layers: a name in ``combutab.activations.ACTIVATIONS``
        (``"relu"``, ``"combu"``, ``"pln-8"``, ``"la-silu"``, scikit-learn's ``"logistic"``, ...),
        or a callable ``width -> nn.Module``.
    solver : {"adam", "adamw", "sgd", "lbfgs"}, default="adamw"
        Optimizer. ``"lbfgs"`` uses all rows in each step, without dropout, early stopping or
        callbacks.
    alpha : float, default=0.0
        Strength of the L2 penalty on the weights. As in scikit-learn, it is divided by the number
        of rows in the batch.
    batch_size : int, "auto" or "paper", default="auto"
        Number of rows per batch. ``"auto"`` is a power of two: about an eighth of the training
        rows, between 32 and 256; with 65,536 training rows or more about a 256th of them, at most
        2,048. ``"paper"`` is 500.
    learning_rate : str, default="coslog4"
        Learning rate schedule: scikit-learn's ``"constant"``, ``"invscaling"`` and ``"adaptive"``,
        or ``"cosine"``, ``"one-cycle"``, ``"flat-cosine"`` or ``"coslog4"`` over ``max_iter``
        epochs (constant in ``partial_fit``). lbfgs has no schedule. ``"coslog4"`` decreases to zero
        four times, after 1/15, 1/5, 7/15 and all of the epochs. Networks overfit some tables early
        and others late, and the best epoch is kept.
    learning_rate_init : float, default=0.004, for regressors 0.008
        Initial learning rate; for ``"one-cycle"`` the largest.
    power_t : float, default=0.5
        Exponent of ``learning_rate="invscaling"``.
    max_iter : int, default=100
        Maximum number of epochs (lbfgs: of iterations).
    shuffle : bool, default=True
        Whether to shuffle the rows in each epoch.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the weights, the shuffling, dropout and the validation split. Global random state is
        not changed. Pass an int for reproducible results.
    tol : float, default=1e-6
        Smallest change of the loss, or of the validation score, that counts as an improvement.
    verbose : bool or int, default=False
        Whether to print a line per epoch. For a progress bar, pass
        ``callbacks=[combutab.training.ProgressBar()]``.
    warm_start : bool, default=False
        Whether ``fit`` continues from the weights and the encoding of the previous fit. Parameters
        that shape them (layers, activation, normalization, encoding, loss, ``n_members``, ...)
        cannot be changed between the two fits. Parameters of the training can be changed; another
        integer as ``random_state`` changes the shuffling and dropout. As in scikit-learn, each fit
        that reaches ``max_iter`` emits a ``ConvergenceWarning``, also with
        ``n_iter_no_change=inf``.
    momentum, nesterovs_momentum : float, default=0.9, and bool, default=True
        Momentum, and whether to use Nesterov's, with ``solver="sgd"``.
    early_stopping : bool or "auto", default="auto"
        Whether to set ``validation_fraction`` of the rows aside (stratified for classes), to stop
        the training when their score does not improve for ``n_iter_no_change`` epochs, and to keep
        the weights of the best epoch. ``"auto"`` does so for tables of 200 rows or more.
    validation_fraction : float, default=0.2
        Share of the rows that each network sets aside for validation.
    early_stopping_scoring : str, callable or None, default="loss"
        Score of the validation rows: ``"loss"``, which is the negative training loss (without label
        smoothing), a metric such as ``"roc_auc"``, ``"f1"`` or ``"rmse"``, any scorer of
        scikit-learn, or None for accuracy (classifier) and R2 (regressor). For a metric by its
        name, the positive one of two classes is 1 or True, else the rarer class. Rows have the
        weights that they would have in training, including ``class_weight``.
    beta_1, beta_2, epsilon : float, default=0.9, 0.95, 1e-8
        Decay rates of the two moment estimates and the numerical constant of Adam and AdamW.
    n_iter_no_change : int or inf, default=30
        Number of epochs without improvement after which training stops. It also stops after a
        cycle of the learning rate (``"coslog4"``, of 60 epochs or more) that lowered the validation
        loss by less than 2 %. ``inf`` runs all ``max_iter`` epochs.
    max_fun : int, default=15000
        Maximum number of function calls, with ``solver="lbfgs"``.
    max_time : float, str or None, default=None
        Time limit in seconds, or as text such as ``"90s"``, ``"2min"`` or ``"1h"``. Training stops
        at the end of the epoch in which it is reached, and the best epoch is kept. Such a fit
        cannot be repeated exactly. In a search it limits each stack of networks. Not for lbfgs.
    validation_split : splitter, iterable of (train, test), array-like or None, default=None
        Validation rows, instead of a random ``validation_fraction``: a splitter of scikit-learn or
        the splits themselves; a boolean mask of the validation rows, or their positions; or an
        array with the fold of each row as an integer (-1: the row is always used for training).
        Use it where rows are not independent: for a time series, ``TimeSeriesSplit()`` or a mask of
        the latest rows validates networks on rows later than their training rows. One network uses
        the first split (of ``TimeSeriesSplit`` the last), the networks of ``n_members="auto"`` the
        first three, and ``bagging="cv"`` all of them. Files do not contain it. If rows belong to
        groups, such as the visits of a patient, pass ``groups`` to ``fit``.
    dropout : float, default=0.15
        Probability with which a hidden unit is dropped during training, rounded to a multiple of
        1/256 (a positive value is not rounded to 0).
    weight_decay : float, default=0.02
        Decoupled weight decay of ``solver="adamw"``; other solvers do not use it.
    max_grad_norm : float or None, default=None
        Largest Euclidean norm of each network's gradient; larger gradients are scaled down to it.
        None does not clip.
    normalization : {"none", "batch", "layer", "group", "rms", "pln", "pls"}, default="none"
        Normalization between each linear layer and its activation. Groups have 8 units.
    proxy_norm : bool, default=False
        Whether to add Proxy Normalization of the activation after layer or group normalization.
    init : str or ConstructedNetwork, default="torch"
        Initialization of the weights: ``"torch"``, ``"kaiming"``, ``"xavier"``, ``"lecun"``,
        ``"ntk"`` or ``"data"``. ``"ntk"`` divides the weights by the square root of the number of
        the layer's inputs in the forward pass, so that one learning rate suits all widths.
        ``"data"`` does the same, scales each unit to variance 1 over the training rows, and puts
        the point where it is zero among them. A network of ``combutab.constructions``, in the units
        of the table and of the target, starts the training from a known formula. It needs
        ``dropout=0``, CombU (for a trigonometric formula ``activation="complex-combu"``), inputs
        that are only scaled (``paper_recipe`` sets all of these), and enough hidden units
        (``"auto"``: as many as it needs). The remaining units are initialized as usual and not
        connected to the output. Its outputs are the target (classifier: the logits).
    n_members : int or "auto", default="auto"
        Number of networks. They are trained together from different seeds, and predictions are
        their mean. ``"auto"`` trains three networks if ``fit`` sets rows aside (see
        ``early_stopping``): each sets other rows aside, so that all rows are used for training. The
        encoding and the scale of the target are learned from the rows that a network trains on, and
        from no others: here from all rows. There are fewer networks if ``validation_fraction`` or
        ``validation_split`` leave no other rows to set aside. It trains five with
        ``bagging="cv"``. In all other cases it trains one: on small tables, with ``X_val`` or
        lbfgs, in ``partial_fit`` and ``fit_parquet``. ``n_members=1`` takes less than half the
        time.
    bagging : {"cv"} or None, default=None
        ``"cv"`` splits the rows into as many folds as there are networks (stratified for classes).
        Each network is trained on the other folds and validated on its own, so that all rows are
        used for training and each network keeps its best epoch, whatever ``early_stopping`` is. The
        encoding and the scale of the target are learned from all rows that a network trains on. It
        needs ``n_members`` of 2
        or more, and cannot be used with lbfgs, ``warm_start``, ``partial_fit``, ``fit_parquet`` or
        ``X_val``.
    categorical_features : "from_dtype", array-like or None, default="from_dtype"
        Which columns are categorical: by their dtype, by a boolean mask, positions or names, or
        None for no column.
    numeric_encoding : {"standard", "quantile", "robust", "none"}, default="robust"
        Scaling of numeric columns: by mean and standard deviation, to a normal distribution by
        quantiles, by median and quantile range with a smooth clipping of outliers, or none.
    max_onehot : int, default=8
        Largest number of categories that are one-hot encoded. Columns with more have embeddings.
        Ordered categories (``ordered=True`` in pandas) always have embeddings, which start with the
        ranks of the categories.
    min_frequency : int or float, default=5
        Number of rows, or share of them, that a value must have to be kept in the fitted estimator
        and its files. Rarer categories are merged into one, which unseen categories also get, and
        each quantile is the mean of that many neighbouring values. 1 keeps every value.
    date_features : "auto" or list of str, default="auto"
        Encoding of dates: a list of ``"number"`` (seconds, scaled like other numbers), ``"hour"``,
        ``"dayofweek"``, ``"day"``, ``"month"`` and ``"dayofyear"`` (each as sine and cosine of the
        local time). ``"auto"`` uses the number and those parts that vary over their whole range in
        the training rows (the rule is in `combutab.preprocessing.TableEncoder`). Leave ``"number"``
        out if new rows are later than all training rows and there is no trend to extrapolate.
    text_features : {"auto", "ignore"}, default="auto"
        Encoding of columns of free text: ``"auto"`` makes up to 30 numbers per column, a truncated
        SVD of hashed character n-grams; ``"ignore"`` leaves these columns out. Which columns are
        free text is described in `combutab.preprocessing.TableEncoder`.
    embedding_dim : int, default=8
        Dimension of the embeddings of categories.
    numeric_embedding : {"none", "pbld", "piecewise-linear"}, default="pbld"
        Embedding of each numeric column in ``numeric_embedding_dim`` dimensions. ``"pbld"``, as in
        RealMLP: the number itself, and linear maps of cosines of learned frequencies.
        ``"piecewise-linear"``, as in TabM: piecewise linear functions with kinks at quantiles of
        the training rows. ``"none"`` uses the scaled number itself.
    numeric_embedding_dim, n_frequencies, frequency_scale : int, int and float, default=4, 16, 0.1
        Dimension of the numeric embeddings; with ``"pbld"``, number of frequencies per column, and
        standard deviation of the initial frequencies.
    n_bins : int, default=48
        Largest number of bins, and of linear pieces, with ``numeric_embedding="piecewise-linear"``.
    scale_inputs : bool, default=True
        Whether to multiply each input of the first layer by a learned factor.
    learning_rate_factors : dict, "auto" or None, default="auto"
        Factors of the learning rate for parameters of the roles ``"weight"``, ``"bias"``,
        ``"normalization"``, ``"activation"``, ``"embedding"`` and ``"scale"``. ``"auto"`` is 6 for
        ``"scale"`` and 0.1 for ``"bias"``. None is 1 for all.
    regularization_schedule : str, default="flat-cosine"
        Schedule of dropout and weight decay over ``max_iter`` epochs: ``"constant"``, or a schedule
        of ``learning_rate`` that changes with each step.
    device : str or torch.device, default="auto"
        Device of the training and of predictions: ``"auto"`` (a GPU if there is one), ``"cpu"``,
        ``"cuda"`` or ``"cuda:1"``.
    precision : {"float32", "float64", "bf16-mixed"}, default="float32"
        Precision of the network's computations. Predictions are returned as float64.
    track_metric : bool, default=False
        Whether to record in ``history_`` the accuracy (regressor: the mean absolute error, in the
        units of the scaled target) on the training batches of each epoch, with dropout.
    callbacks : list of combutab.training.Callback or None, default=None
        Objects that are called after each epoch and can stop the training. Callbacks of
        scikit-learn (1.9 and later) are passed to ``set_callbacks``; for example a
        ``sklearn.callback.ProgressBar`` of a search or a pipeline also shows the epochs.
    """

    solver: str = parameter("adamw", StrOptions(set(SOLVERS)), concerns="data")
    alpha: float = parameter(0.0, NOT_NEGATIVE, concerns="training")
    batch_size: int | str = parameter(
        "auto", StrOptions({"auto", "paper"}), COUNT, concerns="training"
    )
    learning_rate: str = parameter("coslog4", StrOptions(set(SCHEDULES)), concerns="training")
    learning_rate_init: float = parameter(0.004, POSITIVE, concerns="training")
    power_t: float = parameter(0.5, NOT_NEGATIVE, concerns="training")
    max_iter: int = parameter(100, COUNT, concerns="training")
    shuffle: bool = parameter(True, "boolean", concerns="training")
    random_state: Any = parameter(None, *RANDOM_STATE, concerns="training")
    tol: float = parameter(1e-6, NOT_NEGATIVE, concerns="training")
    verbose: bool | int = parameter(False, "verbose", concerns="training")
    warm_start: bool = parameter(False, "boolean", concerns="data")
    momentum: float = parameter(0.9, Interval(Real, 0, 1, closed="both"), concerns="training")
    nesterovs_momentum: bool = parameter(True, "boolean", concerns="training")
    early_stopping: bool | str = parameter("auto", "boolean", StrOptions({"auto"}), concerns="data")
    validation_fraction: float = parameter(0.2, SHARE, concerns="data")
    beta_1: float = parameter(0.9, SHARE, concerns="training")
    beta_2: float = parameter(0.95, SHARE, concerns="training")
    epsilon: float = parameter(1e-8, POSITIVE, concerns="training")
    n_iter_no_change: float = parameter(30, COUNT, INFINITE, concerns="training")
    max_fun: int = parameter(15000, COUNT, concerns="training")
    early_stopping_scoring: str | Callable[..., float] | None = parameter(
        "loss", None, str, callable, concerns="training"
    )
    max_time: float | str | None = parameter(None, None, str, POSITIVE, concerns="training")
    validation_split: Any = parameter(
        None, None, "array-like", HasMethods(["split", "get_n_splits"]), concerns="data"
    )
    dropout: float = parameter(0.15, SHARE, concerns="training")
    weight_decay: float = parameter(0.02, NOT_NEGATIVE, concerns="training")
    max_grad_norm: float | None = parameter(None, None, POSITIVE, concerns="training")
    normalization: str = parameter("none", StrOptions(set(NORMALIZATIONS)))
    proxy_norm: bool = parameter(False, "boolean")
    init: str | ConstructedNetwork = parameter(
        "torch", StrOptions(set(INITIALISATIONS)), ConstructedNetwork
    )
    n_members: int | str = parameter("auto", StrOptions({"auto"}), COUNT)
    bagging: str | None = parameter(None, StrOptions({"cv"}), None, concerns="data")
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
        "auto", dict, StrOptions({"auto"}), None, concerns="training"
    )
    regularization_schedule: str = parameter(
        "flat-cosine", StrOptions({"constant", *PER_STEP}), concerns="training"
    )
    device: str | torch.device = parameter("auto", str, torch.device, concerns="training")
    precision: str = parameter("float32", StrOptions(set(PRECISIONS)), concerns="data")
    track_metric: bool = parameter(False, "boolean", concerns="training")
    callbacks: Sequence[Callback] | None = parameter(None, list, tuple, None, concerns="training")

    @abstractmethod
    def _loss(self) -> Loss:
        """The loss of the fitted target."""

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
        if self.early_stopping_scoring != "loss":
            check_scorer(self, "early_stopping_scoring", self.early_stopping_scoring)
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
        check_callbacks(self.callbacks)

    def _calibrates(self) -> bool:
        """Tell whether outputs are scaled to suit the rows set aside."""
        return False

    def _stops_early(self, n_rows: int, min_rows: int = AUTO_ROWS) -> bool:
        """Tell whether rows are set aside for validation; "auto" needs ``min_rows``."""
        if self.solver == "lbfgs":  # as in scikit-learn
            return False
        if self.early_stopping == "auto":
            return n_rows >= min_rows
        return bool(self.early_stopping)

    def _architecture_parameters(self) -> dict[str, Any]:
        """The parameters that a warm start cannot change: all that do not concern the training."""
        changeable = {*self._parameters_of("training"), *self._parameters_of("data")}
        return {
            name: comparable_parameter(value, name)
            for name, value in self.get_params(deep=False).items()
            if name not in changeable
        }

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

    def _train_config(self, n_rows: int, score: str | None, *, partial: bool) -> TrainConfig:
        """The settings of the training; a ``partial`` fit does not know when it ends."""
        learning_rate, regularization_schedule = (
            "constant" if partial and schedule in PER_STEP else schedule
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
            max_epochs=1 if partial else self.max_iter,
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
            min_cycle_gain=_MIN_CYCLE_GAIN if score == "loss" else 0.0,
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
    size = min(max(n_rows / 8, 32), 256)
    return int(min(2 ** round(math.log2(max(size, n_rows / 256))), 2048))


def check_scorer(estimator: BaseEstimator, name: str, scoring: Any) -> None:
    """Refuse a score of this parameter that is not known, or is one of the other task."""
    if not isinstance(scoring, str):
        return
    task = "classification" if is_classifier(estimator) else "regression"
    try:
        scorer_name(scoring, task)
    except ValueError as error:
        raise ValueError(f"{name}={scoring!r} cannot score a model of {task}: {error}") from None


def validate_parameters(estimator: ParametersT) -> ParametersT:
    """Check all parameters of an unfitted estimator, and return the estimator.

    Raises ``ValueError`` if a parameter has a wrong value.
    """
    check_parameters(estimator)
    estimator._check_parameters()
    return estimator


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


# ---- Docstrings of the public estimators, with the shared sections of their base classes ---------

T = TypeVar("T", bound=type)


def document(cls: T) -> T:
    """Fill ``{parameters}`` and ``{attributes}`` into a class's docstring, from those of its bases.

    Texts of packs say ``{member}`` for the class of their members.
    """
    member = getattr(cls, "_member_class", cls).__name__
    sections = {
        name: textwrap.indent(_section(cls, name.title()), "    ").lstrip()
        for name in ("parameters", "attributes")
    }
    cls.__doc__ = (cls.__doc__ or "").format(**sections).replace("{member}", member)
    return cls


def _section(cls: type, title: str) -> str:
    """The text below a title of numpydoc, of the last base that has one: the most general."""
    for base in reversed(cls.__mro__[1:]):
        doc = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        _, heading, text = doc.partition(f"{title}\n{'-' * len(title)}\n")
        if heading and base.__module__.startswith("combutab.estimators"):
            return re.split(r"\n\n\w+\n---", text)[0]
    return ""
