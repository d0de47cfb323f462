"""The tables of the diffusion literature, cleaned and split as TabDiff's process_dataset.py does.

A further table: a file NAME.csv or NAME.csv.gz in the folder, and a row in LAYOUTS if its target is
not the last column or a column of categories is written as numbers. Its test rows are those of
NAME_test.csv, where there is such a file, or else TabDiff's random tenth. adult: UCI's adult.data
and adult.test, or adult.csv with a header and UCI's columns in their order, and adult_test.csv or
all rows in one file, the 32,561 training rows first.

References
----------
M. Shi et al., "TabDiff: a mixed-type diffusion model for tabular data generation", ICLR 2025,
arXiv 2410.20626; https://github.com/MinkaiXu/TabDiff, `process_dataset.py` and `data/Info/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks.quality.tables import FEW, files

TEST = "_test"  # what the name of a file of test rows ends in
TRAIN_SHARE = 0.9
FIRST_SEED = 1234
MOST_TRIES = 1000
LEAST_ROWS = 20


@dataclass(frozen=True)
class Layout:
    """What the columns of a table are; those not named are numbers.

    Attributes
    ----------
    target : str
    categories : tuple of str
        Without the target.
    classify : bool
    columns : tuple of str
        Those that are kept, in this order, the target among them; all by default.
    names : tuple of str
        Of the columns in the file's order, where files differ in them or have none.
    n_train : int, optional
        The training rows are the first so many of a file that holds more.
    """

    target: str
    categories: tuple[str, ...] = ()
    classify: bool = True
    columns: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    n_train: int | None = None

    @property
    def discrete(self) -> list[str]:
        return [*self.categories, *([self.target] if self.classify else [])]


_DIABETES_NUMBERS = (
    *("num_lab_procedures", "num_medications", "number_outpatient", "number_emergency"),
    *("number_inpatient", "age", "time_in_hospital", "num_procedures", "number_diagnoses"),
)
_DIABETES_CATEGORIES = (
    *("race", "gender", "admission_type_id", "discharge_disposition_id", "admission_source_id"),
    *("diag_1", "diag_2", "diag_3", "max_glu_serum", "A1Cresult", "metformin", "repaglinide"),
    *("nateglinide", "chlorpropamide", "glimepiride", "glipizide", "glyburide", "tolbutamide"),
    *("pioglitazone", "rosiglitazone", "acarbose", "miglitol", "tolazamide", "insulin"),
    *("glyburide-metformin", "change", "diabetesMed"),
)
_ADULT = (
    *("age", "workclass", "fnlwgt", "education", "education.num", "marital.status", "occupation"),
    *("relationship", "race", "sex", "capital.gain", "capital.loss", "hours.per.week"),
    *("native.country", "income"),
)
LAYOUTS = {
    "magic": Layout("class"),
    "shoppers": Layout(
        "Revenue",
        ("Month", "OperatingSystems", "Browser", "Region", "TrafficType", "VisitorType", "Weekend"),
    ),
    "adult": Layout(
        "income",
        tuple(_ADULT[i] for i in (1, 3, 5, 6, 7, 8, 9, 13)),
        names=_ADULT,
        n_train=32_561,
    ),
    "default": Layout(
        "default payment next month",
        ("SEX", "EDUCATION", "MARRIAGE", *(f"PAY_{month}" for month in (0, 2, 3, 4, 5, 6))),
    ),
    "beijing": Layout(
        "pm2.5",
        ("year", "month", "day", "hour", "cbwd"),
        classify=False,
        columns=(
            *("year", "month", "day", "hour", "pm2.5", "DEWP", "TEMP", "PRES", "cbwd"),
            *("Iws", "Is", "Ir"),
        ),
    ),
    "diabetes130": Layout(
        "readmitted",
        _DIABETES_CATEGORIES,
        columns=(*_DIABETES_NUMBERS, *_DIABETES_CATEGORIES, "readmitted"),
    ),
}


@dataclass(frozen=True)
class Data:
    """Rows to learn from and rows held out: numbers, and columns of the dtype category."""

    train: pd.DataFrame
    test: pd.DataFrame
    target: str
    classify: bool


def available(folder: str) -> dict[str, Path]:
    """The files of training rows, by the name of their table."""
    found = {n: p for n, p in files(folder).items() if not n.endswith(TEST)}
    uci = Path(folder) / "adult.data"
    return {"adult": uci} | found if uci.exists() else found


def load(name: str, folder: str) -> Data:
    """Read, clean and split one table.

    Raises
    ------
    ValueError
        There is no such file, a column is missing or has values that cannot be used, there are too
        few rows, or no split has every category among its training rows.
    """
    if name not in available(folder):
        raise ValueError(f"no table {name!r} in {folder}; there are {sorted(available(folder))}")
    paths = [path for path in (available(folder)[name], _test_file(name, folder)) if path]
    tables = [_read(path, LAYOUTS.get(name)) for path in paths]
    layout = LAYOUTS.get(name) or _guessed(tables[0])
    tables = [_clean(name, table, layout) for table in tables]
    if len(tables[0]) < LEAST_ROWS:
        raise ValueError(
            f"table {name!r} has {len(tables[0])} usable rows; at least {LEAST_ROWS} are needed"
        )
    table = pd.concat(tables, ignore_index=True)
    for column in layout.discrete:
        texts = table[column].astype(object).where(table[column].notna(), "nan").astype(str)
        table[column] = texts.astype("category")
    n_train = len(tables[0]) if len(tables) > 1 else layout.n_train
    if n_train and n_train < len(table):
        train, held = np.split(np.arange(len(table)), [n_train])
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
        f"training rows; merge its rare categories, or put the test rows into a file NAME{TEST}.csv"
    )


def stratified_split(target: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Draw the 60 % and 20 % of diabetes130; the other 20 % are for validation, and left out."""
    options = {"random_state": 42}
    rest, test = train_test_split(np.arange(len(target)), test_size=0.2, stratify=target, **options)
    share = 0.2 / (1 - 0.2)
    train, _ = train_test_split(rest, test_size=share, stratify=target.iloc[rest], **options)
    return train, test


def _test_file(name: str, folder: str) -> Path | None:
    if available(folder)[name].suffix == ".data":
        uci = Path(folder) / f"{name}.test"
        return uci if uci.exists() else None
    return files(folder).get(name + TEST)


def _read(path: Path, layout: Layout | None) -> pd.DataFrame:
    names = list(layout.names) if layout else []
    if path.suffix in (".data", ".test"):  # UCI's adult: no header, but a line above the test rows
        skip = int(path.suffix == ".test")
        return pd.read_csv(path, names=names, skiprows=skip, skipinitialspace=True)
    try:
        table = pd.read_csv(path, skipinitialspace=True)
    except ValueError as error:  # pandas names no file
        raise ValueError(f"{path.name} cannot be read: {error}") from error
    return table.set_axis(names, axis=1) if len(names) == len(table.columns) else table


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
    table = table.dropna(subset=numbers)
    if infinite := [c for c in numbers if np.isinf(table[c]).any()]:
        raise ValueError(f"table {name!r} has infinite values in {infinite}")
    return table


def _guessed(table: pd.DataFrame) -> Layout:
    """The target is the last column; texts and booleans are categories."""
    *features, target = table.columns
    y = table[target]
    classify = not _numeric(y) or (y.nunique() <= FEW and bool((y.dropna() % 1 == 0).all()))
    return Layout(target, tuple(c for c in features if not _numeric(table[c])), classify)


def _numeric(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and column.dtype != bool
