"""Sums of products of powers, theorem 0.3, of values that need not be positive."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np

from combutab.constructions import _plan
from combutab.constructions._plan import Plan

Powers = tuple[float, ...]  # one per base
Terms = dict[Powers, Fraction]  # exact coefficients, since expanded terms may cancel

_MOST_TERMS = 10_000


class Base(NamedTuple):
    """A value whose powers are taken: a plan of one output, and if it has one, its logarithm."""

    value: Plan
    log: Callable[[], Plan]  # of a positive value
    name: str


def sum_of_products(bases: Sequence[Base], terms: Terms) -> Plan:
    """Plan of the sum of ``coefficient * prod_j base_j^power_j``; at least one base.

    A base that may be zero or negative takes whole powers >= 0: its powers are those of a
    positive ``base + shift``, multiplied out. One that is negative throughout takes whole powers.
    """
    ranges = [base.value.ranges[0] for base in bases]
    true_range = np.zeros(2)
    for powers, coefficient in terms.items():
        part = np.repeat(_as_float(coefficient), 2)
        for range_, exponent, base in zip(ranges, powers, bases, strict=True):
            _check_power(base, range_, exponent)
            part = _plan.product_range(part, _plan.power(range_, exponent))
        true_range = _plan.widened(true_range + part, (1 + len(ranges)) * np.abs(part))
    if not np.isfinite(true_range).all():
        raise ValueError(
            f"the sum over {', '.join(base.name for base in bases)} reaches beyond float64 on the "
            "domain; narrow the domain, or measure the variables in other units"
        )
    linear, curved = _plain_and_curved(terms)
    moved = list(bases)
    for j, (base, range_) in enumerate(zip(bases, ranges, strict=True)):
        if range_[0] <= 0 and any(powers[j] for powers in curved):
            moved[j], scale, shift = _positive(base, range_)
            curved = _substituted(curved, j, scale, shift)
    plan = _total(bases, linear, moved, curved)
    both = np.stack([true_range, plan.ranges[0]])
    return replace(plan, ranges=np.array([[both[:, 0].max(), both[:, 1].min()]]))


def _check_power(base: Base, range_: np.ndarray, exponent: float) -> None:
    low, high = range_.tolist()
    if low > 0 or exponent == 0:
        return
    name = base.name if base.name.isidentifier() else f"({base.name})"
    bounds = f"{base.name} lies in ({low:.6g}, {high:.6g}) on the domain"
    if exponent != int(exponent):
        raise ValueError(
            f"{name}**{exponent:g} needs a positive base, and {bounds}, by the bounds of its "
            "parts; narrow the domain to where it is positive"
        )
    if exponent < 0 and high >= 0:
        raise ValueError(
            f"{name}**{exponent:g} has a pole in the domain: {bounds}, by the bounds of its "
            "parts; narrow the domain so that it keeps away from zero"
        )


def _positive(base: Base, range_: np.ndarray) -> tuple[Base, float, float]:
    """A positive base u and (scale, shift) with ``base = scale * u + shift``."""
    low, high = range_.tolist()
    if high < 0:
        scale, shift = -1.0, 0.0
    else:
        # u begins at a sixteenth of the width: near enough to keep u^p small, far enough for ln u;
        # the least is one whose reciprocal float64 holds easily
        scale, shift = 1.0, low - max((high - low) / 16, 1e-150)
    # base = scale u + shift  <=>  u = scale (base - shift), for scale = +-1
    value = _plan.combine_outputs(base.value, np.array([[scale]]), np.array([-scale * shift]))
    moved = Base(value, partial(_plan.logarithm, value), f"({base.name} shifted)")
    return moved, scale, shift


def _substituted(terms: Terms, j: int, scale: float, shift: float) -> Terms:
    """``base_j = scale * u + shift`` put into the terms and multiplied out."""
    result: Terms = {}
    for powers, coefficient in terms.items():
        k = int(powers[j])
        for m in range(k + 1) if shift else [k]:
            key = (*powers[:j], float(m), *powers[j + 1 :])
            factor = Fraction(scale) ** m
            if m < k:
                factor *= math.comb(k, m) * Fraction(shift) ** (k - m)
            result[key] = result.get(key, Fraction(0)) + coefficient * factor
    if len(result) > _MOST_TERMS:
        raise ValueError(
            f"multiplied out, the expression has more than {_MOST_TERMS} terms; give the "
            "variables domains that do not cross zero"
        )
    return result


def _plain_and_curved(terms: Terms) -> tuple[Terms, Terms]:
    """Constants and bases as they are; and what takes a logarithm and an exponential."""
    plain: Terms = {}
    curved: Terms = {}
    for powers, coefficient in terms.items():
        is_plain = sum(map(bool, powers)) == sum(powers) <= 1
        (plain if is_plain else curved)[powers] = coefficient
    return plain, curved


def _total(bases: Sequence[Base], linear: Terms, moved: Sequence[Base], products: Terms) -> Plan:
    """Sum of constants and bases, and of products of the positive bases that some moved to."""
    plain, curved = _plain_and_curved(products)
    constant, parts, weights = Fraction(0), [], []
    for some, terms in ((bases, linear), (moved, plain)):
        for powers, coefficient in terms.items():
            if any(powers):
                parts.append(some[powers.index(1)].value)
                weights.append(_as_float(coefficient))
            else:
                constant += coefficient
    if curved:  # Eq. 10
        used = [j for j in range(len(moved)) if any(powers[j] for powers in curved)]
        logs = _plan.stack([moved[j].log() for j in used])
        exponents = np.array([[powers[j] for j in used] for powers in curved])
        parts.append(
            _plan.exponential(_plan.combine_outputs(logs, exponents, np.zeros(len(exponents))))
        )
        weights += map(_as_float, curved.values())
    if not parts:
        nothing = np.zeros((1, len(bases[0].value.ranges)))
        return _plan.combine_outputs(bases[0].value, nothing, np.array([_as_float(constant)]))
    return _plan.combine_outputs(
        _plan.stack(parts), np.array([weights]), np.array([_as_float(constant)])
    )


def _as_float(coefficient: Fraction) -> float:
    try:
        return float(coefficient)
    except OverflowError:
        raise ValueError(
            "multiplied out, the expression has a coefficient beyond float64; give the variables "
            "domains that do not cross zero, or measure them in larger units"
        ) from None
