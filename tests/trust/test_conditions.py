"""Conditions on sampled rows: what is asked is what is meant, and what was found is not lost."""

from __future__ import annotations

import datetime
import decimal
import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest

from combutab import CTGAN, TVAE, TabFlow
from combutab.cli import main
from combutab.generators import ShortfallError, completion, sampling
from combutab.generators.conditions import read_conditions
from combutab.generators.sampling import Sampler, Samples
from combutab.nn import RowSpans
from combutab.preprocessing import ModeEncoder
from tests.short import BUDGET

QUICK = {"epochs": 2, "batch_size": 50, "random_state": 0}

NARROW = {
    CTGAN: {"generator_dim": (16,), "discriminator_dim": (16,), "embedding_dim": 8},
    TVAE: {"compress_dims": (16,), "decompress_dims": (16,), "embedding_dim": 8},
    TabFlow: {"hidden_layer_sizes": (16,), "early_stopping": False},
}


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
    rows = model.sample(10, conditions={"x": value}, random_state=1)
    assert len(rows) == 10
    assert rows.dtypes["x"] == model.sample(1)["x"].dtype
    expected = as_held(value, rows["x"].dtype)
    got = rows["x"].map(lambda v: round(float(v), 12)) if isinstance(expected, float) else rows["x"]
    assert (got == expected).all()
    if isinstance(value, int | str):
        both = model.sample(10, conditions={"x": value, "kind": "c"}, random_state=1)
        assert (both["kind"] == "c").all()


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
        ({"age": (30, np.inf)}, lambda t: t["age"] >= 30),
        ({"age": [25, 35, 45]}, lambda t: t["age"].isin([25, 35, 45])),
        ({"age": {25, 35}, "kind": "a"}, lambda t: t["age"].isin([25, 35]) & (t["kind"] == "a")),
        ({"when": ["2024-01-05", "2024-01-09"]}, lambda t: t["when"].dt.day.isin([5, 9])),
        ({"flag": 1, "level": "hi"}, lambda t: t["flag"] & (t["level"] == "hi")),
        ({"code": 2.0, "always": 7.0}, lambda t: t["code"] == 2),
        ({"seen": SEEN}, lambda t: t["seen"] == pd.Timestamp(SEEN)),
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
        ({"age": 40.5}, "'age' is never 40.5.*use 40"),
        ({"age": "40"}, "'40'.*'age'"),
        ({"age": (40.2, 40.8)}, r"'age'.*\(40.2, 40.8\).*rounded"),
        ({"age": (None, None)}, r"'age'.*a range"),
        ({"when": ("2024-01-05 06:00", "2024-01-05 18:00")}, "no value of 'when'"),
        ({"code": "2"}, "'code'.*'2'.*1, 2, 3"),
    ],
    ids=repr,
)
def test_impossible_conditions_are_refused_before_sampling(fitted, conditions, says, monkeypatch):
    monkeypatch.setattr(Sampler, "generate_allowed", None)
    with pytest.raises(ValueError, match=says):
        fitted.sample(20, conditions=conditions)


# ---- rows that are too rare -------------------------------------------------------------------


def test_what_was_found_is_not_lost(monkeypatch):
    for module in (completion, sampling):
        monkeypatch.setattr(module, "CHUNK", 100)
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


# ---- the command -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    TABLE.drop(columns=["level", "flag"]).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMAND = ["--model", "tvae", "--epochs", "2", "--batch-size", "50", "--device", "cpu"]


def test_command_writes_the_rows_that_were_found(folder, capsys, monkeypatch):
    conditions = ["--condition", "age=40", "--condition", "price=50", "--condition", "kind=a|b"]
    options = [*COMMAND, *conditions, "--save", "model"]
    assert main(["synth", "t.csv", "-o", "out.csv", "--rows", "20", *options]) == 0
    made = pd.read_csv("out.csv")
    assert made[["age", "price"]].drop_duplicates().to_numpy().tolist() == [[40, 50]]
    assert capsys.readouterr().err == ""  # no warning of a number that no row has
    assert main(["sample", "model", "-o", "more.csv", "--rows", "9", "--condition=age=30|41"]) == 0
    assert set(pd.read_csv("more.csv")["age"]) <= {30, 41}
    for module in (completion, sampling):
        monkeypatch.setattr(module, "CHUNK", 100)
    rare = ["--condition", "age=30..33", "--condition", "when=2024-01-10..2024-01-11"]
    assert main(["sample", "model", "-o", "some.csv", "--rows", "300", *rare]) == 2
    found = pd.read_csv("some.csv")
    assert 0 < len(found) < 300
    assert found["age"].between(30, 33).all()
    says = capsys.readouterr().err
    assert says.startswith(f"combutab: error: only {len(found):,} of 300 rows that meet the")
    assert "they are in some.csv" in says
    assert says.count("\n") == 1


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
        return Samples(*spans.sample(raw, uniform), mass)

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


def test_condition_on_a_number_uses_nearest_rows():
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
