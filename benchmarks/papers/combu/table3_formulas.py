"""The CombU paper's Table 3, Figure 1 and Figures 3 to 6: four formulas, both tasks.

python -m benchmarks.papers.combu.table3_formulas [--quick] [--activations all] [--out FOLDER]
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study_command import StudyCommand

FORMULAS = ("gs", "ar", "ns", "bs")


def sources(quick: bool, data_home: str | None) -> list[Source]:
    """The four formulas as regression and as classification; quick: two of them, 200 rows."""
    names, n_samples = (FORMULAS[:2], 200) if quick else (FORMULAS, 5000)
    return [
        Source("formula", name, task, n_samples)
        for name in names
        for task in ("regression", "classification")
    ]


def report(rows: pd.DataFrame, folder: Path, command: str) -> None:
    """Our table, the paper's, and what can be told apart."""
    from benchmarks.papers.combu.report import write_report

    write_report(rows, table=3, out=folder, name="table3_formulas", command=command)


COMMAND = StudyCommand(
    "table3_formulas",
    __doc__.splitlines()[0],
    sources,
    report,
    default=("paper",),
    curve_block=2,
)

if __name__ == "__main__":
    COMMAND.main()
