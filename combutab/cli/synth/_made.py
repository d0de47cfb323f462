"""Files of generators, which know the forms of a table too, and what they tell of its origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from combutab._model_files import decode, load, read_model, write_model
from combutab.cli._model_header import model_header
from combutab.cli.tables._forms import FileFormat
from combutab.generators import find_generators

_KEY = "forms"  # of the header of a model's file


@contextmanager
def generator_header(path: Path) -> Iterator[dict[str, Any]]:
    """Give the header of a generator's file; what goes wrong with the file is a UserError."""
    names, maker = find_generators(), "combutab synth --save"
    with model_header(path, names, "makes no rows", maker) as header:
        yield header


def read_made(path: Path) -> dict[str, str]:
    """Read a generator's description from its file."""
    with generator_header(path) as header:
        return describe(header)


def describe(header: Mapping[str, Any]) -> dict[str, str]:
    """Kind, version and parameters of a generator, from the header of its file.

    >>> describe({"class": "TVAE", "version": "0.1.0", "params": {"epochs": 300}})
    {'Generator': 'TVAE of combutab 0.1.0', 'epochs': '300'}
    """
    made = {"Generator": f"{header['class']} of combutab {header['version']}"}
    return made | {str(name): str(decode(value)) for name, value in header["params"].items()}


def save_generator(generator: Any, forms: FileFormat, path: Path) -> None:
    """Write a generator's file that knows the forms too."""
    generator.save(path)
    header, arrays = read_model(path)
    write_model(path, {**header, _KEY: forms.to_json()}, arrays)


def load_generator(path: Path, device: str) -> tuple[Any, FileFormat]:
    """Read a generator's file, and the forms that it knows; as `generator_header` does."""
    with generator_header(path) as header:
        generator = load(path, device=device)
        forms = FileFormat.from_json(header[_KEY]) if _KEY in header else FileFormat()
    return generator, forms
