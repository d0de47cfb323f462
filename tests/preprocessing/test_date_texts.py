"""Dates as text: their format is found, read and written again."""

import datetime

import pandas as pd
import pytest

from combutab.core.dates import find_date_format, read_dates, write_dates

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
