"""PLN-8 in the place of batch and layer normalisation: section 5.2 and Figure 10 of the PLN paper.

Does a network that PLN-8 normalises still need activation functions, and is it as good as one with
batch or layer normalisation? What is done, the page says.

    python -m benchmarks.papers.pln.normalization [--quick] [--out FOLDER] [--report]
        [--data-home FOLDER]

A run that was stopped goes on where it stood. --report only writes the page and figure again. Data
sets but the digits come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.model_selection import GroupShuffleSplit

from benchmarks.common.claims import Claim, Finding, claims_table
from benchmarks.common.command import Arguments, Experiment, Job, Study
from benchmarks.common.looks import Line, Look, cross_table, label, listed, plot
from benchmarks.common.page import Page, p_text
from benchmarks.common.results import Row
from benchmarks.papers.pln import shared
from benchmarks.papers.pln.shared import TASKS, combinations
from combutab import MLPClassifier, MLPRegressor, paper_recipe
from combutab.estimators import BaseMLP, FitTask, fit_stacked
from combutab.evaluation import corrected_resampled_ttest, holm, wilcoxon

LEVEL = 0.05
MARGINAL = 0.02  # of accuracy or R2: a mean difference up to this is called marginal
KIND = ["data", "depth", "normalization", "activation"]
KEY = (*KIND, "split")
SETTINGS = (*KEY, "width", "n_rows", "n_steps", "batch_size", "learning_rate")
RESULTS = ("task", "n_train", "n_test", "train_score", "score")
LOOKS: dict[str, Look] = {
    "none": ("#777777", "x", "none"),
    "batch": ("#E69F00", "s", "none"),
    "layer": ("#0072B2", "^", "none"),
    "pln": ("#D55E00", "o", "none"),
}
SIZES = {
    "normalization": LOOKS,
    "activation": ("identity", "relu", "sigmoid", "tanh", "combu"),
    "split": range(10),
    "width": [32],
    "n_rows": [1500],
    "n_steps": [500],
    "batch_size": [64],
    "learning_rate": [1e-3],
}
QUICK = {"activation": SIZES["activation"][:4], "split": range(2)}
QUICK |= {"width": [8], "n_rows": [150], "n_steps": [8]}


def jobs(arguments: Arguments) -> list[Job]:
    """All kinds of network on all data sets; deep ones on the digits, with twice the steps."""
    depths = (3, 4) if arguments.quick else (3, 15)
    kinds = combinations(depth=depths, data=arguments.data)
    kinds = kinds[(kinds["depth"] == 3) | (kinds["data"] == "digits")]
    sizes = combinations(**(SIZES | (QUICK if arguments.quick else {})))
    settings = kinds.merge(sizes, how="cross")
    settings["n_steps"] *= 1 + (settings["depth"] > 3)
    return shared.stacked_jobs(settings[list(SETTINGS)], KIND, partial(run, arguments.data_home))


def run(data_home: str | None, rows: Sequence[Row]) -> list[Row]:
    """Train and score the networks of one kind on all splits of a data set."""
    name = rows[0]["data"]
    table = shared.source(name, int(rows[0]["n_rows"]), data_home)
    X, y = table.load()
    # equal rows stay on one side of a split: PhishingWebsites has many
    splitter = GroupShuffleSplit(len(rows), test_size=0.2, random_state=0)
    splits = list(splitter.split(X, groups=table.row_groups()))
    tasks = [
        FitTask(estimator(row, len(train)), X.iloc[train], y.iloc[train], row["split"])
        for row, (train, _) in zip(rows, splits, strict=True)
    ]
    results = []
    for i, outcome in enumerate(fit_stacked(tasks, n_jobs=1)):
        if outcome.error is not None:
            raise outcome.error
        task, (train, test) = tasks[i], splits[i]
        sides = (task.X, task.y), (X.iloc[test], y.iloc[test])
        scores = (task.estimator.score(*side) for side in sides)
        results.append(shared.row_of(RESULTS, TASKS[name], len(train), len(test), *scores))
    return results


def estimator(row: Row, n_train: int) -> BaseMLP:
    """The unfitted network of a split."""
    kind = MLPClassifier if TASKS[row["data"]] == "classification" else MLPRegressor
    n_batches = math.ceil(n_train / int(row["batch_size"]))
    settings = paper_recipe(
        TASKS[row["data"]],
        hidden_layer_sizes=(int(row["width"]),) * int(row["depth"]),
        activation=row["activation"],
        normalization=row["normalization"],
        max_iter=math.ceil(int(row["n_steps"]) / n_batches),
        n_iter_no_change=np.inf,
        batch_size=min(int(row["batch_size"]), n_train),
        learning_rate_init=float(row["learning_rate"]),
        dropout=0.0,
        alpha=0.0,
        random_state=int(row["split"]),
        device="cpu",
    )
    return kind(**settings)


@dataclass(frozen=True)
class Contrast:
    """One kind of network against another.

    ``differences``: left minus right, mean over splits, by data set; ``pvalues``: the corrected
    resampled t-test's, Holm-adjusted over the data sets; ``p``: Wilcoxon's over the data sets'
    differences, of a single data set its own.
    """

    differences: np.ndarray
    pvalues: np.ndarray
    p: float

    @property
    def mean(self) -> float:
        return float(self.differences.mean())

    @property
    def sign(self) -> float:
        """1 where left is significantly better, -1 where it is worse, else 0."""
        return float(np.sign(self.mean) * (self.p < LEVEL))

    def __str__(self) -> str:
        """The difference and its test, and how many data sets decide for and against."""
        decided = np.sign(self.differences[self.pvalues < LEVEL])
        single = f"; {sum(decided > 0)} for, {sum(decided < 0)} against"
        return f"{self.mean:+.3f} ({p_text(self.p)}{single if len(self.pvalues) > 1 else ''})"


def contrast(
    rows: pd.DataFrame, left: tuple[str, str], right: tuple[str, str], score: str = "score"
) -> Contrast:
    """Compare two (normalisation, activation) over all data sets in the rows, of one depth each."""
    differences, pvalues = [], []
    for _, own in rows.groupby("data", sort=False):
        wide = own.pivot(index="split", columns=["normalization", "activation"], values=score)
        sizes = own[["n_train", "n_test"]].mean()
        differences.append((wide[left] - wide[right]).mean())
        pvalues.append(corrected_resampled_ttest(wide[left], wide[right], **sizes).pvalue)
    found, adjusted = np.array(differences), holm(pvalues)
    p = adjusted[0] if len(found) == 1 else wilcoxon(found, 0.0 * found).pvalue
    return Contrast(found, adjusted, float(p))


def _said(contrasts: Mapping[str, Contrast]) -> str:
    return "; ".join(f"{label(name)} {found}" for name, found in contrasts.items())


def needs_no_activation(rows: pd.DataFrame) -> Finding:
    """Beside PLN-8, ReLU must gain marginally at most, and sigmoid and tanh lose."""
    names, plain = ("relu", "sigmoid", "tanh"), ("pln", "identity")
    gains = {name: contrast(rows, ("pln", name), plain) for name in names}
    relu, *others = gains.values()
    return Finding(_said(gains), [relu.mean <= MARGINAL, *(gain.mean < 0.0 for gain in others)])


def is_nonlinear(rows: pd.DataFrame, score: str = "score") -> Finding:
    """Without activations PLN-8 must beat what leaves a network linear: none, and batch norm."""
    names, pln = ("none", "batch", "layer"), ("pln", "identity")
    against = {name: contrast(rows, pln, (name, "identity"), score) for name in names}
    return Finding(_said(against), [against[name].sign > 0 for name in names[:2]])


def is_as_good(rows: pd.DataFrame) -> Finding:
    """PLN-8 must be neither significantly worse nor more than `MARGINAL` behind on average."""
    found = {
        f"{label(other)} with {label(name)}": contrast(rows, ("pln", name), (other, name))
        for name, other in product(dict.fromkeys(rows["activation"]), ("batch", "layer"))
    }
    parts = [each.mean >= -MARGINAL and each.sign >= 0 for each in found.values()]
    behind = {name: found[name] for name, part in zip(found, parts, strict=True) if not part}
    others = f"; not so against {_said(behind)}" if behind else ""
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
that are not significantly different are not thereby equal. The paper gives no numbers of its
Figure 10: its claims are compared.""")
    page.heading("Verdicts")
    for name, own in depths.items():
        page.text(f"{name}: {listed(dict.fromkeys(own['data']))}.")
    page.text(claims_table(CLAIMS, depths))
    page.heading("PLN-8 against each other normalisation, by the activation after it")
    for name, own in depths.items():
        page.heading(name, 3)
        pairs = pd.DataFrame(product(dict.fromkeys(own["activation"]), ("batch", "layer", "none")))
        pairs["text"] = [contrast(own, ("pln", a), (other, a)) for a, other in pairs.to_numpy()]
        cross_table(page, pairs, 0, 1, "activation")
    page.heading("Test scores")
    page.text("Accuracy, or R² of regressions: mean ± standard deviation over splits.")
    scores = rows.groupby(KIND, sort=False)["score"].agg(["mean", "std"]).reset_index()
    scores["text"] = [f"{score.mean:.3f} ± {score.std:.3f}" for score in scores.itertuples()]
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
    add_arguments=shared.data_arguments(*TASKS),
)

if __name__ == "__main__":
    STUDY.main()
