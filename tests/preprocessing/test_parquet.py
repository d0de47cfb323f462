"""Parquet files as one table: which files, which rows, which errors."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

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
    with pytest.raises(ValueError, match=r"cannot read .*t\.parquet as Parquet"):
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
    with pytest.raises(ValueError, match=r"column 'v' is of type list<.* leave it out"):
        table.check_columns(["x", "v"])


def test_repeated_names(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"more than one column named \['x'\]"):
        ParquetTable(tmp_path)


def test_a_file_cut_off_while_it_is_read(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"x": np.random.default_rng(0).normal(size=10_000)}).to_parquet(path)
    table = ParquetTable(path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"cannot read .*t\.parquet"):
        list(table.batches(["x"], 100))
