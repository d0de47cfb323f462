"""scikit-learn's own estimator checks, none expected to fail."""

from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from combutab.preprocessing import TableEncoder


@parametrize_with_checks(
    [
        TableEncoder(),
        TableEncoder(numeric="quantile"),
        TableEncoder(numeric="robust"),
        TableEncoder(numeric="none"),
        TableEncoder(categorical_features=[0], max_onehot=1),
    ]
)
def test_scikit_learn_checks(estimator: BaseEstimator, check):
    check(estimator)
