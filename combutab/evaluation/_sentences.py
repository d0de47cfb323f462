"""Say in sentences what the tests found, from the numbers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

import pandas as pd

from combutab.evaluation._statistics import Clique, NemenyiResult, maximal_cliques, plural

_ROUNDING = 1e-12  # of a score, in units of its size: ends no further apart are the same


def summarise(comparison: pd.DataFrame, *, score: str = "score", alpha: float = 0.05) -> str:
    """Say in plain sentences what `compare_with_best` found.

    Parameters
    ----------
    comparison : DataFrame
        As `compare_with_best` returned it, with the same ``alpha``.
    score : str, default="score"
        What the scores are called in the sentences.

    Returns
    -------
    str, one sentence a line

    Examples
    --------
    >>> from combutab.evaluation import compare_with_best
    >>> results = pd.DataFrame({
    ...     "activation": ["relu"] * 4 + ["combu"] * 4,
    ...     "fold": [0, 1, 2, 3] * 2,
    ...     "score": [0.80, 0.82, 0.81, 0.79, 0.90, 0.91, 0.92, 0.89],
    ... })
    >>> print(summarise(compare_with_best(results, n_train=75, n_test=25), score="accuracy"))
    combu has the best mean accuracy: 0.905 (95 % interval 0.8736 to 0.9364) over 4 resamples.
    Significantly different from combu at the 5 % level: relu (p = 0.00053).
    """
    group = comparison.columns[0]
    best, others = comparison.iloc[0], comparison.iloc[1:]
    k, name, level = int(best["n_resamples"]), best[group], f"{100 * alpha:g} %"
    ends = interval_words(best["low"], best["high"])
    lines = [
        f"{name} has the best mean {score}: {best['mean']:.4g} ({100 * (1 - alpha):g} % interval "
        f"{ends}) over {k} resamples."
        if ends
        else f"{name} has the best mean {score}: {best['mean']:.4g}, the same in all {k} resamples."
    ]
    differ = others["distinguishable"].astype(bool)
    for rows, verdict in (
        (others[~differ], f"Not significantly different from {name} at the {level} level"),
        (others[differ], f"Significantly different from {name} at the {level} level"),
    ):
        if len(rows):
            listed = ", ".join(
                f"{other} ({p_words(p)})" for other, p in zip(rows[group], rows["p"], strict=True)
            )
            lines.append(f"{verdict}: {listed}.")
    if best["test"] == "wilcoxon":
        lines += _wilcoxon_is_blind(k, len(others), alpha)
    return "\n".join(lines)


def summarise_nemenyi(result: NemenyiResult) -> str:
    """Say in plain sentences what `nemenyi` found: which models differ significantly.

    Parameters
    ----------
    result : NemenyiResult

    Returns
    -------
    str, one sentence a line

    Examples
    --------
    >>> from combutab.evaluation import nemenyi
    >>> names = pd.Index(["relu", "combu", "tanh"], name="activation")
    >>> scores = pd.DataFrame([[0.7, 0.8, 0.6]] * 5 + [[0.8, 0.7, 0.6]], columns=names)
    >>> print(summarise_nemenyi(nemenyi(scores)))
    Friedman's test over 6 data sets: the 3 activations differ (p = 0.0057).
    Mean ranks, 1 is the best: combu 1.17, relu 1.83, tanh 3.00.
    By Nemenyi's test (critical difference 1.35 ranks, 5 % level) these are not significantly
    different: combu and relu; relu and tanh.
    combu ranks better than tanh.
    """
    ranks = result.mean_ranks
    model = _word(ranks.index.name)
    models, rows = f"{len(ranks)} {plural(model)}", f"{result.n_rows} {result.rows}"
    p = _p_relation(result.friedman.pvalue)
    nemenyi = (
        f"By Nemenyi's test (critical difference {result.critical_difference:.2f} ranks, "
        f"{100 * result.alpha:g} % level)"
    )
    losers = [tuple(ranks.index[ranks - rank > result.critical_difference]) for rank in ranks]
    lines = [
        f"Friedman's test over {rows}: the {models} differ (p {p})."
        if result.differ
        else f"Friedman's test over {rows} finds no difference between the {models} (p {p}).",
        "Mean ranks, 1 is the best: "
        + ", ".join(f"{name} {rank:.2f}" for name, rank in ranks.items())
        + ".",
    ]
    if not result.differ:
        lines.append(f"No {model} is significantly different from any other.")
    elif not any(losers):
        lines.append(
            f"{nemenyi} no {model} is significantly different from any other: which of them differ "
            "is left open."
        )
    else:
        lines.append(
            f"{nemenyi} these are not significantly different: {_listed_cliques(result.cliques)}."
            if result.cliques
            else f"{nemenyi} every {model} is significantly different from every other."
        )
        # Further down the ranks fewer are worse, so those better than the same ones are neighbours
        for worse, pairs in groupby(zip(losers, ranks.index, strict=True), key=itemgetter(0)):
            better = [name for _, name in pairs]
            if worse:
                verb = "ranks" if len(better) == 1 else "rank"
                lines.append(f"{_enumerated(better)} {verb} better than {_enumerated(worse)}.")
    if result.n_rows < result.n_rows_needed:
        lines.append(
            f"With {rows} no two of {models} can differ significantly, even if all ranked them "
            f"alike: at least {result.n_rows_needed} are needed."
        )
    return "\n".join(lines)


def summarise_pairs(pairs: pd.DataFrame, *, score: str = "score", alpha: float = 0.05) -> str:
    """Say in plain sentences what `compare_pairs` found: which models differ significantly.

    Parameters
    ----------
    pairs : DataFrame
        As `compare_pairs` returned it, with the same ``alpha``.
    score : str, default="score"
        What the scores are called in the sentences.

    Returns
    -------
    str, one sentence a line

    Examples
    --------
    >>> from combutab.evaluation import compare_pairs
    >>> results = pd.DataFrame({
    ...     "activation": ["relu"] * 4 + ["combu"] * 4 + ["elu"] * 4,
    ...     "fold": [0, 1, 2, 3] * 3,
    ...     "score": [0.80, 0.82, 0.81, 0.79, 0.90, 0.91, 0.92, 0.89, 0.91, 0.90, 0.89, 0.90],
    ... })
    >>> print(summarise_pairs(compare_pairs(results, n_train=75, n_test=25), score="accuracy"))
    2 of 3 pairs of activations are significantly different in accuracy over 4 resamples
    (corrected t-test, Holm-adjusted, 5 % level).
    These are not significantly different: combu and elu.
    combu is better than relu (accuracy +0.1, p = 0.0016).
    elu is better than relu (accuracy +0.095, p = 0.011).
    With 4 resamples and 3 comparison(s) the Wilcoxon test cannot find any difference: its adjusted
    p-value is at least 0.38. More resamples are needed.
    """
    group, other = pairs.columns[:2]
    model, n_resamples = _word(group), int(pairs["n_resamples"].iloc[0])
    differ = pairs["distinguishable"].astype(bool)
    design = (
        f"in {score} over {n_resamples} resamples (corrected t-test, Holm-adjusted, "
        f"{100 * alpha:g} % level)"
    )
    if not differ.any():
        first = pairs.nsmallest(1, "p_corrected_t").iloc[0]
        lines = [
            f"No {model} is significantly different from any other {design}.",
            f"The smallest p-value is that of {first[group]} and {first[other]} "
            f"({p_words(first['p_corrected_t'])}).",
        ]
    else:
        names = list(dict.fromkeys([*pairs[group], *pairs[other]]))
        undecided = set(
            zip(*(pairs.loc[~differ, column] for column in (group, other)), strict=True)
        )
        alike = [[(a, b) in undecided or (b, a) in undecided for b in names] for a in names]
        lines = [
            f"{differ.sum()} of {len(pairs)} pairs of {plural(model)} are significantly different "
            f"{design}."
        ]
        if undecided:
            cliques = maximal_cliques(pd.DataFrame(alike, index=names, columns=names))
            lines.append(f"These are not significantly different: {_listed_cliques(cliques)}.")
        for name, rows in pairs[differ].groupby(group, sort=False):
            listed = (
                f"{loser} ({score} {by:+.3g}, {p_words(p)})"
                for loser, by, p in zip(
                    rows[other], rows["difference"], rows["p_corrected_t"], strict=True
                )
            )
            lines.append(f"{name} is better than {_enumerated(listed)}.")
    blind = _wilcoxon_is_blind(n_resamples, len(pairs), alpha)
    otherwise = int(((pairs["p_wilcoxon"] < alpha) != differ).sum())
    if otherwise and not blind:
        lines.append(
            "Wilcoxon's test, which takes the resamples as independent, decides otherwise on "
            f"{otherwise} of {len(pairs)} pairs."
        )
    return "\n".join(lines + blind)


def interval_words(low: float, high: float, decimals: int | None = None) -> str | None:
    """Say both ends of an interval, with as many digits as show that they differ.

    Parameters
    ----------
    low, high : float
    decimals : int, optional
        Digits after the point, at least; otherwise four digits that count, at least.

    Returns
    -------
    str or None
        None where the ends are the same up to rounding: scores without any spread have no
        interval, and "0.7 to 0.7" would pass for certainty.

    Examples
    --------
    >>> interval_words(0.61, 0.75), interval_words(0.61, 0.75, 3)
    ('0.61 to 0.75', '0.610 to 0.750')
    >>> interval_words(0.700001, 0.700004), interval_words(0.7, 0.7)
    ('0.700001 to 0.700004', None)
    """
    if not high - low > _ROUNDING * max(abs(low), abs(high)):
        return None
    for more in range(17):
        form = f".{4 + more}g" if decimals is None else f",.{decimals + more}f"
        first, last = format(low, form), format(high, form)
        if first != last:
            break
    return f"{first} to {last}"


def p_words(p: float) -> str:
    """Say a p-value of paired scores.

    Examples
    --------
    >>> p_words(0.0312), p_words(3e-7)
    ('p = 0.031', 'p < 0.0001')

    Zero is what `corrected_resampled_ttest` has for differences without any spread:

    >>> p_words(0.0)
    'by the same in every resample'
    """
    return f"p {_p_relation(p)}" if p else "by the same in every resample"


def _wilcoxon_is_blind(n_resamples: int, n_comparisons: int, alpha: float) -> list[str]:
    """Say so, where even the smallest exact p-value is no less than alpha after Holm."""
    least = min(1.0, n_comparisons * 2.0 ** (1 - n_resamples))
    if not n_comparisons or least < alpha:
        return []
    return [
        f"With {n_resamples} resamples and {n_comparisons} comparison(s) the Wilcoxon test cannot "
        f"find any difference: its adjusted p-value is at least {least:.2g}. More resamples are "
        "needed."
    ]


def _p_relation(p: float) -> str:
    return f"= {p:.2g}" if p >= 1e-4 else "< 0.0001"


def _word(name: object, default: str = "model") -> str:
    return default if name is None else str(name).replace("_", " ")


def _listed_cliques(cliques: Iterable[Clique]) -> str:
    return "; ".join(_enumerated(clique) for clique in cliques)


def _enumerated(names: Iterable[object]) -> str:
    *others, last = map(str, names)
    return f"{', '.join(others)} and {last}" if others else last
