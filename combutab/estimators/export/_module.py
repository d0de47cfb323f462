"""A fitted estimator as one torch module: encoding, networks, answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from combutab.estimators.export._encoding import TableEncoding
from combutab.nn import TableNetwork
from combutab.preprocessing import TableEncoder


class TableModule(nn.Module):
    """A fitted estimator as a plain torch module, encoding included.

    It is what ``to_torch`` gives: a copy, whose parameters can be trained on, moved, compiled and
    exported without the estimator. It computes on the device that it is moved to.

    Parameters
    ----------
    encoder : TableEncoder
        A fitted one, which ``encode`` reads tables by.
    networks : sequence of TableNetwork
        Of its columns; each has members, and heads.
    answer : nn.Module
        Raw outputs (n_networks, n, n_outputs) -> what is answered.
    picks : sequence of int, optional
        Which networks are averaged, as often as they are named; by default each once.

    Shape
    -----
    numbers : (n, n_numeric) float64, codes : (n, n_categorical) int64 -> (n, n_classes)
    probabilities, or (n,) or (n, n_outputs) predicted targets

    Notes
    -----
    ``numbers`` has the columns that are no categories, in the table's order: numbers as they are,
    truth values as 0 and 1, dates as seconds since 1970-01-01 UTC, durations in seconds, and NaN
    where a value is missing. ``codes`` has the others: the place of the category in
    ``module.encoder.categories_[column]`` (one more, where the encoder gives the column an
    embedding), and the encoder's codes for missing, rare and unseen ones. ``encode`` makes both of
    a table. With ``precision="bf16-mixed"`` the module computes in float32, where the estimator
    rounds more.

    Examples
    --------
    >>> import pandas as pd
    >>> from combutab import MLPRegressor
    >>> X = pd.DataFrame({"size": [1.0, 2.0, None, 9.0] * 5, "kind": ["a", "b", "b", "a"] * 5})
    >>> reg = MLPRegressor(hidden_layer_sizes=(4,), max_iter=2, n_iter_no_change=float("inf"),
    ...                    random_state=0).fit(X, range(20))
    >>> module = reg.to_torch()
    >>> numbers, codes = module.encode(X[:3])
    >>> numbers.flatten().tolist(), codes.flatten().tolist(), module(numbers, codes).shape
    ([1.0, 2.0, nan], [0, 1, 1], torch.Size([3]))
    """

    def __init__(
        self,
        encoder: TableEncoder,
        networks: Sequence[TableNetwork],
        answer: nn.Module,
        picks: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.encoding = TableEncoding(encoder)
        self.networks, self.answer = nn.ModuleList(networks), answer
        self.picks: Tensor | None
        self.register_buffer("picks", None if picks is None else torch.tensor(list(picks)))

    def encode(self, X: Any) -> tuple[Tensor, Tensor]:
        """Read what ``predict`` takes into what the module takes.

        Parameters
        ----------
        X : table of shape (n, n_features)

        Returns
        -------
        numbers : Tensor, (n, n_numeric) float64
        codes : Tensor, (n, n_categorical) int64

        Raises
        ------
        ValueError
            As ``predict``: of other columns, infinite values, or text for numbers.
        """
        device = self.encoding.get_buffer("unit").device
        numbers, codes = self.encoder.read(X)
        return torch.from_numpy(numbers).to(device), torch.from_numpy(codes).to(device)

    def raw(self, numbers: Tensor, codes: Tensor | None = None) -> Tensor:
        """Raw outputs of every network that is averaged: (n_networks, n, n_outputs) float64."""
        dense, coded = self.encoding(numbers, codes)
        outputs = []
        for net in self.networks:
            assert isinstance(net, TableNetwork)
            rows = dense.to(next(net.parameters()).dtype)
            each = (x.expand(net.n_members, *x.shape) for x in (rows, coded))
            outputs.append(net.by_head(net(*each)))
        raw = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return (raw if self.picks is None else raw[self.picks]).double()

    def forward(self, numbers: Tensor, codes: Tensor | None = None) -> Tensor:
        answer: Tensor = self.answer(self.raw(numbers, codes))
        return answer
