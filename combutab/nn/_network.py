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

from combutab.core.files import Field, check_fields
from combutab.core.rng import Stream, fold_in
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
)

# ---- The base of stacked networks: tensors as rows of a matrix, states of members by name --------

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
    drawn: bool = True  # False: the first weights are zeros, as a state is loaded


def weight_generators(members: Sequence[Member], seeds: Sequence[int]) -> Generators:
    """The generators of the members' first weights, by a seed each; None for what is loaded."""
    return [
        torch.Generator().manual_seed(fold_in(seed, Stream.WEIGHTS) >> 1) if member.drawn else None
        for member, seed in zip(members, seeds, strict=True)
    ]


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

    @property
    def flats(self) -> tuple[FlatTensors, FlatTensors]:
        """The matrices of parameters and of floating-point buffers."""
        return self.flat, self.flat_buffers

    def _flatten(self, dtype: torch.dtype, device: torch.device) -> None:
        self.to(device=device, dtype=dtype)
        m = self.n_members
        weights: list[StackedTensor] = []
        others: list[StackedTensor] = []
        buffers: list[StackedTensor] = []
        self._integer_buffers: list[StackedTensor] = []
        for entry in self._entries("", self):
            tensor = entry.tensor
            if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
                (weights if self._is_decayed(entry) else others).append(entry)
            else:  # a frozen parameter is a buffer: it is kept, and not trained
                floating = tensor.is_floating_point()
                (buffers if floating else self._integer_buffers).append(entry)
        slots, width = assign_columns([*weights, *others], m)
        self.n_decayed = sum(s.columns.stop - s.columns.start for s in slots[: len(weights)])
        self.flat = FlatTensors(slots, width, m, dtype=dtype, device=device, with_grad=True)
        slots, width = assign_columns(buffers, m)
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
        factors = np.ones(self.flat.values.shape[1])
        for slot in self.flat.slots:
            factors[slot.columns] = by_role.get(parameter_role(slot), 1.0)
        edges = [0, *(np.flatnonzero(np.diff(factors)) + 1).tolist(), len(factors)]
        return [(slice(a, b), float(factors[a])) for a, b in itertools.pairwise(edges)]

    def _is_decayed(self, entry: StackedTensor) -> bool:
        """Tell whether penalties on the weights apply to a parameter."""
        return isinstance(entry.module, StackedLinear) and entry.attribute == "weight"

    def _entries(self, prefix: str, module: nn.Module) -> Iterator[StackedTensor]:
        """All tensors below a module; those of an activation slot have the slot's name."""
        if isinstance(module, StackedActivation):
            for group, kind in zip(module.groups, module.kinds, strict=True):
                start, stop = group.start, group.stop
                yield from _own(prefix, kind, start, stop)
                if isinstance(kind, SeparateModules):
                    for i in range(stop - start):
                        for name, owner, attribute in kind.tensors(i):
                            place = start + i
                            yield StackedTensor(
                                prefix + name, owner, attribute, place, place + 1, False
                            )
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
        for flat in self.flats:
            flat.select(keep)
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
        for flat in self.flats:
            flat.load_member(i, state)
        for name, value in self._integers(i).items():
            value.copy_(state[name])


def parameter_role(entry: StackedTensor) -> str:
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


def _own(prefix: str, module: nn.Module, start: int, stop: int) -> Iterator[StackedTensor]:
    """The tensors that a module itself holds, stacked."""
    for pairs in (module.named_parameters(recurse=False), module.named_buffers(recurse=False)):
        for name, _ in pairs:
            yield StackedTensor(f"{prefix}{name}", module, name, start, stop)


def fill_gradients(loss: Tensor, *networks: StackedNetwork) -> None:
    """Set the ``flat.grads`` of networks that share a loss, in one backward pass.

    Parameters
    ----------
    loss : Tensor, a scalar
    networks : StackedNetwork
        An encoder and its decoder, say.
    """
    backward(loss, [network.flat for network in networks])


# ---- Specs: what a network is made of, before there is one; frozen, comparable, saved as JSON ----


class NetworkSpec(ABC):
    """The settings that all members of a stack share; subclasses are frozen, with a ``kind``.

    ``n_dense`` and ``cardinalities`` are of the columns that it takes, as the table's encoder
    gives them; ``fields`` says what each of its own fields may be in a file, if it is to be read
    from one.

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
        known = NetworkSpec.kinds.get(kind, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"there is a network of kind {kind!r} already: {known.__qualname__}")
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
        """Units that a row takes in each layer, inputs and outputs included, of all heads."""

    @abstractmethod
    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of a member's weights, by their names in its state."""

    @property
    def needs_rows(self) -> bool:
        """Whether the initial weights depend on rows, through the network's ``start_from``."""
        return False

    @property
    def peak_units(self) -> int:
        """Units of the widest layer."""
        return max(self.widths)

    @property
    def n_weights(self) -> int:
        """Numbers that a member learns."""
        return sum(math.prod(shape) for shape in self.array_shapes().values())

    def to_json(self) -> dict[str, Any]:
        """The fields, and the kind."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    @staticmethod
    def from_json(record: Any) -> NetworkSpec:
        """The spec that ``to_json`` described.

        Raises
        ------
        ValueError
            If the record is of no kind that there is, or its fields are not that kind's.
        """
        if not isinstance(record, dict):
            raise ValueError(f"the shape must be an object, got a {type(record).__name__}")
        kind = record.get("kind")
        if not isinstance(kind, str) or kind not in NetworkSpec.kinds:
            raise ValueError(f"the network is of the unknown kind {str(kind)[:50]!r}")
        cls = NetworkSpec.kinds[kind]
        own = {name: value for name, value in record.items() if name != "kind"}
        check_fields(own, cls.fields, "the shape")
        return cls(**{n: tuple(v) if isinstance(v, list) else v for n, v in own.items()})


# ---- Networks that take a table's rows: what the training loop and an estimator ask of them ------


class TableNetwork(StackedNetwork):
    """M networks of encoded rows; a subclass makes its layers and defines ``forward``.

    With several heads, which share weights, ``forward`` gives each row's raw outputs once a head,
    one behind the other; training averages their losses.
    """

    n_heads = 1

    def forward(
        self,
        dense: Tensor,
        codes: Tensor | None = None,
        masks: Sequence[Tensor] | None = None,
        valid: Tensor | None = None,
    ) -> Tensor:
        """Raw outputs, (M, batch * n_heads, n_outputs), of columns as the encoder gives them.

        ``masks`` are what ``mask_maker`` draws; ``valid``, (M, batch), says which places hold a
        row, where members' batches are not equally long.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward pass")

    def start_from(
        self, dense: Tensor, codes: Tensor | None, seeds: Sequence[int], members: Sequence[int]
    ) -> None:
        """Fit the initial weights of some members to rows, if the spec ``needs_rows``.

        Parameters
        ----------
        dense, codes : Tensor, (M, n, ...)
            Rows of each member.
        seeds : sequence of int
            One a member, of what is drawn.
        members : sequence of int
        """

    def scale_outputs(self, i: int, factor: float) -> None:
        """Multiply member i's raw outputs, for good: what calibration ends with."""
        raise TypeError(f"{type(self).__name__} cannot scale its outputs; use calibration=None")

    def mask_maker(self) -> MaskMaker:
        """Draws a step's random factors; none, unless a subclass has layers that drop out."""
        return self._masks(())

    def _masks(self, widths: Sequence[int]) -> MaskMaker:
        rates = [member.dropout for member in self.members]
        return MaskMaker(widths, rates, device=self.device, dtype=self.dtype)

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

        The forward pass runs within ``context`` (an autocast, say). ``masks`` are used up.
        """
        with context():
            raw = self(dense, codes, masks, valid)
        self.flat.backward(objective(raw))

    @torch.inference_mode()
    def predict(
        self, dense: Tensor, codes: Tensor | None, chunk: int, context: Context = nullcontext
    ) -> Tensor:
        """Raw outputs without dropout of rows that all members share, ``chunk`` rows at a time.

        Threads may predict with one network. A member's heads stand one behind the other: an
        average over the first axis is one over members and heads.

        Shape
        -----
        dense : (n, n_dense), codes : (n, n_codes) int64 -> (M * n_heads, n, n_outputs)
        """
        outputs_of, outputs = self._predictor(context), []
        for start in range(0, len(dense), chunk):
            part = self._for_all(dense[start : start + chunk])
            part_codes = None if codes is None else self._for_all(codes[start : start + chunk])
            outputs.append(outputs_of(part, part_codes))
        return self.by_head(outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1))

    def by_head(self, raw: Tensor) -> Tensor:
        """Outputs of ``forward``, (M, n * n_heads, n_outputs) -> (M * n_heads, n, n_outputs)."""
        if self.n_heads == 1:
            return raw
        return raw.unflatten(1, (-1, self.n_heads)).transpose(1, 2).flatten(0, 1)

    def _for_all(self, rows: Tensor) -> Tensor:
        rows = rows.to(self.device)
        return rows.expand(self.n_members, *rows.shape)

    def _predictor(self, context: Context) -> Callable[[Tensor, Tensor | None], Tensor]:
        """Return a function that gives the raw outputs of a chunk."""

        def outputs(dense: Tensor, codes: Tensor | None) -> Tensor:
            with context():
                return cast(Tensor, self(dense, codes)).to(self.dtype)

        return outputs


class LayeredNetwork(StackedNetwork):
    """Linear, normalisation, activation, dropout mask, time and again; linear at the end.

    A residual network's layer passes on its input beside its output, concatenated.
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
        """Forward and backward passes in memory of their own; for predictions alone without."""
        return Chain(
            [cast(StackedLinear, layer) for layer in self.linears],
            list(self.norms),
            list(self.activations),
            self.flat if training else None,
            residual=self.residual,
        )


class ChainNetwork(TableNetwork, LayeredNetwork):
    """Inputs, then linear, normalisation, activation, dropout, time and again; linear at the end.

    Parameters
    ----------
    members : sequence of Member
    inputs : nn.Module
        (dense, codes) -> (M, batch * n_heads, n_inputs), as ``StackedInputs``.
    linears : sequence of StackedLinear
        The first may be one that gives each row to all heads; then the inputs need not.
    norms, activations : sequence of nn.Module
        One less than the linears: ``nn.Identity``, ``StackedNorm`` or ``StackedActivation``, or
        another module (M, rows, width) -> the same, whose parameters have a leading member axis.
        An activation is called with ``valid`` beside the units.
    n_heads : int
        How often the inputs give each row.
    dtype, device
        Type and device of the parameters.
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
        self._flatten(dtype, torch.device(device))
        self._step = self._make_step()

    def mask_maker(self) -> MaskMaker:
        """The dropout masks of this stack's layers, heads and rates."""
        return self._masks([self.n_heads * width for width in self.hidden])

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

        Networks on a CPU, and plain ones on any device, take steps in memory of their own; the
        others go through autograd within ``context`` (an autocast, say). ``masks`` are used up.
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
        """Drop all members but these (increasing positions)."""
        super().select(keep)
        if self._step is not None:
            self._step.refresh()
