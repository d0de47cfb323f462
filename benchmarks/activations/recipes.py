"""Do activations matter in other recipes and on equations, and which parts of the recipe matter?

Real tables: the CombU paper's eight, at most 400 training rows. Compared are nine activations in
the CombU paper's plain network and in TabM (8 heads of 2 x 128); packs of nine members with one
activation or with all nine ("mix"); the default recipe (one network) with CombU, without each of
its parts or with twice the epochs; blends of each activation with the identity; and learned shares
of CombU's three functions.

CombU has ReLU in half of a layer's units, ELU in a quarter and NLReLU in a quarter. With learned
shares each unit learns which of the three it has, by a softmax whose temperature decreases with
each step, or by a straight-through estimator; outside training the choice is hard. Hidden layers
have 256, 254 and 252 units there.

Equations have no noise. Nine activations were run on 30 of the 120 AI Feynman equations (every
fourth of the list), 400 rows, in the default recipe, the plain network and mixed packs. On the 90
others, with 2,000 rows, four activations that looked good there and two networks of CombU were run,
each trained separately with its CPU seconds. Splits 4:1, equal rows on the same side, at most 1,000
test rows; each split is also a seed. The error is the log loss in classification and the RMSE in
regression. Equations that are equal up to a factor have the same errors and count once, which
leaves 29 and 78.

    python -m benchmarks.activations.recipes [--quick] [--data-home FOLDER] [--jobs N] [--report]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import combutab
from benchmarks.activations import effects, tables
from benchmarks.activations.effects import MARGIN, by_table, logs_of
from benchmarks.activations.shares import LearnedUnits
from benchmarks.activations.tables import OPENML, REFERENCE, SINGLE
from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.common.looks import label
from benchmarks.common.verdicts import Claim, Verdict, add_claims, beats, matches
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import PACKAGES
from combutab.datasets import list_feynman
from combutab.evaluation import t_interval

TWICE = "two networks"
PARTS: dict[str, Mapping[str, Any]] = {
    "twice the epochs": {"max_iter": 200, "n_iter_no_change": 60},
    TWICE: {"n_members": 2},
    "no embedding of numbers": {"numeric_embedding": "none"},
    "constant learning rate": {"learning_rate": "constant"},
    "no dropout": {"dropout": 0.0},
    "no weight decay": {"weight_decay": 0.0},
    "no scaling of inputs": {"scale_inputs": False},
    "standard scaler": {"numeric_encoding": "standard"},
}
BLENDS = {name: f"blend-{name}" for name in SINGLE}
# of a pack's nine: combined, kinked, self-normalising, normalising, and all of them
PACKS = ("combu", "relu", "selu", "pln-8", "mix")
CANDIDATES = (REFERENCE, "rational", "gelu", "mish", "la-silu")
SHARES = "learned shares"
LEARNED: dict[str, Mapping[str, Any]] = {
    "fixed": {"activation": "combu"},
    TWICE: {"activation": "combu", "n_members": 2},
    "straight-through": {"activation": partial(LearnedUnits, straight=True)},
    "softmax": {"activation": partial(LearnedUnits, straight=False)},
}


@dataclass(frozen=True)
class Stage:
    """Activations in a recipe, on how many splits of which tables."""

    kind: str  # "openml", "feynman" (30 equations) or "others" (90)
    recipe: str
    activations: Sequence[str]
    n_splits: int
    most: int = tables.MOST_TRAIN

    def names(self, home: str | None, quick: bool) -> Sequence[str]:
        """Names of its tables."""
        if self.kind == "openml":
            return ("wdbc", "boston", "autoMpg") if quick else OPENML
        seen = tables.equations(home)
        others = [name for name in list_feynman(home)["name"] if name not in seen]
        return (seen if self.kind == "feynman" else others)[: 3 if quick else None]


PLAN = (
    Stage("openml", "paper", SINGLE, 10),
    Stage("openml", "default", (*SINGLE, *BLENDS.values()), 3),
    *(Stage("openml", part, (REFERENCE,), 3) for part in PARTS),
    Stage("openml", "TabM", SINGLE, 3),
    Stage("openml", "pack", PACKS, 3),
    Stage("feynman", "pack", ("mix",), 1),
    Stage("feynman", "default", SINGLE, 2),
    Stage("feynman", "paper", SINGLE, 2),
    Stage("others", "default", CANDIDATES, 1, 2000),
    Stage("others", TWICE, (REFERENCE,), 1, 2000),
    Stage("openml", SHARES, tuple(LEARNED), 3),
)
QUICK: dict[str, dict[str, Any]] = {
    "TabM": {**tables.TINY, "n_heads": 2, "n_bins": 4},
    "pack": {"max_iter": 2, "n_members": 3, "member_params": {"hidden_layer_sizes": (8,)}},
}
KEY = ("kind", "data", "recipe", "activation", "split")
SETTINGS = (*KEY, "most_train")
RESULTS = ("n_train", "n_test", "loss", "r2", "accuracy", "epochs", "cpu_seconds", "chosen")
RESULTS += ("error",)


def make(recipe: str, task: str, activation: str, **changes: Any) -> Any:
    """The unfitted estimator of a recipe."""
    regress = task == "regression"
    given: dict[str, Any] = {"activation": activation, "n_members": 1, **changes}
    kind: Any = (combutab.MLPClassifier, combutab.MLPRegressor)[regress]
    if recipe == "pack":  # of networks alone
        kind = (combutab.PackClassifier, combutab.PackRegressor)[regress]
        names = SINGLE if activation == "mix" else (activation,)
        given = {"activations": names, "n_jobs": 1, "cv": None, "boosting": False}
        given |= {"n_members": len(SINGLE)} | changes
    elif recipe == SHARES:
        given |= {"hidden_layer_sizes": (256, 254, 252), **changes, **LEARNED[activation]}
    elif recipe == "paper":
        given = combutab.paper_recipe(task, activation=activation, **changes)
    elif recipe == "TabM":
        kind = (combutab.TabMClassifier, combutab.TabMRegressor)[regress]
        given = {"activation": activation, "n_heads": 8, "hidden_layer_sizes": (128, 128)} | changes
    return kind(**given | PARTS.get(recipe, {}))


def jobs(arguments: Arguments) -> Iterator[Job]:
    """A job for each stage, table and split."""
    quick, home = arguments.quick, arguments.data_home
    for stage in PLAN:
        for name in stage.names(home, quick):
            for split in range(1 if quick else stage.n_splits):
                shared = {"kind": stage.kind, "data": name, "recipe": stage.recipe}
                shared |= {"split": split, "most_train": 60 if quick else stage.most}
                wanted = [shared | {"activation": each} for each in stage.activations]
                yield Job(wanted, partial(run, tables.source(name, home), wanted, quick))


def run(table: Source, wanted: Sequence[Row], quick: bool) -> list[Row]:
    """Train the networks of one recipe, table and split, and score them."""
    first = wanted[0]
    split, recipe = first["split"], first["recipe"]
    given: dict[str, Any] = {"random_state": split, "device": "cpu"}
    given |= QUICK.get(recipe, tables.TINY) if quick else {}
    nets = [make(recipe, table.task, row["activation"], **given) for row in wanted]
    sides = tables.rows_of(table, split, first["most_train"])
    if first["kind"] == "others":  # seconds of each
        return [row for net in nets for row in tables.outcomes([net], *sides, RESULTS)]
    return tables.outcomes(nets, *sides, [name for name in RESULTS if name != "cpu_seconds"])


Found = Mapping[str, pd.DataFrame]
SAMPLES = {  # name: kind, recipe, activations
    "plain network": ("openml", "paper", SINGLE),
    "TabM": ("openml", "TabM", SINGLE),
    "packs": ("openml", "pack", PACKS),
    "blends": ("openml", "default", (*SINGLE, *BLENDS.values())),
    SHARES: ("openml", SHARES, tuple(LEARNED)),
    "equations, default recipe": ("feynman", "default", SINGLE),
    "equations, plain network": ("feynman", "paper", SINGLE),
}
REAL, LAWS = (*SAMPLES,)[:3], (*SAMPLES,)[5:]
OTHERS = "other equations"


def logs(rows: pd.DataFrame, value: str = "loss") -> Found:
    """Logarithms of a value by sample; of CombU on the eight tables by the recipe's part."""
    found = {
        name: logs_of(rows, "activation", levels, value, kind=kind, recipe=recipe)
        for name, (kind, recipe, levels) in SAMPLES.items()
    }
    ours = rows[rows["activation"] == REFERENCE]
    found["parts"] = logs_of(ours, "recipe", ("default", *PARTS), value, kind="openml")
    twice = rows["activation"].where(rows["recipe"] != TWICE, TWICE)
    networks = (*CANDIDATES, TWICE)
    found[OTHERS] = logs_of(rows.assign(network=twice), "network", networks, value, kind="others")
    return found


def weights(rows: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Weights that mixed packs give to activations: a row for each table, means over splits."""
    mixes = rows[(rows["activation"] == "mix") & (rows["kind"] == kind) & (rows["error"] == "")]
    found = [dict(p.rsplit(":", 1) for p in str(text).split()) for text in mixes["chosen"]]
    wide = pd.DataFrame(found, index=mixes["data"]).reindex(columns=list(SINGLE))
    return wide.astype(float).fillna(0.0).groupby(level=0, sort=False).mean()


def _judge(sample: str, a: str, b: str, found: Found, margin: float) -> Verdict:
    """With a margin that both have the same error, without that a has the smaller one."""
    own = by_table(found[sample])
    return matches(own[a], own[b], margin) if margin else beats(-own[a], -own[b])


def _less(found: Found, margin: float) -> Verdict:
    spreads = [np.ptp(by_table(found[name]), axis=1) for name in LAWS]
    return beats(*spreads, greater_is_better=False)


def _claim(text: str, sample: str, a: str, b: str, margin: float = 0.0) -> Claim:
    where, unit = (OTHERS, "equation") if sample == OTHERS else ("real tables", "table")
    return Claim(where, text, unit, partial(_judge, sample, a, b), margin, "log of error")


CLAIMS = [
    *(
        _claim(
            f"CombU with {part}: the error changes by less than 2 %.",
            "parts",
            part,
            "default",
            MARGIN,
        )
        for part in PARTS
    ),
    _claim("Two CombU networks have a smaller error than one.", "parts", TWICE, "default"),
    _claim("Mixed packs have a smaller error than packs of CombU.", "packs", "mix", "combu"),
    _claim(
        "Straight-through shares have a smaller error than fixed ones.",
        SHARES,
        "straight-through",
        "fixed",
    ),
    _claim("Softmax shares have a smaller error than fixed ones.", SHARES, "softmax", "fixed"),
    _claim("Rational has a smaller error than CombU.", OTHERS, "rational", "combu"),
    _claim("Rational has a smaller error than two CombU networks.", OTHERS, "rational", TWICE),
    Claim(
        *("equations", "Activations differ less in the default recipe than in the plain network."),
        *("equation", _less, 0.0, "log of worst over best error"),
    ),
]


def write(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    """The page: verdicts, then samples and parts, folded."""
    found, seconds = logs(rows), by_table(logs(rows, "cpu_seconds")[OTHERS])
    page.text(f"{sum(rows['error'] != '')} of {len(rows)} networks and packs diverged.")
    add_claims(page, CLAIMS, {"here": found})
    lines = []
    for name in (*REAL, *LAWS):
        means = by_table(found[name])
        mean = means.mean()
        worst = f"{label(mean.idxmax())} / {label(mean.idxmin())} {np.exp(np.ptp(mean)):.3f}"
        tests = map(effects.p_text, effects.omnibus(means))
        lines.append([name, effects.size(found[name]), *tests, worst])
    page.table(["recipe", "rows", "p, Friedman", "p, Iman-Davenport", "error, worst / best"], lines)
    for name in (*REAL, *LAWS, OTHERS, "parts", SHARES):
        own = by_table(found[name])
        with page.details(f"{name}, ratio to {label(own.columns[0])}: {effects.size(found[name])}"):
            effects.answers_table(page, effects.beside(own, own.columns[0]), "error")
    with page.details("CPU seconds on the other equations, as ratios to CombU's"):
        effects.answers_table(page, effects.beside(seconds, REFERENCE), "seconds")
    with page.details(f"Blends (1 - w) x + w g(x), ratio to g: {effects.size(found['blends'])}"):
        pairs = [(blend, name) for name, blend in BLENDS.items()]
        effects.answers_table(page, effects.compare(by_table(found["blends"]), pairs), "error")
    with page.details(f"Weights in mixed packs (equal weights: {1 / len(SINGLE):.2f})"):
        every = [weights(rows, kind) for kind in ("openml", "feynman")]
        lines = [[label(name), *(_mean(own[name]) for own in every)] for name in SINGLE]
        page.table(["activation", f"{len(every[0])} tables", f"{len(every[1])} equations"], lines)


def _mean(values: pd.Series) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(*t_interval(values))


STUDY = Study(
    "benchmarks.activations.recipes",
    "Which activation, in other recipes and on equations",
    __doc__,
    [Experiment("activations_recipes", SETTINGS, RESULTS, jobs, KEY, PACKAGES)],
    write,
)

if __name__ == "__main__":
    STUDY.main()
