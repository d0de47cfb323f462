"""Constraints: every row that a generator makes meets them, and what breaks one is named."""

import itertools
import pickle
import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import combutab
from combutab import CTGAN, TVAE, TabFlow
from combutab.generators import (
    FixedCombinations,
    Formula,
    Inequality,
    Null,
    OneOf,
    ShortfallError,
    Sum,
    TabFlowImputer,
    Unique,
    read_constraints,
    suggest_constraints,
    write_constraints,
)
from combutab.generators.expressions import Expression
from tests.generators.small import EVERY, make
from tests.short import BUDGET

CONSTRAINTS = [
    Inequality("start", "<", "end"),
    Inequality("low", "<=", "high"),
    Inequality("net", ">=", 1),
    Sum(["net", "tax"], "total"),
    Formula("bill", "total * months"),
    Formula("long", "months >= 6"),
    FixedCombinations("city", "country"),
    OneOf("red", "green", "blue"),
    Null("end", when="status == 'open'"),
]
COUNTRIES = {"Oslo": "Norway", "Bergen": "Norway", "Rome": "Italy", "Lyon": "France"}


def random_table(seed, n=160):
    """Rows that meet the constraints, in columns whose scales and dtypes differ by the seed."""
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1500, n), "D")
    end = start + pd.to_timedelta(rng.geometric(rng.uniform(0.02, 0.5), n), "D")
    status = rng.choice(["open", "done"], n)
    net = rng.integers(100, 10 ** rng.integers(3, 6), n) / 100
    tax = np.round(net * 0.19, 2)
    city = rng.choice(list(COUNTRIES), n)
    table = pd.DataFrame({"start": start, "end": pd.Series(end).where(status == "done")})
    table["status"], table["net"], table["tax"] = status, net, tax
    table["total"], table["months"] = np.round(net + tax, 2), rng.integers(1, 13, n)
    table["bill"] = (table["total"] * table["months"]).round(2)
    table["long"] = table["months"] >= 6
    table["city"], table["country"] = city, [COUNTRIES[each] for each in city]
    table["low"] = rng.normal(0, rng.uniform(0.1, 100), n)
    table["high"] = table["low"] + rng.exponential(0.1, n)
    colour = rng.choice(["red", "green", "blue"], n, p=[0.6, 0.3, 0.1])
    for name in ("red", "green", "blue"):
        table[name] = (colour == name).astype(rng.choice(["int8", "int64", "float64"]))
    return table.astype({"city": "category"} if seed % 2 else {})


def assert_met(rows, table):
    """All constraints hold, by independent arithmetic."""
    ended = rows["end"].notna()
    assert (rows["end"] > rows["start"])[ended].all()
    assert (rows["high"] >= rows["low"]).all()
    np.testing.assert_array_equal(rows["total"], (rows["net"] + rows["tax"]).round(2))
    assert ((rows["bill"] - rows["total"] * rows["months"]).abs() < 0.00501).all()
    assert (rows["long"].astype(bool) == (rows["months"] >= 6)).all()
    assert (rows["city"].map(COUNTRIES).astype(object) == rows["country"]).all()
    assert (rows[["red", "green", "blue"]].sum(axis=1) == 1).all()
    assert not ended[rows["status"] == "open"].any()
    for name in ("net", "total", "bill", "months", "start", "low", "high"):  # nor is any clipped
        low, high = table[name].min(), table[name].max()
        spread = (high - low) / 2
        assert rows[name].between(low - spread, high + spread).all()


CASES = [(TabFlow, TVAE, CTGAN)[i % 3] for i in range(2 if BUDGET == 1 else 3 * BUDGET)]


@pytest.fixture(scope="module", params=enumerate(CASES), ids=lambda p: f"{p[1].__name__}-{p[0]}")
def case(request):
    seed, cls = request.param
    table = random_table(seed)
    return make(cls, epochs=3, constraints=CONSTRAINTS).fit(table), table


@pytest.fixture
def model(case):
    return case[0]


@pytest.fixture
def table(case):
    return case[1]


# ---- rows ----------------------------------------------------------------------------------------


def test_rows_have_the_tables_schema_and_meet_all(model, table):
    rows = model.sample(200, random_state=1)
    assert_met(rows, table)
    assert rows.columns.tolist() == table.columns.tolist()
    assert (rows.dtypes == table.dtypes).all()
    assert model.feature_names_in_.tolist() == table.columns.tolist()
    assert model.n_features_in_ == table.shape[1]
    assert all(each.check(rows).all() for each in CONSTRAINTS)
    # TVAE makes the most probable, and a few epochs of it always that a date is missing
    assert isinstance(model, TVAE) or rows["end"].notna().any()
    assert rows["low"].nunique() > 190


def test_conditions_are_met_beside_them(model, table):
    middle, date = table["total"].median(), table["end"].dropna().median().normalize()
    for conditions in (
        {"total": (middle, None), "city": "Bergen"},
        {"end": (date, None)},
        {"start": (None, date), "status": "open", "country": ["Norway", "France"], "long": True},
        {"end": None, "red": 1},
        {"green": 0, "months": 3},
    ):
        rows = model.sample(6, conditions=conditions, random_state=2)
        assert len(rows) == 6
        assert_met(rows, table)
        for name, wanted in conditions.items():
            if isinstance(wanted, tuple):
                low, high = (each if each is not None else rows[name].iloc[0] for each in wanted)
                assert wanted[0] is None or (rows[name] >= low).all()
                assert wanted[1] is None or (rows[name] <= high).all()
            elif wanted is None:
                assert rows[name].isna().all()
            else:
                assert rows[name].isin(wanted if isinstance(wanted, list) else [wanted]).all()


def test_condition_on_one_number_meets_constraints(model, table):
    total = table["total"].iloc[3]
    rows = model.sample(2, conditions={"total": total}, random_state=3, max_tries=300)
    assert rows["total"].tolist() == [total] * 2
    assert_met(rows, table)


def test_each_row_of_conditions(model, table):
    given = table[["status", "city", "months"]].head(5)
    rows = model.sample_from(given, random_state=4, max_tries=300)
    pd.testing.assert_frame_equal(rows[given.columns], given)
    assert_met(rows, table)


def test_balanced_rows(model, table):
    rows = model.sample(12, balance="city", random_state=5)
    assert rows["city"].value_counts().tolist() == [3] * 4
    assert_met(rows, table)


def test_filled_cells(model, table):
    rng = np.random.default_rng(6)
    holes = table.head(15).mask(rng.random((15, table.shape[1])) < 0.15)
    for filled in model.impute(holes, n_draws=2, random_state=6):
        assert_met(filled, table)
        kept = holes.notna()
        assert (filled.astype(object).where(kept, 0) == holes.astype(object).where(kept, 0)).all(
            axis=None
        )
        lacking = filled.isna().sum()
        assert lacking.drop("end").sum() == 0
        assert lacking["end"] == (filled["end"].isna() & (filled["status"] == "open")).sum()


def test_imputation_computes_determined_cells():
    table = random_table(0)
    model = make(TVAE, constraints=CONSTRAINTS).fit(table)
    holes = table.head(40).astype({"months": "float64"})
    for name in ("total", "tax", "bill", "long"):
        one = holes.copy()
        one[name] = one[name].astype(object).where(np.arange(40) % 2 == 0).infer_objects()
        filled = model.impute(one, random_state=0)
        np.testing.assert_array_equal(
            filled[name].astype(float), table[name].head(40).astype(float)
        )


def test_flags_with_holes_are_filled():
    which = np.random.default_rng(0).integers(0, 3, 90)
    table = pd.DataFrame({f"is {k}": which == k for k in range(3)}).assign(x=np.arange(90) / 7)
    model = make(TVAE, constraints=[OneOf("is 0", "is 1", "is 2")]).fit(table)
    holes = table.astype(object).mask(np.random.default_rng(1).random(table.shape) < 0.3)
    filled = model.impute(holes.astype({"x": float}), random_state=0)
    assert (filled[["is 0", "is 1", "is 2"]].sum(axis=1) == 1).all()
    assert (filled["is 0"] == table["is 0"])[holes["is 0"].notna()].all()


def test_parquet_files_have_the_same_rows(model, table, tmp_path):
    for asked in ({}, {"conditions": {"city": "Rome"}}):
        model.sample(30, **asked, out=tmp_path / "rows.parquet", random_state=7)
        rows = pd.read_parquet(tmp_path / "rows.parquet")
        assert_met(rows, table)
        expected = model.sample(30, **asked, random_state=7)
        pd.testing.assert_frame_equal(rows, expected, check_dtype=False, check_categorical=False)


def test_files_pickles_and_clones_keep_them(model, table, tmp_path):
    model.save(tmp_path / "model")
    expected = model.sample(30, random_state=8)
    for again in (combutab.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert again.constraints == CONSTRAINTS
        pd.testing.assert_frame_equal(again.sample(30, random_state=8), expected)
    assert clone(model).get_params()["constraints"] == CONSTRAINTS


def test_a_fit_from_files_learns_the_same(tmp_path):
    table = random_table(0)
    table.to_parquet(tmp_path / "table.parquet", row_group_size=70)
    models = [make(TVAE, constraints=CONSTRAINTS) for _ in range(2)]
    models[0].fit(table)
    models[1].fit_parquet(tmp_path / "table.parquet")
    one, other = (each.sample(40, random_state=9) for each in models)
    pd.testing.assert_frame_equal(one, other, check_dtype=False, check_categorical=False)
    table.loc[[130, 150], "total"] += 1
    table.to_parquet(tmp_path / "table.parquet", row_group_size=70)
    with pytest.raises(ValueError, match=r"2.*160.*131.*151"):
        make(TVAE, constraints=CONSTRAINTS).fit_parquet(tmp_path / "table.parquet")


@EVERY
def test_arrays(cls):
    rng = np.random.default_rng(0)
    a, b, gap = rng.integers(0, 1000, (3, 200)).astype(float)
    X = np.column_stack([a, b, a + b, a + gap + 1])
    model = make(cls, constraints=[Sum([0, 1], 2), Inequality(3, ">", 0)]).fit(X)
    rows = model.sample(30)
    assert rows.shape == (30, 4)
    np.testing.assert_array_equal(rows[:, 2], rows[:, 0] + rows[:, 1])
    assert (rows[:, 3] > rows[:, 0]).all()
    holes = np.where(rng.random((15, 4)) < 0.3, np.nan, X[:15])
    filled = model.impute(holes)
    assert filled.shape == (15, 4)
    np.testing.assert_array_equal(filled[:, 2], filled[:, 0] + filled[:, 1])


def test_polars_frames():
    pl = pytest.importorskip("polars")
    table = random_table(0)[["low", "high", "net", "tax", "total"]]
    constraints = [Inequality("low", "<=", "high"), Sum(["net", "tax"], "total")]
    model = make(TVAE, constraints=constraints).fit(pl.from_pandas(table))
    holes = pl.from_pandas(table.mask(np.random.default_rng(0).random(table.shape) < 0.3))
    filled = model.impute(holes)
    assert isinstance(filled, pl.DataFrame)
    assert filled.columns == table.columns.tolist()
    assert constraints[0].check(filled).all()
    assert constraints[1].check(filled).all()


@pytest.mark.parametrize("dtype", ["timestamp[ns][pyarrow]", "timestamp[us, tz=UTC][pyarrow]"])
def test_arrow_dates_with_missing_cells(dtype):
    pytest.importorskip("pyarrow")
    start = pd.Series(pd.date_range("2024-01-01", periods=60, tz="UTC" if "UTC" in dtype else None))
    end = start + pd.to_timedelta(np.arange(1, 61), unit="D")
    table = pd.DataFrame({"start": start.mask(start.index % 5 == 0), "end": end}).astype(dtype)
    rules = [Inequality("start", "<", "end"), Inequality("end", "<", "2030-01-01")]
    sampled = make(TVAE, constraints=rules).fit(table).sample(40)
    assert sampled.dtypes.tolist() == table.dtypes.tolist()
    for rule in rules:
        assert rule.check(sampled).all()


def test_differences_are_learned_not_left_over():
    rng = np.random.default_rng(0)
    start = rng.integers(0, 100_000, 600)
    table = pd.DataFrame({"start": start, "end": start + rng.integers(1, 10, 600)})
    constraints = [Inequality("start", "<", "end")]
    model = make(TVAE, epochs=20, constraints=constraints).fit(table)
    rows = model.sample(300, random_state=0)
    gaps = rows["end"] - rows["start"]
    assert gaps.between(1, 9).all()
    assert rows["start"].nunique() > 250
    # a condition on the higher column leaves them as they are
    rows = model.sample(50, conditions={"end": (20_000, 30_000)}, random_state=0)
    assert (rows["end"] - rows["start"]).between(1, 9).all()


@EVERY
@pytest.mark.filterwarnings("ignore:.*min_frequency")
def test_unique_rows(cls):
    rng = np.random.default_rng(0)
    cells = np.stack(np.meshgrid(list("uvwxyz"), list("abcdefghij")), -1).reshape(-1, 2)
    table = pd.DataFrame(cells, columns=["room", "day"]).sample(50, random_state=0)
    table["size"] = rng.normal(size=50)
    table["kind"], table["paid"] = rng.choice(["a", "b"], 50), rng.random(50) < 0.5
    model = make(cls, constraints=[Unique("room", "day")])
    model.fit(table)
    # rows that only show which kinds are paid take no room away from those that are kept
    shares = {"kind": {"a": 0.2, "b": 0.8}, "paid": {True: 0.5, False: 0.5}}
    for asked in ({}, {"balance": "room"}, {"shares": shares}):
        rows = model.sample(30, random_state=0, max_tries=1000, **asked)
        assert not rows.duplicated(["room", "day"]).any()
    assert rows["kind"].value_counts().to_dict() == {"b": 24, "a": 6}
    assert rows["paid"].sum() == 15
    with pytest.raises(ValueError, match=r"'room'.*'day'.*42"):
        model.sample(61)
    with pytest.raises(ValueError, match=r"'room'.*'day'.*7"):
        model.sample(8, conditions={"room": "u"})


def test_unique_integers_limit_the_number_of_rows():
    rng = np.random.default_rng(0)
    cells = np.stack(np.meshgrid(range(30), range(5)), -1).reshape(-1, 2)
    table = pd.DataFrame(cells, columns=["seat", "row"]).sample(120, random_state=0)
    table["x"] = rng.normal(size=120)
    model = make(TVAE, min_frequency=1, constraints=[Unique("seat", "row")]).fit(table)
    for n, conditions in [
        (151, {}),
        (51, {"seat": (-np.inf, 9)}),
        (11, {"seat": (27.5, None), "row": [0, 1, 2, 3, 4]}),
        (6, {"seat": 3}),
    ]:
        with pytest.raises(ValueError, match=f"allows only {n - 1} combinations"):
            model.sample(n, conditions=conditions)
    assert len(model.sample(30, conditions={"seat": (None, 9)}, random_state=0)) == 30


def test_missing_values_are_not_counted_as_unique():
    rows = [*itertools.product("abcdef", range(20)), *((None, i) for i in range(15)), ("z", 0)]
    table = pd.DataFrame(rows, columns=["room", "seat"]).astype({"seat": "category"})
    model = TVAE(epochs=1, random_state=0, constraints=[Unique("room", "seat")]).fit(table)
    assert model.encoder_.columns_[0].rare
    assert len(model.sample(30, conditions={"room": None})) == 30


@EVERY
def test_one_of_holds_under_conditions_and_shares(cls, tmp_path):
    rng = np.random.default_rng(0)
    which, text = rng.integers(0, 3, 90), rng.choice(["p", "q"], 90)
    table = pd.DataFrame({f"by {k}": np.where(which == k, text, None) for k in range(3)})
    table["x"] = rng.normal(size=90)
    constraint = OneOf("by 0", "by 1", "by 2")
    model = make(cls, constraints=[constraint]).fit(table)
    asked = pd.DataFrame({"by 1": ["p", None, "q"], "by 2": [None, "q", None]})
    for rows in (
        model.sample(40, conditions={"by 1": "p"}, random_state=0),
        model.sample(40, conditions={"by 1": ["p", "q"], "x": (-1, 1)}, random_state=0),
        model.sample(40, balance="by 2", random_state=0),
        model.sample(40, shares={"by 0": {"p": 0.5}}, random_state=0),
        model.sample_from(asked, random_state=0),
    ):
        assert (rows[["by 0", "by 1", "by 2"]].notna().sum(axis=1) == 1).all()
    assert rows["by 1"].tolist()[::2] == ["p", "q"]
    model.sample(20, conditions={"by 1": "p"}, random_state=0, out=tmp_path / "rows.parquet")
    rows = pd.read_parquet(tmp_path / "rows.parquet")
    assert constraint.check(rows).all()
    assert (rows["by 1"] == "p").all()


def test_resampled_rows_do_not_repeat_unique_values():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"seat": rng.permutation(2000)[:120] * 7, "x": rng.normal(size=120)})
    X["y"] = X["x"] + 1.5
    y = np.repeat(["often", "rare"], [90, 30])
    constraints = [Unique("seat"), Formula("y", "x + 1.5")]
    model = make(TVAE, constraints=constraints, identifiers=None)
    rows, _ = model.fit_resample(X, y)
    assert len(rows) == 180
    assert rows["seat"].is_unique
    assert constraints[1].check(rows).all()


def test_an_imputer_meets_them():
    table = random_table(1, 60)[["net", "tax", "total", "low", "high"]]
    constraints = [Sum(["net", "tax"], "total"), Inequality("low", "<=", "high")]
    holes = table.mask(np.random.default_rng(0).random(table.shape) < 0.1)
    for n_draws in (None, 3):
        generator = make(TabFlow, constraints=constraints)
        filled = TabFlowImputer(generator, n_draws=n_draws, random_state=0).fit_transform(holes)
        assert not filled.isna().any(axis=None)
        for each in constraints:
            assert each.check(filled).all()


# ---- what cannot be ------------------------------------------------------------------------------


def test_violating_rows_are_named_before_training():
    table = random_table(0)
    table.loc[[4, 9], "total"] += 1
    model = make(TVAE, constraints=CONSTRAINTS)
    with pytest.raises(ValueError, match=r"2.*160.*5.*10"):
        model.fit(table)
    assert not hasattr(model, "encoder_")


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ([Inequality("strat", "<", "end")], r"'strat'.*'start'"),
        ([Inequality("start", "<", "ende")], "no column 'ende'"),
        ([Inequality("start", "<", "net")], "'start' is datetime64.*'net' is float64"),
        ([Inequality("city", "<", "country")], "compares numbers, dates or durations"),
        ([Sum(["net", "start"], "total")], "'start'"),
        ([Formula("bill", "total * city")], r"'total \* city'.*'city'"),
        ([FixedCombinations("city", "net")], r"'net'.*discrete_columns"),
        ([Null("end", when="months + 1")], "a condition must be met or not"),
        ([Null("city", when="status == 'open'")], "rows of the table break Null"),
        (["start < end"], "'start < end'"),
        (
            [Sum(["net", "tax"], "total"), Formula("total", "net + tax")],
            r"Sum\(.* and Formula\(.* compute the same columns",
        ),
    ],
)
def test_constraints_that_the_table_cannot_have(constraints, message):
    model = make(TVAE, epochs=1, constraints=constraints)
    with pytest.raises(ValueError, match=message):
        model.fit(random_table(0))


def test_names_in_a_list_are_taken_too():
    assert Unique(["room", "day"]) == Unique("room", "day")
    assert FixedCombinations(["a", "b"]) == FixedCombinations("a", "b")


def test_constraints_that_are_none():
    for make_one, message in (
        (lambda: Inequality("a", "=", "b"), "operator must be one of '<'"),
        (lambda: Inequality("a", "<", "a"), "compares a column with itself"),
        (lambda: Sum(["a"], "b"), "Sum takes 2 or more different columns, got 'a'"),
        (lambda: Sum(["a", "b"], "a"), "the total 'a' is one of the columns"),
        (lambda: FixedCombinations("a", "a"), "2 or more different columns"),
        (lambda: Unique(), "1 or more"),
        (lambda: Unique("a", ["b", "c"]), r"different columns, got 'a', \['b', 'c'\]"),
        (lambda: Formula("a", "a + 1"), "an expression of other columns"),
        (lambda: Formula("a", "3"), "an expression of other columns"),
        (lambda: Formula("a", "__import__('os').system('x')"), "is not supported"),
        (lambda: Formula("a", "round(b)"), r"^the function round\(\) is not supported"),
        (lambda: Null("a", when="b =="), "is not a valid expression"),
    ):
        with pytest.raises(ValueError, match=message):
            make_one()


def test_identifiers_are_in_none():
    table = random_table(0).assign(id=range(1000, 1160))
    model = make(TVAE, constraints=[Inequality("months", "<", "id")])
    with pytest.raises(ValueError, match="'id'"):
        model.fit(table)


def test_no_row_is_lost_to_new_identifiers():
    table = random_table(0).assign(id=range(1000, 1160))
    constraints = [Unique("id"), Unique("id", "city"), Inequality("low", "<=", "high")]
    with pytest.warns(UserWarning, match="identifiers"):
        model = make(TabFlow, constraints=constraints).fit(table)
    for asked in (
        {"n": 200, "conditions": {"low": (None, table["low"].median())}},
        {"n": 200, "shares": {"city": {"Rome": 0.1, "Oslo": 0.2}}},
        {"seed_data": table[["city", "status"]]},
    ):
        rows = model.sample(**asked, max_tries=20, random_state=0)
        assert len(rows) == asked.get("n", len(table))
        assert rows["id"].is_unique
        assert not set(rows["id"]) & set(table["id"])


@pytest.mark.parametrize("dtype", ["int64", "uint64", "Int64", "category", object])
def test_large_integers_are_told_apart(dtype):
    """Which float64 cannot: 2^53 + 1 is 2^53 there."""
    numbers = [2**53, 2**53 + 1, 2**62 + 1, 2**62 + 2, 7]
    table = pd.DataFrame({"id": pd.Series([*numbers, 7], dtype=dtype)})
    assert Unique("id").check(table).tolist() == [True] * 5 + [False]
    gap = pd.DataFrame({"id": pd.Series([*numbers, None], dtype=object).astype("Int64")})
    assert Unique("id").check(gap).all()
    labels, _ = Unique("id").labels({"id": pd.Series([7.0])})  # whatever holds them
    assert labels[0] == Unique("id").labels({"id": table["id"]})[0][-1]


DAY = pd.Timestamp("2024-01-11")
SAME_VALUES = {  # each value in several forms, and one that is another value
    "midnight": (
        [DAY, DAY.date(), DAY.to_datetime64(), DAY.as_unit("s")],
        DAY + timedelta(hours=1),
    ),
    "moment": (
        [DAY.tz_localize("UTC"), DAY.tz_localize("UTC").tz_convert("Asia/Tokyo")],
        DAY + timedelta(1),
    ),
    "far date": ([np.datetime64("3000-01-01", "s"), datetime(3000, 1, 1)], datetime(3000, 1, 2)),
    "duration": ([pd.Timedelta("1 day"), timedelta(1), np.timedelta64(24, "h")], timedelta(2)),
    "zero": ([0, 0.0, -0.0, False, Decimal("0.00")], "0"),
    "large": ([2**53 + 1, np.uint64(2**53 + 1), Decimal(2**53 + 1)], 2**53),
    "text": (["a", np.str_("a")], "A"),
}


@pytest.mark.parametrize("name", SAME_VALUES)
def test_equal_values_are_not_unique_in_any_form(name):
    forms, other = SAME_VALUES[name]
    mixed = pd.Series([*forms, other], dtype=object)
    expected = [True] + [False] * (len(forms) - 1) + [True]
    assert Unique("v").check(pd.DataFrame({"v": mixed})).tolist() == expected
    hashes, _ = Unique("v").labels({"v": mixed})
    for form in [*forms, other]:  # one by one, in the dtype that pandas infers
        single, _ = Unique("v").labels({"v": pd.Series([form])})
        assert single[0] == hashes[-1 if form is other else 0]


@pytest.mark.parametrize("dtype", ["category", "datetime64[s]", "datetime64[ns]", object])
def test_dates_have_one_hash_beside_any_others(dtype):
    one = pd.Series([DAY]).astype(dtype)
    several = pd.Series([DAY + timedelta(hours=12), None, DAY]).astype(dtype)
    assert Unique("d").labels({"d": one})[0][0] == Unique("d").labels({"d": several})[0][2]


def room_table(seed=0):
    """Rooms that are booked once at most at a time, mostly at midnight."""
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(12 * 25)[:180]
    day = DAY + pd.to_timedelta(pairs // 12, "D")
    day += pd.to_timedelta(np.where(rng.random(180) < 0.04, 12, 0), "h")
    room = [f"r{p % 12}" for p in pairs]
    return pd.DataFrame({"room": room, "day": day, "x": rng.normal(size=180)})


def test_dates_are_unique_across_batches():
    table = room_table()
    model = make(TabFlow, n_bins=8, constraints=[Unique("room", "day")]).fit(table)
    for seed in range(3):
        for rows in (
            model.sample(15, conditions={"room": "r1"}, random_state=seed),
            model.sample_from(pd.DataFrame({"room": ["r1", "r2"] * 12}), random_state=seed),
            model.impute(table.assign(day=table["day"].mask(table.index < 60)), random_state=seed),
        ):
            assert not rows.duplicated(["room", "day"]).any()


@pytest.mark.parametrize("method", ["impute", "sample_from", "seed_data"])
def test_given_unique_values_are_reserved_for_their_rows(method):
    table = room_table()
    table["day"] = "d" + (table.index // 12).astype(str)
    table["room"] = "r" + (table.index % 12).astype(str)
    model = make(TabFlow, constraints=[Unique("room", "day")]).fit(table)
    gaps = table.iloc[:24].assign(x=np.nan)  # all rooms of two days
    gaps["room"] = gaps["room"].mask(gaps.index < 9)
    for seed in range(2):
        if method == "impute":
            rows = model.impute(gaps, random_state=seed)
        elif method == "sample_from":
            rows = model.sample_from(gaps[["room", "day"]], random_state=seed)
        else:
            rows = model.sample(seed_data=gaps[["room", "day"]], random_state=seed)
        assert not rows.duplicated(["room", "day"]).any()
        pd.testing.assert_frame_equal(rows.loc[9:, ["room", "day"]], gaps.loc[9:, ["room", "day"]])


def test_imputation_finds_the_only_unique_completion():
    """All rooms are booked on all days; each row lacks its room or its day, or nothing."""
    pairs = [(f"r{i}", f"d{j}") for i in range(6) for j in range(5)]
    table = pd.DataFrame(pairs, columns=["room", "day"]).assign(x=np.arange(30.0) % 7)
    params = {"min_frequency": 1, "identifiers": None, "constraints": [Unique("room", "day")]}
    model = make(TabFlow, n_bins=8, **params).fit(table)
    rng = np.random.default_rng(0)
    hidden, is_room = rng.random((2, 30)) < 0.5
    gaps = table.assign(
        room=table["room"].mask(hidden & is_room), day=table["day"].mask(hidden & ~is_room)
    )
    for seed in range(2):
        rows = model.impute(gaps, random_state=seed)
        assert set(zip(rows["room"], rows["day"], strict=True)) == set(pairs)


@pytest.mark.parametrize("constraints", [[], [Unique("id")], [Unique("id", "city")]])
def test_identifiers_of_seed_data_are_not_made_again(constraints):
    table = random_table(0)[["city", "net"]].assign(id=range(1000, 1160))
    with pytest.warns(UserWarning, match="identifiers"):
        model = make(TabFlow, constraints=constraints).fit(table)
    seed_data = pd.DataFrame({"id": [np.nan, 1161, np.nan, 1160, np.nan]})
    with pytest.warns(UserWarning, match=r"1161.*2"):
        rows = model.sample(seed_data=seed_data)
    assert rows["id"].is_unique
    assert rows["id"].tolist()[1::2] == [1161, 1160]
    if constraints == [Unique("id", "city")]:
        with pytest.warns(UserWarning, match="never sampled"):
            rows = model.sample(seed_data=pd.DataFrame({"id": [7] * len(COUNTRIES)}))
        assert sorted(rows["city"]) == sorted(COUNTRIES)


def test_a_request_in_conflict_names_the_constraint(model, table):
    last, first = table["start"].quantile([0.9, 0.1]).dt.normalize()
    for conditions, message in (
        ({"status": "open", "end": last}, r"'end', 'status' contradict Null\('end'"),
        ({"start": (last, None), "end": (None, first)}, r"contradict Inequality\('start', '<'"),
        ({"city": "Rome", "country": "Norway"}, r"combination that FixedCombinations\('city'"),
    ):
        with pytest.raises(ValueError, match=message):
            model.sample(5, conditions=conditions)
    with pytest.raises(ValueError, match=r"1 of 1.*Null"):
        model.sample_from(pd.DataFrame({"status": ["open"], "end": [last]}))


def test_shortfall_names_the_number_of_tries(tmp_path):
    table = random_table(0)[["net", "tax", "total", "low", "high"]]
    model = make(TVAE, constraints=[Sum(["net", "tax"], "total")]).fit(table)
    conditions = {"net": (table["net"].max(), None), "total": (None, table["total"].median())}
    place = tmp_path / "rows.parquet"
    for out in (None, place):
        with pytest.raises(ShortfallError, match=r"tried.*conditions"):
            model.sample(5, conditions=conditions, max_tries=1, out=out)
    assert not any(tmp_path.iterdir())


def test_given_cells_that_break_one_are_named(model, table):
    holes = table.head(30).copy()
    holes.loc[7, "total"] += 5
    holes.loc[:, "low"] = np.nan
    with pytest.raises(ValueError, match=r"1.*30.*rows 8"):
        model.impute(holes)


def test_rare_combinations_are_dropped_with_a_warning():
    city = ["Oslo"] * 50 + ["Rome"] * 50
    country = ["Norway"] * 50 + ["Italy"] * 38 + ["Norway"] * 12
    table = pd.DataFrame({"city": city, "country": country, "x": np.arange(100.0)})
    model = make(TVAE, min_frequency=13, constraints=[FixedCombinations("city", "country")])
    with pytest.warns(UserWarning, match=r"12%.*FixedComb"):
        model.fit(table)
    rows = model.sample(100)
    assert set(zip(rows["city"], rows["country"], strict=True)) <= {
        ("Oslo", "Norway"),
        ("Rome", "Italy"),
    }
    even = pd.DataFrame({"city": ["Oslo", "Rome"] * 50, "country": list("IINN") * 25})
    with pytest.raises(ValueError, match="min_frequency"):
        make(TVAE, min_frequency=26, constraints=model.constraints).fit(even)


# ---- expressions and files -----------------------------------------------------------------------

COLUMNS = {
    "a": pd.Series([1.0, 2.0, np.nan]),
    "b": pd.Series([True, False, True]),
    "small": pd.Series([200, 100, 3], dtype="uint8"),
    "kind": pd.Series(["x", None, "y"], dtype="category"),
    "day": pd.to_datetime(pd.Series(["2024-01-01", "2024-02-01", None])),
    "unit price": pd.Series([2.5, 4.0, 1.0]),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("small + small", [400, 200, 6]),
        ("2 ** 3 - b % 2", [7, 8, 7]),
        ("`unit price` * 2 // 3", [1, 2, 0]),
        ("(day - day) / '1 day'", [0, 0, np.nan]),
        ("kind == 'x'", [True, False, False]),
        ("kind != 'x'", [False, False, True]),
        ("not kind == 'x'", [False, True, True]),
        ("kind in ('x', 'y') and a > 0", [True, False, False]),
        ("kind not in ['x'] or a >= 2", [False, True, True]),
        ("kind is None", [False, True, False]),
        ("a is not None", [True, True, False]),
        ("day >= '2024-01-15'", [False, True, False]),
        ("1 < a <= 2", [False, True, False]),
        ("kind == 'a `b` c'", [False, False, False]),
    ],
)
def test_expressions(text, expected):
    found = Expression(text).evaluate(COLUMNS)
    np.testing.assert_array_equal(found.to_numpy(float), np.array(expected, dtype=float))


@pytest.mark.parametrize(
    "text",
    [
        *("a.b", "a[0]", "f(a)", "lambda: 1", "[a for a in b]", "a if b else a", "a is 3"),
        *("a in b", "f'{a}'", "1j", "b'x'", "(a := 1)", "*a", "a; b", "", "a" * 20_000),
        "-" * 5000 + "a",
    ],
    ids=lambda text: text[:20],
)
def test_nothing_else_is_an_expression(text):
    with pytest.raises(ValueError, match=r"expression|not supported"):
        Expression(text)


@pytest.mark.parametrize("ending", ["json", "yaml", "yml"])
def test_files_of_constraints(ending, tmp_path):
    path = tmp_path / f"rules.{ending}"
    write_constraints(CONSTRAINTS, path)
    assert read_constraints(path) == CONSTRAINTS


CONSTANTS = [
    *(DAY, DAY.tz_localize("Europe/Oslo"), DAY.date(), datetime(2024, 1, 11, 6), "2024-01-11"),
    *(np.datetime64("2024-01-11"), np.datetime64("2024-01-11T06", "ns"), pd.Timedelta("1 day 2 h")),
    *(timedelta(hours=2), np.timedelta64(3, "h"), np.timedelta64(7, "ns"), Decimal("20.5")),
    *(Fraction(1, 4), np.int8(3), np.float32(0.5), np.uint64(2**63), np.bool_(True), np.str_("x")),
    *(2**70, 0.1, "x", ("a", "x"), 5),
]


@pytest.mark.parametrize("constant", CONSTANTS, ids=repr)
def test_constants_and_names_of_any_type_are_written(constant, tmp_path):
    names = [Sum([constant, "b"], "total"), Unique(constant)]
    is_name = isinstance(constant, str | tuple | int | np.str_)
    rules = names if isinstance(constant, tuple) else [Inequality("a", "<=", constant)]
    rules += names if is_name and not isinstance(constant, tuple) else []
    for ending in ("json", "yaml"):
        write_constraints(rules, tmp_path / f"rules.{ending}")
        assert read_constraints(tmp_path / f"rules.{ending}") == rules


def test_constants_stay_in_model_files(tmp_path):
    n = np.arange(60)
    table = pd.DataFrame({"d": DAY + pd.to_timedelta(n % 9, "D"), "t": pd.to_timedelta(n, "h")})
    table["x"] = n / 10
    rules = [
        Inequality("d", "<=", table["d"].to_numpy().max()),
        Inequality("t", "<=", table["t"].to_numpy().max()),
        Inequality("x", "<", Decimal("20.5")),
    ]
    make(TVAE, constraints=rules).fit(table).save(tmp_path / "g.model")
    model = combutab.load(tmp_path / "g.model")
    assert model.constraints == rules
    assert len(model.sample(20, random_state=0)) == 20


@pytest.mark.parametrize(
    "constant",
    [
        pd.NaT,
        np.nan,
        np.inf,
        np.datetime64("NaT"),
        Decimal("nan"),
        None,
        [1],
        1j,
        pd.Period("2024"),
    ],
    ids=repr,
)
def test_constants_that_nothing_compares_with_are_refused(constant):
    with pytest.raises(ValueError, match="right"):
        Inequality("a", "<=", constant)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (pd.Series([0.1, 0.2]), Decimal("0.1"), [True, False]),
        (pd.Series([Decimal("0.3"), Decimal("0.30000001")]), 0.3, [True, False]),
        (pd.Series([Decimal("0.3")]), pd.Series([0.3]), [True]),
        (pd.Series([date(2024, 1, 11), date(2024, 1, 12)]), "2024-01-11", [True, False]),
        (pd.Series([date(2024, 1, 11)]), pd.Series([DAY]), [True]),
        (pd.Series([2**53 + 1, 2**53]), pd.Series([2.0**53, 2.0**53]), [False, True]),
        (pd.Series([2**53 + 1, 2**53]), 2.0**53, [False, True]),
    ],
)
def test_inequalities_compare_values_exactly(left, right, expected):
    table = pd.DataFrame({"a": left})
    if isinstance(right, pd.Series):
        table["b"], right = right, "b"
    assert Inequality("a", "<=", right).check(table).tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", ": Expecting property name"),
        ('{"Sum": []}', "constraints are a list"),
        ('[{"Summ": []}]', r"1.*'Summ'.*'Sum'"),
        ('[{"Unique": ["a"]}, {"Sum": ["a"]}]', r"constraint 2 \(Sum\)"),
        ('[{"Sum": {"parts": 1}}]', r"constraint 1 \(Sum\).*parts"),
        ('[{"Inequality": ["a", "<", {}]}]', r"constraint 1 \(Inequality\).*a constant"),
        ("[1]", "constraint 1 must have one key"),
    ],
)
def test_files_that_hold_none(text, message, tmp_path):
    path = tmp_path / "rules.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_constraints(path)
    assert str(path) in str(caught.value)


def test_yaml_may_be_written_by_hand(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(
        "constraints:\n"
        "  - Inequality: [start, <, end]\n"
        "  - Sum: {columns: [net, tax], total: total}\n"
        "  - Null: {column: end, when: status == 'open'}\n"
        "  - Unique: id\n"
        "  - Inequality: [start, '>=', 2020-01-31]\n"
    )
    found = read_constraints(path)
    assert found[1:4] == [
        Sum(["net", "tax"], "total"),
        Null("end", when="status == 'open'"),
        Unique("id"),
    ]
    starts = pd.DataFrame({"start": pd.to_datetime(["2020-01-31", "2020-01-30"])})
    assert found[4].check(starts).tolist() == [True, False]
    with pytest.raises(ValueError, match=r"\.json.*\.yml"):
        read_constraints(tmp_path / "rules.txt")


def test_checks_of_odd_cells():
    dates = pd.DataFrame({"a": pd.to_datetime(["2024-01-02", None]), "n": [1, None]})
    assert Inequality("a", ">", "2024-01-01").check(dates).tolist() == [True, True]
    ints = pd.DataFrame({"a": [2**62, 2**62 + 1], "b": [2**62 + 1, 2**62 + 1]})
    assert Inequality("a", "<", "b").check(ints).tolist() == [True, False]
    assert Inequality("n", ">=", 1).check(dates.astype({"n": "Int64"})).all()
    assert Sum(["x", "y"], "z").check(pd.DataFrame({"x": [0.1], "y": [0.2], "z": [0.3]})).all()
    flags = pd.DataFrame({"x": [True, False, None, None], "y": [False, False, True, None]})
    for dtype in ("object", "boolean", "category"):
        assert OneOf("x", "y").check(flags.astype(dtype)).tolist() == [True, False, True, False]
    assert Formula("y", "not x").check(flags).tolist() == [True, False, True, True]
    empty = pd.DataFrame({"x": [], "y": [], "z": []}, dtype=float)
    for each in (Sum(["x", "y"], "z"), OneOf("x", "y"), Unique("x"), Inequality("x", "<", "y")):
        assert each.check(empty).tolist() == []
    with pytest.raises(ValueError, match="duplicate column names"):
        Unique("x").check(pd.DataFrame([[1, 2]], columns=["x", "x"]))


def test_balance_leaves_out_values_without_a_fixed_combination():
    city = ["Oslo"] * 40 + ["Rome"] * 40 + ["Lyon"] * 6
    country = (
        ["Norway"] * 40 + ["Italy"] * 40 + list("abcdef")
    )  # no combination of Lyon is frequent
    table = pd.DataFrame({"city": city, "country": country, "x": np.arange(86.0) % 7})
    rules = [FixedCombinations("city", "country")]
    model = make(TVAE, constraints=rules, identifiers=[]).fit(table)
    rows = model.sample(20, balance="city", random_state=0)
    assert rows.value_counts(["city", "country"]).to_dict() == {
        ("Oslo", "Norway"): 10,
        ("Rome", "Italy"): 10,
    }
    rows = model.sample(9, balance="city", conditions={"country": "Italy"}, random_state=0)
    assert set(rows["city"]) == {"Rome"}
    with pytest.raises(ValueError, match=r"'city'.*'Lyon'"):
        model.sample(9, shares={"city": {"Lyon": 0.5}}, random_state=0)


DAYS = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(60) % 30, "D")


@pytest.mark.parametrize(
    ("values", "most"),
    [
        (DAYS, 30),
        (DAYS.tz_localize("Europe/Oslo"), 30),
        (DAYS - DAYS[0], 30),
        (np.arange(60.0) % 30 / 4, 726),  # numbers of two decimals from 0 to 7.25
        (np.arange(60) % 30 + 10**17, 30),
    ],
    ids=["dates", "zone", "durations", "decimals", "integers"],
)
def test_requests_beyond_all_unique_values_are_refused(values, most):
    table = pd.DataFrame({"v": values, "kind": ["a"] * 30 + ["b"] * 30})
    params = {"constraints": [Unique("v", "kind")], "min_frequency": 1, "identifiers": []}
    model = make(TVAE, **params).fit(table)
    with pytest.raises(ValueError, match=r"allows only (\d+) combinations") as refused:
        model.sample(2000, conditions={"kind": "a"})
    allowed = int(re.search(r"only (\d+)", str(refused.value))[1])
    assert most <= allowed <= most * 1.1 + 1
    with pytest.raises(ValueError, match="'kind' = 'b'"):
        model.sample_from(pd.DataFrame({"kind": ["b"] * 2000}))


LARGE = 2**60 + 1


@pytest.mark.parametrize("dtype", ["int64", "uint64", "Int64", "category", object])
def test_sums_of_large_integers_are_checked_exactly(dtype):
    table = pd.DataFrame({"a": [LARGE, LARGE, LARGE, 3], "b": [2, 2, -2, 4]})
    table["t"] = [LARGE + 2, LARGE + 3, LARGE - 3, 7]
    if dtype == "uint64":
        table = table[table["b"] > 0]
    expected = (table["t"] == table["a"] + table["b"]).tolist()
    table = table.astype({"a": dtype, "t": dtype})
    assert Sum(["a", "b"], "t").check(table).tolist() == expected
    assert Formula("t", "a + b").check(table).tolist() == expected
    assert Formula("b", "t - a").check(table).tolist() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a * b", 3 * LARGE),
        ("a * b // b", LARGE),
        ("a * b / b", LARGE),
        ("(a * b) % 1000", 3 * LARGE % 1000),
        ("-a + 1", 1 - LARGE),
        ("c ** 2", 10**20 + 2 * 10**10 + 1),
        ("1152921504606846978 - a", 1),
        ("a == 1152921504606846977", True),
        ("a > 1152921504606846976", True),
        ("a / 0", np.inf),
    ],
)
def test_expressions_of_large_integers_are_exact(text, expected):
    columns = {"a": pd.Series([LARGE, 1]), "b": pd.Series([3, 3]), "c": pd.Series([10**10 + 1, 0])}
    assert Expression(text).evaluate(columns).iloc[0] == expected


@pytest.mark.parametrize("large", [1e12, 1e300])
def test_one_large_number_does_not_blind_the_check(large):
    rng = np.random.default_rng(0)
    a, b, q = rng.normal(size=20), rng.normal(size=20), rng.integers(1, 9, 20)
    table = pd.DataFrame({"a": a, "b": b, "q": q, "t": a + b, "w": a * q, "r": (a * 1.19).round(2)})
    table.loc[0, "a"] = large
    for rule, target in (
        (Sum(["a", "b"], "t"), "t"),
        (Formula("w", "a * q"), "w"),
        (Formula("r", "a * 1.19"), "r"),
    ):
        row = table.loc[[0]]
        wanted = {"t": row["a"] + row["b"], "w": row["a"] * row["q"], "r": row["a"] * 1.19}
        table.loc[0, target] = wanted[target].iloc[0]
        assert rule.check(table).all()
        wrong = table.copy()
        wrong.loc[5, target] += 0.02
        assert np.flatnonzero(~rule.check(wrong)).tolist() == [5]


def test_rounding_of_large_terms_is_tolerated():
    terms = pd.DataFrame({"a": [1e12 + 0.1, 1.0], "b": [-1e12, 2.0]})
    terms["t"] = [0.1, 3.0]  # 1e12 + 0.1 is .0999755859375 above 1e12
    assert Sum(["a", "b"], "t").check(terms).all()
    assert Sum(["a", "b"], "t").check(terms.assign(t=[0.1, 3.1])).tolist() == [True, False]


def test_rows_have_exact_sums_of_large_integers():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"start": 2**60 + rng.integers(0, 10**16, 120)})
    table["length"] = rng.integers(1, 10**17, 120)
    table["end"] = table["start"] + table["length"]
    model = make(TabFlow, n_bins=8, constraints=[Sum(["start", "length"], "end")]).fit(table)
    gaps = table.iloc[:20].copy()
    gaps["end"] = pd.Series([None] * 20, dtype="Int64")
    for rows in (model.sample(60, random_state=0), model.impute(gaps, random_state=0)):
        assert (rows["start"] + rows["length"] == rows["end"].astype("int64")).all()


def test_differences_beyond_64_bits_are_refused():
    table = pd.DataFrame({"a": [-(2**62), 0] * 30, "b": [2**62 + 1, 5] * 30})
    with pytest.raises(ValueError, match="'b - a'"):
        make(TVAE, constraints=[Inequality("a", "<", "b")]).fit(table)


@pytest.mark.slow
def test_rows_with_shares(model, table):
    date = table["end"].dropna().median().normalize()
    shares = {"end": {(None, date): 0.5, None: 0.5}}
    rows = model.sample(20, shares=shares, random_state=10)
    assert_met(rows, table)
    assert (rows["end"].isna().sum(), (rows["end"] <= date).sum()) == (10, 10)
    shares = {"long": {True: 0.3, False: 0.7}, "city": {"Oslo": 0.5, "Rome": 0.5}}
    rows = model.sample(20, shares=shares, random_state=10, max_tries=300)
    assert_met(rows, table)
    assert rows["long"].sum() == 6
    assert rows["city"].astype(str).value_counts().to_dict() == {"Oslo": 10, "Rome": 10}


# ---- constraints that are found ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_what_holds_in_a_table_is_found(seed):
    table = random_table(seed, 300)
    found = suggest_constraints(table)
    wanted = [each for each in CONSTRAINTS if each not in (Inequality("net", ">=", 1),)]
    wanted = [each for each in wanted if not (isinstance(each, Formula) and each.column == "long")]
    for each in wanted:
        same = Inequality("low", "<", "high") if each == Inequality("low", "<=", "high") else each
        assert same in found or each in found, each
    assert all(each.check(table).all() for each in found)
    support = dict(zip(found, found.support, strict=True))
    assert support[Sum(["net", "tax"], "total")] == 300
    assert support[Inequality("start", "<", "end")] == table["end"].notna().sum()
    assert "Sum(['net', 'tax'], 'total')" in repr(found)
    assert clone(TVAE(constraints=found)).constraints == found


def test_coincidences_are_not_found():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(400, 8))).add_prefix("x")
    table["above"] = table["x0"].max() + rng.random(400)  # the ranges do not overlap
    table["a"], table["b"] = rng.choice(list("abc"), 400), rng.choice(list("xyz"), 400)
    table["rare"] = pd.Series(rng.random(400)).where(rng.random(400) < 0.5)
    table["many"] = [f"value {i}" for i in rng.permutation(400)]
    assert suggest_constraints(table) == []
    assert suggest_constraints(table.head(1)) == []
    assert suggest_constraints(table.assign(constant=1)[["constant"]]) == []


def test_sums_and_date_differences_are_suggested():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.integers(0, 900, (300, 4)), columns=list("abcd"))
    table["all"] = table.sum(axis=1)
    table["from"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 900, 300), "D")
    table["n days"] = rng.integers(1, 90, 300)
    table["to"] = table["from"] + pd.to_timedelta(table["n days"], "D")
    found = suggest_constraints(table)
    assert Sum(["a", "b", "c", "d"], "all") in found
    assert Formula("n days", "(to - `from`) / '1 day'") in found


def test_empty_table_is_refused_with_constraints():
    table = pd.DataFrame({"low": [1.0], "high": [2.0], "kind": ["a"]})
    model = TVAE(constraints=[Inequality("low", "<", "high")])
    with pytest.raises(ValueError, match=r"shape=\(0, 3\)"):
        model.fit(table.iloc[:0])
