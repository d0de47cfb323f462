"""A classifier that answers one class whatever it is asked: found out, and told."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from combutab.estimators.fitted._held_out import scored_outputs, scored_rows
from combutab.estimators.fitting import Job
from combutab.nn import TableNetwork
from combutab.training import MemberResult

_TRIAL = 20  # epochs: a fit that is to run fewer is a trial, which nobody takes for finished
# Of the log loss that the classes' shares have. Below it the columns say something: of a rare
# class every row may have less than a half, and yet be told from the others.
_LEARNED = 0.95


def warn_of_one_class(
    job: Job,
    results: Sequence[MemberResult],
    network: Callable[[], TableNetwork],
    probabilities: Callable[[Tensor], np.ndarray],
    classes: np.ndarray,
    *,
    goes_on: bool,
) -> None:
    """Warn of a classifier that answers one class, no better than the classes' shares would.

    Parameters
    ----------
    job, results
    network : callable
        Gives the fitted network, which is asked for where the recorded scores leave a doubt.
    probabilities : callable
        Raw outputs -> (n, n_classes).
    classes : ndarray of shape (n_classes,)
        One label a row, at least two classes.
    goes_on : bool
        Whether another call may train on, and is expected to where ``max_iter`` was reached.
    """
    reasons = {result.reason for result in results}
    unfinished = "max_iter" in reasons and (goes_on or job.config.max_epochs < _TRIAL)
    if unfinished or reasons - {"max_iter", "no_improvement"} or not len(job.rows.dense):
        return
    scored = _shares(job, scored_rows(job), len(classes))
    trained = [_shares(job, plan.rows, len(classes)) for plan in job.plans if len(plan.rows)]
    if any(shares.max() == 1 for shares in (scored, *trained)):  # nothing else to learn, or to see
        return
    if _is_better(job, results, scored, trained):
        return
    raw, rows = scored_outputs(network(), job)
    p, y, weight = probabilities(raw), _labels(job, rows), _weights(job, rows)
    answers = p.argmax(1)
    if (answers != answers[0]).any():
        return
    own = p[np.arange(len(y)), y].clip(np.finfo(p.dtype).tiny)
    loss = float(-(weight * np.log(own)).sum() / weight.sum())
    shares = _shares(job, rows, len(classes))
    if not loss > _LEARNED * _entropy(shares):
        return
    what = "training" if job.config.score is None else "validation"
    by_loss = "early_stopping_scoring='loss', " * (job.config.score not in (None, "loss"))
    warnings.warn(
        f"The classifier answers class {classes.tolist()[answers[0]]!r} for every one of {len(y)} {what} "
        f"rows, {shares[answers[0]]:.1%} of which have it, and its probabilities are hardly better "
        f"than the classes' shares (log loss {loss:.3g}, that of the shares "
        f"{_entropy(shares):.3g}): it has learned nothing of the columns. Try another "
        f"learning_rate_init than {job.plans[0].learning_rate:g}, {by_loss}more epochs (max_iter="
        f"{job.config.max_epochs}, n_iter_no_change={job.config.n_iter_no_change}), or "
        "class_weight='balanced'.",
        ConvergenceWarning,
        stacklevel=6,
    )


def _is_better(
    job: Job, results: Sequence[MemberResult], scored: np.ndarray, trained: Sequence[np.ndarray]
) -> bool:
    """Tell whether the scores of training already say that something was learned."""
    if job.config.score == "accuracy":
        return all(result.best_score > scored.max() for result in results)
    if job.config.score == "loss":
        return all(-result.best_score < _LEARNED * _entropy(scored) for result in results)
    if job.config.score is None:  # of the training, penalties and all
        losses = [
            result.train_loss[-1] if result.train_loss else result.best_loss for result in results
        ]
        return all(
            loss < _LEARNED * _entropy(shares)
            for loss, shares in zip(losses, trained, strict=False)
        )
    return False


def _labels(job: Job, rows: Tensor) -> np.ndarray:
    return job.rows.y[rows].reshape(-1).to(torch.int64).numpy()


def _weights(job: Job, rows: Tensor) -> np.ndarray:
    if job.rows.weight is None:
        return np.ones(len(rows))
    return job.rows.weight[rows].double().numpy()


def _shares(job: Job, rows: Tensor, n_classes: int) -> np.ndarray:
    """Share of the rows' weight that each class has."""
    mass = np.bincount(_labels(job, rows), _weights(job, rows), n_classes)
    return mass / mass.sum()


def _entropy(shares: np.ndarray) -> Any:
    present = shares[shares > 0]
    return -(present * np.log(present)).sum()
