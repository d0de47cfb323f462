"""Wrong parameters: a clear error that names the value and the way out, before any work."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from torch import nn

from combutab import MLPClassifier, MLPRegressor

pytestmark = pytest.mark.usefixtures("paper_defaults")

X, Y = load_iris(return_X_y=True)

CONSTRAINED = {  # a value -> words of scikit-learn's error for it
    "hidden_layer_sizes": ["wide", 0, 2.5],
    "activation": [3, None],
    "solver": ["rmsprop", None],
    "alpha": [-0.1, "1"],
    "batch_size": [0, 1.5, "all"],
    "learning_rate": ["linear"],
    "learning_rate_init": [0.0, -1],
    "power_t": [-1],
    "max_iter": [0, 2.5],
    "shuffle": ["yes"],
    "random_state": ["seed", 1.5],
    "tol": [-1.0],
    "verbose": ["loud"],
    "warm_start": ["yes"],
    "momentum": [1.5],
    "nesterovs_momentum": ["yes"],
    "early_stopping": ["yes"],
    "validation_fraction": [1.0, -0.1],
    "beta_1": [1.0],
    "beta_2": [-0.1],
    "epsilon": [0.0],
    "n_iter_no_change": [0, 2.5, float("nan")],
    "max_fun": [0],
    "dropout": [1.0, -0.1, "half"],
    "weight_decay": [-1],
    "max_grad_norm": [0.0, -1],
    "normalization": ["instance", None],
    "proxy_norm": ["yes"],
    "init": ["zeros"],
    "n_members": [0, 1.5],
    "bagging": ["bootstrap", True],
    "categorical_features": ["city", 3],
    "numeric_encoding": ["minmax"],
    "max_onehot": [-1],
    "min_frequency": [0, 1.0, 1.5],
    "embedding_dim": [0],
    "device": [3],
    "numeric_embedding": ["plr", None],
    "numeric_embedding_dim": [1],
    "n_frequencies": [0],
    "n_bins": [0, 2.5],
    "frequency_scale": [-0.1],
    "scale_inputs": ["yes"],
    "learning_rate_factors": ["bias", [0.1]],
    "regularization_schedule": ["adaptive", 1.0],
    "early_stopping_scoring": [3],
    "precision": ["float16"],
    "track_metric": ["yes"],
    "callbacks": ["bar", 3],
}


class _Untouchable:
    """Any look at the data is an error of another kind."""

    def __getattr__(self, name):
        raise AssertionError(f"the data was touched: {name}")


@pytest.mark.parametrize("cls", [MLPClassifier, MLPRegressor])
def test_every_parameter_is_constrained(cls):
    own = {"class_weight", "label_smoothing", "quantiles", "scale_target", "loss"}
    own |= {"clip_predictions", "calibration"}
    assert set(cls().get_params()) - own == set(CONSTRAINED)
    assert set(cls._parameter_constraints) == set(cls().get_params())


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in CONSTRAINED.items() for value in values]
)
def test_wrong_values_are_named_before_the_data_is_touched(name, value):
    for cls in (MLPClassifier, MLPRegressor):
        with pytest.raises(ValueError, match=f"The '{name}' parameter of {cls.__name__} must be"):
            cls(**{name: value}).fit(_Untouchable(), _Untouchable())
        with pytest.raises(ValueError, match=f"The '{name}' parameter of {cls.__name__} must be"):
            cls(**{name: value}).partial_fit(_Untouchable(), _Untouchable())


@pytest.mark.parametrize(
    ("cls", "parameters", "words"),
    [
        (MLPClassifier, {"hidden_layer_sizes": (8, -1)}, r"must be > 0, got \[8, -1\]"),
        (MLPClassifier, {"hidden_layer_sizes": (8, 2.5)}, r"must be > 0, got \[8, 2.5\]"),
        (MLPClassifier, {"hidden_layer_sizes": ["8"]}, "hidden_layer_sizes must be > 0"),
        (MLPClassifier, {"activation": "rleu"}, r"unknown activation 'rleu' \(did you mean 'relu'"),
        (MLPClassifier, {"activation": nn.ReLU()}, "must make a fresh module for every layer"),
        (MLPClassifier, {"activation": lambda width: width}, "must return an nn.Module, got"),
        (MLPClassifier, {"activation": "pln-1"}, "norm_size must be at least 2 for PLN"),
        (
            MLPClassifier,
            {"normalization": "group", "hidden_layer_sizes": (10,)},
            "width that group_size divides, got width=10",
        ),
        (MLPClassifier, {"proxy_norm": True}, "set normalization='layer'"),
        (
            MLPClassifier,
            {"proxy_norm": True, "normalization": "layer", "activation": "la-silu"},
            "ProxyNorm|proxy",
        ),
        (MLPClassifier, {"device": "gpu"}, "device must be 'auto', 'cpu', 'cuda'.*got 'gpu'"),
        (MLPClassifier, {"device": "cuda:99"}, "but torch sees"),
        (MLPClassifier, {"callbacks": [3]}, "must be combutab.training.Callback objects, got 3"),
        (MLPClassifier, {"label_smoothing": 1.0}, "The 'label_smoothing' parameter"),
        (MLPClassifier, {"class_weight": "even"}, "The 'class_weight' parameter"),
        (MLPRegressor, {"loss": "mse"}, "The 'loss' parameter of MLPRegressor must be a str among"),
        (MLPRegressor, {"scale_target": "yes"}, "The 'scale_target' parameter"),
        (MLPRegressor, {"loss": "quantile", "quantiles": (0.5, 1.5)}, r"must lie in \(0, 1\)"),
        (MLPRegressor, {"loss": "quantile", "quantiles": ()}, r"must lie in \(0, 1\), got \(\)"),
        (MLPRegressor, {"loss": "quantile", "quantiles": ("a",)}, r"must lie in \(0, 1\)"),
        (MLPRegressor, {"loss": "quantile", "quantiles": (0.9, 0.1)}, "quantiles must increase"),
        (MLPRegressor, {"loss": "quantile", "quantiles": (0.5, 0.5)}, "quantiles must increase"),
    ],
)
def test_combinations_that_cannot_be_are_named_before_the_data_is_touched(cls, parameters, words):
    with pytest.raises((ValueError, TypeError), match=words):
        cls(**parameters).fit(_Untouchable(), _Untouchable())


def test_the_constructor_only_assigns():
    values = {name: object() for name in MLPClassifier().get_params()}
    model = MLPClassifier(**values)
    assert all(getattr(model, name) is value for name, value in values.items())
    assert set(vars(model)) == set(values)


def test_get_set_clone_and_repr():
    model = MLPRegressor("huber", (8, 4), "tanh", alpha=0.5, quantiles=[0.5])
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.set_params(alpha=2, dropout=0.3).alpha == 2
    assert model.alpha == 0.5
    with pytest.raises(ValueError, match="Invalid parameter 'alhpa' for estimator MLPRegressor"):
        model.set_params(alhpa=1)
    text = repr(model)
    assert text.startswith("MLPRegressor(")
    assert "alpha=0.5" in text
    assert "dropout" not in text  # a default
    assert repr(MLPRegressor()) == "MLPRegressor()"
    fitted = MLPRegressor(hidden_layer_sizes=(4,), max_iter=1, n_iter_no_change=float("inf"))
    unfitted_html, html = fitted._repr_html_(), fitted.fit(X, Y)._repr_html_()
    assert "MLPRegressor" in html
    assert "Not fitted" in unfitted_html
    assert "Not fitted" not in html
    assert not hasattr(clone(fitted), "coefs_")


def test_the_paper_s_network_goes_by_the_rows():
    quick = {"max_iter": 1, "n_iter_no_change": float("inf"), "random_state": 0}
    rng = np.random.default_rng(0)
    for n, widths in ((999, [128] * 2), (1000, [256] * 5)):
        rows = rng.normal(size=(n, 3))
        model = MLPRegressor(hidden_layer_sizes="paper", **quick).fit(rows, rows[:, 0])
        assert [w.shape[1] for w in model.coefs_[:-1]] == widths
        assert model.n_layers_ == len(widths) + 2
        assert model.t_ == n


@pytest.mark.parametrize("size", [np.int64(7), [7], (7,), np.array([7]), 7])
def test_hidden_layer_sizes_in_every_form(size):
    quick = {"max_iter": 1, "n_iter_no_change": float("inf"), "random_state": 0}
    model = MLPClassifier(hidden_layer_sizes=size, **quick).fit(X, Y)
    assert [w.shape for w in model.coefs_] == [(4, 7), (7, 3)]


def test_an_activation_of_ones_own():
    class Square(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(width))

        def forward(self, x):
            return self.gain * x.square()

    quick = {"max_iter": 60, "n_iter_no_change": float("inf"), "random_state": 0}
    y = (X**2).sum(1)
    for n_members in (1, 3):
        model = MLPRegressor(
            hidden_layer_sizes=(16,),
            activation=Square,
            n_members=n_members,
            learning_rate_init=0.01,
            **quick,
        ).fit(X, y)
        assert model.score(X, y) > 0.9
