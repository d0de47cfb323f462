"""What is asked of activations in strong recipes, and how the rows answer."""

from __future__ import annotations

import numpy as np

from benchmarks.activations.effects import (
    LEVEL,
    by_table,
    effects,
    range_of_levels,
    ranks,
    ratio_text,
)
from benchmarks.activations.findings import (
    REFERENCE,
    TIME,
    Found,
    activation_shares,
    of_openml,
    percent,
)
from benchmarks.activations.foresight import judged
from benchmarks.common.claims import Claim, Finding
from benchmarks.common.looks import label
from benchmarks.common.page import p_text


def _differ(recipe: str, found: Found) -> Finding | None:
    """Friedman's test over tables, and over equations where there are some."""
    said, parts = [], []
    for on in ("tables", "equations"):
        logs = found.of(recipe, on)
        if logs is not None:
            test = ranks(logs)
            worst = range_of_levels(logs)
            said.append(f"{on}: {p_text(test.friedman.pvalue)}, worst over best {worst:.3f}")
            parts.append(test.differ or None)  # what is not found may be there
    return Finding("; ".join(said), parts) if parts else None


def _combu_is_best(recipe: str, found: Found) -> Finding | None:
    """No activation may be better by its mean, and ReLU significantly worse."""
    logs = found.of(recipe)
    if logs is None:
        return None
    beside = effects(logs, REFERENCE)
    best = by_table(logs).mean().idxmin()
    relu = beside["relu"]
    words = f"best mean: {label(best)}; ReLU over CombU {relu}, {p_text(relu.p)}"
    worse = relu.p < LEVEL or None if relu.ratio.mean > 1.0 else False
    return Finding(words, [best == REFERENCE, worse])


def _less_than_split(found: Found) -> Finding | None:
    """On all tables, and on those of OpenML alone."""
    logs = found.of("default")
    if logs is None:
        return None
    said, parts = [], []
    for name, own in {"all tables": logs, "OpenML alone": of_openml(logs)}.items():
        known = activation_shares(own)
        if known is None:
            continue
        alone, with_table, split = (
            known[0][n] for n in ("activation", "table x activation", "table x split")
        )
        said.append(
            f"{name}: activation {percent(alone)}, with the table {percent(with_table)}, split "
            f"{percent(split)}"
        )
        less = alone.high + with_table.high < split.low
        more = alone.low + with_table.low > split.high
        parts.append(True if less else False if more else None)
    return Finding("; ".join(said), parts) if parts else None


def _less_than_time(found: Found) -> Finding | None:
    """The best activation by its mean must gain less over CombU than each way to spend time."""
    logs = found.of("default")
    times = {name: found.parts[name].effect for name in TIME if name in found.parts}
    if logs is None or not times:
        return None
    means = by_table(logs).mean()
    gain = float(np.exp(means.min() - means[REFERENCE]))
    said = ", ".join(f"{name} {effect}" for name, effect in times.items())
    words = f"best activation over CombU {gain:.3f}; {said}"
    return Finding(
        words,
        [
            True if effect.ratio.high < gain else False if effect.ratio.low > gain else None
            for effect in times.values()
        ],
    )


def _mix(found: Found) -> Finding | None:
    """No pack of one activation may be better than the mix by its mean."""
    logs = found.of("pack")
    if logs is None:
        return None
    beside = effects(logs, "mix")
    said = "; ".join(
        f"{label(name)} {effect}, {p_text(effect.p)}" for name, effect in beside.items()
    )
    parts = [{False: True, None: None, True: False}[effect.smaller] for effect in beside.values()]
    return Finding(f"over the mix: {said}", parts)


def _blends(found: Found) -> Finding | None:
    if not found.blends:
        return None
    gains = {name: pair.effect for name, pair in found.blends.items()}
    said = "; ".join(
        f"{label(name)} {effect}, {p_text(effect.p)}" for name, effect in gains.items()
    )
    return Finding(said, [effect.smaller for effect in gains.values()])


def _foreseen(found: Found) -> Finding | None:
    if found.costs.empty:
        return None
    verdicts = judged(found.costs)
    said = "; ".join(
        f"{rule} {ratio_text(ratio)}, {p_text(p)}" for rule, (ratio, p) in verdicts.items()
    )
    models = [verdicts[rule] for rule in ("ridge", "nearest tables")]
    fixed = verdicts["best on the other tables"][0].mean
    return Finding(
        f"error over CombU's: {said}",
        [(p < LEVEL or None) if ratio.mean < min(1.0, fixed) else False for ratio, p in models],
    )


CLAIMS = [
    *(
        Claim(recipe, f"The choice of activation makes a difference ({words}).", judge)
        for recipe, words, judge in (
            (recipe, words, lambda found, recipe=recipe: _differ(recipe, found))
            for recipe, words in (
                ("paper", "the CombU paper's plain network"),
                ("default", "the default recipe"),
                ("TabM", "TabM"),
                ("pack", "packs of one activation, and a mix"),
            )
        )
    ),
    *(
        Claim(
            recipe,
            "CombU has the smallest mean error, and ReLU's is significantly larger.",
            lambda found, recipe=recipe: _combu_is_best(recipe, found),
        )
        for recipe in ("paper", "default")
    ),
    Claim(
        "default",
        "The activation, alone and with the table, has less of the variance than the split of the "
        "rows.",
        _less_than_split,
    ),
    Claim(
        "default",
        "The best activation gains less over CombU than twice the time, as epochs or as a second "
        "network.",
        _less_than_time,
    ),
    Claim("pack", "A mix is as good as any activation alone, by its mean error.", _mix),
    Claim("default", "Blends are significantly better than what they blend with x.", _blends),
    Claim(
        "default",
        "What to choose can be foreseen from the table: significantly better than CombU, and "
        "better than one choice for all.",
        _foreseen,
    ),
]
