"""Is Table 7 of the CombU paper reproduced: which activation gives the most useful synthetic rows?

CTGAN and TVAE are trained on the real training rows (4 of 5) of two tables with each activation in
every layer, and make three samples of this size. Gradient boosting and the paper's network, the
learners, are trained on each sample and scored on the other real rows. "ours" are this library's
generators; "ctgan, patched" are the `ctgan` package's with their activations replaced, as in the
paper. TVAE draws its categories (`argmax=False`). Targets are standardised by the real training
rows; accuracy and macro F1 are in percent.

There is one 4:1 split of each table. There are 5 generator seeds x 3 samples, averaged by seed. The
unit is the seed: a verdict says whether the order would persist if the generators were trained
again on the same rows. It does not generalise to other rows or tables.

    python -m benchmarks.papers.combu.table7_generation [--quick] [--jobs 2] [--out FOLDER]

A full run takes about 30 hours of one CPU core: 4 for our generators, 9 for the package's, 16 for
the networks (with --learners boosting, minutes). All activations of a seed train as one stack. A
run that was stopped is resumed by the same command, without the stack that was not finished, which
can take an hour. The data come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby, product

import numpy as np
import pandas as pd

from benchmarks.common import Arguments, Experiment, Job, Page, Study
from benchmarks.common.verdicts import Claim, Verdict, add_claims, beats, best_of
from benchmarks.papers.combu import generation, report, study
from benchmarks.papers.combu.expected import METRICS, TASK_METRICS, Table, load_expected
from benchmarks.papers.combu.generation import OURS, PATCHED, REAL, Generator, Score
from benchmarks.papers.combu.report import FOCUS
from benchmarks.papers.combu.sources import Source

DATA = {"california_housing": "regression", "PhishingWebsites": "classification"}
TABLE = Table("table7_generation", "Table 7 of the CombU paper: generation", DATA, 7)
MODELS = {"ctgan": "CTGAN", "tvae": "TVAE", "ctgan-patched": "CTGAN", "tvae-patched": "TVAE"}
WHO = {False: "ours", True: "ctgan, patched"}
LEARNED_BY = {"boosting": "gradient boosting", "mlp": "the paper's network"}
ONE_SPLIT = {"n_train": 1e15, "n_test": 1.0}  # seeds of one split: there is no overlap to correct


def plan(arguments: Arguments) -> Iterator[Score]:
    """List everything that is to be trained, seed by seed."""
    quick = arguments.quick
    n_seeds, n_samples, epochs = (2, 2, 2) if quick else (arguments.seeds, 3, 300)
    limit = 200 if quick else None
    for seed, data in product(range(n_seeds), arguments.data):
        source = Source("openml", data, DATA[data], limit=limit, data_home=arguments.data_home)
        recipe = study.QUICK_RECIPE if quick else study.paper_recipe(len(source.load()[0]))
        makers = [Generator(source, REAL, REAL, seed, 0, 1)]
        for model, name in product(arguments.models, arguments.activations):
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
        yield Job([score.settings for score in same], generation.run, same)


def _jobs(arguments: Arguments) -> Iterator[Job]:
    if set(arguments.models) & set(PATCHED):
        import ctgan  # noqa: F401  # an error comes here, before hours of training
    return jobs(plan(arguments))


# ---- claims and page ---------------------------------------------------------------------------


def judge_best(place: str, metric: str, rows: pd.DataFrame, margin: float) -> Verdict | None:
    """Judge whether CombU's rows are the best to learn from: generator seeds of one split."""
    own = placed(rows[rows["model"].isin(OURS)])
    own = own[own["data"] == place]
    return best_of(report.signed(own, metric, "seed"), FOCUS) if len(own) else None


def placed(rows: pd.DataFrame) -> pd.DataFrame:
    """Let a data set's name begin with its generator's, as the paper's lines do."""
    return rows.assign(data=rows["model"].map(MODELS) + ", " + rows["data"])


def judge_tables(rows: pd.DataFrame, margin: float) -> Verdict:
    """Judge CombU's mean rank beside the middle one; there are two tables."""
    found = []
    for (task, _), own in rows[rows["model"].isin(OURS)].groupby(["task", "model"]):
        found += [report.ranks(own, metric)[FOCUS] for metric in TASK_METRICS[task]]
    of_table = pd.concat(found).groupby(level=0).mean()
    return beats(of_table, (len(study.ACTIVATIONS) + 1) / 2, greater_is_better=False)


CLAIMS = (
    Claim("Table 7", "CombU has a significant advantage in generative tasks", "table",
          judge_tables, 0.0, "CombU's mean rank beside the middle one"),
    *(
        Claim("Table 7", f"{place}: CombU's rows are the best to learn from, by {facts.label}",
              "generator seed of one split", partial(judge_best, place, metric), 0.0, facts.unit)
        for model, data in product(OURS, DATA) for metric in TASK_METRICS[DATA[data]]
        for place, facts in [(f"{MODELS[model]}, {data}", METRICS[metric])]
    ),
)  # fmt: skip


def spreads(rows: pd.DataFrame) -> pd.DataFrame:
    """Standard deviations between generator seeds, and between the samples of one generator.

    Root mean squares over the activations, by learner, model, data set and metric.
    """
    place = ["learner", "model", "data"]
    cell = [*place, "activation"]
    scores = rows[rows["model"].isin(OURS)].groupby([*cell, "seed"], sort=False)[list(METRICS)]
    both = {"seeds": scores.mean().groupby(cell).var(), "samples": scores.var()}
    both = {name: np.sqrt(v.groupby(place).mean()).stack() for name, v in both.items()}
    return pd.DataFrame(both).dropna()


def write_page(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    """Fill the page."""
    by_learner = {LEARNED_BY[name]: rows[rows["learner"] == name] for name in LEARNED_BY}
    by_learner = {name: part for name, part in by_learner.items() if len(part)}
    add_claims(page, CLAIMS, by_learner)
    expected = placed(load_expected(7).query("activation != @REAL"))
    for name, part in by_learner.items():
        page.heading(f"Learner: {name}")
        real = part[part["model"] == REAL].groupby("task")[[*METRICS]].mean().stack()
        shown = ", ".join(
            f"{METRICS[m].label} {v * METRICS[m].scale:.4g}" for (_, m), v in real.items()
        )
        page.text(f"Scores after training on the real rows: {shown}.")
        made = placed(part[part["model"] != REAL])
        ours = made[made["model"].isin(OURS)]
        report.add_units(page, ours, METRICS, "seed", part["learner"].iloc[0], **ONE_SPLIT)
        kinds = made["model"].str.endswith("-patched").map(WHO)
        cells = made.assign(protocol=kinds, split=made["seed"], seed=made["sample"])
        report.add_cells(page, cells, expected, {who: who for who in kinds.unique()})
    with page.details(
        "Standard deviations over generator seeds, and over samples of one generator (paper's ±)"
    ):
        page.text("Accuracy and F1 as fractions; root mean squares over activations.")
        spread = spreads(rows)
        values = [[*key, *(f"{x:.2g}" for x in (a, b, a / b))] for key, a, b in spread.itertuples()]
        head = ["learner", "model", "data", "score", "seeds", "samples", "ratio"]
        page.table(head, values)


MODULE = "benchmarks.papers.combu.table7_generation"
KEY, SETTINGS, RESULTS = generation.KEY, generation.SETTINGS, generation.RESULTS
SCORES = Experiment("table7_generation", SETTINGS, RESULTS, _jobs, KEY, generation.PACKAGES)
OPTIONS = {"seeds": 5, "data": tuple(DATA), "models": (*OURS, *PATCHED)}
OPTIONS |= {"learners": generation.LEARNERS, "activations": tuple(study.ACTIVATIONS)}
STUDY = Study(MODULE, TABLE.title, __doc__, [SCORES], write_page, OPTIONS)

if __name__ == "__main__":
    STUDY.main()
