"""Rows with shares to order: exact counts, raking of several columns, and what cannot be met."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from combutab import TVAE, TabFlow
from combutab.cli import main
from combutab.generators import ShortfallError
from combutab.generators.conditions import all_met
from combutab.generators.shares import ColumnShares, draw_shares, rake, read_shares
from combutab.preprocessing import ModeEncoder
from tests.generators.small import EVERY, make

N = 300


def make_table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    region = rng.choice(["north", "south", "east", "west"], n, p=[0.55, 0.25, 0.15, 0.05])
    churn = np.where(rng.random(n) < np.where(region == "north", 0.05, 0.4), "yes", "no")
    age = rng.integers(18, 80, n)
    score = np.where(rng.random(n) < 0.3, 0.0, rng.normal(age / 10, 1.0, n))
    table = pd.DataFrame({"region": region, "churn": churn, "age": age, "score": score})
    table["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, n), "D")
    table["kind"] = pd.Series(rng.choice(["a", "b", None], n, p=[0.6, 0.3, 0.1])).astype(object)
    table.loc[rng.random(n) < 0.1, "score"] = np.nan
    table["flag"] = rng.random(n) < 0.5
    table["one"] = "always"
    return table


class TableSampler:
    """Draws rows of a table with replacement, by conditions: a generator that is known."""

    rules = None

    def __init__(self, table):
        self.encoder = ModeEncoder().fit(table)
        encoded = self.encoder.encode(table)
        self.values, self.codes = encoded.values, encoded.codes.astype(np.int64)
        self.table = self.encoder.decode(self.values, self.codes)

    def draw(self, n, conditions, key, max_tries, search=None):
        rows = np.flatnonzero(all_met(conditions, self.codes, self.table))
        rows = np.random.default_rng(key % 2**63).choice(rows, n if len(rows) else 0)
        return self.values[rows], self.codes[rows], n

    def sample(self, n, shares, conditions=(), key=0):
        ordered = read_shares(self.encoder, shares, None, conditions)
        values, codes, _ = draw_shares(self, n, ordered, conditions, key, 100)
        return self.encoder.decode(values, codes)


def largest_remainders(n, shares):
    exact = [n * share for share in shares]
    counts = [int(x + 1e-9) for x in exact]
    order = sorted(range(len(exact)), key=lambda i: (round(counts[i] - exact[i], 9), i))
    for i in order[: n - sum(counts)]:
        counts[i] += 1
    return counts


# ---- counts ------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any), st.integers(0, 10**6))
def test_counts_add_up_and_are_nearest(weights, n):
    shares = np.array(weights) / sum(weights)
    counts = ColumnShares("x", [], [], shares).counts(n)
    assert counts.sum() == n
    assert (np.abs(counts - n * shares) < 1 + 1e-6).all()
    assert (counts[shares == 0] == 0).all()


def test_counts_by_hand():
    counts = ColumnShares("x", [], [], np.array([0.29, 0.355, 0.355])).counts(100)
    assert counts.tolist() == [29, 36, 35]  # of equal remainders the first gets the row
    assert ColumnShares("x", [], [], np.full(3, 1 / 3)).counts(5).tolist() == [2, 2, 1]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_raking_meets_every_count_where_that_is_possible(data):
    shape = data.draw(st.sampled_from([(2, 2), (3, 4), (5, 3), (2, 3, 2), (3, 3, 3)]))
    size = int(np.prod(shape))
    rows = data.draw(st.lists(st.integers(0, 40), min_size=size, max_size=size))
    table = np.array(rows).reshape(shape)
    unseen = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    cells = np.argwhere((table > 0) | unseen.reshape(shape))
    axes = range(len(shape))
    counts = [table.sum(tuple(a for a in axes if a != axis)) for axis in axes]
    seed = np.array(data.draw(st.lists(st.integers(1, 30), min_size=size, max_size=size)))
    if not len(cells) or not table.sum():
        return
    found = rake(cells, seed[: len(cells)].astype(float), counts)
    assert (found >= 0).all()
    for axis, wanted in enumerate(counts):
        assert_array_equal(np.bincount(cells[:, axis], found, len(wanted)), wanted)


def test_raking_keeps_the_odds_ratio():
    cells = np.array(list(itertools.product(range(2), range(2))))
    seed = np.array([60.0, 20.0, 5.0, 15.0])
    found = rake(cells, seed, [np.array([40_000, 60_000]), np.array([30_000, 70_000])])
    assert_allclose(found[0] * found[3] / (found[1] * found[2]), 60 * 15 / (20 * 5), rtol=1e-3)


def test_raking_finds_what_cannot_be():
    cells, counts = np.array([[0, 0], [1, 1]]), [np.array([3, 7]), np.array([4, 6])]
    assert rake(cells, np.ones(2), counts) is None
    assert rake(cells, np.ones(2), [np.array([3, 7])] * 2).tolist() == [3, 7]


# ---- rows of a generator that is known ---------------------------------------------------------

KNOWN = TableSampler(make_table(3000))


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_every_count_is_exact(data):
    numbers = st.integers(0, 20)
    draws = {
        "region": data.draw(st.lists(numbers, min_size=4, max_size=4).filter(any)),
        "churn": data.draw(st.lists(numbers, min_size=2, max_size=2).filter(any)),
        "age": data.draw(st.lists(numbers, min_size=3, max_size=3).filter(any)),
    }
    values = {
        "region": ["north", "south", "east", "west"],
        "churn": ["yes", "no"],
        "age": [(None, 29), (30, 49), (50, None)],
    }
    columns = data.draw(st.lists(st.sampled_from(list(draws)), min_size=1, max_size=3, unique=True))
    n = data.draw(st.integers(0, 700))
    shares = {
        name: {v: w / sum(draws[name]) for v, w in zip(values[name], draws[name], strict=True)}
        for name in columns
    }
    rows = KNOWN.sample(n, shares, key=data.draw(st.integers(0, 99)))
    assert len(rows) == n
    for name, own in shares.items():
        wanted = largest_remainders(n, own.values())
        for value, count in zip(own, wanted, strict=True):
            low, high = value if isinstance(value, tuple) else (value, value)
            column = rows[name]
            met = column == value if name != "age" else column.between(low or 0, high or 99)
            assert met.sum() == count


def test_columns_go_together_as_they_did():
    shares = {"churn": {"yes": 0.5, "no": 0.5}, "region": {"north": 0.5}}
    rows = KNOWN.sample(20_000, shares)
    ratios = []
    for table in (KNOWN.table, rows):
        counts = pd.crosstab(table["region"] == "north", table["churn"]).to_numpy()
        ratios.append(counts[0, 0] * counts[1, 1] / (counts[0, 1] * counts[1, 0]))
    assert 0.8 < ratios[0] / ratios[1] < 1.25
    assert ratios[0] < 0.15  # they are far from independent


def test_remaining_shares_keep_their_proportions():
    rows = KNOWN.sample(6000, {"region": {"west": 0.5}})
    found = rows["region"].value_counts()
    assert found["west"] == 3000
    true = KNOWN.table["region"].value_counts()[["north", "south", "east"]]
    assert_allclose(found[true.index] / 3000, true / true.sum(), atol=0.04)
    rows = KNOWN.sample(500, {"region": {"north": 0}})
    assert "north" not in set(rows["region"])
    rows = KNOWN.sample(100, {"score": {None: 0.2}, "kind": {None: 0.25, "a": 0.75}})
    assert rows["score"].isna().sum() == 20
    assert rows["kind"].isna().sum() == 25
    assert (rows["kind"] == "a").sum() == 75
    rows = KNOWN.sample(1000, {"age": {(30, 39): 0.5}, "score": {(0, 0): 0.6}})
    assert rows["age"].between(30, 39).sum() == 500
    assert (rows["age"] < 30).any()
    assert (rows["age"] > 39).any()
    assert (rows["score"] == 0).sum() == 600
    assert rows["score"].isna().any()


def test_ranges_are_half_open():
    shares = {"age": {(40, None): 0.3, (None, 40): 0.7}, "score": {(0, 9): 0.5, (None, 0): 0.5}}
    rows = KNOWN.sample(200, shares)
    assert (rows["age"] >= 40).sum() == 60
    assert ((rows["score"] >= 0) & (rows["score"] <= 9)).sum() == 100
    assert (rows["score"] < 0).sum() == 100
    day = pd.Timestamp("2024-02-01")
    rows = KNOWN.sample(50, {"day": {(None, day): 0.2, (day, None): 0.8}})
    assert (rows["day"] < "2024-02-01").sum() == 10


def test_values_may_be_grouped():
    rows = KNOWN.sample(100, {"region": {("south", "west"): 0.9, "north": 0.1}})
    assert rows["region"].isin(["south", "west"]).sum() == 90
    assert rows["region"].value_counts()["north"] == 10
    assert rows["region"].nunique() == 3


def test_impossible_combinations_are_not_requested():
    table = make_table(2000)
    table = table[~((table["region"] == "west") & (table["churn"] == "yes"))]
    sampler = TableSampler(table)
    rows = sampler.sample(400, {"region": {"west": 0.5}, "churn": {"yes": 0.5}})
    assert not ((rows["region"] == "west") & (rows["churn"] == "yes")).any()
    assert (rows["region"] == "west").sum() == (rows["churn"] == "yes").sum() == 200
    for shares in (
        {"region": {"west": 0.6}, "churn": {"yes": 0.65}},
        {"churn": {"yes": 0.65}, "region": {"west": 0.6}},
    ):
        with pytest.raises(ValueError, match=r"100.*400") as error:
            sampler.sample(400, shares)
        assert "'churn' = 'yes'" in str(error.value)
        assert "'region' = 'west'" in str(error.value)


# ---- rows of the generators --------------------------------------------------------------------

SHARES = {
    "churn": {"yes": 0.3, "no": 0.7},
    "age": {(None, 40): 0.5, (40, None): 0.5},
    "kind": {None: 0.25},
}


@pytest.fixture(scope="module")
def models():
    return {}


def fitted(models, cls):
    if cls not in models:
        models[cls] = make(cls, epochs=2, n_members=2).fit(make_table())
    return models[cls]


def assert_shares(rows, n=40):
    assert rows["churn"].value_counts().to_dict() == {"no": 0.7 * n, "yes": 0.3 * n}
    assert (rows["age"] < 40).sum() == 0.5 * n
    assert rows["kind"].isna().sum() == 0.25 * n


@EVERY
def test_generators_make_rows_of_the_shares(cls, models, tmp_path):
    model = fitted(models, cls)
    rows = model.sample(40, shares=SHARES, random_state=3)
    assert_shares(rows)
    assert rows.dtypes.equals(make_table().dtypes)
    assert list(rows.index) == list(range(40))
    pd.testing.assert_frame_equal(rows, model.sample(40, shares=SHARES, random_state=3))
    assert not rows.equals(model.sample(40, shares=SHARES, random_state=4))
    model.sample(40, shares=SHARES, random_state=3, out=tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "rows.parquet"), rows)
    assert list(model.sample(0, shares=SHARES)) == list(rows)
    assert len(model.sample(1, shares=SHARES)) == 1


@EVERY
def test_conditions_and_balance_hold_beside_shares(cls, models):
    model = fitted(models, cls)
    conditions = {"flag": True, "age": (30, 70)}
    shares = {"churn": {"yes": 0.5}, "score": {None: 0}}
    rows = model.sample(42, shares=shares, balance="kind", conditions=conditions, random_state=0)
    assert (rows["churn"] == "yes").sum() == 21
    assert rows["kind"].value_counts(dropna=False).tolist() == [14, 14, 14]
    assert rows["flag"].all()
    assert rows["age"].between(30, 70).all()
    assert rows["score"].notna().all()


def test_equal_shares_are_balance(models):
    model = fitted(models, next(iter(EVERY.args[1])))
    equal = {"churn": {"no": 0.5, "yes": 0.5}}
    rows = model.sample(31, shares=equal, random_state=0)
    pd.testing.assert_frame_equal(rows, model.sample(31, balance="churn", random_state=0))


def test_rows_that_are_not_found_are_told(models):
    model = fitted(models, next(iter(EVERY.args[1])))
    ask = {"shares": {"score": {(0.5, 0.5000001): 0.5}}, "max_tries": 1, "random_state": 0}
    with pytest.raises(ShortfallError, match=r"\['score'\].*30") as error:
        model.sample(30, **ask)
    assert 15 <= len(error.value.rows) < 30


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ([("churn", 0.5)], "shares must be a mapping such as .*, got list"),
        ({"chrun": {"yes": 1}}, "'chrun'.*'churn'"),
        ({"churn": 0.5}, "'churn'"),
        ({"churn": {}}, "'churn'"),
        ({"churn": {"maybe": 0.5}}, "'maybe'"),
        ({"churn": {"yes": 30, "no": 70}}, r"'yes'.*'churn'.*0.*1.*30"),
        ({"churn": {"yes": -0.1}}, "from 0 to 1, got -0.1"),
        ({"churn": {"yes": float("nan")}}, "from 0 to 1, got nan"),
        ({"churn": {"yes": True}}, "from 0 to 1, got True"),
        ({"churn": {"yes": "0.3"}}, "from 0 to 1, got '0.3'"),
        ({"churn": {"yes": 0.6, "no": 0.6}}, r"'churn'.*1.2.*1"),
        ({"churn": {"yes": 0.6, "no": 0.3}}, "add up to 0.9, and it has no other values"),
        ({"region": {"west": 0.2, ("west", "east"): 0.3}}, "'west'"),
        ({"region": {(): 0.2}}, "a group without values"),
        ({"churn": {None: 0.2}}, "missing"),
        ({"one": {"always": 1.0}}, "'one'"),
        ({"age": {30: 0.5}}, r"'age'.*30.*30.*30"),
        ({"age": {"< 30": 0.5}}, "'age'"),
        ({"age": {(30, 20): 0.5}}, r"30.*20.*'age'"),
        ({"age": {(300, None): 0.5}}, "'age'"),
        ({"age": {(None, None): 0.5}}, "must be a value, a list of values or a range"),
        ({"age": {(18, 40): 0.5, (30, 60): 0.5}}, r"18.*40.*30.*60.*'age'"),
        ({"age": {(None, 40): 0.5, (None, 60): 0.5}}, "overlap"),
        ({"age": {(30, 30): 0.5, (30, None): 0.5}}, "overlap; let one end where the next begins"),
        ({"age": {(None, 29): 0.5, (30, None): 0.4}}, "add up to 0.9, and it has no other values"),
        ({"age": {None: 0.5}}, "missing"),
        ({"flag": {True: 0.5}}, "'flag'"),
        ({"kind": {"a": 0.5}}, "'kind'"),
    ],
)
def test_bad_shares_are_refused_before_sampling(shares, says, models, monkeypatch):
    model = fitted(models, next(iter(EVERY.args[1])))
    monkeypatch.setattr(type(model), "_sampler", lambda self: pytest.fail("drawn"))
    with pytest.raises(ValueError, match=says):
        model.sample(10, shares=shares, conditions={"flag": True}, balance="kind")


def test_array_columns_are_named_by_position():
    X = np.random.default_rng(0).integers(0, 3, size=(200, 2)).astype(float)
    model = make(next(iter(EVERY.args[1])), epochs=1).fit(X, discrete_columns=[0])
    rows = model.sample(20, shares={0: {1.0: 0.25}, 1: {(1, None): 0.5}}, random_state=0)
    assert (rows[:, 0] == 1).sum() == 5
    assert (rows[:, 1] >= 1).sum() == 10


# ---- the command line --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The path of a generator for the commands."""
    path = tmp_path_factory.mktemp("shares") / "model"
    make(TabFlow, epochs=1).fit(make_table()).save(path)
    return str(path)


def test_shares_as_text(saved, tmp_path):
    texts = ["churn=yes:0.3|no:.7", "age=..29:40%|30..:60%", "kind=:25%", "region=south|west:0.5"]
    options = [option for text in texts for option in ("--shares", text)]
    out = tmp_path / "rows.parquet"
    assert main(["sample", saved, "-o", str(out), "--rows", "40", *options]) == 0
    rows = pd.read_parquet(out)
    assert rows["churn"].value_counts().to_dict() == {"no": 28, "yes": 12}
    assert (rows["age"] <= 29).sum() == 16
    assert rows["kind"].isna().sum() == 10
    assert rows["region"].isin(["south", "west"]).sum() == 20


def test_numbers_and_odd_labels_as_text(saved, tmp_path):
    out, odd = tmp_path / "rows.parquet", str(tmp_path / "odd")
    make(TVAE, epochs=1).fit(pd.DataFrame({"a": ["x|y", "9:30", "u:1|v"] * 20})).save(odd)
    made = ["-o", str(out), "--rows", "20", "--shares"]
    assert main(["sample", saved, *made, "score=0: 0.5 | :0.1"]) == 0
    scores = pd.read_parquet(out)["score"]
    assert ((scores == 0).sum(), scores.isna().sum()) == (10, 2)
    assert main(["sample", odd, *made, "a=x|y:0.5|9:30:0.5"]) == 0
    assert pd.read_parquet(out)["a"].value_counts().to_dict() == {"x|y": 10, "9:30": 10}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("churn", r"'churn'.*COLUMN=VALUE.*SHARE"),
        ("chrun=yes:1", r"'chrun=yes:1'.*'chrun'"),
        ("churn=yes", r"'churn=yes'.*COLUMN=VALUE.*SHARE"),
        ("churn=yes:lots", r"'churn=yes:lots'.*COLUMN=VALUE.*SHARE"),
        ("churn=yes:0.3|no", r"'churn=yes:0.3\|no'"),
        ("churn=yes:0.3|yes:0.2", r"'yes'.*'churn'"),
        ("churn=yes:30|no:70", "0 to 1"),
        ("age=20|30:0.2", "give a range"),
        ("flag=True:0.5", "'flag'"),
    ],
)
def test_bad_shares_as_text(text, says, saved, tmp_path, capsys):
    options = ["--condition", "flag=True", "--shares", text]
    assert main(["sample", saved, "-o", str(tmp_path / "rows.csv"), *options]) == 2
    assert re.search(says, capsys.readouterr().err)


def test_commands_take_shares(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_table().to_csv("data.csv", index=False)
    shares = ["--shares", "churn=yes:0.3|no:0.7", "--shares", "age=..39:0.5|40..:0.5"]
    options = ["--model", "tvae", "--epochs", "1", "--device", "cpu", "--save", "model"]
    made = ["synth", "data.csv", "-o", "rows.csv", "--rows", "40", *options, *shares]
    assert main(made) == 0
    rows = pd.read_csv("rows.csv")
    assert rows["churn"].value_counts().to_dict() == {"no": 28, "yes": 12}
    assert (rows["age"] < 40).sum() == 20
    again = ["sample", "model", "--rows", "40", *shares]
    assert main([*again, "-o", "again.csv"]) == 0
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "rows.csv").read_bytes()
    assert main([*again, "-o", "again.parquet"]) == 0
    assert (pd.read_parquet("again.parquet")["age"] < 40).sum() == 20
    capsys.readouterr()
    assert main(["sample", "model", "-o", "x.csv", "--shares", "churn=yes:0.6|no:0.6"]) != 0
    assert "the shares of 'churn' add up to 1.2" in capsys.readouterr().err
    assert not (tmp_path / "x.csv").exists()
    assert main([*made, "--report", "r.html"]) != 0
    assert "leave --condition and --shares, or --report, out" in capsys.readouterr().err
