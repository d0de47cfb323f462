"""Which scores a picture of a comparison shows."""

from __future__ import annotations

import numpy as np
import pandas as pd

_WIDER = 3.0  # times the activations' own range: further off, baselines would squeeze them


def shown_range(
    results: pd.DataFrame, summary: pd.DataFrame, metric: str, baselines: pd.DataFrame
) -> tuple[float, float]:
    """Ends of an axis that shows all activations, and the baselines that are not far from them.

    Parameters
    ----------
    results, summary, baselines : DataFrame
        As of an `ActivationComparison`; the baselines may be none.
    metric : str

    Examples
    --------
    >>> results = pd.DataFrame({"activation": ["relu"] * 2, "fold": [0, 1], "r2": [0.5, 0.7]})
    >>> summary = pd.DataFrame({"activation": ["relu"], "low": [0.4], "high": [0.8]})
    >>> baselines = pd.DataFrame({"mean": [0.3, -5.0], "low": [0.2, -6.0], "high": [0.4, -4.0]})
    >>> shown_range(results, summary, "r2", baselines)
    (0.2, 0.8)
    """
    folds = results.groupby(["activation", "fold"])[metric].mean()
    known = folds[folds.index.get_level_values("activation").isin(summary["activation"])]
    values = np.concatenate([known, summary["low"], summary["high"]])
    low, high = float(values.min()), float(values.max())
    room = _WIDER * ((high - low) or 0.05 * abs(low) or 0.5)
    for _, line in baselines.iterrows():
        # the interval of a baseline may be long: its mean decides, its ends are cut
        if max(high, line["mean"]) - min(low, line["mean"]) <= room:
            low = min(low, line["mean"], max(line["low"], high - room))
            high = max(high, line["mean"], min(line["high"], low + room))
    return float(low), float(high)
