"""Evaluation of a synthetic database: keys, families, dependence between tables, and privacy."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from combutab._version import __version__
from combutab.core.html import ChartRow, interval_chart, result_html
from combutab.core.requirements import DATABASE_SCORES
from combutab.evaluation import (
    AlignedDatabases,
    AlignedTables,
    compare_databases,
    fidelity,
)
from combutab.preprocessing import ForeignKey, read_keys, read_tables
from combutab.reports._charts import least_rows
from combutab.reports._copies import Repeated, find_copied_values
from combutab.reports._findings import (
    HELD_OUT,
    REAL,
    SYNTHETIC,
    Finding,
    TwoSample,
    judge_test,
    percent,
)
from combutab.reports._named_scores import ScoredEvaluation, mean_match, person_scores
from combutab.reports._page import say, versions
from combutab.reports._synthetic import (
    Clock,
    align_and_identify,
    describe,
    evaluate_privacy,
    with_promise,
    without_columns,
    without_nan,
)

_ROLES = {"real": "real database", "synthetic": "synthetic database", "test": "held-out database"}
_TESTS = {"rows": "rows", "with children": "children", "with siblings": "siblings"}


@dataclass(frozen=True, eq=False)
class ComparedTable:
    """One table of a `TablesEvaluation`, without the columns of keys.

    Attributes
    ----------
    train, synthetic : DataFrame
        Aligned rows.
    test : DataFrame or None
        Held-out real rows.
    kinds : mapping of column name to {"number", "category", "datetime"}
    identifiers : tuple of column names
        Columns of identifiers, which are left out of all scores.
    fidelity : DataFrame
        Result of `combutab.evaluation.fidelity`, without "alpha_precision" and "beta_recall".
    least_rows : int
        Number of real rows that must have a value for the report to show it.
    """

    train: pd.DataFrame
    synthetic: pd.DataFrame
    test: pd.DataFrame | None
    kinds: Mapping[Hashable, str]
    identifiers: tuple[Hashable, ...]
    fidelity: pd.DataFrame
    least_rows: int


@dataclass(frozen=True, eq=False)
class PersonPrivacy:
    """Privacy of the rows of a root table with all their descendants: each is one person.

    Attributes
    ----------
    finding : Finding
    privacy : DataFrame or None
        Result of `combutab.evaluation.privacy` for rows with summaries of their descendants.
    attacks : mapping of str to DataFrame
        Results of the attacks on these rows, as in `SyntheticEvaluation`.
    copies : int
        Number of synthetic rows that equal a training row in all columns and summaries.
    n_families : int
        Number of synthetic rows with children.
    copied_families : int
        Number of them that equal a training row with all its descendants in every column.
    expected_families : float
        Number expected for held-out rows, scaled to as many families; NaN without held-out rows.
    """

    finding: Finding
    privacy: pd.DataFrame | None
    attacks: Mapping[str, pd.DataFrame]
    copies: int
    n_families: int
    copied_families: int
    expected_families: float


@dataclass(frozen=True, eq=False)
class TablesEvaluation(ScoredEvaluation):
    """Result of `evaluate_synthetic` for databases, with a summary.

    Attributes
    ----------
    keys : list of ForeignKey
    relations : DataFrame
        Result of `combutab.evaluation.compare_databases`.
    tables : mapping of str to ComparedTable
        The columns of each table.
    privacy : mapping of str to PersonPrivacy
        Privacy of the rows of each root table with their descendants.
    findings : tuple of Finding
        Findings on keys, fidelity and privacy, in this order.
    settings : mapping of str to str
        Settings of the generator; empty if they are not known.
    versions : mapping of str to str
        Versions of the software of the evaluation.
    seed : int
        Random seed of the evaluation.
    seconds : mapping of str to float
        Time of each part of the evaluation, in seconds.
    names : mapping of {"real", "synthetic", "test"} to str
        Names of the databases in the report.
    n_rows : DataFrame
        Number of rows of each table (index) in the databases (columns).
    n_children : mapping of str to mapping of role to ndarray
        Key -> the numbers of children of all parents in each database. Keys of lookup tables are
        left out.
    columns : mapping of str to tuple of str
        Table -> its columns, with those of keys.
    """

    keys: list[ForeignKey]
    relations: pd.DataFrame
    tables: Mapping[str, ComparedTable]
    privacy: Mapping[str, PersonPrivacy]
    findings: tuple[Finding, Finding, Finding]
    settings: Mapping[str, str]
    versions: Mapping[str, str]
    seed: int
    seconds: Mapping[str, float]
    names: Mapping[str, str]
    n_rows: pd.DataFrame
    n_children: Mapping[str, Mapping[str, np.ndarray]]
    columns: Mapping[str, tuple[str, ...]]

    @property
    def scores(self) -> dict[str, float]:
        """The scores that `require` may name; NaN if a score is not known."""
        return database_scores(self)

    def formatted(self) -> pd.DataFrame:
        """The figures by table and key, with those of real tables for comparison.

        Returns
        -------
        DataFrame, one row per figure
            ``synthetic``, and ``real``: of the held-out tables for keys and numbers of children,
            and of the training tables compared with the held-out ones for scores.
        """
        rows: dict[tuple[str, str], dict[str, float]] = {}
        figures: list[dict[Any, Any]] = self.relations[
            self.relations["aspect"] != "trends"
        ].to_dict("records")
        trends = self.relations[self.relations["aspect"] == "trends"]
        means = trends.groupby(["table", "key", "source"], sort=False)["value"].mean()
        figures += means.reset_index().assign(aspect="trends", measure="trends").to_dict("records")
        has_test = HELD_OUT in self.relations["source"].to_numpy()
        for row in figures:
            value, is_test = row["value"], row["aspect"] == "detection"
            name = f"ROC AUC {row['measure']}" if is_test else row["measure"]
            cells = rows.setdefault((row["key"] or row["table"], name), {})
            if row["source"] == SYNTHETIC:
                cells["synthetic"] = value
            elif row["source"] == (HELD_OUT if has_test else REAL):
                cells["real"] = value
        index = pd.MultiIndex.from_tuples([*rows], names=["table or key", "figure"])
        return pd.DataFrame([*rows.values()], index, columns=["synthetic", "real"], dtype=float)

    def to_json(self) -> str:
        """Return scores, findings and figures as JSON, without rows; unknown values are null."""
        figures = self.relations.to_dict("records")
        record = {
            "combutab": __version__,
            "databases": {
                role: {"name": self.names[role], "n_rows": self.n_rows[role].to_dict()}
                for role in map(str, self.n_rows)
            },
            "keys": [str(key) for key in self.keys],
            "seed": self.seed,
            "levels": {finding.subject: finding.level for finding in self.findings},
            "scores": self.scores,
            "findings": {finding.subject: finding.sentence for finding in self.findings},
            "figures": [{k: v for k, v in row.items() if v is not None} for row in figures],
            "attacks": {
                table: {name: rows.to_dict("records") for name, rows in person.attacks.items()}
                for table, person in self.privacy.items()
            },
        }
        return json.dumps(without_nan(record), indent=2, ensure_ascii=False, default=str)

    def __repr__(self) -> str:
        levels = ", ".join(f"{finding.subject}={finding.level!r}" for finding in self.findings)
        return f"TablesEvaluation({levels}, tables={[*self.tables]})"

    def __str__(self) -> str:
        lines = [f"{card.subject}: {card.level}. {card.short}" for card in self.findings]
        return "\n".join([*lines, "", self.formatted().round(3).to_string(na_rep="")])

    def _repr_html_(self) -> str:
        sentences = [
            f"{finding.subject.capitalize()}: {finding.sentence} ({finding.level})"
            for finding in self.findings
        ]
        rows = [
            ChartRow(
                f"{test['label']}, {source}",
                area,
                area - 2 * se,
                area + 2 * se,
                source != SYNTHETIC,
            )
            for test, source in product(two_sample_tests(self.relations), (SYNTHETIC, HELD_OUT))
            for area, se, _ in [test[source]] * (source in test)
        ]
        caption = "ROC AUC of two-sample tests, with two standard errors. 0.5 is chance"
        chart = interval_chart(rows, (0.5, 1.0), caption)
        tables = [("All figures", self.formatted().round(3).reset_index())]
        return result_html(self.names["synthetic"], sentences, chart, caption, tables)


# ---- Scores and two-sample tests -----------------------------------------------------------------


def two_sample_tests(relations: pd.DataFrame) -> list[dict[str, Any]]:
    """The tests: table, key, measure, a label, and by source (ROC AUC, standard error, rows)."""
    tests: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in relations[relations["aspect"] == "detection"].to_dict("records"):
        table, key, measure = row["table"], row["key"], row["measure"]
        label = f"{table} alone"
        if key:
            label = f"{table} with {key.partition('.')[0]}"
            label += ", as a sequence" * (measure == "with siblings")
        test = tests.setdefault(
            (table, key, measure), {"table": table, "key": key, "measure": measure, "label": label}
        )
        test[row["source"]] = (row["value"], row["se"], int(row["n_rows"]))
    return list(tests.values())


def database_scores(evaluation: TablesEvaluation) -> dict[str, float]:
    """Compute all scores by name; NaN if not known."""
    table = evaluation.relations
    values = table.pivot_table(
        index=["table", "key"], columns=["measure", "source"], values="value", sort=False
    )
    none = pd.Series(np.nan, index=values.index)

    def of(measure: str, source: str = SYNTHETIC) -> pd.Series:
        return values.get((measure, source), none)

    scores = {
        "keys_unique": of("unique").min(),
        "orphans": of("orphans").max(),
        "missing_keys": (of("missing") - of("missing", REAL)).abs().max(),
        "cardinality": of("ks").min(),
        "childless": (of("childless") - of("childless", REAL)).abs().max(),
    }
    trends = table[(table["aspect"] == "trends") & (table["source"] == SYNTHETIC)]
    scores["trends"] = trends["value"].mean()
    for measure, name in _TESTS.items():
        scores[f"detection_{name}"] = 2 * (1 - of(measure).clip(lower=0.5)).min()
    matches = [mean_match(part.fidelity) for part in evaluation.tables.values()]
    scores["columns"] = np.nanmin(matches) if matches else np.nan
    persons = evaluation.privacy.values()
    scores["copied_families"] = sum(person.copied_families for person in persons)
    scores |= person_scores([*persons])
    return {name: float(scores[name]) for name in DATABASE_SCORES}


# ---- Evaluation ----------------------------------------------------------------------------------


def evaluate_database(
    *,
    real_train: Mapping[str, Any],
    synthetic: Mapping[str, Any],
    real_test: Mapping[str, Any] | None,
    keys: Any,
    order_by: Mapping[str, str] | None,
    lookup: Collection[str] | None,
    categorical: Mapping[str, Collection[Hashable]],
    identifiers: Mapping[str, Collection[Hashable]],
    settings: Mapping[str, str],
    generator: Any,
    names: Mapping[str, str] | None,
    min_frequency: float,
    random_state: int,
    n_jobs: int | None,
    progress: Callable[[str], None] | None,
) -> TablesEvaluation:
    """Evaluate a database; see `evaluate_synthetic`."""
    database_names, settings = _ROLES | dict(names or {}), describe(generator) | dict(settings)
    raw = {"real": read_tables(real_train), "synthetic": read_tables(synthetic)}
    raw |= {} if real_test is None else {"test": read_tables(real_test)}
    _check_same_columns(raw, database_names)
    if keys is None:
        keys = getattr(generator, "keys_", "auto")
    foreign_keys = read_keys(raw["real"], keys)
    order = dict(getattr(generator, "order_by_", {})) if order_by is None else dict(order_by)
    fixed = list(getattr(generator, "lookup_", ()) if lookup is None else lookup)
    for table in (*order, *fixed, *categorical, *identifiers):
        if table not in raw["real"]:
            raise ValueError(f"there is no table {table!r}; the tables are {[*raw['real']]}")
    clock = Clock(progress)
    options: dict[str, Any] = {"random_state": random_state, "n_jobs": n_jobs}
    complete, aligned, left_out = {}, {}, {}
    for table in raw["real"]:
        complete[table], left_out[table] = _align_cells(
            raw,
            table,
            foreign_keys,
            database_names,
            list(categorical.get(table, ())),
            identifiers.get(table),
        )
        aligned[table] = without_columns(complete[table], left_out[table])
        if order.get(table, table) not in (table, *aligned[table].kinds):
            raise ValueError(f"order_by: table {table!r} has no column {order[table]!r}")
    databases = AlignedDatabases(raw, aligned, foreign_keys, order, fixed)
    with clock("relations", "comparing keys, families and rows"):
        relations = compare_databases(databases, **options)
    tables = {}
    for table, parts in aligned.items():
        if parts.kinds and table not in fixed:
            with clock("fidelity", f"comparing the columns of {table}"):
                tables[table] = _compare_table(parts, left_out[table], min_frequency)
    privacy = {}
    for table in _find_roots(databases):
        with clock("privacy", f"comparing the rows of {table} and their children with real ones"):
            privacy[table] = _compare_persons(databases, table, relations, options)
    copied = _find_copied_texts({t: parts for t, parts in complete.items() if t not in fixed})
    finding = _judge_databases([person.finding for person in privacy.values()], copied)
    return TablesEvaluation(
        keys=foreign_keys,
        relations=relations,
        tables=tables,
        privacy=privacy,
        findings=(
            _judge_keys(relations),
            _judge_tables(relations, left_out),
            with_promise(finding, settings.get("Differential privacy")),
        ),
        settings=settings,
        versions=versions(),
        seed=random_state,
        seconds=clock.seconds,
        names=database_names,
        n_rows=pd.DataFrame({role: {n: len(t) for n, t in d.items()} for role, d in raw.items()}),
        n_children={
            str(key): {role: databases.count_children(role, key) for role in raw}
            for key in foreign_keys
            if key.parent not in fixed
        },
        columns={name: tuple(map(str, table)) for name, table in raw["real"].items()},
    )


def _check_same_columns(
    raw: Mapping[str, Mapping[str, pd.DataFrame]], names: Mapping[str, str]
) -> None:
    for role, tables in raw.items():
        if lacking := [table for table in raw["real"] if table not in tables]:
            raise ValueError(f"{names[role]} lacks the tables {lacking}")
        if added := [table for table in tables if table not in raw["real"]]:
            raise ValueError(f"{names[role]} has the tables {added}, which are not real ones")
        for table, rows in raw["real"].items():
            if differing := {*map(str, rows)} ^ {*map(str, tables[table])}:
                raise ValueError(
                    f"table {table!r} of {names[role]} must have the columns {[*rows]}; "
                    f"{sorted(differing)} are missing or added"
                )


def _align_cells(
    raw: Mapping[str, Mapping[str, pd.DataFrame]],
    table: str,
    keys: Sequence[ForeignKey],
    names: Mapping[str, str],
    categorical: list[Hashable],
    identifiers: Collection[Hashable] | None,
) -> tuple[AlignedTables, list[Hashable]]:
    """The columns of a table that are part of no key, and which of them are identifiers."""
    of_keys = {column for key in keys if key.child == table for column in key.columns}
    of_keys |= {column for key in keys if key.parent == table for column in key.parent_columns}
    rows = {role: tables[table].drop(columns=[*of_keys]) for role, tables in raw.items()}
    if not rows["real"].shape[1]:
        return AlignedTables(rows, {}, {}), []
    table_names = {role: f"table {table!r} of {name}" for role, name in names.items()}
    aligned, columns = align_and_identify(
        rows, table_names, categorical, identifiers, None, None, None, keep_one=False
    )
    return aligned, columns


def _compare_table(
    aligned: AlignedTables, identifiers: list[Hashable], min_frequency: float
) -> ComparedTable:
    sources = {SYNTHETIC: aligned["synthetic"]}
    sources |= {HELD_OUT: aligned["test"]} if "test" in aligned.tables else {}
    scores = fidelity(
        real=aligned["real"],
        synthetic=sources,
        categorical=aligned.columns("category"),
        max_rows=2,  # of alpha-precision and beta-recall, which are not shown
    )
    return ComparedTable(
        aligned["real"],
        aligned["synthetic"],
        aligned.tables.get("test"),
        aligned.kinds,
        tuple(identifiers),
        scores[scores["aspect"] != "support"],
        least_rows(min_frequency, len(aligned["real"])),
    )


# ---- Privacy: a row of a root table with all its descendants is one person -----------------------


def _find_roots(databases: AlignedDatabases) -> list[str]:
    """The tables whose rows have no parent, except in lookup tables."""
    children = {key.child for key in databases.keys if key.parent not in databases.lookup}
    return [name for name in databases.tables if name not in {*children, *databases.lookup}]


def _compare_persons(
    databases: AlignedDatabases, root: str, relations: pd.DataFrame, options: Mapping[str, Any]
) -> PersonPrivacy:
    roles = [*databases.raw]
    persons = {role: databases.persons(role, root) for role in roles}
    kinds = {name: databases.tables[root].kinds.get(name, "number") for name in persons["real"]}
    aligned = AlignedTables(persons, kinds, dict(databases.tables[root].n_known))
    compared = {"categorical": aligned.columns("category"), **options}
    tests = [test for test in two_sample_tests(relations) if test["table"] == root]
    control = next((TwoSample(*test[HELD_OUT]) for test in tests[::-1] if HELD_OUT in test), None)
    scores, copies = None, 0
    attacks: dict[str, pd.DataFrame] = {}
    finding = Finding("privacy", "unknown", f"Not known: table {root!r} has no columns.")
    if kinds:
        scores, attacks, copies, finding = evaluate_privacy(aligned, [], None, compared, control)
    labels = {role: _labels_of_families(databases, role, root) for role in roles}
    copied = {role: int(np.isin(labels[role], labels["real"]).sum()) for role in roles}
    expected = np.nan
    if "test" in labels and len(labels["test"]):
        expected = copied["test"] / len(labels["test"]) * len(labels["synthetic"])
    n, n_copied = len(labels["synthetic"]), copied["synthetic"]
    has_children = bool(databases.keys_to(root))
    sentences = say(
        "families", table=root, has_children=has_children, n=n, copied=n_copied, expected=expected
    )
    finding = replace(
        finding, sentence=" ".join([*sentences[:1], finding.sentence, *sentences[1:]])
    )
    return PersonPrivacy(finding, scores, attacks, copies, n, n_copied, expected)


def _labels_of_families(databases: AlignedDatabases, role: str, root: str) -> np.ndarray:
    """The labels of the rows that have children."""
    labels = databases.family_labels(role, root)
    n_children = np.zeros(len(labels))
    for key in databases.keys_to(root):
        n_children += databases.count_children(role, key)
    return labels[n_children > 0]


def _find_copied_texts(tables: Mapping[str, AlignedTables]) -> dict[str, Repeated]:
    """The columns of texts and identifiers whose values identify training rows and are copied."""
    copied: dict[str, Repeated] = {}
    for name, aligned in tables.items():
        columns = aligned.columns("category")
        test = aligned["test"][columns] if "test" in aligned.tables else None
        values = find_copied_values(aligned["real"][columns], aligned["synthetic"][columns], test)
        copied |= {f"{name}.{column}": repeated for column, repeated in values.items()}
    return copied


def _judge_databases(findings: Sequence[Finding], copied: Mapping[str, Repeated]) -> Finding:
    """The worst finding on privacy of the root tables, and copied texts of all tables."""
    unknown = Finding("privacy", "unknown", "Not known: there is no table to compare.")
    finding = min(findings, key=lambda card: _LEVELS.index(card.level), default=unknown)
    if not copied:
        return finding
    words = say("copied_texts", copied=copied)
    sentence = " ".join([*words, finding.sentence])
    return replace(finding, level="poor", sentence=sentence, headline="Real values are copied.")


# ---- Findings ------------------------------------------------------------------------------------

_LEVELS = ("poor", "unknown", "fair", "good")


def _judge_keys(relations: pd.DataFrame) -> Finding:
    table = relations[(relations["aspect"] == "keys") & (relations["source"] == SYNTHETIC)]
    if table.empty:
        return Finding("keys", "unknown", "There are no keys.")
    values = table.pivot_table(index="key", columns="measure", values="value", sort=False)
    wrong = values[(values["unique"] < 1) | (values["orphans"] > 0)]
    sentences = say("keys", n=len(values), wrong=wrong.reset_index().to_dict("records"))
    return Finding("keys", "poor" if len(wrong) else "good", " ".join(sentences))


def _judge_tables(relations: pd.DataFrame, left_out: Mapping[str, Sequence[Hashable]]) -> Finding:
    """The finding on fidelity, by the two-sample test that distinguishes best."""
    tests = [test for test in two_sample_tests(relations) if SYNTHETIC in test]
    worst = max(tests, key=lambda test: test[SYNTHETIC][0], default=None)
    detected = None if worst is None else TwoSample(*worst[SYNTHETIC])
    real = TwoSample(*worst[HELD_OUT]) if worst and HELD_OUT in worst else None
    has_test = HELD_OUT in set(relations["source"])
    level, sentences = judge_test(detected, real, has_test)
    trends = relations[relations["aspect"] == "trends"].groupby("source")["value"].mean()
    counts = relations[relations["aspect"] == "cardinality"].pivot_table(
        index="key", columns=["measure", "source"], values="value", sort=False
    )
    sentences += say(
        "database",
        worst=worst and worst["label"],
        n_tests=len(tests),
        childless=_largest_difference(counts),
        n_keys=len(counts),
        cardinality=percent(counts["ks", SYNTHETIC].min()) if len(counts) else "",
        trends={source: percent(value) for source, value in trends.items()},
    )
    sentence = " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences)
    columns = [f"'{table}.{column}'" for table, names in left_out.items() for column in names]
    facts = {"has_test": has_test, "differ": False, "left_out": ", ".join(columns)}
    notes = say("fidelity_notes", level=level, told=detected, **facts)
    return Finding("fidelity", level, sentence, tuple(notes))


def _largest_difference(counts: pd.DataFrame) -> tuple[str, float, float] | None:
    """The key whose shares of parents without children differ most, and both shares."""
    if counts.empty:
        return None
    shares = counts["childless"]
    key = (shares[SYNTHETIC] - shares[REAL]).abs().idxmax()
    return str(key), shares[SYNTHETIC][key], shares[REAL][key]
