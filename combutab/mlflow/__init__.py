"""An MLflow flavour: fitted estimators saved, logged and served, without pickles."""

from combutab.mlflow._flavour import _load_pyfunc as _load_pyfunc
from combutab.mlflow._flavour import load_model, log_model, save_model

__all__ = ["load_model", "log_model", "save_model"]
