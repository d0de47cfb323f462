"""The CombU paper's Table 7: what is learned from synthetic rows, by generator and activation.

    python -m benchmarks.papers.combu.table7_generation [--quick] [--activations all] [--jobs 2]
        [--out FOLDER]

CTGAN and TVAE learn the real training rows (4 of 5) with each activation at every layer, and make
three samples of their size; the paper's network, and gradient boosting, learn from each and are
scored on the other real rows. "ctgan" and "tvae" are this library's, all activations of a seed as
one stack; "-patched" are the ctgan package's with their activations replaced, as in the paper.

A full run takes about 30 hours of one CPU core: 4 for our generators, 9 for the package's, 16 for
the networks that learn (with --learners boosting, minutes). One that was stopped goes on where it
stood; a stack of generators and what learns from them, up to an hour, can be lost. The data come
from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, product

import torch

from benchmarks.common.command import Experiment, Has, Job, Study
from benchmarks.papers.combu import generation, study
from benchmarks.papers.combu.generation import OURS, PATCHED, REAL, Generator, Score
from benchmarks.papers.combu.generation_report import TABLE, write_report
from benchmarks.papers.combu.sources import Source

DATA = {"california_housing": "regression", "PhishingWebsites": "classification"}
ACTIVATIONS = (*study.PAPER, "pln-8", "la-silu", "relu+ln+proxy", "combu+ln+proxy")


def plan(arguments: Namespace) -> Iterator[Score]:
    """List everything that is to be trained, seed by seed."""
    quick = arguments.quick
    activations = study.choose_activations(arguments.activations, ACTIVATIONS)
    n_seeds, n_samples, epochs = (2, 2, 2) if quick else (arguments.seeds, 3, 300)
    limit = 200 if quick else None
    for seed, data in product(range(n_seeds), arguments.data):
        source = Source("openml", data, DATA[data], limit=limit, data_home=arguments.data_home)
        recipe = study.QUICK_RECIPE if quick else study.paper_recipe(source.n_rows())
        recipe = replace(recipe, device=arguments.device)
        makers = [Generator(source, REAL, REAL, seed, 0, 1)]
        for model, name in product(arguments.models, activations):
            if model in OURS or study.VARIANTS[name].normalization == "none":
                makers.append(Generator(source, model, name, seed, epochs, n_samples))
        for maker in makers:
            for sample, learner in product(range(maker.n_samples), arguments.learners):
                yield Score(maker, sample, learner, recipe)


def jobs(scores: Iterable[Score]) -> Iterator[Job]:
    """Make a job a stack, of which only what is missing is trained."""

    def stack(score: Score) -> object:
        maker = score.generator
        return (maker.source, maker.model, maker.seed) if maker.model in OURS else maker

    for _, group in groupby(scores, stack):
        same = list(group)
        yield replace(_job(same), parts=partial(_missing, same))


def _missing(scores: Sequence[Score], has: Has) -> list[Job]:
    return [_job([score for score in scores if not has(score.settings)])]


def _job(scores: Sequence[Score]) -> Job:
    maker = scores[0].generator
    names = ", ".join(dict.fromkeys(score.generator.activation for score in scores))
    label = f"{maker.source.name}, {maker.model}, seed {maker.seed}: {names}"
    return Job([score.settings for score in scores], partial(generation.run, scores), label)


def _jobs(arguments: Namespace) -> Iterator[Job]:
    torch.zeros(1, device=arguments.device)
    if set(arguments.models) & set(PATCHED):
        import ctgan  # noqa: F401  # an error comes here, before hours of training
    return jobs(plan(arguments))


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5, help="of the generators (%(default)s)")
    models, learners = (*OURS, *PATCHED), generation.LEARNERS
    for option, known in (("data", DATA), ("models", models), ("learners", learners)):
        parser.add_argument(f"--{option}", nargs="+", choices=[*known], default=[*known])
    study.add_common_arguments(parser, ACTIVATIONS)


KEY, COLUMNS, PACKAGES = generation.KEY, generation.COLUMNS, generation.PACKAGES
SCORES = Experiment(TABLE.name, KEY, COLUMNS[len(KEY) :], _jobs, (), PACKAGES, COLUMNS, True)
MODULE = "benchmarks.papers.combu.table7_generation"
ABOUT = __doc__.splitlines()[0]
STUDY = Study(TABLE.name, TABLE.title, ABOUT, MODULE, [SCORES], write_report, _add_arguments)

if __name__ == "__main__":
    STUDY.main()
