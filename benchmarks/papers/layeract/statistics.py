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

from benchmarks.papers.common.claims import Claim, Finding, claims_table
from benchmarks.papers.common.command import Experiment, Job, Study
from benchmarks.papers.common.page import Page
from benchmarks.papers.common.results import Row
from benchmarks.papers.layeract.robustness_numbers import (
    ALPHA,
    ELEMENT_LEVEL,
    LAYER_LEVEL,
    OTHERS,
    better_than_all,
    listed,
    paper_test,
    select,
)
from combutab import MLPClassifier
from combutab.estimators import FitTask, fit_stacked
from combutab.evaluation import ActivationStats, activation_stats, holm
from combutab.plotting import plot_activation_means, plot_fluctuation

NAME = "layeract_statistics"
ACTIVATIONS = (*ELEMENT_LEVEL, *LAYER_LEVEL, *OTHERS)
DRAWN = ("relu", "leaky_relu", "silu", "hardsilu", *LAYER_LEVEL)  # few enough to see which is which
NOISES = ((0.0, 0.5), (1.0, 0.5))  # mean and standard deviation
FLUCTUATIONS = {  # where the noise is added, and its mean
    f"{where}_{mean:g}": f"N({mean:g}, {sd}²) at the {what}"
    for (where, what), (mean, sd) in product(
        {"layer": "activation", "input": "pixels"}.items(), NOISES
    )
}
UNITS = {
    "accuracy": "accuracy",
    "mean": "mean of the unit means",
    "mean_abs": "mean of their size",
    "lowest": "lowest activation",
    "saturated": "share saturated",
    "dead": "dead units",
    "input_mean_abs": "size of input means",
    "input_sd": "sd of inputs",
}
PARTS = {
    "mean": "mean",
    "sd": "sd over samples",
    "relative": "mean / size of activations",
    "input_mean": "mean, of the input",
    "input_sd": "sd, of the input",
}
RESULTS = (
    *("accuracy", "mean", "mean_abs", "saturated", "dead", "lowest", "input_mean_abs", "input_sd"),
    *(f"{name}_{part}" for name in FLUCTUATIONS for part in PARTS),
)
FIGURES = {  # and the headings that they stand under
    "means_first": "Figure 2, first epoch: means of the units' activations",
    "means_last": "Figure 2, last epoch: means of the units' activations",
    "fluctuation": "Figure 3: fluctuation of the samples",
    "input_means_first": "Figure 6, first epoch: means of what the activations are given",
    "input_means_last": "Figure 6, last epoch: means of what the activations are given",
    "input_fluctuation": "Figure 7: fluctuation of what the activation is given",
}


@dataclass(frozen=True)
class Plan:
    """The paper's appendix H: momentum 0.9, rate 0.01, weight decay 1e-4, until its 40th epoch."""

    width: int = 512
    epochs: tuple[int, ...] = (1, 40)
    n_seeds: int = 10
    batch_size: int = 32  # 45 steps an epoch
    n_rows: int | None = None


QUICK = Plan(width=32, epochs=(1, 2), n_seeds=3, n_rows=300)


def train(
    activations: Sequence[str], epochs: int, plan: Plan, n_seeds: int
) -> tuple[dict[tuple[str, int], MLPClassifier], tuple[pd.DataFrame, pd.Series]]:
    """The networks by activation and seed, and the test rows."""
    X, y = load_digits(return_X_y=True, as_frame=True)
    X, y = X[: plan.n_rows], y[: plan.n_rows]
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.2, random_state=0, stratify=y
    )
    tasks = {
        (activation, seed): FitTask(
            MLPClassifier(
                activation=activation,
                hidden_layer_sizes=(plan.width,),
                solver="sgd",
                momentum=0.9,
                nesterovs_momentum=False,
                learning_rate_init=0.01,
                # scikit-learn's penalty is per row of the batch: 1e-4 a step, as decay is
                alpha=1e-4 * plan.batch_size,
                batch_size=plan.batch_size,
                max_iter=epochs,
                n_iter_no_change=math.inf,
                random_state=seed,
            ),
            X_train,
            y_train,
            data_key=0,
        )
        for activation, seed in product(activations, range(n_seeds))
    }
    for outcome in fit_stacked(list(tasks.values())):
        if outcome.error is not None:
            raise outcome.error
    return {key: task.estimator for key, task in tasks.items()}, (X_test, y_test)


def describe(
    net: MLPClassifier, X: pd.DataFrame, y: pd.Series
) -> tuple[dict[str, float], ActivationStats, ActivationStats]:
    """Numbers of one network; its statistics, and those of what its activation is given.

    A fluctuation is a mean or standard deviation over the samples of a sum over the units, for
    noise at the activation ("layer") or at the scaled pixels ("input"). ``relative`` is the mean
    as a share of the root mean square of the activations.
    """
    stats = activation_stats(net, X, noises=NOISES)
    at_input = activation_stats(net, X, noises=NOISES, noise_at="input")
    before = activation_stats(net, X, noises=(), layers="linears.0")
    layer, given = stats.layers.iloc[0], before.layers.iloc[0]
    size = layer["n_units"] * math.sqrt((stats.units["mean"] ** 2 + stats.units["sd"] ** 2).mean())
    values = {
        "accuracy": net.score(X, y),
        **{name: layer[name] for name in ("mean", "mean_abs", "saturated", "dead")},
        "lowest": stats.units["min"].min(),
        "input_mean_abs": given["mean_abs"],
        "input_sd": before.units["sd"].mean(),
    }
    for where, found in (("layer", stats), ("input", at_input)):
        for (noise, _), row in zip(NOISES, found.fluctuation.itertuples(), strict=True):
            name = f"{where}_{noise:g}"
            values[f"{name}_mean"], values[f"{name}_sd"] = row.mean, row.sd
            values[f"{name}_relative"] = row.mean / size
            values[f"{name}_input_mean"], values[f"{name}_input_sd"] = row.input_mean, row.input_sd
    return values, replace(stats, samples=_both(stats, at_input)), before


def _both(stats: ActivationStats, at_input: ActivationStats) -> pd.DataFrame:
    """The samples under both kinds of noise, by the name of the layer."""
    tables = {"hidden": stats.samples, "hidden, at pixels": at_input.samples}
    return pd.concat([each.assign(layer=name) for name, each in tables.items()])


def _plan(arguments: Namespace) -> tuple[Plan, tuple[str, ...]]:
    return (QUICK, ("relu", "silu", *LAYER_LEVEL)) if arguments.quick else (Plan(), ACTIVATIONS)


def run(activations: Sequence[str], epochs: int, plan: Plan) -> list[Row]:
    """Train and describe: a row an activation and seed."""
    nets, (X, y) = train(activations, epochs, plan, plan.n_seeds)
    found = [describe(net, X, y)[0] for net in nets.values()]
    return [{name: str(round(float(value), 6)) for name, value in row.items()} for row in found]


def jobs(arguments: Namespace) -> Iterator[Job]:
    plan, activations = _plan(arguments)
    for epoch in plan.epochs:
        wanted = [
            {"activation": activation, "seed": str(seed), "epoch": str(epoch)}
            for activation, seed in product(activations, range(plan.n_seeds))
        ]
        yield Job(wanted, partial(run, activations, epoch, plan), f"{epoch} epochs")


def draw(plan: Plan, activations: Sequence[str]) -> dict[str, Figure]:
    """Figures of seed 0, whose networks train once more: alone they are the same."""
    figures = {}
    for when, epochs in zip(("first", "last"), plan.epochs, strict=True):
        nets, (X, y) = train([a for a in DRAWN if a in activations], epochs, plan, 1)
        stats, before = {}, {}
        for (name, _), net in nets.items():
            _, stats[name], before[name] = describe(net, X, y)
        figures[f"means_{when}"] = plot_activation_means(stats)
        figures[f"input_means_{when}"] = plot_activation_means(before)
    figures["fluctuation"] = plot_fluctuation(stats)
    given = {
        name: replace(s, samples=s.samples.assign(fluctuation=s.samples["input_fluctuation"]))
        for name, s in stats.items()
    }
    return figures | {"input_fluctuation": plot_fluctuation(given)}


# ---- claims --------------------------------------------------------------------------------------


def smaller(rows: pd.DataFrame, activation: str, column: str, epoch: int) -> pd.DataFrame:
    """An activation against each element-level one: paired by seed, Holm over these.

    Returns ``other``, ``ratio`` of the means, ``p``, ``p_holm``, one row each.
    """
    own = select(rows, epoch=epoch).pivot_table(index="seed", columns="activation", values=column)
    others = [name for name in ELEMENT_LEVEL if name in own]
    table = pd.DataFrame(
        {
            "other": others,
            "ratio": [own[activation].mean() / own[name].mean() for name in others],
            "p": [paper_test(own[activation], own[name])[1] for name in others],
        }
    )
    table["p_holm"] = holm(table["p"])
    return table


def smaller_than_all(
    where: str, text: str, name: str, column: str, last: bool
) -> Claim[pd.DataFrame]:
    """Claim that an activation's column is smaller than that of each element-level one."""

    def judge(rows: pd.DataFrame) -> Finding | None:
        if name not in set(rows["activation"]):
            return None
        table = smaller(rows, name, column, rows["epoch"].max() if last else rows["epoch"].min())
        real = table[table["p_holm"] < ALPHA]
        less = real.loc[real["ratio"] < 1, "other"].tolist()
        more = real.loc[real["ratio"] > 1, "other"].tolist()
        some = ("all" if len(names) == len(table) else listed(names) for names in (less, more))
        numbers = "smaller than {}; larger than {}; ratio ".format(*some)
        numbers += f"{table['ratio'].min():.2f} to {table['ratio'].max():.2f}"
        return better_than_all(numbers, len(less), len(more), len(table))

    return Claim(where, f"{name}: {text}", judge)


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
    smaller_than_all(where, text, name, column, last)
    for name in LAYER_LEVEL
    for where, text, column, last in SMALLER
]


# ---- the page ------------------------------------------------------------------------------------


def write_page(page: Page, arguments: Namespace, rows: pd.DataFrame) -> None:
    """Fill the page; a report keeps the figures that are there."""
    first, last = rows["epoch"].min(), rows["epoch"].max()
    plan, activations = _plan(arguments)
    page.text(
        f"One hidden layer of {plan.width} units, batches of {plan.batch_size} (the paper gives no "
        "size); SGD with momentum 0.9, rate 0.01 and weight decay 1e-4 as in the paper's appendix "
        f"H, up to its epoch {last} (where its rate falls first, and after which its distributions "
        "do not change); no normalisation. scikit-learn's 1,797 digits of 8 x 8, standardised, "
        "stand in for MNIST, 4:1; statistics over the test rows. "
        f"{rows['seed'].nunique()} seeds of initial weights and shuffles on one split, shared by "
        "the activations. The paper adds its noise to what the activation is given; noise at the "
        "pixels is our addition. It prints figures without numbers: what is compared here is what "
        "its text says of them."
    )
    page.heading("Verdicts")
    page.text(
        "Against the paper's eight element-level activations, paired by seed: a t-test, or "
        "Wilcoxon's where Shapiro and Wilk's test rejects normality, as in its Tables 20 to 23, "
        'and Holm\'s correction over the eight. "holds": smaller than all of them. The first epoch '
        f"is {first}, the last {last}.",
        claims_table(CLAIMS, {"here": rows}),
        "The last line of each noise sets the fluctuation against the root mean square of the "
        "activations themselves: a function that halves all it gives would halve the fluctuation "
        "too, and the next layer could double it again.",
    )
    for epoch in (first, last):
        page.heading(f"Epoch {epoch}")
        page.text("Means over the seeds ± standard deviation.")
        _add_means(page, select(rows, epoch=epoch), UNITS)
    page.heading(f"Fluctuation at epoch {last}")
    for name, noise in FLUCTUATIONS.items():
        page.text(f"{noise}:")
        columns = {f"{name}_{part}": text for part, text in PARTS.items()}
        _add_means(page, select(rows, epoch=last), columns)
    page.heading("Figures, of seed 0")
    page.text("With noise added to what the activation is given, Figure 7 is the same for all.")
    figures = {} if arguments.report else draw(plan, activations)
    for suffix, text in FIGURES.items():
        page.text(f"{text}.")
        if suffix in figures:
            page.figure(figures[suffix], text, suffix)
        else:
            page.text(f"![{text}]({NAME}_{suffix}.png)")


def _add_means(page: Page, rows: pd.DataFrame, columns: dict[str, str]) -> None:
    """Means and standard deviations over the seeds."""
    parts = rows.groupby("activation", sort=False)
    lines = [[name, *(_spread(part[column]) for column in columns)] for name, part in parts]
    page.table(["", *columns.values()], lines)


def _spread(values: pd.Series) -> str:
    mean, sd = values.mean(), values.std()
    if mean == sd == 0:
        return "0"
    decimals = int(np.clip(2 - np.floor(np.log10(max(abs(mean), sd))), 0, 4))
    return f"{mean:.{decimals}f} ± {sd:.{decimals}f}"


STUDY = Study(
    NAME,
    "LayerAct: what the units of one hidden layer do",
    __doc__.splitlines()[0],
    "benchmarks.papers.layeract.statistics",
    [Experiment(NAME, ("activation", "seed", "epoch"), RESULTS, jobs)],
    write_page,
)

if __name__ == "__main__":
    STUDY.main()
