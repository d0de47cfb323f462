"""Is one of nine activations better than the default, CombU, on real tables?

`MLPClassifier` and `MLPRegressor` with all arguments other than `activation` and `random_state` at
their defaults, on 39 tables. There are five splits (4:1, equal rows on the same side), up to 1,000
training and 5,000 test rows. A split is also the seed of its nine networks. Ratios are geometric
means over tables; below 1, A is better than B.

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

The defaults of the recipe were chosen with CombU on some of these tables; a bias, if any, favours
CombU. Added during the runs, before any result was seen: eight of the tables are simulated, and the
page also has the results without them. The rows of optdigits, coil2000 and the five tables of
synthesis (beijing, default, diabetes130, magic and shoppers, from UCI) were made later than the
others, after the results of 32 tables had been seen; the others are from PMLB, and copies of the
CombU paper's eight instead of OpenML's.

    python -m benchmarks.activations.real_tables [--quick] [--data-home FOLDER] [--jobs N]
        [--report]

The tables are the CombU paper's eight, from OpenML, or all CSV files in --data-home (or
COMBUTAB_DATA) and its folders openml, tuning and synthesis. All splits of a table run before the
next table, the cheapest table first, so that a run cut at any time leaves whole tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.activations import effects, tables
from benchmarks.activations.tables import REFERENCE, SINGLE
from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.common.looks import intervals, label, listed
from benchmarks.common.verdicts import Claim, Verdict, add_claims, beats, best_of, matches
from benchmarks.papers.combu.study import PACKAGES
from benchmarks.quality.predictions import split_rows
from benchmarks.quality.tables import files, known_names, load
from combutab import MLPClassifier, MLPRegressor
from combutab.evaluation import nemenyi

N_SPLITS, MOST_TRAIN, MOST_TEST = 5, 1000, 5000
MEASURES = ("error", "loss")
# drawn from a formula, a network of probabilities or a scheme of rules
SIMULATED = ("2dplanes", "fri_c1_1000_10", "pwLinear", "pollen", "BNG_echoMonths", "BNG_lowbwt")
SIMULATED += ("car", "nursery")
KEY = ("data", "split", "activation")
SETTINGS = (*KEY, "most_train")
RESULTS = ("task", "n_train", "n_test", "accuracy", "loss", "r2", "epochs", "cpu_seconds", "error")

Logs = Mapping[str, pd.DataFrame]
_load = lru_cache(maxsize=1)(load)


def jobs(arguments: Arguments) -> Iterator[Job]:
    """One job for each table and split: its nine networks."""
    quick, home = arguments.quick, arguments.data_home or os.environ.get("COMBUTAB_DATA")
    found = files(home) if home else {}
    names = sorted(found or known_names(), key=lambda name: _cost(name, home, found))
    for name in names[:2] if quick else names:
        for split in range(2 if quick else N_SPLITS):
            shared = {"data": name, "split": split, "most_train": 60 if quick else MOST_TRAIN}
            wanted = [shared | {"activation": each} for each in SINGLE]
            yield Job(wanted, partial(run, home, wanted, quick))


def _cost(name: str, home: str | None, found: Mapping[str, Path]) -> tuple[bool, int, str]:
    """Sort tables by the cells that a network trains on; those of synthesis come last."""
    X, _, _ = load(name, home)
    synthesis = "synthesis" in str(found.get(name, ""))
    return synthesis, min(len(X), MOST_TRAIN * 5 // 4) * X.shape[1], name


def run(home: str | None, wanted: Sequence[Row], quick: bool) -> list[Row]:
    """Train the networks of a table and split, and score them."""
    name, split = wanted[0]["data"], wanted[0]["split"]
    X, y, classify = _load(name, home)
    train, test = split_rows(X, split, wanted[0]["most_train"])
    if len(test) > MOST_TEST:
        test = np.sort(np.random.default_rng(split).choice(test, MOST_TEST, replace=False))
    if classify:  # rows of classes that no training row has cannot be scored
        test = test[y.iloc[test].isin(y.iloc[train]).to_numpy()]
    kind = MLPClassifier if classify else MLPRegressor
    make: Any = partial(kind, random_state=split, **(tables.TINY if quick else {}))
    nets = [make(activation=row["activation"]) for row in wanted]
    sides = [(X.iloc[rows], y.iloc[rows]) for rows in (train, test)]
    task = "classification" if classify else "regression"
    return tables.outcomes(nets, *sides, RESULTS, task=task)


def logs(rows: pd.DataFrame, n_splits: int) -> dict[str, pd.DataFrame]:
    """Logarithms of each measure on the tables that have all splits of all activations."""
    wrong = (1.0 - rows["accuracy"]).clip(lower=0.5 / rows["n_test"])
    rows = rows.assign(wrong=wrong.where(rows["task"] == "classification", rows["loss"]))
    found = {}
    for measure, column in zip(MEASURES, ("wrong", "loss"), strict=True):
        every = effects.logs_of(rows, "activation", SINGLE, column)
        counts = every.groupby(level="data").size()
        whole = counts.index[counts >= n_splits]
        found[measure] = every[every.index.get_level_values("data").isin(whole)]
    return found


def costs_of_choice(logs: pd.DataFrame) -> pd.DataFrame:
    """Log of the error of what a rule chooses for a table over the default's: a row for each table.

    "other tables": the best mean over the other tables. "own splits": the best mean over the
    table's other splits, which is what a search on the table itself can find.
    """
    means = effects.by_table(logs)
    centred = means.sub(means.mean(axis=1), axis=0)
    found = {}
    for table in means.index:
        own = logs.loc[table]
        choice = centred.drop(index=table).mean().idxmin()
        splits = [
            own.loc[split, own.drop(index=split).mean().idxmin()] - own.loc[split, REFERENCE]
            for split in own.index
        ]
        cost = means.loc[table, choice] - means.loc[table, REFERENCE]
        found[table] = {"other tables": cost, "own splits": float(np.mean(splits))}
    return pd.DataFrame(found).T


def _best(measure: str, rows: Logs, margin: float) -> Verdict:
    return best_of(effects.by_table(rows[measure]), greater_is_better=False)


def _relu(measure: str, rows: Logs, margin: float) -> Verdict:
    means = effects.by_table(rows[measure])
    return matches(means[REFERENCE], means["relu"], margin)


def _choice(rule: str, rows: Logs, margin: float) -> Verdict:
    return beats(costs_of_choice(rows["error"])[rule], 0.0, greater_is_better=False)


_CLAIMED: dict[str, tuple[str, Callable[[Logs, float], Verdict], float]] = {
    "One of nine activations has the smallest error.": ("error", partial(_best, "error"), 0.0),
    "One of nine activations has the smallest loss.": ("loss", partial(_best, "loss"), 0.0),
    "CombU's error is within 2 % of ReLU's.": ("error", partial(_relu, "error"), effects.MARGIN),
    "CombU's loss is within 2 % of ReLU's.": ("loss", partial(_relu, "loss"), effects.MARGIN),
    "The best on its other splits beats CombU.": ("error", partial(_choice, "own splits"), 0.0),
    "The best on other tables beats CombU.": ("error", partial(_choice, "other tables"), 0.0),
}
CLAIMS = [
    Claim("default recipe", text, "table", judge, margin, f"log of {measure}")
    for text, (measure, judge, margin) in _CLAIMED.items()
]


def decide(every: Logs) -> str | None:
    """The activation that item 5 of the rule makes the default; None where CombU stays."""
    error, loss = (every[measure] for measure in MEASURES)
    beaten = loss[(loss["a"] == REFERENCE) & (loss["answer"] == f"{label(REFERENCE)} is better")]
    better = error[
        (error["b"] == REFERENCE) & (error["ratio"] < 1) & error["answer"].str.endswith("is better")
    ]
    better = better[~better["a"].isin(beaten["b"])]
    return None if better.empty else str(better.sort_values("ratio")["a"].iloc[0])


def pairs(values: pd.DataFrame) -> pd.DataFrame:
    """All pairs, the smaller mean first."""
    return effects.compare(values, combinations(values.mean().sort_values().index, 2))


def of_reference(found: pd.DataFrame) -> pd.DataFrame:
    """The pairs that CombU is one of, as the others' errors over CombU's."""
    turned = found[found["a"] == REFERENCE].rename(columns={"a": "b", "b": "a"})
    turned = turned.assign(
        ratio=1 / turned["ratio"], low=1 / turned["high"], high=1 / turned["low"]
    )
    return pd.concat([found[found["b"] == REFERENCE], turned])


def plot(every: Logs) -> Figure:
    """Draw each activation's error and loss over CombU's, with intervals and the margin."""
    tables = {measure: of_reference(found).set_index("a") for measure, found in every.items()}
    order = tables["error"].sort_values("ratio").index
    series = {name: own.loc[order, ["ratio", "low", "high"]] for name, own in tables.items()}
    words = "ratio to CombU's: mean over tables, 95 % interval; grey: within 2 %"
    return intervals({"": series}, words, (np.exp(-effects.MARGIN), np.exp(effects.MARGIN)))


def write(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    """The page: what the rule gives, then the rule and what it rests on."""
    samples = logs(rows, 2 if arguments.quick else N_SPLITS)
    every = {measure: pairs(effects.by_table(own)) for measure, own in samples.items()}
    new = decide(every)
    page.text(
        f"**By the rule the default {f'becomes {label(new)}' if new else 'stays CombU'}.** "
        f"{effects.size(samples['error'])} x {len(SINGLE)} activations; "
        f"{int((rows['error'] != '').sum())} networks diverged."
    )
    add_claims(page, CLAIMS, {"here": samples})
    for measure, found in every.items():
        page.heading(f"{measure.capitalize()} compared with CombU")
        effects.answers_table(page, of_reference(found), measure)
        page.text(_summary(samples[measure], found))
        means = effects.by_table(samples[measure])
        apart = means.drop(index=list(SIMULATED), errors="ignore")
        if 1 < len(apart) < len(means):
            page.text(
                f"Without simulated tables ({listed(SIMULATED)}): {_summary(apart, pairs(apart))}"
            )
        page.text(f"Not part of the rule: {_ranks(means)}")
    page.figure(plot(every), "Error and loss as ratios to CombU's, with 95 % intervals")
    with page.details("All pairs"):
        for measure, found in every.items():
            effects.answers_table(page, found, measure)
    with page.details("Each table: geometric means over splits"):
        for measure, own in samples.items():
            wide = np.exp(effects.by_table(own))
            page.table(
                [measure, *map(label, wide)],
                [[str(name), *(f"{v:.3g}" for v in row)] for name, *row in wide.itertuples()],
            )


def _summary(logs: pd.DataFrame, found: pd.DataFrame) -> str:
    means = effects.by_table(logs)
    plain, corrected = map(effects.p_text, effects.omnibus(means))
    within = int((found["answer"] == effects.WITHIN).sum())
    better = int(found["answer"].str.endswith("better").sum())
    half = 50 * float(np.log(found["high"] / found["low"]).median())
    return (
        f"{len(means)} tables: Friedman's test p {plain}, Iman and Davenport's p {corrected}. "
        f"{len(found)} pairs: {within} differ by {effects.WITHIN}, {better} differ significantly, "
        f"{len(found) - within - better} are not decided. The median half-width of the interval of "
        f"a pair is {half:.1f} %."
    )


def _ranks(means: pd.DataFrame) -> str:
    test = nemenyi(means, greater_is_better=False)
    ranks = ", ".join(f"{label(str(name))} {r:.2f}" for name, r in test.mean_ranks.items())
    every = combinations(test.mean_ranks.index, 2)
    differ = [f"{label(a)} / {label(b)}" for a, b in every if test.p.loc[a, b] < test.alpha]
    return f"mean ranks are {ranks}; significant pairs by Nemenyi's test are {listed(differ)}."


STUDY = Study(
    *("benchmarks.activations.real_tables", "Which activation is best on real tables?", __doc__),
    [Experiment("activations_real_tables", SETTINGS, RESULTS, jobs, KEY, PACKAGES)],
    write,
)

if __name__ == "__main__":
    STUDY.main()
