"""Parameters of models, each declared once: default, allowed values, and purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, Options

COUNT = Interval(Integral, 1, None, closed="left")
INFINITE = Options(Real, {np.inf})
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
SHARE = Interval(Real, 0, 1, closed="left")
RANDOM_STATE = ("random_state", np.random.Generator)


def parameter(default: Any, *allowed: object, concerns: str = "") -> Any:
    """Declare a parameter of a constructor as a field of a dataclass.

    ``allowed`` lists constraints of ``sklearn.utils._param_validation``. ``concerns`` is a topic by
    which `DeclaredParameters._parameters_of` finds parameters.
    """
    return field(default=default, metadata={"allowed": list(allowed), "concerns": concerns})


def table_tags(tags: Any, *, sparse: bool = False) -> Any:
    """Add to scikit-learn's tags of an estimator that it takes tables of any columns."""
    for name in ("allow_nan", "string", "categorical"):
        setattr(tags.input_tags, name, True)
    tags.input_tags.sparse = sparse
    return tags


class DeclaredParameters:
    """Collects ``_parameter_constraints`` of a dataclass from its base classes and its fields."""

    _parameter_constraints: ClassVar[Mapping[str, Sequence[object]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        constraints: dict[str, Sequence[object]] = {}
        for base in reversed(cls.__mro__):
            constraints |= vars(base).get("_parameter_constraints", {})
        for name, value in vars(cls).items():
            if isinstance(value, Field) and "allowed" in value.metadata:
                constraints[name] = value.metadata["allowed"]
        cls._parameter_constraints = constraints

    @classmethod
    def _parameters_of(cls, topic: str) -> list[str]:
        """List the parameters that are declared with this topic, in their order.

        A subclass that only changes a default does not have to repeat the topic.
        """
        dataclass_type: Any = cls
        concerns: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            for name, value in getattr(base, "__dataclass_fields__", {}).items():
                concerns[name] = value.metadata.get("concerns") or concerns.get(name, "")
        return [
            parameter_field.name
            for parameter_field in fields(dataclass_type)
            if concerns[parameter_field.name] == topic
        ]
