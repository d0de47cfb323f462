"""Membership inference: was a row among the training rows of the generator?"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta

from combutab.core.rng import seed_from
from combutab.evaluation._attacks import MAX_ROWS, AttackRows, draw_attack_rows
from combutab.evaluation._distances import RowPoints, Space, map_distances, nearest_rows
from combutab.evaluation._efficacy import at_least, limit_tree_threads

# ---- Scores of the attacks: greater for rows that are more probably members ----------------------

ATTACKS = ("distance", "density_ratio", "local_likelihood_ratio", "classifier")
_NEIGHBOURS = 10  # synthetic rows near a row, for the local likelihood ratio
_BANDWIDTHS = np.geomspace(0.02, 1.0, 16)  # of the kernel: places are from 0 to 1
_BANDWIDTH_ROWS = 2000  # from which the bandwidth is chosen


def _attack_scores(
    rows: RowPoints,
    synthetic: RowPoints,
    reference: RowPoints,
    space: Space,
    seed: int,
    n_jobs: int | None,
) -> np.ndarray:
    """Score rows by each attack, (n_attacks, n); the reference has rows of neither kind."""
    bandwidth = _choose_bandwidth(reference, space, n_jobs)
    scale = -0.5 / bandwidth**2

    def log_density(_: slice, squared: np.ndarray) -> np.ndarray:
        return _log_kernel_sum(squared, scale) - np.log(squared.shape[1])

    at_synthetic = map_distances(synthetic, reference, log_density, n_jobs=n_jobs)
    n_neighbours, n_reference = min(_NEIGHBOURS, len(synthetic)), len(reference)

    def compare(part: slice, squared: np.ndarray) -> np.ndarray:
        nearest = np.argpartition(squared, n_neighbours - 1, axis=1)[:, :n_neighbours]
        near = np.take_along_axis(squared, nearest, axis=1)
        # The likelihood of the neighbours if the row is added to the reference, over the likelihood
        # without it, up to a constant (Ward et al., 2025).
        odds = scale * near - at_synthetic[nearest] - np.log(n_reference)
        ratios = np.logaddexp(0.0, odds).sum(axis=1)
        return np.column_stack([-near.min(axis=1), log_density(part, squared), ratios])

    distance, density, ratios = map_distances(rows, synthetic, compare, n_jobs=n_jobs).T
    density_ratio = density - map_distances(rows, reference, log_density, n_jobs=n_jobs)
    classified = _classifier_scores(rows, synthetic, reference, seed)
    return np.stack([distance, density_ratio, ratios, classified])


def _log_kernel_sum(squared: np.ndarray, scale: float) -> np.ndarray:
    """Logarithm of the sum of ``exp(scale * squared)`` over each row."""
    smallest = squared.min(axis=1, keepdims=True)
    powers = squared - smallest
    powers *= scale
    return np.log(np.exp(powers, out=powers).sum(axis=1)) + scale * smallest[:, 0]


def _choose_bandwidth(rows: RowPoints, space: Space, n_jobs: int | None) -> float:
    """The bandwidth with the greatest likelihood of each row, given the other rows.

    The kernel is Gaussian for numbers; for categories it is Aitchison and Aitken's.
    """
    rows = rows.take(np.arange(min(len(rows), _BANDWIDTH_ROWS)))
    if len(rows) < 2:
        return float(_BANDWIDTHS[-1])
    scales = -0.5 / _BANDWIDTHS**2
    n_categories = np.array([len(rank) for rank in space.codes.values()])
    volumes = np.array(
        [
            rows.numbers.shape[1] * np.log(bandwidth)
            + np.log1p((n_categories - 1) * np.exp(scale)).sum()
            for bandwidth, scale in zip(_BANDWIDTHS, scales, strict=True)
        ]
    )

    def likelihoods(part: slice, squared: np.ndarray) -> np.ndarray:
        positions = np.arange(len(rows))[part]
        squared[np.arange(len(positions)), positions] = np.inf
        return np.column_stack([_log_kernel_sum(squared, scale) for scale in scales])

    log_likelihoods = map_distances(rows, rows, likelihoods, n_jobs=n_jobs).mean(axis=0)
    return float(_BANDWIDTHS[int((log_likelihoods - volumes).argmax())])


def _classifier_scores(
    rows: RowPoints, synthetic: RowPoints, reference: RowPoints, seed: int
) -> np.ndarray:
    """Log odds of being synthetic, by boosting that distinguishes synthetic and reference rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    X = np.vstack([synthetic.features(), reference.features()])
    X[:, np.isnan(X).all(axis=0)] = 0.0  # boosting takes no column without a value
    y = np.repeat([1, 0], [len(synthetic), len(reference)])
    model = HistGradientBoostingClassifier(
        early_stopping=False, class_weight="balanced", random_state=seed % 2**32
    )
    with limit_tree_threads(model, X):
        return model.fit(X, y).decision_function(rows.features())


# ---- ROC curves of weighted units ----------------------------------------------------------------

FPRS = {"tpr@1%": 0.01, "tpr@10%": 0.1}
MEASURES = ("auc", *FPRS)
_DRAWS = 999  # of permutations, and of bootstrap samples
_CHUNK = 1 << 21  # weights in memory at once
_LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class _Units:
    """Scored rows or persons: ``scores`` (n_attacks, n), ``is_member`` and ``fold`` (n,)."""

    scores: np.ndarray
    is_member: np.ndarray
    fold: np.ndarray

    def take(self, chosen: np.ndarray) -> _Units:
        return _Units(self.scores[:, chosen], self.is_member[chosen], self.fold[chosen])

    @property
    def n_members(self) -> int:
        return int(self.is_member.sum())

    @property
    def n_non_members(self) -> int:
        return len(self.is_member) - self.n_members


def _roc_measures(scores: np.ndarray, members: np.ndarray, non_members: np.ndarray) -> np.ndarray:
    """The AUC and the true positive rates of weighted units, (n_measures, n_draws).

    The weights of members and of non-members have the shape (n_draws, n). The threshold for a false
    positive rate is that of a conformal test: a new non-member exceeds it with at most this
    probability. Units with the same score are in random order, on average. NaN if there are too
    few non-members.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    hits, alarms = (
        np.pad(weights[:, order].cumsum(axis=1)[:, ends], ((0, 0), (1, 0)))
        for weights in (members, non_members)
    )
    n_hits, n_alarms = hits[:, -1:], alarms[:, -1:]
    area = (np.diff(alarms) * (hits[:, 1:] + hits[:, :-1])).sum(axis=1) / 2
    measures = [area / (n_hits * n_alarms)[:, 0]]
    draws = np.arange(len(hits))
    for rate in FPRS.values():
        n_allowed = rate * (n_alarms[:, 0] + 1) - 1
        after = (alarms <= n_allowed[:, None] + 1e-9).sum(axis=1)
        before = np.maximum(after - 1, 0)
        after = np.minimum(after, hits.shape[1] - 1)
        step = np.maximum(alarms[draws, after] - alarms[draws, before], 1)
        # Units with the same score are in random order.
        share = (n_allowed - alarms[draws, before] + 1) / (step + 1)
        n_caught = hits[draws, before] + share * (hits[draws, after] - hits[draws, before])
        measures.append(np.where(n_allowed < 0, np.nan, n_caught / n_hits[:, 0]))
    return np.stack(measures)


def _by_attack(units: _Units, weights: Iterator[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The measures of each attack for weighted units, (n_measures, n_attacks, n_draws)."""
    parts = [
        np.stack([_roc_measures(scores, *pair) for scores in units.scores], axis=1)
        for pair in weights
    ]
    return np.concatenate(parts, axis=2)


def _chunks(n: int) -> Iterator[int]:
    size = max(1, _CHUNK // max(n, 1))
    for start in range(0, _DRAWS, size):
        yield min(size, _DRAWS - start)


def _permuted(units: _Units, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Weights with members and non-members exchanged at random, within folds."""
    for n_draws in _chunks(len(units.fold)):
        members = np.empty((n_draws, len(units.fold)), dtype=np.int32)
        for fold in np.unique(units.fold):
            chosen = np.flatnonzero(units.fold == fold)
            labels = np.tile(units.is_member[chosen], (n_draws, 1))
            members[:, chosen] = rng.permuted(labels, axis=1)
        yield members, 1 - members


def _resampled(units: _Units, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Weights of bootstrap samples of the members and of the non-members."""
    groups = [np.flatnonzero(units.is_member), np.flatnonzero(~units.is_member)]
    for n_draws in _chunks(len(units.fold)):
        weights = np.zeros((2, n_draws, len(units.fold)), dtype=np.int32)
        for group, counts in zip(groups, weights, strict=True):
            samples = rng.integers(len(group), size=(n_draws, len(group)))
            samples += len(group) * np.arange(n_draws)[:, None]
            drawn = np.bincount(samples.ravel(), minlength=n_draws * len(group))
            counts[:, group] = drawn.reshape(n_draws, len(group))
        yield weights[0], weights[1]


def _interval(
    value: float, draws: np.ndarray, measure: str, n_members: int, n_attacks: int
) -> tuple[float, float]:
    """Percentiles of the bootstrap; of a rate not narrower than Clopper and Pearson's interval."""
    if np.isnan(value):
        return np.nan, np.nan
    tail = (1 - _LEVEL) / 2 / n_attacks
    low, high = np.nanquantile(draws, [tail, 1 - tail])
    if measure in FPRS:
        n_caught = value * n_members
        exact_low = beta.ppf(tail, n_caught, n_members - n_caught + 1) if n_caught > 0 else 0.0
        exact_high = beta.ppf(1 - tail, n_caught + 1, n_members - n_caught) if value < 1 else 1.0
        low, high = min(low, exact_low), max(high, exact_high)
    return float(min(low, value)), float(max(high, value))


def _summarise_attacks(units: _Units, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """A row for each measure and attack, and for the worst attack."""
    is_member = units.is_member[None].astype(np.int32)
    values = _by_attack(units, iter([(is_member, 1 - is_member)]))[:, :, 0]
    permuted = _by_attack(units, _permuted(units, rng))
    resampled = _by_attack(units, _resampled(units, rng))
    n_attacks = len(ATTACKS)
    for measure, scores, by_chance, samples in zip(
        MEASURES, values, permuted, resampled, strict=True
    ):
        counts = {"n_members": units.n_members, "n_non_members": units.n_non_members}
        is_known = not np.isnan(scores).any()
        worst = int(scores.argmax())
        cases = [(name, k, 1) for k, name in enumerate(ATTACKS)]
        for name, k, n_tests in [*cases, ("worst", worst, n_attacks)]:
            chance = by_chance[k] if n_tests == 1 else by_chance.max(axis=0)
            low, high = _interval(scores[k], samples[k], measure, units.n_members, n_tests)
            pvalue = (1 + (chance >= scores[k] - 1e-12).sum()) / (1 + len(chance))
            yield {
                "measure": measure,
                "attack": name,
                "value": float(scores[k]),
                "low": low,
                "high": high,
                "reference": float(chance.mean()),
                "pvalue": float(pvalue) if is_known else np.nan,
                **counts,
                "note": ATTACKS[worst] * (n_tests > 1 and is_known),
            }


# ---- Membership inference ------------------------------------------------------------------------

_ISOLATED = 0.1  # share of the rows that are called isolated
_COLUMNS = ["rows", "measure", "attack", "value", "low", "high", "reference", "pvalue"]
_COLUMNS += ["n_members", "n_non_members", "note"]


def membership_inference(
    *,
    real_train: Any,
    synthetic: Any,
    holdout: Any,
    categorical: Collection[Hashable] = (),
    person: Hashable | None = None,
    max_rows: int = MAX_ROWS,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Membership inference attacks: can training rows be recognised from the synthetic rows?

    Four attacks score real rows. If training rows (members) get higher scores than held-out rows
    (non-members), the synthetic rows disclose who was in the training table.

    Parameters
    ----------
    real_train, synthetic, holdout, categorical, n_jobs
        As in `privacy`, with the same defaults; ``synthetic`` is one table. At least 4 rows of
        ``holdout`` are needed, and 100 for a true positive rate at 1 % false positives.
    person : column name, optional
        Column with the person that each row belongs to. It is not used by the attacks. Persons are
        then the members and non-members, by the mean score of their rows, and held-out rows of
        persons with training rows are left out.
    max_rows : int, default=10_000
        Maximum number of rows of each table, sampled at random by whole persons. Time grows with
        its square.
    random_state : int, RandomState or None, default=0
        Random seed for the samples, splits, classifiers and permutations.

    Returns
    -------
    DataFrame, one row per group of rows, measure and attack
        ``rows`` ("all", or "isolated": the tenth of the members and non-members that are farthest
        from other real rows); ``measure`` ("auc", "tpr@1%", "tpr@10%": the ROC AUC, and the true
        positive rates at 1 % and 10 % false positives); ``attack`` (see the notes, and "worst");
        ``value``; ``low`` and ``high`` (95 % interval); ``reference`` (mean value by chance);
        ``pvalue`` (probability of this value or a greater one by chance); ``n_members`` and
        ``n_non_members`` (rows, or persons); ``note`` (the name of the worst attack, and how many
        rows were sampled).

    Raises
    ------
    ValueError
        If columns are missing or added (the message lists them), values cannot be compared, there
        are too few held-out rows, or ``person`` is not a column or has missing values.

    Notes
    -----
    - "distance": the distance to the closest synthetic row, as in `privacy`.
    - "density_ratio": the density of the synthetic rows at a row, divided by that of reference
      rows (DOMIAS).
    - "local_likelihood_ratio": the likelihood of the 10 closest synthetic rows if the row is added
      to the reference rows, divided by their likelihood without it (Gen-LRA).
    - "classifier": the score of gradient boosting that is trained to distinguish synthetic rows
      from reference rows.

    Densities are kernel estimates by the distance of `privacy`. The bandwidth maximizes the
    likelihood of each reference row given the others.

    Reference rows must be neither members nor scored non-members. The held-out rows are therefore
    split into two halves at random. Each half, with half of the members, is scored with the other
    half as reference.

    The p-value is that of a permutation test: members and non-members of each half are exchanged
    999 times. The row "worst" has the attack with the greatest value. Its p-value compares this
    value with the greatest value of the four attacks after each permutation, and its interval is at
    the level 1 - 0.05 / 4, so that both allow for the choice. Intervals of other rows are not
    adjusted. They are percentiles of a bootstrap of members and non-members; those of rates are at
    least as wide as Clopper and Pearson's for the members.

    A person's isolation is the mean of that of their rows.

    If ``real_train`` and ``holdout`` do not have the same distribution, they can be distinguished
    without any disclosure; see `detection`. Attacks that find nothing do not prove privacy, because
    there may be better ones.

    References
    ----------
    B. van Breugel, H. Sun, Z. Qian and M. van der Schaar, "Membership inference attacks against
    synthetic data through overfitting detection", AISTATS 2023. J. Ward, C. Wang and G. Cheng,
    "Privacy auditing synthetic data release through local likelihood attacks", 2025,
    arXiv:2508.21146. N. Carlini et al., "Membership inference attacks from first principles", IEEE
    S&P 2022 (true positive rates at few false positives).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame(rng.normal(size=(900, 3)), columns=["age", "height", "weight"])
    >>> noisy = people[:300] + rng.normal(0, 0.02, (300, 3))
    >>> table = membership_inference(
    ...     real_train=people[:300], holdout=people[300:600], synthetic=noisy
    ... )
    >>> worst = table[(table["attack"] == "worst") & (table["measure"] == "tpr@10%")]
    >>> worst[["rows", "value", "reference", "pvalue"]].round(1)
            rows  value  reference  pvalue
    14       all    1.0        0.1     0.0
    29  isolated    1.0        0.1     0.0
    """
    max_rows = at_least(max_rows, 4, "max_rows")
    seed = seed_from(random_state)
    rng = np.random.default_rng(seed)
    rows = draw_attack_rows(
        real_train=real_train,
        synthetic=synthetic,
        holdout=holdout,
        categorical=categorical,
        person=person,
        max_rows=max_rows,
        rng=rng,
    )
    units, isolation = _score_units(rows, rng, seed, n_jobs)
    n_isolated = max(1, round(_ISOLATED * len(isolation)))
    isolated = np.sort(np.argsort(-isolation, kind="stable")[:n_isolated])
    table = []
    for group, chosen in (("all", units), ("isolated", units.take(isolated))):
        if min(chosen.n_members, chosen.n_non_members):
            table += [{"rows": group, **row} for row in _summarise_attacks(chosen, rng)]
    for row in table:
        row["note"] = "; ".join(filter(None, [row["note"], rows.note]))
    return pd.DataFrame(table, columns=_COLUMNS)


def _score_units(
    rows: AttackRows, rng: np.random.Generator, seed: int, n_jobs: int | None
) -> tuple[_Units, np.ndarray]:
    """Score rows or persons by each attack, and measure how isolated they are, (n,)."""
    real = rows.real
    members, non_members = (
        np.array_split(rng.permutation(np.flatnonzero(label)), 2)
        for label in (real.is_member, ~real.is_member)
    )
    folds = [np.concatenate([members[k], non_members[k]]) for k in (0, 1)]
    scores = []
    for fold, reference in zip(folds, (non_members[1], non_members[0]), strict=True):
        part = real.take_persons(fold)
        attacked = _attack_scores(
            part.points,
            rows.synthetic,
            real.take_persons(reference).points,
            rows.space,
            seed,
            n_jobs,
        )
        scores.append(np.stack([part.mean_by_person(values) for values in attacked]))
    order = np.concatenate(folds)
    units = _Units(np.hstack(scores), real.is_member[order], np.repeat([0, 1], [*map(len, folds)]))
    # The closest of three rows is the row itself.
    distances = nearest_rows(real.points, real.points, 3, n_jobs=n_jobs)[:, 2]
    return units, real.mean_by_person(distances)[order]
