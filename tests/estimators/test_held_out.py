"""Predictions of rows set aside: no choice that is made with a row affects its own prediction."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import HistGradientBoostingClassifier

from combutab import MLPClassifier, MLPRegressor, PackClassifier, TabMClassifier
from combutab.core.splits import validation_parts
from combutab.estimators._boosting import has_stopped
from combutab.training import Callback

pytestmark = pytest.mark.usefixtures("few_trees")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(160, 3))
NUMBERS = X[:, 0] + RNG.normal(size=160)
LABELS = (NUMBERS > 0).astype(int)
LATEST = np.arange(160) >= 110  # 50 rows in five blocks of 10
BLOCK = slice(120, 130)
SETTINGS = {
    "hidden_layer_sizes": (16,),
    "learning_rate_init": 0.03,
    "batch_size": 20,
    "max_iter": 12,
    "n_iter_no_change": np.inf,
    "random_state": 0,
    "validation_split": LATEST,
}


def both_predictions(model, y, other_y, **more):
    """Held-out predictions of two fits whose targets differ in one block of validation rows."""
    name = "oof_prediction_" if isinstance(model, MLPRegressor) else "oof_decision_function_"
    fits = [type(model)(**model.get_params()).fit(X, target, **more) for target in (y, other_y)]
    for fit in fits:
        found = getattr(fit, name).reshape(len(X), -1)
        assert_array_equal(np.isfinite(found).all(1), LATEST)
    return [getattr(fit, name) for fit in fits]


def flipped(y):
    other = y.copy()
    other[BLOCK] = 1 - y[BLOCK]
    return other


@pytest.mark.parametrize(
    ("scoring", "n_members"),
    [("loss", 1), ("accuracy", 3), ("balanced_accuracy", 1), ("balanced_accuracy", 3)],
)
def test_own_label_does_not_change_oof_prediction(scoring, n_members):
    model = MLPClassifier(
        **SETTINGS, early_stopping_scoring=scoring, n_members=n_members, calibration=None
    )
    if scoring == "balanced_accuracy":  # two parts, of 25 rows
        other = LABELS.copy()
        other[110:135] = 1 - LABELS[110:135]
        before, after = both_predictions(model, LABELS, other)
        assert_array_equal(after[110:135], before[110:135])
    else:
        before, after = both_predictions(model, LABELS, flipped(LABELS))
        assert_array_equal(after[BLOCK], before[BLOCK])
    assert (after[LATEST] != before[LATEST]).any()  # choices for other rows do change


def test_temperature_does_not_depend_on_own_label():
    model = MLPClassifier(**SETTINGS | {"max_iter": 1}, n_members=1)
    wrong, right = LABELS.copy(), LABELS.copy()
    p = MLPClassifier(**SETTINGS | {"max_iter": 1}, n_members=1).fit(X, LABELS).predict(X)
    wrong[BLOCK], right[BLOCK] = 1 - p[BLOCK], p[BLOCK]
    before, after = both_predictions(model, right, wrong)
    # the search for all rows tries somewhat different temperatures; the model's own changes more
    own = [model.fit(X, y).predict_proba(X[BLOCK]) for y in (right, wrong)]
    assert abs(after[BLOCK] - before[BLOCK]).max() < abs(own[1] - own[0]).max() / 2


@pytest.mark.parametrize("loss", ["squared_error", "quantile"])
@pytest.mark.parametrize("scoring", ["loss", "r2"])
def test_own_target_does_not_change_oof_prediction(loss, scoring):
    model = MLPRegressor(
        **SETTINGS, loss=loss, scale_target=False, early_stopping_scoring=scoring, n_members=2
    )
    other = NUMBERS.copy()
    other[BLOCK] = -3 * NUMBERS[BLOCK]
    before, after = both_predictions(model, NUMBERS, other)
    assert_array_equal(after[BLOCK], before[BLOCK])
    assert (after[LATEST] != before[LATEST]).any()


def test_heads_of_tabm_are_averaged():
    model = TabMClassifier(**SETTINGS | {"max_iter": 1}, n_members=1, calibration=None)
    model.fit(X, LABELS)
    found = model.oof_decision_function_[LATEST]
    assert_allclose(found, model.predict_proba(X[LATEST]), rtol=1e-5)


class Recorder(Callback):
    """Records each epoch's predictions for all encoded rows."""

    def __init__(self):
        self.epochs = []

    def on_epoch_network(self, report, network, data):
        self.epochs.append(network.predict(data.dense, data.codes, 100)[..., 0].numpy())


def test_oof_uses_best_epoch_of_other_parts():
    recorder = Recorder()
    settings = SETTINGS | {"validation_split": None, "early_stopping_scoring": "loss"}
    model = MLPRegressor(**settings, bagging="cv", n_members=4, scale_target=False)
    job = model._make_job(model._prepare(X, NUMBERS))
    model.set_params(callbacks=[recorder]).fit(X, NUMBERS)
    raw, n_early = np.array(recorder.epochs), 0  # (epoch, member, row)
    for m, plan in enumerate(job.plans):
        rows, parts = plan.val_rows.numpy(), plan.val_parts.numpy()
        assert sorted(set(parts)) == [0, 1, 2, 3, 4]
        losses = (raw[:, m, rows] - NUMBERS[rows]) ** 2
        for part in range(5):
            best = losses[:, parts != part].mean(1).argmin()
            n_early += best != losses.mean(1).argmin()
            own = rows[parts == part]
            assert_allclose(model.oof_prediction_[own], raw[best, m, own], rtol=1e-5)
    assert n_early  # some parts have another best epoch than all rows together


PACK = {
    "n_members": 3,
    "max_iter": 10,
    "cv": LATEST,
    "random_state": 0,
    "member_params": {"hidden_layer_sizes": (8,), "numeric_embedding_dim": 2, "batch_size": 32},
}


@pytest.mark.parametrize("scoring", [None, "accuracy"])
def test_own_label_does_not_change_pack_oof(scoring):
    members = {**PACK["member_params"], "label_smoothing": 0.0}
    settings = {**PACK, "max_ensemble_size": 8, "member_params": members}
    rows = BLOCK if scoring is None else slice(110, 135)  # two parts by the slow scorers
    other = LABELS.copy()
    other[rows] = 1 - LABELS[rows]
    packs = [
        PackClassifier(**settings, scoring=scoring, boosting=False).fit(X, y)
        for y in (LABELS, other)
    ]
    before, after = (pack.oof_decision_function_ for pack in packs)
    assert_array_equal(after[rows], before[rows])
    assert (after[LATEST] != before[LATEST]).any()


def test_tree_early_stopping_excludes_predicted_rows():
    flipped_rows, packs = flipped(LABELS), []
    for y in (LABELS, flipped_rows):
        pack = PackClassifier(**PACK | {"max_iter": 1}).fit(X, y)
        packs.append(pack)
    own = [pack.predict_proba(X[BLOCK]) for pack in packs]
    before, after = (pack.oof_decision_function_[BLOCK] for pack in packs)
    assert abs(after - before).max() < abs(own[1] - own[0]).max() / 4


def test_boosting_stops_where_scikit_learn_does():
    rng = np.random.default_rng(1)
    rows, y = rng.normal(size=(400, 4)), rng.integers(0, 2, 400)
    train, val = np.arange(300), np.arange(300, 400)
    model = HistGradientBoostingClassifier(
        max_iter=300, early_stopping=True, n_iter_no_change=20, random_state=0
    )
    model.fit(rows[train], y[train], X_val=rows[val], y_val=y[val])
    losses = (-model.validation_score_).tolist()
    stopped = [has_stopped(losses[: i + 1]) for i in range(len(losses))]
    assert len(losses) < 300
    assert stopped == [False] * (len(losses) - 1) + [True]


def test_parts_of_validation_rows():
    y = np.repeat([0, 1, 2], [50, 12, 3])
    parts = validation_parts(y, 5)
    counts = np.array([np.bincount(parts[y == k], minlength=5) for k in range(3)])
    assert (counts.max(1) - counts.min(1) <= 1).all()
    groups = RNG.permutation(np.arange(65) % 8)
    parts = validation_parts(y, 5, groups)
    assert len(set(parts)) == 4
    assert all(len(set(parts[groups == g])) == 1 for g in range(8))
    assert validation_parts(y, 5, in_order=True).tolist() == np.repeat(range(5), 13).tolist()
    assert validation_parts(y[:1], 5).tolist() == [0]
    assert validation_parts(y, 5, np.zeros(65)).tolist() == [0] * 65
