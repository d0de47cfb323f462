"""The tables of the diffusion literature, cleaned and split as TabDiff's process_dataset.py does.

A further table: a file NAME.csv or NAME.csv.gz in the folder, and an entry in
expected/diffusion_layouts.json if its target is not the last column or a column of categories is
written as numbers. adult.csv has UCI's columns in their order, and all rows: the 32,561 training
rows first.

References
----------
M. Shi et al., "TabDiff: a mixed-type diffusion model for tabular data generation", ICLR 2025,
arXiv 2410.20626; https://github.com/MinkaiXu/TabDiff, `process_dataset.py` and `data/Info/`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks.quality.tables import FEW, files

TRAIN_SHARE = 0.9
FIRST_SEED = 1234
MOST_TRIES = 1000


@dataclass(frozen=True)
class Layout:
    """What the columns of a table are; those not named are numbers.

    Attributes
    ----------
    target : str
    categories : sequence of str
        Without the target.
    classify : bool
    columns : sequence of str
        Those that are kept, in this order, the target among them; all by default.
    names : sequence of str
        Of the columns in the file's order, where files differ in them or have none.
    n_train : int, optional
        The training rows are the first so many of a file that holds more.
    """

    target: str
    categories: Sequence[str] = ()
    classify: bool = True
    columns: Sequence[str] = ()
    names: Sequence[str] = ()
    n_train: int | None = None

    @property
    def discrete(self) -> list[str]:
        return [*self.categories, *([self.target] if self.classify else [])]


_FILE = Path(__file__).parent / "expected" / "diffusion_layouts.json"
LAYOUTS = {name: Layout(**own) for name, own in json.loads(_FILE.read_text("utf-8")).items()}


@dataclass(frozen=True)
class Data:
    """Rows to learn from and rows held out: numbers, and columns of the dtype category."""

    train: pd.DataFrame
    test: pd.DataFrame
    target: str
    classify: bool


def load(name: str, folder: str) -> Data:
    """Read, clean and split one table.

    Raises
    ------
    ValueError
        There is no such file, a column is missing or has texts among its numbers, or no split has
        every category among its training rows.
    """
    if name not in files(folder):
        raise ValueError(f"no table {name!r} in {folder}; there are {sorted(files(folder))}")
    table = pd.read_csv(files(folder)[name], skipinitialspace=True)
    layout = LAYOUTS.get(name) or _guessed(table)
    if len(layout.names) == len(table.columns):
        table = table.set_axis(layout.names, axis=1)
    table = _clean(name, table, layout)
    for column in layout.discrete:
        texts = table[column].astype(object).where(table[column].notna(), "nan").astype(str)
        table[column] = texts.astype("category")
    if layout.n_train and layout.n_train < len(table):
        train, held = np.split(np.arange(len(table)), [layout.n_train])
    elif name == "diabetes130":
        train, held = stratified_split(table[layout.target])
    else:
        train, held = random_split(table, layout.categories)
    learned, test = (table.iloc[rows].reset_index(drop=True) for rows in (train, held))
    for column in layout.discrete:  # those of the test rows alone are not to be known
        learned[column] = learned[column].cat.remove_unused_categories()
    return Data(learned, test, layout.target, layout.classify)


def random_split(table: pd.DataFrame, categories: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Draw TabDiff's 90 % and 10 %: the first that has every category among its training rows.

    The rows are shuffled again in place, from the order that the seed before left.
    """
    order, n_train = np.arange(len(table)), int(len(table) * TRAIN_SHARE)
    codes = {c: table[c].cat.codes.to_numpy() for c in categories}
    counts = {c: len(np.unique(own)) for c, own in codes.items()}
    lacking = ""
    for seed in range(FIRST_SEED, FIRST_SEED + MOST_TRIES):
        np.random.RandomState(seed).shuffle(order)
        train = order[:n_train]
        lacking = next((c for c in codes if len(np.unique(codes[c][train])) < counts[c]), "")
        if not lacking:
            return train, order[n_train:]
    raise ValueError(
        f"in {MOST_TRIES} splits there was none with every category of {lacking!r} among its "
        "training rows; merge its rare categories"
    )


def stratified_split(target: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Draw the 60 % and 20 % of diabetes130; the other 20 % are for validation, and left out."""
    options = {"random_state": 42}
    rest, test = train_test_split(np.arange(len(target)), test_size=0.2, stratify=target, **options)
    share = 0.2 / (1 - 0.2)
    train, _ = train_test_split(rest, test_size=share, stratify=target.iloc[rest], **options)
    return train, test


def _clean(name: str, table: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    wanted = list(layout.columns or table.columns)
    if missing := [c for c in (*wanted, layout.target, *layout.categories) if c not in table]:
        raise ValueError(f"table {name!r} has no column {missing}; its columns: {list(table)}")
    table = table[wanted]
    if name == "adult":  # UCI's test rows end in a full stop
        table = table.assign(income=table["income"].str.rstrip("."))
    if name == "diabetes130":
        table = table.where(table != "?")
        gaps = table[list(layout.categories)].isna()
        ages = np.unique(table["age"])  # "[0-10)" to "[90-100)": their order is that of the text
        table = table.assign(
            age=np.searchsorted(ages, table["age"]),
            readmitted=(table["readmitted"] != "NO").astype(int),
            **table[list(layout.categories)].astype(object).mask(gaps, "empty"),
        )
    numbers = [c for c in wanted if c not in layout.discrete]
    if texts := [c for c in numbers if not _numeric(table[c])]:
        raise ValueError(f"table {name!r} has other values than numbers in {texts}")
    # NOTE[DIFF]: process_dataset.py drops rows with gaps of beijing and diabetes130 alone, since no
    # other of its tables has any; we drop them of any table, or the scores could not be computed.
    return table.dropna(subset=numbers).reset_index(drop=True)


def _guessed(table: pd.DataFrame) -> Layout:
    """The target is the last column; texts and booleans are categories."""
    *features, target = table.columns
    y = table[target]
    classify = not _numeric(y) or (y.nunique() <= FEW and bool((y.dropna() % 1 == 0).all()))
    return Layout(target, tuple(c for c in features if not _numeric(table[c])), classify)


def _numeric(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and column.dtype != bool
