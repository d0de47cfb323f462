"""How well do networks of one hidden layer approximate, by activation, norm size and width?

Section 4.2 of the PLN paper: Figures 3, 4, 5 and A1, Tables I to III; what is done, the page says.
Beside the trained networks stand those that the proofs of propositions 1 to 3 write down.

    python -m benchmarks.papers.pln.approximation [--quick] [--report] [--widths 8 64]
        [--out FOLDER]

A run that was stopped goes on where it stood; --report writes the report on what is there.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.papers.common.claims import Claim, Finding, claims_table
from benchmarks.papers.common.command import Arguments, Experiment, Job, Study
from benchmarks.papers.common.page import Page, p_text
from benchmarks.papers.pln import approximation_figures as figures
from benchmarks.papers.pln import approximation_numbers as numbers
from benchmarks.papers.pln import approximation_runs as runs
from benchmarks.papers.pln.approximation_runs import CLASSIC, FAMILIES, SIZED, TARGETS, Grid, Run
from benchmarks.papers.common.looks import cross_table, label, listed
from combutab.evaluation import friedman, holm, mean_ranks, wilcoxon

NAME = "pln_approximation"
LEVEL = 0.05
QUICK = Grid(
    widths=(8, 16),
    activations=("pln-2", "pln-4", "pls-1", "pls-2", *CLASSIC, "combu"),
    batch_sizes=(16,),
    rates=(1e-1, 1e-2),
    epoch_share=0.03,
    n_finalists=2,
    final_seeds=(1, 2),
)
Pair = tuple[str, str, str]  # target, what is to have the lower loss, and the higher
CONTEST = list(product(TARGETS, ("pln-4", "pls-2"), CLASSIC))


def _orders() -> dict[Pair, str]:
    """The paper's orders, and where: its text has no numbers, Tables I to III are pictures."""
    table = pd.read_csv(Path(__file__).parent / "expected" / f"{NAME}.csv")
    return {(row.data, row.lower, row.higher): row.source for row in table.itertuples()}


ORDERS = _orders()


def _grid(arguments: Arguments) -> Grid:
    grid = QUICK if arguments.quick else Grid()
    return replace(grid, widths=tuple(arguments.widths)) if arguments.widths else grid


def _jobs(wanted: Sequence[Run]) -> list[Job]:
    return [
        Job([run.settings for run in stack], partial(runs.train, stack), str(stack[0]))
        for stack in runs.stacks(wanted)
    ]


def search_jobs(arguments: Arguments) -> list[Job]:
    return _jobs(_grid(arguments).search())


def final_jobs(arguments: Arguments) -> list[Job]:
    """Those of the search, which are done, and then what it chose."""
    path = EXPERIMENTS[0].store(arguments.out).path
    rows = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    return [*search_jobs(arguments), *_jobs(_grid(arguments).finals(rows))]


EXPERIMENTS = [
    Experiment(NAME, (*runs.KEY, "n_points", "epochs"), runs.RESULTS, jobs, runs.KEY)
    for jobs in (search_jobs, final_jobs)
]


Test = tuple[str, float, bool]  # the statistic, p, and whether it is as claimed
Key = TypeVar("Key")


def _decided(tests: Mapping[Key, Test]) -> dict[Key, Finding]:
    """Findings after Holm's adjustment for all tests; what is not significant decides nothing."""
    pvalues = holm([p for _, p, _ in tests.values()]) if tests else []
    return {
        key: Finding(f"{said}, {p_text(p)}", [so if p < LEVEL else None])
        for (key, (said, _, so)), p in zip(tests.items(), pvalues, strict=True)
    }


def compare(rows: pd.DataFrame, pairs: Iterable[Pair]) -> dict[Pair, Finding]:
    """Test for each pair that was trained whether the first's loss is lower.

    The median of the log losses' differences; the widths where the first's median is lower; p of
    Wilcoxon's signed-rank test over widths and seeds, Holm-adjusted for all pairs given.
    """
    table = rows.pivot_table(
        index=["data", "width", "seed"], columns="activation", values="log_loss"
    )
    tests: dict[Pair, Test] = {}
    for pair in pairs:
        data, *names = pair
        if not set(names) <= set(table) or data not in table.index:
            continue
        both = table.loc[data, names].dropna().set_axis(["first", "second"], axis=1)
        if both.empty:
            continue
        medians = both.groupby("width").median()
        won, difference = medians["first"] < medians["second"], both["first"] - both["second"]
        said = f"{difference.median():+.2f}, {won.sum()} of {len(won)} widths"
        p = wilcoxon(both["first"], both["second"]).pvalue
        tests[pair] = said, p, bool(difference.median() < 0)
    return _decided(tests)


def trends(rows: pd.DataFrame) -> dict[tuple[str, str], Finding]:
    """Whether the loss falls as the width grows, by target and activation.

    Spearman's correlation over widths and seeds, p Holm-adjusted for all. Of a single width there
    is nothing.
    """
    tests: dict[tuple[str, str], Test] = {}
    for (data, name), part in rows.groupby(["data", "activation"], sort=False):
        if part["width"].nunique() > 1:
            test = stats.spearmanr(part["width"], part["log_loss"])
            said, falls = f"{test.statistic:+.2f}", bool(test.statistic < 0)
            tests[data, name] = said, float(test.pvalue), falls
    return _decided(tests)


def rank_sizes(rows: pd.DataFrame, family: str) -> Finding | None:
    """Whether a family's norm sizes differ, over seeds and those widths that have all of them.

    Mean ranks of the loss, best first, and p of Friedman's test. The rows are of one target.
    """
    part = rows[rows["activation"].isin(FAMILIES[family])]
    table = part.pivot_table(index=["width", "seed"], columns="activation", values="log_loss")
    table = table.dropna()
    if len(table) < 2 or table.shape[1] < 3:
        return None
    ranks = mean_ranks(table, greater_is_better=False).sort_values()
    n_widths = table.index.get_level_values("width").nunique()
    said = ", ".join(f"{label(str(name))} {rank:.1f}" for name, rank in ranks.items())
    return _decided({family: (f"{said}; {n_widths} widths", friedman(table).pvalue, True)})[family]


def _order(where: str, pair: Pair) -> Claim[dict[Pair, Finding]]:
    data, lower, higher = pair
    return Claim(where, f"{data}: {label(lower)} < {label(higher)}", lambda found: found.get(pair))


def _trend(activation: str) -> Claim[dict[str, Finding]]:
    where = "Tables I to III" if activation in (*SIZED, *CLASSIC) else "not in the paper"
    return Claim(where, label(activation), lambda found: found.get(activation))


SIZES = [
    Claim("Figures 3, A1", f"the norm sizes of {family} differ", partial(rank_sizes, family=family))
    for family in FAMILIES
]


def _verdicts(page: Page, best: pd.DataFrame) -> None:
    by_data = {str(data): part for data, part in best.groupby("data", sort=False)}
    page.heading("Verdicts")
    page.text(
        f"Level {LEVEL:g}. Seeds vary the networks; each target is one. What a test does not show "
        "is not decided."
    )
    found = compare(best, ORDERS)
    counts = Counter(finding.verdict for finding in found.values())
    page.heading("The paper's orders: who has the lower loss", 3)
    page.text(
        "Medians of the log losses' differences, of networks of one width and seed; widths where "
        "the first's median is lower; p of Wilcoxon's signed-rank test over widths and seeds, "
        "Holm-adjusted for the table. "
        f"Of {len(found)}: {'; '.join(f'{verdict}: {n}' for verdict, n in counts.most_common())}.",
        claims_table([_order(where, pair) for pair, where in ORDERS.items()], {"here": found}),
    )
    page.heading("PLN-4 and PLS-2 against sigmoid, tanh and ReLU at the same width", 3)
    contest = [_order("Figures 4, A1", pair) for pair in CONTEST]
    page.text("Likewise.", claims_table(contest, {"here": compare(best, CONTEST)}))
    page.heading("Norm sizes", 3)
    page.text(
        "Mean ranks of the loss over seeds and the widths that have all sizes, best first; p is "
        "Friedman's.",
        claims_table(SIZES, by_data),
    )
    page.heading("The loss falls as the width grows", 3)
    found_trends = trends(best)
    samples = {
        data: {name: finding for (of, name), finding in found_trends.items() if of == data}
        for data in by_data
    }
    names = list(dict.fromkeys(best["activation"]))
    page.text(
        "Spearman's correlation over widths and seeds; p is Holm-adjusted for the table.",
        claims_table(map(_trend, names), samples),
    )


def _method(page: Page, grid: Grid, rows: pd.DataFrame) -> None:
    epochs = rows[rows["stage"] == "final"].groupby("data")["epochs"].max()
    points = "; ".join(
        f"{target.label}, {target.n_points} evenly spaced points, {epochs[name]} epochs"
        for name, target in TARGETS.items()
    )
    page.heading("What was done")
    page.text(f"""\
After section 4.2 of the PLN paper (Figures 3, 4, 5 and A1, Tables I to III). The paper gives the
widths (powers of two, 8 to 4096), optimisers (Adam, SGD), rates (0.1 to 1e-6), seeds (3), batch
sizes ("four": 4, 8, 16) and epochs (1000). It does not give the points that the trigonometric
function is learned from, nor the base of its "logarithmic loss"; Tables I to III are pictures of
fits and hold no numbers. Here:

- Learned: {points}. About as many rows are seen of both.
- Widths {listed(grid.widths)}; batches of {listed(grid.batch_sizes)}; learning rates
  {listed(f"{rate:g}" for rate in grid.rates)}; SGD without momentum.
- The search tries every setting of an activation once, for {grid.search_share:.0%} of the epochs.
  The best ({grid.n_finalists}) are trained again for all of them from {len(grid.final_seeds)} new
  seeds; that with the lowest median counts. The paper takes the best of all runs. All networks
  that share width, optimiser and batch size are one stack.
- The log loss is the natural logarithm of the mean squared error at the training points. The
  greatest error is taken over 1001 points of [-5, 5].
- Weights are drawn as torch's linear layers draw them, from raw x in [-5, 5].""")


def _losses(page: Page, table: pd.DataFrame) -> None:
    page.heading("Loss by activation and width")
    page.text("Log loss: median over seeds (least to greatest). Best median of a column in bold.")
    best = table["median"] == table.groupby(["data", "width"])["median"].transform("min")
    bold = best.map({True: "**", False: ""})
    medians = bold + table["median"].map("{:.2f}".format) + bold
    lows, highs = table["low"].map("{:.1f}".format), table["high"].map("{:.1f}".format)
    table = table.assign(text=medians + " (" + lows + " to " + highs + ")")
    for data, part in table.groupby("data", sort=False):
        page.heading(TARGETS[str(data)].label, 3)
        cross_table(page, part, "activation", "width")
    ours = table[
        (table["data"] == "random")
        & table["activation"].isin(FAMILIES["PLS"][1:])
        & table["width"].between(32, 512)
    ]
    if not ours.empty:
        low, high = ours["median"].min(), ours["median"].max()
        page.text(
            "Figure A1 (b), PLS-2 to PLS-32 on random values at widths 32 to 512, has ticks from "
            "-2 to -8, of a logarithm whose base is not named. Our medians at widths "
            f"{listed(sorted(set(ours['width'])))} are from {high:.1f} to {low:.1f}."
        )


def _bounds(page: Page, bounds: pd.DataFrame) -> None:
    page.heading("The propositions")
    page.text(
        "A network of N units (groups, for PLN and PLS) can have an error below every epsilon > "
        "L / 2N, by propositions 1 to 3: in log-log a line of slope -1 in the width. Constructed: "
        "the proofs' networks (`combutab.constructions.lipschitz_network`). Trained: median of "
        f"the best setting's seeds. Greatest errors are those at width {bounds['width'].max()}; "
        "below: widths where the best seed is below the bound; above: where the median is above "
        "the constructed network's error."
    )
    columns, lines = ("bound", "constructed", "sup"), []
    bounds = bounds.sort_values("width").assign(
        below=bounds["sup_low"] < bounds["bound"], above=bounds["sup"] > bounds["constructed"]
    )
    for data, part in bounds.groupby("data", sort=False):
        for name in (name for name in runs.ACTIVATIONS if name in set(part["activation"])):
            own = part[part["activation"] == name]
            widest, n = own.iloc[-1], len(own)
            lines.append(
                [
                    *(data, label(name)),
                    *(f"{numbers.slope(own['width'], own[column]):.2f}" for column in columns),
                    *(f"{widest[column]:.3g}" for column in columns),
                    *(f"{int(own[column].sum())} of {n}" for column in ("below", "above")),
                    f"{widest['constructed_log_loss']:.2f}",
                ]
            )
        sums = (f"{int(part[column].sum())} of {len(part)}" for column in ("below", "above"))
        lines.append([data, "all", *[""] * 6, *sums, ""])
    page.table(
        [
            *("target", "", "slope: bound", "constructed", "trained"),
            *("error: bound", "constructed", "trained", "below", "above", "log loss, constructed"),
        ],
        lines,
    )


def _settings(page: Page, best: pd.DataFrame, rows: pd.DataFrame) -> None:
    chosen = best.drop_duplicates(numbers.CELL)
    counts = chosen.groupby(numbers.SETTING).size().sort_values(ascending=False)
    settings = [
        f"{solver}, batches of {batch}, rate {rate:g}: {count}"
        for (solver, batch, rate), count in counts.items()
    ]
    searched = rows[rows["stage"] == "search"].groupby(numbers.CELL)["tail_mse"].min()
    medians = best.groupby(numbers.CELL)["log_loss"].median()
    above = medians.index[medians > np.log(searched.reindex(medians.index))]
    widest = best["width"].max()
    kinds = {name: family for family, names in FAMILIES.items() for name in names}
    rates = chosen.groupby(chosen["activation"].map(kinds).fillna("others"))["learning_rate"]
    page.heading("Settings that were best")
    page.text(
        f"Of {len(chosen)} (target, activation, width): {'; '.join(settings)}. Median rate: "
        f"{'; '.join(f'{family}: {rate:g}' for family, rate in rates.median().items())}. "
        f"{best['mse'].isna().sum()} of {len(best)} final networks diverged. In {len(above)} "
        f"({(above.get_level_values('width') == widest).sum()} at width {widest}) the median after "
        "all epochs is above the loss that the search ended with: a short search favours rates "
        "that are quick, but may not settle."
    )


def write(page: Page, arguments: Arguments, _: pd.DataFrame, rows: pd.DataFrame) -> None:
    grid, best = _grid(arguments), numbers.finals(rows)
    best = best[best["width"].isin(grid.widths)]
    table = numbers.cells(best)
    bounds = numbers.against_bounds(table)
    _verdicts(page, best)
    _method(page, grid, rows)
    _losses(page, table)
    _bounds(page, bounds)
    _settings(page, best, rows)
    page.heading("Figures")
    page.figure(figures.plot_sizes(table), "Figures 3 and A1: norm sizes", "norm_sizes")
    page.figure(figures.plot_activations(table), "Figure 4: activations", "activations")
    page.figure(figures.plot_bounds(bounds), "Greatest errors beside the bounds", "bounds")
    if best["curve"].notna().any():
        page.figure(figures.plot_fits(best), f"Figure 5: fits at width {runs.FIT_WIDTH}", "fits")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--widths", type=int, nargs="+", help="instead of 8 to 4096")


STUDY = Study(
    name=NAME,
    title="One hidden layer: PLN and PLS beside other activations",
    description=__doc__.splitlines()[0],
    module="benchmarks.papers.pln.approximation",
    experiments=EXPERIMENTS,
    write=write,
    add_arguments=add_arguments,
)

if __name__ == "__main__":
    STUDY.main()
