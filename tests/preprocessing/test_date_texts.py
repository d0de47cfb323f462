"""Dates as text: their format is found, read and written again."""

import datetime

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from combutab import MLPRegressor, PackRegressor, TabMRegressor, load
from combutab.core.dates import (
    find_clock_format,
    find_date_format,
    read_clocks,
    read_dates,
    write_clocks,
    write_dates,
)
from combutab.preprocessing import OddColumnWarning, TableEncoder

FORMATS = {
    "%Y-%m-%d": ["2024-12-31", "2023-01-02"],
    "%d.%m.%Y": ["01.02.2024", "03.04.2024"],
    "%d/%m/%Y": ["31/12/2024", "01/02/2024"],
    "%d-%b-%Y": ["22-Jun-2024", "01-May-2023"],
    "%d-%^b-%y": ["22-JUN-24", "01-MAY-23"],
    "%B %d, %Y": ["June 22, 2024", "May 01, 2023"],
    "%d.%m.%y": ["31.12.24", "01.02.23"],
    "%Y-%m": ["2024-12", "2023-01"],
    "%Y-%m-%d %H:%M:%S": ["2024-12-31 23:59:01", "2023-01-02 00:00:00"],
    "%Y-%m-%dT%H:%M:%SZ": ["2024-12-31T23:59:01Z", "2023-01-02T00:00:00Z"],
    "%m/%d/%Y %I:%M:%S %p": ["12/31/2024 11:59:01 PM", "01/02/2023 12:00:00 AM"],
    "%Y-%m-%d %H:%M:%S%z": ["2024-12-31 23:59:01+01:00", "2023-01-02 00:00:00+01:00"],
}


@pytest.mark.parametrize("form", FORMATS)
def test_dates_are_written_as_they_were(form):
    texts = pd.Series(FORMATS[form])
    assert find_date_format(texts) == form
    assert write_dates(read_dates(texts, form), form).tolist() == texts.tolist()


def test_dates_have_the_values_of_python():
    dates = read_dates(pd.Series(FORMATS["%d-%^b-%y"]), "%d-%^b-%y")
    assert dates.dt.date.tolist() == [datetime.date(2024, 6, 22), datetime.date(2023, 5, 1)]


@pytest.mark.parametrize(
    "texts",
    [
        ["01/02/2024", "03/04/2024"],  # day first or month first
        ["2024-01-01", "Total"],
        ["2024-01-01", "2023-02-30"],
        ["2024-01-01", "0024-05-03"],
        ["2024-01-01", "01.02.2024"],
        ["10.11.2", "1.2.3"],
        ["20240101", "20240102"],
        ["4521-07", "4522-08"],  # numbers of cases
        ["12:30", "13:45"],
        [],
    ],
)
def test_unclear_texts_have_no_date_format(texts):
    assert find_date_format(texts) is None


def test_dates_beyond_nanoseconds_have_seconds():
    dates = read_dates(pd.Series(["9999-12-31", None, "1500-01-11"]), "%Y-%m-%d")
    assert str(dates.dtype) == "datetime64[s]"
    assert dates.dt.year.tolist()[::2] == [9999, 1500]
    zoned = read_dates(pd.Series(["9999-12-30 22:00-01:00"]), "%Y-%m-%d %H:%M%z")
    assert zoned[0] == pd.Timestamp("9999-12-30 23:00").as_unit("s").tz_localize("UTC")


CLOCKS = {
    "%H:%M": (["10:18", "00:00"], ["10:18:00", "00:00:00"]),
    "%-H:%M:%S": (["9:05:30", "10:18:00"], ["09:05:30", "10:18:00"]),
    "%I:%M %p": (["12:05 AM", "10:18 PM"], ["00:05:00", "22:18:00"]),
    "%-Hh %-Mm": (["2h 5m", "31h 30m"], ["02:05:00", "31:30:00"]),
    "%-Mm %-Ss": (["2m 5s", "75m 30s"], ["00:02:05", "01:15:30"]),
    "%H:%M:%S.%f": (["10:18:00.250000", "00:00:01.000001"], ["10:18:00.25", "00:00:01.000001"]),
}


@pytest.mark.parametrize("form", CLOCKS)
def test_times_are_written_as_they_were(form):
    texts, durations = CLOCKS[form]
    assert find_clock_format(texts) == form
    times = read_clocks(pd.Series(texts), form)
    assert times.tolist() == pd.to_timedelta(durations).tolist()
    assert write_clocks(times, form).tolist() == texts


@pytest.mark.parametrize(
    "texts", [["10:18", "10:75"], ["1:2", "3:4"], ["10:18", "10:18"], ["2h", "3"]]
)
def test_other_texts_have_no_clock_format(texts):
    assert find_clock_format(texts) is None


RNG = np.random.default_rng(0)
MOMENTS = pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, 200), "D")
HOURS = pd.to_timedelta(RNG.integers(0, 1440, 200), "min")
TYPED = pd.DataFrame({"day": MOMENTS, "time": HOURS, "x": RNG.normal(size=200)})
TEXTS = TYPED.assign(
    day=MOMENTS.strftime("%d-%b-%Y"), time=(pd.Timestamp(0) + HOURS).strftime("%H:%M")
)
Y = TYPED["day"].dt.dayofyear + TYPED["time"].dt.total_seconds() / 1000


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize(
    ("model", "params"),
    [(MLPRegressor, {}), (PackRegressor, {"n_members": 3}), (TabMRegressor, {})],
)
def test_text_dates_give_the_predictions_of_dates(model, params, tmp_path):
    settings = {"max_iter": 3, "random_state": 0, "n_iter_no_change": np.inf, **params}
    expected = model(**settings).fit(TYPED, Y).predict(TYPED)
    with pytest.warns(OddColumnWarning, match="column 'day'.*column 'time'") as caught:
        fitted = model(**settings).fit(TEXTS, Y)
    assert len(caught) == 1
    assert_array_equal(fitted.predict(TEXTS), expected)
    assert_array_equal(fitted.predict(TYPED), expected)
    assert_allclose(fitted.predict(TEXTS[:1]), expected[:1], rtol=1e-5)
    fitted.save(tmp_path / "model")
    assert_array_equal(load(tmp_path / "model").predict(TEXTS), expected)
    with pytest.raises(ValueError, match=r"'day'.*'2024-01-01'.*1"):
        fitted.predict(TEXTS.assign(day="2024-01-01"))


@pytest.mark.filterwarnings("ignore:text is read as")
@pytest.mark.parametrize("categorical", ["from_dtype", None, ["x"]])
def test_text_dates_are_dates_if_not_declared_categories(categorical):
    table = TEXTS.assign(x=TEXTS["x"].round())
    encoder = TableEncoder(categorical_features=categorical, min_frequency=1).fit(table)
    assert encoder.kinds_[:2] == ("datetime", "timedelta")
    assert "31-Dec-2024" in encoder.describe_columns()["day"]
    declared = TableEncoder(min_frequency=1).fit(TEXTS.astype({"day": "category"}))
    assert declared.kinds_[:2] == ("category", "timedelta")


@pytest.mark.filterwarnings("ignore:text is read as")
def test_text_dates_of_parquet_files_and_missing_ones(tmp_path):
    pytest.importorskip("pyarrow")
    table = TEXTS.assign(day=TEXTS["day"].where(TEXTS.index % 7 > 0), y=Y)
    table.to_parquet(tmp_path / "x.parquet")
    reg = MLPRegressor(max_iter=1, n_iter_no_change=np.inf, random_state=0)
    reg.fit_parquet(tmp_path / "x.parquet", "y")
    assert reg.encoder_.kinds_ == ("datetime", "timedelta", "number")
    assert "day_missing" in reg.encoder_.get_feature_names_out()
    whole = TableEncoder().fit(table.drop(columns="y"))
    parts = TableEncoder().fit_batches(
        (table.drop(columns="y")[i : i + 50], None) for i in range(0, 200, 50)
    )
    assert_allclose(parts.transform(TEXTS), whole.transform(TEXTS), atol=1e-5)


def test_objects_of_dates_beyond_nanoseconds_are_dates():
    days = [datetime.date(9999, 12, 31), None, datetime.date(2020, 1, 1)] * 10
    encoder = TableEncoder().fit(pd.DataFrame({"end": pd.Series(days, dtype=object)}))
    numbers = encoder.read(pd.DataFrame({"end": days[:3]}))[0][:, 0]
    expected = [
        datetime.datetime(*d, tzinfo=datetime.UTC).timestamp()
        for d in ((9999, 12, 31), (2020, 1, 1))
    ]
    assert numbers[[0, 2]].tolist() == expected
    assert encoder.read(pd.DataFrame({"end": ["9999-12-31"]}))[0][0, 0] == expected[0]


@pytest.mark.parametrize("word", ["now", "today"])
@pytest.mark.parametrize("form", [None, "%Y-%m-%d", "%d.%m.%Y"])
def test_now_and_today_are_not_dates(word, form):
    days = pd.Series(pd.date_range("2024-01-01", periods=60))
    column = days if form is None else days.dt.strftime(form)
    encoder = TableEncoder()
    if form is None:
        encoder.fit(pd.DataFrame({"day": column}))
    else:
        with pytest.warns(OddColumnWarning):
            encoder.fit(pd.DataFrame({"day": column}))
        with pytest.raises(ValueError, match=form):
            read_dates(pd.Series([word]), form)
    with pytest.raises(ValueError, match=f"'day' .* '{word}' .*could not be read"):
        encoder.encode(pd.DataFrame({"day": [column[0], word]}, dtype=object))
