"""The stacked perceptron: members are independent, and their states move between stacks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from combutab.nn import Member, MLPSpec, StackedMLP

SHAPE = MLPSpec(n_dense=4, hidden=(8, 8), n_outputs=2)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_is_a_plain_torch_network():
    net = StackedMLP(SHAPE, [Member(3, "relu")])
    weights = [(layer.weight[0], layer.bias[0, 0]) for layer in net.linears]
    h = draw(1, 5, 4)
    expected = h[0]
    for i, (weight, bias) in enumerate(weights):
        expected = nn.functional.linear(expected, weight.t(), bias)
        expected = expected.relu() if i < 2 else expected
    torch.testing.assert_close(net(h)[0], expected)


@pytest.mark.parametrize(
    "shape",
    [
        SHAPE,
        MLPSpec(4, (8, 8), 2, normalization="batch"),
        MLPSpec(4, (8, 8), 2, normalization="layer", proxy_norm=True),
        MLPSpec(4, (8, 8), 2, cardinalities=(5, 20), embedding_dim=3),
        MLPSpec(4, (), 1),
        MLPSpec(4, (8,), 1, n_numeric=2, numeric_embedding="pbld", scale_inputs=True),
    ],
)
def test_a_member_is_the_same_in_any_stack(shape):
    names = ["combu-random", "prelu", "prelu", "relu"]
    stack = StackedMLP(shape, [Member(i, name) for i, name in enumerate(names)])
    x = draw(4, 6, 4)
    codes = torch.randint(0, 5, (4, 6, 2), generator=torch.Generator().manual_seed(1))
    codes = codes if shape.cardinalities else None
    out = stack(x, codes)
    for i, name in enumerate(names):
        alone = StackedMLP(shape, [Member(i, name)])
        one = alone(x[i : i + 1], None if codes is None else codes[i : i + 1])
        torch.testing.assert_close(out[i], one[0], rtol=1e-5, atol=1e-6)
        state = stack.member_state(i)
        assert set(state) == set(alone.member_state(0))
        moved = StackedMLP(shape, [Member(99, name)])
        moved.load_member(0, state)
        again = moved(x[i : i + 1], None if codes is None else codes[i : i + 1])
        torch.testing.assert_close(again[0], one[0], rtol=1e-5, atol=1e-6)


def test_dropping_members_keeps_the_others():
    names = ["combu-random", "combu-random", "prelu", "prelu", "relu"]
    shape = MLPSpec(4, (8, 8), 2, normalization="batch")
    net = StackedMLP(shape, [Member(i, name) for i, name in enumerate(names)])
    x = draw(5, 6, 4)
    with torch.no_grad():
        net(x)  # moves the running statistics
    before = [net.member_state(i) for i in range(5)]
    net.eval()
    expected = net(x)
    net.select([1, 3, 4])
    torch.testing.assert_close(net(x[[1, 3, 4]]), expected[[1, 3, 4]])
    for new, old in enumerate([1, 3, 4]):
        state = net.member_state(new)
        assert all(torch.equal(state[name], before[old][name]) for name in before[old])
    net.select([1])
    torch.testing.assert_close(net(x[[3]]), expected[[3]])


def test_parameters_are_views_of_one_matrix():
    net = StackedMLP(SHAPE, [Member(0, "relu"), Member(1, "prelu")])
    with torch.no_grad():
        net.flat.values[1].zero_()
    assert all(layer.weight[1].abs().max() == 0 for layer in net.linears)
    assert all(layer.weight[0].abs().max() > 0 for layer in net.linears)
    n_weights = 4 * 8 + 8 * 8 + 8 * 2
    assert net.n_decayed == n_weights
    assert torch.equal(
        net.flat.values[0, :n_weights],
        torch.cat([layer.weight[0].reshape(-1) for layer in net.linears]),
    )


def test_gradients_reach_the_matrix():
    net = StackedMLP(SHAPE, [Member(0, "prelu"), Member(1, "relu")])
    x = draw(2, 6, 4)
    net.flat.backward(net(x)[0].sum())
    assert net.flat.grads[0].abs().max() > 0
    assert net.flat.grads[1].abs().max() == 0  # members do not touch each other


def test_a_state_that_does_not_fit_is_refused():
    net = StackedMLP(SHAPE, [Member(0, "relu")])
    state = net.member_state(0)
    wrong = dict(state, **{"linears.0.weight": torch.zeros(3, 8)})
    with pytest.raises(ValueError, match=r"linears.0.weight has shape \(3, 8\)"):
        net.load_member(0, wrong)
    del state["linears.0.bias"]
    with pytest.raises(ValueError, match=r"missing \['linears.0.bias'\]"):
        net.load_member(0, state)


def test_proxy_norm_needs_a_norm():
    with pytest.raises(ValueError, match="set normalization='layer'"):
        MLPSpec(4, (8,), 1, proxy_norm=True)
