"""Is Table 6 of the CombU paper reproduced, and which activations differ significantly?

Table 6 and Figure 2: seven activations on four regression tables of OpenML.

Protocols: *paper* is one random 4:1 split with 5 seeds; *sound* is 10 splits with 3 seeds each,
where rows with equal features are on the same side of a split. Networks and training are those of
the paper's appendix B. Targets are standardised by the training rows.

    python -m benchmarks.papers.combu.table6_regression [--quick] [--out FOLDER]

The data come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

from benchmarks.papers.combu.expected import TABLES
from benchmarks.papers.combu.report import openml_study

STUDY = openml_study(TABLES[6], "regression", __doc__)

if __name__ == "__main__":
    STUDY.main()
