"""The page of a synthetic table: all that was found is on it, and text of the data is text."""

import math
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from combutab.reports import evaluate_synthetic, render_report, write_report

pytestmark = pytest.mark.usefixtures("short_reports")

VOID = {"meta", "rect", "path", "br", "img", "input", "link"}
HOSTILE = "<script>alert('x')</script>"


class Page(HTMLParser):
    """Elements of a page, which must be closed in order, and its text."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.text, self._open = [], [], []
        self.feed(html)
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def count(self, tag, **attributes):
        return sum(
            found == tag and attributes.items() <= given.items() for found, given in self.elements
        )

    @property
    def ids(self):
        return [given["id"] for _, given in self.elements if "id" in given]

    def says(self, text):
        return text in " ".join(" ".join(self.text).split())


def people(n, seed):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    table = pd.DataFrame(
        {
            "age": (40 + 10 * a).round(),
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, n), unit="D"),
            "city": rng.choice(["Rome", "Oslo", HOSTILE], n),
            HOSTILE: a + rng.normal(size=n),
            "buys": np.where(a + rng.normal(size=n) > 0, "yes", "no"),
        }
    )
    table.loc[::9, "age"] = np.nan
    return table


@pytest.fixture(scope="module")
def found():
    return evaluate_synthetic(
        real_train=people(300, 0),
        synthetic=people(200, 1),
        real_test=people(100, 2),
        target="buys",
        learners=["linear", "decision_tree"],
        made={"Model": "CTGAN", HOSTILE: HOSTILE},
        names={"real": "people.csv", "synthetic": f"{HOSTILE}.csv", "test": "held.csv"},
    )


@pytest.fixture(scope="module")
def page(found):
    return Page(render_report(found))


def test_findings_come_first_and_in_full(found, page):
    text = " ".join(" ".join(page.text).split()).replace("\u00a0", " ")
    places = [text.index(finding.sentence) for finding in found.findings]
    assert places == sorted(places)
    assert places[-1] < text.index("Utility: models", places[-1])
    for finding in found.findings:
        assert all(note in text for note in finding.notes)


def test_every_column_has_a_chart_with_words(found, page):
    pictures, bars = page.count("svg", role="img"), page.count("table", **{"class": "bars"})
    assert (pictures, bars) == (3, 3)
    assert page.count("title") == pictures + 1  # and the page's
    assert page.count("desc") == pictures
    for column in found.train.columns:
        assert page.says(str(column))


def test_all_scores_are_in_tables(found, page):
    for value in found.efficacy["mean"]:
        assert page.says("1" if value == 1 else f"{value:.3f}" if value < 1 else f"{value:.3g}")
    assert page.count("table") == page.count("caption") == 9 + 3 + 2  # bars, maps
    assert page.count("th", scope="col") > 0
    assert page.count("th", scope="row") > 0


def test_parts_of_the_two_sample_test(found, page):
    parts = found.detection_parts.groupby("source", sort=False)["part"].agg(list)
    n_columns = len(found.kinds)
    assert parts["synthetic"] == ["all", "shuffled"] + ["column"] * n_columns + ["pair"] * 4
    assert parts["held-out real"] == ["all", "shuffled"]
    assert page.says("All columns, each shuffled")
    first = found.detection_parts.query("part == 'pair'").iloc[0]
    assert page.says(f"{first['column']} and {first['other_column']}")


def test_held_out_rows_stand_beside(found, page):
    table = found.fidelity
    chosen = (table["measure"] == "ks") & (table["source"] == "held-out real")
    score = math.floor(100 * table.loc[chosen, "mean"].iloc[0])
    assert page.says(f"(held-out real rows: {score} %)")


def test_text_of_the_data_is_text(page):
    assert page.count("script") == page.count("img") == 0
    assert page.says(HOSTILE)


def test_it_loads_nothing(page):
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert page.count("meta", content=policy) == 1
    for _, attributes in page.elements:
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")


def test_page_without_target_and_held_out_rows():
    real = people(60, 0)
    page = Page(render_report(evaluate_synthetic(real_train=real, synthetic=real[:50])))
    assert "utility" not in page.ids
    assert page.says("50 of 50 synthetic rows are exact duplicates of a training row")
    assert page.says("No generator was given, so its settings are not listed.")


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"one": [1.0, 1.0, 1.0]}),
        pd.DataFrame({"empty": [np.nan, np.nan], "b": ["x", None]}),
        pd.DataFrame({0: [True, False], 1: [1e149, -1e149]}),
    ],
    ids=["one column", "an empty column", "integer names, the largest numbers"],
)
def test_odd_tables_have_a_page(table):
    Page(render_report(evaluate_synthetic(real_train=table, synthetic=table)))


def test_constant_columns_lose_their_associations():
    a = np.random.default_rng(0).normal(size=80)
    real = pd.DataFrame({"a": a, "b": 2 * a})
    page = Page(render_report(evaluate_synthetic(real_train=real, synthetic=real.assign(b=1.0))))
    assert page.says("association of 1.00 in the real rows and 0.00 in the synthetic rows")
    assert not page.says("The maps agree")


def test_many_columns_stay_small_and_are_all_there():
    rng = np.random.default_rng(0)
    tables = [
        pd.DataFrame(rng.normal(size=(100, 50)), columns=[f"column {i}" for i in range(50)])
        for _ in range(2)
    ]
    for table in tables:
        for i in range(0, 50, 2):
            table[f"column {i}"] = rng.choice([f"category {k}" for k in range(12)], 100)
    html = render_report(evaluate_synthetic(real_train=tables[0], synthetic=tables[1]))
    page = Page(html)
    assert len(html) < 2e6
    assert page.count("svg", role="img") == page.count("table", **{"class": "bars"}) == 25
    assert page.says("38 more columns")
    assert page.says("The maps show the 25 columns")


def test_reports_are_written_whole_or_not(found, tmp_path):
    place = tmp_path / "report.html"
    write_report(found, place)
    before = place.read_text("utf-8")
    assert before == render_report(found)
    with pytest.raises(TypeError, match="got a dict"):
        write_report({}, place)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        write_report(found, tmp_path / "none" / "report.html")
    assert place.read_text("utf-8") == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
