"""The promise of differential privacy, attacked: epsilon is bounded from below by what is seen.

Each game is won by a broken mechanism and not by ours: mutations break them one by one. With
`ALPHA` and the numbers of plays, all tests together fail by chance with a probability below 1e-6;
a trust budget multiplies the plays.
"""

from __future__ import annotations

import numpy as np
import pytest

from combutab.generators.private import _mechanisms
from tests.short import BUDGET
from tests.trust.privacy_games import (
    ALPHA,
    Game,
    choice_epsilon,
    epsilon_shown,
    gaussian_epsilon,
    let_lie,
)

RHO = 1.125  # scale: max_rows / 1.5
MAX_ROWS = 8  # of a person: the noise is fine beside it, so that whole numbers hide nothing
WORDS = {"step": "a step", "columns": ["a"]}
LEDGER = _mechanisms.Ledger(100.0, 0.1, 0.05)


def ample():
    """A ledger that has paid for nothing yet."""
    LEDGER.steps.clear()
    return LEDGER


def ledger_gaussian(delta):
    (step,) = LEDGER.steps
    return gaussian_epsilon(step["sensitivity"] / step["scale"], delta)


# ---- each mechanism on worst-case neighbours ---------------------------------------------------


def play_counts(world):
    """All rows of one more person are in one cell of a table that is empty otherwise."""
    counts = np.array([world * MAX_ROWS, 0, 0])
    noisy, scale = _mechanisms.release_counts(counts, RHO, ample(), max_rows=MAX_ROWS, **WORDS)
    return noisy[0] > scale


def play_again(world):
    """The attacker knows what noise the counts of another table had."""
    known, _ = _mechanisms.release_counts([0], RHO, ample(), max_rows=MAX_ROWS, **WORDS)
    counts = [MAX_ROWS * world]
    noisy, _ = _mechanisms.release_counts(counts, RHO, ample(), max_rows=MAX_ROWS, **WORDS)
    return noisy[0] - known[0] == MAX_ROWS


def play_person(world, has=100):
    """A person has many more rows than are to count."""
    persons = np.r_[np.arange(20), np.full(world * has, 20)]
    kept = _mechanisms.bound_rows(persons, MAX_ROWS)
    codes = np.where(persons[kept] == 20, 1, 0)[:, None]
    rows = _mechanisms.PrivateRows(codes, [2], ["a"], MAX_ROWS, ample())
    noisy, scale = rows.measure([0], RHO, "a step")
    return noisy[1] > 3 * scale


def play_choice(world):
    """One more person raises one weighted score and lowers the other."""
    gap = 2.1 * MAX_ROWS / 1.5  # log odds of the first: -2.1, or -4.2 where noise is halved
    chosen = _mechanisms.release_choice(
        [np.array([100 + MAX_ROWS * world])] * 2,
        [np.array([100.0]), np.array([100.0 + gap])],
        RHO,
        ample(),
        max_rows=MAX_ROWS,
        weights=[2, 2],
        **WORDS,
    )
    return chosen == 0


def ledger_choice(delta):
    (step,) = LEDGER.steps
    return choice_epsilon(2 * step["sensitivity"] / step["scale"], delta)


def play_category(world):
    """Nobody else has a person's categories."""
    counts = {"often": 50, **{f"rare {i}": 1 for i in range(3 * world)}}
    budget = {"rho": 0.02, "delta": 0.01, "max_rows": 3}
    found = _mechanisms.release_categories(counts, ledger=ample(), **budget, **WORDS)
    return any(name != "often" for name in found)


def ledger_category(delta):
    """What one table lacks may be named with the threshold's delta alone, at any epsilon."""
    (step,) = LEDGER.steps
    assert step["delta"] <= delta
    return 0.0


def test_bounds_and_promises_are_those_worked_out_elsewhere():
    low = ALPHA ** (1 / 1000)  # of a probability, after 1000 of 1000
    assert epsilon_shown([0, 1000], 1000, 0.0) == pytest.approx(np.log(low / (1 - low)))
    assert epsilon_shown([1000, 0], 1000, 0.5) == pytest.approx(np.log((low - 0.5) / (1 - low)))
    assert epsilon_shown([500, 500], 1000, 0.0) == 0
    assert gaussian_epsilon(1.0, 1e-5) == pytest.approx(4.377, abs=1e-3)  # Balle and Wang
    assert choice_epsilon(3.0, 0.0) == 3.0
    assert choice_epsilon(3.0, np.tanh(3.0 / 4)) == pytest.approx(0, abs=1e-6)  # total variation


GAMES = {
    "counts": Game(play_counts, ledger_gaussian, 0.4, 1000 * BUDGET),
    "noise known": Game(play_again, ledger_gaussian, 0.4, 150 * BUDGET),
    "person": Game(play_person, ledger_gaussian, 0.4, 300 * BUDGET),
    "choice": Game(play_choice, ledger_choice, 0.4, 1500 * BUDGET),
    "category": Game(play_category, ledger_category, 0.01, 120 * BUDGET),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES)
def test_what_an_attacker_sees_stays_within_the_promise(name):
    assert GAMES[name].excess() <= 0


# ---- mechanisms that are broken, each in one way -----------------------------------------------


def half(make, *arguments, scale, **options):
    return make(*arguments, scale=scale / 2, **options)


def seeded(make, *arguments, scale, **options):
    rng = np.random.default_rng(0)
    return lambda counts: [c + round(rng.normal(0, scale)) for c in counts]


def no_threshold(make, *arguments, scale, threshold, **options):
    return make(*arguments, scale=scale, threshold=1, **options)


def of_one_row(original):
    def release(*arguments, max_rows, **options):
        return original(*arguments, max_rows=1, **options)

    return release


MUTATIONS = {
    "noise halved": ("counts", lambda p: let_lie(p, "make_gaussian", half)),
    "noise of a known seed": ("noise known", lambda p: let_lie(p, "make_gaussian", seeded)),
    "sensitivity of one row": (
        "person",
        lambda p: p.setattr(_mechanisms, "release_counts", of_one_row(_mechanisms.release_counts)),
    ),
    "rows bounded too late": (
        "person",
        lambda p: p.setattr(_mechanisms, "bound_rows", lambda who, most: np.arange(len(who))),
    ),
    "weights without sensitivity": ("choice", lambda p: let_lie(p, "make_noisy_max", half)),
    "threshold without delta": (
        "category",
        lambda p: let_lie(p, "make_gaussian_threshold", no_threshold),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_mechanism_is_caught(name, monkeypatch):
    game, mutate = MUTATIONS[name]
    mutate(monkeypatch)
    assert GAMES[game].excess() > 0
