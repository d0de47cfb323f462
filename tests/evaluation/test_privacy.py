"""Distances from synthetic rows to rows trained on and to others, against loops and known cases."""

import numpy as np
import pandas as pd
import pytest

from combutab.evaluation import align_tables, near_copies, privacy
from combutab.evaluation._distances import Space, nearest_rows


def law(n, seed=0, n_ids=0):
    """Rows of one distribution: numbers, a date, categories of few and many values, gaps."""
    rng = np.random.default_rng(seed)
    x, c = rng.normal(size=n), rng.choice(list("abc"), n, p=[0.6, 0.3, 0.1])
    table = pd.DataFrame(
        {
            "x": x,
            "y": np.exp(3 * x + rng.normal(size=n)),  # of a long tail
            "c": c,
            "d": np.where(c == "a", "u", rng.choice(["u", "v"], n)),
            "t": pd.Timestamp("2020") + pd.to_timedelta(100 * rng.exponential(size=n), unit="D"),
        }
    )
    if n_ids:
        table["id"] = np.floor(n_ids * rng.random(n) ** 2).astype(int).astype(str)
    table.loc[rng.random(n) < 0.1, "y"] = None
    table.loc[(table["c"] == "b") & (rng.random(n) < 0.5), "d"] = None
    return table


def values(table, source="synthetic", what="mean"):
    """The values of a source by measure."""
    return table[table["source"] == source].set_index("measure")[what]


# ---- distances ---------------------------------------------------------------------------------


def places(columns, rows):
    """A number's share of lesser values among the rows, by its definition."""
    made = []
    for column in columns:
        known = np.sort(rows[~np.isnan(rows)])
        share = {v: ((known < v).mean() + (known <= v).mean()) / 2 for v in known}
        ordered = np.array(list(share))
        place = np.interp(column, ordered, list(share.values()))
        width = (ordered[-1] - ordered[0]) or 1.0
        place += np.clip((column - ordered[-1]) / width, 0, 1)
        made.append(place - np.clip((ordered[0] - column) / width, 0, 1))
    return made


def distances(a, b, rows):
    """Of each row of a to each of b, from the tables themselves, one column after the other."""
    total = np.zeros((len(a), len(b)))
    for name in rows:
        first, second = a[name], b[name]
        if pd.api.types.is_numeric_dtype(rows[name]) or rows[name].dtype.kind == "M":

            def numbers(column):
                floats = column.astype("int64") if column.dtype.kind == "M" else column
                return floats.to_numpy(dtype=float, na_value=np.nan)

            x, y = places([numbers(first), numbers(second)], numbers(rows[name]))
            off = (x[:, None] - y[None]) ** 2
        else:
            x, y = (column.astype(object).to_numpy() for column in (first, second))
            off = (x[:, None] != y[None]).astype(float)
        gone = first.isna().to_numpy()[:, None].astype(int) + second.isna().to_numpy()[None]
        total += np.where(gone == 1, 1.0, np.where(gone == 2, 0.0, off))
    return np.sqrt(total / rows.shape[1])


@pytest.mark.parametrize("n_ids", [0, 300])
@pytest.mark.parametrize(
    ("n_a", "n_b", "n_jobs"),
    [(1, 1, 1), (1, 40, 1), (40, 1, 1), (31, 33, 1), (600, 1050, 1), (1100, 64, 3), (70, 2200, 3)],
)
def test_neighbours_are_those_of_all_distances(n_a, n_b, n_jobs, n_ids):
    a, b, rows = law(n_a, 1, n_ids), law(n_b, 2, n_ids), law(50, 3, n_ids)
    aligned = align_tables({"a": a, "b": b, "rows": rows}, reference="rows")
    space = Space(aligned, aligned["rows"])
    a_points, b_points = space.points(aligned["a"]), space.points(aligned["b"])
    every = distances(a, b, rows)
    two = np.sort(np.column_stack([every, np.full(n_a, np.inf)]), axis=1)[:, :2]
    np.testing.assert_allclose(nearest_rows(a_points, b_points, 2, n_jobs=n_jobs), two, atol=1e-7)
    to_a = nearest_rows(b_points, a_points, 1, n_jobs=n_jobs)[:, 0]
    np.testing.assert_allclose(to_a, every.min(axis=0), atol=1e-7)


def test_neighbours_of_columns_of_one_kind():
    tables = {
        "numbers": pd.DataFrame(np.random.default_rng(0).normal(size=(90, 3))),
        "categories": pd.DataFrame({"a": list("abc") * 30, "b": list("uvwxy") * 18}),
        "missing": pd.DataFrame({"a": [None] * 90, "b": [1.0, None, None] * 30}),
    }
    for table in tables.values():
        a, b = table[:50], table[50:]
        aligned = align_tables({"a": a, "b": b, "rows": table}, reference="rows")
        space = Space(aligned, aligned["rows"])
        points = [space.points(aligned[name]) for name in "ab"]
        every = distances(a, b, table)
        for one, other, axis in ((*points, 1), (*points[::-1], 0)):
            found = nearest_rows(one, other, 1)[:, 0]
            np.testing.assert_allclose(found, every.min(axis=axis), atol=1e-7)


def test_equal_rows_have_zero_distance():
    # differences that single precision loses beside the counts of the categories
    rng = np.random.default_rng(0)

    def rows():
        rare = {f"c{j}": rng.choice(["a", "b"], 3000, p=[0.99, 0.01]) for j in range(25)}
        return pd.DataFrame({"x": rng.normal(size=3000)} | rare)

    train = rows()
    found = values(privacy(real_train=train, holdout=rows(), synthetic=train))
    assert found["share_closer_to_train"] == 1.0
    assert found["dcr_median"] == 0.0


def test_distance_ignores_units_and_outliers():
    train, holdout, made = law(200, 1), law(200, 2), law(200, 3)
    expected = privacy(real_train=train, holdout=holdout, synthetic=made)

    def other(table):
        return table.assign(x=table["x"] * 1e9 + 5, y=table["y"] * 1e-9)

    found = privacy(real_train=other(train), holdout=other(holdout), synthetic=other(made))
    np.testing.assert_allclose(found["mean"], expected["mean"], atol=1e-6)
    outlier = train.copy()
    outlier.loc[0, "x"] = 1e12
    found = privacy(real_train=outlier, holdout=holdout, synthetic=made)
    np.testing.assert_allclose(found["mean"], expected["mean"], atol=0.02)


# ---- measures ----------------------------------------------------------------------------------


def test_every_measure_by_hand():
    train = pd.DataFrame({"c": ["a", "b", "c"], "d": ["a", "b", "c"]})
    holdout = pd.DataFrame({"c": ["x", "y", "a"], "d": ["x", "z", "a"]})
    made = pd.DataFrame({"c": ["a", "b", "y", "b"], "d": ["a", "q", "z", "b"]})
    table = privacy(real_train=train, holdout=holdout, synthetic=made)
    found, reference = values(table), values(table, what="reference")
    half = np.sqrt(0.5)  # of two categories one differs
    # to train 0, half, 1, 0; to holdout 0, 1, 0, 1
    assert found["share_closer_to_train"] == pytest.approx((0.5 + 1 + 0 + 1) / 4)
    assert found["dcr_median"] == pytest.approx(np.median([0, half, 1, 0]))
    assert reference["dcr_median"] == pytest.approx(0.5)
    assert found["dcr_p05"] == 0.0
    # nearest over second nearest: 0/1, half/1, 1/1, 0/1, and 0/1, 1/1, 0/1, 1/1
    assert found["nndr_median"] == pytest.approx(np.median([0, half, 1, 0]))
    assert reference["nndr_median"] == pytest.approx(0.5)
    assert found["copies"] == 2
    assert reference["copies"] == pytest.approx(4 / 3)  # one of three in holdout
    assert found["copies_share"] == 0.5
    assert reference["copies_share"] == pytest.approx(1 / 3)
    assert found["holdout_copies"] == 2
    assert reference["holdout_copies"] == pytest.approx(4 / 3)  # one of three in train
    assert reference["share_closer_to_train"] == 0.5
    assert (table["note"] == "").all()
    assert table.set_index("measure")["less_is_safer"].to_dict() == {
        "share_closer_to_train": True,
        "dcr_median": False,
        "dcr_p05": False,
        "nndr_median": False,
        "nndr_p05": False,
        "copies": True,
        "copies_share": True,
        "holdout_copies": True,
    }


def split_shares(real, synthetic, n_splits):
    """The share of closer rows for splits of real rows into halves, from all distances."""
    every, rng = distances(synthetic, real, real).round(9), np.random.default_rng(0)
    shares = []
    for _ in range(n_splits):
        half = rng.permutation(len(real))[: len(real) // 2]
        near, far = every[:, half].min(axis=1), np.delete(every, half, axis=1).min(axis=1)
        shares.append(((near < far) + 0.5 * (near == far)).mean())
    return np.array(shares)


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize("columns", [["x"], ["x", "c", "d"]])
def test_standard_error_of_share_is_that_of_splits(columns, shift):
    train, holdout, fresh = (law(150, seed)[columns] for seed in range(3))
    fresh = fresh.assign(x=fresh["x"] + shift)
    table = privacy(real_train=train, holdout=holdout, synthetic=fresh).set_index("measure")
    shares = split_shares(pd.concat([train, holdout], ignore_index=True), fresh, 2000)
    expected = np.sqrt(((shares - 0.5) ** 2).mean())
    assert table.loc["share_closer_to_train", "se"] == pytest.approx(expected, rel=0.1)
    assert shift == 0 or columns != ["x"] or expected == pytest.approx(0.5)
    assert table["se"].notna().sum() == 1


def test_standard_error_counts_equal_rows_as_one_half_each():
    few = [pd.DataFrame({"c": list("ab") * 50, "d": list("uuvv") * 25}) for _ in range(3)]
    table = privacy(real_train=few[0], holdout=few[1], synthetic=few[2]).set_index("measure")
    assert table.loc["share_closer_to_train", ["mean", "se"]].tolist() == [0.5, pytest.approx(0)]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [["x", "y", "c", "d", "t"], ["x", "c"], ["c", "d"]])
def test_rows_of_the_same_distribution_give_nothing_away(columns):
    # means over draws: of one column alone, chance moves a single draw far
    tables = [
        privacy(
            real_train=law(150, 3 * seed)[columns],
            holdout=law(150, 3 * seed + 1)[columns],
            synthetic=law(150, 3 * seed + 2)[columns],
        )
        for seed in range(60)
    ]
    off = np.array([table["mean"] - table["reference"] for table in tables])
    error = off.std(axis=0, ddof=1) / np.sqrt(len(off))
    assert (np.abs(off.mean(axis=0)) <= 4 * error + 1e-12).all()
    by_measure = dict(zip(tables[0]["measure"], np.abs(off.mean(axis=0)), strict=True))
    assert by_measure["share_closer_to_train"] < 0.03


def test_copies_are_equal_including_missing_values():
    train = pd.DataFrame({"x": [1.0, None, 0.0, 4.0], "c": ["a", "b", None, "d"]})
    made = pd.DataFrame({"x": [1, None, -0.0, 4, 1], "c": ["b", "b", None, "d", "a"]})
    table = privacy(real_train=train, holdout=law(4)[["x", "c"]], synthetic=made)
    assert values(table)["copies"] == 4


# ---- sizes -------------------------------------------------------------------------------------


def test_larger_real_table_is_subsampled():
    # a fifth of the rows: the reference would be lower if all of train were searched
    offs = []
    for seed in range(20):
        train, holdout, made = (law(n, 10 * seed + k) for k, n in enumerate((500, 100, 300)))
        table = privacy(real_train=train, holdout=holdout, synthetic=made, random_state=seed)
        assert values(table, what="note")["dcr_median"] == "100 rows of each real table"
        assert values(table, what="note")["copies"] == ""
        offs.append(values(table)["share_closer_to_train"] - 0.5)
    assert abs(np.mean(offs)) < 4 * np.std(offs) / np.sqrt(20)
    assert abs(np.mean(offs)) < 0.1


def test_copies_are_looked_for_in_all_rows():
    train = law(300)
    table = privacy(real_train=train, holdout=law(20, 1), synthetic=train, max_rows=10)
    assert values(table)["copies"] == 300
    assert values(table, what="note")["dcr_median"] == "10 rows of each real table"


# ---- hostile tables ----------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 5, 5), (5, 1, 5), (5, 5, 1), (2, 2, 2)])
def test_tables_of_one_row(sizes):
    train, holdout, made = (law(n, seed) for seed, n in enumerate(sizes))
    table = privacy(real_train=train, holdout=holdout, synthetic=made)
    assert np.isfinite(table["mean"]).all()
    assert np.isfinite(table["reference"]).all()


def test_constant_columns_and_columns_without_values():
    train = pd.DataFrame({"k": [2.0] * 4, "e": [None] * 4, "c": ["one"] * 4})
    table = privacy(
        real_train=train,
        holdout=train,
        synthetic={"same": train, "other": train.assign(k=3.0, e=1.0, c="two")},
    )
    same, other = values(table, "same"), values(table, "other")
    assert same["copies"] == 4
    assert same["share_closer_to_train"] == 0.5
    assert same["nndr_median"] == 1.0
    assert other["copies"] == 0
    assert other["dcr_median"] == pytest.approx(1.0)  # each column differs by 1


def test_distance_beyond_the_range_is_bounded():
    train = pd.DataFrame({"x": np.arange(11.0)})
    table = privacy(
        real_train=train,
        holdout=train,
        synthetic={"near": train + 100, "far": train * 0 + 1e308, "below": train * 0 - 15.0},
    )
    # the last place is 21 / 22, and at most 1 more
    assert values(table, "near")["dcr_median"] == pytest.approx(1.0)
    assert values(table, "far")["dcr_median"] == pytest.approx(1.0)
    assert values(table, "below")["dcr_median"] == pytest.approx(1.0)
    inside = privacy(real_train=train, holdout=train, synthetic=train * 0 + 12.0)
    assert values(inside)["dcr_median"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    "wrong",
    [{"max_rows": 0}, {"max_rows": 2.5}, {"synthetic": []}, {"synthetic": {"holdout": law(3)}}],
)
def test_wrong_arguments(wrong):
    given = {"real_train": law(5), "holdout": law(5, 1), "synthetic": law(5, 2)} | wrong
    with pytest.raises(ValueError, match=r"max_rows|synthetic"):
        privacy(**given)


# ---- near copies -------------------------------------------------------------------------------


def test_near_copies_by_hand():
    real = pd.DataFrame({"x": [0.0, 10.0, 20.0, 30.0]})
    # near to 0, between two rows, equal to one, near to 30, beyond all rows
    made = pd.DataFrame({"x": [0.05, 5.0, 20.0, 29.9, 99.0]})
    found = near_copies(real_train=real, holdout=real + 5.0, synthetic=made)
    assert found["real"].tolist() == ["real_train", "holdout"]
    assert found["near"].tolist() == [2, 0]
    np.testing.assert_allclose(found["share"], [0.4, 0.0])
    assert found["reference"].tolist() == [0.0, 0.0]
    # No real row is a near copy: 4 of the other table and 4 halves, beside 5 synthetic rows.
    np.testing.assert_allclose(found["pvalue"], [(5 / 11) ** 2, 1.0])


def test_near_copies_without_holdout():
    rng = np.random.default_rng(0)
    real = pd.DataFrame(rng.normal(size=(200, 3)), columns=list("abc"))
    fresh = pd.DataFrame(rng.normal(size=(200, 3)), columns=list("abc"))
    noisy = real + rng.normal(0, 1e-4, real.shape)
    assert near_copies(real_train=real, synthetic=fresh)["pvalue"].tolist()[0] > 0.01
    found = near_copies(real_train=real, synthetic=noisy)
    assert found["real"].tolist() == ["real_train"]
    assert found["near"].tolist()[0] > 190
    assert found["pvalue"].tolist()[0] < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("columns", [["x"], ["x", "y"], ["c", "d", "y"], list("xycdt")])
def test_fresh_rows_are_near_copies_by_chance_alone(columns):
    found = [
        near_copies(
            real_train=law(300, 3 * seed)[columns],
            holdout=law(300, 3 * seed + 1)[columns],
            synthetic=law(300, 3 * seed + 2)[columns],
        )
        for seed in range(10)
    ]
    pvalues = pd.concat(found)["pvalue"]
    assert pvalues.min() > 0.001
