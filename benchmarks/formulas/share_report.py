"""The page of `share`: shares of laws learned, tests over equations, and outside of the ranges."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import binomtest

from benchmarks.common.claims import Claim, Finding, claims_table
from benchmarks.common.page import Page, p_text
from combutab import MLPRegressor
from combutab.evaluation import holm, wilcoxon

BASE = "default"
LEARNED = 0.999
# as cited, of the whole 120, noise 0 and 10,000 rows
PUBLISHED = {"Operon": 86, "AI Feynman": 78, "GP-GOMEA": 72}
LAST = "pack"  # the model that may have fewer equations than the others


def complete(rows: pd.DataFrame, models: list[str]) -> pd.DataFrame:
    """Rows of the equations, at a noise level, that all these models have."""
    own = rows[rows["model"].isin(models)]
    counts = own.groupby(["noise", "equation"])["model"].transform("nunique")
    return own[counts == len(models)]


def errors(rows: pd.DataFrame, column: str = "r2") -> pd.DataFrame:
    """Equations x models: log10 of 1 - R2, at least -12; a fit that failed has R2 = 0."""
    r2 = rows.assign(r2_=rows[column].fillna(0.0)).pivot(
        index="equation", columns="model", values="r2_"
    )
    return np.log10((1 - r2).clip(lower=1e-12))


def shares(rows: pd.DataFrame) -> pd.DataFrame:
    """By model and noise: the shares learned, inside and outside, with 95 % intervals inside."""
    found = []
    for (noise, model), own in rows.groupby(["noise", "model"], sort=False):
        inside, outside = own["r2"] > LEARNED, own["r2_outside"] > LEARNED
        interval = binomtest(int(inside.sum()), len(own)).proportion_ci(method="wilson")
        angles = own["has_angles"] == 1
        found.append(
            {
                "noise": noise,
                "model": model,
                "n": len(own),
                "inside": inside.mean(),
                "low": interval.low,
                "high": interval.high,
                "with_angles": inside[angles].mean(),
                "without": inside[~angles].mean(),
                "outside": outside.mean(),
                "median_outside": own["r2_outside"].median(),
                "seconds": own["cpu_seconds"].median(),
            }
        )
    return pd.DataFrame(found)


def against_base(rows: pd.DataFrame) -> pd.DataFrame:
    """Each model beside the default, paired by equation: laws learned alone, errors, p-values."""
    found = []
    for column in ("r2", "r2_outside"):
        wide = errors(rows, column)
        for model in wide.columns.drop(BASE):
            gain = wide[BASE] - wide[model]
            learned = wide < np.log10(1 - LEARNED)
            won, lost = (learned[model] & ~learned[BASE]), (learned[BASE] & ~learned[model])
            unlike = int(won.sum() + lost.sum())
            found.append(
                {
                    "where": "inside" if column == "r2" else "outside",
                    "model": model,
                    "won": int(won.sum()),
                    "lost": int(lost.sum()),
                    "gain": gain.median(),
                    "mcnemar": binomtest(int(won.sum()), unlike).pvalue if unlike else 1.0,
                    "wilcoxon": wilcoxon(wide[BASE], wide[model]).pvalue,
                }
            )
    table = pd.DataFrame(found)
    for name in ("mcnemar", "wilcoxon"):
        table[name] = holm(table[name])
    return table


def judge(model: str, better: bool, rows: pd.DataFrame) -> Finding | None:
    """Judge whether a model's errors are lower than the default's (or higher), inside."""
    if not {BASE, model} <= set(rows["model"]):
        return None
    pair = complete(rows[rows["noise"] == 0], [BASE, model])
    if pair["equation"].nunique() < 6:  # the least p of five is 0.06
        return None
    wide = errors(pair)
    p, gain = wilcoxon(wide[BASE], wide[model]).pvalue, float((wide[BASE] - wide[model]).median())
    words = f"1 - R2 {10 ** abs(gain):.2g} times {'smaller' if gain > 0 else 'larger'} (median of "
    numbers = f"{words}{len(wide)}), {p_text(p)}"
    return Finding(numbers, [((gain > 0) == better) if p < 0.05 else None])


def judge_angles(rows: pd.DataFrame) -> Finding | None:
    return judge("complex CombU", True, rows[rows["has_angles"] == 1])


CLAIMS = (
    Claim("issue", "a default network is nearer to the laws than gradient boosting",
          lambda rows: judge("gradient boosting", False, rows)),
    Claim("CombU paper", "CombU is nearer than ReLU, all else as by default",
          lambda rows: judge("ReLU", False, rows)),
    Claim("CombU paper, outlook", "complex CombU is nearer than CombU",
          lambda rows: judge("complex CombU", True, rows)),
    Claim("CombU paper, outlook", "complex CombU is nearer on the laws with angles", judge_angles),
    Claim("periodic embeddings", "the default is nearer than without them",
          lambda rows: judge("no embeddings", False, rows)),
    Claim("pack", "the pack is nearer than one network", lambda rows: judge("pack", True, rows)),
)  # fmt: skip


def write_page(page: Page, arguments: Namespace, rows: pd.DataFrame) -> None:
    """Fill the page: a part for each number of rows to learn from, the most first."""
    rows = rows[rows["model"].isin(arguments.models)]
    if arguments.quick:
        rows = rows[rows["rows"] == 60]
    known = MLPRegressor()
    page.text(
        "`default` is `MLPRegressor(n_members=1)`, here with "
        f"activation={known.activation!r} and numeric_embedding={known.numeric_embedding!r} "
        "(periodic); the named ones differ from it in what they name; all else by its defaults. "
        "Each learns the same rows, scored on 1,000 new ones without noise inside the ranges and "
        "1,000 outside, where a variable is up to a fifth of its range beyond what was seen. One "
        "draw of rows an equation and one seed: tests are over equations.",
        "Published, as cited, of all 120 equations, 10,000 rows and no noise: "
        + ", ".join(f"{name} {share} %" for name, share in PUBLISHED.items())
        + ".",
        "In a table of claims are Wilcoxon's signed-rank tests of log10(1 - R2), paired by "
        "equation, on all equations that the two models have; 5 %, not adjusted (the table "
        '"beside the default" is).',
    )
    for n_rows in sorted(set(rows["rows"]), reverse=True):
        _add_part(page, n_rows, rows[rows["rows"] == n_rows])


def _add_part(page: Page, n_rows: int, rows: pd.DataFrame) -> None:
    models = [m for m in dict.fromkeys(rows["model"]) if m != LAST]
    same = complete(rows, models)
    with_pack = complete(rows, [*models, LAST]) if LAST in set(rows["model"]) else same[:0]
    n = same.groupby("noise")["equation"].nunique()
    page.heading(f"{n_rows:,} rows to learn from")
    page.text(
        "**How many, by the rule in the study's text** (written beforehand; the first equations of "
        "the spread order, as many as the time allowed): "
        f"{', '.join(f'{v} at noise {k:g}' for k, v in n.items()) or 'none'}, of 120; the pack, "
        f"the last in turn, on {with_pack['equation'].nunique() or 'none'}."
    )
    page.text(claims_table(CLAIMS, {"noise 0, inside": rows}))
    _add_shares(page, same, "Shares learned")
    if len(with_pack):
        _add_shares(page, with_pack, "On the equations that the pack has too")
    first = same[same["noise"] == same["noise"].min()] if len(same) else same
    if first["equation"].nunique() > 1 and BASE in models and len(models) > 1:
        page.heading("Beside the default, without noise", 3)
        page.text(
            "Laws that the one alone learns; how many powers of ten 1 - R2 is smaller than the "
            "default's (median); p-values of McNemar's exact test and of Wilcoxon's, Holm-adjusted "
            "over the table."
        )
        page.table(
            ["", "model", "won", "lost", "gain", "learned or not", "error"],
            [
                [r.where, r.model, r.won, r.lost, f"{r.gain:+.2f}", p_text(r.mcnemar),
                 p_text(r.wilcoxon)]
                for r in against_base(first).itertuples()
            ],
        )  # fmt: skip
        words = f"1 - R2 of each equation, inside and outside, {n_rows:,} rows"
        page.figure(plot_errors(first), words, f"{n_rows}_rows")
        _add_equations(page, first)


def _add_shares(page: Page, rows: pd.DataFrame, title: str) -> None:
    page.heading(title, 3)
    head = ["noise", "model", "equations", "R2 > 0.999", "95 % interval", "with angles", "without"]
    page.table(
        [*head, "outside, R2 > 0.999", "outside, median R2", "CPU seconds a fit"],
        [
            [f"{r.noise:g}", r.model, r.n, f"{r.inside:.0%}", f"{r.low:.0%} to {r.high:.0%}",
             _percent(r.with_angles), _percent(r.without), f"{r.outside:.0%}",
             f"{r.median_outside:.4f}",
             f"{r.seconds:.3g}"]
            for r in shares(rows).itertuples()
        ],
    )  # fmt: skip


def _percent(share: float) -> str:
    return "—" if np.isnan(share) else f"{share:.0%}"


def _add_equations(page: Page, rows: pd.DataFrame) -> None:
    page.heading("1 - R2, inside, by equation", 3)
    wide = 1 - rows.pivot(index="equation", columns="model", values="r2")
    wide = wide.loc[list(dict.fromkeys(rows["equation"])), list(dict.fromkeys(rows["model"]))]
    page.table(
        ["equation", *wide.columns],
        [
            [name, *(f"{v:.1e}" for v in line)]
            for name, line in zip(wide.index, wide.values, strict=True)
        ],
    )


def plot_errors(rows: pd.DataFrame) -> Figure:
    """Draw each equation's error as a dot, models below one another, medians as bars."""
    figure = Figure(figsize=(10.0, 0.9 + 0.45 * rows["model"].nunique()), layout="constrained")
    names = list(dict.fromkeys(rows["model"]))[::-1]
    panels = figure.subplots(1, 2, sharey=True)
    for axes, column in zip(panels, ("r2", "r2_outside"), strict=True):
        wide = 10 ** errors(rows, column)[names]
        for place, name in enumerate(names):
            colour = "#0072B2" if name == BASE else "0.45"
            y = np.full(len(wide), place, dtype=float)
            axes.plot(wide[name], y, "o", color=colour, alpha=0.45, markersize=5)
            axes.vlines(wide[name].median(), place - 0.3, place + 0.3, color=colour, linewidth=3)
        axes.axvline(1 - LEARNED, color="#D55E00", linestyle="--", linewidth=1)
        axes.set(xscale="log", xlabel="1 - R2")
        axes.set_title("inside the ranges" if column == "r2" else "a fifth outside", loc="left")
        axes.set_yticks(range(len(names)), names)
        axes.spines[["top", "right"]].set_visible(False)
    return figure
