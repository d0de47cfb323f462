"""load_openml through scikit-learn's fetch_openml and its cache, whose server is stood in for."""

import gzip
import hashlib
import io
import json
import urllib.error
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pandas as pd
import pytest

from combutab.datasets import TableError, load_openml
from combutab.datasets._openml import REGISTRY

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
COLUMNS = {
    "size": "numeric",
    "colour": ["red", "blue", "dark green"],
    "flag": ["TRUE", "FALSE"],
    "note": "string",
    "kind": ["b", "a"],
}
ROWS = [
    ["1", "red", "TRUE", "hello, there", "a"],
    ["2", None, "FALSE", "x", "b"],
    [None, "dark green", None, "y", "a"],
    ["4.5", "red", "TRUE", None, "b"],
]


@dataclass
class Table:
    """A data set of OpenML.

    ``columns`` has the kind of each: ``"numeric"``, ``"string"``, or the list of its nominal
    values. Cells are text, None for missing.
    """

    openml_id: int
    name: str
    columns: dict
    rows: list
    target: str | None = None
    unused: tuple = ()
    version: int = 1
    status: str = "active"
    format: str = "ARFF"

    def as_arff(self):
        lines = [f"@RELATION {self.name}"]
        for name, kind in self.columns.items():
            kind = "{" + ",".join(map(_quoted, kind)) + "}" if isinstance(kind, list) else kind
            lines.append(f"@ATTRIBUTE {_quoted(name)} {kind}")
        lines += ["@DATA", *(",".join(map(_quoted, row)) for row in self.rows)]
        return "\n".join(lines).encode() + b"\n"

    def as_description(self):
        target = {} if self.target is None else {"default_target_attribute": self.target}
        return target | {
            "id": str(self.openml_id),
            "name": self.name,
            "version": str(self.version),
            "description": "A synthetic table.",
            "format": self.format,
            "status": self.status,
            "url": f"https://www.openml.org/data/v1/download/{self.openml_id}",
            "md5_checksum": hashlib.md5(self.as_arff()).hexdigest(),
        }

    def as_features(self):
        return [
            {
                "index": str(i),
                "name": name,
                "data_type": "nominal" if isinstance(kind, list) else kind,
                "is_target": str(name == self.target).lower(),
                "is_ignore": str(name in self.unused).lower(),
                "is_row_identifier": "false",
            }
            for i, (name, kind) in enumerate(self.columns.items())
        ]


def _quoted(cell):
    if cell is None:
        return "?"
    return f"'{cell}'" if set(cell) & set(" ,{}%<") else cell


class FakeServer:
    """Has ``tables``; ``requests`` counts what was asked for; ``fault``, if set, is raised."""

    def __init__(self, *tables):
        self.tables = {table.openml_id: table for table in tables}
        self.requests, self.fault = 0, None

    def __call__(self, request):
        self.requests += 1
        if self.fault is not None:
            raise self.fault
        parts = urlparse(request.full_url).path.strip("/").split("/")
        content = self.answer(parts[parts.index("v1") + 1 :])
        if content is None:
            raise urllib.error.HTTPError(request.full_url, 412, "no result", {}, io.BytesIO())
        return Answer(content)

    def answer(self, parts):
        if parts[0] == "download":
            return self.tables[int(parts[1])].as_arff()
        match parts[2:]:
            case ["list", "data_name", name, "limit", "2", *more]:
                wanted = dict(zip(more[::2], more[1::2], strict=True))
                found = [
                    {"did": t.openml_id, "name": t.name, "version": t.version, "status": t.status}
                    for t in self.tables.values()
                    if t.name == name
                    and wanted.get("data_version", str(t.version)) == str(t.version)
                    and wanted.get("status", "active") == t.status
                ]
                said = {"data": {"dataset": found}} if found else None
            case [number] if number.isdecimal() and int(number) in self.tables:
                said = {"data_set_description": self.tables[int(number)].as_description()}
            case ["features", number]:
                said = {"data_features": {"feature": self.tables[int(number)].as_features()}}
            case ["qualities", number]:
                rows = len(self.tables[int(number)].rows)
                quality = [{"name": "NumberOfInstances", "value": str(rows)}]
                said = {"data_qualities": {"quality": quality}}
            case _:
                said = None
        return None if said is None else json.dumps(said).encode()


class Answer(io.BytesIO):
    def info(self):
        return {}


def synthetic(openml_id=61, name="synthetic", **more):
    return Table(openml_id, name, COLUMNS, ROWS, **({"target": "kind"} | more))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("COMBUTAB_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def server(cache, monkeypatch):
    """OpenML with the one set, and an empty cache."""
    server = FakeServer(synthetic())
    monkeypatch.setattr("sklearn.datasets._openml.urlopen", server)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return server


def assert_same(one, other):
    pd.testing.assert_frame_equal(one.X, other.X)
    pd.testing.assert_series_equal(one.y, other.y)
    assert (one.task, one.categorical, one.name) == (other.task, other.categorical, other.name)


def assert_right(data):
    """Against the cells above, written out."""
    assert (data.task, data.categorical) == ("classification", ("colour", "flag"))
    assert (data.name, data.openml_id, data.source) == ("synthetic", 61, "OpenML")
    np.testing.assert_array_equal(data.X["size"], [1.0, 2.0, np.nan, 4.5])
    colours = data.X["colour"].astype(object).fillna("none").tolist()
    assert colours == ["red", "none", "dark green", "red"]
    assert data.X["colour"].cat.categories.tolist() == ["dark green", "red"]
    assert data.X["flag"].cat.categories.tolist() == ["FALSE", "TRUE"]
    assert data.X["flag"].isna().tolist() == [False, False, True, False]
    assert data.X["note"].fillna("none").tolist() == ["hello, there", "x", "y", "none"]
    assert data.y.tolist() == ["a", "b", "a", "b"]
    assert data.y.cat.categories.tolist() == ["a", "b"]


@pytest.mark.parametrize("key", [61, "61", "synthetic"])
def test_a_set_is_fetched_once(server, key):
    data = load_openml(key)
    assert_right(data)
    server.fault = AssertionError("asked")
    assert_same(load_openml(key), data)
    assert_same(load_openml(61), data)


def test_names_have_versions(server):
    made = [
        synthetic(66, version=3, target="size"),
        synthetic(65, version=2, status="deactivated"),
        synthetic(67, name="other"),
    ]
    server.tables = {table.openml_id: table for table in made}
    assert load_openml("synthetic").openml_id == 66
    assert load_openml("synthetic", version=3).task == "regression"
    with pytest.warns(UserWarning, match="inactive"):
        assert load_openml("synthetic", version=2).openml_id == 65
    with pytest.raises(ValueError, match=r"other \(OpenML 67, version 1\) is not version 3"):
        load_openml(67, version=3)


def test_targets_of_numbers_are_floats(server):
    columns = {"a": "numeric", "b": "numeric"}
    server.tables[61] = Table(61, "n", columns, [["1", "2"], ["3", "4"]], target="b")
    data = load_openml(61)
    assert (data.task, data.y.dtype, data.X["a"].dtype) == ("regression", "float64", "int64")


def test_unused_columns_are_dropped(server):
    server.tables[61].unused = ("size", "note", "flag")
    assert list(load_openml(61).X) == ["colour"]


@pytest.mark.parametrize("name", ["autoMpg", "breast-w", "boston", "wdbc"])
def test_the_same_from_a_local_file_and_from_openml(server, name):
    if not (SHARED / "openml").is_dir():
        pytest.skip("the eight data sets are not in shared/data/openml beside the checkout")
    (path,) = (SHARED / "openml").glob(f"{name}.csv*")
    cells = pd.read_csv(path, dtype=str)
    entry = REGISTRY[name]
    nominal = {*entry.nominal} | ({entry.target} if entry.task == "classification" else set())
    columns = {c: sorted(set(cells[c]), reverse=True) if c in nominal else "numeric" for c in cells}
    rows = cells.astype(object).where(cells.notna(), None).to_numpy().tolist()
    server.tables[entry.openml_id] = Table(
        entry.openml_id, name, columns, rows, target=entry.target
    )
    fetched = load_openml(name)  # without a warning: the checksum is the known one
    assert_same(fetched, load_openml(name, data_home=SHARED))
    assert (fetched.source, fetched.openml_id) == ("OpenML", entry.openml_id)


# ---- Faults --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:A network error|Invalid cache")
@pytest.mark.parametrize(("key", "label"), [(61, "61"), ("synthetic", "synthetic")])
@pytest.mark.parametrize(
    "fault", [urllib.error.URLError("Connection refused"), PermissionError(13, "Permission denied")]
)
def test_an_error_names_the_set_and_the_ways_out(server, key, label, fault):
    server.fault = fault
    with pytest.raises(OSError, match=r"Connection refused|Permission denied") as caught:
        load_openml(key)
    message = str(caught.value)
    assert message.startswith(f"cannot fetch {label} from OpenML into scikit-learn's cache: ")
    assert message.endswith(
        "; connect to the network and try again, set SCIKIT_LEARN_DATA to a folder that can be "
        "written to, or pass data_home=FOLDER (or set COMBUTAB_DATA) where FOLDER holds "
        f"{label}.csv or {label}.csv.gz"
    )
    server.fault = None
    assert_right(load_openml(key))


@pytest.mark.parametrize(
    ("key", "version", "says"),
    [
        (99, None, "no table 99: .*data_id 99 not found; list_openml"),
        ("unknown", None, "no table unknown: No active dataset unknown found"),
        ("../x y", None, "no table ../x y: No active dataset"),
        ("synthetic", 7, "no table synthetic: .*version 7 not found"),
    ],
)
def test_what_openml_does_not_have(server, key, version, says):
    with pytest.raises(ValueError, match=f"OpenML gives {says}"):
        load_openml(key, version=version)


def test_files_that_are_not_looked_at(server, tmp_path):
    (tmp_path / "mine.csv").write_text("x,y\n1,2\n3,4\n")
    (tmp_path / "folder").mkdir()
    assert load_openml("mine", data_home=tmp_path).y.tolist() == [2.0, 4.0]
    assert server.requests == 0
    for key, more in (
        ("mine", {"data_home": tmp_path, "version": 1}),  # a file has no version
        ("../mine", {"data_home": tmp_path / "folder"}),  # a name is no path
        ("mine", {"data_home": tmp_path / "folder"}),
        ("mine", {}),
    ):
        with pytest.raises(ValueError, match="OpenML gives no table"):
            load_openml(key, **more)


def test_damaged_files_of_the_cache(server, cache):
    load_openml(61)
    (description,) = cache.rglob("data/61.gz")
    description.write_bytes(gzip.compress(b'{"data'))
    with pytest.warns(RuntimeWarning, match="Invalid cache, redownloading"):
        assert_right(load_openml(61))
    (table,) = cache.rglob("download/61.gz")
    table.write_bytes(gzip.compress(server.tables[61].as_arff()[:-9]))
    with pytest.warns(RuntimeWarning, match="Invalid cache, redownloading"):
        assert_right(load_openml(61))


# ---- Sets that are not what is asked for ---------------------------------------------------------


@pytest.fixture
def breast_w(server):
    """Another table of that name."""
    entry = REGISTRY["breast-w"]
    columns = dict.fromkeys(entry.columns, "numeric") | {"Class": ["benign", "malignant"]}
    rows = [[str(i % 10)] * 9 + ["benign"] for i in range(699)]
    server.tables[15] = Table(15, "breast-w", columns, rows, target="Class")
    return server.tables[15]


def test_a_registered_set_of_other_content_is_a_warning(breast_w):
    with pytest.warns(UserWarning, match="breast-w from OpenML has other values"):
        assert len(load_openml("breast-w").X) == 699


def test_a_registered_set_of_other_rows_or_columns_is_an_error(breast_w):
    breast_w.rows.pop()
    columns = breast_w.columns.items()
    breast_w.columns = {name.replace("Mitoses", "M"): kind for name, kind in columns}
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
    server.tables[61].format = "Sparse_ARFF"
    with pytest.raises(ValueError, match="no table 61: Sparse ARFF"):
        load_openml(61)
