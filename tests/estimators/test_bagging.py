"""Members that set aside different rows: two by default, and the folds of bagging="cv"."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV

from combutab import MLPClassifier, MLPRegressor, TabMRegressor, load
from combutab.estimators import FitTask, fit_stacked
from combutab.estimators._base import FitMode, check_data
from combutab.model_selection import StackedGridSearchCV
from combutab.training import Callback

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
    prepared = model._prepare(X, y, sample_weight)
    return prepared, [fold.numpy() for _, fold in prepared.splits]


def states(model):
    return [np.concatenate([v.ravel() for v in state.values()]) for state in model._states]


def test_folds_are_stratified_and_cover_all_rows():
    X, y = IRIS
    model = MLPClassifier(**BAGGED)
    prepared, folds = folds_of(model, X, y)
    assert_array_equal(np.sort(np.concatenate(folds)), np.arange(150))
    assert all(np.ptp([np.bincount(y[fold])[c] for fold in folds]) <= 1 for c in range(3))
    assert any(np.diff(fold).max() > 1 for fold in folds)  # shuffled
    for plan, fold in zip(model._make_job(prepared).plans, folds, strict=True):
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
def test_bagged_member_equals_single_fit_on_its_rows(cls, data, more):
    X, y = data
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    # nothing is learned of all rows
    plain = {"numeric_encoding": "none", "precision": "float64", "max_iter": 3}
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


def test_bagged_predictions_are_the_members_mean():
    X, y = IRIS
    model = MLPClassifier(**BAGGED).fit(X, y)
    members = torch.softmax(model._raw(X), -1).numpy()
    assert_allclose(model.predict_proba(X), members.mean(0), rtol=1e-6)
    _, folds = folds_of(clone(model), X, y)
    assert model.oof_decision_function_.shape == (150, 3)
    check_that_rows_were_held_out(model, X, folds)
    model.set_params(bagging=None).fit(X, y)
    assert not hasattr(model, "oof_decision_function_")


def test_zero_weight_rows_have_no_oof_prediction():
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


def test_stacked_fits_use_the_same_folds(tmp_path):
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


def test_data_unsuitable_for_folds_are_refused(tmp_path):
    X, y = IRIS
    model = MLPClassifier(**BAGGED)
    with pytest.raises(ValueError, match="y_val"):
        model.fit(X, y, X_val=X, y_val=y)
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as caught:
        model.partial_fit(X, y, classes=[0, 1, 2])
    assert "only available with bagging=None" in str(caught.value.__cause__)
    with pytest.raises(ValueError, match="fit_parquet"):
        model.fit_parquet(tmp_path / "none.parquet", "y")
    with pytest.raises(ValueError, match=r"n_members=3.*2"):
        model.fit(X, np.where(np.arange(150) < 2, "rare", "usual"))
    with pytest.raises(ValueError, match=r"n_members=3.*n_samples=5"):
        MLPRegressor(**BAGGED).fit(X[:5], y[:5])
    model.fit(X, y).set_params(warm_start=True, bagging=None).set_params(max_iter=1)
    with pytest.warns(UserWarning, match=r"Maximum iterations \(1\) reached"):
        model.fit(X, y)  # goes on, without folds


# ---- n_members="auto": three networks where rows are set aside ----------------------------------

RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=(211, 3))
LABELS = (NUMBERS[:, 0] + RNG.normal(size=211) > 0.8).astype(int)  # a third and two thirds
RESPONSE = NUMBERS[:, 0] * NUMBERS[:, 1] + 0.1 * RNG.normal(size=211)
QUICK = {
    "hidden_layer_sizes": (8,),
    "max_iter": 3,
    "n_iter_no_change": np.inf,
    "precision": "float64",
    "random_state": 0,
}


def splits_of(model, X, y, sample_weight=None):
    """Training and validation rows of each network, as the job has them."""
    model = clone(model)
    job = model._make_job(model._prepare(X, y, sample_weight))
    return [(plan.rows.numpy(), plan.val_rows) for plan in job.plans]


def check_that_rows_were_held_out(model, X, val_rows):
    """The oof attribute has predictions of these rows, which resemble their networks', no others.

    They are those of some epoch of each network, most of them of its best one.
    """
    name = model.target_.held_out_name
    found, raw = getattr(model, name), model._raw(X)
    assert len(found) == len(X)
    for own, val in zip(raw, val_rows, strict=True):
        expected = model.target_.held_out(own[None])[val]
        assert np.corrcoef(found[val].ravel(), expected.ravel())[0, 1] > 0.5
    others = np.setdiff1d(np.arange(len(X)), np.concatenate(val_rows))
    answered = ~np.isnan(found.reshape(len(X), -1))
    assert not answered[others].any()
    assert answered.sum() == sum(map(len, val_rows)) * answered.shape[1]


@pytest.mark.parametrize(("fraction", "n_members"), [(0.2, 3), (0.45, 2)])
@pytest.mark.parametrize("cls", [MLPClassifier, MLPRegressor])
def test_members_have_disjoint_validation_rows(cls, fraction, n_members):
    y = LABELS if cls is MLPClassifier else RESPONSE
    model = cls(**QUICK, validation_fraction=fraction)
    assert model.n_members == "auto"
    splits = splits_of(model, NUMBERS, y)
    validation_rows = [val for _, val in splits]
    assert [len(val) for val in validation_rows] == [np.ceil(fraction * 211)] * n_members
    assert len(np.unique(np.concatenate(validation_rows))) == sum(map(len, validation_rows))
    for train, val in splits:
        assert_array_equal(np.sort([*train, *val]), np.arange(211))
        assert np.diff(val).max() > 1
        if cls is MLPClassifier:
            for part in (train, val):
                assert abs(y[part].sum() - y.mean() * len(part)) <= 1.5
    model.fit(NUMBERS, y)
    assert len(model._states) == n_members
    assert model.history_["member"].unique().tolist() == list(range(n_members))
    check_that_rows_were_held_out(model, NUMBERS, validation_rows)
    # the first network sets aside the rows that one alone would
    alone = cls(**QUICK, validation_fraction=fraction, n_members=1).fit(NUMBERS, y)
    found = getattr(alone, model.target_.held_out_name).reshape(len(y), -1)[:, 0]
    assert_array_equal(np.flatnonzero(np.isfinite(found)), validation_rows[0])


@pytest.mark.parametrize("cls", [MLPClassifier, MLPRegressor])
def test_predictions_are_the_mean_of_all(cls):
    y = LABELS if cls is MLPClassifier else RESPONSE
    model = cls(**QUICK).fit(NUMBERS, y)
    raw = model._raw(NUMBERS).numpy()[..., 0]
    if cls is MLPClassifier:
        assert_allclose(model.predict_proba(NUMBERS)[:, 1], (1 / (1 + np.exp(-raw))).mean(0))
    else:
        assert_allclose(model.predict(NUMBERS), y.mean() + y.std() * raw.mean(0))


def same_as_one(model, X, y, *weight, **given):
    """Tell whether a fit is what n_members=1 gives, bit for bit."""
    one = clone(model).set_params(n_members=1).fit(X, y, *weight, **given)
    model = clone(model).fit(X, y, *weight, **given)
    held_out = model.target_.held_out_name
    set_aside = one.validation_scores_ is not None and "X_val" not in given
    assert hasattr(model, held_out) is hasattr(one, held_out) is set_aside
    return np.array_equal(one._raw(X), model._raw(X))


ONE = {  # of 211 rows
    "half and half": {"validation_fraction": 0.5},
    "more than half": {"validation_fraction": 0.6},
    "early_stopping": {"early_stopping": False},
    "lbfgs": {"solver": "lbfgs", "early_stopping": True},
}


@pytest.mark.filterwarnings("ignore:lbfgs failed")
@pytest.mark.parametrize("name", ONE)
def test_single_network_without_two_validation_sets(name):
    assert same_as_one(MLPRegressor(**QUICK | ONE[name]), NUMBERS, RESPONSE)
    assert same_as_one(MLPClassifier(**QUICK | ONE[name]), NUMBERS, LABELS)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_single_network_for_small_tables_and_files(tmp_path):
    model = MLPRegressor(**QUICK)
    assert same_as_one(model, NUMBERS[:199], RESPONSE[:199])
    assert not same_as_one(model, NUMBERS[:200], RESPONSE[:200])
    assert same_as_one(model, NUMBERS, RESPONSE, X_val=NUMBERS[:50], y_val=RESPONSE[:50])
    weight = np.r_[np.ones(199), np.zeros(12)]  # which leaves as many
    assert same_as_one(model, NUMBERS, RESPONSE, weight)
    model.partial_fit(NUMBERS, RESPONSE).partial_fit(NUMBERS, RESPONSE)
    assert len(model._states) == 1
    model.set_params(warm_start=True).fit(NUMBERS, RESPONSE)  # goes on with one
    assert len(model._states) == 1
    assert not hasattr(model, "oof_prediction_")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(NUMBERS, columns=list("abc")).assign(y=RESPONSE)
    frame.to_parquet(tmp_path / "t.parquet")
    model = MLPRegressor(**QUICK).fit_parquet(tmp_path / "t.parquet", "y")
    assert len(model._states) == 1
    assert not hasattr(model, "oof_prediction_")


def test_early_stopping_makes_three_networks():
    model = MLPClassifier(**QUICK, early_stopping=True).fit(*IRIS)
    assert len(model._states) == 3
    check_that_rows_were_held_out(model, IRIS[0], [val for _, val in splits_of(model, *IRIS)])


def test_five_networks_with_bagging():
    model = MLPClassifier(**QUICK, bagging="cv").fit(*IRIS)
    assert len(model._states) == 5
    five = clone(model).set_params(n_members=5).fit(*IRIS)
    assert_array_equal(model.oof_decision_function_, five.oof_decision_function_)
    with pytest.raises(ValueError, match=r"n_members=5.*n_samples=9"):
        MLPRegressor(**QUICK, bagging="cv").fit(NUMBERS[:9], RESPONSE[:9])


def test_only_row_of_a_class_trains():
    y = np.where(np.arange(211) == 0, "rare", np.where(LABELS, "yes", "no"))
    for early_stopping in (True, "auto"):
        for n_members in (1, "auto"):
            model = MLPClassifier(**QUICK, early_stopping=early_stopping, n_members=n_members)
            prepared = model._prepare(NUMBERS, y)
            rare = prepared.rows.y.numpy() == 1
            for train, val in prepared.splits:
                assert rare[train].sum() == 1
                labels = prepared.rows.y[val].numpy()
                assert abs((labels == 2).mean() - LABELS[1:].mean()) < 0.02  # stratified
            assert len(prepared.splits) == (1 if n_members == 1 else 3)
    y[1] = "rare"  # one on each side of the first split: the others have no equal shares of it
    assert len(MLPClassifier(**QUICK, early_stopping=True).fit(NUMBERS, y)._states) == 3


def test_rows_of_weight_0_and_class_weights():
    weight = RNG.uniform(0.5, 2.0, 211)
    weight[[3, 50, 120]] = 0
    kept = np.flatnonzero(weight)
    model = MLPClassifier(**QUICK, class_weight={0: 1.0, 1: 4.0}).fit(NUMBERS, LABELS, weight)
    splits = splits_of(model, NUMBERS, LABELS, weight)
    assert all(len(train) + len(val) == 208 for train, val in splits)
    check_that_rows_were_held_out(model, NUMBERS, [kept[val] for _, val in splits])
    # the validation score is weighted as the training loss
    (best, *_), (_, val) = model.history_.groupby("member")["validation_score"].max(), splits[0]
    rows, own = kept[val], model.oof_decision_function_
    loss = -np.log(own[rows, LABELS[rows]])
    total = weight[rows] * np.array([1.0, 4.0])[LABELS[rows]]
    assert_allclose(best, -np.average(loss, weights=total), rtol=0.05)
    without = clone(model).fit(NUMBERS[kept], LABELS[kept], weight[kept])
    assert_allclose(without._raw(NUMBERS), model._raw(NUMBERS), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_warm_start_continues_all_networks():
    model = MLPRegressor(**QUICK, warm_start=True).fit(NUMBERS, RESPONSE)
    splits = splits_of(model, NUMBERS, RESPONSE)
    before = model.history_
    model.fit(NUMBERS, RESPONSE)
    assert len(model._states) == 3
    assert model.history_["train_loss"].iloc[0] < before["train_loss"].iloc[0]
    # each validates on the rows that it has not seen in the first fit either
    again = model._split_rows(check_data(model, NUMBERS, RESPONSE), FitMode(is_new=False))
    for (_, val), (_, rows) in zip(splits, again, strict=True):
        assert_array_equal(val, rows)
    assert not hasattr(model, "oof_prediction_")  # the first fit chose its epochs by these rows
    model.partial_fit(NUMBERS, RESPONSE)
    assert len(model._states) == 3
    assert not hasattr(model, "oof_prediction_")  # all have seen all rows
    model.set_params(n_members=1)
    for go_on in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match=r"n_members=1.*n_members=3"):
            go_on(NUMBERS, RESPONSE)
    model.set_params(n_members=3).partial_fit(NUMBERS, RESPONSE)
    few = model.set_params(n_members="auto").fit(NUMBERS[:50], RESPONSE[:50])  # none set aside
    assert len(few._states) == 3
    assert few.validation_scores_ is None
    assert not hasattr(few, "oof_prediction_")


@pytest.mark.parametrize("cls", [MLPClassifier, MLPRegressor])
def test_files_pickles_and_modules_have_all(cls, tmp_path):
    model = cls(**QUICK).fit(NUMBERS, LABELS if cls is MLPClassifier else RESPONSE)
    answer = "predict_proba" if cls is MLPClassifier else "predict"
    expected = getattr(model, answer)(NUMBERS)
    model.save(tmp_path / "model")
    loaded, copied = load(tmp_path / "model"), pickle.loads(pickle.dumps(model))
    for again in (loaded, copied):
        assert again.n_members == "auto"
        assert len(again._states) == 3
        assert_array_equal(getattr(again, answer)(NUMBERS), expected)
    name = model.target_.held_out_name
    assert_array_equal(getattr(copied, name), getattr(model, name))
    assert not hasattr(loaded, name)
    module = model.to_torch()
    assert_allclose(module(torch.from_numpy(NUMBERS)).detach().numpy(), expected, rtol=1e-5)
    loaded.partial_fit(NUMBERS, LABELS if cls is MLPClassifier else RESPONSE)
    assert len(loaded._states) == 3


class Interrupts(Callback):
    """Ctrl-C at the end of the first epoch."""

    def on_epoch_end(self, report):
        raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.usefixtures("single_stacks")
def test_an_interrupt_may_leave_one_network():
    model = MLPRegressor(**QUICK, callbacks=[Interrupts()])
    splits = splits_of(model, NUMBERS, RESPONSE)
    with pytest.warns(UserWarning, match="interrupted"):
        model.fit(NUMBERS, RESPONSE)
    assert len(model._states) == 1
    check_that_rows_were_held_out(model, NUMBERS, [splits[0][1]])
    model.set_params(callbacks=None, warm_start=True).fit(NUMBERS, RESPONSE)  # goes on with one
    assert len(model._states) == 1
    assert not hasattr(model, "oof_prediction_")


@pytest.mark.parametrize("random_state", [None, np.random.RandomState, np.random.default_rng])
def test_rows_are_different_whatever_they_are_drawn_by(random_state):
    state = random_state and random_state(3)
    model = MLPRegressor(**QUICK | {"random_state": state}).fit(NUMBERS, RESPONSE)
    assert (~np.isnan(model.oof_prediction_)).sum() == 3 * 43
    again = clone(model)
    again.set_params(random_state=random_state and random_state(3)).fit(NUMBERS, RESPONSE)
    same = np.array_equal(again.oof_prediction_, model.oof_prediction_, equal_nan=True)
    assert same is (random_state is not None)


def test_stacked_fits_train_the_same_networks():
    variants = [{}, {"n_members": 1}, {"learning_rate_init": 0.1}, {"random_state": 9}]
    tasks = [FitTask(MLPRegressor(**QUICK | v), NUMBERS, RESPONSE, data_key=0) for v in variants]
    assert [outcome.error for outcome in fit_stacked(tasks)] == [None] * len(tasks)
    for task, variant in zip(tasks, variants, strict=True):
        alone = MLPRegressor(**QUICK | variant).fit(NUMBERS, RESPONSE)
        assert_allclose(task.estimator.predict(NUMBERS), alone.predict(NUMBERS), rtol=1e-9)
    X, y = np.concatenate([NUMBERS, NUMBERS + 0.01]), np.tile(RESPONSE, 2)
    grid = {"learning_rate_init": [1e-5, 0.02], "n_members": ["auto", 1]}
    search = StackedGridSearchCV(MLPRegressor(**QUICK), grid, cv=2).fit(X, y)
    plain = GridSearchCV(MLPRegressor(**QUICK), grid, cv=2).fit(X, y)
    for name in ("mean_test_score", "std_test_score"):
        assert_allclose(search.cv_results_[name], plain.cv_results_[name], rtol=1e-9)
    found = StackedGridSearchCV(MLPRegressor(**QUICK), {"alpha": [0.0]}, cv=2).fit(X, y)
    check_that_rows_were_held_out(
        found.best_estimator_, X, [val for _, val in splits_of(MLPRegressor(**QUICK), X, y)]
    )


def test_a_checkpoint_goes_on_with_both(tmp_path):
    whole = MLPRegressor(**QUICK).fit(NUMBERS, RESPONSE)
    part = MLPRegressor(**QUICK, callbacks=[Interrupts()])
    file = tmp_path / "checkpoint"
    with pytest.warns(UserWarning, match="interrupted"):
        part.fit(NUMBERS, RESPONSE, checkpoint=file)
    again = MLPRegressor(**QUICK).fit(NUMBERS, RESPONSE, checkpoint=file)
    assert_allclose(again.oof_prediction_, whole.oof_prediction_, rtol=1e-9)


def test_two_targets_and_several_labels():
    Y = np.stack([RESPONSE, NUMBERS[:, 2]], 1)
    for cls, y in ((MLPRegressor, Y), (MLPClassifier, (Y > 0).astype(int))):
        model = cls(**QUICK).fit(NUMBERS, y)
        splits = splits_of(model, NUMBERS, y)
        check_that_rows_were_held_out(model, NUMBERS, [val for _, val in splits])


@pytest.mark.parametrize("max_onehot", [0, 10])
def test_categories_a_member_lacks_have_no_weights(max_onehot):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"number": rng.normal(size=90), "city": np.repeat(["a", "b", "c"], 30)})
    parameters = BAGGED | {"max_onehot": max_onehot, "embedding_dim": 3}
    model = MLPRegressor(**parameters).fit(X, rng.normal(size=90), groups=X["city"])
    network = model.network()
    weights = network.inputs.embeddings[0].weight[:, 1:4] if max_onehot == 0 else None
    if weights is None:
        weights = network.linears[0].weight[:, 1:4]
    for member, is_zero in enumerate((weights == 0).all(2)):
        lacking = X["city"][model.oof_folds_ == member].unique()
        assert np.array(["a", "b", "c"])[is_zero.numpy()].tolist() == lacking.tolist()


@pytest.mark.parametrize(
    ("cls", "embedding", "max_onehot"),
    [
        (MLPRegressor, "none", 0),
        (MLPRegressor, "pbld", 10),
        (MLPRegressor, "piecewise-linear", 10),
        (TabMRegressor, "pbld", 0),
        (TabMRegressor, "none", 10),
    ],
)
def test_columns_constant_for_a_member_contribute_nothing(cls, embedding, max_onehot):
    rng = np.random.default_rng(0)
    shop = np.repeat([0, 1, 2], 40)
    varying = {  # each in one shop
        "size": np.where(shop == 0, rng.normal(size=120), 3.0),
        "open": np.where(shop == 1, rng.random(120) < 0.5, True),
        "kind": np.where(shop == 2, rng.choice(["b", "c"], 120), "b"),
    }
    X = pd.DataFrame({"x": rng.normal(size=120), **varying})
    parameters = BAGGED | {"numeric_embedding": embedding, "max_onehot": max_onehot}
    model = cls(**parameters).fit(X, X["x"] + rng.normal(size=120), groups=shop)
    outputs = model._raw(X)
    for column, varying_shop in (("size", 0), ("open", 1), ("kind", 2)):
        change = model._raw(X.assign(**{column: rng.permutation(X[column])})) - outputs
        shop_of_member = [shop[model.oof_folds_ == member][0] for member in range(3)]
        moves = change.reshape(3, -1).abs().amax(1) > 0
        assert moves.tolist() == [held_out != varying_shop for held_out in shop_of_member]
