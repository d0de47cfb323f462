"""The page of the ``combutab`` command: its exit codes, and the help of each sub-command."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from unittest import mock

import typer.main
from reference import put

from combutab.cli import EXIT_CODES, app, main

WIDTH = 88


def helps() -> dict[str, str]:
    """Sub-command -> what ``--help`` prints, within 88 columns."""
    return {name: help_of(name) for name in typer.main.get_command(app).commands}


def help_of(*command: str, width: int = WIDTH) -> str:
    """Return what a command prints with ``--help``."""
    output = io.StringIO()
    columns = mock.patch.dict(os.environ, {"COLUMNS": str(width), "NO_COLOR": "1"})
    with columns, contextlib.redirect_stdout(output):
        main([*command, "--help"])
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()).strip("\n")


def write(docs: Path) -> None:
    lines = ["Command line", "=" * 12, ""]
    lines += ["Exit codes", "-" * 10, "", ".. list-table::", "   :header-rows: 1", ""]
    for code, meaning in {"Code": "Meaning", **EXIT_CODES}.items():
        lines += [f"   * - {code}", f"     - {meaning}"]
    lines += ["", "What ``combutab COMMAND --help`` prints.", ""]
    for name, text in helps().items():
        title = f"combutab {name}"
        lines += [title, "-" * len(title), "", ".. code-block:: text", ""]
        lines += [f"   {line}".rstrip() for line in text.splitlines()] + [""]
    put(docs / "api" / "command_line.rst", "\n".join(lines))
