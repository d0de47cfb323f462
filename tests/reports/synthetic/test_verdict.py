"""The three findings: their levels at the thresholds, and their sentences, from tables by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from combutab.reports.synthetic._copies import Copies
from combutab.reports.synthetic._disclosure import judge_privacy
from combutab.reports.synthetic._likeness import judge_likeness
from combutab.reports.synthetic._usefulness import judge_usefulness
from combutab.reports.synthetic._verdict import RULES
from combutab.reports.synthetic._yardsticks import Yardsticks, measure_yardsticks

NONE = Copies(rows=0, of_single=0, expected=0.0, pvalue=1.0)


# ---- usefulness --------------------------------------------------------------------------------


def efficacy(note="", se=0.0, gap_se=0.0, **scores):
    """Of metric=(real, synthetic), or of several learners: metric={learner: (real, synthetic)}."""
    rows = []
    for metric, of in scores.items():
        for learner, pair in (of if isinstance(of, dict) else {"linear": of}).items():
            for source, mean in zip(("real", "synthetic"), pair, strict=True):
                told = note * (source == "synthetic")
                rows.append((learner, metric, source, mean, told, se, gap_se))
    return pd.DataFrame(
        rows, columns=["learner", "metric", "source", "mean", "note", "se", "gap_se"]
    )


def usefulness(table, *, guess=0.5, n_test=4000, seen=False):
    return judge_usefulness(table, target="income", guess=guess, n_test=n_test, seen=seen)


@pytest.mark.parametrize(
    ("made", "level", "share"),
    [
        (0.92, "good", "all"),
        (0.90, "good", "all"),
        (0.861, "good", "90 %"),
        (0.859, "fair", "89 %"),
        (0.7801, "fair", "70 %"),
        (0.779, "poor", "69 %"),
        (0.50, "poor", "nothing"),
        (0.45, "poor", "nothing"),
    ],
)
def test_the_share_of_skill_that_is_kept(made, level, share):
    # over guessing, the real rows teach 0.9 - 0.5 = 0.4
    found = usefulness(efficacy(accuracy=(0.9, made), roc_auc=(0.95, 0.5)))
    assert (found.subject, found.level) == ("usefulness", level)
    assert f"keep {share} of what the real rows teach about 'income':" in found.sentence


def test_a_classification_in_words():
    found = usefulness(efficacy(accuracy=(0.8504, 0.8307), roc_auc=(0.9, 0.9)), guess=0.752)
    assert found.sentence == (
        "The synthetic rows keep 79 % of what the real rows teach about 'income': after learning "
        "from them, a linear model names the right class for 83.1 % of 4,000 held-out real rows; "
        "after learning from the real rows, for 85.0 %; always naming the most frequent class is "
        "right for 75.2 %."
    )


def test_a_regression_in_words():
    found = usefulness(efficacy(r2=(0.84, 0.63), mae=(0.1, 0.2)), guess=0.0)
    assert found.level == "fair"
    assert found.sentence == (
        "The synthetic rows keep 75 % of what the real rows teach about 'income': after learning "
        "from them, a linear model explains 63.0 % of the variation in 4,000 held-out real rows; "
        "after learning from the real rows, 84.0 %; always naming the mean, nothing."
    )
    assert found.notes == ()


def test_a_model_that_is_worse_than_the_mean():
    found = usefulness(efficacy(r2=(0.84, -3.456)), guess=0.0)
    assert found.level == "poor"
    assert "explains nothing (R² -3.46) of the variation" in found.sentence


def test_the_learner_that_is_best_on_real_rows_decides():
    scores = {"mlp": (0.7, 0.7), "random_forest": (0.9, 0.6), "linear": (math.nan, 0.9)}
    found = usefulness(efficacy(r2=scores), guess=0.0)
    assert found.level == "poor"
    assert "a random forest explains 60.0 %" in found.sentence


def test_a_rare_class_is_judged_by_the_area():
    # naming the frequent class is right for 99 %; the area shows what is learned all the same
    table = efficacy(accuracy=(0.99, 0.99), roc_auc=(0.9, 0.7))
    found = usefulness(table, guess=0.99, n_test=10_000)
    assert found.level == "poor"
    assert "keep 50 %" in found.sentence  # (0.7 - 0.5) / (0.9 - 0.5)
    assert "in 70.0 % of all pairs of rows" in found.sentence
    # of the same scores with 2 rows of the rare class nothing is known
    assert usefulness(table, guess=0.99, n_test=200).level == "unknown"


@pytest.mark.parametrize(
    ("scores", "guess"),
    [
        ({"accuracy": (0.765, 0.7), "roc_auc": (0.51, 0.5)}, 0.75),
        ({"r2": (0.019, 0.019)}, 0.0),
        ({"r2": (-0.4, 0.3)}, 0.0),
    ],
)
def test_where_real_rows_teach_nothing(scores, guess):
    found = usefulness(efficacy(**scores), guess=guess)
    assert found.level == "unknown"
    assert (
        "even the real rows teach these learners next to nothing about 'income'" in found.sentence
    )


def test_a_skill_within_its_error_is_none():
    # 0.6 of 100 rows: the standard error is 0.049, guessing is 0.1 below
    table = efficacy(accuracy=(0.59, 0.59), roc_auc=(0.5, 0.5))
    found = usefulness(table, n_test=100)
    assert found.level == "unknown"
    assert "even the real rows may teach nothing about 'income'" in found.sentence
    assert usefulness(table, n_test=200).level == "good"


@pytest.mark.parametrize("n_test", [1, 9])
def test_a_few_rows_to_test_on_tell_nothing(n_test):
    found = usefulness(efficacy(r2=(0.99, 0.99)), guess=0.0, n_test=n_test)
    assert found.level == "unknown"
    assert f"{n_test} held-out real row" in found.sentence
    assert "too few" in found.sentence


def test_a_constant_target():
    found = usefulness(efficacy(r2=(math.nan, math.nan)), guess=0.0)
    assert found.level == "unknown"
    assert "all 4,000 held-out real rows tested on have the same value" in found.sentence


def test_what_limits_the_usefulness_is_said():
    # two standard errors of the gap, over a skill of 0.5: 0.16
    table = efficacy(note="one class to learn from", gap_se=0.04, r2=(0.5, 0.5))
    found = usefulness(table, guess=0.0, n_test=400)
    assert found.level == "good"
    assert "about 'income', give or take 16 points: after" in found.sentence
    assert found.notes == ("Of the training on the synthetic rows: one class to learn from.",)
    (seen,) = usefulness(efficacy(r2=(0.5, 0.5)), guess=0.0, seen=True).notes
    assert "set aside" in seen


@pytest.mark.parametrize(
    ("made", "gap_se", "level"),
    [
        (0.05, 0.2, "unknown"),  # 0.1 give or take 0.8, and 0.9 times the error of 0.5 again
        (0.05, 0.05, "poor"),
        (0.5, 0.04, "good"),
        (0.5, 0.08, "unknown"),  # 1 give or take 0.32
        (0.41, 0.025, "fair"),  # 0.82 give or take 0.1: perhaps good, not poor
        (0.41, 0.06, "unknown"),
    ],
)
def test_a_share_that_may_be_poor_as_well_as_good_is_not_known(made, gap_se, level):
    # of these the first was "poor", with "give or take about 89 percentage points" below it
    found = usefulness(efficacy(gap_se=gap_se, r2=(0.5, made)), guess=0.0, n_test=10**6)
    assert found.level == level
    assert found.sentence.startswith("Not known") == (level == "unknown")


def test_errors_are_those_of_few_rows_where_a_resample_shows_none():
    # all of 20 rows right, in every resample: not certain all the same
    found = usefulness(efficacy(accuracy=(1.0, 1.0), roc_auc=(1.0, 1.0)), n_test=20)
    assert found.level == "good"
    assert "give or take" in found.sentence


def test_names_are_told_on_one_line():
    table = efficacy(accuracy=(0.9, 0.9), roc_auc=(0.9, 0.9))
    found = judge_usefulness(table, target="a\n\x1b[31m", guess=0.5, n_test=100, seen=False)
    assert found.sentence.isprintable()


# ---- likeness ----------------------------------------------------------------------------------


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


def detection(area=0.5, held_out=None, linear=0.0):
    rows = [("linear", "synthetic", linear), ("hist_gradient_boosting", "synthetic", area)]
    if held_out is not None:
        rows += [("hist_gradient_boosting", "held-out real", held_out)]
    return pd.DataFrame(rows, columns=["learner", "source", "mean"])


NOWHERE = detection()[:0]
OPEN = (math.inf, math.inf)
PAIR = ("c0", "c1")


def yardsticks(chance=0.0, off=0.0, *, ties=None, ties_off=(0.0, 0.0), strongest=0.0):
    return Yardsticks({"c0": chance, "c1": chance}, off, ties or {}, ties_off, strongest)


TIED = yardsticks(ties={PAIR: (0.2, 0.05)})


def likeness(table, told=None, sticks=None, *, n=10_000, n_test=0):
    told = detection() if told is None else told
    sticks = yardsticks() if sticks is None else sticks
    return judge_likeness(table, told, sticks, n_train=n, n_made=n, n_test=n_test)


@pytest.mark.parametrize(
    ("shapes", "pairs", "area", "level"),
    [
        ([0.9, 1.0], [0.95], 0.6, "good"),
        ([0.9, 0.9], [0.935], 0.64, "good"),  # 0.135 of 0.15 are 90 %
        ([0.89, 0.9], [0.95], 0.6, "fair"),
        ([1.0, 1.0], [0.93], 0.6, "fair"),  # 87 %
        ([1.0, 1.0], [0.95], 0.7, "fair"),
        ([0.7, 0.7], [0.95], 0.6, "poor"),
        ([1.0, 1.0], [0.8], 0.6, "poor"),  # nothing is kept; their mean was "fair"
        ([1.0, 1.0], [0.7], 0.6, "poor"),
        ([1.0, 1.0], [0.95], 0.96, "poor"),  # told apart in 96 of 100 cases: this was "good"
        ([math.nan, 0.9], [0.95], 0.6, "good"),
    ],
)
def test_a_table_is_as_alike_as_the_worst_of_its_parts(shapes, pairs, area, level):
    found = likeness(fidelity(shapes, pairs), detection(area), TIED)
    assert (found.subject, found.level) == ("likeness", level)


@pytest.mark.parametrize(
    ("pairs", "share"),
    [([0.95], "100 %"), ([0.99], "100 %"), ([0.92], "80 %"), ([0.8], "0 %"), ([0.7], "0 %")],
)
def test_the_share_of_what_ties_columns_together(pairs, share):
    found = likeness(fidelity([1.0, 1.0], pairs), None, TIED)
    assert f"; {share} of what ties columns together is kept; shown" in found.sentence


def test_what_chance_takes_from_columns_is_given_back():
    # real rows lose 0.12 by chance: of a loss of 0.13 the rest is sqrt(0.13^2 - 0.12^2) = 0.05
    assert likeness(fidelity([0.87, 0.87])).level == "fair"
    assert likeness(fidelity([0.87, 0.87]), None, yardsticks(0.12)).level == "good"
    assert likeness(fidelity([0.6, 0.6]), None, yardsticks(0.12)).level == "poor"


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
    assert found.sentence.startswith("Not known, with 200 rows: the columns match")
    assert "give or take 32 points, which leaves it open" in found.sentence
    # another part that is poor beyond doubt decides
    assert likeness(table, detection(0.99), unsure).level == "poor"
    assert likeness(fidelity([0.7, 0.7]), None, yardsticks(off=0.1)).level == "poor"
    assert likeness(fidelity([0.7, 0.7]), None, yardsticks(off=0.25)).level == "unknown"


def test_the_learner_that_tells_tables_apart_best_is_named():
    found = likeness(fidelity([1.0]), detection(0.6, linear=0.97))
    assert found.level == "poor"
    assert "a linear model tells which is which in 97 of 100 cases" in found.sentence
    assert "in more than 99 of 100" in likeness(fidelity([1.0]), detection(0.9951)).sentence


def test_few_rows_do_not_teach_to_tell_tables_apart():
    assert likeness(fidelity([1.0]), detection(0.5), n=99).level == "unknown"
    assert likeness(fidelity([1.0]), detection(0.5), n=100).level == "good"
    assert likeness(fidelity([1.0]), detection(0.95), n=50).level == "poor"
    assert likeness(fidelity([1.0]), detection(1.0), n=5).level == "unknown"  # as rows may be
    assert likeness(fidelity([1.0]), NOWHERE).level == "unknown"


def test_likeness_in_words():
    table = fidelity([0.81, 0.97], [0.935], held_out=0.98)
    sticks = yardsticks(0.02, ties={PAIR: (0.2, 0.05)})
    found = likeness(table, detection(0.714, 0.506), sticks)
    assert found.level == "fair"
    assert found.sentence == (
        "The columns match the real ones to 89 % on average (as many real rows, by chance: 98 %; "
        "held-out real rows: 98 %), the column 'c0' least, to 81 %; 90 % of what ties columns "
        "together is kept; shown a real row and a synthetic one, gradient boosting tells which is "
        "which in 71 of 100 cases (50 is chance; held-out real rows: 51)."
    )
    assert found.notes == ()


def test_missing_values_are_a_part_of_a_column():
    found = likeness(fidelity([1.0, 1.0], missing=[1.0, 0.2]))
    assert "match the real ones to 60 % on average" in found.sentence
    assert "'c1' least, to 20 %" in found.sentence
    assert found.level == "poor"


def test_held_out_rows_that_differ_are_noted():
    (note,) = likeness(fidelity([1.0]), detection(0.99, 0.95), n_test=500).notes
    assert "the two real tables differ" in note
    assert likeness(fidelity([1.0]), detection(0.99, 0.95), n_test=50).notes == ()


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
    assert few.columns_off == math.inf


def test_nothing_to_compare():
    assert likeness(fidelity([math.nan])).level == "unknown"


# ---- privacy -----------------------------------------------------------------------------------


def privacy(share=0.5, area=0.5):
    values = {"share_closer_to_train": share, "dcr_median": 0.0, "membership_auc": area}
    return pd.DataFrame({"measure": list(values), "mean": list(values.values())})


def judged(table, copies=NONE, *, error=0.01, m=10_000, n_seen=0):
    return judge_privacy(table, copies, n_made=2000, n_compared=m, share_error=error, n_seen=n_seen)


@pytest.mark.parametrize(
    ("share", "area", "level"),
    [
        (0.2, 0.2, "good"),
        (0.529, 0.5, "good"),  # three standard errors are 0.03
        (0.531, 0.5, "fair"),
        (0.549, 0.5, "fair"),
        (0.551, 0.5, "poor"),
        (0.5, 0.512, "good"),  # 3 sqrt(20001 / (12 10000^2)) = 0.01225
        (0.5, 0.5123, "fair"),
        (0.5, 0.55, "poor"),
        (1.0, 1.0, "poor"),
    ],
)
def test_signs_beyond_chance(share, area, level):
    found = judged(privacy(share, area))
    assert (found.subject, found.level) == ("privacy", level)


def test_a_share_that_chance_explains_is_no_sign():
    # far from all real rows, a few of these are the nearest to most
    assert judged(privacy(0.87, 0.5), error=0.2).level == "good"
    assert judged(privacy(0.87, 0.6), error=0.2).level == "poor"


@pytest.mark.parametrize(("pvalue", "level"), [(0.5, "good"), (0.001, "good"), (9e-4, "poor")])
def test_copies_beyond_chance(pvalue, level):
    copies = Copies(rows=500, of_single=14, expected=10.0, pvalue=pvalue)
    assert judged(privacy(), copies).level == level
    assert judged(None, copies).level == {"good": "unknown"}.get(level, level)


def test_values_of_single_rows_that_are_copied():
    values = {
        "mail": Copies(rows=240, of_single=240, expected=0.0, pvalue=0.0),
        "name": Copies(rows=90, of_single=30, expected=0.4, pvalue=0.0),
    }
    for table in (privacy(), None):
        found = judge_privacy(
            table, NONE, n_made=2000, n_compared=10_000, share_error=0.01, values=values
        )
        assert found.level == "poor"
        assert found.sentence.endswith(
            "values of 'mail' that one real row alone has are copied in 240 synthetic rows (about "
            "0 by chance), as are such values of 1 other column."
        )
    assert judged(privacy(), NONE).level == "good"


def test_privacy_in_words():
    copies = Copies(rows=512, of_single=12, expected=10.4, pvalue=0.4)
    found = judged(privacy(0.519, 0.504), copies)
    assert found.sentence == (
        "No sign that rows learned from show through: of 100 synthetic rows, 51.9 are nearer to a "
        "row learned from than to any held-out one (by chance 50, give or take 3.0); an attacker "
        "who goes by these distances tells which of two rows was learned from in 50.4 of 100 cases "
        "(by chance 50, give or take 1.2); 512 of the 2,000 synthetic rows equal a real one, 12 of "
        "them one that occurs once (about 10 by chance)."
    )


@pytest.mark.parametrize(
    ("rows", "of_single", "says"),
    [
        (0, 0, "none of the 2,000 synthetic rows equals a real one."),
        (1, 1, "1 of the 2,000 synthetic rows equals a real one that occurs once (about 0 by"),
        (3, 1, "3 of the 2,000 synthetic rows equal a real one, 1 of them one that occurs once"),
        (2000, 2000, "all 2,000 synthetic rows equal a real one that occurs once (about 0 by"),
    ],
)
def test_copies_in_words(rows, of_single, says):
    copies = Copies(rows=rows, of_single=of_single, expected=0.1, pvalue=0.4)
    assert says in judged(privacy(), copies).sentence


def test_one_synthetic_row():
    for rows, says in ((0, "equals no real one."), (1, "equals a real one.")):
        copies = Copies(rows=rows, of_single=rows, expected=0.0, pvalue=0.4)
        found = judge_privacy(None, copies, n_made=1, n_compared=0, share_error=0.0)
        assert f"the one synthetic row {says}" in found.sentence


def test_no_finding_is_a_promise():
    for table in (privacy(), privacy(0.54), privacy(1.0), None):
        found = judged(table)
        told = " ".join([found.sentence, *found.notes]).casefold()
        assert not any(word in told for word in ("safe", "anonym", "guarantee"))
    assert "no proof of privacy" in judged(privacy()).notes[0]


@pytest.mark.parametrize(("m", "level"), [(37, "unknown"), (38, "good"), (5, "unknown")])
def test_few_rows_to_compare_with(m, level):
    # 3 sqrt((2m + 1) / (12 m^2)) is 0.2027 for 37 rows, 0.2000 for 38
    assert judged(privacy(), m=m, error=0.05).level == level
    assert judged(privacy(1.0, 1.0), m=20, error=0.05).level == "poor"


def test_weak_signs_that_few_rows_hide_are_noted():
    assert len(judged(privacy(), m=600).notes) == 2  # 0.05002
    assert len(judged(privacy(), m=602).notes) == 1


def test_without_rows_that_the_generator_has_not_seen():
    found = judged(None)
    assert found.level == "unknown"
    assert "none of the 2,000 synthetic rows equals a real one" in found.sentence
    seen = judged(privacy(), n_seen=700)
    assert seen.level == "unknown"
    assert "700 of them are among the rows learned from" in seen.sentence


def test_the_rules_name_the_thresholds():
    assert all(number in RULES["usefulness"] for number in ("0.9", "0.7", "0.02", "10"))
    assert all(number in RULES["likeness"] for number in ("0.9", "0.75", "0.65", "0.8", "100"))
    assert all(
        number in RULES["privacy"] for number in ("3 standard errors", "0.001", "0.55", "0.7")
    )
