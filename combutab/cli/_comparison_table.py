"""The scores of a comparison as a table of a terminal."""

from __future__ import annotations

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from combutab.evaluation import interval_words
from combutab.model_selection import ActivationComparison

_NAME = "activation"
# What is left out first where there is little room
_DISPENSABLE = ("mean\nrank", "p\n(Holm)", "told\napart", "beats\nguess", "95 % interval")
_WIDE = Console(width=1000)


def comparison_table(found: ActivationComparison, width: int) -> Table:
    """Activations, the best first, and baselines below; as many columns as there is room for.

    Names are whole: only where a name and its mean have no room on one line, it is folded.
    """
    columns = _columns(found)
    for header in ("", *_DISPENSABLE):
        columns.pop(header, None)
        table = _drawn(columns, len(found.summary))
        if Measurement.get(_WIDE, _WIDE.options, table).maximum <= width:
            return table
    return _drawn(columns, len(found.summary), fold=True)


def _columns(found: ActivationComparison) -> dict[str, list[str]]:
    """Cells by header, activations first and then baselines."""
    summary, baselines = found.summary, found.baselines
    digits = _decimals(summary["mean"])
    lines = [line for table in (summary, baselines) for _, line in table.iterrows()]
    n, below = len(summary), [""] * len(baselines)
    apart = ["yes" if line["distinguishable"] else "no" for line in lines]
    columns = {
        _NAME: [*summary["activation"], *(baselines["baseline"] if below else ())],
        "mean": [f"{line['mean']:,.{digits}f}" for line in lines],
        "95 % interval": [
            interval_words(line["low"], line["high"], digits) or "same in all folds"
            for line in lines
        ],
        "mean\nrank": [*(f"{line['mean_rank']:.2f}" for line in lines[:n]), *below],
        "p\n(Holm)": ["", *(_p(line["p"]) for line in lines[1:])],
        "told\napart": ["(best)" if found.winner else "–", *apart[1:]],
    }
    if "beats_guess" in summary:
        beats = ["yes" if beats else "no" for beats in summary["beats_guess"]]
        columns["beats\nguess"] = [*beats, *below]
    return columns


def _drawn(columns: dict[str, list[str]], n_activations: int, *, fold: bool = False) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for header in columns:
        if header == _NAME:
            table.add_column(header, overflow="fold", no_wrap=not fold)
        else:
            table.add_column(header, justify="right", no_wrap=True)
    for row, cells in enumerate(zip(*columns.values(), strict=True), 1):
        table.add_row(*map(Text, cells), end_section=row == n_activations)
    return table


def _decimals(means: pd.Series) -> int:
    """Decimals that give the largest mean four digits."""
    largest = float(means.abs().max())
    return int(np.clip(3 - np.floor(np.log10(largest)), 0, 8)) if largest > 0 else 4


def _p(p: float) -> str:
    return f"{p:.4f}" if p >= 1e-4 else "< 0.0001"
