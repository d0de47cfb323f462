"""What is timed: estimators of one size and recipe, ours and others', and networks in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from combutab import paper_recipe, training
from combutab.activations import make_activation
from combutab.nn import Member, MLPSpec, StackedMLP

BATCH, RATE = 500, 5e-4  # the CombU paper's


class IndexedCombU(nn.Module):
    """CombU as its paper runs it: a loop over numpy index arrays, gathered and scattered."""

    def __init__(self, width: int) -> None:
        super().__init__()
        order = np.random.default_rng(0).permutation(width)
        parts = np.split(order, [width // 2, width // 2 + width // 4])
        three = nn.ReLU(), nn.ELU(), lambda x: torch.log(torch.relu(x) + 1)
        self.parts = list(zip(three, parts, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        for activation, index in self.parts:
            out[:, index] = activation(x[:, index])
        return out


def relu(width: int) -> nn.Module:
    """Torch's own."""
    return nn.ReLU()


def plain_network(
    n_inputs: int, hidden: Sequence[int], n_outputs: int, activation: Any, dropout: float = 0.0
) -> nn.Sequential:
    """Modules one after another; an activation's name is one of ours."""
    make = partial(make_activation, activation) if isinstance(activation, str) else activation
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(n_inputs, width), make(width)]
        layers += [nn.Dropout(dropout)] * bool(dropout)
        n_inputs = width
    return nn.Sequential(*layers, nn.Linear(n_inputs, n_outputs))


def plain_epoch(net: nn.Module, optimizer: Any, X: Tensor, y: Tensor, batch: int) -> None:
    """The usual loop: rows shuffled, autograd, a step; the data in memory as tensors."""
    for rows in torch.randperm(len(X)).split(batch):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(X[rows]), y[rows]).backward()
        optimizer.step()


def stack_run(
    spec: MLPSpec, members: Sequence[Member], rows: training.Rows, batch: int, epochs: int
) -> Callable[[], object]:
    """What trains a stack of ours in the library's own loop, each time it is called."""
    plans = [training.MemberPlan(i, torch.arange(len(rows.y)), RATE) for i in range(len(members))]
    parts = training.make_regression_loss("squared_error", ()), training.OptimizerConfig()
    config = training.TrainConfig(*parts, batch, epochs, n_iter_no_change=np.inf)
    return partial(training.train_stack, StackedMLP(spec, list(members)), rows, plans, config)


def fixed_epochs(task: str, hidden: Sequence[int], epochs: int, **others: Any) -> dict[str, Any]:
    """Parameters of our estimators that train for all of the epochs."""
    own = {"hidden_layer_sizes": tuple(hidden), "learning_rate_init": RATE, "max_iter": epochs}
    return paper_recipe(task, **own, **{"n_iter_no_change": np.inf, "device": "cpu", **others})


def fixed_epochs_sklearn(hidden: Sequence[int], epochs: int, n_rows: int) -> dict[str, Any]:
    """The same for scikit-learn's."""
    return {
        "hidden_layer_sizes": tuple(hidden), "learning_rate_init": RATE, "max_iter": epochs,
        "n_iter_no_change": epochs + 1, "tol": 0.0, "batch_size": min(BATCH, n_rows),
    }  # fmt: skip


def skorch_net(kind: str, epochs: int, *shape: Any, **module: Any) -> Any:
    """A NeuralNetRegressor or NeuralNetClassifier of skorch that trains as ours does.

    ``shape`` is inputs, hidden layers and outputs of `plain_network`; ``module`` its other
    parameters.
    """
    import skorch

    module |= dict(zip(("n_inputs", "hidden", "n_outputs"), shape, strict=True))
    return getattr(skorch, kind)(
        plain_network, optimizer=torch.optim.Adam, lr=RATE, batch_size=BATCH, max_epochs=epochs,
        train_split=None, iterator_train__shuffle=True, verbose=0,
        **({"criterion": nn.CrossEntropyLoss} if kind == "NeuralNetClassifier" else {}),
        **{f"module__{name}": value for name, value in module.items()},
    )  # fmt: skip
