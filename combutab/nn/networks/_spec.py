"""Specs: what a network is made of, before there is one; frozen, comparable, saved as JSON."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from combutab._fields import Field, check_fields

if TYPE_CHECKING:
    from combutab.nn._stack import Member
    from combutab.nn.networks._network import TableNetwork

_FIRST = "mlp"  # files of before there were kinds do not name theirs


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
        kind = record.get("kind", _FIRST)
        if not isinstance(kind, str) or kind not in NetworkSpec.kinds:
            raise ValueError(f"the network is of the unknown kind {str(kind)[:50]!r}")
        cls = NetworkSpec.kinds[kind]
        own = {name: value for name, value in record.items() if name != "kind"}
        check_fields(own, cls.fields, "the shape")
        return cls(**{n: tuple(v) if isinstance(v, list) else v for n, v in own.items()})
