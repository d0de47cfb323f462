"""The LayerAct paper's Figures 2, 3, 6 and 7: what the units of a single hidden layer do.

    python -m benchmarks.papers.layeract.statistics [--quick] [--report] [--out FOLDER]

A network of one hidden layer of 512 units, as in the paper's section 4.1; scikit-learn's digits
(8 x 8) stand in for MNIST. All activations and seeds train as one stack, twice: for 1 epoch and for
40, since the first epoch of a longer training is the same. The figures are of seed 0.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.common.claims import Claim, Finding, claims_table
from benchmarks.common.command import Experiment, Job, Study
from benchmarks.common.page import Page
from benchmarks.common.results import Row
from benchmarks.papers.layeract import shared
from benchmarks.papers.layeract.figures import plot_activation_means, plot_fluctuation
from benchmarks.papers.layeract.shared import ELEMENT_LEVEL, LAYER_LEVEL, select
from combutab import MLPClassifier
from combutab.evaluation import ActivationStats, activation_stats, holm

NAME = "layeract_statistics"
DRAWN = ("relu", "leaky_relu", "silu", "hardsilu", *LAYER_LEVEL)  # few enough to see which is which
NOISES = ((0.0, 0.5), (1.0, 0.5))  # mean and standard deviation
FLUCTUATIONS = {  # where the noise is added, and its mean
    f"{where}_{mean:g}": f"N({mean:g}, {sd}²) at the {what}"
    for where, what in {"layer": "activation", "input": "pixels"}.items()
    for mean, sd in NOISES
}
LAYER = ("mean", "mean_abs", "saturated", "dead")
UNITS = ("accuracy", *LAYER, "lowest", "input_mean_abs", "input_sd")
PARTS = ("mean", "sd", "relative", "input_mean", "input_sd")
RESULTS = (*UNITS, *(f"{name}_{part}" for name in FLUCTUATIONS for part in PARTS))
FIGURES = {  # of the paper, at the first and last epoch; input: what the activations are given
    "means_first": 2,
    "means_last": 2,
    "fluctuation": 3,
    "input_means_first": 6,
    "input_means_last": 6,
    "input_fluctuation": 7,
}


@dataclass(frozen=True)
class Plan:
    """The paper's appendix H: momentum 0.9, rate 0.01, weight decay 1e-4, until its 40th epoch."""

    activations: Sequence[str] = shared.ACTIVATIONS
    width: int = 512
    epochs: tuple[int, int] = (1, 40)
    n_seeds: int = 10
    batch_size: int = 32  # 45 steps an epoch
    n_rows: int | None = None


QUICK = Plan(("relu", "silu", *LAYER_LEVEL), width=16, epochs=(1, 2), n_seeds=2, n_rows=200)


def train(plan: Plan, epochs: int) -> tuple[dict[tuple[str, int], MLPClassifier], shared.Table]:
    """Train the networks, by activation and seed; they come with the test rows."""
    X, y = load_digits(return_X_y=True, as_frame=True)
    X, y = X[: plan.n_rows], y[: plan.n_rows]
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.2, random_state=0, stratify=y
    )
    nets = shared.train(
        plan.activations,
        [(X_train, y_train)] * plan.n_seeds,
        hidden_layer_sizes=(plan.width,),
        solver="sgd",
        momentum=0.9,
        nesterovs_momentum=False,
        learning_rate_init=0.01,
        # scikit-learn's penalty is per row of the batch: 1e-4 a step, as decay is
        alpha=1e-4 * plan.batch_size,
        batch_size=plan.batch_size,
        max_iter=epochs,
    )
    return nets, (X_test, y_test)


def describe(
    net: MLPClassifier, X: pd.DataFrame, y: pd.Series
) -> tuple[dict[str, float], ActivationStats, ActivationStats]:
    """Describe a network by numbers, its statistics, and those of what its activation is given.

    A fluctuation is a mean or standard deviation over the samples of a sum over the units, for
    noise at the activation ("layer") or at the scaled pixels ("input"). ``relative`` is the mean
    as a share of the root mean square of the activations.
    """
    stats = activation_stats(net, X, noises=NOISES)
    at_input = activation_stats(net, X, noises=NOISES, noise_at="input")
    before = activation_stats(net, X, noises=(), layers="linears.0")
    layer, units = stats.layers.iloc[0], stats.units
    size = layer["n_units"] * math.sqrt((units["mean"] ** 2 + units["sd"] ** 2).mean())
    values = {"accuracy": net.score(X, y), **layer[list(LAYER)], "lowest": units["min"].min()}
    values["input_mean_abs"] = before.layers["mean_abs"].iloc[0]
    values["input_sd"] = before.units["sd"].mean()
    for where, found in (("layer", stats), ("input", at_input)):
        for row in found.fluctuation.itertuples():
            parts = (row.mean, row.sd, row.mean / size, row.input_mean, row.input_sd)
            names = (f"{where}_{row.noise_mean:g}_{part}" for part in PARTS)
            values |= dict(zip(names, parts, strict=True))
    samples = {"hidden": stats.samples, "hidden, at pixels": at_input.samples}
    both = pd.concat([table.assign(layer=name) for name, table in samples.items()])
    return values, replace(stats, samples=both), before


def run(plan: Plan, epochs: int) -> list[Row]:
    """Train and describe: a row an activation and seed."""
    nets, test = train(plan, epochs)
    found = [describe(net, *test)[0] for net in nets.values()]
    return [{name: str(round(float(value), 6)) for name, value in row.items()} for row in found]


def jobs(arguments: Namespace) -> Iterator[Job]:
    plan = QUICK if arguments.quick else Plan()
    for epochs in plan.epochs:
        wanted = [
            {"activation": activation, "seed": str(seed), "epoch": str(epochs)}
            for activation, seed in product(plan.activations, range(plan.n_seeds))
        ]
        yield Job(wanted, partial(run, plan, epochs), f"{epochs} epochs")


def draw(plan: Plan) -> dict[str, Figure]:
    """Draw seed 0, whose networks train once more: alone they are the same."""
    figures = {}
    plan = replace(plan, activations=[n for n in DRAWN if n in plan.activations], n_seeds=1)
    for when, epochs in zip(("first", "last"), plan.epochs, strict=True):
        nets, test = train(plan, epochs)
        found = {name: describe(net, *test)[1:] for (name, _), net in nets.items()}
        stats, before = ({name: of[i] for name, of in found.items()} for i in (0, 1))
        figures[f"means_{when}"] = plot_activation_means(stats)
        figures[f"input_means_{when}"] = plot_activation_means(before)
    figures["fluctuation"] = plot_fluctuation(stats)
    for name, own in stats.items():
        given = own.samples.assign(fluctuation=own.samples["input_fluctuation"])
        stats[name] = replace(own, samples=given)
    return figures | {"input_fluctuation": plot_fluctuation(stats)}


def judge_smaller(name: str, column: str, last: bool, rows: pd.DataFrame) -> Finding | None:
    """Judge "smaller than that of each element-level activation", paired by seed."""
    own = select(rows, epoch=rows["epoch"].max() if last else rows["epoch"].min())
    wide = own.pivot_table(index="seed", columns="activation", values=column)
    if name not in wide:
        return None
    mean, others = wide[name].mean(), wide[[other for other in ELEMENT_LEVEL if other in wide]]
    pvalues = [shared.paper_test(wide[name], other)[1] for _, other in others.items()]
    tests = (others.mean() - mean).rename_axis("other").reset_index(name="difference")
    ratios = mean / others.mean()
    detail = f"ratio {ratios.min():.2f} to {ratios.max():.2f}"
    return shared.against_all(tests.assign(p_holm=holm(pvalues)), "smaller", "larger", detail)


SMALLER = [  # what the paper says of both functions: where, text, column, at the last epoch
    ("Figure 2", "unit means nearer to zero, first epoch", "mean_abs", False),
    ("Figure 2", "unit means nearer to zero, last epoch", "mean_abs", True),
    ("Figure 6", "input means nearer to zero, last epoch", "input_mean_abs", True),
]
for _name, _noise in FLUCTUATIONS.items():
    SMALLER += [
        ("Figure 3", f"mean fluctuation, {_noise}", f"{_name}_mean", True),
        ("Figure 3", f"its spread over samples, {_noise}", f"{_name}_sd", True),
        ("ours", f"mean fluctuation / size of activations, {_noise}", f"{_name}_relative", True),
    ]
CLAIMS = [
    Claim(where, f"{name}: {text}", partial(judge_smaller, name, *column))
    for name in LAYER_LEVEL
    for where, text, *column in SMALLER
]


def write_page(page: Page, arguments: Namespace, rows: pd.DataFrame) -> None:
    """Fill the page; a report keeps the figures that are there."""
    first, last = rows["epoch"].min(), rows["epoch"].max()
    plan = QUICK if arguments.quick else Plan()
    page.text(
        f"One hidden layer of {plan.width} units, batches of {plan.batch_size} (the paper gives no "
        "size), no normalisation; SGD as in the paper's appendix H (momentum 0.9, rate 0.01, decay "
        f"1e-4), up to its epoch {last}, where its rate falls first. scikit-learn's 1,797 digits "
        f"stand in for MNIST: one 4:1 split, {rows['seed'].nunique()} seeds; statistics over the "
        "test rows. The paper adds its noise to what the activation is given; noise at the pixels "
        "is our addition. It prints figures without numbers: its text is what is judged."
    )
    page.heading("Verdicts")
    page.text(
        "Paired by seed: a t-test, or Wilcoxon's where Shapiro and Wilk's test rejects normality, "
        f"with Holm's correction over the others. The first epoch is {first}, the last {last}.",
        claims_table(CLAIMS, {"here": rows}),
        '"ours" is relative to the root mean square of the activations: a function that halves '
        "all it gives would halve the fluctuation too, and the next layer could double it again.",
    )
    page.heading("Means over the seeds ± standard deviation")
    page.text(
        "mean_abs: the size of the units' means; saturated, dead: shares of values and of units; "
        "relative: to the size of the activations; input: what the activation is given."
    )
    tables = {f"Units, epoch {epoch}": (epoch, "", UNITS) for epoch in (first, last)}
    for name, noise in FLUCTUATIONS.items():
        tables[f"Fluctuation, {noise}, epoch {last}"] = (last, f"{name}_", PARTS)
    for title, (epoch, prefix, columns) in tables.items():
        page.heading(title, 3)
        own = select(rows, epoch=epoch).groupby("activation", sort=False)
        groups = own[[prefix + column for column in columns]]
        lines = [[name, *map(_spread, part.mean(), part.std())] for name, part in groups]
        page.table(["", *columns], lines)
    figures = {} if arguments.report else draw(plan)
    for suffix, number in FIGURES.items():
        text = f"Figure {number}, seed 0: {suffix.replace('_', ' ')}"
        if suffix in figures:
            page.figure(figures[suffix], text, suffix)
        else:
            page.text(f"![{text}]({NAME}_{suffix}.png)")


def _spread(mean: float, sd: float) -> str:
    if mean == sd == 0:
        return "0"
    decimals = int(np.clip(2 - np.floor(np.log10(max(abs(mean), sd))), 0, 4))
    return f"{mean:.{decimals}f} ± {sd:.{decimals}f}"


STUDY = Study(
    *(NAME, "LayerAct: what the units of one hidden layer do", __doc__.splitlines()[0]),
    "benchmarks.papers.layeract.statistics",
    [Experiment(NAME, ("activation", "seed", "epoch"), RESULTS, jobs)],
    write_page,
)

if __name__ == "__main__":
    STUDY.main()
