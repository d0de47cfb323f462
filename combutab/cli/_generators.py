"""Create generators from options, train them, and write them and their rows to files."""

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
    known_model,
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
from combutab.core.text import counted, describe_generator, list_names
from combutab.datasets.formats import FileFormat, as_parquet
from combutab.generators import (
    ShortfallError,
    find_generators,
    read_constraints,
    suggest_constraints,
    write_constraints,
)
from combutab.generators.sampling import RowWriter
from combutab.preprocessing import ColumnKind, ModeEncoder, dtype_kind, parquet_parts
from combutab.training import Callback, ProgressBar

_CONTINUOUS = (ColumnKind.NUMBER, ColumnKind.DATETIME, ColumnKind.TIMEDELTA)
_FEW = 10  # integer columns with at most this number of values are likely to be categories
# For errors: what models of other classes cannot do, and the command that saves generators
_FILES = "cannot make rows", "combutab synth --save"

# ---- Saved generators and their descriptions -----------------------------------------------------


def load_generator(path: Path, device: str) -> tuple[Any, FileFormat]:
    """Load a generator from its file, with the format of its table."""
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


# ---- Options as parameters, and checks before the training ---------------------------------------


def read_protection(
    min_frequency: float | None, identifiers: list[str] | None, columns: Iterable[Any]
) -> dict[str, Any]:
    """Convert the options that protect single rows to parameters of a generator.

    >>> read_protection(5.0, ["none"], ["a"])
    {'min_frequency': 5, 'identifiers': None}
    >>> read_protection(0.01, ["a"], ["a", "b"])
    {'min_frequency': 0.01, 'identifiers': ['a']}
    """
    columns = list(columns)
    identifier_columns: Any = "auto"
    if identifiers is not None:
        no_column = identifiers == ["none"] and "none" not in columns
        identifier_columns = (
            None if no_column else find_columns("--identifiers", identifiers, columns)
        )
    return {"min_frequency": read_frequency(min_frequency), "identifiers": identifier_columns}


def read_rules(path: Path | None) -> list[Any] | None:
    """Read a file of constraints; raises UserError if it cannot be read."""
    if path is None:
        return None
    with refusals(ValueError, OSError, ImportError):
        return read_constraints(path)


def suggest_rules(table: pd.DataFrame, path: Path | None) -> None:
    """Write the constraints that a table meets to a file, and print them."""
    if path is None:
        return
    constraints = suggest_constraints(table)
    with refusals(ValueError, OSError, ImportError):
        write_constraints(constraints, path)
    print(
        constraints
        if constraints
        else "No constraints were found, except those that are likely by chance."
    )
    echo_on_terminal(f"Wrote {len(constraints)} constraints to {path}")


def probe(
    table: pd.DataFrame,
    discrete_columns: list[Any],
    protection: Mapping[str, Any],
    *,
    to_save: bool,
) -> ModeEncoder:
    """Fit the generator's encoder without modes of numeric columns, which take time.

    Raises UserError if the table cannot be encoded or, with ``to_save``, if it has values that
    cannot be saved in a generator's file.
    """
    if len(table) < 2:
        raise UserError("the table has 1 row; at least 2 are needed")
    discrete: Any = "auto"
    if discrete_columns:
        kinds = {name: dtype_kind(table[name].dtype) for name in table}
        discrete = [
            name for name in table if name in discrete_columns or kinds[name] not in _CONTINUOUS
        ]
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
    """Name the integer columns that are likely to be categories."""
    integer_columns = [name for name in table if types.is_integer_dtype(table[name].dtype)]
    columns_with_few_values = [
        str(name) for name in integer_columns if 1 < table[name].nunique() <= _FEW
    ]
    if columns_with_few_values:
        echo_on_terminal(
            f"{list_names(columns_with_few_values)} are treated as numbers, although they have few "
            "values; if they are categories, name them in --discrete"
        )


def make_generator(
    options: GeneratorOptions, protection: Mapping[str, Any], rules: Any, **settings: Any
) -> Any:
    """Create the generator that the options describe; None stands for the generator's default."""
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


# ---- Training that Ctrl-C can end early, and its files -------------------------------------------


class TrainingRun(Callback):
    """A training that Ctrl-C can end early, and the files that are written after it.

    The training continues from ``checkpoint`` if that file exists. After an interrupt, existing
    files are not overwritten; the new files get other names in the same folder.
    """

    def __init__(self, generator: Any, checkpoint: Path | None = None) -> None:
        self.generator, self.checkpoint = generator, checkpoint
        self.interrupted = False
        self._kept: list[str] = []
        self._epochs: int | None = None  # the maximum number
        generator.callbacks = [self, *(generator.callbacks or ())]

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        """Store the maximum number of epochs; see `Callback`."""
        self._epochs = max_epochs

    def fit(self, table: pd.DataFrame, discrete: Any) -> None:
        """Fit the generator; Ctrl-C ends it early after the first epoch, and is raised before."""
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
        """Raise KeyboardInterrupt with a list of the saved files, if Ctrl-C was pressed in here."""
        try:
            yield
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._report()) from None
        if self.interrupted:
            raise KeyboardInterrupt(self._report())

    def place(self, path: Path) -> Path:
        """Return the path to write to; after Ctrl-C it differs from that of an existing file."""
        return path_beside(path, "interrupted") if self.interrupted and path.exists() else path

    def add(self, content: str, path: Path) -> None:
        """Store that a file was written, for the message after an interrupt."""
        self._kept.append(f"{content} in {path}")

    def save(self, path: Path | None, forms: FileFormat) -> None:
        """Save the generator, unless no ``path`` is given."""
        if path is None:
            return
        path = self.place(path)
        save_generator(self.generator, path, forms)
        self.add("the generator", path)

    def _report(self) -> str:
        n_epochs, max_epochs = getattr(self.generator, "n_iter_", None), self._epochs
        is_trained = n_epochs is not None and not self.interrupted
        progress = (
            ""
            if is_trained or max_epochs is None
            else f" after {n_epochs or 0} of {max_epochs} epochs"
        )
        files = f"; kept: {', '.join(self._kept)}" if self._kept else "; nothing is kept"
        if self.checkpoint is not None and self.checkpoint.exists():
            files = files.removeprefix("; nothing is kept")
            files += f"; the same command continues from {self.checkpoint}"
        return progress + files


def save_generator(generator: Any, path: Path | None, forms: FileFormat) -> None:
    """Save a generator, unless no ``path`` is given."""
    if path is not None:
        write_whole(path, lambda temporary_path: save_with_format(generator, temporary_path, forms))
        echo_on_terminal(f"Wrote the generator to {path}")


# ---- Writing sampled rows to a file --------------------------------------------------------------

_NUMBERS_PER_CELL = 4  # approximate memory of sampling


def is_streamed(out: Path, options: RowOptions) -> bool:
    """Tell whether rows are written in parts, so that any number of them fits into memory."""
    return ending(out) == ".parquet" and not options.condition and not options.shares


def check_size(n_rows: int, n_columns: int) -> None:
    """Raise UserError if the rows do not fit into the memory of this machine."""
    try:
        np.empty((n_rows, _NUMBERS_PER_CELL * n_columns))
    except (MemoryError, ValueError) as error:  # ValueError: larger than any array can be
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
    """Sample rows and write them to a file; returns them unless they were written in parts."""
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
    """Sample rows and write them to a Parquet file in parts."""
    with spinner(f"Making {counted(n_rows, 'row')}"), refusals():
        try:
            with parquet_parts(out) as file:
                writer = RowWriter(generator.rules_, file, partial(as_parquet, forms=forms))
                generator._stream_rows(writer, n_rows, seed)
        except OSError as error:
            raise cannot_write(out, error) from error
