"""Predicted distributions of regressors: quantiles, probabilities, draws and CRPS agree."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import mean_absolute_error

from combutab import MLPRegressor, PackRegressor

SHORT = {"hidden_layer_sizes": (16,), "max_iter": 8, "random_state": 0}
LEVELS = (0.1, 0.5, 0.9)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    return X, 50 + 10 * X[:, 0] + rng.normal(0, 5, 300)


@pytest.fixture(scope="module")
def normal(rows):
    return MLPRegressor(loss="gaussian_nll", clip_predictions=False, **SHORT).fit(*rows)


@pytest.fixture(scope="module")
def bands(rows):
    return MLPRegressor(loss="quantile", quantiles=LEVELS, **SHORT).fit(*rows)


def test_normal_distribution_is_that_of_mean_and_std(rows, normal):
    X, _ = rows
    mean, std = normal.predict(X, return_std=True)
    expected = norm.cdf([[30.0, 60.0]], mean[:, None], std[:, None])
    np.testing.assert_allclose(normal.predict_cdf(X, [30.0, 60.0]), expected, rtol=1e-9)
    draws = normal.sample_y(X[:3], 20_000, random_state=1)
    np.testing.assert_allclose(draws.mean(1), mean[:3], atol=0.05 * std.max())
    np.testing.assert_allclose(draws.std(1), std[:3], rtol=0.03)


def test_crps_is_the_integral_of_squared_differences(rows, normal, bands):
    X, y = rows
    grid = np.linspace(-60.0, 160.0, 22_001)
    for model in (normal, bands):
        steps = y[:20, None] <= grid
        squares = (model.predict_cdf(X[:20], grid) - steps) ** 2
        expected = np.trapezoid(squares, grid, axis=1).mean()
        assert model.crps(X[:20], y[:20]) == pytest.approx(expected, rel=2e-3)


def test_quantiles_and_probabilities_are_inverse(rows, bands):
    X, _ = rows
    quantiles = bands.predict(X[:40], quantiles=LEVELS)
    for row, at in zip(X[:40], quantiles, strict=True):
        middle = (at[:-1] + at[1:]) / 2
        assert bands.predict_cdf([row], at + 1e-6).ravel() == pytest.approx([*LEVELS[:2], 1.0])
        assert bands.predict_cdf([row], middle).ravel() == pytest.approx([0.3, 0.7])
        assert bands.predict_cdf([row], [at[0] - 1, at[-1] + 1]).ravel().tolist() == [0.0, 1.0]


def test_draws_have_the_learned_quantiles(rows, bands):
    X, _ = rows
    draws = bands.sample_y(X[:3], 20_000, random_state=0)
    spread = np.ptp(bands.predict(X[:3], quantiles=LEVELS), axis=1).max()
    np.testing.assert_allclose(
        np.quantile(draws, [0.3, 0.5, 0.7], axis=1).T,
        [np.interp([0.3, 0.5, 0.7], LEVELS, q) for q in bands.predict(X[:3], quantiles=LEVELS)],
        atol=0.03 * spread,
    )
    assert np.array_equal(draws, bands.sample_y(X[:3], 20_000, random_state=0))
    assert not np.array_equal(draws, bands.sample_y(X[:3], 20_000, random_state=1))


def test_probabilities_of_clipped_predictions(rows, bands):
    X, _ = rows
    low, high = bands.target_.bounds[:, 0]
    shares = bands.predict_cdf(X, [low - 1e-6, high])
    assert (shares == [0.0, 1.0]).all()
    assert bands.sample_y(X, 50).max() <= high


def test_distribution_of_one_value_has_the_absolute_error(rows):
    X, y = rows
    single = MLPRegressor(loss="quantile", quantiles=(0.5,), **SHORT).fit(X, y)
    assert single.crps(X, y) == pytest.approx(mean_absolute_error(y, single.predict(X)))


def test_several_targets_and_missing_cells(rows):
    X, y = rows
    Y = np.column_stack([y, -2 * y])
    Y[:30, 1] = np.nan
    model = MLPRegressor(loss="gaussian_nll", **SHORT).fit(X, Y)
    assert model.predict_cdf(X, 0.0).shape == (300, 2, 1)
    assert model.sample_y(X, 4).shape == (300, 2, 4)
    known, weight = ~np.isnan(Y), np.arange(300) % 3
    scores = model.target_.crps(model._raw(X), Y)
    each = [np.average(scores[k, j], weights=weight[k]) for j, k in enumerate(known.T)]
    assert model.crps(X, Y, weight) == pytest.approx(np.mean(each))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.crps(X, Y.ravel())  # which has the numbers of the right table


def test_packs_have_distributions(rows):
    X, y = rows
    pack = PackRegressor(loss="gaussian_nll", n_members=2, max_iter=4, random_state=0).fit(X, y)
    mean, std = pack.predict(X, return_std=True)
    assert pack.predict_cdf(X, 50.0)[:, 0] == pytest.approx(norm.cdf((50 - mean) / std))
    assert 0 < pack.crps(X, y) < 50


def test_refusals(rows, bands):
    X, y = rows
    plain = MLPRegressor(**SHORT).fit(X, y)
    for method, args in (("predict_cdf", (0.0,)), ("sample_y", ()), ("crps", (y,))):
        with pytest.raises(ValueError, match=f"{method} needs loss='quantile'"):
            getattr(plain, method)(X, *args)
    with pytest.raises(ValueError, match="n_samples must be a positive integer, got 0"):
        bands.sample_y(X, 0)
    with pytest.raises(ValueError, match="values must be numbers"):
        bands.predict_cdf(X, [np.nan])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        bands.crps(X, y[:5])
    with pytest.raises(ValueError, match="2 targets, fit saw 1"):
        bands.crps(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="missing targets"):
        bands.crps(X, np.where(np.arange(300) == 3, np.nan, y))
    with pytest.raises(ValueError, match="infinity"):
        bands.crps(X, np.where(np.arange(300) == 3, np.inf, y))
