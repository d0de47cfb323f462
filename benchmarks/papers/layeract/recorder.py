"""Statistics of activations after the epochs of a fit."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

from combutab.evaluation import activation_stats
from combutab.nn import TableNetwork
from combutab.training import Callback, EpochReport, Rows


class ActivationRecorder(Callback):
    """A callback of an estimator that calls `activation_stats` after epochs of its fit.

    It does not change the training. A second fit with the same recorder appends to its tables and
    continues the member numbers.

    Parameters
    ----------
    n_rows : int, default=256
        Number of rows for the statistics, evenly spaced in the training table.
    every : int, default=1
        Number of epochs between two records. The first epoch is always recorded.
    options : keyword arguments of `activation_stats`, such as ``noises`` and ``noise_at``

    Attributes
    ----------
    layers, fluctuation : DataFrame
        As in `ActivationStats`, with ``epoch`` as the first column. ``member`` is the number of the
        network in the fit.
    """

    def __init__(self, n_rows: int = 256, *, every: int = 1, **options: Any) -> None:
        self.n_rows, self.every, self.options = n_rows, every, options
        self.layers = self.fluctuation = pd.DataFrame()
        self._n_members = self._n_trained = 0  # of the current stack, of the stacks before it

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        self._n_trained += self._n_members
        self._n_members = n_members

    def on_epoch_network(self, report: EpochReport, network: TableNetwork, data: Rows) -> None:
        if report.epoch > 1 and report.epoch % self.every:
            return
        n_rows = min(len(data.dense), self.n_rows)
        positions = torch.arange(n_rows, device=data.dense.device) * len(data.dense) // n_rows
        rows = data.each(lambda tensor: tensor[positions])
        stats = activation_stats(network, rows, batch_size=n_rows, **self.options)
        members = dict(enumerate(self._n_trained + member for member in report.members))
        for name in ("layers", "fluctuation"):
            table = getattr(stats, name)
            table["member"] = table["member"].map(members)
            table.insert(0, "epoch", report.epoch)
            setattr(self, name, pd.concat([getattr(self, name), table], ignore_index=True))
