"""Conditions for generators: drawn as often as they should be, with rows that meet them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from combutab.core.rng import random_uniform
from combutab.training import ConditionSampler

RNG = np.random.default_rng(0)
N = 2000
CODES = np.column_stack(
    [
        RNG.choice(3, N, p=[0.9, 0.08, 0.02]),
        np.r_[np.zeros(N - 1, dtype=int), 1],  # one row is enough
        RNG.choice(7, N),
    ]
)
SIZES = [3, 2, 7]


def uniforms(n_members, n_rows):
    draws = random_uniform(range(n_members), 3 * n_rows)
    return draws.view(n_members, n_rows, 3)


@pytest.mark.parametrize("true_frequencies", [False, True])
def test_frequencies(true_frequencies):
    sampler = ConditionSampler(torch.from_numpy(CODES), SIZES)
    drawn = sampler.draw(uniforms(2, 30_000), true_frequencies=true_frequencies)
    span, code = drawn.span.flatten().numpy(), drawn.code.flatten().numpy()
    assert chisquare(np.bincount(span, minlength=3)).pvalue > 1e-3
    for s, size in enumerate(SIZES):
        counts = np.bincount(CODES[:, s], minlength=size).astype(float)
        weights = counts if true_frequencies else np.log1p(counts)
        seen = np.bincount(code[span == s], minlength=size)
        assert chisquare(seen, weights / weights.sum() * seen.sum()).pvalue > 1e-3


def test_rows_meet_their_condition_and_are_equally_likely():
    sampler = ConditionSampler(torch.from_numpy(CODES), SIZES)
    drawn = sampler.draw(uniforms(1, 50_000))
    span, code, row = (t[0].numpy() for t in drawn)
    np.testing.assert_array_equal(CODES[row, span], code)
    members = np.flatnonzero(CODES[:, 0] == 2)
    chosen = row[(span == 0) & (code == 2)]
    seen = np.bincount(np.searchsorted(members, chosen), minlength=len(members))
    assert chisquare(seen).pvalue > 1e-3


def test_member_draws_do_not_depend_on_others():
    sampler = ConditionSampler(torch.from_numpy(CODES), SIZES)
    together = sampler.draw(uniforms(3, 100))
    alone = sampler.draw(random_uniform([2], 300).view(1, 100, 3))
    for a, b in zip(together, alone, strict=True):
        assert torch.equal(a[2], b[0])


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.integers(1, 50),
    st.sampled_from([0.0, 0.5, 1 - 2.0**-53]),
)
def test_no_draw_leaves_its_span(sizes, n_rows, extreme):
    rng = np.random.default_rng(len(sizes))
    codes = np.column_stack([rng.integers(0, size, n_rows) for size in sizes])
    sampler = ConditionSampler(torch.from_numpy(codes), sizes)
    grid = torch.tensor([extreme, 0.3, 1 - 2.0**-53], dtype=torch.float64)
    drawn = sampler.draw(torch.cartesian_prod(grid, grid, grid).unsqueeze(0))
    span, code, row = (t[0].numpy() for t in drawn)
    assert (code < np.array(sizes)[span]).all()
    np.testing.assert_array_equal(codes[row, span], code)  # absent categories are never drawn


def test_codes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="one row and 2 columns"):
        ConditionSampler(torch.zeros(3, 1, dtype=torch.int64), [2, 2])
    with pytest.raises(ValueError, match="one row and 1 columns"):
        ConditionSampler(torch.zeros(0, 1, dtype=torch.int64), [2])
    with pytest.raises(ValueError, match=r"column 0 of codes.*0 to 1.*2 to 2"):
        ConditionSampler(torch.tensor([[2]]), [2])
