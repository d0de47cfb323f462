"""Sentences of a report against known answers: each is said of tables of which it is true.

What is true of a table is known from how it was made. A level may be "unknown", and one step off
where the numbers beside it say that chance may do that; never good of what is poor, or the reverse.
"""

import functools
import os
import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ks_2samp

from combutab.reports import _yardsticks, evaluate_synthetic
from combutab.reports._findings import level_within, worst_level

BUDGET = int(os.environ.get("COMBUTAB_TRUST_BUDGET", "1"))
QUICK = {"learners": ["linear"]}
CORRELATION = 0.62


def table(n, seed, *, correlation=CORRELATION, slope=1.0, shift=0.0, task="regression"):
    """Columns a and b of a correlation, c of its own, a class g, and y that follows from a."""
    rng = np.random.default_rng(seed)
    a, noise, c, e = rng.normal(size=(4, n))
    b = correlation * a + np.sqrt(1 - correlation**2) * noise
    y = slope * 2 * a + e
    made = pd.DataFrame({"a": a, "b": b, "c": c, "g": rng.choice(list("xyz"), n), "y": y})
    made[["a", "b", "c"]] += shift
    return made if task == "regression" else made.assign(y=np.where(y > 0, "yes", "no"))


MADE = {
    # how a synthetic table is made: the share of ties and of skill kept, whether it is alike
    "fresh": (lambda n, seed, task: table(n, seed, task=task), 1.0, "alike", "apart"),
    "shuffled": (
        lambda n, seed, task: table(n, seed, correlation=0, slope=0, task=task),
        0.0,
        "unlike",
        "apart",
    ),
    "noise": (
        lambda n, seed, task: table(n, seed, correlation=0, slope=0, shift=4.0, task=task),
        0.0,
        "unlike",
        "apart",
    ),
    "copied": (None, 1.0, "alike", "given away"),
}
SIZES = {"fresh": [10, 200], "shuffled": [20, 200], "noise": [10], "copied": [10, 200]}
if BUDGET > 1:
    SIZES = {how: [5, 20, 50, 200, 2000] for how in MADE}
WRONG = {"alike": {"poor"}, "unlike": {"good", "fair"}}


def evaluate(how, n, seed, task="regression", **options):
    real, held = table(n, 3 * seed, task=task), table(n, 3 * seed + 1, task=task)
    make = MADE[how][0]
    made = real if make is None else make(n, 3 * seed + 2, task)
    given = {"real_train": real, "real_test": held, "target": "y", **QUICK}
    return evaluate_synthetic(**(given | {"synthetic": made} | options)), real, made


def give_or_take(sentence, what):
    """A share that a sentence tells, and how far chance may move it; None where it does not."""
    found = re.search(what, sentence)
    if found is None:
        return None
    share = {"all": 100, "nothing": 0}.get(found[1]) if not found[1][0].isdigit() else found[1]
    return float(str(share).removesuffix(" %")), float(found[2] or 10.0)


def check(found, how, n, *, tied=True):
    """That no sentence and no level is false."""
    _, share, alike, safety = MADE[how]
    usefulness, likeness, privacy = found.findings
    assert usefulness.level not in ({"poor"} if share else {"good", "fair"})
    assert likeness.level not in WRONG[alike]
    assert privacy.level in ({"poor"} if safety == "given away" else {"good", "unknown"})
    if n < 50:
        assert likeness.level != "good"
    # "keep X % of what the real rows teach, give or take Y"
    kept = r"keep (all|nothing|[\d.]+ %) of what the real rows teach about 'y'"
    told = give_or_take(usefulness.sentence, kept + r"(?:, give or take ([\d.]+) points)?")
    if told is not None:
        assert abs(told[0] - 100 * share) <= 1.5 * told[1] + 1
    # "X % of what ties columns together is kept, give or take Y"
    told = give_or_take(
        likeness.sentence,
        r"([\d.]+ %) of what ties columns together is kept(?:, give or take ([\d.]+) points)?",
    )
    if told is not None:
        assert tied, likeness.sentence
        assert abs(told[0] - 100 * share) <= 1.5 * told[1] + 1
    # a correlation of 0.62 is never called none, nor weak where it shows
    if tied:
        assert "no two real columns are associated" not in likeness.sentence
        assert n < 200 or "too weak" not in likeness.sentence
    apart = re.search(r"a ROC AUC of (?:more than )?([\d.]+)", likeness.sentence)
    if apart is not None and alike == "alike" and n >= 100:
        assert float(apart[1]) <= 0.62
    # a level has the sentence of its own
    for finding in found.findings:
        assert finding.sentence.startswith("Not known") == (finding.level == "unknown")
        assert finding.sentence.endswith(".")


@pytest.mark.parametrize(("how", "n"), [(how, n) for how in MADE for n in SIZES[how]])
@pytest.mark.parametrize("seed", range(BUDGET))
def test_of_tables_whose_truth_is_known(how, n, seed):
    task = "classification" if (n + seed) % 3 else "regression"
    found, real, made = evaluate(how, n, seed, task)
    check(found, how, n)
    # the number that is told of the columns, computed anew
    match = 1 - np.mean(
        [
            ks_2samp(real[name], made[name], method="asymp").statistic
            if real[name].dtype.kind == "f"
            else real[name]
            .value_counts(normalize=True)
            .sub(made[name].value_counts(normalize=True), fill_value=0)
            .abs()
            .sum()
            / 2
            for name in real
        ]
    )
    told = re.search(r"match the real ones to (\d+) %", found.findings[1].sentence)
    assert int(told[1]) == int(100 * match + 1e-7)


@pytest.mark.parametrize("how", ["fresh", "noise"])
def test_of_many_rows_it_is_known(how):
    n = {"fresh": 1200, "noise": 600}[how]
    found, *_ = evaluate(how, n, 0)
    check(found, how, n)
    level = {"fresh": "good", "noise": "poor"}[how]
    assert [each.level for each in found.findings] == [level, level, "good"]


def test_a_correlation_that_few_held_out_rows_blur_is_no_independence(monkeypatch):
    # 2,000 rows to learn from, 200 held out: "next to nothing to do with each other" was said
    monkeypatch.setattr(_yardsticks, "_SPLITS", 1)  # of the finding on privacy, not looked at
    wide = [f"n{i}" for i in range(6)]

    def draw(n, seed, correlation):
        noise = np.random.default_rng(seed + 50).normal(size=(n, len(wide)))
        both = table(n, seed, correlation=correlation)[["a", "b"]]
        return both.join(pd.DataFrame(noise, columns=wide))

    real, held = draw(1000, 0, CORRELATION), draw(200, 1, CORRELATION)
    for correlation, share in ((CORRELATION, 100), (0.0, 0)):
        made = draw(1000, 2, correlation)
        found = evaluate_synthetic(real_train=real, real_test=held, synthetic=made).findings[1]
        told, off = give_or_take(
            found.sentence,
            r"([\d.]+ %) of what ties columns together is kept(?:, give or take ([\d.]+) points)?",
        )
        assert abs(told - share) <= 1.5 * off
        assert found.level == ("good" if share else "poor")


def test_columns_are_called_independent_if_they_are():
    def draw(n, seed):
        return table(n, seed, correlation=0.0, slope=0.0).drop(columns="g")

    real, made = draw(1500, 0), draw(1500, 1)
    found = evaluate_synthetic(real_train=real, synthetic=made).findings[1]
    assert "no two real columns are associated by more than 0.1" in found.sentence
    assert real.corr().where(~np.eye(4, dtype=bool)).abs().max().max() <= 0.1
    assert found.level == "good"


def test_tables_that_are_told_apart_are_not_called_alike():
    # every column and every pair of columns is right; of three signs the product is always one
    def draw(n, seed, parity):
        rng = np.random.default_rng(seed)
        signs = rng.choice([-1.0, 1.0], (n, 3))
        if parity:
            signs[:, 2] = signs[:, 0] * signs[:, 1]
        return pd.DataFrame(signs * rng.uniform(0.5, 1.5, (n, 3)), columns=list("abc"))

    real, made = draw(600, 0, True), draw(600, 1, False)
    likeness = evaluate_synthetic(real_train=real, synthetic=made).findings[1]
    assert likeness.level in ("fair", "poor")
    apart = float(re.search(r"a ROC AUC of (?:more than )?([\d.]+),", likeness.sentence)[1])
    assert apart > 0.65


ODD = {
    "columns that say nothing": lambda t, rng: t.assign(
        constant=1.0, missing=np.nan, identifier=[f"{rng.random():.12f}" for _ in range(len(t))]
    ),
    "point masses, heavy tails and a rare class": lambda t, rng: t.assign(
        masses=np.where(rng.random(len(t)) < 0.92, 0.0, t["c"]),
        tails=rng.standard_cauchy(len(t)) ** 3,
        rare=np.where(rng.random(len(t)) < 0.01, "rare", "often"),
    ),
    "a rare class to predict": lambda t, rng: t.assign(y=np.where(t["y"] > 5, "rare", "often")),
    "gaps": lambda t, rng: t.mask(rng.random(t.shape) < 0.3),
    "one column": lambda t, rng: t[["y"]],
    "a tail to predict": lambda t, rng: t.assign(y=np.exp(1.5 * t["y"])),
}


AT_ONCE = ("point masses, heavy tails and a rare class", "a rare class to predict")
ALONE = [(name,) for name in ODD if BUDGET > 1 or name not in AT_ONCE]


@pytest.mark.parametrize("names", [AT_ONCE, *ALONE], ids=" and ".join)
def test_odd_tables(names):
    """Fresh rows are never called poor, and noise is never called good, whatever the columns."""
    rng = np.random.default_rng(5)

    def odd(seed):
        return functools.reduce(lambda made, name: ODD[name](made, rng), names, table(240, seed))

    real, held, fresh = map(odd, (0, 1, 2))
    target = None if names == ("one column",) else "y"
    given = {"real_train": real, "real_test": held, "target": target, **QUICK}
    for finding in evaluate_synthetic(synthetic=fresh, **given).findings:
        assert finding.level not in ("poor", "fair"), finding.sentence
    noise = pd.DataFrame(
        {
            column: rng.permutation(fresh[column]) + 30 * rng.normal(size=len(fresh))
            if fresh[column].dtype.kind == "f"
            else rng.permutation(fresh[column])
            for column in fresh
        }
    )
    usefulness, likeness, privacy = evaluate_synthetic(synthetic=noise, **given).findings
    assert usefulness.level not in ("good", "fair"), usefulness.sentence
    assert likeness.level == "poor", likeness.sentence
    assert privacy.level != "poor", privacy.sentence


def test_a_table_of_the_same_values_and_other_gaps_is_not_alike():
    real, made = table(300, 0), table(300, 1)
    made.loc[made.index % 5 > 0, "c"] = np.nan
    likeness = evaluate_synthetic(real_train=real, synthetic=made).findings[1]
    assert likeness.level == "poor"
    assert "the column 'c' least, to 20 %" in likeness.sentence


def test_levels_are_those_of_the_worst_part_and_of_both_ends():
    """By all combinations, from what the words mean."""
    order = ["poor", "unknown", "fair", "good"]
    for first in order:
        for second in order:
            worst = worst_level([first, second])
            if "poor" in (first, second):
                assert worst == "poor"
            elif "unknown" in (first, second):
                assert worst == "unknown"
            else:
                assert worst == ("fair" if "fair" in (first, second) else "good")
    rng = np.random.default_rng(0)
    for value, off in rng.uniform(0, 1, (500, 2)):
        level = level_within(value, off, 0.9, 0.7)
        if value + off >= 0.9 and value - off < 0.7:
            assert level == "unknown"
        else:
            assert level == ("good" if value >= 0.9 else "fair" if value >= 0.7 else "poor")
