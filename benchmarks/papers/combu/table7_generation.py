"""The CombU paper's Table 7: what is learned from synthetic rows, by generator and activation.

    python -m benchmarks.papers.combu.table7_generation [--quick] [--activations all] [--jobs 2]
        [--out FOLDER]

CTGAN and TVAE learn the real training rows (4 of 5) with each activation at every layer, from
several seeds, and make three samples of their size; the paper's network, and gradient boosting,
learn from each sample and are scored on the other real rows. "ctgan" and "tvae" are this library's,
all activations of a seed as one stack; "ctgan-patched" and "tvae-patched" are the ctgan package's
with their activations replaced, which is what the paper did.

A full run takes about 30 hours of one CPU core: 4 for our generators, 9 for the package's, 16 for
the networks that learn from the samples (with --learners boosting, minutes). A run that was stopped
goes on where it stood; what it can lose is the generators in training, of ours a stack: up to half
an hour. The data come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

import pandas as pd
import torch
from joblib import Parallel, delayed

from benchmarks.papers.combu.generation import (
    COLUMNS,
    KEY,
    LEARNERS,
    OURS,
    PACKAGES,
    PATCHED,
    REAL,
    Generator,
    Score,
    generate,
    score_together,
)
from benchmarks.papers.combu.generation_report import TABLE, write_report
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import (
    PAPER,
    QUICK_RECIPE,
    VARIANTS,
    add_common_arguments,
    choose_activations,
    paper_recipe,
)
from benchmarks.papers.common.command import Experiment, Has, Job, Study
from benchmarks.papers.common.page import Page

DATA = {"california_housing": "regression", "PhishingWebsites": "classification"}
MODELS = (*OURS, *PATCHED)
ACTIVATIONS = (*PAPER, "pln-8", "la-silu", "relu+ln+proxy", "combu+ln+proxy")
# networks of one chunk, all of whose rows a kill can lose: on a CPU each takes a minute or two
CHUNK = {"cpu": 1, "cuda": 64}


def plan(arguments: argparse.Namespace) -> list[Score]:
    """Everything that is to be trained, seed by seed."""
    quick = arguments.quick
    n_seeds, n_samples, epochs = (
        (2, 2, 2) if quick else (arguments.seeds, arguments.samples, arguments.epochs)
    )
    scores = []
    for seed in range(n_seeds):
        for data in arguments.data:
            limit = 200 if quick else None
            source = Source("openml", data, DATA[data], limit=limit, data_home=arguments.data_home)
            recipe = QUICK_RECIPE if quick else paper_recipe(source.n_rows())
            makers = [Generator(source, REAL, REAL, seed, 0, 1)]
            makers += [
                Generator(source, model, activation, seed, epochs, n_samples)
                for model in arguments.models
                for activation in choose_activations(arguments.activations, ACTIVATIONS)
                if model in OURS or VARIANTS[activation].normalization == "none"
            ]
            scores += [
                Score(maker, sample, learner, replace(recipe, device=arguments.device))
                for maker in makers
                for sample in range(maker.n_samples)
                for learner in arguments.learners
            ]
    return scores


def score_jobs(scores: Iterable[Score], work: Path) -> Iterator[Job]:
    """A job a seed, of which what is missing is cut smaller."""
    for _, group in groupby(scores, lambda score: score.generator.seed):
        same = list(group)
        yield _job(same, work, partial(_chunks, same, work))


def _job(
    scores: Sequence[Score], work: Path, parts: Callable[[Has], Iterable[Job]] | None = None
) -> Job:
    first, maker = scores[0], scores[0].generator
    names = ", ".join(dict.fromkeys(score.generator.activation for score in scores))
    label = f"{first.learner} on {maker.source.name}, {maker.model}, seed {maker.seed}: {names}"
    return Job([s.settings for s in scores], partial(score_together, scores, work), label, parts)


def _chunks(scores: Sequence[Score], work: Path, has: Has) -> Iterator[Job]:
    """Those that share rows and learner, as many as may be lost by a kill."""

    def kind(score: Score) -> tuple[str, ...]:
        return (score.learner, score.generator.source.name, score.generator.model)

    missing = [score for score in scores if not has(score.settings)]
    for (learner, *_), group in groupby(sorted(missing, key=kind), kind):
        same = list(group)
        size = CHUNK.get(same[0].recipe.device.partition(":")[0], 1) if learner == "mlp" else 64
        for start in range(0, len(same), size):
            yield _job(same[start : start + size], work)


def generate_missing(
    scores: Iterable[Score], work: Path, has: Has, *, n_jobs: int, device: str
) -> None:
    """Train the generators whose samples are to be learned from and are not there."""
    missing = [score.generator for score in scores if not has(score.settings)]
    makers = dict.fromkeys(maker for maker in missing if not maker.is_sampled(work))
    stacks: list[list[Generator]] = []
    for _, group in groupby(makers, lambda maker: (maker.source, maker.model, maker.seed)):
        same = list(group)
        stacks += [same] if same[0].model in OURS else [[maker] for maker in same]
    started = time.monotonic()
    run = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    for number, what in enumerate(run(delayed(generate)(s, work, device) for s in stacks), 1):
        minutes = (time.monotonic() - started) / 60
        print(f"[generators {number}/{len(stacks)}] {what}; {minutes:.1f} min", flush=True)


def clear(scores: Iterable[Score], rows: pd.DataFrame, work: Path) -> None:
    """Remove the samples that every learner has been scored on."""
    learners = rows.groupby(["data", "model", "activation", "seed"])["learner"].nunique()
    for maker in dict.fromkeys(score.generator for score in scores):
        key = (maker.source.name, maker.model, maker.activation, maker.seed)
        if not maker.is_real and learners[key] == len(LEARNERS):
            shutil.rmtree(maker.folder(work), ignore_errors=True)
    if work.is_dir() and not any(work.iterdir()):
        work.rmdir()


def _work(arguments: argparse.Namespace) -> Path:
    return arguments.out / f"{TABLE.name}_samples"


def _jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    torch.zeros(1, device=arguments.device)
    if set(arguments.models) & set(PATCHED):
        try:
            import ctgan  # noqa: F401
        except ModuleNotFoundError as error:
            raise ImportError(
                f"{error}; pip install 'combutab[sdv]', or leave out {' '.join(PATCHED)}"
            ) from error
    return score_jobs(plan(arguments), _work(arguments))


def _prepare(arguments: argparse.Namespace, has: Has) -> None:
    options = {"n_jobs": arguments.jobs, "device": arguments.device}
    generate_missing(plan(arguments), _work(arguments), has, **options)


def _write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    if not arguments.report:
        clear(plan(arguments), rows, _work(arguments))
    write_report(page, arguments.out, rows)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5, help="of the generators (%(default)s)")
    parser.add_argument("--samples", type=int, default=3, help="of each generator (%(default)s)")
    parser.add_argument("--epochs", type=int, default=300, help="of the generators (%(default)s)")
    for option, known in (("data", tuple(DATA)), ("models", MODELS), ("learners", LEARNERS)):
        parser.add_argument(
            f"--{option}", nargs="+", choices=known, default=known, metavar="NAME",
            help=f"of {', '.join(known)} (default: all)",
        )  # fmt: skip
    add_common_arguments(parser, ACTIVATIONS)


SCORES = Experiment(
    TABLE.name,
    KEY,
    COLUMNS[len(KEY) :],
    _jobs,
    packages=PACKAGES,
    columns=COLUMNS,
    parallel=True,
    prepare=_prepare,
)
STUDY = Study(
    TABLE.name,
    TABLE.title,
    __doc__.splitlines()[0],
    "benchmarks.papers.combu.table7_generation",
    [SCORES],
    _write,
    _add_arguments,
)

if __name__ == "__main__":
    STUDY.main()
