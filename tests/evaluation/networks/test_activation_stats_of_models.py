"""activation_stats on every kind of model, and layers however they are named."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from combutab import ACTIVATIONS, PLN, MLPClassifier, MLPRegressor, ProxyNorm
from combutab.activations import make_activation
from combutab.evaluation import activation_stats

pytestmark = pytest.mark.usefixtures("paper_defaults")

DETERMINISTIC = [(1.0, 0.0)]  # noise that is 1 everywhere


def relu(y):
    return np.maximum(y, 0)


def normals(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


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


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_estimators_of_every_activation(name, table):
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


def test_members_are_the_networks_that_the_ensemble_has(table):
    model = fitted(MLPClassifier, table, n_members=3, normalization="batch", dropout=0.5)
    both = activation_stats(model, table, noise_at="input")
    samples = both.samples
    assert samples.groupby("member")["fluctuation"].mean().nunique() == 3
    alone = activation_stats(
        fitted(MLPClassifier, table, normalization="batch", dropout=0.5), table
    )
    first = both.units[both.units["member"] == 0]
    np.testing.assert_allclose(first["mean"], alone.units["mean"], atol=2e-3)  # it trained alone


def test_a_normalisation_is_no_activation(table):
    model = fitted(MLPClassifier, table, normalization="pln", hidden_layer_sizes=(8,))
    found = activation_stats(model, table)
    assert found.layers[["layer", "activation"]].to_numpy().tolist() == [["activations.0", "combu"]]
    assert activation_stats(model, table, layers=PLN).layers["activation"].tolist() == ["PLN"]


def test_epoch_by_epoch(table):
    model = MLPClassifier(hidden_layer_sizes=(6,), activation="tanh", random_state=0)
    means = []
    for _ in range(3):
        model.partial_fit(table, TARGET, classes=[0, 1])
        y = model.encoder_.transform(table) @ model.coefs_[0] + model.intercepts_[0]
        found = activation_stats(model, table, noises=[]).units["mean"]
        np.testing.assert_allclose(found, np.tanh(y).mean(0), atol=1e-5)
        means.append(found.sum())
    assert len(set(means)) == 3


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


def test_a_module_that_is_used_twice_is_two_layers():
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
    assert names(layers=nn.Linear) == ["0", "2"]
    assert names(layers=(nn.ReLU, nn.Linear)) == ["0", "1.activation", "2", "3"]


def test_layers_inside_one_another():
    net = nn.Sequential(ProxyNorm("relu", 4))
    found = activation_stats(net, normals(10, 4), layers=["0", "0.activation"])
    assert found.layers["layer"].tolist() == ["0.activation", "0"]
    assert found.samples.groupby("layer").size().tolist() == [20, 20]


def test_batches_of_a_loader():
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU())
    X = torch.from_numpy(normals(20, 3)).float()
    data = torch.utils.data.TensorDataset(X, torch.zeros(20))
    loader = torch.utils.data.DataLoader(data, batch_size=6)
    options = {"noises": DETERMINISTIC}
    found, expected = (activation_stats(net, each, **options) for each in (loader, X))
    pd.testing.assert_frame_equal(found.units, expected.units)
    pd.testing.assert_frame_equal(found.samples, expected.samples)
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


def test_without_noises_there_is_no_fluctuation():
    found = activation_stats(nn.ReLU(), normals(5, 2), noises=[])
    assert len(found.samples) == len(found.fluctuation) == 0
    assert {"layer", "noise_mean", "mean", "sd"} <= set(found.fluctuation)


@pytest.mark.parametrize("activation", ["prelu", "blend-selu"])
def test_activations_that_learn_have_slopes_after_a_prediction_as_before(table, activation):
    model = fitted(MLPClassifier, table, activation=activation)
    before = activation_stats(model, table).layers
    model._net.network = None  # as in a new process
    model.predict(table)
    pd.testing.assert_frame_equal(activation_stats(model, table).layers, before)
