"""How far chance alone may move a share of rows from one half."""

from __future__ import annotations

from collections.abc import Collection, Hashable

import numpy as np
import pandas as pd

from combutab.evaluation import privacy

_SPLITS = 20
_MOST = 3000  # rows of each table; of more, chance does less: the deviation is rather too large


def share_by_chance(
    train: pd.DataFrame,
    test: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    categorical: Collection[Hashable],
    random_state: int,
    n_jobs: int | None,
) -> float:
    """Standard deviation, around one half, of the share of rows nearer to one half of real rows.

    Real rows of both kinds are mixed and split anew at random several times. No formula tells it:
    where synthetic rows are far from all real ones, a few real rows are the nearest to most of
    them, and which side these are on decides the share.

    Parameters
    ----------
    train, test, synthetic : DataFrame
        As `align_tables` gives them.
    categorical, random_state, n_jobs
        As in `privacy`.
    """
    rng = np.random.default_rng(random_state)
    n = min(len(train), len(test), _MOST)
    real = pd.concat([_draw(table, n, rng) for table in (train, test)], ignore_index=True)
    made = _draw(synthetic, _MOST, rng)
    shares = []
    for _ in range(_SPLITS):
        order = rng.permutation(2 * n)
        table = privacy(
            real_train=real.iloc[order[:n]],
            holdout=real.iloc[order[n:]],
            synthetic=made,
            categorical=categorical,
            random_state=random_state,
            n_jobs=n_jobs,
        )
        nearer = table["measure"] == "share_closer_to_train"
        shares.append(float(table.loc[nearer, "mean"].iloc[0]))
    return float(np.sqrt(np.mean((np.array(shares) - 0.5) ** 2)))


def _draw(table: pd.DataFrame, n: int, rng: np.random.Generator) -> pd.DataFrame:
    return table if len(table) <= n else table.iloc[rng.permutation(len(table))[:n]]
