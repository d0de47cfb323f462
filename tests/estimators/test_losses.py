"""The regressor's losses: quantiles, Gaussian, Poisson, robust ones."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from combutab import MLPRegressor, PackRegressor, TabMRegressor

pytestmark = pytest.mark.usefixtures("paper_defaults")

INF = float("inf")


def _heteroscedastic(n=3000, seed=0):
    """y ~ N(mean, std) whose mean and std both depend on x."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=n)
    mean, std = 10 * np.sin(x), 1 + 2 * np.abs(x)
    return x[:, None], mean + std * rng.normal(size=n), mean, std


X, Y = _heteroscedastic()[:2]
X_NEW, Y_NEW, MEAN_NEW, STD_NEW = _heteroscedastic(seed=1)
PARAMETERS = {
    "hidden_layer_sizes": (48, 48),
    "max_iter": 60,
    "learning_rate_init": 0.005,
    "learning_rate": "cosine",
    "batch_size": 250,
    "dropout": 0.0,
    "n_iter_no_change": INF,
    "random_state": 0,
}
SMALL = {**PARAMETERS, "batch_size": "auto"}


@pytest.fixture(scope="module")
def quantile_model():
    return MLPRegressor("quantile", quantiles=(0.1, 0.5, 0.9), **PARAMETERS).fit(X, Y)


@pytest.fixture(scope="module")
def gaussian_model():
    return MLPRegressor("gaussian_nll", **PARAMETERS).fit(X, Y)


def test_quantiles_do_not_cross(quantile_model):
    quantiles = quantile_model.predict(X_NEW, quantiles=(0.1, 0.5, 0.9))
    assert (np.diff(quantiles, axis=1) >= 0).all()
    backwards = quantile_model.predict(X_NEW, quantiles=[0.9, 0.1])
    assert_allclose(backwards, quantiles[:, [2, 0]])
    assert_allclose(quantile_model.predict(X_NEW), quantiles[:, 1], rtol=1e-5)
    # even where the network has learned nothing
    wild = MLPRegressor(
        "quantile",
        quantiles=[0.2, 0.4, 0.6, 0.8],
        hidden_layer_sizes=(4,),
        max_iter=1,
        n_iter_no_change=INF,
        random_state=3,
    ).fit(X[:30], Y[:30])
    assert (np.diff(wild.predict(X_NEW, quantiles=[0.2, 0.4, 0.6, 0.8]), axis=1) >= 0).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda **settings: MLPRegressor(hidden_layer_sizes=(8,), n_members=3, **settings),
        lambda **settings: TabMRegressor(hidden_layer_sizes=(8,), n_heads=3, **settings),
        lambda **settings: PackRegressor(n_members=3, **settings),
    ],
    ids=["perceptrons", "tabm", "pack"],
)
def test_the_median_is_the_median_where_quantiles_cross(make):
    levels = (0.48, 0.49, 0.5, 0.51, 0.52)
    model = make(loss="quantile", quantiles=levels, max_iter=1, random_state=0)
    model.set_params(n_iter_no_change=INF).fit(X[:200], Y[:200], X_val=X[200:300], y_val=Y[200:300])
    raw = model._raw(X_NEW).numpy()
    ordered = np.sort(raw, -1)
    assert (raw != ordered).any()
    plain = model._groups[0] if isinstance(model, PackRegressor) else model
    if plain.target_.bounds is None:
        expected = ordered.mean(0) * plain.target_.scale + plain.target_.shift
        assert_allclose(model.predict(X_NEW, quantiles=levels), expected, rtol=1e-12)
    median = model.predict(X_NEW, quantiles=[0.5])[:, 0]
    assert_array_equal(model.predict(X_NEW), median)
    module = model.to_torch()
    assert_allclose(module(*module.encode(X_NEW)).detach(), median, atol=1e-4)
    predicted = model.predict(X[200:300], quantiles=levels)
    error = (Y[200:300, None] - predicted) / plain.target_.scale
    loss = np.maximum(np.array(levels) * error, (np.array(levels) - 1) * error).mean()
    if isinstance(model, PackRegressor):
        assert_allclose(model.validation_loss_, loss, rtol=1e-4)
    elif isinstance(model, TabMRegressor):  # scored by its heads' average
        assert_allclose(model.best_validation_score_, -loss, rtol=1e-4)


def test_quantiles_that_were_not_learned_are_refused(quantile_model):
    with pytest.raises(ValueError, match=r"0\.25.*\[0\.1, 0\.5, 0\.9\]"):
        quantile_model.predict(X, quantiles=[0.1, 0.25])
    for wrong in ([0.0], [1.0], [-1], [[0.1], [0.5]]):
        with pytest.raises(ValueError, match=r"quantiles must lie in \(0, 1\)"):
            quantile_model.predict(X, quantiles=wrong)


def test_gaussian_standard_deviations_are_calibrated(gaussian_model):
    mean, std = gaussian_model.predict(X_NEW, return_std=True)
    assert mean.shape == std.shape == (3000,)
    assert (std > 0).all()
    assert_allclose(mean, gaussian_model.predict(X_NEW))
    z = (Y_NEW - mean) / std
    assert abs(z.mean()) < 0.1
    assert 0.9 < z.std() < 1.1
    for level in (0.1, 0.5, 0.9):
        assert abs((norm.cdf(z) < level).mean() - level) < 0.03
    assert np.corrcoef(std, STD_NEW)[0, 1] > 0.95
    assert np.abs(mean - MEAN_NEW).mean() < 0.5


def test_gaussian_quantiles_are_those_of_its_normal(gaussian_model):
    mean, std = gaussian_model.predict(X_NEW, return_std=True)
    quantiles = gaussian_model.predict(X_NEW, quantiles=[0.05, 0.5, 0.999])
    assert_allclose(quantiles, norm.ppf([0.05, 0.5, 0.999], mean[:, None], std[:, None]), rtol=1e-4)


def test_gaussian_members_disagree_into_a_wider_mixture():
    parameters = {**SMALL, "max_iter": 5, "precision": "float64"}
    members = MLPRegressor("gaussian_nll", **parameters, n_members=4).fit(X[:300], Y[:300])
    mean, std = members.predict(X_NEW, return_std=True)
    raw = members._raw(X_NEW).numpy()
    scale, shift = Y[:300].std(), Y[:300].mean()
    means = raw[..., 0] * scale + shift
    variances = np.exp(-14 + np.logaddexp(0, raw[..., 1] + 14)) * scale**2
    assert_allclose(mean, means.mean(0))
    # the law of total variance
    assert_allclose(std**2, variances.mean(0) + means.var(0))
    assert (means.var(0) > 0).all()


def test_gaussian_loss_stays_finite_on_interpolated_data():
    rows = np.arange(5.0)[:, None]
    model = MLPRegressor("gaussian_nll", **{**SMALL, "max_iter": 400}).fit(rows, rows[:, 0])
    mean, std = model.predict(rows, return_std=True)
    assert np.isfinite(model.loss_)
    assert_allclose(mean, rows[:, 0], atol=0.2)
    assert (std < 0.5).all()


@pytest.mark.parametrize("scale_target", [True, False])
def test_poisson_predicts_positive_rates(scale_target):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (2000, 1))
    rate = np.exp(1 + 2 * x[:, 0])
    y = rng.poisson(rate)
    model = MLPRegressor("poisson", **{**SMALL, "max_iter": 30}, scale_target=scale_target).fit(
        x, y
    )
    assert model.out_activation_ == "exp"
    predicted = model.predict(x)
    assert (predicted > 0).all()
    assert (model.predict(np.array([[-50.0], [5.0]])) >= 0).all()
    assert np.abs(np.log(predicted / rate)).mean() < 0.15
    assert_allclose(predicted.mean(), y.mean(), rtol=0.05)


def test_poisson_refuses_negative_targets_and_takes_zeros():
    with pytest.raises(ValueError, match=r"'poisson'.*0.*-3"):
        MLPRegressor("poisson").fit(X[:5], [1, 2, 3, -3, 0])
    model = MLPRegressor("poisson", **{**SMALL, "max_iter": 2}).fit(X[:30], np.zeros(30))
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber", "poisson"])
def test_other_losses_have_no_spread(loss):
    model = MLPRegressor(loss, **{**SMALL, "max_iter": 1}).fit(X[:50], np.abs(Y[:50]))
    with pytest.raises(ValueError, match=rf"return_std=True.*'gaussian_nll'.*{loss}"):
        model.predict(X, return_std=True)
    with pytest.raises(ValueError, match=rf"loss='quantile'.*{loss}"):
        model.predict(X, quantiles=[0.5])


def test_quantiles_and_std_at_once_are_refused(gaussian_model):
    with pytest.raises(ValueError, match="not for both"):
        gaussian_model.predict(X, quantiles=[0.5], return_std=True)


@pytest.mark.parametrize(
    "loss", ["squared_error", "absolute_error", "huber", "quantile", "gaussian_nll"]
)
def test_the_units_of_the_target_do_not_matter(loss):
    parameters = {**SMALL, "max_iter": 5, "precision": "float64"}
    y = Y[:200]
    plain = MLPRegressor(loss, **parameters).fit(X[:200], y).predict(X_NEW)
    for scale, shift in ((1e-6, 0.0), (1e9, -1e9)):
        other = MLPRegressor(loss, **parameters).fit(X[:200], y * scale + shift).predict(X_NEW)
        assert_allclose((other - shift) / scale, plain, rtol=1e-5, atol=1e-5)


def test_a_constant_target_is_predicted():
    for value in (0.0, 5.0, 1e12):
        model = MLPRegressor(**{**SMALL, "max_iter": 150}).fit(X[:40], np.full(40, value))
        assert_allclose(model.predict(X[:40]), value, atol=0.05, rtol=1e-10)


def test_set_params_waits_for_next_fit():
    parameters = {**SMALL, "max_iter": 2, "learning_rate": "constant"}
    model = MLPRegressor("quantile", quantiles=[0.1, 0.9], **parameters)
    model.fit(X[:50], np.abs(Y[:50]))
    before = model.predict(X), model.predict(X, quantiles=[0.1, 0.9])
    for other in ({"quantiles": (0.2, 0.3, 0.4)}, {"loss": "poisson"}, {"scale_target": False}):
        model.set_params(**other)
        assert_allclose(model.predict(X), before[0])
        assert_allclose(model.predict(X, quantiles=[0.1, 0.9]), before[1])
    with pytest.raises(ValueError, match=r"loss='poisson'.*loss='quantile'"):
        model.partial_fit(X[:50], np.abs(Y[:50]))
    assert (model.fit(X[:50], np.abs(Y[:50])).predict(X) > 0).all()
