"""Two promises on predictions: other rows do not matter, and other processors hardly do."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from combutab import (
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    TabMClassifier,
    TabMRegressor,
)

TOLERANCE = 1e-5  # of probabilities, and of predictions in standard deviations of the target
SHORT = {
    "MLPClassifier": MLPClassifier(max_iter=4, random_state=0),
    "MLPRegressor": MLPRegressor(max_iter=4, random_state=0),
    "MLPRegressor with quantiles": MLPRegressor(loss="quantile", max_iter=4, random_state=0),
    "TabMClassifier": TabMClassifier(max_iter=3, n_iter_no_change=np.inf, random_state=0),
    "TabMRegressor": TabMRegressor(max_iter=3, n_iter_no_change=np.inf, random_state=0),
    "PackClassifier": PackClassifier(n_members=3, max_iter=4, random_state=0),
    "PackRegressor": PackRegressor(n_members=3, max_iter=4, random_state=0),
}

# Another processor is simulated by kernels without its vector instructions, and other threads.
OTHER_PROCESSOR = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "OMP_NUM_THREADS": "2",
}
PREDICT = """
import sys
import numpy as np, pandas as pd, torch
import combutab
folder = sys.argv[1]
torch.set_num_threads(2)
assert torch.backends.cpu.get_cpu_capability() == "DEFAULT"
X = pd.read_pickle(f"{folder}/X.pkl")
for name in sys.argv[2:]:
    model = combutab.load(f"{folder}/{name}.safetensors")
    proba = getattr(model, "predict_proba", model.predict)
    np.save(f"{folder}/{name}.npy", proba(X))
"""


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 4)), columns=list("abcd"))
    X["kind"] = rng.choice(["x", "y", "z"], 400)
    X["place"] = rng.choice([f"place {i}" for i in range(40)], 400)
    X["when"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, 400), "D")
    X.loc[::7, "a"] = np.nan
    return X, 100 + 10 * (X["b"] + (X["kind"] == "x") + 0.1 * rng.normal(size=400))


@pytest.fixture(scope="module")
def models(rows):
    X, y = rows
    labels = np.where(y > 100, "high", "low")
    return {
        name: model.fit(X, labels if name.endswith("Classifier") else y)
        for name, model in SHORT.items()
    }


def outputs(model, X):
    """Probabilities, or predictions in standard deviations of the target."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X)
    return model.predict(X) / 10


@pytest.mark.parametrize("name", list(SHORT))
def test_predictions_do_not_depend_on_other_rows(rows, models, name):
    X, _ = rows
    whole = outputs(models[name], X)
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = outputs(models[name], X.iloc[order])
    np.testing.assert_allclose(shuffled, whole[order], atol=TOLERANCE)
    for part in (slice(17, 18), slice(0, 3), slice(100, 140)):
        np.testing.assert_allclose(outputs(models[name], X[part]), whole[part], atol=TOLERANCE)


def test_files_predict_the_same_on_another_processor(rows, models, tmp_path):
    X, _ = rows
    X.to_pickle(tmp_path / "X.pkl")
    for name, model in models.items():
        model.save(tmp_path / f"{name}.safetensors")
    subprocess.run(
        [sys.executable, "-c", PREDICT, str(tmp_path), *models],
        env=os.environ | OTHER_PROCESSOR,
        check=True,
    )
    for name, model in models.items():
        scale = 1 if hasattr(model, "predict_proba") else 10
        there = np.load(tmp_path / f"{name}.npy") / scale
        np.testing.assert_allclose(there, outputs(model, X), atol=TOLERANCE, err_msg=name)
