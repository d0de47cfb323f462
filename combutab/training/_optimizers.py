"""Optimisers over a (M, P) matrix of parameters: a row a member, each with its own rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.adam import adam

SOLVERS = ("adam", "adamw", "sgd", "lbfgs")


@dataclass(frozen=True)
class OptimizerConfig:
    """Hyper-parameters that all members share.

    SGD's velocity is of steps, as scikit-learn's; with ``rate_last`` it is of gradients, and the
    rate of the moment multiplies it, as torch's: under a schedule the two differ.
    """

    solver: str = "adam"
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    momentum: float = 0.9
    nesterov: bool = True
    rate_last: bool = False


class RowOptimizer:
    """Adam, AdamW or SGD with momentum on the rows of a matrix.

    AdamW's decay is decoupled and acts on the first ``n_decayed`` columns (the weights, not the
    biases). A row that is not in ``rows`` of a step is left as it is, with its state.
    """

    def __init__(self, config: OptimizerConfig, values: Tensor, n_decayed: int) -> None:
        self.config, self.n_decayed = config, n_decayed
        names = ("velocity",) if config.solver == "sgd" else ("mean", "square")
        self.state = {name: torch.zeros_like(values) for name in names}
        self.steps = [torch.zeros((), dtype=torch.float32) for _ in range(values.shape[0])]
        if values.is_cuda:
            self.steps = [s.to(values.device) for s in self.steps]
        # a step's views of these matrices, by group of rows
        self._seen: tuple[Tensor | None, Tensor | None] = (None, None)
        self._rows: dict[tuple[int, ...], list[list[Tensor]]] = {}

    def step(
        self,
        values: Tensor,
        grads: Tensor,
        rows: Sequence[int],
        rates: Sequence[float],
        decays: Sequence[float],
    ) -> None:
        """Update ``rows``.

        Parameters
        ----------
        values, grads : Tensor, (M, P)
        rows : sequence of int
        rates, decays : sequence of float
            By row, not by place in ``rows``.
        """
        if any(decays[r] for r in rows):
            for r in rows:
                if decays[r]:
                    values[r, : self.n_decayed].mul_(1 - rates[r] * decays[r])
        by_rate: dict[float, list[int]] = {}
        for r in rows:
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
            self._rows[key] = [[matrix[r] for r in group] for matrix in matrices]
        params, slopes, means, squares = self._rows[key]
        steps = [self.steps[r] for r in group]
        config = self.config
        if values.device.type in ("cpu", "cuda"):
            # the call that torch.optim.Adam(fused=True) comes down to, without the way there
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                params,
                slopes,
                means,
                squares,
                [],
                steps,
                lr=rate,
                beta1=config.beta_1,
                beta2=config.beta_2,
                weight_decay=0.0,
                eps=config.epsilon,
                amsgrad=False,
                maximize=False,
            )
            return
        adam(
            params,
            slopes,
            means,
            squares,
            [],
            steps,
            foreach=False,
            amsgrad=False,
            has_complex=False,
            beta1=config.beta_1,
            beta2=config.beta_2,
            lr=rate,
            weight_decay=0.0,
            eps=config.epsilon,
            maximize=False,
        )

    def _sgd(self, values: Tensor, grads: Tensor, group: Sequence[int], rate: float) -> None:
        momentum = self.config.momentum
        for r in group:
            velocity = self.state["velocity"][r]
            into, by = (1.0, -rate) if self.config.rate_last else (-rate, 1.0)
            velocity.mul_(momentum).add_(grads[r], alpha=into)
            if self.config.nesterov:
                values[r].add_(velocity, alpha=momentum * by).add_(grads[r], alpha=-rate)
            else:
                values[r].add_(velocity, alpha=by)

    def select(self, keep: Sequence[int]) -> None:
        """Keep these rows' state (increasing)."""
        index = torch.tensor(list(keep), dtype=torch.int64)
        self.state = {n: s[index.to(s.device)] for n, s in self.state.items()}
        self.steps = [self.steps[k] for k in keep]
        self._seen, self._rows = (None, None), {}

    def member(self, i: int) -> dict[str, Tensor]:
        """A copy of one row's state, to go on from later."""
        return {
            "steps": self.steps[i].detach().cpu().clone(),
            **{name: s[i].detach().cpu().clone() for name, s in self.state.items()},
        }

    def load_member(self, i: int, state: dict[str, Tensor]) -> None:
        """Set one row's state to what ``member`` gave.

        A member's columns come first whatever it is stacked with; a row may be longer than that.
        The state of another solver is of no use to this one, which begins anew.
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
