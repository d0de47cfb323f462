"""Attributes of a fitted estimator, from what training found."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.exceptions import ConvergenceWarning

from combutab.estimators.fitting import Job
from combutab.nn import TableNetwork
from combutab.training import MemberResult, is_per_step


class LazyNetwork:
    """Holds the network that predicts; a copy or a pickle of it is empty, to be built anew."""

    def __init__(self) -> None:
        self.network: TableNetwork | None = None

    def __reduce__(self) -> tuple[type[LazyNetwork], tuple[()]]:
        return LazyNetwork, ()


def learned(
    job: Job,
    results: Sequence[MemberResult],
    loss_curve: Sequence[float],
    validation_scores: Sequence[float],
) -> dict[str, Any]:
    """The attributes of a fitted estimator; the curves are those that the training goes on from.

    Raises ValueError if training diverged, or a weight is not finite.
    """
    first, trained = results[0], job.members[: len(results)]  # fewer after an interrupt
    finite = all(torch.isfinite(v).all() for r in results for v in r.state.values())
    lost = any(r.reason == "diverged" and not np.isfinite(r.best_score) for r in results)
    if not finite or lost:  # with validation rows there are the best weights before
        raise ValueError(
            "Solver produced non-finite parameter weights. The input data may contain large "
            "values and need to be preprocessed. Or lower learning_rate_init="
            f"{job.plans[0].learning_rate}, or set max_grad_norm."
        )
    scored = job.config.score is not None
    attributes: dict[str, Any] = {
        "_states": [{n: v.numpy() for n, v in r.state.items()} for r in results],
        "_progress": [
            {
                "epochs": r.epochs,
                "t": r.t,
                "best_loss": r.best_loss,
                "n_idle": r.n_iter_no_improvement,
                "learning_rate": r.next_learning_rate,
                "optimizer": {n: v.numpy() for n, v in r.optimizer.items()},
            }
            for r in results
        ],
        "_net": LazyNetwork(),
        "_trained": (tuple(member.activation for member in trained), job.config.precision.name),
        "n_layers_": len(job.spec.widths),
        "t_": first.t,
        "n_iter_": len(first.train_loss),
        "loss_": first.train_loss[-1] if first.train_loss else first.best_loss,
        "loss_curve_": [*loss_curve, *first.train_loss],
        "best_loss_": None if scored else first.best_loss,
        "validation_scores_": [*validation_scores, *first.validation_score] if scored else None,
        "best_validation_score_": first.best_score if scored else None,
        "history_": _history(results),
    }
    if job.config.optimizer.solver == "lbfgs":
        del attributes["loss_curve_"]
        attributes |= {"n_iter_": first.epochs, "loss_": first.best_loss}
    return attributes


def warn_unfinished(
    job: Job, results: Sequence[MemberResult], *, converges: bool, in_parts: bool = False
) -> None:
    """Warn of training that was cut short, or did not converge where that is expected.

    ``in_parts``: a call of ``fit`` is one of several, none of which says that it was the last.
    """
    reasons = {r.reason for r in results}
    if "interrupted" in reasons:
        warnings.warn(
            "Training interrupted by user: the best weights so far are kept.", stacklevel=5
        )
    if "diverged" in reasons:
        warnings.warn(
            "Training diverged; the weights of its best epoch are kept. Lower learning_rate_init="
            f"{job.plans[0].learning_rate}, or set max_grad_norm.",
            ConvergenceWarning,
            stacklevel=5,
        )
    config = job.config
    if config.score is not None and not any(np.isfinite(r.best_score) for r in results):
        warnings.warn(
            "No epoch has a validation score that is a number: the weights of the last are kept. "
            "See early_stopping_scoring.",
            ConvergenceWarning,
            stacklevel=5,
        )
    # with n_iter_no_change=inf, or a schedule to the end, so many epochs were asked for
    planned = np.isinf(config.n_iter_no_change) or is_per_step(config.learning_rate)
    open_ended = converges and (in_parts or not planned)
    if "max_iter" in reasons and config.optimizer.solver != "lbfgs" and open_ended:
        warnings.warn(
            f"Stochastic Optimizer: Maximum iterations ({config.max_epochs}) reached and the "
            "optimization hasn't converged yet.",
            ConvergenceWarning,
            stacklevel=5,
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
