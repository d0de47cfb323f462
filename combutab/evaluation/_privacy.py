"""Privacy: does a synthetic table give away the rows that its generator was fitted to?"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from combutab.core.rng import seed_from
from combutab.evaluation._alignment import AlignedTables, align_tables
from combutab.evaluation._distances import RowPoints, Space, closest_counts, nearest_rows
from combutab.evaluation._efficacy import align_synthetic, at_least, by_source, mean_and_sd
from combutab.evaluation._fidelity import codes_of, numbers_of

# ---- Privacy: does a synthetic table give away the rows that its generator learned from? ---------

_TRAIN, _HOLDOUT = "real_train", "holdout"
_MAX_MEASURED = 100_000  # rows of a table whose distances are measured
_NEAR_RATIO = 0.1  # of the distance to the second nearest row, below which a row is a near copy
_COPIES = ("copies", "copies_share", "holdout_copies")
_LESS_IS_SAFER = ("share_closer_to_train", *_COPIES)
_COLUMNS = ["measure", "source", "mean", "sd", "se", "n_tables", "reference", "less_is_safer"]
_COLUMNS += ["note"]


def privacy(
    *,
    real_train: Any,
    synthetic: Any,
    holdout: Any,
    categorical: Collection[Hashable] = (),
    max_rows: int = _MAX_MEASURED,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Measure the privacy of synthetic tables: duplicates and distances to the closest record.

    Synthetic rows disclose training rows if they are closer to them than to other real rows from
    the same distribution (the hold-out). Each measure therefore has a ``reference``, computed with
    the hold-out. What an attacker can learn is measured by `membership_inference`,
    `attribute_inference` and `singling_out`.

    Parameters
    ----------
    real_train : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
        Training rows of the generator.
    synthetic : table, list of tables, or mapping of name to either
        Synthetic rows, with the columns of ``real_train`` in any order; dtypes may differ. A list
        has several samples of one generator, which are averaged; a mapping has several generators.
    holdout : table
        Real rows that the generator was not trained on.
    categorical : collection of column names, default=()
        Columns of numbers or dates to treat as categories.
    max_rows : int, default=100_000
        Maximum number of rows of each table that are compared by distance, sampled at random.
        Duplicates are counted among all rows. Time grows with its square, memory does not.
    random_state : int, RandomState or None, default=0
        Random seed for sampling these rows, and for reducing the larger of ``real_train`` and
        ``holdout`` to the size of the other.
    n_jobs : int, optional
        Number of threads.

    Returns
    -------
    DataFrame, one row per measure and source
        ``measure`` (see the notes); ``source`` ("synthetic", or a name of the mapping); ``mean``
        and ``sd`` (ddof 1, NaN for one table) over the samples; ``se`` (standard error of one
        sample around the reference by chance, for "share_closer_to_train", and NaN for other
        measures); ``n_tables``; ``reference`` (the value for rows that are independent of the
        training rows); ``less_is_safer`` (True if values above the reference are of concern, False
        if values below it are); ``note``.

    Raises
    ------
    ValueError
        If columns are missing or added (the message lists them), or values cannot be compared.

    Notes
    -----
    The larger of ``real_train`` and ``holdout`` is reduced to the size of the other for all
    measures except duplicates, because the closest row of a larger table is closer by chance. What
    the generator discloses about the rows left out is then not measured. A ``holdout`` of the size
    of ``real_train`` is best.

    - "share_closer_to_train": share of the synthetic rows that are closer to a row of
      ``real_train`` than to any row of ``holdout``; ties count half. 0.5 is ideal. The standard
      error is the standard deviation of the share over all splits of the real rows into two halves.
      For n synthetic rows it is about ``0.5 / sqrt(n)``. It is larger if the synthetic rows are far
      from all real rows, because one real row is then the closest to many of them.
    - "dcr_median", "dcr_p05": median and 5th percentile of the distance from a synthetic row to
      the closest row of ``real_train``. The reference is the same for ``holdout``.
    - "nndr_median", "nndr_p05": median and 5th percentile of the distance to the closest row of
      ``real_train``, divided by the distance to the second closest (1 if both are 0). A small value
      means that one row is much closer than all others. The reference is the same for ``holdout``.
    - "copies", "copies_share": number and share of synthetic rows that equal a row of
      ``real_train`` in every column. The reference follows from the share of such rows in
      ``holdout``.
    - "holdout_copies": number of synthetic rows that equal a row of ``holdout``. The reference
      follows from the share of such rows in ``real_train``. A generator that was not trained on
      ``holdout`` does not exceed it.

    A share far below 0.5 is not safe either: the two real tables are swapped, or the generator was
    trained on ``holdout``.

    The distance of two rows is the root of the mean over the columns of squared differences,
    similar to Gower's. The difference of two numbers is the share of the real values between them,
    which does not depend on the unit and hardly on outliers. A number beyond the real range adds
    its distance from the range, divided by the length of the range, at most 1. Categories differ by
    0 or 1, and a missing value differs by 1 from any other. Distances are therefore between 0 and
    1, unless numbers are beyond the real range.

    Good values do not prove privacy, because an attacker may use more than distances. Bad values
    prove that there is none.

    References
    ----------
    M. Platzer and T. Reutterer, "Holdout-based empirical assessment of mixed-type synthetic data",
    Frontiers in Big Data 4, 2021.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"age": rng.normal(size=3000), "sex": rng.choice(["f", "m"], 3000)})
    >>> train, holdout, fresh = people[:1000], people[1000:2000], people[2000:]
    >>> table = privacy(
    ...     real_train=train, holdout=holdout, synthetic={"copy": train, "fresh": fresh}
    ... )
    >>> chosen = table["measure"].isin(["share_closer_to_train", "copies"])
    >>> table.loc[chosen, ["measure", "source", "mean", "reference"]].round(1)
                      measure source    mean  reference
    0   share_closer_to_train   copy     1.0        0.5
    1   share_closer_to_train  fresh     0.5        0.5
    10                 copies   copy  1000.0        0.0
    11                 copies  fresh     0.0        0.0
    """
    max_rows = at_least(max_rows, 1, "max_rows")
    real = {_TRAIN: real_train, _HOLDOUT: holdout}
    aligned, sources = align_synthetic(real, synthetic, categorical)
    judge = _Judge(aligned, max_rows, seed_from(random_state), n_jobs)
    measured = (
        (measure, source, (value, reference, error))
        for label, source in sources.items()
        for measure, value, reference, error in judge.measures(label)
    )
    rows = []
    for measure, source, samples in by_source(measured):
        values, references, errors = zip(*samples, strict=True)
        note = judge.note if measure not in _COPIES else ""
        mean, sd, n_tables = mean_and_sd(values)
        about = (float(np.mean(references)), measure in _LESS_IS_SAFER, note)
        rows.append((measure, source, mean, sd, float(np.mean(errors)), n_tables, *about))
    return pd.DataFrame(rows, columns=_COLUMNS)


def near_copies(
    *,
    real_train: Any,
    synthetic: Any,
    holdout: Any = None,
    categorical: Collection[Hashable] = (),
    max_rows: int = 10_000,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Count synthetic rows that are nearly equal to one real row, and compare with chance.

    A near copy is a synthetic row whose distance to the closest real row is not 0, but less than a
    tenth of the distance to the second closest. Other real rows show how often this happens by
    chance: those of the other real table, and each half of the same table, compared with the other.
    Unlike the measures of `privacy`, this also finds copies of one half of ``real_train`` and one
    half of ``holdout``, which are equally close to both tables.

    Parameters
    ----------
    real_train, synthetic, holdout, categorical, random_state, n_jobs
        As in `privacy`, with the same defaults; ``synthetic`` is one table, and ``holdout`` may be
        None.
    max_rows : int, default=10_000
        Maximum number of rows that are sampled from each table to be compared with a real table.

    Returns
    -------
    DataFrame, one row for each real table
        ``real`` ("real_train" or "holdout"); ``near`` (number of near copies); ``share`` (of the
        synthetic rows); ``reference`` (share of near copies among real rows); ``pvalue``
        (probability of at least as many near copies if the synthetic rows were other real rows, by
        Przyborowski and Wilenski's test of two Poisson counts).

    Raises
    ------
    ValueError
        As in `privacy`.

    Notes
    -----
    Two rows of one table that are near each other are one event, so rows of the same table count
    half.

    References
    ----------
    J. Przyborowski and H. Wilenski, "Homogeneity of results in testing samples from Poisson
    series", Biometrika 31, 1940.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame(rng.normal(size=(900, 3)), columns=["age", "height", "weight"])
    >>> noisy = people[150:450] + rng.normal(0, 1e-3, (300, 3))
    >>> found = near_copies(real_train=people[:300], holdout=people[300:600], synthetic=noisy)
    >>> found[["real", "share", "reference"]].round(1)
             real  share  reference
    0  real_train    0.5        0.0
    1     holdout    0.5        0.0
    """
    tables = {_TRAIN: real_train, "synthetic": synthetic}
    tables |= {} if holdout is None else {_HOLDOUT: holdout}
    aligned = align_tables(tables, reference=_TRAIN, categorical=categorical)
    seed, rows = seed_from(random_state), []
    queries = {name: _drawn_rows(table, max_rows, seed) for name, table in aligned.tables.items()}
    for name, other_name in ((_TRAIN, _HOLDOUT), (_HOLDOUT, _TRAIN)):
        if name not in tables:
            continue
        real = _drawn_rows(aligned[name], _MAX_MEASURED, seed)
        n_near = partial(_n_near, aligned, n_jobs=n_jobs)
        near = n_near(queries["synthetic"], real)
        order = np.random.default_rng(seed).permutation(len(queries[name]))
        halves = [queries[name].iloc[half] for half in np.array_split(order, 2)]
        n_by_chance = math.ceil((n_near(halves[0], halves[1]) + n_near(halves[1], halves[0])) / 2)
        n_real = len(order) / 2
        if other_name in tables:
            n_by_chance += n_near(queries[other_name], real)
            n_real += len(queries[other_name])
        n_made = len(queries["synthetic"])
        chance = float(binom.sf(near - 1, near + n_by_chance, n_made / (n_made + n_real)))
        rows.append((name, near, near / n_made, n_by_chance / n_real, chance))
    return pd.DataFrame(rows, columns=["real", "near", "share", "reference", "pvalue"])


def _n_near(
    tables: AlignedTables, rows: pd.DataFrame, real: pd.DataFrame, *, n_jobs: int | None
) -> int:
    """Count the near copies among rows that the real rows do not contain."""
    if not len(rows) or not len(real):
        return 0
    space = Space(tables, real)
    distances = nearest_rows(space.points(rows), space.points(real), 2, n_jobs=n_jobs)
    return int(((_ratios(distances) < _NEAR_RATIO) & (distances[:, 0] > 0)).sum())


def _drawn_rows(table: pd.DataFrame, n_rows: int, seed: int) -> pd.DataFrame:
    """Draw at most ``n_rows`` rows, which depend on the seed and the table only."""
    if len(table) <= n_rows:
        return table
    return table.iloc[np.random.default_rng(seed).permutation(len(table))[:n_rows]]


class _Judge:
    """The real rows, prepared once for all synthetic tables."""

    def __init__(self, tables: AlignedTables, max_rows: int, seed: int, n_jobs: int | None) -> None:
        self.tables, self.max_rows, self.seed, self.n_jobs = tables, max_rows, seed, n_jobs
        n_rows = min(len(tables[_TRAIN]), len(tables[_HOLDOUT]), max_rows)
        parts = [_drawn_rows(tables[label], n_rows, seed) for label in (_TRAIN, _HOLDOUT)]
        # Both alike: where the rows trained on are sparse by chance, their places alone would be
        # narrow, and the rows that fall there, all others, be near to each other.
        real = pd.concat(parts, ignore_index=True)
        self.space = Space(tables, real)
        self.train, self.holdout = map(self.space.points, parts)
        self.real = self.space.points(real)
        self.keys, self.holdout_keys = self._keys(_TRAIN), self._keys(_HOLDOUT)
        self.known = float(np.isin(self.holdout_keys, self.keys).mean())
        self.holdout_known = float(np.isin(self.keys, self.holdout_keys).mean())
        sizes = [len(tables[_TRAIN]), len(tables[_HOLDOUT])]
        self.note = f"{n_rows} rows of each real table" if max(sizes) > n_rows else ""

    def measures(self, name: str) -> Iterator[tuple[str, float, float, float]]:
        """The name, the value, the reference and the standard error of each measure."""
        synthetic = self.space.points(_drawn_rows(self.tables[name], self.max_rows, self.seed))
        real = self.train, self.holdout
        train, holdout = (
            nearest_rows(synthetic, real_rows, 2, n_jobs=self.n_jobs) for real_rows in real
        )
        near, far = train[:, 0], holdout[:, 0]
        share = float(((near < far) + 0.5 * (near == far)).mean())
        yield "share_closer_to_train", share, 0.5, self._share_error(synthetic)
        for short, q in (("median", 0.5), ("p05", 0.05)):
            yield f"dcr_{short}", float(np.quantile(near, q)), float(np.quantile(far, q)), math.nan
        ratios, holdout_ratios = _ratios(train), _ratios(holdout)
        for short, q in (("median", 0.5), ("p05", 0.05)):
            reference = float(np.quantile(holdout_ratios, q))
            yield f"nndr_{short}", float(np.quantile(ratios, q)), reference, math.nan
        keys = self._keys(name)
        copied = np.isin(keys, self.keys)
        yield "copies", float(copied.sum()), self.known * len(copied), math.nan
        yield "copies_share", float(copied.mean()), self.known, math.nan
        unseen = float(np.isin(keys, self.holdout_keys).sum())
        yield "holdout_copies", unseen, self.holdout_known * len(keys), math.nan

    def _share_error(self, synthetic: RowPoints) -> float:
        """Standard deviation of the share closer to one half of the real rows, over all halves.

        The share is that of a sample of half of the real rows, drawn without replacement, in the
        synthetic rows that each real row is the closest to (W. G. Cochran, "Sampling techniques",
        1977, theorem 2.2).
        """
        counts = closest_counts(synthetic, self.real, n_jobs=self.n_jobs)
        n = len(self.train)
        return float(np.sqrt(n / 2 * np.var(counts, ddof=1))) / len(synthetic)

    def _keys(self, name: str) -> np.ndarray:
        """A number for each row of a table, equal for equal rows."""
        columns = {}
        for j, (column, kind) in enumerate(self.tables.kinds.items()):
            values = self.tables[name][column]
            columns[j] = (
                codes_of(values) if kind == "category" else numbers_of(values) + 0.0
            )  # no -0
        return pd.util.hash_pandas_object(pd.DataFrame(columns), index=False).to_numpy()


def _ratios(distances: np.ndarray) -> np.ndarray:
    """Nearest over second nearest; 1 where both are 0, and where there is one row alone."""
    nearest, second = distances.T
    alike = (second == 0) | np.isinf(second)
    return np.where(alike, 1.0, nearest / np.where(alike, 1.0, second))
