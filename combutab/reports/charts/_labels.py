"""Names beside the marks of a chart, which have so much room and no more."""

from __future__ import annotations

import unicodedata
from itertools import accumulate

# Advances of letters at 12 pixels, at most, in DejaVu Sans: the widest of the fonts of a page
_NARROW = dict.fromkeys("fijlrtIJ .,:;'\"|!/\\()[]-`_*", 6.1)
_WIDE = dict.fromkeys("w#+<=>^~&ABCDGHKNOQRUVXZ", 10.2)
_WIDEST = dict.fromkeys("mMW@%…", 12.0)
_ADVANCES = _NARROW | _WIDE | _WIDEST
_HEAD = 0.6  # of the room, for a name's start
_OTHERS, _FULL = 7.7, 15.0  # letters and digits; signs as wide as high, such as 中


def text_width(text: str) -> float:
    """How wide a text of 12 pixels is at most, in pixels.

    Examples
    --------
    >>> text_width("relu") < text_width("RELU") < text_width("WWWW")
    True
    """
    return sum(map(_advance, text))


def shortened(name: str, room: float) -> str:
    """As much of a name as has room, at 12 pixels, with an ellipsis for its middle.

    Names of columns often begin alike; their ends tell them apart.

    Examples
    --------
    >>> shortened("median_income", 110), shortened("median_house_value", 110)
    ('median_income', 'median_…value')
    """
    if text_width(name) <= room:
        return name
    room -= _advance("…")
    head = _start(name, _HEAD * room)
    tail = _start(name[::-1], room - text_width(head))[::-1]
    return f"{head}…{tail}"


def _start(name: str, room: float) -> str:
    widths = accumulate(map(_advance, name))
    return name[: sum(width <= room for width in widths)]


def _advance(letter: str) -> float:
    if letter in _ADVANCES:
        return _ADVANCES[letter]
    if letter.isascii() or unicodedata.category(letter) in {"Ll", "Mn"}:
        return _OTHERS
    return _FULL
