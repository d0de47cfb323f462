"""Model files on the command line, which know the format of their table too."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from combutab._model_files import load, read_model, write_model
from combutab.cli._console import UserError, refusals
from combutab.cli._tables import FileFormat
from combutab.core.device import resolve_device

_FORMS, _TARGET = "forms", "target"  # of the header of a model's file


@contextmanager
def known_model(
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


def save_with_format(model: Any, path: Path, forms: FileFormat, target: str | None = None) -> None:
    """Write a model's file that knows the format of its table too, and an estimator's target."""
    model.save(path)
    header, arrays = read_model(path)
    named = {} if target is None else {_TARGET: target}
    write_model(path, {**header, _FORMS: asdict(forms), **named}, arrays)


def load_with_format(
    path: Path, device: str, names: Collection[str], lack: str, maker: str
) -> tuple[Any, FileFormat, str | None]:
    """Read a model's file, and the format of its table and the target if it knows them."""
    with known_model(path, names, lack, maker) as header:
        model = load(path, device=device)
        forms = FileFormat.from_json(header[_FORMS]) if _FORMS in header else FileFormat()
        target = header.get(_TARGET)
        if not (target is None or isinstance(target, str)):
            raise TypeError(f"the target is {target!r:.50}")
    return model, forms, target


def check_device(device: str) -> None:
    """Refuse a device that torch does not have."""
    with refusals():
        resolve_device(device)


def check_replaceable(option: str, path: Path | None) -> None:
    """Let a model take the place of a model alone, not of a table or of a training's checkpoint."""
    if path is None or not path.exists() or path.stat().st_size == 0:
        return
    try:
        header, _ = read_model(path, arrays=False)
        what = "is the checkpoint of a training" if "checkpoint" in header else ""
    except (OSError, ValueError, KeyError):
        what = "is no file of a model"
    if what:
        raise UserError(f"{option}: {path} is there, and {what}; choose another file, or remove it")
