"""Optimisers for the parameters of all members, and schedules of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
        self.config, self.n_decayed, self.factors = config, n_decayed, tuple(factors)
        names = ("velocity",) if config.solver == "sgd" else ("mean", "square")
        self.state = {name: torch.zeros_like(values) for name in names}
        device = values.device if values.is_cuda else "cpu"
        self.steps = [torch.zeros((), dtype=torch.float32, device=device) for _ in values]
        # a step's views of these matrices, by group of rows
        self._seen: tuple[Tensor | None, Tensor | None] = (None, None)
        self._rows: dict[tuple[int, ...], dict[float, list[list[Tensor]]]] = {}

    def step(
        self,
        values: Tensor,
        grads: Tensor,
        rows: Sequence[int],
        rates: Sequence[float],
        decays: Sequence[float],
    ) -> None:
        """Update the parameters of the given rows in place.

        Parameters
        ----------
        values, grads : Tensor, (M, P)
            Parameters and their gradients.
        rows : sequence of int
            Positions of the rows to update.
        rates, decays : sequence of float
            Learning rate and weight decay of each of the M rows.
        """
        by_rate: dict[float, list[int]] = {}
        for r in rows:
            if decays[r]:
                values[r, : self.n_decayed].mul_(1 - rates[r] * decays[r])
            by_rate.setdefault(rates[r], []).append(r)
        for rate, group in by_rate.items():
            if self.config.solver == "sgd":
                self._sgd(values, grads, group, rate)
            else:
                self._adam(values, grads, group, rate)

    def _adam(self, values: Tensor, grads: Tensor, group: Sequence[int], rate: float) -> None:
        if values is not self._seen[0] or grads is not self._seen[1]:
            self._seen, self._rows = (values, grads), {}
        key = tuple(group)
        if key not in self._rows:
            matrices = (values, grads, self.state["mean"], self.state["square"])
            by_factor: dict[float, list[slice]] = {}
            for columns, factor in self.factors:
                by_factor.setdefault(factor, []).append(columns)
            self._rows[key] = {
                factor: [[matrix[r, c] for r in group for c in parts] for matrix in matrices]
                for factor, parts in by_factor.items()
            }
        torch._foreach_add_([self.steps[r] for r in group], 1)
        for factor, (params, slopes, means, squares) in self._rows[key].items():
            steps = [self.steps[r] for r in group for _ in range(len(params) // len(group))]
            # the call that torch.optim.Adam(fused=True) comes down to, without the way there
            torch._fused_adam_(
                params,
                slopes,
                means,
                squares,
                [],
                steps,
                lr=factor * rate,
                beta1=self.config.beta_1,
                beta2=self.config.beta_2,
                weight_decay=0.0,
                eps=self.config.epsilon,
                amsgrad=False,
                maximize=False,
            )

    def _sgd(self, values: Tensor, grads: Tensor, group: Sequence[int], rate: float) -> None:
        momentum = self.config.momentum
        for r in group:
            for columns, factor in self.factors:
                value, grad = values[r, columns], grads[r, columns]
                velocity, member_rates = self.state["velocity"][r, columns], factor * rate
                into, by = (1.0, -member_rates) if self.config.rate_last else (-member_rates, 1.0)
                velocity.mul_(momentum).add_(grad, alpha=into)
                if self.config.nesterov:
                    value.add_(velocity, alpha=momentum * by).add_(grad, alpha=-member_rates)
                else:
                    value.add_(velocity, alpha=by)

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
