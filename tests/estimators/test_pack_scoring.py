"""``scoring`` of packs: the ensemble is chosen by scikit-learn's scorers."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import accuracy_score, f1_score, make_scorer, mean_absolute_error

from combutab import PackClassifier, PackRegressor

pytestmark = pytest.mark.usefixtures("few_trees")
X, Y = make_classification(300, 6, n_informative=4, weights=[0.8], flip_y=0.1, random_state=0)
THREE = np.array(["no", "perhaps", "yes"])[np.digitize(X[:, 0] + 0.5 * X[:, 1], [-0.5, 0.8])]
QUICK = {"n_members": 4, "max_iter": 4, "random_state": 0, "max_ensemble_size": 6}
QUICK["member_params"] = {"hidden_layer_sizes": (8,), "batch_size": 64, "numeric_embedding_dim": 3}


@pytest.mark.parametrize("y", [Y, THREE])
def test_selection_by_score_maximizes_the_score(y):
    scores = []
    for scoring in (None, "accuracy"):
        pack = PackClassifier(**QUICK, scoring=scoring, boosting=False)
        pack.fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])
        scores.append(pack.score(X[200:], y[200:]))
    assert scores[1] >= scores[0]


def by_class(pack):
    return pack.classes_[pack.oof_decision_function_.argmax(1)]


def test_callable_scorer_equals_the_named_one():
    packs = [
        PackClassifier(**QUICK, scoring=scoring, boosting=False).fit(X, Y)
        for scoring in ("f1", make_scorer(f1_score))
    ]
    assert (packs[0].predict_proba(X) == packs[1].predict_proba(X)).all()
    assert packs[0].members_["weight"].tolist() == packs[1].members_["weight"].tolist()


def test_numbers_are_scored_in_their_units():
    y, seen = 1000 + 50 * X[:, 0] + 20 * Y, []

    def watched(estimator, rows, truth, sample_weight=None):
        seen.append(truth)
        return -mean_absolute_error(truth, estimator.predict(rows), sample_weight=sample_weight)

    weight = np.ones(len(X))
    weight[:20] = 0
    PackRegressor(**QUICK, scoring=watched).fit(X, y, weight)
    # each of four folds and all rows together, and these without each half of the rows
    lengths = np.unique([len(truth) for truth in seen])
    assert lengths[[0, -1]].tolist() == [34, 280] or lengths[[0, -1]].tolist() == [35, 280]
    together = next(truth for truth in seen if len(truth) == 280)
    assert np.allclose(np.sort(together), np.sort(y[20:]))


@pytest.mark.parametrize(
    ("scoring", "words"),
    [("nonsense", "'nonsense'"), ("roc_auc", "scoring='roc_auc' can")],
)
def test_what_cannot_score_is_refused_before_training(scoring, words):
    with pytest.raises(ValueError, match=words):
        PackRegressor(**QUICK, scoring=scoring).fit(X, X[:, 0])


@pytest.mark.parametrize("weight", [None, np.linspace(0.5, 2, len(X))])
def test_class_weights_count_in_scores(weight):
    """The scores by which the ensemble is chosen have the weights of the training."""
    seen = []

    def watched(estimator, rows, truth, sample_weight=None):
        seen.append(np.ones(len(truth)) if sample_weight is None else sample_weight)
        return accuracy_score(truth, estimator.predict(rows), sample_weight=sample_weight)

    pack = PackClassifier(**QUICK, class_weight="balanced", scoring=watched).fit(X, Y, weight)
    together = np.sort(next(weights for weights in seen if len(weights) == len(X)))
    of_class = 1 / np.bincount(Y, weight)  # the total weight of both classes is 1
    expected = np.sort(of_class[Y] * (1.0 if weight is None else weight))
    np.testing.assert_allclose(together / together.mean(), expected / expected.mean(), rtol=1e-5)
    assert np.isfinite(pack.oof_decision_function_).all()
    assert pack.oof_decision_function_.shape == (len(X), 2)
    assert accuracy_score(Y, by_class(pack)) > 0.6  # each row has its own prediction
