"""Memory of the gradient matrix that a step uses for outputs, before gradients are written there.

The backward pass fills the matrix from the last layer down. Until it gets to a layer, the place
of that layer's and all lower layers' weight gradients is free.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


class GradientLoan:
    """Places for the outputs of linear layers among the weight gradients of one network.

    Parameters
    ----------
    targets : sequence of Tensor, (M, n_in, n_out)
        Where the weight gradients go, first layer first. For several members, or where they are
        not one behind the other in memory, nothing is lent.

    >>> import torch
    >>> matrix = torch.zeros(1, 12)
    >>> loan = GradientLoan([matrix[:, :6].view(1, 2, 3), matrix[:, 6:].view(1, 3, 2)])
    >>> places = loan.places(2)
    >>> [None if place is None else tuple(place.shape) for place in places]
    [(1, 2, 3), (1, 2, 2)]
    """

    def __init__(self, targets: Sequence[Tensor]) -> None:
        self._widths = [target.shape[2] for target in targets]
        self._ends: list[int] = []
        first, end = targets[0], 0
        self._memory = first.new_empty(0)
        for target in targets:
            if len(target) != 1 or target.storage_offset() != first.storage_offset() + end:
                end = 0
                break
            end += target.numel()
            self._ends.append(end)
        if end:
            self._memory = first.as_strided((end,), (1,))
        self._places: dict[int, list[Tensor | None]] = {}

    def places(self, n_rows: int) -> list[Tensor | None]:
        """(1, n_rows, width) or None for the output of each linear layer.

        A place stays untouched until the gradient of the next layer's weights is written.
        """
        if n_rows not in self._places:
            if len(self._places) > 3:  # a full batch and an epoch's last one, usually
                self._places.clear()
            self._places[n_rows] = self._lay_out(n_rows)
        return self._places[n_rows]

    def _lay_out(self, n_rows: int) -> list[Tensor | None]:
        found: list[Tensor | None] = [None] * len(self._widths)
        if not self._memory.numel():
            return found
        start = 0
        for i, (width, end) in enumerate(zip(self._widths, self._ends, strict=True)):
            stop = start + n_rows * width
            if stop <= end:
                found[i] = self._memory[start:stop].view(1, n_rows, width)
                start = stop
        return found

    def holds(self, x: Tensor) -> bool:
        """Whether a tensor lies in the memory that is lent."""
        return x.untyped_storage().data_ptr() == self._memory.untyped_storage().data_ptr()
