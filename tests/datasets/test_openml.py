"""load_openml from local files, its checks of the registered sets, and list_openml."""

import gzip
import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from combutab.datasets import TableError, list_openml, load_openml
from combutab.datasets._openml import REGISTRY, KnownSet, content_checksum

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
# Table 4 of the CombU paper: rows, numeric and nominal features, classes (0: regression). It
# prints 13 numeric features for boston, which are all its features with the two nominal ones.
TABLE_4 = {
    "california_housing": (20640, 8, 1, 0),
    "diabetes": (768, 8, 0, 2),
    "boston": (506, 11, 2, 0),
    "breast-w": (699, 9, 0, 2),
    "wine_quality": (6497, 11, 0, 0),
    "wdbc": (569, 30, 0, 2),
    "PhishingWebsites": (11055, 0, 30, 2),
    "autoMpg": (398, 4, 3, 0),
}
SMALL = "size,fixed.acidity,colour,class\n1,0.5,3,a\n2,,1,b\n3,0.25,,a\n"


@pytest.fixture(scope="module")
def shared():
    if not (SHARED / "openml").is_dir():
        pytest.skip("the eight data sets are not in shared/data/openml beside the checkout")
    return SHARED


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A registered set of three rows, and its file's folder."""
    entry = KnownSet(
        name="small",
        openml_id=7,
        version=2,
        task="classification",
        target="class",
        columns=("size", "fixed.acidity", "colour"),
        nominal=("colour",),
        n_rows=3,
        checksum=checksum_by_hand(),
    )
    monkeypatch.setitem(REGISTRY, "small", entry)
    monkeypatch.delenv("COMBUTAB_DATA", raising=False)
    (tmp_path / "small.csv").write_text(SMALL)
    return tmp_path


def checksum_by_hand():
    """Of SMALL, byte by byte: names and kinds, float64 values, texts."""
    nan = struct.pack("<d", float("nan"))
    content = json.dumps(["size", "numeric"]).encode() + struct.pack("<3d", 1, 2, 3)
    content += json.dumps(["fixed.acidity", "numeric"]).encode()
    content += struct.pack("<d", 0.5) + nan + struct.pack("<d", 0.25)
    content += json.dumps(["colour", "nominal"]).encode() + b'["3", "1", null]'
    content += json.dumps(["class", "nominal"]).encode() + b'["a", "b", "a"]'
    return hashlib.sha256(content).hexdigest()


# --- the eight sets -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLE_4)
def test_the_eight_sets(shared, name):
    data = load_openml(name, data_home=shared)  # a warning would be an error
    n_rows, n_numeric, n_nominal, n_classes = TABLE_4[name]
    assert data.X.shape == (n_rows, n_numeric + n_nominal)
    assert len(data.y) == n_rows
    assert len(data.categorical) == n_nominal
    assert data.task == ("classification" if n_classes else "regression")
    for column, dtype in data.X.dtypes.items():
        nominal = isinstance(dtype, pd.CategoricalDtype)
        assert nominal == (column in data.categorical)
        assert nominal or dtype in ("int64", "float64")
        if nominal:
            assert all(isinstance(value, str) for value in dtype.categories)
    if n_classes:
        assert len(data.y.cat.categories) == n_classes
    else:
        assert data.y.dtype == np.float64
    assert (data.name, data.source) == (name, "local file")
    by_id = load_openml(data.openml_id, data_home=shared)
    assert data.X.equals(by_id.X)


def test_list_openml_is_table_4():
    table = list_openml().set_index("name")
    assert list(table.index) == list(TABLE_4)
    for name, (n_rows, n_numeric, n_nominal, n_classes) in TABLE_4.items():
        row = table.loc[name]
        assert (row["n_rows"], row["n_numeric"], row["n_nominal"]) == (n_rows, n_numeric, n_nominal)
        assert (row["task"] == "classification") == bool(n_classes)
        assert len(row["nominal"].split(", ")) == max(1, n_nominal)
        assert len(row["checksum"]) == 64
    assert table["openml_id"].is_unique


# --- a registered set's file --------------------------------------------------------------------


def test_registered_file(small):
    data = load_openml("small", data_home=small)
    assert data.X.dtypes.astype(str).to_dict() == {
        "size": "int64",
        "fixed.acidity": "float64",
        "colour": "category",
    }
    assert data.X["colour"].tolist()[:2] == ["3", "1"]
    assert data.X.isna().to_numpy().sum() == 2
    assert data.X["colour"].cat.categories.tolist() == ["1", "3"]
    assert data.y.tolist() == ["a", "b", "a"]
    assert data.y.dtype == "category"
    assert repr(data) == (
        "Dataset(task='classification', categorical=('colour',), name='small', openml_id=7, "
        "source='local file')"
    )


def test_where_files_may_be(small, monkeypatch, tmp_path_factory):
    def load(key="small", **more):
        return load_openml(key, **more).y.tolist()

    other = tmp_path_factory.mktemp("other") / "openml"
    other.mkdir()
    with gzip.open(other / "small.csv.gz", "wt") as file:
        file.write(SMALL)
    assert load(data_home=other.parent) == load(data_home=str(other)) == ["a", "b", "a"]
    monkeypatch.setenv("COMBUTAB_DATA", str(small))
    assert load() == load(7) == load("7") == load(version=2) == ["a", "b", "a"]
    (small / "small.csv").write_text("broken")
    assert load(data_home=other.parent) == ["a", "b", "a"]
    with pytest.raises(TableError):
        load()


def test_other_forms_of_the_same_content_pass(small):
    for content in (
        SMALL.replace("\n", "\r\n"),
        "\ufeff" + SMALL.replace("fixed.acidity", "Fixed_Acidity").replace("class", "Class"),
        SMALL.replace("2,,", "2.0,NA,").replace("0.5", "5e-1"),
        "class,colour,size,fixed.acidity\na,3,1,0.5\nb,1,2,\na,,3,0.25\n",
    ):
        (small / "small.csv").write_text(content, newline="")
        data = load_openml("small", data_home=small)
        assert list(data.X) == ["size", "fixed.acidity", "colour"]
        assert data.X["fixed.acidity"].tolist()[::2] == [0.5, 0.25]
        assert data.y.name == "class"


@pytest.mark.parametrize(
    ("old", "new"),
    [("0.25", "0.26"), (",b", ",a"), ("1,b", "2,b"), ("2,,1,b\n3,0.25,,a", "3,0.25,,a\n2,,1,b")],
)
def test_other_content_is_a_warning(small, old, new):
    (small / "small.csv").write_text(SMALL.replace(old, new))
    with pytest.warns(UserWarning, match=r"small\.csv"):
        data = load_openml("small", data_home=small)
    assert len(data.X) == 3


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (SMALL.replace("size", "length"), "'size'"),
        (SMALL + "4,1,1,a\n", r"small\.csv is not small \(3 rows, 4 columns\): it has 4 rows"),
        ("class\na\nb\na\n", "'size'"),
        (SMALL.replace("0.5", "half"), "'fixed.acidity'"),
        (SMALL[: SMALL.index("a\n2")], "line 2 has 3 fields|has 1 rows"),
    ],
)
def test_another_table_is_an_error(small, content, says):
    (small / "small.csv").write_text(content)
    with pytest.raises(TableError, match=says):
        load_openml("small", data_home=small)


# --- files of other names -----------------------------------------------------------------------


def test_a_file_of_one_s_own(tmp_path):
    (tmp_path / "mine.csv").write_text(
        "code,when,flag,size,y\n03,2020-01-01,TRUE,1,0.1\n3,,FALSE,,2\nNA,2020-01-02,,2.5,3\n"
    )
    data = load_openml("mine", data_home=tmp_path)
    assert (data.task, data.openml_id, data.source) == ("regression", None, "local file")
    assert data.categorical == ("when", "flag")
    assert data.X["code"].tolist()[:2] == [3.0, 3.0]
    assert data.X["flag"].tolist()[:2] == ["TRUE", "FALSE"]
    assert data.y.tolist() == [0.1, 2.0, 3.0]
    (tmp_path / "12345678.csv").write_text("code,y\n03,no\nx,yes\nNA,no\n")
    data = load_openml(12345678, data_home=tmp_path)
    assert (data.task, data.categorical, data.name) == ("classification", ("code",), "12345678")
    assert data.X["code"].tolist() == ["03", "x", "NA"]
    assert data.y.cat.categories.tolist() == ["no", "yes"]


def test_one_column_is_no_data_set(tmp_path):
    (tmp_path / "mine.csv").write_text("y\n1\n2\n")
    with pytest.raises(TableError, match=r"mine\.csv"):
        load_openml("mine", data_home=tmp_path)


def test_numbers_are_rounded_as_python_rounds_them(tmp_path):
    texts = ["0.1234567890123456789", "9007199254740993.0", "1.7976931348623157e308", "5e-324"]
    texts += [repr(x) for x in np.random.default_rng(0).normal(size=2000).tolist()]
    (tmp_path / "mine.csv").write_text("x,y\n" + "".join(f"{text},1\n" for text in texts))
    X = load_openml("mine", data_home=tmp_path).X
    assert X["x"].tolist() == [float(text) for text in texts]


@pytest.mark.parametrize("bad", ["", 0, -3, True, 1.5, None])
def test_names_that_are_none(bad):
    with pytest.raises(ValueError, match="name_or_id must"):
        load_openml(bad)


def test_checksum_is_of_values_not_of_their_storage():
    X = pd.DataFrame({"a": [0.0, np.nan], "b": pd.Categorical(["x", None])})
    y = pd.Series([1.0, 2.0], name="y")
    same = pd.DataFrame({"a": [-0.0, -np.nan], "b": pd.Categorical(["x", None], ["z", "x"])})
    assert content_checksum(X, y) == content_checksum(same, y.astype("int64"))
    for other in (X[["b", "a"]], X.rename(columns={"a": "c"}), X.fillna({"a": 0.0}), X[::-1]):
        assert content_checksum(other, y) != content_checksum(X, y)
