"""Table 7's page: our numbers, the paper's beside them, and whether CombU's advantage is real."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.papers.combu.expected import METRICS, TASK_METRICS, Table, load_expected
from benchmarks.papers.combu.generation import LEARNERS, REAL
from benchmarks.papers.combu.report import FOCUS, write_rows
from benchmarks.papers.combu.report_numbers import (
    compare_with_paper,
    failed_last,
    make_cells,
    order_activations,
    scores_of,
    sort_cells,
)
from benchmarks.papers.combu.report_text import (
    NOTHING,
    activation_label,
    cell_text,
    correlations_table,
    counts_table,
    data_label,
    failures_table,
    grid,
    mark_best,
    number,
    provenance,
)
from benchmarks.papers.common.claims import Claim, Finding, claims_table
from benchmarks.papers.common.page import Page, markdown_table
from combutab.evaluation import (
    compare_with_best,
    corrected_resampled_ttest,
    holm,
    mean_ranks,
    summarise,
    t_interval,
)

TABLE = Table(
    "table7_generation",
    "Table 7 of the CombU paper: generation",
    {"california_housing": "CH", "PhishingWebsites": "PW"},
)
MODELS = {"ctgan": "CTGAN", "tvae": "TVAE"}
LABELS = {
    **{model: f"{name}, ours" for model, name in MODELS.items()},
    **{f"{model}-patched": f"{name}, package patched" for model, name in MODELS.items()},
}
LEARNER_LABELS = {"mlp": "the paper's network", "boosting": "gradient boosting"}
# All seeds share one split: they are independent given it, and the correction for overlapping
# training sets of corrected_resampled_ttest, n_test / n_train, has nothing to correct
ONE_SPLIT = {"n_train": 1e15, "n_test": 1.0}
_COLORS = {"ctgan": "#0072B2", "tvae": "#D55E00"}


def write_report(page: Page, out: Path, rows: pd.DataFrame) -> None:
    """Fill the page; ours beside the paper's, a row a cell, go to a file of their own."""
    learners = [name for name in LEARNERS if name in set(rows["learner"])]
    of_learner = {name: rows[rows["learner"] == name] for name in learners}
    expected = load_expected(7)
    cells = [generation_cells(part, name) for name, part in of_learner.items()]
    comparison = beside_paper(pd.concat(cells, ignore_index=True), expected)
    write_rows(comparison, out / f"{TABLE.name}_comparison.csv")
    page.text(provenance(rows), _design(rows))
    page.text(failures_table(rows.assign(protocol=rows["model"])))
    for learner, fits in of_learner.items():
        part = comparison[comparison["learner"] == learner]
        page.heading(f"Learned by {LEARNER_LABELS[learner]}")
        for data in dict.fromkeys(part["data"]):
            page.heading(data_label(data, TABLE), 3)
            page.text(_table(part, expected, data))
        page.text(_ranks(part))
        page.heading("What the ± leaves out", 3)
        page.text(_spread_text(part))
        page.heading("Beside the paper's numbers", 3)
        page.text(*_agreement(part))
        page.heading("Is CombU's advantage real?", 3)
        page.text(*_advantages(fits))
        figure = plot_generation(part, expected)
        page.figure(figure, f"Learned by {LEARNER_LABELS[learner]}; ± as in the tables", learner)
    page.heading("The paper's cells")
    counts = expected.loc[expected["note"] != "", "note"].value_counts(sort=False)
    page.text("\n".join(f"- {n} of {len(expected)} cells: {note}." for note, n in counts.items()))
    page.heading("Seconds to train a generator")
    page.text(_seconds(rows))


# ---- numbers -----------------------------------------------------------------------------------


def generation_cells(rows: pd.DataFrame, learner: str) -> pd.DataFrame:
    """Means and standard deviations over generator seeds, the samples of each averaged first.

    The columns of `make_cells`, ``learner``, ``model``, and ``sd_samples``: the standard deviation
    of the samples of one generator, its root mean square over the seeds, as the paper's is.
    """
    # a generator's seed is the unit, as a split is in the other studies, and samples repeat in it
    fits = rows.assign(protocol=rows["model"], split=rows["seed"], seed=rows["sample"])
    cells = make_cells(fits)
    within = []
    for cell in cells.itertuples():
        is_own = fits[["protocol", "data", "activation"]].eq(
            [cell.protocol, cell.data, cell.activation]
        )
        own = fits[is_own.all(axis=1)]
        scores, _ = scores_of(own, cell.metric)
        within.append(np.sqrt(scores.groupby(own["split"]).var().mean()))
    cells = cells.assign(sd_samples=within, learner=learner)
    return sort_cells(cells, TABLE).rename(columns={"protocol": "model"})


def beside_paper(cells: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """The paper's number beside each cell, the patched package's too; the real rows have theirs."""
    parts = []
    for (learner, model), part in cells.groupby(["learner", "model"], sort=False):
        base = str(model).removesuffix("-patched")
        paper = expected[expected["model"] == base]
        if model == REAL:  # printed once for both models
            paper = expected[expected["activation"] == REAL].dropna(subset=["mean"])
        named = part.assign(protocol=f"{learner} {model}").drop(columns=["learner", "model"])
        compared = compare_with_paper(named[["protocol", *named.columns.drop("protocol")]], paper)
        compared.insert(0, "model", model)
        compared.insert(0, "learner", learner)
        parts.append(compared)
    return pd.concat(parts, ignore_index=True)


def seed_scores(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Seeds x activations in the paper's units, samples averaged; whole seeds alone.

    ``rows`` are one data set's and model's. Activations with a failed run are left out.
    """
    failed = set(rows.loc[rows["error"] != "", "activation"])
    rows = rows[~rows["activation"].isin(failed)]
    scores, _ = scores_of(rows, metric)
    means = scores.groupby([rows["seed"], rows["activation"]]).mean().unstack()
    return means[order_activations(means.columns)].dropna()


# ---- text --------------------------------------------------------------------------------------


def _design(rows: pd.DataFrame) -> str:
    made = rows[rows["model"] != REAL]
    of_model = made.groupby(["model", "data"])["seed"].nunique()
    counts = sorted(set(of_model), reverse=True)
    over_samples = "± is the standard deviation over the samples, as the paper's is"
    if counts == [1]:
        spread = f"{over_samples}."
    else:
        spread = (
            "the samples of a seed averaged first; ± is the standard deviation over seeds "
            "(ddof 1), the paper's is over three samples."
        )
    if 1 in counts[1:]:
        places = [
            f"{LABELS[model]} on {data_label(data, TABLE)}"
            for (model, data), n in of_model.items()
            if n == 1
        ]
        spread += f" One seed alone: {', '.join(places)}; there {over_samples}."
    return (
        f"Generator seeds: {counts[0]}; samples of each: {made['sample'].nunique()}; one 4:1 "
        "split, without rows with missing values. Errors are in standard deviations of the real "
        "training rows' target, accuracy and macro F1 in percent. Means are over seeds and "
        f"samples, {spread} The best mean of a line is bold."
    )


def _table(comparison: pd.DataFrame, expected: pd.DataFrame, data: str) -> str:
    """One data set in the paper's layout: model and metric in rows, activations in columns."""
    here = comparison[comparison["data"] == data]
    paper = expected[expected["data"] == data]
    names = [REAL, *(name for name in order_activations(here["activation"]) if name != REAL)]
    lines: list[list[str]] = []
    for metric in TASK_METRICS[here["task"].iloc[0]]:
        for base, label in MODELS.items():
            shown = {
                LABELS[model]: here[here["model"].isin([REAL, model])]
                for model in (base, f"{base}-patched")
                if model in set(here["model"])
            }
            shown[f"{label}, the paper's"] = paper[paper["model"] == base]
            for line, part in shown.items():
                of_metric = part[part["metric"] == metric]
                is_real = of_metric["activation"] == REAL
                best = mark_best(of_metric[~is_real])["best"].reindex(of_metric.index)
                marked = of_metric.assign(best=best.eq(True))
                lines += grid(marked, names, lambda data, line=line: line, cell_text)
    head = ["", "", *("Real" if name == REAL else activation_label(name) for name in names)]
    return markdown_table(head, lines)


def _ranks(cells: pd.DataFrame) -> str:
    """Mean ranks over data sets and metrics of the activations that all of them have."""
    lines, widest = {}, []
    for model, label in LABELS.items():
        scores = []
        for (_, metric), row in cells[cells["model"] == model].groupby(["data", "metric"]):
            whole = failed_last(row.set_index("activation")["mean"].to_frame().T, metric)
            scores.append(whole if METRICS[metric].greater_is_better else -whole)
        if scores and scores[0].shape[1] > 1:
            ranks = mean_ranks(pd.concat(scores, join="inner"))
            lines[f"{label} ({len(scores)} lines)"] = ranks
            widest = max(widest, order_activations(ranks.index), key=len)
    if not lines:
        return "Two activations are the least to rank."
    return markdown_table(
        ["mean rank", *map(activation_label, widest)],
        [
            [label, *(f"{ranks[n]:.2f}" if n in ranks else NOTHING for n in widest)]
            for label, ranks in lines.items()
        ],
    )


def _place(data: str, metric: str) -> str:
    return f"{data_label(data, TABLE)}, {METRICS[metric].label}"


def _spread_text(cells: pd.DataFrame) -> str:
    """How much more generators of other seeds differ than samples of one generator do."""
    made = cells[(cells["model"] != REAL) & (cells["splits"] > 1) & cells["sd_samples"].notna()]
    body = []
    for (model, data, metric), part in made.groupby(["model", "data", "metric"], sort=False):
        between, within = (float(np.sqrt((part[c] ** 2).mean())) for c in ("sd", "sd_samples"))
        ratio = f"{between / within:.1f}" if within else NOTHING
        shown = (number(within, metric), number(between, metric))
        body.append([LABELS[model], _place(data, metric), *shown, ratio])
    if not body:
        return "It takes two seeds and two samples to say."
    head = ["", "", "samples of one generator", "seeds of the generator", "ratio"]
    return (
        "The paper's standard deviations are of three samples of one trained generator; they do "
        "not know that another seed gives another generator. Root mean squares over the "
        f"activations:\n\n{markdown_table(head, body)}"
    )


def _agreement(comparison: pd.DataFrame) -> list[str]:
    real = comparison[(comparison["model"] == REAL) & np.isfinite(comparison["paper_mean"])]
    lines = [
        f"- Real rows, {_place(row.data, row.metric)}: {number(row.mean, row.metric)} here, "
        f"{number(row.paper_mean, row.metric)} in the paper."
        for row in real.itertuples()
    ]
    blocks = [
        "Cells reproduced have means at most 2 pooled standard deviations (ours over seeds, the "
        "paper's over samples) apart; then how alike the orders of the activations are.",
        *(["\n".join(lines)] if lines else []),
    ]
    for model, own in comparison[comparison["model"] != REAL].groupby("model", sort=False):
        tables = (counts_table(own, TABLE), correlations_table(own, TABLE))
        blocks += [f"**{LABELS[str(model)]}**:", *tables]
    return blocks


# ---- CombU's advantage -------------------------------------------------------------------------

Scores = dict[tuple[str, str], pd.DataFrame]  # by data set and metric: seeds x activations


def judge_best(scores: Scores) -> Finding | None:
    """Whether CombU has the best mean of all activations."""
    found = {place: _verdict(table, place[1]) for place, table in scores.items() if FOCUS in table}
    texts = [f"{_place(*place)} {lead} over {name}" for place, (*_, name, lead) in found.items()]
    parts = [not lead.startswith("-") for *_, lead in found.values()]
    return Finding("; ".join(texts), parts) if parts else None


def judge_significance(scores: Scores) -> Finding | None:
    """Whether CombU is significantly better than every other activation."""
    found = {place: _verdict(table, place[1]) for place, table in scores.items() if FOCUS in table}
    counts = {
        place: (better, better + worse + open_)
        for place, (better, worse, open_, *_) in found.items()
    }
    texts = [f"{_place(*place)} better than {n} of {of}" for place, (n, of) in counts.items()]
    return Finding("; ".join(texts), [n == of for n, of in counts.values()]) if counts else None


CLAIMS = (
    Claim("Table 7", "CombU's rows are the best to learn from", judge_best),
    Claim("Table 7", "significantly better than every other's", judge_significance),
)


def _advantages(rows: pd.DataFrame) -> list[str]:
    """CombU against each other activation, paired by seed; and the best against all."""
    samples: dict[str, Scores] = {}
    for model, label in LABELS.items():
        for data, part in rows[rows["model"] == model].groupby("data", sort=False):
            for metric in TASK_METRICS[part["task"].iloc[0]]:
                scores = seed_scores(part, metric)
                if len(scores) >= 2 and scores.shape[1] >= 2:
                    samples.setdefault(label, {})[str(data), metric] = scores
    every = [(label, *at, table) for label, own in samples.items() for at, table in own.items()]
    if not every:
        return ["Two seeds that two activations finished are the least to compare."]
    head = ["", "", "better than", "worse than", "no significant difference", "closest rival"]
    lines = [
        [label, _place(data, metric), *_verdict(table, metric)]
        for label, data, metric, table in every
        if FOCUS in table
    ]
    best = [
        f"- {label}, {_place(data, metric)}: {_best_text(table, metric)}"
        for label, data, metric, table in every
    ]
    return [
        claims_table(CLAIMS, samples),
        "CombU against each other activation, paired by generator seed: t-tests, Holm-adjusted "
        "over the others, 5 % level. The last column is CombU's lead over the best other one, with "
        "its 95 % interval (not adjusted); above zero CombU is better. The seeds share one split "
        "of the rows: nothing here speaks for other rows.",
        markdown_table([*head, "lead over it"], lines),
        "The best mean against all others, likewise:",
        "\n".join(best),
    ]


def _verdict(scores: pd.DataFrame, metric: str) -> tuple[int, int, int, str, str]:
    """Counts of the others, and the lead over the one that comes nearest or is ahead the most."""
    sign = 1.0 if METRICS[metric].greater_is_better else -1.0
    leads = {name: sign * (scores[FOCUS] - scores[name]) for name in scores if name != FOCUS}
    adjusted = holm(
        [
            corrected_resampled_ttest(scores[FOCUS], scores[name], **ONE_SPLIT).pvalue
            for name in leads
        ]
    )
    sure = {name: p < 0.05 for name, p in zip(leads, adjusted, strict=True)}
    better = sum(sure[name] and lead.mean() > 0 for name, lead in leads.items())
    worse = sum(sure[name] and lead.mean() < 0 for name, lead in leads.items())
    nearest = min(leads, key=lambda name: leads[name].mean())
    interval = t_interval(leads[nearest])
    mean, low, high = (f"{x:+.{METRICS[metric].decimals}f}" for x in interval)
    shown = f"{mean} ({low} to {high})"
    return better, worse, len(leads) - better - worse, activation_label(nearest), shown


def _best_text(scores: pd.DataFrame, metric: str) -> str:
    long = scores.stack().rename("score").reset_index()
    facts = METRICS[metric]
    comparison = compare_with_best(
        long, resample="seed", greater_is_better=facts.greater_is_better, **ONE_SPLIT
    )
    words = summarise(comparison, score="accuracy" if metric == "accuracy" else facts.label)
    return " ".join(words.replace("resamples", "generator seeds").split("\n"))


def _seconds(rows: pd.DataFrame) -> str:
    """The mean over activations and seeds; a stack's are shared out to its members."""
    made = rows[(rows["model"] != REAL) & (rows["sample"] == 0)]
    made = made.drop_duplicates(["data", "model", "activation", "seed"])
    means = made.groupby(["model", "data"])["fit_seconds"].mean().unstack()
    data = [name for name in TABLE.data if name in means]
    body = [
        [LABELS[model], *(f"{means.loc[model, name]:.0f}" for name in data)]
        for model in LABELS
        if model in means.index
    ]
    text = markdown_table(["", *(data_label(name, TABLE) for name in data)], body)
    return text.replace(" nan ", f" {NOTHING} ")


# ---- figure ------------------------------------------------------------------------------------


def plot_generation(cells: pd.DataFrame, expected: pd.DataFrame) -> Figure:
    """A panel a data set and metric: activations along x, ours, patched and the paper's."""
    places = list(dict.fromkeys(zip(cells["data"], cells["metric"], strict=True)))
    names = [name for name in order_activations(cells["activation"]) if name != REAL]
    width = 2.0 + 0.95 * len(names)
    rows = -(-len(places) // 2)
    figure = Figure(figsize=(max(9.0, 2 * width), 0.8 + 3.4 * rows), layout="constrained")
    handles: dict[str, object] = {}
    for place, (data, metric) in enumerate(places, start=1):
        axes = figure.add_subplot(rows, min(2, len(places)), place)
        here = cells[(cells["data"] == data) & (cells["metric"] == metric)]
        theirs = expected[(expected["data"] == data) & (expected["metric"] == metric)]
        for i, base in enumerate(MODELS):
            drawn = [
                (here[here["model"] == base], "o", f"{MODELS[base]}, ours", True),
                (here[here["model"] == f"{base}-patched"], "s", f"{MODELS[base]}, patched", True),
                (theirs[theirs["model"] == base], "D", f"{MODELS[base]}, the paper's", False),
            ]
            for j, (part, marker, label, filled) in enumerate(drawn):
                part = part[part["activation"].isin(names)].dropna(subset=["mean"])
                if part.empty:
                    continue
                x = [names.index(name) - 0.3 + 0.12 * (3 * i + j) for name in part["activation"]]
                handles[label] = axes.errorbar(
                    x,
                    part["mean"],
                    yerr=part["sd"].fillna(0.0),
                    fmt=marker,
                    color=_COLORS[base],
                    markerfacecolor=_COLORS[base] if filled else "white",
                    markersize=5,
                    capsize=2,
                    linewidth=1.0,
                )
        for value in here.loc[here["model"] == REAL, "mean"].dropna():
            handles["real rows"] = axes.axhline(value, color="0.3", linestyle="--", linewidth=1.0)
        axes.set_title(f"{data_label(data, TABLE)}, {METRICS[metric].label}", loc="left")
        axes.set_xticks(range(len(names)), [activation_label(name) for name in names])
        if len(names) > 8:
            axes.tick_params(axis="x", labelrotation=30)
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.grid(axis="y", color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        better = "higher" if METRICS[metric].greater_is_better else "lower"
        axes.set_ylabel(f"{METRICS[metric].unit}, {better} is better")
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=4, frameon=False
    )
    return figure
