"""Estimators and generators of a user's own modules: what they learn, draw and predict."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from torch import nn
from torch.nn import functional as F

from combutab import CTGAN, TVAE, MLPRegressor, StackedGridSearchCV
from combutab.nn import Member, MLPSpec, StackedMLP
from tests.trust.own_modules import OWN, WIDTH, Frozen, Mixed, Normed, inside, table

NET = {
    "hidden_layer_sizes": (8, 8),
    "max_iter": 6,
    "n_iter_no_change": np.inf,
    "batch_size": 16,
    "learning_rate_init": 1e-2,
    "dropout": 0.0,
    "random_state": 0,
    "precision": "float64",
}


@pytest.mark.parametrize("name", ["batch norm", "reassigned", "counted", "mixed", "nn.PReLU"])
def test_members_of_an_ensemble_are_those_trained_alone(name):
    X, y = table()
    alone = MLPRegressor(activation=OWN[name], **NET).fit(X, y)
    three = MLPRegressor(activation=OWN[name], n_members=3, **NET).fit(X, y)
    for key, value in alone.network().member_state(0).items():
        torch.testing.assert_close(
            three.network().member_state(0)[key], value, rtol=1e-6, atol=1e-8
        )


@pytest.mark.parametrize("name", ["batch norm", "subclass of ReLU", "softmax over dim 1"])
def test_a_stacked_search_is_scikit_learns(name):
    X, y = table()
    net = MLPRegressor(activation=OWN[name], **NET)
    grid = {"learning_rate_init": [1e-3, 1e-2], "dropout": [0.0, 0.2]}
    stacked = StackedGridSearchCV(net, grid, cv=2).fit(X, y)
    plain = GridSearchCV(net, grid, cv=2).fit(X, y)
    np.testing.assert_allclose(
        stacked.cv_results_["mean_test_score"],
        plain.cv_results_["mean_test_score"],
        rtol=1e-6,
    )


def test_a_frozen_parameter_stays():
    X, y = table()
    net = MLPRegressor(activation=Frozen, n_members=2, **NET).fit(X, y)
    for i in range(2):
        state = net.network().member_state(i)
        expected = torch.linspace(0.5, 2, 8).double()
        assert torch.equal(state["activations.0.p_scale"], expected)
        assert not torch.equal(state["activations.0.p_shift"], torch.zeros(8).double())


@pytest.mark.parametrize("cls", [CTGAN, TVAE])
@pytest.mark.parametrize("name", ["subclass of ReLU", "own forward of CombU", "hook on Tanh"])
def test_generators_train_the_module_as_it_is(cls, name):
    """The same numbers as from a class that the library knows nothing of."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=60), rng.integers(0, 3, 60)])
    dims = {"encoder": "compress_dims", "decoder": "decompress_dims"}
    names = ("generator_dim", "discriminator_dim") if cls is CTGAN else tuple(dims.values())
    made = [
        cls(
            activation=factory,
            epochs=2,
            batch_size=20,
            random_state=0,
            **dict.fromkeys(names, (WIDTH,)),
        )
        .fit(X, discrete_columns=[1])
        .sample(20, random_state=0)
        for factory in (OWN[name], inside(OWN[name]))
    ]
    np.testing.assert_allclose(np.asarray(made[0]), np.asarray(made[1]), rtol=1e-3, atol=1e-3)


# ---- random numbers -----------------------------------------------------------------------------


class Drops(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return F.dropout(torch.relu(x * self.weight), 0.3, self.training)


@pytest.mark.parametrize(
    "activation", [Drops, lambda w: nn.RReLU(), lambda w: nn.AlphaDropout(0.2)]
)
def test_a_module_that_draws_follows_random_state(activation):
    X, y = table()
    params = NET | {"random_state": 5}
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    one = MLPRegressor(activation=activation, **params).fit(X, y)
    torch.manual_seed(123)  # nothing of the caller's matters
    two = MLPRegressor(activation=activation, **params).fit(X, y)
    torch.set_rng_state(before[0])
    three = MLPRegressor(activation=activation, **(params | {"random_state": 6})).fit(X, y)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    assert not np.allclose(one.predict(X), three.predict(X))
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])
    stacked = MLPRegressor(activation=activation, n_members=2, **params).fit(X, y)
    for key, value in one.network().member_state(0).items():
        got = stacked.network().member_state(0)[key]
        torch.testing.assert_close(got, value, rtol=1e-6, atol=1e-8)


SMALL = {"batch_size": 30, "compress_dims": (8,), "decompress_dims": (8,)}


@pytest.mark.parametrize("activation", ["combu-random", "prelu", Drops])
@pytest.mark.parametrize("build", [
    lambda a: MLPRegressor(activation=a, **NET).fit(*table()),
    lambda a: TVAE(activation=a, epochs=1, **SMALL).fit(table()[0]),
])  # fmt: skip
def test_torchs_global_generator_is_neither_read_nor_set(activation, build):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    build(activation)
    assert torch.equal(torch.get_rng_state(), before)


def test_other_threads_draws_do_not_repeat():
    """Making activations once set the global generator for a moment, which others drew from."""
    drawn, stop = [], threading.Event()

    def draw():
        while not stop.is_set():
            drawn.append(float(torch.rand((), dtype=torch.float64)))

    thread = threading.Thread(target=draw)
    thread.start()
    n_made = 0
    while n_made < 100 or len(drawn) < 100:  # whenever the other thread has its turns
        StackedMLP(MLPSpec(2, (4, 4), 1), [Member(0, "combu-random"), Member(0, Drops)])
        n_made += 1
    stop.set()
    thread.join()
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("activation", ["prelu", "pelu", "combu-random", Mixed, Normed])
def test_threads_may_predict_with_one_network(activation):
    net = MLPRegressor(activation=activation, n_members=2, **NET).fit(*table())
    X, _ = table(400)
    parts = [X[i : i + 40 + i % 7] for i in range(0, 360, 3)]
    expected = [net.predict(part) for part in parts]
    with ThreadPoolExecutor(8) as pool:
        for got, right in zip(pool.map(net.predict, parts), expected, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
def test_a_network_of_own_modules_can_be_copied_and_trained_on():
    X, y = table()
    net = MLPRegressor(activation=Normed, warm_start=True, **NET).fit(X, y)
    copied = copy.deepcopy(net)
    np.testing.assert_array_equal(net.predict(X), copied.predict(X))
    before = net.predict(X)
    copied.fit(X, y)
    np.testing.assert_array_equal(net.predict(X), before)
    assert not np.allclose(copied.predict(X), before)
