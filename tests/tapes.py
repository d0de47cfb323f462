"""Tapes of what code asks of torch, which refuse what a GPU must wait for."""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class NoHost(TorchFunctionMode):
    """Sees what reads a tensor's memory without an operator."""

    READERS = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu, torch.Tensor.__array__)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func not in self.READERS, f"{func} needs the host"
        return func(*args, **(kwargs or {}))


class Tape(TorchDispatchMode):
    """Notes each operator, its numbers and its tensors' shapes; refuses what waits for the device.

    A GPU can repeat what is noted as one graph, if it is the same in each step.
    """

    HOST = ("_local_scalar_dense", "lift_fresh", "nonzero", "masked_select", "equal.", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not func.__name__.startswith(self.HOST), f"{func} needs the host"
        if func.__name__.startswith("index"):  # by booleans: how many are true, the host must know
            indices = [t for t in tree_leaves(args[1:2]) if isinstance(t, torch.Tensor)]
            assert all(t.dtype != torch.bool for t in indices), f"{func} needs the host"
        leaves = tree_leaves((args, kwargs))
        described = [(t.dtype, *t.shape) if isinstance(t, torch.Tensor) else t for t in leaves]
        self.calls.append((func.__name__, *described))
        return func(*args, **(kwargs or {}))


def tape_calls(monkeypatch, owner, *names):
    """Tape these methods of a class: each of their calls adds a list of operators to the result."""
    calls = []
    for name in names:
        method = getattr(owner, name)

        def taped(self, *arguments, method=method):
            with NoHost(), Tape() as tape:
                result = method(self, *arguments)
            calls.append(tape.calls)
            return result

        monkeypatch.setattr(owner, name, taped)
    return calls
