"""Does Proxy Normalization make layer norm match batch norm, also where the batch is small?

Tables 2 to 4 (and 6 to 11) of the Proxy Normalization paper in small, on tables and on
scikit-learn's digits. The tables come from OpenML, or from CSV files in --data-home (or
COMBUTAB_DATA). A run that was stopped goes on where it stood.

    python -m benchmarks.papers.proxynorm.training [--quick] [--data-home FOLDER] [--report]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common import Arguments, Experiment, Job, Page, Study
from benchmarks.common.looks import Line, cross_table, plot
from benchmarks.common.verdicts import Claim, Verdict, beats, claims_table, matches
from benchmarks.papers.proxynorm.figures import look, texts
from benchmarks.papers.proxynorm.training import nets, runs
from benchmarks.papers.proxynorm.training.runs import RECIPES, Program, Recipe
from combutab.evaluation import t_interval

NAME = "proxynorm_training"
TITLES = {"accuracy": "Test accuracy", "train_accuracy": "Train accuracy"}
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
    own = (program.net, program.data, program.norm, program.regularisation)
    return Job(program.settings, program.run, f"batch {program.batch_size}, {', '.join(own)}")


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
    text = texts(__file__)
    page.text(text["Units"], claims_table(CLAIMS, {"residual networks": rows}))
    page.figure(plot_gains(rows), "What PN adds to the test accuracy, by batch size")
    rows = rows.assign(where=rows["net"] + " on " + rows["data"])
    for metric, pairs in (("accuracy", PAIRS), ("train_accuracy", PAIRS), ("accuracy", BESIDE_BN)):
        name = metric.replace("_", " ").capitalize()
        with page.details(f"{name}: differences by data set, points"):
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
    with page.details("What was done"):
        told = {"dropout": nets.DROPOUT, "depth_drop": nets.DEPTH_DROP}
        page.text(text["Method"].format(smoothing=runs.SMOOTHING, **told))
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
    "Does PN make layer norm match batch norm?",
    __doc__,
    [Experiment(NAME, SETTINGS, RESULTS, jobs, runs.KEY, ("numpy", "sklearn"))],
    write,
)

if __name__ == "__main__":
    STUDY.main()
