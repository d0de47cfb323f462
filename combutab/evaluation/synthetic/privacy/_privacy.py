"""Privacy: does a synthetic table give away the rows that its generator learned from?"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from combutab._random_state import seed_from
from combutab.evaluation.synthetic._alignment import AlignedTables, align_tables
from combutab.evaluation.synthetic.efficacy import label_tables
from combutab.evaluation.synthetic.privacy._neighbours import find_neighbours
from combutab.evaluation.synthetic.privacy._points import Space, row_keys

_TRAIN, _HOLDOUT = "real_train", "holdout"
_LESS_IS_SAFER = ("share_closer_to_train", "copies", "copies_share", "membership_auc")
_COLUMNS = ["measure", "source", "mean", "sd", "n_tables", "reference", "less_is_safer", "note"]


def privacy(
    *,
    real_train: Any,
    synthetic: Any,
    holdout: Any,
    categorical: Collection[Hashable] = (),
    max_rows: int = 100_000,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Compare how near synthetic rows are to the rows trained on and to rows never seen.

    Synthetic rows that resemble real ones are what a generator is for. They give rows away as far
    as they are nearer to those that it was trained on than to others of the same distribution:
    that is ``reference``, which every measure stands beside.

    Parameters
    ----------
    real_train : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
        The rows that the generator learned from.
    synthetic : table, list of tables, or mapping of name to either
        Columns as those of ``real_train``, in any order; values may have other dtypes. Several
        samples of one generator are averaged; a mapping compares several generators.
    holdout : table
        Real rows that the generator has not seen.
    categorical : collection of column names, default=()
        Columns of numbers or dates that are categories.
    max_rows : int, default=100_000
        Of larger tables so many rows, drawn at random, are compared by distance; copies are
        looked for among all. Time grows with the square, memory does not.
    random_state : int, RandomState or None, default=0
        Of that draw, and of the one that leaves as many of ``real_train`` as of ``holdout``.
    n_jobs : int, optional
        Threads.

    Returns
    -------
    DataFrame, one row a measure and source
        ``measure``, as below; ``source``, "synthetic" or the names of the mapping; ``mean`` and
        ``sd`` (ddof 1, NaN for one table) over the samples; ``n_tables``; ``reference``, the
        value that tells nothing of who was trained on; ``less_is_safer``, whether it is values
        above the reference that are of concern, or those below; ``note``.

    Raises
    ------
    ValueError
        Columns are missing or added (the message lists them), or values cannot be compared.

    Notes
    -----
    The larger of ``real_train`` and ``holdout`` is reduced to the size of the other for all but
    copies: of more rows, some are nearer by chance. What the generator gives away of the rows
    left out is not seen: a holdout of the size of ``real_train`` shows most.

    - "share_closer_to_train": of the synthetic rows that are nearer to a row of ``real_train``
      than to any of ``holdout``, half of the ties included; 0.5 is ideal. With n synthetic rows
      its standard error is about ``0.5 / sqrt(n)``, and larger for rows far from all real ones,
      as one real row is the nearest to many.
    - "dcr_median", "dcr_p05": median and 5th percentile of the distance of a synthetic row to the
      closest row of ``real_train``; the reference is that to ``holdout``.
    - "nndr_median", "nndr_p05": of the ratio of the distances to the nearest and to the second
      nearest row of ``real_train``, small where one row stands out (1 where both are 0); the
      reference is that of ``holdout``.
    - "copies", "copies_share": synthetic rows that are equal to a row of ``real_train`` in every
      column; the reference is what the share of such rows in ``holdout`` gives.
    - "membership_auc": area under the ROC curve of an attacker who takes the rows nearest to a
      synthetic row for those trained on, and has to tell ``real_train`` from ``holdout``; 0.5 is
      ideal.

    The distance of two rows is, as Gower's, a mean over columns, of squares and then its root. Two
    numbers differ by the share of the real values that lies between them, which depends neither
    on the unit nor on outliers; beyond their range, by ranges, at most 1 more. Two categories
    differ by 0 or 1, and a missing value by 1 from any other. So distances lie between 0 and 1,
    unless numbers leave the range.

    No measure here is a proof of privacy: an attacker may know more than distances. Bad values
    are a proof of the opposite.

    References
    ----------
    M. Platzer and T. Reutterer, "Holdout-based empirical assessment of mixed-type synthetic data",
    Frontiers in Big Data 4, 2021. D. Chen, N. Yu, Y. Zhang and M. Fritz, "GAN-Leaks", CCS 2020.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"age": rng.normal(size=3000), "sex": rng.choice(["f", "m"], 3000)})
    >>> train, holdout, fresh = people[:1000], people[1000:2000], people[2000:]
    >>> table = privacy(
    ...     real_train=train, holdout=holdout, synthetic={"copy": train, "fresh": fresh}
    ... )
    >>> chosen = table["measure"].isin(["share_closer_to_train", "copies", "membership_auc"])
    >>> table.loc[chosen, ["measure", "source", "mean", "reference"]].round(1)
                      measure source    mean  reference
    0   share_closer_to_train   copy     1.0        0.5
    1   share_closer_to_train  fresh     0.5        0.5
    10                 copies   copy  1000.0        0.0
    11                 copies  fresh     0.0        0.0
    14         membership_auc   copy     1.0        0.5
    15         membership_auc  fresh     0.5        0.5
    """
    if not isinstance(max_rows, int | np.integer) or max_rows < 1:
        raise ValueError(f"max_rows must be an integer of at least 1, got {max_rows!r}")
    labelled = label_tables(synthetic)
    if _HOLDOUT in labelled:
        raise ValueError(f"{_HOLDOUT!r} is a name of the real rows; call the synthetic otherwise")
    tables = {_TRAIN: real_train, _HOLDOUT: holdout}
    tables |= {label: table for label, (_, table) in labelled.items()}
    aligned = align_tables(tables, reference=_TRAIN, categorical=categorical)
    judge = _Judge(aligned, int(max_rows), seed_from(random_state), n_jobs)
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for label, (source, _) in labelled.items():
        for measure, value, reference in judge.measures(label):
            found.setdefault(measure, {}).setdefault(source, []).append((value, reference))
    rows = []
    for measure, sources in found.items():
        for source, pairs in sources.items():
            values, references = np.array(pairs).T
            sd = values.std(ddof=1) if len(values) > 1 else np.nan
            note = judge.note if measure not in ("copies", "copies_share") else ""
            scores = (values.mean(), sd, len(values), references.mean())
            rows.append((measure, source, *scores, measure in _LESS_IS_SAFER, note))
    return pd.DataFrame(rows, columns=_COLUMNS)


class _Judge:
    """The real rows, prepared once for all synthetic tables."""

    def __init__(self, tables: AlignedTables, max_rows: int, seed: int, n_jobs: int | None) -> None:
        self.tables, self.max_rows, self.seed, self.n_jobs = tables, max_rows, seed, n_jobs
        n_rows = min(len(tables[_TRAIN]), len(tables[_HOLDOUT]), max_rows)
        parts = [self._rows(each, n_rows) for each in (_TRAIN, _HOLDOUT)]
        # Both alike: where the rows trained on are sparse by chance, their places alone would be
        # narrow, and the rows that fall there, all others, be near to each other.
        self.space = Space(tables, pd.concat(parts, ignore_index=True))
        self.train, self.holdout = map(self.space.points, parts)
        self.keys = self._keys(_TRAIN)
        self.known = float(np.isin(self._keys(_HOLDOUT), self.keys).mean())
        sizes = [len(tables[_TRAIN]), len(tables[_HOLDOUT])]
        self.note = f"{n_rows} rows of each real table" if max(sizes) > n_rows else ""

    def measures(self, name: str) -> Iterator[tuple[str, float, float]]:
        """The name, the value and the reference of each measure."""
        from sklearn.metrics import roc_auc_score

        synthetic = self.space.points(self._rows(name, self.max_rows))
        train, holdout = (
            find_neighbours(synthetic, real, n_jobs=self.n_jobs)
            for real in (self.train, self.holdout)
        )
        near, far = train.to_b[:, 0], holdout.to_b[:, 0]
        yield "share_closer_to_train", float(((near < far) + 0.5 * (near == far)).mean()), 0.5
        for short, q in (("median", 0.5), ("p05", 0.05)):
            yield f"dcr_{short}", float(np.quantile(near, q)), float(np.quantile(far, q))
        ratios, others = _ratios(train.to_b), _ratios(holdout.to_b)
        for short, q in (("median", 0.5), ("p05", 0.05)):
            yield f"nndr_{short}", float(np.quantile(ratios, q)), float(np.quantile(others, q))
        copied = np.isin(self._keys(name), self.keys)
        yield "copies", float(copied.sum()), self.known * len(copied)
        yield "copies_share", float(copied.mean()), self.known
        members = np.repeat([1, 0], [len(self.train), len(self.holdout)])
        nearness = -np.concatenate([train.to_a, holdout.to_a])
        yield "membership_auc", float(roc_auc_score(members, nearness)), 0.5

    def _rows(self, name: str, n_rows: int) -> pd.DataFrame:
        """Return at most so many rows, drawn from the seed and the table alone."""
        table = self.tables[name]
        if len(table) > n_rows:
            table = table.iloc[np.random.default_rng(self.seed).permutation(len(table))[:n_rows]]
        return table

    def _keys(self, name: str) -> np.ndarray:
        return row_keys(self.tables[name], self.tables.columns("category"))


def _ratios(distances: np.ndarray) -> np.ndarray:
    """Nearest over second nearest; 1 where both are 0, and where there is one row alone."""
    nearest, second = distances.T
    alike = (second == 0) | np.isinf(second)
    return np.where(alike, 1.0, nearest / np.where(alike, 1.0, second))
