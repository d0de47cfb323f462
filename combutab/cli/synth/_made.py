"""The origin of a synthetic table, as its generator's file tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from combutab._model_files import decode, read_model
from combutab.cli._console import UserError
from combutab.generators import find_generators


@contextmanager
def generator_header(path: Path) -> Iterator[dict[str, Any]]:
    """Give the header of a generator's file; what goes wrong with the file is a UserError."""
    try:
        header, _ = read_model(path, arrays=False)
        names = find_generators()
        if header["class"] not in names:
            raise UserError(
                f"{path} holds a {header['class']}, which makes no rows; give a file of a "
                f"{' or '.join(names)}, such as `combutab synth --save` writes"
            )
        yield header
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged: {error!r}") from error
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error


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
