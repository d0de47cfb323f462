"""load_openml through the real openml client, against a real server with faults."""

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from combutab.datasets import TableError, load_openml
from combutab.datasets.openml import _client as _openml_client
from combutab.datasets.openml import _transport as _openml_transport
from combutab.datasets.openml._registry import REGISTRY
from tests.datasets.openml.openml_server import OpenMLServer, Table

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


def made(openml_id=61, name="made", **more):
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
    """A server with the made set, as the package's server, and an empty cache."""
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "COMBUTAB_DATA"):
        monkeypatch.delenv(variable, raising=False)
    running = OpenMLServer(made())
    before = openml.config.get_config_as_dict()
    monkeypatch.setattr(openml.config, "server", running.api)
    openml.config.set_root_cache_directory(tmp_path / "cache")
    yield running
    openml.config.set_root_cache_directory(before["cachedir"])
    running.close()


@pytest.fixture
def cache(openml, server):
    return Path(openml.config.get_cache_directory())


@pytest.fixture(autouse=True)
def sleeps(monkeypatch):
    """The seconds of back-off, which are not slept."""
    slept = []
    monkeypatch.setattr(_openml_client, "_sleep", slept.append)
    return slept


def files_in(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def assert_same(one, other):
    pd.testing.assert_frame_equal(one.X, other.X)
    pd.testing.assert_series_equal(one.y, other.y)
    assert (one.task, one.categorical, one.name) == (other.task, other.categorical, other.name)


def assert_made(data):
    """Against the cells above, written out."""
    assert (data.task, data.categorical) == ("classification", ("colour", "flag"))
    assert (data.name, data.openml_id, data.source) == ("made", 61, "OpenML")
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


def test_fetched_once(server, cache, sleeps):
    data = load_openml(61)
    assert_made(data)
    assert server.requests == [
        "GET /api/v1/xml/data/61",
        "GET /api/v1/xml/data/features/61",
        "GET /data/v1/download/61/made.arff",
        "GET /api/v1/xml/data/qualities/61",
    ]
    assert files_in(cache / "datasets") == [
        "61/dataset.arff",
        "61/description.xml",
        "61/features.xml",
        "61/qualities.xml",
    ]
    for again in (load_openml(61), load_openml("made", version=1), load_openml("61", offline=True)):
        assert_same(again, data)
    assert len(server.requests) == 4
    assert sleeps == []
    assert sorted(path.name for path in cache.iterdir()) == ["combutab_names", "datasets"]


def test_parquet_and_arff_give_the_same(server, cache):
    one = load_openml("made")
    server.tables[61].parquet = True
    (cache / "datasets" / "61").rename(cache / "elsewhere")
    server.requests.clear()
    assert_same(load_openml(61), one)
    assert "GET /bucket/61/dataset_61.pq" in server.requests
    assert not [path for path in server.requests if "arff" in path]
    assert "61/dataset_61.pq" in files_in(cache / "datasets")
    server.close()
    assert_same(load_openml("made"), one)


def test_names_have_versions(server, sleeps):
    server.tables = {
        table.openml_id: table
        for table in (
            made(70, version=4),
            made(66, version=3, target="size"),
            made(65, version=2, status="deactivated"),
            made(67, name="other"),
        )
    }
    assert load_openml("made").openml_id == 66
    assert load_openml("made", version=4).openml_id == 70
    assert load_openml("made", version=2).openml_id == 65
    n_requests = len(server.requests)
    # From the cache, where each name stands for what it stood for on the server.
    assert load_openml("made").task == "regression"
    assert load_openml("made", version=3).openml_id == 66
    assert load_openml("made", version=2).openml_id == 65
    with pytest.raises(ValueError, match=r"made \(OpenML 70, version 4\) is not version 3"):
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


def test_sets_without_qualities(server, cache):
    server.tables[61].qualities = None
    assert_made(load_openml(61))
    assert "61/qualities.xml" not in files_in(cache / "datasets")
    assert_made(load_openml(61, offline=True))


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
    assert server.requests[0] == f"GET /api/v1/xml/data/{entry.openml_id}"
    assert_same(fetched, load_openml(name, data_home=SHARED))
    assert (fetched.source, fetched.openml_id) == ("OpenML", entry.openml_id)


# --- faults that pass ---------------------------------------------------------------------------

BUSY = (
    b'<oml:error xmlns:oml="http://openml.org/openml"><oml:code>107</oml:code>'
    b"<oml:message>Database connection error</oml:message></oml:error>"
)


@pytest.mark.parametrize("route", ["/data/list/", "/xml/data/61", "/data/features/", "/download/"])
@pytest.mark.parametrize("fault", [500, 503, 429, "drop", "cut", (412, BUSY), (500, BUSY)])
def test_a_fault_that_passes(server, cache, sleeps, route, fault):
    server.faults[route] = [fault]
    assert_made(load_openml("made"))
    assert sleeps == [1.0]
    assert files_in(cache / "datasets")[0] == "61/dataset.arff"
    assert sorted(path.name for path in cache.iterdir()) == ["combutab_names", "datasets"]


@pytest.mark.parametrize(
    ("route", "fault"),
    [
        ("/data/list/", "short"),
        ("/xml/data/61", "short"),
        ("/xml/data/61", "garble"),
        ("/data/features/", "short"),
        ("/download/", "short"),
        ("/download/", "garble"),
    ],
)
def test_an_answer_that_is_not_whole(server, sleeps, route, fault):
    server.faults[route] = [fault, fault]
    assert_made(load_openml("made"))
    assert sleeps == [1.0, 2.0]


@pytest.mark.parametrize("fault", [404, 500, "drop", "cut", "short", "garble"])
def test_without_parquet_there_is_the_arff_file(server, cache, sleeps, fault):
    server.tables[61].parquet = True
    server.faults[".pq"] = fault
    assert_made(load_openml(61))
    assert sum(".pq" in path for path in server.requests) <= 2  # asked for once: HEAD and GET
    assert sleeps == ([1.0] if fault in ("short", "garble") else [])  # known once it is read
    assert files_in(cache / "datasets") == [
        "61/dataset.arff",
        "61/description.xml",
        "61/features.xml",
        "61/qualities.xml",
    ]
    server.close()
    assert_made(load_openml(61))


# --- faults that stay ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "fault", "says"),
    [
        ("/xml/data/61", 500, "server answered 500"),
        ("/data/features/", "drop", "Remote end closed connection without response"),
        ("/download/", "cut", "IncompleteRead"),
        ("/download/", "short", "Checksum of downloaded file is unequal"),
        ("/download/", "garble", "Checksum of downloaded file is unequal"),
        ("/xml/data/61", (412, BUSY), "Database connection error"),
    ],
)
def test_a_fault_that_stays_leaves_nothing(server, cache, sleeps, route, fault, says):
    server.faults[route] = fault
    with pytest.raises(OSError, match=says) as caught:
        load_openml(61)
    message = str(caught.value)
    assert message.startswith(f"cannot fetch 61 from OpenML, and it is not in its cache {cache}: ")
    assert message.endswith(
        "; connect to the network and try again, or pass data_home=FOLDER (or set COMBUTAB_DATA) "
        "where FOLDER holds 61.csv or 61.csv.gz"
    )
    assert sleeps == [1.0, 2.0, 4.0]
    assert files_in(cache) == []
    assert [path.name for path in cache.iterdir()] == ["datasets"]
    server.faults.clear()
    assert_made(load_openml(61))


def test_rows_that_are_missing_without_a_checksum(server, cache):
    server.tables[61].qualities = {"NumberOfInstances": 5.0}
    with pytest.raises(OSError, match="it has 4 rows, and 5 by its description"):
        load_openml(61)
    assert files_in(cache) == []


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (99, "OpenML gives no data set 99: .*Unknown dataset"),
        ("unknown", "OpenML gives no data set unknown: No active datasets exist with name"),
    ],
)
def test_what_openml_does_not_have_is_asked_for_once(server, sleeps, key, says):
    with pytest.raises(ValueError, match=says):
        load_openml(key)
    assert len(server.requests) == 1
    assert sleeps == []


@pytest.mark.parametrize("route", ["/xml/data/61", "/data/features/", "/download/"])
def test_404_is_not_tried_again(server, cache, sleeps, route):
    server.faults[route] = 404
    with pytest.raises(ValueError, match=r"OpenML gives no data set 61: .*404"):
        load_openml(61)
    assert sleeps == []
    assert files_in(cache) == []


def test_a_silent_server(server, monkeypatch, sleeps):
    monkeypatch.setattr(_openml_transport, "READ_SECONDS", 0.1)
    server.faults["/download/"] = "silent"
    with pytest.raises(OSError, match=r"Read timed out\. \(read timeout=0\.1\)"):
        load_openml(61)
    assert sleeps == [1.0, 2.0, 4.0]
    server.faults["/download/"] = ["silent"]
    assert_made(load_openml(61))


def test_a_server_that_never_ends(server, cache, monkeypatch, sleeps):
    monkeypatch.setattr(_openml_client, "TIME_LIMIT", 0.4)
    server.faults["/download/"] = "trickle"  # 300 bytes, each in time
    with pytest.raises(OSError, match=r"not done in 0\.4 seconds"):
        load_openml(61)
    assert sleeps == []
    assert files_in(cache) == []


def test_no_server_at_all(server, cache, sleeps):
    server.close()
    with pytest.raises(OSError, match=r"Connection refused.*connect to the network"):
        load_openml(61)
    assert sleeps == [1.0, 2.0, 4.0]
    assert files_in(cache) == []


# --- offline, and without the package -----------------------------------------------------------


@pytest.mark.parametrize(("key", "name"), [(61, "61"), ("made", "made"), (15, "breast-w")])
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
    path = cache / "datasets" / "61" / file
    whole = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(whole[: whole.rindex(b"\n", 0, -20) if file.endswith("arff") else 60])
    with pytest.raises(OSError, match=r"not in OpenML's cache .* as a whole \(.+\), and offline"):
        load_openml(61, offline=True)
    assert_made(load_openml(61))
    assert path.read_bytes() == whole


@pytest.mark.parametrize("parquet", [False, True])
def test_the_package_s_pickles_are_left_alone(server, cache, parquet):
    server.tables[61].parquet = parquet
    load_openml(61)
    pickle = cache / "datasets" / "61" / ("dataset_61" if parquet else "dataset")
    pickle = pickle.with_suffix(".pkl.py3")
    pickle.write_bytes(b"half of one")
    assert_made(load_openml(61, offline=True))
    assert pickle.read_bytes() == b"half of one"


def test_a_cache_that_cannot_be_written(openml, server, tmp_path):
    (tmp_path / "file").write_text("")
    openml.config.set_root_cache_directory(tmp_path / "file")
    with pytest.raises(OSError, match=r"cannot keep a download in .*; set OPENML_CACHE_DIR to"):
        load_openml(61)
    assert server.requests == []


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


def test_a_registered_set_of_other_rows_or_columns_is_an_error(server, cache):
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
    assert files_in(cache) == []


@pytest.mark.parametrize("target", [None, "size,kind", "elsewhere"])
def test_a_set_without_one_target(server, cache, target):
    server.tables[61].target = target
    with pytest.raises(
        ValueError, match=rf"names no column as its target, but '?{target}'?; .*CSV"
    ):
        load_openml(61)
    assert files_in(cache) == []


def test_a_sparse_set(server):
    server.tables[
        61
    ].arff = b"@RELATION s\n@ATTRIBUTE a numeric\n@ATTRIBUTE kind numeric\n@DATA\n{0 1}\n{1 2}\n"
    server.tables[61].qualities = None
    server.tables[61].format = "Sparse_ARFF"
    with pytest.raises(ValueError, match=r"is sparse.*fetch_openml\(data_id=61\)"):
        load_openml(61)


# --- the process around it ----------------------------------------------------------------------


@pytest.mark.parametrize("fault", [None, 404, 500])
def test_nothing_global_is_left_changed(openml, server, fault):
    import urllib3

    logger, handlers = logging.getLogger("openml"), logging.root.handlers[:]
    urlopen, environment = urllib3.HTTPConnectionPool.urlopen, dict(os.environ)
    before = openml.config.get_config_as_dict()
    openml.config.set_retry_policy("robot", 7)
    logger.setLevel(logging.ERROR)
    config = openml.config.get_config_as_dict()
    logging.root.handlers.clear()  # without any, the package would install one
    try:
        server.faults["/download/"] = fault or []
        if fault is None:
            load_openml(61)
        else:
            with pytest.raises((OSError, ValueError)):
                load_openml(61)
        assert logging.root.handlers == []
        assert logger.level == logging.ERROR
        assert openml.config.get_config_as_dict() == config
    finally:
        logging.root.handlers[:] = handlers
        logger.setLevel(logging.NOTSET)
        openml.config.set_retry_policy(before["retry_policy"], before["connection_n_retries"])
    assert urllib3.HTTPConnectionPool.urlopen is urlopen
    assert dict(os.environ) == environment


def test_requests_of_other_threads_go_their_way(server):
    import urllib3

    answers = []

    def ask():
        with urllib3.PoolManager() as pool:
            answers.append(pool.request("GET", f"{server.api}/data/99").status)

    thread = threading.Thread(target=ask)
    with _openml_transport.Transport("", closed=True).installed():
        thread.start()
        thread.join()
        with pytest.raises(urllib3.exceptions.MaxRetryError, match="not asked for"):
            urllib3.PoolManager().request("GET", server.api)
    assert answers == [412]


def test_threads_take_turns(server):
    results = []
    threads = [threading.Thread(target=lambda: results.append(load_openml(61))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len(server.requests) == 4  # the other three found it in the cache
    for data in results:
        assert_made(data)


def test_the_bar_is_for_terminals(server, monkeypatch, capsys):
    load_openml(61)
    assert capsys.readouterr().err == ""
    server.tables[62] = made(62)
    monkeypatch.setenv("FORCE_COLOR", "1")  # has rich take a pipe for a terminal
    load_openml(62)
    captured = capsys.readouterr()
    assert "OpenML 62" in captured.err
    assert captured.out == ""


def start(server, folder):
    """A process that loads a set, its package configured in a file: nobody imports it before."""
    (folder / "openml").mkdir(exist_ok=True)
    (folder / "openml" / "config").write_text(f"server = {server.api}\n")
    lines = (
        "import sys",
        "from combutab.datasets import load_openml",
        "assert not {'openml', 'requests', 'minio', 'urllib3'} & set(sys.modules)",
        "print(load_openml('made').y.tolist())",
    )
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", "\n".join(lines)],
        env=os.environ | {"OPENML_CACHE_DIR": f"{folder}/cache", "XDG_CONFIG_HOME": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_killed_and_concurrent_processes(server, cache, tmp_path):
    server.tables[62] = made(62)
    server.faults["/download/"] = ["wait", "wait"]
    killed, slow = (start(server, tmp_path) for _ in "ab")
    deadline = time.monotonic() + 120
    while sum("download" in path for path in server.requests) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.kill()
    assert killed.communicate()[0] == ""
    assert files_in(cache / "datasets") == []
    assert_made(load_openml("made"))
    server.release.set()  # the slow one finds the set in the cache when it comes to put its own
    assert slow.communicate()[0] == "['a', 'b', 'a', 'b']\n"
    assert_made(load_openml("made", offline=True))
    (left,) = cache.glob(".combutab-*")
    os.utime(left, (0, 0))  # once it is older than any download can be, the next removes it
    load_openml(62)
    assert sorted(path.name for path in cache.iterdir()) == ["combutab_names", "datasets"]
    assert sorted(path.name for path in (cache / "datasets").iterdir()) == ["61", "62"]
