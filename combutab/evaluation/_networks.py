"""Statistics of the activation layers of a network, and the power of their channels."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from combutab import activations
from combutab.activations.kernels import observer
from combutab.core.rng import Stream, fold_in, seed_from
from combutab.core.text import known_instead
from combutab.nn import StackedActivation, StackedNorm, TableNetwork

# ---- The input and output of layers, by forward hooks --------------------------------------------

Layers = str | Sequence[str] | None
Observer = Callable[[str, nn.Module, Tensor, Tensor], None]  # name, module, its input, its output

# Modules of torch.nn.modules.activation that are not activations of units: attention, gates that
# halve the width, and probabilities
_NOT_ACTIVATIONS = {"MultiheadAttention", "GLU", "Softmin", "Softmax", "Softmax2d", "LogSoftmax"}
ACTIVATION_KINDS: tuple[type[nn.Module], ...] = (
    *(getattr(nn, name) for name in nn.modules.activation.__all__ if name not in _NOT_ACTIVATIONS),
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
class _NetworkInputs:
    """A network and the arguments of its forward pass, whose first axis has the rows.

    ``members`` has the activation of each member of a stack, whose layers return tensors of shape
    (members, rows, units). It is empty for a torch module.
    """

    network: nn.Module
    arguments: tuple[Tensor, ...]
    batch_size: int
    members: tuple[str, ...] = ()

    def batches(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield the arguments of each pass. The members of a stack share the rows."""
        splits = (tensor.split(self.batch_size) for tensor in self.arguments)
        for tensors in zip(*splits, strict=True):
            if self.members:
                tensors = tuple(
                    tensor.expand(len(self.members), *tensor.shape) for tensor in tensors
                )
            yield tensors


def network_inputs(model: Any, X: Any, batch_size: int) -> _NetworkInputs:
    """Prepare the passes of X through a fitted estimator, a torch module or a stack of networks.

    Raises TypeError if the model or X has another type, and ValueError if
    ``batch_size`` is less than 1, X has no rows or the estimator is not fitted.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if isinstance(model, TableNetwork):
        return _stack_inputs(model, X.dense, X.codes, batch_size)
    if isinstance(model, nn.Module):
        return _NetworkInputs(model, (_module_input(model, X),), batch_size)
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
    return _stack_inputs(model.network(), dense, codes, batch_size)


def _stack_inputs(
    network: Any, dense: Tensor, codes: Tensor | None, batch_size: int
) -> _NetworkInputs:
    """Prepare the passes of rows that all members share: (n, n_dense), and (n, n_codes) or None."""
    specs = [member.activation for member in network.members]
    names = [
        spec if isinstance(spec, str) else getattr(spec, "__name__", "custom") for spec in specs
    ]
    arguments = [dense.to(network.device, network.dtype)]
    if codes is not None:
        arguments.append(codes.to(network.device))
    return _NetworkInputs(network, tuple(arguments), batch_size, tuple(names))


def _module_input(model: nn.Module, X: Any) -> Tensor:
    """Return X as a tensor, on the device and in the precision of the module's weights."""
    if isinstance(X, np.ndarray):
        X = torch.from_numpy(X)
    if not isinstance(X, Tensor):
        raise TypeError(
            f"a torch module takes a tensor or an array, got {type(X).__name__}; encode a "
            "DataFrame first, as TableEncoder().fit_transform does"
        )
    if not len(X):
        raise ValueError("X has no rows")
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        if tensor.is_floating_point():
            return X.to(tensor.device, tensor.dtype if X.is_floating_point() else None)
    return X


def select_layers(
    inputs: _NetworkInputs, layers: Layers, kinds: tuple[type[nn.Module], ...]
) -> dict[str, nn.Module]:
    """Return the layers to observe, by their names in the network; the network itself is "-".

    By default these are the modules of ``kinds`` that are not inside another one, and in a stack
    only its slots. Raises ValueError if the network has no layer of a name in ``layers``.
    """
    modules = {name or "-": module for name, module in inputs.network.named_modules()}
    if layers is not None:
        names = [layers] if isinstance(layers, str) else layers
        for name in names:
            if name not in modules:
                raise ValueError(
                    f"the network has no layer {name!r}; {known_instead(name, modules)} "
                    "(named_modules() has all)"
                )
        return {name: modules[name] for name in names}
    if inputs.members:
        kinds = tuple(kind for kind in kinds if kind in (StackedActivation, StackedNorm))
    selected: dict[str, nn.Module] = {}
    for name, module in modules.items():
        inside = any(outer == "-" or name.startswith(f"{outer}.") for outer in selected)
        if isinstance(module, kinds) and not inside:
            selected[name] = module
    return selected


def check_not_empty(layers: dict[str, nn.Module], kind: str) -> None:
    """Raise ValueError if no layer was found."""
    if not layers:
        raise ValueError(
            f"the network has no {kind} modules; name layers by layers=, and use modules such as "
            "nn.ReLU for functions such as F.relu, which cannot be seen"
        )


@torch.no_grad()
def observe_pass(
    network: nn.Module,
    arguments: tuple[Tensor, ...],
    layers: Mapping[str, nn.Module],
    observe: Observer,
) -> None:
    """Run a forward pass in evaluation mode, and call ``observe`` after each call of a layer.

    A module that is called several times in a pass is named ``relu``, ``relu[2]``, ``relu[3]``.
    """
    n_calls: Counter[str] = Counter()
    pending: list[Tensor] = []  # inputs of the layers that are running, the innermost last
    observing = False  # calls made by ``observe`` are not part of the pass

    def before(name: str, _: nn.Module, args: tuple[Any, ...]) -> None:
        if not observing:  # a copy, as the module may work in place
            pending.append(_as_tensor(args[0] if args else None, name, "is given").clone())

    def after(name: str, module: nn.Module, _: tuple[Any, ...], output: Any) -> None:
        nonlocal observing
        if observing:
            return
        n_calls[name] += 1
        call = f"{name}[{n_calls[name]}]" if n_calls[name] > 1 else name
        observing = True
        observe(call, module, pending.pop(), _as_tensor(output, name, "returns"))
        observing = False

    modes = [(module, module.training) for module in network.modules()]
    handles = []
    try:
        network.eval()
        for name, module in layers.items():
            handles.append(module.register_forward_pre_hook(observer(partial(before, name))))
            handles.append(module.register_forward_hook(observer(partial(after, name))))
        network(*arguments)
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in modes:
            module.training = mode


def _as_tensor(value: Any, name: str, verb: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(
            f"layer {name!r} {verb} {type(value).__name__}, not a tensor; choose others by layers="
        )
    return value


def feature_axis(network: nn.Module, name: str, dim: int | None) -> int | None:
    """Return the axis of a layer's features. ProxyNorm moves them to the last axis."""
    path = name.partition("[")[0].split(".")
    outer = (network.get_submodule(".".join(path[:i])) for i in range(len(path)) if name != "-")
    return -1 if any(isinstance(module, activations.ProxyNorm) for module in outer) else dim


def by_unit(inputs: _NetworkInputs, values: Tensor, name: str, dim: int | None) -> Tensor:
    """Reshape a layer's input or output to (members, rows, units, positions), in float64.

    Raises ValueError if it has positions and ``dim`` is not the axis of the units.
    """
    dim, n_axes = feature_axis(inputs.network, name, dim), values.ndim - bool(inputs.members)
    shape = f"layer {name!r} has values of shape {tuple(values.shape)}"
    if n_axes < 2:
        raise ValueError(f"{shape}, not (rows, features)")
    if n_axes > 2 and dim is None:
        raise ValueError(
            f"{shape}: say which axis holds the features, dim=1 for channels as in a convolution, "
            "dim=-1 for the last axis"
        )
    if not inputs.members:
        dim = -1 if dim is None else dim
        if not -n_axes < dim < n_axes or dim == 0:
            raise ValueError(f"dim={dim} is no feature axis (rows come first): {shape}")
        values = values.movedim(dim, 1).unsqueeze(0)
    return values.double().reshape(*values.shape[:3], -1)


def as_samples(values: Tensor) -> Tensor:
    """(members, rows, units, positions) -> (members, rows x positions, units)."""
    return values.movedim(3, 2).flatten(1, 2)


class UnitMoments:
    """Mean and biased variance of each unit over rows that are added in parts.

    Parts are merged as in Chan, Golub and LeVeque (1983), without loss of precision.

    >>> moments = UnitMoments()
    >>> moments.add(torch.tensor([[1.0], [2.0]]))
    >>> moments.add(torch.tensor([[6.0]]))
    >>> moments.mean.item(), round(moments.variance.item(), 3)
    (3.0, 4.667)
    """

    def __init__(self) -> None:
        self.n = 0
        self.mean, self._squares = torch.zeros(()), torch.zeros(())

    def add(self, values: Tensor) -> None:
        """Add rows, (..., rows, units)."""
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


# ---- Statistics of activations: means, saturation, dead units, fluctuation under noise -----------

Noise = tuple[float, float]  # mean and standard deviation
PAPERS_NOISES: tuple[Noise, ...] = ((0.0, 0.5), (1.0, 0.5))  # of LayerAct's Figure 3


@dataclass(frozen=True, eq=False)
class ActivationStats:
    """Result of `activation_stats`, as tidy tables.

    ``member`` is the position of a network in an ensemble.

    Attributes
    ----------
    layers : DataFrame, one row per member and layer
        ``member``, ``layer``, ``activation`` (name of the class; for an estimator, name of the
        activation), ``n_units``; ``mean`` and ``mean_abs`` (averages over the units of each unit's
        mean and of its absolute mean); ``saturated`` and ``flat`` (shares of all values); ``dead``
        (share of the units). The terms are defined in the notes of `activation_stats`.
    units : DataFrame, one row per member, layer and unit
        ``mean``, ``sd``, ``min`` and ``max`` over the samples; ``saturated`` and ``flat`` (shares
        of the samples); ``dead`` (boolean).
    fluctuation : DataFrame, one row per member, layer and noise
        ``noise_mean`` and ``noise_sd``; ``mean`` and ``sd`` (ddof 0) over the samples of the
        fluctuation of the layer's output; ``input_mean`` and ``input_sd``, the same of its input.
    samples : DataFrame, one row per member, layer, noise and sample
        ``fluctuation`` and ``input_fluctuation`` of the sample, summed over the units.
    """

    layers: pd.DataFrame
    units: pd.DataFrame
    fluctuation: pd.DataFrame
    samples: pd.DataFrame


def activation_stats(
    model: Any,
    X: Any,
    *,
    layers: Layers = None,
    dim: int | None = None,
    noises: Sequence[Noise] = PAPERS_NOISES,
    noise_at: Literal["layer", "input"] = "layer",
    scale_tol: float = 0.01,
    dead_tol: float = 1e-6,
    batch_size: int = 256,
    random_state: Any = 0,
) -> ActivationStats:
    """Compute statistics of each activation layer of a network over the rows of a table.

    Parameters
    ----------
    model : MLPClassifier, MLPRegressor, a pipeline or search that ends in one, or nn.Module
        A fitted estimator, or a module. Modules run in evaluation mode and are not changed.
    X : DataFrame or array-like; for a module, a tensor or an array
        Input as for ``predict``. For a module the first axis has the rows. For the network that a
        callback receives, its `combutab.training.Rows`.
    layers : str or list of str, optional
        Layers by their names in ``named_modules()``. By default all activations of ``torch.nn``
        (except softmax, GLU and attention) and of `combutab.activations`. An activation inside
        another, such as the ReLU in a ProxyNorm, is not listed separately. The layers of an
        estimator are called ``activations.0``, ``activations.1``, ... Functions such as
        ``F.relu`` are not modules and are not found.
    dim : int, optional
        Feature axis: 1 for channels, -1 for the last axis. Required if there are further axes. Each
        position on these counts as a sample of a unit.
    noises : list of (mean, standard deviation), default=((0, 0.5), (1, 0.5))
        Normal distributions of the noise for the fluctuation. The default is that of the paper.
    noise_at : {"layer", "input"}, default="layer"
        "layer" adds the noise to the input of each activation, as in Definitions 2.3 and 3.2.
        "input" adds it to the input of the network (for an estimator, to the scaled columns) and
        measures how it has propagated to each layer.
    scale_tol : float, default=0.01
        Scales and slopes below this value count as zero.
    dead_tol : float, default=1e-6
        A unit is dead if its values differ by no more than this times the root mean square of the
        layer.
    batch_size : int, default=256
        Number of rows per forward pass.
    random_state : None, int, RandomState or Generator, default=0
        Random seed for the noise.

    Returns
    -------
    ActivationStats

    Raises
    ------
    TypeError
        If the model is neither an estimator nor a module, or X has the wrong type.
    ValueError
        If a parameter is out of range, no activation is found, or ``dim`` is required.

    Notes
    -----
    An output a of an activation with the input y is *saturated* if its scale s in ``a = y s`` is
    near zero: ``|a| < scale_tol |y|`` (Definition 2.1). It is *flat* if the derivative of the
    activation is near zero. This includes the ends of tanh, sigmoid and ELU, where the output is
    not near zero. ``flat`` is NaN for activations that depend on several units (LayerAct, PLN),
    because they have no such derivative.

    The fluctuation of a sample is ``sum_i |f(y + e)_i - f(y)_i|`` (Definitions 2.2, 2.3 and 3.2),
    over the units of the layer and all positions.

    Memory holds one batch at a time, and ``samples`` with one row per sample, layer and noise.

    For statistics of each epoch, call this function between calls of ``partial_fit``, or in
    ``on_epoch_network`` of a `combutab.training.Callback`, with the network and its rows.

    References
    ----------
    "LayerAct: advanced activation mechanism for robust inference of CNNs", Definitions 2.1 to 2.3
    and 3.2, appendix B, Figures 2, 3 and 7.

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> with torch.no_grad():
    ...     _ = net[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    ...     _ = net[0].bias.copy_(torch.tensor([0.0, 0.0, -1.0]))
    >>> stats = activation_stats(net, torch.tensor([[1.0, -2.0], [-1.0, 4.0]]))
    >>> stats.units[["layer", "unit", "mean", "saturated", "dead"]]
      layer  unit  mean  saturated   dead
    0     1     0   0.5        0.5  False
    1     1     1   2.0        0.5  False
    2     1     2   0.0        1.0   True
    """
    if any(sd < 0 or not math.isfinite(mean + sd) for mean, sd in noises):
        raise ValueError(f"noises must be (mean, sd >= 0), all finite, got {noises}")
    if noise_at not in ("layer", "input"):
        raise ValueError(f"noise_at must be 'layer' or 'input', got {noise_at!r}")
    for name, tolerance in (("scale_tol", scale_tol), ("dead_tol", dead_tol)):
        if not tolerance >= 0:
            raise ValueError(f"{name} must not be negative, got {tolerance}")
    seed = seed_from(random_state)
    inputs = network_inputs(model, X, batch_size)
    selected = select_layers(inputs, layers, ACTIVATION_KINDS)
    check_not_empty(selected, "activation")
    collector = _StatsCollector(inputs, dim, noises, scale_tol, seed)
    for arguments in inputs.batches():
        collector.add_batch(arguments, selected, noise_at)
    if not collector.totals:
        raise ValueError(f"X gave no rows to the layers {list(selected)}")
    return collector.stats(dead_tol)


class _LayerTotals:
    """Sums over the batches for one layer; those of the units are (members, units)."""

    def __init__(self, activations: Sequence[str], n_noises: int) -> None:
        self.activations = activations  # names, one per member
        self.values, self.saturated, self.flat = (UnitMoments() for _ in range(3))
        self.low = self.high = torch.zeros(())
        self.unitwise: bool | None = None
        # (input fluctuation, fluctuation) of each noise and batch, (members, rows)
        self.fluctuations: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(n_noises)]

    def add(self, y: Tensor, a: Tensor, slope: Tensor | None, tol: float) -> None:
        """Add a batch of inputs, outputs and slopes, (members, rows, units, positions)."""
        values = as_samples(a)
        low, high = values.amin(1), values.amax(1)
        self.low = torch.minimum(self.low, low) if self.values.n else low
        self.high = torch.maximum(self.high, high) if self.values.n else high
        self.values.add(values)
        if y.shape == a.shape:
            # LayerAct, Definition 2.1: a = y s(y) with s(y) near zero
            self.saturated.add(as_samples((a.abs() < tol * y.abs()).double()))
        if slope is not None:
            self.flat.add(as_samples((slope.abs() < tol).double()))

    def unit_table(self, member: int, dead_tol: float) -> pd.DataFrame:
        """Return a table with one row per unit of a member."""
        columns = {
            "mean": self.values.mean,
            "sd": self.values.variance.sqrt(),
            "min": self.low,
            "max": self.high,
            "saturated": self.saturated.mean if self.saturated.n else None,
            "flat": self.flat.mean if self.flat.n else None,
        }
        table = pd.DataFrame({"unit": range(len(self.values.mean[member]))})
        for name, values in columns.items():
            table[name] = math.nan if values is None else values[member].cpu().numpy()
        scale = math.sqrt((table["mean"] ** 2 + table["sd"] ** 2).mean())
        table["dead"] = table["max"] - table["min"] <= dead_tol * scale
        return table


class _StatsCollector:
    """Collects what `activation_stats` reports from one batch after the other."""

    def __init__(
        self,
        inputs: _NetworkInputs,
        dim: int | None,
        noises: Sequence[Noise],
        scale_tol: float,
        seed: int,
    ) -> None:
        self.inputs, self.dim, self.scale_tol = inputs, dim, scale_tol
        self.noises = [(float(mean), float(sd)) for mean, sd in noises]
        self.totals: dict[str, _LayerTotals] = {}
        self.generators = [
            torch.Generator().manual_seed(fold_in(seed, Stream.ACTIVATION_NOISE, k) >> 1)
            for k in range(len(self.noises))
        ]

    def add_batch(
        self, arguments: tuple[Tensor, ...], layers: dict[str, nn.Module], noise_at: str
    ) -> None:
        """Run a pass without noise, and with noise at the input another pass for each noise."""
        clean: dict[str, tuple[Tensor, Tensor]] = {}
        network = self.inputs.network

        def observe(name: str, module: nn.Module, x: Tensor, output: Tensor) -> None:
            y, a = self._by_unit(x, name), self._by_unit(output, name)
            if name not in self.totals:
                stacked = isinstance(module, StackedActivation)
                names = self.inputs.members if stacked else [type(module).__name__] * len(y)
                self.totals[name] = _LayerTotals(names, len(self.noises))
            self.totals[name].add(y, a, self._slope(module, x, output, name), self.scale_tol)
            if noise_at == "input":
                clean[name] = y, a
                return
            for k in range(len(self.noises)):
                noisy = x + self._noise(k, x)
                # forward() does not call the hooks
                self._add_fluctuation(name, k, (y, a), (noisy, module.forward(noisy.clone())))

        observe_pass(network, arguments, layers, observe)
        if noise_at == "layer":
            return
        for k in range(len(self.noises)):

            def compare(name: str, _: nn.Module, x: Tensor, output: Tensor, k: int = k) -> None:
                self._add_fluctuation(name, k, clean[name], (x, output))

            noisy = arguments[0] + self._noise(k, arguments[0])
            observe_pass(network, (noisy, *arguments[1:]), layers, compare)

    def _by_unit(self, values: Tensor, name: str) -> Tensor:
        return by_unit(self.inputs, values, name, self.dim)

    def _noise(self, k: int, like: Tensor) -> Tensor:
        """Draw noise that is the same for all members, and for networks of the same shape."""
        if not like.is_floating_point():
            raise ValueError(
                f"noise is added to numbers, got an input of {like.dtype}; use noise_at='layer'"
            )
        shape = like.shape[1:] if self.inputs.members else like.shape
        draws = torch.randn(shape, generator=self.generators[k], dtype=torch.float64)
        mean, sd = self.noises[k]
        return draws.mul_(sd).add_(mean).to(like)

    def _add_fluctuation(
        self, name: str, k: int, clean: tuple[Tensor, Tensor], noisy: tuple[Tensor, Tensor]
    ) -> None:
        of_input, of_output = (
            (self._by_unit(changed, name) - unchanged).abs().sum((2, 3))
            for unchanged, changed in zip(clean, noisy, strict=True)
        )
        self.totals[name].fluctuations[k].append((of_input, of_output))

    def _slope(self, module: nn.Module, x: Tensor, output: Tensor, name: str) -> Tensor | None:
        """Return the derivatives of a unit-wise activation, None for others."""
        totals = self.totals[name]
        if totals.unitwise is None:
            totals.unitwise = x.shape == output.shape and self._is_unitwise(module, x, name)
        if not totals.unitwise:
            return None
        with torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            # times 1, as an activation that works in place may not do so on a leaf
            (slope,) = torch.autograd.grad(module.forward(leaf * 1).sum(), leaf)
        return self._by_unit(slope, name)

    def _is_unitwise(self, module: nn.Module, x: Tensor, name: str) -> bool:
        """Tell whether the odd units do not change when the even ones do."""
        units = torch.arange(self._by_unit(x, name).shape[2], device=x.device)
        shape = [1] * x.ndim
        axis = -1 if self.inputs.members else feature_axis(self.inputs.network, name, self.dim) or 1
        shape[axis] = -1
        even = (units % 2 == 0).reshape(shape).to(x)
        before, after = module.forward(x.clone()), module.forward(x + even)
        return torch.equal(before * (1 - even), after * (1 - even))

    def stats(self, dead_tol: float) -> ActivationStats:
        """Return the tables of all layers."""
        units, layers, samples = [], [], [_NO_SAMPLES]
        for name, totals in self.totals.items():
            for member, activation in enumerate(totals.activations):
                table = totals.unit_table(member, dead_tol)
                units.append(pd.DataFrame({"member": member, "layer": name, **table}))
                layers.append(
                    {
                        "member": member,
                        "layer": name,
                        "activation": activation,
                        "n_units": len(table),
                        "mean": table["mean"].mean(),
                        "mean_abs": table["mean"].abs().mean(),
                        **{share: table[share].mean() for share in ("saturated", "flat", "dead")},
                    }
                )
            for noise, batches in zip(self.noises, totals.fluctuations, strict=True):
                samples.append(_sample_table(name, noise, batches))
        sample_table = pd.concat(samples[1:] or samples, ignore_index=True)
        return ActivationStats(
            pd.DataFrame(layers),
            pd.concat(units, ignore_index=True),
            _summarise_fluctuation(sample_table),
            sample_table,
        )


_KEYS = ["member", "layer", "noise_mean", "noise_sd"]
_NO_SAMPLES = pd.DataFrame(columns=[*_KEYS, "sample", "fluctuation", "input_fluctuation"])


def _sample_table(
    layer: str, noise: Noise, batches: Sequence[tuple[Tensor, Tensor]]
) -> pd.DataFrame:
    """Return a table with one row per member and sample of a layer and a noise."""
    of_input, of_output = (
        torch.cat(tensors, 1).cpu().numpy() for tensors in zip(*batches, strict=True)
    )
    n_members, n_rows = of_output.shape
    columns = {
        "member": np.repeat(np.arange(n_members), n_rows),
        "layer": layer,
        "noise_mean": noise[0],
        "noise_sd": noise[1],
        "sample": np.tile(np.arange(n_rows), n_members),
        "fluctuation": of_output.ravel(),
        "input_fluctuation": of_input.ravel(),
    }
    return pd.DataFrame(columns)


def _summarise_fluctuation(samples: pd.DataFrame) -> pd.DataFrame:
    groups = samples.groupby(_KEYS, sort=False)
    table = groups["fluctuation"].agg(mean="mean")
    table["sd"] = groups["fluctuation"].std(ddof=0)
    table["input_mean"] = groups["input_fluctuation"].mean()
    table["input_sd"] = groups["input_fluctuation"].std(ddof=0)
    return table.reset_index()


# ---- The power of a network's channels -----------------------------------------------------------


def power_decomposition(
    model: Any,
    X: Any,
    *,
    layers: Layers = None,
    at: Literal["input", "output"] | None = None,
    dim: int | None = None,
    per_channel: bool = False,
    batch_size: int = 256,
) -> pd.DataFrame:
    """Decompose the power (mean square) of each layer's activations into four terms, Eq. (5).

    Let ``m`` and ``s`` be the mean and the standard deviation over the positions of one input x and
    one channel. ``P1 = E_x[m]^2`` is constant over the data. ``P2 = Var_x[m]`` varies between
    inputs. ``P3 = E_x[s]^2`` and ``P4 = Var_x[s]`` vary within inputs. They sum to the mean square
    ``P = E_x[m^2 + s^2]``. If P1 is close to P, the channels have collapsed to constants. If P2 and
    P4 are close to 0, the layer does not distinguish the inputs.

    Parameters
    ----------
    model, X
        As in `activation_stats`.
    layers : str or list of str, optional
        Layers by their names in ``named_modules()``. By default the outputs of the normalisation
        layers. A network without them is measured at the inputs of its activations.
    at : {"output", "input"}, optional
        Whether to measure the outputs or the inputs of the layers. By default "output" if
        ``layers`` is given or the network has normalisation layers, else "input".
    dim : int, optional
        Channel (feature) axis: 1 for convolutions, -1 for the last axis. Required if there are
        further axes (the positions). Without positions P3 and P4 are 0.
    per_channel : bool, default=False
        Whether to return one row per channel instead of the mean over channels.
    batch_size : int, default=256
        Number of rows per forward pass. It changes the result by rounding only, unless the network
        depends on the batch. For batch normalisation with the statistics of all rows, use
        ``track_running_stats=False`` and ``batch_size=len(X)``.

    Returns
    -------
    DataFrame, one row per member and layer (and channel)
        ``member`` (position in an ensemble); ``depth`` (from 1, in the order of the forward pass);
        ``layer``; ``channel`` or ``n_channels``; ``P``, ``P1``, ``P2``, ``P3`` and ``P4``.

    Raises
    ------
    TypeError, ValueError
        As in `activation_stats`.

    Notes
    -----
    The y of the paper is normalised without scale and shift. The output of a normalisation with
    ``affine=True`` is the paper's y with a tilde.

    References
    ----------
    "Proxy-normalizing activations to match batch normalization while removing batch dependence",
    Eq. (5), Theorems 1 and 2, Figure 2.

    Examples
    --------
    >>> import torch
    >>> norm = nn.LayerNorm(2, elementwise_affine=False, eps=0.0)
    >>> power_decomposition(norm, torch.tensor([[0.0, 2.0], [1.0, 5.0], [3.0, 1.0]])).round(3)
       member  depth layer  n_channels    P     P1     P2   P3   P4
    0       0      1     -           2  1.0  0.111  0.889  0.0  0.0
    """
    if at not in (None, "input", "output"):
        raise ValueError(f"at must be 'input' or 'output', got {at!r}")
    inputs = network_inputs(model, X, batch_size)
    selected = select_layers(inputs, layers, NORM_KINDS)
    if not selected:
        selected, at = select_layers(inputs, None, ACTIVATION_KINDS), at or "input"
    check_not_empty(selected, "normalisation or activation")
    powers: dict[str, _Power] = {}

    def observe(name: str, _: nn.Module, x: Tensor, output: Tensor) -> None:
        units = by_unit(inputs, x if at == "input" else output, name, dim)
        powers.setdefault(name, _Power()).add(units)

    for arguments in inputs.batches():
        observe_pass(inputs.network, arguments, selected, observe)
    if not powers:
        raise ValueError("X gave no rows to the layers")
    tables = []
    for depth, (name, power) in enumerate(powers.items(), 1):
        terms = power.terms()
        n_members, n_channels = terms["P"].shape
        for member in range(n_members):
            where = {"member": member, "depth": depth, "layer": name}
            values = {term: tensor[member].cpu().numpy() for term, tensor in terms.items()}
            if per_channel:
                tables.append(pd.DataFrame({**where, "channel": range(n_channels), **values}))
            else:
                means = {term: channels.mean() for term, channels in values.items()}
                tables.append(pd.DataFrame([{**where, "n_channels": n_channels, **means}]))
    return pd.concat(tables, ignore_index=True)


class _Power:
    """Sums over the batches for one layer."""

    def __init__(self) -> None:
        self.means, self.sds, self.squares = UnitMoments(), UnitMoments(), UnitMoments()

    def add(self, values: Tensor) -> None:
        """Add a batch, (members, rows, channels, positions)."""
        means = values.mean(-1, keepdim=True)
        self.means.add(means.squeeze(-1))
        self.sds.add((values - means).square().mean(-1).sqrt())  # std() is slow on few positions
        self.squares.add(values.square().mean(-1))

    def terms(self) -> dict[str, Tensor]:
        """Return the terms of Eq. (5), (members, channels) each."""
        # ProxyNorm Eq. (5)
        return {
            "P": self.squares.mean,
            "P1": self.means.mean.square(),
            "P2": self.means.variance,
            "P3": self.sds.mean.square(),
            "P4": self.sds.variance,
        }
