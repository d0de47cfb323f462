"""Dates on their way from SDV's tables to a generator, and back."""

from __future__ import annotations

from typing import Any

import pandas as pd
from pandas.api.types import is_datetime64_any_dtype
from rdt.transformers import BaseTransformer


class DateTransformer(BaseTransformer):
    """Dates as dates, which the model reads itself: their resolution, bounds and missing values.

    ``datetime_format`` is that of dates held as text or numbers, None leaves the reading to pandas;
    ``enforce_min_max_values`` is not used: the model has bounds of its own.
    """

    INPUT_SDTYPE = "datetime"

    def __init__(
        self, datetime_format: str | None = None, enforce_min_max_values: bool = True
    ) -> None:
        super().__init__()
        self.datetime_format = datetime_format
        self.enforce_min_max_values = enforce_min_max_values

    def _fit(self, data: pd.Series) -> None:
        zones = {value.tzinfo for value in self._parse(data.dropna().head(1))}
        self._zone = next(iter(zones), None)

    def _parse(self, data: pd.Series, **options: Any) -> pd.Series:
        text = self.datetime_format
        return pd.to_datetime(
            data, format=text and text.replace("%-", "%").replace("%#", "%"), **options
        )

    def _transform(self, data: pd.Series) -> pd.Series:
        if is_datetime64_any_dtype(data):
            return data
        if self._zone is None:
            return self._parse(data)
        return self._parse(data, utc=True).dt.tz_convert(self._zone)

    def _reverse_transform(self, data: pd.Series) -> pd.Series:
        return data  # SDV gives it the form it had
