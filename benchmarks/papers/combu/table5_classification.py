"""The CombU paper's Table 5 and Figure 2: four classification sets of OpenML.

    python -m benchmarks.papers.combu.table5_classification [--quick] [--out FOLDER]

The data come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

from benchmarks.papers.combu.expected import TABLES
from benchmarks.papers.combu.report import openml_study

STUDY = openml_study(TABLES[5], "classification", __doc__)

if __name__ == "__main__":
    STUDY.main()
