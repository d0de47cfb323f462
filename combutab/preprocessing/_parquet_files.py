"""Parquet files of a table: a file, a folder, a pattern or a list, on any file system."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A file, folder, pattern or URI, or several of them."""

_MAGIC = "*?["
_ENDING = ".parquet"


def arrow() -> Any:
    """Import pyarrow with what Parquet takes of it; an ImportError says how to install it."""
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.dataset
        import pyarrow.fs
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'combutab[parquet]'") from error
    return pa


@dataclass(frozen=True, eq=False)
class StoredFile:
    """A file on a file system of pyarrow."""

    filesystem: Any
    path: str
    """As the file system has it."""
    name: str
    """As errors have it."""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Values of columns that the names of its folders hold, ``year=2024``."""

    @property
    def is_far(self) -> bool:
        """Tell whether each reading takes its time."""
        return not isinstance(self.filesystem, arrow().fs.LocalFileSystem)


@dataclass(frozen=True)
class _Place:
    """A path on its file system, and how to name what is below."""

    filesystem: Any
    path: str
    prefix: str = ""

    def name(self, path: str) -> str:
        """Name a path as errors do: without a URI's query, which may hold a password."""
        return f"{self.prefix}{path}"


def find_files(path: Paths, filesystem: Any = None) -> tuple[list[StoredFile], Any]:
    """Find the files of a table, and the Arrow schema of the columns that folders' names hold.

    Raises
    ------
    FileNotFoundError
        If there is no such file or folder, no Parquet file in the folder, or none of the pattern.
    ValueError
        If the list is empty, there is no such file system, or names of folders are of no data set.
    """
    pa = arrow()
    if isinstance(path, str | os.PathLike):
        return _find(_place(path, filesystem), alone=True)
    found: list[StoredFile] = []
    keys = pa.schema([])
    for each in path:
        files, schema = _find(_place(each, filesystem), alone=False)
        if found and schema != keys:
            raise ValueError(
                f"the folders of {found[0].name} and of {files[0].name} are named after other "
                "columns; name the folder above both"
            )
        found, keys = found + files, schema
    if not found:
        raise ValueError("path is an empty list; name at least one Parquet file")
    return found, keys


@contextmanager
def reading(name: str, what: str = "") -> Iterator[None]:
    """Turn what Arrow says of a file that cannot be read into one line that names the file."""
    try:
        yield
    except (arrow().ArrowException, OSError) as error:
        raise ValueError(f"cannot read {name}{what}: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def find_place(path: str | os.PathLike[str]) -> tuple[Any, str, str]:
    """Tell the file system of a path or URI, the path there, and its name for errors."""
    place = _place(path, None)
    return place.filesystem, place.path, place.name(place.path)


def _place(path: str | os.PathLike[str], filesystem: Any) -> _Place:
    pa = arrow()
    text = os.fspath(path)
    if filesystem is not None:
        return _Place(_as_arrow(filesystem), text.rstrip("/") or text)
    if "://" not in text:
        return _Place(pa.fs.LocalFileSystem(), Path(text).absolute().as_posix())
    scheme = text.partition("://")[0]
    try:
        found, inner = pa.fs.FileSystem.from_uri(text)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"there is no way to a {scheme}:// path here: {_one_line(error)}; pass a pyarrow or "
            "fsspec file system as filesystem, with a path on it"
        ) from error
    return _Place(found, inner.rstrip("/"), "" if scheme == "file" else f"{scheme}://")


def _as_arrow(filesystem: Any) -> Any:
    pa = arrow()
    if isinstance(filesystem, pa.fs.FileSystem):
        return filesystem
    if hasattr(filesystem, "protocol"):  # of fsspec
        return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(filesystem))
    raise ValueError(
        f"filesystem must be one of pyarrow.fs or fsspec, got {filesystem!r}; leave it out for "
        "local paths and URIs"
    )


def _find(place: _Place, *, alone: bool) -> tuple[list[StoredFile], Any]:
    pa, whole = arrow(), place.name(place.path)
    with _reaching(whole):
        info = place.filesystem.get_file_info(place.path)
    if info.type == pa.fs.FileType.File:
        return [StoredFile(place.filesystem, place.path, whole)], pa.schema([])
    if info.type == pa.fs.FileType.Directory:
        paths = [each for each in _below(place, place.path) if _is_parquet(each, place.path)]
        if not paths:
            raise FileNotFoundError(f"there is no *{_ENDING} file in the folder {whole}")
        return _partitioned(place, place.path, paths)
    if not any(sign in place.path for sign in _MAGIC):
        what = "file or folder" if alone else "file"
        raise FileNotFoundError(f"there is no {what} {whole}")
    base, pattern = _split(place.path)
    try:
        paths = sorted(_glob(place, base, pattern))
    except FileNotFoundError:
        paths = []
    if not paths:
        raise FileNotFoundError(f"there is no file of the pattern {whole}")
    return _partitioned(place, base, paths)


@contextmanager
def _reaching(name: str) -> Iterator[None]:
    """Name what cannot be looked at: without rights, or behind a network that is down."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (arrow().ArrowException, OSError) as error:
        raise OSError(f"cannot look at {name}: {_one_line(error)}") from error


def _list(place: _Place, folder: str, *, recursive: bool) -> list[Any]:
    with _reaching(place.name(folder)):
        selector = arrow().fs.FileSelector(folder, recursive=recursive)
        return list(place.filesystem.get_file_info(selector))


def _below(place: _Place, folder: str) -> list[str]:
    """All files below a folder, by name."""
    infos = _list(place, folder, recursive=True)
    return sorted(info.path for info in infos if info.is_file)


def _glob(place: _Place, folder: str, pattern: Sequence[str]) -> Iterator[str]:
    """Files of a pattern below a folder, and those of a table in folders of it."""
    if pattern[0] == "**":
        yield from (each for each in _below(place, folder) if _matches(each, folder, pattern))
        return
    for info in _list(place, folder, recursive=False):  # nor is anything else looked into
        if not _same([info.base_name], pattern[:1]):
            continue
        if info.is_file:
            if len(pattern) == 1:
                yield info.path
        elif len(pattern) > 1:
            yield from _glob(place, info.path, pattern[1:])
        else:
            yield from (p for p in _below(place, info.path) if _is_parquet(p, info.path))


def _parts(path: str, base: str) -> list[str]:
    return path.removeprefix(base).strip("/").split("/")


def _is_parquet(path: str, base: str) -> bool:
    """Tell whether a file below a folder is of the table."""
    return path.endswith(_ENDING) and not any(map(_is_hidden, _parts(path, base)))


def _is_hidden(name: str) -> bool:
    """Tell whether a name is as those of unfinished files and of other programs' own."""
    return name.startswith((".", "_"))


def _split(path: str) -> tuple[str, list[str]]:
    """The folder that a pattern is below, and the pattern's parts."""
    parts = path.split("/")
    n = next(i for i, part in enumerate(parts) if any(sign in part for sign in _MAGIC))
    base = "/".join(parts[:n])
    return (base or "/" if path.startswith("/") else base), parts[n:]


def _matches(path: str, base: str, pattern: Sequence[str]) -> bool:
    """Tell whether a pattern is of a file, or of a folder of a table's file."""
    names = _parts(path, base)
    return _same(names, pattern) or (
        _is_parquet(path, base) and any(_same(names[:i], pattern) for i in range(1, len(names)))
    )


def _same(names: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not names
    if pattern[0] == "**":
        if _same(names, pattern[1:]):
            return True
        return bool(names) and not _is_hidden(names[0]) and _same(names[1:], pattern)
    if not names or (_is_hidden(names[0]) and not _is_hidden(pattern[0])):
        return False
    return fnmatchcase(names[0], pattern[0]) and _same(names[1:], pattern[1:])


def _partitioned(place: _Place, base: str, paths: list[str]) -> tuple[list[StoredFile], Any]:
    """Files below a folder, with the columns that the names of their folders hold."""
    pa, filesystem = arrow(), place.filesystem
    if not any("=" in part for path in paths for part in _parts(path, base)[:-1]):
        return [StoredFile(filesystem, each, place.name(each)) for each in paths], pa.schema([])
    with reading(place.name(paths[0]), " as Parquet"), filesystem.open_input_file(paths[0]) as one:
        in_file = pa.parquet.read_schema(one).names
    options = pa.dataset.FileSystemFactoryOptions(partition_base_dir=base)
    options.partitioning_factory = pa.dataset.HivePartitioning.discover()
    with reading(place.name(base), " as one data set"):
        data = pa.dataset.FileSystemDatasetFactory(
            filesystem, paths, pa.dataset.ParquetFileFormat(), options
        ).finish()
    files = []
    for fragment in data.get_fragments():
        keys = pa.dataset.get_partition_keys(fragment.partition_expression)
        kept = {name: value for name, value in keys.items() if name not in in_file}
        files.append(StoredFile(filesystem, fragment.path, place.name(fragment.path), kept))
    names = list(files[0].keys)
    for file in files:
        if sorted(file.keys) != sorted(names):
            raise ValueError(
                f"the folders of {files[0].name} and of {file.name} are named after other columns, "
                f"{names} and {list(file.keys)}; all must be named after the same"
            )
    return files, pa.schema(
        [data.schema.field(name) for name in data.schema.names if name in names]
    )
