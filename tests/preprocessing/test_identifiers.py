"""Which columns are identifiers, and what is made in their place."""

import uuid

import numpy as np
import pandas as pd
import pytest

from combutab.preprocessing import ModeEncoder, find_identifiers, rows_needed

N = 200
RNG = np.random.default_rng(0)
WHOLE = RNG.permutation(10**6)[:N]  # of which none is there twice, and which count nothing

IDENTIFIERS = {
    "rows": (pd.Series(range(N)), "integer"),
    "rows from 1": (pd.Series(np.arange(1, N + 1), dtype="int32"), "integer"),
    "rows in any order": (pd.Series(RNG.permutation(N) + 7000), "integer"),
    "two of three rows": (pd.Series(np.sort(RNG.permutation(300)[:N])), "integer"),
    "nullable": (pd.Series([*range(N), None], dtype="Int64"), "integer"),
    "objects": (pd.Series(list(range(N)), dtype=object), "integer"),
    "below zero": (pd.Series(np.arange(-N, 0)), "integer"),
    "id": (pd.Series(WHOLE, name="id"), "integer"),
    "CustomerID": (pd.Series(WHOLE, name="CustomerID"), "integer"),
    "phone number": (pd.Series(WHOLE + 10**10, name="phone number"), "integer"),
    "account_no": (pd.Series(WHOLE, name="account_no"), "integer"),
    "id with missing ones": (pd.Series([*WHOLE, np.nan], name="user_id"), "integer"),
    "names": (pd.Series([f"Person {i}" for i in WHOLE]), "text"),
    "names, some twice": (pd.Series([f"Person {i // 2}" for i in range(N)]), "text"),
    "digits": (pd.Series([f"{i:08d}" for i in WHOLE]), "text"),
    "phones": (pd.Series([f"+49 {i} 4711" for i in WHOLE]), "text"),
    "string": (pd.Series([f"k{i}" for i in WHOLE], dtype="string"), "text"),
    "categories": (pd.Series([f"k{i}" for i in WHOLE], dtype="category"), "text"),
    "text with missing ones": (pd.Series([*(f"k{i}" for i in WHOLE), None]), "text"),
    "made before": (pd.Series([f"id-{i:06d}" for i in range(N)]), "text"),
    "addresses": (pd.Series([f"p{i}@mail.org" for i in WHOLE]), "email"),
    "UUIDs": (pd.Series([str(uuid.UUID(int=int(i))) for i in WHOLE]), "uuid"),
    "UUID objects": (pd.Series([uuid.UUID(int=int(i)) for i in WHOLE]), "uuid object"),
}
OTHERS = {
    "measurements": pd.Series(RNG.normal(size=N)),
    "whole floats": pd.Series(np.arange(float(N))),
    "measurements called id": pd.Series(RNG.normal(size=N), name="id"),
    "amounts": pd.Series(WHOLE, name="amount"),
    "population": pd.Series(WHOLE * 1000, name="population"),
    "number of rooms": pd.Series(WHOLE, name="number"),
    "valid": pd.Series(WHOLE, name="valid"),
    "few rows": pd.Series(range(49)),
    "few names": pd.Series([f"p{i}" for i in range(49)]),
    "one of three rows": pd.Series(np.sort(RNG.permutation(600)[:N])),
    "one twice": pd.Series([0, *range(N)], name="id"),
    "bytes": pd.Series(np.arange(-128, 128), dtype="int8"),
    "no room above": pd.Series(np.uint64(2**64 - 1) - np.arange(N, dtype=np.uint64), name="id"),
    "cities": pd.Series(RNG.choice(["Oslo", "Rome", "Bern"], N)),
    "one in ten is frequent": pd.Series(["Rome"] * 20 + [f"x{i}" for i in range(180)]),
    "truth": pd.Series([True, False] * N),
    "days": pd.Series(pd.date_range("2020-01-01", periods=N)),
    "numbers as text": pd.Series([f"{i / 1000:.3f}" for i in WHOLE]),
    "commas": pd.Series([f"{i},5" for i in WHOLE]),
    "money": pd.Series([f"$ {i / 100:,.2f}" for i in WHOLE]),
    "days as text": pd.Series([f"2020-{i % 12 + 1:02d}-{i % 28 + 1:02d}" for i in range(N)]),
    "missing": pd.Series([None] * N),
    "tuples": pd.Series([(i, i) for i in range(N)]),
}


def listed(column):
    """New identifiers of a column that is listed as one of identifiers."""
    encoder = ModeEncoder(identifiers=["x"], random_state=0).fit(column.to_frame("x"))
    return encoder.columns_[0].made


@pytest.mark.parametrize("name", IDENTIFIERS)
def test_new_identifiers_are_not_real_ones(name):
    column, kind = IDENTIFIERS[name]
    found = find_identifiers(column)
    assert found is not None
    assert found.kind == kind
    assert listed(column) == found
    made = found.make(5000)
    assert len(set(made)) == 5000
    assert not set(made) & set(column.dropna())
    assert not {str(each).casefold() for each in made} & {str(v).casefold() for v in column}
    if kind == "integer":
        assert min(made) > column.max()
        dtype = np.int64 if column.dtype.kind in "Of" else column.dtype
        assert pd.Series(made).astype(dtype).tolist() == made
    if "uuid" in kind:
        assert {uuid.UUID(str(each)).version for each in made} == {4}
        assert {type(each) for each in made} == {type(column[0])}


@pytest.mark.parametrize("name", OTHERS)
def test_other_columns_are_not_taken_for_identifiers(name):
    assert find_identifiers(OTHERS[name]) is None


def test_the_greatest_identifier_is_not_told():
    starts = {find_identifiers(pd.Series(range(10_000, high))).start for high in (10_110, 10_777)}
    assert starts == {11_000}


def test_new_identifiers_of_negative_ones_start_at_zero():
    X = pd.DataFrame({"id": np.arange(-5000, -4000)})
    encoder = ModeEncoder(identifiers="auto").fit(X)
    rows = encoder.decode(np.empty((2, 0)), np.empty((2, 0), dtype=int))
    assert rows["id"].tolist() == [0, 1]
    arrays, meta = encoder.to_state()
    assert ModeEncoder.from_state(arrays, meta).columns_[0].made == encoder.columns_[0].made


def test_min_frequency_is_count_or_share():
    thrice = pd.Series([f"p{i // 3}" for i in range(300)])
    assert find_identifiers(thrice, min_frequency=3) is None
    assert find_identifiers(thrice, min_frequency=4) is not None
    assert find_identifiers(thrice, min_frequency=0.01) is None
    assert find_identifiers(thrice, min_frequency=0.011) is not None
    once = thrice.drop_duplicates()
    assert find_identifiers(once, min_frequency=1) is not None  # a value a row
    assert [rows_needed(f, 30) for f in (0.1, 0.101, 1, 0.001)] == [3, 4, 1, 1]


@pytest.mark.parametrize("name", ["measurements", "days", "tuples", "no room above", "truth"])
def test_what_no_identifiers_can_be_made_for(name):
    with pytest.raises(ValueError, match=r"'x'.*identifiers"):
        listed(OTHERS[name])
    assert listed(OTHERS["amounts"]).kind == "integer"
    assert listed(OTHERS["cities"]).make(1) == ["id-000001"]
