"""Rows balanced by a column, and rows of which some columns are given."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from combutab import CTGAN, TVAE, TabFlow
from combutab.generators import ShortfallError
from tests.generators.small import make

N = 200


def make_table():
    rng = np.random.default_rng(0)
    kind = pd.Series(rng.choice(["a", "b", "c"], N, p=[0.8, 0.12, 0.08])).astype(object)
    kind[:12] = None
    kind[12] = "seldom"
    return pd.DataFrame(
        {
            "kind": kind,
            "level": rng.choice([1.5, 2.5, 4.0], N) + rng.normal(size=N),
            "side": rng.choice(["left", "right"], N),
            "count": rng.integers(0, 9, N),
            "constant": "k",
        }
    )


@pytest.fixture(scope="module", params=[CTGAN, TVAE])
def model(request):
    return make(request.param).fit(make_table())


def counts(rows):
    return rows["kind"].value_counts(dropna=False).to_dict()


def test_balanced_values_have_equal_counts_including_missing(model):
    rows = model.sample(40, balance="kind", random_state=0)
    assert counts(rows) == {"a": 10, "b": 10, "c": 10, None: 10}
    assert rows.dtypes.to_dict() == make_table().dtypes.to_dict()
    assert list(rows.index) == list(range(40))


@pytest.mark.parametrize(
    ("n", "expected"), [(43, [11, 11, 11, 10]), (5, [2, 1, 1, 1]), (2, [1, 1]), (0, [])]
)
def test_the_first_values_have_one_more(n, expected, model):
    rows = model.sample(n, balance="kind", random_state=0)
    assert len(rows) == n
    assert list(rows) == list(make_table())
    found = counts(rows)
    assert [found[kind] for kind in ["a", "b", "c", None] if kind in found] == expected


def test_conditions_on_other_columns_are_met(model):
    conditions = {"side": "left", "level": (1.0, 4.0), "count": 3}
    rows = model.sample(20, balance="kind", conditions=conditions, random_state=0)
    assert counts(rows) == {"a": 5, "b": 5, "c": 5, None: 5}
    assert set(rows["side"]) == {"left"}
    assert rows["level"].between(1, 4).all()
    assert set(rows["count"]) == {3}


def test_rows_that_are_not_found_are_told(model):
    ask = {"balance": "kind", "conditions": {"level": (1.5, 1.5000001)}, "max_tries": 1}
    with pytest.raises(ShortfallError, match=r"\['level', 'kind'\]") as error:
        model.sample(400, **ask, random_state=0)
    assert len(error.value.rows) < 400
    with pytest.warns(UserWarning, match="only"):
        rows = model.sample(400, **ask, random_state=0, on_shortfall="return")
    pd.testing.assert_frame_equal(rows, error.value.rows)


def seeds(**columns):
    return {"seed_data": pd.DataFrame(columns)}


SIDES = seeds(side=["left", "right"])
ALONE = "seed_data cannot be combined with conditions, balance, shares or out"


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"n": 10, "balance": "level"}, "'level' is continuous.*discrete_columns"),
        ({"n": 10, "balance": "constant"}, "'constant' is constant"),
        ({"n": 10, "balance": "knid"}, "'knid'.*'kind'"),
        ({"n": 10, "balance": "kind", "conditions": {"kind": "a"}}, "'kind' is in balance and in"),
        ({}, "n must be a whole number of rows, got None; give it, or seed_data"),
        (SIDES | {"n": 3}, "n=3 does not fit seed_data, which has 2 rows; leave n out"),
        (SIDES | {"conditions": {"kind": "a"}}, ALONE),
        (SIDES | {"balance": "kind"}, ALONE),
        (SIDES | {"shares": {"kind": {"a": 1.0}}}, ALONE),
        (SIDES | {"condition_column": "kind"}, ALONE),
        ({"seed_data": ["left"]}, "seed_data must be a DataFrame, got list"),
        (seeds(level=["many"]), "'many' is not a value of 'level'"),
        (seeds(level=[2.5, -np.inf]), "'level' is given as -inf; leave such cells missing"),
        (seeds(side=[["left"]]), "conditions on 'side' must be single values"),
    ],
)
def test_what_cannot_be_balanced_is_refused(params, error, model):
    with pytest.raises(ValueError, match=error):
        model.sample(**params)


def test_identifiers_cannot_be_balanced():
    table = make_table().assign(id=[f"{i:05}@mail.org" for i in range(N)])
    model = TVAE(epochs=1, compress_dims=(4,), decompress_dims=(4,), random_state=0)
    with pytest.warns(UserWarning, match="identifiers"):
        model.fit(table)
    with pytest.raises(ValueError, match="'id' holds identifiers"):
        model.sample(10, balance="id")
    assert model.sample(9, balance="side")["id"].is_unique


def test_seed_data_gives_some_columns(model):
    seeds = pd.DataFrame(
        {"side": ["left", None, "right"] * 5, "kind": ["a", "c", None] * 5},
        index=range(15, 0, -1),
    )
    rows = model.sample(seed_data=seeds, random_state=0)
    pd.testing.assert_index_equal(rows.index, seeds.index)
    given = seeds["side"].notna()
    assert rows["side"][given].tolist() == seeds["side"][given].tolist()
    assert set(rows["side"][~given]) <= {"left", "right"}
    assert rows["kind"][seeds["kind"].notna()].tolist() == ["a", "c"] * 5
    pd.testing.assert_frame_equal(rows, model.sample_from(seeds, random_state=0))
    pd.testing.assert_frame_equal(rows, model.sample(15, seed_data=seeds, random_state=0))


def _own_table():
    """A table with a lone extreme, a rare category, and moments finer than floats count."""
    rng = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "size": rng.normal(size=N),
            "count": np.arange(N, dtype="uint8") % 10,
            "when": pd.date_range("2020", "2021", N),
            "kind": rng.choice(list("ab"), N),
        }
    )
    table.loc[0, ["size", "kind"]] = 9.0, "rare"
    return table


@pytest.mark.parametrize(
    "kind",
    [
        partial(TabFlow, hidden_layer_sizes=(8,)),
        partial(TVAE, compress_dims=(4,), decompress_dims=(4,), argmax=False),
    ],
)
def test_seed_data_may_be_of_the_learned_table(kind):
    table = _own_table()
    model = kind(epochs=1, random_state=0).fit(table)
    for column in ("size", "count", "when", "kind"):
        seeds = table[[column]][::-1]
        if column in ("count", "when"):  # no value of these is beyond bounds
            rows = model.sample(seed_data=seeds, random_state=0)
        else:
            with pytest.warns(UserWarning, match=f"'{column}'"):
                rows = model.sample(seed_data=seeds, random_state=0)
        pd.testing.assert_frame_equal(rows[[column]], seeds)
        assert rows.dtypes.equals(table.dtypes)
        assert not rows.isna().any(axis=None)


def test_unseen_seed_numbers_condition_by_the_nearest():
    x = np.linspace(-1, 1, 4000)
    table = pd.DataFrame({"x": x, "side": np.where(x > 0, "right", "left")})
    model = TabFlow(epochs=15, hidden_layer_sizes=(32,), random_state=0).fit(table)
    seeds = pd.DataFrame({"x": [-300, 300] * 50})
    with pytest.warns(UserWarning, match=r"-300.*'x'.*100"):
        rows = model.sample(seed_data=seeds, random_state=0)
    assert rows["x"].tolist() == seeds["x"].tolist()
    assert (rows["side"] == np.where(seeds["x"] > 0, "right", "left")).mean() > 0.9
    with pytest.raises(ValueError, match="'x' is never -300"):
        model.sample_from(seeds)


def test_seed_data_may_widen_the_array_dtype():
    X = np.random.default_rng(0).integers(0, 9, size=(N, 2)).astype("int8")
    model = TVAE(epochs=1, compress_dims=(4,), decompress_dims=(4,), random_state=0).fit(X)
    with pytest.warns(UserWarning, match=r"1000.*1"):
        rows = model.sample(seed_data=pd.DataFrame({1: [1000, 3]}), random_state=0)
    assert rows[:, 1].tolist() == [1000, 3]
    assert isinstance(rows, np.ndarray)
