"""The task of a fit, for scikit-learn's callbacks: its epochs, and what they would make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from combutab._sklearn_callbacks import fit_task, has_callbacks
from combutab.estimators.fitting._stacks import Job, plan_stacks
from combutab.training import FitTasks, Learned


@contextmanager
def epoch_tasks(
    estimator: Any, job: Job, learned: Learned, *data: Any, streamed: bool = False
) -> Iterator[list[FitTasks]]:
    """Tell an estimator's callbacks of its fit to X, y, weights, which is done within.

    What it gives is for the training: none where nobody is told of epochs. A ``streamed`` job
    trains as one stack.
    """
    n_epochs = 0 if job.config.optimizer.solver == "lbfgs" else job.config.max_epochs
    if has_callbacks(estimator) and not streamed:
        n_epochs *= len(plan_stacks([job]))
    with fit_task(estimator, *data, n_parts=n_epochs) as task:
        yield [FitTasks(task, learned)] if task is not None and task.watched else []
