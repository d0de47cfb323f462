"""Outputs of a fitted network for rows of its own fit: each fold's, or the rows it is scored on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from combutab.estimators.fitting import Job
from combutab.nn import TableNetwork

_ROWS = 2048  # looked at, and computed at a time


@torch.inference_mode()
def held_out_outputs(net: TableNetwork, job: Job) -> Tensor:
    """Raw outputs of each row by the member that has not trained on it, (n_heads, n, n_outputs).

    NaN where an interrupt has left no such member.
    """
    assert job.folds is not None
    raw = torch.full((net.n_heads, len(job.folds.kept), job.spec.n_outputs), torch.nan)
    raw = raw.to(net.dtype)
    folds = job.folds.positions[: net.n_members]
    longest, chunk = max(map(len, folds)), max(1, _ROWS // len(folds))
    index = torch.stack([pad(fold, (0, longest - len(fold))) for fold in folds])
    for start in range(0, longest, chunk):
        part = index[:, start : start + chunk]
        codes = None if job.rows.codes is None else job.rows.codes[part].to(net.device)
        with job.config.precision.context(net.device)():
            outputs = net(job.rows.dense[part].to(net.device), codes)
        by_head = outputs.to(net.dtype).cpu().unflatten(1, (-1, net.n_heads))
        for fold, own in zip(folds, by_head, strict=True):  # own: (b, n_heads, n_outputs)
            places = fold[start : start + chunk]
            raw[:, places] = own[: len(places)].transpose(0, 1)
    return raw


def scored_outputs(net: TableNetwork, job: Job) -> tuple[Tensor, Tensor]:
    """Raw outputs, (n_networks, n, n_outputs), for rows that the fit is scored on, and which.

    These are the validation rows, or where there are none the training rows: a sample, if many.
    """
    if job.folds is not None:
        rows = torch.arange(len(job.folds.kept)) + job.folds.scored_from
        return held_out_outputs(net, job), rows
    plan = job.plans[0]
    rows = plan.rows if plan.val_rows is None else plan.val_rows
    if len(rows) > _ROWS:
        sample = np.random.default_rng(0).permutation(len(rows))[:_ROWS]
        rows = rows[torch.from_numpy(sample)]
    codes = None if job.rows.codes is None else job.rows.codes[rows]
    context = job.config.precision.context(net.device)
    return net.predict(job.rows.dense[rows], codes, _ROWS, context).cpu(), rows
