"""Networks of CombU's and ComplexCombU's units as arrays, and rules that combine them.

A plan is a network before it becomes a module: layers of units whose kinds are chosen freely, the
range of each output, and bounds of the errors of its weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import block_diag

# in the order of CombU's parts; the last three of an imaginary number, in ComplexCombU: of i b
# "elu" gives cos(b) - 1 and sin(b), "nlrelu" arctan(b)
KINDS = ("relu", "elu", "nlrelu", "cosine", "sine", "arctangent")
REAL = 3  # number of the kinds for real numbers
UNIT_ROUNDOFF = 2.0**-53
LARGEST_EXPONENT = math.log(np.finfo(np.float64).max)  # 709.78...


@dataclass(frozen=True, eq=False)
class LinearMap:
    """``weight @ h + bias``, and bounds of the rounding errors in both.

    weight, weight_error : (n_out, n_in); bias, bias_error : (n_out,)
    """

    weight: np.ndarray
    bias: np.ndarray
    weight_error: np.ndarray
    bias_error: np.ndarray

    @classmethod
    def exact(cls, weight: np.ndarray, bias: np.ndarray) -> LinearMap:
        """A map of numbers that are not rounded."""
        return cls(weight, bias, np.zeros_like(weight), np.zeros_like(bias))

    @classmethod
    def of(cls, weight: np.ndarray, bias: np.ndarray) -> LinearMap:
        """Bound the rounding of numbers given rounded (1/delta, exp(M)), by two units at most."""
        weight, bias = np.asarray(weight, np.float64), np.asarray(bias, np.float64)
        unit = 2 * UNIT_ROUNDOFF
        return cls(weight, bias, unit * np.abs(weight), unit * np.abs(bias))

    def after(self, inner: LinearMap) -> LinearMap:
        """The composition of this map with the inner map, as one map (lemma .4)."""
        size, inner_size = np.abs(self.weight), np.abs(inner.weight)
        unit = (inner.weight.shape[0] + 2) * UNIT_ROUNDOFF
        outer_size = size + self.weight_error
        return LinearMap(
            self.weight @ inner.weight,
            self.weight @ inner.bias + self.bias,
            outer_size @ inner.weight_error
            + self.weight_error @ inner_size
            + unit * size @ inner_size,
            outer_size @ inner.bias_error
            + self.weight_error @ np.abs(inner.bias)
            + self.bias_error
            + unit * (size @ np.abs(inner.bias) + np.abs(self.bias)),
        )


@dataclass(frozen=True, eq=False)
class Hidden:
    """A hidden layer: unit i gives ``kinds[i]`` of row i of the map."""

    affine: LinearMap
    kinds: np.ndarray  # (n_units,) positions in KINDS


@dataclass(frozen=True, eq=False)
class Plan:
    """Hidden layers, the last linear map, the range of each output and the domain of each input."""

    hidden: tuple[Hidden, ...]
    last: LinearMap
    ranges: Ranges
    domain: Ranges

    @property
    def depth(self) -> int:
        return len(self.hidden)

    @property
    def maps(self) -> list[LinearMap]:
        """Those of the hidden layers, and the last."""
        return [*(layer.affine for layer in self.hidden), self.last]


def identity(domain: Ranges) -> Plan:
    """The inputs as they are: no hidden layer."""
    n = len(domain)
    return Plan((), LinearMap.exact(np.eye(n), np.zeros(n)), domain, domain)


def combine_outputs(plan: Plan, weight: np.ndarray, bias: np.ndarray) -> Plan:
    """Linear combinations of the outputs (lemma .4)."""
    weight, bias = np.atleast_2d(np.asarray(weight, np.float64)), np.asarray(bias, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        ranges = combination(weight, bias, plan.ranges)
    if not np.isfinite(ranges).all():
        raise ValueError(
            "a linear combination reaches beyond float64 on the domain; narrow the domain, or "
            "measure the variables in other units"
        )
    return replace(plan, last=LinearMap.of(weight, bias).after(plan.last), ranges=ranges)


def deepen(plan: Plan, depth: int) -> Plan:
    """The same outputs from more hidden layers (theorem .5).

    NOTE[DIFF]: theorem .5 takes R(z) - R(-z) always; we take R(z) or R(-z) alone where the range
    tells the sign.
    """
    while plan.depth < depth:
        low, high = plan.ranges.T
        eye = np.eye(len(low))
        signs = np.concatenate([eye[high > 0], -eye[(low < 0) | (high <= 0)]])
        plan = _layer(plan, signs, np.zeros(len(signs)), "relu")
        last = LinearMap.exact(signs.T, np.zeros(len(low)))
        plan = replace(plan, last=last, ranges=np.stack([low, high], axis=1))
    return plan


def stack(plans: Sequence[Plan]) -> Plan:
    """All outputs of networks of the same inputs side by side (lemma .6, theorem .5)."""
    depth = max(plan.depth for plan in plans)
    plans = [deepen(plan, depth) for plan in plans]
    layers = []
    for i in range(depth):
        parts = [plan.hidden[i] for plan in plans]
        maps = _side_by_side([part.affine for part in parts], first=i == 0)
        layers.append(Hidden(maps, np.concatenate([part.kinds for part in parts])))
    last = _side_by_side([plan.last for plan in plans], first=depth == 0)
    ranges = np.concatenate([plan.ranges for plan in plans])
    return merged(Plan(tuple(layers), last, ranges, plans[0].domain))


def compose_plans(outer: Plan, inner: Plan) -> Plan:
    """The outer network of the inner one's outputs (theorem .7).

    NOTE[DIFF]: theorem .7 puts a layer of ReLU between the two. It is not needed, since the
    outputs of the inner network are linear combinations already.
    """
    maps = outer.maps
    maps[0] = maps[0].after(inner.last)
    hidden = [replace(layer, affine=m) for layer, m in zip(outer.hidden, maps, strict=False)]
    return merged(Plan((*inner.hidden, *hidden), maps[-1], outer.ranges, inner.domain))


def exponential(plan: Plan) -> Plan:
    """exp of every output (lemma 0.1)."""
    low, high = plan.ranges.T
    if high.max() > LARGEST_EXPONENT:
        worst = int(high.argmax())
        raise ValueError(
            f"exp(z) for z in ({low[worst]:.6g}, {high[worst]:.6g}) overflows: its weights are "
            f"exp({high[worst]:.6g}), and float64 ends at exp({LARGEST_EXPONENT:.2f}); narrow "
            "the domain, or measure the variables in larger units"
        )
    # (E(z - M) - R(z - M) + 1) exp(M), Eqs. 2 to 6, with M the upper end of the range
    n, scale = len(high), np.exp(high)
    both = np.concatenate([np.eye(n)] * 2)
    inner = LinearMap.exact(both, -np.tile(high, 2))  # M is exact
    plan = _append(plan, inner, np.repeat([KINDS.index("elu"), KINDS.index("relu")], n))
    last = LinearMap.of(np.concatenate([np.diag(scale), -np.diag(scale)], axis=1), scale)
    return replace(plan, last=last, ranges=widened(np.stack([np.exp(low), scale], axis=1)))


def logarithm(plan: Plan) -> Plan:
    """Natural logarithm of every output (lemma 0.2)."""
    low, high = plan.ranges.T
    for delta, top in zip(low.tolist(), high.tolist(), strict=True):
        if not delta > 0:
            raise ValueError(
                f"ln(z) needs z > 0, but z reaches {delta:.6g} on the domain, by the bounds of "
                "its parts; narrow the domain to where it is positive"
            )
        if not math.isfinite(top / delta) or not math.isfinite(1 / delta):
            raise ValueError(
                f"ln(z) for z in ({delta:.6g}, {top:.6g}) cannot be represented: its weight is "
                f"1/{delta:.6g}, and z times that overflows float64; narrow the domain"
            )
    # Eq. 7 with the erratum: ln z = N(z/delta - 1) PLUS ln(delta), delta the range's lower end
    plan = _layer(plan, np.diag(1 / low), -np.ones(len(low)), "nlrelu")
    last = LinearMap.of(np.eye(len(low)), np.log(low))
    return replace(plan, last=last, ranges=widened(np.log(np.stack([low, high], axis=1))))


def absolute(plan: Plan) -> Plan:
    """Absolute value of every output: R(z) + R(-z)."""
    eye = np.eye(len(plan.ranges))
    plan = _layer(plan, np.concatenate([eye, -eye]), np.zeros(2 * len(eye)), "relu")
    low, high = plan.ranges.T
    smallest = np.maximum(np.maximum(low, -high), 0)
    ranges = np.stack([smallest, np.maximum(np.abs(low), np.abs(high))], axis=1)
    return replace(
        plan, last=LinearMap.of(np.hstack([eye, eye]), np.zeros(len(eye))), ranges=ranges
    )


def hyperbolic_tangent(plan: Plan) -> Plan:
    """tanh of the one output, of exponentials that are at most 1, whatever its range."""
    low, high = plan.ranges[0].tolist()
    one = np.ones(1)
    halves, signs = [], []
    for sign, top in ((1.0, high), (-1.0, -low)):
        if top > 0:  # tanh(u) = 2 / (1 + exp(-2 u)) - 1 for u = R(z) and for u = R(-z)
            half = _layer(plan, np.array([[sign]]), np.zeros(1), "relu")
            smallest = max(low if sign > 0 else -high, 0.0)
            half = replace(
                half,
                last=LinearMap.of(one[:, None], np.zeros(1)),
                ranges=np.array([[smallest, top]]),
            )
            below = combine_outputs(
                exponential(combine_outputs(half, -2 * one, np.zeros(1))), one, one
            )
            halves.append(exponential(combine_outputs(logarithm(below), -one, np.zeros(1))))
            signs.append(sign)
    if not halves:
        return combine_outputs(plan, np.zeros((1, 1)), np.zeros(1))
    total = combine_outputs(
        stack(halves), np.array([2 * s for s in signs]), np.array([-sum(signs)])
    )
    return replace(total, ranges=widened(np.tanh([[low, high]])))


def sines(plan: Plan) -> Plan:
    """sin of every output: the imaginary part of exp(i z)."""
    return _imaginary(plan, "sine", 0.0, np.array([sine(r) for r in plan.ranges]))


def cosines(plan: Plan) -> Plan:
    """cos of every output: the real part of exp(i z)."""
    return _imaginary(plan, "cosine", 1.0, np.array([cosine(r) for r in plan.ranges]))


def arctangents(plan: Plan) -> Plan:
    """arctan of every output: the imaginary part of ln(1 + i z)."""
    return _imaginary(plan, "arctangent", 0.0, widened(np.arctan(plan.ranges)))


def _imaginary(plan: Plan, kind: str, bias: float, ranges: Ranges) -> Plan:
    n = len(plan.ranges)
    plan = _layer(plan, np.eye(n), np.zeros(n), kind)
    return replace(plan, last=LinearMap.exact(np.eye(n), np.full(n, bias)), ranges=ranges)


def _layer(plan: Plan, weight: np.ndarray, bias: np.ndarray, kind: str) -> Plan:
    return _append(plan, LinearMap.of(weight, bias), np.full(len(weight), KINDS.index(kind)))


def _append(plan: Plan, inner: LinearMap, kinds: np.ndarray) -> Plan:
    """Add a hidden layer over the outputs; the caller sets ``last`` and ``ranges``."""
    return replace(plan, hidden=(*plan.hidden, Hidden(inner.after(plan.last), kinds)))


def _side_by_side(maps: Sequence[LinearMap], *, first: bool) -> LinearMap:
    # of shared inputs, or of own ones
    joined = np.concatenate if first else lambda blocks: block_diag(*blocks)
    return LinearMap(
        joined([m.weight for m in maps]),
        np.concatenate([m.bias for m in maps]),
        joined([m.weight_error for m in maps]),
        np.concatenate([m.bias_error for m in maps]),
    )


def merged(plan: Plan) -> Plan:
    """Merge the equal units of each layer and sort it by kind; the outputs stay.

    Equal parts of an expression are then computed once.
    """
    maps = plan.maps
    hidden = []
    for i, layer in enumerate(plan.hidden):
        first, following = maps[i], maps[i + 1]
        rows = np.column_stack([layer.kinds, first.weight, first.bias])
        _, representatives, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        # by kind, in the order of CombU's parts, then in the previous order
        order = np.lexsort([representatives, layer.kinds[representatives]])
        representatives, group = representatives[order], np.argsort(order)[group.reshape(-1)]
        if np.array_equal(representatives, np.arange(len(rows))):  # nothing is equal, nothing moves
            hidden.append(Hidden(first, layer.kinds))
            continue
        gather = (group[:, None] == np.arange(len(representatives))).astype(np.float64)
        error = np.zeros((len(representatives), first.weight.shape[1]))
        np.maximum.at(error, group, first.weight_error)
        bias_error = np.zeros(len(representatives))
        np.maximum.at(bias_error, group, first.bias_error)
        hidden.append(
            Hidden(
                LinearMap(
                    first.weight[representatives], first.bias[representatives], error, bias_error
                ),
                layer.kinds[representatives],
            )
        )
        summed_error = following.weight_error @ gather
        summed_error += (
            len(rows) * UNIT_ROUNDOFF * (np.abs(following.weight) @ gather) * (gather.sum(0) > 1)
        )
        maps[i + 1] = replace(
            following, weight=following.weight @ gather, weight_error=summed_error
        )
    return replace(plan, hidden=tuple(hidden), last=maps[-1])


def plan_state(plan: Plan) -> dict[str, Any]:
    """A plan as dicts and lists of numbers."""

    def lists(affine: LinearMap) -> list[Any]:
        return [array.tolist() for array in vars(affine).values()]

    return {
        "hidden": [[lists(layer.affine), layer.kinds.tolist()] for layer in plan.hidden],
        "last": lists(plan.last),
        "ranges": plan.ranges.tolist(),
        "domain": plan.domain.tolist(),
    }


def plan_from_state(state: dict[str, Any]) -> Plan:
    """The plan that ``plan_state`` described, of a stranger perhaps.

    Raises ValueError if its parts do not fit one another.
    """

    numbers = partial(np.array, dtype=np.float64)
    hidden = [
        Hidden(LinearMap(*map(numbers, lists)), np.array(kinds)) for lists, kinds in state["hidden"]
    ]
    last = LinearMap(*map(numbers, state["last"]))
    plan = Plan(tuple(hidden), last, numbers(state["ranges"]), numbers(state["domain"]))
    _refuse_misfits(plan)
    return plan


def _refuse_misfits(plan: Plan) -> None:
    width = len(plan.domain)
    for i, layer in enumerate(
        (*plan.hidden, Hidden(plan.last, np.zeros(len(plan.last.bias), int)))
    ):
        affine, kinds = layer.affine, layer.kinds
        n = len(affine.bias)
        shapes = [
            a.shape for a in (affine.weight, affine.weight_error, affine.bias, affine.bias_error)
        ]
        if shapes != [(n, width), (n, width), (n,), (n,)] or kinds.shape != (n,) or not n:
            raise ValueError(f"layer {i} of the construction has arrays of the shapes {shapes}")
        if kinds.dtype.kind != "i" or not np.isin(kinds, range(len(KINDS))).all():
            raise ValueError(f"layer {i} of the construction has units of no known kind")
        rows = np.column_stack([kinds, affine.weight, affine.bias])
        if i < plan.depth and len(np.unique(rows, axis=0)) != n:
            raise ValueError(f"layer {i} of the construction has a unit twice")
        width = n
    finite = [array for layer in plan.maps for array in vars(layer).values()]
    if plan.ranges.shape != (width, 2) or plan.domain.ndim != 2 or plan.domain.shape[1:] != (2,):
        raise ValueError("the construction has ranges or domains of other widths than its layers")
    if not all(np.isfinite(a).all() for a in (*finite, plan.ranges, plan.domain)):
        raise ValueError("the construction has numbers that are not finite")


# ---- Intervals that hold all values of an expression: arrays (n, 2) of lowest and highest --------

Ranges = np.ndarray  # (n, 2) float64

_UNIT = 2.0**-53
_SMALLEST_NORMAL = 2.0**-1022


def as_domain(domain: Sequence[Sequence[float]]) -> Ranges:
    """Check a domain: a pair (low, high) of finite numbers for each variable."""
    ranges = np.asarray(domain, dtype=np.float64)
    if ranges.ndim != 2 or ranges.shape[1] != 2:
        raise ValueError(f"domain must hold one pair (low, high) for each variable, got {domain!r}")
    for low, high in ranges.tolist():
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise ValueError(
                f"domain must be of finite intervals with low <= high, got ({low}, {high})"
            )
    return ranges


def widened(ranges: np.ndarray, size: np.ndarray | float = 0.0) -> np.ndarray:
    """Make room for the rounding of ends, made of terms of these sizes: 8 units of them.

    Below the normal numbers a unit is the smallest normal number's.
    """
    size = np.maximum(np.abs(ranges), size)
    margin = 8 * _UNIT * np.where(size > 0, np.maximum(size, _SMALLEST_NORMAL), 0.0)
    return ranges + margin * [-1, 1]


def rounded_outward(low: float, high: float, bits: int) -> tuple[float, float]:
    """An interval about this one, its ends moved by less than 2**-bits of it, and not to zero.

    >>> rounded_outward(0.123, 99.7, 6), rounded_outward(1, 5, 6)
    ((0.1220703125, 100.0), (1.0, 5.0))
    """
    ends = np.array([low, high], dtype=np.float64)
    size = np.minimum(np.frexp(ends[1] - ends[0])[1], np.frexp(ends)[1])
    unit = np.where(ends == 0, 1.0, np.exp2(np.maximum(size - 1.0 - bits, -1074.0)))
    steps = ends / unit
    return float(np.floor(steps[0]) * unit[0]), float(np.ceil(steps[1]) * unit[1])


def combination(weight: np.ndarray, bias: np.ndarray, ranges: Ranges) -> Ranges:
    """Range of ``weight @ x + bias`` for x in ``ranges``."""
    above, below = np.maximum(weight, 0), np.minimum(weight, 0)
    swapped = ranges[:, ::-1]
    ends = above @ ranges + below @ swapped + bias[:, None]  # (n, 2)
    sizes = above @ np.abs(ranges) - below @ np.abs(swapped) + np.abs(bias)[:, None]
    exact = (np.abs(weight).sum(1) == np.abs(weight).max(1, initial=0)) & (bias == 0)
    exact &= np.isin(weight, [-1, 0, 1]).all(1)  # an input as it is, or its negative
    return np.where(exact[:, None], ends, widened(ends, weight.shape[1] * sizes))


def power(range_: np.ndarray, exponent: float) -> np.ndarray:
    """Range of x^exponent, (2,); x is positive, or the exponent a whole number."""
    ends = [_power_or_infinity(float(x), exponent) for x in range_]
    if exponent > 0 and range_[0] <= 0 <= range_[1]:
        ends.append(0.0)
    return np.array([min(ends), max(ends)])


def sine(range_: np.ndarray) -> np.ndarray:
    """Range of sin(x), (2,)."""
    return _wave(range_, math.sin, math.pi / 2)


def cosine(range_: np.ndarray) -> np.ndarray:
    """Range of cos(x), (2,)."""
    return _wave(range_, math.cos, 0.0)


def _wave(range_: np.ndarray, wave: Callable[[float], float], top: float) -> np.ndarray:
    """Range of a function of period 2 pi that is 1 at ``top`` and -1 half a period on."""
    low, high = range_.tolist()
    ends = [wave(low), wave(high)]
    for extremum, value in ((top, 1.0), (top + math.pi, -1.0)):
        first = extremum + 2 * math.pi * math.ceil((low - extremum) / (2 * math.pi))
        if first <= high + 8 * _UNIT * max(abs(low), abs(high)):
            ends.append(value)
    return np.clip(widened(np.array([min(ends), max(ends)]), 1.0), -1.0, 1.0)


def _power_or_infinity(x: float, exponent: float) -> float:
    try:
        return x**exponent
    except OverflowError:
        return math.inf if x > 0 or exponent % 2 == 0 else -math.inf


def product_range(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Range of a product, (2,)."""
    with np.errstate(invalid="ignore"):
        corners = np.nan_to_num(np.outer(first, second), nan=0.0, posinf=np.inf, neginf=-np.inf)
    return np.array([corners.min(), corners.max()])
