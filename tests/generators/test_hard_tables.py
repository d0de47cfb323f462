"""Tables at the edge: each is learned, or refused before any training."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from combutab import CTGAN, TVAE, TabFlow
from combutab.preprocessing import ModeEncoder
from tests.generators.small import EVERY, make

RNG = np.random.default_rng(0)


@EVERY
@pytest.mark.parametrize(
    "column",
    [
        RNG.normal(size=50),
        RNG.choice(["a", "b"], 50),
        np.full(50, np.nan),
        np.full(50, None),
        pd.array([None] * 50, dtype="Int64"),
        np.full(50, np.datetime64("NaT", "ns")),
    ],
    ids=["numbers", "texts", "NaN", "None", "NA", "NaT"],
)
def test_fifty_rows_of_one_column(cls, column):
    table = pd.DataFrame({"only": column})
    made = make(cls).fit(table).sample(20)
    assert made.shape == (20, 1)
    assert made.dtypes.equals(table.dtypes)
    if table["only"].isna().all():
        assert made["only"].isna().all()
    else:
        assert made["only"].notna().all()


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
        ([[1], [2]], "'bad' holds values that are not hashable"),
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


def test_a_hundred_thousand_categories_are_encoded_in_linear_memory():
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


@pytest.mark.parametrize("cls", [CTGAN, TVAE])
def test_networks_that_no_memory_holds_are_refused(cls, monkeypatch):
    table = pd.DataFrame({"id": [f"u{i}" for i in range(3000)], "x": np.arange(3000.0)})
    monkeypatch.setattr("combutab.generators._base.memory_of", lambda device: 2**20)
    model = make(cls, min_frequency=1, identifiers=None)
    with (
        pytest.warns(UserWarning, match="most values of 'id' are there once"),
        pytest.raises(ValueError, match=r"column 'id' has 3,000 categories: .* GiB .* leave the"),
    ):
        model.fit(table)
    assert not hasattr(model, "encoder_")
    monkeypatch.setattr("combutab.generators._base.memory_of", lambda device: None)
    with pytest.warns(UserWarning, match="are there once"):
        model.fit(table[:100])  # the system does not tell
