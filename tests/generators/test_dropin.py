"""CTGAN and TVAE in the place of the ctgan package's: what is written for one runs on the other."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest

import combutab

ctgan = pytest.importorskip("ctgan", reason="needs the extra sdv")

PACKAGES = pytest.mark.parametrize("package", [ctgan, combutab], ids=["ctgan", "combutab"])
NAMES = pytest.mark.parametrize("name", ["CTGAN", "TVAE"])
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "amount": RNG.normal(size=200),
        "kind": RNG.choice(["a", "b", "c"], 200, p=[0.7, 0.2, 0.1]),
        "flag": RNG.choice(["no", "yes"], 200),
    }
)
TINY = {
    "CTGAN": {"generator_dim": (16,), "discriminator_dim": (16,), "pac": 5},
    "TVAE": {"compress_dims": (16,), "decompress_dims": (16,)},
}


def make(package, name, **params):
    defaults = {"epochs": 2, "batch_size": 50, "embedding_dim": 8, "enable_gpu": False}
    return getattr(package, name)(**{**defaults, **TINY[name], **params})


@PACKAGES
@NAMES
def test_the_package_s_script(package, name, tmp_path):
    model = make(package, name, verbose=False)
    model.fit(TABLE, ["kind", "flag"])
    model.set_random_state(3)
    rows = model.sample(120)
    assert rows.columns.tolist() == TABLE.columns.tolist()
    assert (rows.dtypes == TABLE.dtypes).all()
    assert len(rows) == 120
    assert set(rows["kind"]) <= {"a", "b", "c"}
    model.set_random_state(3)
    pd.testing.assert_frame_equal(model.sample(120), rows)

    model.save(str(tmp_path / "model"))
    again = getattr(package, name).load(str(tmp_path / "model"))
    again.set_random_state(3)
    pd.testing.assert_frame_equal(again.sample(120), rows)


@pytest.mark.parametrize("name", ["CTGAN", "TVAE"])
def test_signature_is_that_of_ctgan_package(name):
    ours = inspect.signature(getattr(combutab, name)).parameters
    theirs = inspect.signature(getattr(ctgan, name)).parameters
    expected = [(p, q.default) for p, q in theirs.items() if p != "cuda"]  # deprecated there
    assert [(p, q.default) for p, q in ours.items() if q.kind is not q.KEYWORD_ONLY] == expected
