"""Files that are written in whole or not at all: one alone, or several together.

What is written goes to a folder of its own beside its place, ``.combutab-*.stage``, and is moved
from there when it is on the disk. Several files are moved in two steps. The folder is renamed to
``.combutab-*.whole``, which is when they count; then those that they replace are moved out, and
they are moved in. At no moment do new files stand beside old ones. A process that ends before the
first step has changed nothing; one that ends after it leaves it to the next that writes to the same
place to complete it. Folders that no living process owns are removed then.
"""

from __future__ import annotations

import errno
import glob
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from combutab._interrupts import uninterrupted

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PREFIX, _STAGE, _WHOLE = ".combutab-", ".stage", ".whole"
_OLD = 3600.0  # seconds: what has no lock and is older was left by a process that is gone
_LINKS = 40  # that are followed, as the system does


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a place to write a file to, of the same name; it is moved to the path in the end.

    After an error within, nothing is left behind, and a file that was there is as it was.

    Raises OSError with the path if it is a directory or no regular file, its folder does not exist
    or may not be written, the disk is full, or it is a link in a folder that others may write to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(f"{folder}/note.txt") as place:
    ...         _ = place.write_text("all of it")
    ...     os.listdir(folder)
    ['note.txt']
    """
    place = _place(path)
    _remove_parts(place)
    with _naming(path), _stage(place.parent) as stage:
        made = stage / "new" / place.name
        yield made
        _ready(made, place)
        os.replace(made, place)
        _sync(place.parent)


@contextmanager
def whole_files(folder: str | os.PathLike[str], names: Sequence[str]) -> Iterator[Path]:
    """Give a folder to write files to; all are moved to theirs together, or none is.

    A link in the folder is replaced itself.

    Raises OSError as of `whole_file`, and if one of the names was not written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_files(folder, ["a.txt", "b.txt"]) as stage:
    ...         for name in ("a.txt", "b.txt"):
    ...             _ = (stage / name).write_text("new")
    ...     sorted(os.listdir(folder))
    ['a.txt', 'b.txt']
    """
    home = _home(Path(folder).absolute())
    for name in names:
        _check(home / name, Path(folder) / name)
    with _naming(folder), _stage(home) as stage:
        yield stage / "new"
        for name in names:
            _ready(stage / "new" / name, home / name)
        _sync(stage / "new")
        whole = stage.with_suffix(_WHOLE)
        os.rename(stage, whole)
        _sync(home)
        _swap(whole)


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Find out whether files can be written to a folder, and tidy what was left there."""
    home = _home(Path(folder).absolute())
    if not home.is_dir():
        raise FileNotFoundError(f"the folder {folder} does not exist; create it first")
    with _naming(folder), _stage(home):
        pass


def finish_leftovers(folder: Path) -> None:
    """Complete or remove what processes that are gone have left in a folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in [each for each in entries if each.name.startswith(_PREFIX)]:
            with suppress(OSError):
                _finish(Path(entry.path))


# ---- stages ------------------------------------------------------------------------------------


@contextmanager
def _stage(folder: Path) -> Iterator[Path]:
    """A folder beside the files-to-be, that belongs to this process as long as it lives."""
    finish_leftovers(folder)
    made: list[tuple[Path, int | None]] = []
    try:
        with uninterrupted():
            made.append(_make_stage(folder))
        stage, _ = made[0]
        (stage / "new").mkdir()
        (stage / "old").mkdir()
        yield stage
    finally:
        with uninterrupted():
            for stage, lock in made:
                whole = stage.with_suffix(_WHOLE)
                if whole.exists():  # it was to be moved, and was interrupted
                    _swap(whole)
                shutil.rmtree(stage, ignore_errors=True)
                if lock is not None:
                    os.close(lock)


def _make_stage(folder: Path) -> tuple[Path, int | None]:
    while True:
        stage = folder / f"{_PREFIX}{secrets.token_hex(4)}{_STAGE}"
        with suppress(FileExistsError):
            os.mkdir(stage, 0o700)
            if fcntl is None:
                return stage, None
            with suppress(FileNotFoundError):  # another process took it for a leftover
                lock = os.open(stage, os.O_RDONLY)
                with suppress(OSError):  # some file systems have no locks
                    fcntl.flock(lock, fcntl.LOCK_EX)
                if stage.exists():
                    return stage, lock
                os.close(lock)


def _finish(leftover: Path) -> None:
    found = os.lstat(leftover)
    if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "geteuid") and found.st_uid != os.geteuid()):
        return  # of another user, who may want to have it moved over our files
    if leftover.suffix not in (_STAGE, _WHOLE) or fcntl is None:
        if time.time() - found.st_mtime > _OLD:
            _remove(leftover)
        return
    lock = os.open(leftover, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(leftover)
    finally:
        os.close(lock)


def _remove_parts(place: Path) -> None:
    """Remove what version 0.1 left, which wrote to other names and held no locks."""
    with suppress(OSError):
        for part in place.parent.glob(f"{glob.escape(place.name)}????????.part"):
            if time.time() - part.lstat().st_mtime > _OLD:
                part.unlink()


def _remove(leftover: Path) -> None:
    if leftover.suffix == _WHOLE:
        _swap(leftover)
    else:
        shutil.rmtree(leftover)


def _swap(whole: Path) -> None:
    """Move all old files out, then all new ones in; goes on where an earlier call stopped."""
    home, new, old = whole.parent, whole / "new", whole / "old"
    names = sorted(os.listdir(new)) if new.exists() else []
    try:
        for name in names:
            with suppress(FileNotFoundError):
                os.replace(home / name, old / name)
        for name in names:
            os.replace(new / name, home / name)
    except OSError:
        for name in names:  # as it was
            if (old / name).exists():
                os.replace(old / name, home / name)
            elif not (new / name).exists():
                (home / name).unlink()
        shutil.rmtree(whole, ignore_errors=True)
        raise
    _sync(home)
    shutil.rmtree(whole, ignore_errors=True)


# ---- one file ----------------------------------------------------------------------------------


def _ready(made: Path, place: Path) -> None:
    """Bring a file to the disk, with the permissions of the one that it replaces."""
    if place.exists() and not place.is_symlink():
        os.chmod(made, place.stat().st_mode & 0o777)
    _sync(made)


def _sync(path: Path) -> None:
    """Have the system bring a file or a folder's entries to the disk."""
    is_folder = path.is_dir()
    if is_folder and os.name == "nt":
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:  # some file systems do not sync folders
        if not is_folder or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _place(path: str | os.PathLike[str]) -> Path:
    """Resolve the links of a path, to where a regular file may be written."""
    place = Path(path).absolute()
    for _ in range(_LINKS):
        if not place.is_symlink():
            break
        _refuse_strange_link(place, is_file=True)
        place = place.parent / os.readlink(place)  # a link stays one
    else:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    place = _home(place.parent) / place.name
    _check(place, path)
    return place


def _home(folder: Path) -> Path:
    """Resolve the links of a folder's path."""
    for each in (folder, *folder.parents):
        if each.is_symlink():
            _refuse_strange_link(each, is_file=False)
    return folder.resolve()


def _check(place: Path, asked: str | os.PathLike[str]) -> None:
    if place.is_dir():
        raise IsADirectoryError(f"{str(asked)!r} is a directory; name a file in it")
    if not place.parent.is_dir():
        raise FileNotFoundError(f"the folder {place.parent} does not exist; create it first")
    if place.exists():
        if not place.is_file():
            raise OSError(f"{asked} is a device or pipe, which is not replaced; name a file")
        if not os.access(place, os.W_OK):
            raise PermissionError(f"{asked} may not be written")


def _refuse_strange_link(link: Path, *, is_file: bool) -> None:
    """Links are as trustworthy as those who may make them: others could aim them at our files."""
    if not hasattr(os, "geteuid"):
        return
    folder, ours = os.stat(link.parent), (0, os.geteuid())
    mode = folder.st_mode
    shared = mode & stat.S_IWOTH
    theirs = os.lstat(link).st_uid not in ours
    if (is_file and shared) or (
        theirs and (shared or mode & stat.S_IWGRP or folder.st_uid not in ours)
    ):
        raise PermissionError(
            f"{link} is a link in a folder that others may write to, and is not followed; name "
            "the file that it stands for"
        )


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Have errors of the system name the path that was asked for, in one line."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            elsewhere = error.filename is not None and _PREFIX not in str(error.filename)
            if elsewhere:
                raise
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        if os.fspath(path) in str(error):
            raise
        raise OSError(f"{os.fspath(path)} cannot be written: {error}") from error
