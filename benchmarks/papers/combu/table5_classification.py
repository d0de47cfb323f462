"""The CombU paper's Table 5 and Figure 2: four classification sets of OpenML.

    python -m benchmarks.papers.combu.table5_classification [--quick] [--activations all]
        [--out FOLDER]

The data come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study_command import StudyCommand, read_rows

DATA = ("breast-w", "diabetes", "wdbc", "PhishingWebsites")


def sources(quick: bool, data_home: str | None) -> list[Source]:
    """The four sets; quick: two of them, 300 rows."""
    names, limit = (DATA[:2], 300) if quick else (DATA, None)
    return [
        Source("openml", name, "classification", limit=limit, data_home=data_home) for name in names
    ]


def report(rows: pd.DataFrame, folder: Path, command: str) -> None:
    """Our table, the paper's, and what can be told apart; with both tables, Figure 2."""
    from benchmarks.papers.combu.report import write_figure2, write_report

    write_report(rows, table=5, out=folder, name="table5_classification", command=command)
    other = folder / "table6_regression.csv"
    if other.exists():
        write_figure2(pd.concat([rows, read_rows(other)]), out=folder)


COMMAND = StudyCommand("table5_classification", __doc__.splitlines()[0], sources, report)

if __name__ == "__main__":
    COMMAND.main()
