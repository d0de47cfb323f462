"""A classifier that answers one class whatever it is asked: found out, and told."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from combutab.estimators.fitted._held_out import scored_outputs
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
    if _is_better(job, results, len(classes)) or not _varies(job):
        return
    raw, rows = scored_outputs(network(), job)
    p, y, weight = probabilities(raw), _labels(job, rows), _weights(job, rows)
    answers = p.argmax(1)
    if (answers != answers[0]).any():
        return
    own = p[np.arange(len(y)), y].clip(np.finfo(p.dtype).tiny)
    loss = float(-(weight * np.log(own)).sum() / weight.sum())
    shares = _shares(job, rows, len(classes))
    entropy = _entropy(shares)
    if not loss > _LEARNED * entropy or entropy == 0:  # of rows of one class nothing can be said
        return
    what = "training" if job.config.score is None else "validation"
    by_loss = "early_stopping_scoring='loss', " * (job.config.score not in (None, "loss"))
    label, share = classes.tolist()[answers[0]], shares[answers[0]]
    warnings.warn(
        f"The classifier answers class {label!r} for every one of {len(y)} {what} rows, "
        f"{share:.1%} of which have it, and its probabilities are hardly better than the classes' "
        f"shares (log loss {loss:.3g}, that of the shares {entropy:.3g}): it has learned nothing "
        "of the columns. Try another learning_rate_init than "
        f"{job.plans[0].learning_rate:g}, {by_loss}more epochs (max_iter={job.config.max_epochs}, "
        f"n_iter_no_change={job.config.n_iter_no_change}), or class_weight='balanced'.",
        ConvergenceWarning,
        stacklevel=6,
    )


def _is_better(job: Job, results: Sequence[MemberResult], n_classes: int) -> bool:
    """Tell whether what training recorded already says that something was learned.

    Or that there was nothing: where the training rows are of one class.
    """
    shares: dict[int, np.ndarray] = {}
    for result, plan in zip(results, job.plans, strict=False):
        scored = plan.rows if plan.val_rows is None else plan.val_rows
        for rows in (plan.rows, scored):
            if id(rows) not in shares:
                shares[id(rows)] = _shares(job, rows, n_classes) if len(rows) else np.zeros(1)
        if shares[id(plan.rows)].max() == 1:
            continue
        own, score = shares[id(scored)], job.config.score
        if score == "accuracy":
            better = result.best_score > own.max() + 1e-6
        elif score == "loss":
            better = -result.best_score < _LEARNED * _entropy(own)
        elif score is None:  # penalties and all
            loss = result.train_loss[-1] if result.train_loss else result.best_loss
            better = loss < _LEARNED * _entropy(own)
        else:
            better = False
        if not better:
            return False
    return True


def _varies(job: Job) -> bool:
    """Tell whether there is a column to learn of."""
    tables = (job.rows.dense, job.rows.codes)
    return any(bool((table != table[:1]).any()) for table in tables if table is not None)


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
