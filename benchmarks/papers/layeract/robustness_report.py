"""The page of the study of robustness: tables beside the paper's, claims, a figure."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.outputs import write_table
from benchmarks.papers.common.claims import Claim, Finding, claims_table
from benchmarks.papers.common.page import Page, p_text
from benchmarks.papers.layeract.robustness_numbers import (
    ALPHA,
    COUNTERPARTS,
    ELEMENT_LEVEL,
    GROUPS,
    LAYER_LEVEL,
    MEAN,
    NAME,
    NOTHING,
    SCORES,
    better_than_all,
    by_seed,
    compare,
    counts,
    interactions,
    listed,
    paper_accuracies,
    paper_gain,
    paper_pvalues,
    scored,
    select,
)
from combutab.evaluation import friedman

NORMS = {"batch": "batch norm", "layer": "layer norm", "none": "no normalisation"}
MEANINGS = {"clean": "clean", "corrupted": "corrupted", "kept": "corrupted minus clean"}
_LOOKS = {  # Okabe and Ito's colours; markers say it again
    "batch": ("#0072B2", "o"),
    "layer": ("#D55E00", "s"),
    "none": ("#009E73", "^"),
}


# ---- claims --------------------------------------------------------------------------------------


def _better_than_all(name: str, score: str, norm: str) -> Callable[[pd.DataFrame], Finding | None]:
    """Judge it over the mean of the sets, against the paper's element-level activations."""

    def judge(tests: pd.DataFrame) -> Finding | None:
        part = select(tests, data=MEAN, activation=name, score=score, normalization=norm)
        part = part[part["other"].isin(ELEMENT_LEVEL)]
        if part.empty:
            return None
        better, worse = counts(part)
        raw = "/".join(str(len(names)) for names in counts(part, "p_paper"))
        low, high = part["difference"].min(), part["difference"].max()
        numbers = (
            f"better than {listed(better)}, worse than {listed(worse)} of {len(part)}; "
            f"uncorrected {raw}; {low:+.2f} to {high:+.2f} points"
        )
        return better_than_all(numbers, len(better), len(worse), len(part))

    return judge


def _better_than(other: str, norm: str) -> Callable[[pd.DataFrame], Finding | None]:
    """Judge it of LA-SiLU under corruption, over the mean of the sets."""

    def judge(tests: pd.DataFrame) -> Finding | None:
        part = _pooled(tests, "la-silu", other, "corrupted", norm)
        if part.empty:
            return None
        gain = paper_gain("la-silu", other, norm, "corrupted")
        row = part.iloc[0]
        numbers = (
            f"{row['difference']:+.2f} points, {p_text(row['p_holm'])} (the paper's {gain:+.2f})"
        )
        return Finding(numbers, [len(counts(part)[0]) == 1])

    return judge


_PRINTED = {  # what the paper claims; of the others it prints no such comparison
    ("la-silu", "clean", "batch"): "Tables 1, 2, 15, 20, 21",
    ("la-silu", "corrupted", "batch"): "Tables 1, 2, 16 to 19, 22, 23",
    ("la-hardsilu", "corrupted", "batch"): "Tables 1, 2, 16 to 19, 22, 23",
}
_KEYS = sorted(product(LAYER_LEVEL, SCORES, NORMS), key=lambda key: key not in _PRINTED)
CLAIMS: list[Claim[pd.DataFrame]] = [
    Claim("Tables 4, 5", "la-silu better than silu, corrupted, layer norm",
          _better_than("silu", "layer")),
    Claim("Tables 6, 7", "la-silu better than relu, corrupted, no normalisation",
          _better_than("relu", "none")),
    *(
        Claim(_PRINTED.get(key, NOTHING), f"{key[0]} better than all, {MEANINGS[key[1]]}, "
              f"{NORMS[key[2]]}", _better_than_all(*key))
        for key in _KEYS
    ),
]  # fmt: skip


# ---- the page ------------------------------------------------------------------------------------


def write_page(page: Page, arguments: Namespace, rows: pd.DataFrame) -> None:
    """Fill the page, and write the tests beside it as CSV."""
    table = scored(rows)
    tests = compare(table, list(dict.fromkeys(table["activation"])))
    write_table(tests, arguments.out / f"{NAME}_tests.csv", index=False, float_format="%.5g")
    _add_setting(page, rows)
    page.heading("Verdicts")
    page.text(
        f"Over the mean of the {tests['data'].nunique() - 1} sets, corrected resampled t-test over "
        "the seeds, Holm's correction over the others; uncorrected: how many it is better / worse "
        "than by the paper's test. It speaks of these sets, not of others.",
        claims_table(CLAIMS, {"here": tests}),
    )
    page.heading("Against their counterparts, and set by set", 3)
    _add_counterparts(page, tests)
    _add_interactions(page, interactions(table))
    _add_sets(page, tests)
    page.heading("Accuracies")
    for norm in dict.fromkeys(table["normalization"]):
        _add_accuracies(page, table, norm)
    _add_papers(page)
    page.heading("Gains over the other activations")
    _add_gains(page, select(tests, data=MEAN, normalization="batch"))
    page.figure(plot_differences(tests), "Differences")
    page.text(
        "Means over the seeds and sets, with 95 % intervals that allow for overlapping training "
        "sets. Right of the line the LayerAct function is better."
    )
    page.heading("As Tables 20 to 23")
    page.text(
        "Difference in points, and the p-value of the paper's procedure (a paired t-test, or "
        "Wilcoxon's where Shapiro and Wilk's test rejects normality), uncorrected; \\* is p < "
        f"{ALPHA:g} of the corrected resampled t-test after Holm's correction over the row."
    )
    for norm, name, score in product(
        dict.fromkeys(tests["normalization"]), LAYER_LEVEL, SCORES[:2]
    ):
        page.heading(f"{name}, {score}, {NORMS[norm]}", 3)
        _add_cells(page, select(tests, normalization=norm, activation=name, score=score))


def _add_setting(page: Page, rows: pd.DataFrame) -> None:
    first = rows.iloc[0]
    sizes = rows.groupby("data", sort=False)[["n_train", "n_test"]].mean().round().astype(int)
    sets = ", ".join(f"{d} ({a} + {b} rows)" for d, a, b in sizes.itertuples())
    page.text(
        f"Perceptrons of hidden layers {first['hidden']}, {first['epochs']} epochs of Adam (rate "
        f"{first['learning_rate_init']:g}, batches of {first['batch_size']}), normalisation before "
        f"each activation; {rows['seed'].nunique()} seeds, each a split (4:1, equal rows on one "
        "side) and initial weights, which all activations and normalisations share. Training and "
        f"test rows: {sets}; {first['n_rows']} rows at most are used of a set. Corrupted: the mean "
        "over the corruptions of `combutab.evaluation.CORRUPTIONS` that a set's columns can "
        f"suffer, severities {first['severities']}.",
        "The paper trains ResNets of 20 to 44 layers on CIFAR10 and CIFAR100, 10 to 30 seeds on "
        "one split, and tests on CIFAR-C (19 corruptions, 5 severities); on ImageNet two seeds. "
        "Neither can be had here: tables and 8 x 8 digits stand in, so numbers differ and only the "
        "order of activations can be compared.",
    )
    failed = rows[rows["error"] != ""]
    if len(failed):
        which = failed[["activation", "normalization", "data"]].drop_duplicates()
        lost = [f"{a} with {NORMS[n]} on {d}" for a, n, d in which.itertuples(index=False)]
        page.text(f"Failed to train: {', '.join(lost)} ({len(failed)} networks).")


def _add_counterparts(page: Page, tests: pd.DataFrame) -> None:
    lines = []
    for (name, other), score, norm in product(COUNTERPARTS.items(), SCORES, NORMS):
        for row in _pooled(tests, name, other, score, norm).to_dict("records"):
            gain = np.nan if score == "kept" else paper_gain(name, other, norm, score)
            lines.append(
                [
                    f"{name} - {other}",
                    MEANINGS[score],
                    NORMS[norm],
                    f"{row['difference']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})",
                    _signed(row["effect"], 1),
                    _p(row["p"]),
                    _p(row["p_holm"]),
                    _signed(gain),
                ]
            )
    page.text("Against the function that shares its scale, over the mean of the sets:")
    head = ["", "accuracy", "", "points (95 %)", "in sd of seeds", "p", "p, Holm", "paper's"]
    page.table(head, lines)


def _add_interactions(page: Page, found: pd.DataFrame) -> None:
    if found.empty:
        return
    page.text(
        "Batch norm is said to bring LayerAct's advantage out, layer norm to take it away. The "
        "advantage over the same counterpart with batch norm, minus that with the other:"
    )
    page.table(
        ["", "accuracy", "other", "points", "p"],
        [
            [r.activation, r.score, NORMS[r.than], f"{r.difference:+.2f}", _p(r.p)]
            for r in found.itertuples()
        ],
    )


def _add_sets(page: Page, tests: pd.DataFrame) -> None:
    own = tests[(tests["data"] != MEAN) & tests["other"].isin(ELEMENT_LEVEL)]
    sets = list(dict.fromkeys(own["data"]))
    papers = paper_pvalues()
    lines = []
    for name, score, norm in product(sorted(LAYER_LEVEL), SCORES[:2], NORMS):
        part = select(own, activation=name, score=score, normalization=norm)
        if part.empty:
            continue
        cells = []
        for data in sets:
            one = select(part, data=data)
            raw, strict = (
                "/".join(str(len(names)) for names in counts(one, p)) for p in ("p_paper", "p_holm")
            )
            cells.append(f"{raw} ({strict})")
        theirs = select(papers, activation=name, score=score)
        known = norm == "batch" and len(theirs) > 0
        paper = f"{theirs['significant'].sum()} of {len(theirs)}" if known else NOTHING
        lines.append([f"{name}, {score}, {NORMS[norm]}", *cells, paper])
    page.text(
        f"Set by set, the number of the {own['other'].nunique()} element-level activations that it "
        "is better / worse than by the paper's uncorrected test, and in brackets by the corrected "
        "one with Holm's correction; last the paper's comparisons with p < 0.05. Those are gains, "
        "as far as it prints both means; it does not test LA-HardSiLU on clean data."
    )
    page.table(["", *sets, "the paper"], lines)


def _add_accuracies(page: Page, table: pd.DataFrame, norm: str) -> None:
    own = select(table, normalization=norm)
    sets = list(dict.fromkeys(own["data"]))
    columns = {score: by_seed(table, score, MEAN, norm) for score in SCORES[:2]}
    means = own.groupby(["activation", "data"])[["clean", "corrupted", *GROUPS]].mean()
    lines = []
    for name in columns["clean"]:
        cells = [f"{wide[name].mean():.2f} ± {wide[name].std():.2f}" for wide in columns.values()]
        groups = means.loc[name][list(GROUPS)].mean()
        by_set = [f"{means.loc[(name, d), 'corrupted']:.1f}" for d in sets]
        lines.append([name, *cells, *(f"{value:.1f}" for value in groups), *by_set])
    page.heading(f"With {NORMS[norm]}", 3)
    page.text(
        "Percent, means over the sets ± standard deviation over the seeds; the groups of "
        "corruptions; and corrupted by set."
    )
    page.table(["", *SCORES[:2], *GROUPS, *sets], lines)
    wide = {s: own.pivot_table(index="data", columns="activation", values=s) for s in SCORES[:2]}
    alike = [
        f"{score} p = {friedman(scores).pvalue:.2g}"
        for score, scores in ((s, w.dropna()) for s, w in wide.items())
        if scores.shape[0] > 1 and scores.shape[1] > 2
    ]
    page.text(f"Friedman's test over the sets that all activations are alike: {', '.join(alike)}.")


def _add_papers(page: Page) -> None:
    table = paper_accuracies()
    columns = list(product(dict.fromkeys(table["normalization"]), ("clean", "total")))
    means = table.groupby(["normalization", "activation"])[["clean", "total"]].mean()
    page.heading("The paper's", 3)
    page.text(
        "Means over its networks (ResNet20, 32, 44) and over CIFAR10 and CIFAR100, of the cells "
        "that it has; without normalisation CIFAR10 alone, as its Table 7 repeats Table 6."
    )
    page.table(
        ["", *(f"{s.replace('total', 'corrupted')}, {NORMS[norm]}" for norm, s in columns)],
        [
            [name, *(f"{means[s].get((n, name), np.nan):.2f}".replace("nan", NOTHING)
                     for n, s in columns)]
            for name in dict.fromkeys(table["activation"])
        ],
    )  # fmt: skip
    page.text(
        "ELU is in Tables 1 and 2 alone, PReLU with fewer networks: their means are of other "
        "cells. Differences below are of the cells that both have."
    )


def _add_gains(page: Page, pooled: pd.DataFrame) -> None:
    for name in LAYER_LEVEL:
        own = select(pooled, activation=name)
        lines = []
        for other in dict.fromkeys(own["other"]):
            cells = []
            for score in SCORES[:2]:
                ours = select(own, other=other, score=score).iloc[0]
                gain = paper_gain(name, other, "batch", score)
                cells += [f"{ours['difference']:+.2f} ({_p(ours['p_holm'])})", _signed(gain)]
            lines.append([other, *cells])
        page.text(f"{name} with batch norm, points over")
        head = (f"{score}: ours (p, Holm)" for score in SCORES[:2])
        page.table(["", *(cell for h in head for cell in (h, "the paper's"))], lines)


def _add_cells(page: Page, own: pd.DataFrame) -> None:
    lines = [
        [
            data,
            *(
                f"{row.difference:+.1f} ({_p(row.p_paper)})" + "\\*" * (row.p_holm < ALPHA)
                for row in part.itertuples()
            ),
        ]
        for data, part in own.groupby("data", sort=False)
    ]
    page.table(["", *dict.fromkeys(own["other"])], lines)


def _pooled(tests: pd.DataFrame, name: str, other: str, score: str, norm: str) -> pd.DataFrame:
    """One comparison over the mean of the sets, or none."""
    return select(tests, data=MEAN, activation=name, other=other, score=score, normalization=norm)


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _signed(value: float, decimals: int = 2) -> str:
    return f"{value:+.{decimals}f}" if np.isfinite(value) else NOTHING


def plot_differences(tests: pd.DataFrame) -> Figure:
    """Differences over the mean of the sets with intervals; panels: function x score."""
    pooled = select(tests, data=MEAN)
    others = list(dict.fromkeys(pooled["other"]))
    norms = list(dict.fromkeys(pooled["normalization"]))
    figure = Figure(figsize=(9.0, 1.6 + 0.66 * len(others)), layout="constrained")
    grid: Iterable[Any] = figure.subplots(2, 2, sharey=True, sharex="col").flat
    for axes, (name, score) in zip(grid, product(LAYER_LEVEL, SCORES[:2]), strict=True):
        axes.axvline(0, color="0.7", linewidth=0.8)
        for k, norm in enumerate(norms):
            own = select(pooled, activation=name, score=score, normalization=norm)
            own = own.set_index("other").reindex(others)
            color, marker = _LOOKS[norm]
            axes.errorbar(
                own["difference"],
                np.arange(len(others)) + 0.22 * (k - 1),
                xerr=np.abs(own[["low", "high"]].to_numpy().T - own["difference"].to_numpy()),
                fmt=marker,
                color=color,
                markersize=4.5,
                linewidth=1.1,
                label=NORMS[norm],
            )
        axes.set_title(f"{name}, {score}", loc="left", fontsize=10)
        axes.set_yticks(range(len(others)), others, fontsize=9)
        axes.set_ylim(len(others) - 0.5, -0.5)
        axes.grid(axis="y", color="0.93", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("points of accuracy over the activation named at the left", fontsize=10)
    handles, labels = axes.get_legend_handles_labels()
    place = {"loc": "outside upper center", "ncols": 3, "frameon": False, "fontsize": 9}
    figure.legend(handles, labels, **place)
    return figure
