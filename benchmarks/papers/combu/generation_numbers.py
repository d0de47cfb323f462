"""The numbers of Table 7's report: cells over generator seeds, and the paper's beside them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.papers.combu.expected import METRICS, Table
from benchmarks.papers.combu.generation import REAL
from benchmarks.papers.combu.report_numbers import (
    compare_with_paper,
    make_cells,
    order_activations,
    sort_cells,
)

TITLE = "Table 7 of the CombU paper: generation"
TABLE = Table("table7_generation", TITLE, {"california_housing": "CH", "PhishingWebsites": "PW"})
MODELS = {"ctgan": "CTGAN", "tvae": "TVAE"}
LABELS = {
    **{model: f"{name}, ours" for model, name in MODELS.items()},
    **{f"{model}-patched": f"{name}, package patched" for model, name in MODELS.items()},
}


def generation_cells(rows: pd.DataFrame, learner: str) -> pd.DataFrame:
    """Means and standard deviations over generator seeds, the samples of each averaged first.

    The columns of `make_cells`, ``learner``, ``model``, and ``sd_samples``: the standard deviation
    of the samples of one generator, its root mean square over the seeds, as the paper's is.
    """
    # a generator's seed is the unit, as a split is in the other studies, and samples repeat in it
    fits = rows.assign(protocol=rows["model"], split=rows["seed"], seed=rows["sample"])
    cells = make_cells(fits)
    within = []
    for cell in cells.itertuples():
        own = fits[
            (fits["model"] == cell.protocol)
            & (fits["data"] == cell.data)
            & (fits["activation"] == cell.activation)
        ]
        scores = METRICS[cell.metric].scale * own[cell.metric].astype(np.float64)
        within.append(np.sqrt(scores.groupby(own["split"]).var().mean()))
    cells = cells.assign(sd_samples=within, learner=learner)
    return sort_cells(cells, TABLE).rename(columns={"protocol": "model"})


def beside_paper(cells: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """The paper's number beside each cell, the patched package's too; the real rows have theirs."""
    parts = []
    for (learner, model), part in cells.groupby(["learner", "model"], sort=False):
        base = str(model).removesuffix("-patched")
        paper = expected[expected["model"] == base]
        if model == REAL:  # printed once for both models
            paper = expected[expected["activation"] == REAL].dropna(subset=["mean"])
        named = part.assign(protocol=f"{learner} {model}").drop(columns=["learner", "model"])
        compared = compare_with_paper(named[["protocol", *named.columns.drop("protocol")]], paper)
        compared.insert(0, "model", model)
        compared.insert(0, "learner", learner)
        parts.append(compared)
    return pd.concat(parts, ignore_index=True)


def seed_scores(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Seeds x activations in the paper's units, samples averaged; whole seeds alone.

    ``rows`` are one data set's and model's. Activations with a failed run are left out.
    """
    failed = set(rows.loc[rows["error"] != "", "activation"])
    rows = rows[~rows["activation"].isin(failed)]
    scores = METRICS[metric].scale * rows[metric].astype(np.float64)
    means = scores.groupby([rows["seed"], rows["activation"]]).mean().unstack()
    return means[order_activations(means.columns)].dropna()
