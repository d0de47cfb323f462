"""The reports that the site shows, made at each build."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from combutab import CTGAN
from combutab.model_selection import ActivationComparison, compare_activations
from combutab.reports import SyntheticEvaluation, evaluate_synthetic, write_report

ALIKE = {"seeds": 2, "folds": 5, "refit": False, "n_jobs": 1}  # of both comparisons
# Of examples/synthetic_table.py, which is run for the gallery
BY_EXAMPLES = ("synthetic_table",)


def comparison() -> ActivationComparison:
    """Activations on scikit-learn's breast cancer table: hardly any difference."""
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return compare_activations(
        X,
        y,
        activations=["relu", "gelu", "sigmoid", "combu", "pln-8"],
        epochs=100,
        hidden=(64, 64),
        name="breast cancer",
        **ALIKE,
    )


def real_difference() -> ActivationComparison:
    """Activations on a product of two columns, which not all of them learn so fast."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(-1, 1, (900, 3)), columns=["heat", "time", "load"])
    curved = 3 * table["heat"] * table["time"] + table["load"] ** 2
    return compare_activations(
        table,
        curved + rng.normal(0, 0.2, len(table)),
        activations=["gelu", "la-silu", "sigmoid", "identity"],
        epochs=25,
        hidden=(32, 32),
        name="hardness",
        **ALIKE,
    )


def tumours() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to learn from and rows held out, of five columns of the breast cancer table."""
    data = load_breast_cancer(as_frame=True)
    diagnosis = data.target.map(dict(enumerate(data.target_names)))
    table = data.data.filter(like="mean").iloc[:, :5].assign(diagnosis=diagnosis)
    train, held_out = train_test_split(table, test_size=0.4, random_state=0)
    return train, held_out


def judged(synthetic: pd.DataFrame, name: str) -> SyntheticEvaluation:
    train, held_out = tumours()
    return evaluate_synthetic(
        real_train=train,
        real_test=held_out,
        synthetic=synthetic,
        target="diagnosis",
        learners=["linear", "decision_tree"],
        names={"synthetic": name, "real": "tumours.csv", "test": "held_out.csv"},
    )


def copied() -> SyntheticEvaluation:
    """The rows learned from, in another order: a generator that knows them by heart."""
    return judged(tumours()[0].sample(frac=1.0, random_state=0), "copied.csv")


def poor() -> SyntheticEvaluation:
    """Rows of a generator that was trained for moments."""
    train = tumours()[0]
    generator = CTGAN(epochs=3, batch_size=100, random_state=0).fit(train)
    return judged(generator.sample(len(train), random_state=0), "hurried.csv")


REPORTS = {each.__name__: each for each in (comparison, real_difference, copied, poor)}
"""Name of a page in the site's reports/ -> what makes its record."""


def write(docs: Path) -> None:
    """Make the reports of the site."""
    pages = docs / "made" / "extra" / "reports"
    pages.mkdir(parents=True, exist_ok=True)
    for name, make in REPORTS.items():
        write_report(make(), pages / f"{name}.html")
