"""Deep dense networks without normalisation, with and without residual connections, stacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from combutab.nn import Member, MLPSpec, StackedMLP, TableNetwork

BODIES = ("plain", "residual", "pre-activation")


class ResidualNet(TableNetwork):
    """The layers of M perceptrons, each pair of hidden ones skipped by what it is added to.

    Before its activation that is as in the later ResNets (``pre_activation``), after it as in the
    first ones.
    """

    def __init__(self, layers: StackedMLP, *, pre_activation: bool) -> None:
        super().__init__(layers.members)
        self.linears, self.activations = layers.linears, layers.activations
        self.pre_activation = pre_activation
        self._flatten(layers.dtype, layers.device)

    def forward(self, dense: Tensor, *_: object) -> Tensor:  # (M, batch, n_in) -> (M, batch, n_out)
        first, *hidden, last = self.linears
        *sites, end = self.activations
        h = first(dense)
        for i in range(0, len(hidden), 2):
            z = sites[i](h)
            branch = hidden[i + 1](sites[i + 1](hidden[i](z)))
            h = branch + (h if self.pre_activation else z)
        return last(end(h))


@dataclass(frozen=True)
class Shape:
    """A network: ``depth`` layers of weights, the first and the last one included.

    ``body`` is "plain"; "residual", as the first ResNets, h = act(h + linear(act(linear(h)))); or
    "pre-activation", as the later ones, h = h + linear(act(linear(act(h)))), with an activation
    before the last layer. ``init`` is one of combutab's, such as "torch" or "kaiming".
    """

    body: str
    depth: int
    activation: str
    init: str
    width: int = 32

    def __post_init__(self) -> None:
        if self.body not in BODIES:
            raise ValueError(f"body must be one of {BODIES}, got {self.body!r}")
        if self.depth < 4 or self.depth % 2:
            raise ValueError(
                "depth must be even and at least 4: a first and a last layer, and pairs between "
                f"them; got {self.depth}"
            )

    def build(
        self, n_inputs: int, n_outputs: int, seeds: Sequence[int], *, double: bool = False
    ) -> TableNetwork:
        """A network a seed."""
        spec = MLPSpec(n_inputs, (self.width,) * (self.depth - 1), n_outputs, init=self.init)
        members = [Member(seed, self.activation) for seed in seeds]
        net: TableNetwork = spec.build(members, dtype=torch.float64 if double else torch.float32)
        if self.body != "plain":
            net = ResidualNet(net, pre_activation=self.body == "pre-activation")
        net.n_decayed = net.flat.values.shape[1]  # biases too, as torch.optim.SGD has it
        return net


@dataclass(frozen=True)
class Gradients:
    """Norms of the gradient of the loss at the start, each of shape (M,).

    Attributes
    ----------
    first, last_hidden : of the first layer's weights, and of those before the output layer's
    mean : over all weight matrices and bias vectors, the paper's "average norm"
    """

    first: Tensor
    last_hidden: Tensor
    mean: Tensor


def gradient_norms(net: TableNetwork, x: Tensor, losses: Callable[[Tensor], Tensor]) -> Gradients:
    """Of the members' losses, (M,), which follow from the outputs for (M, rows, n_inputs)."""
    net.gradients(x, lambda outputs: losses(outputs).sum())

    def norms(name: str) -> Tensor:  # (layers, M)
        parts = [net.flat.gradient_of(linear, name) for linear in net.linears]
        return torch.stack([part.flatten(1).norm(dim=1) for part in parts])

    weights, biases = norms("weight"), norms("bias")
    return Gradients(weights[0], weights[-2], torch.cat([weights, biases]).mean(0))
