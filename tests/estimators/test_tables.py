"""Tables as users have them: categories, text, dates, missing values, every container."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris

from combutab import (
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    StackedGridSearchCV,
    TabMRegressor,
    load,
    paper_recipe,
)

INF = float("inf")
QUICK = {"hidden_layer_sizes": (16,), "max_iter": 5, "n_iter_no_change": INF, "random_state": 0}
LEARN = {**QUICK, "max_iter": 60, "learning_rate_init": 0.02}
X, Y = load_iris(return_X_y=True)
RNG = np.random.default_rng(0)


def _table(n=200):
    """Columns of every kind; y depends on each but the noise."""
    rng = np.random.default_rng(1)
    age = rng.integers(18, 90, n).astype(float)
    city = rng.choice(["Rome", "Oslo", "Lima"], n)
    member = rng.uniform(size=n) < 0.5
    joined = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), unit="D")
    days = (joined - joined.min()).days.to_numpy()
    y = 0.05 * age + 2.0 * (city == "Oslo") - 1.5 * member + 0.003 * days
    income = age * 100 + rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "age": age,
            "city": city,
            "grade": pd.Categorical(rng.choice(["low", "high"], n), categories=["low", "high"]),
            "member": member,
            "joined": joined,
            "wait": pd.to_timedelta(rng.integers(1, 100, n), unit="h"),
            "income": income,
        }
    )
    frame.loc[rng.choice(n, 20, replace=False), "income"] = np.nan
    frame.loc[rng.choice(n, 20, replace=False), "city"] = None
    return frame, y


FRAME, TARGET = _table()


def test_a_mixed_table_is_learned_as_it_is():
    model = MLPRegressor(**LEARN).fit(FRAME, TARGET)
    assert model.score(FRAME, TARGET) > 0.9
    for column in ("city", "member", "joined"):  # each was of use
        blurred = FRAME.assign(**{column: FRAME[column].iloc[::-1].to_numpy()})
        assert model.score(blurred, TARGET) < model.score(FRAME, TARGET) - 0.02
    assert model.n_features_in_ == 7
    assert model.feature_names_in_.tolist() == list(FRAME.columns)


MATRIX, ARRAY = scipy.sparse.csr_matrix, scipy.sparse.csr_array


@pytest.mark.parametrize(
    ("fmt", "container"),
    [
        *[("csr", MATRIX), ("csr", ARRAY), ("csc", ARRAY), ("coo", MATRIX)],
        *[("lil", ARRAY), ("dok", MATRIX), ("bsr", ARRAY)],
    ],
)
def test_sparse_formats(fmt, container):
    dense = np.where(X > 3, X, 0)
    sparse = container(dense).asformat(fmt)
    weight = np.r_[0.0, np.ones(149)]
    several = [({}, None), ({"early_stopping": True}, None), ({}, weight)]
    for options, given in several if fmt == "lil" else several[:1]:  # which know of no format
        expected = MLPClassifier(**QUICK, **options).fit(container(dense), Y, sample_weight=given)
        got = MLPClassifier(**QUICK, **options).fit(sparse, Y, sample_weight=given)
        assert_array_equal(got.predict_proba(sparse), expected.predict_proba(container(dense)))
        assert_allclose(got.predict_proba(dense), got.predict_proba(sparse), atol=1e-5)
    validated = MLPClassifier(**QUICK).fit(sparse, Y, X_val=sparse, y_val=Y)
    assert len(validated.validation_scores_) == 5


def test_sparse_input_is_scaled_without_centering_like_a_scaled_dense_one():
    dense = np.where(X.mean(0) < X, X, 0)
    parameters = {**QUICK, "precision": "float64", "dropout": 0.0, "numeric_embedding": "none"}
    standard = MLPClassifier(**parameters, numeric_encoding="standard")
    got = standard.fit(scipy.sparse.csr_array(dense), Y)
    by_hand = MLPClassifier(**parameters, numeric_encoding="none").fit(dense / dense.std(0), Y)
    assert_allclose(
        got.predict_proba(dense), by_hand.predict_proba(dense / dense.std(0)), rtol=1e-5
    )


def test_what_is_only_made_into_an_array_can_be_split():
    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return X if dtype is None else X.astype(dtype)

        def __len__(self):
            return len(X)

    parameters = {**QUICK, "early_stopping": True}
    got = MLPClassifier(**parameters).fit(Wrapped(), Y)
    assert_allclose(got.predict_proba(X), MLPClassifier(**parameters).fit(X, Y).predict_proba(X))


# ---- categories ----------------------------------------


def test_ten_thousand_categories_are_embedded_and_unseen_ones_predicted():
    n = 40_000
    codes = RNG.integers(0, 10_000, n)
    effect = RNG.normal(size=10_000)
    frame = pd.DataFrame({"id": [f"c{c}" for c in codes], "x": RNG.normal(size=n)})
    settings = {**QUICK, "max_iter": 12, "learning_rate_init": 0.02, "min_frequency": 2}
    settings = paper_recipe("regression", **settings, dropout=0.0)
    model = MLPRegressor(**settings).fit(frame, effect[codes])
    assert model.encoder_.n_dense_ == 1  # not one-hot
    assert len(model.encoder_.cardinalities_) == 1
    assert model.coefs_[0].shape[0] == 1 + 8
    assert model.score(frame, effect[codes]) > 0.8
    new = pd.DataFrame({"id": ["never seen", None], "x": [0.0, 0.0]})
    assert np.isfinite(model.predict(new)).all()


@pytest.mark.parametrize("max_onehot", [0, 3, 32])
def test_unseen_and_missing_categories_at_predict(max_onehot):
    model = MLPRegressor(**QUICK, max_onehot=max_onehot, embedding_dim=4).fit(FRAME, TARGET)
    odd = FRAME.head(4).assign(
        city=["Paris", None, "Oslo", ""], grade=[None, "other", "low", "low"]
    )
    predicted = model.predict(odd)
    assert np.isfinite(predicted).all()
    assert_allclose(predicted[2], model.predict(odd[2:3])[0], rtol=1e-5)


CODES = RNG.choice(["1", "2", "3", "A7"], 120)
CODED = pd.DataFrame({"code": CODES, "x": RNG.normal(size=120)})
VALUE = np.where(CODES == "1", 3.0, 0.0) + 0.1 * CODED["x"]
TRUTH = np.where(CODES == "1", "yes", "no")


def _searched(X, y):
    model = MLPRegressor(**QUICK)
    return StackedGridSearchCV(model, {"max_onehot": [8]}, cv=2).fit(X, y)


def _saved(X, y, path):
    MLPRegressor(**QUICK).fit(X, y).save(path)
    return load(path)


@pytest.mark.parametrize(
    "fit",
    [
        lambda X, path: MLPClassifier(**QUICK, max_onehot=0).fit(X, TRUTH),
        lambda X, path: MLPRegressor(**QUICK).partial_fit(X, VALUE),
        lambda X, path: TabMRegressor(**QUICK).fit(X, VALUE),
        lambda X, path: PackClassifier(n_members=2, max_iter=2, random_state=0).fit(X, TRUTH),
        lambda X, path: _searched(X, VALUE),
        lambda X, path: _saved(X, VALUE, path),
    ],
    ids=["classifier", "partial_fit", "tabm", "pack", "search", "file"],
)
def test_categories_of_another_type_at_predict(fit, tmp_path):
    model = fit(CODED, tmp_path / "model")
    rows = CODED[CODES != "A7"]
    expected = model.predict(rows)
    changed = [rows.astype({"code": dtype}) for dtype in ("int64", float, "Int8", "category")]
    changed += [rows.assign(code=rows["code"].astype(int).astype("category"))]
    changed += [rows.assign(code=rows["code"].str.encode("utf-8"))]
    for table in changed:
        assert_array_equal(model.predict(table), expected)
    with pytest.warns(UserWarning, match="hardly a row of column 'code' .* it has [123]0, "):
        model.predict(rows.assign(code=10 * rows["code"].astype(int)))
    with pytest.raises(ValueError, match="column 'code' has values such as '2024-01-01 00:00:00'"):
        model.predict(rows.assign(code=pd.Timestamp("2024-01-01")))


def test_categories_of_another_type_validate_and_go_on():
    rows = CODED[CODES != "A7"]
    truth, numbers = TRUTH[CODES != "A7"], rows.astype({"code": int})
    model = MLPClassifier(**QUICK)
    by_text, by_number = (
        clone(model).fit(CODED, TRUTH, X_val=X_val, y_val=truth).history_
        for X_val in (rows, numbers)
    )
    pd.testing.assert_frame_equal(by_text, by_number)
    by_text, by_number = (
        clone(model)
        .partial_fit(CODED, TRUTH, classes=["no", "yes"])
        .partial_fit(X_more, truth)
        .predict_proba(rows)
        for X_more in (rows, numbers)
    )
    assert_array_equal(by_text, by_number)


def test_categorical_features_by_name_position_mask_and_none():
    frame = pd.DataFrame({"code": Y, "x": X[:, 0]})
    by_name = MLPClassifier(**QUICK, categorical_features=["code"]).fit(frame, Y)
    assert by_name.encoder_.n_dense_ == 4
    for spec in ([0], [True, False], np.array([0]), ("code",)):
        got = MLPClassifier(**QUICK, categorical_features=spec).fit(frame, Y)
        assert_array_equal(got.predict_proba(frame), by_name.predict_proba(frame))
    assert MLPClassifier(**QUICK).fit(frame, Y).encoder_.n_dense_ == 2
    for spec, words in [
        (["nope"], "no column 'nope'"),
        ([7], "positions"),
        ([True], "mask of length"),
    ]:
        with pytest.raises(ValueError, match=words):
            MLPClassifier(**QUICK, categorical_features=spec).fit(frame, Y)
    text = frame.astype({"code": str})
    numbers = MLPClassifier(**QUICK, categorical_features=None).fit(text, Y)
    assert numbers.encoder_.n_dense_ == 2


# ---- names and order ----------------------------------------


def test_errors_and_warnings_about_columns_name_the_estimator():
    numbers = pd.DataFrame(X, columns=list("abcd"))
    model = MLPClassifier(**QUICK).fit(numbers, Y)
    with pytest.warns(
        UserWarning, match="not have valid feature names, but MLPClassifier was fitt"
    ):
        model.predict(X)
    model = MLPClassifier(**QUICK).fit(X, Y)
    with pytest.raises(ValueError, match="X has 3 features, but MLPClassifier is expecting 4"):
        model.predict(X[:, :3])
    with pytest.warns(
        UserWarning, match="X has feature names, but MLPClassifier was fitted without"
    ):
        model.predict(numbers)
    for given in (numbers, X):  # no warning where both have names, or none
        fitted = MLPClassifier(**QUICK).fit(given, Y)
        fitted.predict(given)
        fitted.score(given, Y)


def test_names_that_are_no_strings():
    frame = pd.DataFrame(X)
    assert not hasattr(MLPClassifier(**QUICK).fit(frame, Y), "feature_names_in_")
    with pytest.raises(TypeError, match="only supported if all input features have string names"):
        MLPClassifier(**QUICK).fit(frame.rename(columns={0: "a"}), Y)
    with pytest.raises(ValueError, match=r"duplicate column names: \['a'\]"):
        MLPClassifier(**QUICK).fit(pd.DataFrame(X, columns=list("aabc")), Y)


# ---- edges ----------------------------------------


@pytest.mark.parametrize("numeric_encoding", ["standard", "quantile", "robust", "none"])
def test_infinite_values_are_refused_and_huge_ones_survive(numeric_encoding):
    parameters = {**QUICK, "numeric_encoding": numeric_encoding}
    with pytest.raises(ValueError, match="Input X contains infinity"):
        MLPRegressor(**parameters).fit(np.where(X > 7, np.inf, X), Y)
    model = MLPRegressor(**parameters).fit(X, Y)
    with pytest.raises(ValueError, match="Input X contains infinity"):
        model.predict(np.full((1, 4), -np.inf))
    if numeric_encoding != "none":
        assert np.isfinite(MLPRegressor(**parameters).fit(X * 1e145, Y).predict(X * 1e145)).all()


@pytest.mark.parametrize("numeric_encoding", ["standard", "quantile", "robust", "none"])
def test_missing_numbers_in_fit_and_only_at_predict(numeric_encoding):
    holes = np.where(RNG.uniform(size=X.shape) < 0.2, np.nan, X)
    model = MLPClassifier(**{**LEARN, "numeric_encoding": numeric_encoding}).fit(holes, Y)
    assert model.score(holes, Y) > 0.85
    whole = MLPClassifier(**{**QUICK, "numeric_encoding": numeric_encoding}).fit(X, Y)
    assert np.isfinite(whole.predict_proba(holes)).all()
    all_missing = np.column_stack([X, np.full(150, np.nan)])
    assert MLPClassifier(**QUICK).fit(all_missing, Y).predict(all_missing).shape == (150,)


def test_text_where_numbers_were_is_an_error_that_names_column_and_value():
    model = MLPRegressor(**QUICK).fit(FRAME, TARGET)
    broken = FRAME.astype({"age": object})
    broken.loc[3, "age"] = "forty"
    with pytest.raises(ValueError, match=r"column 'age' is numeric, but 'forty' could not be conv"):
        model.predict(broken)
    same = model.predict(FRAME.astype({"age": str}))  # "40.0" is one
    assert_allclose(same, model.predict(FRAME))


# ---- an own validation set ----------------------------------------


def test_the_validation_set_shapes_no_encoding():
    train, val = FRAME[:150], FRAME[150:].assign(age=1e6, city="Atlantis")
    with pytest.warns(UserWarning, match="hardly a row of column 'city' .* it has 'Atlantis'"):
        with_val = MLPRegressor(**QUICK, dropout=0.0).fit(
            train, TARGET[:150], X_val=val, y_val=TARGET[150:]
        )
    without = MLPRegressor(**QUICK, dropout=0.0).fit(train, TARGET[:150])
    assert_array_equal(
        with_val.encoder_.numeric_scaler_.centre, without.encoder_.numeric_scaler_.centre
    )
    assert with_val.encoder_.categories_ == without.encoder_.categories_
    assert_array_equal(with_val.loss_curve_, without.loss_curve_)
    # nor does the part that early_stopping sets aside
    stopping = MLPRegressor(**QUICK, early_stopping=True).fit(X, Y)
    centre = stopping.encoder_.numeric_scaler_.centre
    assert (np.abs(centre - X.mean(0)) > 1e-6).all()


def test_bad_validation_sets():
    model = MLPClassifier(**QUICK)
    for arguments, words in [
        ({"X_val": X}, "X_val and y_val go together, got only X_val"),
        ({"y_val": Y}, "X_val and y_val go together, got only y_val"),
        ({"X_val": X, "y_val": Y[:5]}, "inconsistent numbers of samples"),
        ({"X_val": X[:, :2], "y_val": Y}, "X has 2 features, but MLPClassifier is expecting 4"),
        ({"X_val": X, "y_val": Y + 1}, r"classes not in `self.classes_`: \[3\]"),
        ({"X_val": X, "y_val": np.where(Y == 1, np.nan, Y)}, "y contains NaN"),
        ({"X_val": X[:0], "y_val": Y[:0]}, "0 sample"),
    ]:
        with pytest.raises(ValueError, match=words):
            model.fit(X, Y, **arguments)


def test_tensors_that_numpy_does_not_hold():
    rows = torch.tensor(X, dtype=torch.float32, requires_grad=True)
    model = MLPClassifier(**QUICK).fit(rows, Y)
    plain = rows.detach().numpy()
    assert_array_equal(model.predict_proba(plain), model.predict_proba(rows))
    short = rows.detach().bfloat16()
    assert_array_equal(model.predict(short), model.predict(short.float().numpy()))
    with pytest.raises(TypeError, match=r"X is a sparse tensor of torch .*pass X.to_dense\(\)"):
        MLPClassifier(**QUICK).fit(rows.detach().to_sparse(), Y)


def test_weights_and_validation_rows_of_other_libraries():
    weight = np.arange(150) % 3 + 0.0
    data = (X, Y, weight, X, Y)
    ours, theirs = (MLPClassifier(**QUICK).fit(*each) for each in (data, map(torch.tensor, data)))
    assert_array_equal(theirs.predict_proba(torch.tensor(X)), ours.predict_proba(X))
    assert theirs.validation_scores_ == ours.validation_scores_
    assert theirs.score(torch.tensor(X), torch.tensor(Y)) == ours.score(X, Y)


def test_an_array_elsewhere_is_refused():
    xp = pytest.importorskip("array_api_strict", reason="is not installed")
    rows, y = (xp.asarray(each, device=xp.Device("device1")) for each in (X, Y))
    with pytest.raises(TypeError, match=r"X is an array of array_api_strict .*move it to the CPU"):
        MLPClassifier(**QUICK).fit(rows, Y)
    with pytest.raises(TypeError, match="y is an array of array_api_strict"):
        MLPClassifier(**QUICK).fit(X, y)
