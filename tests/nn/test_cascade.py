"""The networks of a cascaded flow: their inputs, and that a member is the same alone."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from combutab.nn import (
    BlurredCrossEntropy,
    CodeInputs,
    Member,
    RowSpans,
    StackedCascade,
    time_inputs,
)

SIZES = [2, 3, 3, 5]
SPANS = RowSpans(2, SIZES, categories=[0, 2], missing=[3], dtype=torch.float64)
BINS = {1: 3, 3: 4}  # of the ordered ones; the last code of the last one is a missing value's
GENERATOR = torch.Generator().manual_seed(0)


def draw_codes(*shape, lowest=0):
    parts = [torch.randint(lowest, size, shape, generator=GENERATOR) for size in SIZES]
    return torch.stack(parts, -1)


def by_hand(row):
    parts = []
    for i, (size, code) in enumerate(zip(SIZES, row, strict=True)):
        places = np.arange(size)
        alone = code == BINS.get(i, code)
        parts.append(places == code if alone else (places <= code) & (places < BINS[i]))
    for i, n in BINS.items():  # their places
        parts.append([norm.ppf((row[i] + 0.5) / n) if 0 <= row[i] < n else 0])
    return np.concatenate(parts)


def test_inputs_are_one_hot_or_cumulative():
    codes = draw_codes(3, 40, lowest=-1)
    inputs = CodeInputs(SPANS)
    assert inputs.n_inputs == sum(SIZES) + 2
    rows = torch.tensor(np.array([[by_hand(row) for row in each] for each in codes.tolist()]))
    weight = torch.randn(3, inputs.n_inputs, 5, dtype=torch.float64, requires_grad=True)
    found, expected = inputs.effects(weight).sum(codes), rows @ weight
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    factor = torch.randn_like(found)
    slopes = [torch.autograd.grad((factor * each).sum(), weight) for each in (found, expected)]
    torch.testing.assert_close(*slopes, atol=1e-12, rtol=0)
    single = weight.detach().float()
    with torch.autocast("cpu", torch.bfloat16):
        table = inputs.effects(single).table
    assert table.dtype == single.dtype
    assert_array_equal(table, inputs.effects(single).table)


def test_an_ordered_spans_outputs_bend_by_its_places():
    part = StackedCascade(SPANS, (6,), [Member(1, "relu")]).codes
    last, hidden = part.linears[-1], torch.zeros(1, 1, 6, dtype=torch.float64)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.zero_()
        last.bias[..., sum(SIZES) :] = torch.tensor([1.0, 2.0, 3.0, -4.0])  # two a span
    raw = part.outputs(hidden)[0, 0].detach().split(SIZES)
    for i, (a, b) in {1: (1, 2), 3: (3, -4)}.items():
        z = np.zeros(SIZES[i])
        z[: BINS[i]] = norm.ppf((np.arange(BINS[i]) + 0.5) / BINS[i])
        assert_allclose(raw[i], a * z + b * z**2, atol=1e-12)
    assert not any(raw[i].any() for i in SPANS.categories)


def test_times_become_waves():
    t = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
    found = time_inputs(t)
    assert found.shape == (3, 7)
    angles = np.pi * np.array([1, 2, 3]) * t.numpy()
    assert_allclose(found.numpy(), np.hstack([t.numpy(), np.cos(angles), np.sin(angles)]))


@pytest.mark.slow
def test_ordered_codes_cost_less_the_nearer_they_are():
    sizes, categories = [2, 30, 40, 40], [0, 2]  # two that share a group among them
    missing = 3  # has it last
    raw = torch.randn(30, sum(sizes), generator=GENERATOR, dtype=torch.float64)
    codes = torch.stack([torch.randint(s, (30,), generator=GENERATOR) for s in sizes], -1)
    weight = torch.rand(30, 4, generator=GENERATOR, dtype=torch.float64)
    raw.requires_grad_()
    entropy = BlurredCrossEntropy(
        RowSpans(0, sizes, categories, missing=[missing], dtype=torch.float64)
    )
    found = entropy(raw, codes, weight)
    expected = 0
    for i, (size, logits) in enumerate(zip(sizes, raw.split(sizes, -1), strict=True)):
        p = logits.softmax(-1)
        own = -p[torch.arange(30), codes[:, i]].log()
        if i not in categories:
            n = size - (i == missing)
            z = torch.arange(n, dtype=torch.float64) / (n / 32)
            kernel = torch.eye(size, dtype=torch.float64)
            kernel[:n, :n] = torch.exp(-((z[:, None] - z) ** 2) / 2)
            kernel /= kernel.sum(1, keepdim=True)
            near = -(kernel[codes[:, i]] * (p @ kernel).clamp_min(1e-300).log()).sum(-1)
            own = 0.3 * own + 0.7 * near
        expected = expected + own * weight[:, i]
    assert_allclose(found.detach(), expected.detach())
    assert torch.autograd.gradcheck(lambda x: entropy(x, codes, weight).sum(), raw)


def test_no_product_with_the_blur_is_subnormal():
    for _, kernels in BlurredCrossEntropy(RowSpans(0, [64, 65, 64], [2], missing=[1]))._kernels[:2]:
        assert kernels[kernels > 0].min() > 1e-20  # where a probability is above 1e-18
        assert_allclose(kernels.sum(-1), 1, rtol=1e-6)


def test_the_true_probabilities_cost_least():
    size = 40  # the kernel has neighbours of weight
    entropy = BlurredCrossEntropy(RowSpans(0, [size], [], dtype=torch.float64))
    true = torch.from_numpy(np.random.default_rng(0).dirichlet(np.ones(size)))
    raw = torch.zeros(1, size, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        raw += true.log()
    every = torch.arange(size).unsqueeze(1)
    ones = torch.ones(size, 1, dtype=torch.float64)
    loss = (entropy(raw.expand(size, -1), every, ones) * true).sum()
    (slope,) = torch.autograd.grad(loss, raw)
    assert_allclose(slope, 0, atol=1e-12)


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
        x = torch.randn(1, 5, sum(SIZES) + 2, generator=GENERATOR)
        found = [p.outputs(p.hidden(p.linear(0)(x))).detach() for p in (other.codes, alone.codes)]
        assert_array_equal(*found)
    # the two networks start from weights of their own
    if n_values:
        first = [stack.codes.linears[1].weight, stack.values.linears[1].weight]
        assert not torch.equal(*first)


def test_many_codes_have_no_layer_of_their_own():
    few, many = (RowSpans(0, [size, 3], categories=[0, 1]) for size in (900, 1100))
    assert StackedCascade(few, (4,), [Member(0, "relu")]).codes.direct.abs().max() == 0
    assert StackedCascade(many, (4,), [Member(0, "relu")]).codes.direct is None
    assert "codes.direct" in StackedCascade.linear_shapes(few, (4,))
    assert "codes.direct" not in StackedCascade.linear_shapes(many, (4,))


def test_rate_factors_apply_to_code_network():
    members = [Member(0, "prelu"), Member(1, "relu")]
    for own in (members, members[:1]):  # of all members, activations' columns are elsewhere
        net = StackedCascade(RowSpans(2, [20, 30, 4], categories=[2]), (8, 8), own)
        found = net.rate_factors({"codes": 0.5})
        factor = torch.cat([torch.full((part.stop - part.start,), f) for part, f in found])
        for slot in net.flat.slots:
            halved = slot.name.startswith(("codes.linears", "codes.norms", "codes.direct"))
            expected = torch.tensor(0.5 if halved else 1.0)
            assert (factor[slot.columns] == expected).all(), slot.name
        assert any("activations" in slot.name for slot in net.flat.slots)
