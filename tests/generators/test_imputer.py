"""TabFlowImputer: scikit-learn's checks, and means over draws."""

from inspect import signature

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from combutab import TVAE, TabFlow, TabFlowImputer

TINY = TVAE(epochs=1, embedding_dim=4, compress_dims=(8,), decompress_dims=(8,), random_state=0)


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


def test_the_generator_is_tabflow_if_none_is_given(monkeypatch):
    names = [n for n, p in signature(TabFlow).parameters.items() if p.kind != p.KEYWORD_ONLY]
    defaults = dict(zip(names, TabFlow.__init__.__defaults__, strict=True))
    small = {**defaults, "epochs": 2, "batch_size": 60}
    monkeypatch.setattr(TabFlow.__init__, "__defaults__", tuple(small.values()))
    holes = punch(make_table())
    filled = TabFlowImputer(random_state=3).fit_transform(holes)
    given = TabFlow(random_state=3)
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


def test_set_output_decides_the_container():
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


def test_other_column_order_is_refused():
    table = make_table()
    imputer = TabFlowImputer(TINY).fit(table)
    with pytest.raises(ValueError, match="feature names should match"):
        imputer.transform(table[table.columns[::-1]])
    with pytest.raises(ValueError, match="generator"):
        TabFlowImputer("tvae").fit(table)


# ---- The best guess: probabilities as those of draws, and what is linear -------------------------


N = 300
RNG = np.random.default_rng(0)
X = RNG.normal(size=N)
TABLE = pd.DataFrame(
    {
        "x": X,
        "double": 2 * X + 5 + RNG.normal(0, 0.01, N),
        "whole": pd.array(RNG.integers(0, 30, N), dtype="Int64"),
        "kind": np.where(X > 0, "up", RNG.choice(["down", "side"], N, p=[0.8, 0.2])),
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 60, N), "D"),
        "same": "k",
    }
)
HOLES = TABLE.mask(RNG.random(TABLE.shape) < 0.2).assign(same="k")


def quick(**params):
    return TabFlow(hidden_layer_sizes=(32,), random_state=0, **{"epochs": 10, **params})


@pytest.fixture(scope="module")
def guesser():
    return TabFlowImputer(quick(), random_state=0).fit(HOLES)


def test_all_cells_are_filled_and_known_ones_stay(guesser):
    state = torch.get_rng_state()
    filled = guesser.transform(HOLES)
    assert not filled.isna().any(axis=None)
    for name in HOLES:
        there = HOLES[name].notna()
        pd.testing.assert_series_equal(filled[name][there], HOLES[name][there])
    assert filled.dtypes.to_dict() == HOLES.dtypes.to_dict()
    assert (filled["day"] == filled["day"].dt.normalize()).all()
    pd.testing.assert_frame_equal(filled, guesser.transform(HOLES))
    again = TabFlowImputer(quick(), random_state=0).fit_transform(HOLES)
    pd.testing.assert_frame_equal(filled, again)
    pd.testing.assert_frame_equal(guesser.transform(TABLE[:9]), TABLE[:9])
    assert torch.equal(torch.get_rng_state(), state)


def test_linear_dependence_is_imputed_without_training():
    filled = TabFlowImputer(quick(epochs=1), random_state=0).fit_transform(HOLES)
    lost = HOLES["double"].isna() & HOLES["x"].notna()
    assert np.sqrt(((filled["double"] - TABLE["double"])[lost] ** 2).mean()) < 0.1


def test_imputed_category_is_the_most_probable(guesser):
    alone = HOLES.isna().sum(axis=1) == 1  # else the others are drawn first
    row = HOLES[alone & HOLES["kind"].isna() & (HOLES["x"] < -0.2)].iloc[[0]]
    model = guesser.generator_
    (span,) = (
        i
        for i, each in enumerate(model.encoder_.layout_.spans)
        if model.encoder_.schema_.keys[each.column] == "kind"
    )
    many = row.loc[row.index.repeat(4000)]
    drawn = model.impute(many, random_state=1)["kind"].value_counts(normalize=True)
    filled = guesser.transform(row)["kind"].iloc[0]
    assert filled == drawn.index[0]
    encoded = model.encoder_.encode(HOLES.loc[row.index])
    codes = encoded.codes.astype(np.int64)
    codes[0, span] = -1
    ((rows, i, shares),) = model._code_probabilities(codes, [span])
    assert (rows, i) == (slice(0, 1), span)
    assert shares.sum() == pytest.approx(1)
    values = model.encoder_.columns_[list(HOLES).index("kind")]
    assert values.missing
    assert shares[0, len(values.values) - 1] == 0, "no missing cell is filled by a missing one"
    expected = [drawn.get(key, 0.0) for key in values.keys]
    np.testing.assert_allclose(shares[0, : len(expected)], expected, atol=0.04)


def test_members_are_averaged():
    model = quick(n_members=3, epochs=2).fit(HOLES)
    codes = np.full((5, len(model.encoder_.layout_.spans)), -1)
    found = {i: shares for _, i, shares in model._code_probabilities(codes)}
    assert sorted(found) == list(range(codes.shape[1]))
    alone = []
    for k in range(3):
        one = quick(epochs=2).fit(HOLES)
        one._states = [model._states[k]]
        alone.append({i: shares for _, i, shares in one._code_probabilities(codes)})
    for i, shares in found.items():
        np.testing.assert_allclose(shares, np.mean([each[i] for each in alone], axis=0), rtol=1e-4)


def test_odd_tables():
    few = pd.DataFrame({"x": X, "rare": np.where(np.arange(N) < 8, X, np.nan), "none": np.nan})
    few.loc[:20, "x"] = np.nan
    with pytest.warns(UserWarning, match="'none'"):
        filled = TabFlowImputer(quick(epochs=2), random_state=0).fit_transform(few)
    assert filled[["x", "rare"]].notna().all(axis=None)
    assert filled["none"].isna().all()
    kinds = TABLE[["kind", "same"]].mask(RNG.random((N, 2)) < 0.3)
    kinds.loc[:2, "kind"] = ["p", "q", "r"]  # rarer than min_frequency
    filled = TabFlowImputer(quick(epochs=2), random_state=0).fit_transform(kinds)
    assert set(filled["kind"][3:]) <= {"up", "down", "side"}
    assert filled["kind"][:3].tolist() == ["p", "q", "r"]
    constant = pd.DataFrame({"a": ["u"] * 20, "b": [3.0] * 20})
    filled = TabFlowImputer(quick(epochs=1)).fit(constant).transform(constant.mask(constant == 3))
    assert filled["b"].tolist() == [3.0] * 20


def test_of_many_columns_the_nearest_are_taken(monkeypatch):
    monkeypatch.setattr("combutab.generators._imputer._MOST_COLUMNS", 1)
    wide = TABLE[["x", "double"]].assign(**{f"n{i}": RNG.normal(size=N) for i in range(4)})
    holes = wide.mask(RNG.random(wide.shape) < 0.2)
    filled = TabFlowImputer(quick(epochs=1), random_state=0).fit_transform(holes)
    lost = holes["double"].isna() & holes["x"].notna()
    assert np.sqrt(((filled["double"] - wide["double"])[lost] ** 2).mean()) < 0.1


def test_of_other_generators_draws_are_averaged():
    tiny = TVAE(epochs=1, compress_dims=(8,), decompress_dims=(8,), random_state=0)
    none, twenty = (
        TabFlowImputer(tiny, n_draws=n, random_state=0).fit_transform(HOLES[:80])
        for n in (None, 20)
    )
    pd.testing.assert_frame_equal(none, twenty)


def test_best_predictions_are_not_clipped_to_one_row():
    rng = np.random.default_rng(0)
    x = rng.normal(50_000, 3000, 200).round() + 0.5
    x[7] = x.max() + 321.987
    X = pd.DataFrame({"x": x, "z": x / 1000 + rng.normal(0, 0.01, 200)})
    X.loc[20, ["x", "z"]] = np.nan, x.max() / 1000 + 0.9
    model = TabFlow(epochs=1, hidden_layer_sizes=(8,), random_state=0)
    imputer = TabFlowImputer(model, random_state=0).fit(X)
    filled = imputer.transform(X)["x"][20]
    assert filled > x.max() + 1  # clipped to a bound that lies further out
    assert filled <= imputer.generator_.encoder_.columns_[0].bounds[1]
