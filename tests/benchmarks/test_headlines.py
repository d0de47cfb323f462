"""The headline numbers: the page is what the stored rows give, and what is quoted is on it."""

import math
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import headlines
from benchmarks.speed.scaling import exponents

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "benchmarks" / "HEADLINES.md"
FOUR = ["scikit-learn MLP", "HistGradientBoosting", "CatBoost", "RealMLP-TD"]
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w,.]*\d)")


def number(text):
    return float(text.replace(",", "")) if text not in ("", "—") else math.nan


def page():
    """Section -> caption -> rows of cells by column; the first column is the name "of"."""
    found = defaultdict(dict)
    section = caption = ""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line[1:-1].split(" | ")]
            if caption not in found[section]:
                head, found[section][caption] = ["of", *cells[1:]], []
            elif not cells[0].startswith("---"):
                found[section][caption].append(dict(zip(head, cells, strict=True)))
        elif line.startswith("<summary>"):
            caption = line.removeprefix("<summary>").removesuffix("</summary>")
    return found


# ---- what each section is, by its own arithmetic -------------------------------------------------


def test_exponents_of_powers():
    sizes = np.array([1.0, 10.0, 100.0, 1000.0])
    points = pd.DataFrame({"dimension": "rows", "size": sizes, "seconds": sizes**2})
    points["megabytes"] = [1.0, 100.0, 100.0, 1000.0]
    row = exponents(points).loc["rows"]
    expected = {"seconds": 2.0, "seconds, steepest": 2.0}
    expected |= {"megabytes": 1.0, "megabytes, steepest": 2.0}
    assert row.to_dict() == pytest.approx(expected)


def test_the_page_is_what_the_rows_give():
    assert str(headlines.page()) == PAGE.read_text("utf-8"), "run python -m benchmarks.headlines"
    assert set(page()) == set(headlines.SECTIONS)


# ---- what is quoted ------------------------------------------------------------------------------

OTHER_NAMES = {"a pack": "combutab Pack", "ours": "combutab", "scikit-learn's MLP": FOUR[0]}
OTHER_NAMES |= {"the CombU paper's recipe": "combutab, paper", "our TabM": "combutab TabM"}
OTHER_NAMES |= {"a default network": "default", "`combutab, one network`": "combutab, one network"}
OTHER_NAMES |= {"TabFlow": "combutab TabFlow", "our TVAE": "combutab TVAE"}
OTHER_NAMES |= {"our CTGAN": "combutab CTGAN", "`ctgan` TVAE": "ctgan TVAE"}
OTHER_NAMES |= {"`ctgan` CTGAN": "ctgan CTGAN", "TabularARGN": "mostlyai TabularARGN"}
OTHER_NAMES |= {"GaussianCopula": "sdv GaussianCopula", "TabDiff": "TabDiff, published"}
OTHER_NAMES |= {"TabPC": "TabPC, published", "TabFlowTables": "combutab TabFlowTables"}
OTHER_NAMES |= {"HMA": "sdv HMA"}


def quotes():
    """Each text that quotes numbers, with its section here: lines of README and the docs."""
    titles = {title.lower().replace(" ", "-"): title for title in headlines.SECTIONS}
    found = []
    for name, begin, end in (
        ("README.md", "Mean test error", "## Try it"),
        ("README.md", "## Numbers", "## Where to go next"),
        ("benchmarks/README.md", "## Last results", None),
        ("docs/choose.md", "## Error and time", "## All measurements"),
    ):
        text = (ROOT / name).read_text("utf-8").partition(begin)[2]
        text = text.partition(end)[0] if end else text
        section = "predictions"
        for part in re.split(r"\n(?=[|-])|\n\n", text):
            if "WHICH_ACTIVATION" not in part:  # which has a test of its own
                anchor = re.search(r"HEADLINES\.md#([\w-]+)", part)
                section = anchor[1] if anchor else section
                part = re.sub(r"\]\([^)]*\)|torch [\d.]+|\(family[^)]*\)", "]", part)
                found.append((name, part, titles[section]))
    return found


def near(quoted, told):
    digits = len(quoted.partition(".")[2])
    return abs(number(quoted) - told) <= 0.5001 * 10.0**-digits


def numbers(text):
    return [number(each) for each in NUMBER.findall(text)]


def test_what_is_quoted_is_in_the_page():
    text = PAGE.read_text("utf-8")
    seen = 0
    for place, quote, section in quotes():
        own = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
        cells = [row for table in page()[section].values() for row in table]
        around = [line for line in own.splitlines() if not re.match(r"\| (?!.*\| ---)", line)]
        heads = {key for row in cells for key in row}
        context = numbers(" ".join([*around, *heads, *(row["of"] for row in cells)]))
        names = {**OTHER_NAMES, **{row["of"]: row["of"] for row in cells}}
        by_length = sorted(map(re.escape, names), key=len, reverse=True)
        of = None
        for found in re.finditer(
            rf"({'|'.join(by_length)})(?!\w)|({NUMBER.pattern})|[;.:|]\s", quote
        ):
            if found[1]:
                of = names[found[1]]
            elif not found[2]:
                of = None
            else:
                rows = [row for row in cells if of is None or row["of"] == of]
                told = numbers(" ".join(v for row in rows for k, v in row.items() if k != "of"))
                seen += 1
                assert any(near(found[2], each) for each in [*told, *context]), (
                    f"{place}: {found[2]} of {of} is not in {section}: {quote}"
                )
    assert seen > 100


def test_quoted_activation_numbers_are_on_their_page():
    readme = (ROOT / "README.md").read_text("utf-8")
    (quote,) = (line for line in readme.splitlines() if line.startswith("| which activation"))
    told = numbers((ROOT / "benchmarks" / "WHICH_ACTIVATION.md").read_text("utf-8"))
    quoted = NUMBER.findall(re.sub(r"\]\([^)]*\)", "]", quote))
    assert quoted
    assert all(any(near(each, value) for value in told) for each in quoted)
