"""Figures of both studies: Theorem 1 and linearity (the paper's Figure 5); errors."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.common.looks import Line, Look, plot
from benchmarks.papers.proxynorm.random_nets.claims import excess
from benchmarks.papers.proxynorm.random_nets.nets import RHO
from benchmarks.papers.proxynorm.training.claims import cells

# Okabe and Ito's colours, one a norm and its marker; PN is on a solid line
NORM_LOOKS = {
    "BN": ("#000000", "o"),
    "IN": ("#56B4E9", "<"),
    "LN": ("#D55E00", "s"),
    "GN": ("#0072B2", "^"),
    "LN+WS": ("#CC79A7", "X"),
    "GN+WS": ("#009E73", "D"),
}
LEAST, LEAST_ERROR = 1e-5, 0.05  # nonlinearity and error that are drawn: both can be 0
SCALES = ("linear", "log")


def look(norm: str) -> Look:
    color, marker = NORM_LOOKS[norm.removesuffix("+PN")]
    return color, marker, "-" if norm.endswith("+PN") else (0, (3, 2))


def plot_theorem1(nets: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw, a row for each kind of net, P - P1 with LN under its bound, and the nonlinearity."""
    panels: dict[str, list[Line]] = {}
    color, *_ = NORM_LOOKS["LN"]
    for kind, rows in nets.items():
        draws = excess(rows).pivot(index="depth", columns="draw", values="varying")
        depth, thin = draws.index, (color, "", "-")
        lines = [Line(depth, own, "a draw", thin, width=0.7, alpha=0.5) for _, own in draws.items()]
        lines.append(Line(depth, draws.mean(axis=1), "mean of the draws", thin, width=2.5))
        lines.append(Line(depth, RHO ** (depth - 1.0), "bound rho^(l-1)", ("#000000", "", ":")))
        title = f"{kind}, width {rows['width'].iloc[0]}"
        panels[f"{title}: P - P1 with LN"] = lines
        measure = panels[f"{title}: P(z - z~) / P(z), 0 is channel-wise linear"] = []
        for norm, found in rows.dropna(subset="nonlinearity").groupby("norm", sort=False):
            over = found.groupby("depth")["nonlinearity"]
            mean, sd = over.mean(), over.std()
            ends = ((mean + k * sd).clip(LEAST) for k in (-1, 1))
            measure.append(Line(mean.index, mean.clip(LEAST), norm, look(norm), *ends))
    labels = ("depth l", "share of the power")
    return plot(panels, labels, n_columns=2, scales=SCALES, share="row")


def plot_training(rows: pd.DataFrame, metric: str, ylabel: str) -> Figure:
    """Draw 100 % less a metric over batch sizes, means over seeds."""
    sizes = sorted(set(rows["batch_size"]))
    panels: dict[str, list[Line]] = {}
    rows = rows.sort_values("regularisation", ascending=False, kind="stable")  # plain, extra
    for (kind, *own), part in rows.groupby(["regularisation", "net", "data"], sort=False):
        lines = panels.setdefault(f"{', '.join(own)}\n{kind}", [])
        for norm, found in cells(part, metric).groupby("norm", sort=False):
            error = (100 * (1 - found["mean"])).clip(LEAST_ERROR)
            lines.append(Line(found["batch_size"].map(sizes.index), error, norm, look(norm)))
    ticks = {float(i): str(size) for i, size in enumerate(sizes)}
    n = len(panels) // 2
    figure = plot(
        panels, ("batch size", ylabel), n_columns=n, ticks=ticks, scales=SCALES, share="col"
    )
    for axes in figure.axes:
        axes.yaxis.set(major_locator=MaxNLocator(6), major_formatter="{x:g}")
    return figure
