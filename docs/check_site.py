"""Look through the built site for what a reader would stumble over: check_site.py FOLDER

Links and anchors within the site that lead nowhere; pictures without a text; Markdown that was
not rendered, such as a table without a blank line above it; pages without a title, a language, a
heading or a link past the navigation; and whatever a page loads from another host.
Where Chromium is installed, the search is tried too: the pages of `search_words` must come first.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

sys.path.append(str(Path(__file__).parent / "_ext"))

from search_words import WORDS

LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MARKDOWN = re.compile(r"```|\|\s*:?-{3,}|\{[a-z:]+\}`")  # fences, tables, roles
VERBATIM = {"code", "pre", "script", "style", "title"}
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
        self._verbatim = 0  # open elements whose text is shown as it is written
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._verbatim += tag in VERBATIM
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

    def handle_endtag(self, tag: str) -> None:
        self._verbatim -= tag in VERBATIM

    def handle_data(self, data: str) -> None:
        if not self._verbatim and (unrendered := MARKDOWN.search(data)):
            line = data[unrendered.start() :].splitlines()[0]
            self.faults.append(f"Markdown that was not rendered: {line[:60]}")

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


SEARCH = """<!DOCTYPE html><html><head><title>Search</title></head><body>{scripts}<script>
const found = {{}};
for (const query of {queries})
  found[query] = Search._performSearch(...Search._parseQuery(query)).reverse().map((r) => r[0]);
document.body.textContent = "found " + JSON.stringify(found);
</script></body></html>"""
SCRIPTS = ("_static/documentation_options.js", "_static/doctools.js", "_static/sphinx_highlight.js",
           "_static/searchtools.js", "_static/language_data.js", "searchindex.js")  # fmt: skip


def results(folder: Path, queries: Iterable[str], browser: str) -> dict[str, list[str]]:
    """Query -> the pages that the site's search lists, best first, by the site's own scripts."""
    urls = [(folder / script).resolve().as_uri() for script in SCRIPTS]
    scripts = "".join(f'<script src="{url}"></script>' for url in urls)
    with tempfile.TemporaryDirectory() as profile:
        page = Path(profile) / "search.html"
        page.write_text(SEARCH.format(scripts=scripts, queries=json.dumps(list(queries))), "utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        shown = subprocess.run(
            [browser, *options, "--dump-dom", page.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
    found = re.search(r"found (\{.*\})", shown)
    if found is None:
        raise RuntimeError(f"the search did not run: {shown[-500:]}")
    return dict(json.loads(html.unescape(found[1])))


def search_faults(folder: Path) -> list[str]:
    """Searches that do not find the page that explains first; none without a browser.

    The glossary may come before it: its entries define a term and link to that page.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("no Chromium here: the search was not tried")
        return []
    found = {
        query: [page for page in pages if page != "glossary"]
        for query, pages in results(folder, WORDS, browser).items()
    }
    return [
        f"search.html: {query!r} finds {', '.join(found[query][:3]) or 'nothing'}, not {page}"
        for query, page in WORDS.items()
        if found[query][:1] != [page]
    ]


def main(folder: str) -> int:
    if not any(Path(folder).glob("*.html")):
        print(f"{folder} has no pages")
        return 1
    wrong = faults(Path(folder))
    if (Path(folder) / "search.html").exists():
        wrong += search_faults(Path(folder))
    print("\n".join(wrong) or f"{folder}: nothing to complain of")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
