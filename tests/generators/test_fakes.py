"""Realistic values by Faker: what sampled rows have in place of names, addresses and the like."""

import sys

import numpy as np
import pandas as pd
import pytest

import combutab
from combutab import CTGAN, TVAE, TabFlow, TabFlowTables
from combutab.preprocessing import ModeEncoder

pytest.importorskip("faker", reason="needs the extra faker")

N = 120
FAKE = {"name": "name:de_DE", "mail": "email:de_DE", "phone": "phone_number"}


def people(n=N, seed=0):
    rng = np.random.default_rng(seed)
    first, last = rng.choice(["Ada", "Karl", "Ida"], n), rng.choice(["Berg", "Lund"], n)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "name": [f"{a} {b}-{i}" for i, (a, b) in enumerate(zip(first, last, strict=True))],
            "mail": [f"{a}.{b}@example.com" for a, b in zip(first, last, strict=True)],
            "phone": [f"+49 40 {i:06d}" for i in rng.permutation(10**6)[:n]],
            "city": rng.choice(["Kiel", "Bonn"], n),
        }
    )


def fitted(table, cls=TabFlow, **options):
    options = {"fake": FAKE, "epochs": 1, "random_state": 0} | options
    return cls(**options).fit(table)


@pytest.fixture(scope="module")
def model():
    return fitted(people())


def encoder_of(table, fake, **options):
    return ModeEncoder(fake=fake, random_state=0, **options).fit(table)


def decoded(encoder, n, **options):
    table = np.zeros((n, encoder.layout_.n_values)), np.zeros((n, len(encoder.layout_.spans)), int)
    return encoder.decode(*table, **options)


def plain(text):
    decomposed = text.lower().replace("ß", "ss").encode("ascii", "ignore").decode()
    return [word for word in decomposed.split() if word.isalpha()]


@pytest.mark.parametrize("cls", [TabFlow, TVAE, CTGAN])
def test_sampled_rows_have_realistic_new_values(cls):
    options = {"batch_size": 50, "pac": 1} if cls is CTGAN else {}
    table = people()
    rows = fitted(table, cls, **options).sample(300, random_state=1)
    for column in FAKE:
        assert not set(rows[column]) & set(table[column])
    assert rows["name"].is_unique
    assert rows["phone"].is_unique
    assert not rows["mail"].str.endswith("example.com").any()


def test_email_belongs_to_the_name_of_its_row(model):
    rows = model.sample(200, random_state=1)
    accounts = rows["mail"].str.partition("@")[0]
    matches = [
        all(word in account for word in plain(name)[:1] + plain(name)[-1:])
        for name, account in zip(rows["name"], accounts, strict=True)
        if name.isascii()
    ]
    assert len(matches) > 100
    assert all(matches)


def test_values_follow_from_the_random_state():
    table = people()[["name"]]
    first, again, other = (
        decoded(ModeEncoder(fake={"name": "name"}, random_state=seed).fit(table), 50)["name"]
        for seed in (0, 0, 1)
    )
    assert first.tolist() == again.tolist()
    assert not set(first) & set(other)


def test_values_in_parts_are_those_of_a_whole():
    encoder = encoder_of(people()[["name", "mail", "phone"]], FAKE)
    whole = decoded(encoder, 30)
    second = decoded(encoder_of(people()[["name", "mail", "phone"]], FAKE), 20, n_before=10)
    pd.testing.assert_frame_equal(second, whole[10:].reset_index(drop=True))


def test_rows_of_a_parquet_file_have_the_same_values(model, tmp_path):
    model.sample(40, random_state=1, out=tmp_path / "rows.parquet")
    written = pd.read_parquet(tmp_path / "rows.parquet")
    assert written["name"].tolist() == model.sample(40, random_state=1)["name"].tolist()


def test_missing_values_do_not_separate_name_and_email(model):
    table = people()
    table.loc[::3, "name"] = None
    rows = fitted(table).sample(300, random_state=1)
    is_missing = rows["name"].isna()
    assert 0 < is_missing.sum() < 300
    expected = model.sample(300, random_state=1)
    assert rows["mail"].tolist() == expected["mail"].tolist()
    assert rows["name"][~is_missing].tolist() == expected["name"][~is_missing].tolist()


def test_saved_file_has_no_real_value(model, tmp_path):
    table, path = people(), tmp_path / "people.safetensors"
    model.save(path)
    content = path.read_bytes()
    for column in FAKE:
        assert not any(value.encode() in content for value in table[column])
    expected = model.sample(20, random_state=3)
    pd.testing.assert_frame_equal(combutab.load(path).sample(20, random_state=3), expected)


def test_real_values_that_faker_makes_do_not_appear():
    table = decoded(encoder_of(people()[["name"]], {"name": "name"}), 2000)
    again = encoder_of(table, {"name": "name"})  # of the same seed
    assert not set(decoded(again, 5000)["name"]) & set(table["name"])


def test_unique_values_that_faker_makes_are_not_real_ones(monkeypatch):
    monkeypatch.setattr("combutab.preprocessing.modes._fakes._N_CHECKED", 2000)
    made = decoded(encoder_of(people()[["name"]], {"name": "last_name"}), 2000)
    table = made[made["name"].str.contains("-")].tail(60)  # in place of names that repeat
    again = encoder_of(table, {"name": "last_name"})  # of the same seed
    new = decoded(again, 2000)["name"]
    assert new.is_unique
    assert not set(new) & set(table["name"])


def test_conditions_on_other_columns(model):
    rows = model.sample(30, conditions={"city": "Kiel"}, random_state=0)
    assert set(rows["city"]) == {"Kiel"}
    assert rows["name"].is_unique
    with pytest.raises(ValueError, match="'name'"):
        model.sample(3, conditions={"name": "Ada Berg"})


def test_second_name_is_that_of_another_person():
    table = people()[["name", "mail"]].assign(doctor=lambda t: t["name"] + " MD")
    fake = {"name": "name", "doctor": "name", "mail": "email"}
    rows = decoded(encoder_of(table, fake), 100)
    assert (rows["name"] != rows["doctor"]).all()


@pytest.mark.parametrize("locale", ["ja_JP", "zh_CN", "ru_RU"])
def test_locales_of_other_scripts(locale):
    fake = {"name": f"name:{locale}", "mail": f"email:{locale}"}
    rows = decoded(encoder_of(people()[["name", "mail"]], fake), 50)
    assert rows["mail"].str.fullmatch(r"[a-z0-9.]+@example\.(org|net)").all()
    assert not rows["name"].str.fullmatch("[a-zA-Z ]+").any()


@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_dtypes_of_text(dtype):
    table = people()[["mail"]].astype(dtype)
    rows = decoded(encoder_of(table, {"mail": "email"}), 60)
    assert str(rows["mail"].dtype) == dtype
    assert rows["mail"].notna().all()


@pytest.mark.parametrize(
    ("fake", "says"),
    [
        ({"name": "nam"}, "'name'"),
        ({"nane": "name"}, "'name'"),
        ({"name": "name:de_de"}, "'de_DE'"),
        ({"name": "profile"}, "dict"),
        ({"age": "name"}, "'age'"),
        ({"mail": "mail"}, "'email'"),
    ],
)
def test_wrong_values_of_fake_are_refused(fake, says):
    with pytest.raises(ValueError, match=says):
        fitted(people(), fake=fake)


def test_values_that_the_table_has_are_refused():
    table = people()[["city"]].assign(city=["May", "June"] * (N // 2))
    with pytest.raises(ValueError, match="'city'"):
        encoder_of(table, {"city": "month_name"})


def test_arrays_have_no_names_to_fake():
    with pytest.raises(ValueError, match="DataFrame"):
        fitted(people().to_numpy(), fake={1: "name"})


def test_too_few_values_for_a_unique_column():
    encoder = encoder_of(people()[["name"]], {"name": "month_name"})
    assert decoded(encoder, 12)["name"].is_unique
    with pytest.raises(ValueError, match="month_name"):
        decoded(encoder, 13)


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "faker", None)
    with pytest.raises(ImportError, match=r"combutab\[faker\]"):
        fitted(people())


def test_tables_with_realistic_values(tmp_path):
    customers = people().assign(customer=range(N))
    orders = pd.DataFrame({"customer": np.repeat(range(N), 2), "amount": np.arange(2.0 * N)})
    orders["contact"] = [f"Contact {i}" for i in range(2 * N)]
    fake = FAKE | {"contact": "name"}
    model = TabFlowTables(TabFlow(epochs=1, fake=fake), random_state=0)
    model.fit({"customers": customers, "orders": orders}, [("orders", "customer", "customers")])
    drawn = model.sample(random_state=0)
    for name, table in {"customers": customers, "orders": orders}.items():
        for column in fake.keys() & set(table):
            assert not set(drawn[name][column]) & set(table[column])
            assert not drawn[name][column].str.startswith(("id-", "Contact")).any()
    with pytest.raises(ValueError, match="'mial'"):
        TabFlowTables(TabFlow(fake={"mial": "email"})).fit({"customers": customers}, [])
