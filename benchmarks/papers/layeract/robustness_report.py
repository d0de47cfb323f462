"""The page of the study of robustness: comparisons of accuracies, claims, tables, a figure."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common.claims import Claim, Finding, claims_table
from benchmarks.common.looks import Line, cross_table, plot
from benchmarks.common.page import Page
from benchmarks.outputs import write_table
from benchmarks.papers.layeract import shared
from benchmarks.papers.layeract.shared import ALPHA, ELEMENT_LEVEL, LAYER_LEVEL, NOTHING, select
from combutab.evaluation import corrected_interval, corrected_resampled_ttest, friedman, holm

NAME, MEAN = "layeract_robustness", "mean of the sets"
EXPECTED = Path(__file__).parent / "expected"
NORMS = {"batch": "batch norm", "layer": "layer norm", "none": "no normalisation"}
SCORES = {"clean": "clean", "corrupted": "corrupted", "kept": "corrupted minus clean"}
ACCURACIES = ["clean", "corrupted"]
GROUPS = {
    "noise": ["gaussian_noise", "heavy_tailed_noise"],
    "units": ["scale", "shift"],
    "detail": ["clipping", "rounding"],
    "loss": ["missing", "column_dropout", "category_swap"],
}


def scored(rows: pd.DataFrame) -> pd.DataFrame:
    """Restate accuracies in percent; add ``kept`` and the groups of corruptions."""
    groups = {name: 100.0 * rows[of].mean(axis=1) for name, of in GROUPS.items()}
    table = rows.assign(clean=100.0 * rows["clean"], corrupted=100.0 * rows["corrupted"], **groups)
    return table.assign(kept=table["corrupted"] - table["clean"])


def by_seed(table: pd.DataFrame, score: str, data: str, normalization: str) -> pd.DataFrame:
    """Lay a score out as seeds x activations; for ``MEAN``, its mean over the sets."""
    own = select(table, normalization=normalization)
    own = own if data == MEAN else select(own, data=data)
    wide = own.pivot_table(index="seed", columns="activation", values=score)
    return wide[[name for name in shared.ACTIVATIONS if name in wide]]


def compare(table: pd.DataFrame) -> pd.DataFrame:
    """Compare both LayerAct functions with every other, by set, normalisation and score.

    ``difference`` of the means over seeds and its interval (``low``, ``high``); ``effect``, it in
    standard deviations of the seeds' differences; ``test`` and ``p_paper`` as the paper's; ``p`` of
    the corrected resampled t-test, which allows for training sets that overlap; ``p_holm``,
    corrected for the others of a set, normalisation and score.
    """
    rows: list[dict[str, object]] = []
    sizes = table[["n_train", "n_test"]].mean()
    sets = (*dict.fromkeys(table["data"]), MEAN)
    for norm, data, score in product(dict.fromkeys(table["normalization"]), sets, SCORES):
        wide = by_seed(table, score, data, norm)
        others = [name for name in wide if name not in LAYER_LEVEL]
        for name in LAYER_LEVEL:
            key = {"data": data, "normalization": norm, "score": score, "activation": name}
            pairs = [_pair(wide[name], wide[other], sizes) for other in others]
            for other, pair, p in zip(others, pairs, holm([x["p"] for x in pairs]), strict=True):
                rows.append(key | {"other": other} | pair | {"p_holm": p})
    return pd.DataFrame(rows)


def _pair(a: pd.Series, b: pd.Series, sizes: pd.Series) -> dict[str, object]:
    d = (a - b).to_numpy()
    mean, low, high = corrected_interval(d, **sizes)
    spread = float(d.std(ddof=1))
    found = {"difference": mean, "low": low, "high": high}
    found |= {"effect": mean / spread if spread > 1e-12 else np.nan, "n_seeds": len(d)}
    found |= dict(zip(("test", "p_paper"), shared.paper_test(a, b), strict=True))
    return found | {"p": corrected_resampled_ttest(a, b, **sizes).pvalue}


def interactions(table: pd.DataFrame) -> pd.DataFrame:
    """Test if LayerAct's advantage over its counterpart is larger with batch norm than without."""
    rows, sizes = [], table[["n_train", "n_test"]].mean()
    for score, name, norm in product(ACCURACIES, LAYER_LEVEL, ("layer", "none")):
        wides = (by_seed(table, score, MEAN, each) for each in ("batch", norm))
        a, b = (wide[name] - wide[shared.COUNTERPARTS[name]] for wide in wides)
        p = corrected_resampled_ttest(a, b, **sizes).pvalue
        rows.append((name, score, norm, (a - b).mean(), p))
    return pd.DataFrame(rows, columns=["activation", "score", "normalization", "difference", "p"])


def paper_accuracies() -> pd.DataFrame:
    """Read Tables 1, 2, 4 to 6 and 16 to 19; percent."""
    return pd.read_csv(EXPECTED / "layeract_accuracy.csv").rename(columns={"total": "corrupted"})


def paper_pvalues() -> pd.DataFrame:
    """Read Tables 20 to 23; ``significant`` for a printed p-value below 0.05."""
    table = pd.read_csv(EXPECTED / "layeract_pvalues.csv", dtype=str)
    return table.assign(significant=table["p"].str.lstrip("<").astype(float) < ALPHA)


def paper_gains() -> pd.Series:
    """Average the paper's differences over the networks and sets that have both activations."""
    network = ["data", "normalization", "model", "score"]
    cells = paper_accuracies().melt([*network[:3], "activation"], ACCURACIES, "score")
    pairs = cells.merge(cells.rename(columns={"activation": "other"}), on=network)
    gains = pairs.assign(paper=pairs["value_x"] - pairs["value_y"])
    return gains.groupby(["normalization", "score", "activation", "other"])["paper"].mean()


# ---- claims --------------------------------------------------------------------------------------


def judge_better(
    name: str, others: Sequence[str], score: str, norm: str, tests: pd.DataFrame
) -> Finding | None:
    """Judge "better than all these others", over the mean of the sets."""
    part = select(tests, data=MEAN, activation=name, score=score, normalization=norm)
    part = part[part["other"].isin(others)]
    if part.empty:
        return None
    low, high = part["difference"].agg(["min", "max"])
    detail = f"uncorrected {_ratio(part, 'p_paper')}; {low:+.2f} to {high:+.2f} points"
    return shared.against_all(part, "better", "worse", detail)


_PRINTED = {  # what the paper claims; of the others it prints no such comparison
    ("la-silu", ("silu",), "corrupted", "layer"): "Tables 4, 5",
    ("la-silu", ("relu",), "corrupted", "none"): "Tables 6, 7",
    ("la-silu", ELEMENT_LEVEL, "clean", "batch"): "Tables 1, 2, 15, 20, 21",
    ("la-silu", ELEMENT_LEVEL, "corrupted", "batch"): "Tables 1, 2, 16 to 19, 22, 23",
    ("la-hardsilu", ELEMENT_LEVEL, "corrupted", "batch"): "Tables 1, 2, 16 to 19, 22, 23",
}
CLAIMS = []
for _key in dict.fromkeys([*_PRINTED, *product(LAYER_LEVEL, [ELEMENT_LEVEL], SCORES, NORMS)]):
    _name, _others, _score, _norm = _key
    _than = "all" if len(_others) > 1 else _others[0]
    _text = f"{_name} better than {_than}, {SCORES[_score]}, {NORMS[_norm]}"
    CLAIMS.append(Claim(_PRINTED.get(_key, NOTHING), _text, partial(judge_better, *_key)))


# ---- the page ------------------------------------------------------------------------------------


def write_page(page: Page, arguments: Namespace, rows: pd.DataFrame) -> None:
    """Fill the page, and write the tests beside it as CSV."""
    table, gains = scored(rows), paper_gains()
    tests = compare(table)
    write_table(tests, arguments.out / f"{NAME}_tests.csv.gz", index=False, float_format="%.5g")
    pooled = select(tests, data=MEAN).join(gains, on=gains.index.names)
    sizes = rows.groupby("data", sort=False)[["n_train", "n_test"]].mean().round().astype(int)
    sets = ", ".join(f"{d} ({a} + {b} rows)" for d, a, b in sizes.itertuples())
    chosen = ("hidden", "epochs", "batch_size", "learning_rate_init", "severities", "n_rows")
    settings = ", ".join(f"{name} {rows[name].iloc[0]}" for name in chosen)
    page.text(
        f"Perceptrons trained by Adam ({settings} at most), "
        f"normalisation before each activation; {rows['seed'].nunique()} seeds, each a "
        "split (4:1, equal rows on one side) and initial weights, which all activations and "
        f"normalisations share. Training and test rows: {sets}. Corrupted: the mean over the "
        "corruptions that a set's columns can suffer. The paper trains ResNets on CIFAR10 and "
        "CIFAR100 and tests on CIFAR-C: only the order of activations can be compared."
    )
    page.heading("Verdicts")
    page.text(
        f"Over the mean of the {len(sizes)} sets, corrected resampled t-test over the seeds, "
        "Holm's correction over the others; uncorrected: better / worse by the paper's test "
        "(paired t, or Wilcoxon's where Shapiro and Wilk's test rejects normality). It speaks of "
        f"these sets alone. All comparisons, also set by set: {NAME}_tests.csv.gz.",
        claims_table(CLAIMS, {"here": tests}),
    )
    page.heading("Differences")
    page.text(
        "Points over the activation above (p after Holm's correction over the row), mean of the "
        "sets; then the paper's mean difference, of the networks that have both."
    )
    texts = pooled["difference"].map("{:+.2f}".format) + " (" + pooled["p_holm"].map(_p) + ")"
    texts += pooled["paper"].map("; {:+.2f}".format, na_action="ignore").fillna("")
    cross_table(page, pooled.assign(row=_names(pooled), text=texts), "row", "other")
    page.figure(plot_differences(pooled), "Differences")
    page.text(
        "With 95 % intervals that allow for overlapping training sets. Batch norm is said to bring "
        "LayerAct's advantage out, layer norm to take it away: the advantage over SiLU or HardSiLU "
        "with batch norm, minus that with the other:"
    )
    found = interactions(table)
    shown = (_names(found), found["difference"].map("{:+.2f}".format), found["p"].map(_p))
    page.table(["", "points", "p"], zip(*shown, strict=True))
    page.heading("Set by set")
    page.text(
        "The number of element-level activations that it is better / worse than by the paper's "
        "uncorrected test, and in brackets with both corrections; last the paper's comparisons "
        "with p < 0.05, gains as far as it prints both means."
    )
    own = tests[(tests["data"] != MEAN) & tests["other"].isin(ELEMENT_LEVEL)]
    papers = paper_pvalues().assign(normalization="batch", data="the paper")
    keys = ["row", "data"]
    cells = [
        (*key, f"{_ratio(one, 'p_paper')} ({_ratio(one, 'p_holm')})")
        for key, one in own.assign(row=_names(own)).groupby(keys, sort=False)
    ]
    for key, one in papers.assign(row=_names(papers)).groupby(keys)["significant"]:
        cells.append((*key, f"{one.sum()} of {len(one)}"))
    cross_table(page, pd.DataFrame(cells, columns=[*keys, "text"]), *keys)
    page.heading("Accuracies")
    page.text(
        "Percent, means over the sets ± standard deviation over the seeds; the groups of "
        "corruptions; corrupted by set; the paper's means over its networks and sets, of the cells "
        "that it has: ELU is in Tables 1 and 2 alone, PReLU with fewer networks, and without "
        "normalisation its Table 7 repeats Table 6."
    )
    for norm, own in table.groupby("normalization", sort=False):
        _add_accuracies(page, own, str(norm))


def _add_accuracies(page: Page, own: pd.DataFrame, norm: str) -> None:
    """Add a table of one normalisation."""
    page.heading(f"With {NORMS[norm]}", 3)
    texts, alike = {}, []
    for score in ACCURACIES:
        wide = by_seed(own, score, MEAN, norm)
        texts[score] = {n: f"{x.mean():.2f} ± {x.std():.2f}" for n, x in wide.items()}
        means = own.pivot_table(index="data", columns="activation", values=score)
        if len(means) > 1:
            alike.append(f"{score} p = {friedman(means).pvalue:.2g}")
    sets = means.T[list(dict.fromkeys(own["data"]))]  # corrupted
    groups = own.groupby(["data", "activation"])[list(GROUPS)].mean().groupby("activation").mean()
    paper = select(paper_accuracies(), normalization=norm).groupby("activation")[ACCURACIES].mean()
    paper = paper.map("{:.2f}".format).rename(columns="the paper's {}".format)
    ours = [each.map("{:.1f}".format) for each in (groups, sets)]
    shown = pd.DataFrame(texts).join([*ours, paper]).fillna(NOTHING)
    page.table(["", *shown], shown.itertuples())
    page.text(f"Friedman's test over the sets that all activations are alike: {', '.join(alike)}.")


def _names(tests: pd.DataFrame) -> pd.Series:
    """Name activation, score and normalisation."""
    return tests["activation"] + ", " + tests["score"] + ", " + tests["normalization"].map(NORMS)


def _ratio(tests: pd.DataFrame, p: str) -> str:
    """Say how many others it is better / worse than."""
    return "/".join(str(len(names)) for names in shared.counts(tests, p))


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def plot_differences(pooled: pd.DataFrame) -> Figure:
    """Draw the differences over the mean of the sets with intervals: function x score."""
    others = list(dict.fromkeys(pooled["other"]))
    panels = {}
    for name, score in product(LAYER_LEVEL, ACCURACIES):
        zero = Line([-0.5, len(others) - 0.5], [0, 0], "_zero", ("0.7", "", "-"), width=0.8)
        panels[f"{name}, {score}"] = lines = [zero]
        for i, (norm, text) in enumerate(NORMS.items()):
            own = select(pooled, activation=name, score=score, normalization=norm)
            x = own["other"].map(others.index) + 0.22 * (i - 1)
            look = (("#0072B2", "#D55E00", "#009E73")[i], "os^"[i], "none")
            lines.append(Line(x, own["difference"], text, look, own["low"], own["high"]))
    ticks = {
        float(i): name.replace("_", "\n").replace("hard", "hard\n") for i, name in enumerate(others)
    }
    return plot(panels, ("", "points of accuracy over the activation"), n_columns=2, ticks=ticks)
