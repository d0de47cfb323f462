"""The privacy verdict on simulated tables of known kinds."""

import pytest

from benchmarks.quality.verdicts import COPIES, SAFE, UNSAFE, make_tables, measure

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_report")]


def levels(kind, size, n_tables):
    return [measure(kind, size, seed)[0]["level"] for seed in range(n_tables)]


@pytest.mark.parametrize("kind", UNSAFE)
def test_copies_raise_an_alarm(kind):
    assert set(levels(kind, 300, 2)) == {"poor"}


@pytest.mark.parametrize("size", [100, 1000])
def test_few_copies_raise_an_alarm(size):
    assert levels(COPIES, size, 4) == ["poor"] * 4


@pytest.mark.parametrize("kind", SAFE)
def test_safe_tables_raise_no_alarm(kind):
    # at 5 % false alarms, three of six tables or more are unlikely (p = 0.002)
    found = levels(kind, 300, 6)
    assert found.count("poor") + found.count("fair") < 3


def test_kinds_are_what_they_say():
    train, test, copies = make_tables(COPIES, 100, 0)
    assert (len(train), len(test), len(copies)) == (100, 25, 100)
    assert len(copies.merge(train.drop_duplicates())) >= 5
    _, _, shuffled = make_tables("independent columns", 1000, 1)
    assert shuffled.corr(numeric_only=True).abs().to_numpy()[0, 1] < 0.2
