"""plot_comparison: what the figure shows, and what it leaves alone."""

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from combutab.evaluation import compare_with_best
from combutab.model_selection import METRICS, ActivationComparison
from combutab.plotting import plot_comparison

SCORES = {
    "relu": [0.80, 0.82, 0.81, 0.79],
    "combu": [0.90, 0.91, 0.92, 0.89],
    "elu": [0.9, 0.905, 0.91, 0.88],
}


@pytest.fixture(params=["accuracy", "mae"])
def comparison(request):
    metric = request.param
    task = "classification" if metric == "accuracy" else "regression"
    results = pd.DataFrame(
        [
            {"activation": name, "fold": fold, "seed": seed, metric: score + 0.001 * seed}
            for name, scores in SCORES.items()
            for fold, score in enumerate(scores)
            for seed in (-1, 1)
        ]
    )
    summary = compare_with_best(
        results, score=metric, n_train=75, n_test=25, greater_is_better=metric == "accuracy"
    )
    settings = {"seeds": 2, "folds": 4, "epochs": 3}
    return ActivationComparison(
        "price_$ of $x", task, metric, results, summary, "", summary.iloc[0, 0], None, settings
    )


def marks(axes):
    """Marker, x and y of every mean, from the top row down."""
    lines = [line for line in axes.lines if line.get_marker() in ("o", "D")]
    return [
        SimpleNamespace(marker=line.get_marker(), x=line.get_xdata()[0], y=line.get_ydata()[0])
        for line in lines
    ]


def test_every_activation_has_its_mean_interval_and_folds(comparison):
    (axes,) = plot_comparison(comparison).axes
    summary = comparison.summary
    assert [label.get_text() for label in axes.get_yticklabels()] == summary["activation"].tolist()
    assert axes.yaxis_inverted()  # the best on top
    assert [mark.x for mark in marks(axes)] == summary["mean"].tolist()
    assert [mark.y for mark in marks(axes)] == [0, 1, 2]
    dots = [c for c in axes.collections if len(c.get_offsets()) == 4]
    for name, collection in zip(summary["activation"], dots, strict=True):
        np.testing.assert_allclose(collection.get_offsets()[:, 0], SCORES[name])
    bars = [path.vertices[:, 0] for c in axes.collections for path in c.get_paths()]
    bars = [bar for bar in bars if len(bar) == 2]
    np.testing.assert_allclose(bars, summary[["low", "high"]])


def test_the_verdict_is_told_by_shape_as_well_as_colour(comparison):
    (axes,) = plot_comparison(comparison).axes
    apart = comparison.summary["distinguishable"].tolist()
    assert {True, False} == set(apart)
    assert [mark.marker == "D" for mark in marks(axes)] == apart


def test_labels(comparison):
    figure = plot_comparison(comparison)
    (axes,) = figure.axes
    assert axes.get_xlabel() == METRICS[comparison.task][comparison.metric].description
    assert axes.get_ylabel() == "activation"
    assert axes.get_title(loc="left") == "price_$ of $x: 4 folds x 2 seeds, 3 epochs"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["not told apart from the best", "told apart (p < 0.05)", "one fold"]


def test_the_picture_is_written_and_nothing_is_cut_off(comparison, tmp_path):
    figure = plot_comparison(comparison)
    figure.savefig(tmp_path / "plot.png", dpi=50)
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    inside = figure.get_tightbbox().get_points() * figure.dpi
    assert (inside >= 0).all()
    assert (inside <= figure.bbox.get_points()[1]).all()


def test_pyplot_is_left_alone(comparison):
    loaded = "matplotlib.pyplot" in sys.modules
    plot_comparison(comparison)
    assert ("matplotlib.pyplot" in sys.modules) == loaded
    if loaded:
        assert not sys.modules["matplotlib.pyplot"].get_fignums()
