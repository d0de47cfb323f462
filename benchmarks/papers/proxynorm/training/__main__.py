"""Does Proxy Normalization make layer norm match batch norm, also where the batch is small?

Tables 2 to 4 (and 6 to 11) of the Proxy Normalization paper in small, on tables and on
scikit-learn's digits. The tables come from OpenML, or from CSV files in --data-home (or
COMBUTAB_DATA). A run that was stopped goes on where it stood.

    python -m benchmarks.papers.proxynorm.training [--quick] [--data-home FOLDER] [--report]
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping

import pandas as pd

from benchmarks.common.claims import claims_table
from benchmarks.common.command import Arguments, Experiment, Job, Study
from benchmarks.common.looks import cross_table
from benchmarks.common.page import Page
from benchmarks.papers.proxynorm.figures import plot_training
from benchmarks.papers.proxynorm.training import claims
from benchmarks.papers.proxynorm.training.claims import BN_PAIRS, CLAIMS, PN_PAIRS, Difference
from benchmarks.papers.proxynorm.training.nets import DEPTH_DROP, DROPOUT, NORMS
from benchmarks.papers.proxynorm.training.runs import (
    DROPOUT_PLAIN,
    KEY,
    RECIPES,
    SMOOTHING,
    Program,
    Recipe,
)

NAME = "proxynorm_training"
NETS = {
    "MLP": "residual MLPs on tables",
    "CNN": "residual CNN on digits",
    "plain MLP": "deep MLP without skip connections",
}
REGULARISATION = ("plain", "extra")
METRICS = {"accuracy": "test accuracy", "train_accuracy": "train accuracy"}
DATA = ("california_housing", "digits", "PhishingWebsites")
ESTIMATOR_NORMS = ("BN", "LN", "LN+PN", "GN", "GN+PN")
QUICK = {
    "MLP": Recipe(16, 3, n_train=32, n_test=50, epochs=2),
    "CNN": Recipe(8, 3, n_train=32, n_test=50, epochs=2),
    "plain MLP": Recipe(16, 2, 4e-3, n_train=32, n_test=50, epochs=2),
}
LIKE_PAPER = 32  # rows in a batch; the paper's BN takes its statistics over as many
VERDICT = """\
In points of accuracy, over all batch sizes, data sets and regularisations unless said otherwise,
with 95 % intervals over seeds."""
METHOD = f"""\
A residual network is the paper's ResNet v2 in small: a first map, blocks of (norm, activation, map)
twice with a skip connection, a last norm and activation, a linear classifier. On tables the maps
are matrices. On scikit-learn's digits (8 x 8 images, which stand in for ImageNet and CIFAR) they
are 3 x 3 convolutions, the first with stride 2, and the mean over positions comes before the
classifier. The activation is ReLU; LN is GN with one group.

All networks of a data set share one random split, and all norms a seed's weights, shuffles and
masks: the tests speak of seeds, not of other rows. SGD has momentum 0.9 and weight decay 1e-4 on
all parameters; the rate rises over a tenth of the steps and falls by a cosine. Rate and epochs go
by the square root of the batch size, so that the sum of the rates is the same. The rate is the
paper's, 0.1 at batch 128; one other, 0.03, was tried with two seeds and gave BN lower accuracy.
Extra regularisation is the paper's on CIFAR: label smoothing {SMOOTHING}, dropout {DROPOUT} before
the classifier, stochastic depth {DEPTH_DROP}, a row's branch at a time. So are PN's eps 0.03, no
scaling before the mean over positions; norms' eps 1e-6; BN's running decay 0.97; weight
standardisation with a scale after each branch. What differs: sizes, data, length of training, and
the batch, which here is both the step's and the norm's (the paper holds the step's at 256 and takes
BN's statistics over 32). The class of california_housing is that of 4 quantile bins of its target.

MLPs without skip connections, which the paper does not train, are combutab's `MLPClassifier`: AdamW
(weight decay 0.01 on weights alone), {RECIPES["plain MLP"].learning_rate} at batch 128 (with a
quarter of it BN's accuracy was lower), a cosine without the rise; extra regularisation is label
smoothing and dropout {DROPOUT_PLAIN} after each layer.

Accuracy is in percent. *train accuracy* is that over the last epoch as it is trained, with all
regularisation: the paper's Tables 9 to 11 have it so, and leave BN out, whose batches regularise.
*p* is of Student's paired t-test over seeds, by Holm over all p of one table (those of the column
"all" apart); the unit is a seed's mean over data sets and regularisations, unless a table has lines
of their own for these. "equal within a point": the 95 % interval lies within
{100 * claims.MARGIN:g} point of zero."""
FIGURES = "Means over seeds; 0.05 % stands for all that is below it."
BESIDE = """\
Tables 2 and 6, 9: ResNet-50 on ImageNet; ours at batch 32 (the paper's BN takes its statistics over
32 inputs). The data differ, so that only the order of the norms compares. Without / with extra
regularisation."""
GAINS = (
    "What PN adds, in points: mean over the paper's networks (Tables 2 to 4; 9 to 11), least and "
    "most, and ours over all batch sizes"
)


def jobs(arguments: Arguments) -> list[Job]:
    """All programs, the smallest and the largest batch first: a run cut short has these."""
    recipes, sizes, n_seeds, data = RECIPES, (8, 512, 32, 128), 6, DATA
    if arguments.quick:
        recipes, sizes, n_seeds, data = QUICK, (8, 32), 2, DATA[:2]
    nets = [("CNN" if name == "digits" else "MLP", name, NORMS) for name in data]
    nets.append(("plain MLP", data[0], ESTIMATOR_NORMS))
    seeds, home = tuple(range(n_seeds)), arguments.data_home
    return [
        job(Program(net, name, norm, size, kind, seeds, recipes[net], home))
        for size in sizes
        for net, name, norms in nets
        for norm in norms
        for kind in REGULARISATION
    ]


def job(program: Program) -> Job:
    own = (program.net, program.data, program.norm, program.regularisation)
    return Job(program.settings, program.run, f"batch {program.batch_size}, {', '.join(own)}")


def write(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    rows = rows.sort_values("batch_size", kind="stable")
    nets = {NETS[net]: part for net, part in rows.groupby("net", sort=False)}
    page.heading("Verdict")
    page.text(VERDICT, claims_table(CLAIMS, nets))
    page.heading("What was done")
    page.text(METHOD)
    sizes = ["layers", "width", "groups", "n_train", "n_test"]  # groups: GN's, which are the most
    own = rows.groupby(["net", "data"], sort=False)[sizes].max()
    own["seeds"] = rows["seed"].nunique()
    page.table(["net", "data", *own], own.reset_index().to_numpy())
    names = ["batch_size", "learning_rate", "epochs", "steps"]
    schedule = rows[rows["net"] != "plain MLP"][names].drop_duplicates()
    page.table(["batch size", "largest rate", *names[2:]], schedule.astype(str).to_numpy())
    for metric, what in METRICS.items():
        suffix = metric.removesuffix("accuracy").strip("_")
        figure = plot_training(rows, metric, f"{what.replace('accuracy', 'error')}, %")
        page.figure(figure, f"100 % less {what}, by batch size", suffix)
    page.text(FIGURES)
    for name, part in nets.items():
        write_net(page, name, part)
    write_beside_paper(page, {name: nets[name] for name in nets if name != NETS["plain MLP"]})


def write_net(page: Page, name: str, rows: pd.DataFrame) -> None:
    page.heading(f"{name[0].upper()}{name[1:]}")
    for data, part in rows.groupby("data", sort=False):
        for metric, title in METRICS.items():
            page.heading(f"{data}: {title}, without / with extra regularisation", 3)
            cross_table(page, both(part, metric), "norm", "batch_size", "batch size")
    for title, pairs, metric in (
        ("What PN adds: test accuracy", PN_PAIRS, "accuracy"),
        ("What PN adds: train accuracy", PN_PAIRS, "train_accuracy"),
        ("Beside BN: test accuracy", BN_PAIRS, "accuracy"),
    ):
        page.heading(title, 3)
        differences_table(page, claims.contrasts(rows, pairs, metric))
    for pair in (("LN+PN", "LN"), ("LN+PN", "BN")):
        page.heading(f"{pair[0]} less {pair[1]}, setting by setting", 3)
        differences_table(page, claims.by_setting(rows, pair))


def differences_table(page: Page, found: Mapping[tuple[Hashable, ...], Difference]) -> None:
    """Add a table of differences in points; the last of their keys is the batch size."""
    lines = [(", ".join(key[:-1]), key[-1], f"{d}: {d.outcome}") for key, d in found.items()]
    table = pd.DataFrame(lines, columns=["name", "size", "text"])
    cross_table(page, table, "name", "size", "points, by batch size")


def both(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Mean and spread without / with extra regularisation, by data, norm and batch size."""
    table = claims.cells(rows, metric)
    text = [f"{100 * m:.1f} ± {100 * sd:.1f}" for m, sd in table[["mean", "std"]].to_numpy()]
    groups = table.assign(text=text).groupby(["data", "norm", "batch_size"], sort=False)["text"]
    return groups.agg(" / ".join).reset_index()


def write_beside_paper(page: Page, nets: dict[str, pd.DataFrame]) -> None:
    page.heading("Beside the paper's")
    page.text(BESIDE)
    paper, rows = claims.load_paper(), pd.concat(nets.values())
    paper = paper[(paper["net"] == "RN50") & (paper["groups"] != 32)]
    for metric, title in METRICS.items():
        page.heading(title.capitalize(), 3)
        theirs = paper[paper["metric"] == metric].groupby("norm")["mean"]
        theirs = theirs.agg(lambda means: " / ".join(f"{mean:.1f}" for mean in means))
        theirs = theirs.rename("text").reset_index().assign(data="paper's ResNet-50, GN-8")
        ours = both(rows[rows["batch_size"] == LIKE_PAPER], metric)
        cross_table(page, pd.concat([ours, theirs]), "norm", "data", "norm")
    page.heading(GAINS, 3)
    lines = []
    for metric, pair in itertools.product(METRICS, PN_PAIRS):
        theirs = claims.paper_gains(metric, pair).groupby("regularisation")["gain"]
        theirs = theirs.agg(lambda g: f"{g.mean():+.1f} ({g.min():+.1f} to {g.max():+.1f})")
        gains = (100 * claims.gaps(part, pair, metric) for part in nets.values())
        ours = [gain.groupby("regularisation").mean() for gain in gains]
        name = [metric.replace("_", " "), " - ".join(pair)]
        lines += [
            [*name, kind, theirs.get(kind, "-"), *(f"{gain[kind]:+.1f}" for gain in ours)]
            for kind in REGULARISATION
        ]
    page.table(["", "difference", "regularisation", "paper's", *nets], lines)


SETTINGS = (*KEY, "n_train", "epochs", "steps", "learning_rate", "width", "layers")
RESULTS = (
    *("accuracy", "log_loss", "train_accuracy", "train_loss", "fit_accuracy"),
    *("n_test", "groups", "seconds"),
)
PACKAGES = ("numpy", "sklearn")
COLUMNS = (*SETTINGS, *RESULTS, *PACKAGES, "combutab", "torch")
STUDY = Study(
    NAME,
    "Does PN make layer norm match batch norm?",
    __doc__.splitlines()[0],
    "benchmarks.papers.proxynorm.training",
    [Experiment(NAME, SETTINGS, RESULTS, jobs, KEY, PACKAGES, COLUMNS)],
    write,
    lambda parser: parser.add_argument(
        "--data-home", help="folder with the CSV files; else OpenML"
    ),
)

if __name__ == "__main__":
    STUDY.main()
