"""Coordinates: sampled points lie where those of the table do."""

import numpy as np
import pandas as pd
import pytest

import combutab
from combutab import PrivateSynthesizer, TabFlow
from combutab.generators import Coordinates, read_constraints, write_constraints

N = 1200
SMALL = {"epochs": 10, "hidden_layer_sizes": (64, 64), "random_state": 0}
PLACE = Coordinates("lat", "lon")


def islands(n=N, seed=0):
    """Points on a ring, which has a sea inside and outside."""
    rng = np.random.default_rng(seed)
    angle, radius = rng.uniform(0, 2 * np.pi, n), np.sqrt(rng.uniform(0.7**2, 1, n))
    table = pd.DataFrame({"lat": np.sin(angle) * radius, "lon": np.cos(angle) * radius})
    return table.round(4).assign(price=(100 + 30 * table["lon"] + rng.normal(0, 8, n)).round(1))


def at_sea(table):
    radius = np.hypot(table["lat"], table["lon"])
    return float(((radius < 0.7) | (radius > 1)).mean())


@pytest.fixture(scope="module")
def model():
    return TabFlow(constraints=[PLACE], **SMALL).fit(islands())


def test_points_lie_where_those_of_the_table_do(model):
    plain = TabFlow(**SMALL).fit(islands()).sample(N, random_state=0)
    rows = model.sample(N, random_state=0)
    assert at_sea(plain) > 0.12
    assert at_sea(rows) < 0.4 * at_sea(plain)
    assert rows["lon"].corr(rows["price"]) > 0.6
    # all directions have points
    sectors = np.floor(np.arctan2(rows["lat"], rows["lon"]) / np.pi * 6)
    assert sectors.value_counts(normalize=True).min() > 0.03


def test_points_of_the_table_are_not_repeated(model):
    rows = model.sample(N, random_state=0).merge(islands(), on=["lat", "lon"])
    assert len(rows) < 0.01 * N


def test_save_and_load_keep_the_places(model, tmp_path):
    model.save(tmp_path / "islands")
    again = combutab.load(tmp_path / "islands")
    expected = model.sample(100, random_state=1)
    pd.testing.assert_frame_equal(again.sample(100, random_state=1), expected)


def test_conditions_on_a_coordinate(model):
    rows = model.sample(100, conditions={"lat": (0.0, 0.4)}, random_state=0)
    assert rows["lat"].between(0, 0.4).all()
    assert at_sea(rows) < 0.07


def test_given_coordinates_are_not_restricted(model):
    points = pd.DataFrame({"lat": [0.0, 0.8], "lon": [0.0, 0.0]})
    rows = model.sample_from(points, random_state=0)
    assert rows[["lat", "lon"]].to_numpy().tolist() == points.to_numpy().tolist()
    holes = islands(50, seed=1)
    holes.loc[::2, "price"] = None
    assert model.impute(holes, random_state=0)["price"].notna().all()


def test_missing_coordinates_are_kept():
    table = islands()
    table.loc[::5, ["lat", "lon"]] = np.nan
    model = TabFlow(constraints=[PLACE], **SMALL).fit(table)
    rows = model.sample(300, random_state=0)
    assert 0.05 < rows["lat"].isna().mean() < 0.4
    assert at_sea(rows.dropna()) < 0.1


def test_parquet_files_have_the_same_places(tmp_path):
    islands(300).to_parquet(tmp_path / "islands.parquet")
    models = [TabFlow(epochs=1, constraints=[PLACE], random_state=0) for _ in range(2)]
    models[0].fit(islands(300))
    models[1].fit_parquet(tmp_path / "islands.parquet")
    first, second = (each.sample(50, random_state=0) for each in models)
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.parametrize("value", [0.5, [0.5, 0.25]])
def test_points_on_a_line_or_all_the_same(value):
    table = islands(100).assign(lat=0.5, lon=np.resize(value, 100))
    rows = TabFlow(epochs=1, constraints=[PLACE], random_state=0).fit(table).sample(20)
    assert set(rows["lat"]) == {0.5}


@pytest.mark.parametrize(
    ("columns", "says"),
    [(["lat"], "Coordinates"), (["lat", "lon", "price"], "two columns"), (["lat", "lot"], "'lot'")],
)
def test_other_columns_are_refused(columns, says):
    with pytest.raises(ValueError, match=says):
        TabFlow(epochs=1, constraints=[Coordinates(*columns)]).fit(islands(100))


def test_columns_of_text_are_refused():
    table = islands(100).assign(lon=np.resize(["east", "west"], 100))
    with pytest.raises(ValueError, match="'lon'"):
        TabFlow(epochs=1, constraints=[PLACE]).fit(table)


def test_places_are_not_private():
    with pytest.raises(ValueError, match="Coordinates"):
        PrivateSynthesizer(1.0, constraints=[PLACE]).fit(islands(100))


def test_coordinates_in_a_file(tmp_path):
    write_constraints([PLACE], tmp_path / "rules.json")
    assert read_constraints(tmp_path / "rules.json") == [PLACE]
