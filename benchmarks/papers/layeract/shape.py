"""The LayerAct paper's Figures 4 and 5: LA-SiLU and LA-HardSiLU under inputs of other moments.

    python -m benchmarks.papers.layeract.shape [--quick] [--out FOLDER]

A layer's 512 inputs are drawn from N(mean, sd²) in the paper's four cases. Nothing is trained.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_figure, write_table, write_text
from benchmarks.papers.combu.report_text import markdown_table
from combutab.activations import make_activation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "layeract_shape"
CASES = ((0.0, 1.0), (0.0, 5.0), (-5.0, 1.0), (5.0, 1.0))  # mean and sd, as the paper's panels
COUNTERPARTS = {"la-silu": "silu", "la-hardsilu": "hardsilu"}
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
            table.insert(0, "layer", np.repeat(np.arange(n_layers), width))
            for i, (column, value) in enumerate({"function": name, "mean": mean, "sd": sd}.items()):
                table.insert(i, column, value)
            tables.append(table)
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


def findings(shapes: pd.DataFrame) -> list[tuple[str, str, str]]:
    """What the paper says of its figures, what is found, and the verdict."""
    own = shapes[shapes["function"].isin(COUNTERPARTS)].set_index(["function", "mean", "sd"])
    found = []
    for name, other in COUNTERPARTS.items():
        bound = shapes.loc[shapes["function"] == other, "lowest"].min()
        low = own.loc[(name, -5.0, 1.0), "lowest"]
        found.append(
            (
                f"{name} gives large negative outputs where the mean is negative",
                f"{low:.2f} at mean -5, where {other} never goes below {bound:.2f}",
                _holds(low < bound - 1.0),
            )
        )
        lows = [own.loc[(name, *case), "output_mean"] for case in CASES]
        found.append(
            (
                f"{name}'s shape depends on mean and variance of the input",
                "output means " + ", ".join(f"{value:.2f}" for value in lows),
                _holds(np.ptp(lows) > 1.0),
            )
        )
    share = own.loc[("la-hardsilu", 0.0, 5.0), "unsaturated_layers"]
    found.append(
        (
            "no output of LA-HardSiLU saturates in the second case",
            f"in {share:.0%} of the layers of {WIDTH} units; the same in the other cases, as the "
            "scale sees standardised inputs alone",
            "holds in part" if 0 < share < 1 else _holds(share == 1),
        )
    )
    return found


def _holds(so: bool) -> str:
    return "holds" if so else "does not hold"


def plot(values: pd.DataFrame) -> Figure:
    """A row a LayerAct function, a panel a case; its counterpart as a line."""
    from matplotlib.figure import Figure

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


def _page(shapes: pd.DataFrame, n_layers: int, command: str) -> Iterator[str]:
    yield "# LayerAct: the shape of LA-SiLU and LA-HardSiLU"
    yield f"`{command}`"
    yield describe_machine()
    yield (
        f"{n_layers} layers of {WIDTH} inputs for each of the paper's four cases; the paper shows "
        "one draw and prints no numbers."
    )
    yield "## Verdicts"
    yield markdown_table(
        ["the paper", "here", "verdict"],
        findings(shapes),
        left=3,
    )
    yield "## Shapes"
    body = [
        [
            r.function,
            f"N({r.mean:g}, {r.sd:g}²)",
            f"{r.lowest:.2f}",
            f"{r.highest:.2f}",
            f"{r.output_mean:.2f}",
            f"{r.negative:.1%}",
            f"{r.saturated:.2%}",
            f"{r.unsaturated_layers:.0%}",
        ]
        for r in shapes.itertuples()
    ]
    head = ["", "inputs", "lowest", "highest", "mean", "negative", "saturated"]
    yield "Means over the layers; saturated: scales below 0.01.\n\n" + markdown_table(
        [*head, "layers without a saturated unit"], body, left=2
    )
    yield f"![Figures 4 (above) and 5 (below)]({NAME}.png)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 layers instead of 200")
    parser.add_argument("--report", action="store_true", help="the same: nothing is trained")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if arguments.quick and arguments.out == parser.get_default("out"):
        sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
    print(describe_machine(), flush=True)
    n_layers = 3 if arguments.quick else 200
    values = layer_values(n_layers)
    shapes = summarise(values)
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_table(shapes.round(5), arguments.out / f"{NAME}.csv", index=False, lineterminator="\n")
    write_figure(plot(values), arguments.out / f"{NAME}.png", dpi=110)
    command = f"python benchmarks/{NAME}.py" + " --quick" * arguments.quick
    text = "\n\n".join(_page(shapes, n_layers, command)) + "\n"
    write_text(arguments.out / f"{NAME}.md", text)
    for words, here, verdict in findings(shapes):
        print(f"{words}: {verdict}; {here}")


if __name__ == "__main__":
    main()
