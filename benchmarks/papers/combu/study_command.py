"""The command line that the studies of the paper's tables share."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import joblib
import pandas as pd
import torch

from benchmarks.machine import describe_machine
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import (
    COLUMNS,
    KEY,
    OTHERS,
    PAPER,
    PROTOCOLS,
    VARIANTS,
    Protocol,
    Recipe,
    Study,
    make_fits,
)
from benchmarks.papers.common.results import Store

Report = Callable[[pd.DataFrame, Path, str], None]

QUICK_RECIPE = Recipe(hidden=(16,), epochs=4)


@dataclass(frozen=True)
class StudyCommand:
    """A study that can be run from the command line.

    Parameters
    ----------
    name : of the files it writes
    description : one line for ``--help``
    sources : callable
        ``sources(quick, data_home)`` gives its data sets; the quick ones are small.
    report : callable
        ``report(rows, folder, command)`` prints and writes what the rows of ``command`` say.
    default : names of the protocols that run unless ``--protocols`` says otherwise
    protocols : all that it knows
    curve_block : epochs to a point of the training curves, 0 for none
    recipe : instead of the paper's
    """

    name: str
    description: str
    sources: Callable[[bool, str | None], list[Source]]
    report: Report
    default: Sequence[str] = tuple(PROTOCOLS)
    protocols: tuple[Protocol, ...] = tuple(PROTOCOLS.values())
    curve_block: int = 0
    recipe: Recipe | None = None

    def main(self, argv: Sequence[str] | None = None) -> None:
        """Run what the file lacks, then report."""
        arguments = self._parse(argv)
        folder = arguments.out
        if arguments.quick and folder == DEFAULT_OUT:
            sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
        try:
            torch.zeros(1, device=arguments.device)
            print(describe_machine(), flush=True)
            rows = self._rows(arguments)
        except (ValueError, RuntimeError, OSError, AssertionError, ImportError) as error:
            sys.exit(f"{self.name}: {error}")
        except KeyboardInterrupt:
            sys.exit("\ninterrupted: what was finished is kept; run the same command to go on")
        self.report(rows, folder, self._command(arguments))

    def _rows(self, arguments: argparse.Namespace) -> pd.DataFrame:
        """All rows of the study, trained now or earlier."""
        store = Store(arguments.out / f"{self.name}.csv", COLUMNS, KEY)
        if arguments.report:
            return store.read()
        protocols = [p for p in self.protocols if p.name in arguments.protocols]
        fits = make_fits(
            self._choose_sources(arguments),
            [_fewer(p) for p in protocols] if arguments.quick else protocols,
            _activations(arguments.activations),
            QUICK_RECIPE if arguments.quick else self.recipe,
            device=arguments.device,
            curve_block=self.curve_block,
        )
        warnings.filterwarnings("ignore", category=UserWarning, module="joblib")
        with joblib.parallel_config(backend=arguments.backend):
            return Study(fits, store).run(n_jobs=arguments.jobs)

    def _command(self, arguments: argparse.Namespace) -> str:
        """What gives the same rows anywhere."""
        words = ["python", f"benchmarks/{self.name}.py"]
        for option in ("protocols", "data", "activations"):
            chosen = getattr(arguments, option)
            if chosen is not None and list(chosen) != list(self._parse([]).__dict__[option] or []):
                words += [f"--{option}", *chosen]
        words += ["--quick"] * arguments.quick
        if arguments.device != "cpu":
            words += ["--device", arguments.device]
        return " ".join(words)

    def _parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(description=self.description)
        parser.add_argument("--quick", action="store_true", help="small data, 4 epochs")
        parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder (%(default)s)")
        protocols = [protocol.name for protocol in self.protocols]
        parser.add_argument(
            "--protocols", nargs="+", choices=protocols, default=self.default, metavar="NAME",
            help=f"of {', '.join(protocols)} (default: {', '.join(self.default)})",
        )  # fmt: skip
        parser.add_argument("--data", nargs="+", metavar="NAME", help="some of the data sets")
        parser.add_argument(
            "--activations", nargs="+", default=["paper"], metavar="NAME",
            choices=["paper", "all", *VARIANTS],
            help=f"paper (the default: {', '.join(PAPER)}), all, or some of them and of "
            f"{', '.join(OTHERS)}",
        )  # fmt: skip
        parser.add_argument("--jobs", type=int, default=joblib.cpu_count(), help="processes")
        parser.add_argument("--backend", default="loky", help="of joblib (%(default)s)")
        parser.add_argument("--device", default="cpu", help="%(default)s, or cuda")
        parser.add_argument("--data-home", help="folder of local copies of the data")
        parser.add_argument("--report", action="store_true", help="train nothing, only report")
        return parser.parse_args(argv)

    def _choose_sources(self, arguments: argparse.Namespace) -> list[Source]:
        sources = self.sources(arguments.quick, arguments.data_home)
        if arguments.data is None:
            return sources
        known = dict.fromkeys(source.name for source in sources)
        unknown = [name for name in arguments.data if name not in known]
        if unknown:
            sys.exit(f"{self.name}: no data set {unknown[0]!r}; it has {', '.join(known)}")
        return [source for source in sources if source.name in arguments.data]


def _fewer(protocol: Protocol) -> Protocol:
    """Two splits of one network each, or one of two."""
    n_splits = min(2, protocol.n_splits)
    return replace(protocol, n_splits=n_splits, n_seeds=3 - n_splits)


def read_rows(path: Path) -> pd.DataFrame:
    """The rows that a study wrote."""
    return Store(path, COLUMNS, KEY).read()


DEFAULT_OUT = Path(__file__).parent / "results"


def _activations(names: Sequence[str]) -> list[str]:
    chosen = {"paper": PAPER, "all": (*PAPER, *OTHERS)}
    return list(dict.fromkeys(a for name in names for a in chosen.get(name, (name,))))
