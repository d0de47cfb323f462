"""scikit-learn's own estimator checks: every one, none expected to fail."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from combutab import PackClassifier, PackRegressor

# Small, and such that a row of weight 2 is the same as the row twice, which dropout is not made for
TINY = {
    "n_members": 3,
    "max_iter": 12,
    "activations": ("relu", "combu"),
    "member_params": {
        "hidden_layer_sizes": (16,),
        "batch_size": 256,
        "numeric_embedding_dim": 4,
        "numeric_encoding": "standard",
        "learning_rate_init": 0.03,
        "dropout": 0.0,
        "precision": "float64",
    },
}


def _name(check):
    return getattr(check, "func", check).__name__


@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(estimator, check, id=f"{cls.__name__}-{_name(check)}")
        for cls in (PackClassifier, PackRegressor)
        for estimator, check in estimator_checks_generator(cls(**TINY))
    ],
)
def test_scikit_learn_check(estimator, check):
    check(estimator)
