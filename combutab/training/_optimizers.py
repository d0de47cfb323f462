"""Optimisers for the parameters of all members, and schedules of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

# ---- Optimisers over a (M, P) matrix of parameters: a row a member, each with its own rate -------

SOLVERS = ("adam", "adamw", "sgd", "lbfgs")
"""Names of optimisers."""


@dataclass(frozen=True)
class OptimizerConfig:
    """Optimiser settings that all members share.

    With momentum, SGD accumulates steps (gradients times the learning rate), as scikit-learn does.
    With ``rate_last`` it accumulates gradients and multiplies them by the current learning rate, as
    torch does. The two differ if the learning rate changes.
    """

    solver: str = "adam"
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    momentum: float = 0.9
    nesterov: bool = True
    rate_last: bool = False


@dataclass(frozen=True)
class StepRates:
    """Learning rates and weight decays of one step, in tensors: no number enters a kernel.

    Adam has one rate, (), of each group of rows with equal rates and each factor in it. SGD has
    negative rates of all rows, (M, 1), of each factor, and then their products with the momentum.
    """

    groups: Sequence[tuple[int, ...]]
    rates: Sequence[Tensor]
    decay_factors: Tensor | None  # (M, 1), of the weights: 1 - rate * decay; None without decay


class RowOptimizer:
    """Adam, AdamW or SGD with momentum on the rows of a matrix, one row per member.

    AdamW's decay is decoupled and acts on the first ``n_decayed`` columns (the weights, not the
    biases). A step leaves the rows that are not in its ``rows`` unchanged, with their state.
    ``factors`` has pairs of a slice of columns and the factor of their learning rate, in order.
    """

    def __init__(
        self,
        config: OptimizerConfig,
        values: Tensor,
        n_decayed: int,
        factors: Sequence[tuple[slice, float]] = ((slice(None), 1.0),),
    ) -> None:
        self.config, self.n_decayed = config, n_decayed
        self._columns: dict[float, list[slice]] = {}  # by the factor of their learning rate
        for columns, factor in factors:
            self._columns.setdefault(factor, []).append(columns)
        names = ("velocity",) if config.solver == "sgd" else ("mean", "square")
        self.state = {name: torch.zeros_like(values) for name in names}
        device = values.device if values.is_cuda else "cpu"
        self.steps = [torch.zeros((), dtype=torch.float32, device=device) for _ in values]
        # a step's views of these matrices, by group of rows
        self._seen: tuple[Tensor | None, Tensor | None] = (None, None)
        self._rows: dict[tuple[int, ...], list[list[list[Tensor]]]] = {}

    def place_rates(
        self, rates: Sequence[Sequence[float]], decays: Sequence[float]
    ) -> list[StepRates]:
        """Copy the rates of several steps to the device at once, and return those of each step.

        Parameters
        ----------
        rates : sequence of sequence of float, (n_steps, M)
            Learning rate of each of the M rows in each step.
        decays : sequence of float
            Weight decay of each of the M rows.
        """
        rows_by_rates: dict[tuple[float, ...], list[int]] = {}
        for r, row_rates in enumerate(zip(*rates, strict=True)):
            rows_by_rates.setdefault(row_rates, []).append(r)
        groups, factors = [tuple(rows) for rows in rows_by_rates.values()], [*self._columns]
        like = next(iter(self.state.values()))
        device, dtype, numbers = like.device, like.dtype, list[Any]()
        if self.config.solver == "sgd":
            numbers = [
                [[by * -(factor * rate)] for rate in step_rates]
                for step_rates, by, factor in product(rates, (1.0, self.config.momentum), factors)
            ]
        else:
            numbers = [
                factor * step_rates[rows[0]]
                for step_rates, rows, factor in product(rates, groups, factors)
            ]
            if not like.is_cuda or dtype != torch.float32:
                # On a GPU, the fused kernel reads rates in float32. Rates of parameters in float64
                # need more digits: they stay on the CPU, where the kernel reads them in float64.
                device, dtype = torch.device("cpu"), torch.float64
        placed = torch.tensor(numbers, dtype=dtype, device=device).unbind()
        n = len(placed) // len(rates)
        decay_factors: Sequence[Tensor | None] = [None] * len(rates)
        if any(decays):
            table = [[[1 - r * d] for r, d in zip(row, decays, strict=True)] for row in rates]
            decay_factors = like.new_tensor(table).unbind()
        return [
            StepRates(groups, placed[i * n : (i + 1) * n], step_factors)
            for i, step_factors in enumerate(decay_factors)
        ]

    def step(self, values: Tensor, grads: Tensor, rows: Sequence[int], rates: StepRates) -> None:
        """Update the parameters of the given rows in place.

        Parameters
        ----------
        values, grads : Tensor, (M, P)
            Parameters and their gradients.
        rows : sequence of int
            Positions of the rows to update, increasing.
        rates : StepRates
            Of this step, by ``place_rates``.
        """
        is_whole = len(rows) == len(values)
        parts = [slice(None)] if is_whole else [slice(r, r + 1) for r in rows]
        if rates.decay_factors is not None:
            for part in parts:
                values[part, : self.n_decayed].mul_(rates.decay_factors[part])
        if self.config.solver == "sgd":
            for part in parts:
                self._sgd(values[part], grads[part], part, [rate[part] for rate in rates.rates])
            return
        n, present_rows = len(self._columns), set(rows)
        for i, group in enumerate(rates.groups):
            present = group if is_whole else tuple(r for r in group if r in present_rows)
            if present:
                self._adam(values, grads, present, rates.rates[i * n : (i + 1) * n])

    def _adam(
        self, values: Tensor, grads: Tensor, group: tuple[int, ...], rates: Sequence[Tensor]
    ) -> None:
        if values is not self._seen[0] or grads is not self._seen[1]:
            self._seen, self._rows = (values, grads), {}
        if group not in self._rows:
            matrices = (values, grads, self.state["mean"], self.state["square"])
            self._rows[group] = [
                [[matrix[r, c] for r in group for c in parts] for matrix in matrices]
                for parts in self._columns.values()
            ]
        torch._foreach_add_([self.steps[r] for r in group], 1)
        for (params, slopes, means, squares), rate in zip(self._rows[group], rates, strict=True):
            steps = [self.steps[r] for r in group for _ in range(len(params) // len(group))]
            # the call that torch.optim.Adam(fused=True) comes down to, without the way there
            torch._fused_adam_(
                params,
                slopes,
                means,
                squares,
                [],
                steps,
                lr=rate,
                beta1=self.config.beta_1,
                beta2=self.config.beta_2,
                weight_decay=0.0,
                eps=self.config.epsilon,
                amsgrad=False,
                maximize=False,
            )

    def _sgd(
        self, values: Tensor, grads: Tensor, rows: slice, negative_rates: Sequence[Tensor]
    ) -> None:
        momentum, n = self.config.momentum, len(self._columns)
        for i, slices in enumerate(self._columns.values()):
            by, by_momentum = negative_rates[i], negative_rates[n + i]
            for columns in slices:
                value, grad = values[:, columns], grads[:, columns]
                velocity = self.state["velocity"][rows, columns].mul_(momentum)
                if self.config.rate_last:
                    velocity.add_(grad)
                    value.addcmul_(velocity, by_momentum if self.config.nesterov else by)
                else:
                    velocity.addcmul_(grad, by)
                    value.add_(velocity, alpha=momentum if self.config.nesterov else 1)
                if self.config.nesterov:
                    value.addcmul_(grad, by)

    def select(self, keep: Sequence[int]) -> None:
        """Keep the state of these rows only (increasing positions)."""
        index = torch.tensor(list(keep), dtype=torch.int64)
        self.state = {n: s[index.to(s.device)] for n, s in self.state.items()}
        self.steps = [self.steps[k] for k in keep]
        self._seen, self._rows = (None, None), {}

    def member(self, i: int) -> dict[str, Tensor]:
        """Copy the state of one row, to continue training from it later."""
        return {
            "steps": self.steps[i].detach().cpu().clone(),
            **{name: s[i].detach().cpu().clone() for name, s in self.state.items()},
        }

    def load_member(self, i: int, state: dict[str, Tensor]) -> None:
        """Set the state of one row to a state that ``member`` returned.

        It is loaded into the first columns; the row may have more columns than the state. The state
        of another solver is ignored.
        """
        if state.keys() != {"steps", *self.state}:
            return
        self.steps[i].copy_(state["steps"])
        for name, matrix in self.state.items():
            n = min(matrix.shape[1], state[name].shape[0])
            matrix[i, :n].copy_(state[name][:n])


def clip_gradients(grads: Tensor, max_norm: float) -> Tensor:
    """Scale each row in place to a Euclidean norm of at most ``max_norm``; returns the norms."""
    norms = torch.linalg.vector_norm(grads, dim=1, keepdim=True)
    grads.mul_(max_norm / norms.clamp_min(max_norm))
    return norms.squeeze(1)


# ---- Learning-rate schedules: the factor by which ``learning_rate_init`` is multiplied -----------

Schedule = str | Callable[[float], float]  # a name, or the factor itself as a function

SCHEDULES = (
    "constant",
    "invscaling",
    "adaptive",
    "cosine",
    "one-cycle",
    "flat-cosine",
    "coslog4",
)
"""Names of schedules of the learning rate."""
PER_STEP = ("cosine", "one-cycle", "flat-cosine", "coslog4")
"""Schedules that change the learning rate at each step, over all epochs."""


def is_per_step(schedule: Schedule) -> bool:
    """Tell whether a schedule changes the rate at each step: a function or a name in `PER_STEP`."""
    return callable(schedule) or schedule in PER_STEP


def schedule_factor(name: Schedule, fraction: float) -> float:
    """Return a schedule's factor at ``fraction`` (0 to 1) of the planned steps.

    The schedule is a function of the fraction or one of the names below. Others raise a ValueError:
    the rates of ``invscaling`` and ``adaptive`` depend on more than the fraction.

    - ``constant``: 1;
    - ``cosine``: half a cosine from 1 to 0 (Loshchilov and Hutter, 2017, without restarts);
    - ``one-cycle``: cosine from 1/25 up to 1 over the first 30 %, then down to 1/10000 (Smith and
      Topin, 2018, with the usual shares);
    - ``flat-cosine``: 1 for the first half, then half a cosine to 0;
    - ``coslog4``: (1 - cos(2 pi log2(1 + 15 t))) / 2, four cosine cycles of doubling length
      (Holzmueller et al., 2024).

    >>> [schedule_factor("cosine", t) for t in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    >>> schedule_factor(lambda t: 1 - t, 0.25)
    0.75
    """
    t = min(max(fraction, 0.0), 1.0)
    if callable(name):
        return name(t)
    if name not in _FACTORS:
        more = "; its learning rates depend on more than the fraction" if name in SCHEDULES else ""
        raise ValueError(
            f"a schedule must be a function or one of {', '.join(_FACTORS)}, got {name!r}{more}"
        )
    return _FACTORS[name](t)


def _half_cosine(start: float, end: float, t: float) -> float:
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * t))


def _one_cycle(t: float) -> float:
    up = t < 0.3
    return _half_cosine(1 / 25, 1, t / 0.3) if up else _half_cosine(1, 1e-4, (t - 0.3) / 0.7)


_FACTORS: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "cosine": lambda t: round(_half_cosine(1.0, 0.0, t), 15),
    "one-cycle": _one_cycle,
    "flat-cosine": lambda t: 1.0 if t < 0.5 else _half_cosine(1.0, 0.0, 2 * t - 1),
    "coslog4": lambda t: 0.5 * (1 - math.cos(2 * math.pi * math.log2(1 + 15 * t))),
}


def cycle_ends(schedule: Schedule, max_epochs: int) -> list[int]:
    """Epochs in which the cycles of a schedule end, except for the last cycle.

    Of fewer than 60 epochs the first cycles would be too short to judge, and there are no ends.

    >>> cycle_ends("coslog4", 80), cycle_ends("coslog4", 50), cycle_ends("cosine", 80)
    ([6, 16, 38], [], [])
    """
    if schedule != "coslog4" or max_epochs < 60:
        return []
    return [math.ceil(max_epochs * (2**k - 1) / 15) for k in (1, 2, 3)]


def rate_table(
    name: Schedule, rates: Sequence[float], n_steps: Sequence[int], epoch: int, max_epochs: int
) -> list[list[float]]:
    """Return an epoch's learning rates by the step: a row a step, a column a member.

    ``rates`` are each member's at a factor of 1, and ``n_steps`` its steps an epoch.

    >>> rate_table("cosine", [0.1, 0.2], [2, 2], epoch=0, max_epochs=1)
    [[0.1, 0.2], [0.05, 0.1]]
    """
    longest = max(n_steps)
    factors = {
        n: [schedule_factor(name, (epoch * n + s) / (max_epochs * n)) for s in range(longest)]
        for n in set(n_steps)
    }
    members = list(zip(rates, n_steps, strict=True))
    return [[rate * factors[n][step] for rate, n in members] for step in range(longest)]
