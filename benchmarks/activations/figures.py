"""Pictures of effects and of shares of variance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from benchmarks.activations.effects import Effect
from benchmarks.common.looks import label
from combutab.evaluation import Interval

# Okabe and Ito's, distinct also to the colour-blind
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
_WIDE = (0.001, 0.01, 0.03, 0.1, 0.25, 0.5, 1, 2, 4, 10, 30, 100, 1000)
_MIDDLE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3)
_NARROW = (0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2, 1.25)
_FACTORS = {1.6: _NARROW, 4.0: _MIDDLE}  # between the ends of a picture, at most


def plot_effects(
    activations: Mapping[str, Mapping[str, Effect]],
    parts: Mapping[str, Effect],
    splits: Mapping[str, float] | None = None,
    *,
    reference: str = "CombU's",
) -> Figure:
    """Draw ratios of errors with their intervals: of activations by sample, then of parts.

    ``splits``: by sample, the factor by which errors differ from split to split; a grey band shows
    the largest.
    """
    names = list(dict.fromkeys(name for own in activations.values() for name in own))
    figure = Figure(figsize=(8.0, 1.4 + 0.34 * (len(names) + len(parts))), layout="constrained")
    axes = figure.subplots()
    step = 0.7 / max(1, len(activations))
    for i, (sample, own) in enumerate(activations.items()):
        y = [-names.index(name) - step * (i - (len(activations) - 1) / 2) for name in own]
        _draw(axes, list(own.values()), y, sample, i)
    if parts:
        y = [-len(names) - 0.3 - j for j in range(len(parts))]
        _draw(axes, list(parts.values()), y, "the default recipe, changed", len(activations))
    ticks = [*(-i for i in range(len(names))), *(-len(names) - 0.3 - j for j in range(len(parts)))]
    axes.set_yticks(ticks, [*map(label, names), *parts])
    if splits:
        widest = max(splits.values())
        words = f"± one standard deviation of splits, OpenML (x {widest:.2f})"
        axes.axvspan(1 / widest, widest, color="0.92", zorder=0, label=words)
    axes.axvline(1.0, color="0.4", linewidth=0.8)
    axes.set(xscale="log", xlabel=f"error over {reference} (mean over tables, 95 % interval)")
    low, high = axes.get_xlim()
    places = next((some for most, some in _FACTORS.items() if high / low <= most), _WIDE)
    axes.set_xticks([tick for tick in places if low <= tick <= high])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def _draw(axes: object, found: list[Effect], y: list[float], name: str, i: int) -> None:
    means = np.array([effect.ratio.mean for effect in found])
    ends = np.array([[e.ratio.low, e.ratio.high] for e in found]).T
    axes.errorbar(
        means, y, xerr=np.abs(ends - means), fmt=_MARKERS[i % 7], color=_COLOURS[i % 7],
        markersize=4, linewidth=1.0, label=name,
    )  # fmt: skip


def plot_shares(shares: Mapping[str, Mapping[str, Interval]]) -> Figure:
    """Draw shares of variance as bars, one a sample."""
    figure = Figure(figsize=(8.0, 1.3 + 0.45 * len(shares)), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(name for own in shares.values() for name in own))
    left = np.zeros(len(shares))
    for name, colour in zip(names, ("#D55E00", "#0072B2", "#E69F00", "0.8"), strict=False):
        width = np.array([own[name].mean for own in shares.values()])
        axes.barh(list(shares), width, left=left, color=colour, label=name, height=0.6)
        for i, part in enumerate(width):
            if part > 0.04:
                centre = {"ha": "center", "va": "center", "fontsize": 8}
                axes.text(left[i] + part / 2, i, f"{part:.0%}", **centre)
        left += width
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="share of the variance of the log error within a table")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure
