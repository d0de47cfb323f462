"""The command line that the studies share: run what the file lacks, then write the page."""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import pandas as pd
import torch
from joblib import Parallel, delayed

import combutab
from benchmarks.common.page import Page
from benchmarks.common.results import Row, Store
from benchmarks.common.verdicts import LEGEND
from benchmarks.machine import describe_machine, processor

Arguments = argparse.Namespace
Has = Callable[[Row], bool]  # whether the row of these settings is there


@dataclass(frozen=True)
class Job:
    """Networks that are trained together.

    Attributes
    ----------
    wanted : sequence of Row
        The settings of each network, which its row will begin with.
    run : callable
        ``run()`` gives their rows, in that order, without the settings and the versions.
    label : str
        For the progress line.
    parts : callable, optional
        ``parts(has)`` gives the jobs for what is missing, where that need not be all of it.
    """

    wanted: Sequence[Row]
    run: Callable[[], Sequence[Row]]
    label: str
    parts: Callable[[Has], Iterable[Job]] | None = None

    def missing(self, has: Has) -> list[Job]:
        """List what is to be run where some rows are there."""
        if all(map(has, self.wanted)):
            return []
        return list(self.parts(has)) if self.parts else [self]


@dataclass(frozen=True)
class Experiment:
    """One file of rows of a study: its columns are settings, results and versions."""

    name: str  # of the CSV file
    settings: tuple[str, ...]
    results: tuple[str, ...]
    jobs: Callable[[Arguments], Iterable[Job]]
    key: tuple[str, ...] = ()  # the settings that tell networks apart; all by default
    packages: tuple[str, ...] = ()  # whose versions a row has too
    columns: tuple[str, ...] = ()  # in the file's order; as they are listed here by default
    parallel: bool = False  # in as many processes as --jobs says

    def store(self, folder: Path) -> Store:
        columns = self.columns or (*self.settings, *self.results, *versions(*self.packages))
        return Store(folder / f"{self.name}.csv.gz", columns, self.key or self.settings)

    def complete(self, arguments: Arguments) -> pd.DataFrame:
        """Run the jobs whose rows the file lacks; all rows."""
        jobs, store = list(self.jobs(arguments)), self.store(arguments.out)
        wanted = [row for job in jobs for row in job.wanted]
        with store.open(wanted) as journal:
            parts = [job.missing(journal.has) for job in jobs]
            missing = [part for of_job in parts for part in of_job]
            if missing:
                to_go = sum(map(bool, parts))
                print(f"{self.name}: {to_go} of {len(jobs)} to go", flush=True)
            started = time.monotonic()
            tasks = [(number, job, self.packages) for number, job in enumerate(missing)]
            if vars(arguments).get("cluster"):
                ended = _on_dask(arguments.cluster, tasks)
            else:
                n_jobs = arguments.jobs if self.parallel else 1
                run = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
                ended = run(delayed(_run)(*task) for task in tasks)
            for count, (number, made_with, found) in enumerate(ended, 1):
                if made_with["combutab"] != combutab.__version__:
                    raise RuntimeError(
                        f"a worker has combutab {made_with['combutab']}, and was sent a job by "
                        f"combutab {combutab.__version__}: install the same version on all workers"
                    )
                job = missing[number]
                journal.add(
                    [
                        settings | made_with | result
                        for settings, result in zip(job.wanted, found, strict=True)
                    ]
                )
                minutes = (time.monotonic() - started) / 60
                print(f"[{count}/{len(missing)}] {job.label}; {minutes:.1f} min", flush=True)
        return store.read()


Ended = tuple[int, Row, Sequence[Row]]  # a job's number, the versions it was run with, its rows


def _run(number: int, job: Job, packages: Sequence[str]) -> Ended:
    return number, versions(*packages), job.run()


def _on_dask(address: str, tasks: Iterable[tuple[int, Job, Sequence[str]]]) -> Iterator[Ended]:
    """Run jobs on a Dask cluster's workers; what is left is cancelled when this ends."""
    from distributed import CancelledError, Client, KilledWorker, as_completed

    with Client(address, set_as_default=False) as client:
        futures = [client.submit(_run, *task, pure=False) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        except (CancelledError, KilledWorker) as error:
            raise RuntimeError(f"{error}; run the same command to go on") from error


@dataclass(frozen=True)
class Study:
    """A study that is run from the command line.

    Attributes
    ----------
    name : str
        Of the page.
    title, description : str
    experiments : sequence of Experiment
    write : callable
        ``write(page, arguments, *rows)`` fills the page; a table of rows an experiment.
    add_arguments : callable, optional
        ``add_arguments(parser)`` adds options of the study's own.
    """

    name: str
    title: str
    description: str
    module: str  # to be run by python -m
    experiments: Sequence[Experiment]
    write: Callable[..., None]
    add_arguments: Callable[[argparse.ArgumentParser], None] = field(default=lambda parser: None)

    def main(self, argv: Sequence[str] | None = None) -> None:
        parser = argparse.ArgumentParser(description=self.description)
        default = Path(*self.module.split(".")[:-1]) / "results"
        parser.add_argument("--quick", action="store_true", help="small data, few steps")
        parser.add_argument("--out", type=Path, default=default, help="folder (%(default)s)")
        parser.add_argument("--report", action="store_true", help="train nothing, only report")
        parser.add_argument(
            "--cluster", help="Dask scheduler whose workers run the jobs, tcp://..."
        )
        self.add_arguments(parser)
        arguments = parser.parse_args(argv)
        if arguments.quick and arguments.out == default:
            sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
        print(describe_machine(), flush=True)
        tables = self._rows(arguments)
        machine = made_on(tables) or (self._told(arguments.out) if arguments.report else None)
        page = Page(self.name, self.title, self._command(parser, arguments), machine)
        self.write(page, arguments, *tables)
        page.explain("| where | claim |", LEGEND)
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


HERE = ("out", "report", "jobs", "cluster", "data_home")  # the options that change no row
MACHINE = ("cpu", "python", "torch", "numpy", "sklearn", "combutab")  # what a row tells of it
VERSIONED = {"sklearn": "scikit-learn"}  # packages that are installed under another name


def made_on(tables: Iterable[pd.DataFrame]) -> str | None:
    """The machines and versions that rows were made with; None where no row names a processor.

    >>> made_on([pd.DataFrame({"cpu": ["A", "B"], "torch": ["2.9", "2.9"]})])
    'Rows made on A and B; torch 2.9'
    """
    found: dict[str, list[str]] = {}
    for name in MACHINE:
        values = {str(v) for table in tables if name in table for v in table[name].dropna()}
        if values - {""}:
            found[name] = sorted(values - {""})
    if "cpu" not in found:
        return None
    if all(values == [versions(name)[name]] for name, values in found.items()):
        return describe_machine()
    names = {"python": "Python", **VERSIONED}
    told = [f"{names.get(n, n)} {' and '.join(found[n])}" for n in found if n != "cpu"]
    return f"Rows made on {' and '.join(found['cpu'])}; {', '.join(told)}"


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

    known = {"combutab": combutab.__version__, "torch": torch.__version__}
    return known | {name: of(name) for name in more}
