"""``combutab compare``: the best activation for a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from joblib import cpu_count
from rich.console import Console

from combutab._device import resolve_device
from combutab._whole_files import whole_file, whole_files
from combutab.cli._comparison_table import comparison_table
from combutab.cli._console import INTERRUPTED, UserError, interruptible, one_line_warnings
from combutab.cli._outputs import cannot_write, check_file_with_folder, check_folder
from combutab.datasets import TableError, make_formula, read_table, split_target
from combutab.model_selection import (
    BASELINES,
    DEFAULT_ACTIVATIONS,
    ActivationComparison,
    ComparisonError,
    ComparisonPlan,
    checkpoint_differences,
    plan_comparison,
    run_comparison,
)
from combutab.plotting import plot_comparison

FILES = (
    *("results.csv", "summary.csv", "baselines.csv", "comparison.png"),
    "best_model.safetensors",
)
JOURNAL = "journal.jsonl"  # beside them: what they are of, and scores to go on from
_CPU_RATE = 5e10  # floating-point operations a second in training, seen on two cores
_LONG = 300.0  # seconds: said beforehand


@dataclass(frozen=True)
class _Data:
    """A data set to compare on, with its own sub-folder if there are several."""

    name: str
    X: pd.DataFrame
    y: pd.Series
    metric: str | None
    folder: Path
    report: Path | None


def compare(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Table with a header line: .csv, .tsv (both also with .gz) or .parquet. "
            "Without it, two small data sets are compared on: wdbc and the formula AR.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column of DATA to predict.", show_default=False)
    ] = None,
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    activations: Annotated[
        str, typer.Option(help="Names, separated by commas; also pln-N and pls-N.")
    ] = ",".join(DEFAULT_ACTIVATIONS),
    seeds: Annotated[int, typer.Option(help="Networks a fold and activation.")] = 5,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    epochs: Annotated[
        int | None,
        typer.Option(help="Epochs of every network.", show_default="80; for large tables to 20"),
    ] = None,
    hidden: Annotated[str, typer.Option(help="Widths such as 128,128, or auto.")] = "auto",
    metric: Annotated[
        str | None,
        typer.Option(
            help="accuracy, f1, log_loss or roc_auc; r2, mae or mse.",
            show_default="accuracy or r2",
        ),
    ] = None,
    test: Annotated[
        str, typer.Option(help="corrected-t or wilcoxon, with Holm's correction.")
    ] = "corrected-t",
    baselines: Annotated[
        str, typer.Option(help="What networks are measured against, of these; or none.")
    ] = ",".join(BASELINES),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of the folds and of all networks.")] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Stacks that train at the same time, each in a thread.",
            min=1,
            show_default="one a core; 1 on a GPU",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for the files. Where a run was interrupted, the same command goes on "
            "from the scores in it."
        ),
    ] = Path("combutab-compare"),
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Train anew, and overwrite the results that the folder holds."
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            help="HTML page to write for a person to read, such as report.html. "
            "Without DATA there is one for each data set, whose name is added.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Find the best activation for a table, and whether the difference is real."""
    with interruptible(), one_line_warnings():
        tables = _tables(data, target, task, metric, out, report)
        plans = [
            plan_comparison(
                table.X,
                table.y,
                task=task,
                activations=[name.strip() for name in activations.split(",")],
                seeds=seeds,
                folds=folds,
                epochs=epochs,
                hidden=_widths(hidden),
                metric=table.metric,
                test=test,
                device=device,
                random_state=seed,
                baselines=_names(baselines),
                name=table.name,
            )
            for table in tables
        ]
        for table in tables:
            _check_places(table, data)
        for table, plan in zip(tables, plans, strict=True):
            _check_holds_no_other(table.folder, plan, force)
        for table, plan in zip(tables, plans, strict=True):
            found = _run(plan, jobs or _default_jobs(plan), table.folder / JOURNAL, force)
            _print(found)
            _write(found, table.folder, table.report)


# ---- input -------------------------------------------------------------------------------------


def _tables(
    data: Path | None,
    target: str | None,
    task: str,
    metric: str | None,
    out: Path,
    report: Path | None,
) -> list[_Data]:
    if data is None:
        for option, value in (("--target", target), ("--metric", metric)):
            if value is not None:
                raise ComparisonError(f"{option} {value} needs a table: combutab compare DATA")
        if task != "auto":
            raise ComparisonError(f"--task {task} needs a table: combutab compare DATA")
        return _default_tables(out, report)
    if target is None:
        raise ComparisonError(f"name the column of {data} to predict: --target COLUMN")
    try:
        table = read_table(data)
    except ImportError as error:  # of pyarrow: the message says how to install it
        raise TableError(str(error)) from error
    # a Parquet file's columns may have names that are no text
    names = {str(column): column for column in table.columns}
    X, y = split_target(table, names.get(target, target))
    return [_Data(data.name.split(".")[0], X, y, metric, out, report)]


def _default_tables(out: Path, report: Path | None) -> list[_Data]:
    from sklearn.datasets import load_breast_cancer

    wdbc = load_breast_cancer(as_frame=True)
    labels = wdbc.target.map(dict(enumerate(wdbc.target_names)))
    ar = make_formula("ar", n_samples=1000, random_state=0)

    def place(name: str) -> Path | None:
        if report is None or not report.name:  # a folder, which is refused with the other places
            return report
        return report.with_name(f"{report.stem}-{name}{report.suffix}")

    return [
        _Data("wdbc", wdbc.data, labels, None, out / "wdbc", place("wdbc")),
        # AR's target is heavy-tailed: one row decides a fold's R2 or squared error
        _Data("ar", *ar, "mae", out / "ar", place("ar")),
    ]


def _default_jobs(plan: ComparisonPlan) -> int:
    return cpu_count() if resolve_device(plan.device).type == "cpu" else 1


def _widths(hidden: str) -> Any:
    parts = hidden.split(",")
    return [int(part) for part in parts] if all(p.strip().isdecimal() for p in parts) else hidden


def _names(baselines: str) -> list[str]:
    return [] if baselines == "none" else [name.strip() for name in baselines.split(",")]


# ---- training ----------------------------------------------------------------------------------


def _check_holds_no_other(folder: Path, plan: ComparisonPlan, force: bool) -> None:
    """Refuse a folder that holds what the run would not have come to."""
    if force:
        return
    try:
        differs = checkpoint_differences(folder / JOURNAL, plan)
    except OSError as error:
        raise UserError(f"cannot read {folder / JOURNAL}: {error.strerror or error}") from error
    held = [name for name in FILES if (folder / name).exists()]
    if differs is None and held:
        differs = f"{held[0]} without {JOURNAL}"
    if differs:
        raise UserError(
            f"{folder} holds other results ({differs}): name another folder by --out, or overwrite "
            "them with --force"
        )


def _announce(plan: ComparisonPlan) -> None:
    counts = (
        (len(plan.activations), "activation"),
        (len(plan.splits), "fold"),
        (plan.seeds, "seed"),
    )
    product = " x ".join(f"{n} {what}{'s' * (n > 1)}" for n, what in counts)
    _tell(
        f"{plan.data}: {len(plan.y)} rows, {plan.task}; training {plan.n_networks} networks "
        f"({product}), hidden layers {'-'.join(map(str, plan.hidden))}, {plan.epochs} epochs, "
        f"on {plan.device}"
    )
    seconds = plan.operations / _CPU_RATE
    if seconds > _LONG and plan.device == "cpu":
        _tell(
            f"This may take long, about {seconds / 60:.0f} minutes on two cores. Shorter: "
            "--seeds 1, --folds 3, --epochs 10, --hidden 128,128, or --device cuda."
        )


def _tell(sentence: str) -> None:
    """On standard error; wrapped at words on a terminal, one line elsewhere."""
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    console.print(sentence, soft_wrap=not console.is_terminal)


def _run(plan: ComparisonPlan, n_jobs: int, journal: Path, force: bool) -> ActivationComparison:
    """Train and compare; what an interrupt leaves is told of."""
    try:
        _announce(plan)
        if force:
            journal.unlink(missing_ok=True)
        n_kept = _n_networks(journal)
        if n_kept:
            _tell(f"{n_kept} of them are trained: going on from {journal}")
        return run_comparison(plan, progress=True, n_jobs=n_jobs, checkpoint=journal)
    except KeyboardInterrupt:
        n_kept = _n_networks(journal)
        _tell(
            f"combutab: interrupted; the scores of {n_kept} of {plan.n_networks} networks are kept "
            f"in {journal}: the same command goes on from them"
            if n_kept
            else "combutab: interrupted; no network was finished, so there are no scores to keep"
        )
        raise typer.Exit(INTERRUPTED) from None


def _n_networks(journal: Path) -> int:
    """How many networks' scores a journal holds."""
    if not journal.exists():
        return 0
    lines = journal.read_bytes().splitlines(keepends=True)
    return sum(b'{"activation"' in line and line.endswith(b"\n") for line in lines)


# ---- output ------------------------------------------------------------------------------------


def _print(found: ActivationComparison) -> None:
    console = Console(markup=False, highlight=False, emoji=False)
    console.print(f"\n{found.data}: {found.measure.description}")
    console.print(f"{found.design}\n")
    console.print(comparison_table(found, console.width))
    console.print()
    for sentence in found.sentences.splitlines():
        console.print(sentence)


def _check_places(table: _Data, data: Path | None) -> None:
    files = {name: table.folder / name for name in FILES}
    for place in files.values():
        if place.is_dir():
            raise UserError(f"cannot write {place}: it is a directory")
    check_folder(table.folder)
    if table.report is not None:
        others = files if data is None else {"DATA": data, **files}
        check_file_with_folder(table.report, **others)


def _write(found: ActivationComparison, folder: Path, report: Path | None) -> None:
    """Write all files together; what cannot be written is on the screen by now."""
    assert found.best_estimator is not None
    summary = found.summary.copy()
    summary.insert(0, "data", found.data)
    summary.insert(2, "metric", found.metric)
    results, table, baselines, picture, model = FILES
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _write_report(found, report), whole_files(folder, FILES) as stage:
            found.results.to_csv(stage / results, index=False)
            summary.to_csv(stage / table, index=False)
            found.baseline_results.to_csv(stage / baselines, index=False)
            plot_comparison(found).savefig(stage / picture, dpi=150)
            found.best_estimator.save(stage / model)
    except OSError as error:
        raise cannot_write(Path(error.filename or folder), error) from error
    console = Console(markup=False, highlight=False, emoji=False)
    console.print(f"Wrote {', '.join(FILES)} to {folder}")
    if report is not None:
        print(f"Wrote {report}")


@contextmanager
def _write_report(found: ActivationComparison, report: Path | None) -> Iterator[None]:
    """Write the page, which appears when all that is done in here has."""
    if report is None:
        yield
        return
    from combutab.reports import write_report

    report.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(report) as place:
        write_report(found, place)
        yield
