"""The activations on the AI Feynman equations: 120 laws of physics, one data set each.

    python -m benchmarks.papers.combu.feynman [--quick] [--activations all] [--out FOLDER]

A claim about fitting mathematical expressions is best tested on many of them: here the equation
is the unit, so that Friedman's and Nemenyi's tests have 120 of them to rest on. 5,000 rows an
equation and 200 epochs, as for the CombU paper's four formulas, but its smaller network.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import Protocol, Recipe
from benchmarks.papers.combu.study_command import StudyCommand
from combutab.datasets import list_feynman

PROTOCOL = Protocol("seeds", n_splits=1, n_seeds=3)


def sources(quick: bool, data_home: str | None) -> list[Source]:
    """All equations; quick: three of them, 200 rows."""
    names = list_feynman(data_home)["name"]
    names, n_samples = (names[:3], 200) if quick else (names, 5000)
    return [Source("feynman", name, "regression", n_samples, data_home=data_home) for name in names]


def report(rows: pd.DataFrame, folder: Path, command: str) -> None:
    """Ranks over the equations, and what can be told apart."""
    from benchmarks.papers.combu.report import write_report

    title = "The activations on the AI Feynman equations"
    write_report(rows, table=None, out=folder, name="feynman", title=title, command=command)


COMMAND = StudyCommand(
    "feynman",
    __doc__.splitlines()[0],
    sources,
    report,
    default=(PROTOCOL.name,),
    protocols=(PROTOCOL,),
    recipe=Recipe(hidden=(128, 128), epochs=200),
)

if __name__ == "__main__":
    COMMAND.main()
