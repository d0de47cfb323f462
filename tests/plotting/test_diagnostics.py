"""The figures of what networks do, and of tables that have gone wrong."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex
from torch import nn

from combutab.evaluation import (
    Robustness,
    activation_stats,
)
from combutab.plotting import (
    plot_activation_means,
    plot_fluctuation,
    plot_power,
    plot_robustness,
)


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes]


def legend(figure):
    return [text.get_text() for each in figure.legends for text in each.get_texts()]


def stats_of(activation, seed=0, layers=2):
    torch.manual_seed(seed)
    parts = [part for _ in range(layers) for part in (nn.Linear(5, 5), activation())]
    return activation_stats(nn.Sequential(*parts), torch.randn(50, 5))


NAMES = ["relu", "tanh", "silu", "elu", "gelu", "mish", "selu", "softplus", "$x_1$"]
KINDS = [nn.ReLU, nn.Tanh, nn.SiLU, nn.ELU, nn.GELU, nn.Mish, nn.SELU, nn.Softplus, nn.CELU]


@pytest.fixture(scope="module")
def stats():
    return {name: stats_of(kind) for name, kind in zip(NAMES, KINDS, strict=True)}


def stairs(axes):
    """Heights and edges of the outlines, by colour and line style."""
    return {
        (to_hex(patch.get_edgecolor()), patch.get_linestyle()): patch.get_data()
        for patch in axes.patches
    }


def test_densities_of_means(stats):
    figure = plot_activation_means(stats)
    assert titles(figure) == ["layer 1", "layer 3"]
    assert legend(figure) == NAMES
    for layer, axes in zip("13", figure.axes, strict=True):
        drawn = stairs(axes)
        assert len(drawn) == len(NAMES)  # told apart by colour or style
        for each, outline in zip(stats.values(), drawn.values(), strict=True):
            means = each.units.loc[each.units["layer"] == layer, "mean"]
            expected, _ = np.histogram(means, outline.edges, density=True)
            np.testing.assert_allclose(outline.values, expected)
            assert (np.diff(outline.edges) @ outline.values) == pytest.approx(1.0)


def test_densities_of_fluctuations(stats):
    figure = plot_fluctuation(stats, layers=["3"])
    assert titles(figure) == ["layer 3, noise N(0, 0.5²)", "layer 3, noise N(1, 0.5²)"]
    for mean, axes in zip((0.0, 1.0), figure.axes, strict=True):
        for each, outline in zip(stats.values(), stairs(axes).values(), strict=True):
            samples = each.samples
            chosen = (samples["layer"] == "3") & (samples["noise_mean"] == mean)
            values = samples.loc[chosen, "fluctuation"]
            expected, _ = np.histogram(values, outline.edges, density=True)
            np.testing.assert_allclose(outline.values, expected)


def test_one_model_needs_no_legend_and_models_may_lack_layers(stats):
    assert legend(plot_activation_means(stats["relu"])) == []
    shallow = {"deep": stats["relu"], "shallow": stats_of(nn.ReLU, layers=1)}
    figure = plot_activation_means(shallow)
    assert [len(axes.patches) for axes in figure.axes] == [2, 1]


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


def test_errors(stats):
    with pytest.raises(ValueError, match="no model has a layer '2'; there are 1, 3"):
        plot_activation_means(stats, layers=["1", "2"])
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_power({})
    quiet = activation_stats(nn.ReLU(), torch.zeros(3, 2), noises=[])
    with pytest.raises(ValueError, match=r"no noise.*noises="):
        plot_fluctuation(quiet)
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_fluctuation({})
