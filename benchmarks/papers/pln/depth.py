"""With which activations do networks of 20, 56 and 110 layers train without normalisation?

Tables 1 and 2 and Figure 8 of the PLN paper: accuracies, and gradients that vanish or explode.

The unit is the table, of which there are eight. The skill of a network is 1 minus the ratio of its
test error to that of a constant prediction, averaged over 3 seeds: 0 is as bad as a constant. A
network *trains* if its skill is above 0.1.

Dense networks of width 32 replace the paper's VGG-16 (width 64) and ResNets. Eight tables of at
most 5000 rows, each split once (4:1), replace CIFAR-10. Networks take 300 steps of 64 rows instead
of 240 epochs in batches of 128 with augmentation. As in the paper: SGD with momentum 0.9, weight
decay 1e-4, a learning rate that rises during the first twelfth of the steps and is divided by 2.5
five times, 3 seeds. The paper names one learning rate for each network (0.1 for VGG, 0.01 for
ResNets). Here each activation has the one of 0.1, 0.01 and 0.001 with the best mean score on the
training rows. A network that does not train in these few steps may train in more.

The paper does not say how weights are drawn, nor where the activation of a ResNet is. Claims about
plain networks use torch's default initialisation, those about residual networks Kaiming's, since
their gradients then behave like the paper's. "residual": the activation comes after the sum, as in
the first ResNets. "pre-activation": it is inside the branch. SELU is meant for LeCun's
initialisation, which was not tried.

Gradient norms are of the loss on one batch of 256 training rows in float64, as geometric means over
5 seeds. The mean norm is over all weight matrices and biases, as we read the paper's "average
norm". Only its growth with depth can be compared with the paper's, since its size depends on width,
data and loss. Digits and california_housing were run with all activations, depths and
initialisations, the other tables only with what the claims need: gradients, and training of plain
networks. The figure shows digits and california_housing: geometric means, and ranges over both
tables and the seeds.

    python -m benchmarks.papers.pln.depth [--quick] [--out FOLDER] [--report] [--data-home FOLDER]

A run that was stopped is resumed by the same command. --report only writes the page and figures.
Data sets other than digits come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import gmean

from benchmarks.common import Arguments, Experiment, Job, Page, Study
from benchmarks.common.looks import Line, cross_table, label, look, plot
from benchmarks.common.verdicts import Verdict, add_claims, best_of
from benchmarks.papers.pln import deep_networks, shared
from benchmarks.papers.pln.shared import combinations, stacked_jobs

KIND = ["body", "init"]
CELL = ["data", *KIND, "depth", "activation"]
KEY = (*CELL, "learning_rate", "seed")
SETTINGS = (*KEY, "width", "n_rows", "n_steps", "batch_size")
GRADIENT_SETTINGS = (*CELL, "seed", "width", "n_rows")
NAMED = ("sigmoid", "tanh", "relu", "pln-8")  # in Tables 1 and 2
ENDS = (20, 110)
# The initialisation of each body that the paper's numbers point to: its plain network fades as
# torch's own makes it, its ResNets grow as Kaiming's makes them
FIRST = {"plain": "torch", "residual": "kaiming", "pre-activation": "kaiming"}
INIT_NAMES = {"torch": "torch's own", "kaiming": "Kaiming's"}
IN_FULL = ("digits", "california_housing")  # of the others the paper's activations alone
FURTHER = ("pls-8", "combu", "nlrelu", "selu", "la-silu")
SIZES = {"body": deep_networks.BODIES, "init": INIT_NAMES, "depth": (20, 56, 110)}
SIZES |= {"activation": ("relu", "sigmoid", "tanh", "pln-8", *FURTHER), "seed": range(3)}
SIZES |= {"learning_rate": (0.1, 0.01, 0.001), "width": [32], "n_rows": [5000]}
SIZES |= {"n_steps": [300], "batch_size": [64]}
QUICK = {"depth": (4, 6), "activation": SIZES["activation"][:4], "learning_rate": (0.1, 0.01)}
QUICK |= {"seed": range(2), "width": [8], "n_rows": [200], "n_steps": [4], "batch_size": [16]}
GRADIENT_SIZES = {"depth": (8, 20, 38, 56, 80, 110), "seed": range(5)}
SHOWN = ("relu", "sigmoid", "tanh", "pln-8", "combu", "nlrelu")  # in the figure


def _settings(arguments: Arguments, names: tuple[str, ...], full: dict) -> pd.DataFrame:
    """All combinations that are of use: of most data sets only what the claims need."""
    sizes = {"data": arguments.data, **SIZES, **(QUICK if arguments.quick else full)}
    every = combinations(**{name: sizes[name] for name in names})
    claimed = every["first"] = every["init"] == every["body"].map(FIRST)
    claimed &= every["activation"].isin(NAMED) & (every["depth"].isin(ENDS) | arguments.quick)
    return every[claimed | every["data"].isin(IN_FULL)]


def gradient_jobs(arguments: Arguments) -> list[Job]:
    """The norms of the initial gradients, of all bodies with both initialisations."""
    settings = _settings(arguments, GRADIENT_SETTINGS, GRADIENT_SIZES)
    run = partial(deep_networks.initial_gradients, data_home=arguments.data_home)
    return stacked_jobs(settings[list(GRADIENT_SETTINGS)], CELL, run)


def training_jobs(arguments: Arguments) -> list[Job]:
    """Networks trained from several seeds with several learning rates.

    The digits at all depths, and at the ends also plain and residual networks of the other
    initialisation; california_housing at both ends, the other tables as plain networks at one.
    """
    every = _settings(arguments, SETTINGS, {})
    first, digits, depth = every["first"], every["data"] == "digits", every["depth"]
    small = (every["body"] == "plain") & (depth != 110)
    wanted = first & (digits | (depth != 56)) & (every["data"].isin(IN_FULL) | small)
    wanted |= digits & (every["body"] != "pre-activation") & (depth != 56)
    run = partial(deep_networks.train, data_home=arguments.data_home)
    return stacked_jobs(every.loc[wanted, list(SETTINGS)], CELL, run)


# ---- What the rows say --------------------------------------------------------------------------

TRAINS = 0.1  # a network with a larger skill on test rows counts as one that trains


def choose_rates(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a cell, at the learning rate with the best mean score on the training rows.

    ``train`` and ``test`` are means over seeds, and ``test_sd``; a network that diverged, or is
    worse than a constant answer, counts as that answer. ``skill``: the share of the constant's
    error on test rows that is removed.
    """
    least = rows["trivial_score"]
    fit, test = (np.fmax(rows[name], least) for name in ("train_score", "test_score"))
    skill = (test - least) / (1.0 - least)
    rows = rows.assign(train=fit, test=test, test_sd=test, skill=skill)
    how = {"train": "mean", "test": "mean", "test_sd": "std", "skill": "mean"}
    means = rows.groupby([*CELL, "learning_rate"], sort=False).agg(how).reset_index()
    return means.loc[means.groupby(CELL, sort=False)["train"].idxmax()].reset_index(drop=True)


def by_table(gradients: pd.DataFrame, chosen: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What the claims speak of, by body: data sets x (quantity, activation).

    "start" is log10 of the mean gradient's norm in the shallowest networks that were trained, mean
    over seeds, and "growth" what it gains to the deepest; "shallow" and "deep" are these networks'
    skills, as `choose_rates` has them.
    """
    gradients, found = gradients.assign(norm=np.log10(gradients["mean"])), {}
    for body, init in FIRST.items():
        norms, skills = (
            rows[(rows["body"] == body) & (rows["init"] == init)].pivot_table(
                value, "data", ["depth", "activation"], sort=False
            )
            for rows, value in ((gradients, "norm"), (chosen, "skill"))
        )
        depths = skills.columns.get_level_values("depth")
        least, most = depths.min(), depths.max()
        parts = {"start": norms[least], "growth": norms[most] - norms[least]}
        found[body] = pd.concat(parts | {"shallow": skills[least], "deep": skills[most]}, axis=1)
        found[body].attrs["bodies"] = "plain" if body == "plain" else "skipped"
    return found


def judge(
    units: pd.DataFrame,
    margin: float,
    *,
    bodies: str,
    rule: str,
    quantity: str,
    name: str,
    other: str,
) -> Verdict | None:
    """Judge a quantity of an activation against another's, a number, or the paper's others."""
    if units.attrs["bodies"] != bodies:
        return None
    own = units[quantity][list(NAMED)].dropna()
    if rule == "best_of":
        return best_of(own, name)
    right = own[other] if other in own else float(other)
    return shared.RULES[rule](own[name], right, margin)


CLAIMS = shared.claims("pln_depth", "table", judge)


def by_ratio(gradients: pd.DataFrame, chosen: pd.DataFrame) -> str:
    """How many networks train, by the ratio of the first gradient to the last hidden layer's."""
    ratio = np.log10(gradients["first"] / gradients["last_hidden"])
    both = chosen.merge(gradients.assign(ratio=ratio).groupby(CELL)["ratio"].mean().reset_index())
    names = ["below 1 / 100 (vanishing)", "within a factor of 100", "above 100 (exploding)"]
    kinds = pd.cut(both["ratio"], [-np.inf, -2, 2, np.inf], labels=names)
    counts = (both["skill"] > TRAINS).groupby(kinds, observed=True).agg(["sum", "size"])
    told = "; ".join(f"{name}: {trains} of {n}" for name, trains, n in counts.itertuples())
    return f"by the ratio of the first to the last hidden layer's initial gradient: {told}"


def write(page: Page, _: Arguments, gradients: pd.DataFrame, training: pd.DataFrame) -> None:
    chosen = choose_rates(training)
    add_claims(page, CLAIMS, by_table(gradients, chosen))
    page.text(f"Networks that train (skill above {TRAINS}), {by_ratio(gradients, chosen)}.")
    in_full = gradients[gradients["data"].isin(IN_FULL)]
    page.figure(plot_gradients(in_full), "Initial gradient norm of the first layer, by depth")
    chosen["layers"] = chosen["depth"].map("{} layers".format)
    chosen["text"] = [
        f"{c.test:.3f} ± {c.test_sd:.3f} ({c.learning_rate:g}){'' if c.skill > TRAINS else ' ×'}"
        for c in chosen.itertuples()
    ]
    scores = "Test score (accuracy or R²) ± sd over seeds (learning rate); ×: does not train"
    with page.details(scores):
        for key, own in chosen.groupby(["data", *KIND], sort=False):
            page.text(", ".join(key))
            cross_table(page, own, "activation", "layers", "activation")


def plot_gradients(rows: pd.DataFrame) -> Figure:
    """Draw the first layer's gradient norm with its range, a panel a body."""
    panels = {}
    for body, init in FIRST.items():
        own = rows[(rows["body"] == body) & (rows["init"] == init)]
        lines = panels[f"{body}, {INIT_NAMES[init]} initialisation"] = []
        for name in (name for name in SHOWN if name in set(own["activation"])):
            norms = own[own["activation"] == name].groupby("depth")["first"]
            y = norms.agg(gmean)
            lines.append(Line(y.index, y, label(name), look(name), norms.min(), norms.max()))
    labels = ("layers", "norm of the first layer's initial gradient (cut at 1e-20)")
    ylim = (1e-20, 10 * rows["first"].max())  # smaller gradients are as good as none
    return plot(panels, labels, n_columns=3, scales=("linear", "log"), ylim=ylim)


GRADIENTS = ("pln_depth_gradients", GRADIENT_SETTINGS, deep_networks.NORMS, gradient_jobs)
STUDY = Study(
    "benchmarks.papers.pln.depth",
    "Deep networks without normalisation, by activation",
    __doc__,
    [
        Experiment(*GRADIENTS, key=(*CELL, "seed")),
        Experiment("pln_depth", SETTINGS, deep_networks.RESULTS, training_jobs, KEY),
    ],
    write,
    shared.OPTIONS,
)

if __name__ == "__main__":
    STUDY.main()
