"""A training as a file, to go on from: networks, optimisers, losses, and where it stood."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from combutab._checkpoint_files import CheckpointFile
from combutab._fields import several, text, whole
from combutab._model_files import check_state, with_prefix
from combutab._safe_files import reading
from combutab.generators._contract import Generator, Training
from combutab.generators._records import Curves, State, TableRows
from combutab.generators._validation import Validation

# may differ between the fits of one training
_FREE = ("epochs", "max_time", "verbose", "enable_gpu")
_ROWS = 1 << 16
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
        for part in tensor.split(_ROWS):  # no copy of all
            digest.update(part.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
