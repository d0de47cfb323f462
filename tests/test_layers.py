"""Imports go one way, packages speak through their public names, and those are documented."""

import ast
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

import pytest

import combutab

PACKAGE = Path(combutab.__file__).parent
ROOT = Path(__file__).parents[1]

# Every arrow that may be drawn, from a module or package directly below combutab to the others.
_NETS = {"core", "activations", "constructions", "nn", "training", "preprocessing", "_model_files"}
_NETS |= {"_version"}
ALLOWED = {
    "_version": set(),
    "_openmp": set(),
    "core": {"_version"},
    "activations": {"core"},
    "preprocessing": {"core"},
    "datasets": {"core", "preprocessing"},  # columns of amounts in files
    "constructions": {"activations", "datasets"},  # formulas are parsed there
    "_model_files": {"core", "activations", "constructions", "_version"},
    "mlflow": {"_model_files", "_version"},
    "nn": {"activations", "core"},
    "training": {"nn", "core"},
    "estimators": _NETS,
    "evaluation": {"estimators", *_NETS},  # ml_efficacy trains our networks
    "generators": _NETS,
    "model_selection": {"estimators", "evaluation", *_NETS},
    "inspection": {"estimators", "evaluation", *_NETS},
    "plotting": {
        "inspection",
        "model_selection",
        "estimators",
        "generators",
        "evaluation",
        "datasets",
        *_NETS,
    },
    "reports": {
        "plotting",
        "inspection",
        "model_selection",
        "estimators",
        "evaluation",
        "preprocessing",
        "core",
        "_version",
    },
    "cli": {
        *(
            "reports",
            "plotting",
            "inspection",
            "model_selection",
            "estimators",
            "generators",
            "evaluation",
        ),
        *("datasets", *_NETS),
    },
    "__main__": {"cli"},
    "__init__": {"activations", "estimators", "generators", "model_selection"},
}
ALLOWED["__init__"] |= {"_version", "_openmp", "_model_files"}


def imported_modules(source, module, *, is_package=False):
    """Dotted names of all modules that a source imports, wherever in it, relative ones resolved.

    ``from a import b`` gives ``a.b``: whether b is a module or a name in one, a is a prefix.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                parents = parents[: len(parents) - node.level + is_package]
                base = ".".join([*parents, *([base] if base else [])])
            found += [f"{base}.{alias.name}" for alias in node.names]
    return found


def wrong_arrows(source, module, *, is_package=False):
    """What a module of combutab imports of ours and should not, each as one line."""
    unit = unit_of(module)
    if unit not in ALLOWED:
        return [f"{module} is in no layer: add it to ALLOWED"]
    wrong = []
    for name in imported_modules(source, module, is_package=is_package):
        top, *rest = name.split(".")
        if top != "combutab":
            continue
        target = rest[0] if rest else "__init__"
        if target == unit and unit != "__init__":
            continue
        if target not in ALLOWED[unit]:
            wrong.append(f"{module} imports {name}: {unit} may not import {target}")
        elif any(part.startswith("_") and part != "__version__" for part in rest[1:]):
            wrong.append(f"{module} imports {name}: that is private to {target}")
    return wrong


def unit_of(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def sources():
    """(dotted name, path) of every module of combutab."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ["combutab", *path.relative_to(PACKAGE).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        yield ".".join(parts), path


def packages():
    """All that have public names: core's are for the other packages."""
    below = [info.name for info in pkgutil.iter_modules(combutab.__path__) if info.ispkg]
    return ["combutab"] + [f"combutab.{name}" for name in below if name != "core"]


def test_imports_go_one_way():
    wrong = [
        arrow
        for module, path in sources()
        for arrow in wrong_arrows(
            path.read_text("utf-8"), module, is_package=path.name == "__init__.py"
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_the_layers_have_no_cycle():
    order = list(ALLOWED)
    for unit, targets in ALLOWED.items():
        assert all(order.index(target) < order.index(unit) for target in targets - {unit}), unit


WRONG = """
activations._combu: from combutab.nn import StackedLinear
activations._combu: import combutab.training as t
activations._combu: from ..nn import StackedLinear
activations._combu: from .. import nn
activations._combu: import combutab
training._trainer: def f(): from combutab.estimators import MLPClassifier
evaluation._statistics: import combutab.model_selection
estimators._base: from combutab.generators import CTGAN
estimators._base: from combutab.nn._mlp import StackedMLP
estimators._base: from combutab.nn import _mlp
plotting: import combutab.cli
core.rng: from combutab.activations import CombU
helpers: import os
"""
RIGHT = """
nn._mlp: from combutab.activations import CombU
nn._mlp: from combutab.nn._layers import StackedLinear
evaluation._statistics: from ._intervals import Interval; import scipy
training._trainer: from combutab.core.rng import fold_in
"""


@pytest.mark.parametrize(("lines", "n_wrong"), [(WRONG, 1), (RIGHT, 0)])
def test_wrong_arrows_are_found_and_right_ones_pass(lines, n_wrong):
    for line in lines.strip().splitlines():
        module, source = line.split(": ", 1)
        assert len(wrong_arrows(source, f"combutab.{module}")) == n_wrong, line


def test_activations_need_torch_alone():
    for module, path in sources():
        if unit_of(module) == "activations":
            tops = {
                name.split(".")[0] for name in imported_modules(path.read_text("utf-8"), module)
            }
            assert tops <= {"torch", "combutab", ""} | sys.stdlib_module_names, module


@pytest.mark.parametrize("folder", ["benchmarks", "examples"])
def test_scripts_use_public_names_only(folder):
    scripts = sorted((ROOT / folder).rglob("*.py"))
    assert scripts
    for script in scripts:
        for name in imported_modules(script.read_text("utf-8"), script.stem):
            top, *rest = name.split(".")
            if folder == "benchmarks" and rest[:2] == ["core", "files"]:
                continue  # all that writes files goes through it
            private = [part for part in rest if part.startswith("_") and part != "__version__"]
            assert top != "combutab" or not private, f"{script.name} imports {name}"


# ---- files: circles, private names, names that are defined twice ---------------------------------

# Still there, and to become fewer: a change that adds one says what it takes away.
PRIVATE_NAMES_OF_OTHERS = 15  # two of them scikit-learn's trees, which have no public way out
NAMES_DEFINED_TWICE = 7


def imported_files(source, module, *, is_package=False):
    """The modules of combutab that a source imports, those for types included."""
    known = {name for name, _ in sources()}
    for name in imported_modules(source, module, is_package=is_package):
        while name and name not in known:
            name = name.rpartition(".")[0]
        if name not in ("", "combutab", module):
            yield name


def circle(imports):
    """A module that imports itself by others, or None; ``imports`` has the imports of each."""
    left = {module: set(others) & set(imports) for module, others in imports.items()}
    while leaves := [module for module, others in left.items() if not others]:
        for leaf in leaves:
            del left[leaf]
        left = {module: others - set(leaves) for module, others in left.items()}
    return min(left, default=None)


def private_names_of_others(source):
    """Underscored attributes that a source reads of other objects, and does not define itself."""
    tree = ast.parse(source)
    own = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own |= {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            own |= {
                name.id for target in targets for name in [target] if isinstance(name, ast.Name)
            }
    free = {"self", "cls", "super()", "torch", "np", "os", "sys", "pd", "sklearn"}
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in own
        and ast.unparse(node.value) not in free
    ]


def test_no_file_imports_itself_by_others():
    imports = {
        module: set(
            imported_files(path.read_text("utf-8"), module, is_package=path.name == "__init__.py")
        )
        for module, path in sources()
        if module != "combutab"
    }
    assert circle(imports) is None


def test_what_starts_with_an_underscore_is_imported_by_its_own_folder():
    for module, path in sources():
        home = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for name in imported_files(
            path.read_text("utf-8"), module, is_package=path.name == "__init__.py"
        ):
            folder, _, last = name.rpartition(".")
            if last.startswith("_") and folder != "combutab":
                assert f"{home}.".startswith(f"{folder}."), f"{module} imports {name}"


def test_private_names_of_other_objects_become_fewer():
    found = [name for _, path in sources() for name in private_names_of_others(path.read_text())]
    assert len(found) <= PRIVATE_NAMES_OF_OTHERS, found


def test_names_that_are_defined_twice_become_fewer():
    homes = {}
    for module, path in sources():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                homes.setdefault(node.name, set()).add(module)
    twice = {name: where for name, where in homes.items() if len(where) > 1}
    assert len(twice) <= NAMES_DEFINED_TWICE, twice


# ---- packages and their public names -----------------------------------------------------------


def folders():
    return [name for name, path in sources() if path.name == "__init__.py" and name != "combutab"]


@pytest.mark.parametrize("folder", folders())
def test_a_folder_says_what_lives_there(folder):
    path = PACKAGE.parent.joinpath(*folder.split("."), "__init__.py")
    said = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert said, folder
    if folder.count(".") > 1:  # and, below a package of the table in CONTRIBUTING.md, who uses it
        assert len(said.split("\n\n")) >= 2, said


@pytest.mark.parametrize("package", packages())
def test_init_holds_imports_and_all_only(package):
    tree = ast.parse(Path(importlib.import_module(package).__file__).read_text("utf-8"))
    docstring, *statements = tree.body
    assert isinstance(docstring, ast.Expr)
    if package == "combutab":  # what makes its names lazy; tests/test_import.py looks at it
        statements = [
            statement
            for statement in statements
            if "TYPE_CHECKING" not in ast.unparse(statement).partition("\n")[0]
            and not ast.unparse(statement).startswith("_HOMES = ")
        ]
    for statement in statements:
        is_all = (
            isinstance(statement, ast.Assign)
            and ast.unparse(statement.targets[0]) == "__all__"
            and isinstance(statement.value, ast.List)
        )
        assert is_all or isinstance(statement, ast.Import | ast.ImportFrom), (
            f"{package}/__init__.py, line {statement.lineno}: {ast.unparse(statement)[:60]}"
        )


@pytest.mark.parametrize("package", packages())
def test_public_names_have_docstrings(package):
    module = importlib.import_module(package)
    lacking = []
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            lacking += [f"{package}.{missing}" for missing in undocumented(name, thing)]
    assert not lacking, lacking


def undocumented(name, thing):
    """Names of a class or function, and of a class's public methods, without a docstring.

    Properties and fields are told of in the class's own; a protocol's methods where they are used.
    """
    doc = thing.__dict__.get("__doc__") if inspect.isclass(thing) else thing.__doc__
    # records are given their signature for a docstring when they have none
    if not doc or doc.startswith(f"{name}("):
        yield name
    if inspect.isclass(thing) and not getattr(thing, "_is_protocol", False):
        for attribute, member in vars(thing).items():
            function = getattr(member, "__func__", member)
            is_method = inspect.isfunction(function) and not attribute.startswith("_")
            if is_method and not inspect.getdoc(getattr(thing, attribute)):
                yield f"{name}.{attribute}"
