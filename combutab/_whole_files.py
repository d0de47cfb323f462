"""Files that are written in whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a place beside the path to write to; what is there in the end is moved to the path.

    After an error within, nothing is left behind, and a file that was there is as it was.

    Raises
    ------
    OSError
        If the path is a directory, its folder does not exist, or it may not be written.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(f"{folder}/note.txt") as place:
    ...         _ = place.write_text("all of it")
    ...     os.listdir(folder)
    ['note.txt']
    """
    asked, path = path, Path(path).resolve()  # a link stays one
    folder = path.parent
    if path.is_dir():
        raise IsADirectoryError(f"{str(asked)!r} is a directory; name a file in it")
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder {folder} does not exist; create it first")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"{asked} may not be written")
    umask = os.umask(0)
    os.umask(umask)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=path.name, suffix=".part")
    os.close(handle)
    try:
        yield Path(temporary)
        os.chmod(temporary, mode)  # mkstemp's files are private; this one is as any file
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
