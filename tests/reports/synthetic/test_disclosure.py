"""The finding on privacy: its levels at the thresholds, and its sentences."""

import pandas as pd
import pytest

from combutab.reports._findings import (
    HELD_OUT_ROWS,
    TRAINING,
    Copies,
    Disclosed,
    TwoSample,
    judge_privacy,
)

NONE = Copies(rows=0, of_single=0, expected=0.0, pvalue=1.0)
COPIED = Copies(rows=300, of_single=300, expected=0.2, pvalue=1e-9)


def privacy(share=0.5, area=0.5):
    values = {"share_closer_to_train": share, "dcr_median": 0.0, "membership_auc": area}
    return pd.DataFrame({"measure": list(values), "mean": list(values.values())})


def judged(table, copies=NONE, held_out=NONE, *, error=0.01, m=10_000, values=None, **options):
    tables = [Disclosed(TRAINING, copies, values or {})]
    if table is not None and not options.get("n_seen"):
        tables.append(Disclosed(HELD_OUT_ROWS, held_out))
    options = {"n_made": 2000, "n_compared": m, "share_error": error} | options
    return judge_privacy(table, tables, **options)


@pytest.mark.parametrize(
    ("share", "area", "level"),
    [
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
def test_signs_beyond_chance_on_either_side(share, area, level):
    found = judged(privacy(share, area))
    assert (found.subject, found.level) == ("privacy", level)
    assert "swapped" not in found.sentence
    found = judged(privacy(1 - share, 1 - area))
    assert found.level == level
    assert level == "good" or found.sentence.split(". ")[1] == (
        "Either the two real tables are swapped, or the generator was trained on the held-out rows"
    )
    assert (found.short == "Held-out rows or values are copied.") == (level == "poor")


def test_a_share_that_chance_explains_is_no_sign():
    # far from all real rows, a few of these are the nearest to most
    for share, area in ((0.87, 0.5), (0.13, 0.5)):
        assert judged(privacy(share, area), error=0.2).level == "good"
    assert judged(privacy(0.87, 0.6), error=0.2).level == "poor"


def test_distances_to_real_tables_that_differ_are_no_sign():
    differ = TwoSample(0.7, 0.02, 500)
    for share in (0.2, 0.8):
        found = judged(privacy(share, 0.5), real=differ)
        assert found.level == "unknown"
        assert "the two real tables differ" in found.sentence
        assert judged(privacy(share, 0.5), real=TwoSample(0.54, 0.02, 500)).level == "poor"
    assert judged(privacy(), real=differ).level == "good"
    assert judged(privacy(0.8), COPIED, real=differ).level == "poor"
    assert judged(privacy(0.8), real=differ, told=TwoSample(0.1, 0.02, 500)).level == "poor"


@pytest.mark.parametrize(("pvalue", "level"), [(0.5, "good"), (0.001, "good"), (9e-4, "poor")])
def test_copies_beyond_chance(pvalue, level):
    copies = Copies(rows=500, of_single=14, expected=10.0, pvalue=pvalue, near_pvalue=1.0)
    assert judged(privacy(), copies).level == level
    assert judged(privacy(), NONE, copies).level == level
    assert judged(None, copies).level == {"good": "unknown"}.get(level, level)


def test_copies_of_held_out_rows():
    found = judged(privacy(), NONE, COPIED)
    assert found.sentence.startswith(
        "Synthetic rows are copies of held-out rows. Either the two real tables are swapped, or "
        "the generator was trained on the held-out rows. 50.0 % of the synthetic rows are closer "
    )
    assert found.sentence.endswith(
        "300 of the 2,000 synthetic rows are exact duplicates of a held-out row that occurs once "
        "(about 0 by chance)."
    )
    found = judged(privacy(), COPIED, COPIED)
    assert found.sentence.startswith(
        "Synthetic rows are copies of real rows. The generator was probably trained on both real "
        "tables. "
    )
    assert found.short == "Real rows or values are copied."


def test_one_copy_is_a_weak_sign_where_real_rows_do_not_come_near_to_being_equal():
    one = Copies(rows=1, of_single=1, expected=0.0, pvalue=0.5)
    found = judged(privacy(), one)
    assert found.level == "fair"
    assert found.sentence.startswith("Weak signs of copied training rows. 50.0 % of")
    assert "1 of the 2,000 synthetic rows is an exact duplicate of a training row" in found.sentence
    assert judged(privacy(), NONE, one).sentence.startswith("Weak signs of copied held-out rows. E")
    # as where few categories make most rows equal but for one column
    assert judged(privacy(), Copies(1, 1, 0.0, 0.5, near_pvalue=0.6)).level == "good"
    assert judged(None, one).level == "unknown"


def test_copies_where_equal_real_rows_were_removed():
    # no held-out row equals a training row; as many of either are met
    met = Copies(rows=900, of_single=900, expected=0.0, pvalue=0.0, near_pvalue=0.9, evenly=True)
    found = judged(privacy(), met, met)
    assert found.level == "good"
    assert "900 of the 2,000 synthetic rows are exact duplicates" in found.sentence
    assert "(as many as of the other real table)" in found.sentence
    for sign in ({"evenly": False}, {"near_pvalue": 1e-4}):
        copies = Copies(**(vars(met) | sign))
        assert judged(privacy(), copies, copies).level == "poor"


def test_a_two_sample_test_far_below_one_half_is_a_sign_of_near_copies():
    for table in (privacy(), None):
        found = judged(table, told=TwoSample(0.06, 0.02, 300))
        assert found.level == "poor"
        assert "are too close to training rows. A classifier tells synthetic" in found.sentence
        assert "with a ROC AUC of 0.06, clearly below 0.5" in found.sentence
    for area, error, n in ((0.46, 0.001, 10_000), (0.44, 0.021, 300), (0.4, 0.02, 99)):
        assert judged(privacy(), told=TwoSample(area, error, n)).level == "good"


def test_values_of_single_rows_that_are_copied():
    values = {
        "mail": Copies(rows=240, of_single=240, expected=0.0, pvalue=0.0),
        "name": Copies(rows=90, of_single=30, expected=0.4, pvalue=0.0),
    }
    for table in (privacy(), None):
        found = judged(table, values=values)
        assert found.level == "poor"
        assert found.sentence.startswith("Values that occur in a single training row are copied.")
        assert found.sentence.endswith(
            "Values of 'mail' that occur in a single training row are copied in 240 synthetic rows "
            "(about 0 by chance), as are such values of 1 other column."
        )
    assert judged(privacy(), NONE).level == "good"


def test_privacy_in_words():
    copies = Copies(rows=512, of_single=12, expected=10.4, pvalue=0.4, near_pvalue=1.0)
    found = judged(privacy(0.519, 0.504), copies)
    assert found.sentence == (
        "No sign of copied real rows. 51.9 % of the synthetic rows are closer to a training row "
        "than to any held-out row (50 % by chance, give or take 3.0 points). A membership "
        "inference attack by distance to the closest record has a ROC AUC of 0.504 (0.5 by chance, "
        "give or take 0.012). 512 of the 2,000 synthetic rows are exact duplicates of a training "
        "row, 12 of them of one that occurs once (about 10 by chance)."
    )


@pytest.mark.parametrize(
    ("rows", "of_single", "says"),
    [
        (0, 0, "No synthetic row is an exact duplicate of a real row."),
        (1, 1, "1 of the 2,000 synthetic rows is an exact duplicate of a training row that occurs"),
        (3, 1, "3 of the 2,000 synthetic rows are exact duplicates of a training row, 1 of them"),
        (2000, 2000, "All 2,000 synthetic rows are exact duplicates of a training row that occurs"),
    ],
)
def test_copies_in_words(rows, of_single, says):
    copies = Copies(rows=rows, of_single=of_single, expected=0.1, pvalue=0.4)
    assert says in judged(privacy(), copies).sentence


def test_one_synthetic_row():
    for rows, says in (
        (0, "No synthetic row is an exact duplicate of a training row."),
        (1, "The one synthetic row is an exact duplicate of a training row."),
    ):
        copies = Copies(rows=rows, of_single=rows, expected=0.0, pvalue=0.4)
        assert says in judged(None, copies, n_made=1).sentence


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


@pytest.mark.parametrize(("n", "level"), [(3, "unknown"), (56, "unknown"), (57, "good")])
def test_few_synthetic_rows(n, level):
    # 3 * 0.5 / sqrt(n) is 0.2004 for 56 rows, 0.1987 for 57
    found = judged(privacy(), n_made=n)
    assert found.level == level
    if level == "unknown":
        start = f"Not known: {n} synthetic rows and 10,000 rows of each real table are too few to "
        assert found.sentence.startswith(start)
    assert judged(privacy(), COPIED, n_made=n).level == "poor"


def test_weak_signs_that_few_rows_hide_are_noted():
    assert len(judged(privacy(), m=600).notes) == 2  # 0.05002
    assert len(judged(privacy(), m=602).notes) == 1


def test_without_rows_that_the_generator_has_not_seen():
    found = judged(None)
    assert found.level == "unknown"
    assert "No synthetic row is an exact duplicate of a training row" in found.sentence
    seen = judged(privacy(), n_seen=700)
    assert seen.level == "unknown"
    assert "700 held-out rows are training rows" in seen.sentence
    # held-out rows that are copies lie as far below one half as the training rows above it
    assert judged(privacy(0.0, 0.0), n_seen=700).level == "unknown"


def test_identifiers_that_are_left_out_are_named():
    found = judged(privacy(), left_out=["id", 7])
    assert found.notes[-1] == "Distances and exact duplicates leave identifiers out: 'id', '7'."
