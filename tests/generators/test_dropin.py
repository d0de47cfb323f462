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
ARRAY = np.column_stack([RNG.normal(size=200), RNG.integers(0, 3, 200)])
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


@PACKAGES
@pytest.mark.filterwarnings("ignore:The data contains 1 new categories")  # ctgan's, of rdt
def test_a_condition_by_position_and_by_name(package):
    model = make(package, "CTGAN", epochs=40, generator_lr=2e-3)
    model.fit(TABLE, ["kind", "flag"])
    # the package's is right for the first discrete column alone
    for rows in (
        model.sample(400, "kind", "c"),
        model.sample(400, condition_column="kind", condition_value="c"),
    ):
        assert len(rows) == 400
        assert (rows["kind"] == "c").mean() > 0.15  # in the table one in ten
    with pytest.raises(ValueError, match="kind"):
        model.sample(5, "kind", "z")
    with pytest.raises(ValueError, match="sort"):
        model.sample(5, "sort", "c")


@PACKAGES
@NAMES
def test_arrays_in_give_arrays_out(package, name):
    model = make(package, name)
    model.fit(ARRAY, [1])
    rows = model.sample(40)
    assert isinstance(rows, np.ndarray)
    assert rows.shape == (40, 2)
    assert set(rows[:, 1]) <= {0.0, 1.0, 2.0}


@PACKAGES
@NAMES
def test_tuples_of_discrete_columns_and_none(package, name):
    model = make(package, name)
    model.fit(TABLE, ("kind", "flag"))
    assert len(model.sample(7)) == 7
    model.fit(TABLE[["kind", "flag"]], discrete_columns=["kind", "flag"])
    assert len(model.sample(7)) == 7
    model.fit(TABLE[["amount"]])
    assert model.sample(7)["amount"].between(-9, 9).all()


@PACKAGES
def test_losses_of_ctgan(package):
    model = make(package, "CTGAN", epochs=3)
    model.fit(TABLE, ["kind", "flag"])
    losses = model.loss_values
    assert losses.columns.tolist() == ["Epoch", "Generator Loss", "Discriminator Loss"]
    assert len(losses) == 3
    assert losses["Epoch"].tolist() == [0, 1, 2]
    assert np.isfinite(losses.to_numpy(dtype=float)).all()


@PACKAGES
def test_losses_of_tvae(package):
    model = make(package, "TVAE", epochs=3)
    model.fit(TABLE, ["kind", "flag"])
    losses = model.loss_values.groupby("Epoch")["Loss"].mean()
    assert len(losses) == 3
    assert np.isfinite(losses.to_numpy(dtype=float)).all()


@PACKAGES
@pytest.mark.parametrize(
    ("table", "discrete", "error"),
    [
        (TABLE, ["sort"], ValueError),
        (ARRAY, [2], ValueError),
        ("table.csv", [], TypeError),
        (TABLE.assign(amount=np.inf), ["kind", "flag"], ValueError),
    ],
    ids=["unknown column", "unknown position", "no table", "infinite values"],
)
def test_mistakes_have_the_same_errors(package, table, discrete, error):
    with pytest.raises(error):
        make(package, "CTGAN").fit(table, discrete)


@pytest.mark.parametrize("name", ["CTGAN", "TVAE"])
def test_parameters_have_the_package_s_names_order_and_defaults(name):
    ours = inspect.signature(getattr(combutab, name)).parameters
    theirs = inspect.signature(getattr(ctgan, name)).parameters
    expected = [(p, q.default) for p, q in theirs.items() if p != "cuda"]  # deprecated there
    assert [(p, q.default) for p, q in ours.items() if q.kind is not q.KEYWORD_ONLY] == expected


@pytest.mark.parametrize("package", [ctgan, combutab], ids=["ctgan", "combutab"])
def test_a_random_state_set_before_fit_is_the_fits(package):
    rows = []
    for _ in range(2):
        model = make(package, "CTGAN")
        model.set_random_state(5)
        model.fit(TABLE, ["kind", "flag"])
        rows.append(model.sample(30))
    pd.testing.assert_frame_equal(*rows)
