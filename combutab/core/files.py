"""Files that are written completely or not at all, and read without trust.

Files are written to a folder next to their destination, ``.combutab-*.stage``, and moved when they
are on the disk. Several files are moved in two steps. The folder is renamed to
``.combutab-*.whole``, which commits them; then the files that they replace are moved out, and they
are moved in. New files are never mixed with old ones. A process that ends before the first step has
changed nothing. If it ends after it, the next process that writes to the same folder completes the
second step, and removes folders of processes that have ended.

Safetensors files with the same content have the same bytes. The header of a file is checked before
memory is allocated.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from combutab.core.progress import uninterrupted

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# ---- Atomic writes of one file, or of several together -------------------------------------------

_PREFIX, _STAGE, _WHOLE = ".combutab-", ".stage", ".whole"
_OLD = 3600.0  # seconds: older folders without a lock belong to processes that have ended
_LINKS = 40  # symbolic links that are followed, as by the system


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file to write to, which is moved to the path at the end of the context.

    After an error in the context, no temporary file remains, and an existing file is unchanged.

    Raises OSError with the path if it is a directory or no regular file, its folder does not exist
    or may not be written, the disk is full, or it is a link in a folder that others may write to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(f"{folder}/note.txt") as temporary:
    ...         _ = temporary.write_text("all of it")
    ...     os.listdir(folder)
    ['note.txt']
    """
    target = _resolve_target(path)
    with _errors_naming(path), _stage(target.parent) as stage:
        temporary = stage / "new" / target.name
        yield temporary
        _bring_to_disk(temporary, target)
        os.replace(temporary, target)
        _sync(target.parent)


@contextmanager
def whole_files(folder: str | os.PathLike[str], names: Sequence[str]) -> Iterator[Path]:
    """A temporary folder to write files to, which are all moved to ``folder``, or none is.

    A symbolic link in the folder is replaced, not followed.

    Raises OSError as of `whole_file`, and if one of the names was not written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_files(folder, ["a.txt", "b.txt"]) as stage:
    ...         for name in ("a.txt", "b.txt"):
    ...             _ = (stage / name).write_text("new")
    ...     sorted(os.listdir(folder))
    ['a.txt', 'b.txt']
    """
    home = _resolve_folder(Path(folder).absolute())
    for name in names:
        _check_destination(home / name, Path(folder) / name)
    with _errors_naming(folder), _stage(home) as stage:
        yield stage / "new"
        for name in names:
            _bring_to_disk(stage / "new" / name, home / name)
        _sync(stage / "new")
        complete_stage = stage.with_suffix(_WHOLE)
        os.rename(stage, complete_stage)
        _sync(home)
        _move_in(complete_stage)


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Check that a folder can be written to, and remove temporary files of ended processes."""
    home = _resolve_folder(Path(folder).absolute())
    if not home.is_dir():
        raise FileNotFoundError(f"the folder {folder} does not exist; create it first")
    with _errors_naming(folder), _stage(home):
        pass


def finish_leftovers(folder: Path) -> None:
    """Complete or remove temporary folders of processes that have ended."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in [candidate for candidate in entries if candidate.name.startswith(_PREFIX)]:
            with suppress(OSError):
                _finish(Path(entry.path))


# ---- stages ------------------------------------------------------------------------------------


@contextmanager
def _stage(folder: Path) -> Iterator[Path]:
    """A temporary folder in ``folder``, locked by this process."""
    finish_leftovers(folder)
    stages: list[tuple[Path, int | None]] = []
    try:
        with uninterrupted():
            stages.append(_make_stage(folder))
        stage, _ = stages[0]
        (stage / "new").mkdir()
        (stage / "old").mkdir()
        yield stage
    finally:
        with uninterrupted():
            for stage, lock in stages:
                complete_stage = stage.with_suffix(_WHOLE)
                if complete_stage.exists():  # an interrupt came before the move
                    _move_in(complete_stage)
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
            with suppress(FileNotFoundError):  # another process has removed it
                lock = os.open(stage, os.O_RDONLY)
                with suppress(OSError):  # some file systems have no locks
                    fcntl.flock(lock, fcntl.LOCK_EX)
                if stage.exists():
                    return stage, lock
                os.close(lock)


def _finish(leftover: Path) -> None:
    status = os.lstat(leftover)
    if not stat.S_ISDIR(status.st_mode) or (
        hasattr(os, "geteuid") and status.st_uid != os.geteuid()
    ):
        return  # another user's folder must not be moved over our files
    if leftover.suffix not in (_STAGE, _WHOLE) or fcntl is None:
        if time.time() - status.st_mtime > _OLD:
            _remove(leftover)
        return
    lock = os.open(leftover, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(leftover)
    finally:
        os.close(lock)


def _remove(leftover: Path) -> None:
    if leftover.suffix == _WHOLE:
        _move_in(leftover)
    else:
        shutil.rmtree(leftover)


def _move_in(complete_stage: Path) -> None:
    """Move all old files out, then all new ones in; continues an interrupted call."""
    home, new, old = complete_stage.parent, complete_stage / "new", complete_stage / "old"
    names = sorted(os.listdir(new)) if new.exists() else []
    try:
        for name in names:
            with suppress(FileNotFoundError):
                os.replace(home / name, old / name)
        for name in names:
            os.replace(new / name, home / name)
    except OSError:
        for name in names:  # restore the old files
            if (old / name).exists():
                os.replace(old / name, home / name)
            elif not (new / name).exists():
                (home / name).unlink()
        shutil.rmtree(complete_stage, ignore_errors=True)
        raise
    _sync(home)
    shutil.rmtree(complete_stage, ignore_errors=True)


# ---- one file ----------------------------------------------------------------------------------


def _bring_to_disk(temporary: Path, target: Path) -> None:
    """Write a file to the disk, with the permissions of the file that it replaces."""
    if target.exists() and not target.is_symlink():
        os.chmod(temporary, target.stat().st_mode & 0o777)
    _sync(temporary)


def _sync(path: Path) -> None:
    """Write a file, or the entries of a folder, to the disk."""
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


def _resolve_target(path: str | os.PathLike[str]) -> Path:
    """Resolve the links of a path to a regular file, and check that it may be written."""
    target = Path(path).absolute()
    for _ in range(_LINKS):
        if not target.is_symlink():
            break
        _refuse_strange_link(target, is_file=True)
        target = target.parent / os.readlink(target)  # a link stays one
    else:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    target = _resolve_folder(target.parent) / target.name
    _check_destination(target, path)
    return target


def _resolve_folder(folder: Path) -> Path:
    """Resolve the links of a folder's path."""
    for part in (folder, *folder.parents):
        if part.is_symlink():
            _refuse_strange_link(part, is_file=False)
    return folder.resolve()


def _check_destination(target: Path, path: str | os.PathLike[str]) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a directory; name a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; create it first")
    if target.exists():
        if not target.is_file():
            raise OSError(f"{path} is a device or pipe, which is not replaced; name a file")
        if not os.access(target, os.W_OK):
            raise PermissionError(f"{path} may not be written")


def _refuse_strange_link(link: Path, *, is_file: bool) -> None:
    """Refuse symbolic links that other users may have made, which could point to our files."""
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
def _errors_naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Replace temporary paths in errors of the system by the requested path."""
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


# ---- Safetensors files: reproducible bytes, and no trust in their content ------------------------

MAX_HEADER = 32 * 2**20  # bytes
_MAX_AXES = 8
_DTYPES = {"F16", "F32", "F64", "BOOL"} | {f"{k}{8 * n}" for k in "IU" for n in (1, 2, 4, 8)}
_CHECKSUM = 64  # digits, before the text in the metadata


def write_tensors(path: Path, key: str, text: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write arrays, and a text in the metadata, after a checksum of both.

    Raises ValueError if ``read_tensors`` would refuse the file for its size.
    """
    metadata = {key: _checksum_of(text, tensors) + text}
    data = save({name: np.asarray(tensors[name], order="C") for name in sorted(tensors)}, metadata)
    if _header_size(data) > MAX_HEADER:
        raise ValueError(
            f"the model has more than {MAX_HEADER // 2**20} MiB of metadata, which load would "
            "refuse: its columns have too many categories; leave columns out, or merge categories"
        )
    path.write_bytes(data)


def _header_size(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")


def read_tensors(
    path: Path, key: str, *, arrays: bool = True
) -> tuple[str | None, dict[str, np.ndarray]]:
    """The text in the metadata of a file (None without metadata), and its arrays by name.

    Raises OSError if the file does not exist or is not a regular file. Raises ValueError if it is
    incomplete, its header does not fit its content, or the checksum is missing or wrong.
    """
    _check_header_size(path)
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            names = file.keys()
            for name in names:
                entry = file.get_slice(name)
                if entry.get_dtype() not in _DTYPES or len(entry.get_shape()) > _MAX_AXES:
                    refuse(path, f"what it says of the array {name[:100]!r} cannot be")
            tensors = {name: file.get_tensor(name) for name in names} if arrays else {}
    except SafetensorError as error:
        refuse(path, str(error)[:500])
    if key not in metadata:
        return None, {}
    if len(metadata) > 1:
        raise ValueError(f"{path} is damaged: its metadata has more than a model's: {[*metadata]}")
    checksum, text = metadata[key][:_CHECKSUM], metadata[key][_CHECKSUM:]
    if arrays and checksum != _checksum_of(text, tensors):
        raise ValueError(
            f"{path} is damaged: its weights or its header are not those that were written (their "
            "checksum differs); use another copy"
        )
    return text, tensors


def parse_json(text: str) -> Any:
    """Parse JSON whose keys differ and whose numbers are finite; raises ValueError.

    >>> parse_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    """
    try:
        return json.loads(
            text, object_pairs_hook=_unique_keys, parse_float=_finite, parse_constant=_finite
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None


@contextmanager
def reading(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn all errors about the content of a file into a ValueError with its path."""
    path = os.fspath(path)
    try:
        yield
    except Exception as error:  # from any library that receives the content
        said = str(error)
        if path in said and type(error) is ValueError:
            raise
        if not isinstance(error, ValueError):
            said = f"its header and arrays do not make a {what} ({error!r})"
        said = said if len(said) < 500 else said[:500] + " ..."
        raise ValueError(f"{path} is damaged: {said}") from error


def refuse(path: Path, why: str) -> NoReturn:
    """Raise the error of a file that is not a safetensors file."""
    raise ValueError(f"{path} is not a safetensors file, or is cut short: {why}") from None


# ---- parts -------------------------------------------------------------------------------------


def _check_header_size(path: Path) -> None:
    """Refuse paths that are not regular files (without waiting for a pipe), and long headers."""
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a directory; name a file in it")
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    if not path.is_file():
        raise OSError(f"{path} is a device or a pipe, not a file of a model")
    with path.open("rb") as file:
        if _header_size(file.read(8)) > MAX_HEADER:
            refuse(path, "its header is longer than is read")


def _checksum_of(text: str, tensors: Mapping[str, np.ndarray]) -> str:
    """The SHA-256 of a header and arrays, independent of their order in a file."""
    digest = hashlib.sha256(json.dumps(text).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("it has a key twice")
    return values


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"it has the number {number[:20]}, which is not finite")
    return value


# ---- Declared fields: names, types and limits of values that are read from a file ----------------

_LARGEST = 2**31 - 1  # of counts and sizes


@dataclass(frozen=True)
class Field:
    """A condition on a value, with its description for errors."""

    says: str
    holds: Callable[[Any], bool]
    optional: bool = False


def whole(minimum: int = 0, maximum: int = _LARGEST) -> Field:
    """An integer within bounds; booleans are not integers.

    >>> [whole(1).holds(value) for value in (1, 0, True, 1.0)]
    [True, False, False, False]
    """
    return Field(
        f"a whole number from {minimum} to {maximum}",
        lambda v: type(v) is int and minimum <= v <= maximum,
    )


def number(*, finite: bool = True) -> Field:
    """A float or an integer."""
    return Field(
        "a finite number" if finite else "a number",
        lambda v: type(v) in (int, float) and (not finite or abs(v) < math.inf),
    )


def text(max_length: int = 10_000) -> Field:
    """Text of at most ``max_length`` characters."""
    return Field(
        f"text of at most {max_length} characters",
        lambda v: type(v) is str and len(v) <= max_length,
    )


def choice(*values: Any) -> Field:
    """One of these; 1 is not True."""
    return Field(
        "one of " + ", ".join(map(repr, values)),
        lambda v: any(type(v) is type(one) and v == one for one in values),
    )


def kind(*types: type) -> Field:
    """An instance of one of these types, not of their subclasses."""
    return Field(" or ".join(t.__name__ for t in types), lambda v: type(v) in types)


def nullable(field: Field) -> Field:
    """The field, or None."""
    return replace(field, says=f"{field.says} or None", holds=lambda v: v is None or field.holds(v))


def optional(field: Field) -> Field:
    """A field that may be absent, as the loss curve of lbfgs is."""
    return replace(field, optional=True)


def pair(first: Field, second: Field) -> Field:
    """Two values, one of each."""
    return Field(
        f"a pair of {first.says} and {second.says}",
        lambda v: (
            type(v) in (list, tuple) and len(v) == 2 and first.holds(v[0]) and second.holds(v[1])
        ),
    )


def several(field: Field, min_length: int = 0) -> Field:
    """A list or tuple of values that all meet a field."""
    return Field(
        f"a list of at least {min_length}, each {field.says}",
        lambda v: type(v) in (list, tuple) and len(v) >= min_length and all(map(field.holds, v)),
    )


def check_fields(values: Any, fields: Mapping[str, Field], where: str) -> None:
    """Refuse a dict with missing, unknown or invalid fields.

    >>> check_fields({"epochs": -1}, {"epochs": whole()}, "the header")
    Traceback (most recent call last):
        ...
    ValueError: epochs in the header must be a whole number from 0 to 2147483647, got -1
    """
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be an object, got a {type(values).__name__}")
    unknown = sorted(set(values) - set(fields))
    absent = sorted(n for n, field in fields.items() if n not in values and not field.optional)
    if unknown or absent:
        raise ValueError(f"{where} lacks {absent} and has {unknown} that are unknown"[:500])
    for name, value in values.items():
        if not fields[name].holds(value):
            raise ValueError(f"{name} in {where} must be {fields[name].says}, got {_short(value)}")


def _short(value: Any) -> str:
    if isinstance(value, list | tuple | dict) and len(value) > 20:
        return f"a {type(value).__name__} of {len(value)}"
    said = repr(value)
    return said if len(said) <= 100 else said[:100] + " ..."


def check_parameters(estimator: Any) -> None:
    """Check parameters by the ``_parameter_constraints`` of an estimator, as its ``fit`` does."""
    estimator._validate_params()


# ---- Files of models: arrays and a JSON header ---------------------------------------------------

MODEL_FORMAT = 3
_KEY = "combutab"  # of the JSON in the file's header
_HEADER = {"format": whole(), "version": text(100), "class": text(100), "params": kind(dict)}


def write_model(
    path: str | os.PathLike[str], header: dict[str, Any], tensors: dict[str, np.ndarray]
) -> None:
    """Write a model file; an error leaves no incomplete file."""
    packed = json.dumps(header, allow_nan=False)
    with whole_file(path) as temporary:
        write_tensors(temporary, _KEY, packed, tensors)


def read_model(
    path: str | os.PathLike[str], *, arrays: bool = True
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header of a model file, and its arrays by name.

    Raises OSError or ValueError, with the path, if it is not a complete model file.
    """
    path = Path(path)
    packed, tensors = read_tensors(path, _KEY, arrays=arrays)
    if packed is None:
        raise ValueError(f"{path} is a safetensors file, but not a model of combutab")
    try:
        header = parse_json(packed)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: its header is not JSON ({error})") from error
    if not isinstance(header, dict) or not {"format", "class"} <= set(header):
        raise ValueError(f"{path} is damaged: its header is not that of a model of combutab")
    with reading(path, "model"):
        if header["format"] != MODEL_FORMAT:
            raise ValueError(
                f"{path} has format {str(header['format'])[:20]}, this version of combutab reads "
                f"{MODEL_FORMAT}"
            )
        check_fields({n: v for n, v in header.items() if n in _HEADER}, _HEADER, "the header")
    return header, tensors
