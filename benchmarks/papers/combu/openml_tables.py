"""The CombU paper's Tables 5 and 6, four sets of OpenML each, and Figure 2, which is of both."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from benchmarks.common.claims import Claim
from benchmarks.common.command import Study
from benchmarks.common.page import Page
from benchmarks.outputs import draw, write_picture
from benchmarks.papers.combu.expected import TABLES, Table
from benchmarks.papers.combu.figures import normalised, plot_radar
from benchmarks.papers.combu.report import judge_advantage, judge_cells, judge_ranks, write_page
from benchmarks.papers.combu.report_numbers import make_cells, sort_cells
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import combu_study, experiment

BOTH = Table("figure2_radar", "Figure 2", TABLES[5].data | TABLES[6].data)


def openml_study(number: int, task: str, description: str) -> Study:
    """The study of one of the two tables."""
    table, other = TABLES[number], TABLES[11 - number]
    claims = (
        Claim(f"Table {number}", "its cells", judge_cells),
        Claim(f"Table {number}", "CombU has the best mean rank by both metrics", judge_ranks),
        Claim("Figure 2", "CombU has a significant advantage", judge_advantage),
    )

    def sources(quick: bool, data_home: str | None) -> list[Source]:
        names, limit = (list(table.data)[:2], 300) if quick else (table.data, None)
        return [Source("openml", name, task, limit=limit, data_home=data_home) for name in names]

    def write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
        write_page(table, claims, page, arguments, rows)
        store = experiment(other.name).store(arguments.out)
        if store.path.exists():
            write_figure2(arguments.out, rows, store.read())

    return combu_study(table, description, sources, write)


def write_figure2(out: Path, *tables: pd.DataFrame) -> None:
    """Draw the paper's Figure 2 from the rows of both tables, where 3 data sets are whole.

    The paper's own cannot be drawn beside it: cells of all but one of its data sets are lost.
    """
    cells = sort_cells(make_cells(pd.concat(tables)), BOTH)
    scores = normalised(cells[cells["protocol"] == cells["protocol"].iloc[0]], BOTH.data)
    if len(scores) >= 3:
        write_picture(out / BOTH.name, *draw(plot_radar({"ours": scores})))
