"""The benchmark of growth: exponents are slopes, points that are not measured anew stay."""

from __future__ import annotations

import subprocess

import numpy as np
import pandas as pd
import pytest

from benchmarks.speed import common, scaling
from tests.benchmarks.quick_forms import run_quick


def test_exponents_are_those_of_the_upper_half():
    size = np.array([10.0, 100.0, 1_000.0, 10_000.0])
    seconds = np.array([5.0, 5.0, 10.0, 1_000.0])  # half of the range begins at 316
    points = pd.DataFrame(
        {"dimension": "rows", "size": size, "seconds": seconds, "megabytes": 3 * size**1.5}
    )
    row = scaling.exponents(points).loc["rows"]
    assert row["seconds"] == pytest.approx(2.0)
    assert row["seconds, steepest"] == pytest.approx(2.0)
    assert row["megabytes"] == pytest.approx(1.5)


def test_two_points_have_a_slope():
    points = pd.DataFrame(
        {"dimension": "rows", "size": [1, 2], "seconds": [1.0, 2.0], "megabytes": [1.0, 1.0]}
    )
    row = scaling.exponents(points).loc["rows"]
    assert row["seconds"] == pytest.approx(1.0)
    assert row["megabytes"] == pytest.approx(0.0)


def test_quick_form(tmp_path):
    run_quick("speed.scaling", tmp_path)
    points = pd.read_csv(tmp_path / "scaling.csv")
    assert points.groupby("dimension").size().to_dict() == dict.fromkeys(
        ["categories", "columns", "members", "rows", "streamed"], 2
    )
    streamed = points[points["dimension"] == "streamed"]
    assert (streamed[["loss", "loss in memory"]] > 0.01).all(axis=None), "the noise's variance"
    assert points.loc[points["dimension"] != "streamed", "loss"].isna().all()
    assert (points["seconds"] > 0).all()
    text = (tmp_path / "scaling.md").read_text()
    assert "Exponents" in text
    assert str(tmp_path) not in text
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
    run_quick("speed.scaling", tmp_path, "--dimensions", "members")
    again = pd.read_csv(tmp_path / "scaling.csv")
    assert list(again["dimension"]) == list(points["dimension"]), "the others stay"
    kept = again["dimension"] != "members"
    pd.testing.assert_frame_equal(again[kept], points[kept])


def test_a_point_is_measured_in_a_process_of_its_own(monkeypatch):
    point = common.call_apart(scaling.measure, "members", 2, True, "1GB")
    assert point.keys() == {"seconds", "megabytes"}
    assert point["seconds"] > 0
    assert 0 < point["megabytes"] < 1000
    with pytest.raises(subprocess.CalledProcessError) as failed:
        common.call_apart(scaling.measure, "nonsense", 2, True, "1GB")
    assert "KeyError: 'nonsense'" in failed.value.stderr
