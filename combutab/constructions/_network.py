"""The module that a construction returns, and its rounding error."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from combutab.activations import CombU, ComplexCombU
from combutab.constructions._plan import (
    KINDS,
    REAL,
    Hidden,
    LinearMap,
    Plan,
    merged,
    plan_from_state,
    plan_state,
)

# ---- A plan's units as layers of CombU, or where there are trigonometric ones of ComplexCombU ----

_PART = {"cosine": "elu", "sine": "elu", "arctangent": "nlrelu"}  # of ComplexCombU


class Dense(NamedTuple):
    """A linear layer, and the activation that follows it; the last has none."""

    weight: np.ndarray  # (n_out, n_in)
    bias: np.ndarray
    activation: CombU | ComplexCombU | None


def dense_layers(plan: Plan) -> list[Dense]:
    """The layers of a plan whose units are sorted by kind."""
    paired = any((layer.kinds >= REAL).any() for layer in plan.hidden)
    layers, width = [], len(plan.domain)
    read = np.arange(width)  # where the units before are
    for layer in plan.hidden:
        columns, written, activation = _pair_columns(layer) if paired else _units(layer)
        affine = layer.affine
        weight, bias = np.zeros((activation.width, width)), np.zeros(activation.width)
        weight[np.ix_(written, read)], bias[written] = affine.weight, affine.bias
        layers.append(Dense(weight, bias, activation))
        read, width = columns, activation.width
    last = np.zeros((len(plan.last.bias), width))
    last[:, read] = plan.last.weight
    return [*layers, Dense(last, plan.last.bias, None)]


def linear_layer(weight: np.ndarray, bias: np.ndarray | None = None) -> nn.Linear:
    """Make a linear layer of (n_out, n_in) weights, in float64; no random number is drawn."""
    n_out, n_in = weight.shape
    layer: nn.Linear = nn.utils.skip_init(
        nn.Linear, n_in, n_out, bias=bias is not None, dtype=torch.float64
    )
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        if bias is not None:
            layer.bias.copy_(torch.from_numpy(bias))
    return layer


_Placed = tuple[np.ndarray, np.ndarray, CombU | ComplexCombU]  # outputs, inputs, of each unit


def _units(layer: Hidden) -> _Placed:
    width = len(layer.kinds)
    counts = np.bincount(layer.kinds, minlength=REAL).tolist()
    shares = zip(KINDS[:REAL], counts, strict=True)
    return np.arange(width), np.arange(width), CombU(width, {k: n / width for k, n in shares})


def _pair_columns(layer: Hidden) -> _Placed:
    """Columns of the units in ComplexCombU: real units in the real half, ReLUs in pairs."""
    pairs: dict[str, dict[object, int]] = {name: {} for name in KINDS[:REAL]}
    # part, pair, and whether the unit reads and writes the imaginary half
    placed: list[tuple[str, int, bool, bool]] = []
    n_relu = 0
    for row, kind in enumerate(layer.kinds):
        name = KINDS[kind]
        if name == "relu":
            pair, second = divmod(n_relu, 2)
            pairs["relu"][pair] = pair
            placed.append(("relu", pair, bool(second), bool(second)))
            n_relu += 1
            continue
        part, imaginary = _PART.get(name, name), kind >= REAL
        # a sine and a cosine of one number are a pair's two outputs
        number = (layer.affine.weight[row].tobytes(), layer.affine.bias[row].tobytes())
        part_pairs = pairs[part]
        pair = part_pairs.setdefault((imaginary, number), len(part_pairs))
        placed.append((part, pair, imaginary, imaginary and name != "cosine"))
    counts = {name: len(part_pairs) for name, part_pairs in pairs.items()}
    n = sum(counts.values())
    starts = dict(zip(counts, np.cumsum([0, *counts.values()]).tolist(), strict=False))
    activation = ComplexCombU(2 * n, {name: count / n for name, count in counts.items()})
    inputs = [starts[part] + pair + n * reads for part, pair, reads, _ in placed]
    outputs = [starts[part] + pair + n * writes for part, pair, _, writes in placed]
    return np.array(outputs), np.array(inputs), activation


_NEGLIGIBLE = 1e-12  # absolute error that is never refused


class ConstructedNetwork(nn.Module):
    """Linear layers and CombU layers whose weights were written down, not trained.

    Made by the functions of this package, in float64. ``layers`` is an ordinary
    ``nn.Sequential`` of ``nn.Linear`` and ``CombU``, or ``ComplexCombU`` throughout where a part is
    trigonometric; it can be trained, cast and moved, and it can start an estimator, as parameter
    ``init``. Outside of its domain the network is defined, but differs from its function:
    exponentials are constant above it, logarithms below it.

    Parameters
    ----------
    plan : Plan
        Of this package.
    inputs : sequence of str
        Names of the inputs.

    Attributes
    ----------
    layers : nn.Sequential
    inputs : tuple of str
    domain : tuple of (float, float)
        Range of each input within which the network equals its function up to rounding.
    output_range : tuple of (float, float)
        Bounds of each output on the domain, not necessarily tight.
    hidden_layer_sizes : tuple of int

    Shape
    -----
    (..., n_inputs) -> (..., n_outputs)

    References
    ----------
    "CombU: a combined unit activation for fitting mathematical expressions with neural
    networks", lemmas 0.1 and 0.2, theorem 0.3, appendix A.

    Examples
    --------
    >>> from combutab.constructions import monomial_network
    >>> network = monomial_network([2, -1], domain=[(1, 10), (1, 10)])
    >>> x = torch.tensor([3.0, 2.0], dtype=torch.float64)
    >>> print(f"{network(x).item():.12f}")
    4.500000000000
    >>> network.hidden_layer_sizes, network.domain
    ((2, 2), ((1.0, 10.0), (1.0, 10.0)))
    """

    def __init__(self, plan: Plan, inputs: Sequence[str]) -> None:
        super().__init__()
        self._plan = merged(plan)
        self.inputs = tuple(inputs)
        self.domain = _intervals(plan.domain)
        self.output_range = _intervals(plan.ranges)
        modules: list[nn.Module] = []
        for layer in dense_layers(self._plan):
            modules.append(linear_layer(layer.weight, layer.bias))
            if layer.activation is not None:
                modules.append(layer.activation)
        self.layers = nn.Sequential(*modules)
        self.check_rounding()

    @property
    def hidden_layer_sizes(self) -> tuple[int, ...]:
        return tuple(linear.out_features for linear in self._linears[:-1])

    @property
    def plan(self) -> Plan:
        """The weights as written down, for the laws of appendix A.

        Raises
        ------
        ValueError
            If the weights are not those any more: the network was trained.
        """
        for linear, layer in zip(self._linears, dense_layers(self._plan), strict=True):
            for parameter, written in ((linear.weight, layer.weight), (linear.bias, layer.bias)):
                if not torch.equal(parameter.cpu(), torch.from_numpy(written).to(parameter.dtype)):
                    raise ValueError(
                        "the network was changed since it was made, so that its ranges and "
                        "rounding errors are not known; construct it anew"
                    )
        return self._plan

    def forward(self, x: Tensor) -> Tensor:  # (..., n_inputs) -> (..., n_outputs)
        return self.layers(x)

    @torch.no_grad()
    def rounding_error(self, x: Tensor) -> Tensor:
        """Bound the distance of the outputs from the exact values, by rounding, at these inputs.

        A rigorous running bound of the errors of the rounded weights and of every operation, in
        the precision of the network. It shows the effect of a domain: exp(x) on
        (m, M) is known to about ``2**-53 * exp(M)`` everywhere, so that values far below exp(M)
        have few right digits or none.

        Parameters
        ----------
        x : Tensor, (..., n_inputs)
            Of the network's dtype.

        Returns
        -------
        Tensor, (..., n_outputs)
            Bounds of the absolute error; inf for inputs outside of the domain, where the network
            stands for nothing.

        Raises
        ------
        ValueError
            If the network was trained since it was made.

        Examples
        --------
        >>> from combutab.constructions import exp_network
        >>> network = exp_network((0, 30))
        >>> x = torch.tensor([[0.0], [30.0]], dtype=torch.float64)
        >>> (network.rounding_error(x) / torch.exp(x)).log10().round().flatten().tolist()
        [-2.0, -13.0]
        """
        plan = self.plan
        info = torch.finfo(self._dtype)
        rounding = info.eps / 2, info.smallest_normal * info.eps
        exact = x.double()  # the arithmetic of the bound itself; its errors are far below it
        low, high = torch.as_tensor(self.domain, dtype=torch.float64, device=x.device).T
        inside = ((exact >= low) & (exact <= high)).all(-1, keepdim=True)
        h, error = exact, torch.zeros_like(exact)
        for i, affine in enumerate(plan.maps):
            h, error = _affine_error(affine, h, error, *rounding)
            if i < plan.depth:
                h, error = _unit_error(plan.hidden[i].kinds, h, error, *rounding)
        return torch.where(inside, error, torch.inf)

    def check_rounding(self) -> None:
        """Refuse the network if rounding, in its precision, leaves no digit of an output.

        Looks at 64 places all over the domain; every network is checked when it is made, in
        float64. Errors up to 1e-12 are never refused.

        Raises
        ------
        ValueError
            With the numbers; or if the network was trained since it was made.

        Examples
        --------
        >>> from combutab.constructions import expression_network
        >>> network = expression_network("1/(1 + exp(-x))", {"x": (-20, 20)})
        >>> network.check_rounding()
        >>> network.float().check_rounding()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: rounding in float32 may move the output by ..., and it is 1 at most ...
        """
        low, high = np.array(self.domain).T
        shares = np.random.default_rng(0).random((61, len(low)))
        shares = np.vstack([np.zeros_like(low), np.full_like(low, 0.5), np.ones_like(low), shares])
        x = torch.from_numpy(np.clip(low + shares * (high - low), low, high))
        with torch.no_grad():
            values = copy.deepcopy(self).cpu().double()(x)
        largest, error = values.abs().amax(0), self.rounding_error(x).amax(0)
        for output, bound in zip(largest.tolist(), error.tolist(), strict=True):
            # an output that is zero up to rounding is not an error
            if bound > max(output, _NEGLIGIBLE):
                raise ValueError(
                    f"rounding in {str(self._dtype).removeprefix('torch.')} may move the output "
                    f"by {bound:.3g}, and it is {output:.3g} at most in {len(x)} places of the "
                    "domain: terms in the formula are much larger than their sum; narrow the "
                    "domain, write the formula without them, or use a higher precision"
                )

    @property
    def _linears(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def to_state(self) -> dict[str, Any]:
        """Give the network's ingredients as lists of numbers, for files without code.

        Raises
        ------
        ValueError
            If the network was trained since it was made.
        """
        return {"plan": plan_state(self.plan), "inputs": list(self.inputs)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> ConstructedNetwork:
        """The network, in float64, that ``to_state`` described.

        Raises
        ------
        ValueError
            If the state is of no network.

        Examples
        --------
        >>> from combutab.constructions import log_network
        >>> ConstructedNetwork.from_state(log_network((1, 2)).to_state()).domain
        ((1.0, 2.0),)
        """
        plan, inputs = plan_from_state(state["plan"]), state["inputs"]
        if not isinstance(inputs, list) or list(map(type, inputs)) != [str] * len(plan.domain):
            raise ValueError(f"the construction needs names of {len(plan.domain)} inputs")
        return cls(plan, inputs)

    def extra_repr(self) -> str:
        intervals = zip(self.inputs, self.domain, strict=True)
        return ", ".join(f"{name} in ({low:g}, {high:g})" for name, (low, high) in intervals)


def _intervals(ranges: np.ndarray) -> tuple[tuple[float, float], ...]:
    return tuple((low, high) for low, high in ranges.tolist())


def _affine_error(
    affine: LinearMap, h: Tensor, error: Tensor, unit: float, smallest: float
) -> tuple[Tensor, Tensor]:
    """Result of a linear layer and its error, for inputs known up to ``error``.

    A result is rounded by ``unit`` times its size, or by the ``least`` number above zero.
    """

    arrays = (affine.weight, affine.bias, affine.weight_error, affine.bias_error)
    weight, bias, weight_error, bias_error = (torch.from_numpy(a).to(h.device) for a in arrays)
    z = h @ weight.T + bias
    # n + 3 roundings: n products with n - 1 sums, the bias, the weights in the network's dtype
    n_roundings = len(affine.weight[0]) + 3
    rounding = n_roundings * unit
    size = h.abs() + error
    error = error @ weight.abs().T + size @ weight_error.T
    # the factor first: weights near the largest float64 would overflow
    error += (rounding * size) @ weight.abs().T + rounding * bias.abs()
    error += n_roundings * smallest * (1 + size.sum(-1, keepdim=True))
    return z, error + bias_error


def _unit_error(
    kinds: np.ndarray, z: Tensor, error: Tensor, unit: float, smallest: float
) -> tuple[Tensor, Tensor]:
    """Result of units and its error: steepest slope near z, 8 roundings (cos - 1 has the most)."""
    above, one = z.clamp_min(0), torch.ones_like(z)
    of_kinds = (  # value and slope, in the order of KINDS
        (above, (z + error > 0).double()),
        (above + z.clamp_max(0).expm1(), (z + error).clamp_max(0).exp()),
        (above.log1p(), 1 / (1 + (z - error).clamp_min(0))),
        (-2 * (z / 2).sin().square(), one),
        (z.sin(), one),
        (z.atan(), one),
    )
    value, slope = torch.zeros_like(z), torch.zeros_like(z)
    kind = torch.from_numpy(kinds).to(z.device)
    for number, (values, own_slope) in enumerate(of_kinds):
        value = torch.where(kind == number, values, value)
        slope = torch.where(kind == number, own_slope, slope)
    return value, slope * error + 8 * (unit * value.abs() + smallest)
