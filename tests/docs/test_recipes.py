"""The recipes of the guide run, each by itself after the first block."""

import ast
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from combutab.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "recipes.md"
TEXT = PAGE.read_text("utf-8")
FIRST, *RECIPES = [
    (TEXT[: match.start(1)].count("\n"), match[1])
    for match in re.finditer(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
]
TITLES = re.findall(r"^## (.*)$\n(?:(?!^## ).*\n)*?```python$", TEXT, re.MULTILINE)


def modules(code):
    """What a block imports, but for ours."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("recipe", RECIPES, ids=[title.split(":")[0] for title in TITLES])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # others' own
def test_recipe(recipe, tmp_path, monkeypatch):
    assert len(TITLES) == len(RECIPES)
    for name in modules(recipe[1]):
        if not name.startswith("combutab"):
            pytest.importorskip(name, reason=f"{name} is not installed")
    if "lightpfn" in recipe[1]:
        pytest.skip("needs the weights of LightPFN")
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for line, code in (FIRST, recipe):
        exec(compile("\n" * line + code, str(PAGE), "exec"), namespace)


def test_stages_of_a_pipeline(tmp_path, monkeypatch):
    yaml = pytest.importorskip("yaml", reason="needs the extra yaml")
    params, pipeline = map(yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.S | re.M))
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    flats = pd.DataFrame({"area": rng.gamma(8.0, 9.0, 60), "district": rng.choice(["a", "b"], 60)})
    flats.assign(rent=12 * flats["area"]).to_csv("flats.csv", index=False)
    flats.to_csv("new.csv", index=False)
    for stage in pipeline["stages"].values():
        assert set(re.findall(r"\$\{(\w+)\}", stage["cmd"])) == set(stage.get("params", ()))
        assert all(Path(name).exists() for name in stage["deps"])
        command = re.sub(r"\$\{(\w+)\}", lambda match: str(params[match[1]]), stage["cmd"])
        assert not main(shlex.split(command)[1:])
        assert all(Path(name).exists() for name in stage["outs"])
    assert pd.read_csv("predicted.csv")["district"].equals(flats["district"])
