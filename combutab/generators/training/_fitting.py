"""Fit generators to a table: those of equal shape as one stack."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from combutab._device import Precision, mind_forks
from combutab._random import Purpose, derive, random_permutations
from combutab._random_state import seed_from
from combutab._ranks import agreed, plain_parameters, sharing
from combutab._seconds import parse_seconds
from combutab._sklearn_callbacks import FitTask
from combutab.generators._contract import Generator, Training, find_generators
from combutab.generators._errors import data_error
from combutab.generators._records import (
    GeneratorPlan,
    GeneratorResult,
    NetworkT,
    TableRows,
    make_spans,
)
from combutab.generators._validation import MAX_ROWS, Validation
from combutab.generators.training._checkpoints import Checkpoint
from combutab.generators.training._loop import train
from combutab.generators.training._parquet import ParquetSource
from combutab.generators.training._shared import check_rows_shared, share
from combutab.nn import Member, RowSpans
from combutab.preprocessing import ModeEncoder, as_numpy
from combutab.training import Callback, FitTasks, ProgressBar, uninterrupted

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
        return _fit(models, X, discrete_columns, agreed(checkpoint), begin)


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
    mind_forks()
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
        encoded = X.encode(encoder) if isinstance(X, ParquetSource) else encoder.encode(X)
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
            return train(training, n_epochs, callbacks, validation, file, left)

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
    encoder = model._make_encoder(discrete_columns, derive(seed, Purpose.ENCODER) >> 32)
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
        GeneratorPlan(Member(derive(seed, Purpose.MEMBER, j), kinds[i]), models[i]._rates())
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
    order = random_permutations([derive(seed, Purpose.HELD_OUT)], [len(rows)])[0]
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
    keys = [derive(plan.member.seed, Purpose.VALIDATION) for plan in training.plans]
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
