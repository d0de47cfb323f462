"""The stacked perceptron: members are independent, and their states move between stacks."""

import math

import pytest
import torch
from torch import nn

from combutab.nn import Member, MLPSpec, NetworkSpec, StackedMLP

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


# ---- Inputs: numbers embedded, codes looked up, each input scaled --------------------------------


PBLD = MLPSpec(
    n_dense=4,
    hidden=(8,),
    n_outputs=2,
    cardinalities=(5,),
    embedding_dim=2,
    n_numeric=3,
    numeric_embedding="pbld",
    numeric_embedding_dim=3,
    n_frequencies=6,
    frequency_scale=0.5,
    scale_inputs=True,
)


def test_pbld_is_its_formula():
    net = StackedMLP(PBLD, [Member(0, "relu"), Member(1, "relu")])
    with torch.no_grad():
        net.inputs.scale.copy_(torch.rand(net.inputs.scale.shape))
    dense, codes = draw(2, 7, 4), torch.randint(0, 5, (2, 7, 1))
    out = net.inputs(dense, codes)
    assert out.shape == (2, 7, PBLD.n_inputs) == (2, 7, 3 * 3 + 1 + 2)
    for m in range(2):
        state = net.member_state(m)
        parts = []
        for j in range(3):
            x = dense[m, :, j : j + 1]
            waves = torch.cos(
                2 * math.pi * x * state["inputs.numeric.frequency"][j]
                + state["inputs.numeric.phase"][j]
            )
            mapped = waves @ state["inputs.numeric.weight"][j] + state["inputs.numeric.bias"][j]
            parts += [x, mapped]
        parts += [dense[m, :, 3:], state["inputs.embeddings.0.weight"][codes[m, :, 0]]]
        expected = torch.cat(parts, 1) * state["inputs.scale"]
        torch.testing.assert_close(out[m], expected, rtol=1e-5, atol=1e-5)


def test_starts_as_the_paper_has_it():
    wide = MLPSpec(
        n_dense=50, hidden=(8,), n_outputs=1, n_numeric=50, numeric_embedding="pbld",
        n_frequencies=40, frequency_scale=0.1, scale_inputs=True,
    )  # fmt: skip
    state = StackedMLP(wide, [Member(0, "relu")]).member_state(0)
    assert state["inputs.numeric.frequency"].std() == pytest.approx(0.1, rel=0.1)
    for name, bound in (("phase", math.pi), ("weight", 40**-0.5), ("bias", 40**-0.5)):
        values = state[f"inputs.numeric.{name}"].abs()
        assert bound * 0.9 < values.max() <= bound
    assert (state["inputs.scale"] == 1).all()


def test_every_input_parameter_is_differentiated_as_by_autograd():
    members = [Member(i, "prelu") for i in range(2)]
    net = StackedMLP(PBLD, members, dtype=torch.float64)
    dense, codes = draw(2, 9, 4).double(), torch.randint(0, 5, (2, 9, 1))
    net.gradients(dense, lambda raw: raw.square().sum(), codes)
    taken = net.flat.grads.clone()
    net.flat.backward(net(dense, codes).square().sum())
    torch.testing.assert_close(taken, net.flat.grads)
    names = {slot.name for slot in net.flat.slots if slot.name.startswith("inputs.")}
    assert len(names) == 6
    for slot in net.flat.slots:
        assert (taken[:, slot.columns] != 0).any(), slot.name


def test_specs_describe_what_they_build():
    state = StackedMLP(PBLD, [Member(0, "relu")]).member_state(0)
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    assert {n: s for n, s in shapes.items() if n in PBLD.array_shapes()} == PBLD.array_shapes()
    assert PBLD.n_weights == sum(value.numel() for value in state.values())
    assert PBLD.peak_units == 3 * 6
    assert NetworkSpec.from_json(PBLD.to_json()) == PBLD
    with pytest.raises(ValueError, match="5 of 4 dense columns"):
        MLPSpec(n_dense=4, hidden=(8,), n_outputs=2, n_numeric=5)
    for ordered in ((5, 0), (2,)):
        with pytest.raises(ValueError, match=r"in order of \(5, 20\) codes"):
            MLPSpec(4, (8,), 2, cardinalities=(5, 20), ordered=ordered)


def test_rate_factors_cover_all_columns_once():
    members = [Member(0, "prelu"), Member(1, "blend-mish"), Member(2, "relu")]
    spec = MLPSpec(
        4, (8, 8), 2, normalization="layer", n_numeric=2, numeric_embedding="pbld",
        scale_inputs=True,
    )  # fmt: skip
    net = StackedMLP(spec, members)
    roles = {"bias": 0.1, "embedding": 0.1, "activation": 0.2, "scale": 6.0, "normalization": 3.0}
    found = net.rate_factors(roles)
    assert [part.start for part, _ in found[1:]] == [part.stop for part, _ in found[:-1]]
    assert (found[0][0].start, found[-1][0].stop) == (0, net.flat.values.shape[1])
    factor = torch.cat([torch.full((part.stop - part.start,), f) for part, f in found])
    for slot in net.flat.slots:
        expected = next(
            f for part, f in (
                ("linears.0.weight", 1.0), ("linears.1.weight", 1.0), ("linears.2.weight", 1.0),
                ("linears", 0.1), ("norms", 3.0), ("activations", 0.2), ("inputs.scale", 6.0),
                ("inputs", 0.1),
            ) if slot.name.startswith(part)
        )  # fmt: skip
        assert (factor[slot.columns] == torch.tensor(expected)).all(), slot.name
    assert net.rate_factors({}) == [(slice(0, net.flat.values.shape[1]), 1.0)]


def test_data_initialisation_scales_units():
    spec = MLPSpec(3, (40, 30), 1, init="data", n_numeric=3, numeric_embedding="pbld")
    members = [Member(i, "relu") for i in range(2)]
    net = StackedMLP(spec, members, dtype=torch.float64)
    rows = draw(2, 256, 3).double() * 5 + 2
    before = net.member_state(1)
    net.start_from(rows, None, [1, 2], [0])
    assert all(torch.equal(before[name], value) for name, value in net.member_state(1).items())
    h = net.inputs(rows)
    for i in range(3):
        z = net.linears[i](h)[0]
        torch.testing.assert_close(
            z.std(0, correction=0), torch.ones(z.shape[1], dtype=z.dtype), rtol=1e-6, atol=1e-6
        )
        assert ((z > 0).any(0) & (z < 0).any(0)).all()  # each unit changes sign among the rows
        h = z.relu()[None] if i < 2 else z
        h = torch.cat([h, h])
    alone = StackedMLP(spec, members[:1], dtype=torch.float64)
    alone.start_from(rows[:1], None, [1], [0])
    for name, value in alone.member_state(0).items():
        torch.testing.assert_close(value, net.member_state(0)[name], rtol=1e-9, atol=1e-12)


class Doubling(StackedMLP):
    """A chain whose own forward pass does more than the chain's."""

    def forward(self, dense, codes=None, masks=None, valid=None):
        return 2 * super().forward(dense, codes, masks, valid)


def test_a_networks_own_forward_is_trained_and_predicts():
    members = [Member(0, "relu"), Member(1, "relu")]
    net, plain = (cls(SHAPE, members, dtype=torch.float64) for cls in (Doubling, StackedMLP))
    x = draw(2, 5, 4).double()
    net.gradients(x, lambda raw: raw.square().sum())
    plain.gradients(x, lambda raw: 4 * raw.square().sum())
    torch.testing.assert_close(net.flat.grads, plain.flat.grads)
    torch.testing.assert_close(net.predict(x[0], None, 2), 2 * plain.predict(x[0], None, 2))


def test_a_kind_names_one_network():
    with pytest.raises(ValueError, match=r"'mlp'.*MLPSpec"):

        class Another(MLPSpec, kind="mlp"):
            pass

    assert NetworkSpec.kinds["mlp"] is MLPSpec
