"""Networks of one hidden layer for Lipschitz functions on [0, 1]: the PLN paper's propositions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import nn

from combutab.activations import PLN, PLS
from combutab.constructions._network import linear_layer

Function = Callable[[np.ndarray], np.ndarray]

_UNIT = 2.0**-53
_EPS = 1e-5  # of PLN and PLS


def lipschitz_network(
    function: Function,
    lipschitz: float,
    epsilon: float,
    activation: str = "pln",
    *,
    norm_size: int | None = None,
) -> nn.Sequential:
    """Network of one hidden layer within epsilon of a Lipschitz function on [0, 1].

    Propositions 1 to 3: with ``n = floor(L / (2 epsilon)) + 1`` (a quotient that is an integer up
    to rounding counts as an integer), n groups of PLN or PLS, n sigmoid or tanh units, or n + 1
    ReLU units suffice. PLN, PLS, sigmoid and tanh make n - 1 steps between the values at the
    middles of n equal intervals. The steps are so steep that their error is below epsilon - L / 2n.
    ReLU joins n + 1 points by straight lines.

    NOTE[DIFF]: Eq. 56 has N ReLU units for lines over N intervals, which take N + 1. Lines over
    N - 1 = n intervals are within L / 2n < epsilon too, so that proposition 3 holds as it stands.

    Parameters
    ----------
    function : callable, ndarray (m,) -> array (m,)
        On [0, 1].
    lipschitz : float
        A constant L with ``|f(x) - f(y)| <= L |x - y|``; taken on trust.
    epsilon : float
        The error is below it everywhere on [0, 1].
    activation : {"pln", "pls", "sigmoid", "tanh", "relu"}, default="pln"
    norm_size : int, optional
        Units in a group of PLN (at least and by default 2) or PLS (by default 1).

    Returns
    -------
    nn.Sequential of float64, (..., 1) -> (..., 1)
        Linear, activation, linear without bias.

    Raises
    ------
    ValueError
        If L or epsilon is not positive and finite, a value of the function is not finite, or
        L / 2n is so near to epsilon that rounding of values of that size would use it up.

    References
    ----------
    "Universal approximation theorem of networks activated by normalization", propositions 1 to 3.

    Examples
    --------
    >>> import torch
    >>> network = lipschitz_network(np.sin, 1.0, 0.05, "sigmoid")
    >>> x = torch.linspace(0, 1, 1001, dtype=torch.float64)[:, None]
    >>> network[0].out_features, bool((network(x) - torch.sin(x)).abs().max() < 0.05)
    (11, True)
    """
    n = _n_halves(lipschitz, epsilon) + 1
    if activation not in _STEPS and activation != "relu":
        raise ValueError(f"activation must be one of relu, {', '.join(_STEPS)}, got {activation!r}")
    if norm_size is not None and activation not in ("pln", "pls"):
        raise ValueError(f"{norm_size=} is for pln and pls, not for {activation!r}")
    margin = epsilon - lipschitz / (2 * n)  # error that remains for the steps or lines
    if activation == "relu":
        values = _function_values(function, np.arange(n + 1) / n)
        _check_rest(margin, n, np.abs(values).max() + 2 * lipschitz, lipschitz, epsilon)
        return _lines(values)
    values = _function_values(function, (np.arange(n) + 0.5) / n)
    _check_rest(margin, n, np.abs(values).max() + lipschitz, lipschitz, epsilon)
    return _step_network(_STEPS[activation](norm_size), values, margin / 2)


@dataclass(frozen=True)
class _Step:
    """A unit (or group of units) that goes from ``low`` to 1 like a step at z = 0.

    ``tail(z)`` bounds ``1 - s(z)`` for z > 0; a unit is ``weights`` times z, and counts by
    ``read``.
    """

    make: Callable[[int], nn.Module]  # number of steps -> activation
    weights: tuple[float, ...]
    read: tuple[float, ...]
    low: float
    tail: Callable[[np.ndarray], np.ndarray]


def _pln(norm_size: int | None) -> _Step:
    # lemma 2: (z, -z, 0, ...) -> z / sqrt(z^2 + eps d / 2), times sqrt(d / 2)
    d = 2 if norm_size is None else norm_size
    PLN(max(d, 2), d)  # its own error for sizes that it cannot have
    zeros = (0.0,) * (d - 2)
    return _Step(
        lambda n: PLN(n * d, d, eps=_EPS),
        (1.0, -1.0, *zeros),
        (math.sqrt(2 / d), 0.0, *zeros),
        -1.0,
        lambda z: _EPS * d / 4 / z**2,
    )


def _pls(norm_size: int | None) -> _Step:
    # (z, 0, ...) -> z / sqrt(z^2 + eps d), times sqrt(d)
    d = 1 if norm_size is None else norm_size
    PLS(max(d, 1), d)
    zeros = (0.0,) * (d - 1)
    return _Step(
        lambda n: PLS(n * d, d, eps=_EPS),
        (1.0, *zeros),
        (1 / math.sqrt(d), *zeros),
        -1.0,
        lambda z: _EPS * d / 2 / z**2,
    )


_STEPS: dict[str, Callable[[int | None], _Step]] = {
    "pln": _pln,
    "pls": _pls,
    "sigmoid": lambda _: _Step(lambda n: nn.Sigmoid(), (1.0,), (1.0,), 0.0, lambda z: np.exp(-z)),
    "tanh": lambda _: _Step(
        lambda n: nn.Tanh(), (1.0,), (1.0,), -1.0, lambda z: 2 * np.exp(-2 * z)
    ),
}


def _step_network(step: _Step, values: np.ndarray, allowed: float) -> nn.Sequential:
    """Steps from each value to the next, at 1/n, 2/n, ..., and one unit for the constant part."""
    n = len(values)
    jumps = np.diff(values) / (1 - step.low)  # Eqs. 17 and 39
    constant = values[0] if step.low == 0 else (values[0] + values[-1]) / 2  # Eq. 18
    heights = np.append(jumps, constant)
    shifts = np.append(-np.arange(1, n) / n, 1.0)
    # A step that is not quite one misses: the nearest nothing (it stays between the two values),
    # the k-th on each side at most its tail from (k - 1/2) / n on.
    distances = (np.arange(1, n) - 0.5) / n

    def missed(slope: float) -> float:
        far = 2 * np.abs(jumps).max(initial=0) * step.tail(slope * distances).sum()
        return float(far + abs(constant) * step.tail(np.array(slope)))

    slope = 2.0 * n
    while missed(slope) > allowed:
        slope *= 2
    weights, read = np.array(step.weights), np.array(step.read)
    return _network(
        np.tile(slope * weights, n),
        np.outer(slope * shifts, weights).ravel(),
        step.make(n),
        np.outer(heights, read).ravel(),
    )


def _lines(values: np.ndarray) -> nn.Sequential:
    """The lines between the values at 0, 1/n, ..., 1: one unit is constant, n change the slope."""
    n = len(values) - 1
    bends = n * np.diff(values, n=1, prepend=values[0])[1:]
    bends = np.diff(bends, prepend=0.0)
    return _network(
        np.append(0.0, np.ones(n)),
        np.append(1.0, -np.arange(n) / n),
        nn.ReLU(),
        np.append(values[0], bends),
    )


def _network(
    weight: np.ndarray, bias: np.ndarray, activation: nn.Module, out: np.ndarray
) -> nn.Sequential:
    return nn.Sequential(linear_layer(weight[:, None], bias), activation, linear_layer(out[None]))


def _n_halves(lipschitz: float, epsilon: float) -> int:
    """floor(L / 2 epsilon); a quotient that is an integer up to rounding counts as an integer."""
    for name, value in (("lipschitz", lipschitz), ("epsilon", epsilon)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return math.floor(lipschitz / (2 * epsilon) * (1 + 1e-12))


def _function_values(function: Function, x: np.ndarray) -> np.ndarray:
    values = np.asarray(function(x), dtype=np.float64)
    if values.shape != x.shape or not np.isfinite(values).all():
        raise ValueError(
            f"function must give a finite number for each of the {len(x)} points in [0, 1], got "
            f"shape {values.shape} with {int((~np.isfinite(values)).sum())} that are not finite"
        )
    return values


def _check_rest(margin: float, n: int, size: float, lipschitz: float, epsilon: float) -> None:
    rounding = 16 * n * _UNIT * size
    if margin <= rounding:
        raise ValueError(
            f"{epsilon=} exceeds L / 2n = {lipschitz / 2 / n!r} by {margin:.3g}, less than float64 "
            f"can hold for values of this size ({rounding:.3g}); take epsilon a little larger"
        )
