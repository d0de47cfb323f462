"""Whether results can be written, asked before they are computed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from combutab.cli._console import UserError


def check_folder(folder: Path) -> None:
    """Find out whether files can be written to a folder that may have to be made.

    Nothing is left behind.

    Raises
    ------
    UserError
    """
    existing = folder.absolute()
    try:
        while not existing.exists():
            if existing.is_symlink():
                raise UserError(f"cannot write to {folder}: {existing} is a broken link")
            existing = existing.parent
        if not existing.is_dir():
            raise UserError(f"cannot write to {folder}: {existing} is not a directory")
        with tempfile.TemporaryDirectory(dir=existing, prefix=".combutab-"):
            pass
    except OSError as error:
        raise cannot_write(folder, error) from error


def cannot_write(place: Path, error: OSError) -> UserError:
    """What to raise where the system refused to write."""
    return UserError(f"cannot write to {place}: {error.strerror or error}")
