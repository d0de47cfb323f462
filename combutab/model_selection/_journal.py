"""Checkpoint of a comparison: a file with the scores that are computed so far."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch
from scipy import sparse

from combutab._version import __version__
from combutab.activations import make_activation
from combutab.core.files import whole_file
from combutab.core.state import pack
from combutab.model_selection._plan import ComparisonPlan
from combutab.model_selection._target import ComparisonError

_FORMAT = "scores of combutab, 2"
_WHAT = ("activation", "model", "baseline", "fold", "seed")  # identify a record
Record = dict[str, Any]


class Journal:
    """A file of JSON lines: the plan, then one record per fit; without a path, nothing is stored.

    Nothing is written before the first record. A last line that was cut off is left out. Raises
    ComparisonError if the file is of other data, settings or versions, or no such file.
    """

    def __init__(self, path: str | os.PathLike[str] | None, plan: ComparisonPlan) -> None:
        self.path = None if path is None else Path(path)
        self.kept: dict[tuple[Any, ...], Record] = {}
        if self.path is None:
            return
        self._head = describe_plan(plan)
        try:
            lines = _whole_lines(self.path)
            if lines is None:
                return
            differ = _differing(self.path, lines, self._head)
            if differ:
                raise ComparisonError(
                    f"{self.path} contains the scores of another comparison ({differ}); use "
                    "another file, or remove this one"
                )
            os.truncate(self.path, sum(map(len, lines)))
        except OSError as error:
            raise ComparisonError(f"cannot continue from {self.path}: {error.strerror}") from error
        for record in map(json.loads, lines[1:]):
            self.kept[_record_key(record)] = _record_from_json(record)

    def add(self, records: Iterable[Record]) -> None:
        """Append records; if the file cannot be written, warn and write no more."""
        if self.path is None:
            return
        text = "".join(json.dumps(_json_record(record)) + "\n" for record in records)
        try:
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with whole_file(self.path) as temporary:
                    temporary.write_bytes(json.dumps(self._head).encode() + b"\n")
            with self.path.open("ab") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            warnings.warn(
                f"cannot write scores to {self.path}: {error.strerror or error}; the comparison "
                "continues, but after an interruption it would train these networks again",
                stacklevel=2,
            )
            self.path = None

    def get(self, **what: Any) -> Record | None:
        """The record of a fit, or None."""
        return self.kept.get(_record_key(what))


def checkpoint_differences(path: str | os.PathLike[str], plan: ComparisonPlan) -> str | None:
    """Describe how a plan differs from the comparison whose scores a ``checkpoint`` contains.

    Returns
    -------
    str or None
        None if there is no file, "" if it belongs to the same comparison, else the differences.

    Raises
    ------
    ComparisonError
        If the file is not the checkpoint of a comparison.
    """
    lines = _whole_lines(Path(path))
    return None if lines is None else _differing(Path(path), lines, describe_plan(plan))


def count_checkpoint_fits(path: str | os.PathLike[str]) -> int:
    """Count the networks, or fits of models, whose scores a ``checkpoint`` contains.

    Parameters
    ----------
    path : str or path
        A checkpoint of `compare_activations` or `compare_models`; 0 if there is no such file.
    """
    fits = (b'{"activation"', b'{"model"')
    return sum(line.startswith(fits) for line in _whole_lines(Path(path)) or ())


def describe_plan(plan: ComparisonPlan) -> dict[str, Any]:
    """All that decides the scores, as JSON holds it."""
    versions = {"combutab": __version__, "torch": torch.__version__, "numpy": np.__version__}
    described = {
        "format": _FORMAT,
        "data": plan.data,
        "rows": len(plan.y),
        "table": table_digest(plan.X, plan.y),
        "task": plan.task,
        "metric": plan.metric,
        "activations": list(plan.activations),
        "activation code": _activation_digest(plan),
        **plan.settings,
        "folds' rows": _split_digest(plan),
        "estimator_params": {name: repr(v) for name, v in sorted(plan.estimator_params.items())},
        "versions": versions | {"scikit-learn": sklearn.__version__},
    }
    parameters = plan.models | plan.estimator_params
    if parameters:
        text = json.dumps(_describe_parameter(parameters))
        described["parameters"] = hashlib.sha256(text.encode()).hexdigest()
    return dict(json.loads(json.dumps(described)))


def _describe_parameter(value: Any) -> Any:
    """Describe a value in full as JSON; ``repr`` shortens long estimators and arrays."""
    if hasattr(value, "get_params") and not isinstance(value, type):
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        return [kind, _describe_parameter(value.get_params(deep=False))]
    if isinstance(value, dict):
        return {str(name): _describe_parameter(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_describe_parameter(item) for item in value]
    try:
        return pack(value)
    except TypeError:
        return repr(value)


def table_digest(X: Any, y: np.ndarray) -> str:
    """SHA-256 of features and targets: names, types and values."""
    digest = hashlib.sha256()
    if sparse.issparse(X):
        X = X.tocsr()
        parts = [np.array(X.shape), X.data, X.indices, X.indptr]
    else:
        frame = X.to_pandas() if hasattr(X, "to_pandas") else pd.DataFrame(X)
        columns = [(n, str(d), [*getattr(d, "categories", ())]) for n, d in frame.dtypes.items()]
        digest.update(repr([type(X).__name__, *columns]).encode())
        try:
            # uncategorised: categories would take True for 1
            rows = pd.util.hash_pandas_object(frame, index=False, categorize=False)
        except (TypeError, ValueError):  # values that have no hash
            rows = pd.util.hash_pandas_object(frame.map(repr), index=False)
        parts = [rows.to_numpy()]
    for array in (*parts, np.asarray(y)):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _split_digest(plan: ComparisonPlan) -> str:
    digest = hashlib.sha256()
    parts = [part for split in plan.splits for part in split]
    parts += [] if plan.groups is None else [plan.groups]  # networks stop early by groups
    for part in parts:
        digest.update(np.asarray(part, dtype=np.int64).tobytes() + b"|")
    return digest.hexdigest()


def _activation_digest(plan: ComparisonPlan) -> str:
    """Hash the activations; of those that are no names their modules and their classes' code."""
    digest = hashlib.sha256()
    for name, spec in plan.activations.items():
        if isinstance(spec, str):
            digest.update(f"{name}={spec}".encode())
            continue
        for width in sorted(set(plan.hidden)):
            module = make_activation(spec, width)
            digest.update(f"{name} {module!r}".encode())
            for part in module.modules():
                kind = type(part)
                digest.update(f"{kind.__module__}.{kind.__qualname__}".encode())
                try:
                    digest.update(inspect.getsource(kind).encode())
                except (OSError, TypeError):  # made without a file
                    continue
    return digest.hexdigest()


def _differing(path: Path, lines: list[bytes], expected: dict[str, Any]) -> str:
    try:
        head = json.loads(lines[0]) if lines else None
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("format") != _FORMAT:
        raise ComparisonError(
            f"{path} is not the checkpoint of a comparison; use another file, or remove it"
        )
    return ", ".join(
        _difference(name, head.get(name), value)
        for name, value in expected.items()
        if head.get(name) != value
    )


def _difference(name: str, was: Any, now: Any) -> str:
    if name == "table":
        return "other values or columns"
    if name == "activation code":
        return "other activations"
    if name == "folds' rows":
        return "other rows in the folds, or other groups"
    if name == "parameters":
        return "other parameters of the estimators"
    if isinstance(was, dict) and isinstance(now, dict):
        keys = [key for key in {**was, **now} if was.get(key) != now.get(key)]
        return ", ".join(_difference(key, was.get(key), now.get(key)) for key in keys)
    was, now = ("-".join(map(str, v)) if isinstance(v, list) else v for v in (was, now))
    return f"{name} {was} rather than {now}"


def _whole_lines(path: Path) -> list[bytes] | None:
    """The complete lines of a file; None if there is no file."""
    if not path.exists():
        return None
    return [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def _record_key(record: Record) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in _WHAT)


def _json_record(record: Record) -> Record:
    return {name: None if value != value else value for name, value in record.items()}


def _record_from_json(record: Record) -> Record:
    scores = {name: np.nan if value is None else value for name, value in record.items()}
    return scores | {"error": record.get("error")}
