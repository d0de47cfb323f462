"""The page of a synthetic table's evaluation."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from combutab._version import __version__
from combutab.core.metrics import METRICS, Metric
from combutab.reports import _findings
from combutab.reports._attacks import ATTRIBUTES, MEMBERSHIP, SINGLING_OUT
from combutab.reports._charts import Chart, category_bars, histogram, shorten_middle
from combutab.reports._findings import C2ST, HELD_OUT, LEARNERS, SYNTHETIC, best_learner
from combutab.reports._page import inline_svg, number, render, svg_style
from combutab.reports._synthetic import SyntheticEvaluation
from combutab.reports._yardsticks import associations

_FIRST = 12  # columns that are drawn before the fold
_MAPPED = 25  # columns of a heat map
_PAIRS = 10  # pairs in the table of the worst
_ALIKE = 0.1  # association by which maps may differ and look the same
_NAME = 18  # letters of a name at a heat map


@dataclass(frozen=True)
class ColumnPart:
    """One column's part of the page."""

    name: str
    score: float
    held_out: float  # that of the held-out real rows
    chart: Chart | None
    why: str  # there is no chart
    table: str = ""  # of a database

    @property
    def picture(self) -> Any:
        """The histogram as SVG, if there is one."""
        if self.chart is None or self.chart.outlines is None:
            return ""
        name = f"{self.table}.{self.name}" if self.table else self.name
        title = f"{name}: real and synthetic values"
        return inline_svg(self.chart.outlines.draw(), title, self.chart.outlines.words)


def synthetic_page(evaluation: SyntheticEvaluation) -> str:
    """Render the evaluation as one self-contained HTML page."""
    columns = column_parts(evaluation)
    sections = [("rows", "Whole rows"), ("columns", "Columns"), ("pairs", "Pairs of columns")]
    if evaluation.efficacy is not None or evaluation.targets is not None:
        sections.insert(0, ("utility", "Utility"))
    sections += [("privacy", "Privacy"), ("made", "Settings"), ("reading", "How to read")]
    attacks, more_attacks = attack_rows(evaluation)
    with svg_style():
        return render(
            "synthetic.html",
            version=__version__,
            sections=sections,
            found=evaluation,
            findings=evaluation.findings,
            efficacy=_efficacy(evaluation),
            targets=_target_rows(evaluation),
            columns=columns[:_FIRST],
            more_columns=columns[_FIRST:],
            column_table=_column_table(evaluation),
            heat=_heat(evaluation),
            pairs=_worst_pairs(evaluation),
            rows=_row_scores(evaluation),
            parts=_part_rows(evaluation),
            privacy=distance_rows(evaluation),
            attacks=attacks,
            more_attacks=more_attacks,
            limits=_findings,
            least=evaluation.least_rows,
        )


# ---- utility -----------------------------------------------------------------------------------


def _efficacy(evaluation: SyntheticEvaluation) -> dict[str, Any] | None:
    """The main score of each learner, bars of it, and all other scores."""
    if evaluation.efficacy is None:
        return None
    rows: dict[tuple[str, str], dict[str, Any]] = {}  # by learner and metric
    for score in evaluation.efficacy.to_dict("records"):
        row = rows.setdefault((score["learner"], score["metric"]), {})
        row["real" if score["source"] == "real" else "synthetic"] = score["mean"]
        row |= {"gap": score["gap"], "gap_se": score["gap_se"]}  # of the last, the synthetic rows
    scores = [
        {
            "learner": LEARNERS.get(learner, learner).removeprefix("a "),
            "metric": metric,
            "metric_name": _with_unit(METRICS[str(evaluation.task)][metric]),
            **row,
        }
        for (learner, metric), row in rows.items()
    ]
    main = METRICS[str(evaluation.task)][str(evaluation.metric)]
    main_scores = [score for score in scores if score["metric"] == main.name]
    best = best_learner(evaluation.efficacy, main)
    top = max([1.0, *(row[kind] for row in main_scores for kind in ("real", "synthetic"))])
    noted = evaluation.efficacy[evaluation.efficacy["note"] != ""].drop_duplicates(
        ["learner", "source"]
    )
    notes = [
        f"{LEARNERS.get(row['learner'], row['learner'])}, trained on the {row['source']} rows: "
        f"{row['note']}."
        for row in noted.to_dict("records")
    ]
    return {
        "main": _with_unit(main),
        "best": next(
            row
            for row in main_scores
            if row["learner"] == LEARNERS.get(best, best).removeprefix("a ")
        ),
        "top": float(np.nan_to_num(top, nan=1.0)),
        "shown": main_scores,
        "guess": evaluation.guess,
        "all": scores,
        "notes": notes,
    }


def _target_rows(evaluation: SyntheticEvaluation) -> list[dict[Hashable, Any]]:
    """The scores for each column as the target, with titles of metrics and levels in words."""
    rows = [] if evaluation.targets is None else evaluation.targets.to_dict("records")
    for row in rows:
        if row["metric"]:
            row["metric"] = METRICS[row["task"]][row["metric"]].title
        row["level"] = "not known" if row["level"] == "unknown" else row["level"]
    return rows


def _with_unit(metric: Metric) -> str:
    return f"{metric.title}, in {metric.unit}" if metric.unit else metric.title


# ---- fidelity ----------------------------------------------------------------------------------


def _fidelity_rows(evaluation: Any, *measures: str) -> list[dict[Hashable, Any]]:
    """The fidelity rows of some measures, worst first, with the value of the held-out rows."""
    table = evaluation.fidelity[evaluation.fidelity["measure"].isin(measures)]
    synthetic, held_out = (
        table[table["source"] == source].to_dict("records") for source in (SYNTHETIC, HELD_OUT)
    )
    keys = ("measure", "column", "other_column")
    scores = {tuple(row[key] for key in keys): row["mean"] for row in held_out}
    for row in synthetic:
        row["held_out"] = scores.get(tuple(row[key] for key in keys), np.nan)
    return sorted(synthetic, key=lambda row: (np.isnan(row["mean"]), row["mean"]))


def column_parts(evaluation: Any, table: str = "") -> list[ColumnPart]:
    columns = []
    for row in _fidelity_rows(evaluation, "ks", "tv"):
        chart, why = _chart_or_reason(evaluation, row["column"])
        columns.append(
            ColumnPart(str(row["column"]), row["mean"], row["held_out"], chart, why, table)
        )
    return columns


def _chart_or_reason(evaluation: Any, column: Hashable) -> tuple[Chart | None, str]:
    """The chart of a column, or the reason why it has none."""
    real, synthetic = evaluation.train[column], evaluation.synthetic[column]
    if not real.count() or not synthetic.count():
        return None, f"No {'synthetic' if real.count() else 'real'} row has a value."
    draw: Any = category_bars if evaluation.kinds[column] == "category" else histogram
    other_columns = [] if evaluation.test is None else [evaluation.test[column]]
    chart = draw(real, synthetic, other_columns, min_rows=evaluation.least_rows)
    return (
        chart,
        "" if chart else f"Not shown: too few values are shared by {evaluation.least_rows} rows.",
    )


def _column_table(evaluation: SyntheticEvaluation) -> list[dict[str, Any]]:
    """All measures of each column, in the table's order."""
    parts = {
        "shape": ("ks", "tv"),
        "wasserstein": ("wasserstein",),
        "coverage": ("range_coverage", "category_coverage"),
        "adherence": ("range_adherence", "category_adherence"),
        "missing": ("missing_share",),
    }
    scores = {
        part: {row["column"]: row["mean"] for row in _fidelity_rows(evaluation, *measures)}
        for part, measures in parts.items()
    }
    return [
        {"name": str(column), **{part: scores[part].get(column, np.nan) for part in parts}}
        for column in evaluation.train.columns
        if column not in evaluation.identifiers
    ]


def _heat(evaluation: SyntheticEvaluation) -> dict[str, Any] | None:
    """Associations of the real columns and of the synthetic ones; of many columns, the worst."""
    columns: list[Hashable] = [
        name for name in evaluation.train if name not in evaluation.identifiers
    ]
    if len(columns) < 2:
        return None
    left_out = len(columns) - _MAPPED
    if left_out > 0:
        columns = _worst_columns(evaluation, columns)
    maps = [
        associations(table, columns, evaluation.kinds)
        for table in (evaluation.train, evaluation.synthetic)
    ]
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


def _worst_columns(evaluation: SyntheticEvaluation, columns: Sequence[Hashable]) -> list[Hashable]:
    """The columns whose pairs are met worst on average, in the table's order."""
    scores: dict[Hashable, list[float]] = {column: [] for column in columns}
    for row in _fidelity_rows(evaluation, "correlation", "contingency"):
        for end in {row["column"], row["other_column"]} & scores.keys():  # the map has not all
            scores[end].append(row["mean"])
    means = {c: float(np.mean(values)) if values else np.nan for c, values in scores.items()}
    worst = sorted(columns, key=lambda column: (np.isnan(means[column]), means[column]))
    return [column for column in columns if column in worst[:_MAPPED]]


def _greatest_difference(
    real: np.ndarray, synthetic: np.ndarray, names: Sequence[str]
) -> tuple[str, str, float, float] | None:
    """Where the two maps differ most: two names, and both values; None where they agree."""
    i, j = np.tril_indices(len(names), -1)
    # a constant column has no association with others
    real, synthetic = (np.nan_to_num(association[i, j]) for association in (real, synthetic))
    differences = np.abs(real - synthetic)
    k = int(differences.argmax())
    if differences[k] < _ALIKE:
        return None
    return names[j[k]], names[i[k]], float(real[k]), float(synthetic[k])


def _worst_pairs(evaluation: SyntheticEvaluation) -> list[dict[Hashable, Any]]:
    return _fidelity_rows(evaluation, "correlation", "contingency")[:_PAIRS]


def _row_scores(evaluation: SyntheticEvaluation) -> list[dict[str, Any]]:
    """Return the scores of whole rows: detection, support, which values are missing together."""
    areas = evaluation.detection.set_index(["learner", "source"])[["mean", "se"]]
    areas = areas.map(lambda area: "–" if np.isnan(area) else f"{area:.3f}")
    rows: list[dict[str, Any]] = []
    for learner in sorted(evaluation.detection["learner"].unique(), key=lambda name: name != C2ST):
        value, held_out = (areas["mean"].get((learner, s), "–") for s in (SYNTHETIC, HELD_OUT))
        error = areas["se"].get((learner, SYNTHETIC), "–")
        what = {"measure": "c2st" if learner == C2ST else "detection", "learner": LEARNERS[learner]}
        rows.append({**what, "value": value, "error": error, "held_out": held_out})
    for measure in ("alpha_precision", "beta_recall", "missing_pattern"):
        for row in _fidelity_rows(evaluation, measure):
            value, held_out = (_percent(row[key]) for key in ("mean", "held_out"))
            rows.append({"measure": measure, "value": value, "error": "–", "held_out": held_out})
    return rows


def _part_rows(evaluation: SyntheticEvaluation) -> list[dict[str, Any]]:
    """ROC AUCs of the parts of the two-sample test, with bars from 0.5 to 1."""
    table = evaluation.detection_parts
    is_synthetic = table["source"] == SYNTHETIC
    held_out = table[~is_synthetic].set_index("part")["auc"]
    rows: list[dict[str, Any]] = []
    for part in table[is_synthetic].to_dict("records"):
        control = held_out.get(part["part"], np.nan)
        names = {
            "all": "All columns",
            "shuffled": "All columns, each shuffled",
            "column": str(part["column"]),
            "pair": f"{part['column']} and {part['other_column']}",
        }
        bars = [np.nan_to_num(2 * (area - 0.5)) for area in (control, part["auc"])]
        rows.append(
            {"part": part["part"], "name": names[part["part"]], "bars": bars}
            | {name: number(part[name]) for name in ("auc", "se", "dependence")}
            | {"held_out": number(control)}
        )
    return rows


def _percent(share: float) -> str:
    return "–" if np.isnan(share) else f"{100 * share:.1f} %"


# ---- privacy -----------------------------------------------------------------------------------


def distance_rows(evaluation: Any) -> dict[str, list[str]] | None:
    """The value and the reference of each measure."""
    if evaluation.privacy is None:
        return None
    table = evaluation.privacy.set_index("measure")[["mean", "reference"]]
    return {
        measure: list(map(_percent if measure == "share_closer_to_train" else number, row))
        for measure, row in zip(table.index, table.to_numpy().tolist(), strict=True)
    }


_RATES = {
    "auc": "ROC AUC",
    "tpr@1%": "true positive rate at 1 % false positives",
    "tpr@10%": "true positive rate at 10 % false positives",
}


def attack_rows(
    evaluation: Any,
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The attacks that the verdict depends on, and all others."""
    main: list[dict[str, str]] = []
    details: list[dict[str, str]] = []
    if MEMBERSHIP in evaluation.attacks:
        for row in evaluation.attacks[MEMBERSHIP].to_dict("records"):
            is_worst = row["attack"] == "worst"
            if np.isnan(row["value"]):  # there are too few held-out rows
                continue
            name = row["note"].split(";")[0] if is_worst else row["attack"]
            name = f"{MEMBERSHIP}, {'strongest: ' * is_worst}{name.replace('_', ' ')}"
            group = "all rows" if row["rows"] == "all" else "the most isolated tenth"
            words = f"{_RATES[row['measure']]}, {group}"
            is_main = is_worst and row["measure"] != "auc"
            digits = number if row["measure"] == "auc" else _percent
            (main if is_main else details).append(
                _attack_row(name, words, row["value"], row, digits)
            )
    if ATTRIBUTES in evaluation.attacks:
        table = evaluation.attacks[ATTRIBUTES].rename(columns={"holdout_success": "reference"})
        for row in table.to_dict("records"):
            is_worst = row["column"] is None
            column = table["column"].iloc[int(table["advantage"].iloc[:-1].argmax())]
            name = f"{ATTRIBUTES}, {'worst: ' * is_worst}{column if is_worst else row['column']}"
            words = "right guesses; the interval is that of the difference from held-out rows"
            (main if is_worst else details).append(_attack_row(name, words, row["success"], row))
    if SINGLING_OUT in evaluation.attacks:
        table = evaluation.attacks[SINGLING_OUT].rename(columns={"holdout_success": "reference"})
        for row in table.assign(low=np.nan, high=np.nan).to_dict("records"):
            words = f"{row['n_predicates']:,} predicates that isolate one row"
            main.append(
                _attack_row(f"{SINGLING_OUT}, {row['predicates']}", words, row["success"], row)
            )
    return main, details


def _attack_row(
    name: str, words: str, success: float, row: Mapping[Hashable, Any], digits: Any = _percent
) -> dict[str, str]:
    interval = "–" if np.isnan(row["low"]) else f"{digits(row['low'])} to {digits(row['high'])}"
    return {
        "attack": f"{name[0].upper()}{name[1:]}",
        "measure": words,
        "success": digits(success),
        "interval": interval,
        "reference": digits(row["reference"]),
        "pvalue": "< 0.001" if row["pvalue"] < 0.001 else number(row["pvalue"]),
    }
