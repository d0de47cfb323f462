"""What the LayerAct studies share: the functions compared, training, "better than all"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import pandas as pd

from benchmarks.common.verdicts import Verdict, best_of
from combutab import MLPClassifier, paper_recipe
from combutab.estimators import FitTask, fit_stacked

# The paper's activations: LReLU, SiLU, HardSiLU are its names for leaky_relu, silu, hardsilu
ELEMENT_LEVEL = ("relu", "leaky_relu", "prelu", "silu", "hardsilu", "mish", "gelu", "elu")
COUNTERPARTS = {"la-silu": "silu", "la-hardsilu": "hardsilu"}
LAYER_LEVEL = tuple(COUNTERPARTS)
NAMES = {"la-silu": "LA-SiLU", "la-hardsilu": "LA-HardSiLU"}
ACTIVATIONS = (*ELEMENT_LEVEL, *LAYER_LEVEL, "combu", "pln-8")  # the last two are other papers'
Table = tuple[pd.DataFrame, pd.Series]


def train(
    activations: Sequence[str], tables: Sequence[Table], **options: object
) -> dict[tuple[str, int], MLPClassifier]:
    """Train a network for each activation and seed, by these; ``tables`` has one for each seed."""
    nets, options = {}, {"n_iter_no_change": math.inf, **options}
    for name, seed in product(activations, range(len(tables))):
        settings = {"activation": name, "random_state": seed, **options}
        nets[name, seed] = MLPClassifier(**paper_recipe("classification", **settings))
    tasks = [FitTask(net, *tables[seed], id(tables[seed][0])) for (_, seed), net in nets.items()]
    for outcome in fit_stacked(tasks):
        if outcome.error is not None:
            raise outcome.error
    return nets


def beats_all(name: str, wide: pd.DataFrame, **options: object) -> Verdict | None:
    """Judge "better than each element-level activation" of a table of units x activations."""
    others = [other for other in ELEMENT_LEVEL if other in wide]
    return best_of(wide[[*others, name]], name, **options) if name in wide and others else None
