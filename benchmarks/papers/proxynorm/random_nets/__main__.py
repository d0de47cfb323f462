"""Do random networks with layer norm collapse, and does Proxy Normalization (PN) prevent it?

Sections 4 and 5 of the Proxy Normalization paper, for networks with random weights: the power of
each layer (Figure 2, top), Theorem 1's bound up to depth 200 and how linear layers become (Figure
5), and residual networks at initialisation (Figure 6).

Norms: BN is batch norm, LN layer norm, GN group norm, IN instance norm; "+WS" adds weight
standardisation. P, the power of a layer, is the mean square of its normalised units. With m and s,
the mean and standard deviation over the positions of one input in a channel, P is the sum of four
terms over the inputs: P1 = E[m]², P2 = Var[m], P3 = E[s]² and P4 = Var[s]. If P1 is near P,
channels have collapsed: they hardly depend on the input. Nonlinearity is P(z - z~) / P(z), where z
is a ReLU's output and z~ its best linear fit in each channel: 0 is channel-wise linear.

The layers follow the paper's Definition 1: a 3 x 3 convolution with periodic boundaries, or a dense
layer, then a normalisation, a scale gamma ~ N(1, 0.2²), a shift beta ~ N(0, 0.2²), and ReLU. The
first convolution halves the image. Weights are normal, truncated at two standard deviations. PN has
eps 0.03 and a standard normal proxy. All networks of a draw share weights, gamma and beta.

The inputs are scikit-learn's digits instead of CIFAR-10 and ImageNet. Dense networks have no
positions, so they have no P3, no P4 and no IN. Shares of the power are measured at layer l = 20
(residual networks: l = 16), and nonlinearity at the last layer. The paper shows curves without
numbers, so we chose the thresholds in the claims.

The paper uses width 1024, 128 inputs and 50 draws. Here the largest networks with all norms have
width 128 (conv) and 512 (dense), 64 inputs and 8 draws. Depth 200, groups of 8 channels and
rho = 0.963 are the same as in the paper.

The residual network of Figure 6 is a ResNet-50 (v2) with a quarter of its widths: 16 bottleneck
blocks, a stem of one 3 x 3 convolution, the image halved once, gamma = 1 and beta = 0, and GN with
the paper's group sizes. P1 to P4 are averaged over the three normalisations of a block and over 128
inputs (the paper: 256). BN computes its statistics from all inputs.

    python -m benchmarks.papers.proxynorm.random_nets [--quick] [--out FOLDER] [--report]
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.common.looks import Line, plot
from benchmarks.common.verdicts import Claim, Verdict, add_claims, beats, exact
from benchmarks.papers.proxynorm.figures import look
from benchmarks.papers.proxynorm.random_nets.nets import RHO, TERMS, WITH_IN, Net
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
CONSTANT = 0.01  # of the power, where a theorem has "small constants"


def network_jobs(arguments: Arguments) -> Iterator[Job]:
    """One draw of all nets after another."""
    for draw in range(2 if arguments.quick else 8):
        for net in QUICK if arguments.quick else FULL:
            own = {"net": net.kind, "width": net.width, "phi": net.phi, "draw": draw}
            own |= {"inputs": net.n_inputs}
            wanted = [{**own, "norm": norm, "depth": depth} for norm, depth in net.sites]
            yield Job(wanted, partial(measured, net, draw))


def measured(net: Net, draw: int) -> list[Row]:
    """Powers and nonlinearity, in the order of the net's sites."""
    return net.measure(draw).to_dict("records")


# ---- The paper's claims ---------------------------------------------------------------------


def derived(rows: pd.DataFrame) -> pd.DataFrame:
    """Add shares of the power, and for LN in random nets the bound and what exceeds it."""
    key = ["net", "width", "phi", "draw", "depth"]
    bn = rows[rows["norm"] == "BN"].set_index(key)[TERMS[1:]]
    both = rows.join(bn, on=key, rsuffix=" of BN")
    gaps = [(both[term] - both[f"{term} of BN"]).abs() for term in TERMS[1:]]
    varying = rows["P2"] + rows["P3"] + rows["P4"]  # not P - P1: no cancellation
    bound = RHO ** (rows["depth"] - 1.0)
    shares = {"P2 + P4": rows["P2"] + rows["P4"], "distance from BN's shares": sum(gaps) / 2}
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
        if not {x for x in (a, b) if isinstance(x, str)} <= set(values):
            return None
        return beats(*(pd.Series(values.get(x, x), values.index) for x in (a, b)))

    return Claim(where, text, "draw of all networks", judge, measure=column)


def bounded(rows: pd.DataFrame, tolerance: float) -> Verdict:
    return exact(layer_norm(rows, "relu")["over"].clip(lower=0), tolerance)


def equal(rows: pd.DataFrame, tolerance: float) -> Verdict:
    return exact(layer_norm(rows, "identity")["over"], tolerance)


def nearer(rows: pd.DataFrame, margin: float) -> Verdict:
    narrow, wide = (layer_norm(rows, "identity", widest) for widest in (False, True))
    return beats(*(own["over"].abs().groupby(own["draw"]).max() for own in (narrow, wide)))


TABLE = pd.read_csv(Path(__file__).with_name("claims.csv")).to_numpy()
HIGHER = [higher(*(float(x) if x[0] == "0" else x for x in row)) for row in TABLE]
RESIDUAL = [claim for claim in HIGHER if claim.where == "Figure 6"]
RANDOM = (
    Claim("Theorem 1, Figure 5 left", "with LN, P - P1 <= rho^(l-1) + 0.01", "exact",
          bounded, CONSTANT, "excess at the largest width"),
    Claim("Proposition 6", "with phi = identity, P - P1 equals rho^(l-1)", "exact", equal, CONSTANT,
          "difference at the largest width"),
    Claim("Proposition 6",
          "with phi = identity, P - P1 approaches rho^(l-1) as the width increases", "draw",
          nearer, measure="largest distance at the smallest width - at the largest"),
    *(claim for claim in HIGHER if claim not in RESIDUAL),
)  # fmt: skip

# ---- The page -------------------------------------------------------------------------------


def write(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    rows = derived(rows)
    kinds = dict(list(rows.groupby("net", sort=False)))
    main = {kind: main_net(part) for kind, part in kinds.items()}
    random = {kind: kinds[kind] for kind in ("conv", "dense")}
    add_claims(page, RANDOM, random)
    add_claims(page, RESIDUAL, {"residual": kinds["residual"]})
    figure = plot_theorem1({kind: main[kind] for kind in random})
    page.figure(figure, "P - P1 with LN, its bound, and nonlinearity, by depth", "theorem1")
    with page.details("Power plots of convolutional networks"):
        shown = main["conv"][main["conv"]["depth"] <= COMMON].groupby("norm", sort=False)
        page.figure(plot_power(dict(list(shown))), "Shares of the power by depth", "power_conv")


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
STUDY = Study(
    "benchmarks.papers.proxynorm.random_nets",
    "Networks with random weights: layer norm and Proxy Normalization",
    __doc__,
    [Experiment(NAME, (*KEY, "inputs"), (*TERMS, "nonlinearity"), network_jobs, KEY)],
    write,
)

if __name__ == "__main__":
    STUDY.main()
