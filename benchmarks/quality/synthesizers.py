"""What makes the synthetic tables that are compared: ours, other packages', and three yardsticks.

All have their own defaults and are trained on a CPU. Those that take no missing values are given
means and a category "missing", which becomes a missing value again in their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import combutab
from benchmarks.speed.common import forget_peak, memory

MISSING = "missing"
Sample = Callable[[int], pd.DataFrame]


@dataclass(frozen=True)
class Task:
    """What is to be learned.

    Attributes
    ----------
    table : DataFrame
        Numbers, and columns of the dtype category; the target is one or the other.
    target : str
    classify : bool
    seed : int
    quick : bool
        Training is to be as short as can be.
    """

    table: pd.DataFrame
    target: str
    classify: bool
    seed: int
    quick: bool = False

    @property
    def kind(self) -> Literal["classification", "regression"]:
        return "classification" if self.classify else "regression"

    @property
    def discrete(self) -> list[str]:
        return list(self.table.select_dtypes("category"))

    def short(self, **parameters: Any) -> dict[str, Any]:
        """Return the parameters for a quick form, else none."""
        return parameters if self.quick else {}

    def without_gaps(self) -> pd.DataFrame:
        """Categories as text."""
        texts = {c: self.table[c].astype(object).fillna(MISSING).astype(str) for c in self.discrete}
        return self.table.assign(**texts).fillna(self.table.mean(numeric_only=True))

    def with_gaps(self, rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(**{c: rows[c].where(rows[c] != MISSING) for c in self.discrete})


Synthesizer = tuple[Callable[[Task], Sample], str]  # what trains it, and a module loaded before


def installed(models: Iterable[str]) -> list[str]:
    """Those of the models that can be run here; what is left out is printed, and why."""
    there = []
    for model in models:
        module = SYNTHESIZERS[model][1]
        try:
            import_module(module)
        except ImportError as error:
            print(f"skipped: {model}: {module} cannot be imported: {error}", flush=True)
        else:
            there.append(model)
    return there


def _real(task: Task) -> Sample:
    return lambda n: task.table.iloc[:n]


def _independent(task: Task) -> Sample:
    """Each column drawn for itself: what single columns are worth."""
    rng = np.random.default_rng(task.seed)

    def sample(n: int) -> pd.DataFrame:
        drawn = {"replace": True, "random_state": rng, "ignore_index": True}
        return pd.DataFrame({c: task.table[c].sample(n, **drawn) for c in task.table})

    return sample


def smote(task: Task, n_neighbors: int = 5) -> Sample:
    """Rows between a row and one of its nearest neighbours, which of a class are in that class.

    N. V. Chawla et al., "SMOTE: synthetic minority over-sampling technique", JAIR 16, 2002. Numbers
    are interpolated; a category is that of one of the two rows.
    """
    table = task.table
    numbers, others = list(table.select_dtypes("number")), task.discrete
    scaled = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler())
    points = make_column_transformer((scaled, numbers), (OneHotEncoder(), others))
    places = points.fit_transform(table)
    groups = table[task.target].cat.codes.to_numpy() if task.classify else np.zeros(len(table))
    near: list[np.ndarray] = [np.empty(0, np.intp)] * len(table)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        most = min(n_neighbors, len(rows) - 1)
        if not most:
            near[rows[0]] = rows  # alone: its own neighbour
            continue
        found = NearestNeighbors(n_neighbors=most).fit(places[rows]).kneighbors()[1]
        for row, own in zip(rows, rows[found], strict=True):
            near[row] = own
    rng = np.random.default_rng(task.seed)

    def sample(n: int) -> pd.DataFrame:
        first = rng.integers(len(table), size=n)
        second = np.array([rng.choice(near[row]) for row in first])
        share = rng.random(n)
        of_one = np.where(share < 0.5, first, second)
        rows = table.iloc[of_one].reset_index(drop=True)
        values = table[numbers].to_numpy(float)
        mixed = values[first] + share[:, None] * (values[second] - values[first])
        mixed = pd.DataFrame(np.where(np.isnan(mixed), values[of_one], mixed), columns=numbers)
        whole = list(table.select_dtypes("integer"))
        return rows.assign(**mixed.assign(**mixed[whole].round()))

    return sample


def _ours(name: str, task: Task) -> Sample:
    model = getattr(combutab, name)(random_state=task.seed, device="cpu", **task.short(epochs=2))
    return model.fit(task.table).sample


def _ctgan(name: str, task: Task) -> Sample:
    import ctgan

    model = getattr(ctgan, name)(enable_gpu=False, **task.short(epochs=2))
    model.set_random_state(task.seed)
    model.fit(task.without_gaps(), task.discrete)
    return lambda n: task.with_gaps(model.sample(n))


def _copula(task: Task) -> Sample:
    from sdv.metadata import Metadata
    from sdv.single_table import GaussianCopulaSynthesizer

    kinds = dict.fromkeys(task.table, "numerical") | dict.fromkeys(task.discrete, "categorical")
    columns = {name: {"sdtype": kind} for name, kind in kinds.items()}
    metadata = Metadata.load_from_dict({"tables": {"table": {"columns": columns}}})
    model = GaussianCopulaSynthesizer(metadata)
    model.fit({"table": task.table})
    model._set_random_state(task.seed)  # else every table is drawn from the same seed
    return lambda n: model.sample(n)["table"]


def _argn(task: Task) -> Sample:
    from mostlyai.engine import TabularARGN

    # the others replace no rare values either
    options = {"value_protection": False, "device": "cpu", "random_state": task.seed}
    return TabularARGN(**options, **task.short(max_epochs=1)).fit(task.table).sample


def _forest(task: Task) -> Sample:
    from ForestDiffusion import ForestDiffusionModel

    table, label = task.without_gaps(), [task.target] if task.classify else []
    # it takes column 11 for column 1 where it looks for categories: these come first, up to ten
    names = [*task.discrete, *table.select_dtypes("number")]
    inputs, categories = [c for c in names if c not in label], {}
    for c in task.discrete:
        table[c], categories[c] = pd.factorize(table[c], sort=True)
    options = {"n_jobs": 1, "nthread": 1, "seed": task.seed}
    options |= task.short(duplicate_K=2, n_estimators=2)
    model = ForestDiffusionModel(
        table[inputs].to_numpy(float),
        label_y=table[task.target].to_numpy() if label else None,
        cat_indexes=[i for i, c in enumerate(inputs) if c in categories],
        int_indexes=[i for i, c in enumerate(inputs) if task.table[c].dtype.kind in "iu"],
        **options,
    )

    def sample(n: int) -> pd.DataFrame:
        rows = pd.DataFrame(model.generate(n), columns=inputs + label)[list(table)]
        texts = {c: own[rows[c].astype(int)] for c, own in categories.items()}
        return task.with_gaps(rows.assign(**texts))

    return sample


REAL, TVAE = "real rows", "combutab TVAE"
SYNTHESIZERS: dict[str, Synthesizer] = {
    REAL: (_real, "combutab"),  # the training rows once more: the best scores there are
    "independent columns": (_independent, "combutab"),
    "SMOTE": (smote, "combutab"),
    **{f"combutab {n}": (partial(_ours, n), "combutab") for n in ("TabFlow", "TVAE", "CTGAN")},
    **{f"ctgan {name}": (partial(_ctgan, name), "ctgan") for name in ("TVAE", "CTGAN")},
    "sdv GaussianCopula": (_copula, "sdv.single_table"),
    "mostlyai TabularARGN": (_argn, "mostlyai.engine"),
    "ForestDiffusion": (_forest, "ForestDiffusion"),
}


def make_rows(
    synthesizer: Synthesizer, task: Task, clock: Callable[[], float]
) -> tuple[pd.DataFrame, list[float]]:
    """Train a model and make as many rows as it was trained on.

    With them the seconds of the fit and of sampling, by that clock, and by how many megabytes the
    process grew at most.
    """
    fit, module = synthesizer
    import_module(module)  # what is loaded once is no part of a fit
    before, moments = memory("VmRSS"), [clock()]
    forget_peak()
    sample = fit(task)
    moments.append(clock())
    rows = sample(len(task.table))
    moments.append(clock())
    return rows, [*np.diff(moments).tolist(), (memory("VmHWM") - before) * 2**20 / 1e6]
