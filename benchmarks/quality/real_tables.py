"""How much do dates and free text improve predictions, by our regressor and by boosting?

Three regression tables, each with a column of dates or of free text:

- rentals (simulated, like bike sharing): hourly counts with a trend, a season, rush hours on
  working days, temperature and noise; the test rows are the last quarter of the time;
- beijing (UCI's file): PM2.5 in Beijing at every seventh hour, 2010 to 2014; the test rows are the
  last quarter of the time;
- reviews (simulated): a text of about 20 words, a few of which are good or bad, a price and a kind;
  the target is the rating, the test rows are random.

"ours" is our regressor with its defaults; "without" has date_features=["number"] and
text_features="ignore" (the time is a number, text is left out); "no number" has the parts of a date
without the number. HistGradientBoosting is trained on the same columns as "without", as numbers and
categories, and also on the output of our TableEncoder; "skrub" is its tabular_pipeline with the
same boosting. R2 is on the test rows, with 95 % bootstrap intervals over them, which do not cover
other periods or training seeds; with several seeds, means. Seconds are of fit and predict, on a
machine that may have done other work.

    python -m benchmarks.quality.real_tables [--quick] [--data-home FOLDER] [--seeds 1]

beijing is read from --data-home (or COMBUTAB_DATA: beijing.csv.gz), and left out without it.
--quick trains for two epochs, on few rows.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline

from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.quality.tables import number
from combutab import MLPRegressor
from combutab.preprocessing import TableEncoder

N_RESAMPLES = 1000
SETTINGS = ("data", "seed", "model")
RESULTS = ("n_train", "n_test", "r2", "r2_low", "r2_high", "seconds")
Split = tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]  # X, y, training and test rows

# ---- the tables ----------------------------------------------------------------------------------


def rentals(seed: int, home: Path, quick: bool) -> Split:
    """Made-up counts of 208 days by the hour; (X, y, train, test)."""
    rng, n = np.random.default_rng(seed), 300 if quick else 5_000
    times = pd.Series(pd.date_range("2022-01-01", periods=n, freq="h"))
    hour, day = times.dt.hour, times.dt.dayofyear
    rush = np.exp(-((hour - 8) ** 2) / 4) + 1.2 * np.exp(-((hour - 17.5) ** 2) / 6)
    leisure = 0.9 * np.exp(-((hour - 14) ** 2) / 18)
    season = np.cos(2 * np.pi * (day - 190) / 365)
    warmth = 12 + 10 * season + 4 * np.sin(2 * np.pi * (hour - 9) / 24) + rng.normal(0, 3, n)
    level = 120 * (1 + 0.4 * np.arange(n) / n) * (1 + 0.2 * season)
    shape = 0.15 + np.where(times.dt.dayofweek < 5, rush, leisure)
    y = level * shape * (1 + 0.015 * (warmth - 12)) * rng.lognormal(0, 0.15, n)
    return pd.DataFrame({"time": times, "temperature": warmth}), y.to_numpy(), *_in_time(n)


def beijing(seed: int, home: Path, quick: bool) -> Split:
    """Every seventh hour of the air of Beijing; (X, y, train, test)."""
    table = pd.read_csv(home / "beijing.csv.gz").dropna()
    table.insert(0, "time", pd.to_datetime(table[["year", "month", "day", "hour"]]))
    table = table.sort_values("time")[:: 100 if quick else 7].reset_index(drop=True)
    y = table["pm2.5"].to_numpy(dtype=np.float64)
    X = table[["time", "DEWP", "TEMP", "PRES", "Iws", "Is", "Ir", "cbwd"]]
    return X, y, *_in_time(len(X))


GOOD = "great lovely excellent perfect comfortable sturdy beautiful reliable quick fantastic"
BAD = "terrible broken cheap awful flimsy disappointing slow useless defective poor"
OTHERS = (
    "the this it was we bought ordered box product colour size table chair lamp arrived delivery "
    "yesterday for our kitchen office with a and but very really quite again"
)


def reviews(seed: int, home: Path, quick: bool) -> Split:
    """Made-up reviews and their ratings; (X, y, train, test)."""
    rng, n = np.random.default_rng(seed), 300 if quick else 2_000
    good, bad, others = (words.split() for words in (GOOD, BAD, OTHERS))
    quality, price = rng.normal(size=n), rng.gamma(4, 20, n)
    texts = []
    for each in quality:
        words = [*rng.choice(others, rng.integers(8, 24))]
        for praised in rng.random(rng.integers(2, 6)) < 1 / (1 + np.exp(-2 * each)):
            words.insert(rng.integers(len(words) + 1), rng.choice(good if praised else bad))
        texts.append(" ".join(words))
    kind = rng.choice(["chair", "lamp", "table"], n)
    y = np.clip(np.round(3 + 1.2 * quality + 0.004 * (price - 80) + rng.normal(0, 0.3, n)), 1, 5)
    order = rng.permutation(n)
    X = pd.DataFrame({"review": texts, "price": price, "kind": kind})
    return X, y, order[: 3 * n // 4], order[3 * n // 4 :]


def _in_time(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(3 * n // 4), np.arange(3 * n // 4, n)


TABLES = {"rentals": rentals, "beijing": beijing, "reviews": reviews}

# ---- the models ----------------------------------------------------------------------------------

WITHOUT: dict[str, Any] = {"date_features": ["number"], "text_features": "ignore"}
NO_TREND = {"date_features": ["hour", "dayofweek", "dayofyear"]}


def _ours(seed: int, quick: bool, **parameters: Any) -> Any:
    short = {"max_iter": 2, "n_iter_no_change": np.inf} if quick else {}
    return MLPRegressor(random_state=seed, **short, **parameters)


def _plain(X: pd.DataFrame) -> pd.DataFrame:
    """Dates as numbers, categories as such, and no text."""
    X = X.drop(columns=["review"], errors="ignore")
    dates = X.select_dtypes("datetime").columns
    X = X.assign(**{name: X[name].astype("int64") / 1e9 for name in dates})
    return X.assign(**{n: X[n].astype("category") for n in X if X[n].dtype.kind not in "if"})


def _boosting(seed: int, quick: bool) -> Any:
    few = {"max_iter": 5} if quick else {}
    return HistGradientBoostingRegressor(random_state=seed, **few)


def _skrub(seed: int, quick: bool) -> Any:
    from skrub import tabular_pipeline

    return tabular_pipeline(_boosting(seed, quick))


def _encoded(seed: int, quick: bool) -> Any:
    return make_pipeline(TableEncoder(), _boosting(seed, quick))


MODELS: dict[str, Callable[[int, bool], Any]] = {
    "ours": _ours,
    "ours, without": partial(_ours, **WITHOUT),
    "ours, no number": partial(_ours, **NO_TREND),
    "HistGradientBoosting": _boosting,
    "our encoder, HistGradientBoosting": _encoded,
    "skrub, HistGradientBoosting": _skrub,
}


def measure(split: Split, model: str, seed: int, *, quick: bool = False) -> Row:
    """Fit a model to the training rows, and score it on the others."""
    X, y, train, test = split
    X, started = _plain(X) if model == "HistGradientBoosting" else X, time.perf_counter()
    fitted = MODELS[model](seed, quick).fit(X.iloc[train], y[train])
    truth, predicted = y[test], fitted.predict(X.iloc[test])
    seconds = time.perf_counter() - started
    rng = np.random.default_rng(0)
    draws = (rng.integers(len(test), size=len(test)) for _ in range(20 if quick else N_RESAMPLES))
    scores = [r2_score(truth[draw], predicted[draw]) for draw in draws]
    ends = (r2_score(truth, predicted), *np.quantile(scores, [0.025, 0.975]))
    return dict(zip(RESULTS, (len(train), len(test), *ends, seconds), strict=True))


def _run(data: str, seed: int, model: str, home: Path, quick: bool) -> list[Row]:
    with warnings.catch_warnings(action="ignore"):
        return [measure(TABLES[data](seed, home, quick), model, seed, quick=quick)]


def _jobs(arguments: Arguments) -> Iterator[Job]:
    home = Path(arguments.data_home or os.environ.get("COMBUTAB_DATA") or ".")
    left_out = {("ours, no number", "reviews")}
    if not (home / "beijing.csv.gz").is_file():
        left_out |= {(model, "beijing") for model in MODELS}
    if not find_spec("skrub"):
        left_out |= {("skrub, HistGradientBoosting", data) for data in TABLES}
    seeds = range(1 if arguments.quick else arguments.seeds)
    for data, seed, model in product(TABLES, seeds, MODELS):
        if (model, data) not in left_out:
            wanted = [{"data": data, "seed": seed, "model": model}]
            run = partial(_run, data, seed, model, home, arguments.quick)
            yield Job(wanted, run)


# ---- the page ------------------------------------------------------------------------------------


def _write(page: Page, _: Arguments, rows: pd.DataFrame) -> None:
    if not (rows["model"].str.startswith("skrub")).any():
        page.text("Not run: skrub, which is not installed.")
    for data, own in rows.groupby("data", sort=False):
        page.heading(f"{data}: {own['n_train'].iloc[0]} training rows")
        means = own.groupby("model", sort=False)[list(RESULTS[2:])].mean()
        told = [
            [str(model), f"{r2:.3f} [{low:.3f}, {high:.3f}]", number(seconds)]
            for model, r2, low, high, seconds in means.itertuples()
        ]
        page.table(["model", "R2", "seconds"], told)


ROWS = Experiment("quality_real_tables", SETTINGS, RESULTS, _jobs)
TITLE = "Dates and free text: R2 with and without them"
STUDY = Study("benchmarks.quality.real_tables", TITLE, __doc__, [ROWS], _write, {"seeds": 1})

if __name__ == "__main__":
    STUDY.main()
