"""Tables at the edge: each is learned, or refused before any training."""

import re
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from combutab import CTGAN, TVAE, TabFlow
from combutab.core.memory import available_memory
from combutab.preprocessing import ModeEncoder
from tests.generators.small import EVERY, make

RNG = np.random.default_rng(0)


@EVERY
@pytest.mark.parametrize(
    "column",
    [
        np.full(50, np.nan),
        np.full(50, None),
        pd.array([None] * 50, dtype="Int64"),
        np.full(50, np.datetime64("NaT", "ns")),
    ],
    ids=["NaN", "None", "NA", "NaT"],
)
def test_fifty_missing_cells_of_one_column(cls, column):
    table = pd.DataFrame({"only": column})
    made = make(cls).fit(table).sample(20)
    assert made.shape == (20, 1)
    assert made.dtypes.equals(table.dtypes)
    assert made["only"].isna().all()


@EVERY
def test_columns_without_a_value_beside_others(cls):
    table = pd.DataFrame({"x": RNG.normal(size=50), "none": np.nan, "nothing": None})
    made = make(cls).fit(table).sample(20)
    assert made["x"].notna().all()
    assert made[["none", "nothing"]].isna().all(axis=None)
    empty = make(cls).fit(table[["none", "nothing"]])
    assert empty.sample(3).isna().all(axis=None)
    assert empty.impute(table[["none", "nothing"]]).isna().all(axis=None)


@EVERY
def test_objects_of_all_sorts_are_categories(cls):
    values = [1, "1", 2.5, (1, 2), None, b"x", True, pd.Timestamp("2024-01-01")]
    column = pd.Series([values[i % 8] for i in range(96)], dtype=object)
    table = pd.DataFrame({"mixed": column, "x": RNG.normal(size=96)})
    made = make(cls).fit(table).sample(200)
    # True is 1 to Python
    assert set(made["mixed"].dropna()) <= {1, "1", 2.5, (1, 2), b"x", pd.Timestamp("2024-01-01")}
    assert made["mixed"].isna().any() or cls is TVAE


@EVERY
def test_what_cannot_be_learned_is_refused_before_training(cls, monkeypatch):
    monkeypatch.setattr(cls, "_training", None)
    model = make(cls)
    for values, says in [
        (["a", np.inf], "'bad' has infinite values"),
        ([[1], [2]], "'bad'.*list"),
        ([1 + 2j, 3.0], "'bad' .*complex"),
    ]:
        table = pd.DataFrame({"bad": pd.Series(values * 25), "x": np.arange(50)})
        with pytest.raises((ValueError, TypeError), match=says):
            model.fit(table)
        assert not hasattr(model, "encoder_")


# ---- many categories ---------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """Numbers in the largest tensor that an operation gives."""

    def __init__(self):
        super().__init__()
        self.found = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, torch.Tensor):
                self.found = max(self.found, each.untyped_storage().nbytes() // each.itemsize)
        return made


@pytest.mark.parametrize("cls", [TVAE, TabFlow])  # CTGAN has weights of pairs of categories
def test_no_array_has_rows_times_categories(cls):
    n, n_categories = 2000, 1000
    table = pd.DataFrame({"id": [f"u{i % n_categories}" for i in range(n)]})
    table["x"] = RNG.normal(size=n)
    model = make(cls, epochs=1, early_stopping=False, min_frequency=1, identifiers=None)
    with Largest() as largest:
        made = model.fit(table).sample(100)
    assert set(made["id"]) <= set(table["id"])
    assert largest.found < n * n_categories / 5


def test_many_categories_are_encoded_in_linear_memory():
    n = 100_000
    table = pd.DataFrame({"id": [f"user{i}" for i in range(n)]})
    tracemalloc.start()
    try:
        encoder = ModeEncoder(min_frequency=1, identifiers=None, random_state=0)
        encoded = encoder.fit(table).encode(table)
        again = encoder.decode(encoded.values, encoded.codes)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert encoder.layout_.sizes == (n,)
    pd.testing.assert_frame_equal(again, table)
    assert peak < 1000 * n


# ---- Networks that no memory holds ---------------------------------------------------------------


@pytest.mark.parametrize("cls", [CTGAN, TVAE, TabFlow])
def test_networks_that_no_memory_holds_are_refused(cls, monkeypatch):
    table = pd.DataFrame({"id": [f"u{i}" for i in range(3000)], "x": np.arange(3000.0)})
    monkeypatch.setattr("combutab.generators._base.available_memory", lambda: 2**20)
    model = make(cls, min_frequency=1, identifiers=None)
    with (
        pytest.warns(UserWarning, match="'id'"),
        pytest.raises(ValueError, match=r"'id'.*3,000.*GiB"),
    ):
        model.fit(table)
    assert not hasattr(model, "encoder_")
    monkeypatch.setattr("combutab.generators._base.available_memory", lambda: np.inf)
    with pytest.warns(UserWarning, match="are there once"):
        model.fit(table[:100])  # the system does not tell


def test_memory_for_many_categories_is_estimated(monkeypatch):
    """A fit of 8,000 categories took 3.4 GB with CTGAN's defaults, and one of 30,000 some 21 GB."""
    for n, least, most in ((8000, 2.5, 4.0), (30_000, 18.0, 28.0)):
        table = pd.DataFrame({"city": [f"c{i}" for i in range(n)], "x": np.arange(float(n))})
        monkeypatch.setattr("combutab.generators._base.available_memory", lambda: 10**9)
        model = CTGAN(min_frequency=1, identifiers=None, epochs=1)
        with (
            pytest.warns(UserWarning, match="once"),
            pytest.raises(ValueError, match="TVAE") as refused,
        ):
            model.fit(table)
        needed = float(re.search(r"about ([\d.,]+) GiB", str(refused.value))[1])
        assert least < needed * 2**30 / 1e9 < most


def test_limits_of_containers_are_respected(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    assert available_memory(tmp_path) == 8000 * 1024
    (tmp_path / "proc/self/cgroup").write_text("0::/user/job\n")
    group = tmp_path / "sys/fs/cgroup/user"
    (group / "job").mkdir(parents=True)
    for folder, limit in ((group / "job", "max"), (group, "5000")):
        (folder / "memory.max").write_text(limit)
        (folder / "memory.current").write_text("3000")
        (folder / "memory.stat").write_text("anon 1000\ninactive_file 500\n")
    assert available_memory(tmp_path) == 5000 - 3000 + 500
    (tmp_path / "proc/self/cgroup").write_text("4:cpu,memory:/job\n")
    (tmp_path / "sys/fs/cgroup/memory/job").mkdir(parents=True)
    for name, value in (("memory.limit_in_bytes", "700"), ("memory.usage_in_bytes", "600")):
        (tmp_path / "sys/fs/cgroup/memory/job" / name).write_text(value)
    (tmp_path / "sys/fs/cgroup/memory/job/memory.stat").write_text("total_inactive_file 50\n")
    assert available_memory(tmp_path) == 150
