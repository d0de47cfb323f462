"""The findings of a report: a level and a sentence for each of three questions."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from combutab.core.metrics import Metric
from combutab.core.text import counted
from combutab.reports._attacks import (
    ATTRIBUTES,
    AttackResult,
    attack_results,
    distance_area,
)
from combutab.reports._copies import ALPHA, FEWEST_COPIES, Copies, Repeated
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
NEAR = 0.01  # share of near copies beyond chance that is a clear sign
CLEAR = 0.55  # from where a sign is clear; one half is ideal
BLIND = 0.7  # if chance alone may reach this, no sign says nothing
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Finding:
    """One of the three findings of a report on a synthetic table or database.

    Attributes
    ----------
    subject : {"utility", "keys", "fidelity", "privacy"}
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
    """The level of a value with an error; "unknown" if its interval reaches from poor to good.

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


# ---- Judge whether rows of the real tables, or single values of them, are copied -----------------

TRAINING, HELD_OUT_ROWS = "training", "held-out"  # names of the real rows in sentences


@dataclass(frozen=True)
class NearCopies:
    """Synthetic rows that are near copies of rows of one real table, by `near_copies`.

    Attributes
    ----------
    near : int
    share, reference : float
        Of the synthetic rows, and of other real rows.
    pvalue : float
        Probability of such a share by chance.
    """

    near: int
    share: float
    reference: float
    pvalue: float

    @property
    def beyond_chance(self) -> bool:
        """Say whether there are more near copies than chance and a different shape explain."""
        is_rare = self.pvalue < ALPHA / 2 or (self.reference == 0 and self.near > FEWEST_COPIES)
        return is_rare and self.share > 2 * self.reference

    @property
    def many(self) -> bool:
        """Say whether they are a clear sign."""
        return self.beyond_chance and self.share - self.reference >= NEAR


@dataclass(frozen=True)
class Disclosed:
    """Copies and near copies of one real table in a synthetic table.

    Attributes
    ----------
    rows : {TRAINING, HELD_OUT_ROWS}
    copies : Copies
    values : mapping of column name to Repeated
        The columns whose values are copied where one real row has them, beyond chance.
    near : NearCopies, optional
    identifying : collection of column names
        Columns of ``values`` that hold text or identifiers. Numbers are a weak sign.
    """

    rows: str
    copies: Copies
    values: Mapping[Hashable, Repeated] = field(default_factory=dict)
    near: NearCopies | None = None
    identifying: Collection[Hashable] = ()

    @property
    def has_identifying_values(self) -> bool:
        """Say whether values of text or identifiers are copied."""
        return any(column in self.identifying for column in self.values)

    @property
    def worst(self) -> Hashable | None:
        """The column with the most copied values beyond chance."""
        excess = {name: repeated.rows - repeated.expected for name, repeated in self.values.items()}
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
    attacks: Mapping[str, pd.DataFrame],
    n_made: int,
    n_compared: int = 0,
    n_seen: int = 0,
    real: TwoSample | None = None,
    left_out: Sequence[Hashable] = (),
) -> Finding:
    """Say whether synthetic rows are copies of real ones, or disclose them to an attack.

    ``privacy`` is the evaluator's table, None without held-out rows. ``attacks`` are the results of
    `run_attacks`, empty without held-out rows that are not training rows. ``tables`` are the
    training rows and, with held-out rows that are none of these, the held-out rows; ``n_compared``
    rows of each were compared by distance. ``n_seen`` held-out rows are training rows too, where
    these are too many for chance. ``real`` is the two-sample test of the held-out rows against the
    training rows.
    """
    far = None
    if privacy is not None and not n_seen:
        scores = privacy.set_index("measure")
        share = float(scores["mean"]["share_closer_to_train"])
        share_error = float(scores["se"]["share_closer_to_train"])
        area, area_error = distance_area(attacks)
        far = _Distances(share, area, ERRORS * share_error, ERRORS * area_error)
    results = [] if n_seen else attack_results(attacks)
    differ = real is not None and real.differ
    poor, weak, close_to = _suspected_tables(tables, far, differ)

    reach = 0.0
    if far is not None:  # of few rows a share is not certain, however far all are from real ones
        area_error = math.sqrt((2 * n_compared + 1) / (12 * n_compared**2))
        reach = 0.5 + ERRORS * max(area_error, 0.5 / math.sqrt(n_made))
    succeeding = [result for result in results if result.is_sign]
    clear = [result for result in succeeding if result.advantage >= CLEAR - 0.5 and not differ]
    level, headline = "unknown", ""
    if clear and not poor:
        level, why, headline = "poor", "attack", "An attack learns about training rows."
    elif poor:
        level, why = "poor", _why_poor(poor, close_to)
        if [table.rows for table in poor] == [HELD_OUT_ROWS]:
            headline = "Held-out rows or values are copied."
    elif weak and (far is not None or any(table.values for table in weak)):
        level, why = "fair", "weak"
    elif succeeding and not differ:
        level, why, headline = "fair", "attack", "An attack may learn about training rows."
    elif n_seen:
        why = "seen"
    elif far is None:
        why = "unseen"
    elif reach > BLIND:
        why = "few"
    elif differ and (far.signs or succeeding):
        why = "differ"
    else:
        level, why = "good", "none"
        (headline,) = say("tested", attacks=[*attacks])
    sentences = say(
        "privacy",
        why=why,
        suspects=poor or weak,
        tables=tables,
        near=[table for table in poor + weak if table.near and table.near.beyond_chance],
        far=far,
        n_made=n_made,
        n_seen=n_seen,
        n_compared=n_compared,
        level=level,
        succeeding=[*dict.fromkeys(result.attack for result in clear or succeeding)],
        attacks=_in_words(results),
        n_columns=len(attacks.get(ATTRIBUTES, ())) - 1,
    )
    notes = say(
        "privacy_notes",
        clean=why == "none",
        rough=reach > CLEAR,
        few_isolated=bool(results) and all(result.rows != "isolated" for result in results),
        left_out=_listed(left_out),
    )
    return Finding("privacy", level, " ".join(sentences), tuple(notes), headline)


def _suspected_tables(
    tables: Sequence[Disclosed], far: _Distances | None, differ: bool
) -> tuple[list[Disclosed], list[Disclosed], list[Disclosed]]:
    """Tables with clear signs of copies, those with weak ones, and those that rows are close to."""
    signs = [] if far is None or differ else far.signs
    toward = {TRAINING: signs, HELD_OUT_ROWS: [1.0 - sign for sign in signs]}
    poor, weak, close_to = [], [], []
    for table in tables:
        close = [sign for sign in toward[table.rows] if sign > 0.5]
        near = table.near
        is_close = max(close, default=0.0) >= CLEAR or (near is not None and near.many)
        if is_close:
            close_to.append(table)
        if is_close or table.has_identifying_values or table.copies.signs:
            poor.append(table)
        elif (
            close
            or table.values
            or table.copies.is_weak_sign
            or (near is not None and near.beyond_chance)
        ):
            weak.append(table)
    return poor, weak, close_to


def _why_poor(poor: Sequence[Disclosed], close_to: Sequence[Disclosed]) -> str:
    """Return the reason for "poor", as the templates name it."""
    signs = [sign for table in poor for sign in table.copies.signs]
    if signs:
        return "partial" if all(sign.left_out for sign in signs) else "copies"
    return "close" if close_to else "values"


def _in_words(results: Sequence[AttackResult]) -> list[AttackResult]:
    """The results for sentences: the first sign of each attack and group of rows, or all firsts."""
    signs = [result for result in results if result.is_sign]
    chosen: dict[tuple[str, str], AttackResult] = {}
    for result in signs or [result for result in results if result.name != "univariate"]:
        chosen.setdefault((result.attack, result.rows), result)
    return [result for result in results if result in chosen.values()]


def _listed(names: Sequence[Hashable]) -> str:
    return ", ".join(repr(str(name)) for name in names)


# ---- Judge whether a synthetic table looks like the real one -------------------------------------

_LITTLE = 0.005  # beyond what chance takes from a column
_FEW_ROWS = 0.05  # error of a share from which the sentence has it
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
    """Judge how well rows can be distinguished, and the similarity of columns and of pairs.

    ``alike`` and ``detection`` are of `fidelity` and `detection`, with the source `SYNTHETIC` and
    perhaps `HELD_OUT`; the latter may be empty. There are ``n_train`` rows in the real table,
    ``n_made`` in the synthetic one and ``n_test`` in the held-out real one, which ``detection``
    compares with, if there are any; columns ``left_out`` name rows, and are in none of the tables.
    """
    if column_losses(alike, SYNTHETIC).empty:
        why = "Not known: the real table has no values to compare with."
        return Finding("fidelity", "unknown", why)
    n_compared = min(n_test or n_train, n_made)
    detected = two_sample(detection, SYNTHETIC, n_compared)
    real = two_sample(detection, HELD_OUT, min(n_train, n_test))
    rows = judge_test(detected, real, bool(n_test))
    pairs = _judge_pairs(alike, yardsticks)
    level = worst_level([level for level, _ in (rows, pairs) if level])
    # no level comes of single columns: those drawn each for itself match as well
    sentences = [*rows[1], *pairs[1], *_judge_columns(alike, yardsticks)]
    if level == "unknown":
        sentences[0] = f"not known, with {counted(n_compared, 'row')}: {sentences[0]}"
    notes = say(
        "fidelity_notes",
        level=level,
        told=detected,
        has_test=bool(n_test),
        differ=real is not None and real.differ,
        left_out=_listed(left_out),
    )
    sentence = " ".join(
        f"{sentence_text[0].upper()}{sentence_text[1:]}." for sentence_text in sentences
    )
    return Finding("fidelity", level, sentence, tuple(notes))


def _judge_columns(alike: pd.DataFrame, yardsticks: Yardsticks) -> list[str]:
    losses, held_out = (column_losses(alike, source) for source in (SYNTHETIC, HELD_OUT))
    chance = yardsticks.chance
    excess = {name: loss - chance.get(name, 0.0) for name, loss in losses.items()}
    worst = max(excess, key=lambda name: excess[name])  # not an identifier, which none can meet
    names_worst = len(losses) > 1 and excess[worst] > _LITTLE
    return say(
        "single_columns",
        matched=percent(1.0 - losses.mean()),
        by_chance=percent(1.0 - sum(chance.values()) / len(chance)) if chance else "",
        held_out=percent(1.0 - held_out.mean()) if len(held_out) else "",
        worst=repr(str(worst)) if names_worst else "",
        least=percent(1.0 - dict(losses)[worst]),
    )


def _judge_pairs(alike: pd.DataFrame, yardsticks: Yardsticks) -> tuple[str, list[str]]:
    """The level of pairs of columns (empty for none), and sentences."""
    losses = pair_losses(alike, SYNTHETIC)
    if losses.empty:
        return "", []
    strongest = yardsticks.strongest
    level, share, error = "", 0.0, 0.0
    if yardsticks.ties:
        share = yardsticks.kept(losses)
        error = yardsticks.kept_off(share)
        level, why = level_within(share, error, TIES_GOOD, TIES_FAIR), "tied"
    elif strongest <= _WEAK:
        why = "untied" if strongest <= UNTIED else "weak"
    else:
        level = why = "unknown"
    give_or_take = _give_or_take(error) if error >= _FEW_ROWS else ""
    facts = {"kept": percent(share), "off": give_or_take, "level": level, "untied": UNTIED}
    return level, say("pairs_of_columns", why=why, **facts)


def judge_test(
    detected: TwoSample | None, real: TwoSample | None, has_test: bool
) -> tuple[str, list[str]]:
    """The level of a two-sample test of complete rows, and sentences."""
    level = "unknown"
    if detected is not None:
        alike, error = 1.0 - detected.area, detected.error
        if real is not None and real.differ:
            # rows like the training rows are distinguished from held-out rows as these are
            scale = 0.5 / max(1.0 - real.area, _ROUNDING)
            error = scale * math.hypot(error, 2 * scale * alike * real.error)
            alike *= scale
        few = detected.n_rows < FEW
        level = level_within(alike, (4 if few else 2) * error, 1.0 - TOLD_GOOD, 1.0 - TOLD_FAIR)
        if few and level != "poor":
            level = "unknown"  # a learner that tells nothing has had too few rows to learn it from
    facts = {"told": detected, "real": real, "has_test": has_test, "learner": LEARNERS[C2ST]}
    return level, say("whole_rows", level=level, **facts)


def _give_or_take(off: float) -> str:
    return f" (± {points(off)})"


# ---- Utility: skill of models that are trained on synthetic rows ---------------------------------

REAL = "real"  # a source of ml_efficacy
NOTHING = "Models trained on the synthetic rows predict no better than guessing."
# whose errors go by the rows of the rarer classes
_BY_CLASS = ("roc_auc", "balanced_accuracy", "average_precision", "f1", "f1_macro")
_SOME = 0.1  # skill over guessing that is no longer next to nothing
_ROUGH = 0.005  # two standard errors of the retained share, from which the sentence has them


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
        """-1 for a metric that is better if smaller, else 1."""
        return 1 if self.metric.greater_is_better else -1

    @property
    def over_guessing(self) -> float:
        return self.sign * (self.real - self.guess)

    @property
    def is_one(self) -> bool:
        return self.over_guessing >= max(LITTLE, 2 * self.error)  # False of NaN

    @property
    def may_be_some(self) -> bool:
        """Whether models of the real rows may have skill, within two standard errors."""
        return not self.over_guessing + 2 * self.error < _SOME

    @property
    def kept(self) -> float:
        """The retained share of the skill; negative if the score is worse than guessing."""
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
        """Difference of the scores of synthetic and real training rows, with its interval."""
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
    """Judge the share of the skill over guessing that models of the synthetic rows retain.

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
    level, headline, share, error_text, figure = "unknown", "", "", "", ""
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
        error = skill.off(min(max(skill.kept, 0.0), 1.0))
        ends = np.array([skill.kept, skill.kept - error, skill.kept + error])
        kept_share, low, high = np.clip(ends, 0.0, 1.0).tolist()
        share = {0.0: "nothing", 1.0: "all"}.get(kept_share, percent(kept_share))
        rough = max(kept_share - low, high - kept_share)
        error_text = _give_or_take(rough) if rough > _ROUGH else ""
        headline = NOTHING if level == "poor" and kept_share == 0 else ""
        figure = f"difference of {skill.label} {skill.difference}"
    facts = {"skill": skill, "name": repr(str(target)), "rows": rows, "n_test": n_test}
    sentences = say("utility", why=why, level=level, share=share, off=error_text, **facts)
    notes = say("utility_notes", seen=seen, note=skill.note if why == "kept" else "")
    return Finding("utility", level, " ".join(sentences), tuple(notes), headline, figure)


def skills_of_targets(targets: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Scores after training on real and on synthetic rows, from 0 (guessing) to 1 (perfect)."""
    scores = targets[[REAL, SYNTHETIC]].sub(targets["guess"], axis=0)
    skills = scores.div(1.0 - targets["guess"], axis=0).clip(lower=0.0)
    return skills[REAL], skills[SYNTHETIC]


def retained_of_targets(targets: pd.DataFrame) -> tuple[float, float]:
    """Share of the improvement over guessing that is kept over all targets, and its error."""
    real, synthetic = skills_of_targets(targets)
    total = float(real.sum())
    if total < LITTLE:
        return math.nan, math.nan
    error = math.sqrt(float(((targets["gap_se"] / (1.0 - targets["guess"])) ** 2).sum()))
    return float(synthetic.sum()) / total, error / total


def judge_targets(targets: pd.DataFrame, *, seen: bool) -> Finding:
    """Judge the utility for each column as a target, given with the greatest loss first."""
    share, error = retained_of_targets(targets)
    level = "unknown"
    if not math.isnan(share):
        level = level_within(share, 2 * error, KEPT_GOOD, KEPT_FAIR)
    clear = targets[targets["level"].isin(["poor", "fair"])]
    sentences = say(
        "utility_of_targets",
        n_columns=int(targets[REAL].count()),
        share="" if math.isnan(share) else percent(min(share, 1.0)),
        off="" if math.isnan(share) else _give_or_take(2 * error),
        worst=_listed(clear["target"].tolist()[:3]),
        n_more=len(clear) - 3,
        level=level,
    )
    notes = say("utility_notes", seen=seen, note="")
    return Finding("utility", level, " ".join(sentences), tuple(notes))


def best_learner(efficacy: pd.DataFrame, metric: Metric) -> str:
    """The learner that is best after training on the real rows."""
    table = efficacy[(efficacy["metric"] == metric.name) & (efficacy["source"] == REAL)]
    scores = table["mean"] * (1 if metric.greater_is_better else -1)
    return str(table["learner"].iloc[int(scores.fillna(-math.inf).argmax())])


def _with_chance(skill: _Skill, again: pd.DataFrame) -> _Skill:
    """Add to the error of a gap the spread of scores over bootstrap samples of the training rows.

    Models of rows without information on the target still have some skill by chance, for any number
    of test rows. Scores below that of guessing count as guessing, because R2 has no lower end.
    """
    learner_rows = again[
        (again["metric"] == skill.metric.name) & (again["learner"] == skill.learner)
    ]
    scores = (
        skill.sign
        * (learner_rows.loc[learner_rows["source"] != REAL, "mean"] - skill.guess).to_numpy()
    )
    synthetic_skill = max(skill.sign * (skill.synthetic - skill.guess), 0.0)
    by_chance = float(np.sqrt(((np.maximum(scores, 0.0) - synthetic_skill) ** 2).mean()))
    return replace(skill, gap_error=math.hypot(skill.gap_error, by_chance))


def _best(efficacy: pd.DataFrame, metric: Metric, guess: float, n: float, n_test: int) -> _Skill:
    learner = best_learner(efficacy, metric)
    learner_rows = efficacy[(efficacy["metric"] == metric.name) & (efficacy["learner"] == learner)]
    real, synthetic = (
        learner_rows[learner_rows["source"] == source].iloc[0] for source in (REAL, SYNTHETIC)
    )
    score = float(real["mean"])
    error = _score_error(metric, score, n)
    return _Skill(
        metric,
        learner,
        score,
        float(synthetic["mean"]),
        guess,
        max(error, float(np.nan_to_num(real["se"]))),
        # of scores that are equal in a few rows, the difference is not certain either
        max(error if n_test < FEW else 0.0, float(np.nan_to_num(synthetic["gap_se"]))),
        str(synthetic["note"]),
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
