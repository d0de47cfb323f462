"""The greedy selection, against plain numpy on pools that are small enough to try everything."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch

from combutab.estimators._pack_training import Pool, pick_from_folds, pick_greedily
from combutab.training import (
    BinaryCrossEntropy,
    CrossEntropy,
    GaussianNLL,
    Pinball,
    make_regression_loss,
)

N_ROWS, N_NETWORKS = 9, 5
QUANTILES = (0.1, 0.5, 0.9)


def log_loss(probabilities, y, weight):
    return np.average(-np.log(probabilities[np.arange(len(y)), y]), weights=weight)


def draw(seed=0):
    """Logits of a few networks for three classes, none of which is good everywhere."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N_NETWORKS, N_ROWS, 3)) * 2, rng.integers(0, 3, N_ROWS)


def softmax(logits):
    raised = np.exp(logits)
    return raised / raised.sum(-1, keepdims=True)


def class_pool(logits, y, weight=None):
    y, loss = torch.from_numpy(y), CrossEntropy()
    raw = torch.from_numpy(logits)
    averaged = torch.stack([loss.averaged(one, y) for one in raw])
    return Pool(loss, averaged, y, None if weight is None else torch.from_numpy(weight))


@pytest.mark.parametrize("weight", [None, np.arange(1.0, N_ROWS + 1)])
@pytest.mark.parametrize("seed", range(3))
def test_each_pick_is_the_best_that_can_be_added(seed, weight):
    logits, y = draw(seed)
    picks, losses = pick_greedily(class_pool(logits, y, weight), 8)
    probabilities, before = softmax(logits), []
    for pick, loss in zip(picks, losses, strict=True):
        tried = [
            log_loss(probabilities[[*before, k]].mean(0), y, weight) for k in range(N_NETWORKS)
        ]
        assert pick == int(np.argmin(tried))
        assert loss == pytest.approx(min(tried))
        before.append(pick)
    assert len(set(picks)) < len(picks)  # with replacement


def test_the_first_is_the_best_alone_and_no_multiset_is_much_better_than_the_prefix():
    logits, y = draw()
    picks, losses = pick_greedily(class_pool(logits, y), 4)
    probabilities = softmax(logits)
    every = {
        chosen: log_loss(probabilities[list(chosen)].mean(0), y, None)
        for size in range(1, 5)
        for chosen in combinations_with_replacement(range(N_NETWORKS), size)
    }
    assert losses[0] == pytest.approx(min(every[(k,)] for k in range(N_NETWORKS)))
    assert min(every.values()) - 1e-12 <= min(losses) <= losses[0]
    assert every[tuple(sorted(picks))] == pytest.approx(losses[-1])


def test_of_equal_networks_the_first_is_picked_and_a_nan_never():
    logits, y = draw()
    same = np.stack([np.full_like(logits[1], np.nan), logits[1], logits[1]])
    assert pick_greedily(class_pool(same, y), 3)[0] == [1, 1, 1]


def test_a_large_pool_is_looked_at_in_parts(monkeypatch):
    from combutab.estimators import _pack_training

    whole = pick_greedily(class_pool(*draw()), 6)
    monkeypatch.setattr(_pack_training, "_VALUES", 1)
    assert pick_greedily(class_pool(*draw()), 6) == whole


def test_folds_give_equally_many_and_their_mean_loss_is_the_least_on_the_way():
    pools = [class_pool(*draw(seed)) for seed in range(3)]
    paths = [pick_greedily(pool, 6)[1] for pool in pools]
    picks, losses, alone = pick_from_folds(pools, 6)
    assert len({len(own) for own in picks}) == 1
    assert np.mean(losses) == pytest.approx(np.mean(paths, axis=0).min())
    assert alone == [path[0] for path in paths]
    assert np.mean(losses) <= np.mean(alone)


LOSSES = [
    CrossEntropy(),
    BinaryCrossEntropy(),
    GaussianNLL(),
    *(make_regression_loss(n, ()) for n in ("squared_error", "absolute_error", "huber", "poisson")),
    make_regression_loss("quantile", QUANTILES),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_an_ensemble_of_one_has_its_loss_and_of_two_alike_too(loss):
    generator = torch.Generator().manual_seed(0)
    n_outputs = 3 if isinstance(loss, CrossEntropy) else 2 * loss.n_per_target
    raw = torch.randn(N_ROWS, n_outputs, generator=generator, dtype=torch.float64)
    if isinstance(loss, CrossEntropy):
        y = torch.randint(0, 3, (N_ROWS,), generator=generator)
    else:
        y = torch.randint(0, 2, (N_ROWS, 2), generator=generator).double()
    if isinstance(loss, Pinball):  # which rearranges quantiles that cross
        raw = raw.unflatten(-1, (2, -1)).sort(-1).values.flatten(-2)
    averaged = loss.averaged(raw, y)
    torch.testing.assert_close(loss.rows_of_average(averaged, y), loss.rows(raw, y))


def test_two_networks_quantiles_are_averaged_in_their_order():
    loss, y = make_regression_loss("quantile", (0.2, 0.6)), torch.tensor([[2.0]])
    raws = torch.tensor([[[3.0, 1.0]], [[0.0, 5.0]]])  # the first network's cross
    average = torch.stack([loss.averaged(raw, y) for raw in raws]).mean(0)
    assert average.tolist() == [[0.5, 4.0]]
    expected = (0.2 * (2.0 - 0.5) + 0.4 * (4.0 - 2.0)) / 2
    assert float(loss.rows_of_average(average, y)) == pytest.approx(expected)


def test_two_normals_average_to_their_mixtures_moments():
    loss, y = GaussianNLL(), torch.tensor([[0.5]], dtype=torch.float64)
    raws = torch.tensor([[[0.0, 0.0]], [[2.0, 1.0]]], dtype=torch.float64)
    average = torch.stack([loss.averaged(raw, y) for raw in raws]).mean(0)
    var = (np.exp([float(loss.moments(raw)[1]) for raw in raws])).mean() + 1.0  # between: 1
    expected = 0.5 * (np.log(var) + (0.5 - 1.0) ** 2 / var)
    assert float(loss.rows_of_average(average, y)) == pytest.approx(expected)
