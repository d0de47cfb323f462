"""Fidelity scores of synthetic tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from combutab._random_state import seed_from
from combutab.evaluation.synthetic._alignment import AlignedTables, align_tables
from combutab.evaluation.synthetic.efficacy import REAL, label_tables
from combutab.evaluation.synthetic.fidelity._columns import (
    Measured,
    coverage,
    missing_values,
    shapes,
)
from combutab.evaluation.synthetic.fidelity._pairs import pair_trends
from combutab.evaluation.synthetic.fidelity._support import support

_COLUMNS = ["aspect", "measure", "column", "other_column", "source"]
_COLUMNS += ["mean", "sd", "n_tables", "greater_is_better", "note"]
_DISTANCES = {"wasserstein"}  # 0 is best; all other measures are scores from 0 to 1
_SDTYPES = {"number": "numerical", "category": "categorical", "datetime": "datetime"}
Aspects = dict[str, Callable[[AlignedTables, str], Iterator[Measured]]]


def fidelity(
    *,
    real: Any,
    synthetic: Any,
    categorical: Collection[Hashable] = (),
    n_bins: int = 10,
    max_rows: int = 5000,
    sdmetrics: bool = False,
    random_state: Any = 0,
) -> pd.DataFrame:
    """Compare the columns, the pairs of columns and the rows of synthetic tables with a real one.

    Parameters
    ----------
    real : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
    synthetic : table, list of tables, or mapping of name to either
        Columns as those of ``real``, in any order; values may have other dtypes. Several samples
        of one generator are averaged; a mapping compares several generators. Held-out real rows
        as one of them show what the best generator would score: that is less than 1.
    categorical : collection of column names, default=()
        Columns of numbers or dates that are categories.
    n_bins : int, default=10
        Bins, of equal numbers of real values, in which a column of numbers is compared with one
        of categories.
    max_rows : int, default=5000
        "alpha_precision" and "beta_recall" are of at most so many rows of each table, drawn at
        random; their time grows with the square.
    sdmetrics : bool, default=False
        Whether to add the QualityReport and the DiagnosticReport of the package SDMetrics.
    random_state : int, RandomState or None, default=0
        Of that draw.

    Returns
    -------
    DataFrame, one row a measure, column or pair of columns, and source
        ``aspect`` and ``measure``, as below; ``column`` and ``other_column``, None where the
        measure is of the whole table, or of one column; ``source``, "synthetic" or the names of
        the mapping; ``mean`` and ``sd`` (ddof 1, NaN for one table) over the samples;
        ``n_tables``; ``greater_is_better``, False for "wasserstein" alone, a distance whose best
        value is 0: the others are scores from 0 to 1, the best; ``note``, what is to be known of
        the value, which is NaN where the real table leaves nothing to compare with.

    Raises
    ------
    ValueError
        Columns are missing or added (the message lists them), or values cannot be compared.
    ImportError
        SDMetrics was asked for and is not installed.

    Notes
    -----
    Numbers include dates and durations. Missing values are left out, but for the aspect "missing"
    and "contingency".

    ``shape``, of one column. "ks": 1 minus the Kolmogorov-Smirnov statistic; "wasserstein": the
    first Wasserstein distance in the real column's standard deviations; "tv", of categories:
    1 minus the total variation distance.

    ``pairs``, of two. "correlation", of numbers: ``1 - |r - s| / 2`` of Pearson's correlations;
    "contingency", of categories, or one of them with binned numbers: 1 minus the total variation
    distance of the joint frequencies, a missing value being a category.

    ``coverage``. "range_coverage": which part of the real range lies between the smallest and
    the largest synthetic number; "range_adherence": which part of the synthetic numbers lies in
    the real range; "category_coverage": which part of the real categories occurs;
    "category_adherence": which part of the synthetic values are real categories.

    ``missing``, where a table has missing values. "missing_share", of one column: 1 minus the
    difference of their shares; "missing_pattern", of the table: 1 minus the total variation
    distance of which columns are missing together in a row.

    ``support``, of rows. "alpha_precision", whether synthetic rows lie where real ones do, and
    "beta_recall", whether they lie wherever real ones do: integrated over all levels, 1 for the
    same distribution (Alaa et al.). The paper's embedding is a trained network; ours is fixed:
    numbers are standard-scaled as the real ones, missing being the mean and a 1 in one more
    column, the 50 most frequent categories are one-hot (over the square root of 2, so that two
    categories have the distance 1), and distances Euclidean. A real row is recalled if the nearest
    synthetic row is no farther than the fifth real one, and inside the level's ball.

    ``sdmetrics``. "quality" with its parts "column_shapes" and "column_pair_trends", and
    "diagnostic" with "data_validity" and "data_structure", of the tables as aligned.

    References
    ----------
    A. Alaa, B. van Breugel, E. Saveliev and M. van der Schaar, "How faithful is your synthetic
    data? Sample-level metrics for evaluating and auditing generative models", ICML 2022.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> real = pd.DataFrame({"a": rng.normal(size=500)}).assign(b=lambda t: t["a"] ** 3)
    >>> shuffled = real.apply(lambda column: rng.permutation(column))
    >>> table = fidelity(real=real, synthetic={"copy": real, "shuffled": shuffled})
    >>> shown = table[table["measure"].isin(["ks", "correlation", "alpha_precision"])]
    >>> shown[["measure", "column", "other_column", "source", "mean"]].round(1)
                measure column other_column    source  mean
    0                ks      a         None      copy   1.0
    1                ks      a         None  shuffled   1.0
    4                ks      b         None      copy   1.0
    5                ks      b         None  shuffled   1.0
    8       correlation      a            b      copy   1.0
    9       correlation      a            b  shuffled   0.7
    18  alpha_precision   None         None      copy   1.0
    19  alpha_precision   None         None  shuffled   0.9
    """
    aspects: Aspects = {
        "shape": shapes,
        "pairs": partial(pair_trends, n_bins=_at_least(n_bins, 2, "n_bins")),
        "coverage": coverage,
        "missing": missing_values,
        "support": partial(
            support, max_rows=_at_least(max_rows, 2, "max_rows"), seed=seed_from(random_state)
        ),
    }
    if sdmetrics:
        aspects["sdmetrics"] = _sdmetrics_reports
    return _measure(real, synthetic, categorical, aspects)


@dataclass(frozen=True)
class FidelityScorer:
    """A scorer of generators, for `cross_val_score` and searches: how alike their samples look.

    Called with a fitted generator and held-out real rows, it samples as many and returns the mean
    of two means, of `fidelity`'s "ks" and "tv" over the columns and of "correlation" and
    "contingency" over the pairs: from 0 to 1, the best. The generator needs ``sample(n)``.

    Parameters
    ----------
    categorical, n_bins
        As in `fidelity`.

    Examples
    --------
    >>> from combutab import TVAE
    >>> from sklearn.model_selection import cross_val_score
    >>> table = pd.DataFrame({"a": np.random.default_rng(0).normal(size=200)})
    >>> model = TVAE(epochs=1, random_state=0)
    >>> scores = cross_val_score(model, table, scoring=FidelityScorer(), cv=2)
    >>> ((scores >= 0) & (scores <= 1)).all()
    np.True_
    """

    categorical: Collection[Hashable] = ()
    n_bins: int = 10

    def __call__(self, generator: Any, X: Any, y: Any = None) -> float:
        """Score a fitted generator on real rows ``X``; ``y`` is ignored."""
        n_bins = _at_least(self.n_bins, 2, "n_bins")
        aspects: Aspects = {"shape": shapes, "pairs": partial(pair_trends, n_bins=n_bins)}
        table = _measure(X, generator.sample(len(X)), self.categorical, aspects)
        scores = table[table["greater_is_better"]].dropna(subset="mean")
        return float(scores.groupby("aspect")["mean"].mean().mean())


def _measure(
    real: Any, synthetic: Any, categorical: Collection[Hashable], aspects: Aspects
) -> pd.DataFrame:
    labelled = label_tables(synthetic)
    tables = {REAL: real} | {label: table for label, (_, table) in labelled.items()}
    aligned = align_tables(tables, reference=REAL, categorical=categorical)
    # a measure -> a source -> its samples
    found: dict[tuple[Hashable, ...], dict[str, list[Measured]]] = {}
    for aspect, measure in aspects.items():
        for label, (source, _) in labelled.items():
            for each in measure(aligned, label):
                key = (aspect, each.measure, each.column, each.other_column)
                found.setdefault(key, {}).setdefault(source, []).append(each)
    rows = [
        (*key, source, *_summarise(samples), key[1] not in _DISTANCES, _notes(samples))
        for key, sources in found.items()
        for source, samples in sources.items()
    ]
    table = pd.DataFrame(rows, columns=_COLUMNS)
    for name in ("column", "other_column"):  # None stays None, and a position an integer
        position = _COLUMNS.index(name)
        table[name] = pd.Series([row[position] for row in rows], dtype=object)
    return table


def _sdmetrics_reports(tables: AlignedTables, name: str) -> Iterator[Measured]:
    """Yield the scores of SDMetrics' QualityReport and DiagnosticReport, and of their parts."""
    try:
        from sdmetrics.reports import DiagnosticReport, QualityReport
    except ModuleNotFoundError as error:
        raise ImportError(
            "the reports of SDMetrics need it: pip install 'combutab[sdv]', or leave "
            "sdmetrics=False"
        ) from error
    columns = {str(j): {"sdtype": _SDTYPES[kind]} for j, kind in enumerate(tables.kinds.values())}
    metadata = {"tables": {"table": {"columns": columns}}}
    real, synthetic = ({"table": _plain(tables[each])} for each in ("real", name))
    for total, kind in (("quality", QualityReport), ("diagnostic", DiagnosticReport)):
        report = kind()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of constant columns and of its own libraries
            report.generate(real, synthetic, metadata, verbose=False)
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


def _summarise(samples: Sequence[Measured]) -> tuple[float, float, int]:
    values = np.array([each.value for each in samples])
    sd = values.std(ddof=1) if len(values) > 1 else np.nan
    return float(values.mean()), float(sd), len(values)


def _notes(samples: Sequence[Measured]) -> str:
    return "; ".join(dict.fromkeys(each.note for each in samples if each.note))


def _at_least(value: int, least: int, name: str) -> int:
    if not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)
