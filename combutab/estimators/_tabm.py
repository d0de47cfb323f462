"""TabMClassifier and TabMRegressor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Literal

from sklearn.utils._param_validation import StrOptions

from combutab._model_files import loadable
from combutab.core.parameters import COUNT, parameter
from combutab.estimators._classifier import MLPClassifier
from combutab.estimators._parameters import document
from combutab.estimators._regressor import MLPRegressor
from combutab.estimators._streaming import StreamedMLP
from combutab.nn import INITIALISATIONS, ActivationSpec, MLPSpec, NetworkSpec, TabMSpec

_BATCH = 256  # of batch_size="auto"


@dataclass(eq=False, repr=False, kw_only=True)
class _TabM(StreamedMLP):
    """The network of both estimators, and the defaults of TabM's paper."""

    n_heads: int = parameter(32, COUNT)
    n_members: int | str = 1
    # "data" and networks say what each unit is, which heads see differently
    init: Any = parameter("torch", StrOptions(set(INITIALISATIONS) - {"data"}))
    learning_rate: str = "constant"
    learning_rate_init: float = 0.002
    max_iter: int = 200
    beta_2: float = 0.999
    n_iter_no_change: float = 16
    dropout: float = 0.1
    weight_decay: float = 0.0003
    max_grad_norm: float | None = 1.0
    numeric_encoding: Literal["standard", "quantile", "robust", "none"] = "quantile"
    max_onehot: int = 32
    numeric_embedding: str = "piecewise-linear"
    numeric_embedding_dim: int = 16
    scale_inputs: bool = False
    learning_rate_factors: Mapping[str, float] | None = None
    regularization_schedule: str = "constant"

    _parameter_constraints = {"hidden_layer_sizes": ["array-like", COUNT]}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not self._hidden_layer_sizes(0):
            raise ValueError(
                "hidden_layer_sizes must name at least one layer, which the heads share, got "
                f"{self.hidden_layer_sizes!r}"
            )

    def _make_spec(self, n_rows: int) -> NetworkSpec:
        perceptron = super()._make_spec(n_rows)
        assert isinstance(perceptron, MLPSpec)
        settings = {field.name: getattr(perceptron, field.name) for field in fields(perceptron)}
        return TabMSpec(**settings, n_heads=int(self.n_heads))

    def _checked_batch_size(self, n_rows: int) -> int:
        is_default = self.batch_size == "auto" and self.solver != "lbfgs"
        return _BATCH if is_default else super()._checked_batch_size(n_rows)


@loadable
@document
@dataclass(eq=False, repr=False)
class TabMClassifier(_TabM, MLPClassifier):
    """TabM classifier: an ensemble of k perceptrons that share most of their weights.

    The k heads have the same weights except for factors of rank one. Each head scales the inputs by
    its own random factors and is trained with its own loss. The prediction, and the score for early
    stopping, is the mean of their probabilities. All parameters and methods of ``MLPClassifier``
    are available; a fit takes about k times as long.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(256, 256, 256)
        Number of units in each hidden layer, the same for all heads. The paper uses 512.
    activation : str or callable, default="relu"
        Activation function: a name in ``combutab.activations.ACTIVATIONS`` or a callable
        ``width -> nn.Module``.
    n_heads : int, default=32
        Number k of heads, whose predictions are averaged.
    numeric_embedding : {{"none", "pbld", "piecewise-linear"}}, default="piecewise-linear"
        Embedding of each numeric column: piecewise linear functions with kinks at quantiles of the
        training rows, in ``numeric_embedding_dim`` dimensions, or as in ``MLPClassifier``.
    numeric_embedding_dim, n_bins : int, default=16, 48
        Dimension of these embeddings, and their number of bins. There is a kink between each two
        bins.
    numeric_encoding : {{"standard", "quantile", "robust", "none"}}, default="quantile"
        Scaling of numeric columns.
    init : {{"torch", "kaiming", "xavier", "lecun", "ntk"}}, default="torch"
        Initialization of the weights of the linear layers.
    solver, learning_rate, learning_rate_init, beta_2 : default="adamw", "constant", 0.002, 0.999
        As in ``MLPClassifier``, with other defaults. ``batch_size="auto"`` is min(256, n_samples).
    max_iter, dropout, weight_decay, max_grad_norm : default=200, 0.1, 0.0003, 1.0
        As in ``MLPClassifier``, with other defaults.
    learning_rate_factors, regularization_schedule : default=None, "constant"
        As in ``MLPClassifier``, with other defaults.
    max_onehot, scale_inputs : default=32, False
        As in ``MLPClassifier``, with other defaults.
    early_stopping, validation_fraction, n_iter_no_change, tol : default="auto", 0.2, 16, 1e-6
        As in ``MLPClassifier``: with 200 rows or more a fifth is set aside for validation.
    n_members : int or "auto", default=1
        Number of networks, each with ``n_heads`` heads.
    early_stopping_scoring : str, callable or None, default="loss"
        Score of the validation rows. ``"loss"`` is the negative loss of the heads' mean prediction.
    class_weight, label_smoothing, calibration : default=None, 0.0, "temperature"
        As in ``MLPClassifier``, like all other parameters.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    {attributes}

    References
    ----------
    Gorishniy et al. (2024), "TabM: Advancing tabular deep learning with parameter-efficient
    ensembling" (arXiv 2410.24210).

    Notes
    -----
    ``coefs_`` are the weights that the heads share; those of the last layer have the shape
    (n_heads, in, out). ``intercepts_`` have the shape (n_heads, out).

    Examples
    --------
    >>> import pandas as pd
    >>> from combutab import TabMClassifier
    >>> X = pd.DataFrame({{"size": [1.0, 2.0, None, 9.0] * 10, "kind": ["a", "a", "b", "b"] * 10}})
    >>> y = ["small", "small", "big", "big"] * 10
    >>> clf = TabMClassifier((16,), n_heads=4, max_iter=40, random_state=0,
    ...                      learning_rate_init=0.01, n_iter_no_change=float("inf")).fit(X, y)
    >>> clf.predict(X[:4])
    array(['small', 'small', 'big', 'big'], dtype='<U5')
    """

    hidden_layer_sizes: Any = (256, 256, 256)
    activation: ActivationSpec = "relu"
    _: KW_ONLY
    class_weight: Any = None
    label_smoothing: float = 0.0
    calibration: str | None = "temperature"


@loadable
@document
@dataclass(eq=False, repr=False)
class TabMRegressor(_TabM, MLPRegressor):
    """TabM regressor: an ensemble of k perceptrons that share most of their weights.

    The k heads have the same weights except for factors of rank one. Each head scales the inputs by
    its own random factors and is trained with its own loss. The prediction, and the score for early
    stopping, is the mean of their outputs. All parameters and methods of ``MLPRegressor``
    are available; a fit takes about k times as long.

    Parameters
    ----------
    loss : str, default="squared_error"
        Training loss, as in ``MLPRegressor``: ``"quantile"``, ``"gaussian_nll"``, ...
    hidden_layer_sizes, activation, n_heads, numeric_embedding, ... :
        As in ``TabMClassifier``, with the same defaults.
    quantiles, scale_target, clip_predictions : default=(0.05, 0.5, 0.95), True, False
        As in ``MLPRegressor``, like all other parameters.

    Attributes
    ----------
    {attributes}

    References
    ----------
    Gorishniy et al. (2024), "TabM: Advancing tabular deep learning with parameter-efficient
    ensembling" (arXiv 2410.24210).

    Examples
    --------
    >>> from combutab import TabMRegressor
    >>> from combutab.datasets import make_formula
    >>> X, y = make_formula("ar", n_samples=400, random_state=0)
    >>> reg = TabMRegressor("quantile", (16, 16), n_heads=4, n_bins=8, max_iter=5, random_state=0,
    ...                     n_iter_no_change=float("inf")).fit(X, y)
    >>> reg.predict(X[:5], quantiles=[0.05, 0.95]).shape
    (5, 2)
    """

    loss: str = "squared_error"
    hidden_layer_sizes: Any = (256, 256, 256)
    activation: ActivationSpec = "relu"
    _: KW_ONLY
    quantiles: Sequence[float] = (0.05, 0.5, 0.95)
    scale_target: bool = True
    clip_predictions: bool = False
