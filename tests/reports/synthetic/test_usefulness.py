"""The finding on usefulness: its levels at the thresholds, and its sentences."""

import math

import pandas as pd
import pytest

from combutab.reports._findings import judge_usefulness


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
    assert f"keep {share} of what the real rows teach about 'income'" in found.sentence
    lost = {"nothing": "do no better than guessing"}.get(share, "do much worse than on real rows")
    assert level != "poor" or found.short == f"Models trained on it {lost}."


def test_a_classification_in_words():
    found = usefulness(efficacy(accuracy=(0.8504, 0.8307), roc_auc=(0.9, 0.9)), guess=0.752)
    assert found.sentence == (
        "The synthetic rows keep 79 % of what the real rows teach about 'income', give or take 2 "
        "points: after learning from them, a linear model names the right class for 83.1 % of "
        "4,000 held-out real rows; after learning from the real rows, for 85.0 %; always naming "
        "the most frequent class is right for 75.2 %."
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
    assert "has a ROC AUC of 0.700 on 10,000 held-out real rows" in found.sentence
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


def test_skill_by_chance_is_within_what_is_told():
    """A learner of noise has 0.1 of 0.4 by chance; of other draws it has less, or none."""
    table = efficacy(gap_se=0.01, accuracy=(0.9, 0.6), roc_auc=(0.95, 0.7))
    alone = usefulness(table)
    assert "keep 25 % of what the real rows teach about 'income', give or take 7" in alone.sentence
    again = pd.concat(
        [
            efficacy(accuracy=(0.9, made), roc_auc=(0.95, 0.5)).replace("synthetic", f"anew {k}")
            for k, made in enumerate((0.44, 0.5, 0.55, 0.66))
        ]
    )
    found = judge_usefulness(
        table, target="income", guess=0.5, n_test=4000, seen=False, again=again
    )
    by_chance = math.sqrt((0.1**2 + 0.1**2 + 0.05**2 + 0.06**2) / 4)
    error = math.sqrt(0.9 * 0.1 / 4000)  # of the share of the real rows' skill
    off = 200 * (math.hypot(0.01, by_chance) + 0.75 * error) / 0.4
    assert (
        f"keep 25 % of what the real rows teach about 'income', give or take {off:.0f} points"
        in (found.sentence)
    )
    assert found.level == "poor"


def test_a_synthetic_score_that_is_not_known_is_no_crash():
    found = usefulness(efficacy(r2=(0.8, math.nan)), guess=0.0)
    assert found.level == "unknown"
    assert found.sentence.startswith("Not known: ")
