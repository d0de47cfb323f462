"""``combutab evaluate``: utility, fidelity and privacy of a synthetic table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from combutab.cli import _options
from combutab.cli._console import (
    UNMET,
    UserError,
    echo,
    hint,
    no_early_ends,
    printable,
    refusals,
    spinner,
    warn,
)
from combutab.cli._databases import (
    DatabaseOptions,
    check_names,
    find_table_files,
    is_database_model,
    load_database_model,
    parse_database,
    read_database,
    refuse_options,
)
from combutab.core.requirements import (
    DATABASE_SCORES,
    SCORES,
    Requirement,
    Score,
    parse_requirement,
    unmet_requirements,
)
from combutab.core.text import counted

if TYPE_CHECKING:
    import pandas as pd

    from combutab.datasets.formats import FileFormat
    from combutab.reports import SyntheticEvaluation

_ROLES = {"real": "REAL", "synthetic": "SYNTHETIC", "test": "--test"}
_SINGLE = ("target", "task", "learners", "metric", "discrete", "drop", "identifiers", "person")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(DatabaseOptions, _options.ReadOptions):
    """The options of ``combutab evaluate``.

    Options
    -------
    real : REAL
        Table of the real rows that the generator was trained on: READABLE. For several tables
        with keys, a folder with all of them; SYNTHETIC and --test are then folders too.
    synthetic : SYNTHETIC
        Table of the synthetic rows, with the same columns.
    test : FILE
        Table of real rows that the generator was not trained on (hold-out). Models are tested on
        them, and attacks on REAL are compared with attacks on them. Without this table, models are
        tested on parts of REAL, and privacy is measured only by copied rows and near copies.
    out : FILE
        HTML report to write, such as report.html.
    json : FILE
        JSON file to write, such as report.json, with the scores and findings.
    require : SCORE>=NUMBER
        Requirement, such as "detection>=0.8" or "membership_tpr@1%<=0.03" (signs: <=, >=, <, >).
        The option may be repeated. Each requirement that is not met gives one line, and the exit
        code is 3. Scores: SCORES. Scores of several tables: DATABASE.
    model : FILE
        Saved generator (`combutab synth --save`). The report lists its settings. Columns for which
        it makes new identifiers are left out of all scores.

    Utility
    -------
    target : COLUMN
        Column that models are trained to predict, to measure the utility of the synthetic rows.
    task : NAME
        Prediction task: classification, regression, or auto to infer it from the target.
    learners : NAMES
        Models that are trained to predict the target: standard, or names separated by commas:
        linear, decision_tree, random_forest, hist_gradient_boosting, mlp, xgboost, catboost.
    metric : NAME, default roc_auc; r2 for regression
        Metric of the utility: METRICS.

    Columns
    -------
    identifiers : COLUMNS, default detected
        Columns that identify rows, such as a customer number, separated by commas. They are left
        out of all scores, as are those that are detected.
    person : COLUMN
        Column with the person that each row belongs to, if persons have several rows. Privacy
        attacks then count persons.
    min_frequency : NUMBER
        Smallest number of rows of REAL (5) or fraction of them (0.01) that must have a value for
        the report to show it.

    Computation
    -----------
    jobs : NUMBER, default 1
        Number of tables that are evaluated at the same time.
    """

    real: _options.Table
    synthetic: _options.Table
    test: Path | None = None
    out: _options.OptionalOut = None
    json: Path | None = None
    require: list[str] | None = None
    model: Path | None = None
    target: str | None = None
    task: _options.Task = "auto"
    learners: str = "standard"
    metric: str | None = None
    discrete: _options.Columns = None
    drop: _options.Columns = None
    identifiers: _options.Columns = None
    person: str | None = None
    min_frequency: _options.Frequency = 5
    seed: _options.Seed = 0
    jobs: _options.OptionalCount = None


def evaluate(options: EvaluateOptions) -> None:
    """Evaluate synthetic rows: utility, fidelity and privacy.

    Utility: how well models that are trained on the synthetic rows predict real rows. Fidelity: how
    similar columns and pairs of columns are to those of the real table. Privacy: whether synthetic
    rows are copies of real rows, and what attackers learn about the real rows from them.

    Example: combutab evaluate customers.csv synthetic.csv --target churn
    """
    paths = {"real": options.real, "synthetic": options.synthetic}
    paths |= {} if options.test is None else {"test": options.test}
    is_database = options.real.is_dir()
    names = _SINGLE if is_database else ("key", "order_by", "lookup")
    refuse_options(options, *names, several=not is_database)
    requirements = _read_requirements(options, DATABASE_SCORES if is_database else SCORES)
    _check_evaluate_options(options, paths)
    evaluation = (_evaluate_databases if is_database else _evaluate_table)(options, paths)
    if options.json is not None:
        from combutab.core.files import whole_file

        with _options.writing(options.json), whole_file(options.json) as temporary:
            temporary.write_text(evaluation.to_json() + "\n", encoding="utf-8")
        options.echo_done(f"Wrote {options.json}")
    write_and_print(options, evaluation, options.out)
    _check_requirements(evaluation, requirements)


def _evaluate_table(options: EvaluateOptions, paths: Mapping[str, Path]) -> Any:
    from combutab.cli import _files, _generators

    generator, description = None, dict[str, str]()
    if options.model is not None:
        generator, _, description = _generators.load_generator(options.model, "cpu")
    tables = _read_tables(options, paths)
    real = tables["real"]
    target = None if options.target is None else _options.find_target(options.target, real.columns)
    person = options.person
    if person is not None:
        person = _options.column_named("--person", person, real.columns)
    categorical = _options.find_columns("--discrete", options.discrete, real.columns)
    if target not in (None, *categorical) and real[target].count():
        classify = "--task classification"
        _files.task_of(real[target], options.task, options.real, options.reading, classify)
    _files.hint_at_odd_columns(real, options.reading, identifiers=False)
    learners = [name.strip() for name in options.learners.split(",")]
    return evaluate_tables(
        real_train=real,
        synthetic=tables["synthetic"],
        real_test=tables.get("test"),
        target=target,
        task=options.task,
        categorical=categorical,
        scoring=options.metric,
        learners=learners[0] if len(learners) == 1 else learners,
        identifiers=_options.find_columns("--identifiers", options.identifiers, real.columns),
        person=person,
        generator=generator,
        made=description,
        names=file_names(paths),
        min_frequency=options.min_frequency,
        random_state=options.seed,
        n_jobs=options.jobs,
    )


def _evaluate_databases(options: EvaluateOptions, paths: Mapping[str, Path]) -> Any:
    for role, path in paths.items():
        if not path.is_dir():
            raise UserError(f"{_ROLES[role]} {path} must be a folder, because REAL is a folder")
    files = {role: find_table_files([path]) for role, path in paths.items()}
    check_names(options, [*files["real"]])
    model, forms = None, dict[str, Any]()
    if options.model is not None:
        if not is_database_model(options.model):
            raise UserError(f"the model in {options.model} is not one of several tables")
        model, forms, _ = load_database_model(options.model, "cpu")
    tables, forms = read_database(files["real"], options, forms)
    contents = {"real": (tables, forms)}
    for role in [*paths][1:]:
        contents[role] = read_database(files[role], options, forms)
    databases: dict[str, dict[str, Any]] = {
        role: dict(tables) for role, (tables, _) in contents.items()
    }
    for name in tables:
        of_roles = {role: (t[name], f[name]) for role, (t, f) in contents.items() if name in t}
        for role, table in _in_one_format(of_roles).items():
            databases[role][name] = table
    return evaluate_tables(
        real_train=databases["real"],
        synthetic=databases["synthetic"],
        real_test=databases.get("test"),
        generator=model,
        names=file_names(paths),
        min_frequency=options.min_frequency,
        random_state=options.seed,
        n_jobs=options.jobs,
        **parse_database(options, tables),
    )


# ---- input -------------------------------------------------------------------------------------


def _check_evaluate_options(options: EvaluateOptions, paths: Mapping[str, Path]) -> None:
    """Check the options that need no table."""
    inputs = {_ROLES[role]: path for role, path in paths.items()}
    _options.check_outputs(
        {"--out": options.out, "--json": options.json}, {**inputs, "--model": options.model}
    )
    for option, value in options.changed("task", "metric").items():
        if options.target is None:
            raise UserError(f"{option} {value} needs a column to predict: --target COLUMN")
    resolved_paths = {role: path.resolve() for role, path in paths.items()}
    if resolved_paths.get("test") == resolved_paths["real"]:
        raise UserError(
            f"--test {options.test} is the same file as REAL; give real rows that the generator "
            "was not trained on, or leave --test out"
        )
    for role in ("real", "test"):
        if resolved_paths.get(role) == resolved_paths["synthetic"]:
            warn(
                f"SYNTHETIC is the same file as {_ROLES[role]}, {paths['synthetic']}: a table is "
                "compared with itself"
            )


def _read_requirements(options: EvaluateOptions, scores: Mapping[str, Score]) -> list[Requirement]:
    """Read the requirements, and check that they can be known."""
    with refusals():
        requirements = [parse_requirement(text, scores) for text in options.require or ()]
    for requirement in requirements:
        needs = scores[requirement.name].needs
        if needs == "test" and options.test is None:
            raise UserError(
                f"--require {requirement} needs real rows that the generator was not trained on: "
                "--test FILE"
            )
        if needs == "target" and options.target is None:
            raise UserError(f"--require {requirement} needs a column to predict: --target COLUMN")
    return requirements


def _check_requirements(
    evaluation: SyntheticEvaluation, requirements: Sequence[Requirement]
) -> None:
    """Print a line for each requirement that is not met, and end the command with its code."""
    failures = unmet_requirements(evaluation.scores, requirements) if requirements else []
    for failure in failures:
        hint(f"requirement not met: {failure}")
    if failures:
        raise typer.Exit(UNMET)
    if requirements:
        echo(f"{counted(len(requirements), 'requirement')} met.")


def _read_tables(options: EvaluateOptions, paths: Mapping[str, Path]) -> dict[str, pd.DataFrame]:
    """Read the tables in one format, without the columns that --drop names."""
    from combutab.cli import _files

    real, forms = _files.read_file(options.real, options.reading)
    contents = {"real": (real, forms)}
    for role, path in [*paths.items()][1:]:
        contents[role] = _files.read_file(path, options.reading, forms)
    tables = _in_one_format(contents)
    columns = dict.fromkeys(column for table in tables.values() for column in table)
    dropped = _options.find_columns("--drop", options.drop, columns)
    if set(tables["real"]) <= set(dropped):
        raise UserError("--drop leaves out all columns of REAL; keep at least one")
    return {role: table.drop(columns=dropped, errors="ignore") for role, table in tables.items()}


def file_names(paths: Mapping[str, Path]) -> dict[str, str]:
    """Return the names of the files, or their paths if two files share a name."""
    names = {role: path.name for role, path in paths.items()}
    if len(set(names.values())) < len(names):
        names = {role: str(path) for role, path in paths.items()}
    # a name with invalid characters cannot be written as UTF-8
    return {role: name.encode(errors="replace").decode() for role, name in names.items()}


def _in_one_format(
    contents: Mapping[str, tuple[pd.DataFrame, FileFormat]],
) -> dict[str, pd.DataFrame]:
    """Name the columns as in the real table, and read all dates in one format.

    Column names are text in a text file, and may be numbers in a Parquet file. Dates that are
    ambiguous in one file may be unambiguous in another.
    """
    from combutab.core.dates import read_dates

    columns = {str(column): column for column in contents["real"][0]}
    tables = {}
    dates: dict[str, str] = {}
    for _, forms in contents.values():
        dates = forms.dates | dates
    for role, (table, forms) in contents.items():
        table = table.set_axis([columns.get(str(name), name) for name in table], axis=1)
        for name in table:
            if str(name) in dates and str(name) not in forms.dates:
                with suppress(ValueError):  # values that are not dates remain as they are
                    table[name] = read_dates(table[name].astype("string"), dates[str(name)])
        tables[role] = table
    return tables


# ---- evaluation --------------------------------------------------------------------------------


def evaluate_tables(**arguments: Any) -> Any:
    """Call `evaluate_synthetic` and show its progress; errors become UserErrors."""
    from rich.text import Text

    from combutab.reports import evaluate_synthetic

    with spinner("Reading ...") as status, refusals(ValueError, ImportError), no_early_ends():

        def show(label: str) -> None:
            if status is not None:
                status.update(Text(printable(f"{label[0].upper()}{label[1:]} ...")))

        return evaluate_synthetic(**arguments, progress=show)


def write_and_print(
    options: _options.Options, evaluation: SyntheticEvaluation, path: Path | None
) -> None:
    """Write the report, and print the findings with their numbers and notes."""
    from combutab.reports import write_report

    if path is not None:
        with _options.writing(path):
            write_report(evaluation, path)
        options.echo_done(f"Wrote {path}")
    for finding in evaluation.findings:
        level = "not known" if finding.level == "unknown" else finding.level
        figure = f", {finding.figure}" if finding.figure else ""
        echo(f"{finding.subject}: {level}{figure}. {finding.short}")
        for line in (finding.sentence, *finding.notes):
            echo(line, indent=2)
