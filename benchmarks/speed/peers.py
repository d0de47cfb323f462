"""What ours is timed beside: networks in plain torch, and in skorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from combutab.activations import make_activation

BATCH, RATE = 500, 5e-4  # the CombU paper's


class IndexedCombU(nn.Module):
    """CombU as its paper runs it: a loop over numpy index arrays, gathered and scattered."""

    def __init__(self, width: int) -> None:
        super().__init__()
        order = np.random.default_rng(0).permutation(width)
        half, quarter = width // 2, width // 4
        parts = order[:half], order[half : half + quarter], order[half + quarter :]
        self.parts = list(zip((nn.ReLU(), nn.ELU(), _nlrelu), parts, strict=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for activation, index in self.parts:
            out[:, index] = activation(x[:, index])
        return out


def _nlrelu(x: torch.Tensor) -> torch.Tensor:
    return torch.log(torch.relu(x) + 1)


def relu(width: int) -> nn.Module:
    """Torch's own."""
    return nn.ReLU()


def plain_network(
    n_inputs: int,
    hidden: Sequence[int],
    n_outputs: int,
    activation: str | Callable[[int], nn.Module],
    dropout: float = 0.0,
) -> nn.Sequential:
    """Modules one after another; an activation's name is one of ours."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers.append(nn.Linear(n_inputs, width))
        named = isinstance(activation, str)
        layers.append(make_activation(activation, width) if named else activation(width))
        if dropout:
            layers.append(nn.Dropout(dropout))
        n_inputs = width
    return nn.Sequential(*layers, nn.Linear(n_inputs, n_outputs))


def skorch_net(kind: str, epochs: int, *shape: Any, device: object = "cpu", **module: Any) -> Any:
    """A NeuralNetRegressor or NeuralNetClassifier of skorch that trains as ours does.

    ``shape`` is inputs, hidden layers and outputs of `plain_network`; ``module`` its other
    parameters.
    """
    import skorch

    module |= dict(zip(("n_inputs", "hidden", "n_outputs"), shape, strict=True))
    return getattr(skorch, kind)(
        plain_network,
        optimizer=torch.optim.Adam,
        lr=RATE,
        batch_size=BATCH,
        max_epochs=epochs,
        train_split=None,
        iterator_train__shuffle=True,
        verbose=0,
        device=str(device),
        **({"criterion": nn.CrossEntropyLoss} if kind == "NeuralNetClassifier" else {}),
        **{f"module__{name}": value for name, value in module.items()},
    )
