"""What the studies run, and by which rule the budget cuts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

N_SPLITS = 10
SINGLE = ("combu", "relu", "selu", "mish", "gelu", "pln-8", "la-silu", "snake", "rational")
BLENDS = tuple(f"blend-{name}" for name in SINGLE)
# of a pack's nine: combined, kinked, self-normalising, normalising, and all of them
PACKS = ("combu", "relu", "selu", "pln-8", "mix")
PATIENCE = 30  # epochs: the estimators' own
PARTS: dict[str, Mapping[str, Any]] = {
    "twice the epochs": {"max_iter": 200, "n_iter_no_change": 2 * PATIENCE},
    "two networks": {"n_members": 2},
    "no embedding of numbers": {"numeric_embedding": "none"},
    "constant learning rate": {"learning_rate": "constant"},
    "no dropout": {"dropout": 0.0},
    "no weight decay": {"weight_decay": 0.0},
    "no scaling of inputs": {"scale_inputs": False},
    "standard scaler": {"numeric_encoding": "standard"},
}


@dataclass(frozen=True)
class Stage:
    """Activations in a recipe on some tables, and on how many of the ten splits the budget lets."""

    name: str
    recipes: Sequence[str]
    kinds: tuple[str, ...]  # of tables
    activations: tuple[str, ...]
    begins: int  # the round of its first split
    n_splits: int


# The rule for cutting, written down before anything was run. Rows: 400 to train on, 1,000 to test
# on. A round is one split of every stage that has begun and still has splits to go, in the order
# below, so that what the budget cuts are the last rounds, and the dearest networks most. TabM has
# 8 heads of 2 x 128 instead of 32 of 3 x 256, a pack 9 members instead of 16 and five settings
# instead of ten; blends are trained in the default recipe alone; Feynman's equations have fewer
# splits. A table's split counts where all activations of a stage have it.
PLAN = (
    Stage("tables", ("default", "paper"), ("openml", "formula"), SINGLE, 0, 10),
    Stage("parts", tuple(PARTS), ("openml", "formula"), ("combu",), 1, 3),
    Stage("packs", ("pack",), ("openml",), PACKS, 2, 3),
    Stage("TabM", ("TabM",), ("openml",), SINGLE, 2, 3),
    Stage("equations", ("paper", "default"), ("feynman",), SINGLE, 3, 2),
    Stage("blends", ("default",), ("openml", "formula"), BLENDS, 4, 3),
    Stage("mixes", ("pack",), ("formula", "feynman"), ("mix",), 5, 1),
)
STAGES = tuple(stage.name for stage in PLAN)

# of `benchmarks.activations.learned`, on the same rows and splits: splits in order, networks first
N_MEMBERS = 8  # of a pack
ARMS = {
    "networks": (
        *("fixed", "blend", "two networks", "straight-through", "softmax"),
        *("found, by layer", "found, all layers alike"),
    ),
    "packs": ("pack, fixed", "pack, random shares", "pack, random by layer"),
}
