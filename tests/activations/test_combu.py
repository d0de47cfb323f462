"""CombU: partitions, equality with its parts, what it saves."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call

from combutab.activations import ACTIVATIONS, CombU

UNIT_WISE = [n for n in ACTIVATIONS if not n.startswith(("pl", "la-", "combu", "complex-"))]


@settings(deadline=None)  # the first call may load kernels
@given(st.sampled_from(UNIT_WISE), st.integers(1, 20), st.sampled_from(["contiguous", "random"]))
def test_of_one_part_is_the_part(name, width, assignment):
    x = torch.randn(3, width, dtype=torch.float64)
    combined = CombU(width, {name: 1.0}, assignment).double()
    torch.testing.assert_close(combined(x), ACTIVATIONS[name](width).double()(x))


@settings(deadline=None)  # the first call may load kernels
@given(st.floats(0, 1), st.integers(1, 40), st.sampled_from(["contiguous", "random"]))
def test_of_equal_parts_is_the_part(share, width, assignment):
    x = torch.randn(3, width, dtype=torch.float64)
    combined = CombU(width, {"silu": share, "swish": 1 - share}, assignment)
    torch.testing.assert_close(combined(x), torch.nn.functional.silu(x))


@settings(deadline=None)  # the first call may load kernels
@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=len(UNIT_WISE)).filter(sum),
    st.integers(1, 300),
)
def test_partition_covers_every_unit_once(shares, width):
    ratios = {name: s / sum(shares) for name, s in zip(UNIT_WISE, shares, strict=False)}
    spans = CombU(width, ratios).spans
    assert [start for _, start, _ in spans] == [
        sum(length for _, _, length in spans[:i]) for i in range(len(spans))
    ]
    assert sum(length for _, _, length in spans) == width
    for name, _, length in spans[1:]:
        assert abs(length - ratios[name] * width) <= 0.5 or spans[0][2] == 0


@pytest.mark.parametrize(
    ("width", "lengths"),
    [(256, [128, 64, 64]), (6, [2, 2, 2]), (5, [3, 1, 1]), (3, [1, 1, 1]), (2, [2]), (1, [1])],
)
def test_default_counts(width, lengths):
    assert [length for _, _, length in CombU(width).spans] == lengths


def test_random_partition_is_saved_with_the_weights():
    first = CombU(64, assignment="random", generator=torch.Generator().manual_seed(0))
    second = CombU(64, assignment="random", generator=torch.Generator().manual_seed(1))
    x = torch.randn(3, 64)
    assert not torch.equal(first(x), second(x))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))
    assert CombU(64).state_dict() == {}


def test_random_partition_follows_its_generator_and_leaves_the_global_one():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = (
        CombU(64, assignment="random", generator=torch.Generator().manual_seed(7)) for _ in "ab"
    )
    assert torch.equal(first.partition, second.partition)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("ratios", [None, {"tanh": 0.5, "relu": 0.25, "gelu": 0.25}])
def test_members_of_a_stack_may_have_their_own_partition(ratios):
    modules = [
        CombU(8, ratios, "random", generator=torch.Generator().manual_seed(seed))
        for seed in range(3)
    ]
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    partitions = torch.stack([m.partition for m in modules]).unsqueeze(1)
    out = functional_call(modules[0], {"partition": partitions}, x)
    expected = torch.stack([module(x[m]) for m, module in enumerate(modules)])
    torch.testing.assert_close(out, expected)


def test_saves_its_output_alone():
    x = torch.randn(16, 64, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        out = CombU(64)(x)
    assert [t.data_ptr() for t in saved] == [out.data_ptr()]


def test_derivative_at_zero():
    # as torch has it: ReLU 0, ELU 1; NLReLU like ReLU
    for assignment in ("contiguous", "random"):
        module = CombU(8, assignment=assignment, generator=torch.Generator().manual_seed(0))
        x = torch.zeros(8, requires_grad=True)
        (grad,) = torch.autograd.grad(module(x).sum(), x)
        order = (
            torch.arange(8) if module.partition is None else module.partition.argsort(stable=True)
        )
        assert grad[order].tolist() == [0, 0, 0, 0, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ratios": {"relu": 0.5, "elu": 0.4}}, "must sum to 1"),
        ({"ratios": {}}, "must sum to 1"),
        ({"ratios": {"relu": 1.5, "elu": -0.5}}, "must not be negative"),
        ({"ratios": {"relu": float("nan")}}, "must not be negative"),
        ({"ratios": {"pln-4": 1.0}}, "unit-wise activations, got 'pln-4'"),
        ({"assignment": "shuffled"}, "'contiguous' or 'random'"),
        ({"width": 0}, "at least 1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        CombU(**{"width": 8, **arguments})


def test_wrong_width_names_both():
    with pytest.raises(ValueError, match=r"built for 8 features, got 7 along dim=-1"):
        CombU(8)(torch.zeros(2, 7))
