"""Deep networks without normalisation, by activation: Tables 1 and 2 and Figure 8 of the PLN paper.

Dense networks of 20, 56 and 110 layers, with and without residual connections: how large are the
gradients at the start, and which networks train? What is done, the page says.

    python -m benchmarks.papers.pln.depth [--quick] [--out FOLDER] [--report] [--data-home FOLDER]

A run that was stopped goes on where it stood. --report only writes the page and figures again.
california_housing comes from OpenML, or from a CSV file in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common.claims import claims_table
from benchmarks.common.command import Arguments, Experiment, Job, Study
from benchmarks.common.looks import Line, cross_table, label, listed, look, plot
from benchmarks.common.page import Page
from benchmarks.papers.pln.depth import findings, networks
from benchmarks.papers.pln.depth.findings import CELL, INIT_NAMES, KIND, Evidence, gradient_table
from benchmarks.papers.pln.shared import TASKS, combinations, data_arguments, stacked_jobs

KEY = (*CELL, "learning_rate", "seed")
SETTINGS = (*KEY, "width", "n_rows", "n_steps", "batch_size")
GRADIENT_SETTINGS = (*CELL, "seed", "width", "n_rows")
SIZES = {
    "depth": (20, 56, 110),
    "activation": (
        *("relu", "sigmoid", "tanh", "pln-8", "pls-8", "combu", "nlrelu", "selu", "la-silu"),
    ),
    "learning_rate": (0.1, 0.01, 0.001),
    "seed": range(3),
    "width": [32],
    "n_rows": [5000],  # of california_housing; digits has 1797
    "n_steps": [300],
    "batch_size": [64],
}
QUICK = {"depth": (4, 6), "activation": SIZES["activation"][:4], "learning_rate": (0.1, 0.01)}
QUICK |= {"seed": range(2), "width": [8], "n_rows": [200], "n_steps": [4], "batch_size": [16]}
GRADIENT_SIZES = {"depth": (8, 20, 38, 56, 80, 110), "seed": range(5)}
# The first kinds are those that the paper's numbers point to: its plain network fades as torch's
# own initialisation makes it, its ResNets grow as Kaiming's makes them. The last two, as all of
# california_housing, are trained at both ends of the depths alone.
FIRST = [("plain", "torch"), ("residual", "kaiming"), ("pre-activation", "kaiming")]
TRAINED = [("digits", *kind, True) for kind in FIRST]
TRAINED += [("california_housing", *kind, False) for kind in FIRST]
TRAINED += [("digits", "plain", "kaiming", False), ("digits", "residual", "torch", False)]


def gradient_jobs(arguments: Arguments) -> list[Job]:
    """The norms of the initial gradients, of all bodies with both initialisations."""
    kinds = {"data": arguments.data, "body": networks.BODIES, "init": INIT_NAMES}
    sizes = kinds | SIZES | (QUICK if arguments.quick else GRADIENT_SIZES)
    settings = combinations(**{name: sizes[name] for name in GRADIENT_SETTINGS})
    run = partial(networks.initial_gradients, data_home=arguments.data_home)
    return stacked_jobs(settings, CELL, run)


def training_jobs(arguments: Arguments) -> list[Job]:
    """Networks trained from several seeds with several learning rates."""
    kinds = pd.DataFrame(TRAINED, columns=["data", *KIND, "everywhere"])
    sizes = combinations(**(QUICK if arguments.quick else SIZES))
    settings = kinds[kinds["data"].isin(arguments.data)].merge(sizes, how="cross")
    settings = settings[settings["everywhere"] | (settings["depth"] != SIZES["depth"][1])]
    run = partial(networks.train, data_home=arguments.data_home)
    return stacked_jobs(settings[list(SETTINGS)], CELL, run)


def _method(gradients: pd.DataFrame, training: pd.DataFrame) -> str:
    first, n_seeds = training.iloc[0], training["seed"].nunique()
    return f"""\
Tables 1 and 2 and Figure 8 of "Universal approximation theorem of networks activated by
normalization" on tables. Dense networks of width {first["width"]} stand in for VGG-16 of width 64
and the ResNets; scikit-learn's digits (8 x 8) and california_housing (at most {first["n_rows"]}
rows), split once (4:1), for CIFAR-10, without augmentation; {first["n_steps"]} steps of
{first["batch_size"]} rows for 240 epochs of batches of 128. As in the paper: SGD with momentum 0.9,
weight decay 1e-4, a rate that rises over the first twelfth and is divided by 2.5 five times,
{n_seeds} seeds. The paper names one rate a network (0.1 for VGG, 0.01 for ResNets); here
{listed(dict.fromkeys(training["learning_rate"]))} are trained, and each activation is shown at the
one with the best mean score on the *training* rows.

The paper does not say how weights are drawn, nor where a ResNet's activation stands. Its plain
network behaves as torch's own initialisation makes it, its ResNets grow as Kaiming's makes them:
so do the first rows here. "residual" activates after the sum, as the first ResNets did,
"pre-activation" inside the branch alone. SELU is meant for LeCun's initialisation, which is not
tried.

Norms are of the loss's gradient at the start, on one batch of 256 training rows in float64:
geometric means over {gradients["seed"].nunique()} seeds. "mean" averages over all weight matrices
and biases, as we read the paper's "average norm"; "first" is of the first layer's weights. Only
their growth can be compared with the paper's: their size depends on width, data and loss.

A network *trains* if every seed removes at least half of a constant answer's error on the training
rows (misclassified share, or squared error); one that diverged, or is worse, counts as that answer.
What does not train in these few steps may train in more. {n_seeds} seeds are too few to test
differences between activations that train; none is claimed."""


def write(page: Page, _: Arguments, gradients: pd.DataFrame, training: pd.DataFrame) -> None:
    chosen = findings.choose_rates(training)
    chosen["layers"] = chosen["depth"].map("{} layers".format)
    chosen["text"] = [
        f"{c.test:.3f} ± {c.test_sd:.3f} ({c.learning_rate:g}){'' if c.trains else ' ×'}"
        for c in chosen.itertuples()
    ]
    found = {
        data: Evidence(gradients[gradients["data"] == data], own)
        for data, own in chosen.groupby("data", sort=False)
    }
    page.text(_method(gradients, training))
    page.heading("Verdicts")
    page.text(claims_table(findings.CLAIMS, found))
    page.heading("Beyond the paper's claims")
    said = ([what, *map(say, found.values())] for what, say in findings.BEYOND.items())
    page.table(["", *found], said)
    for name, evidence in found.items():
        page.heading(f"{name}: initial gradients")
        for (body, init), part in evidence.gradients.groupby(KIND, sort=False):
            page.text(f"{body}, {init}: mean / first")
            norms = (gradient_table(part, norm) for norm in ("mean", "first"))
            mean, first = (table.map("{:.2g}".format) for table in norms)
            table = mean + " / " + first
            if body != "plain" and init == "kaiming":
                paper = findings.TABLE_2.map("{:.2g}".format).add_prefix("paper, ResNet-")
                table = table.join(paper).fillna("—")
            _table(page, table)
        page.heading(f"{name}: what the networks reach")
        for (body, init), part in evidence.chosen.groupby(KIND, sort=False):
            page.text(f"{body}, {init}: test score ± sd over seeds (rate); × did not train")
            cross_table(page, part, "activation", "layers", "activation")
    page.heading("The paper's Table 1 (VGG-16, CIFAR-10)")
    columns = {"train_accuracy": "train %", "test_accuracy": "test %", "gradient": "gradient"}
    _table(page, findings.TABLE_1[list(columns)].rename(columns=columns).map("{:g}".format))
    page.heading("Figures")
    for name, evidence in found.items():
        title = f"Gradients at the start, {name}"
        page.figure(plot_gradients(evidence.gradients), title, f"gradients_{name}")
    page.figure(plot_scores(chosen), "Test scores by depth")


def _table(page: Page, table: pd.DataFrame) -> None:
    lines = ([label(activation), *texts] for activation, *texts in table.itertuples())
    page.table(["activation", *table], lines)


def plot_gradients(rows: pd.DataFrame) -> Figure:
    """Draw the first layer's gradient norm (geometric mean over seeds), a row an initialisation."""
    kinds = rows.sort_values("init", ascending=False, kind="stable").groupby(KIND, sort=False)
    panels = {
        f"{body}, {INIT_NAMES[init]} initialisation": _lines(gradient_table(own, "first"))
        for (body, init), own in kinds
    }
    labels, title = ("layers", "gradient norm, first layer"), "Gradients at the start (from 1e-20)"
    ylim = (1e-20, 10 * rows["first"].max())  # smaller gradients are as good as none
    return plot(panels, labels, n_columns=3, scales=("linear", "log"), ylim=ylim, title=title)


def plot_scores(chosen: pd.DataFrame) -> Figure:
    """Draw the mean test score of each activation at its best rate, a panel a kind of network."""
    panels, rows = {}, chosen.sort_values("data", ascending=False, kind="stable")
    for (data, body, init), own in rows.groupby(["data", *KIND], sort=False):
        score = "accuracy" if TASKS[data] == "classification" else "R²"
        table = own.pivot(index="activation", columns="depth", values="test")
        panels[f"{data}, {score}:\n{body}, {INIT_NAMES[init]}"] = _lines(table)
    return plot(panels, ("layers", "test score"), n_columns=4)


def _lines(table: pd.DataFrame) -> list[Line]:
    return [
        Line(table.columns, values, label(name), look(name), width=2.4 if name == "pln-8" else 1.3)
        for name, values in table.iterrows()
    ]


STUDY = Study(
    name="pln_depth",
    title="Deep networks without normalisation, by activation",
    description=__doc__.splitlines()[0],
    module="benchmarks.papers.pln.depth",
    experiments=[
        Experiment(
            *("pln_depth_gradients", GRADIENT_SETTINGS, networks.NORMS, gradient_jobs),
            key=(*CELL, "seed"),
        ),
        Experiment("pln_depth", SETTINGS, networks.RESULTS, training_jobs, KEY),
    ],
    write=write,
    add_arguments=data_arguments("digits", "california_housing"),
)

if __name__ == "__main__":
    STUDY.main()
