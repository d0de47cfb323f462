"""What scikit-learn's callbacks are told of training: each epoch is a part of the fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from combutab._sklearn_callbacks import FitTask
from combutab.training._callbacks import Callback, EpochReport
from combutab.training._records import MemberResult

# Attributes of the estimator that these results would make
Learned = Callable[[Sequence[MemberResult]], Mapping[str, Any]]


class FitTasks(Callback):
    """Makes each epoch of one stack after the other a part of a fit's task.

    Who asks to stop after an epoch ends the stacks that come later after their first.
    """

    def __init__(self, task: FitTask, learned: Learned | None = None) -> None:
        self.task, self.stopped = task, False
        self._stacks: list[Callable[[], list[MemberResult]]] = []
        self._learned = learned

    def on_train_results(self, results: Callable[[], list[MemberResult]]) -> None:
        if self._learned is not None:
            self._stacks.append(results)

    def on_epoch_begin(self, epoch: int) -> None:
        self._part = self.task.begin("epoch", self._fitted)

    def on_epoch_end(self, report: EpochReport) -> bool:
        self.stopped |= self.task.end(self._part, self._fitted)
        return self.stopped

    def _fitted(self) -> Mapping[str, Any] | None:
        if self._learned is None:
            return None
        return self._learned([result for results in self._stacks for result in results()])
