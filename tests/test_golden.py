"""Golden values: their digests see every bit, and cases that fail are named."""

import hashlib

import numpy as np
import pandas as pd
import pytest

from tests import golden


def digest(thing):
    sha = hashlib.sha256()
    golden.feed(sha, thing)
    return sha.hexdigest()


@pytest.mark.parametrize(
    ("thing", "other"),
    [
        (np.array([0.1 + 0.2]), np.array([0.3])),
        (np.zeros(4), np.zeros((2, 2))),
        (np.zeros(2, np.float32), np.zeros(2, np.int32)),
        (pd.Series([1, 2]), pd.Series([1, 2], dtype="Int64")),
        (pd.DataFrame({"a": [0.3]}), pd.DataFrame({"a": [0.1 + 0.2]})),
        ({"a": 1.0}, {"b": 1.0}),
        ([1, "2"], [1, 2]),
    ],
)
def test_a_digest_sees_values_types_and_shapes(thing, other):
    assert digest(thing) == digest(thing) != digest(other)


@pytest.mark.slow
def test_cases_are_computed_with_the_package_of_a_checkout(monkeypatch):
    def fails(folder):
        raise ValueError("no such thing")

    monkeypatch.setitem(golden.CASES, "fails", fails)
    here = golden.compute(["formulas", "fails"])
    assert here["fails"] == "ValueError: no such thing"
    there = golden.compute_at(golden.ROOT, ["formulas"])
    assert there["formulas"] == here["formulas"]
    assert len(there["formulas"]) == 64
    assert golden.differences({"a": "1", "b": "2"}, {"a": "1", "b": "3"}) == ["b"]
