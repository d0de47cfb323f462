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

from combutab.activations import ProxyNorm, make_activation
from combutab.activations.kernels import is_itself, is_known
from combutab.core.rng import SeededDraws, Stream, fold_in

# ---- A check that an activation can be honoured, before any work on data -------------------------


def check_activation(
    spec: ActivationSpec, width: int, *, proxy_norm: bool = False, twice: bool = False
) -> None:
    """Refuse an activation that a stack cannot train or predict with as a plain network would.

    Parameters
    ----------
    spec : str or callable
        A module that is not known is called with rows of shape (8, width), in training and in
        evaluation mode.
    width : int
    proxy_norm : bool
        As it will be wrapped.
    twice : bool
        Whether it is differentiated twice, as by the gradient penalty of a critic.

    Raises
    ------
    ValueError
        If the module fails, changes the shape or the type, cannot be differentiated, predicts one
        row by the others or by chance, keeps tensors that are neither parameters nor buffers, or
        is one that an earlier call returned.
    TypeError
        If ``spec`` is neither a name nor makes a module.
    """
    try:
        module = build_activation(spec, width, proxy_norm=proxy_norm)
    except TypeError as error:
        raise TypeError(
            f"activation must be a name or a callable width -> nn.Module, got {spec!r} ({error})"
        ) from error
    if is_known(module):
        return
    tensors = [*module.parameters(), *module.buffers()]
    if tensors and module is build_activation(spec, width, proxy_norm=proxy_norm):
        raise ValueError(
            f"activation={spec!r} returned one module with tensors twice; it must make a fresh one "
            "for every layer and network, such as lambda width: MyActivation(width)"
        )
    x = torch.randn(8, width, generator=torch.Generator().manual_seed(0))
    _check_training(spec, module, x, twice)
    _check_prediction(spec, module.eval(), x)


def _check_training(spec: ActivationSpec, module: nn.Module, x: Tensor, twice: bool) -> None:
    scale = torch.ones(x.shape[1], requires_grad=True)
    x = x.clone().requires_grad_()
    held, loose = _buffer_shapes(module), _loose(module)
    y = _try(spec, module, x * scale, "in training")
    if not y.requires_grad:
        raise ValueError(f"activation={spec!r} cannot be differentiated")
    now, after = _buffer_shapes(module), _loose(module)
    changed = sorted(n for n in held.keys() ^ now.keys())
    changed += sorted(n for n in held.keys() & now.keys() if held[n] != now[n])
    if changed:
        raise ValueError(
            f"activation={spec!r}: its call made, dropped or reshaped the buffers {changed}; "
            "register all of them at construction, in their shapes"
        )
    changed = sorted(n for n in loose.keys() | after.keys() if loose.get(n) != after.get(n))
    if changed:
        raise ValueError(
            f"activation={spec!r}: its call changed {changed}, which is neither a parameter nor a "
            "buffer and would not be kept with the best weights; use register_buffer"
        )
    if twice:
        try:
            (slope,) = torch.autograd.grad((y * scale).sum(), x, create_graph=True)
            slope.square().sum().backward()
        except RuntimeError as error:
            raise ValueError(
                f"{spec!r} cannot be differentiated twice ({error}), which the gradient "
                "penalty of CTGAN's critic needs; write its backward pass in differentiable "
                "operations, or take TVAE"
            ) from error


def _check_prediction(spec: ActivationSpec, module: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        y = _try(spec, module, x.clone(), "in evaluation mode")
        again = _try(spec, module, x.clone(), "in evaluation mode", seed=1)
        alone = torch.cat(
            [_try(spec, module, x[i : i + 1].clone(), "of one row") for i in range(8)]
        )
    if not torch.equal(y, again) and not torch.allclose(y, again, equal_nan=True):
        raise ValueError(
            f"activation={spec!r} gives other results for the same rows in evaluation mode, so "
            "that predictions would be a matter of chance; let it draw in training mode alone "
            "(self.training)"
        )
    if not torch.allclose(y, alone, rtol=1e-4, atol=1e-5, equal_nan=True):
        raise ValueError(
            f"activation={spec!r}: what it makes of a row in evaluation mode depends on the rows "
            "beside it, so that a prediction would depend on which others are asked for; it is "
            "given (rows, width): work along the last axis (dim=-1), or keep statistics of the "
            "training rows in buffers"
        )


def _try(spec: ActivationSpec, module: nn.Module, x: Tensor, when: str, seed: int = 0) -> Tensor:
    try:
        with SeededDraws(lambda: seed):
            y = module(x)
    except Exception as error:
        raise ValueError(
            f"activation={spec!r} fails {when} on an input of shape {tuple(x.shape)}, "
            f"(rows, width): {error}"
        ) from error
    if not isinstance(y, Tensor) or y.shape != x.shape or y.dtype != x.dtype:
        made = f"{tuple(y.shape)} of {y.dtype}" if isinstance(y, Tensor) else f"{type(y).__name__}"
        raise ValueError(
            f"an activation keeps the shape and the type; {spec!r} made {made} of "
            f"{tuple(x.shape)} of {x.dtype}"
        )
    return y


def _buffer_shapes(module: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in module.named_buffers()}


def _loose(module: nn.Module) -> dict[str, tuple[int, int]]:
    """Tensors that modules hold as plain attributes: which, and how often they were written."""
    return {
        f"{path}.{name}".lstrip("."): (id(value), value._version)
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, Tensor)
    }


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
        return fold_in(self._seeds[i], Stream.ACTIVATION_CALL, int(self.n_draws[i])) >> 1


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
