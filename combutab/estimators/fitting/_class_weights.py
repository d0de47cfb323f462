"""Class weights: numbers that can be weights, of classes that there are."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

# Beyond these, products with losses and penalties leave float32, in which networks train.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-18, 1e18


def check_weights(weights: np.ndarray, what: str) -> None:
    """Refuse weights with which training could not compute, and weights that leave no row."""
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        raise ValueError(f"{what} must be at least 0 and finite, got {weights[wrong][0]}")
    odd = (weights > 0) & ((weights < SMALLEST_WEIGHT) | (weights > LARGEST_WEIGHT))
    if odd.any():
        raise ValueError(
            f"{what} must be 0, or between {SMALLEST_WEIGHT:g} and {LARGEST_WEIGHT:g}, got "
            f"{weights[odd][0]:g}; divide the weights by their mean, and set those that count for "
            "nothing to 0"
        )


def check_class_weight(class_weight: Any) -> None:
    """Check the parameter as far as that goes before the data are seen.

    Raises ValueError if a weight is no number, or none that `check_weights` accepts.
    """
    tables = [class_weight] if isinstance(class_weight, Mapping) else class_weight
    if class_weight is None or isinstance(class_weight, str):
        return
    for table in tables:
        if not isinstance(table, Mapping):
            raise ValueError(
                "class_weight must be a dict class -> weight (for multi-label targets a list of "
                f"them, one a label), 'balanced' or None, got {class_weight!r}"
            )
        for label, weight in table.items():
            if not isinstance(weight, Real):
                raise ValueError(
                    f"class_weight of class {label!r} must be a number, got {weight!r}"
                )
            check_weights(np.array([float(weight)]), f"class_weight of class {label!r}")


def weights_of_classes(class_weight: Any, classes: np.ndarray) -> np.ndarray:
    """The weight of each class, (n_classes,); classes that are not named weigh 1.

    Raises ValueError if a name is no class while a class has no weight, as scikit-learn, or for a
    list.
    """
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            "class_weight is a list, which is for multi-label targets; for these it must be a "
            f"dict class -> weight, got {class_weight!r}"
        )
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    unnamed = [label for label in labels if label not in class_weight]
    if unknown and unnamed:
        raise ValueError(
            f"class_weight names {unknown}, which are no classes of y, and the classes {unnamed} "
            "are not in class_weight: use the labels of y themselves"
        )
    if unknown:  # a class that these rows lack, in a fold say
        warnings.warn(
            f"class_weight names {unknown}, which are no classes of y; they change nothing",
            stacklevel=6,
        )
    weights = np.array([float(class_weight.get(label, 1.0)) for label in labels])
    if not weights.any():
        raise ValueError(
            f"class_weight={class_weight} is 0 for every class: nothing is left to fit"
        )
    return weights
