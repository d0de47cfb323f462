"""The page of a study: Markdown and pictures, written together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_figure, write_text


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
    ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


class Page:
    """A page in parts, in the order in which they are added.

    Parameters
    ----------
    name : str
        Of the files: ``<name>.md``, ``<name>.png``, ``<name>_<suffix>.png``.
    title : str
    command : str
        What gives the same rows anywhere.
    machine : str, optional
        What made the rows; this machine and its versions by default.
    """

    def __init__(self, name: str, title: str, command: str, machine: str | None = None) -> None:
        self._name = name
        self._parts = [f"# {title}", f"`{command}`", machine or describe_machine()]
        self._figures: dict[str, Figure] = {}

    def heading(self, text: str, level: int = 2) -> None:
        self._parts.append(f"{'#' * level} {text}")

    def text(self, *paragraphs: str) -> None:
        self._parts += [paragraph.strip("\n") for paragraph in paragraphs]

    def table(self, header: Sequence[object], lines: Iterable[Sequence[object]]) -> None:
        self.text(markdown_table(header, lines))

    def figure(self, figure: Figure, alternative: str, suffix: str = "") -> None:
        """Add a figure, with what it shows in words."""
        file = f"{self._name}{suffix and '_'}{suffix}.png"
        self._figures[file] = figure
        self._parts.append(f"![{alternative}]({file})")

    def __str__(self) -> str:
        return "\n\n".join(self._parts) + "\n"

    def write(self, folder: Path, dpi: int = 110) -> None:
        """Write the figures, then the page that shows them."""
        for file, figure in self._figures.items():
            write_figure(figure, folder / file, dpi=dpi)
        write_text(folder / f"{self._name}.md", str(self))
