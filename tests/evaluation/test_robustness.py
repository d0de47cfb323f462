"""robustness and corrupt: what each corruption does, whose scores are given, how they sum up."""

from __future__ import annotations

import weakref

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, log_loss
from sklearn.model_selection import train_test_split

from combutab import MLPClassifier
from combutab.evaluation import CORRUPTIONS, corrupt, robustness

# ---- corrupt: what each corruption does, and to which dtypes ------------------------------------


N = 4000

LEVELS = {name: dict(enumerate(each.levels, 1)) for name, each in CORRUPTIONS.items()}

OF_NUMBERS = [name for name, each in CORRUPTIONS.items() if each.kinds == ("number",)]


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(5, 2, N), "b": rng.exponential(0.1, N)})


def table_of(n=200, seed=0):
    """A column of every kind."""
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 99, n), unit="D")
    return pd.DataFrame(
        {
            "float": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "float32": rng.normal(size=n).astype(np.float32),
            "int": rng.integers(0, 9, n),
            "Int64": pd.array(np.where(rng.random(n) < 0.1, None, rng.integers(0, 9, n)), "Int64"),
            "bool": rng.random(n) < 0.5,
            "boolean": pd.array(rng.random(n) < 0.5, "boolean"),
            "category": pd.Categorical(rng.choice(list("abc"), n), categories=list("abcd")),
            "int category": pd.Categorical(rng.choice([10, 20, 30], n)),
            "text": rng.choice(["x", "y", "z"], n),
            "string": pd.array(rng.choice(["x", "y", "z"], n), "string"),
            "object": pd.Series(rng.choice(["u", "v", None], n), dtype=object),
            "object numbers": pd.Series(list(rng.choice([1.5, 2.5], n)), dtype=object),
            "day": days,
            "zoned": days.tz_localize("Europe/Rome"),
            "length": pd.to_timedelta(rng.integers(0, 99, n), unit="h"),
            "period": days.to_period("D"),
            "constant": 1.0,
            "empty": np.nan,
        }
    )


# ---- what each corruption does -------------------------------------------------------------------


@pytest.mark.parametrize("severity", [1, 3, 5])
@pytest.mark.parametrize(
    ("name", "law"), [("gaussian_noise", stats.norm()), ("heavy_tailed_noise", stats.t(2))]
)
def test_noise_is_of_its_distribution(numbers, name, law, severity):
    noise = (corrupt(numbers, name, severity) - numbers) / numbers.std(ddof=0)
    noise /= LEVELS[name][severity]
    for column in noise:
        assert stats.kstest(noise[column], law.cdf).pvalue > 0.01
    assert abs(noise["a"].corr(noise["b"], method="spearman")) < 0.05


def test_scale_and_shift_go_both_ways():
    X = pd.DataFrame(np.random.default_rng(0).normal(3, 1, (20, 30)))
    factor = corrupt(X, "scale", 4) / X  # 1.5 or its inverse
    np.testing.assert_allclose(factor, np.repeat(factor[:1], 20, axis=0))
    assert set(np.round(factor.iloc[0], 6)) == {1.5, round(1 / 1.5, 6)}
    shift = (corrupt(X, "shift", 4) - X) / X.std(ddof=0)
    np.testing.assert_allclose(shift, np.repeat(shift[:1], 20, axis=0))
    assert set(np.round(shift.iloc[0], 6)) == {0.5, -0.5}


@pytest.mark.parametrize("severity", [1, 5])
def test_clipping(numbers, severity):
    tail = LEVELS["clipping"][severity]
    expected = numbers.clip(numbers.quantile(tail), numbers.quantile(1 - tail), axis=1)
    pd.testing.assert_frame_equal(corrupt(numbers, "clipping", severity), expected)


@pytest.mark.parametrize("severity", [1, 5])
def test_rounding(numbers, severity):
    step = LEVELS["rounding"][severity] * numbers.std(ddof=0)
    rounded = corrupt(numbers, "rounding", severity)
    multiples = rounded / step
    np.testing.assert_allclose(multiples, multiples.round(), atol=1e-9)
    assert ((rounded - numbers).abs() <= step / 2 * (1 + 1e-9)).all(axis=None)


def test_missing():
    X = table_of(N)
    for severity, share in LEVELS["missing"].items():
        lost = corrupt(X, "missing", severity).isna() & X.notna()
        present = X.notna().sum()
        found = (lost.sum() / present)[present > 0]
        assert found.to_numpy() == pytest.approx(share, abs=4 * np.sqrt(share / N))
    kept = corrupt(X, "missing", 5)
    where = kept["float"].notna()
    np.testing.assert_array_equal(kept["float"][where], X["float"][where])


def test_category_swap():
    X = table_of(N)
    categories = ["bool", "boolean", "category", "int category", "text", "string", "object"]
    for severity, share in LEVELS["category_swap"].items():
        wrong = corrupt(X, "category_swap", severity)
        for name in categories:
            present = X[name].notna()
            assert wrong[name].notna().equals(present)
            assert set(wrong[name][present]) == set(X[name][present])
            changed = (wrong[name][present] != X[name][present]).mean()
            assert changed == pytest.approx(share, abs=4 * np.sqrt(share / present.sum()))
        others = X.columns.difference(categories)
        pd.testing.assert_frame_equal(wrong[others], X[others])
    swapped = corrupt(X, "category_swap", 5)["text"][X["text"] == "x"]
    assert (swapped == "y").sum() == pytest.approx((swapped == "z").sum(), rel=0.25)


def test_column_dropout():
    X = table_of().drop(columns=["constant", "empty"])
    dropped_before: set[str] = set()
    for severity, share in LEVELS["column_dropout"].items():
        wrong = corrupt(X, "column_dropout", severity)
        dropped = {name for name in X if wrong[name].nunique(dropna=False) == 1}
        assert len(dropped) == max(1, round(share * X.shape[1]))
        assert dropped_before <= dropped
        dropped_before = dropped
        for name in dropped:
            value, present = wrong[name].iloc[0], X[name].dropna()
            if pd.api.types.is_float_dtype(X[name]):
                assert value == present.sort_values().iloc[(len(present) - 1) // 2]
            elif str(X[name].dtype) in ("category", "bool", "string", "str"):
                assert (present == value).sum() == present.value_counts().max()
        kept = [name for name in X if name not in dropped]
        pd.testing.assert_frame_equal(wrong[kept], X[kept])


# ---- what holds for all --------------------------------------------------------------------------


@pytest.mark.parametrize("severity", [1, 5])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_dtypes_columns_and_rows_stay(name, severity):
    X = table_of()
    X.index = X.index[::-1] * 7  # any index
    before = X.copy(deep=True)
    wrong = corrupt(X, name, severity)
    pd.testing.assert_frame_equal(X, before)
    assert wrong.columns.equals(X.columns)
    assert wrong.index.equals(X.index)
    for column in X:
        was, now = X[column].dtype, wrong[column].dtype
        allowed = [str(was)]
        if name in OF_NUMBERS or name == "column_dropout":
            floats = {"int": "float64", "Int64": "Float64", "object numbers": "float64"}
            allowed.append(floats.get(column))
        if name == "missing":
            allowed.append({"int": "float64", "bool": "float64"}.get(column))
        assert str(now) in allowed, column
        if was == "category":
            assert now.categories.equals(was.categories)
    if name in OF_NUMBERS:
        assert not wrong["float"].equals(X["float"])
        assert wrong["float"].isna().equals(X["float"].isna())
        others = ["bool", "boolean", "category", "text", "object", "day", "zoned", "empty"]
        pd.testing.assert_frame_equal(wrong[others], X[others])
        if name != "scale":
            assert (wrong["constant"] == 1).all()


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_same_seed_makes_the_same_table(name):
    X = table_of(2000)
    wrong = corrupt(X, name, 3)
    pd.testing.assert_frame_equal(wrong, corrupt(X, name, 3))
    if name not in ("clipping", "rounding"):
        assert not wrong.equals(corrupt(X, name, 3, random_state=1))
    # another column beside it changes nothing, but in how many columns drop out
    if name != "column_dropout":
        more = corrupt(X.assign(more=1.5), name, 3)
        pd.testing.assert_frame_equal(more[X.columns], wrong)


@pytest.mark.parametrize("name", ["gaussian_noise", "heavy_tailed_noise", "shift"])
def test_severities_are_the_same_accident_grown(numbers, name):
    mild, grave = ((corrupt(numbers, name, s) - numbers) / LEVELS[name][s] for s in (1, 5))
    np.testing.assert_allclose(mild, grave, rtol=1e-6, atol=1e-9)


def test_scales_are_the_references(numbers):
    reference = numbers * 10 + 3
    noise = corrupt(numbers, "gaussian_noise", 5, X_reference=reference) - numbers
    own = corrupt(numbers, "gaussian_noise", 5) - numbers
    np.testing.assert_allclose(noise, 10 * own, atol=1e-9)
    typical = corrupt(numbers[:3], "column_dropout", 5, X_reference=reference)
    stuck = typical.columns[typical.nunique() == 1]
    assert len(stuck) == 1
    middle = reference[stuck[0]].sort_values().iloc[(N - 1) // 2]
    assert typical[stuck[0]].tolist() == [middle] * 3


def test_categories_that_the_reference_does_not_know():
    X = pd.DataFrame({"k": pd.Categorical(["a", "b", "c"] * 200)})
    reference = pd.DataFrame({"k": pd.Categorical(["a", "b", "z"])})  # z is none of X's dtype
    wrong = corrupt(X, "category_swap", 5, X_reference=reference)["k"]
    changed = wrong != X["k"]
    assert wrong.dtype == X["k"].dtype
    assert set(wrong[changed]) == {"a", "b"}
    assert changed[X["k"] == "c"].any()
    one = pd.DataFrame({"k": ["a"] * 50})
    pd.testing.assert_frame_equal(corrupt(one, "category_swap", 5), one)


def test_category_codes_are_swapped_without_noise():
    X = pd.DataFrame({"code": np.arange(300) % 3, "x": np.arange(300.0)})
    noisy = corrupt(X, "gaussian_noise", 5, categorical=["code"])
    pd.testing.assert_series_equal(noisy["code"], X["code"])
    swapped = corrupt(X, "category_swap", 5, categorical="code")
    assert swapped["code"].dtype == X["code"].dtype
    assert 0.3 < (swapped["code"] != X["code"]).mean() < 0.5
    assert set(swapped["code"]) == {0, 1, 2}


def test_errors_of_corrupt():
    X = pd.DataFrame({"x": [1.0, 2.0]})
    with pytest.raises(TypeError, match="X must"):
        corrupt(X.to_numpy(), "shift", 1)
    with pytest.raises(ValueError, match="severities"):
        corrupt(X, "shift", 6)
    with pytest.raises(ValueError, match="reference"):
        corrupt(X[:0], "shift", 1)


# ---- robustness: whose scores it gives, and how they sum up -------------------------------------


@pytest.fixture(scope="module")
def mixed():
    """A table on which scikit-learn's and our classifiers do well, and its parts."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "x": rng.normal(size=400),
            "count": rng.integers(0, 20, 400),
            "kind": pd.Categorical(rng.choice(["u", "v", "w"], 400)),
            "truth": rng.random(400) < 0.5,
        }
    )
    y = np.where(X["x"] + 0.1 * X["count"] + (X["kind"] == "u") > 1.2, "yes", "no")
    return train_test_split(X, y, random_state=0)


@pytest.fixture(scope="module")
def models(mixed):
    X, _, y, _ = mixed
    X = X.assign(truth=X["truth"].astype(float))  # as corrupted tables give it
    found = {
        "boosting": HistGradientBoostingClassifier(
            max_iter=20, categorical_features="from_dtype", random_state=0
        ),
        "mlp": MLPClassifier(
            hidden_layer_sizes=(16,),
            batch_size=32,
            learning_rate_init=0.01,
            max_iter=20,
            n_iter_no_change=np.inf,
            random_state=0,
        ),
    }
    return {name: model.fit(X, y) for name, model in found.items()}


def test_scores_are_those_of_the_corrupted_tables(models, mixed):
    X_train, X, _, y = mixed
    found = robustness(models, X, y, X_reference=X_train, severities=[2, 5])
    scores = found.scores
    assert found.scoring == "accuracy"
    assert list(dict.fromkeys(scores["corruption"])) == ["clean", *CORRUPTIONS]
    assert len(scores) == 2 * (1 + 2 * len(CORRUPTIONS))
    for row in scores.itertuples():
        table = X
        if row.severity:
            table = corrupt(X, row.corruption, row.severity, X_reference=X_train)
        expected = accuracy_score(y, models[row.estimator].predict(table))
        assert row.score == pytest.approx(expected)
    summary = found.summary.set_index("estimator")
    assert summary.index.tolist() == list(models)
    for name in models:
        own = scores[scores["estimator"] == name]
        wrong = own[own["severity"] > 0]
        assert summary.loc[name, "clean"] == own["score"].iloc[0] > 0.85
        assert summary.loc[name, "corrupted"] == pytest.approx(wrong["score"].mean())
        drop = own["score"].iloc[0] - wrong["score"].mean()
        assert summary.loc[name, "drop"] == pytest.approx(drop)
        assert drop > 0
    assert list(summary) == ["clean", "corrupted", "drop"]


def test_the_same_numbers_whatever_else_is_asked_for(models, mixed):
    _, X, _, y = mixed

    def scores(models, **options):
        found = robustness(models, X, y, **options).scores
        return found.set_index(["estimator", "corruption", "severity"])["score"]

    whole = scores(models, severities=[2, 4])
    part = scores({"mlp": models["mlp"]}, corruptions=["shift", "missing"], severities=[4])
    pd.testing.assert_series_equal(part, whole[part.index])
    pd.testing.assert_series_equal(whole, scores(models, severities=(4, 2, 2)))
    assert not whole.equals(scores(models, severities=[2, 4], random_state=3))


class Watcher(ClassifierMixin, BaseEstimator):
    """Remembers which tables it was given, and how many were alive."""

    def __init__(self):
        self.seen, self.alive, self.tables = [], [], []

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        table = pd.DataFrame(X)
        self.seen.append((type(X), table.copy()))
        self.tables.append(weakref.ref(X))
        self.alive.append(sum(ref() is not None for ref in self.tables))
        return np.zeros(len(X), dtype=int)


def test_estimators_get_the_same_tables_in_turn():
    X = pd.DataFrame({"x": np.arange(60.0), "k": ["a", "b"] * 30})
    y = np.zeros(60, dtype=int)
    watchers = {name: Watcher().fit(X, y) for name in ("one", "two")}
    robustness(watchers, X, y)
    one, two = watchers.values()
    whole = [table for _, table in one.seen if len(table) == 60]
    assert len(whole) == 1 + 5 * len(CORRUPTIONS)
    for (_, a), (_, b) in zip(one.seen, two.seen, strict=True):
        pd.testing.assert_frame_equal(a, b)
    assert max(one.alive) <= 2  # the clean table, and a corrupted one
    pd.testing.assert_frame_equal(whole[0], X)


def test_arrays_stay_arrays():
    X, y = np.arange(60.0).reshape(30, 2), np.zeros(30, dtype=int)
    before = X.copy()
    watcher = Watcher().fit(X, y)
    found = robustness(watcher, X, y, corruptions=["shift", "missing"])
    assert {kind for kind, _ in watcher.seen} == {np.ndarray}
    assert {table.to_numpy().dtype for _, table in watcher.seen} == {np.dtype(float)}
    np.testing.assert_array_equal(X, before)
    assert found.summary["estimator"].tolist() == ["Watcher"]
    assert np.isnan(watcher.seen[-1][1]).any(axis=None)


def test_unsupported_corruption_fails_first(mixed):
    X, y = pd.DataFrame({"x": np.arange(50.0)}), np.arange(50) % 2
    watcher, model = Watcher().fit(X, y), LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match="NaN") as caught:
        robustness({"watcher": watcher, "linear": model}, X, y)
    (note,) = caught.value.__notes__
    assert "'linear', at the corruption 'missing' of severity 5" in note
    assert "imputer" in note
    assert all(len(table) < 50 for _, table in watcher.seen)
    robustness(model, X, y, corruptions=["shift"])


def test_what_no_column_can_suffer_is_left_out():
    numbers, y = pd.DataFrame({"a": np.arange(40.0)}), np.arange(40) % 2
    found = robustness(Watcher().fit(numbers, y), numbers, y, severities=[1])
    assert "category_swap" not in set(found.scores["corruption"])
    words = pd.DataFrame({"k": ["a", "b"] * 10})
    found = robustness(Watcher().fit(words, y[:20]), words, y[:20], severities=[1])
    assert found.scores["corruption"].tolist() == [
        "clean",
        "category_swap",
        "missing",
        "column_dropout",
    ]


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corruptions": ["noise"]}, "'noise'"),
        ({"corruptions": ["roundin"]}, "did you mean 'rounding'"),
        ({"corruptions": ["category_swap"]}, "acts on category columns.*none"),
        ({"corruptions": []}, "corruptions is empty"),
        ({"severities": [0, 1]}, r"some of \(1, 2, 3, 4, 5\), got \[0, 1\]"),
        ({"severities": []}, "severities"),
        ({"severities": [1.5]}, "severities"),
        ({"categorical": ["z"]}, r"no column of the table: \['z'\]"),
        ({"scoring": "accuracies"}, "accuracies"),
        ({"X_reference": pd.DataFrame({"y": [1.0]})}, r"lacks \['x'\], and adds"),
        ({"X_reference": pd.DataFrame({"x": []})}, "reference table has no rows"),
        ({"X_reference": [1.0]}, "X_reference must have the shape"),
        ({"y_test": [1, 2]}, "inconsistent numbers of samples"),
        (
            {"X_test": pd.DataFrame({"x": []}), "y_test": []},
            r"X_test: Found array with 0 sample\(s\)",
        ),
        ({"X_test": np.zeros(4)}, r"X_test must have the shape.*\(4,\)"),
        ({"estimator": {}}, "at least one fitted estimator"),
        (
            {"X_test": pd.DataFrame([[1, 2]] * 4, columns=["a", "a"])},
            r"X_test has duplicate column names: \['a'\]",
        ),
    ],
)
def test_errors(options, message):
    X, y = pd.DataFrame({"x": np.arange(4.0)}), np.arange(4) % 2
    watcher = Watcher().fit(X, y)
    given = {"estimator": watcher, "X_test": X, "y_test": y} | options
    with pytest.raises((ValueError, TypeError), match=message):
        robustness(given.pop("estimator"), given.pop("X_test"), given.pop("y_test"), **given)
    assert not watcher.seen


def test_scoring_by_the_name_of_a_metric():
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    y = np.where(table["a"] > 0.8, "rare", "usual")
    model = LogisticRegression().fit(table, y)
    options = {"corruptions": ["scale"], "severities": [1]}
    found = robustness(model, table, y, scoring="log loss", **options)
    clean = found.scores["score"].iloc[0]
    assert found.scoring == "neg_log_loss"
    assert clean == pytest.approx(-log_loss(y, model.predict_proba(table)))
    clean = robustness(model, table, y, scoring="f1", **options).scores["score"].iloc[0]
    assert clean == pytest.approx(f1_score(y, model.predict(table), pos_label="rare"))
