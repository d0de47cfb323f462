"""Columns of so many categories that no memory holds their networks: refused beforehand."""

import numpy as np
import pandas as pd
import pytest

from combutab.generators import CTGAN, TVAE

QUICK = {
    CTGAN: {"generator_dim": (16,), "discriminator_dim": (16,), "pac": 5},
    TVAE: {"compress_dims": (16,), "decompress_dims": (16,)},
}
BOTH = pytest.mark.parametrize("cls", [CTGAN, TVAE])


def make(cls, **params):
    defaults = {"epochs": 1, "batch_size": 50, "embedding_dim": 8, "random_state": 0}
    return cls(**{**defaults, **QUICK[cls], **params})


@BOTH
def test_networks_that_no_memory_holds_are_refused(cls, monkeypatch):
    table = pd.DataFrame({"id": [f"u{i}" for i in range(3000)], "x": np.arange(3000.0)})
    monkeypatch.setattr("combutab.generators._contract.memory_of", lambda device: 2**20)
    model = make(cls, min_frequency=1, identifiers=None)
    with (
        pytest.warns(UserWarning, match="most values of 'id' are there once"),
        pytest.raises(ValueError, match=r"column 'id' has 3,000 categories: .* GiB .* leave the"),
    ):
        model.fit(table)
    assert not hasattr(model, "encoder_")
    monkeypatch.setattr("combutab.generators._contract.memory_of", lambda device: None)
    with pytest.warns(UserWarning, match="are there once"):
        model.fit(table[:100])  # the system does not tell


@BOTH
def test_most_weights_of_many_categories_are_counted(cls, monkeypatch):
    table = pd.DataFrame({"id": [f"u{i}" for i in range(3000)]})
    counted = []
    count = cls._n_weights
    monkeypatch.setattr(
        cls, "_n_weights", lambda *given: counted.append(count(*given)) or counted[-1]
    )
    model = make(cls, batch_size=1500, min_frequency=1, identifiers=None)
    with pytest.warns(UserWarning, match="are there once"):
        model.fit(table)
    kept = sum(array.size for array in model._states[0].values())
    other = 16 * (5 * 6000 if cls is CTGAN else 3000)  # of the critic, or of the encoder
    assert 0.95 * (kept + other) < counted[0] <= kept + other
