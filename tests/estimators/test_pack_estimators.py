"""Estimators of other libraries in a pack: what they are fitted to, their weights and refusals."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsRegressor

from combutab import PackClassifier, PackRegressor

QUICK = {"n_members": 3, "max_iter": 3, "boosting": False, "cv": 3, "random_state": 0}
rng = np.random.default_rng(0)
X = pd.DataFrame(
    {
        "size": rng.normal(size=150),
        "kind": rng.choice(["a", "b"], 150),
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 150), "D"),
    }
)
Y = 1000 + 100 * X["size"].to_numpy() + rng.normal(size=150)
NUMBERS = X[["size"]].to_numpy()


class Recorder(RegressorMixin, BaseEstimator):
    """Knows the target of each row by its size, and records the tables that it was fitted to."""

    tables: list = []

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None):
        self.tables.append((X, y, sample_weight, self.random_state))
        self.fitted_ = True
        return self

    def predict(self, X):
        return 1000 + 100 * X["size"].to_numpy()


@pytest.fixture(autouse=True)
def no_tables():
    Recorder.tables.clear()


def weights_of(pack):
    return pack.members_.groupby("activation")["weight"].sum()


def test_estimators_get_the_table_as_it_is():
    weight = np.arange(150) % 4.0
    pack = PackRegressor(**QUICK, estimators=[("oracle", Recorder())])
    pack.fit(X, Y, sample_weight=weight)
    assert len(Recorder.tables) == 3
    used = []
    for fold, (table, y, sample_weight, seed) in enumerate(Recorder.tables):
        pd.testing.assert_frame_equal(table, X.loc[table.index])
        assert_array_equal(y, Y[table.index])
        assert_allclose(sample_weight, weight[table.index])
        assert isinstance(seed, int)
        assert not (pack.oof_folds_[table.index] == fold).any()
        used.append(table.index)
    counts = np.bincount(np.concatenate(used), minlength=150)
    assert_array_equal(counts, np.where(weight > 0, 2, 0))


def test_better_estimator_has_the_larger_weight():
    pack = PackRegressor(**QUICK, estimators=[("oracle", Recorder()), ("mean", DummyRegressor())])
    pack.fit(X, Y)
    weights = weights_of(pack)
    assert weights["oracle"] > 0.9
    assert weights["mean"] == 0
    assert weights.sum() == pytest.approx(1)
    assert set(pack.members_.query("activation == 'oracle'")["fold"]) == {0, 1, 2}
    share = weights["oracle"]
    outputs = pack._raw(X)
    assert len(outputs) * share == pytest.approx(
        np.isclose(
            outputs.numpy()[:, 0, 0] * pack.target_.scale + pack.target_.shift,
            Recorder().predict(X)[0],
        ).sum()
    )
    assert abs(pack.predict(X) - Recorder().predict(X)).max() < 0.2 * Y.std()


def test_predictions_are_the_weighted_mean_of_linear_models():
    pack = PackRegressor(
        **QUICK,
        estimators=[("line", LinearRegression())],
        member_params={"clip_predictions": False},
    )
    pack.fit(NUMBERS, Y)
    raw = pack._raw(NUMBERS)[:, :, 0].numpy() * pack.target_.scale + pack.target_.shift
    lines = [
        LinearRegression().fit(NUMBERS[rows], Y[rows]).predict(NUMBERS)
        for rows in (pack.oof_folds_ != fold for fold in range(3))
    ]
    n_lines = sum(np.isclose(raw, line, rtol=1e-9).all(1).sum() for line in lines)
    assert n_lines / len(raw) == pytest.approx(weights_of(pack)["line"])
    assert_allclose(pack.predict(NUMBERS), raw.mean(0))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_of_classifiers_keep_their_classes(n_classes):
    y = np.array(["low", "mid", "top"])[
        np.digitize(Y, np.quantile(Y, np.arange(1, n_classes) / n_classes))
    ]
    settings = {**QUICK, "max_iter": 1, "max_ensemble_size": 9}
    pack = PackClassifier(**settings, estimators=[("logit", LogisticRegression(C=100.0))])
    pack.fit(NUMBERS, y)
    assert weights_of(pack)["logit"] > 0.5
    alone = LogisticRegression(C=100.0).fit(NUMBERS, y)
    assert_array_equal(pack.classes_, alone.classes_)
    assert (pack.predict(NUMBERS) == alone.predict(NUMBERS)).mean() > 0.9


class TwoClasses(ClassifierMixin, BaseEstimator):
    """Was fitted to two of three classes."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)[1:]
        return self

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


def test_classes_that_an_estimator_lacks_have_probability_zero():
    y = np.array(["a", "b", "c"])[np.arange(150) % 3]
    settings = {**QUICK, "max_iter": 1}
    pack = PackClassifier(**settings, estimators=[("two", TwoClasses())]).fit(X, y)
    (losses,) = (
        pack.members_.query("activation == 'two'")["validation_loss"].unique().round(3)[None]
    )
    expected = -(np.log(0.5) * 2 + np.log(1e-7)) / 3
    assert_allclose(losses, expected, rtol=0.1)


@pytest.mark.parametrize("options", [{"cv": None}, {"X_val": True}])
def test_single_validation_sets(options):
    options = dict(options)
    held_out = {"X_val": X[100:], "y_val": Y[100:]} if options.pop("X_val", False) else {}
    settings = {**QUICK, "cv": "auto", **options}
    pack = PackRegressor(**settings, estimators=[("oracle", Recorder())])
    pack.fit(X[:100] if held_out else X, Y[:100] if held_out else Y, **held_out)
    assert len(Recorder.tables) == 1
    assert len(Recorder.tables[0][0]) == (100 if held_out else 120)
    assert weights_of(pack)["oracle"] > 0.9


def test_same_seed_and_pickle_give_the_same_pack():
    pack = PackRegressor(**QUICK, estimators=[("trees", ExtraTreesRegressor(5))])
    first, again = (clone(pack).fit(NUMBERS, Y) for _ in range(2))
    assert weights_of(first)["trees"] > 0
    assert_array_equal(first.predict(NUMBERS), again.predict(NUMBERS))
    assert_array_equal(pickle.loads(pickle.dumps(first)).predict(NUMBERS), first.predict(NUMBERS))
    assert first.n_iter_ == 3
    assert not hasattr(pack.estimators[0][1], "estimators_")


def test_files_of_such_packs_are_refused(tmp_path):
    pack = PackRegressor(**QUICK, estimators=[("line", LinearRegression())]).fit(NUMBERS, Y)
    for write in (pack.save, pack.to_onnx):
        with pytest.raises(ValueError, match="'line'"):
            write(tmp_path / "model")
    with pytest.raises(ValueError, match="'line'"):
        pack.to_torch()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("pack", "estimators", "match"),
    [
        (PackRegressor, [LinearRegression()], "pairs"),
        (PackRegressor, [("a", LinearRegression()), ("a", DummyRegressor())], "'a'"),
        (PackRegressor, [("relu", LinearRegression())], "'relu'"),
        (PackRegressor, [("boosting", LinearRegression())], "'boosting'"),
        (PackRegressor, [("a", "mean")], "no fit"),
        (PackClassifier, [("a", LinearRegression())], "predict_proba"),
    ],
    ids=["no pair", "twice", "activation", "boosting", "no estimator", "no probabilities"],
)
def test_estimators_that_cannot_be_used(pack, estimators, match):
    with pytest.raises(ValueError, match=match):
        pack(estimators=estimators).fit(X, Y > 1000)


@pytest.mark.parametrize(
    ("pack", "rows", "options", "match"),
    [
        (PackRegressor(), 150, {"sample_weight": np.ones(150)}, "sample_weight"),
        (PackRegressor(loss="quantile"), 150, {}, "loss='quantile'"),
        (PackRegressor(), 30, {}, "cv=2"),
    ],
    ids=["weights", "loss", "few rows"],
)
def test_fits_without_a_place_for_estimators(pack, rows, options, match):
    pack.set_params(estimators=[("near", KNeighborsRegressor())])
    with pytest.raises(ValueError, match=match):
        pack.fit(NUMBERS[:rows], Y[:rows], **options)


def test_multi_label_targets_take_no_estimators():
    labels = np.column_stack([Y > 1000, Y > 1050]).astype(int)
    pack = PackClassifier(**QUICK, estimators=[("prior", DummyClassifier())])
    with pytest.raises(ValueError, match="multi-label"):
        pack.fit(NUMBERS, labels)


def test_errors_name_the_estimator():
    pack = PackRegressor(**QUICK, estimators=[("line", LinearRegression())])
    with pytest.raises(ValueError, match="could not convert") as raised:
        pack.fit(X[["kind"]], Y)
    assert "'line'" in raised.value.__notes__[0]
