"""Small generators, and what tests of them compare."""

import numpy as np
import pandas as pd
import pytest

from combutab import CTGAN, TVAE, TabFlow

WIDTHS = {
    CTGAN: {"generator_dim": (16,), "discriminator_dim": (16,), "pac": 5, "embedding_dim": 8},
    TVAE: {"compress_dims": (16,), "decompress_dims": (16,), "embedding_dim": 8},
    TabFlow: {"hidden_layer_sizes": (16,), "early_stopping": False, "dropout": 0.1},
}
EVERY = pytest.mark.parametrize("cls", WIDTHS, ids=lambda cls: cls.__name__)
RATES = {CTGAN: "generator_lr", TVAE: "learning_rate", TabFlow: "learning_rate"}


def make(cls, **params):
    return cls(**{"epochs": 2, "batch_size": 50, "random_state": 0, **WIDTHS[cls], **params})


def assert_same(model, other, **tolerance):
    """The same weights, history and samples; to the bit without a tolerance."""
    assert len(model._states) == len(other._states)
    for state, expected in zip(model._states, other._states, strict=True):
        assert state.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(state[name], value, **{"rtol": 0, **tolerance})
    pd.testing.assert_frame_equal(model.history_, other.history_, rtol=tolerance.get("rtol", 0))
    pd.testing.assert_frame_equal(
        model.sample(20, random_state=0), other.sample(20, random_state=0)
    )
