"""The training of a generator for a command, which Ctrl-C may end before its time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from combutab.cli._console import UserError, own_warnings
from combutab.cli.tables._forms import ending
from combutab.generators import find_generators
from combutab.training import Callback


def make_generator(
    model: str, protection: Mapping[str, Any], bar: Callable[..., Callback], **options: Any
) -> Any:
    """Make the generator of a name; options that are None are as it has them itself."""
    kind = {name.lower(): kind for name, kind in find_generators().items()}[model]
    given = {name: value for name, value in options.items() if value is not None}
    return kind(**given, **protection, callbacks=[bar(kind.__name__, transient=True)])


def train_generator(
    generator: Any, table: pd.DataFrame, discrete: Any, checkpoint: Path | None
) -> bool:
    """Fit a generator; return whether Ctrl-C ended it, after an epoch at least.

    Raises KeyboardInterrupt if Ctrl-C came before an epoch was done.
    """
    interrupts: list[str] = []
    show = warnings.showwarning

    def note(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        if "Training interrupted" in str(message):
            interrupts.append(str(message))
        else:
            show(message, *args, **kwargs)

    try:
        with own_warnings():
            warnings.filterwarnings("always", "Training interrupted", UserWarning)
            warnings.showwarning = note
            generator.fit(table, discrete_columns=discrete, checkpoint=checkpoint)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        raise UserError(
            "the training takes more memory than there is; --drop columns of many values, or lower "
            "--batch-size"
        ) from error
    return bool(interrupts)


class Kept(Callback):
    """The files that a training leaves which Ctrl-C ends; it may go on from ``checkpoint``."""

    def __init__(self, generator: Any, checkpoint: Path | None = None) -> None:
        self.generator, self.checkpoint = generator, checkpoint
        self.interrupted = False
        self._kept: list[str] = []
        self._epochs: int | None = None  # that there are to be
        generator.callbacks = [self, *(generator.callbacks or ())]

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        """Note how many epochs there are to be; see `Callback`."""
        self._epochs = max_epochs

    @contextmanager
    def told(self) -> Iterator[None]:
        """End what is done in here by an interrupt that says what is kept, if there was one."""
        try:
            yield
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._told()) from None
        if self.interrupted:
            raise KeyboardInterrupt(self._told())

    def place(self, path: Path) -> Path:
        """Return the path to write to: beside a file that is there, after Ctrl-C."""
        return beside(path, "interrupted") if self.interrupted and path.exists() else path

    def add(self, what: str, path: Path) -> None:
        """Note that a file is written."""
        self._kept.append(f"{what} in {path}")

    def _told(self) -> str:
        done, wanted = getattr(self.generator, "n_iter_", None), self._epochs
        trained = done is not None and not self.interrupted
        when = "" if trained or wanted is None else f" after {done or 0} of {wanted} epochs"
        kept = f"; kept: {', '.join(self._kept)}" if self._kept else "; nothing is kept"
        if self.checkpoint is not None and self.checkpoint.exists():
            kept = kept.removeprefix("; nothing is kept")
            kept += f"; the same command goes on from {self.checkpoint}"
        return when + kept


def beside(path: Path, what: str) -> Path:
    """The path of a file like another one.

    >>> beside(Path("rows.csv.gz"), "1").name, beside(Path("model"), "interrupted").name
    ('rows-1.csv.gz', 'model-interrupted')
    """
    try:
        end = len(ending(path))
    except UserError:
        end = len(path.suffix)
    stem = path.name[: len(path.name) - end]
    return path.with_name(f"{stem}-{what}{path.name[len(stem) :]}")
