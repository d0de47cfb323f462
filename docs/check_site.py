"""Look through the built site for what a reader would stumble over: check_site.py FOLDER

Links and anchors within the site that lead nowhere; pictures without a text; pages without a title,
a language, a heading or a link past the navigation; and whatever a page loads from another host.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}
NOT_LOADED = {"canonical", "search", "index", "next", "prev", "alternate"}  # of <link rel=...>


class Page(HTMLParser):
    """The ids, links and faults of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []  # where a reader may go, or what is shown
        self.faults: list[str] = []
        self.headings = 0
        self.titled = self.skips = self.in_language = False
        self._hidden: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.update(given[name] for name in ("id", "name") if given.get(name))
        self.headings += tag == "h1"
        self.titled |= tag == "title"
        self.in_language |= tag == "html" and bool(given.get("lang"))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            self.skips |= given["href"] == "#main-content"
        if tag == "img" and "alt" not in given:
            self.faults.append(f"a picture without a text: {given.get('src')}")
        if tag == "iframe" and not given.get("title"):
            self.faults.append(f"a frame without a title: {given.get('src')}")
        for what, attribute in LOADS:
            rel = set(given.get("rel", "").split())
            if tag == what and given.get(attribute) and not rel & NOT_LOADED:
                self.links.append(given[attribute])
                if urlsplit(given[attribute]).netloc:
                    self.faults.append(f"loads from another host: {given[attribute]}")

    def wants(self) -> list[str]:
        """What every page of the theme is to have, and this one has not."""
        have = {
            "a title": self.titled,
            "a language": self.in_language,
            "one heading of the first level": self.headings == 1,
            "a link past the navigation": self.skips,
        }
        return [f"it has not {what}" for what, there in have.items() if not there]


def faults(folder: Path) -> list[str]:
    """All that is wrong in the pages below a folder, a line each."""
    pages = {
        path.resolve(): Page(path.read_text("utf-8"))
        for path in folder.rglob("*.html")
        if "_static" not in path.relative_to(folder).parts  # the theme's templates
    }
    found = []
    for path, page in sorted(pages.items()):
        themed = page.skips or "_static" in path.read_text("utf-8")  # a report is a page of its own
        wrong = page.faults + (page.wants() if themed else [])
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                wrong.append(f"a link to nothing: {link}")
            elif parts.fragment and target in pages:
                anchor = unquote(parts.fragment)
                if anchor not in pages[target].ids:
                    wrong.append(f"a link to no such place: {link}")
        found += [f"{path.relative_to(folder.resolve())}: {what}" for what in wrong]
    return found


def main(folder: str) -> int:
    wrong = faults(Path(folder))
    print("\n".join(wrong) or f"{folder}: nothing to complain of")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
