"""Data sets through the openml package: from its cache, else from the server into its cache."""

from __future__ import annotations

import os
import textwrap
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_bool_dtype

from combutab.datasets.openml._local import own_copy

_NAMESPACE = "{http://openml.org/openml}"
_lock = threading.Lock()  # the package's cache is not for several threads


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


def fetch(
    name: str | None, openml_id: int | None, version: int | None, *, offline: bool
) -> RawDataset:
    """Load a data set by its id, or else by its name and version.

    Raises ImportError without the openml package; OSError if the set is neither in the cache nor to
    be had; ValueError if OpenML has no such set.
    """
    label = str(openml_id) if name is None else name
    try:
        import openml
    except ImportError as error:
        raise ImportError(
            f"loading {label} from OpenML needs openml: pip install 'combutab[openml]'; "
            f"or {own_copy(label)}"
        ) from error
    cache = Path(openml.config.get_cache_directory())
    with _lock:
        if openml_id is None and not offline:
            with _named_errors(openml, label, cache):
                openml_id = _ask_id(openml, label, version)
        folder = _find_cached(cache, name, openml_id, version)
        damage = ""
        if folder is not None:
            try:
                return _load(openml, folder)
            except Exception as error:  # whatever the package's readers raise
                damage = f" as a whole ({_reason(error)})"
        if offline:
            raise OSError(
                f"{label} is not in OpenML's cache {cache}{damage}, and offline=True: connect to "
                f"the network and load it once with offline=False, or {own_copy(label)}"
            )
        with _named_errors(openml, label, cache):
            return _load(openml, cache / "datasets" / str(openml_id), refresh=True)


@contextmanager
def _named_errors(openml: Any, label: str, cache: Path) -> Iterator[None]:
    """Have errors of the openml package name the data set and the way out."""
    refusals = (
        openml.exceptions.OpenMLServerNoResult,
        openml.exceptions.OpenMLPrivateDatasetError,
        openml.exceptions.OpenMLNotAuthorizedError,
        LookupError,
    )
    try:
        yield
    except refusals as error:
        raise ValueError(
            f"OpenML gives no data set {label}: {_reason(error)}; list_openml() has some, "
            "https://www.openml.org all"
        ) from error
    except Exception as error:  # of requests, urllib3, minio, the system or the readers of files
        raise OSError(
            f"cannot fetch {label} from OpenML into its cache {cache}: {_reason(error)}; connect "
            "to the network and try again (with offline=True if the cache has it), set "
            f"OPENML_CACHE_DIR to a folder that can be written to, or {own_copy(label)}"
        ) from error


def _reason(error: BaseException) -> str:
    """The innermost of the errors that requests, urllib3 and openml wrap into one another."""
    wrapped = (getattr(error, "reason", None), *error.args)
    if type(error) is Exception:  # as openml has it around those of unreadable files
        wrapped = (error.__cause__,)
    for inner in wrapped:
        if isinstance(inner, BaseException):
            return _reason(inner)
    return textwrap.shorten(str(error), 300) or type(error).__name__


def _ask_id(openml: Any, name: str, version: int | None) -> int:
    found = openml.datasets.list_datasets(
        data_name=name,
        data_version=version,
        status="active" if version is None else None,
        output_format="dataframe",
    )
    if found.empty:
        which = "active version" if version is None else f"version {version}"
        raise LookupError(f"there is no {which} of that name")
    return int(found["did"].min())  # the oldest: ids are chronological


def _find_cached(
    cache: Path, name: str | None, openml_id: int | None, version: int | None
) -> Path | None:
    """The folder of a data set that can be read without the server, of a name the oldest."""
    folders = (
        cache.glob("datasets/[1-9]*") if openml_id is None else [cache / f"datasets/{openml_id}"]
    )
    found = []
    for folder in folders:
        files = {file.name for file in folder.glob("*")}
        if not {"features.xml", "description.xml"} <= files:
            continue
        if not {"dataset.arff", f"dataset_{folder.name}.pq"} & files:
            continue
        try:
            description = ElementTree.parse(folder / "description.xml")
        except ElementTree.ParseError:  # the package would ask the server for another
            continue
        said = {
            key: description.findtext(_NAMESPACE + key) for key in ("name", "version", "status")
        }
        fits = said["version"] == str(version) or (version is None and said["status"] == "active")
        if openml_id is not None or (said["name"] == name and fits):
            found.append(folder)
    return min(found, key=lambda folder: int(folder.name), default=None)


@contextmanager
def _without_parquet(openml: Any) -> Iterator[None]:
    variable = openml.config.OPENML_SKIP_PARQUET_ENV_VAR
    before = os.environ.get(variable)
    os.environ[variable] = "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def _load(openml: Any, folder: Path, *, refresh: bool = False) -> RawDataset:
    """Load a data set by the id that its folder is named after."""
    only_arff = (
        not refresh
        and (folder / "dataset.arff").exists()
        and not (folder / f"dataset_{folder.name}.pq").exists()
    )
    with _without_parquet(openml) if only_arff else nullcontext():
        dataset = openml.datasets.get_dataset(
            int(folder.name),
            download_data=True,
            download_features_meta_data=True,
            force_refresh_cache=refresh,
        )
        table, *_ = dataset.get_data(include_row_id=True, include_ignore_attribute=True)
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


def _names(attribute: str | list[str] | None) -> list[str]:
    """The columns of an attribute, whose names may be in one text with commas."""
    names = [attribute] if isinstance(attribute, str) else attribute or []
    return [part for name in names for part in (name, *name.split(","))]
