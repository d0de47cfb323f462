"""Does Proxy Normalization (PN) make layer norm (LN) and group norm (GN) match batch norm (BN)?

Tables 2 to 4 (and 6 to 11) of the Proxy Normalization paper in small, on two tables and on
scikit-learn's digits.

**Units.** The unit of a claim is a data set. There are three, each with residual networks. The
value of a unit is its mean difference in accuracy, in percentage points, over seeds, batch sizes
and regularisations. Three units are too few to decide most claims, and PN acts differently on
images (one unit) and on tables (two units), as the figure and the first table below it show. The
intervals in the figure and in the tables are 95 % intervals over seeds, on one split of one data
set. They cover repeated training, but not other data.

**Networks.** The residual network is a small version of the paper's ResNet v2. It has a first map,
blocks with a skip connection around two sequences of norm, activation and map, a last norm and
activation, and a linear classifier. On tables the maps are matrices. On digits (8 x 8 images, in
place of ImageNet and CIFAR) they are 3 x 3 convolutions. The first one has stride 2, and the
classifier gets the mean over positions. The activation is ReLU. LN is GN with one group. "+WS" adds
weight standardisation.

**Data.** The classes of california_housing are the 4 quantile bins of its target. All networks of a
data set share one random split. For each seed, all norms share initial weights, shuffles and masks.

**Training.** SGD has momentum 0.9 and weight decay 1e-4 on all parameters. The learning rate
increases during the first tenth of the steps, then follows a cosine schedule. The largest learning
rate and the number of epochs are proportional to the square root of the batch size, so that the
learning rates of all steps have the same sum. The learning rate is the paper's, 0.1 at batch size
128. One other, 0.03, was tried with two seeds, and the accuracy of BN was lower.

**Regularisation and constants.** Extra regularisation is the paper's for CIFAR: label smoothing
0.1, dropout 0.25 before the classifier, and stochastic depth 0.1, which drops a branch for single
rows. These are the paper's too: eps 0.03 in PN, no scale before the mean over positions, eps 1e-6
in norms, decay 0.97 of BN's running statistics, and weight standardisation with a scale after each
branch.

**Differences from the paper.** Sizes, data and length of training differ. So does the batch size,
which here is that of the step and of the norm. The paper uses 256 rows for each step and computes
BN's statistics from 32.

**Train accuracy** is the accuracy during the last epoch of training, with all regularisation, as in
the paper's Tables 9 to 11. These tables omit BN, because its batches regularise.

    python -m benchmarks.papers.proxynorm.training [--quick] [--data-home FOLDER] [--report]

The tables come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA). A run that was
stopped is resumed by the same command.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common import Arguments, Experiment, Job, Page, Study
from benchmarks.common.looks import Line, cross_table, plot
from benchmarks.common.verdicts import Claim, Verdict, add_claims, beats, matches
from benchmarks.papers.proxynorm.figures import look
from benchmarks.papers.proxynorm.training import nets, runs
from benchmarks.papers.proxynorm.training.runs import RECIPES, Program, Recipe
from combutab.evaluation import t_interval

NAME = "proxynorm_training"
TITLES = {"accuracy": "Test accuracy", "train_accuracy": "Training accuracy"}
DATA = ("california_housing", "digits", "PhishingWebsites")
PAIRS = [(f"{norm}+PN", norm) for norm in ("LN", "GN", "GN+WS", "BN")]
BESIDE_BN = [(norm, "BN") for norm in ("LN", "LN+PN", "GN", "GN+PN")]
SMALL = {"n_train": 32, "n_test": 50, "epochs": 2}
QUICK = {"MLP": Recipe(16, 3, **SMALL), "CNN": Recipe(8, 3, **SMALL)}


def jobs(arguments: Arguments) -> Iterator[Job]:
    """All programs, the smallest and the largest batch first: a run cut short has these."""
    recipes, sizes, n_seeds, data = RECIPES, (8, 512, 32, 128), 6, DATA
    if arguments.quick:
        recipes, sizes, n_seeds, data = QUICK, (8, 32), 2, DATA[:2]
    seeds = tuple(range(n_seeds))
    for size, name, norm, kind in product(sizes, data, nets.NORMS, ("plain", "extra")):
        net = "CNN" if name == "digits" else "MLP"
        yield job(Program(net, name, norm, size, kind, seeds, recipes[net], arguments.data_home))


def job(program: Program) -> Job:
    return Job(program.settings, program.run)


def gaps(rows: pd.DataFrame, a: str, b: str, metric: str, at: str = "") -> pd.Series:
    """Subtract norm b's means from a's, in points, by data set; ``at``: "batch_size min"."""
    if at:
        column, which = at.split()
        rows = rows[rows[column] == rows[column].agg(which)]
    means = rows.groupby(["data", "norm"], sort=False)[metric].mean().unstack()
    return 100 * (means[a] - means[b])


def claim(
    where: str, text: str, a: str, b: str, metric: str = "accuracy", margin: float = 0.0,
    at: str = "", than: str = "",
) -> Claim:  # fmt: skip
    """Make a claim that norm a beats b, or with a margin matches it, or does so more.

    ``at`` is a column and which of its values (of regularisations "min" is extra, "max" plain);
    ``than`` is another, or another pair of norms, where a's advantage is less.
    """

    def judge(rows: pd.DataFrame, margin: float) -> Verdict:
        found = gaps(rows, a, b, metric, at)
        if margin:
            return matches(found, 0.0, margin)
        pair = than.split(" - ") if " - " in than else (a, b)
        return beats(found, gaps(rows, *pair, metric, "" if " - " in than else than) if than else 0)

    measure = f"{metric.replace('_', ' ')}, points"
    return Claim(where, text, "data set", judge, margin, measure)


TABLE = pd.read_csv(Path(__file__).with_name("claims.csv"), keep_default_na=False)
CLAIMS = tuple(claim(*row) for row in TABLE.itertuples(index=False))


def write(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    rows = rows.sort_values("batch_size", kind="stable")
    add_claims(page, CLAIMS, {"residual networks": rows})
    page.figure(plot_gains(rows), "Gain in test accuracy by PN, in points, by batch size")
    rows = rows.assign(where=rows["net"] + " on " + rows["data"])
    shown = (("accuracy", PAIRS, "PN"), ("train_accuracy", PAIRS, "PN"))
    for metric, pairs, what in (*shown, ("accuracy", BESIDE_BN, "other norms instead of BN")):
        with page.details(f"{TITLES[metric]}: gain by {what}, in points, by data set"):
            lines = [
                {"pair": f"{a} - {b}", "where": where, "text": interval(own, a, b, metric)}
                for where, own in rows.groupby("where", sort=False)
                for a, b in pairs
            ]
            cross_table(page, pd.DataFrame(lines), "pair", "where", "mean [95 % over seeds]")
    for metric in TITLES:
        with page.details(f"{TITLES[metric]}, %, without / with extra regularisation"):
            for where, own in rows.groupby("where", sort=False):
                page.text(f"{where}, by batch size:")
                cross_table(page, percent(own, metric, "batch_size"), "norm", "batch_size", "norm")
    with page.details("Sizes of networks, batches and learning rates"):
        sizes = ["layers", "width", "groups", "n_train", "n_test"]  # groups: of GN
        own = rows.groupby("where", sort=False)[sizes].max().assign(seeds=rows["seed"].nunique())
        page.table(["network", *own], own.reset_index().to_numpy())
        names = ["batch_size", "learning_rate", "epochs", "steps"]
        schedule = rows[names].drop_duplicates().astype(str)
        page.table(["batch size", "largest rate", *names[2:]], schedule.to_numpy())


def interval(rows: pd.DataFrame, a: str, b: str, metric: str) -> str:
    """The mean difference in points and its interval over seeds."""
    means = rows.groupby(["seed", "norm"])[metric].mean().unstack()
    return "{:+.2f} [{:+.2f}, {:+.2f}]".format(*(100 * x for x in t_interval(means[a] - means[b])))


def percent(rows: pd.DataFrame, metric: str, by: str) -> pd.DataFrame:
    """Mean ± standard deviation over seeds, without / with extra regularisation."""
    groups = rows.groupby(["norm", by, "regularisation"], sort=False)[metric]
    text = groups.agg(lambda x: f"{100 * x.mean():.1f} ± {100 * x.std():.1f}").rename("text")
    return text.groupby(level=["norm", by], sort=False).agg(" / ".join).reset_index()


def plot_gains(rows: pd.DataFrame) -> Figure:
    """Draw what PN adds by batch size: means over regularisations, 95 % intervals over seeds."""
    sizes = sorted(set(rows["batch_size"]))
    panels: dict[str, list[Line]] = {}
    for (net, data), own in rows.groupby(["net", "data"], sort=False):
        lines = panels[f"{net} on {data}"] = []
        for a, b in PAIRS:
            means = own.groupby(["batch_size", "seed", "norm"])["accuracy"].mean().unstack()
            gains = 100 * (means[a] - means[b]).unstack()
            middle, low, high = zip(*(t_interval(row) for row in gains.to_numpy()), strict=True)
            x = [sizes.index(size) for size in gains.index]
            lines.append(Line(x, middle, f"{a} - {b}", look(a), low, high))
    ticks, labels = {float(i): str(size) for i, size in enumerate(sizes)}, ("batch size", "points")
    return plot(panels, labels, n_columns=2, ticks=ticks, share="none")


SETTINGS = (*runs.KEY, "n_train", "epochs", "steps", "learning_rate", "width", "layers")
RESULTS = ("accuracy", "log_loss", "train_accuracy", "train_loss", "fit_accuracy")
RESULTS += ("n_test", "groups", "seconds")
STUDY = Study(
    "benchmarks.papers.proxynorm.training",
    "Training with Proxy Normalization: layer and group norm against batch norm",
    __doc__,
    [Experiment(NAME, SETTINGS, RESULTS, jobs, runs.KEY, ("numpy", "sklearn"))],
    write,
)

if __name__ == "__main__":
    STUDY.main()
