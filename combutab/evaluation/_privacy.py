"""Privacy: does a synthetic table give away the rows that its generator was fitted to?"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from scipy.stats import binom

from combutab.core.rng import seed_from
from combutab.evaluation._alignment import AlignedTables, align_tables
from combutab.evaluation._efficacy import align_synthetic, at_least, by_source, mean_and_sd
from combutab.evaluation._fidelity import codes_of, numbers_of

# ---- Rows as points that a distance between mixed columns is taken of ----------------------------

_DENSE = 16  # categories of a column, the most frequent, that are compared by matrix products


@dataclass(frozen=True, eq=False)
class RowPoints:
    """Rows of one table.

    Attributes
    ----------
    numbers : float64 of shape (n, n_numbers)
        NaN where missing.
    codes : int64 of shape (n, n_categories)
        0 where missing.
    left, right : float64 of shape (n, width)
        ``a.left[i] @ b.right[j]`` is n_columns times the squared distance of a row of one table
        and a row of another, and 1 more for each category that they share.
    dense, rare : float32 of shape (n, n_dense), sparse float32 of shape (n, n_rare)
        Which of the frequent categories a row has, and which of the rare ones. Products of these
        are counts, which single precision has exactly, in half the time.
    """

    numbers: np.ndarray
    codes: np.ndarray
    left: np.ndarray
    right: np.ndarray
    dense: np.ndarray
    rare: Any

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def n_columns(self) -> int:
        return self.numbers.shape[1] + self.codes.shape[1]


class Space:
    """The metric space of a table's rows, scaled by the columns of some of them.

    The squared distance of two rows is the mean over the columns of a squared difference: of two
    numbers, that of their places (see `_Places`); of two categories 0 or 1. A missing value is 1
    from any other and 0 from a missing one.
    """

    def __init__(self, tables: AlignedTables, rows: pd.DataFrame) -> None:
        self.places = {
            column: _Places(numbers_of(rows[column]))
            for column in tables.columns("number", "datetime")
        }
        self.codes = {
            column: _frequent_first(rows[column]) for column in tables.columns("category")
        }
        # columns without missing values, in any of the tables, take fewer features
        holes = {
            column: any(table[column].isna().any() for table in tables.tables.values())
            for column in tables.kinds
        }
        self.holes = np.array([holes[column] for column in self.places], dtype=bool)
        self.dense = [
            np.arange(0 if holes[column] else 1, min(_DENSE, len(rank)))
            for column, rank in self.codes.items()
        ]

    def points(self, table: pd.DataFrame) -> RowPoints:
        """The rows of an aligned table."""
        n_rows = len(table)
        numbers = np.empty((n_rows, len(self.places)))
        for j, (column, category_positions) in enumerate(self.places.items()):
            numbers[:, j] = category_positions(numbers_of(table[column]))
        codes = np.empty((n_rows, len(self.codes)), dtype=np.int64)
        for j, (column, rank) in enumerate(self.codes.items()):
            codes[:, j] = rank[codes_of(table[column]) + 1]
        left_features, right = self._features(numbers)
        onehot = [codes[:, [j]] == code for j, code in enumerate(self.dense)]
        dense = np.hstack([np.empty((n_rows, 0)), *onehot]).astype(np.float32)
        return RowPoints(numbers, codes, left_features, right, dense, self._rare(codes))

    def _features(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # (x - y)^2 = x^2 + y^2 - 2xy of places; with p and q for "is there", and places 0 where
        # they are not: x^2 q - 2xy + p (y^2 + 1 - q) + (1 - p) q, which is 1 if one is missing
        x, y = numbers[:, ~self.holes] - 0.5, numbers[:, self.holes] - 0.5
        is_known = ~np.isnan(y)
        y = np.where(is_known, y, 0.0)
        one = np.ones((len(numbers), 1))
        square = (x**2).sum(axis=1, keepdims=True)
        left_columns = [square, one, x, y**2, y, is_known, ~is_known]
        right = [
            one,
            square + len(self.codes),
            -2.0 * x,
            is_known,
            -2.0 * y,
            y**2 + ~is_known,
            is_known,
        ]
        return np.hstack(left_columns), np.hstack(right)

    def _rare(self, codes: np.ndarray) -> Any:
        starts = np.cumsum([0] + [max(len(rank) - _DENSE, 0) for rank in self.codes.values()])
        rows, columns = np.nonzero(codes >= _DENSE)
        positions = codes[rows, columns] - _DENSE + starts[columns]
        entries = (np.ones(len(rows), dtype=np.float32), (rows, positions))
        return scipy.sparse.csr_array(entries, shape=(len(codes), int(starts[-1])))


class _Places:
    """A number's place in a column: the share of the column's values that are less, from 0 to 1.

    It does not depend on the unit or on a logarithm taken, and no outlier makes all other
    differences small. Equal values have the middle of theirs; others are interpolated. A value
    outside the range is as far outside of 0 or 1 as it is in ranges, at most 1.
    """

    def __init__(self, column: np.ndarray) -> None:
        values = column[~np.isnan(column)]
        self.values, counts = np.unique(values if len(values) else np.zeros(1), return_counts=True)
        self.shares = (np.cumsum(counts) - counts / 2) / counts.sum()

    def __call__(self, column: np.ndarray) -> np.ndarray:
        low, high = self.values[0], self.values[-1]
        width = high - low if high > low else np.finfo(float).tiny
        with np.errstate(over="ignore"):
            above, below = np.clip(((column - high) / width, (low - column) / width), 0.0, 1.0)
        return np.interp(column, self.values, self.shares) + above - below


def _frequent_first(column: pd.Series) -> np.ndarray:
    """New codes of shape (n_categories + 1,): missing, at -1 + 1, is 0; then by frequency."""
    counts = np.bincount(codes_of(column) + 1, minlength=len(column.cat.categories) + 1)
    rank = np.zeros(len(counts), dtype=np.int64)
    rank[1 + np.argsort(-counts[1:], kind="stable")] = np.arange(1, len(counts))
    return rank


# ---- Nearest rows of another table, exactly, by blocks of matrix products ------------------------
# scikit-learn's NearestNeighbors has no distance for missing values beside numbers, and takes the
# categories as one-hot columns: thousands of them, where a column holds names, are several times
# the work here, dense or sparse; dense, they are also rows x categories of memory.

# Of a block of squared distances the least few of each row are kept. Products round what is near 0,
# so the distances to the best of those are computed anew.
_ROWS, _BLOCK_COLUMNS = 256, 1024
_KEPT, _CANDIDATES = 3, 8  # of a block, of all
_DISTANCES = 1 << 23  # distances in memory at once, for counts
_EQUAL = 1e-9  # difference of squared distances up to which rows are equally close


def nearest_rows(a: RowPoints, b: RowPoints, k: int, *, n_jobs: int | None = None) -> np.ndarray:
    """Distances of each row of a to the ``k`` nearest of b, (len(a), k); inf where b has fewer.

    Memory grows with the rows, not with their product.
    """
    from joblib import Parallel, delayed
    from threadpoolctl import threadpool_limits

    blocks = [slice(i, i + _BLOCK_COLUMNS) for i in range(0, len(b), _BLOCK_COLUMNS)]
    rare = [b.rare[block].T.tocsr() for block in blocks]

    def of_rows(rows: slice) -> np.ndarray:
        nearest, candidates = [], []
        for block, block_rare in zip(blocks, rare, strict=True):
            squared = _squared_distances(a, rows, b, block, block_rare)
            for _ in range(min(_KEPT, squared.shape[1])):
                smallest = squared.argmin(axis=1)[:, None]
                nearest.append(np.take_along_axis(squared, smallest, axis=1))
                candidates.append(block.start + smallest)
                np.put_along_axis(squared, smallest, np.inf, axis=1)
        squared = np.hstack(nearest)
        n_best = min(_CANDIDATES, squared.shape[1])
        best = np.argpartition(squared, n_best - 1, axis=1)[:, :n_best]
        exact = _row_distances(a, rows, b, np.take_along_axis(np.hstack(candidates), best, axis=1))
        none = np.full((len(exact), k), np.inf)
        return np.sort(np.hstack([exact, none]), axis=1)[:, :k]

    # of products of this size, several at once are faster than each by several threads
    with threadpool_limits(limits=1, user_api="blas"):
        parts = Parallel(n_jobs=n_jobs, backend="threading")(
            delayed(of_rows)(slice(i, i + _ROWS)) for i in range(0, len(a), _ROWS)
        )
    return np.concatenate(parts)


def _squared_distances(
    a: RowPoints, rows: slice, b: RowPoints, block: slice, block_rare: Any
) -> np.ndarray:
    """Multiply features: n_columns times the squared distance of each row of a to each of b."""
    squared = a.left[rows] @ b.right[block].T
    squared -= a.dense[rows] @ b.dense[block].T  # the categories that two rows share
    rows_rare = a.rare[rows]
    if rows_rare.nnz:
        both = (rows_rare @ block_rare).tocoo()
        squared[both.coords] -= both.data
    return squared


def closest_counts(a: RowPoints, b: RowPoints, *, n_jobs: int | None = None) -> np.ndarray:
    """Count the rows of a that each row of b is the closest to, (len(b),).

    Rows of b that are equally close to a row of a share it.
    """
    from joblib import Parallel, delayed
    from threadpoolctl import threadpool_limits

    b_rare = b.rare.T.tocsr()
    n_rows = max(1, min(_ROWS, _DISTANCES // len(b)))

    def count_closest(rows: slice) -> np.ndarray:
        squared = _squared_distances(a, rows, b, slice(None), b_rare)
        is_closest = squared <= squared.min(axis=1, keepdims=True) + _EQUAL
        return (1.0 / is_closest.sum(axis=1)) @ is_closest

    with threadpool_limits(limits=1, user_api="blas"):
        counts = Parallel(n_jobs=n_jobs, backend="threading", return_as="generator")(
            delayed(count_closest)(slice(i, i + n_rows)) for i in range(0, len(a), n_rows)
        )
        return sum(counts, start=np.zeros(len(b)))


def _row_distances(a: RowPoints, rows: slice, b: RowPoints, other_rows: np.ndarray) -> np.ndarray:
    """Distances of some rows of a to rows of b at these positions, (n_rows, n_others)."""
    numbers, codes = a.numbers[rows, None], a.codes[rows, None]
    off = numbers - b.numbers[other_rows]  # (rows, others, numbers)
    one_missing = np.isnan(numbers) != np.isnan(b.numbers[other_rows])
    squared = (np.where(np.isnan(off), one_missing, off) ** 2).sum(axis=2)
    squared += (codes != b.codes[other_rows]).sum(axis=2)
    return np.sqrt(squared / a.n_columns)


# ---- Privacy: does a synthetic table give away the rows that its generator learned from? ---------

_TRAIN, _HOLDOUT = "real_train", "holdout"
_MAX_MEASURED = 100_000  # rows of a table whose distances are measured
_NEAR_RATIO = 0.1  # of the distance to the second nearest row, below which a row is a near copy
_COPIES = ("copies", "copies_share", "holdout_copies")
_LESS_IS_SAFER = ("share_closer_to_train", *_COPIES, "membership_auc")
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
    """Measure the privacy of synthetic tables: duplicates, closest records, membership inference.

    Synthetic rows disclose training rows if they are closer to them than to other real rows from
    the same distribution (the hold-out). Each measure therefore has a ``reference``, computed with
    the hold-out.

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
        sample around the reference by chance, for "share_closer_to_train" and "membership_auc", and
        NaN for other measures); ``n_tables``; ``reference`` (the value for rows that are
        independent of the training rows); ``less_is_safer`` (True if values above the reference are
        of concern, False if values below it are); ``note``.

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
    - "membership_auc": ROC AUC of an attacker who predicts that real rows close to a synthetic row
      are training rows, for ``real_train`` and ``holdout``. 0.5 is ideal. The standard error is
      that of the Mann-Whitney test.

    A share or ROC AUC far below 0.5 is not safe either: the two real tables are swapped, or the
    generator was trained on ``holdout``.

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
    Frontiers in Big Data 4, 2021. D. Chen, N. Yu, Y. Zhang and M. Fritz, "GAN-Leaks", CCS 2020.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"age": rng.normal(size=3000), "sex": rng.choice(["f", "m"], 3000)})
    >>> train, holdout, fresh = people[:1000], people[1000:2000], people[2000:]
    >>> table = privacy(
    ...     real_train=train, holdout=holdout, synthetic={"copy": train, "fresh": fresh}
    ... )
    >>> chosen = table["measure"].isin(["share_closer_to_train", "copies", "membership_auc"])
    >>> table.loc[chosen, ["measure", "source", "mean", "reference"]].round(1)
                      measure source    mean  reference
    0   share_closer_to_train   copy     1.0        0.5
    1   share_closer_to_train  fresh     0.5        0.5
    10                 copies   copy  1000.0        0.0
    11                 copies  fresh     0.0        0.0
    16         membership_auc   copy     1.0        0.5
    17         membership_auc  fresh     0.5        0.5
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
        from sklearn.metrics import roc_auc_score

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
        n = len(self.train)
        members = np.repeat([1, 0], n)
        nearness = [
            -nearest_rows(real_rows, synthetic, 1, n_jobs=self.n_jobs)[:, 0] for real_rows in real
        ]
        area = float(roc_auc_score(members, np.concatenate(nearness)))
        # Mann and Whitney's for two groups that do not differ
        yield "membership_auc", area, 0.5, math.sqrt((2 * n + 1) / (12 * n**2))

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
