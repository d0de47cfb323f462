"""Parquet files as one table: which files, which rows, which errors."""

from __future__ import annotations

import re
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from combutab import MLPRegressor
from combutab.preprocessing import ParquetTable

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def folder(tmp_path):
    for k, name in enumerate(["b", "a"]):
        frame = pd.DataFrame({"x": np.arange(10) + 10 * (1 - k), "s": ["u", "v"] * 5})
        frame.to_parquet(tmp_path / f"{name}.parquet", row_group_size=4)
    return tmp_path


def read(table, n_rows, groups=None):
    parts = list(table.batches(["x"], n_rows, groups))
    return [first for first, _ in parts], np.concatenate([part["x"] for _, part in parts])


def test_a_folder_a_file_and_a_list(folder):
    table = ParquetTable(folder)
    assert (table.n_rows, table.columns, len(table.groups)) == (20, ["x", "s"], 6)
    firsts, x = read(table, 3)
    assert x.tolist() == list(range(20)), "files by name"
    assert firsts == [0, 3, 4, 7, 8, 10, 13, 14, 17, 18]
    one = ParquetTable(str(folder / "b.parquet"))
    assert read(one, 100)[1].tolist() == list(range(10, 20))
    other = ParquetTable([folder / "b.parquet", folder / "a.parquet"])
    assert read(other, 100)[1].tolist() == [*range(10, 20), *range(10)]


def test_groups_in_another_order(folder):
    table = ParquetTable(folder)
    firsts, x = read(table, 100, [table.groups[2], table.groups[0]])
    assert firsts == [8, 0]
    assert x.tolist() == [8, 9, 0, 1, 2, 3]


def test_an_index_that_pandas_stored_is_no_column(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index(["p", "q"], name="key"))
    frame.to_parquet(tmp_path / "t.parquet")
    assert ParquetTable(tmp_path / "t.parquet").columns == ["x"]


def test_missing_values_of_the_statistics(tmp_path):
    pd.DataFrame({"x": [1.0, None, 3.0], "s": ["a", None, None]}).to_parquet(tmp_path / "t.parquet")
    table = ParquetTable(tmp_path / "t.parquet")
    assert (table.n_missing("x"), table.n_missing("s")) == (1, 2)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file or folder .*none"):
        ParquetTable(tmp_path / "none.parquet")
    with pytest.raises(FileNotFoundError, match=r"no \*.parquet file in the folder"):
        ParquetTable(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no file .*none"):
        ParquetTable([tmp_path / "none.parquet"])
    with pytest.raises(ValueError, match="empty list"):
        ParquetTable([])


def test_what_is_no_parquet_file(tmp_path):
    (tmp_path / "t.parquet").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match=r"t\.parquet"):
        ParquetTable(tmp_path)


def test_a_file_without_rows(tmp_path):
    pd.DataFrame({"x": [1.0]})[:0].to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="has no rows"):
        ParquetTable(tmp_path)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": [1.0], "z": [1.0]}, "lacks ['y'] and adds ['z']"),
        ({"x": [1.0], "y": ["a"]}, "column 'y' is "),
    ],
    ids=["names", "types"],
)
def test_files_that_differ(tmp_path, second, message):
    pd.DataFrame({"x": [1.0], "y": [1.0]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame(second).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=re.escape(message)):
        ParquetTable(tmp_path)


def test_columns_that_cannot_be_used(tmp_path):
    pd.DataFrame({"x": [1.0], "v": [[1.0, 2.0]]}).to_parquet(tmp_path / "t.parquet")
    table = ParquetTable(tmp_path)
    with pytest.raises(ValueError, match=r"no column 'y' .* columns are \['x', 'v'\]"):
        table.check_columns(["y"])
    with pytest.raises(ValueError, match=r"'v'.*list<"):
        table.check_columns(["x", "v"])


def test_repeated_names(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"\['x'\]"):
        ParquetTable(tmp_path)


def test_a_file_cut_off_while_it_is_read(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"x": np.random.default_rng(0).normal(size=10_000)}).to_parquet(path)
    table = ParquetTable(path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"cannot read .*t\.parquet"):
        list(table.batches(["x"], 100))


# ---- Patterns, partitions and other file systems, and what is wrong with a file ------------------


fs = pytest.importorskip("pyarrow.fs")

QUICK = {"hidden_layer_sizes": (8,), "max_iter": 2, "random_state": 0, "device": "cpu"}
QUICK |= {"n_iter_no_change": float("inf")}


def part(first: int, n: int = 4) -> pd.DataFrame:
    return pd.DataFrame({"x": np.arange(first, first + n, dtype=float), "s": ["u", "v"] * (n // 2)})


@pytest.fixture
def folders(tmp_path):
    """2023 and 2024, of two files each, and files that are none of the table's."""
    for i, place in enumerate(["2023/a", "2023/b", "2024/a", "2024/b"]):
        path = tmp_path / f"{place}.parquet"
        path.parent.mkdir(exist_ok=True)
        part(4 * i).to_parquet(path)
    for name in ("_SUCCESS", "2023/_metadata.parquet", "2024/.a.parquet", "2024/notes.txt"):
        (tmp_path / name).write_text("no Parquet file")
    return tmp_path


def values(path, filesystem=None):
    table = ParquetTable(path, filesystem)
    return np.concatenate([frame["x"] for _, frame in table.batches(["x"], 100)]).tolist()


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", range(16)),
        ("2024", range(8, 16)),
        ("*/a.parquet", [*range(4), *range(8, 12)]),
        ("**/[b-z].parquet", [*range(4, 8), *range(12, 16)]),
        ("202?", range(16)),
        ("2023/?.parquet", range(8)),
        ("2024/*", None),
    ],
)
def test_patterns_and_folders(folders, monkeypatch, pattern, expected):
    if expected is None:  # a pattern that takes what is no Parquet file
        with pytest.raises(ValueError, match=r"notes\.txt"):
            ParquetTable(folders / pattern)
        return
    assert values(folders / pattern) == list(expected)
    assert values(f"{folders.as_uri()}/{pattern}".replace("[b-z]", "b").replace("?", "*")) == list(
        expected
    )
    monkeypatch.chdir(folders)
    assert values(pattern or ".") == list(expected)
    assert values(pattern or "/", fs.SubTreeFileSystem(str(folders), fs.LocalFileSystem())) == list(
        expected
    )


def test_a_file_whose_name_looks_like_a_pattern(tmp_path):
    part(0).to_parquet(tmp_path / "a[1].parquet")
    part(4).to_parquet(tmp_path / "a1.parquet")
    assert values(tmp_path / "a[1].parquet") == [0, 1, 2, 3]


def test_a_list_of_folders_and_patterns(folders):
    assert values([folders / "2024", folders / "2023/b*"]) == [*range(8, 16), *range(4, 8)]


@pytest.mark.parametrize("what", ["*.csv", "none/*.parquet", "202[5-9]/*"])
def test_patterns_without_a_file(folders, what):
    with pytest.raises(FileNotFoundError, match=r"there is no file of the pattern .*" + "\\*"):
        ParquetTable(folders / what)


def partitioned(folders):
    frame = pd.DataFrame({"x": np.arange(40.0), "year": [2023, 2024] * 20})
    frame["place"] = ["Rome", "Oslo/Bygdøy", np.nan, "a=b"] * 10
    frame["y"] = frame["x"] * (frame["year"] == 2024) + (frame["place"] == "Rome")
    frame.to_parquet(folders, partition_cols=["year", "place"])
    return frame


def test_names_of_folders_are_columns(tmp_path):
    frame = partitioned(tmp_path / "t")
    table = ParquetTable(tmp_path / "t")
    assert table.columns == ["x", "y", "year", "place"]
    assert (table.n_missing("place"), table.n_missing("year")) == (10, 0)
    found = pd.concat([f for _, f in table.batches(["place", "x", "year"], 3)])
    assert list(found) == ["place", "x", "year"]
    found = found.astype({"place": object}).sort_values("x").reset_index(drop=True)
    expected = frame[["place", "x", "year"]].astype({"year": "int32", "place": object})
    pd.testing.assert_frame_equal(found, expected)
    only = [f for _, f in table.batches(["year"], 100)]
    assert sum(map(len, only)) == 40, "without a column of the files"
    below = ParquetTable(tmp_path / "t" / "year=2024")
    assert below.columns == ["x", "y", "place"], "as pyarrow: what is above is no column"
    pattern = ParquetTable(tmp_path / "t" / "year=2024" / "*" / "*.parquet")
    assert pattern.columns == ["x", "y", "place"]
    every = ParquetTable(tmp_path / "t" / "year=20*")
    assert every.columns == table.columns
    assert every.n_rows == 40


def test_folders_that_are_no_data_set(tmp_path):
    for folders, name in (("a=1", "x"), ("b=1", "x"), ("c", "x")):
        (tmp_path / folders).mkdir()
        part(0).to_parquet(tmp_path / folders / f"{name}.parquet")
    with pytest.raises(ValueError, match=r"a=1/x.parquet.*b=1/x.parquet"):
        ParquetTable(tmp_path)
    with pytest.raises(ValueError, match="folder above"):
        ParquetTable([tmp_path / "a=*", tmp_path / "c"])
    (tmp_path / "d" / "x=u").mkdir(parents=True)
    part(0).to_parquet(tmp_path / "d" / "x=u" / "1.parquet")
    with pytest.raises(ValueError, match=r"incompatible types"):
        ParquetTable(tmp_path / "d")


def test_partition_column_also_in_files(tmp_path):
    for s in "uv":
        (tmp_path / f"s={s}").mkdir()
        part(0).to_parquet(tmp_path / f"s={s}" / "1.parquet")
    table = ParquetTable(tmp_path)
    assert table.columns == ["x", "s"]
    (_, frame), *_ = table.batches(["s"], 100)
    assert frame["s"].tolist() == ["u", "v", "u", "v"]


# ---- what is wrong with a file -----------------------------------------------------------------


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def other_type(path):
    frame = pd.read_parquet(path)
    frame.assign(x=frame["x"].astype(int)).to_parquet(path)


def other_columns(path):
    pd.read_parquet(path).rename(columns={"s": "t"}).to_parquet(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut, r"cannot read \S*2024/a\.parquet as Parquet: \S.*"),
        (lambda path: path.write_bytes(b""), r"cannot read \S*2024/a\.parquet as Parquet: \S.*"),
        (other_type, r"column 'x' is int64 in \S*2024/a\.parquet, but double in \S*2023/a\.par.*"),
        (other_columns, r"\S*2024/a\.parquet has other columns .*lacks \['s'\] and adds \['t'\].*"),
    ],
    ids=["cut off", "empty", "type", "names"],
)
@pytest.mark.parametrize("way", ["path", "filesystem"])
def test_bad_file_is_named_before_reading(folders, change, message, way):
    change(folders / "2024/a.parquet")
    filesystem = fs.LocalFileSystem() if way == "filesystem" else None
    model = MLPRegressor(**QUICK)
    with pytest.raises(ValueError, match=message) as caught:
        model.fit_parquet(str(folders), "x", filesystem=filesystem)
    assert "\n" not in str(caught.value)
    assert not hasattr(model, "encoder_")


def test_file_rewritten_while_reading(folders):
    table = ParquetTable(folders)
    part(0, 400).to_parquet(folders / "2024/a.parquet")
    with pytest.raises(ValueError, match=r"2024/a\.parquet.*\d+ bytes"):
        list(table.batches(["x"], 100))


# ---- other file systems ------------------------------------------------------------------------


def test_file_systems_that_there_are_not(tmp_path):
    with pytest.raises(ValueError, match="nowhere://"):
        ParquetTable("nowhere://bucket/t.parquet")
    with pytest.raises(ValueError, match=r"pyarrow\.fs.*fsspec"):
        ParquetTable(tmp_path, filesystem="s3")


def test_errors_name_no_password_of_a_uri():
    with pytest.raises(FileNotFoundError, match=r"mock://bucket/t\.parquet$"):
        ParquetTable("mock:///bucket/t.parquet?password=hunter2")


def test_a_file_system_of_fsspec():
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    try:
        for i, name in enumerate("ab"):
            memory.pipe(f"/combutab/k={i}/{name}.parquet", part(4 * i).to_parquet())
        assert values("/combutab", memory) == list(range(8))
        assert values("/combutab/*/b.parquet", memory) == [4, 5, 6, 7]
        assert ParquetTable("/combutab", memory).columns == ["x", "s", "k"]
    finally:
        memory.rm("/combutab", recursive=True)


def test_a_file_system_that_cannot_be_reached():
    memory = pytest.importorskip("fsspec").filesystem("memory")
    with (
        mock.patch.object(type(memory), "info", side_effect=OSError("no route")),
        pytest.raises(OSError, match=r"bucket/t.*no route"),
    ):
        ParquetTable("bucket/t", memory)
