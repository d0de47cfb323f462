"""Expressions over the columns of a table, such as ``price * months``: read, computed, solved.

They are parsed by Python's grammar and computed here node by node: nothing is called, and no
attribute is looked up, so that a stranger's expression cannot do anything but compute.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.core.dates import is_now

_FORMS = (
    "names of columns (in backticks if they are not identifiers), numbers, text in quotes, "
    "arithmetic, comparisons, in (...), is None, and, or, not"
)
_MAX_LENGTH = 10_000  # characters; longer expressions may be nested deeper than Python's stack
_MAX_DEPTH = 100
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
# text in quotes, which is left as it is, or a name in backticks
_QUOTED = re.compile(r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|`([^`]+)`""")
_EXACT = 2**53  # float64 holds all integers below
_MAX_POWER = 64  # exponent of integers that are computed exactly
_MAX_DECIMALS = 12
_FLOAT_ERROR = 1e-9  # relative, of numbers of any number of decimals
Value = Any  # a Series, or one number, text, boolean or None


@dataclass(frozen=True)
class Expression:
    """A parsed expression.

    Parameters
    ----------
    text : str

    Attributes
    ----------
    names : tuple of str
        The columns that it names, each once.

    Raises
    ------
    ValueError
        If it is not valid, or has other parts than numbers, text, names, arithmetic, comparisons,
        ``in``, ``is None``, ``and``, ``or``, ``not``.

    Examples
    --------
    >>> expression = Expression("price * months + `set-up fee`")
    >>> expression.names
    ('price', 'months', 'set-up fee')
    >>> row = {"price": pd.Series([5]), "months": pd.Series([3]), "set-up fee": pd.Series([1])}
    >>> expression.evaluate(row).tolist()
    [16.0]
    >>> total = pd.Series([31])
    >>> expression.solve("months", total, row).tolist()
    [6.0]
    """

    text: str
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _tree: ast.expr = field(init=False, repr=False, compare=False)
    _quoted: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.strip():
            raise ValueError(f"an expression is text such as 'price * months', got {self.text!r}")
        if len(self.text) > _MAX_LENGTH:
            raise ValueError(f"an expression has {_MAX_LENGTH:,} characters at most")
        quoted: dict[str, str] = {}

        def stand_in(match: re.Match[str]) -> str:
            name = f"_column_{len(quoted)}_"
            quoted[name] = match[1]
            return name

        try:
            source = _QUOTED.sub(lambda m: m[0] if m[1] is None else stand_in(m), self.text.strip())
            with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
                tree = ast.parse(source, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            said = error.msg if isinstance(error, SyntaxError) else error
            raise ValueError(
                f"{self.text!r} is not a valid expression ({said}); it may have {_FORMS}"
            ) from None
        object.__setattr__(self, "_tree", tree)
        object.__setattr__(self, "_quoted", quoted)
        names: dict[str, None] = {}
        self._check(tree, names, source, 0)
        object.__setattr__(self, "names", tuple(names))

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text}

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, "text", state["text"])
        self.__post_init__()

    def _check(self, node: ast.AST, names: dict[str, None], source: str, depth: int) -> None:
        """Refuse all nodes that `_value` does not compute, and collect the names."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"the expression is nested more than {_MAX_DEPTH} deep")
        match node:
            case ast.Name(id=name):
                names[self._quoted.get(name, name)] = None
                return
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return
            case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
                parts = [node.left, node.right]
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not()):
                parts = [node.operand]
            case ast.BoolOp():
                parts = node.values
            case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
                parts = [node.left]
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[other]) if _constants(
                other
            ):
                parts = [node.left]
            case ast.Compare(ops=ops) if all(type(op) in _COMPARISONS for op in ops):
                parts = [node.left, *node.comparators]
            case _:
                what = repr(ast.get_source_segment(source, node))
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    what = f"the function {node.func.id}()"
                raise ValueError(f"{what} is not supported; an expression may have {_FORMS}")
        for part in parts:
            self._check(part, names, source, depth + 1)

    def evaluate(self, columns: Mapping[str, pd.Series]) -> Value:
        """Compute it of columns of equal index; where one is missing, so is the result.

        Comparisons with a missing value are false, except ``is None``.

        Raises
        ------
        ValueError
            If columns of such kinds have no such result (text times a date, say).
        """
        try:
            return self._value(self._tree, columns)
        except (TypeError, ArithmeticError) as error:
            kinds = ", ".join(f"{n!r} is {columns[n].dtype}" for n in self.names)
            raise ValueError(f"{self.text!r} cannot be computed: {kinds} ({error})") from error

    def truth(self, columns: Mapping[str, pd.Series], n: int) -> np.ndarray:
        """Find the rows where it is true, (n,) bool; raises ValueError if it is not boolean."""
        return _truth(self.evaluate(columns), n)

    def solve(self, name: str, value: pd.Series, columns: Mapping[str, pd.Series]) -> Value:
        """Compute a column from the value of the expression and the other columns.

        Returns None if that is not possible, because the column occurs twice or within a power.
        """
        node, result = self._tree, exact_operand(value)
        if sum(isinstance(n, ast.Name) and self._is(n, name) for n in ast.walk(node)) != 1:
            return None
        try:
            while not isinstance(node, ast.Name):
                match node:
                    case ast.UnaryOp(op=ast.USub(), operand=inner):
                        node, result = inner, -result
                    case ast.UnaryOp(op=ast.UAdd(), operand=inner):
                        node = inner
                    case ast.BinOp(left=left, op=op, right=right):
                        within = any(
                            isinstance(n, ast.Name) and self._is(n, name) for n in ast.walk(left)
                        )
                        operand = self._value(right if within else left, columns)
                        match op:
                            case ast.Add():
                                result = _compute(ast.Sub(), result, operand)
                            case ast.Sub() if within:
                                result = _compute(ast.Add(), result, operand)
                            case ast.Mult():
                                result = _compute(ast.Div(), result, operand)
                            case ast.Div() if within:
                                result = _compute(ast.Mult(), result, operand)
                            case ast.Sub() | ast.Div():
                                result = _compute(op, operand, result)
                            case _:
                                return None
                        node = left if within else right
                    case _:
                        return None
        except (TypeError, ArithmeticError):
            return None
        return result

    def rounding_scale(self, columns: Mapping[str, pd.Series]) -> Any:
        """How large the numbers are whose rounding as float64 the result may have, by row.

        It is 0 where the result is exact, as that of integers is.
        """
        with np.errstate(all="ignore"):
            return self._scale(self._tree, columns)

    def _scale(self, node: ast.expr, columns: Mapping[str, pd.Series]) -> Any:
        value = self._value(node, columns)
        if not is_number(value):
            return 0.0
        size, scale, exact = np.abs(as_floats(value)), 0.0, is_exact(value)
        if isinstance(node, ast.UnaryOp):
            return self._scale(node.operand, columns)
        if isinstance(node, ast.BinOp):
            left_scale, right_scale = (
                self._scale(side, columns) for side in (node.left, node.right)
            )
            values = [self._value(side, columns) for side in (node.left, node.right)]
            sizes = [np.abs(as_floats(side)) if is_number(side) else 0.0 for side in values]
            exact = exact & (left_scale == 0) & (right_scale == 0)
            match node.op:
                case ast.Mult():
                    scale = left_scale * sizes[1] + sizes[0] * right_scale
                case ast.Div() if is_number(values[1]):
                    scale = (left_scale + size * right_scale) / sizes[1]
                case _:
                    scale = left_scale + right_scale
        return np.where(exact, 0.0, np.fmax(size, scale))

    def _is(self, node: ast.Name, name: str) -> bool:
        return self._quoted.get(node.id, node.id) == name

    def _value(self, node: ast.expr, columns: Mapping[str, pd.Series]) -> Value:
        match node:
            case ast.Name(id=name):
                return exact_operand(columns[self._quoted.get(name, name)])
            case ast.Constant(value=value):
                return float(value) if type(value) is int and abs(value) < _EXACT else value
            case ast.BinOp(left=left, op=op, right=right):
                return _compute(op, self._value(left, columns), self._value(right, columns))
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return ~pd.Series(_truth(self._value(inner, columns), _length(columns)))
            case ast.UnaryOp(op=op, operand=inner):
                operand = self._value(inner, columns)
                return -operand if isinstance(op, ast.USub) else operand
            case ast.BoolOp(op=op, values=values):
                n = _length(columns)
                truths = [_truth(self._value(part, columns), n) for part in values]
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return pd.Series(np.asarray(join.reduce(truths)))
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as op]):
                column = self._value(left, columns)
                met = np.broadcast_to(pd.isna(column), _length(columns))
                return pd.Series(met if isinstance(op, ast.Is) else ~met)
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[listed]):
                column = self._value(left, columns)
                is_listed = pd.Series(column).isin(ast.literal_eval(listed)).to_numpy()
                met = (is_listed if isinstance(op, ast.In) else ~is_listed) & ~pd.isna(column)
                return pd.Series(met)
            case ast.Compare(left=left, ops=compared, comparators=operands):
                sides = [self._value(part, columns) for part in (left, *operands)]
                if any(map(is_now, sides)) and any(map(_is_date, sides)):
                    raise TypeError("'now' and 'today' are not dates")
                n = _length(columns)
                met = np.ones(n, dtype=bool)
                for first, sign, second in zip(sides, compared, sides[1:], strict=False):
                    met &= _truth(_COMPARISONS[type(sign)](first, second), n)
                    met &= ~np.broadcast_to(pd.isna(first) | pd.isna(second), n)
                return pd.Series(met)
        raise AssertionError(ast.dump(node))


def _compute(op: ast.operator, first: Value, second: Value) -> Value:
    """Arithmetic with booleans as 0 and 1, and with text as a duration if the partner is a date."""
    sides = []
    for side, partner in ((first, second), (second, first)):
        if isinstance(side, pd.Series) and types.is_bool_dtype(side.dtype):
            side = _plain_floats(side)
        elif isinstance(side, str) and isinstance(partner, pd.Series):
            kind = getattr(partner.dtype, "kind", "O")
            side = pd.Timedelta(side) if kind in "mM" else side
        sides.append(side)
    if all(is_number(side) for side in sides):
        return _compute_numbers(op, *sides)
    return _ARITHMETIC[type(op)](*sides)


def add(first: pd.Series, second: pd.Series) -> pd.Series:
    """Add columns of numbers or durations; integers exactly.

    >>> add(pd.Series([2**53, 2**70], dtype=object), pd.Series([1.0, 1.0])).tolist()
    [9007199254740993, 1180591620717411303425]
    """
    return _compute(ast.Add(), first, second)


def subtract(first: pd.Series, second: pd.Series) -> pd.Series:
    """Subtract columns as `add` adds them."""
    return _compute(ast.Sub(), first, second)


def _compute_numbers(op: ast.operator, first: Value, second: Value) -> Value:
    """Arithmetic of numbers as float64, or as Python's integers where these would be rounded."""
    floats = [as_floats(side) for side in (first, second)]
    operation = _ARITHMETIC[type(op)]
    result = operation(*(pd.Series(x) if np.ndim(x) else x for x in floats))
    numbers = as_floats(result)
    with np.errstate(invalid="ignore"):
        large = np.max(np.abs(np.stack(np.broadcast_arrays(*floats, numbers))), axis=0) >= _EXACT
    rows = np.flatnonzero(large)
    if not np.ndim(numbers) or not len(rows):
        return result
    exact = pd.Series(result).astype(object)
    for row in rows.tolist():
        parts = [
            _as_integer(s.iloc[row] if isinstance(s, pd.Series) else s) for s in (first, second)
        ]
        value = _compute_integers(op, *parts)
        exact.iloc[row] = exact.iloc[row] if value is None else value
    return exact


def _as_integer(number: Any) -> int | None:
    """A number as Python's integer, None for one with a fraction, or that was rounded."""
    if isinstance(number, Integral):
        return int(number)
    return int(number) if abs(number) <= _EXACT and number == int(number) else None


def _compute_integers(op: ast.operator, first: int | None, second: int | None) -> int | None:
    """Exact arithmetic of integers; None if the result is not an integer, or is very long."""
    if first is None or second is None:
        return None
    match op:
        case ast.Add() | ast.Sub() | ast.Mult():
            return int(_ARITHMETIC[type(op)](first, second))
        case ast.FloorDiv() | ast.Mod() if second:
            return int(_ARITHMETIC[type(op)](first, second))
        case ast.Div() if second and first % second == 0:
            return first // second
        case ast.Pow() if 0 <= second <= _MAX_POWER and abs(first) < 2**_MAX_POWER:
            return int(first**second)
    return None


def is_number(value: Value) -> bool:
    """Whether a value or all values of a column are numbers, and no booleans."""
    if isinstance(value, pd.Series):
        if types.is_object_dtype(value.dtype):
            kinds = ("integer", "floating", "mixed-integer-float")
            return types.infer_dtype(value, skipna=True) in kinds
        return types.is_numeric_dtype(value.dtype) and not types.is_bool_dtype(value.dtype)
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_floats(value: Value) -> Any:
    """A number or a column of numbers as float64."""
    if isinstance(value, pd.Series):
        return value.to_numpy(dtype=np.float64, na_value=np.nan)
    return float(value)


def is_exact(value: Value) -> Any:
    """Whether a number is an integer that is not rounded; (n,) bool of a column."""
    if not isinstance(value, pd.Series):
        return _as_integer(value) is not None
    floats = as_floats(value)
    exact = (np.abs(floats) <= _EXACT) & (floats == np.rint(floats))
    if types.is_object_dtype(value.dtype):
        exact |= np.array([isinstance(number, Integral) for number in value], dtype=bool)
    return exact


def _constants(node: ast.expr) -> bool:
    """Tell whether it is a list of numbers and texts."""
    if not isinstance(node, ast.Tuple | ast.List | ast.Set):
        return False
    try:
        values = ast.literal_eval(node)
    except ValueError:
        return False
    return all(isinstance(value, bool | int | float | str) for value in values)


def _length(columns: Mapping[str, pd.Series]) -> int:
    return len(next(iter(columns.values()))) if columns else 1


def _truth(value: Value, n: int) -> np.ndarray:
    """Booleans, (n,); a missing one is not met."""
    if isinstance(value, pd.Series):
        if not (types.is_bool_dtype(value.dtype) or value.isin([True, False]).all()):
            raise ValueError(
                f"a condition must be met or not, such as \"status == 'open'\", got {value.dtype}"
            )
        return value.fillna(False).to_numpy(dtype=bool)
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"a condition must be met or not, such as 'age > 30', got {value!r}")
    return np.full(n, bool(value))


def as_operand(column: pd.Series) -> pd.Series:
    """A column as it is computed with: numbers as float64, categories as their values.

    >>> as_operand(pd.Series([200, 100], dtype="uint8")).sum()
    np.float64(300.0)
    """
    dtype: Any = column.dtype
    column = column.reset_index(drop=True)
    if isinstance(dtype, pd.SparseDtype):
        column = column.astype(dtype.subtype)
        dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        column = column.astype(object).infer_objects()
        dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        inferred = types.infer_dtype(column, skipna=True)
        if inferred in ("integer", "floating", "mixed-integer-float", "decimal"):
            return column.astype("float64")
        return column.astype("boolean") if inferred == "boolean" else column
    if types.is_bool_dtype(dtype):
        return column
    if types.is_numeric_dtype(dtype):
        return column.astype("float64") if isinstance(dtype, np.dtype) else _plain_floats(column)
    return column


def exact_operand(column: pd.Series) -> pd.Series:
    """The same, but integers that float64 would round as those of Python.

    >>> exact_operand(pd.Series([7, 2**53 + 1])).tolist()
    [7.0, 9007199254740993]
    """
    operand = as_operand(column)
    if not is_number(operand) or types.is_float_dtype(column.dtype):
        return operand
    rows = np.flatnonzero(np.abs(as_floats(operand)) >= _EXACT)
    values = column.iloc[rows].astype(object)
    if not len(rows) or types.infer_dtype(values) != "integer":
        return operand
    exact = operand.astype(object)
    exact.iloc[rows] = [int(value) for value in values]
    return exact


def _is_date(side: Value) -> bool:
    return isinstance(side, pd.Series) and types.is_datetime64_any_dtype(side.dtype)


def _plain_floats(column: pd.Series) -> pd.Series:
    return pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan), name=column.name)


def equal_numbers(
    numbers: pd.Series,
    expected: pd.Series,
    dtype: Any,
    decimals: int | None = None,
    scale: Any = 0.0,
) -> np.ndarray:
    """Find the rows where numbers equal expected ones up to rounding; (n,) each.

    ``decimals`` is the number of decimals that the numbers are rounded to; by default as many as
    they have. ``dtype`` is the dtype of their column. ``scale`` is the size of the numbers that the
    expected ones were computed from, by row. Integers are compared exactly.

    >>> equal_numbers(pd.Series([0.3, 33.3]), pd.Series([0.1 + 0.2, 100 / 3]), float).tolist()
    [True, True]
    """
    x, y = as_floats(numbers), as_floats(expected)
    if decimals is None:
        decimals = count_decimals(x, dtype)
    scale = np.where(is_exact(numbers), scale, np.fmax(scale, np.fmax(np.abs(x), np.abs(y))))
    error = max(_FLOAT_ERROR, 16 * _float_eps(dtype)) * scale
    if decimals is not None:
        error = (0.5 + 1e-6) * 10.0**-decimals + 16 * _float_eps(dtype) * scale
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(as_floats(subtract(numbers, expected))) <= error)


def _float_eps(dtype: Any) -> float:
    kind = getattr(dtype, "numpy_dtype", dtype)
    is_float = isinstance(kind, np.dtype) and kind.kind == "f"
    return float(np.finfo(kind if is_float else np.float64).eps)


def count_decimals(x: np.ndarray, dtype: Any = np.float64) -> int | None:
    """Count the decimals that all numbers, (n,) float64, can be written with; None if many.

    Large numbers, for which the dtype has fewer decimals, are ignored if they are the minority.
    """
    x = x[np.isfinite(x) & (x != 0)]
    if not len(x):
        return 0
    tolerance = 2 * _float_eps(dtype) * np.abs(x)
    for decimals in range(_MAX_DECIMALS + 1):
        precise = tolerance <= 0.1 * 10.0**-decimals
        if precise.mean() < 0.5:
            return None
        rounded = x[precise]
        if (np.abs(np.round(rounded, decimals) - rounded) <= tolerance[precise]).all():
            return decimals
    return None
