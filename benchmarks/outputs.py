"""Results of benchmarks as files: each is there in whole, or as it was before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from combutab.core.files import whole_file


def write_bytes(path: Path, data: bytes) -> None:
    """Write what is in memory."""
    with whole_file(path) as place:
        place.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write a page."""
    with whole_file(path) as place:
        place.write_text(text, encoding="utf-8")


def write_table(table: Any, path: Path, **options: Any) -> None:
    """Write a DataFrame or Series as CSV, with the options of ``to_csv``."""
    with whole_file(path) as place:
        table.to_csv(place, **options)


def write_figure(figure: Any, path: Path, **options: Any) -> None:
    """Write a figure, with the options of ``savefig``."""
    with whole_file(path) as place:
        figure.savefig(place, **options)
