"""The CombU paper's Table 6 and Figure 2: four regression sets of OpenML.

    python -m benchmarks.papers.combu.table6_regression [--quick] [--activations all] [--out FOLDER]

The data come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study_command import StudyCommand, read_rows

DATA = ("autoMpg", "boston", "california_housing", "wine_quality")


def sources(quick: bool, data_home: str | None) -> list[Source]:
    """The four sets; quick: two of them, 300 rows."""
    names, limit = (DATA[:2], 300) if quick else (DATA, None)
    return [
        Source("openml", name, "regression", limit=limit, data_home=data_home) for name in names
    ]


def report(rows: pd.DataFrame, folder: Path, command: str) -> None:
    """Our table, the paper's, and what can be told apart; with both tables, Figure 2."""
    from benchmarks.papers.combu.report import write_figure2, write_report

    write_report(rows, table=6, out=folder, name="table6_regression", command=command)
    other = folder / "table5_classification.csv"
    if other.exists():
        write_figure2(pd.concat([rows, read_rows(other)]), out=folder)


COMMAND = StudyCommand("table6_regression", __doc__.splitlines()[0], sources, report)

if __name__ == "__main__":
    COMMAND.main()
