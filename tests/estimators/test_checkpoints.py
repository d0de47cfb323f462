"""A fit that was stopped goes on to the model that it would have given in one go."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from combutab import MLPClassifier, MLPRegressor, TabMRegressor, _model_files, load
from combutab.training import Callback, TimeLimit

RNG = np.random.default_rng(0)
X = pd.DataFrame({"x": RNG.normal(size=240), "z": RNG.normal(size=240)})
Y = (X["x"] * X["z"]).to_numpy()
QUICK = {
    "hidden_layer_sizes": (8, 8),
    "max_iter": 5,
    "batch_size": 64,
    "random_state": 0,
    "n_iter_no_change": np.inf,
}


class StopAt(Callback):
    """Ends the fit with an error after an epoch; what is in memory is lost, as by a kill."""

    def __init__(self, epoch, error=RuntimeError):
        self.epoch, self.error = epoch, error

    def on_epoch_end(self, report):
        if report.epoch == self.epoch:
            raise self.error("stopped")


@pytest.fixture(autouse=True)
def every_epoch(monkeypatch):
    monkeypatch.setattr(_model_files, "SECONDS", 0.0)


def assert_same(model, other):
    for state, expected in zip(model._states, other._states, strict=True):
        assert state.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(state[name], value)
    for mine, theirs in zip(model._progress, other._progress, strict=True):
        assert mine["optimizer"].keys() == theirs["optimizer"].keys()
        for name, value in theirs["optimizer"].items():
            np.testing.assert_array_equal(mine["optimizer"][name], value)
        assert {**mine, "optimizer": None} == {**theirs, "optimizer": None}
    pd.testing.assert_frame_equal(model.history_, other.history_)
    np.testing.assert_array_equal(model.predict(X), other.predict(X))


CASES = {
    "the recipe": MLPRegressor(**QUICK, n_members=2, track_metric=True),
    "a rate that falls": MLPRegressor(
        **{**QUICK, "n_iter_no_change": 1, "max_iter": 7},
        solver="sgd",
        learning_rate="adaptive",
        tol=10.0,
        early_stopping=False,
    ),
    "members that end": MLPRegressor(
        **{**QUICK, "n_iter_no_change": 1, "tol": 0.001, "max_iter": 12},
        n_members=4,
        bagging="cv",
        activation="prelu",
        learning_rate="constant",
        learning_rate_init=0.02,
    ),
    "batch normalisation": MLPRegressor(**QUICK, normalization="batch", precision="float64"),
    "heads": TabMRegressor(**QUICK, n_heads=3),
}


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize("name", CASES)
def test_a_stopped_fit_goes_on(name, tmp_path):
    path, model = tmp_path / "training", CASES[name]
    whole = clone(model).fit(X, Y)
    for epoch in (2, 7 if model.max_iter == 12 else 4):  # members have ended then, of those that do
        with pytest.raises(RuntimeError, match="stopped"):
            clone(model).set_params(callbacks=[StopAt(epoch)]).fit(X, Y, checkpoint=path)
    assert [file.name for file in tmp_path.iterdir()] == ["training"]
    assert_same(clone(model).fit(X, Y, checkpoint=path), whole)
    before = path.read_bytes()
    assert_same(clone(model).fit(X, Y, checkpoint=path), whole)  # nothing is left to train
    assert path.read_bytes() == before
    if name == "members that end":
        n_epochs = whole.history_["member"].value_counts()
        assert n_epochs.min() < 7 < n_epochs.max()


def test_a_callback_that_stops_leaves_a_file_to_go_on_from(tmp_path):
    path, model = tmp_path / "training", MLPRegressor(**QUICK)
    stopped = clone(model).set_params(callbacks=[TimeLimit(1e-9)]).fit(X, Y, checkpoint=path)
    assert stopped.n_iter_ == 1
    assert_same(clone(model).fit(X, Y, checkpoint=path), clone(model).fit(X, Y))


def test_without_a_seed_it_is_the_files(tmp_path):
    path, model = tmp_path / "training", MLPRegressor(**{**QUICK, "random_state": None})
    with pytest.raises(RuntimeError, match="stopped"):
        clone(model).set_params(callbacks=[StopAt(2)]).fit(X, Y, checkpoint=path)
    first = clone(model).fit(X, Y, checkpoint=path)
    assert_same(clone(model).fit(X, Y, checkpoint=path), first)


def test_files_of_others_are_refused(tmp_path, monkeypatch):
    path, model = tmp_path / "training", MLPRegressor(**QUICK)
    clone(model).fit(X, Y, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"alpha=0\.0, this one has alpha=1\.0"):
        clone(model).set_params(alpha=1.0).fit(X, Y, checkpoint=path)
    with pytest.raises(ValueError, match="another table"):
        clone(model).fit(X, Y[::-1], checkpoint=path)
    with pytest.raises(ValueError, match="class 'MLPRegressor', this training is of"):
        MLPClassifier(**QUICK).fit(X, Y > 0, checkpoint=path)
    with pytest.raises(ValueError, match="is a checkpoint of a training"):
        load(path)
    with pytest.raises(FileNotFoundError, match="create it first"):
        clone(model).fit(X, Y, checkpoint=tmp_path / "no" / "training")
    for other in ({"solver": "lbfgs"}, {"warm_start": True}):
        with pytest.raises(ValueError, match="takes no checkpoint"):
            clone(model).set_params(**other).fit(X, Y, checkpoint=path)
    assert path.read_bytes() == before

    path.write_bytes(before[:-40])
    with pytest.raises(ValueError, match="cut short"):
        clone(model).fit(X, Y, checkpoint=path)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    path.unlink()
    monkeypatch.setattr(_model_files, "write_model", full)
    with pytest.warns(UserWarning, match="could not be written .* No space left"):
        fitted = clone(model).fit(X, Y, checkpoint=path)
    assert_same(fitted, clone(model).fit(X, Y))
    assert not list(tmp_path.iterdir())
