"""The products of a written-out step, whichever library serves them, against float64."""

from __future__ import annotations

import pytest
import torch

from combutab.nn import BlockPass, Member, Scratch, StackedGenerator, _one_dnn
from combutab.nn._member_products import (
    add_product,
    affine,
    affine_columns,
    product,
    weight_gradient,
)

SIZES = [(7, 5, 3), (500, 389, 256), (150, 640, 64), (500, 256, 98)]  # rows, inputs, outputs


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def part(x):
    """The same numbers as columns of wider rows."""
    wide = torch.full((x.shape[0], x.shape[1] + 4), torch.nan)
    wide[:, :-4] = x
    return wide[:, :-4]


def columns(x):
    return x.t().contiguous().t()


@pytest.fixture(params=["oneDNN", "MKL"])
def library(request, monkeypatch):
    if request.param == "MKL":
        monkeypatch.setattr(_one_dnn, "_has_one_dnn", lambda: False)


def close(actual, expected):
    error = (actual.double() - expected).abs().amax() / expected.abs().amax()
    assert error < 1e-5


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("lay", [torch.clone, part, columns])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_are_those_of_float64(size, lay):
    n, k, m = size
    x, weight, bias, grad = draw(n, k), draw(k, m, seed=1), draw(m, seed=2), draw(n, m, seed=3)
    exact_x, exact_weight, exact_bias, exact_grad = (t.double() for t in (x, weight, bias, grad))
    out = part(torch.empty(n, m))
    assert affine(lay(x), weight, bias, out) is out
    close(out, exact_x @ exact_weight + exact_bias)
    close(product(lay(x), weight, out), exact_x @ exact_weight)
    add_product(lay(grad), weight.t(), rows := part(x.clone()))
    close(rows, exact_x + exact_grad @ exact_weight.t())
    assert rows._base[:, -4:].isnan().all()
    by_columns = affine_columns(lay(x), weight, bias, torch.empty(m, n))
    close(by_columns.t(), exact_x @ exact_weight + exact_bias)
    for other in (torch.clone, part, columns):
        close(weight_gradient(lay(x), other(grad), torch.empty(k, m)), exact_x.t() @ exact_grad)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("columns_first", [False, True])
def test_a_member_has_the_numbers_that_it_has_alone(columns_first):
    members = [Member(1, "relu"), Member(2, "combu")]
    rows, grad = draw(2, 500, 133), draw(2, 98, 500, seed=1)

    def gradients(network):
        scratch = Scratch(torch.float32, torch.device("cpu"))
        for i in range(network.n_members):
            run, at = BlockPass(network, i, scratch), network.members[i].seed - 1
            run.inputs(500).copy_(rows[at])
            run.forward(500, columns_first=columns_first)
            run.backward(grad[at] if columns_first else grad[at].t(), columns_first=columns_first)
        return network.flat.grads

    together = gradients(StackedGenerator(128, 5, 98, (256, 256), members))
    for i, member in enumerate(members):
        alone = gradients(StackedGenerator(128, 5, 98, (256, 256), [member]))
        assert torch.equal(together[i, : alone.shape[1]], alone[0])
