"""The page of a comparison of activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from combutab._version import __version__
from combutab.evaluation import interval_words
from combutab.model_selection import GUESSES, METRICS, ActivationComparison
from combutab.reports._page import number, render, versions
from combutab.reports.comparison._cards import verdict_cards
from combutab.reports.comparison._picture import dot_plot

_MEANINGS = {
    "accuracy": "The share of test rows whose class is predicted right.",
    "f1": "The harmonic mean of precision and recall of a class, averaged over the classes.",
    "log_loss": "Minus the mean logarithm of the probability given to the right class: "
    "0 is perfect, and sureness in a wrong class costs most.",
    "roc_auc": "How often a row of a class is given a higher probability of it than a row of "
    "another: 0.5 is chance, 1 always.",
    "r2": "The share of the target's variance that is predicted: 1 is perfect, 0 is no better "
    "than its mean.",
    "mae": "The mean absolute error of the predictions.",
    "mse": "The mean squared error of the predictions; large errors weigh most.",
}
_TESTS = {"corrected-t": "corrected resampled t-test", "wilcoxon": "Wilcoxon's signed-rank test"}
_NARROW = 0.01  # of the largest mean: an interval that three digits would not show
_VERDICTS = {True: "significantly different", False: "not significantly different"}
_SETTINGS = {
    "recipe": "Recipe of the networks",
    "folds": "Folds",
    "seeds": "Seeds",
    "epochs": "Epochs of each network",
    "hidden": "Hidden layers",
    "test": "Test",
    "device": "Device",
    "random_state": "Seed of folds and networks",
    "baselines": "Baselines",
}


def comparison_page(found: ActivationComparison) -> str:
    """Render one self-contained HTML page of what was found."""
    return render(
        "comparison.html",
        version=__version__,
        sections=[
            ("scores", "Scores"),
            ("other", "Other measures"),
            ("made", "How it was made"),
            ("reading", "How to read"),
        ],
        found=found,
        measure=found.measure,
        cards=verdict_cards(found),
        chart=_chart(found),
        sentences=found.sentences.splitlines(),
        facts=_facts(found),
        summary=_summary(found),
        guessed="p_guess" in found.summary,
        baselines=_baselines(found),
        guess=GUESSES[found.metric],
        picture=dot_plot(found),
        folds=_folds(found),
        other=_other(found),
        made=_made(found),
        meaning=_MEANINGS[found.metric],
        test=str(found.summary["test"].iloc[0]),
    )


def _facts(found: ActivationComparison) -> list[tuple[str, str]]:
    """List what was compared, for the head of the page."""
    first = found.results.iloc[0]
    names = found.results["activation"].nunique()
    return [
        ("Rows", f"{first['n_train'] + first['n_test']:,}"),
        ("Task", found.task),
        ("Compared by", found.measure.description),
        ("Trained", f"{len(found.results):,} networks: {names} activations, {found.design}"),
    ]


def _chart(found: ActivationComparison) -> str:
    """Say in a sentence what the chart shows."""
    best, rest = found.summary.iloc[0], found.summary.iloc[1:]
    way = "right" if found.measure.greater_is_better else "left"
    said = f"The further to the {way}, the better: {found.best} is at "
    said += f"{number(best['mean'])} on average over the folds"
    if len(rest):
        last = rest.iloc[-1]
        said += f", and {last['activation']}, the last, at {number(last['mean'])}"
    n = int(rest["distinguishable"].sum())
    told = {0: "none is", 1: "one is"}.get(n, f"{n} are")
    of_others = f" Of {len(rest)} others, {told} behind by more than chance explains."
    return f"{said}.{of_others * bool(len(rest))}"


def _summary(found: ActivationComparison) -> list[dict[str, Any]]:
    """A row an activation, the best first; ``verdict`` says what the test found."""
    rows = []
    summary = found.summary
    digits = _digits(found)
    for place, (_, line) in enumerate(summary.iterrows()):
        differs = _VERDICTS[bool(line["distinguishable"])]
        best = "the best" if found.winner else "the best, no winner"
        rows.append(
            {
                "name": str(line["activation"]),
                **_mean(line, digits),
                "mean_rank": f"{line['mean_rank']:.2f}",
                "p": "–" if place == 0 else _p(float(line["p"])),
                "verdict": best if place == 0 else differs,
                "guess": "yes" if line.get("beats_guess") else "no",
            }
        )
    return rows


def _mean(line: pd.Series, digits: int) -> dict[str, str]:
    ends = interval_words(line["low"], line["high"], digits)
    return {"mean": _fixed(line["mean"], digits), "interval": ends or "the same in all folds"}


def _baselines(found: ActivationComparison) -> list[dict[str, str]]:
    digits = _digits(found)
    return [
        {
            "name": str(line["baseline"]),
            **_mean(line, digits),
            "p": _p(float(line["p"])),
            "verdict": _VERDICTS[bool(line["distinguishable"])],
        }
        for _, line in found.baselines.iterrows()
    ]


def _folds(found: ActivationComparison) -> dict[str, Any]:
    """Each fold's score, the mean of its seeds: the dots of the chart as numbers."""
    wide = found.results.pivot_table(index="activation", columns="fold", values=found.metric)
    wide = wide.loc[found.summary["activation"]]
    return {
        "names": [str(int(fold) + 1) for fold in wide.columns],
        "rows": _cells(wide, [_digits(found)] * wide.shape[1]),
    }


def _other(found: ActivationComparison) -> dict[str, Any]:
    """Means of all measures, the compared one first."""
    known = METRICS[found.task]
    metrics = [found.metric, *(name for name in known if name != found.metric)]
    means = found.results.groupby("activation")[metrics].mean().loc[found.summary["activation"]]
    digits = [_decimals(means[name]) + 1 for name in metrics]  # small ones beside large
    rows = _cells(means, digits)
    if not found.baselines.empty:
        means = found.baseline_results.groupby("baseline")[metrics].mean()
        rows += _cells(means.loc[found.baselines["baseline"]], digits)
    return {"measures": [known[name] for name in metrics], "rows": rows}


def _cells(table: pd.DataFrame, decimals: Sequence[int]) -> list[tuple[str, list[str]]]:
    """Each row's name and numbers, with so many decimals in each column."""
    return [
        (str(name), [_fixed(value, n) for value, n in zip(row, decimals, strict=True)])
        for name, row in table.iterrows()
    ]


def _made(found: ActivationComparison) -> list[tuple[str, str]]:
    shown = {**found.settings, "test": _TESTS[found.settings["test"]]}
    shown["hidden"] = " and ".join(map(str, found.settings["hidden"])) + " units"
    if "baselines" in shown:
        shown["baselines"] = ", ".join(shown["baselines"]) or "none"
    return [
        *((_SETTINGS.get(name, name), str(value)) for name, value in shown.items()),
        ("Versions", ", ".join(f"{name} {each}" for name, each in versions().items())),
    ]


def _digits(found: ActivationComparison) -> int:
    """Decimals of the scores: one more where an interval is narrow."""
    summary = found.summary
    narrow = (summary["high"] - summary["low"]).min() < _NARROW * summary["mean"].abs().max()
    return _decimals(summary["mean"]) + bool(narrow)


def _decimals(values: pd.Series) -> int:
    """Decimals that give the largest value three digits."""
    largest = float(values.abs().max())
    return int(np.clip(2 - np.floor(np.log10(largest)), 0, 8)) if largest > 0 else 3


def _fixed(value: float, decimals: int) -> str:
    return "–" if value != value else f"{value:,.{decimals}f}"  # NaN: a class is in no test fold


def _p(p: float) -> str:
    """A probability in percent, with two digits or so.

    >>> _p(1.0), _p(0.6332), _p(0.0312), _p(0.00029), _p(1e-7)
    ('100 %', '63 %', '3.1 %', '0.03 %', '< 0.01 %')
    """
    if p < 1e-4:
        return "< 0.01 %"
    return f"{100 * p:.{0 if p >= 0.1 else 1 if p >= 0.01 else 2}f} %"
