"""The parameters that generators share, and what each may be."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, Options, RealNotInt, StrOptions

from combutab._device import PRECISIONS
from combutab.nn import NORMALIZATIONS, ActivationSpec

COUNT = Interval(Integral, 1, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
SHARED_CONSTRAINTS: dict[str, list[Any]] = {
    "embedding_dim": [COUNT],
    "batch_size": [COUNT],
    "epochs": [COUNT],
    "verbose": ["verbose"],
    "enable_gpu": ["boolean"],
    "activation": [str, callable],
    "normalization": [StrOptions(set(NORMALIZATIONS))],
    "proxy_norm": ["boolean"],
    "early_stopping": ["boolean"],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "n_iter_no_change": [COUNT, Options(Real, {np.inf})],
    "max_time": [None, str, POSITIVE],
    "n_members": [COUNT],
    "min_frequency": [COUNT, Interval(RealNotInt, 0, 1, closed="neither")],
    "identifiers": [list, tuple, StrOptions({"auto"}), None],
    "random_state": ["random_state", np.random.Generator],
    "device": [str, torch.device],
    "precision": [StrOptions(set(PRECISIONS))],
    "callbacks": [list, tuple, None],
}


@dataclass(eq=False, repr=False, kw_only=True)
class SharedParameters:
    """The parameters that all generators have, by keyword alone."""

    activation: ActivationSpec = "combu"
    normalization: str = "none"
    proxy_norm: bool = False
    early_stopping: Any = False
    validation_fraction: float = 0.1
    n_iter_no_change: float = 50
    max_time: float | str | None = None
    n_members: int = 1
    min_frequency: float = 5
    identifiers: Any = "auto"
    random_state: Any = None
    device: str | torch.device = "auto"
    precision: str = "float32"
    callbacks: Any = None


def check_widths(name: str, widths: Any) -> tuple[int, ...]:
    """Hidden widths as a tuple of ints; there may be none."""
    listed = list(widths)
    if any(not isinstance(w, Integral) or isinstance(w, bool) or w < 1 for w in listed):
        raise ValueError(f"{name} must hold whole numbers of at least 1, got {widths!r}")
    return tuple(int(w) for w in listed)


def check_tries(on_shortfall: str, max_tries: int) -> None:
    """Check what sampling is told to do about rows that are not found."""
    if on_shortfall not in ("error", "return"):
        raise ValueError(f"on_shortfall must be 'error' or 'return', got {on_shortfall!r}")
    if not isinstance(max_tries, Integral) or isinstance(max_tries, bool) or max_tries < 1:
        raise ValueError(f"max_tries must be a whole number of at least 1, got {max_tries!r}")
