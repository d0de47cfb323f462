"""bagging="cv": each member validates on its own fold, and all rows train."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris

from combutab import MLPClassifier, MLPRegressor, load
from combutab.estimators import FitTask, fit_stacked
from combutab.estimators._fitted import held_out_outputs
from combutab.model_selection import StackedGridSearchCV

IRIS = load_iris(return_X_y=True)
DIABETES = tuple(part[:120] for part in load_diabetes(return_X_y=True))
BAGGED = {
    "hidden_layer_sizes": (8,),
    "activation": "relu",
    "solver": "adam",
    "learning_rate": "constant",
    "learning_rate_init": 0.02,
    "init": "torch",
    "numeric_encoding": "standard",
    "numeric_embedding": "none",
    "early_stopping": False,
    "early_stopping_scoring": None,
    "max_iter": 6,
    "n_iter_no_change": np.inf,
    "random_state": 3,
    "n_members": 3,
    "bagging": "cv",
}


def folds_of(model, X, y, sample_weight=None):
    prepared = model.encode_data(X, y, sample_weight)
    return prepared, [
        fold.numpy() - prepared.out_of_fold.scored_from for _, fold in prepared.splits
    ]


def states(model):
    return [np.concatenate([v.ravel() for v in state.values()]) for state in model._states]


def test_the_validation_rows_of_the_members_are_all_rows_and_have_equal_shares_of_each_class():
    X, y = IRIS
    model = MLPClassifier(**BAGGED)
    prepared, folds = folds_of(model, X, y)
    assert_array_equal(np.sort(np.concatenate(folds)), np.arange(150))
    assert all(np.ptp([np.bincount(y[fold])[c] for fold in folds]) <= 1 for c in range(3))
    assert any(np.diff(fold).max() > 1 for fold in folds)  # shuffled
    for plan, fold in zip(model.make_job(prepared).plans, folds, strict=True):
        assert_array_equal(plan.val_rows, fold)
        assert_array_equal(np.sort([*plan.rows, *plan.val_rows]), np.arange(150))
    assert [f.tolist() for f in folds_of(clone(model), X, y)[1]] == [f.tolist() for f in folds]
    other = folds_of(clone(model).set_params(random_state=4), X, y)[1]
    assert other[0].tolist() != folds[0].tolist()


@pytest.mark.parametrize(
    ("cls", "data", "more"),
    [
        (MLPClassifier, IRIS, {"class_weight": {0: 1.0, 1: 5.0, 2: 0.2}}),
        (MLPClassifier, (IRIS[0][:100], IRIS[1][:100]), {"early_stopping_scoring": "roc_auc"}),
        (MLPClassifier, (IRIS[0], np.eye(3, dtype=int)[IRIS[1]]), {}),
        (MLPRegressor, DIABETES, {"loss": "quantile", "early_stopping_scoring": "loss"}),
        (MLPRegressor, (DIABETES[0], np.stack([DIABETES[1]] * 2, 1) / [1, 9]), {}),
    ],
    ids=["class weights", "scorer", "multi-label", "quantiles", "two targets"],
)
def test_a_member_is_the_network_that_its_rows_give_alone(cls, data, more):
    X, y = data
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    plain = {"numeric_encoding": "none", "precision": "float64"}  # nothing is learned of all rows
    plain |= {"scale_target": False} if cls is MLPRegressor else {}
    model = cls(**BAGGED | plain | more)
    if cls is MLPRegressor:
        y = (y - y.mean(0)) / y.std(0)
    _, folds = folds_of(clone(model), X, y, weight)
    model.fit(X, y, weight)
    alone = clone(model).set_params(bagging=None)
    for i, fold in enumerate(folds):
        train = np.setdiff1d(np.arange(len(X)), fold)
        # given validation rows have no weights, so that they are trained on as many
        alone.fit(X[train], y[train], weight[train], X_val=X[fold], y_val=y[fold])
        mine, theirs = (m.history_.query(f"member == {i}") for m in (model, alone))
        assert_allclose(mine["train_loss"], theirs["train_loss"], rtol=1e-9)
    model.fit(X, y)  # now the scores as well
    for i, fold in enumerate(folds):
        train = np.setdiff1d(np.arange(len(X)), fold)
        alone.fit(X[train], y[train], X_val=X[fold], y_val=y[fold])
        mine, theirs = (m.history_.query(f"member == {i}") for m in (model, alone))
        assert_allclose(mine["validation_score"], theirs["validation_score"], rtol=1e-9)
        assert_allclose(states(model)[i], states(alone)[i], rtol=1e-9)


def test_predictions_are_the_members_mean_and_those_of_a_row_by_the_member_that_has_not_seen_it():
    X, y = IRIS
    model = MLPClassifier(**BAGGED).fit(X, y)
    members = torch.softmax(model._raw(X), -1).numpy()
    assert_allclose(model.predict_proba(X), members.mean(0), rtol=1e-6)
    _, folds = folds_of(clone(model), X, y)
    assert model.oof_decision_function_.shape == (150, 3)
    for member, fold in zip(members, folds, strict=True):
        assert_allclose(model.oof_decision_function_[fold], member[fold], rtol=1e-4, atol=1e-6)
    score = (model.oof_decision_function_.argmax(1) == y).mean()
    best = model.history_.groupby("member")["validation_score"].max()
    assert_allclose(score, best.mean(), rtol=1e-6)  # folds of equal length
    model.set_params(bagging=None).fit(X, y)
    assert not hasattr(model, "oof_decision_function_")


def test_rows_whose_member_an_interrupt_has_cost_have_no_prediction_of_their_own():
    X, y = IRIS
    model = MLPClassifier(**BAGGED).fit(X, y)
    unfitted = clone(model)
    job = unfitted.make_job(unfitted.encode_data(X, y))
    net = model.network()
    net.select([0])
    raw = held_out_outputs(net, job)
    answered = ~raw.isnan().any(-1)[0]
    assert_array_equal(
        answered.nonzero()[:, 0], job.plans[0].val_rows - job.out_of_fold.scored_from
    )


def test_rows_of_weight_0_have_no_prediction_of_their_own():
    X, y = DIABETES
    weight = np.ones(len(y))
    weight[[3, 50]] = 0
    model = MLPRegressor(**BAGGED).fit(X, y, weight)
    assert np.flatnonzero(np.isnan(model.oof_prediction_)).tolist() == [3, 50]
    kept = weight > 0
    assert_allclose(
        MLPRegressor(**BAGGED).fit(X[kept], y[kept]).oof_prediction_,
        model.oof_prediction_[kept],
        rtol=1e-3,
    )


def test_stacked_fits_and_searches_have_the_folds_of_a_fit_alone(tmp_path):
    X, y = IRIS
    variants = [{}, {"n_members": 4}, {"bagging": None}, {"random_state": 9}, {"activation": "elu"}]
    tasks = [FitTask(MLPClassifier(**BAGGED | v), X, y, data_key=0) for v in variants]
    assert [outcome.error for outcome in fit_stacked(tasks)] == [None] * len(tasks)
    for task, variant in zip(tasks, variants, strict=True):
        alone = MLPClassifier(**BAGGED | variant).fit(X, y)
        assert_allclose(task.estimator.predict_proba(X), alone.predict_proba(X), atol=1e-5)
    search = StackedGridSearchCV(
        MLPClassifier(**BAGGED), {"learning_rate_init": [1e-5, 0.02]}, cv=2
    )
    search.fit(X, y)
    assert search.best_params_ == {"learning_rate_init": 0.02}
    assert search.best_estimator_.oof_decision_function_.shape == (150, 3)
    search.best_estimator_.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert_allclose(loaded.predict_proba(X), search.predict_proba(X), rtol=1e-6)
    assert not hasattr(loaded, "oof_decision_function_")  # of the rows, which files do not hold
    loaded.set_params(bagging=None).partial_fit(X, y)


def test_data_that_do_not_go_with_folds_are_refused(tmp_path):
    X, y = IRIS
    model = MLPClassifier(**BAGGED)
    with pytest.raises(ValueError, match="takes no X_val and y_val"):
        model.fit(X, y, X_val=X, y_val=y)
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as caught:
        model.partial_fit(X, y, classes=[0, 1, 2])
    assert "only available with bagging=None" in str(caught.value.__cause__)
    with pytest.raises(ValueError, match="fit_parquet reads the rows once for all members"):
        model.fit_parquet(tmp_path / "none.parquet", "y")
    with pytest.raises(
        ValueError, match=r"n_members=3 needs a row of each class .* class rare has 2 row"
    ):
        model.fit(X, np.where(np.arange(150) < 2, "rare", "usual"))
    with pytest.raises(ValueError, match="n_members=3 is too many for n_samples=5"):
        MLPRegressor(**BAGGED).fit(X[:5], y[:5])
    model.fit(X, y).set_params(warm_start=True, bagging=None).set_params(max_iter=1)
    with pytest.warns(UserWarning, match=r"Maximum iterations \(1\) reached"):
        model.fit(X, y)  # goes on, without folds
