"""Should the default activation be another one? Asked of tables that did not raise the question.

    python -m benchmarks.activations.default [--quick] [--data-home FOLDER] [--splits 10] [--report]

In `benchmarks.activations.recipes` four activations had a smaller mean error than CombU in the
default recipe, on up to 400 rows. Here they meet CombU, and two networks of CombU, again: on the 90
Feynman equations that are not there, of up to 2,000 training rows; on three of its tables with all
their rows (10,000 at most); and on four of scikit-learn's small tables. Each network is trained by
itself; its processor seconds are a column. Real tables have several splits, equations one (two were
planned: cut for time, before any result was looked at).

The rule, written down before anything of this was run. The default becomes the candidate of the
least mean error (real tables and equations half each) if it is (1) significantly better than CombU
on equations (Wilcoxon over tables, Holm over candidates), (2) no worse than CombU by its mean on
real tables, and significantly worse on none (corrected resampled t-test, Holm), and (3) takes at
most 1.1 times CombU's processor seconds, or is by its mean better than two networks of CombU, on
real tables as on equations. Else CombU stays.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets

from benchmarks.activations.effects import (
    Effect,
    block,
    by_table,
    effects,
    friedman_text,
    range_of_levels,
    ranks,
    size,
)
from benchmarks.activations.recipes import add_arguments, fitted, scores
from benchmarks.activations.tables import MOST_TEST, equations, rows_of, source
from benchmarks.common.command import Experiment, Job, Study
from benchmarks.common.looks import label
from benchmarks.common.page import Page, p_text
from benchmarks.common.results import Row
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import as_text
from combutab import MLPClassifier, MLPRegressor
from combutab.datasets import list_feynman
from combutab.evaluation import t_interval

REFERENCE, TWICE = "combu", "two networks of CombU"
CANDIDATES = ("rational", "gelu", "mish", "la-silu")
NETWORKS = (REFERENCE, *CANDIDATES, TWICE)
LARGE = ("california_housing", "wine_quality", "PhishingWebsites")
BUNDLED = {
    "iris": "classification",
    "wine": "classification",
    "digits": "classification",
    "diabetes (Efron)": "regression",
}
MOST = {"openml": 10_000, "sklearn": 10_000, "feynman": 2000}  # rows to train on
REAL, LAWS = ("openml", "sklearn"), ("feynman",)
MOST_TIME = 1.1

KEY = ("kind", "data", "network", "split")
SETTINGS = (*KEY, "task", "most_train")
RESULTS = ("n_train", "n_test", "loss", "r2", "accuracy", "epochs", "cpu_seconds", "error")


@dataclass(frozen=True)
class Bundled:
    """A table that scikit-learn brings."""

    name: str
    task: str
    kind: str = "sklearn"

    def load(self) -> tuple[pd.DataFrame, pd.Series]:
        load = getattr(datasets, f"load_{self.name.split()[0]}")
        return load(return_X_y=True, as_frame=True)


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """All networks of a table and split; splits in rounds, equations one."""
    home = arguments.data_home
    seen = set(equations(home))
    laws = [name for name in list_feynman(home)["name"] if name not in seen]
    real: list[Source | Bundled] = [Bundled(*item) for item in BUNDLED.items()]
    real += [source("openml", name, home) for name in LARGE]
    tables = [*real, *(source("feynman", name, home) for name in laws)]
    if arguments.quick:
        tables = [real[0], real[3], *tables[-2:]]
    for split in range(2 if arguments.quick else arguments.splits):
        for table in tables:
            if split > 0 and table.kind in LAWS:
                continue
            most = 60 if arguments.quick else MOST[table.kind]
            shared = {"kind": table.kind, "data": table.name, "task": table.task}
            shared |= {"split": str(split), "most_train": str(most)}
            wanted = [shared | {"network": name} for name in NETWORKS]
            changes = {"max_iter": 2, "hidden_layer_sizes": (8, 8)} if arguments.quick else {}
            run = partial(run_networks, table, wanted, changes)
            yield Job(wanted, run, f"split {split}, {table.name}")


def run_networks(
    table: Source | Bundled, wanted: Sequence[Row], changes: Mapping[str, Any]
) -> list[Row]:
    """Train the networks of a table and split, one after the other; score them."""
    split, most = int(wanted[0]["split"]), int(wanted[0]["most_train"])
    train, test = rows_of(table, split, most)
    kind = (MLPClassifier, MLPRegressor)[table.task == "regression"]
    rows = []
    for row in wanted:
        name, twice = row["network"], row["network"] == TWICE
        given = {"activation": REFERENCE if twice else name, "n_members": 1 + twice, **changes}
        net = kind(**given, random_state=split, device="cpu")
        started = time.process_time()
        (failure,) = fitted([net], *train)
        seconds = time.process_time() - started
        values: dict[str, object] = {"n_train": len(train[1]), "n_test": len(test[1])}
        values |= scores(net, failure, test, train) | {"cpu_seconds": seconds}
        rows.append(as_text({name: values.get(name, "") for name in RESULTS}))
    return rows


@dataclass(frozen=True)
class Sample:
    """What the networks did on real tables, or on equations: all beside CombU."""

    logs: pd.DataFrame
    beside: dict[str, Effect]
    seconds: dict[str, tuple[float, float, float]]  # over CombU's: mean and interval

    @classmethod
    def of(cls, rows: pd.DataFrame, kinds: Sequence[str]) -> Sample:
        logs = block(rows, "network", NETWORKS, kinds)
        timed = block(rows.assign(loss=rows["cpu_seconds"]), "network", NETWORKS, kinds)
        means = by_table(timed)
        return cls(
            logs,
            effects(logs, REFERENCE),
            {
                name: tuple(np.exp(t_interval(means[name] - means[REFERENCE])).tolist())
                for name in NETWORKS[1:]
            },
        )


def decide(real: Sample, laws: Sample) -> list[tuple[str, list[bool]]]:
    """Each candidate, the best first, and whether it has the three parts of the rule."""
    found = []
    for name in CANDIDATES:
        parts = [
            laws.beside[name].smaller is True,
            real.beside[name].ratio.mean <= 1.0 and not real.beside[name].worse,
            all(
                one.seconds[name][0] <= MOST_TIME
                or one.beside[name].ratio.mean < one.beside[TWICE].ratio.mean
                for one in (real, laws)
            ),
        ]
        error = np.log(real.beside[name].ratio.mean) + np.log(laws.beside[name].ratio.mean)
        found.append((error, name, parts))
    return [(name, parts) for _, name, parts in sorted(found)]


def write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    """The page: the decision, and what it rests on."""
    page.text(__doc__.split("\n\n", 2)[2])
    page.text(
        f"The error is the log loss of classes and the RMSE of numbers, on up to {MOST_TEST:,} "
        "test rows; equal rows are on one side; a split is also a seed, which all share. Ratios "
        "are geometric means over tables with Student's 95 % interval over tables, below 1 is "
        "better; p is Wilcoxon's over tables, Holm-adjusted over the rows of the table here; "
        "'own' are the tables that decide by themselves, for / against."
    )
    every = {"Real tables": Sample.of(rows, REAL), "Equations": Sample.of(rows, LAWS)}
    page.heading("The decision")
    verdicts = decide(*every.values())
    page.table(
        ["candidate, the best first", "(1) equations", "(2) real tables", "(3) time"],
        [[label(name), *("yes" if part else "no" for part in parts)] for name, parts in verdicts],
    )
    first, parts = verdicts[0]
    page.text(
        f"**The default becomes {label(first)}.**" if all(parts) else "**CombU stays the default.**"
    )
    for name, sample in every.items():
        page.heading(f"{name}: {size(sample.logs)}")
        _sample_part(page, sample)


def _sample_part(page: Page, sample: Sample) -> None:
    test = ranks(sample.logs)
    lines = []
    for name, rank in test.mean_ranks.items():
        cells = ["1", "", "", "1"]
        if name != REFERENCE:
            effect = sample.beside[str(name)]
            seconds = "{:.2f} [{:.2f}, {:.2f}]".format(*sample.seconds[str(name)])
            cells = [str(effect), p_text(effect.p), effect.own, seconds]
        lines.append([label(str(name)), f"{rank:.2f}", *cells])
    page.table(
        ["network", "mean rank", "error over CombU's", "p", "own", "seconds over CombU's"], lines
    )
    page.text(
        f"{friedman_text(test)}; worst over best mean error {range_of_levels(sample.logs):.3f}."
    )
    if len(by_table(sample.logs)) <= len(LARGE) + len(BUNDLED):
        wide = np.exp(by_table(sample.logs))
        page.table(
            ["table", *(label(name) for name in wide)],
            [[str(name), *(f"{v:.3g}" for v in row)] for name, *row in wide.itertuples()],
        )


STUDY = Study(
    name="activations_default",
    title="Should the default activation be another one?",
    description=__doc__.splitlines()[0],
    module="benchmarks.activations.default",
    experiments=[
        Experiment(
            "activations_default", SETTINGS, RESULTS, jobs, KEY,
            packages=("numpy", "sklearn", "pandas", "python", "cpu"), parallel=True,
        )
    ],
    write=write,
    add_arguments=add_arguments,
)  # fmt: skip

if __name__ == "__main__":
    STUDY.main()
