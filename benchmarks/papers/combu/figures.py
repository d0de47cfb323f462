"""Figures of a study's report: radar plots and training curves, after the CombU paper's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common.looks import Line, Look, plot
from benchmarks.common.page import Page
from benchmarks.papers.combu.expected import ACTIVATIONS, METRICS
from benchmarks.papers.combu.report_numbers import scores_by_data
from benchmarks.papers.combu.report_text import activation_label

# Okabe and Ito's colours, which the colour-blind can distinguish, three of Tol's and a grey, for
# more than the paper's seven; markers and dashes say it again
_COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00")
_COLOURS += ("#882255", "#999933", "#332288", "#7F7F7F")
_MARKERS = "os^vPXDh<>*pd8"
_DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), "-")


# by the file's suffix, the paper's figure: its number, and where our curves are
CURVES = {
    "loss_reg": ("Figure 3", "loss_curve", "regression", "MSE"),
    "error_reg": ("Figure 4", "metric_curve", "regression", "absolute error"),
    "loss_clf": ("Figure 5 (captioned as an error)", "loss_curve", "classification", "log loss"),
    "accuracy_clf": ("Figure 6", "metric_curve", "classification", "accuracy"),
}


def styles(activations: Iterable[str]) -> dict[str, Look]:
    """Colour, marker and dashes of each activation; the paper's seven always have the same."""
    names = enumerate(dict.fromkeys([*ACTIVATIONS, *activations]))
    return {name: (_COLOURS[i % 11], _MARKERS[i % 14], _DASHES[i % 7]) for i, name in names}


def normalised(cells: pd.DataFrame, labels: Mapping[str, str]) -> pd.DataFrame:
    """Scale every metric by its range over the activations, and average within an experiment.

    Returns
    -------
    DataFrame, experiments (a data set and task of one protocol) x activations
        1 where an activation is best in all metrics of the experiment, 0 where it is worst in all
        or failed. Experiments that lack an activation are left out; without a range all are 1.
    """
    units = []
    tasks = {"regression": " reg", "classification": " clf"}
    for (task, metric), part in cells.groupby(["task", "metric"], sort=False):
        scores = scores_by_data(part, metric) * (1 if METRICS[metric].greater_is_better else -1)
        best = scores.max(axis=1)
        span = (best - scores.min(axis=1)).replace(0.0, 1.0)
        unit = 1.0 - scores.rsub(best, axis=0).div(span, axis=0)
        end = tasks[task] if cells["task"].nunique() > 1 else ""
        unit.index = [f"{labels.get(data, data)}{end}" for data in unit.index]
        units.append(unit.fillna(0.0))
    return pd.concat(units).groupby(level=0, sort=False).mean()


def plot_radar(panels: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw one radar plot a panel, of what `normalised` returned; at least 3 experiments each.

    0 is a ring at some distance from the centre, as in the paper.
    """
    figure = Figure(figsize=(1.0 + 5.2 * len(panels), 6.2), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False, subplot_kw={"projection": "polar"})
    for axes, (title, scores) in zip(grid.flat, panels.items(), strict=True):
        around = pd.concat([scores, scores.iloc[:1]])
        angles = np.linspace(0.0, 2.0 * np.pi, len(around))
        for name, (color, marker, dashes) in styles(scores).items():
            if name in scores:
                (line,) = axes.plot(angles, around[name], color=color, marker=marker)
                line.set(linestyle=dashes, markersize=5, label=activation_label(name))
                line.set(linewidth=2.6 if name == "combu" else 1.4, clip_on=False)
        axes.set(theta_offset=np.pi / 2, theta_direction=-1, rorigin=-0.3, ylim=(0.0, 1.04))
        axes.set_yticks([0.0, 0.5, 1.0], ["0", "0.5", "1"], fontsize=8, color="0.45")
        axes.set_rlabel_position(180.0 / len(scores))  # between the first two spokes
        axes.set_xticks(angles[:-1], scores.index)
        axes.tick_params(axis="x", pad=9)
        axes.set_title(title, pad=24)
        axes.grid(color="0.85")
        axes.spines["polar"].set_visible(False)
        axes.spines["inner"].set(color="0.7")
    handles, names = axes.get_legend_handles_labels()
    columns = 7 if len(panels) > 1 else 4
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def add_curves(page: Page, rows: pd.DataFrame, labels: Mapping[str, str]) -> None:
    """Draw training curves, a panel a data set: the mean over runs, and their range as a band.

    Of the first protocol that kept curves.
    """
    looks = styles(rows["activation"])
    for suffix, (number, column, task, score) in CURVES.items():
        fits = rows[(rows["task"] == task) & (rows[column] != "")]
        panels: dict[str, list[Line]] = {}
        for (_, data, name), own in fits.groupby(["protocol", "data", "activation"], sort=False):
            if own["protocol"].iloc[0] == fits["protocol"].iloc[0]:
                curves = read_curves(own, column)
                color, _, dashes = looks[name]
                look = (color, "" if len(curves.columns) > 1 else ".", dashes)
                band = (curves.min(), curves.max(), 2.2 if name == "combu" else 1.4)
                line = Line(curves.columns, curves.mean(), activation_label(name), look, *band)
                panels.setdefault(labels.get(data, data), []).append(line)
        if panels:
            scales = ("linear", "linear" if score == "accuracy" else "log")
            axes = ("epoch", f"training {score}")
            figure = plot(panels, axes, n_columns=2, scales=scales, share="none")
            shown = "mean and range over runs, without the first two epochs"
            page.figure(figure, f"{number}: training {score}, {shown}", f"curves_{suffix}")


def read_curves(fits: pd.DataFrame, column: str) -> pd.DataFrame:
    """Read curves as runs x blocks of epochs, by their middle epochs, without the first two."""
    block = int(fits["curve_block"].iloc[0])
    curves = fits[column].str.split(expand=True).astype(np.float64)
    curves.columns = block * (curves.columns + 0.5) + 0.5  # epochs count from 1
    return curves.iloc[:, math.ceil(2 / block) :]
