"""Which activation on real tables? Nine activations in the default recipe on up to 39 tables.

    python -m benchmarks.activations.real_tables [--quick] [--data-home FOLDER] [--splits 5]
        [--data NAME ...] [--report]

`MLPClassifier` and `MLPRegressor` without arguments but `activation` and `random_state`. Tables:
the CombU paper's eight, from OpenML, or all CSV files in --data-home (or COMBUTAB_DATA) and its
folders openml, tuning and synthesis. Splits 4:1 with equal rows on one side; up to 1,000 training
and 5,000 test rows, so that the study ends in a few hours. A split is also the seed of its nine
networks. All splits of a table run before the next table, the cheapest table first, so that a run
cut at any time leaves whole tables.

The rule, written before the first row:

1. Measures: the error (1 - accuracy, no mistake counted as half a mistake; RMSE over the standard
   deviation of the training target) and the loss (log loss; the same RMSE). Each measure is judged
   by itself. A network that diverged has the largest value of its table and split.
2. Unit: the table. Its value for an activation is the mean over splits of the logarithm of the
   value over the geometric mean of the nine. Only tables with all splits of all activations count.
3. Does the activation matter? Friedman's test over tables, with Iman and Davenport's F; level 0.05.
4. Which one? For each of the 36 pairs Student's interval, 95 %, of the mean difference over tables
   and its p-value, adjusted by Holm's method over the 36. The answer is "less than 2 %" if the
   interval lies between 1 / 1.02 and 1.02; otherwise "A beats B by x % [interval]" if the adjusted
   p-value is below 0.05; otherwise "not decided". Item 3 does not gate item 4.
5. The default: CombU stays unless another activation beats it in error by item 4 and CombU does not
   beat that one in loss.

The defaults of the recipe were chosen with CombU, on some of these tables: a bias, if any, favours
CombU.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.activations.plan import SINGLE
from benchmarks.activations.recipes import fitted, scores
from benchmarks.common.command import Experiment, Job, Study
from benchmarks.common.looks import label
from benchmarks.common.page import Page, p_text
from benchmarks.common.results import Row
from benchmarks.papers.combu.study import as_text
from benchmarks.quality.predictions import split_rows
from benchmarks.quality.tables import files, known_names, load
from combutab import MLPClassifier, MLPRegressor
from combutab.evaluation import friedman, holm, mean_ranks, t_interval

N_SPLITS, MOST_TRAIN, MOST_TEST = 5, 1000, 5000
MARGIN = 1.02  # a ratio of errors that does not matter
LEVEL = 0.05
KEY = ("data", "split", "activation")
SETTINGS = (*KEY, "most_train")
RESULTS = ("task", "n_train", "n_test", "accuracy", "loss", "r2", "epochs", "cpu_seconds", "error")

_load = lru_cache(maxsize=1)(load)


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """One job for each table and split: its nine networks."""
    quick, home = arguments.quick, arguments.data_home or os.environ.get("COMBUTAB_DATA")
    found = files(home) if home else {}
    names = arguments.data or sorted(found or known_names())
    if not arguments.data:
        names = sorted(names, key=lambda name: _cost(name, home, found))
    for name in names[:2] if quick else names:
        for split in range(2 if quick else arguments.splits):
            shared = {"data": name, "split": str(split)}
            shared |= {"most_train": str(60 if quick else MOST_TRAIN)}
            wanted = [shared | {"activation": each} for each in SINGLE]
            run = partial(run_networks, home, wanted, quick)
            yield Job(wanted, run, f"{name}, split {split}")


def _cost(name: str, home: str | None, found: Mapping[str, Path]) -> tuple[bool, int, str]:
    """Sort tables by the cells that a network trains on; those of synthesis come last."""
    X, _, _ = load(name, home)
    synthesis = "synthesis" in str(found.get(name, ""))
    return synthesis, min(len(X), MOST_TRAIN * 5 // 4) * X.shape[1], name


def run_networks(home: str | None, wanted: Sequence[Row], quick: bool) -> list[Row]:
    """Train the networks of a table and split in stacks, and score them."""
    name, split = wanted[0]["data"], int(wanted[0]["split"])
    X, y, classify = _load(name, home)
    train, test = split_rows(X, split, int(wanted[0]["most_train"]))
    if len(test) > MOST_TEST:
        test = np.sort(np.random.default_rng(split).choice(test, MOST_TEST, replace=False))
    kind = MLPClassifier if classify else MLPRegressor
    changes: dict[str, Any] = {"max_iter": 2, "hidden_layer_sizes": (8, 8)} if quick else {}
    nets = [kind(activation=w["activation"], random_state=split, **changes) for w in wanted]
    started = time.process_time()
    failures = fitted(nets, X.iloc[train], y.iloc[train])
    shared: dict[str, object] = {
        "task": "classification" if classify else "regression",
        "n_train": len(train),
        "n_test": len(test),
        "cpu_seconds": (time.process_time() - started) / len(nets),
    }
    sides = [(X.iloc[rows], y.iloc[rows]) for rows in (test, train)]
    found = [
        shared | scores(net, failure, *sides) for net, failure in zip(nets, failures, strict=True)
    ]
    return [as_text({key: row.get(key, "") for key in RESULTS}) for row in found]


def units(rows: pd.DataFrame, measure: str, n_splits: int) -> pd.DataFrame:
    """A row for each whole table: mean log of the value over the nine's geometric mean."""
    value = rows["loss"]
    if measure == "error":
        wrong = (1.0 - rows["accuracy"]).clip(lower=0.5 / rows["n_test"])
        value = wrong.where(rows["task"] == "classification", value)
    logs = rows.assign(log=np.log(value)).pivot(
        index=["data", "split"], columns="activation", values="log"
    )
    logs = logs.reindex(columns=list(SINGLE))
    there = rows.groupby(["data", "split"])["activation"].nunique().eq(len(SINGLE))
    whole = there[there].groupby(level="data").size().ge(n_splits)
    logs = logs[logs.index.get_level_values("data").isin(whole.index[whole])]
    logs = logs.apply(lambda row: row.fillna(row.max()), axis=1)
    return logs.sub(logs.mean(axis=1), axis=0).groupby(level="data").mean()


def iman_davenport(values: pd.DataFrame) -> tuple[float, float]:
    """Friedman's p-value, and that of Iman and Davenport's F (1980), which is less conservative."""
    n, k = values.shape
    test = friedman(values)
    f = (n - 1) * test.statistic / (n * (k - 1) - test.statistic)
    return test.pvalue, float(stats.f.sf(f, k - 1, (k - 1) * (n - 1)))


def pairs(values: pd.DataFrame) -> pd.DataFrame:
    """All pairs, the better one first: ratio of errors, interval, adjusted p-value, answer."""
    lines = []
    order = values.mean().sort_values().index
    for better, worse in combinations(order, 2):
        change = values[better] - values[worse]
        ratio, low, high = np.exp(t_interval(change))
        lines.append((better, worse, ratio, low, high, stats.ttest_1samp(change, 0.0).pvalue))
    found = pd.DataFrame(lines, columns=["better", "worse", "ratio", "low", "high", "p"])
    found["p"] = holm(found["p"])
    within = (found["low"] > 1 / MARGIN) & (found["high"] < MARGIN)
    beats = np.where(found["p"] < LEVEL, "beats", "not decided")
    return found.assign(answer=np.where(within, "less than 2 %", beats))


def write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    """The page: the rule, and what it gives for error and loss."""
    page.text(__doc__.split("\n\n", 2)[2])
    for measure in ("error", "loss"):
        values = units(rows, measure, 2 if arguments.quick else arguments.splits)
        if len(values) < 2:
            continue
        plain, corrected = iman_davenport(values)
        page.heading(f"{measure}, {len(values)} tables")
        page.text(f"Friedman {p_text(plain)}, Iman-Davenport {p_text(corrected)}.")
        ranks = mean_ranks(values, greater_is_better=False)
        ratios = np.exp(values.sub(values["combu"], axis=0).mean())
        page.table(
            ["activation", "mean rank", f"{measure} over CombU's"],
            [
                [label(str(a)), f"{ranks[a]:.2f}", f"{ratios[a]:.3f}"]
                for a in ratios.sort_values().index
            ],
        )
        page.table(
            ["A", "B", f"{measure} of A over B", "p (Holm)", "answer"],
            [
                [
                    label(str(r.better)),
                    label(str(r.worse)),
                    f"{r.ratio:.3f} [{r.low:.3f}, {r.high:.3f}]",
                    f"{r.p:.3f}",
                    r.answer,
                ]
                for r in pairs(values).itertuples()
            ],
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--splits", type=int, default=N_SPLITS, help="per table (%(default)s)")
    parser.add_argument("--data", nargs="+", metavar="NAME", help="some of the tables")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--data-home", help="folder with CSV files; else OpenML")


STUDY = Study(
    name="activations_real_tables",
    title="Which activation, on real tables",
    description=__doc__.splitlines()[0],
    module="benchmarks.activations.real_tables",
    experiments=[
        Experiment(
            "activations_real_tables", SETTINGS, RESULTS, jobs, KEY,
            packages=("numpy", "sklearn", "pandas", "python", "cpu"), parallel=True,
        )
    ],
    write=write,
    add_arguments=add_arguments,
)  # fmt: skip

if __name__ == "__main__":
    STUDY.main()
