"""Free text: which columns are, what they become, and what the state holds; odd categories."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from combutab import MLPClassifier, MLPRegressor, load
from combutab.preprocessing import (
    OddColumnWarning,
    TableEncoder,
    UnlearnedWarning,
    odd_columns,
    read_amounts,
)

GOOD = ["a joy to use every day", "sturdy, quick and beautiful", "we would buy it again at once"]
BAD = ["it broke in the first week", "flimsy, slow and far too loud", "the seller never replied"]
FILLER = ["arrived", "yesterday", "ordered", "kitchen", "colour", "size", "box", "table", "chair"]


def reviews(n=200, seed=0):
    rng = np.random.default_rng(seed)
    good = rng.random(n) < 0.5
    texts = [
        f"{' '.join(rng.choice(FILLER, 5))} {rng.choice(GOOD if g else BAD)}, number {i}"
        for i, g in enumerate(good)
    ]
    return pd.DataFrame({"review": texts, "price": rng.normal(size=n)}), good


X, GOODNESS = reviews()
RNG = np.random.default_rng(0)
NAMES = [f"{first} M. Garcia{i}" for i, first in enumerate(["Anna", "Li"] * 50)]
COLUMNS = {
    "free text": (X["review"].tolist(), True),
    "with gaps": ([None, *X["review"][1:]], True),
    "chinese": ([f"这张桌子很结实而且漂亮我们非常喜欢{i}" for i in range(50)], True),
    "keys": ([f"A-{10_293 + i}" for i in range(100)], False),
    "hashes": ([RNG.bytes(16).hex() for _ in range(100)], False),
    "people": (NAMES, False),
    "addresses": ([f"{i} Main Street, Springfield" for i in range(100)], False),
    "mail": ([f"anna.smith{i}@shop.example.com" for i in range(100)], False),
    "sentences of few kinds": ([*GOOD, *BAD] * 20, False),
    "a few texts": (X["review"].tolist()[:15], False),
    "text and numbers": ([*X["review"], 3], False),
}


@pytest.mark.filterwarnings("ignore::combutab.preprocessing.UnlearnedWarning")
@pytest.mark.parametrize("name", COLUMNS)
def test_which_columns_are_free_text(name):
    values, expected = COLUMNS[name]
    column = pd.DataFrame({"c": pd.Series(values, dtype=object)})
    for table in (column, column.to_numpy(dtype=object)):
        assert (TableEncoder().fit(table).kinds_ == ("text",)) == expected
    for chosen in (["c"], [True]):
        assert TableEncoder(categorical_features=chosen).fit(column).kinds_ == ("category",)
    assert TableEncoder().fit(column.astype("category")).kinds_ == ("category",)


def test_columns_of_a_text_and_of_missing_ones():
    table = X.copy()
    table.loc[3, "review"] = None
    encoder = TableEncoder().fit(table)
    names = encoder.get_feature_names_out().tolist()
    assert names[:2] == ["price", "review_svd0"]
    assert names[-1] == "review_missing"
    rows = encoder.transform(table)
    assert_allclose(np.delete(rows, 3, 0)[:, 1:-1].mean(0), 0, atol=1e-5)
    assert_allclose(np.delete(rows, 3, 0)[:, 1:-1].std(0), 1, atol=1e-5)
    assert rows[3, 1:].tolist() == [0] * (len(names) - 2) + [1]
    again = TableEncoder().fit_transform(table)
    assert (again == rows).all()
    assert odd_columns(table) == []  # nor is it taken for names of rows
    assert "30 columns from hashed n-grams" in encoder.describe_columns()["review"]
    odd = table.assign(review=["", "!?", 7, "a" * 10**6, *table["review"][4:]])
    assert np.isfinite(encoder.transform(odd)).all()


def test_ignored_text_leaves_no_column_and_no_warning():
    encoder = TableEncoder(text_features="ignore").fit(X)
    assert encoder.get_feature_names_out().tolist() == ["price"]
    assert encoder.describe_columns()["review"] == "free text: left out"
    numbers, codes = encoder.read(X)
    assert numbers.shape == (200, 1)
    assert codes.shape == (200, 0)


def test_text_of_which_nothing_is_left_is_named():
    with pytest.raises(ValueError, match=r"'ignore'.*'review'"):
        MLPClassifier(text_features="ignore").fit(X[["review"]], GOODNESS)
    letters = np.array([*"abcdefghijklmnop"])
    strange = [" ".join("".join(RNG.choice(letters, 5)) for _ in range(6)) for _ in range(200)]
    alike = X.assign(review=strange)
    with pytest.warns(UnlearnedWarning, match="'review'"):
        encoder = TableEncoder(min_frequency=0.9).fit(alike)
    assert encoder.n_dense_ == 1


def test_state_holds_no_text_and_is_bounded():
    encoder = TableEncoder().fit(X)
    arrays, meta = encoder.to_state()
    text = json.dumps(meta)
    assert not any(word in text for word in (*FILLER, "sturdy", "seller"))
    assert sum(array.nbytes for array in arrays.values()) < 1.1e6
    again = TableEncoder.from_state(arrays, json.loads(text))
    assert (again.transform(X) == encoder.transform(X)).all()
    alone = TableEncoder().fit(pd.concat([X, X.assign(review="zyzzogeton qwx")[:1]]))
    found, before = (np.flatnonzero(e.text_maps_[0].weights) for e in (alone, encoder))
    assert {*found} <= {*before}  # n-grams of one text leave nothing
    for name, wrong in {
        "scale": arrays["texts.0.scale"] * 0,
        "components": arrays["texts.0.components"][:, :-1],
    }.items():
        with pytest.raises(ValueError, match="encoding"):
            TableEncoder.from_state({**arrays, f"texts.0.{name}": wrong}, meta)


def test_parts_of_a_table():
    whole = TableEncoder().fit(X)
    parts = TableEncoder().fit_batches((X[i : i + 50], None) for i in range(0, 200, 50))
    assert parts.kinds_ == whole.kinds_
    assert_allclose(parts.transform(X), whole.transform(X), atol=1e-4)


def test_text_is_learned_saved_and_not_exported(tmp_path):
    new, truth = reviews(100, seed=1)
    options = {"max_iter": 15, "n_members": 1, "hidden_layer_sizes": (32,), "random_state": 0}
    clf = MLPClassifier(**options).fit(X, GOODNESS)
    assert clf.score(new, truth) > 0.9
    clf.save(tmp_path / "clf")
    assert (load(tmp_path / "clf").predict_proba(new) == clf.predict_proba(new)).all()
    with pytest.raises(ValueError, match=r"'review'.*text_features='ignore'"):
        clf.to_torch()
    plain = MLPClassifier(**options, text_features="ignore").fit(X, GOODNESS)
    module = plain.to_torch()
    found = module(*module.encode(new)).detach().numpy()
    assert_allclose(found, plain.predict_proba(new), atol=1e-6)


def test_text_of_parquet_files(tmp_path):
    pytest.importorskip("pyarrow")
    X.assign(y=GOODNESS * 1.0).to_parquet(tmp_path / "x.parquet")
    reg = MLPRegressor(max_iter=1, n_iter_no_change=float("inf"), random_state=0)
    reg.fit_parquet(tmp_path / "x.parquet", "y")
    assert reg.encoder_.kinds_ == ("text", "number")
    assert_allclose(reg.predict_parquet(tmp_path / "x.parquet"), reg.predict(X), atol=1e-6)


# ---- text that is dates or amounts ---------------------------------------------------------------

DAYS = pd.date_range("2024-01-01", periods=30)
ODD = {
    "unclear dates": (
        [f"0{1 + i % 9}/0{1 + i % 7}/2024" for i in range(30)],
        "although the values are dates.*pandas.to_datetime reads",
    ),
    "euros": (
        [f"1.{i:03},50 €" for i in range(30)],
        r"with a currency or percent sign \('1.000,50 €'\): .*read_am",
    ),
    "commas": ([f"{i},5" for i in range(30)], "have a decimal comma .*read_amounts reads them. To"),
    "thousands": (
        [f"{i},000" for i in range(1, 31)],
        r"with thousands separators .*told .*\(decimal=\)",
    ),
    "units": ([f"{i} {'€$'[i % 2]}" for i in range(30)], "sign .*remove the sign, and"),
    "points": ([f"{i}.25" for i in range(30)], "although all values are numbers"),
    "gaps": ([*(f"{i}.25" for i in range(30)), "n.a."], "errors='coerce'"),
}


@pytest.mark.parametrize("name", ODD)
def test_text_that_is_dates_or_amounts_is_named(name):
    values, said = ODD[name]
    table = pd.DataFrame({"sold": [*values] * 5})
    with pytest.warns(OddColumnWarning, match=f"'sold'.*categories, .*{said}"):
        MLPRegressor(max_iter=1, n_iter_no_change=float("inf")).fit(table, np.arange(len(table)))
    TableEncoder().fit(table.astype("category"))
    TableEncoder(categorical_features=["sold"]).fit(table)
    with pytest.warns(UnlearnedWarning, match="read as text"):
        TableEncoder(min_frequency=6).fit(table)


def test_one_warning_for_all_columns_points_to_the_call_of_fit():
    table = pd.DataFrame(dict.fromkeys(("sold", "rent"), ODD["points"][0] * 5))
    with pytest.warns(OddColumnWarning, match="'sold'.*\n.*'rent'") as caught:
        MLPRegressor(max_iter=1, n_iter_no_change=float("inf")).fit(table, np.arange(len(table)))
    assert [warning.filename for warning in caught] == [__file__]


def test_read_amounts():
    table = pd.DataFrame(
        {
            "rent": ["1.507,67 €", "980,00 €", None],
            "unclear": ["1.234", "2.345", "10.456"],
            "mixed": [3.5, "1.200,50 €", None],
            "code": ["1", "2", "3"],
            "units": ["1 €", "2 $", "3 €"],
            "flag": [True, "2 €", None],
            "n": [1, 2, 3],
        },
        index=[5, 5, 7],
    ).set_axis(["rent", "unclear", "mixed", "code", "units", "flag", "flag"], axis=1)
    before = table.copy()
    found = read_amounts(table)
    pd.testing.assert_frame_equal(table, before)
    assert found.index.tolist() == [5, 5, 7]
    assert found["rent"].tolist()[:2] == [1507.67, 980.0]
    assert found["unclear"].tolist() == [1234, 2345, 10456]  # as the other columns tell
    assert found["mixed"].tolist()[:2] == [3.5, 1200.5]
    pd.testing.assert_frame_equal(found.iloc[:, 3:], table.iloc[:, 3:])
    alone = table["unclear"]
    pd.testing.assert_series_equal(read_amounts(alone), alone)
    assert read_amounts(alone, decimal=".").tolist() == [1.234, 2.345, 10.456]
    assert read_amounts(alone, thousands=".").tolist() == [1234, 2345, 10456]
    assert read_amounts(table.iloc[:0]).shape == (0, 7)
    TableEncoder().fit(found[["rent", "unclear", "mixed"]])  # without a warning


@pytest.mark.parametrize(
    ("marks", "says"),
    [
        ({"decimal": ";"}, "decimal must be one of '.', ',', got ';'"),
        ({"thousands": "''"}, "thousands must be one of"),
        ({"decimal": ",", "thousands": ","}, "are both ','"),
    ],
)
def test_read_amounts_refuses_other_marks(marks, says):
    with pytest.raises(ValueError, match=says):
        read_amounts(pd.DataFrame({"a": ["1,5"]}), **marks)


@pytest.mark.parametrize("values", [list("123"), [str(i) for i in range(60)], ["a", "5,5"]])
def test_codes_and_words_are_categories_without_a_word(values):
    TableEncoder(min_frequency=1).fit(pd.DataFrame({"c": values * 3}))


def test_texts_without_known_ngrams_have_the_mean():
    encoder = TableEncoder().fit(X)
    later = pd.DataFrame({"review": ["这张桌子很结实", "", None], "price": 0.0})
    assert not encoder.transform(later)[:, 1:31].any()
