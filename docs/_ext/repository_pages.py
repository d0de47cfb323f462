"""Pages of the site that are texts of the repository: read where they lie, and linked anew."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from reference import put

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


@dataclass(frozen=True)
class Paper:
    title: str  # of its section in benchmarks/PAPERS.md
    page: str
    activations: str  # those that come from it
    folder: str  # of its studies, in benchmarks/papers/


PAPERS = (
    Paper("CombU", "combu", "`combu`, `combu-random`, `nlrelu`", "combu"),
    Paper("PLN and PLS", "pln", "`pln-N`, `pls-N`", "pln"),
    Paper("LayerAct", "layeract", "`la-silu`, `la-hardsilu`", "layeract"),
    Paper("Proxy Normalization", "proxynorm", "`proxy_norm=True`, `ProxyNorm`", "proxynorm"),
)

# Texts of benchmarks/ that are pages beside those of the papers, and their names there
BESIDE = {
    "STUDIES.md": "studies",
    "WHICH_ACTIVATION.md": "which_activation",
    "formulas/README.md": "formulas",
}

HEADLINES = "benchmarks/HEADLINES.md"

WIDE = ("---", "html_theme.sidebar_secondary.remove: true", "---", "")  # room for tables


def sections(text: str) -> dict[str, str]:
    """Title -> text of each section of the second level; what is before them under ""."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def result_page(path: Path) -> str:
    """Name the page of a file of results."""
    return f"results/{path.stem}"


def relink(text: str, source: Path, page: str, root: Path) -> str:
    """Let links of a text lead to pages of the site, and to files where there is no page.

    ``source`` is the file that the text is of, ``page`` where it will be, within docs/.
    """
    home = (root / "docs" / page).parent
    pages = {
        **{root / "benchmarks" / file: f"papers/{page}" for file, page in BESIDE.items()},
        root / "benchmarks" / "PAPERS.md": "papers/index",
        root / HEADLINES: "results/headlines",
        root / "CONTRIBUTING.md": "project/contributing",
        root / "SECURITY.md": "project/security",
        root / "CHANGELOG.md": "changelog",
        root / "examples" / "README.md": "examples/index",
        root / "benchmarks" / "README.md": "results/index",
    }

    def anew(match: re.Match[str]) -> str:
        picture, words, link = match.groups()
        if "://" in link or link.startswith(("#", "<")):
            return match[0]
        link, hash_sign, anchor = link.partition("#")
        anchor = hash_sign + anchor
        target = (source.parent / link).resolve()
        where = pages.get(target)
        if where is None and target.parent.name == "results" and target.suffix == ".md":
            where = result_page(target)
        if where is None and target.parent == root / "examples" and target.suffix == ".py":
            where = f"examples/{target.stem}"
        if where is not None:
            path = os.path.relpath(root / "docs" / f"{where}.md", home)
            return f"[{words}](<project:{path}{anchor}>)" if not picture else match[0]
        if not target.is_file():  # a folder, or a page of the repository alone
            return words
        path = os.path.relpath(target, home)
        return f"{picture}[{words}]({path}{anchor})"

    return LINK.sub(anew, text)


def pictures(folder: Path) -> list[Path]:
    found = (folder / "results").iterdir()
    return sorted(path for path in found if path.suffix in (".svg", ".png"))


def paper_page(paper: Paper, root: Path) -> str:
    """Lay out a paper's page: its rows of PAPERS.md, and the pictures of its studies."""
    source = root / "benchmarks" / "PAPERS.md"
    page = f"papers/{paper.page}"
    text = relink(sections(source.read_text("utf-8"))[paper.title], source, page, root)
    home = (root / "docs" / page).parent
    lines = [*WIDE, f"# {paper.title}", "", f"In this library: {paper.activations}.", "", text, ""]
    lines += ["## Pictures", "", "Of our runs; the captions name the files.", ""]
    for picture in pictures(root / "benchmarks" / "papers" / paper.folder):
        name = picture.stem.replace("_", " ")
        lines += [f"```{{figure}} {os.path.relpath(picture, home)}", f":alt: {name}", ":width: 90%"]
        lines += ["", f"{name}", "```", ""]
    return "\n".join(lines)


def whole_page(source: Path, page: str, root: Path) -> str:
    """A file of the repository as a page."""
    return relink(source.read_text("utf-8"), source, page, root)


def result_files(root: Path) -> list[Path]:
    return sorted((root / "benchmarks").rglob("results/*.md"))


def write(docs: Path) -> None:
    """Write these pages."""
    root = docs.parent
    benchmarks = root / "benchmarks"
    for paper in PAPERS:
        put(docs / "papers" / f"{paper.page}.md", paper_page(paper, root))
    said = sections((benchmarks / "PAPERS.md").read_text("utf-8"))[""]
    index = relink(said, benchmarks / "PAPERS.md", "papers/index", root)
    listed = [*[paper.page for paper in PAPERS], *BESIDE.values()]
    tree = ["```{toctree}", ":maxdepth: 1", "", *listed, "```"]
    put(docs / "papers" / "index.md", "\n".join([index, "", *tree, ""]))
    for file, page in BESIDE.items():
        text = whole_page(benchmarks / file, f"papers/{page}", root)
        put(docs / "papers" / f"{page}.md", text)
    files = result_files(root)
    for path in files:
        text = whole_page(path, result_page(path), root)
        put(docs / f"{result_page(path)}.md", "\n".join(WIDE) + "\n" + text)
    put(docs / "results" / "headlines.md", whole_page(root / HEADLINES, "results/headlines", root))
    rows = [f"| [](<project:headlines.md>) | `{HEADLINES}` |"]
    rows += [f"| [](<project:{path.stem}.md>) | `{path.relative_to(root)}` |" for path in files]
    tree = ["```{toctree}", ":hidden:", ":glob:", "", "*", "```", ""]
    put(
        docs / "results" / "index.md",
        "\n".join(
            [
                "# Measured",
                "",
                "Every page that a benchmark or a study has written, with its command, machine and "
                "versions. The files of rows lie beside them in the repository.",
                "",
                *["| page | file |", "|---|---|", *rows, "", *tree],
            ]
        ),
    )
    for source, page in (
        ("CHANGELOG.md", "changelog"),
        ("CONTRIBUTING.md", "project/contributing"),
        ("SECURITY.md", "project/security"),
    ):
        put(docs / f"{page}.md", whole_page(root / source, page, root))
