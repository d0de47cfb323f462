"""Names and phrases of the code: words that name no thing, and phrases that have to be read twice.

`LIMITS` has the number of vague names and of odd phrases in each file that has any. A file may
only have fewer. After an improvement, `python -m tests.test_language` writes the new numbers.
"""

import ast
import io
import json
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIMITS = Path(__file__).with_name("language_limits.json")
FILES = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "combutab").rglob("*.py")}

# Words that may not be names of local variables or arguments
VAGUE_NAMES = {
    *("apart", "aside", "asked", "beside", "beyond", "each", "found", "fresh", "given", "gone"),
    *("held", "here", "kept", "known", "least", "left", "lost", "made", "most", "named", "other"),
    *("others", "own", "place", "places", "rest", "shown", "still", "taken", "there", "told"),
    *("two", "wanted", "whole"),
}
ODD_PHRASES = re.compile(
    r"\b(anew|are none|as many|at hand|beside|but for|by itself|by turns|for want of|in turns"
    r"|is none|lest|no other|nothing but|of its own|of their own|of which|one behind the other"
    r"|says? so|so many|so much|such a|take up|taken up|takes? (it|them) up|tells? of|that which"
    r"|thereby|told|all the same|step after step|whom"
    r"|what (is|it|was|they|a|an|the|has|does|came|comes|becomes|follows|would|gives|made|there"
    r"|holds|stands|goes)"
    r"|a (member|fold|column|head|rank|network|stage|unit|draw|row|file|class) each"
    r"|one a (member|rank|column|head|shape|row))\b",
    re.IGNORECASE,
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def vague_names(source):
    """The vague names of variables and arguments, with their lines."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [(node.id, node.lineno) for node in nodes if is_assigned(node)]
    names += [(node.arg, node.lineno) for node in nodes if isinstance(node, ast.arg)]
    return sorted((line, name) for name, line in names if name in VAGUE_NAMES)


def is_assigned(node):
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def odd_phrases(source):
    """The odd phrases of comments and docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = [token.string for token in tokens if token.type == tokenize.COMMENT]
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, DOCUMENTED)]
    texts += [ast.get_docstring(node) or "" for node in nodes]
    return [match[0] for text in texts for match in ODD_PHRASES.finditer(text)]


def counts(path):
    source = path.read_text("utf-8")
    return {"names": len(vague_names(source)), "phrases": len(odd_phrases(source))}


@pytest.mark.parametrize("name", sorted(FILES))
def test_names_and_phrases_do_not_get_vaguer(name):
    limits = json.loads(LIMITS.read_text("utf-8")).get(name, {"names": 0, "phrases": 0})
    source = FILES[name].read_text("utf-8")
    names, phrases = vague_names(source), odd_phrases(source)
    assert len(names) <= limits["names"], f"name the thing that each variable holds: {names}"
    assert len(phrases) <= limits["phrases"], f"say it in plain words: {phrases}"


def test_limits_belong_to_existing_files():
    assert set(json.loads(LIMITS.read_text("utf-8"))) <= set(FILES)


def test_vague_names_and_odd_phrases_are_found():
    source = '"""What it holds."""\nfor each in (found := [1]):\n    rows = each  # but for one\n'
    assert vague_names(source) == [(2, "each"), (2, "found")]
    assert odd_phrases(source) == ["but for", "What it"]


if __name__ == "__main__":
    new_limits = {name: counts(path) for name, path in sorted(FILES.items())}
    rows = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in new_limits.items() if any(v.values())]
    LIMITS.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
