"""What the site adds to the manual's pages, which are plain Markdown for readers of the repository.

Links to files of the repository lead to the site's pages of them, names in code to the API
reference. Outputs of code get their style, and reports are shown in frames.
"""

from __future__ import annotations

import re
from pathlib import Path

import reference
import repository_pages

FENCED = re.compile(r"^(`{3,})[^\n]*\n.*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(?<![`\[\w])`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)")
OUTPUT = re.compile(r"(^```\n\n)```text\n", re.MULTILINE)
DRAWN = re.compile(r"^!\[([^]]*)\]\(([^()]*pictures/\w+\.png)\)$", re.MULTILINE)
REPORT = re.compile(r"^<!-- report (\w+): (.+) -->$", re.MULTILINE)
DIAGRAM = "<!-- diagram of the packages -->"
UNCLUTTERED = ("index", "reports")  # pages without a list of their sections at the side

TREES = {
    "index": (
        "Install <install>",
        "Getting started <start>",
        "Which estimator? <choose>",
        "User guide <guide/index>",
        "Examples <examples/index>",
        "FAQ <faq>",
        "GPU <gpu>",
        "Reports <reports>",
        "API <api/index>",
        "Papers <papers/index>",
        "How it works <inside>",
        "Measurements <results/index>",
        "glossary",
        "changelog",
        "Contributing <project/contributing>",
        "Security and privacy <project/security>",
    ),
    "guide/index": (
        *("predict", "tune", "activations", "explain", "synthetic", "tables", "privacy", "scale"),
        *("statistics", "formulas", "recipes", "migrate"),
    ),
}
"""Page -> the pages below it in the navigation."""


def is_plain(name: str) -> bool:
    """Tell whether a page of the site is one of the manual's, not one that is made."""
    return name != "changelog" and (name.count("/") == 0 or name.startswith("guide/"))


def api_names() -> dict[str, str]:
    """Map names of the API as they are written in code to their full names."""
    full_names: dict[str, str] = {}
    for package_names in reference.names().values():
        for name in package_names:
            if not name.name.startswith("_"):
                full_names.setdefault(name.name, name.full)
                full_names[name.full] = name.full
    return full_names


def link_names(text: str, names: dict[str, str]) -> str:
    """Let the first mention of each name in a section lead to its page of the reference."""
    parts = re.split(r"(^##+ .*$)", text, flags=re.MULTILINE)
    return "".join(part if part.startswith("##") else _link_section(part, names) for part in parts)


def _link_section(text: str, names: dict[str, str]) -> str:
    seen: set[str] = set()

    def link(match: re.Match[str]) -> str:
        full = names.get(match[1])
        if full is None or full in seen:
            return match[0]
        seen.add(full)
        return f"{{py:obj}}`{match[0].strip('`')} <{full}>`"

    pieces, end = [], 0
    for block in FENCED.finditer(text):
        pieces += [CODE.sub(link, text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*pieces, CODE.sub(link, text[end:])])


def show_report(match: re.Match[str]) -> str:
    """A report in a frame, with a link to it."""
    address = f"reports/{match[1]}.html"
    return (
        f'<iframe class="report" src="{address}" title="{match[2]}" loading="lazy"></iframe>\n\n'
        f'<a href="{address}">Open this report on its own page</a>'
    )


def site_text(name: str, text: str, docs: Path) -> str:
    """The Markdown of a page for the site."""
    if not is_plain(name):
        return text
    text = repository_pages.relink(text, docs / f"{name}.md", name, docs.parent)
    text = link_names(text, api_names())
    text = OUTPUT.sub(r"\1```{code-block} text\n:class: output\n\n", text)
    text = DRAWN.sub(r"```{image} \2\n:alt: \1\n:class: output\n```", text)
    text = REPORT.sub(show_report, text)
    text = text.replace(DIAGRAM, "```{raw} html\n:file: made/architecture.svg\n```")
    if name in TREES:
        text += "\n".join(["", "```{toctree}", ":hidden:", "", *TREES[name], "```", ""])
    if name in UNCLUTTERED:
        text = "---\nhtml_theme.sidebar_secondary.remove: true\n---\n\n" + text
    return text
