"""Results of significance tests in sentences."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from operator import itemgetter

import numpy as np
import pandas as pd

from combutab.core.text import counted, join_names, join_with_smallest_p, p_relation
from combutab.evaluation._statistics import (
    ROUNDING,
    Clique,
    NemenyiResult,
    maximal_cliques,
    plural,
)


def summarise(comparison: pd.DataFrame, *, score: str = "score", alpha: float = 0.05) -> str:
    """Summarize the result of `compare_with_best` in sentences.

    Parameters
    ----------
    comparison : DataFrame
        Result of `compare_with_best`.
    score : str, default="score"
        Name of the score in the sentences.
    alpha : float, default=0.05
        Significance level, the same as in `compare_with_best`.

    Returns
    -------
    str, one sentence per line

    Examples
    --------
    >>> from combutab.evaluation import compare_with_best
    >>> results = pd.DataFrame({
    ...     "activation": ["relu"] * 4 + ["combu"] * 4,
    ...     "fold": [0, 1, 2, 3] * 2,
    ...     "score": [0.80, 0.82, 0.81, 0.79, 0.90, 0.91, 0.92, 0.89],
    ... })
    >>> print(summarise(compare_with_best(results, n_train=75, n_test=25), score="accuracy"))
    combu has the best mean accuracy: 0.905 (95 % interval 0.8736 to 0.9364) over 4 folds.
    Significantly different from combu at the 5 % level: relu (p = 0.00053).
    """
    group = comparison.columns[0]
    best, others_table = comparison.iloc[0], comparison.iloc[1:]
    k, name = int(best["n_resamples"]), best[group]
    ends = interval_words(best["low"], best["high"])
    interval = f" ({100 * (1 - alpha):g} % interval {ends}) over" if ends else ", the same in all"
    lines = [f"{name} has the best mean {score}: {best['mean']:.4g}{interval} {k} folds."]
    differs = others_table["distinguishable"].astype(bool)
    level = f"at the {100 * alpha:g} % level"
    similar, different = others_table[~differs], others_table[differs]
    if len(similar):
        names = join_with_smallest_p(similar[group], similar["p"])
        lines.append(f"Not significantly different from {name} {level}: {names}.")
    if len(different):
        pairs = zip(different[group], different["p"], strict=True)
        names = ", ".join(f"{other_name} ({p_words(p)})" for other_name, p in pairs)
        lines.append(f"Significantly different from {name} {level}: {names}.")
    if best["test"] == "wilcoxon":
        lines += _wilcoxon_is_blind(k, len(others_table), alpha)
    return "\n".join(lines)


def summarise_nemenyi(result: NemenyiResult) -> str:
    """Summarize the result of `nemenyi` in sentences: which models differ significantly.

    Parameters
    ----------
    result : NemenyiResult

    Returns
    -------
    str, one sentence per line

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
    p, level = p_relation(result.friedman.pvalue), f"{100 * result.alpha:g} % level"
    nemenyi = (
        f"By Nemenyi's test (critical difference {result.critical_difference:.2f} ranks, {level})"
    )
    none = f"no {model} is significantly different from any other"
    losers = [tuple(ranks.index[ranks - rank > result.critical_difference]) for rank in ranks]
    conclusion = (
        f": the {models} differ" if result.differ else f" finds no difference between the {models}"
    )
    listed = ", ".join(f"{name} {rank:.2f}" for name, rank in ranks.items())
    lines = [
        f"Friedman's test over {rows}{conclusion} (p {p}).",
        f"Mean ranks, 1 is the best: {listed}.",
    ]
    if not result.differ:
        lines.append(f"{none[0].upper()}{none[1:]}.")
    elif not any(losers):
        lines.append(f"{nemenyi} {none}: which of them differ is left open.")
    else:
        alike = f"these are not significantly different: {_join_cliques(result.cliques)}"
        all_differ = f"every {model} is significantly different from every other"
        lines.append(f"{nemenyi} {alike if result.cliques else all_differ}.")
        # Further down the ranks fewer are worse, so those better than the same ones are neighbours
        for worse, pairs in itertools.groupby(
            zip(losers, ranks.index, strict=True), key=itemgetter(0)
        ):
            better = [name for _, name in pairs]
            if worse:
                verb = "ranks" if len(better) == 1 else "rank"
                lines.append(f"{join_names(better)} {verb} better than {join_names(worse)}.")
    if result.n_rows < result.n_rows_needed:
        lines.append(
            f"With {rows} no two of {models} can differ significantly, even if all ranked them "
            f"alike: at least {result.n_rows_needed} are needed."
        )
    return "\n".join(lines)


def summarise_pairs(pairs: pd.DataFrame, *, score: str = "score", alpha: float = 0.05) -> str:
    """Summarize the result of `compare_pairs` in sentences: which models differ significantly.

    Parameters
    ----------
    pairs : DataFrame
        Result of `compare_pairs`.
    score : str, default="score"
        Name of the score in the sentences.
    alpha : float, default=0.05
        Significance level, the same as in `compare_pairs`.

    Returns
    -------
    str, one sentence per line

    Examples
    --------
    >>> from combutab.evaluation import compare_pairs
    >>> results = pd.DataFrame({
    ...     "activation": ["relu"] * 4 + ["combu"] * 4 + ["elu"] * 4,
    ...     "fold": [0, 1, 2, 3] * 3,
    ...     "score": [0.80, 0.82, 0.81, 0.79, 0.90, 0.91, 0.92, 0.89, 0.91, 0.90, 0.89, 0.90],
    ... })
    >>> print(summarise_pairs(compare_pairs(results, n_train=75, n_test=25), score="accuracy"))
    2 of 3 pairs of activations are significantly different in accuracy over 4 folds
    (corrected t-test, Holm-adjusted, 5 % level).
    These are not significantly different: combu and elu.
    combu is better than relu (accuracy +0.1, p = 0.0016).
    elu is better than relu (accuracy +0.095, p = 0.011).
    With 4 folds and 3 comparisons, Wilcoxon's test cannot find a difference: its adjusted p-value
    is at least 0.38. More folds are needed.
    """
    group, second = pairs.columns[:2]
    model, n_resamples = _word(group), int(pairs["n_resamples"].iloc[0])
    differ = pairs["distinguishable"].astype(bool)
    design = (
        f"in {score} over {n_resamples} folds (corrected t-test, Holm-adjusted, "
        f"{100 * alpha:g} % level)"
    )
    if not differ.any():
        first = pairs.nsmallest(1, "p_corrected_t").iloc[0]
        lines = [
            f"No {model} is significantly different from any other {design}.",
            f"The smallest p-value is that of {first[group]} and {first[second]} "
            f"({p_words(first['p_corrected_t'])}).",
        ]
    else:
        lines = [
            f"{differ.sum()} of {len(pairs)} pairs of {plural(model)} are significantly different "
            f"{design}."
        ]
        if not differ.all():
            names = list(dict.fromkeys([*pairs[group], *pairs[second]]))
            alike = np.zeros((len(names), len(names)), dtype=bool)
            for pair in pairs.loc[~differ, [group, second]].to_numpy():
                first_position, second_position = map(names.index, pair)
                alike[first_position, second_position] = alike[second_position, first_position] = (
                    True
                )
            cliques = maximal_cliques(pd.DataFrame(alike, index=names, columns=names))
            listed = _join_cliques(cliques)
            lines.append(f"These are not significantly different: {listed}.")
        for name, rows in pairs[differ].groupby(group, sort=False):
            columns = (rows[column] for column in (second, "difference", "p_corrected_t"))
            worse = (
                f"{loser} ({score} {by:+.3g}, {p_words(p)})"
                for loser, by, p in zip(*columns, strict=True)
            )
            lines.append(f"{name} is better than {join_names(worse)}.")
    blind = _wilcoxon_is_blind(n_resamples, len(pairs), alpha)
    otherwise = int(((pairs["p_wilcoxon"] < alpha) != differ).sum())
    if otherwise and not blind:
        lines.append(
            "Wilcoxon's test, which assumes independent folds, decides otherwise on "
            f"{otherwise} of {len(pairs)} pairs."
        )
    return "\n".join(lines + blind)


def interval_words(low: float, high: float, decimals: int | None = None) -> str | None:
    """Format an interval with enough digits to show that its ends differ.

    Parameters
    ----------
    low, high : float
    decimals : int, optional
        Minimum number of decimals. By default at least four significant digits.

    Returns
    -------
    str or None
        None if the ends are equal up to rounding, because "0.7 to 0.7" would suggest certainty
        where the scores only have no spread.

    Examples
    --------
    >>> interval_words(0.61, 0.75), interval_words(0.61, 0.75, 3)
    ('0.61 to 0.75', '0.610 to 0.750')
    >>> interval_words(0.700001, 0.700004), interval_words(0.7, 0.7)
    ('0.700001 to 0.700004', None)
    """
    if not high - low > ROUNDING * max(abs(low), abs(high)):
        return None
    for more in range(17):
        form = f".{4 + more}g" if decimals is None else f",.{decimals + more}f"
        first, last = format(low, form), format(high, form)
        if first != last:
            break
    return f"{first} to {last}"


def p_words(p: float) -> str:
    """Format a p-value of paired scores for a sentence.

    Examples
    --------
    >>> p_words(0.0312), p_words(3e-7)
    ('p = 0.031', 'p < 0.0001')

    `corrected_resampled_ttest` returns 0 for differences without any spread:

    >>> p_words(0.0)
    'by the same amount in every fold'
    """
    return f"p {p_relation(p)}" if p else "by the same amount in every fold"


def _wilcoxon_is_blind(n_resamples: int, n_comparisons: int, alpha: float) -> list[str]:
    """Warn if even the smallest possible p-value, adjusted by Holm, is not below alpha."""
    smallest = min(1.0, n_comparisons * 2.0 ** (1 - n_resamples))
    if not n_comparisons or smallest < alpha:
        return []
    return [
        f"With {n_resamples} folds and {counted(n_comparisons, 'comparison')}, Wilcoxon's test "
        f"cannot find a difference: its adjusted p-value is at least {smallest:.2g}. More folds "
        "are needed."
    ]


def _word(name: object, default: str = "model") -> str:
    return default if name is None else str(name).replace("_", " ")


def _join_cliques(cliques: Iterable[Clique]) -> str:
    return "; ".join(join_names(clique) for clique in cliques)
