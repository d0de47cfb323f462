"""Safetensors files, written byte for byte the same, and read as a stranger's may be read.

All that a file claims is checked before memory is asked for.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

MAX_HEADER = 32 * 2**20  # bytes
MAX_DEPTH = 64  # of lists and objects in one another
_MAX_AXES = 8
_DTYPES: dict[str, Any] = {
    **{f"F{8 * n}": np.dtype(f"<f{n}") for n in (2, 4, 8)},
    **{f"I{8 * n}": np.dtype(f"<i{n}") for n in (1, 2, 4, 8)},
    **{f"U{8 * n}": np.dtype(f"<u{n}") for n in (1, 2, 4, 8)},
    "BOOL": np.dtype(bool),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_CHECKSUM = "sha256"
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


def write_tensors(place: Path, key: str, text: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write arrays, and a text in the metadata, with a checksum of both.

    Raises ValueError if ``read_tensors`` would refuse the file for its size.
    """
    arrays = {
        name: np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        for name, array in tensors.items()
    }
    metadata = {key: text, _CHECKSUM: _digest(text, arrays)}
    layout: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    # the widest numbers first: each array then begins at a multiple of its numbers' size
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    for name in order:
        begin, end = end, end + arrays[name].nbytes
        dtype, shape = _NAMES[arrays[name].dtype], arrays[name].shape
        layout[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps(layout).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > MAX_HEADER:
        raise ValueError(
            f"what the model knows beside its weights takes more than {MAX_HEADER // 2**20} MiB, "
            "which load would refuse: its columns have too many categories; drop or join them"
        )
    with open(place, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name in order:
            file.write(_bytes(arrays[name]))


def read_tensors(
    path: Path, key: str, *, arrays: bool = True
) -> tuple[str | None, dict[str, np.ndarray]]:
    """The text in a file's metadata, None if there is none, and its arrays by name.

    Raises OSError if there is no such file, or it is none that holds data; ValueError if it is not
    whole, claims what it does not hold, or has another checksum than written.
    """
    with _open(path) as file:
        start = file.read(8)
        n_header, size = int.from_bytes(start, "little"), os.fstat(file.fileno()).st_size
        if len(start) < 8 or n_header > min(size - 8, MAX_HEADER):
            refuse(path, "its header is longer than the file, or than is read")
        try:
            header = parse_json(file.read(n_header).decode())
        except ValueError as error:
            refuse(path, str(error))
        if not isinstance(header, dict):
            refuse(path, "its header is no object")
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
            refuse(path, "its metadata is not text")
        layout = _layout(path, header, size - 8 - n_header)
        tensors: dict[str, np.ndarray] = {}
        if arrays:
            for name, dtype, shape in layout:
                tensors[name] = array = np.empty(shape, dtype)
                if array.nbytes and file.readinto(_bytes(array)) != array.nbytes:
                    refuse(path, "it became shorter")
    text = metadata.pop(key, None)
    checksum = metadata.pop(_CHECKSUM, None)
    if text is not None and metadata:
        raise ValueError(f"{path} is damaged: its metadata has more than a model's: {[*metadata]}")
    if arrays and checksum is not None and checksum != _digest(text or "", tensors):
        raise ValueError(
            f"{path} is damaged: its weights or its header are not those that were written (their "
            "checksum differs); take a copy that is whole"
        )
    return text, tensors


def parse_json(text: str) -> Any:
    """Parse JSON of limited depth whose keys differ and whose numbers are finite, or a ValueError.

    >>> parse_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_unlike, parse_float=_finite, parse_constant=_finite
        )
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from None
    brackets = np.frombuffer(_STRINGS.sub("", text).encode(errors="replace"), dtype=np.uint8)
    if len(brackets) and np.cumsum(_STEPS[brackets], dtype=np.int32).max() > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    return value


@contextmanager
def reading(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Have all that goes wrong with the contents of a file be a ValueError that names it."""
    path = os.fspath(path)
    try:
        yield
    except Exception as error:  # of any library that is given what the file says
        said = str(error)
        if path in said and type(error) is ValueError:
            raise
        if not isinstance(error, ValueError):
            said = f"its header and arrays do not make a {what} ({error!r})"
        said = said if len(said) < 500 else said[:500] + " ..."
        raise ValueError(f"{path} is damaged: {said}") from error


def refuse(path: Path, why: str) -> NoReturn:
    """Say that a file is none of safetensors."""
    raise ValueError(f"{path} is not a safetensors file, or is cut short: {why}") from None


# ---- parts -------------------------------------------------------------------------------------


def _open(path: Path) -> io.BufferedReader:
    """A regular file; a pipe is not waited for."""
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a directory; name a file in it")
    try:
        handle = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
    except FileNotFoundError:
        raise FileNotFoundError(f"no such file: {path}") from None
    file = os.fdopen(handle, "rb")
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise OSError(f"{path} is a device or a pipe, not a file of a model")
    return file


def _layout(path: Path, header: dict[str, Any], size: int) -> list[tuple[str, Any, list[int]]]:
    """Name, dtype and shape of each array in the order of the file, which they fill."""
    found = []
    for name, entry in header.items():
        try:
            dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
            begin, end = entry["data_offsets"]
            whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
        except (TypeError, KeyError, ValueError):
            whole = False
        if not whole or len(shape) > _MAX_AXES or math.prod(shape) * dtype.itemsize != end - begin:
            refuse(path, f"what it says of the array {name[:100]!r} cannot be")
        found.append((begin, end, name, dtype, shape))
    found.sort(key=lambda each: each[:2])
    ends = [0, *(end for _, end, *_ in found)]
    if [begin for begin, *_ in found] != ends[:-1] or ends[-1] != size:
        refuse(path, "its arrays do not fill it")
    return [(name, dtype, shape) for _, _, name, dtype, shape in found]


def _bytes(array: np.ndarray) -> Any:
    """The memory of an array as a buffer."""
    return array.reshape(-1).view(np.uint8)


def _digest(text: str, tensors: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of a header and arrays, whichever way a file stores them."""
    digest = hashlib.sha256(json.dumps(text).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(_bytes(np.ascontiguousarray(array)))
    return digest.hexdigest()


def _unlike(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("it has a key twice")
    return made


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"it has the number {number[:20]}, which is not finite")
    return value
