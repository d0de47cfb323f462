"""Read what passes through the layers of a network, by forward hooks."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from combutab import activations
from combutab._suggestions import known_instead
from combutab.activations.kernels import observer
from combutab.nn import StackedActivation, StackedNorm

Layers = str | Sequence[str] | type[nn.Module] | Sequence[type[nn.Module]] | None
See = Callable[[str, nn.Module, Tensor, Tensor], None]  # name, module, its input, its output

# Of torch.nn.modules.activation all but attention, gates that halve the width, and probabilities
_OTHERS = {"MultiheadAttention", "GLU", "Softmin", "Softmax", "Softmax2d", "LogSoftmax"}
ACTIVATION_KINDS: tuple[type[nn.Module], ...] = (
    *(getattr(nn, name) for name in nn.modules.activation.__all__ if name not in _OTHERS),
    *(
        thing
        for thing in (getattr(activations, name) for name in activations.__all__)
        if isinstance(thing, type) and issubclass(thing, nn.Module)
    ),
    StackedActivation,
)
NORM_KINDS: tuple[type[nn.Module], ...] = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    StackedNorm,
)


@dataclass(frozen=True)
class Opened:
    """A network, and the arguments of its forward passes, a batch at a time.

    ``members`` has the activation of each member of a stack, whose layers give (members, rows,
    units); it is empty for a torch module.
    """

    network: nn.Module
    batches: Iterable[tuple[Tensor, ...]]
    members: tuple[str, ...] = ()


def open_model(model: Any, X: Any, batch_size: int) -> Opened:
    """The network of a fitted estimator, or a torch module, and X in batches.

    Raises TypeError if the model is neither, or X is not what it takes; ValueError if
    ``batch_size`` is less than 1, X has no rows, or the estimator is not fitted.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if isinstance(model, nn.Module):
        return Opened(model, _module_batches(model, X, batch_size))
    from combutab.estimators import MLPClassifier, MLPRegressor

    while not isinstance(model, MLPClassifier | MLPRegressor):
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif hasattr(model, "steps"):  # a pipeline
            X = model[:-1].transform(X) if len(model.steps) > 1 else X
            model = model.steps[-1][1]
        else:
            raise TypeError(
                f"model must be a fitted MLPClassifier or MLPRegressor, a pipeline or search that "
                f"ends in one, or a torch module, got {type(model).__name__}"
            )
    check_is_fitted(model)
    table = model.encoder_.encode(X, owner=model)
    dense, codes = torch.from_numpy(table.dense), torch.from_numpy(table.codes)
    return open_stack(model._network(), dense, codes, batch_size)


def open_stack(network: Any, dense: Tensor, codes: Tensor | None, batch_size: int) -> Opened:
    """A `StackedMLP`, and rows that its members share: (n, n_dense), (n, n_codes) or None."""
    members = tuple(_name(member.activation) for member in network.members)
    return Opened(network, _stack_batches(network, dense, codes, batch_size), members)


def _name(activation: Any) -> str:
    return activation if isinstance(activation, str) else getattr(activation, "__name__", "custom")


def _stack_batches(
    network: Any, dense: Tensor, codes: Tensor | None, batch_size: int
) -> Iterator[tuple[Tensor, ...]]:
    for start in range(0, len(dense), batch_size):
        rows = slice(start, start + batch_size)
        parts = [dense[rows].to(network.device, network.dtype)]
        if codes is not None:
            parts.append(codes[rows].to(network.device))
        yield tuple(part.expand(network.n_members, *part.shape) for part in parts)


def _module_batches(model: nn.Module, X: Any, batch_size: int) -> Iterable[tuple[Tensor, ...]]:
    tensors = itertools.chain(model.parameters(), model.buffers())
    like = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
    if isinstance(X, pd.DataFrame):
        raise TypeError(
            "a torch module takes tensors or arrays, got a DataFrame; encode it first, as "
            "TableEncoder().fit_transform does"
        )
    if isinstance(X, np.ndarray):
        X = torch.from_numpy(X)
    if not isinstance(X, Tensor):
        if not isinstance(X, Iterable):
            raise TypeError(
                "X must be a tensor, an array, or an iterable of batches such as a DataLoader, "
                f"got {type(X).__name__}"
            )
        return (_arguments(batch, like) for batch in X)
    if not len(X):
        raise ValueError("X has no rows")
    return (_arguments(part, like) for part in X.split(batch_size))


def _arguments(batch: Any, like: Tensor | None) -> tuple[Tensor, ...]:
    """A batch of a DataLoader is its inputs, or a list that begins with them."""
    inputs = batch[0] if isinstance(batch, list | tuple) else batch
    if not isinstance(inputs, Tensor):
        raise TypeError(f"a batch must be a tensor or begin with one, got {type(inputs).__name__}")
    if like is None:  # no weights to say where, and how exact
        return (inputs,)
    return (inputs.to(like.device, like.dtype if inputs.is_floating_point() else None),)


def choose(
    opened: Opened, layers: Layers, kinds: tuple[type[nn.Module], ...]
) -> dict[str, nn.Module]:
    """The modules to look at, by their names in the network.

    ``layers`` are names, or kinds of module; None takes ``kinds``, without those inside another
    of them, and in a stack its own slots alone. The result is empty if None finds nothing. The
    network itself is named "-".

    Raises ValueError if a name is not there, or no module is of the kind asked for.
    """
    named = {name or "-": module for name, module in opened.network.named_modules()}
    if opened.members:
        kinds = tuple(kind for kind in kinds if kind in (StackedActivation, StackedNorm))
    asked: Any = (layers,) if isinstance(layers, str | type) else layers
    if asked is not None and not all(isinstance(each, type) for each in asked):
        return {name: named[_known(name, named)] for name in asked}
    wanted = kinds if asked is None else tuple(asked)
    found: dict[str, nn.Module] = {}
    for name, module in named.items():
        inside = any(outer == "-" or name.startswith(f"{outer}.") for outer in found)
        if isinstance(module, wanted) and not inside:
            found[name] = module
    if layers is not None and not found:
        raise ValueError(
            f"no module is a {layers}; give other classes, or names of named_modules()"
        )
    return found


def check_found(hooked: dict[str, nn.Module], what: str) -> None:
    """Refuse a network in which nothing was found to look at."""
    if not hooked:
        raise ValueError(
            f"the network has no {what} modules; name layers by layers=, and use modules such as "
            "nn.ReLU for functions such as F.relu, which cannot be seen"
        )


def _known(name: Any, named: Mapping[str, nn.Module]) -> str:
    if name not in named:
        near = known_instead(name, named)
        raise ValueError(f"the network has no layer {name!r}; {near} (named_modules() has all)")
    return name


@torch.no_grad()
def run(
    network: nn.Module, arguments: tuple[Tensor, ...], hooked: Mapping[str, nn.Module], see: See
) -> None:
    """One forward pass in evaluation mode, with ``see`` at each call of a hooked module.

    A module that is called several times in a pass is named ``relu``, ``relu[2]``, ``relu[3]``.
    """
    calls: Counter[str] = Counter()
    inputs: list[Tensor] = []  # of the calls under way, the innermost last
    seeing = False  # what ``see`` calls is no part of the pass

    def before(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            if not seeing:  # a copy, as the module may work in place
                inputs.append(_tensor(args[0] if args else None, name, "is given").clone())

        return hook

    def after(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            nonlocal seeing
            if seeing:
                return
            calls[name] += 1
            call = f"{name}[{calls[name]}]" if calls[name] > 1 else name
            seeing = True
            see(call, module, inputs.pop(), _tensor(output, name, "returns"))
            seeing = False

        return hook

    modes = [(module, module.training) for module in network.modules()]
    handles = []
    try:
        network.eval()
        for name, module in hooked.items():
            handles.append(module.register_forward_pre_hook(observer(before(name))))
            handles.append(module.register_forward_hook(observer(after(name))))
        network(*arguments)
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in modes:
            module.training = mode


def _tensor(value: Any, name: str, what: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(
            f"layer {name!r} {what} {type(value).__name__}, not a tensor; choose others by layers="
        )
    return value


def feature_axis(network: nn.Module, name: str, dim: int | None) -> int | None:
    """The axis of a layer's features: the last within ProxyNorm, which moves them there."""
    path = name.partition("[")[0].split(".")
    outer = (network.get_submodule(".".join(path[:i])) for i in range(len(path)) if name != "-")
    return -1 if any(isinstance(each, activations.ProxyNorm) for each in outer) else dim


def by_unit(values: Tensor, name: str, dim: int | None, *, members: bool) -> Tensor:
    """Return a layer's output as (members, rows, units, positions), float64.

    Raises ValueError if it has positions and ``dim`` is not the axis of the units.
    """
    n_axes = values.ndim - members
    if n_axes < 2:
        raise ValueError(
            f"layer {name!r} has values of shape {tuple(values.shape)}, not (rows, features)"
        )
    if n_axes > 2 and dim is None:
        raise ValueError(
            f"layer {name!r} has values of shape {tuple(values.shape)}: say which axis holds the "
            "features, dim=1 for channels as in a convolution, dim=-1 for the last axis"
        )
    if not members:
        dim = -1 if dim is None else dim
        if not -n_axes < dim < n_axes or dim == 0:
            raise ValueError(
                f"dim={dim} is no feature axis of layer {name!r}, whose values have the shape "
                f"{tuple(values.shape)}, rows first"
            )
        values = values.movedim(dim, 1).unsqueeze(0)
    return values.double().reshape(*values.shape[:3], -1)


def as_samples(values: Tensor) -> Tensor:
    """(members, rows, units, positions) -> (members, rows x positions, units)."""
    return values.movedim(3, 2).flatten(1, 2)


class RunningMoments:
    """Mean and biased variance over the rows of what comes in parts, for each unit.

    Merged as Chan, Golub and LeVeque (1983) do: as exact as over all at once.

    >>> moments = RunningMoments()
    >>> moments.add(torch.tensor([[1.0], [2.0]]))
    >>> moments.add(torch.tensor([[6.0]]))
    >>> moments.mean.item(), round(moments.variance.item(), 3)
    (3.0, 4.667)
    """

    def __init__(self) -> None:
        self.n = 0
        self.mean, self._squares = torch.zeros(()), torch.zeros(())

    def add(self, values: Tensor) -> None:
        """Take in a part, (..., rows, units)."""
        n, total = values.shape[-2], self.n + values.shape[-2]
        mean = values.mean(-2)
        squares = (values - mean.unsqueeze(-2)).square().sum(-2)
        delta = mean - self.mean.to(mean)
        self._squares = self._squares.to(mean) + squares + delta.square() * (self.n * n / total)
        self.mean = self.mean.to(mean) + delta * (n / total)
        self.n = total

    @property
    def variance(self) -> Tensor:
        """Biased, (..., units)."""
        return self._squares / self.n
