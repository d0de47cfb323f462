"""Declared fields: what a stranger says is held against its name, type and limits before use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

_LARGEST = 2**31 - 1  # of counts and sizes


@dataclass(frozen=True)
class Field:
    """Describe what a value must be, in words, and test it."""

    says: str
    holds: Callable[[Any], bool]
    optional: bool = False


def whole(least: int = 0, most: int = _LARGEST) -> Field:
    """An integer within bounds; truth values are none.

    >>> [whole(1).holds(value) for value in (1, 0, True, 1.0)]
    [True, False, False, False]
    """
    return Field(
        f"a whole number from {least} to {most}", lambda v: type(v) is int and least <= v <= most
    )


def number(*, finite: bool = True) -> Field:
    """A float or an integer."""
    return Field(
        "a finite number" if finite else "a number",
        lambda v: type(v) in (int, float) and (not finite or abs(v) < math.inf),
    )


def text(most: int = 10_000) -> Field:
    """Text of so many characters at most."""
    return Field(f"text of at most {most} characters", lambda v: type(v) is str and len(v) <= most)


def choice(*values: Any) -> Field:
    """One of these; 1 is not True."""
    return Field(
        "one of " + ", ".join(map(repr, values)),
        lambda v: any(type(v) is type(one) and v == one for one in values),
    )


def kind(*types: type) -> Field:
    """An instance of one of these types, not of their subclasses."""
    return Field(" or ".join(t.__name__ for t in types), lambda v: type(v) in types)


def nullable(field: Field) -> Field:
    """The field, or None."""
    return replace(field, says=f"{field.says} or None", holds=lambda v: v is None or field.holds(v))


def optional(field: Field) -> Field:
    """A field that may be absent: files of earlier versions lack it."""
    return replace(field, optional=True)


def pair(first: Field, second: Field) -> Field:
    """Two values, one of each."""
    return Field(
        f"a pair of {first.says} and {second.says}",
        lambda v: (
            type(v) in (list, tuple) and len(v) == 2 and first.holds(v[0]) and second.holds(v[1])
        ),
    )


def several(field: Field, least: int = 0) -> Field:
    """A list or tuple, all of whose items are such."""
    return Field(
        f"a list of at least {least}, each {field.says}",
        lambda v: type(v) in (list, tuple) and len(v) >= least and all(map(field.holds, v)),
    )


def check_fields(values: Any, fields: Mapping[str, Field], where: str) -> None:
    """Refuse a dict that lacks a field, has another one, or one that is not what it must be.

    >>> check_fields({"epochs": -1}, {"epochs": whole()}, "the header")
    Traceback (most recent call last):
        ...
    ValueError: epochs in the header must be a whole number from 0 to 2147483647, got -1
    """
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be an object, got a {type(values).__name__}")
    unknown = sorted(set(values) - set(fields))
    absent = sorted(n for n, field in fields.items() if n not in values and not field.optional)
    if unknown or absent:
        raise ValueError(f"{where} lacks {absent} and has {unknown} that are unknown"[:500])
    for name, value in values.items():
        if not fields[name].holds(value):
            raise ValueError(f"{name} in {where} must be {fields[name].says}, got {_short(value)}")


def _short(value: Any) -> str:
    if isinstance(value, list | tuple | dict) and len(value) > 20:
        return f"a {type(value).__name__} of {len(value)}"
    said = repr(value)
    return said if len(said) <= 100 else said[:100] + " ..."
