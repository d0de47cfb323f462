"""What the parameters that generators share may be."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, Options, StrOptions

from combutab._device import PRECISIONS
from combutab.activations import make_activation
from combutab.nn import NORMALIZATIONS, ActivationSpec

_WIDTH = 256  # of a probe

COUNT = Interval(Integral, 1, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
SHARED_CONSTRAINTS: dict[str, list[Any]] = {
    "embedding_dim": [COUNT],
    "batch_size": [COUNT],
    "epochs": [COUNT],
    "verbose": ["verbose"],
    "enable_gpu": ["boolean"],
    "activation": [str, callable],
    "normalization": [StrOptions(set(NORMALIZATIONS))],
    "proxy_norm": ["boolean"],
    "early_stopping": ["boolean"],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "n_iter_no_change": [COUNT, Options(Real, {np.inf})],
    "n_members": [COUNT],
    "random_state": ["random_state", np.random.Generator],
    "device": [str, torch.device],
    "precision": [StrOptions(set(PRECISIONS))],
    "callbacks": [list, tuple, None],
}


def check_widths(name: str, widths: Any) -> tuple[int, ...]:
    """Hidden widths as a tuple of ints; there may be none."""
    listed = list(widths)
    if any(not isinstance(w, Integral) or isinstance(w, bool) or w < 1 for w in listed):
        raise ValueError(f"{name} must hold whole numbers of at least 1, got {widths!r}")
    return tuple(int(w) for w in listed)


def check_activation(activation: ActivationSpec, *, twice: bool) -> None:
    """Try an activation on a layer of 256 units, before any work on data.

    ``twice``: as the gradient penalty of a critic differentiates it.
    """
    x = torch.randn(4, _WIDTH, generator=torch.Generator().manual_seed(0)).requires_grad_()
    scale = torch.ones(_WIDTH, requires_grad=True)
    try:
        module = make_activation(activation, _WIDTH)
    except TypeError as error:
        raise TypeError(
            f"activation must be a name or a callable width -> nn.Module, got {activation!r} "
            f"({error})"
        ) from error
    try:
        y = module(x * scale)
    except Exception as error:
        raise ValueError(
            f"activation={activation!r} fails on an input of shape {tuple(x.shape)}: {error}"
        ) from error
    if y.shape != x.shape:
        raise ValueError(
            f"an activation keeps the shape; {activation!r} made {tuple(y.shape)} of "
            f"{tuple(x.shape)}"
        )
    if not y.requires_grad:
        raise ValueError(f"activation={activation!r} cannot be differentiated")
    if twice:
        try:
            (slope,) = torch.autograd.grad((y * scale).sum(), x, create_graph=True)
            slope.square().sum().backward()
        except RuntimeError as error:
            raise ValueError(
                f"{activation!r} cannot be differentiated twice ({error}), which the gradient "
                "penalty of CTGAN's critic needs; write its backward pass in differentiable "
                "operations, or take TVAE"
            ) from error
