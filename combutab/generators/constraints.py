"""Constraints: rules that every row of a table meets, such as ``start < end``."""

from __future__ import annotations

import json
import math
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property, partial, reduce
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.core.dates import is_now
from combutab.core.files import parse_json, whole_file
from combutab.core.state import add_kind, pack, unpack
from combutab.core.text import known_instead, list_names, no_column, one_line
from combutab.generators._cells import Coder, is_binary
from combutab.generators._relations import Columns, DifferenceRelation, PartialRows, Relation
from combutab.generators.expressions import (
    Expression,
    add,
    as_floats,
    as_operand,
    equal_numbers,
    exact_operand,
    is_exact,
    is_number,
    subtract,
)
from combutab.preprocessing import Table

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LAST_BITS = 2**20


def find_column(name: Any, columns: Iterable[Any]) -> Any:
    """The column of a name; text also matches names and positions that are not text.

    Raises ValueError if it does not exist; the error has the nearest names.
    """
    listed = list(columns)
    by_text = {str(column): column for column in listed}
    if isinstance(name, Hashable) and not isinstance(name, float | bool):
        if name in listed:
            return listed[listed.index(name)]
        if isinstance(name, str) and name in by_text:
            return by_text[name]
    raise ValueError(no_column(name, listed))


class Constraint(ABC):
    """Base class of the constraints on the rows of a table.

    Constraints with the same parameters are equal. Missing cells violate no constraint except
    `OneOf`. Files need the class in `CONSTRAINTS`.
    """

    compares_rows: ClassVar[bool] = False  # whether it concerns several rows together
    combines_codes: ClassVar[bool] = False  # whether rows have combinations of the fitted table
    computes_column: ClassVar[bool] = False  # whether one column always follows from others
    sets_one: ClassVar[bool] = False  # whether `propagate` changes its columns

    @abstractmethod
    def find_columns(self, names: Iterable[Any]) -> tuple[Any, ...]:
        """Find its columns among the names of a table; raises ValueError if one is missing."""

    @abstractmethod
    def holds(self, columns: Columns, decimals: int | None = None) -> np.ndarray:
        """Find the rows that meet it, (n,) bool; see `equal_numbers` for ``decimals``."""

    def sides(self, names: Iterable[Any]) -> tuple[Any, Any] | None:
        """The lower and the higher column of an inequality of two columns; None for the others."""
        return None

    def relations(self, names: Sequence[Any], difference: Any = None) -> list[Relation]:
        """How its columns follow from one another; the first relation that is possible is used.

        ``difference`` is the name of the learned difference of its `sides`, if there is one.
        """
        return []

    def propagate(self, rows: PartialRows) -> None:  # noqa: B027 (most constraints do nothing)
        """Set cells that follow from fixed cells of rows, before `relations` are computed."""

    def contradicts(
        self,
        names: Iterable[Any],
        values: Columns,
        ranges: Mapping[Any, tuple[Any, Any]],
    ) -> bool:
        """Whether no row can have these values, one per column, and lie in these ranges."""
        columns = self.find_columns(names)
        if any(name not in values for name in columns):
            return False
        return not self.holds({name: values[name] for name in columns})[0]

    def check_coders(self, coders: Mapping[Any, Coder]) -> None:
        """Raise ValueError if it does not apply to the kind of a column."""
        for name, coder in coders.items():
            if coder.is_identifier:
                raise ValueError(
                    f"{self!r} is about {name!r}, which holds identifiers that get new values; "
                    "leave the constraint out, or list the identifier columns explicitly"
                )

    def check(self, X: Any) -> np.ndarray:
        """Find the rows of a table that meet the constraint.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)

        Returns
        -------
        ndarray of shape (n_rows,), bool

        Raises
        ------
        ValueError
            If X lacks a column, or the constraint does not apply to the kind of a column.
        """
        columns = Table(X).columns_by_name()
        self.find_columns(columns)
        return self.holds(columns)

    def parameters(self) -> dict[str, Any]:
        """The parameters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def arguments(self) -> list[Any]:
        """The parameters in order."""
        return list(self.parameters().values())

    def to_dict(self) -> dict[str, Any]:
        """Return the constraint as a dict for JSON, such as ``{"Unique": ["id"]}``."""
        return {type(self).__name__: {n: _packed(v) for n, v in self.parameters().items()}}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.arguments()))})"


def _packed(value: Any) -> Any:
    """A parameter for JSON and YAML; columns are a list, and constants keep their types."""
    return [pack(part) for part in value] if isinstance(value, tuple) else pack(value)


def _check_names(what: str, names: Iterable[Any], n_min: int) -> tuple[Any, ...]:
    listed = [names] if isinstance(names, str) or not isinstance(names, Iterable) else list(names)
    listed = [name.item() if isinstance(name, np.generic) else name for name in listed]
    is_hashable = all(isinstance(name, Hashable) for name in listed)
    if len(listed) < n_min or not is_hashable or len(set(listed)) < len(listed):
        raise ValueError(
            f"{what} takes {n_min} or more different columns, got {', '.join(map(repr, listed))}"
        )
    return tuple(listed)


@dataclass(frozen=True, init=False, repr=False)
class _OfColumns(Constraint):
    """A constraint whose only parameters are names of columns."""

    columns: tuple[Any, ...]
    _min_columns: ClassVar[int] = 2

    def __init__(self, *columns: Any) -> None:
        if len(columns) == 1 and isinstance(columns[0], list):
            columns = tuple(columns[0])
        object.__setattr__(
            self, "columns", _check_names(type(self).__name__, columns, self._min_columns)
        )

    def find_columns(self, names: Iterable[Any]) -> tuple[Any, ...]:
        """See `Constraint`."""
        names = list(names)
        return tuple(find_column(name, names) for name in self.columns)

    def arguments(self) -> list[Any]:
        """See `Constraint`."""
        return list(self.columns)

    def to_dict(self) -> dict[str, Any]:
        """See `Constraint`."""
        return {type(self).__name__: _packed(self.columns)}

    def _find(self, columns: Columns) -> list[pd.Series]:
        return [columns[name] for name in self.find_columns(columns)]


@dataclass(frozen=True, repr=False)
class Inequality(Constraint):
    """A column is less or greater than another column or a constant.

    Rows with a missing cell meet it.

    Parameters
    ----------
    left : name of a column, or its position in an array
        Column of numbers, dates or durations.
    operator : {"<", "<=", ">", ">="}
    right : name or position of a column, number, date or duration
        A column, or else a constant. Text can be a date (``"2024-01-31"``) or a duration
        (``"2 days"``).

    Raises
    ------
    ValueError
        If the operator is unknown, or both columns are the same.

    Examples
    --------
    >>> table = pd.DataFrame({"start": [1, 2, 3], "end": [2, 2, None]})
    >>> Inequality("start", "<", "end").check(table).tolist()
    [True, False, True]
    """

    left: Any
    operator: str
    right: Any

    def __post_init__(self) -> None:
        if self.operator not in _OPERATORS:
            raise ValueError(
                f"operator must be one of {', '.join(map(repr, _OPERATORS))}, got {self.operator!r}"
            )
        object.__setattr__(self, "right", _read_constant(self.right))
        if isinstance(self.right, str | int) and self.left == self.right:
            raise ValueError(f"{self!r} compares a column with itself; use another column")

    @property
    def strict(self) -> bool:
        """Whether equal values violate it."""
        return "=" not in self.operator

    def find_columns(self, names: Iterable[Any]) -> tuple[Any, ...]:
        """See `Constraint`; one column if the right side is a constant."""
        names = list(names)
        column = find_column(self.left, names)
        try:
            return column, find_column(self.right, names)
        except ValueError:
            if isinstance(self.right, str) and _read_text(self.right) is None:
                raise
            return (column,)

    def sides(self, names: Iterable[Any]) -> tuple[Any, Any] | None:
        """See `Constraint`."""
        columns = self.find_columns(names)
        if len(columns) == 1:
            return None
        first, second = columns
        return (first, second) if self.operator[0] == "<" else (second, first)

    def relations(self, names: Sequence[Any], difference: Any = None) -> list[Relation]:
        """See `Constraint`."""
        sides = None if difference is None else self.sides(names)
        if sides is None:
            return []
        low, high = sides
        return [
            DifferenceRelation(high, (low, difference), (low,), 1),
            DifferenceRelation(low, (high, difference), (high,), -1),
        ]

    def contradicts(
        self,
        names: Iterable[Any],
        values: Columns,
        ranges: Mapping[Any, tuple[Any, Any]],
    ) -> bool:
        """See `Constraint`."""
        if super().contradicts(names, values, ranges):
            return True
        sides = self.sides(names)
        if sides is None or any(side not in ranges for side in sides):
            return False
        low, high = ranges[sides[0]][0], ranges[sides[1]][1]
        if low is None or high is None:
            return False
        return bool(low >= high if self.strict else low > high)

    def holds(self, columns: Columns, decimals: int | None = None) -> np.ndarray:
        """See `Constraint`."""
        names = self.find_columns(columns)
        values = _as_comparable(columns[names[0]])
        bound: Any = self.right
        if len(names) == 2:
            bound = _as_comparable(columns[names[1]])
            values, bound = _same_numbers(values, bound), _same_numbers(bound, values)
        else:
            bound = _constant(bound, values)
            values = _same_numbers(values, bound)
        is_missing = values.isna() | (bound.isna() if isinstance(bound, pd.Series) else False)
        try:
            if (
                types.is_bool_dtype(values.dtype)
                or types.infer_dtype(values, skipna=True) == "string"
            ):
                raise TypeError
            if is_missing.any():  # objects that are missing cannot be compared
                present_rows = np.flatnonzero(~is_missing)
                values = values.iloc[present_rows].infer_objects()
                bound = bound.iloc[present_rows] if isinstance(bound, pd.Series) else bound
            met = _OPERATORS[self.operator](values, bound)
        except TypeError:
            kinds = " and ".join(f"{name!r} is {columns[name].dtype}" for name in names)
            raise ValueError(
                f"{self!r} compares numbers, dates or durations with their like, but {kinds}; "
                "convert with astype, or leave the constraint out"
            ) from None
        result = np.ones(len(is_missing), dtype=bool)
        result[~is_missing] = met.to_numpy(dtype=bool)
        return result


def _read_text(text: Any) -> Any:
    """Read text as a date or a duration; None for other text."""
    if is_now(text):
        return None
    for kind in (pd.Timestamp, pd.Timedelta):
        try:
            return kind(text)
        except (ValueError, TypeError):
            continue
    return None


def _read_constant(value: Any) -> Any:
    """The right side of an inequality in a type that files hold, by value.

    Dates become Timestamps, durations Timedeltas, and numbers those of Python. Text stays as it is.
    """
    if isinstance(value, np.datetime64 | date):
        value = pd.Timestamp(value)
        if value is not pd.NaT and value.tz is not None:
            value = value.tz_convert("UTC")  # a file need not know the zone
    elif isinstance(value, np.timedelta64 | timedelta):
        value = pd.Timedelta(value)
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Real) and not isinstance(value, bool | int | float):
        value = float(value)
    is_constant = isinstance(value, str | bool | int | float | Decimal | date | timedelta)
    if (
        not is_constant
        or pd.isna(value)
        or (isinstance(value, float | Decimal) and not math.isfinite(value))
    ):
        raise ValueError(
            f"right must be a column, or a constant: a number, date or duration, got {value!r}"
        )
    return value


def _constant(value: Any, column: pd.Series) -> Any:
    """A constant as a column of numbers, dates or durations is compared with it."""
    if isinstance(value, int | float | Decimal):
        if _has_decimals(column):
            return Decimal(repr(value)) if isinstance(value, float) else value
        return float(value) if isinstance(value, Decimal) else value
    if types.is_timedelta64_dtype(column.dtype) and isinstance(value, str | timedelta):
        return pd.Timedelta(value)
    if types.is_datetime64_any_dtype(column.dtype):
        moment = pd.Timestamp(value)
        zone = getattr(getattr(column.dtype, "pyarrow_dtype", column.dtype), "tz", None)
        return moment.tz_localize(zone) if zone is not None and moment.tz is None else moment
    return value


def _as_comparable(column: pd.Series) -> pd.Series:
    """Convert categories and objects to a dtype whose values can be compared."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    column = column.infer_objects().reset_index(drop=True)
    if column.dtype == object and types.infer_dtype(column, skipna=True) in ("date", "datetime"):
        try:
            return pd.to_datetime(column)
        except (ValueError, TypeError, OverflowError):  # of several zones, or beyond 2262
            return column
    return column


def _has_decimals(column: Any) -> bool:
    return (
        isinstance(column, pd.Series)
        and column.dtype == object
        and any(isinstance(value, Decimal) for value in column)
    )


def _same_numbers(column: pd.Series, operand: Any) -> pd.Series:
    """A column as numbers that are compared exactly with another column or a constant.

    Decimals are compared with floats as floats. Large integers would be rounded as floats.
    """
    if _has_decimals(column) and not (isinstance(operand, int | Decimal) or _has_decimals(operand)):
        return as_operand(column)
    is_whole = types.is_integer_dtype(column.dtype)
    is_float = isinstance(operand, float) or types.is_float_dtype(getattr(operand, "dtype", object))
    if is_whole and is_float and (column.dropna().astype("float64").abs() >= 2**53).any():
        return column.astype(object)
    return column


class Computed(Constraint):
    """A constraint by which one column follows from others."""

    computes_column = True

    @abstractmethod
    def find_target(self, names: Iterable[Any]) -> Any:
        """The column that follows."""

    @abstractmethod
    def compute(self, columns: Columns) -> Any:
        """Compute the column, (n,)."""

    @abstractmethod
    def rounding_scale(self, columns: Columns) -> Any:
        """The size of the numbers whose rounding it may have, by row; 0 where it is exact."""

    @abstractmethod
    def solve(self, name: Any, columns: Columns) -> Any:
        """Compute another column, (n,), from the others; None if that is not possible."""

    def relations(self, names: Sequence[Any], difference: Any = None) -> list[Relation]:
        """See `Constraint`; if the target is computed otherwise, the last source is, and so on."""
        target, *sources = self.find_columns(names)
        relations: list[Relation] = [
            ComputedRelation(target, tuple(sources), tuple(sources), self, target)
        ]
        for source in reversed(sources):
            remaining = tuple(name for name in (target, *sources) if name != source)
            relations.append(ComputedRelation(source, remaining, (target,), self, target))
        return relations

    def holds(self, columns: Columns, decimals: int | None = None) -> np.ndarray:
        """See `Constraint`."""
        target, *sources = self.find_columns(columns)
        values, expected = exact_operand(columns[target]), self.compute(columns)
        missing = values.isna().to_numpy(dtype=bool)
        for name in sources:
            missing = missing | columns[name].isna().to_numpy(dtype=bool)
        if not isinstance(expected, pd.Series):
            expected = pd.Series([expected] * len(values), dtype=object).infer_objects()
        if is_number(values) and is_number(expected):
            dtype, scale = columns[target].dtype, self.rounding_scale(columns)
            equal = equal_numbers(values, expected, dtype, decimals, scale)
        else:
            try:
                equal = (values == expected).fillna(False).to_numpy(dtype=bool)
            except TypeError:
                equal = np.zeros(len(values), dtype=bool)
        return equal | missing


@dataclass(frozen=True)
class ComputedRelation(Relation):
    """A column of a computed constraint follows from the others."""

    constraint: Computed
    computed: Any  # the column that the constraint computes

    def compute(self, columns: Columns) -> Any:
        """See `Relation`."""
        if self.target == self.computed:
            return self.constraint.compute(columns)
        return self.constraint.solve(self.target, columns)

    def solve(self, source: Any, columns: Columns) -> Any:
        """See `Relation`."""
        if self.target == self.computed:
            return self.constraint.solve(source, columns)
        return self.constraint.compute(columns)


@dataclass(frozen=True, repr=False)
class Sum(Computed):
    """A column is the sum of other columns, rounded to the decimals of the column.

    Rows with a missing cell meet it.

    Parameters
    ----------
    columns : sequence of names, or positions in an array
    total : name or position

    Raises
    ------
    ValueError
        If there are fewer than two columns, a column is repeated, or the total is one of them.

    Examples
    --------
    >>> table = pd.DataFrame({"net": [10.0, 20.0], "tax": [1.9, 3.8], "total": [11.9, 24.0]})
    >>> Sum(["net", "tax"], "total").check(table).tolist()
    [True, False]
    """

    columns: tuple[Any, ...]
    total: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", _check_names("Sum", self.columns, 2))
        if self.total in self.columns:
            raise ValueError(f"the total {self.total!r} is one of the columns that are summed")

    def __repr__(self) -> str:
        return f"Sum({list(self.columns)!r}, {self.total!r})"

    def find_columns(self, names: Iterable[Any]) -> tuple[Any, ...]:
        """See `Constraint`; the total is the first."""
        names = list(names)
        return tuple(find_column(name, names) for name in (self.total, *self.columns))

    def find_target(self, names: Iterable[Any]) -> Any:
        """See `Computed`."""
        return find_column(self.total, names)

    def compute(self, columns: Columns) -> Any:
        """See `Computed`."""
        return self._add(self.find_columns(columns)[1:], columns)

    def solve(self, name: Any, columns: Columns) -> Any:
        """See `Computed`."""
        total, *parts = self.find_columns(columns)
        remaining = [part for part in parts if part != name]
        return subtract(exact_operand(columns[total]), self._add(remaining, columns))

    def rounding_scale(self, columns: Columns) -> Any:
        """See `Computed`."""
        parts = [exact_operand(columns[name]) for name in self.find_columns(columns)[1:]]
        exact = np.all([is_exact(part) for part in parts], axis=0)
        return np.where(exact, 0.0, np.sum([np.abs(as_floats(part)) for part in parts], axis=0))

    def _add(self, names: Sequence[Any], columns: Columns) -> Any:
        parts = [exact_operand(columns[name]) for name in names]
        for name, part in zip(names, parts, strict=True):
            if not (is_number(part) or types.is_timedelta64_dtype(part.dtype)):
                raise ValueError(
                    f"{self!r} adds up numbers or durations, but {name!r} is {columns[name].dtype}"
                )
        try:
            return reduce(add, parts)
        except OverflowError as error:
            raise ValueError(f"{self!r} has sums beyond what {parts[0].dtype} holds") from error


@dataclass(frozen=True, repr=False)
class Formula(Computed):
    """A column is computed from other columns by a formula, rounded to the decimals of the column.

    Rows with a missing cell meet it.

    Parameters
    ----------
    column : name, or position in an array
    expression : str
        Formula of other columns, such as ``"price * months"``, with arithmetic, comparisons,
        ``and``, ``or`` and ``not``. Names that are not identifiers stand in backticks. The result
        can be a number, a boolean, a date (``"start + length"``) or a duration;
        ``"(end - start) / '1 day'"`` is a number.

    Raises
    ------
    ValueError
        If the expression is not valid, has no column, or contains the column itself.

    Examples
    --------
    >>> table = pd.DataFrame({"price": [9.99, 5.0], "months": [3, 2], "total": [29.97, 12.0]})
    >>> Formula("total", "price * months").check(table).tolist()
    [True, False]
    """

    column: Any
    expression: str

    def __post_init__(self) -> None:
        names = self._parsed.names
        if not names or str(self.column) in names:
            raise ValueError(f"{self!r} must have an expression of other columns")

    @cached_property
    def _parsed(self) -> Expression:
        return Expression(self.expression)

    def find_columns(self, names: Iterable[Any]) -> tuple[Any, ...]:
        """See `Constraint`; the computed column is the first."""
        names = list(names)
        return tuple(find_column(name, names) for name in (self.column, *self._parsed.names))

    def find_target(self, names: Iterable[Any]) -> Any:
        """See `Computed`."""
        return find_column(self.column, names)

    def compute(self, columns: Columns) -> Any:
        """See `Computed`."""
        return self._parsed.evaluate(_by_text(self._parsed, columns))

    def rounding_scale(self, columns: Columns) -> Any:
        """See `Computed`."""
        return self._parsed.rounding_scale(_by_text(self._parsed, columns))

    def solve(self, name: Any, columns: Columns) -> Any:
        """See `Computed`."""
        target = columns[self.find_target(columns)]
        return self._parsed.solve(str(name), target, _by_text(self._parsed, columns))


def _by_text(expression: Expression, columns: Columns) -> dict[str, pd.Series]:
    return {name: columns[find_column(name, columns)] for name in expression.names}


class FixedCombinations(_OfColumns):
    """Columns have only combinations of values that occur in the fitted table.

    For example, each city has its own country. Combinations of fewer rows than the generator's
    ``min_frequency`` are not sampled. The columns must be discrete; missing counts as a value.
    `check` returns True for all rows of a table, because it has only its own combinations.

    Parameters
    ----------
    *columns : names, or positions in an array
        Two or more columns, also as one list.

    Examples
    --------
    >>> FixedCombinations("city", "country")
    FixedCombinations('city', 'country')
    """

    combines_codes = True

    def check_coders(self, coders: Mapping[Any, Coder]) -> None:
        """See `Constraint`."""
        super().check_coders(coders)
        for name, coder in coders.items():
            if coder.is_continuous:
                raise ValueError(
                    f"{self!r} needs discrete columns, but {name!r} is continuous; "
                    "list it in discrete_columns, or leave the constraint out"
                )

    def holds(self, columns: Columns, decimals: int | None = None) -> np.ndarray:
        """See `Constraint`."""
        return np.ones(len(self._find(columns)[0]), dtype=bool)


class Coordinates(_OfColumns):
    """Two columns of numbers are the coordinates of places that the fitted table has.

    For example, latitude and longitude of points on land. The places are boxes around at least 20
    neighbouring rows of the fitted table (or ``min_frequency``, if that is more), with a margin.
    Sampled points outside of all boxes are drawn again. Rows with a missing coordinate meet the
    constraint, and so do rows with given coordinates (``sample_from``, ``impute``). `check` returns
    True for all rows of a table, because it has only its own places.

    Parameters
    ----------
    *columns : names, or positions in an array
        The two columns, also as one list.

    Raises
    ------
    ValueError
        If there are not exactly two columns.

    Examples
    --------
    >>> Coordinates("lat", "lon")
    Coordinates('lat', 'lon')
    """

    def __init__(self, *columns: Any) -> None:
        super().__init__(*columns)
        if len(self.columns) != 2:
            raise ValueError(f"{self!r} must have two columns, such as latitude and longitude")

    def check_coders(self, coders: Mapping[Any, Coder]) -> None:
        """See `Constraint`; a constant column has no places, and is allowed."""
        super().check_coders(coders)
        for name, coder in coders.items():
            is_varying = coder.is_continuous or coder.size > 1
            if is_varying and not (coder.is_continuous and is_number(coder.examples)):
                raise ValueError(
                    f"{self!r} needs columns of numbers, but {name!r} holds "
                    f"{coder.examples.dtype}; convert it, or leave the constraint out"
                )

    def holds(self, columns: Columns, decimals: int | None = None) -> np.ndarray:
        """See `Constraint`."""
        return np.ones(len(self._find(columns)[0]), dtype=bool)


class Unique(_OfColumns):
    """No two rows have the same combination of values in these columns.

    Rows with a missing cell meet it. Identifier columns are unique without this constraint. Rows
    are unique within one call of ``sample``, ``impute`` or ``fit_resample``.

    Parameters
    ----------
    *columns : names, or positions in an array
        One or more columns, also as one list.

    Examples
    --------
    >>> table = pd.DataFrame({"room": [1, 1, 1], "day": ["Mon", "Tue", "Mon"]})
    >>> Unique("room", "day").check(table).tolist()
    [True, True, False]
    """

    compares_rows = True
    _min_columns = 1

    def check_coders(self, coders: Mapping[Any, Coder]) -> None:
        """See `Constraint`; identifiers are unique, too."""

    def holds(self, columns: Columns, decimals: int | None = None) -> np.ndarray:
        """See `Constraint`; the first of several equal rows meets it."""
        labels, is_compared = self.labels(columns)
        return np.asarray(~pd.Series(labels).duplicated().to_numpy() | ~is_compared)

    def labels(self, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
        """A 64-bit hash of each row's values, and whether none of them is missing; (n,) each."""
        cells = self._find(columns)
        is_compared = np.all([column.notna().to_numpy(dtype=bool) for column in cells], axis=0)
        frame = pd.DataFrame({i: hash_values(column) for i, column in enumerate(cells)})
        return pd.util.hash_pandas_object(frame, index=False).to_numpy(), is_compared


def hash_values(column: pd.Series) -> np.ndarray:
    """A 64-bit hash of each value, (n,), independent of the dtype and of the other values.

    Equal numbers, and equal moments of any unit or time zone, have the same hash.

    >>> numbers = [pd.Series([1, -0.0]), pd.Series([True, Decimal("0.00")], dtype=object)]
    >>> bool((hash_values(numbers[0]) == hash_values(numbers[1])).all())
    True
    """
    dtype: Any = column.dtype
    column = column.reset_index(drop=True)
    if isinstance(dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        return np.append(hash_values(dtype.categories.to_series()), np.uint64(0))[codes]
    if isinstance(dtype, pd.SparseDtype):
        return hash_values(column.astype(dtype.subtype))
    if types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        if getattr(dtype, "tz", None) is not None:
            column = column.dt.tz_convert("UTC").dt.tz_localize(None)
        return _hash_numbers_of(*_days_and_nanoseconds(column.to_numpy()))
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return _hash_numbers(column)
    hashes = np.zeros(len(column), dtype=np.uint64)
    values = column.astype(object)
    if types.infer_dtype(values, skipna=True) == "string":
        kinds = np.where(values.isna(), "missing", "text")
    else:
        kinds = np.array([_kind_of_value(value) for value in values], dtype=object)
    for kind in set(kinds) - {"missing"}:
        rows = np.flatnonzero(kinds == kind)
        part = values.iloc[rows].reset_index(drop=True)
        if kind == "number":
            hashes[rows] = _hash_numbers(part)
        elif kind == "text":
            hashes[rows] = pd.util.hash_array(np.array(list(map(str, part)), dtype=object))
        else:
            read: Any = pd.Timestamp if kind == "moment" else pd.Timedelta
            pairs = [_days_and_nanoseconds(read(value).asm8) for value in part]
            hashes[rows] = _hash_numbers_of(*np.array(pairs).T)
    return hashes


def _kind_of_value(value: Any) -> str:
    if types.is_scalar(value) and pd.isna(value):
        return "missing"
    if isinstance(value, date | np.datetime64):
        return "moment"
    if isinstance(value, timedelta | np.timedelta64):
        return "duration"
    return "number" if isinstance(value, Real | Decimal | np.bool_) else "text"


def _hash_numbers_of(*numbers: np.ndarray) -> np.ndarray:
    """Hash several numbers of each row together; 0.0 and -0.0 are equal."""
    frame = pd.DataFrame({i: x.astype(np.float64) + 0.0 for i, x in enumerate(numbers)})
    return pd.util.hash_pandas_object(frame, index=False).to_numpy()


def _days_and_nanoseconds(ticks: Any) -> tuple[Any, Any]:
    """Split dates or durations of any unit, whose number of nanoseconds may be too large."""
    days = ticks.astype(f"{ticks.dtype.kind}8[D]")
    return days.astype(np.int64), (ticks - days).astype("m8[ns]").astype(np.int64)


def _hash_numbers(column: pd.Series) -> np.ndarray:
    """Hash numbers by their float64, and by what integers have beyond its precision."""
    if types.is_integer_dtype(column.dtype):
        wide: Any = np.uint64 if types.is_unsigned_integer_dtype(column.dtype) else np.int64
        last_bits = column.to_numpy(dtype=wide, na_value=0) % _LAST_BITS
    elif types.is_object_dtype(column.dtype):
        last_bits = np.array([_last_bits(value) for value in column])
    else:
        floats = column.to_numpy(dtype=np.float64, na_value=np.nan)
        with np.errstate(invalid="ignore"):
            last_bits = floats % _LAST_BITS
    return _hash_numbers_of(column.to_numpy(dtype=np.float64, na_value=np.nan), last_bits)


def _last_bits(value: Any) -> float:
    """A number modulo 2^20, in which integers differ that are equal as float64."""
    if not math.isfinite(value):
        return math.nan
    return float((int(value) if value == int(value) else float(value)) % _LAST_BITS)


class OneOf(_OfColumns):
    """Exactly one of several columns is set, which means not missing, 0 or False.

    Use it for one-hot columns, and for alternatives that exclude each other, such as "hourly_rate"
    and "fixed_price".

    Parameters
    ----------
    *columns : names, or positions in an array
        Two or more columns, also as one list.

    Examples
    --------
    >>> table = pd.DataFrame({"is_red": [1, 0, 1], "is_blue": [0, 0, 1]})
    >>> OneOf("is_red", "is_blue").check(table).tolist()
    [True, False, False]
    """

    sets_one = True

    def holds(self, columns: Columns, decimals: int | None = None) -> np.ndarray:
        """See `Constraint`."""
        cells = self._find(columns)
        return np.asarray(np.sum([is_set_in(column) for column in cells], axis=0) == 1)

    def propagate(self, rows: PartialRows) -> None:
        """See `Constraint`; rows without a fixed set cell get one by their ``picks``."""
        names = self.find_columns(rows.columns)
        fixed = np.stack([rows.fixed[name] for name in names])
        is_set = np.stack([is_set_in(rows.columns[name]) for name in names])
        n_fixed_set = (fixed & is_set).sum(axis=0)
        free = ~fixed
        decided = free.sum(axis=0) == 1
        if rows.picks is not None:
            decided |= is_set.sum(axis=0) != 1
        candidates = np.where((free & is_set).any(axis=0), free & is_set, free)
        pick = (0 if rows.picks is None else rows.picks) % np.maximum(candidates.sum(axis=0), 1)
        picked = candidates & (np.cumsum(candidates, axis=0) - 1 == pick)
        none_fixed = (n_fixed_set == 0) & decided
        for k, name in enumerate(names):
            unset = free[k] & is_set[k] & ((n_fixed_set == 1) | (none_fixed & ~picked[k]))
            if not rows.clear(name, unset):
                rows.write(name, unset, 0)
            if is_binary(rows.coders[name]):
                rows.write(name, free[k] & ~is_set[k] & none_fixed & picked[k], 1)


def is_set_in(column: pd.Series) -> np.ndarray:
    """Where a cell is neither missing, nor 0, nor False, (n,) bool."""
    column = as_operand(column)
    present = column.notna().to_numpy(dtype=bool)
    if types.is_numeric_dtype(column.dtype) or types.is_bool_dtype(column.dtype):
        return np.asarray(present & column.ne(0).fillna(False).to_numpy(dtype=bool))
    return present


@dataclass(frozen=True, repr=False)
class Null(Constraint):
    """A column is missing in all rows that meet a condition on other columns.

    It can be missing in other rows, too.

    Parameters
    ----------
    column : name, or position in an array
    when : str
        Boolean expression of other columns, such as ``"status == 'open'"``, as in `Formula`.

    Raises
    ------
    ValueError
        If the expression is not valid, or contains the column itself.

    Examples
    --------
    >>> table = pd.DataFrame({"status": ["open", "open", "done"], "end": [None, "May", "June"]})
    >>> Null("end", when="status == 'open'").check(table).tolist()
    [True, False, True]
    """

    column: Any
    when: str

    def __post_init__(self) -> None:
        names = self._parsed.names
        if not names or str(self.column) in names:
            raise ValueError(f"{self!r} must have a condition on other columns")

    @cached_property
    def _parsed(self) -> Expression:
        return Expression(self.when)

    def __repr__(self) -> str:
        return f"Null({self.column!r}, when={self.when!r})"

    def find_columns(self, names: Iterable[Any]) -> tuple[Any, ...]:
        """See `Constraint`; the column that is missing is the first."""
        names = list(names)
        return tuple(find_column(name, names) for name in (self.column, *self._parsed.names))

    def relations(self, names: Sequence[Any], difference: Any = None) -> list[Relation]:
        """See `Constraint`."""
        column, *sources = self.find_columns(names)
        return [MissingRelation(column, tuple(sources), (), self)]

    def applies(self, columns: Columns) -> np.ndarray:
        """Find the rows in which the column must be missing, (n,) bool."""
        n = len(next(iter(columns.values())))
        return self._parsed.truth(_by_text(self._parsed, columns), n)

    def holds(self, columns: Columns, decimals: int | None = None) -> np.ndarray:
        """See `Constraint`."""
        absent = columns[find_column(self.column, columns)].isna().to_numpy(dtype=bool)
        return absent | ~self.applies(columns)


@dataclass(frozen=True)
class MissingRelation(Relation):
    """A column is missing in rows that meet the condition of a constraint."""

    constraint: Null
    computes = False

    def rows(self, columns: Columns) -> np.ndarray:
        """See `Relation`."""
        return self.constraint.applies(columns)

    def compute(self, columns: Columns) -> Any:
        """See `Relation`."""
        return None

    def solve(self, source: Any, columns: Columns) -> Any:
        """See `Relation`."""
        return None

    def complete(self, rows: PartialRows) -> None:
        """See `Relation`."""
        rows.clear(self.target, self.rows(rows.columns) & ~rows.fixed[self.target])


# ---- Tables that break constraints ---------------------------------------------------------------


def refuse_broken(
    constraints: Sequence[Constraint],
    names: Sequence[Any],
    parts: Iterable[Columns],
    what: str,
    *,
    partial: bool = False,
) -> None:
    """Raise an error that names the rows of a table that break a constraint.

    ``names`` are the columns of the table, and ``parts`` its consecutive rows. Cells of ``partial``
    rows that are missing, and those of columns that they lack, can have any value.
    """
    columns_of = [constraint.find_columns(names) for constraint in constraints]
    broken: list[list[np.ndarray]] = [[] for _ in constraints]
    labels: list[list[np.ndarray]] = [[] for _ in constraints]
    n = 0
    for columns in parts:
        size = len(next(iter(columns.values())))
        for i, constraint in enumerate(constraints):
            used = columns_of[i]
            rows = np.arange(size)
            if partial:
                if any(name not in columns for name in used):
                    continue
                rows = np.flatnonzero(np.all([columns[name].notna() for name in used], axis=0))
            part = {name: columns[name].iloc[rows].reset_index(drop=True) for name in used}
            if isinstance(constraint, Unique):
                part_labels, is_compared = constraint.labels(part)
                broken[i].append(rows[is_compared] + n)
                labels[i].append(part_labels[is_compared])
            else:
                broken[i].append(rows[~constraint.holds(part)] + n)
        n += size
    for constraint, row_parts, label_parts in zip(constraints, broken, labels, strict=True):
        rows = np.concatenate([*row_parts, np.empty(0, dtype=int)])
        if label_parts:
            rows = rows[pd.Series(np.concatenate(label_parts)).duplicated()]
        if len(rows):
            raise ValueError(
                f"{len(rows):,} of {n:,} rows of {what} break {constraint!r}: data rows "
                f"{list_names(rows + 1, write=str)}; correct or drop them, or leave the "
                "constraint out"
            )


# ---- Constraints in files ------------------------------------------------------------------------

CONSTRAINTS: dict[str, type[Constraint]] = {
    cls.__name__: cls
    for cls in (
        *(Inequality, Sum, Formula, FixedCombinations, Coordinates),
        *(Unique, OneOf, Null),
    )
}


def _make(cls: Any, arguments: Any) -> Constraint:
    if isinstance(arguments, dict):
        return cls(**arguments)
    return cls(*arguments) if isinstance(arguments, list | tuple) else cls(arguments)


for _cls in CONSTRAINTS.values():
    add_kind(_cls, _cls.__name__, lambda constraint: constraint.arguments(), partial(_make, _cls))


def constraints_from_dicts(listed: Any) -> list[Constraint]:
    """Make constraints from a file's list: ``[{"Inequality": ["start", "<", "end"]}, ...]``.

    Each is an object of one key, the name of the class, whose value has the parameters, in order or
    by name.

    Raises
    ------
    ValueError
        If it is no such list, or a constraint has other parameters; the error says which.
    """
    if isinstance(listed, dict) and listed.keys() == {"constraints"}:
        listed = listed["constraints"]
    if not isinstance(listed, list):
        raise ValueError(
            'constraints are a list such as [{"Inequality": ["start", "<", "end"]}], got '
            f"{type(listed).__name__}"
        )
    constraints = []
    for i, entry in enumerate(listed):
        if not isinstance(entry, dict) or len(entry) != 1:
            raise ValueError(
                f"constraint {i + 1} must have one key, the name of its kind, got {entry!r:.200}"
            )
        ((name, arguments),) = entry.items()
        name = "Null" if name is None else name  # YAML's null
        if name not in CONSTRAINTS:
            raise ValueError(
                f"constraint {i + 1}: there is no {name!r}; {known_instead(name, CONSTRAINTS)}"
            )
        try:
            constraints.append(_make(CONSTRAINTS[name], unpack(arguments)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"constraint {i + 1} ({name}): {one_line(error)}") from error
    return constraints


def read_constraints(path: str | os.PathLike[str]) -> list[Constraint]:
    """Read constraints from a JSON or YAML file.

    Parameters
    ----------
    path : path
        A file with the ending ``.json``, ``.yaml`` or ``.yml``.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ImportError
        If it is a YAML file and PyYAML is not installed.
    ValueError
        If the file has another ending, or does not contain constraints.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_constraints([Unique("id"), Inequality("start", "<", "end")], f"{folder}/r.json")
    ...     read_constraints(f"{folder}/r.json")
    [Unique('id'), Inequality('start', '<', 'end')]
    """
    path = Path(path)
    is_yaml = _is_yaml(path)
    text = path.read_text(encoding="utf-8-sig")
    try:
        if not is_yaml:
            return constraints_from_dicts(parse_json(text))
        yaml = _yaml()
        try:
            read = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"it is no YAML: {one_line(error)}") from error
        return constraints_from_dicts(read)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write_constraints(constraints: Iterable[Constraint], path: str | os.PathLike[str]) -> None:
    """Write constraints to a JSON or YAML file, which `read_constraints` reads.

    Parameters
    ----------
    constraints : iterable of Inequality, Sum, ...
        The constraints.
    path : path
        A file with the ending ``.json``, ``.yaml`` or ``.yml``.

    Raises
    ------
    ImportError
        If it is a YAML file and PyYAML is not installed.
    OSError
        If the file cannot be written.
    ValueError
        If the file has another ending.
    """
    listed = [constraint.to_dict() for constraint in constraints]
    if _is_yaml(Path(path)):
        text = _yaml().safe_dump(listed, sort_keys=False, allow_unicode=True)
    else:
        text = json.dumps(listed, indent=2, ensure_ascii=False) + "\n"
    with whole_file(path) as file:
        file.write_text(text, encoding="utf-8")


def _is_yaml(path: Path) -> bool:
    ending = path.suffix.lower()
    if ending not in (".json", ".yaml", ".yml"):
        raise ValueError(
            f"a file of constraints ends in .json, .yaml or .yml, got {str(path)!r}; rename it"
        )
    return ending != ".json"


def _yaml() -> Any:
    try:
        import yaml
    except ImportError as error:
        raise ImportError(
            "YAML files need PyYAML: pip install pyyaml, or write the constraints as JSON"
        ) from error
    return yaml
