"""The activations on the AI Feynman equations: 120 laws of physics, one data set each.

    python -m benchmarks.papers.combu.feynman [--quick] [--activations all] [--out FOLDER]

A claim about fitting mathematical expressions is best tested on many of them: here the equation
is the unit, so that Friedman's and Nemenyi's tests have 120 of them to rest on. 5,000 rows an
equation and 200 epochs, as for the CombU paper's four formulas, but its smaller network.
"""

from __future__ import annotations

from functools import partial

from benchmarks.papers.combu.expected import Table
from benchmarks.papers.combu.report import write_page
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import Protocol, Recipe, combu_study
from combutab.datasets import list_feynman

TABLE = Table("feynman", "The activations on the AI Feynman equations", {})
PROTOCOL = Protocol("seeds", n_splits=1, n_seeds=3)


def sources(quick: bool, data_home: str | None) -> list[Source]:
    """All equations; quick: three of them, 200 rows."""
    names = list_feynman(data_home)["name"]
    names, n_samples = (names[:3], 200) if quick else (names, 5000)
    return [Source("feynman", name, "regression", n_samples, data_home=data_home) for name in names]


STUDY = combu_study(
    TABLE,
    __doc__.splitlines()[0],
    sources,
    partial(write_page, TABLE, ()),
    default=(PROTOCOL.name,),
    protocols=(PROTOCOL,),
    recipe=Recipe(hidden=(128, 128), epochs=200),
)

if __name__ == "__main__":
    STUDY.main()
