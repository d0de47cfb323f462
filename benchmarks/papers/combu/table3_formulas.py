"""The CombU paper's Table 3, Figure 1 and Figures 3 to 6: four formulas, both tasks.

python -m benchmarks.papers.combu.table3_formulas [--quick] [--activations all] [--out FOLDER]
"""

from __future__ import annotations

from functools import partial

from benchmarks.common.claims import Claim
from benchmarks.papers.combu.expected import TABLES
from benchmarks.papers.combu.report import judge_cells, judge_lines, judge_ranks, write_page
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import combu_study

TABLE = TABLES[3]
FORMULAS = tuple(TABLE.data)
CLAIMS = (
    Claim("Table 3", "its cells", judge_cells),
    Claim("Table 3", "CombU has the best mean rank by all four metrics", judge_ranks),
    Claim("Table 3", "CombU is best in 10 of 16 lines", partial(judge_lines, 10)),
)


def sources(quick: bool, data_home: str | None) -> list[Source]:
    """The four formulas as regression and as classification; quick: two of them, 200 rows."""
    names, n_samples = (FORMULAS[:2], 200) if quick else (FORMULAS, 5000)
    tasks = ("regression", "classification")
    return [Source("formula", name, task, n_samples) for name in names for task in tasks]


STUDY = combu_study(
    TABLE,
    __doc__.splitlines()[0],
    sources,
    partial(write_page, TABLE, CLAIMS),
    default=("paper",),
    curve_block=2,
)

if __name__ == "__main__":
    STUDY.main()
