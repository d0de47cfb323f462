"""TabFlowTables: keys, families, sequences, conditions, files and errors."""

import numpy as np
import pandas as pd
import pytest

from combutab import TabFlow, TabFlowTables, load
from combutab.generators import ShortfallError
from combutab.training import Callback

N = 60
KEYS = [
    ("orders", "customer_id", "customers"),
    ("orders", "product", "products"),
    ("items", "order_id", "orders"),
]


def make_tables():
    """Customers with orders of products, and items of orders."""
    rng = np.random.default_rng(0)
    customers = pd.DataFrame(
        {
            "id": [f"C{i}" for i in range(N)],
            "city": rng.choice(["Bonn", "Ulm"], N),
            "income": rng.normal(100, 10, N).round(1),
        }
    )
    customer = np.repeat(np.arange(N), rng.integers(0, 6, N))
    n = len(customer)
    days = pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    orders = pd.DataFrame(
        {
            "order_id": np.arange(n),
            "customer_id": customers["id"].to_numpy()[customer],
            "product": rng.integers(0, 8, n),
            "date": (pd.Timestamp("2020-01-01") + days).strftime("%Y-%m-%d"),
            "kind": rng.choice(["gift", "own", None], n),
            "paid": rng.random(n) < 0.5,
            "price": rng.normal(20, 3, n).round(2),
        }
    )
    orders.loc[::6, "customer_id"] = None
    products = pd.DataFrame({"product": range(8), "group": list("ggghhhii")})
    items = pd.DataFrame({"order_id": rng.integers(0, n, 200)})
    items["quantity"] = rng.integers(1, 5, 200)
    return {"customers": customers, "orders": orders, "products": products, "items": items}


TABLES = make_tables()


def make_model(**params):
    small = {"epochs": 2, "hidden_layer_sizes": (8,), "early_stopping": False, "batch_size": 50}
    return TabFlowTables(TabFlow(**small | params), random_state=0)


@pytest.fixture(scope="module")
def model():
    return make_model().fit(TABLES, KEYS, order_by={"orders": "date"}, lookup=["products"])


@pytest.fixture(scope="module")
def sample(model):
    return model.sample(40, random_state=1)


# ---- samples -------------------------------------------------------------------------------------


def test_tables_have_the_form_of_the_fitted_ones(model, sample):
    assert model.tables_.index("customers") < model.tables_.index("orders")
    assert [*sample] == [*TABLES]
    assert len(sample["customers"]) == 40
    for name, table in TABLES.items():
        assert sample[name].dtypes.to_dict() == table.dtypes.to_dict()
    assert sample["orders"]["date"].str.fullmatch(r"2020-\d\d-\d\d").all()


def test_keys_are_new_and_valid(sample):
    customers, orders = sample["customers"], sample["orders"]
    assert customers["id"].is_unique
    assert orders["order_id"].is_unique
    assert not customers["id"].isin(TABLES["customers"]["id"]).any()
    assert not orders["order_id"].isin(TABLES["orders"]["order_id"]).any()
    assert orders["customer_id"].dropna().isin(customers["id"]).all()
    assert orders["product"].isin(TABLES["products"]["product"]).all()
    assert sample["items"]["order_id"].isin(orders["order_id"]).all()


def test_share_of_missing_keys_is_kept(sample):
    share = TABLES["orders"]["customer_id"].isna().mean()
    missing = sample["orders"]["customer_id"].isna()
    assert missing.sum() == round(share / (1 - share) * (~missing).sum())


def test_lookup_table_is_returned_unchanged(sample):
    pd.testing.assert_frame_equal(sample["products"], TABLES["products"])


def test_siblings_are_in_the_given_order(sample):
    dates = sample["orders"].dropna(subset="customer_id").groupby("customer_id")["date"]
    assert dates.size().max() > 1
    assert all(siblings.is_monotonic_increasing for _, siblings in dates)


def test_order_of_siblings_is_found():
    rng = np.random.default_rng(0)
    parents = pd.DataFrame({"key": range(30)})
    children = pd.DataFrame({"key": np.tile(range(30), 4), "x": rng.normal(size=120)})
    children["year"] = np.repeat([2000, 2001, 2003, 2006], 30) + children["key"] % 5
    tables = {"parents": parents, "children": children}  # sorted by year, not by parent
    drawn = make_model(epochs=1).fit(tables, [("children", "key", "parents")]).sample(20)
    years = drawn["children"].groupby("key")["year"]
    assert years.size().max() > 1
    assert all(siblings.is_monotonic_increasing for _, siblings in years)


def test_same_seed_gives_same_tables(model, sample):
    again = model.sample(40, random_state=1)
    for name, table in sample.items():
        pd.testing.assert_frame_equal(again[name], table)
    first, second = (model.sample(20)["customers"] for _ in range(2))
    assert not first.equals(second)


def test_saved_model_draws_the_same_tables(model, sample, tmp_path):
    model.save(tmp_path / "tables.safetensors")
    loaded = load(tmp_path / "tables.safetensors")
    assert loaded.keys_ == model.keys_
    for name, table in loaded.sample(40, random_state=1).items():
        pd.testing.assert_frame_equal(table, sample[name])
    with pytest.raises(ValueError, match="holds a TabFlowTables"):
        TabFlow.load(tmp_path / "tables.safetensors")


def test_parents_are_kept(model):
    parents = TABLES["customers"].iloc[5:25]
    tables = model.sample(parents=parents, random_state=2)
    pd.testing.assert_frame_equal(tables["customers"], parents.reset_index(drop=True))
    keys = tables["orders"]["customer_id"].dropna()
    assert len(keys)
    assert keys.isin(parents["id"]).all()


def test_conditions_on_parents_and_children(model):
    conditions = {
        "customers": {"city": "Ulm"},
        "orders": {"kind": ["gift"], "price": (15.0, 22.0), "paid": True},
    }
    tables = model.sample(20, conditions=conditions, random_state=3)
    assert set(tables["customers"]["city"]) == {"Ulm"}
    orders = tables["orders"]
    assert len(orders)
    assert set(orders["kind"]) == {"gift"}
    assert orders["price"].between(15, 22).all()
    assert orders["paid"].all()


def test_conditions_that_cannot_be_met(model):
    with pytest.raises(ValueError, match=r"'orders'.*'kind'"):
        model.sample(5, conditions={"orders": {"kind": "none of them"}})
    with pytest.raises(ValueError, match="customer_id"):
        model.sample(5, conditions={"orders": {"customer_id": "C1"}})
    with pytest.raises(ValueError, match="nowhere"):
        model.sample(5, conditions={"nowhere": {"kind": "gift"}})
    assert issubclass(ShortfallError, ValueError)


def test_counts_and_means_of_families_are_learned():
    rng = np.random.default_rng(0)
    n_children = np.tile([0, 1, 5], 100)
    parents = pd.DataFrame({"key": range(300), "size": np.tile(["none", "one", "five"], 100)})
    children = pd.DataFrame({"key": np.repeat(range(300), n_children)})
    children["level"] = children["key"] % 2 * 10.0 + rng.normal(size=len(children)).round(2)
    model = make_model(epochs=25, hidden_layer_sizes=(32,), learning_rate=5e-3)
    model.fit({"parents": parents, "children": children}, [("children", "key", "parents")])
    tables = model.sample(300, random_state=0)
    families = tables["children"].groupby("key")["level"]
    counts = families.size().reindex(tables["parents"]["key"]).fillna(0).to_numpy()
    expected = tables["parents"]["size"].map({"none": 0, "one": 1, "five": 5}).to_numpy()
    assert (counts == expected).mean() > 0.8
    within = families.std()[families.size() == 5].median()
    assert within < tables["children"]["level"].std() / 2


@pytest.mark.parametrize(
    "key",
    [
        pd.date_range("2020-01-01", periods=30).to_series(),
        pd.Series(np.arange(30) * 10 - 50),
        pd.Series([f"k-{i}" for i in range(30)]),
    ],
    ids=["dates", "integers", "text"],
)
def test_keys_of_any_kind(key):
    rng = np.random.default_rng(0)
    parents = pd.DataFrame({"key": key.to_numpy(), "x": rng.normal(size=30)})
    children = pd.DataFrame({"ref": np.repeat(key.to_numpy(), 2), "y": rng.normal(size=60)})
    tables = {"parents": parents, "children": children}
    drawn = make_model(epochs=1).fit(tables, [("children", "ref", "parents")]).sample(10)
    assert drawn["children"]["ref"].isin(drawn["parents"]["key"]).all()
    assert drawn["parents"]["key"].is_unique
    assert not drawn["parents"]["key"].isin(key).any()
    assert drawn["parents"]["key"].dtype == parents["key"].dtype


def test_dtypes_survive_parquet(tmp_path):
    rng = np.random.default_rng(0)
    zoned = pd.Timestamp("2020-01-01", tz="Europe/Paris")
    parents = pd.DataFrame(
        {
            "key": pd.Series([f"K{i}" for i in range(N)], dtype="string"),
            "group": pd.Categorical(rng.choice(["a", "b"], N), categories=["b", "a"], ordered=True),
            "count": pd.Series(rng.integers(0, 9, N), dtype="Int16"),
        }
    )
    parents.loc[::7, "count"] = pd.NA
    children = pd.DataFrame({"key": pd.Categorical(rng.choice(parents["key"], 150))})
    children["at"] = zoned + pd.to_timedelta(rng.integers(0, 99, 150), unit="D")
    children["ok"] = pd.Series(rng.random(150) < 0.5, dtype="boolean")
    real = {"parents": parents, "children": children}
    for name, table in real.items():
        table.to_parquet(tmp_path / f"{name}.parquet")
    read = {name: pd.read_parquet(tmp_path / f"{name}.parquet") for name in real}
    drawn = make_model(epochs=1).fit(read, [("children", "key", "parents")]).sample(20)
    for name, table in drawn.items():
        table.to_parquet(tmp_path / f"{name}.parquet")
        again = pd.read_parquet(tmp_path / f"{name}.parquet")
        pd.testing.assert_frame_equal(again, table)
        for column in table.columns.difference(["key"]):
            assert table[column].dtype == real[name][column].dtype
    assert drawn["parents"]["key"].dtype == "string"
    assert isinstance(drawn["children"]["key"].dtype, pd.CategoricalDtype)
    assert drawn["children"]["key"].isin(drawn["parents"]["key"]).all()


def test_identifiers_of_children_are_unique():
    rng = np.random.default_rng(0)
    parents = pd.DataFrame({"key": range(30), "x": rng.normal(size=30)})
    children = pd.DataFrame({"key": np.repeat(range(30), 3), "y": rng.normal(size=90)})
    children["number"] = [f"V-{i}" for i in range(90)]
    children.loc[::3, "key"] = None
    tables = {"parents": parents, "children": children}
    with pytest.warns(UserWarning, match="'number' holds identifiers"):
        model = make_model(epochs=1).fit(tables, [("children", "key", "parents")])
    drawn = model.sample(10)["children"]
    assert drawn["number"].is_unique
    assert not drawn["number"].isin(children["number"]).any()


def test_single_children_and_parents_without_columns():
    rng = np.random.default_rng(0)
    parents = pd.DataFrame({"key": range(30)})
    children = pd.DataFrame({"key": range(30), "y": rng.normal(size=30)})
    model = make_model(epochs=1)
    model.fit({"parents": parents, "children": children}, [("children", "key", "parents")])
    assert len(model.sample(10)["children"]) == 10
    assert len(model.sample(parents=parents)["children"]) == 30


def test_tables_without_columns_but_keys():
    tables = {"parents": pd.DataFrame({"key": range(30)})}
    tables["children"] = pd.DataFrame({"key": np.repeat(range(30), 2)})
    drawn = make_model().fit(tables, [("children", "key", "parents")]).sample(10)
    assert drawn["children"]["key"].tolist() == np.repeat(drawn["parents"]["key"], 2).tolist()


def test_constant_and_rare_numbers_of_children():
    rng = np.random.default_rng(0)
    parents = pd.DataFrame({"key": range(30), "x": rng.normal(size=30)})
    children = pd.DataFrame({"key": np.repeat(range(30), 3), "y": rng.normal(size=90)})
    children["constant"] = pd.Timestamp("2020-01-01")
    children["almost"] = np.r_[1.0, 2.0, np.zeros(88)]
    children["missing"] = np.r_[1.0, 2.0, np.full(88, np.nan)]
    tables = {"parents": parents, "children": children}
    drawn = make_model(epochs=1).fit(tables, [("children", "key", "parents")]).sample(10)
    assert set(drawn["children"]["constant"]) == {pd.Timestamp("2020-01-01")}
    assert set(drawn["children"]["almost"]) == {0.0}
    assert drawn["children"]["missing"].isna().all()


def make_sizes(sizes):
    """Parents with so many children each."""
    rng = np.random.default_rng(0)
    parents = pd.DataFrame({"key": range(len(sizes)), "x": rng.normal(size=len(sizes))})
    children = pd.DataFrame({"key": np.repeat(range(len(sizes)), sizes)})
    children["kind"] = rng.choice(list("abc"), len(children))
    return {"parents": parents, "children": children}


def test_a_rare_number_of_children_is_not_drawn():
    tables = make_sizes([2000, *[1] * 300])
    drawn = make_model(epochs=1).fit(tables, [("children", "key", "parents")]).sample(50)
    assert drawn["children"]["key"].is_unique


def test_all_numbers_of_children_are_rare():
    tables = make_sizes([9, 9, 9, *[0] * 50])
    drawn = make_model().fit(tables, [("children", "key", "parents")]).sample()
    assert len(drawn["parents"]) == 53
    assert not len(drawn["children"])
    assert drawn["children"].dtypes.to_dict() == tables["children"].dtypes.to_dict()


def test_tables_with_many_columns():
    names = [f"x{i}" for i in range(400)]
    tables = {}
    for name, table in make_sizes([2] * 20).items():
        values = np.random.default_rng(0).normal(size=(len(table), 400))
        tables[name] = pd.concat([table, pd.DataFrame(values, columns=names)], axis=1)
    drawn = make_model(epochs=1).fit(tables, [("children", "key", "parents")]).sample(5)
    assert [table.shape[1] for table in drawn.values()] == [402, 402]


def test_composite_keys():
    rng = np.random.default_rng(0)
    parents = pd.DataFrame({"a": np.repeat(range(6), 5), "b": np.tile(range(5), 6)})
    parents["x"] = rng.normal(size=30)
    children = parents.loc[np.repeat(range(30), 2), ["a", "b"]].reset_index(drop=True)
    children["y"] = rng.normal(size=60)
    tables = {"parents": parents, "children": children}
    drawn = make_model(epochs=1).fit(tables, [("children", ["a", "b"], "parents")]).sample(8)
    pairs = set(map(tuple, drawn["parents"][["a", "b"]].to_numpy()))
    assert len(pairs) == 8
    assert set(map(tuple, drawn["children"][["a", "b"]].to_numpy())) <= pairs


def test_second_parents_resemble_the_children():
    rng = np.random.default_rng(3)
    shops = pd.DataFrame({"shop": range(40), "x": rng.normal(size=40)})
    goods = pd.DataFrame({"good": range(40), "group": ["a", "b"] * 20})
    sales = pd.DataFrame({"shop": np.repeat(range(40), 5), "good": rng.integers(0, 40, 200)})
    sales["price"] = np.where(sales["good"] % 2, 100.0, 0.0) + rng.normal(size=200).round(2)
    keys = [("sales", "shop", "shops"), ("sales", "good", "goods")]
    model = make_model(epochs=25, hidden_layer_sizes=(32,), learning_rate=5e-3)
    tables = model.fit({"shops": shops, "goods": goods, "sales": sales}, keys).sample(40)
    group = tables["sales"]["good"].map(tables["goods"].set_index("good")["group"])
    assert ((tables["sales"]["price"] > 50) == (group == "b")).mean() > 0.65  # by chance 0.5


# ---- keys that are found -------------------------------------------------------------------------


def test_auto_keys_are_listed():
    with pytest.warns(UserWarning, match="orders.customer_id -> customers.id"):
        model = make_model(epochs=1).fit(TABLES, lookup=["products"])
    found = {(key.child, key.columns[0], key.parent) for key in model.keys_}
    assert found == set(KEYS)


def test_auto_keys_without_any():
    tables = {"a": pd.DataFrame({"x": [1, 2]}), "b": pd.DataFrame({"y": [3, 4]})}
    with pytest.raises(ValueError, match="found no keys"):
        make_model().fit(tables)


# ---- errors --------------------------------------------------------------------------------------


def changed(table, **columns):
    """The tables with changed columns in one of them."""
    return TABLES | {table: TABLES[table].assign(**columns)}


def repeat_first(table, column):
    values = TABLES[table][column].copy()
    values.iloc[1] = values.iloc[0]
    return values


def with_first(table, column, value):
    values = TABLES[table][column].copy()
    values.iloc[0] = value
    return values


@pytest.mark.parametrize(
    ("tables", "keys", "words"),
    [
        (TABLES, [("visits", "customer_id", "customers")], ["visits"]),
        (TABLES, [("orders", "client", "customers")], ["table 'orders' has no column 'client'"]),
        (TABLES, [("orders", "customer_id")], ["customer_id"]),
        (TABLES, [("items", "quantity", "customers")], ["quantity", "customers"]),
        (
            changed("customers", id=repeat_first("customers", "id")),
            [("orders", "customer_id", "customers", "id")],
            ["customers", "C0"],
        ),
        (changed("orders", customer_id="X"), KEYS[:1], ["orders", "customer_id"]),
        (
            changed("products", product=TABLES["products"]["product"].astype(str)),
            [("orders", "product", "products")],
            ["'product' of table 'orders'", "type", "convert"],
        ),
        (changed("orders", order_id=repeat_first("orders", "order_id")), KEYS, ["order_id"]),
        (TABLES, [("orders", "product", "orders", "order_id")], ["orders", "itself"]),
        (TABLES, [*KEYS, ("orders", "product", "products")], ["orders", "product"]),
        ({**TABLES, "empty": TABLES["items"].head(0)}, KEYS, ["empty"]),
        ({**TABLES, "text": "orders"}, KEYS, ["text"]),
        ({**TABLES, "one": pd.DataFrame({"x": [1.0]})}, KEYS, ["one", "min_frequency"]),
        (
            TABLES | {"customers": TABLES["customers"].set_axis(["id", "id", "income"], axis=1)},
            KEYS,
            ["customers", "'id'"],
        ),
        (changed("customers", id=1), [KEYS[0] + ("id",)], ["customers", "'id'"]),
        (TABLES["orders"], KEYS, ["mapping"]),
    ],
)
def test_errors_name_table_and_column(tables, keys, words):
    with pytest.raises(ValueError, match=words[0]) as error:
        make_model(epochs=1).fit(tables, keys)
    assert all(word in str(error.value) for word in words)


def test_missing_keys_of_parents_are_refused():
    tables = changed("customers", id=with_first("customers", "id", None))
    orders = TABLES["orders"].assign(customer_id="C5")
    with pytest.raises(ValueError, match="'id' of table 'customers' is missing"):
        make_model().fit(
            tables | {"orders": orders}, [("orders", "customer_id", "customers", "id")]
        )


def test_circles_are_refused():
    a = pd.DataFrame({"a": range(10), "b": range(10)})
    b = pd.DataFrame({"b": range(10), "a": range(10)})
    with pytest.raises(ValueError, match="circle"):
        make_model().fit({"A": a, "B": b}, [("A", "b", "B"), ("B", "a", "A")])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order_by": {"orders": "kind"}}, ["orders", "kind"]),
        ({"order_by": {"orders": "when"}}, ["orders", "when"]),
        ({"order_by": {"customers": "income"}}, ["customers"]),
        ({"lookup": ["orders"]}, ["orders", "customer_id"]),
        ({"lookup": ["prices"]}, ["prices"]),
        ({"lookup": "products"}, ["products"]),
    ],
)
def test_options_that_do_not_fit_the_tables(options, words):
    with pytest.raises(ValueError, match=words[0]) as error:
        make_model().fit(TABLES, KEYS, **options)
    assert all(word in str(error.value) for word in words)


def test_few_rows_without_parents_are_left_out():
    tables = changed("orders", customer_id=TABLES["orders"]["customer_id"].fillna("C1"))
    tables["orders"] = tables["orders"].drop(columns="order_id")
    tables["orders"].loc[:2, "customer_id"] = None
    with pytest.warns(UserWarning, match=r"'orders'.*'customer_id'"):
        model = make_model(epochs=1).fit(
            {name: tables[name] for name in ("customers", "orders")}, KEYS[:1]
        )
    assert model.sample(10)["orders"]["customer_id"].notna().all()


def test_arguments_of_sample(model):
    with pytest.raises(ValueError, match="n must"):
        model.sample(0)
    with pytest.raises(ValueError, match="parents"):
        model.sample(3, parents=TABLES["customers"])
    with pytest.raises(ValueError, match="'income'"):
        model.sample(parents=TABLES["customers"].drop(columns="income"))
    with pytest.raises(ValueError, match="'id'"):
        model.sample(parents=pd.concat([TABLES["customers"].head(2)] * 2))
    with pytest.raises(ValueError, match="constraints"):
        TabFlowTables(TabFlow(identifiers=["id"])).fit(TABLES, KEYS)


class Interrupts(Callback):
    """Ctrl-C at the end of the first epoch of all."""

    done = False

    def on_epoch_end(self, report):
        if not self.done:
            self.done = True
            raise KeyboardInterrupt


def test_an_interrupted_table_is_named():
    orders = TABLES["orders"].drop(columns="order_id")
    tables = {"customers": TABLES["customers"], "orders": orders}
    model = make_model(callbacks=[Interrupts()])
    with pytest.warns(UserWarning, match="table 'orders': Training interrupted .* 1 epoch"):
        model.fit(tables, KEYS[:1])
