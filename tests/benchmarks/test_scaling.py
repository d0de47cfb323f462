"""The benchmark of growth: exponents are slopes, points that are not measured anew stay."""

from __future__ import annotations

import subprocess

import numpy as np
import pandas as pd
import pytest

from benchmarks.speed import common, scale, scale_out, scaling
from benchmarks.speed.clusters import judge
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


# ---- The arithmetic of many hosts, by numbers worked by hand ------------------------------------

ENGINES = pd.DataFrame(
    {
        "engine": ["one process", "threads", "dask"],
        "seconds": [100.0, 52.0, 57.0],
        "overhead": [0.0, 0.02, 0.07],
        "same scores": [True] * 3,
        "fits": [175] * 3,
        "tasks": [25] * 3,
    }
)


def test_a_step_of_ranks():
    step = scale_out.Step(fixed=1.0, of_row=0.5, n_parameters=100)
    # 1 + 0.5 * 8 / 4, 2 * 3 / 4 * 400 bytes at 300 a second, 2 * 3 turns of 0.1
    assert step.seconds(4, 8, (300.0, 0.1)) == pytest.approx(1 + 1 + 2 + 0.6)
    assert step.seconds(1, 8, (300.0, 0.1)) == 5.0
    hosts = scale_out.predict(0.060, 0.030, 1000)  # 30 ms of 1,024 rows: nothing is fixed
    assert scale.of_row(hosts) == pytest.approx(0.060 / 2048)


def test_workers_help_until_the_caller_is_as_slow():
    table, source = scale.search_on_hosts(ENGINES)  # 7 fits and 4 s a task, 0.2 of the caller
    assert "k = 7, s = 4.00 and d = 0.200" in source
    first = table[table["seconds of a task"] == 4.0].set_index("workers")
    assert first.loc[1, "seconds"] == 4 * 1429  # tasks of 10,000 fits
    assert first.loc[64, "seconds"] == pytest.approx(0.2 * 1429)  # and not 4 * 23
    assert first.loc[64, "bound by"] == "the caller"
    longer = table[table["seconds of a task"] == 40.0].set_index("workers")
    assert longer.loc[64, "seconds"] == 40 * 23
    assert longer.loc[64, "worker hours"] == pytest.approx(64 * 40 * 23 / 3600)


def test_what_is_streamed_is_bound_by_reading():
    points = pd.DataFrame(
        {
            "dimension": ["rows"] * 2 + ["streamed"] * 2,
            "size": [10**6, 10**7, 10**7, 10**8],
            "seconds": [1.0, 10.0, 40.0, 600.0],
            "megabytes": [200.0, 2000.0, 800.0, 800.0],
        }
    )
    words = scale.before_epochs(points)
    assert "3.00 microseconds" in words
    assert "50 minutes a pass" in words
    assert "200 GB in each of 8" in " ".join(words.split())
    assert "not measured" in scale.before_epochs(points[:2])


def test_engines_are_judged_by_tasks_that_are_long_enough():
    assert "dask: overhead 7.0%" in judge(ENGINES)
    assert judge(ENGINES).rstrip().endswith("met.")
    assert "too short" in judge(ENGINES.assign(tasks=200))
    assert "missed" in judge(ENGINES.assign(overhead=0.1))
