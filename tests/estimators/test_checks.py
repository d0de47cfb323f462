"""scikit-learn's own estimator checks: every one, none expected to fail."""

import inspect

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from combutab import MLPClassifier, MLPRegressor, TabMClassifier, TabMRegressor

# A dropout mask is a function of a row's position, so a row of weight 2 and the same row twice are
# two things; float32 rounds beyond the checks' rtol of 1e-7; and quantiles lie between means of
# min_frequency rows, whatever these weigh. All hold with dropout=0, float64 and min_frequency=1,
# where these checks run and pass.
WEIGHTS_AS_COPIES = {
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
}
EXACT = {"dropout": 0.0, "precision": "float64", "max_iter": 5, "learning_rate_init": 0.01}
EXACT |= {"min_frequency": 1}
SHORT = {"max_iter": 10, "learning_rate_init": 0.01}  # all else by default
NARROW = {"hidden_layer_sizes": (32,), "learning_rate_init": 0.03}
TABM = {
    **EXACT,
    "hidden_layer_sizes": (16,),
    "n_heads": 3,
    "n_bins": 6,
    "numeric_embedding_dim": 4,
    # quantiles of groups of rows count rows, not their weights
    "learning_rate_init": 0.05,
    "max_iter": 10,
    "min_frequency": 1,
}
PROXY_NORM = {"normalization": "layer", "proxy_norm": True}
# Both estimators as they are by default, but for the width of the exact classifier; then each loss,
# solver, normalisation and so on once:
# they do not know of each other, and some share an instance. Where a check asks for a score after
# few epochs, the rate or the batches are such as reach it.
SETTINGS = [
    (MLPClassifier, EXACT | NARROW | {"max_iter": 20}, set()),
    (MLPRegressor, EXACT, set()),
    (MLPClassifier, SHORT, WEIGHTS_AS_COPIES),
    (MLPRegressor, SHORT, WEIGHTS_AS_COPIES),
    (
        MLPClassifier,
        {**NARROW, "normalization": "batch", "batch_size": 5, "max_iter": 4},
        WEIGHTS_AS_COPIES,
    ),
    (
        MLPClassifier,
        EXACT
        | NARROW
        | {"n_members": 2, "solver": "sgd", "learning_rate_init": 0.1, "max_iter": 15},
        set(),
    ),
    (MLPClassifier, {**NARROW, "solver": "lbfgs", "max_iter": 20}, WEIGHTS_AS_COPIES),
    (
        MLPRegressor,
        {**EXACT, **NARROW, "loss": "quantile", "activation": "prelu", "max_iter": 15},
        set(),
    ),
    (
        MLPRegressor,
        EXACT | NARROW | {"max_iter": 10, "loss": "gaussian_nll"} | PROXY_NORM,
        set(),
    ),
    (TabMClassifier, TABM, set()),
    (TabMRegressor, TABM, set()),
]


def _name(check):
    return getattr(check, "func", check).__name__


def _setting(cls, parameters):
    return f"{cls.__name__}({','.join(f'{n}={v}' for n, v in parameters.items())})"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(estimator, check, id=f"{_setting(cls, parameters)}-{_name(check)}")
        for cls, parameters, left_out in SETTINGS
        for estimator, check in estimator_checks_generator(cls(**parameters))
        if _name(check) not in left_out
    ],
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_the_exact_instances_run_the_checks_that_others_leave_out():
    for cls, parameters, left_out in SETTINGS:
        names = {_name(check) for _, check in estimator_checks_generator(cls(**parameters))}
        assert names >= WEIGHTS_AS_COPIES
        assert left_out <= WEIGHTS_AS_COPIES
    for cls in (MLPClassifier, MLPRegressor):
        assert any(c is cls and not left_out for c, _, left_out in SETTINGS)
        assert "sample_weight" in inspect.signature(cls.fit).parameters
