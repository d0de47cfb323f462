"""The loop over epochs that GANs and VAEs share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from torch import Tensor

from combutab.generators._records import GeneratorPlan, GeneratorResult
from combutab.nn import StackedNetwork
from combutab.training import Callback, EpochReport, RowOptimizer

Curves = dict[str, list[np.ndarray]]  # a loss of each member by epoch


class Training(Protocol):
    """What the loop needs: an epoch of training, and the networks that it changes."""

    @property
    def plans(self) -> Sequence[GeneratorPlan]: ...
    @property
    def networks(self) -> Mapping[str, StackedNetwork]: ...
    @property
    def optimizers(self) -> Mapping[str, RowOptimizer]: ...
    def epoch(self, number: int) -> dict[str, Tensor]: ...


def train(
    training: Training,
    n_epochs: int,
    callbacks: Sequence[Callback] = (),
    *,
    done: int = 0,
    curves: Curves | None = None,
    keep: Callable[[int, Curves, bool], None] = lambda epochs, curves, last: None,
) -> list[GeneratorResult]:
    """Train for so many epochs, unless a callback, an interrupt or a loss of NaN ends it.

    Parameters
    ----------
    training : Training
    n_epochs : int
    callbacks : sequence of Callback
    done : int
        Epochs that an earlier call has trained; ``curves`` has their losses.
    keep : callable
        ``keep(epochs, curves, last)`` is told of each epoch that ended well, and of the end.

    Returns
    -------
    list of GeneratorResult, one a member
    """
    n_members = len(training.plans)
    curves = {} if curves is None else curves
    reason, started = "epochs", time.perf_counter()
    begun: list[Callback] = []
    try:
        for callback in callbacks:
            callback.on_train_begin(n_members, n_epochs)
            begun.append(callback)
        for number in range(done, n_epochs):
            losses = {n: v.cpu().numpy() for n, v in training.epoch(number).items()}  # the one sync
            for name, values in losses.items():
                curves.setdefault(name, []).append(values)
            if not all(np.isfinite(values).all() for values in losses.values()):
                reason = "diverged"
                break
            report = EpochReport(
                number + 1,
                n_epochs,
                tuple(range(n_members)),
                next(iter(losses.values())),
                None,
                np.array([plan.generator_lr for plan in training.plans]),
                time.perf_counter() - started,
                losses,
            )
            done = number + 1
            keep(done, curves, False)
            stops = [callback.on_epoch_end(report) for callback in callbacks]
            if any(stops):
                reason = "callback"
                break
    except KeyboardInterrupt:
        reason = "interrupted"
    finally:
        for callback in begun:
            callback.on_train_end()
    if reason != "diverged" and reason != "interrupted":
        keep(done, curves, True)
    return [
        GeneratorResult(
            states={
                name: {n: v.cpu() for n, v in network.member_state(m).items()}
                for name, network in training.networks.items()
            },
            losses={name: [float(v[m]) for v in values] for name, values in curves.items()},
            reason=reason,
        )
        for m in range(n_members)
    ]
