"""activation_stats: against numpy and cases known by hand, on every kind of model."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from combutab import LAHardSiLU, LASiLU, MLPClassifier, MLPRegressor, ProxyNorm
from combutab.activations import make_activation
from combutab.evaluation import activation_stats

# ---- activation_stats: against numpy and against cases known by hand ----------------------------


DETERMINISTIC = [(1.0, 0.0)]  # noise that is 1 everywhere


def relu(y):
    return np.maximum(y, 0)


def sigmoid(y):
    return 1 / (1 + np.exp(-y))


def normals(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.fixture
def two_layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.Tanh()).double()


def weights(net):
    return [p.detach().numpy() for p in net.parameters()]


# ---- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_units_are_those_of_numpy(two_layers, batch_size):
    X = normals(40, 3)
    found = activation_stats(two_layers, X, batch_size=batch_size, noises=[])
    w0, b0, w1, b1 = weights(two_layers)
    y0 = X @ w0.T + b0
    y1 = relu(y0) @ w1.T + b1
    for layer, y, a in (("1", y0, relu(y0)), ("3", y1, np.tanh(y1))):
        units = found.units[found.units["layer"] == layer]
        assert units["unit"].tolist() == list(range(a.shape[1]))
        for column, expected in (
            ("mean", a.mean(0)),
            ("sd", a.std(0)),
            ("min", a.min(0)),
            ("max", a.max(0)),
            ("saturated", (np.abs(a) < 0.01 * np.abs(y)).mean(0)),
        ):
            np.testing.assert_allclose(units[column], expected, rtol=1e-12, atol=1e-14)
        (summary,) = found.layers[found.layers["layer"] == layer].to_dict("records")
        assert summary["n_units"] == a.shape[1]
        assert summary["mean"] == pytest.approx(a.mean())
        assert summary["mean_abs"] == pytest.approx(np.abs(a.mean(0)).mean())
    assert found.layers["activation"].tolist() == ["ReLU", "Tanh"]


def test_saturation_of_silu_is_its_scale_near_zero():
    # s(y) = sigmoid(y) < 0.01 for y < -log(99) = -4.595
    X = torch.tensor([[-9.0, -4.6], [-4.59, -1.2784645], [0.0, 3.0]])
    units = activation_stats(nn.SiLU(), X, noises=[]).units
    assert units["saturated"].tolist() == pytest.approx([1 / 3, 1 / 3])
    # the derivative is near zero at -9, and also at the minimum of x sigmoid(x)
    assert units["flat"].tolist() == pytest.approx([1 / 3, 1 / 3])


def test_saturation_of_layeract_is_that_of_the_normalised_input():
    y = normals(200, 6) * 3 - 5  # all far below zero: an elementwise SiLU would be saturated
    n = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5)
    scale = np.clip(n / 6 + 0.5, 0, 1)
    found = activation_stats(LAHardSiLU(), y, scale_tol=0.2, noises=[])
    np.testing.assert_allclose(found.units["saturated"], (scale < 0.2).mean(0))
    assert 0 < found.layers["saturated"][0] < 0.2
    assert found.units["flat"].isna().all()  # no derivative of one unit alone


def test_dead_units_are_those_that_never_change():
    net = nn.Sequential(nn.Linear(1, 4, bias=True), nn.ReLU())
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0], [0.0], [0.0], [1e-9]]))
        net[0].bias.copy_(torch.tensor([0.0, -1.0, 3.0, 1.0]))
    units = activation_stats(net, torch.tensor([[-1.0], [2.0]]), noises=[]).units
    assert units["dead"].tolist() == [False, True, True, True]
    assert units["mean"].tolist() == pytest.approx([1.0, 0.0, 3.0, 1.0])
    assert activation_stats(net, torch.zeros(2, 1), noises=[]).layers["dead"][0] == 1.0


# ---- fluctuation ---------------------------------------------------------------------------------


def test_fluctuation_of_elementwise_activations(two_layers):
    # Definition 2.3, the noise being 1: the same in every unit
    X = normals(30, 3)
    found = activation_stats(two_layers, X, noises=DETERMINISTIC, batch_size=8)
    w0, b0, w1, b1 = weights(two_layers)
    y0 = X @ w0.T + b0
    y1 = relu(y0) @ w1.T + b1  # of the clean pass
    expected = {
        "1": np.abs(relu(y0 + 1) - relu(y0)).sum(1),
        "3": np.abs(np.tanh(y1 + 1) - np.tanh(y1)).sum(1),
    }
    for layer, values in expected.items():
        samples = found.samples[found.samples["layer"] == layer]
        assert samples["sample"].tolist() == list(range(30))
        np.testing.assert_allclose(samples["fluctuation"], values)
        np.testing.assert_allclose(samples["input_fluctuation"], {"1": 5.0, "3": 4.0}[layer])
        (summary,) = found.fluctuation[found.fluctuation["layer"] == layer].to_dict("records")
        assert summary["mean"] == pytest.approx(values.mean())
        assert summary["sd"] == pytest.approx(values.std())
        assert summary["input_mean"] == pytest.approx({"1": 5.0, "3": 4.0}[layer])
        assert (summary["noise_mean"], summary["noise_sd"]) == (1.0, 0.0)


def test_fluctuation_of_layeract():
    # Definition 3.2: a noise that is 1 everywhere moves the mean alone, so n stays: sum s(n)
    y = normals(20, 6)
    n = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5)
    found = activation_stats(LASiLU(), y, noises=DETERMINISTIC)
    np.testing.assert_allclose(found.samples["fluctuation"], sigmoid(n).sum(1))


def test_noise_at_the_input_goes_through_the_network(two_layers):
    X = normals(30, 3)
    found = activation_stats(two_layers, X, noises=DETERMINISTIC, noise_at="input", batch_size=8)
    w0, b0, w1, b1 = weights(two_layers)

    def last(x):
        return relu(x @ w0.T + b0) @ w1.T + b1

    samples = found.samples[found.samples["layer"] == "3"]
    given = np.abs(last(X + 1) - last(X)).sum(1)
    np.testing.assert_allclose(samples["input_fluctuation"], given)
    gives = np.abs(np.tanh(last(X + 1)) - np.tanh(last(X))).sum(1)
    np.testing.assert_allclose(samples["fluctuation"], gives)


@pytest.mark.parametrize("noise_at", ["layer", "input"])
def test_noise_has_the_distribution_asked_for(noise_at):
    identity = nn.LeakyReLU(1.0)
    noises = [(0.0, 0.5), (1.0, 0.25)]
    X = torch.zeros(3000, 8)
    found = activation_stats(identity, X, noises=noises, noise_at=noise_at).fluctuation
    # |N(0, s^2)| has mean s sqrt(2 / pi); N(1, 1/16) is hardly ever negative
    assert found["mean"].tolist() == pytest.approx([8 * 0.5 * np.sqrt(2 / np.pi), 8.0], rel=0.01)
    assert found["sd"].tolist() == pytest.approx(
        [np.sqrt(8) * 0.5 * np.sqrt(1 - 2 / np.pi), np.sqrt(8) * 0.25], rel=0.05
    )


def test_noise_depends_on_seed_and_shape():
    X = normals(20, 4)

    def given(module, **options):
        return activation_stats(module, X, noise_at="input", **options).samples["input_fluctuation"]

    first = given(nn.ReLU())
    pd.testing.assert_series_equal(first, given(LASiLU()))
    assert not np.isclose(first, given(nn.ReLU(), random_state=1)).any()
    alone = given(nn.ReLU(), noises=[(0.0, 0.5)])
    np.testing.assert_array_equal(alone, first[:20])


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noises": [(0.0, -1.0)]}, r"sd >= 0.*-1"),
        ({"noises": [(np.inf, 1.0)]}, "finite"),
        ({"noise_at": "output"}, "'layer' or 'input', got 'output'"),
        ({"scale_tol": -0.1}, "scale_tol must not be negative"),
        ({"dead_tol": np.nan}, "dead_tol must not be negative"),
        ({"batch_size": 0}, "batch_size must"),
        ({"layers": "act"}, "no layer 'act'.*named_modules"),
        ({"dim": 2}, r"dim=2 is no feature axis .*\(4, 3\)"),
        ({"dim": 0}, "dim=0 is no feature axis"),
        ({"random_state": "x"}, "random_state"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        activation_stats(nn.Sequential(nn.ReLU()), torch.zeros(4, 3), **options)


@pytest.mark.parametrize(
    ("model", "X", "error", "message"),
    [
        (MLPClassifier(), np.zeros((2, 2)), ValueError, "not fitted"),
        (StandardScaler(), np.zeros((2, 2)), TypeError, "fitted MLPClassifier.*StandardScaler"),
        (nn.ReLU(), pd.DataFrame({"a": [1.0]}), TypeError, "DataFrame; encode"),
        (nn.ReLU(), 3, TypeError, "tensor or an array, got int"),
        (nn.ReLU(), torch.zeros(0, 3), ValueError, "no rows"),
        (nn.ReLU(), torch.zeros(2, 3, 4), ValueError, r"\(2, 3, 4\): say which axis.*dim=1"),
        (nn.ReLU(), torch.zeros(3), ValueError, r"\(3,\), not \(rows, features\)"),
        (nn.Linear(2, 2), torch.zeros(2, 2), ValueError, "no activation modules.*F.relu"),
    ],
)
def test_wrong_models_and_tables(model, X, error, message):
    with pytest.raises(error, match=message):
        activation_stats(model, X)


def test_tuples_and_integer_codes_are_refused():
    net = nn.Sequential(nn.Embedding(4, 3), nn.LSTM(3, 2))
    codes = torch.tensor([[0, 1], [2, 3]])
    with pytest.raises(TypeError, match=r"'1'.*tuple"):
        activation_stats(net, codes, layers="1")
    net = nn.Sequential(nn.Embedding(4, 3), nn.ReLU())
    assert len(activation_stats(net, codes, dim=-1).units) == 3
    with pytest.raises(ValueError, match=r"int64; use noise_at='layer'"):
        activation_stats(net, codes, dim=-1, noise_at="input")


# ---- activation_stats on every kind of model, and layers however they are named -----------------


pytestmark = pytest.mark.usefixtures("paper_defaults")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x": rng.normal(size=60),
            "y": np.where(rng.random(60) < 0.2, np.nan, rng.normal(size=60)),
            "kind": pd.Categorical(rng.choice(["u", "v", "w"], 60)),
        }
    )


TARGET = np.arange(60) % 2


def fitted(kind, table, **parameters):
    parameters = {"hidden_layer_sizes": (6, 4), "max_iter": 2, "n_iter_no_change": np.inf} | (
        parameters
    )
    return kind(**parameters, random_state=0).fit(table, TARGET)


@pytest.mark.parametrize("name", ["relu", "combu", "la-silu", "pln-4", "prelu", "combu-random"])
def test_estimators_of_each_kind_of_activation(name, table):
    model = fitted(MLPRegressor, table, activation=name, n_members=2)
    found = activation_stats(model, table, batch_size=25)
    layers = found.layers
    assert layers["layer"].tolist() == ["activations.0"] * 2 + ["activations.1"] * 2
    assert layers["member"].tolist() == [0, 1, 0, 1]
    assert set(layers["activation"]) == {name}
    module = make_activation(name, 6)
    if any(True for _ in module.parameters()) or "random" in name:
        return  # what it learned or drew is in the estimator alone
    y = model.encoder_.transform(table) @ model.coefs_[0] + model.intercepts_[0]
    a = module(torch.from_numpy(y)).numpy()
    first = found.units[(found.units["member"] == 0) & (found.units["layer"] == "activations.0")]
    np.testing.assert_allclose(first["mean"], a.mean(0), atol=1e-5)
    np.testing.assert_allclose(first["sd"], a.std(0), atol=1e-5)


def test_a_normalisation_is_no_activation(table):
    model = fitted(MLPClassifier, table, normalization="pln", hidden_layer_sizes=(8,))
    found = activation_stats(model, table)
    assert found.layers[["layer", "activation"]].to_numpy().tolist() == [["activations.0", "combu"]]


def test_pipelines_and_searches(table):
    numbers = table[["x", "y"]].fillna(0.0)
    model = fitted(MLPClassifier, StandardScaler().fit_transform(numbers))
    expected = activation_stats(model, StandardScaler().fit_transform(numbers))
    pipeline = make_pipeline(StandardScaler(), model)
    pipeline[0].fit(numbers)
    found = activation_stats(pipeline, numbers)
    np.testing.assert_allclose(found.units["mean"], expected.units["mean"], rtol=1e-6)
    search = GridSearchCV(model, {"alpha": [0.1]}, cv=2).fit(numbers, TARGET)
    found = activation_stats(search, numbers)
    expected = activation_stats(search.best_estimator_, numbers)
    pd.testing.assert_frame_equal(found.units, expected.units)


class Residual(nn.Module):
    """One activation module, used twice."""

    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(3, 3), nn.ReLU()

    def forward(self, x):
        return self.act(x + self.linear(self.act(x)))


def test_reused_module_is_two_layers():
    torch.manual_seed(0)
    net, X = Residual(), torch.from_numpy(normals(10, 3)).float()
    found = activation_stats(net, X)
    assert found.layers["layer"].tolist() == ["act", "act[2]"]
    np.testing.assert_allclose(found.units["mean"][:3], X.relu().mean(0), rtol=1e-6)
    np.testing.assert_allclose(found.units["mean"][3:], net(X).detach().mean(0), rtol=1e-5)


def test_channels_are_units_and_positions_are_samples():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 2), nn.ReLU(inplace=True), nn.Flatten(), nn.Tanh())
    images = torch.from_numpy(normals(12, 1, 4, 4)).float()
    found = activation_stats(net, images, dim=1, noises=DETERMINISTIC, batch_size=5)
    y = net[0](images).detach().numpy()
    units = found.units[found.units["layer"] == "1"]
    np.testing.assert_allclose(units["mean"], relu(y).mean((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(units["saturated"], (y < 0).mean((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(units["flat"], (y < 0).mean((0, 2, 3)), rtol=1e-5)
    samples = found.samples[found.samples["layer"] == "1"]
    expected = np.abs(relu(y + 1) - relu(y)).sum((1, 2, 3))
    np.testing.assert_allclose(samples["fluctuation"], expected, rtol=1e-5)
    assert (found.units["layer"] == "3").sum() == 27
    last = activation_stats(nn.ReLU(), images.movedim(1, 3), dim=-1).units
    assert len(last) == 1


def test_layers_by_name_and_kind():
    net = nn.Sequential(nn.Linear(2, 4), ProxyNorm("relu", 4), nn.Linear(4, 4), nn.ReLU())
    X = normals(10, 2)

    def names(**options):
        return activation_stats(net, X, noises=[], **options).layers["layer"].tolist()

    assert names() == ["1", "3"]  # the ReLU of a ProxyNorm is a part of it
    assert names(layers="1.activation") == ["1.activation"]
    assert names(layers=["3", "0"]) == ["0", "3"]  # in the order of the pass


def test_arrays_take_the_precision_of_the_network():
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU())
    X = torch.from_numpy(normals(20, 3)).float()
    options = {"noises": DETERMINISTIC}
    expected = activation_stats(net, X, **options)
    numbers = activation_stats(net, X.numpy().astype(np.float64), **options)  # to the net's dtype
    pd.testing.assert_frame_equal(numbers.units, expected.units)


class Breaks(nn.Module):
    def forward(self, x):
        raise RuntimeError("broken")


@pytest.mark.parametrize("last", [nn.Identity, Breaks])
def test_modules_are_left_as_they_were(last):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), last())
    net[1].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    X = normals(10, 3)
    if last is Breaks:
        with pytest.raises(RuntimeError, match="broken"):
            activation_stats(net, X)
    else:
        found, again = (activation_stats(net, X) for _ in range(2))
        pd.testing.assert_frame_equal(found.units, again.units)  # no dropout
    assert [module.training for module in net] == [True, False, True, True, True]
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    for module in net.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize("activation", ["prelu", "blend-selu"])
def test_loaded_learned_activations_have_the_same_slopes(table, activation):
    model = fitted(MLPClassifier, table, activation=activation)
    before = activation_stats(model, table).layers
    model = pickle.loads(pickle.dumps(model))
    model.predict(table)
    pd.testing.assert_frame_equal(activation_stats(model, table).layers, before)
