"""The written-out passes of block networks and spans against autograd, number by number."""

from __future__ import annotations

import pytest
import torch

from combutab.nn import (
    BlockPass,
    CriticPass,
    Member,
    RowSpans,
    Scratch,
    SpanColumns,
    StackedCritic,
    StackedGenerator,
    StackedRowEncoder,
    gradient_penalty,
)

ACTIVATIONS = ["original", "relu", "combu", "elu", "selu", "swish", "nlrelu", "gelu", "tanh"]
CPU = torch.device("cpu")


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def two(activation):
    return [Member(3, activation), Member(4, activation)]


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("columns_first", [False, True])
@pytest.mark.parametrize("normalization", ["batch", "none"])
@pytest.mark.parametrize("widths", [(8, 12), (6,), ()], ids=str)
@pytest.mark.parametrize("activation", ["original", "combu", "swish"])
def test_residual_networks(activation, widths, normalization, columns_first):
    net = StackedGenerator(
        4, 3, 5, widths, two(activation), normalization=normalization, dtype=torch.float64
    )
    rows, grad = draw(2, 10, 7), draw(2, 10, 5, seed=1)
    before = [net.flat_buffers.values.clone()]
    scratch, outputs = Scratch(torch.float64, CPU), []
    for m in range(2):
        run = BlockPass(net, m, scratch)
        run.inputs(10).copy_(rows[m])
        out = run.forward(10, columns_first=columns_first)
        outputs.append((out.t() if columns_first else out).clone())
        given = grad[m].t().contiguous() if columns_first else grad[m]
        run.backward(given, columns_first=columns_first)
    grads, after = net.flat.grads.clone(), net.flat_buffers.values.clone()
    net.flat_buffers.values.copy_(before[0])
    expected = net(rows[..., :4], rows[..., 4:])
    net.flat.backward((expected * grad).sum())
    close(torch.stack(outputs), expected.detach())
    close(grads, net.flat.grads)
    close(after, net.flat_buffers.values)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_plain_networks_and_their_inputs_gradient(activation):
    net = StackedRowEncoder(6, (8, 12), 4, two(activation), dtype=torch.float64)
    rows, grad = draw(2, 9, 6).requires_grad_(), draw(2, 9, 8, seed=1)
    scratch, outputs, of_inputs = Scratch(torch.float64, CPU), [], []
    for m in range(2):
        run = BlockPass(net, m, scratch)
        for n_rows in (9, 5, 9):  # the memory serves batches of any size
            run.inputs(n_rows).copy_(rows[m, :n_rows].detach())
            out = run.forward(n_rows)
        outputs.append(out.clone())
        of_inputs.append(run.backward(grad[m].clone(), to_inputs=True).clone())
    grads = net.flat.grads.clone()
    expected = torch.cat(net(rows), -1)
    net.flat.backward((expected * grad).sum())
    close(torch.stack(outputs), expected.detach())
    close(grads, net.flat.grads)
    (of_rows,) = torch.autograd.grad((torch.cat(net(rows), -1) * grad).sum(), rows)
    close(torch.stack(of_inputs), of_rows)


@pytest.mark.parametrize("widths", [(8, 12), (6,), (5, 6, 7)], ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_critics_loss_with_its_penalty(activation, widths):
    critic = StackedCritic(5, widths, two(activation), pac=2, dtype=torch.float64)
    real, fake = draw(2, 8, 5), draw(2, 8, 5, seed=1)
    mix = draw(2, 4, seed=2).sigmoid()
    masks = [mask.clone() for mask in critic.mask_maker().draw([1, 2], 12)]
    scratch, losses = Scratch(torch.float64, CPU), []
    for m in range(2):
        run = CriticPass(critic, m, scratch)
        run.inputs(12)[:8].view(16, 5).copy_(torch.cat([real[m], fake[m]]))
        losses.append(run.fill_gradients(4, mix[m], [mask[m] for mask in masks]))
    grads = critic.flat.grads.clone()
    penalty = gradient_penalty(critic, real, fake, mix, [mask[:, 8:] for mask in masks])
    on_real, on_fake = critic(torch.cat([real, fake], 1), [m[:, :8] for m in masks]).split(4, 1)
    loss = on_fake.mean(1) - on_real.mean(1) + penalty
    critic.flat.backward(loss.sum())
    close(torch.stack(losses), loss.detach())
    close(grads, critic.flat.grads)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_critics_judgement_of_the_generator(activation):
    critic = StackedCritic(5, (8, 12), two(activation), pac=2, dtype=torch.float64)
    fake = draw(2, 8, 5).requires_grad_()
    masks = [mask.clone() for mask in critic.mask_maker().draw([1, 2], 4)]
    loss = -critic(fake, masks).mean(1)
    (of_fake,) = torch.autograd.grad(loss.sum(), fake)
    for m in range(2):
        run = CriticPass(critic, m, Scratch(torch.float64, CPU))
        run.inputs(4).view(8, 5).copy_(fake[m].detach())
        own, gradient = run.generator_loss(4, [mask[m] for mask in masks])
        close(own, loss[m].detach())
        close(gradient.view(8, 5), of_fake[m])


def test_a_slope_of_zero_has_a_finite_gradient():
    critic = StackedCritic(3, (4,), [Member(0, "relu")], pac=1, dtype=torch.float64)
    run = CriticPass(critic, 0, Scratch(torch.float64, CPU))
    run.inputs(6)[:4].normal_()
    nothing = [torch.zeros(6, 4, dtype=torch.float64)]
    loss = run.fill_gradients(2, torch.rand(2), nothing)
    assert loss == 10  # weight * (0 - 1)^2
    assert critic.flat.grads.isfinite().all()


def test_passes_know_what_they_cannot_do():
    def generator(activation, normalization="batch"):
        return StackedGenerator(2, 0, 3, (8,), two(activation), normalization=normalization)

    assert BlockPass.fits(generator("combu"))
    assert not BlockPass.fits(generator("prelu"))  # parameters of its own
    assert not BlockPass.fits(generator("pln-4"))
    assert not BlockPass.fits(generator("relu", "layer"))
    assert CriticPass.fits(StackedCritic(3, (4,), two("relu")))
    assert not CriticPass.fits(StackedCritic(3, (4,), two("la-silu")))
    assert not CriticPass.fits(StackedCritic(3, (), two("relu")))


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
    out = columns.activate(raw.detach().t().contiguous(), noise)
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
