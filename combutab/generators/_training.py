"""The training of generators: those of equal shape as one stack, with checkpoints and ranks."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor

from combutab._model_files import check_state, with_prefix
from combutab.core.device import Precision, training_flops
from combutab.core.files import check_fields, several, text, whole
from combutab.core.rng import Stream, fold_in
from combutab.core.world import Ranks, broadcast, check_same, current, refuse_mixed_rows
from combutab.generators.sampling import NetworkT, Sampler
from combutab.nn import Member, RowSpans, StackedNetwork
from combutab.preprocessing import ModeTable, RowLayout
from combutab.training import OptimizerConfig, RowOptimizer, StackFile, StepRates, Trainable

# ---- Records: inputs and results of the training of generators ----------------------------------

Curves = dict[str, list[np.ndarray]]  # a loss of each member by epoch
State = dict[str, Tensor]  # of a member
Measure = Callable[[], dict[str, np.ndarray]]  # statistics of each member on validation rows
_MOVED = 1 << 16  # rows at a time


@dataclass(frozen=True)
class TableRows:
    """An encoded table on its device, each row once: values (N, n_values), codes (N, n_spans)."""

    values: Tensor
    codes: Tensor

    @classmethod
    def on(cls, device: torch.device, table: ModeTable, dtype: torch.dtype) -> TableRows:
        """Copy an encoded table to a device."""
        values = torch.from_numpy(table.values).to(device, dtype)
        return cls(values, torch.from_numpy(table.codes).to(device))

    def __getitem__(self, index: Tensor) -> TableRows:
        return TableRows(self.values[index], self.codes[index])

    def keep(self, index: Tensor) -> TableRows:
        """Keep rows, given in their order, in the memory of all: no copy is made."""
        for tensor in (self.values, self.codes):
            for start in range(0, len(index), _MOVED):
                part = index[start : start + _MOVED]
                tensor[start : start + len(part)] = tensor[part]
        return TableRows(self.values[: len(index)], self.codes[: len(index)])

    def __len__(self) -> int:
        return len(self.codes)


class Rates(NamedTuple):
    """Rates of a network's optimiser: learning rate, and decay / 2 |parameters|^2 of the loss."""

    lr: float
    decay: float = 0.0


@dataclass(frozen=True)
class GeneratorPlan:
    """One member, and the rates of its optimisers.

    ``rates`` has one entry per trained network; callbacks receive the first one.
    """

    member: Member
    rates: Mapping[str, Rates]


ENDS = {  # why a training ended, and how a fitted generator describes it
    "epochs": "",
    "no_improvement": ", ended by early stopping",
    "max_time": ", ended by max_time",
    "callback": ", ended by a callback",
    "interrupted": ", ended by Ctrl-C",
}


@dataclass
class GeneratorResult:
    """The result of one member: the state of the network that samples rows, and curves by epoch."""

    state: State
    losses: dict[str, list[float]] = field(default_factory=dict)
    reason: str = "epochs"  # of ENDS, or "diverged"

    @property
    def n_epochs(self) -> int:
        return len(next(iter(self.losses.values()), []))


def make_spans(layout: RowLayout, device: torch.device, precision: Precision) -> RowSpans:
    """The operations on rows of a layout; its discrete columns may be conditions."""
    categories = [i for i, span in enumerate(layout.spans) if span.kind == "category"]
    return RowSpans(
        layout.n_values,
        layout.sizes,
        categories,
        missing=[i for i, span in enumerate(layout.spans) if span.missing],
        suppressed=layout.suppressed,
        device=device,
        dtype=precision.dtype,
    )


# ---- Numbers that are drawn for some steps at once -----------------------------------------------


_DRAWN = 2**18  # numbers drawn at once, about


class DrawnBlocks:
    """Random numbers of a range of steps, drawn together.

    On small tensors the overhead of an operation exceeds its work, so numbers are drawn for several
    steps at once, ``n_numbers`` per step. The first ranges are short, since a training may be. The
    range of a step depends on the step only, since rounding may depend on the position in memory.
    """

    def __init__(self, n_numbers: int, draw: Callable[[range], list[Tensor]]) -> None:
        self._most = 1 << (max(1, _DRAWN // max(1, n_numbers)).bit_length() - 1)
        self._draw = draw
        self._steps = range(0)
        self._drawn: list[Tensor] = []

    def __call__(self, step: int) -> list[Tensor]:
        """The part of one step: item ``step`` of the range, from each tensor."""
        if step not in self._steps:
            n_steps = min(1 << max(2, step.bit_length() - 1), self._most)
            start = step // n_steps * n_steps
            self._steps = range(start, start + n_steps)
            self._drawn = self._draw(self._steps)
        return [drawn[step - self._steps.start] for drawn in self._drawn]


# ---- The contract of a training, and its statistic for early stopping ---------------------------

MAX_ROWS = 1000  # held out


def energy_distance(rows: TableRows, sampler: Sampler[NetworkT], keys: Sequence[int]) -> Measure:
    """Return a function that gives the energy distance of each member's rows to others, (M,).

    The sampler uses the network in training. Each member has one key, and therefore the same noise
    in each epoch: distances differ by the weights only.
    """
    within = _mean_distance(rows.values, rows.codes)

    def one(values: Tensor, codes: Tensor) -> float:
        # Székely and Rizzo (2013): 0 where the distributions are equal, else positive
        between = _distances(values, codes, rows.values, rows.codes).mean()
        return float(2 * between - _mean_distance(values, codes) - within)

    def measure() -> dict[str, np.ndarray]:
        assert sampler.network is not None
        sampler.network.eval()
        values, codes = sampler.generate_stack(keys, len(rows))
        distances = [one(v, c) for v, c in zip(values, codes, strict=True)]
        return {"validation_distance": np.array(distances)}

    return measure


def _distances(values: Tensor, codes: Tensor, values_2: Tensor, codes_2: Tensor) -> Tensor:
    """Euclidean distances (n, m) of encoded rows, their codes as one-hot vectors."""
    squares = torch.cdist(values.double(), values_2.double()).square_()
    unequal = torch.cdist(codes.double(), codes_2.double(), p=0)
    return squares.add_(unequal, alpha=2).sqrt_()


def _mean_distance(values: Tensor, codes: Tensor) -> float:
    """Return the mean distance of two different rows."""
    n = len(codes)
    return float(_distances(values, codes, values, codes).sum()) / (n * (n - 1))


class Training(ABC, Generic[NetworkT]):
    """The networks of a stack of generators, and an epoch of their training.

    All random numbers must be functions of the members' seeds, the epoch and the step, so that
    training can continue at any epoch and a member does not depend on its stack. An epoch changes
    only the networks and the optimisers; a checkpoint contains both.

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

    rate_factors: ClassVar[Mapping[str, float]] = {}  # of the learning rate, by parameters' roles
    ended: frozenset[str] = frozenset()  # parts that early stopping has ended for all members
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
        self.world, self.adam = current(), adam  # the ranks share each step
        self.networks, self.sampled = dict(networks), sampled
        if not any(network is sampled for network in networks.values()):
            raise ValueError("sampled must be one of the networks: a checkpoint has no others")
        self.optimizers = {
            name: RowOptimizer(
                adam,
                network.flat.values,
                network.n_decayed,
                network.rate_factors(self.rate_factors),
            )
            for name, network in networks.items()
            if name in self.plans[0].rates
        }
        # strengths of the L2 penalty: a number for all members, or (M, 1)
        self.penalties: dict[str, float | Tensor] = {}
        self.step_rates: dict[str, list[StepRates]] = {}
        for name in self.optimizers:
            self.place_rates(name)
            decays = [plan.rates[name].decay for plan in self.plans]
            values = networks[name].flat.values
            column = torch.tensor(decays, dtype=values.dtype, device=values.device).unsqueeze(1)
            self.penalties[name] = decays[0] if len(set(decays)) == 1 else column

    @property
    def statistics(self) -> Mapping[str, str]:
        """What early stopping goes by, and the part of the network that it is about.

        The names of a part's tensors begin with it: with nothing for the whole network, or with the
        name of one of several networks that do not depend on each other, and of its loss.
        """
        return {"validation_distance": ""}

    @abstractmethod
    def epoch(self, number: int) -> dict[str, Tensor]:
        """Train one epoch; returns each member's mean losses by name, (M,) on the device."""

    def keys(self, stream: Stream, steps: range) -> list[int]:
        """The keys of all members in each of some steps."""
        return [fold_in(plan.member.seed, stream, at) for at in steps for plan in self.plans]

    def by_step(self, drawn: Tensor) -> Tensor:
        """Reshape random numbers of such keys to (steps, M, ...)."""
        return drawn.unflatten(0, (-1, len(self.plans)))

    def rank_rows(self, n: int) -> slice:
        """The rows of the n in a step that this rank computes."""
        return slice(*self.world.span(n))

    def add_up(self, n_own: int, n: int, *names: str) -> float:
        """Turn gradients of means over this rank's rows into gradients of means over all n rows.

        Returns the share of the rows, by which this rank's losses are weighted; the losses are
        summed over the ranks at the end of an epoch.
        """
        if self.world.count == 1:
            return 1.0
        for name in names:
            grads = self.networks[name].flat.grads
            if n_own:
                grads.mul_(n_own / n)
            else:
                grads.zero_()
            self.world.all_reduce(grads)
        return n_own / n

    def measure(
        self,
        held_out: TableRows,
        make_sampler: Callable[[], Sampler[NetworkT]],
        keys: Sequence[int],
    ) -> Measure:
        """Return a function that computes the ``statistics`` on validation rows.

        There is one key per member. ``make_sampler`` makes a sampler of ``sampled``.
        """
        return energy_distance(held_out, make_sampler(), keys)

    def place_rates(self, name: str, factors: Sequence[float] = (1.0,)) -> None:
        """Set the rates of a network's next steps: a factor of the plans' for each step."""
        rates = [plan.rates[name] for plan in self.plans]
        decays = [rate.decay if self.adam.solver == "adamw" else 0.0 for rate in rates]
        table = [[factor * rate.lr for rate in rates] for factor in factors]
        self.step_rates[name] = self.optimizers[name].place_rates(table, decays)

    def update(self, name: str, step: int = 0) -> None:
        """Take one step of a network along its gradients, with the rates placed for this step.

        Their decay is an L2 penalty, or AdamW's.
        """
        values, grads = self.networks[name].flat.values, self.networks[name].flat.grads
        if self.adam.solver != "adamw":
            penalty = self.penalties[name]
            if isinstance(penalty, Tensor):
                grads.addcmul_(values, penalty)
            else:
                grads.add_(values, alpha=penalty)
        self.optimizers[name].step(values, grads, range(len(values)), self.step_rates[name][step])


# ---- A stack of generators as the training loop drives it ---------------------------------------


_PROGRESS = {"epochs": whole(), "losses": several(text(100))}


class GeneratorStack(Trainable[GeneratorResult]):
    """A stack of generators in training.

    A member that diverges, or that early stopping ends, stays in the stack until all have ended;
    its result is unchanged. Training continues from a checkpoint, and is written to it. After an
    interrupt the results are those of the last complete epoch; if there was none, KeyboardInterrupt
    is raised.

    ``measure`` gives statistics of each member on rows held out, (M,), lower is better: one for
    each part of its network. A part has ended after ``n_iter_no_change`` epochs without a lower
    one, and has the weights of its best epoch; a member is finished when all its parts have.
    """

    def __init__(
        self,
        training: Training[Any],
        measure: Measure | None = None,
        n_iter_no_change: float = np.inf,
        file: StackFile | None = None,
    ) -> None:
        self.training, self.measure, self.file = training, measure, file
        self.n_iter_no_change = n_iter_no_change
        self.parts = dict(training.statistics) if measure is not None else {}
        n_members = len(training.plans)
        self.members = list(range(n_members))
        first_rates = [next(iter(plan.rates.values()), Rates(0.0)) for plan in training.plans]
        self.learning_rates = [rates.lr for rates in first_rates]
        self.curves: Curves = {}
        self.diverged = np.zeros(n_members, dtype=bool)
        self.reason = "epochs"
        self.states: list[State] = []  # of the last whole epoch, or the best one
        self.best = np.full((len(self.parts), n_members), np.inf)
        self.best_states: list[State] = [{} for _ in self.members]
        self.n_iter_no_improvement = np.zeros((len(self.parts), n_members), dtype=int)
        self.n_epochs = np.zeros(n_members, dtype=int)  # until early stopping ended it
        if training.spans.device.type == "cpu":
            n_rows = min(getattr(training, "batch_size", len(training.rows)), len(training.rows))
            trained = [training.networks[name].flat.values.numel() for name in training.optimizers]
            self.step_flops = training_flops(n_rows, sum(trained))

    @property
    def ended(self) -> np.ndarray:
        """Find the parts of members that have not become better for too long, (n_parts, M)."""
        return self.n_iter_no_improvement >= self.n_iter_no_change

    @property
    def stopped(self) -> np.ndarray:
        """Find the members whose parts have all ended."""
        return np.all(self.ended, axis=0) & bool(self.parts)

    @property
    def finished(self) -> bool:
        """See `Trainable`."""
        return bool((self.diverged | self.stopped).all())

    def begin(self) -> int:
        """See `Trainable`."""
        n_done = 0 if self.file is None else self.file.load(self.restore)
        self._set_states()
        return n_done

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The state of the stack: arrays, and the progress of the training."""
        arrays = {f"losses.{name}": np.array(values) for name, values in self.curves.items()}
        states = _tensors(self.training)
        for m, state in enumerate(self.best_states):
            states |= {f"{m}.best.{key}": value for key, value in state.items()}
        arrays |= {name: value.cpu().numpy() for name, value in states.items()}
        n_epochs = len(next(iter(self.curves.values())))
        # the order of the losses: arrays in a file have no order
        return arrays, {"epochs": n_epochs, "losses": list(self.curves)}

    def restore(self, arrays: Mapping[str, np.ndarray], progress: dict[str, Any]) -> int:
        """Continue from the result of ``state``; returns its epochs.

        Raises ValueError if it is of another stack.
        """
        check_fields(progress, _PROGRESS, "the training's progress")
        training, n_epochs = self.training, progress["epochs"]
        expected = _tensors(training)
        for m, part in itertools.product(self.members, self.parts.values()):
            state = training.sampled.member_state(m)
            best = {f"{m}.best.{n}": v for n, v in state.items() if n.startswith(part)}
            expected |= best if best.keys() & arrays.keys() else {}
        curves = {name: f"losses.{name}" for name in progress["losses"]}
        if wrong := set(arrays) ^ {*curves.values(), *expected}:
            raise ValueError(f"it lacks arrays, or has those of no part of it: {sorted(wrong)[:5]}")
        check_state(arrays, expected)
        for name, key in curves.items():
            if arrays[key].shape != (n_epochs, len(self.members)) or arrays[key].dtype.kind != "f":
                raise ValueError(f"it has losses {name} of other epochs than {n_epochs}")
            self.curves[name] = list(arrays[key])
        for epoch in range(n_epochs):
            self._add_epoch({name: values[epoch] for name, values in self.curves.items()})
        if self.diverged.all():  # then nothing is written
            raise ValueError("its losses are not finite")
        for m in self.members:
            member_arrays = with_prefix(arrays, f"{m}.")
            state = {name: torch.from_numpy(array) for name, array in member_arrays.items()}
            for name, value in state.items():
                if not self.diverged[m] and not value.isfinite().all():
                    raise ValueError(f"its array {m}.{name} has numbers that are not finite")
            for name, _, load in _member_states(training):
                load(m, with_prefix(state, f"{name}."))
            self.best_states[m] = with_prefix(state, "best.")
        return int(n_epochs)

    def epoch(
        self, number: int, progress: float
    ) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """See `Trainable`; measured statistics are lower for better members."""
        training, world = self.training, current()
        training.progress = progress
        over = np.all(self.ended | self.diverged, axis=1)
        training.ended = frozenset(itertools.compress(self.parts.values(), over))
        losses = {n: v.cpu().numpy() for n, v in training.epoch(number).items()}  # the one sync
        measured = {} if self.measure is None else self.measure()
        for network in training.networks.values():  # processors may round differently
            world.broadcast(network.flat.values)
        losses, measured = world.broadcast_object((losses, measured))
        scores = None
        if self.parts:
            statistics = np.stack([measured[name] for name in self.parts])
            scores = -np.where(self.ended, self.best, statistics).sum(0)
        curves = losses | measured
        return {n: np.where(self._has_ended(n), np.nan, v) for n, v in curves.items()}, scores

    def record(self, losses: dict[str, np.ndarray], scores: np.ndarray | None) -> None:
        """See `Trainable`."""
        better = self._add_epoch(losses)
        for part, members in zip(self.parts.values(), better, strict=True):
            for m in np.flatnonzero(members):
                state = self.training.sampled.member_state(int(m))
                self.best_states[m] |= {n: v for n, v in state.items() if n.startswith(part)}
        for name, values in losses.items():
            self.curves.setdefault(name, []).append(values)
        self._set_states()
        if self.file is not None and not self.diverged.all():
            self.file.set_state(*self.state())

    def _has_ended(self, name: str) -> np.ndarray:
        """The members whose part with this curve had ended before the epoch, (M,)."""
        about = self.parts.get(name, name)
        is_part = [part == about for part in self.parts.values()]
        return np.all(self.ended[is_part], axis=0) if any(is_part) else self.stopped

    def _add_epoch(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Count an epoch and its statistics; returns the parts that improved, (n_parts, M)."""
        for name in columns.keys() - self.parts.keys():
            self.diverged |= ~np.isfinite(columns[name]) & ~self._has_ended(name)
        going = ~self.ended
        self.n_epochs[~self.stopped] += 1
        values = self.best.copy()
        for k, name in enumerate(self.parts):
            values[k] = columns.get(name, np.inf)
        better = going & (values < self.best)
        self.best[better] = values[better]
        self.n_iter_no_improvement[going] += 1
        self.n_iter_no_improvement[better] = 0
        return better

    def stop(self, reason: str) -> None:
        """See `Trainable`."""
        if not self.curves:  # nothing is learned
            raise KeyboardInterrupt
        self.reason = reason

    def results(self) -> list[GeneratorResult]:
        """See `Trainable`."""
        results = []
        for m, state in enumerate(self.states):
            n_epochs = None if self.measure is None else int(self.n_epochs[m])
            curves = self.curves.items()
            losses = {name: [float(v[m]) for v in values[:n_epochs]] for name, values in curves}
            reason = "no_improvement" if self.stopped[m] else self.reason
            reason = "diverged" if self.diverged[m] else reason
            tensors = {name: value.cpu() for name, value in state.items()}
            results.append(GeneratorResult(tensors, losses, reason))
        return results

    def _set_states(self) -> None:
        """Copy the result of each member if training ended now."""
        network = self.training.sampled
        self.states = [network.member_state(m) | s for m, s in enumerate(self.best_states)]


def _member_states(
    training: Training[Any],
) -> Iterator[tuple[str, Callable[[int], State], Callable[[int, State], None]]]:
    """The parts with states of members: networks and their optimizers."""
    for name, network in training.networks.items():
        yield f"{name}.network", network.member_state, network.load_member
        if name in training.optimizers:
            optimizer = training.optimizers[name]
            yield f"{name}.optimizer", optimizer.member, optimizer.load_member


def _tensors(training: Training[Any]) -> State:
    """All tensors of members in training, by member, part and name."""
    return {
        f"{m}.{name}.{key}": value
        for m in range(len(training.plans))
        for name, get, _ in _member_states(training)
        for key, value in get(m).items()
    }


# ---- One training of a stack of generators, shared by ranks: its members, or else a step's rows


def share(
    ranks: Ranks,
    train_members: Callable[[Sequence[GeneratorPlan]], list[GeneratorResult]],
    rows: TableRows,
    plans: Sequence[GeneratorPlan],
    *,
    by_member: bool,
) -> list[GeneratorResult]:
    """Train members on ranks that share the fit, with the same results on all of them.

    ``by_member``: each rank may train some of the members, without communication, if there are at
    least as many members as ranks. Otherwise the ranks share the rows of each step.
    """
    check_same(ranks, [rows.values, rows.codes])
    if not broadcast(by_member) or len(plans) < ranks.count:
        return train_members(plans)
    return ranks.share(len(plans), lambda members: train_members(plans[members]))


def check_rows_shared(training: Training[Any], name: str) -> None:
    """Refuse training steps whose rows cannot be shared by ranks."""
    n_ranks = current().count
    mixed = next(filter(None, (net.mixes_rows() for net in training.networks.values())), None)
    if not training.shares_rows:
        mixed = f"{name}: a step"
    elif training.batch_size < n_ranks:
        raise ValueError(
            f"batch_size={training.batch_size} is less than the {n_ranks} ranks that share "
            "each step; raise it, or begin fewer"
        )
    refuse_mixed_rows(mixed)
