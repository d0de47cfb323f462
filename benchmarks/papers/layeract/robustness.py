"""The LayerAct paper's Tables 1, 2, 4 to 6 and 15 to 23, on tables: accuracy, clean and corrupted.

    python -m benchmarks.papers.layeract.robustness [--quick] [--report] [--out FOLDER]

CIFAR and ImageNet give way to four classification sets of OpenML and scikit-learn's digits, CIFAR-C
to `combutab.evaluation.robustness`, ResNets to perceptrons. The sets come from OpenML, or from CSV
files in --data-home (or COMBUTAB_DATA). All activations and seeds of a set and normalisation train
as one stack. A run that was stopped goes on where it stood.
"""

from __future__ import annotations

import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product

import pandas as pd
from sklearn.datasets import load_digits
from sklearn.model_selection import GroupShuffleSplit

from benchmarks.common.command import Experiment, Job, Study
from benchmarks.common.results import Row
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.layeract.robustness_report import NAME, NORMS, write_page
from benchmarks.papers.layeract.shared import ACTIVATIONS, LAYER_LEVEL, Table, train
from combutab.evaluation import CORRUPTIONS, robustness

DATA = ("diabetes", "breast-w", "wdbc", "PhishingWebsites", "digits")
KEY = ("data", "normalization", "activation", "seed")
SETTINGS = (*KEY, "n_rows", "hidden", "epochs", "batch_size", "learning_rate_init", "severities")
RESULTS = (
    *("clean", "corrupted", *CORRUPTIONS, *(f"severity_{level}" for level in range(1, 6))),
    *("n_train", "n_test", "error"),  # a network that fails ends the study: "error" is empty
)
VERSIONS = ("python", "cpu")


@dataclass(frozen=True)
class Plan:
    """How the networks are trained and judged; a random subset of larger sets keeps it short."""

    activations: Sequence[str] = ACTIVATIONS
    data: Sequence[str] = DATA
    hidden: tuple[int, ...] = (64, 64, 64)
    epochs: int = 30
    batch_size: int = 64
    learning_rate_init: float = 1e-3
    severities: tuple[int, ...] = (1, 3, 5)
    n_rows: int = 2000
    n_seeds: int = 10

    def settings(self, *key: object) -> Row:
        """List what must be the same for a run to go on."""
        values = asdict(self) | dict(zip(KEY, key, strict=True))
        return {name: str(values[name]).strip("(,)").replace(" ", "") for name in SETTINGS}


QUICK = Plan(("silu", "hardsilu", *LAYER_LEVEL), ("breast-w", "digits"), hidden=(16, 16), epochs=2,
             severities=(3,), n_rows=150, n_seeds=2)  # fmt: skip


def load(data: str, n_rows: int, data_home: str | None) -> Table:
    """Load features and target of a set, a random subset where it has more rows."""
    if data != "digits":
        return Source("openml", data, "classification", limit=n_rows, data_home=data_home).load()
    X, y = load_digits(return_X_y=True, as_frame=True)
    kept = X.sample(min(n_rows, len(X)), random_state=0).index
    return X.loc[kept].reset_index(drop=True), y.loc[kept].reset_index(drop=True)


def split(X: pd.DataFrame, y: pd.Series, seed: int) -> tuple[Table, Table]:
    """Split into training and test rows; rows that are equal stay on one side."""
    groups = X.groupby(list(X.columns), dropna=False, observed=True, sort=False).ngroup()
    splitter = GroupShuffleSplit(1, test_size=0.2, random_state=seed)
    train, test = next(splitter.split(X, groups=groups))
    return (X.iloc[train], y.iloc[train]), (X.iloc[test], y.iloc[test])


def train_and_judge(data: str, norm: str, plan: Plan, data_home: str | None) -> list[Row]:
    """Train all activations and seeds of a set and normalisation as a stack, and score them.

    A seed is a split and the initial weights of its networks; the activations share them.
    """
    warnings.filterwarnings("ignore", message="Got `batch_size`")
    X, y = load(data, plan.n_rows, data_home)
    splits = [split(X, y, seed) for seed in range(plan.n_seeds)]
    nets = train(
        plan.activations,
        [own for own, _ in splits],
        normalization=norm,
        hidden_layer_sizes=plan.hidden,
        max_iter=plan.epochs,
        batch_size=plan.batch_size,
        learning_rate_init=plan.learning_rate_init,
        alpha=0.0,
    )
    rows = {}
    for seed, ((X_train, _), test) in enumerate(splits):
        own = {name: nets[name, seed] for name in plan.activations}
        result = robustness(
            own, *test, severities=plan.severities, X_reference=X_train, random_state=seed
        )
        wrong = result.scores[result.scores["severity"] > 0]
        wrong = wrong.assign(severity="severity_" + wrong["severity"].astype(str))
        means = [wrong.pivot_table("score", "estimator", by) for by in ("corruption", "severity")]
        scores = result.summary.set_index("estimator")[["clean", "corrupted"]].join(means)
        for name, found in scores.to_dict("index").items():
            rows[name, seed] = dict.fromkeys(RESULTS, "")
            rows[name, seed] |= {score: f"{value:.6g}" for score, value in found.items()}
            rows[name, seed] |= {"n_train": str(len(X_train)), "n_test": str(len(test[0]))}
    return [rows[key] for key in nets]


def jobs(arguments: Namespace) -> Iterator[Job]:
    """Make a stack for each set and normalisation."""
    plan = QUICK if arguments.quick else Plan(data=arguments.data)
    for data, norm in product(plan.data, NORMS):
        members = product(plan.activations, range(plan.n_seeds))
        wanted = [plan.settings(data, norm, activation, seed) for activation, seed in members]
        run = partial(train_and_judge, data, norm, plan, arguments.data_home)
        yield Job(wanted, run, f"{data}, {NORMS[norm]}")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--data-home", help="folder with the CSV files; else OpenML")


COLUMNS = (*SETTINGS, *RESULTS, *VERSIONS, "combutab", "torch")
STUDY = Study(
    *(NAME, "LayerAct: accuracies on clean and corrupted tables", __doc__.splitlines()[0]),
    "benchmarks.papers.layeract.robustness",
    [Experiment(NAME, SETTINGS, RESULTS, jobs, KEY, VERSIONS, columns=COLUMNS)],
    *(write_page, add_arguments),
)

if __name__ == "__main__":
    STUDY.main()
