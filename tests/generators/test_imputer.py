"""TabFlowImputer: scikit-learn's checks, and means over draws."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from combutab import TVAE, TabFlowImputer

TINY = TVAE(epochs=1, embedding_dim=4, compress_dims=(8,), decompress_dims=(8,), random_state=0)


@pytest.mark.parametrize(
    ("imputer", "check"),
    [
        pytest.param(imputer, check, id=getattr(check, "func", check).__name__)
        for imputer, check in estimator_checks_generator(TabFlowImputer(TINY, n_draws=2))
    ],
)
def test_checks(imputer, check):
    check(imputer)


def make_table(n=120):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "whole": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "kind": rng.choice(["a", "b", "c"], n),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 60, n), "D"),
        }
    )


def punch(table, seed=1):
    return table.mask(np.random.default_rng(seed).random(table.shape) < 0.3)


def test_cells_stay_and_the_same_ones_are_filled_each_time():
    holes = punch(make_table())
    imputer = TabFlowImputer(TINY, random_state=0).fit(holes)
    filled = imputer.transform(holes)
    assert not filled.isna().any(axis=None)
    for name in holes:
        there = holes[name].notna()
        pd.testing.assert_series_equal(filled[name][there], holes[name][there])
    pd.testing.assert_frame_equal(filled, imputer.transform(holes))
    pd.testing.assert_frame_equal(filled, clone(imputer).fit_transform(holes))
    assert not filled.equals(clone(imputer).set_params(random_state=1).fit_transform(holes))
    assert imputer.generator is TINY
    assert not hasattr(TINY, "encoder_")


def test_the_generator_is_tabflow_if_none_is_given(monkeypatch):
    unseeded = clone(TINY).set_params(random_state=None)
    monkeypatch.setattr("combutab.generators._imputer.TabFlow", lambda: clone(unseeded))
    holes = punch(make_table())
    filled = TabFlowImputer(random_state=3).fit_transform(holes)
    given = clone(TINY).set_params(random_state=3)
    pd.testing.assert_frame_equal(
        filled, TabFlowImputer(given, random_state=3).fit_transform(holes)
    )


def test_a_generator_without_a_seed_takes_the_imputers():
    unseeded = clone(TINY).set_params(random_state=None)
    holes = punch(make_table())
    first, second = (TabFlowImputer(unseeded, random_state=5).fit_transform(holes) for _ in "ab")
    pd.testing.assert_frame_equal(first, second)
    assert unseeded.random_state is None


def test_draws_are_averaged():
    """A generator's own draws, whose means and most frequent values are worked out here."""
    drawn = []

    class Recorder(TVAE):
        def _draw_missing(self, *args):
            values, codes = super()._draw_missing(*args)
            drawn.append(self.encoder_.decode(values, codes))
            return values, codes

    holes = punch(make_table())
    holes.loc[0] = [0.25, 3, "a", None]
    imputer = TabFlowImputer(Recorder(**TINY.get_params()), n_draws=5, random_state=0).fit(holes)
    filled = imputer.transform(holes)
    assert len(drawn) == 5
    rows = np.flatnonzero(holes.isna().any(axis=1))
    lost = {name: holes[name].isna().to_numpy()[rows] for name in holes}
    means = np.mean([each["x"] for each in drawn], axis=0)
    np.testing.assert_allclose(filled["x"][rows][lost["x"]], means[lost["x"]])
    rounded = np.rint(np.mean([each["whole"].astype(float) for each in drawn], axis=0))
    np.testing.assert_allclose(
        filled["whole"][rows][lost["whole"]].astype(float), rounded[lost["whole"]]
    )
    for at in np.flatnonzero(lost["kind"]):
        counts = pd.Series([each["kind"][at] for each in drawn]).value_counts()
        assert counts[filled["kind"][rows[at]]] == counts.max()
    days = np.mean([each["day"].astype("int64") for each in drawn], axis=0)
    off = filled["day"][rows].astype("int64").to_numpy() - days
    assert (np.abs(off[lost["day"]]) <= 12 * 3600 * 1e9).all()
    assert (filled["day"] == filled["day"].dt.normalize()).all()


def test_means_of_whole_floats_are_not_rounded():
    holes = punch(make_table())[["x", "whole"]].astype(float)
    filled = TabFlowImputer(TINY, n_draws=4, random_state=0).fit_transform(holes)
    assert (filled["whole"] % 1 > 0).any()
    array = TabFlowImputer(TINY, n_draws=4, random_state=0).fit_transform(holes.to_numpy())
    assert (array[:, 1] % 1 > 0).any()


def test_the_output_is_of_the_kind_that_is_asked_for():
    holes = punch(make_table())
    imputer = TabFlowImputer(TINY, random_state=0).fit(holes)
    assert imputer.get_feature_names_out().tolist() == list(holes)
    expected = imputer.transform(holes)
    pl = pytest.importorskip("polars")
    framed = imputer.set_output(transform="polars").transform(holes)
    assert isinstance(framed, pl.DataFrame)
    assert framed["x"].to_list() == expected["x"].to_list()
    array = holes[["x"]].to_numpy()
    named = TabFlowImputer(TINY).set_output(transform="pandas").fit(array).transform(array)
    assert list(named) == ["x0"]


def test_rows_as_lists_keep_numbers_beside_text():
    rows = [["a", 1.5], ["b", 2.5]] * 20
    imputer = TabFlowImputer(TINY, random_state=0).fit(rows)
    filled = imputer.transform([*rows, ["a", None], [None, 2.5]])
    assert filled[:-2].tolist() == rows
    assert isinstance(filled[-2][1], float)
    assert filled[-1][0] in {"a", "b"}


def test_in_a_pipeline():
    holes = punch(make_table())[["x", "whole"]].astype(float)
    pipe = make_pipeline(TabFlowImputer(TINY, random_state=0), HistGradientBoostingRegressor())
    assert pipe.fit(holes, np.arange(len(holes))).predict(holes).shape == (len(holes),)


def test_the_columns_are_those_of_fit_in_their_order():
    table = make_table()
    imputer = TabFlowImputer(TINY).fit(table)
    with pytest.raises(ValueError, match="feature names should match"):
        imputer.transform(table[table.columns[::-1]])
    with pytest.raises(ValueError, match="generator"):
        TabFlowImputer("tvae").fit(table)
