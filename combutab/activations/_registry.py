"""Names for activations, and the one function that makes a module of a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from torch import nn

from combutab._suggestions import did_you_mean
from combutab.activations._combu import CombU
from combutab.activations._complex_combu import ComplexCombU
from combutab.activations._layeract import LAHardSiLU, LASiLU
from combutab.activations._parallel_norm import PLN, PLS
from combutab.activations._trainable import Blend
from combutab.activations._unitwise import UNITWISE

Factory = Callable[..., nn.Module]


def _layerwise(module: Factory) -> Factory:
    def factory(width: int, *, dim: int = -1) -> nn.Module:
        return module(dim=dim)

    return factory


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
    "la-silu": _layerwise(LASiLU),
    "la-hardsilu": _layerwise(LAHardSiLU),
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
    """Make a fresh activation module for layers of the given width.

    Parameters
    ----------
    spec : str or callable
        A name in ``ACTIVATIONS``, ``"pln-N"`` or ``"pls-N"`` for groups of N units,
        ``"blend-NAME"`` for a learned blend of x and another of these, or a callable width ->
        nn.Module, such as ``partial(CombU, ratios=...)``.
    width : int
        Number of features.
    dim : int, default -1
        The feature axis; passed on as ``dim=`` to named activations, and to a callable where
        it is not the last.

    Returns
    -------
    nn.Module, (..., width) -> (..., width)

    Raises
    ------
    ValueError
        If the name is unknown; the message lists the known ones and the nearest.
    TypeError
        If ``spec`` is neither, is a module already made, or returns something else.

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
