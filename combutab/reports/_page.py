"""Pages from templates: one file with all it needs, and text from the data only as text."""

from __future__ import annotations

import io
import math
import platform
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from combutab._version import __version__
from combutab.core.text import counted

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from matplotlib.figure import Figure

_STYLE = "page.css"
_LIBRARIES = ("torch", "scikit-learn", "pandas", "numpy")
# What names and values may hold, and would do something in a terminal or to the reading order
_CONTROL = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff\\ufffe\\uffff]"
)


def render(template: str, **values: Any) -> str:
    """Fill a template of this package, by its file's name, with values whose text is escaped.

    The page has its style in it; control characters are shown as Python writes them.
    """
    page = _environment().get_template(template).render(values)
    return without_control(page)


def say(macro: str, **facts: Any) -> list[str]:
    """The sentences, or parts of one, that a macro of templates/findings.txt gives: a line each."""
    text = getattr(_environment().get_template("findings.txt").module, macro)(**facts)
    return [line.strip() for line in text.split("\n") if line.strip()]


def without_control(text: str) -> str:
    """Show control characters as Python writes them.

    >>> without_control("red" + chr(27))
    'red\\\\x1b'
    """
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("combutab.reports"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["style"] = _style
    environment.filters |= {
        "number": number,
        "counted": counted,
        "named": lambda name: repr(str(name)),
    }
    return environment


def _style() -> Markup:
    from markupsafe import Markup

    text = resources.files("combutab.reports").joinpath("templates", _STYLE).read_text("utf-8")
    return Markup(text)  # our own, not the data's


def number(value: float, digits: int = 3) -> str:
    """A number as a person reads it, and a dash for none.

    >>> number(0.12345), number(1234567.0), number(0.0000123), number(float("nan"))
    ('0.123', '1,234,567', '1.23e-05', '–')
    >>> number(-0.0001), number(42)
    ('-0.0001', '42')
    """
    if value != value:  # NaN
        return "–"
    if abs(value) < 1e-12:  # what rounding leaves of a zero
        value = 0.0
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}" if size < 1e9 else f"{value:.{digits}g}"
    if size >= 1:
        return f"{value:.{digits}g}"
    if size < 5 * 10.0 ** -(digits + 1):
        return f"{value:.{digits}g}"
    return f"{value:.{digits}f}"


def versions() -> dict[str, str]:
    """Return the versions of combutab, of the libraries that results depend on, and of Python.

    >>> list(versions())
    ['combutab', 'torch', 'scikit-learn', 'pandas', 'numpy', 'Python']
    """
    libraries = {name: version(name) for name in _LIBRARIES}
    return {"combutab": __version__, **libraries, "Python": platform.python_version()}


# ---- Figures of matplotlib as parts of a page ----------------------------------------------------

_SVG, _HREF = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_GRID = "var(--line)"
_COLOURS = {  # of the figures, as the page has them: light, dark and printed
    "#0072b2": "var(--real)",
    "#0b66a8": "var(--real)",
    "#9cc7e6": "var(--real-area)",
    "#d55e00": "var(--synthetic)",
    "#b34700": "var(--synthetic)",
    "#000000": "var(--soft)",
    "#4c4c4c": "var(--soft)",
    "#737373": "var(--soft)",
    "#cccccc": _GRID,
    "#ebebeb": _GRID,
    "#ffffff": "var(--page)",
}


@contextmanager
def svg_style() -> Iterator[None]:
    """Draw in matplotlib's own style, whatever the user's is, with text as text."""
    import matplotlib.style

    with matplotlib.style.context(["default", {"svg.fonttype": "none"}]), warnings.catch_warnings():
        # the browser has fonts for what matplotlib's lacks
        warnings.filterwarnings("ignore", r"Glyph \d+", UserWarning)
        yield


def inline_svg(figure: Figure, title: str, description: str, *, kind: str = "") -> Markup:
    """A figure as an SVG element in the page's colours and fonts, with a text alternative.

    It has nothing that only a file needs. The same figure and title give the same bytes; ``kind``
    is a class of the page's style.
    """
    import matplotlib
    from markupsafe import Markup

    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    drawn = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": title}):  # no two pictures share an id
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    svg = ElementTree.fromstring(drawn.getvalue())
    used = {node.get(_HREF, "")[1:] for node in svg.iter(f"{_SVG}use")}
    for parent in list(svg.iter()):
        for child in [*parent.findall(f"{_SVG}metadata"), *parent.findall(f"{_SVG}style")]:
            parent.remove(child)
    for node in svg.iter():
        node.tag = node.tag.removeprefix(_SVG)
        attributes = dict(node.attrib)
        node.attrib.clear()
        for name, value in attributes.items():
            if name == "style":
                _set_style(node, value)
            elif name != "clip-path" and (name != "id" or value in used):
                node.set("href" if name == _HREF else name, " ".join(value.split()))
    # names in a font wider than matplotlib's begin further to the left
    ends = [node for node in svg.iter("text") if "text-anchor: end" in node.get("style", "")]
    left_edge = min(
        (float(node.get("x", 0)) - _text_width(node.text or "") for node in ends), default=0
    )
    left_edge = min(0, math.floor(left_edge))
    _, _, width, height = map(float, svg.get("viewBox", "").split())
    svg.attrib = {
        "role": "img",
        "width": f"{(width - left_edge) * 4 / 3:.0f}",  # of points
        "viewBox": f"{left_edge} 0 {width - left_edge:g} {height:g}",
        "class": kind,
    }
    for i, (tag, text) in enumerate({"title": title, "desc": description}.items()):
        element = ElementTree.Element(tag)
        element.text = without_control(text)
        svg.insert(i, element)
    return Markup(ElementTree.tostring(svg, encoding="unicode"))  # which has escaped the text


def _set_style(element: ElementTree.Element, style: str) -> None:
    """Set a style with the page's colours and, of a font, the size alone."""
    style = re.sub(r"font: .*?([\d.]+px)[^;]*", r"font-size: \1", style)  # of older matplotlib
    style = re.sub(r"font-family: [^;]*; ", "", style)
    style = re.sub("#[0-9a-f]{6}", lambda colour: _COLOURS[colour[0]], style)
    if _GRID in style:
        element.set("class", "grid")
    element.set("style", style)


def _text_width(text: str) -> float:
    """Return the points that ten-point text takes at most, in DejaVu Sans or a narrower font."""
    wide = sum(not letter.isascii() or letter in "mMwWQ@%#&+<=>^~" for letter in text)
    square = sum(letter > "\u2e80" for letter in text)  # such as Chinese
    capital = sum(letter.isupper() for letter in text)
    return 6.4 * len(text) + 3.7 * wide + 2.4 * square + 1.6 * capital
