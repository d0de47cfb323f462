"""The numbers that README.md, the docs and benchmarks/README.md quote, computed from stored rows.

    python -m benchmarks.headlines

writes HEADLINES.md, a section for each quoted number: all sizes or tables that were measured, the
peers on the same ones, and bars that are met or missed. Nothing is trained or timed.
`tests/benchmarks/test_headlines.py` computes the scores independently, and compares the quoted
numbers with the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.common import Page
from benchmarks.quality import diffusion_sets, generators, imputation, predictions, private
from benchmarks.quality.tables import known_names, lines, number
from benchmarks.speed.scaling import exponents

FOLDER = Path(__file__).parent
Table = tuple[str, pd.DataFrame]  # what it shows, and the cells
TABFLOW = "combutab TabFlow"
SIZES, USUAL = (500, 3000, 10_000), 3000  # of training rows, at most
BEHIND = 1.1
TABLE_BYTES = 20 * 4  # of a row of the study of growth


def stored(study: str, name: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / study / "results" / f"{name}.csv.gz")


def _predictions() -> Iterator[Table]:
    """Test errors with default settings: `PackClassifier`, `MLPClassifier` and peers.

    Error and log loss are ratios to the best of four peers on each table: geometric means over
    tables with 95 % bootstrap intervals over tables; lower is better. The defaults were chosen on
    these tables, so expect larger errors on others. scikit-learn's MLP does not scale the target of
    a regression, so a few tables with large targets dominate its mean; its median error shows the
    other tables. "classification" and "regression" are the error on these tables, "median error" is
    the median of its ratios, and ranks are by error. Seconds and MB are medians; seconds /
    RealMLP-TD is a geometric mean. At 3,000 rows the seconds of peers and packs are too high, since
    the machine did other work; this favours the seconds of our defaults. At 10,000 rows there are
    the tables with more than 3,000 training rows, and nothing was timed. "combutab" is
    `MLPClassifier` and `MLPRegressor`, "combutab Pack" `PackClassifier` and `PackRegressor`.
    """
    samples = {}
    rows = stored("quality", "quality_predictions")
    rows = rows[rows["rows"].isin(SIZES)]
    for size, every in rows.groupby("rows"):
        own, full = predictions.same_splits(every)
        first = own[own["model"].isin(full)]
        samples[f"{size} rows"] = predictions.ratios(first)
        n, n_splits = first["data"].nunique(), first["split"].nunique()
        splits = "one split" if n_splits == 1 else f"{n_splits} splits"
        yield f"At most {size} training rows, {n} tables, {splits}", predictions.summary(first)
    size, own = USUAL, predictions.same_splits(rows[rows["rows"] == USUAL])[0]
    few = own[own["data"].isin(known_names())]
    counts = few.groupby("model")["data"].nunique()
    few = few[few["model"].isin(counts.index[counts == counts.max()])]
    models = few.groupby(["data", "split"])["model"].transform("nunique")
    few = few[models == models.max()]  # splits that all of them have
    caption = f"At most {size} training rows, the CombU paper's 8 tables, more models"
    yield caption, predictions.summary(few)
    bars = predictions.bars(samples)
    judged = bars[list(samples)].stack()
    met, n = judged.str.contains(": met").sum(), (judged != "not judged").sum()
    yield f"Target values set for the means; they meet {met} of {n}", bars
    for each, every in rows.groupby("rows"):
        yield f"At most {each} rows, as ratios to our defaults", predictions.beside_defaults(every)
    limited = own.loc[own["model"] == "combutab Pack, 5 s", "data"]
    packs = own[own["data"].isin(limited) & own["model"].str.match("combutab( Pack.*)?$")]
    caption = f"Packs with a time limit, at most {size} rows, as ratios to our defaults"
    yield caption, predictions.beside_defaults(packs)
    errors = samples[f"{size} rows"]["error"].rename_axis("table")
    behind = errors[errors["combutab"] >= BEHIND].sort_values("combutab")
    best = behind[list(predictions.BEST_OF)].idxmin(axis=1)
    behind = behind[["combutab", "combutab Pack"]].assign(**{"best peer": best})
    caption = "Tables on which our error is at least 10 % above the best peer's"
    yield f"{caption}, at most {size} rows", behind


def _fit() -> Iterator[Table]:
    """Seconds of a fit of the same network, compared with scikit-learn's MLP and skorch.

    Above 1 ours is faster. "614 x 8, 3 x 128" means 614 rows, 8 columns, 3 layers of 128 units.
    """
    found = stored("speed", "speed_fit").set_index("size")
    yield "Seconds as ratios to ours, by rows x columns and network", found.filter(like=" / ours").T


def _step() -> Iterator[Table]:
    """A training step (6 x 256 units, batch 500): its time as a multiple of its matrix products'.

    Target values are upper limits; "peak MiB" is the memory of the step.
    """
    found = stored("speed", "speed_step").set_index("contender")
    found = found[found["target"].notna() | found.index.str.startswith("torch")]
    for dropout, own in found.groupby("dropout"):
        own = own[["ratio", "target", "peak_mb"]].set_axis(
            ["ratio", "target value", "peak MiB"], axis=1
        )
        most = own["target value"]
        met = np.where(most.isna(), "", np.where(own["ratio"] <= most, "met", "missed"))
        yield f"Dropout {dropout:g}", own.assign(met=met)


def _predict() -> Iterator[Table]:
    """Seconds of `predict` for one row and for a million, compared with scikit-learn's MLP.

    "scikit-learn, array / this" is above 1 where this model is faster than scikit-learn on an
    array. "3 x 128" means 3 layers of 128 units.
    """
    found = stored("speed", "speed_predict")
    found["seconds"] = found["seconds"].map("{:.3g}".format)
    for network, own in found.groupby("network"):
        yield f"{network}", own.drop(columns="network").set_index("model")


def _search() -> Iterator[Table]:
    """A search over 7 activations and 5 folds: seconds as ratios to ours.

    `first` includes the start of processes; `again` is a second search in the same processes.
    """
    for data, own in stored("speed", "speed_search").groupby("data"):
        yield f"{data}", own.set_index("search")[["first / ours", "again / ours"]]


def _imports() -> Iterator[Table]:
    """`import combutab` and a first fit, in seconds; the last three lines are ratios.

    "Of what it needs": divided by the import of torch, scikit-learn and pandas.
    """
    yield "By statement", stored("speed", "speed_import").set_index("statement")


def _generator_seconds() -> Iterator[Table]:
    """An epoch of CTGAN and TVAE in the `ctgan` package: seconds as ratios to ours.

    "before" are the seconds of a fit before its first epoch (preprocessing).
    """
    found = stored("speed", "speed_generators").set_index("data")
    yield "On two real tables", found.filter(like=": ctgan / ours").T
    found = stored("speed", "speed_generators_growth").drop(columns=["Unnamed: 0", "n_columns"])
    keys = ["grows", "model", "n_rows", "n_categories"]
    wide = found.pivot(index=keys, columns="package", values=["before, s", "epoch, s", "note"])
    wide.columns = [" ".join(each) for each in wide]
    wide["epoch, ctgan / ours"] = wide["epoch, s ctgan"] / wide["epoch, s combutab"]
    wide = wide.drop(columns="note combutab").reset_index().set_index("model")
    yield "On simulated tables, by rows and categories", wide


def _growth() -> Iterator[Table]:
    """A fit of 20 float32 columns by rows, and scaling exponents (1 is linear)."""
    found = stored("speed", "scaling")
    rows = found[found["dimension"].isin(["rows", "streamed"])].set_index("dimension")
    rows = rows.iloc[:, :3].assign(tables=rows["megabytes"] * 1e6 / (rows["size"] * TABLE_BYTES))
    rows = rows.rename(columns={"tables": "memory / the table's"})
    yield "One epoch; streamed: from Parquet files", rows
    yield "Exponents, over the upper half of the range", exponents(found)


def _synthetic() -> Iterator[Table]:
    """Synthetic rows: utility, fidelity and cost, compared with other generators.

    The gap is the increase of a learner's test error (MAE, or 1 - accuracy) if it is trained on
    synthetic instead of real rows. Gaps and seconds of the fit are ratios to our TVAE's; lower is
    better. c2st is the ROC AUC of a classifier between real and synthetic rows: 0.5 is best.
    "closest" is the share of rows that are nearer to a training row than to a test row (copies have
    about 0.62), "shapes" and "pairs" are similarities of columns and pairs of columns: 1 is best.
    [All measures](quality/results/quality_generators.md). Up to three seeds, one split.
    """
    rows = stored("quality", "quality_generators")
    rows = rows[rows["error"].isna()]
    large = rows[rows["n_train"] >= generators.ENOUGH_ROWS]
    for own in (rows, large):
        names = ", ".join(dict.fromkeys(own["data"]))
        yield f"Means over {own['data'].nunique()} tables: {names}", generators.summary(own)
    found = {}
    for model in dict.fromkeys(large["model"]):
        same = large[large["data"].isin(large.loc[large["model"] == model, "data"])]
        both = generators.summary(same)[["gap / TVAE, boosting", "c2st"]]
        found[model] = [same["data"].nunique(), *both.loc[model], *both.loc[TABFLOW]]
    columns = ["tables", "gap", "C2ST", "gap of TabFlow", "C2ST of TabFlow"]
    yield (
        "TabFlow on the tables of each generator, at least 1,000 training rows",
        (pd.DataFrame.from_dict(found, orient="index", columns=columns)),
    )


def _private() -> Iterator[Table]:
    """Synthetic rows with differential privacy, compared with dpmm's models, by epsilon.

    "pairs" is the mean total variation distance of all two-way marginals from the training rows (0
    is best), "boosting" the ROC AUC or R2 of gradient boosting that is trained on synthetic rows.
    Fits with six columns have 5,000 training rows, those with all columns at most 10,000. [All
    measures](quality/results/quality_private.md).
    """
    rows = stored("quality", "quality_private").astype({"epsilon": str})
    rows = rows[rows["error"].isna()]
    yield "Means over tables, in the runs that both have", private.beside_peers(rows)
    yield "Without privacy", private.without_privacy(rows)


def _diffusion() -> Iterator[Table]:
    """XGB C2ST on the tables of the diffusion literature.

    This is SDMetrics' score: 1 is best (indistinguishable from training rows), unlike the ROC AUC
    above, of which 0.5 is best. Ours are means over up to three seeds; published ones are means
    over five seeds by TabPC's authors (arXiv 2603.23016).
    """
    ours = stored("quality", "quality_diffusion_sets")
    found = pd.concat([ours, diffusion_sets.published()])
    wide = found.pivot_table("xgb_c2st", "model", "data", sort=False)
    yield f"By table; TabFlow has run on {ours['data'].nunique()} of {wide.shape[1]}", wide


def _imputation() -> Iterator[Table]:
    """Imputation of missing cells: errors as ratios to TabFlowImputer's, and seconds.

    Above 1 ours is better. Brackets are 95 % bootstrap intervals over rows. "wrong" is the share of
    categories that differ from the true ones.
    """
    found = stored("quality", "quality_imputation")
    n, most = found["data"].nunique(), found["rows"].max()
    yield f"Means over {n} tables of at most {most:,} rows", imputation.summary(found)
    shown = ["rmse_ratio", "wrong_ratio"]
    for data, own in found.groupby("data", sort=False):
        own = own.set_index("model")
        cells = {imputation.WORDS[n]: imputation.with_ends(own, n) for n in shown}
        yield f"{data}", pd.DataFrame(cells, own.index).assign(seconds=own["seconds"])


def _real_tables() -> Iterator[Table]:
    """Dates and free text: R2 on the test rows, one seed."""
    found = stored("quality", "quality_real_tables")
    wide = found.pivot(index="model", columns="data", values="r2")
    yield "By table", wide
    yield "Seconds", found.pivot(index="model", columns="data", values="seconds")


def _laws() -> Iterator[Table]:
    """AI Feynman equations learned to R2 > 0.999, in interpolation and extrapolation ("outside").

    "default there" is the default network on the same equations as the model. At 2,000 rows these
    are a subset, spread evenly over all equations, whose size depends on the model.
    """
    found = stored("formulas", "formulas_share")
    found["learned, %"] = 100.0 * (found["r2"] > 0.999)
    found["outside, %"] = 100.0 * (found["r2_outside"] > 0.999)
    default = found[found["model"] == "default"].set_index(["equation", "rows", "noise"])
    found = found.join(default["learned, %"].rename("default there, %"), [*default.index.names])
    for (n_rows, noise), own in found.groupby(["rows", "noise"]):
        by_model = own.dropna(subset="default there, %").groupby("model", sort=False)
        shares = by_model[["learned, %", "default there, %", "outside, %"]].mean()
        shares.insert(0, "equations", by_model.size())
        yield f"{n_rows:,} rows, noise {noise:g}", shares


SECTIONS = {
    "Predictions": _predictions,
    "Seconds of a fit": _fit,
    "A training step": _step,
    "Seconds of predictions": _predict,
    "Seconds of a search": _search,
    "Seconds of the import": _imports,
    "Growth": _growth,
    "Seconds of generators": _generator_seconds,
    "Synthetic rows": _synthetic,
    "Private rows": _private,
    "Diffusion literature": _diffusion,
    "Missing cells": _imputation,
    "Dates and text": _real_tables,
    "Laws": _laws,
}


def page() -> Page:
    """Compute the page."""
    made = Page(
        "HEADLINES",
        "Headline numbers",
        "python -m benchmarks.headlines",
        "From the rows in `*/results/`. Their pages name the machine and the versions.",
    )
    for title, section in SECTIONS.items():
        made.heading(title)
        made.text(*(" ".join(each.split()) for each in str(section.__doc__).split("\n\n")))
        for caption, table in section():
            with made.details(caption):
                made.table([table.index.name or "", *table], lines(table.astype(object), number))
    return made


if __name__ == "__main__":
    page().write(FOLDER)
