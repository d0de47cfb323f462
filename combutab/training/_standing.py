"""A stack in training as arrays, and back: what a training is taken up from, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from combutab.training._records import MemberResult

if TYPE_CHECKING:
    from combutab.training._loop import _Training

Arrays = Mapping[str, np.ndarray]
_CURVES = ("train_loss", "validation_score", "learning_rate", "train_metric")
_NUMBERS = ("epochs", "t", "best_loss", "best_score", "n_iter_no_improvement", "next_learning_rate")
_COUNTS = ("epochs", "t", "n_iter_no_improvement")
_REASONS = ("", "max_iter", "no_improvement", "callback", "interrupted", "diverged")


class StackFile(Protocol):
    """Where a stack in training is written to now and then, and taken up from."""

    def take_up(self, restore: Callable[[Arrays], int]) -> int:
        """Restore what was written, if anything was; returns the epochs that it has."""

    def note(self, stand: Callable[[], dict[str, np.ndarray]], *, last: bool) -> None:
        """Write a state, if it is time or the last one."""


def stand(training: _Training, epochs: int) -> dict[str, np.ndarray]:
    """All that a stack has after so many epochs.

    Members are named by their places in the stack as it was given; those that have ended have
    their results, the others what they go on from too.
    """
    arrays = {"epochs": np.array(epochs), "alive": np.array(training.alive, dtype=np.int64)}
    for i, result in enumerate(training.results):
        if result is not None:
            arrays |= _of_result(f"{i}.", result)
    for m, i in enumerate(training.alive):
        arrays |= _of_result(f"{i}.", training.result(m, ""))
        arrays[f"{i}.best_factor"] = np.array(training.best_factor[m])
        if training.best_values is not None and training.best_buffers is not None:
            arrays[f"{i}.best"] = training.best_values[m].cpu().numpy()
            arrays[f"{i}.best_buffers"] = training.best_buffers[m].cpu().numpy()
    return arrays


def restore(training: _Training, arrays: Arrays) -> int:
    """Put a new training where the arrays' one stood; returns its epochs.

    Raises KeyError or ValueError if they are of another stack.
    """
    alive = arrays["alive"].tolist()
    for i in range(len(training.plans)):
        if i not in alive:
            training.results[i] = _result(arrays, f"{i}.")
    training.keep(alive)
    for m, i in enumerate(training.alive):
        found = _result(arrays, f"{i}.")
        training.net.load_member(m, found.state)
        training.optimizer.load_member(m, found.optimizer)
        assert found.next_learning_rate is not None
        training.rates[m], training.t[m] = found.next_learning_rate, found.t
        training.best_loss[m], training.best_score[m] = found.best_loss, found.best_score
        training.n_iter_no_improvement[m] = found.n_iter_no_improvement
        training.best_factor[m] = float(arrays[f"{i}.best_factor"])
        for name, curve in zip(training.histories[i]._fields, training.histories[i], strict=True):
            curve[:] = getattr(found, name)
        if training.best_values is not None and training.best_buffers is not None:
            training.best_values[m] = torch.from_numpy(arrays[f"{i}.best"])
            training.best_buffers[m] = torch.from_numpy(arrays[f"{i}.best_buffers"])
    return int(arrays["epochs"])


def _of_result(prefix: str, result: MemberResult) -> dict[str, np.ndarray]:
    arrays = {f"state.{name}": value.cpu().numpy() for name, value in result.state.items()}
    arrays |= {f"optimizer.{name}": value.numpy() for name, value in result.optimizer.items()}
    arrays |= {name: np.array(getattr(result, name), dtype=np.float64) for name in _CURVES}
    arrays["numbers"] = np.array([getattr(result, name) for name in _NUMBERS], dtype=np.float64)
    arrays["reason"] = np.array(_REASONS.index(result.reason))
    return {prefix + name: array for name, array in arrays.items()}


def _result(arrays: Arrays, prefix: str) -> MemberResult:
    def tensors(part: str) -> dict[str, torch.Tensor]:
        start = f"{prefix}{part}."
        return {
            n.removeprefix(start): torch.from_numpy(a)
            for n, a in arrays.items()
            if n.startswith(start)
        }

    values: dict[str, Any] = {name: arrays[prefix + name].tolist() for name in _CURVES}
    for name, number in zip(_NUMBERS, arrays[f"{prefix}numbers"].tolist(), strict=True):
        values[name] = int(number) if name in _COUNTS else number
    return MemberResult(
        state=tensors("state"),
        optimizer=tensors("optimizer"),
        reason=_REASONS[int(arrays[f"{prefix}reason"])],
        **values,
    )
