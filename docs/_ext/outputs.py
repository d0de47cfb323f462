"""What the code blocks of a page print, return and draw, run anew when the site is built.

Each page runs in a process of its own, in an empty folder, its blocks one after the other: Python
in one namespace, and shell blocks (``sh``) that have ``combutab`` commands only. What they gave is
kept beside a hash of the page's code and of the package, and used again while both stay the same.
(MyST-NB would need a Jupyter kernel, and ``{code-cell}`` in place of the ``python`` that the tests
and readers of the files on GitHub have.)
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# A block of Python, or of commands of this package
_COMMANDS = r"(?=\n(?:combutab [^\n]*\n)+```$)"
BLOCK = re.compile(rf"^```(python|sh{_COMMANDS})\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A block as an author wrote it, with the output that may stand below it for readers of the file
_WITH_OUTPUT = re.compile(BLOCK.pattern + r"(\n+```(?:text)?\n.*?^```$)?", re.DOTALL | re.MULTILINE)
SEPARATE = ("recipes",)  # pages whose blocks need the first one only
PICTURES = (".png", ".svg")
SECONDS = 600  # for all blocks of a page
COLUMNS = 88  # of what is printed


def pages(docs: Path) -> list[Path]:
    """Pages with blocks that run, as far as they lie in the repository."""
    found = [*docs.glob("*.md"), *docs.glob("guide/*.md")]
    return sorted(p for p in found if p.stem != "changelog" and BLOCK.search(p.read_text("utf-8")))


# ---- running -----------------------------------------------------------------------------------


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
        figure.savefig(file, format="png", dpi=110, bbox_inches="tight")
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
    return printed.getvalue().rstrip(), figures


def run_commands(code: str) -> str:
    """Run commands of this package; returns what a terminal shows, but for their progress."""
    from combutab.cli import main

    texts = []
    for line in code.splitlines():
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            status = main(shlex.split(line)[1:])
        if status:
            raise RuntimeError(f"status {status} of {line}")
        texts.append(printed.getvalue().strip())
    lines = "\n\n".join(filter(None, texts)).splitlines()
    return "\n".join(textwrap.fill(line, COLUMNS) for line in lines)


def run_page(page: Path, folder: Path) -> list[dict[str, Any]]:
    """Run a page's blocks in an empty folder; returns text and files of each."""
    blocks = BLOCK.findall(page.read_text("utf-8"))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    first: dict[str, Any] = {}
    found, seen = [], set()
    for number, (language, code) in enumerate(blocks):
        figures: list[bytes] = []
        if language == "sh":
            text = run_commands(code)
        elif lacking := missing(code):
            found.append({"text": "", "files": [], "missing": lacking})
            continue
        else:
            if page.stem in SEPARATE and number:
                namespace = dict(first)
            text, figures = run_block(code, namespace, f"{page.name}, block {number + 1}")
            if not number:
                first = dict(namespace)
        for i, figure in enumerate(figures):
            (folder / f"figure_{number}_{i}.png").write_bytes(figure)
        files = {p.name for p in folder.iterdir() if p.suffix in (*PICTURES, ".html")}
        found.append({"text": text, "files": sorted(files - seen), "missing": []})
        seen |= files
    return found


def main(page: str, result: str) -> None:
    """Run a page in the working folder, and write what it gave."""
    found = run_page(Path(page), Path.cwd())
    Path(result).write_text(json.dumps(found, indent=1), "utf-8")


# ---- kept between builds -----------------------------------------------------------------------


def package_hash(root: Path) -> str:
    """A hash of all that the output of a block depends on, but for its page."""
    found = hashlib.sha256(sys.version.encode())
    for path in [Path(__file__), *sorted((root / "combutab").rglob("*.py"))]:
        found.update(path.read_bytes())
    for name in ("torch", "numpy", "pandas", "scikit-learn", "matplotlib"):
        found.update(importlib.metadata.version(name).encode())
    return found.hexdigest()


def kept(docs: Path, page: Path) -> Path:
    """The file of a page's outputs; its pictures lie beside it."""
    return docs / "made" / "outputs" / page.relative_to(docs).with_suffix("") / "outputs.json"


def refresh(page: Path, docs: Path, key: str) -> bool:
    """Run a page, unless the outputs kept are those of its code; returns whether it ran."""
    result = kept(docs, page)
    folder = result.parent
    code = "\n".join(code for _, code in BLOCK.findall(page.read_text("utf-8")))
    key = hashlib.sha256((key + code).encode()).hexdigest()
    if result.exists() and (folder / "key").read_text("utf-8") == key:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, __file__, str(page), str(result)]
    paths = [str(docs.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    settings = {
        "MPLBACKEND": "agg",
        "COLUMNS": str(COLUMNS),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
    ran = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if ran.returncode:
        raise RuntimeError(f"{page.name}: a code block fails\n{ran.stderr[-3000:]}")
    (folder / "key").write_text(key, "utf-8")
    return True


def write(docs: Path) -> list[Path]:
    """Run the pages whose output is not kept, two at a time; returns those that ran."""
    key, found = package_hash(docs.parent), pages(docs)
    with ThreadPoolExecutor(2) as pool:
        ran = list(pool.map(lambda page: refresh(page, docs, key), found))
    for page in found:  # pages of HTML go to the site as they are
        for path in kept(docs, page).parent.glob("*.html"):
            target = docs / "made" / "extra" / "outputs" / page.relative_to(docs).with_suffix("")
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return [page for page, new in zip(found, ran, strict=True) if new]


# ---- shown -------------------------------------------------------------------------------------


def shown(output: dict[str, Any], page: str, up: str) -> str:
    """A block's output, as MyST Markdown; ``up`` leads from the page to the site's first folder."""
    parts = []
    if output["missing"]:
        names = ", ".join(f"`{name}`" for name in output["missing"])
        parts.append(f":::{{div}} not-run\nNot run for this page: {names} was not installed.\n:::")
    if output["text"]:
        fence = "`" * max(5, 1 + max(map(len, re.findall("`+", output["text"])), default=0))
        parts.append(f"{fence}{{code-block}} text\n:class: output\n\n{output['text']}\n{fence}")
    for name in output["files"]:
        if name.endswith(PICTURES):
            where = f"/made/outputs/{page}/{name}"
            parts.append(
                f"```{{image}} {where}\n:alt: Figure drawn by the code above\n:class: output\n```"
            )
        else:
            where = f"{up}outputs/{page}/{name}"
            parts.append(
                f'<iframe class="report" src="{where}" title="{name}, written by the code above"'
                f' loading="lazy"></iframe>\n\n<a href="{where}">Open {name} on its own page</a>'
            )
    return "".join(f"\n\n{part}" for part in parts)


def with_outputs(text: str, outputs: list[dict[str, Any]], page: str, up: str) -> str:
    """Put each block's output below it, in place of the one that is written there."""
    remaining = iter(outputs)

    def below(match: re.Match[str]) -> str:
        output = next(remaining)
        written = match[3] or ""
        return match[0][: len(match[0]) - len(written)] + (
            written if output["missing"] and written else shown(output, page, up)
        )

    return _WITH_OUTPUT.sub(below, text)


def insert(docs: Path, name: str, text: str) -> str:
    """The text of a page with its outputs, where it has any."""
    page = docs / f"{name}.md"
    if page not in pages(docs):
        return text
    outputs = json.loads(kept(docs, page).read_text("utf-8"))
    return with_outputs(text, outputs, name, "../" * name.count("/"))


if __name__ == "__main__":
    main(*sys.argv[1:])
