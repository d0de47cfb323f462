"""Shares of values in sampled rows: as users write them, as numbers of rows, and as rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple, NoReturn

import numpy as np
from pandas import isna
from pandas.api import types
from scipy import sparse

from combutab.core.rng import Stream, fold_in, random_permutations
from combutab.generators._rules import Rules
from combutab.generators.completion import Completion, UniqueValues
from combutab.generators.conditions import (
    Codes,
    Condition,
    Outside,
    Range,
    column_of,
    equal_cells,
    offset_of,
    python_scalar,
    range_end,
    read_range,
    read_values,
    span_of,
)
from combutab.generators.sampling import Encoded, Sampler, join
from combutab.preprocessing import (
    CategoryColumn,
    ModeEncoder,
    NumberColumn,
    Table,
)

_TOLERANCE = 1e-9  # for shares that add up to 1
_PILOT = 5000  # rows that show which combinations of several columns occur, at least
_PILOT_GROUP = 30  # rows of each group among them, at least
_SWEEPS = 1000  # of raking, at most
_CONVERGED = 1e-6  # changes of the numbers of rows, at which raking ends
_NODES = 1000  # of a search for integers, which two columns never need
_LISTED = 3  # values of a column that an error names

# ---- Shares as users write them ------------------------------------------------------------------

ValueGroup = Codes | Range | Outside


@dataclass(frozen=True)
class ColumnShares:
    """Groups of a column's values, as conditions, and the share of the rows of each group.

    A row meets at most one of the conditions. The shares, (n_groups,), add up to 1.
    """

    column: Any
    names: Sequence[str]
    conditions: Sequence[ValueGroup]
    shares: np.ndarray

    def counts(self, n: int) -> np.ndarray:
        """Round the numbers of n rows by largest remainders, the first of equal ones up."""
        counts = np.floor(n * self.shares + _TOLERANCE).astype(np.int64)
        remainders = (n * self.shares - counts).round(9)
        counts[np.argsort(-remainders, kind="stable")[: n - counts.sum()]] += 1
        return counts


def read_shares(
    encoder: ModeEncoder,
    shares: Any,
    balance: Any = None,
    conditions: Sequence[Condition] = (),
    rules: Rules | None = None,
) -> list[ColumnShares]:
    """Check ``shares`` and ``balance`` of ``sample``, and express them in the encoder's terms.

    ``balance`` leaves out values that the ``rules`` do not allow with the conditions.

    Raises ValueError if a column has no such values or ranges, or two of them have a value in
    common, if shares are invalid or add up to more than 1, or if a column is in both or in the
    ``conditions``.
    """
    if shares is not None and not isinstance(shares, Mapping):
        raise ValueError(
            "shares must be a mapping such as {column: {value: share}}, got "
            f"{type(shares).__name__}"
        )
    requested = [_read_column(encoder, column, parts) for column, parts in (shares or {}).items()]
    if balance is not None:
        if shares and balance in shares:
            raise ValueError(f"{balance!r} is in balance and in shares; leave it out of one")
        requested.append(_read_balance(encoder, balance))
    for column_shares in requested:
        column = column_shares.column
        if any(condition.column == column for condition in conditions):
            name = "balance" if column == balance else "shares"
            raise ValueError(
                f"{column!r} is in {name} and in conditions; leave it out of one of them (a list "
                "of values as the condition gives them by their true shares)"
            )
    if rules is None or not rules.constraints:
        return requested
    return [
        _leave_out_refused(column_shares, rules, conditions, column_shares.column == balance)
        for column_shares in requested
    ]


def _leave_out_refused(
    shares: ColumnShares, rules: Rules, conditions: Sequence[Condition], is_balanced: bool
) -> ColumnShares:
    """Refuse values that constraints and conditions do not allow, or do not balance them."""
    allowed = [rules.allows([group, *conditions]) for group in shares.conditions]
    refused = [
        name
        for name, share, is_allowed in zip(shares.names, shares.shares, allowed, strict=True)
        if share and not is_allowed
    ]
    if not refused:
        return shares
    if not is_balanced or not any(allowed):
        name = "balance" if is_balanced else "shares"
        with_conditions = " with the conditions" if conditions else ""
        raise ValueError(
            f"{name} has values of {shares.column!r} that the constraints do not allow"
            f"{with_conditions}: {', '.join(refused[:_LISTED])}; leave them out, or lower "
            "min_frequency in fit"
        )
    groups = np.flatnonzero(allowed).tolist()
    return ColumnShares(
        shares.column,
        [shares.names[g] for g in groups],
        [shares.conditions[g] for g in groups],
        np.full(len(groups), 1 / len(groups)),
    )


def given_values(shares: Sequence[ColumnShares]) -> list[Condition]:
    """The conditions of discrete columns: their drawn values are fixed, and others follow."""
    return [
        condition
        for column_shares in shares
        if _is_discrete(column_shares)
        for condition in column_shares.conditions
    ]


def _is_discrete(shares: ColumnShares) -> bool:
    return all(isinstance(condition, Codes) for condition in shares.conditions)


def _read_balance(encoder: ModeEncoder, column: Any) -> ColumnShares:
    coder = _coder_of(encoder, column, "balance")
    if coder.is_continuous:
        label = encoder.schema_.label(encoder.schema_.position(column))
        raise ValueError(
            f"{label} is continuous, so that it has no values to balance; list it in "
            "discrete_columns of fit, balance another, or give ranges in shares"
        )
    span = span_of(encoder, encoder.schema_.position(column))
    n = len(coder.values)  # the code of rare values comes after these
    conditions = [Codes(column, span, (code,)) for code in range(n)]
    return ColumnShares(column, list(map(repr, coder.values)), conditions, np.full(n, 1 / n))


def _read_column(encoder: ModeEncoder, column: Any, shares: Any) -> ColumnShares:
    coder = _coder_of(encoder, column, "shares")
    if not isinstance(shares, Mapping) or not shares:
        raise ValueError(
            f"the shares of {column!r} must be a mapping such as {{value: share}}, got {shares!r}"
        )
    for key, share in shares.items():
        number = isinstance(share, Real) and not isinstance(share, bool | np.bool_)
        if not number or not 0 <= share <= 1:
            raise ValueError(
                f"the share of {key!r} in {column!r} must be a number from 0 to 1, got {share!r}"
            )
    total = math.fsum(shares.values())
    if total > 1 + _TOLERANCE:
        raise ValueError(f"the shares of {column!r} add up to {total:g}, which is more than 1")
    if coder.is_continuous:
        groups, remaining = _read_continuous(encoder, column, coder, list(shares))
    else:
        groups, remaining = _read_discrete(encoder, column, coder, list(shares))
    names = [repr(k[0] if isinstance(k, tuple) and len(k) == 1 else k) for k in shares]
    numbers = list(map(float, shares.values()))
    if total < 1 - _TOLERANCE:
        if remaining is None:
            raise ValueError(
                f"the shares of {column!r} add up to {total:g}, and it has no other values; "
                "let them add up to 1"
            )
        groups, names = [*groups, remaining], [*names, "another value"]
        numbers.append(1 - total)
    return ColumnShares(column, names, groups, np.array(numbers) / math.fsum(numbers))


def _coder_of(encoder: ModeEncoder, column: Any, what: str) -> CategoryColumn | NumberColumn:
    """The encoder of a column that can have shares."""
    j = encoder.schema_.position(column)
    coder, label = encoder.columns_[j], encoder.schema_.label(j)
    instead = "balance another" if what == "balance" else "leave it out of shares"
    if coder.is_identifier:
        raise ValueError(f"{label} holds identifiers, which are new in each row; {instead}")
    if coder.categories is not None and coder.size == 1:
        raise ValueError(f"{label} is constant; {instead}")
    return coder


def _read_discrete(
    encoder: ModeEncoder, column: Any, coder: CategoryColumn, keys: list[Any]
) -> tuple[list[ValueGroup], ValueGroup | None]:
    """The conditions of (tuples of) values of a discrete column, and that of the other values."""
    groups: list[ValueGroup] = []
    group_of_code: dict[int, Any] = {}
    for key in keys:
        values = list(key) if isinstance(key, tuple) else [key]
        if not values:
            raise ValueError(f"the shares of {column!r} have a group without values; leave it out")
        group = read_values(encoder, column, values)
        assert isinstance(group, Codes)
        for code in group.codes:
            if code in group_of_code:
                raise ValueError(
                    f"the shares of {column!r} name a value twice: in {group_of_code[code]!r} and "
                    f"{key!r}"
                )
            group_of_code[code] = key
        groups.append(group)
    # the code of rare values comes after these; no row is sampled with it
    remaining = tuple(code for code in range(len(coder.values)) if code not in group_of_code)
    span = span_of(encoder, encoder.schema_.position(column))
    return groups, Codes(column, span, remaining) if remaining else None


class _Ends(NamedTuple):
    """A requested range, and the index of its group."""

    low: Any
    high: Any
    group: int


def _read_continuous(
    encoder: ModeEncoder, column: Any, coder: NumberColumn, keys: list[Any]
) -> tuple[list[ValueGroup], ValueGroup | None]:
    """The conditions of ranges of a continuous column, or of missing values, and of the others.

    A number at which one range ends and the next begins belongs to the next.
    """
    groups: list[ValueGroup] = []
    ends: list[_Ends] = []
    requested: Condition | None
    for g, key in enumerate(keys):
        if isinstance(key, tuple):
            requested = read_range(encoder, column, key)
            low, high = (e if e is None else range_end(column, e, coder.bounds) for e in key)
            ends.append(_Ends(low, high, g))
        elif types.is_scalar(key) and isna(key):
            requested = read_values(encoder, column, [key])
        else:
            raise ValueError(
                f"{column!r} is continuous: its shares are of ranges (low, high) or of None, the "
                f"missing values, got {key!r}; a single number is the range ({key!r}, {key!r})"
            )
        assert isinstance(requested, Range | Codes)
        groups.append(requested)
    ends.sort(key=lambda r: tuple((e is not None, 0 if e is None else e) for e in r[:2]))
    lowest, highest = map(python_scalar, coder.bounds)
    for first, second in itertools.pairwise(ends):
        _refuse_overlap(column, first, second)
        if first.high == second.low:
            if first.high <= lowest:
                raise ValueError(
                    f"no value of {column!r} is less than {first.high}: they lie in {lowest} to "
                    f"{highest}"
                )
            group = groups[first.group]
            assert isinstance(group, Range)
            groups[first.group] = replace(group, high=first.high, open=True)
    ranges = tuple(group for group in groups if isinstance(group, Range))
    may_miss = coder.missing and not coder.rare and len(ranges) == len(groups)
    has_others = not ends or may_miss
    if ends:
        low, high = ends[0].low, ends[-1].high
        has_others |= (low is not None and low > lowest) or (high is not None and high < highest)
        gaps = ((first.high, second.low) for first, second in itertools.pairwise(ends))
        has_others |= any(_has_between(coder, *gap) for gap in gaps)
    return groups, Outside(column, ranges, may_miss) if has_others else None


def _refuse_overlap(column: Any, first: _Ends, second: _Ends) -> None:
    """Refuse ranges, in order, that have numbers in common."""
    is_empty = first.low is not None and first.low == first.high == second.low
    if first.high is None or second.low is None or first.high > second.low or is_empty:
        raise ValueError(
            f"the ranges {first[:2]} and {second[:2]} of {column!r} overlap; let one end where "
            "the next begins"
        )


def _has_between(coder: NumberColumn, low: Any, high: Any) -> bool:
    """Whether a column can have a number between two others, which are excluded."""
    middle = (offset_of(coder, low) + offset_of(coder, high)) / 2
    written = coder.format.write(middle, np.zeros(1, dtype=bool))
    return bool((written.gt(low) & written.lt(high)).any())


# ---- Raking: numbers of rows of all combinations -------------------------------------------------


def rake(cells: np.ndarray, seed: np.ndarray, counts: Sequence[np.ndarray]) -> np.ndarray | None:
    """Rake combinations of groups to integer numbers of rows, so that each group has its count.

    They are nearest to the result of iterative proportional fitting: the table with these counts
    that has the odds ratios of the seed.

    Parameters
    ----------
    cells : ndarray of int, (n_cells, n_columns)
        The possible combinations: the group in each column.
    seed : ndarray, (n_cells,)
        Their positive frequencies.
    counts : sequence of ndarray of int
        For each column, the number of rows of each group.

    Returns
    -------
    ndarray of int, (n_cells,), or None if no integers add up to the counts

    References
    ----------
    Deming and Stephan (1940), "On a least squares adjustment of a sampled frequency table when the
    expected marginal totals are known"; Cox and Ernst (1982), "Controlled rounding".

    Examples
    --------
    >>> cells = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> rake(cells, np.array([4.0, 1.0, 1.0, 4.0]), [np.array([9, 6]), np.array([8, 7])])
    array([7, 2, 1, 5])
    """
    fit = seed * (counts[0].sum() / seed.sum())
    for _ in range(_SWEEPS):
        before = fit
        for column, column_counts in zip(cells.T, counts, strict=True):
            sums = np.bincount(column, fit, len(column_counts))
            fit = fit * (column_counts / np.maximum(sums, 1e-300))[column]
        if np.abs(fit - before).max() < _CONVERGED:
            break
    # the first two columns, then their combinations and the third one, and so on: these are
    # transport problems, which have integer solutions
    joined, n_rows = cells[:, 0], counts[0]
    for j in range(1, cells.shape[1]):
        pairs = np.stack([joined, cells[:, j]], axis=1)
        pairs, joined = np.unique(pairs, axis=0, return_inverse=True)
        joined = joined.reshape(-1)
        rounded = _round_to_counts(pairs, np.bincount(joined, fit), [n_rows, counts[j]])
        if rounded is None:  # the rounded combinations may not suit the other columns
            return _round_to_counts(cells, fit, counts) if cells.shape[1] > 2 else None
        n_rows = rounded
    return n_rows[joined]


def _round_to_counts(
    cells: np.ndarray, fit: np.ndarray, counts: Sequence[np.ndarray]
) -> np.ndarray | None:
    """Round numbers so that each group has its count, with the least change; None if impossible."""
    from scipy.optimize import milp

    # The costs grow with the distance from the fit: below 1 for rounding up, and 1 for each row
    # more or less.
    below, n = np.floor(fit), len(fit)
    table = _incidence(cells, counts)
    remaining = np.concatenate(counts) - table @ below
    solution = milp(
        np.concatenate([1 - 2 * (fit - below), np.ones(2 * n)]),
        integrality=np.ones(3 * n),
        bounds=(0, np.concatenate([np.ones(n), np.full(n, np.inf), below])),
        constraints=(sparse.hstack([table, table, -table]).tocsr(), remaining, remaining),
        options={"node_limit": _NODES},
    )
    if solution.x is None:
        return None
    up, more, fewer = solution.x.round().astype(np.int64).reshape(3, n)
    n_rows: np.ndarray = below.astype(np.int64) + up + more - fewer
    return n_rows


def _incidence(cells: np.ndarray, counts: Sequence[np.ndarray]) -> sparse.csr_array:
    """A matrix of the combinations (columns) that contain each group of each column (rows)."""
    starts = np.cumsum([0, *map(len, counts[:-1])])
    n, k = cells.shape
    positions = ((cells + starts).ravel(), np.repeat(np.arange(n), k))
    return sparse.csr_array((np.ones(n * k), positions), shape=(sum(map(len, counts)), n))


def _count_unplaced(cells: np.ndarray, counts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The rows of each group that cannot be in a combination of those that were drawn."""
    from scipy.optimize import milp

    table, group_counts = _incidence(cells, counts), np.concatenate(counts)
    solution = milp(
        -np.ones(len(cells)),
        integrality=np.ones(len(cells)),
        constraints=(table, -np.inf, group_counts),
        options={"mip_rel_gap": 0, "node_limit": _NODES},
    )
    unplaced = group_counts - (table @ solution.x).round().astype(np.int64)
    return np.split(unplaced, np.cumsum([len(c) for c in counts[:-1]]))


# ---- Rows with the shares ------------------------------------------------------------------------


def draw_shares(
    sampler: Sampler[Any],
    n: int,
    shares: Sequence[ColumnShares],
    conditions: Sequence[Condition],
    key: int,
    max_tries: int,
    completion: Completion | None = None,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Values and codes of n rows that meet conditions and have the shares, and n_tried.

    The rows are in random order. There are fewer rows of combinations for which max_tries is not
    enough; n_tried is the number of candidates.

    Raises ValueError if the shares of several columns cannot be met together by combinations that
    are among the rows that are drawn first.
    """
    draw = _GroupDraws(sampler, conditions, key, max_tries)
    parts = [sampler.draw(0, (), key, 1)[:2]]
    if len(shares) == 1:
        counts = shares[0].counts(n).tolist()
        for g, (group, count) in enumerate(zip(shares[0].conditions, counts, strict=True)):
            if count:
                parts.append(draw(count, g, [group], completion))
    elif n:
        parts += _draw_combinations(draw, n, _rarest_first(sampler.encoder, shares), completion)
    values, codes = join(parts)
    order = random_permutations([fold_in(key, Stream.BALANCED)], [len(codes)])[0].numpy()
    return values[order], codes[order], draw.n_tried


class _GroupDraws:
    """Draws rows of groups that meet the same conditions, and counts the candidates."""

    def __init__(
        self, sampler: Sampler[Any], conditions: Sequence[Condition], key: int, max_tries: int
    ) -> None:
        self.sampler, self.conditions = sampler, conditions
        self._key, self._max_tries = key, max_tries
        self.n_tried = 0

    def __call__(
        self, n: int, stream: int, groups: Sequence[ValueGroup], completion: Completion | None
    ) -> Encoded:
        """Values and codes of n rows; each ``stream`` has its own random numbers."""
        key = fold_in(self._key, Stream.PATTERN, stream)
        conditions = [*groups, *self.conditions]
        values, codes, n_tried = self.sampler.draw(n, conditions, key, self._max_tries, completion)
        self.n_tried += n_tried
        return values, codes


def _draw_combinations(
    draw: _GroupDraws, n: int, shares: Sequence[ColumnShares], completion: Completion | None
) -> list[Encoded]:
    """Draw n rows with the shares of several columns, by raking the rows of a pilot sample."""
    counts = [column_shares.counts(n) for column_shares in shares]
    n_groups = int(np.count_nonzero(counts[0]))
    pilot = None if completion is None else completion.pilot()
    pilot_parts = [
        draw(max(count, -(-_PILOT // n_groups), _PILOT_GROUP), g, [shares[0].conditions[g]], pilot)
        for g, count in enumerate(counts[0].tolist())
        if count
    ]
    values, codes = join(pilot_parts)
    conditions = [*draw.conditions, *given_values(shares)]
    groups, table = _groups_of(draw.sampler, (values, codes), shares, counts, conditions)
    valid = np.flatnonzero((groups >= 0).all(axis=1))
    cells, cell_of_row, seed = np.unique(
        groups[valid], axis=0, return_inverse=True, return_counts=True
    )
    n_rows = rake(cells, seed.astype(float), counts) if len(cells) else None
    if n_rows is None:
        _refuse_shares(shares, counts, cells, len(codes))
    unique = UniqueValues.empty(len(codes), 0)
    if completion is not None:
        unique = completion.unique_values(Table(table).columns_by_name(), len(codes))
    parts = []
    for c, count in enumerate(n_rows.tolist()):
        rows = valid[cell_of_row.reshape(-1) == c]
        if completion is not None:
            unused = np.flatnonzero(completion.find_unused(unique[rows]))[:count]
            rows = rows[unused]
            completion.use(unique[rows])
        rows = rows[:count]
        parts.append((values[rows], codes[rows]))
        if count > len(rows):
            pairs = zip(shares, cells[c], strict=True)
            group = [column_shares.conditions[g] for column_shares, g in pairs]
            parts.append(draw(count - len(rows), len(counts[0]) + c, group, completion))
    return parts


def _rarest_first(encoder: ModeEncoder, shares: Sequence[ColumnShares]) -> Sequence[ColumnShares]:
    """Sort columns by the frequency of their rarest group, as the first is drawn by conditions."""
    frequencies = encoder.category_counts_

    def count_rarest(column_shares: ColumnShares) -> float:
        pairs = zip(column_shares.conditions, column_shares.shares, strict=True)
        groups = [group for group, share in pairs if share]
        return min(
            frequencies[group.span][list(group.codes)].sum()
            if isinstance(group, Codes) and group.span in frequencies
            else np.inf
            for group in groups
        )

    return sorted(shares, key=count_rarest)


def _groups_of(
    sampler: Sampler[Any],
    drawn: Encoded,
    shares: Sequence[ColumnShares],
    counts: Sequence[np.ndarray],
    conditions: Sequence[Condition],
) -> tuple[np.ndarray, Any]:
    """The group of each row in each column, (n, n_columns), -1 for none; and the decoded rows."""
    rules = sampler.rules
    is_decoded = bool(rules) or not all(map(_is_discrete, shares))
    raw: Any = sampler.encoder.decode(*drawn) if is_decoded else None
    table = rules.decode(*drawn, conditions) if rules else raw
    groups = np.full((len(drawn[1]), len(shares)), -1)
    for j, (column_shares, group_counts) in enumerate(zip(shares, counts, strict=True)):
        for g in np.flatnonzero(group_counts).tolist():
            groups[column_shares.conditions[g].met(drawn[1], table), j] = g
        if rules and _is_discrete(column_shares):  # computed values may differ from the codes
            column = column_shares.column
            groups[~equal_cells(column_of(raw, column), column_of(table, column)), j] = -1
    return groups, table


def _refuse_shares(
    shares: Sequence[ColumnShares], counts: Sequence[np.ndarray], cells: np.ndarray, n_drawn: int
) -> NoReturn:
    """Raise an error that names the values that were not drawn together."""
    unplaced = _count_unplaced(cells, counts) if len(cells) else counts
    values = []
    for column_shares, n_unplaced in zip(shares, unplaced, strict=True):
        names = [column_shares.names[g] for g in np.flatnonzero(n_unplaced).tolist()]
        more = f" or {len(names) - _LISTED} others" if len(names) > _LISTED else ""
        values.append(f"{column_shares.column!r} = {' or '.join(names[:_LISTED])}{more}")
    raise ValueError(
        f"the shares cannot be met together: {unplaced[0].sum()} of {counts[0].sum()} rows would "
        f"need combinations that none of {n_drawn} drawn rows has: {' with '.join(values)}; lower "
        "these shares, or leave one of the columns out"
    )
