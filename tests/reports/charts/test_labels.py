"""Names beside charts: no wider than the room they are given, in a browser and by the font."""

import string

import pytest

from combutab.reports._charts import shorten_middle, text_width

ALL = string.ascii_letters + string.digits + string.punctuation + " äéßñøčΩЖ…"
NAMES = [ALL[i : i + 9] for i in range(len(ALL) - 8)]
NAMES += [letter * 12 for letter in ALL] + [
    "中文列名" * 3,
    "MEDIAN_HOUSE_VALUE",
    "نام ستون",
    "🏠🏡🏘",
]


def test_no_text_is_wider_than_thought(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<!doctype html><meta charset="utf-8"><svg></svg>', "utf-8")
    browser.open(page)
    widths = browser.ask(
        """const svg = document.querySelector("svg");
        return arguments[0].map((name) => {
            const text = document.createElementNS(svg.namespaceURI, "text");
            text.setAttribute("style", 'font: 12px "DejaVu Sans"; white-space: pre');
            text.textContent = name;
            svg.append(text);
            return text.getComputedTextLength();
        });""",
        NAMES,
    )
    wider = [name for name, width in zip(NAMES, widths, strict=True) if width > text_width(name)]
    assert wider == []
    thought = sum(map(text_width, NAMES))
    assert sum(widths) < thought < 1.35 * sum(widths)  # nor are names cut for nothing


@pytest.mark.parametrize("room", [13, 40, 110])
@pytest.mark.parametrize("name", ["a", "median_house_value", "W" * 30, "中文列名" * 9, ""])
def test_a_name_is_cut_where_it_has_no_room(name, room):
    short = shorten_middle(name, room)
    assert text_width(short) <= room
    if text_width(name) <= room:
        assert short == name
    else:
        head, tail = short.split("…")
        assert name.startswith(head)
        assert name.endswith(tail)
        assert text_width(name[: len(head) + 1] + "…" + tail) > room


def test_names_that_begin_alike_are_told_apart():
    names = [f"mean_temperature_of_day_{day}" for day in range(1, 32)]
    assert len({shorten_middle(name, 110) for name in names}) == 31
