"""No weight, number or table that cannot be is taken, and none is silently ignored."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from combutab import MLPClassifier, MLPRegressor
from tests.short import BUDGET
from tests.trust.small_rows import INF, LABELS, LEARNS, QUICK, X, Z, target_of

BAD_CLASS_WEIGHTS = [
    ({0: -1, 1: 1, 2: 1}, "class_weight of class 0 must be at least 0 and finite, got -1"),
    ({0: "2"}, "class_weight of class 0 must be a number, got '2'"),
    ({0: 1e300}, "must be 0, or between 1e-18 and 1e.18, got 1e.300"),
    ({0: 0, 1: 0, 2: 0}, "is 0 for every class: nothing is left to fit"),
    ({"0": 1.0, "1": 2.0}, r"names \['0', '1'\], which are not classes of y"),
    ({0: 1, 7: 2}, r"names \[7\].*the classes \[1, 2\] are not in class_weight"),
    ([1.0, 2.0, 3.0], "must be a dict class -> weight"),
    ([{0: 1}], "class_weight is a list, which only multi-label targets have"),
]


@pytest.mark.parametrize(("class_weight", "words"), BAD_CLASS_WEIGHTS)
def test_bad_class_weights_are_refused_before_training(class_weight, words, monkeypatch, tmp_path):
    monkeypatch.setattr("combutab.estimators._base.train_job", None)
    model = MLPClassifier(**QUICK, class_weight=class_weight)
    with pytest.raises(ValueError, match=words):
        model.fit(X, LABELS)
    with pytest.raises(ValueError, match=words):
        model.partial_fit(X, LABELS, classes=[0, 1, 2])
    pytest.importorskip("pyarrow")
    pd.DataFrame(X, columns=list("abc")).assign(y=LABELS).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=words):
        model.fit_parquet(tmp_path / "t.parquet", "y")


def test_weight_of_an_absent_class_warns_only():
    plain = MLPClassifier(**QUICK, class_weight={0: 1, 1: 2, 2: 3}).fit(X, LABELS)
    model = MLPClassifier(**QUICK, class_weight={0: 1, 1: 2, 2: 3, 9: 4})
    with pytest.warns(UserWarning, match=r"\[9\].*classes of y"):
        model.fit(X, LABELS)
    assert_array_equal(model.predict_proba(X), plain.predict_proba(X))


def test_sample_weights_that_cannot_be_are_refused():
    for weight, words in [
        (np.full(120, 1e300), "must be 0, or between 1e-18 and 1e.18, got 1e.300"),
        (np.full(120, 1e-300), "must be 0, or between"),
        (np.where(Z > 0, 1.0, 5e-324), "must be 0, or between"),
        (-np.ones(120), "[Nn]egative"),
        (np.where(Z > 0, np.nan, 1.0), "NaN"),
        (np.where(Z > 0, INF, 1.0), "infinity"),
        (np.zeros(120), "zero"),
        (np.ones(119), r"inconsistent numbers of samples|sample_weight.shape"),
        (np.ones((120, 2)), "Sample weights must be 1D"),
        (np.ones(120) + 1j, "Complex"),
    ]:
        for cls in (MLPClassifier, MLPRegressor):
            with pytest.raises(ValueError, match=words):
                cls(**QUICK).fit(X, target_of(cls), sample_weight=weight)
    with pytest.raises(ValueError, match="class_weight times sample_weight"):
        MLPClassifier(**QUICK, class_weight={0: 1e10, 1: 1, 2: 1}).fit(
            X, LABELS, sample_weight=np.full(120, 1e10)
        )
    parameters = {**LEARNS, "alpha": 0.0}
    once = MLPRegressor(**parameters).fit(X, Z).predict(X)
    for size in (2.0**-59, 2.0**59):
        again = MLPRegressor(**parameters).fit(X, Z, sample_weight=np.full(120, size)).predict(X)
        assert_allclose(again, once, rtol=1e-3, atol=1e-3)


# ---- numbers that are none, tables that are others ----------------------------------------

REALS = [n for n, rules in MLPRegressor._parameter_constraints.items()
         if any("Interval" in type(rule).__name__ and rule.type is not None
                and "float" in str(rule) for rule in rules)]  # fmt: skip


@pytest.mark.parametrize("name", REALS)
def test_nan_and_negative_numbers_are_no_parameters(name):
    assert len(REALS) > 8
    for value in (np.nan, -1.0, -INF):
        with pytest.raises(ValueError, match=name):
            MLPRegressor(**{**QUICK, name: value}).fit(X, Z)


# ---- No target of whatever size gives silently wrong numbers: it is learned, or refused ---------

SCALES = [1e-323, 1e-320, 1e-300, 1e-155, 1e-20, 1e20, 1e149]

ENDS = [SCALES[0], 1e-155, SCALES[-1]]

LOSSES = ["squared_error", "absolute_error", "huber", "poisson", "quantile", "gaussian_nll"]


def r_squared(y, predicted):
    """In long arithmetic, of numbers of any size."""
    unit = np.abs(y).max()
    y, predicted = ([float(v) / float(unit) for v in values] for values in (y, predicted))
    y, predicted = np.array(y), np.array(predicted)
    return 1 - ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum()


@pytest.mark.parametrize(
    ("loss", "scale"),
    [
        (loss, scale)
        for loss in LOSSES
        for scale in SCALES
        if BUDGET > 1 or (scale in ENDS and loss in ("squared_error", "poisson"))
    ],
)
def test_targets_of_any_size_are_learned(loss, scale):
    y = np.abs(Z) * scale
    model = MLPRegressor(loss, **LEARNS).fit(X, y)
    predicted = model.predict(X)
    assert np.isfinite(predicted).all()
    assert r_squared(y, predicted) > 0.8
    assert_allclose(model.score(X, y), r_squared(y, predicted), atol=1e-3)
    if loss == "gaussian_nll":
        _, deviation = model.predict(X, return_std=True)
        assert (deviation > 0).all() or scale < 1e-310
        assert np.isfinite(deviation).all()


@pytest.mark.parametrize(
    ("dtype", "settings"),
    [
        ("float16", {}),
        ("float32", {"bagging": "cv", "n_members": 2}),
        ("int64", {"loss": "quantile"}),
    ],
)
def test_low_precision_tables_do_not_round_targets(dtype, settings):
    rows = (X * 1000 if dtype == "int64" else X).astype(dtype)
    model = MLPRegressor(**LEARNS, **settings).fit(rows, 1e9 + Z)
    plain = MLPRegressor(**LEARNS, **settings).fit(rows, Z)
    assert model.score(rows, 1e9 + Z) > 0.8
    assert r_squared(plain.predict(rows), model.predict(rows) - 1e9) > 0.99
    module = model.to_torch()
    exported = module(*module.encode(rows)).detach().numpy()
    assert_allclose(exported - 1e9, model.predict(rows) - 1e9, atol=1e-3)
    if "bagging" in settings:
        assert r_squared(plain.oof_prediction_, model.oof_prediction_ - 1e9) > 0.99


def test_target_moments_match_long_arithmetic():
    from fractions import Fraction

    for scale in (1e-300, 1e-100, 1.0, 1e149):
        y = (Z + 3) * scale
        exact = [Fraction(v) for v in y.tolist()]
        mean = sum(exact) / len(exact)
        variance = sum((v - mean) ** 2 for v in exact) / len(exact)
        model = MLPRegressor(**QUICK).fit(X, y)
        assert_allclose(model.target_.shift, float(mean), rtol=1e-14)
        squared = Fraction(float(model.target_.scale[0])) ** 2
        assert abs(float(squared / variance) - 1) < 1e-13


def test_nearly_constant_targets_are_learned_and_constants_exact():
    y = 1e6 + Z * 1e-7
    assert MLPRegressor(**LEARNS).fit(X, y).score(X, y) > 0.9
    for value in (0.0, 1e150, -1e150, 2.0**53 + 2, 5e-324, -1e-300, 0.1):
        model = MLPRegressor(**QUICK).fit(X, np.full(120, value))
        assert_allclose(model.predict(X), value, rtol=0.5, atol=0.5 * min(1, abs(value) or 1))
        assert np.isfinite(model.predict(X)).all()


NOT_HELD = {
    "beyond": (Z * 1e151, {}, r"values up to \d.*e\+151\. Values beyond 1e\+150 .*divide it by"),
    "huge unscaled": (Z * 1e149, {"scale_target": False}, "use scale_target=True"),
    "tiny unscaled": (Z * 1e-60, {"scale_target": False}, "rounds such numbers"),
    "offset unscaled": (1e10 + Z, {"scale_target": False}, "10000000.* to steps of 1.02e"),
    "coarse unscaled": (1e8 + Z, {"scale_target": False}, "of 2.4.*to steps of 8; use scale"),
    "offset poisson": (1e10 + Z, {"loss": "poisson"}, "use another loss"),
    "integers": (
        2**60 + np.arange(120),
        {},
        "120 different integers.*subtract 1152921504606846976",
    ),
    "long integers": (2**70 + np.arange(120).astype(object), {}, "different integers"),
    "dates": (pd.Series(pd.date_range("2020", periods=120)), {}, "holds datetime64.*not numbers"),
    "one column": (np.column_stack([Z, Z * 1e307]), {}, "their squares exceed float64"),
}


@pytest.mark.parametrize("kind", NOT_HELD)
def test_unrepresentable_targets_are_refused_before_training(kind, monkeypatch):
    y, parameters, words = NOT_HELD[kind]
    monkeypatch.setattr("combutab.estimators._base.train_job", None)
    with pytest.raises(ValueError, match=words):
        MLPRegressor(**{**QUICK, **parameters}).fit(X, y)


def test_unrepresentable_later_or_validation_rows_are_refused(tmp_path):
    model = MLPRegressor(**QUICK).partial_fit(X, Z)
    for late in (lambda: model.partial_fit(X, Z * 1e40),
                 lambda: MLPRegressor(**QUICK).fit(X, Z, X_val=X, y_val=Z * 1e40)):  # fmt: skip
        with pytest.raises(ValueError, match="cannot hold the square"):
            late()
    assert np.isfinite(model.predict(X)).all()
    pytest.importorskip("pyarrow")
    for column, words in (
        (Z * 1e307, "their squares exceed float64"),
        (2**60 + np.arange(120), "different integers"),
    ):
        pd.DataFrame(X, columns=list("abc")).assign(y=column).to_parquet(tmp_path / "t.parquet")
        with pytest.raises(ValueError, match=words):
            MLPRegressor(**QUICK).fit_parquet(tmp_path / "t.parquet", "y")
