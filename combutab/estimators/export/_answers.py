"""What is answered, given the raw outputs of an ensemble's networks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from combutab.training import Loss


class ClassAnswer(nn.Module):
    """Class probabilities, averaged over networks.

    Parameters
    ----------
    out_activation : {"softmax", "logistic"}
    n_classes : int
    multilabel : bool
        Each output is a label's own probability.

    Shape
    -----
    (n_networks, n, n_outputs) -> (n, n_classes)

    >>> ClassAnswer("logistic", 2, multilabel=False)(torch.zeros(3, 5, 1)).shape
    torch.Size([5, 2])
    """

    def __init__(self, out_activation: str, n_classes: int, *, multilabel: bool) -> None:
        super().__init__()
        self.out_activation, self.n_classes = out_activation, n_classes
        self.multilabel = multilabel

    def forward(self, raw: Tensor) -> Tensor:
        if self.out_activation == "softmax":
            return torch.softmax(raw, -1).mean(0)
        positive = torch.sigmoid(raw).mean(0)
        if self.multilabel:
            return positive
        if self.n_classes == 1:
            return torch.ones_like(positive)
        return torch.cat([1 - positive, positive], -1)


class RegressionAnswer(nn.Module):
    """Predicted targets in their units, averaged over networks.

    Parameters
    ----------
    loss : Loss
        Whose point predictions are averaged.
    shift, scale : ndarray of shape (n_targets,)
        Of the targets that the networks learned.
    bounds : ndarray of shape (2, n_targets), or None
        Where predictions are cut.
    one_dimensional : bool
        The single target is no column.

    Shape
    -----
    (n_networks, n, n_outputs) float64 -> (n,) or (n, n_targets)
    """

    def __init__(
        self,
        loss: Loss,
        shift: np.ndarray,
        scale: np.ndarray,
        bounds: np.ndarray | None,
        *,
        one_dimensional: bool,
    ) -> None:
        super().__init__()
        self.loss, self.one_dimensional = loss, one_dimensional
        self.shift: Tensor
        self.scale: Tensor
        self.bounds: Tensor | None
        self.register_buffer("shift", torch.from_numpy(np.array(shift)))
        self.register_buffer("scale", torch.from_numpy(np.array(scale)))
        limits = None if bounds is None else torch.from_numpy(np.array(bounds))
        self.register_buffer("bounds", limits)

    def forward(self, raw: Tensor) -> Tensor:
        values = self.loss.point(raw).mean(0) * self.scale + self.shift
        if self.bounds is not None:
            values = torch.minimum(torch.maximum(values, self.bounds[0]), self.bounds[1])
        return values[:, 0] if self.one_dimensional else values
