"""The packages of combutab and who imports whom, read from the code and drawn as an SVG."""

from __future__ import annotations

import ast
import html
import re
from dataclasses import dataclass
from pathlib import Path

from reference import put

BOX = (128, 38)  # width and height, in units of the picture
GAP = (22, 58)


@dataclass(frozen=True)
class Package:
    name: str
    says: str  # the first sentence of its docstring
    inner: tuple[tuple[str, str], ...]  # folders within, and what they say


def sentence(path: Path) -> str:
    said = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return re.sub(r"\s+", " ", said.split("\n\n")[0]).strip()


def packages(root: Path) -> dict[str, Package]:
    """Name -> package, of those directly below ``root`` (the folder combutab)."""
    found = {}
    for init in sorted(root.glob("*/__init__.py")):
        folder = init.parent
        inner = [
            (".".join(below.parent.relative_to(root).parts), sentence(below))
            for below in sorted(folder.rglob("*/__init__.py"))
            if below != init
        ]
        found[folder.name] = Package(folder.name, sentence(init), tuple(inner))
    return found


def imports(root: Path) -> dict[str, set[str]]:
    """Package -> the other packages that any of its modules imports, wherever in it."""
    names = {init.parent.name for init in root.glob("*/__init__.py")}
    found: dict[str, set[str]] = {name: set() for name in names}
    for name in names:
        for path in (root / name).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    modules = [f"{node.module}.{alias.name}" for alias in node.names]
                elif isinstance(node, ast.Import):
                    modules = [alias.name for alias in node.names]
                else:
                    continue
                for module in modules:
                    parts = module.split(".")
                    if parts[0] == root.name and len(parts) > 1 and parts[1] in names - {name}:
                        found[name].add(parts[1])
    return found


def levels(arrows: dict[str, set[str]]) -> dict[str, int]:
    """How many packages stand below each, one on the other: 0 is what imports none."""
    found: dict[str, int] = {}

    def level(name: str, above: tuple[str, ...] = ()) -> int:
        if name in above:
            raise ValueError(f"packages import each other in a circle: {(*above, name)}")
        if name not in found:
            below = [level(other, (*above, name)) for other in sorted(arrows[name])]
            found[name] = 1 + max(below, default=-1)
        return found[name]

    for name in sorted(arrows):
        level(name)
    return found


def direct(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """The arrows that no path of others says already."""

    def reached(name: str) -> set[str]:
        return arrows[name].union(*(reached(other) for other in arrows[name]))

    return {
        name: {to for to in below if not any(to in reached(other) for other in below - {to})}
        for name, below in arrows.items()
    }


def svg(root: Path, page: str = "api/combutab.{}.html") -> str:
    """Draw the packages, what imports nothing at the bottom; each box leads to its page."""
    arrows = imports(root)
    known = packages(root)
    level = levels(arrows)
    rows = [sorted(n for n in level if level[n] == i) for i in range(max(level.values()) + 1)]
    widest = max(map(len, rows))
    width = widest * BOX[0] + (widest + 1) * GAP[0]
    height = len(rows) * BOX[1] + (len(rows) + 1) * GAP[1] - GAP[1]
    at = {}
    for i, row in enumerate(rows):
        left = (width - len(row) * BOX[0] - (len(row) - 1) * GAP[0]) / 2
        for j, name in enumerate(row):
            y = height - GAP[1] / 2 - (i + 1) * BOX[1] - i * GAP[1]
            at[name] = (left + j * (BOX[0] + GAP[0]), y)
    title = "Packages of combutab, each above those that it imports"
    lines = [
        f'<svg class="architecture" viewBox="0 0 {width:.0f} {height:.0f}" role="group" '
        f'aria-label="{title}" xmlns="http://www.w3.org/2000/svg">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>',
    ]
    for name, below in sorted(direct(arrows).items()):
        for other in sorted(below):
            (x0, y0), (x1, y1) = at[name], at[other]
            x0, x1, y0 = x0 + BOX[0] / 2, x1 + BOX[0] / 2, y0 + BOX[1]
            bend = (y0 + y1) / 2
            lines.append(
                f'<path class="arrow" marker-end="url(#tip)" d="M{x0:.0f} {y0:.0f} '
                f'C{x0:.0f} {bend:.0f} {x1:.0f} {bend:.0f} {x1:.0f} {y1 - 2:.0f}"/>'
            )
    for name, (x, y) in sorted(at.items()):
        link = page.format(name) if name != "cli" else "api/command_line.html"
        says = html.escape(known[name].says.replace("`", ""))
        # core has no public names, and so no page
        begin, end = ("<g>", "</g>") if name == "core" else (f'<a href="{link}">', "</a>")
        lines.append(
            f'{begin}<title>{says}</title><rect x="{x:.0f}" y="{y:.0f}" rx="6" '
            f'width="{BOX[0]}" height="{BOX[1]}"/><text x="{x + BOX[0] / 2:.0f}" '
            f'y="{y + BOX[1] / 2 + 5:.0f}" text-anchor="middle">{name}</text>{end}'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


def write(docs: Path) -> None:
    root = docs.parent / "combutab"
    put(docs / "made" / "architecture.svg", svg(root))
