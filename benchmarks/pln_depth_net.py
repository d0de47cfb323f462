"""Deep dense networks without normalisation, with and without residual connections, stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from combutab.activations import make_activation
from combutab.nn import StackedLinear

BODIES = ("plain", "residual", "pre-activation")


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


class DeepNet(nn.Module):
    """M networks of one shape, each drawn with its own generator.

    Shape
    -----
    (M, batch, n_inputs) -> (M, batch, n_outputs)
    """

    def __init__(
        self,
        shape: Shape,
        n_inputs: int,
        n_outputs: int,
        generators: Sequence[torch.Generator],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.shape = shape
        width, n_hidden = shape.width, shape.depth - 2

        def drawn(n_in: int, n_out: int) -> StackedLinear:
            return StackedLinear(n_in, n_out, generators, init=shape.init, dtype=dtype)

        self.first = drawn(n_inputs, width)
        hidden = [drawn(width, width) for _ in range(n_hidden)]
        # One tensor for all hidden layers: (layers, M, width, width), so that an optimiser's step
        # is a few operations however deep the network is
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in hidden]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in hidden]))
        self.last = drawn(width, n_outputs)
        sites = [make_activation(shape.activation, width) for _ in range(n_hidden + 1)]
        self.sites = nn.ModuleList(sites)
        if any(True for _ in self.sites.parameters()):
            raise ValueError(f"{shape.activation!r} learns parameters of its own; choose another")

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        acts, body = list(self.sites), self.shape.body
        maps = list(zip(self.weight.unbind(0), self.bias.unbind(0), strict=True))
        if body == "plain":
            for act, (weight, bias) in zip(acts[:-1], maps, strict=True):
                h = torch.baddbmm(bias, act(h), weight)
            return self.last(acts[-1](h))
        if body == "residual":
            h, acts = acts[0](h), acts[1:]
        # not strict: the last activation of the pre-activation body stands alone
        pairs = zip(maps[::2], maps[1::2], acts[::2], acts[1::2], strict=False)
        for (w1, b1), (w2, b2), one, other in pairs:
            if body == "residual":
                h = other(h + torch.baddbmm(b2, one(torch.baddbmm(b1, h, w1)), w2))
            else:
                h = h + torch.baddbmm(b2, other(torch.baddbmm(b1, one(h), w1)), w2)
        return self.last(h if body == "residual" else acts[-1](h))


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


def gradient_norms(net: DeepNet, loss: Tensor) -> Gradients:
    """Back-propagate the sum of the members' losses, and take norms member by member."""
    net.zero_grad(set_to_none=True)
    loss.sum().backward()

    def norms(parameter: nn.Parameter) -> Tensor:  # (..., M, a, b) -> (..., M)
        if parameter.grad is None:
            raise RuntimeError("the loss does not depend on all parameters")
        return parameter.grad.flatten(-2).norm(dim=-1)

    first, hidden = norms(net.first.weight), norms(net.weight)
    ends = [first, norms(net.first.bias), norms(net.last.weight), norms(net.last.bias)]
    everything = torch.cat([torch.stack(ends), hidden, norms(net.bias)])
    return Gradients(first, hidden[-1], everything.mean(0))
