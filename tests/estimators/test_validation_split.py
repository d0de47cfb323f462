"""Rows set aside as the user says: ``validation_split``, ``groups``, and the ``cv`` of packs."""

from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    PredefinedSplit,
    TimeSeriesSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from combutab import MLPClassifier, MLPRegressor, PackClassifier, PackRegressor, load
from combutab.estimators._base import encode_data
from combutab.preprocessing import TableEncoder

pytestmark = pytest.mark.usefixtures("few_trees")

RNG = np.random.default_rng(0)
N = 60
X = RNG.normal(size=(N, 3))
NUMBERS = X[:, 0] + 0.1 * RNG.normal(size=N)
LABELS = np.where(NUMBERS > 0, "yes", "no")
GROUPS = np.arange(N) // 6  # ten of them
LAST = np.arange(N) >= 45
QUICK = {"hidden_layer_sizes": (4,), "max_iter": 2, "n_iter_no_change": np.inf, "random_state": 0}


def splits(model, y=NUMBERS, sample_weight=None, groups=None):
    """Training and validation rows of each network, as positions in the table."""
    model = clone(model)
    prepared = model._prepare(X, y, sample_weight, groups=groups)
    job = model._make_job(prepared)
    kept = job.out_of_fold.rows
    return [(np.sort(kept[plan.rows]), np.sort(kept[plan.val_rows])) for plan in job.plans]


ONE_SPLIT = {
    "mask": LAST,
    "list of booleans": LAST.tolist(),
    "pandas booleans": pd.Series(LAST, dtype="boolean"),
    "positions": np.flatnonzero(LAST)[::-1],
    "folds": np.where(LAST, 0, -1),
    "splitter": PredefinedSplit(np.where(LAST, 0, -1)),
    "iterable": [(np.flatnonzero(~LAST), np.flatnonzero(LAST))],
    "masks": [(~LAST, LAST)],
    "time": TimeSeriesSplit(3),
}


@pytest.mark.parametrize("n_members", ["auto", 2])
@pytest.mark.parametrize("form", ONE_SPLIT)
def test_the_rows_that_are_set_aside(form, n_members):
    model = MLPRegressor(**QUICK, n_members=n_members, validation_split=ONE_SPLIT[form])
    found = splits(model)
    assert len(found) == (1 if n_members == "auto" else 2)  # of 60 rows: whatever "auto" says
    for train, val in found:
        assert_array_equal(val, np.flatnonzero(LAST))
        assert_array_equal(train, np.flatnonzero(~LAST))


def test_predictions_for_them_are_kept():
    model = MLPRegressor(**QUICK, n_members=2, validation_split=LAST).fit(X, NUMBERS)
    assert np.isnan(model.oof_prediction_[~LAST]).all()
    assert_allclose(model.oof_prediction_[LAST], model.predict(X[LAST]), rtol=1e-5)
    # the encoding is that of the training rows
    alone = TableEncoder(numeric="robust").fit(X[~LAST])
    assert_allclose(model.encoder_.encode(X).dense, alone.encode(X).dense)


def test_members_take_the_splits_in_turn():
    cv = KFold(4)
    folds = [val for _, val in cv.split(X)]
    by_default = [val for _, val in splits(MLPRegressor(**QUICK, validation_split=cv))]
    assert_array_equal(by_default, folds[:3])
    bagged = MLPRegressor(**QUICK, validation_split=cv, bagging="cv")
    assert_array_equal([val for _, val in splits(bagged)], folds)
    bagged.fit(X, NUMBERS)
    assert np.isfinite(bagged.oof_prediction_).all()
    with pytest.raises(ValueError, match=r"validation_split.*4.*n_members=3"):
        bagged.set_params(n_members=3).fit(X, NUMBERS)


def test_later_rows_validate_only():
    for train, val in splits(
        MLPRegressor(**QUICK, validation_split=TimeSeriesSplit(3), bagging="cv")
    ):
        assert train.max() < val.min()


def test_rows_of_weight_zero_are_not_counted():
    weight = np.ones(N)
    weight[[0, 50]] = 0
    ((train, val),) = splits(MLPRegressor(**QUICK, validation_split=LAST), sample_weight=weight)
    assert_array_equal(val, np.setdiff1d(np.flatnonzero(LAST), [50]))
    assert_array_equal(train, np.setdiff1d(np.flatnonzero(~LAST), [0]))
    folds = splits(MLPRegressor(**QUICK, early_stopping=True), NUMBERS, weight, GROUPS)
    assert not {0, 50} & {*np.concatenate([np.concatenate(sides) for sides in folds])}


@pytest.mark.parametrize(
    "options",
    [
        {"early_stopping": True},
        {"early_stopping": True, "n_members": 1},
        {"bagging": "cv", "n_members": 5},
        {"validation_split": GroupKFold(5)},
        {"validation_split": GroupShuffleSplit(1, random_state=0)},
    ],
)
@pytest.mark.parametrize("cls", [MLPClassifier, MLPRegressor])
def test_groups_are_set_aside_as_wholes(cls, options):
    y = NUMBERS if cls is MLPRegressor else LABELS
    model = cls(**QUICK, **options)
    names = np.array([f"customer {group}" for group in GROUPS])
    found = splits(model, y, groups=names)
    for train, val in found:
        assert not np.intersect1d(GROUPS[train], GROUPS[val]).size
        assert 6 <= len(val) <= 24
    vals = [set(val) for _, val in found]
    assert sum(map(len, vals)) == len(set().union(*vals))  # each network other rows
    model.fit(X, y, groups=names)
    assert_array_equal(model.predict(X), clone(model).fit(X, y, groups=names).predict(X))


def test_in_pipelines_and_searches():
    y = LABELS
    pipe = make_pipeline(StandardScaler(), MLPClassifier(**QUICK, early_stopping=True))
    pipe.fit(X, y, mlpclassifier__groups=GROUPS)
    assert np.isfinite(pipe[-1].oof_decision_function_).any()
    search = GridSearchCV(
        MLPRegressor(**QUICK, validation_split=TimeSeriesSplit(2)),
        {"alpha": [0.0, 1.0]},
        cv=TimeSeriesSplit(2),
    ).fit(X, NUMBERS)
    assert np.isfinite(search.best_score_)


@pytest.mark.parametrize(
    ("options", "groups", "says"),
    [
        ({"validation_split": LAST[:-1]}, None, "59"),
        (
            {"validation_split": [0, 60]},
            None,
            r"validation_split.*60.*0.*60",
        ),
        ({"validation_split": np.zeros(N, bool)}, None, "validation_split"),
        ({"validation_split": np.ones(N, bool)}, None, r"0.*60"),
        ({"validation_split": np.ones((N, 2))}, None, r"float64 of shape \(60, 2\)"),
        ({"validation_split": [([0, 1], [1, 2])]}, None, "1 of them in both"),
        ({"validation_split": GroupKFold(3)}, None, "give groups to fit"),
        ({"validation_split": KFold(61)}, None, r"validation_split.*60"),
        ({"validation_split": 5}, None, "The 'validation_split' parameter"),
        ({"validation_split": LAST, "early_stopping": False}, None, "sets no rows aside"),
        ({"validation_split": LAST, "solver": "lbfgs"}, None, "sets no rows aside"),
        ({"early_stopping": True}, GROUPS[:-1], r"59.*60"),
        ({"early_stopping": True}, np.zeros(N), r"1.*60"),
        ({"early_stopping": True}, [None, *GROUPS[1:]], "groups has 1 missing value"),
    ],
)
def test_what_cannot_be_split(options, groups, says):
    model = MLPRegressor(**{**QUICK, **options})
    with pytest.raises(ValueError, match=says):
        model.fit(X, NUMBERS, groups=groups)


def test_x_val_with_validation_split_is_refused(tmp_path):
    model = MLPRegressor(**QUICK, validation_split=LAST)
    with pytest.raises(ValueError, match="validation_split"):
        model.fit(X, NUMBERS, X_val=X, y_val=NUMBERS)


def test_files_do_not_hold_the_split(tmp_path):
    model = MLPRegressor(**QUICK, validation_split=LAST).fit(X, NUMBERS)
    model.save(tmp_path / "m.safetensors")
    read = load(tmp_path / "m.safetensors")
    assert read.validation_split is None
    assert_allclose(read.predict(X), model.predict(X))


@pytest.mark.parametrize("cv", [LAST, GROUPS % 3, GroupKFold(3), 3, "auto", None])
def test_packs(cv):
    pack = PackRegressor(n_members=3, max_iter=2, random_state=0, cv=cv, boosting=False).fit(
        X, NUMBERS, groups=None if isinstance(cv, np.ndarray) else GROUPS
    )
    held_out = np.isfinite(pack.oof_prediction_)
    if cv is LAST:
        assert_array_equal(held_out, LAST)
    elif cv is None:
        assert 6 <= held_out.sum() <= 24
        assert not np.intersect1d(GROUPS[held_out], GROUPS[~held_out]).size
    else:
        assert held_out.all()


def test_folds_of_a_pack_keep_groups_together():
    pack = PackClassifier(n_members=3, max_iter=2, random_state=0, boosting=False)
    folds = pack.fit(X, LABELS, groups=GROUPS).oof_folds_
    assert set(folds) == {0, 1, 2}
    for fold in range(3):
        assert not np.intersect1d(GROUPS[folds != fold], GROUPS[folds == fold]).size


# ---- what is learned before training comes from the training rows ----------------------------


LATE = np.where(LAST, NUMBERS + 100, NUMBERS)
SHIFTED = np.where(LAST[:, None], X + 100, X)
IN_TIME = [(np.arange(30), np.arange(30, 45)), (np.arange(45), np.arange(45, N))]
NEVER_TRAIN = {
    "mask": MLPRegressor(**QUICK, validation_split=LAST),
    "two networks": MLPRegressor(**QUICK, n_members=2, validation_split=LAST),
    "time series": MLPRegressor(**QUICK, validation_split=TimeSeriesSplit(3)),
    "bagging": MLPRegressor(**QUICK, bagging="cv", n_members=2, validation_split=IN_TIME),
    "quantiles": MLPRegressor(**QUICK, loss="quantile", validation_split=LAST),
    "pack": PackRegressor(n_members=2, max_iter=2, random_state=0, cv=LAST),
    "folds of a pack": PackRegressor(n_members=2, max_iter=2, random_state=0, cv=IN_TIME),
}


@pytest.mark.parametrize("name", NEVER_TRAIN)
def test_rows_that_no_member_trains_on_shape_nothing(name):
    """The target's mean, scale and range and the columns' encoding are of the other rows."""
    weight = np.where(np.arange(N) % 2, 1.0, 3.0)
    for sample_weight in (None, weight):
        model = clone(NEVER_TRAIN[name]).fit(SHIFTED, LATE, sample_weight)
        train_weight = np.ones(45) if sample_weight is None else weight[:45]
        mean = np.average(NUMBERS[:45], weights=train_weight)
        std = np.sqrt(np.average((NUMBERS[:45] - mean) ** 2, weights=train_weight))
        assert_allclose(model.target_.shift, mean)
        assert_allclose(model.target_.scale, std)
        assert model.target_.bounds.max() < NUMBERS.max() + 0.1
        encoder = TableEncoder(numeric="robust")
        encoder.fit_encode(SHIFTED[:45], None if sample_weight is None else train_weight)
        expected = encoder.encode(SHIFTED).dense
        assert_allclose(model.encoder_.encode(SHIFTED).dense, expected)
        oof = model.oof_prediction_[LAST]
        assert np.isfinite(oof).all()
        assert oof.max() <= NUMBERS.max() + 0.1


def test_random_and_grouped_validation_rows_shape_nothing():
    for options, groups in (({}, None), ({}, GROUPS)):
        model = MLPRegressor(**QUICK, n_members=1, early_stopping=True, **options)
        ((train, val),) = splits(model, groups=groups)
        y = NUMBERS.copy()
        y[val] += 50
        model.fit(X, y, groups=groups)
        assert_allclose(model.target_.shift, NUMBERS[train].mean())
        assert_allclose(model.target_.scale, NUMBERS[train].std())


def test_balanced_weights_are_those_of_training_rows():
    y = np.where(LAST, 1, np.arange(N) % 3 == 0).astype(int)
    pack = PackClassifier(n_members=2, max_iter=2, random_state=0, cv=LAST, class_weight="balanced")
    member = MLPClassifier(class_weight="balanced", validation_split=LAST, n_members=1)
    weight = member._prepare(X, y).rows.weight.numpy()
    with patch("combutab.estimators._pack.encode_data", autospec=True) as patched:
        patched.side_effect = ZeroDivisionError
        with pytest.raises(ZeroDivisionError):
            pack.fit(X, y)
    encoder, data, splits = patched.call_args.args
    assert_allclose(encode_data(encoder, data, splits).rows.weight.numpy(), weight)
    assert_allclose(weight[:45], np.where(y[:45] == 1, 1.5, 0.75))
    assert_allclose(weight[45:], 1.5)


def test_max_time_ends_training_with_the_epoch(request):
    options = {**QUICK, "max_iter": 10**6, "validation_split": LAST, "max_time": 1e-9}
    model = MLPRegressor(**options, n_members=2).fit(X, NUMBERS)
    assert model.history_["epoch"].tolist() == [1, 1]
    request.getfixturevalue("single_stacks")
    assert MLPRegressor(**options, n_members=2).fit(X, NUMBERS).history_["epoch"].tolist() == [1, 1]
    for wrong, says in ((0, "'max_time' parameter"), ("2 minutes", "got '2 minutes'")):
        with pytest.raises(ValueError, match=says):
            MLPRegressor(max_time=wrong).fit(X, NUMBERS)
    with pytest.raises(ValueError, match="solver='lbfgs'"):
        MLPRegressor(max_time=1, solver="lbfgs").fit(X, NUMBERS)
