"""Tables as users have them: sparse ones, categories of other types, validation rows, tensors."""

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
    TabMClassifier,
    TabMRegressor,
    load,
)

pytestmark = pytest.mark.usefixtures("few_trees")

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


@pytest.mark.parametrize("cls", [MLPRegressor, TabMRegressor])
def test_the_order_of_categories_is_used(cls, tmp_path):
    rng = np.random.default_rng(0)
    levels = [f"level {i}" for i in rng.permutation(40)]
    ranks = rng.integers(0, 40, 400)
    y = ranks + 10 * rng.normal(size=400)
    grade = pd.Categorical.from_codes(ranks, levels)
    errors = []
    for column in (grade.as_ordered(), grade):
        table = pd.DataFrame({"grade": column})
        model = cls(**LEARN, min_frequency=1).fit(table[:200], y[:200])
        errors.append(np.abs(model.predict(table[200:]) - ranks[200:]).mean())
        model.save(tmp_path / "model.safetensors")
        assert_array_equal(
            load(tmp_path / "model.safetensors").predict(table), model.predict(table)
        )
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize("library", ["pandas", "polars", "numpy"])
def test_list_in_a_cell_is_named_by_row(library):
    tags = pd.Series([["a"]] * 300) if library == "polars" else pd.Series(["a"] * 299 + [["b", 1]])
    X = pd.DataFrame({"size": np.arange(300.0), "tags": tags})
    row = 1 if library == "polars" else 300
    if library == "polars":
        X = pytest.importorskip("polars").DataFrame(X.to_dict("list"))
    column = "'tags'" if library != "numpy" else "1"
    with pytest.raises(TypeError, match=rf"column {column}, data row {row}, holds a list: \["):
        MLPClassifier(n_members=1).fit(X.to_numpy() if library == "numpy" else X, [0, 1] * 150)


def _table_with_an_odd_date():
    """A column of dates as text with one other text in data row 43 of 60."""
    days = pd.date_range("2024-01-01", periods=60).strftime("%d.%m.%Y").to_series(index=range(60))
    return pd.DataFrame({"day": days.mask(days.index == 42, "soon"), "size": np.arange(60.0)})


@pytest.mark.filterwarnings("ignore:text is read as dates")
def test_odd_cells_are_named_by_rows_of_the_whole_table():
    table, y = _table_with_an_odd_date(), np.arange(60.0)
    val_rows = np.arange(37, 60)
    reg = MLPRegressor(**QUICK, early_stopping=True, validation_split=[(np.arange(37), val_rows)])
    with pytest.raises(ValueError, match=r"but 'soon' \(data row 43\) could not be read"):
        reg.fit(table, y)
    numbers = table[["size"]]
    with pytest.raises(ValueError, match=r"'soon' \(data row 43\)"):
        weight = (y > 4).astype(float)
        MLPRegressor(**QUICK).fit(numbers, table["day"].where(y == 42, y), sample_weight=weight)
    fitted = MLPRegressor(**QUICK).fit(table.drop(index=42), np.delete(y, 42))
    with pytest.raises(ValueError, match=r"'soon' \(data row 6\)"):  # of the table X_val
        MLPRegressor(**QUICK).fit(table[:30], y[:30], X_val=table[37:], y_val=y[37:])
    with pytest.raises(ValueError, match=r"'soon' \(data row 43\)"):
        fitted.predict(table)


@pytest.mark.filterwarnings("ignore:text is read as dates")
def test_odd_cells_in_parquet_files_have_no_row_of_a_part(tmp_path):
    pytest.importorskip("pyarrow")
    table, y = _table_with_an_odd_date(), np.arange(60.0)
    reg = MLPRegressor(**QUICK).fit(table.drop(index=42), np.delete(y, 42))
    path = tmp_path / "table.parquet"
    table.assign(y=y).to_parquet(path, row_group_size=40)
    for out in (None, tmp_path / "out.parquet"):
        with pytest.raises(ValueError, match=r"'soon' \(data row 43\)"):
            reg.predict_parquet(path, out=out)
    with pytest.raises(ValueError, match="'soon' could not be read"):
        MLPRegressor(**QUICK).fit_parquet(path, "y")


def test_sparse_formats():
    dense = np.where(X > 3, X, 0)
    sparse = scipy.sparse.csr_array(dense)
    for options, weight in (
        ({}, None),
        ({"early_stopping": True}, None),
        ({}, np.r_[0.0, np.ones(149)]),
    ):
        expected = MLPClassifier(**QUICK, **options).fit(sparse, Y, sample_weight=weight)
        got = MLPClassifier(**QUICK, **options).fit(sparse.tolil(), Y, sample_weight=weight)
        assert_array_equal(got.predict_proba(sparse.tolil()), expected.predict_proba(sparse))
        assert_allclose(got.predict_proba(dense), got.predict_proba(sparse), atol=1e-5)
    validated = MLPClassifier(**QUICK).fit(sparse, Y, X_val=sparse, y_val=Y)
    assert len(validated.validation_scores_) == 5


def test_array_like_table_can_be_split():
    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return X if dtype is None else X.astype(dtype)

        def __len__(self):
            return len(X)

    parameters = {**QUICK, "early_stopping": True}
    got = MLPClassifier(**parameters).fit(Wrapped(), Y)
    assert_allclose(got.predict_proba(X), MLPClassifier(**parameters).fit(X, Y).predict_proba(X))


# ---- categories ----------------------------------------


CODES = RNG.choice(["1", "2", "3", "A7"], 120)
CODED = pd.DataFrame({"code": CODES, "x": RNG.normal(size=120)})
TRUTH = np.where(CODES == "1", "yes", "no")


@pytest.mark.parametrize(
    "model",
    [
        MLPClassifier(**QUICK, max_onehot=0),
        PackClassifier(n_members=2, max_iter=2, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_categories_of_another_type_at_predict(model):
    model = clone(model).fit(CODED, TRUTH)
    rows = CODED[CODES != "A7"]
    expected = model.predict(rows)
    changed = [rows.astype({"code": dtype}) for dtype in ("int64", float, "Int8", "category")]
    changed += [rows.assign(code=rows["code"].astype(int).astype("category"))]
    changed += [rows.assign(code=rows["code"].str.encode("utf-8"))]
    for table in changed:
        assert_array_equal(model.predict(table), expected)
    with pytest.warns(UserWarning, match=r"'code'.* [123]0"):
        model.predict(rows.assign(code=10 * rows["code"].astype(int)))
    with pytest.raises(ValueError, match=r"'code'.*'2024-01-01 00:00:00'"):
        model.predict(rows.assign(code=pd.Timestamp("2024-01-01")))


# ---- an own validation set ----------------------------------------


def test_the_validation_set_shapes_no_encoding():
    train, val = FRAME[:150], FRAME[150:].assign(age=1e6, city="Atlantis")
    with pytest.warns(UserWarning, match=r"'city'.*'Atlantis'"):
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
    with pytest.raises(TypeError, match="to_dense"):
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
    with pytest.raises(TypeError, match=r"array_api_strict.*CPU"):
        MLPClassifier(**QUICK).fit(rows, Y)
    with pytest.raises(TypeError, match="array_api_strict"):
        MLPClassifier(**QUICK).fit(X, y)


NEW_VALUES = {  # a column of fit, and values that it has later
    "boolean": (np.zeros(200, bool), [True]),
    "all missing": (np.full(200, np.nan), [5.0]),
    "category": (["a"] * 200, ["b", None]),
    "all missing category": (pd.Series([None] * 200, dtype=object), ["b"]),
    "date": (pd.to_datetime(["2024-01-01"] * 200), [pd.Timestamp("2025-07-07 07:07")]),
}


@pytest.mark.filterwarnings("ignore:.* values of column 'category' are known")
@pytest.mark.parametrize("cls", [MLPRegressor, PackClassifier, TabMClassifier])
def test_constant_columns_do_not_move_predictions(cls):
    constant = {name: fitted for name, (fitted, _) in NEW_VALUES.items()}
    table = pd.DataFrame({"age": FRAME["age"], **constant})
    is_classifier = "Classifier" in cls.__name__
    members = {"n_members": 3} if "Pack" in cls.__name__ else {}
    quick = {"max_iter": 3, "n_iter_no_change": INF, "random_state": 0}
    model = cls(**quick, date_features=["number", "hour"], **members)
    model.fit(table, TARGET > 0 if is_classifier else TARGET)
    predict = model.predict_proba if is_classifier else model.predict
    for name, (_, later) in NEW_VALUES.items():
        for value in later:
            dtype = bool if name == "boolean" else None
            new = table.assign(**{name: pd.Series([value] * 200, dtype=dtype)})
            assert_allclose(predict(new), predict(table), atol=1e-6)
