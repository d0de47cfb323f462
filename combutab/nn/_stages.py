"""Stages between two linear layers: normalisation and activations, forward and backward.

What has a kernel works in memory given; anything else goes through autograd, stage by stage, so
that the matrix products around it need not.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from combutab.activations.kernels import Activation, Gradients, Kernel, Memory, Vectors
from combutab.nn._activation import SeparateModules, StackedModules, bound
from combutab.nn._layers import StackedNorm

# ---- Memory that is asked for by name, step after step, and allocated once -----------------------


class Scratch:
    """Tensors by name; each grows to the largest size asked for and is reused for smaller ones.

    Fresh memory, which the system must map and clear, costs a CPU as much as the work on it.

    >>> scratch = Scratch(torch.float32, torch.device("cpu"))
    >>> scratch("a", 2, 3).shape, scratch("a", 2, 3).data_ptr() == scratch("a", 6).data_ptr()
    (torch.Size([2, 3]), True)
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self._held: dict[str, Tensor] = {}
        self._views: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        """A contiguous tensor of this shape; what it holds is what was last written there."""
        view = self._views.get((name, shape))
        if view is not None:
            return view
        n = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.numel() < n:
            held = torch.empty(n, dtype=self.dtype, device=self.device)
            self._held[name] = held
            self._views = {key: x for key, x in self._views.items() if key[0] != name}
        view = held[:n].view(shape)
        self._views[name, shape] = view
        return view


class StageMemory(Memory):
    """A stage's own part of a scratch, and the part that all stages share."""

    def __init__(self, scratch: Scratch, prefix: str) -> None:
        super().__init__()
        self._scratch, self._prefix = scratch, prefix

    def keep(self, name: str, *shape: int) -> Tensor:
        """Give memory that stays from a stage's forward to its backward pass."""
        return self._scratch(f"{self._prefix}.{name}", *shape)

    def work(self, name: str, *shape: int) -> Tensor:
        """Give memory that is used within a call alone."""
        return self._scratch(name, *shape)


# ---- Vectors that kernels are given beside their input: functions of stacked modules' parameters

GradientOf = Callable[[nn.Module, str], Tensor]  # module, parameter -> where its gradient goes


class VectorSource:
    """The vectors of one layer's kernel, or of several layers'; (M, 1, width) each.

    These are parameters themselves, or buffers, which have no place of a gradient; by default
    there are none.
    """

    def __init__(self, values: Sequence[Tensor] = (), places: Sequence[Tensor | None] = ()) -> None:
        self._own, self._own_places = tuple(values), tuple(places)
        self.trained = any(place is not None for place in places)

    def begin(self, keep: bool) -> None:
        """A forward pass begins; ``keep`` if a backward pass follows."""

    def of(self, layer: int) -> Vectors:
        """A layer's vectors."""
        return self._own

    def collect(self, layer: int, grads: Gradients) -> None:
        """Take a layer's gradients by its vectors, and write those of the parameters."""
        for place, grad in zip(self._own_places, grads, strict=True):
            if place is not None and grad is not None:
                place.copy_(grad)


class ComputedVectors(VectorSource):
    """Vectors that are computed of the parameters, for alike modules of several layers at once.

    ProxyNorm's moments take some sixty operations on a few hundred numbers, for five layers as
    for one. The modules differ in nothing but the values of their tensors.
    """

    def __init__(self, modules: Sequence[StackedModules], at: GradientOf) -> None:
        super().__init__()
        self._skeleton = modules[0].skeleton
        self._values: dict[str, list[Tensor]] = {}
        self._places: dict[str, list[Tensor]] = {}
        for name, key in modules[0].names:
            tensors = [getattr(module, key) for module in modules]
            self._values[name] = [tensor.data.unsqueeze(1) for tensor in tensors]
            if tensors[0].requires_grad:
                self._places[name] = [at(module, key).unsqueeze(1) for module in modules]
        self._n_layers, self.trained = len(modules), bool(self._places)
        self._leaves: dict[str, Tensor] = {}
        self._vectors: Vectors = ()
        self._collected: dict[int, Gradients] = {}

    def begin(self, keep: bool) -> None:
        self._collected.clear()
        self._leaves = {name: torch.stack(values) for name, values in self._values.items()}
        for name in self._places if keep else ():
            self._leaves[name].requires_grad_()
        with torch.set_grad_enabled(keep):
            self._vectors = vectors_of(bound(self._skeleton, self._leaves))

    def of(self, layer: int) -> Vectors:
        return [vector[layer].detach() for vector in self._vectors]

    def collect(self, layer: int, grads: Gradients) -> None:
        self._collected[layer] = grads
        if len(self._collected) < self._n_layers:
            return
        by_layer = [self._collected[i] for i in range(self._n_layers)]
        outputs, upstream = [], []
        for vector, *own in zip(self._vectors, *by_layer, strict=True):
            given = [grad for grad in own if grad is not None]
            if vector.requires_grad and given:
                outputs.append(vector)
                upstream.append(torch.stack(given))
        leaves = [self._leaves[name] for name in self._places]
        found = torch.autograd.grad(outputs, leaves, upstream, allow_unused=True)
        for places, grad in zip(self._places.values(), found, strict=True):
            for i, place in enumerate(places):
                if grad is None:
                    place.zero_()
                else:
                    place.copy_(grad[i])


def vectors_of(module: nn.Module) -> Vectors:
    """The vectors of a module's kernel; torch's own modules have none."""
    return module.vectors() if isinstance(module, Activation) else ()


def own_vectors(module: StackedModules, at: GradientOf) -> VectorSource | None:
    """The vectors of a module whose vectors are nothing but its tensors; None if they are not."""
    values = {name: getattr(module, key).data.unsqueeze(1) for name, key in module.names}
    vectors = vectors_of(bound(module.skeleton, values))
    keys = {id(values[name]): key for name, key in module.names}
    if not all(id(vector) in keys for vector in vectors):
        return None
    owned = [keys[id(vector)] for vector in vectors]
    trained = [getattr(module, key).requires_grad for key in owned]
    places = [
        at(module, k).unsqueeze(1) if t else None for k, t in zip(owned, trained, strict=True)
    ]
    return VectorSource(vectors, places)


# ---- The matrix products of a step, for all members at once, by the library that is quick for
# them
# torch's own products (MKL's, on most builds) serve but where oneDNN's are known to be quicker: on
# AMD's processors from Zen 5 (family 26) on, whose AVX-512 is of full width and which MKL takes for
# a processor without. There, on two cores, 500 x 256 times 256 x 256 in float32 takes torch.mm 350
# us and oneDNN 165 us; on two cores of a Zen 4 (family 25) 353 and 323 us, and the gradient of the
# weights 368 and 462 us, which the copies of what oneDNN allocates turn into a loss. Which library
# serves follows from the processor and from shapes alone, so that runs repeat and a member of a
# stack has the numbers that it has alone. ``COMBUTAB_MATMUL=torch`` or ``=onednn`` decides for the
# process.

_ENOUGH = 2**21  # multiply-adds from which oneDNN wins
_ENOUGH_TRANSPOSED = 2**23  # where the left factor is transposed, which oneDNN has to copy
_NARROW = 16  # columns; a result of fewer, and more than one, is faster by its transpose

Allocate = Callable[[], Tensor]  # memory for a result, asked for where it is needed


def _is_zen_5_or_later() -> bool:
    try:
        words = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
        vendor, family = (
            re.search(rf"^{field}\s*: (\S+)", words, re.MULTILINE)
            for field in ("vendor_id", "cpu family")
        )
    except OSError:  # Windows says "AMD64 Family 26 Model 68 Stepping 0, AuthenticAMD"
        words = platform.processor()
        vendor = re.search(r"(\w+)$", words)
        family = re.search(r"Family (\d+)", words)
    if vendor is None or family is None:
        return False
    return vendor[1] == "AuthenticAMD" and int(family[1]) >= 26


@functools.cache
def _by_one_dnn() -> bool:
    """Tell whether oneDNN multiplies large matrices here, as torch has it in compiled code."""
    wanted = os.environ.get("COMBUTAB_MATMUL", "")
    if wanted not in ("", "torch", "onednn"):
        raise ValueError(f"COMBUTAB_MATMUL must be 'torch' or 'onednn', got {wanted!r}")
    return (
        (wanted == "onednn" if wanted else _is_zen_5_or_later())
        and platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _serves(x: Tensor) -> bool:
    return (
        x.dtype is torch.float32
        and x.device.type == "cpu"
        and _by_one_dnn()
        and bool(torch.backends.mkldnn.enabled)
    )


def _one_dnn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.t() + bias, in new memory."""
    by = torch.ops.mkldnn._linear_pointwise.default
    return cast(Tensor, by(x, weight, bias, "none", [], ""))


def _each_member(one: Callable[[int], Tensor], n: int, allocate: Allocate | None) -> Tensor:
    """A member's results one after the other, of a single one as they were allocated."""
    if n == 1 and allocate is None:
        return one(0).unsqueeze(0)
    assert allocate is not None
    out = allocate()
    for i in range(n):
        out[i].copy_(one(i))
    return out


def _matmul(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    # With a single column bmm takes up to ten times as long on a CPU as mm does, which knows
    # matrix times vector.
    if a.device.type == "cpu" and 1 in (a.shape[2], b.shape[2]):
        for i in range(len(out)):
            torch.mm(a[i], b[i], out=out[i])
        return out
    return torch.bmm(a, b, out=out)


def affine_rows(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    allocate: Allocate,
    scale: float = 1.0,
    *,
    free: bool = False,
) -> Tensor:
    """scale * x @ weight + bias for each member, in ``allocate()``.

    Where it is ``free`` to, the result may be in memory of its own instead, if the library
    allocates it.

    Shape
    -----
    x : (M, n, k), weight : (M, k, m), bias : (M, 1, m) -> (M, n, m)
    """
    n, k, m = *x.shape[1:], weight.shape[2]
    if n * k * m >= _ENOUGH and _serves(x):
        weight = weight if scale == 1 else weight * scale
        own = free and len(x) == 1
        return _each_member(
            lambda i: _one_dnn(x[i], weight[i].t(), bias[i, 0]), len(x), None if own else allocate
        )
    out = allocate()
    if m == 1 and scale == 1:
        return _matmul(x, weight, out).add_(bias)
    if 1 < m < _NARROW and x.device.type == "cpu":
        columns = torch.bmm(weight.transpose(1, 2).contiguous(), x.transpose(1, 2))
        return torch.add(bias, columns.transpose(1, 2), alpha=scale, out=out)
    return torch.baddbmm(bias, x, weight, alpha=scale, out=out)


def input_gradient(grad: Tensor, weight: Tensor, allocate: Allocate, scale: float = 1.0) -> Tensor:
    """scale * grad @ weight' for each member, in ``allocate()`` or memory of its own.

    Shape
    -----
    grad : (M, n, m), weight : (M, k, m) -> (M, n, k)
    """
    n, m, k = *grad.shape[1:], weight.shape[1]
    if n * k * m >= _ENOUGH and grad.stride(2) == 1 and _serves(grad):
        weight = weight if scale == 1 else weight * scale
        return _each_member(
            lambda i: _one_dnn(grad[i], weight[i]), len(grad), None if len(grad) == 1 else allocate
        )
    out = _matmul(grad, weight.transpose(1, 2), allocate())
    return out if scale == 1 else out.mul_(scale)


def add_input_gradient(grad: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Add grad @ weight' to ``out``, which may be a part of wider rows; shapes as above."""
    n, m, k = *grad.shape[1:], weight.shape[1]
    if n * k * m >= _ENOUGH and _serves(grad):
        for i in range(len(out)):
            out[i].add_(_one_dnn(grad[i], weight[i]))
        return out
    return torch.baddbmm(out, grad, weight.transpose(1, 2), out=out)


def weight_gradient(x: Tensor, grad: Tensor, out: Tensor, scale: float = 1.0) -> None:
    """scale * x' @ grad for each member, into ``out``, which may be a part of wider rows.

    Shape
    -----
    x : (M, n, k), grad : (M, n, m) -> (M, k, m)
    """
    n, k, m = *x.shape[1:], grad.shape[2]
    if n * k * m >= _ENOUGH_TRANSPOSED and grad.stride(2) == 1 and _serves(x):
        for i in range(len(out)):
            out[i].copy_(_one_dnn(x[i].t(), grad[i].t()))
    elif 1 < m < _NARROW and x.device.type == "cpu":
        out.copy_(torch.bmm(grad.transpose(1, 2), x).transpose(1, 2))
    elif out.is_contiguous():
        _matmul(x.transpose(1, 2), grad, out)
    else:
        for i in range(len(out)):
            torch.mm(x[i].t(), grad[i], out=out[i])
    if scale != 1:
        out.mul_(scale)


class Stage(Protocol):
    """One stage of a layer for some members; tensors are (members, rows, width)."""

    @property
    def keeps_input(self) -> bool:
        """Tell whether x must stay as it is until ``backward``."""

    @property
    def keeps_output(self) -> bool:
        """Tell whether the result must stay as it is until ``backward``."""

    def forward(
        self, x: Tensor, out: Tensor, valid: Tensor | None = None, keep: bool = True
    ) -> Tensor:
        """The result: in ``out``, or of a normalisation where the library allocates it.

        ``keep`` if ``backward`` is to come. ``out`` may be x if ``keeps_input`` is False or
        ``keep`` is. ``valid``, (members, rows), says which places hold a row; None: all.
        """
        ...

    def backward(self, grad: Tensor) -> None:
        """The gradient of the result becomes that of x; the parameters' are written."""


class KernelStage:
    """A module that has a kernel; ``layer`` is its place among those that share the vectors."""

    def __init__(
        self, kernel: Kernel, memory: Memory, vectors: VectorSource | None = None, layer: int = 0
    ) -> None:
        self.kernel, self._memory = kernel, memory
        self._source = VectorSource() if vectors is None else vectors
        self._layer = layer
        self._x: Tensor | None = None
        self._y: Tensor | None = None

    @property
    def keeps_input(self) -> bool:
        return self.kernel.keeps_input

    @property
    def keeps_output(self) -> bool:
        return self.kernel.keeps_output

    @property
    def scales(self) -> bool:
        """Tell whether its backward pass does no more than multiply by a slope of each unit."""
        return self.kernel.unitwise and not self._source.trained

    def forward(
        self, x: Tensor, out: Tensor, valid: Tensor | None = None, keep: bool = True
    ) -> Tensor:
        self.kernel.forward(x, self._source.of(self._layer), self._memory, out)
        self._x, self._y = x, out
        return out

    def backward(self, grad: Tensor) -> None:
        vectors = self._source.of(self._layer)
        _, grads = self.kernel.backward(self._x, self._y, grad, vectors, self._memory, grad)
        self._source.collect(self._layer, grads)


class NormStage:
    """Layer, RMS or group normalisation, PLN or PLS: a kernel without vectors, gain and shift."""

    keeps_input = False

    def __init__(self, norm: StackedNorm, kernel: Kernel, memory: Memory, at: GradientOf) -> None:
        self._kernel, self._memory = kernel, memory
        self.keeps_output = norm.gain is None  # else it keeps what gain and shift are applied to
        self._gain = None if norm.gain is None else norm.gain.data
        self._shift = None if norm.shift is None else norm.shift.data
        self._gain_grad = None if norm.gain is None else at(norm, "gain")
        self._shift_grad = None if norm.shift is None else at(norm, "shift")
        self._n: Tensor | None = None

    def forward(
        self, x: Tensor, out: Tensor, valid: Tensor | None = None, keep: bool = True
    ) -> Tensor:
        self._n = n = self._kernel.forward(x, (), self._memory)
        if self._gain is None:
            return n
        if self._shift is None:
            return torch.mul(n, self._gain, out=out)
        return torch.addcmul(self._shift, n, self._gain, out=out)

    def backward(self, grad: Tensor) -> None:
        if self._shift_grad is not None:
            torch.sum(grad, 1, keepdim=True, out=self._shift_grad)
        if self._gain is not None and self._gain_grad is not None:
            assert self._n is not None
            by_gain = torch.mul(grad, self._n, out=self._memory.work("by_gain", *grad.shape))
            torch.sum(by_gain, 1, keepdim=True, out=self._gain_grad)
            grad.mul_(self._gain)
        self._kernel.backward(None, self._n, grad, (), self._memory, grad)


class BatchNormStage:
    """Batch normalisation of full batches by torch's own; the rest goes through autograd."""

    keeps_input, keeps_output = True, False

    def __init__(self, norm: StackedNorm, at: GradientOf) -> None:
        self._norm = norm
        self._any = AutogradStage(norm, parameters_of(norm, at))
        self._running = list(zip(norm.running_mean, norm.running_var, strict=True))
        # a member's gain and shift, and the places of their gradients
        self._affine: list[list[Tensor | None]] = [[None, None] for _ in self._running]
        self._places: list[list[Tensor | None]] = [[None, None] for _ in self._running]
        for k, name in enumerate(("gain", "shift")):
            parameter = getattr(norm, name)
            if parameter is not None:
                place = at(norm, name)
                for i, (affine_rows, places) in enumerate(
                    zip(self._affine, self._places, strict=True)
                ):
                    affine_rows[k], places[k] = parameter.data[i, 0], place[i, 0]
        self._statistics: list[list[Tensor]] = []
        self._x: Tensor | None = None

    def forward(
        self, x: Tensor, out: Tensor, valid: Tensor | None = None, keep: bool = True
    ) -> Tensor:
        norm, self._x = self._norm, None
        if not (keep or norm.training):
            by, plus = norm.running_affine()
            return torch.addcmul(plus, x, by, out=out)
        if not keep or valid is not None or x.shape[1] == 1 or not norm.training:
            return self._any.forward(x, out, valid, keep)
        self._x, self._statistics = x, []
        for i, (gain, shift) in enumerate(self._affine):
            mean, var = self._running[i]
            values, *statistics = torch.native_batch_norm(
                x[i], gain, shift, mean, var, True, norm.momentum, norm.eps
            )
            self._statistics.append(statistics)
            if len(x) == 1:
                return values.unsqueeze(0)
            out[i].copy_(values)
        return out

    def backward(self, grad: Tensor) -> None:
        if self._x is None:
            self._any.backward(grad)
            return
        for i, (gain, _) in enumerate(self._affine):
            by_x, *found = torch.ops.aten.native_batch_norm_backward(
                grad[i], self._x[i], gain, *self._running[i], *self._statistics[i], True,
                self._norm.eps, [True, True, True],
            )  # fmt: skip
            grad[i].copy_(by_x)
            for place, own in zip(self._places[i], found, strict=True):
                if place is not None:
                    place.copy_(own)


class AutogradStage:
    """Any module, differentiated by autograd in the middle of a step.

    ``sees_rows``: it is told which places hold a row, as our own modules are that want to know.
    """

    keeps_input, keeps_output = False, False

    def __init__(
        self,
        module: nn.Module,
        parameters: Sequence[tuple[Tensor, Tensor]],
        *,
        sees_rows: bool = False,
    ) -> None:
        self._module = module
        self._sees_rows = sees_rows or isinstance(module, StackedNorm | SeparateModules)
        self._parameters = [parameter for parameter, _ in parameters]
        self._places = [place for _, place in parameters]
        self._ends: tuple[Tensor, Tensor] | None = None

    def call(self, valid: Tensor | None) -> Callable[[Tensor], Tensor]:
        """The module, told which places hold a row if it wants to know."""
        return partial(self._module, valid=valid) if self._sees_rows else self._module

    def forward(
        self, x: Tensor, out: Tensor, valid: Tensor | None = None, keep: bool = True
    ) -> Tensor:
        if not keep:
            return out.copy_(self.call(valid)(x))
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            # a copy: the module may work in place, and x's memory is used again
            result = self.call(valid)(leaf.clone())
        self._ends = leaf, result
        return out.copy_(result.detach())

    def backward(self, grad: Tensor) -> None:
        assert self._ends is not None
        leaf, result = self._ends
        self._ends = None
        found: list[Tensor | None] = [None] * (1 + len(self._places))
        if result.requires_grad:
            wanted = [leaf, *self._parameters]
            found = list(torch.autograd.grad(result, wanted, grad, allow_unused=True))
        # ``grad`` last: of one row, a parameter's gradient may be ``grad`` itself
        for place, value in zip([*self._places, grad], [*found[1:], found[0]], strict=True):
            if value is None:
                place.zero_()
            else:
                place.copy_(value)


def parameters_of(module: nn.Module, at: GradientOf) -> list[tuple[Tensor, Tensor]]:
    """The parameters of a module that are trained, each with the place of its gradient."""
    return [
        (parameter, at(owner, name))
        for owner in module.modules()
        for name, parameter in owner.named_parameters(recurse=False)
        if parameter.requires_grad
    ]
