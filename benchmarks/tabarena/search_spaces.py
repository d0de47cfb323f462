"""What may be searched of each model: AutoGluon's spaces, which TabArena draws from at random."""

from __future__ import annotations

from typing import Any

from autogluon.common.space import Categorical, Int, Real

_ACTIVATIONS = ("combu", "mish", "selu", "relu", "pln-8", "la-silu", "rational")


def mlp_space() -> dict[str, Any]:
    """Of `CombuTabMLPModel`."""
    return {
        "activation": Categorical(*_ACTIVATIONS),
        "hidden_layer_sizes": Categorical((256,), (256, 256), (256, 256, 256), (512, 512)),
        "learning_rate_init": Real(1e-3, 2e-2, log=True),
        "dropout": Real(0.0, 0.4),
        "weight_decay": Real(1e-3, 1e-1, log=True),
        "frequency_scale": Real(0.03, 3.0, log=True),
        "numeric_embedding_dim": Categorical(4, 8, 16),
        "numeric_encoding": Categorical("robust", "quantile"),
        "n_members": Categorical("auto", 4),
    }


def tabm_space() -> dict[str, Any]:
    """Of `CombuTabTabMModel`."""
    return {
        "activation": Categorical(*_ACTIVATIONS),
        "hidden_layer_sizes": Categorical((256, 256), (256, 256, 256), (512, 512)),
        "learning_rate_init": Real(3e-4, 5e-3, log=True),
        "dropout": Real(0.0, 0.4),
        "weight_decay": Real(1e-4, 1e-1, log=True),
        "n_bins": Int(8, 96),
        "numeric_embedding_dim": Categorical(8, 16, 24),
    }


def pack_space() -> dict[str, Any]:
    """Of `CombuTabPackModel`, whose members vary by themselves."""
    return {
        "n_members": Categorical(16, 24, 32),
        "member_params": Categorical(None, {"numeric_encoding": "quantile"}),
        "boosting": Categorical(True, False),
    }


SPACES = {
    "COMBUTAB_MLP": mlp_space,
    "COMBUTAB_TABM": tabm_space,
    "COMBUTAB_PACK": pack_space,
}
