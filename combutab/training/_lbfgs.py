"""L-BFGS on the whole data set, one member at a time, with scipy's solver (as scikit-learn)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.optimize
import torch
from sklearn.exceptions import ConvergenceWarning

from combutab.training._records import (
    MemberPlan,
    MemberResult,
    Rows,
    TrainableNetwork,
    TrainConfig,
    by_head,
)


def train_lbfgs(
    net: TrainableNetwork, data: Rows, plan: MemberPlan, config: TrainConfig, max_fun: int
) -> MemberResult:
    """Minimise the penalised loss over all rows; the network must hold one member.

    Dropout has no place here (the objective would change from call to call) and is off.
    """
    net.train(True)
    rows = plan.rows.to(data.dense.device)
    batch = data.each(lambda tensor: tensor[rows].unsqueeze(0))
    values, grads, n_decayed = net.flat.values, net.flat.grads, net.n_decayed
    weight = torch.ones_like(batch.dense[..., 0]) if batch.weight is None else batch.weight
    mass, n_heads = weight.sum(), net.n_heads
    y, weight = by_head(batch.y, n_heads), by_head(weight / n_heads, n_heads)
    best: list[tuple[float, np.ndarray]] = []

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        values[0].copy_(torch.from_numpy(x))
        raw = net(batch.dense, batch.codes)
        losses = config.loss.rows(raw.to(config.precision.dtype), y)
        loss = (losses * weight).sum() / mass
        net.flat.backward(loss)
        decayed = values[:, :n_decayed]
        grads[:, :n_decayed].add_(decayed * (plan.alpha / mass))
        total = loss.detach() + 0.5 * plan.alpha * decayed.square().sum() / mass
        value = float(total)
        if not best or value < best[0][0]:
            best[:] = [(value, x.copy())]
        return value, grads[0].cpu().to(torch.float64).numpy()

    start = values[0].cpu().to(torch.float64).numpy()
    reason = "no_improvement"
    try:
        solution = scipy.optimize.minimize(
            objective,
            start,
            method="L-BFGS-B",
            jac=True,
            options={"maxfun": max_fun, "maxiter": config.max_epochs, "gtol": config.tol},
        )
        x, loss, n_iter = solution.x, float(solution.fun), int(solution.nit)
        if not np.isfinite(loss):
            reason = "diverged"
        elif solution.status == 1:
            reason = "max_iter"
            warnings.warn(
                f"lbfgs failed to converge after {n_iter} iteration(s) (status=1): "
                f"{solution.message}; increase max_iter={config.max_epochs} or max_fun={max_fun}",
                ConvergenceWarning,
                stacklevel=2,
            )
    except KeyboardInterrupt:
        reason, n_iter = "interrupted", 0
        loss, x = best[0] if best else (np.inf, start)
    values[0].copy_(torch.from_numpy(x))
    _settle_statistics(net, batch)
    return MemberResult(
        state={n: v.cpu() for n, v in net.member_state(0).items()},
        optimizer={},
        epochs=n_iter,
        t=n_iter * len(rows),
        reason=reason,
        train_loss=[],
        validation_score=[],
        learning_rate=[],
        best_loss=loss,
        best_score=-np.inf,
        n_iter_no_improvement=0,
    )


@torch.no_grad()
def _settle_statistics(net: TrainableNetwork, batch: Rows) -> None:
    """Let the running statistics of batch normalisation be those of the rows at the last weights.

    So far they are an average over weights that the line search tried.
    """
    modules: list[Any] = [m for m in net.modules() if getattr(m, "momentum", None) is not None]
    before = [module.momentum for module in modules]
    try:
        for module in modules:
            module.momentum = 1.0
        if modules:
            net(batch.dense, batch.codes)
    finally:
        for module, momentum in zip(modules, before, strict=True):
            module.momentum = momentum
