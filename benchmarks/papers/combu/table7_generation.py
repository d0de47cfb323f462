"""The CombU paper's Table 7: what is learned from synthetic rows, by generator and activation.

    python -m benchmarks.papers.combu.table7_generation [--quick] [--activations all] [--jobs 2]
        [--out FOLDER]

CTGAN and TVAE learn the real training rows (4 of 5) with each activation at every layer, from
several seeds, and make three samples of their size; the paper's network, and gradient boosting,
learn from each sample and are scored on the other real rows. "ctgan" and "tvae" are this library's,
all activations of a seed as one stack; "ctgan-patched" and "tvae-patched" are the ctgan package's
with their activations replaced, which is what the paper did.

The data come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA). A run that was
stopped goes on where it stood; the generators that were being trained then begin again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import joblib
import torch
from joblib import Parallel, delayed

from benchmarks.machine import describe_machine
from benchmarks.papers.combu.generation import (
    ACTIVATIONS,
    COLUMNS,
    DATA,
    KEY,
    LEARNERS,
    MODELS,
    OURS,
    PATCHED,
    REAL,
    Generator,
    Score,
    generate,
    score_together,
)
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import PAPER, VARIANTS, Recipe, paper_recipe
from benchmarks.papers.common.results import Journal, Store

NAME = "table7_generation"
DEFAULT_OUT = Path(__file__).parent / "results"
# networks of one chunk, all of whose rows a kill can lose: on a CPU each takes a minute or two
CHUNK = {"cpu": 1, "cuda": 64}
TIMES = (
    "A full run takes about 30 hours of one CPU core: 4 for our generators, 9 for the package's, "
    "16 for the networks that learn from the samples (with --learners boosting, minutes). That is "
    "6 hours a seed. What a kill can lose is the generators in training, of ours a stack: up to "
    "half an hour."
)


def plan(arguments: argparse.Namespace) -> list[Score]:
    """Everything that is to be trained, seed by seed."""
    scores = []
    for seed in range(arguments.seeds):
        for data in arguments.data:
            limit = 200 if arguments.quick else None
            source = Source("openml", data, DATA[data], limit=limit, data_home=arguments.data_home)
            recipe = replace(_recipe(source, arguments.quick), device=arguments.device)
            makers = [Generator(source, REAL, REAL, seed, 0, 1)]
            makers += [
                Generator(source, model, activation, seed, arguments.epochs, arguments.samples)
                for model in arguments.models
                for activation in arguments.activations
                if model in OURS or VARIANTS[activation].normalization == "none"
            ]
            scores += [
                Score(maker, sample, learner, recipe)
                for maker in makers
                for sample in range(maker.n_samples)
                for learner in arguments.learners
            ]
    return scores


def _recipe(source: Source, quick: bool) -> Recipe:
    return Recipe(hidden=(16,), epochs=4) if quick else paper_recipe(source.n_rows())


def run(scores: Sequence[Score], store: Store, work: Path, *, n_jobs: int, device: str) -> None:
    """Train and score what the file lacks, a seed at a time.

    Samples lie in ``work`` until all learners have been scored on them.
    """
    with store.open([score.settings for score in scores]) as journal:
        missing = [score for score in scores if not journal.has(score.settings)]
        if missing:
            done = len(scores) - len(missing)
            print(f"{done} of {len(scores)} rows are there, {len(missing)} to go", flush=True)
        started = time.monotonic()
        for _, same in groupby(missing, lambda score: score.generator.seed):
            part = list(same)
            makers = dict.fromkeys(s.generator for s in part if not s.generator.is_made(work))
            jobs = [delayed(generate)(stack, work, device) for stack in _stacks(makers)]
            for number, words in enumerate(_in_parallel(jobs, n_jobs), 1):
                _say(f"[generators {number}/{len(jobs)}] {words}", started)
            chunks = list(_chunks(part))
            jobs = [delayed(score_together)(chunk, work) for chunk in chunks]
            for number, rows in enumerate(_in_parallel(jobs, n_jobs), 1):
                journal.add(rows)
                first = rows[0]
                names = ", ".join(dict.fromkeys(row["activation"] for row in rows))
                _say(
                    f"[{first['learner']} {number}/{len(jobs)}] {first['data']}, {first['model']}, "
                    f"seed {first['seed']}: {names}",
                    started,
                )
            _clear(part, journal, work)
        _clear(scores, journal, work)  # what an earlier run was killed before
    if work.is_dir() and not any(work.iterdir()):
        work.rmdir()


def _say(words: str, started: float) -> None:
    print(f"{words}; {(time.monotonic() - started) / 60:.1f} min", flush=True)


def _stacks(makers: Iterable[Generator]) -> Iterator[list[Generator]]:
    """Ours by data, model and seed; the patched package's one by one."""
    for _, group in groupby(makers, lambda maker: (maker.source, maker.model, maker.seed)):
        same = list(group)
        yield from [same] if same[0].model in OURS else ([maker] for maker in same)


def _chunks(scores: Sequence[Score]) -> Iterator[list[Score]]:
    """Those that share rows and learner, as many as may be lost by a kill."""

    def kind(score: Score) -> tuple[str, ...]:
        return (score.learner, score.generator.source.name, score.generator.model)

    for (learner, *_), group in groupby(sorted(scores, key=kind), kind):
        same = list(group)
        device = same[0].recipe.device.partition(":")[0]
        size = CHUNK.get(device, 1) if learner == "mlp" else 64
        yield from (same[start : start + size] for start in range(0, len(same), size))


def _in_parallel(jobs: Sequence[Any], n_jobs: int) -> Iterator[Any]:
    """What each job returns, as it ends."""
    return Parallel(n_jobs=n_jobs, return_as="generator_unordered")(jobs)


def _clear(scores: Sequence[Score], journal: Journal, work: Path) -> None:
    """Remove the samples that every learner has been scored on."""
    for maker in dict.fromkeys(score.generator for score in scores):
        of_maker = [score for score in scores if score.generator == maker]
        wanted = [replace(score, learner=name) for score in of_maker for name in LEARNERS]
        if not maker.is_real and all(journal.has(score.settings) for score in wanted):
            shutil.rmtree(maker.folder(work), ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Run what the file lacks, then report."""
    arguments = _parse(argv)
    if arguments.quick and arguments.out == DEFAULT_OUT:
        sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
    store = Store(arguments.out / f"{NAME}.csv", COLUMNS, KEY)
    try:
        torch.zeros(1, device=arguments.device)
        print(describe_machine(), flush=True)
        if not arguments.report:
            if set(arguments.models) & set(PATCHED):
                import ctgan  # noqa: F401  # the one that is asked for by name is told of first
            warnings.filterwarnings("ignore", category=UserWarning, module="joblib")
            work = arguments.out / f"{NAME}_samples"
            run(plan(arguments), store, work, n_jobs=arguments.jobs, device=arguments.device)
        rows = store.read()
    except ModuleNotFoundError as error:
        sys.exit(f"{NAME}: {error}; pip install 'combutab[sdv]', or leave out {' '.join(PATCHED)}")
    except (ValueError, RuntimeError, OSError, AssertionError, ImportError) as error:
        sys.exit(f"{NAME}: {error}")
    except KeyboardInterrupt:
        sys.exit("\ninterrupted: what was finished is kept; run the same command to go on")
    from benchmarks.papers.combu.generation_report import write_report

    write_report(rows, out=arguments.out, name=NAME, command=_command(arguments))


def _command(arguments: argparse.Namespace) -> str:
    """What gives the same rows anywhere."""
    words = ["python", f"benchmarks/{NAME}.py"]
    for option in ("data", "models", "activations", "learners"):
        chosen = getattr(arguments, option)
        if list(chosen) != list(getattr(_parse([]), option)):
            words += [f"--{option}", *chosen]
    for option in ("seeds", "samples", "epochs"):
        if not arguments.quick and getattr(arguments, option) != getattr(_parse([]), option):
            words += [f"--{option}", str(getattr(arguments, option))]
    words += ["--quick"] * arguments.quick
    words += ["--device", arguments.device] if arguments.device != "cpu" else []
    return " ".join(words)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=TIMES)
    parser.add_argument(
        "--quick", action="store_true", help="200 rows, 2 epochs, 2 seeds, 2 samples"
    )
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder (%(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="of the generators (%(default)s)")
    parser.add_argument("--samples", type=int, default=3, help="of each generator (%(default)s)")
    parser.add_argument("--epochs", type=int, default=300, help="of the generators (%(default)s)")
    for option, known in (("data", tuple(DATA)), ("models", MODELS), ("learners", LEARNERS)):
        parser.add_argument(
            f"--{option}", nargs="+", choices=known, default=known, metavar="NAME",
            help=f"of {', '.join(known)} (default: all)",
        )  # fmt: skip
    parser.add_argument(
        "--activations", nargs="+", default=["paper"], metavar="NAME",
        choices=["paper", "all", *ACTIVATIONS],
        help=f"paper (the default: {', '.join(PAPER)}), all, or some of them and of "
        f"{', '.join(ACTIVATIONS[len(PAPER) :])}",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=joblib.cpu_count(), help="processes")
    parser.add_argument("--device", default="cpu", help="%(default)s, or cuda (with --jobs 1)")
    parser.add_argument("--data-home", help="folder of local copies of the data")
    parser.add_argument("--report", action="store_true", help="train nothing, only report")
    arguments = parser.parse_args(argv)
    groups = {"paper": PAPER, "all": ACTIVATIONS}
    chosen = [a for name in arguments.activations for a in groups.get(name, (name,))]
    arguments.activations = tuple(a for a in ACTIVATIONS if a in chosen)
    if arguments.quick:
        arguments.epochs, arguments.seeds, arguments.samples = 2, 2, 2
    return arguments


if __name__ == "__main__":
    main()
