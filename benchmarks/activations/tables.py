"""The tables of the studies, how their rows are split, and what is known of a table beforehand."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.papers.combu.sources import Source
from benchmarks.papers.pln.shared import TASKS
from benchmarks.quality.predictions import split_rows
from combutab.datasets import list_feynman

OPENML = (
    *("diabetes", "wdbc", "breast-w", "PhishingWebsites"),
    *("boston", "autoMpg", "california_housing", "wine_quality"),
)
FORMULAS = ("gs", "ar", "ns", "bs")
N_EQUATIONS = 30
N_SAMPLES = 5000  # of what is drawn from a formula
MOST_TRAIN, MOST_TEST = 400, 1000  # rows
# 4:1 splits. Tables of more rows than these give training sets that overlap less than the corrected
# tests take them to, so that the tests err on the side of finding too little.
N_TRAIN, N_TEST = 4, 1


@lru_cache
def equations(data_home: str | None) -> tuple[str, ...]:
    """Every fourth of the 120 Feynman equations in the order of their list, from the first."""
    names = list(list_feynman(data_home)["name"])
    return tuple(names[:: len(names) // N_EQUATIONS])


def source(kind: str, name: str, data_home: str | None) -> Source:
    """A table by its kind: "openml", "formula" or "feynman"."""
    task = TASKS.get(name, "classification") if kind == "openml" else "regression"
    return Source(kind, name, task, N_SAMPLES, data_home=data_home)


def rows_of(
    table: Source, split: int, most: int = MOST_TRAIN
) -> tuple[tuple[pd.DataFrame, pd.Series], tuple[pd.DataFrame, pd.Series]]:
    """Training and test rows, equal ones on one side."""
    X, y = table.load()
    train, test = split_rows(X, split, most)
    sides = (train, test[:MOST_TEST])
    return tuple((X.iloc[rows], y.iloc[rows]) for rows in sides)


def features(table: Source, split: int = 0) -> dict[str, float]:
    """What can be known of a table before a network is trained, from its training rows.

    The error of a linear model is that of five folds over that of a constant.
    """
    (X, y), _ = rows_of(table, split)
    numbers = X.select_dtypes("number")
    classify = table.task == "classification"
    scale = make_pipeline(SimpleImputer(), StandardScaler())
    onehot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    texts = make_column_selector(dtype_exclude="number")
    columns = make_column_transformer((onehot, texts), remainder=scale)
    if classify:
        codes = np.unique(np.asarray(y).astype(str), return_inverse=True)[1]
        linear = make_pipeline(columns, LogisticRegression(C=0.1, max_iter=1000))
        found = cross_val_predict(linear, X, codes, method="predict_proba")
        constant = np.tile(np.bincount(codes) / len(codes), (len(codes), 1))
        share = log_loss(codes, found) / log_loss(codes, constant)
        skewness = abs(float(np.mean(codes)) - 0.5)
    else:
        values = y.to_numpy(float)
        found = cross_val_predict(make_pipeline(columns, RidgeCV()), X, values)
        share = float(np.sqrt(np.mean((values - found) ** 2)) / np.std(values))
        skewness = abs(float(pd.Series(values).skew()))
    return {
        "log rows": float(np.log(len(X))),
        "log columns": float(np.log(X.shape[1])),
        "classification": float(classify),
        "share of categories": 1.0 - numbers.shape[1] / X.shape[1],
        "log error of a linear model": float(np.log(share)),
        "skewness of the target": float(np.log1p(skewness)),
        "skewness of numbers": float(
            np.log1p(numbers.skew().abs().mean() if len(numbers.T) else 0)
        ),
    }
