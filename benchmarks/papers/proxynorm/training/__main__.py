"""Does Proxy Normalization make layer norm match batch norm, also where the batch is small?

Tables 2 to 4 (and 6 to 11) of the Proxy Normalization paper in small, on tables and on
scikit-learn's digits. The tables come from OpenML, or from CSV files in --data-home (or
COMBUTAB_DATA). A run that was stopped goes on where it stood.

    python -m benchmarks.papers.proxynorm.training [--quick] [--data-home FOLDER] [--report]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common.command import Arguments, Experiment, Job, Study
from benchmarks.common.looks import Line, cross_table, plot
from benchmarks.common.page import Page
from benchmarks.common.verdicts import Claim, Verdict, beats, claims_table, matches
from benchmarks.papers.proxynorm.figures import look
from benchmarks.papers.proxynorm.training.nets import DEPTH_DROP, DROPOUT, NORMS
from benchmarks.papers.proxynorm.training.runs import (
    DROPOUT_PLAIN,
    KEY,
    RECIPES,
    SMOOTHING,
    Program,
    Recipe,
)
from combutab.evaluation import t_interval

NAME = "proxynorm_training"
EXPECTED = Path(__file__).parents[1] / "expected" / f"{NAME}.csv"
TITLES = {"accuracy": "Test accuracy", "train_accuracy": "Train accuracy"}
DATA = ("california_housing", "digits", "PhishingWebsites")
ESTIMATOR_NORMS = ("BN", "LN", "LN+PN", "GN", "GN+PN")
PAIRS = [(f"{norm}+PN", norm) for norm in ("LN", "GN", "GN+WS", "BN")]
BESIDE_BN = [(norm, "BN") for norm in ("LN", "LN+PN", "GN", "GN+PN")]
QUICK = {
    "MLP": Recipe(16, 3, n_train=32, n_test=50, epochs=2),
    "CNN": Recipe(8, 3, n_train=32, n_test=50, epochs=2),
    "plain MLP": Recipe(16, 2, 4e-3, n_train=32, n_test=50, epochs=2),
}
METHOD = f"""\
A residual network is the paper's ResNet v2 in small: a first map, blocks of (norm, activation, map)
twice with a skip connection, a last norm and activation, a linear classifier. On tables the maps
are matrices. On scikit-learn's digits (8 x 8 images, which stand in for ImageNet and CIFAR) they
are 3 x 3 convolutions, the first with stride 2, and the mean over positions comes before the
classifier. The activation is ReLU; LN is GN with one group. The tables were read from CSV files:
copies of OpenML's california_housing (github.com/ageron/handson-ml2) and PhishingWebsites
(github.com/frbk1992/GeneticAlgorithmProject). The class of california_housing is that of 4 quantile
bins of its target.

All networks of a data set share one random split, and all norms a seed's weights, shuffles and
masks. SGD has momentum 0.9 and weight decay 1e-4 on all parameters; the rate rises over a tenth of
the steps and falls by a cosine. Rate and epochs go by the square root of the batch size, so that
the sum of the rates is the same. The rate is the paper's, 0.1 at batch 128; one other, 0.03, was
tried with two seeds and gave BN lower accuracy. Extra regularisation is the paper's on CIFAR: label
smoothing {SMOOTHING}, dropout {DROPOUT} before the classifier, stochastic depth {DEPTH_DROP}, a
row's branch at a time. So are PN's eps 0.03, no scaling before the mean over positions; norms' eps
1e-6; BN's running decay 0.97; weight standardisation with a scale after each branch. What differs:
sizes, data, length of training, and the batch, which here is both the step's and the norm's (the
paper holds the step's at 256 and takes BN's statistics over 32).

MLPs without skip connections ("plain MLP"), which the paper does not train, are combutab's
`MLPClassifier`: AdamW (weight decay 0.01 on weights only), {RECIPES["plain MLP"].learning_rate} at
batch 128 (with a quarter of it BN's accuracy was lower), a cosine without the rise; extra
regularisation is label smoothing and dropout {DROPOUT_PLAIN} after each layer.

*Train accuracy* is that over the last epoch as it is trained, with all regularisation: the paper's
Tables 9 to 11 have it so, and leave BN out, whose batches regularise."""
UNITS = """\
The unit of a claim is a data set of the residual networks, three in all: its mean over seeds, batch
sizes and regularisations, in points of accuracy. Three units decide little; two of them are tables
and one images, on which PN acts differently (the picture and the first table). Intervals there
are 95 % over seeds, on one split of one data set: they say what training again would change, not
what other data would."""
BESIDE = """\
Tables 2 and 6, 9: ResNet-50 on ImageNet; ours at batch 32 (the paper's BN takes its statistics over
32 inputs). The data differ, so that only the order of the norms compares. Percent, without / with
extra regularisation."""


def jobs(arguments: Arguments) -> Iterator[Job]:
    """All programs, the smallest and the largest batch first: a run cut short has these."""
    recipes, sizes, n_seeds, data = RECIPES, (8, 512, 32, 128), 6, DATA
    if arguments.quick:
        recipes, sizes, n_seeds, data = QUICK, (8, 32), 2, DATA[:2]
    nets = [("CNN" if name == "digits" else "MLP", name, NORMS) for name in data]
    seeds, home = tuple(range(n_seeds)), arguments.data_home
    for size in sizes:
        for net, name, norms in [*nets, ("plain MLP", data[0], ESTIMATOR_NORMS)]:
            for norm in norms:
                for kind in ("plain", "extra"):
                    yield job(Program(net, name, norm, size, kind, seeds, recipes[net], home))


def job(program: Program) -> Job:
    own = (program.net, program.data, program.norm, program.regularisation)
    return Job(program.settings, program.run, f"batch {program.batch_size}, {', '.join(own)}")


At = tuple[str, Callable[..., Any]]  # a column, and which of its values: min, max


def gaps(rows: pd.DataFrame, a: str, b: str, metric: str, at: At | None = None) -> pd.Series:
    """Subtract norm b's means from a's, in points, by data set."""
    if at:
        rows = rows[rows[at[0]] == at[1](rows[at[0]])]
    means = rows.groupby(["data", "norm"], sort=False)[metric].mean().unstack()
    return 100 * (means[a] - means[b])


def claim(where: str, text: str, a: str, b: str, metric: str = "accuracy", **how: Any) -> Claim:
    """Make a claim that norm a beats b, or with a ``margin`` matches it, or does so more.

    ``at`` selects settings; ``than`` has other settings, or another pair, where a's advantage is
    less.
    """
    at, than = how.get("at"), how.get("than")

    def judge(rows: pd.DataFrame, margin: float) -> Verdict:
        found = gaps(rows, a, b, metric, at)
        if than:
            pair, other = (than, None) if than[0] in NORMS else ((a, b), than)
            return beats(found, gaps(rows, *pair, metric, other))
        return matches(found, 0.0, margin) if margin else beats(found, 0.0)

    measure = f"{metric.replace('_', ' ')}, points"
    return Claim(where, text, "data set", judge, how.get("margin", 0.0), measure)


SMALL, LARGE = ("batch_size", min), ("batch_size", max)
EXTRA, PLAIN = ("regularisation", min), ("regularisation", max)  # by the alphabet
TRAIN, POINT, BOTH = "train_accuracy", {"margin": 1.0}, ("LN", "GN")
PAPER = "Tables 2, 3, 4"
CLAIMS = (
    *(claim("Table 2", f"PN raises the accuracy of {b}", a, b) for a, b in PAIRS[:3]),
    claim("Table 2", "PN adds more to LN than to GN", "LN+PN", "LN", than=("GN+PN", "GN")),
    claim("Table 2", "BN with PN matches BN", "BN+PN", "BN", **POINT),
    *(claim(PAPER, f"{n} stays below BN", "BN", n) for n in BOTH),
    *(claim(PAPER, f"{n}+PN matches BN", f"{n}+PN", "BN", **POINT) for n in BOTH),
    *(claim(PAPER, f"{n}+PN matches BN where the batch is smallest", f"{n}+PN", "BN", at=SMALL,
            **POINT) for n in BOTH),
    *(claim("Section 6", f"{n} gains on BN from the largest to the smallest batch", n, "BN",
            at=SMALL, than=LARGE) for n in BOTH),
    *(claim("Section 6", f"PN adds more to {n} with extra regularisation", f"{n}+PN", n, at=EXTRA,
            than=PLAIN) for n in BOTH),
    *(claim("Tables 9, 10, 11", f"PN raises the training accuracy of {n}", f"{n}+PN", n, TRAIN)
      for n in BOTH),
    claim("Tables 9, 10, 11", "BN with PN matches BN's training accuracy", "BN+PN", "BN", TRAIN,
          **POINT),
)  # fmt: skip


def write(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    rows = rows.sort_values("batch_size", kind="stable")
    residual = rows[rows["net"] != "plain MLP"]
    page.text(UNITS, claims_table(CLAIMS, {"residual networks": residual}))
    page.figure(plot_gains(rows), "What PN adds to the test accuracy, by batch size")
    rows = rows.assign(where=rows["net"] + " on " + rows["data"])
    for metric, pairs in (("accuracy", PAIRS), ("train_accuracy", PAIRS), ("accuracy", BESIDE_BN)):
        with page.details(
            f"{metric.replace('_', ' ').capitalize()}: differences by data set, points"
        ):
            lines = [
                {"pair": f"{a} - {b}", "where": where, "text": interval(own, a, b, metric)}
                for where, own in rows.groupby("where", sort=False)
                for a, b in pairs
                if {a, b} <= set(own["norm"])
            ]
            cross_table(page, pd.DataFrame(lines), "pair", "where", "mean [95 % over seeds]")
    for metric in TITLES:
        with page.details(f"{TITLES[metric]}, %, without / with extra regularisation"):
            for where, own in rows.groupby("where", sort=False):
                page.text(f"{where}, by batch size:")
                cross_table(page, percent(own, metric, "batch_size"), "norm", "batch_size", "norm")
    with page.details("Beside the paper's ResNet-50, groups of 8"):
        page.text(BESIDE)
        paper = pd.read_csv(EXPECTED).query("net == 'RN50' and groups != 32")
        for metric in TITLES:
            theirs = paper[paper["metric"] == metric].groupby("norm")["mean"]
            theirs = theirs.agg(lambda means: " / ".join(f"{mean:.1f}" for mean in means))
            ours = percent(residual[residual["batch_size"] == 32], metric, "data")
            theirs = theirs.rename("text").reset_index().assign(data="paper's")
            page.text(f"{TITLES[metric]}:")
            cross_table(page, pd.concat([ours, theirs]), "norm", "data", "norm")
    with page.details("What was done"):
        page.text(METHOD)
        sizes = ["layers", "width", "groups", "n_train", "n_test"]  # groups: of GN
        own = rows.groupby("where", sort=False)[sizes].max().assign(seeds=rows["seed"].nunique())
        page.table(["network", *own], own.reset_index().to_numpy())
        names = ["batch_size", "learning_rate", "epochs", "steps"]
        schedule = residual[names].drop_duplicates().astype(str)
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
            if not {a, b} <= set(own["norm"]):
                continue
            means = own.groupby(["batch_size", "seed", "norm"])["accuracy"].mean().unstack()
            gains = 100 * (means[a] - means[b]).unstack()
            middle, low, high = zip(*(t_interval(row) for row in gains.to_numpy()), strict=True)
            x = [sizes.index(size) for size in gains.index]
            lines.append(Line(x, middle, f"{a} - {b}", look(a), low, high))
    ticks, labels = {float(i): str(size) for i, size in enumerate(sizes)}, ("batch size", "points")
    return plot(panels, labels, n_columns=2, ticks=ticks, share="none")


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
