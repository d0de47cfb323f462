"""Rows of a fitted generator for SDV's conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.rng import Stream, fold_in
from combutab.generators._base import BaseGenerator
from combutab.generators.sampling import FREE, DirectSampler

_TRIES = 5000  # more rows than are asked for, to look for those that meet conditions


def rows_that_meet(
    model: BaseGenerator[Any], n_rows: int, codes: Mapping[int, int], numbers: Mapping[Any, Any]
) -> pd.DataFrame:
    """Draw at most n_rows rows, those that a few tries give: SDV asks again for the rest.

    Of ``codes``, by span, the network is asked for all if it draws beside given ones, else for the
    rarest; the rows have all. None is asked for ``numbers``, None for a missing one: the rows are
    the nearest ones, of which SDV keeps those that are near enough.
    """
    n_tries = n_rows + _TRIES
    if not numbers:
        return _draw_rows(model, n_rows, codes, n_tries)
    return nearest(_draw_rows(model, n_tries, codes, n_tries), numbers, n_rows)


def _draw_rows(
    model: BaseGenerator[Any], n_rows: int, codes: Mapping[int, int], n_tries: int
) -> pd.DataFrame:
    """Draw at most n_rows rows that have the codes, out of about n_tries."""
    sampler, key = model.sampler(), model.sample_key(None)
    if isinstance(sampler, DirectSampler):
        given = np.full((n_rows, sampler.spans.n_spans), FREE)
        given[:, list(codes)] = list(codes.values())
        no_values = np.full((n_rows, sampler.spans.n_values), np.nan, dtype=np.float32)
        return model.encoder_.decode(*sampler.complete(given, no_values, key))
    counts = model.encoder_.category_counts_
    span, code = min(codes.items(), key=lambda item: counts[item[0]][item[1]], default=(FREE, FREE))
    values, found = [], []
    n_made = n_met = 0
    while n_met < n_rows and n_made < n_tries:
        chunk = min(sampler.chunk, n_tries - n_made if n_made else n_rows)
        asked = np.full(chunk, span), np.full(chunk, code)
        chunk_key = fold_in(key, Stream.CHUNK, n_made)
        new_values, new_codes = sampler.generate(chunk, *asked, chunk_key)
        met = np.ones(chunk, dtype=bool)
        for other_span, other_code in codes.items():
            met &= new_codes[:, other_span] == other_code
        values.append(new_values[met])
        found.append(new_codes[met])
        n_made += chunk
        n_met += int(met.sum())
    return model.encoder_.decode(np.concatenate(values)[:n_rows], np.concatenate(found)[:n_rows])


def nearest(table: pd.DataFrame, numbers: Mapping[Any, Any], n_rows: int) -> pd.DataFrame:
    """Choose at most n_rows rows, of the values nearest to the wanted ones, in their order."""
    rank = np.zeros(len(table))
    for column, value in numbers.items():
        if value is None:
            near = np.where(table[column].isna(), 0.0, np.nan)
        else:
            near = (table[column] - value).abs().rank(method="min").to_numpy()
        rank = np.maximum(rank, near)  # NaN stays: a value is missing, or is not
    order = np.argsort(rank, kind="stable")[: min(n_rows, int(np.isfinite(rank).sum()))]
    return table.iloc[np.sort(order)].reset_index(drop=True)
