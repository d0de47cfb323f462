"""The finding on privacy: its levels at the thresholds, and its sentences."""

import pandas as pd
import pytest

from combutab.reports.synthetic._copies import Copies
from combutab.reports.synthetic._disclosure import judge_privacy

NONE = Copies(rows=0, of_single=0, expected=0.0, pvalue=1.0)


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
