"""The passes of generators and critics in memory of their own against autograd."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from combutab.activations import ACTIVATIONS
from combutab.nn import (
    NORMALIZATIONS,
    Member,
    StackedCritic,
    StackedGenerator,
    StackedRowEncoder,
    frozen,
    gradient_penalty,
)

EVERY = ["original", *ACTIVATIONS]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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
        4, 3, 5, widths, two(activation), normalization=normalization, dtype=torch.float64
    )
    chain, rows, grad = net.chain(), draw(2, 10, 7), draw(2, 10, 5, seed=1)
    before = net.flat_buffers.values.clone()
    chain.inputs(10).copy_(rows)
    outputs = chain.forward(chain.inputs(10)).clone()
    chain.backward(grad.clone())
    grads, after = net.flat.grads.clone(), net.flat_buffers.values.clone()
    net.flat_buffers.values.copy_(before)
    expected = net(rows[..., :4], rows[..., 4:])
    net.flat.backward((expected * grad).sum())
    close(outputs, expected.detach())
    close(grads, net.flat.grads)
    close(after, net.flat_buffers.values)


@pytest.mark.parametrize("activation", EVERY)
def test_residual_networks_in_single_precision(activation):
    net = StackedGenerator(4, 3, 5, (16, 8), two(activation), normalization="none")
    chain, rows, grad = net.chain(), draw(2, 10, 7).float(), draw(2, 10, 5, seed=1).float()
    outputs = chain.forward(rows).clone()
    chain.backward(grad.clone())
    grads = net.flat.grads.clone()
    expected = net(rows[..., :4], rows[..., 4:])
    net.flat.backward((expected * grad).sum())
    torch.testing.assert_close(outputs, expected.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(grads, net.flat.grads, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("activation", EVERY)
def test_plain_networks_and_their_inputs_gradient(activation):
    net = StackedRowEncoder(6, (8, 12), 4, two(activation), dtype=torch.float64)
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
def test_the_pass_of_training_is_differentiated_as_the_modules_are(activation, normalization):
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


def test_the_pass_of_training_leaves_out_what_is_frozen():
    critic = StackedCritic(5, (8,), two("relu"), pac=1, dtype=torch.float64)
    score, rows = critic.training_pass(), draw(2, 4, 5).requires_grad_()
    with frozen(critic):
        assert not score(rows.detach()).requires_grad
        out = score(rows)
    critic.flat.grads.fill_(7.0)
    (by_rows,) = torch.autograd.grad(out.sum(), rows)
    (expected,) = torch.autograd.grad(critic.raw_outputs(rows).sum(), rows)
    close(by_rows, expected)
    assert (critic.flat.grads[:, : critic.n_decayed] == 7).all()


def test_lowered_precision_is_left_to_the_modules():
    critic = StackedCritic(5, (8,), two("relu"), pac=1)
    autocast = partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    assert critic.training_pass(autocast)(draw(2, 4, 5).float()).dtype is torch.bfloat16


@pytest.mark.parametrize("activation", EVERY)
def test_the_critics_judgement_of_the_generator(activation):
    critic = StackedCritic(5, (8, 12), two(activation), pac=2, dtype=torch.float64)
    fake = draw(2, 8, 5).requires_grad_()
    masks = [mask.clone() for mask in critic.mask_maker().draw([1, 2], 4)]
    loss = -critic(fake, masks).mean(1)
    (of_fake,) = torch.autograd.grad(loss.sum(), fake)
    chain = critic.chain()
    own = -chain.forward(critic.group(fake.detach()), masks).mean((1, 2))
    slopes = torch.full((2, 4, 1), -1 / 4, dtype=torch.float64)
    critic.flat.grads.fill_(7.0)
    gradient = chain.backward(slopes, to_inputs=True, to_weights=False)
    close(own, loss.detach())
    close(gradient.view(2, 8, 5), of_fake)
    assert (critic.flat.grads[:, : critic.n_decayed] == 7).all()


def test_a_slope_of_zero_has_a_finite_gradient():
    critic = StackedCritic(3, (4,), [Member(0, "relu")], pac=1, dtype=torch.float64)
    nothing = [torch.zeros(1, 2, 4, dtype=torch.float64)]
    rows = draw(1, 2, 3)
    penalty = gradient_penalty(critic, rows, rows + 1, torch.full((1, 2), 0.3).double(), nothing)
    critic.flat.backward(penalty.sum())
    torch.testing.assert_close(penalty.item(), 10.0)  # weight * (0 - 1)^2
    assert critic.flat.grads.isfinite().all()
