"""Checks that results can be written, before they are computed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from combutab._whole_files import check_writable, whole_file
from combutab.cli._console import UserError


def check_folder(folder: Path) -> None:
    """Find out whether files can be written to a folder that may have to be made."""
    existing = folder.absolute()
    try:
        while not existing.exists():
            if existing.is_symlink():
                raise UserError(f"cannot write to {folder}: {existing} is a broken link")
            existing = existing.parent
        if not existing.is_dir():
            raise UserError(f"cannot write to {folder}: {existing} is not a directory")
        check_writable(existing)
    except OSError as error:
        raise cannot_write(folder, error) from error


def check_file(path: Path, **others: Path) -> None:
    """Find out whether a file can be written, and that it is none of the others.

    Raises UserError, which names the one of the others that it is by its keyword.
    """
    folder = path.parent
    _check_place(path, others)
    if not folder.is_dir():
        why = "is not a directory" if folder.exists() else "does not exist; create it first"
        raise UserError(f"cannot write {path}: {folder} {why}")
    check_folder(folder)


def check_file_with_folder(path: Path, **others: Path) -> None:
    """Find out the same as `check_file` of a file whose folder may have to be made."""
    _check_place(path, others)
    check_folder(path.parent)


def _check_place(path: Path, others: Mapping[str, Path]) -> None:
    try:
        if path.is_dir():
            raise UserError(f"cannot write {path}: it is a directory")
        if path.exists() and not os.access(path, os.W_OK):
            raise UserError(f"cannot write {path}: it is read-only")
        for name, other in others.items():
            if path.resolve() == other.resolve():
                raise UserError(f"cannot write {path}: that is {name} as well; choose another file")
    except OSError as error:  # of a name that no file can have
        raise cannot_write(path, error) from error


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file in whole or not at all.

    Raises UserError where the system refuses, with no file left behind.
    """
    try:
        with whole_file(path) as place:
            write(place)
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(place: Path, error: OSError) -> UserError:
    """Build the error to raise where the system refused to write."""
    return UserError(f"cannot write to {place}: {error.strerror or error}")
