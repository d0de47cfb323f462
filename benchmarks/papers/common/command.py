"""The command line that the studies share: run what the file lacks, then write the page."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import torch

import combutab
from benchmarks.machine import describe_machine
from benchmarks.papers.common.page import Page
from benchmarks.papers.common.results import Row, Store

Arguments = argparse.Namespace


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
    """

    wanted: Sequence[Row]
    run: Callable[[], Sequence[Row]]
    label: str


@dataclass(frozen=True)
class Experiment:
    """One file of rows of a study: its columns are settings, results and versions."""

    name: str  # of the CSV file
    settings: tuple[str, ...]
    results: tuple[str, ...]
    jobs: Callable[[Arguments], Iterable[Job]]
    key: tuple[str, ...] = ()  # the settings that tell networks apart; all by default

    def store(self, folder: Path) -> Store:
        columns = (*self.settings, *self.results, *versions())
        return Store(folder / f"{self.name}.csv", columns, self.key or self.settings)

    def complete(self, arguments: Arguments) -> pd.DataFrame:
        """Run the jobs whose rows the file lacks; all rows."""
        jobs, store = list(self.jobs(arguments)), self.store(arguments.out)
        with store.open([row for job in jobs for row in job.wanted]) as journal:
            missing = [job for job in jobs if not all(map(journal.has, job.wanted))]
            if missing:
                print(f"{self.name}: {len(missing)} of {len(jobs)} to go", flush=True)
            started = time.monotonic()
            for number, job in enumerate(missing, 1):
                found = zip(job.wanted, job.run(), strict=True)
                journal.add([settings | result | versions() for settings, result in found])
                minutes = (time.monotonic() - started) / 60
                print(f"[{number}/{len(missing)}] {job.label}; {minutes:.1f} min", flush=True)
        return store.read()


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
        self.add_arguments(parser)
        arguments = parser.parse_args(argv)
        if arguments.quick and arguments.out == default:
            sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
        print(describe_machine(), flush=True)
        try:
            # numbers below 1e-38 are as good as none, and slow the processor down
            torch.set_flush_denormal(True)
            rows = [
                e.store(arguments.out).read() if arguments.report else e.complete(arguments)
                for e in self.experiments
            ]
        except (ValueError, RuntimeError, OSError, ImportError) as error:
            sys.exit(f"{self.name}: {error}")
        except KeyboardInterrupt:
            sys.exit("\ninterrupted: what was finished is kept; run the same command to go on")
        words = [f"python -m {self.module}", *["--quick"] * arguments.quick]
        page = Page(self.name, self.title, " ".join(words))
        self.write(page, arguments, *rows)
        page.write(arguments.out)
        print(page)


def versions() -> Row:
    """The versions that a row was made with."""
    return {"combutab": combutab.__version__, "torch": torch.__version__}
