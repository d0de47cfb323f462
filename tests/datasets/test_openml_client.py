"""load_openml through scikit-learn's fetch_openml, which is stood in for."""

import urllib.error
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
from sklearn.utils import Bunch

from combutab.datasets import TableError, load_openml
from combutab.datasets._openml import REGISTRY

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
FRAME = pd.DataFrame(
    {
        "size": [1.0, 2.0, np.nan, 4.5],
        "colour": pd.Categorical(["red", None, "dark green", "red"], ["red", "blue", "dark green"]),
        "flag": pd.Categorical(["TRUE", "FALSE", None, "TRUE"], ["TRUE", "FALSE"]),
        "note": pd.Series(["hello, there", "x", "y", None], dtype=object),
        "kind": pd.Categorical(["a", "b", "a", "b"], ["b", "a"]),
    }
)


class Fetched:
    """In place of fetch_openml: gives one table, and keeps what it was asked for."""

    def __init__(self):
        self.frame, self.fault, self.asked = FRAME, None, []
        self.details = {"id": "61", "name": "synthetic", "version": "1"}
        self.details["default_target_attribute"] = "kind"

    def hold(self, openml_id, name, frame, target):
        self.frame = frame
        self.details |= {"id": str(openml_id), "name": name, "default_target_attribute": target}

    def __call__(self, *, target_column, as_frame, parser, **which):
        assert (target_column, as_frame, parser) == (None, True, "liac-arff")
        self.asked.append(which)
        if self.fault is not None:
            raise self.fault
        return Bunch(frame=self.frame, details=self.details)


@pytest.fixture
def openml(monkeypatch):
    monkeypatch.delenv("COMBUTAB_DATA", raising=False)
    fetched = Fetched()
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetched)
    return fetched


@pytest.mark.parametrize(
    ("key", "asked"),
    [
        (61, {"data_id": 61}),
        ("61", {"data_id": 61}),
        ("synthetic", {"name": "synthetic", "version": "active"}),
        ("../x y", {"name": "..%2Fx%20y", "version": "active"}),
    ],
)
def test_a_set_is_fetched(openml, key, asked):
    data = load_openml(key)
    assert openml.asked == [asked]
    assert (data.task, data.categorical) == ("classification", ("colour", "flag"))
    assert (data.name, data.openml_id, data.source) == ("synthetic", 61, "OpenML")
    np.testing.assert_array_equal(data.X["size"], [1.0, 2.0, np.nan, 4.5])
    colours = data.X["colour"].astype(object).fillna("none").tolist()
    assert colours == ["red", "none", "dark green", "red"]
    assert data.X["colour"].cat.categories.tolist() == ["dark green", "red"]
    assert data.X["flag"].cat.categories.tolist() == ["FALSE", "TRUE"]
    assert data.X["note"].fillna("none").tolist() == ["hello, there", "x", "y", "none"]
    assert data.y.tolist() == ["a", "b", "a", "b"]
    assert data.y.cat.categories.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([1, 2, 3, 4], dtype="uint8"), "int64"),
        ([1.0, -2.0, 3.0, 0.0], "int64"),
        (pd.array([1, None, 3, 4], dtype="Int64"), "float64"),
        ([1.0, None, 3.0, 4.0], "float64"),
        ([1.5, 2.0, 3.0, 4.0], "float64"),
        ([1.0, np.inf, 3.0, 4.0], "float64"),
        ([2.0**60, 1.0, 3.0, 4.0], "float64"),
    ],
)
def test_numeric_columns_are_int64_or_float64(openml, values, dtype):
    openml.frame = FRAME.assign(size=values)
    column = load_openml(61).X["size"]
    assert column.dtype == dtype
    expected = [np.nan if pd.isna(value) else float(value) for value in values]
    np.testing.assert_array_equal(column.astype(float), expected)


@pytest.mark.parametrize(
    "values",
    [
        pd.Categorical(["3", None, "10", "3"], ["7", "3", "10"], ordered=True),
        pd.Categorical([3.0, None, 10.0, 3.0], [10.0, 3.0]),
        pd.Categorical([3, None, 10, 3]),
    ],
)
def test_nominal_columns_have_sorted_text_categories(openml, values):
    openml.frame = FRAME.assign(colour=values)
    expected = pd.Series(pd.Categorical(["3", None, "10", "3"], ["10", "3"]), name="colour")
    pd.testing.assert_series_equal(load_openml(61).X["colour"], expected)


def test_names_have_versions(openml):
    openml.details |= {"version": "3", "default_target_attribute": "size"}
    data = load_openml("synthetic", version=3)
    assert openml.asked == [{"name": "synthetic", "version": 3}]
    assert (data.task, data.y.dtype) == ("regression", "float64")
    with pytest.raises(ValueError, match=r"61.*3.*2"):
        load_openml(61, version=2)


@pytest.mark.parametrize("name", ["autoMpg", "breast-w", "boston", "wdbc"])
def test_local_files_equal_openml_downloads(openml, name):
    if not (SHARED / "openml").is_dir():
        pytest.skip("the eight data sets are not in shared/data/openml beside the checkout")
    (path,) = (SHARED / "openml").glob(f"{name}.csv*")
    cells = pd.read_csv(path, dtype=str)
    entry = REGISTRY[name]
    nominal = {*entry.nominal} | ({entry.target} if entry.task == "classification" else set())
    columns = {
        column: pd.Categorical(values, sorted(values.dropna().unique(), reverse=True))
        if column in nominal
        else values.astype(float)
        for column, values in cells.items()
    }
    openml.hold(entry.openml_id, name, pd.DataFrame(columns), entry.target)
    fetched = load_openml(name)  # without a warning: the checksum is the known one
    local = load_openml(name, data_home=SHARED)
    pd.testing.assert_frame_equal(fetched.X, local.X)
    pd.testing.assert_series_equal(fetched.y, local.y)
    assert (fetched.source, fetched.openml_id) == ("OpenML", entry.openml_id)
    assert (fetched.task, fetched.categorical) == (local.task, local.categorical)


# ---- Faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "label"), [(61, "61"), ("synthetic", "synthetic")])
@pytest.mark.parametrize(
    "fault", [urllib.error.URLError("Connection refused"), PermissionError(13, "Permission denied")]
)
def test_failed_fetch_names_the_ways_out(openml, key, label, fault):
    openml.fault = fault
    with pytest.raises(OSError, match=r"Connection refused|Permission denied") as caught:
        load_openml(key)
    message = str(caught.value)
    assert message.startswith(f"cannot fetch {label} from OpenML into scikit-learn's cache: ")
    assert message.endswith(
        "; connect to the network and try again, set SCIKIT_LEARN_DATA to a folder that can be "
        "written to, or pass data_home=FOLDER (or set COMBUTAB_DATA) where FOLDER contains "
        f"{label}.csv or {label}.csv.gz"
    )


def test_files_that_are_not_looked_at(openml, tmp_path):
    (tmp_path / "mine.csv").write_text("x,y\n1,2\n3,4\n")
    (tmp_path / "folder").mkdir()
    assert load_openml("mine", data_home=tmp_path).y.tolist() == [2.0, 4.0]
    assert openml.asked == []
    openml.fault = ValueError("No active dataset mine found.")
    for key, more in (
        ("mine", {"data_home": tmp_path, "version": 1}),  # a file has no version
        ("../mine", {"data_home": tmp_path / "folder"}),  # a name is no path
        ("mine", {"data_home": tmp_path / "folder"}),
        ("mine", {}),
    ):
        with pytest.raises(ValueError, match=f"cannot load {key} from OpenML: No active data"):
            load_openml(key, **more)


# ---- Sets that are not what is asked for ---------------------------------------------------------


@pytest.fixture
def breast_w(openml):
    """Another table of that name."""
    columns = dict.fromkeys(REGISTRY["breast-w"].columns, np.arange(699.0) % 10)
    frame = pd.DataFrame(columns | {"Class": pd.Categorical(["benign"] * 699)})
    openml.hold(15, "breast-w", frame, "Class")
    return openml


def test_registered_set_of_other_content_warns(breast_w):
    with pytest.warns(UserWarning, match="breast-w"):
        assert len(load_openml("breast-w").X) == 699


def test_registered_set_of_another_shape_raises(breast_w):
    breast_w.frame = breast_w.frame[1:].rename(columns={"Mitoses": "M"})
    with pytest.raises(TableError) as caught:
        load_openml("breast-w")
    assert str(caught.value) == (
        "breast-w (OpenML 15, version 1) is not breast-w (699 rows, 10 columns): it lacks the "
        "columns 'Mitoses' and also has 'M' and has 698 rows; pass data_home=FOLDER (or set "
        "COMBUTAB_DATA) where FOLDER contains breast-w.csv or breast-w.csv.gz"
    )


@pytest.mark.parametrize("target", [None, "size,kind", "elsewhere"])
def test_a_set_without_one_target(openml, target):
    openml.details["default_target_attribute"] = target
    with pytest.raises(
        ValueError, match=rf"target of .* is '?{target}'?, which is not one of its columns .*CSV"
    ):
        load_openml(61)
