"""The three findings: their levels at the thresholds, and their sentences, from tables by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from combutab.reports._copies import Copies
from combutab.reports._disclosure import judge_privacy
from combutab.reports._likeness import Yardsticks, judge_likeness, measure_yardsticks
from combutab.reports._usefulness import judge_usefulness
from combutab.reports._verdict import RULES

NONE = Copies(rows=0, of_single=0, expected=0.0, pvalue=1.0)


# ---- usefulness --------------------------------------------------------------------------------


def efficacy(note="", **scores):
    """Of metric=(real, synthetic), or of several learners: metric={learner: (real, synthetic)}."""
    rows = []
    for metric, of in scores.items():
        for learner, pair in (of if isinstance(of, dict) else {"linear": of}).items():
            for source, mean in zip(("real", "synthetic"), pair, strict=True):
                rows.append((learner, metric, source, mean, note * (source == "synthetic")))
    return pd.DataFrame(rows, columns=["learner", "metric", "source", "mean", "note"])


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
    assert "even the real rows teach next to nothing about 'income'" in found.sentence


def test_a_skill_within_its_error_is_none():
    # 0.6 of 100 rows: the standard error is 0.049, guessing is 0.1 below
    table = efficacy(accuracy=(0.59, 0.59), roc_auc=(0.5, 0.5))
    assert usefulness(table, n_test=100).level == "unknown"
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
    # R2 of 0.5 on 50 rows: the standard error is 2 sqrt(0.5) 0.5 / sqrt(50) = 0.1; twice, over 0.5
    table = efficacy(note="one class to learn from", r2=(0.5, 0.5))
    rough, noted = usefulness(table, guess=0.0, n_test=50).notes
    assert rough.endswith("give or take about 40 percentage points.")
    assert noted == "Of the training on the synthetic rows: one class to learn from."
    (seen,) = usefulness(efficacy(r2=(0.5, 0.5)), guess=0.0, seen=True).notes
    assert "set aside" in seen


def test_names_are_told_on_one_line():
    table = efficacy(accuracy=(0.9, 0.9), roc_auc=(0.9, 0.9))
    found = judge_usefulness(table, target="a\n\x1b[31m", guess=0.5, n_test=100, seen=False)
    assert found.sentence.isprintable()


# ---- likeness ----------------------------------------------------------------------------------


def fidelity(shapes, pairs=(), held_out=None):
    rows = [("shape", "ks", f"c{i}", None, "synthetic", v, True) for i, v in enumerate(shapes)]
    rows += [("shape", "wasserstein", f"c{i}", None, "synthetic", 9.0, False) for i in (0, 1)]
    rows += [("pairs", "correlation", "c0", "c1", "synthetic", v, True) for v in pairs]
    rows += [("coverage", "range_coverage", "c0", None, "synthetic", 0.0, True)]
    if held_out is not None:
        rows += [("shape", "ks", "c0", None, "held-out real", held_out, True)]
    columns = ["aspect", "measure", "column", "other_column", "source", "mean"]
    return pd.DataFrame(rows, columns=[*columns, "greater_is_better"])


def detection(area=None, held_out=None):
    rows = [("linear", "synthetic", 1.0)] if area is not None else []
    rows += [
        ("hist_gradient_boosting", source, value)
        for source, value in (("synthetic", area), ("held-out real", held_out))
        if value is not None
    ]
    return pd.DataFrame(rows, columns=["learner", "source", "mean"])


ALONE = Yardsticks(math.nan, math.nan)  # of one column
UNTIED = Yardsticks(independent=0.985, real=0.99)
TIED = Yardsticks(independent=0.8, real=0.95)


@pytest.mark.parametrize(
    ("shapes", "pairs", "level", "shares"),
    [
        ([0.9, 1.0], [0.92], "fair", ("95 %", "80 %")),  # (0.95 + 0.12 / 0.15) / 2
        ([1.0, 1.0], [0.92], "good", ("100 %", "80 %")),
        ([1.0, 1.0], [0.8], "poor", ("100 %", "0 %")),
        ([0.9, 0.9], [0.89], "fair", ("90 %", "60 %")),
        ([0.9, 0.9], [0.8899], "poor", ("90 %", "59 %")),
        ([0.9, 0.9], [0.7], "poor", ("90 %", "0 %")),  # no less than nothing
        ([0.8, 0.8], [0.99], "good", ("80 %", "100 %")),  # and no more than all
        ([math.nan, 0.9], [0.95], "good", ("90 %", "100 %")),
    ],
)
def test_the_mean_of_columns_and_of_what_ties_them(shapes, pairs, level, shares):
    found = judge_likeness(fidelity(shapes, pairs), detection(0.6), TIED, n_rows=1000)
    assert (found.subject, found.level) == ("likeness", level)
    assert f"match the real ones to {shares[0]} on average" in found.sentence
    assert f"; {shares[1]} of what ties columns together is kept" in found.sentence


def test_columns_that_nothing_ties_are_judged_alone():
    found = judge_likeness(fidelity([0.9, 0.92], [0.1]), detection(), UNTIED, n_rows=1000)
    assert found.level == "good"
    assert found.sentence.endswith("have next to nothing to do with each other.")


def test_likeness_in_words():
    table = fidelity([0.81, 0.97], [0.935], held_out=0.98)
    found = judge_likeness(table, detection(0.714, 0.506), TIED, n_rows=1000)
    assert found.sentence == (
        "The columns match the real ones to 89 % on average (held-out real rows: 98 %), the column "
        "'c0' least, to 81 %; 90 % of what ties columns together is kept; shown a real row and a "
        "synthetic one, gradient boosting tells which is which in 71 of 100 cases (50 is chance; "
        "held-out real rows: 51)."
    )
    assert found.notes == ()


def test_one_column_and_no_detection():
    found = judge_likeness(fidelity([0.95]), detection(), ALONE, n_rows=1000)
    assert found.sentence == "The columns match the real ones to 95 % on average."


def test_rows_that_are_told_apart_are_not_called_alike_in_silence():
    def notes(*areas):
        return judge_likeness(fidelity([0.95]), detection(*areas), ALONE, n_rows=1000).notes

    (note,) = notes(0.99)
    assert "easily told from real ones" in note
    assert notes(0.79) == ()
    # nor are held-out real rows, where time has gone by
    assert notes(0.99, 0.95) == ()


def test_what_real_rows_do_not_reach_is_not_asked_for():
    def judge(share, held_out, yardsticks=ALONE):
        table = fidelity([share], [0.9], held_out=held_out)
        return judge_likeness(table, detection(), yardsticks, n_rows=20)

    found = judge(0.7, 0.69)
    assert found.level == "unknown"
    assert found.sentence.startswith("Not known, with so few rows: the columns match")
    assert judge(0.7, 0.71).level == "poor"
    assert judge(0.95, 0.9).level == "good"
    assert judge(0.7, 0.69, TIED).level == "poor"  # what ties them is lost, few rows or not


def test_few_rows_without_others_beside_are_noted():
    (note,) = judge_likeness(fidelity([0.7]), detection(), ALONE, n_rows=20).notes
    assert note == "With 20 rows, chance alone makes tables differ."


def test_yardsticks_are_independent_columns_and_real_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    table = pd.DataFrame({"x": x, "y": x, "z": rng.normal(size=2000)})
    options = {"n_rows": 1500, "categorical": (), "random_state": 0}
    found = measure_yardsticks(table, fidelity([0.9]), **options)
    # correlations of 0 instead of 1, 0 and 0: scores 1/2, 1 and 1
    assert found.independent == pytest.approx(2.5 / 3, abs=0.02)
    assert found.real == pytest.approx(1.0, abs=0.02)
    assert found.tied
    held_out = fidelity([0.9], [0.97], held_out=0.9)
    held_out.loc[held_out["aspect"] == "pairs", "source"] = "held-out real"
    assert measure_yardsticks(table, held_out, **options).real == 0.97
    assert not measure_yardsticks(table[["x", "z"]], fidelity([0.9]), **options).tied
    alone = measure_yardsticks(table[["x"]], fidelity([0.9]), **options)
    assert math.isnan(alone.independent)
    assert not alone.tied


def test_nothing_to_compare():
    found = judge_likeness(fidelity([math.nan]), detection(), ALONE, n_rows=5)
    assert found.level == "unknown"


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
    assert all(number in RULES["likeness"] for number in ("0.9", "0.75"))
    assert all(
        number in RULES["privacy"] for number in ("3 standard errors", "0.001", "0.55", "0.7")
    )
