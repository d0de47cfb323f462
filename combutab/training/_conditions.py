"""Training by sampling, as in CTGAN: random conditions and real rows that meet them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Conditions(NamedTuple):
    """Conditions of a batch, as three int64 tensors of shape (M, batch).

    ``span`` is a discrete column, ``code`` one of its categories, and ``row`` a row that has it.
    """

    span: Tensor
    code: Tensor
    row: Tensor


class ConditionSampler:
    """Draw random conditions, and real rows that meet them, for the training of CTGAN.

    A discrete column (a span) is drawn uniformly, then one of its categories, then one of the rows
    that have it. There is no loop over rows or columns: rows are sorted by category, so that a draw
    is a search in one cumulative distribution and one gather.

    Parameters
    ----------
    codes : Tensor of shape (n_rows, n_spans)
        The category of each row in each discrete column, as an integer from 0.
    sizes : sequence of int
        Number of categories of each column.

    Raises
    ------
    ValueError
        If there are no rows, ``sizes`` has another number of columns, or a code is negative or not
        less than its column's number of categories.

    References
    ----------
    Xu et al. (2019), "Modeling tabular data using conditional GAN", section 4.3.

    Examples
    --------
    >>> sampler = ConditionSampler(torch.tensor([[0], [1], [1]]), [2])
    >>> drawn = sampler.draw(torch.tensor([[[0.0, 0.1, 0.0], [0.0, 0.9, 0.7]]]))
    >>> drawn.code.tolist(), drawn.row.tolist()
    ([[0, 1]], [[0, 2]])
    """

    N_UNIFORMS = 3  # number of uniform draws that a condition needs

    def __init__(self, codes: Tensor, sizes: Sequence[int]) -> None:
        n_rows, n_spans = codes.shape
        if n_rows == 0 or n_spans != len(sizes):
            raise ValueError(
                f"codes must have at least one row and {len(sizes)} columns, as many as sizes, got "
                f"shape {tuple(codes.shape)}"
            )
        device = codes.device
        self.n_rows, self.n_spans = n_rows, n_spans
        widths = torch.tensor(list(sizes), dtype=torch.int64, device=device)
        self.offsets = torch.cat([widths.new_zeros(1), widths.cumsum(0)])
        n_categories = int(self.offsets[-1])
        self.counts = torch.empty(n_categories, dtype=torch.int64, device=device)
        self.starts = torch.empty_like(self.counts)
        self.last = torch.empty(n_spans, dtype=torch.int64, device=device)  # categories with rows
        self.order = torch.empty(n_spans, n_rows, dtype=torch.int32, device=device)
        balanced = torch.empty(n_categories, dtype=torch.float64, device=device)
        true = torch.empty_like(balanced)
        for s, size in enumerate(sizes):
            column = codes[:, s].to(torch.int64)
            if column.min() < 0 or column.max() >= size:
                raise ValueError(
                    f"column {s} of codes must have values from 0 to {size - 1}, because "
                    f"sizes[{s}]={size}, got {int(column.min())} to {int(column.max())}"
                )
            span = slice(int(self.offsets[s]), int(self.offsets[s + 1]))
            counts = torch.bincount(column, minlength=size)
            self.order[s] = torch.argsort(column, stable=True).to(torch.int32)
            self.counts[span] = counts
            self.last[s] = span.start + column.max()
            self.starts[span] = counts.cumsum(0) - counts
            # NOTE[DIFF]: the paper takes the logarithm of the frequency, which is 0 for a category
            # with a single row; with log(1 + n) it is drawn too.
            balanced[span] = _cumulative(torch.log1p(counts.double())) + s
            true[span] = _cumulative(counts.double()) + s
        self._balanced, self._true = balanced, true

    def draw(self, uniforms: Tensor, *, true_frequencies: bool = False) -> Conditions:
        """Draw one condition for every three uniform random numbers in [0, 1).

        Parameters
        ----------
        uniforms : float64 Tensor of shape (M, batch, 3)
        true_frequencies : bool, default=False
            Draw categories in proportion to their counts, as for a synthetic table; otherwise in
            proportion to log(1 + count), so that rare categories are learned.

        Returns
        -------
        Conditions
        """
        span = (uniforms[..., 0] * self.n_spans).long().clamp_(max=self.n_spans - 1)
        cumulative = self._true if true_frequencies else self._balanced
        positions = torch.searchsorted(cumulative, span + uniforms[..., 1], right=True)
        first = self.offsets[span]
        category = torch.minimum(positions, self.last[span])  # span + uniform may round up
        return Conditions(span, category - first, self.rows(category, span, uniforms[..., 2]))

    def rows(self, category: Tensor, span: Tensor, uniform: Tensor) -> Tensor:
        """Draw a row for each category, all rows of the category being equally likely.

        Categories are numbered over all spans. ``uniform`` has random numbers in [0, 1).
        """
        count = self.counts[category]
        within = torch.minimum((uniform * count).long(), count - 1)
        return self.order[span, self.starts[category] + within].long()


def _cumulative(weights: Tensor) -> Tensor:
    """Cumulative shares; the last with any weight, and all after it, are exactly 1."""
    sums = weights.cumsum(0)
    return sums / sums[-1]
