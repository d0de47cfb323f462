"""Deep networks without normalisation, by activation: Tables 1 and 2 and Figure 8 of the PLN paper.

Dense networks of 20, 56 and 110 layers, with and without residual connections: how large are the
gradients at the start, and which networks train? What is done, the page says.

    python -m benchmarks.papers.pln.depth [--quick] [--out FOLDER] [--report] [--data-home FOLDER]

A run that was stopped goes on where it stood. --report only writes the page and figures again.
california_housing comes from OpenML, or from a CSV file in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.papers.common.claims import Claim, claims_table
from benchmarks.papers.common.command import Arguments, Experiment, Job, Study
from benchmarks.papers.common.page import Page
from benchmarks.papers.common.results import Row
from benchmarks.papers.pln.data import TASKS, data_arguments
from benchmarks.papers.pln.depth_findings import (
    CELL,
    INIT_NAMES,
    TABLE_1,
    TABLE_2,
    choose_rates,
    deepest,
    figure_8,
    gradient_table,
    kept,
    table_1,
    table_1_gradients,
    table_2,
    threshold,
)
from benchmarks.papers.pln.depth_net import BODIES, Shape
from benchmarks.papers.pln.depth_train import initial_gradients, load_task, train
from benchmarks.papers.common.looks import Line, cross_table, label, listed, look, plot

ACTIVATIONS = (
    *("relu", "sigmoid", "tanh", "pln-8", "pls-8"),
    *("combu", "nlrelu", "selu", "la-silu"),
)
# Data, body, initialisation, and whether all depths are trained or both ends alone. The first kinds
# are those that the paper's numbers point to: its plain network fades as torch's own initialisation
# makes it, its ResNets grow as Kaiming's makes them. The last two show the other choice.
TRAINED = (
    ("digits", "plain", "torch", True),
    ("digits", "residual", "kaiming", True),
    ("digits", "pre-activation", "kaiming", True),
    ("california_housing", "plain", "torch", False),
    ("california_housing", "residual", "kaiming", False),
    ("california_housing", "pre-activation", "kaiming", False),
    ("digits", "plain", "kaiming", False),
    ("digits", "residual", "torch", False),
)
SHOWN = (  # whose first layers' gradients are followed in sentences
    *(("plain", "torch"), ("plain", "kaiming")),
    *(("residual", "kaiming"), ("pre-activation", "kaiming")),
)
GRADIENT_KEY, KEY = (*CELL, "seed"), (*CELL, "learning_rate", "seed")
GRADIENT_SETTINGS = (*GRADIENT_KEY, "width", "n_rows")
SETTINGS = (*KEY, "width", "n_rows", "n_steps", "batch_size")
NORMS = ("first", "last_hidden", "mean")
SCORES = ("train_score", "test_score", "train_loss")


@dataclass(frozen=True)
class Plan:
    """The sizes of a study."""

    activations: Sequence[str] = ACTIVATIONS
    gradient_depths: Sequence[int] = (8, 20, 38, 56, 80, 110)
    depths: Sequence[int] = (20, 56, 110)
    width: int = 32
    n_rows: int = 5000  # of california_housing; digits has 1797
    rates: Sequence[float] = (0.1, 0.01, 0.001)
    n_seeds: int = 3
    n_gradient_seeds: int = 5
    n_steps: int = 300
    batch_size: int = 64


QUICK = Plan(
    activations=("relu", "sigmoid", "tanh", "pln-8"),
    gradient_depths=(4, 6),
    depths=(4, 6),
    width=8,
    n_rows=200,
    rates=(0.1, 0.01),
    n_seeds=2,
    n_gradient_seeds=2,
    n_steps=4,
    batch_size=16,
)


def _row(names: Sequence[str], *values: object) -> Row:
    return dict(zip(names, map(str, values), strict=True))


def gradient_jobs(arguments: Arguments) -> Iterator[Job]:
    """The norms of the initial gradients, of all bodies with both initialisations."""
    plan = QUICK if arguments.quick else Plan()
    seeds = range(plan.n_gradient_seeds)

    def run(data: str, body: str, init: str, depth: int, activation: str) -> list[Row]:
        shape = Shape(body, depth, activation, init, plan.width)
        task = load_task(data, plan.n_rows, arguments.data_home)
        norms = initial_gradients(task, shape, seeds)
        columns = (getattr(norms, name).tolist() for name in NORMS)
        return [_row(NORMS, *(f"{v:.6g}" for v in row)) for row in zip(*columns, strict=True)]

    kinds = (arguments.data, BODIES, INIT_NAMES, plan.gradient_depths, plan.activations)
    for cell in product(*kinds):
        wanted = [_row(GRADIENT_SETTINGS, *cell, s, plan.width, plan.n_rows) for s in seeds]
        yield Job(wanted, partial(run, *cell), ", ".join(map(str, cell)))


def training_jobs(arguments: Arguments) -> Iterator[Job]:
    """Networks trained from several seeds with several learning rates."""
    plan = QUICK if arguments.quick else Plan()
    seeds, sizes = range(plan.n_seeds), (plan.n_steps, plan.batch_size)

    def run(data: str, body: str, init: str, depth: int, activation: str) -> list[Row]:
        shape = Shape(body, depth, activation, init, plan.width)
        task = load_task(data, plan.n_rows, arguments.data_home)
        return [
            {n: "" if found.diverged else f"{getattr(found, n):.6g}" for n in SCORES}
            | {"diverged": str(found.diverged), "trivial_score": f"{task.trivial_score:.6g}"}
            for found in train(task, shape, seeds, plan.rates, *sizes)
        ]

    for *kind, everywhere in (kind for kind in TRAINED if kind[0] in arguments.data):
        depths = plan.depths if everywhere else (plan.depths[0], plan.depths[-1])
        for cell in (tuple(kind) + rest for rest in product(depths, plan.activations)):
            wanted = [
                _row(SETTINGS, *cell, rate, seed, plan.width, plan.n_rows, *sizes)
                for rate, seed in product(plan.rates, seeds)
            ]
            yield Job(wanted, partial(run, *cell), ", ".join(map(str, cell)))


@dataclass(frozen=True)
class Evidence:
    """The rows of one data set: the gradients at the start, and each cell at its best rate."""

    gradients: pd.DataFrame
    chosen: pd.DataFrame

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest depth that was trained."""
        return int(self.chosen["depth"].min()), int(self.chosen["depth"].max())

    def norms(self, body: str, init: str) -> pd.DataFrame:
        return gradient_table(_part(self.gradients, body, init), "mean")


def _part(rows: pd.DataFrame, body: str, init: str) -> pd.DataFrame:
    return rows[(rows["body"] == body) & (rows["init"] == init)]


def _residual_claims(body: str) -> tuple[Claim[Evidence], Claim[Evidence]]:
    return (
        Claim(
            f"Table 2, {body}",
            "The mean norm of the gradients grows with depth: ReLU's the most and above 4 powers "
            "of ten, PLN-8's less than half of that, sigmoid's and tanh's with the paper's sign.",
            lambda e: table_2(e.norms(body, "kaiming"), *e.ends),
        ),
        Claim(
            f"Figure 8, {body}",
            "Sigmoid and tanh train when shallow; ReLU trains when shallow and not when deep; "
            "PLN-8 trains at every depth.",
            lambda e: figure_8(_part(e.chosen, body, "kaiming")),
        ),
    )


CLAIMS: tuple[Claim[Evidence], ...] = (
    Claim(
        "Table 1",
        "Plain networks: PLN-8 trains; sigmoid, tanh and ReLU do not.",
        lambda e: table_1(_part(e.chosen, "plain", "torch"), e.ends[0]),
    ),
    Claim(
        "Table 1",
        "PLN-8's gradients do not vanish: their mean norm at the start is the largest.",
        lambda e: table_1_gradients(e.norms("plain", "torch"), e.ends[0]),
    ),
    *_residual_claims("residual"),
    *_residual_claims("pre-activation"),
)


def _method(gradients: pd.DataFrame, training: pd.DataFrame) -> str:
    first, n_seeds = training.iloc[0], training["seed"].nunique()
    return f"""\
Tables 1 and 2 and Figure 8 of "Universal approximation theorem of networks activated by
normalization" on tables. What differs from the paper: dense networks of width {first["width"]}
stand in for VGG-16 of width 64 and the ResNets, scikit-learn's digits (8 x 8) and
california_housing (at most {first["n_rows"]} rows) for CIFAR-10; there is no augmentation;
{first["n_steps"]} steps of {first["batch_size"]} rows stand in for 240 epochs of batches of 128.
As in the paper: SGD with momentum 0.9, weight decay 1e-4, a learning rate that rises over the first
twelfth and is divided by 2.5 five times, {n_seeds} seeds. The paper names one rate a network (0.1
for VGG, 0.01 for ResNets); here {listed(dict.fromkeys(training["learning_rate"]))} are trained and
each activation is shown at the one with the best mean score on the *training* rows. The split is
one (4:1).

The paper does not say how weights are drawn. Its plain network behaves as torch's own
initialisation makes it, its ResNets grow as Kaiming's makes them; so do the first rows here, and
the other choice stands beside them. Nor does it say where a ResNet's activation stands: "residual"
activates after the sum, as the first ResNets did, "pre-activation" inside the branch alone. SELU is
meant for a third initialisation (LeCun's), which is not tried.

Gradients are norms of the loss's gradient at the start, on one batch of 256 training rows in
float64: geometric means over {gradients["seed"].nunique()} seeds. "mean" averages over all weight
matrices and biases, as we read the paper's "average norm"; "first" is of the first layer's weights.
Their size depends on width, data and loss: only their growth can be compared with the paper's.

A network *trains* if every seed removes at least half of a constant answer's error on the training
rows (misclassified share, or squared error). One that diverged, or is worse than a constant answer,
counts as that answer. What does not train in these few steps may train in more. {n_seeds} seeds
are too few for tests of differences between activations that train; none is claimed."""


def write(
    page: Page, arguments: Arguments, gradients: pd.DataFrame, training: pd.DataFrame
) -> None:
    chosen = choose_rates(training)
    chosen["layers"] = chosen["depth"].map("{} layers".format)
    chosen["text"] = [
        f"{c.test:.3f} ± {c.test_sd:.3f} ({c.learning_rate:g}){'' if c.trains else ' ×'}"
        for c in chosen.itertuples()
    ]
    found = {
        str(data): Evidence(gradients[gradients["data"] == data], own)
        for data, own in chosen.groupby("data", sort=False)
    }
    page.text(_method(gradients, training))
    page.heading("Verdicts")
    page.text(claims_table(CLAIMS, found))
    page.heading("Beyond the paper's claims")
    beyond = {
        "powers of ten by which the first layer's gradient moves from the smallest depth to the "
        f"largest ({body}, {INIT_NAMES[init]} initialisation)": [
            kept(_part(e.gradients, body, init), *e.ends) for e in found.values()
        ]
        for body, init in SHOWN
    }
    beyond["what trains at the largest depth"] = [deepest(e.chosen) for e in found.values()]
    beyond["does the gradient at the start tell?"] = [
        threshold(e.chosen, e.gradients) for e in found.values()
    ]
    page.table(["", *found], [[what, *said] for what, said in beyond.items()])
    for name, evidence in found.items():
        page.heading(f"{name}: initial gradients")
        for (body, init), part in evidence.gradients.groupby(["body", "init"], sort=False):
            page.text(f"{body}, {init}: mean / first")
            _gradient_table(page, part, beside=body != "plain" and init == "kaiming")
        page.heading(f"{name}: what the networks reach")
        for (body, init), part in evidence.chosen.groupby(["body", "init"], sort=False):
            page.text(f"{body}, {init}: test score ± sd over seeds (rate); × did not train")
            cross_table(page, part, "activation", "layers", "activation")
    page.heading("The paper's Table 1 (VGG-16, CIFAR-10)")
    columns = TABLE_1[["train_accuracy", "test_accuracy", "gradient"]]
    page.table(
        ["activation", "train %", "test %", "gradient"],
        [[label(str(a)), *(f"{v:g}" for v in values)] for a, values in columns.iterrows()],
    )
    page.heading("Figures")
    for name, evidence in found.items():
        title = f"Gradients at the start, {name}"
        page.figure(plot_gradients(evidence.gradients), title, f"gradients_{name}")
    page.figure(plot_scores(chosen), "Test scores by depth")


def _gradient_table(page: Page, rows: pd.DataFrame, *, beside: bool) -> None:
    mean, first = gradient_table(rows, "mean"), gradient_table(rows, "first")
    table = mean.map("{:.2g}".format) + " / " + first.map("{:.2g}".format)
    if beside:
        paper = TABLE_2.map("{:.2g}".format).add_prefix("paper, ResNet-")
        table = table.join(paper).fillna("—")
    lines = ([label(str(name)), *texts] for name, *texts in table.itertuples())
    page.table(["activation", *table], lines)


def plot_gradients(rows: pd.DataFrame) -> Figure:
    """Draw the first layer's gradient norm (geometric mean over seeds), a row an initialisation."""
    panels = {
        f"{body}, {INIT_NAMES[init]} initialisation": _lines(
            gradient_table(_part(rows, body, init), "first").replace(0.0, np.nan)
        )
        for init, body in product(dict.fromkeys(rows["init"]), dict.fromkeys(rows["body"]))
    }
    labels, title = ("layers", "gradient norm, first layer"), "Gradients at the start (from 1e-20)"
    ylim = (1e-20, 10 * rows["first"].max())  # smaller gradients are as good as none
    return plot(panels, labels, n_columns=3, scales=("linear", "log"), ylim=ylim, title=title)


def plot_scores(chosen: pd.DataFrame) -> Figure:
    """Draw the mean test score of each activation at its best rate, a panel a kind of network."""
    panels, rows = {}, chosen.sort_values("data", ascending=False, kind="stable")
    for (data, body, init), own in rows.groupby(["data", "body", "init"], sort=False):
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
        Experiment("pln_depth_gradients", GRADIENT_SETTINGS, NORMS, gradient_jobs, GRADIENT_KEY),
        Experiment(
            "pln_depth", SETTINGS, (*SCORES, "diverged", "trivial_score"), training_jobs, KEY
        ),
    ],
    write=write,
    add_arguments=data_arguments(("digits", "california_housing")),
)

if __name__ == "__main__":
    STUDY.main()
