"""Splits of databases into training and held-out families."""

import numpy as np
import pandas as pd
import pytest

from combutab.preprocessing import split_tables

KEYS = [("visits", "who", "people"), ("items", "visit", "visits"), ("visits", "ward", "wards")]


def make_tables():
    rng = np.random.default_rng(0)
    visits = pd.DataFrame({"visit": range(60), "who": rng.integers(0, 20, 60).astype(float)})
    visits["ward"] = rng.integers(0, 3, 60)
    visits.loc[::10, "who"] = np.nan
    items = pd.DataFrame({"visit": rng.integers(0, 60, 100), "price": rng.normal(size=100)})
    wards = pd.DataFrame({"ward": range(3)})
    people = pd.DataFrame({"who": range(20), "age": rng.normal(size=20)})
    return {"people": people, "visits": visits, "items": items, "wards": wards}


def test_children_follow_their_parents():
    tables = make_tables()
    train, test = split_tables(tables, KEYS, test_size=0.25, lookup=["wards"], random_state=1)
    assert (len(train["people"]), len(test["people"])) == (15, 5)
    for part in (train, test):
        assert part["visits"]["who"].dropna().isin(part["people"]["who"]).all()
        assert part["items"]["visit"].isin(part["visits"]["visit"]).all()
        pd.testing.assert_frame_equal(part["wards"], tables["wards"])
    for name in ("people", "visits", "items"):
        together = pd.concat([train[name], test[name]]).sort_index()
        pd.testing.assert_frame_equal(together, tables[name])


def test_same_seed_gives_same_split():
    first, again, other = (
        split_tables(make_tables(), KEYS, lookup=["wards"], random_state=seed)[1]["people"]
        for seed in (0, 0, 1)
    )
    pd.testing.assert_frame_equal(first, again)
    assert not first.equals(other)


def test_parents_in_both_parts_are_refused():
    tables = make_tables()
    tables["items"]["who"] = np.arange(100) % 20
    with pytest.raises(ValueError, match=r"items\.who"):
        split_tables(tables, [*KEYS, ("items", "who", "people")], lookup=["wards"])


def test_empty_parts_are_refused():
    with pytest.raises(ValueError, match="'people'"):
        split_tables(make_tables(), KEYS, test_size=0.01, lookup=["wards"])
    with pytest.raises(ValueError, match="test_size"):
        split_tables(make_tables(), KEYS, test_size=2)
