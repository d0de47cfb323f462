"""Tensors, and arrays of the array API's standard, are tables like those of numpy."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.datasets import load_iris

from combutab import TVAE, MLPClassifier, MLPRegressor, PackClassifier, TabFlowImputer
from combutab.preprocessing import ModeEncoder, TableEncoder

X, Y = load_iris(return_X_y=True)
X = X.astype(np.float32)
WEIGHT = np.arange(150) % 3 + 0.0
QUICK = {"hidden_layer_sizes": (8,), "max_iter": 2, "n_iter_no_change": np.inf, "random_state": 0}
TINY = {"epochs": 1, "compress_dims": (4,), "decompress_dims": (4,), "random_state": 0}


def strict(array):
    """An array of a library that does what the standard says, and nothing else."""
    return pytest.importorskip("array_api_strict", reason="is not installed").asarray(array)


@pytest.fixture(params=["torch", "array_api_strict"])
def convert(request):
    return torch.tensor if request.param == "torch" else strict


def test_estimators_take_arrays_of_other_libraries(convert):
    rows, y, weight = convert(X), convert(Y), convert(WEIGHT)
    ours = MLPClassifier(**QUICK).fit(X, Y, WEIGHT, X, Y)
    theirs = MLPClassifier(**QUICK).fit(rows, y, weight, rows, y)
    predicted = theirs.predict_proba(rows)
    assert_array_equal(predicted, ours.predict_proba(X))
    assert predicted.dtype == np.float64
    assert theirs.score(rows, y) == ours.score(X, Y)
    again = MLPRegressor(**QUICK).partial_fit(rows, convert(WEIGHT + 1), weight)
    expected = MLPRegressor(**QUICK).partial_fit(X, WEIGHT + 1, WEIGHT)
    assert_array_equal(again.predict(rows), expected.predict(X))
    settings = {"n_members": 2, "max_iter": 1, "member_params": {"hidden_layer_sizes": (4,)}}
    packs = [
        PackClassifier(**settings, cv=2, random_state=0).fit(*data)
        for data in ((X, Y, WEIGHT), (rows, y, weight))
    ]
    assert_array_equal(packs[1].predict_proba(rows), packs[0].predict_proba(X))


def test_encoders_and_generators_take_them(convert):
    holes = np.where(np.arange(X.size).reshape(X.shape) % 7 == 0, np.nan, X)
    rows, incomplete = convert(X), convert(holes)
    assert_array_equal(TableEncoder().fit_transform(rows), TableEncoder().fit_transform(X))
    encoders = [ModeEncoder(random_state=0).fit(each) for each in (X, rows)]
    assert_array_equal(encoders[1].transform(rows), encoders[0].transform(X))
    tables = [TVAE(**TINY).fit(each).sample(5) for each in (X, rows)]
    assert_array_equal(tables[1], tables[0])
    filled = [
        TabFlowImputer(TVAE(**TINY), n_draws=1, random_state=0).fit_transform(each)
        for each in (holes, incomplete)
    ]
    assert_array_equal(filled[1], filled[0])


def test_tensors_that_numpy_does_not_hold():
    model = MLPClassifier(**QUICK).fit(torch.tensor(X, requires_grad=True), Y)
    assert_array_equal(model.predict_proba(X), MLPClassifier(**QUICK).fit(X, Y).predict_proba(X))
    short = torch.tensor(X).bfloat16()
    assert_array_equal(model.predict(short), model.predict(short.float().numpy()))
    with pytest.raises(TypeError, match=r"X is a sparse tensor of torch .*pass X.to_dense\(\)"):
        MLPClassifier(**QUICK).fit(torch.tensor(X).to_sparse(), Y)


def test_an_array_elsewhere_is_refused():
    xp = pytest.importorskip("array_api_strict", reason="is not installed")
    elsewhere = xp.asarray(X, device=xp.Device("device1"))
    with pytest.raises(TypeError, match=r"X is an array of array_api_strict .*move it to the CPU"):
        MLPClassifier(**QUICK).fit(elsewhere, Y)
    with pytest.raises(TypeError, match="y is an array of array_api_strict"):
        MLPClassifier(**QUICK).fit(X, xp.asarray(Y, device=xp.Device("device1")))
