"""All parameters of a stack as one matrix, a row a member.

Whatever is done per member is then an operation on rows: gradient norms, optimiser steps with
a learning rate each, copies of the best weights, dropping members that have finished.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Entry:
    """One tensor of a module, and the members that own it."""

    name: str  # the same for a member whatever it is stacked with
    module: nn.Module
    attribute: str
    start: int  # members [start, stop) own a row of the tensor
    stop: int
    stacked: bool = True  # whether its first axis is that of the members; else it is one member's

    @property
    def tensor(self) -> Tensor:
        """The tensor itself."""
        return getattr(self.module, self.attribute)

    def kept(self, keep: Sequence[int]) -> Self | None:
        """The entry once only these members are left; None if nothing is."""
        start, stop = (sum(m < end for m in keep) for end in (self.start, self.stop))
        return None if start == stop else replace(self, start=start, stop=stop)


@dataclass(frozen=True, kw_only=True)
class Slot(Entry):
    """The place of a tensor in the matrix."""

    columns: slice
    tail: tuple[int, ...]  # shape after the member axis


def lay_out(tensors: Sequence[Entry], n_members: int) -> tuple[list[Slot], int]:
    """Give each tensor its columns.

    Tensors that all members own come first, in the given order. The rest (activations with
    parameters of their own) share columns: no two of them serve the same member.
    """
    shared = [t for t in tensors if (t.start, t.stop) == (0, n_members)]
    owned = [t for t in tensors if (t.start, t.stop) != (0, n_members)]
    slots: list[Slot] = []
    position = 0

    def place(entry: Entry, at: int) -> int:
        tail = tuple(entry.tensor.shape[entry.stacked :])
        end = at + math.prod(tail)
        slots.append(Slot(**vars(entry), columns=slice(at, end), tail=tail))
        return end

    for entry in shared:
        position = place(entry, position)
    end = position
    cursors: dict[tuple[int, int], int] = {}
    for entry in owned:
        group = (entry.start, entry.stop)
        cursors[group] = place(entry, cursors.get(group, position))
        end = max(end, cursors[group])
    return slots, end


class FlatTensors:
    """A (M, P) matrix of which the modules' parameters (or buffers) are views.

    With ``with_grad`` it keeps a second matrix for the gradients, which ``backward`` fills.
    """

    def __init__(
        self,
        slots: list[Slot],
        width: int,
        n_members: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        with_grad: bool,
    ) -> None:
        self.slots = slots
        self.values = torch.zeros(n_members, width, dtype=dtype, device=device)
        self.grads = torch.zeros_like(self.values[:, : None if with_grad else 0])
        for slot in slots:
            self._view(self.values, slot).copy_(slot.tensor.detach())
        self._point()

    def _view(self, matrix: Tensor, slot: Slot) -> Tensor:
        rows = matrix[slot.start : slot.stop, slot.columns]
        return rows.view((slot.stop - slot.start, *slot.tail) if slot.stacked else slot.tail)

    def _point(self) -> None:
        for slot in self.slots:
            view = self._view(self.values, slot)
            if isinstance(slot.tensor, nn.Parameter):
                slot.tensor.data = view
            else:
                setattr(slot.module, slot.attribute, view)

    def backward(self, loss: Tensor) -> None:
        """Set ``grads`` to the derivative of a scalar by every parameter.

        NOTE: not ``loss.backward()``, which adds to ``.grad`` tensors: these need zeroing first,
        and as views of a matrix they are not laid out as it wants them.
        """
        backward(loss, [self])

    def backward_through(self, module: nn.Module, out: Tensor, by_out: Tensor) -> None:
        """Set the ``grads`` of a module alone, from what it gave and the derivative by that."""
        inside = set(module.modules())
        slots = [slot for slot in self.slots if slot.module in inside]
        grads = torch.autograd.grad(out, [s.tensor for s in slots], by_out, allow_unused=True)
        for slot, grad in zip(slots, grads, strict=True):
            self._fill(slot, grad)

    def _fill(self, slot: Slot, grad: Tensor | None) -> None:
        view = self._view(self.grads, slot)
        if grad is None:
            view.zero_()
        else:
            view.copy_(grad)

    def gradient_of(self, module: nn.Module, attribute: str) -> Tensor:
        """The view of ``grads`` that belongs to one parameter."""
        slot = next(s for s in self.slots if s.module is module and s.attribute == attribute)
        return self._view(self.grads, slot)

    def select(self, keep: Sequence[int]) -> None:
        """Keep these members (increasing); columns stay where they are."""
        index = torch.tensor(list(keep), dtype=torch.int64, device=self.values.device)
        self.values = self.values[index]
        self.grads = self.grads.new_zeros(len(index), self.grads.shape[1])
        self.slots = [kept for slot in self.slots if (kept := slot.kept(keep)) is not None]
        self._point()

    def member(self, i: int) -> dict[str, Tensor]:
        """Copies of what member i owns, by name."""
        return {
            slot.name: self.values[i, slot.columns].clone().view(slot.tail)
            for slot in self.slots
            if slot.start <= i < slot.stop
        }

    def load_member(self, i: int, state: dict[str, Tensor]) -> None:
        """Set what member i owns; shapes and names must be those of ``member``."""
        for slot in self.slots:
            if slot.start <= i < slot.stop:
                value = state[slot.name]
                if tuple(value.shape) != slot.tail:
                    raise ValueError(
                        f"{slot.name} has shape {tuple(value.shape)}, the network needs {slot.tail}"
                    )
                self.values[i, slot.columns].copy_(value.reshape(-1))


def backward(loss: Tensor, flats: Sequence[FlatTensors]) -> None:
    """Set the ``grads`` of several matrices in one backward pass."""
    slots = [(flat, slot) for flat in flats for slot in flat.slots]
    grads = torch.autograd.grad(loss, [slot.tensor for _, slot in slots], allow_unused=True)
    for (flat, slot), grad in zip(slots, grads, strict=True):
        flat._fill(slot, grad)
