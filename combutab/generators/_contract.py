"""The contract of a generator: fitting, conditions, checkpoints and files know no more of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Generic

import numpy as np
import pandas as pd
import torch
from sklearn.utils._param_validation import Interval, Options, RealNotInt, StrOptions
from torch import Tensor

from combutab._model_files import loadable_classes
from combutab.core.device import PRECISIONS, Precision, guard_forks, resolve_device
from combutab.core.rng import Stream, fold_in, seed_from
from combutab.core.text import parse_seconds
from combutab.core.world import current
from combutab.generators._records import (
    ENDS,
    GeneratorPlan,
    NetworkT,
    Rates,
    RowsAsked,
    RowsDrawn,
    SampledShape,
    TableRows,
    make_spans,
)
from combutab.generators.sampling import Sampler, draw_nearest
from combutab.nn import (
    NORMALIZATIONS,
    ActivationSpec,
    Member,
    RowSpans,
    StackedNetwork,
    check_activation,
    check_proxy_norm,
)
from combutab.preprocessing import ModeEncoder
from combutab.training import OptimizerConfig, RowOptimizer

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


# ---- Early stopping of generators by a statistic of rows held out --------------------------------

MAX_ROWS = 1000  # held out


class Validation:
    """A statistic of each member by epoch, the less the better, and its best weights.

    ``name`` is the statistic's among a training's curves, and ``measure`` gives it, (M,). A member
    is finished after ``patience`` epochs without a lower one.
    """

    def __init__(
        self,
        name: str,
        measure: Callable[[], np.ndarray],
        network: StackedNetwork,
        patience: float,
    ) -> None:
        self.name, self.measure, self.network, self.patience = name, measure, network, patience
        self.best = np.full(network.n_members, np.inf)
        self.best_states: list[dict[str, Tensor]] = [{} for _ in self.best]
        self.n_iter_no_improvement = np.zeros(len(self.best), dtype=int)
        self.n_epochs = np.zeros(len(self.best), dtype=int)

    @property
    def finished(self) -> np.ndarray:
        """Find the members that have not become better for too long."""
        return self.n_iter_no_improvement >= self.patience

    def observe(self, values: np.ndarray) -> None:
        """Take in an epoch's statistics, and keep the weights of members that became better."""
        for m in np.flatnonzero(self._count(values)):
            self.best_states[m] = self.network.member_state(int(m))

    def restore(self, curve: Sequence[np.ndarray], states: list[dict[str, Tensor]]) -> None:
        """Stand where these epochs' statistics, and the best weights among them, lead."""
        for values in curve:
            self._count(values)
        self.best_states = states

    def _count(self, values: np.ndarray) -> np.ndarray:
        going = ~self.finished
        better = going & (values < self.best)
        self.best[better] = values[better]
        self.n_iter_no_improvement[going] += 1
        self.n_iter_no_improvement[better] = 0
        self.n_epochs[going] += 1
        return better


class EnergyDistance:
    """The energy distance of each member's rows to rows held out, (M,) a call.

    The sampler is about the network in training. There is a key a member, for the same noise each
    time, so that the distances differ by the weights.
    """

    def __init__(self, rows: TableRows, sampler: Sampler[NetworkT], keys: Sequence[int]) -> None:
        self.rows, self.sampler, self.keys = rows, sampler, list(keys)
        self._within = _mean_distance(rows.values, rows.codes)

    def __call__(self) -> np.ndarray:
        assert self.sampler.network is not None
        self.sampler.network.eval()
        values, codes = self.sampler.generate_stack(self.keys, len(self.rows))
        return np.array([self._one(v, c) for v, c in zip(values, codes, strict=True)])

    def _one(self, values: Tensor, codes: Tensor) -> float:
        # Székely and Rizzo (2013): 0 where the distributions are equal, else positive
        between = _distances(values, codes, self.rows.values, self.rows.codes).mean()
        return float(2 * between - _mean_distance(values, codes) - self._within)


def _distances(values: Tensor, codes: Tensor, values_2: Tensor, codes_2: Tensor) -> Tensor:
    """Euclidean distances (n, m) of encoded rows, their codes as one-hot vectors."""
    squares = torch.cdist(values.double(), values_2.double()).square_()
    unequal = torch.cdist(codes.double(), codes_2.double(), p=0)
    return squares.add_(unequal, alpha=2).sqrt_()


def _mean_distance(values: Tensor, codes: Tensor) -> float:
    """Return the mean distance of two different rows."""
    n = len(codes)
    return float(_distances(values, codes, values, codes).sum()) / (n * (n - 1))


# For each member: of the weights (gradients, moments, scratch, the best and the last ones), of a
# batch's activations (forward, backward and masks), and of a row at both ends of its networks.
_NETWORK_COPIES, _STEP_COPIES, _ROW_COPIES = 10, 6, 4
_ORDER_BYTES = 24  # a row and member: places, sorted


class Training(ABC, Generic[NetworkT]):
    """The networks of a stack of generators, and an epoch of their training.

    All that it draws is to be a function of the members' seeds, the epoch and the step, so that it
    can be taken up at any epoch and a member does not depend on its stack. What an epoch changes is
    in the networks and the optimisers: a checkpoint has both.

    Before each epoch ``progress`` is set to the share of the training that is done, from 0 to 1:
    of the epochs or, where it ends sooner, of the time that ``max_time`` leaves for training.

    Parameters
    ----------
    rows : TableRows
    spans : RowSpans
    plans : sequence of GeneratorPlan
    networks : mapping of name to StackedNetwork
        Those that the plans have rates for get an optimiser; an average of weights, say, has none.
    sampled : StackedNetwork
        The one of them that makes rows.
    adam : OptimizerConfig
    """

    statistic: ClassVar[str] = "validation_distance"  # that early stopping goes by
    shares_rows: ClassVar[bool] = False  # whether steps go by ``own`` and ``add_up``
    batch_size: int  # of a step's rows, where they are shared
    progress: float = 0.0

    def __init__(
        self,
        rows: TableRows,
        spans: RowSpans,
        plans: Sequence[GeneratorPlan],
        networks: Mapping[str, StackedNetwork],
        sampled: NetworkT,
        adam: OptimizerConfig,
    ) -> None:
        self.rows, self.spans, self.plans = rows, spans, list(plans)
        self.ranks = current()  # that share each step
        self.networks, self.sampled = dict(networks), sampled
        if not any(network is sampled for network in networks.values()):
            raise ValueError("sampled must be one of the networks: a checkpoint has no others")
        self.optimizers = {
            name: RowOptimizer(adam, network.flat.values, network.n_decayed)
            for name, network in networks.items()
            if name in self.plans[0].rates
        }

    @abstractmethod
    def epoch(self, number: int) -> dict[str, Tensor]:
        """Train one epoch; returns each member's mean losses by name, (M,) on the device."""

    def own(self, n: int) -> slice:
        """The rows of a step's n that this process is to take: of ranks that share it, a part."""
        return slice(0, n) if self.ranks is None else slice(*self.ranks.span(n))

    def add_up(self, n_own: int, n: int, *names: str) -> float:
        """Make gradients of means over a rank's own rows those of means over all n.

        Returns the share of the rows, by which to weigh the own losses; their sums over the ranks
        are for the end of an epoch.
        """
        if self.ranks is None:
            return 1.0
        for name in names:
            grads = self.networks[name].flat.grads
            if n_own:
                grads.mul_(n_own / n)
            else:
                grads.zero_()
            self.ranks.sum_(grads)
        return n_own / n

    def measure(
        self, held_out: TableRows, sampler: Sampler[NetworkT], keys: Sequence[int]
    ) -> Callable[[], np.ndarray]:
        """Return a function that measures each member, (M,), by rows held out and a key each."""
        return EnergyDistance(held_out, sampler, keys)

    def update(self, name: str) -> None:
        """Take one step of a network along its gradients and those of its decay."""
        flat, rates = self.networks[name].flat, [plan.rates[name] for plan in self.plans]
        values, grads = flat.values, flat.grads
        assert grads is not None
        decays = [rate.decay for rate in rates]
        if len(set(decays)) == 1:
            grads.add_(values, alpha=decays[0])
        else:
            column = torch.tensor(decays, dtype=values.dtype, device=values.device)
            grads.addcmul_(values, column.unsqueeze(1))
        self.optimizers[name].step(
            values, grads, range(len(rates)), [rate.lr for rate in rates], [0.0] * len(rates)
        )


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
    _n_rows: int | None = None  # of the table; files of before do not say
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
    def _draw(self, network: NetworkT, spans: RowSpans, asked: RowsAsked) -> RowsDrawn:
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
        return draw_nearest(self._sampler(), values, codes, known, key)

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
        rows = "" if self._n_rows is None else f"{self._n_rows:,} rows x "
        return f"{rows}{self.n_features_in_:,} column{'s' * (self.n_features_in_ != 1)}"

    def _trained(self) -> str:
        """Say for how long it has learned, and why no longer."""
        epochs = self.history_["member"].value_counts() if len(self.history_) else [0]
        least, most = min(epochs), max(epochs)
        trained = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        return f"{trained} epoch{'s' * (most != 1)}{ENDS[self._ended]}"

    def _sample_key(self, random_state: Any) -> int:
        if random_state is not None:
            return fold_in(seed_from(random_state), Stream.SAMPLE)
        self._n_sampled += 1
        return fold_in(self._seed, Stream.SAMPLE, self._n_sampled - 1)

    def _sampler(self) -> Sampler[NetworkT]:
        """Return the sampler, with the network that was learned."""
        guard_forks()
        shape, device = self._shape, self._find_device()
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
