"""Write benchmarks/PAPERS.md: overview.md with the verdicts of the studies' pages filled in.

python -m benchmarks.papers.overview
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common.page import markdown_table
from benchmarks.common.verdicts import counted
from benchmarks.outputs import write_text

FOLDER = Path(__file__).parents[1]
CLAIMS = re.compile(r"^\| where \| claim \| measure .*\n\| --- .*\n((?:\|.*\n)+)", re.MULTILINE)
KINDS = ["table", "figure", "theorem", "lemma", "proposition", "definition", "corollary"]
Thing = tuple[str, str]  # "table", "3"


def numbered(text: str) -> Iterator[Thing]:
    """List the numbered things that a text names.

    >>> list(numbered("Tables 2 to 4, A1, Figure 3b left; Section 2, Corollaries I, II"))[:5]
    [('table', '2'), ('table', '3'), ('table', '4'), ('table', 'A1'), ('figure', '3')]
    """
    kind = first = number = ""
    for word in re.findall(r"\.?\d[\d.]*|[A-Za-z]+\d*", text):
        singular = re.sub("ies$", "y", word.lower()).removesuffix("s")
        if singular in (*KINDS, "section", "eq", "appendix"):
            kind = singular if singular in KINDS else ""
        elif kind and word == "to":
            first = number
        elif kind and re.fullmatch(r"\.?\d[\d.]*|[AI]\d|I+", word):
            number = word.rstrip(".")
            if first.isdigit() and number.isdigit():
                yield from ((kind, str(n)) for n in range(int(first) + 1, int(number)))
            first = ""
            yield kind, number


def claims_of(page: Path) -> list[tuple[str, str, str, list[str]]]:
    """Read a page's claims: where, text, measure, and the word of each verdict."""
    lines = "".join(CLAIMS.findall(page.read_text("utf-8"))).splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines]
    return [(*c[:3], re.findall(r"\*\*(.+?)\*\*", " | ".join(c[3:]))) for c in cells]


def section(text: str) -> tuple[str, list[str]]:
    """Fill a paper's section in; the words of all its verdicts come with it."""
    links = sorted(set(re.findall(r"\((papers/\S+?/results/\w+)\.md\)", text)))
    claims = {link: claims_of(FOLDER / f"{link}.md") for link in links}

    def row(match: re.Match[str]) -> str:
        things = set(numbered(match[1].split(" | ")[0]))
        own = [c for link in links if f"({link}.md)" in match[1] for c in claims[link]]
        words = [word for c in own if things & set(numbered(c[0])) for word in c[3]]
        return f"| {match[1]} | {counted(words) or 'no claim; see the page'} |"

    text = re.sub(r"^\| (.+) \| \{verdicts\} \|$", row, text, flags=re.MULTILINE)
    found = [(link, *claim) for link in links for claim in claims[link]]
    lines = [
        [f"[{link.rpartition('/')[2]}]({link}.md)", *said, counted(words) or "not judged"]
        for link, *said, words in found
    ]
    table = markdown_table(["page", "where", "claim", "measure", "verdicts"], lines)
    folded = f"<details>\n<summary>The {len(lines)} claims judged</summary>\n\n{table}\n</details>"
    return text.replace("{claims}", folded), [word for *_, words in found for word in words]


def overview() -> str:
    """The page."""
    template = (Path(__file__).parent / "overview.md").read_text("utf-8")
    head, *parts = re.split(r"^(?=## )", template, flags=re.MULTILINE)
    made = [section(part) for part in parts]
    lines = [
        [part.splitlines()[0].removeprefix("## "), counted(words)]
        for part, (_, words) in zip(parts, made, strict=True)
    ]
    summary = markdown_table(["paper", "verdicts of the studies' claims"], lines)
    return head.replace("{summary}\n", summary) + "".join(text for text, _ in made)


if __name__ == "__main__":
    write_text(FOLDER / "PAPERS.md", overview())
