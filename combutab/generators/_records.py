"""Records and errors of the training and sampling of generators, and the noise of their members."""

from __future__ import annotations

import math
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from combutab._model_files import ACTIVATION
from combutab.core.device import PRECISIONS, Precision
from combutab.core.fields import Field, check_fields, choice, kind, several, whole
from combutab.core.rng import random_int64
from combutab.nn import NORMALIZATIONS, ActivationSpec, Member, RowSpans, StackedNetwork
from combutab.preprocessing import ModeTable, RowLayout

# ---- Errors of generators; who catches the ``ctgan`` package's errors catches ours too -----------


def data_error(error: ValueError) -> ValueError:
    """Make the error that says why a table cannot be learned.

    Where the ``ctgan`` package is loaded it is that package's ``InvalidDataError`` too. Whoever
    catches that has loaded it, so it is not imported for this.
    """
    theirs = sys.modules.get("ctgan.errors")
    return error if theirs is None else _joint_error(theirs.InvalidDataError)(str(error))


@cache
def _joint_error(theirs: Any) -> Any:
    def __reduce__(self: Any) -> tuple[Any, ...]:
        return data_error, (ValueError(*self.args),)

    return type(
        "InvalidDataError", (ValueError, theirs), {"__module__": __name__, "__reduce__": __reduce__}
    )


class ShortfallError(ValueError):
    """Fewer rows than were asked for met their conditions.

    Attributes
    ----------
    rows : DataFrame or array
        Those that were found, as ``sample`` would have returned them.
    """

    def __init__(self, message: str, rows: Any = None) -> None:
        super().__init__(message)
        self.rows = rows

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.rows)


def fall_short(what: str, rows: Any, on_shortfall: str, instead: str) -> None:
    """Tell of rows that were not found, and hand on those that were."""
    if on_shortfall == "return":
        warnings.warn(what, stacklevel=3)
        return
    kept = "; the rows found are the error's .rows, and on_shortfall='return' returns them"
    raise ShortfallError(what + (kept if len(rows) else "") + instead, rows)


# ---- Noise of a stack's members, each a function of the member's key and of nothing else ---------

_ONE = 0x3F800000  # the bits of 1.0 in float32, whose fraction is the last 23


def uniforms(keys: Sequence[int], *shape: int, device: torch.device) -> Tensor:
    """Draw float32 uniforms in the open interval (0, 1), (len(keys), *shape): two a 64-bit draw."""
    n = math.prod(shape)
    bits = random_int64(keys, -(-n // 2), device).view(torch.int32)
    # a random fraction is a number in [1, 2); half a step more, and neither end is met
    in_one_to_two = bits.bitwise_and_((1 << 23) - 1).bitwise_or_(_ONE).view(torch.float32)
    return in_one_to_two.sub_(1 - 2.0**-24)[:, :n].view(len(keys), *shape)


def normals(keys: Sequence[int], *shape: int, device: torch.device) -> Tensor:
    """Draw float32 standard normals, (len(keys), *shape), by Box and Muller's method."""
    n = math.prod(shape)
    half = -(-n // 2)
    radius, angle = uniforms(keys, 2, half, device=device).unbind(1)
    radius = radius.log().mul_(-2).sqrt_()
    angle = angle.mul(2 * math.pi)
    both = torch.empty(len(keys), 2, half, device=device)
    torch.mul(torch.cos(angle), radius, out=both[:, 0])
    torch.mul(angle.sin_(), radius, out=both[:, 1])
    return both.view(len(keys), -1)[:, :n].reshape(len(keys), *shape)


class DrawnBlocks:
    """Draws of a range of steps, kept until a step beyond them is asked for.

    On small tensors an operation costs more than its work: so numbers are drawn for some steps at
    once, as many as make about ``at_once`` numbers.
    """

    def __init__(
        self, n_numbers: int, draw: Callable[[range], list[Tensor]], *, at_once: int = 2**18
    ) -> None:
        self._size, self._draw = max(1, at_once // max(1, n_numbers)), draw
        self._block = -1
        self._drawn: list[Tensor] = []

    def __call__(self, step: int) -> list[Tensor]:
        """The part of one step: item ``step`` of the range, from each tensor."""
        block, place = divmod(step, self._size)
        if block != self._block:
            self._drawn = self._draw(range(block * self._size, (block + 1) * self._size))
            self._block = block
        return [drawn[place] for drawn in self._drawn]


# ---- Records: what the training and sampling of generators are given and give back ---------------

NetworkT = TypeVar("NetworkT", bound=StackedNetwork)  # that makes rows
Curves = dict[str, list[np.ndarray]]  # a loss of each member by epoch
State = dict[str, Tensor]  # of a member
_MOVED = 1 << 16  # rows at a time


@dataclass(frozen=True)
class TableRows:
    """An encoded table on its device, each row once: values (N, n_values), codes (N, n_spans)."""

    values: Tensor
    codes: Tensor

    @classmethod
    def on(cls, device: torch.device, table: ModeTable, dtype: torch.dtype) -> TableRows:
        """Copy an encoded table to a device."""
        values = torch.from_numpy(table.values).to(device, dtype)
        return cls(values, torch.from_numpy(table.codes).to(device))

    def __getitem__(self, index: Tensor) -> TableRows:
        return TableRows(self.values[index], self.codes[index])

    def keep(self, index: Tensor) -> TableRows:
        """Keep rows, given in their order, in the memory of all: no copy is made."""
        for tensor in (self.values, self.codes):
            for start in range(0, len(index), _MOVED):
                part = index[start : start + _MOVED]
                tensor[start : start + len(part)] = tensor[part]
        return TableRows(self.values[: len(index)], self.codes[: len(index)])

    def __len__(self) -> int:
        return len(self.codes)


class Rates(NamedTuple):
    """Rates of a network's optimiser: learning rate, and decay / 2 |parameters|^2 of the loss."""

    lr: float
    decay: float = 0.0


@dataclass(frozen=True)
class GeneratorPlan:
    """One member: what it is, and its own rates.

    ``rates`` has each network that is trained by steps; callbacks are told the first one's.
    """

    member: Member
    rates: Mapping[str, Rates]


@dataclass(frozen=True, kw_only=True)
class SampledShape(ABC, Generic[NetworkT]):
    """The network that makes rows as it was fitted, whatever an estimator's parameters are now.

    A file has the fields as JSON: a subclass's ``FIELDS`` say what those of its own may be.
    """

    widths: tuple[int, ...]
    activation: ActivationSpec
    n_members: int
    normalization: str
    proxy_norm: bool
    precision: str
    conditional: bool = False  # takes a condition vector

    FIELDS: ClassVar[dict[str, Field]] = {
        "widths": several(whole(1)),
        "activation": ACTIVATION,
        "n_members": whole(1, 2**62),
        "normalization": choice(*NORMALIZATIONS),
        "proxy_norm": kind(bool),
        "precision": choice(*PRECISIONS),
    }

    @classmethod
    def of(cls, model: object, widths: tuple[int, ...]) -> Self:
        """Make the shape that a model's parameters, named as the fields, ask for."""
        named = {f.name: getattr(model, f.name) for f in fields(cls) if hasattr(model, f.name)}
        return cls(**named, widths=widths)

    @classmethod
    def read(cls, values: Any) -> Self:
        """Read the record that a file describes.

        Raises ValueError if a field is missing, unknown, or not what it may be.
        """
        check_fields(values, {**cls.FIELDS, "conditional": choice(cls.conditional)}, "the shape")
        return cls(**values)

    @abstractmethod
    def linear_shapes(self, spans: RowSpans) -> dict[str, tuple[int, ...]]:
        """The shapes of a member's weights, by name, known before a network is made."""

    @abstractmethod
    def build(self, spans: RowSpans, members: Sequence[Member]) -> NetworkT:
        """The network, weights as they come."""


@dataclass(frozen=True, kw_only=True)
class LatentShape(SampledShape[NetworkT]):
    """The shape of a network that makes rows of a latent vector."""

    embedding_dim: int

    FIELDS = {**SampledShape.FIELDS, "embedding_dim": whole(1, 2**62)}


class PointChoices(NamedTuple):
    """Values of a column of which each row is to have one, by the code that they have."""

    value_index: int
    by_code: Mapping[int, Sequence[float]]


class RowRequest(NamedTuple):
    """Rows asked of a network: ``n_rows`` rows a member, each by the member's key."""

    keys: Sequence[int]
    n_rows: int
    condition: Tensor  # (M, n_rows, n_condition); of no width where the network takes none
    allowed: Mapping[int, Sequence[int]]  # span -> the codes that may be drawn
    # of networks that draw some columns beside others that are given
    codes: Tensor | None = None  # (M, n_rows, n_spans): those that are given; -1 where none is
    values: Tensor | None = None  # (M, n_rows, n_values), as codes; NaN where none is
    points: Mapping[int, PointChoices] = {}  # span -> the values wanted there


class RowsDrawn(NamedTuple):
    """Rows of each member: (M, n_rows, n_values), (M, n_rows, n_spans) int64, (M, n_rows)."""

    values: Tensor
    codes: Tensor
    probability: Tensor  # how probable the allowed codes were


ENDS = {  # why a training ended, and what a fitted generator says of it
    "epochs": "",
    "no_improvement": ", ended by early stopping",
    "max_time": ", ended by max_time",
    "callback": ", ended by a callback",
    "interrupted": ", ended by Ctrl-C",
}


@dataclass
class GeneratorResult:
    """The result of one member: the state of the network that makes rows, and curves by epoch."""

    state: State
    losses: dict[str, list[float]] = field(default_factory=dict)
    reason: str = "epochs"  # of ENDS, or "diverged"

    @property
    def n_epochs(self) -> int:
        return len(next(iter(self.losses.values()), []))


def make_spans(layout: RowLayout, device: torch.device, precision: Precision) -> RowSpans:
    """The operations on rows of a layout; its discrete columns may be conditions."""
    categories = [i for i, span in enumerate(layout.spans) if span.kind == "category"]
    return RowSpans(
        layout.n_values,
        layout.sizes,
        categories,
        missing=[i for i, span in enumerate(layout.spans) if span.missing],
        suppressed=layout.suppressed,
        device=device,
        dtype=precision.dtype,
    )
