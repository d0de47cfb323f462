"""A plan's units as layers of CombU, or where there are trigonometric ones of ComplexCombU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from combutab.activations import CombU, ComplexCombU
from combutab.constructions._plan import KINDS, REAL, Hidden, Plan

_PART = {"cosine": "elu", "sine": "elu", "arctangent": "nlrelu"}  # of ComplexCombU


@dataclass(frozen=True, eq=False)
class Dense:
    """A linear layer, and the activation that follows it; the last has none."""

    weight: np.ndarray  # (n_out, n_in)
    bias: np.ndarray
    activation: CombU | ComplexCombU | None


def dense_layers(plan: Plan) -> list[Dense]:
    """The layers of a plan whose units are sorted by kind."""
    paired = any((layer.kinds >= REAL).any() for layer in plan.hidden)
    read: np.ndarray | None = None  # where the units before are
    found, width = [], len(plan.domain)
    for layer in plan.hidden:
        places, written, activation = _pairs(layer) if paired else _units(layer)
        made = layer.affine
        weight, bias = np.zeros((activation.width, width)), np.zeros(activation.width)
        columns = np.arange(width) if read is None else read
        weight[np.ix_(written, columns)], bias[written] = made.weight, made.bias
        found.append(Dense(weight, bias, activation))
        read, width = places, activation.width
    last = np.zeros((len(plan.last.bias), width))
    last[:, np.arange(width) if read is None else read] = plan.last.weight
    return [*found, Dense(last, plan.last.bias, None)]


def as_modules(layers: Sequence[Dense]) -> nn.Sequential:
    """The layers in float64."""
    modules: list[nn.Module] = []
    for layer in layers:
        n_out, n_in = layer.weight.shape
        # skip_init: nothing is drawn, the caller's random numbers stay as they are
        linear = nn.utils.skip_init(nn.Linear, n_in, n_out, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(layer.weight))
            linear.bias.copy_(torch.from_numpy(layer.bias))
        modules += [linear] if layer.activation is None else [linear, layer.activation]
    return nn.Sequential(*modules)


_Placed = tuple[np.ndarray, np.ndarray, CombU | ComplexCombU]  # outputs, inputs, of each unit


def _units(layer: Hidden) -> _Placed:
    width = len(layer.kinds)
    counts = np.bincount(layer.kinds, minlength=REAL).tolist()
    shares = zip(KINDS[:REAL], counts, strict=True)
    return np.arange(width), np.arange(width), CombU(width, {k: n / width for k, n in shares})


def _pairs(layer: Hidden) -> _Placed:
    """Places of units among pairs: a real unit's in the real half, two ReLUs to a pair."""
    pairs: dict[str, dict[object, int]] = {name: {} for name in KINDS[:REAL]}
    placed: list[tuple[str, int, bool, bool]] = []  # part, pair, given and gives the imaginary half
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
        own = pairs[part]
        pair = own.setdefault((imaginary, number), len(own))
        placed.append((part, pair, imaginary, imaginary and name != "cosine"))
    counts = {name: len(own) for name, own in pairs.items()}
    n = sum(counts.values())
    starts = dict(zip(counts, np.cumsum([0, *counts.values()]).tolist(), strict=False))
    activation = ComplexCombU(2 * n, {name: count / n for name, count in counts.items()})
    inputs = [starts[part] + pair + n * given for part, pair, given, _ in placed]
    outputs = [starts[part] + pair + n * gives for part, pair, _, gives in placed]
    return np.array(outputs), np.array(inputs), activation
