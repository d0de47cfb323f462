"""``combutab compare``: the best activation for a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from combutab.cli import _options
from combutab.cli._console import UserError, echo, refusals
from combutab.core.text import counted

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from rich.table import Table

    from combutab.cli._files import FileFormat, Reading
    from combutab.model_selection import ActivationComparison, ComparisonPlan

FILES = (
    *("results.csv", "summary.csv", "baselines.csv", "comparison.png"),
    "best_model.safetensors",
)
JOURNAL = "journal.jsonl"  # beside them: what they are of, and scores to go on from
# BASELINES and DEFAULT_ACTIVATIONS of model_selection, which to import would take seconds
BASELINES = "guess,linear,boosting"
ACTIVATIONS = "relu,elu,selu,swish,nlrelu,gelu,combu,pln-4,la-silu,la-hardsilu"
_CPU_RATE = 5e10  # floating-point operations a second in training, seen on two cores
_LONG = 300.0  # seconds: said beforehand


@dataclass(frozen=True)
class _Comparison:
    """A comparison on one data set, and where its results go."""

    plan: ComparisonPlan
    forms: FileFormat
    target: str
    folder: Path
    report: Path | None

    @property
    def journal(self) -> Path:
        return self.folder / JOURNAL


def compare(
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA",
            help=f"{_options.TABLE}. Without it, the comparison runs on two small data sets: wdbc "
            "(breast cancer, classification) and 600 rows of the impedance formula (regression).",
        ),
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column of DATA to predict.")] = None,
    task: _options.Task = "auto",
    drop: _options.Drop = None,
    drop_missing_target: _options.DropMissing = False,
    sep: _options.Sep = None,
    decimal: _options.Decimal = None,
    thousands: _options.Thousands = None,
    encoding: _options.Encoding = None,
    header_row: _options.HeaderRow = None,
    sheet: _options.Sheet = None,
    missing: _options.Missing = None,
    not_missing: _options.NotMissing = None,
    activations: Annotated[
        str,
        typer.Option(
            help="Activation functions to compare, separated by commas; N in pln-N and pls-N is "
            "the number of units per group.",
            callback=_options.check_activations,
            show_default=ACTIVATIONS.replace(",", ", "),
        ),
    ] = ACTIVATIONS,
    seeds: Annotated[
        int,
        typer.Option(
            help="Number of seeds: networks to train per fold and activation function.", min=1
        ),
    ] = 5,
    folds: Annotated[int, typer.Option(help="Number of cross-validation folds.", min=2)] = 5,
    split: Annotated[
        str,
        typer.Option(
            metavar="<random|time:COLUMN|group:COLUMN>",
            callback=_options.check_split,
            help="How rows are split into folds. random: at random. group:COLUMN: rows with the "
            "same value of the column are in one fold, and the column is not used as a feature. "
            "time:COLUMN: networks are trained on earlier and tested on later rows by a column of "
            "dates or numbers.",
        ),
    ] = "random",
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Number of epochs per network (passes over the training rows). With --recipe "
            "default it is a maximum, because the networks stop early.",
            min=1,
            show_default="100; with --recipe paper: 80, fewer for large tables, at least 20",
        ),
    ] = None,
    hidden: Annotated[
        str,
        typer.Option(
            help="Widths of the hidden layers, such as 128,128, or auto for those of the recipe."
        ),
    ] = "auto",
    recipe: Annotated[
        str,
        typer.Option(
            help="Networks and training settings: default (those of `combutab fit`) or paper "
            "(those of the CombU paper). Both train one network per seed."
        ),
    ] = "default",
    metric: Annotated[
        str | None,
        _options.metric_option(
            "Metric to compare the activation functions by",
            show_default="accuracy, or roc_auc if one class has more than two thirds of the rows; "
            "r2 for regression",
        ),
    ] = None,
    test: Annotated[
        str,
        typer.Option(
            help="Significance test of the differences: corrected-t (corrected resampled t-test) "
            "or wilcoxon (signed-rank test). p-values are adjusted by Holm's method."
        ),
    ] = "corrected-t",
    baselines: Annotated[
        str,
        typer.Option(
            help="Baselines to score on the same folds, separated by commas: guess (ignores the "
            "features), linear (linear model) and boosting (gradient boosting); or none."
        ),
    ] = BASELINES,
    device: _options.Device = "auto",
    seed: _options.Seed = 0,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Number of threads. Each trains a batch of networks at a time.",
            min=1,
            show_default="number of CPU cores; 1 on a GPU",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address of the scheduler of a Dask cluster that trains the networks, such as "
            "tcp://10.0.0.1:8786.",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Folder to write the results to. After an interrupted run, the same command "
            "continues from the scores in the folder.",
        ),
    ] = Path("combutab-compare"),
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Train all networks again, and overwrite the results in the folder."
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            help="HTML report to write, such as report.html. Without DATA one report is written "
            "per data set, with the name of the data set added to the file name.",
        ),
    ] = None,
) -> None:
    """Compare activation functions on a table by cross-validation.

    The command prints the mean score of each activation function with its 95 % confidence interval,
    says which differences are significant, and compares them with baselines such as gradient
    boosting. It saves the scores, a figure, and a model with the best activation function.
    """
    if jobs is not None and cluster is not None:
        raise UserError(
            "--jobs cannot be used with --cluster, because it sets the threads of this machine; "
            "leave --jobs out"
        )
    _options.check_folder(out)
    if data is not None:
        if target is None:
            raise UserError(f"give the column of {data} to predict: --target COLUMN")
        reading = _options.read_options(
            sep, decimal, thousands, encoding, header_row, sheet, missing, not_missing
        )
        _options.check_table(data, reading, target=target, drop=drop)

        tables = [_read_features_and_target(data, target, task, drop, reading, drop_missing_target)]
    else:
        given = {"--target": target, "--metric": metric, "--task": task if task != "auto" else None}
        given["--split"] = split if split != "random" else None
        for option, value in given.items():
            if value is not None:
                raise UserError(f"{option} {value} needs a table: combutab compare DATA")
        tables = _default_tables()

    from joblib import cpu_count

    from combutab.core.device import resolve_device
    from combutab.model_selection import ComparisonError, plan_comparison

    comparisons = []
    for name, X, y, forms in tables:
        X, y, folding = _folding(X, y, split, folds)
        with refusals(ComparisonError):
            plan = plan_comparison(
                X,
                y,
                task=task,
                activations=[each.strip() for each in activations.split(",")],
                seeds=seeds,
                folds=folds,
                epochs=epochs,
                hidden=_widths(hidden),
                scoring=metric,
                test=test,
                device=device,
                random_state=seed,
                baselines=[] if baselines == "none" else [n.strip() for n in baselines.split(",")],
                recipe=recipe,
                name=name,
                **folding,
            )
        folder, page = out, report
        if data is None:
            folder = out / name
            if report is not None and report.name:  # else a folder, refused with the other places
                page = report.with_name(f"{report.stem}-{name}{report.suffix}")
        comparisons.append(_Comparison(plan, forms, str(y.name), folder, page))
    for comparison in comparisons:
        _check_places(comparison, data)
    for comparison in comparisons:
        _check_holds_no_other(comparison, force)
    with _workers(cluster):
        for comparison in comparisons:
            cores = cpu_count() if resolve_device(comparison.plan.device).type == "cpu" else 1
            found = _run_or_resume(comparison, jobs or (None if cluster else cores), force)
            _print(found)
            _write(comparison, found)


# ---- input -------------------------------------------------------------------------------------


def _read_features_and_target(
    data: Path, target: str, task: str, drop: list[str] | None, reading: Reading, drop_missing: bool
) -> tuple[str, pd.DataFrame, pd.Series, FileFormat]:
    from combutab.cli import _files
    from combutab.datasets import split_target

    table, forms = _files.read_file(data, reading)
    table = _files.leave_out(table, drop, target, drop_missing)
    # a Parquet file's columns may have names that are no text
    names = {str(column): column for column in table.columns}
    X, y = split_target(table, names.get(target, target))
    _files.task_of(y, task, data, reading)
    _files.hint_at_odd_columns(table, reading, target=y.name)
    return data.name.split(".")[0], X, y, forms


def _folding(
    X: pd.DataFrame, y: pd.Series, split: str, folds: int
) -> tuple[pd.DataFrame, pd.Series, dict[str, Any]]:
    """Return the table, in the order of time if it is split so, and how its folds are made."""
    from combutab.cli import _files

    if split == "random":
        return X, y, {}
    how, column = _files.column_of_split(X, split)
    if how == "group":
        return X.drop(columns=column), y, {"groups": X[column].astype(str).to_numpy()}
    order = X[column].argsort(kind="stable")
    X, y = (each.iloc[order].reset_index(drop=True) for each in (X, y))
    return X, y, {"cv": _periods(split, X[column].to_numpy(), folds)}


def _periods(split: str, times: np.ndarray, folds: int) -> Any:
    """Make scikit-learn's splitter by time; it is called as the option."""
    from sklearn.model_selection import TimeSeriesSplit

    class Periods(TimeSeriesSplit):
        name: str

        def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Any]:
            for train, test in super().split(X):
                yield train[times[train] < times[test[0]]], test  # rows of one time: on one side

    periods = Periods(folds)
    periods.name = split
    return periods


def _default_tables() -> list[tuple[str, pd.DataFrame, pd.Series, FileFormat]]:
    import pandas as pd
    from sklearn.datasets import load_breast_cancer, make_friedman2

    from combutab.cli import _files

    wdbc = load_breast_cancer(as_frame=True)
    labels = wdbc.target.map(dict(enumerate(wdbc.target_names)))
    circuits, impedance = make_friedman2(600, random_state=0)
    columns = ["resistance", "angular frequency", "inductance", "capacitance"]
    parts = pd.DataFrame(circuits, columns=columns)
    return [
        ("wdbc", wdbc.data, labels, _files.FileFormat()),
        ("impedance", parts, pd.Series(impedance, name="impedance"), _files.FileFormat()),
    ]


@contextmanager
def _workers(cluster: str | None) -> Iterator[None]:
    """Let a Dask cluster's workers train, if a scheduler's address is given."""
    if cluster is None:
        yield
        return
    from joblib import parallel_config

    try:
        from distributed import Client
    except ImportError:
        raise UserError("--cluster needs Dask: pip install dask distributed") from None
    try:
        client = Client(cluster, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UserError(f"--cluster {cluster}: no Dask scheduler answers ({error})") from error
    with client, parallel_config(backend="dask", client=client):
        workers = client.scheduler_info()["workers"]
        echo(f"on {len(workers)} workers of the Dask cluster at {cluster}", error=True)
        yield


def _widths(hidden: str) -> Any:
    parts = hidden.split(",")
    return [int(part) for part in parts] if all(p.strip().isdecimal() for p in parts) else hidden


# ---- training ----------------------------------------------------------------------------------


def _check_places(comparison: _Comparison, data: Path | None) -> None:

    files = {name: comparison.folder / name for name in FILES}
    for place in files.values():
        if place.is_dir():
            raise UserError(f"cannot write {place}: it is a directory")
    _options.check_folder(comparison.folder)
    inputs = {} if data is None else {"DATA": data, **files}
    _options.check_outputs({"--report": comparison.report}, inputs or files, make_folders=True)


def _check_holds_no_other(comparison: _Comparison, force: bool) -> None:
    """Refuse a folder that holds what the run would not have come to."""
    from combutab.model_selection import checkpoint_differences

    folder, journal = comparison.folder, comparison.journal
    if force:
        return
    try:
        with refusals():
            differs = checkpoint_differences(journal, comparison.plan)
    except OSError as error:
        raise UserError(f"cannot read {journal}: {error.strerror or error}") from error
    held = [name for name in FILES if (folder / name).exists()]
    if differs is None and held:
        differs = f"{held[0]} without {JOURNAL}"
    if differs:
        raise UserError(
            f"{folder} holds other results ({differs}); choose another folder with --out, or "
            "overwrite them with --force"
        )


def _announce(plan: ComparisonPlan) -> None:
    counts = (
        (len(plan.activations), "activation"),
        (len(plan.splits), "fold"),
        (plan.seeds, "seed"),
    )
    product = " x ".join(counted(n, what) for n, what in counts)
    echo(
        f"{plan.data}: {counted(len(plan.y), 'row')}, {plan.task}; training {plan.n_networks} "
        f"networks ({product}), hidden layers {'-'.join(map(str, plan.hidden))}, "
        f"{plan.epoch_words}, on {plan.device}",
        error=True,
    )
    seconds = plan.operations / _CPU_RATE
    if seconds > _LONG and plan.device == "cpu":
        echo(
            f"This may take about {seconds / 60:.0f} minutes on two cores. To shorten it, use "
            "--seeds 1, --folds 3, --epochs 10, --hidden 128,128, or --device cuda.",
            error=True,
        )


def _run_or_resume(
    comparison: _Comparison, n_jobs: int | None, force: bool
) -> ActivationComparison:
    """Train and compare; what an interrupt leaves is told of."""
    from combutab.core.parallel import BrokenBackend, OtherVersions, WorkerDied
    from combutab.model_selection import ComparisonError, run_comparison

    plan, journal = comparison.plan, comparison.journal

    def kept() -> str:
        return (
            f"the scores of {_n_networks(journal)} of {plan.n_networks} networks are kept in "
            f"{journal}; the same command continues from them"
        )

    try:
        _announce(plan)
        if force:
            journal.unlink(missing_ok=True)
        if n_kept := _n_networks(journal):
            echo(f"Continuing from {journal}, with {n_kept} networks trained", error=True)
        return run_comparison(plan, progress=True, n_jobs=n_jobs, checkpoint=journal)
    except KeyboardInterrupt:
        nothing = "no network was finished, so no scores are kept"
        done = kept() if _n_networks(journal) else nothing
        raise KeyboardInterrupt(f"; {done}") from None
    except ComparisonError as error:
        raise UserError(str(error)) from error
    except (BrokenBackend, OtherVersions, WorkerDied) as error:
        raise UserError(f"{error}; {kept()}") from error


def _n_networks(journal: Path) -> int:
    """Count the networks whose scores a journal holds."""
    if not journal.exists():
        return 0
    lines = journal.read_bytes().splitlines(keepends=True)
    return sum(b'{"activation"' in line and line.endswith(b"\n") for line in lines)


# ---- output ------------------------------------------------------------------------------------


def _print(found: ActivationComparison) -> None:
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    echo("")
    echo(f"{found.data}: {found.measure.description}", wrap=True)
    echo(found.design, wrap=True)
    echo("")
    console.print(comparison_table(found, console.width))
    echo("")
    for sentence in found.sentences.splitlines():
        echo(sentence, wrap=True)


def _write(comparison: _Comparison, found: ActivationComparison) -> None:
    """Write all files together; what cannot be written is on the screen by now."""
    from combutab.cli import _files
    from combutab.core.files import whole_file, whole_files
    from combutab.plotting import plot_comparison

    folder, report = comparison.folder, comparison.report
    summary = found.summary.copy()
    summary.insert(0, "data", found.data)
    summary.insert(2, "metric", found.metric)
    results, table, baselines, picture, model = FILES
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if report is not None:
            report.parent.mkdir(parents=True, exist_ok=True)
        # the page appears when the other files have
        with nullcontext() if report is None else whole_file(report) as page:
            if page is not None:
                from combutab.reports import write_report

                write_report(found, page)
            with whole_files(folder, FILES) as stage:
                found.results.to_csv(stage / results, index=False)
                summary.to_csv(stage / table, index=False)
                found.baseline_results.to_csv(stage / baselines, index=False)
                plot_comparison(found).savefig(stage / picture, dpi=150)
                place = stage / model
                _files.save_with_format(
                    found.best_estimator, place, comparison.forms, comparison.target
                )
    except OSError as error:
        raise _options.cannot_write(Path(error.filename or folder), error) from error
    echo(f"Wrote {', '.join(FILES)} to {folder}", wrap=True)
    if report is not None:
        echo(f"Wrote {report}")


# ---- the scores as a table of a terminal -------------------------------------------------------

# The order in which columns are left out where there is little room
_DISPENSABLE = (
    *("mean\nrank", "p-value\n(Holm)", "differs\nfrom best", "beats\nguess"),
    "95 % interval",
)


def comparison_table(found: ActivationComparison, width: int) -> Table:
    """Activations, the best first, and baselines below; as many columns as there is room for.

    Names are whole: only where a name and its mean have no room on one line, it is folded.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    columns = _table_columns(found)
    console = Console(width=1000)
    for left_out in ("", *_DISPENSABLE):
        columns.pop(left_out, None)
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        name, *scores = columns
        table.add_column(name, overflow="fold")
        for header in scores:
            table.add_column(header, justify="right", no_wrap=True)
        for row, cells in enumerate(zip(*columns.values(), strict=True), 1):
            table.add_row(*map(Text, cells), end_section=row == len(found.summary))
        if Measurement.get(console, console.options, table).maximum <= width:
            break
    return table


def _table_columns(found: ActivationComparison) -> dict[str, list[str]]:
    """Cells by header, activations first and then baselines."""
    import numpy as np

    from combutab.evaluation import interval_words

    lines = [*found.summary.to_dict("records"), *found.baselines.to_dict("records")]
    others = lines[1:]
    largest = float(found.summary["mean"].abs().max())  # is to have four digits
    digits = int(np.clip(3 - np.floor(np.log10(largest)), 0, 8)) if largest > 0 else 4
    columns = {
        "activation": [line.get("activation") or line["baseline"] for line in lines],
        "mean": [f"{line['mean']:,.{digits}f}" for line in lines],
        "95 % interval": [
            interval_words(line["low"], line["high"], digits) or "same in all folds"
            for line in lines
        ],
        "mean\nrank": [f"{line['mean_rank']:.2f}" if "mean_rank" in line else "" for line in lines],
        "p-value\n(Holm)": [
            "",
            *(f"{line['p']:.4f}" if line["p"] >= 1e-4 else "< 0.0001" for line in others),
        ],
        "differs\nfrom best": [
            "(best)" if found.winner else "–",
            *("yes" if line["distinguishable"] else "no" for line in others),
        ],
    }
    if "beats_guess" in found.summary:
        answers = {True: "yes", False: "no", None: ""}
        columns["beats\nguess"] = [answers[line.get("beats_guess")] for line in lines]
    return columns
