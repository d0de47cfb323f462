"""One activation slot of a stack: each member's own activation on its own slice of members.

One rule says what a module is given. A module of a user's is a plain torch module: each member has
one of its own, which is called with the rows that the member has, (rows, width), however many
members there are. Modules that are known to do the same to all members' rows at once, ours and
torch's elementwise ones, see (members, rows, width).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from combutab._random import Purpose, derive
from combutab._seeded_draws import SeededDraws
from combutab.activations import ProxyNorm, make_activation
from combutab.activations.kernels import is_itself, is_known

ActivationSpec = str | Callable[[int], nn.Module]
"""What `activation=` takes: a name, or a callable from a width to a module."""


def build_activation(
    spec: ActivationSpec, width: int, seed: int = 0, *, proxy_norm: bool = False
) -> nn.Module:
    """A fresh module; what it draws at construction follows the seed alone.

    Torch's global generator is neither read nor set.
    """
    with SeededDraws(lambda: seed):
        module = make_activation(spec, width)
        return ProxyNorm(module, width) if proxy_norm else module


class StackedModules(nn.Module):
    """Known modules with a value for each unit (PReLU, ProxyNorm), whose tensors are stacked.

    Their parameters and buffers are (m, width), and broadcast as (m, 1, width).
    """

    def __init__(self, modules: Sequence[nn.Module], dtype: torch.dtype) -> None:
        super().__init__()
        self._skeleton = [modules[0].to(dtype)]  # in a list: not registered, its values unused
        self.names: list[tuple[str, str]] = []  # of each tensor in the skeleton, and here
        for name, _ in modules[0].named_parameters():
            stacked = torch.stack([m.get_parameter(name).detach() for m in modules])
            self.register_parameter(self._name("p_", name), nn.Parameter(stacked.to(dtype)))
        for name, value in modules[0].named_buffers():
            stacked = torch.stack([m.get_buffer(name) for m in modules])
            stacked = stacked.to(dtype) if value.is_floating_point() else stacked
            self.register_buffer(self._name("b_", name), stacked)

    def _name(self, prefix: str, name: str) -> str:
        self.names.append((name, prefix + name.replace(".", "_")))
        return self.names[-1][1]

    @property
    def skeleton(self) -> nn.Module:
        """One member's module; the values of its tensors are not used."""
        return self._skeleton[0]

    def forward(self, x: Tensor) -> Tensor:
        state = {name: getattr(self, key).unsqueeze(1) for name, key in self.names}
        if torch.compiler.is_compiling():  # the compiler cannot see into copies
            return torch.func.functional_call(self.skeleton, state, (x,))
        return bound(self.skeleton, state)(x)


def bound(module: nn.Module, state: dict[str, Tensor], prefix: str = "") -> nn.Module:
    """A copy of a known module with other tensors; threads may call one module's at once."""
    twin = copy.copy(module)
    for own in ("_parameters", "_buffers"):
        tensors = getattr(module, own).items()
        setattr(twin, own, {n: None if t is None else state[prefix + n] for n, t in tensors})
    twin._modules = {
        n: None if child is None else bound(child, state, f"{prefix}{n}.")
        for n, child in module._modules.items()
    }
    return twin


class SeparateModules(nn.Module):
    """Modules of a user's, one a member, each called with its member's rows, (rows, width).

    What they draw in training comes from their member's seed. Places that hold no row of a member
    (its batch is shorter) are not shown to its module, and become 0.
    """

    def __init__(
        self, modules: Sequence[nn.Module], seeds: Sequence[int], dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.each = nn.ModuleList(module.to(dtype) for module in modules)
        self._seeds = list(seeds)
        self.n_draws: Tensor | None  # calls that drew, of each member: part of its state
        may_draw = not all(is_itself(part) for part in modules[0].modules())
        counts = torch.zeros(len(modules), dtype=torch.int64) if may_draw else None
        self.register_buffer("n_draws", counts)

    def tensors(self, i: int) -> Iterator[tuple[str, nn.Module, str]]:
        """Name, owner and the owner's attribute of all that member i's module holds."""
        for kind, pairs in (
            ("p_", self.each[i].named_parameters()),
            ("b_", self.each[i].named_buffers()),
        ):
            names = [name for name, _ in pairs]
            flat = [name.replace(".", "_") for name in names]
            for name, short in zip(names, flat, strict=True):
                path, _, attribute = name.rpartition(".")
                # "a.b" and "a_b" are two tensors
                key = kind + (short if len(set(flat)) == len(flat) else name)
                yield key, self.each[i].get_submodule(path), attribute

    def keep(self, members: Sequence[int]) -> None:
        """Drop the modules of all members but these; their tensors are the stack's to drop."""
        self.each = nn.ModuleList(self.each[i] for i in members)
        self._seeds = [self._seeds[i] for i in members]

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        return torch.stack(
            [self._rows(i, x[i], None if valid is None else valid[i]) for i in range(len(x))]
        )

    def _rows(self, i: int, x: Tensor, valid: Tensor | None) -> Tensor:
        n = len(x) if valid is None else int(valid.sum())
        if n == 0:
            return torch.zeros_like(x)
        out = self._call(i, x[:n])
        return out if n == len(x) else F.pad(out, (0, 0, 0, len(x) - n))

    def _call(self, i: int, x: Tensor) -> Tensor:
        module = self.each[i]
        if not self.training or self.n_draws is None:
            return module(x)
        held = [
            (owner, name, value)
            for owner in module.modules()
            for name, value in owner._buffers.items()
        ]
        with SeededDraws(partial(self._next_seed, i)):
            out = module(x)
        for owner, name, value in held:  # a buffer may be another tensor now
            now = owner._buffers[name]
            if value is not None and now is not None and now is not value:
                owner._buffers[name] = value.copy_(now.detach())
        return out

    def _next_seed(self, i: int) -> int:
        assert self.n_draws is not None
        self.n_draws[i] += 1
        return derive(self._seeds[i], Purpose.ACTIVATION_CALL, int(self.n_draws[i])) >> 1


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
            modules = (
                build_activation(specs[i], width, seeds[i], proxy_norm=proxy_norm)
                for i in range(start, stop)
            )
            self.groups.append(_Group(start, stop, len(self.kinds)))
            self.kinds.append(_of_members(modules, seeds[start:stop], dtype))
            start = stop

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """``valid``, (M, batch): which places hold a row; None: all."""
        if len(self.groups) == 1:
            return self._apply_kind(self.groups[0], x, valid)
        return torch.cat([self._apply_kind(g, x[g.start : g.stop], valid) for g in self.groups])

    def _apply_kind(self, group: _Group, x: Tensor, valid: Tensor | None) -> Tensor:
        kind = self.kinds[group.index]
        if isinstance(kind, SeparateModules) and valid is not None:
            return kind(x, valid[group.start : group.stop])
        return kind(x)

    def member_range(self, kind: int) -> tuple[int, int]:
        """The members [start, stop) that module ``kind`` of the slot serves."""
        group = next(g for g in self.groups if g.index == kind)
        return group.start, group.stop

    def select_groups(self, keep: Sequence[int]) -> None:
        """Keep these members; the tensors are the stack's to drop."""
        groups, start = [], 0
        for group in self.groups:
            rows = [m - group.start for m in keep if group.start <= m < group.stop]
            kind = self.kinds[group.index]
            if isinstance(kind, SeparateModules):
                kind.keep(rows)
            if rows:
                groups.append(_Group(start, start + len(rows), group.index))
                start += len(rows)
        self.groups = groups


def _of_members(
    modules: Iterator[nn.Module], seeds: Sequence[int], dtype: torch.dtype
) -> nn.Module:
    """Make the module that serves members of one activation, given a module for each."""
    first = next(modules)
    tensors = [*first.parameters(), *first.buffers()]
    if is_known(first):
        if not tensors:
            return first
        if all(tensor.ndim == 1 for tensor in tensors):
            return StackedModules([first, *modules], dtype)
    return SeparateModules([first, *modules], seeds, dtype)
