"""Do layer-normalised random nets collapse, and does Proxy Normalization prevent it?

Sections 4 and 5 of "Proxy-Normalizing Activations to Match Batch Normalization while Removing Batch
Dependence" for random networks (Definition 1): where the power of each normalised layer lies
(Figure 2, top), Theorem 1's bound to depth 200 and how linear the layers become (Figure 5),
Theorem 2's constraints, Theorem 3's guarantee, and residual networks at initialisation (Figure 6).
Nothing is trained. scikit-learn's digits stand in for CIFAR-10 and ImageNet.

    python -m benchmarks.papers.proxynorm.random_nets [--quick] [--out FOLDER] [--report]

A run that was stopped goes on where it stood.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import pandas as pd

from benchmarks.papers.common.claims import claims_table
from benchmarks.papers.common.command import Experiment, Job, Study
from benchmarks.papers.common.page import Page
from benchmarks.papers.common.results import Row
from benchmarks.papers.proxynorm.figures import plot_theorem1
from benchmarks.papers.proxynorm.random_nets import claims
from benchmarks.papers.proxynorm.random_nets.claims import Kind
from benchmarks.papers.proxynorm.random_nets.model import GROUP_SIZE, NORMS, RHO, Net
from benchmarks.papers.proxynorm.random_nets.numbers import (
    TERMS,
    at_depth,
    bound_table,
    depth_table,
    equality_table,
    mean_sd,
    terms_table,
)
from benchmarks.papers.proxynorm.random_nets.residual import Residual
from benchmarks.papers.proxynorm.random_nets.theorems import TERMS as THEOREM_TERMS
from benchmarks.papers.proxynorm.random_nets.theorems import cases
from combutab.plotting import plot_power

NAME = "proxynorm_random_nets"
EXPECTED = Path(__file__).parents[1] / "expected" / f"{NAME}.csv"
DENSE_NORMS = tuple(name for name in NORMS if name != "IN")
FULL = (
    Net("conv", 128, 200, every_depth=True),
    Net("dense", 512, 200, DENSE_NORMS, every_depth=True),
    Residual(16),
    # how the bound of Theorem 1 depends on the width; the last is the paper's
    *(Net("conv", width, 200, ("LN",)) for width in (32, 64)),
    *(Net("dense", width, 200, ("LN",)) for width in (64, 256, 1024)),
    # Proposition 6: with phi = identity the bound is an equality
    *(Net("conv", width, 200, ("LN",), phi="identity") for width in (32, 128)),
    *(Net("dense", width, 200, ("LN",), phi="identity") for width in (64, 512)),
)
QUICK = (
    Net("conv", 16, 6, n_inputs=32),
    Net("dense", 32, 6, DENSE_NORMS, n_inputs=32),
    Residual(2, (1, 1, 1, 1), n_inputs=32),
    Net("dense", 16, 6, ("LN",), n_inputs=32),
    Net("dense", 32, 6, ("LN",), phi="identity", n_inputs=32),
)


def n_draws(arguments: argparse.Namespace) -> int:
    """As asked for, or 8: the fewest with which six tests at a time can find a difference."""
    return arguments.draws or (2 if arguments.quick else 8)


def network_jobs(arguments: argparse.Namespace) -> list[Job]:
    """One draw of all nets after another."""
    nets = QUICK if arguments.quick else FULL
    return [network_job(net, draw) for draw in range(n_draws(arguments)) for net in nets]


def network_job(net: Net | Residual, draw: int) -> Job:
    own = {"net": net.kind, "width": net.width, "phi": net.phi, "draw": draw}
    own = {name: str(value) for name, value in (own | {"inputs": net.n_inputs}).items()}
    wanted = [{**own, "norm": norm, "depth": str(depth)} for norm, depth in net.sites]
    label = f"{net.kind} {net.width}, {net.phi}, draw {draw}"
    return Job(wanted, partial(measured, net, draw), label)


def measured(net: Net | Residual, draw: int) -> list[Row]:
    """Powers and nonlinearity as text, in the order of the net's sites."""
    found, rows = net.measure(draw), []
    for site in net.sites:
        row = {name: f"{v:{'.9g' if name == 'P' else '.5g'}}" for name, v in found[site].items()}
        rows.append({"nonlinearity": "", **row})
    return rows


def theorem_jobs(arguments: argparse.Namespace) -> list[Job]:
    """All cases of Theorems 2 and 3, a draw after another."""
    size, n_points = ((16, 6), 2001) if arguments.quick else ((32, 50), 20_001)
    found = cases(Net("conv", *size, ("IN",)), n_points)
    named = [(t, case, term) for t, case in found for term in THEOREM_TERMS[t]]

    def run(draw: int) -> list[Row]:
        errors = {name: find(draw) for name, find in found.items()}
        return [{"error": f"{errors[t, case][term]:.4g}"} for t, case, term in named]

    return [
        Job(
            [
                {"theorem": str(t), "case": c, "draw": str(draw), "term": term}
                for t, c, term in named
            ],
            partial(run, draw),
            f"theorems, draw {draw}",
        )
        for draw in range(n_draws(arguments))
    ]


HEADINGS = {
    "conv": "Convolutional random nets",
    "dense": "Dense random nets",
    "residual": "Residual networks at initialisation",
}
DESIGN = """\
Nothing is trained: these are networks with random weights, and what they do to their inputs. Layers
are Definition 1's: a convolution of 3 x 3 with periodic boundaries (the first one halves the image)
or a dense layer, a normalisation, gamma ~ N(1, 0.2²) and beta ~ N(0, 0.2²), ReLU; weights are
normal, cut at two standard deviations; PN has eps 0.03 and a standard normal proxy. The networks of
a draw share inputs, weights, gamma and beta, so that normalisations are compared in pairs; ± is the
standard deviation over draws. scikit-learn's digits (8 x 8) stand in for CIFAR-10 and ImageNet;
dense nets have no positions, so no P3, P4 and IN. The powers are those of
`combutab.evaluation.power_decomposition`, Eq. (5): P1 at the scale of the data set (a channel that
has collapsed to a constant has nothing else), P2 between inputs, P3 and P4 within them. The paper
has these results as figures alone; what its theorems and text say in numbers stands beside ours."""
THEOREM_3 = """\
Largest distance over channels (gamma and beta drawn) and draws of what ProxyNorm with eps = 0 gives
from P = 1 and P1 = 0, where each channel is given points of that distribution, of mean 0 and
variance 1. Condition (iii) is that they are normal. Moments without a closed form are taken over
256 proxy points, which misses some of the tails; with as many points as the data has that is gone.
"""
RESIDUAL = """\
ResNet-50 (v2) with a quarter of its widths: 16 bottleneck blocks, a stem of one 3 x 3 convolution,
the image halved once, gamma = 1 and beta = 0, GN with the paper's group sizes. A block's three
normalisations are pooled, over {n} inputs (256 in the paper), and BN's statistics are of all."""


def write(
    page: Page, arguments: argparse.Namespace, rows: pd.DataFrame, theorems: pd.DataFrame
) -> None:
    theorems = theorems.astype({"error": float})  # elsewhere an error is a message
    kinds = {kind: Kind(part) for kind, part in rows.groupby("net", sort=False)}
    random = {kind: found for kind, found in kinds.items() if kind != "residual"}
    nets = {kind: found.main for kind, found in random.items()}
    paper = pd.read_csv(EXPECTED, dtype=str)
    page.text(DESIGN)
    here = {name: _of(nets, name) for name in ("inputs", "width", "depth")}
    here |= {"group size": GROUP_SIZE, "draws": rows["draw"].nunique(), "rho": f"{RHO:.3f}"}
    settings = paper[paper["norm"] == "setting"]
    _table(page, settings[["quantity", "paper"]].assign(here=settings["quantity"].map(here)))
    page.heading("Verdicts")
    page.text(claims_table(claims.RANDOM, random))
    if "residual" in kinds:
        page.text(claims_table(claims.RESIDUAL, {"residual": kinds["residual"]}))
    page.text(claims_table(claims.THEOREMS, {"channel by channel": theorems}))
    page.text(claims_table([claims.power], {"all networks": rows}), claims.CRITERIA)

    page.heading("Theorem 1: with LN, P - P1 <= rho^(l-1)")
    page.figure(plot_theorem1(nets), "P - P1 by depth, and nonlinearity", "theorem1")
    page.text(
        "Thin lines are draws, bands a standard deviation; a nonlinearity below 1e-5 is drawn "
        "there. Cells are pairs of draw and depth: of every depth in the nets that have all "
        "normalisations, and else of depths up to 20 and every tenth from there."
    )
    _table(page, bound_table(rows))
    page.text(
        "With phi = identity the bound is an equality (Proposition 6), again up to constants. The "
        "largest error over depths, as a mean over draws and of all draws:"
    )
    _table(page, equality_table(rows))
    worst = theorems.pivot_table(
        index=["theorem", "case"], columns="term", values="error", aggfunc="max", sort=False
    )
    page.heading("Theorem 2: IN's constraints")
    page.text("Largest distance over channels, depths and draws from P = P3 = 1, P1 = P2 = P4 = 0:")
    _table(page, worst.loc[2, ["P", *TERMS]].reset_index())
    page.heading("Theorem 3: ProxyNorm's guarantee")
    page.text(THEOREM_3)
    _table(page, worst.loc[3, ["P", "P1"]].reset_index())
    for name, kind in kinds.items():
        _net(page, name, kind, paper)


def _table(page: Page, table: pd.DataFrame) -> None:
    lines = [
        [f"{cell:.3g}" if isinstance(cell, float) else cell for cell in line]
        for line in table.itertuples(index=False)
    ]
    page.table(list(table.columns), lines)


def _of(nets: dict[str, pd.DataFrame], column: str) -> str:
    values = {kind: part[column].max() for kind, part in nets.items()}
    if len(set(values.values())) == 1:
        return str(next(iter(values.values())))
    return ", ".join(f"{value} ({kind})" for kind, value in values.items())


def _net(page: Page, name: str, kind: Kind, paper: pd.DataFrame) -> None:
    rows, common = kind.main, kind.depth
    blocks, layers = (1, 4, 8, 12, 16), (1, 5, 10, 20, 50, 100, 200)
    depths = [d for d in (blocks if name == "residual" else layers) if d <= kind.last]
    page.heading(f"{HEADINGS[name]}, width {rows['width'].iloc[0]}")
    shown = rows[rows["depth"] <= claims.COMMON]
    powers = plot_power(dict(list(shown.groupby("norm", sort=False))))
    page.figure(powers, "Power plots", f"power_{name}")
    if name == "residual":
        page.text(RESIDUAL.format(n=rows["inputs"].iloc[0]))
    page.text("P1 by depth:")
    _table(page, depth_table(rows, "P1", depths, 3))
    page.text(
        f"All terms at l = {common}; the last column is the share of the power that lies "
        "elsewhere than with BN:"
    )
    _table(page, terms_table(rows, common))
    ours = {term: at_depth(rows, term, common).agg(mean_sd, digits=6) for term in ("P", *TERMS)}
    known = paper[paper["norm"].isin(rows["norm"])]
    page.table(
        ["norm", "term", "paper", f"here, l = {common}", "where the paper says so"],
        [[n, term, value, ours[term][n], source] for n, term, value, source in known.to_numpy()],
    )
    page.text(
        f"Which P1 at l = {common} is higher (Wilcoxon's signed-rank test over draws, p after "
        f"Holm, level {claims.LEVEL:g}; {kind.n_draws} draws and {len(kind.tests)} tests cannot "
        f"give less than {kind.least_p:.2g}):"
    )
    _table(page, kind.tests)
    if rows["nonlinearity"].notna().any():
        page.text("P(z - z~) / P(z), 0 where phi is linear in each channel:")
        _table(page, depth_table(rows, "nonlinearity", depths, 4))


def at_least_two(text: str) -> int:
    """The number of draws, over which normalisations are compared."""
    if int(text) < 2:
        raise argparse.ArgumentTypeError(f"takes 2 or more, not {text}")
    return int(text)


KEY = ("net", "width", "phi", "norm", "draw", "depth")
STUDY = Study(
    NAME,
    "Do random nets with layer norm collapse, and does Proxy Normalization prevent it?",
    __doc__.splitlines()[0],
    "benchmarks.papers.proxynorm.random_nets",
    (
        Experiment(NAME, (*KEY, "inputs"), ("P", *TERMS, "nonlinearity"), network_jobs, KEY),
        Experiment(
            f"{NAME}_theorems", ("theorem", "case", "draw", "term"), ("error",), theorem_jobs
        ),
    ),
    write,
    lambda parser: parser.add_argument("--draws", type=at_least_two, help="8; 2 with --quick"),
)

if __name__ == "__main__":
    STUDY.main()
