"""The tables of the study on depth, as standardised tensors: digits and california_housing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_digits
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import Tensor

from benchmarks.papers.combu.sources import Source
from combutab.training import CrossEntropy, Loss

DATA = {"digits": "classification", "california_housing": "regression"}
N_ROWS = 5000  # of california_housing; digits has 1797


class MeanSquare(Loss):
    """The squared error of one output, not halved."""

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:  # (M, rows, 1), (M, rows) -> (M, rows)
        return (raw.squeeze(-1) - y).square()


@dataclass(frozen=True)
class Task:
    """Training and test rows: x (rows, features), y (rows,) of classes or of standardised values.

    ``n_outputs`` is the number of classes, or 1.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    n_outputs: int

    @property
    def is_classification(self) -> bool:
        return self.n_outputs > 1

    @property
    def loss(self) -> Loss:
        """Of a row: cross-entropy, or the squared error."""
        return CrossEntropy() if self.is_classification else MeanSquare()

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean losses of each member: (M, rows, n_outputs) and (M, rows) -> (M,)."""
        return self.loss.rows(outputs, y).mean(1)

    def scores(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Accuracy or R2 of each member: (M, rows, n_outputs) and (rows,) -> (M,)."""
        if self.is_classification:
            return (outputs.argmax(-1) == y).double().mean(1)
        residual = (outputs.squeeze(-1).double() - y).square().mean(1)
        return 1.0 - residual / y.double().var(correction=0)

    @property
    def trivial_score(self) -> float:
        """What a constant answer reaches on the training rows."""
        if not self.is_classification:
            return 0.0
        return float(self.y_train.bincount().max() / len(self.y_train))


def load_task(name: str, *, data_home: str | None = None, n_rows: int = N_ROWS) -> Task:
    """Split 4:1 and standardise by the training rows."""
    if name == "digits":
        X, target = load_digits(return_X_y=True, as_frame=True)
        X, target = X[:n_rows], target[:n_rows]
    else:
        source = Source("openml", name, DATA[name], limit=n_rows, data_home=data_home)
        X, target = source.load()
    classes = DATA[name] == "classification"
    y = np.asarray(target, dtype=np.int64 if classes else np.float64)
    stratify = y if classes else None
    parts = train_test_split(X, y, test_size=0.2, random_state=0, stratify=stratify)
    X_train, X_test, y_train, y_test = parts
    encoder = _encoder().fit(X_train)
    if not classes:
        mean, spread = y_train.mean(), y_train.std()
        y_train, y_test = (y_train - mean) / spread, (y_test - mean) / spread

    def tensor(values: np.ndarray) -> Tensor:
        return torch.as_tensor(values, dtype=None if classes else torch.float32)

    def encoded(rows: pd.DataFrame) -> Tensor:
        return torch.as_tensor(encoder.transform(rows), dtype=torch.float32)

    n_outputs = int(y.max()) + 1 if classes else 1
    return Task(name, encoded(X_train), tensor(y_train), encoded(X_test), tensor(y_test), n_outputs)


def _encoder():
    numeric = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    nominal = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_column_transformer(
        (numeric, make_column_selector(dtype_include="number")),
        (nominal, make_column_selector(dtype_exclude="number")),
        sparse_threshold=0.0,
    )
