"""``combutab synth``: train a generator, and write a synthetic table and a report on it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from combutab.cli import _options
from combutab.cli._console import (
    UserError,
    echo_on_terminal,
    hint,
    no_early_ends,
    refusals,
    spinner,
)
from combutab.cli._databases import (
    DatabaseOptions,
    check_folder_of_tables,
    check_names,
    find_table_files,
    model_content,
    parse_database,
    read_database,
    refuse_options,
    write_database,
    written_name,
)
from combutab.cli._evaluate import evaluate_tables, file_names, write_and_print
from combutab.cli._private import PrivateOptions, check_private_options, synthesize
from combutab.core.text import counted

if TYPE_CHECKING:
    import pandas as pd

_HOLDOUT, _MAX_HOLDOUT = 0.2, 0.9  # shares of rows to hold out for a report: default, maximum


@dataclass(frozen=True, kw_only=True)
class SynthOptions(DatabaseOptions, PrivateOptions):
    """The options of ``combutab synth``.

    Options
    -------
    tables : TABLES
        More tables of a database, with --key. DATA may also be a folder with all of them.
    out : FILE
        Table file to write: .csv, .tsv (both also with .gz) or .parquet; - prints the rows. With
        several tables, the folder to write: its files have the names of those of DATA.

    Training
    --------
    epochs : NUMBER, default tabflow: enough for 20,000 training steps; ctgan, tvae: 300
        Maximum number of epochs (passes over the training rows); with --epsilon the default is 30.
    activation : NAME, default tabflow: silu; ctgan, tvae: combu
        Activation function of all hidden layers, such as relu, combu or pln-4; or original, that of
        published generators of this kind.
    batch_size : NUMBER, default tabflow: 32 to 512 by the number of rows; ctgan, tvae: 500
        Batch size: number of rows per training step.
    checkpoint : FILE
        Checkpoint file of the training, written every 30 seconds and on Ctrl-C. If the file exists,
        training continues from it.

    Columns
    -------
    suggest_constraints : FILE
        JSON or YAML file to write, with suggested constraints that all rows of DATA meet. Check
        them before you use the file with --constraints.

    Report
    ------
    report : FILE
        HTML report to write, such as report.html, on the quality and privacy of the synthetic rows,
        as by `combutab evaluate`.
    target : COLUMN
        With --report: column that models are trained to predict, to measure the utility of the
        synthetic rows.
    holdout : SHARE, default 0.2
        With --report: share of the rows to hold out. The generator is not trained on them, and the
        report compares the synthetic rows with them. 0 holds out none.
    """

    tables: _options.MoreTables = None
    activation: str | None = None
    batch_size: _options.OptionalCount = None
    checkpoint: Path | None = None
    suggest_constraints: Path | None = None
    report: Path | None = None
    target: str | None = None
    holdout: float | None = None


def synth(options: SynthOptions) -> None:
    """Train a generator on a table, and write a synthetic table with the same columns.

    With --epsilon the synthetic rows are differentially private. Several tables with --key give a
    folder of synthetic tables whose keys refer to each other.

    If Ctrl-C interrupts the training, the rows are made by the generator as trained so far. A file
    that exists already is then kept: "-interrupted" is added to the name of the new one.

    Example: combutab synth customers.csv -o synthetic.csv --report report.html
    """
    if options.tables or options.data.is_dir():
        _synthesize_database(options)
        return
    refuse_options(options, "key", "order_by", "lookup", several=True)
    _check_synth_options(options)

    from combutab.cli import _files

    table, forms, discrete_columns = _files.read_to_learn(options)
    if options.epsilon is not None:
        synthesize(table, forms, discrete_columns, options)
        return
    target = options.target
    if target is not None:
        target = _options.find_target(target, table.columns)
    if target not in (None, *discrete_columns) and table[target].count():
        classify = f"--discrete {shlex.quote(str(target))}"
        _files.task_of(table[target], "auto", options.data, options.reading, classify)

    from combutab.cli import _generators
    from combutab.cli._conditions import check_requests

    device = _files.find_device(options.device)
    _files.hint_at_odd_columns(table, options.reading, identifiers=False)
    _files.hint_at_formulas(table, forms, options.out)
    n_rows = len(table) if options.rows is None else options.rows
    if options.report is not None or not _generators.is_streamed(options.out, options):
        _generators.check_size(n_rows, table.shape[1])
    generator, encoder, encoded_table = _generators.make_generator(options, table, discrete_columns)
    check_requests(options, encoder, forms, encoded_table)
    train, test = table, None
    if options.report is not None:
        train, test = _hold_out(table, options.holdout, target, options.seed)
    _generators.suggest_rules(train, options.suggest_constraints)
    echo_on_terminal(
        f"{options.data.name}: {counted(len(train), 'row')}, {counted(train.shape[1], 'column')} "
        f"({len(encoder.category_counts_)} discrete); {type(generator).__name__} with "
        f"{generator.activation}, on {device}"
    )
    if not discrete_columns:
        _generators.hint_at_few_values(train)
    run = _generators.TrainingRun(generator, options.checkpoint)
    with run.reported():
        run.fit(train, encoder.discrete_columns)
        run.save(options.save, forms)
        out = run.place(options.out)
        synthetic = _generators.write_sample(
            generator, forms, options, n_rows, out, in_parts=options.report is None
        )
        run.add(counted(n_rows, "row"), out)
        options.echo_done(f"Wrote {counted(n_rows, 'row')} to {out}")
        if options.report is None or run.interrupted:
            return
        names = file_names({"real": options.data, "synthetic": options.out})
        _write_report(
            options,
            names,
            real_train=train,
            real_test=test,
            synthetic=synthetic,
            target=target,
            categorical=discrete_columns,
            generator=generator,
            min_frequency=generator.min_frequency,
        )


def _check_synth_options(options: SynthOptions) -> None:
    """Check all options that need no table."""
    outputs = {"OUT": options.out, "--save": options.save, "--report": options.report}
    outputs |= {"--checkpoint": options.checkpoint}
    outputs["--suggest-constraints"] = options.suggest_constraints
    inputs = {"DATA": options.data, "--constraints": options.constraints}
    _options.check_outputs(outputs, inputs, table=options.out, model=options.save)
    check_private_options(options)
    _check_report_options(options)


def _check_report_options(options: SynthOptions) -> None:
    if options.report is None:
        for option, value in options.changed("target", "holdout").items():
            raise UserError(f"{option} {value} needs a report: --report report.html")
    elif options.condition or options.shares:
        raise UserError(
            "--report cannot be used with --condition or --shares, because it compares the "
            "synthetic rows with all of DATA; leave --condition and --shares, or --report, out"
        )
    if options.holdout is not None and not 0 <= options.holdout <= _MAX_HOLDOUT:
        raise UserError(f"--holdout must lie between 0 and {_MAX_HOLDOUT}, got {options.holdout:g}")


# ---- The report, and the rows that are held out for it -------------------------------------------


def _write_report(options: SynthOptions, names: dict[str, str], **arguments: Any) -> None:
    """Evaluate the synthetic rows, and write the report."""
    with refusals(UserError, prefix=f"{options.out} is written, but not the report: "):
        evaluation = evaluate_tables(
            **arguments,
            made={"Seed of the rows": str(options.seed)},
            names=names | {"test": f"{names['real']}, held out"},
            random_state=options.seed,
        )
    write_and_print(options, evaluation, options.report)


def _hold_out(
    table: pd.DataFrame, share: float | None, target: Any, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Split a table into training rows and held-out rows, both in the order of the table.

    Raises UserError if a part has too few rows, or if its target cannot be predicted.
    """
    import numpy as np

    share = _HOLDOUT if share is None else share
    n_test = round(share * len(table))
    is_test = np.zeros(len(table), dtype=bool)
    is_test[np.random.default_rng(seed).permutation(len(table))[:n_test]] = True
    train, test = table[~is_test], table[is_test] if share else None
    if min(len(train), 2 if test is None else len(test)) < 2:
        raise UserError(
            f"--holdout {share:g} holds out {n_test:,} of {len(table):,} rows; at least 2 held-out "
            "rows and 2 training rows are needed; choose another share, or 0"
        )
    if target is not None and train.shape[1] < 2:
        raise UserError(f"--target: there is no column beside {str(target)!r} to predict it from")
    for subset in (train, test):
        if target is not None and subset is not None and subset[target].isna().all():
            raise UserError(f"--target: {str(target)!r} is missing in all rows")
    if test is not None:
        hint(
            f"{n_test:,} of {len(table):,} rows are held out for the report; the generator is "
            f"trained on the other {len(train):,} (--holdout)"
        )
    return train, test


# ---- Several tables ------------------------------------------------------------------------------

# Options of a single table
_SINGLE = {"model", "checkpoint", "discrete", "identifiers", "drop", "constraints"}
_SINGLE |= {"suggest_constraints", "target", "epsilon", "delta", "bounds", "categories"}
_SINGLE |= {"person", "rows_per_person", "condition", "shares"}
_PARAMETERS = ("epochs", "max_time", "batch_size", "activation", "min_frequency")


def _synthesize_database(options: SynthOptions) -> None:
    """Train a generator on several tables, and write a folder of synthetic ones."""
    refuse_options(options, *sorted(_SINGLE), several=False)
    paths = find_table_files([options.data, *(options.tables or ())])
    if options.key is None:
        raise UserError(
            "several tables need the keys that connect them: --key CHILD.COLUMN=PARENT.COLUMN, "
            "or --key auto"
        )
    check_names(options, [*paths])
    files = {name: written_name(path) for name, path in paths.items()}
    inputs = {f"DATA {name}": path for name, path in paths.items()}
    check_folder_of_tables(files, inputs, options)
    outputs = {"--save": options.save, "--report": options.report}
    _options.check_outputs(outputs, inputs, model=options.save)
    _check_report_options(options)

    from combutab.cli import _files
    from combutab.generators import TabFlow, TabFlowTables
    from combutab.preprocessing import split_tables
    from combutab.training import ProgressBar

    device = _files.find_device(options.device)
    tables, forms = read_database(paths, options, {})
    arguments = parse_database(options, tables)
    settings = {name: getattr(options, name) for name in _PARAMETERS}
    generator = TabFlow(
        **{name: value for name, value in settings.items() if value is not None},
        device=options.device,
        callbacks=[ProgressBar("TabFlow", transient=True)],
    )
    echo_on_terminal(f"{counted(len(tables), 'table')}; TabFlow for each, on {device}")
    model = TabFlowTables(generator, random_state=options.seed)
    train, test, n_rows = tables, None, options.rows
    share = _HOLDOUT if options.holdout is None else options.holdout
    with refusals(ValueError), no_early_ends():
        if options.report is not None and share:
            lookup = options.lookup or ()
            train, test = split_tables(
                tables, arguments["keys"], test_size=share, lookup=lookup, random_state=options.seed
            )
        model.fit(train, **arguments)
    if n_rows is None:  # also if a part was held out
        children = {key.child for key in model.keys_ if key.parent not in model.lookup_}
        root = next(name for name in tables if name not in {*children, *model.lookup_})
        n_rows = len(tables[root])
    if options.save is not None:
        from combutab.core.files import write_model

        header, arrays = model_content(model, forms, files)
        with _options.writing(options.save):
            write_model(options.save, header, arrays)
        echo_on_terminal(f"Wrote the generator to {options.save}")
    with spinner("Making rows"), refusals():
        synthetic = model.sample(n_rows, random_state=options.seed)
    write_database(synthetic, forms, files, options)
    if options.report is None:
        return
    _write_report(
        options,
        {"real": "DATA", "synthetic": options.out.name},
        real_train=train,
        real_test=test,
        synthetic=synthetic,
        generator=model,
        min_frequency=generator.min_frequency,
    )
