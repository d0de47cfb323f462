"""The formula parser: what it takes, and that it refuses everything else quickly."""

import math

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from combutab.datasets import parse_formula
from combutab.datasets._formulas import FUNCTIONS, check_formula, evaluate_formula

sympy = pytest.importorskip("sympy")

POINT = {"x": np.array([0.3, 0.5]), "y": np.array([2.0, -0.25]), "I": np.array([1.0, 4.0])}


def number(text, **columns):
    return float(
        evaluate_formula(check_formula(text, columns), {k: np.float64(columns[k]) for k in columns})
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2+3*4", 14),
        ("(2+3)*4", 20),
        ("2/3/4", 1 / 6),
        ("2**3**2", 512),
        ("-2**2", -4),
        ("(-2)**2", 4),
        ("d**(3/2)", 8),
        ("ln(exp(2))", 2),
        ("arcsin(1)", math.pi / 2),
        ("arctan(1)", math.pi / 4),
        ("cosh(0)+sinh(0)+tan(0)+tanh(0)", 1),
        ("abs(-d)", 4),
        (" 1.5e2 ", 150),
    ],
)
def test_by_hand(text, expected):
    assert number(text, d=4.0) == pytest.approx(expected, rel=1e-15)
    assert float(parse_formula(text, ["d"]).subs("d", 4)) == pytest.approx(expected, rel=1e-14)


def test_variables_may_be_named_like_sympy_constants():
    expression = parse_formula("I*S/N + E*pi", ["I", "S", "N", "E"])
    assert {str(symbol) for symbol in expression.free_symbols} == {"I", "S", "N", "E"}
    assert parse_formula("pi", ["pi"]) == sympy.Symbol("pi")


def test_fractions_stay_exact():
    assert parse_formula("1/3", []) == sympy.Rational(1, 3)
    assert parse_formula("x**(3/2)", ["x"]) == sympy.Symbol("x") ** sympy.Rational(3, 2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_python_numpy_and_sympy_agree_on_each_function(name):
    python, _, _ = FUNCTIONS[name]
    assert number(f"{name}(x)", x=0.7) == pytest.approx(python(0.7), rel=1e-15)
    assert float(parse_formula(f"{name}(x)", ["x"]).subs("x", 0.7)) == pytest.approx(
        python(0.7), rel=1e-14
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("__import__('os').system('true')", "only sqrt, .* can be called"),
        ("x.__class__", "Attribute is not allowed"),
        ("sin", "'sin'"),
        ("q", "unknown name 'q'; known are pi, x"),
        ("x[0]", "Subscript is not allowed"),
        ("'x'", "Constant is not allowed"),
        ("2j", "Constant is not allowed"),
        ("lambda: x", "Lambda is not allowed"),
        ("x if x else 1", "IfExp is not allowed"),
        ("x < 1", "Compare is not allowed"),
        ("x // 2", "BinOp is not allowed"),
        ("x << 999", "BinOp is not allowed"),
        ("~x", "UnaryOp is not allowed"),
        ("x, x", "Tuple is not allowed"),
        ("sin()", "sin takes one argument"),
        ("sin(x, x)", "sin takes one argument"),
        ("sin(*x)", "Starred is not allowed"),
        ("9**9**9", "a constant that is not|a power above"),
        ("10**13", "a constant that is not a real number up to 1e\\+12"),
        ("x**(9**9)", "a power above 100"),
        ("((2*x)**50)**50", "a power above 100"),
        ("1e999", "a constant that is not"),
        ("9" * 900, "a constant without a value"),
        ("exp(9999)", "a constant without a value"),
        ("1/0", "a constant without a value"),
        ("sqrt(-1)", "a constant without a value"),
        ("(-8)**(1/3)", "a constant that is not a real number"),
        ("x +", "cannot be parsed"),
        ("x; x", "cannot be parsed"),
        ("x\0", "cannot be parsed"),
        ("(" * 400 + "x" + ")" * 400, "cannot be parsed"),
        ("-" * 400 + "x", "nested more than 100 deep"),
        ("+".join("x" * 200), "nested more than 100 deep"),
        ("x" * 1001, "1001"),
    ],
)
@pytest.mark.timeout(60)  # what one of them asks for takes years
def test_hostile_or_broken_text_is_refused_at_once(text, says):
    for parse in (check_formula, parse_formula):
        with pytest.raises(ValueError, match=says):
            parse(text, ["x"])


@given(st.text(alphabet="x19.*/+-()_ ,'[]sin{}=:", max_size=30))
def test_any_text_parses_or_raises_value_error(text):
    try:
        expression = parse_formula(text, ["x"])
    except ValueError:
        return
    assert isinstance(expression, sympy.Expr)
    assert expression.free_symbols <= {sympy.Symbol("x")}


def leaves():
    return st.sampled_from(["x", "y", "I", "pi", "2", "3", "0.5"])


def extend(inner):
    return st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]}{t[1]}{t[2]})"),
        st.tuples(inner, st.sampled_from(["2", "3"])).map(lambda t: f"({t[0]})**{t[1]}"),
        inner.map(lambda t: f"({t})/(2+I)"),
        inner.map(lambda t: f"sin({t})"),
        inner.map(lambda t: f"-{t}"),
    )


@given(st.recursive(leaves(), extend, max_leaves=6))
def test_numpy_and_sympy_agree(text):
    try:
        tree = check_formula(text, POINT)
    except ValueError:
        event("refused: a constant or a power is too large")
        return
    ours = np.broadcast_to(evaluate_formula(tree, POINT), 2)
    expression = parse_formula(text, POINT)
    for i in range(2):
        exact = expression.evalf(30, subs={name: POINT[name][i] for name in POINT})
        assert ours[i] == pytest.approx(float(exact), rel=1e-9, abs=1e-9)


def test_without_sympy_the_error_names_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sympy", None)
    with pytest.raises(ImportError, match="pip install sympy"):
        parse_formula("x", ["x"])
