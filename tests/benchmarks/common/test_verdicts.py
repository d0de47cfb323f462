"""The rule of verdicts: cases worked by hand, and its error rates by simulation."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.common import verdicts
from benchmarks.common.verdicts import FAILS, HOLDS, UNDECIDED, beats, best_of, matches

# differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), t quantile of 2 degrees 4.3027
A, B = [2.0, 4.0, 6.0], [1.0, 2.0, 3.0]
HALF = 4.302653 / 3**0.5


def test_the_interval_is_students_over_units():
    verdict = beats(A, B)
    assert (verdict.estimate, verdict.n_units) == (2.0, 3)
    assert (verdict.low, verdict.high) == pytest.approx((2 - HALF, 2 + HALF), abs=1e-5)
    assert verdict.word == UNDECIDED
    assert verdict.numbers == "+2.0 [-0.5, +4.5], n = 3"


@pytest.mark.parametrize(
    ("differences", "margin", "word"),
    [
        ([1.0, 1.1, 1.2], 0.0, HOLDS),
        ([-1.0, -1.1, -1.2], 0.0, FAILS),
        ([1.0, 1.1, 1.2], 5.0, HOLDS),  # above 0, though by less than the margin
        ([-1.0, 1.1, 0.2], 5.0, FAILS),  # at best better by less than the margin
        ([-1.0, 1.1, 0.2], 0.5, UNDECIDED),
        ([0.0, 0.0, 0.0], 0.0, FAILS),  # ties throughout
        ([1.0, 1.0, 1.0], 0.0, HOLDS),  # no variance: an interval of one point
        ([9.0, 9.1], 0.0, UNDECIDED),  # two units decide nothing
        ([9.0], 0.0, UNDECIDED),
        ([], 0.0, UNDECIDED),
        ([1.0, 1.1, np.nan], 0.0, UNDECIDED),  # nor does what is left where a unit is missing
        ([1.0, 1.1, np.inf], 0.0, UNDECIDED),
    ],
)
def test_a_beats_b(differences, margin, word):
    verdict = beats(np.asarray(differences), 0.0, margin)
    assert verdict.word == word
    assert verdict.n_units == len(differences)
    errors = beats(-np.asarray(differences), 0.0, margin, greater_is_better=False)
    assert (errors.word, errors.estimate) == pytest.approx((word, verdict.estimate), nan_ok=True)


@pytest.mark.parametrize(
    ("differences", "margin", "word"),
    [
        ([-0.1, 0.0, 0.1], 0.3, HOLDS),  # interval +-0.248
        ([-0.1, 0.0, 0.1], 0.2, UNDECIDED),
        ([1.0, 1.1, 1.2], 0.5, FAILS),
        ([-1.0, -1.1, -1.2], 0.5, FAILS),
        ([0.0, 0.0, 0.0], 0.1, HOLDS),
        ([0.0, 0.0], 0.1, UNDECIDED),
    ],
)
def test_a_matches_b(differences, margin, word):
    assert matches(differences, 0.0, margin).word == word
    with pytest.raises(ValueError, match=r"margin above 0.*got 0"):
        matches(differences, 0.0, 0)


def test_units_are_aligned_by_name():
    a, b = pd.Series([2.0, 4.0, 6.0], list("xyz")), pd.Series([3.0, 1.0, 2.0], list("zxy"))
    assert beats(a, b) == beats(A, B)
    verdict = beats(a, b.drop("x"))
    assert (verdict.word, verdict.numbers) == (UNDECIDED, "n = 3; no score for 1 of 3 units")
    with pytest.raises(ValueError, match="average them first"):
        beats(pd.concat([a, a]), b)


def test_repeats_within_a_unit_are_averaged():
    rows = pd.DataFrame(
        {
            "data": np.repeat(["a", "b", "c"], 4),
            "activation": ["combu", "relu"] * 6,
            "seed": [0, 0, 1, 1] * 3,
            "score": [1, 0, 3, 0, 4, 1, 4, 3, 6, 2, 6, 4.0],
        }
    )
    wide = verdicts.by_unit(rows, "score", "data")
    assert wide.to_dict("list") == {"combu": [2, 4, 6], "relu": [0, 2, 3]}
    assert beats(wide["combu"], wide["relu"]).n_units == 3
    rows.loc[2, "score"] = np.nan  # a seed that diverged is no reason to leave it out
    assert beats(*verdicts.by_unit(rows, "score", "data").to_numpy().T).word == UNDECIDED


def contenders(*offsets, spread=0.01):
    """Five units; each contender is its offset, and a pattern of its own that sums to 0."""
    patterns = np.array([[1, -1, 0, 0, 0], [0, 1, -1, 0, 0], [0, 0, 0, 1, -1], [1, 1, -2, 0, 0]])
    return pd.DataFrame(np.array(offsets) + spread * patterns[: len(offsets)].T, columns=[*"ABCD"])


@pytest.mark.parametrize(
    ("offsets", "name", "word"),
    [
        ((3, 2, 1, 0), "A", HOLDS),
        ((3, 2, 1, 0), "B", FAILS),
        ((3, 3, 1, 0), "A", UNDECIDED),
        ((3, 3, 1, 0), "B", UNDECIDED),
        ((3, 3, 1, 0), "C", FAILS),
        ((3, 2, 1, 0), None, HOLDS),
        ((3.001, 3, 1, 0), None, UNDECIDED),
    ],
)
def test_the_best_of_several(offsets, name, word):
    scores = contenders(*offsets)
    assert best_of(scores, name).word == word
    assert best_of(-scores, name, greater_is_better=False) == best_of(scores, name)
    assert best_of(scores.head(2), name).word == UNDECIDED
    assert best_of(scores.where(scores != scores.iloc[0, 0]), name).word == UNDECIDED


def test_exact_statements_need_no_interval():
    found = verdicts.exact([1e-9, -2e-9], 1e-8)
    assert (found.word, found.note) == (HOLDS, "largest deviation 2e-09 among 2 values")
    assert np.isnan([found.estimate, found.low, found.high]).all()
    assert verdicts.exact([1e-9, -2e-8], 1e-8).word == FAILS
    assert verdicts.exact(np.inf, 1e-8).word == FAILS
    assert verdicts.exact([0.0, np.nan], 1e-8).numbers == "1 of 2 values missing"
    assert verdicts.exact([], 1e-8).word == UNDECIDED


# ---- The error rate, of a fixed seed ------------------------------------------------------------


@pytest.mark.parametrize(("name", "word"), [(None, HOLDS), ("a", HOLDS), ("a", FAILS)])
def test_equal_contenders_have_no_best(name, word):
    draws = np.random.default_rng(0).normal(size=(300, 8, 3))
    found = [best_of(pd.DataFrame(draw, columns=[*"abc"]), name).word for draw in draws]
    assert np.mean([each == word for each in found]) <= 0.06
