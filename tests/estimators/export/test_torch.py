"""A fitted estimator as a torch module answers as the estimator does."""

import copy

import numpy as np
import pytest
import torch
from scipy.special import ndtri

from combutab import (
    MLPClassifier,
    MLPRegressor,
    PackRegressor,
    TabMClassifier,
    load,
)
from combutab.estimators._export import TableEncoding, normal_quantile
from combutab.preprocessing import TableEncoder
from tests.estimators.export.tables import mixed_table, new_rows

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
