"""Does Proxy Normalization make layer norm match batch norm, also where the batch is small?

Tables 2 to 4 (and 6 to 11) of the Proxy Normalization paper in small: batch, layer and group norm
and group norm with weight standardisation, each without and with PN, in residual networks on tables
and on scikit-learn's digits, with and without extra regularisation, at four batch sizes. All seeds
of a setting train as one program. Deep MLPs without skip connections, on the first table, are
combutab's estimator. A run that was stopped goes on where it stood.

    python -m benchmarks.papers.proxynorm.training [--quick] [--seeds 6] [--data-home FOLDER]
        [--report]

The tables come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
import pandas as pd

from benchmarks.papers.common.claims import claims_table
from benchmarks.papers.common.command import Experiment, Job, Study
from benchmarks.papers.common.page import Page, markdown_table
from benchmarks.papers.proxynorm.figures import plot_training
from benchmarks.papers.proxynorm.training.claims import CLAIMS
from benchmarks.papers.proxynorm.training.nets import DEPTH_DROP
from benchmarks.papers.proxynorm.training.numbers import (
    BN_PAIRS,
    MARGIN,
    PN_PAIRS,
    Difference,
    Pair,
    by_setting,
    cells,
    contrasts,
    load_paper,
    paper_gains,
)
from benchmarks.papers.proxynorm.training.runs import (
    DATA,
    DROPOUT,
    DROPOUT_PLAIN,
    ESTIMATOR_NORMS,
    KEY,
    NETS,
    NORMS,
    RECIPES,
    REGULARISATION,
    SMOOTHING,
    TABLES,
    Program,
    Recipe,
    train,
    train_plain,
)

QUICK = {
    "MLP": Recipe(16, 3, n_train=64, n_test=100, epochs=2),
    "CNN": Recipe(8, 3, n_train=64, n_test=100, epochs=2),
    "plain MLP": Recipe(16, 2, 4e-3, n_train=64, n_test=100, epochs=2),
}
LIKE_PAPER = 32  # inputs over which the paper's BN takes its statistics
METHOD = """\
Each network is the paper's ResNet v2 in small: a first map, blocks of (norm, activation, map) twice
with a skip connection, a last norm and activation, a linear classifier. On tables the maps are
matrices and the network has {table[layers]} layers of {table[width]} units. On scikit-learn's
digits (8 x 8 images, which stand in for ImageNet and CIFAR) they are 3 x 3 convolutions, the first
with stride 2, in {image[layers]} layers of {image[width]} channels, and the mean over positions
comes before the classifier. The activation is {activation}. Groups of GN: {groups}; LN is GN with
one group.

{n_train} training rows: one random split, the same for all, of which up to {n_test} other rows are
the test; rows of equal features stay on one side. {n_seeds} seeds, each of which all norms share:
weights, shuffles and masks. SGD with momentum 0.9 and weight decay 1e-4 on all parameters, PN's
included; the rate rises over a tenth of the steps and falls by a cosine. Rate and epochs go by the
square root of the batch size, so that the sum of the rates over a training is the same:

{schedule}
The rate is the paper's, 0.1 at batch 128; one other, 0.03, was tried with two seeds and gave BN
lower accuracy. Extra regularisation is the paper's on CIFAR: label smoothing {smoothing}, dropout
{dropout} before the classifier, stochastic depth {depth}, a row's branch at a time. What else is
the paper's: PN's eps 0.03, its own gain and shift in place of the norm's, no scaling before the
mean over positions; norms' eps 1e-6; BN's running decay 0.97; weight standardisation with a scale
after each branch; weights from a truncated normal. What differs: sizes, data, length of training,
and the batch, which here is both the step's and the norm's (the paper holds the step's at 256 and
takes BN's statistics over 32). {classes}Accuracy is in percent.

MLPs without skip connections, which the paper does not train, have {plain[layers]} layers of
{plain[width]} units and are combutab's `MLPClassifier` on {plain[data]}: AdamW (weight decay 0.01
on weights alone), {rate_plain} at batch 128 (with a quarter of it BN's accuracy was lower), a
cosine without the rise; its extra regularisation is label smoothing and dropout {dropout_plain}
after each layer.

*train accuracy* is that over the last epoch as it is trained, with dropout, stochastic depth and
batch statistics: the paper's Tables 9 to 11 have it so, and leave BN out, whose batches regularise.
*p* is of Student's paired t-test over seeds, by Holm over all p of one table (those of the column
"all" apart); the unit is a seed's mean over data sets and regularisations, unless a table has lines
of their own for these. "equal within a point": the 95 % interval lies within {margin:g} point of
zero. All networks of a data set share one split: the tests speak of seeds, not of other rows.
"""


def jobs(arguments: argparse.Namespace) -> list[Job]:
    """All programs, the smallest and the largest batch first: a run cut short has these."""
    recipes = QUICK if arguments.quick else RECIPES
    seeds = tuple(range(arguments.seeds or (2 if arguments.quick else 6)))
    tables = [data for data in arguments.data if data in TABLES]
    nets = [("CNN" if data == "digits" else "MLP", data, tuple(NORMS)) for data in arguments.data]
    nets += [("plain MLP", data, ESTIMATOR_NORMS) for data in tables[:1]]
    sizes = batch_sizes(arguments)
    programs = [
        Program(net, data, norm, n, seeds, recipes[net], arguments.activation, arguments.data_home)
        for n in dict.fromkeys([sizes[0], sizes[-1], *sizes])
        for net, data, norms in nets
        for norm in norms
    ]
    return [job(program) for program in programs]


def job(program: Program) -> Job:
    run = partial(train_plain if program.net == "plain MLP" else train, program)
    label = f"batch {program.batch_size}, {program.net}, {program.data}, {program.norm}"
    return Job(program.settings, run, label)


def batch_sizes(arguments: argparse.Namespace) -> list[int]:
    return sorted(arguments.batch_sizes or ([8, 32] if arguments.quick else [8, 32, 128, 512]))


def write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    rows = rows[
        (rows["activation"] == arguments.activation)
        & rows["batch_size"].isin(batch_sizes(arguments))
        & rows["data"].isin(arguments.data)
    ]
    nets = dict(list(rows.groupby("net", sort=False)))
    page.heading("Verdict")
    page.text(
        "In points of accuracy, over all batch sizes, data sets and regularisations unless said "
        "otherwise, with 95 % intervals over seeds.",
        claims_table(CLAIMS, {NETS[net]: part for net, part in nets.items()}),
    )
    page.heading("What was done")
    page.text(method(rows, nets))
    for metric, what, suffix in (
        ("accuracy", "test accuracy, %", ""),
        ("train_accuracy", "accuracy, last epoch of training, %", "train"),
    ):
        page.figure(plot_training(rows, metric, what), f"{what}, over the batch size", suffix)
    page.text("Means over seeds; bars are one standard deviation, and end at 100 %.")
    for net, part in nets.items():
        write_net(page, NETS[net], part)
    write_beside_paper(page, rows)


def method(rows: pd.DataFrame, nets: dict[str, pd.DataFrame]) -> str:
    none = dict.fromkeys(("layers", "width", "data"), "no")
    table, image, plain = (nets[net].iloc[0] if net in nets else none for net in NETS)
    schedule = rows[rows["net"] != "plain MLP"].drop_duplicates("batch_size")
    schedule = schedule.sort_values("batch_size")[
        ["batch_size", "learning_rate", "epochs", "steps"]
    ]
    groups = rows[rows["norm"].str.startswith("GN")].drop_duplicates("net")
    binned = [
        f"{name} is that of {TABLES[name]} quantile bins"
        for name in dict.fromkeys(rows["data"])
        if TABLES.get(name)
    ]
    return METHOD.format(
        table=table,
        image=image,
        plain=plain,
        activation=" and ".join(dict.fromkeys(rows["activation"])),
        groups=", ".join(f"{row.groups} in the {row.net}" for row in groups.itertuples()),
        n_train=rows["n_train"].iloc[0],
        n_test=rows["n_test"].max(),
        n_seeds=rows["seed"].nunique(),
        schedule=markdown_table(
            ["batch size", "largest rate", "epochs", "steps"], schedule.astype(str).to_numpy()
        ),
        smoothing=SMOOTHING,
        dropout=DROPOUT,
        depth=DEPTH_DROP,
        dropout_plain=DROPOUT_PLAIN,
        rate_plain=RECIPES["plain MLP"].learning_rate,
        margin=100 * MARGIN,
        classes=f"The class of {', of '.join(binned)} of its target. " if binned else "",
    )


def write_net(page: Page, name: str, rows: pd.DataFrame) -> None:
    page.heading(f"{name[0].upper()}{name[1:]}")
    sizes = sorted(set(rows["batch_size"]))
    batches = [f"batch {size}" for size in sizes]
    for data, part in rows.groupby("data", sort=False):
        for metric, title in (("accuracy", "test accuracy"), ("train_accuracy", "train accuracy")):
            page.heading(f"{data}: {title}, without / with extra regularisation", 3)
            found, norms = both(part, metric), dict.fromkeys(part["norm"])
            lines = [[norm, *(found.get((data, n, norm), "") for n in sizes)] for norm in norms]
            page.table(["norm", *batches], lines)
    if rows["seed"].nunique() < 2:
        return
    for title, pairs, metric in (
        ("What PN adds: test accuracy", PN_PAIRS, "accuracy"),
        ("What PN adds: train accuracy", PN_PAIRS, "train_accuracy"),
        ("Beside BN: test accuracy", BN_PAIRS, "accuracy"),
    ):
        page.heading(title, 3)
        differences = contrasts(rows, pairs, metric)
        lines = [
            [pair, *(outcome(differences[pair, n]) for n in (*sizes, "all"))]
            for pair in dict.fromkeys(pair for pair, _ in differences)
        ]
        page.table(["difference, points", *batches, "all"], lines)
    for pair in (("LN+PN", "LN"), ("LN+PN", "BN")):
        page.heading(f"{pair[0]} less {pair[1]}, setting by setting", 3)
        found = by_setting(rows, pair)
        lines = [
            [data, kind, *(outcome(found.get((data, kind, n))) for n in sizes)]
            for data in dict.fromkeys(rows["data"])
            for kind in REGULARISATION
        ]
        page.table(["data", "regularisation", *batches], lines)


def outcome(difference: Difference | None) -> str:
    return f"{difference}: {difference.outcome}" if difference else "-"


def both(rows: pd.DataFrame, metric: str) -> dict[tuple[str, int, str], str]:
    """Mean and spread without / with extra regularisation, by data, batch size and norm."""
    table = cells(rows, metric)
    table = table.sort_values("regularisation", key=lambda k: k.map(REGULARISATION.index))
    spread = [f" ± {100 * std:.1f}" if np.isfinite(std) else "" for std in table["std"]]
    table["text"] = [f"{100 * m:.1f}{sd}" for m, sd in zip(table["mean"], spread, strict=True)]
    return table.groupby(["data", "batch_size", "norm"])["text"].agg(" / ".join).to_dict()


def write_beside_paper(page: Page, rows: pd.DataFrame) -> None:
    size = min(set(rows["batch_size"]), key=lambda s: abs(s - LIKE_PAPER))
    page.heading("Beside the paper's")
    page.text(
        f"Tables 2 and 6, 9: ResNet-50 on ImageNet; ours at batch {size} "
        "(the paper's BN takes its statistics over 32 inputs). The data differ, so that only the "
        "order of the norms compares. Without / with extra regularisation."
    )
    own = rows[rows["net"] != "plain MLP"]
    rows = rows if own.empty else own
    paper = load_paper()
    paper = paper[(paper["net"] == "RN50") & (paper["groups"] != 32)]
    data = list(dict.fromkeys(rows.loc[rows["batch_size"] == size, "data"]))
    for metric, title in (("accuracy", "Test accuracy"), ("train_accuracy", "Train accuracy")):
        page.heading(title, 3)
        theirs = paper[paper["metric"] == metric].groupby("norm")["mean"]
        theirs = theirs.agg(lambda means: " / ".join(f"{mean:.1f}" for mean in means))
        ours = both(rows, metric)
        lines = [
            [norm, theirs.get(norm, "-"), *(ours.get((name, size, norm), "") for name in data)]
            for norm in dict.fromkeys(rows["norm"])
        ]
        page.table(["norm", "paper's ResNet-50 (GN: 8 groups)", *data], lines)
    page.heading(
        "What PN adds, in points: mean over the paper's networks (Tables 2 to 4; 9 to 11), "
        "least and most, and ours over all batch sizes",
        3,
    )
    nets = dict(list(rows.groupby("net", sort=False)))
    lines = [
        [metric.replace("_", " "), f"{a} - {b}", kind, theirs_of(metric, f"{a} - {b}", kind)]
        + [ours_of(part, (a, b), metric, kind) for part in nets.values()]
        for metric in ("accuracy", "train_accuracy")
        for a, b in PN_PAIRS
        for kind in REGULARISATION
    ]
    header = ["", "difference", "regularisation", "paper's", *(NETS[net] for net in nets)]
    page.table(header, lines)


def theirs_of(metric: str, pair: str, kind: str) -> str:
    table = paper_gains(metric)
    gains = table.loc[(table["pair"] == pair) & (table["regularisation"] == kind), "gain"]
    if gains.empty:
        return "-"
    return f"{gains.mean():+.1f} ({gains.min():+.1f} to {gains.max():+.1f})"


def ours_of(rows: pd.DataFrame, pair: Pair, metric: str, kind: str) -> str:
    means = rows[rows["regularisation"] == kind].groupby("norm")[metric].mean()
    if not set(pair) <= set(means.index):
        return "-"
    return f"{100 * (means[pair[0]] - means[pair[1]]):+.1f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, help="6; 2 with --quick")
    parser.add_argument("--data", nargs="+", choices=["digits", *TABLES], default=list(DATA))
    parser.add_argument("--batch-sizes", nargs="+", type=int, help="8 32 128 512")
    parser.add_argument("--activation", default="relu", help="or combu, swish, ...")
    parser.add_argument("--data-home", help="folder with the CSV files; else OpenML")


SETTINGS = (*KEY, "n_train", "epochs", "steps", "learning_rate", "width", "layers")
RESULTS = (
    *("accuracy", "log_loss", "train_accuracy", "train_loss", "fit_accuracy"),
    *("n_test", "groups", "seconds", "numpy", "sklearn"),
)
STUDY = Study(
    "proxynorm_training",
    "Does PN make layer norm match batch norm?",
    __doc__.splitlines()[0],
    "benchmarks.papers.proxynorm.training",
    [Experiment("proxynorm_training", SETTINGS, RESULTS, jobs, KEY)],
    write,
    add_arguments,
)

if __name__ == "__main__":
    STUDY.main()
