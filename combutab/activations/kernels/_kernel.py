"""Kernels: what a module computes forward and backward, in memory given or in new memory.

A kernel's formulas stand once. With ``out=None`` and a plain ``Memory`` they are differentiable
operations in new memory; with memory given they overwrite it, and autograd never sees them. So
the same two methods serve a module in anybody's network (``run``), the compiler and torch.func,
and a training loop that owns its buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from combutab.activations.kernels._known import is_itself

_aten = torch.ops.aten

HALF = (torch.float16, torch.bfloat16)

Vectors = Sequence[Tensor]  # what a kernel is given beside x: per unit, they broadcast against x
Maybe = Tensor | None
Gradients = Sequence[Maybe]  # by the vectors, of their shapes


class Memory:
    """A kernel's memory from its forward to its backward pass; here new memory, as it comes.

    ``out=memory.work(...)`` and ``out=memory.keep(...)`` are for results of that shape, the first
    for those that nobody needs after the call. What ``backward`` needs is put under a name:
    ``memory["rstd"] = rstd``.
    """

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def work(self, name: str, *shape: int) -> Tensor | None:
        return None

    def keep(self, name: str, *shape: int) -> Tensor | None:
        return None

    def __setitem__(self, name: str, value: Tensor) -> None:
        self._held[name] = value

    def __getitem__(self, name: str) -> Tensor:
        return self._held[name]

    def __len__(self) -> int:
        return len(self._held)

    def part(self, name: str) -> Memory:
        """Give the memory of a kernel that is one of several in another."""
        return _Part(self, name)


class _Part(Memory):
    def __init__(self, whole: Memory, name: str) -> None:
        self._whole, self._prefix = whole, f"{name}."

    def work(self, name: str, *shape: int) -> Tensor | None:
        return self._whole.work(name, *shape)

    def keep(self, name: str, *shape: int) -> Tensor | None:
        return self._whole.keep(self._prefix + name, *shape)

    def __setitem__(self, name: str, value: Tensor) -> None:
        self._whole[self._prefix + name] = value

    def __getitem__(self, name: str) -> Tensor:
        return self._whole[self._prefix + name]

    def __len__(self) -> int:
        return len(self._whole)


class Kernel:
    """Forward and backward of a module along the last axis; stateless, and equal if alike.

    Neither x nor y nor ``grad`` change but where they are ``out``.

    Attributes
    ----------
    unitwise : bool
        Each output follows from one input.
    keeps_input, keeps_output : bool
        What ``backward`` needs; what it does not need may be None there.
    n_vectors : int
        How many it is given.
    """

    unitwise: bool = True
    keeps_input: bool = False
    keeps_output: bool = True
    n_vectors: int = 0

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        """The result, (..., width); ``out`` may be x where ``keeps_input`` is False or no
        backward pass follows."""
        raise NotImplementedError

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        """The gradients by x and by the vectors, given that by y; ``out`` may be ``grad``.

        Without ``out``, and where ``keeps_output`` alone, the result can be differentiated.
        """
        raise NotImplementedError


class Pointwise(Kernel):
    """A kernel of single units without vectors, whose slope follows from x or from y."""

    def times_slope(
        self, kept: Tensor, grad: Tensor, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        """grad times the slope, given y, or x where ``keeps_input``."""
        raise NotImplementedError

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        kept = cast(Tensor, x if self.keeps_input else y)  # None where neither is needed
        return self.times_slope(kept, grad, memory, out), ()


class Activation(nn.Module):
    """A module that owns a kernel, and the vectors that its kernel is given."""

    unitwise: ClassVar[bool] = True
    dim: int

    def kernel(self) -> Kernel | None:
        """The kernel; None where there is none, or none for these settings."""
        return None

    def vectors(self) -> Vectors:
        """Functions of the parameters, (width,) each, or (members, 1, width) in a stack."""
        return ()

    def run(self, kernel: Kernel, x: Tensor) -> Tensor:
        """The result of its kernel, along ``dim`` if it has one."""
        dim = getattr(self, "dim", -1)
        vectors = [v.to(x.dtype) if v.is_floating_point() else v for v in self.vectors()]
        return run(kernel, x.movedim(dim, -1), *vectors).movedim(-1, dim)

    def check_width(self, x: Tensor, width: int) -> None:
        """Raise ValueError where the input has another width."""
        if x.shape[self.dim] != width:
            raise ValueError(
                f"{type(self).__name__} was built for {width} features, got {x.shape[self.dim]} "
                f"along dim={self.dim} of an input of shape {tuple(x.shape)}; build it for that "
                "width or set dim to the feature axis"
            )


class _Run(torch.autograd.Function):
    """A kernel in anybody's network; twice differentiable."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, x: Tensor, *vectors: Tensor) -> Tensor:
        memory = Memory()
        y = kernel.forward(x, vectors, memory, torch.empty_like(x))
        ctx.kernel, ctx.memory = kernel, memory
        from_output = kernel.keeps_output and not (kernel.keeps_input or vectors or len(memory))
        ctx.save_for_backward(
            None if from_output else x, y if kernel.keeps_output else None, *vectors
        )
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kernel: Kernel = ctx.kernel
        x, y, *vectors = ctx.saved_tensors
        if not torch.is_grad_enabled():
            batched = _transformed() or torch._C._functorch.is_legacy_batchedtensor(grad)
            out = None if batched else torch.empty_like(grad)  # a batch has no memory
            grad_in, grads = kernel.backward(x, y, grad, vectors, ctx.memory, out)
            return None, grad_in, *grads, *[None] * (len(vectors) - len(grads))
        if x is None:  # someone will differentiate this gradient, a function of the output
            return None, kernel.backward(None, y, grad, (), Memory())[0]
        wanted = ctx.needs_input_grad[1:]
        inputs = [t for t, needed in zip((x, *vectors), wanted, strict=True) if needed]
        again = kernel.forward(x, vectors, Memory())
        found = iter(torch.autograd.grad(again, inputs, grad, create_graph=True, allow_unused=True))
        return None, *(next(found) if needed else None for needed in wanted)


def run(kernel: Kernel, x: Tensor, *vectors: Tensor) -> Tensor:
    """A kernel's result, (..., width), differentiable twice in every mode of autograd.

    The compiler, ``torch.func`` and forward mode get the plain operations.

    >>> x = torch.tensor([-1.0, 2.0], requires_grad=True)
    >>> run(ReLU(), x).sum().backward()
    >>> x.grad
    tensor([0., 1.])
    """
    if torch.compiler.is_compiling() or _transformed() or forward_ad._current_level >= 0:
        return kernel.forward(x, vectors, Memory())
    if not torch.is_grad_enabled():
        return kernel.forward(x, vectors, Memory(), torch.empty_like(x))
    return _Run.apply(kernel, x, *vectors)


def along(parameter: Tensor, x: Tensor, dim: int) -> Tensor:
    """Shape a per-feature tensor (..., width) to broadcast against ``x`` along ``dim``.

    For the last dimension nothing happens but a cast, so a stacked parameter of shape
    (members, 1, width) meets x of shape (members, batch, width) by plain broadcasting.
    """
    after = x.ndim - 1 - dim % x.ndim
    if after:
        parameter = parameter.reshape(parameter.shape + (1,) * after)
    return parameter.to(x.dtype)


def _transformed() -> bool:
    return torch._C._are_functorch_transforms_active()


def sum_to(x: Tensor, vector: Tensor) -> Tensor:
    """The gradient of a vector that was broadcast, given that of each place."""
    # of one row it would be x itself, whose memory is used again
    return x.clone() if x.shape == vector.shape else x.sum_to_size(vector.shape)


# ---- torch's own --------------------------------------------------------------------------------


def into(op: Any, out: Tensor | None, *arguments: Any, **options: Any) -> Tensor:
    """An operator of torch's, into memory given or new."""
    if out is None:
        return op.default(*arguments, **options)
    if "grad_input" in op.overloads():
        return op.grad_input(*arguments, **options, grad_input=out)
    if "out" in op.overloads():
        return op.out(*arguments, **options, out=out)
    return out.copy_(op.default(*arguments, **options))


def above_zero(x: Tensor, out: Tensor | None = None) -> Tensor:
    """max(0, x), whose derivative at 0 is 0."""
    return torch.relu(x) if out is None else torch.clamp_min(x, 0, out=out)


def where_above(grad: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    """grad where y is above 0, and 0 elsewhere."""
    return into(_aten.threshold_backward, out, grad, y, 0)


@dataclass(frozen=True)
class Identity(Pointwise):
    keeps_output: bool = False

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        return x.clone() if out is None else x if out is x else out.copy_(x)

    def times_slope(
        self, kept: Tensor, grad: Tensor, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        return self.forward(grad, (), memory, out)


@dataclass(frozen=True)
class ReLU(Pointwise):
    slope: float = 0.0  # below zero, not negative

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        if self.slope:
            return into(_aten.leaky_relu, out, x, self.slope)
        return above_zero(x, out)

    def times_slope(
        self, kept: Tensor, grad: Tensor, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        if self.slope:
            return into(_aten.leaky_relu_backward, out, grad, kept, self.slope, True)
        return where_above(grad, kept, out)


@dataclass(frozen=True)
class ELU(Pointwise):
    alpha: float = 1.0
    scale: float = 1.0
    input_scale: float = 1.0

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        return into(_aten.elu, out, x, self.alpha, self.scale, self.input_scale)

    def times_slope(
        self, kept: Tensor, grad: Tensor, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        settings = self.alpha, self.scale, self.input_scale
        return into(_aten.elu_backward, out, grad, *settings, True, kept)


@dataclass(frozen=True)
class Torch(Pointwise):
    """An elementwise function of torch's by the names of its operators."""

    name: str
    keeps_input: bool = False
    settings: tuple[float, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    operators: ClassVar[Any] = _aten

    @property
    def keeps_output(self) -> bool:  # type: ignore[override]
        return not self.keeps_input

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        operator, options = getattr(_aten, self.name), dict(self.options)
        if self.name == "gelu" and out is not None and not out.is_contiguous():
            # torch 2.13 on a CPU fills float32 memory as if its rows were one behind the other
            return out.copy_(operator(x, **options))
        return into(operator, out, x, *self.settings, **options)

    def times_slope(
        self, kept: Tensor, grad: Tensor, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        operator = getattr(_aten, f"{self.name}_backward")
        return into(operator, out, grad, kept, *self.settings, **dict(self.options))


_TORCHS: dict[type[nn.Module], Callable[[Any], Kernel | None]] = {
    nn.Identity: lambda m: Identity(),
    nn.ReLU: lambda m: ReLU(),
    # below, where the output does not give the slope there is no kernel
    nn.LeakyReLU: lambda m: ReLU(m.negative_slope) if m.negative_slope >= 0 else None,
    nn.ELU: lambda m: ELU(m.alpha) if m.alpha >= 0 else None,
    nn.CELU: lambda m: ELU(m.alpha, 1.0, 1.0 / m.alpha) if m.alpha > 0 else None,
    nn.SELU: lambda m: ELU(1.6732632423543772, 1.0507009873554805),
    nn.Tanh: lambda m: Torch("tanh"),
    nn.Sigmoid: lambda m: Torch("sigmoid"),
    nn.SiLU: lambda m: Torch("silu", True),
    nn.GELU: lambda m: Torch("gelu", True, options=(("approximate", m.approximate),)),
    nn.Mish: lambda m: Torch("mish", True),
    nn.Hardswish: lambda m: Torch("hardswish", True),
    nn.Softplus: lambda m: Torch("softplus", True, (m.beta, m.threshold)),
}


def kernel_of(module: nn.Module, dim: int = -1) -> Kernel | None:
    """The kernel of a module that acts along ``dim``, or None where it has none.

    A subclass has none, nor has a module with hooks or a ``forward`` of its own: they may compute
    something else.

    >>> kernel_of(nn.Tanh())
    Torch(name='tanh', keeps_input=False, settings=(), options=())
    """
    if torch.compiler.is_compiling() or not is_itself(module):  # the compiler fuses plain modules
        return None
    if isinstance(module, Activation):
        return module.kernel() if getattr(module, "dim", dim) == dim else None
    make = _TORCHS.get(type(module))
    return None if make is None else make(module)
