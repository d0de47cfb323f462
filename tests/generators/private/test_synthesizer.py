"""The private generator: what it learns of a table, what it refuses, and what it spends."""

import re
import sys
import warnings
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import combutab
from combutab import PrivateSynthesizer
from combutab.generators import FixedCombinations, Inequality
from combutab.generators.private import _domain, _mechanisms, _synthesizer
from combutab.generators.private._mechanisms import Ledger

brief = pytest.mark.usefixtures("few_steps")  # where rows are not judged
QUICK = {"epochs": 5, "n_components": 50, "random_state": 0}
N = 3000
RNG = np.random.default_rng(0)
AGE = RNG.integers(18, 90, N)
TABLE = pd.DataFrame(
    {
        "age": AGE,
        "income": np.where(AGE > 60, 20_000.0, 60_000.0) * RNG.uniform(0.8, 1.2, N),
        "city": RNG.choice(["Bonn", "Ulm", "Rom"], N, p=[0.6, 0.3, 0.1]),
        "old": AGE > 60,
        "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 365, N), unit="D"),
    }
)
TABLE.loc[::5, "income"] = np.nan
BOUNDS = {"age": (0, 120), "income": (0, 100_000), "since": ("2020-01-01", "2020-12-31")}
CITIES = {"city": ["Bonn", "Ulm", "Rom"]}
AGES = {"bounds": {"age": (0, 120)}, "categories": None}
KNOWN = {"bounds": BOUNDS, "categories": CITIES}


def make(**params):
    return PrivateSynthesizer(**{"epsilon": 20.0, **QUICK, **KNOWN, **params})


@pytest.fixture(scope="module")
def model():
    return make(n_components=100, epochs=10).fit(TABLE)


def test_samples_resemble_the_table(model):
    rows = model.sample(5000, random_state=0)
    pd.testing.assert_series_equal(rows.dtypes, TABLE.dtypes)
    assert rows["age"].between(0, 120).all()
    assert rows["income"].dropna().between(0, 100_000).all()
    assert rows["since"].between("2020-01-01", "2020-12-31").all()
    # far beyond the noise, which cannot be fixed: its standard deviation is some ten rows
    assert abs(rows["income"].isna().mean() - 0.2) < 0.05
    assert abs((rows["city"] == "Bonn").mean() - 0.6) < 0.06
    assert abs(rows["age"].mean() - TABLE["age"].mean()) < 4
    assert ((rows["age"] > 60) == rows["old"]).mean() > 0.85
    poor = rows["income"] < 35_000
    assert (poor == rows["old"])[rows["income"].notna()].mean() > 0.85
    assert rows["age"].nunique() > 60  # whole numbers between a bin's edges, too


@brief
def test_second_fit_warns_even_after_a_failed_one():
    table = TABLE[["age", "city"]]
    model = make(bounds={"age": (0, 120)}).fit(table)
    with pytest.raises(ValueError, match="infinite"):
        model.fit(table.assign(age=np.inf))
    with pytest.warns(UserWarning, match="fitted before, with epsilon=20"):
        model.fit(table)
    unlearnable = pd.DataFrame({"code": np.arange(N), "age": AGE})
    model = make(bounds={"age": (0, 120)}, categories=None)
    with pytest.raises(ValueError, match="'code' has enough rows"):
        model.fit(unlearnable, discrete_columns=["code"])
    assert model.epsilon_ == 20.0
    with pytest.warns(UserWarning, match="fitted before, with epsilon=20"):
        model.fit(table)


def test_ledger_spends_exactly_the_budget(model):
    ledger = model.ledger_
    # the noise is little: all pairs are measured, each once
    assert ledger["step"].value_counts().to_dict() == {"rows": 1, "column": 5, "pair": 10}
    assert len({frozenset(pair) for pair in ledger.loc[ledger["step"] == "pair", "columns"]}) == 10
    assert ledger["sensitivity"].eq(1).all()
    assert (model.epsilon_, model.delta_) == (20.0, 1e-6)
    assert 19.9 < ledger["epsilon"].iloc[-1] <= 20.0
    assert abs(model.n_rows_ - N) < 100
    assert len(model.sample()) == model.n_rows_
    assert "epsilon=20" in repr(model)
    assert "(20, 1e-06)-differentially private" in model._repr_html_()


@brief
def test_pairs_are_selected_under_a_small_budget():
    # categories are as many as are given, whatever the noise: 31 x 31 cells a pair
    columns = {name: RNG.integers(0, 30, N) for name in "abcd"}
    known = {"bounds": None, "categories": {name: list(range(30)) for name in columns}}
    ledger = make(epsilon=1.0, **known).fit(pd.DataFrame(columns)).ledger_
    assert set(ledger["step"]) == {"rows", "column", "choice", "pair"}
    assert ledger["epsilon"].iloc[-1] <= 1.0


def test_conditions_shares_and_imputation_are_met(model):
    rows = model.sample(200, conditions={"city": "Ulm", "age": (70, 90)}, random_state=0)
    assert set(rows["city"]) == {"Ulm"}
    assert rows["age"].between(70, 90).all()
    assert rows["old"].mean() > 0.8  # as beside such an age
    rows = model.sample(100, shares={"city": {"Rom": 0.5, "Bonn": 0.5}}, random_state=0)
    assert rows["city"].value_counts().to_dict() == {"Rom": 50, "Bonn": 50}
    assert model.sample(90, balance="city")["city"].value_counts().eq(30).all()
    asked = {"city": ["Ulm", "Rom"], "age": [70, 80], "income": (None, 30_000)}
    rows = model.sample(50, conditions=asked, random_state=0)
    assert rows["city"].isin(["Ulm", "Rom"]).all()
    assert rows["age"].isin([70, 80]).all()
    assert rows["income"].le(30_000).all()
    assert model.sample(9, conditions={"income": None})["income"].isna().all()
    holes = TABLE.head(200).assign(city=None, old=TABLE["old"].astype(object))
    holes.loc[holes.index % 2 == 0, "old"] = None
    filled, _ = model.impute(holes, n_draws=2, random_state=0)
    assert not filled.isna().any(axis=None)
    known = TABLE.loc[holes.index, "income"].notna()
    pd.testing.assert_series_equal(filled["income"][known], TABLE["income"].head(200)[known])
    assert (filled["old"].astype(bool) == TABLE["old"].head(200)).mean() > 0.8


def test_methods_that_return_real_rows_are_refused(model):
    for name, says in (("fit_parquet", "read_parquet"), ("fit_resample", "not private.*balance")):
        assert not hasattr(model, name)
        with pytest.raises(AttributeError, match=f"PrivateSynthesizer has no {name}: .*{says}"):
            getattr(model, name)
    with pytest.raises(AttributeError, match="no attribute 'fit_parquets'"):
        _ = model.fit_parquets


def test_a_file_gives_the_same_rows_and_ledger(model, tmp_path):
    model.save(tmp_path / "model")
    again = combutab.load(tmp_path / "model")
    pd.testing.assert_frame_equal(
        again.sample(50, random_state=3), model.sample(50, random_state=3)
    )
    pd.testing.assert_frame_equal(again.ledger_, model.ledger_)
    assert (again.epsilon_, again.n_rows_) == (model.epsilon_, model.n_rows_)


@brief
def test_the_random_state_does_not_fix_the_noise():
    one, two = (make(**AGES).fit(TABLE[["age", "old"]]) for _ in range(2))
    assert one.ledger_["rho"].sum() == pytest.approx(two.ledger_["rho"].sum())
    assert not np.array_equal(one._states[0]["probabilities"], two._states[0]["probabilities"])


@brief
def test_bounds_and_categories_are_learned_within_the_budget():
    X = TABLE[["age", "income", "city"]].copy()
    X.loc[0, "city"] = "a single person's"
    X.loc[1, "income"] = 1e12
    model = PrivateSynthesizer(epsilon=20.0, **QUICK).fit(X)
    steps = model.ledger_["step"].tolist()
    assert (steps.count("bounds"), steps.count("categories")) == (2, 1)
    assert model.ledger_["epsilon"].iloc[-1] <= 20.0
    assert model.ledger_["delta"].sum() <= 1e-6
    rows = model.sample(2000, random_state=0)
    assert set(rows["city"]) == {"Bonn", "Ulm", "Rom"}
    with pytest.raises(ValueError, match="'city'"):
        model.sample(5, conditions={"city": "a single person's"})
    # noise may widen a bound: by a factor of 2 in one of 11 fits, of 2**13 in one of 10**7
    assert rows["income"].max() < 2**30
    assert rows["age"].max() <= 2**20
    with pytest.raises(ValueError, match=r"\['age', 'income', 'city'\]"):
        PrivateSynthesizer(learn_domain=0, **QUICK).fit(X)


def learn_bounds(monkeypatch, X, scale, noise=()):
    """Learn bounds of ages, where the noise is given: {cell: noise}."""

    def release(counts, rho, ledger, **kwargs):
        counts = counts.copy()
        for cell, value in dict(noise).items():
            counts[cell] += value
        return counts, scale

    monkeypatch.setattr(_domain, "release_counts", release)
    ledger = Ledger(epsilon=1.0, delta=1e-6)
    known = (float(len(X)), scale)
    return _domain.learn_bounds(X, "column 'age'", "age", 0.1, ledger, max_rows=1, n_rows=known)


def test_noise_does_not_widen_learned_bounds(monkeypatch):
    far = {165: 50, 5: 50}  # at 5 deviations, as one cell in a few million is
    assert learn_bounds(monkeypatch, TABLE["age"], 10.0, far) == (16, 128)


def test_few_numbers_beside_many_are_within_learned_bounds(monkeypatch):
    X = pd.Series(np.r_[np.full(2000, 40.0), np.full(60, 20.0), np.full(60, 100.0)])
    assert learn_bounds(monkeypatch, X, 30.0) == (16.0, 128.0)  # at 2 deviations each
    spread = pd.Series(np.r_[np.zeros(2000), 2.0 ** np.arange(0, 10).repeat(100)])
    assert learn_bounds(monkeypatch, spread, 30.0) == (0.0, 1024.0)


def test_numbers_beyond_learned_bounds_are_told_of(monkeypatch):
    X = pd.Series(np.r_[np.zeros(700), 2.0 ** np.arange(0, 10).repeat(30)])
    with pytest.warns(UserWarning, match=r"30%.*'age'.*0.*5.96"):
        assert learn_bounds(monkeypatch, X, 40.0) == (0.0, 2.0**-24)
    with pytest.warns(UserWarning, match="'age'"):
        learn_bounds(monkeypatch, X, 200.0)


def test_a_person_counts_once_whatever_her_rows(tmp_path):
    ids = np.r_[np.zeros(4000, dtype=int), np.arange(1, 1001)]  # one has four in five rows
    X = pd.DataFrame({"who": ids, "kind": pd.Categorical(np.where(ids == 0, "a", "b"))})
    model = PrivateSynthesizer(epsilon=20.0, max_rows_per_person=2, **QUICK)
    model.fit(X, person="who")
    assert abs(model.n_rows_ - 1002) < 60
    assert model.ledger_["sensitivity"].eq(2).all()
    rows = model.sample(1000, random_state=0)
    assert (rows["kind"] == "b").mean() > 0.9
    assert rows["who"].tolist() == list(range(1, 1001))  # made anew
    with pytest.raises(ValueError, match="'who' holds identifiers"):
        model.sample(5, conditions={"who": 3})
    model.sample(50, out=tmp_path / "rows.parquet")
    assert pd.read_parquet(tmp_path / "rows.parquet")["who"].tolist() == list(range(1, 51))
    with pytest.warns(UserWarning, match=r"epsilon=40.*delta=2e-06"):
        model.fit(X[["kind"]], person=ids)
    assert abs(model.n_rows_ - 1002) < 60
    with pytest.raises(ValueError, match="needs fit"):
        model.fit(X[["kind"]])


@brief
def test_integers_may_be_categories():
    X = pd.DataFrame({"code": RNG.choice([3, 700, 5], 2000), "flag": RNG.random(2000) < 0.5})
    model = PrivateSynthesizer(epsilon=20.0, **QUICK).fit(X, discrete_columns=["code"])
    assert set(model.sample(200)["code"]) == {3, 700, 5}
    model = PrivateSynthesizer(epsilon=20.0, categories={"code": [3, 5, 8]}, **QUICK).fit(X)
    assert set(model.sample(200)["code"]) <= {3, 5, 8}


def test_edges_are_bins_and_spikes_are_kept():
    x = np.where(RNG.random(4000) < 0.7, 0.0, RNG.uniform(-50, 90, 4000))
    X = pd.DataFrame({"x": x, "y": x + 1})
    bounds = {"x": (-100, 100), "y": [-100, 0, 10, 100]}
    model = make(bounds=bounds, categories=None).fit(X)
    rows = model.sample(3000, random_state=0)
    assert abs((rows["x"] == 0).mean() - 0.7) < 0.05
    assert len(model.encoder_.columns_[1].mixture.weights) == 3


@brief
def test_rows_meet_constraints_that_are_public():
    X = pd.DataFrame({"low": RNG.integers(0, 50, 2000)})
    X["high"] = X["low"] + RNG.integers(0, 50, 2000)
    rule = Inequality("low", "<=", "high")
    model = make(bounds={"low": (0, 100), "high": (0, 100)}, categories=None, constraints=[rule])
    rows = model.fit(X).sample(500)
    assert (rows["low"] <= rows["high"]).all()
    with pytest.raises(ValueError, match="without noise"):
        make(constraints=[FixedCombinations("city", "old")]).fit(TABLE)


@pytest.fixture
def uncounted(monkeypatch):
    """The number of rows has no noise, so that what is said of it can be compared."""
    release = _synthesizer.release_counts

    def exact(counts, *rest, **options):
        return counts, release(counts, *rest, **options)[1]

    monkeypatch.setattr(_synthesizer, "release_counts", exact)


def test_budget_too_small_for_any_table_is_refused(monkeypatch):
    monkeypatch.setattr(_mechanisms.Ledger, "charge", None)  # would raise a TypeError
    with pytest.raises(ValueError, match="too small") as error:
        make(epsilon=1e-5).fit(TABLE)
    said = str(error.value)
    assert "epsilon=1e-05 is too small for 5 columns ('age', 'income', 'city' and 2 more)" in said
    assert "delta=1e-06 is for fewer than 1,000,000 rows" in said
    assert said.endswith("Nothing was spent")


@brief
@pytest.mark.filterwarnings("ignore:no value of column 'city'")  # its threshold is higher
@pytest.mark.parametrize(
    "params",
    [KNOWN, {"bounds": {"since": BOUNDS["since"]}, "categories": None}],
    ids=["known", "learned"],
)
def test_refusal_of_small_budget_names_enough(params, uncounted):
    with pytest.raises(ValueError, match="too small") as error:
        make(epsilon=0.05, **params).fit(TABLE)
    said = str(error.value)
    assert "and there are about 3,000 (counted with noise)" in said
    spent = float(re.search("which has spent epsilon=(.*)$", said)[1])
    assert 0 < spent < 0.02
    enough = re.search("Use epsilon=(.*) or more, or at most ([1-4]) column", said)
    assert 0.05 < float(enough[1]) < 1
    few = TABLE[["city", "since", "age", "income"]].iloc[:, : int(enough[2])]
    known = {name: own for name, own in params["bounds"].items() if name in few}
    make(epsilon=float(enough[1]), **params).fit(TABLE)
    make(epsilon=0.05, bounds=known, categories=params["categories"]).fit(few)


@pytest.mark.slow
def test_persons_of_many_rows_need_a_larger_budget(uncounted):
    ids = np.arange(N) // 50
    make(epsilon=1.0).fit(TABLE)
    with pytest.raises(ValueError, match="max_rows_per_person"):
        make(epsilon=1.0, max_rows_per_person=50).fit(TABLE, person=ids)


def test_guide_lists_rows_needed_per_budget():
    guide = Path(__file__).parents[3] / "docs" / "guide" / "privacy.md"
    told = re.findall(
        r"\n\| ([\d.]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|", guide.read_text("utf-8")
    )
    assert len(told) == 4
    for epsilon, *rows in told:
        for n, least in zip((5, 20, 50), rows, strict=True):
            X = pd.DataFrame(np.zeros((3, n), dtype=bool))
            with pytest.raises(ValueError, match=f"of at least {least} rows"):
                PrivateSynthesizer(epsilon=float(epsilon)).fit(X)


@brief
def test_too_large_delta_is_refused(uncounted):
    says = "delta=0.001 must be .* about 3,000 .counted with noise.*Use delta=1e-05 or less"
    with pytest.raises(ValueError, match=says):
        make(delta=1e-3, **AGES).fit(TABLE[["age", "old"]])
    make(delta=1e-5, **AGES).fit(TABLE[["age", "old"]])


@pytest.mark.parametrize(
    ("params", "X", "says"),
    [
        ({"epsilon": 0}, TABLE, "'epsilon' parameter"),
        ({"epsilon": -1.0}, TABLE, "'epsilon' parameter"),
        ({"epsilon": np.nan}, TABLE, "'epsilon' parameter"),
        ({"epsilon": 1000.0}, TABLE, "'epsilon' parameter"),
        ({"epsilon": True}, TABLE, "epsilon must be a number, got True"),
        ({"delta": 0.5}, TABLE, "'delta' parameter"),
        ({"bounds": {"agee": (0, 1)}}, TABLE, "bounds: .*agee.*age"),
        ({"categories": {"town": ["a"]}}, TABLE, "categories: .*town"),
        ({"bounds": BOUNDS | {"age": (9, 3)}}, TABLE, "'age'"),
        ({"bounds": BOUNDS | {"income": (9.0, 9.0)}}, TABLE, "'income'"),
        ({"bounds": BOUNDS | {"income": (0.0, np.nan)}}, TABLE, "'income': .*bounds"),
        ({"bounds": BOUNDS | {"age": (0.5, 3)}}, TABLE, "whole numbers"),
        ({"bounds": BOUNDS | {"age": 3}}, TABLE, "must be .low, high."),
        ({"bounds": BOUNDS | {"city": (0, 3)}}, TABLE, "'city'"),
        ({"categories": {"city": "Bonn"}}, TABLE, "must be a list of values"),
        ({"categories": {"city": ["a", "a"]}}, TABLE, "different values"),
        ({"bounds": {}}, TABLE, "bounds of dates and durations are not learned"),
        ({"identifiers": list(TABLE)}, TABLE, "nothing to learn|is in bounds"),
        ({}, TABLE[:0], "0 sample"),
        ({}, pd.concat([TABLE, TABLE[["age"]]], axis=1), "age"),
        ({"device": "cuda:77"}, TABLE, "cuda"),
    ],
)
def test_bad_input_is_refused_before_anything_is_spent(params, X, says, monkeypatch):
    monkeypatch.setattr(_synthesizer, "Ledger", None)  # would raise a TypeError
    with pytest.raises(ValueError, match=says):
        make(**params).fit(X)


@pytest.mark.parametrize(
    ("changed", "params", "says"),
    [
        ({"income": np.inf}, {}, "'income'"),
        ({"income": np.inf}, {"bounds": {k: v for k, v in BOUNDS.items() if k != "income"}},
         "'income'"),
        ({"income": pd.Series(["0.5"] * len(TABLE), dtype=object)}, {},
         r"'income'.*'0.5'"),
        ({"city": pd.Series([["a"]] * len(TABLE))}, {"categories": None}, "'city'|list"),
        ({"since": pd.Series([pd.Timestamp("2020-01-01").date()] * len(TABLE))},
         {"bounds": BOUNDS | {"since": (0, 9)}}, "'since'"),
        ({"age": pd.Categorical(TABLE["age"])}, {}, "'age'"),
    ],
)  # fmt: skip
def test_unreadable_values_are_refused_before_anything_is_spent(changed, params, says, monkeypatch):
    monkeypatch.setattr(_synthesizer, "Ledger", None)
    with pytest.raises((ValueError, TypeError), match=says):
        make(**params).fit(TABLE.assign(**changed))


def test_missing_persons_are_refused(monkeypatch):
    monkeypatch.setattr(_synthesizer, "Ledger", None)
    with pytest.raises(ValueError, match="person is missing"):
        make().fit(TABLE, person="income")
    for persons, shape in (([1, 2, 3], r"\(3,\)"), (TABLE[["age"]], r"\(3000, 1\)")):
        with pytest.raises(ValueError, match=f"person has the shape {shape}, and X 3000 rows"):
            make().fit(TABLE, person=persons)
    with pytest.raises(ValueError, match=r"'cty'.*'city'"):
        make().fit(TABLE, person="cty")


@pytest.mark.parametrize("n", [1, 2])
def test_a_few_rows_are_refused(n):
    with pytest.raises(ValueError, match=r"too small.*5 columns"):
        make(epsilon=0.1).fit(TABLE[:n])


@brief
def test_columns_of_missing_cells_and_of_one_value():
    n = 300
    X = pd.DataFrame({"x": [np.nan] * n, "c": pd.Categorical(["a"] * n, ["a"]), "b": [True] * n})
    model = make(bounds={"x": (0, 1)}, categories=None).fit(X)
    assert list(model.sample(5)) == ["x", "c", "b"]


@brief
def test_thousands_of_categories():
    X = pd.DataFrame({"c": RNG.integers(0, 4_000, 2000).astype(str), "b": RNG.random(2000) < 0.5})
    names = [str(i) for i in range(4_000)]
    model = make(bounds=None, categories={"c": names}, n_components=5).fit(X)
    rows = model.sample(100)
    assert set(rows["c"]) <= set(names)


@brief
def test_an_array_is_learned_by_positions():
    X = RNG.normal(size=(500, 2))
    model = make(bounds={0: (-4, 4), 1: (-4, 4)}, categories=None).fit(X)
    assert model.sample(7).shape == (7, 2)
    assert np.abs(model.sample(500)).max() <= 4


def test_without_opendp_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(_mechanisms.Ledger, "charge", None)
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(ImportError, match="pip install opendp"):
        make().fit(TABLE)


@brief
def test_listed_categories_replace_those_of_the_dtype(tmp_path):
    rows = pd.Categorical(["a", "b"] * 50, categories=["a", "b", "one person's"])
    model = PrivateSynthesizer(
        epsilon=20.0, categories={"kind": ["a", "b", "c"]}, epochs=1, n_components=4
    ).fit(pd.DataFrame({"kind": rows, "flag": np.arange(100) % 3 == 0}))
    assert model.sample(10)["kind"].dtype == pd.CategoricalDtype(["a", "b", "c"])
    model.save(tmp_path / "model")
    assert b"one person's" not in (tmp_path / "model").read_bytes()


def test_unsuitable_bounds_and_decimals_are_refused():
    table = pd.DataFrame({"day": pd.to_datetime(["2025-01-01"] * 9), "x": 0.5})
    table["byte"] = np.arange(9, dtype="int8")
    table["single"] = table["x"].astype("float32")
    table["text"] = pd.array(["a"] * 9, dtype="string")
    for params, says in (
        ({"bounds": {"day": (0, 5)}}, r"bounds of 'day' must be dates .* got \(0, 5\)"),
        ({"bounds": {"text": (0, 5)}}, "'text' has text, which has no bounds; give its categories"),
        ({"bounds": {"byte": (0, 130)}}, r"int8 cannot hold its bounds 0, 130: .* -128 to 127"),
        ({"bounds": {"byte": (0, 300)}}, r"int8 cannot hold its bounds 0, 300: .* -128 to 127"),
        ({"bounds": {"single": (0, 1e39)}}, "'single': float32 cannot hold its bounds 0, 1e.39"),
        ({"bounds": {"single": (0, np.inf)}}, "'single': float32 cannot hold its bounds 0, inf"),
        ({"categories": {"byte": [1, 300]}}, "'byte': int8 cannot hold its categories"),
        (
            {"decimals": {"x": 1.5}},
            "decimals of 'x' must be a whole number from -22 to 22, got 1.5",
        ),
        (
            {"decimals": {"x": 400}},
            "decimals of 'x' must be a whole number from -22 to 22, got 400",
        ),
    ):
        with pytest.raises(ValueError, match=says):
            PrivateSynthesizer(**params).fit(table)


@brief
def test_bounds_may_have_fewer_digits_than_the_column():
    table = pd.DataFrame({"x": np.linspace(-3, 3, 900), "flag": [1, 0, 0] * 300})
    bounds = {"x": np.array([-4, 4], dtype="float32")}
    model = PrivateSynthesizer(epsilon=20.0, bounds=bounds, epochs=1, n_components=4).fit(table)
    assert model.sample(50)["x"].between(-4, 4).all()


@brief
@pytest.mark.parametrize(
    "bounds", [{"half": (-4, 4)}, {"half": (np.float64(-4), np.float64(4))}, None]
)
def test_a_column_of_half_precision(bounds):
    table = pd.DataFrame(
        {"half": np.linspace(-3, 3, 900).astype("float16"), "flag": [1, 0, 0] * 300}
    )
    rows = PrivateSynthesizer(epsilon=20.0, bounds=bounds, epochs=1, n_components=4).fit(table)
    made = rows.sample(50)["half"]
    assert made.dtype == np.float16
    assert made.between(-4, 4).all()


@brief
def test_a_column_without_a_frequent_value_is_told():
    small = {"epsilon": 1.0, "epochs": 1, "n_components": 4, "bounds": {"x": (0, 1)}}
    n = 3000  # rows; each value has one
    table = pd.DataFrame({"x": np.linspace(0, 1, n), "name": [f"n{i}" for i in range(n)]})
    with pytest.warns(UserWarning, match="'name'"):
        model = PrivateSynthesizer(**small).fit(table)
    assert model.sample(20)["name"].isna().all()
    table["name"] = np.arange(n)
    with pytest.raises(ValueError, match=r"int64.*categories"):
        PrivateSynthesizer(**small).fit(table, discrete_columns=["name"])


# ---- What one row of an unusual form may not decide ----------------------------------------------

MOMENT, ALTERNATE = pd.Timestamp("2024-01-01", tz="UTC"), np.arange(900) % 2


def objects(*pair):
    """A column of two values in turn, as objects."""
    return pd.Series([pair[i] for i in ALTERNATE], dtype=object)


UNUSUAL = {  # a column, an equal or unseen value that one more row has, and parameters
    "minus zero": (pd.Series(ALTERNATE * 1.0), -0.0, {"discrete_columns": ["v"]}),
    "minus zero, float32": (
        pd.Series(ALTERNATE, dtype="float32"),
        np.float32(-0.0),
        {"discrete_columns": ["v"]},
    ),
    "boolean among integers": (objects(0, 1), True, {}),
    "integer among booleans": (objects(False, True), 1, {}),
    "float among integers": (objects(0, 1), 1.0, {}),
    "numpy among integers": (objects(0, 1), np.int8(1), {}),
    "decimals": (objects(Decimal("1.0"), Decimal("2.0")), Decimal("1.000"), {}),
    "time zone": (
        objects(MOMENT, MOMENT + pd.Timedelta("1 day")),
        MOMENT.tz_convert("Europe/Berlin"),
        {"discrete_columns": ["v"]},
    ),
    "unit": (
        objects(pd.Timestamp(0), pd.Timestamp(9)),
        pd.Timestamp(0).as_unit("s"),
        {"discrete_columns": ["v"]},
    ),
    "datetime": (
        objects(MOMENT, MOMENT + pd.Timedelta("1 day")),
        MOMENT.to_pydatetime(),
        {"discrete_columns": ["v"]},
    ),
    "duration": (objects(pd.Timedelta("1h"), pd.Timedelta("2h")), timedelta(hours=1), {}),
    "text among numbers": (objects(0, 1), "n/a", {}),
    "number among texts": (objects("a", "b"), 7, {}),
    "numpy text": (objects("a", "b"), np.str_("a"), {}),
    "tuple": (objects((0.0,), (1.0,)), (-0.0,), {}),
    "missing": (objects("a", "b"), None, {}),
    "decimals of floats": (pd.Series(ALTERNATE * 1.5), 0.123456, {"bounds": {"v": (0, 2)}}),
    "time of day": (
        pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(ALTERNATE, "D")),
        pd.Timestamp("2024-01-01 12:34:56.789"),
        {"bounds": {"v": (pd.Timestamp("2023-01-01"), pd.Timestamp("2025-01-01"))}},
    ),
    "far number": (pd.Series(ALTERNATE + 3.0), 1e9, {}),
}


def visible_facts(values, params, tmp_path):
    """What a fit and its samples show, apart from noisy numbers."""
    params = dict(params)
    discrete = params.pop("discrete_columns", "auto")
    settings = {"epsilon": 5.0, "epochs": 1, "n_components": 5, "random_state": 0, **params}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PrivateSynthesizer(**settings).fit(
            pd.DataFrame({"v": values}), discrete_columns=discrete
        )
        rows = model.sample(300)
    coder = model.encoder_.columns_[0]
    facts = [
        type(coder),
        str(rows["v"].dtype),
        [re.sub(r"\d+", "0", str(w.message)) for w in caught],
    ]
    if hasattr(coder, "keys"):
        facts.append(
            [(type(key), repr(key), repr(getattr(key, "tzinfo", ""))) for key in coder.keys]
        )
        facts.append({repr(value) for value in rows["v"].dropna().astype(object)})
    else:
        facts += [type(coder.format), getattr(coder.format, "decimals", None)]
        facts += [coder.format] * ("bounds" in params)  # learned bounds depend on the noise
    model.save(tmp_path / "v.model")
    loaded = combutab.load(tmp_path / "v.model").encoder_.columns_[0]
    return [*facts, list(map(repr, getattr(loaded, "keys", [])))]


@brief
@pytest.mark.parametrize("name", ["minus zero", "integer among booleans", "decimals", "time zone"])
def test_equal_values_show_the_frequent_spelling(name, tmp_path):
    values, unusual, params = UNUSUAL[name]
    more = pd.concat([pd.Series([unusual], dtype=values.dtype), values], ignore_index=True)
    assert visible_facts(more, params, tmp_path) == visible_facts(values, params, tmp_path)


@brief
@pytest.mark.slow
@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("name", UNUSUAL)
def test_one_unusual_row_changes_no_visible_fact(name, place, tmp_path):
    values, unusual, params = UNUSUAL[name]
    parts = [pd.Series([unusual], dtype=values.dtype), values]
    more = pd.concat(parts if place == "first" else parts[::-1], ignore_index=True)
    for _ in range(3):
        assert visible_facts(more, params, tmp_path) == visible_facts(values, params, tmp_path)


@brief
def test_spellings_that_are_both_frequent_are_one_category():
    model = PrivateSynthesizer(epsilon=5.0, epochs=1, n_components=5)
    model.fit(pd.DataFrame({"v": pd.concat([objects(0, 1), objects(False, 1.0)])}))
    assert list(map(repr, model.encoder_.columns_[0].keys)) == ["False", "1.0"]


@brief
def test_longest_text_of_array_is_not_revealed():
    array = np.array([["a", "b"][i] for i in ALTERNATE] + ["a very long text"])[:, None]
    model = PrivateSynthesizer(epsilon=5.0, epochs=1, n_components=5).fit(array)
    assert model.sample(5).dtype == np.dtype("<U1")


DAYS = pd.Series([date(2024, 1, 1) + timedelta(i) for i in range(360)], dtype=object, name="day")
YEARS = (date(2023, 12, 1), date(2025, 2, 1))


@brief
@pytest.mark.parametrize(
    ("days", "bounds", "kind"),
    [
        (DAYS, YEARS, date),
        (DAYS.where(DAYS.index > 50), YEARS, date),
        (DAYS.map(lambda day: datetime(day.year, day.month, day.day, 9)), YEARS, date),
        (DAYS, (datetime(2023, 12, 1), datetime(2025, 2, 1)), datetime),
        (
            DAYS.map(lambda day: datetime(day.year, day.month, day.day, tzinfo=UTC)),
            (datetime(2023, 12, 1, tzinfo=UTC), datetime(2025, 2, 1, tzinfo=UTC)),
            datetime,
        ),
        (DAYS.where(DAYS.index > 0, date(9999, 12, 31)), YEARS, date),
    ],
)
def test_date_objects_with_bounds(days, bounds, kind, tmp_path):
    table = pd.DataFrame({"day": days.astype(object), "x": np.arange(360) % 7})
    model = make(epsilon=20.0, bounds={"day": bounds, "x": (0, 6)}, categories=None, decimals=None)
    model.fit(table).save(tmp_path / "m")
    for fitted in (model, combutab.load(tmp_path / "m")):
        rows = fitted.sample(400, random_state=0)["day"].dropna()
        assert len(rows) > 300
        assert {type(day) for day in rows} == {kind}
        assert rows.between(*bounds).all()
        assert rows.nunique() > 20


@pytest.mark.parametrize(
    ("days", "params", "says"),
    [
        (DAYS, {}, "give bounds of \\['day'\\]"),
        (DAYS.where(DAYS.index > 0, "soon"), {}, "give bounds of \\['day'\\]"),
        (DAYS.where(DAYS.index > 3, "soon"), {"bounds": {"day": YEARS}}, "'day' .* 'soon'"),
        (
            DAYS.map(lambda day: datetime(day.year, day.month, day.day, tzinfo=UTC)),
            {"bounds": {"day": YEARS}},
            "'day' and its bounds must all have a time zone",
        ),
    ],
)
def test_date_objects_are_never_lost(days, params, says, monkeypatch):
    monkeypatch.setattr(_synthesizer, "Ledger", None)
    with pytest.raises(ValueError, match=says):
        PrivateSynthesizer(**params).fit(pd.DataFrame({"day": days.astype(object)}))
