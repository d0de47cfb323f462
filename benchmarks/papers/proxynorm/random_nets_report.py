"""The report of proxynorm_random_nets: verdicts, tables with spread over draws, figures."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_figure, write_text
from benchmarks.papers.combu.report_text import NOTHING, markdown_table
from benchmarks.papers.proxynorm.random_nets_figures import plot_theorem1
from benchmarks.papers.proxynorm.random_nets_model import GROUP_SIZE, RHO
from benchmarks.papers.proxynorm.random_nets_numbers import (
    CONSTANT,
    TERMS,
    at_depth,
    bound_table,
    comparisons,
    depth_table,
    equality_table,
    main_nets,
    mean_sd,
    terms_table,
)
from benchmarks.papers.proxynorm.random_nets_verdicts import COMMON, CRITERIA, LEVEL, verdicts
from combutab.plotting import plot_power

NAME = "proxynorm_random_nets"
DEPTHS = (1, 5, 10, 20, 50, 100, 200)
BLOCKS = (1, 4, 8, 12, 16)
EXPECTED = Path(__file__).parent / "expected" / f"{NAME}.csv"
HEADINGS = {
    "conv": "Convolutional random nets",
    "dense": "Dense random nets",
    "residual": "Residual networks at initialisation",
}


def write_report(rows: pd.DataFrame, theorems: pd.DataFrame, out: Path, command: str) -> None:
    """Write the page and its figures beside the rows, and print the verdicts."""
    nets = main_nets(rows)
    figures = {"theorem1": plot_theorem1({k: v for k, v in nets.items() if k != "residual"})}
    for kind, part in nets.items():
        shown = part[part["depth"] <= COMMON]
        figures[f"power_{kind}"] = plot_power(dict(list(shown.groupby("norm", sort=False))))
    for name, figure in figures.items():
        write_figure(figure, out / f"{NAME}_{name}.png", dpi=100)
    judged = markdown_table(
        ["paper", "claim", "found", "verdict"], verdicts(rows, theorems), left=4
    )
    parts = [
        f"# {NAME}",
        f"`{command}`",
        describe_machine(),
        _design(rows),
        "## Verdicts",
        judged,
        CRITERIA,
        *_theorem_parts(rows, theorems),
    ]
    for kind, part in nets.items():
        parts += _net_parts(kind, part)
    write_text(out / f"{NAME}.md", "\n\n".join(parts) + "\n")
    print(judged)


def _table(frame: pd.DataFrame, left: int = 1) -> str:
    body = [
        [f"{cell:.3g}" if isinstance(cell, float) else cell for cell in row]
        for row in frame.itertuples(index=False)
    ]
    return markdown_table(list(frame.columns), body, left)


def _design(rows: pd.DataFrame) -> str:
    nets = main_nets(rows)
    random = {kind: part for kind, part in nets.items() if kind != "residual"}
    ours = {
        "inputs": _of(random, "inputs"),
        "width": _of(random, "width"),
        "group size": str(GROUP_SIZE),
        "depth": _of({kind: part[["depth"]].max() for kind, part in random.items()}, "depth"),
        "draws": str(rows["draw"].nunique()),
        "rho": f"{RHO:.3f}",
    }
    paper = pd.read_csv(EXPECTED, dtype=str)
    paper = paper[paper["norm"] == "setting"]
    table = markdown_table(
        ["setting", "paper", "here"],
        [[line.quantity, line.paper, ours[line.quantity]] for line in paper.itertuples()],
    )
    return (
        "Nothing is trained: these are networks with random weights, and what they do to their "
        "inputs. Layers are Definition 1's: a convolution of 3 x 3 with periodic boundaries (the "
        "first one halves the image) or a dense layer, a normalisation, gamma ~ N(1, 0.2²) and "
        "beta ~ N(0, 0.2²), ReLU; weights are normal, cut at two standard deviations; PN has eps "
        "0.03 and a standard normal proxy. The networks of a draw share inputs, weights, gamma "
        "and beta, so that normalisations are compared in pairs; ± is the standard deviation "
        "over draws. scikit-learn's digits (8 x 8) stand in for CIFAR-10 and ImageNet; dense nets "
        "have no positions, so no P3, P4 and IN. The powers are those of "
        "`combutab.evaluation.power_decomposition`, Eq. (5): P1 at the scale of the data set (a "
        "channel that has collapsed to a constant has nothing else), P2 between inputs, P3 and "
        "P4 within them. The paper has these results as figures alone; what its theorems and "
        "text say in numbers stands beside ours.\n\n"
        f"{table}"
    )


def _of(nets: dict[str, pd.DataFrame], column: str) -> str:
    values = {kind: pd.Series(part[column]).max() for kind, part in nets.items()}
    if len(set(values.values())) == 1:
        return str(next(iter(values.values())))
    return ", ".join(f"{value} ({kind})" for kind, value in values.items())


def _theorem_parts(rows: pd.DataFrame, theorems: pd.DataFrame) -> list[str]:
    worst = theorems.pivot_table(
        index=["theorem", "case"], columns="term", values="error", aggfunc="max", sort=False
    ).reset_index()
    second = worst[worst["theorem"] == 2].drop(columns="theorem")[["case", "P", *TERMS]]
    third = worst[worst["theorem"] == 3].drop(columns="theorem")[["case", "P", "P1"]]
    parts = [
        "## Theorem 1: with LN, P - P1 <= rho^(l-1)",
        f"![P - P1 by depth, and nonlinearity]({NAME}_theorem1.png)",
        "Thin lines are draws, bands a standard deviation; a nonlinearity below 1e-5 is drawn "
        "there. Cells are pairs of draw and depth: of every depth in the nets that have all "
        "normalisations, and else of depths up to 20 and every tenth from there. The theorem's "
        "inequality holds up to constants that vanish as the width grows: where any cell is above "
        f"the bound, the verdict allows {CONSTANT:g} of the power, and asks that the widest net "
        "need no more than the narrowest.",
        _table(bound_table(rows)),
    ]
    equal = equality_table(rows)
    if len(equal):
        parts += [
            "With phi = identity the bound is an equality (Proposition 6), again up to constants "
            "that vanish with the width. The largest error over depths, as a mean over draws and "
            "of all draws:",
            _table(equal),
        ]
    return [
        *parts,
        "## Theorem 2: IN's constraints",
        "Largest distance over channels, depths and draws from P = P3 = 1 and P1 = P2 = P4 = 0:",
        _table(second),
        "## Theorem 3: ProxyNorm's guarantee",
        "Largest distance over channels (gamma and beta drawn) and draws of what ProxyNorm with "
        "eps = 0 gives from P = 1 and P1 = 0, where each channel is given points of that "
        "distribution, of mean 0 and variance 1. Condition (iii) is that they are normal. Moments "
        "without a closed form are taken over 256 proxy points, which misses some of the tails; "
        "with as many points as the data has that is gone.",
        _table(third),
    ]


def _net_parts(kind: str, rows: pd.DataFrame) -> list[str]:
    last = int(rows["depth"].max())
    depths = [d for d in (BLOCKS if kind == "residual" else DEPTHS) if d <= last]
    common = min(last, COMMON)
    parts = [
        f"## {HEADINGS[kind]}, width {rows['width'].iloc[0]}",
        f"![Power plots]({NAME}_power_{kind}.png)",
    ]
    if kind == "residual":
        parts.append(
            "ResNet-50 (v2) with a quarter of its widths: 16 bottleneck blocks, a stem of one "
            "3 x 3 convolution, the image halved once, gamma = 1 and beta = 0, GN with the "
            "paper's group sizes. A block's three normalisations are pooled, over "
            f"{rows['inputs'].iloc[0]} inputs (256 in the paper), and BN's statistics are of all."
        )
    parts += ["P1 by depth:", _table(depth_table(rows, "P1", depths, 3))]
    parts += [
        f"All terms at l = {common}; the last column is the share of the power that lies "
        "elsewhere than with BN:",
        _table(terms_table(rows, common)),
        _beside_theory(rows, common),
    ]
    tests = comparisons(rows, common)
    n_draws = rows["draw"].nunique()
    parts += [
        f"Which P1 at l = {common} is higher (Wilcoxon's signed-rank test over draws, p after "
        f"Holm, level {LEVEL:g}; {n_draws} draws and {len(tests)} tests cannot give less than "
        f"{min(1.0, 2.0 ** (1 - n_draws) * len(tests)):.2g}):",
        _table(tests, left=2),
    ]
    if rows["nonlinearity"].notna().any():
        found = [d for d in depths if d <= COMMON or d % 10 == 0]
        parts += [
            "P(z - z~) / P(z), 0 where phi is linear in each channel:",
            _table(depth_table(rows, "nonlinearity", found, 4)),
        ]
    return parts


def _beside_theory(rows: pd.DataFrame, depth: int) -> str:
    paper = pd.read_csv(EXPECTED, dtype=str)
    paper = paper[paper["norm"].isin(rows["norm"]) & (paper["norm"] != "setting")]
    body = []
    for line in paper.itertuples():
        values = at_depth(rows, line.quantity, depth)[line.norm]
        ours = mean_sd(values, 6) if values.notna().all() else NOTHING
        body.append([line.norm, line.quantity, line.paper, ours, line.source])
    head = ["norm", "term", "paper", f"here, l = {depth}", "where the paper says so"]
    return markdown_table(head, body, left=2)
