"""What the pages of both studies share: their texts, and the looks of norms."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.common.looks import Look

# Okabe and Ito's colours, one a norm and its marker; PN is on a solid line
LOOKS = {"BN": ("#000000", "o"), "LN": ("#D55E00", "s"), "GN": ("#0072B2", "^")}
LOOKS |= {"LN+WS": ("#CC79A7", "X"), "GN+WS": ("#009E73", "D")}


def look(norm: str) -> Look:
    return *LOOKS[norm.removesuffix("+PN")], "-" if norm.endswith("+PN") else (0, (3, 2))


def texts(study: str) -> dict[str, str]:
    """Read what a study's page says besides its numbers, by the headings of ``page.md``."""
    text = (Path(study).parent / "page.md").read_text("utf-8")
    _, *parts = re.split(r"^# (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))
