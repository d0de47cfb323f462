"""The page of a synthetic table's evaluation."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from combutab._version import __version__
from combutab.core.metrics import METRICS, Metric
from combutab.reports import _findings
from combutab.reports._charts import Chart, category_bars, histogram, shorten_middle
from combutab.reports._findings import C2ST, HELD_OUT, LEARNERS, SYNTHETIC, best_learner
from combutab.reports._page import inline_svg, number, render, svg_style
from combutab.reports._synthetic import SyntheticEvaluation
from combutab.reports._yardsticks import associations

_FIRST = 12  # columns that are drawn before the fold
_MAPPED = 25  # columns of a heat map
_PAIRS = 10  # pairs in the table of the worst
_ALIKE = 0.1  # association by which maps may differ and look the same
_NAME = 18  # letters of a name beside a heat map


@dataclass(frozen=True)
class _Column:
    """One column's part of the page."""

    name: str
    score: float
    held_out: float  # that of the held-out real rows
    chart: Chart | None
    why: str  # there is no chart

    @property
    def picture(self) -> Any:
        """The histogram as SVG, if there is one."""
        if self.chart is None or self.chart.outlines is None:
            return ""
        title = f"{self.name}: real and synthetic values"
        return inline_svg(self.chart.outlines.draw(), title, self.chart.outlines.words)


def synthetic_page(found: SyntheticEvaluation) -> str:
    """One self-contained HTML page of what was found."""
    columns = _column_parts(found)
    sections = [("rows", "Whole rows"), ("columns", "Columns"), ("pairs", "Pairs of columns")]
    if found.efficacy is not None:
        sections.insert(0, ("utility", "Utility"))
    sections += [("privacy", "Privacy"), ("made", "Settings"), ("reading", "How to read")]
    with svg_style():
        return render(
            "synthetic.html",
            version=__version__,
            sections=sections,
            found=found,
            findings=found.findings,
            efficacy=_efficacy(found),
            columns=columns[:_FIRST],
            more_columns=columns[_FIRST:],
            column_table=_column_table(found),
            heat=_heat(found),
            pairs=_worst_pairs(found),
            rows=_row_scores(found),
            privacy=_privacy(found),
            limits=_findings,
            least=found.least_rows,
        )


# ---- utility -----------------------------------------------------------------------------------


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
            "metric_name": _with_unit(METRICS[str(found.task)][metric]),
            **row,
        }
        for (learner, metric), row in rows.items()
    ]
    main = METRICS[str(found.task)][str(found.metric)]
    shown = [each for each in scores if each["metric"] == main.name]
    best = best_learner(found.efficacy, main)
    top = max([1.0, *(row[kind] for row in shown for kind in ("real", "synthetic"))])
    noted = found.efficacy[found.efficacy["note"] != ""].drop_duplicates(["learner", "source"])
    notes = [
        f"{LEARNERS.get(row['learner'], row['learner'])}, trained on the {row['source']} rows: "
        f"{row['note']}."
        for row in noted.to_dict("records")
    ]
    return {
        "main": _with_unit(main),
        "best": next(
            row for row in shown if row["learner"] == LEARNERS.get(best, best).removeprefix("a ")
        ),
        "top": float(np.nan_to_num(top, nan=1.0)),
        "shown": shown,
        "guess": found.guess,
        "all": scores,
        "notes": notes,
    }


def _with_unit(metric: Metric) -> str:
    return f"{metric.title}, in {metric.unit}" if metric.unit else metric.title


# ---- fidelity ----------------------------------------------------------------------------------


def _fidelity_rows(found: SyntheticEvaluation, *measures: str) -> list[dict[Hashable, Any]]:
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


def _column_parts(found: SyntheticEvaluation) -> list[_Column]:
    columns = []
    for row in _fidelity_rows(found, "ks", "tv"):
        chart, why = _chart_or_reason(found, row["column"])
        columns.append(_Column(str(row["column"]), row["mean"], row["held_out"], chart, why))
    return columns


def _chart_or_reason(found: SyntheticEvaluation, column: Hashable) -> tuple[Chart | None, str]:
    """The chart, or why there is none."""
    real, synthetic = found.train[column], found.synthetic[column]
    if not real.count() or not synthetic.count():
        return None, f"No {'synthetic' if real.count() else 'real'} row has a value."
    draw: Any = category_bars if found.kinds[column] == "category" else histogram
    others = [] if found.test is None else [found.test[column]]
    chart = draw(real, synthetic, others, min_rows=found.least_rows)
    return (
        chart,
        "" if chart else f"Not shown: too few values are shared by {found.least_rows} rows.",
    )


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
        part: {row["column"]: row["mean"] for row in _fidelity_rows(found, *measures)}
        for part, measures in parts.items()
    }
    return [
        {"name": str(column), **{part: scores[part].get(column, np.nan) for part in parts}}
        for column in found.train.columns
        if column not in found.identifiers
    ]


def _heat(found: SyntheticEvaluation) -> dict[str, Any] | None:
    """Associations of the real columns and of the synthetic ones; of many columns, the worst."""
    columns: list[Hashable] = [name for name in found.train if name not in found.identifiers]
    if len(columns) < 2:
        return None
    left_out = len(columns) - _MAPPED
    if left_out > 0:
        columns = _worst_columns(found, columns)
    maps = [associations(table, columns, found.kinds) for table in (found.train, found.synthetic)]
    names = [str(column) for column in columns]
    return {
        "labels": [shorten_middle(name, _NAME) for name in names],
        "real": maps[0].tolist(),
        "synthetic": maps[1].tolist(),
        "differs": _greatest_difference(maps[0], maps[1], names),
        "alike": _ALIKE,
        "left_out": max(left_out, 0),
        "shown": len(columns),
    }


def _worst_columns(found: SyntheticEvaluation, columns: Sequence[Hashable]) -> list[Hashable]:
    """The columns whose pairs are met worst on average, in the table's order."""
    scores: dict[Hashable, list[float]] = {column: [] for column in columns}
    for row in _fidelity_rows(found, "correlation", "contingency"):
        for end in {row["column"], row["other_column"]} & scores.keys():  # the map has not all
            scores[end].append(row["mean"])
    means = {c: float(np.mean(each)) if each else np.nan for c, each in scores.items()}
    worst = sorted(columns, key=lambda column: (np.isnan(means[column]), means[column]))
    return [column for column in columns if column in worst[:_MAPPED]]


def _greatest_difference(
    real: np.ndarray, synthetic: np.ndarray, names: Sequence[str]
) -> tuple[str, str, float, float] | None:
    """Where the two maps differ most: two names, and both values; None where they agree."""
    i, j = np.tril_indices(len(names), -1)
    differences = np.nan_to_num(np.abs(real[i, j] - synthetic[i, j]))
    k = int(differences.argmax())
    if differences[k] < _ALIKE:
        return None
    a, b = (float(np.nan_to_num(each[i[k], j[k]])) for each in (real, synthetic))
    return names[j[k]], names[i[k]], a, b


def _worst_pairs(found: SyntheticEvaluation) -> list[dict[Hashable, Any]]:
    return _fidelity_rows(found, "correlation", "contingency")[:_PAIRS]


def _row_scores(found: SyntheticEvaluation) -> list[dict[str, Any]]:
    """Return the scores of whole rows: detection, support, which values are missing together."""
    areas = found.detection.set_index(["learner", "source"])[["mean", "se"]]
    areas = areas.map(lambda area: "–" if np.isnan(area) else f"{area:.3f}")
    rows: list[dict[str, Any]] = []
    for learner in sorted(found.detection["learner"].unique(), key=lambda name: name != C2ST):
        value, held_out = (areas["mean"].get((learner, s), "–") for s in (SYNTHETIC, HELD_OUT))
        error = areas["se"].get((learner, SYNTHETIC), "–")
        what = {"measure": "c2st" if learner == C2ST else "detection", "learner": LEARNERS[learner]}
        rows.append({**what, "value": value, "error": error, "held_out": held_out})
    for measure in ("alpha_precision", "beta_recall", "missing_pattern"):
        for each in _fidelity_rows(found, measure):
            value, held_out = (_percent(each[key]) for key in ("mean", "held_out"))
            rows.append({"measure": measure, "value": value, "error": "–", "held_out": held_out})
    return rows


def _percent(share: float) -> str:
    return "–" if np.isnan(share) else f"{100 * share:.1f} %"


# ---- privacy -----------------------------------------------------------------------------------


def _privacy(found: SyntheticEvaluation) -> dict[str, list[str]] | None:
    """The value and the reference of each measure."""
    if found.privacy is None:
        return None
    table = found.privacy.set_index("measure")[["mean", "reference"]]
    return {
        measure: list(map(_percent if measure == "share_closer_to_train" else number, row))
        for measure, row in zip(table.index, table.to_numpy().tolist(), strict=True)
    }
