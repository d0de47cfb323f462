"""How activations and normalisations compute: forward and backward in memory that is given.

A kernel serves exactly one class. An activation that has one returns it from ``kernel()``. The
chain of layers calls it, and ``run`` makes it a twice differentiable autograd function for
everyone else. Needs torch only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, TypeVar, cast
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

# ---- Known modules: instances of exactly these classes can be replaced by their kernels ----------

ModuleClass = TypeVar("ModuleClass", bound=type[nn.Module])
Hook = TypeVar("Hook", bound=Callable[..., None])


_KNOWN: set[type] = set()  # our own, and torch's below
_OBSERVERS: WeakSet[Callable[..., None]] = WeakSet()
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def known(cls: ModuleClass) -> ModuleClass:
    """Register a module class. Instances of its subclasses may compute something else."""
    _KNOWN.add(cls)
    return cls


def is_itself(module: nn.Module) -> bool:
    """Whether a module is an instance of exactly a known class, without hooks or a new ``forward``.

    >>> is_itself(nn.ReLU()), is_itself(type("Mine", (nn.ReLU,), {})())
    (True, False)
    """
    return (
        type(module) in _KNOWN
        and getattr(module, "has_known_parts", True)
        and "forward" not in vars(module)
        and all(hook in _OBSERVERS for kind in _HOOKS for hook in getattr(module, kind).values())
    )


def is_observed(module: nn.Module) -> bool:
    """Tell whether a module, or one in it, has a hook, which waits for its ``forward``."""
    return any(getattr(part, kind) for part in module.modules() for kind in _HOOKS)


def observer(hook: Hook) -> Hook:
    """Register a hook that changes nothing, so that modules that have it keep their kernels."""
    _OBSERVERS.add(hook)
    return hook


def is_known(module: nn.Module) -> bool:
    """Tell whether a module and all in it are known, and act along the last axis.

    The result for x of shape (members, rows, width) is then that for each member's rows.
    """
    return all(is_itself(part) and getattr(part, "dim", -1) == -1 for part in module.modules())


# ---- Kernels: forward and backward pass of a module, in given or in new memory -------------------
# With ``out=None`` and a plain ``Memory`` a kernel consists of differentiable operations in new
# memory. Otherwise it overwrites the memory that it gets, without autograd. The same two methods
# are therefore used in any network (``run``), by the compiler and torch.func, and by a training
# loop that reuses buffers.

_aten = torch.ops.aten
_is_transformed = torch._C._are_functorch_transforms_active

HALF = (torch.float16, torch.bfloat16)

Vectors = Sequence[
    Tensor
]  # further inputs of a kernel, one value per unit; they broadcast against x
Maybe = Tensor | None
Gradients = Sequence[Maybe]  # by the vectors, of their shapes


class Memory:
    """A kernel's memory from its forward to its backward pass.

    ``out=memory.work(...)`` and ``out=memory.keep(...)`` provide memory for a result of a shape:
    ``work`` for results that are not used after the call. Tensors that ``backward`` needs are
    stored by name: ``memory["rstd"] = rstd``.

    Parameters
    ----------
    allocate : callable, optional
        Gives memory by name and shape, and the same again in the next step. By default results are
        new memory, as it comes.
    prefix : str
        Prefix of the names of kept tensors.
    """

    def __init__(self, allocate: Callable[..., Tensor] | None = None, prefix: str = "") -> None:
        self._allocate, self._prefix = allocate, prefix
        self._tensors: dict[str, Tensor] = {}
        self._parts: dict[str, Memory] = {}

    def work(self, name: str, *shape: int) -> Tensor | None:
        return None if self._allocate is None else self._allocate(name, *shape)

    def keep(self, name: str, *shape: int) -> Tensor | None:
        return None if self._allocate is None else self._allocate(self._prefix + name, *shape)

    def part(self, name: str) -> Memory:
        """Give the memory of a kernel that is one of several in another."""
        if name not in self._parts:
            self._parts[name] = Memory(self._allocate, f"{self._prefix}{name}.")
        return self._parts[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self._tensors[name] = value

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    @property
    def holds_any(self) -> bool:
        """Whether any tensor was stored."""
        return bool(self._tensors) or any(part.holds_any for part in self._parts.values())


class Kernel:
    """Forward and backward of a module along the last axis; stateless, and equal if alike.

    It changes x, y and ``grad`` only if they are passed as ``out``.

    Attributes
    ----------
    unitwise : bool
        Whether each output depends on one input.
    keeps_input, keeps_output : bool
        Which tensors ``backward`` needs; the others may be None there.
    n_vectors : int
        Number of vectors that it takes.
    """

    unitwise: bool = True
    keeps_input: bool = False
    keeps_output: bool = True
    n_vectors: int = 0

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        """The result, (..., width); ``out`` may be x where ``keeps_input`` is False or no
        backward pass follows."""
        raise NotImplementedError

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        """The gradients by x and by the vectors, given that by y; ``out`` may be ``grad``.

        Without ``out``, and if only ``keeps_output`` is true, the result can be differentiated.
        """
        raise NotImplementedError


class Pointwise(Kernel):
    """A kernel of single units without vectors, whose slope follows from x or from y."""

    def times_slope(
        self, x_or_y: Tensor, grad: Tensor, memory: Memory, out: Maybe = None
    ) -> Tensor:
        """grad times the slope, given y, or x where ``keeps_input``."""
        raise NotImplementedError

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        x_or_y = cast(Tensor, x if self.keeps_input else y)  # None where neither is needed
        return self.times_slope(x_or_y, grad, memory, out), ()


class Activation(nn.Module):
    """A module with a kernel, and the vectors that it takes; without one, define ``forward``."""

    unitwise: ClassVar[bool] = True
    width: int
    dim: int

    def kernel(self) -> Kernel | None:
        """The kernel; None if there is no kernel (for these settings)."""
        return None

    def vectors(self) -> Vectors:
        """Functions of the parameters, (width,) each, or (members, 1, width) in a stack."""
        return ()

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        kernel = self.kernel()
        assert kernel is not None
        return self.run(kernel, x)

    def run(self, kernel: Kernel, x: Tensor) -> Tensor:
        """The result of its kernel, along ``dim`` if it has one."""
        dim = getattr(self, "dim", -1)
        vectors = [v.to(x.dtype) if v.is_floating_point() else v for v in self.vectors()]
        return run(kernel, x.movedim(dim, -1), *vectors).movedim(-1, dim)

    def check_width(self, x: Tensor) -> None:
        """Raise ValueError where the input has another width."""
        if x.shape[self.dim] != self.width:
            raise ValueError(
                f"{type(self).__name__} was built for {self.width} features, got "
                f"{x.shape[self.dim]} along dim={self.dim} of an input of shape {tuple(x.shape)}; "
                "build it for that width or set dim to the feature axis"
            )


class PerUnit(Activation):
    """An activation with parameters that have a value for each unit, along ``dim``."""

    def __init__(self, width: int, dim: int, **starts: float) -> None:
        super().__init__()
        self.width, self.dim = width, dim
        for name, start in starts.items():
            self.register_parameter(name, nn.Parameter(torch.full((width,), float(start))))

    def extra_repr(self) -> str:
        return f"{self.width}, dim={self.dim}"


def wide(x: Tensor) -> Tensor:
    """The tensor in float32 if it is of half precision."""
    return x.float() if x.dtype in HALF else x


class _Run(torch.autograd.Function):
    """A kernel as a function of autograd; twice differentiable."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, x: Tensor, *vectors: Tensor) -> Tensor:
        memory = Memory()
        y = kernel.forward(x, vectors, memory, torch.empty_like(x))
        ctx.kernel, ctx.memory = kernel, memory
        from_output = kernel.keeps_output and not (
            kernel.keeps_input or vectors or memory.holds_any
        )
        ctx.save_for_backward(
            None if from_output else x, y if kernel.keeps_output else None, *vectors
        )
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kernel: Kernel = ctx.kernel
        x, y, *vectors = ctx.saved_tensors
        if not torch.is_grad_enabled():
            batched = _is_transformed() or torch._C._functorch.is_legacy_batchedtensor(grad)
            out = None if batched else torch.empty_like(grad)  # a batch has no memory
            grad_in, grads = kernel.backward(x, y, grad, vectors, ctx.memory, out)
            return None, grad_in, *grads, *[None] * (len(vectors) - len(grads))
        if x is None:  # this gradient, a function of the output, will be differentiated
            return None, kernel.backward(None, y, grad, (), Memory())[0]
        needs_gradient = ctx.needs_input_grad[1:]
        inputs = [t for t, needed in zip((x, *vectors), needs_gradient, strict=True) if needed]
        again = kernel.forward(x, vectors, Memory())
        gradients = iter(
            torch.autograd.grad(again, inputs, grad, create_graph=True, allow_unused=True)
        )
        return None, *(next(gradients) if needed else None for needed in needs_gradient)


def run(kernel: Kernel, x: Tensor, *vectors: Tensor) -> Tensor:
    """A kernel's result, (..., width), differentiable twice in every mode of autograd.

    The compiler, ``torch.func`` and forward mode get the plain operations.

    >>> x = torch.tensor([-1.0, 2.0], requires_grad=True)
    >>> run(ReLU(), x).sum().backward()
    >>> x.grad
    tensor([0., 1.])
    """
    if torch.compiler.is_compiling() or _is_transformed() or forward_ad._current_level >= 0:
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


def sum_to(x: Tensor, vector: Tensor) -> Tensor:
    """The gradient of a vector that was broadcast, given that of each place."""
    # for a single row it would be x itself, whose memory is reused
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

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        return x.clone() if out is None else x if out is x else out.copy_(x)

    def times_slope(
        self, x_or_y: Tensor, grad: Tensor, memory: Memory, out: Maybe = None
    ) -> Tensor:
        return self.forward(grad, (), memory, out)


@dataclass(frozen=True)
class ReLU(Pointwise):
    slope: float = 0.0  # below zero, not negative

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        if self.slope:
            return into(_aten.leaky_relu, out, x, self.slope)
        return above_zero(x, out)

    def times_slope(
        self, x_or_y: Tensor, grad: Tensor, memory: Memory, out: Maybe = None
    ) -> Tensor:
        if self.slope:
            return into(_aten.leaky_relu_backward, out, grad, x_or_y, self.slope, True)
        return where_above(grad, x_or_y, out)


@dataclass(frozen=True)
class ELU(Pointwise):
    alpha: float = 1.0
    scale: float = 1.0
    input_scale: float = 1.0

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        return into(_aten.elu, out, x, self.alpha, self.scale, self.input_scale)

    def times_slope(
        self, x_or_y: Tensor, grad: Tensor, memory: Memory, out: Maybe = None
    ) -> Tensor:
        settings = self.alpha, self.scale, self.input_scale
        return into(_aten.elu_backward, out, grad, *settings, True, x_or_y)


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

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        operator, options = getattr(_aten, self.name), dict(self.options)
        if self.name == "gelu" and out is not None and not out.is_contiguous():
            # torch 2.13 on a CPU ignores the strides of float32 memory
            return out.copy_(operator(x, **options))
        return into(operator, out, x, *self.settings, **options)

    def times_slope(
        self, x_or_y: Tensor, grad: Tensor, memory: Memory, out: Maybe = None
    ) -> Tensor:
        operator = getattr(_aten, f"{self.name}_backward")
        return into(operator, out, grad, x_or_y, *self.settings, **dict(self.options))


_KERNELS_OF_TORCH: dict[type[nn.Module], Callable[[Any], Kernel | None]] = {
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
# further unit-wise modules of torch without parameters, and containers of them
_WITHOUT_KERNEL = (
    *(nn.Hardsigmoid, nn.Hardtanh, nn.LogSigmoid, nn.ReLU6, nn.Softsign, nn.Tanhshrink),
    nn.ModuleList,
)
_KNOWN.update(_KERNELS_OF_TORCH, _WITHOUT_KERNEL)


def kernel_of(module: nn.Module, dim: int = -1) -> Kernel | None:
    """The kernel of a module that acts along ``dim``, or None where it has none.

    A subclass has none, nor has a module with hooks or a new ``forward``: they may compute
    something else.

    >>> kernel_of(nn.Tanh())
    Torch(name='tanh', keeps_input=False, settings=(), options=())
    """
    if torch.compiler.is_compiling() or not is_itself(module):  # the compiler fuses plain modules
        return None
    if isinstance(module, Activation):
        return module.kernel() if getattr(module, "dim", dim) == dim else None
    make = _KERNELS_OF_TORCH.get(type(module))
    return None if make is None else make(module)


# ---- Kernels made of others: each for some of the units, or one between two affine maps ----------

T = TypeVar("T", Tensor, Tensor | None)


@dataclass(frozen=True)
class Combined(Kernel):
    """A kernel made of others, which needs what any of them needs."""

    kernels: tuple[Kernel, ...]

    @property
    def unitwise(self) -> bool:  # type: ignore[override]
        return all(kernel.unitwise for kernel in self.kernels)

    @property
    def keeps_input(self) -> bool:  # type: ignore[override]
        return any(kernel.keeps_input for kernel in self.kernels)

    @property
    def keeps_output(self) -> bool:  # type: ignore[override]
        return any(kernel.keeps_output for kernel in self.kernels)

    @property
    def n_vectors(self) -> int:  # type: ignore[override]
        return sum(kernel.n_vectors for kernel in self.kernels)

    def each(self, vectors: Vectors, memory: Memory) -> Iterator[tuple[Kernel, Vectors, Memory]]:
        """The kernels, the vectors of each and its part of the memory."""
        remaining = iter(vectors)
        for i, kernel in enumerate(self.kernels):
            kernel_vectors = [next(remaining) for _ in range(kernel.n_vectors)]
            yield kernel, kernel_vectors, memory.part(str(i))


@dataclass(frozen=True)
class Slices(Combined):
    """A kernel for each run of neighbouring units."""

    runs: tuple[tuple[int, int], ...]  # start and length of each kernel's

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        pieces = []
        parts = self.each(vectors, memory)
        for (start, length), (kernel, part_vectors, part) in zip(self.runs, parts, strict=True):
            x_i = _narrow(x, start, length)
            out_i = x_i if out is x else _narrow(out, start, length)
            pieces.append(kernel.forward(x_i, part_vectors, part, out_i))
        return torch.cat(pieces, -1) if out is None else out

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        pieces: list[Tensor] = []
        grads: list[Tensor | None] = []
        parts = self.each(vectors, memory)
        for (start, length), (kernel, part_vectors, part) in zip(self.runs, parts, strict=True):
            x_i = _narrow(x, start, length) if kernel.keeps_input else None
            y_i = _narrow(y, start, length) if kernel.keeps_output else None
            grad_i = _narrow(grad, start, length)
            out_i = grad_i if out is grad else _narrow(out, start, length)
            grad_in, by_own = kernel.backward(x_i, y_i, grad_i, part_vectors, part, out_i)
            pieces.append(grad_in)
            grads.extend(by_own)
        return torch.cat(pieces, -1) if out is None else out, grads


def _narrow(x: T, start: int, length: int) -> T:
    return None if x is None else x.narrow(-1, start, length)


@dataclass(frozen=True)
class Scattered(Combined):
    """Kernels for units in any order: the first vector has the part of each unit."""

    @property
    def n_vectors(self) -> int:  # type: ignore[override]
        return 1 + super().n_vectors

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        y = x if out is None or out is x else out.copy_(x)
        for i, (kernel, part_vectors, part) in enumerate(self.each(vectors[1:], memory)):
            memory[f"of {i}"] = mine = vectors[0] == i
            # autograd would multiply the units of other parts by 0, and they may be infinite
            y_of_part = y if out is not None else torch.where(mine, y, 0.0)
            y_i = kernel.forward(y_of_part, part_vectors, part, memory.work("result", *x.shape))
            y = torch.where(mine, y_i, y, out=out)
        return y

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        grads: list[Tensor | None] = [None]
        grad = grad if out is None or out is grad else out.copy_(grad)
        for i, (kernel, part_vectors, part) in enumerate(self.each(vectors[1:], memory)):
            mine, work = memory[f"of {i}"], memory.work("result", *grad.shape)
            grad_i, by_own = kernel.backward(x, y, grad, part_vectors, part, work)
            grad = torch.where(mine, grad_i, grad, out=out)
            grads += [None if v is None else torch.where(mine, v, 0.0) for v in by_own]
        return grad, grads


@dataclass(frozen=True)
class Affine(Kernel):
    """phi(gamma x + beta) scale + shift; its vectors are these four, and phi's."""

    phi: Kernel
    keeps_input: bool = True
    keeps_output: bool = False

    @property
    def n_vectors(self) -> int:  # type: ignore[override]
        return 4 + self.phi.n_vectors

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        gamma, beta, scale, shift, *phi_vectors = vectors
        # ProxyNorm Eq. (7), Derf Eq. (10)
        z_out = memory.keep("z", *x.shape)
        phi_input = memory.keep("into phi", *x.shape) if self.phi.keeps_input else z_out
        into_phi = torch.addcmul(beta, x, gamma, out=phi_input)
        z = self.phi.forward(into_phi, phi_vectors, memory.part("phi"), z_out)
        memory["into phi"], memory["z"] = into_phi, z
        return torch.addcmul(shift, z, scale, out=out)

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        assert x is not None
        gamma, beta, scale, shift, *phi_vectors = vectors
        work = memory.work("product", *x.shape)
        by_scale = sum_to(torch.mul(grad, memory["z"], out=work), scale)
        by_shift = sum_to(grad, shift)
        grad = torch.mul(grad, scale, out=out)
        saved = memory["into phi"], memory["z"]
        grad, by_own = self.phi.backward(*saved, grad, phi_vectors, memory.part("phi"), out)
        by_beta = sum_to(grad, beta)
        by_gamma = sum_to(torch.mul(grad, x, out=work), gamma)
        return torch.mul(grad, gamma, out=out), (by_gamma, by_beta, by_scale, by_shift, *by_own)


# ---- Standardising groups of neighbouring units, with a derivative of few operations -------------

_EXACT = ("none", "ieee")


class Blocks:
    """Group sums and means over a last axis, as products with small block-diagonal matrices.

    Reductions over a last axis of 2 to 16 numbers are slow on a CPU; a product with ones in
    diagonal blocks is several times faster and broadcasts on its way. A block holds the widest
    run of groups, up to 16 units, that divides a row: products never cross rows, so a value in
    one sample (or member) cannot reach another, not even a NaN.
    """

    def __init__(self, groups: int, size: int) -> None:
        run = next(n for n in range(16 // size, 0, -1) if groups % n == 0)
        ones = torch.block_diag(*[torch.ones(size, size, dtype=torch.float64)] * run)
        self.size = size
        self.ones = {torch.float64: ones, torch.float32: ones.float()}
        self.averaging = {dtype: ones / size for dtype, ones in self.ones.items()}

    def mean(self, x: Tensor, memory: Memory) -> Tensor:
        return _product(x, self.averaging[x.dtype], memory.work("mean", *x.shape))

    def center(self, x: Tensor, memory: Memory, out: Tensor | None) -> Tensor:
        work = memory.work("square", *x.shape)
        sums = _product(x, self.ones[x.dtype], work)
        # summing first keeps a constant group exactly constant
        return torch.sub(x, torch.div(sums, self.size, out=work), out=out)


def _product(x: Tensor, matrix: Tensor, out: Tensor | None) -> Tensor:
    n = len(matrix)
    if out is not None:
        torch.mm(x.reshape(-1, n), matrix, out=out.view(-1, n))
        return out
    return (x.reshape(-1, n) @ matrix).view(x.shape)


class _Reductions:
    """The same by reductions; means keep the axis with length 1."""

    def mean(self, x: Tensor, memory: Memory) -> Tensor:
        return torch.mean(x, -1, keepdim=True, out=memory.work("mean", *x.shape[:-1], 1))

    def center(self, x: Tensor, memory: Memory, out: Tensor | None) -> Tensor:
        mean = torch.mean(x, -1, keepdim=True, out=memory.work("center", *x.shape[:-1], 1))
        return torch.sub(x, mean, out=out)


_blocks = lru_cache(maxsize=64)(Blocks)
_REDUCTIONS = _Reductions()


@dataclass(frozen=True)
class Standardize(Kernel):
    """x -> (x - mean) rstd inside groups of neighbouring units, or x rstd without centring.

    It takes float32 or float64, ``width`` units in groups of ``size``.
    """

    size: int
    width: int
    eps: float
    center: bool = True
    unitwise: bool = False

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        # PLN Eq. (3), centred; PLS Eq. (6), not
        if self._by_torch:
            n, _, memory["rstd"] = torch.native_layer_norm(
                self._grouped(x), [self.size], None, None, self.eps
            )
            n = n.reshape(x.shape)
            return n if out is None else out.copy_(n)
        by, x_g = self._means(x), self._grouped(x)
        out_g = None if out is None else self._grouped(out)
        n = by.center(x_g, memory, out_g) if self.center else x_g
        mean = by.mean(torch.mul(n, n, out=memory.work("square", *n.shape)), memory)
        work = memory.work("mean", *mean.shape)
        rstd = torch.rsqrt(torch.add(mean, self.eps, out=work), out=work)
        saved = memory.keep("rstd", *rstd.shape[:-1], 1)  # a group has one
        memory["rstd"] = rstd if saved is None else saved.copy_(rstd[..., :1])
        n = torch.mul(n, rstd, out=out_g)
        return n.reshape(x.shape) if out is None else out

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        assert y is not None
        y_g, grad_g = self._grouped(y), self._grouped(grad)
        out_g = None if out is None else self._grouped(out)
        if self._by_torch:  # of y, whose mean is 0 and deviation 1 already
            rstd = memory["rstd"]
            nothing, one = torch.zeros_like(rstd), torch.ones_like(rstd)
            grad_in, _, _ = torch.ops.aten.native_layer_norm_backward(
                grad_g, y_g, [self.size], nothing, one, None, None, [True, False, False]
            )
            grad_in = torch.mul(grad_in, rstd, out=out_g)
            return grad_in.reshape(grad.shape) if out is None else out, ()
        by = self._means(grad)
        along = by.mean(torch.mul(grad_g, y_g, out=memory.work("square", *y_g.shape)), memory)
        grad_in = by.center(grad_g, memory, out_g) if self.center else grad_g
        grad_in = torch.addcmul(grad_in, y_g, along, value=-1, out=out_g)
        grad_in = torch.mul(grad_in, memory["rstd"], out=out_g)
        return grad_in.reshape(grad.shape) if out is None else out, ()

    @property
    def _by_torch(self) -> bool:
        """Tell whether torch's own layer normalisation serves: in two passes, into new memory."""
        return self.center and self.size > 16

    def _grouped(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.width // self.size, self.size)

    def _means(self, x: Tensor) -> Blocks | _Reductions:
        if 1 < self.size <= 16 and x.stride(-1) == 1 and _keeps_precision(x):
            return _blocks(self.width // self.size, self.size)
        return _REDUCTIONS


def _keeps_precision(x: Tensor) -> bool:
    """Tell whether a CPU's matrix product is as precise as this tensor."""
    if torch.compiler.is_compiling():  # the compiler fuses reductions itself
        return False
    if x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    return x.dtype is torch.float64 or getattr(matmul, "fp32_precision", "none") in _EXACT
