"""Networks as specifications that build stacks, and what all networks share."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from combutab.activations.kernels import is_known
from combutab.core.files import Field, check_fields
from combutab.core.rng import SeededDraws, Stream, fold_in
from combutab.nn._chain import Chain
from combutab.nn._layers import (
    ActivationSpec,
    FlatTensors,
    Generators,
    MaskMaker,
    SeparateModules,
    StackedActivation,
    StackedLinear,
    StackedNorm,
    StackedTensor,
    assign_columns,
    backward,
    build_activation,
)

# ---- The base of stacked networks: tensors as rows of a matrix, states of members by name --------

Context = Callable[[], AbstractContextManager[object]]  # of a forward pass: autocast, or none
ROLES = ("weight", "bias", "normalization", "activation", "embedding", "scale")
"""Roles of parameters; each role has its own factor of the learning rate."""


@dataclass(frozen=True)
class Member:
    """Settings of one member for building a stack of networks."""

    seed: int
    activation: ActivationSpec
    dropout: float = 0.0
    # (n_numeric, n_bins + 1): edges of the bins of piecewise-linear embeddings
    bins: Tensor | None = field(default=None, compare=False, repr=False)
    drawn: bool = True  # False: the first weights are zeros, as a state is loaded
    frequency_scale: float = 1.0  # factor of the initial frequencies of numeric embeddings


def weight_generators(members: Sequence[Member], seeds: Sequence[int]) -> Generators:
    """The generators of the initial weights, one seed per member; None for loaded weights."""
    return [
        torch.Generator().manual_seed(fold_in(seed, Stream.WEIGHTS) >> 1) if member.drawn else None
        for member, seed in zip(members, seeds, strict=True)
    ]


def check_proxy_norm(proxy_norm: bool, normalization: str) -> None:
    """Raise ValueError if ProxyNorm does not follow layer or group normalisation."""
    if proxy_norm and normalization not in ("layer", "group"):
        raise ValueError(
            "proxy_norm=True goes after layer or group normalization, got "
            f"{normalization=}; set normalization='layer'"
        )


class StackedNetwork(nn.Module):
    """Base class of networks of M members, sorted by activation.

    A subclass makes its layers, in which each tensor has a leading member axis, and then calls
    ``_flatten``. Its parameters then become views of ``flat.values``, with one row per member; the
    weights with weight decay or penalties are the first ``n_decayed`` columns. Its buffers become
    views of ``flat_buffers.values``.
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
        self.to(device=device, dtype=dtype)
        m = self.n_members
        weights: list[StackedTensor] = []
        undecayed: list[StackedTensor] = []
        buffers: list[StackedTensor] = []
        self._integer_buffers: list[StackedTensor] = []
        for entry in self._entries("", self):
            tensor = entry.tensor
            if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
                # penalties apply to the weights of linear layers
                is_weight = isinstance(entry.module, StackedLinear) and entry.attribute == "weight"
                (weights if is_weight else undecayed).append(entry)
            else:  # a frozen parameter is a buffer: it is kept, and not trained
                floating = tensor.is_floating_point()
                (buffers if floating else self._integer_buffers).append(entry)
        slots, width = assign_columns([*weights, *undecayed], m)
        self.n_decayed = sum(s.columns.stop - s.columns.start for s in slots[: len(weights)])
        self.flat = FlatTensors(slots, width, m, dtype=dtype, device=device, with_grad=True)
        slots, width = assign_columns(buffers, m)
        self.flat_buffers = FlatTensors(
            slots, width, m, dtype=dtype, device=device, with_grad=False
        )
        self.flats = self.flat, self.flat_buffers

    def unflatten(self) -> Self:
        """Copy each parameter and buffer to its own memory, as in a plain module.

        The training loop of this library, which needs ``flat``, cannot train it afterwards; other
        training loops can.
        """
        for parameter in self.parameters():
            parameter.data = parameter.detach().clone()
        for module in self.modules():
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, buffer.clone())
        del self.flat, self.flat_buffers, self.flats
        return self

    def rate_factors(self, by_role: Mapping[str, float]) -> list[tuple[slice, float]]:
        """Return factors of the learning rate for the columns of ``flat``, by parameter role.

        Returns
        -------
        list of (slice, float)
            Ranges of columns with the same factor, in order, without gaps.
        """
        factors = np.ones(self.flat.values.shape[1])
        for slot in self.flat.slots:
            factors[slot.columns] = by_role.get(self._role(slot), 1.0)
        edges = [0, *(np.flatnonzero(np.diff(factors)) + 1).tolist(), len(factors)]
        return [(slice(a, b), float(factors[a])) for a, b in itertools.pairwise(edges)]

    def _role(self, entry: StackedTensor) -> str:
        """The role of a parameter in the network.

        Returns
        -------
        str
            One of ``ROLES``: "weight" or "bias" of a linear layer, "scale" of inputs or heads, ...
        """
        if isinstance(entry.module, StackedLinear):
            return entry.attribute if entry.attribute in ("weight", "bias") else "scale"
        if isinstance(entry.module, StackedNorm):
            return "normalization"
        if not entry.name.startswith("inputs."):
            return "activation"
        return "scale" if entry.name == "inputs.scale" else "embedding"

    def _entries(self, prefix: str, module: nn.Module) -> Iterator[StackedTensor]:
        """All tensors below a module; those of an activation slot have the slot's name."""
        parts, children = [(slice(0, self.n_members), module)], module.named_children()
        if isinstance(module, StackedActivation):
            parts = list(zip(module.groups, module.kinds, strict=True))
            children = iter(())
        for group, part in parts:
            for tensors in (
                part.named_parameters(recurse=False),
                part.named_buffers(recurse=False),
            ):
                for name, _ in tensors:
                    yield StackedTensor(f"{prefix}{name}", part, name, group.start, group.stop)
            if isinstance(part, SeparateModules):
                for member in range(group.start, group.stop):
                    for name, owner, attribute in part.tensors(member - group.start):
                        yield StackedTensor(
                            prefix + name, owner, attribute, member, member + 1, False
                        )
        for name, child in children:
            yield from self._entries(f"{prefix}{name}.", child)

    def mixes_rows(self) -> str | None:
        """Name the module that makes outputs of a row depend on its batch in training, if any."""
        for module in self.modules():
            if isinstance(module, StackedNorm) and module.kind == "batch":
                return "normalization='batch'"
            if isinstance(module, SeparateModules):  # it may combine rows
                return f"the activation {type(module.each[0]).__name__}, a module of your own,"
        return None

    def select(self, keep: Sequence[int]) -> None:
        """Keep only these members (increasing positions)."""
        index = torch.tensor(list(keep), dtype=torch.int64, device=self.device)
        integers = self._integer_buffers
        self._integer_buffers = []
        for entry in integers:
            rows = index[(index >= entry.start) & (index < entry.stop)] - entry.start
            if entry.stacked:
                setattr(entry.module, entry.attribute, entry.tensor[rows])
            if (selected := entry.select(keep)) is not None:
                self._integer_buffers.append(selected)
        for module in self.modules():
            if isinstance(module, StackedActivation):
                module.select_groups(keep)
        for flat in self.flats:
            flat.select(keep)
        self.members = [self.members[k] for k in keep]

    def member_state(self, i: int) -> dict[str, Tensor]:
        """Return copies of the parameters of member i, by names that do not depend on the stack."""
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
        """Load the parameters of member i from ``member_state``."""
        expected = set(self.member_state(i))
        if expected != set(state):
            raise ValueError(
                f"the state does not fit the network: missing {sorted(expected - set(state))}, "
                f"unexpected {sorted(set(state) - expected)}"
            )
        for flat in self.flats:
            flat.load_member(i, state)
        for name, value in self._integers(i).items():
            value.copy_(state[name])


def fill_gradients(loss: Tensor, *networks: StackedNetwork) -> None:
    """Set the ``flat.grads`` of networks with a common loss, in one backward pass.

    Parameters
    ----------
    loss : Tensor, a scalar
        The loss.
    *networks : StackedNetwork
        The networks, such as an encoder and its decoder.
    """
    backward(loss, [network.flat for network in networks])


# ---- Specs: descriptions from which networks are built; frozen, comparable, saved as JSON --------


class NetworkSpec(ABC):
    """Base class of network specifications: the settings that all members of a stack share.

    ``n_dense`` and ``cardinalities`` describe the encoded columns, as from the table's encoder.
    Subclasses are frozen dataclasses with a ``kind``. Their ``fields`` are the valid values of each
    field when a specification is read from a file.

    Examples
    --------
    >>> from combutab.nn import MLPSpec
    >>> spec = MLPSpec(n_dense=4, hidden=(16, 8), n_outputs=3)
    >>> spec.widths, spec.peak_units, NetworkSpec.from_json(spec.to_json()) == spec
    ((4, 16, 8, 3), 16, True)
    """

    kind: ClassVar[str]
    fields: ClassVar[Mapping[str, Field]] = {}
    kinds: ClassVar[dict[str, type[NetworkSpec]]] = {}
    n_dense: int
    cardinalities: tuple[int, ...]
    n_outputs: int

    def __init_subclass__(cls, *, kind: str, **more: Any) -> None:
        super().__init_subclass__(**more)
        registered = NetworkSpec.kinds.get(kind, cls)
        if (registered.__module__, registered.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(
                f"there is a network of kind {kind!r} already: {registered.__qualname__}"
            )
        cls.kind = kind
        NetworkSpec.kinds[kind] = cls

    @abstractmethod
    def build(
        self,
        members: Sequence[Member],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> TableNetwork:
        """A stack of these members, sorted so that those of one activation are neighbours."""

    @property
    @abstractmethod
    def widths(self) -> tuple[int, ...]:
        """Number of units per row of each layer of all heads, including inputs and outputs."""

    @abstractmethod
    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a member's weights, by their names in its state."""

    @property
    def needs_rows(self) -> bool:
        """Whether the initial weights depend on rows, passed to ``start_from`` of the network."""
        return False

    @property
    def peak_units(self) -> int:
        """Units of the widest layer."""
        return max(self.widths)

    @property
    def n_weights(self) -> int:
        """Number of learned parameters of a member."""
        return sum(math.prod(shape) for shape in self.array_shapes().values())

    def to_json(self) -> dict[str, Any]:
        """Return the kind and the fields as a dict for JSON."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    @staticmethod
    def from_json(record: Any) -> NetworkSpec:
        """Restore the specification from ``to_json``.

        Raises
        ------
        ValueError
            If the kind of the record is unknown, or its fields are not valid.
        """
        if not isinstance(record, dict):
            raise ValueError(f"the shape must be an object, got a {type(record).__name__}")
        kind = record.get("kind")
        if not isinstance(kind, str) or kind not in NetworkSpec.kinds:
            raise ValueError(f"the network is of the unknown kind {str(kind)[:50]!r}")
        cls = NetworkSpec.kinds[kind]
        values = {name: value for name, value in record.items() if name != "kind"}
        check_fields(values, cls.fields, "the shape")
        return cls(**{n: tuple(v) if isinstance(v, list) else v for n, v in values.items()})


# ---- Networks of encoded tables, as the training loop and the estimators use them ----------------


class TableNetwork(StackedNetwork):
    """Base class of stacks of M networks for encoded tables.

    A subclass makes its layers and defines ``forward``. With several heads, which share weights,
    ``forward`` returns the raw outputs of each row once per head, in consecutive rows. Training
    averages the losses of the heads.
    """

    n_heads = 1
    mask_widths: Sequence[int] = ()
    """Number of units, of all heads, of each layer with dropout."""

    def forward(
        self,
        dense: Tensor,
        codes: Tensor | None = None,
        masks: Sequence[Tensor] | None = None,
        valid: Tensor | None = None,
    ) -> Tensor:
        """Compute raw outputs, (M, batch * n_heads, n_outputs), of encoded columns.

        ``masks`` are dropout masks from ``mask_maker``. ``valid``, (M, batch), marks positions with
        a row if the batches of the members have different sizes.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward pass")

    def start_from(
        self, dense: Tensor, codes: Tensor | None, seeds: Sequence[int], members: Sequence[int]
    ) -> None:
        """Fit the initial weights of some members to rows, if the spec ``needs_rows``.

        Parameters
        ----------
        dense, codes : Tensor, (M, n, ...)
            Encoded rows of each member.
        seeds : sequence of int
            Random seed of each member.
        members : sequence of int
            Members whose weights are set.
        """

    def ignore_inputs(self, i: int, columns: Sequence[int], codes: Sequence[Tensor]) -> None:
        """Let member i ignore columns, and codes of its embeddings: their weights are 0 and stay 0.

        Parameters
        ----------
        i : int
            Position of the member.
        columns : sequence of int
            Positions of dense columns, and after these of columns with codes.
        codes : sequence of Tensor
            Codes of each column with codes.
        """

    def scale_outputs(self, i: int, factor: float) -> None:
        """Multiply the raw outputs of member i permanently, as calibration does."""
        raise TypeError(f"{type(self).__name__} cannot scale its outputs; use calibration=None")

    def mask_maker(self) -> MaskMaker:
        """Return the generator of the dropout masks of all layers and heads."""
        rates = [member.dropout for member in self.members]
        return MaskMaker(self.mask_widths, rates, device=self.device, dtype=self.dtype)

    def gradients(
        self,
        dense: Tensor,
        objective: Callable[[Tensor], Tensor],
        codes: Tensor | None = None,
        masks: Sequence[Tensor] | None = None,
        valid: Tensor | None = None,
        context: Context = nullcontext,
    ) -> None:
        """Set ``flat.grads`` to the derivatives of ``objective(raw outputs)``, a scalar.

        The forward pass runs within ``context``, such as an autocast. ``masks`` are overwritten.
        """
        with context():
            raw = self(dense, codes, masks, valid)
        self.flat.backward(objective(raw))

    @torch.inference_mode()
    def predict(
        self, dense: Tensor, codes: Tensor | None, chunk: int, context: Context = nullcontext
    ) -> Tensor:
        """Compute raw outputs without dropout for rows that all members share, in chunks of rows.

        Several threads can predict with one network. The heads of a member are consecutive, so that
        the mean over the first axis is over members and heads.

        Shape
        -----
        dense : (n, n_dense), codes : (n, n_codes) int64 -> (M * n_heads, n, n_outputs)
        """
        outputs_of, outputs, n = self._predictor(context), [], self.n_members
        for start in range(0, len(dense), chunk):
            rows = slice(start, start + chunk)
            part = dense[rows].to(self.device).expand(n, -1, -1)
            part_codes = None if codes is None else codes[rows].to(self.device).expand(n, -1, -1)
            outputs.append(outputs_of(part, part_codes))
        return self.by_head(outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1))

    def by_head(self, raw: Tensor) -> Tensor:
        """Reshape outputs, (M, n * n_heads, n_outputs) -> (M * n_heads, n, n_outputs)."""
        if self.n_heads == 1:
            return raw
        return raw.unflatten(1, (-1, self.n_heads)).transpose(1, 2).flatten(0, 1)

    def _predictor(self, context: Context) -> Callable[[Tensor, Tensor | None], Tensor]:
        """Return a function that gives the raw outputs of a chunk."""

        def outputs(dense: Tensor, codes: Tensor | None) -> Tensor:
            with context():
                return cast(Tensor, self(dense, codes)).to(self.dtype)

        return outputs


class LayeredNetwork(StackedNetwork):
    """Linear, normalisation, activation, dropout mask, repeated; a linear layer at the end.

    Each layer of a residual network passes on its input and its output, concatenated.
    """

    linears: nn.ModuleList
    norms: nn.ModuleList
    activations: nn.ModuleList
    residual = False

    def _pass_layers(
        self, h: Tensor, masks: Sequence[Tensor] | None = None, valid: Tensor | None = None
    ) -> Tensor:
        layers = zip(self.linears, self.norms, self.activations, strict=False)
        for i, (linear, norm, activation) in enumerate(layers):
            out = linear(h)
            out = norm(out, valid) if isinstance(norm, StackedNorm) else norm(out)
            out = activation(out, valid)
            if masks is not None:
                out = out * masks[i]
            h = torch.cat([h, out], dim=-1) if self.residual else out
        return cast(Tensor, self.linears[-1](h))

    def chain(self, *, training: bool = True) -> Chain:
        """Passes in reused memory; without ``training`` there are forward passes only."""
        return Chain(
            [cast(StackedLinear, layer) for layer in self.linears],
            list(self.norms),
            list(self.activations),
            self.flat if training else None,
            residual=self.residual,
        )


class ChainNetwork(TableNetwork, LayeredNetwork):
    """Network of linear layers, each but the last with normalisation, activation and dropout.

    Parameters
    ----------
    members : sequence of Member
        The M networks of the stack.
    inputs : nn.Module
        First module, (dense, codes) -> (M, batch * n_heads, n_inputs), as ``StackedInputs``.
    linears : sequence of StackedLinear
        Linear layers. If the first one repeats the rows for all heads, the inputs do not.
    norms, activations : sequence of nn.Module
        Modules after each linear layer except the last: ``nn.Identity``, ``StackedNorm``,
        ``StackedActivation``, or another module (M, rows, width) -> (M, rows, width) whose
        parameters have a leading member axis. Activations are also called with ``valid``.
    n_heads : int, default=1
        Number of outputs (heads) per row and member.
    dtype, device
        Dtype and device of the parameters.
    """

    def __init__(
        self,
        members: Sequence[Member],
        inputs: nn.Module,
        linears: Sequence[StackedLinear],
        norms: Sequence[nn.Module],
        activations: Sequence[nn.Module],
        *,
        n_heads: int = 1,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        super().__init__(members)
        self.n_heads, self.inputs = n_heads, inputs
        self.linears, self.norms = nn.ModuleList(linears), nn.ModuleList(norms)
        self.activations = nn.ModuleList(activations)
        self.hidden = tuple(linear.weight.shape[2] for linear in linears[:-1])
        self.mask_widths = [n_heads * width for width in self.hidden]
        self._flatten(dtype, torch.device(device))
        self._step = self._make_step()

    def forward(
        self,
        dense: Tensor,
        codes: Tensor | None = None,
        masks: Sequence[Tensor] | None = None,
        valid: Tensor | None = None,
    ) -> Tensor:
        h = self.inputs(dense, codes)
        return self._pass_layers(h, *self._by_head(masks, valid))

    def _by_head(
        self, masks: Sequence[Tensor] | None, valid: Tensor | None
    ) -> tuple[Sequence[Tensor] | None, Tensor | None]:
        """Masks and places of all heads' rows."""
        n = self.n_heads
        if n > 1 and masks is not None:
            masks = [mask.unflatten(-1, (n, -1)).flatten(1, 2) for mask in masks]
        if n > 1 and valid is not None:
            valid = valid.repeat_interleave(n, 1)
        return masks, valid

    @torch.no_grad()
    def scale_outputs(self, i: int, factor: float) -> None:
        for values in (cast(StackedLinear, self.linears[-1]).weight, self.linears[-1].bias):
            cast(Tensor, values)[i] *= factor

    def gradients(
        self,
        dense: Tensor,
        objective: Callable[[Tensor], Tensor],
        codes: Tensor | None = None,
        masks: Sequence[Tensor] | None = None,
        valid: Tensor | None = None,
        context: Context = nullcontext,
    ) -> None:
        """Set ``flat.grads`` to the derivatives of ``objective(raw outputs)``, a scalar.

        Networks on a CPU, and networks of linear layers and unit-wise activations on any device,
        use kernels in preallocated memory. Other networks, and calls with a ``context`` such as an
        autocast, use autograd. ``masks`` are overwritten.
        """
        if self._step is None or context is not nullcontext:
            super().gradients(dense, objective, codes, masks, valid, context)
            return
        rows = self.inputs(dense, codes)
        masks, valid = self._by_head(masks, valid)
        by_rows = self._step.run(rows, masks, objective, valid)
        if by_rows is not None:
            self.flat.backward_through(self.inputs, rows, by_rows)

    def _predictor(self, context: Context) -> Callable[[Tensor, Tensor | None], Tensor]:
        # a step's buffers belong to the call
        step = self._make_step(training=False) if context is nullcontext else None
        if step is None:
            return super()._predictor(context)
        return lambda dense, codes: step.outputs(self.inputs(dense, codes))

    def _make_step(self, *, training: bool = True) -> Chain | None:
        if type(self).forward is not ChainNetwork.forward:  # it may compute something else
            return None
        step = self.chain(training=training)
        return step if self.device.type == "cpu" or step.plain else None

    def unflatten(self) -> Self:
        self._step = None
        return super().unflatten()

    def select(self, keep: Sequence[int]) -> None:
        """Keep only these members (increasing positions)."""
        super().select(keep)
        if self._step is not None:
            self._step.refresh()


# ---- Checks of activations before a training -----------------------------------------------------


def check_activation(
    spec: ActivationSpec, width: int, *, proxy_norm: bool = False, twice: bool = False
) -> None:
    """Check that a stack can train and predict with an activation, else raise an error.

    Parameters
    ----------
    spec : str or callable
        Activation. Custom modules are tested with rows of shape (8, width), in training and in
        evaluation mode.
    width : int
        Number of units.
    proxy_norm : bool, default=False
        Whether it will be wrapped in ProxyNorm.
    twice : bool, default=False
        Whether it must be twice differentiable, as for the gradient penalty of a critic.

    Raises
    ------
    ValueError
        If the module fails, changes the shape or the dtype, cannot be differentiated, makes the
        prediction of a row depend on other rows or on chance, has tensors that are neither
        parameters nor buffers, or was returned by an earlier call.
    TypeError
        If ``spec`` is neither a name nor a callable that returns a module.
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
    before = _tensors_of(module)
    y = _try(spec, module, x * scale, "in training")
    if not y.requires_grad:
        raise ValueError(f"activation={spec!r} cannot be differentiated")
    after = _tensors_of(module)
    changed = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
    if changed:
        raise ValueError(
            f"activation={spec!r}: its call made, dropped, reshaped or changed {changed}, which "
            "would not be kept with the best weights; register all that it keeps as buffers "
            "(register_buffer) at construction, in their shapes"
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
        result = (
            f"{tuple(y.shape)} of {y.dtype}" if isinstance(y, Tensor) else f"{type(y).__name__}"
        )
        raise ValueError(
            f"an activation keeps the shape and the type; {spec!r} made {result} of "
            f"{tuple(x.shape)} of {x.dtype}"
        )
    return y


def _tensors_of(module: nn.Module) -> dict[str, object]:
    """The shapes of buffers; the identity and values of tensors that are plain attributes."""
    tensors: dict[str, object] = {name: t.shape for name, t in module.named_buffers()}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, Tensor):
                tensors[f"{path}.{name}".lstrip(".")] = id(value), repr(value.tolist())
    return tensors
