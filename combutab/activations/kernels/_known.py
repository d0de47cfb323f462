"""Known modules: those that are what their class says, so that a kernel may stand in for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet

from torch import nn

T = TypeVar("T", bound=type[nn.Module])
Hook = TypeVar("Hook", bound=Callable[..., None])


def _always(module: Any) -> bool:
    return True


def _never(module: Any) -> bool:
    return False


# torch's own that act on every number alone and hold nothing, and what holds such
_TORCHS = (
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Hardtanh,
    nn.Identity,
    nn.LeakyReLU,
    nn.LogSigmoid,
    nn.Mish,
    nn.ModuleList,
    nn.ReLU,
    nn.ReLU6,
    nn.SELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Softsign,
    nn.Tanh,
    nn.Tanhshrink,
)
_KNOWN: dict[type, Callable[[Any], bool]] = dict.fromkeys(_TORCHS, _always)
_OBSERVERS: WeakSet[Callable[..., None]] = WeakSet()
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def known(when: Callable[[Any], bool] = _always) -> Callable[[T], T]:
    """Declare a class of this package: its modules, of its very type, compute what it says.

    ``when`` tells of a module whether it is one of these.
    """

    def declare(cls: T) -> T:
        _KNOWN[cls] = when
        return cls

    return declare


def is_itself(module: nn.Module) -> bool:
    """Tell whether a module is exactly of a known class, without hooks or a ``forward`` of its own.

    >>> is_itself(nn.ReLU()), is_itself(type("Mine", (nn.ReLU,), {})())
    (True, False)
    """
    return (
        _KNOWN.get(type(module), _never)(module)
        and "forward" not in vars(module)
        and all(hook in _OBSERVERS for kind in _HOOKS for hook in getattr(module, kind).values())
    )


def is_observed(module: nn.Module) -> bool:
    """Tell whether a module, or one in it, has a hook, which waits for its ``forward``."""
    return any(getattr(part, kind) for part in module.modules() for kind in _HOOKS)


def observer(hook: Hook) -> Hook:
    """Declare a hook that changes nothing: a module that has it computes what its class says."""
    _OBSERVERS.add(hook)
    return hook


def is_known(module: nn.Module) -> bool:
    """Tell whether a module and all in it are known, and act along the last axis.

    Then it does the same to x of shape (members, rows, width) as to each member's rows.
    """
    return all(is_itself(part) and getattr(part, "dim", -1) == -1 for part in module.modules())
