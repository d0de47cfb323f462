"""The networks of CTGAN and TVAE against plain torch ones, member by member."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from combutab.activations import CombU
from combutab.nn import (
    Member,
    StackedCritic,
    StackedGenerator,
    StackedRowDecoder,
    StackedRowEncoder,
    fill_gradients,
)
from combutab.training import OptimizerConfig, RowOptimizer

PAC, GROUPS, N_INPUTS = 3, 4, 5
ACTIVATIONS = ["combu", "combu-random", "pln-4", "la-silu", "prelu", "relu", "original"]


def draw(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def uniforms(*shape, seed=9):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def members(*activations):
    return [Member(7 + i, activation) for i, activation in enumerate(activations)]


def make_generator(of, dtype=torch.float64, widths=(8, 12), **options):
    return StackedGenerator(4, 3, 6, widths, of, dtype=dtype, **options)


def make_critic(of, dtype=torch.float64, widths=(8, 12), **options):
    return StackedCritic(N_INPUTS, widths, of, pac=PAC, dtype=dtype, **options)


def make_encoder(of, dtype=torch.float64, widths=(8, 12), **options):
    return StackedRowEncoder(6, widths, 4, of, dtype=dtype, **options)


def make_decoder(of, dtype=torch.float64, widths=(8, 12), **options):
    return StackedRowDecoder(4, widths, 6, 2, of, dtype=dtype, **options)


# the maker of each network, and the widths of what it takes
NETWORKS = {
    "generator": (make_generator, (4, 3)),
    "critic": (make_critic, (N_INPUTS,)),
    "encoder": (make_encoder, (6,)),
    "decoder": (make_decoder, (4,)),
}


def inputs(name, n_members, dtype=torch.float64):
    widths = NETWORKS[name][1]
    n_rows = PAC * GROUPS
    return [draw(n_members, n_rows, w, seed=i, dtype=dtype) for i, w in enumerate(widths)]


def outputs(net, given):
    out = net(*given)
    return out if isinstance(out, tuple) else (out,)


def plain_linear(layer, m):
    """Member m of a stacked layer as torch's own layer, with the same parameters."""
    plain = nn.Linear(*layer.weight.shape[1:], dtype=torch.float64)
    with torch.no_grad():
        plain.weight.copy_(layer.weight[m].t())
        plain.bias.copy_(layer.bias[m, 0])
    return plain


class PlainGenerator(nn.Module):
    """Section 4.4, written out: h + ReLU(BN(FC(h))) twice, + being concatenation."""

    def __init__(self, net, m):
        super().__init__()
        self.layers = nn.ModuleList(plain_linear(layer, m) for layer in net.linears)
        self.norms = nn.ModuleList(nn.BatchNorm1d(w, dtype=torch.float64) for w in net.widths)

    def forward(self, noise, condition):
        h0 = torch.cat([noise, condition], 1)
        h1 = torch.cat([h0, F.relu(self.norms[0](self.layers[0](h0)))], 1)
        h2 = torch.cat([h1, F.relu(self.norms[1](self.layers[1](h1)))], 1)
        return self.layers[2](h2)


class PlainCritic(nn.Module):
    """Section 4.4: pac rows in one, FC, LeakyReLU(0.2), dropout, twice, and a score."""

    def __init__(self, net, m, activations=None, norms=None):
        super().__init__()
        self.layers = nn.ModuleList(plain_linear(layer, m) for layer in net.linears)
        self.activations = activations or [nn.LeakyReLU(0.2), nn.LeakyReLU(0.2)]
        self.norms = norms or [nn.Identity(), nn.Identity()]

    def forward(self, rows, masks=None):
        h = torch.stack([torch.cat(list(group)) for group in rows.split(PAC)])
        for i in range(2):
            h = self.activations[i](self.norms[i](self.layers[i](h)))
            h = h if masks is None else h * masks[i]
        return self.layers[2](h)[:, 0]


def test_generator_is_the_papers():
    net = make_generator(members("original", "original"))
    plain = [PlainGenerator(net, m) for m in range(2)]
    for step in range(3):  # in train mode, which moves the running statistics
        noise, condition = draw(2, 12, 4, seed=step) + 1, draw(2, 12, 3, seed=10 + step)
        out = net(noise, condition)
        for m in range(2):
            torch.testing.assert_close(out[m], plain[m](noise[m], condition[m]))
    net.eval()
    for m in range(2):
        plain[m].eval()
        torch.testing.assert_close(net(noise, condition)[m], plain[m](noise[m], condition[m]))


def test_critic_is_the_papers():
    net = make_critic(members("original", "original"))
    rows = draw(2, PAC * GROUPS, N_INPUTS)
    masks = net.mask_maker().draw([1, 2], GROUPS)
    assert all(set(mask.unique().tolist()) == {0.0, 2.0} for mask in masks)
    for m in range(2):
        plain = PlainCritic(net, m)
        torch.testing.assert_close(net(rows)[m], plain(rows[m]))
        torch.testing.assert_close(net(rows, masks)[m], plain(rows[m], [k[m] for k in masks]))


def test_encoder_and_decoder_are_the_papers():
    encoder, decoder = make_encoder(members("original")), make_decoder(members("original"))
    for net, name in ((encoder, "encoder"), (decoder, "decoder")):
        (x,) = inputs(name, 1)
        layers = [plain_linear(layer, 0) for layer in net.linears]
        expected = layers[2](F.relu(layers[1](F.relu(layers[0](x[0])))))
        out = torch.cat([o[0] for o in net(x)], -1) if name == "encoder" else net(x)[0][0]
        torch.testing.assert_close(out, expected)
    mean, log_variance = encoder(*inputs("encoder", 1))
    assert mean.shape == log_variance.shape == (1, PAC * GROUPS, 4)


def test_decoders_sigma_is_positive_and_learned():
    net = make_decoder(members("original", "relu"))
    _, sigma = net(draw(2, 5, 4))
    torch.testing.assert_close(sigma, torch.full((2, 1, 2), 0.1, dtype=torch.float64))
    net.flat.backward(sigma[1].log().sum())
    assert (net.flat.gradient_of(net, "log_sigma")[1] > 0).all()
    assert (net.flat.gradient_of(net, "log_sigma")[0] == 0).all()
    with torch.no_grad():
        net.log_sigma.fill_(-1e3)
    assert (net(draw(2, 5, 4))[1] > 0).all()
    assert StackedRowDecoder(4, (8,), 6, 0, members("relu"))(draw(1, 5, 4).float())[1].numel() == 0


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_are_drawn_as_torch_draws_them(name):
    net = NETWORKS[name][0](members("original", "original"), widths=(300, 200))
    for layer in net.linears:
        bound = 1 / math.sqrt(layer.weight.shape[1])
        for tensor in (layer.weight, layer.bias):
            assert tensor.abs().max() <= bound
        if layer.weight[0].numel() > 1_000:
            assert layer.weight.detach().std() == pytest.approx(bound / math.sqrt(3), rel=0.05)
        assert not torch.equal(layer.weight[0], layer.weight[1])


def test_networks_of_one_seed_differ_by_kind():
    decoder = StackedRowDecoder(4, (8,), 6, 2, members("relu"))
    generator = StackedGenerator(4, 0, 6, (8,), members("relu"))
    shape = decoder.linears[0].weight.shape
    assert generator.linears[0].weight.shape == shape
    assert not torch.equal(generator.linears[0].weight, decoder.linears[0].weight)


CONFIGURATIONS = [
    ({}, ACTIVATIONS),
    ({"normalization": "batch"}, ["combu", "prelu", "original"]),
    ({"normalization": "layer", "proxy_norm": True}, ["combu", "relu", "original"]),
    ({"normalization": "pln"}, ["pln-4", CombU]),
    ({"widths": ()}, ["combu", "relu"]),
]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("options", "activations"), CONFIGURATIONS)
def test_a_member_is_the_same_in_any_stack(name, options, activations):
    if options.get("normalization") == "pln":
        options = {**options, "widths": (8, 16)}
    make = NETWORKS[name][0]
    all_members = sorted(members(*activations * 2), key=lambda m: activations.index(m.activation))
    stack = make(all_members, **options)
    given = inputs(name, len(all_members))
    out = outputs(stack, given)
    stack.flat.backward(sum(o.sin().sum() for o in out))
    for i, member in enumerate(all_members):
        alone = make([member], **options)
        one = outputs(alone, [x[i : i + 1] for x in given])
        for several, single in zip(out, one, strict=True):
            torch.testing.assert_close(several[i], single[0], rtol=1e-10, atol=1e-10)
        alone.flat.backward(sum(o.sin().sum() for o in one))
        width = alone.flat.grads.shape[1]
        torch.testing.assert_close(
            stack.flat.grads[i, :width], alone.flat.grads[0], rtol=1e-10, atol=1e-10
        )
        assert set(stack.member_state(i)) == set(alone.member_state(0))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("options", "activations"), CONFIGURATIONS[:3])
def test_states_move_between_stacks(name, options, activations):
    make = NETWORKS[name][0]
    stack = make(members(*activations), **options)
    given = inputs(name, len(activations))
    stack(*given)  # moves the running statistics, where there are any
    stack.eval()
    for i, activation in enumerate(activations):
        state = stack.member_state(i)
        moved = make([Member(99, activation)], **options)
        moved.load_member(0, state)
        again = moved.member_state(0)
        assert all(torch.equal(again[key], state[key]) for key in state)
        moved.eval()
        one = outputs(moved, [x[i : i + 1] for x in given])
        for several, single in zip(outputs(stack, given), one, strict=True):
            torch.testing.assert_close(several[i], single[0], rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match=r"missing \['linears.0.bias'\]"):
        moved.load_member(0, {k: v for k, v in state.items() if k != "linears.0.bias"})


@pytest.mark.parametrize("name", NETWORKS)
def test_dropping_members_keeps_the_others(name):
    activations = ["combu-random", "combu-random", "prelu", "prelu", "original"]
    net = NETWORKS[name][0](members(*activations), normalization="batch")
    given = inputs(name, 5)
    net(*given)
    net.eval()
    before, states = outputs(net, given), [net.member_state(i) for i in range(5)]
    keep = [1, 3, 4]
    net.select(keep)
    assert net.n_members == 3
    after = outputs(net, [x[keep] for x in given])
    for one, other in zip(after, before, strict=True):
        torch.testing.assert_close(one, other[keep])
    for new, old in enumerate(keep):
        state = net.member_state(new)
        assert all(torch.equal(state[key], states[old][key]) for key in states[old])


@pytest.mark.parametrize("name", NETWORKS)
def test_row_optimizers_step_members_apart(name):
    net = NETWORKS[name][0](members("prelu", "relu"))
    given = inputs(name, 2)
    optimizer = RowOptimizer(OptimizerConfig(), net.flat.values, net.n_decayed)
    before = outputs(net, given)[0].detach().square().flatten(1).mean(1)
    for _ in range(20):
        net.flat.backward(outputs(net, given)[0].square().sum())
        optimizer.step(net.flat.values, net.flat.grads, [0], [0.01, 0.01], [0.1, 0.1])
    after = outputs(net, given)[0].detach().square().flatten(1).mean(1)
    assert after[0] < 0.5 * before[0]
    assert torch.equal(after[1], before[1])
    n_weights = sum(layer.weight[0].numel() for layer in net.linears)
    assert net.n_decayed == n_weights


def test_one_backward_pass_serves_encoder_and_decoder():
    encoder, decoder = (
        make_encoder(members("combu", "prelu")),
        make_decoder(members("combu", "prelu")),
    )

    def loss():
        mean, log_variance = encoder(*inputs("encoder", 2))
        raw, sigma = decoder(mean * log_variance.exp())
        return raw.square().sum() + sigma.log().sum()

    fill_gradients(loss(), encoder, decoder)
    for net in (encoder, decoder):
        own = net.flat.grads.clone()
        net.flat.backward(loss())
        torch.testing.assert_close(own, net.flat.grads)
        assert (own.abs().sum(1) > 0).all()


@pytest.mark.parametrize("normalization", ["batch", "layer"])
def test_sampling_changes_nothing(normalization):
    net = make_generator(members("combu-random", "prelu"), normalization=normalization)
    noise, condition = inputs("generator", 2)
    net(noise, condition)
    before = [net.member_state(i) for i in range(2)]
    net.eval()
    with torch.inference_mode():
        together = net(noise, condition)
        apart = torch.cat([net(noise[:, i : i + 1], condition[:, i : i + 1]) for i in range(12)], 1)
    torch.testing.assert_close(together, apart)  # a row does not depend on its batch
    for i in range(2):
        after = net.member_state(i)
        assert all(torch.equal(after[key], before[i][key]) for key in after)
    net.train()
    net(noise, condition)
    moves = [
        key for key, value in net.member_state(0).items() if not torch.equal(value, before[0][key])
    ]
    assert all("running" in key for key in moves)
    assert len(moves) == (4 if normalization == "batch" else 0)


def test_a_table_without_categories_has_no_condition():
    net = StackedGenerator(4, 0, 6, (8,), members("original"))
    noise = draw(1, 5, 4, dtype=torch.float32)
    assert torch.equal(net(noise), net(noise, torch.zeros(1, 5, 0)))


@pytest.mark.parametrize("name", NETWORKS)
def test_proxy_norm_needs_a_norm(name):
    with pytest.raises(ValueError, match="set normalization='layer'"):
        NETWORKS[name][0](members("relu"), normalization="batch", proxy_norm=True)


def test_pac_must_divide_the_batch():
    critic = make_critic(members("relu"))
    with pytest.raises(ValueError, match="judges 3 rows at a time, got a batch of 10"):
        critic(draw(1, 10, N_INPUTS))
    with pytest.raises(ValueError, match="pac=0"):
        StackedCritic(2, (4,), members("relu"), pac=0)
