"""Names for activations, and the one function that makes a module of a name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from combutab.activations._combu import CombU, ComplexCombU
from combutab.activations._layeract import LAHardSiLU, LASiLU
from combutab.activations._parallel_norm import PLN, PLS
from combutab.activations._unitwise import UNITWISE
from combutab.activations.kernels import PerUnit, along, known
from combutab.core.text import did_you_mean

Factory = Callable[..., nn.Module]


@known
class Blend(PerUnit):
    """Blend of x and an activation g, ``(1 - w) x + w g(x)``, with a learned w per unit.

    Parameters
    ----------
    width : int
        Number of features.
    activation : str or callable, default "relu"
        The activation g, as in ``make_activation``.
    init : float, default 1.0
        Initial value of w: 0 is the identity, 1 is g.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). ``w`` is (width,); in a stack it is (members, 1, width).

    Raises
    ------
    ValueError
        If ``init`` is not finite, or the name of g is unknown.

    References
    ----------
    Manessi and Rozza (2018), "Learning combinations of activation functions".

    Examples
    --------
    >>> import torch
    >>> Blend(2, "tanh", init=0.5)(torch.tensor([[-1.0, 2.0]])).detach()
    tensor([[-0.8808,  1.4820]])
    """

    w: Tensor

    def __init__(
        self,
        width: int,
        activation: str | Callable[[int], nn.Module] = "relu",
        init: float = 1.0,
        *,
        dim: int = -1,
    ) -> None:
        if not math.isfinite(init):
            raise ValueError(f"init must be finite, got {init=}")
        super().__init__(width, dim, w=init)
        self.activation = make_activation(activation, width, dim=dim)

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        w = along(self.w, x, self.dim)
        return (1 - w) * x + w * self.activation(x)


UNITWISE["blend"] = Blend  # of any activation by name, so that it is made here


ACTIVATIONS: dict[str, Factory] = {
    **UNITWISE,
    "combu": CombU,
    "combu-random": partial(CombU, assignment="random"),
    "complex-combu": ComplexCombU,
    "pln": PLN,
    "pln-4": partial(PLN, norm_size=4),
    "pln-8": partial(PLN, norm_size=8),
    "pls": PLS,
    "pls-2": partial(PLS, norm_size=2),
    "la-silu": lambda width, **axis: LASiLU(**axis),
    "la-hardsilu": lambda width, **axis: LAHardSiLU(**axis),
}
"""Name -> ``factory(width, *, dim=-1)`` -> a fresh module."""

_SIZED: dict[str, type[PLN] | type[PLS]] = {"pln": PLN, "pls": PLS}


def _named(name: str) -> Factory:
    if name in ACTIVATIONS:
        return ACTIVATIONS[name]
    if match := re.fullmatch(r"(pln|pls)-(\d+)", name):
        return partial(_SIZED[match[1]], norm_size=int(match[2]))
    if name.startswith("blend-"):
        _named(inner := name.removeprefix("blend-"))
        return partial(Blend, activation=inner)
    hint = did_you_mean(name, ACTIVATIONS, n=1)
    raise ValueError(
        f"unknown activation {name!r}{f' ({hint})' if hint else ''}; known: "
        f"{', '.join(ACTIVATIONS)}, pln-N, pls-N, blend-NAME, or any callable width -> nn.Module"
    )


def make_activation(
    spec: str | Callable[[int], nn.Module], width: int, *, dim: int = -1
) -> nn.Module:
    """Create an activation module for a layer of a given width.

    Parameters
    ----------
    spec : str or callable
        A name in ``ACTIVATIONS``, ``"pln-N"`` or ``"pls-N"`` for groups of N units,
        ``"blend-NAME"`` for a learned blend of x and another of these, or a callable width ->
        nn.Module, such as ``partial(CombU, ratios=...)``.
    width : int
        Number of features.
    dim : int, default -1
        The feature axis. It is passed as ``dim=`` to activations given by name, and to callables
        if it is not the last axis.

    Returns
    -------
    nn.Module, (..., width) -> (..., width)

    Raises
    ------
    ValueError
        If the name is unknown; the message has known and similar names.
    TypeError
        If ``spec`` is neither a name nor a callable, is a module instance, or does not return a
        module.

    Examples
    --------
    >>> make_activation("pln-4", 16)
    PLN(16, norm_size=4, eps=1e-05, dim=-1)
    >>> make_activation(partial(CombU, ratios={"relu": 0.5, "tanh": 0.5}), 6).ratios
    {'relu': 0.5, 'tanh': 0.5}
    """
    if isinstance(spec, str):
        return _named(spec)(width, dim=dim)
    if isinstance(spec, nn.Module):
        raise TypeError(
            f"activation must make a fresh module for every layer, got the module {spec!r}; "
            "pass its class, a name, or a callable width -> nn.Module"
        )
    if not callable(spec):
        raise TypeError(f"activation must be a name or a callable width -> nn.Module, got {spec!r}")
    module = spec(width) if dim == -1 else spec(width, dim=dim)  # type: ignore[call-arg]
    if not isinstance(module, nn.Module):
        raise TypeError(f"activation must return an nn.Module, got {module!r} from {spec!r}")
    return module
