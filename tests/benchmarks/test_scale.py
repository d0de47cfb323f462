"""The arithmetic of many hosts, by numbers worked by hand."""

import pandas as pd
import pytest

from benchmarks.speed import scale, scale_out
from benchmarks.speed.clusters import judge

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
