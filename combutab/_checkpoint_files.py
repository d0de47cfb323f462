"""The file that a training is written to now and then, and taken up from."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from combutab._fields import Field, check_fields
from combutab._model_files import decode, model_header, read_model, write_model
from combutab._ranks import agreed, current
from combutab._safe_files import reading
from combutab._whole_files import check_writable

SECONDS = 30.0  # between two writings, at least


class CheckpointFile:
    """A file of a model's training, whole at any time; its parameters are part of it.

    Of ranks that share a fit the first alone reads and writes, and tells the others.

    Parameters
    ----------
    path : path
    model : estimator
        Unfitted.
    stood : mapping of str to Field
        What is in the header, beside arrays, of where the training stood.
    free : collection of str
        Parameters that may differ between the fits of one training.

    Raises ValueError if there is a file that is no checkpoint, or one of another training; OSError
    if none can be written there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        model: Any,
        stood: Mapping[str, Field],
        free: Collection[str],
    ) -> None:
        self.path, ranks = Path(path), current()
        self._header = model_header(model)
        self._written = -np.inf  # after the first epoch it is written at once
        self._noted: tuple[dict[str, Any], dict[str, np.ndarray]] | None = None
        self._found: dict[str, np.ndarray] | None = None
        self._state: dict[str, Any] = {}
        self._is_mine = ranks is None or ranks.number == 0
        if self._is_mine:
            self._look(stood, free)
        self._state, self._found = agreed((self._state, self._found))

    def _look(self, stood: Mapping[str, Field], free: Collection[str]) -> None:
        """Read the file, if there is one; find out whether one can be written, if there is none."""
        folder = self.path.parent
        if not folder.is_dir():
            raise FileNotFoundError(f"the folder {folder} does not exist; create it first")
        try:  # not after half a minute of training
            check_writable(folder)
        except OSError as error:
            raise OSError(f"no file can be written in {folder}: {error.strerror}") from error
        if not self.path.exists():
            return
        header, self._found = read_model(self.path)
        if "checkpoint" not in header:
            raise ValueError(f"{self.path} is a model, not a checkpoint; choose another file")
        with reading(self.path, "checkpoint"):
            check_fields(header["checkpoint"], stood, "the checkpoint")
            self._state = header["checkpoint"]
            self._refuse_other(header, free)

    def _refuse_other(self, header: dict[str, Any], free: Collection[str]) -> None:
        for name in ("class", "version"):
            if header[name] != self._header[name]:
                raise ValueError(
                    f"{self.path} is of {name} {header[name]!r}, this training is of "
                    f"{self._header[name]!r}; remove the file to begin anew"
                )
        for name, value in self._header["params"].items():
            there, here = decode(header["params"].get(name)), decode(value)
            if isinstance(there, list | tuple) and isinstance(here, list | tuple):
                there, here = list(there), list(here)
            if name not in free and not _equal(there, here):
                raise ValueError(
                    f"{self.path} is of a training with {name}={there!r}, this one has "
                    f"{name}={here!r}; remove the file to begin anew"
                )

    @property
    def is_due(self) -> bool:
        """Tell whether the last writing is so long ago that another one is worth it."""
        return time.monotonic() - self._written >= SECONDS

    def _note(self, stood: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        """Remember a state; write it, unless that was done a moment ago."""
        self._noted = stood, tensors
        if self.is_due:
            self.write()

    def write(self) -> None:
        """Write what was noted last, unless it is written."""
        if self._noted is None:
            return
        stood, tensors = self._noted
        try:
            if self._is_mine:
                write_model(self.path, {**self._header, "checkpoint": stood}, tensors)
        except Exception as error:  # a full disk, say: the training itself is not lost
            warnings.warn(
                f"the training could not be written to {self.path}, and goes on: {error}",
                stacklevel=2,
            )
        self._noted, self._written = None, time.monotonic()


def _equal(there: Any, here: Any) -> bool:
    if isinstance(there, np.ndarray) or isinstance(here, np.ndarray):
        return np.array_equal(there, here)
    return bool(there == here)
