"""The report of `combutab synth`: rows set aside before the training, to compare with after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from combutab._model_files import model_header
from combutab.cli._console import UserError, note
from combutab.cli._evaluate import find_target, names_of, run_evaluation, tell, write_page
from combutab.cli.synth._made import describe
from combutab.preprocessing import infer_task

_HOLDOUT = 0.2
_MOST = 0.9


@dataclass(frozen=True)
class SynthReport:
    """A report that was asked for: a page at ``path``, with a column for learners to predict."""

    path: Path
    target: Any
    holdout: float


def plan_report(
    path: Path | None,
    target: str | None,
    holdout: float | None,
    table: pd.DataFrame,
    conditions: Mapping[Any, Any],
) -> SynthReport | None:
    """Check what was asked for; None without a path."""
    if path is None:
        for option, value in (("--target", target), ("--holdout", holdout)):
            if value is not None:
                raise UserError(f"{option} {value} is for a report: --report report.html")
        return None
    if conditions:
        raise UserError(
            "a report is of rows without conditions, to be compared with all of DATA; leave "
            "--condition or --report out"
        )
    share = _HOLDOUT if holdout is None else holdout
    if not 0 <= share <= _MOST:
        raise UserError(f"--holdout must lie between 0 and {_MOST}, got {share:g}")
    column = None if target is None else find_target(target, table.columns)
    return SynthReport(path, column, share)


def set_aside(
    table: pd.DataFrame, report: SynthReport | None, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The rows to learn from, and those to compare with; both in the table's order.

    Raises UserError if one of them has too few rows, or no target that can be predicted.
    """
    if report is None:
        return table, None
    n = round(report.holdout * len(table))
    held = np.zeros(len(table), dtype=bool)
    held[np.random.default_rng(seed).permutation(len(table))[:n]] = True
    train, test = table[~held], table[held] if report.holdout else None
    if min(len(train), 2 if test is None else len(test)) < 2:
        raise UserError(
            f"--holdout {report.holdout:g} sets {n:,} of {len(table):,} rows aside; at least 2 are "
            "needed, and 2 to learn from: choose another share, or 0"
        )
    if report.target is not None:
        _check_target(report.target, train, test)
    if test is not None:
        note(
            f"{n:,} of {len(table):,} rows are set aside for the report; the generator learns from "
            f"the other {len(train):,} (--holdout)"
        )
    return train, test


def _check_target(target: Any, train: pd.DataFrame, test: pd.DataFrame | None) -> None:
    if train.shape[1] < 2:
        raise UserError(f"--target: there is no column beside {str(target)!r} to predict it from")
    for table in (train, test):
        if table is not None and table[target].isna().all():
            raise UserError(f"--target: {str(target)!r} is missing in all rows")
    try:
        infer_task(train[target].dropna())
    except ValueError as error:
        raise UserError(f"--target: {str(target)!r} cannot be predicted: {error}") from error


def write_synth_report(
    report: SynthReport,
    generator: Any,
    tables: Mapping[str, pd.DataFrame | None],
    files: Mapping[str, Path],
    *,
    discrete: list[Any],
    seed: int,
    min_frequency: float,
) -> None:
    """Evaluate the rows that were made, write the page, and print what was found.

    ``tables`` are those of `evaluate_synthetic`, ``files`` those that the real and the synthetic
    rows are in, and ``discrete`` the columns of numbers that are categories. Raises UserError if
    the rows cannot be compared, or the page cannot be written.
    """
    names = names_of(files)
    names["test"] = f"{names['real']}, set aside"
    made = describe(model_header(generator)) | {"Seed of the rows": str(seed)}
    arguments = {
        **tables,
        "target": report.target,
        "categorical": discrete,
        "made": made,
        "names": names,
        "min_frequency": min_frequency,
        "random_state": seed,
    }
    try:
        found = run_evaluation(arguments)
    except UserError as error:
        done = f"{files['synthetic']} is written, but not the report"
        raise UserError(f"{done}: {error}") from error
    write_page(found, report.path)
    tell(found)
