"""The LayerAct paper's Figures 4 and 5: LA-SiLU and LA-HardSiLU under inputs of other moments.

    python -m benchmarks.papers.layeract.shape [--quick] [--out FOLDER]

A layer's 512 inputs are drawn from N(mean, sd²) in the paper's four cases. Nothing is trained.
"""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from benchmarks.outputs import write_table
from benchmarks.papers.common.claims import Claim, Finding, claims_table
from benchmarks.papers.common.command import Study
from benchmarks.papers.common.page import Page
from benchmarks.papers.layeract.robustness_numbers import COUNTERPARTS
from combutab.activations import make_activation

NAME = "layeract_shape"
CASES = ((0.0, 1.0), (0.0, 5.0), (-5.0, 1.0), (5.0, 1.0))  # mean and sd, as the paper's panels
WIDTH = 512
SATURATED = 0.01  # a scale s below it, in a = y s


def layer_values(n_layers: int, width: int = WIDTH, seed: int = 0) -> pd.DataFrame:
    """Inputs and outputs of layers, a row a function, case, layer and unit."""
    generator = torch.Generator().manual_seed(seed)
    standard = torch.randn(n_layers, width, generator=generator, dtype=torch.float64)
    tables = []
    for name in (*COUNTERPARTS, *COUNTERPARTS.values()):
        function = make_activation(name, width)
        for mean, sd in CASES:
            y = mean + sd * standard
            with torch.no_grad():
                a = function(y)
            table = pd.DataFrame({"y": y.flatten().numpy(), "a": a.flatten().numpy()})
            layer = np.repeat(np.arange(n_layers), width)
            tables.append(table.assign(function=name, mean=mean, sd=sd, layer=layer))
    return pd.concat(tables, ignore_index=True)


def summarise(values: pd.DataFrame) -> pd.DataFrame:
    """Shape of each function in each case, means over the layers.

    ``negative``: share of outputs below zero; ``saturated``: of scales a / y below 0.01;
    ``unsaturated_layers``: of layers without one.
    """
    scale = values["a"] / values["y"]
    table = values.assign(saturated=scale < SATURATED, negative=values["a"] < 0, scale=scale)
    keys = ["function", "mean", "sd"]
    by_layer = table.groupby([*keys, "layer"], sort=False).agg(
        lowest=("a", "min"),
        highest=("a", "max"),
        output_mean=("a", "mean"),
        negative=("negative", "mean"),
        saturated=("saturated", "mean"),
    )
    by_layer["unsaturated_layers"] = by_layer["saturated"] == 0
    return by_layer.groupby(keys, sort=False).mean().reset_index()


def _claims(name: str, figure: str) -> list[Claim[pd.DataFrame]]:
    other = COUNTERPARTS[name]

    def negative(shapes: pd.DataFrame) -> Finding:
        bound = shapes.loc[shapes["function"] == other, "lowest"].min()
        low = _cell(shapes, name, -5.0, 1.0)["lowest"]
        numbers = f"{low:.2f} at mean -5, where {other} never goes below {bound:.2f}"
        return Finding(numbers, [low < bound - 1.0])

    def dependent(shapes: pd.DataFrame) -> Finding:
        means = [_cell(shapes, name, *case)["output_mean"] for case in CASES]
        numbers = "output means " + ", ".join(f"{value:.2f}" for value in means)
        return Finding(numbers, [np.ptp(means) > 1.0])

    return [
        Claim(figure, f"{name} gives large negative outputs where the mean is negative", negative),
        Claim(figure, f"{name}'s shape depends on mean and variance of the input", dependent),
    ]


def _unsaturated(shapes: pd.DataFrame) -> Finding:
    share = _cell(shapes, "la-hardsilu", 0.0, 5.0)["unsaturated_layers"]
    numbers = (
        f"in {share:.0%} of the layers of {WIDTH} units; the same in the other cases, as the scale "
        "sees standardised inputs alone"
    )
    return Finding(numbers, [share > 0, share == 1])


def _cell(shapes: pd.DataFrame, name: str, mean: float, sd: float) -> pd.Series:
    return shapes.set_index(["function", "mean", "sd"]).loc[(name, mean, sd)]


CLAIMS = [
    *_claims("la-silu", "Figure 4"),
    *_claims("la-hardsilu", "Figure 5"),
    Claim("Figure 5", "no output of LA-HardSiLU saturates in the second case", _unsaturated),
]


def plot(values: pd.DataFrame) -> Figure:
    """A row a LayerAct function, a panel a case; its counterpart as a line."""
    figure = Figure(figsize=(11.0, 5.4), layout="constrained")
    grid = figure.subplots(2, len(CASES), sharex="col")
    first = values[values["layer"] == 0]
    for row, (name, other) in zip(grid, COUNTERPARTS.items(), strict=True):
        for axes, (mean, sd) in zip(row, CASES, strict=True):
            case = first[(first["mean"] == mean) & (first["sd"] == sd)].sort_values("y")
            one, line = (case[case["function"] == each] for each in (name, other))
            axes.plot(line["y"], line["a"], color="0.55", linestyle="--", label=other)
            axes.plot(one["y"], one["a"], ".", color="#0072B2", markersize=3.5, label=name)
            axes.axhline(0, color="0.85", linewidth=0.8, zorder=1)
            axes.set_title(f"inputs N({mean:g}, {sd:g}²)", loc="left", fontsize=10)
            axes.tick_params(labelsize=9)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel("output", fontsize=10)
        row[0].legend(frameon=False, fontsize=9)
    figure.supxlabel("input", fontsize=10)
    return figure


def write_page(page: Page, arguments: Namespace) -> None:
    """Draw the inputs, fill the page, and write the shapes beside it as CSV."""
    n_layers = 3 if arguments.quick else 200
    values = layer_values(n_layers)
    shapes = summarise(values)
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_table(shapes.round(5), arguments.out / f"{NAME}.csv", index=False, lineterminator="\n")
    page.text(
        f"{n_layers} layers of {WIDTH} inputs for each of the paper's four cases; the paper shows "
        "one draw and prints no numbers."
    )
    page.heading("Verdicts")
    page.text(claims_table(CLAIMS, {"here": shapes}))
    page.heading("Shapes")
    page.text("Means over the layers; saturated: scales below 0.01.")
    head = ["", "inputs", "lowest", "highest", "mean", "negative", "saturated"]
    page.table(
        [*head, "layers without a saturated unit"],
        [
            [
                r.function,
                f"N({r.mean:g}, {r.sd:g}²)",
                *(f"{value:.2f}" for value in (r.lowest, r.highest, r.output_mean)),
                f"{r.negative:.1%}",
                f"{r.saturated:.2%}",
                f"{r.unsaturated_layers:.0%}",
            ]
            for r in shapes.itertuples()
        ],
    )
    page.figure(plot(values), "Figures 4 (above) and 5 (below)")


STUDY = Study(
    NAME,
    "LayerAct: the shape of LA-SiLU and LA-HardSiLU",
    __doc__.splitlines()[0],
    "benchmarks.papers.layeract.shape",
    [],
    write_page,
)

if __name__ == "__main__":
    STUDY.main()
