"""TabM's layers against plain torch, and its start."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from combutab.core.device import Precision
from combutab.nn import Member, MLPSpec, NetworkSpec, StackedMLP, TabMSpec
from combutab.training import (
    MemberPlan,
    OptimizerConfig,
    Rows,
    TrainConfig,
    make_regression_loss,
    train_stack,
)

K = 4
SPEC = TabMSpec(
    n_dense=4, hidden=(6, 5), n_outputs=2, cardinalities=(5,), embedding_dim=2, n_numeric=3,
    numeric_embedding="piecewise-linear", numeric_embedding_dim=3, n_bins=4, n_heads=K,
)  # fmt: skip
EDGES = torch.tensor([[-2, -1, 0, 1, 2], [0, 1, 1, 1, 1], [0.5, 0.5, 0.5, 0.5, 0.5]]).double()
MEMBERS = [
    Member(3, "prelu", 0.3, EDGES),
    Member(4, "combu", 0.0, EDGES + 0.1),
    Member(5, "pln-3", 0.5, EDGES),
]


def draw(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shaken(spec, members=MEMBERS, by=0.3):
    """A network in which nothing is where it starts."""
    net = spec.build(members, dtype=torch.float64)
    with torch.no_grad():
        net.flat.values.add_(draw(*net.flat.values.shape, seed=5), alpha=by)
    return net


def piecewise_linear(x, state, edges):
    """Embeddings of one member's numbers, bin by bin: (n, n_columns) -> (n, n_columns * dim)."""
    columns = []
    for j in range(x.shape[1]):
        distinct = np.unique(edges[j].numpy())
        shares = np.zeros((len(x), SPEC.n_bins))
        for t in range(len(distinct) - 1):
            share = (x[:, j].numpy() - distinct[t]) / (distinct[t + 1] - distinct[t])
            share = share if t == 0 else np.maximum(share, 0)
            shares[:, t] = share if t == len(distinct) - 2 else np.minimum(share, 1)
        own = {n: state[f"inputs.numeric.{n}"][j] for n in ("slope", "bias", "weight")}
        linear = x[:, j : j + 1] * own["slope"] + own["bias"]
        columns.append(linear + torch.from_numpy(shares) @ own["weight"])
    return torch.cat(columns, 1)


def outputs_of(state, x, codes, edges, activation):
    """One member's raw outputs, (n, k, n_outputs), head by head as the paper writes them."""
    table = F.embedding(codes[:, 0], state["inputs.embeddings.0.weight"])
    inputs = torch.cat([piecewise_linear(x[:, :3], state, edges), x[:, 3:], table], 1)
    heads = []
    for k in range(K):
        h = inputs
        for i in range(2):
            h = h * state[f"linears.{i}.r"][k]
            h = (h @ state[f"linears.{i}.weight"]) * state[f"linears.{i}.s"][k]
            h = activation(h + state[f"linears.{i}.bias"][k], i)
        heads.append(h @ state["linears.2.weight"][k] + state["linears.2.bias"][k])
    return torch.stack(heads, 1)


def test_the_forward_pass_is_the_papers():
    net = shaken(SPEC, [Member(i, "relu", bins=EDGES + i) for i in range(2)])
    x, codes = draw(7, 4) * 2, torch.arange(7)[:, None] % 5
    out = net(x.expand(2, 7, 4), codes.expand(2, 7, 1)).unflatten(1, (7, K))
    for m in range(2):
        state = {name: value.double() for name, value in net.member_state(m).items()}
        expected = outputs_of(state, x, codes, EDGES + m, lambda h, i: h.relu())
        torch.testing.assert_close(out[m], expected, rtol=1e-6, atol=1e-6)
    predicted = net.eval().predict(x, codes, chunk=3).unflatten(0, (2, K)).transpose(1, 2)
    torch.testing.assert_close(predicted, out)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"init": "ntk", "normalization": "layer", "scale_inputs": True},
        {"hidden": (7,), "numeric_embedding": "none", "cardinalities": (), "n_heads": 1},
    ],
)
def test_hand_written_passes_are_autograds(n_outputs, more):
    spec = replace(SPEC, n_outputs=n_outputs, **more)
    net, k = shaken(spec), spec.n_heads
    x, codes = draw(3, 6, 4), torch.arange(6)[:, None].expand(3, 6, 1) % 5
    valid = torch.arange(6) < torch.tensor([6, 3, 5]).unsqueeze(1)
    for n_rows, given in ((6, None), (6, valid), (4, None)):
        target = draw(3, n_rows * k, n_outputs, seed=2)

        def objective(raw, target=target):
            return (raw - target).square().sum()

        rows, own = x[:, :n_rows], codes[:, :n_rows] if spec.cardinalities else None
        masks = net.mask_maker().draw([1, 2, 3], n_rows)
        kept = [mask.clone() for mask in masks]
        net.gradients(rows, objective, own, masks, given)
        fast = net.flat.grads.clone()
        net.flat.backward(objective(net(rows, own, kept, given)))
        torch.testing.assert_close(fast, net.flat.grads, rtol=1e-9, atol=1e-11)
    for slot in net.flat.slots:  # all are reached
        assert (fast[slot.start : slot.stop, slot.columns] != 0).any(), slot.name


def test_gradients_of_the_factors_by_finite_differences():
    spec = TabMSpec(3, (4, 4), 1, n_heads=3)
    net = shaken(spec, [Member(0, "tanh")])
    x, target = draw(1, 5, 3), draw(1, 15, 1, seed=2)

    def loss():
        with torch.no_grad():
            return (net(x) - target).square().mean()

    net.gradients(x, lambda raw: (raw - target).square().mean())
    step, found = 1e-6, net.flat.grads.clone()
    for j in range(found.shape[1]):
        net.flat.values[0, j] += step
        above = loss()
        net.flat.values[0, j] -= 2 * step
        below = loss()
        net.flat.values[0, j] += step
        assert float(above - below) / (2 * step) == pytest.approx(float(found[0, j]), abs=1e-7)


def test_only_the_first_factors_are_random_at_first():
    for kind, members in (("none", [Member(7, "relu")]), ("piecewise-linear", [MEMBERS[0]])):
        spec = TabMSpec(6, (8, 8), 1, (9,), 3, n_numeric=3, numeric_embedding=kind, n_bins=4,
                        numeric_embedding_dim=5, n_heads=16)  # fmt: skip
        state = spec.build(members).member_state(0)
        for name in ("linears.0.s", "linears.1.r", "linears.1.s"):
            assert (state[name] == 1).all()
        assert (state["linears.0.bias"] == state["linears.0.bias"][0]).all()
        r, weight = state["linears.0.r"], state["linears.2.weight"]
        assert weight.shape == (16, 8, 1)
        assert weight.unique().numel() == weight.numel()
        assert weight.abs().max() <= 8**-0.5
        if kind == "none":
            assert set(r.unique().tolist()) == {-1.0, 1.0}
            assert r.shape == (16, 3 + 3 + 3)
        else:  # one a column and head
            assert r.shape == (16, 3 * 5 + 3 + 3)
            assert (r[:, :15].unflatten(1, (3, 5)).std(2) < 1e-6).all()
            assert r.unique().numel() == 16 * (3 + 3 + 1)
            assert (state["inputs.numeric.weight"] == 0).all()


def test_specs_describe_what_they_build():
    state = StackedMLP(SPEC, MEMBERS[:1]).member_state(0)
    shapes = SPEC.array_shapes()
    assert {n: tuple(v.shape) for n, v in state.items() if n in shapes} == shapes
    assert set(state) - set(shapes) == {"inputs.numeric.edges"} | {
        name for name in state if name.startswith("activations.")
    }
    assert NetworkSpec.from_json(SPEC.to_json()) == SPEC
    assert SPEC.widths == tuple(K * w for w in (3 * 3 + 1 + 2, 6, 5, 2))
    for wrong, words in (
        ({**SPEC.to_json(), "n_heads": 0}, "n_heads in the shape must be a whole number from 1"),
        ({**SPEC.to_json(), "init": "data"}, "init='data' scales each unit"),
        ({**SPEC.to_json(), "hidden": ()}, "hidden_layer_sizes must name one at least"),
        ({**SPEC.to_json(), "kind": "no-such"}, "unknown kind 'no-such'"),
        ([], "must be an object"),
    ):
        with pytest.raises(ValueError, match=words):
            NetworkSpec.from_json(wrong)


def test_a_member_is_what_it_is_alone():
    net, x = shaken(SPEC), draw(3, 6, 4)
    codes = torch.arange(6)[:, None].expand(3, 6, 1) % 5
    masks = net.mask_maker().draw([7, 8, 9], 6)
    net.gradients(x, lambda raw: raw.square().sum(), codes, masks)
    for i, member in enumerate(MEMBERS):
        alone = SPEC.build([member], dtype=torch.float64)
        alone.load_member(0, net.member_state(i))
        masks = alone.mask_maker().draw([7 + i], 6)
        alone.gradients(x[i : i + 1], lambda raw: raw.square().sum(), codes[:1], masks)
        n = alone.flat.grads.shape[1]
        torch.testing.assert_close(alone.flat.grads[0], net.flat.grads[i, :n])


def test_an_mlp_takes_piecewise_linear_numbers_too():
    spec = MLPSpec(3, (6,), 1, n_numeric=3, numeric_embedding="piecewise-linear", n_bins=4,
                   numeric_embedding_dim=3)  # fmt: skip
    net, x = shaken(spec), draw(3, 8, 3) * 2
    net.gradients(x, lambda raw: raw.square().sum())
    fast = net.flat.grads.clone()
    net.flat.backward(net(x).square().sum())
    torch.testing.assert_close(fast, net.flat.grads)
    for m in range(3):
        state = net.member_state(m)
        expected = piecewise_linear(x[m], state, state["inputs.numeric.edges"])
        torch.testing.assert_close(net.inputs(x)[m], expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_loss_is_mean_over_heads_plus_penalty(weighted):
    n, alpha, rate = 90, 0.3, 0.1
    spec, member = TabMSpec(3, (6, 5), 1, (4,), n_heads=K), Member(0, "tanh")
    dense, codes = draw(n, 3), torch.arange(n)[:, None] % 4
    y, w = draw(n, 1, seed=2), torch.rand(n).double() + 0.1 if weighted else torch.ones(n).double()
    data = Rows(dense, y, codes, w if weighted else None)
    net, leaf = (spec.build([member], dtype=torch.float64) for _ in range(2))
    raw = leaf(dense[None], codes[None]).unflatten(1, (n, K))[0, ..., 0]
    mean = (0.5 * (raw - y).square().mean(1) * w).sum() / w.sum()
    decayed = leaf.flat.values[:, : leaf.n_decayed]
    leaf.flat.backward(mean)
    leaf.flat.grads[:, : leaf.n_decayed] += alpha * decayed / w.sum()
    expected = leaf.flat.values - rate * leaf.flat.grads
    config = TrainConfig(
        make_regression_loss("squared_error", ()),
        OptimizerConfig("sgd", momentum=0),
        batch_size=n,
        max_epochs=1,
        shuffle=False,
        precision=Precision("float64"),
    )
    (result,) = train_stack(net, data, [MemberPlan(0, torch.arange(n), rate, alpha)], config)
    torch.testing.assert_close(net.flat.values, expected)
    penalty = 0.5 * alpha * expected[:, : leaf.n_decayed].square().sum() / w.sum()
    assert result.train_loss[0] == pytest.approx(float(mean.detach() + penalty))
