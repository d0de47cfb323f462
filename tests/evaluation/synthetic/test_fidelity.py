"""Fidelity of whole tables: of known quality, in any form, hostile ones, and the scorer."""

import itertools
import sys

import numpy as np
import pandas as pd
import pytest

from combutab.evaluation import FidelityScorer, fidelity
from tests.evaluation.synthetic.known_tables import law, noise, shuffled, value


@pytest.fixture(scope="module")
def known():
    """Synthetic tables whose quality is known."""
    real = law(2000)
    return fidelity(
        real=real,
        synthetic={
            "copy": real,
            "fresh": law(2000, seed=9),
            "shuffled": shuffled(real),
            "noise": noise(2000),
        },
    )


def means(table, aspect):
    rows = table[(table["aspect"] == aspect) & table["greater_is_better"]]
    return rows.groupby("source")["mean"].mean()


def test_every_aspect_is_there_and_every_score_between_0_and_1(known):
    assert known["aspect"].unique().tolist() == [
        "shape",
        "pairs",
        "coverage",
        "missing",
        "support",
    ]
    assert set(known.loc[~known["greater_is_better"], "measure"]) == {"wasserstein"}
    assert known.loc[known["greater_is_better"], "mean"].between(0, 1).all()
    assert (known.loc[~known["greater_is_better"], "mean"] >= 0).all()
    assert (known["note"] == "").all()
    assert not known.duplicated(["measure", "column", "other_column", "source"]).any()


def test_a_copy_is_perfect(known):
    copy = known[known["source"] == "copy"]
    best = np.where(copy["greater_is_better"], 1.0, 0.0)
    np.testing.assert_allclose(copy["mean"], best, atol=1e-9)


@pytest.mark.parametrize("aspect", ["shape", "pairs", "coverage", "missing", "support"])
def test_noise_is_worse_than_rows_of_the_same_distribution_and_those_than_a_copy(known, aspect):
    found = means(known, aspect)
    assert found["noise"] < found["fresh"] - 0.05
    assert found["fresh"] > 0.94
    assert found["fresh"] <= found["copy"]
    assert found["noise"] < 0.9


def test_shuffled_columns_keep_their_shapes_and_lose_what_joins_them(known):
    of = known[known["source"] == "shuffled"]
    for aspect in ("shape", "coverage"):
        rows = of[of["aspect"] == aspect]
        np.testing.assert_allclose(rows["mean"], rows["greater_is_better"], atol=1e-9)
    fresh, lost = (
        [
            value(known, "correlation", "x", "y", source=source),
            value(known, "contingency", "c", "d", source=source),
            value(known, "alpha_precision", source=source),
            value(known, "beta_recall", source=source),
        ]
        for source in ("fresh", "shuffled")
    )
    assert (np.array(lost) < np.array(fresh) - 0.05).all()
    assert lost[0] < 0.6  # the correlation is 0.96, and none is left: 1 - 0.96 / 2


# ---- several tables ----------------------------------------------------------------------------


def test_several_samples_are_averaged():
    real, samples = law(300), [law(200, seed) for seed in (1, 2, 3)]
    alone = [fidelity(real=real, synthetic=sample) for sample in samples]
    together = fidelity(real=real, synthetic={"model": samples, "copy": real})
    assert set(together["source"]) == {"model", "copy"}
    of_model = together[together["source"] == "model"].reset_index(drop=True)
    values = np.array([table["mean"] for table in alone])
    np.testing.assert_allclose(of_model["mean"], values.mean(axis=0))
    np.testing.assert_allclose(of_model["sd"], values.std(axis=0, ddof=1))
    assert (of_model["n_tables"] == 3).all()
    assert together.loc[together["source"] == "copy", "sd"].isna().all()


def test_the_same_table_in_other_forms():
    pl = pytest.importorskip("polars")
    real, made = law(200), law(200, 1)
    expected = fidelity(real=real, synthetic=made)
    forms = {
        "order and dtypes": made[["t", "c", "x", "y", "d"]].astype(
            {"c": "category", "d": "string", "x": "Float64", "t": str}
        ),
        "polars": pl.DataFrame(
            {
                name: pl.Series(name, [None if pd.isna(v) else v for v in column])
                for name, column in made.items()
            }
        ),
    }
    for form in forms.values():
        pd.testing.assert_frame_equal(fidelity(real=real, synthetic=form), expected)


def test_columns_of_arrays_are_positions():
    rng = np.random.default_rng(0)
    table = fidelity(real=rng.normal(size=(50, 2)), synthetic=rng.normal(size=(60, 2)))
    pairs = table.loc[table["measure"] == "correlation", ["column", "other_column"]]
    assert pairs.to_numpy().tolist() == [[0, 1]]
    assert table.loc[table["measure"] == "alpha_precision", "column"].item() is None


# ---- hostile tables ----------------------------------------------------------------------------


def test_missing_and_extra_columns_are_listed():
    real = law(20)
    made = real.drop(columns=["x", "c"]).assign(extra=1)
    with pytest.raises(ValueError, match=r"lacks \['x', 'c'\] and has besides \['extra'\]"):
        fidelity(real=real, synthetic=made)


def test_columns_without_values():
    real = pd.DataFrame({"x": [1.0, 2.0], "c": ["a", "b"], "e": [None, None]})
    made = pd.DataFrame({"x": [None, None], "c": [None, None], "e": [1.0, 2.0]})
    table = fidelity(real=real, synthetic=made)
    for measure, column in (("ks", "x"), ("range_coverage", "x"), ("tv", "c")):
        assert value(table, measure, column) == 0.0
        assert value(table, measure, column, what="note") == "no synthetic values"
    assert np.isnan(value(table, "wasserstein", "x"))
    for measure in ("ks", "wasserstein", "range_coverage", "range_adherence"):
        assert np.isnan(value(table, measure, "e"))
        assert value(table, measure, "e", what="note") == "no real values"
    assert value(table, "missing_share", "c") == 0.0
    assert np.isnan(value(table, "correlation", "x", "e"))


def test_constant_columns():
    real = pd.DataFrame({"x": [1.0, 2.0, 3.0], "k": [5.0, 5.0, 5.0], "c": "one"})
    table = fidelity(
        real=real, synthetic={"same": real, "other": real.assign(x=2.0, k=7.5, c="two")}
    )
    assert value(table, "range_coverage", "k", source="same") == 1.0
    assert value(table, "range_coverage", "k", source="other") == 0.0
    assert value(table, "range_adherence", "k", source="other") == 0.0
    assert value(table, "wasserstein", "k", source="other") == pytest.approx(2.5)
    assert value(table, "tv", "c", source="same") == 1.0
    assert value(table, "tv", "c", source="other") == 0.0
    assert value(table, "correlation", "x", "k", source="same", what="note") == (
        "no real correlation"
    )
    assert np.isnan(value(table, "correlation", "x", "k", source="same"))
    for measure in ("alpha_precision", "beta_recall"):
        assert value(table, measure, source="same") == pytest.approx(1.0)


def test_a_constant_synthetic_column_has_no_correlation():
    real = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]})
    table = fidelity(real=real, synthetic=real.assign(y=2.0))
    assert value(table, "correlation", "x", "y") == pytest.approx(0.5)
    assert "taken as 0" in value(table, "correlation", "x", "y", what="note")


@pytest.mark.parametrize(("n_real", "n_made"), [(1, 1), (1, 30), (30, 1), (2, 2)])
def test_tables_of_one_row(n_real, n_made):
    table = fidelity(real=law(n_real), synthetic=law(n_made, 1))
    scores = table[table["greater_is_better"]]["mean"]
    assert scores.dropna().between(0, 1).all()
    if min(n_real, n_made) < 2:
        assert value(table, "beta_recall", what="note") == "fewer than 2 rows"


def test_numbers_of_any_size():
    real = pd.DataFrame({"x": [1e300, -1e300, 5.0, 2.0], "y": [1e-300, 2e-300, 0.0, 1.0]})
    table = fidelity(real=real, synthetic=real)
    assert value(table, "correlation", "x", "y") == pytest.approx(1.0)
    assert value(table, "ks", "x") == 1.0


@pytest.mark.parametrize(
    "wrong", [{"n_bins": 1}, {"max_rows": 1}, {"n_bins": 2.5}, {"synthetic": []}, {"synthetic": {}}]
)
def test_wrong_arguments(wrong):
    real = law(10)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        fidelity(**({"real": real, "synthetic": real} | wrong))


def test_the_tables_are_not_changed():
    real, made = law(50), law(50, 1)
    before = real.copy(), made.copy()
    fidelity(real=real, synthetic=made)
    for table, copy in zip((real, made), before, strict=True):
        pd.testing.assert_frame_equal(table, copy)


def test_the_error_without_sdmetrics_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sdmetrics", None)
    monkeypatch.setitem(sys.modules, "sdmetrics.reports", None)
    with pytest.raises(ImportError, match=r"pip install 'combutab\[sdv\]'"):
        fidelity(real=law(20), synthetic=law(20), sdmetrics=True)


# ---- the scorer --------------------------------------------------------------------------------


class Generator:
    """Samples the rows that it is given."""

    def __init__(self, table):
        self.table = table

    def sample(self, n):
        return self.table.iloc[np.arange(n) % len(self.table)]


def test_the_scorer_orders_generators():
    real = law(1000)
    tables = {"noise": noise(1000), "shuffled": shuffled(real), "fresh": law(1000, 1), "copy": real}
    scores = {name: FidelityScorer()(Generator(table), real) for name, table in tables.items()}
    assert scores["copy"] == pytest.approx(1.0)
    for worse, better in itertools.pairwise(tables):
        assert scores[worse] < scores[better]


def test_the_scorers_value_by_hand():
    real = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "y": [1.0, 2.0, 3.0, 4.0]})
    made = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "y": [4.0, 3.0, 2.0, 1.0]})
    # shapes 1 and 1, correlations 1 and -1
    assert FidelityScorer()(Generator(made), real) == pytest.approx((1.0 + 0.0) / 2)
    assert FidelityScorer()(Generator(made[["x"]]), real[["x"]]) == pytest.approx(1.0)
