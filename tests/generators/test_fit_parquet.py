"""Generators learn from Parquet files what they learn from the table in memory."""

import decimal
import errno
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from combutab import TVAE
from combutab.generators import Inequality
from tests.generators.small import EVERY
from tests.generators.small import make as make_small

pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.filterwarnings("ignore:.*identifiers")

make = partial(make_small, device="cpu")


def table(n: int = 240) -> pd.DataFrame:
    """Columns of every kind; the first rows are not as the last ones."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=n), "count": rng.integers(0, 60, n)})
    frame["late"] = np.where(np.arange(n) < n // 2, np.nan, rng.integers(0, 50, n))
    frame["gaps"] = rng.integers(0, 50, n)  # whole numbers with gaps, as floats
    frame["kind"] = pd.Categorical(rng.choice(["a", "b"], n), ["b", "a"], ordered=True)
    frame["text"] = [None] * (n // 2) + rng.choice(["u", "v"], n - n // 2).tolist()
    frame["some"] = pd.array(rng.integers(0, 9, n), dtype="Int64")
    frame.loc[rng.random(n) < 0.2, ["some"]] = None
    frame["maybe"] = rng.choice([True, False, None], n)
    frame["flag"] = rng.random(n) < 0.5
    frame["when"] = pd.date_range("2024-01-01", periods=n, freq="h", tz="Europe/Rome")
    frame["mail"] = [f"user{i}@mail.org" for i in range(n)]
    frame["row"] = np.arange(n)
    frame["one"] = "always"
    return frame


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("parquet") / "table.parquet"
    frame = table()
    frame["gaps"] = frame["gaps"].where(frame.index > 200).astype("float").astype("Int64")
    frame.to_parquet(path, row_group_size=70)
    return path


@pytest.fixture(autouse=True)
def small_parts():
    with mock.patch("combutab.generators._parquet._ROWS", 33):
        yield


def check_same(found, expected):
    pd.testing.assert_frame_equal(found.loss_values, expected.loss_values, check_exact=True)
    pd.testing.assert_frame_equal(
        found.sample(30, random_state=1), expected.sample(30, random_state=1), check_exact=True
    )
    assert repr(found) == repr(expected)


def least(model, path) -> int:
    """The least limit that works, as errors name it; nothing is trained below."""
    limit = 1
    with mock.patch.object(type(model), "_training", side_effect=AssertionError("trained")):
        while True:
            try:
                model.fit_parquet(path, memory_limit=limit)
            except ValueError as error:
                more = int(re.search(r"at least (\d+) bytes", str(error))[1])
                assert more > limit
                assert not model.__sklearn_is_fitted__()
                limit = more
            except AssertionError:
                return limit


@EVERY
def test_what_is_learned_is_what_fit_learns(cls, path):
    parameters = {"early_stopping": True, "n_iter_no_change": 5}
    expected = make(cls, **parameters).fit(pd.read_parquet(path))
    for in_memory in (True, False) if cls is TVAE else (False,):
        found = make(cls, **parameters)
        limit = "1GB" if in_memory else least(found, path)
        with mock.patch.object(np, "memmap", wraps=np.memmap) as memmap:
            found.fit_parquet(path, memory_limit=limit)
        assert memmap.called != in_memory
        check_same(found, expected)


def test_too_small_memory_limit_is_refused(path, tmp_path):
    with pytest.raises(ValueError, match=r"'x'.*240"):
        make(TVAE).fit_parquet(path, memory_limit="1MB")
    texts = [f"{i:01000}" for i in range(20_000)]
    pd.DataFrame({"text": texts}).to_parquet(tmp_path / "texts.parquet")
    with pytest.raises(ValueError, match="'text'"):
        make(TVAE).fit_parquet(tmp_path / "texts.parquet", memory_limit="60MB")
    wide = make(TVAE, compress_dims=(1000, 1000), n_members=4)
    with pytest.raises(ValueError, match="240"):
        wide.fit_parquet(path, memory_limit="150MB")


def test_columns_files_and_discrete_columns(path, tmp_path):
    frame = pd.read_parquet(path)
    frame[["x", "flag", "some"]].to_parquet(tmp_path / "t", partition_cols=["flag"])
    rows = pd.concat([frame[~frame["flag"]], frame[frame["flag"]]], ignore_index=True)
    rows["flag"] = rows["flag"].map({False: "false", True: "true"})  # as the folders' names have it
    expected = make(TVAE).fit(rows[["flag", "x", "some"]], discrete_columns=["flag", "some"])
    found = make(TVAE).fit_parquet(
        tmp_path / "t" / "**" / "*.parquet",
        columns=["flag", "x", "some"],
        discrete_columns=["flag", "some"],
    )
    check_same(found, expected)
    assert found.feature_names_in_.tolist() == ["flag", "x", "some"]
    one = make(TVAE).fit_parquet(path, columns="some")
    assert one.feature_names_in_.tolist() == ["some"]


def test_a_training_is_taken_up(path, tmp_path):
    whole = make(TVAE, epochs=3).fit_parquet(path)
    checkpoint = tmp_path / "checkpoint"
    make(TVAE, epochs=1).fit_parquet(path, checkpoint=checkpoint)
    found = make(TVAE, epochs=3).fit(pd.read_parquet(path), checkpoint=checkpoint)
    check_same(found, whole)


MEASURED = """
import sys, threading
from combutab import TVAE

def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])

def watch():
    while not ended.wait(0.001):
        taken.append(status("RssAnon"))

folder, limit = sys.argv[1], int(sys.argv[2])
settings = dict(compress_dims=(8,), decompress_dims=(8,), embedding_dim=4, epochs=1,
                batch_size=5000, random_state=0, device="cpu")
TVAE(**settings).fit_parquet(folder + "/small.parquet")  # all libraries are loaded
base, taken, ended = status("RssAnon"), [], threading.Event()
watching = threading.Thread(target=watch)
watching.start()
try:
    TVAE(**settings).fit_parquet(folder + "/large.parquet", memory_limit=limit)
finally:
    ended.set()
    watching.join()
print(max(taken) - base)
"""


@pytest.mark.slow
def test_a_fit_stays_within_the_limit(tmp_path):
    if not Path("/proc/self/status").exists():
        pytest.skip("measures memory by /proc")
    rng, n = np.random.default_rng(0), 1_000_000
    texts = np.array([f"{i:0200}" for i in range(50)], dtype=object)
    frame = pd.DataFrame({"x": rng.normal(size=n), "text": texts[rng.integers(50, size=n)]})
    frame[:4000].to_parquet(tmp_path / "small.parquet")
    frame.to_parquet(tmp_path / "large.parquet", row_group_size=100_000)
    limit = 125_000_000
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, tmp_path, str(limit)],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < limit


# ---- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["none"]}, "'none'"),
        ({"columns": ["x", "x"]}, "columns must be names of different columns"),
        ({"columns": []}, "columns must be names of different columns"),
        ({"memory_limit": "much"}, "memory_limit"),
        ({"discrete_columns": ["none"]}, "no column"),
    ],
)
def test_what_cannot_be_learned_is_refused(path, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(TVAE).fit_parquet(path, **arguments)


def test_columns_and_values_that_cannot_be_used(tmp_path):
    pd.DataFrame({"x": [[1.0], [2.0]] * 30}).to_parquet(tmp_path / "list.parquet")
    with pytest.raises(ValueError, match=r"'x'.*list<"):
        make(TVAE).fit_parquet(tmp_path / "list.parquet")
    pd.DataFrame({"x": [1.0, np.inf] * 30}).to_parquet(tmp_path / "inf.parquet")
    with pytest.raises(ValueError, match=r"'x'.*infinite"):
        make(TVAE).fit_parquet(tmp_path / "inf.parquet")


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system does not tell")
def test_a_disk_without_room_for_the_encoded_rows(path):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    model = make(TVAE, early_stopping=True)  # by a batch that takes more than a column
    limit = least(model, path)
    with (
        mock.patch.object(os, "posix_fallocate", side_effect=full),
        pytest.raises(OSError, match=r"memory_limit.*TMPDIR") as caught,
    ):
        model.fit_parquet(path, memory_limit=limit)
    assert caught.value.errno == errno.ENOSPC
    assert not model.__sklearn_is_fitted__()


def table_with_forms(n: int = 300) -> pd.DataFrame:
    """Dates, times, numbers with units and decimals, as text, whole numbers and objects."""
    rng = np.random.default_rng(1)
    days = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 700, n), "D")
    moments = days + pd.to_timedelta(rng.integers(0, 86_400, n), "s")
    frame = pd.DataFrame(
        {
            "iso": days.strftime("%Y-%m-%d"),
            "german": days.strftime("%d.%m.%Y"),
            "zone": moments.strftime("%Y-%m-%dT%H:%M:%S+01:00"),
            "clock": moments.strftime("%H:%M:%S"),
            "weight": [f"{x:.1f} kg" for x in rng.normal(70, 9, n)],
            "number": days.strftime("%Y%m%d").astype(int),
            "day": days.date,
            "price": [decimal.Decimal(f"{x:.2f}") for x in rng.uniform(1, 99, n)],
            "x": rng.normal(size=n),
        }
    )
    frame.loc[rng.random(n) < 0.1, ["iso", "clock", "day"]] = None
    frame.loc[: n // 2, "german"] = None  # parts without a value
    return frame


@pytest.mark.parametrize("constrained", [False, True])
def test_dates_and_times_are_read_as_in_fit(tmp_path, constrained):
    table_with_forms().to_parquet(tmp_path / "table.parquet", row_group_size=70)
    frame = pd.read_parquet(tmp_path / "table.parquet")
    constraints = [Inequality("x", "<", 10.0)] if constrained else []
    expected = make(TVAE, constraints=constraints).fit(frame)
    found = make(TVAE, constraints=constraints).fit_parquet(tmp_path / "table.parquet")
    check_same(found, expected)
    kinds = {form.kind for form in found.rules_.forms.forms}
    assert kinds == {"date text", "clock text", "unit text", "date number", "date", "decimal"}
    assert found.rules_.forms.forms == expected.rules_.forms.forms
