"""The report, the comparison and its picture that the site shows, made anew at each build."""

from __future__ import annotations

from pathlib import Path

from sklearn.datasets import load_breast_cancer

from combutab.model_selection import compare_activations
from combutab.plotting import plot_comparison
from combutab.reports import write_report


def write(docs: Path) -> None:
    """Compare activations on scikit-learn's breast cancer table; keep the page and the picture."""
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    found = compare_activations(
        X,
        y,
        activations=["relu", "gelu", "sigmoid", "combu", "pln-8"],
        seeds=2,
        folds=5,
        epochs=100,
        hidden=(64, 64),
        refit=False,
        n_jobs=1,
        name="breast cancer",
    )
    pages = docs / "made" / "extra" / "reports"
    pages.mkdir(parents=True, exist_ok=True)
    write_report(found, pages / "comparison.html")
    plot_comparison(found).savefig(docs / "made" / "comparison.png", dpi=110)
