"""Conditions on SDV's synthesizers with our models."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import combutab
from combutab.generators.sampling import FREE, DirectSampler, Sampler

pytestmark = pytest.mark.filterwarnings("ignore:We strongly recommend saving the metadata")
RNG = np.random.default_rng(0)
N = 300
TABLE = pd.DataFrame(
    {
        "key": np.arange(N),
        "amount": RNG.normal(size=N).round(2),
        "count": RNG.integers(0, 9, N),
        "kind": RNG.choice(["a", "b", "c"], N, p=[0.75, 0.2, 0.05]),
        "code": RNG.choice([1, 2, 3], N),
        "flag": RNG.random(N) < 0.3,
        "level": pd.Categorical(RNG.choice(["lo", "hi"], N), ["lo", "mid", "hi"]),
        "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 99, N), unit="D"),
        "same": "one",
    }
)
TABLE["gap"] = np.where(RNG.random(N) < 0.3, np.nan, TABLE["amount"])
TABLE.loc[::7, "when"] = pd.NaT
TABLE.loc[::5, "kind"] = None
SDTYPES = {
    "key": "id",
    "amount": "numerical",
    "count": "numerical",
    "kind": "categorical",
    "code": "categorical",
    "flag": "boolean",
    "level": "categorical",
    "when": "datetime",
    "same": "categorical",
    "gap": "numerical",
}
TINY = {
    "CTGANSynthesizer": {"generator_dim": (16,), "discriminator_dim": (16,), "pac": 5},
    "TVAESynthesizer": {"compress_dims": (16,), "decompress_dims": (16,)},
    "TabFlowSynthesizer": {"hidden_layer_sizes": (16,), "early_stopping": False},
}


@pytest.fixture(scope="module", autouse=True)
def imported():
    """SDV, for these tests alone: it takes seconds, and every process collects all tests."""
    pytest.importorskip("sdv", reason="needs the extra sdv")
    global FixedCombinations, Metadata, Condition, DataFrameCondition, nearest, CTGANSynthesizer
    from sdv.cag import FixedCombinations
    from sdv.metadata import Metadata
    from sdv.sampling import Condition, DataFrameCondition

    from combutab.generators.sdv import CTGANSynthesizer
    from combutab.generators.sdv._synthesizers import nearest


@pytest.fixture(scope="module", params=["CTGAN", "TVAE", "TabFlow"])
def cls(request, imported):
    return getattr(combutab.generators.sdv, f"{request.param}Synthesizer")


def make(cls, sdtypes=SDTYPES, **params):
    columns = {name: {"sdtype": sdtype} for name, sdtype in sdtypes.items()}
    key = {"primary_key": "key"} if "key" in sdtypes else {}
    about = Metadata.load_from_dict({"tables": {"t": {"columns": columns, **key}}})
    defaults = {"epochs": 2, "batch_size": 50, "random_state": 0}
    if cls.__name__ != "TabFlowSynthesizer":
        defaults["embedding_dim"] = 8
    return cls(about, **{**defaults, **TINY[cls.__name__], **params})


@pytest.fixture(scope="module")
def fitted(cls):
    synthesizer = make(cls)
    synthesizer.fit({"t": TABLE})
    return synthesizer


@pytest.fixture
def asked(monkeypatch):
    """What is asked of the network: (rows, spans, codes) of each call."""
    calls = []
    generate, fill = Sampler.generate, DirectSampler.fill

    def spy(self, n, span, code, key):
        calls.append((n, set(span), set(code)))
        return generate(self, n, span, code, key)

    def spy_on_fill(self, codes, *others):
        given = np.flatnonzero((codes != FREE).any(axis=0))
        calls.append((len(codes), set(given) or {FREE}, set(codes[:, given].ravel())))
        return fill(self, codes, *others)

    monkeypatch.setattr(Sampler, "generate", spy)
    monkeypatch.setattr(DirectSampler, "fill", spy_on_fill)
    return calls


@pytest.mark.parametrize(
    "condition",
    [
        {"kind": "c"},
        {"kind": "c", "flag": True, "code": 3},
        {"flag": False, "level": "hi", "same": "one"},
        {"amount": 0.5},
        {"count": 3, "kind": "b"},
        {"count": 3, "amount": -0.25},
        {"when": pd.Timestamp("2020-02-02")},
    ],
    ids=str,
)
def test_conditions_are_met(fitted, condition):
    rows = fitted.sample_from_conditions([Condition(condition, num_rows=12)])["t"]
    assert len(rows) == 12
    assert (rows.drop(columns="level").dtypes == TABLE.drop(columns="level").dtypes).all()
    for column, value in condition.items():
        assert (rows[column] == value).all()
    assert rows["key"].is_unique


@pytest.mark.parametrize("column", ["kind", "gap", "when"])
def test_missing_values_are_conditions_too(fitted, column):
    conditions = [Condition({column: None, "flag": True}, num_rows=9)]
    rows = fitted.sample_from_conditions(conditions)["t"]
    assert len(rows) == 9
    assert rows[column].isna().all()
    assert rows["flag"].all()


def test_the_network_is_asked_for_the_rarest_or_for_all(fitted, asked):
    condition = {"code": 2, "kind": "c", "amount": 0.1}
    fitted.sample_from_conditions([Condition(condition, num_rows=5)])
    encoder = fitted._model.encoder_
    wanted = [encoder.condition_code("kind", "c")]
    if isinstance(fitted._model, combutab.TabFlow):
        wanted.append(encoder.condition_code("code", 2))
    spans, codes = map(set, zip(*wanted, strict=True))
    assert asked
    assert all(call[1:] == (spans, codes) for call in asked)
    asked.clear()
    fitted.sample_from_conditions([Condition({"amount": 0.1}, num_rows=5)])
    fitted.sample(5)
    assert all(call[1] == {FREE} for call in asked)


def test_tabflow_makes_no_row_in_vain(asked):
    synthesizer = make(combutab.generators.sdv.TabFlowSynthesizer)
    synthesizer.fit({"t": TABLE})
    condition = Condition({"kind": "c", "code": 2, "flag": True}, num_rows=30)
    assert len(synthesizer.sample_from_conditions([condition])["t"]) == 30
    assert sum(call[0] for call in asked) == 30


def test_a_condition_is_not_only_chosen_by_rejection(asked):
    # a rare kind, which an unconditional network makes as often: once in 60 rows
    table = pd.DataFrame({"kind": ["a"] * 590 + ["b"] * 10})
    synthesizer = make(
        CTGANSynthesizer, {"kind": "categorical"}, epochs=60, generator_lr=5e-3, pac=1
    )
    synthesizer.fit({"t": table})
    asked.clear()
    rows = synthesizer.sample_from_conditions([Condition({"kind": "b"}, num_rows=100)])["t"]
    assert (rows["kind"] == "b").all()
    assert sum(n for n, _, _ in asked) < 0.1 * 100 * 60


@pytest.mark.parametrize(
    ("numbers", "rows"),
    [
        ({"x": 3.0}, [0, 3, 5]),  # 3, 3.5 and 2
        ({"x": None}, [2, 4]),
        ({"x": 3.0, "y": 9.0}, [0, 1, 3]),  # row 5 has the worst y of all
        ({"x": 3.0, "y": None}, []),
        ({"x": None, "y": 9.0}, [2, 4]),
    ],
)
def test_the_nearest_rows(numbers, rows):
    table = pd.DataFrame(
        {"x": [3.0, 9.0, np.nan, 3.5, np.nan, 2.0], "y": [7.0, 9.0, 9.0, 8.0, 8.0, 1.0]}
    )
    expected = table.iloc[rows].reset_index(drop=True)
    pd.testing.assert_frame_equal(nearest(table, numbers, 3), expected)


def test_remaining_columns_of_known_rows(fitted):
    known = TABLE[["kind", "level", "code"]].head(40)
    rows = fitted.sample_remaining_columns(known)["t"]
    assert len(rows) == 40
    expected = known.assign(kind=known["kind"].astype(object).where(known["kind"].notna(), np.nan))
    pd.testing.assert_frame_equal(rows[list(known)], expected)


def test_frames_of_conditions(fitted):
    frame = pd.DataFrame({"kind": ["c", "a", "b"] * 4, "flag": [True, False] * 6})
    rows = fitted.sample_from_conditions([DataFrameCondition(frame)])["t"]
    pd.testing.assert_frame_equal(rows[["kind", "flag"]], frame, check_dtype=False)


def test_many_rows_are_made_in_chunks(fitted, asked):
    rows = fitted.sample_from_conditions([Condition({"flag": True}, num_rows=12_000)])["t"]
    assert len(rows) == 12_000
    assert rows["flag"].all()
    assert max(n for n, _, _ in asked) <= 5000


def test_unknown_values_are_named(fitted):
    with pytest.raises(ValueError, match=r"'kind' had no value 'z' in fit; it has 'a', 'b', 'c'"):
        fitted.sample_from_conditions([Condition({"kind": "z"}, num_rows=2)])
    with pytest.raises(ValueError, match="Unexpected column name 'sort'"):
        fitted.sample_from_conditions([Condition({"sort": "z"}, num_rows=2)])


def test_tries_are_bounded(fitted, asked):
    impossible = Condition({"amount": 1e6}, num_rows=3)
    with pytest.raises(ValueError, match="Unable to sample any rows"):
        fitted.sample_from_conditions([impossible], max_tries_per_batch=2)
    assert sum(n for n, _, _ in asked) < 11_000
    # rows that can be made are made, in spite of others that cannot
    conditions = [Condition({"amount": 0.1}, num_rows=3), impossible]
    with pytest.warns(UserWarning, match="Only able to sample 3 rows"):
        rows = fitted.sample_from_conditions(conditions, max_tries_per_batch=2)["t"]
    assert rows["amount"].tolist() == [0.1] * 3


def test_conditions_under_constraints(cls):
    table = TABLE[["amount", "kind", "code", "flag"]].dropna()
    # some combinations are rare
    sdtypes = {name: SDTYPES[name] for name in table.columns}
    synthesizer = make(cls, sdtypes, min_frequency=1)
    synthesizer.add_constraints([FixedCombinations(["kind", "code"])])
    synthesizer.fit({"t": table})
    for condition in ({"kind": "c", "code": 2}, {"kind": "b", "flag": True}, {"flag": False}):
        rows = synthesizer.sample_from_conditions([Condition(condition, num_rows=10)])["t"]
        assert len(rows) == 10
        for column, value in condition.items():
            assert (rows[column] == value).all()
