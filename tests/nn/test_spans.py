"""Row layouts: all spans at once against one span after another, in float64 numpy."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import log_softmax, softmax
from torch.autograd import gradcheck, gradgradcheck

from combutab.nn import RowSpans

LAYOUTS = {
    "few sizes": (3, [2, 2, 2, 5, 5, 10]),
    "constant": (1, [1, 1, 2]),
    "many sizes": (2, [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 20, 26, 33, 40]),
    "falling sizes": (1, [40, 33, 26, 20, 17, 13, 11, 9, 8, 7, 5, 3, 3, 2]),
    "no values": (0, [3, 3]),
    "no spans": (4, []),
    "large": (1, [3, 60, 70, 70, 300, 1500]),
}


def layout(name, **options):
    return RowSpans(*LAYOUTS[name], dtype=torch.float64, **options)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def draw(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def uniforms(*shape, seed=1):
    return torch.rand(*shape, generator=generator(seed), dtype=torch.float64)


def draw_codes(spans, *shape, seed=2):
    draws = uniforms(*shape, spans.n_spans, seed=seed)
    return (draws * torch.tensor(spans.sizes, dtype=torch.float64)).long()


def columns(name):
    """(column of its first code, size) of each span, the slow way."""
    start, sizes = LAYOUTS[name]
    for size in sizes:
        yield start, size
        start += size


def test_layout():
    spans = RowSpans(2, [2, 3, 3], categories=[0, 2])
    assert (spans.width, spans.n_spans, spans.n_condition) == (10, 3, 5)
    assert spans.starts.tolist() == [2, 4, 7]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, [2]), "n_values=-1"),
        ((1, [2, 0]), r"sizes=\(2, 0\)"),
        ((1, [2, 2], [1, 0]), r"positions of the 2 spans, got \[1, 0\]"),
        ((1, [2, 2], [0, 2]), r"got \[0, 2\]"),
    ],
)
def test_an_impossible_layout_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RowSpans(*arguments)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_dense(name, kind):
    spans = layout(name)
    values, codes = draw(2, 5, spans.n_values), draw_codes(spans, 2, 5).to(kind)
    rows = spans.dense(values, codes)
    pieces = [values.numpy()]
    for i, (_, size) in enumerate(columns(name)):
        pieces.append(np.eye(size)[codes[..., i].numpy()])
    assert_allclose(rows, np.concatenate(pieces, -1))


@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_condition_is_over_the_categories_alone(kind):
    spans = RowSpans(2, [2, 3, 3, 4], categories=[1, 3])
    span, code = torch.tensor([[1, 3], [3, 1]]), torch.tensor([[0, 3], [1, 2]])
    expected = torch.zeros(2, 2, 7)
    for place, column in (((0, 0), 0), ((0, 1), 6), ((1, 0), 4), ((1, 1), 2)):
        expected[place][column] = 1
    assert torch.equal(spans.condition(span.to(kind), code.to(kind)), expected)
    for wrong in (0, 2):
        with pytest.raises(RuntimeError, match="out of bounds"):
            spans.condition(torch.tensor([wrong]), torch.tensor([1]))


def test_no_categories_give_an_empty_condition():
    spans = RowSpans(2, [2, 3], categories=[])
    nothing = torch.zeros(2, 5, dtype=torch.int64)
    assert spans.condition(nothing, nothing).shape == (2, 5, 0)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("tau", [0.2, 1.0])
@pytest.mark.parametrize("noisy", [False, True])
def test_activate_is_tanh_and_gumbel_softmax(name, tau, noisy):
    spans = layout(name)
    raw = draw(2, 5, spans.width, scale=3)
    uniform = uniforms(2, 5, spans.width - spans.n_values)
    rows = spans.activate(raw, tau=tau, uniform=uniform if noisy else None)
    x = raw.numpy().copy()
    pieces = [np.tanh(x[..., : spans.n_values])]
    if noisy:
        x[..., spans.n_values :] -= np.log(-np.log(uniform.numpy()))
    pieces += [softmax(x[..., at : at + size] / tau, axis=-1) for at, size in columns(name)]
    assert_allclose(rows, np.concatenate(pieces, -1), rtol=1e-12, atol=1e-300)


def test_noise_of_another_shape_is_refused():
    spans = layout("few sizes")
    with pytest.raises(ValueError, match=r"shape \(4, 26\).*got \(4, 29\)"):
        spans.activate(draw(4, 29), uniform=uniforms(4, 29))


@pytest.mark.parametrize("name", ["few sizes", "many sizes"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_activate_is_stable_for_extreme_input(name, dtype):
    spans = RowSpans(*LAYOUTS[name])
    raw = (draw(6, spans.width) * 1e4).to(dtype).requires_grad_()
    uniform = uniforms(6, spans.width - spans.n_values).float()
    uniform[0], uniform[1], uniform[2, ::2] = 0, 1, 1
    rows = spans.activate(raw, uniform=uniform)
    assert rows.dtype == torch.float32
    for at, size in columns(name):
        assert_allclose(rows[:, at : at + size].sum(-1).detach(), 1, rtol=1e-5)
    (grad,) = torch.autograd.grad(rows.square().sum(), raw)
    assert grad.isfinite().all()


@pytest.mark.parametrize("name", LAYOUTS)
def test_sample_inverts_the_distribution_of_each_span(name):
    spans = layout(name)
    raw, uniform = draw(2, 50, spans.width, scale=2), uniforms(2, 50, spans.n_spans)
    values, codes = spans.sample(raw, uniform)
    assert_allclose(values, np.tanh(raw[..., : spans.n_values].numpy()))
    for i, (at, size) in enumerate(columns(name)):
        p = softmax(raw[..., at : at + size].numpy(), axis=-1)
        expected = (p.cumsum(-1) <= uniform[..., i, None].numpy()).sum(-1)
        assert_allclose(codes[..., i], np.minimum(expected, size - 1))


@pytest.mark.parametrize("name", LAYOUTS)
def test_sample_without_noise_takes_the_most_probable(name):
    spans = layout(name)
    raw = draw(2, 5, spans.width)
    _, codes = spans.sample(raw)
    for i, (at, size) in enumerate(columns(name)):
        assert_allclose(codes[..., i], raw[..., at : at + size].numpy().argmax(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_impossible_codes_are_never_drawn(dtype):
    spans = RowSpans(0, [2, 3, 5, 7, 9, 11, 13, 15, 17, 19])
    raw = torch.full((3, spans.width), -1e4)
    raw[:, spans.starts + 1] = 0.0  # the second code of each span is certain
    uniform = torch.tensor([0.0, 0.5, 1.0], dtype=dtype).unsqueeze(1).expand(3, spans.n_spans)
    assert (spans.sample(raw, uniform)[1] == 1).all()


def test_sampled_codes_are_in_range_whatever_comes():
    spans = layout("many sizes")
    raw = torch.full((4, spans.width), torch.nan)
    for uniform in (None, uniforms(4, spans.n_spans)):
        _, codes = spans.sample(raw, uniform)
        assert (codes >= 0).all()
    assert (codes < torch.tensor(spans.sizes)).all()


@pytest.mark.parametrize("name", [n for n in LAYOUTS if n != "no spans"])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_cross_entropy_of_one_span_a_row(name, kind):
    spans = layout(name)
    raw, codes = draw(2, 40, spans.width, scale=2), draw_codes(spans, 2, 40)
    span = (uniforms(2, 40, seed=5) * spans.n_spans).long()
    code = codes.gather(-1, span.unsqueeze(-1)).squeeze(-1)
    loss = spans.cross_entropy(raw, span.to(kind), code.to(kind))
    where = list(columns(name))
    for m, row in np.ndindex(2, 40):
        at, size = where[span[m, row]]
        expected = -log_softmax(raw[m, row, at : at + size].numpy())[code[m, row]]
        assert loss[m, row].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_cross_entropy_of_all_spans(name, kind):
    spans = layout(name)
    raw, codes = draw(2, 5, spans.width, scale=2), draw_codes(spans, 2, 5)
    expected = np.zeros((2, 5))
    for i, (at, size) in enumerate(columns(name)):
        log_p = log_softmax(raw[..., at : at + size].numpy(), axis=-1)
        expected -= np.take_along_axis(log_p, codes[..., i, None].numpy(), -1)[..., 0]
    loss = spans.cross_entropy_all(raw, codes.to(kind))
    assert_allclose(loss, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_cross_entropy_uses_single(dtype):
    for name in ("few sizes", "large"):
        spans = layout(name)
        raw, codes = draw(6, spans.width).to(dtype), draw_codes(spans, 6)
        span = torch.arange(6) % spans.n_spans
        code = codes.gather(-1, span.unsqueeze(-1)).squeeze(-1)
        for loss, exact in (
            (spans.cross_entropy(raw, span, code), spans.cross_entropy(raw.double(), span, code)),
            (spans.cross_entropy_all(raw, codes), spans.cross_entropy_all(raw.double(), codes)),
        ):
            assert loss.dtype == torch.float32
            assert_allclose(loss, exact, rtol=1e-5)


@pytest.mark.parametrize("name", ["few sizes", "constant", "many sizes"])
def test_derivatives(name):
    spans = layout(name)
    raw, codes = draw(2, spans.width).requires_grad_(), draw_codes(spans, 2)
    uniform = uniforms(2, spans.width - spans.n_values)
    span = torch.tensor([1, spans.n_spans - 1])
    code = codes.gather(-1, span.unsqueeze(-1)).squeeze(-1)
    for function in (
        lambda x: spans.activate(x, tau=0.7, uniform=uniform),
        lambda x: spans.cross_entropy(x, span, code),
        lambda x: spans.cross_entropy_all(x, codes),
    ):
        assert gradcheck(function, raw)
        assert gradgradcheck(function, raw, fast_mode=True)


def test_derivatives_with_spans_of_unlike_sizes():
    spans = RowSpans(1, [2, 3, 66, 67], dtype=torch.float64)
    raw = draw(4, spans.width).requires_grad_()
    span, code = torch.tensor([3, 0, 2, 1]), torch.tensor([66, 1, 0, 2])
    assert gradcheck(lambda x: spans.cross_entropy(x, span, code), raw)
    assert gradgradcheck(lambda x: spans.cross_entropy(x, span, code), raw, fast_mode=True)
    (grad,) = torch.autograd.grad(spans.cross_entropy(raw, span, code).sum(), raw)
    chosen = torch.zeros(4, spans.width, dtype=torch.bool)
    for row, (at, size) in enumerate([(72, 67), (1, 2), (6, 66), (3, 3)]):
        chosen[row, at : at + size] = True
    assert ((grad != 0) == chosen).all()
