"""The declared fields of the state of a fitted ModeEncoder."""

from __future__ import annotations

import re
from typing import get_args

import numpy as np
import pandas as pd

from combutab.core.files import Field, choice, kind, nullable, number, several, text, whole
from combutab.core.state import declare
from combutab.preprocessing.modes._columns import (
    CategoryColumn,
    IdentifierColumn,
    IdentifierKind,
    Identifiers,
    NumberColumn,
    TableSchema,
)
from combutab.preprocessing.modes._fakes import Fakes
from combutab.preprocessing.modes._numbers import (
    HELD,
    NARROW,
    Bins,
    FloatFormat,
    Mixture,
    RoundingSteps,
    TickFormat,
)


def _vector(dtype: type, *, positive: bool = True, least: int = 1) -> Field:
    return Field(
        f"an array of {'positive ' * positive}{dtype.__name__}",
        lambda v: (
            isinstance(v, np.ndarray)
            and v.dtype == dtype
            and v.ndim == 1
            and len(v) >= least
            and bool(np.isfinite(v).all())
            and (not positive or bool((v > 0).all()))
        ),
    )


STATE = {
    "parameters": kind(dict),
    "schema": kind(TableSchema),
    "columns": several(kind(CategoryColumn, NumberColumn, IdentifierColumn), 1),
}
_DTYPE = Field("a dtype", lambda v: isinstance(v, np.dtype | pd.api.extensions.ExtensionDtype))
_COUNTS = _vector(np.int64)
_MODES = {
    "weights": _vector(np.float64),
    "means": _vector(np.float64, positive=False),
    "sds": _vector(np.float64),
}
_INT64_OR_UINT64 = whole(-(2**63), 2**64 - 1)


def _check_modes(modes: Mixture) -> None:
    if len({len(modes.weights), len(modes.means), len(modes.sds)}) > 1:
        raise ValueError("the encoder's state has modes of a column of several lengths")


def _check_bins(bins: Bins) -> None:
    _check_modes(bins)
    if len(bins.points) != len(bins.shares) or (np.diff(bins.points) <= 0).any():
        raise ValueError("the points of the encoder's bins must ascend and have a share each")
    if len(bins.points) and not (bins.sds > NARROW).any():
        raise ValueError("the encoder's bins have points, but no interval that these are in")


def _check_bounds(format: TickFormat | FloatFormat) -> None:
    if format.low > format.high:
        raise ValueError("the encoder's state has a column whose least number is above its largest")


def _check_steps(rounding: RoundingSteps) -> None:
    steps = list(rounding.steps)
    if len(steps) != len(rounding.shares) or steps != sorted({*steps}):
        raise ValueError(
            "the rounding steps of the encoder's columns must ascend and have a share each"
        )


def _check_categories(column: CategoryColumn) -> None:
    """Refuse categories that are not distinct, or not missing where they should be."""
    values, n_distinct = column.values, len(column.codes)
    absent = values.isna().to_numpy(dtype=bool)
    if column.size != len(column.counts) or n_distinct + column.missing != len(values):
        raise ValueError(
            f"the encoder's state has a column of {len(column.counts)} values of which "
            f"{n_distinct} differ"
        )
    if absent[: len(values) - column.missing].any() or (column.missing and not absent[-1]):
        raise ValueError("the encoder's state has missing values where a column has none")


def _check_identifiers(column: IdentifierColumn) -> None:
    if column.size != len(column.counts):
        raise ValueError(
            f"the encoder's state has {len(column.counts)} counts of identifiers, which needs "
            f"{column.size}"
        )


def _check_fakes(fakes: Fakes) -> None:
    # a name of a forged file is a method that is called
    if not re.fullmatch("[a-z][a-z0-9_]*", fakes.provider):
        raise ValueError(f"the encoder's state has the provider {fakes.provider!r} of Faker")


declare(
    TableSchema,
    {
        "names": Field("names of columns", lambda v: isinstance(v, pd.Index)),
        "array_dtype": Field("a dtype", lambda v: v is None or isinstance(v, np.dtype)),
    },
)
declare(Mixture, _MODES, _check_modes)
declare(
    Bins,
    _MODES
    | {
        "points": _vector(np.float64, positive=False, least=0),
        "shares": _vector(np.float64, least=0),
    },
    _check_bins,
)
declare(
    TickFormat,
    {
        "dtype": _DTYPE,
        "low": _INT64_OR_UINT64,
        "high": _INT64_OR_UINT64,
        "step": whole(1, 2**63),
    },
    _check_bounds,
)
declare(
    FloatFormat,
    {
        "dtype": _DTYPE,
        "low": number(),
        "high": number(),
        "exponent": whole(-1200, 1200),
        "decimals": nullable(whole(0, 400)),
    },
    _check_bounds,
)
declare(
    RoundingSteps,
    {
        "decimals": whole(0, 22),
        "steps": several(whole(1, HELD - 1), 1),
        "shares": several(
            Field("a share of the rows", lambda v: type(v) is float and 0.0 < v <= 1.0), 1
        ),
    },
    _check_steps,
)
declare(
    NumberColumn,
    {
        "format": kind(TickFormat, FloatFormat),
        "mixture": kind(Mixture, Bins),
        "missing": kind(bool),
        "rare": kind(bool),
        "rounding_steps": nullable(kind(RoundingSteps)),
    },
)
declare(
    CategoryColumn,
    {"values": kind(pd.Series), "missing": kind(bool), "counts": _COUNTS, "rare": kind(bool)},
    _check_categories,
)
declare(
    Identifiers,
    {
        "kind": choice(*get_args(IdentifierKind)),
        "start": whole(0, 2**63 - 1),
        "prefix": text(100),
        "suffix": text(100),
    },
)
declare(
    Fakes,
    {
        "provider": text(100),
        "locale": text(20),
        "seed": whole(0, 2**64),
        "person": whole(),
        "unique": kind(bool),
        "variant": whole(0, 100),
        "domain": text(100),
    },
    _check_fakes,
)
declare(
    IdentifierColumn,
    {"dtype": _DTYPE, "made": kind(Identifiers, Fakes), "missing": kind(bool), "counts": _COUNTS},
    _check_identifiers,
)
