"""The CombU paper's Table 5 and Figure 2: four classification sets of OpenML.

    python -m benchmarks.papers.combu.table5_classification [--quick] [--activations all]
        [--out FOLDER]

The data come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

import argparse

import pandas as pd

from benchmarks.papers.combu.expected import TABLES
from benchmarks.papers.combu.report import (
    TablePage,
    judge_advantage,
    judge_cells,
    judge_ranks,
    write_figure2,
)
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import combu_study, experiment
from benchmarks.papers.common.claims import Claim
from benchmarks.papers.common.page import Page

DATA = ("breast-w", "diabetes", "wdbc", "PhishingWebsites")
CLAIMS = (
    Claim("Table 5", "its cells", judge_cells),
    Claim("Table 5", "CombU has the best mean rank by both metrics", judge_ranks),
    Claim("Figure 2", "CombU has a significant advantage", judge_advantage),
)
PAGE = TablePage("table5_classification", 5, CLAIMS)


def sources(quick: bool, data_home: str | None) -> list[Source]:
    """The four sets; quick: two of them, 300 rows."""
    names, limit = (DATA[:2], 300) if quick else (DATA, None)
    return [
        Source("openml", name, "classification", limit=limit, data_home=data_home) for name in names
    ]


def write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    """Fill the page; with both tables' rows, draw Figure 2."""
    PAGE(page, arguments, rows)
    other = experiment("table6_regression").store(arguments.out)
    if other.path.exists():
        write_figure2(arguments.out, rows, other.read())


STUDY = combu_study(PAGE.name, TABLES[5].title, __doc__.splitlines()[0], sources, write)

if __name__ == "__main__":
    STUDY.main()
