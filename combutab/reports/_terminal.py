"""Scores of a comparison as a table for a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from combutab.model_selection import ModelComparison

if TYPE_CHECKING:
    from rich.table import Table

# Columns that are left out on narrow terminals, in this order
_DISPENSABLE = (
    *("mean rank", "p-value (Holm)", "differs from best", "beats guess"),
    "95 % interval",
)


def comparison_table(results: ModelComparison, width: int) -> Table:
    """Build a table of the activation functions, best first, followed by the baselines.

    The table has all columns that fit into the width. A name is wrapped only if it does not fit
    into a line with its mean.

    Parameters
    ----------
    results : ModelComparison
    width : int
        Width of the terminal, in characters.

    Returns
    -------
    rich.table.Table
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    cells: Any = results.formatted()
    console = Console(width=1000)
    for column in ("", *_DISPENSABLE):
        cells = cells.drop(columns=column, errors="ignore")
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        name, *scores = cells
        table.add_column(name, overflow="fold")
        for header in scores:
            lines = re.sub("(?<=[a-z]) ", "\n", header, count=1)
            table.add_column(lines, justify="right", no_wrap=True)
        for i, row in enumerate(cells.to_numpy().tolist(), 1):
            table.add_row(*map(Text, row), end_section=i == len(results.summary))
        if Measurement.get(console, console.options, table).maximum <= width:
            break
    return table
