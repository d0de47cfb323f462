"""The tables that evaluators are given, and the table that they return."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from combutab.preprocessing import TableEncoder

REAL = "real"
Tables = Any  # one table, a list of them, or a mapping of name to either


def label_tables(synthetic: Tables) -> dict[str, tuple[str, Any]]:
    """The source that each table is a sample of, and the table, by a label for errors.

    Tables without a name are samples of "synthetic".

    Raises ValueError if there is none, or a name is that of the real rows.
    """
    groups = synthetic if isinstance(synthetic, Mapping) else {"synthetic": synthetic}
    labelled: dict[str, tuple[str, Any]] = {}
    for source, tables in groups.items():
        if source in (REAL, "real_train", "real_test"):
            raise ValueError(f"{source!r} is a name of the real rows; call {source!r} otherwise")
        # a list of rows is a table, a list of tables is not
        several = isinstance(tables, list | tuple) and (not tables or _is_table(tables[0]))
        samples = list(tables) if several else [tables]
        for i, table in enumerate(samples):
            labelled[f"{source}[{i}]" if len(samples) > 1 else str(source)] = (str(source), table)
        if not samples:
            raise ValueError(f"{source} is an empty list; give at least one table")
    if not labelled:
        raise ValueError("synthetic is empty; give a table, or a list or mapping of tables")
    return labelled


def _is_table(thing: Any) -> bool:
    return hasattr(thing, "columns") or np.ndim(thing) == 2


def with_text_names(table: pd.DataFrame) -> pd.DataFrame:
    """The table with names of columns that scikit-learn takes: text, or all of one kind.

    >>> with_text_names(pd.DataFrame({"a": [1], 0: [2], "0": [3]})).columns.tolist()
    ['column 0', 'column 1', 'column 2']
    """
    if len({isinstance(name, str) for name in table.columns}) < 2:
        return table
    return table.set_axis([f"column {j}" for j in range(table.shape[1])], axis=1)


@contextmanager
def no_word_of_names() -> Iterator[None]:
    """Leave out the encoder's warning of columns whose values all differ, as names of rows do.

    No learner learns anything of other rows from them, and its way out is not for tables that are
    judged.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fewer than 2 rows have each category of", UserWarning)
        yield


def encode(train: Any, *others: Any) -> list[np.ndarray]:
    """Features as float32 arrays of equal width; all that is learned is learned from ``train``."""
    encoder = TableEncoder(min_frequency=1)  # what is learned here is not kept
    with no_word_of_names():
        first = encoder.fit_encode(train)
    sizes = np.array(encoder.cardinalities_, dtype=np.float32)
    return [
        # codes of many categories between 0 and 1, of the size of the scaled columns
        np.hstack([encoded.dense, encoded.codes.astype(np.float32) / sizes])
        for encoded in (first, *map(encoder.encode, others))
    ]


def ordered(table: pd.DataFrame, rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Sort by keys, each as its values first come in ``rows``."""
    ranks = [
        table[name].map({key: i for i, key in enumerate(rows[name].unique())}) for name in keys
    ]
    return table.iloc[np.lexsort(ranks[::-1])].reset_index(drop=True)
