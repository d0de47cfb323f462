"""Forward and backward passes of a stack of layers in preallocated memory.

On a CPU the temporaries of autograd cost as much as the matrix products: each is fresh memory
that the system must map and clear. Here every layer's output and gradient has a buffer that all
steps reuse, and the matrix products of the backward pass write into the gradient matrix itself.
Modules with a kernel compute in these buffers; other modules are differentiated by autograd, stage
by stage. The results equal those of the autograd path.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from combutab.activations.kernels import Activation, Gradients, Kernel, Memory, Vectors, kernel_of
from combutab.nn._layers import (
    FlatTensors,
    HeadLinear,
    HeadOutputs,
    SeparateModules,
    StackedActivation,
    StackedLinear,
    StackedModules,
    StackedNorm,
    bound,
    gradients_through,
    write_gradient,
)

# ---- Buffers by name, allocated once and reused by all steps -------------------------------------


class Scratch:
    """Tensors by name; each grows to the largest size asked for and is reused for smaller ones.

    Fresh memory, which the system must map and clear, costs a CPU as much as the work on it.

    >>> scratch = Scratch(torch.float32, torch.device("cpu"))
    >>> scratch("a", 2, 3).shape, scratch("a", 2, 3).data_ptr() == scratch("a", 6).data_ptr()
    (torch.Size([2, 3]), True)
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self._buffers: dict[str, Tensor] = {}
        self._views: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        """A contiguous tensor of this shape; it contains the values last written to this name."""
        view = self._views.get((name, shape))
        if view is not None:
            return view
        n = math.prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < n:
            buffer = torch.empty(n, dtype=self.dtype, device=self.device)
            self._buffers[name] = buffer
            self._views = {key: x for key, x in self._views.items() if key[0] != name}
        view = buffer[:n].view(shape)
        self._views[name, shape] = view
        return view


# ---- Vectors: inputs of kernels that are computed from the parameters of stacked modules ---------

GradientOf = Callable[[nn.Module, str], Tensor]  # module, parameter -> where its gradient goes


class VectorSource:
    """The vectors of one layer's kernel, or of several layers'; (M, 1, width) each.

    These are parameters, or buffers, which have no gradient (None). By default there are no
    vectors.
    """

    def __init__(
        self, values: Sequence[Tensor] = (), gradients: Sequence[Tensor | None] = ()
    ) -> None:
        self._values_of_layer, self._gradients = tuple(values), tuple(gradients)
        self.trained = any(gradient is not None for gradient in gradients)

    def begin(self, keep: bool) -> None:
        """A forward pass begins; ``keep`` if a backward pass follows."""

    def of(self, layer: int) -> Vectors:
        """A layer's vectors."""
        return self._values_of_layer

    def collect(self, layer: int, grads: Gradients) -> None:
        """Take a layer's gradients by its vectors, and write those of the parameters."""
        for destination, grad in zip(self._gradients, grads, strict=True):
            if destination is not None and grad is not None:
                destination.copy_(grad)


class ComputedVectors(VectorSource):
    """Vectors that are computed from the parameters, for equal modules of several layers at once.

    ProxyNorm's moments take some sixty operations on a few hundred numbers, for five layers as
    for one. The modules differ only in the values of their tensors.
    """

    def __init__(self, modules: Sequence[StackedModules], at: GradientOf) -> None:
        super().__init__()
        self._skeleton = modules[0].skeleton
        self._values: dict[str, list[Tensor]] = {}
        self._parameter_gradients: dict[str, list[Tensor]] = {}
        for name, key in modules[0].names:
            tensors = [getattr(module, key) for module in modules]
            self._values[name] = [tensor.data.unsqueeze(1) for tensor in tensors]
            if tensors[0].requires_grad:
                self._parameter_gradients[name] = [
                    at(module, key).unsqueeze(1) for module in modules
                ]
        self._n_layers, self.trained = len(modules), bool(self._parameter_gradients)
        self._leaves: dict[str, Tensor] = {}
        self._vectors: Vectors = ()
        self._collected: dict[int, Gradients] = {}

    def begin(self, keep: bool) -> None:
        self._collected.clear()
        self._leaves = {name: torch.stack(values) for name, values in self._values.items()}
        for name in self._parameter_gradients if keep else ():
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
        for vector, *vector_grads in zip(self._vectors, *by_layer, strict=True):
            grads_by_layer = [grad for grad in vector_grads if grad is not None]
            if vector.requires_grad and grads_by_layer:
                outputs.append(vector)
                upstream.append(torch.stack(grads_by_layer))
        leaves = [self._leaves[name] for name in self._parameter_gradients]
        parameter_grads = gradients_through(outputs, upstream, leaves)
        for destinations, grad in zip(
            self._parameter_gradients.values(), parameter_grads, strict=True
        ):
            for i, destination in enumerate(destinations):
                write_gradient(destination, None if grad is None else grad[i])


def vectors_of(module: nn.Module) -> Vectors:
    """The vectors of a module's kernel; torch's own modules have none."""
    return module.vectors() if isinstance(module, Activation) else ()


def own_vectors(module: StackedModules, at: GradientOf) -> VectorSource | None:
    """The vectors of a module if each of them is one of its tensors; None otherwise."""
    values = {name: getattr(module, key).data.unsqueeze(1) for name, key in module.names}
    vectors = vectors_of(bound(module.skeleton, values))
    keys = {id(values[name]): key for name, key in module.names}
    if not all(id(vector) in keys for vector in vectors):
        return None
    owned = [keys[id(vector)] for vector in vectors]
    trained = [getattr(module, key).requires_grad for key in owned]
    gradients = [
        at(module, k).unsqueeze(1) if t else None for k, t in zip(owned, trained, strict=True)
    ]
    return VectorSource(vectors, gradients)


# ---- The matrix products of a step, for all members at once, by the library that is quick for
# them
# torch's own products (MKL's, on most builds) serve but where oneDNN's are known to be quicker: on
# AMD's processors from Zen 5 (family 26) on, whose AVX-512 is of full width and which MKL takes for
# a processor without. There, on two cores, 500 x 256 times 256 x 256 in float32 takes torch.mm 350
# us and oneDNN 165 us, and with torch's products a training step of `benchmarks.speed.step` takes
# 1.44 times as long (1.64 on one core; mean of 32 activations, with and without dropout). On two
# cores of a Zen 4 (family 25) the product takes 353 and 323 us, and the gradient of the weights 368
# and 462 us, which the copies of what oneDNN allocates turn into a loss. Which library serves
# follows from the processor and from shapes alone, so that runs repeat and a member of a stack has
# the numbers that it has alone. ``COMBUTAB_MATMUL=torch`` or ``=onednn`` decides for the process.

_ENOUGH = 2**21  # multiply-adds from which oneDNN wins
_ENOUGH_TRANSPOSED = 2**23  # where the left factor is transposed, which oneDNN has to copy
_NARROW = 16  # columns; a result of fewer, and more than one, is faster by its transpose

Allocate = Callable[[], Tensor]  # provides memory for a result


def _is_zen_5_or_later() -> bool:
    try:
        words = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:  # Windows says "AMD64 Family 26 Model 68 Stepping 0, AuthenticAMD"
        words = platform.processor()
    family = re.search(r"(?:^cpu family\s*: |Family )(\d+)", words, re.MULTILINE)
    return "AuthenticAMD" in words and family is not None and int(family[1]) >= 26


@functools.cache
def _by_one_dnn() -> bool:
    """Tell whether oneDNN multiplies large matrices here, as torch has it in compiled code."""
    library = os.environ.get("COMBUTAB_MATMUL", "")
    if library not in ("", "torch", "onednn"):
        raise ValueError(f"COMBUTAB_MATMUL must be 'torch' or 'onednn', got {library!r}")
    return (
        (library == "onednn" if library else _is_zen_5_or_later())
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


def _each_member(one: Callable[[int], Tensor], n: int, allocate: Allocate) -> Tensor:
    """The members' results, one after the other; a single one where the library allocates it."""
    if n == 1:
        return one(0).unsqueeze(0)
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
    x: Tensor, weight: Tensor, bias: Tensor, allocate: Allocate, scale: float = 1.0
) -> Tensor:
    """scale * x @ weight + bias for each member, in ``allocate()`` or in new memory.

    Shape
    -----
    x : (M, n, k), weight : (M, k, m), bias : (M, 1, m) -> (M, n, m)
    """
    n, k, m = *x.shape[1:], weight.shape[2]
    if n * k * m >= _ENOUGH and _serves(x):
        weight = weight if scale == 1 else weight * scale
        return _each_member(lambda i: _one_dnn(x[i], weight[i].t(), bias[i, 0]), len(x), allocate)
    out = allocate()
    if m == 1 and scale == 1:
        return _matmul(x, weight, out).add_(bias)
    if 1 < m < _NARROW and x.device.type == "cpu":
        columns = torch.bmm(weight.transpose(1, 2).contiguous(), x.transpose(1, 2))
        return torch.add(bias, columns.transpose(1, 2), alpha=scale, out=out)
    return torch.baddbmm(bias, x, weight, alpha=scale, out=out)


def input_gradient(grad: Tensor, weight: Tensor, allocate: Allocate, scale: float = 1.0) -> Tensor:
    """scale * grad @ weight' for each member, in ``allocate()`` or in new memory.

    Shape
    -----
    grad : (M, n, m), weight : (M, k, m) -> (M, n, k)
    """
    n, m, k = *grad.shape[1:], weight.shape[1]
    if n * k * m >= _ENOUGH and grad.stride(2) == 1 and _serves(grad):
        weight = weight if scale == 1 else weight * scale
        return _each_member(lambda i: _one_dnn(grad[i], weight[i]), len(grad), allocate)
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
    elif out.is_contiguous() or x.device.type != "cpu":
        _matmul(x.transpose(1, 2), grad, out)
    else:  # a CPU's bmm into such memory is slow; on a GPU each product is a launch
        for i in range(len(out)):
            torch.mm(x[i].t(), grad[i], out=out[i])
    if scale != 1:
        out.mul_(scale)


# ---- The stages after a linear layer -------------------------------------------------------------


class Stage:
    """One stage of a layer for some members; tensors are (members, rows, width).

    Attributes
    ----------
    keeps_input, keeps_output : bool
        Whether x, or the result, must stay as it is until ``backward``.
    """

    keeps_input = keeps_output = False

    def forward(self, x: Tensor, out: Tensor, valid: Tensor | None, keep: bool) -> Tensor:
        """The result: in ``out``, or of a normalisation where the library allocates it.

        ``keep`` if ``backward`` is to come. ``out`` may be x if ``keeps_input`` is False or
        ``keep`` is. ``valid``, (members, rows), says which positions contain a row; None means all.
        """
        raise NotImplementedError

    def backward(self, grad: Tensor) -> None:
        """The gradient of the result becomes that of x; the parameters' are written."""
        raise NotImplementedError


class KernelStage(Stage):
    """A module that has a kernel; ``layer`` is its index among those that share the vectors."""

    def __init__(self, kernel: Kernel, memory: Memory, vectors: VectorSource, layer: int) -> None:
        self.kernel, self._memory = kernel, memory
        self._vectors, self._layer = vectors, layer
        self.keeps_input, self.keeps_output = kernel.keeps_input, kernel.keeps_output
        # its backward pass does no more than multiply by a slope of each unit
        self.scales = kernel.unitwise and not vectors.trained

    def forward(self, x: Tensor, out: Tensor, valid: Tensor | None, keep: bool) -> Tensor:
        self._x, self._y = x, out
        return self.kernel.forward(x, self._vectors.of(self._layer), self._memory, out)

    def backward(self, grad: Tensor) -> None:
        vectors = self._vectors.of(self._layer)
        _, grads = self.kernel.backward(self._x, self._y, grad, vectors, self._memory, grad)
        self._vectors.collect(self._layer, grads)


class NormStage(Stage):
    """Layer, RMS or group normalisation, PLN or PLS: a kernel without vectors, gain and shift."""

    def __init__(self, norm: StackedNorm, kernel: Kernel, memory: Memory, at: GradientOf) -> None:
        self._kernel, self._memory = kernel, memory
        self.keeps_output = norm.gain is None  # else it keeps what gain and shift are applied to
        self._gain = self._shift = None
        if norm.gain is not None:
            self._gain, self._gain_grad = norm.gain.data, at(norm, "gain")
        if norm.shift is not None:
            self._shift, self._shift_grad = norm.shift.data, at(norm, "shift")

    def forward(self, x: Tensor, out: Tensor, valid: Tensor | None, keep: bool) -> Tensor:
        self._n = n = self._kernel.forward(x, (), self._memory)
        if self._gain is None:
            return n
        if self._shift is None:
            return torch.mul(n, self._gain, out=out)
        return torch.addcmul(self._shift, n, self._gain, out=out)

    def backward(self, grad: Tensor) -> None:
        if self._shift is not None:
            torch.sum(grad, 1, keepdim=True, out=self._shift_grad)
        if self._gain is not None:
            by_gain = torch.mul(grad, self._n, out=self._memory.work("by_gain", *grad.shape))
            torch.sum(by_gain, 1, keepdim=True, out=self._gain_grad)
            grad.mul_(self._gain)
        self._kernel.backward(None, self._n, grad, (), self._memory, grad)


class BatchNormStage(Stage):
    """Batch normalisation of full batches by torch's own; the rest goes through autograd."""

    keeps_input = True

    def __init__(self, norm: StackedNorm, at: GradientOf) -> None:
        self._norm = norm
        self._any = AutogradStage(norm, parameters_of(norm, at))
        self._running = list(zip(norm.running_mean, norm.running_var, strict=True))
        # each member's gain and shift, and the tensors that receive their gradients
        self._affine: Sequence[tuple[Tensor | None, Tensor | None]]
        self._affine_grads: Sequence[tuple[Tensor | None, Tensor | None]]
        self._affine = self._affine_grads = [(None, None)] * len(self._running)
        if norm.gain is not None and norm.shift is not None:
            gain, shift = norm.gain.data[:, 0], norm.shift.data[:, 0]
            self._affine = list(zip(gain, shift, strict=True))
            gain, shift = at(norm, "gain")[:, 0], at(norm, "shift")[:, 0]
            self._affine_grads = list(zip(gain, shift, strict=True))
        self._statistics: list[list[Tensor]] = []
        self._x: Tensor | None = None

    def forward(self, x: Tensor, out: Tensor, valid: Tensor | None, keep: bool) -> Tensor:
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
            by_x, *affine_grads = torch.ops.aten.native_batch_norm_backward(
                grad[i], self._x[i], gain, *self._running[i], *self._statistics[i], True,
                self._norm.eps, [True, True, True],
            )  # fmt: skip
            grad[i].copy_(by_x)
            for destination, value in zip(self._affine_grads[i], affine_grads, strict=True):
                if destination is not None:
                    destination.copy_(value)


class AutogradStage(Stage):
    """Any module, differentiated by autograd in the middle of a step.

    ``sees_rows``: it is called with ``valid``, which says which positions contain a row.
    """

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
        self._gradients = [gradient for _, gradient in parameters]
        self._ends: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor, out: Tensor, valid: Tensor | None, keep: bool) -> Tensor:
        call = partial(self._module, valid=valid) if self._sees_rows else self._module
        if not keep:
            return out.copy_(call(x))
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            # a copy: the module may work in place, and x's memory is used again
            result = call(leaf.clone())
        self._ends = leaf, result
        return out.copy_(result.detach())

    def backward(self, grad: Tensor) -> None:
        assert self._ends is not None
        leaf, result = self._ends
        self._ends = None
        derivatives: list[Tensor | None] = [None] * (1 + len(self._gradients))
        if result.requires_grad:
            inputs = [leaf, *self._parameters]
            derivatives = list(gradients_through([result], [grad], inputs))
        # ``grad`` last: for a single row, a parameter's gradient may be ``grad`` itself
        for destination, value in zip(
            [*self._gradients, grad], [*derivatives[1:], derivatives[0]], strict=True
        ):
            write_gradient(destination, value)


def parameters_of(module: nn.Module, at: GradientOf) -> list[tuple[Tensor, Tensor]]:
    """The trained parameters of a module, each with the tensor that receives its gradient."""
    return [
        (parameter, at(owner, name))
        for owner in module.modules()
        for name, parameter in owner.named_parameters(recurse=False)
        if parameter.requires_grad
    ]


# ---- Linear layers, forward and backward, in the buffers of a step -------------------------------

AllocateShape = Callable[..., Tensor]  # shape -> memory for a result


class StackedMap(Protocol):
    """A linear layer of all members. The heads of a row are consecutive rows."""

    def forward(self, x: Tensor, allocate: AllocateShape) -> Tensor:
        """(M, rows, in) -> (M, batch * k, out); x must stay as it is until ``backward``."""

    def backward(
        self, x: Tensor, grad: Tensor, allocate: AllocateShape, *, to_inputs: bool, to_weights: bool
    ) -> Tensor | None:
        """Write the parameters' gradients; the gradient by x if asked. ``grad`` is overwritten."""


class PlainMap:
    """Passes of ``StackedLinear``."""

    def __init__(self, linear: StackedLinear, at: GradientOf) -> None:
        self._weight, self._bias, self._scale = linear.weight.data, linear.bias.data, linear.scale
        self._weight_grad, self._bias_grad = at(linear, "weight"), at(linear, "bias")

    def forward(self, x: Tensor, allocate: AllocateShape) -> Tensor:
        allocate_result = partial(allocate, *x.shape[:2], self._weight.shape[2])
        return affine_rows(x, self._weight, self._bias, allocate_result, self._scale)

    def backward(
        self, x: Tensor, grad: Tensor, allocate: AllocateShape, *, to_inputs: bool, to_weights: bool
    ) -> Tensor | None:
        if to_weights:
            weight_gradient(x, grad, self._weight_grad, self._scale)
            torch.sum(grad, dim=1, keepdim=True, out=self._bias_grad)
        if not to_inputs:
            return None
        return input_gradient(grad, self._weight, partial(allocate, *x.shape), self._scale)


class SharedMap:
    """Passes of ``HeadLinear``: one product for all heads."""

    def __init__(self, linear: HeadLinear, scratch: Scratch, name: str, at: GradientOf) -> None:
        self._scratch, self._name = scratch, name
        self._scale, self._n_heads = linear.scale, linear.n_heads
        self._splits = linear.splits
        self._weight, self._weight_grad = linear.weight.data, at(linear, "weight")
        self._bias, self._s = _in_rows(linear.bias.data), _in_rows(linear.s.data)
        self._bias_grad, self._s_grad = _in_rows(at(linear, "bias")), _in_rows(at(linear, "s"))
        self._r, self._r_grad = linear.r.data.unsqueeze(1), at(linear, "r").unsqueeze(1)
        self._scaled = self._product = linear.weight.data

    def forward(self, x: Tensor, allocate: AllocateShape) -> Tensor:
        heads = self._heads(x)
        n_rows = heads.shape[1] * self._n_heads
        self._scaled = self._scratch(f"{self._name}scaled", len(x), n_rows, x.shape[2])
        torch.mul(heads, self._r, out=self._heads(self._scaled, split=False))
        shape = len(x), n_rows, self._weight.shape[2]
        self._product = input_gradient(
            self._scaled,
            self._weight.transpose(1, 2),
            lambda: self._scratch(f"{self._name}product", *shape),
            self._scale,
        )
        out = allocate(*shape)
        torch.addcmul(self._bias, self._rows(self._product), self._s, out=self._rows(out))
        return out

    def backward(
        self, x: Tensor, grad: Tensor, allocate: AllocateShape, *, to_inputs: bool, to_weights: bool
    ) -> Tensor | None:
        rows = self._rows(grad)
        torch.sum(rows, 1, keepdim=True, out=self._bias_grad)
        both = torch.mul(rows, self._rows(self._product), out=self._work(rows))
        torch.sum(both, 1, keepdim=True, out=self._s_grad)
        rows.mul_(self._s)
        weight_gradient(self._scaled, grad, self._weight_grad, self._scale)
        allocate_scaled = partial(allocate, *self._scaled.shape)
        by_scaled = input_gradient(grad, self._weight, allocate_scaled, self._scale)
        by_head = self._heads(by_scaled, split=False)
        both = torch.mul(by_head, self._heads(x), out=self._work(by_head))
        torch.sum(both, 1, keepdim=True, out=self._r_grad)
        if not to_inputs:
            return None
        by_head.mul_(self._r)
        if not self._splits:
            return by_scaled
        return torch.sum(by_head, 2, out=self._scratch(f"{self._name}by_x", *x.shape))

    def _work(self, like: Tensor) -> Tensor:
        return self._scratch("of heads", *like.shape)

    def _rows(self, x: Tensor) -> Tensor:  # (M, batch * k, n) -> (M, batch, k * n)
        return x.view(len(x), -1, self._n_heads * x.shape[2])

    def _heads(self, x: Tensor, *, split: bool = True) -> Tensor:
        """(M, batch * k, n) -> (M, batch, k, n); of rows that are all heads' (M, batch, 1, n)."""
        k = 1 if split and self._splits else self._n_heads
        return x.unflatten(1, (-1, k))


def _in_rows(by_head: Tensor) -> Tensor:  # (M, k, n) -> (M, 1, k * n)
    return by_head.view(len(by_head), 1, -1)


class SeparateMaps:
    """Passes of ``HeadOutputs``: a product for each head, without copies of their rows.

    The outputs are few, and a product with so few columns takes up to thirty times as long as its
    transpose.
    """

    def __init__(self, linear: HeadOutputs, at: GradientOf) -> None:
        self._scale, self._n_heads = linear.scale, linear.n_heads
        self._weight, self._bias = linear.weight.data, linear.bias.data.unsqueeze(2)
        self._weight_grad, self._bias_grad = at(linear, "weight"), at(linear, "bias")

    def forward(self, x: Tensor, allocate: AllocateShape) -> Tensor:
        out = allocate(*x.shape[:2], self._weight.shape[3])
        for m, weight in enumerate(self._weight):
            turned = weight.transpose(1, 2).contiguous()
            product = torch.bmm(turned, self._heads(x[m]).transpose(1, 2)).transpose(1, 2)
            torch.add(self._bias[m], product, alpha=self._scale, out=self._heads(out[m]))
        return out

    def backward(
        self, x: Tensor, grad: Tensor, allocate: AllocateShape, *, to_inputs: bool, to_weights: bool
    ) -> Tensor | None:
        by_x = allocate(*x.shape)
        for m, weight in enumerate(self._weight):
            head_grad = self._heads(grad[m])
            torch.sum(head_grad, 1, out=self._bias_grad[m])
            turned = torch.bmm(head_grad.transpose(1, 2), self._heads(x[m]))
            self._weight_grad[m].copy_(turned.transpose(1, 2))
            torch.bmm(head_grad, weight.transpose(1, 2), out=self._heads(by_x[m]))
        if self._scale != 1:
            self._weight_grad.mul_(self._scale)
            by_x.mul_(self._scale)
        return by_x

    def _heads(self, x: Tensor) -> Tensor:  # (batch * k, n) -> (k, batch, n), a view
        return x.view(-1, self._n_heads, x.shape[1]).transpose(0, 1)


@dataclass
class Layer:
    """The stages after a linear layer: normalisation, activations of some members each, dropout."""

    norm: Stage | None
    parts: list[tuple[slice | None, Stage]]  # members (None: all), and their activation

    def __post_init__(self) -> None:
        self.keeps_input = any(part.keeps_input for _, part in self.parts)
        scales = all(isinstance(p, KernelStage) and p.scales for _, p in self.parts)
        self.scales_units = scales  # the activations, whatever comes before them
        self.scales = scales and self.norm is None
        self.factor: Tensor | None = None  # of the gradient of the result: a mask, or a slope
        self.done = False  # whether the factor is the activations' slope as well

    def activate(self, x: Tensor, out: Tensor, valid: Tensor | None, keep: bool) -> None:
        """``out`` becomes the activations of x."""
        for members, part in self.parts:
            if members is None:
                part.forward(x, out, valid, keep)
            else:
                valid_rows = None if valid is None else valid[members]
                part.forward(x[members], out[members], valid_rows, keep)

    def derive(self, grad: Tensor) -> None:
        """The gradient of the activations becomes that of their input."""
        for members, part in self.parts:
            part.backward(grad if members is None else grad[members])

    def backward(self, grad: Tensor) -> None:
        """The gradient of the layer's result becomes that of the linear map's."""
        if self.factor is not None:
            grad.mul_(self.factor)
        if not self.done:
            self.derive(grad)
        if self.norm is not None:
            self.norm.backward(grad)


class Chain:
    """The gradients of a stack of linear layers, normalisations, activations and dropout masks.

    Parameters
    ----------
    linears : sequence of StackedLinear
        Or ``HeadLinear`` layers with ``HeadOutputs`` at the end, but not in a residual network.
    norms : sequence of nn.Module
        One fewer than ``linears``: ``nn.Identity`` for none, ``StackedNorm``, or any module
        (M, rows, width) -> the same.
    slots : sequence of nn.Module
        One fewer than ``linears``: ``StackedActivation``, or any module that is called with
        (M, rows, width) and with ``valid``, (M, rows) or None (see ``forward``).
    flat : FlatTensors, optional
        Destination of the gradients; without it, the chain only has forward passes.
    residual : bool
        Each layer passes on its input and its output, concatenated.
    """

    def __init__(
        self,
        linears: Sequence[StackedLinear],
        norms: Sequence[nn.Module],
        slots: Sequence[nn.Module],
        flat: FlatTensors | None = None,
        *,
        residual: bool = False,
    ) -> None:
        self.linears, self.norms, self.slots = linears, norms, slots
        self.residual = residual
        # without training no gradients are written, so any tensor will do
        self.at: GradientOf = getattr if flat is None else flat.gradient_of
        self.refresh()

    # ---- construction ----------------------------------------------------------------------------

    def refresh(self) -> None:
        """Rebuild layers and buffers after members were dropped."""
        like = self.linears[0].weight
        self.scratch = Scratch(like.dtype, like.device)
        self.n_members, self.n_inputs = like.shape[0], like.shape[1]
        self.widths = [layer.weight.shape[2] for layer in self.linears[:-1]]
        self._maps: list[StackedMap] = []
        for i, linear in enumerate(self.linears):
            if isinstance(linear, HeadLinear):
                self._maps.append(SharedMap(linear, self.scratch, f"{i}.heads.", self.at))
            elif isinstance(linear, HeadOutputs):
                self._maps.append(SeparateMaps(linear, self.at))
            else:
                self._maps.append(PlainMap(linear, self.at))
        self._ends = list(accumulate(self.widths, initial=0))  # of hidden units, side by side
        vectors = self._vectors()
        self.layers = [self._layer(i, vectors) for i in range(len(self.slots))]
        self._inputs: list[Tensor] = []

    def _vectors(self) -> dict[nn.Module, tuple[VectorSource, int]]:
        """The vectors of each stacked module that has a kernel, and its index in their source.

        Equal modules of several layers that serve the same members compute them together.
        """
        source_of: dict[nn.Module, tuple[VectorSource, int]] = {}
        alike: dict[str, list[StackedModules]] = {}
        for slot in self.slots:
            if not isinstance(slot, StackedActivation):
                continue
            for members, kind in zip(slot.groups, slot.kinds, strict=True):
                if not isinstance(kind, StackedModules) or kernel_of(kind.skeleton) is None:
                    continue
                layer_source = own_vectors(kind, self.at)
                if layer_source is not None:
                    source_of[kind] = layer_source, 0
                    continue
                shapes = [tuple(getattr(kind, key).shape) for _, key in kind.names]
                key = f"{members} {kind.skeleton!r} {kernel_of(kind.skeleton)!r} {shapes}"
                alike.setdefault(key, []).append(kind)
        sources = [(ComputedVectors(modules, self.at), modules) for modules in alike.values()]
        for source, modules in sources:
            source_of |= {kind: (source, layer) for layer, kind in enumerate(modules)}
        self._computed = [source for source, _ in sources]
        return source_of

    def _layer(self, i: int, vectors: Mapping[nn.Module, tuple[VectorSource, int]]) -> Layer:
        """The stages of a layer: its normalisation, and the activations of its members."""
        norm_stage: Stage | None = None
        norm = self.norms[i]
        kernel = norm.kernel() if isinstance(norm, StackedNorm) else None
        if isinstance(norm, StackedNorm) and norm.kind == "batch":
            norm_stage = BatchNormStage(norm, self.at)
        elif isinstance(norm, StackedNorm) and kernel is not None:
            norm_stage = NormStage(norm, kernel, Memory(self.scratch, f"{i}.norm."), self.at)
        elif not isinstance(norm, nn.Identity):
            norm_stage = AutogradStage(norm, parameters_of(norm, self.at))
        parts: list[tuple[slice | None, Stage]] = []
        slot = self.slots[i]
        if not isinstance(slot, StackedActivation):
            stage = AutogradStage(slot, parameters_of(slot, self.at), sees_rows=True)
            return Layer(norm_stage, [(None, stage)])
        for k, (members, kind) in enumerate(zip(slot.groups, slot.kinds, strict=True)):
            module = kind.skeleton if isinstance(kind, StackedModules) else kind
            kernel = None if isinstance(kind, SeparateModules) else kernel_of(module)
            part: Stage
            if kernel is None:
                part = AutogradStage(kind, parameters_of(kind, self.at))
            else:
                source = vectors.get(kind, (VectorSource(), 0))
                part = KernelStage(kernel, Memory(self.scratch, f"{i}.{k}."), *source)
            parts.append((members if len(slot.groups) > 1 else None, part))
        return Layer(norm_stage, parts)

    @property
    def plain(self) -> bool:
        """Whether there are only linear layers and unit-wise activations."""
        return all(layer.scales for layer in self.layers)

    # ---- passes ----------------------------------------------------------------------------------

    def _units(self, n_rows: int) -> Tensor:
        """A residual network's inputs and hidden units, side by side."""
        return self.scratch("units", self.n_members, n_rows, self.n_inputs + self._ends[-1])

    @torch.no_grad()
    def forward(
        self,
        x: Tensor,
        masks: Sequence[Tensor] | None = None,
        valid: Tensor | None = None,
        *,
        keep: bool = True,
    ) -> Tensor:
        """Raw outputs, (M, rows, n_outputs), in memory that the next pass uses again.

        Parameters
        ----------
        x : Tensor, (M, rows, n_inputs)
        masks : sequence of Tensor, (M, rows, width), optional
            Dropout masks, one for each hidden layer; they are overwritten.
        valid : Tensor of bool, (M, rows), optional
            Which positions contain a row; all by default.
        keep : bool
            A backward pass follows.
        """
        n_rows, x = x.shape[1], x.detach()
        for source in self._computed:
            source.begin(keep)
        if self.residual:
            x = self._units(n_rows)[..., : self.n_inputs].copy_(x)
        self._inputs = [x]
        for i in range(len(self.layers)):
            x = self._hidden(i, x, None if masks is None else masks[i], valid, keep)
            if self.residual:
                x = self._units(n_rows)[..., : self.n_inputs + self._ends[i + 1]]
            self._inputs.append(x)
        return self._maps[-1].forward(x, partial(self.scratch, "raw"))

    def _hidden(
        self, i: int, x: Tensor, mask: Tensor | None, valid: Tensor | None, keep: bool
    ) -> Tensor:
        layer, buffer = self.layers[i], f"{i}" if keep else f"{i % 2}"
        # if only the slope is kept, the next layer reuses the memory
        buffer = "" if keep and mask is not None and layer.scales else buffer
        x = self._maps[i].forward(x, partial(self.scratch, f"a{buffer}"))
        if layer.norm is not None:
            out = self.scratch(f"n{buffer}", *x.shape) if layer.norm.keeps_input and keep else x
            x = layer.norm.forward(x, out, valid, keep)
        into = None
        if self.residual:
            start = self.n_inputs + self._ends[i]
            into = self._units(x.shape[1])[..., start : start + self.widths[i]]
        normed = layer.norm is not None and layer.norm.keeps_output
        in_place = not (keep and (layer.keeps_input or normed))
        # a kernel of single units may write to a part of wider rows; others want their own
        direct = mask is None and layer.scales_units
        if into is not None and direct:
            y = into
        else:
            y = x if in_place else self.scratch(f"y{buffer}", *x.shape)
        layer.activate(x, y, valid, keep)
        layer.factor, layer.done = mask, False
        if mask is not None:
            h = self.scratch(f"h{i}", *x.shape) if into is None else into
            torch.mul(y, mask, out=h)
            if keep and layer.scales_units:  # the mask becomes mask phi'(x), while x is in memory
                layer.derive(mask)
                layer.done = True
            return h
        return y if into is None or direct else into.copy_(y)

    @torch.no_grad()
    def backward(
        self,
        grad: Tensor,
        *,
        to_inputs: bool = False,
        to_weights: bool = True,
    ) -> Tensor | None:
        """Set the gradients of the parameters, given those of the outputs of ``forward``.

        Parameters
        ----------
        grad : Tensor, as ``forward`` gave
            Overwritten.
        to_inputs : bool
            Return the inputs' gradient, (M, rows, n_inputs); not for a residual network.
        to_weights : bool
            Whether to set the gradients of the linear layers.
        """
        for i in reversed(range(len(self._maps))):
            allocate = partial(self.scratch, f"d{i % 2}")
            below: Tensor | None = self._maps[i].backward(
                self._inputs[i],
                grad,
                allocate,
                to_inputs=not self.residual and (i > 0 or to_inputs),
                to_weights=to_weights,
            )
            if self.residual and i:
                below = self._add_below(i, grad)
            if below is None:
                return None
            grad = below
            if i:
                self.layers[i - 1].backward(grad)
        return grad

    def _add_below(self, i: int, grad: Tensor) -> Tensor:
        """The gradient of the units below linear layer i of a residual network, i above 0.

        Its part of the gradients of all hidden units below it is stored for the lower layers.
        """
        weight = self.linears[i].weight.data[:, self.n_inputs :]
        units = self.scratch("of units", *grad.shape[:2], self._ends[-1])
        if i == len(self.layers):
            self._of_units = input_gradient(grad, weight, lambda: units)
        else:
            add_input_gradient(grad, weight, self._of_units[..., : self._ends[i]])
        unit_grads = self._of_units[..., self._ends[i - 1] : self._ends[i]]
        return self.scratch(f"d{i % 2}", *unit_grads.shape).copy_(unit_grads)

    @torch.no_grad()
    def run(
        self,
        x: Tensor,
        masks: Sequence[Tensor] | None,
        objective: Callable[[Tensor], Tensor],
        valid: Tensor | None = None,
    ) -> Tensor | None:
        """Set the gradients to the derivatives of ``objective(raw outputs)``, a scalar.

        Returns that by x, if x requires it.

        An objective may have a method ``gradient`` that gives the derivative by the raw outputs,
        in memory that may be overwritten. ``masks`` are overwritten.
        """
        raw = self.forward(x, masks, valid)
        gradient = getattr(objective, "gradient", None)
        if gradient is not None:
            grad = gradient(raw)
        else:
            with torch.enable_grad():
                leaf = raw.detach().requires_grad_()
                (grad,) = torch.autograd.grad(objective(leaf), leaf)
        return self.backward(grad, to_inputs=x.requires_grad)

    def outputs(self, x: Tensor) -> Tensor:
        """The raw outputs, (M, rows, n_outputs), without dropout, in new memory."""
        return self.forward(x, keep=False).clone()


class ChainPass:
    """A chain's passes as one operation of autograd: (x, masks) -> raw outputs.

    It is differentiated once, by x and the parameters, before the next pass, which uses the memory
    of this one again.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        modules = (*chain.linears, *chain.norms, *chain.slots)
        trained = [pair for module in modules for pair in parameters_of(module, chain.at)]
        self._parameters = [parameter for parameter, _ in trained]
        self._gradients = [gradient for _, gradient in trained]

    def __call__(self, x: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        return cast(
            Tensor, _ChainFunction.apply(self._chain, masks, self._gradients, x, *self._parameters)
        )


class _ChainFunction(torch.autograd.Function):
    """A chain's passes as one operation of autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        chain: Chain,
        masks: Sequence[Tensor] | None,
        gradients: Sequence[Tensor],
        x: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        ctx.chain, ctx.gradients = chain, gradients
        scratch_masks = (
            None if masks is None else [mask.clone() for mask in masks]
        )  # they are overwritten
        return chain.forward(x, scratch_masks).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _, _, _, to_inputs, *trained = ctx.needs_input_grad
        by_x = ctx.chain.backward(
            grad.clone(memory_format=torch.contiguous_format),
            to_inputs=to_inputs,
            to_weights=any(trained),
        )
        grads = [
            gradient if is_trained else None
            for gradient, is_trained in zip(ctx.gradients, trained, strict=True)
        ]
        return None, None, None, by_x, *grads
