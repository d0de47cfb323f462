"""Evaluation of a synthetic table: utility, fidelity and privacy."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from combutab._version import __version__
from combutab.core.html import ChartRow, interval_chart, result_html
from combutab.core.metrics import METRICS, Metric, choose_metric
from combutab.core.scorers import positive_class
from combutab.core.scores import as_positive, check_defined, guess_targets
from combutab.core.text import describe_generator
from combutab.evaluation import (
    AlignedTables,
    align_tables,
    detection,
    detection_parts,
    fidelity,
    ml_efficacy,
    near_copies,
    privacy,
)
from combutab.preprocessing import Table, as_pandas, infer_task, refuse_large
from combutab.reports._attacks import run_attacks
from combutab.reports._charts import least_rows
from combutab.reports._copies import find_copied_values, find_copies
from combutab.reports._findings import (
    C2ST,
    HELD_OUT,
    NOTHING,
    REAL,
    SYNTHETIC,
    TRAINING,
    Disclosed,
    Finding,
    NearCopies,
    TwoSample,
    best_learner,
    judge_fidelity,
    judge_privacy,
    judge_targets,
    judge_utility,
    skills_of_targets,
    two_sample,
)
from combutab.reports._findings import HELD_OUT_ROWS as UNSEEN
from combutab.reports._identifiers import (
    check_identifiers,
    identifies_rows,
    replaced_columns,
)
from combutab.reports._named_scores import ScoredEvaluation, scores_of
from combutab.reports._page import say, versions
from combutab.reports._yardsticks import association_values, measure_yardsticks

_NAMES = {"real": "real table", "synthetic": "synthetic table", "test": "held-out real table"}
_PARTS = 5  # of the real rows, each tested on in turn where there are no held-out rows
_ENOUGH = 5000  # real rows from which one part is enough; with fewer, each part is tested on
_OVERLAP = 0.05  # of the held-out rows; with more of them among the others, they are not held out
_FOLDS = 5
_RESAMPLES = 100  # of the rows that learners are tested on, for what chance may do
_DRAWN_ANEW = 5  # times, of synthetic rows that teach little
_MOST = 100_000  # rows whose distances are measured
_ENOUGH_PARTS = 100  # rows of each table from which parts of the two-sample test are measured
_PARTS_TESTED = {"n_columns": 8, "n_pairs": 4, "n_splits": 2, "max_rows": 3000}
_PART_COLUMNS = ["part", "column", "other_column", "auc", "se", "dependence", "source"]
_TARGETS = ["target", "task", "metric", "learner", "real", "synthetic", "guess"]
_TARGETS += ["gap", "gap_se", "level", "note"]
_DETECTION = ["learner", "metric", "source", "mean", "sd", "se", "fold_sd", "n_tables"]
Task = Literal["classification", "regression"]


@dataclass(frozen=True, eq=False)
class SyntheticEvaluation(ScoredEvaluation):
    """Result of `evaluate_synthetic`: utility, fidelity and privacy, with a summary.

    Attributes
    ----------
    train, synthetic : DataFrame
        Real training rows and synthetic rows, aligned by `align_tables`.
    test : DataFrame or None
        Held-out real rows, aligned; None if there are none.
    kinds : mapping of column name to {"number", "category", "datetime"}
        Kind of each column. The target of a classification and identifiers are categories.
    identifiers : tuple of column names
        Columns of identifiers, which are left out of all scores.
    target : column name or None
        Target column.
    task : {"classification", "regression"} or None
        Prediction task.
    metric : str or None
        Metric of the utility; None without ``efficacy``.
    guess : float or None
        Score of guessing by this metric: 0.5 for ROC AUC, 0 for R2; None without ``efficacy``.
    efficacy : DataFrame or None
        Result of `ml_efficacy`; None without a target, or if it cannot be learned. Without
        ``real_test`` it is the mean over the parts of ``real_train`` that are the test rows in
        turn.
    targets : DataFrame or None
        With ``target="all"``, one row for each column as the target, the greatest loss first:
        ``target``, ``task``, ``metric``, ``learner``, ``real`` and ``synthetic`` (score after
        training on these rows), ``guess`` (score of guessing), ``gap`` (real minus synthetic),
        ``gap_se`` (its standard error), ``level`` (as for a single target) and ``note`` (why there
        is no level).
    fidelity : DataFrame
        Result of the function of this name with ``train`` as real rows. Sources are "synthetic"
        and, with ``test``, "held-out real".
    detection, detection_parts : DataFrame
        Results of these functions with ``test`` as real rows, or ``train`` without ``test``.
        Sources are "synthetic" and, with ``test``, "held-out real": the same test of ``train``
        against ``test``. Empty if there are too few rows; ``detection_parts`` has its ``source`` in
        an additional column.
    privacy : DataFrame or None
        Result of `privacy`, source "synthetic"; None without ``test``.
    attacks : mapping of str to DataFrame
        Results of `membership_inference`, `attribute_inference` and `singling_out`, by the names
        "membership inference", "attribute inference" and "singling out". Empty without ``test``, or
        if it has too few rows or too many training rows.
    copies : int
        Number of synthetic rows that equal a row of ``train`` in every column except identifiers.
    findings : tuple of Finding
        Findings on utility, fidelity and privacy, in this order.
    made : mapping of str to str
        Settings of the generator; empty if they are not known.
    versions : mapping of str to str
        Versions of the software of the evaluation.
    seed : int
        Random seed of the evaluation.
    seconds : mapping of str to float
        Time of each part of the evaluation, in seconds.
    names : mapping of {"real", "synthetic", "test"} to str
        Names of the tables in the report.
    least_rows : int
        Number of real rows that must have a value for the report to show it.

    Notes
    -----
    ``train``, ``synthetic`` and ``test`` contain rows. ``repr`` and the page of `render_report` do
    not.
    """

    train: pd.DataFrame
    synthetic: pd.DataFrame
    test: pd.DataFrame | None
    kinds: Mapping[Hashable, str]
    identifiers: tuple[Hashable, ...]
    target: Hashable | None
    task: Task | None
    metric: str | None
    guess: float | None
    efficacy: pd.DataFrame | None
    targets: pd.DataFrame | None
    fidelity: pd.DataFrame
    detection: pd.DataFrame
    detection_parts: pd.DataFrame
    privacy: pd.DataFrame | None
    attacks: Mapping[str, pd.DataFrame]
    copies: int
    findings: tuple[Finding, Finding, Finding]
    made: Mapping[str, str]
    versions: Mapping[str, str]
    seed: int
    seconds: Mapping[str, float]
    names: Mapping[str, str]
    least_rows: int

    @property
    def scores(self) -> dict[str, float]:
        """The scores that `require` may name; NaN if a score is not known."""
        return scores_of(self)

    def to_json(self) -> str:
        """Return scores, findings and attacks as JSON, without rows; scores not known are null."""
        record = {
            "combutab": __version__,
            "tables": {
                role: {"name": self.names[role], "n_rows": len(table)}
                for role, table in (
                    ("real", self.train),
                    ("synthetic", self.synthetic),
                    ("test", self.test),
                )
                if table is not None
            },
            "target": None if self.target is None else str(self.target),
            "seed": self.seed,
            "levels": {finding.subject: finding.level for finding in self.findings},
            "scores": self.scores,
            "detection_rows": "real" if self.test is None else "test",
            "findings": {finding.subject: finding.sentence for finding in self.findings},
            "targets": None if self.targets is None else self.targets.to_dict("records"),
            "attacks": {name: table.to_dict("records") for name, table in self.attacks.items()},
        }
        return json.dumps(without_nan(record), indent=2, ensure_ascii=False, default=str)

    def __repr__(self) -> str:
        levels = ", ".join(f"{finding.subject}={finding.level!r}" for finding in self.findings)
        return f"SyntheticEvaluation({levels}, n_synthetic={len(self.synthetic)})"

    def _repr_html_(self) -> str:
        """The findings in a notebook, with a chart of the scores of the learners."""
        sentences = [
            f"{finding.subject.capitalize()}: "
            f"{' '.join([finding.sentence, *finding.notes])} ({finding.level})"
            for finding in self.findings
        ]
        title = f"{self.names['synthetic']}: {' '.join(finding.short for finding in self.findings)}"
        chart, caption = "", ""
        if self.efficacy is not None:
            metric = str(self.metric)
            scores = self.efficacy[self.efficacy["metric"] == metric].dropna(subset="mean")
            rows = [
                ChartRow(
                    f"{line['learner']}, {line['source']} rows",
                    line["mean"],
                    line["mean"] - 2 * line["se"],
                    line["mean"] + 2 * line["se"],
                    line["source"] == REAL,
                )
                for line in scores.fillna({"se": 0.0}).to_dict("records")
            ]
            low = max(min((row.low for row in rows), default=0.0), -1.0)
            high = max((row.high for row in rows), default=1.0)
            caption = (
                f"{METRICS[str(self.task)][metric].title} on real rows after training on synthetic "
                "rows (blue) and on real ones (orange), with two standard errors."
            )
            chart = interval_chart(rows, (low, high), caption)
        return result_html(title, sentences, chart, caption)


def without_nan(value: Any) -> Any:
    """The value with None for NaN, which JSON does not have, within dicts and lists."""
    if isinstance(value, Mapping):
        return {str(key): without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def evaluate_table(
    *,
    real_train: Any,
    synthetic: Any,
    real_test: Any = None,
    target: Hashable | None = None,
    task: Task | Literal["auto"] = "auto",
    categorical: Collection[Hashable] = (),
    learners: Any = "standard",
    scoring: str | None = None,
    identifiers: Collection[Hashable] | None = None,
    person: Hashable | None = None,
    made: Mapping[str, str] | None = None,
    generator: Any = None,
    names: Mapping[str, str] | None = None,
    min_frequency: float = 5,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> SyntheticEvaluation:
    """Evaluate a single table; see `evaluate_synthetic`."""
    table_names = _NAMES | dict(names or {})
    generator_settings = describe(generator) | dict(made or {})
    tables = {"real": real_train, "synthetic": synthetic}
    tables |= {} if real_test is None else {"test": real_test}
    clock = Clock(progress)
    options: dict[str, Any] = {"random_state": random_state, "n_jobs": n_jobs}
    all_columns, left_out = align_and_identify(
        tables, table_names, categorical, identifiers, person, generator, target
    )
    is_each = isinstance(target, str) and target == "all" and target not in all_columns.kinds
    if is_each and (task != "auto" or scoring is not None):
        raise ValueError("target='all' has columns of both tasks; leave task and scoring out")
    target = None if is_each else target
    _check_target(all_columns, real_train, target, task, categorical)
    min_rows = least_rows(min_frequency, len(all_columns["real"]))
    aligned = without_columns(all_columns, left_out)
    if is_each:
        utility = _evaluate_each_target(aligned, learners, clock, options)
    else:
        utility = _evaluate_utility(aligned, target, task, scoring, learners, clock, options)
    if utility.task == "classification":  # the target becomes a category
        all_columns = _align(tables, table_names, [*categorical, *left_out, target])
        aligned = without_columns(all_columns, left_out)

    fidelity_results = _evaluate_fidelity(aligned, left_out, clock, options)
    train, test = aligned["real"], aligned.tables.get("test")
    n_test = 0 if test is None else len(test)
    real_told = two_sample(fidelity_results.detection, HELD_OUT, min(len(train), n_test))
    categories = aligned.columns("category")
    with clock("privacy", "comparing synthetic rows with real rows"):
        privacy_scores, attacks, copies, privacy_finding = evaluate_privacy(
            all_columns, left_out, person, {"categorical": categories, **options}, real_told
        )
    return SyntheticEvaluation(
        train=all_columns["real"],
        synthetic=all_columns["synthetic"],
        test=all_columns.tables.get("test"),
        kinds=all_columns.kinds,
        identifiers=tuple(left_out),
        target=target,
        task=utility.task,
        metric=utility.metric,
        guess=utility.guess,
        efficacy=utility.efficacy,
        targets=utility.targets,
        fidelity=fidelity_results.fidelity,
        detection=fidelity_results.detection,
        detection_parts=fidelity_results.detection_parts,
        privacy=privacy_scores,
        attacks=attacks,
        copies=copies,
        findings=(
            utility.finding,
            fidelity_results.finding,
            with_promise(privacy_finding, generator_settings.get("Differential privacy")),
        ),
        made=generator_settings,
        versions=versions(),
        seed=random_state,
        seconds=clock.seconds,
        names=table_names,
        least_rows=min_rows,
    )


# ---- Identifiers ---------------------------------------------------------------------------------


def align_and_identify(
    tables: Mapping[str, Any],
    names: Mapping[str, str],
    categorical: Collection[Hashable],
    identifiers: Collection[Hashable] | None,
    person: Hashable | None,
    generator: Any,
    target: Hashable | None,
    *,
    keep_one: bool = True,
) -> tuple[AlignedTables, list[Hashable]]:
    """The tables by their roles, and their columns of identifiers, which are categories.

    As categories, integers of 64 bits stay exact, and may be compared with text. With ``keep_one``,
    one column at least is no identifier.
    """
    raw = pd.DataFrame(as_pandas(tables["real"]))
    columns: list[Hashable] = [*raw.columns]
    known_identifiers: list[Hashable] = check_identifiers(identifiers or (), columns, target)
    if person is not None and person not in known_identifiers:
        known_identifiers += check_identifiers([person], columns, target, name="person")
    replaced = replaced_columns(generator)
    known_identifiers += [
        name for name in columns if name in replaced and name not in (*known_identifiers, target)
    ]
    aligned = _align(tables, names, [*categorical, *known_identifiers])
    detected: list[Hashable] = [
        name
        for name in columns
        if name not in (*known_identifiers, *categorical, target)
        and identifies_rows(raw[name], aligned["real"][name], aligned["synthetic"][name])
    ]
    identifier_columns: list[Hashable] = [
        name for name in columns if name in (*known_identifiers, *detected)
    ]
    if keep_one and len(identifier_columns) == len(columns):  # something must be left to compare
        identifier_columns = known_identifiers if len(known_identifiers) < len(columns) else []
    if set(identifier_columns) - set(known_identifiers):
        aligned = _align(tables, names, [*categorical, *identifier_columns])
    return aligned, identifier_columns


def without_columns(aligned: AlignedTables, columns: Collection[Hashable]) -> AlignedTables:
    """The aligned tables without some columns."""
    if not columns:
        return aligned
    tables = {role: table.drop(columns=list(columns)) for role, table in aligned.tables.items()}
    kinds = {name: kind for name, kind in aligned.kinds.items() if name not in columns}
    n_known = {name: n for name, n in aligned.n_known.items() if name not in columns}
    return AlignedTables(tables, kinds, n_known)


# ---- The parts of an evaluation ------------------------------------------------------------------


@dataclass(frozen=True)
class _Utility:
    """The finding on utility, and the scores that it is based on."""

    finding: Finding
    task: Task | None = None
    metric: str | None = None
    efficacy: pd.DataFrame | None = None
    guess: float | None = None
    targets: pd.DataFrame | None = None


def _evaluate_utility(
    aligned: AlignedTables,
    target: Hashable | None,
    task: Task | Literal["auto"],
    scoring: str | None,
    learners: Any,
    clock: Clock,
    options: Mapping[str, Any],
) -> _Utility:
    """Train models on the real and on the synthetic rows, and test them on real rows."""
    unjudged = _unjudged(aligned, target)
    if target is None or unjudged is not None:
        assert unjudged is not None
        return _Utility(unjudged)
    real_tables = {role: table for role, table in aligned.tables.items() if role != "synthetic"}
    targets = pd.concat([table[target] for table in real_tables.values()]).dropna()
    goal: Task = infer_task(targets) if task == "auto" else task
    try:
        metric = choose_metric(scoring or next(iter(METRICS[goal])), goal)
        check_defined(metric.name, targets)
    except ValueError as error:
        raise ValueError(f"scoring: {error}") from error
    if goal == "classification":
        categories = [*aligned.columns("category"), target]
        aligned = align_tables(aligned.tables, reference="real", categorical=categories)
    judge = partial(
        _judge_utility, aligned["synthetic"], target, goal, metric, learners, clock, options
    )
    real, test = aligned["real"], aligned.tables.get("test")
    seed = options["random_state"]
    splits = _parts_in_turn(real, target, seed) if test is None else [(real, test)]
    finding, efficacy, guess = judge(splits, seen=test is None)
    if test is not None and finding.level == "unknown" and len(real) < _ENOUGH:
        # few held-out rows: all real rows are tested on in turn
        splits = _parts_in_turn(pd.concat([real, test], ignore_index=True), target, seed)
        in_turn = judge(splits, seen=True)
        if in_turn[0].level != "unknown":
            finding, efficacy, guess = in_turn
    return _Utility(finding, goal, metric.name, efficacy, guess)


def _evaluate_each_target(
    aligned: AlignedTables, learners: Any, clock: Clock, options: Mapping[str, Any]
) -> _Utility:
    """Evaluate the utility for each column as the target in turn."""
    if isinstance(learners, str) and learners == "standard":
        learners = C2ST
    rows = []
    for target, kind in aligned.kinds.items():
        tables = aligned
        if kind == "datetime":
            by_role = {role: table.copy(deep=False) for role, table in aligned.tables.items()}
            for table in by_role.values():
                table[target] = association_values(table[target], kind)
            tables = AlignedTables(by_role, {**aligned.kinds, target: "number"}, aligned.n_known)
        row: dict[str, Any] = dict.fromkeys(_TARGETS, math.nan)
        row |= {"target": target, "task": "", "metric": "", "learner": "", "level": "unknown"}
        try:
            utility = _evaluate_utility(tables, target, "auto", None, learners, clock, options)
        except ValueError as error:  # such as a single class
            rows.append(row | {"note": str(error)})
            continue
        row |= {"level": utility.finding.level, "note": ""}
        if utility.finding.level == "unknown" or utility.efficacy is None:
            row["note"] = utility.finding.sentence
        if utility.efficacy is not None:
            metric = METRICS[str(utility.task)][str(utility.metric)]
            table, learner = utility.efficacy, best_learner(utility.efficacy, metric)
            chosen = table[(table["metric"] == metric.name) & (table["learner"] == learner)]
            scores = chosen.set_index("source")
            row |= {"task": utility.task, "metric": metric.name, "learner": learner}
            row |= {"guess": utility.guess, "real": scores["mean"][REAL]}
            row |= {"synthetic": scores["mean"][SYNTHETIC], "gap": scores["gap"][SYNTHETIC]}
            row["gap_se"] = scores["gap_se"][SYNTHETIC]
        rows.append(row)
    targets = pd.DataFrame(rows, columns=_TARGETS)
    real, synthetic = skills_of_targets(targets)
    order = (real - synthetic).sort_values(ascending=False, kind="stable").index  # NaN is last
    targets = targets.loc[order].reset_index(drop=True)
    return _Utility(judge_targets(targets, seen="test" not in aligned.tables), targets=targets)


def evaluate_privacy(
    all_columns: AlignedTables,
    identifiers: list[Hashable],
    person: Hashable | None,
    compared: Mapping[str, Any],
    real_told: TwoSample | None,
) -> tuple[pd.DataFrame | None, dict[str, pd.DataFrame], int, Finding]:
    """The results of `privacy` and of the attacks, the copies of training rows, and the finding.

    ``compared`` has parameters of `privacy`, and ``real_told`` is the two-sample test of held-out
    rows against training rows.
    """
    aligned = without_columns(all_columns, identifiers)
    train, rows, test = aligned["real"], aligned["synthetic"], aligned.tables.get("test")
    privacy_scores, n_seen = None, 0
    attacks: dict[str, pd.DataFrame] = {}
    if test is not None:
        privacy_scores = privacy(
            real_train=train, synthetic=rows, holdout=test, max_rows=_MOST, **compared
        )
        n_seen = _seen(train, test)
        if not n_seen:
            row_names = [name for name in identifiers if name != person]
            attacks = run_attacks(without_columns(all_columns, row_names), person, compared)
    tables = [(TRAINING, "real", "test")]
    tables += [] if test is None or n_seen else [(UNSEEN, "test", "real")]
    # Rows of real tables that differ from each other do not show what chance does.
    differ = real_told is not None and real_told.differ
    is_controlled = test is not None and not n_seen and not differ
    disclosed = []
    for rows_of, role, control_role in tables:
        other_role = control_role if is_controlled else None
        values_role = control_role if test is not None and not n_seen else None
        disclosed.append(
            _compare_with(
                all_columns, (role, other_role, values_role), rows_of, identifiers, compared
            )
        )
    finding = judge_privacy(
        privacy_scores,
        disclosed,
        attacks=attacks,
        n_made=len(rows),
        n_compared=0 if test is None else min(len(train), len(test), _MOST),
        n_seen=n_seen,
        real=real_told,
        left_out=identifiers,
    )
    return privacy_scores, attacks, disclosed[0].copies.rows, finding


def _compare_with(
    all_columns: AlignedTables,
    roles: tuple[str, str | None, str | None],
    rows_of: str,
    identifiers: list[Hashable],
    compared: Mapping[str, Any],
) -> Disclosed:
    """Copies and near copies of one real table in the synthetic rows.

    ``roles`` are those of this table, and of the tables that show what chance does: to rows, and to
    values of one column.
    """
    real, synthetic = (
        all_columns[role].drop(columns=identifiers) for role in (roles[0], "synthetic")
    )
    control = None if roles[1] is None else all_columns[roles[1]].drop(columns=identifiers)
    copies = near_copies(real_train=real, synthetic=synthetic, holdout=control, **compared)
    near_counts = copies.loc[0, ["near", "share", "reference", "pvalue"]]
    values = find_copied_values(
        all_columns[roles[0]],
        all_columns["synthetic"],
        None if roles[2] is None else all_columns[roles[2]],
    )
    return Disclosed(
        rows_of,
        find_copies(real, synthetic, control),
        values,
        NearCopies(*near_counts),
        [name for name in values if all_columns.kinds[name] == "category"],
    )


def describe(generator: Any) -> dict[str, str]:
    """Describe a fitted generator: its class, its guarantees and its parameters."""
    if generator is None:
        return {}
    if not (hasattr(generator, "get_params") and hasattr(generator, "sample")):
        raise TypeError(
            f"generator must be a fitted generator, such as TabFlow, got {generator!r:.100}; for "
            "other generators, pass their settings in made={...}"
        )
    check_is_fitted(generator)
    params = generator.get_params(deep=False)
    for name in ("callbacks", "device", "validation_split"):  # of the process, or the table
        params.pop(name, None)
    return describe_generator(type(generator).__name__, __version__, params, vars(generator))


def with_promise(finding: Finding, promise: str | None) -> Finding:
    """The finding on privacy, with a note on the differential privacy of the generator."""
    if promise is None:
        return finding
    note = f"Differential privacy of the generator: {promise}."
    if promise.startswith("guaranteed"):
        note += (
            " This report reads the real rows without noise, so the guarantee does not cover it."
        )
    return replace(finding, notes=(*finding.notes, note))


class Clock:
    """Reports the progress, and measures the time of each part."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str, label: str) -> Iterator[None]:
        if self.progress is not None:
            self.progress(label)
        started = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


def _align(
    raw_tables: Mapping[str, Any], names: Mapping[str, str], categorical: Collection[Hashable]
) -> AlignedTables:
    """The tables by their roles."""
    display_names = {role: names[role] for role in raw_tables}
    if len(set(display_names.values())) < len(display_names):
        display_names = {role: role for role in raw_tables}
    # errors have the names that the user knows
    tables = {display_names[role]: table for role, table in raw_tables.items()}
    aligned = align_tables(tables, reference=display_names["real"], categorical=categorical)
    for name, table in aligned.tables.items():
        for column in aligned.columns("number"):  # the learners would refuse them, after some work
            refuse_large(float(table[column].abs().max()), f"column {column!r} of {name}")
    by_role = {role: aligned[name] for role, name in display_names.items()}
    return AlignedTables(by_role, aligned.kinds, aligned.n_known)


def _check_target(
    aligned: AlignedTables,
    real: Any,
    target: Hashable | None,
    task: str,
    categorical: Collection[Hashable],
) -> None:
    if task not in ("auto", "classification", "regression"):
        raise ValueError(f"task must be 'auto', 'classification' or 'regression', got {task!r}")
    if target is not None and target not in aligned.kinds:
        columns = ", ".join(map(repr, aligned.kinds))
        raise ValueError(f"there is no column {target!r} for a target; there are {columns}")
    if target is not None and aligned.kinds[target] == "datetime" and task != "classification":
        raise ValueError(
            f"the target {target!r} holds dates; set task='classification' if each is a class, or "
            "make it numbers"
        )
    if task == "auto" and target not in (None, *categorical) and aligned["real"][target].count():
        column = Table(real).columns_by_name()[target]
        infer_task(column, name=f"the target {target!r}")  # of text that is no label, an error


def _unjudged(aligned: AlignedTables, target: Hashable | None) -> Finding | None:
    """The finding where no learner can be trained."""
    level, headline, n_known = "unknown", "", 0
    if target is None:
        why = "no target"
    elif aligned["synthetic"][target].isna().all():
        why, level, headline = "no synthetic", "poor", NOTHING
    elif "test" not in aligned.tables and (n_known := int(aligned["real"][target].count())) < 2:
        why = "few"
    else:
        return None
    (sentence,) = say("no_utility", why=why, name=repr(str(target)), n_known=n_known)
    return Finding("utility", level, sentence, headline=headline)


def _draw_anew(table: pd.DataFrame, target: Hashable, seed: int) -> dict[str, pd.DataFrame]:
    """Bootstrap samples of the rows that have a target."""
    table, rng = table[table[target].notna()], np.random.default_rng(seed)
    samples = [rng.integers(len(table), size=len(table)) for _ in range(_DRAWN_ANEW)]
    return {f"anew {k}": table.iloc[rows].reset_index(drop=True) for k, rows in enumerate(samples)}


def _judge_utility(
    synthetic: pd.DataFrame,
    target: Hashable,
    task: Task,
    metric: Metric,
    learners: Any,
    clock: Clock,
    options: Mapping[str, Any],
    splits: list[tuple[pd.DataFrame, pd.DataFrame]],
    *,
    seen: bool,
) -> tuple[Finding, pd.DataFrame, float]:
    """The finding, its scores, and the score of guessing."""
    score = partial(_efficacy_of_splits, splits, target=target, **options)
    with clock("ml_efficacy", "training models on real and on synthetic rows"):
        efficacy = score(synthetic=synthetic, task=task, learners=learners, n_resamples=_RESAMPLES)
    targets = pd.concat([test[target] for _, test in splits]).dropna()
    n_most_frequent = 0 if task == "regression" else int(targets.value_counts().max())
    judge = partial(
        judge_utility,
        efficacy,
        target=target,
        metric=metric,
        guess=_guess_score(metric, targets, *(table[target] for table in splits[0])),
        n_test=len(targets),
        n_rare=len(targets) - n_most_frequent,
        seen=seen,
    )
    finding = judge()
    if finding.level == "poor":
        best = best_learner(efficacy, metric)
        with clock("ml_efficacy", "training a model on bootstrap samples of the synthetic rows"):
            again = score(
                synthetic=_draw_anew(synthetic, target, options["random_state"]),
                task=task,
                learners={best: learners[best]} if isinstance(learners, Mapping) else best,
            )
        finding = judge(again=again)
    return finding, efficacy, judge.keywords["guess"]


def _parts_in_turn(
    table: pd.DataFrame, target: Hashable, seed: int
) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Real rows to learn from and to be tested on, parts in turn; of rows that have a target."""
    labelled = table[table[target].notna()]
    order = np.random.default_rng(seed).permutation(len(labelled))
    parts = np.array_split(order, min(_PARTS, len(labelled)))
    test_parts = parts[:1] if len(labelled) >= _ENOUGH else parts
    return [(labelled.iloc[np.setdiff1d(order, part)], labelled.iloc[part]) for part in test_parts]


def _efficacy_of_splits(
    splits: list[tuple[pd.DataFrame, pd.DataFrame]], **options: Any
) -> pd.DataFrame:
    """The mean of `ml_efficacy` over splits whose test rows are different ones."""
    tables = [ml_efficacy(real_train=train, real_test=test, **options) for train, test in splits]
    if len(tables) == 1:
        return tables[0]
    table = pd.concat(tables, ignore_index=True)
    groups = table.groupby(["learner", "metric", "source"], sort=False)
    combined = groups[["mean", "sd", "gap"]].mean()
    for name in ("se", "gap_se"):
        if name in table:  # of the mean of independent errors
            combined[name] = groups[name].agg(
                lambda values: np.sqrt((values**2).mean() / len(values))
            )
    combined["n_tables"] = groups["n_tables"].first()
    combined["note"] = groups["note"].agg(
        lambda values: "; ".join(dict.fromkeys(filter(None, values)))
    )
    return combined.reset_index()[[*tables[0].columns]]


def _guess_score(metric: Metric, tested: pd.Series, train: pd.Series, test: pd.Series) -> float:
    """Score of predictions that do not use the columns; of numbers in the deviations of ``train``.

    ``train`` and ``test`` are the targets of a split, whose rarer class is the positive one.
    """
    if metric.name in METRICS["classification"]:
        codes = tested.cat.codes.to_numpy(dtype=np.intp)
        classes, positive = tested.cat.categories, 1
        if len(classes) == 2:
            counts = pd.concat([train, test]).value_counts().reindex(classes).to_numpy()
            positive = positive_class(classes.to_numpy(), counts)
        guess = guess_targets(metric.name, codes, len(codes), len(classes))
        return metric.values(*as_positive(positive, codes, *guess))
    values = tested.to_numpy(dtype=np.float64) / (train.std(ddof=0) or 1.0)
    return metric.values(values, *guess_targets(metric.name, values, len(values)))


def _seen(train: pd.DataFrame, test: pd.DataFrame) -> int:
    """Count the rows of ``test`` that are in ``train`` as well, 0 if that may be chance."""
    copies = find_copies(train, test)
    excess = copies.exact.rows - copies.exact.expected
    return copies.rows if copies.signs and excess >= _OVERLAP * len(test) else 0


@dataclass(frozen=True)
class _Fidelity:
    """The finding on fidelity, and the scores that it is based on."""

    finding: Finding
    fidelity: pd.DataFrame
    detection: pd.DataFrame
    detection_parts: pd.DataFrame


def _evaluate_fidelity(
    aligned: AlignedTables,
    left_out: list[Hashable],
    clock: Clock,
    options: Mapping[str, Any],
) -> _Fidelity:
    """Compare columns and pairs of columns, and run two-sample tests."""
    train, rows, test = aligned["real"], aligned["synthetic"], aligned.tables.get("test")
    sources = {SYNTHETIC: rows} | ({} if test is None else {HELD_OUT: test})
    categories, seed = aligned.columns("category"), options["random_state"]
    with clock("fidelity", "comparing columns and pairs of columns"):
        scores = fidelity(real=train, synthetic=sources, categorical=categories, random_state=seed)
        yardsticks = measure_yardsticks(
            train, n_rows=len(rows), kinds=aligned.kinds, random_state=seed
        )
    with clock("detection", "distinguishing synthetic rows from real rows"):
        detection_scores = _run_detection(train, rows, test, options)
    with clock("detection", "comparing single columns and pairs of columns"):
        parts = _run_detection_parts(train, rows, test, {"categorical": categories, **options})
    finding = judge_fidelity(
        scores,
        detection_scores,
        yardsticks,
        n_train=len(train),
        n_made=len(rows),
        n_test=0 if test is None else len(test),
        left_out=left_out,
    )
    return _Fidelity(finding, scores, detection_scores, parts)


def _run_detection(
    train: pd.DataFrame,
    synthetic: pd.DataFrame,
    test: pd.DataFrame | None,
    options: Mapping[str, Any],
) -> pd.DataFrame:
    """Run `detection` on the tables that have rows enough for two folds."""
    real, sources = train, {SYNTHETIC: synthetic}
    if test is not None:
        real, sources[HELD_OUT] = test, train
    enough = {name: table for name, table in sources.items() if len(table) >= 2}
    if len(real) < 2 or not enough:
        return pd.DataFrame(columns=_DETECTION)
    n_splits = min(_FOLDS, len(real), *map(len, enough.values()))
    return detection(real=real, synthetic=enough, n_splits=n_splits, **options)


def _run_detection_parts(
    train: pd.DataFrame,
    synthetic: pd.DataFrame,
    test: pd.DataFrame | None,
    options: Mapping[str, Any],
) -> pd.DataFrame:
    """Run `detection_parts` on the synthetic rows and, for all columns, on training rows."""
    real = train if test is None else test
    if min(len(real), len(synthetic)) < _ENOUGH_PARTS:
        return pd.DataFrame(columns=_PART_COLUMNS)
    parts = detection_parts(real=real, synthetic=synthetic, **{**_PARTS_TESTED, **options})
    results = [parts.assign(source=SYNTHETIC)]
    if test is not None and len(train) >= _ENOUGH_PARTS:
        all_columns = {**_PARTS_TESTED, "n_columns": 0, "n_pairs": 0, **options}
        results.append(
            detection_parts(real=real, synthetic=train, **all_columns).assign(source=HELD_OUT)
        )
    return pd.concat(results, ignore_index=True)
