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
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

_FORMS = (
    "names of columns (in backticks if they are not identifiers), numbers, text in quotes, "
    "arithmetic, comparisons, in (...), is None, and, or, not"
)
_MAX_LENGTH = 10_000  # characters; what is parsed nests no deeper than Python's stack
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
        If it is no expression, or has what is none of these: numbers, text, names, arithmetic,
        comparisons, ``in``, ``is None``, ``and``, ``or``, ``not``.

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
                what = ast.get_source_segment(source, node)
                raise ValueError(
                    f"{self.text!r} has {what!r}, which is not supported; it may have {_FORMS}"
                )
        for part in parts:
            self._check(part, names, source, depth + 1)

    def evaluate(self, columns: Mapping[str, pd.Series]) -> Value:
        """Compute it of columns of equal index; where one is missing, so is the result.

        A comparison with a missing value is not met, but for ``is None``.

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
        """Where it is true, (n,) bool; a ValueError if it is none that can be."""
        return _truth(self.evaluate(columns), n)

    def solve(self, name: str, value: pd.Series, columns: Mapping[str, pd.Series]) -> Value:
        """What a column must be for the expression to be a value, beside the other columns.

        None where it is not found: the column is there twice, or within a power, say.
        """
        node, found = self._tree, as_operand(value)
        if sum(isinstance(n, ast.Name) and self._is(n, name) for n in ast.walk(node)) != 1:
            return None
        try:
            while not isinstance(node, ast.Name):
                match node:
                    case ast.UnaryOp(op=ast.USub(), operand=inner):
                        node, found = inner, -found
                    case ast.UnaryOp(op=ast.UAdd(), operand=inner):
                        node = inner
                    case ast.BinOp(left=left, op=op, right=right):
                        within = any(
                            isinstance(n, ast.Name) and self._is(n, name) for n in ast.walk(left)
                        )
                        other = self._value(right if within else left, columns)
                        match op:
                            case ast.Add():
                                found = _compute(ast.Sub(), found, other)
                            case ast.Sub() if within:
                                found = _compute(ast.Add(), found, other)
                            case ast.Mult():
                                found = _compute(ast.Div(), found, other)
                            case ast.Div() if within:
                                found = _compute(ast.Mult(), found, other)
                            case ast.Sub() | ast.Div():
                                found = _compute(op, other, found)
                            case _:
                                return None
                        node = left if within else right
                    case _:
                        return None
        except (TypeError, ArithmeticError):
            return None
        return found

    def _is(self, node: ast.Name, name: str) -> bool:
        return self._quoted.get(node.id, node.id) == name

    def _value(self, node: ast.expr, columns: Mapping[str, pd.Series]) -> Value:
        match node:
            case ast.Name(id=name):
                return as_operand(columns[self._quoted.get(name, name)])
            case ast.Constant(value=value):
                return float(value) if type(value) is int else value
            case ast.BinOp(left=left, op=op, right=right):
                return _compute(op, self._value(left, columns), self._value(right, columns))
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return ~pd.Series(_truth(self._value(inner, columns), _length(columns)))
            case ast.UnaryOp(op=op, operand=inner):
                found = self._value(inner, columns)
                return -found if isinstance(op, ast.USub) else found
            case ast.BoolOp(op=op, values=values):
                n = _length(columns)
                truths = [_truth(self._value(each, columns), n) for each in values]
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return pd.Series(np.asarray(join.reduce(truths)))
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as op]):
                column = self._value(left, columns)
                met = np.broadcast_to(pd.isna(column), _length(columns))
                return pd.Series(met if isinstance(op, ast.Is) else ~met)
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[other]):
                column = self._value(left, columns)
                among = pd.Series(column).isin(ast.literal_eval(other)).to_numpy()
                met = (among if isinstance(op, ast.In) else ~among) & ~pd.isna(column)
                return pd.Series(met)
            case ast.Compare(left=left, ops=compared, comparators=others):
                sides = [self._value(each, columns) for each in (left, *others)]
                n = _length(columns)
                met = np.ones(n, dtype=bool)
                for one, sign, other in zip(sides, compared, sides[1:], strict=False):
                    met &= _truth(_COMPARISONS[type(sign)](one, other), n)
                    met &= ~np.broadcast_to(pd.isna(one) | pd.isna(other), n)
                return pd.Series(met)
        raise AssertionError(ast.dump(node))


def _compute(op: ast.operator, one: Value, other: Value) -> Value:
    """Arithmetic in which booleans count as 0 and 1, and text beside dates as a duration."""
    sides = []
    for side, beside in ((one, other), (other, one)):
        if isinstance(side, pd.Series) and types.is_bool_dtype(side.dtype):
            side = _plain_floats(side)
        elif isinstance(side, str) and isinstance(beside, pd.Series):
            kind = getattr(beside.dtype, "kind", "O")
            side = pd.Timedelta(side) if kind in "mM" else side
        sides.append(side)
    return _ARITHMETIC[type(op)](*sides)


def _constants(node: ast.expr) -> bool:
    """Tell whether it is a list of numbers and texts."""
    if not isinstance(node, ast.Tuple | ast.List | ast.Set):
        return False
    try:
        values = ast.literal_eval(node)
    except ValueError:
        return False
    return all(isinstance(each, bool | int | float | str) for each in values)


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


def _plain_floats(column: pd.Series) -> pd.Series:
    return pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan), name=column.name)
