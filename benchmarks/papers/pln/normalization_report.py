"""The page and the figure of the study on PLN as normalisation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_figure, write_text
from benchmarks.papers.combu.report_text import markdown_table
from benchmarks.papers.pln.normalization_numbers import (
    LEVEL,
    NAMES,
    OTHERS,
    activation_name,
    match_table,
    mean_scores,
    verdict_activation,
    verdict_match,
    verdict_nonlinear,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by the colour-blind; markers say it again
_LOOKS = {
    "none": ("#777777", "x"),
    "batch": ("#E69F00", "s"),
    "layer": ("#0072B2", "^"),
    "pln": ("#D55E00", "o"),
}


def write_report(rows: pd.DataFrame, folder: Path, command: str) -> str:
    """Write pln_normalization.md and its figure, and return the verdicts."""
    verdicts = _verdicts(rows)
    parts = [
        "# pln_normalization",
        f"`{command}`",
        describe_machine(),
        _method(rows),
        "## Verdicts",
        verdicts,
        "## Test scores",
        "Accuracy, or R² of regressions: mean ± standard deviation over splits.",
    ]
    for data, depth in _places(rows):
        parts.append(f"### {data}, {depth} hidden layers")
        parts.append(_table(mean_scores(rows, data, depth)))
    write_figure(plot(rows), folder / "pln_normalization.png", dpi=100)
    parts += ["## Figure", "![Test scores by activation](pln_normalization.png)"]
    write_text(folder / "pln_normalization.md", "\n\n".join(parts) + "\n")
    return verdicts


def _places(rows: pd.DataFrame) -> list[tuple[str, int]]:
    return list(dict.fromkeys(zip(rows["data"], rows["depth"], strict=True)))


def _method(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    depths = list(dict.fromkeys(rows["depth"]))
    n_splits = rows["split"].nunique()
    return f"""\
Section 5.2 and Figure 10 of "Universal approximation theorem of networks activated by
normalization" on tables. What differs from the paper: dense networks of width {first["width"]}
with {" or ".join(map(str, depths))} hidden layers (the deeper ones, of about VGG-16's depth, on
digits alone) stand in for VGG-16 and ResNet-20, {rows["data"].nunique()} tables of at most
{first["n_rows"]} rows for CIFAR-10; scikit-learn's digits (8 x 8) are the images. Adam with rate
{first["learning_rate"]:g}, batches of {first["batch_size"]}, {first["n_steps"]} steps (twice as
many for the deeper), no dropout. The normalisation stands before each activation. Batch and layer
norm have a gain and a shift a unit, PLN-8 has none.

{n_splits} random splits (4:1, equal rows on one side), each with its own seed. Each data set's
differences have the corrected resampled t-test, Holm-adjusted over the data sets of a comparison;
over the data sets Wilcoxon's signed-rank test compares the mean differences. Level {LEVEL:g}, not
adjusted over the comparisons listed. Kinds that are not told apart are not thereby equal. The text
of the paper gives no numbers of its Figure 10: its claims are compared."""


def _verdicts(rows: pd.DataFrame) -> str:
    lines = []
    activations = list(dict.fromkeys(rows["activation"]))
    for depth, own in rows.groupby("depth"):
        lines += [
            f"### {depth} hidden layers: {', '.join(dict.fromkeys(own['data']))}\n",
            "- With PLN-8, an activation is not needed (ReLU gains marginally, sigmoid and tanh "
            f"lose): {verdict_activation(own)}",
            f"- Without activations, PLN-8 is what makes a network nonlinear: "
            f"{verdict_nonlinear(own)}",
            "- The same on the training rows, which show what a network can represent: "
            f"{verdict_nonlinear(own.assign(score=own['train_score']))}",
            f"- PLN-8 is as good as batch and layer norm: {verdict_match(own, activations)}\n",
            "PLN-8 against each other normalisation, by the activation after it:\n",
            markdown_table(
                ["activation", *(f"against {NAMES[name]}" for name in OTHERS)],
                match_table(own, activations),
            )
            + "\n",
        ]
    return "\n".join(lines)


def _table(scores: pd.DataFrame) -> str:
    activations = list(dict.fromkeys(scores.index.get_level_values("activation")))
    body = []
    for normalization in dict.fromkeys(scores.index.get_level_values("normalization")):
        own = scores.loc[normalization]
        cells = [f"{own.loc[a, 'mean']:.3f} ± {own.loc[a, 'std']:.3f}" for a in activations]
        body.append([NAMES[str(normalization)], *cells])
    return markdown_table(["normalisation \\ activation", *map(activation_name, activations)], body)


def plot(rows: pd.DataFrame) -> Figure:
    """Draw mean test scores and their standard deviation over splits, a panel a data set."""
    from matplotlib.figure import Figure

    places = _places(rows)
    activations = list(dict.fromkeys(rows["activation"]))
    n_rows = math.ceil(len(places) / 3)
    figure = Figure(figsize=(10.5, 0.9 + 2.8 * n_rows), layout="constrained")
    for place, (data, depth) in enumerate(places, 1):
        axes = figure.add_subplot(n_rows, min(3, len(places)), place)
        own = mean_scores(rows, data, depth)
        normalizations = list(dict.fromkeys(own.index.get_level_values("normalization")))
        for i, normalization in enumerate(normalizations):
            color, marker = _LOOKS[normalization]
            shift = 0.16 * (i - (len(normalizations) - 1) / 2)
            part = own.loc[normalization].loc[activations]
            axes.errorbar(
                [x + shift for x in range(len(activations))],
                part["mean"],
                yerr=part["std"],
                fmt=marker,
                color=color,
                markersize=6,
                elinewidth=1.0,
                label=NAMES[normalization],
            )
        axes.set_xticks(range(len(activations)), map(activation_name, activations))
        axes.set_title(f"{data}, {depth} layers", fontsize=10, loc="left")
        axes.set_ylabel("accuracy" if _is_classification(rows, data) else "R²")
        axes.grid(axis="y", color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle("Test score by activation and normalisation (± sd over splits)", fontsize=12)
    return figure


def _is_classification(rows: pd.DataFrame, data: str) -> bool:
    return rows.loc[rows["data"] == data, "task"].iloc[0] == "classification"
