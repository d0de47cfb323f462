"""``combutab compare``: the best activation for a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from joblib import cpu_count, parallel_config
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from combutab.cli._columns import find_columns
from combutab.cli._console import (
    INTERRUPTED,
    UserError,
    interruptible,
    one_line_warnings,
    say,
)
from combutab.cli._estimators import save_estimator
from combutab.cli._tables import (
    FileFormat,
    Reading,
    cannot_write,
    check_file_with_folder,
    check_folder,
    read_file,
    task_of,
    tell_of_odd_columns,
)
from combutab.core.device import resolve_device
from combutab.core.files import whole_file, whole_files
from combutab.core.parallel import BrokenBackend, OtherVersions, WorkerDied
from combutab.datasets import make_formula, split_target
from combutab.evaluation import interval_words
from combutab.model_selection import (
    ActivationComparison,
    ComparisonError,
    ComparisonPlan,
    checkpoint_differences,
    plan_comparison,
    run_comparison,
)
from combutab.plotting import plot_comparison

# ---- The scores of a comparison as a table of a terminal -----------------------------------------

_NAME = "activation"
# What is left out first where there is little room
_DISPENSABLE = ("mean\nrank", "p\n(Holm)", "told\napart", "beats\nguess", "95 % interval")
_WIDE = Console(width=1000)


def comparison_table(found: ActivationComparison, width: int) -> Table:
    """Activations, the best first, and baselines below; as many columns as there is room for.

    Names are whole: only where a name and its mean have no room on one line, it is folded.
    """
    columns = _columns(found)
    for header in ("", *_DISPENSABLE):
        columns.pop(header, None)
        table = _drawn(columns, len(found.summary))
        if Measurement.get(_WIDE, _WIDE.options, table).maximum <= width:
            return table
    return _drawn(columns, len(found.summary), fold=True)


def _columns(found: ActivationComparison) -> dict[str, list[str]]:
    """Cells by header, activations first and then baselines."""
    summary, baselines = found.summary, found.baselines
    digits = _decimals(summary["mean"])
    lines = [line for table in (summary, baselines) for _, line in table.iterrows()]
    n, below = len(summary), [""] * len(baselines)
    apart = ["yes" if line["distinguishable"] else "no" for line in lines]
    columns = {
        _NAME: [*summary["activation"], *(baselines["baseline"] if below else ())],
        "mean": [f"{line['mean']:,.{digits}f}" for line in lines],
        "95 % interval": [
            interval_words(line["low"], line["high"], digits) or "same in all folds"
            for line in lines
        ],
        "mean\nrank": [*(f"{line['mean_rank']:.2f}" for line in lines[:n]), *below],
        "p\n(Holm)": ["", *(_p(line["p"]) for line in lines[1:])],
        "told\napart": ["(best)" if found.winner else "–", *apart[1:]],
    }
    if "beats_guess" in summary:
        beats = ["yes" if beats else "no" for beats in summary["beats_guess"]]
        columns["beats\nguess"] = [*beats, *below]
    return columns


def _drawn(columns: dict[str, list[str]], n_activations: int, *, fold: bool = False) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for header in columns:
        if header == _NAME:
            table.add_column(header, overflow="fold", no_wrap=not fold)
        else:
            table.add_column(header, justify="right", no_wrap=True)
    for row, cells in enumerate(zip(*columns.values(), strict=True), 1):
        table.add_row(*map(Text, cells), end_section=row == n_activations)
    return table


def _decimals(means: pd.Series) -> int:
    """Decimals that give the largest mean four digits."""
    largest = float(means.abs().max())
    return int(np.clip(3 - np.floor(np.log10(largest)), 0, 8)) if largest > 0 else 4


def _p(p: float) -> str:
    return f"{p:.4f}" if p >= 1e-4 else "< 0.0001"


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
    forms: FileFormat


def compare(
    *,
    data: Path | None,
    target: str | None,
    task: str,
    drop: list[str] | None,
    sep: str | None,
    decimal: str,
    encoding: str,
    activations: str,
    seeds: int,
    folds: int,
    epochs: int | None,
    hidden: str,
    recipe: str,
    metric: str | None,
    test: str,
    baselines: str,
    device: str,
    seed: int,
    jobs: int | None,
    cluster: str | None,
    out: Path,
    force: bool,
    report: Path | None,
) -> None:
    """Find the best activation for a table, and whether the difference is real."""
    with interruptible(), one_line_warnings():
        if jobs is not None and cluster is not None:
            raise UserError("--jobs counts threads of this machine: leave it out with --cluster")
        reading = Reading.of(sep, decimal, encoding)
        tables = _tables(data, target, task, metric, out, report, reading, drop or [])
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
                recipe=recipe,
                name=table.name,
            )
            for table in tables
        ]
        for table in tables:
            _check_places(table, data)
        for table, plan in zip(tables, plans, strict=True):
            _check_holds_no_other(table.folder, plan, force)
        with _workers(cluster):
            for table, plan in zip(tables, plans, strict=True):
                n_jobs = jobs or (None if cluster else _default_jobs(plan))
                found = _run(plan, n_jobs, table.folder / JOURNAL, force)
                _print(found)
                _write(found, table)


# ---- input -------------------------------------------------------------------------------------


def _tables(
    data: Path | None,
    target: str | None,
    task: str,
    metric: str | None,
    out: Path,
    report: Path | None,
    reading: Reading,
    drop: list[str],
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
    table, forms = read_file(data, reading)
    dropped = find_columns("--drop", drop, table.columns)
    if target in map(str, dropped):
        raise UserError(f"--drop leaves out {target!r}, the column to predict")
    table = table.drop(columns=dropped)
    # a Parquet file's columns may have names that are no text
    names = {str(column): column for column in table.columns}
    X, y = split_target(table, names.get(target, target))
    task_of(y, task, data, reading)
    tell_of_odd_columns(table, reading, target=y.name)
    return [_Data(data.name.split(".")[0], X, y, metric, out, report, forms)]


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
        _Data("wdbc", wdbc.data, labels, None, out / "wdbc", place("wdbc"), FileFormat()),
        # AR's target is heavy-tailed: one row decides a fold's R2 or squared error
        _Data("ar", *ar, "mae", out / "ar", place("ar"), FileFormat()),
    ]


def _default_jobs(plan: ComparisonPlan) -> int:
    return cpu_count() if resolve_device(plan.device).type == "cpu" else 1


@contextmanager
def _workers(cluster: str | None) -> Iterator[None]:
    """Let a Dask cluster's workers train, if a scheduler's address is given."""
    if cluster is None:
        yield
        return
    try:
        from distributed import Client
    except ImportError:
        raise UserError("--cluster needs Dask: pip install 'combutab[distributed]'") from None
    try:
        client = Client(cluster, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UserError(f"--cluster {cluster}: no Dask scheduler answers ({error})") from error
    with client, parallel_config(backend="dask", client=client):
        workers = client.scheduler_info()["workers"]
        say(f"on {len(workers)} workers of the Dask cluster at {cluster}", error=True)
        yield


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
    say(
        f"{plan.data}: {len(plan.y)} rows, {plan.task}; training {plan.n_networks} networks "
        f"({product}), hidden layers {'-'.join(map(str, plan.hidden))}, {plan.epochs} epochs, "
        f"on {plan.device}",
        error=True,
    )
    seconds = plan.operations / _CPU_RATE
    if seconds > _LONG and plan.device == "cpu":
        say(
            f"This may take long, about {seconds / 60:.0f} minutes on two cores. Shorter: "
            "--seeds 1, --folds 3, --epochs 10, --hidden 128,128, or --device cuda.",
            error=True,
        )


def _run(
    plan: ComparisonPlan, n_jobs: int | None, journal: Path, force: bool
) -> ActivationComparison:
    """Train and compare; what an interrupt leaves is told of."""
    try:
        _announce(plan)
        if force:
            journal.unlink(missing_ok=True)
        n_kept = _n_networks(journal)
        if n_kept:
            say(f"{n_kept} of them are trained: going on from {journal}", error=True)
        return run_comparison(plan, progress=True, n_jobs=n_jobs, checkpoint=journal)
    except KeyboardInterrupt:
        n_kept = _n_networks(journal)
        say(
            f"combutab: interrupted; the scores of {n_kept} of {plan.n_networks} networks are kept "
            f"in {journal}: the same command goes on from them"
            if n_kept
            else "combutab: interrupted; no network was finished, so there are no scores to keep",
            error=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    except (BrokenBackend, OtherVersions, WorkerDied) as error:
        raise UserError(
            f"{error}; the scores of {_n_networks(journal)} of {plan.n_networks} networks are kept "
            f"in {journal}: the same command goes on from them"
        ) from error


def _n_networks(journal: Path) -> int:
    """Count the networks whose scores a journal holds."""
    if not journal.exists():
        return 0
    lines = journal.read_bytes().splitlines(keepends=True)
    return sum(b'{"activation"' in line and line.endswith(b"\n") for line in lines)


# ---- output ------------------------------------------------------------------------------------


def _print(found: ActivationComparison) -> None:
    console = Console(markup=False, highlight=False, emoji=False)
    say("")
    say(f"{found.data}: {found.measure.description}", wrap=True)
    say(found.design, wrap=True)
    say("")
    console.print(comparison_table(found, console.width))
    say("")
    for sentence in found.sentences.splitlines():
        say(sentence, wrap=True)


def _check_places(table: _Data, data: Path | None) -> None:
    files = {name: table.folder / name for name in FILES}
    for place in files.values():
        if place.is_dir():
            raise UserError(f"cannot write {place}: it is a directory")
    check_folder(table.folder)
    if table.report is not None:
        others = files if data is None else {"DATA": data, **files}
        check_file_with_folder(table.report, **others)


def _write(found: ActivationComparison, data: _Data) -> None:
    """Write all files together; what cannot be written is on the screen by now."""
    folder, report = data.folder, data.report
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
            save_estimator(found.best_estimator, data.forms, str(data.y.name), stage / model)
    except OSError as error:
        raise cannot_write(Path(error.filename or folder), error) from error
    say(f"Wrote {', '.join(FILES)} to {folder}", wrap=True)
    if report is not None:
        say(f"Wrote {report}")


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
