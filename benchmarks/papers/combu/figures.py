"""Figures of a study's report: radar plots and training curves, after the CombU paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.papers.combu.expected import METRICS
from benchmarks.papers.combu.report_numbers import scores_by_data
from benchmarks.papers.combu.report_text import activation_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by the colour-blind; markers and dashes say it again
_STYLES = {
    "relu": ("#000000", "o", "-"),
    "elu": ("#E69F00", "s", "--"),
    "selu": ("#56B4E9", "^", "-."),
    "swish": ("#009E73", "v", (0, (1, 1))),
    "nlrelu": ("#CC79A7", "P", (0, (5, 1, 1, 1, 1, 1))),
    "gelu": ("#0072B2", "X", (0, (3, 1))),
    "combu": ("#D55E00", "D", "-"),
}
_OTHERS = (  # of further activations, in a panel of their own with the references
    ("#E69F00", "h", (0, (6, 2))),
    ("#56B4E9", "<", "--"),
    ("#009E73", ">", "-."),
    ("#CC79A7", "*", (0, (1, 1))),
    ("#0072B2", "p", (0, (5, 1, 1, 1, 1, 1))),
    ("#8C6D1F", "d", (0, (3, 1))),
    ("#777777", "8", (0, (2, 1, 1, 1))),
)
REFERENCES = ("relu", "combu")  # drawn again beside further activations
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
    from matplotlib.figure import Figure

    drawn = {title: list(scores.columns) for title, scores in panels.items()}
    shared = len(drawn) > 1 and len({tuple(names) for names in drawn.values()}) == 1
    looks = styles(list(dict.fromkeys(name for names in drawn.values() for name in names)))
    columns = 7 if shared else 4
    rows = math.ceil(max(map(len, drawn.values())) / columns)
    # Laid out by hand: constrained_layout overlooks labels around a circle
    side, margin, head, foot = 4.0, 0.95, 0.9, 0.8 + 0.25 * rows
    width, height = len(panels) * (side + 2 * margin), head + side + foot
    figure = Figure(figsize=(width, height))
    for place, (title, scores) in enumerate(panels.items()):
        left = margin + place * (side + 2 * margin)
        box = (left / width, foot / height, side / width, side / height)
        axes = figure.add_axes(box, projection="polar")
        _radar(axes, scores, looks)
        middle = (left + side / 2) / width
        figure.text(middle, 1 - 0.22 / height, title, fontsize=12, ha="center", va="top")
        if shared and place:
            continue
        figure.legend(
            handles=[_key(looks[name], activation_label(name)) for name in drawn[title]],
            loc="upper center",
            bbox_to_anchor=(0.5 if shared else middle, (foot - 0.55) / height),
            ncols=columns,
            frameon=False,
        )
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
    rows: pd.DataFrame,
    column: str,
    activations: Sequence[str],
    labels: Mapping[str, str],
    *,
    ylabel: str,
    log: bool = False,
    skip: int = 2,
) -> Figure:
    """Draw training curves, a panel a data set: the mean over runs, and their range as a band.

    Parameters
    ----------
    rows : DataFrame
        One protocol's and one task's, with ``column`` and ``curve_block``; empty curves are left
        out.
    column : {"loss_curve", "metric_curve"}
        Space-separated means over blocks of ``curve_block`` epochs.
    skip : int, default=2
        Epochs not shown: blocks that hold one of them are left out.
    """
    from matplotlib.figure import Figure

    data = list(dict.fromkeys(rows["data"]))
    looks = styles(activations)
    n_rows = math.ceil(len(data) / 2)
    figure = Figure(figsize=(10.0, 0.7 + 3.3 * n_rows), layout="constrained")
    for place, name in enumerate(data, start=1):
        axes = figure.add_subplot(n_rows, min(2, len(data)), place)
        fits = rows[rows["data"] == name]
        for activation in activations:
            curves = read_curves(fits[fits["activation"] == activation], column, skip)
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
        if log:
            _log_axis(axes)
        axes.set_title(str(labels.get(name, name)), loc="left", fontsize=11)
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("epoch")
        axes.set_ylabel(ylabel)
    handles = [_key(looks[name], activation_label(name), marker="") for name in activations]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(7, len(activations)), frameon=False
    )
    return figure


def _log_axis(axes: Axes) -> None:
    """Make the y axis logarithmic where it spans enough, with ticks as plain numbers."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

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


def _key(style: tuple, label: str, marker: str | None = None):
    from matplotlib.lines import Line2D

    color, own_marker, dashes = style
    return Line2D(
        [],
        [],
        color=color,
        linestyle=dashes,
        marker=own_marker if marker is None else marker,
        markersize=5,
        linewidth=2.6 if label == "CombU" else 1.4,
        label=label,
    )
