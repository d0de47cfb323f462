"""The tables of the PLN studies: scikit-learn's digits, and OpenML's."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd
from sklearn.datasets import load_digits

from benchmarks.papers.combu.sources import Source

TASKS = {
    **dict.fromkeys(("digits", "diabetes", "wdbc", "PhishingWebsites"), "classification"),
    **dict.fromkeys(("boston", "autoMpg", "california_housing", "wine_quality"), "regression"),
}


@dataclass(frozen=True)
class Digits(Source):
    """scikit-learn's 8 x 8 images of digits, as a table."""

    def load(self) -> tuple[pd.DataFrame, pd.Series]:
        X, y = load_digits(return_X_y=True, as_frame=True)
        return X[: self.limit], y[: self.limit]


def source(name: str, n_rows: int, data_home: str | None) -> Source:
    """A data set of `TASKS`, at most ``n_rows`` of its rows."""
    kind = Digits if name == "digits" else Source
    return kind("openml", name, TASKS[name], limit=n_rows, data_home=data_home)


def data_arguments(names: Iterable[str]) -> Callable[[ArgumentParser], None]:
    """The options that choose among data sets, and where they come from."""

    def add(parser: ArgumentParser) -> None:
        parser.add_argument("--data", nargs="+", choices=list(names), default=list(names))
        parser.add_argument("--data-home", help="folder with the CSV files; else OpenML")

    return add
