"""A fitted estimator as an ONNX model answers as the estimator does, in onnxruntime."""

import json
import os

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from combutab import ACTIVATIONS, MLPClassifier, MLPRegressor, PackClassifier
from tests.estimators.export.tables import new_rows
from tests.estimators.export.test_torch import SHORT, TABLE, Y

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")


def run(model, feed):
    session = runtime.InferenceSession(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def feed_of(rows):
    """What the inputs of ``mixed_table``'s model take, by their documentation."""
    feed = {name: rows[[name]].to_numpy(np.float64) for name in ("size", "steps", "same", "open")}
    seconds = (rows[["day"]] - pd.Timestamp(0)) / pd.Timedelta(seconds=1)
    texts = {name: rows[[name]].fillna("").to_numpy(object) for name in ("kind", "town")}
    floors = rows[["floor"]].astype(float).to_numpy()
    return feed | texts | {"day": seconds.to_numpy(), "floor": floors}


BUDGET = int(os.environ.get("COMBUTAB_TRUST_BUDGET", "1"))
# a name of each way to compute; to export all takes a quarter of a minute
SOME = ["combu-random", "pln-2", "la-hardsilu", "rational", "blend-relu"]


def test_a_pack_of_activations_on_a_mixed_table(tmp_path):
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
    for rows in (new_rows(table), table, table.head(1)):
        found = run(model, feed_of(rows))
        expected = clf.predict_proba(rows)
        np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
        np.testing.assert_array_equal(found["label"], clf.predict(rows))
    (told,) = [json.loads(each.value) for each in model.metadata_props]
    assert told["class"] == "PackClassifier"
    assert told["inputs"][5] == {
        "input": "kind",
        "column": "kind",
        "kind": "category",
        "missing": "",
    }


def test_a_regressor_of_numbers_alone():
    X = np.random.default_rng(0).normal(size=(40, 2)) * 1e3
    X[::5, 1] = np.nan
    reg = MLPRegressor(
        hidden_layer_sizes=(4,),
        activation="mish",
        normalization="layer",
        proxy_norm=True,  # by sampled moments
        numeric_encoding="standard",
        **SHORT,
    ).fit(X, 1e7 * np.nan_to_num(X[:, 0]))
    (variable,) = run(reg.to_onnx(), {"X": X}).values()
    np.testing.assert_allclose(variable[:, 0], reg.predict(X), rtol=1e-5)


def test_copies_in_single_precision_count_as_the_numbers():
    X = np.tile([[0.1], [0.4], [0.7]], (30, 1))
    reg = MLPRegressor(hidden_layer_sizes=(4,), numeric_encoding="quantile", **SHORT)
    reg.fit(X, (X[:, 0] == 0.4) + 0.0)
    model, copies = reg.to_onnx(), X.astype(np.float32).astype(np.float64)
    (found,), (of_copies,) = (run(model, {"X": each}).values() for each in (X, copies))
    np.testing.assert_array_equal(of_copies, found)
    np.testing.assert_allclose(found[:, 0], reg.predict(X), rtol=1e-5)


class Branching(nn.Module):
    """Which operations are done with a row depends on its values."""

    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        return torch.stack([row if row.sum() > 0 else -row for row in x])


def test_what_cannot_be_expressed_is_named(tmp_path):
    clf = MLPClassifier((4,), activation=Branching, **SHORT).fit(TABLE[["size"]], Y > 1)
    (tmp_path / "clf.onnx").write_text("kept")
    with pytest.raises(ValueError, match=r"activation=.*Branching.* cannot be expressed in ONNX"):
        clf.to_onnx(tmp_path / "clf.onnx")
    assert (tmp_path / "clf.onnx").read_text() == "kept"
    with pytest.raises(FileNotFoundError):
        clf.to_onnx(tmp_path / "none" / "clf.onnx")


def test_columns_that_are_named_like_outputs_or_hold_several_types():
    from combutab.estimators._export import _Inputs
    from combutab.preprocessing import TableEncoder

    table = pd.DataFrame({"label": [1.0] * 9, "label_": [2.0] * 9, "kind": ["", "a", "b"] * 3})
    inputs = _Inputs()
    inputs.add_columns(TableEncoder(min_frequency=1).fit(table))
    assert [each["input"] for each in inputs.told] == ["label__", "label_", "kind"]
    assert inputs.told[2]["missing"] == "<missing>"
    mixed = pd.DataFrame({"kind": pd.Series(["1", 1, "a"] * 3, dtype=object)})
    with pytest.raises(ValueError, match="'kind' has two categories that are written '1'"):
        _Inputs().add_columns(TableEncoder(min_frequency=1).fit(mixed))


def test_bytes_are_the_text_that_they_are():
    from combutab.estimators._export import _texts

    assert _texts({b"a": 0, b"\xff": 1, 3: 2}, "kind") == ["a", r"b'\xff'", "3"]
    with pytest.raises(ValueError, match="two categories that are written 'a'"):
        _texts({b"a": 0, "a": 1}, "kind")
