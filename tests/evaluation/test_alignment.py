"""Tables of any form brought to the columns and the meaning of one of them."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest

from combutab.evaluation import align_tables


def align(real, made, **options):
    aligned = align_tables({"real": real, "made": made}, reference="real", **options)
    return aligned, aligned["real"], aligned["made"]


def columns(real, made):
    """Two aligned columns, and their kind."""
    aligned, a, b = align(pd.DataFrame({"x": real}), pd.DataFrame({"x": made}))
    return aligned.kinds["x"], a["x"], b["x"]


# ---- the same values in other dtypes -----------------------------------------------------------

NUMBERS = [1, 3, None, -2]
SAME_NUMBERS = {
    "float64": pd.Series([1.0, 3.0, np.nan, -2.0]),
    "float32": pd.Series([1.0, 3.0, np.nan, -2.0], dtype="float32"),
    "Int64": pd.Series(NUMBERS, dtype="Int64"),
    "Int8": pd.Series(NUMBERS, dtype="Int8"),
    "Float64": pd.Series(NUMBERS, dtype="Float64"),
    "objects": pd.Series(NUMBERS, dtype=object),
    "NA objects": pd.Series([1, 3, pd.NA, -2.0], dtype=object),
    "decimals": pd.Series([decimal.Decimal(1), decimal.Decimal("3.0"), None, decimal.Decimal(-2)]),
    "text": pd.Series(["1", " 3.0 ", "", "-2"], dtype=object),
    "string": pd.Series(["1", "3", None, "-2e0"], dtype="string"),
    "text, nan": pd.Series(["1", "3", "NaN", "-2"], dtype=object),
    "category": pd.Series(NUMBERS, dtype="category"),
    "sparse": pd.Series(pd.arrays.SparseArray([1.0, 3.0, np.nan, -2.0])),
}


@pytest.mark.parametrize("name", SAME_NUMBERS)
def test_the_same_numbers_in_other_dtypes(name):
    kind, real, made = columns(pd.Series([1.0, 3.0, np.nan, -2.0]), SAME_NUMBERS[name])
    assert kind == "number"
    assert made.dtype == np.float64
    np.testing.assert_array_equal(real, made)
    np.testing.assert_array_equal(made, [1.0, 3.0, np.nan, -2.0])


SAME_TIMES = {
    "ns": pd.Series(pd.to_datetime(["2020-02-29 12:30", None, "1999-01-01"], format="ISO8601")),
    "s": pd.Series(np.array(["2020-02-29T12:30", "NaT", "1999-01-01"], dtype="M8[s]")),
    "objects": pd.Series(
        [datetime.datetime(2020, 2, 29, 12, 30), None, datetime.date(1999, 1, 1)], dtype=object
    ),
    "text": pd.Series(["2020-02-29T12:30:00", None, "1999-01-01"], dtype=object),
    "zone": pd.Series(["2020-02-29 14:30+02:00", None, "1999-01-01T00:00Z"], dtype=object),
    "zone dtype": pd.Series(
        pd.to_datetime(["2020-02-29 12:30", None, "1999-01-01"], utc=True, format="ISO8601")
    ).dt.tz_convert("America/New_York"),
}


@pytest.mark.parametrize("reference", SAME_TIMES)
@pytest.mark.parametrize("name", SAME_TIMES)
def test_the_same_times_in_other_dtypes(reference, name):
    kind, real, made = columns(SAME_TIMES[reference], SAME_TIMES[name])
    assert kind == "datetime"
    expected = np.array(["2020-02-29T12:30", "NaT", "1999-01-01"], dtype="M8[us]")
    for column in (real, made):
        assert column.dtype == expected.dtype
        np.testing.assert_array_equal(column.to_numpy(), expected)


def test_dates_that_nanoseconds_do_not_reach():
    kind, real, made = columns(["9999-12-31", "0999-01-01"], ["9999-12-31T00:00:00", None])
    assert kind == "datetime"
    assert real[0] == made[0] == pd.Timestamp("9999-12-31")


def test_durations_are_seconds():
    kind, real, made = columns(pd.to_timedelta([90, None], unit="s"), ["0 days 00:01:30", "1 days"])
    assert kind == "number"
    np.testing.assert_array_equal(real, [90.0, np.nan])
    np.testing.assert_array_equal(made, [90.0, 86400.0])


def test_text_is_dates_only_if_all_is():
    dates = ["2020-01-01", "2020-01-02"]
    assert columns(dates, dates)[0] == "datetime"
    assert columns(dates, ["2020-01-01", "soon"])[0] == "category"
    assert columns(dates, ["2020-13-01", "2020-01-01"])[0] == "category"
    assert columns(["01/02/2020", "2020-01-02"], dates)[0] == "category"
    assert columns(["2020", "2021"], ["2020", "2021"])[0] == "category"


SAME_CATEGORIES = {
    "text and category": (["b", "a", None], pd.Categorical(["b", "a", None], ["z", "b", "a"])),
    "text and string": (["b", "a", None], pd.array(["b", "a", pd.NA], dtype="string")),
    "category and objects": (pd.Categorical([7, 5, None]), pd.Series([7, 5, None], dtype=object)),
    "category and floats": (pd.Categorical([7, 5, None]), [7.0, 5.0, np.nan]),
    "category and text": (pd.Categorical([7, 5, None]), ["7", "5.0", None]),
    "text and numbers": (["07", "5", None], [7, 5.0, np.nan]),
    "bool and boolean": ([True, False, None], pd.array([True, False, None], dtype="boolean")),
    "bool and numbers": ([True, False, None], [1.0, 0.0, np.nan]),
    "bool and text": ([True, False, None], ["True", "false", None]),
    "text and bool": (["true", "false", None], [True, False, None]),
    "lists": ([[1, 2], [3], None], [[1, 2], [3], None]),
    "bytes": ([b"x", b"y", None], [b"x", b"y", None]),
}


@pytest.mark.parametrize("name", SAME_CATEGORIES)
def test_the_same_categories_in_other_dtypes(name):
    kind, real, made = columns(*map(pd.Series, SAME_CATEGORIES[name]))
    assert kind == "category"
    assert real.cat.codes.tolist() == made.cat.codes.tolist()
    assert (real.cat.codes >= 0).tolist() == [True, True, False]
    assert real.dtype == made.dtype
    assert len(real.cat.categories) == 2


def test_ambiguous_numbers_stay_apart_from_text():
    _, real, made = columns(["1", "01", "x"], [1, 2, 3])
    assert not set(real) & set(made)
    _, real, made = columns(["1", "1.5", "x"], [1, 2, 1.5])
    assert made.tolist() == ["1", 2, "1.5"]


@pytest.mark.parametrize("text", ["nan", "inf", "1_000", "0x1", "e5", ""])
def test_unusual_spellings_of_numbers_are_text(text):
    _, _, made = columns(pd.Categorical([1000, 1, 5]), ["1000", "1", text])
    assert made.tolist() == [1000, 1, text]


def test_unseen_categories_follow_the_known_ones():
    aligned, real, made = align(
        pd.DataFrame({"x": ["b", "a", "b"]}), pd.DataFrame({"x": ["c", "a", "A"]})
    )
    assert aligned.n_known == {"x": 2}
    assert real["x"].cat.categories.tolist() == ["a", "b", "A", "c"]
    assert made["x"].tolist() == ["c", "a", "A"]


def test_a_category_that_no_row_has_is_none():
    aligned, real, _ = align(
        pd.DataFrame({"x": pd.Categorical(["a"], ["a", "b"])}), pd.DataFrame({"x": ["a"]})
    )
    assert aligned.n_known == {"x": 1}
    assert real["x"].cat.categories.tolist() == ["a"]


def test_columns_that_the_caller_names_are_categories():
    real = pd.DataFrame({"y": [0, 1, 1], "x": [0, 1, 1]})
    aligned, _, made = align(real, real.astype(str), categorical="y")
    assert aligned.kinds == {"y": "category", "x": "number"}
    assert made["y"].tolist() == [0, 1, 1]
    assert aligned.columns("category") == ["y"]
    with pytest.raises(ValueError, match=r"no column \['z'\]"):
        align(real, real, categorical=["z"])


@pytest.mark.parametrize(
    ("other", "kind"),
    [([1.5, 2.0], "number"), (["a", "b"], "category"), (["2020-01-01"] * 2, "datetime")],
)
def test_empty_column_takes_the_kind_of_others(other, kind):
    for empty in ([None, None], [np.nan, np.nan]):
        found, real, _ = columns(empty, other)
        assert found == kind
        assert real.isna().all()


def test_a_column_without_values_anywhere():
    assert columns([np.nan], [np.nan])[0] == "number"
    assert columns(pd.Series([None], dtype=object), [np.nan])[0] == "category"


def test_single_precision_compares_equal():
    values = np.array([0.1, 1 / 3, 2.7])
    _, real, made = columns(values, values.astype(np.float32))
    assert real.tolist() == made.tolist()
    # whole numbers keep their digits
    big = np.array([2**40 + 1])
    _, real, _ = columns(big, big.astype(np.float32))
    assert real[0] == 2**40 + 1


# ---- tables ------------------------------------------------------------------------------------


def test_columns_follow_the_reference_order():
    real = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}, index=[7, 7])
    made = pd.DataFrame({"b": ["y", "x", "x"], "a": [3, 4, 5]}, index=[2, 0, 1])
    before = made.copy()
    _, first, second = align(real, made)
    assert list(second.columns) == ["a", "b"]
    assert second["a"].tolist() == [3, 4, 5]
    assert second["b"].tolist() == ["y", "x", "x"]
    assert first.index.tolist() == [0, 1]
    pd.testing.assert_frame_equal(made, before)


def test_missing_and_extra_columns_are_listed():
    real = pd.DataFrame({"a": [1], "b": [2], "c": [3]})
    tables = {"real": real, "one": real.drop(columns=["a", "c"]), "two": real.assign(d=1)}
    with pytest.raises(ValueError, match=r"one.*\['a', 'c'\].*two.*\['d'\]"):
        align_tables(tables, reference="real")
    with pytest.raises(ValueError, match=r"made.*\['b'\].*\['B'\]"):
        align(real, real.rename(columns={"b": "B"}))
    with pytest.raises(ValueError, match=r"made.*2.*3"):
        align(real, np.zeros((4, 2)))


def test_duplicate_names_and_empty_tables():
    real = pd.DataFrame({"a": [1], "b": [2]})
    with pytest.raises(ValueError, match=r"made.*duplicate.*\['a'\]"):
        align(real, real.set_axis(["a", "a"], axis=1))
    with pytest.raises(ValueError, match=r"made.*0 sample"):
        align(real, real[:0])
    with pytest.raises(ValueError, match=r"real.*0 feature"):
        align(real[[]], real)
    with pytest.raises(ValueError, match="'train'"):
        align_tables({"real": real}, reference="train")


@pytest.mark.parametrize("table", [5, "text", None, {"a": [1]}])
def test_what_is_no_table(table):
    with pytest.raises(TypeError, match="made must be a DataFrame"):
        align(pd.DataFrame({"a": [1]}), table)


def test_arrays_have_the_references_columns_by_position():
    real = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    _, _, made = align(real, np.array([[3, "x"], [None, "z"]], dtype=object))
    assert made["b"].tolist() == ["x", "z"]
    np.testing.assert_array_equal(made["a"], [3.0, np.nan])
    aligned, first, second = align(np.array([[1, 2], [3, 4]]), [[5, 6]])
    assert aligned.kinds == {0: "number", 1: "number"}
    assert first[1].tolist() == [2.0, 4.0]
    assert second[1].tolist() == [6.0]
    with pytest.raises(ValueError, match=r"\(3,\)"):
        align(np.zeros(3), np.zeros(3))


def test_masked_values_are_missing():
    masked = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    _, real, _ = align(masked, [[1, 2]])
    np.testing.assert_array_equal(real, [[1.0, np.nan], [3.0, 4.0]])


# ---- values that are not what they should be ---------------------------------------------------


@pytest.mark.parametrize(
    ("real", "made", "value"),
    [
        ([1.0, 2.0], ["3", "many"], "'many'"),
        ([1.0, 2.0], pd.to_datetime(["2020-01-01"]), "2020"),
        ([1.0, 2.0], pd.to_timedelta([1], unit="s"), "Timedelta"),
        (pd.to_datetime(["2020-01-01"]), ["soon"], "'soon'"),
        (pd.to_datetime(["2020-01-01"]), [1577836800], "1577836800"),
        (pd.to_timedelta([1], unit="s"), [1], "1"),
        (pd.to_timedelta([1], unit="s"), ["soon"], "'soon'"),
    ],
)
def test_a_value_of_another_meaning_is_named(real, made, value):
    with pytest.raises(ValueError, match=f"'x' of made.*{value}"):
        columns(real, made)


def test_infinity_and_complex_numbers_are_refused():
    with pytest.raises(ValueError, match=r"'x' of made.*infinity"):
        columns([1.0, 2.0], [1.0, np.inf])
    with pytest.raises(ValueError, match=r"'x'.*complex"):
        columns([1.0 + 2j], [1.0])
