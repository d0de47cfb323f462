"""Rows of a mixture of product distributions."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from combutab.generators.private._mixture import MixtureTable, balance
from combutab.generators.sampling import RowRequest


@pytest.mark.parametrize("key", [0, 1, 2**40])
def test_components_are_drawn_evenly(key):
    """Of 50 components with a code each, 100 rows have each code twice, in random order."""
    table = torch.eye(50)
    request = RowRequest([key], 100, torch.zeros(1, 100, 0), {})
    given = torch.full((100, 1), -1)
    found = MixtureTable(table)._components([table], given, {}, request)[0]
    assert torch.bincount(found, minlength=50).tolist() == [2] * 50
    assert found.tolist() != sorted(found.tolist())


def test_components_follow_what_is_known():
    """A row whose code only one component has is of that component."""
    table = torch.eye(50)
    request = RowRequest([0], 50, torch.zeros(1, 50, 0), {})
    given = torch.arange(50).flip(0)[:, None]
    assert MixtureTable(table)._components([table], given, {}, request)[0].equal(given[:, 0])


SIZES = [2, 3, 4]
SPANS = SimpleNamespace(sizes=SIZES, n_values=0)  # all that draw looks at


def mixture():
    """Three components, and the probability of each combination of codes."""
    rng = np.random.default_rng(0)
    parts = [rng.dirichlet(np.ones(size), 3) for size in SIZES]
    joint = np.einsum("ka,kb,kc->abc", *parts) / 3
    return MixtureTable(torch.from_numpy(np.concatenate(parts, 1)).float()), joint


def draw(table, key, n, **asked):
    return table.draw(SPANS, RowRequest([key], n, torch.zeros(1, n, 0), {}, **asked)).codes[0]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "places"), [(1, [0]), (2, [0, 1]), (5, [3]), (40, [0, 39])])
def test_each_row_has_the_distribution_of_the_mixture(n, places):
    table, joint = mixture()
    rows = np.stack([draw(table, key, n)[places].numpy() for key in range(3000)])
    for place in rows.transpose(1, 2, 0):
        counts = np.bincount(np.ravel_multi_index(place, SIZES), minlength=joint.size)
        assert stats.chisquare(counts, 3000 * joint.ravel() / joint.sum()).pvalue > 0.001


@pytest.mark.slow
def test_pair_counts_vary_less_than_independent_rows():
    table, joint = mixture()
    n, found = 250, np.stack([draw(table, key, 250).numpy() for key in range(40)])
    for i, j in itertools.combinations(range(3), 2):
        share = joint.sum(({0, 1, 2} - {i, j}).pop())
        counts = np.stack([
            np.bincount(rows[:, i] * SIZES[j] + rows[:, j], minlength=share.size) for rows in found
        ])  # fmt: skip
        independent = n * share * (1 - share)
        errors = ((counts - n * share.ravel()) ** 2).mean(0)
        assert errors.sum() < 0.3 * independent.sum()


@pytest.mark.slow
def test_all_candidates_are_kept_equally_often():
    """Though one is unlike all others: 8 candidates of each of 3 rows, whatever the others are."""
    candidates = np.zeros((8, 3, 2), dtype=np.int64)
    candidates[2, 1] = 1
    kept = sum(balance(candidates, [2, 2], key).sum() // 2 for key in range(2000))
    assert stats.binomtest(int(kept), 2000, 1 / 8).pvalue > 0.001


def test_given_codes_stay_and_condition_the_others():
    table, joint = mixture()
    given = torch.full((1, 200, 3), -1)
    given[..., 1] = 2
    rows = np.concatenate([draw(table, key, 200, codes=given).numpy() for key in range(20)])
    assert set(rows[:, 1]) == {2}
    counts = np.zeros((2, 4))
    np.add.at(counts, (rows[:, 0], rows[:, 2]), 1)
    expected = joint[:, 2] / joint[:, 2].sum() * len(rows)
    assert np.abs(counts - expected).max() < 3 * np.sqrt(expected.max())


@pytest.mark.slow
def test_completed_rows_are_independent():
    """The mean of an imputed column varies between imputations as that of independent draws."""
    table = MixtureTable(torch.tensor([[0.9, 0.1, 1.0], [0.1, 0.9, 1.0]]))
    spans = SimpleNamespace(sizes=[2, 1], n_values=0)
    n = 120

    def spread(**asked):
        keys = range(100)
        request = [RowRequest([key], n, torch.zeros(1, n, 0), {}, **asked) for key in keys]
        return np.var([table.draw(spans, each).codes[0, :, 0].sum().item() for each in request])

    assert spread() < 0.25 * n * 0.2
    assert spread(values=torch.zeros(1, n, 0)) > 0.25 * n * 0.8


def test_balancing_many_categories_needs_little_memory():
    rng = np.random.default_rng(0)
    candidates = rng.integers(0, 3, (2, 50, 60))
    candidates[..., 0] = rng.integers(0, 10_000, (2, 50))
    rows = balance(candidates, [10_000, *[3] * 59], key=0)
    assert rows.shape == (50, 60)
    either = (rows[:, None] == candidates.reshape(1, 100, 60)).all(-1)
    assert either.any(1).all()
