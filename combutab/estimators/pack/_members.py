"""The members of a pack: what all of them share, and what varies from one to the next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from combutab._random import Purpose, derive
from combutab.nn import ActivationSpec


@dataclass(frozen=True)
class Between:
    """Numbers that are spread evenly from ``low`` to ``high``, or their logarithms are.

    Those below ``least`` become it.
    """

    low: float
    high: float
    log: bool = False
    least: float = -math.inf

    def at(self, share: float) -> float:
        """Return the number below which so large a share lies.

        >>> Between(0.01, 1.0, log=True).at(0.5)
        0.1
        """
        if self.log:
            return float(self.low * (self.high / self.low) ** share)
        return max(self.least, float(self.low + (self.high - self.low) * share))


@dataclass(frozen=True)
class Recipe:
    """Parameters of a pack's members: shared, varied, and those that give a network its shape.

    Members of one shape train as one stack, so there are few shapes.
    """

    shared: Mapping[str, Any]
    varied: Mapping[str, Between]
    shapes: tuple[Mapping[str, Any], ...]


_BOTH = Recipe(
    shared={
        "solver": "adamw",
        "alpha": 0.0,
        "batch_size": "auto",
        "learning_rate": "coslog4",
        "beta_1": 0.9,
        "beta_2": 0.95,
        "epsilon": 1e-8,
        "max_grad_norm": None,
        "tol": 1e-6,
        "shuffle": True,
        "regularization_schedule": "flat-cosine",
        "learning_rate_factors": None,
        "normalization": "none",
        "proxy_norm": False,
        "init": "torch",
        "numeric_encoding": "robust",
        "max_onehot": 8,
        "min_frequency": 5,
        "embedding_dim": 8,
        "numeric_embedding": "pbld",
        "n_frequencies": 16,
        "n_bins": 48,
        "scale_inputs": True,
        "precision": "float32",
    },
    varied={
        "dropout": Between(-0.15, 0.3, least=0.0),  # a third of the members drop nothing out
        "weight_decay": Between(1e-3, 1e-1, log=True),
        "learning_rate_init": Between(1e-3, 6e-3, log=True),
        "frequency_scale": Between(0.01, 10.0, log=True),
    },
    shapes=(
        {"hidden_layer_sizes": (256,), "numeric_embedding_dim": 32},
        {"hidden_layer_sizes": (256, 256), "numeric_embedding_dim": 16},
        {"hidden_layer_sizes": (256, 256, 256), "numeric_embedding_dim": 8},
    ),
)

CLASSIFIER = replace(_BOTH, shared={**_BOTH.shared, "label_smoothing": 0.0, "calibration": None})
REGRESSOR = replace(_BOTH, shared={**_BOTH.shared, "scale_target": True, "clip_predictions": True})


def draw_members(
    recipe: Recipe, n_members: int, activations: Sequence[ActivationSpec], seed: int
) -> list[dict[str, Any]]:
    """Draw what each member is made with.

    Each varied parameter is a Latin hypercube's: one draw from each of ``n_members`` equal parts of
    its range, in random order. Shapes and activations come equally often; the first activations
    are the given ones, in order.

    Returns
    -------
    list of dict
        One a member, of constructor parameters.

    >>> [member["activation"] for member in draw_members(CLASSIFIER, 3, ("mish", "relu"), 0)][:2]
    ['mish', 'relu']
    """
    rng = np.random.default_rng(derive(seed, Purpose.MEMBER_SETTINGS))
    shares = {
        name: (rng.permutation(n_members) + rng.random(n_members)) / n_members
        for name in recipe.varied
    }
    shapes = rng.permutation(np.arange(n_members) % len(recipe.shapes))
    kinds = list(range(len(activations)))
    while len(kinds) < n_members:
        kinds += rng.permutation(len(activations)).tolist()
    return [
        {
            "activation": activations[kinds[i]],
            **recipe.shapes[shapes[i]],
            **{name: between.at(shares[name][i]) for name, between in recipe.varied.items()},
        }
        for i in range(n_members)
    ]
