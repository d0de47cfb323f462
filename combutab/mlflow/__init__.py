"""MLflow flavor: log, load and serve fitted estimators without pickles."""

from combutab.mlflow._flavour import _load_pyfunc as _load_pyfunc
from combutab.mlflow._flavour import load_model, log_model, save_model

__all__ = ["load_model", "log_model", "save_model"]
