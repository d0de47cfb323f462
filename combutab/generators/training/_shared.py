"""One training of a stack of generators, shared by ranks: its members, or else a step's rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from combutab._ranks import agreed, check_same, current, unshared
from combutab.generators._contract import Training
from combutab.generators._records import GeneratorPlan, GeneratorResult, TableRows


def share(
    train: Callable[[Sequence[GeneratorPlan]], list[GeneratorResult]],
    rows: TableRows,
    plans: Sequence[GeneratorPlan],
    *,
    apart: bool,
) -> list[GeneratorResult]:
    """Train members; where ranks share the fit, all return the same results.

    ``apart``: members may be shared out, without a word until they are trained, if there are as
    many as ranks; else each step's rows are.
    """
    ranks = current()
    if ranks is None:
        return train(plans)
    check_same(ranks, [rows.values, rows.codes])
    if not agreed(apart) or len(plans) < ranks.count:
        return train(plans)
    with unshared():
        results = train(plans[slice(*ranks.span(len(plans)))])
    if any(result.reason == "interrupted" for result in results):
        raise KeyboardInterrupt
    return [result for of_rank in ranks.gather(results) for result in of_rank]


def check_rows_shared(training: Training[Any], name: str) -> None:
    """Refuse steps whose rows ranks cannot each take a part of."""
    ranks = current()
    if ranks is None:
        return
    networks = [network.mixes_rows() for network in training.networks.values()]
    mixed = next(filter(None, networks), None)
    if not training.shares_rows:
        mixed = f"{name}: a step"
    elif training.batch_size < ranks.count:
        raise ValueError(
            f"batch_size={training.batch_size} is less than the {ranks.count} ranks that share "
            "each step; raise it, or begin fewer"
        )
    if mixed is not None:
        raise ValueError(
            f"{mixed} looks at the rows of a batch together, which {ranks.count} ranks would see "
            f"in parts: use something else, or n_members of at least {ranks.count} without "
            "callbacks, verbose and checkpoint, which are then shared out"
        )
