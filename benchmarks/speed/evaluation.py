"""How long does it take to judge a synthetic table?

Seconds of each evaluator on california_housing (a fifth of it held out, as many synthetic rows as
there are to learn from), of the whole evaluation with its page, whose size is told, and of
`privacy` on 100,000 rows x 20 columns of both kinds.

    python -m benchmarks.speed.evaluation [--quick] [--data-home FOLDER]
        [--out benchmarks/speed/results]

--quick takes small synthetic tables and needs no data set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks.speed.common import DATA_HOME, begin, wall, write
from combutab import TVAE
from combutab.datasets import load_openml
from combutab.evaluation import detection, fidelity, ml_efficacy, privacy
from combutab.reports import evaluate_synthetic, render_report

LEARNERS = ("linear", "decision_tree", "random_forest", "hist_gradient_boosting", "mlp")


def make_table(n_rows: int, n_columns: int, seed: int) -> pd.DataFrame:
    """Rows of as many numbers as categories, which hang together."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=n_rows)
    table = {}
    for j in range(n_columns):
        values = common + rng.normal(size=n_rows)
        table[f"c{j}"] = values if j % 2 else np.digitize(values, [-1.0, 0.0, 1.5]).astype(str)
    return pd.DataFrame(table)


def main() -> None:
    arguments = begin(__doc__, "small synthetic tables", data_home=DATA_HOME)
    if arguments.quick:
        table, target, n_large, epochs = make_table(300, 4, 0), "c1", 500, 1
    else:
        data = load_openml("california_housing", data_home=arguments.data_home)
        target, n_large, epochs = "median_house_value", 100_000, 20
        table = data.X.assign(**{target: data.y})
    train, test = train_test_split(table, test_size=0.2, random_state=0)
    generator = TVAE(epochs=epochs, argmax=False, random_state=0).fit(train)
    rows = generator.sample(len(train), random_state=0)
    roles = enumerate(("real_train", "holdout", "synthetic"))
    large = {role: make_table(n_large, 20, seed) for seed, role in roles}
    parts = {"real_train": train, "synthetic": rows, "real_test": test, "target": target}
    sources = {"synthetic": rows, "held-out": test}
    pages = []
    calls: dict[str, Callable[[], Any]] = {
        **{f"ml_efficacy, {n}": partial(ml_efficacy, **parts, learners=[n]) for n in LEARNERS},
        "fidelity": partial(fidelity, real=train, synthetic=sources),
        "detection": partial(detection, real=train, synthetic=sources),
        "privacy": partial(privacy, real_train=train, holdout=test, synthetic=rows),
        "evaluate_synthetic and its page": lambda: pages.append(
            render_report(evaluate_synthetic(**parts))
        ),
        f"privacy, {n_large} rows x 20 columns": partial(privacy, **large, n_jobs=2),
    }
    print(f"\n{len(train)} real, {len(rows)} synthetic, {len(test)} held-out rows")
    seconds = {}
    for name, call in calls.items():
        seconds[name] = wall(call)
        print(f"{name:48}{seconds[name]:9.2f} s", flush=True)
    size = len(pages[0].encode()) / 1024
    print(f"{'the page':48}{size:9.0f} KiB")
    found = pd.Series({**seconds, "page, KiB": size}, name="seconds").round(2)
    write(arguments.out, "speed_evaluation", found, index_label="what")


if __name__ == "__main__":
    main()
