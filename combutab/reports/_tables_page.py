"""The page of a synthetic database's evaluation."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from combutab._version import __version__
from combutab.plotting import plot_schema
from combutab.reports import _findings
from combutab.reports._charts import histogram
from combutab.reports._findings import HELD_OUT, REAL, SYNTHETIC
from combutab.reports._page import inline_svg, number, render, svg_style
from combutab.reports._synthetic_page import (
    ColumnPart,
    attack_rows,
    column_parts,
    distance_rows,
)
from combutab.reports._tables import TablesEvaluation, two_sample_tests

_PAIRS = 10  # pairs of columns in the table of the worst
_MOST_COLUMNS = 8  # of a table in the picture of the schema


def tables_page(evaluation: TablesEvaluation) -> str:
    """Render the evaluation as one self-contained HTML page."""
    sections = [("keys", "Keys"), ("families", "Families"), ("pairs", "Parents and children")]
    sections += [("tables", "Tables"), ("privacy", "Privacy"), ("settings", "Settings")]
    sections += [("reading", "How to read")]
    with svg_style():
        return render(
            "tables.html",
            version=__version__,
            sections=sections,
            found=evaluation,
            schema=_schema(evaluation),
            keys=_key_rows(evaluation),
            children=_children_parts(evaluation),
            tests=_test_rows(evaluation),
            pairs=_worst_pairs(evaluation),
            tables={name: column_parts(table, name) for name, table in evaluation.tables.items()},
            privacy=[
                (name, person, distance_rows(person), *attack_rows(person))
                for name, person in evaluation.privacy.items()
            ],
            limits=_findings,
            has_test=HELD_OUT in evaluation.relations["source"].to_numpy(),
        )


def _schema(evaluation: TablesEvaluation) -> Any:
    figure = plot_schema(evaluation.columns, evaluation.keys, max_columns=_MOST_COLUMNS)
    words = "; ".join(map(str, evaluation.keys)) or "There are no keys."
    return inline_svg(figure, "Tables and foreign keys", words, kind="fixed")


def _key_rows(evaluation: TablesEvaluation) -> list[dict[str, Any]]:
    """The figures of each key: percentages of synthetic and of real rows."""
    table = evaluation.relations
    rows = []
    for key, figures in table[table["aspect"] == "keys"].groupby("key", sort=False):
        values = figures.pivot_table(index="measure", columns="source", values="value")
        shares = (100 * values[[SYNTHETIC, REAL]]).map("{:.1f} %".format)
        rows.append({"key": key, **{name: list(shares.loc[name]) for name in shares.index}})
    return rows


def _children_parts(evaluation: TablesEvaluation) -> list[ColumnPart]:
    """The distribution of the number of children of each key, as a chart."""
    table = evaluation.relations
    matches = table[table["measure"] == "ks"].set_index(["key", "source"])["value"]
    parts = []
    for key, counts in evaluation.n_children.items():
        columns = {role: pd.Series(n, dtype=float) for role, n in counts.items()}
        least_rows = min((table.least_rows for table in evaluation.tables.values()), default=1)
        held_out_columns = [columns["test"]] if "test" in columns else []
        chart = histogram(
            columns["real"], columns["synthetic"], held_out_columns, min_rows=least_rows
        )
        why = "" if chart else f"Not shown: too few numbers are shared by {least_rows} parents."
        match, held_out = (matches.get((key, source), np.nan) for source in (SYNTHETIC, HELD_OUT))
        parts.append(ColumnPart(key, match, held_out, chart, why))
    return parts


def _test_rows(evaluation: TablesEvaluation) -> list[dict[str, Any]]:
    """The two-sample tests, with bars from 0.5 to 1."""
    rows = []
    for test in two_sample_tests(evaluation.relations):
        areas = [test.get(source, (np.nan,) * 3)[:2] for source in (HELD_OUT, SYNTHETIC)]
        (held_out, _), (area, error) = areas
        bars = [np.nan_to_num(2 * (value - 0.5)) for value in (held_out, area)]
        texts = {"auc": number(area), "se": number(error), "held_out": number(held_out)}
        rows.append({"name": test["label"], "bars": bars, **texts})
    return rows


def _worst_pairs(evaluation: TablesEvaluation) -> list[dict[Hashable, Any]]:
    """The columns of a parent and a child whose association matches least."""
    table = evaluation.relations[evaluation.relations["aspect"] == "trends"]
    scores = table.pivot_table(
        index=["key", "column", "other_column", "measure"], columns="source", values="value"
    )
    if SYNTHETIC not in scores:
        return []
    worst = scores.reindex(columns=[SYNTHETIC, HELD_OUT]).nsmallest(_PAIRS, SYNTHETIC)
    return worst.set_axis(["score", "held_out"], axis=1).reset_index().to_dict("records")
