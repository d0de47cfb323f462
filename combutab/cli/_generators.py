"""Generators on the command line: made of options, trained until Ctrl-C, kept in files."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.cli._conditions import parse_conditions, parse_shares
from combutab.cli._console import UserError, echo_on_terminal, own_warnings, refusals, spinner
from combutab.cli._files import (
    FileFormat,
    as_parquet,
    known_model,
    list_names,
    load_with_format,
    save_with_format,
    write_table,
    write_whole,
)
from combutab.cli._options import (
    GeneratorOptions,
    RowOptions,
    cannot_write,
    ending,
    find_columns,
    path_beside,
    read_frequency,
)
from combutab.core.state import unpack
from combutab.core.text import counted, describe_generator
from combutab.generators import (
    ShortfallError,
    find_generators,
    read_constraints,
    suggest_constraints,
    write_constraints,
)
from combutab.generators.sampling import RowWriter
from combutab.preprocessing import ColumnKind, ModeEncoder, column_kind, parquet_parts
from combutab.training import Callback, ProgressBar

_CONTINUOUS = (ColumnKind.NUMBER, ColumnKind.DATETIME, ColumnKind.TIMEDELTA)  # to "auto"
_FEW = 10  # values of whole numbers that are likely to be categories
_FILES = "cannot make rows", "combutab synth --save"  # what others do not do, and who writes them

# ---- Files, and what they tell of a table's origin -----------------------------------------------


def load_generator(path: Path, device: str) -> tuple[Any, FileFormat]:
    """Read a generator's file, and the format of its table."""
    generator, forms, _ = load_with_format(path, device, find_generators(), *_FILES)
    return generator, forms


def read_description(path: Path) -> dict[str, str]:
    """Read a generator's description from its file."""
    with known_model(path, find_generators(), *_FILES) as header:
        return describe_file(header)


def describe_file(header: Mapping[str, Any]) -> dict[str, str]:
    """Describe a generator by the header of its file."""
    params = unpack(header["params"])
    return describe_generator(header["class"], header["version"], params, header["fitted"])


# ---- Options as parameters, and what is looked at before a generator learns a table --------------


def read_protection(
    min_frequency: float | None, identifiers: list[str] | None, columns: Iterable[Any]
) -> dict[str, Any]:
    """The options on what is kept of single rows, as parameters of a generator.

    >>> read_protection(5.0, ["none"], ["a"])
    {'min_frequency': 5, 'identifiers': None}
    >>> read_protection(0.01, ["a"], ["a", "b"])
    {'min_frequency': 0.01, 'identifiers': ['a']}
    """
    columns = list(columns)
    found: Any = "auto"
    if identifiers is not None:
        none = identifiers == ["none"] and "none" not in columns
        found = None if none else find_columns("--identifiers", identifiers, columns)
    return {"min_frequency": read_frequency(min_frequency), "identifiers": found}


def read_rules(path: Path | None) -> list[Any] | None:
    """Read a file of constraints; a UserError if it holds none."""
    if path is None:
        return None
    with refusals(ValueError, OSError, ImportError):
        return read_constraints(path)


def suggest_rules(table: pd.DataFrame, path: Path | None) -> None:
    """Write the constraints that a table meets to a file, and print them."""
    if path is None:
        return
    found = suggest_constraints(table)
    with refusals(ValueError, OSError, ImportError):
        write_constraints(found, path)
    print(found if found else "No constraints were found, except those that are likely by chance.")
    echo_on_terminal(f"Wrote {len(found)} constraints to {path}")


def probe(
    table: pd.DataFrame, listed: list[Any], protection: Mapping[str, Any], *, to_save: bool
) -> ModeEncoder:
    """Fit the generator's encoder without the modes, which take time.

    Raises UserError if the table cannot be encoded, or ``to_save`` has values that no generator's
    file can hold.
    """
    if len(table) < 2:
        raise UserError("the table has 1 row; at least 2 are needed")
    discrete: Any = "auto"
    if listed:
        kinds = {name: column_kind(table[name], by_dtype=True) for name in table}
        discrete = [name for name in table if name in listed or kinds[name] not in _CONTINUOUS]
    try:
        with refusals(ValueError, TypeError):
            encoder = ModeEncoder(discrete_columns=discrete, n_modes=1, max_rows=1, **protection)
            encoder.fit(table)
    except UserError as error:
        raise UserError(f"{error}, or leave the column out with --drop") from error
    if to_save:
        with refusals(TypeError):
            encoder.to_state()
    return encoder


def hint_at_few_values(table: pd.DataFrame) -> None:
    """Name the columns of whole numbers that may well be categories."""
    whole = [name for name in table if types.is_integer_dtype(table[name].dtype)]
    few = [str(name) for name in whole if 1 < table[name].nunique() <= _FEW]
    if few:
        echo_on_terminal(
            f"{list_names(few)} are treated as numbers, although they have few values; if they "
            "are categories, name them in --discrete"
        )


def make_generator(
    options: GeneratorOptions, protection: Mapping[str, Any], rules: Any, **settings: Any
) -> Any:
    """Make the generator that options describe; those that are None have its own defaults."""
    classes = {name.lower(): cls for name, cls in find_generators().items()}
    cls = classes[options.model or "tabflow"]
    settings |= {"epochs": options.epochs, "max_time": options.max_time, "constraints": rules}
    parameters = {name: value for name, value in settings.items() if value is not None}
    bar = ProgressBar(cls.__name__, transient=True, estimate=True)
    return cls(
        **parameters,
        **protection,
        random_state=options.seed,
        device=options.device,
        callbacks=[bar],
    )


# ---- The training, which Ctrl-C may end before its time, and the files that it leaves ------------


class TrainingRun(Callback):
    """A training that Ctrl-C may end early, and the files that are written after it.

    It may go on from ``checkpoint``. What is written goes beside files that are there if the
    training was interrupted.
    """

    def __init__(self, generator: Any, checkpoint: Path | None = None) -> None:
        self.generator, self.checkpoint = generator, checkpoint
        self.interrupted = False
        self._kept: list[str] = []
        self._epochs: int | None = None  # that there are to be
        generator.callbacks = [self, *(generator.callbacks or ())]

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        """Note how many epochs there are to be; see `Callback`."""
        self._epochs = max_epochs

    def fit(self, table: pd.DataFrame, discrete: Any) -> None:
        """Fit the generator; Ctrl-C ends that after an epoch at least, or is raised."""
        show = warnings.showwarning

        def note(message: Warning | str, *args: Any, **kwargs: Any) -> None:
            if "Training interrupted" in str(message):
                self.interrupted = True
            else:
                show(message, *args, **kwargs)

        try:
            with refusals(ValueError, OSError), own_warnings():
                warnings.filterwarnings("always", "Training interrupted", UserWarning)
                warnings.showwarning = note
                self.generator.fit(table, discrete_columns=discrete, checkpoint=self.checkpoint)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error):
                raise
            raise UserError(
                "there is not enough memory for the training; leave out columns with many "
                "categories with --drop, or lower --batch-size"
            ) from error

    @contextmanager
    def reported(self) -> Iterator[None]:
        """End what is done in here by an interrupt that says what is kept, if there was one."""
        try:
            yield
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._report()) from None
        if self.interrupted:
            raise KeyboardInterrupt(self._report())

    def place(self, path: Path) -> Path:
        """Return the path to write to: beside a file that is there, after Ctrl-C."""
        return path_beside(path, "interrupted") if self.interrupted and path.exists() else path

    def add(self, what: str, path: Path) -> None:
        """Note that a file is written."""
        self._kept.append(f"{what} in {path}")

    def save(self, path: Path | None, forms: FileFormat) -> None:
        """Write the generator's file, if there is to be one."""
        if path is None:
            return
        path = self.place(path)
        save_generator(self.generator, path, forms)
        self.add("the generator", path)

    def _report(self) -> str:
        done, wanted = getattr(self.generator, "n_iter_", None), self._epochs
        trained = done is not None and not self.interrupted
        when = "" if trained or wanted is None else f" after {done or 0} of {wanted} epochs"
        kept = f"; kept: {', '.join(self._kept)}" if self._kept else "; nothing is kept"
        if self.checkpoint is not None and self.checkpoint.exists():
            kept = kept.removeprefix("; nothing is kept")
            kept += f"; the same command continues from {self.checkpoint}"
        return when + kept


def save_generator(generator: Any, path: Path | None, forms: FileFormat) -> None:
    """Write a generator's file, if there is to be one."""
    if path is not None:
        write_whole(path, lambda place: save_with_format(generator, place, forms))
        echo_on_terminal(f"Wrote the generator to {path}")


# ---- Rows of a generator, to a file --------------------------------------------------------------

_NUMBERS_PER_CELL = 4  # that sampling holds at a time, about


def is_streamed(out: Path, options: RowOptions) -> bool:
    """Tell whether rows are written part by part, so that any number of them fits into memory."""
    return ending(out) == ".parquet" and not options.condition and not options.shares


def check_size(n_rows: int, n_columns: int) -> None:
    """Refuse more rows than fit into the memory of this machine."""
    try:
        np.empty((n_rows, _NUMBERS_PER_CELL * n_columns))
    except (MemoryError, ValueError) as error:  # the second: more than an array can count
        raise UserError(
            f"{n_rows:,} rows do not fit into memory; write them to a .parquet file without "
            "--condition, --shares and --report, or to several files, each with another --seed"
        ) from error


def write_sample(
    generator: Any,
    forms: FileFormat,
    options: RowOptions,
    n_rows: int,
    out: Path,
    *,
    in_parts: bool = True,
) -> pd.DataFrame | None:
    """Write the rows that options ask for; returns them if they were not written in parts."""
    if in_parts and is_streamed(out, options):
        _stream_rows(generator, forms, n_rows, options.seed, out)
        return None
    check_size(n_rows, generator.n_features_in_)
    conditions = parse_conditions(options.condition, generator.encoder_, forms)
    shares = parse_shares(options.shares, generator.encoder_, forms, conditions)
    shortfall = ""
    with spinner(f"Making {counted(n_rows, 'row')}"), refusals():
        table: pd.DataFrame
        try:
            table = generator.sample(
                n_rows, conditions=conditions, shares=shares, random_state=options.seed
            )
        except ShortfallError as error:
            table = error.rows
            shortfall = (
                f"only {len(table):,} of {counted(n_rows, 'row')} that meet the conditions were "
                "found"
            )
            if not len(table):
                raise UserError(f"{shortfall}; relax the conditions") from error
        write_table(table, forms, out)
    if shortfall:
        raise UserError(f"{shortfall}; they are in {out}. Ask for fewer, or relax the conditions")
    return table


def _stream_rows(generator: Any, forms: FileFormat, n_rows: int, seed: int, out: Path) -> None:
    """Write rows to a Parquet file, part by part."""
    with spinner(f"Making {counted(n_rows, 'row')}"), refusals():
        try:
            with parquet_parts(out) as file:
                writer = RowWriter(generator.rules_, file, partial(as_parquet, forms=forms))
                generator.stream_rows(writer, n_rows, seed)
        except OSError as error:
            raise cannot_write(out, error) from error
