"""Formulas in text, parsed from a whitelist; nothing in the text is ever executed.

Python's own grammar makes the tree (``ast.parse``, which runs nothing), every node is checked,
and the checked tree is turned into numbers by NumPy or into a SymPy expression.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import sympy

# name in the text -> (Python, NumPy, SymPy); ln is the natural logarithm, as log is
FUNCTIONS: dict[str, tuple[Callable[[float], float], Callable[[Any], Any], str]] = {
    "sqrt": (math.sqrt, np.sqrt, "sqrt"),
    "exp": (math.exp, np.exp, "exp"),
    "ln": (math.log, np.log, "log"),
    "log": (math.log, np.log, "log"),
    "sin": (math.sin, np.sin, "sin"),
    "cos": (math.cos, np.cos, "cos"),
    "tan": (math.tan, np.tan, "tan"),
    "arcsin": (math.asin, np.arcsin, "asin"),
    "arccos": (math.acos, np.arccos, "acos"),
    "arctan": (math.atan, np.arctan, "atan"),
    "sinh": (math.sinh, np.sinh, "sinh"),
    "cosh": (math.cosh, np.cosh, "cosh"),
    "tanh": (math.tanh, np.tanh, "tanh"),
    "abs": (abs, np.abs, "Abs"),
}
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
# Wide of every formula in the tables, narrow enough that none can eat time or memory.
_MAX_LENGTH = 1000
_MAX_DEPTH = 100
_MAX_NUMBER = 1e12
_MAX_EXPONENT = 100  # of nested powers together


def parse_formula(text: str, variables: Iterable[str]) -> sympy.Expr:
    """Turn a formula into a SymPy expression, without ``eval`` and without ``sympify``.

    Parameters
    ----------
    text : str
        Numbers, the variables, ``pi``, ``+ - * / **``, parentheses and the functions sqrt, exp,
        ln = log (natural), sin, cos, tan, arcsin, arccos, arctan, sinh, cosh, tanh, abs.
    variables : iterable of str
        The names that may occur; they become symbols even where SymPy uses the name otherwise.

    Returns
    -------
    sympy.Expr

    Raises
    ------
    ValueError
        Anything else is in the text, or numbers and powers that would take long to work out.

    Examples
    --------
    >>> parse_formula("m*c**2/sqrt(1-v**2/c**2)", ["m", "c", "v"])
    c**2*m/sqrt(1 - v**2/c**2)
    >>> parse_formula("__import__('os').remove('x')", ["x"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: formula "__import__('os').remove('x')": only ... can be called
    """
    try:
        import sympy
    except ImportError as error:
        raise ImportError(
            "symbolic formulas need SymPy: pip install 'combutab[formulas]'"
        ) from error

    def build(node: ast.expr) -> sympy.Expr:
        match node:
            case ast.Constant(value=int(value)):
                return sympy.Integer(value)
            case ast.Constant(value=float(value)):
                return sympy.Float(value)
            case ast.Name(id=name):
                return sympy.Symbol(name) if name in names else sympy.pi
            case ast.UnaryOp(op=op, operand=operand):
                return _OPERATORS[type(op)](build(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return _OPERATORS[type(op)](build(left), build(right))
            case ast.Call(func=ast.Name(id=name), args=[argument]):
                return getattr(sympy, FUNCTIONS[name][2])(build(argument))
        raise AssertionError(f"check_formula let {ast.dump(node)} pass")

    names = frozenset(variables)
    return build(check_formula(text, names))


def evaluate(tree: ast.expr, columns: Mapping[str, NDArray[np.float64]]) -> Any:
    """Evaluate a tree from `check_formula` in float64; what has no value becomes nan or inf."""

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int(number) | float(number)):
                return np.float64(number)
            case ast.Name(id=name):
                return columns[name] if name in columns else np.float64(np.pi)
            case ast.UnaryOp(op=op, operand=operand):
                return _OPERATORS[type(op)](value(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.Call(func=ast.Name(id=name), args=[argument]):
                return FUNCTIONS[name][1](value(argument))
        raise AssertionError(f"check_formula let {ast.dump(node)} pass")

    with np.errstate(all="ignore"):
        return value(tree)


def check_formula(text: str, variables: Iterable[str]) -> ast.expr:
    """Parse a formula and check every node of it; see `parse_formula` for what is allowed."""
    text = text.strip()
    names = frozenset(variables)
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"formula of {len(text)} characters; at most {_MAX_LENGTH} are allowed")
    shown = repr(text if len(text) <= 80 else f"{text[:77]}...")
    try:
        tree = ast.parse(text, mode="eval").body
        _check(tree, names, depth=0, power=1.0)
    except _Refused as error:
        raise ValueError(f"formula {shown}: {error}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise ValueError(f"formula {shown} cannot be parsed: {reason}") from error
    return tree


class _Refused(Exception):
    """A node outside the whitelist."""


def _check(node: ast.expr, names: frozenset[str], depth: int, power: float) -> float | None:
    """Check a node; return its value if it holds no variable, else None.

    ``power`` is the product of the exponents of the powers around the node: what an integer in
    it may be raised to once SymPy multiplies out.
    """
    if depth > _MAX_DEPTH:
        raise _Refused(f"nested more than {_MAX_DEPTH} deep")

    def inner(child: ast.expr, power: float = power) -> float | None:
        return _check(child, names, depth + 1, power)

    match node:
        case ast.Constant(value=bool() | complex()):
            pass
        case ast.Constant(value=int(number) | float(number)):
            return _bounded(lambda: float(number))
        case ast.Name(id=name):
            if name in names:
                return None
            if name == "pi":
                return math.pi
            raise _Refused(f"unknown name {name!r}; known are pi, {', '.join(sorted(names))}")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
            constant = inner(operand)
            return None if constant is None else _OPERATORS[type(op)](constant)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            exponent = inner(right)
            if exponent is not None:
                power *= max(1.0, abs(exponent))
                if power > _MAX_EXPONENT:
                    raise _Refused(f"a power above {_MAX_EXPONENT}")
            base = inner(left, power)
            if base is None or exponent is None:
                return None
            return _bounded(lambda: base**exponent)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            one, other = inner(left), inner(right)
            if one is None or other is None:
                return None
            return _bounded(lambda: _OPERATORS[type(op)](one, other))
        case ast.Call(func=function, args=arguments, keywords=keywords):
            if not isinstance(function, ast.Name) or function.id not in FUNCTIONS:
                raise _Refused(f"only {', '.join(FUNCTIONS)} can be called")
            if keywords or len(arguments) != 1:
                raise _Refused(f"{function.id} takes one argument")
            constant = inner(arguments[0])
            if constant is None:
                return None
            return _bounded(lambda: FUNCTIONS[function.id][0](constant))
    raise _Refused(f"{type(node).__name__} is not allowed, only numbers, names, + - * / ** and ()")


def _bounded(compute: Callable[[], Any]) -> float:
    try:
        value = compute()
    except (ArithmeticError, ValueError) as error:
        raise _Refused(f"a constant without a value ({error})") from error
    if isinstance(value, complex) or not abs(value) <= _MAX_NUMBER:
        raise _Refused(f"a constant that is not a real number up to {_MAX_NUMBER:g}")
    return value
