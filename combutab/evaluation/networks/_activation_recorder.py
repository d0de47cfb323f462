"""Activation statistics of a network as it trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pandas as pd
import torch

from combutab.evaluation.networks._activation_stats import PAPERS_NOISES, Look, Noise
from combutab.evaluation.networks._layer_hooks import open_stack
from combutab.training import Callback, EpochReport, Rows, TrainableNetwork


class ActivationRecorder(Callback):
    """Record `activation_stats` after the epochs of an estimator's ``fit``, as a callback.

    The training is not changed by it. A second fit with the same recorder adds to its tables, and
    goes on counting the members: begin with a fresh one.

    Parameters
    ----------
    n_rows : int, default=256
        Rows of the table given to ``fit`` that are looked at, evenly spaced; all if it has fewer.
        Of a table that does not fit in memory (``fit_parquet``), of the validation rows.
    every : int, default=1
        Record each so many epochs, and the first.
    noises, noise_at
        As in `activation_stats`.

    Attributes
    ----------
    layers, fluctuation : DataFrame
        As in `ActivationStats`, with a column ``epoch`` in front; ``member`` counts the networks
        of the fit.

    Raises
    ------
    ValueError
        ``n_rows`` or ``every`` is less than 1, a noise is out of range; in the fit, no row is held.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab import MLPClassifier
    >>> recorder = ActivationRecorder(every=10)
    >>> fixed = {"max_iter": 20, "n_iter_no_change": float("inf"), "random_state": 0}
    >>> net = MLPClassifier((16,), "combu", callbacks=[recorder], **fixed)
    >>> _ = net.fit(*load_iris(return_X_y=True))
    >>> recorder.layers[["epoch", "layer", "activation", "n_units"]]
       epoch          layer activation  n_units
    0      1  activations.0      combu       16
    1     10  activations.0      combu       16
    2     20  activations.0      combu       16
    >>> recorder.layers["dead"].between(0, 1).all()
    np.True_
    """

    def __init__(
        self,
        n_rows: int = 256,
        *,
        every: int = 1,
        noises: Sequence[Noise] = PAPERS_NOISES,
        noise_at: Literal["layer", "input"] = "layer",
    ) -> None:
        if n_rows < 1 or every < 1:
            raise ValueError(f"n_rows and every must be at least 1, got {n_rows=}, {every=}")
        self.n_rows, self.every = n_rows, every
        self._look = Look(tuple(noises), noise_at)
        self._tables: dict[str, list[pd.DataFrame]] = {"layers": [], "fluctuation": []}
        self._before = self._n_members = 0  # networks of the stacks that are done; of this one

    @property
    def layers(self) -> pd.DataFrame:
        return self._table("layers")

    @property
    def fluctuation(self) -> pd.DataFrame:
        return self._table("fluctuation")

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        self._before += self._n_members
        self._n_members = n_members

    def on_epoch_network(self, report: EpochReport, network: TrainableNetwork, data: Rows) -> None:
        if report.epoch > 1 and report.epoch % self.every:
            return
        n = len(data.dense)
        if not n:
            raise ValueError(
                "no rows are held to record activations on: a table that does not fit in memory "
                "is recorded with early_stopping=True alone, on its validation rows"
            )
        n_kept = min(n, self.n_rows)
        rows = torch.arange(n_kept, device=data.dense.device) * n // n_kept
        codes = None if data.codes is None else data.codes[rows]
        stats = self._look(open_stack(network, data.dense[rows], codes, self.n_rows))
        members = [self._before + member for member in report.members]
        for name, tables in self._tables.items():
            table: Any = getattr(stats, name)
            table["member"] = table["member"].map(dict(enumerate(members)))
            table.insert(0, "epoch", report.epoch)
            tables.append(table)

    def _table(self, name: str) -> pd.DataFrame:
        tables = self._tables[name]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
