"""Efficacy of synthetic tables for learning: train on synthetic, test on real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from combutab._parallel import gathered
from combutab._random_state import seed_from
from combutab.evaluation.synthetic._alignment import AlignedTables, align_tables
from combutab.evaluation.synthetic.efficacy._learners import Learners, Task, make_learners
from combutab.evaluation.synthetic.efficacy._scores import (
    GREATER_IS_BETTER,
    Problem,
    Side,
    Split,
    score_learner,
)
from combutab.evaluation.synthetic.efficacy._tables import (
    REAL,
    Tables,
    label_tables,
    ordered,
)
from combutab.preprocessing import infer_task

_REAL_TABLES = ("real_train", "real_test", "real")
_MOST_DRAWN = 5000  # test rows in a resample


def ml_efficacy(
    *,
    real_train: pd.DataFrame,
    real_test: pd.DataFrame,
    synthetic: Tables,
    target: Any,
    task: Task | Literal["auto"] = "auto",
    learners: Learners = "standard",
    pos_label: Any = None,
    n_resamples: int = 0,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Train models on synthetic rows and on real ones, and score both on the same real test rows.

    A synthetic table is worth learning from as far as its models come near those of the real one:
    ``gap`` is what they lack. Everything that is learned, also scales and categories, is learned
    from the rows trained on alone.

    Parameters
    ----------
    real_train, real_test : DataFrame
        The rows that the generator learned from, and others that it has not seen.
    synthetic : DataFrame, list of DataFrame, or mapping of name to either
        Columns as those of ``real_train``, in any order; values may have other dtypes. Several
        samples of one generator are averaged; a mapping compares several generators.
    target : column name
    task : {"auto", "classification", "regression"}, default="auto"
        "auto" asks `combutab.preprocessing.infer_task`, with the real rows.
    learners : "standard", "paper", name(s), or mapping of name to estimator, default="standard"
        "standard": "linear" (logistic or ridge regression), "decision_tree", "random_forest",
        "hist_gradient_boosting", "mlp" (ours, with early stopping), and "xgboost" and "catboost"
        where they are installed. "paper": "paper_mlp", the CombU paper's network, with ReLU.
        Own estimators are given the columns as `TableEncoder` encodes them, scikit-learn pipelines
        the table as it is.
    pos_label : class, optional
        The positive class of ``f1_binary``, which is left out otherwise.
    n_resamples : int, default=0
        How often test rows are drawn again for the columns "se" and "gap_se", at least 2; with 0
        these are left out.
    random_state : int, RandomState or None, default=0
        Of the learners; each begins with the same one on every table. And of what is drawn.
    n_jobs : int, optional
        Tables that are learned from at the same time, by joblib.

    Returns
    -------
    DataFrame, one row a learner, metric and source
        ``learner``; ``metric``; ``source``: "real", or "synthetic" (the names of a mapping);
        ``mean`` and ``sd`` (ddof 1, NaN for one table) over the samples; ``gap``, how much worse
        than "real" the mean is, in either direction of the metric; ``n_tables``; ``note``: what is
        to be known of the score, "" where there is nothing. With ``n_resamples``, ``se`` and
        ``gap_se``, standard errors of ``mean`` and ``gap`` by the bootstrap over the test rows, of
        accuracy, roc_auc and r2 (NaN of the others).

        Metrics of a classification are accuracy, f1_macro and roc_auc (over the classes in the
        test rows; one against the rest, where there are several), f1_binary, and log_loss (NaN of
        a learner without probabilities; one of 0 counts as float64's precision, as scikit-learn
        has it); of a regression r2, and mae and mse with the target in standard deviations of
        ``real_train``'s.

    Raises
    ------
    ValueError
        Columns are missing or added (the message lists them), there is no row with a target, or an
        argument is not one of those above.
    ImportError
        A learner that was named needs a library that is not there.

    Notes
    -----
    Rows without a target are left out. A table with one class alone, from which nothing can be
    learned, scores as the constant prediction does, its ROC AUC as 0.5.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> real = pd.DataFrame({"a": rng.normal(size=400), "b": rng.choice(["x", "y"], 400)})
    >>> real["y"] = 2 * real["a"] + (real["b"] == "x")
    >>> shuffled = real[:300].apply(lambda column: rng.permutation(column))
    >>> table = ml_efficacy(
    ...     real_train=real[:300], real_test=real[300:], target="y", learners="linear",
    ...     synthetic={"copy": real[:300], "shuffled": shuffled},
    ... )
    >>> table.loc[table["metric"] == "r2", ["source", "mean", "gap"]].round(1)
         source  mean  gap
    0      real   1.0  0.0
    1      copy   1.0  0.0
    2  shuffled  -0.0  1.0
    """
    labelled = label_tables(synthetic)
    tables = {"real_train": real_train, "real_test": real_test}
    tables |= {label: table for label, (_, table) in labelled.items()}
    problem, aligned = make_problem(tables, target, task, pos_label)
    test = problem.side(aligned["real_test"])
    resamples = _resamples(len(test.y), n_resamples, seed_from(random_state))
    n_rows = len(aligned["real_train"]) + len(aligned["real_test"])
    models = make_learners(
        learners, problem.task, n_rows=n_rows, random_state=seed_from(random_state)
    )
    sources = {"real_train": REAL} | {label: source for label, (source, _) in labelled.items()}
    results = gathered(
        _score_table,
        (
            (problem.side(aligned[label]), test, problem, models, label, resamples)
            for label in sources
        ),
        n_jobs=n_jobs,
        shared=[test],
    )
    rows = [
        {"source": source, **row}
        for source, found in zip(sources.values(), results, strict=True)
        for row in found
    ]
    table = _summarise(pd.DataFrame(rows))
    return table if resamples is None else _with_errors(table, rows, resamples, len(test.y))


@dataclass(frozen=True)
class EfficacyScorer:
    """A scorer of generators, for `cross_val_score` and searches: what a model learns from samples.

    Called with a fitted generator and held-out real rows, it samples a table, trains a learner on
    it, and scores that on the real rows; greater is better, errors are negated. The generator needs
    ``sample(n)``.

    Parameters
    ----------
    target : column name
    metric : str, optional
        As in `ml_efficacy`; by default "r2", or "roc_auc" of a classification.
    learner : str, default="hist_gradient_boosting"
        A name of `ml_efficacy`'s, or a scikit-learn estimator.
    n_samples : int, optional
        Rows to sample; as many as there are real ones by default. In cross-validation that is fewer
        than the generator was trained on.
    task, pos_label, random_state
        As in `ml_efficacy`.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from combutab import TVAE
    >>> from sklearn.model_selection import cross_val_score
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"a": rng.normal(size=200)}).assign(b=lambda t: 2 * t["a"])
    >>> scorer = EfficacyScorer(target="b", metric="mae", learner="linear")
    >>> scores = cross_val_score(TVAE(epochs=1, random_state=0), table, scoring=scorer, cv=2)
    >>> scores.shape
    (2,)
    """

    target: Any
    metric: str | None = None
    learner: Any = "hist_gradient_boosting"
    n_samples: int | None = None
    task: Task | Literal["auto"] = "auto"
    pos_label: Any = None
    random_state: Any = 0

    def __call__(self, generator: Any, X: pd.DataFrame, y: Any = None) -> float:
        """Score a fitted generator on real rows ``X``, which hold the target; ``y`` is ignored."""
        synthetic = generator.sample(len(X) if self.n_samples is None else self.n_samples)
        tables = {"real": X, "synthetic": synthetic}
        problem, aligned = make_problem(tables, self.target, self.task, self.pos_label)
        metric = self.metric or ("r2" if problem.task == "regression" else "roc_auc")
        if metric not in problem.metrics:
            raise ValueError(
                f"metric must be one of {', '.join(problem.metrics)} for a {problem.task}, got "
                f"{metric!r}" + (" (f1_binary needs pos_label)" if metric == "f1_binary" else "")
            )
        named = isinstance(self.learner, str)
        models = make_learners(
            [self.learner] if named else {"learner": self.learner},
            problem.task,
            n_rows=len(X),
            random_state=seed_from(self.random_state),
        )
        train, test = problem.side(aligned["synthetic"]), problem.side(aligned["real"])
        rows = _score_table(train, test, problem, models, "synthetic")
        score = next(row["score"] for row in rows if row["metric"] == metric)
        return score if GREATER_IS_BETTER[metric] else -score


def make_problem(
    tables: Mapping[str, Any], target: Any, task: Task | Literal["auto"], pos_label: Any
) -> tuple[Problem, AlignedTables]:
    """Make the prediction problem, and align all tables with the first one."""
    if task not in ("auto", "classification", "regression"):
        raise ValueError(f"task must be 'auto', 'classification' or 'regression', got {task!r}")
    reference = next(iter(tables))
    aligned = align_tables(tables, reference=reference)
    if target not in aligned.kinds:
        columns = ", ".join(map(repr, aligned.kinds))
        raise ValueError(f"there is no column {target!r} for a target; there are {columns}")
    if len(aligned.kinds) < 2:
        raise ValueError(f"there is no column beside the target {target!r} to predict it from")
    for name, table in aligned.tables.items():
        if table[target].isna().all():
            raise ValueError(f"no row of {name} has a target: {target!r} is missing in all of them")
    real = [table[target] for name, table in aligned.tables.items() if name in _REAL_TABLES]
    if task == "auto":
        task = infer_task(pd.concat(real).dropna())
    if task == "regression":
        if aligned.kinds[target] != "number":
            raise ValueError(
                f"a regression needs numbers, but the target {target!r} is a "
                f"{aligned.kinds[target]}; set task='classification', or make it numbers"
            )
        if pos_label is not None:
            raise ValueError(f"pos_label={pos_label!r} is for a classification, this is a {task}")
        scale = float(real[0].std(ddof=0)) if real[0].nunique() > 1 else 1.0
        return Problem(task, target, (), None, scale), aligned
    if aligned.kinds[target] != "category":
        aligned = align_tables(tables, reference=reference, categorical=[target])
    classes = tuple(aligned[reference][target].cat.categories)
    if pos_label is not None and pos_label not in classes:
        raise ValueError(
            f"pos_label={pos_label!r} is no class of {target!r}; there are "
            + ", ".join(map(repr, classes))
        )
    positive = None if pos_label is None else classes.index(pos_label)
    return Problem(task, target, classes, positive, 1.0), aligned


def _score_table(
    train: Side,
    test: Side,
    problem: Problem,
    models: Mapping[str, Any],
    label: str,
    resamples: np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """A row for each learner and metric."""
    split = Split(train, test, resamples)
    rows = []
    for name, model in models.items():
        try:
            scores, notes, again = score_learner(model, split, problem)
        except Exception as error:
            error.add_note(f"The learner {name!r}, trained on {label}.")
            raise
        note = "; ".join(notes)
        rows += [
            {
                "learner": name,
                "metric": metric,
                "score": scores[metric],
                "note": note,
                "again": again.get(metric),
            }
            for metric in problem.metrics
        ]
    return rows


def _resamples(n: int, n_resamples: int, seed: int) -> np.ndarray | None:
    """Places of test rows that are drawn again, of many of them a part."""
    if not isinstance(n_resamples, int | np.integer) or n_resamples < 0 or n_resamples == 1:
        raise ValueError(f"n_resamples must be 0 or an integer of at least 2, got {n_resamples!r}")
    if not n_resamples:
        return None
    return np.random.default_rng(seed).integers(n, size=(n_resamples, min(n, _MOST_DRAWN)))


def _with_errors(
    table: pd.DataFrame, rows: list[dict[str, Any]], resamples: np.ndarray, n: int
) -> pd.DataFrame:
    """Add standard errors: of the mean over a source's samples, and of its gap to the real rows."""
    n_resamples, size = resamples.shape
    again: dict[tuple[str, ...], list[np.ndarray]] = {}
    for row in rows:
        scores = np.full(n_resamples, np.nan) if row["again"] is None else row["again"]
        again.setdefault((row["learner"], row["metric"], row["source"]), []).append(scores)
    means = {key: np.mean(each, axis=0) for key, each in again.items()}
    errors, gaps = [], []
    for key in zip(table["learner"], table["metric"], table["source"], strict=True):
        errors.append(_deviation(means[key]))
        gaps.append(_deviation(means[(*key[:2], REAL)] - means[key]))
    smaller = np.sqrt(size / n)  # fewer rows were drawn than there are
    return table.assign(se=np.array(errors) * smaller, gap_se=np.array(gaps) * smaller)


def _deviation(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1)) if len(known) > 1 else np.nan


def _summarise(scores: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over the samples of a source, and the gap to the real rows."""
    keys = ["learner", "metric", "source"]
    groups = scores.groupby(keys, sort=False)
    columns = {
        "mean": groups["score"].mean(),
        "sd": groups["score"].std(),
        "n_tables": groups.size(),
        "note": groups["note"].agg(lambda notes: "; ".join(dict.fromkeys(filter(None, notes)))),
    }
    table = ordered(pd.DataFrame(columns).reset_index(), scores, keys)
    real = table[table["source"] == REAL].set_index(["learner", "metric"])["mean"]
    behind = real.loc[list(zip(table["learner"], table["metric"], strict=True))].to_numpy()
    sign = table["metric"].map(GREATER_IS_BETTER).map({True: 1.0, False: -1.0})
    table["gap"] = sign * (behind - table["mean"]) + 0.0  # not -0
    return table[[*keys, "mean", "sd", "gap", "n_tables", "note"]]
