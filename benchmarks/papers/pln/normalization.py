"""Can PLN-8 replace batch and layer norm, and does a network with it need another activation?

Section 5.2 and Figure 10 of the PLN paper, which gives no numbers for this figure. Dense networks
of width 32 replace VGG-16 and ResNet-20. Tables of at most 1500 rows and scikit-learn's digits
(8 x 8 images) replace CIFAR-10. The deeper networks have about VGG-16's depth. Training: Adam,
learning rate 0.001, batches of 64, 500 steps (1000 for the deeper networks), no dropout. The
normalisation comes before each activation. Batch and layer norm have a gain and a shift for each
unit, PLN-8 has none. Ten random splits (4:1, equal rows on the same side), each with its own seed.

With three hidden layers the unit is the table (mean over its splits), of which there are eight.
With 15 layers there are only the digits: the unit is the split, with Nadeau and Bengio's corrected
variance, and the verdict is only about this table.

The stored rows of the digits were made with the first 1500 of the 1797 images; a new run draws 1500
at random, so its splits are other ones.

    python -m benchmarks.papers.pln.normalization [--quick] [--out FOLDER] [--report]
        [--data-home FOLDER]

A run that was stopped is resumed by the same command. --report only writes the page. Data sets
other than digits come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupShuffleSplit

from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.common.looks import label
from benchmarks.common.verdicts import Verdict, add_claims
from benchmarks.papers.pln import shared
from benchmarks.papers.pln.shared import TASKS, combinations
from combutab import MLPClassifier, MLPRegressor, paper_recipe
from combutab.estimators import BaseMLP, FitTask, fit_stacked

KIND = ["normalization", "activation"]
KEY = ("data", "depth", *KIND, "split")
SETTINGS = (*KEY, "width", "n_rows", "n_steps", "batch_size", "learning_rate")
RESULTS = ("task", "n_train", "n_test", "train_score", "score")
ACTIVATIONS = ("identity", "relu", "sigmoid", "tanh", "combu")
SIZES = {"normalization": ("none", "batch", "layer", "pln"), "activation": ACTIVATIONS}
SIZES |= {"split": range(10), "width": [32], "n_rows": [1500], "n_steps": [500]}
SIZES |= {"batch_size": [64], "learning_rate": [1e-3]}
QUICK = {"split": range(2), "width": [8], "n_rows": [150], "n_steps": [8]}


def jobs(arguments: Arguments) -> list[Job]:
    """All kinds of network on all data sets; deep ones on the digits, with twice the steps."""
    depths = (3, 4) if arguments.quick else (3, 15)
    kinds = combinations(depth=depths, data=arguments.data)
    kinds = kinds[(kinds["depth"] == 3) | (kinds["data"] == "digits")]
    sizes = combinations(**(SIZES | (QUICK if arguments.quick else {})))
    settings = kinds.merge(sizes, how="cross")
    settings["n_steps"] *= 1 + (settings["depth"] > 3)
    stack = ["data", "depth", *KIND]
    return shared.stacked_jobs(settings[list(SETTINGS)], stack, partial(run, arguments.data_home))


def run(data_home: str | None, rows: Sequence[Row]) -> list[Row]:
    """Train and score the networks of one kind on all splits of a data set."""
    name = rows[0]["data"]
    table = shared.source(name, int(rows[0]["n_rows"]), data_home)
    X, y = table.load()
    # equal rows stay on one side of a split: PhishingWebsites has many
    numbers = [int(row["split"]) for row in rows]
    splitter = GroupShuffleSplit(max(numbers) + 1, test_size=0.2, random_state=0)
    every = list(splitter.split(X, groups=table.row_groups()))
    splits = [every[number] for number in numbers]
    tasks = [
        FitTask(estimator(row, len(train)), X.iloc[train], y.iloc[train], row["split"])
        for row, (train, _) in zip(rows, splits, strict=True)
    ]
    outcomes, results = fit_stacked(tasks, n_jobs=1), []
    for task, (train, test), outcome in zip(tasks, splits, outcomes, strict=True):
        if outcome.error is not None:
            raise outcome.error
        scores = (task.estimator.score(X.iloc[side], y.iloc[side]) for side in (train, test))
        values = (TASKS[name], len(train), len(test), *scores)
        results.append(dict(zip(RESULTS, values, strict=True)))
    return results


def estimator(row: Row, n_train: int) -> BaseMLP:
    """The unfitted network of a split."""
    kind = MLPClassifier if TASKS[row["data"]] == "classification" else MLPRegressor
    n_batches = math.ceil(n_train / int(row["batch_size"]))
    settings = paper_recipe(
        TASKS[row["data"]],
        hidden_layer_sizes=(int(row["width"]),) * int(row["depth"]),
        activation=row["activation"],
        normalization=row["normalization"],
        max_iter=math.ceil(int(row["n_steps"]) / n_batches),
        n_iter_no_change=np.inf,
        batch_size=min(int(row["batch_size"]), n_train),
        learning_rate_init=float(row["learning_rate"]),
        dropout=0.0,
        alpha=0.0,
        random_state=int(row["split"]),
        device="cpu",
    )
    return kind(**settings)


def compare(
    rows: pd.DataFrame, margin: float, *, rule: str, score: str, left: str, right: str
) -> Verdict:
    """Judge "normalisation activation" against another, of one depth: by table, or by split."""
    kinds = rows["normalization"] + " " + rows["activation"]
    wide = rows.assign(kind=kinds).pivot(index=["data", "split"], columns="kind", values=score)
    if rows["data"].nunique() > 1:
        wide = wide.groupby("data").mean()
        return shared.RULES[rule](wide[left], wide[right], margin)
    sizes = rows[["n_train", "n_test"]].mean()
    return shared.RULES[rule](wide[left], wide[right], margin, **sizes)


CLAIMS = shared.claims("pln_normalization", "table, or split of one table", compare)


def write(page: Page, _: Arguments, rows: pd.DataFrame) -> None:
    depths = {f"{depth} hidden layers": own for depth, own in rows.groupby("depth")}
    add_claims(page, CLAIMS, depths)
    with page.details("Test scores: accuracy, or R² of regressions; mean ± sd over splits"):
        cells = rows.groupby(["data", "depth", *KIND], sort=False)["score"].agg(["mean", "std"])
        texts = cells["mean"].map("{:.3f} ± ".format) + cells["std"].map("{:.3f}".format)
        table = texts.unstack(sort=False).reset_index()
        table["normalization"] = table["normalization"].map(label)
        page.table(list(map(label, table)), table.itertuples(index=False))


STUDY = Study(
    "benchmarks.papers.pln.normalization",
    "PLN-8 instead of batch and layer normalisation",
    __doc__,
    [Experiment("pln_normalization", SETTINGS, RESULTS, jobs, KEY)],
    write,
    shared.OPTIONS,
)

if __name__ == "__main__":
    STUDY.main()
