"""The figures of what the units of networks do."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from torch import nn

from benchmarks.papers.layeract.figures import plot_activation_means, plot_fluctuation
from combutab.evaluation import activation_stats


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
    figure = plot_fluctuation(stats)
    noises = ["noise N(0, 0.5²)", "noise N(1, 0.5²)"]
    assert titles(figure) == [f"layer {layer}, {noise}" for layer in "13" for noise in noises]
    for mean, axes in zip((0.0, 1.0), figure.axes[2:], strict=True):
        for each, outline in zip(stats.values(), stairs(axes).values(), strict=True):
            samples = each.samples
            chosen = (samples["layer"] == "3") & (samples["noise_mean"] == mean)
            values = samples.loc[chosen, "fluctuation"]
            expected, _ = np.histogram(values, outline.edges, density=True)
            np.testing.assert_allclose(outline.values, expected)
