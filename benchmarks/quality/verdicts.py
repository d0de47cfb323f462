"""How often is the privacy verdict of a report right?

Real tables are drawn from two simulated laws: customers (whole numbers, amounts and categories, so
that rows are often nearly equal) and sensors (five correlated numbers and a category). A table has
n training rows and n / 4 held-out rows, and is compared with n synthetic rows of a known kind:

- safe: new rows of the law; the same with each column in random order (independent columns); rows
  of a small TabFlow that is trained on the training rows for about 160 steps;
- unsafe: a bootstrap sample of the training rows; new rows of which 5 % are replaced by training
  rows; training rows with noise (1 % of the standard deviation of each number), with one changed
  category (flipped labels), or with new identifiers of 64 bits; training rows whose numbers are
  moved towards those of the nearest training row by a random share (SMOTE).

An alarm is the level "poor" or "fair". The target values: alarms for at most 5 % of the safe
tables, and for at least 95 % of the unsafe ones. Brackets hold 95 % Clopper-Pearson intervals.

    python -m benchmarks.quality.verdicts [--quick] [--tables 10] [--sizes 100 300 1000 3000 10000]
        [--kinds NAME ...]
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from sklearn.neighbors import NearestNeighbors

from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from combutab import TabFlow
from combutab.reports import evaluate_synthetic

SAFE = ("new rows", "independent columns", "TabFlow")
COPIES = "5 % copies"
UNSAFE = (COPIES, "bootstrap", "noise", "flipped labels", "new identifiers", "SMOTE")
SIZES = (100, 300, 1000, 3000, 10_000)
MOST_ALARMS, LEAST_CAUGHT = 0.05, 0.95
SETTINGS = ("kind", "size", "seed")
RESULTS = ("level", "sentence")


# ---- real tables, and synthetic ones of a known kind ---------------------------------------------


def draw_customers(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw rows of whole numbers, amounts and categories."""
    age, plan = rng.integers(18, 90, n), rng.choice(list("ABCD"), n, p=[0.5, 0.3, 0.15, 0.05])
    income = (rng.lognormal(10, 0.5, n) * (1 + (plan == "A"))).round(-2)
    score = age / 30 + 1.5 * (plan == "A") + np.log(income) - 10 + rng.normal(0, 0.7, n)
    return pd.DataFrame(
        {
            "age": age,
            "plan": plan,
            "income": income,
            "visits": rng.poisson(3 + 4 * (plan == "B")),
            "city": rng.choice([f"c{i}" for i in range(12)], n),
            "label": np.where(score > 2.2, "yes", "no"),
        }
    )


def draw_sensors(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw rows of correlated numbers and a category."""
    common = rng.normal(size=(n, 1))
    numbers = 0.7 * common + rng.normal(size=(n, 5)) * [0.5, 0.7, 1, 1, 1]
    table = pd.DataFrame(numbers, columns=list("vwxyz")).round(3)
    label = np.where(numbers[:, 0] + rng.normal(size=n) > 0, "yes", "no")
    return table.assign(label=label)


def make_tables(kind: str, size: int, seed: int) -> tuple[pd.DataFrame, ...]:
    """Make training rows, held-out rows and synthetic rows of a kind."""
    rng = np.random.default_rng([seed, size])
    draw = (draw_customers, draw_sensors)[seed % 2]
    train, test, new = draw(size, rng), draw(size // 4, rng), draw(size, rng)
    numbers = list(train.select_dtypes("number"))
    if kind == "independent columns":
        new = pd.DataFrame({name: rng.permutation(new[name]) for name in new})
    elif kind == "TabFlow":
        epochs = max(2, 10_000 // size)
        model = TabFlow(hidden_layer_sizes=(64,), epochs=epochs, batch_size=64, random_state=seed)
        new = model.fit(train).sample(size, random_state=seed)
    elif kind == COPIES:
        n_copies = size // 20
        new = pd.concat([train.sample(n_copies, random_state=seed), new[n_copies:]])
    elif kind == "bootstrap":
        new = train.sample(size, replace=True, random_state=seed)
    elif kind == "noise":
        noise = rng.normal(size=(size, len(numbers))) * 0.01 * train[numbers].std().to_numpy()
        new = train.assign(**(train[numbers] + noise))
    elif kind == "SMOTE":
        scaled = train[numbers] / train[numbers].std()
        nearest = NearestNeighbors(n_neighbors=1).fit(scaled).kneighbors()[1][:, 0]
        steps = rng.random((size, 1)) * (train[numbers].to_numpy()[nearest] - train[numbers])
        new = train.assign(**(train[numbers] + steps))
    elif kind == "flipped labels":
        new = train.assign(label=train["label"].map({"yes": "no", "no": "yes"}))
    elif kind == "new identifiers":
        train, test, new = (
            table.assign(ref=10**18 + rng.choice(10**17, len(table), replace=False))
            for table in (train, test, train)
        )
    return train, test, new.reset_index(drop=True)


def measure(kind: str, size: int, seed: int) -> list[Row]:
    """The privacy verdict on one table."""
    with warnings.catch_warnings(action="ignore"):
        train, test, synthetic = make_tables(kind, size, seed)
        report = evaluate_synthetic(real_train=train, real_test=test, synthetic=synthetic)
    finding = report.findings[2]
    return [{"level": finding.level, "sentence": finding.sentence}]


def _jobs(arguments: Arguments) -> Iterator[Job]:
    quick = arguments.quick
    sizes = (100,) if quick else arguments.sizes
    for size, kind, seed in product(
        sizes, arguments.kinds, range(2 if quick else arguments.tables)
    ):
        settings = dict(zip(SETTINGS, (kind, size, seed), strict=True))
        yield Job([settings], partial(measure, kind, size, seed))


# ---- the page ------------------------------------------------------------------------------------


def alarms(rows: pd.DataFrame, *, levels: tuple[str, ...] = ("poor", "fair")) -> str:
    """The share of alarms in percent, with its interval, and the number of tables."""
    n_alarms = int(rows["level"].isin(levels).sum())
    interval = binomtest(n_alarms, len(rows)).proportion_ci()
    low, high = 100 * interval.low, 100 * interval.high
    return f"{100 * n_alarms / len(rows):.0f} [{low:.0f}, {high:.0f}] of {len(rows)}"


def write(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    """Fill the page."""
    sizes = sorted(rows["size"].unique())
    page.text("Alarms in percent of the tables, by rows of the training table.")
    lines = []
    for kind in [kind for kind in (*SAFE, *UNSAFE) if kind in set(rows["kind"])]:
        tables = rows[rows["kind"] == kind]
        cells = [
            alarms(tables[tables["size"] == n]) if n in set(tables["size"]) else "" for n in sizes
        ]
        lines.append((kind, *cells, alarms(tables), alarms(tables, levels=("poor",))))
    page.table(("kind", *sizes, "all", "poor alone"), lines)


ROWS = Experiment("quality_verdicts", SETTINGS, RESULTS, _jobs)
TITLE = "Privacy verdicts on tables of known kinds"
OPTIONS = {
    "tables": 10,
    "sizes": {"type": int, "nargs": "+", "default": [*SIZES]},
    "kinds": (*SAFE, *UNSAFE),
}
STUDY = Study("benchmarks.quality.verdicts", TITLE, __doc__, [ROWS], write, OPTIONS)

if __name__ == "__main__":
    STUDY.main()
