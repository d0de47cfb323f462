"""In-place kernels of ProxyNorm, whose moments of a few numbers are left to autograd."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from combutab.activations._in_place import InPlace, in_place
from combutab.activations._in_place_groups import Memory
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
        self._parameters, self._gradients = parameters, gradients
        self._kept, self._work = kept, work

    @staticmethod
    def kernel_of(module: ProxyNorm) -> InPlace | None:
        """The kernels of phi, if the module is one that these kernels know."""
        return in_place(module.activation) if module.scale and module.dim == -1 else None

    def forward_(self, x: Tensor, keep: bool = True) -> None:
        """x becomes the result, of shape (M, rows, width)."""
        own = self._parameters
        if not keep:
            torch.addcmul(own["beta"], x, own["gamma"], out=x)
            self.kernel.forward_(x)
            scale, shift = self._moments(**own)
            torch.addcmul(shift, x, scale, out=x)
            return
        self._y = self._kept("y", *x.shape).copy_(x)
        z = torch.addcmul(own["beta"], x, own["gamma"], out=self._kept("z", *x.shape))
        self._phi = self._kept("input", *x.shape).copy_(z) if self.kernel.keeps_input else z
        self.kernel.forward_(z)
        self._z = z
        with torch.enable_grad():
            self._leaves = {n: p.detach().requires_grad_() for n, p in own.items()}
            self._affine = self._moments(**self._leaves)
        scale, shift = (t.detach() for t in self._affine)
        torch.addcmul(shift, z, scale, out=x)

    def _moments(
        self,
        gamma: Tensor,
        beta: Tensor,
        proxy_beta: Tensor | None = None,
        proxy_gamma: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Scale and shift of phi's output."""
        mean, std = beta, gamma.abs()
        if proxy_beta is not None and proxy_gamma is not None:
            mean = torch.addcmul(beta, gamma, proxy_beta)
            std = (gamma * (1 + proxy_gamma)).abs()
        module = self.module
        mean, var = moments(module.activation, mean, std, module.n_samples, module.closed_form)
        scale = torch.rsqrt(var.clamp_min(0) + module.eps)
        return scale, -mean * scale

    def backward_(self, out: Tensor, grad: Tensor) -> None:
        """The gradient of the result becomes that of x; the parameters' are written."""
        work = torch.mul(grad, self._z, out=self._work("work", *grad.shape))
        by_affine = work.sum(1, keepdim=True), grad.sum(1, keepdim=True)
        small = torch.autograd.grad(
            self._affine, list(self._leaves.values()), by_affine, allow_unused=True
        )
        for name, by_moments in zip(self._leaves, small, strict=True):
            if by_moments is None:
                self._gradients[name].zero_()
            else:
                self._gradients[name].copy_(by_moments)
        grad.mul_(self._affine[0].detach())
        self.kernel.backward_(self._phi, grad)
        self._gradients["beta"].add_(grad.sum(1, keepdim=True))
        torch.mul(grad, self._y, out=work)
        self._gradients["gamma"].add_(work.sum(1, keepdim=True))
        grad.mul_(self._parameters["gamma"])
