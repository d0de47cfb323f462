"""The gradients of WGAN-GP's penalty, written out around the layers of a chain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from combutab.activations.kernels import Identity, ReLU
from combutab.nn.engine._chain import Chain
from combutab.nn.engine._products import (
    add_weight_gradient,
    affine,
    input_gradient,
    product,
)
from combutab.nn.engine._stages import KernelStage, parameters_of

_LEAST_NORM = 1e-30  # of a gradient: that of a norm of zero is taken as zero, as autograd does


class PenaltyPass:
    """Adds the penalty's gradients to those that a chain's backward pass has set.

    With h_0 the input of a row, a_l = h_l W_l + b_l, h_{l+1} = T_l(a_l) (normalisation, activation
    and dropout mask) and the score h_L w + b, the gradient of the score is g = u_0 W_0', where
    u_l = T_l'(a_l)' v_{l+1}, v_l = u_l W_l' and v_L = w. The penalty f(g) is differentiated in the
    other direction: with G = f'(g), dW_0 = G' u_0, du_0 = G W_0, dv_{l+1} = T_l'(a_l) du_l, and so
    on, as if G were a row of inputs. What T'' adds to the gradient of a_l goes down through the
    layers once more. Layers that multiply by a slope of each unit do so here too; of all others
    T_l' and T_l'' are autograd's.

    Parameters
    ----------
    chain : Chain
        Of a critic: a single output, not residual.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    @torch.no_grad()
    def add_gradients(self, x: Tensor, masks: Sequence[Tensor], weight: float) -> Tensor:
        """Add the gradients of the penalty at rows x, and return it, (M,).

        Parameters
        ----------
        x : Tensor, (M, n, n_inputs)
        masks : sequence of Tensor, (M, n, width), one a hidden layer
        weight : float
            Of the penalty.
        """
        chain, n = self._chain, x.shape[1]
        layers: list[_Pass] = []
        inputs = [x]
        for i, mask in enumerate(masks):
            place = partial(chain.scratch, f"penalty a{i}", *mask.shape)
            a = affine(inputs[-1], chain.weights[i], chain.biases[i], place)
            kind = _Slopes if chain.layers[i].scales else _Autograd
            layers.append(kind(chain, i, a, mask))
            inputs.append(layers[-1].result)
        # down: the gradient of the score by x
        us: list[Tensor] = []
        v = chain.weights[-1].transpose(1, 2).expand(-1, n, -1)
        for i in reversed(range(len(layers))):
            us.append(layers[i].pull(v))
            place = partial(chain.scratch, f"penalty v{i}", *inputs[i].shape)
            v = input_gradient(us[-1], chain.weights[i], place)
        us.reverse()
        norms = torch.linalg.vector_norm(v, dim=2)
        penalty = weight * (norms - 1).square().mean(1)
        factor = (norms - 1).div_(norms.clamp_min(_LEAST_NORM)).mul_(2 * weight / n)
        # up: through the gradient's own computation
        down = v * factor.unsqueeze(2)
        for i, layer in enumerate(layers):
            add_weight_gradient(down, us[i], chain.weight_grads[i])
            place = partial(chain.scratch, f"penalty du{i}", *us[i].shape)
            down = layer.push(product(down, chain.weights[i], place))
        chain.weight_grads[-1].add_(down.sum(1).unsqueeze(2))
        # down again: what reached the layers' inputs through T''
        grad: Tensor | None = None
        for i in reversed(range(len(layers))):
            grad = layers[i].back(grad)
            if grad is None:
                continue
            add_weight_gradient(inputs[i], grad, chain.weight_grads[i])
            chain.bias_grads[i].add_(grad.sum(1, keepdim=True))
            if i:
                place = partial(chain.scratch, f"penalty g{i}", *inputs[i].shape)
                grad = input_gradient(grad, chain.weights[i], place)
        return penalty


class _Pass(ABC):
    """A layer on its way down, up and down again."""

    result: Tensor  # T(a)

    @abstractmethod
    def pull(self, v: Tensor) -> Tensor:
        """u = T'(a)' v."""

    @abstractmethod
    def push(self, du: Tensor) -> Tensor:
        """dv = T'(a) du; what T'' gives a is kept for ``back``."""

    @abstractmethod
    def back(self, grad: Tensor | None) -> Tensor | None:
        """The gradient by a, given that by the result; None is zero."""


class _Slopes(_Pass):
    """A layer of single units without parameters: T' is a factor of each unit."""

    def __init__(self, chain: Chain, i: int, a: Tensor, mask: Tensor) -> None:
        layer, self._i, self._scratch = chain.layers[i], i, chain.scratch
        self._slot, self._mask, self._a = chain.slots[i], mask, a
        self._curved = not all(_is_straight(part) for _, _, part in layer.parts)
        y = self._scratch(f"penalty y{i}", *a.shape)
        layer.activate(a, y)
        self.result = torch.mul(y, mask, out=self._memory("h"))
        self._slope = self._memory("s").copy_(mask)
        layer.derive(self._slope)

    def _memory(self, name: str) -> Tensor:
        return self._scratch(f"penalty {name}{self._i}", *self._a.shape)

    def pull(self, v: Tensor) -> Tensor:
        self._v = v
        return torch.mul(v, self._slope, out=self._memory("u"))

    def push(self, du: Tensor) -> Tensor:
        self._du = du
        return torch.mul(du, self._slope, out=self._memory("dv"))

    def back(self, grad: Tensor | None) -> Tensor | None:
        grad = None if grad is None else grad.mul_(self._slope)
        if not self._curved:
            return grad
        with torch.enable_grad():
            a = self._a.detach().requires_grad_()
            (u,) = torch.autograd.grad(self._slot(a), a, self._mask * self._v, create_graph=True)
            if not u.requires_grad:  # a slope that does not change has no derivative
                return grad
            (own,) = torch.autograd.grad(u, a, self._du)
        return own if grad is None else own.add_(grad)


def _is_straight(stage: object) -> bool:
    return isinstance(stage, KernelStage) and isinstance(stage.kernel, ReLU | Identity)


class _Autograd(_Pass):
    """Any other layer."""

    def __init__(self, chain: Chain, i: int, a: Tensor, mask: Tensor) -> None:
        modules = nn.ModuleList([chain.norms[i], chain.slots[i]])
        owned = parameters_of(modules, chain.at)
        self._parameters = [parameter for parameter, _ in owned]
        self._places = [place for _, place in owned]
        with torch.enable_grad():
            self._a = a.detach().requires_grad_()
            self._h = chain.slots[i](chain.norms[i](self._a.clone())) * mask
        self.result = self._h.detach()

    def pull(self, v: Tensor) -> Tensor:
        with torch.enable_grad():
            self._v = v.detach().requires_grad_()
            (self._u,) = torch.autograd.grad(self._h, self._a, self._v, create_graph=True)
        return self._u.detach()

    def push(self, du: Tensor) -> Tensor:
        found = self._gradients(self._u, [self._v, self._a], du)
        dv, self._own = found
        return torch.zeros_like(self._v) if dv is None else dv

    def back(self, grad: Tensor | None) -> Tensor | None:
        if grad is None:
            return self._own
        (by_a,) = self._gradients(self._h, [self._a], grad)
        if by_a is None or self._own is None:
            return self._own if by_a is None else by_a
        return by_a + self._own

    def _gradients(self, of: Tensor, by: Sequence[Tensor], upstream: Tensor) -> list[Tensor | None]:
        """Compute gradients by some tensors; those by parameters are added to their places."""
        if not of.requires_grad:
            return [None] * len(by)
        found = torch.autograd.grad(
            of, [*by, *self._parameters], upstream, allow_unused=True, retain_graph=True
        )
        for place, value in zip(self._places, found[len(by) :], strict=True):
            if value is not None:
                place.add_(value)
        return list(found[: len(by)])
