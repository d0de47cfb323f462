"""The passes of generators, critics and spans against autograd, number by number."""

from __future__ import annotations

import pytest
import torch

from combutab.activations import ACTIVATIONS
from combutab.nn import (
    NORMALIZATIONS,
    Member,
    PenaltyPass,
    RowSpans,
    Scratch,
    SpanColumns,
    StackedCritic,
    StackedGenerator,
    StackedRowEncoder,
    gradient_penalty,
)

EVERY = ["original", *ACTIVATIONS]
CPU = torch.device("cpu")


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


@pytest.mark.parametrize("columns_first", [False, True])
@pytest.mark.parametrize(("activation", "widths", "normalization"), RESIDUAL)
def test_residual_networks(activation, widths, normalization, columns_first):
    net = StackedGenerator(
        4, 3, 5, widths, two(activation), normalization=normalization, dtype=torch.float64
    )
    chain, rows, grad = net.chain(), draw(2, 10, 7), draw(2, 10, 5, seed=1)
    before = net.flat_buffers.values.clone()
    chain.inputs(10).copy_(rows)
    outputs = chain.forward(chain.inputs(10), columns_first=columns_first)
    outputs = (outputs.transpose(1, 2) if columns_first else outputs).clone()
    given = grad.transpose(1, 2).contiguous() if columns_first else grad.clone()
    chain.backward(given, columns_first=columns_first)
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


def both_losses(critic, real, fake, mix, masks, n):
    """The critic's loss by its chain and penalty pass; its gradients are left in the network."""
    chain = critic.chain()
    groups = torch.cat([critic.group(real), critic.group(fake)], 1)
    scores = chain.forward(groups, [mask[:, : 2 * n].clone() for mask in masks])
    loss = scores[:, n:].mean((1, 2)) - scores[:, :n].mean((1, 2))
    slopes = torch.full_like(scores, 1 / n)
    slopes[:, :n] *= -1
    chain.backward(slopes)
    between = torch.lerp(groups[:, n:], groups[:, :n], mix.unsqueeze(-1))
    rest = [mask[:, 2 * n :] for mask in masks]
    return loss + PenaltyPass(chain).add_gradients(between, rest, 10.0)


@pytest.mark.parametrize(
    ("activation", "widths", "normalization"),
    [
        *[(activation, (8, 12), "none") for activation in EVERY],
        *[(activation, (8, 9, 10), "layer") for activation in EVERY if "complex" not in activation],
        ("complex-combu", (8, 10), "layer"),  # of pairs
        *[
            (activation, widths, normalization)
            for widths in ((8,), ())
            for activation, normalization in (("original", "layer"), ("combu", "none"))
        ],
    ],
)
def test_the_critics_loss_with_its_penalty(activation, widths, normalization):
    critic = StackedCritic(
        5, widths, two(activation), pac=2, normalization=normalization, dtype=torch.float64
    )
    real, fake = draw(2, 8, 5), draw(2, 8, 5, seed=1)
    mix = draw(2, 4, seed=2).sigmoid()
    masks = [mask.clone() for mask in critic.mask_maker().draw([1, 2], 12)]
    losses = both_losses(critic, real, fake, mix, masks, 4)
    grads = critic.flat.grads.clone()
    penalty = gradient_penalty(critic, real, fake, mix, [mask[:, 8:] for mask in masks])
    on_real, on_fake = critic(torch.cat([real, fake], 1), [m[:, :8] for m in masks]).split(4, 1)
    loss = on_fake.mean(1) - on_real.mean(1) + penalty
    critic.flat.backward(loss.sum())
    close(losses, loss.detach())
    torch.testing.assert_close(grads, critic.flat.grads, rtol=1e-9, atol=1e-11)


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
    nothing = [torch.zeros(1, 6, 4, dtype=torch.float64)]
    rows = draw(1, 2, 3)
    loss = both_losses(critic, rows, rows + 1, torch.full((1, 2), 0.3).double(), nothing, 2)
    assert loss == 10  # weight * (0 - 1)^2
    assert critic.flat.grads.isfinite().all()


LAYOUTS = {
    "few sizes": (2, [3, 3, 2], [0, 2]),
    "values only": (3, [], []),
    "spans only": (0, [2, 5], [1]),
    "padded": (1, list(range(2, 30)), [0, 7, 27]),
    "large": (1, [100, 3], [0, 1]),
}


@pytest.fixture(params=LAYOUTS)
def layout(request):
    n_values, sizes, categories = LAYOUTS[request.param]
    return RowSpans(n_values, sizes, categories, dtype=torch.float64)


def test_columns_activate_as_rows_do(layout):
    raw = draw(7, layout.width).requires_grad_()
    uniform = draw(7, layout.width - layout.n_values, seed=1).sigmoid()
    grad = draw(7, layout.width, seed=2)
    expected = layout.activate(raw, uniform=uniform)
    (of_raw,) = torch.autograd.grad(expected, raw, grad)
    columns = SpanColumns(layout, Scratch(torch.float64, CPU))
    noise = (-uniform.log()).log().t().contiguous()
    given = raw.detach().t().contiguous()
    out = columns.activate(given, noise, torch.empty_like(given))
    close(out.t(), expected.detach())
    close(columns.activate_backward(grad.t().contiguous(), out).t(), of_raw)


def test_columns_have_the_cross_entropy_of_rows(layout):
    if not layout.categories:
        return
    raw = draw(40, layout.width).requires_grad_()
    generator = torch.Generator().manual_seed(3)
    span = torch.tensor(layout.categories)[
        torch.randint(len(layout.categories), (40,), generator=generator)
    ]
    code = (torch.rand(40, generator=generator) * torch.tensor(layout.sizes)[span]).long()
    expected = layout.cross_entropy(raw, span, code)
    (of_raw,) = torch.autograd.grad(expected.sum(), raw)
    columns, grad = SpanColumns(layout, Scratch(torch.float64, CPU)), draw(layout.width, 40, seed=4)
    started = grad.clone()
    given = raw.detach().t().contiguous()
    close(columns.cross_entropy(given, span, code, grad, 0.5), expected.detach())
    close((grad - started).t(), 0.5 * of_raw)


def test_columns_have_the_cross_entropy_of_all_spans(layout):
    raw = draw(7, layout.width).requires_grad_()
    codes = torch.stack([torch.arange(7) % size for size in layout.sizes] or [torch.arange(0)], -1)
    expected = layout.cross_entropy_all(raw, codes.view(7, -1))
    logits = raw.detach().t()[layout.n_values :].contiguous()
    columns = SpanColumns(layout, Scratch(torch.float64, CPU))
    close(columns.cross_entropy_all(logits, codes.view(7, -1).t()), expected.detach())
    if layout.sizes:
        (of_raw,) = torch.autograd.grad(expected.sum(), raw)
        close(logits.t(), of_raw[:, layout.n_values :])
