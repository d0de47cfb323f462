"""The pages and pictures that are made from the code and from what lies in the repository."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import activation_pages
import architecture
import command_pages
import docstrings
import parameter_groups
import plain_pages
import reference
import repository_pages
import search_words
import shown
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

MADE = "made"  # beside conf.py: pictures, and in extra/ what is copied to the site as it is


def example_files(gallery: dict[str, Any]) -> set[Path]:
    """The files beside the scripts, where sphinx-gallery runs them."""
    folder = Path(gallery["src_dir"], gallery["examples_dirs"]).resolve()
    return {path for path in folder.iterdir() if path.is_file()}


def written_files(gallery: dict[str, Any]) -> list[Path]:
    """The files that the current example has written."""
    return sorted(example_files(gallery) - gallery["files_before"])


def example_pictures(block: Any, script: dict[str, Any], gallery: dict[str, Any]) -> str:
    """Take the picture that an example has written, as sphinx-gallery takes open figures."""
    from sphinx_gallery.scrapers import figure_rst

    source = Path(script["src_file"])
    pictures = [path for path in written_files(gallery) if path.suffix == ".png"]
    if not pictures:  # in a block before the last one
        return ""
    target = Path(next(script["image_path_iterator"]))
    pictures[0].replace(target)
    text = source.with_name("README.md").read_text("utf-8")
    alt = re.search(rf"!\[([^]]+)\]\(pictures/{source.stem}\.png\)", text)
    return str(figure_rst([str(target)], gallery["src_dir"], alt[1] if alt else ""))


def remove_example_files(gallery: dict[str, Any], script: str | None, when: str) -> None:
    """Move an example's report to the site's reports, and delete its other files."""
    if when == "before" or script is None:
        gallery["files_before"] = example_files(gallery)
        return
    reports = Path(gallery["src_dir"]) / MADE / "extra" / "reports"
    reports.mkdir(parents=True, exist_ok=True)
    for path in written_files(gallery):
        if path.suffix == ".html":
            path.replace(reports / f"{Path(script).stem}.html")
        else:
            path.unlink()


THUMBNAIL = re.compile(
    r"\.\. raw:: html\n\n    <div class=\"sphx-glr-thumbcontainer\""
    r".*?:doc:`/examples/(\w+)`.*?</div>\n    </div>\n",
    re.DOTALL,
)


def sort_gallery(index: str, readme: str) -> str:
    """Divide the thumbnails of the gallery by the sections of examples/README.md."""
    thumbnails = {match[1]: match[0] for match in THUMBNAIL.finditer(index)}
    if not thumbnails:
        return index
    start = min(map(index.index, thumbnails.values()))
    end = max(index.index(text) + len(text) for text in thumbnails.values())
    close_grid = "\n.. raw:: html\n\n    </div>\n\n"
    open_grid = '\n.. raw:: html\n\n    <div class="sphx-glr-thumbnails">\n\n'
    sections = []
    for title, text in repository_pages.sections(readme).items():
        names = re.findall(r"^python examples/(\w+)\.py$", text, re.MULTILINE)
        if title and names:
            grid = "\n".join(thumbnails[name] for name in names)
            sections.append(f"{title}\n{'-' * len(title)}\n{open_grid}{grid}{close_grid}")
    return index[:start] + close_grid + "\n".join(sections) + open_grid + index[end:]


def make(app: Sphinx) -> None:
    """Make them, before Sphinx looks for its sources."""
    docs = Path(app.srcdir)
    for part in (activation_pages, command_pages, architecture, repository_pages, shown):
        part.write(docs)
    reference.write(docs / "api", activation_pages.pages("/made/activations"))


def complete(app: Sphinx, name: str, text: list[str]) -> None:
    """Add to a page of the manual what only the site has, and entries for the search."""
    if name == "examples/index":
        readme = Path(app.srcdir).with_name("examples") / "README.md"
        text[0] = sort_gallery(text[0], readme.read_text("utf-8"))
    text[0] = search_words.mark(name, plain_pages.site_text(name, text[0], Path(app.srcdir)))


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
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", docstrings.shape_in_notes, priority=100)
    app.connect("autodoc-process-docstring", parameter_groups.group_parameters, priority=900)
    app.connect("doctree-read", docstrings.no_network_pictures)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
