"""Statistics of a network's layers, after training and as it trains, and the power of channels."""

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
from combutab.training import Callback, EpochReport, Rows

# ---- Read what passes through the layers of a network, by forward hooks --------------------------

Layers = str | Sequence[str] | None
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
    """A network, and the arguments of a forward pass, rows first, to be given in batches.

    ``members`` has the activation of each member of a stack, whose layers give (members, rows,
    units); it is empty for a torch module.
    """

    network: nn.Module
    inputs: tuple[Tensor, ...]
    batch_size: int
    members: tuple[str, ...] = ()

    def batches(self) -> Iterator[tuple[Tensor, ...]]:
        """The arguments of each pass; the members of a stack share the rows."""
        for parts in zip(*(each.split(self.batch_size) for each in self.inputs), strict=True):
            if self.members:
                parts = tuple(part.expand(len(self.members), *part.shape) for part in parts)
            yield parts


def open_model(model: Any, X: Any, batch_size: int) -> Opened:
    """The network of a fitted estimator, or a torch module, and X in batches.

    Raises TypeError if the model is neither, or X is not what it takes; ValueError if
    ``batch_size`` is less than 1, X has no rows, or the estimator is not fitted.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if isinstance(model, nn.Module):
        return Opened(model, (_module_input(model, X),), batch_size)
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
    return open_stack(model.network(), dense, codes, batch_size)


def open_stack(network: Any, dense: Tensor, codes: Tensor | None, batch_size: int) -> Opened:
    """A `StackedMLP`, and rows that its members share: (n, n_dense), (n, n_codes) or None."""
    kinds = [member.activation for member in network.members]
    members = tuple(k if isinstance(k, str) else getattr(k, "__name__", "custom") for k in kinds)
    inputs = [dense.to(network.device, network.dtype)]
    if codes is not None:
        inputs.append(codes.to(network.device))
    return Opened(network, tuple(inputs), batch_size, members)


def _module_input(model: nn.Module, X: Any) -> Tensor:
    """X as a tensor, on the device and in the precision of the weights if there are some."""
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


def choose_modules(
    opened: Opened, layers: Layers, kinds: tuple[type[nn.Module], ...]
) -> dict[str, nn.Module]:
    """The modules to look at, by their names in the network.

    ``layers`` are names; None takes the modules of ``kinds``, without those inside another of
    them, and in a stack its own slots alone. The result is empty if there are none. The network
    itself is named "-".

    Raises ValueError if a name is not there.
    """
    named = {name or "-": module for name, module in opened.network.named_modules()}
    found: dict[str, nn.Module] = {}
    for name in [layers] if isinstance(layers, str) else layers or ():
        if name not in named:
            near = known_instead(name, named)
            raise ValueError(f"the network has no layer {name!r}; {near} (named_modules() has all)")
        found[name] = named[name]
    if layers is not None:
        return found
    if opened.members:
        kinds = tuple(kind for kind in kinds if kind in (StackedActivation, StackedNorm))
    for name, module in named.items():
        inside = any(outer == "-" or name.startswith(f"{outer}.") for outer in found)
        if isinstance(module, kinds) and not inside:
            found[name] = module
    return found


def check_found(hooked: dict[str, nn.Module], what: str) -> None:
    """Refuse a network in which nothing was found to look at."""
    if not hooked:
        raise ValueError(
            f"the network has no {what} modules; name layers by layers=, and use modules such as "
            "nn.ReLU for functions such as F.relu, which cannot be seen"
        )


@torch.no_grad()
def observe_pass(
    network: nn.Module, arguments: tuple[Tensor, ...], hooked: Mapping[str, nn.Module], see: See
) -> None:
    """One forward pass in evaluation mode, with ``see`` at each call of a hooked module.

    A module that is called several times in a pass is named ``relu``, ``relu[2]``, ``relu[3]``.
    """
    calls: Counter[str] = Counter()
    inputs: list[Tensor] = []  # of the calls under way, the innermost last
    seeing = False  # what ``see`` calls is no part of the pass

    def before(name: str, _: nn.Module, args: tuple[Any, ...]) -> None:
        if not seeing:  # a copy, as the module may work in place
            inputs.append(_tensor(args[0] if args else None, name, "is given").clone())

    def after(name: str, module: nn.Module, _: tuple[Any, ...], output: Any) -> None:
        nonlocal seeing
        if seeing:
            return
        calls[name] += 1
        call = f"{name}[{calls[name]}]" if calls[name] > 1 else name
        seeing = True
        see(call, module, inputs.pop(), _tensor(output, name, "returns"))
        seeing = False

    modes = [(module, module.training) for module in network.modules()]
    handles = []
    try:
        network.eval()
        for name, module in hooked.items():
            handles.append(module.register_forward_pre_hook(observer(partial(before, name))))
            handles.append(module.register_forward_hook(observer(partial(after, name))))
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


def by_unit(opened: Opened, values: Tensor, name: str, dim: int | None) -> Tensor:
    """Return what a layer is given or gives as (members, rows, units, positions), float64.

    Raises ValueError if it has positions and ``dim`` is not the axis of the units.
    """
    dim, n_axes = feature_axis(opened.network, name, dim), values.ndim - bool(opened.members)
    shown = f"layer {name!r} has values of shape {tuple(values.shape)}"
    if n_axes < 2:
        raise ValueError(f"{shown}, not (rows, features)")
    if n_axes > 2 and dim is None:
        raise ValueError(
            f"{shown}: say which axis holds the features, dim=1 for channels as in a convolution, "
            "dim=-1 for the last axis"
        )
    if not opened.members:
        dim = -1 if dim is None else dim
        if not -n_axes < dim < n_axes or dim == 0:
            raise ValueError(f"dim={dim} is no feature axis (rows come first): {shown}")
        values = values.movedim(dim, 1).unsqueeze(0)
    return values.double().reshape(*values.shape[:3], -1)


def as_samples(values: Tensor) -> Tensor:
    """(members, rows, units, positions) -> (members, rows x positions, units)."""
    return values.movedim(3, 2).flatten(1, 2)


class UnitMoments:
    """Mean and biased variance over the rows of what comes in parts, for each unit.

    Merged as Chan, Golub and LeVeque (1983) do: as exact as over all at once.

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


# ---- Statistics of a network's activations: means of units, saturation, dead units, fluctuation

Noise = tuple[float, float]  # mean and standard deviation
PAPERS_NOISES: tuple[Noise, ...] = ((0.0, 0.5), (1.0, 0.5))  # of LayerAct's Figure 3


@dataclass(frozen=True, eq=False)
class ActivationStats:
    """Result of `activation_stats`, as tidy tables; ``member`` counts the networks of an ensemble.

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
        Input as for ``predict``. For a module the first axis has the rows.
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

    For statistics of each epoch, pass an `ActivationRecorder` in ``callbacks`` of an estimator, or
    call this function between calls of ``partial_fit``.

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
    look = Look(noises, noise_at, scale_tol, dead_tol, seed_from(random_state))
    return look(open_model(model, X, batch_size), layers, dim)


@dataclass(frozen=True)
class Look:
    """The parameters of `activation_stats`; a ValueError if one is out of range."""

    noises: Sequence[Noise] = PAPERS_NOISES
    noise_at: str = "layer"
    scale_tol: float = 0.01
    dead_tol: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        if any(sd < 0 or not math.isfinite(mean + sd) for mean, sd in self.noises):
            raise ValueError(f"noises must be (mean, sd >= 0), all finite, got {self.noises}")
        if self.noise_at not in ("layer", "input"):
            raise ValueError(f"noise_at must be 'layer' or 'input', got {self.noise_at!r}")
        for name, value in (("scale_tol", self.scale_tol), ("dead_tol", self.dead_tol)):
            if not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value}")

    def __call__(
        self, opened: Opened, layers: Layers = None, dim: int | None = None
    ) -> ActivationStats:
        """Let the batches through."""
        hooked = choose_modules(opened, layers, ACTIVATION_KINDS)
        check_found(hooked, "activation")
        seen = _Observation(self, opened, dim)
        for arguments in opened.batches():
            seen.batch(arguments, hooked)
        if not seen.found:
            raise ValueError(f"X gave no rows to the layers {list(hooked)}")
        return seen.result()


class _LayerTotals:
    """Sums over the batches for one layer; per unit they are (members, units)."""

    def __init__(self, activations: Sequence[str], noises: Sequence[Noise]) -> None:
        self.activations = activations  # one a member
        self.values, self.saturated, self.flat = (UnitMoments() for _ in range(3))
        self.low = self.high = torch.zeros(())
        self.unitwise: bool | None = None
        # (input fluctuation, fluctuation) of each noise and batch, (members, rows)
        self.fluctuations: list[list[tuple[Tensor, Tensor]]] = [[] for _ in noises]

    def add(self, given: Tensor, gives: Tensor, slope: Tensor | None, tol: float) -> None:
        """Take in a batch, each (members, rows, units, positions)."""
        values = as_samples(gives)
        low, high = values.amin(1), values.amax(1)
        self.low = torch.minimum(self.low, low) if self.values.n else low
        self.high = torch.maximum(self.high, high) if self.values.n else high
        self.values.add(values)
        if given.shape == gives.shape:
            # LayerAct, Definition 2.1: a = y s(y) with s(y) near zero
            self.saturated.add(as_samples((gives.abs() < tol * given.abs()).double()))
        if slope is not None:
            self.flat.add(as_samples((slope.abs() < tol).double()))

    def of_units(self, member: int, dead_tol: float) -> pd.DataFrame:
        """A row for each unit of a member."""
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


class _Observation:
    """What `Look` sees of one network, a batch at a time."""

    def __init__(self, look: Look, opened: Opened, dim: int | None) -> None:
        self.look, self.opened, self.dim = look, opened, dim
        self.noises = [(float(mean), float(sd)) for mean, sd in look.noises]
        self.found: dict[str, _LayerTotals] = {}
        self.generators = [
            torch.Generator().manual_seed(fold_in(look.seed, Stream.ACTIVATION_NOISE, k) >> 1)
            for k in range(len(self.noises))
        ]

    def batch(self, arguments: tuple[Tensor, ...], hooked: dict[str, nn.Module]) -> None:
        """Take in one batch: a clean pass, and for noise at the input one a noise."""
        clean: dict[str, tuple[Tensor, Tensor]] = {}
        opened = self.opened

        def see(name: str, module: nn.Module, given: Tensor, gives: Tensor) -> None:
            y, a = self._by_unit(given, name), self._by_unit(gives, name)
            if name not in self.found:
                stacked = isinstance(module, StackedActivation)
                names = opened.members if stacked else [type(module).__name__] * len(y)
                self.found[name] = _LayerTotals(names, self.noises)
            totals = self.found[name]
            totals.add(y, a, self._slope(totals, module, given, gives, name), self.look.scale_tol)
            if self.look.noise_at == "input":
                clean[name] = (y, a)
                return
            for k in range(len(self.noises)):
                noisy = given + self._noise(k, given)
                again = module.forward(noisy.clone())  # the hooks are not to see this call
                self._fluctuate(name, k, (y, a), (noisy, again))

        observe_pass(opened.network, arguments, hooked, see)
        if self.look.noise_at == "layer":
            return
        for k in range(len(self.noises)):

            def compare(name: str, _: nn.Module, given: Tensor, gives: Tensor, k: int = k) -> None:
                self._fluctuate(name, k, clean[name], (given, gives))

            first, *rest = arguments
            observe_pass(opened.network, (first + self._noise(k, first), *rest), hooked, compare)

    def _by_unit(self, values: Tensor, name: str) -> Tensor:
        return by_unit(self.opened, values, name, self.dim)

    def _noise(self, k: int, like: Tensor) -> Tensor:
        """The same for all members, and for networks of the same shape."""
        if not like.is_floating_point():
            raise ValueError(
                f"noise is added to numbers, got an input of {like.dtype}; use noise_at='layer'"
            )
        shape = like.shape[1:] if self.opened.members else like.shape
        draws = torch.randn(shape, generator=self.generators[k], dtype=torch.float64)
        mean, sd = self.noises[k]
        return draws.mul_(sd).add_(mean).to(like)

    def _fluctuate(
        self, name: str, k: int, clean: tuple[Tensor, Tensor], noisy: tuple[Tensor, Tensor]
    ) -> None:
        given, gives = (
            (self._by_unit(after, name) - before).abs().sum((2, 3))
            for before, after in zip(clean, noisy, strict=True)
        )
        self.found[name].fluctuations[k].append((given, gives))

    def _slope(
        self, totals: _LayerTotals, module: nn.Module, given: Tensor, gives: Tensor, name: str
    ) -> Tensor | None:
        """The derivatives of a unit-wise activation, None for others."""
        if totals.unitwise is None:
            totals.unitwise = given.shape == gives.shape and self._is_unitwise(module, given, name)
        if not totals.unitwise:
            return None
        with torch.enable_grad():
            y = given.detach().clone().requires_grad_()
            # times 1, as an activation that works in place may not do so on a leaf
            (slope,) = torch.autograd.grad(module.forward(y * 1).sum(), y)
        return self._by_unit(slope, name)

    def _is_unitwise(self, module: nn.Module, given: Tensor, name: str) -> bool:
        """Tell whether the units at odd places stay what they are when the others change."""
        units = torch.arange(self._by_unit(given, name).shape[2], device=given.device)
        shape = [1] * given.ndim
        axis = -1 if self.opened.members else feature_axis(self.opened.network, name, self.dim) or 1
        shape[axis] = -1
        even = (units % 2 == 0).reshape(shape).to(given)
        before, after = module.forward(given.clone()), module.forward(given + even)
        return torch.equal(before * (1 - even), after * (1 - even))

    def result(self) -> ActivationStats:
        units, layers, samples = [], [], [_NO_SAMPLES]
        for name, totals in self.found.items():
            for member, activation in enumerate(totals.activations):
                where: dict[str, Any] = {"member": member, "layer": name}
                table = totals.of_units(member, self.look.dead_tol)
                units.append(pd.DataFrame({**where, **table}))
                means = {share: table[share].mean() for share in ("saturated", "flat", "dead")}
                sizes = {"mean": table["mean"].mean(), "mean_abs": table["mean"].abs().mean()}
                about = {"activation": activation, "n_units": len(table)}
                layers.append(where | about | sizes | means)
            for (mean, sd), parts in zip(self.noises, totals.fluctuations, strict=True):
                given, gives = (torch.cat(rows, 1).cpu().numpy() for rows in zip(*parts))  # noqa: B905
                n_members, n_rows = gives.shape
                columns = {
                    "member": np.repeat(np.arange(n_members), n_rows),
                    "layer": name,
                    "noise_mean": mean,
                    "noise_sd": sd,
                    "sample": np.tile(np.arange(n_rows), n_members),
                    "fluctuation": gives.ravel(),
                    "input_fluctuation": given.ravel(),
                }
                samples.append(pd.DataFrame(columns))
        by_sample = pd.concat(samples[1:] or samples, ignore_index=True)
        return ActivationStats(
            pd.DataFrame(layers),
            pd.concat(units, ignore_index=True),
            _summarise_fluctuation(by_sample),
            by_sample,
        )


_KEYS = ["member", "layer", "noise_mean", "noise_sd"]
_NO_SAMPLES = pd.DataFrame(columns=[*_KEYS, "sample", "fluctuation", "input_fluctuation"])


def _summarise_fluctuation(samples: pd.DataFrame) -> pd.DataFrame:
    groups = samples.groupby(_KEYS, sort=False)
    table = groups["fluctuation"].agg(mean="mean")
    table["sd"] = groups["fluctuation"].std(ddof=0)
    table["input_mean"] = groups["input_fluctuation"].mean()
    table["input_sd"] = groups["input_fluctuation"].std(ddof=0)
    return table.reset_index()


# ---- The power of a network's channels, and where it lies ----------------------------------------

At = Literal["input", "output"]


def power_decomposition(
    model: Any,
    X: Any,
    *,
    layers: Layers = None,
    at: At | None = None,
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
        layers, or if there are none, the inputs of the activations.
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
    opened = open_model(model, X, batch_size)
    hooked = choose_modules(opened, layers, NORM_KINDS)
    if not hooked:
        hooked, at = choose_modules(opened, None, ACTIVATION_KINDS), at or "input"
    check_found(hooked, "normalisation or activation")
    found: dict[str, _Power] = {}

    def see(name: str, _: nn.Module, given: Tensor, gives: Tensor) -> None:
        units = by_unit(opened, given if at == "input" else gives, name, dim)
        found.setdefault(name, _Power()).add(units)

    for arguments in opened.batches():
        observe_pass(opened.network, arguments, hooked, see)
    if not found:
        raise ValueError("X gave no rows to the layers")
    tables = []
    for depth, (name, power) in enumerate(found.items(), 1):
        terms = power.terms()
        n_members, n_channels = terms["P"].shape
        for member in range(n_members):
            where = {"member": member, "depth": depth, "layer": name}
            values = {term: each[member].cpu().numpy() for term, each in terms.items()}
            if per_channel:
                tables.append(pd.DataFrame({**where, "channel": range(n_channels), **values}))
            else:
                means = {term: each.mean() for term, each in values.items()}
                tables.append(pd.DataFrame([{**where, "n_channels": n_channels, **means}]))
    return pd.concat(tables, ignore_index=True)


class _Power:
    """Sums over the batches for one layer."""

    def __init__(self) -> None:
        self.means, self.sds, self.squares = UnitMoments(), UnitMoments(), UnitMoments()

    def add(self, values: Tensor) -> None:
        """Take in a batch, (members, rows, channels, positions)."""
        means = values.mean(-1, keepdim=True)
        self.means.add(means.squeeze(-1))
        self.sds.add((values - means).square().mean(-1).sqrt())  # std() is slow on few positions
        self.squares.add(values.square().mean(-1))

    def terms(self) -> dict[str, Tensor]:
        """Each (members, channels)."""
        # ProxyNorm Eq. (5)
        return {
            "P": self.squares.mean,
            "P1": self.means.mean.square(),
            "P2": self.means.variance,
            "P3": self.sds.mean.square(),
            "P4": self.sds.variance,
        }


# ---- Activation statistics of a network as it trains ---------------------------------------------


class ActivationRecorder(Callback):
    """Record `activation_stats` after the epochs of an estimator's ``fit``, as a callback.

    It does not change the training. A second fit with the same recorder appends to its tables and
    continues the member numbers. Use a new recorder for each fit.

    Parameters
    ----------
    n_rows : int, default=256
        Number of rows for the statistics, evenly spaced in the table passed to ``fit`` (all rows if
        it has fewer). In ``fit_parquet`` they are validation rows.
    every : int, default=1
        Number of epochs between two records. The first epoch is always recorded.
    noises, noise_at
        As in `activation_stats`.

    Attributes
    ----------
    layers, fluctuation : DataFrame
        As in `ActivationStats`, with ``epoch`` as the first column. ``member`` is the number of the
        network in the fit.

    Raises
    ------
    ValueError
        If ``n_rows`` or ``every`` is less than 1, or a noise is out of range. During ``fit``, if
        there are no rows in memory for the statistics.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab import MLPClassifier
    >>> recorder = ActivationRecorder(every=10)
    >>> fixed = {"max_iter": 20, "n_iter_no_change": float("inf"), "random_state": 0}
    >>> net = MLPClassifier((16,), "combu", callbacks=[recorder], **fixed)
    >>> _ = net.fit(*load_iris(return_X_y=True))
    >>> recorder.layers[["epoch", "layer", "activation", "n_units"]]
       epoch          layer activation  n_units
    0      1  activations.0      combu       16
    1     10  activations.0      combu       16
    2     20  activations.0      combu       16
    >>> recorder.layers["dead"].between(0, 1).all()
    np.True_
    """

    def __init__(
        self,
        n_rows: int = 256,
        *,
        every: int = 1,
        noises: Sequence[Noise] = PAPERS_NOISES,
        noise_at: Literal["layer", "input"] = "layer",
    ) -> None:
        if n_rows < 1 or every < 1:
            raise ValueError(f"n_rows and every must be at least 1, got {n_rows=}, {every=}")
        self.n_rows, self.every = n_rows, every
        self._look = Look(tuple(noises), noise_at)
        self._tables: dict[str, list[pd.DataFrame]] = {"layers": [], "fluctuation": []}
        self._before = self._n_members = 0  # networks of the stacks that are done; of this one

    @property
    def layers(self) -> pd.DataFrame:
        return self._table("layers")

    @property
    def fluctuation(self) -> pd.DataFrame:
        return self._table("fluctuation")

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        self._before += self._n_members
        self._n_members = n_members

    def on_epoch_network(self, report: EpochReport, network: TableNetwork, data: Rows) -> None:
        if report.epoch > 1 and report.epoch % self.every:
            return
        n = len(data.dense)
        if not n:
            raise ValueError(
                "there are no rows in memory to record activations on; for a table that does not "
                "fit in memory, set early_stopping=True, so that there are validation rows"
            )
        n_kept = min(n, self.n_rows)
        rows = torch.arange(n_kept, device=data.dense.device) * n // n_kept
        codes = None if data.codes is None else data.codes[rows]
        stats = self._look(open_stack(network, data.dense[rows], codes, self.n_rows))
        members = [self._before + member for member in report.members]
        for name, tables in self._tables.items():
            table: Any = getattr(stats, name)
            table["member"] = table["member"].map(dict(enumerate(members)))
            table.insert(0, "epoch", report.epoch)
            tables.append(table)

    def _table(self, name: str) -> pd.DataFrame:
        tables = self._tables[name]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
