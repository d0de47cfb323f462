"""What all stacked networks share: tensors as rows of a matrix, states of members by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from combutab.nn._activation import ActivationSpec, StackedActivation, _MemberModules
from combutab.nn._flat import FlatTensors, backward, lay_out
from combutab.nn._layers import StackedLinear

Entry = tuple[str, nn.Module, str, int, int]  # name, module, attribute, members from, and to


@dataclass(frozen=True)
class Member:
    """What is a member's own when the network is built."""

    seed: int
    activation: ActivationSpec
    dropout: float = 0.0


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
    of linear layers in the first ``n_decayed`` columns; its buffers are views of
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
        for prefix, module, start, stop in self._owners("", self):
            for name, _ in module.named_parameters(recurse=False):
                is_weight = isinstance(module, StackedLinear) and name == "weight"
                entry = (f"{prefix}{name}", module, name, start, stop)
                (weights if is_weight else others).append(entry)
            for name, buffer in module.named_buffers(recurse=False):
                entry = (f"{prefix}{name}", module, name, start, stop)
                (buffers if buffer.is_floating_point() else self._integer_buffers).append(entry)
        slots, width = lay_out([*weights, *others], m)
        self.n_decayed = sum(s.columns.stop - s.columns.start for s in slots[: len(weights)])
        self.flat = FlatTensors(slots, width, m, dtype=dtype, device=device, with_grad=True)
        slots, width = lay_out(buffers, m)
        self.flat_buffers = FlatTensors(
            slots, width, m, dtype=dtype, device=device, with_grad=False
        )

    def _owners(self, prefix: str, module: nn.Module) -> list[tuple[str, nn.Module, int, int]]:
        """(prefix of names, module, first member, past the last) of all that may hold tensors."""
        if isinstance(module, StackedActivation):
            return [
                (prefix, kind, *module.member_range(k))
                for k, kind in enumerate(module.kinds)
                if isinstance(kind, _MemberModules)
            ]
        owners = [(prefix, module, 0, self.n_members)]
        for name, child in module.named_children():
            owners += self._owners(f"{prefix}{name}.", child)
        return owners

    def select(self, keep: Sequence[int]) -> None:
        """Drop all members but these (increasing positions)."""
        index = torch.tensor(list(keep), dtype=torch.int64, device=self.device)
        for _, module, name, start, stop in self._integer_buffers:
            rows = index[(index >= start) & (index < stop)] - start
            setattr(module, name, getattr(module, name)[rows])
        self._integer_buffers = [
            (full, module, name, sum(k < start for k in keep), sum(k < stop for k in keep))
            for full, module, name, start, stop in self._integer_buffers
        ]
        for module in self.modules():
            if isinstance(module, StackedActivation):
                module.select_groups(keep)
        self.flat.select(keep)
        self.flat_buffers.select(keep)
        self.members = [self.members[k] for k in keep]

    def member_state(self, i: int) -> dict[str, Tensor]:
        """Copies of all that member i learned, by names that do not depend on the stack."""
        state = self.flat.member(i) | self.flat_buffers.member(i)
        for full, module, name, start, stop in self._integer_buffers:
            if start <= i < stop:
                state[full] = getattr(module, name)[i - start].clone()
        return state

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
        for full, module, name, start, stop in self._integer_buffers:
            if start <= i < stop:
                getattr(module, name)[i - start].copy_(state[full])


def fill_gradients(loss: Tensor, *networks: StackedNetwork) -> None:
    """Set the ``flat.grads`` of networks that share a loss, in one backward pass.

    Parameters
    ----------
    loss : Tensor, a scalar
    networks : StackedNetwork
        An encoder and its decoder, say.
    """
    backward(loss, [network.flat for network in networks])
