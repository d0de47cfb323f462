"""How good are synthetic databases, compared with other packages' and with real rows?

Each model is trained on a parent and a child table (and, in one database, a second parent) with its
own defaults, in a separate process with one thread, and generates as many parents. Measures against
further real tables, which no model has seen:

- orphans: the share of children whose key no parent has; childless: the share of parents without
  children, beside the real one;
- counts: 1 less the Kolmogorov-Smirnov statistic of the number of children (KSComplement);
- C2ST of child rows, of parents with children (their number, the means of numbers and the number
  of different values of each category), and of siblings (the same, with the range of the order and
  the changes from one row to the next): 1 - max(2 AUC - 1, 0) of gradient boosting by
  cross-validation, on at most 5,000 rows of each. 1 means that the two are indistinguishable;
- CPU seconds of the fit and of sampling.

"real rows" are the training tables themselves. The databases:

- visits (simulated): patients and their visits, a sequence of dates with pressures that depend on
  the previous one and increase, and wards that are kept for some visits;
- orders (simulated): shops and their orders without an order, from departments whose shares differ
  from shop to shop, with a second key to staff, each with a speciality;
- baseball (Lahman's database): players and their seasons by team and position.

PAR of SDV makes only sequences: its parents are the contexts of the sequences, so that it has no
parent without children, and no second key. TabularARGN of mostlyai-engine trains a model of each
table, the second one given the first.

    python -m benchmarks.quality.databases [--quick] [--data-home FOLDER] [--rows 2000]
        [--models NAME ...] [--data NAME ...] [--timeout SECONDS]

baseball is read from FOLDER/relational (or that of COMBUTAB_DATA), and left out without it; it has
all of its 10,000 players with --rows 10000. Peers come with `pip install '.[bench]'`; one that is
not installed is left out. --quick trains for two epochs, on few rows.
"""

from __future__ import annotations

import os
import subprocess
import time
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.quality.database_peers import MODELS, installed
from benchmarks.quality.database_tables import DATABASES, Database, Tables
from benchmarks.quality.generators import add_failures
from benchmarks.quality.tables import DATA, lines, number
from benchmarks.speed.common import call_apart
from combutab.evaluation import detection

MAX_ROWS = 5_000  # of each table in a two-sample test
SETTINGS = ("data", "seed", "model", "rows")
SCORES = ("orphans", "childless", "childless_real", "counts")
C2ST = ("c2st_children", "c2st_siblings", "c2st_child_rows")
COSTS = ("fit_cpu_seconds", "sample_cpu_seconds")
RESULTS = ("n_parents", "n_children", *SCORES, *C2ST, *COSTS, "error")
WORDS = {
    "childless_real": "childless, real",
    "c2st_children": "C2ST with children",
    "c2st_siblings": "C2ST with siblings",
    "c2st_child_rows": "C2ST of child rows",
    "fit_cpu_seconds": "fit, CPU s",
    "sample_cpu_seconds": "sample, CPU s",
}


def measure(model: str, data: str, seed: int, rows: int, home: str | None, quick: bool) -> Row:
    """Train one model, and score its tables, in this process."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    database = DATABASES[data](rows, home)
    moments = [time.process_time()]
    sample = MODELS[model].fit(database, seed, quick)
    moments.append(time.process_time())
    tables = sample()
    moments.append(time.process_time())
    counts = {"n_parents": len(tables[database.parent]), "n_children": len(tables[database.child])}
    costs = dict(zip(COSTS, np.diff(moments).tolist(), strict=True))
    return counts | score(database, tables, seed) | costs


def score(database: Database, tables: Tables, seed: int) -> dict[str, float]:
    """Scores of a synthetic database against the test tables."""
    real = _with_families(database, database.test)
    synthetic = _with_families(database, tables)
    n_real, n = real["with children"]["n"], synthetic["with children"]["n"]
    key = tables[database.child][database.key]
    scores = {
        "orphans": 1 - key.isin(tables[database.parent][database.key]).mean(),
        "childless": (n == 0).mean(),
        "childless_real": (n_real == 0).mean(),
        "counts": 1 - _ks(n.to_numpy(), n_real.to_numpy()),
    }
    for name, (label, rows) in zip(C2ST, synthetic.items(), strict=True):
        size = min(len(rows), len(real[label]), MAX_ROWS)
        pair = [table.sample(size, random_state=seed) for table in (real[label], rows)]
        tested = detection(real=pair[0], synthetic=pair[1], learners="hist_gradient_boosting")
        scores[name] = 1 - max(2 * tested["mean"].item() - 1, 0)
    return {name: float(value) for name, value in scores.items()}


def _ks(x: np.ndarray, y: np.ndarray) -> float:
    """The Kolmogorov-Smirnov statistic."""
    values = np.union1d(x, y)
    shares = [np.searchsorted(np.sort(z), values, side="right") / len(z) for z in (x, y)]
    return float(np.abs(shares[0] - shares[1]).max())


def _with_families(database: Database, tables: Tables) -> Tables:
    """Parents with aggregated children, the same with changes between siblings, and child rows."""
    keys = {column for _, column, _ in database.keys}
    key, parents = database.key, tables[database.parent]
    children = tables[database.child].astype({key: object})
    cells = children.drop(columns=[name for name in children if name in keys])
    numbers, categories, dates = {}, {}, cells.select_dtypes("datetime")
    for name in cells:
        if pd.api.types.is_numeric_dtype(cells[name]) or name in dates:
            numbers[name] = _as_number(cells[name])
        else:
            categories[name] = cells[name]
    family = children[key]
    aggregated = pd.DataFrame({"n": family.value_counts()})
    for name, x in numbers.items():
        aggregated[f"mean {name}"] = x.groupby(family).mean()
    for name, x in categories.items():
        aggregated[f"values of {name}"] = x.groupby(family).nunique()
    siblings = aggregated.copy()
    if database.order is not None:
        x = numbers[database.order]
        siblings["first"], siblings["last"] = x.groupby(family).min(), x.groupby(family).max()
        order = pd.DataFrame({"family": family.astype(str), "x": x})
        by_family = order.sort_values(["family", "x"], kind="stable").index
        family = family[by_family]
    for name, x in numbers.items():
        change = x[family.index].groupby(family).diff().abs()
        siblings[f"change of {name}"] = change.groupby(family).mean()
    for name, x in categories.items():
        x = x[family.index].astype(object).fillna("")
        is_equal = (x == x.groupby(family).shift()).astype(float)
        siblings[f"repeats of {name}"] = is_equal.groupby(family).mean()
    of_parents = parents.drop(columns=key)
    by_parent = [
        pd.concat(
            [of_parents, table.reindex(parents[key].to_numpy()).set_axis(parents.index)], axis=1
        )
        for table in (aggregated, siblings)
    ]
    for table in by_parent:
        table["n"] = table["n"].fillna(0)
    return {"with children": by_parent[0], "siblings": by_parent[1], "child rows": cells}


def _as_number(column: pd.Series) -> pd.Series:
    """Numbers, or dates in days."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return (column - pd.Timestamp(0)) / pd.Timedelta(days=1)
    return column.astype(float)


def _run(timeout: float, quick: bool, *arguments: Any) -> list[Row]:
    function = "benchmarks.quality.databases:measure"
    try:
        return [call_apart(function, *arguments, quick, here=quick, timeout=timeout)]
    except subprocess.CalledProcessError as error:  # a peer's failure is a result
        last = [f"ended with status {error.returncode}", *error.stderr.splitlines()][-1]
        return [{"error": last[:200]}]
    except subprocess.TimeoutExpired:
        return [{"error": f"stopped after {timeout:g} seconds"}]


def _jobs(arguments: Arguments) -> Iterator[Job]:
    home = arguments.data_home or os.environ.get("COMBUTAB_DATA")
    names = arguments.data or [*DATABASES]
    if unknown := set(names) - {*DATABASES}:
        raise ValueError(f"--data: no database {sorted(unknown)}; there are {[*DATABASES]}")
    if not (Path(home or "") / "relational" / "players.csv.gz").is_file():
        print("skipped: baseball: there is no relational/players.csv.gz in --data-home", flush=True)
        names = [name for name in names if name != "baseball"]
    rows = 60 if arguments.quick else arguments.rows
    seeds = range(1 if arguments.quick else arguments.seeds)
    for data, seed, model in product(names, seeds, installed(arguments.models)):
        settings = dict(zip(SETTINGS, (data, seed, model, rows), strict=True))
        measured = (model, data, seed, rows, home)
        yield Job([settings], partial(_run, arguments.timeout, arguments.quick, *measured))


# ---- the page ------------------------------------------------------------------------------------


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds of each model, for the rows of one database."""
    columns = [*SCORES, *C2ST, *COSTS]
    return rows.groupby("model", sort=False)[columns].mean().rename(columns=WORDS)


def _write(page: Page, _: Arguments, rows: pd.DataFrame) -> None:
    is_failed = rows["error"].fillna("") != ""
    failed, rows = rows[is_failed], rows[~is_failed]
    missing = [model for model in MODELS if model not in set(rows["model"])]
    if missing:
        page.text(f"Not run: {', '.join(missing)}.")
    for (data, n_rows), group in rows.groupby(["data", "rows"], sort=False):
        n_children = group["n_children"].iloc[0]
        page.heading(f"{data}: {n_rows:,} parents, {n_children:,} children")
        means = summary(group)
        page.table(["model", *means], lines(means, number))
    add_failures(page, failed, SETTINGS)


PACKAGES = ("sdv", "mostlyai-engine", "cpu")
ROWS = Experiment("quality_databases", SETTINGS, RESULTS, _jobs, packages=PACKAGES)
OPTIONS = {"data": DATA, "rows": 2_000, "seeds": 1, "models": tuple(MODELS), "timeout": 1800.0}
TITLE = "Synthetic databases: families, sequences and cost"
STUDY = Study("benchmarks.quality.databases", TITLE, __doc__, [ROWS], _write, OPTIONS)

if __name__ == "__main__":
    STUDY.main()
