"""The learned target: encoding of y, predictions from raw outputs, and conformal scores."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_y, column_or_1d
from torch import Tensor, nn

from combutab.core.files import Field, check_fields, kind, number
from combutab.core.state import declare
from combutab.preprocessing import (
    ColumnKind,
    TargetError,
    as_pandas,
    infer_task,
    plain_labels,
    read_numbers,
    refuse_large,
)
from combutab.training import Rows


class Target(ABC):
    """The learned target: encodes y for the loss, and decodes raw outputs."""

    score_name: ClassVar[str]
    """Default score for early stopping: "accuracy" or "r2"."""
    held_out_name: ClassVar[str]
    """The attribute that has ``held_out`` where members set aside different rows."""
    fields: ClassVar[Mapping[str, Field]]
    """What a file may say of it: the dataclass's fields."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Output units, as scikit-learn counts them."""

    @property
    def n_raw_outputs(self) -> int:
        """Width of the network's last layer."""
        return self.n_outputs

    @property
    @abstractmethod
    def out_activation(self) -> str:
        """Name of the output activation, as scikit-learn has it."""

    def attributes(self) -> dict[str, Any]:
        """Attributes of a fitted estimator that describe its target."""
        return {"n_outputs_": self.n_outputs, "out_activation_": self.out_activation}

    @abstractmethod
    def encode(self, y: np.ndarray, precision: str, *, complete: bool = False) -> np.ndarray:
        """Encode checked targets for the loss: (n,) int64 or (n, n_targets) float.

        ``complete``: classifiers raise an error where a class is missing, as warm starts do.
        """

    @abstractmethod
    def encode_columns(self, y: pd.DataFrame, precision: str) -> np.ndarray:
        """``encode``, for columns of a file."""

    @abstractmethod
    def decode(self, target: np.ndarray) -> np.ndarray:
        """Invert ``encode``: targets as they were given."""

    def widened(self, y: np.ndarray) -> Self:
        """The target after more rows, with which training continues."""
        return self

    @abstractmethod
    def scorer(self, scoring: str, target: np.ndarray) -> Callable[..., float]:
        """The scorer of scikit-learn with this name of a metric, for rows of encoded targets."""

    @abstractmethod
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """Shift and scale of the raw outputs, for networks that are given in y's units."""

    def numbers(self) -> dict[str, np.ndarray]:
        """The arrays that ``answer`` takes, which an exported module has as buffers."""
        return {}

    @abstractmethod
    def raw_outputs(self, answer: np.ndarray) -> Tensor:
        """Raw outputs with these predictions as their answer, (n, n_raw_outputs) float64.

        Raises ValueError if predictions do not determine the raw outputs.
        """

    def constants(self) -> dict[str, Tensor]:
        """``numbers`` as tensors."""
        return {name: torch.from_numpy(values) for name, values in self.numbers().items()}

    @abstractmethod
    def answer(self, raw: Tensor, **numbers: Tensor) -> Tensor:
        """Raw outputs (n_networks, n, n_raw_outputs) -> probabilities or numbers, averaged."""

    @abstractmethod
    def predict(self, raw: Tensor) -> np.ndarray:
        """Raw outputs (n_networks, n, n_raw_outputs) -> predicted targets."""

    @abstractmethod
    def nonconformity(self, raw: Tensor, y: Tensor) -> Tensor:
        """Nonconformity scores, large if the prediction is far from y.

        Raw outputs (n_networks, n, n_raw_outputs), encoded targets (n, ...) -> (n, n_scores)
        """

    @abstractmethod
    def score_groups(self, y: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Columns of nonconformity scores and positions of rows that have a threshold together."""

    @abstractmethod
    def region(self, raw: Tensor, thresholds: Tensor, **numbers: Tensor) -> Tensor:
        """Interval or set of the targets whose nonconformity is at most a threshold.

        Raw outputs (n_networks, n, n_raw_outputs), (n_thresholds,) -> (n, ...)
        """

    def held_out(self, raw: Tensor) -> np.ndarray:
        """Predictions to store for rows that a network has not trained on."""
        return self.predict(raw)

    def to_state(self) -> dict[str, Any]:
        """The fields, for a file."""
        return {name: getattr(self, name) for name in self.fields}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Invert ``to_state``; raises ValueError if the fields do not belong together."""
        check_fields(state, cls.fields, "the target")
        target = cls(**state)
        target._check()
        return target

    @abstractmethod
    def _check(self) -> None:
        """Refuse fields that do not belong together."""


class TargetLearner(ABC):
    """Learns a target that comes in parts, as columns of a table."""

    kinds: ClassVar[tuple[ColumnKind, ...]]
    """What the columns may be."""
    single: ClassVar[bool]
    """Whether there can be one column only."""

    @abstractmethod
    def add(self, y: pd.DataFrame, weight: np.ndarray | None, trains: np.ndarray) -> None:
        """Take complete targets, (n, n_columns), their weights, and which rows train."""

    @abstractmethod
    def finish(self, names: list[str]) -> Target:
        """The target of these columns."""

    def weigh(self, target: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """Weights of rows of these encoded targets."""
        return weight


class Answer(nn.Module):
    """Predictions of a target from raw outputs, as a module of an exported network.

    Shape
    -----
    (n_networks, n, n_outputs) float64 -> (n, n_classes), (n,) or (n, n_targets)
    """

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        for name, values in target.numbers().items():
            self.register_buffer(name, torch.tensor(values))

    def forward(self, raw: Tensor) -> Tensor:
        return self.target.answer(raw, **dict(self.named_buffers()))

    def region(self, raw: Tensor, thresholds: Tensor) -> Tensor:
        """Conformal intervals or sets of labels."""
        return self.target.region(raw, thresholds, **dict(self.named_buffers()))


# ---- y as arrays ---------------------------------------------------------------------------------


def check_missing(y: np.ndarray) -> None:
    """Refuse missing targets, except for cells of rows and columns that have others."""
    if not y.ndim or y.dtype.kind not in "OTf":
        return
    missing = np.asarray(pd.isna(y))
    has_several = y.ndim == 2 and y.shape[1] > 1
    if has_several and missing.all(0).any():
        raise ValueError(
            f"Input y contains NaN only (missing values) in column {missing.all(0).argmax()}; "
            "leave this target out"
        )
    if (missing.all(1) if has_several else missing).any():
        raise ValueError(
            "Input y contains NaN (missing values); drop those rows first, such as by "
            "table.dropna(subset=[target])"
        )


def _without_missing(y: Any) -> tuple[Any, np.ndarray | None]:
    """Replace missing cells of several targets by 0 for checks; returns a mask of them, if any."""
    numbers = np.empty(0) if scipy.sparse.issparse(y) else np.asarray(y)
    if numbers.ndim != 2:
        return y, None
    missing = pd.isna(numbers) if numbers.dtype.kind in "Of" else np.zeros(1, dtype=bool)
    if not missing.any():
        return y, None
    try:
        return np.where(missing, 0.0, numbers).astype(np.float64), missing
    except (TypeError, ValueError):  # text, which later checks name
        return y, None


def checked_labels(y: Any, estimator: BaseEstimator) -> np.ndarray:
    """Labels as an array, (n,) or 0/1 (n, n_labels); raises ValueError if they cannot be that.

    Missing cells of several labels are NaN.
    """
    y, missing = _without_missing(y)
    y = _check_y(y, multi_output=True, estimator=estimator)
    if hasattr(y, "toarray"):
        y = y.toarray()
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    y = plain_labels(y)
    check_classification_targets(y)
    if type_of_target(y) == "multiclass-multioutput":
        raise ValueError(
            "Multioutput target data is not supported: y has several columns of more than two "
            "values. Fit one classifier a column (sklearn.multioutput.MultiOutputClassifier)."
        )
    labels: np.ndarray = y
    _warn_of_numbers(labels, type(estimator).__name__)
    return labels if missing is None else np.where(missing, np.nan, labels)


_MAX_CLASSES = 20  # beyond them, amounts as text are numbers rather than classes


def _warn_of_numbers(labels: np.ndarray, name: str) -> None:
    """Warn of labels that are amounts, or nearly all different texts, rather than classes."""
    if labels.ndim != 1 or labels.dtype.kind not in "OUT":
        return
    n_classes = len(pd.unique(pd.Series(labels)))
    if n_classes <= min(_MAX_CLASSES, len(labels) / 2):
        return
    try:
        infer_task(labels)
    except TargetError as error:
        if n_classes <= len(labels) / 2 and error.fault not in ("form", "decimal comma"):
            return
        warnings.warn(
            f"{name} takes each of {n_classes:,} different texts for a class, but y "
            f"{error.problem}; convert them to numbers and use a regressor if they are numbers",
            stacklevel=2,
        )


# Beyond these, products with losses and penalties leave float32, in which networks train.
_SMALLEST_WEIGHT, _LARGEST_WEIGHT = 1e-18, 1e18


def check_weights(weights: np.ndarray, what: str, first_row: int | None = None) -> None:
    """Refuse weights with which training could not compute, and weights that leave no row.

    The error names the row where ``first_row`` is the row of a table that they start at.
    """
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        row_number = int(wrong.argmax())
        row = "" if first_row is None else f" in row {first_row + row_number} (counted from 0)"
        raise ValueError(f"{what} must be at least 0 and finite, got {weights[row_number]}{row}")
    odd = (weights > 0) & ((weights < _SMALLEST_WEIGHT) | (weights > _LARGEST_WEIGHT))
    if odd.any():
        raise ValueError(
            f"{what} must be 0, or between {_SMALLEST_WEIGHT:g} and {_LARGEST_WEIGHT:g}, got "
            f"{weights[odd][0]:g}; divide the weights by their mean, and set those that count for "
            "nothing to 0"
        )


def checked_numbers(y: Any, name: str, estimator: BaseEstimator) -> np.ndarray:
    """Targets as float64, (n,) or (n, n_targets); missing cells of several targets are NaN.

    Raises ValueError if they are not numbers, or different ones are equal as float64.
    """
    refuse_text(y, name)
    y, missing = _without_missing(y)
    with np.errstate(over="ignore", invalid="ignore"):  # sums of huge numbers
        original, y = y, _check_y(y, multi_output=True, y_numeric=True, estimator=estimator)
    if hasattr(y, "toarray"):
        original = y = y.toarray()
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    numbers = target_numbers(original)
    if missing is not None:
        numbers[missing] = np.nan
    return numbers[:, 0] if y.ndim == 1 else numbers


_EXACT = 1 << 53  # integers up to here are float64's own


def refuse_text(y: Any, name: str) -> None:
    """Raise an error if the targets of a regressor are not numbers."""
    if scipy.sparse.issparse(y):
        return
    y = as_pandas(y, name)
    if not isinstance(y, pd.DataFrame):
        values = np.asarray(y)
        if not values.size:
            return
        y = pd.DataFrame(values.reshape(len(values), -1))
    for j in range(y.shape[1]):
        if y.iloc[:, j].dtype.kind in "cmM":  # later checks refuse these
            continue
        try:
            read_numbers(y.iloc[:, j])
        except TargetError as error:
            it = f"column {y.columns[j]!r}" if y.shape[1] > 1 else "it"
            raise ValueError(
                f"{name} must hold numbers, but {it} {error.problem}; convert these values ('3,1' "
                "to 3.1, '3.1%' to 0.031) or drop their rows, or use MLPClassifier if they are "
                "classes"
            ) from None


def target_numbers(y: Any, where: str = "") -> np.ndarray:
    """Targets as float64, (n, n_targets); ``where`` is added to the error about infinity.

    Raises ValueError if different targets are equal as float64, or their squares overflow.
    """
    y = as_pandas(y, "y")
    if isinstance(y, pd.DataFrame):  # of columns that have each its own dtype
        columns = [y.iloc[:, j].to_numpy() for j in range(y.shape[1])]
    else:
        values = np.asarray(y)
        columns = [*values.reshape(len(values), -1).T]
    return np.column_stack([_column_numbers(column, where) for column in columns])


def _column_numbers(column: np.ndarray, where: str) -> np.ndarray:
    if column.dtype.kind in "mM":
        raise ValueError(
            f"y holds {column.dtype}, not numbers; subtract a date and divide by a unit, such as "
            "np.timedelta64(1, 'D')"
        )
    numbers = column.astype(np.float64)
    size = np.abs(numbers).max(initial=0.0)
    if np.isinf(size):
        raise ValueError(
            "Input y contains infinity or a value too large for dtype('float64')"
            f"{where and f' in {where}'}."
        )
    refuse_large(float(size), "y")
    kind = column.dtype.kind
    is_integer = kind in "iu" or (kind == "O" and all(isinstance(v, Integral) for v in column))
    if is_integer and size >= _EXACT:
        different = len(set(column.tolist()))
        if len(np.unique(numbers)) < different:
            raise ValueError(
                f"y has {different} different integers up to {size:.3g}, some of which are "
                f"equal as float64 (exact to 2**53); subtract {min(column.tolist())} first"
            )
    return numbers


# ---- Conformal prediction ------------------------------------------------------------------------
# Rows that networks were not trained on have nonconformity scores: large ones if the prediction was
# far from the target. A quantile of the scores is the largest score that a value in the interval,
# or a label in the set, may have (Vovk et al., "Algorithmic learning in a random world", 2005).

_MAX_LEVELS = 1000
_DIGITS = 3  # so that a file does not have the exact residual of a row


@dataclass(frozen=True, eq=False)
class ConformalScores:
    """Distribution of the nonconformity scores of rows that networks were not trained on.

    ``n_rows`` is their number, or the effective number if they have weights. A share (i + 1) / m of
    the rows has scores of at most ``levels[i]``, for m levels.
    """

    n_rows: float
    levels: np.ndarray  # (m,) increasing

    @classmethod
    def of(cls, scores: np.ndarray, weight: np.ndarray | None) -> Self:
        """Compute from the scores of rows, (n,), and their weights."""
        if weight is None:
            weight = np.ones(len(scores))
        scores, weight = scores[weight > 0], weight[weight > 0]
        order = np.argsort(scores)
        shares = np.cumsum(weight[order]) / weight.sum()
        m = min(len(scores), _MAX_LEVELS)
        index = np.searchsorted(shares, np.arange(1, m + 1) / m - 1e-9)
        n_rows = float(weight.sum() ** 2 / np.square(weight).sum()) if m else 0.0
        return cls(n_rows, _round_up(scores[order][np.minimum(index, len(scores) - 1)]))

    def threshold(self, coverage: float, rows: str) -> float:
        """The score that a new row exceeds with a probability of at most 1 - ``coverage``.

        Raises ValueError if there are too few rows, which the error calls ``rows``.
        """
        share = coverage * (1 + 1 / self.n_rows) if self.n_rows else math.inf
        if share > 1 + 1e-9:
            raise ValueError(
                f"coverage={coverage} needs at least {math.ceil(coverage / (1 - coverage) - 1e-9)} "
                f"{rows} that fit set aside, it set {self.n_rows:.0f} aside; lower coverage, or "
                "fit with more rows or bagging='cv'"
            )
        return float(self.levels[math.ceil(min(share, 1.0) * len(self.levels) - 1e-6) - 1])

    def _check(self) -> None:
        levels = self.levels
        if levels.ndim != 1 or levels.dtype.kind != "f" or len(levels) > _MAX_LEVELS:
            raise ValueError(f"conformal scores must have a list of at most {_MAX_LEVELS} levels")
        if np.isnan(levels).any() or (levels[1:] < levels[:-1]).any() or (levels < 0).any():
            raise ValueError("levels of conformal scores must be at least 0, and increase")
        if (self.n_rows > 0) != (len(levels) > 0):
            raise ValueError(f"conformal scores of {self.n_rows} rows have {len(levels)} levels")


declare(ConformalScores, {"n_rows": number(), "levels": kind(np.ndarray)}, ConformalScores._check)


def _round_up(scores: np.ndarray) -> np.ndarray:
    """Round numbers of at least 0 up to a few significant digits; 0 and infinity are unchanged."""
    is_rounded = np.isfinite(scores) & (scores > 1e-290)
    values = scores[is_rounded]
    exponent = np.floor(np.log10(values)) - (_DIGITS - 1)
    power = 10.0 ** np.abs(exponent)  # division and multiplication by it have short decimals
    rounded = scores.copy()
    with np.errstate(over="ignore"):  # in the value that is not taken
        rounded[is_rounded] = np.where(
            exponent < 0,
            np.ceil(values * power - 1e-9) / power,
            np.ceil(values / power - 1e-9) * power,
        )
    return rounded


def learn_scores(
    target: Target, outputs: Sequence[tuple[Tensor, Tensor]], rows: Rows
) -> list[ConformalScores]:
    """Compute the scores of rows from raw outputs of networks that were not trained on them.

    Parameters
    ----------
    target : Target
    outputs : sequence of (positions, raw)
        Positions of rows, (n,), and the raw outputs of their networks, (n_networks, n, n_outputs).
    rows : Rows
        All encoded rows, with targets and weights.

    Returns
    -------
    list of ConformalScores
        As ``Target.score_groups`` says.
    """
    index = torch.cat([positions for positions, _ in outputs])
    parts = [target.nonconformity(raw, rows.y[positions]) for positions, raw in outputs]
    scores = np.nan_to_num(torch.cat(parts).numpy(), nan=np.inf, posinf=np.inf)
    weight = None if rows.weight is None else rows.weight[index].double().numpy()
    return [
        ConformalScores.of(scores[group, column], None if weight is None else weight[group])
        for column, group in target.score_groups(rows.y[index].numpy())
    ]


def check_scores(target: Target, scores: Sequence[ConformalScores]) -> None:
    """Refuse scores of a file if they do not belong to the target."""
    expected = len(target.score_groups(np.zeros(0)))
    if len(scores) not in (0, expected):
        raise ValueError(f"there are {len(scores)} conformal scores, the target has {expected}")


def thresholds(
    estimator: Any, coverage: float, names: Sequence[str], scores: Sequence[ConformalScores]
) -> Tensor:
    """Thresholds of scores for a coverage; ``names`` say in errors which rows each is from.

    Raises ValueError if the coverage is invalid or there are too few rows.
    """
    if isinstance(coverage, bool) or not isinstance(coverage, Real) or not 0 < coverage < 1:
        raise ValueError(f"coverage must be a number between 0 and 1, got {coverage!r}")
    if not scores:
        raise ValueError(
            f"this {type(estimator).__name__} has no rows that fit set aside, which intervals and "
            "sets of labels are computed from; fit it with early_stopping=True, bagging='cv' or "
            "X_val (a pack with at least 50 rows), without warm_start or partial_fit"
        )
    return torch.tensor(
        [s.threshold(float(coverage), name) for s, name in zip(scores, names, strict=True)],
        dtype=torch.float64,
    )
