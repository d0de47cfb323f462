"""The report of `layeract_robustness.py`: tables beside the paper's, verdicts, a figure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_figure, write_table, write_text
from benchmarks.papers.combu.report_text import NOTHING, markdown_table
from benchmarks.papers.layeract.robustness_figure import NORMS, plot_differences
from benchmarks.papers.layeract.robustness_numbers import (
    ALPHA,
    COUNTERPARTS,
    ELEMENT_LEVEL,
    GROUPS,
    LAYER_LEVEL,
    MEAN,
    SCORES,
    by_seed,
    compare,
    counts,
    interactions,
    paper_accuracies,
    paper_gain,
    paper_pvalues,
    scored,
    verdict,
)
from combutab.evaluation import friedman

NAME = "layeract_robustness"
_MEANINGS = {
    "clean": "clean",
    "corrupted": "corrupted",
    "kept": "corrupted minus clean",
}


def write_report(rows: pd.DataFrame, folder: Path, command: str) -> None:
    """The Markdown, the tests as CSV, and the figure."""
    table = scored(rows)
    activations = list(dict.fromkeys(table["activation"]))
    tests = compare(table, activations)
    write_table(tests, folder / f"{NAME}_tests.csv", index=False, float_format="%.5g")
    write_figure(plot_differences(tests), folder / f"{NAME}.png", dpi=110)
    text = "\n\n".join(_page(rows, table, tests, command)) + "\n"
    write_text(folder / f"{NAME}.md", text)
    print(text[text.index("## Verdicts") : text.index("## Accuracies")])


def _page(
    rows: pd.DataFrame, table: pd.DataFrame, tests: pd.DataFrame, command: str
) -> Iterator[str]:
    yield "# LayerAct: accuracies on clean and corrupted tables"
    yield f"`{command}`"
    yield describe_machine()
    yield _what_was_done(rows, table)
    yield "## Verdicts"
    yield "\n".join(f"- {line}" for line in in_words(tests))
    yield _verdicts(tests)
    yield from _claims(table, tests)
    yield "## Accuracies"
    for normalization in dict.fromkeys(table["normalization"]):
        yield f"### With {NORMS[normalization]}"
        yield _accuracies(table, normalization)
        yield _friedman(table, normalization)
    yield "### The paper's"
    yield (
        "Means over its networks (ResNet20, 32, 44) and over CIFAR10 and CIFAR100, of the cells "
        "that it has; without normalisation CIFAR10 alone, as its Table 7 repeats Table 6."
    )
    yield _papers()
    yield "## Gains over the other activations"
    yield from _gains(tests)
    yield f"![Differences]({NAME}.png)"
    yield (
        "Means over the seeds and sets, with 95 % intervals that allow for overlapping training "
        "sets. Right of the line the LayerAct function is better."
    )
    yield "## As Tables 20 to 23"
    yield (
        "Difference in points, and the p-value of the paper's procedure (a paired t-test, or "
        f"Wilcoxon's where Shapiro and Wilk's test rejects normality), uncorrected; \\* is p < "
        f"{ALPHA:g} of the corrected resampled t-test after Holm's correction over the row."
    )
    for normalization in dict.fromkeys(tests["normalization"]):
        for name in LAYER_LEVEL:
            for score in SCORES[:2]:
                yield f"### {name}, {score}, {NORMS[normalization]}"
                yield _cells(tests, normalization, name, score)


def _what_was_done(rows: pd.DataFrame, table: pd.DataFrame) -> str:
    first = rows.iloc[0]
    failed = rows[rows["error"] != ""]
    sizes = rows.groupby("data", sort=False)[["n_train", "n_test"]].mean().round().astype(int)
    sets = ", ".join(f"{d} ({a} + {b} rows)" for d, a, b in sizes.itertuples())
    lost = ", ".join(
        f"{a} with {NORMS[n]} on {d}"
        for a, n, d in failed[["activation", "normalization", "data"]]
        .drop_duplicates()
        .itertuples(index=False)
    )
    return (
        f"Perceptrons of hidden layers {first['hidden']}, {first['epochs']} epochs of Adam (rate "
        f"{first['learning_rate_init']:g}, batches of {first['batch_size']}), normalisation before "
        f"each activation; {rows['seed'].nunique()} seeds, each a split (4:1, equal rows on one "
        "side) and initial weights, which all activations and normalisations share. Training and "
        f"test rows: {sets}; {first['n_rows']} rows at most are used of a set. Corrupted: the mean "
        "over the corruptions of `combutab.evaluation.CORRUPTIONS` that a set's columns can "
        f"suffer, severities {first['severities']}.\n\n"
        "The paper trains ResNets of 20 to 44 layers on CIFAR10 and CIFAR100, 10 to 30 seeds on "
        "one split, and tests on CIFAR-C (19 corruptions, 5 severities); on ImageNet two seeds. "
        "Neither can be had here: tables and 8 x 8 digits stand in, so numbers differ and only the "
        "order of activations can be compared."
        + (f"\n\nFailed to train: {lost} ({len(failed)} networks)." if len(failed) else "")
    )


def in_words(tests: pd.DataFrame) -> list[str]:
    """What the paper claims, what is found over the mean of the sets, and the verdict."""
    lines = []
    for claim, name, score in (
        ("Better on clean data with batch norm", "la-silu", "clean"),
        ("Better under corruption with batch norm", "la-silu", "corrupted"),
        ("Better under corruption with batch norm", "la-hardsilu", "corrupted"),
    ):
        part = tests[
            (tests["data"] == MEAN)
            & tests["other"].isin(ELEMENT_LEVEL)
            & (tests["normalization"] == "batch")
            & (tests["activation"] == name)
            & (tests["score"] == score)
        ]
        if len(part):
            better, worse = map(len, counts(part))
            lines.append(
                f"{claim}: {name} is better than {better} and worse than {worse} of {len(part)} "
                f"element-level activations: {verdict(better, worse, len(part))}."
            )
    for claim, norm, other in (
        ("With layer norm better than SiLU under corruption", "layer", "silu"),
        ("Without normalisation better than ReLU under corruption", "none", "relu"),
    ):
        row = _row(tests, "la-silu", other, "corrupted", norm)
        if row is not None:
            real = row["p_holm"] < ALPHA
            found = verdict(
                int(real and row["difference"] > 0), int(real and row["difference"] < 0), 1
            )
            lines.append(
                f"{claim}: la-silu {row['difference']:+.2f} points, p = {_p(row['p_holm'])} (the "
                f"paper's {paper_gain('la-silu', other, norm, 'corrupted'):+.2f}): {found}."
            )
    for score in SCORES[:2]:
        for name in LAYER_LEVEL:
            lines.append(_where(tests, name, score))
    return lines


def _where(tests: pd.DataFrame, name: str, score: str) -> str:
    """The sets on which it is better than all element-level ones with batch norm, if any."""
    own = tests[
        (tests["data"] != MEAN)
        & tests["other"].isin(ELEMENT_LEVEL)
        & (tests["normalization"] == "batch")
        & (tests["activation"] == name)
        & (tests["score"] == score)
    ]
    found = []
    for p, words in (("p_paper", "the paper's uncorrected test"), ("p_holm", "the corrected one")):
        sets = [
            d for d, one in own.groupby("data", sort=False) if len(counts(one, p)[0]) == len(one)
        ]
        found.append(f"{', '.join(sets) or 'none'} by {words}")
    return f"Sets on which {name} is better than all, {score}, batch norm: {'; '.join(found)}."


def _verdicts(tests: pd.DataFrame) -> str:
    """Is a LayerAct function better than the paper's element-level ones, by the pooled test?"""
    pooled = tests[(tests["data"] == MEAN) & tests["other"].isin(ELEMENT_LEVEL)]
    body = []
    keys = ["activation", "score", "normalization"]
    for (name, score, norm), part in pooled.groupby(keys, sort=False):
        better, worse = counts(part)
        n_paper = counts(part.assign(paper=part["p_paper"]), "paper")
        body.append(
            [
                f"{name}, {_MEANINGS[score]}, {NORMS[norm]}",
                _named(better),
                _named(worse),
                f"{len(n_paper[0])} / {len(n_paper[1])}",
                f"{part['difference'].min():+.2f} to {part['difference'].max():+.2f}",
                verdict(len(better), len(worse), len(part)),
            ]
        )
    head = ["", "better than", "worse than", "uncorrected", "difference", "better than all?"]
    return (
        f"Over the mean of the {tests['data'].nunique() - 1} sets, corrected resampled t-test over "
        "the seeds, Holm's correction over the others; beside it the count of the paper's "
        "uncorrected test, better / worse. It speaks of these sets, not of others.\n\n"
        + markdown_table(head, sorted(body), left=3)
    )


def _named(names: list[str]) -> str:
    return ", ".join(names) if names else NOTHING


def _claims(table: pd.DataFrame, tests: pd.DataFrame) -> Iterator[str]:
    yield "### Against their counterparts, and set by set"
    body = []
    for name, other in COUNTERPARTS.items():
        for score in SCORES:
            for norm in dict.fromkeys(tests["normalization"]):
                own = _row(tests, name, other, score, norm)
                if own is None:
                    continue
                paper = NOTHING
                if score != "kept":
                    gain = paper_gain(name, other, norm, score)
                    paper = NOTHING if np.isnan(gain) else f"{gain:+.2f}"
                body.append(
                    [
                        f"{name} - {other}",
                        _MEANINGS[score],
                        NORMS[norm],
                        f"{own['difference']:+.2f} ({own['low']:+.2f} to {own['high']:+.2f})",
                        f"{own['effect']:+.1f}" if np.isfinite(own["effect"]) else NOTHING,
                        _p(own["p"]),
                        _p(own["p_holm"]),
                        paper,
                    ]
                )
    head = ["", "accuracy", "", "points (95 %)", "in sd of seeds", "p", "p, Holm", "paper's"]
    yield "Against the function that shares its scale, over the mean of the sets:\n\n" + (
        markdown_table(head, body, left=3)
    )
    found = interactions(table)
    if len(found):
        yield (
            "Batch norm is said to bring LayerAct's advantage out, layer norm to take it away. The "
            "advantage over the same counterpart with batch norm, minus that with the other:\n\n"
            + markdown_table(
                ["", "accuracy", "other", "points", "p"],
                [
                    [r.activation, r.score, NORMS[r.than], f"{r.difference:+.2f}", _p(r.p)]
                    for r in found.itertuples()
                ],
                left=3,
            )
        )
    yield from _sets(tests)


def _sets(tests: pd.DataFrame) -> Iterator[str]:
    own = tests[(tests["data"] != MEAN) & tests["other"].isin(ELEMENT_LEVEL)]
    papers = paper_pvalues()
    sets = list(dict.fromkeys(own["data"]))
    body = []
    for (name, score, norm), part in own[own["score"] != "kept"].groupby(
        ["activation", "score", "normalization"], sort=False
    ):
        theirs = papers[(papers["activation"] == name) & (papers["score"] == score)]
        paper = NOTHING
        if norm == "batch" and len(theirs):
            paper = f"{theirs['significant'].sum()} of {len(theirs)}"
        cells = []
        for data in sets:
            one = part[part["data"] == data]
            raw, strict = (
                "/".join(str(len(names)) for names in counts(one, p)) for p in ("p_paper", "p_holm")
            )
            cells.append(f"{raw} ({strict})")
        body.append([f"{name}, {score}, {NORMS[norm]}", *cells, paper])
    yield (
        f"Set by set, the number of the {own['other'].nunique()} element-level activations that it "
        "is better / worse than by the paper's uncorrected test, and in brackets by the corrected "
        "one with Holm's correction; last the paper's comparisons with p < 0.05. Those are gains, "
        "as far as it prints both means; it does not test LA-HardSiLU on clean data.\n\n"
        + markdown_table(["", *sets, "the paper"], sorted(body))
    )


def _row(tests: pd.DataFrame, name: str, other: str, score: str, norm: str) -> pd.Series | None:
    own = tests[
        (tests["data"] == MEAN)
        & (tests["activation"] == name)
        & (tests["other"] == other)
        & (tests["score"] == score)
        & (tests["normalization"] == norm)
    ]
    return None if own.empty else own.iloc[0]


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _accuracies(table: pd.DataFrame, normalization: str) -> str:
    own = table[table["normalization"] == normalization]
    sets = list(dict.fromkeys(own["data"]))
    columns = {score: by_seed(table, score, MEAN, normalization) for score in SCORES[:2]}
    means = own.groupby(["activation", "data"])[["clean", "corrupted", *GROUPS]].mean()
    body = []
    for name in columns["clean"]:
        cells = [f"{wide[name].mean():.2f} ± {wide[name].std():.2f}" for wide in columns.values()]
        groups = means.loc[name][list(GROUPS)].mean()
        by_set = [f"{means.loc[(name, d), 'corrupted']:.1f}" for d in sets]
        body.append([name, *cells, *(f"{value:.1f}" for value in groups), *by_set])
    head = ["", "clean", "corrupted", *GROUPS, *sets]
    return (
        "Percent, means over the sets ± standard deviation over the seeds; the groups of "
        "corruptions; and corrupted by set.\n\n" + markdown_table(head, body)
    )


def _friedman(table: pd.DataFrame, normalization: str) -> str:
    own = table[table["normalization"] == normalization]
    parts = []
    for score in SCORES[:2]:
        wide = own.pivot_table(index="data", columns="activation", values=score).dropna()
        if wide.shape[0] > 1 and wide.shape[1] > 2:
            parts.append(f"{score} p = {friedman(wide).pvalue:.2g}")
    return f"Friedman's test over the sets that all activations are alike: {', '.join(parts)}."


def _papers() -> str:
    table = paper_accuracies()
    names = list(dict.fromkeys(table["activation"]))
    keys = list(dict.fromkeys(table["normalization"]))
    means = table.groupby(["activation", "normalization"])[["clean", "total"]].mean()
    body = [
        [name]
        + [
            f"{means.loc[(name, norm), score]:.2f}" if (name, norm) in means.index else NOTHING
            for norm in keys
            for score in ("clean", "total")
        ]
        for name in names
    ]
    head = ["", *(f"{score}, {NORMS[n]}" for n in keys for score in ("clean", "corrupted"))]
    return (
        markdown_table(head, body)
        + "\n\nELU is in Tables 1 and 2 alone, PReLU with fewer networks: their means are of other "
        "cells. Differences below are of the cells that both have."
    )


def _gains(tests: pd.DataFrame) -> Iterator[str]:
    pooled = tests[(tests["data"] == MEAN) & (tests["normalization"] == "batch")]
    for name in LAYER_LEVEL:
        own = pooled[pooled["activation"] == name]
        body = []
        for other in dict.fromkeys(own["other"]):
            cells = []
            for score in SCORES[:2]:
                ours = own[(own["other"] == other) & (own["score"] == score)].iloc[0]
                gain = paper_gain(name, other, "batch", score)
                cells += [
                    f"{ours['difference']:+.2f} ({_p(ours['p_holm'])})",
                    NOTHING if np.isnan(gain) else f"{gain:+.2f}",
                ]
            body.append([other, *cells])
        head = ["", "clean: ours (p, Holm)", "the paper's", "corrupted: ours (p, Holm)"]
        yield f"{name} with batch norm, points over\n\n" + markdown_table(
            [*head, "the paper's"], body
        )


def _cells(tests: pd.DataFrame, normalization: str, name: str, score: str) -> str:
    own = tests[
        (tests["normalization"] == normalization)
        & (tests["activation"] == name)
        & (tests["score"] == score)
    ]
    others = list(dict.fromkeys(own["other"]))
    body = []
    for data, part in own.groupby("data", sort=False):
        rows = part.set_index("other")
        cells = [
            f"{rows.loc[o, 'difference']:+.1f} ({_p(rows.loc[o, 'p_paper'])})"
            + "\\*" * int(rows.loc[o, "p_holm"] < ALPHA)
            for o in others
        ]
        body.append([data, *cells])
    return markdown_table(["", *others], body)
