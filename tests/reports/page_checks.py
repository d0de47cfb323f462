"""What must hold of every page, as a person or a reader's device meets it in a browser.

Each check opens a page and returns what is wrong with it, one line each.
"""

import re
from pathlib import Path

SCRIPTS = Path(__file__).with_name("page_checks.js").read_text("utf-8")
WIDTHS = (1280, 800, 360)
_PAPER = {"width": 718, "height": 1047}  # A4 within Chromium's margins, in CSS pixels
_SHEETS = 3
_CONTRAST, _MARKS = 4.5, 3.0  # of text, and of marks, to what is behind: WCAG 2.2, level AA


def look(browser, name, *arguments):
    """Call a function of page_checks.js in the page."""
    return browser.ask(f"{SCRIPTS}\nreturn {name}(...arguments);", *arguments)


def console(browser, page):
    browser.open(page)
    return browser.problems()


def requests(browser, page):
    browser.open(page)
    look(browser, "openAll")
    own = page.resolve().as_uri()
    found = browser.requests()
    return [url for url in found if url != own] or [f"{own} not asked for"] * (own not in found)


def structure(browser, page):
    """One language, title, main part and first heading; no active content; names that are met."""
    browser.open(page)
    return look(browser, "structure")


def figures(browser, page):
    """Every picture is seen, named and told of, and nothing in it is cut off or overlaps."""
    wrong = []
    for width in WIDTHS:
        browser.open(page, width=width)
        look(browser, "openAll")
        wrong += [f"{each} (at {width})" for each in look(browser, "figures")]
    return wrong


def width(browser, page):
    """Nothing is wider than the page, on screens of three widths."""
    wrong = []
    for each in WIDTHS:
        browser.open(page, width=each)
        look(browser, "openAll")
        wrong += [f"{line} (at {each})" for line in look(browser, "tooWide")]
    return wrong


def dark_mode(browser, page):
    """Dark text on light, or light on dark, as the reader's system asks for."""
    browser.open(page)
    light = look(browser, "brightness")
    browser.open(page, dark=True)
    dark = look(browser, "brightness")
    return [
        f"{scheme}: brightness of {part} is {value:.2f}"
        for scheme, part, value, good in (
            ("light", "page", light["page"], light["page"] > 0.8),
            ("light", "text", light["text"], light["text"] < 0.2),
            ("dark", "page", dark["page"], dark["page"] < 0.1),
            ("dark", "text", dark["text"], dark["text"] > 0.6),
        )
        if not good
    ]


def contrast(browser, page):
    """Text and marks stand out from what is behind: light, dark, and printed by a dark reader."""
    wrong = []
    for name, options in {
        "light": {},
        "dark": {"dark": True},
        "printed": {"dark": True, "media": "print", "width": _PAPER["width"]},
    }.items():
        browser.open(page, **options)
        look(browser, "openAll")
        found = look(browser, "faint", _CONTRAST) + look(browser, "faintMarks", _MARKS)
        wrong += [f"{each} ({name})" for each in found]
    return wrong


def tables(browser, page):
    """Every table has a caption, and headers that say whether they are of a row or a column."""
    browser.open(page)
    return look(browser, "tables")


def keyboard(browser, page):
    """Tab comes to the skip link first, and to all that scrolls; where it is can be seen."""
    browser.open(page, width=360, height=640)
    look(browser, "openAll")
    browser.press("TAB")
    first = look(browser, "focused")
    wrong = []
    if first["name"] != "a.skip" or not first["seen"]:
        wrong.append(f"the first Tab comes to {first}")
    wanted = look(browser, "scrolling")
    wrong += [f"{each['name']}: {each['lacks']}" for each in wanted if each["lacks"]]
    met = {first["name"]}
    for _ in range(look(browser, "stops") + 5):
        browser.press("TAB")
        here = look(browser, "focused")
        if here["name"] == "body":
            break
        met.add(here["name"])
        if not here["outlined"]:
            wrong.append(f"no outline shows the focus on {here['name']}")
    wrong += [f"Tab never comes to {each['name']}" for each in wanted if each["name"] not in met]
    browser.open(page)
    browser.press("TAB", "ENTER")
    if (here := look(browser, "focused")["name"]) != "main":
        wrong.append(f"the skip link leads to {here}")
    return wrong


def printing(browser, page):
    """On three sheets of paper all figures and tables are there, in whole, but for what is folded.

    What a reader has opened is printed as well.
    """
    wrong = []
    for opened in (False, True):
        browser.open(page, media="print", **_PAPER)
        if opened:
            look(browser, "openAll")
        wrong += look(browser, "cutOnPaper", _PAPER["width"], _PAPER["height"])
    browser.open(page)
    pdf = browser.pdf()
    n_pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    if not pdf.startswith(b"%PDF") or not 1 <= n_pages <= _SHEETS:
        wrong.append(f"no PDF of {_SHEETS} sheets at most: {pdf[:20]!r}, {n_pages} sheets")
    return wrong


CHECKS = [
    *(console, requests, structure, figures, width),
    *(dark_mode, contrast, tables, keyboard, printing),
]
