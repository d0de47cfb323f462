"""What numpydoc does not do: torch's section "Shape", and pictures of other hosts refused."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from numpydoc.docscrape import NumpyDocString
from sphinx.application import Sphinx


def shape_in_notes(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Make a docstring's section "Shape", torch's and not numpydoc's, a paragraph of its notes."""
    for i in range(len(lines) - 1):
        if lines[i].strip() == "Shape" and set(lines[i + 1].strip()) == {"-"}:
            end = i + 2
            while end < len(lines) and not re.fullmatch(r"-{3,}", lines[end].strip()):
                end += 1
            end = end - 1 if end < len(lines) else end  # the next section's title
            body = lines[i + 2 : end]
            body[0] = f"**Shape:** {body[0].strip()}"
            rest = lines[:i] + lines[end:]
            for j in range(len(rest) - 1):
                if rest[j].strip() == "Notes" and set(rest[j + 1].strip()) == {"-"}:
                    rest[j + 2 : j + 2] = [*body, ""]
                    break
            else:
                rest[i:i] = ["Notes", "-----", *body]
            lines[:] = rest
            return


def known_sections() -> None:
    """Let numpydoc, which reads signatures from docstrings as they are, know of "Shape"."""
    NumpyDocString.sections["Shape"] = []


def no_network_pictures(app: Sphinx, doctree: nodes.document) -> None:
    """Refuse a picture of another host: a page must not need one."""
    for image in doctree.findall(nodes.image):
        if "://" in image["uri"]:
            raise ValueError(f"{app.env.docname}: a picture of another host, {image['uri']}")
