"""The pages and pictures that are made from the code and from what lies in the repository."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import activation_pages
import architecture
import command_pages
import docstrings
import outputs
import parameter_groups
import reference
import repository_pages
import search_words
import shown
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

ran: list[Path] = []  # pages whose blocks this build ran
MADE = "made"  # beside conf.py: pictures, and in extra/ what is copied to the site as it is


def example_arguments(gallery: dict[str, Any], script: dict[str, Any]) -> list[str]:
    """Tell an example where its files go; and its own docstring, which it has for ``--help``."""
    source = ast.parse(Path(script["src_file"]).read_text("utf-8"))
    script["example_globals"]["__doc__"] = ast.get_docstring(source)
    folder = written(gallery, script)
    folder.mkdir(parents=True, exist_ok=True)
    return ["--out", str(folder)]


def written(gallery: dict[str, Any], script: dict[str, Any]) -> Path:
    """The folder of an example's files."""
    return Path(gallery["src_dir"]) / MADE / "examples" / Path(script["src_file"]).stem


def written_pictures(block: Any, script: dict[str, Any], gallery: dict[str, Any]) -> str:
    """Take the picture that an example has written, as sphinx-gallery takes open figures.

    Pages of HTML go to the site's reports, by the example's name.
    """
    from sphinx_gallery.scrapers import figure_rst

    folder = written(gallery, script)
    for page in folder.glob("*.html"):
        reports = Path(gallery["src_dir"]) / MADE / "extra" / "reports"
        reports.mkdir(parents=True, exist_ok=True)
        page.replace(reports / f"{folder.name}.html")
    picture = folder / f"{folder.name}.png"
    if not picture.exists():  # in a block before the last one
        return ""
    target = Path(next(script["image_path_iterator"]))
    picture.replace(target)
    readme = Path(script["src_file"]).with_name("README.md").read_text("utf-8")
    said = re.search(rf"!\[([^]]+)\]\(pictures/{folder.name}\.png\)", readme)
    return str(figure_rst([str(target)], gallery["src_dir"], said[1] if said else ""))


def make(app: Sphinx) -> None:
    """Make them, before Sphinx looks for its sources."""
    docs = Path(app.srcdir)
    for part in (activation_pages, command_pages, architecture, repository_pages, shown):
        part.write(docs)
    reference.write(docs / "api", activation_pages.pages("/made/activations"))
    ran[:] = outputs.write(docs)


def anew(app: Sphinx, env: Any, added: Any, changed: Any, removed: Any) -> list[str]:
    """Name the pages whose blocks have run, which Sphinx is to read again."""
    return [page.relative_to(app.srcdir).with_suffix("").as_posix() for page in ran]


def complete(app: Sphinx, name: str, text: list[str]) -> None:
    """Put the outputs of a page's code blocks below them, and entries for the search."""
    text[0] = search_words.mark(name, outputs.insert(Path(app.srcdir), name, text[0]))


def versions(app: Sphinx, config: Any) -> None:
    """Write the list that the version switch reads, with the addresses of the versions' sites."""
    docs = Path(app.srcdir)
    listed = json.loads((docs / "versions.json").read_text("utf-8"))
    for entry in listed:
        entry["url"] = config.docs_url + entry.pop("folder")
    (docs / MADE / "extra").mkdir(parents=True, exist_ok=True)
    (docs / MADE / "extra" / "switcher.json").write_text(json.dumps(listed), "utf-8")


def setup(app: Sphinx) -> ExtensionMetadata:
    docstrings.known_sections()
    app.add_config_value("docs_url", "", "html")
    app.connect("config-inited", versions, priority=100)
    app.connect("builder-inited", make, priority=100)
    app.connect("env-get-outdated", anew)
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", docstrings.shape_in_notes, priority=100)
    app.connect("autodoc-process-docstring", parameter_groups.group_parameters, priority=900)
    app.connect("doctree-read", docstrings.no_network_pictures)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
