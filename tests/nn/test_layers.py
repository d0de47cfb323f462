"""Stacked layers against torch's own, member by member."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from combutab.nn import (
    INITIALISATIONS,
    MaskMaker,
    StackedActivation,
    StackedLinear,
    StackedNorm,
)
from combutab.nn._layers import StackedEmbedding


def generators(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


@pytest.mark.parametrize("init", INITIALISATIONS)
def test_linear_is_each_member_alone(init):
    stacked = StackedLinear(5, 3, generators(1, 2), init=init)
    x = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    out = stacked(x)
    for m in range(2):
        expected = x[m] @ (stacked.scale * stacked.weight[m]) + stacked.bias[m]
        torch.testing.assert_close(out[m], expected)
    alone = StackedLinear(5, 3, generators(2), init=init)
    assert torch.equal(alone.weight[0], stacked.weight[1])


@pytest.mark.parametrize(
    ("init", "std"),
    [
        ("torch", 1 / math.sqrt(3 * 400)),
        ("kaiming", math.sqrt(2 / 400)),
        ("xavier", math.sqrt(2 / (400 + 300))),
        ("lecun", math.sqrt(1 / 400)),
        ("ntk", math.sqrt(1 / 400)),
    ],
)
def test_initial_spread(init, std):
    layer = StackedLinear(400, 300, generators(0), init=init)
    assert (layer.scale * layer.weight).std().item() == pytest.approx(std, rel=0.02)


def test_unknown_initialisation():
    with pytest.raises(ValueError, match="'orthogonal'"):
        StackedLinear(2, 2, generators(0), init="orthogonal")


def test_embedding_looks_up_each_members_own_table():
    table = StackedEmbedding(4, 3, generators(1, 2))
    codes = torch.tensor([[0, 3], [1, 0]])
    vectors = table(codes)
    assert torch.equal(vectors[0], table.weight[0][codes[0]])
    assert torch.equal(vectors[1], table.weight[1][codes[1]])
    assert vectors[0, 0].abs().max() == 0  # code 0 is for unseen categories


def test_embedding_of_ordered_codes_starts_with_their_ranks():
    weight = StackedEmbedding(5, 2, generators(1, 2), n_ordered=3).weight  # the last is missing
    ranks = torch.tensor([0.0, -(1.5**0.5), 0.0, 1.5**0.5, 0.0], dtype=weight.dtype)
    torch.testing.assert_close(weight[..., 0], ranks.expand(2, 5))
    assert (weight[:, 1:, 1] != 0).all()


NORM_REFERENCES = {
    "layer": lambda x: F.layer_norm(x, (16,)),
    "rms": lambda x: F.rms_norm(x, (16,), eps=1e-5),
    "group": lambda x: F.group_norm(x.reshape(-1, 16), 2).reshape(x.shape),
}


@pytest.mark.parametrize("kind", NORM_REFERENCES)
def test_norm_against_torch(kind):
    norm = StackedNorm(kind, 16, 2).double()
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(norm(x), NORM_REFERENCES[kind](x))
    with torch.no_grad():
        norm.gain.mul_(3)
    torch.testing.assert_close(norm(x), 3 * NORM_REFERENCES[kind](x))


@pytest.mark.parametrize("kind", ["pln", "pls"])
def test_parallel_norms_have_no_parameters(kind):
    norm = StackedNorm(kind, 16, 2)
    assert list(norm.parameters()) == []
    out = norm(torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0)))
    groups = out.unflatten(-1, (2, 8))
    torch.testing.assert_close(groups.square().mean(-1), torch.ones(2, 5, 2), rtol=1e-3, atol=0)


def test_batch_norm_against_torch():
    norm, reference = StackedNorm("batch", 6, 1), nn.BatchNorm1d(6)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        x = torch.randn(1, 8, 6, generator=generator) * 2 + 1
        torch.testing.assert_close(norm(x)[0], reference(x[0]))
    torch.testing.assert_close(norm.running_mean[0], reference.running_mean)
    torch.testing.assert_close(norm.running_var[0], reference.running_var)
    norm.eval(), reference.eval()
    torch.testing.assert_close(norm(x)[0], reference(x[0]))


def test_batch_norm_ignores_padding_rows():
    norm, alone = StackedNorm("batch", 6, 2), StackedNorm("batch", 6, 1)
    x = torch.randn(2, 8, 6, generator=torch.Generator().manual_seed(0))
    x[1, 5:] = 1e6
    valid = torch.ones(2, 8, dtype=torch.bool)
    valid[1, 5:] = False
    torch.testing.assert_close(norm(x, valid)[1:, :5], alone(x[1:, :5]))
    torch.testing.assert_close(norm.running_var[1:], alone.running_var)


def test_batch_norm_of_one_row_uses_running_statistics():
    norm = StackedNorm("batch", 4, 1)
    x = torch.full((1, 1, 4), 3.0)
    torch.testing.assert_close(norm(x), x / math.sqrt(1 + 1e-5))
    assert norm.running_mean.abs().max() == 0


def test_group_norm_says_which_width_it_cannot_take():
    with pytest.raises(ValueError, match=r"8.*width=10"):
        StackedNorm("group", 10, 1)


def test_masks_keep_what_their_scale_says():
    maker = MaskMaker([40, 24], [0.0, 0.1, 0.5])
    masks = torch.cat(maker.draw([1, 2, 3], 2000), dim=-1)
    assert maker.keep_probabilities == [1.0, 230 / 256, 0.5]
    for m, keep in enumerate(maker.keep_probabilities):
        values = masks[m].unique().tolist()
        assert values == ([1.0] if keep == 1 else [0.0, np.float32(1 / keep)])
        share = (masks[m] > 0).double().mean().item()
        assert share == pytest.approx(keep, abs=5 * math.sqrt(keep * (1 - keep) / 128_000) + 1e-12)


def test_a_small_rate_still_drops():
    assert MaskMaker([8], [1e-6]).keep_probabilities == [255 / 256]
    assert not MaskMaker([8], [0.0]).active
    assert not MaskMaker([], [0.5]).active


def test_dropout_masks_do_not_depend_on_stack():
    stacked = [m.clone() for m in MaskMaker([12, 5], [0.3, 0.5]).draw([1, 2], 9)]
    alone = MaskMaker([12, 5], [0.5]).draw([2], 6)
    for several, one in zip(stacked, alone, strict=True):
        assert torch.equal(several[1, :6], one[0])
    again = MaskMaker([12, 5], [0.5])
    again.draw([2], 30)  # larger first: the memory is reused
    assert all(torch.equal(a, b) for a, b in zip(again.draw([2], 6), alone, strict=True))


class Scale(nn.Module):
    """A user's activation with a parameter of no particular shape, and a buffer that changes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * self.weight.sum() + self.weight[0]


class Stubborn(Scale):
    """One whose way depends on the numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if float(x.detach().sum()) > -1e30 else x


@pytest.mark.parametrize("spec", ["prelu", "pelu", "combu-random", Scale, Stubborn])
def test_modules_with_state_act_member_by_member(spec):
    specs, seeds = ["relu", spec, spec, spec, "tanh"], [1, 2, 3, 4, 5]
    slot = StackedActivation(specs, 8, seeds).double()
    x = torch.randn(5, 6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x.requires_grad_()
    out = slot(x)
    for m in (1, 2, 3):
        alone = StackedActivation([spec], 8, [seeds[m]]).double()
        torch.testing.assert_close(out[m], alone(x[m : m + 1])[0])
    grads = torch.autograd.grad(out.sum(), [x, *slot.parameters()])
    assert all(torch.isfinite(g).all() for g in grads)


def test_module_draws_follow_the_member_seed():
    before = torch.get_rng_state()
    a, b, c = (next(StackedActivation([Scale], 4, [seed]).parameters()) for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), before)


def test_proxy_norm_has_a_state_a_member():
    slot = StackedActivation(["relu", "relu"], 8, [1, 2], proxy_norm=True)
    with torch.no_grad():
        for name, parameter in slot.named_parameters():
            if name.endswith("gamma") and "proxy" not in name:
                parameter[1].mul_(2)
    x = torch.ones(2, 3, 8)
    out = slot(x)
    assert not torch.allclose(out[0], out[1])
    first = StackedActivation(["relu"], 8, [1], proxy_norm=True)
    torch.testing.assert_close(out[:1], first(x[:1]))
