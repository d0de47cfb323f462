"""A network from a formula: every node of the SymPy expression becomes a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from combutab.constructions import _plan
from combutab.constructions._network import ConstructedNetwork
from combutab.constructions._plan import Plan, as_domain, rounded_outward, widened
from combutab.constructions._terms import Base, Terms, sum_of_products

if TYPE_CHECKING:
    import sympy

Domain = Mapping[str, tuple[float, float]] | pd.DataFrame

_FUNCTIONS: dict[str, Callable[[Plan], Plan]] = {  # by SymPy's names
    "Abs": _plan.absolute,
    "tanh": _plan.hyperbolic_tangent,
    "sin": _plan.sines,
    "cos": _plan.cosines,
    "atan": _plan.arctangents,
}
_ROUNDINGS = (6, 12, 24)  # bits of a column's range that its ends are rounded to, in turn


def expression_network(expression: str | sympy.Expr, domain: Domain) -> ConstructedNetwork:
    """Build a network that equals a formula of sums, products, quotients, powers and functions.

    It uses theorem 0.3 and the composition of networks (theorem .7) of the CombU paper. ``abs`` is
    built from two ReLU units, and ``sinh``, ``cosh`` and ``tanh`` from exponentials. With sin, cos,
    tan, arcsin, arccos or arctan the layers are complex (``ComplexCombU``), because exp(i x)
    consists of cosine and sine, and ln(1 + i x) contains the arctangent. An exponential is exact to
    about ``2**-53`` of its largest value, so ``1 / (1 + exp(-x))`` needs a narrow domain. ``tanh``
    does not: write ``(1 + tanh(x/2)) / 2``.

    Parameters
    ----------
    expression : str or sympy.Expr
        Formula. Text is parsed by ``combutab.datasets.parse_formula`` and not executed. It may
        contain numbers, the variables, ``pi``, ``+ - * / **`` and functions.
    domain : mapping of str to (float, float), or DataFrame
        The inputs, in their order, with their lowest and highest values. For a DataFrame these are
        the smallest and largest values of its numeric columns, rounded outward to two digits of the
        range (to more digits if the expression has no value there), because the network and its
        files contain them. Inputs that the expression does not use are allowed (lemma .6).

    Returns
    -------
    ConstructedNetwork, (..., n_inputs) -> (..., 1)

    Raises
    ------
    ValueError
        If the text is not a formula, a variable is not in the domain, a function has no such
        network, a part has no value on the domain (a logarithm or root of what may be negative, a
        division by what may be zero, arcsin of what may reach 1), weights overflow, or rounding
        leaves no digit of the result. Bounds are computed for each part separately (interval
        arithmetic), so ``x - x*y`` may have a negative bound although its values are positive.
        Write ``x*(1 - y)``, in which each variable occurs once.
    ImportError
        Without SymPy: ``pip install sympy``.

    Examples
    --------
    >>> import torch
    >>> network = expression_network(
    ...     "x1**2 * exp(-x2) / x3", {"x1": (1, 5), "x2": (0, 3), "x3": (0.1, 1)}
    ... )
    >>> network.hidden_layer_sizes
    (3, 2)
    >>> x = torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64)
    >>> print(f"{network(x).item():.12f}, {8 * math.exp(-1):.12f}")
    2.943035529372, 2.943035529372
    >>> wave = expression_network("x*sin(x)", {"x": (0, 9)})
    >>> print(f"{wave(x[:1]).item():.12f}, {2 * math.sin(2):.12f}")
    1.818594853651, 1.818594853651
    """
    if isinstance(domain, pd.DataFrame):
        numbers = domain.select_dtypes("number")
        ends = {str(name): (column.min(), column.max()) for name, column in numbers.items()}
        for bits in _ROUNDINGS:
            domain = {name: rounded_outward(*pair, bits) for name, pair in ends.items()}
            try:
                return expression_network(expression, domain)
            except ValueError:  # ln(1 - x) of values up to 0.999, say
                if bits == _ROUNDINGS[-1]:
                    raise
    if not domain:
        raise ValueError("domain must name at least one input, got none")
    ranges = as_domain(list(domain.values()))
    names = [str(name) for name in domain]
    if isinstance(expression, str):
        from combutab.datasets import parse_formula  # imported here, since only formulas need SymPy

        expression = parse_formula(expression, names)
    plan = _Builder(dict(zip(names, range(len(names)), strict=True)), ranges).value(expression)
    return ConstructedNetwork(plan, names)


class _Builder:
    """Plans of the nodes of one expression, each made once."""

    def __init__(self, positions: Mapping[str, int], ranges: np.ndarray) -> None:
        self.places, self.inputs = positions, _plan.identity(ranges)
        self.values: dict[Any, Plan] = {}
        self.logs: dict[Any, Plan] = {}

    def value(self, node: sympy.Expr) -> Plan:
        if node not in self.values:
            self.values[node] = self._value(node)
        return self.values[node]

    def log(self, node: sympy.Expr) -> Plan:
        """The logarithm of a positive node, without the exponential that it may end in."""
        if node not in self.logs:
            self.logs[node] = self._log(node)
        return self.logs[node]

    def _value(self, node: Any) -> Plan:
        import sympy

        if node.is_number:
            return self._constant(node)
        if node.is_Symbol:
            if str(node) not in self.places:
                raise ValueError(
                    f"the expression has the variable {node}, and domain has only "
                    f"{', '.join(self.places)}; give its interval"
                )
            row = np.eye(len(self.places))[self.places[str(node)]]
            return _plan.combine_outputs(self.inputs, row, np.zeros(1))
        if isinstance(node, sympy.exp):
            return self._named(node, lambda: _plan.exponential(self.value(node.args[0])))
        if isinstance(node, sympy.log):
            return self.log(node.args[0])
        if node.func.__name__ in _FUNCTIONS:
            return _FUNCTIONS[node.func.__name__](self.value(node.args[0]))
        if isinstance(node, sympy.tan):
            return self.value(sympy.sin(node.args[0]) / sympy.cos(node.args[0]))
        if isinstance(node, sympy.asin | sympy.acos):
            return self._named(node, lambda: self._arcsine(node))
        if isinstance(node, sympy.sinh | sympy.cosh):
            return self.value(node.rewrite(sympy.exp))
        if node.is_Pow and not node.exp.is_number:  # b^e = exp(e ln b)
            return self.value(sympy.exp(node.exp * sympy.log(node.base), evaluate=False))
        if node.is_Add or node.is_Mul or node.is_Pow:
            return self._sum(node)
        raise ValueError(
            f"{node} cannot be built of CombU's units; what can: + - * / ** exp ln sqrt abs sin "
            f"cos tan arcsin arccos arctan sinh cosh tanh. Compute {node.func.__name__} as a "
            "column of the table and name that column in the expression"
        )

    def _arcsine(self, node: Any) -> Plan:
        """arcsin(x) = arctan(x / sqrt(1 - x^2)), and arccos(x) = pi/2 - arcsin(x)."""
        import sympy

        x = node.args[0]
        ends = self.value(x).ranges[0]
        if not (ends[0] > -1 and ends[1] < 1):
            raise ValueError(
                f"its slope is infinite at -1 and 1, and {x} lies in ({ends[0]:.6g}, "
                f"{ends[1]:.6g}) on the domain, by the bounds of its parts; narrow the domain"
            )
        plan = self.value(sympy.atan(x / sympy.sqrt(1 - x**2)))
        plan = replace(plan, ranges=widened(np.arcsin(ends)[None]))
        if isinstance(node, sympy.acos):
            plan = _plan.combine_outputs(plan, -np.ones((1, 1)), np.array([np.pi / 2]))
        return plan

    def _log(self, node: Any) -> Plan:
        import sympy

        if isinstance(node, sympy.exp):
            return self.value(node.args[0])
        if node.is_Pow and node.exp.is_number and self._is_positive(node.base):
            return _plan.combine_outputs(
                self.log(node.base), np.array([[_constant_value(node.exp)]]), np.zeros(1)
            )
        if node.is_Pow and not node.exp.is_number:
            return self.value(node.exp * sympy.log(node.base))
        if node.is_Mul and all(self._is_positive(factor) for factor in node.args):
            logs = _plan.stack([self.log(factor) for factor in node.args])
            return _plan.combine_outputs(logs, np.ones((1, len(node.args))), np.zeros(1))
        if node.is_number and _constant_value(node) > 0:
            return self._constant(sympy.log(node))
        return self._named(f"ln({node})", lambda: _plan.logarithm(self.value(node)))

    def _is_positive(self, node: Any) -> bool:
        return bool(self.value(node).ranges[0, 0] > 0)

    def _constant(self, node: Any) -> Plan:
        nothing = np.zeros((1, len(self.places)))
        return _plan.combine_outputs(self.inputs, nothing, np.array([_constant_value(node)]))

    def _sum(self, node: Any) -> Plan:
        """Eq. 9: the node as a sum of products of powers of its parts."""
        import sympy

        parts: dict[Any, int] = {}
        rows: list[tuple[Fraction, dict[int, float]]] = []
        for term in sympy.Add.make_args(node):
            coefficient = Fraction(1)
            factors: dict[int, float] = {}
            for factor in sympy.Mul.make_args(term):
                if factor.is_number:
                    coefficient *= Fraction(_constant_value(factor))
                    continue
                base, exponent = factor, 1.0
                if factor.is_Pow and factor.exp.is_number:
                    base, exponent = factor.base, _constant_value(factor.exp)
                position = parts.setdefault(base, len(parts))
                factors[position] = factors.get(position, 0.0) + exponent
            rows.append((coefficient, factors))
        terms: Terms = {}
        for coefficient, factors in rows:
            powers = tuple(factors.get(j, 0.0) for j in range(len(parts)))
            terms[powers] = terms.get(powers, Fraction(0)) + coefficient
        bases = [Base(self.value(p), partial(self.log, p), str(p)) for p in parts]
        return self._named(node, lambda: sum_of_products(bases, terms))

    @staticmethod
    def _named(part: Any, make: Callable[[], Plan]) -> Plan:
        """Name the innermost part of the expression in an error that it causes."""
        try:
            return make()
        except ValueError as error:
            if str(error).startswith("in "):
                raise
            raise ValueError(f"in {part}: {error}") from None


def _constant_value(node: Any) -> float:
    """A constant of the expression in float64."""
    try:
        value = float(node)
    except TypeError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{node} is not a finite real number")
    return value
