"""Data sets through the openml package: from its cache, else from its server into its cache.

The package works in a scratch folder here, never in its cache: whatever goes wrong, its cache
holds whole data sets only. What it fetched becomes part of the cache by one rename.
"""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pandas as pd
from pandas.api.types import is_bool_dtype

from combutab._whole_files import whole_file
from combutab.datasets._files import TableError
from combutab.datasets.openml._local import own_copy
from combutab.datasets.openml._transport import Transport

T = TypeVar("T")

TIME_LIMIT = 1800.0  # seconds for one data set, retries and all
BACK_OFF = (1.0, 2.0, 4.0)  # seconds before each further try
_SCRATCH = ".combutab-"
_BUSY = 107  # OpenML's code for "database connection error", which comes with its load
_lock = threading.Lock()  # openml's settings are global
_sleep = time.sleep


@dataclass(frozen=True)
class RawDataset:
    """A data set as the openml package gives it."""

    table: pd.DataFrame
    nominal: frozenset[str]
    text: frozenset[str]  # columns of free text or dates
    target: str | None
    name: str
    openml_id: int
    version: int


class _GarbledError(Exception):
    """What was fetched cannot be read, or is not all of it."""


def fetch(
    name: str | None,
    openml_id: int | None,
    version: int | None,
    *,
    offline: bool,
    accept: Callable[[RawDataset], T],
) -> T:
    """Give what ``accept`` makes of a data set; one that it refuses is not kept in the cache.

    Raises
    ------
    ImportError
        The openml package is not installed.
    OSError
        The set is neither in the cache nor to be had.
    ValueError
        OpenML has no such set, or ``accept`` refuses it.
    """
    label = str(openml_id) if name is None else name
    openml = _import_openml(label)
    with _lock:
        cache = Path(openml.config.get_cache_directory())
        key = _look_up(cache, label, version) if openml_id is None else openml_id
        damage = ""
        if key is not None and (cache / "datasets" / str(key)).is_dir():
            try:
                return accept(_read(openml, cache, key))
            except (TableError, OSError, _GarbledError, openml.exceptions.PyOpenMLError) as error:
                damage = f" as a whole ({_reason(error)})"
        if offline:
            raise OSError(
                f"{label} is not in OpenML's cache {cache}{damage}, and offline=True: connect to "
                f"the network and load it once with offline=False, or {own_copy(label)}"
            )
        return _download(openml, cache, label, openml_id or label, version, accept)


def _import_openml(label: str) -> Any:
    try:
        import openml
    except ImportError as error:
        raise ImportError(
            f"loading {label} from OpenML needs openml: pip install 'combutab[openml]'; "
            f"or {own_copy(label)}"
        ) from error
    return openml


# --- the openml package -------------------------------------------------------------------------


@contextmanager
def _configured(openml: Any, root: Path, transport: Transport) -> Iterator[Path]:
    """Let the package work in another folder, ask once only, and keep its log to itself."""
    config = openml.config
    before = config.get_config_as_dict()
    logger, root_logger, silent = logging.getLogger("openml"), logging.root, logging.NullHandler()
    level = logger.level
    try:
        config.set_root_cache_directory(root)
        config.set_retry_policy(before["retry_policy"], 1)
        logger.setLevel(logging.CRITICAL)
        # It calls logging.info(), which would give a root logger without a handler one for good.
        root_logger.addHandler(silent)
        with transport.installed():
            yield Path(config.get_cache_directory())
    finally:
        root_logger.removeHandler(silent)
        logger.setLevel(level)
        config.set_retry_policy(before["retry_policy"], before["connection_n_retries"])
        config.set_root_cache_directory(before["cachedir"])


def _get(openml: Any, name_or_id: str | int, version: int | None) -> RawDataset:
    """Let the package fetch a data set, or read it where its files are in place."""
    from urllib3.exceptions import HTTPError

    try:
        dataset = openml.datasets.get_dataset(
            name_or_id, version=version, download_data=True, download_features_meta_data=True
        )
        table, *_ = dataset.get_data(include_row_id=True, include_ignore_attribute=True)
        n_rows = _known_rows(openml, dataset)
    except (openml.exceptions.PyOpenMLError, RuntimeError, OSError, HTTPError):
        raise
    except Exception as error:  # what it raises for files it cannot read, Exception itself too
        raise _GarbledError(f"the package cannot read it: {_reason(error)}") from error
    if n_rows not in (None, len(table)):
        raise _GarbledError(f"it has {len(table)} rows, and {n_rows} by its description")
    unused = [*_names(dataset.ignore_attribute), *_names(dataset.row_id_attribute)]
    table = table.drop(columns=[column for column in table.columns if column in unused])
    kinds = {feature.name: feature for feature in dataset.features.values()}
    for name in kinds.keys() & set(table.columns):
        if kinds[name].data_type == "nominal" and is_bool_dtype(table[name]):
            # The package makes truth values of FALSE and TRUE, whichever way they are written.
            spelling = {value.casefold() == "true": value for value in kinds[name].nominal_values}
            table[name] = table[name].astype(object).map(spelling, na_action="ignore")
    return RawDataset(
        table=table,
        nominal=frozenset(name for name, kind in kinds.items() if kind.data_type == "nominal"),
        text=frozenset(
            name for name, kind in kinds.items() if kind.data_type in ("string", "date")
        ),
        target=dataset.default_target_attribute,
        name=dataset.name,
        openml_id=dataset.dataset_id,
        version=dataset.version,
    )


def _known_rows(openml: Any, dataset: Any) -> int | None:
    from requests import RequestException

    try:
        qualities = dataset.qualities or {}
    except (openml.exceptions.PyOpenMLError, RequestException):  # some sets have none
        return None
    n_rows = qualities.get("NumberOfInstances", math.nan)
    return None if math.isnan(n_rows) else int(n_rows)


def _names(attribute: str | list[str] | None) -> list[str]:
    names = attribute.split(",") if isinstance(attribute, str) else attribute or []
    return [part for name in names for part in (name, *name.split(","))]


# --- its cache ----------------------------------------------------------------------------------


def _read(openml: Any, cache: Path, key: int) -> RawDataset:
    """Read a data set of the cache through links: the package deletes and rewrites files."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        _configured(openml, Path(scratch), Transport("", closed=True)) as place,
    ):
        folder = place / "datasets" / str(key)
        folder.mkdir(parents=True)
        for file in (cache / "datasets" / str(key)).iterdir():
            if ".pkl" not in file.name:  # pickles are of some version of pandas
                _link(file.absolute(), folder / file.name)
        return _get(openml, key, None)


def _link(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source)
    except OSError:  # Windows, for a user without the right to
        shutil.copyfile(source, target)


def _download(
    openml: Any,
    cache: Path,
    label: str,
    name_or_id: str | int,
    version: int | None,
    accept: Callable[[RawDataset], T],
) -> T:
    transport = Transport(f"OpenML {label}", TIME_LIMIT)
    try:
        (cache / "datasets").mkdir(parents=True, exist_ok=True)
        _sweep(cache)
        folder = tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=cache)
    except OSError as error:
        raise OSError(
            f"cannot keep a download in {cache}: {error.strerror}; set OPENML_CACHE_DIR to a "
            f"folder that can be written to, or {own_copy(label)}"
        ) from error
    with folder as scratch, _configured(openml, Path(scratch), transport) as place:

        def get() -> RawDataset:
            shutil.rmtree(place / "datasets", ignore_errors=True)  # of a try before this one
            return _get(openml, name_or_id, version)

        raw = _try_again(openml, label, cache, transport, get)
        accepted = accept(raw)
        key = str(raw.openml_id)
        _keep(place / "datasets" / key, cache / "datasets" / key, Path(scratch) / "old")
        for name, known in {(label, version), (raw.name, raw.version)}:
            if name != key:
                _remember(cache, name, known, key)
    return accepted


def _try_again(
    openml: Any, label: str, cache: Path, transport: Transport, action: Callable[[], T]
) -> T:
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    fault: Exception
    for seconds in (*BACK_OFF, math.inf):
        try:
            return action()
        except (RequestException, HTTPError, _GarbledError) as error:
            fault = error
        except (RuntimeError, openml.exceptions.PyOpenMLError) as error:
            garbled = transport.last_status == 200  # a good answer that it cannot read
            if not garbled and getattr(error, "code", None) != _BUSY:
                raise ValueError(
                    f"OpenML gives no data set {label}: {_reason(error)}; list_openml() has some, "
                    "https://www.openml.org all"
                ) from error
            fault = error
        if seconds >= transport.seconds_left():
            break
        transport.without_parquet = True  # the ARFF file is the one that has a checksum
        _sleep(seconds)
    raise OSError(
        f"cannot fetch {label} from OpenML, and it is not in its cache {cache}: "
        f"{_reason(fault)}; connect to the network and try again, or {own_copy(label)}"
    ) from fault


def _reason(error: BaseException) -> str:
    """The innermost of the errors that requests, urllib3 and openml wrap into one another."""
    wrapped = (getattr(error, "reason", None), *error.args)
    if type(error) is Exception:  # as openml has it around those of unreadable files
        wrapped = (error.__cause__,)
    for inner in wrapped:
        if isinstance(inner, BaseException):
            return _reason(inner)
    return textwrap.shorten(str(error), 300) or type(error).__name__


def _keep(source: Path, target: Path, aside: Path) -> None:
    """Make a data set part of the cache in one step, also beside another process that does so."""
    for leftover in (*source.glob("*.pkl*"), *source.glob("*.part.minio")):
        leftover.unlink()
    try:
        source.rename(target)
    except OSError:
        if not target.exists():
            raise
        with suppress(OSError):  # it is damaged, or another process has just put it there
            target.rename(aside)
            source.rename(target)


def _sweep(cache: Path) -> None:
    """Remove what processes that were killed have left: none works longer than the limit."""
    for scratch in cache.glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            if time.time() - scratch.stat().st_mtime > 2 * TIME_LIMIT:
                shutil.rmtree(scratch)


def _name_file(cache: Path, name: str, version: int | None) -> Path:
    return cache / "combutab_names" / f"{quote(name, safe='')}@{version or 'oldest'}"


def _remember(cache: Path, name: str, version: int | None, key: str) -> None:
    """Note the id of a name, which only the server knows otherwise."""
    file = _name_file(cache, name, version)
    file.parent.mkdir(exist_ok=True)
    with whole_file(file) as place:
        place.write_text(key)


def _look_up(cache: Path, name: str, version: int | None) -> int | None:
    try:
        return int(_name_file(cache, name, version).read_text())
    except (OSError, ValueError):
        return None
