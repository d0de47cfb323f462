"""One activation slot of a stack: each member's own activation on its own slice of members."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from combutab.activations import ProxyNorm, make_activation

ActivationSpec = str | Callable[[int], nn.Module]


_generator_lock = threading.Lock()  # torch's global generator serves one thread at a time here


def _build(spec: ActivationSpec, width: int, seed: int, proxy_norm: bool) -> nn.Module:
    """A fresh module; what it draws at construction follows the member's seed alone."""
    # the caller's global generator is left as it was
    with _generator_lock, torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        module = make_activation(spec, width)
        return ProxyNorm(module, width) if proxy_norm else module


class _MemberModules(nn.Module):
    """Modules with a state of their own (PReLU, ProxyNorm, a user's module), one a member.

    Their parameters are stacked, (m, ...). Ours hold values for each unit and broadcast as
    (m, 1, width); any other module goes through ``torch.func.vmap``, or through a loop over
    members where vmap cannot trace it.
    """

    def __init__(self, modules: Sequence[nn.Module], width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._skeleton = [modules[0].to(dtype)]  # in a list: not registered, its values unused
        self._names: list[tuple[str, str]] = []
        states = [
            ({n: p.detach() for n, p in m.named_parameters()}, dict(m.named_buffers()))
            for m in modules
        ]
        parameters, buffers = states[0]
        self._broadcasts = type(modules[0]).__module__.startswith("combutab.activations") and all(
            t.shape == (width,) for t in (*parameters.values(), *buffers.values())
        )
        for name in parameters:
            stacked = torch.stack([s[0][name] for s in states]).to(dtype)
            key = "p_" + name.replace(".", "_")
            self.register_parameter(key, nn.Parameter(stacked))
            self._names.append((name, key))
        for name, value in buffers.items():
            key = "b_" + name.replace(".", "_")
            stacked = torch.stack([s[1][name] for s in states])
            self.register_buffer(key, stacked.to(dtype) if value.is_floating_point() else stacked)
            self._names.append((name, key))
        self._vmap_works = self._probe_vmap(width, dtype)

    @property
    def skeleton(self) -> nn.Module:
        """One member's module; the values of its tensors are not used."""
        return self._skeleton[0]

    @property
    def names(self) -> list[tuple[str, str]]:
        """The name of each tensor in the skeleton, and of its stack here."""
        return self._names

    def _probe_vmap(self, width: int, dtype: torch.dtype) -> bool:
        if self._broadcasts or self._n_members() == 1:
            return False
        # NOTE: a probe decides, since a module cannot say whether vmap can trace it
        try:
            self._mapped(torch.zeros(self._n_members(), 2, width, dtype=dtype))
        except Exception:
            return False
        return True

    def _n_members(self) -> int:
        return int(getattr(self, self._names[0][1]).shape[0])

    def _state(self) -> dict[str, Tensor]:
        return {name: getattr(self, key) for name, key in self._names}

    def _call(self, state: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(self._skeleton[0], state, (x,))

    def _mapped(self, x: Tensor) -> Tensor:
        return torch.func.vmap(self._call)(self._state(), x)

    def forward(self, x: Tensor) -> Tensor:
        self._skeleton[0].train(self.training)
        state = self._state()
        if self._n_members() == 1:
            return self._call({n: v[0] for n, v in state.items()}, x[0]).unsqueeze(0)
        if self._broadcasts:
            return self._call({n: v.unsqueeze(1) for n, v in state.items()}, x)
        if self._vmap_works:
            return self._mapped(x)
        outputs = [self._call({n: v[i] for n, v in state.items()}, x[i]) for i in range(x.shape[0])]
        return torch.stack(outputs)


@dataclass(frozen=True)
class _Group:
    start: int
    stop: int
    index: int  # of the module in the slot's list


class StackedActivation(nn.Module):
    """Activations of M members, sorted so that equal ones are neighbours: one call a kind.

    Parameters
    ----------
    specs : sequence of str or callable
        One a member: a name of ``ACTIVATIONS`` or ``width -> nn.Module``.
    width : int
    seeds : sequence of int
        One a member, for modules that draw at construction.
    proxy_norm : bool
        Wrap each in ProxyNorm.

    Shape
    -----
    x : (M, batch, width) -> (M, batch, width)
    """

    def __init__(
        self,
        specs: Sequence[ActivationSpec],
        width: int,
        seeds: Sequence[int],
        *,
        proxy_norm: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.kinds = nn.ModuleList()
        self.groups: list[_Group] = []
        start = 0
        while start < len(specs):
            stop = start + 1
            while stop < len(specs) and specs[stop] == specs[start]:
                stop += 1
            first = _build(specs[start], width, seeds[start], proxy_norm)
            if any(True for _ in first.parameters()) or any(True for _ in first.buffers()):
                rest = [
                    _build(specs[i], width, seeds[i], proxy_norm) for i in range(start + 1, stop)
                ]
                first = _MemberModules([first, *rest], width, dtype)
            self.groups.append(_Group(start, stop, len(self.kinds)))
            self.kinds.append(first)
            start = stop

    def forward(self, x: Tensor) -> Tensor:
        if len(self.groups) == 1:
            return self.kinds[self.groups[0].index](x)
        return torch.cat([self.kinds[g.index](x[g.start : g.stop]) for g in self.groups])

    def member_range(self, kind: int) -> tuple[int, int]:
        """The members [start, stop) that module ``kind`` of the slot serves."""
        group = next(g for g in self.groups if g.index == kind)
        return group.start, group.stop

    def select_groups(self, keep: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Keep these members; returns (module index, rows of that module to keep) pairs."""
        kept, groups, start = [], [], 0
        for group in self.groups:
            rows = [m - group.start for m in keep if group.start <= m < group.stop]
            if rows:
                groups.append(_Group(start, start + len(rows), group.index))
                start += len(rows)
            kept.append((group.index, rows))
        self.groups = groups
        return kept
