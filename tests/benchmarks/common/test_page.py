"""Pages and files of studies: folded parts, pictures that stay small, the same bytes each time."""

import gzip
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from benchmarks.common.page import Page
from benchmarks.common.results import Store
from benchmarks.outputs import draw, write_bytes, write_table


def figure(n_points):
    made = Figure()
    made.subplots().scatter(*np.random.default_rng(0).normal(size=(2, n_points)))
    return made


def test_pictures_stay_below_100_kB(tmp_path):
    page = Page("study", "Title", "command", "machine")
    (tmp_path / "study_many.svg").touch()  # of an earlier run
    page.figure(figure(10), "few points")
    page.figure(figure(2_000), "many points", "many")
    page.write(tmp_path)
    assert re.findall(r"!\[(.*)\]\((.*)\)", str(page)) == [
        ("few points", "study.svg"),
        ("many points", "study_many.png"),
    ]
    pictures = sorted(path.name for path in tmp_path.iterdir())
    assert pictures == ["study.md", "study.svg", "study_many.png"]
    assert all(path.stat().st_size <= 100_000 for path in tmp_path.iterdir())
    assert draw(figure(10)) == draw(figure(10)), "no time, no random names"
    with pytest.raises(ValueError, match="1000"):
        draw(figure(10), most_bytes=1_000)


def test_compressed_rows_are_reproducible(tmp_path):
    table = pd.DataFrame({"a": [1.5, None], "b": ["x", "é"]})
    for name in ("one.csv.gz", "two.csv.gz"):
        write_table(table, tmp_path / name, index=False)
    packed = (tmp_path / "one.csv.gz").read_bytes()
    assert packed == (tmp_path / "two.csv.gz").read_bytes()
    assert packed[4:8] == bytes(4), "no time"
    assert gzip.decompress(packed).decode() == "a,b\n1.5,x\n,é\n"
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "one.csv.gz"), table)


def test_stores_keep_existing_rows(tmp_path):
    path = tmp_path / "rows.csv.gz"
    write_bytes(path, b"name,score\nb,1\n")
    with Store(path, ["name", "score"], ["name"]).open([{"name": "a"}]) as journal:
        journal.add([{"name": "a", "score": 2}])
    assert gzip.decompress(path.read_bytes()) == b"name,score\na,2\nb,1\n"
    assert [file.name for file in tmp_path.iterdir()] == ["rows.csv.gz"]
