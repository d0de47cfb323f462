"""The page of `benchmarks.activations.recipes`: effects, shares of variance, foresight."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from benchmarks.activations import tables
from benchmarks.activations.effects import (
    LEVEL,
    Paired,
    by_table,
    effects,
    friedman_text,
    range_of_levels,
    ranks,
    ratio_text,
    spread_of_splits,
)
from benchmarks.activations.figures import plot_effects, plot_shares
from benchmarks.activations.findings import (
    REFERENCE,
    Found,
    Sample,
    activation_shares,
    chosen_weights,
    make_found,
    of_openml,
    percent,
    recipe_shares,
)
from benchmarks.activations.foresight import judged
from benchmarks.activations.plan import SINGLE
from benchmarks.activations.recipes_claims import CLAIMS
from benchmarks.common.claims import claims_table
from benchmarks.common.looks import label, listed
from benchmarks.common.page import Page, p_text
from combutab.evaluation import holm, t_interval, wilcoxon


def write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    found = make_found(rows, arguments.data_home)
    failed = int((rows["error"] != "").sum())
    page.text(
        f"""\
Does the choice still matter once the recipe is good? {len(SINGLE)} activations, and blends of each
with x of learned weight, in the default recipe (one network, `n_members=1`), packs, TabM
and the CombU paper's plain network (`paper_recipe`), on the eight tables of OpenML, four formulas
and {tables.N_EQUATIONS} of the Feynman equations: every fourth of the list, from the first. Splits
4:1, equal rows on one side; each split is also a seed, which all share. The error is the log loss
of classes and the RMSE of numbers in standard deviations of the training rows' target.""",
        f"""\
**The rule for cutting**, written down before anything was run (plan.py). Rows: at most
{rows["most_train"].max()} to train on, {tables.MOST_TEST} to test on. The splits of a table come in
rounds: the activations in the default recipe and the plain network first, the recipe's parts one
round later, packs and TabM two, equations three, blends four, mixed packs on formulas and
equations five; what the budget cuts are the last rounds. TabM has 8 heads of 2 x 128 instead of 32
of 3 x 256; packs have {len(SINGLE)} members instead of 16, and five kinds of them. Of a table
count the splits that have all that is compared. So the rows say nothing of large tables, and how
many tables and splits there are stands at each number: n tables x k splits. Changed while
it ran, before any result of these was seen: that a table counts with the splits that it has, where
at first only whole rounds were to count, and that twice the time comes before the other parts. The
verdict "not decided", and shares of variance on OpenML alone, came after first rows were seen.""",
        f"""\
Ratios are of errors, geometric means over tables, with Student's 95 % interval over tables; below 1
is better. p is Wilcoxon's over tables, Holm-adjusted over what a table of this page compares.
"Own" are the tables that decide by themselves, for / against: the corrected resampled t-test over
a table's splits, Holm-adjusted over all tables and activations. Level {LEVEL:g}; claims are not
adjusted for one another. "Not decided" is what chance could have done; it says not that there is
nothing, but that it is no more than the intervals let. Networks and packs: {len(rows)}, of which
{failed} diverged.""",
    )
    page.heading("Verdicts")
    page.text(claims_table(CLAIMS, {"here": found}))
    page.heading("Activations, beside CombU")
    for sample in found.samples.values():
        _effects_part(page, sample)
    _parts_part(page, found)
    _spread_part(page, found)
    _variance_part(page, found)
    _blends_part(page, found)
    _packs_part(page, rows, SINGLE)
    _foresight_part(page, found)
    _errors_part(page, found)


def _effects_part(page: Page, sample: Sample) -> None:
    page.heading(f"{sample.name}: {sample.size}", 3)
    test = ranks(sample.logs)
    beside = effects(sample.logs, REFERENCE)
    lines = []
    for name, rank in test.mean_ranks.items():
        effect = beside.get(str(name))
        cells = [str(effect), p_text(effect.p), effect.own] if effect else ["1", "", ""]
        lines.append([label(str(name)), f"{rank:.2f}", *cells])
    page.table(["activation", "mean rank", "error over CombU's", "p", "own"], lines)
    page.text(f"{friedman_text(test)}.")


def _pairs_table(page: Page, first: str, reference: str, pairs: Mapping[str, Paired]) -> None:
    page.table(
        [first, "tables x splits", f"error over {reference}", "p", "own"],
        [
            [label(name), pair.size, str(pair.effect), p_text(pair.effect.p), pair.effect.own]
            for name, pair in pairs.items()
        ]
        or [["not run", *["—"] * 4]],
    )


def _parts_part(page: Page, found: Found) -> None:
    page.heading("The rest of the recipe, and twice the time")
    page.text("With CombU: other recipes, and the default one without one of its parts or longer.")
    _pairs_table(page, "recipe", "the default recipe's", found.parts)


def _spread_part(page: Page, found: Found) -> None:
    every = {s.name: spread_of_splits(of_openml(s.logs)) for s in found.samples.values()}
    spreads = {name: spread for name, spread in every.items() if np.isfinite(spread)}
    if spreads:
        page.text(
            "By what factor the error of a table of OpenML, the mean of all activations, differs "
            "from split to split (exp of the standard deviation of its logarithm): "
            f"{listed(f'{name} {spread:.3f}' for name, spread in spreads.items())}."
        )
    page.text(
        "Worst over best activation, by their means over tables: "
        + listed(f"{s.name} {range_of_levels(s.logs):.3f}" for s in found.samples.values())
        + "."
    )
    shown = {s.name: effects(s.logs, REFERENCE) for s in found.samples.values()}
    if shown:
        beside = {name: pair.effect for name, pair in found.parts.items()}
        figure = plot_effects(shown, beside, spreads)
        page.figure(figure, "Errors over CombU's by activation, beside the rest of the recipe")


def _variance_part(page: Page, found: Found) -> None:
    page.heading("Whose is the variance?")
    page.text(
        "Components of the variance of the logarithm of the error within tables (analysis of "
        "variance, all factors random, splits nested in tables; negative ones count as 0), as "
        'shares, with 95 % bootstrap intervals over tables. "table x activation" is what a choice '
        'for the table could gain; "rest" is noise of seed and split that no choice can. Formulas '
        "have tails so heavy that the split decides: the tables of OpenML alone beside."
    )
    logs = {s.name: s.logs for s in found.samples.values()}
    for sample in found.samples.values():
        alone = of_openml(sample.logs)
        if sample.on == "tables" and len(alone) < len(sample.logs):
            logs[f"{sample.recipe}, OpenML alone"] = alone
    every = {name: activation_shares(own) for name, own in logs.items()}
    shares = {f"{name} ({own[1]})": own[0] for name, own in every.items() if own}
    if not shares:
        page.text("Not enough splits.")
        return
    names = list(next(iter(shares.values())))
    page.table(
        ["recipe", *names],
        [[name, *(percent(own[n]) for n in names)] for name, own in shares.items()],
    )
    page.figure(plot_shares(shares), "Shares of the variance by recipe", "variance")
    both = recipe_shares(found)
    if both is not None:
        page.text(f"With the recipe as a factor ({both[1]}; plain network and default recipe):")
        page.table(["component", "share"], [[n, percent(s)] for n, s in both[0].items()])


def _blends_part(page: Page, found: Found) -> None:
    page.heading("Blends")
    page.text("A blend (1 - w) x + w g(x), w learned a unit, beside g alone; default recipe.")
    _pairs_table(page, "g", "g's", found.blends)


def _packs_part(page: Page, rows: pd.DataFrame, names: Sequence[str]) -> None:
    page.heading("What packs choose")
    weights = chosen_weights(rows, names)
    if len(weights) < 2:
        page.text("Not run.")
        return
    even = 1.0 / len(names)
    page.text(
        f"Mean weight of each activation in mixed packs' ensembles, over {len(weights)} tables, "
        f"with Student's 95 % interval; all alike would have {even:.3f}. p: Wilcoxon's against "
        "that, Holm-adjusted."
    )
    pvalues = holm([wilcoxon(own, 0.0 * own + even).pvalue for _, own in weights.items()])
    lines = []
    for (name, own), p in zip(weights.items(), pvalues, strict=True):
        mean, low, high = t_interval(own)
        first = int((weights.idxmax(axis=1) == name).sum())
        lines.append(
            [label(str(name)), f"{mean:.3f} [{low:.3f}, {high:.3f}]", p_text(float(p)), first]
        )
    page.table(["activation", "weight", "p", "tables where it has most"], lines)


def _foresight_part(page: Page, found: Found) -> None:
    page.heading("Can the choice be foreseen?")
    if found.costs.empty:
        page.text("Too few tables.")
        return
    page.text(
        "What a rule chooses for a table that it has not seen, from the other "
        f"{len(found.costs) - 1}, in the default recipe: the best mean there; or by rows, columns, "
        "categories, skewness and the error of a linear model (ridge regression of each "
        "activation's error on them, or the "
        'three nearest tables). "Its own other splits" knows the table itself, from its other '
        "splits, and shows how much there is to foresee."
    )
    on_tables = found.costs[found.costs.index.isin([*tables.OPENML, *tables.FORMULAS])]
    every = {"all": found.costs, "tables without equations": on_tables}
    lines = [
        [rule, of, len(costs), ratio_text(ratio), p_text(p)]
        for of, costs in every.items()
        if len(costs) > 1
        for rule, (ratio, p) in judged(costs).items()
    ]
    page.table(["rule", "judged on", "tables", "error over CombU's", "p"], lines)


def _errors_part(page: Page, found: Found) -> None:
    page.heading("Errors")
    page.text("Geometric means over splits.")
    for sample in found.samples.values():
        page.heading(f"{sample.name}: {sample.size}", 3)
        wide = np.exp(by_table(sample.logs))
        page.table(
            ["table", *(label(name) for name in wide)],
            [[str(name), *(f"{v:.3g}" for v in row)] for name, *row in wide.itertuples()],
        )
