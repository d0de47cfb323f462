"""The dot plot of a comparison as a part of its page."""

from __future__ import annotations

import io
import math
import re
import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from combutab.evaluation import interval_words
from combutab.model_selection import ActivationComparison
from combutab.plotting import plot_comparison
from combutab.reports._page import without_control
from combutab.reports.charts import shortened, text_width

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

_NAMES = 160  # pixels, at 12 a letter, that a name may take
_LETTER = 10  # points of a name's letters: matplotlib's default
_SVG, _HREF = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_GRID = "var(--line)"
_COLOURS = {  # of the figure, as the page has them: light, dark and printed
    "#0072b2": "var(--real)",
    "#d55e00": "var(--synthetic)",
    "#000000": "var(--soft)",
    "#4c4c4c": "var(--soft)",
    "#737373": "var(--soft)",
    "#cccccc": _GRID,
    "#ebebeb": _GRID,
    "#ffffff": "var(--page)",
}


def dot_plot(found: ActivationComparison) -> Markup:
    """Draw `plot_comparison` as an SVG element with a text alternative.

    Text stays text; colours and fonts are the page's. The same comparison gives the same bytes.
    """
    import matplotlib.style
    from markupsafe import Markup

    style = {"svg.fonttype": "none", "svg.hashsalt": "combutab"}
    with matplotlib.style.context(["default", style]), warnings.catch_warnings():
        # The browser has fonts for what matplotlib's lacks
        warnings.filterwarnings("ignore", r"Glyph \d+", UserWarning)
        figure = plot_comparison(found)
        (axes,) = figure.axes
        _fit_to_page(axes)
        figure.patch.set_visible(False)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    svg = ElementTree.fromstring(drawn.getvalue())
    title = f"Scores of the activations: {found.measure.description}"
    return Markup(_inlined(svg, title, _description(found)))  # text in it was escaped on writing


def _fit_to_page(axes: Axes) -> None:
    """Leave to the page what it says itself, and make names short."""
    axes.set_title("", loc="left")
    axes.set_ylabel("")
    axes.patch.set_visible(False)
    names = [
        shortened(" ".join(without_control(label.get_text()).split()), _NAMES)
        for label in axes.get_yticklabels()
    ]
    axes.set_yticks(axes.get_yticks(), names, parse_math=False)


def _inlined(svg: ElementTree.Element, title: str, description: str) -> str:
    """Return what matplotlib wrote without what only a file needs, in the page's colours."""
    used = {each.get(_HREF, "")[1:] for each in svg.iter(f"{_SVG}use")}
    for parent in list(svg.iter()):
        for name in ("metadata", "style"):
            for child in parent.findall(f"{_SVG}{name}"):
                parent.remove(child)
    for each in svg.iter():
        each.tag = each.tag.removeprefix(_SVG)
        attributes = dict(each.attrib)
        each.attrib.clear()
        for name, value in attributes.items():
            if name == _HREF:
                each.set("href", value)
            elif name == "style":
                _set_style(each, value)
            elif name != "clip-path" and (name != "id" or value in used):
                each.set(name, " ".join(value.split()))
    left = 0.0  # names in a font wider than matplotlib's begin further to the left
    for each in svg.iter("text"):
        if "text-anchor: end" in each.get("style", ""):
            left = min(left, float(each.get("x", 0)) - text_width(each.text or "") * _LETTER / 12)
    left = math.floor(left)
    _, _, width, height = map(float, svg.get("viewBox", "").split())
    svg.attrib = {
        "role": "img",
        "width": f"{(width - left) * 4 / 3:.0f}",  # of points
        "viewBox": f"{left} 0 {width - left:g} {height:g}",
        "class": "fixed",
    }
    for i, (tag, text) in enumerate({"title": title, "desc": description}.items()):
        element = ElementTree.Element(tag)
        element.text = without_control(text)
        svg.insert(i, element)
    return ElementTree.tostring(svg, encoding="unicode")


def _set_style(element: ElementTree.Element, style: str) -> None:
    """Set a style with the page's colours and, of a font, the size alone."""
    style = re.sub(r"font: .*?([\d.]+px)[^;]*", r"font-size: \1", style)  # of older matplotlib
    style = re.sub(r"font-family: [^;]*; ", "", style)
    style = re.sub("#[0-9a-f]{6}", lambda colour: _COLOURS[colour[0]], style)
    if _GRID in style:
        element.set("class", "grid")
    element.set("style", style)


def _description(found: ActivationComparison) -> str:
    """Say what the picture shows: each mean with its interval and its verdict."""
    said = []
    for kind, table in (("activation", found.summary), ("baseline", found.baselines)):
        for _, line in table.iterrows():
            ends = interval_words(line["low"], line["high"])
            said.append(
                f"{line[kind]}{', a baseline' * (kind == 'baseline')}: mean {line['mean']:.4g}, "
                + (f"interval {ends}" if ends else "the same score in all folds")
                + ", significantly different from the best" * bool(line["distinguishable"])
            )
    return "; ".join(said)
