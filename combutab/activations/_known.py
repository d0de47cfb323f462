"""Which modules are known to be what their class says, so that other code may stand in for them."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

T = TypeVar("T", bound=type[nn.Module])

# torch's own that act on every number alone and hold nothing, and what holds such
_KNOWN: set[type] = {
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
}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def known(cls: T) -> T:
    """Declare a class of this package: its modules, of its very type, compute what it says."""
    _KNOWN.add(cls)
    return cls


def is_itself(module: nn.Module) -> bool:
    """Whether a module is exactly of a known class, without hooks or a ``forward`` of its own.

    >>> is_itself(nn.ReLU()), is_itself(type("Mine", (nn.ReLU,), {})())
    (True, False)
    """
    return (
        type(module) in _KNOWN
        and "forward" not in vars(module)
        and not any(getattr(module, hooks) for hooks in _HOOKS)
    )


def is_known(module: nn.Module) -> bool:
    """Whether a module and all in it are known, and act along the last axis.

    Then it does the same to x of shape (members, rows, width) as to each member's rows.
    """
    return all(is_itself(part) and getattr(part, "dim", -1) == -1 for part in module.modules())
