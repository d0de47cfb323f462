"""The critic's gradient penalty: against plain torch, and against finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from combutab.activations import make_activation
from combutab.nn import StackedGenerator, frozen, gradient_penalty
from tests.nn.test_generative import (
    ACTIVATIONS,
    GROUPS,
    N_INPUTS,
    NETWORKS,
    PAC,
    PlainCritic,
    draw,
    inputs,
    make_critic,
    make_generator,
    members,
    outputs,
    uniforms,
)


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
    *[({}, name) for name in [*ACTIVATIONS, "gelu", "la-hardsilu"]],
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


@pytest.mark.parametrize(("options", "name"), PENALISED)
def test_penalty_of_a_member_is_the_same_in_any_stack(options, name):
    of = members("tanh", name, name, "swish")
    net, i = make_critic(of, **options), 1
    real, fake, mix = penalty_inputs(len(of))
    penalty = gradient_penalty(net, real, fake, mix)
    net.flat.backward(penalty.sum())
    alone = make_critic([of[i]], **options)
    own = gradient_penalty(alone, *(t[i : i + 1] for t in (real, fake, mix)))
    alone.flat.backward(own.sum())
    torch.testing.assert_close(penalty[i], own[0], rtol=1e-10, atol=1e-10)
    width = alone.flat.grads.shape[1]
    torch.testing.assert_close(
        net.flat.grads[i, :width], alone.flat.grads[0], rtol=1e-10, atol=1e-10
    )


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
    generator = StackedGenerator(4, 0, N_INPUTS, (8,), members("combu"), dtype=torch.float64)
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


@pytest.mark.parametrize("name", ["original", "combu", "pln-4", "la-silu"])
def test_works_under_autocast(name):
    generator = make_generator(members(name), dtype=torch.float32)
    critic = make_critic(members(name), dtype=torch.float32)
    given = inputs("generator", 1, torch.float32)
    real, fake, mix = penalty_inputs(1, torch.float32)
    exact = generator(*given), gradient_penalty(critic, real, fake, mix)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = generator(*given), gradient_penalty(critic, real, fake, mix)
    for one, other in zip(rough, exact, strict=True):
        torch.testing.assert_close(one.float(), other, rtol=0.1, atol=0.1)
    critic.flat.backward(rough[1].sum())
    assert critic.flat.grads.isfinite().all()
    assert critic.flat.grads.abs().max() > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("options", "name"), PENALISED)
def test_gpu_agrees_with_cpu(options, name):
    results = []
    for device in ("cpu", "cuda"):
        out = []
        for network, (make, _) in NETWORKS.items():
            net = make(members(name, name), device=device, **options)
            net.flat.backward(
                sum(o.sin().sum() for o in outputs(net, [x.to(device) for x in inputs(network, 2)]))
            )
            out.append(net.flat.grads)
            if network == "critic":
                net.flat.backward(
                    gradient_penalty(net, *(t.to(device) for t in penalty_inputs(2))).sum()
                )
                out.append(net.flat.grads.clone())
        results.append([o.cpu() for o in out])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
