"""``combutab synth`` and ``combutab sample``: synthetic tables, conditions, reports."""

from __future__ import annotations

import datetime
import math
import re
import shlex
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from rich.console import Console

from combutab._model_files import model_header
from combutab.cli._columns import find_columns, read_kept
from combutab.cli._console import (
    UserError,
    interruptible,
    note,
    one_line_warnings,
    own_warnings,
    say_on_terminal,
    warn,
)
from combutab.cli._evaluate import find_target, names_of, run_evaluation, tell, write_page
from combutab.cli._model_files import (
    check_device,
    check_replaceable,
    check_savable,
    describe,
    leave_out,
    load_generator,
    probe,
    save_generator,
    tell_of_few_values,
    tell_of_formulas,
)
from combutab.cli._tables import (
    FileFormat,
    Reading,
    as_parquet,
    cannot_write,
    check_ending,
    check_file,
    ending,
    read_file,
    task_of,
    tell_of_odd_columns,
    write_file,
    write_whole,
)
from combutab.core.device import resolve_device
from combutab.core.text import known_instead, no_column
from combutab.generators import ShortfallError, check_conditions, find_generators
from combutab.generators.conditions import on_clocks
from combutab.generators.sampling import RowWriter, pour_rows
from combutab.preprocessing import IdentifierColumn, ModeEncoder, parquet_parts
from combutab.training import Callback, ProgressBar

# ---- The training of a generator for a command, which Ctrl-C may end before its time -------------


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


# ---- Conditions on the command line, such as ``city=A|B`` and ``age=30..50`` ---------------------

_FORMS = "COLUMN=VALUE, COLUMN=ONE|OTHER or COLUMN=LOW..HIGH"
_ISO = "%Y-%m-%d"
Parse = Callable[[str], tuple[Any, Any]]  # the first and the last value that a text stands for


def read_conditions(
    texts: Sequence[str], encoder: ModeEncoder, forms: FileFormat
) -> dict[Any, list[Any] | tuple[Any, Any]]:
    """Read conditions for a generator's ``sample``; those that all rows meet are left out.

    A condition is ``COLUMN=VALUE``, ``COLUMN=ONE|OTHER`` (nothing stands for a missing value) or
    ``COLUMN=LOW..HIGH`` (numbers and dates; both ends included, and either may be left out). A day
    stands for all times of that day. ``forms`` are those of the file's dates and truth values.

    Raises UserError if a condition is none of these, or names a column or value that there is not.

    >>> encoder = ModeEncoder().fit(pd.DataFrame({"age": [30, 40, 50], "city": list("aab")}))
    >>> read_conditions(["age=35..", "city=b"], encoder, FileFormat())
    {'age': (35, None), 'city': ['b']}
    """
    found: dict[Any, list[Any] | tuple[Any, Any]] = {}
    seen = set()
    for text in texts:
        name, value = _split(text, encoder.schema_.keys)
        j = [str(key) for key in encoder.schema_.keys].index(name)
        if name in seen:
            raise UserError(f"there are two conditions on {name!r}; join them: {_FORMS}")
        seen.add(name)
        key, column = encoder.schema_.keys[j], encoder.columns_[j]
        if isinstance(column, IdentifierColumn):
            raise UserError(
                f"{name!r} holds identifiers, of which new ones are made; leave the condition out, "
                "or say with --identifiers which columns hold some"
            )
        if key in encoder.categories_:
            values = encoder.categories_[key]
            chosen = _choose(name, value, values, forms)
            if len(values) > 1:
                found[key] = chosen
        else:
            found[key] = _numbers(name, value, column, forms)
    return found


def _split(text: str, columns: Iterable[Any]) -> tuple[str, str]:
    """The name of a column and what is asked of it; of names with ``=`` in them, the longest."""
    parts = text.split("=")
    if len(parts) == 1:
        raise UserError(f"a condition is {_FORMS}, got {text!r}")
    known = [str(column) for column in columns]
    for i in range(len(parts) - 1, 0, -1):
        for name in ("=".join(parts[:i]), "=".join(parts[:i]).strip()):
            if name in known:
                return name, "=".join(parts[i:])
    name = parts[0].strip()
    raise UserError(f"--condition {text!r}: {no_column(name, known)}")


# ---- discrete columns --------------------------------------------------------------------------


def _choose(name: str, text: str, values: list[Any], forms: FileFormat) -> list[Any]:
    """The values of a discrete column that a text names."""
    by_text = _by_text(values, forms.truth.get(name))
    parse = _parser(name, values, forms)
    whole = _look_up(text, by_text, parse, values)
    if whole:
        return whole
    if parse is not None and ".." in text:
        low, high = _ends(name, text, parse)
        chosen = [v for v in values if v is not None and _inside(v, low, high)]
        if chosen:
            return chosen
        raise UserError(f"no value of {name!r} lies in {text}; {known_instead(text, by_text)}")
    chosen = []
    for part in text.split("|"):
        some = _look_up(part, by_text, parse, values) or _look_up(
            part.strip(), by_text, parse, values
        )
        if not some:
            shown = [each for each in by_text if each]
            what = f"no value {part!r}" if part else "no missing values"
            raise UserError(f"{name!r} has {what}; {known_instead(part, shown)}")
        chosen += some
    return list(dict.fromkeys(chosen))


def _by_text(values: list[Any], truth: list[str] | None) -> dict[str, Any]:
    words = {bool(i): word for i, word in enumerate(truth or ())}
    return {
        "" if v is None else words.get(v, str(v)) if isinstance(v, bool) else str(v): v
        for v in values
    }


def _look_up(
    text: str, by_text: dict[str, Any], parse: Parse | None, values: list[Any]
) -> list[Any]:
    """The values that a text stands for, which may be written in another way: ``3`` for 3.0."""
    if text in by_text:
        return [by_text[text]]
    if all(isinstance(v, bool) for v in values if v is not None):
        return [v for each, v in by_text.items() if each and each.casefold() == text.casefold()]
    if parse is None:
        return []
    try:
        low, high = parse(text)
    except ValueError:
        return []
    return [v for v in values if v is not None and _inside(v, low, high)]


def _inside(value: Any, low: Any, high: Any) -> bool:
    return bool((low is None or low <= value) and (high is None or value <= high))


def _parser(name: str, values: list[Any], forms: FileFormat) -> Parse | None:
    """Return a function that reads a text as one of these values; None if they are plain text."""
    present = [v for v in values if v is not None]
    if present and all(isinstance(v, pd.Timestamp) for v in present):
        return partial(_date, form=forms.dates.get(name), zone=present[0].tz)
    if present and all(isinstance(v, int | float) and not isinstance(v, bool) for v in present):
        return _number
    return None


# ---- continuous columns ------------------------------------------------------------------------


def _numbers(name: str, text: str, column: Any, forms: FileFormat) -> list[Any] | tuple[Any, Any]:
    """The range, or the values, of a continuous column that a text names."""
    bounds = column.bounds
    parse: Parse = _number
    if types.is_datetime64_any_dtype(bounds.dtype):
        parse = partial(_date, form=forms.dates.get(name), zone=bounds.iloc[0].tz)
    elif types.is_timedelta64_dtype(bounds.dtype):
        parse = _duration
    parts = [part.strip() for part in text.split("|")]
    if "" in parts and not column.missing:
        raise UserError(
            f"{name!r} has no missing values: ask for a range such as "
            f"{_example(bounds, name, forms)}, or for a value"
        )
    if ".." in text:
        if len(parts) > 1:
            raise UserError(f"in the condition on {name!r}: {text} is no range; give one LOW..HIGH")
        low, high = _ends(name, text, parse)
        _refuse_beyond(name, text, low, high, bounds, forms)
        return low, high
    values = []
    for part in parts:
        low, high = _one(name, part, parse) if part else (None, None)
        if part:
            _refuse_beyond(name, part, low, high, bounds, forms)
        if low != high:  # all times of a day
            if len(parts) > 1:
                raise UserError(
                    f"in the condition on {name!r}: {text} has whole days; give a range of days, "
                    "or make the column discrete with --discrete when the model is trained"
                )
            return low, high
        values.append(low)
    return list(dict.fromkeys(values))


def _refuse_beyond(
    name: str, text: str, low: Any, high: Any, bounds: pd.Series, forms: FileFormat
) -> None:
    if (low is not None and low > bounds.iloc[1]) or (high is not None and high < bounds.iloc[0]):
        raise UserError(
            f"no value of {name!r} lies in {text}: they lie in "
            f"{_shown_condition(bounds, name, forms)}"
        )


def _ends(name: str, text: str, parse: Parse) -> tuple[Any, Any]:
    first, last = (end.strip() for end in text.split("..", 1))
    if not first and not last:
        raise UserError(f"the range {text} of {name!r} has no ends; a condition is {_FORMS}")
    low = _one(name, first, parse)[0] if first else None
    high = _one(name, last, parse)[1] if last else None
    if low is not None and high is not None and low > high:
        raise UserError(f"the range {text} of {name!r} is empty")
    return low, high


def _one(name: str, text: str, parse: Parse) -> tuple[Any, Any]:
    try:
        return parse(text)
    except ValueError as error:
        raise UserError(f"in the condition on {name!r}: {error}") from error


def _number(text: str) -> tuple[Any, Any]:
    try:
        number: int | float = int(text)
    except ValueError:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"{text!r} is no number") from None
    return number, number


def _date(text: str, form: str | None, zone: Any) -> tuple[pd.Timestamp, pd.Timestamp]:
    """A moment twice, or the first and the last one of a day."""
    text = text.strip()
    moment = None
    for known in (form, form and form.split("%H")[0].rstrip(" T")):
        if known and moment is None:
            try:
                moment = datetime.datetime.strptime(text, known)
            except ValueError:
                continue
    try:
        low = pd.Timestamp(moment or datetime.datetime.fromisoformat(text))
    except ValueError:
        examples = dict.fromkeys(
            pd.Timestamp(2025, 1, 31).strftime(f) for f in (_ISO, form or _ISO)
        )
        raise ValueError(f"{text!r} is no date; write it as {' or '.join(examples)}") from None
    of_day = not re.search(r"[T:\s]", text)
    high = low + datetime.timedelta(days=1) if of_day else low
    if low.tz is None and zone is not None:
        low, high = on_clocks(low, zone), on_clocks(high, zone)
    elif low.tz is not None and zone is None:
        low = high = low.tz_convert("UTC").tz_localize(None)
    if of_day:  # nanoseconds count these years alone
        ns = 1700 < high.year < 2200
        high -= pd.Timedelta(1, "ns") if ns else datetime.timedelta(microseconds=1)
    return low, high


def _duration(text: str) -> tuple[pd.Timedelta, pd.Timedelta]:
    try:
        duration = pd.Timedelta(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no duration; write it as '2 days 03:00:00'") from None
    return duration, duration


def _shown_condition(bounds: pd.Series, name: str, forms: FileFormat) -> str:
    """A range as a user would write it."""
    form = forms.dates.get(name)
    if form is not None:
        bounds = bounds.dt.strftime(form)
    return f"{bounds.iloc[0]}..{bounds.iloc[1]}"


def _example(bounds: pd.Series, name: str, forms: FileFormat) -> str:
    return f'"{name}={_shown_condition(bounds, name, forms)}"'


# ---- The report of `combutab synth`: rows set aside before the training, to compare with after
# it

_HOLDOUT = 0.2
_MOST = 0.9


@dataclass(frozen=True)
class SynthReport:
    """A report that was asked for: a page at ``path``, with a column for learners to predict."""

    path: Path
    target: Any
    holdout: float


def plan_report(
    path: Path | None,
    target: str | None,
    holdout: float | None,
    table: pd.DataFrame,
    conditions: Mapping[Any, Any],
) -> SynthReport | None:
    """Check what was asked for; None without a path."""
    if path is None:
        for option, value in (("--target", target), ("--holdout", holdout)):
            if value is not None:
                raise UserError(f"{option} {value} is for a report: --report report.html")
        return None
    if conditions:
        raise UserError(
            "a report is of rows without conditions, to be compared with all of DATA; leave "
            "--condition or --report out"
        )
    share = _HOLDOUT if holdout is None else holdout
    if not 0 <= share <= _MOST:
        raise UserError(f"--holdout must lie between 0 and {_MOST}, got {share:g}")
    column = None if target is None else find_target(target, table.columns)
    return SynthReport(path, column, share)


def set_aside(
    table: pd.DataFrame, report: SynthReport | None, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The rows to learn from, and those to compare with; both in the table's order.

    Raises UserError if one of them has too few rows, or no target that can be predicted.
    """
    if report is None:
        return table, None
    n = round(report.holdout * len(table))
    held = np.zeros(len(table), dtype=bool)
    held[np.random.default_rng(seed).permutation(len(table))[:n]] = True
    train, test = table[~held], table[held] if report.holdout else None
    if min(len(train), 2 if test is None else len(test)) < 2:
        raise UserError(
            f"--holdout {report.holdout:g} sets {n:,} of {len(table):,} rows aside; at least 2 are "
            "needed, and 2 to learn from: choose another share, or 0"
        )
    if report.target is not None:
        _check_target(report.target, train, test)
    if test is not None:
        note(
            f"{n:,} of {len(table):,} rows are set aside for the report; the generator learns from "
            f"the other {len(train):,} (--holdout)"
        )
    return train, test


def _check_target(target: Any, train: pd.DataFrame, test: pd.DataFrame | None) -> None:
    if train.shape[1] < 2:
        raise UserError(f"--target: there is no column beside {str(target)!r} to predict it from")
    for table in (train, test):
        if table is not None and table[target].isna().all():
            raise UserError(f"--target: {str(target)!r} is missing in all rows")


def write_synth_report(
    report: SynthReport,
    generator: Any,
    tables: Mapping[str, pd.DataFrame | None],
    files: Mapping[str, Path],
    *,
    discrete: list[Any],
    seed: int,
    min_frequency: float,
) -> None:
    """Evaluate the rows that were made, write the page, and print what was found.

    ``tables`` are those of `evaluate_synthetic`, ``files`` those that the real and the synthetic
    rows are in, and ``discrete`` the columns of numbers that are categories. Raises UserError if
    the rows cannot be compared, or the page cannot be written.
    """
    names = names_of(files)
    names["test"] = f"{names['real']}, set aside"
    made = describe(model_header(generator)) | {"Seed of the rows": str(seed)}
    arguments = {
        **tables,
        "target": report.target,
        "categorical": discrete,
        "made": made,
        "names": names,
        "min_frequency": min_frequency,
        "random_state": seed,
    }
    try:
        found = run_evaluation(arguments)
    except UserError as error:
        done = f"{files['synthetic']} is written, but not the report"
        raise UserError(f"{done}: {error}") from error
    write_page(found, report.path)
    tell(found)


# ---- ``combutab synth`` and ``combutab sample``: synthetic tables, and more rows of the same -----

_NUMBERS_A_CELL = 4  # that sampling holds at a time, about


def synth(
    *,
    data: Path,
    out: Path,
    model: str,
    activation: str | None,
    rows: int | None,
    discrete: list[str] | None,
    min_frequency: float | None,
    identifiers: list[str] | None,
    drop: list[str] | None,
    sep: str | None,
    decimal: str,
    encoding: str,
    condition: list[str] | None,
    epochs: int | None,
    max_time: float | None,
    batch_size: int | None,
    seed: int,
    device: str,
    guard_formulas: bool,
    save: Path | None,
    checkpoint: Path | None,
    report: Path | None,
    target: str | None,
    holdout: float | None,
) -> None:
    """Train a generator on a table, and write a synthetic one of the same columns.

    Ctrl-C ends the training and writes what it has learned, beside files that are there.
    """
    with interruptible(), one_line_warnings():
        started = time.perf_counter()
        check_ending(out)
        check_file(out, DATA=data)
        if save is not None:
            check_file(save, DATA=data, OUT=out)
            check_replaceable(save)
        if report is not None:
            check_file(report, DATA=data, OUT=out, **({} if save is None else {"--save": save}))
        if checkpoint is not None:
            others = {"--save": save, "--report": report}
            written = {name: path for name, path in others.items() if path is not None}
            check_file(checkpoint, DATA=data, OUT=out, **written)
        check_device(device)
        reading = Reading.of(sep, decimal, encoding)
        table, forms = read_file(data, reading)
        table = leave_out(table, find_columns("--drop", drop or [], table.columns))
        listed = find_columns("--discrete", discrete or [], table.columns)
        if report is not None and target is not None:
            column = find_target(target, table.columns)
            if column not in listed and table[column].count():
                classify = f"--discrete {shlex.quote(target)}"
                task_of(table[column], "auto", data, reading, classify)
        tell_of_odd_columns(table, reading, identifiers=False)
        forms.guarded = guard_formulas
        tell_of_formulas(table, forms, out)
        n_rows = len(table) if rows is None else rows
        poured = report is None and _is_poured(out, condition)
        if not poured:
            _check_size(n_rows, table.shape[1])
        protection = read_kept(min_frequency, identifiers, table.columns)
        columns = probe(table, listed, protection)
        conditions = _read_conditions(condition, columns, forms)
        planned = plan_report(report, target, holdout, table, conditions)
        if save is not None:
            check_savable(columns)
        _warn_of_none(table, conditions, columns, data)
        table, test = set_aside(table, planned, seed)

        generator = make_generator(
            model,
            protection,
            ProgressBar,
            epochs=epochs,
            max_time=max_time,
            batch_size=batch_size,
            activation=activation,
            random_state=seed,
            device=device,
        )
        say_on_terminal(
            f"{data.name}: {len(table):,} rows, {table.shape[1]} columns "
            f"({len(columns.category_counts_)} discrete); {type(generator).__name__} with "
            f"{generator.activation}, on {resolve_device(device)}"
        )
        if not listed:
            tell_of_few_values(table)
        kept = Kept(generator, checkpoint)
        with kept.told():
            kept.interrupted = train_generator(
                generator, table, columns.discrete_columns, checkpoint
            )
            if save is not None:
                place = kept.place(save)
                write_whole(place, lambda stage: save_generator(generator, forms, stage))
                kept.add("the generator", place)
                say_on_terminal(f"Wrote the generator to {place}")
            place = kept.place(out)
            if poured:
                _pour_rows(generator, forms, n_rows, seed, place)
            else:
                made = _write_rows(generator, forms, n_rows, conditions, seed, place)
            kept.add(f"{n_rows:,} rows", place)
            say_on_terminal(
                f"Wrote {n_rows:,} rows to {place} ({time.perf_counter() - started:.1f} s)"
            )
            if planned is not None and not kept.interrupted:
                files = {"real": data, "synthetic": out}
                tables = {"real_train": table, "real_test": test, "synthetic": made}
                write_synth_report(
                    planned,
                    generator,
                    tables,
                    files,
                    discrete=listed,
                    seed=seed,
                    min_frequency=protection["min_frequency"],
                )


def sample(
    *,
    model: Path,
    out: Path,
    rows: int,
    condition: list[str] | None,
    seed: int,
    device: str,
    guard_formulas: bool,
) -> None:
    """Write rows of a generator that `combutab synth` has trained.

    The same rows, conditions and seed as there give the same table as there.
    """
    with interruptible(), one_line_warnings():
        started = time.perf_counter()
        check_ending(out)
        check_file(out, MODEL=model)
        check_device(device)
        generator, forms = load_generator(model, device)
        forms.guarded |= guard_formulas
        if _is_poured(out, condition):
            _pour_rows(generator, forms, rows, seed, out)
        else:
            _check_size(rows, generator.n_features_in_)
            conditions = _read_conditions(condition, generator.encoder_, forms)
            _write_rows(generator, forms, rows, conditions, seed, out)
        say_on_terminal(f"Wrote {rows:,} rows to {out} ({time.perf_counter() - started:.1f} s)")


# ---- before the training -----------------------------------------------------------------------


def _check_size(n_rows: int, n_columns: int) -> None:
    """Refuse what no memory of this machine would hold."""
    try:
        np.empty((n_rows, _NUMBERS_A_CELL * n_columns))
    except (MemoryError, ValueError) as error:  # the second: more than an array can count
        raise UserError(
            f"{n_rows:,} rows are more than the memory holds; write them to a .parquet file, "
            "without --condition and --report, or several files, each with another --seed"
        ) from error


def _read_conditions(
    texts: list[str] | None, columns: ModeEncoder, forms: FileFormat
) -> dict[Any, Any]:
    conditions = read_conditions(texts or [], columns, forms)
    try:
        check_conditions(columns, conditions)
    except ValueError as error:
        raise UserError(str(error)) from error
    return conditions


def _warn_of_none(
    table: pd.DataFrame, conditions: Mapping[Any, Any], columns: ModeEncoder, data: Path
) -> None:
    met = np.ones(len(table), dtype=bool)
    for name, wanted in conditions.items():
        column = table[name]
        if isinstance(wanted, list):
            if name not in columns.categories_ and wanted != [None]:
                continue  # numbers, for which those near to them stand
            missing = column.isna() if None in wanted else False
            one = column.isin([value for value in wanted if value is not None]) | missing
        else:
            low, high = wanted
            one = column.notna()
            one &= True if low is None else column.ge(low).fillna(False)
            one &= True if high is None else column.le(high).fillna(False)
        met &= one.to_numpy(dtype=bool)
    if not met.any():
        warn(f"no row of {data} meets all conditions, and made ones may be too rare to be found")


# ---- training and sampling ---------------------------------------------------------------------


def _is_poured(out: Path, condition: list[str] | None) -> bool:
    """Tell whether rows are written part by part, so that memory holds any number of them."""
    return ending(out) == ".parquet" and not condition


def _pour_rows(generator: Any, forms: FileFormat, n_rows: int, seed: int, out: Path) -> None:
    with _shown(n_rows):
        try:
            with parquet_parts(out) as file:
                change = partial(as_parquet, forms=forms)
                writer = RowWriter(generator.encoder_, file, change)
                pour_rows(generator, n_rows, seed, writer)
        except OSError as error:
            raise cannot_write(out, error) from error
        except ValueError as error:
            raise UserError(str(error)) from error


def _shown(n_rows: int) -> AbstractContextManager[Any]:
    console = Console(stderr=True)
    return console.status(f"Making {n_rows:,} rows") if console.is_terminal else nullcontext()


def _write_rows(
    generator: Any,
    forms: FileFormat,
    n_rows: int,
    conditions: Mapping[Any, Any],
    seed: int,
    out: Path,
) -> pd.DataFrame:
    with _shown(n_rows):
        missed = ""
        try:
            table: pd.DataFrame = generator.sample(n_rows, conditions=conditions, random_state=seed)
        except ShortfallError as error:
            table = error.rows
            missed = f"only {len(table):,} of {n_rows:,} rows that meet the conditions were found"
            if not len(table):
                raise UserError(f"{missed}; relax the conditions") from error
        except ValueError as error:
            raise UserError(str(error)) from error
        write_whole(out, lambda stage: write_file(table, forms, stage, ending(out)))
    if missed:
        raise UserError(f"{missed}; they are in {out}. Ask for fewer, or relax the conditions")
    return table
