"""One rule for every claim of every study: does it hold, does it not, or is it not decided?

A claim is one statement about units. A unit is what was drawn at random and could be drawn again,
such as a table, a target function or a split; each claim names its unit. The measure is computed
for each unit; repeats within a unit are averaged first. A verdict gives the mean over the n units
and its 95 % confidence interval: Student's, for splits of one table with Nadeau and Bengio's
corrected variance. Positive values support the claim. If the claim names a threshold, the mean is
the distance from it. A difference below the margin is too small to matter; it is 0 unless stated.

| claim | holds if | does not hold if |
| --- | --- | --- |
| A is better than B | the interval is above 0 | the interval is below the margin |
| A equals B up to a margin | the interval is within ± the margin | it is outside, on one side |
| A is the best of several | A is better than each rival | a rival is significantly better (Holm) |
| an exact statement | no deviation exceeds the margin | a deviation exceeds it |

The first column that applies counts, so an advantage that is above 0 but smaller than the margin
holds. In all other cases the claim is not decided, as it is with fewer than 3 units or if a unit
has no score. "Not judged": no rows are stored for it. The code is `benchmarks/common/verdicts.py`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.common.page import Page, markdown_table, p_text
from combutab.evaluation import bootstrap_interval, corrected_interval, holm, t_interval

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decided"
MIN_UNITS = 3
ALPHA = 0.05
ROUNDING = 1e-12  # relative difference of scores that count as equal
LEGEND = __doc__.partition("\n\n")[2]  # for the pages
MOST_SHOWN = 12  # claims of a table whose numbers are not folded

Scores = Sequence[float] | np.ndarray | pd.Series


@dataclass(frozen=True)
class Verdict:
    """What came out of a claim.

    Attributes
    ----------
    word : str
        `HOLDS`, `FAILS` or `UNDECIDED`.
    estimate, low, high : float
        Mean over units and its 95 % confidence interval; NaN where there is none.
    n_units : int
    note : str
        What a reader needs besides.
    """

    word: str
    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n_units: int = 0
    note: str = ""

    @property
    def numbers(self) -> str:
        """The estimate, its interval and the number of units.

        Numbers have two significant digits of the interval's half-width, and at most three of the
        largest number.

        >>> Verdict(HOLDS, 1.2345, 0.9, 1.569, 8).numbers
        '+1.23 [+0.90, +1.57], n = 8'
        >>> Verdict(HOLDS, 0.01, 0.01, 0.01 + 1e-9, 8).numbers
        '+0.0100 [+0.0100, +0.0100], n = 8'
        """
        parts = []
        if not math.isnan(self.estimate):
            half = (self.high - self.low) / 2
            largest = max(abs(x) for x in (self.estimate, self.low, self.high) if not math.isnan(x))
            digits = 2 - int(f"{largest:.2e}".partition("e")[2])
            if half > 0:
                digits = min(digits, 1 - math.floor(math.log10(half)))
            digits = max(digits, 0)
            text = f"{self.estimate:+.{digits}f}"
            if not math.isnan(self.low):
                text += f" [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"
            parts.append(text)
        if self.n_units:
            parts.append(f"n = {self.n_units}")
        return "; ".join([", ".join(parts)] * bool(parts) + [self.note] * bool(self.note))

    def __str__(self) -> str:
        return f"**{self.word}**: {self.numbers}" if self.numbers else f"**{self.word}**"


@dataclass(frozen=True)
class Claim:
    """One statement, and how a study's rows decide it.

    Attributes
    ----------
    where : str
        Of the paper: "Table 2".
    text : str
        At most 25 words.
    unit : str
        What could be drawn again: "table", "target function"; "exact" for an exact statement.
    judge : callable
        ``judge(rows, margin)`` gives a `Verdict`, or None where the rows do not speak of the claim.
    margin : float, default=0
        The difference that does not matter; of an exact statement the tolerance.
    measure : str
        What is compared, with its unit: "accuracy, points".
    """

    where: str
    text: str
    unit: str
    judge: Callable[[Any, float], Verdict | None]
    margin: float = 0.0
    measure: str = ""

    def verdict(self, rows: Any) -> Verdict | None:
        return self.judge(rows, self.margin)


def claims_table(claims: Iterable[Claim], samples: Mapping[str, Any]) -> str:
    """Judge claims on samples of rows, by name: a Markdown table with a column for each sample."""
    lines = []
    for claim in claims:
        claim_verdicts = [claim.verdict(rows) for rows in samples.values()]
        how = [claim.measure, f"unit: {claim.unit}"][not claim.measure :]
        how += [f"margin {claim.margin:g}"] * (claim.margin > 0)
        lines.append(
            [claim.where, claim.text, "; ".join(how), *(v or "not judged" for v in claim_verdicts)]
        )
    return markdown_table(["where", "claim", "measure", *samples], lines)


def counted(words: Iterable[str]) -> str:
    """
    >>> counted(["holds", "not decided", "holds"])
    'holds 2, not decided 1'
    """
    counts = Counter(words)
    ordered = dict.fromkeys([HOLDS, FAILS, UNDECIDED, *counts])
    return ", ".join(f"{word} {counts[word]}" for word in ordered if counts[word])


def add_claims(page: Page, claims: Sequence[Claim], samples: Mapping[str, Any]) -> None:
    """Judge claims on samples of rows: counts of verdicts, and the table.

    The numbers of a long table are folded.
    """
    table, many = claims_table(claims, samples), len(claims) > MOST_SHOWN
    page.text(f"Verdicts: {counted(re.findall(r'[*][*](.+?)[*][*]', table))}.")
    if many:
        words = [re.findall(r"[*][*](.+?)[*][*]|not judged", row) for row in table.splitlines()[2:]]
        lines = [
            [claim.text, *claim_words] for claim, claim_words in zip(claims, words, strict=True)
        ]
        page.table(["claim", *samples], lines)
    with page.details("The claims with their measures and intervals") if many else nullcontext():
        page.text(table)


def by_unit(rows: pd.DataFrame, score: str, unit: str, of: str = "activation") -> pd.DataFrame:
    """Average a score within units: units x contenders; NaN where a score is missing.

    >>> rows = pd.DataFrame({"data": ["a", "a", "b"], "net": "x", "score": [1.0, 3.0, 5.0]})
    >>> by_unit(rows, "score", "data", of="net")["x"].to_dict()
    {'a': 2.0, 'b': 5.0}
    """
    mean = rows.groupby([unit, of], sort=False)[score].agg(lambda scores: scores.mean(skipna=False))
    return mean.unstack(of)


def beats(
    a: Scores, b: Scores | float, margin: float = 0.0, *, greater_is_better: bool = True, **how: Any
) -> Verdict:
    """Judge "A beats B" from their scores on the same units.

    Parameters
    ----------
    a, b : Series by unit, or sequences in the same order; b may be a number
    margin : float, default=0
        The advantage of A that does not matter.
    greater_is_better : bool, default=True
        False for errors and losses; the estimate is A's advantage in either case.
    **how
        ``n_train`` and ``n_test``, rows of each split, where the units are splits of one table:
        Nadeau and Bengio's corrected variance. ``bootstrap=True`` where differences have few
        values: percentile bootstrap. By default Student's interval for independent units.
    """

    def decide(low: float, high: float) -> str:
        return HOLDS if low > 0 else FAILS if high <= margin else UNDECIDED

    return _judge(_advantages(a, b, greater_is_better), decide, **how)


def matches(a: Scores, b: Scores | float, margin: float, **how: Any) -> Verdict:
    """Judge "A matches B": the difference A - B is smaller than the margin. Arguments as `beats`.

    Raises
    ------
    ValueError
        If the margin is not positive: no interval lies within it.
    """
    if not margin > 0:
        raise ValueError(
            f"matches needs a margin above 0 (a difference of no matter), got {margin}"
        )

    def decide(low: float, high: float) -> str:
        if -margin <= low and high <= margin:
            return HOLDS
        return FAILS if low > margin or high < -margin else UNDECIDED

    return _judge(_advantages(a, b, True), decide, **how)


def best_of(
    scores: pd.DataFrame,
    name: str | None = None,
    *,
    greater_is_better: bool = True,
    n_train: float | None = None,
    n_test: float | None = None,
) -> Verdict:
    """Judge "A is the best of several" from scores of units x contenders, as `by_unit` gives them.

    A claim that names A beforehand needs no adjustment to hold, since A must beat each of the
    others (an intersection-union test). It does not hold if one of the others beats A after Holm's
    adjustment. Without a name the rows choose A, the best in the mean: it holds if A beats each of
    the others after Holm's adjustment over all pairs. The estimate is A's advantage over its
    nearest rival. Other arguments as `beats`.
    """
    sign = 1 if greater_is_better else -1
    wide, sizes = sign * scores, {"n_train": n_train, "n_test": n_test}
    chosen = str(wide.mean().idxmax()) if name is None else name
    rivals = [rival_name for rival_name in wide if rival_name != chosen]
    comparisons = {
        rival_name: beats(wide[chosen], wide[rival_name], **sizes) for rival_name in rivals
    }
    rival = min(rivals, key=lambda rival_name: comparisons[rival_name].estimate)
    nearest, note = comparisons[rival], f"nearest rival: {rival}"
    if name is None:
        note = f"chosen by the rows: {chosen}; {note}"
    if wide.isna().to_numpy().any():
        return Verdict(UNDECIDED, n_units=len(wide), note="some units have no score")
    if len(wide) < MIN_UNITS:
        return replace(nearest, note=f"{note}; {nearest.note}")
    if name is None:
        pairs = [(chosen, rival_name) for rival_name in rivals] + list(combinations(rivals, 2))
        p = holm([_p_value(beats(wide[a], wide[b], **sizes)) for a, b in pairs])[: len(rivals)]
        note = f"{note}; Holm p {p_text(max(p))}"
        return replace(nearest, word=HOLDS if max(p) < ALPHA else UNDECIDED, note=note)
    p = holm([_p_value(verdict) for verdict in comparisons.values()])
    beaten = [
        q for q, v in zip(p, comparisons.values(), strict=True) if q < ALPHA and v.estimate < 0
    ]
    beats_all = all(verdict.word == HOLDS for verdict in comparisons.values())
    return replace(nearest, word=HOLDS if beats_all else FAILS if beaten else UNDECIDED, note=note)


def exact(deviations: Scores | float, tolerance: float) -> Verdict:
    """Judge a theorem or formula: no deviation is larger than the tolerance. No interval."""
    size = np.abs(np.atleast_1d(np.asarray(deviations, dtype=float)))
    if not size.size or np.isnan(size).any():
        return Verdict(UNDECIDED, note=f"{int(np.isnan(size).sum())} of {size.size} values missing")
    word = HOLDS if size.max() <= tolerance else FAILS
    return Verdict(word, note=f"largest deviation {size.max():.2g} among {size.size} values")


def _advantages(a: Scores, b: Scores | float, greater_is_better: bool) -> np.ndarray:
    """Return A - B (B - A of errors) by unit; scores that are equal up to rounding give 0."""
    for scores in (a, b):
        if isinstance(scores, pd.Series) and not scores.index.is_unique:
            raise ValueError("a unit has several scores; average them first, as by_unit does")
    if isinstance(a, pd.Series) and isinstance(b, pd.Series):
        a, b = a.align(b)
    a, b = np.broadcast_arrays(np.asarray(a, dtype=float), np.asarray(b, dtype=float))
    difference = np.where(np.isclose(a, b, rtol=ROUNDING, atol=0), 0.0, a - b)
    return difference if greater_is_better else -difference


def _judge(
    values: np.ndarray,
    decide: Callable[[float, float], str],
    *,
    n_train: float | None = None,
    n_test: float | None = None,
    bootstrap: bool = False,
) -> Verdict:
    n_units, finite = len(values), np.isfinite(values)
    if not finite.all():
        note = f"no score for {int((~finite).sum())} of {n_units} units"
        return Verdict(UNDECIDED, n_units=n_units, note=note)
    if n_units < 2:
        estimate = float(values.mean()) if n_units else math.nan
        return Verdict(UNDECIDED, estimate, n_units=n_units, note="too few units")
    if n_train is not None and n_test is not None:
        interval = corrected_interval(values, n_train=n_train, n_test=n_test)
    elif bootstrap:
        interval = bootstrap_interval(values, random_state=0)
    else:
        interval = t_interval(values)
    if n_units < MIN_UNITS:
        return Verdict(UNDECIDED, *interval, n_units, "too few units")
    return Verdict(decide(interval.low, interval.high), *interval, n_units)


def _p_value(verdict: Verdict) -> float:
    """The two-sided p-value of the t test whose interval the verdict has."""
    half = verdict.high - verdict.estimate
    if half == 0:
        return float(verdict.estimate == 0)
    t = stats.t.ppf(1 - ALPHA / 2, verdict.n_units - 1) * verdict.estimate / half
    return float(2 * stats.t.sf(abs(t), verdict.n_units - 1))
