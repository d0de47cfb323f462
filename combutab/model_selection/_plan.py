"""Plan of a comparison, checked before any training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from numbers import Integral
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from scipy.stats import hmean
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, TimeSeriesSplit
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from combutab.core.device import resolve_device
from combutab.core.metrics import METRICS, Metric, choose_metric
from combutab.core.rng import Stream, fold_in
from combutab.core.scorers import positive_class
from combutab.core.splits import LatestRows, Split, group_codes, warn_repeated_rows
from combutab.core.text import one_line
from combutab.estimators import (
    BaseMLP,
    MLPClassifier,
    MLPRegressor,
    paper_recipe,
    validate_parameters,
)
from combutab.evaluation import corrected_resampled_ttest, wilcoxon
from combutab.model_selection._models import clone_with_seed, make_models
from combutab.model_selection._target import (
    ComparisonError,
    Task,
    check_choice,
    check_metric,
    classification_target,
    comparison_errors,
    default_metric,
    find_task,
    fold_without_a_class,
    given_splits,
    group_folds,
    make_splits,
    read_target,
    regression_target,
)
from combutab.nn import ActivationSpec, build_activation
from combutab.preprocessing import RunningMoments, TableEncoder, binary_unit, is_polars

_LABEL_METRICS = ("accuracy", "balanced_accuracy", "f1", "f1_macro")  # not of probabilities

Test = Literal["corrected-t", "wilcoxon"]
Recipe = Literal["default", "paper"]

DEFAULT_ACTIVATIONS = (
    *("relu", "elu", "selu", "swish", "nlrelu", "gelu", "combu"),  # the CombU paper's
    *("pln-4", "la-silu", "la-hardsilu"),
)
"""Activations that `compare_activations` compares by default."""
BASELINES = ("guess", "linear", "boosting")
"""Names of the baselines that `compare_activations` scores by default."""
_BATCH = 500  # rows, of the paper's recipe
_STEPS = 600  # of the optimiser, wanted of large tables
_MIN_EPOCHS, _MAX_EPOCHS = 20, 80
_AUTO_ROWS = 200  # from which on the estimators' networks stop early
_NETWORK_SETTINGS = ("recipe", "epochs", "hidden")  # of a comparison of activations
_OWN_PARAMS = {  # set by the comparison, by other names or for a reason
    "activation": "activations",
    "hidden_layer_sizes": "hidden",
    "max_iter": "epochs",
    "n_iter_no_change": "epochs",
    "random_state": "random_state",
    "device": "device",
    "callbacks": "progress",
}


@dataclass(frozen=True, eq=False)
class ComparisonPlan:
    """Checked data and settings of a comparison, ready for `run_comparison`.

    `plan_comparison` makes it. Either ``activations`` or ``models`` has the names to compare; the
    settings of the networks belong to a comparison of activations.
    """

    data: str
    X: Any
    y: np.ndarray
    task: Task
    metric: str
    splits: tuple[Split, ...]
    seeds: int
    test: Test
    device: str
    random_state: int
    activations: dict[str, ActivationSpec] = field(default_factory=dict)
    epochs: int = 0
    hidden: tuple[int, ...] = ()
    n_inputs: int = 0  # of the networks: columns once encoded
    estimator_params: dict[str, Any] = field(default_factory=dict)
    baselines: tuple[str, ...] = BASELINES
    recipe: Recipe = "default"
    split: str = "random"
    groups: np.ndarray | None = None
    models: dict[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The column of the results that names what is compared: activation or model."""
        return "model" if self.models else "activation"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the activations or models to compare."""
        return tuple(self.models or self.activations)

    @property
    def fit_noun(self) -> str:
        """The word for a fit of the comparison."""
        return "fit" if self.models else "network"

    @property
    def measure(self) -> Metric:
        """The metric with its title, range, unit and direction."""
        return METRICS[self.task][self.metric]

    @property
    def guess_metric(self) -> str:
        """The metric by which networks are tested against the guess.

        Accuracy, balanced accuracy and F1 depend on the predicted labels only: for imbalanced
        classes, a good network may predict the most frequent class for every row. ROC AUC is used
        instead of them if every test fold has every class.
        """
        lacking = fold_without_a_class(self.y, self.splits)
        if self.metric not in _LABEL_METRICS or lacking is not None:
            return self.metric
        return "roc_auc"

    def is_better(self, a: float, b: float, metric: str = "") -> bool:
        """Tell whether value ``a`` of a metric, by default the plan's, is better than ``b``."""
        return bool(a > b if METRICS[self.task][metric or self.metric].greater_is_better else a < b)

    def p_value(self, a: np.ndarray, b: np.ndarray) -> float:
        """Return the p-value of the plan's test between two models, from their scores by fold."""
        if self.test == "wilcoxon":
            return float(wilcoxon(a, b).pvalue)
        sizes = {"n_train": self.n_train, "n_test": self.n_test}
        return float(corrected_resampled_ttest(a, b, **sizes).pvalue)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, with the values that were chosen for defaults."""
        names = ["recipe", "seeds", "epochs", "hidden", "split", "test", "device", "random_state"]
        if self.models:
            names = [name for name in names if name not in _NETWORK_SETTINGS]
        values = {name: getattr(self, name) for name in (*names, "baselines")}
        values["folds"] = len(self.splits)
        if self.models:
            values["models"] = {name: one_line(repr(model)) for name, model in self.models.items()}
        return values

    @property
    def epoch_words(self) -> str:
        """The number of epochs in words."""
        return epoch_words(self.settings)

    @property
    def n_networks(self) -> int:
        """Number of networks of the comparison, or fits of models, without the refitted one."""
        return len(self.names) * len(self.splits) * self.seeds

    @property
    def n_train(self) -> float:
        """Harmonic mean of the numbers of training rows of the folds.

        The corrected t-test divides by it. The harmonic mean allows for the small training sets of
        the first folds of a split by time.
        """
        return float(hmean([len(train) for train, _ in self.splits]))

    @property
    def n_test(self) -> float:
        """Mean number of test rows of the folds."""
        return float(np.mean([len(test) for _, test in self.splits]))

    @property
    def positive(self) -> int:
        """Index of the positive class, for scores of one of two classes."""
        if self.task == "regression":
            return 1
        classes, counts = np.unique(self.y, return_counts=True)
        return positive_class(classes, counts) if len(classes) == 2 else 1

    @property
    def target_std(self) -> float:
        """Standard deviation of the target, the unit of a regression's errors; 1 for classes."""
        if self.task == "classification":
            return 1.0
        moments = RunningMoments(1)  # whose squares do not overflow
        moments.add(self.y[:, None].astype(np.float64))
        return float(moments.result().std[0])

    @property
    def target_unit(self) -> float:
        """Divisor of huge and tiny targets, whose squares float64 does not hold; else 1."""
        return float(binary_unit(np.asarray(self.target_std)))

    @property
    def operations(self) -> float:
        """Approximate number of floating-point operations of the training; 0 if models differ."""
        widths = (self.n_inputs, *self.hidden, 1)
        weights = sum(a * b for a, b in pairwise(widths))
        return 6.0 * weights * self.n_train * self.epochs * self.n_networks

    def rows(self, index: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return the features and targets of the rows at these positions."""
        return _safe_indexing(self.X, index), self.y[index]

    def groups_of(self, index: np.ndarray) -> np.ndarray | None:
        """Return the groups of some rows, for early stopping; None for fewer than two groups."""
        if self.groups is None or len(np.unique(self.groups[index])) < 2:
            return None
        return self.groups[index]

    def encoder(self) -> TableEncoder:
        """Make an unfitted encoder of the table, the same as that of the networks."""
        return _make_estimator(self.task, self.recipe, **self.estimator_params).make_encoder()

    def estimator(self, name: str, *key: int) -> Any:
        """Make an unfitted estimator; ``key`` (fold, seed) and ``random_state`` set its seed."""
        # Each fold has other seeds: with the same seeds the folds would depend on each other.
        # The activations share them, as they share the folds: their differences are paired.
        seed = fold_in(self.random_state, Stream.COMPARED, *key) >> 32
        if self.models:
            return clone_with_seed(self.models[name], seed)
        fixed = {"n_iter_no_change": float("inf")} if self.recipe == "paper" else {}
        return _make_estimator(
            self.task,
            self.recipe,
            activation=self.activations[name],
            hidden_layer_sizes=self.hidden,
            max_iter=self.epochs,
            **fixed,
            random_state=seed,
            device=self.device,
            **self.estimator_params,
        )


def epoch_words(settings: Mapping[str, Any]) -> str:
    """The number of epochs of a comparison of activations, in words.

    >>> epoch_words({"recipe": "default", "epochs": 100})
    'up to 100 epochs'
    """
    epochs = int(settings["epochs"])
    limit = "up to " if settings.get("recipe") == "default" else ""
    return f"{limit}{epochs} epoch{'s' * (epochs > 1)}"


def default_epochs(n_train: float) -> int:
    """Epochs of the paper's recipe by the training rows: 80, or about 600 steps, at least 20.

    >>> default_epochs(455), default_epochs(8844), default_epochs(10**6)
    (80, 33, 20)
    """
    n_steps = -(-int(n_train) // _BATCH)
    return int(np.clip(round(_STEPS / n_steps), _MIN_EPOCHS, _MAX_EPOCHS))


def plan_comparison(
    X: Any,
    y: Any,
    *,
    task: str = "auto",
    activations: Sequence[str] | Mapping[str, ActivationSpec] | None = None,
    seeds: int = 5,
    folds: int = 5,
    epochs: int | None = None,
    hidden: Literal["auto"] | Sequence[int] = "auto",
    scoring: str | None = None,
    test: str = "corrected-t",
    device: str = "auto",
    random_state: int = 0,
    estimator_params: Mapping[str, Any] | None = None,
    baselines: str | Sequence[str] | None = BASELINES,
    recipe: str = "default",
    name: str = "data",
    cv: Any = None,
    groups: Any = None,
    models: Sequence[str] | Mapping[str, Any] | None = None,
) -> ComparisonPlan:
    """Check the data and settings of a comparison.

    `compare_activations` describes them, and `compare_models` the ``models``, instead of which
    activations are compared by default.

    Returns
    -------
    ComparisonPlan

    Raises
    ------
    ComparisonError
        If the data or a setting does not allow the comparison. Nothing is trained before.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> plan = plan_comparison(*load_iris(return_X_y=True), seeds=2)
    >>> plan.n_networks, plan.metric, plan.recipe
    (100, 'accuracy', 'default')
    """
    counts = {"seeds": (seeds, 1), "folds": (folds, 2), "random_state": (random_state, 0)}
    if epochs is not None:
        counts["epochs"] = epochs, 1
    for option, (value, minimum) in counts.items():
        _check_count(option, value, minimum)
    check_choice("test", test, get_args(Test))
    check_choice("recipe", recipe, get_args(Recipe))
    X = np.asarray(X) if isinstance(X, list | tuple) else X
    is_polars(X)  # raises the error about lazy frames
    target, resolved = _read_task(X, y, task)
    with comparison_errors("scoring: "):
        metric = None if scoring is None else choose_metric(scoring, resolved).name
    with comparison_errors():
        groups = group_codes(groups, len(target))
    splits = _plan_splits(X, target, resolved, cv, groups, folds, random_state)
    warn_repeated_rows(X, target, splits, stacklevel=4)
    metric = metric or default_metric(target, resolved, splits)
    check_metric(metric, target, splits)
    plan = ComparisonPlan(
        data=name,
        X=X,
        y=target,
        task=resolved,
        metric=metric,
        splits=splits,
        seeds=int(seeds),
        test=cast(Test, test),
        device=_computing_device(device),
        random_state=int(random_state),
        baselines=_known_baselines(baselines),
        recipe=cast(Recipe, recipe),
        split=_describe_splits(cv, groups),
        groups=groups,
    )
    stops_early = min(len(train) for train, _ in splits) >= _AUTO_ROWS
    by_time = isinstance(cv, TimeSeriesSplit) and stops_early
    if models is not None:
        candidates = make_models(models, resolved, plan.device, plan.target_unit, by_time)
        return replace(plan, models=candidates)
    return _plan_networks(plan, activations, epochs, hidden, dict(estimator_params or {}), by_time)


def _plan_networks(
    plan: ComparisonPlan,
    activations: Sequence[str] | Mapping[str, ActivationSpec] | None,
    epochs: int | None,
    hidden: Any,
    params: dict[str, Any],
    by_time: bool,
) -> ComparisonPlan:
    """Add the networks of a comparison of activations to a plan."""
    for reserved in params.keys() & _OWN_PARAMS.keys():
        raise ComparisonError(
            f"estimator_params has {reserved!r}, which the comparison sets: use "
            f"{_OWN_PARAMS[reserved]}= of the comparison"
        )
    if by_time and plan.recipe == "default":
        # epochs are chosen by the latest of the training rows, as the score is that of later ones
        params = {"validation_split": LatestRows()} | params
    start = _make_estimator(plan.task, plan.recipe)
    n_train = float(np.mean([len(train) for train, _ in plan.splits]))
    widths = _hidden_widths(hidden, start, n_train)
    if epochs is None:
        epochs = default_epochs(n_train) if plan.recipe == "paper" else start.max_iter
    return replace(
        plan,
        activations=_activations(activations, widths),
        epochs=int(epochs),
        hidden=widths,
        n_inputs=_n_inputs(plan.X, plan.task, plan.recipe, params),
        estimator_params=params,
    )


def _read_task(X: Any, y: Any, task: str) -> tuple[np.ndarray, Task]:
    """Read the target, and find its task."""
    series = read_target(y, _num_samples(X))
    resolved = find_task(series, task)
    if resolved == "classification":
        return classification_target(series), resolved
    return regression_target(series), resolved


def _plan_splits(
    X: Any, y: np.ndarray, task: Task, cv: Any, groups: np.ndarray | None, folds: int, seed: int
) -> tuple[Split, ...]:
    if cv is None and groups is None:
        return make_splits(y, task, folds, seed)
    pairs = cv
    if cv is None and groups is not None:
        pairs = group_folds(y, task, folds, groups, seed)
    return given_splits(X, y, task, pairs, groups)


def _describe_splits(cv: Any, groups: np.ndarray | None) -> str:
    """Describe the folds: random, groups, the name of a splitter, or as given."""
    by_group = cv is None or isinstance(cv, GroupKFold | StratifiedGroupKFold)
    if by_group:
        return "random" if groups is None else "groups"
    if hasattr(cv, "split"):
        return str(getattr(cv, "name", type(cv).__name__))
    return "as given"


def _make_estimator(task: Task, recipe: Recipe, **params: Any) -> BaseMLP:
    # each seed is one network
    params = paper_recipe(task, **params) if recipe == "paper" else {"n_members": 1, **params}
    return MLPClassifier(**params) if task == "classification" else MLPRegressor(**params)


def _check_count(name: str, value: Any, minimum: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < minimum:
        raise ComparisonError(f"{name} must be a whole number of at least {minimum}, got {value!r}")


def _hidden_widths(hidden: Any, start: BaseMLP, n_train: float) -> tuple[int, ...]:
    if isinstance(hidden, str):
        if hidden != "auto":
            raise ComparisonError(
                f"hidden must be 'auto' or widths such as 128,128, got {hidden!r}"
            )
        # decided once: folds on both sides of the rule's border would get different networks
        return start._hidden_layer_sizes(int(n_train))
    widths = list(hidden) if hasattr(hidden, "__iter__") else [hidden]
    if not widths:
        raise ComparisonError("hidden must have at least one width, got none")
    for width in widths:
        _check_count("each width of hidden", width, 1)
    return tuple(int(width) for width in widths)


def _activations(
    activations: Sequence[str] | Mapping[str, ActivationSpec] | None, hidden: tuple[int, ...]
) -> dict[str, ActivationSpec]:
    if activations is None:
        activations = DEFAULT_ACTIVATIONS
    if isinstance(activations, str):
        activations = [activations]
    if not isinstance(activations, Mapping):
        activations = list(activations)
        for i, spec in enumerate(activations):
            if not isinstance(spec, str):
                raise ComparisonError(
                    f"activations that are no names need one: pass a dict name -> {spec!r}"
                )
            if spec in activations[:i]:
                raise ComparisonError(f"activation {spec!r} is named twice")
        activations = {spec: spec for spec in activations}
    by_name = {str(name): spec for name, spec in activations.items()}
    if not by_name:
        raise ComparisonError("activations must name at least one activation, got none")
    for factory in by_name.values():
        for width in set(hidden):
            with comparison_errors():
                build_activation(factory, width)
    return by_name


def _known_baselines(baselines: str | Sequence[str] | None) -> tuple[str, ...]:
    names = [baselines] if isinstance(baselines, str) else list(baselines or ())
    for name in names:
        if name not in BASELINES:
            raise ComparisonError(
                f"baselines must be of {', '.join(BASELINES)}, or none at all, got {name!r}"
            )
    return tuple(name for name in BASELINES if name in names)


def _n_inputs(X: Any, task: Task, recipe: Recipe, params: dict[str, Any]) -> int:
    """Number of encoded columns; errors of the encoder or the estimator are raised here."""
    with comparison_errors():
        estimator = validate_parameters(_make_estimator(task, recipe, **params))
        encoder = estimator.make_encoder()
        encoder.fit_encode(X)
    n_inputs = encoder.n_dense_ + len(encoder.cardinalities_) * estimator.embedding_dim
    if estimator.numeric_embedding != "none":
        n_inputs += encoder.numeric_scaler_.n_columns * (estimator.numeric_embedding_dim - 1)
    return n_inputs


def _computing_device(device: str) -> str:
    try:
        resolved = resolve_device(device)
        torch.zeros(1, device=resolved).item()  # some that torch can name cannot compute here
    except (ValueError, RuntimeError, AssertionError) as error:
        first = str(error).strip().splitlines()[0]
        raise ComparisonError(f"cannot use device {device!r}: {first}") from error
    return str(resolved)
