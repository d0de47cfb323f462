"""Rows balanced by a column, and rows of which some columns are given."""

import numpy as np
import pandas as pd
import pytest

from combutab import CTGAN, TVAE
from combutab.generators import ShortfallError

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
    widths = (
        {"compress_dims": (8,), "decompress_dims": (8,)}
        if request.param is TVAE
        else {"generator_dim": (8,), "discriminator_dim": (8,), "batch_size": 20}
    )
    return request.param(epochs=2, embedding_dim=4, random_state=0, **widths).fit(make_table())


def counts(rows):
    return rows["kind"].value_counts(dropna=False).to_dict()


def test_each_value_has_as_many_rows_the_missing_one_too(model):
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


def test_the_order_is_random_and_the_seeds(model):
    rows = model.sample(60, balance="kind", random_state=1)
    assert rows["kind"][:15].nunique(dropna=False) > 1
    pd.testing.assert_frame_equal(rows, model.sample(60, balance="kind", random_state=1))
    assert not rows.equals(model.sample(60, balance="kind", random_state=2))


def test_conditions_on_other_columns_are_met(model):
    conditions = {"side": "left", "level": (1.0, 4.0), "count": 3}
    rows = model.sample(20, balance="kind", conditions=conditions, random_state=0)
    assert counts(rows) == {"a": 5, "b": 5, "c": 5, None: 5}
    assert set(rows["side"]) == {"left"}
    assert rows["level"].between(1, 4).all()
    assert set(rows["count"]) == {3}


def test_rows_that_are_not_found_are_told(model):
    ask = {"balance": "kind", "conditions": {"level": (1.5, 1.5000001)}, "max_tries": 1}
    with pytest.raises(ShortfallError, match=r"met the conditions \['level', 'kind'\]") as error:
        model.sample(400, **ask, random_state=0)
    assert len(error.value.rows) < 400
    with pytest.warns(UserWarning, match="only"):
        rows = model.sample(400, **ask, random_state=0, on_shortfall="return")
    pd.testing.assert_frame_equal(rows, error.value.rows)


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"balance": "level"}, "'level' is continuous.*discrete_columns"),
        ({"balance": "constant"}, "'constant' is constant"),
        ({"balance": "knid"}, "'knid'.*'kind'"),
        ({"balance": "kind", "conditions": {"kind": "a"}}, "'kind' is in balance and in cond"),
    ],
)
def test_what_cannot_be_balanced_is_refused(params, error, model):
    with pytest.raises(ValueError, match=error):
        model.sample(10, **params)


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


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({}, "n must be a whole number of rows, got None; give it, or seed_data"),
        ({"n": 3}, "n=3 does not fit seed_data, which has 2 rows; leave n out"),
        ({"conditions": {"kind": "a"}}, "seed_data is given with conditions, balance or out"),
        ({"balance": "kind"}, "seed_data is given with conditions, balance or out"),
        ({"condition_column": "kind"}, "seed_data is given with conditions, balance or out"),
    ],
)
def test_seed_data_says_all_that_is_asked(params, error, model):
    seeds = {"seed_data": pd.DataFrame({"side": ["left", "right"]})} if params else {}
    with pytest.raises(ValueError, match=error):
        model.sample(**params, **seeds)
