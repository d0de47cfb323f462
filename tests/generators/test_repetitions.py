"""Columns that have the value of another column in many rows: found, learned, and kept."""

import pickle

import numpy as np
import pandas as pd
import pytest

from combutab import CTGAN, TabFlow, load
from combutab.generators._learned_columns import find_repetitions
from combutab.generators.completion import Rules
from combutab.generators.constraints import Inequality, Unique
from combutab.preprocessing import Table

ROWS = 600


def invoices(seed=0):
    """Of three invoices in ten the whole amount is paid, and of four in ten on the day."""
    rng = np.random.default_rng(seed)
    bill = np.round(rng.lognormal(8, 1, ROWS)).astype(int)
    whole, at_once = rng.random(ROWS) < 0.3, rng.random(ROWS) < 0.4
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 2000, ROWS), unit="D")
    later = day + pd.to_timedelta(rng.integers(1, 300, ROWS), unit="D")
    return pd.DataFrame(
        {
            "bill": bill,
            "paid": np.where(whole, bill, np.round(bill * rng.random(ROWS)).astype(int)),
            "kind": rng.choice(["a", "b"], ROWS),
            "day": day,
            "paid_on": pd.Series(np.where(at_once, day, later)),
        }
    )


TABLE = invoices()


@pytest.fixture(scope="module")
def model():
    return TabFlow((32,), epochs=15, batch_size=50, learning_rate=4e-3, random_state=0).fit(TABLE)


def share(table, one="bill", other="paid"):
    return float((table[one] == table[other]).mean())


# ---- which columns -------------------------------------------------------------------------------


def found(apart=(), **columns):
    table = Table(pd.DataFrame(columns))
    return [set(each) for each in find_repetitions(table.columns_by_name(), apart)]


def test_numbers_and_dates_are_found():
    columns = Table(TABLE).columns_by_name()
    assert [set(each) for each in find_repetitions(columns)] == [
        {"day", "paid_on"},
        {"bill", "paid"},
    ]
    assert find_repetitions(columns, {"paid", "day"}) == []
    assert find_repetitions({name: column[:99] for name, column in columns.items()}) == []


@pytest.mark.parametrize(
    "dtype",
    ["date32[day][pyarrow]", "timestamp[us][pyarrow]", "datetime64[s]", "datetime64[ns, UTC]"],
)
def test_dates_of_any_dtype_repeat(dtype):
    table = TABLE[["day", "paid_on"]].astype("datetime64[ns]")
    table = (
        table.apply(lambda c: c.dt.tz_localize("UTC")) if "UTC" in dtype else table.astype(dtype)
    )
    table.loc[:20, "day"] = pd.NaT
    model = TabFlow((16,), epochs=1, batch_size=50, learning_rate=4e-3, random_state=0).fit(table)
    assert [*model.rules_.repetitions.values()] == [("paid_on", "day")]
    made = model.sample(100, random_state=0)
    assert made.dtypes.equals(table.dtypes)
    assert (made["day"] == made["paid_on"]).sum() > 15
    assert not model.impute(table[:50], random_state=0)["day"].isna().any()


def test_what_is_equal_by_chance_is_not_found():
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    small = rng.integers(0, 30, (2, 400))
    assert found(x=x, y=rng.normal(size=400)) == []
    assert found(x=small[0], y=np.where(x < 0, small[0], small[1])) == []  # few values
    assert found(x=np.where(x < 1, 0, x), y=np.where(x < 1, 0, -x)) == []  # zeros
    assert found(x=x, y=np.where(x < -2, x, -x)) == []  # too few rows
    ids = np.arange(400)
    assert found(x=ids, y=np.where(x < 0, ids, rng.permutation(ids))) == []
    moments = pd.Series(TABLE["day"][:400])
    assert found(x=moments, y=moments.dt.tz_localize("Europe/Paris")) == []


def test_of_many_columns_fewer_rows_are_compared():
    x = np.random.default_rng(0).normal(size=(3000, 900))
    x[::5, 800] = x[::5, 3]  # the rows that are compared are a part of these, or of the others
    x[: len(x) // 2, 700] = x[: len(x) // 2, 5]
    assert find_repetitions(Table(x).columns_by_name()) == [(700, 5), (800, 3)]


def test_gaps_are_equal_to_nothing():
    x = np.random.default_rng(0).normal(size=400)
    gaps = np.where(np.arange(400) < 200, np.nan, x)
    assert found(x=gaps, y=np.where(np.arange(400) < 200, np.nan, -x)) == []
    assert found(x=gaps, y=x) == [{"x", "y"}]


def test_no_column_is_found_by_way_of_itself():
    x = np.random.default_rng(0).normal(size=(400, 3))
    x[:100] = x[:100, :1]
    pairs = find_repetitions(Table(x).columns_by_name())
    assert len(pairs) == 2
    assert len({column for column, _ in pairs}) == 2
    source = dict(pairs)
    (end,) = {0, 1, 2} - set(source)
    assert all(end in (source[j], source.get(source[j])) for j in source)


# ---- rows that are made --------------------------------------------------------------------------


def test_rows_repeat_as_often_as_the_tables(model):
    made = model.sample(1000, random_state=1)
    assert list(made) == list(TABLE)
    assert made.dtypes.equals(TABLE.dtypes)
    assert abs(share(made) - share(TABLE)) < 0.1
    assert abs(share(made, "day", "paid_on") - share(TABLE, "day", "paid_on")) < 0.1
    bounds = model.encoder_.columns_[1].bounds  # of "paid", to which "bill" is copied
    assert made["paid"].between(*bounds).all()


@pytest.mark.parametrize("name", ["bill", "paid"])
def test_conditions_hold_and_the_other_column_repeats(model, name):
    made = model.sample(400, conditions={name: 2000}, random_state=1)
    assert (made[name] == 2000).all()
    assert 0.1 < share(made) < 0.7
    inside = model.sample(400, conditions={name: (1000, 3000)}, random_state=1)
    assert inside[name].between(1000, 3000).all()
    assert 0.1 < share(inside) < 0.7


def test_conditions_on_both_columns_hold(model):
    made = model.sample(100, conditions={"paid": 900, "bill": 2000}, random_state=1)
    assert (made["paid"] == 900).all()
    assert (made["bill"] == 2000).all()
    made = model.sample(100, conditions={"paid": (500, 900), "bill": (800, 2000)}, random_state=1)
    assert made["paid"].between(500, 900).all()
    assert made["bill"].between(800, 2000).all()
    wanted = pd.DataFrame({"paid": [900, None, 800], "bill": [None, 2000, 800]})
    made = model.sample_from(wanted, random_state=1)
    assert made["paid"].tolist()[::2] == [900, 800]
    assert made["bill"].tolist()[1:] == [2000, 800]


def test_shares_are_exact(model):
    made = model.sample(200, shares={"paid": {(0, 1000): 0.5, (1000, 9000): 0.5}}, random_state=1)
    assert made["paid"].between(0, 1000).sum() >= 100
    assert len(made) == 200


def test_imputed_cells_repeat(model):
    holes = TABLE.astype({"bill": float, "paid": float})
    holes.loc[:199, "paid"] = np.nan
    holes.loc[200:399, "bill"] = np.nan
    filled = model.impute(holes, random_state=0)
    assert not filled.isna().any(axis=None)
    kept = holes.notna()
    assert filled[kept].equals(holes[kept])
    assert list(filled) == list(TABLE)
    assert share(filled[:200]) > 0.1
    assert share(filled[200:400]) > 0.1


# ---- what a fit keeps ----------------------------------------------------------------------------


def test_saved_and_pickled_models_make_the_same_rows(model, tmp_path):
    model.save(tmp_path / "model.combutab")
    rows = model.sample(50, random_state=3)
    for other in (load(tmp_path / "model.combutab"), pickle.loads(pickle.dumps(model))):
        assert other.sample(50, random_state=3).equals(rows)
        assert other.rules_.repetitions == model.rules_.repetitions


@pytest.mark.parametrize("pairs", [[[6, 0]], [[0, 1, 1]], [[0, 1]] * 6, [["a", "b"]]])
def test_files_cannot_hold_other_pairs(model, pairs):
    learned = model.rules_.to_dict() | {"repetitions": pairs}
    with pytest.raises(ValueError, match=r"repea?t|differences"):
        Rules.restore((), model.encoder_, learned)


def test_rows_in_files_are_those_in_memory(tmp_path):
    TABLE.to_parquet(tmp_path / "table.parquet")
    options = {"hidden_layer_sizes": (8,), "epochs": 1, "random_state": 0}
    streamed = TabFlow(**options).fit_parquet(tmp_path / "table.parquet")
    assert streamed.rules_.repetitions
    assert streamed.sample(30).equals(TabFlow(**options).fit(TABLE).sample(30))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_arrays(dtype):
    X = TABLE[["bill", "paid"]].to_numpy(dtype)
    model = TabFlow((32,), epochs=5, batch_size=50, learning_rate=8e-3, random_state=0).fit(X)
    assert model.rules_.repetitions == {2: (1, 0)}
    made = model.sample(1000, random_state=0)
    assert made.shape == (1000, 2)
    assert made.dtype == X.dtype
    assert abs((made[:, 0] == made[:, 1]).mean() - share(TABLE)) < 0.15


def test_the_table_is_not_changed():
    table = pd.DataFrame({"x": TABLE["bill"] / 7, "y": TABLE["paid"] / 7})
    before = table.copy(deep=True)
    TabFlow((8,), epochs=1, random_state=0).fit(table)
    assert table.equals(before)


def test_columns_of_constraints_and_categories_are_left_out():
    rule = Inequality("paid", "<=", "bill")
    model = TabFlow((8,), epochs=1, constraints=[rule], random_state=0).fit(TABLE)
    assert [*model.rules_.repetitions.values()] == [("paid_on", "day")]
    made = model.sample(100)
    assert rule.check(made).all()
    model = TabFlow((8,), epochs=1, constraints=[Unique("bill", "day")], random_state=0).fit(TABLE)
    assert len(model.rules_.repetitions) == 2
    assert not model.sample(300).duplicated(["bill", "day"]).any()
    table = TABLE[["bill", "paid"]].assign(paid=TABLE["paid"] // 100, bill=TABLE["bill"] // 100)
    model = TabFlow((8,), epochs=1, min_frequency=1, random_state=0).fit(table, ["paid"])
    assert model.rules_.repetitions == {}


def test_identifiers_are_not_repeated():
    rng = np.random.default_rng(0)
    n = 21_000
    order = np.arange(n)  # consecutive, which the rows that are looked at are not
    parent = np.where(rng.random(n) < 0.2, order, rng.integers(0, n, n))
    table = pd.DataFrame({"order": order, "parent": parent})
    with pytest.warns(UserWarning, match="'order' holds identifiers"):
        made = TabFlow((8,), epochs=1, random_state=0).fit(table).sample(100)
    assert made["order"].min() >= n
    with pytest.warns(UserWarning, match="'bill' holds identifiers"):
        model = TabFlow((8,), epochs=1, identifiers=["bill"], random_state=0).fit(TABLE)
    made = model.sample(100)
    assert made["bill"].is_unique
    assert share(made, "day", "paid_on") > 0.1
    for other in (pickle.loads(pickle.dumps(model)), model):
        assert not (other.sample(50, random_state=0)["bill"].isin(TABLE["bill"])).any()


@pytest.mark.parametrize("name", ["paid = bill", "salary"])
def test_learned_columns_cannot_be_conditioned_on(model, name):
    told = rf"there is no column '{name}'(; did you mean 'paid'\?|.*'paid_on')$"
    for wanted in ({"conditions": {name: 1}}, {"shares": {name: {1: 0.5}}}):
        with pytest.raises(ValueError, match=told):
            model.sample(5, **wanted)
    with pytest.raises(ValueError, match=told):
        model.sample_from(pd.DataFrame({name: [1.0]}))


def test_a_name_that_is_taken_gets_another_one():
    table = TABLE[["bill", "paid"]].assign(**{"paid = bill": 1.5 * np.arange(ROWS)})
    model = TabFlow((8,), epochs=1, random_state=0).fit(table)
    assert [*model.rules_.repetitions] == ["paid = bill_"]
    assert list(model.sample(5)) == list(table)


def test_the_published_models_learn_the_table_alone():
    assert CTGAN(epochs=1, random_state=0).fit(TABLE[["bill", "paid"]]).rules_.repetitions == {}
