"""Write files completely or not at all, and read files from untrusted sources.

Files are written to a temporary folder next to their destination, ``.combutab-*``, and moved when
they are on the disk. If the process is killed, the folder may remain.

Safetensors files with the same content have the same bytes. The header of a file is checked before
memory is allocated.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from combutab.core.progress import uninterrupted
from combutab.core.text import user_stacklevel

# ---- Atomic writes -------------------------------------------------------------------------------

_PREFIX = ".combutab-"  # prefix of temporary folders
_MAX_LINKS = 40  # number of links to follow, as in Linux


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary file to write to, which is moved to the path at the end of the context.

    After an error in the context, no temporary file remains, and an existing file is unchanged.

    Raises OSError with the path if it is not a regular file, if its folder does not exist or may
    not be written, if the disk is full, or if it is a link in a folder that others may write to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(f"{folder}/note.txt") as temporary:
    ...         _ = temporary.write_text("all of it")
    ...     os.listdir(folder)
    ['note.txt']
    """
    target = _follow_links(Path(path).absolute(), is_file=True)
    _check_destination(target, path)
    with _errors_naming(path), _temporary_folder(target.parent) as folder:
        temporary = folder / target.name
        yield temporary
        _bring_to_disk(temporary, target)
        os.replace(temporary, target)
        _sync_folder(target.parent)


@contextmanager
def whole_files(folder: str | os.PathLike[str], names: Sequence[str]) -> Iterator[Path]:
    """Yield a temporary folder to write files to, which are moved to ``folder`` at the end.

    Old files with these names are moved away before the new ones are moved, so that old and new
    files are never mixed; if a move fails, the old ones are back. A symbolic link in the folder is
    replaced, not followed.

    Raises OSError in the cases of `whole_file`, and if one of the files was not written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_files(folder, ["a.txt", "b.txt"]) as temporary:
    ...         for name in ("a.txt", "b.txt"):
    ...             _ = (temporary / name).write_text("new")
    ...     sorted(os.listdir(folder))
    ['a.txt', 'b.txt']
    """
    target = _follow_links(Path(folder).absolute())
    for name in names:
        _check_destination(target / name, Path(folder) / name)
    with _errors_naming(folder), _temporary_folder(target) as temporary:
        yield temporary
        for name in names:
            _bring_to_disk(temporary / name, target / name)
        with uninterrupted():
            _replace_files(temporary, target, names)
        _sync_folder(target)


def _replace_files(temporary: Path, target: Path, names: Sequence[str]) -> None:
    """Move files to a folder, and the old ones aside; after an error, the old ones are back."""
    previous = temporary / "previous"
    previous.mkdir()
    try:
        for name in names:
            with suppress(FileNotFoundError):
                os.replace(target / name, previous / name)
        for name in names:
            os.replace(temporary / name, target / name)
    except OSError:
        for name in names:
            if os.path.lexists(previous / name):
                os.replace(previous / name, target / name)
            elif not (temporary / name).exists():
                (target / name).unlink()
        raise


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Check that a folder can be written to."""
    target = _follow_links(Path(folder).absolute())
    if not target.is_dir():
        raise FileNotFoundError(f"the folder {folder} does not exist; create it first")
    with _errors_naming(folder), _temporary_folder(target):
        pass


@contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    with TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _bring_to_disk(temporary: Path, target: Path) -> None:
    """Write a file to the disk, with the permissions of the file that it replaces."""
    if target.exists() and not target.is_symlink():
        os.chmod(temporary, target.stat().st_mode & 0o777)
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Write the entries of a folder to the disk, where the system can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    with suppress(OSError):
        os.fsync(handle)
    os.close(handle)


def _follow_links(path: Path, *, is_file: bool = False) -> Path:
    """Follow the symbolic links of a path, except those that other users may have made.

    In a folder that all users may write to, the file itself may not be a link, and other links
    must belong to this user or to root.
    """
    for _ in range(_MAX_LINKS):
        link = next((part for part in (path, *path.parents) if part.is_symlink()), None)
        if link is None:
            return path
        is_shared = link.parent.stat().st_mode & stat.S_IWOTH
        is_own = not hasattr(os, "geteuid") or link.lstat().st_uid in (0, os.geteuid())
        if is_shared and (not is_own or (is_file and link == path)):
            raise PermissionError(
                f"{link} is a link in a folder that others may write to, and is not followed; name "
                "the file that it stands for"
            )
        path = link.parent / link.readlink() / path.relative_to(link)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))


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


@contextmanager
def _errors_naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Replace temporary paths in errors of the system by the requested path."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            if error.filename is not None and _PREFIX not in str(error.filename):
                raise
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        if os.fspath(path) in str(error):
            raise
        raise OSError(f"{os.fspath(path)} cannot be written: {error}") from error


# ---- Safetensors files with reproducible bytes, whose content is checked -------------------------

MAX_HEADER = 32 * 2**20  # bytes
_MAX_AXES = 8
_DTYPES = {"F16", "F32", "F64", "BOOL"} | {f"{k}{8 * n}" for k in "IU" for n in (1, 2, 4, 8)}
_CHECKSUM = 64  # number of digits of the checksum, which precedes the text in the metadata


def write_tensors(path: Path, key: str, text: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write arrays and a text in the metadata, with a checksum of both.

    Raises ValueError if the header is too large for ``read_tensors``.
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
    """Read the text in the metadata of a file (None without metadata), and its arrays by name.

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
    """Parse JSON; raises ValueError if a key is repeated or a number is not finite.

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
    """Convert all errors about the content of a file to a ValueError with its path."""
    path = os.fspath(path)
    try:
        yield
    except Exception as error:  # from any library that receives the content
        message = str(error)
        if path in message and type(error) is ValueError:
            raise
        if not isinstance(error, ValueError):
            message = f"its header and arrays do not make a {what} ({error!r})"
        message = message if len(message) < 500 else message[:500] + " ..."
        raise ValueError(f"{path} is damaged: {message}") from error


def refuse(path: Path, problem: str) -> NoReturn:
    """Raise the error of a file that is not a safetensors file."""
    raise ValueError(f"{path} is not a safetensors file, or is cut short: {problem}") from None


# ---- parts -------------------------------------------------------------------------------------


def _check_header_size(path: Path) -> None:
    """Raise an error if a path is not a regular file (such as a pipe), or its header is long."""
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
    """Compute the SHA-256 of a header and arrays, independent of their order in a file."""
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

_LARGEST = 2**31 - 1  # largest count or size


@dataclass(frozen=True)
class Field:
    """A condition on a value, with its description for errors."""

    says: str
    holds: Callable[[Any], bool]
    optional: bool = False


def whole(minimum: int = 0, maximum: int = _LARGEST) -> Field:
    """Declare an integer within bounds; booleans are not integers.

    >>> [whole(1).holds(value) for value in (1, 0, True, 1.0)]
    [True, False, False, False]
    """
    return Field(
        f"a whole number from {minimum} to {maximum}",
        lambda v: type(v) is int and minimum <= v <= maximum,
    )


def number(*, finite: bool = True) -> Field:
    """Declare a float or an integer."""
    return Field(
        "a finite number" if finite else "a number",
        lambda v: type(v) in (int, float) and (not finite or abs(v) < math.inf),
    )


def text(max_length: int = 10_000) -> Field:
    """Declare text of at most ``max_length`` characters."""
    return Field(
        f"text of at most {max_length} characters",
        lambda v: type(v) is str and len(v) <= max_length,
    )


def choice(*values: Any) -> Field:
    """Declare one of these values; 1 is not True."""
    return Field(
        "one of " + ", ".join(map(repr, values)),
        lambda v: any(type(v) is type(one) and v == one for one in values),
    )


def kind(*types: type) -> Field:
    """Declare an instance of one of these types, not of their subclasses."""
    return Field(" or ".join(t.__name__ for t in types), lambda v: type(v) in types)


def nullable(field: Field) -> Field:
    """Allow None in addition to the values of a field."""
    return replace(field, says=f"{field.says} or None", holds=lambda v: v is None or field.holds(v))


def optional(field: Field) -> Field:
    """Allow a field to be absent, such as the loss curve with lbfgs."""
    return replace(field, optional=True)


def pair(first: Field, second: Field) -> Field:
    """Declare a pair of values, one for each field."""
    return Field(
        f"a pair of {first.says} and {second.says}",
        lambda v: (
            type(v) in (list, tuple) and len(v) == 2 and first.holds(v[0]) and second.holds(v[1])
        ),
    )


def several(field: Field, min_length: int = 0) -> Field:
    """Declare a list or tuple of values that all meet a field."""
    return Field(
        f"a list of at least {min_length}, each {field.says}",
        lambda v: type(v) in (list, tuple) and len(v) >= min_length and all(map(field.holds, v)),
    )


def check_fields(values: Any, fields: Mapping[str, Field], where: str) -> None:
    """Raise ValueError if a dict has missing, unknown or invalid fields.

    >>> check_fields({"epochs": -1}, {"epochs": whole()}, "the header")
    Traceback (most recent call last):
        ...
    ValueError: epochs in the header must be a whole number from 0 to 2147483647, got -1
    """
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be an object, got a {type(values).__name__}")
    unknown = sorted(set(values) - set(fields))
    missing = sorted(n for n, field in fields.items() if n not in values and not field.optional)
    if unknown or missing:
        raise ValueError(f"{where} lacks {missing} and has {unknown} that are unknown"[:500])
    for name, value in values.items():
        if not fields[name].holds(value):
            raise ValueError(f"{name} in {where} must be {fields[name].says}, got {_short(value)}")


def _short(value: Any) -> str:
    if isinstance(value, list | tuple | dict) and len(value) > 20:
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + " ..."


def check_parameters(estimator: Any) -> None:
    """Check parameters by the ``_parameter_constraints`` of an estimator, as its ``fit`` does."""
    estimator._validate_params()


# ---- Files of models: arrays and a JSON header ---------------------------------------------------

MODEL_FORMAT = 3
_KEY = "combutab"  # key of the JSON in the file's header
_HEADER = {"format": whole(), "version": text(100), "class": text(100), "params": kind(dict)}


def write_model(
    path: str | os.PathLike[str], header: dict[str, Any], tensors: dict[str, np.ndarray]
) -> None:
    """Write a model file; an error leaves no incomplete file."""
    if Path(path).suffix in (".pkl", ".pickle", ".joblib"):
        warnings.warn(
            f"{path} is a safetensors file, which combutab.load reads, but not pickle or joblib; "
            "give it another ending, such as .safetensors",
            stacklevel=user_stacklevel(),
        )
    packed = json.dumps(header, allow_nan=False)
    with whole_file(path) as temporary:
        write_tensors(temporary, _KEY, packed, tensors)


def reason_to_keep(path: Path) -> str:
    """Describe a file that no model may replace, such as a table; "" if a model may replace it."""
    if not path.exists() or not path.stat().st_size:
        return ""
    try:
        header, _ = read_model(path, arrays=False)
        return "a checkpoint of a training" if "checkpoint" in header else ""
    except (OSError, ValueError, KeyError):
        return "not a model file"


def read_model(
    path: str | os.PathLike[str], *, arrays: bool = True
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the header of a model file, and its arrays by name.

    Raises OSError or ValueError, with the path, if the file is not a complete model file.
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
