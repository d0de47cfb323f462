"""The header of a model's file that a command is given."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from combutab._model_files import read_model
from combutab.cli._console import UserError


@contextmanager
def model_header(
    path: Path, names: Collection[str], lack: str, maker: str
) -> Iterator[dict[str, Any]]:
    """Give the header of a file of one of these classes; what goes wrong with it is a UserError.

    ``lack`` is what others do not do, ``maker`` the command that writes such files.
    """
    try:
        header, _ = read_model(path, arrays=False)
        if header["class"] not in names:
            *others, last = sorted(names, key=str.lower)
            raise UserError(
                f"{path} holds a {header['class']}, which {lack}; give a file of a "
                f"{', '.join(others)} or {last}, such as `{maker}` writes"
            )
        yield header
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged: {error!r}") from error
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error
