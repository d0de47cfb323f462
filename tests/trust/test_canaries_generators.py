"""One person's values are looked for in all that CTGAN and TVAE write and sample.

A row is planted in a table whose every value is its own: text, categories, a code, numbers beyond
all others, a date, a duration. None of them may be found, neither as text nor as the bytes of a
number, in a model's file, a checkpoint, a pickle or 20,000 sampled rows.
"""

import json
import os
import pickle
import struct
import warnings

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

import combutab
from combutab import CTGAN, TVAE, TabFlow
from combutab.generators import fit_stack
from combutab.preprocessing import ModeEncoder

BUDGET = int(os.environ.get("COMBUTAB_TRUST_BUDGET", "1"))
N = 400
RNG = np.random.default_rng(0)
QUICK = {
    CTGAN: {"generator_dim": (16,), "discriminator_dim": (16,), "pac": 5, "embedding_dim": 8},
    TVAE: {"compress_dims": (16,), "decompress_dims": (16,), "embedding_dim": 8},
    TabFlow: {"hidden_layer_sizes": (16,)},
}
BOTH = pytest.mark.parametrize("cls", [CTGAN, TVAE, TabFlow])
CANARY = {
    "town": "Canaryton",
    "kind": "canary kind",
    "code": 48151623,
    "income": 987654.25,
    "debt": -876543.75,
    "visits": 7654321,
    "born": pd.Timestamp("1893-04-17"),
    "stay": pd.Timedelta(days=8191),
    "email": "canary@secret.example.org",
    "row": N + 137,  # above all
}


def people() -> pd.DataFrame:
    """N people, and the canary among them."""
    table = pd.DataFrame(
        {
            "town": RNG.choice(["Oslo", "Rome", "Bern"], N, p=[0.5, 0.3, 0.2]),
            "kind": pd.Categorical(RNG.choice(["plain kind", "other kind"], N)),
            "code": RNG.choice([11, 22, 33], N),
            "income": RNG.lognormal(10, 0.5, N).round(2),
            "debt": RNG.normal(0, 900, N).round(2),
            "visits": RNG.poisson(30, N),
            "born": pd.Timestamp("1960-01-01") + pd.to_timedelta(RNG.integers(0, 9999, N), "D"),
            "stay": pd.to_timedelta(RNG.integers(4, 90, N), unit="D"),
            "email": [f"person{i}@mail{i % 7}.org" for i in range(N)],
            "row": np.arange(1, N + 1),
        }
    )
    table["kind"] = table["kind"].cat.add_categories(CANARY["kind"])
    return pd.concat([table, table.iloc[[0]].assign(**CANARY)], ignore_index=True).astype(
        {"kind": table["kind"].dtype}
    )


TABLE = people()


def make(cls, **params):
    defaults = {"epochs": 2, "batch_size": 50, "random_state": 0}
    return cls(**{**defaults, **QUICK[cls], **params})


def fit(model, table=TABLE, discrete=("town", "kind", "code", "email"), **options):
    with pytest.warns(UserWarning, match="'email', 'row' hold identifiers"):
        return model.fit(table, discrete_columns=list(discrete), **options)


@pytest.fixture(scope="module", params=[CTGAN, TVAE, TabFlow], ids=["CTGAN", "TVAE", "TabFlow"])
def fitted(request, tmp_path_factory):
    """A model, and the file of its checkpoint."""
    checkpoint = tmp_path_factory.mktemp("checkpoint") / "checkpoint"
    return fit(make(request.param), checkpoint=checkpoint), checkpoint


def traces(value) -> list[bytes]:
    """A value as it may stand in a file."""
    if isinstance(value, str):
        return [value.encode(), value.encode("utf-16-le"), value.encode("utf-32-le")]
    found = []
    numbers = [value]
    if isinstance(value, pd.Timestamp):
        # the year alone is in some weight or sum by chance
        found += [b"1893-", b'"1893"', b"'1893'"]
        numbers = [int(value.value), int(value.value) // 1000, int(value.value) // 10**9]
        numbers += [each // 86400 for each in numbers]
    elif isinstance(value, pd.Timedelta):
        found += [b"8191 days", b"P8191D"]
        numbers = [int(value.value), int(value.value) // 1000, int(value.value) // 10**9]
    for number in numbers:
        if abs(number) > 1000:
            found += [str(number).encode(), struct.pack("<d", number), struct.pack(">d", number)]
            found += [float(number).hex().encode()]
            if number == int(number):
                found += [struct.pack("<q", int(number))]
                found += [struct.pack("<i", int(number))] if abs(number) < 2**31 else []
    return found


def leaks(content: bytes) -> list[str]:
    return [name for name, value in CANARY.items() if any(t in content for t in traces(value))]


def test_the_search_finds_what_is_there():
    """The test of the test: with all values kept, the canary is there."""
    encoder = ModeEncoder(discrete_columns=["town", "kind", "code", "email"]).fit(TABLE)
    text = json.dumps(encoder.to_state()[1]).encode()
    assert set(leaks(text)) == {
        "town",
        "kind",
        "code",
        "income",
        "debt",
        "visits",
        "born",
        "email",
        "stay",
    }
    assert set(leaks(pickle.dumps(encoder))) >= {"town", "kind", "code", "income", "debt", "email"}


def test_no_file_holds_the_canary(fitted, tmp_path):
    model, checkpoint = fitted
    model.sample(10)
    model.save(tmp_path / "model")
    for name, content in {
        "model": (tmp_path / "model").read_bytes(),
        "checkpoint": checkpoint.read_bytes(),
        "pickle": pickle.dumps(model),
        "losses": model.loss_values.to_csv().encode() + model.history_.to_csv().encode(),
    }.items():
        assert leaks(content) == [], name
        for value in TABLE["email"]:
            assert value.encode() not in content
    # nor any array a number of it, in any precision
    rare = [float(CANARY[name]) for name in ("code", "income", "debt", "visits")]
    for path in (tmp_path / "model", checkpoint):
        for name, array in load_file(path).items():
            for value in rare:
                assert not np.isclose(array.astype(float), value, rtol=1e-6, atol=0).any(), name


def test_no_row_holds_the_canary(fitted):
    model, _ = fitted
    made = model.sample(20_000 * BUDGET, random_state=1)
    for name, value in CANARY.items():
        assert not (made[name] == value).any(), name
        assert value not in getattr(made[name].dtype, "categories", ())
    assert set(made["town"]) == {"Oslo", "Rome", "Bern"}
    assert set(made["code"]) == {11, 22, 33}
    rest = TABLE[:-1]
    for name in ("income", "debt", "visits", "born", "stay"):  # nor anything near it
        spread = rest[name].max() - rest[name].min()
        assert made[name].between(rest[name].min() - spread, rest[name].max() + spread).all()
    assert (made["income"] > 0).all()
    assert made.dtypes.drop("kind").to_dict() == TABLE.dtypes.drop("kind").to_dict()


def test_no_extreme_of_one_row_is_there_more_than_by_chance(fitted):
    """Numbers that were brought to a bound came out as that row's own, in 3 % of the rows."""
    made = fitted[0].sample(20_000 * BUDGET, random_state=2)
    for name in ("income", "debt", "visits", "born", "stay"):
        for extreme in (TABLE[name].min(), TABLE[name].max()):
            if (TABLE[name] == extreme).sum() < 5:
                chance = 0.02 if name in ("visits", "stay") else 0.001  # of some 80 values
                assert (made[name] == extreme).mean() < chance, (name, extreme)


def test_identifiers_are_new_and_unique(fitted):
    made = fitted[0].sample(5000)
    for name in ("email", "row"):
        assert made[name].is_unique
        assert not set(made[name]) & set(TABLE[name])
    assert made["email"].str.endswith("@example.invalid").all()
    assert (made["row"] > TABLE["row"].max()).all()
    for conditions in ({"email": CANARY["email"]}, {"row": (1, 9)}, {"row": 5}):
        with pytest.raises(ValueError, match="holds identifiers, of which none is known"):
            fitted[0].sample(1, conditions=conditions)


def test_conditions_on_rare_values_do_not_tell_whether_they_were_there(fitted):
    says = []
    for town in (CANARY["town"], "Nowhereton"):
        with pytest.raises(ValueError, match="fewer rows than min_frequency") as caught:
            fitted[0].sample(1, conditions={"town": town})
        says.append(str(caught.value).replace(town, ""))
    assert says[0] == says[1]
    with pytest.raises(ValueError, match="fewer rows than min_frequency"):
        fitted[0].sample_from(pd.DataFrame({"code": [CANARY["code"]]}))


# ---- what is kept --------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "min_frequency"), [(CTGAN, 5), (TVAE, 0.02), (CTGAN, 30)])
def test_categories_that_enough_rows_have_are_kept(cls, min_frequency):
    rng = np.random.default_rng(1)
    counts = {f"c{i}": i for i in [2, 3, 4, 5, 6, 15, 19, 20, 21, 29, 30, 31, 300, 495]}
    values = rng.permutation(np.repeat(list(counts), list(counts.values())))  # 1,000 rows
    table = pd.DataFrame({"kind": values, "x": rng.normal(size=len(values))})
    model = make(cls, min_frequency=min_frequency)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at 30 they are more than a tenth of the rows
        model.fit(table)
    least = min_frequency if min_frequency >= 1 else min_frequency * len(table)
    kept = {name for name, count in counts.items() if count >= least}
    assert set(model.encoder_.categories_["kind"]) == kept
    made = model.sample(3000, random_state=0)["kind"]
    assert set(made) <= kept
    for name in kept:
        assert (model.sample(2, conditions={"kind": name})["kind"] == name).all()


@pytest.mark.parametrize("cls", [CTGAN, TVAE, TabFlow])
def test_the_kept_keep_their_shares_among_each_other(cls):
    """A fifth of the rows is rare; the rest is sampled as if these rows were not there."""
    rng = np.random.default_rng(2)
    n = 1500
    x = rng.normal(size=n)
    kind = np.where(x > 0.5, "high", "low").astype(object)
    kind[:300] = [f"rare {i // 2}" for i in range(300)]
    table = pd.DataFrame({"kind": kind, "x": x})
    params = {"learning_rate": 5e-3}
    if cls is CTGAN:
        params = {"generator_lr": 2e-3, "discriminator_lr": 2e-3}
        params |= {"generator_dim": (64, 64), "discriminator_dim": (64, 64)}
    model = make(cls, epochs=40, batch_size=100, **params)
    with pytest.warns(UserWarning, match="20% of the rows of 'kind' have values that fewer rows"):
        model.fit(table)
    made = model.sample(6000, random_state=0)
    expected = (table["kind"] == "high").sum() / (n - 300)
    assert abs((made["kind"] == "high").mean() - expected) < 0.08
    # what the kept say of other columns is learned
    means = made.groupby("kind")["x"].mean()
    assert means["high"] - means["low"] > 0.7


@BOTH
def test_missing_values_are_values(cls):
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"x": rng.normal(size=300), "y": rng.normal(size=300), "kind": "a"})
    table.loc[:150, "kind"] = "b"
    table.loc[:3, ["x", "kind"]] = None  # 4 rows
    table.loc[:99, "y"] = np.nan
    model = make(cls, epochs=5).fit(table)
    made = model.sample(5000, random_state=0)
    assert made[["x", "kind"]].notna().all(axis=None)
    assert made["y"].isna().any()
    for name in ("x", "kind"):
        with pytest.raises(ValueError, match=r"no missing value.*fewer rows than min_frequency"):
            model.sample(1, conditions={name: None})


@BOTH
def test_bounds_that_enough_rows_share_are_exact(cls):
    rng = np.random.default_rng(4)
    worth = np.minimum(rng.lognormal(12, 1, 500).round(), 500_001)
    assert (worth == 500_001).sum() >= 5
    table = pd.DataFrame({"worth": worth, "stars": rng.integers(1, 6, 500)})
    bounds = make(cls).fit(table).encoder_.columns_
    assert bounds[0].bounds[1] == 500_001
    assert bounds[0].bounds[0] < worth.min()
    assert bounds[1].bounds.tolist() == [1, 5]


# ---- identifiers and other ways out --------------------------------------------------------------


@BOTH
def test_identifiers_of_every_form_come_back_in_their_dtype(cls, tmp_path):
    n = 60
    table = pd.DataFrame(
        {
            "x": np.random.default_rng(5).normal(size=n),
            "int32": np.arange(n, dtype=np.int32),
            "nullable": pd.array([*range(100, 100 + n - 10), *[None] * 10], dtype="Int64"),
            "text": pd.array([f"key {i}" for i in range(n - 6)] + [None] * 6, dtype="string"),
            "category": pd.Categorical([f"cat {i}" for i in range(n)]),
            "id": [*np.arange(n - 3) * 1000.0, *[np.nan] * 3],
        }
    )
    with pytest.warns(UserWarning, match="'int32', 'nullable', 'text', 'category', 'id' hold"):
        model = make(cls).fit(table)
    model.save(tmp_path / "model")
    for each in (model, combutab.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        made = each.sample(500, random_state=0)
        assert made.dtypes.drop("category").to_dict() == table.dtypes.drop("category").to_dict()
        assert isinstance(made["category"].dtype, pd.CategoricalDtype)
        for name in table.columns[1:]:
            there = made[name].dropna()
            assert there.is_unique
            assert not set(there) & set(table[name].dropna())
        assert 0 < made["nullable"].isna().mean() < 1
        assert 0 < made["text"].isna().mean() < 1
        assert made["id"].notna().all()  # 3 rows are rare
        assert made["nullable"].isna().equals(each.sample(500, random_state=0)["nullable"].isna())
        assert each.sample(20, conditions={"x": (0, None)})["text"].dropna().is_unique


@BOTH
def test_a_table_of_identifiers_alone(cls):
    with pytest.warns(UserWarning, match="'id' holds identifiers"):
        model = make(cls).fit(pd.DataFrame({"id": range(80)}))
    assert model.sample(3)["id"].tolist() == [80, 81, 82]


def test_text_in_an_array_is_not_cut_short():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.choice(["a", "b"], 90), [f"p{i}" for i in range(90)]])
    with pytest.warns(UserWarning, match="1 holds identifiers"):
        made = make(TVAE).fit(X).sample(50)
    assert made[0, 1] == "id-000001"
    assert len(set(made[:, 1])) == 50


@BOTH
def test_the_user_says_what_identifiers_are(cls):
    rng = np.random.default_rng(6)
    table = pd.DataFrame({"count": range(60), "badge": rng.permutation(10**6)[:60], "x": 1.5})
    model = make(cls, identifiers=["badge"])
    with pytest.warns(UserWarning, match="'badge' holds identifiers"):
        made = model.fit(table).sample(50)
    assert made["badge"].min() > table["badge"].max()
    assert made["count"].between(0, 70).all()
    made = make(cls, identifiers=None).fit(table).sample(50)  # no warning
    assert made["badge"].min() < table["badge"].max()
    for wrong, says in ((["bagde"], "did you mean 'badge'"), (["x"], "'x' is listed in identif")):
        with pytest.raises(ValueError, match=says):
            make(cls, identifiers=wrong).fit(table)


@BOTH
def test_what_cannot_be_learned_is_refused_with_a_way_out(cls):
    names = [f"Person {i}" for i in range(40)]  # too few to be sure that they are identifiers
    table = pd.DataFrame({"x": np.random.default_rng(7).normal(size=40), "name": names})
    with pytest.raises(ValueError, match=r"no value of 'name' is held by 5 rows.*min_frequency=1"):
        make(cls).fit(table)
    with pytest.raises(ValueError, match="n_samples=4 is less than min_frequency=5"):
        make(cls).fit(table[:4])
    with pytest.warns(
        UserWarning, match="most values of 'name' are there once, and new rows get them"
    ):
        made = make(cls, min_frequency=1).fit(table).sample(50)
    assert set(made["name"]) <= set(names)
    with pytest.warns(UserWarning, match="'name' holds identifiers"):
        made = make(cls, identifiers=["name"]).fit(table).sample(50)
    assert not set(made["name"]) & set(names)


@BOTH
def test_hardly_any_value_there_is_always_missing(cls):
    table = pd.DataFrame({"x": np.arange(100) * 0.5, "note": None, "y": np.nan})
    table.loc[:2, "note"] = ["a", "b", "c"]
    table.loc[:2, "y"] = [1.25, 2.5, 3.75]
    made = make(cls).fit(table).sample(500)
    assert made[["note", "y"]].isna().all(axis=None)


def test_warnings_name_the_caller_s_line_and_come_once_a_fit():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make(TVAE).fit(TABLE)
    (one,) = caught
    assert one.filename == __file__
    with pytest.warns(UserWarning, match="hold identifiers"):
        models = fit_stack([make(TVAE, activation=a) for a in ("relu", "combu")], TABLE)
    alone = fit(make(TVAE, activation="combu"), discrete=TABLE.columns[[0, 1, 8]])
    np.testing.assert_array_equal(
        models[1].sample(200, random_state=0)["town"], alone.sample(200, random_state=0)["town"]
    )
