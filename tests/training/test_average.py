"""What several heads predict on average, and its loss."""

import math

import numpy as np
import pytest
import torch

from combutab.training import (
    BinaryCrossEntropy,
    CrossEntropy,
    GaussianNLL,
    Pinball,
    make_regression_loss,
)

M, B, HEADS = 2, 5, 3


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_head(raw):
    return raw.unflatten(1, (B, HEADS))


def test_classes_have_the_mean_of_the_probabilities():
    raw, y = 3 * draw(M, B * HEADS, 4), torch.arange(M * B).view(M, B) % 4
    loss = CrossEntropy()
    p = by_head(raw).softmax(-1).mean(2)
    average = loss.average(raw, HEADS)
    torch.testing.assert_close(average.softmax(-1), p)
    expected = -p.gather(-1, y[..., None])[..., 0].log()
    torch.testing.assert_close(loss.rows(average, y), expected)
    assert (expected < by_head(loss.rows(raw, y.repeat_interleave(HEADS, 1))[..., None])[..., 0]
            .mean(2)).all()  # Jensen's inequality  # fmt: skip
    assert torch.equal(loss.point(average), p.argmax(-1))


def test_labels_have_the_mean_of_the_probabilities():
    raw = torch.cat([draw(M, B * HEADS, 2), 60 + draw(M, B * HEADS, 1)], -1)  # and a certain one
    average = BinaryCrossEntropy().average(raw, HEADS)
    torch.testing.assert_close(torch.sigmoid(average), torch.sigmoid(by_head(raw)).mean(2))
    assert average[..., 2].isfinite().all()
    assert (average[..., 2] > 55).all()


@pytest.mark.parametrize("name", ["squared_error", "absolute_error", "huber", "poisson"])
def test_points_are_means_of_points(name):
    raw, loss = draw(M, B * HEADS, 2), make_regression_loss(name, ())
    points = by_head(loss.point(raw)).mean(2)
    torch.testing.assert_close(loss.point(loss.average(raw, HEADS)), points)


def test_quantiles_are_means_of_each_heads_quantiles_in_order():
    raw, loss = draw(M, B * HEADS, 4), Pinball(n_per_target=2, quantiles=(0.2, 0.6))
    ordered = np.sort(by_head(raw).numpy().reshape(M, B, HEADS, 2, 2), -1)  # targets, quantiles
    expected = torch.from_numpy(ordered.mean(2).reshape(M, B, 4))
    torch.testing.assert_close(loss.average(raw, HEADS), expected)
    alone = torch.from_numpy(np.sort(raw.numpy().reshape(M, -1, 2, 2), -1).reshape(M, -1, 4))
    assert torch.equal(loss.average(raw, 1), alone)


def test_normals_have_the_moments_of_their_mixture():
    raw, loss = draw(M, B * HEADS, 4), GaussianNLL()
    raw[:, : HEADS * 2, 1] = -40.0  # at the floor
    raw[:, :HEADS, 0] = 0.3  # and of one mean
    mean, log_variance = (by_head(part) for part in loss.moments(raw))
    found, log_found = loss.moments(loss.average(raw, HEADS))
    torch.testing.assert_close(found, mean.mean(2))
    variance = log_variance.exp().mean(2) + mean.var(2, correction=0)
    torch.testing.assert_close(log_found, variance.log())
    assert log_found[0, 0, 0] == pytest.approx(math.log(math.exp(-14)), abs=1e-6)
