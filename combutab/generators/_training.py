"""The training of generators: those of equal shape as one stack, with checkpoints and ranks."""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from combutab._model_files import CheckpointFile, check_state, with_prefix
from combutab.core.device import Precision, guard_forks
from combutab.core.fields import several, text, whole
from combutab.core.files import reading
from combutab.core.rng import Stream, fold_in, random_permutations, seed_from
from combutab.core.tasks import FitTask
from combutab.core.text import RESERVE, check_limit, parse_bytes, parse_seconds
from combutab.core.world import broadcast, check_same, current, plain_parameters, sharing
from combutab.generators._contract import MAX_ROWS, Generator, Training, Validation, find_generators
from combutab.generators._records import (
    Curves,
    GeneratorPlan,
    GeneratorResult,
    NetworkT,
    State,
    TableRows,
    data_error,
    make_spans,
)
from combutab.nn import Member, RowSpans
from combutab.preprocessing import ModeEncoder, ModeTable, ParquetTable, Paths, RowLayout, as_numpy
from combutab.training import (
    Callback,
    FitTasks,
    ProgressBar,
    Trainable,
    train,
    uninterrupted,
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


class Checkpoint(CheckpointFile):
    """A file that a training is written to now and then, and taken up from.

    All that is drawn is a function of seed and step, so a training that is taken up gives what it
    would have given in one go. The model is unfitted, and its parameters are part of the file; the
    attribute ``seed`` is that of the training that the file is of.

    Raises ValueError if there is a file that is no checkpoint, or one of another training.
    """

    def __init__(self, path: str | os.PathLike[str], model: Generator[Any], seed: int) -> None:
        super().__init__(path, model, _STOOD, _FREE)
        self.seed = self._state.get("seed", seed)

    def restore(self, training: Training[Any], validation: Validation | None) -> tuple[int, Curves]:
        """Put a training where the file's stood; returns its epochs, and its curves by epoch."""
        self._fingerprint = _fingerprint(training.rows)
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
        n_members, n_epochs = len(training.plans), int(self._state["epochs"])
        losses, names = with_prefix(found, "losses."), self._state["losses"]
        if sorted(losses) != sorted(names) or (validation is not None) != (
            validation is not None and validation.name in losses
        ):
            raise ValueError(f"it has the losses {sorted(losses)}, and says {sorted(names)}")
        for name, array in losses.items():
            if array.shape != (n_epochs, n_members) or array.dtype.kind != "f":
                raise ValueError(f"it has losses {name} of other epochs than {n_epochs}")
        diverged = ~np.all([np.isfinite(array).all(axis=0) for array in losses.values()], axis=0)
        if diverged.all():  # then nothing is written
            raise ValueError("its losses are not finite")
        taken = {f"losses.{name}" for name in losses}

        def part(m: int, prefix: str) -> dict[str, np.ndarray]:
            state = with_prefix(found, prefix)
            taken.update(prefix + name for name in state)
            if not diverged[m] and not all(np.isfinite(v).all() for v in state.values()):
                raise ValueError(f"its arrays {prefix}* have numbers that are not finite")
            return state

        for m in range(n_members):
            for name, get, load in _parts(training):
                state, own = part(m, f"{m}.{name}."), get(m)
                if set(state) != set(own):
                    raise ValueError(
                        f"it lacks {sorted(set(own) - set(state))} of {name.partition('.')[0]}"
                    )
                check_state(state, own)
                load(m, {n: torch.from_numpy(v) for n, v in state.items()})
        curves = {name: list(losses[name]) for name in names}
        if validation is not None:
            best = [part(m, f"{m}.best.") for m in range(n_members)]
            for m, state in enumerate(best):
                if state:
                    check_state(state, validation.network.member_state(m))
            validation.restore(
                curves[validation.name],
                [{n: torch.from_numpy(v) for n, v in state.items()} for state in best],
            )
        if set(found) != taken:
            raise ValueError(f"it has arrays of no part of it: {sorted(set(found) - taken)[:5]}")
        return n_epochs, curves

    def note(self, training: Training[Any], epochs: int, curves: Curves) -> None:
        """Remember the training as it stands; write it, unless that was done a moment ago."""
        tensors: dict[str, np.ndarray] = {
            f"losses.{name}": np.array(values) for name, values in curves.items()
        }
        for m in range(len(training.plans)):
            for name, get, _ in _parts(training):
                for key, value in get(m).items():
                    tensors[f"{m}.{name}.{key}"] = value.cpu().numpy()
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


def _parts(
    training: Training[Any],
) -> Iterator[tuple[str, Callable[[int], State], Callable[[int, State], None]]]:
    """All that has states of members: networks, and the optimisers of those that have one."""
    for name, network in training.networks.items():
        yield f"{name}.network", network.member_state, network.load_member
        if name in training.optimizers:
            optimizer = training.optimizers[name]
            yield f"{name}.optimizer", optimizer.member, optimizer.load_member


def _fingerprint(rows: TableRows) -> str:
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
        file: Checkpoint | None = None,
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


# ---- Parquet files that a generator is fitted to: a column at a time, then rows part by part -----

_ROWS = 1 << 16  # read at a time, at most
_FEWEST = 1 << 12  # and at least
_FITTED = 12  # copies of a sample, while modes are learned from it


class ParquetSource:
    """A table in files, in the place of one in memory.

    Where encoded rows do not fit in ``memory_limit`` beside what training takes, they are kept in a
    temporary file, of which the system holds in memory what there is room for.
    """

    def __init__(
        self,
        path: Paths,
        columns: Sequence[str] | None,
        memory_limit: int | str,
        filesystem: Any,
    ) -> None:
        self._limit = parse_bytes(memory_limit)
        self._table = ParquetTable(path, filesystem)
        self._columns = self._table.columns if columns is None else list(columns)
        repeated = sorted({c for c in self._columns if self._columns.count(c) > 1})
        if repeated or not self._columns:
            raise ValueError(f"columns must be names of different columns, got {columns!r}")
        self._table.check_columns(self._columns)

    def __len__(self) -> int:
        return self._table.n_rows

    def fit(self, encoder: ModeEncoder) -> ModeEncoder:
        """Fit an encoder, with one whole column at a time in memory.

        Raises ValueError if a column takes more than the limit.
        """
        samples = 8 * min(encoder.max_rows, len(self)) * (len(self._columns) + _FITTED)

        def check(name: str, size: int) -> None:
            needed = RESERVE + self._table.reader_bytes([name]) + samples + size
            what = f"the column {name!r} of {len(self):,} rows"
            check_limit(self._limit, needed, what, "leave the column out")

        return encoder.fit_parquet(self._table, self._columns, check)

    def encode(self, encoder: ModeEncoder, beside: int) -> ModeTable:
        """Encode all rows, a part at a time; training takes so many bytes ``beside`` them.

        Raises ValueError if the limit is too small for that.
        """
        layout, each = encoder.layout_, self._table.row_bytes(self._columns)
        opened = self._table.reader_bytes(self._columns)
        needed = RESERVE + max(beside, opened + _FEWEST * each)
        instead = "use fewer columns, members or units, or a smaller batch_size"
        check_limit(self._limit, needed, f"training on {len(self):,} rows", instead)
        n_read = min(_ROWS, max(_FEWEST, (self._limit - RESERVE - opened) // 4 // each))
        beside = RESERVE + max(beside, opened + n_read * each)
        values = self._empty((len(self), layout.n_values), np.dtype(np.float32), layout, beside)
        codes = self._empty((len(self), len(layout.spans)), np.dtype(np.int32), layout, beside)
        encoder.encode_parquet(self._table, n_read, values, codes)
        self._table.release()
        return ModeTable(values, codes)

    def _empty(
        self, shape: tuple[int, int], dtype: np.dtype, layout: RowLayout, beside: int
    ) -> np.ndarray:
        whole = 4 * len(self) * (layout.n_values + len(layout.spans))
        size = dtype.itemsize * shape[0] * shape[1]
        if whole + beside <= self._limit or not size:
            return np.empty(shape, dtype)
        with tempfile.TemporaryFile(prefix="combutab-") as file:  # the mapping outlives it
            if hasattr(os, "posix_fallocate"):  # a full disk is told of now, by an error
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                except OSError as error:
                    raise OSError(
                        error.errno,
                        f"the encoded rows take {whole:,} bytes, more than memory_limit="
                        f"{self._limit:,} leaves, and {tempfile.gettempdir()} has no room for them "
                        f"({error.strerror}); raise memory_limit, or set TMPDIR",
                    ) from error
            return np.memmap(file, dtype, "w+", shape=shape)


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


# ---- Fit generators to a table: those of equal shape as one stack --------------------------------

_NUMBERS = 4  # a weight: itself, its gradient, and two moments of Adam's
# what the members of one stack may differ in, beside the rates
_OWN = {"activation", "n_members", "random_state"}
G = TypeVar("G", bound=Generator[Any])
Begin = Callable[..., AbstractContextManager[FitTask | None]]


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
        and all(_equal(mine[name], theirs[name]) for name in mine if name not in own)
    )


def _equal(value: Any, other: Any) -> bool:
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
    with sharing(lambda: _words(models)):
        return _fit(models, X, discrete_columns, broadcast(checkpoint), begin)


def _words(models: Sequence[Generator[Any]]) -> str:
    """What is fitted, in words that are the same in all processes that fit it."""
    return f"{type(models[0]).__name__} {[plain_parameters(model) for model in models]}"


def _fit(
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
    file = None if checkpoint is None else Checkpoint(checkpoint, first, seed)
    seed = seed if file is None else file.seed

    encoder = _fit_encoder(first, X, discrete_columns, seed)
    for told in encoder.describe_withheld():
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
        rows, held_out = _hold_out(first, table, seed)
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
                    _keep(model, seed, encoder, own, len(X))
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


def _hold_out(
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


def _callbacks(model: Generator[Any], task: FitTask | None) -> list[Callback]:
    shown = [ProgressBar(type(model).__name__)] if model.verbose else []
    told = [FitTasks(task)] if task is not None and task.watched else []
    return [*shown, *(model.callbacks or ()), *told]


def _keep(
    model: Generator[Any],
    seed: int,
    encoder: ModeEncoder,
    results: Sequence[GeneratorResult],
    n_rows: int,
) -> None:
    """Make a model fitted."""
    model.encoder_, model.n_features_in_ = encoder, encoder.n_features_in_
    vars(model).pop("feature_names_in_", None)
    if hasattr(encoder, "feature_names_in_"):
        model.feature_names_in_ = encoder.feature_names_in_
    model.history_ = pd.concat(
        [
            pd.DataFrame({"member": i, "epoch": range(1, result.n_epochs + 1)}).assign(
                **{_curve_name(name): curve for name, curve in result.losses.items()}
            )
            for i, result in enumerate(results)
        ],
        ignore_index=True,
    )
    model.n_iter_ = results[0].n_epochs
    model._shape = model._make_shape()
    model._states = [{n: v.numpy() for n, v in result.state.items()} for result in results]
    model._seed, model._n_sampled, model._n_rows = seed, 0, n_rows
    # the members that early stopping did not end were the last
    model._ended = min((r.reason for r in results), key="no_improvement".__eq__)


def _curve_name(name: str) -> str:
    return name if name == "loss" or name.startswith("validation") else f"{name}_loss"
