"""Are LA-SiLU and LA-HardSiLU more accurate than other activations, on clean and corrupted rows?

The LayerAct paper's Tables 1 to 7 and 15 to 23. The paper trains ResNets on CIFAR and ImageNet and
tests them on CIFAR-C; its claims can be compared with ours, its numbers cannot. Here MLPs of three
hidden layers of 64 units, with the normalisation before each activation, are trained with Adam
(30 epochs, batches of 64, learning rate 0.001) on five classification tables, at most 2000 rows of
each. Training and test rows: diabetes (614 + 154), breast-w (562 + 136), wdbc (455 + 114),
PhishingWebsites (1601 + 399), digits (1437 + 360).

There are 10 seeds. Each has its own split (4:1, equal rows on the same side) and its own initial
weights, which all activations share. Corrupted accuracy: the mean over the corruptions of
`combutab.evaluation.robustness` that apply to a table's columns, with severities 1, 3 and 5.

The unit is the table (mean over its splits). With five tables, differences below about half a
percentage point remain undecided. Claims about digits have the split as the unit and apply only to
these images and networks. The margin of 0.5 points is half of what the paper gains on corrupted
images (LA-SiLU over ReLU +0.9, over SiLU +1.4).

Tables of accuracies are in percent: clean and corrupted, means over tables; then corrupted, by
table. The paper's are means over those of its networks and data sets that have a value: ELU is only
in its Tables 1 and 2, PReLU has fewer networks, and Table 7 repeats Table 6.

The stored rows have another order of the training rows, and for digits other splits, than a new
run.

    python -m benchmarks.papers.layeract.robustness [--quick] [--report] [--out FOLDER]

The tables come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA), digits from
scikit-learn. All activations and seeds of a table and normalisation train as one stack. A run that
was stopped is resumed by the same command.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.common.looks import intervals
from benchmarks.common.verdicts import Claim, Verdict, add_claims, beats, by_unit
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.layeract import shared
from benchmarks.papers.layeract.shared import ACTIVATIONS, COUNTERPARTS, LAYER_LEVEL, NAMES
from benchmarks.quality.predictions import split_rows
from combutab.evaluation import CORRUPTIONS, robustness

MARGIN = 0.5
NORMS = {"batch": "batch norm", "layer": "layer norm", "none": "no normalisation"}
DATA = ("diabetes", "breast-w", "wdbc", "PhishingWebsites", "digits")
KEY = ("data", "normalization", "activation", "seed")
SETTINGS = (*KEY, "n_rows", "hidden", "epochs", "batch_size", "learning_rate_init", "severities")
RESULTS = (
    *("clean", "corrupted", *CORRUPTIONS, *(f"severity_{level}" for level in range(1, 6))),
    *("n_train", "n_test", "error"),  # a network that fails ends the study: "error" is empty
)


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


def train_and_judge(data: str, norm: str, plan: Plan, data_home: str | None) -> list[Row]:
    """Train all activations and seeds of a set and normalisation as a stack, and score them.

    A seed is a split and the initial weights of its networks; the activations share them.
    """
    warnings.filterwarnings("ignore", message="Got `batch_size`")
    source = Source("openml", data, "classification", limit=plan.n_rows, data_home=data_home)
    X, y = source.load()
    parts = [split_rows(X, seed, len(X)) for seed in range(plan.n_seeds)]
    splits = [[(X.iloc[rows], y.iloc[rows]) for rows in both] for both in parts]
    nets = shared.train(
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
            rows[name, seed] = {**found, "n_train": len(X_train), "n_test": len(test[0])}
    return [rows[key] for key in nets]


def jobs(arguments: Arguments) -> Iterator[Job]:
    """Make a stack for each set and normalisation."""
    plan = QUICK if arguments.quick else Plan(data=arguments.data)
    for data, norm in product(plan.data, NORMS):
        members = product([data], [norm], plan.activations, range(plan.n_seeds))
        wanted = [plan.settings(*member) for member in members]
        yield Job(wanted, partial(train_and_judge, data, norm, plan, arguments.data_home))


# ---- claims --------------------------------------------------------------------------------------


def accuracies(rows: pd.DataFrame, score: str, norm: str, unit: str = "data") -> pd.DataFrame:
    """Percent, units x activations."""
    return 100 * by_unit(rows[rows["normalization"] == norm], score, unit)


def judge_all(name: str, score: str, rows: pd.DataFrame, margin: float) -> Verdict | None:
    return shared.beats_all(name, accuracies(rows, score, "batch"))


def judge_digits(name: str, rows: pd.DataFrame, margin: float) -> Verdict | None:
    """The same on digits, over splits, whose training sets overlap."""
    own = rows[rows["data"] == "digits"]
    sizes = own[["n_train", "n_test"]].mean()
    return shared.beats_all(name, accuracies(own, "corrupted", "batch", "seed"), **sizes)


def judge_one(
    name: str, other: str, norm: str, rows: pd.DataFrame, margin: float
) -> Verdict | None:
    wide = accuracies(rows, "corrupted", norm)
    return beats(wide[name], wide[other], margin) if {name, other} <= set(wide) else None


def judge_norms(name: str, rows: pd.DataFrame, margin: float) -> Verdict:
    wides = [accuracies(rows, "corrupted", norm) for norm in ("batch", "layer")]
    return beats(*(wide[name] - wide[COUNTERPARTS[name]] for wide in wides), margin)


def _claim(where: str, text: str, judge: object, unit: str = "table") -> Claim:
    margin = 0.0 if "each of" in text else MARGIN
    return Claim(where, text, unit, judge, margin, "accuracy, points")


EACH = "more accurate than each of eight element-level activations"
CIFAR_C = "Tables 1, 2, 16, 17, 18, 19, 22, 23"
CLAIMS = [
    _claim("Tables 1, 2, 3, 15, 20, 21", f"LA-SiLU, clean, batch norm: {EACH}",
           partial(judge_all, "la-silu", "clean")),
    _claim("Table 3", f"LA-HardSiLU, clean, batch norm: {EACH}",
           partial(judge_all, "la-hardsilu", "clean")),
    *(_claim(f"{CIFAR_C}, Table 3", f"{text}, corrupted, batch norm: {EACH}",
             partial(judge_all, name, "corrupted")) for name, text in NAMES.items()),
    *(_claim(CIFAR_C, f"{text}, corrupted digits, batch norm: {EACH}",
             partial(judge_digits, name), "split of digits") for name, text in NAMES.items()),
    *(_claim(CIFAR_C, f"{NAMES[name]}, corrupted, batch norm: more accurate than {other}",
             partial(judge_one, name, other, "batch")) for name, other in COUNTERPARTS.items()),
    _claim("Tables 4, 5", "LA-SiLU, corrupted, layer norm: more accurate than silu",
           partial(judge_one, "la-silu", "silu", "layer")),
    _claim("Tables 6, 7", "LA-SiLU, corrupted, no normalisation: more accurate than relu",
           partial(judge_one, "la-silu", "relu", "none")),
    _claim("Section 3.3", "LA-SiLU's gain over silu is larger with batch norm than with layer norm",
           partial(judge_norms, "la-silu")),
]  # fmt: skip


# ---- the page ------------------------------------------------------------------------------------


def paper_accuracies() -> pd.DataFrame:
    """Read Tables 1, 2, 4 to 6 and 16 to 19; percent."""
    table = pd.read_csv(Path(__file__).parent / "expected" / "layeract_accuracy.csv")
    return table.rename(columns={"total": "corrupted"})


def write_page(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    add_claims(page, CLAIMS, {"here": rows})
    page.figure(plot_gains(rows), "Gain in accuracy on corrupted rows, with batch norm")
    with page.details("Accuracies by activation and normalisation, ours and the paper's"):
        for norm in NORMS:
            _add_accuracies(page, rows, norm)


def _add_accuracies(page: Page, rows: pd.DataFrame, norm: str) -> None:
    clean, corrupted = (accuracies(rows, score, norm).T for score in ("clean", "corrupted"))
    shown = pd.DataFrame({"clean": clean.mean(axis=1), "corrupted": corrupted.mean(axis=1)})
    shown = shown.join(corrupted).reindex([name for name in ACTIVATIONS if name in shown.index])
    paper = paper_accuracies().groupby(["normalization", "activation"])[["clean", "corrupted"]]
    shown = shown.join(paper.mean().loc[norm].rename(columns="the paper's {}".format))
    page.heading(f"With {NORMS[norm]}", 3)
    page.table(["activation", *shown], shown.map("{:.2f}".format).replace("nan", "—").itertuples())


def plot_gains(rows: pd.DataFrame) -> Figure:
    """Draw the gains of both functions over each other activation: all tables, and digits."""
    units = {"5 tables": (rows, "data"), "digits, splits": (rows[rows["data"] == "digits"], "seed")}
    panels = {}
    for name, text in NAMES.items():
        panels[f"{text} over ..."] = series = {}
        for what, (own, unit) in units.items():
            wide = accuracies(own, "corrupted", "batch", unit)
            sizes = own[["n_train", "n_test"]].mean() if unit == "seed" else {}
            others = [n for n in ACTIVATIONS if n in wide and n not in LAYER_LEVEL]
            found = [vars(beats(wide[name], wide[n], **sizes)) for n in others]
            series[what] = pd.DataFrame(found, others, ["estimate", "low", "high"])
    return intervals(panels, "points of accuracy, 95 % interval")


STUDY = Study(
    "benchmarks.papers.layeract.robustness",
    "LayerAct: accuracies on clean and corrupted tables",
    __doc__,
    [Experiment("layeract_robustness", SETTINGS, RESULTS, jobs, KEY, ("python", "cpu"))],
    write_page,
    {"data": DATA},
)

if __name__ == "__main__":
    STUDY.main()
