"""Findings of a report on tables whose properties are known by construction."""

import functools
import re

import numpy as np
import pandas as pd
import pytest

from combutab.reports import evaluate_synthetic
from combutab.reports._findings import level_within, worst_level
from tests.short import BUDGET

pytestmark = pytest.mark.slow

QUICK = {"learners": ["linear"]}
CORRELATION = 0.62


def table(n, seed, *, correlation=CORRELATION):
    """Columns a and b of a correlation, c of its own, a class g, and y that follows from a."""
    rng = np.random.default_rng(seed)
    a, noise, c, e = rng.normal(size=(4, n))
    b = correlation * a + np.sqrt(1 - correlation**2) * noise
    return pd.DataFrame({"a": a, "b": b, "c": c, "g": rng.choice(list("xyz"), n), "y": 2 * a + e})


def share_kept(sentence):
    """The share of what ties columns together, and how far chance may move it, in percent."""
    what = r"([\d.]+) %(?: \(± ([\d.]+) percentage points?\))? of the association between columns"
    share, off = re.search(what, sentence).groups()
    return float(share), float(off or 10.0)


def test_blurred_correlation_is_not_called_independence():
    # 2,000 rows to learn from, 200 held out: "next to nothing to do with each other" was said
    wide = [f"n{i}" for i in range(6)]

    def draw(n, seed, correlation):
        noise = np.random.default_rng(seed + 50).normal(size=(n, len(wide)))
        both = table(n, seed, correlation=correlation)[["a", "b"]]
        return both.join(pd.DataFrame(noise, columns=wide))

    real, held = draw(1000, 0, CORRELATION), draw(200, 1, CORRELATION)
    for correlation, share in ((CORRELATION, 100), (0.0, 0)):
        made = draw(1000, 2, correlation)
        found = evaluate_synthetic(real_train=real, real_test=held, synthetic=made).findings[1]
        told, off = share_kept(found.sentence)
        assert abs(told - share) <= 1.5 * off
        assert found.level == ("good" if share else "poor")


def test_distinguishable_tables_are_not_called_alike():
    # every column and every pair of columns is right; of three signs the product is always one
    def draw(n, seed, parity):
        rng = np.random.default_rng(seed)
        signs = rng.choice([-1.0, 1.0], (n, 3))
        if parity:
            signs[:, 2] = signs[:, 0] * signs[:, 1]
        return pd.DataFrame(signs * rng.uniform(0.5, 1.5, (n, 3)), columns=list("abc"))

    real, made = draw(600, 0, True), draw(600, 1, False)
    fidelity = evaluate_synthetic(real_train=real, synthetic=made).findings[1]
    assert fidelity.level in ("fair", "poor")
    apart = float(re.search(r"a ROC AUC of (?:more than )?([\d.]+) ±", fidelity.sentence)[1])
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
    utility, fidelity, privacy = evaluate_synthetic(synthetic=noise, **given).findings
    assert utility.level not in ("good", "fair"), utility.sentence
    assert fidelity.level == "poor", fidelity.sentence
    assert privacy.level != "poor", privacy.sentence


def test_levels_are_those_of_the_worst_part():
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
