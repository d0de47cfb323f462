"""``import combutab`` loads next to nothing, a name of it what it needs, and help neither."""

import ast
import itertools
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import combutab
from combutab import TVAE, MLPRegressor

# needed by a command, a figure, a file format or a peer, not by a fit
LAZY = {"matplotlib", "rich", "typer", "sympy", "pooch", "pyarrow", "polars"}

LAZY |= {"sdv", "ctgan", "sdmetrics", "skorch"}

HEAVY = {"torch", "numpy", "scipy", "pandas", "sklearn", "matplotlib", "joblib", "safetensors"}

# used where a user has it, or brought by the library that needs it
GUESTS = {"IPython", "fsspec", "mlflow", "polars", "xgboost", "plotly", "rdt"}


def run(code, status=0):
    """Run code in a fresh interpreter; returns what it prints."""
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert result.returncode == status, result.stderr
    return result.stdout


def loaded_by(statement):
    """Top-level modules that a statement loads in a fresh interpreter."""
    show = "print('loaded:', *{name.split('.')[0] for name in sys.modules})"
    return set(run(f"import sys; {statement}; {show}").rpartition("loaded:")[2].split())


def imported(tree):
    """Top-level modules that a file imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0]


def test_every_library_that_is_imported_is_declared():
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    declared = {
        re.match(r"[\w-]+", line)[0]
        for line in [*project["dependencies"], *itertools.chain(*extras)]
    }
    names = {"sklearn": "scikit-learn", "yaml": "pyyaml"}
    for file in (root / "combutab").rglob("*.py"):
        found = set(imported(ast.parse(file.read_text(encoding="utf-8"))))
        found -= sys.stdlib_module_names | GUESTS | {"combutab"}
        assert {names.get(name, name) for name in found} <= declared, file


def test_import_loads_no_heavy_library():
    after = loaded_by("import combutab; combutab.__version__; dir(combutab)")
    assert "combutab" in after
    assert not after & (HEAVY | LAZY)


WRONG = [  # and what is no error, but help
    ["--version"],
    ["--help"],
    [],
    ["nonsense"],
    *(
        [name, "--help"]
        for name in ("compare", "fit", "predict", "synth", "sample", "impute", "evaluate")
    ),
    ["synth"],
    ["synth", "data.csv", "--rows", "0", "-o", "synthetic.csv"],
    ["evaluate", "--nonsense"],
]


def test_help_and_wrong_usage_load_no_heavy_library():
    after = loaded_by(f"from combutab.cli import main; [main(each) for each in {WRONG!r}]")
    assert "typer" in after
    assert not after & HEAVY


def test_names_load_only_what_they_need(tmp_path):
    """In a fresh process, one after the other, up to models that another process has saved."""
    rows = np.random.default_rng(0).normal(size=(40, 2))
    MLPRegressor(hidden_layer_sizes=(2,), max_iter=1, n_iter_no_change=np.inf).fit(
        rows, rows[:, 0]
    ).save(tmp_path / "MLPRegressor")
    TVAE(epochs=1, batch_size=20, compress_dims=(2,), decompress_dims=(2,)).fit(rows).save(
        tmp_path / "TVAE"
    )
    code = f"""
import sys
def loaded():
    return {{name.split('.')[0] for name in sys.modules}}
import combutab
combutab.cli.main
from combutab.cli._options import generator_names
before = generator_names()
assert "torch" not in loaded()
from combutab import CombU
assert "torch" in loaded() and not loaded() & {{"sklearn", "pandas"}}
combutab.datasets.make_formula
assert "combutab.generators" not in sys.modules and "combutab.estimators" not in sys.modules
for name in ("TVAE", "MLPRegressor"):
    assert type(combutab.load({str(tmp_path)!r} + "/" + name)).__name__ == name
from combutab import MLPClassifier
assert {{"sklearn", "pandas"}} <= loaded()
for activation in ("combu", "rational", "la-silu"):
    MLPClassifier((2,), activation, max_iter=1, n_iter_no_change=float("inf")).fit(
        [[0.0], [1.0]] * 9, [0, 1] * 9
    )
assert not {{"sympy", "torch._dynamo"}} & {{*sys.modules}}  # a second of a first fit
import combutab.generators
assert before == generator_names() == ["ctgan", "tabflow", "tvae"]
"""
    run(code)


def test_type_checkers_see_the_names_that_there_are():
    tree = ast.parse(Path(combutab.__file__).read_text("utf-8"))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert {*seen, "__version__"} == set(combutab.__all__)
    assert {name: f"combutab.{home}" for name, home in combutab._HOMES.items()} == seen
    for name, home in seen.items():
        assert getattr(combutab, name) is getattr(import_module(home), name)
    assert set(combutab.__all__) <= set(dir(combutab))


def test_imports_leave_global_state_and_network_alone():
    """Names, then every module; models are fitted where a connection or a look-up ends all."""
    code = """
import os, pkgutil, random, sys, numpy, torch, warnings
from importlib import import_module
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        print("network:", event, arguments, file=sys.stderr)
        os._exit(3)
sys.addaudithook(refuse)
def loaded():
    return {name.split('.')[0] for name in sys.modules}
random.seed(1); numpy.random.seed(1); torch.manual_seed(1)
def state():
    return (
        random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist(),
        torch.get_num_threads(), torch.get_default_dtype(), numpy.geterr(), warnings.filters[:],
    )
# these load some of the optional libraries themselves where they are installed
import sklearn, pandas, scipy.stats, sklearn.model_selection, safetensors, joblib
before, others = state(), loaded()
from combutab import *
import combutab.model_selection, combutab.plotting
assert state() == before
print(*loaded() - others)
for module in pkgutil.walk_packages(combutab.__path__, "combutab."):
    if module.name.partition(".")[2] not in ("mlflow", "__main__"):  # mlflow is a guest
        import_module(module.name)
rows = numpy.random.default_rng(0).normal(size=(40, 2))
y = rows[:, 0] > 0
MLPClassifier(hidden_layer_sizes=(2,), max_iter=1, n_iter_no_change=numpy.inf).fit(rows, y)
TVAE(epochs=1, batch_size=20, compress_dims=(2,), decompress_dims=(2,)).fit(rows).sample(3)
combutab.cli.main(["--help"])
print("no network was touched")
"""
    first, *_, last = run(code).splitlines()
    assert "combutab" in first.split()
    assert not set(first.split()) & LAZY
    assert last == "no network was touched"
    hook = code.partition("def loaded")[0].replace("numpy, torch, ", "")
    run(f"{hook}import socket; socket.getaddrinfo('a.b', 80)", 3)  # the hook sees it


def test_other_names_are_no_attributes():
    for name in ("nonsense", "_nonsense", "__nonsense__", "MLPClasifier"):
        assert not hasattr(combutab, name)
    with pytest.raises(AttributeError, match="module 'combutab' has no attribute 'nonsense'"):
        _ = combutab.nonsense
    with pytest.raises(ImportError, match="cannot import name 'MLPClasifier'"):
        exec("from combutab import MLPClasifier")


def test_the_command_names_what_there_is():
    import typer

    from combutab.cli import app
    from combutab.evaluation import ml_efficacy
    from combutab.model_selection import BASELINES, DEFAULT_ACTIVATIONS

    commands = typer.main.get_command(app).commands
    compare, evaluate = (
        {option.opts[0]: option for option in commands[name].params}
        for name in ("compare", "evaluate")
    )
    assert compare["--activations"].default == ",".join(DEFAULT_ACTIVATIONS)
    assert compare["--baselines"].default == ",".join(BASELINES)
    rows = np.zeros((2, 2))
    with pytest.raises(ValueError, match="'oracle'") as caught:
        ml_efficacy(real_train=rows, real_test=rows, synthetic=rows, target=0, learners="oracle")
    known = str(caught.value).partition("standard, ")[2]
    assert f"names separated by commas: {known}" in evaluate["--learners"].help


def test_without_sdv_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("combutab.generators.sdv")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sdv", None)
    with pytest.raises(ImportError, match="pip install sdv ctgan"):
        import_module("combutab.generators.sdv")
