"""The loop over epochs that all generators share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from combutab._ranks import agreed, current, unshared
from combutab.generators._contract import Training
from combutab.generators._records import Curves, GeneratorResult, State
from combutab.generators._validation import Validation
from combutab.generators.training._checkpoints import Checkpoint
from combutab.nn import StackedNetwork
from combutab.training import Callback, EpochReport, uninterrupted


def train(
    training: Training[Any],
    n_epochs: int,
    callbacks: Sequence[Callback] = (),
    validation: Validation | None = None,
    file: Checkpoint | None = None,
    max_seconds: float = np.inf,
) -> list[GeneratorResult]:
    """Train for so many epochs, unless validation, time, a callback or an interrupt ends it.

    Time does after the first epoch, or a later one, at whose end ``max_seconds`` have passed. A
    member that diverges, or that validation finds finished, stays in the stack until all are, and
    what comes of it is what it was. Training goes on from a file, and is written to it. After an
    interrupt the results, one a member, are those of the last whole epoch; if there was none,
    KeyboardInterrupt is raised.

    Of ranks that share the training the first tells the callbacks, and how long it takes.
    """
    started, ranks = time.perf_counter(), current()
    callbacks = () if ranks is not None and ranks.number else callbacks
    n_members, network = len(training.plans), training.sampled
    rates = np.array([next(iter(plan.rates.values())).lr for plan in training.plans])
    done, curves = (0, {}) if file is None else file.restore(training, validation)
    diverged = _not_finite(curves, n_members)
    reason = "epochs"
    whole = _stand(network, validation)
    begun: list[Callback] = []
    try:
        for callback in callbacks:
            callback.on_train_begin(n_members, n_epochs)
            begun.append(callback)
        for number in range(done, n_epochs):
            if validation is not None and (validation.finished | diverged).all():
                break
            gone = (time.perf_counter() - started) / max_seconds if max_seconds > 0 else 0.0
            gone = gone if np.isinf(max_seconds) else agreed(gone)
            with unshared():  # what a callback fits is rank 0's own
                for callback in callbacks:
                    callback.on_epoch_begin(number + 1)
            training.progress = min(1.0, max(number / n_epochs, gone))
            losses = {n: v.cpu().numpy() for n, v in training.epoch(number).items()}  # the one sync
            columns = dict(losses)
            if validation is not None:
                columns[validation.name] = validation.measure()
            if ranks is not None:  # processors may round differently
                for of_training in training.networks.values():
                    ranks.first_(of_training.flat.values)
                columns = ranks.first(columns)
                losses = {name: columns[name] for name in losses}
            with uninterrupted():
                if validation is not None:
                    validation.observe(columns[validation.name])
                for name, values in columns.items():
                    curves.setdefault(name, []).append(values)
                diverged |= _not_finite({n: [v] for n, v in losses.items()}, n_members)
                whole, done = _stand(network, validation), number + 1
                if file is not None and not diverged.all():
                    file.note(training, done, curves)
            if diverged.all():
                break
            report = EpochReport(
                number + 1,
                n_epochs,
                tuple(range(n_members)),
                next(iter(losses.values())),
                None if validation is None else -columns[validation.name],
                rates,
                time.perf_counter() - started,
                losses,
                max_seconds,
            )
            with unshared():  # what a callback fits is rank 0's own
                stops = [callback.on_epoch_end(report) for callback in callbacks]
            stop = "callback" if any(stops) else ""
            if report.seconds >= max_seconds:
                stop = stop or "max_time"
            if stop := agreed(stop):
                reason = stop
                break
    except KeyboardInterrupt:
        if ranks is not None or not curves:  # the others stand elsewhere; nothing is learned
            raise
        reason = "interrupted"
    finally:
        for callback in begun:
            callback.on_train_end()
    if file is not None and not diverged.all():
        file.write()
    return [_result(whole[m], m, curves, validation, diverged, reason) for m in range(n_members)]


def _stand(network: StackedNetwork, validation: Validation | None) -> list[State]:
    """Copy what would come of each member if training ended here."""
    best = [{}] * network.n_members if validation is None else validation.best_states
    return [state or network.member_state(m) for m, state in enumerate(best)]


def _not_finite(curves: Curves, n_members: int) -> np.ndarray:
    """Find the members whose loss is not finite, (M,)."""
    found = np.zeros(n_members, dtype=bool)
    for values in curves.values():
        found |= ~np.isfinite(values).all(axis=0)
    return found


def _result(
    state: State,
    m: int,
    curves: Curves,
    validation: Validation | None,
    diverged: np.ndarray,
    reason: str,
) -> GeneratorResult:
    n_epochs = None
    if validation is not None:
        n_epochs = int(validation.n_epochs[m])
        reason = "no_improvement" if validation.finished[m] else reason
    return GeneratorResult(
        {name: value.cpu() for name, value in state.items()},
        {name: [float(v[m]) for v in values[:n_epochs]] for name, values in curves.items()},
        "diverged" if diverged[m] else reason,
    )
