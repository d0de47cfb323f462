"""One fit of an estimator, shared by ranks: its members, or else the rows of its batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from combutab._ranks import Ranks, agreed, check_same, current, unshared
from combutab.estimators.fitting._checkpoints import Checkpoint
from combutab.estimators.fitting._jobs import train_jobs
from combutab.estimators.fitting._stacks import Job, train_streamed
from combutab.training import Callback, MemberResult, Rows, RowStream


def train_shared(
    job: Job, callbacks: Sequence[Callback] = (), file: Checkpoint | None = None
) -> list[MemberResult]:
    """Train a job; where ranks share the fit, all return the same results.

    Members are shared out, without a word until they are trained, if there are as many as ranks
    and nobody is told of epochs; else the rows of each batch are. Rank 0 writes the file, and is
    told of epochs.

    Raises ValueError if the ranks were given different tables or settings, or rows cannot be
    shared.
    """
    ranks = current()
    if file is not None:
        file.of(job)
    if ranks is None:
        return train_jobs([job], callbacks, file=file)[0]
    rows = job.rows
    check_same(ranks, [rows.dense, rows.codes, rows.y, rows.weight])
    told = agreed(bool(callbacks))  # others may have been given none
    if len(job.members) >= ranks.count and not told and file is None:
        return _share_members(job, ranks, lambda part: train_jobs([part])[0])
    if job.config.optimizer.solver == "lbfgs":
        raise ValueError(
            f"solver='lbfgs' takes all rows at once, which {ranks.count} ranks cannot share: use "
            f"'adam', 'adamw' or 'sgd', or n_members of at least {ranks.count}, which are then "
            "shared out"
        )
    return train_jobs([job], callbacks, file=file)[0]


def train_shared_stream(
    job: Job,
    stream: RowStream,
    callbacks: Sequence[Callback],
    some: Callable[[], tuple[Rows, Sequence[Tensor]]],
) -> list[MemberResult]:
    """Train a job on rows that are read once for all members, shared by ranks as above.

    Each rank reads all rows. ``some`` gives a few of them and what was learned of all, by which
    ranks are told apart that were given different tables.
    """
    ranks = current()
    if ranks is None:
        return train_streamed(job, stream, callbacks)
    rows, learned = some()
    check_same(ranks, [rows.dense, rows.codes, rows.y, rows.weight, *learned])
    if len(job.members) >= ranks.count and not agreed(bool(callbacks)):
        return _share_members(job, ranks, lambda part: train_streamed(part, stream))
    return train_streamed(job, stream, callbacks)


def _share_members(
    job: Job, ranks: Ranks, train: Callable[[Job], list[MemberResult]]
) -> list[MemberResult]:
    own = slice(*ranks.span(len(job.members)))
    states = None if job.start_states is None else job.start_states[own]
    part = replace(job, members=job.members[own], plans=job.plans[own], start_states=states)
    with unshared():
        results = train(part)
    if any(result.reason == "interrupted" for result in results):
        raise KeyboardInterrupt
    return [result for of_rank in ranks.gather(results) for result in of_rank]
