"""Docstrings of the public estimators, with the shared sections from their base classes."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import TypeVar

T = TypeVar("T", bound=type)


def document(cls: T) -> T:
    """Fill ``{parameters}`` and ``{attributes}`` into a class's docstring, from those of its bases.

    Texts of packs say ``{member}`` for the class of their members.
    """
    member = getattr(cls, "_member_class", cls).__name__
    sections = {
        name: textwrap.indent(_section(cls, name.title()), "    ").lstrip()
        for name in ("parameters", "attributes")
    }
    cls.__doc__ = (cls.__doc__ or "").format(**sections).replace("{member}", member)
    return cls


def _section(cls: type, title: str) -> str:
    """The text below a title of numpydoc, of the last base that has one: the most general."""
    for base in reversed(cls.__mro__[1:]):
        doc = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        _, heading, text = doc.partition(f"{title}\n{'-' * len(title)}\n")
        if heading and base.__module__.startswith("combutab.estimators"):
            return re.split(r"\n\n\w+\n---", text)[0]
    return ""
