"""Private fits keep nothing but what was released, and charge for all of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from combutab import PrivateSynthesizer
from combutab.generators.private import _mechanisms
from combutab.preprocessing import given_categories
from tests.short import BUDGET
from tests.trust.privacy_games import Game, let_lie
from tests.trust.private_fits import BOUNDS, KINDS, fit, recorded, replayed, table, watched
from tests.trust.test_privacy import seeded

KNOWN = {"bounds": BOUNDS | {"paid": (0, 100)}, "categories": KINDS}
CASES = {"known": KNOWN, "learned": {}, "person": {**KNOWN, "max_rows_per_person": 3}}


def people(case, X):
    return np.arange(len(X)) // 7 if case == "person" else None


def same_file(case, folder):
    """Whether fits to two tables end in one file, where the mechanisms release the same."""
    first, other, told = table(300, 0), table(417, 1, ("boat", "flat", "tent", None)), []
    with recorded(told):
        one = fit(first, people(case, first), **CASES[case])
    with replayed(told):
        two = fit(other, people(case, other), **CASES[case])
    for name, model in (("one", one), ("two", two)):
        model.save(folder / name)
    return (folder / "one").read_bytes() == (folder / "two").read_bytes()


@pytest.mark.parametrize("case", CASES)
def test_a_fit_keeps_nothing_but_what_was_released(case, tmp_path):
    assert same_file(case, tmp_path)


def charged(case="learned"):
    """What OpenDP's draws cost by its own account, and what the ledger says, step by step."""
    calls, X = [], table(300, 0)
    with watched(calls):
        model = fit(X, people(case, X), **CASES[case])
    ledger = model.ledger_
    steps = zip(ledger["rho"], ledger["delta"], strict=True)
    told = [(rho, delta) if delta else rho for rho, delta in steps]
    assert ledger["epsilon"].iloc[-1] <= model.epsilon
    assert ledger["delta"].sum() < model.delta == model.delta_
    return [cost for _, cost in calls], told


@pytest.mark.parametrize("case", CASES)
def test_each_draw_is_charged_once_and_in_full(case):
    calls, told = charged(case)
    assert len(told) >= 9
    assert calls == told


def same_noise():
    """Whether two fits of one random state release the same."""
    X, first = table(300, 0), []
    for _ in range(2):
        told = []
        with recorded(told):
            fit(X, **KNOWN)
        (counts, *_) = next(found for _, found, step in told if step["step"] == "column")
        first.append(counts)
    return np.array_equal(*first)


def test_the_random_state_does_not_fix_the_noise():
    assert not same_noise()  # of the 257 counts of a column


def test_noise_is_whole_numbers():
    told, X = [], table(300, 0)
    with recorded(told):
        fit(X)
    counts = [found[0] for name, found, _ in told if name == "release_counts"]
    assert len(counts) >= 6
    assert all(own.dtype == np.int64 for own in counts)


# ---- the whole fit, attacked from outside ------------------------------------------------------

EPSILON = 0.5


def play_fit(world):
    """One person has far more rows than are to count, in a table of a single column."""
    X = pd.DataFrame({"member": np.arange(1_000 + 2_000 * world) % 2 == 0})
    person = np.minimum(np.arange(len(X)), 1_000)
    return fit(X, person, epsilon=EPSILON, max_rows_per_person=2).n_rows_ > 2_000


WHOLE = Game(play_fit, lambda delta: EPSILON, 1e-4, 60 * BUDGET)


def test_the_whole_fit_stays_within_the_promise():
    assert WHOLE.excess() <= 0


# ---- fits that are broken, each in one way -----------------------------------------------------


def read_bounds(column, *rest):
    x = pd.to_numeric(column)
    return float(x.min()), float(x.max())


def read_categories(column, *rest):
    return given_categories(column.dtype, "kind", sorted(column.dropna().unique()), True)


def keep_count(patch):
    whole = PrivateSynthesizer._fit

    def and_count(self, schema, columns, *rest):
        whole(self, schema, columns, *rest)
        self.n_rows_ = len(columns[0])

    patch.setattr(PrivateSynthesizer, "_fit", and_count)


def charge_no_columns(patch):
    charge = _mechanisms.Ledger.charge

    def but_for_columns(self, step, *rest, **options):
        if step != "column":
            charge(self, step, *rest, **options)

    patch.setattr(_mechanisms.Ledger, "charge", but_for_columns)


def of_all_rows(persons, max_rows):
    return np.arange(len(persons))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "mutate"),
    [
        (
            "learned",
            lambda patch: patch.setattr(
                "combutab.generators.private._synthesizer.learn_bounds", read_bounds
            ),
        ),
        (
            "learned",
            lambda patch: patch.setattr(
                "combutab.generators.private._synthesizer.learn_categories", read_categories
            ),
        ),
        ("known", keep_count),
    ],
    ids=["bounds of the rows", "categories of the rows", "exact number of rows"],
)
def test_what_is_kept_of_rows_is_found(case, mutate, monkeypatch, tmp_path):
    mutate(monkeypatch)
    assert not same_file(case, tmp_path)


def test_a_draw_that_is_not_charged_is_found(monkeypatch):
    charge_no_columns(monkeypatch)
    calls, told = charged()
    assert len(calls) > len(told)


def test_noise_of_a_random_state_is_found(monkeypatch):
    let_lie(monkeypatch, "make_gaussian", seeded)
    assert same_noise()


@pytest.mark.slow
def test_rows_that_are_bounded_too_late_are_found(monkeypatch):
    monkeypatch.setattr("combutab.generators.private._synthesizer.bound_rows", of_all_rows)
    assert WHOLE.excess() > 0
