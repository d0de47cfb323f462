"""The recipes of the guide run, each by itself after the first block."""

import ast
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "recipes.md"
TEXT = PAGE.read_text("utf-8")
FIRST, *RECIPES = [
    (TEXT[: match.start(1)].count("\n"), match[1])
    for match in re.finditer(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
]
TITLES = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)


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
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for line, code in (FIRST, recipe):
        exec(compile("\n" * line + code, str(PAGE), "exec"), namespace)
