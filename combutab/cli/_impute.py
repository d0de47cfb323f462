"""``combutab impute``: fill the missing cells of a table with a generator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from combutab.cli import _options
from combutab.cli._console import UserError, echo_on_terminal, refusals, spinner, warn
from combutab.core.text import MAX_NAMES, counted, join_names, list_names


@dataclass(frozen=True, kw_only=True)
class ImputeOptions(_options.GeneratorOptions):
    """The options of ``combutab impute``.

    Options
    -------
    data : DATA
        Table with a header line: READABLE. Its empty cells are filled.
    n_draws : NUMBER
        Number of imputed tables to write (multiple imputation). With 2 and -o out.csv they are
        out-1.csv and out-2.csv. How much an imputed cell differs between the tables shows how
        uncertain it is.
    model_file : FILE
        Saved generator of a table with the same columns (`combutab synth --save`). It fills the
        cells, and no generator is trained on DATA.
    """

    n_draws: _options.Count = 1
    model_file: Path | None = None


def impute(options: ImputeOptions) -> None:
    """Impute the missing cells of a table with a generator that is trained on it.

    Each missing cell is drawn at random, given the other cells of its row. If Ctrl-C interrupts the
    training, the cells are filled by the generator as trained so far. A file that exists already is
    then kept: "-interrupted" is added to the name of the new one.

    Example: combutab impute customers.csv -o complete.csv
    """
    out, model_file, n_draws = options.out, options.model_file, options.n_draws
    paths = [out]
    if n_draws > 1:
        paths = [_options.path_beside(out, str(i + 1)) for i in range(n_draws)]
    _check_impute_options(options, paths)

    from combutab.cli import _files

    model_format = None if model_file is None else _files.read_format(model_file)
    table, forms, discrete_columns = _files.read_to_learn(options, model_format)
    _files.hint_at_odd_columns(table, options.reading, identifiers=False)
    _files.hint_at_formulas(table, forms, out)
    missing = table.isna().sum()
    n_missing = int(missing.sum())
    if not n_missing:
        raise UserError(f"{options.data} has no missing cells to fill")

    from combutab.cli import _generators

    device = _files.find_device(options.device)
    if model_file is not None:
        generator, *_ = _generators.load_generator(model_file, options.device)
    else:
        generator, encoder, _ = _generators.make_generator(options, table, discrete_columns)
        echo_on_terminal(
            f"{options.data.name}: {n_missing:,} of {table.size:,} cells are missing; "
            f"{type(generator).__name__} on {device}"
        )
        if not discrete_columns:
            _generators.hint_at_few_values(table)
    run = _generators.TrainingRun(generator)
    with run.reported():
        if model_file is None:
            run.fit(table, encoder.discrete_columns)
            run.save(options.save, forms)
        paths = [run.place(path) for path in paths]
        with spinner("Filling cells"), refusals():
            imputed = generator.impute(table, n_draws=n_draws, random_state=options.seed)
        tables = [imputed] if n_draws == 1 else imputed
        n_left = tables[0].isna().sum()
        if n_left.any():
            names = [str(name) for name in n_left.index[n_left > 0]]
            warn(
                f"{n_left.sum():,} cells of {list_names(names)} are still missing, because the "
                "generator has no values for them"
            )
        for filled_table, path in zip(tables, paths, strict=True):
            _files.write_table(filled_table, forms, path)
            run.add("the filled table", path)
        written_files = paths[0] if n_draws == 1 else f"{paths[0]} to {paths[-1]}"
        by_column = (f"{n:,} of {str(name)!r}" for name, n in missing[missing > 0].items())
        filled = f"{counted(n_missing, 'missing cell')} ({join_names(by_column, MAX_NAMES)})"
        options.echo_done(f"Filled {filled}: {written_files}")


def _check_impute_options(options: ImputeOptions, paths: list[Path]) -> None:
    """Check that the options do not contradict each other, and that the files can be written."""
    model_file = options.model_file
    fields = ("model", "discrete", "min_frequency", "identifiers", "fake", "epochs", "max_time")
    if model_file is not None:
        for option in options.changed(*fields, "constraints", "save"):
            raise UserError(
                f"{option} applies to training, but {model_file} is trained already; leave "
                f"{option} or --model-file out"
            )
    inputs = {"DATA": options.data, "--model-file": model_file}
    inputs["--constraints"] = options.constraints
    outputs = {"--save": options.save} | {str(path): path for path in paths}
    _options.check_outputs(outputs, inputs, table=options.out, model=options.save)
