"""SDV's synthesizers with our models: fit, sample, conditions, save."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import combutab
from combutab.generators.sampling import FREE, DirectSampler, Sampler
from combutab.training import Callback

pytestmark = pytest.mark.filterwarnings(
    "ignore:We strongly recommend saving the metadata",  # SDV's advice at every construction
    "ignore:Replacing the default transformer",
)
TINY = {
    "CTGANSynthesizer": {"generator_dim": (16,), "discriminator_dim": (16,), "pac": 5},
    "TVAESynthesizer": {"compress_dims": (16,), "decompress_dims": (16,)},
    "TabFlowSynthesizer": {"hidden_layer_sizes": (16,), "early_stopping": False},
}
RNG = np.random.default_rng(0)
N = 200
TABLE = pd.DataFrame(
    {
        "key": np.arange(N) + 1000,
        "amount": RNG.normal(size=N).round(2),
        "count": RNG.integers(0, 9, N),
        "kind": RNG.choice(["a", "b", "c"], N, p=[0.7, 0.2, 0.1]),
        "code": RNG.choice([1, 2, 3], N),
        "flag": RNG.random(N) < 0.3,
        "level": pd.Categorical(RNG.choice(["lo", "hi"], N), ["lo", "mid", "hi"]),
        "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 99, N), unit="D"),
    }
)
TABLE["gap"] = RNG.normal(size=N).round(1)
TABLE.loc[TABLE["kind"] == "b", "gap"] = np.nan
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
    "gap": "numerical",
}


@pytest.fixture(scope="module", autouse=True)
def imported():
    """SDV, for these tests alone: it takes seconds, and every process collects all tests."""
    pytest.importorskip("sdv", reason="needs the extra sdv")
    global sdv, FloatFormatter, UniformEncoder, FixedCombinations, Inequality
    global Metadata, load_synthesizer, CTGANSynthesizer, TVAESynthesizer
    global Condition, nearest
    import sdv.single_table
    from rdt.transformers import FloatFormatter, UniformEncoder
    from sdv.cag import FixedCombinations, Inequality
    from sdv.metadata import Metadata
    from sdv.sampling import Condition
    from sdv.utils import load_synthesizer

    from combutab.generators.sdv import CTGANSynthesizer, TVAESynthesizer
    from combutab.generators.sdv._synthesizers import nearest


@pytest.fixture(scope="module", params=["CTGAN", "TVAE", "TabFlow"])
def cls(request, imported):
    return getattr(combutab.generators.sdv, f"{request.param}Synthesizer")


def metadata(sdtypes=SDTYPES, **options):
    columns = {
        name: {"sdtype": sdtype, **options.get(name, {})} for name, sdtype in sdtypes.items()
    }
    key = {"primary_key": "key"} if "key" in sdtypes else {}
    return Metadata.load_from_dict({"tables": {"t": {"columns": columns, **key}}})


def make(cls, about=None, **params):
    defaults = {"epochs": 2, "batch_size": 50, "random_state": 0}
    if cls.__name__ != "TabFlowSynthesizer":
        defaults["embedding_dim"] = 8
    return cls(about or metadata(), **{**defaults, **TINY[cls.__name__], **params})


def fit(synthesizer, table=TABLE):
    synthesizer.fit({"t": table})
    return synthesizer


@pytest.fixture(scope="module")
def fitted(cls):
    return fit(make(cls))


# ---- schema -------------------------------------------------------------------------------------


def test_samples_have_the_tables_schema_and_bounds(fitted):
    rows = fitted.sample(300)["t"]
    assert rows.columns.tolist() == TABLE.columns.tolist()
    assert (rows.dtypes == TABLE.dtypes).all()
    assert len(rows) == 300
    assert rows["key"].is_unique
    for name in ("amount", "count", "gap"):  # SDV clips them
        assert rows[name].min() >= TABLE[name].min()
        assert rows[name].max() <= TABLE[name].max()
    assert rows["when"].min() >= TABLE["when"].min() - pd.Timedelta(days=10)
    assert rows["when"].max() <= TABLE["when"].max() + pd.Timedelta(days=10)
    np.testing.assert_allclose(100 * rows["amount"], (100 * rows["amount"]).round(), atol=1e-6)
    assert (rows["when"].dropna() == rows["when"].dropna().dt.normalize()).all()
    for name in ("kind", "code", "flag", "level"):
        assert set(rows[name].dropna()) <= set(TABLE[name].dropna())
    for name in ("kind", "gap", "when"):
        assert rows[name].isna().any()
    whole = ["key", "amount", "count", "code", "flag", "level"]
    assert rows[whole].notna().all(axis=None)


def test_the_model_sees_categories_and_missing_values(fitted):
    assert set(fitted._model.encoder_.categories_) == {"kind", "code", "flag", "level"}
    processed = make(type(fitted)).preprocess({"t": TABLE})["t"]
    assert "key" not in processed
    for name in processed.columns:
        assert processed[name].isna().tolist() == TABLE[name].isna().tolist(), name
    assert processed["when"].dtype == TABLE["when"].dtype


@pytest.mark.parametrize(
    ("unit", "form"),
    [("s", "date"), ("us", "date"), ("ns", "text"), ("s", "text with a zone"), ("us", "number")],
)
def test_dates_of_every_unit_and_form(unit, form):
    written = {"text": "%d/%m/%Y", "text with a zone": "%Y-%m-%d %H:%M:%S%z", "number": "%Y%m%d"}
    zone = "Asia/Tokyo" if form == "text with a zone" else None  # it has no summer time
    days = pd.date_range("2020-01-01", "2020-04-08", tz=zone).as_unit(unit)
    dates = pd.Series(days[RNG.integers(0, len(days), N)])
    options = {}
    if form in written:
        options = {"when": {"datetime_format": written[form]}}
        days, dates = days.strftime(written[form]), dates.dt.strftime(written[form])
    if form == "number":
        days, dates = days.astype(int), dates.astype(int)
    else:
        dates = dates.mask(TABLE["when"].isna())
    table = pd.DataFrame({"when": dates, "flag": TABLE["flag"]})
    about = metadata({"when": "datetime", "flag": "boolean"}, **options)
    model = make(TVAESynthesizer, about, min_frequency=1, argmax=False)
    rows = fit(model, table).sample(100)["t"]
    assert rows["when"].dtype == dates.dtype
    assert rows["when"].isna().any() == (form != "number")
    assert set(rows["when"].dropna()) <= set(days)


# ---- parameters ---------------------------------------------------------------------------------


def test_tabflow_signature_combines_sdv_and_model():
    ours = inspect.signature(combutab.generators.sdv.TabFlowSynthesizer).parameters
    model = dict(inspect.signature(combutab.TabFlow).parameters)
    del model["constraints"]  # SDV has its own
    first = ["metadata", "enforce_min_max_values", "enforce_rounding", "locales"]
    assert list(ours) == [*first, *model]
    assert {name: ours[name] for name in model} == model
    about = metadata()
    assert combutab.generators.sdv.TabFlowSynthesizer(about, False).enforce_min_max_values is False
    with pytest.raises(TypeError, match="epoch"):
        combutab.generators.sdv.TabFlowSynthesizer(about, epoch=3)


def test_a_synthesizer_can_be_a_base():
    class Short(combutab.generators.sdv.TabFlowSynthesizer):
        def __init__(self, metadata, **parameters):
            super().__init__(metadata, epochs=3, **parameters)

    assert Short(metadata(), n_bins=8)._model_kwargs["epochs"] == 3


@pytest.mark.parametrize("name", ["CTGAN", "TVAE"])
def test_the_signature_is_sdvs_and_our_models(name):
    ours = inspect.signature(getattr(combutab.generators.sdv, f"{name}Synthesizer")).parameters
    theirs = inspect.signature(getattr(sdv.single_table, f"{name}Synthesizer")).parameters
    model = inspect.signature(getattr(combutab, name)).parameters
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    positional = [p for p in ours.values() if p.kind != keyword_only]
    assert [p.name for p in positional] == list(theirs)
    defaults = {p.name: p.default for p in positional} | {"locales": ["en_US"]}
    if "locales" not in theirs:
        del defaults["locales"]
    assert defaults == {p.name: p.default for p in theirs.values()}
    wanted = {p.name: p.default for p in model.values() if p.kind == keyword_only}
    del wanted["constraints"]  # SDV has its own
    assert {p.name: p.default for p in ours.values() if p.kind == keyword_only} == wanted


def test_every_parameter_reaches_the_model_and_comes_back(cls):
    class Stop(Callback):
        def on_epoch_end(self, *args, **kwargs):
            return True

    given = {
        "activation": "pln-4",
        "normalization": "layer",
        "n_members": 2,
        "enable_gpu": False,
        "early_stopping": True,
        "validation_fraction": 0.3,
        "precision": "float64",
        "callbacks": [Stop()],
    }
    synthesizer = make(cls, **given)
    parameters = synthesizer.get_parameters()
    assert given.items() <= parameters.items()
    assert parameters["epochs"] == 2
    fit(synthesizer)
    model = synthesizer._model
    assert {name: getattr(model, name) for name in given} == given
    assert model.n_iter_ == 1
    again = fit(cls(metadata(), **parameters))
    pd.testing.assert_frame_equal(again.sample(20)["t"], synthesizer.sample(20)["t"])


# ---- transformers and constraints ---------------------------------------------------------------


def test_transformers_can_be_chosen():
    synthesizer = make(TVAESynthesizer)
    synthesizer.auto_assign_transformers({"t": TABLE})
    assert type(synthesizer.get_transformers()["when"]).__name__ == "DateTransformer"
    synthesizer.update_transformers(
        {"kind": UniformEncoder(), "gap": FloatFormatter("mean", learn_rounding_scheme=True)}
    )
    fit(synthesizer)
    assert set(synthesizer._model.encoder_.categories_) == {"code", "flag", "level"}
    rows = synthesizer.sample(100)["t"]
    assert (rows.dtypes == TABLE.dtypes).all()
    assert set(rows["kind"].dropna()) == {"a", "b", "c"}
    assert rows["gap"].isna().any()


def test_processed_data_can_be_fitted(fitted):
    processed = make(type(fitted))
    processed.fit_processed_data(processed.preprocess({"t": TABLE}))
    fitted.reset_sampling()
    pd.testing.assert_frame_equal(processed.sample(20)["t"], fitted.sample(20)["t"])


def test_constraints_hold():
    table = TABLE[["amount", "count", "kind", "flag", "code"]].dropna().copy()
    table["most"] = table["amount"] + RNG.integers(0, 3, len(table))
    table["kind"] = np.where(table["code"] == 1, "a", table["kind"])
    names = ["amount", "count", "kind", "flag", "code"]
    sdtypes = {name: SDTYPES[name] for name in names} | {"most": "numerical"}
    synthesizer = make(combutab.generators.sdv.TabFlowSynthesizer, metadata(sdtypes))
    synthesizer.add_constraints([Inequality("amount", "most"), FixedCombinations(["kind", "code"])])
    rows = fit(synthesizer, table).sample(100)["t"]
    # SDV itself forgets here which columns are discrete
    assert {"kind#code", "flag"} <= set(synthesizer._model.encoder_.categories_)
    assert len(rows) == 100
    assert (rows["amount"] <= rows["most"]).all()
    known = set(table[["kind", "code"]].itertuples(index=False, name=None))
    assert set(rows[["kind", "code"]].itertuples(index=False, name=None)) <= known
    assert (rows.dtypes == table.dtypes).all()


# ---- losses -------------------------------------------------------------------------------------


def test_losses_and_their_plot(fitted):
    losses = fitted.get_loss_values()
    names = {
        "CTGANSynthesizer": ["Generator Loss", "Discriminator Loss"],
        "TVAESynthesizer": ["Loss"],
        "TabFlowSynthesizer": ["Codes Loss", "Values Loss"],
    }[type(fitted).__name__]
    assert losses.columns.tolist() == ["Epoch", *names]
    figure = fitted.get_loss_values_plot("As it went")
    assert [line.name for line in figure.data] == names
    for line in figure.data:
        np.testing.assert_array_equal(line.x, losses["Epoch"])
        np.testing.assert_array_equal(line.y, losses[line.name])
    assert figure.layout.title.text == "As it went"


# ---- files --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_new_process_loads_a_synthesizer(fitted, tmp_path):
    fitted.save(tmp_path / "synthesizer.pkl")
    fitted.reset_sampling()
    expected = fitted.sample(20)["t"]
    again = load_synthesizer(tmp_path / "synthesizer.pkl")
    again.reset_sampling()
    pd.testing.assert_frame_equal(again.sample(20)["t"], expected)
    if not isinstance(fitted, CTGANSynthesizer):
        return  # a process takes seconds: one is enough
    code = f"""
from sdv.utils import load_synthesizer
synthesizer = load_synthesizer({str(tmp_path / "synthesizer.pkl")!r})
synthesizer.reset_sampling()
synthesizer.sample(20)["t"].to_pickle({str(tmp_path / "rows.pkl")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=500)
    pd.testing.assert_frame_equal(pd.read_pickle(tmp_path / "rows.pkl"), expected)


# ---- conditions ---------------------------------------------------------------------------------


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
        {"kind": "c", "flag": True, "code": 3},
        {"flag": False, "level": "hi"},
        {"count": 3, "kind": "b"},
        {"count": 3, "amount": -0.25},
        {"when": pd.Timestamp("2020-02-02")},
    ],
    ids=str,
)
def test_conditions_are_met(fitted, condition):
    rows = fitted.sample_from_conditions([Condition(condition, num_rows=6)])["t"]
    assert len(rows) == 6
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


def test_sampler_conditions_on_the_rarest_value(fitted, asked):
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
    synthesizer = fit(make(combutab.generators.sdv.TabFlowSynthesizer))
    condition = Condition({"kind": "c", "code": 2, "flag": True}, num_rows=30)
    assert len(synthesizer.sample_from_conditions([condition])["t"]) == 30
    assert sum(call[0] for call in asked) == 30


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
    known = TABLE[["kind", "level"]].head(40)
    rows = fitted.sample_remaining_columns(known)["t"]
    assert len(rows) == 40
    expected = known.assign(kind=known["kind"].astype(object).where(known["kind"].notna(), np.nan))
    pd.testing.assert_frame_equal(rows[list(known)], expected)


def test_unknown_values_are_named(fitted):
    with pytest.raises(ValueError, match=r"'kind'.*'z'.*'a'.*'b'.*'c'"):
        fitted.sample_from_conditions([Condition({"kind": "z"}, num_rows=2)])
    with pytest.raises(ValueError, match="Unexpected column name 'sort'"):
        fitted.sample_from_conditions([Condition({"sort": "z"}, num_rows=2)])


def test_tries_are_bounded(fitted, asked):
    impossible = Condition({"amount": 1e6}, num_rows=3)
    with pytest.raises(ValueError, match="Unable to sample"):
        fitted.sample_from_conditions([impossible], max_tries_per_batch=2)
    assert sum(n for n, _, _ in asked) < 11_000
    # rows that can be made are made, in spite of others that cannot
    conditions = [Condition({"amount": 0.1}, num_rows=3), impossible]
    with pytest.warns(UserWarning, match="3 rows"):
        rows = fitted.sample_from_conditions(conditions, max_tries_per_batch=2)["t"]
    assert rows["amount"].tolist() == [0.1] * 3


def test_conditions_under_constraints(cls):
    table = TABLE[["amount", "kind", "code", "flag"]].dropna()
    # some combinations are rare
    sdtypes = {name: SDTYPES[name] for name in table.columns}
    synthesizer = make(cls, metadata(sdtypes), min_frequency=1)
    synthesizer.add_constraints([FixedCombinations(["kind", "code"])])
    fit(synthesizer, table)
    for condition in ({"kind": "c", "code": 2}, {"kind": "b", "flag": True}, {"flag": False}):
        rows = synthesizer.sample_from_conditions([Condition(condition, num_rows=10)])["t"]
        assert len(rows) == 10
        for column, value in condition.items():
            assert (rows[column] == value).all()
