"""A constructed network as the start of a fit: its units in the estimator's layers and units."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from combutab.activations import CombU, ComplexCombU
from combutab.activations.kernels import is_known
from combutab.constructions import ConstructedNetwork
from combutab.core.device import Precision
from combutab.nn import ActivationSpec, Member, NetworkSpec, build_activation
from combutab.preprocessing import TableEncoder


@dataclass(frozen=True, eq=False)
class _Layer:
    """A linear map (out, in), and the names of the parts that its output units belong to."""

    weight: np.ndarray
    bias: np.ndarray
    kinds: tuple[str, ...]


def initial_widths(
    init: ConstructedNetwork, activation: ActivationSpec, sizes: Sequence[int] | None
) -> tuple[int, ...]:
    """Hidden layers that hold the network: the smallest, or these sizes if they do.

    Raises ValueError with the required values if the sizes or the activation do not suit it.
    """
    layers = _linear_layers(init)
    if sizes is None:
        return tuple(_smallest_width(activation, layer.kinds) for layer in layers[:-1])
    hidden = _deepened(layers, len(sizes))[:-1]
    if len(hidden) > len(sizes) or not all(
        _fits(_units_by_part(activation, width), layer.kinds)
        for layer, width in zip(hidden, sizes, strict=True)
    ):
        smallest = tuple(_smallest_width(activation, layer.kinds) for layer in layers[:-1])
        raise ValueError(
            f"hidden_layer_sizes={tuple(sizes)} has no place for init=network, whose layers are "
            f"{'; '.join(_count(layer.kinds) for layer in layers[:-1])}: at least {smallest} with "
            f"activation={activation!r}, and further layers of 4 units an output; or use 'auto'"
        )
    return tuple(sizes)


# values that parameters must have: with others a network would differ from the constructed one
_NEEDED: Mapping[str, Sequence[Any]] = {
    "dropout": (0,),
    "normalization": ("none",),
    "proxy_norm": (False,),
    "numeric_embedding": ("none",),
    "scale_inputs": (False,),
    "numeric_encoding": ("standard", "none"),  # which are linear
}


def check_initial(init: ConstructedNetwork, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that do not fit a constructed network, before any work on data."""
    for name, required in _NEEDED.items():
        if parameters[name] not in required:
            raise ValueError(
                f"init=network needs {name}={' or '.join(map(repr, required))}, got "
                f"{parameters[name]!r}: its units add up to what it was made for only as they are; "
                "paper_recipe has parameters that fit"
            )
    network = copy.deepcopy(init).to(Precision(parameters["precision"]).dtype)
    try:
        network.check_rounding()
    except ValueError as error:
        raise ValueError(f"init=network cannot start the fit: {error}") from None


def initial_states(
    init: ConstructedNetwork,
    spec: NetworkSpec,
    members: Sequence[Member],
    encoder: TableEncoder,
    units: tuple[np.ndarray, np.ndarray],
) -> tuple[dict[str, Tensor], ...]:
    """States of members that predict what ``init`` does.

    The scaling of the table goes into the first layer, that of the target, ``units`` (its shift
    and scale), into the last. Units that the network leaves over are drawn as usual, and nothing
    reads them yet.
    """
    shift, scale = units
    layers = _deepened(_linear_layers(init), len(spec.widths) - 2)
    if len(layers[-1].bias) != spec.n_outputs:
        raise ValueError(
            f"init has {len(layers[-1].bias)} outputs, and the estimator {spec.n_outputs}"
        )
    layers[0] = _scaled_inputs(init, encoder, layers[0], spec.widths[0])
    last = layers[-1]
    weight, bias = last.weight / scale[:, None], (last.bias - shift) / scale
    layers[-1] = _Layer(weight, bias, ())
    return tuple(_state(spec, member, layers) for member in members)


def _linear_layers(init: ConstructedNetwork) -> list[_Layer]:
    modules = list(init.layers)
    layers = []
    for linear, units in zip(modules[::2], [*modules[1::2], None], strict=True):
        assert isinstance(linear, nn.Linear)
        parts = {} if units is None else _places(units)
        kind_of = {unit: name for name, part in parts.items() for unit in part}
        layers.append(
            _Layer(
                linear.weight.detach().cpu().double().numpy(),
                linear.bias.detach().cpu().double().numpy(),
                tuple(kind_of[unit] for unit in sorted(kind_of)),
            )
        )
    return layers


def _deepened(layers: list[_Layer], depth: int) -> list[_Layer]:
    """The outputs handed on, as R(z) - R(-z), until there are that many hidden layers."""
    layers = list(layers)
    while len(layers) - 1 < depth:
        last = layers.pop()
        eye = np.eye(len(last.bias))
        both = np.concatenate([eye, -eye])
        layers.append(_Layer(both @ last.weight, both @ last.bias, ("relu",) * len(both)))
        layers.append(_Layer(both.T, np.zeros(len(eye)), ()))
    return layers


def _units_by_part(activation: ActivationSpec, width: int) -> dict[str, Sequence[int]]:
    """List the units of a layer by their part of CombU, or of ComplexCombU."""
    module = build_activation(activation, width)
    contiguous = isinstance(module, ComplexCombU) or (
        isinstance(module, CombU) and module.partition is None
    )
    if not contiguous or not is_known(module):
        raise ValueError(
            "init=network needs activation='combu', or a CombU of other ratios and contiguous "
            "parts (for a trigonometric law 'complex-combu', or a ComplexCombU), got "
            f"{activation!r}"
        )
    return _places(module)


def _places(module: nn.Module) -> dict[str, Sequence[int]]:
    """Units by part; those of a complex part in the order of its pairs, a name for either half."""
    if isinstance(module, CombU):
        return {name: range(start, start + length) for name, start, length in module.spans}
    assert isinstance(module, ComplexCombU)
    parts: dict[str, Sequence[int]] = {}
    for name, start, length in module.spans:
        real = range(start, start + length)
        imaginary = [unit + module.width // 2 for unit in real]
        if name == "relu":  # its halves are separate units
            parts[name] = [*real, *imaginary]
        else:
            parts |= {f"complex {name}": real, f"imaginary {name}": imaginary}
    return parts


def _fits(parts: dict[str, Sequence[int]], kinds: Sequence[str]) -> bool:
    return all(len(parts.get(kind, ())) >= kinds.count(kind) for kind in set(kinds))


def _smallest_width(activation: ActivationSpec, kinds: tuple[str, ...]) -> int:
    step = 2 if isinstance(build_activation(activation, 2), ComplexCombU) else 1
    # a share of 1/64 or more has room for every unit before the last of these
    for width in range(len(kinds) + len(kinds) % step, 64 * len(kinds) + 1, step):
        if _fits(_units_by_part(activation, width), kinds):
            return width
    raise ValueError(
        f"init=network has a layer of {_count(kinds)}, and layers of activation={activation!r} "
        "have no place for them; use activation="
        f"{'complex-combu' if 'complex elu' in kinds or 'complex nlrelu' in kinds else 'combu'!r}"
    )


def _count(kinds: Sequence[str]) -> str:
    names = dict.fromkeys(kinds)
    return " and ".join(f"{kinds.count(name)} {name}" for name in names) + " units"


def _scaled_inputs(
    init: ConstructedNetwork, encoder: TableEncoder, first: _Layer, n_inputs: int
) -> _Layer:
    """The first layer of encoded columns instead of the user's."""
    scaler = encoder.numeric_scaler_
    starts = {span.column: span.slice.start for span in encoder.spans_ if span.kind == "numeric"}
    weight, bias = np.zeros((len(first.bias), n_inputs)), first.bias.copy()
    for j, (name, column) in enumerate(
        zip(init.inputs, _input_columns(init, encoder), strict=True)
    ):
        if not first.weight[:, j].any():
            continue
        if column not in starts:
            raise ValueError(
                f"init takes {name} for a number, and that column holds categories; name it in no "
                "categorical_features, or leave it out of the formula"
            )
        start = starts[column]
        if scaler.constant[start]:
            raise ValueError(
                f"init takes {name}, which is constant in the training data, so that the network "
                "is not told its value; write the number into the formula"
            )
        weight[:, start] += first.weight[:, j] * scaler.scale[start]
        bias += first.weight[:, j] * scaler.centre[start]
    return _Layer(weight, bias, first.kinds)


def _input_columns(init: ConstructedNetwork, encoder: TableEncoder) -> list[int]:
    """The table's column of each input of the network: by name where both have names."""
    inputs, n_columns = init.inputs, encoder.n_features_in_
    names = list(getattr(encoder, "feature_names_in_", []))
    if set(inputs) <= set(names):
        return [names.index(name) for name in inputs]
    unnamed = inputs == tuple(f"x{j}" for j in range(len(inputs)))
    if len(inputs) == n_columns and (unnamed or not names):
        return list(range(len(inputs)))
    raise ValueError(
        f"init takes {', '.join(inputs)}, and the table has "
        f"{', '.join(names) or f'{n_columns} columns without names'}; give the "
        "network's domain those columns, in their order (expression_network takes the table itself)"
    )


def _state(spec: NetworkSpec, member: Member, layers: Sequence[_Layer]) -> dict[str, Tensor]:
    state = spec.build([member], dtype=torch.float64).member_state(0)
    before: list[int] = []
    for i, layer in enumerate(layers):
        weight = state[f"linears.{i}.weight"]  # (in, out)
        bias = state[f"linears.{i}.bias"].view(-1)
        if layer.kinds:
            parts = {
                k: iter(r) for k, r in _units_by_part(member.activation, weight.shape[1]).items()
            }
            units = [next(parts[kind]) for kind in layer.kinds]
        else:
            units = list(range(len(layer.bias)))
        weight[:, units] = 0.0  # unused units have no input
        rows = torch.tensor(before if i else range(len(weight)))
        weight[rows[:, None], torch.tensor(units)] = torch.from_numpy(layer.weight.T.copy())
        bias[units] = torch.from_numpy(layer.bias)
        before = units
    return state
