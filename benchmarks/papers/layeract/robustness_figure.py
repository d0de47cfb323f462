"""The figure of `layeract_robustness.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.papers.layeract.robustness_numbers import LAYER_LEVEL, MEAN, SCORES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NORMS = {"batch": "batch norm", "layer": "layer norm", "none": "no normalisation"}
_LOOKS = {  # Okabe and Ito's colours; markers say it again
    "batch": ("#0072B2", "o"),
    "layer": ("#D55E00", "s"),
    "none": ("#009E73", "^"),
}


def plot_differences(tests: pd.DataFrame) -> Figure:
    """Differences over the mean of the sets with intervals; panels: function x score."""
    from matplotlib.figure import Figure

    pooled = tests[tests["data"] == MEAN]
    others = list(dict.fromkeys(pooled["other"]))
    figure = Figure(figsize=(9.0, 1.6 + 0.66 * len(others)), layout="constrained")
    grid = figure.subplots(2, 2, sharey=True, sharex="col")
    norms = list(dict.fromkeys(pooled["normalization"]))
    handles = []
    for (i, name), (j, score) in (
        (a, b) for a in enumerate(LAYER_LEVEL) for b in enumerate(SCORES[:2])
    ):
        axes = grid[i, j]
        axes.axvline(0, color="0.7", linewidth=0.8)
        handles = []
        for k, norm in enumerate(norms):
            own = pooled[
                (pooled["activation"] == name)
                & (pooled["score"] == score)
                & (pooled["normalization"] == norm)
            ].set_index("other")
            own = own.reindex(others)
            color, marker = _LOOKS[norm]
            sides = np.abs(own[["low", "high"]].to_numpy().T - own["difference"].to_numpy())
            handles.append(
                axes.errorbar(
                    own["difference"],
                    np.arange(len(others)) + 0.22 * (k - 1),
                    xerr=sides,
                    fmt=marker,
                    color=color,
                    markersize=4.5,
                    linewidth=1.1,
                    label=NORMS[norm],
                )
            )
        axes.set_title(f"{name}, {score}", loc="left", fontsize=10)
        axes.set_yticks(range(len(others)), others, fontsize=9)
        axes.set_ylim(len(others) - 0.5, -0.5)
        axes.grid(axis="y", color="0.93", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("points of accuracy over the activation named at the left", fontsize=10)
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure
