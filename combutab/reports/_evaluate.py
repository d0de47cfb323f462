"""`evaluate_synthetic`: the evaluation of a synthetic table, or of a database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Literal

from combutab.reports._synthetic import SyntheticEvaluation, Task, evaluate_table
from combutab.reports._tables import TablesEvaluation, evaluate_database

_DEFAULTS = {"task": "auto", "learners": "standard"}  # of the parameters for single tables


def evaluate_synthetic(
    *,
    real_train: Any,
    synthetic: Any,
    real_test: Any = None,
    target: Hashable | None = None,
    task: Task | Literal["auto"] = "auto",
    categorical: Any = (),
    learners: Any = "standard",
    scoring: str | None = None,
    identifiers: Any = None,
    person: Hashable | None = None,
    keys: Any = None,
    order_by: Mapping[str, str] | None = None,
    lookup: Collection[str] | None = None,
    made: Mapping[str, str] | None = None,
    generator: Any = None,
    names: Mapping[str, str] | None = None,
    min_frequency: float = 5,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> SyntheticEvaluation | TablesEvaluation:
    """Evaluate the utility, fidelity and privacy of a synthetic table or database.

    Parameters
    ----------
    real_train : DataFrame of pandas or polars, array of shape (n_rows, n_columns), or mapping
        Training rows of the generator. A mapping of names to DataFrames is a database.
    synthetic : table or mapping
        Synthetic rows, with the columns of ``real_train`` in any order; dtypes may differ. For a
        database, a mapping with the same names.
    real_test : table or mapping, optional
        Real rows that the generator was not trained on (hold-out). Without them, models are tested
        on each fifth of ``real_train`` in turn (for 5,000 rows or more, only on the first fifth),
        and privacy is measured only by duplicates and near copies. For a database, held-out parents
        with all their children.
    target : column name, optional
        Column that models are trained to predict. Without it the utility is not known.
    task : {"auto", "classification", "regression"}, default="auto"
        Prediction task. "auto" infers it from the target.
    categorical : collection of column names, default=()
        Columns of numbers or dates to treat as categories. For a database, a mapping of table name
        to them.
    learners : default="standard"
        Models for the utility, as in `ml_efficacy`.
    scoring : str, optional
        Metric of the utility. Classification: "roc_auc" (default), "log_loss", "accuracy",
        "balanced_accuracy", "average_precision", "f1" or "f1_macro". Regression: "r2" (default),
        "mae", "rmse", "mse" or "mape".
    identifiers : collection of column names, optional
        Columns that identify rows, such as a customer number. They are left out of all scores, as
        are the columns for which ``generator`` makes new identifiers, and columns that are detected
        (see the notes). For a database, a mapping of table name to them.
    person : column name, optional
        Column with the person that each row belongs to, if persons have several rows. It is an
        identifier. Privacy attacks then count persons, and held-out rows of persons who have
        training rows are left out of them.
    keys : "auto" or list, optional
        For a database: its foreign keys, as in `TabFlowTables.fit`, or its ``keys_``. By default
        those of ``generator``, or else "auto". ``target``, ``task``, ``learners``, ``scoring`` and
        ``person`` are for single tables.
    order_by : mapping, optional
        For a database: child table -> the column by which the rows of a parent are ordered, for
        tests of sequences. By default those of ``generator``, or else the order of the rows.
    lookup : collection of str, optional
        For a database: tables that are not synthetic, and are not compared. By default those of
        ``generator``.
    made : mapping of str to str, optional
        Settings of the generator, for the report.
    generator : fitted generator, optional
        The generator of the synthetic table. Its parameters are added to ``made``, and whether its
        fit is differentially private (`PrivateSynthesizer`, with epsilon and delta) to the finding
        on privacy.
    names : mapping, optional
        Names of the tables "real", "synthetic" and "test" in the report, such as their files.
    min_frequency : int or float, default=5
        Number of rows of ``real_train``, or share of them, that must have a value for the report to
        show it.
    random_state : int, default=0
        Random seed of the evaluation.
    n_jobs : int, optional
        Number of tables that are evaluated at the same time.
    progress : callable, optional
        Called before each part of the evaluation, with a description of it.

    Returns
    -------
    SyntheticEvaluation or TablesEvaluation
        The latter for a database.

    Raises
    ------
    ValueError
        If columns are missing or added (the message lists them), values cannot be compared, the
        target is not a column, or it does not suit the task.
    TypeError
        If ``generator`` is not a generator of this library.
    NotFittedError
        If ``generator`` is not fitted.

    Notes
    -----
    Utility: train on synthetic, test on real (`ml_efficacy`). The level depends on the share of the
    improvement over guessing that is kept, for the model that is best after training on the real
    rows.

    Identifiers are left out, because their values should differ. They are detected by
    `combutab.preprocessing.find_identifiers`, or if they are text that differs in most rows, or
    integers that never repeat and are spread evenly, and nearly all synthetic ones are outside the
    real range. If all columns are detected, none is left out.

    Fidelity: a classifier two-sample test (`detection`) by gradient boosting. Lost associations
    between columns can lower the level. Scores of single columns and of a linear classifier do not
    affect it, because they are also good for columns that were sampled independently.

    Privacy: tests for synthetic rows that equal a real row that occurs once, in all columns or in
    all but one or two; for near copies (`near_copies`); for distances to the closest record
    (`privacy`); for copied values of columns whose values identify rows; and attacks
    (`membership_inference`, `attribute_inference`, `singling_out`). Each is compared with what
    other real rows show. "good" means that these tests find nothing, not that the rows are private.
    Copies of held-out rows are detected in the same way as copies of training rows. Synthetic rows
    that are closer to held-out rows are a sign that the two real tables are swapped, or that the
    generator was trained on both.

    Shares and ROC AUCs are reported with two standard errors.

    Databases: keys, numbers of children, the dependence between tables and two-sample tests of
    parents with their children are those of `compare_databases`, and the level of fidelity is that
    of the test that distinguishes best. For privacy, a row of a table without parents is one person
    with all its descendants, which are summarized. The tests above are made with these rows.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"age": rng.normal(40, 9, 3000), "sex": rng.choice(["f", "m"], 3000)})
    >>> found = evaluate_synthetic(
    ...     real_train=people[:1000], real_test=people[1000:2000], synthetic=people[2000:]
    ... )
    >>> [(finding.subject, finding.level) for finding in found.findings]
    [('utility', 'unknown'), ('fidelity', 'good'), ('privacy', 'good')]

    >>> visits = pd.DataFrame({"visit": range(6000), "who": rng.integers(0, 3000, 6000)})
    >>> people["who"] = range(3000)
    >>> def part(first, last):
    ...     return {n: t[t["who"].between(first, last)] for n, t in tables.items()}
    >>> tables = {"people": people, "visits": visits}
    >>> found = evaluate_synthetic(
    ...     real_train=part(0, 999),
    ...     real_test=part(1000, 1999),
    ...     synthetic=part(2000, 2999),
    ...     keys=[("visits", "who", "people")],
    ... )
    >>> [(finding.subject, finding.level) for finding in found.findings]
    [('keys', 'good'), ('fidelity', 'good'), ('privacy', 'good')]
    """
    shared: dict[str, Any] = {
        "real_train": real_train,
        "synthetic": synthetic,
        "real_test": real_test,
        "generator": generator,
        "names": names,
        "min_frequency": min_frequency,
        "random_state": random_state,
        "n_jobs": n_jobs,
        "progress": progress,
    }
    of_table: dict[str, Any] = {"target": target, "scoring": scoring, "person": person}
    of_table |= {"task": task, "learners": learners}
    of_database: dict[str, Any] = {"keys": keys, "order_by": order_by, "lookup": lookup}
    is_database = isinstance(real_train, Mapping)
    for name, value in (of_table if is_database else of_database).items():
        if value is not None and value is not _DEFAULTS.get(name):
            fitting = "single tables" if is_database else "databases (a mapping of tables)"
            raise ValueError(f"{name} is for {fitting}; leave it out")
    if is_database:
        columns: dict[str, Any] = {
            "categorical": categorical or {},
            "identifiers": identifiers or {},
        }
        return evaluate_database(**shared, **of_database, **columns, settings=made or {})
    return evaluate_table(
        **shared, made=made, **of_table, categorical=categorical, identifiers=identifiers
    )
