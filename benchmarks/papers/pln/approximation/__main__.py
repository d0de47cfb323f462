"""How well do networks of one hidden layer approximate, by activation, norm size and width?

Section 4.2 of the PLN paper: Figures 3, 4, 5 and A1, Tables I to III; what is done, the page says.
Beside the trained networks stand those that the proofs of propositions 1 to 3 write down.

    python -m benchmarks.papers.pln.approximation [--quick] [--report] [--out FOLDER]

A run that was stopped goes on where it stood; --report writes the report on what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import linregress

from benchmarks.common.claims import Claim, claims_table
from benchmarks.common.command import Arguments, Experiment, Job, Study
from benchmarks.common.looks import LOOKS, Line, Look, cross_table, label, listed, look, plot
from benchmarks.common.page import Page
from benchmarks.papers.pln.approximation import findings, runs
from benchmarks.papers.pln.approximation.findings import CELL, Key, Test
from benchmarks.papers.pln.approximation.runs import CLASSIC, FAMILIES, FURTHER, TARGETS
from benchmarks.papers.pln.shared import stacked_jobs

QUICK = runs.SIZES | {"width": (8, 16), "batch_size": [16], "learning_rate": (1e-1, 1e-2)}
QUICK["activation"] = (*FAMILIES["PLN"][:3], *FAMILIES["PLS"][:3], *CLASSIC)
QUICK["epochs"] = [0.03]


def search_jobs(arguments: Arguments) -> list[Job]:
    settings = runs.search(QUICK if arguments.quick else runs.SIZES)
    return stacked_jobs(settings, runs.STACK, runs.train)


def final_jobs(arguments: Arguments) -> list[Job]:
    """Those of the search, which are done, and then what it chose."""
    rows = pd.read_csv(arguments.out / "pln_approximation.csv.gz", dtype=str)
    settings = runs.finals(QUICK if arguments.quick else runs.SIZES, rows)
    return [*search_jobs(arguments), *stacked_jobs(settings, runs.STACK, runs.train)]


def _verdicts(page: Page, heading: str, text: str, tests: Mapping[Key, Test]) -> None:
    found = findings.decide(tests)
    counts = Counter(finding.verdict for finding in found.values()).most_common()
    claims = [
        Claim(*claim, lambda column, claim=claim: found.get((*claim, column)))
        for claim in dict.fromkeys(key[:2] for key in found)
    ]
    page.heading(heading, 3)
    page.text(f"{text} Of {len(found)}: {'; '.join(f'{name}: {n}' for name, n in counts)}.")
    page.text(claims_table(claims, {column: column for *_, column in found}))


def _method(page: Page, rows: pd.DataFrame) -> None:
    epochs = rows.groupby("data")["epochs"].max()
    widths, sizes, rates = (
        listed(sorted(set(rows[name]))) for name in ("width", "batch_size", "learning_rate")
    )
    points = "; ".join(
        f"{target.label}, {len(target.points)} evenly spaced points, {epochs[name]} epochs"
        for name, target in TARGETS.items()
    )
    page.heading("What was done")
    page.text(f"""\
After section 4.2 of the PLN paper (Figures 3, 4, 5 and A1, Tables I to III). The paper gives the
widths (powers of two, 8 to 4096), optimisers (Adam, SGD), rates (0.1 to 1e-6), seeds (3), batch
sizes ("four": 4, 8, 16) and epochs (1000). It does not give the points that the trigonometric
function is learned from, nor the base of its "logarithmic loss"; Tables I to III are pictures of
fits and hold no numbers. Here:

- Learned: {points}. About as many rows are seen of both.
- Widths {widths}; batches of {sizes}; learning rates {rates}; SGD without momentum.
- The search tries every setting of an activation once, for {runs.SEARCHED:.0%} of the epochs.
  The best ({runs.N_FINALISTS}) are trained again for all of them from {len(runs.FINAL_SEEDS)} new
  seeds; that with the lowest median counts. The paper takes the best of all runs.
- The log loss is the natural logarithm of the mean squared error at the training points. The
  greatest error is taken over {len(runs.GRID)} points of [-5, 5].
- Weights are drawn as torch's linear layers draw them, from raw x in [-5, 5].""")


def _losses(page: Page, table: pd.DataFrame) -> None:
    page.heading("Loss by activation and width")
    page.text(
        "Log loss: median over seeds (least to greatest). Best median of a column in bold. Figure "
        "A1 (b), PLS-2 to PLS-32 on random values at widths 32 to 512, has ticks from -2 to -8."
    )
    best = table["median"] == table.groupby(["data", "width"])["median"].transform("min")
    bold, numbers = best.map({True: "**", False: ""}), table[["median", "low", "high"]].to_numpy()
    texts = zip(bold, *numbers.T, strict=True)
    texts = [f"{b}{middle:.2f}{b} ({low:.1f} to {high:.1f})" for b, middle, low, high in texts]
    for data, part in table.assign(text=texts).groupby("data", sort=False):
        page.heading(TARGETS[data].label, 3)
        cross_table(page, part, "activation", "width")


def _bounds(page: Page, bounds: pd.DataFrame) -> None:
    page.heading("The propositions")
    page.text(
        "A network of N units (groups, for PLN and PLS) can have an error below every epsilon > "
        "L / 2N, by propositions 1 to 3: in log-log a line of slope -1 in the width. Constructed: "
        "the proofs' networks (`combutab.constructions.lipschitz_network`). Trained: median of "
        f"the best setting's seeds. Greatest errors are those at width {bounds['width'].max()}; "
        "below: widths where the best seed is below the bound; above: where the median is above "
        "the constructed network's error."
    )

    def shares(part: pd.DataFrame) -> list[str]:
        return [f"{part[name].sum()} of {len(part)}" for name in ("below", "above")]

    errors, lines = ["bound", "constructed", "sup"], []
    for data, part in bounds.groupby("data", sort=False):
        for name, own in part.groupby("activation", sort=False):
            x, widest = np.log(own["width"]), own.iloc[-1]
            slopes = (f"{linregress(x, np.log(own[column])).slope:.2f}" for column in errors)
            sizes = (f"{widest[column]:.3g}" for column in errors)
            log_loss = f"{widest['constructed_log_loss']:.2f}"
            lines.append([data, label(name), *slopes, *sizes, *shares(own), log_loss])
        lines.append([data, "all", *[""] * 6, *shares(part), ""])
    heads = "slope: bound|constructed|trained|error: bound|constructed|trained|below|above"
    page.table(["target", "", *heads.split("|"), "log loss, constructed"], lines)


def _settings(page: Page, best: pd.DataFrame, rows: pd.DataFrame) -> None:
    chosen = best.drop_duplicates(CELL)
    counts = chosen.groupby(findings.SETTING).size().sort_values(ascending=False)
    settings = "; ".join(
        f"{solver}, batches of {batch}, rate {rate:g}: {count}"
        for (solver, batch, rate), count in counts.items()
    )
    kinds = {name: family for family, names in FAMILIES.items() for name in names}
    rates = chosen.groupby(chosen["activation"].map(kinds).fillna("others"))["learning_rate"]
    medians = "; ".join(f"{family}: {rate:g}" for family, rate in rates.median().items())
    searched = rows[rows["stage"] == "search"].groupby(CELL)["tail_mse"].min()
    reached = best.groupby(CELL)["log_loss"].median()
    above = reached[reached > np.log(searched.reindex(reached.index))].reset_index()["width"]
    widest = best["width"].max()
    page.heading("Settings that were best")
    page.text(
        f"Of {len(chosen)} (target, activation, width): {settings}. Median rate: {medians}. "
        f"{best['mse'].isna().sum()} of {len(best)} final networks diverged. In {len(above)} "
        f"({(above == widest).sum()} at width {widest}) the median after all epochs is above the "
        "loss that the search ended with: a short search favours rates that are quick, but may "
        "not settle."
    )


def write(page: Page, arguments: Arguments, _: pd.DataFrame, rows: pd.DataFrame) -> None:
    best = findings.finals(rows)
    table = findings.cells(best)
    bounds = findings.against_bounds(table)
    page.heading("Verdicts")
    page.text(
        f"Level {findings.LEVEL:g}; p is Holm-adjusted for each table. Seeds vary the networks; "
        "each target is one. What a test does not show is not decided."
    )
    _verdicts(
        page,
        "The paper's orders: who has the lower loss",
        "Medians of the log losses' differences, of networks of one width and seed; widths where "
        "the first's median is lower; Wilcoxon's signed-rank test over widths and seeds.",
        findings.compare(best, findings.ORDERS),
    )
    contest = findings.compare(best, findings.CONTEST)
    title = "PLN-4 and PLS-2 against sigmoid, tanh and ReLU at the same width"
    _verdicts(page, title, "Likewise.", contest)
    said = "Mean ranks of the loss over seeds and the widths that have all sizes; Friedman's test."
    _verdicts(page, "Norm sizes", said, findings.rank_sizes(best))
    said = "Spearman's correlation over widths and seeds."
    _verdicts(page, "The loss falls as the width grows", said, findings.trends(best))
    _method(page, rows)
    _losses(page, table)
    _bounds(page, bounds)
    _settings(page, best, rows)
    page.heading("Figures")
    page.figure(
        plot_losses(table, FAMILIES, _size_look), "Figures 3 and A1: norm sizes", "norm_sizes"
    )
    groups = {"the paper's": ("pln-4", "pls-2", *CLASSIC)}
    groups["further activations"] = ("pln-4", "relu", *FURTHER)
    page.figure(plot_losses(table, groups, look), "Figure 4: activations", "activations")
    page.figure(plot_bounds(bounds), "Greatest errors beside the bounds", "bounds")
    page.figure(plot_fits(best), f"Figure 5: fits at width {runs.FIT_WIDTH}", "fits")


def _size_look(activation: str) -> Look:
    place = runs.norm_size(activation).bit_length() - 1  # 1, 2, 4, ..., 32
    dashes = ("-", "-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1)))[place]
    return matplotlib.colormaps["viridis"](0.166 * place), "oDs^vP"[place], dashes


def plot_losses(
    table: pd.DataFrame, groups: Mapping[str, Sequence[str]], look_of: Callable[[str], Look]
) -> Figure:
    """Draw the log loss by width: a row a target, a column a group of activations."""
    panels = {f"{target.label}: {name}": [] for target in TARGETS.values() for name in groups}
    for (data, name), own in table.groupby(["data", "activation"], sort=False):
        x, y, low, high = (own[column] for column in ("width", "median", "low", "high"))
        for group in (group for group, names in groups.items() if name in names):
            line = Line(x, y, label(name), look_of(name), low, high)
            panels[f"{TARGETS[data].label}: {group}"].append(line)
    labels, scales = ("width", "log loss: ln of the squared error"), ("log", "linear")
    return plot(panels, labels, n_columns=2, ticks=_ticks(table), scales=scales, share="row")


def _ticks(table: pd.DataFrame) -> dict[float, str]:
    return {width: str(width) for width in sorted(set(table["width"]))}


def plot_bounds(bounds: pd.DataFrame) -> Figure:
    """Draw the greatest error on the interval by width: trained, constructed, and the bound."""
    # tanh's network is sigmoid's
    part = bounds[(bounds["data"] == "trigonometric") & (bounds["activation"] != "tanh")]
    panels = {}
    for name, own in part.groupby("activation", sort=False):
        x, low, high = own["width"], own["sup_low"], own["sup_high"]
        panels[label(name)] = [
            Line(x, own["sup"], "trained: median, range", LOOKS["pln"], low, high),
            Line(x, own["constructed"], "constructed", ("#0072B2", "s", "--")),
            Line(x, own["bound"], "bound L / 2N", ("#000000", "", ":")),
        ]
    title = "sin(2x + 1) + cos(x): what training finds, and what the proofs write down"
    labels, scales = ("width", "greatest error on [-5, 5]"), ("log", "log")
    return plot(panels, labels, n_columns=3, ticks=_ticks(part), scales=scales, title=title)


def plot_fits(rows: pd.DataFrame) -> Figure:
    """Draw Figure 5's fits, a panel an activation: the best seed, the others pale."""
    part = rows[(rows["data"] == "trigonometric") & rows["curve"].notna()].sort_values("log_loss")
    x, panels, red = runs.CURVE, {}, ("#D55E00", "", "-")
    y = TARGETS["trigonometric"].function(x)
    for name in (name for name in runs.FITS if name in set(part["activation"])):
        own = part[part["activation"] == name]
        best, *others = (np.array(curve.split(), dtype=float) for curve in own["curve"])
        panels[f"{label(name)}: log loss {own['log_loss'].iloc[0]:.2f}"] = [
            Line(x, y, "target", ("#888888", "", "-"), width=3.5),
            *(Line(x, other, "_other seeds", red, width=1.0, alpha=0.25) for other in others),
            Line(x, best, "best seed", red),
        ]
    return plot(panels, ("x", ""), n_columns=3, ylim=(-2.6, 2.6))


STUDY = Study(
    name="pln_approximation",
    title="One hidden layer: PLN and PLS beside other activations",
    description=__doc__.splitlines()[0],
    module="benchmarks.papers.pln.approximation",
    experiments=[
        Experiment("pln_approximation", runs.SETTINGS, runs.RESULTS, jobs, runs.KEY)
        for jobs in (search_jobs, final_jobs)
    ],
    write=write,
)

if __name__ == "__main__":
    STUDY.main()
