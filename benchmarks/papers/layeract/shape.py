"""The LayerAct paper's Figures 4 and 5: LA-SiLU and LA-HardSiLU under inputs of other moments.

    python -m benchmarks.papers.layeract.shape [--quick] [--out FOLDER]

A layer's 512 inputs are drawn from N(mean, sd²) in the paper's four cases. Nothing is trained.
"""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from benchmarks.common.claims import Claim, Finding, claims_table
from benchmarks.common.command import Study
from benchmarks.common.looks import Line, plot
from benchmarks.common.page import Page
from benchmarks.outputs import write_table
from benchmarks.papers.layeract.shared import COUNTERPARTS, select
from combutab.activations import make_activation

NAME, WIDTH = "layeract_shape", 512
CASES = ((0.0, 1.0), (0.0, 5.0), (-5.0, 1.0), (5.0, 1.0))  # mean and sd, as the paper's panels
COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73")


def layers(name: str, mean: float, sd: float, n_layers: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw inputs and outputs of layers; both of shape (n_layers, 512)."""
    generator = torch.Generator().manual_seed(0)
    y = mean + sd * torch.randn(n_layers, WIDTH, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        return y.numpy(), make_activation(name, WIDTH)(y).numpy()


def summarise(n_layers: int) -> pd.DataFrame:
    """Average the shape of each function in each case over the layers.

    ``negative``: share of outputs below zero; ``saturated``: of scales a / y below 0.01;
    ``unsaturated_layers``: of layers without one.
    """
    rows = []
    for name, (mean, sd) in product((*COUNTERPARTS, *COUNTERPARTS.values()), CASES):
        y, a = layers(name, mean, sd, n_layers)
        saturated = (a / y < 0.01).mean(axis=1)
        row = {"function": name, "mean": mean, "sd": sd, "lowest": a.min(axis=1).mean()}
        row |= {"highest": a.max(axis=1).mean(), "output_mean": a.mean()}
        row |= {"negative": (a < 0).mean(), "saturated": saturated.mean()}
        rows.append(row | {"unsaturated_layers": (saturated == 0).mean()})
    return pd.DataFrame(rows)


def judge_negative(name: str, shapes: pd.DataFrame) -> Finding:
    low = select(shapes, function=name, mean=-5.0)["lowest"].item()
    bound = select(shapes, function=COUNTERPARTS[name])["lowest"].min()
    numbers = f"{low:.2f} at mean -5, where {COUNTERPARTS[name]} never goes below {bound:.2f}"
    return Finding(numbers, [low < bound - 1.0])


def judge_dependence(name: str, shapes: pd.DataFrame) -> Finding:
    means = select(shapes, function=name)["output_mean"]
    return Finding("output means " + ", ".join(map("{:.2f}".format, means)), [np.ptp(means) > 1.0])


def judge_saturation(shapes: pd.DataFrame) -> Finding:
    share = select(shapes, function="la-hardsilu", sd=5.0)["unsaturated_layers"].item()
    numbers = (
        f"in {share:.0%} of the layers of {WIDTH} units; the same in the other cases, as the scale "
        "sees standardised inputs alone"
    )
    return Finding(numbers, [share > 0, share == 1])


CLAIMS = [
    Claim(figure, f"{name}{text}", partial(judge, name))
    for figure, name in (("Figure 4", "la-silu"), ("Figure 5", "la-hardsilu"))
    for text, judge in (
        (" gives large negative outputs where the mean is negative", judge_negative),
        ("'s shape depends on mean and variance of the input", judge_dependence),
    )
]
_LAST = "no output of LA-HardSiLU saturates in the second case"
CLAIMS.append(Claim("Figure 5", _LAST, judge_saturation))


def draw() -> Figure:
    """Draw a layer in the four cases, a panel a LayerAct function; its counterpart dashed."""
    panels = {}
    for name, other in COUNTERPARTS.items():
        curves = [(other, (0.0, 5.0), "_", ("0.55", "", "--"))]
        for case, color in zip(CASES, COLORS, strict=True):
            curves.append((name, case, f"inputs N({case[0]:g}, {case[1]:g}²)", (color, "", "-")))
        panels[f"{name}, and {other} dashed"] = lines = []
        for function, case, text, look in curves:
            y, a = (values[0] for values in layers(function, *case, 1))
            order = np.argsort(y)
            lines.append(Line(y[order], a[order], text, look))
    return plot(panels, ("input", "output"), n_columns=2)


def write_page(page: Page, arguments: Namespace) -> None:
    """Draw the inputs, fill the page, and write the shapes beside it as CSV."""
    n_layers = 3 if arguments.quick else 200
    shapes = summarise(n_layers)
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_table(shapes.round(5), arguments.out / f"{NAME}.csv.gz", index=False)
    page.text(
        f"{n_layers} layers of {WIDTH} inputs for each of the paper's four cases; the paper shows "
        "one draw and prints no numbers."
    )
    page.heading("Verdicts")
    page.text(claims_table(CLAIMS, {"here": shapes}))
    page.heading("Shapes")
    page.text("Means over the layers; saturated: scales below 0.01.")
    heads = ["", "inputs", "lowest", "highest", "mean", "negative", "saturated"]
    text = "{0}|N({1:g}, {2:g}²)|{3:.2f}|{4:.2f}|{5:.2f}|{6:.1%}|{7:.2%}|{8:.0%}"
    lines = [text.format(*row).split("|") for row in shapes.itertuples(index=False)]
    page.table([*heads, "layers without a saturated unit"], lines)
    page.figure(draw(), "Figures 4 (left) and 5 (right)")


TITLE, MODULE = "LayerAct: the shape of LA-SiLU and LA-HardSiLU", "benchmarks.papers.layeract.shape"
STUDY = Study(NAME, TITLE, __doc__.splitlines()[0], MODULE, [], write_page)

if __name__ == "__main__":
    STUDY.main()
