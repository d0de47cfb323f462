"""Figures of databases: keys, numbers of children, dependence, families, two-sample tests."""

import numpy as np
import pandas as pd
import pytest

from combutab.evaluation import AlignedDatabases, align_tables, compare_databases
from combutab.preprocessing import ForeignKey

KEY = ForeignKey("visits", ("who",), "people", ("id",))
PEOPLE = pd.DataFrame({"id": [1, 2, 3], "age": [30.0, 40.0, 50.0]})
VISITS = pd.DataFrame(
    {
        "who": [1, 2, 1, 1, 2],
        "day": [3.0, 5.0, 1.0, 7.0, 5.0],
        "ward": ["a", "b", "a", "b", "b"],
        "cost": [2.0, 1.0, 4.0, 9.0, 3.0],
    }
)


def align(databases, order_by=None):
    """Databases by role, aligned without the columns of keys."""
    columns = {"people": "id", "visits": "who"}
    tables = {
        name: align_tables(
            {role: tables[name].drop(columns=key) for role, tables in databases.items()},
            reference="real",
        )
        for name, key in columns.items()
    }
    return AlignedDatabases(databases, tables, [KEY], order_by or {})


def small(people=PEOPLE, visits=VISITS, **options):
    real = {"people": PEOPLE, "visits": VISITS}
    return align({"real": real, "synthetic": {"people": people, "visits": visits}}, **options)


def draw(n, seed, *, dependent=True):
    """People, whose visits cost more if they are old, and come in runs of the same ward."""
    rng = np.random.default_rng(seed)
    people = pd.DataFrame({"id": range(n), "age": rng.normal(50, 10, n)})
    who = np.repeat(np.arange(n), rng.poisson(3, n))
    visits = pd.DataFrame({"who": who, "ward": np.array(["a", "b"])[who % 2]})
    visits["cost"] = people["age"].to_numpy()[who] + rng.normal(0, 2, len(who))
    if not dependent:
        visits["who"] = rng.permutation(who)
    return {"people": people, "visits": visits}


def values_of(table, aspect, source="synthetic"):
    chosen = table[(table["aspect"] == aspect) & (table["source"] == source)]
    return dict(zip(chosen["measure"], chosen["value"], strict=True))


def test_keys_that_are_not_valid_are_counted():
    people = PEOPLE.assign(id=[1, 1, 2])
    visits = VISITS.assign(who=[1, 9, None, 2, 8])
    keys = values_of(compare_databases(small(people, visits)), "keys")
    assert keys == pytest.approx({"unique": 1 / 3, "orphans": 2 / 5, "missing": 1 / 5})
    real = values_of(compare_databases(small(people, visits)), "keys", "real")
    assert real == {"unique": 1.0, "orphans": 0.0, "missing": 0.0}


def test_numbers_of_children_are_compared():
    # children per parent: 3, 2, 0 in the real tables, 5, 0, 0 in the synthetic ones
    counts = values_of(compare_databases(small(visits=VISITS.assign(who=1))), "cardinality")
    assert counts == pytest.approx({"mean": 5 / 3, "childless": 2 / 3, "ks": 2 / 3})


def test_children_are_summarized_by_parent():
    rows = small().with_children("real", [KEY])
    prefix = "visits.who: "
    np.testing.assert_array_equal(rows[prefix + "number of rows"], [3, 2, 0])
    np.testing.assert_array_equal(rows[prefix + "mean of cost"], [5.0, 2.0, np.nan])
    np.testing.assert_array_equal(rows[prefix + "values of ward"], [2, 1, 0])
    assert rows["age"].tolist() == [30.0, 40.0, 50.0]


def test_siblings_are_compared_in_their_order():
    rows = small(order_by={"visits": "day"}).with_children("real", [KEY], siblings=True)
    # the first person has the days 1, 3, 7 in the wards a, a, b at the costs 4, 2, 9
    expected = {
        "first": [1, 5],
        "last": [7, 5],
        "places": [3, 1],
        "span": [6, 0],
        "largest step": [4, 0],
        "changes of ward": [2, 1],
        "most frequent ward": [2 / 3, 1],
        "change of cost": [4.5, 2],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(rows["visits.who: " + name], [*values, np.nan])


def test_family_labels_are_equal_for_equal_families():
    labels = small(visits=VISITS[::-1]).family_labels("real", "people")
    synthetic = small(visits=VISITS[::-1]).family_labels("synthetic", "people")
    np.testing.assert_array_equal(labels, synthetic)
    changed = small(visits=VISITS.assign(cost=[2, 1, 4, 9, 3.5]))
    is_same = changed.family_labels("synthetic", "people") == labels
    np.testing.assert_array_equal(is_same, [True, False, True])


def test_descendants_are_summarized_recursively():
    grandchild = ForeignKey("items", ("visit",), "visits", ("visit",))
    visits = VISITS.assign(visit=range(5))
    items = pd.DataFrame({"visit": [0, 0, 1], "price": [1.0, 3.0, 5.0]})
    tables = {
        "people": align_tables({"real": PEOPLE[["age"]]}, reference="real"),
        "visits": align_tables({"real": VISITS[["cost"]]}, reference="real"),
        "items": align_tables({"real": items[["price"]]}, reference="real"),
    }
    raw = {"real": {"people": PEOPLE, "visits": visits, "items": items}}
    databases = AlignedDatabases(raw, tables, [KEY, grandchild])
    rows = databases.persons("real", "people")
    # the first person has the visits 0, 2 and 3, and only the first of them has items
    counts = rows["visits.who: mean of items.visit: number of rows"]
    np.testing.assert_allclose(counts, np.float32([2 / 3, 1 / 2, np.nan]))
    np.testing.assert_array_equal(
        rows["visits.who: mean of items.visit: mean of price"], [2.0, 5.0, np.nan]
    )


def test_children_of_other_parents_are_distinguished():
    synthetic = draw(300, 1, dependent=False)
    table = compare_databases(
        align({"real": draw(300, 0), "synthetic": synthetic, "test": draw(300, 2)})
    )
    areas, real = (values_of(table, "detection", s) for s in ("synthetic", "held-out real"))
    assert areas["with children"] > 0.9
    assert areas["with siblings"] > 0.9
    assert areas["rows"] < 0.6
    assert max(real.values()) < 0.6
    trends, real_trends = (values_of(table, "trends", s) for s in ("synthetic", "held-out real"))
    assert trends["correlation"] == pytest.approx(0.5, abs=0.1)
    assert real_trends["correlation"] > 0.97


def test_tables_with_few_rows_have_no_two_sample_test():
    assert values_of(compare_databases(small()), "detection") == {}
