"""CTGAN and TVAE: what fit and sample promise."""

import copy
import datetime
import warnings
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from combutab.activations import CombU
from combutab.generators import CTGAN, TVAE, TabFlow, completion, sampling
from tests.generators.small import EVERY, RATES, make

RNG = np.random.default_rng(0)
N = 300
TABLE = pd.DataFrame(
    {
        "amount": (RNG.choice([0, 9], N) + RNG.normal(0, 1, N)).round(2),
        "kind": RNG.choice(["a", "b", "c"], N, p=[0.7, 0.25, 0.05]),
        "level": pd.Categorical(RNG.choice(["lo", "hi"], N), ["lo", "mid", "hi"], ordered=True),
        "count": RNG.integers(0, 50, N),
        "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 999, N), unit="D"),
        "flag": RNG.random(N) < 0.3,
        "same": 7,
    }
)
TABLE.loc[::10, "amount"] = np.nan
TABLE.loc[::15, "kind"] = None


LOSSES = {
    CTGAN: ["Generator Loss", "Discriminator Loss"],
    TVAE: ["Loss"],
    TabFlow: ["Codes Loss", "Values Loss"],
}


@pytest.fixture(scope="module", params=[CTGAN, TVAE, TabFlow], ids=["CTGAN", "TVAE", "TabFlow"])
def fitted(request):
    drawn = {"argmax": False} if request.param is TVAE else {}  # missing values among the rest
    return make(request.param, **drawn).fit(TABLE)


# ---- schema -------------------------------------------------------------------------------------


def test_samples_have_the_tables_schema_and_bounds(fitted):
    sample = fitted.sample(500)
    assert sample.columns.tolist() == TABLE.columns.tolist()
    level = TABLE["level"].cat.remove_unused_categories()  # "mid" is of no row
    assert (sample.dtypes == TABLE.assign(level=level).dtypes).all()
    assert len(sample) == 500
    for name in ("amount", "count", "when"):  # a tenth of the spread, by which bounds are moved out
        margin = (TABLE[name].max() - TABLE[name].min()) / 10
        assert sample[name].min() >= TABLE[name].min() - margin
        assert sample[name].max() <= TABLE[name].max() + margin
    assert sample["count"].min() >= 0
    cents = 100 * sample["amount"].dropna()
    np.testing.assert_allclose(cents, cents.round(), atol=1e-6)
    assert set(sample["kind"].dropna()) <= {"a", "b", "c"}
    assert sample["amount"].isna().any()
    assert sample["kind"].isna().any()
    assert (sample["same"] == 7).all()


@EVERY
def test_arrays_in_give_arrays_out(cls):
    X = np.column_stack([RNG.normal(size=200), RNG.integers(0, 3, 200)])
    sample = make(cls).fit(X, [1]).sample(40)
    assert isinstance(sample, np.ndarray)
    assert sample.shape == (40, 2)
    assert set(sample[:, 1]) <= {0.0, 1.0, 2.0}


@EVERY
@pytest.mark.parametrize(
    "table",
    [
        TABLE[["amount"]],
        TABLE[["kind", "flag"]],
        TABLE[["same"]],
        TABLE[["kind"]].rename(columns={"kind": 0}),
        TABLE.iloc[:1],
        TABLE.iloc[:7],
    ],
    ids=["numbers only", "categories only", "constant", "integer name", "one row", "seven rows"],
)
def test_tables_of_one_sort(cls, table):
    least = 5 if len(table) == N else 1
    model = make(cls, min_frequency=least)
    sample = model.fit(table).sample(30)
    assert sample.columns.tolist() == table.columns.tolist()
    assert (sample.dtypes == table.dtypes).all()
    assert len(sample) == 30
    assert len(model.sample(0)) == 0


# ---- seeds --------------------------------------------------------------------------------------


@EVERY
def test_repeated_sample_calls_continue_the_generator(cls):
    first, second = make(cls).fit(TABLE), make(cls, random_state=None)
    second.set_random_state(0)  # before a fit it is the fit's
    second.fit(TABLE)
    for _ in range(2):
        pd.testing.assert_frame_equal(first.sample(50), second.sample(50))
    assert not first.sample(50).equals(first.sample(50))
    pd.testing.assert_frame_equal(
        first.sample(50, random_state=3), second.sample(50, random_state=3)
    )
    first.set_random_state(4)
    second.set_random_state(4)
    pd.testing.assert_frame_equal(first.sample(50), second.sample(50))


def test_sampling_does_not_change_the_model(fitted):
    before = [{n: v.copy() for n, v in state.items()} for state in fitted._states]
    fitted.sample(100, conditions={"kind": "c"})
    for state, old in zip(fitted._states, before, strict=True):
        for name, value in state.items():
            np.testing.assert_array_equal(value, old[name])


@EVERY
@pytest.mark.parametrize(
    "params",
    [
        {"normalization": "layer", "proxy_norm": True, "activation": "relu"},
        {"normalization": "none"},
        {"precision": "bf16-mixed", "activation": "swish", "normalization": "rms"},
    ],
    ids=str,
)
def test_other_networks(cls, params):
    if cls is TabFlow:  # which has no use for it
        params = {**params, "proxy_norm": False}
    assert len(make(cls, **params).fit(TABLE[:100]).sample(10)) == 10


def test_more_critic_steps_and_true_frequencies():
    model = make(CTGAN, discriminator_steps=3, log_frequency=False).fit(TABLE)
    assert len(model.sample(10)) == 10


# ---- conditions ---------------------------------------------------------------------------------


def test_conditions_are_met_by_all_rows(fitted):
    assert (fitted.sample(40, "kind", "c")["kind"] == "c").all()  # ctgan's call
    assert fitted.sample(40, conditions={"kind": None})["kind"].isna().all()
    both = fitted.sample(
        25, {"kind": ["b", "c"], "level": "hi", "count": (10, 30), "amount": (None, 8)}
    )
    assert len(both) == 25
    assert both["kind"].isin(["b", "c"]).all()
    assert (both["level"] == "hi").all()
    assert both["count"].between(10, 30).all()
    assert (both["amount"] <= 8).all()
    since = pd.Timestamp("2021-06-01")
    assert (fitted.sample(20, conditions={"when": (since, None)})["when"] >= since).all()


def test_sample_from_keeps_order_and_index(fitted):
    asked = pd.DataFrame(
        {"kind": ["c", "a", None, "c"], "flag": [True, False, True, True]}, index=[9, 2, 5, 7]
    )
    rows = fitted.sample_from(asked, random_state=0)
    assert rows.index.tolist() == [9, 2, 5, 7]
    assert rows["kind"].tolist()[:2] == ["c", "a"]
    assert rows["flag"].tolist() == [True, False, True, True]
    pd.testing.assert_frame_equal(rows, fitted.sample_from(asked, random_state=0))


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"knd": "a"}, "knd"),
        ({"kind": "zebra"}, "zebra"),
        ({"amount": 1e9}, r"'amount'.*1000000000.0"),
        ({"amount": (5, 1)}, "empty"),
        ({"amount": (1, 2, 3)}, "range"),
        ({"kind": ("a", "b")}, "discrete"),
        ({"kind": []}, "no values"),
        ({"count": (1000, None)}, r"'count'.*1000.*0.*48"),
        ({"count": (None, -1)}, "'count'"),
        ({"count": ("1", "5")}, r"'1'.*'count'.*0"),
        ({"count": (pd.NA, 5)}, "<NA> cannot be an end"),
        ({"count": (True, 5)}, "True cannot be an end"),
        ({"when": (0, 1)}, "0 cannot be an end of .*'when', which has values like 20(19|20)"),
        ({"when": ("nonsense", None)}, "'nonsense'"),
        ({"when": (pd.Timestamp("2021-01-01", tz="UTC"), None)}, "cannot be an end"),
        ({"same": 8}, "8"),
        ({"same": (8, 9)}, r"'same'.*8.*9"),
        ({"count": None}, "'count'"),
        ([("kind", "a")], "mapping such as .* got list"),
        (TABLE[["kind"]], r"DataFrame.*sample_from"),
    ],
)
def test_conditions_that_cannot_be_met(fitted, conditions, message):
    with pytest.raises(ValueError, match=message):
        fitted.sample(5, conditions=conditions)


def test_conditions_of_many_forms(fitted):
    two = ["b", "c"]
    for values in (np.array(two), pd.Index(two), pd.Series(two), set(two), pd.Categorical(two)):
        assert fitted.sample(9, {"kind": values})["kind"].isin(["b", "c"]).all()
    assert fitted.sample(9, conditions={"same": 7, "flag": np.bool_(True)})["flag"].all()
    for since in ("2021-6-1", datetime.date(2021, 6, 1), np.datetime64("2021-06-01")):
        dates = fitted.sample(9, conditions={"when": (since, "2021-10-1")})["when"]
        assert dates.between("2021-06-01", "2021-10-01").all()
    ever = (datetime.datetime(1, 1, 1), "9999-12-31")
    assert fitted.sample(9, conditions={"when": ever}).shape == (9, TABLE.shape[1])
    asked = TABLE[["same", "kind"]].tail(20)
    given = asked["kind"].notna()  # a missing value leaves the column free
    assert (fitted.sample_from(asked)["kind"][given] == asked["kind"][given]).all()
    assert fitted.sample(9, conditions={"amount": None})["amount"].isna().all()
    many = pl.DataFrame({"kind": ["a", "b"]})
    assert fitted.sample_from(many)["kind"].tolist() == ["a", "b"]


def test_conditions_on_times_of_day():
    pa = pytest.importorskip("pyarrow")
    clock = [datetime.time(i // 60, i % 60) for i in range(0, 1200, 4)]
    times = pd.Series(clock, dtype=pd.ArrowDtype(pa.time32("s")))
    table = pd.DataFrame({"at": times, "x": np.arange(300.0)})
    model = make(TabFlow, epochs=1).fit(table)
    asked = table[["at"]][50:60]
    pd.testing.assert_frame_equal(model.sample(seed_data=asked)[["at"]], asked)
    low, high = datetime.time(3), datetime.time(4, 30)
    rows = model.sample(9, conditions={"at": (low, high)})["at"]
    assert rows.between(low, high).all()
    with pytest.raises(ValueError, match=r"3.*'at'"):
        model.sample(9, conditions={"at": 3})


def test_conditions_on_large_integers_are_exact():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"hash": rng.integers(-(2**62), 2**62, 200), "x": rng.normal(size=200)})
    table["at"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 10**17, 200))
    model = make(TabFlow, epochs=1).fit(table)
    given = table[["hash", "at"]][(table.rank(pct=True) - 0.5).abs().max(axis=1) < 0.4].head(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pd.testing.assert_frame_equal(model.sample(seed_data=given)[["hash", "at"]], given)
    for name in given:
        asked = given[name].iloc[0]
        assert (model.sample(3, conditions={name: asked})[name] == asked).all()
    with pytest.raises(ValueError, match=r"'hash'.*2\.75.*3"):
        model.sample(3, conditions={"hash": 2.75})


def test_conditions_on_clocks_that_were_changed():
    hours = pd.date_range("2018-01-01", periods=9000, freq="h", tz="America/Havana")
    model = make(TabFlow, epochs=1).fit(pd.DataFrame({"when": hours[::30], "x": np.arange(300.0)}))
    for twice_or_never in ("2018-11-04 00:30", "2018-03-11 00:30"):
        for asked in (twice_or_never, (twice_or_never, None)):
            with pytest.raises(ValueError, match=f"Havana, .* {twice_or_never}.* its offset"):
                model.sample(2, conditions={"when": asked})
    rows = model.sample(2, conditions={"when": "2018-11-04 00:00-05:00"})["when"]
    assert (rows == pd.Timestamp("2018-11-04 05:00", tz="UTC")).all()
    day = model.sample(9, conditions={"when": ("2018-11-04", "2018-11-05")})["when"]  # of 25 hours
    assert day.between("2018-11-04 04:00+00:00", "2018-11-05 05:00+00:00").all()
    assert model.sample(1, conditions={"when": ("2018-03-11", None)}).notna().all(axis=None)


def test_conditions_given_twice_or_by_half(fitted):
    with pytest.raises(ValueError, match=r"given twice: 'kind' and {'flag': True}"):
        fitted.sample(5, "kind", "a", conditions={"flag": True})
    with pytest.raises(ValueError, match="given twice"):
        fitted.sample(5, {"kind": "a"}, conditions={"flag": True})
    with pytest.raises(ValueError, match=r"condition_value='a'.*condition_column"):
        fitted.sample(5, condition_value="a")
    twice = pd.DataFrame([["a", "b"]], columns=["kind", "kind"])
    with pytest.raises(ValueError, match=r"\['kind'\]"):
        fitted.sample_from(twice)
    with pytest.raises(ValueError, match=r"seed_data.*\['kind'\]"):
        fitted.sample(seed_data=twice)


def test_rare_ranges_are_given_up_soon(fitted, monkeypatch):
    made = []
    name = "fill" if type(fitted) is TabFlow else "generate_allowed"
    generate = getattr(type(fitted)._sampler_class, name)

    def counted(self, n, *args):
        made.append(n if name == "generate_allowed" else len(n))
        values, codes, mass = generate(self, n, *args)
        return values, codes, np.zeros_like(mass)  # never the one that is asked for

    monkeypatch.setattr(type(fitted)._sampler_class, name, counted)
    for module in (completion, sampling):
        monkeypatch.setattr(module, "CHUNK", 10)
    fitted = copy.copy(fitted)  # makes a sampler of its own
    with pytest.raises(ValueError, match=r"0 of \d+.*'kind'.*10000"):
        fitted.sample(10_000, "kind", "c")
    assert sum(made) < 5000


def test_bad_numbers_of_rows(fitted):
    for n in (-1, 2.5, "3"):
        with pytest.raises(ValueError, match="must be an int"):
            fitted.sample(n)
    with pytest.raises(ValueError, match="DataFrame"):
        fitted.sample_from([{"kind": "a"}])


# ---- training -----------------------------------------------------------------------------------


def test_losses_by_epoch(fitted):
    losses = fitted.loss_values
    assert losses.columns.tolist() == ["Epoch", *LOSSES[type(fitted)]]
    assert losses["Epoch"].tolist() == [0, 1]
    assert np.isfinite(losses).all(axis=None)
    assert fitted.n_iter_ == 2


class Untouchable:
    def __getattr__(self, name):
        raise AssertionError(f"the data was touched: {name}")


class Detached(torch.nn.Module):
    def forward(self, x):
        return x.detach()


@pytest.mark.parametrize(
    ("cls", "params", "error", "message"),
    [
        (CTGAN, {"pac": 7}, ValueError, r"pac=7 must divide batch_size=50.*batch_size=49"),
        (TVAE, {"activation": "relux"}, ValueError, "unknown activation 'relux'"),
        (CTGAN, {"generator_dim": (0,)}, ValueError, "generator_dim must hold"),
        (CTGAN, {"proxy_norm": True}, ValueError, "normalization='layer'"),
        (TabFlow, {"proxy_norm": True}, ValueError, "proxy_norm=True"),
        (TVAE, {"random_state": "seed"}, ValueError, "'random_state' parameter"),
        (CTGAN, {"epochs": 0}, ValueError, "'epochs' parameter"),
        (TVAE, {"activation": torch.relu}, TypeError, "callable width -> nn.Module, got <built-in"),
        (TVAE, {"activation": torch.nn.Softmax}, ValueError, "fails in training on an input of"),
        (TVAE, {"activation": lambda width: torch.nn.Linear(width, 3)}, ValueError, "keeps the sh"),
        (TVAE, {"activation": lambda width: Detached()}, ValueError, "cannot be differentiated"),
    ],
)
def test_bad_parameters_are_refused_before_reading_data(cls, params, error, message):
    with pytest.raises(error, match=message):
        make(cls, **params).fit(Untouchable())


@pytest.mark.parametrize("discrete", ["kind", None, 5, "nonsense"])
def test_discrete_columns_are_a_list(discrete):
    with pytest.raises(ValueError, match=f"'auto'.*{discrete!r}"):
        make(TVAE).fit(TABLE, discrete_columns=discrete)


@pytest.mark.parametrize(
    "params",
    [
        {"discriminator_dim": ()},
        {"generator_dim": ()},
        {"discriminator_dim": (2,)},  # CombU's units of ReLU alone
        {"discriminator_dim": (16, 1)},
        {"activation": partial(CombU, ratios={"relu": 1.0})},
    ],
    ids=str,
)
def test_critics_of_few_or_no_units(params):
    assert len(make(CTGAN, **params).fit(TABLE).sample(5)) == 5


@EVERY
def test_diverged_fit_leaves_no_model(cls):
    model = make(cls).fit(TABLE)
    with pytest.raises(ValueError, match="diverged"):
        model.set_params(**{RATES[cls]: 1e30}, epochs=5).fit(TABLE)
    with pytest.raises(ValueError, match="not fitted"):
        model.sample(3)
