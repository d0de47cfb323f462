"""The base of stacked networks: tensors as rows of a matrix, states of members by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor, nn

from combutab.nn._activation import ActivationSpec, SeparateModules, StackedActivation
from combutab.nn._layers import Entry, FlatTensors, StackedLinear, StackedNorm, backward, lay_out

Context = Callable[[], AbstractContextManager[object]]  # of a forward pass: autocast, or none
ROLES = ("weight", "bias", "normalization", "activation", "embedding", "scale")
"""What a parameter may be, of which each kind has its factor of the learning rate."""


@dataclass(frozen=True)
class Member:
    """A member's own settings when the network is built."""

    seed: int
    activation: ActivationSpec
    dropout: float = 0.0
    # (n_numeric, n_bins + 1): edges of the bins of piecewise-linear embeddings
    bins: Tensor | None = field(default=None, compare=False, repr=False)


def check_proxy_norm(proxy_norm: bool, normalization: str) -> None:
    """Refuse ProxyNorm where it does not follow a normalisation that it is made for."""
    if proxy_norm and normalization not in ("layer", "group"):
        raise ValueError(
            "proxy_norm=True goes after layer or group normalization, got "
            f"{normalization=}; set normalization='layer'"
        )


class StackedNetwork(nn.Module):
    """A network of M members, sorted so that those of one activation are neighbours.

    A subclass makes its layers, each tensor with a leading member axis, and then calls
    ``_flatten``. Its parameters are then views of ``flat.values``, a row a member, the weights
    that penalties apply to in the first ``n_decayed`` columns; its buffers are views of
    ``flat_buffers.values``.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__()
        self.members = list(members)

    @property
    def n_members(self) -> int:
        return len(self.members)

    @property
    def device(self) -> torch.device:
        return self.flat.values.device

    @property
    def dtype(self) -> torch.dtype:
        return self.flat.values.dtype

    def _flatten(self, dtype: torch.dtype, device: torch.device) -> None:
        m = self.n_members
        weights: list[Entry] = []
        others: list[Entry] = []
        buffers: list[Entry] = []
        self._integer_buffers: list[Entry] = []
        for entry in self._entries("", self):
            tensor = entry.tensor
            if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
                (weights if self._is_decayed(entry) else others).append(entry)
            else:  # a frozen parameter is a buffer: it is kept, and not trained
                floating = tensor.is_floating_point()
                (buffers if floating else self._integer_buffers).append(entry)
        slots, width = lay_out([*weights, *others], m)
        self.n_decayed = sum(s.columns.stop - s.columns.start for s in slots[: len(weights)])
        self.flat = FlatTensors(slots, width, m, dtype=dtype, device=device, with_grad=True)
        slots, width = lay_out(buffers, m)
        self.flat_buffers = FlatTensors(
            slots, width, m, dtype=dtype, device=device, with_grad=False
        )

    def unflatten(self) -> Self:
        """Give each parameter and buffer memory of its own, as a plain module has.

        Our training loop, which needs ``flat``, cannot go on with it then; any other can.
        """
        for parameter in self.parameters():
            parameter.data = parameter.detach().clone()
        for module in self.modules():
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, buffer.clone())
        del self.flat, self.flat_buffers
        return self

    def rate_factors(self, by_role: Mapping[str, float]) -> list[tuple[slice, float]]:
        """Spread factors of the learning rate, by parameters' role, over ``flat``'s columns.

        Returns
        -------
        list of (slice, float)
            Neighbouring columns of one factor, in order, without gaps.
        """
        found: list[tuple[slice, float]] = []
        for slot in sorted(self.flat.slots, key=lambda slot: slot.columns.start):
            factor = by_role.get(parameter_role(slot), 1.0)
            start, before = 0, None
            if found:
                before, last = found[-1]
                start = before.stop
                if last == factor:
                    found[-1] = (slice(before.start, max(start, slot.columns.stop)), factor)
                    continue
            if slot.columns.stop > start:
                found.append((slice(start, slot.columns.stop), factor))
        return found

    def _is_decayed(self, entry: Entry) -> bool:
        """Tell whether penalties on the weights apply to a parameter."""
        return isinstance(entry.module, StackedLinear) and entry.attribute == "weight"

    def _entries(self, prefix: str, module: nn.Module) -> Iterator[Entry]:
        """All tensors below a module; those of an activation slot have the slot's name."""
        if isinstance(module, StackedActivation):
            for k, kind in enumerate(module.kinds):
                start, stop = module.member_range(k)
                yield from _own(prefix, kind, start, stop)
                if isinstance(kind, SeparateModules):
                    for i in range(stop - start):
                        for name, owner, attribute in kind.tensors(i):
                            place = start + i
                            yield Entry(prefix + name, owner, attribute, place, place + 1, False)
            return
        yield from _own(prefix, module, 0, self.n_members)
        for name, child in module.named_children():
            yield from self._entries(f"{prefix}{name}.", child)

    def mixes_rows(self) -> str | None:
        """Name what, in training, makes a row's outputs depend on others of its batch, if any."""
        for module in self.modules():
            if isinstance(module, StackedNorm) and module.kind == "batch":
                return "normalization='batch'"
            if isinstance(module, SeparateModules):  # nobody knows what it does with them
                return f"the activation {type(module.each[0]).__name__}, a module of your own,"
        return None

    def select(self, keep: Sequence[int]) -> None:
        """Drop all members but these (increasing positions)."""
        index = torch.tensor(list(keep), dtype=torch.int64, device=self.device)
        integers = self._integer_buffers
        self._integer_buffers = []
        for entry in integers:
            rows = index[(index >= entry.start) & (index < entry.stop)] - entry.start
            if entry.stacked:
                setattr(entry.module, entry.attribute, entry.tensor[rows])
            if (kept := entry.kept(keep)) is not None:
                self._integer_buffers.append(kept)
        for module in self.modules():
            if isinstance(module, StackedActivation):
                module.select_groups(keep)
        self.flat.select(keep)
        self.flat_buffers.select(keep)
        self.members = [self.members[k] for k in keep]

    def member_state(self, i: int) -> dict[str, Tensor]:
        """Copies of all that member i learned, by names that do not depend on the stack."""
        state = self.flat.member(i) | self.flat_buffers.member(i)
        return state | {name: value.clone() for name, value in self._integers(i).items()}

    def _integers(self, i: int) -> dict[str, Tensor]:
        """Member i's integer buffers themselves, by name."""
        return {
            entry.name: entry.tensor[i - entry.start] if entry.stacked else entry.tensor
            for entry in self._integer_buffers
            if entry.start <= i < entry.stop
        }

    def load_member(self, i: int, state: dict[str, Tensor]) -> None:
        """Set member i to a state that ``member_state`` gave."""
        expected = set(self.member_state(i))
        if expected != set(state):
            raise ValueError(
                f"the state does not fit the network: missing {sorted(expected - set(state))}, "
                f"unexpected {sorted(set(state) - expected)}"
            )
        self.flat.load_member(i, state)
        self.flat_buffers.load_member(i, state)
        for name, value in self._integers(i).items():
            value.copy_(state[name])


def parameter_role(entry: Entry) -> str:
    """Name what a parameter is to its network.

    Returns
    -------
    str
        One of ``ROLES``: "weight" or "bias" of a linear layer, "scale" of the inputs or heads, ...
    """
    if isinstance(entry.module, StackedLinear):
        return entry.attribute if entry.attribute in ("weight", "bias") else "scale"
    if isinstance(entry.module, StackedNorm):
        return "normalization"
    if not entry.name.startswith("inputs."):
        return "activation"
    return "scale" if entry.name == "inputs.scale" else "embedding"


def _own(prefix: str, module: nn.Module, start: int, stop: int) -> Iterator[Entry]:
    """The tensors that a module itself holds, stacked."""
    for pairs in (module.named_parameters(recurse=False), module.named_buffers(recurse=False)):
        for name, _ in pairs:
            yield Entry(f"{prefix}{name}", module, name, start, stop)


def fill_gradients(loss: Tensor, *networks: StackedNetwork) -> None:
    """Set the ``flat.grads`` of networks that share a loss, in one backward pass.

    Parameters
    ----------
    loss : Tensor, a scalar
    networks : StackedNetwork
        An encoder and its decoder, say.
    """
    backward(loss, [network.flat for network in networks])
