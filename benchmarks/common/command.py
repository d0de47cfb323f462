"""The command line that the studies share: run what the file lacks, then write the page."""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib import metadata
from itertools import compress
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed

import combutab
from benchmarks.common.page import Page, described, origin
from benchmarks.common.results import Row, Store
from benchmarks.common.verdicts import LEGEND
from benchmarks.machine import describe_machine, processor

Arguments = argparse.Namespace


@dataclass(frozen=True)
class Job:
    """Networks that are trained together.

    Attributes
    ----------
    wanted : sequence of Row
        The settings of each network, which its row will begin with.
    run : callable
        ``run()`` gives the results of each, in that order.
    fits : sequence, optional
        One for each row, where only the missing ones need be trained: ``run(fits)`` takes them.
    """

    wanted: Sequence[Row]
    run: Callable[..., Sequence[Row]]
    fits: Sequence[Any] = ()

    @property
    def label(self) -> str:
        """The settings of the first network, for the progress line."""
        return ", ".join(map(str, self.wanted[0].values()))[:70]

    def missing(self, has: Callable[[Row], bool]) -> Job | None:
        """What is to be run where ``has`` tells which rows are there."""
        is_missing = [not has(row) for row in self.wanted]
        if not self.fits:
            return self if any(is_missing) else None
        fits, wanted = (list(compress(items, is_missing)) for items in (self.fits, self.wanted))
        return replace(self, wanted=wanted, run=partial(self.run, fits)) if fits else None


@dataclass(frozen=True)
class Experiment:
    """One file of rows of a study: its columns are settings, results and versions."""

    name: str  # of the CSV file
    settings: tuple[str, ...]
    results: tuple[str, ...]
    jobs: Callable[[Arguments], Iterable[Job]]
    key: tuple[str, ...] = ()  # the settings that tell networks apart; all by default
    packages: tuple[str, ...] = ()  # whose versions a row has too

    def store(self, folder: Path) -> Store:
        columns = (*self.settings, *self.results, *versions(*self.packages))
        return Store(folder / f"{self.name}.csv.gz", columns, self.key or self.settings)

    def complete(self, arguments: Arguments) -> pd.DataFrame:
        """Run the jobs whose rows the file lacks; all rows."""
        jobs, store = list(self.jobs(arguments)), self.store(arguments.out)
        with store.open([row for job in jobs for row in job.wanted]) as journal:
            missing = [left for job in jobs if (left := job.missing(journal.has))]
            if missing:
                print(f"{self.name}: {len(missing)} of {len(jobs)} to go", flush=True)
            started, made_with = time.monotonic(), versions(*self.packages)
            run = Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")
            ended = run(delayed(_run)(number, job) for number, job in enumerate(missing))
            for count, (number, found) in enumerate(ended, 1):
                job = missing[number]
                journal.add([s | made_with | r for s, r in zip(job.wanted, found, strict=True)])
                minutes = (time.monotonic() - started) / 60
                print(f"[{count}/{len(missing)}] {job.label}; {minutes:.1f} min", flush=True)
        return store.read()


def _run(number: int, job: Job) -> tuple[int, Sequence[Row]]:
    return number, job.run()


def parser_of(doc: str, options: Mapping[str, Any]) -> argparse.ArgumentParser:
    """Make a parser that has --quick and these options, which the docstring describes.

    An option is a default value, a tuple of choices that are all taken by default, or the arguments
    of ``add_argument``.
    """
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=formatter)
    parser.add_argument("--quick", action="store_true", help="Run the smallest form, for tests")
    for name, option in options.items():
        given: dict[str, Any] = {"type": type(option), "default": option}
        if isinstance(option, tuple):
            given = {"nargs": "+", "choices": option, "default": [*option], "metavar": "NAME"}
        given = option if isinstance(option, dict) else given
        parser.add_argument(f"--{name.replace('_', '-')}", **given)
    return parser


@dataclass(frozen=True)
class Study:
    """A study that is run from the command line.

    Attributes
    ----------
    module : str
        That ``python -m`` runs.
    title, doc : str
        The page's title, and the module's docstring: a question, and before the command what was
        done to answer it. Both are on the page.
    experiments : sequence of Experiment
        The page has the name of the last one.
    write : callable
        ``write(page, arguments, *rows)`` fills the page; a table of rows for each experiment.
    options : dict
        Options of the study's own, as `parser_of` takes them.
    """

    module: str
    title: str
    doc: str
    experiments: Sequence[Experiment]
    write: Callable[..., None]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.experiments[-1].name

    def main(self, argv: Sequence[str] | None = None) -> None:
        parser = parser_of(self.doc, self.options)
        default = Path(*self.module.split(".")[:-1]) / "results"
        parser.add_argument("--out", type=Path, default=default, help="Folder (%(default)s)")
        parser.add_argument("--report", action="store_true", help="Only write the page again")
        parser.add_argument("--jobs", type=int, default=1, help="Processes (%(default)s)")
        parser.add_argument("--data-home", help="Folder with CSV files; OpenML by default")
        arguments = parser.parse_args(argv)
        if arguments.quick and arguments.out == default:
            sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
        print(describe_machine(), flush=True)
        tables = self._rows(arguments)
        machine = made_on(tables) or (self._told(arguments.out) if arguments.report else None)
        page = Page(self.name, self.title, self._command(parser, arguments), machine)
        question, method = described(self.doc)
        page.text(question)
        if arguments.quick:
            page.text("The smallest form, for tests: the text describes the full study.")
        with page.details("What was done"):
            names = dict.fromkeys(n for each in tables if "data" in each for n in each["data"])
            page.text(method, *origin(names), SEEDS)
        self.write(page, arguments, *tables)
        if "| where | claim |" in str(page):
            with page.details("How a claim is judged"):
                page.text(LEGEND)
        page.write(arguments.out)
        print(page)

    def _told(self, folder: Path) -> str | None:
        """What the page that is there says of the machine, for rows that do not tell."""
        page = folder / f"{self.name}.md"
        lines = page.read_text("utf-8").splitlines() if page.exists() else []
        return next((line for line in lines if "; Python " in line), None)

    def _rows(self, arguments: Arguments) -> list[pd.DataFrame]:
        """Run or read the experiments; an error ends the program in one line."""
        try:
            warnings.filterwarnings("ignore", category=UserWarning, module="joblib")
            # numbers below 1e-38 are as good as none, and slow the processor down
            torch.set_flush_denormal(True)
            return [
                e.store(arguments.out).read() if arguments.report else e.complete(arguments)
                for e in self.experiments
            ]
        except (ValueError, RuntimeError, OSError, AssertionError, ImportError) as error:
            sys.exit(f"{self.name}: {error}")
        except KeyboardInterrupt:
            sys.exit("\ninterrupted: what was finished is kept; run the same command to go on")
        finally:
            torch.set_flush_denormal(False)

    def _command(self, parser: argparse.ArgumentParser, arguments: Arguments) -> str:
        """Write the command that gives the same rows anywhere."""
        words = [f"python -m {self.module}"]
        for name, value in vars(arguments).items():
            if name not in HERE and value != parser.get_default(name):
                values = value if isinstance(value, list | tuple) else [value] * (value is not True)
                words += [f"--{name.replace('_', '-')}", *(shlex.quote(str(v)) for v in values)]
        return " ".join(words)


SEEDS = """\
A run with the command above keeps the stored rows and adds those that are missing. A new run from
the start can draw other numbers: the code that draws them has changed since some rows were made."""
HERE = ("out", "report", "jobs", "data_home")  # the options that change no row
MACHINE = ("cpu", "python", "torch", "numpy", "sklearn", "combutab")  # what a row tells of it
VERSIONED = {"sklearn": "scikit-learn"}  # packages that are installed under another name


def made_on(tables: Iterable[pd.DataFrame]) -> str | None:
    """The machines and versions that rows were made with; None where no row names a processor.

    >>> made_on([pd.DataFrame({"cpu": ["A", "B"], "torch": ["2.9", "2.9"]})])
    'Rows made on A and B; torch 2.9'
    """
    machines: dict[str, list[str]] = {}
    for name in MACHINE:
        values = {str(v) for table in tables if name in table for v in table[name].dropna()}
        if values - {""}:
            machines[name] = sorted(values - {""})
    if "cpu" not in machines:
        return None
    if all(values == [versions(name)[name]] for name, values in machines.items()):
        return describe_machine()
    names = {"python": "Python", **VERSIONED}
    notes = [f"{names.get(n, n)} {' and '.join(machines[n])}" for n in machines if n != "cpu"]
    return f"Rows made on {' and '.join(machines['cpu'])}; {', '.join(notes)}"


@lru_cache
def versions(*more: str) -> Row:
    """List the versions that a row was made with.

    >>> list(versions("numpy", "python"))
    ['combutab', 'torch', 'numpy', 'python']
    """
    facts = {"python": platform.python_version, "cpu": processor}

    def of(name: str) -> str:
        if name in facts:
            return facts[name]()
        try:
            return metadata.version(VERSIONED.get(name, name))
        except metadata.PackageNotFoundError:
            return ""

    package_versions = {"combutab": combutab.__version__, "torch": torch.__version__}
    return package_versions | {name: of(name) for name in more}
