"""The page of a synthetic table's evaluation."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from combutab._version import __version__
from combutab.reports._page import render
from combutab.reports.charts import (
    Bars,
    Histogram,
    category_bars,
    histogram,
    is_identifier,
    shortened,
    text_width,
)
from combutab.reports.synthetic._associations import associations
from combutab.reports.synthetic._report import SyntheticEvaluation
from combutab.reports.synthetic._verdict import C2ST, HELD_OUT, LEARNERS, RULES, SYNTHETIC

_FIRST = 12  # columns that are drawn before the fold
_MAPPED = 25  # columns of a heat map
_PAIRS = 10  # pairs in the table of the worst
_NAMES = 130  # units that names may take beside a heat map

_METRICS = {
    "accuracy": "accuracy",
    "f1_macro": "F1, mean of the classes",
    "f1_binary": "F1 of the positive class",
    "roc_auc": "area under the ROC curve",
    "log_loss": "log loss",
    "r2": "R²",
    "mae": "mean absolute error, in standard deviations",
    "mse": "mean squared error, in standard deviations",
}
_PRIVACY = {
    "share_closer_to_train": (
        "Synthetic rows nearer to a row learned from than to any held-out row",
        "0.5 means that neither is nearer. Above it, rows learned from show through.",
    ),
    "membership_auc": (
        "How well an attacker tells who was learned from, by distance",
        "0.5 is a coin toss, 1 is certainty (area under the ROC curve).",
    ),
    "copies": (
        "Synthetic rows equal to a row learned from",
        "The reference is how many rows would be if they were held-out real ones.",
    ),
    "dcr_median": (
        "Distance to the closest row learned from, median",
        "Beside the distance to the closest held-out row. Far below it is of concern.",
    ),
    "dcr_p05": (
        "Distance to the closest row learned from, 5th percentile",
        "The same for the nearest twentieth of the rows.",
    ),
    "nndr_median": (
        "Nearest over second-nearest distance, median",
        "Small where one row learned from stands out; beside that of the held-out rows.",
    ),
    "nndr_p05": (
        "Nearest over second-nearest distance, 5th percentile",
        "The same for the most conspicuous twentieth of the rows.",
    ),
}


@dataclass(frozen=True)
class _Column:
    """One column's part of the page."""

    name: str
    measure: str
    score: float
    held_out: float
    chart: Histogram | Bars | None
    is_number: bool
    why: str  # there is no chart


def synthetic_page(found: SyntheticEvaluation) -> str:
    """One self-contained HTML page of what was found."""
    identifiers = {name for name in found.train if is_identifier(found.train[name])}
    columns = _columns(found, identifiers)
    sections = [("rows", "Whole rows"), ("columns", "Columns"), ("pairs", "Pairs of columns")]
    if found.efficacy is not None:
        sections.insert(0, ("usefulness", "Learning from it"))
    sections += [("privacy", "Privacy"), ("made", "How it was made"), ("reading", "How to read")]
    return render(
        "synthetic.html",
        version=__version__,
        sections=sections,
        found=found,
        facts=_facts(found),
        efficacy=_efficacy(found),
        columns=columns[:_FIRST],
        more_columns=columns[_FIRST:],
        column_table=_column_table(found),
        heat=_heat(found, identifiers),
        pairs=_worst_pairs(found, identifiers),
        rows=_row_scores(found),
        privacy=_privacy(found),
        made=_made(found),
        rules=RULES,
        least=found.least_rows,
    )


def _facts(found: SyntheticEvaluation) -> list[tuple[str, str]]:
    """List what was compared, for the head of the page."""
    tables = [("real", found.train), ("synthetic", found.synthetic), ("test", found.test)]
    roles = {
        "real": "Real rows, learned from",
        "synthetic": "Synthetic rows",
        "test": "Held-out real rows",
    }
    facts = [
        (roles[role], f"{len(table):,} in {found.names[role]}")
        for role, table in tables
        if table is not None
    ]
    facts.append(("Columns", f"{found.train.shape[1]:,}"))
    if found.target is not None:
        facts.append(("To predict", f"{found.target} ({found.task})"))
    return facts


def _made(found: SyntheticEvaluation) -> list[tuple[str, str]]:
    made = list(found.made.items())
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in found.seconds.items())
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    return [
        *made,
        ("Seed of this evaluation", str(found.seed)),
        ("Time it took", seconds),
        ("Versions", versions),
    ]


# ---- usefulness --------------------------------------------------------------------------------


def _efficacy(found: SyntheticEvaluation) -> dict[str, Any] | None:
    """The main score of each learner, bars of it, and all other scores."""
    if found.efficacy is None:
        return None
    rows: dict[tuple[str, str], dict[str, Any]] = {}  # by learner and metric
    for each in found.efficacy.to_dict("records"):
        row = rows.setdefault((each["learner"], each["metric"]), {})
        row["real" if each["source"] == "real" else "synthetic"] = each["mean"]
        row |= {"gap": each["gap"], "gap_se": each["gap_se"]}  # of the last, the synthetic rows
    scores = [
        {
            "learner": LEARNERS.get(learner, learner).removeprefix("a "),
            "metric": metric,
            "metric_name": _METRICS.get(metric, metric),
            **row,
        }
        for (learner, metric), row in rows.items()
    ]
    main = "r2" if found.task == "regression" else "accuracy"
    shown = [each for each in scores if each["metric"] == main]
    bars = [(each["learner"], each["real"], each["synthetic"]) for each in shown]
    words = "; ".join(
        f"{name}: real {real:.3f}, synthetic {synthetic:.3f}" for name, real, synthetic in bars
    )
    notes = list(dict.fromkeys(note for note in found.efficacy["note"] if note))
    return {
        "main": _METRICS[main],
        "shown": shown,
        "bars": bars,
        "words": words,
        "guess": found.guess,
        "all": scores,
        "notes": notes,
    }


# ---- likeness ----------------------------------------------------------------------------------


def _values(found: SyntheticEvaluation, *measures: str) -> list[dict[Hashable, Any]]:
    """The fidelity rows of some measures, worst first, with the held-out rows' value beside."""
    table = found.fidelity[found.fidelity["measure"].isin(measures)]
    synthetic, held = (
        table[table["source"] == source].to_dict("records") for source in (SYNTHETIC, HELD_OUT)
    )
    keys = ("measure", "column", "other_column")
    scores = {tuple(row[key] for key in keys): row["mean"] for row in held}
    for row in synthetic:
        row["held_out"] = scores.get(tuple(row[key] for key in keys), np.nan)
    return sorted(synthetic, key=lambda row: (np.isnan(row["mean"]), row["mean"]))


def _columns(found: SyntheticEvaluation, identifiers: Collection[Hashable]) -> list[_Column]:
    columns = []
    for row in _values(found, "ks", "tv"):
        chart, why = _chart(found, row["column"], identifiers)
        measure = "Kolmogorov–Smirnov" if row["measure"] == "ks" else "total variation"
        scores = row["mean"], row["held_out"]
        is_number = found.kinds[row["column"]] != "category"
        columns.append(_Column(str(row["column"]), measure, *scores, chart, is_number, why))
    return columns


def _chart(
    found: SyntheticEvaluation, column: Hashable, identifiers: Collection[Hashable]
) -> tuple[Histogram | Bars | None, str]:
    """The chart, or why there is none."""
    real, synthetic = found.train[column], found.synthetic[column]
    if not real.count() or not synthetic.count():
        return None, f"No {'synthetic' if real.count() else 'real'} row has a value."
    if column in identifiers:
        return None, "Identifier, not shown: hardly any rows share a value."
    draw: Any = category_bars if found.kinds[column] == "category" else histogram
    others = [] if found.test is None else [found.test[column]]
    chart = draw(real, synthetic, others, least=found.least_rows)
    return chart, "" if chart else f"Not shown: too few values that {found.least_rows} rows share."


def _column_table(found: SyntheticEvaluation) -> list[dict[str, Any]]:
    """All measures of each column, in the table's order."""
    parts = {
        "shape": ("ks", "tv"),
        "wasserstein": ("wasserstein",),
        "coverage": ("range_coverage", "category_coverage"),
        "adherence": ("range_adherence", "category_adherence"),
        "missing": ("missing_share",),
    }
    scores = {
        part: {row["column"]: row["mean"] for row in _values(found, *measures)}
        for part, measures in parts.items()
    }
    return [
        {"name": str(column), **{part: scores[part].get(column, np.nan) for part in parts}}
        for column in found.train.columns
    ]


def _heat(found: SyntheticEvaluation, identifiers: Collection[Hashable]) -> dict[str, Any] | None:
    """Associations of the real columns and of the synthetic ones; of many columns, the worst."""
    # an identifier goes with every column, whatever the rows are
    columns: list[Hashable] = [name for name in found.train if name not in identifiers]
    if len(columns) < 2:
        return None
    left_out = len(columns) - _MAPPED
    if left_out > 0:
        columns = _worst_columns(found, columns)
    maps = [associations(table, columns, found.kinds) for table in (found.train, found.synthetic)]
    names = [str(column) for column in columns]
    labels = [shortened(name, _NAMES) for name in names]
    return {
        "labels": labels,
        "room": 12 + round(max(map(text_width, labels))),  # beside the maps, in SVG units
        "real": _cells(maps[0]),
        "synthetic": _cells(maps[1]),
        "real_words": _strongest(maps[0], names),
        "synthetic_words": _strongest(maps[1], names),
        "left_out": max(left_out, 0),
        "shown": len(columns),
    }


def _worst_columns(found: SyntheticEvaluation, columns: Sequence[Hashable]) -> list[Hashable]:
    """The columns whose pairs are met worst on average, in the table's order."""
    scores: dict[Hashable, list[float]] = {column: [] for column in columns}
    for row in _values(found, "correlation", "contingency"):
        for end in {row["column"], row["other_column"]} & scores.keys():  # the map has not all
            scores[end].append(row["mean"])
    means = {c: float(np.mean(each)) if each else np.nan for c, each in scores.items()}
    worst = sorted(columns, key=lambda column: (np.isnan(means[column]), means[column]))
    return [column for column in columns if column in worst[:_MAPPED]]


def _cells(values: np.ndarray) -> list[list[float | None]]:
    return [[None if np.isnan(value) else float(value) for value in row] for row in values]


def _strongest(values: np.ndarray, names: Sequence[str]) -> str:
    """The strongest associations in words."""
    i, j = np.tril_indices(len(values), -1)
    strengths = np.nan_to_num(np.abs(values[i, j]))
    order = np.argsort(-strengths, kind="stable")[:5]
    return "Strongest: " + "; ".join(
        f"{names[j[k]]} and {names[i[k]]} {values[i[k], j[k]]:.2f}" for k in order if strengths[k]
    )


def _worst_pairs(
    found: SyntheticEvaluation, identifiers: Collection[Hashable]
) -> list[dict[Hashable, Any]]:
    rows = _values(found, "correlation", "contingency")
    ends = ("column", "other_column")
    return [row for row in rows if not any(row[end] in identifiers for end in ends)][:_PAIRS]


def _row_scores(found: SyntheticEvaluation) -> list[dict[str, Any]]:
    """Return the scores of whole rows: detection, support, which values are missing together."""
    rows: list[dict[str, Any]] = []
    table = found.detection
    areas = table.set_index(["learner", "source"])[["mean", "se"]]
    for learner in sorted(table["learner"].unique(), key=lambda name: name != C2ST):
        words = "0.5 is chance, 1 always (area under the ROC curve, cross-validated); "
        words += "the verdict goes by it" if learner == C2ST else "blind to what is between columns"
        row: dict[str, Any] = {
            "name": f"Told from real rows by {LEARNERS[learner]}",
            "words": words,
        }
        for key, column, source in (
            ("value", "mean", SYNTHETIC),
            ("error", "se", SYNTHETIC),
            ("held_out", "mean", HELD_OUT),
        ):
            row[key] = areas[column].get((learner, source), np.nan)
        rows.append(row)
    for measure, name, words in (
        ("alpha_precision", "Alpha-precision", "1 if synthetic rows lie where real ones do"),
        ("beta_recall", "Beta-recall", "1 if they lie wherever real ones do"),
        ("missing_pattern", "Missing values", "1 if the same columns are missing together"),
    ):
        for each in _values(found, measure):
            row = {"name": name, "words": words, "value": each["mean"], "error": np.nan}
            rows.append(row | {"held_out": each["held_out"]})
    return rows


# ---- privacy -----------------------------------------------------------------------------------


def _privacy(found: SyntheticEvaluation) -> list[dict[str, Any]] | None:
    if found.privacy is None:
        return None
    values = {row["measure"]: row for row in found.privacy.to_dict("records")}
    return [
        {
            "name": name,
            "words": words,
            "value": values[measure]["mean"],
            "reference": values[measure]["reference"],
        }
        for measure, (name, words) in _PRIVACY.items()
    ]
