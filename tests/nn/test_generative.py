"""The networks of CTGAN and TVAE against plain torch ones, member by member, and the penalty."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from combutab.activations import ACTIVATIONS, CombU, make_activation
from combutab.nn import (
    NORMALIZATIONS,
    Member,
    StackedCritic,
    StackedGenerator,
    StackedRowDecoder,
    StackedRowEncoder,
    frozen,
    gradient_penalty,
)

PAC, GROUPS, N_INPUTS = 3, 4, 5
SOME = ["combu", "combu-random", "pln-4", "la-silu", "prelu", "relu", "original"]


def draw(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def uniforms(*shape, seed=9):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def members(*activations):
    return [Member(7 + i, activation) for i, activation in enumerate(activations)]


def make_generator(of, dtype=torch.float64, widths=(8, 12), **options):
    return StackedGenerator(
        4 + 3, widths, 6, of, dtype=dtype, **{"normalization": "batch"} | options
    )


def make_critic(of, dtype=torch.float64, widths=(8, 12), **options):
    return StackedCritic(N_INPUTS, widths, of, pac=PAC, dtype=dtype, **options)


def make_encoder(of, dtype=torch.float64, widths=(8, 12), **options):
    return StackedRowEncoder(6, widths, 2 * 4, of, dtype=dtype, **options)


def make_decoder(of, dtype=torch.float64, widths=(8, 12), **options):
    return StackedRowDecoder(4, widths, 6, of, n_values=2, dtype=dtype, **options)


# the maker of each network, and the width of what it takes
NETWORKS = {
    "generator": (make_generator, 7),
    "critic": (make_critic, N_INPUTS),
    "encoder": (make_encoder, 6),
    "decoder": (make_decoder, 4),
}


def inputs(name, n_members, dtype=torch.float64):
    return draw(n_members, PAC * GROUPS, NETWORKS[name][1], dtype=dtype)


def outputs(net, given):
    out = net(given)
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

    def forward(self, h0):
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
        x = draw(2, 12, 7, seed=step) + 1
        out = net(x)
        for m in range(2):
            torch.testing.assert_close(out[m], plain[m](x[m]))
    net.eval()
    for m in range(2):
        plain[m].eval()
        torch.testing.assert_close(net(x)[m], plain[m](x[m]))


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
        x = inputs(name, 1)
        layers = [plain_linear(layer, 0) for layer in net.linears]
        expected = layers[2](F.relu(layers[1](F.relu(layers[0](x[0])))))
        out = torch.cat([o[0] for o in net(x)], -1) if name == "encoder" else net(x)[0][0]
        torch.testing.assert_close(out, expected)
    mean, log_variance = encoder(inputs("encoder", 1))
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
    assert (
        StackedRowDecoder(4, (8,), 6, members("relu"), n_values=0)(draw(1, 5, 4).float())[1].numel()
        == 0
    )


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


CONFIGURATIONS = [
    ({}, SOME),
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
        one = outputs(alone, given[i : i + 1])
        for several, single in zip(out, one, strict=True):
            torch.testing.assert_close(several[i], single[0], rtol=1e-10, atol=1e-10)
        alone.flat.backward(sum(o.sin().sum() for o in one))
        width = alone.flat.grads.shape[1]
        torch.testing.assert_close(
            stack.flat.grads[i, :width], alone.flat.grads[0], rtol=1e-10, atol=1e-10
        )
        assert set(stack.member_state(i)) == set(alone.member_state(0))


def test_pac_must_divide_the_batch():
    critic = make_critic(members("relu"))
    with pytest.raises(ValueError, match=r"3.*10"):
        critic(draw(1, 10, N_INPUTS))
    with pytest.raises(ValueError, match="pac=0"):
        StackedCritic(2, (4,), members("relu"), pac=0)


# ---- The critic's gradient penalty: against plain torch, and against finite differences ----------


def penalty_inputs(n_members, dtype=torch.float64):
    real, fake = (draw(n_members, PAC * GROUPS, N_INPUTS, seed=s, dtype=dtype) for s in (3, 4))
    return real, fake, uniforms(n_members, GROUPS).to(dtype)


def plain_penalty(critic, real, fake, mix, masks=None):
    mix = mix.repeat_interleave(PAC).unsqueeze(1)
    between = (mix * real + (1 - mix) * fake).detach().requires_grad_()
    scores = critic(between, masks)
    (grad,) = torch.autograd.grad(scores, between, torch.ones_like(scores), create_graph=True)
    norms = grad.reshape(GROUPS, -1).square().sum(1).sqrt()
    return 10 * ((norms - 1) ** 2).mean()


PENALISED = [
    *[({}, name) for name in [*SOME, "gelu", "la-hardsilu"]],
    ({"normalization": "layer"}, "relu"),
    *[({"normalization": "layer", "proxy_norm": True}, n) for n in ("relu", "combu", "original")],
    ({"normalization": "batch"}, "combu"),
]


@pytest.mark.parametrize("name", ["combu", "pln-4", "la-silu", "relu", "original", "prelu"])
@pytest.mark.parametrize("dropout", [False, True])
def test_penalty_is_that_of_a_plain_network(name, dropout):
    net = make_critic(members(name, name))
    real, fake, mix = penalty_inputs(2)
    # of keys that leave units to all rows: autograd's norm has no slope at 0
    masks = net.mask_maker().draw([5, 6], GROUPS) if dropout else None
    penalty = gradient_penalty(net, real, fake, mix, masks)
    net.flat.backward(penalty.sum())
    for m in range(2):
        spec = (lambda w: nn.LeakyReLU(0.2)) if name == "original" else name
        modules = [make_activation(spec, w).double() for w in net.widths]
        plain = PlainCritic(net, m, modules)
        own = None if masks is None else [mask[m] for mask in masks]
        expected = plain_penalty(plain, real[m], fake[m], mix[m], own)
        torch.testing.assert_close(penalty[m], expected)
        expected.backward()
        for layer, reference in zip(net.linears, plain.layers, strict=True):
            grad = net.flat.gradient_of(layer, "weight")[m]
            torch.testing.assert_close(grad, reference.weight.grad.t())
        if name == "prelu":
            for slot, module in zip(net.activations, modules, strict=True):
                grad = net.flat.gradient_of(slot.kinds[0], "p_weight")[m]
                torch.testing.assert_close(grad, module.weight.grad)


@pytest.mark.parametrize(("options", "name"), PENALISED)
def test_penaltys_derivative_is_that_of_finite_differences(options, name):
    net = make_critic(members(name, name), **options)
    real, fake, mix = penalty_inputs(2)
    masks = net.mask_maker().draw([1, 2], GROUPS)
    with torch.no_grad():  # off the values where parameters of norms and activations start
        net.flat.values.add_(0.1 * draw(*net.flat.values.shape, seed=5))

    def penalty():
        return gradient_penalty(net, real, fake, mix, masks).sum()

    net.flat.backward(penalty())
    grads, start, step = net.flat.grads.clone(), net.flat.values.clone(), 1e-6
    for seed in range(6):
        direction = draw(*start.shape, seed=20 + seed)
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                net.flat.values.copy_(start + sign * step * direction)
            values.append(penalty().item())
        slope = (values[0] - values[1]) / (2 * step)
        assert (grads * direction).sum().item() == pytest.approx(slope, rel=1e-5, abs=1e-6)
    assert grads.abs().max() > 0


def test_penalty_of_a_linear_critic():
    net = make_critic(members("relu"), widths=())
    penalty = gradient_penalty(net, *penalty_inputs(1), weight=3.0)
    weight = net.linears[0].weight.detach()[0, :, 0]
    norm = weight.norm()
    assert penalty.item() == pytest.approx(3 * (norm.item() - 1) ** 2)
    net.flat.backward(penalty.sum())
    torch.testing.assert_close(
        net.flat.gradient_of(net.linears[0], "weight")[0, :, 0], 6 * (norm - 1) * weight / norm
    )


def test_penalty_of_a_flat_critic_has_a_derivative():
    net = make_critic(members("relu"))
    with torch.no_grad():
        net.flat.values.zero_()
    penalty = gradient_penalty(net, *penalty_inputs(1))
    assert penalty.item() == pytest.approx(10)
    net.flat.backward(penalty.sum())
    assert net.flat.grads.isfinite().all()


def test_real_and_fake_rows_get_no_gradient():
    net = make_critic(members("original"))
    real, fake, mix = penalty_inputs(1)
    fake.requires_grad_()
    penalty = gradient_penalty(net, real, fake, mix)
    assert torch.autograd.grad(penalty.sum(), fake, allow_unused=True) == (None,)


def test_frozen_critics_pass_gradients_on_and_thaw():
    generator = StackedGenerator(4, (8,), N_INPUTS, members("combu"), dtype=torch.float64)
    critic = make_critic(members("combu"))
    noise = draw(1, PAC * GROUPS, 4)
    generator.flat.backward(critic(generator(noise)).sum())
    expected = generator.flat.grads.clone()
    with frozen(critic):
        assert not any(p.requires_grad for p in critic.parameters())
        generator.flat.backward(critic(generator(noise)).sum())
    assert torch.equal(generator.flat.grads, expected)
    assert all(p.requires_grad for p in critic.parameters())
    critic.linears[0].bias.requires_grad_(False)
    with pytest.raises(KeyError), frozen(critic, generator):
        raise KeyError
    thawed = [p.requires_grad for p in (*critic.parameters(), *generator.parameters())]
    assert thawed.count(False) == 1  # what was frozen before stays so
    assert not critic.linears[0].bias.requires_grad


# ---- The passes in memory of their own against autograd ------------------------------------------


EVERY = ["original", *ACTIVATIONS]


def two(activation):
    return [Member(3, activation), Member(4, activation)]


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


# widths, norms and activations meet in the chain, not in each other's code
RESIDUAL = [
    *[
        (activation, (8, 16), normalization)
        for activation in ("original", "combu", "swish", "prelu", "la-silu")
        for normalization in NORMALIZATIONS
    ],
    *[
        (activation, widths, normalization)
        for widths in ((8,), ())
        for activation, normalization in (
            ("original", "batch"),
            ("combu", "none"),
            ("prelu", "layer"),
        )
    ],
]


@pytest.mark.parametrize(("activation", "widths", "normalization"), RESIDUAL)
def test_residual_networks(activation, widths, normalization):
    net = StackedGenerator(
        7, widths, 5, two(activation), normalization=normalization, dtype=torch.float64
    )
    chain, rows, grad = net.chain(), draw(2, 10, 7), draw(2, 10, 5, seed=1)
    before = net.flat_buffers.values.clone()
    outputs = chain.forward(rows).clone()
    chain.backward(grad.clone())
    grads, after = net.flat.grads.clone(), net.flat_buffers.values.clone()
    net.flat_buffers.values.copy_(before)
    expected = net(rows)
    net.flat.backward((expected * grad).sum())
    close(outputs, expected.detach())
    close(grads, net.flat.grads)
    close(after, net.flat_buffers.values)


@pytest.mark.parametrize("activation", EVERY)
def test_plain_networks_and_their_inputs_gradient(activation):
    net = StackedRowEncoder(6, (8, 12), 8, two(activation), dtype=torch.float64)
    rows, grad = draw(2, 9, 6).requires_grad_(), draw(2, 9, 8, seed=1)
    chain = net.chain()
    for n_rows in (9, 5, 9):  # the memory serves batches of any size
        outputs = chain.forward(rows[:, :n_rows])
    outputs = outputs.clone()
    of_inputs = chain.backward(grad.clone(), to_inputs=True).clone()
    grads = net.flat.grads.clone()
    expected = torch.cat(net(rows), -1)
    net.flat.backward((expected * grad).sum())
    close(outputs, expected.detach())
    close(grads, net.flat.grads)
    (of_rows,) = torch.autograd.grad((torch.cat(net(rows), -1) * grad).sum(), rows)
    close(of_inputs, of_rows)
    net.eval()
    with torch.no_grad():
        close(torch.cat(net(rows), -1), expected.detach())


@pytest.mark.parametrize("activation", EVERY)
@pytest.mark.parametrize("normalization", ["none", "layer"])
def test_training_pass_gradients_equal_the_modules(activation, normalization):
    if (activation, normalization) == ("complex-combu", "layer"):  # of pairs
        pytest.skip("groups of odd sizes")
    critic = StackedCritic(
        5, (8, 12), two(activation), pac=2, normalization=normalization, dtype=torch.float64
    )
    rows, grad = draw(2, 4, 10).requires_grad_(), draw(2, 4, 1, seed=1)
    masks = [mask.clone() for mask in critic.mask_maker().draw([1, 2], 4)]
    drawn = [mask.clone() for mask in masks]
    found = []
    for score in (critic.training_pass(), critic.raw_outputs):
        out = score(rows, masks)
        (by_rows,) = torch.autograd.grad((out * grad).sum(), rows)
        critic.flat.backward((score(rows, masks) * grad).sum())
        found.append((out.detach(), by_rows, critic.flat.grads.clone()))
    for own, expected in zip(*found, strict=True):
        close(own, expected)
    for mask, before in zip(masks, drawn, strict=True):
        assert torch.equal(mask, before)
