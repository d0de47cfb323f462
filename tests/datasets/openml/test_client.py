"""load_openml through the openml package and its cache, whose server is stood in for."""

import os
import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from combutab.datasets import TableError, load_openml
from combutab.datasets._openml import REGISTRY
from tests.datasets.openml.fake_server import FakeServer, Table

SHARED = Path(__file__).parents[3].parent / "shared" / "data"
COLUMNS = {
    "size": "numeric",
    "colour": ["red", "blue", "dark green"],
    "flag": ["TRUE", "FALSE"],
    "note": "string",
    "kind": ["b", "a"],
}
ROWS = [
    ["1", "red", "TRUE", "hello there", "a"],
    ["2", None, "FALSE", "x", "b"],
    [None, "dark green", None, "y", "a"],
    ["4.5", "red", "TRUE", None, "b"],
]


def synthetic(openml_id=61, name="synthetic", **more):
    return Table(openml_id, name, COLUMNS, ROWS, **({"target": "kind"} | more))


@pytest.fixture(scope="module")
def openml(tmp_path_factory):
    """The package; its import makes folders, which belong in none of the user's."""
    pytest.importorskip("requests")
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("OPENML_CACHE_DIR", "XDG_CONFIG_HOME"):
            patch.setenv(variable, str(tmp_path_factory.mktemp("user")))
        yield pytest.importorskip("openml")


@pytest.fixture
def server(openml, monkeypatch, tmp_path):
    """OpenML with the one set, and an empty cache."""
    for variable in ("COMBUTAB_DATA", "OPENML_SKIP_PARQUET"):
        monkeypatch.delenv(variable, raising=False)
    before = openml.config.get_config_as_dict()
    openml.config.set_root_cache_directory(tmp_path / "cache")
    yield FakeServer(openml, monkeypatch, synthetic())
    openml.config.set_root_cache_directory(before["cachedir"])


@pytest.fixture
def cache(openml, server):
    return Path(openml.config.get_cache_directory())


def files_in(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def assert_same(one, other):
    pd.testing.assert_frame_equal(one.X, other.X)
    pd.testing.assert_series_equal(one.y, other.y)
    assert (one.task, one.categorical, one.name) == (other.task, other.categorical, other.name)


def assert_right(data):
    """Against the cells above, written out."""
    assert (data.task, data.categorical) == ("classification", ("colour", "flag"))
    assert (data.name, data.openml_id, data.source) == ("synthetic", 61, "OpenML")
    np.testing.assert_array_equal(data.X["size"], [1.0, 2.0, np.nan, 4.5])
    assert data.X["colour"].astype(object).fillna("none").tolist() == [
        "red",
        "none",
        "dark green",
        "red",
    ]
    assert data.X["colour"].cat.categories.tolist() == ["dark green", "red"]
    assert data.X["flag"].cat.categories.tolist() == ["FALSE", "TRUE"]
    assert data.X["flag"].isna().tolist() == [False, False, True, False]
    assert data.X["note"].fillna("none").tolist() == ["hello there", "x", "y", "none"]
    assert data.y.tolist() == ["a", "b", "a", "b"]
    assert data.y.cat.categories.tolist() == ["a", "b"]


# --- what is fetched, and what the cache saves --------------------------------------------------


def test_fetched_once(server, cache):
    data = load_openml(61)
    assert_right(data)
    assert server.requests == [61]
    for again in (load_openml(61), load_openml("61", offline=True)):
        assert_same(again, data)
    assert_same(load_openml("synthetic", version=1, offline=True), data)
    assert server.requests == [61]
    assert_same(load_openml("synthetic"), data)
    assert server.requests == [61, "synthetic"]  # the server alone knows which is the oldest


def test_a_cache_that_the_package_filled(openml, server):
    server.get_dataset(61, force_refresh_cache=False, download_data=True)
    assert_right(load_openml("synthetic", offline=True))
    assert server.requests == [61]


def test_parquet_and_arff_give_the_same(server, cache):
    one = load_openml("synthetic")
    server.tables[61].parquet = True
    (cache / "datasets" / "61").rename(cache / "elsewhere")
    assert_same(load_openml(61), one)
    files = files_in(cache / "datasets")
    assert "61/dataset_61.pq" in files
    assert "61/dataset.arff" not in files
    assert_same(load_openml("synthetic", offline=True), one)


def test_an_arff_file_in_place_of_parquet_needs_no_server(server, cache, monkeypatch):
    load_openml(61)
    server.tables[61].parquet = True  # as where the package could not get that file
    (cache / "datasets/61/description.xml").write_text(server.tables[61].as_description())
    server.fault = AssertionError("asked")
    for before in (None, "false"):
        if before is not None:
            monkeypatch.setenv("OPENML_SKIP_PARQUET", before)
        environment = dict(os.environ)
        assert_right(load_openml(61, offline=True))
        assert_right(load_openml(61))
        assert dict(os.environ) == environment


def test_names_have_versions(server):
    server.tables = {
        table.openml_id: table
        for table in (
            synthetic(70, version=4),
            synthetic(66, version=3, target="size"),
            synthetic(65, version=2, status="deactivated"),
            synthetic(67, name="other"),
        )
    }
    assert load_openml("synthetic", version=4).openml_id == 70
    assert load_openml("synthetic").openml_id == 66
    assert load_openml("synthetic", version=2).openml_id == 65
    n_requests = len(server.requests)
    assert load_openml("synthetic", offline=True).task == "regression"
    assert load_openml("synthetic", version=3, offline=True).openml_id == 66
    assert load_openml("synthetic", version=2, offline=True).openml_id == 65
    with pytest.raises(ValueError, match=r"synthetic \(OpenML 70, version 4\) is not version 3"):
        load_openml(70, version=3)
    assert len(server.requests) == n_requests


def test_targets_of_numbers_are_floats(server):
    server.tables[61] = Table(61, "n", {"a": "numeric", "b": "numeric"}, [["1", "2"], ["3", "4"]])
    server.tables[61].target = "b"
    data = load_openml(61)
    assert (data.task, data.y.dtype, data.X["a"].dtype) == ("regression", "float64", "int64")


def test_unused_columns_are_dropped(server):
    server.tables[61].more = (
        "<oml:row_id_attribute>size</oml:row_id_attribute>"
        "<oml:ignore_attribute>note,flag</oml:ignore_attribute>"
    )
    assert list(load_openml(61).X) == ["colour"]


@pytest.mark.parametrize("name", ["autoMpg", "breast-w", "boston", "wdbc"])
@pytest.mark.parametrize("parquet", [False, True])
def test_the_same_from_a_local_file_and_from_openml(server, name, parquet):
    if not (SHARED / "openml").is_dir():
        pytest.skip("the eight data sets are not in shared/data/openml beside the checkout")
    (path,) = (SHARED / "openml").glob(f"{name}.csv*")
    cells = pd.read_csv(path, dtype=str)
    entry = REGISTRY[name]
    nominal = {*entry.nominal} | ({entry.target} if entry.task == "classification" else set())
    columns = {c: sorted(set(cells[c]), reverse=True) if c in nominal else "numeric" for c in cells}
    rows = cells.astype(object).where(cells.notna(), None).to_numpy().tolist()
    server.tables[entry.openml_id] = Table(
        entry.openml_id, name, columns, rows, target=entry.target, parquet=parquet
    )
    fetched = load_openml(name)  # without a warning: the checksum is the known one
    assert server.requests == [entry.openml_id]
    assert_same(fetched, load_openml(name, data_home=SHARED))
    assert (fetched.source, fetched.openml_id) == ("OpenML", entry.openml_id)


# --- faults -------------------------------------------------------------------------------------


def connection_error():
    """As requests has it: around urllib3's, around the socket's."""
    import requests
    import urllib3

    refused = OSError("[Errno 111] Connection refused")
    return requests.ConnectionError(urllib3.exceptions.MaxRetryError(None, "url", refused))


def hash_error():
    import openml

    return openml.exceptions.OpenMLHashException("Checksum of downloaded file is unequal")


def server_error():
    import openml

    return openml.exceptions.OpenMLServerException("Database connection error", 107, "url")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (connection_error, r"\[Errno 111\] Connection refused"),
        (hash_error, "Checksum of downloaded file is unequal"),
        (server_error, "url returned code 107: Database connection error"),
        (lambda: PermissionError(13, "Permission denied"), r"\[Errno 13\] Permission denied"),
    ],
)
@pytest.mark.parametrize(("key", "label"), [(61, "61"), ("synthetic", "synthetic")])
def test_an_error_names_the_set_and_the_ways_out(server, cache, fault, says, key, label):
    server.fault = fault()
    with pytest.raises(OSError, match=says) as caught:
        load_openml(key)
    message = str(caught.value)
    assert message.startswith(f"cannot fetch {label} from OpenML into its cache {cache}: ")
    assert message.endswith(
        "; connect to the network and try again (with offline=True if the cache has it), set "
        "OPENML_CACHE_DIR to a folder that can be written to, or pass data_home=FOLDER (or set "
        f"COMBUTAB_DATA) where FOLDER holds {label}.csv or {label}.csv.gz"
    )
    assert caught.value.__cause__ is server.fault
    server.fault = None
    assert_right(load_openml(key))


@pytest.mark.parametrize("key", [61, "synthetic"])
def test_no_server_at_all(openml, server, monkeypatch, key):
    monkeypatch.undo()  # the package's own functions
    monkeypatch.setattr(openml.config, "server", "http://127.0.0.1:9/api/v1/xml")
    monkeypatch.setattr(openml.config, "connection_n_retries", 1)
    with pytest.raises(OSError, match=r"cannot fetch .* refused.*connect to the network"):
        load_openml(key)


@pytest.mark.parametrize(
    ("key", "version", "says"),
    [
        (99, None, "OpenML gives no data set 99: .*Unknown dataset; list_openml"),
        ("unknown", None, "OpenML gives no data set unknown: there is no active version of"),
        ("synthetic", 7, "OpenML gives no data set synthetic: there is no version 7 of"),
    ],
)
def test_what_openml_does_not_have(server, key, version, says):
    with pytest.raises(ValueError, match=says):
        load_openml(key, version=version)
    assert len(server.requests) == 1


def test_a_set_of_others(openml, server):
    server.fault = openml.exceptions.OpenMLPrivateDatasetError("No access granted")
    with pytest.raises(ValueError, match="OpenML gives no data set 61: No access granted"):
        load_openml(61)


# --- offline, and without the package -----------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "name"), [(61, "61"), ("synthetic", "synthetic"), (15, "breast-w")]
)
def test_offline_the_error_names_the_cache_and_both_ways_out(server, cache, key, name):
    with pytest.raises(OSError) as caught:
        load_openml(key, offline=True)
    assert str(caught.value) == (
        f"{name} is not in OpenML's cache {cache}, and offline=True: connect to the network and "
        "load it once with offline=False, or pass data_home=FOLDER (or set COMBUTAB_DATA) where "
        f"FOLDER holds {name}.csv or {name}.csv.gz"
    )
    assert server.requests == []


def test_files_that_are_not_looked_at(server, tmp_path):
    (tmp_path / "mine.csv").write_text("x,y\n1,2\n3,4\n")
    (tmp_path / "folder").mkdir()
    assert load_openml("mine", data_home=tmp_path, offline=True).y.tolist() == [2.0, 4.0]
    for key, more in (
        ("mine", {"data_home": tmp_path, "version": 1}),  # a file has no version
        ("../mine", {"data_home": tmp_path / "folder"}),  # a name is no path
        ("mine", {"data_home": tmp_path / "folder"}),
        ("mine", {}),
    ):
        with pytest.raises(OSError, match="not in OpenML's cache"):
            load_openml(key, offline=True, **more)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "openml", None)
    with pytest.raises(ImportError, match=r"pip install 'combutab\[openml\]'; or pass data_home"):
        load_openml("diabetes")


@pytest.mark.parametrize("file", ["dataset.arff", "description.xml", "features.xml"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_cache_is_fetched_again(server, cache, file, damage):
    load_openml(61)
    folder = cache / "datasets" / "61"
    for pickled in folder.glob("*.pkl*"):  # which the package would read instead
        pickled.unlink()
    whole = (folder / file).read_bytes()
    (folder / file).unlink()
    if damage == "cut":
        (folder / file).write_bytes(whole[:60])
    server.fault = AssertionError("asked")
    with pytest.raises(OSError, match=r"not in OpenML's cache .*, and offline"):
        load_openml(61, offline=True)
    server.fault = None
    assert_right(load_openml(61))
    assert (folder / file).read_bytes() == whole


@pytest.mark.parametrize("content", [b"", b"half of one", pickle.dumps((1, 2, 3))[:-3]])
def test_a_damaged_pickle_of_the_package(server, cache, content):
    load_openml(61)
    (cache / "datasets/61/dataset.pkl.py3").write_bytes(content)
    assert_right(load_openml(61))


def test_a_cache_that_cannot_be_written(openml, server, monkeypatch, tmp_path):
    monkeypatch.undo()
    (tmp_path / "file").write_text("")
    openml.config.set_root_cache_directory(tmp_path / "file")
    with pytest.raises(OSError, match=r"Cannot create cache directory.*set OPENML_CACHE_DIR to"):
        load_openml(61)


# --- sets that are not what is asked for --------------------------------------------------------


def small_breast_w(**more):
    entry = REGISTRY["breast-w"]
    columns = dict.fromkeys(entry.columns, "numeric") | {"Class": ["benign", "malignant"]}
    rows = [[str(i % 10)] * 9 + ["benign"] for i in range(699)]
    return Table(15, "breast-w", columns, rows, target="Class", **more)


def test_a_registered_set_of_other_content_is_a_warning(server):
    server.tables[15] = small_breast_w()
    with pytest.warns(UserWarning, match="breast-w from OpenML has other values"):
        assert len(load_openml("breast-w").X) == 699


def test_a_registered_set_of_other_rows_or_columns_is_an_error(server):
    server.tables[15] = table = small_breast_w()
    table.rows.pop()
    table.columns = {name.replace("Mitoses", "M"): kind for name, kind in table.columns.items()}
    with pytest.raises(TableError) as caught:
        load_openml("breast-w")
    assert str(caught.value) == (
        "breast-w (OpenML 15, version 1) is not breast-w (699 rows, 10 columns): it lacks the "
        "columns 'Mitoses' and has besides 'M' and has 698 rows; pass data_home=FOLDER (or set "
        "COMBUTAB_DATA) where FOLDER holds breast-w.csv or breast-w.csv.gz"
    )


@pytest.mark.parametrize("target", [None, "size,kind", "elsewhere"])
def test_a_set_without_one_target(server, target):
    server.tables[61].target = target
    with pytest.raises(
        ValueError, match=rf"names no column as its target, but '?{target}'?; .*CSV"
    ):
        load_openml(61)


def test_a_sparse_set(server):
    server.tables[
        61
    ].arff = b"@RELATION s\n@ATTRIBUTE a numeric\n@ATTRIBUTE kind numeric\n@DATA\n{0 1}\n{1 2}\n"
    server.tables[61].format = "Sparse_ARFF"
    with pytest.raises(ValueError, match=r"is sparse.*fetch_openml\(data_id=61\)"):
        load_openml(61)


# --- the process around it ----------------------------------------------------------------------


def test_threads_take_turns(server):
    results = []
    threads = [threading.Thread(target=lambda: results.append(load_openml(61))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert server.requests == [61]  # the other three found it in the cache
    for data in results:
        assert_right(data)
