"""Attribute inference and singling out: what synthetic rows disclose about training rows."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from scipy.stats import hypergeom, norm

from combutab.core.rng import seed_from
from combutab.evaluation._attacks import (
    HOLDOUT,
    MAX_ROWS,
    TRAIN,
    AttackRows,
    RealRows,
    draw_attack_rows,
)
from combutab.evaluation._distances import RowPoints, map_distances
from combutab.evaluation._efficacy import at_least

_LEVEL = 0.95

# ---- Attribute inference: guess one column from the others ---------------------------------------

_TOLERANCE = (
    0.05  # share of the real values between a number and its guess, up to which it is right
)
_MAX_ATTACKED = 5000  # training rows, and held-out rows, whose cells are guessed
_ATTRIBUTE_COLUMNS = ["column", "success", "holdout_success", "advantage", "low", "high", "pvalue"]
_ATTRIBUTE_COLUMNS += ["n_members", "n_non_members", "note"]


def attribute_inference(
    *,
    real_train: Any,
    synthetic: Any,
    holdout: Any,
    secret: Collection[Hashable] | None = None,
    categorical: Collection[Hashable] = (),
    person: Hashable | None = None,
    max_rows: int = MAX_ROWS,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Attribute inference attacks: can a cell of a training row be guessed from its other cells?

    An attacker knows all columns of a row except one, and takes the value of the closest synthetic
    row as a guess. Guesses are right for many rows because columns are associated. Synthetic rows
    disclose training rows only if guesses are right more often for these than for held-out rows.

    Parameters
    ----------
    real_train, synthetic, holdout, categorical, person, random_state, n_jobs
        As in `membership_inference`, with the same defaults.
    secret : collection of column names, optional
        Columns to guess, each in turn. The default is all columns.
    max_rows : int, default=10_000
        Maximum number of synthetic rows, sampled at random. Cells of at most 5,000 training rows
        and 5,000 held-out rows are guessed.

    Returns
    -------
    DataFrame, one row per secret column, and a last one for the worst
        ``column`` (None for the worst column, whose name is in ``note``); ``success`` and
        ``holdout_success`` (share of right guesses for training rows and held-out rows);
        ``advantage`` (their difference); ``low`` and ``high`` (95 % interval of the advantage);
        ``pvalue`` (one-sided, for an advantage of 0); ``n_members`` and ``n_non_members`` (rows, or
        persons); ``note``.

    Raises
    ------
    ValueError
        As in `membership_inference`, and if a column of ``secret`` does not exist, or there is only
        one column.

    Notes
    -----
    A guess of a category is right if it is equal; of a number or date, if at most 5 % of the real
    values lie between them; of a missing value, if it is missing. With ``person``, the guesses of a
    person are right if they are for more than half of the rows.

    The interval of a difference of two shares is Agresti and Caffo's, the p-value that of Fisher's
    exact test. Those of the worst column are adjusted for its choice (Bonferroni).

    References
    ----------
    M. Giomi, F. Boenisch, C. Wehmeyer and B. Tasnádi, "A unified framework for quantifying privacy
    risk in synthetic data", PoPETs 2023. A. Agresti and B. Caffo, "Simple and effective confidence
    intervals for proportions and differences of proportions", The American Statistician 54, 2000.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame(rng.normal(size=(900, 3)), columns=["age", "height", "weight"])
    >>> train, holdout = people[:300], people[300:600]
    >>> table = attribute_inference(
    ...     real_train=train, holdout=holdout, synthetic=train, secret=["weight"]
    ... )
    >>> table[["column", "success", "holdout_success", "advantage"]].round(1)
       column  success  holdout_success  advantage
    0  weight      1.0              0.1        0.9
    1    None      1.0              0.1        0.9
    """
    rows = draw_attack_rows(
        real_train=real_train,
        synthetic=synthetic,
        holdout=holdout,
        categorical=categorical,
        person=person,
        max_rows=at_least(max_rows, 4, "max_rows"),
        max_real_rows=_MAX_ATTACKED,
        rng=np.random.default_rng(seed_from(random_state)),
    )
    columns = [*rows.space.places, *rows.space.codes]
    secret = columns if secret is None else list(secret)
    for column in secret:
        if column not in columns:
            names = ", ".join(map(repr, columns))
            raise ValueError(f"secret has no column {column!r}; there are {names}")
    if len(columns) < 2:
        raise ValueError(f"there is no column beside {columns[0]!r} to guess it from")
    positions = [columns.index(column) for column in secret]
    is_right = _right_guesses(rows, positions, n_jobs)  # (n, n_secret)
    cases = [
        (column, _advantage(rows.real, is_right[:, k], rows.note, n_tests=1))
        for k, column in enumerate(secret)
    ]
    worst = int(np.argmax([case["advantage"] for _, case in cases]))
    note = "; ".join(filter(None, [str(secret[worst]), rows.note]))
    cases.append((None, _advantage(rows.real, is_right[:, worst], note, n_tests=len(secret))))
    table = pd.DataFrame([case for _, case in cases])
    table.insert(0, "column", pd.Series([column for column, _ in cases], dtype=object))
    return table[_ATTRIBUTE_COLUMNS]


def _right_guesses(rows: AttackRows, positions: list[int], n_jobs: int | None) -> np.ndarray:
    """Whether the closest synthetic row has the right value, (n, n_secret); columns by position."""
    real, synthetic = rows.real.points, rows.synthetic
    n_numbers = real.numbers.shape[1]

    def guess(part: slice, squared: np.ndarray) -> np.ndarray:
        right = np.empty((len(squared), len(positions)), dtype=bool)
        for k, j in enumerate(positions):
            if j < n_numbers:
                values, guesses = real.numbers[part, j], synthetic.numbers[:, j]
                off = values[:, None] - guesses
                is_missing = np.isnan(values)[:, None] != np.isnan(guesses)
                off = np.where(np.isnan(off), is_missing, off)
                closest = (squared - off**2).argmin(axis=1)
                right[:, k] = np.abs(off[np.arange(len(off)), closest]) <= _TOLERANCE
            else:
                values, guesses = real.codes[part, j - n_numbers], synthetic.codes[:, j - n_numbers]
                is_other = values[:, None] != guesses
                closest = (squared - is_other).argmin(axis=1)
                right[:, k] = ~is_other[np.arange(len(is_other)), closest]
        return right

    return map_distances(real, synthetic, guess, n_jobs=n_jobs)


def _advantage(real: RealRows, is_right: np.ndarray, note: str, *, n_tests: int) -> dict[str, Any]:
    """Share of right guesses for members and for non-members, and their difference."""
    is_right = real.mean_by_person(is_right.astype(float)) > 0.5
    success, holdout_success = is_right[real.is_member], is_right[~real.is_member]
    # Agresti and Caffo: one success and one failure are added to each sample.
    sizes = np.array([len(success) + 2, len(holdout_success) + 2])
    means = (np.array([success.sum(), holdout_success.sum()]) + 1) / sizes
    error = float(np.sqrt((means * (1 - means) / sizes).sum()))
    middle, z = float(means[0] - means[1]), float(norm.isf((1 - _LEVEL) / 2 / n_tests))
    pvalue = hypergeom.sf(success.sum() - 1, len(is_right), is_right.sum(), len(success))
    return {
        "success": float(success.mean()),
        "holdout_success": float(holdout_success.mean()),
        "advantage": float(success.mean() - holdout_success.mean()),
        "low": max(middle - z * error, -1.0),
        "high": min(middle + z * error, 1.0),
        "pvalue": min(1.0, n_tests * float(pvalue)),
        "n_members": real.n_members,
        "n_non_members": real.n_non_members,
        "note": note,
    }


# ---- Singling out: predicates that hold for one row ----------------------------------------------

_PREDICATES = 1000
_ATTEMPTS = 8  # predicates drawn at most, for each one that is kept
_CONDITIONS = (2, 6)  # columns of a predicate, at least and at most
_MATCHES = 30  # real persons; a predicate that holds for more of them isolates none
_SPLITS = 999
_SINGLING_COLUMNS = ["predicates", "n_predicates", "success", "holdout_success", "advantage"]
_SINGLING_COLUMNS += ["se", "pvalue", "n_members", "n_non_members", "note"]


def singling_out(
    *,
    real_train: Any,
    synthetic: Any,
    holdout: Any,
    categorical: Collection[Hashable] = (),
    person: Hashable | None = None,
    n_predicates: int = _PREDICATES,
    max_rows: int = MAX_ROWS,
    random_state: Any = 0,
) -> pd.DataFrame:
    """Singling-out attacks: do predicates from synthetic rows isolate training rows?

    A predicate is a condition such as "age is at least 80 and the ward is north". Predicates that
    hold for exactly one synthetic row are tried on real rows. Synthetic rows disclose training rows
    if predicates isolate one training row more often than one held-out row, for equal numbers of
    both.

    Parameters
    ----------
    real_train, synthetic, holdout, categorical, person, max_rows, random_state
        As in `membership_inference`, with the same defaults. With ``person``, a predicate isolates
        a person if it only holds for rows of this person.
    n_predicates : int, default=1000
        Number of multivariate predicates to draw.

    Returns
    -------
    DataFrame, one row per kind of predicates
        ``predicates`` ("univariate" or "multivariate"); ``n_predicates``; ``success`` and
        ``holdout_success`` (share of the predicates that isolate a training row, and a held-out
        row); ``advantage`` (their difference); ``se`` (its standard error by chance); ``pvalue``
        (probability of such an advantage or a greater one by chance); ``n_members`` and
        ``n_non_members`` (rows, or persons, which are equally many); ``note``. Shares are NaN if no
        predicate holds for exactly one synthetic row.

    Raises
    ------
    ValueError
        As in `membership_inference`, and if ``n_predicates`` is less than 1.

    Notes
    -----
    Univariate: a number is at most the smallest or at least the greatest synthetic one; a category
    is one that occurs once. Multivariate: the values of a random synthetic row in 2 to 6 random
    columns. Categories must be equal; numbers must be at least as large if the value is above the
    synthetic median, and at most as large otherwise.

    The standard error and the p-value are those of 999 random splits of the combined real rows into
    two halves.

    References
    ----------
    M. Giomi, F. Boenisch, C. Wehmeyer and B. Tasnádi, "A unified framework for quantifying privacy
    risk in synthetic data", PoPETs 2023. A. Cohen and K. Nissim, "Towards formalizing the GDPR's
    notion of singling out", PNAS 117, 2020.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame(rng.normal(size=(900, 3)), columns=["age", "height", "weight"])
    >>> train, holdout = people[:300], people[300:600]
    >>> table = singling_out(real_train=train, holdout=holdout, synthetic=train)
    >>> table[["predicates", "success", "holdout_success", "advantage"]].round(1)
         predicates  success  holdout_success  advantage
    0    univariate      1.0              0.2        0.8
    1  multivariate      1.0              0.2        0.8
    """
    n_predicates = at_least(n_predicates, 1, "n_predicates")
    rng = np.random.default_rng(seed_from(random_state))
    rows = draw_attack_rows(
        real_train=real_train,
        synthetic=synthetic,
        holdout=holdout,
        categorical=categorical,
        person=person,
        max_rows=at_least(max_rows, 4, "max_rows"),
        rng=rng,
    )
    real, note = _equal_sizes(rows, rng)
    table = []
    for kind, predicates in (
        ("univariate", _univariate(rows.synthetic)),
        ("multivariate", _multivariate(rows.synthetic, n_predicates, rng)),
    ):
        table.append({"predicates": kind, **_isolations(predicates, real, rng), "note": note})
    return pd.DataFrame(table, columns=_SINGLING_COLUMNS)


@dataclass(frozen=True)
class _Condition:
    """A condition on the column at a position: "==" for a code, "<=" or ">=" for a number."""

    position: int
    sign: str
    value: float

    def holds(self, points: RowPoints) -> np.ndarray:
        n_numbers = points.numbers.shape[1]
        if self.position >= n_numbers:
            return points.codes[:, self.position - n_numbers] == self.value
        numbers = points.numbers[:, self.position]
        if np.isnan(self.value):
            return np.isnan(numbers)
        return numbers <= self.value if self.sign == "<=" else numbers >= self.value


_Predicate = tuple[_Condition, ...]


def _univariate(points: RowPoints) -> list[_Predicate]:
    """Conditions on one column that hold for exactly one row."""
    conditions = []
    for j, numbers in enumerate(points.numbers.T):
        if np.isnan(numbers).all():
            continue
        ends = ((np.nanmin(numbers), "<="), (np.nanmax(numbers), ">="))
        conditions += [_Condition(j, sign, float(value)) for value, sign in ends]
    for j, codes in enumerate(points.codes.T, points.numbers.shape[1]):
        values, counts = np.unique(codes, return_counts=True)
        conditions += [_Condition(j, "==", float(value)) for value in values[counts == 1]]
    return [(condition,) for condition in conditions if condition.holds(points).sum() == 1]


def _multivariate(points: RowPoints, n: int, rng: np.random.Generator) -> list[_Predicate]:
    """Conditions on several columns that hold for exactly one row."""
    predicates: list[_Predicate] = []
    n_columns, n_numbers = points.n_columns, points.numbers.shape[1]
    if n_columns < 2:
        return predicates
    has_values = ~np.isnan(points.numbers).all(axis=0)
    medians = np.full(n_numbers, np.nan)
    medians[has_values] = np.nanmedian(points.numbers[:, has_values], axis=0)
    values = points.features()
    max_conditions = min(_CONDITIONS[1], n_columns)
    for _ in range(_ATTEMPTS * n):
        row = values[rng.integers(len(points))]
        columns = rng.permutation(n_columns)[: rng.integers(_CONDITIONS[0], max_conditions + 1)]
        predicate = tuple(
            _Condition(j, _sign(j, row[j], medians), float(row[j])) for j in columns.tolist()
        )
        if _holds(predicate, points).sum() == 1:
            predicates.append(predicate)
            if len(predicates) == n:
                break
    return predicates


def _sign(position: int, value: float, medians: np.ndarray) -> str:
    if position >= len(medians):
        return "=="
    return ">=" if value > medians[position] else "<="


def _holds(predicate: _Predicate, points: RowPoints) -> np.ndarray:
    """Say for each row whether all conditions hold."""
    return np.logical_and.reduce([condition.holds(points) for condition in predicate])


def _equal_sizes(rows: AttackRows, rng: np.random.Generator) -> tuple[RealRows, str]:
    """Draw equal numbers of members and non-members, and note how many."""
    real = rows.real
    n = min(real.n_members, real.n_non_members)
    groups = [np.flatnonzero(label) for label in (real.is_member, ~real.is_member)]
    notes = [rows.note]
    for label, group in zip((TRAIN, HOLDOUT), groups, strict=True):
        if len(group) > n:
            notes.append(f"{n:,} of these {len(group):,} rows or persons of {label}")
    chosen = np.concatenate([rng.permutation(group)[:n] for group in groups])
    return real.take_persons(chosen), "; ".join(filter(None, notes))


def _isolations(
    predicates: list[_Predicate], real: RealRows, rng: np.random.Generator
) -> dict[str, Any]:
    """Shares of predicates that isolate a member and a non-member, and what chance does to them."""
    n_persons = len(real.is_member)
    matches = [np.unique(persons) for persons in _matching_persons(predicates, real)]
    few = [persons for persons in matches if 0 < len(persons) <= _MATCHES]
    starts = np.cumsum([0, *map(len, few)])
    positions = np.concatenate([np.empty(0, dtype=np.intp), *few])
    matrix = scipy.sparse.csr_array(
        (np.ones(len(positions), dtype=np.int32), positions, starts), shape=(len(few), n_persons)
    )
    # The first column is the true split, the others are random ones.
    is_member = np.tile(real.is_member.astype(np.int32), (_SPLITS + 1, 1))
    is_member[1:] = rng.permuted(is_member[1:], axis=1)
    n_members = matrix @ is_member.T
    n_others = np.diff(starts)[:, None] - n_members
    isolated, isolated_others = (
        (counts == 1).sum(axis=0) / max(len(predicates), 1) for counts in (n_members, n_others)
    )
    advantages = isolated - isolated_others
    is_defined = np.nan if not predicates else 1.0
    return {
        "n_predicates": len(predicates),
        "success": is_defined * isolated[0],
        "holdout_success": is_defined * isolated_others[0],
        "advantage": is_defined * advantages[0],
        "se": is_defined * advantages[1:].std(ddof=1),
        "pvalue": is_defined
        * (1 + (advantages[1:] >= advantages[0] - 1e-12).sum())
        / (1 + _SPLITS),
        "n_members": real.n_members,
        "n_non_members": real.n_non_members,
    }


def _matching_persons(predicates: list[_Predicate], real: RealRows) -> Iterator[np.ndarray]:
    for predicate in predicates:
        yield real.persons[_holds(predicate, real.points)]
