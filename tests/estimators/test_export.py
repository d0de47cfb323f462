"""A fitted estimator as a torch module, and as an ONNX model, answers as the estimator does."""

import copy
import importlib.util
import json
import os

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import ndtri
from torch import nn

from combutab import (
    ACTIVATIONS,
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    TabMClassifier,
    load,
)
from combutab.estimators._export import TableEncoding, _Inputs, _texts, export, normal_quantile
from combutab.preprocessing import TableEncoder

needs_onnx = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("onnx", "onnxruntime", "onnxscript"))),
    reason="needs onnx, onnxruntime and onnxscript",
)


def mixed_table(n=60):
    """Numbers, truths, dates, durations, few and many categories, numbers for categories; gaps."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "size": rng.lognormal(size=n),
            "steps": rng.integers(0, 4, n).astype(float),
            "same": 3.0,
            "open": rng.random(n) < 0.5,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, n), unit="D"),
            "kind": rng.choice(["a", "b", "label"], n),
            "town": rng.choice([f"town {i}" for i in range(9)], n),
            "floor": pd.Categorical(rng.integers(-1, 3, n)),
            "sold": pd.date_range("1999-01-01", periods=n, freq="1001h", tz="America/New_York"),
        }
    )
    table.loc[::7, "size"] = np.nan
    table.loc[::11, "day"] = pd.NaT
    table.loc[::9, "kind"] = None
    return table


def new_rows(table):
    """Rows with gaps where there were none, unseen categories, and numbers beyond the range."""
    rows = table.head(12).copy()
    rows.loc[0, "steps"] = np.nan
    rows.loc[1, "size"] = 1e9
    rows.loc[2, "size"] = -1e150
    rows.loc[3, "town"] = None
    rows.loc[4, ["town", "kind"]] = "none that was seen"
    rows["floor"] = rows["floor"].cat.add_categories([17])
    rows.loc[5, "floor"] = 17
    rows.loc[6, "floor"] = None
    return rows


DATE_PARTS = ["hour", "dayofweek", "day", "month", "dayofyear"]
SHORT = {"max_iter": 2, "n_iter_no_change": float("inf"), "random_state": 0}


TABLE = mixed_table()


Y = np.nan_to_num(TABLE["size"].to_numpy()) + TABLE["open"]


def answers(estimator):
    return getattr(estimator, "predict_proba", estimator.predict)


def check(estimator, rows, tolerance=1e-6):
    module, expected = estimator.to_torch(), answers(estimator)(rows)
    found = module(*module.encode(rows)).detach().numpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    return module


@pytest.mark.parametrize("numeric", ["standard", "quantile", "robust", "none"])
def test_encoding_is_the_encoders(numeric):
    encoder = TableEncoder(numeric=numeric, max_onehot=4, min_frequency=2).fit(TABLE)
    rows = new_rows(TABLE)
    numbers, codes = map(torch.from_numpy, encoder.read(rows))
    dense, coded = TableEncoding(encoder)(numbers, codes)
    expected = encoder.encode(rows)
    np.testing.assert_allclose(dense, expected.dense, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(coded, expected.codes)
    assert expected.codes.shape == (12, 1)  # town


def test_encoding_of_copies_in_single_precision():
    X = np.tile([[0.1, 12345678.0], [0.4, 12345679.0], [0.7, 5.0]], (20, 1))
    encoder = TableEncoder(numeric="quantile").fit(X)
    copies = torch.from_numpy(X.astype(np.float32).astype(np.float64))
    for rows in (torch.from_numpy(X), copies):
        dense, _ = TableEncoding(encoder)(rows, None)
        np.testing.assert_allclose(dense, encoder.encode(X).dense, rtol=1e-6)


def dated_table(n=2_000):
    """Hours, seconds and days of many years, and a number with ties in its middle."""
    rng = np.random.default_rng(0)
    seconds = pd.to_timedelta(rng.integers(0, 10**8, n), "s")
    return pd.DataFrame(
        {
            "hours": pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 48_000, n), "h"),
            "seconds": (pd.Timestamp("2019-01-01", tz="UTC") + seconds).tz_convert("Europe/Rome"),
            "days": pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 40_000, n), "D"),
            "waited": pd.to_timedelta(rng.integers(0, 1_000, n), "min"),
            "ties": np.where(rng.random(n) < 0.4, 0.3, rng.normal(0.3, size=n)),
        }
    )


@pytest.mark.parametrize("numeric", ["standard", "quantile", "robust", "none"])
def test_dates_and_numbers_are_encoded_without_any_difference(numeric):
    table = dated_table()
    encoder = TableEncoder(numeric=numeric, date_features=["number", *DATE_PARTS]).fit(table)
    numbers = torch.from_numpy(encoder.read(table)[0])
    expected = encoder.encode(table).dense
    np.testing.assert_array_equal(TableEncoding(encoder)(numbers, None)[0], expected)
    circles = expected[:, table.shape[1] :]
    assert circles.shape[1] == 30
    assert not ((np.abs(circles) < 1e-9) & (circles != 0)).any()


def test_trees_of_dates_have_no_thresholds_between_roundings():
    table = dated_table(400)[["hours", "ties"]]
    hour = table["hours"].dt.hour
    busy = (hour >= 12) & (hour < 18)
    pack = PackClassifier(n_members=3, max_iter=2, random_state=0).fit(table, busy)
    module = check(pack, table)
    assert len(module.trees)
    thresholds = np.concatenate([trees.get_buffer("threshold").numpy() for trees in module.trees])
    assert not ((np.abs(thresholds) < 1e-9) & (thresholds != 0)).any()


def test_normal_quantiles():
    p = np.concatenate([np.logspace(-7, -0.31, 200), 1 - np.logspace(-7, -0.31, 200)])
    np.testing.assert_allclose(normal_quantile(torch.from_numpy(p)), ndtri(p), rtol=1e-13)


@pytest.mark.parametrize(
    "estimator",
    [
        MLPClassifier((6,), max_onehot=4, activation="pln-2", n_members=2, **SHORT),
        TabMClassifier((6,), n_heads=3, n_bins=4, numeric_embedding_dim=3, **SHORT),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_classifiers(estimator):
    labels = np.array(["few", "some", "many"])[np.digitize(Y, [0.8, 1.6])]
    check(estimator.fit(TABLE, labels), new_rows(TABLE))


@pytest.mark.parametrize("y", [np.zeros(60), Y > 1, np.stack([Y > 1, Y > 2], 1)])
def test_one_two_and_many_labels(y):
    clf = MLPClassifier((4,), **SHORT).fit(TABLE[["size"]], y)
    check(clf, TABLE[["size"]])
    assert clf.out_activation_ == "logistic"


@pytest.mark.parametrize("loss", ["squared_error", "poisson", "quantile", "gaussian_nll"])
def test_losses_of_regressors(loss):
    X = np.random.default_rng(0).normal(size=(40, 2))
    targets = 1e6 * np.abs(X) if loss == "squared_error" else np.abs(X[:, 0])
    check(MLPRegressor(loss, (4,), **SHORT).fit(X, targets), 3 * X)


def test_a_pack_is_loaded_trained_on_and_copied(tmp_path):
    pack = PackRegressor(
        n_members=3,
        activations=["combu", "combu-random", "dyt"],
        max_iter=2,
        member_params={"hidden_layer_sizes": (6, 6)},
        random_state=0,
    ).fit(TABLE, Y)
    pack.save(tmp_path / "pack.safetensors")
    before = pack.predict(TABLE)
    module = check(load(tmp_path / "pack.safetensors"), new_rows(TABLE))
    numbers, codes = module.encode(TABLE)
    numbers.requires_grad_()
    twin = copy.deepcopy(module)
    module(numbers, codes).sum().backward()
    assert numbers.grad.isfinite().all()
    assert numbers.grad.any()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 1.0
    with torch.no_grad():
        assert not torch.allclose(module(numbers, codes), twin(numbers, codes))
    np.testing.assert_array_equal(pack.predict(TABLE), before)
    # each tensor has its own memory, as a file of them needs
    storages = [tensor.untyped_storage().data_ptr() for tensor in twin.parameters()]
    assert len(set(storages)) == len(storages)


def test_what_cannot_be_read_is_refused():
    module = MLPClassifier((4,), **SHORT).fit(TABLE[["size"]], Y > 1).to_torch()
    with pytest.raises(ValueError, match="infinity"):
        module.encode(TABLE[["size"]].replace(np.nan, np.inf))
    with pytest.raises(ValueError, match="feature names"):
        module.encode(TABLE[["steps"]])


# ---- ONNX, in onnxruntime ------------------------------------------------------------------------


def runner(model):
    """A function that computes the outputs of an ONNX model."""
    import onnxruntime as runtime

    session = runtime.InferenceSession(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(names, feed), strict=True))


def feed_of(rows):
    """What the inputs of ``mixed_table``'s model take, by their documentation."""
    feed = {name: rows[[name]].to_numpy(np.float64) for name in ("size", "steps", "same", "open")}
    texts = {name: rows[[name]].fillna("").to_numpy(object) for name in ("kind", "town")}
    floors = rows[["floor"]].astype(float).to_numpy()
    times = {name: rows[[name]].astype("int64").to_numpy() for name in ("day", "sold")}
    return feed | texts | times | {"floor": floors}


BUDGET = int(os.environ.get("COMBUTAB_TRUST_BUDGET", "1"))


# a name of each way to compute; to export all takes a quarter of a minute
SOME = ["combu-random", "pln-2", "la-hardsilu", "rational", "blend-relu"]


@pytest.mark.slow
@needs_onnx
def test_a_pack_of_activations_on_a_mixed_table(tmp_path):
    import onnx

    names = SOME if BUDGET == 1 else [*ACTIVATIONS, "blend-pln-2"]
    table, labels = TABLE[:48], np.array(["few", "some", "many"])[np.digitize(Y, [0.8, 1.6])][:48]
    clf = PackClassifier(
        n_members=len(names),
        activations=names,
        max_ensemble_size=len(names),  # of so few rows none are set aside, and all are chosen
        max_iter=1,
        member_params={
            "hidden_layer_sizes": (8,),
            "numeric_encoding": "quantile",
            "numeric_embedding": "piecewise-linear",
            "numeric_embedding_dim": 2,
            "n_bins": 3,
            "frequency_scale": 0.1,
            "max_onehot": 4,
            "min_frequency": 2,
        },
        random_state=0,
    ).fit(table, labels)
    assert set(clf.members_["activation"][clf.members_["weight"] > 0]) == set(names)
    path = tmp_path / "clf.onnx"
    clf.to_onnx(path)
    assert [each.name for each in tmp_path.iterdir()] == ["clf.onnx"]
    model = onnx.load(path)
    run = runner(model)
    for rows in (new_rows(table), table, table.head(1)):
        found = run(feed_of(rows))
        expected = clf.predict_proba(rows)
        np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
        np.testing.assert_array_equal(found["label"], clf.predict(rows))
    (told,) = [json.loads(each.value) for each in model.metadata_props]
    assert told["class"] == "PackClassifier"
    wanted = {"input": "kind", "column": "kind", "kind": "category", "missing": ""}
    assert told["inputs"][5] == wanted


TIMES = {  # a dtype of a column, and the unit that its input counts in
    "datetime64[s]": "s",
    "datetime64[us]": "us",
    "datetime64[ns, Europe/Rome]": "ns",
    "timestamp[ms][pyarrow]": "ms",
    "timedelta64[ms]": "ms",
}


def timed_table(n=40):
    hours = pd.Series(pd.to_timedelta(np.arange(n) * 1001, "h"))
    dates = hours + pd.Timestamp("2015-03-01 06:00")
    rome = "datetime64[ns, Europe/Rome]"
    columns = {rome: dates.dt.tz_localize("UTC").dt.tz_convert("Europe/Rome")}
    for dtype in TIMES.keys() - {rome}:
        columns[dtype] = (hours if dtype.startswith("timedelta") else dates).astype(dtype)
    return pd.DataFrame({dtype: columns[dtype] for dtype in TIMES})


@needs_onnx
def test_onnx_uses_the_time_unit_of_column():
    pytest.importorskip("pyarrow")
    table, y = timed_table(), 1e7 * np.arange(40.0)
    table.loc[3] = pd.NaT
    settings = {"numeric_encoding": "robust", "date_features": ["number"], **SHORT}
    settings |= {"activation": "mish", "normalization": "layer"}
    # the moments of proxy normalisation are sampled
    model = MLPRegressor(hidden_layer_sizes=(4,), proxy_norm=True, **settings)
    exported = model.fit(table, y).to_onnx()
    run = runner(exported)
    (inputs,) = [json.loads(each.value)["inputs"] for each in exported.metadata_props]
    assert {each["column"]: each["unit"] for each in inputs} == TIMES
    assert {each["missing"] for each in inputs} == {np.iinfo(np.int64).min}
    plain = table.astype({"timestamp[ms][pyarrow]": "datetime64[ms]"})
    feed = {name: plain[[name]].astype("int64").to_numpy() for name in TIMES}
    found = run(feed)["variable"][:, 0]
    np.testing.assert_allclose(found, model.predict(table), rtol=1e-5)
    with pytest.raises(Exception, match="Unexpected input data type"):
        run({name: counts.astype(np.float64) for name, counts in feed.items()})
    feed = {name: counts[4:8] for name, counts in feed.items()}
    for name in ("datetime64[s]", "datetime64[us]", "timestamp[ms][pyarrow]"):
        for factor in (1e-6, 1e-3, 1e3):
            with pytest.raises(Exception, match=r"int64.*unit"):
                run(feed | {name: (feed[name] * factor).astype(np.int64)})
    # of the right unit, far away, and zero, which is zero in all units
    far = np.array(["1900-01-01", "2100-01-01", "1970-01-01", "9999-12-31"], "datetime64[s]")
    feed["datetime64[s]"] = far.view(np.int64)[:, None]
    assert np.isfinite(run(feed)["variable"]).all()


def test_torch_module_refuses_other_date_units():
    table = timed_table()[["datetime64[us]"]]
    model = MLPRegressor(hidden_layer_sizes=(4,), **SHORT).fit(table, np.arange(40.0))
    module = model.to_torch()
    numbers = torch.from_numpy(table.astype("int64").to_numpy().astype(np.float64))
    assert module(numbers / 1e6).isfinite().all()
    for factor in (1e-3, 1.0, 1e3):
        with pytest.raises(ValueError, match=r"column 0.*seconds"):
            module(numbers * factor)


class Dense(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoding = TableEncoding(encoder)

    def forward(self, numbers):
        return self.encoding(numbers, None)[0]


@needs_onnx
def test_onnx_encodes_dates_without_any_difference():
    table = dated_table()[["seconds", "waited", "ties"]]
    parts = ["number", "dayofweek", "dayofyear"]
    encoder = TableEncoder(numeric="quantile", date_features=parts).fit(table)
    numbers = encoder.read(table)[0]
    model = export([torch.from_numpy(numbers[:2])], Dense(encoder).eval())
    (dense,) = runner(model)({model.graph.input[0].name: numbers}).values()
    np.testing.assert_array_equal(dense, encoder.encode(table).dense)


class Branching(nn.Module):
    """Which operations are done with a row depends on its values."""

    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        return torch.stack([row if row.sum() > 0 else -row for row in x])


@pytest.mark.slow
@needs_onnx
def test_what_onnx_cannot_express_is_named(tmp_path):
    clf = MLPClassifier((4,), activation=Branching, **SHORT).fit(TABLE[["size"]], Y > 1)
    (tmp_path / "clf.onnx").write_text("kept")
    with pytest.raises(ValueError, match="ONNX"):
        clf.to_onnx(tmp_path / "clf.onnx")
    assert (tmp_path / "clf.onnx").read_text() == "kept"
    with pytest.raises(FileNotFoundError):
        clf.to_onnx(tmp_path / "none" / "clf.onnx")


def test_exported_columns_with_odd_names_and_types():
    table = pd.DataFrame({"label": [1.0] * 9, "label_": [2.0] * 9, "kind": ["", "a", "b"] * 3})
    inputs = _Inputs()
    inputs.add_columns(TableEncoder(min_frequency=1).fit(table))
    assert [each["input"] for each in inputs.described] == ["label__", "label_", "kind"]
    assert inputs.described[2]["missing"] == "<missing>"
    mixed = pd.DataFrame({"kind": pd.Series(["1", 1, "a"] * 3, dtype=object)})
    with pytest.raises(ValueError, match=r"'kind'.*'1'"):
        _Inputs().add_columns(TableEncoder(min_frequency=1).fit(mixed))


def test_bytes_are_the_text_that_they_are():
    assert _texts({b"a": 0, b"\xff": 1, 3: 2}, "kind") == ["a", r"b'\xff'", "3"]
    with pytest.raises(ValueError, match="'a'"):
        _texts({b"a": 0, "a": 1}, "kind")
