"""A classifier that answers one class to every row says so, where it has learned nothing."""

import re
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from combutab import MLPClassifier
from combutab.estimators import FitTask, fit_stacked
from combutab.model_selection import StackedGridSearchCV

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
Y = np.where(X[:, 0] > 0.6, "yes", "no")
LEARNS = {
    "hidden_layer_sizes": (8,),
    "activation": "relu",
    "solver": "adam",
    "alpha": 0.0,
    "learning_rate": "constant",
    "learning_rate_init": 0.03,
    "learning_rate_factors": None,
    "numeric_embedding": "none",
    "numeric_encoding": "standard",
    "init": "torch",
    "scale_inputs": False,
    "dropout": 0.0,
    "label_smoothing": 0.0,
    "regularization_schedule": "constant",
    "batch_size": 100,
    "early_stopping": False,
    "early_stopping_scoring": None,
    "validation_fraction": 0.1,
    "calibration": None,
    "max_iter": 20,
    "n_iter_no_change": np.inf,
    "random_state": 0,
}
STALLS = {**LEARNS, "alpha": 1e4}  # which leaves nothing but the last bias


def told(estimator, X, y, **more):
    """What fit says of one class."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X, y, **more)
    assert all(issubclass(w.category, ConvergenceWarning) for w in caught)
    found = [w for w in caught if "answers class" in str(w.message)]
    assert all(w.filename == __file__ for w in found)
    return [str(w.message) for w in found]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"early_stopping": True, "n_iter_no_change": 3, "max_iter": 60},
        {"early_stopping": True, "early_stopping_scoring": "loss"},
        {"early_stopping": True, "early_stopping_scoring": "roc_auc"},
        {"n_members": 2, "bagging": "cv", "early_stopping_scoring": "loss"},
        {"precision": "float64", "label_smoothing": 0.1},
        {"activation": "elu", "n_members": 2},
    ],
    ids=lambda more: ", ".join(f"{n}={v}" for n, v in more.items()) or "plain",
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_network_that_has_learned_nothing_warns_once_and_one_that_has_does_not(more, n_classes):
    y = Y if n_classes == 2 else np.where(X[:, 1] > 1.2, "perhaps", Y)
    if n_classes == 3 and more.get("early_stopping_scoring") == "roc_auc":
        more = {**more, "early_stopping_scoring": "roc_auc_ovr"}
    assert not told(MLPClassifier(**LEARNS | more), X, y)
    model = MLPClassifier(**STALLS | more)
    (message,) = told(model, X, y)
    assert set(model.predict(X)) == {"no"}
    rows = "validation" if more.get("early_stopping") or "bagging" in more else "training"
    n_rows = 40 if more.get("early_stopping") else 400
    assert f"answers class 'no' for every one of {n_rows} {rows} rows" in message
    share, loss, entropy = (
        float(number)
        for number in re.search(
            r"([\d.]+)% .* loss ([\d.]+), .* shares ([\d.]+)\)", message
        ).groups()
    )
    assert abs(share / 100 - (y == "no").mean()) < 0.02
    assert 0.95 * entropy < loss
    for way_out in ("learning_rate_init than 0.03", "max_iter=", "class_weight='balanced'"):
        assert way_out in message
    by_other = rows == "validation" and more.get("early_stopping_scoring") != "loss"
    assert ("early_stopping_scoring='loss'" in message) == by_other


def test_a_rare_class_that_is_told_from_the_others_is_no_stall():
    n = 2000
    column = np.arange(n) % 5 == 0
    rare = column & (RNG.uniform(size=n) < 0.3)  # 6 %, of one row in five: none is answered
    model = MLPClassifier(**LEARNS)
    assert not told(model, column[:, None].astype(float), rare)
    assert not model.predict([[0.0], [1.0]]).any()
    assert model.predict_proba([[1.0]])[0, 1] > 0.2
    assert told(MLPClassifier(**STALLS), column[:, None].astype(float), rare)


def test_a_training_target_of_one_class_several_labels_or_columns_that_say_nothing_are_no_stall():
    assert not told(MLPClassifier(**STALLS), X, np.full(400, "no"))
    assert not told(MLPClassifier(**STALLS, class_weight={"yes": 0.0}), X, Y)
    assert not told(MLPClassifier(**STALLS), X, np.stack([Y == "yes", X[:, 1] > 2], 1) * 1)
    assert not told(MLPClassifier(**STALLS), np.zeros((400, 1)), Y)
    assert not told(MLPClassifier(**STALLS), X, Y, X_val=X[Y == "no"], y_val=Y[Y == "no"])


def test_trials_partial_fits_and_parts_of_a_warm_start_do_not_warn():
    assert not told(MLPClassifier(**STALLS | {"max_iter": 19}), X, Y)
    model = MLPClassifier(**STALLS, warm_start=True)
    for _ in range(2):
        assert not told(model, X, Y)  # but of max_iter
    model = MLPClassifier(**STALLS)
    for _ in range(25):
        model.partial_fit(X, Y, classes=["no", "yes"])
    stops = MLPClassifier(**STALLS | {"n_iter_no_change": 2, "tol": 1.0, "warm_start": True})
    assert told(stops, X, Y)


def test_stacked_fits_warn_once_an_estimator():
    tasks = [
        FitTask(MLPClassifier(**settings | {"random_state": seed}), X, Y, data_key=0)
        for settings in (LEARNS, STALLS)
        for seed in range(2)
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit_stacked(tasks)
        assert len(caught) == 2
        StackedGridSearchCV(MLPClassifier(**LEARNS), {"alpha": [0.0, 1e4]}, cv=3).fit(X, Y)
        assert len(caught) == 2 + 3  # a fold each
    assert all("answers class 'no'" in str(w.message) for w in caught)
