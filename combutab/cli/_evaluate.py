"""``combutab evaluate``: how good a synthetic table is, and what it gives away."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from combutab.cli._columns import find_columns, read_frequency
from combutab.cli._console import (
    UserError,
    interruptible,
    no_early_ends,
    one_line_warnings,
    printable,
    say,
    warn,
)
from combutab.cli._model_files import read_made
from combutab.cli._tables import (
    FileFormat,
    Reading,
    cannot_write,
    check_file,
    read_file,
    task_of,
    tell_of_odd_columns,
)
from combutab.core.text import no_column

if TYPE_CHECKING:
    from combutab.reports import SyntheticEvaluation

_ROLES = {"real": "REAL", "synthetic": "SYNTHETIC", "test": "--test"}


def evaluate(
    *,
    real: Path,
    synthetic: Path,
    target: str | None,
    test: Path | None,
    out: Path | None,
    task: str,
    discrete: list[str] | None,
    drop: list[str] | None,
    sep: str | None,
    decimal: str,
    encoding: str,
    learners: str,
    model: Path | None,
    min_frequency: float,
    seed: int,
    jobs: int | None,
) -> None:
    """Say how useful and how alike synthetic rows are, and whether they give real rows away."""
    with interruptible(), one_line_warnings():
        paths = {"real": real, "synthetic": synthetic}
        paths |= {} if test is None else {"test": test}
        if out is not None:
            inputs = {_ROLES[role]: path for role, path in paths.items()}
            check_file(out, **inputs, **({} if model is None else {"--model": model}))
        if task != "auto" and target is None:
            raise UserError(f"--task {task} needs a column to predict: --target COLUMN")
        _check_same(paths)
        made = {} if model is None else read_made(model)
        reading = Reading.of(sep, decimal, encoding)
        tables = _read(paths, reading)
        tables = _leave_out(tables, drop or [])
        columns = tables["real"].columns
        column = None if target is None else find_target(target, columns)
        categorical = find_columns("--discrete", discrete or [], columns)
        if column not in (None, *categorical) and tables["real"][column].count():
            task_of(tables["real"][column], task, real, reading, "--task classification")
        tell_of_odd_columns(tables["real"], reading, identifiers=False)
        found = run_evaluation(
            {
                "real_train": tables["real"],
                "synthetic": tables["synthetic"],
                "real_test": tables.get("test"),
                "target": column,
                "task": task,
                "categorical": categorical,
                "learners": _learners(learners),
                "made": made,
                "names": names_of(paths),
                "min_frequency": read_frequency(min_frequency),
                "random_state": seed,
                "n_jobs": jobs,
            }
        )
        if out is not None:
            write_page(found, out)
        tell(found)


# ---- input -------------------------------------------------------------------------------------


def find_target(text: str, columns: Iterable[Any]) -> Any:
    """Find the column of this name, or raise a UserError."""
    by_text = {str(column): column for column in columns}
    if text not in by_text:
        raise UserError(f"--target: {no_column(text, by_text)}")
    return by_text[text]


def names_of(paths: Mapping[str, Path]) -> dict[str, str]:
    """Name files for a reader: by their names, or by their whole paths if two share a name."""
    texts = {role: path.name for role, path in paths.items()}
    if len(set(texts.values())) < len(texts):
        texts = {role: str(path) for role, path in paths.items()}
    # a name that is no text in any encoding cannot be written
    return {role: text.encode(errors="replace").decode() for role, text in texts.items()}


def _check_same(paths: Mapping[str, Path]) -> None:
    """Refuse held-out rows that are not, and warn of a table that is compared with itself."""
    places = {role: path.resolve() for role, path in paths.items()}
    if "test" in places and places["test"] == places["real"]:
        raise UserError(
            f"{paths['test']} is REAL as well; give rows that the generator has not seen, or leave "
            "--test out"
        )
    for role in ("real", "test"):
        if role in places and places[role] == places["synthetic"]:
            warn(f"{paths['synthetic']} is {_ROLES[role]} as well: a table is compared with itself")


def _read(paths: Mapping[str, Path], reading: Reading) -> dict[str, pd.DataFrame]:
    read = {role: read_file(path, reading) for role, path in paths.items()}
    real, _ = read["real"]
    by_text = {str(column): column for column in real}
    tables = {}
    for role, (table, forms) in read.items():
        # the columns of a text file are text, those of a Parquet file may be numbers
        named = table.set_axis([by_text.get(str(name), name) for name in table], axis=1)
        others = [other for key, (_, other) in read.items() if key != role]
        tables[role] = _with_dates(named, forms, others)
    return tables


def _with_dates(
    table: pd.DataFrame, forms: FileFormat, others: Sequence[FileFormat]
) -> pd.DataFrame:
    """Read dates that another file has in one form, and that could be of several in this one."""
    table = table.copy()
    for name in table:
        known = [other.dates[str(name)] for other in others if str(name) in other.dates]
        if known and str(name) not in forms.dates:
            # what does not have this form is compared as what it is
            with suppress(ValueError):
                text = table[name].astype("string").str.strip()
                table[name] = pd.to_datetime(text, format=known[0])
    return table


def _leave_out(tables: Mapping[str, pd.DataFrame], texts: list[str]) -> dict[str, pd.DataFrame]:
    """Drop the named columns from whichever tables have them."""
    every = dict.fromkeys(column for table in tables.values() for column in table)
    dropped = find_columns("--drop", texts, every)
    left = {role: table.drop(columns=dropped, errors="ignore") for role, table in tables.items()}
    if left["real"].shape[1] == 0:
        raise UserError("--drop leaves no column of REAL")
    return left


def _learners(text: str) -> Any:
    names = [name.strip() for name in text.split(",")]
    return names[0] if len(names) == 1 else names


# ---- evaluation --------------------------------------------------------------------------------


def run_evaluation(arguments: Mapping[str, Any]) -> SyntheticEvaluation:
    """Call `evaluate_synthetic`, with what is done shown on a terminal.

    Raises UserError with what the user can do something about.
    """
    from combutab.reports import evaluate_synthetic

    with _status() as progress:
        try:
            with no_early_ends():
                return evaluate_synthetic(**arguments, progress=progress)
        except (ValueError, ImportError) as error:
            raise UserError(str(error)) from error


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is done next, on a terminal alone."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda label: None
        return
    with console.status("reading", spinner="line") as status:
        yield lambda label: status.update(Text(printable(f"{label[0].upper()}{label[1:]} ...")))


def write_page(found: SyntheticEvaluation, path: Path) -> None:
    """Write the report.

    Raises UserError where the system refuses.
    """
    from combutab.reports import write_report

    started = time.perf_counter()
    try:
        write_report(found, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    if sys.stderr.isatty():
        say(f"Wrote {path} ({time.perf_counter() - started:.1f} s)", error=True)


def tell(found: SyntheticEvaluation) -> None:
    """Print the findings, each in a few words, with its numbers and notes below it."""
    for finding in found.findings:
        level = "not known" if finding.level == "unknown" else finding.level
        say(f"{finding.subject}: {level}. {finding.short}")
        for line in (finding.sentence, *finding.notes):
            say(line, indent=2)
