"""The critic in adversarial training: frozen for the generator's step, and its gradient penalty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from combutab.nn.networks._generative import StackedCritic


@contextmanager
def frozen(*networks: nn.Module) -> Iterator[None]:
    """Hold the networks' parameters constant: gradients pass through to inputs only.

    >>> from combutab.nn import Member
    >>> critic = StackedCritic(2, (4,), [Member(0, "relu")], pac=1)
    >>> with frozen(critic):
    ...     critic(torch.ones(1, 3, 2)).requires_grad
    False
    """
    parameters = [p for net in networks for p in net.parameters() if p.requires_grad]
    try:
        for parameter in parameters:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def gradient_penalty(
    critic: StackedCritic,
    real: Tensor,
    fake: Tensor,
    mix: Tensor,
    masks: Sequence[Tensor] | None = None,
    *,
    weight: float = 10.0,
) -> Tensor:
    """WGAN-GP's penalty on how far the norm of a critic's gradient is from 1.

    Parameters
    ----------
    critic : StackedCritic
    real, fake : Tensor, (M, batch, n_inputs)
        Neither receives a gradient.
    mix : Tensor, (M, batch / pac)
        Uniform on [0, 1]: where between fake (0) and real (1) rows each group's gradient is taken.
    masks : sequence of Tensor, optional
        Dropout masks, as of ``StackedCritic.score``.
    weight : float
        Of the penalty; the paper's is 10.

    Returns
    -------
    Tensor, (M,)
        ``weight * mean((norm - 1)^2)`` over groups, the norm being over all rows of a group;
        differentiable by the critic's parameters, except by those that are frozen.

    References
    ----------
    Gulrajani et al. (2017), "Improved training of Wasserstein GANs", Eq. (3).

    Examples
    --------
    >>> from combutab.nn import Member
    >>> critic = StackedCritic(2, (), [Member(0, "relu")], pac=1)
    >>> slope = torch.linalg.vector_norm(critic.linears[0].weight)
    >>> rows = torch.zeros(1, 3, 2)
    >>> penalty = gradient_penalty(critic, rows, rows + 1, torch.rand(1, 3), weight=1.0)
    >>> bool((penalty - (slope - 1) ** 2).abs() < 1e-6)
    True
    """
    real, fake = critic.group(real.detach()), critic.group(fake.detach())
    between = torch.lerp(fake, real, mix.to(real.dtype).unsqueeze(-1))
    between.requires_grad_()
    with torch.enable_grad():
        score = critic.score(between, masks)
        (gradient,) = torch.autograd.grad(score.sum(), between, create_graph=True)
        norms = torch.linalg.vector_norm(gradient, dim=-1)
        return weight * (norms - 1).square().mean(-1)
