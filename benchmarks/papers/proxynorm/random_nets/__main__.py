"""Do layer-normalised random nets collapse, and does Proxy Normalization prevent it?

Sections 4 and 5 of the Proxy Normalization paper for networks with random weights: the power of
each layer (Figure 2, top), Theorem 1's bound to depth 200 and how linear layers become (Figure 5),
Theorems 2 and 3, residual networks at initialisation (Figure 6).

    python -m benchmarks.papers.proxynorm.random_nets [--quick] [--out FOLDER] [--report]
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd

from benchmarks.common.claims import claims_table
from benchmarks.common.command import Arguments, Experiment, Job, Study
from benchmarks.common.page import Page
from benchmarks.common.results import Row
from benchmarks.papers.proxynorm.figures import plot_theorem1
from benchmarks.papers.proxynorm.random_nets import claims
from benchmarks.papers.proxynorm.random_nets.nets import GROUP_SIZE, RHO, TERMS, WITH_IN, Net
from benchmarks.papers.proxynorm.random_nets.theorems import CHECKED, cases
from combutab.plotting import plot_power

NAME = "proxynorm_random_nets"
EXPECTED = Path(__file__).parents[1] / "expected" / f"{NAME}.csv"
LN = ("LN",)
FULL = (
    Net("conv", 128, 200, WITH_IN, every_depth=True),
    Net("dense", 512, 200, every_depth=True),
    Net("residual", 16, 16, n_inputs=128),
    # how the bound of Theorem 1 depends on the width; the last is the paper's
    *(Net("conv", width, 200, LN) for width in (32, 64)),
    *(Net("dense", width, 200, LN) for width in (64, 256, 1024)),
    # Proposition 6: with phi = identity the bound is an equality
    *(Net("conv", width, 200, LN, phi="identity") for width in (32, 128)),
    *(Net("dense", width, 200, LN, phi="identity") for width in (64, 512)),
)
QUICK = (
    Net("conv", 16, 6, WITH_IN, n_inputs=32),
    Net("dense", 32, 6, n_inputs=32),
    Net("residual", 2, 4, n_inputs=32),
    Net("dense", 16, 6, LN, n_inputs=32),
    Net("dense", 32, 6, LN, phi="identity", n_inputs=32),
)


def draws(arguments: Arguments) -> range:
    """8 are the fewest with which six tests at a time can find a difference."""
    return range(2 if arguments.quick else 8)


def network_jobs(arguments: Arguments) -> list[Job]:
    """One draw of all nets after another."""

    def job(net: Net, draw: int) -> Job:
        own = {"net": net.kind, "width": net.width, "phi": net.phi, "draw": draw}
        own = {name: str(value) for name, value in (own | {"inputs": net.n_inputs}).items()}
        wanted = [{**own, "norm": norm, "depth": str(depth)} for norm, depth in net.sites]
        return Job(wanted, partial(measured, net, draw), ", ".join(own.values()))

    nets = QUICK if arguments.quick else FULL
    return [job(net, draw) for draw in draws(arguments) for net in nets]


def measured(net: Net, draw: int) -> list[Row]:
    """Powers and nonlinearity as text, in the order of the net's sites."""
    digits = dict.fromkeys((*TERMS, "nonlinearity"), ".5g") | {"P": ".9g"}
    return [
        {"nonlinearity": ""} | {name: f"{value:{digits[name]}}" for name, value in row.items()}
        for row in net.measure(draw).to_dict("records")
    ]


def theorem_jobs(arguments: Arguments) -> list[Job]:
    """All cases of Theorems 2 and 3, a draw after another."""
    size, n_points = ((16, 6), 2001) if arguments.quick else ((32, 50), 20_001)
    found = cases(Net("conv", *size), n_points)
    names = [(t, case, term) for t, case in found for term in CHECKED[t]]

    def run(draw: int) -> list[Row]:
        errors = {name: find(draw) for name, find in found.items()}
        return [{"error": f"{errors[t, case][term]:.4g}"} for t, case, term in names]

    def job(draw: int) -> Job:
        wanted = [{"theorem": str(t), "case": c, "draw": str(draw), "term": x} for t, c, x in names]
        return Job(wanted, partial(run, draw), f"theorems, draw {draw}")

    return [job(draw) for draw in draws(arguments)]


DESIGN = """\
Layers are Definition 1's: a 3 x 3 convolution with periodic boundaries (the first one halves the
image) or a dense layer, a normalisation, gamma ~ N(1, 0.2²) and beta ~ N(0, 0.2²), ReLU; weights
are normal, cut at two standard deviations; PN has eps 0.03 and a standard normal proxy. The nets of
a draw share weights, gamma and beta; ± is the standard deviation over draws. scikit-learn's digits
stand in for CIFAR-10 and ImageNet; dense nets have no positions, so no P3, P4 and IN. The paper has
these results as figures alone; what its theorems and text say in numbers stands beside ours."""
THEOREM_1 = """\
Thin lines are draws, bands a standard deviation; a nonlinearity below 1e-5 is drawn there. Cells
are pairs of draw and depth: of every depth in the nets that have all normalisations, and else of
depths up to 20 and every tenth from there."""
PROPOSITION_6 = """\
With phi = identity the bound is an equality (Proposition 6), again up to constants. The largest
error over depths, as a mean over draws and of all draws:"""
THEOREM_3 = """\
Largest distance over channels (gamma and beta drawn) and draws from P = 1 and P1 = 0 of what
ProxyNorm with eps = 0 gives for channels of that distribution, of mean 0 and variance 1; condition
(iii) is that they are normal. Moments without a closed form are taken over 256 proxy points, or as
many as the data has."""
RESIDUAL = """\
ResNet-50 (v2) with a quarter of its widths: 16 bottleneck blocks, a stem of one 3 x 3 convolution,
the image halved once, gamma = 1 and beta = 0, GN with the paper's group sizes. A block's three
normalisations are pooled, over {} inputs (256 in the paper), and BN's statistics are of all."""


def write(page: Page, arguments: Arguments, rows: pd.DataFrame, theorems: pd.DataFrame) -> None:
    theorems = theorems.astype({"error": float})  # elsewhere an error is a message
    kinds = {kind: claims.Kind(part) for kind, part in rows.groupby("net", sort=False)}
    random = {kind: kinds[kind] for kind in ("conv", "dense")}
    paper = pd.read_csv(EXPECTED, dtype=str)
    page.text(DESIGN)
    here = {
        name: ", ".join(f"{found.main[name].max()} ({kind})" for kind, found in random.items())
        for name in ("inputs", "width", "depth")
    }
    here |= {"group size": GROUP_SIZE, "draws": rows["draw"].nunique(), "rho": f"{RHO:.3f}"}
    settings = paper[paper["norm"] == "setting"]
    add_table(page, settings[["quantity", "paper"]].assign(here=settings["quantity"].map(here)))
    page.heading("Verdicts")
    page.text(
        claims_table(claims.RANDOM, random),
        claims_table(claims.RESIDUAL, {"residual": kinds["residual"]}),
        claims_table(claims.THEOREMS, {"channel by channel": theorems}),
        claims_table([claims.power], {"all networks": rows}),
        claims.CRITERIA,
    )
    page.heading("Theorem 1: with LN, P - P1 <= rho^(l-1)")
    figure = plot_theorem1({name: kind.main for name, kind in random.items()})
    page.figure(figure, "P - P1 by depth, and nonlinearity", "theorem1")
    add_table(page, claims.bound_table(rows), THEOREM_1)
    add_table(page, claims.equality_table(rows), PROPOSITION_6)
    worst = theorems.pivot_table("error", ["theorem", "case"], "term", aggfunc="max", sort=False)
    page.heading("Theorem 2: IN's constraints")
    text = "Largest distance over channels, depths and draws from P = P3 = 1, P1 = P2 = P4 = 0:"
    add_table(page, worst.loc[2, TERMS].reset_index(), text)
    page.heading("Theorem 3: ProxyNorm's guarantee")
    add_table(page, worst.loc[3, ["P", "P1"]].reset_index(), THEOREM_3)
    for name, kind in kinds.items():
        write_kind(page, name, kind, paper)


def add_table(page: Page, table: pd.DataFrame, text: str = "") -> None:
    """Add a table, with its numbers to three digits, after what it shows."""
    page.text(*[text] * bool(text))
    lines = table.map(lambda cell: f"{cell:.3g}" if isinstance(cell, float) else cell).to_numpy()
    page.table(list(table.columns), lines)


def write_kind(page: Page, name: str, kind: claims.Kind, paper: pd.DataFrame) -> None:
    rows, common, residual = kind.main, kind.depth, name == "residual"
    depths = (1, 4, 8, 12, 16) if residual else (1, 5, 10, 20, 50, 100, 200)

    def by_depth(column: str, digits: int) -> pd.DataFrame:
        columns = {f"l = {d}": claims.at_depth(rows, column, d) for d in depths if d <= kind.last}
        return claims.by_norm(columns, digits)

    page.heading(f"{name.capitalize()} networks, width {rows['width'].iloc[0]}")
    shown = rows[rows["depth"] <= common].groupby("norm", sort=False)
    page.figure(plot_power(dict(list(shown))), "Power plots", f"power_{name}")
    if residual:
        page.text(RESIDUAL.format(rows["inputs"].iloc[0]))
    add_table(page, by_depth("P1", 3), "P1 by depth:")
    terms = {term: claims.at_depth(rows, term, common) for term in TERMS}
    add_table(
        page,
        claims.by_norm({**terms, "from BN": claims.from_bn(rows, common)}).drop(columns="P"),
        f"All terms at l = {common}; the last column is the share of the power that lies elsewhere "
        "than with BN:",
    )
    ours = claims.by_norm(terms, 6).set_index("norm").stack().rename(f"here, l = {common}")
    known = paper.rename(columns={"quantity": "term"}).join(ours, on=["norm", "term"], how="inner")
    add_table(page, known[["norm", "term", "paper", ours.name, "source"]])
    add_table(
        page,
        kind.tests,
        f"Which P1 at l = {common} is higher (Wilcoxon's signed-rank test over draws, p after "
        f"Holm, level {claims.LEVEL:g}; {kind.n_draws} draws and {len(kind.tests)} tests cannot "
        f"give less than {kind.least_p:.2g}):",
    )
    if not residual:
        text = "P(z - z~) / P(z), 0 where phi is linear in each channel:"
        add_table(page, by_depth("nonlinearity", 4), text)


KEY = ("net", "width", "phi", "norm", "draw", "depth")
CASE = ("theorem", "case", "draw", "term")
STUDY = Study(
    NAME,
    "Do random nets with layer norm collapse, and does Proxy Normalization prevent it?",
    __doc__.splitlines()[0],
    "benchmarks.papers.proxynorm.random_nets",
    (
        Experiment(NAME, (*KEY, "inputs"), (*TERMS, "nonlinearity"), network_jobs, KEY),
        Experiment(f"{NAME}_theorems", CASE, ("error",), theorem_jobs),
    ),
    write,
)

if __name__ == "__main__":
    STUDY.main()
