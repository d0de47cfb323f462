"""Figures of a study's report: radar plots and training curves, after the CombU paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, StrMethodFormatter

from benchmarks.papers.combu.expected import METRICS
from benchmarks.papers.combu.report_numbers import scores_by_data
from benchmarks.papers.combu.report_text import activation_label

# Okabe and Ito's colours, which the colour-blind can distinguish; markers and dashes say it again
_STYLES = {
    "relu": ("#000000", "o", "-"),
    "elu": ("#E69F00", "s", "--"),
    "selu": ("#56B4E9", "^", "-."),
    "swish": ("#009E73", "v", (0, (1, 1))),
    "nlrelu": ("#CC79A7", "P", (0, (5, 1, 1, 1, 1, 1))),
    "gelu": ("#0072B2", "X", (0, (3, 1))),
    "combu": ("#D55E00", "D", "-"),
}
_OTHERS = (  # of further activations, that the paper does not have
    ("#E69F00", "h", (0, (6, 2))),
    ("#56B4E9", "<", "--"),
    ("#009E73", ">", "-."),
    ("#CC79A7", "*", (0, (1, 1))),
    ("#0072B2", "p", (0, (5, 1, 1, 1, 1, 1))),
    ("#8C6D1F", "d", (0, (3, 1))),
    ("#777777", "8", (0, (2, 1, 1, 1))),
)


@dataclass(frozen=True)
class Curve:
    """One of the paper's Figures 3 to 6, from a column of curves."""

    figure: str
    column: str
    task: str
    label: str
    log: bool
    suffix: str  # of the file
    note: str = ""


_LOSS_NOTE = " (the paper's caption calls it absolute error, but it is the loss)"
CURVES = (
    Curve("Figure 3", "loss_curve", "regression", "training loss (MSE)", True, "loss_reg"),
    Curve("Figure 4", "metric_curve", "regression", "training absolute error", True, "error_reg"),
    Curve(
        "Figure 5", "loss_curve", "classification", "training loss (cross-entropy)", True,
        "loss_clf", _LOSS_NOTE,
    ),
    Curve("Figure 6", "metric_curve", "classification", "training accuracy", False, "accuracy_clf"),
)  # fmt: skip
_INNER = 0.3  # of the radius from 0 to 1, that 0 stands off the centre
_TASKS = {"regression": "reg", "classification": "clf"}


def styles(activations: Sequence[str]) -> dict[str, tuple]:
    """Colour, marker and dashes of each activation; the paper's seven always have the same."""
    others = [name for name in activations if name not in _STYLES]
    taken = {name: _OTHERS[i % len(_OTHERS)] for i, name in enumerate(others)}
    return {name: _STYLES.get(name) or taken[name] for name in activations}


def normalised(
    cells: pd.DataFrame, activations: Sequence[str], labels: Mapping[str, str]
) -> pd.DataFrame:
    """Scale every metric by its range over the activations, and average within an experiment.

    Parameters
    ----------
    cells : DataFrame
        One protocol's, with ``data``, ``task``, ``metric``, ``activation``, ``mean`` and ``runs``.
    activations : sequence of str
    labels : mapping
        How data sets are called.

    Returns
    -------
    DataFrame, experiments x activations
        1 where an activation is best in all metrics of the experiment, 0 where it is worst in all
        or failed. Experiments that lack an activation are left out; without a range all are 1.
    """
    rows = {}
    both = cells["task"].nunique() > 1
    for (task, metric), part in cells.groupby(["task", "metric"], sort=False):
        scores, _ = scores_by_data(part, metric, activations)
        sign = 1.0 if METRICS[metric].greater_is_better else -1.0
        for data, row in scores.iterrows():
            values = sign * row
            span = values.max() - values.min()
            unit = (values - values.min()) / span if span else values * 0.0 + 1.0
            unit = unit.fillna(0.0)
            label = str(labels.get(data, data))
            rows.setdefault(f"{label} {_TASKS[task]}" if both else label, []).append(unit)
    means = {name: pd.concat(parts, axis=1).mean(axis=1) for name, parts in rows.items()}
    return pd.DataFrame(means, index=list(activations)).T


def plot_radar(panels: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw one radar plot a panel, of what `normalised` returned; at least 3 experiments each.

    0 is a ring at some distance from the centre, as in the paper.
    """
    names = list(dict.fromkeys(name for scores in panels.values() for name in scores.columns))
    looks = styles(names)
    figure = Figure(figsize=(1.0 + 5.2 * len(panels), 5.9))
    for place, (title, scores) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), place, projection="polar")
        axes.set_title(title, pad=24)
        _radar(axes, scores, looks)
    handles = [_key(looks[name], activation_label(name)) for name in names]
    columns = min(len(names), 4 if len(panels) == 1 else 7)
    legend_rows = math.ceil(len(names) / columns)
    # by hand: constrained_layout overlooks labels around a circle
    figure.subplots_adjust(0.1, 0.11 + 0.04 * legend_rows, 0.9, 0.84, wspace=0.35)
    figure.legend(handles=handles, loc="lower center", ncols=columns, frameon=False)
    return figure


def _radar(axes: Axes, scores: pd.DataFrame, looks: Mapping[str, tuple]) -> None:
    angles = np.linspace(0.0, 2.0 * np.pi, len(scores), endpoint=False)
    axes.set_theta_offset(np.pi / 2)
    axes.set_theta_direction(-1)
    axes.set_rorigin(-_INNER)
    axes.set_ylim(0.0, 1.04)
    axes.set_yticks([0.0, 0.5, 1.0], ["0", "0.5", "1"], fontsize=8, color="0.45")
    axes.set_rlabel_position(180.0 / len(scores))  # between the first two spokes
    axes.set_xticks(angles, scores.index, fontsize=10)
    axes.grid(color="0.85", linewidth=0.8)
    axes.spines["polar"].set_visible(False)
    axes.spines["inner"].set(color="0.7", linewidth=0.8)
    axes.tick_params(axis="x", pad=9)
    for name in scores.columns:
        color, marker, dashes = looks[name]
        values = scores[name].to_numpy()
        axes.plot(
            [*angles, angles[0]],
            [*values, values[0]],
            color=color,
            linestyle=dashes,
            linewidth=2.6 if name == "combu" else 1.4,
            marker=marker,
            markersize=5,
            zorder=4 if name == "combu" else 3,
            clip_on=False,
            label=activation_label(name),
        )


def plot_curves(
    rows: pd.DataFrame, curve: Curve, activations: Sequence[str], labels: Mapping[str, str]
) -> Figure:
    """Draw training curves, a panel a data set: the mean over runs, and their range as a band.

    ``rows`` are one protocol's and one task's. Blocks that hold one of the first two epochs are not
    shown.
    """
    data = list(dict.fromkeys(rows["data"]))
    looks = styles(activations)
    n_rows = math.ceil(len(data) / 2)
    figure = Figure(figsize=(10.0, 0.7 + 3.3 * n_rows), layout="constrained")
    for place, name in enumerate(data, start=1):
        axes = figure.add_subplot(n_rows, min(2, len(data)), place)
        fits = rows[rows["data"] == name]
        for activation in activations:
            curves = read_curves(fits[fits["activation"] == activation], curve.column, skip=2)
            if curves is None:
                continue
            epochs, values = curves
            color, _, dashes = looks[activation]
            axes.plot(
                epochs,
                values.mean(axis=0),
                color=color,
                linestyle=dashes,
                marker="." if len(epochs) == 1 else "",
                linewidth=2.2 if activation == "combu" else 1.4,
                zorder=4 if activation == "combu" else 3,
            )
            low, high = values.min(axis=0), values.max(axis=0)
            axes.fill_between(epochs, low, high, color=color, alpha=0.1, linewidth=0)
        if curve.log:
            _log_axis(axes)
        axes.set_title(str(labels.get(name, name)), loc="left", fontsize=11)
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("epoch")
        axes.set_ylabel(curve.label)
    handles = [_key(looks[name], activation_label(name), marker="") for name in activations]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(7, len(activations)), frameon=False
    )
    return figure


def _log_axis(axes: Axes) -> None:
    """Make the y axis logarithmic where it spans enough, with ticks as plain numbers."""
    shown = [line.get_ydata() for line in axes.lines if len(line.get_ydata())]
    values = np.concatenate([np.ravel(values) for values in shown]) if shown else np.ones(1)
    if values.min() <= 0.0 or values.max() < 3.0 * values.min():
        return
    axes.set_yscale("log")
    ratio = values.max() / values.min()
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5) if ratio > 30.0 else (1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}" if ratio < 1000.0 else ""))


def read_curves(
    fits: pd.DataFrame, column: str, skip: int = 0
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the blocks' middle epochs and the curves, runs x blocks; None where there are none.

    Runs that ended early, with fewer blocks than others, are left out.
    """
    curves = [
        (np.array(text.split(), dtype=np.float64), int(block))
        for text, block in zip(fits[column], fits["curve_block"], strict=True)
        if isinstance(text, str) and text.strip()
    ]
    if not curves:
        return None
    block = curves[0][1]
    longest = max(len(values) for values, _ in curves)
    values = np.stack(
        [values for values, size in curves if (len(values), size) == (longest, block)]
    )
    first = math.ceil(skip / block)
    epochs = block * (np.arange(longest) + 0.5) + 0.5  # epochs count from 1
    return epochs[first:], values[:, first:]


def _key(style: tuple, label: str, marker: str | None = None) -> Line2D:
    color, own_marker, dashes = style
    return Line2D(
        [], [], color=color, linestyle=dashes, markersize=5, label=label,
        marker=own_marker if marker is None else marker, linewidth=2.6 if label == "CombU" else 1.4,
    )  # fmt: skip
