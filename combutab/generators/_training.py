"""The training of generators: those of equal shape as one stack, with checkpoints and ranks."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic

import numpy as np
import torch
from torch import Tensor

from combutab._model_files import CheckpointFile, check_state, with_prefix
from combutab.core.fields import several, text, whole
from combutab.core.files import reading
from combutab.core.world import broadcast, check_same, current
from combutab.generators._records import (
    Curves,
    GeneratorPlan,
    GeneratorResult,
    NetworkT,
    State,
    TableRows,
)
from combutab.generators.sampling import Sampler
from combutab.nn import (
    RowSpans,
    StackedNetwork,
)
from combutab.training import (
    OptimizerConfig,
    RowOptimizer,
    Trainable,
)

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


# ---- A training as a file, to go on from: networks, optimisers, losses, and where it stood -------

# may differ between the fits of one training
_FREE = ("epochs", "max_time", "verbose", "enable_gpu")
_SAMPLED_ROWS = 1 << 16
_STOOD = {
    "epochs": whole(),
    "seed": whole(0, 2**64),
    "table": text(64),
    "losses": several(text(100)),
}


class GeneratorCheckpoint(CheckpointFile):
    """A file that a training is written to now and then, and taken up from.

    All that is drawn is a function of seed and step, so a training that is taken up gives what it
    would have given in one go. The model is unfitted, and its parameters are part of the file; the
    attribute ``seed`` is that of the training that the file is of.

    Raises ValueError if there is a file that is no checkpoint, or one of another training.
    """

    def __init__(self, path: str | os.PathLike[str], model: Any, seed: int) -> None:
        super().__init__(path, model, _STOOD, _FREE)
        self.seed = self._state.get("seed", seed)

    def restore(self, training: Training[Any], validation: Validation | None) -> tuple[int, Curves]:
        """Put a training where the file's stood; returns its epochs, and its curves by epoch."""
        self._fingerprint = _table_fingerprint(training.rows)
        self._validation = validation
        if self._found is None:
            return 0, {}
        if self._state["table"] != self._fingerprint:
            raise ValueError(
                f"{self.path} is of a training on another table; remove the file to begin anew"
            )
        with reading(self.path, "checkpoint of this training"):
            return self._take_up(self._found, training, validation)

    def _take_up(
        self,
        found: dict[str, np.ndarray],
        training: Training[Any],
        validation: Validation | None,
    ) -> tuple[int, Curves]:
        n_epochs, names = int(self._state["epochs"]), self._state["losses"]
        members, expected = range(len(training.plans)), _tensors(training)
        if validation is not None:
            for m in members:
                best = {f"{m}.best.{n}": v for n, v in validation.network.member_state(m).items()}
                expected |= best if best.keys() & found.keys() else {}
        curves = {f"losses.{name}" for name in names}
        if set(found) != curves | set(expected):
            wrong = sorted(set(found) ^ (curves | set(expected)))
            raise ValueError(f"it lacks arrays, or has those of no part of it: {wrong[:5]}")
        check_state(found, expected)
        losses = {name: found[f"losses.{name}"] for name in names}
        for name, array in losses.items():
            if array.shape != (n_epochs, len(members)) or array.dtype.kind != "f":
                raise ValueError(f"it has losses {name} of other epochs than {n_epochs}")
        diverged = ~np.all([np.isfinite(array).all(axis=0) for array in losses.values()], axis=0)
        if diverged.all():  # then nothing is written
            raise ValueError("its losses are not finite")
        for name in expected:
            if not diverged[int(name.partition(".")[0])] and not np.isfinite(found[name]).all():
                raise ValueError(f"its array {name} has numbers that are not finite")

        def state(prefix: str) -> State:
            return {n: torch.from_numpy(v) for n, v in with_prefix(found, prefix).items()}

        for m in members:
            for name, _, load in _member_states(training):
                load(m, state(f"{m}.{name}."))
        if validation is not None:
            bests = [state(f"{m}.best.") for m in members]
            validation.restore(list(losses[validation.name]), bests)
        return n_epochs, {name: list(array) for name, array in losses.items()}

    def note(self, training: Training[Any], epochs: int, curves: Curves) -> None:
        """Remember the training as it stands; write it, unless that was done a moment ago."""
        tensors: dict[str, np.ndarray] = {
            f"losses.{name}": np.array(values) for name, values in curves.items()
        }
        tensors |= {name: value.cpu().numpy() for name, value in _tensors(training).items()}
        if self._validation is not None:
            for m, state in enumerate(self._validation.best_states):
                tensors |= {f"{m}.best.{key}": value.cpu().numpy() for key, value in state.items()}
        stood = {
            "epochs": epochs,
            "seed": self.seed,
            "table": self._fingerprint,
            "losses": list(curves),  # in this order: the arrays of the file have none
        }
        self._note(stood, tensors)


def _member_states(
    training: Training[Any],
) -> Iterator[tuple[str, Callable[[int], State], Callable[[int, State], None]]]:
    """All that has states of members: networks, and the optimisers of those that have one."""
    for name, network in training.networks.items():
        yield f"{name}.network", network.member_state, network.load_member
        if name in training.optimizers:
            optimizer = training.optimizers[name]
            yield f"{name}.optimizer", optimizer.member, optimizer.load_member


def _tensors(training: Training[Any]) -> State:
    """All that members have in training, by member, part and name."""
    return {
        f"{m}.{name}.{key}": value
        for m in range(len(training.plans))
        for name, get, _ in _member_states(training)
        for key, value in get(m).items()
    }


def _table_fingerprint(rows: TableRows) -> str:
    """Fingerprint the encoded table; it cannot be turned back into one."""
    digest = hashlib.sha256()
    for tensor in (rows.values, rows.codes):
        digest.update(str(tuple(tensor.shape)).encode())
        for part in tensor.split(_SAMPLED_ROWS):  # no copy of all
            digest.update(part.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


# ---- A stack of generators as the training loop drives it ----------------------------------------


class GeneratorStack(Trainable[GeneratorResult]):
    """A stack of generators in training.

    A member that diverges, or that validation finds finished, stays in the stack until all are, and
    what comes of it is what it was. Training goes on from a file, and is written to it. After an
    interrupt the results are those of the last whole epoch; if there was none, KeyboardInterrupt is
    raised.
    """

    def __init__(
        self,
        training: Training[Any],
        validation: Validation | None = None,
        file: GeneratorCheckpoint | None = None,
    ) -> None:
        self.training, self.validation, self.file = training, validation, file
        self.members = list(range(len(training.plans)))
        self.learning_rates = [next(iter(plan.rates.values())).lr for plan in training.plans]
        self.curves: Curves = {}
        self.diverged = np.zeros(len(self.members), dtype=bool)
        self.reason = "epochs"
        self.states: list[State] = []  # of the last whole epoch, or the best one

    @property
    def finished(self) -> bool:
        """See `Trainable`."""
        ended = self.diverged
        if self.validation is not None:
            ended = ended | self.validation.finished
        return bool(ended.all())

    def begin(self) -> int:
        """See `Trainable`."""
        n_done = 0
        if self.file is not None:
            n_done, self.curves = self.file.restore(self.training, self.validation)
        for values in self.curves.values():
            self.diverged |= ~np.isfinite(values).all(axis=0)
        self._keep_states()
        return n_done

    def epoch(
        self, number: int, progress: float
    ) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """See `Trainable`; what validation measures is less for better members."""
        training, ranks = self.training, current()
        training.progress = progress
        losses = {n: v.cpu().numpy() for n, v in training.epoch(number).items()}  # the one sync
        measured = None if self.validation is None else self.validation.measure()
        if ranks is not None:  # processors may round differently
            for network in training.networks.values():
                ranks.first_(network.flat.values)
            losses, measured = ranks.first((losses, measured))
        return losses, None if measured is None else -measured

    def record(self, losses: dict[str, np.ndarray], scores: np.ndarray | None) -> None:
        """See `Trainable`."""
        columns = dict(losses)
        if self.validation is not None and scores is not None:
            columns[self.validation.name] = -scores
            self.validation.observe(-scores)
        for name, values in columns.items():
            self.curves.setdefault(name, []).append(values)
        for values in losses.values():
            self.diverged |= ~np.isfinite(values)
        self._keep_states()
        if self.file is not None and not self.diverged.all():
            n_epochs = len(next(iter(self.curves.values())))
            self.file.note(self.training, n_epochs, self.curves)

    def stop(self, reason: str) -> None:
        """See `Trainable`."""
        if not self.curves:  # nothing is learned
            raise KeyboardInterrupt
        self.reason = reason

    def results(self) -> list[GeneratorResult]:
        """See `Trainable`."""
        return [self._result(m, state) for m, state in enumerate(self.states)]

    def _keep_states(self) -> None:
        """Copy what would come of each member if training ended now."""
        best = self.validation.best_states if self.validation else [{}] * len(self.members)
        network = self.training.sampled
        self.states = [state or network.member_state(m) for m, state in enumerate(best)]

    def _result(self, m: int, state: State) -> GeneratorResult:
        n_epochs, reason = None, self.reason
        if self.validation is not None:
            n_epochs = int(self.validation.n_epochs[m])
            reason = "no_improvement" if self.validation.finished[m] else reason
        return GeneratorResult(
            {name: value.cpu() for name, value in state.items()},
            {
                name: [float(v[m]) for v in values[:n_epochs]]
                for name, values in self.curves.items()
            },
            "diverged" if self.diverged[m] else reason,
        )


# ---- One training of a stack of generators, shared by ranks: its members, or else a step's rows


def share(
    train_members: Callable[[Sequence[GeneratorPlan]], list[GeneratorResult]],
    rows: TableRows,
    plans: Sequence[GeneratorPlan],
    *,
    apart: bool,
) -> list[GeneratorResult]:
    """Train members; where ranks share the fit, all return the same results.

    ``apart``: members may be shared out, without a word until they are trained, if there are as
    many as ranks; else each step's rows are.
    """
    ranks = current()
    if ranks is None:
        return train_members(plans)
    check_same(ranks, [rows.values, rows.codes])
    if not broadcast(apart) or len(plans) < ranks.count:
        return train_members(plans)

    def own() -> list[GeneratorResult]:
        results = train_members(plans[slice(*ranks.span(len(plans)))])
        if any(result.reason == "interrupted" for result in results):
            raise KeyboardInterrupt
        return results

    return [result for of_rank in ranks.each(own) for result in of_rank]


def check_rows_shared(training: Training[Any], name: str) -> None:
    """Refuse steps whose rows ranks cannot each take a part of."""
    ranks = current()
    if ranks is None:
        return
    networks = [network.mixes_rows() for network in training.networks.values()]
    mixed = next(filter(None, networks), None)
    if not training.shares_rows:
        mixed = f"{name}: a step"
    elif training.batch_size < ranks.count:
        raise ValueError(
            f"batch_size={training.batch_size} is less than the {ranks.count} ranks that share "
            "each step; raise it, or begin fewer"
        )
    if mixed is not None:
        raise ValueError(
            f"{mixed} looks at the rows of a batch together, which {ranks.count} ranks would see "
            f"in parts: use something else, or n_members of at least {ranks.count} without "
            "callbacks, verbose and checkpoint, which are then shared out"
        )
