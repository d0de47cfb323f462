"""Functions that MLflow requires of a flavour: save, log, load and predict."""

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
        A fitted estimator of combutab.
    path : str or path
        A folder that does not exist yet.
    **options
        Options of ``mlflow.pyfunc.save_model``: ``signature``, ``input_example``, ``metadata``, ...

    Raises
    ------
    ImportError
        If MLflow is not installed.
    ValueError
        If the estimator cannot be saved without code, such as one with a custom activation.

    Notes
    -----
    The folder holds the estimator in a safetensors file and MLflow's text files, and no pickle.
    With a signature, ``predict`` takes ``params={"method": "predict_proba"}`` for probabilities.
    """
    mlflow = _mlflow()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / _FILE
        model.save(file)
        mlflow.pyfunc.save_model(
            path=os.fspath(path), data_path=str(file), **_complete_options(mlflow, options)
        )


def log_model(model: Any, name: str, **options: Any) -> Any:
    """Log a fitted estimator to the active run, or to a new run.

    Parameters
    ----------
    model : estimator
        A fitted estimator of combutab.
    name : str
        Name of the model in the run.
    **options
        Options of ``mlflow.pyfunc.log_model``: ``signature``, ``registered_model_name``, ...

    Returns
    -------
    mlflow.models.model.ModelInfo
        Pass its ``model_uri`` to ``load_model``.

    Raises
    ------
    ImportError
        If MLflow is not installed.
    ValueError
        If ``save_model`` would raise it.
    """
    mlflow = _mlflow()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / _FILE
        model.save(file)
        return mlflow.pyfunc.log_model(
            name=name, data_path=str(file), **_complete_options(mlflow, options)
        )


def load_model(model_uri: str) -> Any:
    """Load an estimator that ``save_model`` or ``log_model`` wrote.

    Parameters
    ----------
    model_uri : str
        A folder, or a URI of MLflow such as ``runs:/.../name`` or ``models:/name/1``.

    Returns
    -------
    estimator

    Raises
    ------
    ImportError
        If MLflow is not installed.
    ValueError
        If it holds no estimator of combutab.
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


def _complete_options(mlflow: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Add the loader, the requirements and the parameters of ``predict`` to MLflow's options."""
    complete_options = {"loader_module": "combutab.mlflow", **options}
    if not {"pip_requirements", "extra_pip_requirements", "conda_env"} & set(options):
        complete_options["pip_requirements"] = [f"combutab=={__version__}"]
    signature = options.get("signature")
    if signature is not None and signature.params is None:
        schema = mlflow.types.schema
        method = schema.ParamSpec("method", schema.DataType.string, _METHODS[0])
        complete_options["signature"] = mlflow.models.ModelSignature(
            signature.inputs, signature.outputs, schema.ParamSchema([method])
        )
    return complete_options


class _ServedEstimator:
    """A fitted estimator with the ``predict`` that MLflow calls."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def predict(self, X: Any, params: dict[str, Any] | None = None) -> Any:
        """Predict with the method that ``params`` names, by default ``predict``."""
        method = (params or {}).get("method", _METHODS[0])
        if method not in _METHODS or not hasattr(self.estimator, method):
            methods = [name for name in _METHODS if hasattr(self.estimator, name)]
            raise ValueError(f"method must be one of {methods}, got {method!r}")
        predictions: np.ndarray = getattr(self.estimator, method)(X)
        return predictions


def _load_pyfunc(path: str) -> _ServedEstimator:
    """Load the saved file; MLflow calls this function."""
    return _ServedEstimator(load(path))
