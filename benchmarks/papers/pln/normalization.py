"""PLN-8 in the place of batch and layer normalisation: section 5.2 and Figure 10 of the PLN paper.

Does a network that PLN-8 normalises still need activation functions, and is it as good as one with
batch or layer normalisation? Dense networks on tables stand in for VGG-16 and ResNet-20 on
CIFAR-10: 3 hidden layers on eight data sets, and 15 on scikit-learn's digits (8 x 8 images).

    python -m benchmarks.papers.pln.normalization [--quick] [--out FOLDER] [--report]
        [--data-home FOLDER]

A run that was stopped goes on where it stood. --report only writes the page and figure again. The
other data sets come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.model_selection import GroupShuffleSplit

from benchmarks.papers.common.claims import Claim, Finding, claims_table
from benchmarks.papers.common.command import Arguments, Experiment, Job, Study
from benchmarks.papers.common.page import Page, p_text
from benchmarks.papers.common.results import Row
from benchmarks.papers.pln.data import TASKS, data_arguments, source
from benchmarks.papers.common.looks import Line, Look, cross_table, label, listed, plot
from combutab import MLPClassifier, MLPRegressor
from combutab.estimators import BaseMLP, FitTask, fit_stacked
from combutab.evaluation import corrected_resampled_ttest, holm, wilcoxon

LEVEL = 0.05
MARGINAL = 0.02  # of accuracy or R2: a mean difference up to this is called marginal
KEY = ("data", "depth", "normalization", "activation", "split")
SETTINGS = (*KEY, "width", "n_rows", "n_steps", "batch_size", "learning_rate")
RESULTS = ("task", "n_train", "n_test", "train_score", "score")
OTHERS = ("batch", "layer", "none")  # what PLN-8 stands against
LOOKS: dict[str, Look] = {
    "none": ("#777777", "x", "none"),
    "batch": ("#E69F00", "s", "none"),
    "layer": ("#0072B2", "^", "none"),
    "pln": ("#D55E00", "o", "none"),
}
ACTIVATIONS = ("identity", "relu", "sigmoid", "tanh", "combu")
Kind = tuple[str, str]  # normalisation and activation


@dataclass(frozen=True)
class Plan:
    """The sizes of a study. ``deep`` is trained on the digits alone, with twice the steps."""

    activations: Sequence[str] = ACTIVATIONS
    shallow: int = 3
    deep: int = 15
    width: int = 32
    n_rows: int = 1500
    n_splits: int = 10
    n_steps: int = 500
    batch_size: int = 64
    learning_rate: float = 1e-3


QUICK = Plan(ACTIVATIONS[:4], deep=4, width=8, n_rows=150, n_splits=2, n_steps=8)


@dataclass(frozen=True)
class Stack:
    """The networks of one kind on all splits of a data set."""

    plan: Plan
    data: str
    depth: int
    normalization: str
    activation: str

    @property
    def n_steps(self) -> int:
        return self.plan.n_steps * (2 if self.depth == self.plan.deep else 1)

    def wanted(self) -> list[Row]:
        plan, kind = self.plan, (self.data, self.depth, self.normalization, self.activation)
        sizes = (plan.width, plan.n_rows, self.n_steps, plan.batch_size, plan.learning_rate)
        return [
            dict(zip(SETTINGS, map(str, (*kind, split, *sizes)), strict=True))
            for split in range(plan.n_splits)
        ]

    def run(self, data_home: str | None) -> list[Row]:
        """Train and score the networks of all splits."""
        table = source(self.data, self.plan.n_rows, data_home)
        X, y = table.load()
        # equal rows stay on one side of a split: PhishingWebsites has many
        splitter = GroupShuffleSplit(self.plan.n_splits, test_size=0.2, random_state=0)
        splits = list(splitter.split(X, groups=table.row_groups()))
        tasks = [
            FitTask(self.estimator(len(train), seed), X.iloc[train], y.iloc[train], seed)
            for seed, (train, _) in enumerate(splits)
        ]
        rows = []
        outcomes = fit_stacked(tasks, n_jobs=1)
        for task, outcome, (train, test) in zip(tasks, outcomes, splits, strict=True):
            if outcome.error is not None:
                raise outcome.error
            scores = (
                task.estimator.score(task.X, task.y),
                task.estimator.score(X.iloc[test], y.iloc[test]),
            )
            values = (TASKS[self.data], len(train), len(test), *(f"{s:.6g}" for s in scores))
            rows.append(dict(zip(RESULTS, map(str, values), strict=True)))
        return rows

    def estimator(self, n_train: int, seed: int) -> BaseMLP:
        """The unfitted network of a split."""
        plan = self.plan
        kind = MLPClassifier if TASKS[self.data] == "classification" else MLPRegressor
        return kind(
            hidden_layer_sizes=(plan.width,) * self.depth,
            activation=self.activation,
            normalization=self.normalization,
            max_iter=math.ceil(self.n_steps / math.ceil(n_train / plan.batch_size)),
            n_iter_no_change=np.inf,
            batch_size=min(plan.batch_size, n_train),
            learning_rate_init=plan.learning_rate,
            dropout=0.0,
            alpha=0.0,
            random_state=seed,
            device="cpu",
        )


def stacks(plan: Plan, data: Sequence[str]) -> list[Stack]:
    """All kinds of network on all data sets, and the deep ones on the digits."""
    places = [(name, plan.shallow) for name in data]
    places += [(name, plan.deep) for name in data if name == "digits"]
    kinds = list(product(LOOKS, plan.activations))
    return [Stack(plan, *place, *kind) for place in places for kind in kinds]


def jobs(arguments: Arguments) -> Iterator[Job]:
    for stack in stacks(QUICK if arguments.quick else Plan(), arguments.data):
        name = f"{stack.data}, {stack.depth} layers, {stack.normalization}, {stack.activation}"
        yield Job(stack.wanted(), partial(stack.run, arguments.data_home), name)


@dataclass(frozen=True)
class Contrast:
    """One kind of network against another.

    Attributes
    ----------
    differences, pvalues : arrays
        By data set: left minus right, mean over splits, and the corrected resampled t-test's p,
        Holm-adjusted over the data sets.
    p : float
        Wilcoxon's over the data sets' mean differences; of a single data set its own.
    """

    differences: np.ndarray
    pvalues: np.ndarray
    p: float

    @property
    def mean(self) -> float:
        return float(self.differences.mean())

    @property
    def significant(self) -> bool:
        return self.p < LEVEL

    def __str__(self) -> str:
        """The difference and its test, and how many data sets decide for and against."""
        decided = np.sign(self.differences[self.pvalues < LEVEL])
        single = f"; {sum(decided > 0)} for, {sum(decided < 0)} against"
        return f"{self.mean:+.3f} ({p_text(self.p)}{single if len(self.pvalues) > 1 else ''})"


def contrast(rows: pd.DataFrame, left: Kind, right: Kind) -> Contrast:
    """Compare two kinds of network over all data sets in the rows, of one depth each."""
    differences, pvalues = [], []
    for _, own in rows.groupby("data", sort=False):
        wide = own.pivot(index="split", columns=["normalization", "activation"], values="score")
        sizes = own[["n_train", "n_test"]].mean()
        test = corrected_resampled_ttest(wide[left], wide[right], **sizes)
        differences.append(float((wide[left] - wide[right]).mean()))
        pvalues.append(test.pvalue)
    found, adjusted = np.array(differences), np.asarray(holm(pvalues))
    p = adjusted[0] if len(found) == 1 else wilcoxon(found, 0.0 * found).pvalue
    return Contrast(found, adjusted, float(p))


def needs_no_activation(rows: pd.DataFrame) -> Finding:
    """Beside PLN-8, ReLU must gain marginally at most, and sigmoid and tanh lose."""
    names = ("relu", "sigmoid", "tanh")
    gains = [contrast(rows, ("pln", name), ("pln", "identity")) for name in names]
    said = "; ".join(f"{label(n)} {gain}" for n, gain in zip(names, gains, strict=True))
    return Finding(said, [gains[0].mean <= MARGINAL, *(gain.mean < 0.0 for gain in gains[1:])])


def is_nonlinear(rows: pd.DataFrame, score: str = "score") -> Finding:
    """Without activations PLN-8 must beat what leaves a network linear: none, and batch norm."""
    scored = rows.assign(score=rows[score])
    names = ("none", "batch", "layer")
    against = {n: contrast(scored, ("pln", "identity"), (n, "identity")) for n in names}
    said = "; ".join(f"{label(name)} {found}" for name, found in against.items())
    linear = (against["none"], against["batch"])
    return Finding(said, [found.mean > 0.0 and found.significant for found in linear])


def is_as_good(rows: pd.DataFrame) -> Finding:
    """PLN-8 must be neither significantly worse nor more than `MARGINAL` behind on average."""
    parts, behind = [], []
    for activation, other in product(dict.fromkeys(rows["activation"]), ("batch", "layer")):
        found = contrast(rows, ("pln", activation), (other, activation))
        parts.append(found.mean >= -MARGINAL and not (found.mean < 0.0 and found.significant))
        if not parts[-1]:
            behind.append(f"{label(other)} with {label(activation)} {found}")
    others = f"; not so against {'; '.join(behind)}" if behind else ""
    return Finding(f"{sum(parts)} of {len(parts)} comparisons{others}", parts)


CLAIMS = (
    Claim(
        "Figure 10",
        f"Beside PLN-8 an activation is not needed: ReLU gains at most {MARGINAL:g}, sigmoid and "
        "tanh lose (against no activation).",
        needs_no_activation,
    ),
    Claim(
        "Section 5.2",
        "Without activations PLN-8 is what makes a network nonlinear: significantly better than "
        "none and than batch norm, which leave it linear.",
        is_nonlinear,
    ),
    Claim(
        "Section 5.2",
        "The same on the training rows, which show what a network can represent.",
        partial(is_nonlinear, score="train_score"),
    ),
    Claim(
        "Figure 10",
        "PLN-8 is as good as batch and layer norm before the same activation: neither "
        f"significantly worse nor more than {MARGINAL:g} behind on average.",
        is_as_good,
    ),
)


def write(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    first = rows.iloc[0]
    depths = {f"{depth} hidden layers": own for depth, own in rows.groupby("depth")}
    page.text(f"""\
Section 5.2 and Figure 10 of "Universal approximation theorem of networks activated by
normalization" on tables. What differs from the paper: dense networks of width {first["width"]}
with {" or ".join(map(str, sorted(set(rows["depth"]))))} hidden layers (the deeper ones, of about
VGG-16's depth, on digits alone) stand in for VGG-16 and ResNet-20, {rows["data"].nunique()} tables
of at most {first["n_rows"]} rows for CIFAR-10; scikit-learn's digits (8 x 8) are the images. Adam
with rate {first["learning_rate"]:g}, batches of {first["batch_size"]}, {first["n_steps"]} steps
(twice as many for the deeper), no dropout. The normalisation stands before each activation. Batch
and layer norm have a gain and a shift a unit, PLN-8 has none.

{rows["split"].nunique()} random splits (4:1, equal rows on one side), each with its own seed. p is
Wilcoxon's signed-rank test of the data sets' mean differences; of a single data set, and for the
number of data sets that are significantly for and against, the corrected resampled t-test,
Holm-adjusted over the data sets. Level {LEVEL:g}, not adjusted over the comparisons listed. Kinds
that are not significantly different are not thereby equal. The text of the paper gives no numbers
of its Figure 10: its claims are compared.""")
    page.heading("Verdicts")
    for name, own in depths.items():
        page.text(f"{name}: {listed(dict.fromkeys(own['data']))}.")
    page.text(claims_table(CLAIMS, depths))
    page.heading("PLN-8 against each other normalisation, by the activation after it")
    for name, own in depths.items():
        page.heading(name, 3)
        page.table(
            ["activation", *map(label, OTHERS)],
            [
                [label(a), *(contrast(own, ("pln", a), (other, a)) for other in OTHERS)]
                for a in dict.fromkeys(own["activation"])
            ],
        )
    page.heading("Test scores")
    page.text("Accuracy, or R² of regressions: mean ± standard deviation over splits.")
    kinds = ["data", "depth", "normalization", "activation"]
    scores = rows.groupby(kinds, sort=False)["score"].agg(["mean", "std"]).reset_index()
    texts = [scores[name].map("{:.3f}".format) for name in ("mean", "std")]
    scores["text"] = texts[0] + " ± " + texts[1]
    for (data, depth), own in scores.groupby(["data", "depth"], sort=False):
        page.heading(f"{data}, {depth} hidden layers", 3)
        cross_table(page, own, "normalization", "activation", "normalisation \\ activation")
    page.heading("Figure")
    page.figure(plot_scores(scores), "Test scores by activation")


def plot_scores(scores: pd.DataFrame) -> Figure:
    """Draw mean test scores and their standard deviation over splits, a panel a data set."""
    panels, names = {}, list(dict.fromkeys(scores["activation"]))
    for (data, depth), part in scores.groupby(["data", "depth"], sort=False):
        metric = "accuracy" if TASKS[data] == "classification" else "R²"
        panels[f"{data}, {depth} layers: {metric}"] = lines = []
        for i, (name, own) in enumerate(part.groupby("normalization", sort=False)):
            x, mean, sd = np.arange(len(names)) + 0.16 * (i - 1.5), own["mean"], own["std"]
            lines.append(Line(x, mean, label(name), LOOKS[name], mean - sd, mean + sd))
    ticks = {float(i): label(name) for i, name in enumerate(names)}
    title = "Test score by activation and normalisation (± sd over splits)"
    return plot(panels, ("", "test score"), n_columns=3, ticks=ticks, share="none", title=title)


STUDY = Study(
    name="pln_normalization",
    title="PLN-8 in the place of batch and layer normalisation",
    description=__doc__.splitlines()[0],
    module="benchmarks.papers.pln.normalization",
    experiments=[Experiment("pln_normalization", SETTINGS, RESULTS, jobs, KEY)],
    write=write,
    add_arguments=data_arguments(TASKS),
)

if __name__ == "__main__":
    STUDY.main()
