"""The figures: what they show, and what they leave alone."""

import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB
from torch import nn

from combutab import MLPClassifier, PackClassifier
from combutab.evaluation import (
    activation_stats,
    compare_with_best,
    nemenyi,
    power_decomposition,
    robustness,
)
from combutab.model_selection import ActivationComparison
from combutab.plotting import (
    ActivationComparisonDisplay,
    plot_comparison,
    plot_critical_difference,
    plot_loss_curve,
    plot_pack,
    plot_power,
    plot_robustness,
)

SCORES = {
    "relu": [0.80, 0.82, 0.81, 0.79],
    "combu": [0.90, 0.91, 0.92, 0.89],
    "elu": [0.9, 0.905, 0.91, 0.88],
}


@pytest.fixture(params=["accuracy", "mae"])
def comparison(request):
    return compared(request.param)


def compared(metric):
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
    apart = summary["distinguishable"].tolist()
    assert {True, False} == set(apart)
    assert [mark.marker == "D" for mark in marks(axes)] == apart  # by shape as well as colour
    dots = [c for c in axes.collections if len(c.get_offsets()) == 4]
    for name, collection in zip(summary["activation"], dots, strict=True):
        np.testing.assert_allclose(collection.get_offsets()[:, 0], SCORES[name])
    bars = [path.vertices[:, 0] for c in axes.collections for path in c.get_paths()]
    bars = [bar for bar in bars if len(bar) == 2]
    np.testing.assert_allclose(bars, summary[["low", "high"]])


# --- critical-difference diagram --------------------------------------------------------------

SEVEN = ["relu", "elu", "nlrelu", "combu", "gelu", "selu", "swish"]
FOURTEEN = [
    *SEVEN,
    *("pln-4", "pln-8", "pls-2", "la-silu", "la-hardsilu", "relu+ln+proxy", "combu+ln+proxy"),
]
LONG = [f"layer norm, ProxyNorm and ${name}_{i}$" for i, name in enumerate(FOURTEEN)]


def ranked(*rows, names="abcdefgh"):
    """Scores of which the ranks are the given ones, the best being 1."""
    columns = pd.Index(list(names[: len(rows[0])]), name="activation")
    return pd.DataFrame([[10.0 - rank for rank in row] for row in rows], columns=columns)


def drawn(names, effect=0.3, n=12):
    scores = np.random.default_rng(0).normal(size=(n, len(names))) - effect * np.arange(len(names))
    return nemenyi(pd.DataFrame(scores, columns=names))


def labels(axes):
    return [text.get_text() for text in axes.texts if "critical" not in text.get_text()]


def bars(axes):
    """Left end, right end and row of each bar."""
    found = [path.vertices for c in axes.collections for path in c.get_paths()]
    return [(line[0, 0], line[1, 0], line[0, 1]) for line in found]


def overlap(boxes):
    return [(a, b) for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)]


def test_diagram_shows_ranks_groups_and_the_critical_difference():
    # a 7/6, b 11/6, c 3, d 4; three from the next but one at a critical difference of 1.91
    result = nemenyi(ranked(*[[1, 2, 3, 4]] * 5, [2, 1, 3, 4]))
    assert result.cliques == (("a", "b", "c"), ("c", "d"))
    (axes,) = plot_critical_difference(result).axes
    assert labels(axes) == ["a (1.17)", "b (1.83)", "c (3.00)", "d (4.00)"]
    points = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert points == pytest.approx([7 / 6, 11 / 6, 3, 4])
    (left, right, row), (next_left, next_right, next_row) = bars(axes)
    assert (left, right) == pytest.approx((7 / 6, 3), abs=0.05)
    assert (next_left, next_right) == pytest.approx((3, 4), abs=0.05)
    assert next_row > row  # they meet at c
    (bracket,) = [line.get_xdata() for line in axes.lines if line.get_marker() == "|"]
    assert bracket[1] - bracket[0] == pytest.approx(2.569 * np.sqrt(20 / 36), rel=1e-3)
    assert "critical difference 1.91" in [text.get_text() for text in axes.texts]
    assert axes.get_xticks().tolist() == [1, 2, 3, 4]
    assert not axes.xaxis_inverted()  # the best on the left


DIAGRAMS = {
    "seven": lambda: drawn(SEVEN),
    "fourteen": lambda: drawn(FOURTEEN),
    "long": lambda: drawn(LONG),
    "many bars": lambda: drawn(FOURTEEN, effect=2, n=40),
    "wide bracket": lambda: drawn(SEVEN[:3], n=2),
    "no effect": lambda: drawn(FOURTEEN, effect=0),
    "all tied": lambda: nemenyi(ranked(*[[1] * 8] * 3)),
}


@pytest.mark.parametrize("name", DIAGRAMS)
def test_nothing_in_a_diagram_overlaps(name):
    result = DIAGRAMS[name]()
    figure = plot_critical_difference(result)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    texts = [*axes.texts, *axes.get_xticklabels(), figure._suptitle, *figure.legends]
    assert len(texts) >= 2 * len(result.mean_ranks) + 2
    boxes = [text.get_window_extent() for text in texts]
    assert not overlap(boxes)
    (bracket,) = [line for line in axes.lines if line.get_marker() == "|"]
    assert bracket.get_xdata()[1] < axes.get_xlim()[1]
    lowest_bar = max((row for *_, row in bars(axes)), default=0)
    assert all(text.xy[1] > lowest_bar for text in axes.texts if hasattr(text, "xy"))


def test_a_display_draws_in_the_users_axes(comparison):
    left, right = Figure(layout="constrained").subplots(1, 2)
    display = ActivationComparisonDisplay.from_results(comparison, ax=right)
    assert display.ax_ is right
    assert [mark.x for mark in marks(right)] == comparison.summary["mean"].tolist()
    assert len(right.get_legend().get_texts()) == 3
    assert not left.lines
    with pytest.raises(ValueError, match="ax must"):
        ActivationComparisonDisplay.from_results(comparison, ax=1)


# ---- every figure ----------------------------------------------------------------------------


X, Y = load_iris(return_X_y=True)
SMALL = {"max_iter": 3, "random_state": 0}


def stats():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    collapsed = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    nn.init.constant_(collapsed[0].weight, 0.0)
    nn.init.constant_(collapsed[0].bias, -5.0)
    models = {"$x_1": net, "collapsed": collapsed}
    return {name: activation_stats(each, torch.randn(9, 4)) for name, each in models.items()}


def powers():
    net = nn.Sequential(*[nn.LayerNorm(4) for _ in range(30)])
    return {"$a": power_decomposition(net, torch.randn(9, 4))}


def damaged():
    models = {"$x_": GaussianNB().fit(X, Y), "linear": GaussianNB(var_smoothing=0.1).fit(X, Y)}
    return robustness(models, X, Y, corruptions=["shift"], severities=[1, 3])


def trained():
    net = MLPClassifier(**SMALL, n_members=2, early_stopping=True).fit(X, Y)
    return {"$x_1": net, "b": net}


FIGURES = {
    "comparison": lambda: plot_comparison(compared("accuracy")),
    "critical difference": lambda: plot_critical_difference(DIAGRAMS["fourteen"]()),
    "power": lambda: plot_power(powers()),
    "robustness": lambda: plot_robustness(damaged()),
    "loss curve": lambda: plot_loss_curve(trained()),
    "pack": lambda: plot_pack(PackClassifier(n_members=3, **SMALL).fit(X, Y)),
}


def pyplot_figures():
    """The figures that pyplot has open; None while it is not loaded."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    return pyplot and pyplot.get_fignums()


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("name", FIGURES)
def test_figures_fit_and_leave_pyplot_alone(name, tmp_path):
    before = pyplot_figures()
    figure = FIGURES[name]()
    figure.savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert pyplot_figures() == before
    inside = figure.get_tightbbox().get_points() * figure.dpi
    assert (inside >= 0).all()
    assert (inside <= figure.bbox.get_points()[1]).all()
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    boxes += [each.get_window_extent() for each in figure.legends]
    boxes += [each.get_window_extent() for each in (figure._supxlabel, figure._supylabel) if each]
    assert not overlap(boxes)
