"""Is Table 5 of the CombU paper reproduced, and which activations differ significantly?

Table 5 and Figure 2: seven activations on four classification tables of OpenML.

Protocols: *paper* is one random 4:1 split with 5 seeds; *sound* is 10 splits with 3 seeds each,
where rows with equal features are on the same side of a split; in *sound-ungrouped* such rows may
be on both sides. Networks and training are those of the paper's appendix B. Accuracy and macro F1
are in percent.

    python -m benchmarks.papers.combu.table5_classification [--quick] [--out FOLDER]

The data come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

from benchmarks.papers.combu.expected import TABLES
from benchmarks.papers.combu.report import openml_study

STUDY = openml_study(TABLES[5], "classification", __doc__)

if __name__ == "__main__":
    STUDY.main()
