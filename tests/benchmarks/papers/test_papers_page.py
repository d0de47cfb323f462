"""benchmarks/PAPERS.md: nothing of the papers is missing, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BENCHMARKS = ROOT / "benchmarks"
PAGE = (BENCHMARKS / "PAPERS.md").read_text(encoding="utf-8")
ITEM = re.compile(r"(?:([A-Z]\w+) )?([\d.]+|[AI]\d|I+)(?: <!-- \w+ -->)?")
SINGULAR = {"Corollaries": "Corollary"}


def upto(n):
    return [str(i) for i in range(1, n + 1)]


NOT_OURS = {"layer_level_activation.py"}  # of the LayerAct paper's published code

CONTENTS = {  # what each paper numbers
    "CombU": {"Table": upto(13), "Figure": upto(6), "Lemma": ["0.1", "0.2", ".4", ".6"],
              "Theorem": ["0.3", ".5", ".7"]},
    "PLN and PLS": {"Table": [*upto(3), "I", "II", "III"],
                    "Figure": [*upto(11), "A1", "A2", "A3", "A4"], "Theorem": upto(2),
                    "Lemma": upto(3), "Proposition": upto(3), "Corollary": upto(2),
                    "Definition": upto(3)},
    "LayerAct": {"Table": upto(23), "Figure": upto(7),
                 "Definition": ["2.1", "2.2", "2.3", "3.1", "3.2"]},
    "Proxy Normalization": {"Table": upto(16), "Figure": upto(10), "Theorem": upto(3),
                            "Lemma": upto(3), "Proposition": upto(6), "Definition": upto(1)},
}  # fmt: skip


def rows(paper):
    """The cells of each row of a paper's table."""
    section = PAGE.split(f"\n## {paper}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def numbered(name):
    """The things of a first cell: "Tables 3, 7, Figure 4" is Table 3, Table 7, Figure 4."""
    kind = None
    for part in name.split(", "):
        item = ITEM.fullmatch(part)
        if item and item[1]:
            kind = SINGULAR.get(item[1], item[1].removesuffix("s"))
        if item and kind:
            yield kind, item[2]
        elif not item:
            kind = None  # "Eq. 7", "appendix C"


@pytest.mark.parametrize("paper", CONTENTS)
def test_every_numbered_thing_has_one_row(paper):
    found = sorted(thing for name, *_ in rows(paper) for thing in numbered(name))
    assert found == sorted((kind, n) for kind, all_n in CONTENTS[paper].items() for n in all_n)


@pytest.mark.parametrize("paper", CONTENTS)
def test_every_row_has_all_cells(paper):
    assert {len(row) for row in rows(paper)} == {6}
    assert all(cell for row in rows(paper) for cell in row)


def test_what_is_linked_is_there():
    targets = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert any("/results/" in target for target in targets)
    assert [target for target in targets if not (BENCHMARKS / target).exists()] == []


def test_tests_that_are_named_exist():
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    here = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    assert named
    assert named - set(re.findall(r"^def (test_\w+)\(", here, re.MULTILINE)) == set()


def test_scripts_that_are_named_exist():
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE)) - NOT_OURS
    assert named
    homes = (BENCHMARKS, ROOT)
    assert {n for n in named if not any((home / n).is_file() for home in homes)} == set()


def test_no_cell_is_left_open():
    assert "…" not in PAGE
