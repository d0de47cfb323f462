"""Wrong parameters of packs: an error that names the value and the way out, before any work."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from combutab import PackClassifier, PackRegressor
from combutab.core.text import parse_seconds

X, Y = load_iris(return_X_y=True)
CONSTRAINED = {
    "n_members": [0, 1.5],
    "activations": ["relu", None],
    "max_time": [0, -1.0],
    "cv": [1, 1.5],
    "validation_fraction": [0.0, 1.0],
    "max_ensemble_size": [0],
    "max_iter": [0, 2.5],
    "n_iter_no_change": [0, 2.5],
    "member_params": ["relu", [1]],
    "categorical_features": ["city", 3],
    "random_state": ["seed", 1.5],
    "device": [3],
    "verbose": ["loud"],
    "n_jobs": [1.5, "all"],
}
WRONG = {
    r"unknown activation 'reluu'.*did you mean 'relu'": {"activations": ("relu", "reluu")},
    "activations is empty: name at least one": {"activations": ()},
    r"activations must hold names or callables.* got 3": {"activations": ("relu", 3)},
    r"max_time must be.*'90s', '2min' or '1h', got '2 minutes'": {"max_time": "2 minutes"},
    r"n_members must be at least the 5 folds of cv, got 4": {"cv": 5, "n_members": 4},
    r"max_ensemble_size must be at least the 5 folds of cv, got 2": {
        "cv": 5, "n_members": 5, "max_ensemble_size": 2,
    },
    r"member_params has 'dropuot', no parameter of .*; did you mean 'dropout'": {
        "member_params": {"dropuot": 0.1}
    },
    r"member_params cannot have 'activation', which a pack sets itself; give the pack activations=":
        {"member_params": {"activation": "relu"}},
    r"member_params cannot have 'max_iter'.*; give the pack max_iter=": {
        "member_params": {"max_iter": 3}
    },
    r"member_params cannot have 'early_stopping', which a pack sets itself$": {
        "member_params": {"early_stopping": False}
    },
    r"member_params has solver='lbfgs', which has": {"member_params": {"solver": "lbfgs"}},
    r"The 'dropout' parameter of MLP.* must be .* Got 1.5": {"member_params": {"dropout": 1.5}},
    r"hidden_layer_sizes must be > 0, got \[8, 0\]": {
        "member_params": {"hidden_layer_sizes": (8, 0)}
    },
}  # fmt: skip


class _Untouchable:
    """Any look at the data is an error of another kind."""

    def __getattr__(self, name):
        raise AssertionError(f"the data was touched: {name}")


@pytest.mark.parametrize("cls", [PackClassifier, PackRegressor])
@pytest.mark.parametrize("name", CONSTRAINED)
def test_constraints(cls, name):
    for value in CONSTRAINED[name]:
        with pytest.raises(ValueError, match=f"The '{name}' parameter of {cls.__name__}"):
            cls(**{name: value}).fit(_Untouchable(), _Untouchable())


@pytest.mark.parametrize("cls", [PackClassifier, PackRegressor])
def test_every_parameter_is_constrained(cls):
    assert set(cls().get_params()) - {"class_weight", "loss", "quantiles"} == set(CONSTRAINED)
    assert set(cls._parameter_constraints) == set(cls().get_params())


@pytest.mark.parametrize("cls", [PackClassifier, PackRegressor])
@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_is_said_before_any_work(cls, words):
    with pytest.raises((ValueError, TypeError), match=words):
        cls(**WRONG[words]).fit(_Untouchable(), _Untouchable())


def test_each_passes_its_own_parameters_on():
    with pytest.raises(ValueError, match=r"cannot have 'class_weight'.*the pack class_weight="):
        PackClassifier(member_params={"class_weight": "balanced"}).fit(X, Y)
    with pytest.raises(ValueError, match=r"cannot have 'loss'.*give the pack loss="):
        PackRegressor(member_params={"loss": "huber"}).fit(X, Y)
    with pytest.raises(ValueError, match=r"quantiles must lie in \(0, 1\)"):
        PackRegressor(loss="quantile", quantiles=(0.5, 2.0)).fit(_Untouchable(), _Untouchable())


@pytest.mark.parametrize(
    ("cls", "path", "plain"),
    [
        (PackClassifier, "rows.parquet", "MLPClassifier"),
        (PackRegressor, ["a.parquet", "b.parquet"], "MLPRegressor"),
    ],
)
def test_a_parquet_file_is_not_read(cls, path, plain):
    with pytest.raises(ValueError, match=rf"got the path '.*parquet'.*{plain}, whose fit_parquet"):
        cls().fit(path, "y")
    assert not hasattr(cls, "fit_parquet")
    assert not hasattr(cls, "partial_fit")


def test_folds_that_cannot_be():
    quick = {"max_iter": 1, "member_params": {"hidden_layer_sizes": (4,)}}
    with pytest.raises(ValueError, match=r"cv=5 needs as many rows, got n_samples=4; use cv=None"):
        PackRegressor(**quick, cv=5).fit(X[:4], Y[:4])
    rare = np.where(np.arange(len(Y)) < 3, "rare", "often")
    with pytest.raises(ValueError, match=r"cv=4 needs a row of each class.* class rare has 3 row"):
        PackClassifier(**quick, cv=4).fit(X, rare)
    with pytest.raises(ValueError, match="X_val and cv=3 do not go together; use cv=None"):
        PackClassifier(**quick, cv=3).fit(X, Y, X_val=X, y_val=Y)
    with pytest.raises(ValueError, match="10 rows that train and 10 that are set aside, 5 of them"):
        PackRegressor(**quick, cv=[(range(10), range(5, 15))]).fit(X, Y)
    with pytest.raises(ValueError, match="0 rows that train"):
        PackRegressor(**quick, cv=[(np.arange(0), np.arange(5))]).fit(X, Y)


@pytest.mark.parametrize("text", ["", "s", "0s", "-1s", "1d", "1e3s", "min", "0"])
def test_times_that_are_none(text):
    with pytest.raises(ValueError, match="max_time must be a number of seconds or text"):
        parse_seconds(text)


def test_times():
    given = ("90s", "2min", "1.5 h", " .5s ", 3)
    assert [parse_seconds(value) for value in given] == [90, 120, 5400, 0.5, 3]
