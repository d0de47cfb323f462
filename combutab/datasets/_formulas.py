"""Formulas: the parser, and the data sets of the CombU paper."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr
from scipy.stats import rankdata

if TYPE_CHECKING:
    import sympy

    from combutab.core.rng import RandomState


# ---- Formulas in text, parsed from a whitelist; nothing in the text is ever executed -------------
# Python's own grammar makes the tree (``ast.parse``, which runs nothing), every node is checked,
# and the checked tree is turned into numbers by NumPy or into a SymPy expression.

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
        Names that may occur in the text. They become symbols, even names with another meaning in
        SymPy.

    Returns
    -------
    sympy.Expr

    Raises
    ------
    ValueError
        If the text contains anything else, or exceeds a limit that bounds time and memory: 1,000
        characters, a nesting depth of 100, constants of 1e12, and constant exponents of 100 (the
        product of nested ones).
    ImportError
        If SymPy is not installed (extra ``formulas``).

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
        raise ImportError("symbolic formulas need SymPy: pip install sympy") from error

    names = frozenset(variables)
    return _computed(
        check_formula(text, names),
        lambda value: sympy.Integer(value) if isinstance(value, int) else sympy.Float(value),
        lambda name: sympy.Symbol(name) if name in names else sympy.pi,
        lambda name: getattr(sympy, FUNCTIONS[name][2]),
    )


def evaluate_formula(tree: ast.expr, columns: Mapping[str, NDArray[np.float64]]) -> Any:
    """Evaluate a tree from `check_formula` in float64; undefined results are nan or inf."""

    with np.errstate(all="ignore"):
        return _computed(
            tree,
            np.float64,
            lambda name: columns[name] if name in columns else np.float64(np.pi),
            lambda name: FUNCTIONS[name][1],
        )


def _computed(
    node: ast.expr,
    number: Callable[[Any], Any],
    variable: Callable[[str], Any],
    function: Callable[[str], Callable[[Any], Any]],
) -> Any:
    """Compute a checked tree, with what its numbers, names and functions stand for."""

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=constant):
                return number(constant)
            case ast.Name(id=name):
                return variable(name)
            case ast.UnaryOp(op=op, operand=operand):
                return _OPERATORS[type(op)](value(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.Call(func=ast.Name(id=name), args=[argument]):
                return function(name)(value(argument))
        raise AssertionError(f"check_formula let {ast.dump(node)} pass")

    return value(node)


def check_formula(text: str, variables: Iterable[str]) -> ast.expr:
    """Parse a formula and check every node of it; `parse_formula` lists the allowed nodes."""
    text = text.strip()
    names = frozenset(variables)
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"formula of {len(text)} characters; at most {_MAX_LENGTH} are allowed")
    excerpt = repr(text if len(text) <= 80 else f"{text[:77]}...")
    try:
        tree = ast.parse(text, mode="eval").body
        _check_node(tree, names, depth=0, power=1.0)
    except _Refused as error:
        raise ValueError(f"formula {excerpt}: {error}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise ValueError(f"formula {excerpt} cannot be parsed: {reason}") from error
    return tree


class _Refused(Exception):
    """A node outside the whitelist."""


def _check_node(node: ast.expr, names: frozenset[str], depth: int, power: float) -> float | None:
    """Check a node; return its value if it holds no variable, else None.

    ``power`` is the product of the exponents of the powers around the node: the exponent of an
    integer in it after SymPy expands the expression.
    """
    if depth > _MAX_DEPTH:
        raise _Refused(f"nested more than {_MAX_DEPTH} deep")

    def inner(child: ast.expr, power: float = power) -> float | None:
        return _check_node(child, names, depth + 1, power)

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
            left_value, right_value = inner(left), inner(right)
            if left_value is None or right_value is None:
                return None
            return _bounded(lambda: _OPERATORS[type(op)](left_value, right_value))
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


# ---- The four formula data sets of the CombU paper (appendix B, Tables 8 to 12) ------------------

Floats = NDArray[np.float64]
Columns = dict[str, np.ndarray]

GAS_CONSTANT = 8.314  # J / (mol K), to the paper's four digits
_SMALLEST_SD = 1e-12  # drawn standard deviations are of order 1; this only keeps 0/0 away


@dataclass(frozen=True)
class Formula:
    """One formula: its distribution over the variables, and its target as a function of them.

    ``draw(generator, n)`` returns the columns in the paper's order; ``evaluate(columns)`` takes
    the same columns (a dict or a DataFrame) and returns the target in float64.
    """

    title: str
    target: str
    draw: Callable[[np.random.Generator, int], Columns]
    evaluate: Callable[[Columns | pd.DataFrame], Floats]


def make_formula(
    name: str,
    n_samples: int = 5000,
    *,
    task: Literal["regression", "classification"] = "regression",
    n_classes: int = 4,
    random_state: RandomState = None,
) -> tuple[pd.DataFrame, pd.Series]:
    """Draw a data set whose target is an exact formula of its columns.

    Parameters
    ----------
    name : {"gs", "ar", "ns", "bs"}, in any case
        Formula and its columns: Gaussian density (x1 to x8 and v), modified Arrhenius equation
        (n, T, E_a, A), steady vortex of the Navier-Stokes equation (A, r, x, y, z), or the
        Black-Scholes price of a put option (sigma, T-t, S_t, K, r).
    n_samples : int, default=5000
        Number of rows, at least 1.
    task : {"regression", "classification"}, default="regression"
        For classification, the labels are quantile bins of the target of the regression.
    n_classes : int, default=4
        Number of bins, at least 2; only used for classification.
    random_state : None, int, RandomState or Generator, default=None
        Seed or generator. The same int gives the same ``X`` for both tasks.

    Returns
    -------
    X : DataFrame of shape (n_samples, n_features)
        Columns have the paper's variable names; n and T-t are int64, the others float64.
    y : Series of length n_samples
        Unscaled target, which is heavy-tailed in AR (up to 3e11) and NS. For classification, int64
        labels from 0 (lowest values) to ``n_classes - 1``.

    Raises
    ------
    ValueError
        If the name or task is unknown, ``n_samples`` or ``n_classes`` is too small, or there are
        too few samples or distinct targets for the number of classes.

    Notes
    -----
    The paper gives neither the number of classes nor the bin edges of its classification task. Here
    the edges are quantiles of the generated target, so that the classes are balanced. Rows with
    equal targets are always in the same class. Exact ties occur only in BS, where the discounted
    strike of about 1 % of the rows is below the smallest float64 and the price is 0.

    References
    ----------
    The CombU paper, appendix B.

    Examples
    --------
    >>> X, y = make_formula("ar", n_samples=100, random_state=0)
    >>> X.shape, list(X), y.name
    ((100, 4), ['n', 'T', 'E_a', 'A'], 'k')
    >>> _, labels = make_formula("ar", n_samples=100, task="classification", random_state=0)
    >>> labels.value_counts().sort_index().tolist()
    [25, 25, 25, 25]
    """
    formula = FORMULAS.get(str(name).lower())
    if formula is None:
        raise ValueError(f"unknown formula {name!r}; known are {', '.join(FORMULAS)}")
    if task not in ("regression", "classification"):
        raise ValueError(f"task must be 'regression' or 'classification', got {task!r}")
    n_samples = operator.index(n_samples)
    if n_samples < 1:
        raise ValueError(f"n_samples must be at least 1, got {n_samples}")
    from combutab.core.rng import as_generator  # imports torch

    columns = formula.draw(as_generator(random_state), n_samples)
    target = formula.evaluate(columns)
    X = pd.DataFrame(columns)
    if task == "regression":
        return X, pd.Series(target, name=formula.target)
    labels = _quantile_bins(target, operator.index(n_classes))
    return X, pd.Series(labels, name=f"{formula.target}_class")


def _quantile_bins(target: Floats, n_classes: int) -> NDArray[np.int64]:
    """Label each value with its quantile bin; equal values share a bin and no bin is empty."""
    if n_classes < 2:
        raise ValueError(f"n_classes must be at least 2, got {n_classes}")
    # NOTE[DIFF]: the paper gives neither number nor edges of its bins; we take 4 quantile bins.
    # Its accuracy and F1 nearly agree for GS, AR and NS, as balanced classes make them, and
    # differ by 5 points for BS, whose bins must then have been uneven.
    # A value's bin is where its mid-rank lies, so a value on an edge goes to its nearer side.
    twice_rank = np.rint(2.0 * rankdata(target)).astype(np.int64)
    labels = (twice_rank - 1) * n_classes // (2 * len(target))
    filled = len(np.unique(labels))
    if filled < n_classes:
        raise ValueError(
            f"{n_classes=} quantile bins of {len(target)} rows with {len(np.unique(target))} "
            f"different targets leave {n_classes - filled} empty; ask for fewer classes or more "
            "samples"
        )
    return labels


def _scaled(mantissa: np.ndarray, exponent: np.ndarray) -> Floats:
    """Table 8: a value of D1 with D2 as exponent is a * 10**b, a from D1 and b from D2."""
    return mantissa * 10.0**exponent


def _draw_gs(generator: np.random.Generator, n: int) -> Columns:  # Table 9
    mu = generator.normal(0.0, 10.0, size=(n, 1))
    sigma = generator.uniform(1.0, 6.0, size=(n, 1))
    x = generator.normal(mu, sigma, size=(n, 8))
    v = generator.normal(x.mean(axis=1), _sample_sd(x))
    return {f"x{i + 1}": x[:, i] for i in range(8)} | {"v": v}


def _sample_sd(x: Floats) -> Floats:
    # NOTE: Table 9 says "sample standard deviation" and gives no divisor; we take n - 1 (ddof=1),
    # as the term means in statistics. With n the targets would be 1.07 times as large.
    return np.maximum(np.std(x, axis=1, ddof=1), _SMALLEST_SD)


def _evaluate_gs(columns: Columns | pd.DataFrame) -> Floats:
    x = np.column_stack([np.asarray(columns[f"x{i + 1}"], dtype=np.float64) for i in range(8)])
    sd = _sample_sd(x)
    z = (np.asarray(columns["v"], dtype=np.float64) - x.mean(axis=1)) / sd
    # CombU Eq. (22)
    return np.exp(-0.5 * z**2) / (sd * np.sqrt(2.0 * np.pi))


def _draw_ar(generator: np.random.Generator, n: int) -> Columns:  # Table 10
    return {
        "n": generator.integers(0, 10, size=n, endpoint=True),
        "T": generator.uniform(1.0, 11.0, size=n),
        "E_a": generator.uniform(0.0, 100.0, size=n),
        "A": _scaled(
            generator.uniform(0.0, 1.0, size=n), generator.integers(-2, 1, size=n, endpoint=True)
        ),
    }


def _evaluate_ar(columns: Columns | pd.DataFrame) -> Floats:
    n, temperature, energy, a = _floats(columns, "n", "T", "E_a", "A")
    # CombU Eq. (24)
    return a * temperature**n * np.exp(-energy / (GAS_CONSTANT * temperature))


def _draw_ns(generator: np.random.Generator, n: int) -> Columns:  # Table 11
    def length() -> Floats:
        exponent = generator.choice([-3, -2, -1, 0, 1], p=[0.1, 0.2, 0.4, 0.2, 0.1], size=n)
        return _scaled(generator.uniform(1.0, 10.0, size=n), exponent)

    return {"A": generator.uniform(0.0, 1.0, size=n)} | {name: length() for name in "rxyz"}


def _evaluate_ns(columns: Columns | pd.DataFrame) -> Floats:
    a, r, x, y, z = _floats(columns, "A", "r", "x", "y", "z")
    # CombU Eq. (26)
    # NOTE[DIFF]: with p = r^2 + z^2 and q = x^2 + y^2 the squared components sum to
    # 4pq + (p - q)^2 = (p + q)^2, so the root is p + q and cancels one power of the denominator.
    return a / (r**2 + x**2 + y**2 + z**2)


def _draw_bs(generator: np.random.Generator, n: int) -> Columns:  # Table 12
    price_exponent = generator.integers(0, 4, size=n, endpoint=True)  # shared by S_t and K
    return {
        "sigma": generator.uniform(0.0, 100.0, size=n),
        "T-t": generator.integers(1, 9, size=n, endpoint=True)
        * 10 ** generator.integers(1, 3, size=n, endpoint=True),
        "S_t": _scaled(generator.uniform(1.0, 10.0, size=n), price_exponent),
        "K": _scaled(generator.uniform(1.0, 10.0, size=n), price_exponent),
        "r": generator.uniform(0.0, 0.1, size=n),
    }


def _evaluate_bs(columns: Columns | pd.DataFrame) -> Floats:
    sigma, time, spot, strike, rate = _floats(columns, "sigma", "T-t", "S_t", "K", "r")
    # CombU Eq. (27) to (29). NOTE[DIFF]: put-call parity as printed subtracts prices that agree
    # in all digits where the put is worth little. With 1 - N(d) = N(-d) it is K' N(-d2) - S N(-d1).
    discounted = strike * np.exp(-rate * time)
    volatility = sigma * np.sqrt(time)
    drift = np.log(spot / strike) + rate * time
    with np.errstate(all="ignore"):  # sigma = 0 is answered below
        middle = np.clip(drift / volatility, -1e100, 1e100)
    d1 = middle + 0.5 * volatility
    d2 = middle - 0.5 * volatility
    put = discounted * ndtr(-d2) - spot * ndtr(-d1)
    # Out of the money (d2 > 0) both terms are small and near each other, so their common factor
    # K' pdf(d2) = S pdf(d1) is taken out: N(-d) = pdf(d) sqrt(pi/2) erfcx(d / sqrt 2). The rows
    # are indexed because erfcx of SciPy 1.17 writes to wrong places when it is given where=.
    out = d2 > 0
    d1, d2 = d1[out] / np.sqrt(2.0), d2[out] / np.sqrt(2.0)
    put[out] = 0.5 * spot[out] * np.exp(-(d1**2)) * (erfcx(d2) - erfcx(d1))
    return np.where(volatility > 0, np.maximum(put, 0.0), np.maximum(discounted - spot, 0.0))


def _floats(columns: Columns | pd.DataFrame, *names: str) -> list[Floats]:
    return [np.asarray(columns[name], dtype=np.float64) for name in names]


FORMULAS: dict[str, Formula] = {
    "gs": Formula("Gaussian distribution", "f", _draw_gs, _evaluate_gs),
    "ar": Formula("modified Arrhenius equation", "k", _draw_ar, _evaluate_ar),
    "ns": Formula("Navier-Stokes steady vortex", "u", _draw_ns, _evaluate_ns),
    "bs": Formula("Black-Scholes put price", "P", _draw_bs, _evaluate_bs),
}
"""Formulas of `make_formula`, by name: the four of the CombU paper."""
