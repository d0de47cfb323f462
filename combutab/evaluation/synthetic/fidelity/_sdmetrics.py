"""The reports of the package SDMetrics, as rows of ours."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pandas as pd

from combutab.evaluation.synthetic._alignment import AlignedTables
from combutab.evaluation.synthetic.fidelity._columns import Measured

_SDTYPES = {"number": "numerical", "category": "categorical", "datetime": "datetime"}


def sdmetrics_reports(tables: AlignedTables, name: str) -> Iterator[Measured]:
    """Scores of the QualityReport and the DiagnosticReport, and of their parts."""
    try:
        from sdmetrics.reports import DiagnosticReport, QualityReport
    except ModuleNotFoundError as error:
        raise ImportError(
            "the reports of SDMetrics need it: pip install 'combutab[sdv]', or leave "
            "sdmetrics=False"
        ) from error
    columns = {str(j): {"sdtype": _SDTYPES[kind]} for j, kind in enumerate(tables.kinds.values())}
    metadata = {"tables": {"table": {"columns": columns}}}
    real, made = ({"table": _plain(tables[each])} for each in ("real", name))
    for total, kind in (("quality", QualityReport), ("diagnostic", DiagnosticReport)):
        report = kind()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of constant columns and of its own libraries
            report.generate(real, made, metadata, verbose=False)
            parts = report.get_properties()
        yield Measured(total, float(report.get_score()))
        for part, score in zip(parts["Property"], parts["Score"], strict=True):
            if pd.notna(score):  # there are parts for what one table has not, as constraints
                yield Measured(part.lower().replace(" ", "_"), float(score))


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """Categories as their values, and column names that are text."""
    plain = {
        str(j): values.astype(object) if isinstance(values.dtype, pd.CategoricalDtype) else values
        for j, (_, values) in enumerate(table.items())
    }
    return pd.DataFrame(plain)
