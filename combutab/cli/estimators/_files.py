"""Files of estimators, which know the target and the forms of its table too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from combutab._model_files import load, read_model, write_model
from combutab.cli._model_header import model_header
from combutab.cli.tables._forms import FileFormat
from combutab.estimators import (
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    TabMClassifier,
    TabMRegressor,
)

KINDS: dict[str, dict[str, Any]] = {
    "mlp": {"classification": MLPClassifier, "regression": MLPRegressor},
    "pack": {"classification": PackClassifier, "regression": PackRegressor},
    "tabm": {"classification": TabMClassifier, "regression": TabMRegressor},
}
_FORMS, _TARGET = "forms", "target"  # of the header of a model's file


def save_estimator(estimator: Any, forms: FileFormat, target: str, path: Path) -> None:
    """Write an estimator's file that knows the forms and the target too."""
    estimator.save(path)
    header, arrays = read_model(path)
    write_model(path, {**header, _FORMS: forms.to_json(), _TARGET: target}, arrays)


def load_estimator(path: Path, device: str) -> tuple[Any, FileFormat, str | None]:
    """Read an estimator's file, and the forms and the target if it knows them.

    Raises UserError if it holds none.
    """
    names = {each.__name__ for kinds in KINDS.values() for each in kinds.values()}
    with model_header(path, names, "predicts nothing", "combutab fit") as header:
        estimator = load(path, device=device)
        forms = FileFormat.from_json(header[_FORMS]) if _FORMS in header else FileFormat()
        target = header.get(_TARGET)
        if not (target is None or isinstance(target, str)):
            raise TypeError(f"the target is {target!r:.50}")
    return estimator, forms, target
