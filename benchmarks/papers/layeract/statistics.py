"""The LayerAct paper's Figures 2, 3, 6 and 7: what the units of a single hidden layer do.

    python -m benchmarks.papers.layeract.statistics [--quick] [--report] [--out FOLDER]

A network of one hidden layer of 512 units, as in the paper's section 4.1; scikit-learn's digits
(8 x 8) stand in for MNIST. All activations and seeds train as one stack, twice: for 1 epoch and for
40, since the first epoch of a longer training is the same.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pandas as pd
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_figure, write_table
from benchmarks.papers.layeract.robustness_numbers import ELEMENT_LEVEL, LAYER_LEVEL, OTHERS
from benchmarks.papers.layeract.statistics_report import FLUCTUATIONS, NAME, write_report
from combutab import MLPClassifier
from combutab.estimators import FitTask, fit_stacked
from combutab.evaluation import ActivationStats, activation_stats
from combutab.plotting import plot_activation_means, plot_fluctuation

ACTIVATIONS = (*ELEMENT_LEVEL, *LAYER_LEVEL, *OTHERS)
DRAWN = ("relu", "leaky_relu", "silu", "hardsilu", *LAYER_LEVEL)  # few enough to be told apart
NOISES = ((0.0, 0.5), (1.0, 0.5))


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
    activations: Sequence[str], epochs: int, plan: Plan
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
        for activation, seed in product(activations, range(plan.n_seeds))
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
            name = FLUCTUATIONS[where, noise]
            values[f"{name}_mean"], values[f"{name}_sd"] = row.mean, row.sd
            values[f"{name}_relative"] = row.mean / size
            values[f"{name}_input_mean"], values[f"{name}_input_sd"] = row.input_mean, row.input_sd
    return values, replace(stats, samples=_both(stats, at_input)), before


def _both(stats: ActivationStats, at_input: ActivationStats) -> pd.DataFrame:
    """The samples under both kinds of noise, told apart by the name of the layer."""
    tables = {"hidden": stats.samples, "hidden, at pixels": at_input.samples}
    return pd.concat([each.assign(layer=name) for name, each in tables.items()])


def run(activations: Sequence[str], plan: Plan, out: Path) -> pd.DataFrame:
    """Train, describe, draw seed 0; returns a row an activation, seed and epoch."""
    rows = []
    for epoch in plan.epochs:
        nets, (X, y) = train(activations, epoch, plan)
        drawn: dict[str, ActivationStats] = {}
        inputs: dict[str, ActivationStats] = {}
        for (activation, seed), net in nets.items():
            values, stats, before = describe(net, X, y)
            rows.append({"activation": activation, "seed": seed, "epoch": epoch, **values})
            if seed == 0 and activation in DRAWN:
                drawn[activation], inputs[activation] = stats, before
        when = "first" if epoch == plan.epochs[0] else "last"
        _save(plot_activation_means(drawn), out / f"{NAME}_means_{when}.png")
        _save(plot_activation_means(inputs), out / f"{NAME}_input_means_{when}.png")
    _save(plot_fluctuation(drawn), out / f"{NAME}_fluctuation.png")
    given = {
        name: replace(s, samples=s.samples.assign(fluctuation=s.samples["input_fluctuation"]))
        for name, s in drawn.items()
    }
    _save(plot_fluctuation(given), out / f"{NAME}_input_fluctuation.png")
    return pd.DataFrame(rows)


def _save(figure: object, path: Path) -> None:
    write_figure(figure, path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="32 units, 2 epochs, 300 digits")
    parser.add_argument("--report", action="store_true", help="train nothing, write the report")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    plan, activations = Plan(), ACTIVATIONS
    if arguments.quick:
        if arguments.out == parser.get_default("out"):
            sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
        plan, activations = QUICK, ("relu", "silu", *LAYER_LEVEL)
    print(describe_machine(), flush=True)
    path = arguments.out / f"{NAME}.csv"
    if not arguments.report:
        arguments.out.mkdir(parents=True, exist_ok=True)
        rows = run(activations, plan, arguments.out)
        write_table(rows.round(6), path, index=False, lineterminator="\n")
    words = [f"python benchmarks/{NAME}.py", *["--quick"] * arguments.quick]
    settings = f"{plan.width} units, batches of {plan.batch_size} (the paper gives no size)"
    write_report(pd.read_csv(path), arguments.out, " ".join(words), settings)


if __name__ == "__main__":
    main()
