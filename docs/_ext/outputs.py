"""Run the code blocks of the manual's pages, and store what they print and draw below them.

    python docs/_ext/outputs.py [PAGE ...]

Each page runs in a process of its own, in an empty folder, its blocks one after the other: Python
in one namespace, and shell blocks (``sh``) that have ``combutab`` commands only. A test compares
the stored outputs with new ones, so that the pages can be read without running anything.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]

# A block of Python, or of commands of this package
_COMMANDS = r"(?=\n(?:combutab (?:[^\n]*\\\n)*[^\n]*\n)+```$)"
_BLOCK = rf"^```(python|sh{_COMMANDS})\n(.*?)^```$"
BLOCK = re.compile(_BLOCK, re.DOTALL | re.MULTILINE)
# A block, the text that it prints, and the pictures that it draws
_TEXT = r"(?:\n\n```text\n((?:(?!```)[^\n]*\n)*)```)?"
_PICTURES = r"((?:\n\n!\[[^]]*\]\([^()]*pictures/\w+\.png\))*)"
WITH_OUTPUT = re.compile(_BLOCK + _TEXT + _PICTURES, re.DOTALL | re.MULTILINE)
SEPARATE = ("recipes",)  # pages whose blocks need only the first block
SECONDS = 1200  # for all blocks of a page
COLUMNS = 88  # of what is printed


def pages(docs: Path = DOCS) -> list[Path]:
    """Pages of the manual with blocks that run."""
    paths = [*docs.glob("*.md"), *docs.glob("guide/*.md")]
    return sorted(p for p in paths if p.stem != "changelog" and BLOCK.search(p.read_text("utf-8")))


# ---- Run a page --------------------------------------------------------------------------------


def missing(code: str) -> list[str]:
    """The packages that a block imports and that are not installed."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return sorted(name for name in names if importlib.util.find_spec(name) is None)


def run_block(code: str, namespace: dict[str, Any], where: str) -> tuple[str, list[bytes]]:
    """Run a block; returns what a notebook would show: its text, and its figures as PNG."""
    import matplotlib.pyplot as plt
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

    def png(figure: Figure) -> bytes:
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=90, bbox_inches="tight")
        return file.getvalue()

    tree = ast.parse(code, where)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    figures: list[bytes] = []
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), namespace)
            picture = getattr(value, "_repr_png_", lambda: None)()
            if isinstance(picture, bytes):
                figures.append(picture)
            elif isinstance(value, Figure):
                if value not in map(plt.figure, plt.get_fignums()):
                    figures.append(png(value))
            elif value is not None and not isinstance(value, Artist):
                print(repr(value))
    figures += [png(plt.figure(number)) for number in plt.get_fignums()]
    plt.close("all")
    return printed.getvalue().strip("\n"), figures


def run_commands(code: str) -> str:
    """Run commands of this package; returns what a terminal shows except for progress bars."""
    from combutab.cli import main

    texts = []
    for line in code.replace("\\\n", " ").splitlines():
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            status = main(shlex.split(line)[1:])
        if status:
            raise RuntimeError(f"status {status} of {line}")
        texts.append(printed.getvalue().strip())
    lines = "\n\n".join(filter(None, texts)).splitlines()
    return "\n".join(textwrap.fill(line, COLUMNS) for line in lines)


def run_page(page: Path, folder: Path) -> list[dict[str, Any]]:
    """Run a page's blocks in an empty folder; returns text, pictures and missing packages."""
    blocks = BLOCK.findall(page.read_text("utf-8"))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    first: dict[str, Any] = {}
    outputs: list[dict[str, Any]] = []
    seen: set[Path] = set()
    for number, (language, code) in enumerate(blocks):
        figures: list[bytes] = []
        if language == "sh":
            text = run_commands(code)
        elif packages := missing(code):
            outputs.append({"text": "", "pictures": [], "missing": packages})
            continue
        else:
            if page.stem in SEPARATE and number:
                namespace = dict(first)
            text, figures = run_block(code, namespace, f"{page.name}, block {number + 1}")
            if not number:
                first = dict(namespace)
        for i, figure in enumerate(figures):
            (folder / f"figure_{number}_{i}.png").write_bytes(figure)
        drawn = sorted(set(folder.glob("*.png")) - seen)
        outputs.append({"text": text, "pictures": [str(path) for path in drawn], "missing": []})
        seen |= set(drawn)
    return outputs


def run_in_process(page: Path, folder: Path, root: Path = DOCS.parent) -> list[dict[str, Any]]:
    """Run a page in a process of its own, with the package in ``root``.

    A block that fails raises ``RuntimeError``.
    """
    paths = [str(root), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    settings = {
        "MPLBACKEND": "agg",
        "COLUMNS": str(COLUMNS),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
    done = subprocess.run(
        [sys.executable, __file__, "--run", str(page.resolve())],
        cwd=folder,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"{page.name}: a code block fails\n{done.stderr[-3000:]}")
    return list(json.loads((folder / "outputs.json").read_text("utf-8")))


# ---- Store the outputs -------------------------------------------------------------------------


def stored(page: Path) -> list[str]:
    """The stored text of each block of a page."""
    return [match[3] or "" for match in WITH_OUTPUT.finditer(page.read_text("utf-8"))]


def with_outputs(text: str, outputs: list[dict[str, Any]], page: Path, docs: Path = DOCS) -> str:
    """Put each block's output below it, in place of the one that is stored there.

    Pictures are written to the folder ``pictures``, and keep the words that describe them.
    """
    remaining = iter(outputs)
    counter = iter(range(1, 1000))
    folder = docs / "pictures"

    def write_below(match: re.Match[str]) -> str:
        output = next(remaining)
        if output["missing"]:
            return match[0]
        parts = [f"```{match[1]}\n{match[2]}```"]
        if output["text"]:
            parts.append(f"```text\n{output['text']}\n```")
        words = iter(re.findall(r"!\[([^]]*)\]", match[4]))
        for path in output["pictures"]:
            target = folder / f"{page.stem}_{next(counter)}.png"
            folder.mkdir(exist_ok=True)
            target.write_bytes(Path(path).read_bytes())
            link = os.path.relpath(target, page.parent)
            parts.append(f"![{next(words, 'Figure drawn by the code above')}]({link})")
        return "\n\n".join(parts)

    return WITH_OUTPUT.sub(write_below, text)


def main(*arguments: str) -> None:
    """Store the outputs of the named pages, by default of all."""
    if arguments[:1] == ("--run",):
        outputs = run_page(Path(arguments[1]), Path.cwd())
        Path("outputs.json").write_text(json.dumps(outputs), "utf-8")
        return
    for page in map(Path, arguments or map(str, pages())):
        with tempfile.TemporaryDirectory() as folder:
            outputs = run_in_process(page, Path(folder))
            text = with_outputs(page.read_text("utf-8"), outputs, page)
        page.write_text(text, "utf-8")
        print(page)


if __name__ == "__main__":
    main(*sys.argv[1:])
