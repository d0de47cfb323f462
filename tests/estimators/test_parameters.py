"""Wrong parameters: a clear error that names the value and the way out, before any work."""

import inspect

import numpy as np
import pytest
from sklearn.datasets import load_iris
from torch import nn

from combutab import (
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    TabMClassifier,
    TabMRegressor,
    paper_recipe,
)
from combutab.core.text import parse_seconds
from tests.paper_networks import PAPER, UNSHAPELY, shape_of

pytestmark = pytest.mark.usefixtures("paper_defaults")

X, Y = load_iris(return_X_y=True)
INF = float("inf")
QUICK = {"max_iter": 1, "n_iter_no_change": INF, "random_state": 0}
NETS, PACKS = (MLPClassifier, MLPRegressor), (PackClassifier, PackRegressor)
TABM = (TabMClassifier, TabMRegressor)

# parameters of one kind -> values that scikit-learn's constraints refuse
CONSTRAINED = {
    "shuffle warm_start nesterovs_momentum early_stopping proxy_norm scale_inputs": ["yes"],
    "track_metric verbose": ["yes"],
    "alpha power_t tol weight_decay": [-1.0, "1"],
    "learning_rate_init max_grad_norm epsilon": [0.0, -1],
    "momentum beta_1 beta_2 validation_fraction dropout": [1.5, -0.1, "half"],
    "max_iter n_iter_no_change batch_size": [0, 2.5],
    "n_members max_fun embedding_dim n_frequencies n_bins": [0, "many"],
    "hidden_layer_sizes": ["wide", 0, 2.5],
    "activation": [3, None],
    "solver normalization numeric_embedding": ["rmsprop", None],
    "learning_rate init numeric_encoding precision": ["linear", "zeros", "minmax", "float16"],
    "bagging": ["bootstrap", True],
    "random_state": ["seed", 1.5],
    "categorical_features date_features text_features": ["city", 3],
    "max_onehot frequency_scale": [-1, -0.1],
    "min_frequency": [0, 1.0, 1.5],
    "numeric_embedding_dim": [1],
    "learning_rate_factors": ["bias", [0.1]],
    "regularization_schedule": ["adaptive", 1.0],
    "early_stopping_scoring device": [3],
    "callbacks": ["bar", 3],
    "max_time": [0, -1.0],
    "validation_split": [5, "group"],
}
OF_PACKS = {
    "n_members max_iter n_iter_no_change": [0, 2.5],
    "max_time": [0, -1.0],
    "activations": ["relu", None],
    "cv": [1, 1.5],
    "boosting": ["no", None],
    "estimators": ["ridge", None],
    "scoring": [3],
    "validation_fraction": [0.0, 1.0],
    "max_ensemble_size": [0],
    "member_params": ["relu", [1]],
    "categorical_features date_features text_features": ["city", 3],
    "random_state": ["seed", 1.5],
    "device": [3],
    "verbose": ["loud"],
    "n_jobs": [1.5, "all"],
}
OF_TABM = {
    "n_heads n_bins": [0, "many"],
    "init": ["data"],
    "hidden_layer_sizes": ["auto"],
    "numeric_embedding": ["plr"],
}
OWN = {"class_weight", "label_smoothing", "quantiles", "scale_target", "loss", "clip_predictions"}


class _Untouchable:
    """Any look at the data is an error of another kind."""

    def __getattr__(self, name):
        raise AssertionError(f"the data was touched: {name}")


UNTOUCHABLE = _Untouchable(), _Untouchable()


@pytest.mark.parametrize(
    ("classes", "table"), [(NETS, CONSTRAINED), (PACKS, OF_PACKS), (TABM, OF_TABM)]
)
def test_bad_values_are_refused_before_reading_data(classes, table):
    values = {name: table[names] for names in table for name in names.split()}
    for cls in classes:
        if classes is not TABM:
            assert set(cls().get_params()) - OWN - {"calibration"} == set(values)
        for name, value in ((name, each) for name, tried in values.items() for each in tried):
            with pytest.raises(ValueError, match=f"'{name}' parameter of {cls.__name__}"):
                cls(**{name: value}).fit(*UNTOUCHABLE)
            if classes is NETS:
                with pytest.raises(ValueError, match=f"'{name}' parameter of {cls.__name__}"):
                    cls(**{name: value}).partial_fit(*UNTOUCHABLE)


CLASSIFIER, REGRESSOR = NETS
_PROXY = {"proxy_norm": True, "normalization": "layer", "activation": "la-silu"}
_BAGGED = {"bagging": "cv", "n_members": 3}
COMBINATIONS = [
    (CLASSIFIER, {"hidden_layer_sizes": (8, -1)}, r"must be > 0, got \[8, -1\]"),
    (CLASSIFIER, {"hidden_layer_sizes": (8, 2.5)}, r"must be > 0, got \[8, 2.5\]"),
    (CLASSIFIER, {"hidden_layer_sizes": ["8"]}, "hidden_layer_sizes must be > 0"),
    (CLASSIFIER, {"date_features": ["hours"]}, r"date_features must be 'auto' or a list of"),
    (CLASSIFIER, {"activation": "rleu"}, r"unknown activation 'rleu' \(did you mean 'relu'"),
    (CLASSIFIER, {"activation": nn.ReLU()}, "must make a fresh module for every layer"),
    (CLASSIFIER, {"activation": lambda width: width}, "must return an nn.Module, got"),
    (CLASSIFIER, {"activation": "pln-1"}, "norm_size must be at least 2 for PLN"),
    (CLASSIFIER, {"normalization": "group", "hidden_layer_sizes": (10,)}, "divides, got width=10"),
    (CLASSIFIER, {"proxy_norm": True}, "set normalization='layer'"),
    (CLASSIFIER, _PROXY, "ProxyNorm|proxy"),
    (CLASSIFIER, {"device": "gpu"}, "device must be 'auto', 'cpu', 'cuda'.*got 'gpu'"),
    (CLASSIFIER, {"device": "cuda:99"}, "but torch sees"),
    (CLASSIFIER, {"callbacks": [3]}, "must be combutab.training.Callback objects, got 3"),
    (CLASSIFIER, {"label_smoothing": 1.0}, "The 'label_smoothing' parameter"),
    (CLASSIFIER, {"class_weight": "even"}, "The 'class_weight' parameter"),
    (CLASSIFIER, {"learning_rate_factors": {"biases": 0.1}}, "knows 'weight', .* got 'biases'"),
    (CLASSIFIER, {"learning_rate_factors": {"bias": 0}}, r"\['bias'\] must be a pos.* got 0"),
    (CLASSIFIER, {"learning_rate_factors": {"bias": INF}}, "positive number, got inf"),
    (CLASSIFIER, {"early_stopping_scoring": "accuracies"}, "accuracies"),
    (REGRESSOR, {"loss": "mse"}, "The 'loss' parameter of MLPRegressor must be a str among"),
    (REGRESSOR, {"scale_target": "yes"}, "The 'scale_target' parameter"),
    (REGRESSOR, {"loss": "quantile", "quantiles": (0.5, 1.5)}, r"must lie in \(0, 1\)"),
    (REGRESSOR, {"loss": "quantile", "quantiles": ()}, r"must lie in \(0, 1\), got \(\)"),
    (REGRESSOR, {"loss": "quantile", "quantiles": ("a",)}, r"must lie in \(0, 1\)"),
    (REGRESSOR, {"loss": "quantile", "quantiles": (0.9, 0.1)}, "quantiles must increase"),
    (REGRESSOR, {"loss": "quantile", "quantiles": (0.5, 0.5)}, "quantiles must increase"),
    (REGRESSOR, _BAGGED | {"n_members": 1}, r"n_members of at least 2 \(5, say\), got n_members=1"),
    (REGRESSOR, _BAGGED | {"solver": "lbfgs"}, "solver='lbfgs' has no epochs"),
    (REGRESSOR, _BAGGED | {"warm_start": True}, r"warm_start=False, or bagging=None"),
    (TabMClassifier, {"hidden_layer_sizes": ()}, r"must name at least one layer.* got \(\)"),
    *(
        (cls, parameters, words)
        for cls in PACKS
        for parameters, words in [
            ({"activations": ("relu", "reluu")}, r"unknown activation 'reluu'.*mean 'relu'"),
            ({"activations": ()}, "activations is empty: name at least one"),
            ({"activations": ("relu", 3)}, r"The 'activation' parameter of MLP.* Got 3"),
            ({"max_time": "2 minutes"}, r"max_time must be.*'90s', '2min' or '1h', got '2 minut"),
            ({"cv": 5, "n_members": 4}, "n_members must be at least the 5 folds of cv, got 4"),
            (
                {"cv": 5, "n_members": 5, "max_ensemble_size": 2},
                "max_ensemble_size must be at least the 5 folds of cv, got 2",
            ),
        ]
    ),
    *(
        (cls, {"member_params": parameters}, words)
        for cls in PACKS
        for parameters, words in [
            ({"dropuot": 0.1}, "has 'dropuot', no parameter of .*; did you mean 'dropout'"),
            ({"activation": "relu"}, "'activation', which a pack sets .* the pack activations="),
            ({"max_iter": 3}, r"cannot have 'max_iter'.*; give the pack max_iter="),
            ({"early_stopping": False}, "cannot have 'early_stopping', which a pack sets itself$"),
            ({"solver": "lbfgs"}, "member_params has solver='lbfgs', which has"),
            ({"dropout": 1.5}, "The 'dropout' parameter of MLP.* must be .* Got 1.5"),
            ({"hidden_layer_sizes": (8, 0)}, r"hidden_layer_sizes must be > 0, got \[8, 0\]"),
        ]
    ),
    (PackRegressor, {"loss": "quantile", "quantiles": (0.5, 2.0)}, r"must lie in \(0, 1\)"),
    (PackClassifier, {"member_params": {"class_weight": "balanced"}}, "the pack class_weight="),
    (PackRegressor, {"member_params": {"loss": "huber"}}, "have 'loss'.*give the pack loss="),
]


@pytest.mark.parametrize(("cls", "parameters", "words"), COMBINATIONS)
def test_bad_combinations_are_refused_before_reading_data(cls, parameters, words):
    with pytest.raises((ValueError, TypeError), match=words):
        cls(**parameters).fit(*UNTOUCHABLE)


@pytest.mark.parametrize("X", ["rows.parquet", ["rows.parquet", "more.parquet"]])
@pytest.mark.parametrize("cls", [*NETS, *PACKS])
def test_a_path_is_no_table(cls, X):
    with pytest.raises(ValueError, match=r"'rows.parquet'.*fit_parquet"):
        cls().fit(X, "y")


def test_packs_have_no_fits_in_parts():
    for cls in PACKS:
        assert not hasattr(cls, "fit_parquet")
        assert not hasattr(cls, "partial_fit")


def test_folds_that_cannot_be():
    quick = {"max_iter": 1, "member_params": {"hidden_layer_sizes": (4,)}}
    rare = np.where(np.arange(len(Y)) < 3, "rare", "often")
    for cls, cv, data, words in [
        (PackRegressor, 5, (X[:4], Y[:4]), "cv=5 needs as many rows, got n_samples=4; use cv=None"),
        (PackClassifier, 4, (X, rare), "cv=4 needs a row of each class.* class rare has 3 row"),
        (PackClassifier, 3, (X, Y, None, X, Y), "X_val and cv=3 do not go together; use cv=None"),
        (PackRegressor, [(range(10), range(5, 15))], (X, Y), "10 training and 10 .*, 5 of"),
        (PackRegressor, [(np.arange(0), np.arange(5))], (X, Y), "0 training"),
    ]:
        with pytest.raises(ValueError, match=words):
            cls(**quick, cv=cv).fit(*data)


def test_times():
    given = ("90s", "2min", "1.5 h", " .5s ", 3)
    assert [parse_seconds(value) for value in given] == [90, 120, 5400, 0.5, 3]
    for text in ("", "s", "0s", "-1s", "1d", "1e3s", "min", "0"):
        with pytest.raises(ValueError, match="max_time"):
            parse_seconds(text)


def test_the_paper_s_network_goes_by_the_rows():
    rng = np.random.default_rng(0)
    for n, widths in ((999, [128] * 2), (1000, [256] * 5)):
        rows = rng.normal(size=(n, 3))
        model = MLPRegressor(hidden_layer_sizes="paper", **QUICK).fit(rows, rows[:, 0])
        assert [w.shape[1] for w in model.coefs_[:-1]] == widths
        assert (model.n_layers_, model.t_) == (len(widths) + 2, n)


@pytest.mark.parametrize("size", [np.int64(7), [7], (7,), np.array([7]), 7])
def test_hidden_layer_sizes_in_every_form(size):
    model = MLPClassifier(hidden_layer_sizes=size, **QUICK).fit(X, Y)
    assert [w.shape for w in model.coefs_] == [(4, 7), (7, 3)]


# ---- the CombU paper's network, which is the same whatever the estimators' defaults become -------

TASKS = {"classification": MLPClassifier, "regression": MLPRegressor}


@pytest.mark.parametrize("task", TASKS)
def test_paper_recipe_does_not_depend_on_defaults(task, no_defaults):
    names = set(inspect.signature(TASKS[task]).parameters)
    assert set(paper_recipe(task)) == names - UNSHAPELY
    assert names >= UNSHAPELY
    net = TASKS[task](**paper_recipe(task))
    assert shape_of(net) == PAPER[task]
    assert net._hidden_layer_sizes(999) == (128, 128)
    assert net._hidden_layer_sizes(1000) == (256,) * 5
    assert [net._checked_batch_size(n) for n in (10, 499, 5000)] == [500] * 3


def test_changes_to_the_recipe():
    recipe = paper_recipe("classification", dropout=0.3, random_state=7)
    net = MLPClassifier(**recipe)
    assert (net.dropout, net.random_state, net.alpha) == (0.3, 7, 0.0001)
    recipe["alpha"] = 5.0  # a copy
    assert paper_recipe("classification") == PAPER["classification"]
    with pytest.raises(ValueError, match="'classification', 'regression', got 'ranking'"):
        paper_recipe("ranking")


@pytest.mark.parametrize("ending", ["pkl", "joblib"])
def test_files_that_pickle_cannot_read_warn(tmp_path, ending):
    path = tmp_path / f"model.{ending}"
    with pytest.warns(UserWarning, match=r"combutab\.load") as caught:
        MLPRegressor(**QUICK).fit(X, Y).save(path)
    assert caught[0].filename == __file__
    assert path.exists()
