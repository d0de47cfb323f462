"""Rows of which each value of a discrete column has as many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from combutab._random import Purpose, derive, random_permutations
from combutab.generators.sampling._sampling import Sampler
from combutab.generators.sampling._wanted import Codes, Wanted
from combutab.preprocessing import CategoryColumn, IdentifierColumn, ModeEncoder


def draw_balanced(
    sampler: Sampler[Any], n: int, column: Any, wanted: Sequence[Wanted], key: int, max_tries: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Values and codes of n rows that meet conditions, and how many were made.

    Each value of the column has as many of the rows, but for a remainder of the first values'; the
    rows are in random order. There are fewer of values that max_tries were not enough for.

    Raises ValueError if the column is not discrete, or has a condition too.
    """
    span, n_codes = _span_and_size(sampler.encoder, column)
    if any(each.column == column for each in wanted):
        raise ValueError(
            f"{column!r} is in balance and in conditions; leave it out of one of them (a list of "
            "values as the condition gives them by their true shares)"
        )
    parts, made = [], 0
    for code in range(min(n_codes, max(1, n))):
        n_rows = n // n_codes + (code < n % n_codes)
        asked = [Codes(column, span, (code,)), *wanted]
        drawn = sampler.draw(n_rows, asked, derive(key, Purpose.PATTERN, code), max_tries)
        parts.append(drawn[:2])
        made += drawn[2]
    values, codes = map(np.concatenate, zip(*parts, strict=True))
    order = random_permutations([derive(key, Purpose.BALANCED)], [len(codes)])[0].numpy()
    return values[order], codes[order], made


def _span_and_size(encoder: ModeEncoder, column: Any) -> tuple[int, int]:
    """The span of a discrete column, and how many codes rows of it can have."""
    j = encoder.schema_.position(column)
    coder, label = encoder.columns_[j], encoder.schema_.label(j)
    if isinstance(coder, IdentifierColumn):
        raise ValueError(f"{label} holds identifiers, which are new in each row; balance another")
    if not isinstance(coder, CategoryColumn):
        raise ValueError(
            f"{label} is continuous, so that it has no values to balance; list it in "
            "discrete_columns of fit, or balance another"
        )
    if coder.size == 1:
        raise ValueError(f"{label} is constant; balance another")
    span = next(i for i, each in enumerate(encoder.layout_.spans) if each.column == j)
    return span, len(coder.values)  # the code of rare values comes after these
