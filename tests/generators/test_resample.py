"""fit_resample adds synthetic rows until all classes have as many."""

import numpy as np
import pandas as pd
import pytest

from combutab import CTGAN, TVAE
from tests.generators.small import make

COUNTS = {"often": 70, "some": 30, "few": 20}


def make_data():
    rng = np.random.default_rng(0)
    y = pd.Series(np.repeat(list(COUNTS), list(COUNTS.values())), name="class").sample(
        frac=1, random_state=0
    )
    n = len(y)
    X = pd.DataFrame(
        {
            "float": rng.normal(size=n).astype(np.float32),
            "int": rng.integers(0, 9, n),
            "category": pd.Categorical(rng.choice(["u", "v"], n), ["w", "v", "u"], ordered=True),
            "text": rng.choice(["a", "b"], n),
            "date": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 60, n), "D"),
            "nullable": pd.array(rng.integers(0, 9, n), dtype="Int64"),
        },
        index=y.index,
    )
    X.loc[:30, "nullable"] = pd.NA
    return X, y


@pytest.mark.parametrize("cls", [CTGAN, TVAE])
def test_all_classes_have_equal_counts_after_resampling(cls):
    X, y = make_data()
    model = make(cls)
    X_new, y_new = model.fit_resample(X, y)
    assert y_new.value_counts().to_dict() == dict.fromkeys(COUNTS, 70)
    assert len(X_new) == len(y_new) == 210
    pd.testing.assert_frame_equal(X_new[:120], X.reset_index(drop=True))
    pd.testing.assert_series_equal(y_new[:120], y.reset_index(drop=True))
    assert X_new.dtypes.to_dict() == X.dtypes.to_dict()
    assert (y_new.name, y_new.dtype) == (y.name, y.dtype)
    assert X_new["nullable"][120:].isna().any()
    pd.testing.assert_frame_equal(X_new, make(cls).fit_resample(X, y)[0])
    assert list(model.sample(4)) == [*X, "class"]


def test_a_dict_says_how_many():
    X, y = make_data()
    X_new, y_new = make(TVAE).fit_resample(X, y, sampling_strategy={"few": 33, "often": 70})
    assert y_new.value_counts().to_dict() == {"often": 70, "some": 30, "few": 33}
    assert set(y_new[120:]) == {"few"}
    assert len(X_new) == 133


@pytest.mark.parametrize(
    ("dtype", "labels"),
    [
        (np.float64, np.array([7, -1])),
        (np.float32, np.array([True, False])),
        (object, np.array([1.0, 2])),
    ],
)
def test_arrays(dtype, labels):
    rng = np.random.default_rng(0)
    X = np.stack([rng.normal(size=60), rng.integers(0, 3, 60)], axis=1).astype(dtype)
    y = np.repeat(labels, [40, 20])
    model = make(TVAE)
    X_new, y_new = model.fit_resample(X, y, discrete_columns=[-1])
    assert (X_new.dtype, y_new.dtype) == (X.dtype, y.dtype)
    np.testing.assert_array_equal(X_new[:60], X)
    np.testing.assert_array_equal(y_new, np.repeat(labels[[0, 1, 1]], [40, 20, 20]))
    assert set(X_new[60:, 1]) <= {0, 1, 2}
    assert len(np.unique(X_new[60:, 0].astype(float))) > 10  # it is of numbers
    X_listed, y_listed = make(TVAE).fit_resample(X.tolist(), y.tolist(), discrete_columns=[1])
    np.testing.assert_array_equal(y_listed, y_new)
    assert X_listed.shape == X_new.shape


def test_booleans_of_dtype_object_are_classes():
    X, y = make_data()
    y_new = make(TVAE).fit_resample(X, (y == "often").astype(object))[1]
    assert y_new.value_counts().to_dict() == {True: 70, False: 70}


def test_classes_may_be_dates():
    days = np.repeat(np.array(["2024-01-01", "2024-02-01"], "M8[D]"), [40, 20])
    X = np.random.default_rng(0).normal(size=(60, 2))
    for labels in (days, pd.Series(days)):
        _, y_new = make(TVAE).fit_resample(X, labels)
        assert y_new.dtype == labels.dtype
        assert pd.Series(y_new).value_counts().tolist() == [40, 40]


def test_arrays_of_text():
    X = np.array([["a", "b"], ["c", "b"]] * 30)
    X_new, y_new = make(TVAE).fit_resample(X, np.repeat([0, 1], [40, 20]))
    assert X_new.dtype.kind == "U"
    assert set(X_new[:, 0]) == {"a", "c"}
    assert np.bincount(y_new).tolist() == [40, 40]


def test_rows_as_lists_keep_numbers_beside_text():
    rows = [["a", 1.5], ["b", 2.5]] * 30
    X_new, _ = make(TVAE).fit_resample(rows, [0] * 40 + [1] * 20)
    assert X_new[:60].tolist() == rows
    assert all(isinstance(each, float) for each in X_new[60:, 1])
    with pytest.raises(ValueError, match=r"X .*\(3,\)"):
        make(TVAE).fit_resample([1, 2, 3], [0, 0, 1])


def test_frames_of_polars_stay_what_they_are():
    pl = pytest.importorskip("polars")
    X, y = make_data()
    X = pl.from_pandas(X[["int", "text"]].reset_index(drop=True)).cast({"text": pl.Categorical})
    X = X.with_columns(clock=pl.time_range(interval="10m", eager=True)[: len(X)])
    X_new, y_new = make(TVAE).fit_resample(X, pl.Series("class", y.to_list()))
    assert X_new.schema == X.schema
    assert X_new[:120].equals(X)
    assert not any(X_new.null_count().row(0))
    assert y_new.name == "class"
    assert dict(y_new.value_counts().iter_rows()) == dict.fromkeys(COUNTS, 70)
    assert isinstance(make(TVAE).fit_resample(X, y.to_numpy())[1], np.ndarray)


def test_target_name_may_equal_a_column():
    X, y = make_data()
    X = X.rename(columns={"text": "class"})
    model = make(TVAE)
    assert list(model.fit_resample(X, y)[0]) == list(X)
    assert list(model.sample(1)) == [*X, "class_"]
    model.fit_resample(X, y.to_numpy())
    assert list(model.sample(1)) == [*X, "target"]


def test_balanced_classes_stay_as_they_are():
    X, y = make_data()
    keep = y.groupby(y).cumcount() < 20
    X_new, y_new = make(TVAE).fit_resample(X[keep], y[keep])
    pd.testing.assert_frame_equal(X_new, X[keep].reset_index(drop=True))
    pd.testing.assert_series_equal(y_new, y[keep].reset_index(drop=True))


@pytest.mark.parametrize(
    ("change", "params", "error"),
    [
        (lambda y: y[:-1], {}, "X has 120 rows and y 119"),
        (lambda y: y.mask(y == "few"), {}, "y is missing in 20 rows"),
        (lambda y: np.linspace(0, 1, 120), {}, "Unknown label type: continuous"),
        (lambda y: y.to_frame(), {}, r"y must have the shape \(n_rows,\), got \(120, 1\)"),
        (lambda y: y, {"sampling_strategy": "all"}, "'auto' or a dict .*got 'all'"),
        (lambda y: y, {"sampling_strategy": {"fwe": 30}}, "class 'fwe', which is not in y.*'few'"),
        (lambda y: y, {"sampling_strategy": {"few": 19}}, "19 rows for class 'few', which has 20"),
        (lambda y: y, {"sampling_strategy": {"few": 25.5}}, "25.5 rows for class 'few'"),
    ],
)
def test_bad_resampling_input_is_refused_before_training(change, params, error):
    X, y = make_data()
    model = make(TVAE)
    with pytest.raises(ValueError, match=error):
        model.fit_resample(X, change(y), **params)
    assert not hasattr(model, "encoder_")


def test_too_rare_class_is_refused():
    X, y = make_data()
    y.iloc[:3] = "odd"
    with pytest.raises(ValueError, match=r"'odd'.*3.*min_frequency=5"):
        make(TVAE).fit_resample(X, y)
    _, y_new = make(TVAE).fit_resample(X, y, sampling_strategy={"few": 40})
    assert (y_new == "odd").sum() == 3
    _, y_new = make(TVAE, min_frequency=1).fit_resample(X[["float"]], y)
    assert (y_new == "odd").sum() == (y_new == "often").sum()
