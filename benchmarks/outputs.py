"""Results of benchmarks as files: each is there in whole, or as it was before."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import matplotlib as mpl

from combutab.core.files import whole_file

MOST_BYTES = 100_000  # of a picture
RESOLUTIONS = (110, 90, 75, 60)  # dots per inch, the finest that is small enough


def write_bytes(path: Path, data: bytes) -> None:
    """Write what is in memory; compressed where the name ends in .gz.

    The same data give the same bytes: neither time nor name are in the file.
    """
    if path.suffix == ".gz":
        file = io.BytesIO()
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            packed.write(data)
        data = file.getvalue()
    with whole_file(path) as place:
        place.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write a page or rows."""
    write_bytes(path, text.encode())


def read_text(path: Path) -> str:
    """Read what `write_text` wrote."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def write_table(table: Any, path: Path, **options: Any) -> None:
    """Write a DataFrame or Series as CSV, with the options of ``to_csv``."""
    write_text(path, table.to_csv(lineterminator="\n", **options))


def draw(figure: Any, most_bytes: int = MOST_BYTES) -> tuple[str, bytes]:
    """Draw a figure: "svg" or "png", and the file's content, at most ``most_bytes``.

    SVG where it is small enough, or else PNG at the finest of `RESOLUTIONS` that is.

    Raises
    ------
    ValueError
        If the figure is too large at any resolution.
    """
    for dpi in (None, *RESOLUTIONS):
        kind, file = "png" if dpi else "svg", io.BytesIO()
        fixed = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": dpi}
        with mpl.rc_context({"svg.hashsalt": "combutab"}):
            figure.savefig(file, format=kind, **fixed)
        if len(file.getvalue()) <= most_bytes:
            return kind, file.getvalue()
    raise ValueError(
        f"the picture has {len(file.getvalue())} bytes at {RESOLUTIONS[-1]} dots per inch, more "
        f"than {most_bytes}; draw fewer lines or points"
    )


def write_picture(path: Path, kind: str, data: bytes) -> None:
    """Write what `draw` gave to ``path`` with the suffix of its kind, and remove the other."""
    write_bytes(path.with_name(f"{path.name}.{kind}"), data)
    other = {"svg": "png", "png": "svg"}[kind]
    path.with_name(f"{path.name}.{other}").unlink(missing_ok=True)
