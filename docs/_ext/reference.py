"""A page for every public name, and one for every package that has them."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import pkgutil
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

import combutab

# A package within one of combutab's that is spoken to by its own name
WITHIN = {"combutab.generators": ["combutab.generators.sdv"]}
# Packages that estimators and generators are made of: their classes have no list of methods
INSIDE = {"combutab.nn", "combutab.preprocessing", "combutab.training"}
# The methods on the page of a class and of its subclasses, where these are not all public ones
METHODS = {
    "Activation": (),
    "Callback": (
        *("on_train_begin", "on_epoch_begin", "on_epoch_network"),
        *("on_epoch_end", "on_train_end", "on_train_results"),
    ),
    "ComparisonPlan": (),
    "ConstructedNetwork": ("check_rounding", "rounding_error"),
    "Constraint": ("check", "to_dict"),
    "ModeEncoder": ("fit", "encode", "decode"),
    "NetworkSpec": ("build",),
    "TableEncoder": ("fit", "transform", "fit_transform", "get_feature_names_out"),
}


@dataclass(frozen=True)
class Name:
    package: str  # where its page is: the shortest name that it is imported by
    name: str

    @property
    def full(self) -> str:
        return f"{self.package}.{self.name}"

    @property
    def page(self) -> str:
        return f"api/{self.full}"


def packages() -> list[str]:
    """Public packages: combutab, those directly below it that say what they have, `WITHIN`."""
    found = ["combutab"]
    for module in pkgutil.iter_modules(combutab.__path__):
        full = f"combutab.{module.name}"
        if module.name.startswith("_") or module.name == "cli":  # which has a page of commands
            continue
        if hasattr(importlib.import_module(full), "__all__"):
            found += [full, *WITHIN.get(full, ())]
    return found


def names() -> dict[str, list[Name]]:
    """Package -> its public names. A name of two packages has its page in the first."""
    homes: dict[str, Name] = {}
    found: dict[str, list[Name]] = {}
    for package in packages():
        module = importlib.import_module(package)
        found[package] = []
        for name in sorted(module.__all__, key=str.lower):
            home = homes.setdefault(name, Name(package, name))
            if getattr(importlib.import_module(home.package), name) is not getattr(module, name):
                home = Name(package, name)  # another thing of the same name
            found[package].append(home)
    return found


def kind(thing: Any) -> str:
    if inspect.isclass(thing):
        return "exception" if issubclass(thing, BaseException) else "class"
    return "function" if inspect.isroutine(thing) else "data"


def own_members(cls: type) -> list[tuple[str, Any]]:
    """Public methods and properties of a class that combutab wrote, inherited ones too."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if base.__module__.split(".")[0] != "combutab":
            continue
        for name, member in vars(base).items():
            function = getattr(member, "__func__", member)
            is_member = isinstance(member, property | cached_property) or (
                inspect.isfunction(function) or type(member).__name__ == "_AvailableIfDescriptor"
            )
            if (
                is_member
                and not name.startswith("_")
                and (inspect.getdoc(getattr(cls, name, None)) or "").strip()
            ):
                found.setdefault(name, member)
    if issubclass(cls, torch.nn.Module):  # what torch calls
        found.pop("forward", None)
        found.pop("extra_repr", None)
    listed = [METHODS[base.__name__] for base in cls.__mro__ if base.__name__ in METHODS]
    if not listed and ".".join(cls.__module__.split(".")[:2]) in INSIDE:
        listed = [()]
    return sorted((name, found[name]) for name in found if not listed or name in listed[0])


def page(name: Name, more: Sequence[str] = ()) -> str:
    """Lay out the page of a name, as reStructuredText; ``more`` stands above its methods."""
    thing = getattr(importlib.import_module(name.package), name.name)
    lines = [name.name, "=" * len(name.name), "", f".. currentmodule:: {name.package}", ""]
    what = kind(thing)
    if what == "data":  # autodoc finds what is said of it only where it is defined
        lines += [f".. py:data:: {name.full}"]
        if isinstance(thing, int | float | str):
            lines += [f"   :value: {thing!r}"]
        lines += ["", textwrap.indent(said_of_data(name.package, name.name), "   "), ""]
        lines += [f"   {line}" for line in contents(thing)]
    else:
        lines += [f".. auto{what}:: {name.full}"]
    lines += ["", *more]
    if what == "class" and (members := [member for member, _ in own_members(thing)]):
        # below the class, each a heading of its own: a list of them stands at the side
        lines += ["", "Methods", "-------", ""]
        for member in members:
            static = inspect.getattr_static(thing, member)
            how = "property" if isinstance(static, property | cached_property) else "method"
            lines += [f".. auto{how}:: {name.full}.{member}", ""]
    return "\n".join(lines) + "\n"


def said_of_data(module: str, name: str) -> str:
    """The text below the assignment of a constant, or the comment beside or above it."""
    source = Path(str(importlib.import_module(module).__file__)).read_text("utf-8")
    body = ast.parse(source).body
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    for node in imports:
        if node.module and any((alias.asname or alias.name) == name for alias in node.names):
            return said_of_data(node.module, name)
    lines = source.splitlines()
    for node, after in zip(body, [*body[1:], None], strict=True):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                return str(after.value.value)
            above = itertools.takewhile(
                lambda line: line.startswith("#"), reversed(lines[: node.lineno - 1])
            )
            beside = lines[node.end_lineno - 1].partition("  # ")[2]
            return beside or " ".join(line.strip("# ") for line in reversed(list(above)))
    return ""


def contents(thing: Any) -> list[str]:
    """List what a registry or a list of names holds."""
    if not isinstance(thing, dict | tuple | list | frozenset | set) or not thing:
        return []
    shown = ", ".join(f"``{entry}``" for entry in thing if isinstance(entry, str))
    return ["Its names: " + shown + ".", ""] if shown else []


def overview(package: str, found: list[Name]) -> str:
    """Lay out the page of a package: what it is for, and its names with a sentence each."""
    said = inspect.getdoc(importlib.import_module(package)) or ""
    first = said.split("\n\n")[0]
    heading = package
    lines = [heading, "=" * len(heading), "", f".. py:module:: {package}", "", first, ""]
    groups: dict[str, list[Name]] = {}
    for name in found:
        thing = getattr(importlib.import_module(name.package), name.name)
        groups.setdefault(kind(thing), []).append(name)
    titles = {"class": "Classes", "function": "Functions", "data": "Constants"}
    for what, title in {**titles, "exception": "Errors"}.items():
        if groups.get(what):
            lines += [title, "-" * len(title), "", ".. list-table::", "   :widths: 32 68", ""]
            for name in groups[what]:
                lines += [f"   * - :doc:`{name.name} </{name.page}>`", f"     - {sentence(name)}"]
            lines += [""]
    lines += [".. toctree::", "   :hidden:", ""]
    lines += [f"   /{name.page}" for name in found if name.package == package]
    return "\n".join(lines) + "\n"


def sentence(name: Name) -> str:
    """Give the first sentence of what is said of a name, on one line."""
    thing = getattr(importlib.import_module(name.package), name.name)
    is_data = kind(thing) == "data"
    said = said_of_data(name.package, name.name) if is_data else inspect.getdoc(thing) or ""
    said = textwrap.dedent(said).strip().split("\n\n")[0]
    said = re.sub(r"\s+", " ", said)
    if is_data and isinstance(thing, int | float | str):
        return f"``{thing!r}``"
    return said.split(". ")[0].rstrip(".:") + "." if said else ""


def write(folder: Path, more: Mapping[str, Sequence[str]]) -> None:
    """Write all of these pages; ``more`` has, by full name, what else is to stand on a page."""
    found = names()
    for package, listed in found.items():
        put(folder / f"{package}.rst", overview(package, listed))
        for name in listed:
            put(folder / f"{name.full}.rst", page(name, more.get(name.full, ())))
    lines = ["API reference", "=" * 13, ""]
    lines += ["Public names by package. Names with a leading underscore are private.", ""]
    lines += package_table(package for package in found if package not in INSIDE)
    lines += ["   * - :doc:`command_line`", "     - The ``combutab`` command."]
    lines += ["   * - :doc:`activations_drawn`", "     - Equations, curves and derivatives."]
    lines += ["", "For extensions of the library:", ""]
    lines += package_table(package for package in found if package in INSIDE)
    lines += ["", ".. toctree::", "   :hidden:", "", *[f"   {p}" for p in found]]
    lines += ["   command_line", "   activations_drawn"]
    put(folder / "index.rst", "\n".join(lines) + "\n")


def package_table(packages: Iterable[str]) -> list[str]:
    """Lay out a table of packages with the first sentence of each."""
    lines = [".. list-table::", "   :widths: 32 68", ""]
    for package in packages:
        said = (inspect.getdoc(importlib.import_module(package)) or "").split("\n\n")[0]
        said = re.sub(r"\s+", " ", said)
        lines += [f"   * - :doc:`{package}`", f"     - {said}"]
    return lines


def put(path: Path, text: str) -> None:
    """Write a page if it is another than last time: Sphinx reads again what was touched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
