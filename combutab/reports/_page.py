"""Pages from templates: one file with all it needs, and text from the data only as text."""

from __future__ import annotations

import platform
import re
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from combutab._version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

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


def without_control(text: str) -> str:
    """Show control characters as Python writes them.

    >>> without_control("red" + chr(27))
    'red\\\\x1b'
    """
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("combutab.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["style"] = _style
    environment.filters["number"] = number
    return environment


def _style() -> Any:
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
