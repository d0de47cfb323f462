"""How good are synthetic databases, compared with other packages' and with real rows?

Each model is trained on a parent and a child table (and, in one database, a second parent) with its
own defaults, in a separate process with one thread, and generates as many parents. Measures against
further real tables, which no model has seen:

- orphans: the share of children whose key no parent has; childless: the share of parents without
  children, and the real share;
- counts: 1 minus the Kolmogorov-Smirnov statistic of the number of children (KSComplement);
- C2ST of child rows, of parents with children (their number, the means of numbers and the number
  of different values of each category), and of siblings (also with the order, steps, changes and
  repetitions of the children): 1 - max(2 AUC - 1, 0) of gradient boosting by cross-validation, on
  at most 6,000 rows of each (`combutab.evaluation.compare_databases`). 1 means that the two are
  indistinguishable;
- CPU seconds of the fit and of sampling.

"real rows" are the training tables themselves. The databases:

- visits (simulated): patients and their visits, a sequence of dates with pressures that depend on
  the previous one and increase, and wards that are kept for some visits;
- orders (simulated): shops and their orders, which are in no order, from departments whose shares
  differ between shops, with a second key to staff, each with a speciality. A column is the exact
  product of two others, which is why all models have low scores for child rows;
- baseball (Lahman's database): players and their seasons by team and position.

PAR of SDV makes only sequences: its parents are the contexts of the sequences, so that it has no
parent without children, and no second key. TabularARGN of mostlyai-engine trains a model of each
table, the second one given the first.

    python -m benchmarks.quality.databases [--quick] [--data-home FOLDER] [--rows 1000]
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
from combutab.evaluation import AlignedDatabases, align_tables, compare_databases
from combutab.preprocessing import ForeignKey

SETTINGS = ("data", "seed", "model", "rows")
SCORES = ("orphans", "childless", "childless_real", "counts")
C2ST = {
    "c2st_children": "with children",
    "c2st_siblings": "with siblings",
    "c2st_child_rows": "rows",
}
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
    child, key, parent = database.keys[0]
    raw = {"real": database.train, "test": database.test, "synthetic": tables}
    columns, aligned = {column for _, column, _ in database.keys}, {}
    for name in (parent, child):
        cells = {
            role: part[name].drop(columns=columns, errors="ignore") for role, part in raw.items()
        }
        aligned[name] = align_tables(cells, reference="real")
    order_by = {} if database.order is None else {child: database.order}
    foreign_key = ForeignKey(child, (key,), parent, (key,))
    databases = AlignedDatabases(raw, aligned, [foreign_key], order_by)
    compared = compare_databases(databases, random_state=seed)
    compared = compared[compared["aspect"] != "trends"]
    values = compared.set_index(["table", "measure", "source"])["value"].to_dict()
    scores = {
        "orphans": values[parent, "orphans", "synthetic"],
        "childless": values[parent, "childless", "synthetic"],
        "childless_real": (databases.count_children("test", foreign_key) == 0).mean(),
        "counts": values[parent, "ks", "synthetic"],
    }
    for name, measure in C2ST.items():
        auc = values[child if measure == "rows" else parent, measure, "synthetic"]
        scores[name] = 1 - max(2 * auc - 1, 0)
    return {name: float(value) for name, value in scores.items()}


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
        page.heading(f"{data}: {n_rows:,} parents")
        means = summary(group)
        page.table(["model", *means], lines(means, number))
    add_failures(page, failed, SETTINGS)


PACKAGES = ("sdv", "mostlyai-engine", "cpu")
ROWS = Experiment("quality_databases", SETTINGS, RESULTS, _jobs, packages=PACKAGES)
OPTIONS = {"data": DATA, "rows": 1_000, "seeds": 1, "models": tuple(MODELS), "timeout": 1800.0}
TITLE = "Synthetic databases: families, sequences and cost"
STUDY = Study("benchmarks.quality.databases", TITLE, __doc__, [ROWS], _write, OPTIONS)

if __name__ == "__main__":
    STUDY.main()
