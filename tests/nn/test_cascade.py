"""The networks of a cascaded flow: their inputs, and that a member is the same alone."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from combutab.nn import (
    N_TIME,
    CodeInputs,
    Member,
    RowSpans,
    StackedCascade,
    time_inputs,
)

SIZES = [2, 3, 3, 5]
SPANS = RowSpans(2, SIZES, categories=[0, 2], dtype=torch.float64)
GENERATOR = torch.Generator().manual_seed(0)


def draw_codes(*shape, lowest=0):
    parts = [torch.randint(lowest, size, shape, generator=GENERATOR) for size in SIZES]
    return torch.stack(parts, -1)


def by_hand(row):
    parts = []
    for i, (size, code) in enumerate(zip(SIZES, row, strict=True)):
        places = np.arange(size)
        parts.append(places == code if i in SPANS.categories else places <= code)
    return np.concatenate(parts)


def test_inputs_are_one_hot_or_cumulative():
    codes = draw_codes(3, 40, lowest=-1)
    inputs = CodeInputs(SPANS)
    into = torch.full((3, 40, sum(SIZES)), torch.nan)
    found = inputs.write(into, codes)
    assert found is into
    expected = [[by_hand(row) for row in rows] for rows in codes.tolist()]
    assert_array_equal(found.numpy(), np.array(expected, dtype=np.float32))
    wider = torch.full((3, 40, sum(SIZES) + 4), torch.nan)
    inputs.write(wider[..., : sum(SIZES)], codes)  # in a part of wider rows
    assert_array_equal(wider[..., : sum(SIZES)].numpy(), found.numpy())
    assert wider[..., sum(SIZES) :].isnan().all()


def test_times_become_waves():
    t = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
    found = time_inputs(t)
    assert found.shape == (3, N_TIME)
    angles = np.pi * np.array([1, 2, 3]) * t.numpy()
    assert_allclose(found.numpy(), np.hstack([t.numpy(), np.cos(angles), np.sin(angles)]))


def test_weighted_cross_entropies_and_their_derivative():
    codes_alone = SPANS.without_values()
    raw = torch.randn(30, sum(SIZES), generator=GENERATOR, dtype=torch.float64)
    codes = draw_codes(30)
    weight = torch.rand(30, len(SIZES), generator=GENERATOR, dtype=torch.float64)
    raw.requires_grad_()
    found = codes_alone.cross_entropy_all(raw, codes, weight)
    log_p = [part.log_softmax(-1) for part in raw.split(SIZES, -1)]
    each = [p.gather(-1, codes[:, i : i + 1])[:, 0] for i, p in enumerate(log_p)]
    expected = -(torch.stack(each, -1) * weight).sum(-1)
    assert_allclose(found.detach(), expected.detach())
    assert_allclose(
        codes_alone.cross_entropy_all(raw, codes).detach(), -sum(each).detach()
    )  # of 1 by default


@pytest.mark.parametrize("n_values", [0, 2])
def test_a_member_is_the_same_alone(n_values):
    spans = RowSpans(n_values, SIZES, categories=[0, 2])
    members = [Member(1, "relu"), Member(2, "relu"), Member(3, "combu")]
    stack = StackedCascade(spans, (6, 6), members)
    assert (stack.values is None) == (n_values == 0)
    shapes = StackedCascade.linear_shapes(spans, (6, 6))
    for i, member in enumerate(members):
        alone = StackedCascade(spans, (6, 6), [member])
        state = alone.member_state(0)
        for name, value in stack.member_state(i).items():
            assert_array_equal(value, state[name])
        assert {n: tuple(v.shape) for n, v in state.items() if n in shapes} == shapes
        other = StackedCascade(spans, (6, 6), [Member(9, member.activation)])
        other.load_member(0, state)
        x = torch.randn(1, 5, sum(SIZES), generator=GENERATOR)
        assert_array_equal(other.eval().codes(x).detach(), alone.eval().codes(x).detach())
    # the two networks start from weights of their own
    if n_values:
        first = [stack.codes.linears[1].weight, stack.values.linears[1].weight]
        assert not torch.equal(*first)
