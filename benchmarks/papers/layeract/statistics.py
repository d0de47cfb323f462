"""Do LayerAct's units have means nearer to zero, and do they fluctuate less under noise?

The LayerAct paper's Figures 2, 3, 6 and 7, which have no numbers, so the claims are those of its
text. As in section 4.1, the network has one hidden layer of 512 units, without normalisation. It is
trained by SGD as in appendix H (momentum 0.9, learning rate 0.01, weight decay 1e-4) up to epoch
40, where the paper first decreases the learning rate. Batches have 32 rows; the paper gives no
size. scikit-learn's 1,797 digits (8 x 8 pixels) replace MNIST: one 4:1 split, 10 seeds, statistics
over the test rows. Noise is added to the input of the activation, as in the paper. A unit's mean is
over the test rows. The fluctuation of a row is the absolute change of the activations by the noise,
summed over the units.

Columns of the tables: mean_abs is the mean absolute value of the units' means; saturated, the share
of values; dead, the share of units; lowest, the smallest value; relative, the mean fluctuation
divided by the root mean square of the activations, since a function that halves its outputs halves
their fluctuation too; input_..., the same for the activation's input.

The unit of a verdict is a draw of initial weights, for one network on one split of digits. The
intervals cover other draws of weights, but not other data.

    python -m benchmarks.papers.layeract.statistics [--quick] [--report] [--out FOLDER]

All activations and seeds train as one stack, twice: for 1 epoch and for 40, since the first epoch
of a longer training is the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.common.looks import intervals
from benchmarks.common.verdicts import Claim, Verdict, add_claims, beats, by_unit, exact
from benchmarks.papers.layeract import shared
from benchmarks.papers.layeract.shared import COUNTERPARTS, LAYER_LEVEL, NAMES, beats_all
from combutab import MLPClassifier
from combutab.evaluation import activation_stats, t_interval

NOISES = ((0.0, 0.5), (1.0, 0.5))  # mean and standard deviation
FLUCTUATIONS = {f"layer_{mean:g}": f"N({mean:g}, {sd}²)" for mean, sd in NOISES}
LAYER = ("mean", "mean_abs", "saturated", "dead")
UNITS = ("accuracy", *LAYER, "lowest", "input_mean_abs", "input_sd")
PARTS = ("mean", "sd", "relative", "input_mean", "input_sd")
RESULTS = (*UNITS, *(f"{name}_{part}" for name in FLUCTUATIONS for part in PARTS))


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


def describe(net: MLPClassifier, X: pd.DataFrame, y: pd.Series) -> dict[str, float]:
    """Describe a network by numbers.

    A fluctuation is a mean or standard deviation over the samples of a sum over the units, for
    noise at the activation. ``relative`` is the mean as a share of the root mean square of the
    activations.
    """
    stats = activation_stats(net, X, noises=NOISES)
    before = activation_stats(net, X, noises=(), layers="linears.0")
    layer, units = stats.layers.iloc[0], stats.units
    size = layer["n_units"] * math.sqrt((units["mean"] ** 2 + units["sd"] ** 2).mean())
    values = {"accuracy": net.score(X, y), **layer[list(LAYER)], "lowest": units["min"].min()}
    values["input_mean_abs"] = before.layers["mean_abs"].iloc[0]
    values["input_sd"] = before.units["sd"].mean()
    for row in stats.fluctuation.itertuples():
        parts = row._asdict() | {"relative": row.mean / size}
        values |= {f"layer_{row.noise_mean:g}_{part}": parts[part] for part in PARTS}
    return values


def run(plan: Plan, epochs: int) -> list[Row]:
    """Train and describe: a row an activation and seed."""
    nets, test = train(plan, epochs)
    return [describe(net, *test) for net in nets.values()]


def jobs(arguments: Arguments) -> Iterator[Job]:
    plan = QUICK if arguments.quick else Plan()
    for epochs in plan.epochs:
        wanted = [
            {"activation": activation, "seed": seed, "epoch": epochs}
            for activation, seed in product(plan.activations, range(plan.n_seeds))
        ]
        yield Job(wanted, partial(run, plan, epochs))


# ---- claims --------------------------------------------------------------------------------------


def wide(rows: pd.DataFrame, column: str, last: bool = True) -> pd.DataFrame:
    """Seeds x activations, at the first or last epoch."""
    epoch = rows["epoch"].max() if last else rows["epoch"].min()
    return by_unit(rows[rows["epoch"] == epoch], column, "seed")


def judge_smaller(
    name: str, column: str, last: bool, rows: pd.DataFrame, margin: float
) -> Verdict | None:
    return beats_all(name, wide(rows, column, last), greater_is_better=False)


def judge_above_relu(name: str, rows: pd.DataFrame, margin: float) -> Verdict | None:
    table = wide(rows, "layer_1_mean")
    return beats(table[name], table["relu"]) if {name, "relu"} <= set(table) else None


def judge_alike(rows: pd.DataFrame, margin: float) -> Verdict:
    table = wide(rows, "layer_1_input_mean")
    return exact((table.max(axis=1) - table.min(axis=1)) / table.mean(axis=1), margin)


UNIT, EACH = "initial weights", "than each of eight element-level activations"
SMALLER = [  # what the paper says of both functions: where, text, column, at the last epoch
    ("Figure 2", "unit means nearer to zero, epoch 1,", "mean_abs", False),
    ("Figure 2", "unit means nearer to zero, epoch 40,", "mean_abs", True),
    ("Figure 6", "input means nearer to zero, epoch 40,", "input_mean_abs", True),
    ("Figure 3", "fluctuates less under N(0, 0.5²)", "layer_0_mean", True),
    ("Figure 3", "fluctuates less under N(1, 0.5²)", "layer_1_mean", True),
    ("Figure 3", "fluctuation varies less over samples, N(0, 0.5²),", "layer_0_sd", True),
    ("Figure 3", "fluctuation varies less over samples, N(1, 0.5²),", "layer_1_sd", True),
]
CLAIMS = [
    *(Claim(where, f"{NAMES[name]}: {text} {EACH}", UNIT, partial(judge_smaller, name, *column))
      for where, text, *column in SMALLER for name in LAYER_LEVEL),
    *(Claim("Figure 3", f"{name} fluctuates more than relu under N(1, 0.5²)", UNIT,
            partial(judge_above_relu, name)) for name in COUNTERPARTS.values()),
    Claim("Figure 7", "the inputs of all activations fluctuate alike", "exact", judge_alike, 1e-6),
]  # fmt: skip


# ---- the page ------------------------------------------------------------------------------------


def write_page(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    first, last = rows["epoch"].min(), rows["epoch"].max()
    add_claims(page, CLAIMS, {"here": rows})
    page.figure(plot_statistics(rows), "Means and fluctuations of units by activation")
    with page.details("Means over the seeds ± standard deviation"):
        tables = {f"Units, epoch {epoch}": (epoch, "", UNITS) for epoch in (first, last)}
        for name, noise in FLUCTUATIONS.items():
            tables[f"Fluctuation, {noise}, epoch {last}"] = (last, f"{name}_", PARTS)
        for title, (epoch, prefix, columns) in tables.items():
            page.heading(title, 3)
            own = rows[rows["epoch"] == epoch].groupby("activation", sort=False)
            groups = own[[prefix + column for column in columns]]
            lines = [
                [name, *map("{:.3g} ± {:.2g}".format, part.mean(), part.std())]
                for name, part in groups
            ]
            page.table(["activation", *columns], lines)


def plot_statistics(rows: pd.DataFrame) -> Figure:
    """Draw what the claims are of, at the last epoch, with intervals (smaller than the points)."""
    panels, layer_level = {}, list(LAYER_LEVEL)
    shown = {"mean_abs": "size of the unit means", "layer_0_mean": "fluctuation, N(0, 0.5²)"}
    shown |= {"layer_1_mean": "fluctuation, N(1, 0.5²)", "layer_1_sd": "its spread over samples"}
    for column, title in shown.items():
        table = wide(rows, column)
        others = [name for name in shared.ELEMENT_LEVEL if name in table]
        found = pd.DataFrame([t_interval(table[name]) for name in table], table.columns)
        panels[title] = {"others": found.loc[others], "LayerAct": found.loc[layer_level]}
    return intervals(panels, "mean and 95 % interval")


ROWS = Experiment("layeract_statistics", ("activation", "seed", "epoch"), RESULTS, jobs)
TITLE = "LayerAct: means and fluctuation of the units of one hidden layer"
STUDY = Study("benchmarks.papers.layeract.statistics", TITLE, __doc__, [ROWS], write_page)

if __name__ == "__main__":
    STUDY.main()
