"""New keys of drawn rows, and the parents that further foreign keys of a child refer to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.core.files import Field, choice, kind
from combutab.core.state import declare
from combutab.generators._cells import number_kind
from combutab.generators.tables._families import as_objects, to_floats
from combutab.preprocessing import IdentifierColumn, ModeEncoder

_SECONDS = {"D": 86_400, "s": 1}
_ROUNDS = 50  # in which children choose the nearest parent that has children left
_JITTER = 0.05  # standard deviations, so that equal parents are not all at one place


@dataclass(frozen=True)
class NewKeys:
    """New unique values in place of those of a key column.

    Parameters
    ----------
    identifiers : IdentifierColumn
        Makes text or integers.
    dtype : dtype
        Dtype of the column.
    unit : {"", "D", "s"}
        Unit of the integers if the column has dates: days or seconds.
    """

    identifiers: IdentifierColumn
    dtype: Any
    unit: str = ""

    @classmethod
    def of_column(cls, column: pd.Series, table: str) -> NewKeys:
        """Learn the form of a key; raises ValueError if there is no way to make new ones."""
        present, unit = column.dropna(), ""
        if types.is_datetime64_any_dtype(column.dtype):
            moments = pd.to_datetime(present, utc=True)
            unit = "D" if (moments == moments.dt.normalize()).all() else "s"
            seconds = (moments - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(seconds=1)
            present = (seconds // _SECONDS[unit]).drop_duplicates()
        frame = pd.DataFrame({column.name: present.reset_index(drop=True)})
        try:
            encoder = ModeEncoder(identifiers=[column.name]).fit(frame)
        except ValueError:
            raise ValueError(
                f"table {table!r}: the key column {column.name!r} has the dtype {column.dtype}, "
                "but new keys can only be text, whole numbers or dates; convert it to text"
            ) from None
        (identifiers,) = encoder.columns_
        assert isinstance(identifiers, IdentifierColumn)
        return cls(identifiers, column.dtype if unit else identifiers.dtype, unit)

    def make(self, n: int) -> pd.Series:
        """Make n keys that differ from those of the fitted column."""
        keys = self.identifiers.decode(np.zeros(n, dtype=np.int64))
        if not self.unit:
            return keys
        moments = pd.to_datetime(keys * _SECONDS[self.unit], unit="s")
        zone = getattr(self.dtype, "tz", None)
        return (moments if zone is None else moments.dt.tz_localize(zone)).astype(self.dtype)


declare(
    NewKeys,
    {
        "identifiers": kind(IdentifierColumn),
        "dtype": Field("a dtype", lambda value: True),
        "unit": choice("", *_SECONDS),
    },
)


def match_parents(
    children: pd.DataFrame, parents: pd.DataFrame, n_children: np.ndarray, seed: int
) -> np.ndarray:
    """Choose a parent for each child that is similar in the common columns, (n,).

    Each parent gets about the number of children that it should have.

    Parameters
    ----------
    children, parents : DataFrame
        The same columns, of both.
    n_children : ndarray of shape (len(parents),)
        Number of children of each parent, in proportion.
    seed : int

    Returns
    -------
    ndarray of shape (len(children),)
        Positions of the parents.
    """
    from scipy.spatial import cKDTree

    rng = np.random.default_rng(seed)
    points, parent_points = _points(children, parents)
    parent_points = parent_points + rng.normal(0, _JITTER, parent_points.shape)
    n_open = _divide(np.nan_to_num(n_children), len(children))
    chosen = np.full(len(children), -1)
    pending = rng.permutation(len(children))
    for _ in range(_ROUNDS):
        if not len(pending):
            break
        available = np.flatnonzero(n_open)
        _, nearest = cKDTree(parent_points[available]).query(points[pending])
        nearest_parent = pd.Series(available[nearest])
        rank = nearest_parent.groupby(nearest_parent).cumcount().to_numpy()
        is_accepted = rank < n_open[nearest_parent]
        accepted = nearest_parent.to_numpy()[is_accepted]
        chosen[pending[is_accepted]] = accepted
        n_open -= np.bincount(accepted, minlength=len(n_open))
        pending = pending[~is_accepted]
    chosen[pending] = rng.permutation(np.repeat(np.arange(len(n_open)), n_open))
    return chosen


def _divide(weights: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers in proportion to the weights, by largest remainders."""
    weights = weights if weights.sum() > 0 else np.ones(len(weights))
    exact = weights / weights.sum() * total
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts


def _points(children: pd.DataFrame, parents: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Points of rows: numbers as normalized ranks, and one dimension for each frequent category."""
    columns: list[np.ndarray] = [np.zeros(len(children) + len(parents))]
    for name in parents:
        both = pd.concat([children[name], parents[name]], ignore_index=True)
        if number_kind(parents[name].dtype) is not None:
            x = pd.Series(to_floats(both.astype(parents[name].dtype)))
            columns.append(x.rank(pct=True).fillna(-1.0).to_numpy() * 3.5)
            continue
        values = as_objects(both)
        for value in values.value_counts().index[:_ROUNDS]:
            columns.append((values == value).to_numpy(dtype=float))
    points = np.column_stack(columns)
    return points[: len(children)], points[len(children) :]
