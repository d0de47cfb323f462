"""The contract of a generator: fitting, conditions, checkpoints and files know no more of it."""

from __future__ import annotations

import math
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.utils._param_validation import Interval, Options, RealNotInt, StrOptions

from combutab._model_files import loadable_classes
from combutab.core.device import PRECISIONS, Precision, guard_forks, resolve_device
from combutab.core.rng import Stream, fold_in, random_permutations, seed_from
from combutab.core.tasks import CallbackTask
from combutab.core.text import parse_seconds
from combutab.core.world import broadcast, plain_parameters, sharing
from combutab.generators._parquet import ParquetSource
from combutab.generators._records import (
    ENDS,
    GeneratorPlan,
    GeneratorResult,
    NetworkT,
    Rates,
    RowRequest,
    RowsDrawn,
    SampledShape,
    TableRows,
    data_error,
    make_spans,
)
from combutab.generators._training import (
    MAX_ROWS,
    GeneratorCheckpoint,
    GeneratorStack,
    Training,
    Validation,
    check_rows_shared,
    share,
)
from combutab.generators.sampling import RowsToWrite, RowWriter, Sampler, draw_nearest
from combutab.nn import (
    NORMALIZATIONS,
    ActivationSpec,
    Member,
    RowSpans,
    check_activation,
    check_proxy_norm,
)
from combutab.preprocessing import ModeEncoder, as_numpy
from combutab.training import (
    Callback,
    FitTasks,
    ProgressBar,
    train,
    uninterrupted,
)

# ---- The parameters that generators share, and what each may be ----------------------------------

COUNT = Interval(Integral, 1, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
SHARED_CONSTRAINTS: dict[str, list[Any]] = {
    "embedding_dim": [COUNT],
    "batch_size": [COUNT],
    "epochs": [COUNT],
    "verbose": ["verbose"],
    "enable_gpu": ["boolean"],
    "activation": [str, callable],
    "normalization": [StrOptions(set(NORMALIZATIONS))],
    "proxy_norm": ["boolean"],
    "early_stopping": ["boolean"],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "n_iter_no_change": [COUNT, Options(Real, {np.inf})],
    "max_time": [None, str, POSITIVE],
    "n_members": [COUNT],
    "min_frequency": [COUNT, Interval(RealNotInt, 0, 1, closed="neither")],
    "identifiers": [list, tuple, StrOptions({"auto"}), None],
    "random_state": ["random_state", np.random.Generator],
    "device": [str, torch.device],
    "precision": [StrOptions(set(PRECISIONS))],
    "callbacks": [list, tuple, None],
}


@dataclass(eq=False, repr=False, kw_only=True)
class SharedParameters:
    """The parameters that all generators have, by keyword alone."""

    activation: ActivationSpec = "combu"
    normalization: str = "none"
    proxy_norm: bool = False
    early_stopping: Any = False
    validation_fraction: float = 0.1
    n_iter_no_change: float = 50
    max_time: float | str | None = None
    n_members: int = 1
    min_frequency: float = 5
    identifiers: Any = "auto"
    random_state: Any = None
    device: str | torch.device = "auto"
    precision: str = "float32"
    callbacks: Any = None


def check_widths(name: str, widths: Any) -> tuple[int, ...]:
    """Hidden widths as a tuple of ints; there may be none."""
    listed = list(widths)
    if any(not isinstance(w, Integral) or isinstance(w, bool) or w < 1 for w in listed):
        raise ValueError(f"{name} must hold whole numbers of at least 1, got {widths!r}")
    return tuple(int(w) for w in listed)


def check_tries(on_shortfall: str, max_tries: int) -> None:
    """Check what sampling is told to do about rows that are not found."""
    if on_shortfall not in ("error", "return"):
        raise ValueError(f"on_shortfall must be 'error' or 'return', got {on_shortfall!r}")
    if not isinstance(max_tries, Integral) or isinstance(max_tries, bool) or max_tries < 1:
        raise ValueError(f"max_tries must be a whole number of at least 1, got {max_tries!r}")


# For each member: of the weights (gradients, moments, scratch, the best and the last ones), of a
# batch's activations (forward, backward and masks), and of a row at both ends of its networks.
_NETWORK_COPIES, _STEP_COPIES, _ROW_COPIES = 10, 6, 4
_ORDER_BYTES = 24  # a row and member: places, sorted


class Generator(SharedParameters, ABC, Generic[NetworkT]):
    """A generator of tables, whose rows a network of the given class makes.

    To be one, a class has the parameters below and gives what is abstract here.
    """

    # by position, in an order that is each class's own; SHARED_CONSTRAINTS says what they may be
    batch_size: Any
    epochs: Any
    verbose: bool
    enable_gpu: bool

    # what fit leaves
    encoder_: ModeEncoder
    history_: pd.DataFrame
    n_iter_: int
    n_features_in_: int
    feature_names_in_: np.ndarray  # where all names are strings
    _shape: SampledShape[NetworkT]
    _states: list[dict[str, np.ndarray]]  # of the network that makes rows, by member
    _seed: int
    _n_sampled: int  # calls of sample without a random state
    _n_rows: int  # of the table
    _made_sampler: tuple[Any, torch.device, Sampler[NetworkT]] | None = None
    _ended: str = "epochs"

    # what scikit-learn's BaseEstimator gives
    get_params: Callable[..., dict[str, Any]]
    _validate_params: Callable[[], None]

    _encoder_class: ClassVar[type[ModeEncoder]] = ModeEncoder
    _sampler_class: ClassVar[type[Sampler[Any]]] = Sampler
    _needs_second_derivative: ClassVar[bool] = False  # of activations, in training
    _member_rates: ClassVar[Set[str]]  # parameters that members of one stack may differ in
    _of_many_categories: ClassVar[str] = ""  # what else can be done about them

    @abstractmethod
    def _all_widths(self) -> list[tuple[int, ...]]:
        """The hidden widths of each network."""

    @abstractmethod
    def _rates(self) -> dict[str, Rates]:
        """Return the rates of each network that has an optimiser."""

    @abstractmethod
    def _make_shape(self) -> SampledShape[NetworkT]:
        """Make the shape of the network that makes rows, by the parameters as they are."""

    @abstractmethod
    def _training(
        self, rows: TableRows, spans: RowSpans, plans: Sequence[GeneratorPlan]
    ) -> Training[NetworkT]:
        """The networks, ready to train."""

    @abstractmethod
    def _draw(self, network: NetworkT, spans: RowSpans, asked: RowRequest) -> RowsDrawn:
        """Rows that the network makes, of codes that are allowed."""

    def _of_rare_rows(self) -> str:
        """What else can be done to find rows that meet conditions."""
        return ""

    def _n_epochs(self, n_rows: int) -> int:
        """The number of epochs to train on so many rows, at most."""
        return int(self.epochs)

    def _n_batch(self, n_rows: int) -> int:
        """The rows of a step, of so many."""
        return int(min(self.batch_size, n_rows))

    def _stops_early(self, n_rows: int) -> bool:
        """Whether rows are held out of so many."""
        return bool(self.early_stopping)

    def _draw_missing(
        self, values: np.ndarray, codes: np.ndarray, known: np.ndarray, key: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Complete encoded rows of which some spans are known, (n, n_spans) bool.

        Returns values (n, n_values) and codes (n, n_spans), whose unknown spans have a value that
        is not missing wherever the column has one. The known ones need not be kept.
        """
        return draw_nearest(self.sampler(), values, codes, known, key)

    def _n_weights(self, spans: RowSpans) -> int:
        """Count the weights of all networks of a member, about."""
        return sum(map(math.prod, self._make_shape().linear_shapes(spans).values()))

    def _training_bytes(self, spans: RowSpans, n_rows: int, n_members: int) -> int:
        """Estimate the memory that training takes beside the encoded rows."""
        size, stops = spans.dtype.itemsize, self._stops_early(n_rows)
        n = max(self._n_batch(n_rows), MAX_ROWS if stops else 0)
        units = sum(map(sum, self._all_widths())) + _ROW_COPIES * spans.width
        of_member = size * (_NETWORK_COPIES * self._n_weights(spans) + _STEP_COPIES * n * units)
        # the order of the rows, and which of them are held out
        rows = _ORDER_BYTES * (n_members + stops)
        if size > 4:  # a copy of the values
            rows += size * spans.n_values
        return n_members * of_member + n_rows * rows

    def _make_encoder(self, discrete_columns: Any, random_state: int) -> ModeEncoder:
        """The encoder of the table, to be fitted."""
        return self._encoder_class(
            discrete_columns=discrete_columns,
            min_frequency=self.min_frequency,
            identifiers=self.identifiers,
            random_state=random_state,
            n_jobs=max(1, torch.get_num_threads()),
        )

    def _check(self) -> None:
        """Check what scikit-learn's validation cannot see, before any work on the data."""
        self._find_device()
        parse_seconds(self.max_time)
        widths = {width for widths in self._all_widths() for width in widths}
        for width in widths if self.activation != "original" else ():
            check_activation(
                self.activation,
                width,
                proxy_norm=self.proxy_norm,
                twice=self._needs_second_derivative,
            )
        check_proxy_norm(self.proxy_norm, self.normalization)
        for callback in self.callbacks or ():
            if not callable(getattr(callback, "on_epoch_end", None)):
                raise ValueError(
                    f"callbacks must be combutab.training.Callback objects, got {callback!r}"
                )

    def _find_device(self) -> torch.device:
        return resolve_device(self.device if self.enable_gpu else "cpu")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_states")

    def _table(self) -> str:
        """Say what was learned from."""
        columns = f"{self.n_features_in_:,} column{'s' * (self.n_features_in_ != 1)}"
        return f"{self._n_rows:,} rows x {columns}"

    def _trained(self) -> str:
        """Say for how long it has learned, and why no longer."""
        epochs = self.history_["member"].value_counts() if len(self.history_) else [0]
        least, most = min(epochs), max(epochs)
        trained = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        return f"{trained} epoch{'s' * (most != 1)}{ENDS[self._ended]}"

    def sample_key(self, random_state: Any) -> int:
        """The key of the next draw; without a random state, that of the fit's own numbers."""
        if random_state is not None:
            return fold_in(seed_from(random_state), Stream.SAMPLE)
        self._n_sampled += 1
        return fold_in(self._seed, Stream.SAMPLE, self._n_sampled - 1)

    def _keep(
        self,
        seed: int,
        encoder: ModeEncoder,
        results: Sequence[GeneratorResult],
        n_rows: int,
    ) -> None:
        """Make a model fitted."""
        self.encoder_, self.n_features_in_ = encoder, encoder.n_features_in_
        vars(self).pop("feature_names_in_", None)
        if hasattr(encoder, "feature_names_in_"):
            self.feature_names_in_ = encoder.feature_names_in_
        self.history_ = pd.concat(
            [
                pd.DataFrame({"member": i, "epoch": range(1, result.n_epochs + 1)}).assign(
                    **{_curve_name(name): curve for name, curve in result.losses.items()}
                )
                for i, result in enumerate(results)
            ],
            ignore_index=True,
        )
        self.n_iter_ = results[0].n_epochs
        self._shape = self._make_shape()
        self._states = [{n: v.numpy() for n, v in result.state.items()} for result in results]
        self._seed, self._n_sampled, self._n_rows = seed, 0, n_rows
        # the members that early stopping did not end were the last
        self._ended = min((r.reason for r in results), key="no_improvement".__eq__)

    def sampler(self) -> Sampler[NetworkT]:
        """Return the sampler, with the network that was learned, made once for a device."""
        guard_forks()
        device = self._find_device()
        made_for, made_on, sampler = self._made_sampler or (None, None, None)
        if sampler is None or made_for is not self._states or made_on != device:
            sampler = self._make_sampler(device)
            self._made_sampler = (self._states, device, sampler)
        return sampler

    def stream_rows(self, writer: RowWriter, n: int, random_state: Any = None) -> None:
        """Write the n rows that ``sample`` draws without conditions, part by part."""
        sampler = self.sampler()
        rows = RowsToWrite(n, sampler.spans, writer)
        values, codes, _ = sampler.draw(n, [], self.sample_key(random_state), 1, rows)
        if not n:
            writer.write_all(values, codes)

    def _make_sampler(self, device: torch.device) -> Sampler[NetworkT]:
        shape = self._shape
        spans = make_spans(self.encoder_.layout_, device, Precision(shape.precision))
        members = [Member(0, shape.activation) for _ in range(shape.n_members)]
        if not spans.n_spans:  # all columns are constant
            return self._sampler_class(self.encoder_, shape, None, spans, self._draw)
        network = shape.build(spans, members)
        for i, state in enumerate(self._states):
            network.load_member(i, {name: torch.from_numpy(v) for name, v in state.items()})
        return self._sampler_class(self.encoder_, shape, network.eval(), spans, self._draw)


def find_generators() -> dict[str, Callable[..., Generator[Any]]]:
    """Find the classes of generators whose files ``combutab.load`` reads, by name.

    Examples
    --------
    >>> from combutab.generators import find_generators
    >>> find_generators()["TVAE"](epochs=5)
    TVAE(epochs=5)
    """
    return {cls.__name__: cls for cls in loadable_classes() if issubclass(cls, Generator)}


# ---- Fit generators to a table: those of equal shape as one stack --------------------------------

_NUMBERS = 4  # a weight: itself, its gradient, and two moments of Adam's
# what the members of one stack may differ in, beside the rates
_OWN = {"activation", "n_members", "random_state"}
G = TypeVar("G", bound=Generator[Any])
Begin = Callable[..., AbstractContextManager[CallbackTask | None]]


def fit_stack(models: Sequence[G], X: Any, discrete_columns: Any = "auto") -> list[G]:
    """Fit several generators on one table, in stacks of those that differ by activation or rates.

    The table is encoded once a stack. On a GPU a stack is one batched program; on a CPU, where
    members take turns, it takes about as long as one fit after another. Each ends as its own
    ``fit`` would leave it, up to the rounding of sums. Generators of one stack are of one class
    and have the same ``random_state``, an int: encoders draw from it.

    Parameters
    ----------
    models : sequence of CTGAN, TVAE and other generators
    X, discrete_columns
        As in ``fit``.

    Returns
    -------
    list of the same models, fitted

    Raises
    ------
    ValueError
        As ``fit`` does; where some diverged, the others are fitted.
    KeyboardInterrupt
        If Ctrl-C came before the last stack: models of later ones are not fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from combutab import TVAE
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> models = [TVAE(epochs=1, activation=a, random_state=0) for a in ("relu", "combu")]
    >>> [model.n_iter_ for model in fit_stack(models, X)]
    [1, 1]
    """
    models = list(models)
    if len({id(model) for model in models}) < len(models):
        raise ValueError("models holds the same object twice; use sklearn.base.clone")
    for model in models:
        if not isinstance(model, Generator):
            names = " or ".join(find_generators())
            raise ValueError(f"models must be {names} objects, got {model!r}")
        model._validate_params()
        model._check()
    stacks: list[list[G]] = []
    for model in models:
        for stack in stacks:
            if _stackable(model, stack[0]):
                stack.append(model)
                break
        else:
            stacks.append([model])
    errors = []
    for stack in stacks:
        try:
            interrupted = fit_generators(stack, X, discrete_columns)
        except DivergedError as error:
            errors.append(str(error))
        else:
            if interrupted and stack is not stacks[-1]:
                raise KeyboardInterrupt
    if errors:
        raise DivergedError("; ".join(errors))
    return models


class DivergedError(ValueError):
    """A loss became infinite or not a number."""


def _stackable(model: Generator[Any], other: Generator[Any]) -> bool:
    if type(model) is not type(other):
        return False
    mine, theirs = model.get_params(deep=False), other.get_params(deep=False)
    own = _OWN | model._member_rates
    seeds = (model.random_state, other.random_state)
    return (
        all(isinstance(seed, int | np.integer) for seed in seeds)
        and seeds[0] == seeds[1]
        and all(_same_value(mine[name], theirs[name]) for name in mine if name not in own)
    )


def _same_value(value: Any, other: Any) -> bool:
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return list(value) == list(other)
    return bool(value is other or value == other)


def fit_generators(
    models: Sequence[Generator[NetworkT]],
    X: Any,
    discrete_columns: Any = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    begin: Begin | None = None,
) -> bool:
    """Fit checked models that may be members of one stack; see ``BaseGenerator.fit``.

    ``begin(n_parts=...)`` is the task that so many epochs are parts of.

    Returns whether Ctrl-C ended the training.
    """
    with sharing(lambda: _description(models)):
        return _fit_stack(models, X, discrete_columns, broadcast(checkpoint), begin)


def _description(models: Sequence[Generator[Any]]) -> str:
    """What is fitted, in words that are the same in all processes that fit it."""
    return f"{type(models[0]).__name__} {[plain_parameters(model) for model in models]}"


def _fit_stack(
    models: Sequence[Generator[NetworkT]],
    X: Any,
    discrete_columns: Any,
    checkpoint: str | os.PathLike[str] | None,
    begin: Begin | None,
) -> bool:
    started, X = time.perf_counter(), as_numpy(X)
    guard_forks()
    first = models[0]
    for model in models:  # a fit that fails leaves no fitted estimator
        vars(model).pop("_states", None)
    seed = seed_from(first.random_state)
    file = None if checkpoint is None else GeneratorCheckpoint(checkpoint, first, seed)
    seed = seed if file is None else file.seed

    encoder = _fit_encoder(first, X, discrete_columns, seed)
    for told in encoder.describe_suppressed():
        warnings.warn(told, stacklevel=5)
    spans = make_spans(encoder.layout_, first._find_device(), Precision(first.precision))
    owners, plans = _plan(models, seed)
    _check_memory(first, encoder, spans, len(plans))

    rows = held_out = None
    if spans.width:  # all columns are constant otherwise: nothing to learn
        if isinstance(X, ParquetSource):
            encoded = X.encode(encoder, first._training_bytes(spans, len(X), len(plans)))
        else:
            encoded = encoder.encode(X)
        table = TableRows.on(spans.device, encoded, spans.dtype)
        rows, held_out = _split_validation(first, table, seed)
    n_epochs = 0 if rows is None else first._n_epochs(len(rows))

    with nullcontext() if begin is None else begin(n_parts=n_epochs) as task:
        results, callbacks = [GeneratorResult({}) for _ in plans], _callbacks(first, task)

        def train_members(rows: TableRows, plans: Sequence[GeneratorPlan]) -> list[GeneratorResult]:
            training = first._training(rows, spans, plans)
            check_rows_shared(training, type(first).__name__)
            validation = None
            if held_out is not None:
                validation = _validation(first, encoder, training, held_out)
            left = parse_seconds(first.max_time) - (time.perf_counter() - started)
            stack = GeneratorStack(training, validation, file)
            found = train(stack, n_epochs, callbacks, left)
            if file is not None and not stack.diverged.all():
                file.write()
            return found

        if rows is not None:
            apart = not callbacks and file is None
            results = share(partial(train_members, rows), rows, plans, apart=apart)

        diverged = []
        for i, model in enumerate(models):
            own = [r for owner, r in zip(owners, results, strict=True) if owner == i]
            if any(result.reason == "diverged" for result in own):
                diverged.append(f"activation={model.activation!r}")
            else:
                with uninterrupted():
                    model._keep(seed, encoder, own, len(X))
        interrupted = any(result.reason == "interrupted" for result in results)
        if interrupted:
            warnings.warn(
                f"Training interrupted by user after {results[0].n_epochs} epochs, which are kept.",
                stacklevel=5,
            )
        if diverged:
            raise DivergedError(
                f"training diverged with {', '.join(diverged)}: a loss is not finite; lower the "
                "learning rates, or look for values of extreme size in the table"
            )
    return interrupted


def _check_memory(
    model: Generator[Any], encoder: ModeEncoder, spans: RowSpans, n_members: int
) -> None:
    """Refuse networks that are larger than memory, naming the column of most categories."""
    weights = n_members * model._n_weights(spans)
    needed, held = weights * _NUMBERS * spans.dtype.itemsize, memory_of(spans.device)
    if held is None or needed <= held:
        return
    name = encoder.schema_.label(encoder.layout_.spans[-1].column)  # spans are sorted by size
    raise ValueError(
        f"{name} has {encoder.layout_.sizes[-1]:,} categories: the networks would have "
        f"{weights:,} weights, whose training takes {needed / 2**30:,.0f} GiB of the "
        f"{held / 2**30:,.0f} that there are; leave the column out, or raise min_frequency"
        f"{model._of_many_categories}"
    )


def memory_of(device: torch.device) -> int | None:
    """Bytes of memory that a device has in all; None where the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _fit_encoder(model: Generator[Any], X: Any, discrete_columns: Any, seed: int) -> ModeEncoder:
    encoder = model._make_encoder(discrete_columns, fold_in(seed, Stream.ENCODER) >> 32)
    try:
        return X.fit(encoder) if isinstance(X, ParquetSource) else encoder.fit(X)
    except ValueError as error:
        raise data_error(error) from None


def _plan(models: Sequence[Generator[Any]], seed: int) -> tuple[list[int], list[GeneratorPlan]]:
    """Plan each member of the stack: the model that it is of, and its plan."""
    # members of one activation must be neighbours
    kinds = [model.activation for model in models]
    order = sorted(range(len(models)), key=lambda i: kinds.index(kinds[i]))
    places = [(i, j) for i in order for j in range(models[i].n_members)]
    plans = [
        GeneratorPlan(Member(fold_in(seed, Stream.MEMBER, j), kinds[i]), models[i]._rates())
        for i, j in places
    ]
    return [i for i, _ in places], plans


def _split_validation(
    model: Generator[Any], rows: TableRows, seed: int
) -> tuple[TableRows, TableRows | None]:
    """The rows to train on, and those for early stopping."""
    if not model._stops_early(len(rows)):
        return rows, None
    n_held = min(MAX_ROWS, math.ceil(model.validation_fraction * len(rows)))
    if n_held < 2 or n_held >= len(rows):
        raise ValueError(
            f"validation_fraction={model.validation_fraction} of {len(rows)} rows leaves "
            f"{len(rows) - n_held} to train on and {n_held} to validate on, which takes 1 and 2; "
            "change it, or set early_stopping=False"
        )
    order = random_permutations([fold_in(seed, Stream.HELD_OUT)], [len(rows)])[0]
    order = order.to(rows.codes.device)
    held_out = rows[order[:n_held]]
    return rows.keep(order[n_held:].sort().values), held_out


def _validation(
    model: Generator[NetworkT],
    encoder: ModeEncoder,
    training: Training[NetworkT],
    held_out: TableRows,
) -> Validation:
    network = training.sampled
    made_of = (encoder, model._make_shape(), network, training.spans, model._draw)
    sampler = model._sampler_class(*made_of)
    keys = [fold_in(plan.member.seed, Stream.VALIDATION) for plan in training.plans]
    measure = training.measure(held_out, sampler, keys)
    return Validation(training.statistic, measure, network, model.n_iter_no_change)


def _callbacks(model: Generator[Any], task: CallbackTask | None) -> list[Callback]:
    shown = [ProgressBar(type(model).__name__)] if model.verbose else []
    told = [FitTasks(task)] if task is not None and task.watched else []
    return [*shown, *(model.callbacks or ()), *told]


def _curve_name(name: str) -> str:
    return name if name == "loss" or name.startswith("validation") else f"{name}_loss"
