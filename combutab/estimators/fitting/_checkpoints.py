"""A fit as a file, to go on from: networks, optimisers and curves of each stack of its members."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from combutab._checkpoint_files import CheckpointFile
from combutab._fields import text, whole
from combutab._model_files import with_prefix
from combutab._random_state import seed_from
from combutab._safe_files import reading
from combutab.estimators.fitting._stacks import Job

_STOOD = {"seed": whole(0, 2**64), "table": text(64)}


class Checkpoint(CheckpointFile):
    """A file that a fit is written to now and then, and taken up from.

    All that is drawn is a function of the ``seed``, the epoch and the step, so a fit that is taken
    up gives what it would have given in one go.

    Raises ValueError if there is a file that is no checkpoint, or one of another fit.
    """

    def __init__(self, path: str | os.PathLike[str], model: Any) -> None:
        super().__init__(path, model, _STOOD, ("verbose",))
        self.seed = self._state["seed"] if self._state else seed_from(model.random_state)
        self._arrays: dict[str, np.ndarray] = {}

    def of(self, job: Job) -> None:
        """Say what is trained; raises ValueError if the file is of something else."""
        self._table = _fingerprint(job)
        if self._found is not None and self._state["table"] != self._table:
            raise ValueError(
                f"{self.path} is of a fit on another table or kind of device; remove the file to "
                "begin anew"
            )
        self._arrays = dict(self._found or {})

    def part(self, stack: int) -> StackPart:
        """The place of one of the job's stacks in the file."""
        return StackPart(self, f"{stack}.")

    def _take_up(self, prefix: str, restore: Callable[[Mapping[str, np.ndarray]], int]) -> int:
        found = with_prefix(self._arrays, prefix)
        if not found:
            return 0
        with reading(self.path, "checkpoint of this fit"):
            return restore(found)

    def _put(self, prefix: str, stand: Callable[[], dict[str, np.ndarray]], *, last: bool) -> None:
        if not last and not self.is_due:
            return
        others = {n: a for n, a in self._arrays.items() if not n.startswith(prefix)}
        self._arrays = others | {prefix + name: array for name, array in stand().items()}
        self._note({"seed": self.seed, "table": self._table}, self._arrays)
        if last:
            self.write()


@dataclass(frozen=True)
class StackPart:
    """A stack's place in the file of its fit."""

    file: Checkpoint
    prefix: str

    def take_up(self, restore: Callable[[Mapping[str, np.ndarray]], int]) -> int:
        return self.file._take_up(self.prefix, restore)

    def note(self, stand: Callable[[], dict[str, np.ndarray]], *, last: bool) -> None:
        self.file._put(self.prefix, stand, last=last)


def _fingerprint(job: Job) -> str:
    """Fingerprint what is trained on, and the members; it cannot be turned back into rows."""
    digest = hashlib.sha256(f"{job.device.type} {[plan.seed for plan in job.plans]}".encode())
    tables: list[Tensor | None] = [job.rows.dense, job.rows.y, job.rows.codes, job.rows.weight]
    for plan in job.plans[: 1 if job.folds is None else None]:
        tables += [plan.rows, plan.val_rows]
    for tensor in tables:
        digest.update(str(None if tensor is None else tuple(tensor.shape)).encode())
        if tensor is not None:
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
