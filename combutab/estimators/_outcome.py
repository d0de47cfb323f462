"""From what training found to a fitted estimator's attributes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.exceptions import ConvergenceWarning

from combutab.estimators._jobs import Job
from combutab.estimators._lazy import LazyNetwork
from combutab.training import MemberResult


def absorb(
    estimator: Any,
    job: Job,
    results: Sequence[MemberResult],
    *,
    fresh: bool,
    converges: bool = True,
) -> None:
    """Set the attributes of a fitted estimator; nothing is set if training diverged.

    Training that is not expected to converge is not warned of if it does not.

    Raises
    ------
    ValueError
        If a weight is not finite.
    """
    finite = all(torch.isfinite(v).all() for r in results for v in r.state.values())
    if not finite or any(r.reason == "diverged" for r in results):
        raise ValueError(
            "Solver produced non-finite parameter weights. The input data may contain large "
            "values and need to be preprocessed. Or lower learning_rate_init="
            f"{estimator.learning_rate_init}, or set max_grad_norm."
        )
    first = results[0]
    estimator._states = [{n: v.numpy() for n, v in r.state.items()} for r in results]
    estimator._progress = [
        {
            "epochs": r.epochs,
            "t": r.t,
            "best_loss": r.best_loss,
            "n_idle": r.n_idle,
            "learning_rate": r.next_learning_rate,
            "optimizer": {n: v.numpy() for n, v in r.optimizer.items()},
        }
        for r in results
    ]
    estimator._net = LazyNetwork()
    trained = job.members[: len(results)]  # an interrupt may leave fewer than were wanted
    estimator._trained = (tuple(member.activation for member in trained), estimator.precision)
    estimator.n_layers_ = len(job.spec.widths)
    estimator.t_ = first.t
    if job.config.optimizer.solver == "lbfgs":
        estimator.n_iter_, estimator.loss_ = first.epochs, first.best_loss
        estimator.__dict__.pop("loss_curve_", None)  # of an earlier fit
    else:
        estimator.loss_curve_ = [*_earlier(estimator, "loss_curve_", fresh), *first.train_loss]
        estimator.n_iter_ = len(first.train_loss)
        estimator.loss_ = first.train_loss[-1] if first.train_loss else first.best_loss
    scored = job.config.score is not None
    estimator.best_loss_ = None if scored else first.best_loss
    scores = [*_earlier(estimator, "validation_scores_", fresh), *first.validation_score]
    estimator.validation_scores_ = scores if scored else None
    estimator.best_validation_score_ = first.best_score if scored else None
    estimator.history_ = _history(results)
    _warn(results, job, converges)


def _earlier(estimator: Any, name: str, fresh: bool) -> list[float]:
    """The curve that warm_start or partial_fit goes on from."""
    return [] if fresh else getattr(estimator, name, None) or []


def _warn(results: Sequence[MemberResult], job: Job, converges: bool) -> None:
    reasons = {r.reason for r in results}
    if "interrupted" in reasons:
        warnings.warn(
            "Training interrupted by user: the best weights so far are kept.", stacklevel=6
        )
    config = job.config
    # with n_iter_no_change=inf a fixed number of epochs was asked for
    open_ended = converges and np.isfinite(config.n_iter_no_change)
    if "max_iter" in reasons and config.optimizer.solver != "lbfgs" and open_ended:
        warnings.warn(
            f"Stochastic Optimizer: Maximum iterations ({config.max_epochs}) reached and the "
            "optimization hasn't converged yet.",
            ConvergenceWarning,
            stacklevel=6,
        )


def _history(results: Sequence[MemberResult]) -> pd.DataFrame:
    """Tidy history: one row a member and epoch."""
    frames = [
        pd.DataFrame(
            {
                "member": i,
                "epoch": np.arange(1, len(r.train_loss) + 1) + r.epochs - len(r.train_loss),
                "train_loss": r.train_loss,
                "train_metric": r.train_metric or np.nan,
                "validation_score": r.validation_score or np.nan,
                "learning_rate": r.learning_rate,
            }
        )
        for i, r in enumerate(results)
    ]
    return pd.concat(frames, ignore_index=True)
