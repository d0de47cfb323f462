"""Conditions on sampled rows: what is asked is what is meant, and what was found is not lost."""

from __future__ import annotations

import datetime
import decimal
import os
import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest

from combutab import CTGAN, TVAE, TabFlow
from combutab.cli import main
from combutab.generators import ShortfallError, sampling
from combutab.generators.conditions import read_conditions
from combutab.generators.sampling import RowsDrawn, Sampler
from combutab.nn import RowSpans
from combutab.preprocessing import ModeEncoder

BUDGET = int(os.environ.get("COMBUTAB_TRUST_BUDGET", "1"))

QUICK = {"epochs": 2, "batch_size": 50, "random_state": 0}

NARROW = {
    CTGAN: {"generator_dim": (16,), "discriminator_dim": (16,), "embedding_dim": 8},
    TVAE: {"compress_dims": (16,), "decompress_dims": (16,), "embedding_dim": 8},
    TabFlow: {"hidden_layer_sizes": (16,), "early_stopping": False},
}

BOTH = pytest.mark.parametrize("cls", [CTGAN, TVAE, TabFlow])

N = 400

RNG = np.random.default_rng(0)


def make(cls, **params):
    return cls(**QUICK | NARROW[cls] | params)


def numbers(dtype, values):
    return pd.Series(values).astype(dtype)


# each a column of one dtype, with values that it has, in the forms that a user may write them
WHOLE = RNG.integers(20, 60, N)

DAYS = pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 40, N), unit="D")

MANY = RNG.normal(50, 9, N)

COLUMNS = {
    "int64": (WHOLE, [40, 40.0, np.int8(40), np.float32(40), np.uint64(40), decimal.Decimal(40)]),
    "uint8": (numbers("uint8", WHOLE), [40, np.int64(40)]),
    "float64 whole": (WHOLE.astype(float), [40, 40.0]),
    "Int64": (pd.array([*WHOLE[:-9], *[None] * 9], "Int64"), [40, 40.0]),
    "object": (pd.Series([int(v) for v in WHOLE], dtype=object), [40]),
    "cents": (MANY.round(2), [50.25, 0.1 + 50.15, np.float64(50.25)]),
    "float32": (MANY.astype("float32"), [50.1, np.float32(50.1)]),
    "float64": (MANY, [50.1, np.float64(50.123456789012), 50]),
    "Float64": (pd.array(MANY, "Float64"), [50.1]),
    "days": (DAYS, [pd.Timestamp("2024-01-20"), "2024-01-20", datetime.date(2024, 1, 20)]),
    "zoned": (
        DAYS.tz_localize("Europe/Oslo"),
        ["2024-01-20", pd.Timestamp("2024-01-20", tz="Europe/Oslo")],
    ),
    "durations": (DAYS - DAYS.min(), [pd.Timedelta(days=9), "9 days", np.timedelta64(9, "D")]),
}

ARROW = {
    "int64[pyarrow]": (WHOLE, [40, 40.0]),
    "double[pyarrow]": (MANY, [50.1]),
    "date32[day][pyarrow]": (DAYS, ["2024-01-20", datetime.date(2024, 1, 20)]),
    "timestamp[us][pyarrow]": (DAYS, ["2024-01-20", pd.Timestamp("2024-01-20")]),
}

# what a value means is the encoder's, which both have: a column of each kind for one of them
CASES = [
    (cls, name, value)
    for i, (name, (_, values)) in enumerate((COLUMNS | ARROW).items())
    for cls in ([CTGAN, TVAE, TabFlow] if BUDGET > 1 else [(CTGAN, TVAE, TabFlow)[i % 3]])
    for value in values
]


@pytest.fixture(scope="module")
def fitted_on():
    """fitted_on(cls, name): a model of a table with that column, and a kind beside it."""
    models = {}

    def fitted_on(cls, name):
        if (cls, name) not in models:
            column = pd.Series((COLUMNS | ARROW)[name][0])
            if "pyarrow" in name:
                column = column.astype(name)
            table = pd.DataFrame({"x": column, "kind": np.tile(["a", "b", "c", "d"], N // 4)})
            models[cls, name] = make(cls).fit(table)
        return models[cls, name]

    return fitted_on


def as_held(value, dtype):
    """What a value is in a column of a dtype, found without the library's help."""
    if "date32" in str(dtype):
        return pd.Timestamp(value).date()
    if "time" in str(dtype) and "delta" not in str(dtype):
        zone = getattr(dtype, "tz", None)
        moment = pd.Timestamp(value)
        return moment if zone is None or moment.tz is not None else moment.tz_localize(zone)
    if "delta" in str(dtype):
        return pd.Timedelta(value)
    if "32" in str(dtype):
        return np.float32(value)
    return round(float(value), 12)


@pytest.mark.parametrize(("cls", "name", "value"), CASES, ids=lambda v: repr(v)[:40])
def test_a_number_is_asked_for_by_itself(fitted_on, cls, name, value):
    if "pyarrow" in name:
        pytest.importorskip("pyarrow")
    model = fitted_on(cls, name)
    rows = model.sample(30, conditions={"x": value}, random_state=1)
    assert len(rows) == 30
    assert rows.dtypes["x"] == model.sample(1)["x"].dtype
    expected = as_held(value, rows["x"].dtype)
    got = rows["x"].map(lambda v: round(float(v), 12)) if isinstance(expected, float) else rows["x"]
    assert (got == expected).all()
    if isinstance(value, int | str):
        both = model.sample(30, conditions={"x": value, "kind": "c"}, random_state=1)
        assert (both["kind"] == "c").all()


@BOTH
def test_arrays_and_several_numbers_and_missing_ones(cls):
    table = np.column_stack([WHOLE, MANY]).astype(float)
    table[::5, 0] = np.nan
    model = make(cls).fit(table)
    rows = model.sample(200, conditions={0: [30, 31, None], 1: 50.5}, random_state=0)
    assert set(rows[~np.isnan(rows[:, 0]), 0]) <= {30, 31}
    assert np.isnan(rows[:, 0]).any()
    assert (rows[:, 1] == 50.5).all()
    for missing in (None, np.nan, pd.NA, pd.NaT, float("nan")):
        assert np.isnan(model.sample(20, conditions={0: missing})[:, 0]).all()
    asked = pd.DataFrame({0: [30.0, np.nan, 41.0], 1: [50.5, 49.0, np.nan]}, index=[4, 1, 9])
    rows = model.sample_from(asked, random_state=0)
    assert rows[[0, 2], 0].tolist() == [30, 41]
    assert rows[[0, 1], 1].tolist() == [50.5, 49.0]


TABLE = pd.DataFrame(
    {
        "age": WHOLE,
        "price": MANY.round(1),
        "when": DAYS,
        "kind": RNG.choice(["a", "b"], N),
        "level": pd.Categorical(RNG.choice(["lo", "hi"], N), ["lo", "mid", "hi"]),
        "flag": RNG.random(N) < 0.3,
        "code": RNG.choice([1, 2, 3], N),
        "seen": DAYS.floor("10D"),
        "always": 7,
    }
)

SEEN = str(TABLE["seen"].mode()[0].date())


@pytest.fixture(scope="module", params=[CTGAN, TVAE, TabFlow])
def fitted(request):
    discrete = ["kind", "level", "flag", "code", "seen"]
    return make(request.param).fit(TABLE, discrete_columns=discrete)


@pytest.mark.parametrize(
    ("conditions", "holds"),
    [
        ({"age": (39.5, 40.4)}, lambda t: t["age"] == 40),
        ({"age": (40, 40)}, lambda t: t["age"] == 40),
        ({"age": (-np.inf, 30)}, lambda t: t["age"] <= 30),
        ({"age": (30, np.inf)}, lambda t: t["age"] >= 30),
        ({"age": [25, 35, 45]}, lambda t: t["age"].isin([25, 35, 45])),
        ({"age": {25, 35}, "kind": "a"}, lambda t: t["age"].isin([25, 35]) & (t["kind"] == "a")),
        ({"age": np.array([25, 35])}, lambda t: t["age"].isin([25, 35])),
        ({"when": ["2024-01-05", "2024-01-09"]}, lambda t: t["when"].dt.day.isin([5, 9])),
        ({"flag": 1}, lambda t: t["flag"]),
        ({"flag": np.bool_(False)}, lambda t: ~t["flag"]),
        ({"code": 2.0}, lambda t: t["code"] == 2),
        ({"code": np.int8(2)}, lambda t: t["code"] == 2),
        ({"level": "hi"}, lambda t: t["level"] == "hi"),
        ({"seen": SEEN}, lambda t: t["seen"] == pd.Timestamp(SEEN)),
        ({"seen": datetime.date.fromisoformat(SEEN)}, lambda t: t["seen"] == pd.Timestamp(SEEN)),
        ({"always": 7.0}, lambda t: t["always"] == 7),
        ({"always": (5, 9)}, lambda t: t["always"] == 7),
        ({"always": [7]}, lambda t: t["always"] == 7),
        (
            {"age": 40, "price": 50.0, "when": "2024-01-10", "code": 1, "flag": False},
            lambda t: (t["age"] == 40) & (t["price"] == 50) & (t["code"] == 1) & ~t["flag"],
        ),
    ],
)
def test_conditions_mean_what_they_say(fitted, conditions, holds):
    rows = fitted.sample(20, conditions=conditions, random_state=0)
    assert len(rows) == 20
    assert holds(rows).all()


@pytest.mark.parametrize(
    ("conditions", "says"),
    [
        ({"age": 40.5}, "'age' is never 40.5, its values are rounded; ask for 40, or for a range"),
        ({"age": 99}, "'age' is never 99: its values lie in"),
        ({"age": "40"}, "'40' is no value of 'age', whose values are like"),
        ({"age": True}, "True is no value of 'age'"),
        ({"age": pd.Timestamp("2024-01-05")}, "is no value of 'age'"),
        ({"age": None}, "had no missing values"),
        ({"age": np.nan}, "had no missing values"),
        ({"age": [40, None]}, "had no missing values"),
        ({"age": (40.2, 40.8)}, r"no value of 'age' lies in the range \(40.2, 40.8\).*rounded"),
        ({"age": (50, 40)}, "is empty"),
        ({"age": (None, None)}, "must be a value, a list of values or a range"),
        ({"age": (np.nan, 40)}, "nan is no end"),
        ({"price": (50.01, 50.04)}, "no value of 'price' lies in the range"),
        ({"price": 50.25}, "'price' is never 50.25, its values are rounded; ask for 50.2"),
        ({"when": "2024-01-05 12:00"}, "its values are rounded"),
        ({"when": ("2024-01-05 06:00", "2024-01-05 18:00")}, "no value of 'when' lies in"),
        ({"when": 5}, "5 is no value of 'when'"),
        ({"code": "2"}, "column 'code' had no value '2' in fit; it has 1, 2, 3"),
        ({"level": "mid"}, "column 'level' had no value 'mid' in fit"),
        ({"always": 8}, "8"),
        ({"always": [7, 8]}, "8"),
        ({"always": (8, 9)}, r"no value of 'always' lies in the range \(8, 9\)"),
    ],
    ids=repr,
)
def test_what_no_row_can_be_is_said_before_any_row_is_made(fitted, conditions, says, monkeypatch):
    monkeypatch.setattr(Sampler, "generate_allowed", None)
    with pytest.raises(ValueError, match=says):
        fitted.sample(20, conditions=conditions)


def test_no_rows_at_all_and_conditions_on_all_columns(fitted):
    assert len(fitted.sample(0, conditions={"age": 40, "kind": "a"})) == 0
    row = TABLE.iloc[[5, 9, 9]].set_axis([3, 1, 4])
    row["level"] = row["level"].cat.set_categories(["lo", "hi"])  # no row has "mid"
    made = fitted.sample_from(row, random_state=0)
    pd.testing.assert_frame_equal(made, row)
    asked = TABLE.sample(30, random_state=0).drop(columns=["flag", "code", "seen", "level"])
    made = fitted.sample_from(asked, random_state=0)
    pd.testing.assert_frame_equal(made[list(asked)], asked)


def test_settings_of_the_search_are_checked(fitted):
    for bad in ({"on_shortfall": "ignore"}, {"max_tries": 0}, {"max_tries": 1.5}):
        (name,) = bad
        with pytest.raises(ValueError, match=name):
            fitted.sample(3, conditions={"kind": "a"}, **bad)
        with pytest.raises(ValueError, match=name):
            fitted.sample_from(TABLE[["kind"]], **bad)


# ---- rows that are too rare -------------------------------------------------------------------


def test_what_was_found_is_not_lost(monkeypatch):
    monkeypatch.setattr(sampling, "_CHUNK", 100)
    model = make(TVAE).fit(TABLE)
    conditions = {"kind": "a", "age": (30, 33), "price": (52, None)}
    with pytest.raises(ShortfallError, match=r"on_shortfall='return'.*max_tries=9") as caught:
        model.sample(100, conditions=conditions, random_state=0, max_tries=9)
    found = caught.value.rows
    assert 0 < len(found) < 100
    assert f"only {len(found)} of " in str(caught.value)
    assert (found["kind"] == "a").all()
    assert found["age"].between(30, 33).all()
    again = pickle.loads(pickle.dumps(caught.value))
    pd.testing.assert_frame_equal(again.rows, found)
    arguments = {"conditions": conditions, "random_state": 0, "max_tries": 9}
    with pytest.warns(UserWarning, match=f"only {len(found)} of .* 100 were asked for"):
        returned = model.sample(100, **arguments, on_shortfall="return")
    pd.testing.assert_frame_equal(returned, found)
    # more tries go on where these ended
    more = model.sample(100, **arguments | {"max_tries": 10_000})
    pd.testing.assert_frame_equal(more.head(len(found)), found)


def test_rows_of_conditions_that_were_found_are_not_lost(monkeypatch):
    monkeypatch.setattr(sampling, "_CHUNK", 1)
    table = pd.DataFrame({"kind": ["a"] * 392 + ["b"] * 8, "x": RNG.normal(size=400)})
    model = TVAE(**QUICK | {"epochs": 30}).fit(table)
    asked = pd.DataFrame({"kind": ["a", "b"] * 20}, index=range(100, 140))
    with pytest.raises(ShortfallError, match="of 40 rows of conditions could not be met") as caught:
        model.sample_from(asked, random_state=0, max_tries=1)
    found = caught.value.rows
    assert set(asked.index[::2]) <= set(found.index)
    pd.testing.assert_series_equal(found["kind"], asked["kind"][found.index])
    with pytest.warns(UserWarning, match="could not be met"):
        again = model.sample_from(asked, random_state=0, max_tries=1, on_shortfall="return")
    pd.testing.assert_frame_equal(again, found)


# ---- the command -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    TABLE.drop(columns=["level", "flag"]).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMAND = ["--model", "tvae", "--epochs", "2", "--batch-size", "50", "--device", "cpu"]


def test_the_command_takes_numbers_and_writes_what_it_found(folder, capsys, monkeypatch):
    conditions = ["--condition", "age=40", "--condition", "price=50", "--condition", "kind=a|b"]
    options = [*COMMAND, *conditions, "--save", "model"]
    assert main(["synth", "t.csv", "-o", "out.csv", "--rows", "20", *options]) == 0
    made = pd.read_csv("out.csv")
    assert made[["age", "price"]].drop_duplicates().to_numpy().tolist() == [[40, 50]]
    assert capsys.readouterr().err == ""  # no warning of a number that no row has
    assert main(["sample", "model", "-o", "more.csv", "--rows", "9", "--condition=age=30|41"]) == 0
    assert set(pd.read_csv("more.csv")["age"]) <= {30, 41}
    monkeypatch.setattr(sampling, "_CHUNK", 100)
    rare = ["--condition", "age=30..33", "--condition", "when=2024-01-10..2024-01-11"]
    assert main(["sample", "model", "-o", "some.csv", "--rows", "300", *rare]) == 2
    found = pd.read_csv("some.csv")
    assert 0 < len(found) < 300
    assert found["age"].between(30, 33).all()
    says = capsys.readouterr().err
    assert says.startswith(f"combutab: error: only {len(found):,} of 300 rows that meet the")
    assert "they are in some.csv" in says
    assert says.count("\n") == 1


def test_a_number_that_no_row_can_have_is_told_of_before_the_training(folder, capsys, monkeypatch):
    monkeypatch.setattr(TVAE, "fit", None)
    for condition, says in (("age=40.5", "never 40.5"), ("age=40.2..40.8", "no value of 'age'")):
        assert main(["synth", "t.csv", "-o", "out.csv", *COMMAND, f"--condition={condition}"]) == 2
        assert says in capsys.readouterr().err


# ---- Rows under conditions have the distribution that the model gives under them ----------------


def known_sampler(scale, n_members=1):
    """A sampler of rows (x, a, b) whose distribution under conditions can be integrated.

    Its noise z is uniform, x is z, and given z the codes a and b are 1 with the probabilities
    scale * z and 1 - z.
    """
    table = pd.DataFrame(
        {"x": [-1, 0.123456789012345, 1, 0] * 4, "a": [0, 1] * 8, "b": [0, 0, 1, 1] * 4}
    )
    encoder = ModeEncoder(discrete_columns=["a", "b"], n_modes=1, random_state=0).fit(table)
    order = [encoder.schema_.keys[span.column] for span in encoder.layout_.spans]
    spans = RowSpans(1, encoder.layout_.sizes)

    def draw(network, spans, asked):
        keys, n_rows = asked.keys, asked.n_rows
        z = torch.stack([torch.rand(n_rows, generator=generator(key)) for key in keys])
        odds = {"a": (scale * z).logit(eps=1e-9), "b": (1 - z).logit(eps=1e-9)}
        raw = torch.zeros(*z.shape, spans.width)
        raw[..., 0] = (2 * z - 1).clamp(-0.999999, 0.999999).atanh()
        for i, name in enumerate(order):
            if name != "x":
                raw[..., int(spans.starts[i]) + 1] = odds[name]
        raw, mass = spans.restrict(raw, asked.allowed)
        uniform = torch.stack(
            [torch.rand(n_rows, spans.n_spans, generator=generator(key + 1)) for key in keys]
        )
        return RowsDrawn(*spans.sample(raw, uniform), mass)

    network = SimpleNamespace(members=[None] * n_members)  # it is not asked
    return Sampler(encoder, network, spans, draw)


def generator(key):
    return torch.Generator().manual_seed(key % 2**62)


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize(
    ("scale", "n", "conditions", "cdf"),
    [
        # density of z: z (1 - z), and with the range z > 1/2 its upper half
        (1.0, 3000, {"a": 1, "b": 1}, lambda z: 3 * z**2 - 2 * z**3),
        (0.004, 3000, {"a": 1, "b": 1}, lambda z: 3 * z**2 - 2 * z**3),
        (0.004, 3000, {"a": 1}, lambda z: z**2),
        (0.02, 1000, {"a": 1, "b": 0, "x": (0.0, None)}, lambda z: (8 * z**3 - 1) / 7),
        (0.004, 500, {"b": [0, 1]}, lambda z: z),
    ],
    ids=["both", "both, rare", "one, rare", "with a range", "either"],
)
def test_rows_under_conditions_have_the_right_distribution(n_members, scale, n, conditions, cdf):
    sampler = known_sampler(scale, n_members)
    wanted = read_conditions(sampler.encoder, conditions)
    for key in range(BUDGET):
        values, codes, _ = sampler.draw(n, wanted, key, 100)
        assert len(values) == n
        table = sampler.encoder.decode(values, codes)
        for name in set(conditions) & {"a", "b"}:
            assert table[name].isin(np.atleast_1d(conditions[name])).all()
        z = (values[:, 0] + 1) / 2
        assert len(np.unique(z)) > 0.99 * n  # each row of noise of its own
        assert kstest(z, cdf).pvalue > 1e-4 / BUDGET


@pytest.mark.parametrize("sizes", [[2, 5], [3, 200], [70, 300]])
def test_codes_that_are_not_allowed_are_never_drawn(sizes):
    spans = RowSpans(1, sizes)
    rng = np.random.default_rng(0)
    raw = torch.from_numpy(rng.normal(0, 9, (4000, spans.width)).astype(np.float32))
    allowed = {
        i: sorted(rng.choice(size, max(1, size // 3), replace=False).tolist())
        for i, size in enumerate(sizes)
    }
    uniform = torch.from_numpy(rng.random((4000, 2), dtype=np.float32))
    uniform[::3] = 0.0
    uniform[1::3] = 1 - 2.0**-24
    restricted, mass = spans.restrict(raw, allowed)
    _, codes = spans.sample(restricted, uniform)
    expected = np.ones(4000)
    for i, start in enumerate(spans.starts.tolist()):
        assert set(codes[:, i].tolist()) <= set(allowed[i])
        logits = raw[:, start : start + sizes[i]].double().numpy()
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        expected *= odds[:, allowed[i]].sum(axis=1) / odds.sum(axis=1)
    np.testing.assert_allclose(mass.numpy(), expected, rtol=1e-9)


def test_many_times_as_many_rows_are_found_of_what_no_noise_makes_probable():
    sampler = known_sampler(0.004)
    wanted = read_conditions(sampler.encoder, {"a": 1, "b": 1})
    values, _, made = sampler.draw(10_000, wanted, 0, 100)
    assert len(values) == 10_000
    assert made < 10_000 / (0.004 / 6) / 20  # plain rejection finds one row in 1,500


def test_few_rows_are_those_of_plain_rejection(monkeypatch):
    sampler = known_sampler(0.02)
    wanted = read_conditions(sampler.encoder, {"a": 1, "b": 1})
    first = sampler.draw(100, wanted, 0, 100)
    monkeypatch.setattr(sampling, "_ENOUGH", np.inf)
    plain = sampler.draw(100, wanted, 0, 100)
    for a, b in zip(first, plain, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_number_is_that_of_the_rows_nearest_to_it():
    sampler = known_sampler(1.0)
    wanted = read_conditions(sampler.encoder, {"x": 0.5, "a": 1})
    values, codes, _ = sampler.draw(2000, wanted, 0, 100)
    x = sampler.encoder.decode(values, codes)["x"]
    near = abs(x - 0.5).max()
    z_of = np.interp([0.5 - near, 0.5 + near], np.sort(x), (np.sort(values[:, 0]) + 1) / 2)
    assert z_of[1] - z_of[0] < 0.02  # one row in a hundred, of a uniform z
    expected = 1 - z_of.mean()  # the probability of b given z
    assert codes[:, sampler.encoder.condition_code("b", 1)[0]].mean() == pytest.approx(
        expected, abs=0.05
    )


@pytest.mark.parametrize(
    ("cls", "params"),
    [
        (CTGAN, {"generator_dim": (32,), "discriminator_dim": (32,), "pac": 1, "epochs": 30}),
        (TVAE, {"argmax": False}),
        (TVAE, {}),
    ],
    ids=["CTGAN", "TVAE", "TVAE by argmax"],
)
def test_conditions_are_as_filtering_free_rows(cls, params):
    rng, n = np.random.default_rng(1), 600
    kind = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    table = pd.DataFrame({"kind": kind, "twin": kind, "x": rng.normal(size=n) + (kind == "b") * 4})
    model = cls(**{"epochs": 60, "batch_size": 100, "random_state": 0, **params}).fit(table)
    free = model.sample(30_000 * BUDGET, random_state=1)
    # CTGAN's network is asked for the kind, so that what is compared is a range, which it is not
    conditions = {"x": (1.0, 3.0)} if cls is CTGAN else {"x": (1.0, 3.0), "twin": ["b", "c"]}
    expected = free[free["x"].between(1, 3)]
    if cls is TVAE:
        expected = expected[expected["twin"].isin(["b", "c"])]
    made = model.sample(4000, conditions=conditions, random_state=2)
    assert len(expected) > 300
    error = 4 * np.sqrt(0.25 / len(expected) + 0.25 / len(made))
    for name in ("kind", "twin"):
        for value in "abc":
            share = (made[name] == value).mean()
            assert share == pytest.approx((expected[name] == value).mean(), abs=error)
    assert (made["kind"] == made["twin"]).mean() == pytest.approx(
        (expected["kind"] == expected["twin"]).mean(), abs=error
    )
    assert kstest(made["x"], expected["x"]).pvalue > 1e-4
