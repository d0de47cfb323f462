"""Do layer-normalised random nets collapse, and does Proxy Normalization prevent it?

Sections 4 and 5 of the Proxy Normalization paper for networks with random weights: the power of
each layer (Figure 2, top), Theorem 1's bound to depth 200 and how linear layers become (Figure 5),
Theorems 2 and 3, residual networks at initialisation (Figure 6).

    python -m benchmarks.papers.proxynorm.random_nets [--quick] [--out FOLDER] [--report]
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common.command import Arguments, Experiment, Job, Study
from benchmarks.common.looks import Line, plot
from benchmarks.common.page import Page
from benchmarks.common.results import Row
from benchmarks.common.verdicts import Claim, Verdict, beats, claims_table, exact
from benchmarks.papers.proxynorm.figures import look
from benchmarks.papers.proxynorm.random_nets.nets import RHO, TERMS, WITH_IN, Net
from benchmarks.papers.proxynorm.random_nets.theorems import CHECKED, cases
from combutab.plotting import plot_power

NAME = "proxynorm_random_nets"
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
COMMON = 20  # the depth of Figure 2's right edge
ROUNDING, CONSTANT = 1e-10, 0.01  # of float64; of the power, where a theorem has "small constants"


def draws(arguments: Arguments) -> range:
    return range(2 if arguments.quick else 8)


def network_jobs(arguments: Arguments) -> Iterator[Job]:
    """One draw of all nets after another."""
    for draw in draws(arguments):
        for net in QUICK if arguments.quick else FULL:
            own = {"net": net.kind, "width": net.width, "phi": net.phi, "draw": draw}
            own = {name: str(value) for name, value in (own | {"inputs": net.n_inputs}).items()}
            wanted = [{**own, "norm": norm, "depth": str(depth)} for norm, depth in net.sites]
            yield Job(wanted, partial(measured, net, draw), ", ".join(own.values()))


def measured(net: Net, draw: int) -> list[Row]:
    """Powers and nonlinearity as text, in the order of the net's sites."""
    digits = dict.fromkeys((*TERMS, "nonlinearity"), ".5g") | {"P": ".9g"}
    return [
        {"nonlinearity": ""} | {name: f"{value:{digits[name]}}" for name, value in row.items()}
        for row in net.measure(draw).to_dict("records")
    ]


def theorem_jobs(arguments: Arguments) -> Iterator[Job]:
    """All cases of Theorems 2 and 3, a draw after another."""
    size, n_points = ((16, 6), 2001) if arguments.quick else ((32, 50), 20_001)
    found = cases(Net("conv", *size), n_points)
    names = [(t, case, term) for t, case in found for term in CHECKED[t]]

    def run(draw: int) -> list[Row]:
        errors = {name: find(draw) for name, find in found.items()}
        return [{"error": f"{errors[t, case][term]:.4g}"} for t, case, term in names]

    for draw in draws(arguments):
        own = [{"theorem": str(t), "case": c, "draw": str(draw), "term": x} for t, c, x in names]
        yield Job(own, partial(run, draw), f"theorems, draw {draw}")


# ---- The paper's claims ---------------------------------------------------------------------


def derived(rows: pd.DataFrame) -> pd.DataFrame:
    """Add shares of the power, and for LN in random nets the bound and what exceeds it."""
    key = ["net", "width", "phi", "draw", "depth"]
    bn = rows[rows["norm"] == "BN"].set_index(key)[TERMS[1:]]
    both = rows.join(bn, on=key, rsuffix=" of BN")
    gaps = [(both[term] - both[f"{term} of BN"]).abs() for term in TERMS[1:]]
    varying = rows["P2"] + rows["P3"] + rows["P4"]  # not P - P1: no cancellation
    bound = RHO ** (rows["depth"] - 1.0)
    shares = {"P2 + P4": rows["P2"] + rows["P4"], "elsewhere than BN's": sum(gaps) / 2}
    return rows.assign(**shares, varying=varying, bound=bound, over=varying - bound)


def layer_norm(rows: pd.DataFrame, phi: str, widest: bool = True) -> pd.DataFrame:
    """Select the nets with LN, of the largest or the smallest width."""
    own = rows[(rows["norm"] == "LN") & (rows["phi"] == phi)]
    return own[own["width"] == (own["width"].max() if widest else own["width"].min())]


def main_net(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the width that has all norms."""
    own = rows[rows["phi"] == "relu"]
    return own[own["width"] == own.groupby("width")["norm"].nunique().idxmax()]


def higher(where: str, text: str, column: str, a: str | float, b: str | float) -> Claim:
    """Make a claim that a norm's share (or a number) is above another's, over draws.

    Nonlinearity is that of the last layer, shares of the power are those at l = 20 at most.
    """

    def judge(rows: pd.DataFrame, margin: float) -> Verdict | None:
        own = main_net(rows)
        last = own["depth"].max() if column == "nonlinearity" else min(COMMON, own["depth"].max())
        values = own[own["depth"] == last].pivot(index="draw", columns="norm", values=column)
        if not {norm for norm in (a, b) if isinstance(norm, str)} <= set(values):
            return None
        if isinstance(a, str):
            return beats(values[a], values[b] if isinstance(b, str) else b)
        return beats(values[b], a, greater_is_better=False)

    return Claim(where, text, "draw of all networks", judge, measure=column)


def bounded(rows: pd.DataFrame, tolerance: float) -> Verdict:
    return exact(layer_norm(rows, "relu")["over"].clip(lower=0), tolerance)


def equal(rows: pd.DataFrame, tolerance: float) -> Verdict:
    return exact(layer_norm(rows, "identity")["over"], tolerance)


def nearer(rows: pd.DataFrame, margin: float) -> Verdict:
    narrow, wide = (layer_norm(rows, "identity", widest) for widest in (False, True))
    return beats(*(own["over"].abs().groupby(own["draw"]).max() for own in (narrow, wide)))


def errors(theorem: int, term: str, case: str, measure: str) -> Claim:
    """Make a claim of the errors of a theorem's cases whose names match."""

    def judge(theorems: pd.DataFrame, tolerance: float) -> Verdict:
        own = theorems[(theorems["theorem"] == theorem) & theorems["case"].str.contains(case)]
        return exact(own["error"][own["term"].str.fullmatch(term)], tolerance)

    text = {
        2: "with IN each channel has P = P3 = 1 and P1 = P2 = P4 = 0",
        3: f"given standard normal channels, PN gives channels with {term} = {int(term == 'P')}",
    }[theorem]
    tolerance = ROUNDING if theorem == 2 else CONSTANT
    return Claim(f"Theorem {theorem}", text, "exact", judge, tolerance, measure)


FIGURE_2, FIGURE_5, LINEAR = "Figure 2 top", "Figure 5 right", "nonlinearity"
RANDOM = (
    Claim("Theorem 1, Figure 5 left", "with LN, P - P1 <= rho^(l-1) but for 0.01", "exact",
          bounded, CONSTANT, "excess at the largest width"),
    Claim("Proposition 6", "with phi = identity, P - P1 equals rho^(l-1)", "exact", equal, CONSTANT,
          "difference at the largest width"),
    Claim("Proposition 6", "with phi = identity, P - P1 nears rho^(l-1) as the width grows", "draw",
          nearer, measure="largest distance, smallest less largest width"),
    higher(FIGURE_2, "channels collapse with LN: P1 above 0.5", "P1", "LN", 0.5),
    higher(FIGURE_2, "channels collapse less with GN than with LN", "P1", "LN", "GN"),
    *(higher(FIGURE_2, f"channels do not collapse with {norm}: P1 below 0.01", "P1", 0.01, norm)
      for norm in ("BN", "IN")),
    higher(FIGURE_2, "instances hardly vary with IN: less than 0.01", "P2 + P4", 0.01, "IN"),
    higher(FIGURE_2, "instances vary more with GN than with IN", "P2 + P4", "GN", "IN"),
    higher(FIGURE_2, "instances vary less with GN than with BN", "P2 + P4", "BN", "GN"),
    *(higher(FIGURE_2, f"powers with {norm} resemble BN's: less than 0.1 is elsewhere",
             "elsewhere than BN's", 0.1, norm) for norm in ("LN+PN", "GN+PN")),
    higher(FIGURE_2, "LN+WS lets P1 rise more than LN+PN", "P1", "LN+WS", "LN+PN"),
    higher(FIGURE_5, "layers become channel-wise linear with LN: below 0.01", LINEAR, 0.01, "LN"),
    higher(FIGURE_5, "layers become nearly linear with GN: below 0.1", LINEAR, 0.1, "GN"),
    *(higher(FIGURE_5, f"layers stay nonlinear with {norm}: above 0.1", LINEAR, norm, 0.1)
      for norm in ("BN", "LN+PN", "GN+PN")),
)  # fmt: skip
RESIDUAL = (
    higher("Figure 6", "at initialisation LN collapses more than GN", "P1", "LN", "GN"),
    higher("Figure 6", "at initialisation LN keeps P1 below 0.9", "P1", 0.9, "LN"),
    higher("Figure 6", "at initialisation LN+WS keeps P1 below 0.1", "P1", 0.1, "LN+WS"),
    higher("Figure 6", "at initialisation LN+PN keeps P1 below 0.1", "P1", 0.1, "LN+PN"),
)
THEOREMS = (
    errors(2, ".*", "float64", "float64"),
    errors(3, "P1", ", normal", "P1"),
    errors(3, "P", "normal, proxy of", "P - 1, as many proxy points as data"),
)
POWER = Claim(
    "Proposition 3, Figure 5 centre", "P = 1 with every normalisation", "exact",
    lambda rows, tolerance: exact(rows["P"] - 1, tolerance), 1e-3, "P - 1, float32, eps 1e-6",
)  # fmt: skip

# ---- The page -------------------------------------------------------------------------------

DESIGN = """\
Layers are Definition 1's: a 3 x 3 convolution with periodic boundaries (the first one halves the
image) or a dense layer, a normalisation, gamma ~ N(1, 0.2²) and beta ~ N(0, 0.2²), ReLU; weights
are normal, cut at two standard deviations; PN has eps 0.03 and a standard normal proxy. The nets of
a draw share weights, gamma and beta. scikit-learn's digits stand in for CIFAR-10 and ImageNet;
dense nets have no positions, so no P3, P4 and IN. Shares of the power are at l = 20 (residual: 16),
nonlinearity at the last layer. The paper shows curves: the thresholds in the claims are ours.

The paper has width 1024, 128 inputs and 50 draws; here the largest nets with all norms have width
128 (conv) and 512 (dense), 64 inputs and 8 draws. Depth 200, groups of 8 channels and rho = 0.963
are the paper's."""
THEOREM_3 = """\
Largest distance over channels (gamma and beta drawn) and draws. Theorem 3: from P = 1 and P1 = 0 of
what ProxyNorm with eps = 0 gives for channels of that distribution, of mean 0 and variance 1;
condition (iii) is that they are normal. Moments without a closed form are taken over 256 proxy
points, or as many as the data has."""
RESIDUAL_TEXT = """\
ResNet-50 (v2) with a quarter of its widths: 16 bottleneck blocks, a stem of one 3 x 3 convolution,
the image halved once, gamma = 1 and beta = 0, GN with the paper's group sizes. A block's three
normalisations are pooled, over {} inputs (256 in the paper), and BN's statistics are of all."""


def write(page: Page, arguments: Arguments, rows: pd.DataFrame, theorems: pd.DataFrame) -> None:
    theorems = theorems.astype({"error": float})  # elsewhere an error is a message
    rows = derived(rows)
    kinds = dict(list(rows.groupby("net", sort=False)))
    main = {kind: main_net(part) for kind, part in kinds.items()}
    random = {kind: kinds[kind] for kind in ("conv", "dense")}
    page.text(DESIGN, claims_table(RANDOM, random))
    page.text(claims_table(RESIDUAL, {"residual": kinds["residual"]}))
    page.text(claims_table((POWER,), {"all networks": rows}))
    page.text(claims_table(THEOREMS, {"channel by channel": theorems}))
    figure = plot_theorem1({kind: main[kind] for kind in random})
    page.figure(figure, "P - P1 with LN under its bound, and nonlinearity, by depth", "theorem1")
    with page.details("Theorem 1 and Proposition 6 by width"):
        own = rows[(rows["norm"] == "LN") & (rows["net"] != "residual")]
        own = own.assign(over=own["over"].where(own["phi"] == "relu", own["over"].abs()).clip(0))
        groups = own.groupby(["phi", "net", "width"], sort=False)
        table = groups.agg(
            draws=("draw", "nunique"), depths=("depth", "max"), cells=("over", "size")
        )
        # y has P <= 1, and at l = 1 the bound is 1: rounding there is no violation
        table["above the bound"] = groups["over"].agg(lambda over: (over > 1e-6).sum())
        table["largest"] = groups["over"].max()
        add_table(page, table.reset_index())
    with page.details("Theorems 2 and 3 by case"):
        worst = theorems.pivot_table("error", ["theorem", "case"], "term", "max", sort=False)
        add_table(page, worst.reset_index(), THEOREM_3)
    with page.details("Power plots of convolutional networks"):
        shown = main["conv"][main["conv"]["depth"] <= COMMON].groupby("norm", sort=False)
        page.figure(plot_power(dict(list(shown))), "Shares of the power by depth", "power_conv")
    for kind, own in main.items():
        with page.details(f"{kind.capitalize()} networks: shares by depth (mean ± SD over draws)"):
            if kind == "residual":
                page.text(RESIDUAL_TEXT.format(own["inputs"].iloc[0]))
            for column in ("P1", "P2", "P3", "P4", "nonlinearity"):
                shown = own[own["depth"].isin((1, 5, 10, 16, 20, 50, 100, 200))]
                groups = shown.dropna(subset=column).groupby(["norm", "depth"], sort=False)[column]
                text = groups.agg(lambda x: f"{x.mean():.3f} ± {x.std():.3f}").unstack()
                if not text.empty:
                    add_table(page, text.add_prefix("l = ").reset_index(), f"{column}:")


def add_table(page: Page, table: pd.DataFrame, text: str = "") -> None:
    """Add a table, with its numbers to three digits, after what it shows."""
    page.text(*[text] * bool(text))
    lines = table.map(lambda cell: f"{cell:.3g}" if isinstance(cell, float) else cell).to_numpy()
    page.table(list(table.columns), lines)


def plot_theorem1(nets: dict[str, pd.DataFrame]) -> Figure:
    """Draw, a row for each kind of net, P - P1 with LN under its bound, and the nonlinearity."""
    panels: dict[str, list[Line]] = {}
    for kind, rows in nets.items():
        found = rows[rows["norm"] == "LN"].groupby("depth")["varying"]
        title, mean = f"{kind}, width {rows['width'].iloc[0]}", found.mean()
        panels[f"{title}: P - P1 with LN, mean and range of draws"] = [
            Line(mean.index, mean, "LN", look("LN"), found.min(), found.max()),
            Line(mean.index, RHO ** (mean.index - 1.0), "bound rho^(l-1)", ("#000000", "", ":")),
        ]
        measure = panels[f"{title}: P(z - z~) / P(z), 0 is channel-wise linear"] = []
        for norm in ("BN", "LN", "GN", "LN+PN", "GN+PN", "LN+WS"):
            own = rows[rows["norm"] == norm].dropna(subset="nonlinearity")
            over = own.groupby("depth")["nonlinearity"]
            low, middle, high = (each.clip(1e-5) for each in (over.min(), over.mean(), over.max()))
            measure.append(Line(middle.index, middle, norm, look(norm), low, high))
    labels, scales = ("depth l", "share of the power"), ("linear", "log")
    return plot(panels, labels, n_columns=2, scales=scales, share="row")


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
