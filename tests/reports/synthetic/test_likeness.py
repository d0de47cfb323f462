"""The finding on likeness: its levels at the thresholds, and its sentences."""

import math

import numpy as np
import pandas as pd
import pytest

from combutab.reports._findings import judge_likeness
from combutab.reports._yardsticks import Yardsticks, measure_yardsticks


def fidelity(shapes, pairs=(), held_out=None, missing=()):
    rows = [("shape", "ks", f"c{i}", None, "synthetic", v, True) for i, v in enumerate(shapes)]
    rows += [("shape", "wasserstein", f"c{i}", None, "synthetic", 9.0, False) for i in (0, 1)]
    rows += [("pairs", "correlation", "c0", "c1", "synthetic", v, True) for v in pairs]
    rows += [("coverage", "range_coverage", "c0", None, "synthetic", 0.0, True)]
    rows += [
        ("missing", "missing_share", f"c{i}", None, "synthetic", v, True)
        for i, v in enumerate(missing)
    ]
    if held_out is not None:
        rows += [("shape", "ks", "c0", None, "held-out real", held_out, True)]
    columns = ["aspect", "measure", "column", "other_column", "source", "mean"]
    return pd.DataFrame(rows, columns=[*columns, "greater_is_better"])


def detection(area=0.5, held_out=None, linear=0.0, se=0.005):
    rows = [("linear", "synthetic", linear, 0), ("hist_gradient_boosting", "synthetic", area, se)]
    if held_out is not None:
        rows += [("hist_gradient_boosting", "held-out real", held_out, se)]
    return pd.DataFrame(rows, columns=["learner", "source", "mean", "se"])


NOWHERE = detection()[:0]
OPEN = (math.inf, math.inf)
PAIR = ("c0", "c1")


def yardsticks(chance=0.0, *, ties=None, ties_off=(0.0, 0.0), strongest=0.0):
    return Yardsticks({"c0": chance, "c1": chance}, ties or {}, ties_off, strongest)


TIED = yardsticks(ties={PAIR: (0.2, 0.05)})


def likeness(table, told=None, sticks=None, *, n=10_000, n_test=0):
    told = detection() if told is None else told
    sticks = yardsticks() if sticks is None else sticks
    return judge_likeness(table, told, sticks, n_train=n, n_made=n, n_test=n_test)


@pytest.mark.parametrize(
    ("pairs", "area", "level"),
    [
        (0.95, 0.6, "good"),
        (0.935, 0.64, "good"),  # 0.135 of 0.15 are 90 %
        (0.93, 0.6, "fair"),  # 87 %
        (0.95, 0.66, "fair"),
        (0.95, 0.8, "fair"),
        (0.95, 0.81, "poor"),
        (0.8, 0.6, "poor"),  # nothing is kept, though the classifier has not seen it
        (0.95, 0.96, "poor"),
    ],
)
@pytest.mark.parametrize("shapes", [[1.0, 1.0], [0.7, 0.7], [math.nan, 0.9]])
def test_rows_that_are_told_apart_decide_and_no_column_does(shapes, pairs, area, level):
    found = likeness(fidelity(shapes, [pairs]), detection(area), TIED)
    assert (found.subject, found.level) == ("likeness", level)


@pytest.mark.parametrize(
    ("pairs", "share"),
    [([0.95], "100 %"), ([0.99], "100 %"), ([0.92], "80 %"), ([0.8], "0 %"), ([0.7], "0 %")],
)
def test_the_share_of_what_ties_columns_together(pairs, share):
    found = likeness(fidelity([1.0, 1.0], pairs), None, TIED)
    assert f"; {share} of what ties columns together is kept; the columns" in found.sentence


@pytest.mark.parametrize(
    ("strongest", "level", "says"),
    [
        (0.09, "good", "no two real columns are associated by more than 0.1"),
        (0.3, "good", "is too weak to show in so few rows"),
        (0.62, "unknown", "whether what ties columns together is kept is left open"),
    ],
)
def test_ties_that_are_not_seen_are_not_called_absent(strongest, level, says):
    found = likeness(fidelity([1.0, 1.0], [0.9]), None, yardsticks(strongest=strongest))
    assert found.level == level
    assert says in found.sentence


def test_what_chance_may_make_good_or_poor_is_not_known():
    table = fidelity([1.0, 1.0], [0.89])  # 60 %
    sure = yardsticks(ties={PAIR: (0.2, 0.05)}, ties_off=(0.1, 0.1))
    unsure = yardsticks(ties={PAIR: (0.2, 0.05)}, ties_off=(0.2, 0.4))
    found = likeness(table, None, sure)
    assert found.level == "poor"
    assert "60 % of what ties columns together is kept, give or take 10 points;" in found.sentence
    found = likeness(table, None, unsure, n=200)
    assert found.level == "unknown"
    assert found.sentence.startswith("Not known, with 200 rows: gradient boosting")
    assert "give or take 32 points, which leaves it open" in found.sentence
    # another part that is poor beyond doubt decides
    assert likeness(table, detection(0.99), unsure).level == "poor"


@pytest.mark.parametrize(
    ("area", "se", "level"),
    [(0.72, 0.03, "fair"), (0.72, 0.05, "unknown"), (0.6, 0.05, "good"), (0.9, 0.04, "poor")],
)
def test_an_area_that_may_be_good_as_well_as_poor_is_not_known(area, se, level):
    found = likeness(fidelity([1.0]), detection(area, se=se))
    assert found.level == level
    assert f"a ROC AUC of {area:.2f}, give or take {2 * se:.2f} (" in found.sentence
    assert ("which leaves it open" in found.sentence) == (level == "unknown")


def test_boosting_decides_whatever_a_linear_model_tells():
    found = likeness(fidelity([1.0]), detection(0.96, linear=0.5))
    assert found.level == "poor"
    assert "boosting tells synthetic rows from real ones with a ROC AUC of 0.96" in found.sentence
    assert likeness(fidelity([1.0]), detection(0.6, linear=0.97)).level == "good"
    assert "AUC of more than 0.99, give" in likeness(fidelity([1.0]), detection(0.9951)).sentence


def test_few_rows_do_not_teach_to_tell_tables_apart():
    assert likeness(fidelity([1.0]), detection(0.5), n=99).level == "unknown"
    assert likeness(fidelity([1.0]), detection(0.5), n=100).level == "good"
    assert likeness(fidelity([1.0]), detection(0.95, se=0.03), n=50).level == "poor"
    found = likeness(fidelity([1.0]), detection(1.0, se=0.1), n=5)
    assert found.level == "unknown"  # as rows may be
    assert likeness(fidelity([1.0]), NOWHERE).level == "unknown"


def test_likeness_in_words():
    table = fidelity([0.81, 0.97], [0.935], held_out=0.98)
    sticks = yardsticks(0.02, ties={PAIR: (0.2, 0.05)})
    found = likeness(table, detection(0.714, 0.506), sticks)
    assert found.level == "fair"
    assert found.sentence == (
        "Gradient boosting tells synthetic rows from real ones with a ROC AUC of 0.71, give or "
        "take 0.01 (0.5 is chance; held-out real rows: 0.51); 90 % of what ties columns together "
        "is kept; the columns match the real ones to 89 % on average (as many real rows, by "
        "chance: 98 %; held-out real rows: 98 %), the column 'c0' least, to 81 %."
    )
    assert found.notes == ()


def test_missing_values_are_a_part_of_a_column():
    found = likeness(fidelity([1.0, 1.0], missing=[1.0, 0.2]))
    assert "match the real ones to 60 % on average" in found.sentence
    assert "'c1' least, to 20 %" in found.sentence


def test_held_out_rows_that_differ_are_noted():
    (note,) = likeness(fidelity([1.0]), detection(0.99, 0.95), n_test=500).notes
    assert "the two real tables differ" in note
    assert likeness(fidelity([1.0]), detection(0.99, 0.95), n_test=50).notes == ()


def test_an_area_far_below_one_half_is_a_sign_of_near_copies():
    found = likeness(fidelity([1.0]), detection(0.06, se=0.02), n=300)
    assert found.level == "good"
    assert found.short == "Its rows look like real ones, but may be near copies of them."
    (note,) = found.notes
    assert note.startswith("A ROC AUC of 0.06 is clearly below 0.5. This is a sign of near copies")
    for area, se, n in ((0.46, 0.001, 10_000), (0.44, 0.021, 300), (0.4, 0.02, 99)):
        found = likeness(fidelity([1.0]), detection(area, se=se), n=n)
        assert not any("near copies" in text for text in (found.short, *found.notes))


def test_yardsticks_are_real_rows_and_shuffled_ones():
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    table = pd.DataFrame({"x": x, "y": x, "z": rng.normal(size=2000)})
    options = {"n_rows": 2000, "kinds": dict.fromkeys("xyz", "number"), "random_state": 0}
    found = measure_yardsticks(table, **options)
    # a correlation of 1 that is lost: a score of 1/2
    assert list(found.ties) == [("x", "y")]
    shuffled, real = found.ties["x", "y"]
    assert shuffled == pytest.approx(0.5, abs=0.02)
    assert real == pytest.approx(0.0, abs=0.01)
    assert found.ties_off[0] < 0.1
    # the mean of the statistic of Kolmogorov's distribution is 0.8687 sqrt(1/n + 1/m)
    assert found.chance["z"] == pytest.approx(0.8687 * math.sqrt(2 / 2000), rel=0.25)
    found = measure_yardsticks(table[["x", "z"]], **options)
    assert found.ties == {}
    assert found.strongest == pytest.approx(abs(np.corrcoef(x, table["z"])[0, 1]))
    alone = measure_yardsticks(table[["x"]], **options)
    assert (alone.ties, alone.strongest) == ({}, 0.0)
    few = measure_yardsticks(table[:3], **options)
    assert (few.chance, few.ties) == ({}, {})


def test_nothing_to_compare():
    assert likeness(fidelity([math.nan])).level == "unknown"
