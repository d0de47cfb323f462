"""No parameter that is changed between two fits of one estimator is silently ignored."""

import functools
import inspect
import pickle

import numpy as np
import pytest

from combutab import CombU, MLPClassifier, MLPRegressor
from combutab.constructions import expression_network
from combutab.training import Callback
from tests.short import BUDGET
from tests.trust.small_rows import FRAME, INF, QUICK, Z, target_of

pytestmark = [
    pytest.mark.usefixtures("paper_defaults"),
    pytest.mark.filterwarnings("ignore:Stochastic Optimizer"),  # as scikit-learn's, of each part
]


class Counter(Callback):
    calls = 0

    def on_epoch_end(self, report):
        self.calls += 1
        return self.calls >= 3  # and stops


# Of each parameter: what the estimator has besides, so that it matters; a value, and another.
CHANGES = {
    "hidden_layer_sizes": ({}, (8,), (16,)),
    "activation": ({}, "combu", "relu"),
    "solver": ({}, "adam", "sgd"),
    "alpha": ({}, 0.0, 5.0),
    "batch_size": ({}, "auto", 20),
    "learning_rate": ({"max_iter": 9, "n_iter_no_change": 1, "tol": 5.0}, "constant", "adaptive"),
    "learning_rate_init": ({}, 0.02, 0.2),
    "power_t": ({"learning_rate": "invscaling"}, 0.5, 0.1),
    "max_iter": ({}, 4, 5),
    "shuffle": ({"batch_size": 20}, True, False),
    "random_state": ({"batch_size": 20}, 0, 1),
    "tol": ({"n_iter_no_change": 1}, 0.0, 9.0),
    "verbose": ({}, False, True),
    "warm_start": ({}, True, False),
    "momentum": ({"solver": "sgd"}, 0.9, 0.1),
    "nesterovs_momentum": ({"solver": "sgd"}, True, False),
    "early_stopping": ({}, False, True),
    "validation_fraction": ({"early_stopping": True}, 0.1, 0.4),
    "beta_1": ({}, 0.9, 0.1),
    "beta_2": ({}, 0.999, 0.1),
    "epsilon": ({}, 1e-8, 1e-1),
    "n_iter_no_change": ({"tol": 9.0}, INF, 1),
    "max_fun": ({"solver": "lbfgs", "max_iter": 50}, 3, 30),
    "max_time": ({}, None, 1e-9),
    "validation_split": ({"early_stopping": True}, None, np.arange(20)),
    "dropout": ({}, 0.0, 0.5),
    "weight_decay": ({"solver": "adamw"}, 0.01, 5.0),
    "max_grad_norm": ({"solver": "sgd"}, None, 1e-3),
    "normalization": ({}, "none", "layer"),
    "proxy_norm": ({"normalization": "layer", "activation": "relu"}, False, True),
    "init": ({}, "torch", "kaiming"),
    "n_members": ({}, 1, 2),
    "bagging": ({"n_members": 2, "warm_start": False}, None, "cv"),
    "categorical_features": (
        {"min_frequency": 1, "max_onehot": 200},
        "from_dtype",
        ["few", "many", "a"],
    ),
    "numeric_encoding": ({}, "standard", "robust"),
    "date_features": ({}, ["number"], "auto"),
    "text_features": ({}, "ignore", "auto"),
    "max_onehot": ({}, 32, 1),
    "min_frequency": ({}, 5, 2),
    "embedding_dim": ({}, 8, 4),
    "device": ({}, "cpu", "cuda:99"),
    "precision": ({}, "float32", "float64"),
    "track_metric": ({}, False, True),
    "callbacks": ({}, None, [Counter()]),
    "class_weight": ({}, None, {0: 1, 1: 9, 2: 1}),
    "label_smoothing": ({}, 0.0, 0.4),
    "calibration": ({"early_stopping": True}, None, "temperature"),
    "loss": ({}, "squared_error", "huber"),
    "quantiles": ({"loss": "quantile"}, (0.1, 0.5), (0.2, 0.5)),
    "scale_target": ({}, True, False),
    "clip_predictions": ({}, False, True),
    "early_stopping_scoring": ({"early_stopping": True}, None, "loss"),
    "numeric_embedding": ({}, "none", "pbld"),
    "numeric_embedding_dim": ({"numeric_embedding": "pbld"}, 4, 3),
    "n_frequencies": ({"numeric_embedding": "pbld"}, 16, 4),
    "n_bins": ({"numeric_embedding": "piecewise-linear"}, 48, 4),
    "frequency_scale": ({"numeric_embedding": "pbld"}, 0.1, 1.0),
    "scale_inputs": ({}, False, True),
    "learning_rate_factors": ({}, None, {"bias": 0.01}),
    "regularization_schedule": ({"dropout": 0.5}, "constant", "cosine"),
}
# What a call of one epoch has no use for, as its docstring says.
NOT_OF_AN_EPOCH = {
    *("max_iter", "n_iter_no_change", "tol", "warm_start", "validation_fraction", "max_fun"),
    *("max_time", "validation_split"),
    *("early_stopping_scoring", "calibration", "bagging", "regularization_schedule"),
}
SETTLED = {
    *("hidden_layer_sizes", "activation", "normalization", "proxy_norm", "init", "n_members"),
    *("categorical_features", "numeric_encoding", "max_onehot", "min_frequency", "embedding_dim"),
    *("loss", "quantiles", "scale_target", "clip_predictions"),
    *("numeric_embedding", "numeric_embedding_dim", "n_frequencies", "frequency_scale"),
    *("scale_inputs", "n_bins", "date_features", "text_features"),
}
CASES = [
    (cls, name)
    for cls in (MLPClassifier, MLPRegressor)
    for name in inspect.signature(cls).parameters
]
OF_BOTH = sorted(
    inspect.signature(MLPClassifier).parameters.keys()
    & inspect.signature(MLPRegressor).parameters.keys()
)
# What both have their common base reads: one's fit and the other's partial fit try it, in turns.
WARM, PARTIAL = (
    [
        (cls, name)
        for cls, name in CASES
        if BUDGET > 1 or name not in OF_BOTH or OF_BOTH.index(name) % 2 == (cls is odd)
    ]
    for odd in (MLPClassifier, MLPRegressor)
)


def outcome(model, printed):
    """All that can be seen of a fit."""
    return [
        printed,
        model.n_iter_,
        model.t_,
        model._trained[1],
        None if model.validation_scores_ is None else list(model.validation_scores_),
        [column.tolist() for column in model.coefs_],
        model.history_["train_metric"].isna().all(),
    ]


def refused(action):
    """What an action's ValueError says, or an empty text."""
    try:
        action()
    except ValueError as error:
        return str(error)
    return ""


def test_every_parameter_is_tried():
    assert {name for _, name in CASES} <= set(CHANGES)


@pytest.mark.parametrize(("cls", "name"), WARM)
@pytest.mark.filterwarnings("ignore:lbfgs failed")
def test_parameters_changed_between_warm_fits_count_or_raise(cls, name, capsys):
    others, first, second = CHANGES[name]
    y, results = target_of(cls), []
    for value in (first, second):
        model = cls(**{**QUICK, "warm_start": True, **others, name: first}).fit(FRAME, y)
        capsys.readouterr()
        model.set_params(**{name: value})
        before = [*model._states]
        error = refused(lambda model=model: model.fit(FRAME, y))
        if error:
            assert value is second
            assert name in {*SETTLED, "device"}
            assert name in error
            assert name == "device" or "set warm_start=False and call fit" in error
            assert all(one is other for one, other in zip(before, model._states, strict=True))
            model.set_params(**{name: first}).fit(FRAME, y)  # it goes on as before
            if name != "device":
                model.set_params(**{name: second, "warm_start": False}).fit(FRAME, y)
            return
        results.append(outcome(model, capsys.readouterr().out))
    assert name not in SETTLED
    assert results[0] != results[1], f"{name} changed nothing, and nobody said so"


@pytest.mark.parametrize(("cls", "name"), PARTIAL)
def test_parameters_changed_between_partial_fits_count_or_raise(cls, name, capsys):
    others, first, second = CHANGES[name]
    if name in NOT_OF_AN_EPOCH:
        assert name in inspect.getdoc(cls.partial_fit)
        return
    y, results = target_of(cls), []
    classes = {"classes": np.unique(y)} if cls is MLPClassifier else {}

    def twice(model):
        for _ in range(2):
            model.partial_fit(FRAME, y, **classes)

    for value in (first, second):
        model = cls(**{**QUICK, **others, name: first})
        twice(model)
        capsys.readouterr()
        model.set_params(**{name: value})
        error = refused(lambda model=model: twice(model))
        if error:
            assert value is second
            assert name in error
            return
        results.append(outcome(model, capsys.readouterr().out))
    assert name not in SETTLED
    assert results[0] != results[1] or (name == "callbacks" and second[0].calls >= 2)


def test_what_is_written_otherwise_has_not_changed():
    parameters = {**QUICK, "warm_start": True, "categorical_features": ["few", "many"]}
    mask = np.array([False, False, False, True, True])
    pairs = [
        ({"hidden_layer_sizes": (8,)}, {"hidden_layer_sizes": 8}),
        ({"hidden_layer_sizes": [8]}, {"hidden_layer_sizes": np.array([8])}),
        ({"categorical_features": mask}, {"categorical_features": mask.tolist()}),
        (
            {"activation": functools.partial(CombU, ratios={"relu": 0.5, "tanh": 0.5})},
            {"activation": functools.partial(CombU, ratios={"relu": 0.5, "tanh": 0.5})},
        ),
        ({"max_onehot": 32}, {"max_onehot": np.int64(32)}),
        ({"quantiles": (0.1, 0.2)}, {"quantiles": [0.3]}),  # of no use to squared errors
    ]
    for first, second in pairs:
        model = MLPRegressor(**{**parameters, **first}).fit(FRAME, Z)
        model.set_params(**second).fit(FRAME, Z)
        assert len(model.loss_curve_) == 8
    sizes = [8]
    model = MLPRegressor(**{**parameters, "hidden_layer_sizes": sizes}).fit(FRAME, Z)
    sizes[0] = 16  # changed in place
    with pytest.raises(ValueError, match=r"hidden_layer_sizes=\(16,\).*made with.*\(8,\)"):
        model.fit(FRAME, Z)


def test_files_and_pickles_keep_the_fitted_parameters(tmp_path):
    law = expression_network("3*a + b", FRAME[["a", "b", "c"]])
    for parameters in (QUICK, {**QUICK, "init": law, "hidden_layer_sizes": "auto"}):
        table = FRAME[["a", "b", "c"]]
        model = MLPRegressor(**{**parameters, "warm_start": True}).fit(table, Z)
        path = tmp_path / "model.safetensors"
        model.save(path)
        for copied in (MLPRegressor.load(path), pickle.loads(pickle.dumps(model))):
            copied.fit(table, Z)
            assert len(copied.loss_curve_) == 8
            with pytest.raises(ValueError, match="numeric_encoding='none'"):
                copied.set_params(numeric_encoding="none").fit(table, Z)
        model.set_params(numeric_encoding="none").save(path)  # the parameter, not the network
        with pytest.raises(ValueError, match="numeric_encoding='none'"):
            MLPRegressor.load(path).fit(table, Z)
