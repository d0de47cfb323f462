"""In-place kernels of ProxyNorm, whose moments of a few numbers are left to autograd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from combutab.activations._in_place import InPlace, in_place
from combutab.activations._in_place_groups import Memory
from combutab.activations._known import is_itself
from combutab.activations._moments import moments
from combutab.activations._proxy_norm import ProxyNorm

Parameters = Mapping[str, Tensor]  # "gamma", "beta" and what else is learned: (M, 1, width)


class InPlaceProxyNorm:
    """y -> phi(gamma y + beta), minus the mean and over the deviation of its Gaussian proxy.

    Parameters
    ----------
    module : ProxyNorm
        What is asked of it but its parameters.
    kernel : InPlace
        Of phi.
    parameters, gradients : mapping of str to Tensor, (M, 1, width)
        Views: the values as they are, and where ``backward_`` writes.
    kept, work : Memory
        For what ``backward_`` needs, and for what is needed within a call alone.
    """

    def __init__(
        self,
        module: ProxyNorm,
        kernel: InPlace,
        parameters: Parameters,
        gradients: Parameters,
        kept: Memory,
        work: Memory,
    ) -> None:
        self.module, self.kernel = module, kernel
        self.parameters, self.gradients = parameters, gradients
        self._kept, self._work = kept, work
        self._moments = _SharedMoments([self])

    @staticmethod
    def kernel_of(module: ProxyNorm) -> InPlace | None:
        """The kernels of phi, if the module is one that these kernels know."""
        fits = is_itself(module) and module.scale and module.dim == -1
        return in_place(module.activation) if fits else None

    @staticmethod
    def share(stages: Sequence[InPlaceProxyNorm]) -> None:
        """Let layers that are alike compute their moments together: stages in forward order.

        Moments take some sixty operations on a few hundred numbers, for five layers as for one.
        """
        alike: dict[object, list[InPlaceProxyNorm]] = {}
        for stage in stages:
            module, shapes = stage.module, [(n, p.shape) for n, p in stage.parameters.items()]
            alike.setdefault(f"{module!r} {module.closed_form} {shapes}", []).append(stage)
        for group in alike.values():
            shared = _SharedMoments(group)
            for stage in group:
                stage._moments = shared

    def forward_(self, x: Tensor, keep: bool = True) -> None:
        """x becomes the result, of shape (M, rows, width)."""
        self._moments.begin(self, keep)
        scale, shift = self._moments.affine(self)
        own = self.parameters
        if keep:
            self._y = self._kept("y", *x.shape).copy_(x)
        z = self._kept("z", *x.shape) if keep else x
        torch.addcmul(own["beta"], x, own["gamma"], out=z)
        self._phi = z
        if keep and self.kernel.keeps_input:
            self._phi = self._kept("input", *x.shape).copy_(z)
        self.kernel.forward_(z)
        self._z = z
        torch.addcmul(shift, z, scale, out=x)

    def backward_(self, out: Tensor, grad: Tensor) -> None:
        """The gradient of the result becomes that of x; the parameters' are written."""
        scale, _ = self._moments.affine(self)
        work = torch.mul(grad, self._z, out=self._work("work", *grad.shape))
        by_scale, by_shift = work.sum(1, keepdim=True), grad.sum(1, keepdim=True)
        grad.mul_(scale)
        self.kernel.backward_(self._phi, grad)
        torch.sum(grad, 1, keepdim=True, out=self.gradients["beta"])
        torch.mul(grad, self._y, out=work)
        torch.sum(work, 1, keepdim=True, out=self.gradients["gamma"])
        grad.mul_(self.parameters["gamma"])
        self._moments.backward(self, by_scale, by_shift)


class _SharedMoments:
    """Scale and shift of phi's outputs, for some layers at once."""

    def __init__(self, stages: Sequence[InPlaceProxyNorm]) -> None:
        self._stages = list(stages)
        self._grads: dict[int, tuple[Tensor, Tensor]] = {}  # by scale and shift, of each stage

    def begin(self, stage: InPlaceProxyNorm, keep: bool) -> None:
        """Compute the moments of all layers, when the first of them is reached."""
        if stage is not self._stages[0]:
            return
        self._grads.clear()
        self._leaves = {
            name: torch.stack([s.parameters[name].detach() for s in self._stages])
            for name in stage.parameters
        }
        with torch.set_grad_enabled(keep):
            if keep:
                for leaf in self._leaves.values():
                    leaf.requires_grad_()
            self._scale_shift = self._compute(**self._leaves)

    def affine(self, stage: InPlaceProxyNorm) -> tuple[Tensor, Tensor]:
        """The scale and shift of one layer, (M, 1, width) each."""
        i = self._stages.index(stage)
        scale, shift = self._scale_shift
        return scale[i].detach(), shift[i].detach()

    def _compute(
        self,
        gamma: Tensor,
        beta: Tensor,
        proxy_beta: Tensor | None = None,
        proxy_gamma: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:  # (layers, M, 1, width) each
        mean, std = beta, gamma.abs()
        if proxy_beta is not None and proxy_gamma is not None:
            mean = torch.addcmul(beta, gamma, proxy_beta)
            std = (gamma * (1 + proxy_gamma)).abs()
        module = self._stages[0].module
        mean, var = moments(module.activation, mean, std, module.n_samples, module.closed_form)
        scale = torch.rsqrt(var.clamp_min(0) + module.eps)
        return scale, -mean * scale

    def backward(self, stage: InPlaceProxyNorm, by_scale: Tensor, by_shift: Tensor) -> None:
        """Collect the layers' gradients; the one that is done last passes them on."""
        self._grads[self._stages.index(stage)] = by_scale, by_shift
        if len(self._grads) < len(self._stages):
            return
        in_order = [self._grads[i] for i in range(len(self._stages))]
        upstream = [torch.stack(grads) for grads in zip(*in_order, strict=True)]
        self._grads.clear()
        names = list(self._leaves)
        grads = torch.autograd.grad(
            self._scale_shift, [self._leaves[n] for n in names], upstream, allow_unused=True
        )
        for name, grad in zip(names, grads, strict=True):
            for i, own in enumerate(self._stages):
                target = own.gradients[name]
                if name in ("gamma", "beta"):
                    if grad is not None:
                        target.add_(grad[i])
                elif grad is None:
                    target.zero_()
                else:
                    target.copy_(grad[i])
