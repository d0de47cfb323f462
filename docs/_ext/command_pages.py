"""The page of the ``combutab`` command: each sub-command's help, as it prints it."""

from __future__ import annotations

from pathlib import Path

import typer.main
from reference import put

from combutab.cli import app


def helps() -> dict[str, str]:
    """Sub-command -> what ``--help`` prints, within 88 columns."""
    command = typer.main.get_command(app)
    found = {}
    for name, known in command.commands.items():
        context = known.context_class(
            known, info_name=f"combutab {name}", terminal_width=88, max_content_width=88
        )
        found[name] = known.get_help(context)
    return found


def write(docs: Path) -> None:
    lines = ["Command line", "=" * 12, ""]
    lines += ["What ``combutab COMMAND --help`` prints.", ""]
    for name, text in helps().items():
        title = f"combutab {name}"
        lines += [title, "-" * len(title), "", ".. code-block:: text", ""]
        lines += [f"   {line}".rstrip() for line in text.splitlines()] + [""]
    put(docs / "api" / "command_line.rst", "\n".join(lines))
