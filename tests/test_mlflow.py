"""The MLflow flavour: what is logged is loaded and served, and holds no pickle."""

import sys

import numpy as np
import pandas as pd
import pytest

import combutab.mlflow
from combutab import MLPClassifier


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match="pip install mlflow"):
        combutab.mlflow.save_model(None, "folder")


def test_log_load_and_predict_with_a_signature(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.chdir(tmp_path)
    X = pd.DataFrame({"size": np.arange(40.0), "kind": ["a", "b"] * 20})
    y = np.where(X["size"] > 20, "big", "small")
    clf = MLPClassifier((4,), max_iter=2, n_iter_no_change=np.inf, random_state=0).fit(X, y)
    signature = mlflow.models.infer_signature(X, clf.predict(X))
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    with mlflow.start_run():
        info = combutab.mlflow.log_model(clf, "clf", signature=signature)
    served = mlflow.pyfunc.load_model(info.model_uri)
    np.testing.assert_array_equal(served.predict(X), clf.predict(X))
    probabilities = served.predict(X, params={"method": "predict_proba"})
    np.testing.assert_array_equal(probabilities, clf.predict_proba(X))
    with pytest.raises(ValueError, match="method"):
        served.predict(X, params={"method": "fit"})
    with pytest.raises(mlflow.exceptions.MlflowException, match="size"):
        served.predict(X[["kind"]])
    again = combutab.mlflow.load_model(info.model_uri)
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    combutab.mlflow.save_model(clf, tmp_path / "saved")
    files = [path.name for path in (tmp_path / "saved").rglob("*") if path.is_file()]
    assert "model.safetensors" in files
    assert not [name for name in files if name.endswith((".pkl", ".pickle", ".pt", ".joblib"))]
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="holds no model"):
        combutab.mlflow.load_model(str(tmp_path / "none"))
