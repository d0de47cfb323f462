"""The three findings: their levels at the thresholds, and their sentences."""

import math
import re

import numpy as np
import pandas as pd
import pytest

from combutab.core.metrics import choose_metric
from combutab.reports._copies import Copies, Repeated
from combutab.reports._findings import (
    HELD_OUT_ROWS,
    TRAINING,
    Disclosed,
    NearCopies,
    TwoSample,
    judge_fidelity,
    judge_privacy,
    judge_utility,
)
from combutab.reports._yardsticks import Yardsticks

# ---- The finding on usefulness: its levels at the thresholds, and its sentences -----------------


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


def usefulness(table, *, guess=0.5, n_test=4000, n_rare=None, seen=False, **options):
    metric = options.pop("metric", "r2" if (table["metric"] == "r2").any() else "roc_auc")
    n_rare = n_test if n_rare is None else n_rare
    options |= {"metric": choose_metric(metric), "guess": guess, "n_test": n_test}
    options |= {"n_rare": n_rare, "seen": seen}
    return judge_utility(table, target="income", **options)


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
    # over guessing, learners of the real rows have 0.9 - 0.5 = 0.4
    found = usefulness(efficacy(roc_auc=(0.9, made), accuracy=(0.95, 0.5)))
    assert (found.subject, found.level) == ("utility", level)
    assert re.search(
        rf"keeps {share}(?: \(± [12] percentage points?\))? of the improvement over guessing for",
        found.sentence,
    )
    number = f"{made:.3f} after training on the synthetic rows, 0.900 after training on the real"
    start = f"ROC AUC of a linear model on 4,000 held-out real rows: {number}"
    assert found.sentence.startswith(start)
    assert found.figure.startswith(f"difference of ROC AUC {made - 0.9:+.3f} (95 % interval ")
    lost = {"nothing": "no better than guessing"}.get(
        share, "much worse than models trained on real rows"
    )
    assert level != "poor" or found.short == f"Models trained on the synthetic rows predict {lost}."


def test_best_learner_on_real_rows_decides():
    scores = {"mlp": (0.7, 0.7), "random_forest": (0.9, 0.6), "linear": (math.nan, 0.9)}
    found = usefulness(efficacy(r2=scores), guess=0.0)
    assert found.level == "poor"
    assert (
        "R2 of a random forest on 4,000 held-out real rows: 0.600 after training" in found.sentence
    )


@pytest.mark.parametrize(
    ("metric", "guess", "real", "made", "level"),
    [
        ("log_loss", 0.69, 0.3, 0.31, "good"),
        ("log_loss", 0.69, 0.3, 0.4, "fair"),
        ("log_loss", 0.69, 0.3, 2.0, "poor"),
        ("mae", 0.8, 0.2, 0.25, "good"),
        ("mae", 0.8, 0.2, 0.8, "poor"),
        ("accuracy", 0.5, 0.9, 0.89, "good"),
    ],
)
def test_another_metric_may_decide(metric, guess, real, made, level):
    scores = {"mlp": (real, made), "linear": (guess, real)}  # the best one by this metric decides
    table = efficacy(**{metric: scores}, roc_auc=(0.9, 0.5))
    found = usefulness(table, metric=metric, guess=guess)
    assert found.level == level
    assert (
        f"a neural network on 4,000 held-out real rows: {made:.3f} after training on the"
        in found.sentence
    )


def test_a_rare_class_is_judged_by_the_area():
    # naming the frequent class is right for 99 %; the area shows what is learned all the same
    table = efficacy(accuracy=(0.99, 0.99), roc_auc=(0.9, 0.7))
    found = usefulness(table, n_test=10_000, n_rare=100)
    assert found.level == "poor"
    assert "keeps 50 %" in found.sentence  # (0.7 - 0.5) / (0.9 - 0.5)
    # of the same scores with 2 rows of the rare class nothing is known
    assert usefulness(table, n_test=200, n_rare=2).level == "unknown"


def test_a_skill_within_its_error_is_none():
    # 0.6 of 100 rows: the standard error is 0.049, guessing is 0.1 below
    table = efficacy(roc_auc=(0.59, 0.59))
    found = usefulness(table, n_test=100)
    assert found.level == "unknown"
    assert (
        "not certain that even a model trained on the real rows predicts 'income' better than"
        in found.sentence
    )
    assert usefulness(table, n_test=200).level == "good"


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
def test_uncertain_share_of_skill_is_unknown(made, gap_se, level):
    # of these the first was "poor", with "± about 89 percentage points" below it
    found = usefulness(efficacy(gap_se=gap_se, r2=(0.5, made)), guess=0.0, n_test=10**6)
    assert found.level == level
    assert ("Not known, with so few rows:" in found.sentence) == (level == "unknown")


def test_perfect_scores_of_few_rows_are_uncertain():
    # all of 20 rows right, in every resample: not certain all the same
    found = usefulness(efficacy(roc_auc=(1.0, 1.0)), n_test=20)
    assert found.level == "good"
    assert "(± " in found.sentence


def test_skill_by_chance_is_within_what_is_told():
    """A learner of noise has 0.1 of 0.4 by chance; of other draws it has less, or none."""
    table = efficacy(gap_se=0.01, roc_auc=(0.9, 0.6))
    alone = usefulness(table)
    told = "keeps 25 % (±"
    error = math.sqrt(0.9 * 0.1 / 4000)  # of the score of the real rows
    assert (
        f"{told} {200 * math.hypot(0.01, 0.75 * error) / 0.4:.0f} percentage points)"
        in alone.sentence
    )
    again = pd.concat(
        [
            efficacy(roc_auc=(0.9, made)).replace("synthetic", f"anew {k}")
            for k, made in enumerate((0.44, 0.5, 0.55, 0.66))
        ]
    )
    found = usefulness(table, again=again)
    by_chance = math.sqrt((0.1**2 + 0.1**2 + 0.05**2 + 0.06**2) / 4)
    off = 200 * math.hypot(0.01, by_chance, 0.75 * error) / 0.4
    assert f"{told} {off:.0f} percentage points) of the improvement over guessing" in found.sentence
    assert found.level == "poor"


@pytest.mark.parametrize(
    ("scores", "options", "level", "says"),
    [
        ({"r2": (0.84, -3.456)}, {}, "poor", "-3.456 after training on the synthetic rows"),
        ({"r2": (0.99, 0.99)}, {"n_test": 1}, "unknown", "1 held-out real row with a value of"),
        ({"r2": (0.99, 0.99)}, {"n_test": 9}, "unknown", "9 held-out real rows with a value of"),
        ({"r2": (math.nan,) * 2}, {}, "unknown", "all 4,000 held-out real rows have the same"),
        (
            {"r2": (0.8, math.nan)},
            {},
            "unknown",
            "a linear model trained on the synthetic rows has no",
        ),
        ({"r2": (0.019, 0.019)}, {}, "unknown", "even a model trained on the real rows predicts"),
        ({"r2": (-0.4, 0.3)}, {}, "unknown", "even a model trained on the real rows predicts"),
        (
            {"roc_auc": (0.51, 0.5)},
            {"guess": 0.5},
            "unknown",
            "on the real rows predicts 'income' hardly",
        ),
    ],
)
def test_where_nothing_is_learned_or_known(scores, options, level, says):
    found = usefulness(efficacy(**scores), **{"guess": 0.0} | options)
    assert found.level == level
    assert says in found.sentence


# ---- The finding on likeness: its levels at the thresholds, and its sentences -------------------


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


PAIR = ("c0", "c1")


def yardsticks(chance=0.0, *, ties=None, ties_off=(0.0, 0.0), strongest=0.0):
    return Yardsticks({"c0": chance, "c1": chance}, ties or {}, ties_off, strongest)


TIED = yardsticks(ties={PAIR: (0.2, 0.05)})


def likeness(table, told=None, sticks=None, *, n=10_000, n_test=0):
    told = detection() if told is None else told
    sticks = yardsticks() if sticks is None else sticks
    return judge_fidelity(table, told, sticks, n_train=n, n_made=n, n_test=n_test)


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
def test_fidelity_is_decided_by_rows_not_columns(shapes, pairs, area, level):
    found = likeness(fidelity(shapes, [pairs]), detection(area), TIED)
    assert (found.subject, found.level) == ("fidelity", level)


@pytest.mark.parametrize(
    ("strongest", "level", "says"),
    [
        (0.09, "good", "No two real columns have an association above 0.1."),
        (0.3, "good", "are too weak to measure with so few rows"),
        (0.62, "unknown", "Whether the association between columns is preserved is not known"),
    ],
)
def test_weak_associations_are_not_called_absent(strongest, level, says):
    found = likeness(fidelity([1.0, 1.0], [0.9]), None, yardsticks(strongest=strongest))
    assert found.level == level
    assert says in found.sentence


def test_uncertain_associations_are_unknown():
    table = fidelity([1.0, 1.0], [0.89])  # 60 %
    sure = yardsticks(ties={PAIR: (0.2, 0.05)}, ties_off=(0.1, 0.1))
    unsure = yardsticks(ties={PAIR: (0.2, 0.05)}, ties_off=(0.2, 0.4))
    found = likeness(table, None, sure)
    assert found.level == "poor"
    assert "60 % (± 10 percentage points) of the association between" in found.sentence
    found = likeness(table, None, unsure, n=200)
    assert found.level == "unknown"
    assert found.sentence.startswith("Not known, with 200 rows: gradient boosting")
    assert (
        "of the association between columns is preserved, which is not conclusive."
        in found.sentence
    )
    # another part that is poor beyond doubt decides
    assert likeness(table, detection(0.99), unsure).level == "poor"


@pytest.mark.parametrize(
    ("area", "se", "level"),
    [(0.72, 0.03, "fair"), (0.72, 0.05, "unknown"), (0.6, 0.05, "good"), (0.9, 0.04, "poor")],
)
def test_uncertain_area_is_unknown(area, se, level):
    found = likeness(fidelity([1.0]), detection(area, se=se))
    assert found.level == level
    assert f"a ROC AUC of {area:.2f} ± {2 * se:.2f} (" in found.sentence
    assert ("which is not conclusive" in found.sentence) == (level == "unknown")


def test_likeness_in_words():
    table = fidelity([0.81, 0.97], [0.935], held_out=0.98)
    sticks = yardsticks(0.02, ties={PAIR: (0.2, 0.05)})
    found = likeness(table, detection(0.714, 0.506), sticks, n_test=10_000)
    assert found.level == "fair"
    assert found.sentence == (
        "Gradient boosting distinguishes synthetic rows from held-out real rows with a ROC AUC of "
        "0.71 ± 0.01 (0.5 is chance; training rows from held-out rows: 0.51). 90 % of the "
        "association between columns is preserved. The distributions of the columns match the "
        "real ones to 89 % on average (by chance, with as many real rows: 98 %; held-out real "
        "rows: 98 %), and 'c0' matches least, to 81 %."
    )
    assert found.notes == ()


def test_missing_values_are_a_part_of_a_column():
    found = likeness(fidelity([1.0, 1.0], missing=[1.0, 0.2]))
    assert "match the real ones to 60 % on average" in found.sentence
    assert "'c1' matches least, to 20 %" in found.sentence


def test_an_area_far_below_one_half_is_explained():
    found = likeness(fidelity([1.0]), detection(0.06, se=0.02), n=300, n_test=300)
    assert found.level == "good"
    assert found.short == "Synthetic rows look like real rows."
    (note,) = found.notes
    assert "below 0.5" in note
    assert likeness(fidelity([1.0]), detection(0.47), n_test=300).notes == ()


@pytest.mark.parametrize(
    ("area", "real", "se", "level"),
    [
        (0.85, 0.85, 0.005, "good"),  # as the training rows
        (0.87, 0.82, 0.005, "good"),  # 1 - 0.13 / 0.36 = 0.64
        (0.89, 0.82, 0.005, "fair"),  # 1 - 0.11 / 0.36 = 0.69
        (0.93, 0.82, 0.005, "poor"),  # 1 - 0.07 / 0.36 = 0.81
        (0.89, 0.82, 0.03, "unknown"),
        (0.7, 0.54, 0.005, "fair"),  # as if the training rows were not distinguished
    ],
)
def test_real_tables_that_differ_lower_what_is_required(area, real, se, level):
    found = likeness(fidelity([1.0]), detection(area, real, se=se), n_test=10_000)
    assert found.level == level
    assert any("real tables differ" in note for note in found.notes) == (real > 0.55)


def test_few_held_out_rows_are_not_conclusive():
    assert likeness(fidelity([1.0]), detection(0.5), n_test=99).level == "unknown"
    assert likeness(fidelity([1.0]), detection(0.5), n_test=100).level == "good"
    (note,) = likeness(fidelity([1.0]), detection(0.5)).notes
    assert "compared with the training rows" in note


@pytest.mark.parametrize(
    ("told", "n", "level", "says"),
    [
        (detection(0.5), 99, "unknown", ""),
        (detection(0.5), 100, "good", ""),
        (detection(0.95, se=0.03), 50, "poor", ""),
        (detection(1.0, se=0.1), 5, "unknown", "with 5 rows"),  # as rows may be
        (NOWHERE, 10_000, "unknown", "too few rows to train a classifier"),
        # boosting decides, whatever a linear model tells
        (detection(0.96, linear=0.5), 10_000, "poor", "boosting distinguishes synthetic rows"),
        (detection(0.6, linear=0.97), 10_000, "good", "with a ROC AUC of 0.60"),
        (detection(0.9951), 10_000, "poor", "AUC of more than 0.99 ±"),
    ],
)
def test_what_the_two_sample_test_says(told, n, level, says):
    found = likeness(fidelity([1.0]), told, n=n)
    assert found.level == level
    assert says in found.sentence
    assert likeness(fidelity([math.nan]), told, n=n).level == "unknown"


# ---- The finding on privacy: its levels at the thresholds, and its sentences --------------------


def repeated(rows, expected=0.0, pvalue=1.0, left_out=(), **controls):
    return Repeated(left_out, rows, expected, pvalue, **controls)


def copies_of(rows, exact, *, is_unlike=False):
    """Copies whose signs are those of one comparison in all columns."""
    return Copies(rows, exact, (exact,) if exact.beyond_chance else (), is_unlike)


NONE = copies_of(0, repeated(0))
COPIED = copies_of(300, repeated(300, 0.2, 1e-9))


def privacy(share=0.5, share_se=0.01):
    rows = [("share_closer_to_train", share, share_se), ("dcr_median", 0.0, np.nan)]
    return pd.DataFrame(rows, columns=["measure", "mean", "se"])


def membership(area=0.5, n=10_000, tpr=0.1, pvalue=0.5, rows="all", reference=0.1):
    """Of membership inference, by distance and by the strongest attack."""
    values = [("distance", "auc", area, 0.5, 0.5, "")]
    values += [("worst", "tpr@10%", tpr, reference, pvalue, "density_ratio; 10,000 rows")]
    columns = ["attack", "measure", "value", "reference", "pvalue", "note"]
    table = pd.DataFrame(values, columns=columns).assign(rows=rows, n_members=n, n_non_members=n)
    table.loc[0, "rows"] = "all"
    return table.assign(low=table["value"] - 0.01, high=table["value"] + 0.02)


def judged(table, copies=NONE, held_out=NONE, *, area=0.5, m=10_000, near=None, **options):
    values = {name: options.pop(name, ()) for name in ("values", "identifying")}
    tables = [Disclosed(TRAINING, copies, values["values"] or {}, near, values["identifying"])]
    if table is not None and not options.get("n_seen"):
        tables.append(Disclosed(HELD_OUT_ROWS, held_out))
    attacks = {} if table is None else {"membership inference": membership(area, m)}
    options = {"n_made": 2000, "n_compared": m, "attacks": attacks} | options
    return judge_privacy(table, tables, **options)


def test_duplicates_are_told_beside_chance():
    table = privacy()
    known = judged(table, copies_of(64, repeated(64, 2.0, 1e-9)))
    assert "(about 2 expected by chance)" in known.sentence
    bounded = judged(table, copies_of(64, repeated(64, 700.0, 1e-9, is_upper_bound=True)))
    assert "(no two real rows are equal)" in bounded.sentence


@pytest.mark.parametrize(
    ("share", "area", "level"),
    [
        (0.529, 0.5, "good"),  # three standard errors are 0.03
        (0.531, 0.5, "fair"),
        (0.549, 0.5, "fair"),
        (0.551, 0.5, "poor"),
        (0.5, 0.512, "good"),  # three standard errors are 0.01224
        (0.5, 0.5123, "fair"),
        (0.5, 0.55, "poor"),
        (1.0, 1.0, "poor"),
    ],
)
def test_signs_beyond_chance_on_either_side(share, area, level):
    found = judged(privacy(share), area=area)
    assert (found.subject, found.level) == ("privacy", level)
    assert "swapped" not in found.sentence
    found = judged(privacy(1 - share), area=1 - area)
    assert found.level == level
    assert level == "good" or found.sentence.split(". ")[1] == (
        "Either the two real tables are swapped, or the generator was trained on the held-out rows"
    )
    assert (found.short == "Held-out rows or values are copied.") == (level == "poor")


def test_a_share_that_chance_explains_is_no_sign():
    # far from all real rows, a few of these are the nearest to most
    for share, area in ((0.87, 0.5), (0.13, 0.5)):
        assert judged(privacy(share, 0.2), area=area).level == "good"
    assert judged(privacy(0.87, 0.2), area=0.6).level == "poor"


def test_distances_of_differing_real_tables_are_unknown():
    differ = TwoSample(0.7, 0.02, 500)
    for share in (0.2, 0.8):
        found = judged(privacy(share), real=differ)
        assert found.level == "unknown"
        assert "the two real tables also differ" in found.sentence
        assert judged(privacy(share), real=TwoSample(0.54, 0.02, 500)).level == "poor"
    assert judged(privacy(), real=differ).level == "good"
    assert judged(privacy(0.8), COPIED, real=differ).level == "poor"


@pytest.mark.parametrize(
    ("controls", "level"),
    [
        ({"pvalue": 0.5}, "good"),
        ({"pvalue": 5e-3}, "good"),
        ({"pvalue": 4e-3}, "poor"),
        ({"pvalue": 4e-3, "is_even": True}, "good"),  # the other real table's are as frequent
        ({"pvalue": 4e-3, "shuffled_pvalue": 0.01}, "good"),  # so are those of shuffled columns
        ({"pvalue": 4e-3, "alpha": 1e-3}, "good"),
        ({"side_pvalue": 4e-3}, "poor"),
        ({"is_alone": True}, "poor"),
        ({"is_alone": True, "is_even": True}, "good"),
    ],
)
def test_copies_count_if_no_control_explains_them(controls, level):
    copies = copies_of(500, repeated(14, 10.0, **controls))
    assert judged(privacy(), copies).level == level
    assert judged(privacy(), NONE, copies).level == level
    assert judged(None, copies).level == {"good": "unknown"}.get(level, level)


def test_single_copy_of_unlike_rows_is_fair():
    one = copies_of(1, repeated(1, 0.0, 0.5), is_unlike=True)
    found = judged(privacy(), one)
    assert found.level == "fair"
    assert found.sentence.startswith("Weak signs of copied training rows. 50.0 % of")
    assert "1 of the 2,000 synthetic rows is an exact duplicate of a training row" in found.sentence
    assert judged(privacy(), NONE, one).sentence.startswith("Weak signs of copied held-out rows. E")
    assert judged(privacy(), copies_of(1, repeated(1, 0.0, 0.5))).level == "good"
    assert judged(None, one).level == "unknown"


def test_duplicates_are_compared_with_chance():
    even = copies_of(900, repeated(900, 0.0, 0.0, is_even=True))
    found = judged(privacy(), even, even)
    assert found.level == "good"
    assert "900 of the 2,000 synthetic rows are exact duplicates" in found.sentence
    assert "(no more than of the other real table)" in found.sentence
    few = copies_of(4, repeated(4, 3.2, 0.4, is_even=True))
    assert "(about 3 expected by chance)" in judged(privacy(), COPIED, few).sentence


def test_partial_copies_name_the_columns():
    sign = repeated(700, 20.4, 1e-9, ("income", "label"))
    found = judged(privacy(), Copies(0, repeated(0), (sign,)))
    assert found.level == "poor"
    assert found.sentence.startswith(
        "Synthetic rows are copies of training rows in nearly all columns. 700 of the 2,000 "
        "synthetic rows equal a single training row in all columns except 'income' and 'label' "
        "(about 20 expected by chance)."
    )


@pytest.mark.parametrize(
    ("near", "level"),
    [
        (NearCopies(100, 0.05, 0.01, 1e-6), "poor"),
        (NearCopies(100, 0.05, 0.03, 1e-6), "good"),  # less than twice as many
        (NearCopies(100, 0.05, 0.01, 0.006), "good"),
        (NearCopies(16, 0.008, 0.001, 1e-6), "fair"),
        (NearCopies(4, 0.04, 0.0, 0.06), "poor"),
        (NearCopies(3, 0.03, 0.0, 0.06), "good"),
    ],
)
def test_near_copies_beyond_chance(near, level):
    assert judged(privacy(), near=near).level == level


def test_values_of_single_rows_that_are_copied():
    values = {"mail": repeated(240, 0.0, 0.0), "name": repeated(30, 0.4, 0.0)}
    for table in (privacy(), None):
        found = judged(table, values=values, identifying=["mail"])
        assert found.level == "poor"
        assert found.sentence.startswith("Values that occur in a single training row are copied.")
        assert found.sentence.endswith(
            "Values of 'mail' that occur in a single training row are copied in 240 synthetic rows "
            "(about 0 expected by chance), as are such values of 1 other column."
        )
        assert judged(table, values=values).level == "fair"  # numbers
    assert judged(privacy(), NONE).level == "good"


def test_privacy_in_words():
    copies = copies_of(512, repeated(12, 10.4, 0.4))
    found = judged(privacy(0.519), copies, area=0.504)
    assert found.sentence == (
        "51.9 % of the synthetic rows are closer to a training row "
        "than to any held-out row (by chance: 50 % ± 3.0 percentage points). The strongest "
        "of four membership inference attacks (density ratio) recognises 10.0 % of the training "
        "rows with 10 % false positives (95 % interval 9.0 % to 12.0 %; strongest by chance: 10.0 "
        "%). 512 of the 2,000 synthetic rows are exact duplicates of a training row, 12 of "
        "them of a row that occurs only once (about 10 expected by chance)."
    )


@pytest.mark.parametrize(("m", "level"), [(37, "unknown"), (38, "good"), (5, "unknown")])
def test_few_rows_to_compare_with(m, level):
    # 3 sqrt((2m + 1) / (12 m^2)) is 0.2027 for 37 rows, 0.2000 for 38
    assert judged(privacy(0.5, 0.05), m=m).level == level
    assert judged(privacy(1.0, 0.05), area=1.0, m=m).level == "poor"


@pytest.mark.parametrize(("n", "level"), [(3, "unknown"), (56, "unknown"), (57, "good")])
def test_few_synthetic_rows(n, level):
    # 3 * 0.5 / sqrt(n) is 0.2004 for 56 rows, 0.1987 for 57
    found = judged(privacy(), n_made=n)
    assert found.level == level
    if level == "unknown":
        start = f"Not known: {n} synthetic rows and 10,000 rows of each real table are too few to "
        assert found.sentence.startswith(start)
    assert judged(privacy(), COPIED, n_made=n).level == "poor"


def test_without_rows_that_the_generator_has_not_seen():
    found = judged(None)
    assert found.level == "unknown"
    assert "No synthetic row is an exact duplicate of a training row" in found.sentence
    seen = judged(privacy(), n_seen=700)
    assert seen.level == "unknown"
    assert "700 held-out rows are also training rows" in seen.sentence
    # held-out rows that are copies lie as far below one half as the training rows above it
    assert judged(privacy(0.0), area=0.0, n_seen=700).level == "unknown"


# ---- Attacks -----------------------------------------------------------------------------------


def attributes(success=0.3, held_out=0.29, pvalue=0.4):
    rows = [("ward; x", 0.1, 0.1, 0.5), ("age", success, held_out, pvalue / 2)]
    rows += [(None, success, held_out, pvalue)]
    table = pd.DataFrame(rows, columns=["column", "success", "holdout_success", "pvalue"])
    table["advantage"] = table["success"] - table["holdout_success"]
    return table.assign(low=table["advantage"] - 0.02, high=table["advantage"] + 0.02, note="age")


def singling(success=0.2, held_out=0.19, pvalue=0.4):
    rows = [("univariate", 0.1, 0.1, 0.5), ("multivariate", success, held_out, pvalue)]
    return pd.DataFrame(rows, columns=["predicates", "success", "holdout_success", "pvalue"])


def attacked(**options):
    attacks = {
        "membership inference": membership(),
        "attribute inference": attributes(),
        "singling out": singling(),
    }
    names = [name for name in options if name.replace("_", " ") in attacks]
    attacks |= {name.replace("_", " "): options.pop(name) for name in names}
    return judged(privacy(), attacks=attacks, **options)


@pytest.mark.parametrize(
    ("attack", "level"),
    [
        ({"membership_inference": membership(tpr=0.16, pvalue=0.001)}, "poor"),
        ({"membership_inference": membership(tpr=0.14, pvalue=0.001)}, "fair"),
        ({"membership_inference": membership(tpr=0.16, pvalue=0.006)}, "good"),
        ({"membership_inference": membership(tpr=0.3, pvalue=0.001, rows="isolated")}, "poor"),
        ({"attribute_inference": attributes(0.36, 0.3, 0.004)}, "poor"),
        ({"attribute_inference": attributes(0.34, 0.3, 0.004)}, "fair"),
        ({"attribute_inference": attributes(0.36, 0.3, 0.006)}, "good"),
        ({"singling_out": singling(0.26, 0.2, 0.002)}, "poor"),
        ({"singling_out": singling(0.24, 0.2, 0.002)}, "fair"),
        ({"singling_out": singling(0.26, 0.2, 0.003)}, "good"),  # two kinds of predicates
    ],
)
def test_attack_beyond_chance_lowers_the_level(attack, level):
    found = attacked(**attack)
    (name,) = attack
    assert found.level == level
    if level == "good":
        return
    # tables that differ are distinguished without any disclosure
    assert attacked(real=TwoSample(0.7, 0.02, 500), **attack).level == "unknown"
    assert found.headline.startswith("An attack")
    assert f": {name.replace('_', ' ')}. " in found.sentence
    assert "copied" not in found.short


def test_good_verdict_names_the_tests():
    found = attacked()
    assert found.level == "good"
    assert found.short == (
        "No sign of disclosed rows by copies, distances, "
        "membership inference, attribute inference, singling out."
    )
    assert "Guesses of 'age' from the other columns are right for 30.0 % of the" in found.sentence
    assert "20.0 % of the multivariate predicates from synthetic rows" in found.sentence
    assert "does not prove privacy" in found.notes[0]


def test_attacks_that_were_not_tried_are_not_named():
    found = judged(privacy(), attacks={"membership inference": membership()})
    assert found.short == "No sign of disclosed rows by copies, distances, membership inference."
    unknown = judged(None)
    assert unknown.level == "unknown"
    assert "single them out can be judged only with held-out" in unknown.sentence
