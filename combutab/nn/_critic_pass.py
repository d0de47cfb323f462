"""The gradients of one member's critic by hand: WGAN's loss and its gradient penalty at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from combutab.nn._block_pass import activations_of, has_kernels, linears_of
from combutab.nn._generative import StackedCritic
from combutab.nn._member_products import affine, product, weight_gradient
from combutab.nn._scratch import Scratch

_LEAST_NORM = 1e-30  # of a gradient: that of a norm of zero is taken as zero, as autograd does


@dataclass
class _Between:
    """The rows between real and fake, the last third: masks, inputs and a of each layer."""

    masks: list[Tensor]
    inputs: list[Tensor] = field(default_factory=list)
    raw: list[Tensor] = field(default_factory=list)

    def keep(self, inputs: Tensor, raw: Tensor) -> None:
        self.inputs.append(inputs[-len(self.masks[0]) :].clone())
        self.raw.append(raw[-len(self.masks[0]) :].clone())


class CriticPass:
    """Member ``member`` of a critic without normalisation, whose activations have kernels.

    With h_0 the input of a row, a_l = h_l W_l + b_l, h_{l+1} = m_l phi(a_l) (m_l its dropout
    mask) and the score h_L w + b, the backward pass is u_l = v_l m_l phi'(a_l), v_l = u_{l+1}
    W_{l+1}', and u_0 W_0' the gradient g by the input. The penalty f(g) is differentiated in the
    other direction: with G = f'(g), dW_0 = G' u_0, du_0 = G W_0, dv_l = du_l m_l phi'(a_l), and
    so on, as if G were a row of inputs. So one product a layer serves the real rows, the fake
    rows and the penalty. Where phi'' is not zero, what it adds goes through the rows between
    real and fake once more.

    Parameters
    ----------
    critic : StackedCritic
        One that ``fits``.
    member : int
    scratch : Scratch
        Members may share it.
    """

    def __init__(self, critic: StackedCritic, member: int, scratch: Scratch) -> None:
        self._scratch = scratch
        linears = linears_of(critic, member)
        self._weights = [linear.weight for linear in linears]
        self._biases = [linear.bias for linear in linears]
        self._weight_grads = [linear.weight_grad for linear in linears]
        self._bias_grads = [linear.bias_grad for linear in linears]
        activations = activations_of(critic, member)
        self._modules = [module for module, _ in activations]
        self._kernels = [kernel for _, kernel in activations]
        straight = nn.ReLU | nn.LeakyReLU | nn.Identity
        self._curved = not all(isinstance(module, straight) for module in self._modules)
        self.widths, self.n_inputs = critic.widths, self._weights[0].shape[0]

    @staticmethod
    def fits(critic: StackedCritic) -> bool:
        """Whether the pass knows all of its layers."""
        return critic.normalization == "none" and bool(critic.widths) and has_kernels(critic)

    def inputs(self, n_groups: int) -> Tensor:
        """Where groups of rows are to be written, (n_groups, pac * columns)."""
        return self._input(0, n_groups)

    def _input(self, i: int, n: int) -> Tensor:
        return self._scratch(f"h{i}", n, self.widths[i - 1] if i else self.n_inputs)

    def _forward(
        self, n: int, masks: Sequence[Tensor], between: _Between | None = None
    ) -> list[Tensor]:
        """Fill the layers' inputs; returns m phi'(a) for each layer."""
        slopes = []
        for i, (kernel, mask) in enumerate(zip(self._kernels, masks, strict=True)):
            out = self._scratch(f"a{i}", n, self.widths[i])
            affine(self._input(i, n), self._weights[i], self._biases[i], out)
            if between is not None:
                between.keep(self._input(i, n), out)
            kept = self._scratch(f"x{i}", *out.shape).copy_(out) if kernel.keeps_input else out
            kernel.forward_(out)
            torch.mul(out, mask, out=self._input(i + 1, n))
            slopes.append(self._scratch(f"s{i}", *out.shape).copy_(mask))
            kernel.backward_(kept, slopes[i])
        return slopes

    def _backward(self, weights: Tensor, slopes: Sequence[Tensor]) -> list[Tensor]:
        """u of each layer, for scores of these weights (n, 1); v is left beside it."""
        n, depth = len(weights), len(self.widths)
        grads: list[Tensor] = []
        for i in reversed(range(depth)):
            v = self._scratch(f"v{i}", n, self.widths[i])
            if i == depth - 1:
                torch.mul(weights, self._weights[-1].t(), out=v)
            else:
                product(grads[-1], self._weights[i + 1].t(), v)
            grads.append(torch.mul(v, slopes[i], out=self._scratch(f"u{i}", *v.shape)))
        return grads[::-1]

    @torch.no_grad()
    def generator_loss(self, n: int, masks: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Minus the mean score of the groups in ``inputs(n)``, and its gradient by them."""
        slopes = self._forward(n, masks)
        loss = -(self._input(len(self.widths), n).mean(0) @ self._weights[-1] + self._biases[-1])
        weights = self._scratch("weights", n, 1).fill_(-1 / n)
        first = self._backward(weights, slopes)[0]
        gradient = product(first, self._weights[0].t(), self._scratch("g", n, self.n_inputs))
        return loss.squeeze(0), gradient

    @torch.no_grad()
    def fill_gradients(
        self, n_groups: int, mix: Tensor, masks: Sequence[Tensor], *, weight: float = 10.0
    ) -> Tensor:
        """Set the gradients of the critic's loss, and return the loss.

        Parameters
        ----------
        n_groups : int
            ``inputs(3 * n_groups)`` has this many groups of real rows, then as many of fake ones;
            the rest is for those between.
        mix : Tensor, (n_groups,)
            How much of the real row each row between has.
        masks : sequence of Tensor, (3 * n_groups, width)
        weight : float
            Of the penalty.
        """
        n, depth = n_groups, len(self.widths)
        x = self._input(0, 3 * n)
        torch.lerp(x[n : 2 * n], x[:n], mix.to(x.dtype).unsqueeze(1), out=x[2 * n :])
        between = _Between([mask[2 * n :].clone() for mask in masks]) if self._curved else None
        slopes = self._forward(3 * n, masks, between)
        # of the scores in mean(fake) - mean(real), and in their sum over the rows between
        weights = self._scratch("weights", 3 * n, 1)
        weights[:n], weights[n : 2 * n], weights[2 * n :] = -1 / n, 1 / n, 1.0
        grads = self._backward(weights, slopes)

        into = self._scratch("g", n, self.n_inputs)
        gradient = product(grads[0][2 * n :], self._weights[0].t(), into)
        norms = torch.linalg.vector_norm(gradient, dim=1)
        penalty = weight * (norms - 1).square().mean()
        factor = (norms - 1).div_(norms.clamp_min(_LEAST_NORM)).mul_(2 * weight / n)
        down = torch.mul(gradient, factor.unsqueeze(1), out=x[2 * n :])
        upstream: list[Tensor] = []
        for i in range(depth):
            weight_gradient(self._input(i, 3 * n), grads[i], self._weight_grads[i])
            torch.sum(grads[i][: 2 * n], 0, out=self._bias_grads[i])
            du = product(down, self._weights[i], self._scratch(f"du{i}", n, self.widths[i]))
            upstream.append(du)
            down = torch.mul(du, slopes[i][2 * n :], out=self._input(i + 1, 3 * n)[2 * n :])
        last, out = self._input(depth, 3 * n), self._weight_grads[-1]
        torch.mm(last[: 2 * n].t(), weights[: 2 * n], out=out)
        loss = penalty + torch.dot(out[:, 0], self._weights[-1][:, 0])
        out.add_(last[2 * n :].sum(0).unsqueeze(1))
        self._bias_grads[-1].zero_()  # the bias is in both means
        if between is not None:
            self._add_curvature(between, upstream, [slope[2 * n :] for slope in slopes])
        return loss

    def _add_curvature(
        self, between: _Between, upstream: Sequence[Tensor], slopes: Sequence[Tensor]
    ) -> None:
        """Add what the penalty's gradient gets through phi'', given du of each layer."""
        grad: Tensor | None = None
        for i in reversed(range(len(self.widths))):
            n = len(between.raw[i])
            v = self._scratch(f"v{i}", 3 * n, self.widths[i])[2 * n :]
            with torch.enable_grad():
                raw = between.raw[i].requires_grad_()
                out = self._modules[i](raw)
                (u,) = torch.autograd.grad(out, raw, between.masks[i] * v, create_graph=True)
                # a slope that does not change has no derivative
                curved = u.requires_grad
                own = torch.autograd.grad(u, raw, upstream[i])[0] if curved else torch.zeros_like(u)
            if grad is None:
                grad = own
            else:
                grad = torch.mm(grad, self._weights[i + 1].t()).mul_(slopes[i]).add_(own)
            self._weight_grads[i].addmm_(between.inputs[i].t(), grad)
            self._bias_grads[i].add_(grad.sum(0))
