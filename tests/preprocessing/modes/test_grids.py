"""How finely numbers are written: learned, kept through a file, and of made rows alone."""

import json

import numpy as np
import pandas as pd
import pytest

from combutab import CTGAN, TVAE, TabFlow
from combutab.preprocessing import ModeEncoder
from combutab.preprocessing._values import pack_value
from combutab.preprocessing.modes._numbers import RoundingSteps, find_rounding_steps

RNG = np.random.default_rng(0)
N = 600
HALVES = np.round(RNG.gamma(3.0, 20.0, N)) + 0.5 * (RNG.random(N) < 0.05)


def thirds():
    """Of one decimal, but for a few that are thirds."""
    x = np.round(RNG.normal(10.0, 1.0, N), 1)
    return np.where(RNG.random(N) < 0.04, np.round(3 * x) / 3, x)


@pytest.mark.parametrize(
    ("x", "decimals", "steps"),
    [
        (HALVES, 1, (5, 10)),
        (100.0 * np.round(RNG.gamma(3.0, 20.0, N)), 0, (100,)),
        (np.r_[1000.0 * RNG.integers(1, 99, 300), RNG.integers(1, 99_000, 300)], 0, (1, 1000)),
        (np.round(RNG.normal(3.2, 0.15, N), 2), 2, None),
        (RNG.integers(0, 1000, N).astype(float), 0, None),
        (RNG.normal(size=N), None, None),
        (np.full(10, 5.0), 0, None),
        (2.0**60 + 4096.0 * np.arange(N), 0, None),
        (np.zeros(N), None, None),
    ],
)
def test_which_grids_are_seen(x, decimals, steps):
    rounding_steps = find_rounding_steps(x, decimals)
    if steps is None:
        assert rounding_steps is None
    else:
        assert set(steps) <= set(rounding_steps.steps)
        assert rounding_steps.steps[0] == steps[0]
        assert rounding_steps.steps[-1] == steps[-1]
        assert list(rounding_steps.shares) == sorted(rounding_steps.shares, reverse=True)


def test_no_finer_grid_than_enough_numbers_need():
    x = np.r_[np.arange(1.0, 100.0), 0.5, 2.5, 6.5]
    assert find_rounding_steps(x, 1, 3).steps == (5, 10)
    few = find_rounding_steps(x, 1, 5)
    assert (few.steps, few.shares) == ((10,), (1.0,))
    made = few.put(np.array([3.3]), np.array([0.999]), np.zeros(1), np.full(1, 9.0))
    assert made.tolist() == [3.0]


def test_the_shares_come_out_and_no_number_leaves_its_bounds():
    rounding_steps = RoundingSteps(1, (1, 10, 50), (1.0, 0.7, 0.2))
    n = 20_000
    x, low = RNG.random(n) * 90, np.repeat([0.0, 2.26], n // 2)
    x, high = np.where(low > 0, 2.3, x), np.where(low > 0, 2.35, 100.0)
    put = rounding_steps.put(x, RNG.random(n), low, high)
    assert (put >= low).all()
    assert (put <= high).all()
    assert np.allclose(put[n // 2 :], 2.3), "the finer grid where the coarser has no place"
    put = np.round(10 * put[: n // 2]).astype(int)
    assert np.mean(put % 10 == 0) == pytest.approx(0.7 + 0.3 / 10, abs=0.02)
    assert np.mean(put % 50 == 0) == pytest.approx(0.2 + 0.5 / 5 + 0.3 / 50, abs=0.02)


@pytest.mark.parametrize("strategy", ["quantile", "mixture"])
def test_encoded_rows_come_back_as_they_were(strategy):
    X = pd.DataFrame({"halves": HALVES, "thirds": thirds(), "pennies": HALVES + 0.99})
    encoder = ModeEncoder(random_state=0).fit(X)
    if strategy == "quantile":
        encoder = ModeEncoder(strategy=strategy, n_modes=16, random_state=0).fit(X)
    assert encoder.columns_[1].format.decimals is None
    table = encoder.encode(X)
    back = encoder.decode(table.values, table.codes)
    np.testing.assert_allclose(back, X, rtol=1e-6)
    ones = np.isclose(10 * X["thirds"], np.round(10 * X["thirds"]), atol=1e-12)
    assert ones.mean() > 0.9
    assert back["thirds"][ones].tolist() == X["thirds"][ones].tolist(), "to the last digit"


MADE = {
    "TabFlow": lambda: TabFlow(hidden_layer_sizes=(16,), n_bins=8, epochs=3, random_state=0),
    "TVAE": lambda: TVAE(epochs=2, random_state=0),
    "CTGAN": lambda: CTGAN(epochs=1, batch_size=100, random_state=0),
}


@pytest.mark.parametrize("kind", MADE)
def test_made_numbers_are_written_as_real_ones(kind, tmp_path):
    X = pd.DataFrame(
        {
            "halves": HALVES,
            "thirds": thirds(),
            "thousands": (1000 * np.round(RNG.gamma(3.0, 20.0, N))).astype("int64"),
            "any": RNG.normal(size=N),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), "D"),
        }
    )
    model = MADE[kind]().fit(X)
    rows = model.sample(1000, random_state=1)
    assert (rows["halves"] % 1 == 0).mean() == pytest.approx(0.95, abs=0.04)
    assert (rows["halves"] % 0.5 == 0).all()
    assert (rows["thirds"].round(1) == rows["thirds"]).mean() == pytest.approx(0.96, abs=0.04)
    assert (rows["thousands"] % 1000 == 0).all()
    assert (rows["any"].round(3) != rows["any"]).mean() > 0.9
    assert (rows["day"].dt.normalize() == rows["day"]).all()
    pd.testing.assert_frame_equal(rows, model.sample(1000, random_state=1))
    # what few rows have, or none, can be asked for
    asked = model.sample(5, conditions={"halves": 30.5}, random_state=0)
    assert (asked["halves"] == 30.5).all()
    between = model.sample(5, conditions={"halves": (30.6, 30.9)}, random_state=0)
    assert between["halves"].between(30.6, 30.9).all()
    ends = {"thousands": (10_400, 60_700), "halves": (30.25, None)}
    within = model.sample(200, conditions=ends, random_state=0)
    assert within["thousands"].between(11_000, 60_000).all()
    assert (within["thousands"] % 1000 == 0).all()
    assert (within["halves"] % 0.5 == 0).all()
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model")
    pd.testing.assert_frame_equal(rows, again.sample(1000, random_state=1))


def test_given_cells_stay():
    X = pd.DataFrame({"halves": HALVES, "thirds": thirds(), "other": RNG.normal(size=N)})
    model = MADE["TabFlow"]().fit(X)
    seeds = X[["thirds"]].iloc[:50]
    rows = model.sample(seed_data=seeds, random_state=0)
    pd.testing.assert_series_equal(rows["thirds"], seeds["thirds"])
    holes = X.mask(RNG.random(X.shape) < 0.3)
    filled = model.impute(holes, random_state=0)
    assert filled[holes.notna()].equals(X[holes.notna()])
    assert (filled["halves"] % 1 == 0).mean() > 0.9


@pytest.mark.parametrize(
    "change",
    [
        {"steps": (10, 5)},
        {"steps": (5.0, 10.0)},
        {"steps": (0, 10)},
        {"shares": (1.0,)},
        {"shares": (1.0, 2.0)},
        {"decimals": 400},
    ],
)
def test_state_that_is_no_grid_is_refused(change):
    encoder = ModeEncoder().fit(pd.DataFrame({"x": HALVES}))
    arrays, meta = encoder.to_state()
    meta = json.loads(json.dumps(meta))
    again = ModeEncoder.from_state(arrays, meta)
    assert again.columns_[0].rounding_steps == encoder.columns_[0].rounding_steps
    assert again.columns_[0].rounding_steps is not None
    meta["columns"][0]["rounding_steps"] |= {
        name: pack_value(value) for name, value in change.items()
    }
    with pytest.raises(ValueError, match="rounding steps of the encoder's columns"):
        ModeEncoder.from_state(arrays, meta)
