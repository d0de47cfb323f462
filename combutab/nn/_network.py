"""Networks as specifications that build stacks, and what all networks share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn

from combutab.core.fields import Field, check_fields
from combutab.nn._chain import Chain
from combutab.nn._layers import MaskMaker, StackedLinear, StackedNorm
from combutab.nn._stack import Context, Member, StackedNetwork

if TYPE_CHECKING:
    from combutab.nn._stack import Member


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


class ChainNetwork(TableNetwork):
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
        Of the parameters.
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
        self.to(device)
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
        masks, valid = self._by_head(masks, valid)
        layers = zip(self.linears, self.norms, self.activations, strict=False)
        for i, (linear, norm, activation) in enumerate(layers):
            h = linear(h)
            h = norm(h, valid) if isinstance(norm, StackedNorm) else norm(h)
            h = activation(h, valid)
            if masks is not None:
                h = h * masks[i]
        return cast(Tensor, self.linears[-1](h))

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
        step = Chain(
            [cast(StackedLinear, layer) for layer in self.linears],
            list(self.norms),
            list(self.activations),
            self.flat if training else None,
        )
        return step if self.device.type == "cpu" or step.plain else None

    def unflatten(self) -> Self:
        self._step = None
        return super().unflatten()

    def select(self, keep: Sequence[int]) -> None:
        """Drop all members but these (increasing positions)."""
        super().select(keep)
        if self._step is not None:
            self._step.refresh()
