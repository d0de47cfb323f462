"""Missing cells are filled, all others stay, and what is filled in depends on what is known."""

import uuid

import numpy as np
import pandas as pd
import pytest

from combutab import CTGAN, TVAE
from combutab.generators import Unique
from combutab.generators._imputing import draw_nearest
from combutab.preprocessing import IncompleteTable, ModeEncoder, missing_codes
from tests.generators.small import make

N = 120


def make_table(n=N, seed=0):
    """A column of each kind."""
    rng = np.random.default_rng(seed)
    days = pd.to_timedelta(rng.integers(0, 60, n), "D")
    return pd.DataFrame(
        {
            "float": rng.normal(size=n),
            "int": rng.integers(-5, 40, n),
            "bool": rng.random(n) < 0.4,
            "text": rng.choice(["a", "b", "c"], n),
            "category": pd.Categorical(rng.choice(["u", "v"], n), ["v", "u", "w"], ordered=True),
            "date": pd.Timestamp("2024-01-01") + days,
            "zoned": pd.Timestamp("2024-03-01", tz="Europe/Berlin") + days,
            "duration": pd.to_timedelta(rng.integers(0, 90, n), "min"),
            "Int": pd.array(rng.integers(0, 30, n), dtype="Int16"),
            "boolean": pd.array(rng.random(n) < 0.5, dtype="boolean"),
            "string": pd.array(rng.choice(["x", "y"], n), dtype="string"),
            "float32": rng.normal(size=n).astype(np.float32),
            "sparse": pd.arrays.SparseArray(rng.integers(0, 3, n).astype(float)),
            "period": pd.period_range("2024-01", periods=3, freq="M").take(rng.integers(0, 3, n)),
            "constant": "k",
        }
    )


def punch(table, share=0.3, seed=1):
    """The table with some cells missing; whole numbers and truth values by nullable dtypes."""
    table = table.astype({"int": "Int64", "bool": "boolean"} if "bool" in table else {})
    holes = np.random.default_rng(seed).random(table.shape) < share
    return pd.DataFrame({c: table[c].mask(holes[:, j]) for j, c in enumerate(table)})


@pytest.fixture(scope="module", params=[CTGAN, TVAE])
def model(request):
    """Fitted on a table with missing cells in all columns but one."""
    table = punch(make_table()).assign(constant="k")
    return make(request.param).fit(table)


def assert_filled(filled, holes):
    assert list(filled) == list(holes)
    pd.testing.assert_index_equal(filled.index, holes.index)
    for name in holes:
        assert not filled[name].isna().any(), name
        there = holes[name].notna()
        pd.testing.assert_series_equal(filled[name][there], holes[name][there])


def test_only_missing_cells_are_filled(model):
    holes = punch(make_table(seed=2), seed=3).set_axis(range(N, 0, -1))
    before = holes.copy()
    filled = model.impute(holes, random_state=0)
    assert_filled(filled, holes)
    pd.testing.assert_frame_equal(holes, before)
    assert filled["int"].between(-20, 60).all()  # bounds are rounded outward
    assert set(filled["text"]) == {"a", "b", "c"}
    assert (filled["date"] == filled["date"].dt.normalize()).all()
    assert set(filled["constant"]) == {"k"}


def test_imputation_depends_on_the_seed(model):
    holes = punch(make_table(40, seed=2))
    one, other = model.impute(holes, n_draws=2, random_state=5)
    again = model.impute(holes, n_draws=2, random_state=5)
    pd.testing.assert_frame_equal(one, again[0])
    pd.testing.assert_frame_equal(other, again[1])
    pd.testing.assert_frame_equal(one, model.impute(holes, random_state=5))
    assert not one["float"].equals(other["float"])
    assert not model.impute(holes)["float"].equals(model.impute(holes)["float"])


def test_complete_rows_stay_and_empty_ones_are_sampled(model):
    table = make_table(30, seed=2)
    pd.testing.assert_frame_equal(model.impute(table), table)
    empty = pd.DataFrame({name: [None] * 300 for name in table})
    filled = model.impute(empty, random_state=0)
    assert not filled.isna().any(axis=None)
    assert filled["float"].nunique() > 100  # not the same few donors each time
    assert set(filled["category"]) == {"u", "v"}


def test_integers_that_became_floats_are_filled():
    table = make_table()[["int", "bool", "float"]]
    model = make(TVAE).fit(table, discrete_columns=["bool"])
    holes = table.mask(np.random.default_rng(0).random(table.shape) < 0.3)  # floats and objects
    assert holes["int"].dtype == float
    holes.loc[0, "int"] = 2.5  # it has none of these
    filled = model.impute(holes)
    assert_filled(filled, holes)
    assert (filled["int"][1:] % 1 == 0).all()
    assert filled.loc[0, "int"] == 2.5


def test_a_table_in_another_order(model):
    holes = punch(make_table(30, seed=2))
    backward = model.impute(holes[holes.columns[::-1]], random_state=0)
    assert list(backward) == list(holes)[::-1]
    pd.testing.assert_frame_equal(backward[list(holes)], model.impute(holes, random_state=0))


def test_columns_of_polars_keep_their_dtypes():
    pl = pytest.importorskip("polars")
    days = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 3, 29), "1d", eager=True)
    n = len(days)
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "int": pl.Series(rng.integers(0, 9, n), dtype=pl.Int16),
            "float32": pl.Series(rng.normal(size=n), dtype=pl.Float32),
            "nan": rng.normal(size=n),
            "bool": rng.random(n) < 0.5,
            "enum": pl.Series(rng.choice(["u", "v"], n), dtype=pl.Enum(["v", "u"])),
            "text": rng.choice(["x", "y"], n),
            "date": days.cast(pl.Date),
            "zoned": days.dt.replace_time_zone("Europe/Berlin"),
            "duration": days - days[0],
            "clock": pl.time_range(interval="15m", eager=True)[:n],
            "decimal": pl.Series(rng.integers(0, 9, n)).cast(pl.Decimal(8, 2)),
            "none": pl.Series([None] * n),
        }
    )
    lost = rng.random(table.shape) < 0.3
    missing = [np.nan if name == "nan" else None for name in table.columns]
    holes = table.with_columns(
        pl.when(pl.Series(lost[:, j])).then(pl.lit(missing[j])).otherwise(pl.col(name)).alias(name)
        for j, name in enumerate(table.columns)
    ).cast(table.schema)
    filled = make(TVAE).fit(holes).impute(holes, random_state=0)
    assert filled.schema == table.schema
    for j, name in enumerate(table.columns):
        assert (
            filled[name]
            .filter(pl.Series(~lost[:, j]))
            .equals(table[name].filter(pl.Series(~lost[:, j])))
        )
        assert filled[name].null_count() == (n if name == "none" else 0)
    assert not filled["nan"].is_nan().any()
    assert (filled["zoned"].dt.hour() == 0).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, object])
def test_arrays(dtype):
    rng = np.random.default_rng(0)
    table = np.stack([rng.normal(size=80), rng.integers(0, 3, 80)], axis=1).astype(dtype)
    model = make(TVAE).fit(table, discrete_columns=[1])
    holes = table.copy()
    missing = rng.random(table.shape) < 0.3
    holes[missing] = np.nan
    filled = model.impute(holes)
    assert filled.dtype == dtype
    assert not pd.isna(filled).any()
    np.testing.assert_array_equal(filled[~missing], table[~missing])
    assert set(filled[:, 1]) == {0, 1, 2}
    assert np.isnan(holes[missing].astype(float)).all()
    listed = model.impute(holes.tolist())
    assert isinstance(listed, np.ndarray)
    np.testing.assert_array_equal(listed[~missing].astype(dtype), table[~missing])


def test_unknown_cells_are_kept_and_ignored():
    seen = []

    class Recorder(TVAE):
        def _draw_missing(self, values, codes, known, key):
            seen.append((values.copy(), codes.copy(), known.copy()))
            return super()._draw_missing(values, codes, known, key)

    table = make_table()[["float", "text", "date"]]
    model = Recorder(**make(TVAE).get_params()).fit(table)
    holes = table[:4].copy()
    holes.loc[0] = [1e9, "new", pd.NaT]
    holes.loc[1, "text"] = None
    holes.loc[2, "date"] = pd.Timestamp("1999-01-01")
    holes.loc[2, "float"] = np.nan
    filled = model.impute(holes)
    assert_filled(filled, holes)
    ((values, codes, known),) = seen
    layout = model.encoder_.layout_
    at = {table.columns[span.column]: i for i, span in enumerate(layout.spans)}
    assert len(known) == 3
    assert known[:, at["float"]].tolist() == [False, True, False]
    assert known[:, at["text"]].tolist() == [False, False, True]
    assert known[:, at["date"]].tolist() == [False, True, False]
    whole = model.encoder_.decode(values, codes)
    assert whole.loc[1, "date"] == table.loc[1, "date"]
    assert whole.loc[2, "text"] == table.loc[2, "text"]
    assert whole.loc[1, "float"] == pytest.approx(table.loc[1, "float"], rel=1e-5)


def test_new_categories_of_a_dtype_are_kept():
    table = make_table()[["float", "category"]]
    model = make(TVAE).fit(table)
    values = pd.Categorical(["other", None, None], ["other"])
    filled = model.impute(pd.DataFrame({"float": [0.0, 0.0, np.nan], "category": values}))
    assert filled["category"][0] == "other"
    assert set(filled["category"][1:]) <= {"u", "v"}
    assert filled["category"].dtype.categories[0] == "other"


def test_empty_columns_stay_missing():
    table = make_table()[["float", "text"]].assign(none=None, odd=None)
    table.loc[:1, "odd"] = ["p", "q"]  # rarer than min_frequency
    table.loc[2, "text"] = "seldom"
    model = make(TVAE).fit(table)
    filled = model.impute(table.assign(text=None))
    assert filled["none"].isna().all()
    pd.testing.assert_series_equal(filled["odd"], table["odd"])
    assert set(filled["text"]) == {"a", "b", "c"}


@pytest.mark.parametrize("constraints", [None, [Unique("id")]])
@pytest.mark.parametrize(
    "name", [lambda i: i, lambda i: f"{i:05}@mail.org", lambda i: uuid.UUID(int=i)]
)
def test_new_identifiers_are_none_of_the_filled_table(name, constraints):
    table = make_table()[["float"]]
    with pytest.warns(UserWarning, match="identifiers"):
        model = make(TVAE, constraints=constraints).fit(table.assign(id=[*map(name, range(N))]))
    made = model.sample(2 * N)["id"]  # what later rows may have
    holes = table.assign(id=made[:N].where(table.index % 3 > 0))
    for given in (holes, holes.assign(id=holes["id"].astype("category"))):
        filled = model.impute(given)["id"]
        assert not set(filled[given["id"].isna()]) & set(map(name, range(N)))
        assert filled.is_unique
        assert filled.notna().all()
        assert filled[given["id"].notna()].tolist() == given["id"].dropna().tolist()


def test_rows_of_one_identifier_are_filled_differently():
    table = pd.DataFrame({"id": range(100), "day": ["Monday", "Tuesday"] * 50, "x": 1.5})
    with pytest.warns(UserWarning, match="identifiers"):
        model = make(TVAE, constraints=[Unique("id", "day")]).fit(table)
    for given, other in (("Monday", "Tuesday"), ("Tuesday", "Monday")):
        holes = pd.DataFrame({"id": [7.0, 7, np.nan], "day": [given, None, given], "x": 1.5})
        filled = model.impute(holes, random_state=0)
        assert filled["day"].tolist() == [given, other, given]
        assert filled["id"].tolist()[:2] == [7, 7]
        assert filled["id"][2] not in {7, *range(100)}


def test_a_table_of_constants():
    model = make(TVAE).fit(pd.DataFrame({"a": ["x"] * 20, "b": [3] * 20}))
    filled = model.impute(pd.DataFrame({"a": ["x", None, "y"], "b": [None, 3, 3]}), n_draws=2)
    for each in filled:
        assert each["a"].tolist() == ["x", "x", "y"]
        assert each["b"].tolist() == [3, 3, 3]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda X: X.drop(columns="text"), "missing are.*'text'"),
        (lambda X: X.assign(float="high"), "'float' has the dtype .* but fit has seen float64"),
        (lambda X: X.assign(float=np.inf), "'float' has infinite values"),
        (lambda X: X.assign(date=X["date"].dt.tz_localize("UTC")), "'date' has the dtype"),
        (lambda X: X.to_numpy(), "fitted on a DataFrame, got a ndarray"),
    ],
)
def test_a_table_of_another_kind_is_refused(change, error, model):
    table = make_table(10).assign(duration=pd.NaT)
    with pytest.raises(ValueError, match=error):
        model.impute(change(table))


@pytest.mark.parametrize("cells", [["1.5", None], [True, None], [pd.Timestamp(0), None]])
def test_columns_of_another_kind_are_refused(cells, model):
    table = make_table(2)
    for holes in (table.assign(float=cells), table.assign(float=[cells[0]] * 2)):
        with pytest.raises(ValueError, match="'float'"):
            model.impute(holes)


@pytest.mark.parametrize("n_draws", [0, 1.5, "two"])
def test_the_number_of_draws_is_checked(n_draws, model):
    with pytest.raises(ValueError, match=f"'n_draws' parameter .* must be an int .*{n_draws!r}"):
        model.impute(make_table(5), n_draws=n_draws)


class RealRows:
    """In a sampler's place: the rows of a table, in turn."""

    chunk, rules = 64, None

    def __init__(self, encoder, table):
        self.encoder, self.encoded, self.at = encoder, encoder.encode(table), 0

    def generate_allowed(self, n, span, code, key, allowed):
        rows = (self.at + np.arange(n)) % len(self.encoded.codes)
        self.at += n
        return self.encoded.values[rows], self.encoded.codes[rows].astype(np.int64), None


def test_the_nearest_rows_are_the_donors():
    grid = np.repeat(np.arange(10.0), 8)
    table = pd.DataFrame({"x": grid, "square": grid**2, "even": np.where(grid % 2, "no", "yes")})
    encoder = ModeEncoder(random_state=0).fit(table)
    holes = pd.DataFrame({"x": [3.0, None, 8.0, None], "square": [None, 49.0, None, 16.0]})
    incomplete = IncompleteTable(encoder, holes.assign(even=[None, None, "yes", "yes"]))
    encoded, known = incomplete.encode(0)
    sampler = RealRows(encoder, table)
    made = draw_nearest(sampler, encoded.values, encoded.codes, known, key=1)
    filled = incomplete.fill(encoder.decode(*made))
    assert filled["x"].tolist() == [3, 7, 8, 4]
    assert filled["square"].tolist() == [9, 49, 64, 16]
    assert filled["even"].tolist() == ["no", "no", "yes", "yes"]


def test_donors_with_the_value_come_first():
    rng = np.random.default_rng(0)
    kind = rng.choice(["a", "b"], 200)
    part = pd.Series(np.where(kind == "a", 1.5, 7.5)).where(rng.random(200) < 0.1)
    table = pd.DataFrame({"kind": kind, "part": part})
    encoder = ModeEncoder(random_state=0).fit(table)
    assert sorted(missing_codes(encoder)) != [-1, -1]
    incomplete = IncompleteTable(encoder, table.assign(part=np.nan))
    encoded, known = incomplete.encode(0)

    def filled(rows):
        sampler = RealRows(encoder, rows)
        made = draw_nearest(sampler, encoded.values, encoded.codes, known, key=1)
        return incomplete.fill(encoder.decode(*made))["part"]

    np.testing.assert_array_equal(filled(table), np.where(kind == "a", 1.5, 7.5))
    drawn = filled(table[part.isna()])  # no donor has one
    assert not drawn.isna().any()
    assert drawn.nunique() > 1


def test_categories_of_another_type_are_refused():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"code": rng.choice(["1", "2"], 60), "x": rng.normal(size=60)})
    encoder = ModeEncoder(random_state=0).fit(table)
    numbers = table.assign(code=table["code"].astype(float)).mask(rng.random((60, 2)) < 0.2)
    with pytest.raises(ValueError, match=r"'code'.*1\.0.*'1'"):
        IncompleteTable(encoder, numbers)
    new = table.assign(code="3").mask(rng.random((60, 2)) < 0.2)  # not seen, and of its kind
    _, known = IncompleteTable(encoder, new).encode(0)
    assert not known[:, 0].any()
    whole = ModeEncoder(discrete_columns=["code"], random_state=0).fit(
        table.assign(code=[1, 2] * 30)
    )
    IncompleteTable(whole, table.assign(code=[1.0, np.nan] * 30))
