"""Table 7's page: our numbers, the paper's beside them, and whether CombU's advantage is real."""

from __future__ import annotations

from argparse import Namespace
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common.claims import Claim, Finding, claims_table
from benchmarks.common.looks import Line, cross_table, plot
from benchmarks.common.page import Page
from benchmarks.papers.combu import report_numbers, report_text
from benchmarks.papers.combu.expected import METRICS, TASK_METRICS, Table, load_expected
from benchmarks.papers.combu.generation import LEARNERS, REAL
from benchmarks.papers.combu.report import FOCUS, write_rows
from benchmarks.papers.combu.report_numbers import order_activations
from benchmarks.papers.combu.report_text import activation_label, data_label, number
from combutab import evaluation

TABLE = Table(
    "table7_generation",
    "Table 7 of the CombU paper: generation",
    {"california_housing": "CH", "PhishingWebsites": "PW"},
)
MODELS = {"ctgan": "CTGAN", "tvae": "TVAE"}
KINDS = {"": "ours", "-patched": "package patched", "-paper": "the paper's"}
LABELS = {base + end: f"{MODELS[base]}, {KINDS[end]}" for base in MODELS for end in KINDS}
SIGNS = {name: 1.0 if metric.greater_is_better else -1.0 for name, metric in METRICS.items()}
# all seeds share one split: the correction for overlapping training sets has nothing to correct
ONE_SPLIT = {"n_train": 1e15, "n_test": 1.0}


# ---- numbers -----------------------------------------------------------------------------------


def beside_paper(rows: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Average over seeds, the samples of each averaged first; the paper's number beside each cell.

    ``sd_samples`` is the standard deviation of the samples of one generator (root mean square over
    the seeds), as the paper's is. The patched package's cells have the paper's number too.
    """
    rows = pd.concat([rows[rows["learner"] == learner] for learner in LEARNERS])
    # a generator's seed is the unit, as a split is in the other studies, and samples repeat in it
    fits = rows.assign(
        protocol=rows["learner"] + " " + rows["model"], split=rows["seed"], seed=rows["sample"]
    )
    cells = report_numbers.sort_cells(report_numbers.make_cells(fits), TABLE)
    cell = ["protocol", "data", "activation"]
    variances = fits.groupby([*cell, "split"])[list(METRICS)].var().groupby(cell).mean()
    within = np.sqrt(variances).rename_axis("metric", axis=1).stack().rename("sd_samples")
    cells = cells.join(within, on=[*cell, "metric"])
    cells["sd_samples"] *= [METRICS[metric].scale for metric in cells["metric"]]
    parts = []
    for protocol, part in cells.groupby("protocol", sort=False):
        learner, model = str(protocol).split()
        paper = expected[expected["model"] == model.removesuffix("-patched")]
        if model == REAL:  # printed once for both models
            paper = expected[expected["activation"] == REAL].dropna(subset=["mean"])
        parts.append(report_numbers.compare_with_paper(part, paper))
        parts[-1].insert(0, "learner", learner)
        parts[-1].insert(1, "model", model)
    return pd.concat(parts, ignore_index=True)


def seed_scores(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Lay out seeds x activations of one data set and model; failed activations are left out."""
    failed = set(rows.loc[rows["error"] != "", "activation"])
    rows = rows[~rows["activation"].isin(failed)]
    scores, _ = report_numbers.scores_of(rows, metric)
    means = scores.groupby([rows["seed"], rows["activation"]]).mean().unstack()
    return means[order_activations(means.columns)].dropna()


def advantages(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare CombU with each other activation, paired by seed, by model, data set and metric.

    ``better``, ``worse`` and ``open`` count the others; the ``rival`` comes nearest or is ahead the
    most: the ``lead`` over it, ``shown`` with its interval; ``best``: the best mean in words.
    """
    table = []
    for (model, data, task), part in rows.groupby(["model", "data", "task"], sort=False):
        for metric in TASK_METRICS[task]:
            scores = seed_scores(part, metric)
            if len(scores) >= 2 and FOCUS in scores and scores.shape[1] >= 2:
                row = {"model": LABELS[model], "place": _place(data, metric)}
                table.append(row | _against_others(scores, metric))
    return pd.DataFrame(table)


def _against_others(scores: pd.DataFrame, metric: str) -> dict[str, object]:
    facts, own, others = METRICS[metric], scores[FOCUS], scores.drop(columns=FOCUS)
    test = partial(evaluation.corrected_resampled_ttest, own, **ONE_SPLIT)
    leads = others.rsub(own, axis=0) * SIGNS[metric]
    sure = evaluation.holm([test(other).pvalue for _, other in others.items()]) < 0.05
    means = leads.mean()
    better, worse = (int((sure & (sign * means > 0)).sum()) for sign in (1, -1))
    interval = evaluation.t_interval(leads[means.idxmin()])
    lead, low, high = (f"{x:+.{facts.decimals}f}" for x in interval)
    options = {"resample": "seed", "greater_is_better": facts.greater_is_better, **ONE_SPLIT}
    long = scores.stack().rename("score").reset_index()
    against_best = evaluation.compare_with_best(long, **options)
    name = "accuracy" if metric == "accuracy" else facts.label
    sentences = evaluation.summarise(against_best, score=name).replace("\n", " ")
    row = {"better": better, "worse": worse, "open": len(means) - better - worse}
    row |= {"rival": activation_label(means.idxmin()), "lead": lead}
    row["shown"] = f"{lead} ({low} to {high})"
    return row | {"best": sentences.replace("resamples", "generator seeds")}


def judge_best(found: pd.DataFrame) -> Finding:
    """Judge whether CombU has the best mean of all activations."""
    ahead = ~found["lead"].str.startswith("-")
    return Finding(f"in {ahead.sum()} of {len(found)} lines", ahead.tolist())


def judge_significance(found: pd.DataFrame) -> Finding:
    """Judge whether CombU is significantly better than every other activation."""
    of = found[["better", "worse", "open"]].sum(axis=1)
    numbers = f"better than {found['better'].sum()} of {of.sum()} in {len(found)} lines"
    return Finding(numbers, (found["better"] == of).tolist())


CLAIMS = (
    Claim("Table 7", "CombU's rows are the best to learn from", judge_best),
    Claim("Table 7", "significantly better than every other's", judge_significance),
)


# ---- the page ----------------------------------------------------------------------------------


def write_report(page: Page, arguments: Namespace, rows: pd.DataFrame) -> None:
    """Fill the page; ours beside the paper's, a row a cell, go to a file of their own."""
    expected = load_expected(7)
    comparison = beside_paper(rows, expected)
    write_rows(comparison, arguments.out / f"{TABLE.name}_comparison.csv.gz")
    page.text(
        report_text.provenance(rows),
        "One 4:1 split, without rows with missing values. Errors are in standard deviations of the "
        "real training rows' target, accuracy and macro F1 in percent. ± is the standard deviation "
        "(ddof 1) over generator seeds, the samples of each averaged first, or where there is one "
        "seed over its samples, as the paper's is. The best mean of a line is bold.",
        report_text.failures_table(rows.assign(protocol=rows["model"])),
    )
    for learner, part in comparison.groupby("learner", sort=False):
        name = {"mlp": "the paper's network", "boosting": "gradient boosting"}[str(learner)]
        page.heading(f"Learned by {name}")
        for data, own in part.groupby("data", sort=False):
            page.heading(data_label(str(data), TABLE), 3)
            _add_cells(page, own, expected[expected["data"] == data])
        _add_spreads(page, part[part["model"] != REAL])
        page.heading("Beside the paper's numbers", 3)
        page.text(
            "Cells reproduced have means at most 2 pooled standard deviations (ours over seeds, "
            "the paper's over samples) apart; then how alike the orders of the activations are."
        )
        for model, own in part[part["model"] != REAL].groupby("model", sort=False):
            page.text(f"**{LABELS[str(model)]}**:", report_text.counts_table(own, TABLE))
            page.text(report_text.correlations_table(own, TABLE))
        page.heading("Is CombU's advantage real?", 3)
        _add_advantages(page, advantages(rows[rows["learner"] == learner]))
        figure = plot_generation(part, expected)
        page.figure(figure, f"Learned by {name}; ± as in the tables", str(learner))
    page.heading("The paper's cells")
    notes = expected.loc[expected["note"] != "", "note"].value_counts(sort=False)
    page.text("\n".join(f"- {n} of {len(expected)} cells: {note}." for note, n in notes.items()))
    page.heading("Generators: mean seconds to train one, and seeds")
    made = rows[rows["model"] != REAL].drop_duplicates(["data", "model", "activation", "seed"])
    groups = made.groupby(["model", "data"], sort=False)
    facts = groups.agg(seconds=("fit_seconds", "mean"), seeds=("seed", "nunique")).reset_index()
    facts["text"] = [f"{row.seconds:.0f} s, {row.seeds} seeds" for row in facts.itertuples()]
    cross_table(page, facts.replace({"model": LABELS}), "model", "data")


def _place(data: str, metric: str) -> str:
    return f"{data_label(data, TABLE)}, {METRICS[metric].label}"


def _add_cells(page: Page, ours: pd.DataFrame, paper: pd.DataFrame) -> None:
    """Add a data set as the paper does: metric and model in rows, activations in columns."""
    names = [REAL, *(name for name in order_activations(ours["activation"]) if name != REAL)]
    theirs = paper.assign(model=paper["model"] + "-paper", failed=0, runs=0)
    parts = []
    for model, label in LABELS.items():
        own = theirs if model.endswith("-paper") else ours
        if model in set(own["model"]):
            parts.append(own[own["model"].isin([REAL, model])].assign(data=label))
    cells = pd.concat(parts, ignore_index=True).sort_values("metric", kind="stable")
    made = cells.assign(mean=cells["mean"].mask(cells["activation"] == REAL))
    cells = cells.assign(best=report_text.mark_best(made)["best"])
    head = ["Real" if name == REAL else activation_label(name) for name in names]
    page.table(["", "", *head], report_text.grid(cells, names, str, report_text.cell_text))


def _add_spreads(page: Page, made: pd.DataFrame) -> None:
    """Add mean ranks, and how much more generators differ than the samples of one do."""
    ranks, signed = {}, made.assign(mean=made["mean"] * made["metric"].map(SIGNS))
    for model, own in signed.groupby("model", sort=False):
        wide = own.pivot(index=["data", "metric"], columns="activation", values=["mean", "runs"])
        wide = report_numbers.failed_last(wide["mean"].loc[:, wide["runs"].notna().all()], "f1")
        ranks[f"{LABELS[str(model)]} ({len(wide)} lines)"] = evaluation.mean_ranks(wide)
    table = pd.DataFrame(ranks).T
    table = table[order_activations(table)].map("{:.2f}".format).replace("nan", "—")
    page.table(["mean rank", *map(activation_label, table)], table.itertuples())
    page.heading("What the ± leaves out", 3)
    page.text(
        "The paper's standard deviations are of three samples of one trained generator; they do "
        "not know that another seed gives another generator. Root mean squares over the "
        "activations, where there are two seeds and samples:"
    )
    lines = []
    several = made[made["splits"] > 1].dropna(subset=["sd_samples"])
    for (model, data, metric), part in several.groupby(["model", "data", "metric"], sort=False):
        within, between = np.sqrt((part[["sd_samples", "sd"]] ** 2).mean())
        shown = (number(within, metric), number(between, metric), f"{between / within:.1f}")
        lines.append([LABELS[model], _place(data, metric), *shown])
    page.table(["", "", "samples of one generator", "seeds of the generator", "ratio"], lines)


def _add_advantages(page: Page, found: pd.DataFrame) -> None:
    if found.empty:
        page.text("Two seeds that two activations finished are the least to compare.")
        return
    page.text(
        claims_table(CLAIMS, dict(iter(found.groupby("model", sort=False)))),
        "CombU against each other activation, paired by generator seed: t-tests, Holm-adjusted "
        "over the others, 5 % level; last CombU's lead over the best other one, with its 95 % "
        "interval (not adjusted). The seeds share one split: nothing here speaks for other rows.",
    )
    head = ["", "", "better than", "worse than", "no significant difference", "closest rival"]
    shown = found.drop(columns=["lead", "best"])
    page.table([*head, "lead over it"], shown.itertuples(index=False))
    page.text("The best mean against all others, likewise:")
    page.text("\n".join(f"- {row.model}, {row.place}: {row.best}" for row in found.itertuples()))


def plot_generation(cells: pd.DataFrame, expected: pd.DataFrame) -> Figure:
    """Draw ours, the patched package's and the paper's, a panel a data set and metric."""
    names = [name for name in order_activations(cells["activation"]) if name != REAL]
    panels = {}
    for (data, metric), here in cells.groupby(["data", "metric"], sort=False):
        better = "higher" if METRICS[metric].greater_is_better else "lower"
        title = f"{_place(data, metric)} ({METRICS[metric].unit}, {better} is better)"
        theirs = expected[(expected["data"] == data) & (expected["metric"] == metric)]
        here = pd.concat([here, theirs.assign(model=theirs["model"] + "-paper")])
        panels[title] = lines = [
            Line([-0.6, len(names) - 0.4], [value] * 2, "real rows", ("0.3", "", "--"))
            for value in here.loc[here["model"] == REAL, "mean"]
        ]
        for i, (model, label) in enumerate(LABELS.items()):
            part = here[(here["model"] == model) & here["activation"].isin(names)]
            part = part.dropna(subset=["mean"])
            if part.empty:
                continue
            x, sd = part["activation"].map(names.index) + 0.12 * i - 0.3, part["sd"].fillna(0.0)
            look = (("#0072B2", "#D55E00")[i // 3], "osD"[i % 3], "none")
            low, high, alpha = part["mean"] - sd, part["mean"] + sd, 0.5 if i % 3 == 2 else 1.0
            label = label.replace("package ", "")
            lines.append(Line(x, part["mean"], label, look, low, high, alpha=alpha))
    ticks = {float(i): activation_label(name).replace("+", "\n+") for i, name in enumerate(names)}
    return plot(panels, ("", ""), n_columns=2, ticks=ticks, share="none")
