"""Shares of values that sampled rows are to have: as users write them, as counts, and as rows."""

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
from combutab.generators.completion import Search
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
from combutab.preprocessing import CategoryColumn, IdentifierColumn, ModeEncoder, NumberColumn

_TOLERANCE = 1e-9  # by which shares that add up to 1 may miss it
# rows that combinations of several columns are known by, at least: in all, and of each group
_PILOT, _PILOT_EACH = 5000, 30
_SWEEPS, _CONVERGED = (
    1000,
    1e-6,
)  # of raking: at most, and changes in rows that are too small for more
_NODES = 1000  # of a search for whole numbers, which two columns never need
_LISTED = 3  # values of a column that an error names

# ---- Shares as users write them ------------------------------------------------------------------

ValueGroup = Codes | Range | Outside


@dataclass(frozen=True)
class ColumnShares:
    """Groups of a column's values, as conditions, and the share of the rows that each is to have.

    A row meets one of the conditions at most. The shares, (n_groups,), add up to 1.
    """

    column: Any
    names: Sequence[str]
    conditions: Sequence[ValueGroup]
    shares: np.ndarray

    def counts(self, n: int) -> np.ndarray:
        """Round the shares of n rows by largest remainders; of equal ones the first get a row."""
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

    ``balance`` leaves out values that the ``rules`` do not allow beside the conditions.

    Raises ValueError if a column has no such values or ranges, or two of them have a value in
    common, if shares are none or add up to more than 1, or if a column is in both or has one of the
    ``conditions``.
    """
    if shares is not None and not isinstance(shares, Mapping):
        raise ValueError(
            "shares must be a mapping such as {column: {value: share}}, got "
            f"{type(shares).__name__}"
        )
    read = [_read_column(encoder, column, own) for column, own in (shares or {}).items()]
    if balance is not None:
        if shares and balance in shares:
            raise ValueError(f"{balance!r} is in balance and in shares; leave it out of one")
        read.append(_read_balance(encoder, balance))
    for each in read:
        if any(condition.column == each.column for condition in conditions):
            name = "balance" if each.column == balance else "shares"
            raise ValueError(
                f"{each.column!r} is in {name} and in conditions; leave it out of one of them (a "
                "list of values as the condition gives them by their true shares)"
            )
    if rules is None or not rules.constraints:
        return read
    return [_without_refused(each, rules, conditions, each.column == balance) for each in read]


def _without_refused(
    shares: ColumnShares, rules: Rules, conditions: Sequence[Condition], balanced: bool
) -> ColumnShares:
    """Refuse values that rules and conditions do not allow; balanced columns go without them."""
    allowed = [rules.allows([group, *conditions]) for group in shares.conditions]
    refused = [
        name
        for name, share, is_allowed in zip(shares.names, shares.shares, allowed, strict=True)
        if share and not is_allowed
    ]
    if refused and (not balanced or not any(allowed)):
        name, beside = (
            "balance" if balanced else "shares",
            " beside the conditions" * bool(conditions),
        )
        raise ValueError(
            f"{name} has values of {shares.column!r} that the constraints do not allow{beside}: "
            f"{', '.join(refused[:_LISTED])}; leave them out, or lower min_frequency in fit"
        )
    if not refused:
        return shares
    kept = np.flatnonzero(allowed).tolist()
    return ColumnShares(
        shares.column,
        [shares.names[g] for g in kept],
        [shares.conditions[g] for g in kept],
        np.full(len(kept), 1 / len(kept)),
    )


def given_values(shares: Sequence[ColumnShares]) -> list[Condition]:
    """The conditions of columns of values: what is drawn there is given, and others follow."""
    groups = [each.conditions for each in shares]
    return [part for own in groups if all(isinstance(g, Codes) for g in own) for part in own]


def _read_balance(encoder: ModeEncoder, column: Any) -> ColumnShares:
    coder = _coder_of(encoder, column, "balance")
    if not isinstance(coder, CategoryColumn):
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
    groups, other = (
        _read_continuous(encoder, column, coder, list(shares))
        if isinstance(coder, NumberColumn)
        else _read_discrete(encoder, column, coder, list(shares))
    )
    names = [repr(k[0] if isinstance(k, tuple) and len(k) == 1 else k) for k in shares]
    numbers = list(map(float, shares.values()))
    if total < 1 - _TOLERANCE:
        if other is None:
            raise ValueError(
                f"the shares of {column!r} add up to {total:g}, and it has no other values; "
                "let them add up to 1"
            )
        groups, names, numbers = [*groups, other], [*names, "another value"], [*numbers, 1 - total]
    return ColumnShares(column, names, groups, np.array(numbers) / math.fsum(numbers))


def _coder_of(encoder: ModeEncoder, column: Any, what: str) -> CategoryColumn | NumberColumn:
    """What encodes a column that rows can be ordered by."""
    j = encoder.schema_.position(column)
    coder, label = encoder.columns_[j], encoder.schema_.label(j)
    instead = "balance another" if what == "balance" else "leave it out of shares"
    if isinstance(coder, IdentifierColumn):
        raise ValueError(f"{label} holds identifiers, which are new in each row; {instead}")
    if isinstance(coder, CategoryColumn) and coder.size == 1:
        raise ValueError(f"{label} is constant; {instead}")
    assert isinstance(coder, CategoryColumn | NumberColumn)
    return coder


def _read_discrete(
    encoder: ModeEncoder, column: Any, coder: CategoryColumn, keys: list[Any]
) -> tuple[list[ValueGroup], ValueGroup | None]:
    """The conditions of values, or tuples of them, of a discrete column; that of all others."""
    groups: list[ValueGroup] = []
    named: dict[int, Any] = {}
    for key in keys:
        values = list(key) if isinstance(key, tuple) else [key]
        if not values:
            raise ValueError(f"the shares of {column!r} have a group without values; leave it out")
        group = read_values(encoder, column, values)
        assert isinstance(group, Codes)
        for code in group.codes:
            if code in named:
                raise ValueError(
                    f"the shares of {column!r} name a value twice: in {named[code]!r} and {key!r}"
                )
            named[code] = key
        groups.append(group)
    # the code of rare values, which no row is made with, comes after these
    rest = tuple(code for code in range(len(coder.values)) if code not in named)
    span = span_of(encoder, encoder.schema_.position(column))
    return groups, Codes(column, span, rest) if rest else None


class _Ends(NamedTuple):
    """A range as it is given, and its place among the groups."""

    low: Any
    high: Any
    place: int


def _read_continuous(
    encoder: ModeEncoder, column: Any, coder: NumberColumn, keys: list[Any]
) -> tuple[list[ValueGroup], ValueGroup | None]:
    """The conditions of ranges of a continuous column, or of a missing value; that of all others.

    Where one range ends at the number that the next one begins with, the number is of the next.
    """
    groups: list[ValueGroup | None] = []
    given = []
    for place, key in enumerate(keys):
        if isinstance(key, tuple):
            groups.append(read_range(encoder, column, key))
            low, high = (e if e is None else range_end(column, e, coder.bounds) for e in key)
            given.append(_Ends(low, high, place))
        elif types.is_scalar(key) and isna(key):
            missing = read_values(encoder, column, [key])
            assert isinstance(missing, Codes)
            groups.append(missing)
        else:
            raise ValueError(
                f"{column!r} is continuous: its shares are of ranges (low, high) or of None, the "
                f"missing values, got {key!r}; a single number is the range ({key!r}, {key!r})"
            )
    given.sort(key=lambda r: tuple((e is not None, 0 if e is None else e) for e in r[:2]))
    least, most = map(python_scalar, coder.bounds)
    for one, next_ in itertools.pairwise(given):
        touching = one.high is not None and one.high == next_.low
        if (
            one.high is None
            or next_.low is None
            or one.high > next_.low
            or (touching and one.low == one.high)
        ):
            raise ValueError(
                f"the ranges {one[:2]} and {next_[:2]} of {column!r} overlap; let one end where "
                "the next begins"
            )
        if touching:
            if one.high <= least:
                raise ValueError(
                    f"no value of {column!r} is less than {one.high}: they lie in {least} to {most}"
                )
            found = groups[one.place]
            assert isinstance(found, Range)
            groups[one.place] = replace(found, high=one.high, open=True)
    conditions = [each for each in groups if each is not None]
    ranges = tuple(each for each in conditions if isinstance(each, Range))
    may_miss = coder.missing and not coder.rare and len(ranges) == len(conditions)
    others = not given or may_miss
    if given:
        first, last = given[0].low, given[-1].high
        others |= (first is not None and first > least) or (last is not None and last < most)
        others |= any(_has_between(coder, a.high, b.low) for a, b in itertools.pairwise(given))
    return conditions, Outside(column, ranges, may_miss) if others else None


def _has_between(coder: NumberColumn, low: Any, high: Any) -> bool:
    """Tell whether a column can have a number between two others, neither of which counts."""
    middle = (offset_of(coder, low) + offset_of(coder, high)) / 2
    written = coder.format.write(middle, np.zeros(1, dtype=bool))
    return bool((written.gt(low) & written.lt(high)).any())


# ---- Counts of all combinations, by raking -------------------------------------------------------


def rake(cells: np.ndarray, seed: np.ndarray, counts: Sequence[np.ndarray]) -> np.ndarray | None:
    """Whole numbers of rows for combinations of groups, so that each group has its count exactly.

    They are those nearest to what iterative proportional fitting makes of the seed: of all tables
    that have the counts, the one whose odds ratios are the seed's.

    Parameters
    ----------
    cells : ndarray of int, (n_cells, n_columns)
        The combinations that there may be: for each column, which group.
    seed : ndarray, (n_cells,)
        How frequent they are; positive.
    counts : sequence of ndarray of int
        For each column, the rows that each group is to have.

    Returns
    -------
    ndarray of int, (n_cells,), or None if no such numbers add up to the counts

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
        for column, wanted in zip(cells.T, counts, strict=True):
            sums = np.bincount(column, fit, len(wanted))
            fit = fit * (wanted / np.maximum(sums, 1e-300))[column]
        if np.abs(fit - before).max() < _CONVERGED:
            break
    # the first two columns, then their combinations and the third one: each a transport problem,
    # which has whole solutions
    joined, whole = cells[:, 0], counts[0]
    for j in range(1, cells.shape[1]):
        pairs = np.stack([joined, cells[:, j]], axis=1)
        pairs, joined = np.unique(pairs, axis=0, return_inverse=True)
        joined = joined.reshape(-1)
        found = _round_to_counts(pairs, np.bincount(joined, fit), [whole, counts[j]])
        if found is None:  # the combinations that were chosen may not suit the others
            return _round_to_counts(cells, fit, counts) if cells.shape[1] > 2 else None
        whole = found
    return whole[joined]


def _round_to_counts(
    cells: np.ndarray, fit: np.ndarray, counts: Sequence[np.ndarray]
) -> np.ndarray | None:
    """Round numbers so that each group has its count, with the least change; None if none do."""
    from scipy.optimize import milp

    # The further from the fit, the more a change by one costs: rounding up costs less than 1,
    # anything more or fewer 1.
    below, n = np.floor(fit), len(fit)
    table = _incidence(cells, counts)
    lacking = np.concatenate(counts) - table @ below
    found = milp(
        np.concatenate([1 - 2 * (fit - below), np.ones(2 * n)]),
        integrality=np.ones(3 * n),
        bounds=(0, np.concatenate([np.ones(n), np.full(n, np.inf), below])),
        constraints=(sparse.hstack([table, table, -table]).tocsr(), lacking, lacking),
        options={"node_limit": _NODES},
    )
    if found.x is None:
        return None
    up, more, fewer = found.x.round().astype(np.int64).reshape(3, n)
    whole: np.ndarray = below.astype(np.int64) + up + more - fewer
    return whole


def _incidence(cells: np.ndarray, counts: Sequence[np.ndarray]) -> sparse.csr_array:
    """Which combinations (columns) each group of each column (rows) is in."""
    starts = np.cumsum([0, *map(len, counts[:-1])])
    n, k = cells.shape
    at = ((cells + starts).ravel(), np.repeat(np.arange(n), k))
    return sparse.csr_array((np.ones(n * k), at), shape=(sum(map(len, counts)), n))


def _unplaced(cells: np.ndarray, counts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """How many rows of each group have no place where as many as possible have one."""
    from scipy.optimize import milp

    table, wanted = _incidence(cells, counts), np.concatenate(counts)
    found = milp(
        -np.ones(len(cells)),
        integrality=np.ones(len(cells)),
        constraints=(table, -np.inf, wanted),
        options={"mip_rel_gap": 0, "node_limit": _NODES},
    )
    left = wanted - (table @ found.x).round().astype(np.int64)
    return np.split(left, np.cumsum([len(each) for each in counts[:-1]]))


# ---- Rows that have the shares -------------------------------------------------------------------


def draw_shares(
    sampler: Sampler[Any],
    n: int,
    ordered: Sequence[ColumnShares],
    conditions: Sequence[Condition],
    key: int,
    max_tries: int,
    search: Search | None = None,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Values and codes of n rows that meet conditions and have the shares, and how many were made.

    The rows are in random order. There are fewer of combinations that max_tries were not enough
    for.

    Raises ValueError if the shares of several columns cannot be met together by combinations that
    are among the rows that are drawn first.
    """
    parts = [sampler.draw(0, (), key, 1)[:2]]
    made = 0

    def draw(n_rows: int, place: int, *groups: ValueGroup, by: Search | None = search) -> None:
        nonlocal made
        own_key = fold_in(key, Stream.PATTERN, place)
        *rows, n_made = sampler.draw(n_rows, [*groups, *conditions], own_key, max_tries, by)
        parts.append((rows[0], rows[1]))
        made += n_made

    if len(ordered) == 1:
        (only,) = ordered
        for place, (group, count) in enumerate(
            zip(only.conditions, only.counts(n).tolist(), strict=True)
        ):
            if count:
                draw(count, place, group)
    elif n:
        ordered = _rarest_first(sampler.encoder, ordered)
        counts = [each.counts(n) for each in ordered]
        first, n_groups = ordered[0], int(np.count_nonzero(counts[0]))
        for place, count in enumerate(counts[0].tolist()):
            if count:
                n_rows = max(count, -(-_PILOT // n_groups), _PILOT_EACH)
                pilot = None if search is None else search.pilot()
                draw(n_rows, place, first.conditions[place], by=pilot)
        drawn = join(parts)
        parts = [parts[0]]
        groups = _groups_of(sampler, drawn, ordered, counts, [*conditions, *given_values(ordered)])
        known = np.flatnonzero((groups >= 0).all(axis=1))
        cells, which, seed = np.unique(
            groups[known], axis=0, return_inverse=True, return_counts=True
        )
        whole = rake(cells, seed.astype(float), counts) if len(cells) else None
        if whole is None:
            _refuse(ordered, counts, cells, len(drawn[1]))
        for c, count in enumerate(whole.tolist()):
            rows = known[which.reshape(-1) == c]
            if search is not None:
                labels, differ = search.labels(drawn[0][rows], drawn[1][rows])
                fresh = np.flatnonzero(search.unseen(labels, differ))[:count]
                search.take(labels[fresh], differ[fresh])
                rows = rows[fresh]
            rows = rows[:count]
            parts.append((drawn[0][rows], drawn[1][rows]))
            if count > len(rows):
                own = [each.conditions[g] for each, g in zip(ordered, cells[c], strict=True)]
                draw(count - len(rows), len(counts[0]) + c, *own)
    values, codes = join(parts)
    order = random_permutations([fold_in(key, Stream.BALANCED)], [len(codes)])[0].numpy()
    return values[order], codes[order], made


def _rarest_first(encoder: ModeEncoder, ordered: Sequence[ColumnShares]) -> Sequence[ColumnShares]:
    """The column of the rarest group before the others: its rows are drawn by condition."""
    frequencies = encoder.category_counts_

    def rows(each: ColumnShares) -> float:
        groups = [g for g, s in zip(each.conditions, each.shares, strict=True) if s]
        return min(
            frequencies[g.span][list(g.codes)].sum()
            if isinstance(g, Codes) and g.span in frequencies
            else np.inf
            for g in groups
        )

    return sorted(ordered, key=rows)


def _groups_of(
    sampler: Sampler[Any],
    drawn: Encoded,
    ordered: Sequence[ColumnShares],
    counts: Sequence[np.ndarray],
    conditions: Sequence[Condition],
) -> np.ndarray:
    """The group of each row in each column, (n, n_columns); -1 for none that rows are wanted of."""
    every = [group for each in ordered for group in each.conditions]
    decoded = any(not isinstance(group, Codes) for group in every)
    rules = sampler.rules
    raw: Any = sampler.encoder.decode(*drawn) if decoded or rules else None
    table = rules.decode(*drawn, conditions) if rules else raw
    found = np.full((len(drawn[1]), len(ordered)), -1)
    for j, (each, wanted) in enumerate(zip(ordered, counts, strict=True)):
        for g in np.flatnonzero(wanted).tolist():
            found[each.conditions[g].met(drawn[1], table), j] = g
        if rules:  # a value that follows from others need not be that of the code
            by_code = [isinstance(group, Codes) for group in each.conditions]
            if all(by_code):
                is_equal = equal_cells(column_of(raw, each.column), column_of(table, each.column))
                found[~is_equal, j] = -1
    return found


def _refuse(
    ordered: Sequence[ColumnShares], counts: Sequence[np.ndarray], cells: np.ndarray, n_drawn: int
) -> NoReturn:
    """Raise an error that names the values that were not drawn together."""
    left = _unplaced(cells, counts) if len(cells) else counts
    words = []
    for each, unplaced in zip(ordered, left, strict=True):
        names = [each.names[g] for g in np.flatnonzero(unplaced).tolist()]
        more = f" or {len(names) - _LISTED} others" if len(names) > _LISTED else ""
        words.append(f"{each.column!r} = {' or '.join(names[:_LISTED])}{more}")
    raise ValueError(
        f"the shares cannot be met together: {left[0].sum()} of {counts[0].sum()} rows would need "
        f"combinations that none of {n_drawn} drawn rows has: {' with '.join(words)}; lower these "
        "shares, or leave one of the columns out"
    )
