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


def upto(n):
    return [str(i) for i in range(1, n + 1)]


NOT_OURS = {"layer_level_activation.py"}  # of the LayerAct paper's published code

CONTENTS = {  # what each paper numbers
    "CombU": {"table": upto(13), "figure": upto(6), "lemma": ["0.1", "0.2", ".4", ".6"],
              "theorem": ["0.3", ".5", ".7"]},
    "PLN and PLS": {"table": [*upto(3), "I", "II", "III"],
                    "figure": [*upto(11), "A1", "A2", "A3", "A4"], "theorem": upto(2),
                    "lemma": upto(3), "proposition": upto(3), "corollary": upto(2),
                    "definition": upto(3)},
    "LayerAct": {"table": upto(23), "figure": upto(7),
                 "definition": ["2.1", "2.2", "2.3", "3.1", "3.2"]},
    "Proxy Normalization": {"table": upto(16), "figure": upto(10), "theorem": upto(3),
                            "lemma": upto(3), "proposition": upto(6), "definition": upto(1)},
}  # fmt: skip


def rows(text):
    """The cells of each row of a text's tables."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_page_is_what_the_studies_pages_say():
    assert overview.overview() == PAGE, "run python -m benchmarks.papers.overview"


@pytest.mark.parametrize("paper", CONTENTS)
def test_every_numbered_thing_has_one_row(paper):
    table = PAGE.split(f"\n## {paper}\n")[1].split("<details>")[0]
    found = sorted(thing for name, *_ in rows(table)[1:] for thing in overview.numbered(name))
    assert found == sorted((kind, n) for kind, all_n in CONTENTS[paper].items() for n in all_n)


def test_cells_are_short():
    assert [cell for row in rows(PAGE) for cell in row if len(cell.split()) > 25] == []


def test_verdicts_are_counted_by_what_they_speak_of(tmp_path, monkeypatch):
    results = tmp_path / "papers" / "one" / "results"
    results.mkdir(parents=True)
    (results / "study.md").write_text(
        "| where | claim | measure | here | there |\n| --- | --- | --- | --- | --- |\n"
        "| Tables 2 to 4 | a | unit: table | **holds**: +1, n = 3 | **not decided** |\n"
        "| Figure 3b; Section 2 | b | exact | **does not hold**: 2 | not judged |\n\n"
        "| where | claim | measure |\n| --- | --- | --- |\n"
        "| Table 3 | c | x | **holds** | **holds** |\n"
    )
    monkeypatch.setattr(overview, "FOLDER", tmp_path)
    page = "[study](papers/one/results/study.md)"
    text = "".join(
        f"| {n} | x | {page} | {{verdicts}} |\n" for n in ("Table 3", "Figure 3", "Table 5")
    )
    filled, words = overview.section(f"{text}{{claims}}\n")
    shown = [row[3] for row in rows(filled)[:3]]
    assert shown == ["holds 3, not decided 1", "does not hold 1", "no claim; see the page"]
    assert f"| {page} | Figure 3b; Section 2 | b | exact | does not hold 1 |" in filled
    assert words == ["holds", "not decided", "does not hold", "holds", "holds"]


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


@pytest.mark.parametrize(
    ("table", "data", "metric", "activation", "mean", "sd"),
    [
        (3, "gs", "mae", "relu", 0.088, 0.011),
        (3, "ns", "mse", "nlrelu", 2.525, 0.165),
        (3, "bs", "f1", "combu", 87.84, 1.89),
        (5, "breast-w", "f1", "elu", 96.80, 0.00),
        (5, "diabetes", "accuracy", "swish", 75.19, 0.07),
        (5, "diabetes", "f1", "swish", 70.19, 1.20),
        (5, "PhishingWebsites", "accuracy", "gelu", 97.13, 0.22),
        (6, "autoMpg", "mse", "gelu", 0.084, 0.005),
        (6, "california_housing", "mae", "combu", 0.283, 0.004),
        (6, "wine_quality", "mse", "combu", 0.573, 0.011),
    ],
)
def test_some_cells_as_read_by_hand(table, data, metric, activation, mean, sd):
    row = cells(table).set_index(["data", "metric", "activation"]).loc[(data, metric, activation)]
    assert (row["mean"], row["sd"]) == (mean, sd)


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


def test_table_7_holds_both_generators_and_what_real_data_gives():
    table = load_expected(7)
    assert len(table) == 2 * 2 * 2 * 8
    assert set(table["model"]) == {"ctgan", "tvae"}
    assert set(table["activation"]) == {"real", *ACTIVATIONS}
    assert table["mean"].isna().equals(table["note"].str.startswith("lost in the text"))
    assert table["mean"].isna().sum() == 2 * 7 + 4 * 4
    whole = table.dropna(subset=["mean"]).groupby(["data", "model", "metric"]).size()
    assert whole["california_housing"].to_dict() == {
        ("ctgan", "mae"): 1, ("ctgan", "mse"): 8, ("tvae", "mae"): 8, ("tvae", "mse"): 1
    }  # fmt: skip
    assert (whole["PhishingWebsites"] == 4).all()
    assert len(whole) == 8
