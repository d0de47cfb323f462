"""Table 7's report: our numbers, the paper's beside them, and whether CombU's advantage is real."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.papers.combu.expected import METRICS, TASK_METRICS, load_expected
from benchmarks.papers.combu.generation import LEARNERS, OURS, PATCHED, REAL
from benchmarks.papers.combu.generation_figure import plot_generation
from benchmarks.papers.combu.generation_numbers import (
    LABELS,
    MODELS,
    TABLE,
    TITLE,
    beside_paper,
    generation_cells,
    seed_scores,
)
from benchmarks.papers.combu.report import ReportFiles
from benchmarks.papers.combu.report_findings import failed_last
from benchmarks.papers.combu.report_numbers import order_activations
from benchmarks.papers.combu.report_text import (
    NOTHING,
    activation_label,
    correlations_table,
    counts_table,
    data_label,
    failures_table,
    markdown_table,
    mean_and_sd,
    number,
    provenance,
)
from combutab.evaluation import (
    compare_with_best,
    corrected_resampled_ttest,
    holm,
    mean_ranks,
    summarise,
    t_interval,
)

LEARNER_LABELS = {"mlp": "the paper's network", "boosting": "gradient boosting"}
# All seeds share one split: they are independent given it, and the correction for overlapping
# training sets of corrected_resampled_ttest, n_test / n_train, has nothing to correct
ONE_SPLIT = {"n_train": 1e15, "n_test": 1.0}
FOCUS = "combu"


def write_report(rows: pd.DataFrame, *, out: Path, name: str, command: str) -> list[Path]:
    """Write the report of the study's rows and print a short form of it.

    Returns
    -------
    list of Path
        What was written: ``<name>.md``, ``<name>_comparison.csv`` (ours beside the paper's, a row
        a cell) and a figure for each learner.
    """
    rows = rows.assign(error=rows["error"].astype(object).fillna("").astype(str))
    cells = pd.concat(
        [
            generation_cells(rows[rows["learner"] == learner], learner)
            for learner in _learners(rows)
        ],
        ignore_index=True,
    )
    expected = load_expected(7)
    comparison = beside_paper(cells, expected)
    report = ReportFiles(Path(out), name)
    report.add(f"# {TITLE}", provenance(rows, command), _design(rows))
    report.add(failures_table(rows.assign(protocol=rows["model"])))
    report.write_csv("comparison", comparison)
    for learner in _learners(rows):
        part = cells[cells["learner"] == learner]
        report.add(f"## Learned by {LEARNER_LABELS[learner]}")
        for data in dict.fromkeys(part["data"]):
            report.add(f"### {data_label(data, TABLE)}", _table(part, expected, data))
        report.add(_ranks(part))
        report.add("### What the ± leaves out", _spread_words(part))
        report.add("### Beside the paper's numbers", *_agreement(comparison, learner))
        report.add("### Is CombU's advantage real?")
        report.add(*_advantages(rows[rows["learner"] == learner]))
        figure = plot_generation(part, expected)
        report.add_figure(
            figure, f"_{learner}", f"Learned by {LEARNER_LABELS[learner]}; ± as in the tables"
        )
    report.add("## The paper's cells", _notes(expected))
    report.add("## Seconds to train a generator", _seconds(rows))
    report.write_text()
    print(f"\n{TITLE}\n")
    for learner in _learners(rows):
        print(f"{LEARNER_LABELS[learner]}:\n{_short(cells[cells['learner'] == learner])}\n")
    print("\n".join(map(str, report.files)))
    return report.files


def _learners(rows: pd.DataFrame) -> list[str]:
    return [name for name in LEARNERS if name in set(rows["learner"])]


# ---- text ----------------------------------------------------------------------------------------


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


def _table(cells: pd.DataFrame, expected: pd.DataFrame, data: str) -> str:
    """One data set in the paper's layout: model and metric in rows, activations in columns."""
    here = cells[cells["data"] == data]
    names = [*order_activations(here["activation"])]
    names = [REAL, *(name for name in names if name != REAL)]
    paper = expected[expected["data"] == data].assign(failed=0, runs=0)
    body = []
    for metric in TASK_METRICS[here["task"].iloc[0]]:
        for base, label in MODELS.items():
            for model in (base, f"{base}-patched"):
                part = here[here["model"] == model]
                if len(part):
                    part = pd.concat([here[here["model"] == REAL], part])
                    body.append([LABELS[model], *_line(part, metric, names)])
            theirs = paper[paper["model"] == base]
            body.append([f"{label}, the paper's", *_line(theirs, metric, names)])
    head = ["", "", *("Real" if name == REAL else activation_label(name) for name in names)]
    return markdown_table(head, body, left=2)


def _line(cells: pd.DataFrame, metric: str, names: Sequence[str]) -> list[str]:
    row = cells[cells["metric"] == metric].set_index("activation")
    means = row["mean"].drop(REAL, errors="ignore")
    best = means.max() if METRICS[metric].greater_is_better else means.min()
    texts = [METRICS[metric].label]
    for name in names:
        if name not in row.index:
            texts.append(NOTHING)
            continue
        cell = row.loc[name]
        text = mean_and_sd(cell["mean"], cell["sd"], metric)
        if cell["failed"]:
            text = f"failed {cell['failed']} of {cell['runs']}"
        texts.append(f"**{text}**" if cell["mean"] == best and name != REAL else text)
    return texts


def _ranks(cells: pd.DataFrame) -> str:
    """Mean ranks over data sets and metrics of the activations that all of them have."""
    body, widest = [], []
    for model in (*OURS, *PATCHED):
        part = cells[(cells["model"] == model)]
        lines = []
        for (_, metric), row in part.groupby(["data", "metric"], sort=False):
            scores = row.set_index("activation")["mean"].to_frame().T
            whole = failed_last(scores, metric)
            lines.append(whole if METRICS[metric].greater_is_better else -whole)
        if not lines or lines[0].shape[1] < 2:
            continue
        ranks = mean_ranks(pd.concat(lines, join="inner"))
        widest = max(widest, list(ranks.index), key=len)
        body.append((f"{LABELS[model]} ({len(lines)} lines)", ranks))
    if not body:
        return ""
    table = [[label, *(f"{r.get(n, np.nan):.2f}" for n in widest)] for label, r in body]
    text = markdown_table(["mean rank", *map(activation_label, widest)], table)
    return text.replace(" nan ", f" {NOTHING} ")


def _spread_words(cells: pd.DataFrame) -> str:
    """How much more generators of other seeds differ than samples of one generator do."""
    made = cells[(cells["model"] != REAL) & (cells["splits"] > 1) & cells["sd_samples"].notna()]
    body = []
    for (model, data, metric), part in made.groupby(["model", "data", "metric"], sort=False):
        between, within = (float(np.sqrt((part[c] ** 2).mean())) for c in ("sd", "sd_samples"))
        ratio = f"{between / within:.1f}" if within else NOTHING
        place = f"{data_label(data, TABLE)}, {METRICS[metric].label}"
        shown = (number(within, metric), number(between, metric))
        body.append([LABELS[model], place, *shown, ratio])
    if not body:
        return "It takes two seeds and two samples to say."
    head = ["", "", "samples of one generator", "seeds of the generator", "ratio"]
    return (
        "The paper's standard deviations are of three samples of one trained generator; they do "
        "not know that another seed gives another generator. Root mean squares over the "
        f"activations:\n\n{markdown_table(head, body, left=2)}"
    )


def _agreement(comparison: pd.DataFrame, learner: str) -> list[str]:
    blocks = []
    part = comparison[comparison["learner"] == learner]
    real = part[part["model"] == REAL]
    for row in real.itertuples():
        if np.isfinite(row.paper_mean):
            ours, theirs = number(row.mean, row.metric), number(row.paper_mean, row.metric)
            place = f"{data_label(row.data, TABLE)}, {METRICS[row.metric].label}"
            blocks.append(f"- Real rows, {place}: {ours} here, {theirs} in the paper.")
    blocks = ["\n".join(blocks)] if blocks else []
    for model in LABELS:
        own = part[part["model"] == model]
        if own.empty:
            continue
        blocks += [
            f"**{LABELS[model]}**: cells reproduced, their means being at most 2 pooled standard "
            "deviations (ours over seeds, the paper's over samples) apart, and how alike the "
            "orders of the activations are:",
            counts_table(own, TABLE),
            correlations_table(own, TABLE),
        ]
    return blocks


def _advantages(rows: pd.DataFrame) -> list[str]:
    """CombU against each other activation, paired by seed; and the best against all."""
    head = ["", "", "better than", "worse than", "not told apart", "closest rival", "lead over it"]
    body, lines = [], []
    for model in LABELS:
        for data in dict.fromkeys(rows["data"]):
            part = rows[(rows["model"] == model) & (rows["data"] == data)]
            if part.empty:
                continue
            for metric in TASK_METRICS[part["task"].iloc[0]]:
                scores = seed_scores(part, metric)
                place = f"{data_label(data, TABLE)}, {METRICS[metric].label}"
                if len(scores) < 2 or scores.shape[1] < 2:
                    continue
                if FOCUS in scores:
                    body.append([LABELS[model], place, *_verdict(scores, metric)])
                lines.append(f"- {LABELS[model]}, {place}: {_best_words(scores, metric)}")
    if not body and not lines:
        return ["Two seeds that two activations finished are the least to compare."]
    return [
        "CombU against each other activation, paired by generator seed: t-tests, Holm-adjusted "
        "over the others, 5 % level. The last column is CombU's lead over the best other one, with "
        "its 95 % interval (not adjusted); above zero CombU is better. The seeds share one split "
        "of the rows: nothing here speaks for other rows.",
        markdown_table(head, body, left=2),
        "The best mean against all others, likewise:",
        "\n".join(lines),
    ]


def _verdict(scores: pd.DataFrame, metric: str) -> list[object]:
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
    return [better, worse, len(leads) - better - worse, activation_label(nearest), shown]


def _best_words(scores: pd.DataFrame, metric: str) -> str:
    long = scores.stack().rename("score").reset_index()
    facts = METRICS[metric]
    comparison = compare_with_best(
        long, resample="seed", greater_is_better=facts.greater_is_better, **ONE_SPLIT
    )
    words = summarise(comparison, score="accuracy" if metric == "accuracy" else facts.label)
    return " ".join(words.replace("resamples", "generator seeds").split("\n"))


def _notes(expected: pd.DataFrame) -> str:
    """What was noted of the paper's cells, and how many it is true of."""
    counts = expected.loc[expected["note"] != "", "note"].value_counts(sort=False)
    return "\n".join(f"- {n} of {len(expected)} cells: {note}." for note, n in counts.items())


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


def _short(cells: pd.DataFrame) -> str:
    """The means alone, for a terminal."""
    shown = [
        "failed" if cell.failed else number(cell.mean, cell.metric) for cell in cells.itertuples()
    ]
    wide = cells.assign(shown=shown, metric=[METRICS[m].label for m in cells["metric"]]).pivot(
        index=["data", "metric", "model"], columns="activation", values="shown"
    )
    names = order_activations(cells["activation"])
    return wide[names].rename_axis(index=[""] * 3, columns=None).fillna("").to_string()
