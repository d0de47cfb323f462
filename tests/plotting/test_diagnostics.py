"""The figures of what networks do, and of tables that have gone wrong."""

import pickle

import numpy as np
import pandas as pd
import pytest

from combutab.evaluation import Robustness
from combutab.plotting import plot_power, plot_robustness


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes]


def legend(figure):
    return [text.get_text() for each in figure.legends for text in each.get_texts()]


def test_power_plot_stacks_shares():
    power = pd.DataFrame(
        {
            "member": 0,
            "depth": [1, 2],
            "layer": ["a", "b"],
            "P": [2.0, 4.0],
            "P1": [1.0, 4.0],
            "P2": [0.5, 0.0],
            "P3": [0.25, 0.0],
            "P4": [0.25, 0.0],
        }
    )
    figure = plot_power({"LN": power, "$BN_": power})
    assert titles(figure) == ["LN", "$BN_"]
    assert [label[:2] for label in legend(figure)] == ["P1", "P2", "P3", "P4"]
    bars = [(bar.get_x(), bar.get_y(), bar.get_height()) for bar in figure.axes[0].patches]
    np.testing.assert_allclose(
        bars,
        [
            *[(0.5, 0, 0.5), (1.5, 0, 1)],
            *[(0.5, 0.5, 0.25), (1.5, 1, 0)],
            *[(0.5, 0.75, 0.125), (1.5, 1, 0)],
            *[(0.5, 0.875, 0.125), (1.5, 1, 0)],
        ],
    )


@pytest.fixture
def result():
    rows = [
        (name, corruption, severity, 0.9 - 0.01 * i - 0.02 * severity - 0.05 * j * (severity > 0))
        for i, name in enumerate(["relu", "la_$silu"])
        for j, corruption in enumerate(["clean", "shift", "missing"])
        for severity in ([0] if corruption == "clean" else [1, 3])
    ]
    scores = pd.DataFrame(rows, columns=["estimator", "corruption", "severity", "score"])
    return Robustness(scores, pd.DataFrame({"estimator": ["relu", "la_$silu"]}), "r2")


def test_robustness_by_severity_and_by_corruption(result):
    figure = plot_robustness(result)
    left, right = figure.axes
    assert legend(figure) == ["relu", "la_$silu"]
    first, second = left.lines
    assert first.get_xdata().tolist() == [0, 1, 3]
    # severity 1: shift 0.83, missing 0.78
    assert first.get_ydata().tolist() == pytest.approx([0.9, 0.805, 0.765])
    assert second.get_ydata().tolist() == pytest.approx([0.89, 0.795, 0.755])
    assert [label.get_text() for label in right.get_yticklabels()] == ["shift", "missing"]
    dots, clean, *_ = right.lines
    assert dots.get_xdata().tolist() == pytest.approx([0.81, 0.76])
    assert clean.get_xdata() == [0.9, 0.9]
    assert left.get_ylabel() == "r2"


def test_a_notebook_shows_the_figure(result):
    figure = plot_robustness(result)
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert pickle.loads(pickle.dumps(figure)).axes  # as any figure of matplotlib


def test_nothing_to_draw():
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_power({})
