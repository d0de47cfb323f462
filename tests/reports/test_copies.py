"""Rows and values that synthetic rows repeat, against loops and known cases."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from combutab.evaluation import align_tables
from combutab.reports._copies import find_copied_values, find_copies


def aligned(*tables):
    named = dict(zip("abc", tables, strict=False))
    return list(align_tables(named, reference="a").tables.values())


def rows_of(table):
    """Rows as tuples, None where missing."""
    return [
        tuple(None if pd.isna(value) else value for value in row)
        for row in table.astype(object).itertuples(index=False, name=None)
    ]


@pytest.mark.parametrize("has_test", [True, False])
def test_copies_equal_those_of_a_loop(has_test):
    def draw(n, seed):
        rng = np.random.default_rng(seed)
        return pd.DataFrame(
            {
                "x": rng.choice([-0.0, 0.0, 1.5, np.nan], n),
                "c": rng.choice(["a", "b", None], n),
                "t": rng.choice(pd.to_datetime(["2020-01-01", "2021-01-01", None]), n),
                "n": rng.integers(0, 6, n),
            }
        )

    train, made, test = aligned(draw(80, 0), draw(150, 1), draw(60, 2))
    found = find_copies(train, made, test if has_test else None)
    counts, made_counts = {}, {}
    for row in rows_of(train):
        counts[row] = counts.get(row, 0) + 1
    for row in rows_of(made):
        made_counts[row] = made_counts.get(row, 0) + 1
    assert found.rows == sum(row in counts for row in rows_of(made))
    n_repeated = sum(min(n, 2) for row, n in made_counts.items() if counts.get(row) == 1)
    assert found.exact.rows == n_repeated
    n_by_chance, n_real = sum(count == 2 for count in counts.values()), Fraction(40)
    if has_test:
        n_by_chance += sum(counts.get(row) == 1 for row in rows_of(test))
        n_real += 60
    assert found.exact.expected == pytest.approx(float(150 * n_by_chance / n_real))
    total, share = n_repeated + n_by_chance, 150 / (150 + n_real)
    pvalue = sum(
        math.comb(total, k) * share**k * (1 - share) ** (total - k)
        for k in range(n_repeated, total + 1)
    )
    assert found.exact.pvalue == pytest.approx(float(pvalue))


def test_chance_is_estimated_from_the_table_itself():
    # 3000 draws of 4000 equally likely rows; of 3000 more, some meet one that is there once
    rng = np.random.default_rng(0)
    train, made, test = (
        pd.DataFrame({"x": rng.integers(0, 4000, 3000).astype(float)}) for _ in "123"
    )
    for found in (find_copies(train, made), find_copies(train, made, test)):
        assert found.exact.rows == pytest.approx(found.exact.expected, rel=0.3)
        assert not found.signs
    assert find_copies(train, train, test).signs


def codes(n, seed, n_values=3):
    """Rows of few categories, of which many are equal."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.integers(0, n_values, (n, 5)), columns=list("abcde")).astype(str)


@pytest.mark.parametrize("seed", range(3))
def test_equal_rows_of_small_domains_are_chance(seed):
    """No two real rows are equal, so that a held-out row never equals a training row."""
    real = codes(2000, 3 * seed).drop_duplicates(ignore_index=True)[:160]
    train, made, test = aligned(real[:80], codes(200, 3 * seed + 1), real[80:])
    for copies in (find_copies(train, made, test), find_copies(test, made, train)):
        assert copies.exact.rows > 20
        assert not copies.signs
        assert not copies.is_weak_sign
    assert find_copies(train, train, test).signs
    assert find_copies(test, train, train).rows == 0


def customers(n, rng):
    """Rows of which some are equal, and many in all columns but the label."""
    age = rng.integers(18, 90, n)
    kind = rng.choice(list("ABCD"), n, p=[0.5, 0.3, 0.15, 0.05])
    income = (rng.lognormal(10, 0.5, n) * (1 + (kind == "A"))).round(-2)
    risk = age / 30 + (kind == "A") + rng.normal(0, 0.7, n)
    return pd.DataFrame(
        {
            "age": age,
            "kind": kind,
            "income": income,
            "sex": rng.choice(["m", "f"], n),
            "label": np.where(risk > 2.2, "yes", "no"),
        }
    )


def shuffled(table, rng):
    return pd.DataFrame({name: rng.permutation(table[name].to_numpy()) for name in table})


def test_copies_with_a_flipped_label_name_the_label():
    rng = np.random.default_rng(0)
    train, test = customers(400, rng), customers(200, rng)
    flipped = train.assign(label=train["label"].map({"yes": "no", "no": "yes"}))
    sign = find_copies(*aligned(train, flipped, test)).clearest
    assert sign.left_out == ("label",)
    assert sign.rows > 390
    assert sign.expected < 10


def test_copies_with_two_other_columns_are_found():
    rng = np.random.default_rng(1)
    train, test, fresh = (
        customers(400, rng).assign(
            height=rng.normal(170, 9, 400).round(1), weight=rng.normal(70, 9, 400).round(1)
        )
        for _ in "123"
    )
    others = ["income", "label"]
    found = find_copies(*aligned(train, train.assign(**fresh[others]), test))
    assert found.rows == 0
    assert set(found.clearest.left_out) == set(others)


def test_independent_columns_are_no_copied_rows():
    # each value is a training row's, so some combinations are, by chance
    rng = np.random.default_rng(2)
    for size in (200, 600):
        train, test = customers(size, rng), customers(size, rng)
        for table in (train, train.assign(pay=rng.random(size))):
            control = test.assign(pay=rng.random(size))[table.columns]
            found = find_copies(*aligned(table, shuffled(table, rng), control))
            assert not found.signs


def test_few_copies_among_independent_columns_are_found():
    rng = np.random.default_rng(3)
    train, test = customers(800, rng), customers(400, rng)
    made = pd.concat([train[:24], shuffled(train, rng)[24:]], ignore_index=True)
    found = find_copies(*aligned(train, made, test))
    assert found.clearest.left_out == ()
    assert found.clearest.rows >= 24
    assert not find_copies(*aligned(test, made, train)).signs


def test_single_copy_among_unlike_rows_is_weak():
    train = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": list("wxyz"), "c": list("wxyz")})
    test = pd.DataFrame({"a": [1.0, 9.0, 3.0], "b": list("wyw"), "c": list("qyq")})
    assert not find_copies(*aligned(train, train[:1], test)).is_weak_sign  # (1, w, q) is near
    assert find_copies(*aligned(train, train[:1])).is_weak_sign
    assert not find_copies(*aligned(train, test)).is_weak_sign


def test_values_are_copied_only_where_they_identify_rows():
    rng = np.random.default_rng(0)
    train, test = (
        pd.DataFrame({"name": [f"{k} {i}" for i in range(300)], "size": rng.integers(0, 90, 300)})
        for k in "ab"
    )
    made = shuffled(train, rng)
    found = find_copied_values(*aligned(train, made, test))
    assert {name: values.rows for name, values in found.items()} == {"name": 300}


def test_numbers_without_gaps_are_no_copied_values():
    order = np.random.default_rng(0).permutation(600)
    days = pd.DataFrame({"day": pd.to_datetime("2020-01-01") + pd.to_timedelta(order, "D")})
    numbers = pd.DataFrame({"id": pd.Categorical(order.tolist())})
    for table in (days, numbers, pd.DataFrame({"id": order.astype(float)})):
        assert find_copied_values(table[:300], table[100:400]) == {}
        assert find_copied_values(table[:300], table[150:450], table[300:]) == {}
    assert list(find_copied_values(numbers[:300], numbers[:300], numbers[300:])) == ["id"]


def people(n, rng):
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "score": rng.integers(0, 60, n),
            "visits": rng.poisson(9, n),
            "kind": rng.choice(list("abcdefgh"), n),
            "region": rng.choice(list("klmnopqrst"), n),
        }
    )


def amounts(n, rng):
    """Amounts of which most are zero, so that many rows are equal."""
    values = rng.lognormal(3, 1, (n, 5)).round() * (rng.random((n, 5)) < 0.3)
    return pd.DataFrame(values, columns=list("vwxyz")).assign(kind=rng.choice(list("abc"), n))


@pytest.mark.slow
@pytest.mark.parametrize("make", [customers, people, amounts])
def test_copies_are_found_and_fresh_rows_are_not(make):
    n_tables = {"fresh": 0, "independent": 0, "copies": 0}
    n_alarms = dict.fromkeys(n_tables, 0)
    for n in (300, 1000):
        for seed in range(50):
            rng = np.random.default_rng([seed, n])
            train, test, fresh = make(n, rng), make(n // 2, rng), make(n, rng)
            copied = pd.concat([train[: n // 20], fresh[n // 20 :]], ignore_index=True)
            kinds = {"fresh": fresh, "independent": shuffled(train, rng), "copies": copied}
            for kind, synthetic in kinds.items():
                n_tables[kind] += 1
                n_alarms[kind] += bool(find_copies(*aligned(train, synthetic, test)).signs)
    assert n_alarms["fresh"] <= 0.05 * n_tables["fresh"]
    assert n_alarms["independent"] <= 0.05 * n_tables["independent"]
    assert n_alarms["copies"] >= 0.9 * n_tables["copies"]


def test_of_tables_without_equal_rows_chance_is_a_bound():
    rng = np.random.default_rng(0)
    values = rng.permutation(3000).astype(float)
    train, test = (pd.DataFrame({"x": part, "y": part % 7}) for part in np.split(values, 2))
    assert find_copies(train, train[:40], test).exact.is_upper_bound
    equal = pd.concat([train, train[:20]], ignore_index=True)
    assert not find_copies(equal, train[:40], test).exact.is_upper_bound
