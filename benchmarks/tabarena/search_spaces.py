"""What may be searched of each model: AutoGluon's spaces, which TabArena draws from at random."""

from __future__ import annotations

from autogluon.common.space import Categorical, Int, Real

_ACTIVATIONS = ("combu", "mish", "selu", "relu", "pln-8", "la-silu", "rational")
_WIDTHS = ((256, 256), (256, 256, 256), (512, 512))

SPACES = {
    "COMBUTAB_MLP": {
        "activation": Categorical(*_ACTIVATIONS),
        "hidden_layer_sizes": Categorical((256,), *_WIDTHS),
        "learning_rate_init": Real(1e-3, 2e-2, log=True),
        "dropout": Real(0.0, 0.4),
        "weight_decay": Real(1e-3, 1e-1, log=True),
        "frequency_scale": Real(0.03, 3.0, log=True),
        "numeric_embedding_dim": Categorical(4, 8, 16),
        "numeric_encoding": Categorical("robust", "quantile"),
        "n_members": Categorical("auto", 4),
    },
    "COMBUTAB_TABM": {
        "activation": Categorical(*_ACTIVATIONS),
        "hidden_layer_sizes": Categorical(*_WIDTHS),
        "learning_rate_init": Real(3e-4, 5e-3, log=True),
        "dropout": Real(0.0, 0.4),
        "weight_decay": Real(1e-4, 1e-1, log=True),
        "n_bins": Int(8, 96),
        "numeric_embedding_dim": Categorical(8, 16, 24),
    },
    "COMBUTAB_PACK": {  # whose members vary by themselves
        "n_members": Categorical(16, 24, 32),
        "member_params": Categorical(None, {"numeric_encoding": "quantile"}),
        "boosting": Categorical(True, False),
    },
}
