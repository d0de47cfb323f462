"""benchmarks/PAPERS.md: nothing of the papers is missing, and what it names is there."""

import math
import re
from pathlib import Path

import pytest

from benchmarks.papers import overview
from benchmarks.papers.combu.expected import ACTIVATIONS, TABLES, load_expected

ROOT = Path(__file__).parents[3]

BENCHMARKS = ROOT / "benchmarks"

PAGE = (BENCHMARKS / "PAPERS.md").read_text(encoding="utf-8")


NOT_OURS = {"layer_level_activation.py"}  # of the LayerAct paper's published code


def rows(text):
    """The cells of each row of a text's tables."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_page_is_what_the_studies_pages_say():
    assert overview.overview() == PAGE, "run python -m benchmarks.papers.overview"


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
    homes = (BENCHMARKS, ROOT, ROOT / "examples")
    assert {n for n in named if not any((home / n).is_file() for home in homes)} == set()


# ---- The CombU paper's tables as transcribed: whole where the text is, empty where it is not ----


def cells(table):
    expected = load_expected(table)
    return expected[expected["data"] != "avg_rank"]


def printed_ranks(table):
    expected = load_expected(table)
    return expected[expected["data"] == "avg_rank"].set_index(["metric", "activation"])


@pytest.mark.parametrize("table", TABLES)
def test_printed_average_ranks_agree_with_the_cells_but_where_noted(table):
    """Ties take the better rank, as in the paper; a lost cell may rank anywhere."""
    printed = printed_ranks(table)
    for metric, rows in cells(table).groupby("metric"):
        sign = 1.0 if metric in ("accuracy", "f1") else -1.0
        wide = sign * rows.pivot(index="data", columns="activation", values="mean")
        for name in ACTIVATIONS:
            least = most = 0
            for _, row in wide.iterrows():
                if math.isnan(row[name]):
                    least, most = least + 1, most + 7
                    continue
                above = 1 + int((row > row[name]).sum())
                least, most = least + above, most + above + int(row.isna().sum())
            value, note = printed.loc[(metric, name), ["mean", "note"]]
            agrees = least / 4 <= value <= most / 4
            assert agrees != ("the cells give" in note), (metric, name, least / 4, most / 4)
