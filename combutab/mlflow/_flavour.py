"""What MLflow asks of a flavour: to save, to log, to load, and to predict."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from combutab._model_files import load
from combutab._version import __version__

_FILE = "model.safetensors"
_METHODS = ("predict", "predict_proba")


def save_model(model: Any, path: str | os.PathLike[str], **options: Any) -> None:
    """Save a fitted estimator as a folder that ``mlflow.pyfunc.load_model`` loads.

    Parameters
    ----------
    model : estimator
        A fitted one of ours.
    path : str or path
        A folder, which is not there yet.
    **options
        As of ``mlflow.pyfunc.save_model``: ``signature``, ``input_example``, ``metadata``, ...

    Raises
    ------
    ImportError
        If MLflow is not installed.
    ValueError
        If the estimator cannot be saved without code (a custom activation, say).

    Notes
    -----
    The folder holds the estimator's own file (safetensors) and MLflow's text, and no pickle. With
    a signature, ``predict`` takes ``params={"method": "predict_proba"}`` for probabilities.
    """
    mlflow = _mlflow()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / _FILE
        model.save(file)
        mlflow.pyfunc.save_model(
            path=os.fspath(path), data_path=str(file), **_made(mlflow, options)
        )


def log_model(model: Any, name: str, **options: Any) -> Any:
    """Log a fitted estimator to the active run, or a new one.

    Parameters
    ----------
    model : estimator
        A fitted one of ours.
    name : str
        Of the model in the run.
    **options
        As of ``mlflow.pyfunc.log_model``: ``signature``, ``registered_model_name``, ...

    Returns
    -------
    mlflow.models.model.ModelInfo
        Its ``model_uri`` is what ``load_model`` takes.

    Raises
    ------
    ImportError
        If MLflow is not installed.
    ValueError
        As of ``save_model``.
    """
    mlflow = _mlflow()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / _FILE
        model.save(file)
        return mlflow.pyfunc.log_model(name=name, data_path=str(file), **_made(mlflow, options))


def load_model(model_uri: str) -> Any:
    """Load the estimator itself from what ``save_model`` or ``log_model`` wrote.

    Parameters
    ----------
    model_uri : str
        A folder, or a URI of MLflow's such as ``runs:/.../name`` or ``models:/name/1``.

    Returns
    -------
    estimator

    Raises
    ------
    ImportError
        If MLflow is not installed.
    ValueError
        If it holds no estimator of ours.
    """
    mlflow = _mlflow()
    folder = Path(mlflow.artifacts.download_artifacts(model_uri))
    files = sorted(folder.rglob(_FILE))
    if len(files) != 1:
        raise ValueError(f"{model_uri} holds no model of combutab.mlflow: no {_FILE} is in it")
    return load(files[0])


def _mlflow() -> Any:
    try:
        import mlflow
        import mlflow.pyfunc
    except ImportError as error:
        raise ImportError("combutab.mlflow needs MLflow: pip install mlflow") from error
    return mlflow


def _made(mlflow: Any, options: dict[str, Any]) -> dict[str, Any]:
    """What else MLflow is told: who loads the file, what it needs, and what predict takes."""
    made = {"loader_module": "combutab.mlflow", **options}
    if not {"pip_requirements", "extra_pip_requirements", "conda_env"} & set(options):
        made["pip_requirements"] = [f"combutab=={__version__}"]
    signature = options.get("signature")
    if signature is not None and signature.params is None:
        schema = mlflow.types.schema
        method = schema.ParamSpec("method", schema.DataType.string, _METHODS[0])
        made["signature"] = mlflow.models.ModelSignature(
            signature.inputs, signature.outputs, schema.ParamSchema([method])
        )
    return made


class _Served:
    """A fitted estimator as MLflow asks it."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def predict(self, X: Any, params: dict[str, Any] | None = None) -> Any:
        """Predictions, or what another method gives that ``params`` names."""
        method = (params or {}).get("method", _METHODS[0])
        if method not in _METHODS or not hasattr(self.estimator, method):
            known = [name for name in _METHODS if hasattr(self.estimator, name)]
            raise ValueError(f"method must be one of {known}, got {method!r}")
        answer: np.ndarray = getattr(self.estimator, method)(X)
        return answer


def _load_pyfunc(path: str) -> _Served:
    """What MLflow calls with the file that was saved."""
    return _Served(load(path))
