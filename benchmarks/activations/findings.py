"""What the rows of `benchmarks.activations.recipes` say, before it is put in words."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from benchmarks.activations import tables
from benchmarks.activations.effects import (
    Paired,
    block,
    by_table,
    paired,
    rectangle,
    size,
)
from benchmarks.activations.foresight import N_NEIGHBOURS, foresee
from benchmarks.activations.plan import BLENDS, PACKS, PARTS, SINGLE
from benchmarks.activations.variance import variance_shares
from combutab.evaluation import Interval

REFERENCE = "combu"
TABLES, EQUATIONS = ("openml", "formula"), ("feynman",)
RECIPES = ("paper", "default", "TabM", "pack")
NESTED = {"split": "table"}
TIME = ("twice the epochs", "two networks")


@dataclass(frozen=True)
class Sample:
    """Logarithms of errors of one recipe on some tables, and what is said of them."""

    recipe: str
    on: str  # "tables" or "equations"
    logs: pd.DataFrame

    @property
    def name(self) -> str:
        return f"{self.recipe}, {self.on}"

    @property
    def size(self) -> str:
        return size(self.logs)


def samples(rows: pd.DataFrame, singles: Sequence[str], packs: Sequence[str]) -> Iterator[Sample]:
    """What there is of each recipe: two tables at least."""
    for recipe in RECIPES:
        for on, kinds in (("tables", TABLES), ("equations", EQUATIONS)):
            levels = packs if recipe == "pack" else singles
            logs = block(rows, "activation", levels, kinds, recipe=recipe)
            if len(by_table(logs)) > 1:
                yield Sample(recipe, on, logs)


@dataclass(frozen=True)
class Found:
    """All that claims are judged from."""

    samples: Mapping[str, Sample]
    parts: Mapping[str, Paired]  # the default recipe changed, and others, beside it; with CombU
    blends: Mapping[str, Paired]  # by activation: its blend with x beside it
    costs: pd.DataFrame  # of rules of choice, by table

    def of(self, recipe: str, on: str = "tables") -> pd.DataFrame | None:
        sample = self.samples.get(f"{recipe}, {on}")
        return None if sample is None else sample.logs


def of_openml(logs: pd.DataFrame) -> pd.DataFrame:
    """Without formulas, whose heavy tails make one split unlike another."""
    return logs[logs.index.get_level_values("data").isin(tables.OPENML)]


def activation_shares(logs: pd.DataFrame) -> tuple[dict[str, Interval], str] | None:
    """Shares of the variance within tables: of activation, split, and how they interact.

    And the tables x splits that they are of; None where there are not two of each.
    """
    found = rectangle(logs)
    if found is None:
        return None
    return variance_shares(found[0], ("table", "split", "activation"), NESTED), found[1]


def recipe_shares(found: Found) -> tuple[dict[str, Interval], str] | None:
    """The same with the recipe as a factor, on what paper and default recipe have in common."""
    logs = [found.of(recipe) for recipe in RECIPES[:2]]
    if any(own is None for own in logs):
        return None
    both = pd.concat(dict(zip(RECIPES[:2], logs, strict=True)), axis=1, join="inner")
    whole = rectangle(both)
    if whole is None:
        return None
    values = whole[0].reshape(*whole[0].shape[:2], 2, -1)
    factors = ("table", "split", "recipe", "activation")
    return variance_shares(values, factors, NESTED), whole[1]


def chosen_weights(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Weights that mixed packs give to activations, a row a table: means over splits."""
    mixes = rows[(rows["activation"] == "mix") & rows["chosen"].notna() & (rows["chosen"] != "")]
    texts = mixes["chosen"].astype(str)
    found = [dict(part.rsplit(":", 1) for part in text.split()) for text in texts]
    wide = pd.DataFrame(found, index=mixes["data"]).reindex(columns=list(names))
    return wide.astype(float).fillna(0.0).groupby(level=0, sort=False).mean()


def make_found(rows: pd.DataFrame, data_home: str | None) -> Found:
    """All that the page says, of a study's rows."""
    single = {sample.name: sample for sample in samples(rows, SINGLE, PACKS)}
    ours = rows[rows["activation"] == REFERENCE]
    others = [recipe for recipe in (*RECIPES, *PARTS) if recipe != "default"]
    parts = paired(ours, "recipe", {name: ("default", name) for name in others}, TABLES)
    pairs = {name: (name, blend) for name, blend in zip(SINGLE, BLENDS, strict=True)}
    blends = paired(rows, "activation", pairs, TABLES, recipe="default")
    logs = [s.logs for s in single.values() if s.recipe == "default"]
    costs = pd.DataFrame()
    if logs:
        # a table's mean over the splits that it has; equations have fewer
        every = pd.concat(logs)
        kinds = rows.drop_duplicates("data").set_index("data")["kind"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of folds that lack a category
            features = pd.DataFrame(
                {
                    data: tables.features(tables.source(kinds[data], data, data_home))
                    for data in by_table(every).index
                }
            ).T
        if len(features) > N_NEIGHBOURS:
            costs = foresee(every, features, REFERENCE)
    return Found(single, parts, blends, costs)


def percent(interval: Interval) -> str:
    return "{:.0%} [{:.0%}, {:.0%}]".format(*interval)
