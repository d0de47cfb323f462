"""How accurate is TabFlow's imputation, compared with IterativeImputer and hot-deck imputation?

A fifth of the cells of each table (at most 3,000 of its rows) is hidden at random; each model is
trained on the remaining cells and imputes them. Measures on the hidden cells:

- RMSE of numbers, in standard deviations of each column;
- wrong: the share of categories that differ from the true ones;
- both as ratios to our imputer's on the same cells, above 1 where ours is better;
- coverage: the share of true numbers within the range of 19 draws; 90 % if the truth has the same
  distribution as the draws;
- wall-clock seconds including the fit; those of TabFlow.impute exclude the fit, which is included
  in TabFlowImputer's.

A hot deck fills a cell with that of another row, the donor: the nearest row that has the cell, or
a random one. The errors of models that draw are those of the first draw. Brackets hold 95 %
bootstrap intervals over rows; with several seeds, measures and ends of intervals are averaged. Over
tables the ratios are geometric means, with the number of tables on which the interval is above 1
(ours is better) or below 1 (ours is worse). All models have their own defaults.

The machine had other work at times while the stored rows were measured.

    python -m benchmarks.quality.imputation [--quick] [--data-home FOLDER] [--seeds 1]
        [--data NAME ...] [--rows N]

How IterativeImputer is given categories, and how donors are found, is described in
benchmarks/quality/imputers.py. The tables are the CombU paper's eight, from OpenML, or all CSV
files in --data-home (or COMBUTAB_DATA). A run that was stopped is resumed by the same command.
--quick trains for two epochs.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.quality.imputers import FILLERS, MODELS, OURS, Gaps
from benchmarks.quality.tables import DATA, lines, number, read_rows, wanted

HIDDEN = 0.2
N_RESAMPLES = 1000
MEASURES = ("rmse", "wrong", "coverage", "rmse_ratio", "wrong_ratio")
SETTINGS = ("data", "seed", "model", "rows")
ENDS = ("", "_low", "_high")
COUNTS = ("n_rows", "n_numbers", "n_categories")
RESULTS = (*COUNTS, *(f"{name}{end}" for name in MEASURES for end in ENDS), "seconds")
WORDS = {"rmse": "RMSE", "rmse_ratio": "RMSE / ours", "wrong_ratio": "wrong / ours"}


def hide(table: pd.DataFrame, seed: int, most: int, *, quick: bool = False) -> Gaps:
    """Hide a fifth of the cells of some rows of a table."""
    rng = np.random.default_rng(seed)
    rows = table.iloc[rng.permutation(len(table))[:most]].reset_index(drop=True)
    rows = rows.astype(dict.fromkeys(rows.select_dtypes("number"), "float64"))
    for name in rows.select_dtypes("category"):
        rows[name] = rows[name].cat.remove_unused_categories()
    hidden = (rng.random(rows.shape) < HIDDEN) & rows.notna().to_numpy()
    return Gaps(rows, hidden, seed, quick)


def measure(gaps: Gaps) -> list[Row]:
    """Fill a table by every model, and judge what was filled in."""
    found: dict[str, tuple[list[pd.DataFrame], float]] = {}
    for fill in FILLERS:
        started = time.perf_counter()
        for name, tables in fill(gaps):
            found[name] = tables, time.perf_counter() - started
            started = time.perf_counter()
    judged = {name: judge(gaps, tables) for name, (tables, _) in found.items()}
    ours = judged[OURS]
    n_cells = [int(gaps.hidden_of(names).sum()) for names in (gaps.numbers, gaps.categories)]
    counts = dict(zip(COUNTS, (len(gaps.table), *n_cells), strict=True))
    rows = []
    for name, own in judged.items():
        own |= {f"{m}_ratio": own[m] / ours[m] for m in ("rmse", "wrong")}
        row = counts | {"seconds": found[name][1]}
        for each, values in own.items():
            if not np.isnan(values[0]):
                ends = np.nanquantile(values[1:], [0.025, 0.975])
                row |= {f"{each}{e}": v for e, v in zip(ENDS, (values[0], *ends), strict=True)}
        rows.append(row)
    return rows


def judge(gaps: Gaps, tables: list[pd.DataFrame]) -> dict[str, np.ndarray]:
    """Measures of all rows, then of each resample of them; NaN of what a table has not."""
    n = len(gaps.table)
    rng = np.random.default_rng(0)  # the same resamples for all models
    times = np.vstack([np.ones(n), rng.multinomial(n, np.full(n, 1 / n), N_RESAMPLES)])
    first = tables[0]
    numbers, categories = gaps.hidden_of(gaps.numbers), gaps.hidden_of(gaps.categories)
    truth = gaps.table[gaps.numbers]
    square = ((first[gaps.numbers] - truth) / truth.std(ddof=0)).to_numpy() ** 2
    pairs = [(first[c].astype(object), gaps.table[c].astype(object)) for c in gaps.categories]
    other = np.stack([filled != true for filled, true in pairs] or [[]], axis=-1)
    rmse, wrong = np.sqrt(_mean(times, square, numbers)), _mean(times, other, categories)
    inside = np.full(numbers.shape, np.nan)
    if len(tables) > 1:
        drawn = np.stack([table[gaps.numbers].to_numpy() for table in tables])
        inside = ((drawn.min(0) <= truth) & (truth <= drawn.max(0))).to_numpy()
    return {"rmse": rmse, "wrong": wrong, "coverage": _mean(times, inside, numbers)}


def _mean(times: np.ndarray, values: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """The mean over hidden cells, of rows that are there so many times: (n_resamples,)."""
    if not hidden.any():
        return np.full(len(times), np.nan)
    sums = times @ np.where(hidden, values, 0.0).sum(axis=1)
    with np.errstate(invalid="ignore"):  # of few rows some resamples have no hidden cell
        mean: np.ndarray = sums / (times @ hidden.sum(axis=1))
    return mean


def _run(data: str, seed: int, most: int, home: str | None, quick: bool) -> list[Row]:
    table, _, _ = read_rows(data, home)
    with warnings.catch_warnings(action="ignore"):
        return measure(hide(table, seed, most, quick=quick))


def _jobs(arguments: Arguments) -> Iterator[Job]:
    names, home = wanted(arguments)
    quick = arguments.quick
    most = 200 if quick else arguments.rows
    for data, seed in product(names, range(1 if quick else arguments.seeds)):
        rows = [dict(zip(SETTINGS, (data, seed, model, most), strict=True)) for model in MODELS]
        yield Job(rows, partial(_run, data, seed, most, home, quick))


# ---- the page ----------------------------------------------------------------------------------


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """A row a model: geometric means over tables, and on how many ours is surely better or worse.

    Each table counts once, by the means over its seeds.
    """
    keys = ["model", "data"]
    table = rows.groupby(keys, sort=False)[[*RESULTS[3:]]].mean()
    found = {}
    for name in ("rmse", "wrong"):
        ratio, low, high = (table[f"{name}_ratio{end}"] for end in ENDS)
        told = ratio.notna()
        found[WORDS[f"{name}_ratio"]] = np.exp(np.log(ratio).groupby("model").mean())
        for word, sure in (("ours better", low > 1), ("ours worse", high < 1)):
            counts = sure[told].groupby("model").sum().astype(str)
            found[f"{WORDS.get(name, name)}, {word}"] = (
                counts + " of " + told.groupby("model").sum().astype(str)
            )
    found["coverage"] = table["coverage"].groupby("model").mean()
    return pd.DataFrame(found).reindex(rows["model"].unique())


def _write(page: Page, _: Arguments, rows: pd.DataFrame) -> None:
    page.text(
        f"Tables: {rows['data'].nunique()}, of at most {rows['rows'].max()} rows; seeds: "
        f"{rows['seed'].nunique()}."
    )
    found = summary(rows)
    page.table(["model", *found], lines(found, number))
    page.heading("By table")
    for data, own in rows.groupby("data", sort=False):
        n_rows, *n_cells = own[["n_rows", "n_numbers", "n_categories"]].iloc[0]
        table = own.groupby("model", sort=False)[[*RESULTS[3:]]].mean()
        shown = [name for name in MEASURES if table[name].notna().any()]
        cells = pd.DataFrame({n: with_ends(table, n) for n in shown}, index=table.index)
        cells["seconds"] = table["seconds"].map(number)
        hidden = f"{n_cells[0]} numbers and {n_cells[1]} categories hidden"
        with page.details(f"{data}: {n_rows} rows, {hidden}"):
            page.table(["model", *(WORDS.get(n, n) for n in cells)], lines(cells))


def with_ends(table: pd.DataFrame, name: str) -> list[str]:
    ends = table[[name, f"{name}_low", f"{name}_high"]].to_numpy()
    return ["—" if np.isnan(v) else f"{v:.3f} [{low:.3f}, {high:.3f}]" for v, low, high in ends]


ROWS = Experiment("quality_imputation", SETTINGS, RESULTS, _jobs)
TITLE = "Imputation of missing cells: errors, coverage and seconds"
OPTIONS = {"data": DATA, "rows": 3000, "seeds": 1}
STUDY = Study("benchmarks.quality.imputation", TITLE, __doc__, [ROWS], _write, OPTIONS)

if __name__ == "__main__":
    STUDY.main()
