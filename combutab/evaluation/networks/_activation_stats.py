"""Statistics of a network's activations: means of units, saturation, dead units, fluctuation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor, nn

from combutab._random import Purpose, derive
from combutab._random_state import seed_from
from combutab.evaluation.networks._layer_hooks import (
    ACTIVATION_KINDS,
    Layers,
    Opened,
    RunningMoments,
    as_samples,
    by_unit,
    check_found,
    choose,
    feature_axis,
    open_model,
    run,
)
from combutab.nn import StackedActivation

Noise = tuple[float, float]  # mean and standard deviation
PAPERS_NOISES: tuple[Noise, ...] = ((0.0, 0.5), (1.0, 0.5))  # of LayerAct's Figure 3


@dataclass(frozen=True, eq=False)
class ActivationStats:
    """Result of `activation_stats`, as tidy tables; ``member`` counts the networks of an ensemble.

    Attributes
    ----------
    layers : DataFrame, one row a member and layer
        ``member``, ``layer``, ``activation`` (its class; an estimator's by name), ``n_units``;
        ``mean`` and ``mean_abs``, the mean over the units of their means and of the size of these;
        ``saturated`` and ``flat``, shares of all values; ``dead``, the share of units.
    units : DataFrame, one row a member, layer and unit
        ``mean``, ``sd``, ``min``, ``max`` over the samples; ``saturated`` and ``flat``, shares of
        the samples; ``dead``, truth values.
    fluctuation : DataFrame, one row a member, layer and noise
        ``noise_mean``, ``noise_sd``; ``mean`` and ``sd`` (ddof 0) over the samples of what the
        layer gives, ``input_mean`` and ``input_sd`` of what it is given.
    samples : DataFrame, one row a member, layer, noise and sample
        ``fluctuation`` and ``input_fluctuation``: sums over the units.
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
    """Look at each activation layer of a network over the rows of a table.

    Parameters
    ----------
    model : MLPClassifier, MLPRegressor, a pipeline or search that ends in one, or nn.Module
        An estimator must be fitted. Modules run in evaluation mode, and are left as they were.
    X : DataFrame or array-like; for a module, a tensor, an array, or an iterable of batches
        As for ``predict``; for a module the rows come first. A batch is a tensor, or a list that
        begins with one, as a DataLoader gives.
    layers : str, list of str, module class(es), optional
        Names of ``named_modules()``, or kinds. By default the activations: those of ``torch.nn``
        (but softmaxes, GLU and attention) and of `combutab.activations`; one inside another, such
        as the ReLU in a ProxyNorm, is a part of it. The layers of an estimator are called
        ``activations.0``, ``activations.1``, ... Functions, such as ``F.relu``, are not seen.
    dim : int, optional
        The axis of the features: 1 for channels, -1 for the last. Needed where there are further
        axes, over which a unit's values count like samples.
    noises : list of (mean, standard deviation), default=((0, 0.5), (1, 0.5))
        Normal noises for the fluctuation; those of the paper.
    noise_at : {"layer", "input"}, default="layer"
        "layer" adds the noise to what each activation is given, as Definitions 2.3 and 3.2 do.
        "input" adds it to the input of the network (of an estimator, to the scaled columns), and
        the fluctuation is what has become of it.
    scale_tol : float, default=0.01
        Scales and slopes below are taken as zero.
    dead_tol : float, default=1e-6
        A unit is dead if its values differ by no more than this times the root mean square of the
        layer.
    batch_size : int, default=256
        Rows that are looked at together.
    random_state : None, int, RandomState or Generator, default=0
        Of the noise.

    Returns
    -------
    ActivationStats

    Raises
    ------
    TypeError
        The model is neither, or X is not what it takes.
    ValueError
        A parameter is out of range, no activation is found, or ``dim`` is needed.

    Notes
    -----
    A value a of an activation is *saturated* if its scale s in ``a = y s`` is near zero,
    ``|a| < scale_tol |y|`` (Definition 2.1), y being what the activation is given. It is *flat*
    where the activation's derivative is near zero, which also finds the ends of tanh, sigmoid and
    ELU, whose values stay away from zero there; NaN for activations that look at many units
    (LayerAct, PLN), which have no such derivative.

    The fluctuation of a sample is ``sum_i |f(y + e)_i - f(y)_i|`` (Definitions 2.2, 2.3 and 3.2),
    over the units of the layer and all positions.

    Memory: one batch, and in ``samples`` a row for each sample, layer and noise.

    For the statistics by epoch, give an estimator an `ActivationRecorder` in ``callbacks``, or call
    this between calls of its ``partial_fit``.

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
        hooked = choose(opened, layers, ACTIVATION_KINDS)
        check_found(hooked, "activation")
        noises = [(float(mean), float(sd)) for mean, sd in self.noises]
        watch = _Watch(opened, dim, noises, self.noise_at, self.seed, self.scale_tol)
        for arguments in opened.batches:
            watch.batch(arguments, hooked)
        if not watch.found:
            raise ValueError(f"X gave no rows to the layers {list(hooked)}")
        return watch.result(self.dead_tol)


class _LayerTotals:
    """Sums over the batches for one layer; per unit they are (members, units)."""

    def __init__(self, activations: Sequence[str], noises: Sequence[Noise]) -> None:
        self.activations = activations  # one a member
        self.values, self.saturated, self.flat = (RunningMoments() for _ in range(3))
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


class _Watch:
    def __init__(
        self,
        opened: Opened,
        dim: int | None,
        noises: Sequence[Noise],
        noise_at: str,
        seed: int,
        scale_tol: float,
    ) -> None:
        self.opened, self.dim, self.noises, self.noise_at = opened, dim, noises, noise_at
        self.scale_tol = scale_tol
        self.found: dict[str, _LayerTotals] = {}
        self.generators = [
            torch.Generator().manual_seed(derive(seed, Purpose.ACTIVATION_NOISE, k) >> 1)
            for k in range(len(noises))
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
            totals.add(y, a, self._slope(totals, module, given, gives, name), self.scale_tol)
            if self.noise_at == "input":
                clean[name] = (y, a)
                return
            for k in range(len(self.noises)):
                noisy = given + self._noise(k, given)
                again = module.forward(noisy.clone())  # the hooks are not to see this call
                self._fluctuate(name, k, (y, a), (noisy, again))

        run(opened.network, arguments, hooked, see)
        if self.noise_at == "layer":
            return
        for k in range(len(self.noises)):

            def compare(name: str, _: nn.Module, given: Tensor, gives: Tensor, k: int = k) -> None:
                self._fluctuate(name, k, clean[name], (given, gives))

            first, *rest = arguments
            run(opened.network, (first + self._noise(k, first), *rest), hooked, compare)

    def _by_unit(self, values: Tensor, name: str) -> Tensor:
        axis = feature_axis(self.opened.network, name, self.dim)
        return by_unit(values, name, axis, members=bool(self.opened.members))

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

    def result(self, dead_tol: float) -> ActivationStats:
        units, layers, samples = [], [], []
        for name, totals in self.found.items():
            values = totals.values
            n_members, n_units = values.mean.shape
            for member in range(n_members):
                table = pd.DataFrame({"member": member, "layer": name, "unit": range(n_units)})
                table["mean"] = values.mean[member].cpu().numpy()
                table["sd"] = values.variance[member].sqrt().cpu().numpy()
                table["min"] = totals.low[member].cpu().numpy()
                table["max"] = totals.high[member].cpu().numpy()
                for share in ("saturated", "flat"):
                    found: RunningMoments = getattr(totals, share)
                    table[share] = found.mean[member].cpu().numpy() if found.n else math.nan
                scale = math.sqrt((table["mean"] ** 2 + table["sd"] ** 2).mean())
                table["dead"] = table["max"] - table["min"] <= dead_tol * scale
                units.append(table)
                layers.append(_summary(table, totals.activations[member]))
            for (mean, sd), parts in zip(self.noises, totals.fluctuations, strict=True):
                given, gives = (torch.cat(rows, 1).cpu().numpy() for rows in zip(*parts))  # noqa: B905
                samples += [
                    pd.DataFrame(
                        {
                            "member": member,
                            "layer": name,
                            "noise_mean": mean,
                            "noise_sd": sd,
                            "sample": range(gives.shape[1]),
                            "fluctuation": gives[member],
                            "input_fluctuation": given[member],
                        }
                    )
                    for member in range(n_members)
                ]
        by_sample = pd.concat(samples, ignore_index=True) if samples else _NO_SAMPLES.copy()
        return ActivationStats(
            pd.DataFrame(layers),
            pd.concat(units, ignore_index=True),
            _summarise(by_sample),
            by_sample,
        )


_KEYS = ["member", "layer", "noise_mean", "noise_sd"]
_NO_SAMPLES = pd.DataFrame(columns=[*_KEYS, "sample", "fluctuation", "input_fluctuation"])


def _summary(units: pd.DataFrame, activation: str) -> dict[str, Any]:
    return {
        "member": units["member"].iloc[0],
        "layer": units["layer"].iloc[0],
        "activation": activation,
        "n_units": len(units),
        "mean": units["mean"].mean(),
        "mean_abs": units["mean"].abs().mean(),
        "saturated": units["saturated"].mean(),
        "flat": units["flat"].mean(),
        "dead": units["dead"].mean(),
    }


def _summarise(samples: pd.DataFrame) -> pd.DataFrame:
    groups = samples.groupby(_KEYS, sort=False)
    table = groups["fluctuation"].agg(mean="mean")
    table["sd"] = groups["fluctuation"].std(ddof=0)
    table["input_mean"] = groups["input_fluctuation"].mean()
    table["input_sd"] = groups["input_fluctuation"].std(ddof=0)
    return table.reset_index()
