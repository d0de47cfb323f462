"""The report of the approximation study, written from its rows alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_figure, write_text
from benchmarks.papers.combu.report_text import NOTHING, markdown_table
from benchmarks.papers.pln.approximation_figures import (
    label,
    plot_activations,
    plot_bounds,
    plot_fits,
    plot_sizes,
)
from benchmarks.papers.pln.approximation_numbers import (
    CLASSIC,
    FAMILIES,
    LEVEL,
    OURS,
    Ranking,
    against_bounds,
    cells,
    compare,
    finals,
    load_claims,
    rank_sizes,
    slope,
    trends,
)
from benchmarks.papers.pln.approximation_runs import FIT_WIDTH, TARGETS, Grid

NAME = "pln_approximation"
_METHOD = """\
The paper gives the widths (powers of two, 8 to 4096), optimisers (Adam, SGD), rates (0.1 to 1e-6),
seeds (3), batch sizes ("four": 4, 8, 16) and epochs (1000). It does not give the points that the
trigonometric function is learned from, nor the base of its "logarithmic loss"; Tables I to III are
pictures of fits and hold no numbers. Here:

- {points}
- Widths {widths}; batches of {batches}; learning rates {rates}; SGD without momentum.
- The search tries every setting of an activation once, for {share:.0%} of the epochs. The best
  ({finalists}) are trained again for all of them from {seeds} new seeds; that with the lowest
  median counts. The paper takes the best of all runs. All networks that share width, optimiser and
  batch size are one stack.
- The log loss is the natural logarithm of the mean squared error at the training points. The
  greatest error is taken over 1001 points of [-5, 5].
- Weights are drawn as torch's linear layers draw them, from raw x in [-5, 5].
"""


def write_report(rows: pd.DataFrame, grid: Grid, folder: Path, command: str) -> None:
    """Write the page and its figures beside the rows, and print the verdicts."""
    best = finals(rows)
    best = best[best["width"].isin(grid.widths)]
    table, bounds = cells(best), against_bounds(best)
    verdicts = "\n".join(f"- {line}" for line in _verdicts(best, bounds))
    print(verdicts)
    figures = {
        "norm_sizes": ("Figures 3 and A1: norm sizes", plot_sizes(table)),
        "activations": ("Figure 4: activations", plot_activations(table)),
        "bounds": ("Greatest errors beside the bounds", plot_bounds(bounds, "trigonometric")),
    }
    if best["curve"].notna().any():
        title = f"Figure 5: fits at width {FIT_WIDTH}"
        figures["fits"] = (title, plot_fits(best))
    parts = [
        "# One hidden layer: PLN and PLS beside other activations",
        f"`{command}`",
        describe_machine(),
        "After section 4.2 of the PLN paper (Figures 3, 4, 5 and A1, Tables I to III).",
        "## Verdicts",
        verdicts,
        "## What was done",
        _method(grid, rows),
        "## Loss by activation and width",
        "Log loss: median over seeds (least to greatest). Best median of a column in bold.",
        *_loss_tables(table),
        "## The paper's claims",
        _axis(table),
        _claims(best),
        "## PLN-4 and PLS-2 against sigmoid, tanh and ReLU",
        _contest(best),
        "## Norm sizes",
        _ranks(rank_sizes(best)),
        "## The propositions",
        _bounds(bounds),
        "## Settings that were best",
        _settings(best, rows),
        "## Figures",
    ]
    for name, (title, figure) in figures.items():
        file = f"{NAME}_{name}.png"
        write_figure(figure, folder / file, dpi=100)
        parts.append(f"![{title}]({file})")
    write_text(folder / f"{NAME}.md", "\n\n".join(part.strip() for part in parts) + "\n")


def _method(grid: Grid, rows: pd.DataFrame) -> str:
    epochs = rows[rows["stage"] == "final"].groupby("data")["epochs"].max()
    points = "; ".join(
        f"{target.label}, {target.n_points} evenly spaced points, {epochs[name]} epochs"
        for name, target in TARGETS.items()
    )
    return _METHOD.format(
        points=f"Learned: {points}. About as many rows are seen of both.",
        widths=_listed(grid.widths),
        batches=_listed(grid.batch_sizes),
        rates=_listed(f"{rate:g}" for rate in grid.rates),
        share=grid.search_share,
        finalists=_finalists(rows[rows["width"].isin(grid.widths)]),
        seeds=len(grid.final_seeds),
    )


def _finalists(rows: pd.DataFrame) -> str:
    """How many settings of an activation were trained again, by width where they differ."""
    settings = rows[rows["stage"] == "final"].drop_duplicates(
        ["data", "activation", "width", "solver", "batch_size", "learning_rate"]
    )
    counts = settings.groupby(["width", "data", "activation"]).size().groupby("width").max()
    if counts.nunique() == 1:
        return str(counts.iloc[0])
    return ", ".join(
        f"{count} at {'width' if len(part) == 1 else 'widths'} {_listed(part.index)}"
        for count, part in counts.groupby(counts)
    )


def _listed(items: Iterable[object]) -> str:
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last


def _verdicts(best: pd.DataFrame, bounds: pd.DataFrame) -> list[str]:
    lines = [*_contest_words(best), *_size_words(rank_sizes(best))]
    lines += [*_trend_words(best), *_bound_words(bounds)]
    claims = _tested_claims(best)
    return lines if claims.empty else [*lines, f"{_counted(claims)} (the paper's, below)."]


def _pairs() -> list[tuple[str, str, str]]:
    return [(data, ours, other) for data in TARGETS for ours in OURS for other in CLASSIC]


def _contest_words(best: pd.DataFrame) -> list[str]:
    found = compare(best, _pairs())
    lines = []
    for ours, part in found.groupby("lower", sort=False):
        words = []
        for verdict, said in (
            ("holds", "lower loss than"),
            ("reversed", "higher loss than"),
            ("not shown", "no difference shown from"),
        ):
            some = part[part["verdict"] == verdict]
            if not some.empty:
                names = [
                    f"{label(o)} ({d})" for d, o in zip(some["data"], some["higher"], strict=True)
                ]
                words.append(f"{said} {_listed(names)}")
        lines.append(f"{label(str(ours))} at the same width: {'; '.join(words)}.")
    return lines


def _size_words(rankings: Sequence[Ranking]) -> list[str]:
    lines = []
    for ranking in rankings:
        first, second = ranking.ranks.index[:2]
        shown = "differ" if ranking.pvalue < LEVEL else "do not differ beyond chance"
        lines.append(
            f"{ranking.family}, {ranking.data}: norm sizes {shown} (Friedman, p "
            f"{_p(ranking.pvalue)}); best mean rank {label(first)} ({ranking.ranks[first]:.1f}), "
            f"then {label(second)} ({ranking.ranks[second]:.1f})."
        )
    return lines


def _trend_words(best: pd.DataFrame) -> list[str]:
    lines = []
    for data, part in trends(best).groupby("data", sort=False):
        words = [
            f"{verdict} for {_listed(map(label, names))}"
            for verdict in ("falls", "rises", "neither shown")
            if (names := list(part.loc[part["verdict"] == verdict, "activation"]))
        ]
        lines.append(f"Loss as the width grows, {data} (Spearman, Holm): {'; '.join(words)}.")
    return lines


def _bound_words(bounds: pd.DataFrame) -> list[str]:
    lines = []
    for data, part in bounds.groupby("data", sort=False):
        slopes, below, n = [], 0, 0
        for name, line in part.groupby("activation", sort=False):
            slopes.append((slope(line["width"], line["sup"]), str(name)))
            below += int((line["sup_low"] < line["bound"]).sum())
            n += len(line)
        steepest, flattest = min(slopes), max(slopes)
        worse = int((part["sup"] > part["constructed"]).sum())
        lines.append(
            f"Width, {data}: the greatest error's slope in width (log-log) is between "
            f"{steepest[0]:.2f} ({label(steepest[1])}) and {flattest[0]:.2f} "
            f"({label(flattest[1])}), the bound's about -1; the best seed is below the bound at "
            f"{below} of {n} widths, the median above the constructed network's error at {worse}."
        )
    return lines


def _loss_tables(table: pd.DataFrame) -> list[str]:
    parts = []
    for data, part in table.groupby("data", sort=False):
        widths = sorted(set(part["width"]))
        least = part.groupby("width")["median"].min()
        body = []
        for name, line in part.groupby("activation", sort=False):
            own = line.set_index("width")
            body.append([label(str(name)), *(_cell(own, width, least) for width in widths)])
        parts += [f"### {TARGETS[str(data)].label}", markdown_table(["", *map(str, widths)], body)]
    return parts


def _cell(own: pd.DataFrame, width: int, least: pd.Series) -> str:
    if width not in own.index:
        return NOTHING
    cell = own.loc[width]
    middle = f"{cell['median']:.2f}"
    if cell["median"] == least[width]:
        middle = f"**{middle}**"
    return f"{middle} ({cell['low']:.1f} to {cell['high']:.1f})"


def _axis(table: pd.DataFrame) -> str:
    """The one scale that the paper's text has: the ticks of Figure A1 (b)."""
    ours = table[
        (table["data"] == "random")
        & table["activation"].isin(set(FAMILIES["PLS"]) - {"pls-1"})
        & table["width"].between(32, 512)
    ]
    said = "Figure A1 (b), PLS-2 to PLS-32 on random values at widths 32 to 512, has ticks from -2 "
    said += "to -8, of a logarithm whose base is not named."
    if ours.empty:
        return said
    widths = _listed(sorted(set(ours["width"])))
    low, high = ours["median"].min(), ours["median"].max()
    return f"{said} Our medians at widths {widths} are from {high:.1f} to {low:.1f}."


def _tested_claims(best: pd.DataFrame) -> pd.DataFrame:
    claims = load_claims()
    return compare(
        best, list(claims[["data", "lower", "higher"]].itertuples(index=False, name=None))
    )


def _counted(found: pd.DataFrame) -> str:
    counts = found["verdict"].value_counts()
    said = "; ".join(f"{v}: {counts.get(v, 0)}" for v in ("holds", "reversed", "not shown"))
    return f"Of {len(found)} claims of an order: {said}"


def _claims(best: pd.DataFrame) -> str:
    claims = load_claims()
    found = _tested_claims(best)
    if found.empty:
        return "None of the activations of the claims were trained."
    found = found.merge(claims, on=["data", "lower", "higher"])
    body = [
        [row.source, row.data, f"{label(row.lower)} < {label(row.higher)}", *_outcome(row)]
        for row in found.itertuples()
    ]
    return f"{_TEST} {_counted(found)}.\n\n" + markdown_table(
        ["where", "target", "claim: lower loss", *_OUTCOME], body, left=3
    )


_TEST = (
    "Differences are medians of the log losses' differences, of networks of one width and seed; "
    "widths: those where the first's median is lower; p: Wilcoxon's signed-rank test over widths "
    "and seeds, Holm-adjusted for the table. Seeds vary the networks, the target is one."
)
_OUTCOME = ("difference", "widths", "p", "here")


def _outcome(row: object) -> tuple[str, ...]:
    values = row._asdict()  # type: ignore[attr-defined]
    return (
        f"{values['difference']:+.2f}",
        f"{values['won']} of {values['widths']}",
        _p(values["pvalue"]),
        values["verdict"],
    )


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def _contest(best: pd.DataFrame) -> str:
    body = [
        [row.data, f"{label(row.lower)} < {label(row.higher)}", *_outcome(row)]
        for row in compare(best, _pairs()).itertuples()
    ]
    return markdown_table(["target", "lower loss", *_OUTCOME], body, left=2)


def _ranks(rankings: Sequence[Ranking]) -> str:
    if not rankings:
        return "No width has all norm sizes."
    body = []
    for ranking in rankings:
        words = ", ".join(f"{label(str(name))} {rank:.1f}" for name, rank in ranking.ranks.items())
        body.append(
            [ranking.data, ranking.family, words, str(ranking.n_widths), _p(ranking.pvalue)]
        )
    return (
        "Mean rank of the loss over seeds and the widths that have all sizes, best first; p is "
        "Friedman's.\n\n"
        + markdown_table(["target", "family", "mean ranks", "widths", "p"], body, left=3)
    )


def _bounds(bounds: pd.DataFrame) -> str:
    body = []
    for (data, name), line in bounds.groupby(["data", "activation"], sort=False):
        line = line.sort_values("width")
        widest = line.iloc[-1]
        body.append(
            [
                data,
                label(str(name)),
                *(f"{slope(line['width'], line[c]):.2f}" for c in ("bound", "constructed", "sup")),
                *(f"{widest[c]:.3g}" for c in ("bound", "constructed", "sup")),
                f"{int((line['sup_low'] < line['bound']).sum())} of {len(line)}",
                f"{widest['constructed_log_loss']:.2f}",
            ]
        )
    widest_width = int(bounds["width"].max())
    return (
        "A network of N units (groups, for PLN and PLS) can have an error below every epsilon > "
        "L / 2N, by propositions 1 to 3: in log-log a line of slope -1 in the width. Constructed: "
        "the proofs' networks (`combutab.constructions.lipschitz_network`). Trained: median of "
        f"the best setting's seeds. Greatest errors are those at width {widest_width}; below: "
        "widths where the best seed is below the bound.\n\n"
        + markdown_table(
            [
                *("target", "", "slope: bound", "constructed", "trained"),
                *("error: bound", "constructed", "trained", "below", "log loss, constructed"),
            ],
            body,
            left=2,
        )
    )


def _settings(best: pd.DataFrame, rows: pd.DataFrame) -> str:
    place = ["data", "activation", "width"]
    chosen = best.drop_duplicates(place)
    counts = chosen.groupby(["solver", "batch_size", "learning_rate"]).size()
    words = [
        f"{solver}, batches of {batch}, rate {rate:g}: {count}"
        for (solver, batch, rate), count in counts.sort_values(ascending=False).items()
    ]
    searched = rows[rows["stage"] == "search"].groupby(place)["tail_mse"].min()
    medians = best.groupby(place)["log_loss"].median()
    above = medians > np.log(searched.reindex(medians.index))
    above = above[above].index.get_level_values("width")
    widest = best["width"].max()
    worse, wide = len(above), int((above == widest).sum())
    diverged = int(best["mse"].isna().sum())
    by_family = {family: chosen["activation"].isin(names) for family, names in FAMILIES.items()}
    by_family["others"] = ~np.logical_or.reduce(list(by_family.values()))
    rates = "; ".join(
        f"{family}: {chosen.loc[of, 'learning_rate'].median():g}"
        for family, of in by_family.items()
        if of.any()
    )
    return (
        f"Of {len(chosen)} (target, activation, width): "
        + "; ".join(words)
        + f". Median rate: {rates}. {diverged} of {len(best)} final networks diverged. In {worse} "
        f"({wide} at width {widest}) the median after all epochs is above the loss that the search "
        "ended with: a short search favours rates that are quick, but may not settle."
    )
