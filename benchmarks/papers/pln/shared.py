"""What the PLN studies share: tables of data and of settings, and the training of stacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import pandas as pd

from benchmarks.common import Job, Row
from benchmarks.common.verdicts import Claim, Verdict, beats, matches
from benchmarks.papers.combu.sources import Source
from combutab.nn import TableNetwork
from combutab.training import MemberPlan, MemberResult, Rows, TrainConfig, train_stack

TASKS = {
    **dict.fromkeys(("digits", "diabetes", "wdbc", "PhishingWebsites"), "classification"),
    **dict.fromkeys(("boston", "autoMpg", "california_housing", "wine_quality"), "regression"),
}

RULES = {"beats": beats, "matches": matches}


def source(name: str, n_rows: int, data_home: str | None) -> Source:
    """A data set of `TASKS`, at most ``n_rows`` of its rows."""
    return Source("openml", name, TASKS[name], limit=n_rows, data_home=data_home)


def claims(study: str, unit: str, judge: Callable[..., Verdict]) -> tuple[Claim, ...]:
    """The claims of a file in ``expected``; what tells them apart goes to ``judge`` by name."""
    table = pd.read_csv(Path(__file__).parent / "expected" / f"{study}.csv", keep_default_na=False)
    rows = table.to_dict("records")
    first = [[row.pop(name) for name in ("where", "text", "margin", "measure")] for row in rows]
    return tuple(
        Claim(where, text, unit, partial(judge, **row), margin, measure)
        for (where, text, margin, measure), row in zip(first, rows, strict=True)
    )


OPTIONS = {"data": tuple(TASKS)}


def combinations(**values: Iterable[object]) -> pd.DataFrame:
    """All combinations of settings; the last changes fastest."""
    return pd.DataFrame(product(*values.values()), columns=list(values))


def stacked_jobs(
    settings: pd.DataFrame, stack: Sequence[str], run: Callable[[list[Row]], list[Row]]
) -> list[Job]:
    """A job for the rows that agree in the columns ``stack``, in the order in which these come."""
    groups = settings.astype(str).groupby(list(stack), sort=False)
    every = [part.to_dict("records") for _, part in groups]
    return [Job(rows, run, rows) for rows in every]


def trained(
    build: Callable[[], TableNetwork], rows: Rows, plans: Sequence[MemberPlan], config: TrainConfig
) -> tuple[TableNetwork, list[MemberResult]]:
    """Train a stack; give it with the weights that it ends with, and what became of its members."""
    results = train_stack(build(), rows, plans, config)
    if any(result.reason == "interrupted" for result in results):
        raise KeyboardInterrupt
    net = build()  # the one that was trained has dropped members that ended early
    for i, result in enumerate(results):
        net.load_member(i, result.state)
    return net, results
