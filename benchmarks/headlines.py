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
from benchmarks.quality import (
    databases,
    diffusion_sets,
    generators,
    imputation,
    predictions,
    private,
)
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
    for size, size_rows in rows.groupby("rows"):
        shared_rows, complete_models = predictions.same_splits(size_rows)
        complete_rows = shared_rows[shared_rows["model"].isin(complete_models)]
        samples[f"{size} rows"] = predictions.ratios(complete_rows)
        n, n_splits = complete_rows["data"].nunique(), complete_rows["split"].nunique()
        splits = "one split" if n_splits == 1 else f"{n_splits} splits"
        yield (
            f"At most {size} training rows, {n} tables, {splits}",
            predictions.summary(complete_rows),
        )
    size, shared_rows = USUAL, predictions.same_splits(rows[rows["rows"] == USUAL])[0]
    paper_rows = shared_rows[shared_rows["data"].isin(known_names())]
    counts = paper_rows.groupby("model")["data"].nunique()
    paper_rows = paper_rows[paper_rows["model"].isin(counts.index[counts == counts.max()])]
    models = paper_rows.groupby(["data", "split"])["model"].transform("nunique")
    paper_rows = paper_rows[models == models.max()]  # splits that all of them have
    caption = f"At most {size} training rows, the CombU paper's 8 tables, more models"
    yield caption, predictions.summary(paper_rows)
    bars = predictions.bars(samples)
    judged = bars[list(samples)].stack()
    met, n = judged.str.contains(": met").sum(), (judged != "not judged").sum()
    yield f"Target values set for the means; they meet {met} of {n}", bars
    for n_rows, size_rows in rows.groupby("rows"):
        yield (
            f"At most {n_rows} rows, as ratios to our defaults",
            predictions.beside_defaults(size_rows),
        )
    limited = shared_rows.loc[shared_rows["model"] == "combutab Pack, 5 s", "data"]
    pack_rows = shared_rows[
        shared_rows["data"].isin(limited) & shared_rows["model"].str.match("combutab( Pack.*)?$")
    ]
    caption = f"Packs with a time limit, at most {size} rows, as ratios to our defaults"
    yield caption, predictions.beside_defaults(pack_rows)
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
    timings = stored("speed", "speed_fit").set_index("size")
    yield (
        "Seconds as ratios to ours, by rows x columns and network",
        timings.filter(like=" / ours").T,
    )


def _step() -> Iterator[Table]:
    """A training step (6 x 256 units, batch 500): its time as a multiple of its matrix products'.

    Target values are upper limits; "peak MiB" is the memory of the step.
    """
    timings = stored("speed", "speed_step").set_index("contender")
    timings = timings[timings["target"].notna() | timings.index.str.startswith("torch")]
    for dropout, steps in timings.groupby("dropout"):
        steps = steps[["ratio", "target", "peak_mb"]].set_axis(
            ["ratio", "target value", "peak MiB"], axis=1
        )
        targets = steps["target value"]
        met = np.where(targets.isna(), "", np.where(steps["ratio"] <= targets, "met", "missed"))
        yield f"Dropout {dropout:g}", steps.assign(met=met)


def _predict() -> Iterator[Table]:
    """Seconds of `predict` for one row and for a million, compared with scikit-learn's MLP.

    "scikit-learn, array / this" is above 1 where this model is faster than scikit-learn on an
    array. "3 x 128" means 3 layers of 128 units.
    """
    timings = stored("speed", "speed_predict")
    timings["seconds"] = timings["seconds"].map("{:.3g}".format)
    for network, network_times in timings.groupby("network"):
        yield f"{network}", network_times.drop(columns="network").set_index("model")


def _search() -> Iterator[Table]:
    """A search over 7 activations and 5 folds: seconds as ratios to ours.

    `first` includes the start of processes; `again` is a second search in the same processes.
    """
    for data, searches in stored("speed", "speed_search").groupby("data"):
        yield f"{data}", searches.set_index("search")[["first / ours", "again / ours"]]


def _imports() -> Iterator[Table]:
    """`import combutab` and a first fit, in seconds; the last three lines are ratios.

    "Of what it needs": divided by the import of torch, scikit-learn and pandas.
    """
    yield "By statement", stored("speed", "speed_import").set_index("statement")


def _generator_seconds() -> Iterator[Table]:
    """An epoch of CTGAN and TVAE in the `ctgan` package: seconds as ratios to ours.

    "before" are the seconds of a fit before its first epoch (preprocessing).
    """
    timings = stored("speed", "speed_generators").set_index("data")
    yield "On two real tables", timings.filter(like=": ctgan / ours").T
    timings = stored("speed", "speed_generators_growth").drop(columns=["Unnamed: 0", "n_columns"])
    keys = ["grows", "model", "n_rows", "n_categories"]
    wide = timings.pivot(index=keys, columns="package", values=["before, s", "epoch, s", "note"])
    wide.columns = [" ".join(parts) for parts in wide]
    wide["epoch, ctgan / ours"] = wide["epoch, s ctgan"] / wide["epoch, s combutab"]
    wide = wide.drop(columns="note combutab").reset_index().set_index("model")
    yield "On simulated tables, by rows and categories", wide


def _growth() -> Iterator[Table]:
    """A fit of 20 float32 columns by rows, and scaling exponents (1 is linear)."""
    points = stored("speed", "scaling")
    rows = points[points["dimension"].isin(["rows", "streamed"])].set_index("dimension")
    rows = rows.iloc[:, :3].assign(tables=rows["megabytes"] * 1e6 / (rows["size"] * TABLE_BYTES))
    rows = rows.rename(columns={"tables": "memory / the table's"})
    yield "One epoch; streamed: from Parquet files", rows
    yield "Exponents, over the upper half of the range", exponents(points)


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
    for table_rows in (rows, large):
        names = ", ".join(dict.fromkeys(table_rows["data"]))
        yield (
            f"Means over {table_rows['data'].nunique()} tables: {names}",
            generators.summary(table_rows),
        )
    comparisons = {}
    for model in dict.fromkeys(large["model"]):
        shared_rows = large[large["data"].isin(large.loc[large["model"] == model, "data"])]
        means = generators.summary(shared_rows)[["gap / TVAE, boosting", "c2st"]]
        comparisons[model] = [shared_rows["data"].nunique(), *means.loc[model], *means.loc[TABFLOW]]
    columns = ["tables", "gap", "C2ST", "gap of TabFlow", "C2ST of TabFlow"]
    yield (
        "TabFlow on the tables of each generator, at least 1,000 training rows",
        (pd.DataFrame.from_dict(comparisons, orient="index", columns=columns)),
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
    scores = pd.concat([ours, diffusion_sets.published()])
    wide = scores.pivot_table("xgb_c2st", "model", "data", sort=False)
    yield f"By table; TabFlow has run on {ours['data'].nunique()} of {wide.shape[1]}", wide


def _databases() -> Iterator[Table]:
    """Synthetic databases of parents and children, one seed.

    C2ST is 1 - max(2 AUC - 1, 0): 1 is best (indistinguishable from further real rows). [What was
    done](quality/results/quality_databases.md).
    """
    rows = stored("quality", "quality_databases")
    rows = rows[rows["error"].isna()]
    for (data, n_rows), group in rows.groupby(["data", "rows"], sort=False):
        yield f"{data}, {n_rows:,} parents", databases.summary(group)


def _imputation() -> Iterator[Table]:
    """Imputation of missing cells: errors as ratios to TabFlowImputer's, and seconds.

    Above 1 ours is better. Brackets are 95 % bootstrap intervals over rows. "wrong" is the share of
    categories that differ from the true ones.
    """
    scores = stored("quality", "quality_imputation")
    n, max_rows = scores["data"].nunique(), scores["rows"].max()
    yield f"Means over {n} tables of at most {max_rows:,} rows", imputation.summary(scores)
    measures = ["rmse_ratio", "wrong_ratio"]
    for data, data_scores in scores.groupby("data", sort=False):
        data_scores = data_scores.set_index("model")
        cells = {imputation.WORDS[n]: imputation.with_ends(data_scores, n) for n in measures}
        yield (
            f"{data}",
            pd.DataFrame(cells, data_scores.index).assign(seconds=data_scores["seconds"]),
        )


def _real_tables() -> Iterator[Table]:
    """Dates and free text: R2 on the test rows, one seed."""
    scores = stored("quality", "quality_real_tables")
    wide = scores.pivot(index="model", columns="data", values="r2")
    yield "By table", wide
    yield "Seconds", scores.pivot(index="model", columns="data", values="seconds")


def _laws() -> Iterator[Table]:
    """AI Feynman equations learned to R2 > 0.999, in interpolation and extrapolation ("outside").

    "default there" is the default network on the same equations as the model. At 2,000 rows these
    are a subset, spread evenly over all equations, whose size depends on the model.
    """
    scores = stored("formulas", "formulas_share")
    scores["learned, %"] = 100.0 * (scores["r2"] > 0.999)
    scores["outside, %"] = 100.0 * (scores["r2_outside"] > 0.999)
    default = scores[scores["model"] == "default"].set_index(["equation", "rows", "noise"])
    scores = scores.join(default["learned, %"].rename("default there, %"), [*default.index.names])
    for (n_rows, noise), group in scores.groupby(["rows", "noise"]):
        by_model = group.dropna(subset="default there, %").groupby("model", sort=False)
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
    "Databases": _databases,
    "Missing cells": _imputation,
    "Dates and text": _real_tables,
    "Laws": _laws,
}


def page() -> Page:
    """Compute the page."""
    result = Page(
        "HEADLINES",
        "Headline numbers",
        "python -m benchmarks.headlines",
        "From the rows in `*/results/`. Their pages name the machine and the versions.",
    )
    for title, section in SECTIONS.items():
        result.heading(title)
        result.text(
            *(" ".join(paragraph.split()) for paragraph in str(section.__doc__).split("\n\n"))
        )
        for caption, table in section():
            with result.details(caption):
                result.table([table.index.name or "", *table], lines(table.astype(object), number))
    return result


if __name__ == "__main__":
    page().write(FOLDER)
