"""Create generators from options, train them, and write them and their rows to files."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.cli._conditions import parse_conditions, parse_shares
from combutab.cli._console import (
    UserError,
    echo_on_terminal,
    hint_at_time_limit,
    own_warnings,
    refusals,
    spinner,
)
from combutab.cli._files import load_with_format, save_with_format, write_table
from combutab.cli._options import (
    GeneratorOptions,
    RowOptions,
    column_named,
    ending,
    find_columns,
    path_beside,
    writing,
)
from combutab.core.state import unpack
from combutab.core.text import counted, describe_generator, list_names
from combutab.datasets.formats import FileFormat, as_parquet
from combutab.generators import (
    find_generators,
    read_constraints,
    suggest_constraints,
    write_constraints,
)
from combutab.generators.sampling import RowWriter
from combutab.preprocessing import (
    ColumnKind,
    ModeEncoder,
    dtype_kind,
    find_forms,
    parquet_parts,
)
from combutab.training import Callback, ProgressBar

_CONTINUOUS = (ColumnKind.NUMBER, ColumnKind.DATETIME, ColumnKind.TIMEDELTA)
_FEW = 10  # integer columns with at most this number of values are likely to be categories


# ---- Saved generators, options as parameters, and checks before the training ---------------------


def load_generator(path: Path, device: str) -> tuple[Any, FileFormat, dict[str, str]]:
    """Load a generator from its file, with the format of its table and a description."""
    generator, forms, header = load_with_format(
        path, device, find_generators(), "cannot make rows", "combutab synth --save"
    )
    params = unpack(header["params"])
    description = describe_generator(header["class"], header["version"], params, header["fitted"])
    return generator, forms, description


def read_rules(path: Path | None) -> list[Any] | None:
    """Read a file of constraints; raises UserError if it cannot be read."""
    if path is None:
        return None
    with refusals(ValueError, OSError, ImportError):
        return read_constraints(path)


def read_fakes(texts: Sequence[str] | None, table: pd.DataFrame) -> dict[Any, str] | None:
    """Parse ``COLUMN=PROVIDER`` as the realistic values of columns.

    >>> read_fakes(["mail=email:de_DE"], pd.DataFrame({"mail": ["a@b.de"]}))
    {'mail': 'email:de_DE'}
    """
    fakes = {}
    for text in texts or ():
        name, equals, provider = text.rpartition("=")
        if not equals or not provider:
            raise UserError(f"--fake {text} is not COLUMN=PROVIDER, such as mail=email")
        fakes[column_named("--fake", name, table)] = provider
    return fakes or None


def suggest_rules(table: pd.DataFrame, path: Path | None) -> None:
    """Write the constraints that a table meets to a file, and print them."""
    if path is None:
        return
    constraints = suggest_constraints(table)
    with refusals(ValueError, OSError, ImportError):
        write_constraints(constraints, path)
    print(constraints or "No constraints were found, except those that are likely by chance.")
    echo_on_terminal(f"Wrote {len(constraints)} constraints to {path}")


def make_generator(
    options: GeneratorOptions, table: pd.DataFrame, discrete_columns: list[Any]
) -> tuple[Any, ModeEncoder, pd.DataFrame]:
    """Create the generator that the options describe, after a check that it can learn the table.

    The check fits the generator's encoder, which is returned too, without modes of numeric columns,
    which take time; and the table that it was fitted to, with text of times and units as numbers.
    Raises UserError if the table cannot be encoded or, with --save, if it has values that cannot be
    saved.
    """
    rules = read_rules(options.constraints)
    identifiers: Any = "auto"
    if options.identifiers == ["none"] and "none" not in table:
        identifiers = None
    elif options.identifiers is not None:
        identifiers = find_columns("--identifiers", options.identifiers, table.columns)
    protection = {
        "min_frequency": options.min_frequency or 5,
        "identifiers": identifiers,
        "fake": read_fakes(options.fake, table),
    }
    if len(table) < 2:
        raise UserError("the table has 1 row; at least 2 are needed")
    cls = {name.lower(): cls for name, cls in find_generators().items()}[options.model or "tabflow"]
    names = ("epochs", "max_time", "batch_size", "activation")
    settings = {name: getattr(options, name, None) for name in names} | {"constraints": rules}
    generator = cls(
        **{name: value for name, value in settings.items() if value is not None},
        **protection,
        random_state=options.seed,
        device=options.device,
        callbacks=[ProgressBar(cls.__name__, transient=True, estimate=True)],
    )
    try:
        excluded = [*discrete_columns, *(identifiers if isinstance(identifiers, list) else ())]
        excluded += protection["fake"] or ()
        for rule in rules or ():
            excluded += rule.find_columns(list(table))
        table = _read_forms(table, excluded)
        discrete: Any = "auto"
        if discrete_columns:
            continuous = [name for name in table if dtype_kind(table[name].dtype) in _CONTINUOUS]
            discrete = [n for n in table if n in discrete_columns or n not in continuous]
        encoder = ModeEncoder(discrete_columns=discrete, n_modes=1, max_rows=1, **protection)
        with refusals(ImportError):
            encoder.fit(table)
    except (ValueError, TypeError) as error:
        raise UserError(f"{error}, or leave the column out with --drop") from error
    if options.save is not None:
        with refusals(TypeError):
            encoder.to_state()
    return generator, encoder, table


def _read_forms(table: pd.DataFrame, excluded: list[Any]) -> pd.DataFrame:
    """Read text of times and numbers with a unit as generators do."""
    columns = {}
    for form in find_forms(table, excluded):
        name = table.columns[form.column]
        columns[name] = form.read(table[name], f"column {name!r}")
    return table.assign(**columns)


def hint_at_few_values(table: pd.DataFrame) -> None:
    """Name the integer columns that are likely to be categories."""
    integers = table[[name for name in table if types.is_integer_dtype(table[name].dtype)]]
    names = [str(name) for name, n_values in integers.nunique().items() if 1 < n_values <= _FEW]
    if names:
        echo_on_terminal(
            f"{list_names(names)} are treated as numbers, although they have few "
            "values; if they are categories, name them in --discrete"
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

        started = time.perf_counter()
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
        if not self.interrupted:
            hint_at_time_limit(self.generator, started, "the rows")

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
        if path is not None:
            path = self.place(path)
            save_generator(self.generator, path, forms)
            self.add("the generator", path)

    def _report(self) -> str:
        n_epochs, progress = getattr(self.generator, "n_iter_", None), ""
        if self._epochs is not None and (n_epochs is None or self.interrupted):
            progress = f" after {n_epochs or 0} of {self._epochs} epochs"
        files = f"; kept: {', '.join(self._kept)}" if self._kept else ""
        if self.checkpoint is not None and self.checkpoint.exists():
            files += f"; the same command continues from {self.checkpoint}"
        return progress + (files or "; nothing is kept")


def save_generator(generator: Any, path: Path | None, forms: FileFormat) -> None:
    """Save a generator, unless no ``path`` is given."""
    if path is not None:
        with writing(path):
            save_with_format(generator, path, forms)
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
    making = spinner(f"Making {counted(n_rows, 'row')}")
    if in_parts and is_streamed(out, options):
        with making, refusals(), writing(out):
            _stream_rows(generator, forms, n_rows, options.seed, out)
        return None
    check_size(n_rows, generator.n_features_in_)
    conditions = parse_conditions(options.condition, generator.encoder_, forms)
    shares = parse_shares(options.shares, generator.encoder_, forms, conditions)
    with making, refusals(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "only .* were asked for", UserWarning)
        requests = {"conditions": conditions, "shares": shares, "on_shortfall": "return"}
        table: pd.DataFrame = generator.sample(n_rows, **requests, random_state=options.seed)
        if len(table) or not n_rows:
            write_table(table, forms, out)
    if len(table) < n_rows:
        way = f"they are in {out}. Ask for fewer, or relax the conditions"
        raise UserError(
            f"only {len(table):,} of {counted(n_rows, 'row')} that meet the conditions were found; "
            f"{way if len(table) else 'relax the conditions'}"
        )
    return table


def _stream_rows(generator: Any, forms: FileFormat, n_rows: int, seed: int, out: Path) -> None:
    """Sample rows and write them to a Parquet file in parts."""
    with parquet_parts(out) as file:
        writer = RowWriter(generator.rules_, file, partial(as_parquet, forms=forms))
        generator._stream_rows(writer, n_rows, seed)
