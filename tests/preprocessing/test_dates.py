"""Dates: parts of the calendar as sine and cosine, chosen by what the dates have and cover."""

import datetime as dt
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from combutab import MLPRegressor
from combutab.preprocessing import TableEncoder, calendar_phases

ZONE = "Europe/Berlin"


def column(dates, **more):
    return pd.DataFrame({"sold": dates, **more})


def hours(n=20_000, **options):
    return column(pd.date_range("2021-01-01", periods=n, freq="h", **options))


@given(st.datetimes(min_value=dt.datetime(1600, 1, 1), max_value=dt.datetime(2400, 1, 1)))
def test_phases_are_those_of_the_calendar(moment):
    stamp = pd.Timestamp(moment.replace(microsecond=0))
    parts = ["hour", "dayofweek", "day", "month", "dayofyear"]
    seconds = np.array([(moment.replace(microsecond=0) - dt.datetime(1970, 1, 1)).total_seconds()])
    expected = [
        (stamp - stamp.normalize()) / pd.Timedelta("1D"),
        stamp.weekday() / 7,
        (stamp.day - 1) / stamp.days_in_month,
        (stamp.month - 1) / 12,
        (stamp.timetuple().tm_yday - 1) / (366 if stamp.is_leap_year else 365),
    ]
    assert_allclose(np.concatenate(calendar_phases(seconds, parts)), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("frequency", "n", "parts"),
    [
        ("h", 20_000, ("hour", "dayofweek", "day", "dayofyear")),
        ("15min", 3_000, ("hour", "dayofweek")),  # a month: no two of them
        ("min", 300, ()),  # five hours
        ("D", 14, ("dayofweek",)),
        ("D", 400, ("dayofweek", "day")),
        ("D", 731, ("dayofweek", "day", "dayofyear")),
        ("W", 200, ("day", "dayofyear")),
        ("MS", 60, ("month",)),
        ("ME", 60, ("month",)),
        ("YS", 40, ()),
    ],
)
def test_parts_are_chosen_by_resolution_and_span(frequency, n, parts):
    encoder = TableEncoder().fit(column(pd.date_range("2021-01-04", periods=n, freq=frequency)))
    assert encoder.calendars_[0].parts == parts


def test_a_few_other_dates_choose_no_part():
    dates = pd.Series(pd.date_range("2021-01-01", periods=400, freq="D"))
    dates[:3] += pd.Timedelta("5h")
    assert "hour" not in TableEncoder(min_frequency=1).fit(column(dates)).calendars_[0].parts
    dates[:40] += pd.Timedelta("5h")
    assert "hour" in TableEncoder().fit(column(dates)).calendars_[0].parts


def test_columns_names_and_missing_dates():
    table = hours()
    table.loc[5, "sold"] = pd.NaT
    encoder = TableEncoder(date_features=["number", "hour", "month"]).fit(table)
    names = encoder.get_feature_names_out().tolist()
    circles = ["sold_hour_sin", "sold_hour_cos", "sold_month_sin", "sold_month_cos"]
    assert names == ["sold", "sold_missing", *circles]
    rows = encoder.transform(table)
    assert_allclose(rows[18, 2:], [-1, 0, 0, 1], atol=1e-6)  # 18 h on the 1st of January
    assert rows[5].tolist() == [0, 1, 0, 0, 0, 0]
    assert [span.kind for span in encoder.spans_] == ["numeric", "indicator", "cyclic"]


@pytest.mark.parametrize("numeric", ["standard", "quantile", "robust", "none"])
def test_later_rows_without_date_number_look_alike(numeric):
    encoder = TableEncoder(numeric=numeric, date_features=["hour"], n_bins=4).fit(hours())
    later = hours()
    later["sold"] += pd.Timedelta(40_000, "D")
    assert_allclose(encoder.transform(later), encoder.transform(hours()), atol=1e-6)
    assert not encoder.transform(later)[:, 0].any()


def test_hours_are_those_of_the_fitted_time_zone():
    local = hours(tz=ZONE)
    encoder = TableEncoder(date_features=["hour"]).fit(local)
    utc = column(local["sold"].dt.tz_convert("UTC"))
    assert_allclose(encoder.transform(utc), encoder.transform(local))
    noons = column(pd.to_datetime(["2021-01-05 12:00", "2021-07-05 12:00"]).tz_localize(ZONE))
    assert_allclose(encoder.transform(noons)[:, 1:], [[0, -1], [0, -1]], atol=1e-6)
    with pytest.warns(UserWarning, match=r"'sold'.*tz_localize.*'Europe/Berlin'"):
        encoder.transform(column(local["sold"].dt.tz_localize(None)))
    naive = TableEncoder(date_features=["hour"]).fit(hours())
    naive.transform(hours(tz="UTC"))
    with pytest.warns(UserWarning, match="tz_localize"):
        naive.transform(local)


FORMS = {
    "seconds": lambda dates: dates.astype("datetime64[s]"),
    "objects": lambda dates: dates.astype(object),
    "dates": lambda dates: dates.dt.date.astype(object),
    "periods": lambda dates: dates.dt.to_period("D"),
    "category": lambda dates: dates.astype("category"),
    "arrow": lambda dates: dates.astype("timestamp[us][pyarrow]"),
}


@pytest.mark.parametrize("form", FORMS)
def test_any_form_of_dates(form):
    dates = pd.Series(pd.date_range("2021-01-01", periods=800, freq="D"))
    options = {"categorical_features": None}
    plain = TableEncoder(**options).fit_transform(column(dates))
    assert plain.shape[1] == 7
    if form == "arrow":
        pytest.importorskip("pyarrow")
    assert_allclose(TableEncoder(**options).fit_transform(column(FORMS[form](dates))), plain)


def test_dates_in_parts_are_learned_alike():
    table = hours(tz=ZONE)
    parts = [table[:7_000], table[7_000:7_100], table[7_100:]]
    encoder = TableEncoder().fit_batches((part, None) for part in parts)
    assert encoder.calendars_[0].parts == ("hour", "dayofweek", "day", "dayofyear")
    assert_allclose(encoder.transform(table), TableEncoder().fit_transform(table), atol=1e-5)


def test_state_round_trip_and_foreign_states():
    table = hours(tz=ZONE)
    encoder = TableEncoder().fit(table)
    arrays, meta = encoder.to_state()
    again = TableEncoder.from_state(arrays, json.loads(json.dumps(meta)))
    assert (again.transform(table) == encoder.transform(table)).all()
    assert again.calendars_[0].zone == ZONE
    wrong = {**arrays, "calendars.0.offsets": arrays["calendars.0.offsets"][:-1]}
    with pytest.raises(ValueError, match="calendar"):
        TableEncoder.from_state(wrong, meta)
    with pytest.raises(ValueError, match="other columns"):
        TableEncoder.from_state(
            {n: a for n, a in arrays.items() if "calendar" not in n}, {**meta, "calendars": []}
        )


@pytest.mark.parametrize("wrong", [["hours"], ["number", 3]])
def test_unknown_parts_are_named(wrong):
    with pytest.raises(ValueError, match=r"'number'.*'hour'"):
        TableEncoder(date_features=wrong).fit(hours(10))


@pytest.mark.parametrize("numeric", ["standard", "quantile", "robust", "none"])
def test_trends_are_not_continued_outside_of_fit(numeric):
    table = column(pd.date_range("2021-01-01", periods=400, freq="D"))
    encoder = TableEncoder(numeric=numeric, date_features=["number"]).fit(table)
    ends = encoder.transform(table.iloc[[0, -1]])[:, 0]
    width = ends[1] - ends[0]
    outside = column(pd.to_datetime(["1950-01-01", "2150-01-01"]))
    with pytest.warns(UserWarning, match="'sold'"):
        later = encoder.transform(outside)[:, 0]
    assert_allclose(later, ends, atol=width / 20)


def test_only_clearly_later_rows_warn():
    table = column(pd.date_range("2021-01-01", periods=400, freq="D"))
    encoder = TableEncoder().fit(table)
    encoder.transform(table)
    encoder.transform(column(pd.to_datetime(["2022-02-05", "1950-01-01", None])))  # a day later
    later = column(pd.to_datetime(["2021-01-01", "2022-04-01"]))
    for transform in (encoder.transform, encoder.read):
        with pytest.warns(UserWarning, match=r"column 'sold' .* \(about 2022-02-0\d\)") as caught:
            transform(later)
        assert len(caught) == 1
    TableEncoder(date_features=["dayofweek"]).fit(table).transform(later)  # has no trend
    encoder.encode(later, fitted=True)


def test_a_short_trend_does_not_run_away():
    rng = np.random.default_rng(0)
    days = np.arange(540)
    table = column(pd.Timestamp("2022-03-01") + pd.to_timedelta(days, "D"))
    y = 1.5 * np.sin(2 * np.pi * days / 365) + rng.normal(0, 0.3, len(days))
    model = MLPRegressor(max_iter=30, n_iter_no_change=float("inf"), random_state=0)
    model.fit(table[:270], y[:270])
    with pytest.warns(UserWarning, match="'sold'"):
        later = model.predict(table[270:])
    assert later.min() > y[:270].min() - 0.5
    assert later.max() < y[:270].max() + 0.5
