"""Conditions as a user writes them, and the columns and values that they mean."""

import re
from datetime import date, timedelta

import numpy as np
import pandas as pd
import pytest

from combutab.cli._conditions import parse_conditions
from combutab.cli._console import UserError
from combutab.datasets.formats import FileFormat
from combutab.preprocessing import ModeEncoder
from combutab.preprocessing.amounts import Form

FORMS = FileFormat(
    dates={"visit": "%d/%m/%Y", "seen": "%Y-%m-%dT%H:%M:%SZ"}, truth={"ok": ["no", "Y"]}
)


@pytest.fixture(scope="module")
def table():
    n = 40
    day = [date(2024, 1, 1) + timedelta(days=i) for i in range(n)]
    return pd.DataFrame(
        {
            "age": np.arange(20, 60),
            "price": np.arange(n) / 4 - 5,
            "visit": pd.to_datetime(day),
            "seen": pd.to_datetime(day) + pd.Timedelta(hours=30.5),
            "zoned": pd.date_range("2024-01-01", periods=n, tz="Europe/Oslo"),
            "wait": pd.to_timedelta(np.arange(n), "h"),
            "city": [*["Rome", "Oslo", "A|B", "1..3", "a=b"] * 7, *[None] * 5],
            "ok": [True, False] * 20,
            "flag": [True, None] * 20,
            "grade": [1, 2, 3, 4] * 10,
            "share": [0.5, 1.0] * 20,
            "when": pd.to_datetime(["2024-01-01", "2024-02-01"] * 20),
            "x=y": ["p", "q"] * 20,
            "one": [7] * n,
            5: list("uv") * 20,
        }
    )


@pytest.fixture(scope="module")
def encoder(table):
    discrete = ["city", "ok", "flag", "grade", "share", "when", "x=y", 5]
    return ModeEncoder(discrete_columns=discrete, n_modes=1, max_rows=1).fit(table)


T = pd.Timestamp
ONE = pd.Timedelta(1, "ns")
NEARLY = pd.Timedelta(days=1) - ONE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # discrete columns
        ("city=Rome", {"city": ["Rome"]}),
        ("city=Rome|Oslo", {"city": ["Rome", "Oslo"]}),
        ("city=Rome | Oslo|Rome", {"city": ["Rome", "Oslo"]}),
        ("city=A|B", {"city": ["A|B"]}),
        ("city=1..3", {"city": ["1..3"]}),
        ("city=a=b", {"city": ["a=b"]}),
        ("city=", {"city": [None]}),
        ("city=Oslo|", {"city": ["Oslo", None]}),
        (" city =Rome", {"city": ["Rome"]}),
        ("x=y=p", {"x=y": ["p"]}),
        ("5=u", {5: ["u"]}),
        ("ok=no", {"ok": [False]}),
        ("ok=y", {"ok": [True]}),
        ("flag=", {"flag": [None]}),
        ("grade=2", {"grade": [2]}),
        ("grade=2.0|3", {"grade": [2, 3]}),
        ("grade=2..3", {"grade": [2, 3]}),
        ("grade=..2.5", {"grade": [1, 2]}),
        ("share=1", {"share": [1.0]}),
        ("when=2024-02-01", {"when": [T("2024-02-01")]}),
        ("when=2024-01-15..", {"when": [T("2024-02-01")]}),
        # numbers
        ("age=30..50", {"age": (30, 50)}),
        ("age=30..", {"age": (30, None)}),
        ("age=30", {"age": [30]}),
        ("age=30|40", {"age": [30, 40]}),
        ("price=-4.5..-1e0", {"price": (-4.5, -1.0)}),
        # dates and durations
        ("visit=05/01/2024..31/01/2024", {"visit": (T("2024-01-05"), T("2024-01-31") + NEARLY)}),
        ("visit=2024-01-05", {"visit": (T("2024-01-05"), T("2024-01-05") + NEARLY)}),
        ("visit=..9999-12-31", {"visit": (None, T("9999-12-31T23:59:59.999999"))}),
        ("visit=0001-01-01..", {"visit": (T("0001-01-01"), None)}),
        ("seen=2024-01-05T10:00:00Z..", {"seen": (T("2024-01-05 10:00"), None)}),
        ("seen=..2024-01-05", {"seen": (None, T("2024-01-05") + NEARLY)}),
        ("zoned=2024-01-05..", {"zoned": (T("2024-01-05", tz="Europe/Oslo"), None)}),
        ("zoned=..2024-03-31", {"zoned": (None, T("2024-04-01", tz="Europe/Oslo") - ONE)}),
        ("seen=..2024-01-05T10", {"seen": (None, T("2024-01-05 10:00"))}),
        ("wait=2h..", {"wait": (pd.Timedelta(hours=2), None)}),
        # what all rows meet
        ("one=7", {}),
    ],
)
def test_conditions(encoder, text, expected):
    found = parse_conditions([text], encoder, FORMS)
    assert found == expected
    for name, wanted in found.items():
        if name in encoder.categories_:  # of the column's own types
            known = encoder.categories_[name]
            assert [type(v) for v in wanted] == [type(known[known.index(v)]) for v in wanted]


def test_several(encoder):
    found = parse_conditions(["age=30..", "one=7", "city=Rome", "price=..0"], encoder, FORMS)
    assert found == {"age": (30, None), "city": ["Rome"], "price": (None, 0)}


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ([""], "'' is not in the form COLUMN=VALUE, COLUMN=ONE|OTHER or COLUMN=LOW..HIGH"),
        (["=3"], "there is no column ''; there are 'age', 'price'"),
        (["agee=3"], "there is no column 'agee'; did you mean 'age'?"),
        (["age=30..", "age=..50"], "--condition names 'age' twice; join them"),
        (["city=Roma"], "'city' has no value 'Roma'; did you mean 'Rome'?"),
        (["city=Rome|Paris"], "'city' has no value 'Paris'; there are "),
        (["x=y="], "'x=y' has no missing values; there are 'p', 'q'"),
        (["ok=maybe"], "'ok' has no value 'maybe'; there are 'no', 'Y'"),
        (["grade=9"], "'grade' has no value '9'; there are '1', '2', '3', '4'"),
        (["grade=3..2"], "the range 3..2 of 'grade' is empty"),
        (["grade=7..9"], "no value of 'grade' lies in 7..9"),
        (["one=8"], "'one' has no value '8'; there is only '7'"),
        (["age="], "column 'age' had no missing values, so none will be generated"),
        (["age=20..30|40"], "20..30|40 is not a range; give one LOW..HIGH"),
        (["age=30|99"], "'age' is never 99"),
        (["age=.."], "the range .. of 'age' has no ends"),
        (["age=old"], "in the condition on 'age': 'old' is not a number"),
        (["age=30..inf"], "'inf' is not a number"),
        (["age=60.."], "'age' is never in 60..: its values lie in 20 to 59"),
        (["age=99"], "'age' is never 99: its values lie in 20 to 59"),
        (["age==30"], "'age==30' has two equals signs; write age=30"),
        (["visit=2024-01-05|2024-01-06"], "contains whole days; give a range of days"),
        (["visit=soon"], "'soon' is not a date; write it as 2025-01-31 or 31/01/2025"),
        (["visit=2025-01-01.."], "its values lie in 01/01/2024 to 09/02/2024"),
        (["wait=long"], "'long' is not a duration; write it as '2 days 03:00:00'"),
    ],
)
def test_bad_conditions(encoder, texts, says):
    with pytest.raises(UserError, match=re.escape(says)):
        parse_conditions(texts, encoder, FORMS)


def test_ambiguous_date_follows_the_file_format(encoder):
    (found,) = parse_conditions(["visit=02/01/2024"], encoder, FORMS).values()
    assert found[0] == T(year=2024, month=1, day=2)


def test_some_of_many_values_are_named():
    table = pd.DataFrame({"a": [f"value{i:03}" for i in range(100)]})
    encoder = ModeEncoder().fit(table)
    with pytest.raises(UserError) as error:
        parse_conditions(["a=q"], encoder, FileFormat())
    assert str(error.value).endswith("'value007' and 92 more")


def test_numbers_follow_the_file_format(table):
    amounts = {"price": Form(",", ".", 2, "{} €", "-{} €")}
    wide = ModeEncoder(n_modes=1, max_rows=1).fit(table[["price", "share"]] * 1000)
    forms = FileFormat(decimal=",", amounts=amounts)
    for text, expected in {
        "price=1.250 €": {"price": [1250]},
        "price=1.250..3.000,50": {"price": (1250, 3000.5)},
        "price=-1250.0": {"price": [-1250]},
        "share=500,5..": {"share": (500.5, None)},
    }.items():
        assert parse_conditions([text], wide, forms) == expected
    with pytest.raises(UserError, match="'1 250 kr' is not a number"):
        parse_conditions(["price=1 250 kr"], wide, forms)
