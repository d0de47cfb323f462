"""The page of a study: Markdown and pictures, written together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.machine import describe_machine
from benchmarks.outputs import draw, write_picture, write_text


def markdown_table(header: Sequence[object], lines: Iterable[Sequence[object]]) -> str:
    """
    >>> print(markdown_table(["a", "b"], [[1, 2]]), end="")
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    rows = [header, ["---"] * len(header), *lines]
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)


def p_text(p: float) -> str:
    """
    >>> p_text(0.0312), p_text(0.00004)
    ('0.031', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


# the files that the stored rows were trained on, which are not downloads from OpenML
COPIES = {
    "california_housing": "ageron/handson-ml2 (housing.csv)",
    "diabetes": "jbrownlee/Datasets (Weka's diabetes.arff)",
    "boston": "jbrownlee/Datasets (Weka's housing.arff)",
    "breast-w": "jbrownlee/Datasets (breast-cancer-wisconsin.data)",
    "wine_quality": "jbrownlee/Datasets (winequality-red.csv and -white.csv)",
    "wdbc": "scikit-learn (breast_cancer.csv)",
    "digits": "scikit-learn (8 x 8 images)",
    "PhishingWebsites": "frbk1992/GeneticAlgorithmProject (UCI's phishing.arff)",
    "autoMpg": "jbrownlee/Datasets (Weka's autoMpg.arff)",
}


def origin(names: Iterable[str]) -> list[str]:
    """Say where the stored rows' tables came from, if they are known.

    >>> origin(["wdbc", "gs"])[0].partition("OpenML): ")[2]
    'wdbc from scikit-learn (breast_cancer.csv).'
    """
    known = "; ".join(f"{name} from {COPIES[name]}" for name in names if name in COPIES)
    return [f"Sources of the tables (copies, not downloads from OpenML): {known}."] * bool(known)


def described(doc: str) -> tuple[str, str]:
    """The question that a module's docstring begins with, and what it says before the command.

    >>> described("Why?\\n\\nSo.\\n\\nAnd so.\\n\\n    python -m study\\n\\nMore.")
    ('Why?', 'So.\\n\\nAnd so.')
    """
    question, _, method = doc.partition("\n\n    python -m")[0].partition("\n\n")
    return question, method


class Page:
    """A page in parts, in the order in which they are added.

    Parameters
    ----------
    name : str
        Of the files: ``<name>.md``, and ``<name>.svg``, ``<name>_<suffix>.svg`` (or .png).
    title : str
    command : str
        What gives the same rows anywhere.
    machine : str, optional
        What made the rows; this machine and its versions by default.
    """

    def __init__(self, name: str, title: str, command: str, machine: str | None = None) -> None:
        self._name = name
        self._parts = [f"# {title}", f"`{command}`", machine or describe_machine()]
        self._pictures: dict[str, tuple[str, bytes]] = {}

    def heading(self, text: str, level: int = 2) -> None:
        self._parts.append(f"{'#' * level} {text}")

    def text(self, *paragraphs: str) -> None:
        self._parts += [paragraph.strip("\n") for paragraph in paragraphs]

    def table(self, header: Sequence[object], lines: Iterable[Sequence[object]]) -> None:
        self.text(markdown_table(header, lines))

    def figure(self, figure: Figure, alternative: str, suffix: str = "") -> None:
        """Add a figure, with what it shows in words; ValueError if it cannot be drawn in 100 kB."""
        name = f"{self._name}{suffix and '_'}{suffix}"
        kind, _ = self._pictures[name] = draw(figure)
        self._parts.append(f"![{alternative}]({name}.{kind})")

    @contextmanager
    def details(self, summary: str) -> Iterator[None]:
        """Fold what is added within; ``summary`` is what the reader sees."""
        self._parts.append(f"<details>\n<summary>{summary}</summary>")
        yield
        self._parts.append("</details>")

    def __str__(self) -> str:
        return "\n\n".join(self._parts) + "\n"

    def write(self, folder: Path) -> None:
        """Write the pictures, then the page that shows them."""
        for name, picture in self._pictures.items():
            write_picture(folder / name, *picture)
        write_text(folder / f"{self._name}.md", str(self))
