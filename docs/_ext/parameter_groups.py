"""The order of the reference's docstrings: examples first, the estimators' parameters in groups."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

GROUPS = {
    "Network": """hidden_layer_sizes activation normalization proxy_norm init scale_inputs n_heads
        n_members bagging""",
    "Ensemble": "activations member_params cv boosting estimators max_ensemble_size",
    "Training": """loss quantiles class_weight solver batch_size learning_rate learning_rate_init
        learning_rate_factors power_t momentum nesterovs_momentum beta_1 beta_2 epsilon max_fun
        max_iter max_time shuffle max_grad_norm""",
    "Regularisation and early stopping": """dropout weight_decay alpha regularization_schedule
        label_smoothing early_stopping early_stopping_scoring scoring validation_fraction
        validation_split n_iter_no_change tol""",
    "Encoding of columns and target": """categorical_features max_onehot min_frequency
        embedding_dim numeric_encoding numeric_embedding numeric_embedding_dim n_bins n_frequencies
        frequency_scale date_features text_features scale_target""",
    "Predictions": "calibration clip_predictions",
    "Runtime": """random_state device precision n_jobs warm_start verbose track_metric
        callbacks""",
}
"""Title -> the estimators' parameters that stand below it, in this order."""


def grouped_parameters() -> dict[str, tuple[str, int]]:
    """Parameter -> its group, and its place among all."""
    rows = [(name, title) for title, names in GROUPS.items() for name in names.split()]
    return {name: (title, place) for place, (name, title) in enumerate(rows)}


def group_parameters(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Give the estimators' parameters, as numpydoc has laid them out, titles by `GROUPS`.

    The examples of every docstring stand before its parameters.
    """
    lines[:] = examples_first(lines)
    if what == "class" and thing.__module__.startswith("combutab.estimators"):
        lines[:] = in_groups(lines)


def examples_first(lines: list[str]) -> list[str]:
    """The lines of a docstring with its examples before its parameters."""
    title = ".. rubric:: Examples"
    if title not in lines or ":Parameters:" not in lines:
        return lines
    parameters, start = lines.index(":Parameters:"), lines.index(title)
    if start < parameters:
        return lines
    stop = next(
        (i for i in range(start + 1, len(lines)) if lines[i].startswith((".. rubric::", ":"))),
        len(lines),
    )
    examples = [*lines[start:stop], ""]
    return [*lines[:parameters], *examples, *lines[parameters:start], *lines[stop:]]


def in_groups(lines: list[str]) -> list[str]:
    """The lines of a docstring with its parameters by group; as they are where there are few."""
    if ":Parameters:" not in lines:
        return lines
    start = lines.index(":Parameters:") + 1
    stop = next(
        (i for i in range(start, len(lines)) if lines[i] and not lines[i].startswith(" ")),
        len(lines),
    )
    entries: list[tuple[str, list[str]]] = []
    for line in lines[start:stop]:
        if opens := re.match(r" {4}\*\*(\w+)", line):
            entries.append((opens[1], []))
        if entries:
            entries[-1][1].append(line)
    places = grouped_parameters()
    if not any(name in places for name, _ in entries):
        return lines
    body, title = [""], ""
    for name, text in sorted(entries, key=lambda entry: places[entry[0]][1]):
        if places[name][0] != title:
            title = places[name][0]
            body += [f"    .. rubric:: {title}", "       :class: parameters", ""]
        body += [*text, ""]
    return [*lines[:start], *body, *lines[stop:]]
