"""The findings of a report: a level and a sentence for each of three questions."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from scipy.stats import binom, hypergeom

from combutab.core.metrics import Metric
from combutab.core.text import counted
from combutab.reports._page import say
from combutab.reports._yardsticks import Yardsticks, column_losses, pair_losses

# ---- Thresholds of the levels, which templates/synthetic.html explains to the reader

SYNTHETIC, HELD_OUT = "synthetic", "held-out real"  # the sources of all tables
LEARNERS = {
    "linear": "a linear model",
    "decision_tree": "a decision tree",
    "random_forest": "a random forest",
    "hist_gradient_boosting": "gradient boosting",
    "mlp": "a neural network",
    "xgboost": "XGBoost",
    "catboost": "CatBoost",
}

C2ST = "hist_gradient_boosting"  # the classifier of the two-sample test that decides

KEPT_GOOD, KEPT_FAIR = 0.9, 0.7
LITTLE = 0.02  # skill over guessing below which there is nothing to keep
FEWEST = 10  # rows to test on below which no score says anything
TOLD_GOOD, TOLD_FAIR = 0.65, 0.8  # areas under the ROC curve up to which rows are so alike
TIES_GOOD, TIES_FAIR = 0.9, 0.75
FEW = 100  # rows below which no learner learns to tell tables apart
UNTIED = 0.1  # association up to which columns have nothing to do with each other
ERRORS = 3.0  # standard errors up to which chance explains a sign
RARE = 0.001  # probability from which on chance explains copies
UNLIKELY = 0.05  # and below which single copies are a weak sign
CLEAR = 0.55  # from where a sign is clear; one half is ideal
BLIND = 0.7  # if chance alone may reach this, no sign says nothing
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Finding:
    """One of the three findings of a report on a synthetic table.

    Attributes
    ----------
    subject : {"utility", "fidelity", "privacy"}
        Subject of the finding.
    level : {"good", "fair", "poor", "unknown"}
        The level. The report explains the thresholds.
    sentence : str
        Sentences with the numbers that determine the level.
    notes : tuple of str
        Limitations of the finding.
    headline : str
        A short text without numbers, if it is not that of the level.
    figure : str
        The number that determines the level, with its interval, if there is one.
    """

    subject: str
    level: str
    sentence: str
    notes: tuple[str, ...] = ()
    headline: str = ""
    figure: str = ""

    @property
    def short(self) -> str:
        """The finding in a few words, without numbers."""
        return self.headline or say("short", subject=self.subject, level=self.level)[0]

    @property
    def sentences(self) -> tuple[str]:
        """The sentence, as a tuple."""
        return (self.sentence,)


@dataclass(frozen=True)
class TwoSample:
    """A two-sample test: its ROC AUC, the standard error, and the rows of the smaller table."""

    area: float
    error: float
    n_rows: int

    @property
    def near_copies(self) -> bool:
        """Say whether the area is far below 0.5: the closest row to a near copy is its original.

        In tables of few distinct rows the folds' areas are low or high together, so that the
        standard error is too small: twice as many errors are asked for.
        """
        return self.area <= 1.0 - CLEAR and self.area + 2 * ERRORS * self.error < 0.5

    @property
    def differ(self) -> bool:
        """Say whether the tables differ."""
        return self.area >= CLEAR and self.area - ERRORS * self.error > 0.5

    @property
    def words(self) -> str:
        """The area with two digits; 0.999 is not 1."""
        return "more than 0.99" if 0.995 <= self.area < 1 else f"{self.area:.2f}"


def two_sample(detection: pd.DataFrame, source: str, n_rows: int) -> TwoSample | None:
    """Return the test that decides, of a source of `detection`; None if there were too few rows."""
    chosen = (detection["learner"] == C2ST) & (detection["source"] == source)
    rows = detection[chosen].dropna(subset="mean")
    if rows.empty:
        return None
    return TwoSample(float(rows["mean"].iloc[0]), float(rows["se"].iloc[0]), n_rows)


def level_of(value: float, good: float, fair: float) -> str:
    """The level of a value that is better the greater it is.

    >>> level_of(0.9, 0.9, 0.8), level_of(0.8999, 0.9, 0.8), level_of(0.5, 0.9, 0.8)
    ('good', 'fair', 'poor')
    """
    value += _ROUNDING
    return "good" if value >= good else "fair" if value >= fair else "poor"


def percent(share: float) -> str:
    """Whole percent, rounded down so that no threshold seems to be reached that is not.

    >>> percent(0.8999), percent(0.29), percent(1.0)
    ('89 %', '29 %', '100 %')
    """
    return f"{math.floor(100 * (share + _ROUNDING))} %"


def level_within(value: float, off: float, good: float, fair: float) -> str:
    """The level of a value that is known give or take so much: "unknown" from poor to good.

    >>> level_within(0.5, 0.1, 0.9, 0.75), level_within(0.5, 0.45, 0.9, 0.75)
    ('poor', 'unknown')
    >>> level_within(0.92, 0.1, 0.9, 0.75), level_within(0.92, 0.2, 0.9, 0.75)
    ('good', 'unknown')
    """
    ends = {level_of(value - off, good, fair), level_of(value + off, good, fair)}
    return "unknown" if ends == {"good", "poor"} else level_of(value, good, fair)


def worst_level(levels: Sequence[str]) -> str:
    """Poor, whatever else; not known, if that is not known of a part; else the lowest.

    >>> worst_level(["good", "unknown", "fair"]), worst_level(["good", "poor", "unknown"])
    ('unknown', 'poor')
    """
    return min(levels, key=("poor", "unknown", "fair", "good").index)


def points(share: float) -> str:
    """A difference of shares, in percentage points.

    >>> points(0.123), points(0.009), points(2.0)
    ('12 percentage points', '1 percentage point', '100 percentage points')
    """
    return counted(round(min(100 * share, 100)), "percentage point")


# ---- Synthetic rows, and single values, that are real ones ---------------------------------------


@dataclass(frozen=True)
class Copies:
    """Counts of rows of one table that equal a row of another in every column.

    Attributes
    ----------
    rows : int
    of_single : int
        Those of them that equal a row that is there once: of a table of few distinct rows many are
        met by chance, of these hardly any is.
    expected : float
        How many ``of_single`` would be if the rows were others of the same distribution.
    pvalue : float
        How probable ``of_single``, or more, would be then.
    near_pvalue : float
        The same where real rows that differ in one column count as equal, which is more than chance
        can do; 0 where there are none of these.
    evenly : bool
        Copied rows are as frequent among the rows of another real table. See `find_copies`.
    """

    rows: int
    of_single: int
    expected: float
    pvalue: float
    near_pvalue: float = 0.0
    evenly: bool = False

    @property
    def by_chance(self) -> bool:
        """Say whether chance explains the copies."""
        return self.pvalue >= RARE or self._met_evenly

    @property
    def unexplained(self) -> bool:
        """Say whether there are copies though hardly any real rows differ in one column only."""
        return self.of_single > 0 and self.near_pvalue < UNLIKELY and not self._met_evenly

    @property
    def _met_evenly(self) -> bool:
        # equal rows may have been removed from the real tables, so that none are left to count
        return self.evenly and self.near_pvalue >= RARE


def count_copies(
    train: pd.DataFrame, synthetic: pd.DataFrame, test: pd.DataFrame | None = None
) -> Copies:
    """Count the rows of ``synthetic`` that are in ``train``, both as `align_tables` gives them.

    Missing values equal each other. What is expected is what the rows of ``test`` show; without
    them it is estimated from ``train``: of n rows, those that are there once have together a
    probability of about twice the number of those that are there twice, over n (I. J. Good, "The
    population frequencies of species and the estimation of population parameters", Biometrika 40,
    1953).

    The p-value is that of J. Przyborowski and H. Wilenski ("Homogeneity of results in testing
    samples from Poisson series", Biometrika 31, 1940) for two Poisson counts: of all rows,
    synthetic and held-out, that equal one that is there once, each is as likely to be any of these
    rows.

    >>> train = pd.DataFrame({"a": [1.0, 2.0, 2.0, None]})
    >>> found = count_copies(train, pd.DataFrame({"a": [1.0, 2.0, 3.0, None, None]}))
    >>> found.rows, found.of_single
    (4, 3)
    """
    tables = [train, synthetic, *([] if test is None else [test])]
    table = pd.concat(tables, ignore_index=True)
    rows = _numbered(table)
    ours, theirs, others = np.split(rows, np.cumsum([len(train), len(synthetic)]))
    counts = np.bincount(ours, minlength=rows.max() + 1)
    n_made, of_single = len(synthetic), int((counts[theirs] == 1).sum())
    if test is None:
        hits, n = int((counts == 2).sum()), len(train) / 2
    else:
        hits, n = int((counts[others] == 1).sum()), float(len(test))
    near = max(hits, _count_near(table, len(train), n_made) if of_single else 0)

    def probability(by_chance: int) -> float:
        return float(binom.sf(of_single - 1, of_single + by_chance, n_made / (n_made + n)))

    return Copies(
        rows=int((counts[theirs] > 0).sum()),
        of_single=of_single,
        expected=n_made * hits / n,
        pvalue=probability(hits),
        near_pvalue=probability(near) if near else 0.0,
    )


def find_copies(
    train: pd.DataFrame, synthetic: pd.DataFrame, test: pd.DataFrame, *, differ: bool = False
) -> tuple[Copies, Copies]:
    """Count the rows of ``synthetic`` that are in ``train``, and those that are in ``test``.

    The rows of the one table show what chance does to those of the other, unless the two tables
    ``differ``; then each shows it itself. Where equal rows were
    removed before the real rows were split, they show nothing. Then a generator that copies none
    meets rows of ``train`` no more often than rows of ``test``: of the real rows that occur once in
    both together, those that are met fall on either side as if drawn at random (Fisher's exact
    test).
    """
    found = (
        count_copies(train, synthetic, None if differ else test),
        count_copies(test, synthetic, None if differ else train),
    )
    rows = _numbered(pd.concat([train, test, synthetic], ignore_index=True))
    sides = np.split(rows, np.cumsum([len(train), len(test)]))[:2]
    counts = np.bincount(np.concatenate(sides), minlength=rows.max() + 1)
    met = np.zeros(len(counts), dtype=bool)
    met[rows[len(train) + len(test) :]] = True
    single = [side[counts[side] == 1] for side in sides]
    n_met = [int(met[side].sum()) for side in single]
    n_all = sum(map(len, single))
    evenly = [
        min(n_met) > 0 and hypergeom.sf(n - 1, n_all, len(side), sum(n_met)) >= RARE
        for n, side in zip(n_met, single, strict=True)
    ]
    of_train, of_test = (
        replace(copies, evenly=bool(each)) for copies, each in zip(found, evenly, strict=True)
    )
    return of_train, of_test


def count_values(
    train: pd.DataFrame,
    synthetic: pd.DataFrame,
    test: pd.DataFrame | None = None,
    *,
    identifiers: Collection[Hashable] = (),
) -> dict[Hashable, Copies]:
    """Find the columns whose values of single real rows are copied too often to be chance.

    What chance does is what the rows of ``test`` show, or ``train`` itself, whichever is more: a
    column of dates or of running numbers may have other values in other real rows. New numbers of
    ``identifiers`` may be those of real rows, but then of ``test`` as often as of ``train``.

    >>> train = pd.DataFrame({"name": [f"person {i}" for i in range(50)], "sex": ["f", "m"] * 25})
    >>> found = count_values(train, train)
    >>> {column: copies.of_single for column, copies in found.items()}
    {'name': 50}
    """
    found: dict[Hashable, Copies] = {}
    for column in train.columns:
        # a missing value is no one's own
        tables = [
            None if table is None else table[[column]].dropna()
            for table in (train, synthetic, test)
        ]
        ours, made, others = tables
        if ours is None or made is None or not len(ours) or not len(made):
            continue
        likely = count_copies(ours, made)
        if others is not None and len(others):
            beside, _ = find_copies(ours, made, others)
            if column in identifiers and beside.evenly:
                continue
            likely = max(likely, beside, key=lambda each: each.pvalue)
        if likely.pvalue < RARE / train.shape[1]:
            found[column] = likely
    return found


def _count_near(table: pd.DataFrame, n_train: int, n_made: int) -> int:
    """Count the held-out rows that equal a training row in all columns, or in all but one.

    ``table`` has the training rows, the synthetic ones and the held-out ones. Without the last,
    half of the training rows are counted that equal another one. In tables of one or two columns
    rows must be equal in all.
    """
    n_columns = table.shape[1]
    rng = np.random.default_rng(0)
    hashes = np.empty((n_columns, len(table)), dtype=np.uint64)
    for j in range(n_columns):
        codes, values = pd.factorize(table.iloc[:, j])  # -1, the last one, where missing
        hashes[j] = rng.integers(2**64, size=len(values) + 1, dtype=np.uint64)[codes]
    total = hashes.sum(axis=0)
    alone = len(table) == n_train + n_made
    near = np.zeros(n_train if alone else len(table) - n_train - n_made, dtype=bool)
    for each in hashes if n_columns > 2 else np.zeros((1, len(table)), dtype=np.uint64):
        keys = total - each
        if alone:
            _, group, counts = np.unique(keys[:n_train], return_inverse=True, return_counts=True)
            near |= counts[group] > 1
        else:
            near |= np.isin(keys[n_train + n_made :], keys[:n_train])
    return -(-int(near.sum()) // (2 if alone else 1))


def _numbered(table: pd.DataFrame) -> np.ndarray:
    """A number for each row, from 0; equal rows have equal ones."""
    numbers = np.zeros(len(table), dtype=np.int64)
    for j in range(table.shape[1]):
        codes, values = pd.factorize(table.iloc[:, j])  # -1 where missing
        _, numbers = np.unique(numbers * (len(values) + 1) + codes + 1, return_inverse=True)
    return numbers


# ---- Judge whether rows of the real tables, or single values of them, are copied -----------------

TRAINING, HELD_OUT_ROWS = "training", "held-out"  # what the rows of the real tables are called


@dataclass(frozen=True)
class NearCopies:
    """The share of synthetic rows that are near copies of rows of one real table.

    Attributes
    ----------
    share, reference : float
        Of the synthetic rows, and of the rows of the other real table.
    pvalue : float
        How probable such a share is by chance.
    """

    share: float
    reference: float
    pvalue: float

    @property
    def beyond_chance(self) -> bool:
        """Say whether there are more near copies than chance and a different shape explain."""
        return self.pvalue < RARE and self.share > 2 * self.reference

    @property
    def many(self) -> bool:
        """Say whether they are a clear sign."""
        return self.beyond_chance and self.share - self.reference >= CLEAR - 0.5


@dataclass(frozen=True)
class Disclosed:
    """What a synthetic table has of one real table.

    Attributes
    ----------
    rows : {TRAINING, HELD_OUT_ROWS}
    copies : Copies
    values : mapping of column name to Copies
        The columns whose values are copied where one real row has them, beyond chance.
    near : NearCopies, optional
        Of a table that others can be compared with.
    """

    rows: str
    copies: Copies
    values: Mapping[Hashable, Copies] = field(default_factory=dict)
    near: NearCopies | None = None

    @property
    def worst(self) -> Hashable | None:
        """The column of which most values are copied beyond chance."""
        excess = {name: each.of_single - each.expected for name, each in self.values.items()}
        return max(excess, key=lambda name: excess[name], default=None)


@dataclass(frozen=True)
class _Distances:
    """The two signs of the evaluator, and how far chance may move them from one half."""

    share: float
    area: float
    off_share: float
    off_area: float

    @property
    def signs(self) -> list[float]:
        """Those beyond chance."""
        pairs = ((self.share, self.off_share), (self.area, self.off_area))
        return [sign for sign, off in pairs if abs(sign - 0.5) > off]


def judge_privacy(
    privacy: pd.DataFrame | None,
    tables: Sequence[Disclosed],
    *,
    n_made: int,
    n_compared: int = 0,
    share_error: float = 0.0,
    n_seen: int = 0,
    told: TwoSample | None = None,
    real: TwoSample | None = None,
    left_out: Sequence[Hashable] = (),
) -> Finding:
    """Say whether synthetic rows are copies of real ones, or too close to one real table.

    ``privacy`` is the evaluator's table, None without held-out rows, and ``share_error`` the
    standard deviation by chance of its share of rows closer to training rows. ``tables`` are the
    training rows and, with held-out rows that are none of these, the held-out rows; ``n_compared``
    rows of each were compared by distance. ``n_seen`` held-out rows are training rows too, where
    these are too many for chance. ``told`` and ``real`` are the two-sample tests of the synthetic
    rows, and of the held-out ones, against the training rows.

    The standard error of the area under the ROC curve is Mann and Whitney's for two groups that do
    not differ, ``sqrt((2 m + 1) / (12 m ** 2))`` with m rows of each real table.
    """
    far = None
    if privacy is not None and not n_seen:
        signals, m = privacy.set_index("measure")["mean"], n_compared
        far = _Distances(
            float(signals["share_closer_to_train"]),
            float(signals["membership_auc"]),
            ERRORS * share_error,
            ERRORS * math.sqrt((2 * m + 1) / (12 * m**2)),
        )
    signs = [] if far is None else far.signs
    differ = real is not None and real.differ
    near_copies = told is not None and told.near_copies
    toward = {TRAINING: signs, HELD_OUT_ROWS: [1.0 - sign for sign in signs]}
    poor, weak, close_to = [], [], []
    for table in tables:
        close = [] if differ else [sign for sign in toward[table.rows] if sign > 0.5]
        likely = None if differ else table.near
        near = max(close, default=0.0) >= CLEAR or (near_copies and table.rows == TRAINING)
        near = near or (likely is not None and likely.many)
        close_to += [table] * near
        if near or table.values or not table.copies.by_chance:
            poor.append(table)
        elif close or table.copies.unexplained or (likely is not None and likely.beyond_chance):
            weak.append(table)

    reach = 0.0
    if far is not None:  # of few rows a share is not certain, however far all are from real ones
        reach = 0.5 + max(far.off_area, ERRORS * 0.5 / math.sqrt(n_made))
    level, headline = "unknown", ""
    if poor:
        copied = not all(table.copies.by_chance for table in poor)
        level, why = "poor", "copies" if copied else "close" if close_to else "values"
        if [table.rows for table in poor] == [HELD_OUT_ROWS]:
            headline = "Held-out rows or values are copied."
    elif weak and far is not None:
        level, why = "fair", "weak"
    elif n_seen:
        why = "seen"
    elif far is None:
        why = "unseen"
    elif reach > BLIND:
        why = "few"
    elif differ and signs:
        why = "differ"
    else:
        level, why = "good", "none"
    suspected = [] if differ else [t for t in poor + weak if t.near and t.near.beyond_chance]
    sentences = say(
        "privacy",
        why=why,
        suspects=poor or weak,
        tables=tables,
        near=suspected,
        far=far,
        area=told.area if told is not None and near_copies else None,
        n_made=n_made,
        n_seen=n_seen,
        n_compared=n_compared,
        rare=RARE,
    )
    notes = say(
        "privacy_notes", clean=why == "none", rough=reach > CLEAR, left_out=_listed(left_out)
    )
    return Finding("privacy", level, " ".join(sentences), tuple(notes), headline)


def _listed(names: Sequence[Hashable]) -> str:
    return ", ".join(repr(str(name)) for name in names)


# ---- Judge whether a synthetic table looks like the real one -------------------------------------

_LITTLE = 0.005  # beyond what chance takes from a column
_FEW_ROWS = 0.05  # from where it is told how far chance may move a share
_WEAK = 0.4  # association up to which ties that few rows do not show are called weak


def judge_fidelity(
    alike: pd.DataFrame,
    detection: pd.DataFrame,
    yardsticks: Yardsticks,
    *,
    n_train: int,
    n_made: int,
    n_test: int = 0,
    left_out: Sequence[Hashable] = (),
) -> Finding:
    """Say how well rows are told apart, and how alike pairs of columns and columns are.

    ``alike`` and ``detection`` are of `fidelity` and `detection`, with the source `SYNTHETIC` and
    perhaps `HELD_OUT`; the latter may be empty. There are ``n_train`` rows in the real table,
    ``n_made`` in the synthetic one and ``n_test`` in the held-out real one; columns ``left_out``
    name rows, and are in none of the tables.
    """
    if column_losses(alike, SYNTHETIC).empty:
        why = "Not known: the real table has no values to compare with."
        return Finding("fidelity", "unknown", why)
    told = two_sample(detection, SYNTHETIC, min(n_train, n_made))
    real = two_sample(detection, HELD_OUT, min(n_train, n_test))
    rows, pairs = _judge_rows(told, real), _judge_pairs(alike, yardsticks)
    level = worst_level([level for level, _ in (rows, pairs) if level])
    # no level comes of single columns: those drawn each for itself match as well
    sentences = [*rows[1], *pairs[1], *_judge_columns(alike, yardsticks)]
    if level == "unknown":
        sentences[0] = f"not known, with {counted(min(n_train, n_made), 'row')}: {sentences[0]}"
    near_copies = told is not None and told.near_copies
    headline = ""
    if near_copies and level in ("good", "fair"):
        headline = "Synthetic rows look like real rows, but may be near copies of them."
    differ = real is not None and real.n_rows >= FEW and real.area >= TOLD_FAIR
    notes = say("fidelity_notes", level=level, told=told, differ=differ, left_out=_listed(left_out))
    sentence = " ".join(f"{each[0].upper()}{each[1:]}." for each in sentences)
    return Finding("fidelity", level, sentence, tuple(notes), headline)


def _judge_columns(alike: pd.DataFrame, yardsticks: Yardsticks) -> list[str]:
    losses, held_out = (column_losses(alike, source) for source in (SYNTHETIC, HELD_OUT))
    chance = yardsticks.chance
    beyond = {name: loss - chance.get(name, 0.0) for name, loss in losses.items()}
    worst = max(beyond, key=lambda name: beyond[name])  # not an identifier, which none can meet
    tell = len(losses) > 1 and beyond[worst] > _LITTLE
    return say(
        "single_columns",
        matched=percent(1.0 - losses.mean()),
        by_chance=percent(1.0 - sum(chance.values()) / len(chance)) if chance else "",
        held_out=percent(1.0 - held_out.mean()) if len(held_out) else "",
        worst=repr(str(worst)) if tell else "",
        least=percent(1.0 - dict(losses)[worst]),
    )


def _judge_pairs(alike: pd.DataFrame, yardsticks: Yardsticks) -> tuple[str, list[str]]:
    """The level, "" for none, and what is said of it."""
    losses = pair_losses(alike, SYNTHETIC)
    if losses.empty:
        return "", []
    strongest = yardsticks.strongest
    level, kept, off = "", 0.0, 0.0
    if yardsticks.ties:
        kept = yardsticks.kept(losses)
        off = yardsticks.kept_off(kept)
        level, why = level_within(kept, off, TIES_GOOD, TIES_FAIR), "tied"
    elif strongest <= _WEAK:
        why = "untied" if strongest <= UNTIED else "weak"
    else:
        level = why = "unknown"
    give_or_take = _give_or_take(off) if off >= _FEW_ROWS else ""
    facts = {"kept": percent(kept), "off": give_or_take, "level": level, "untied": UNTIED}
    return level, say("pairs_of_columns", why=why, **facts)


def _judge_rows(told: TwoSample | None, real: TwoSample | None) -> tuple[str, list[str]]:
    """The level of whole rows, and what is said of it."""
    level = "unknown"
    if told is not None:
        few = told.n_rows < FEW
        off = (4 if few else 2) * told.error
        level = level_within(1.0 - told.area, off, 1.0 - TOLD_GOOD, 1.0 - TOLD_FAIR)
        if few and level != "poor":
            level = "unknown"  # a learner that tells nothing has had too few rows to learn it from
    return level, say("whole_rows", told=told, real=real, learner=LEARNERS[C2ST], level=level)


def _give_or_take(off: float) -> str:
    return f" (± {points(off)})"


# ---- Judge whether learners get from synthetic rows what they get from real ones -----------------

REAL = "real"  # a source of ml_efficacy
NOTHING = "Models trained on the synthetic rows predict no better than guessing."
# whose errors go by the rows of the rarer classes
_BY_CLASS = ("roc_auc", "balanced_accuracy", "average_precision", "f1", "f1_macro")
_SOME = 0.1  # skill over guessing that is no longer next to nothing
_ROUGH = 0.005  # two standard errors of the share that is kept, from where they are told


@dataclass(frozen=True)
class _Skill:
    """The scores of the learner that is best after training on the real rows."""

    metric: Metric
    learner: str
    real: float
    synthetic: float
    guess: float
    error: float  # standard error of the first
    gap_error: float  # and of its distance to the second
    note: str  # of the training on the synthetic rows

    @property
    def label(self) -> str:
        return self.metric.title

    @property
    def learner_name(self) -> str:
        return LEARNERS.get(self.learner, self.learner)

    @property
    def sign(self) -> int:
        """-1 for a metric of which less is better."""
        return 1 if self.metric.greater_is_better else -1

    @property
    def over_guessing(self) -> float:
        return self.sign * (self.real - self.guess)

    @property
    def is_one(self) -> bool:
        return self.over_guessing >= max(LITTLE, 2 * self.error)  # False of NaN

    @property
    def may_be_some(self) -> bool:
        """Tell whether the real rows may hold what is worth telling, for all that is known."""
        return not self.over_guessing + 2 * self.error < _SOME

    @property
    def kept(self) -> float:
        """The share of the skill that is kept: below 0 of what is worse than guessing."""
        return self.sign * (self.synthetic - self.guess) / self.over_guessing

    def off(self, share: float) -> float:
        """Two standard errors of the share that is kept, if it is this one in truth.

        Of synthetic - guess - share * (real - guess) = (synthetic - real) + (1 - share) * (real -
        guess): as in Fieller's interval of a ratio, the real rows' error counts the less, the
        nearer the share is to 1.
        """
        return 2 * math.hypot(self.gap_error, (1 - share) * self.error) / self.over_guessing

    @property
    def level(self) -> str:
        """The level of the share that is kept; "unknown" if it may be poor as well as good."""
        may_be_poor = self.kept - self.off(KEPT_FAIR) < KEPT_FAIR
        may_be_good = self.kept + self.off(KEPT_GOOD) + _ROUNDING >= KEPT_GOOD
        if may_be_poor and may_be_good:
            return "unknown"
        return level_of(self.kept, KEPT_GOOD, KEPT_FAIR)

    @property
    def difference(self) -> str:
        """What is lost by training on the synthetic rows, with its interval."""
        gap = self.synthetic - self.real
        low, high = gap - 2 * self.gap_error, gap + 2 * self.gap_error
        return f"{gap:+.3f} (95 % interval {low:+.3f} to {high:+.3f})"


def judge_utility(
    efficacy: pd.DataFrame,
    *,
    target: Hashable,
    metric: Metric,
    guess: float,
    n_test: int,
    n_rare: int,
    seen: bool,
    again: pd.DataFrame | None = None,
) -> Finding:
    """Say which share of the skill over guessing is kept by learning from the synthetic rows.

    ``efficacy`` is of `ml_efficacy`, with the sources "real" and "synthetic", tested on ``n_test``
    rows; ``metric`` is the one that decides, ``guess`` is what guessing has of it, ``n_rare`` the
    number of test rows but for those of the most frequent class (all for a regression), and
    ``seen`` says whether the generator may have learned from them. ``again`` is of `ml_efficacy`
    too, with synthetic rows that were drawn anew from the synthetic ones, a source each.
    """
    skill = _best(efficacy, metric, guess, n_rare if metric.name in _BY_CLASS else n_test, n_test)
    if again is not None:
        skill = _with_chance(skill, again)
    rows = counted(n_test, "real row" if seen else "held-out real row")
    level, headline, share, off, figure = "unknown", "", "", "", ""
    if n_test < FEWEST:
        why = "few"
    elif math.isnan(skill.real):
        why = "same"
    elif not skill.is_one:
        why = "no skill"
    elif math.isnan(skill.synthetic):
        why = "no score"
    else:
        why, level = "kept", skill.level
        around = skill.off(min(max(skill.kept, 0.0), 1.0))
        ends = np.array([skill.kept, skill.kept - around, skill.kept + around])
        kept, low, high = np.clip(ends, 0.0, 1.0).tolist()
        share = {0.0: "nothing", 1.0: "all"}.get(kept, percent(kept))
        rough = max(kept - low, high - kept)
        off = _give_or_take(rough) if rough > _ROUGH else ""
        headline = NOTHING if level == "poor" and kept == 0 else ""
        figure = f"difference of {skill.label} {skill.difference}"
    facts = {"skill": skill, "name": repr(str(target)), "rows": rows, "n_test": n_test}
    sentences = say("utility", why=why, level=level, share=share, off=off, **facts)
    notes = say("utility_notes", seen=seen, note=skill.note if why == "kept" else "")
    return Finding("utility", level, " ".join(sentences), tuple(notes), headline, figure)


def best_learner(efficacy: pd.DataFrame, metric: Metric) -> str:
    """The learner that is best after training on the real rows."""
    table = efficacy[(efficacy["metric"] == metric.name) & (efficacy["source"] == REAL)]
    scores = table["mean"] * (1 if metric.greater_is_better else -1)
    return str(table["learner"].iloc[int(scores.fillna(-math.inf).argmax())])


def _with_chance(skill: _Skill, again: pd.DataFrame) -> _Skill:
    """Add to a gap's error how far the score is from those after learning from rows drawn anew.

    What learns from rows without a tie to the target still has some skill by chance, however many
    rows it is tested on. What is worse than guessing counts as guessing: R2 has no lower end.
    """
    own = again[(again["metric"] == skill.metric.name) & (again["learner"] == skill.learner)]
    scores = skill.sign * (own.loc[own["source"] != REAL, "mean"] - skill.guess).to_numpy()
    made = max(skill.sign * (skill.synthetic - skill.guess), 0.0)
    by_chance = float(np.sqrt(((np.maximum(scores, 0.0) - made) ** 2).mean()))
    return replace(skill, gap_error=math.hypot(skill.gap_error, by_chance))


def _best(efficacy: pd.DataFrame, metric: Metric, guess: float, n: float, n_test: int) -> _Skill:
    learner = best_learner(efficacy, metric)
    own = efficacy[(efficacy["metric"] == metric.name) & (efficacy["learner"] == learner)]
    real, taught = (own[own["source"] == source].iloc[0] for source in (REAL, SYNTHETIC))
    score = float(real["mean"])
    error = _score_error(metric, score, n)
    return _Skill(
        metric,
        learner,
        score,
        float(taught["mean"]),
        guess,
        max(error, float(np.nan_to_num(real["se"]))),
        # of scores that are equal in a few rows, the difference is not certain either
        max(error if n_test < FEW else 0.0, float(np.nan_to_num(taught["gap_se"]))),
        str(taught["note"]),
    )


def _score_error(metric: Metric, score: float, n: float) -> float:
    """Estimate the standard error of a score on n rows; 0 of a metric without an upper end."""
    if not metric.greater_is_better:
        return 0.0
    if metric.name == "r2":  # as of a squared correlation, for many rows
        score = min(max(score, 0.0), 1.0)
        return 2 * math.sqrt(score) * (1 - score) / math.sqrt(n)
    share = (n * score + 1) / (n + 2)  # a share of 1 in few rows is not certain
    return math.sqrt(share * (1 - share) / (n + 2))
