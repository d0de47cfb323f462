"""A fitted generator's repr says what was learned, behind scikit-learn's."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline

import combutab
from combutab import TVAE, _model_files
from combutab._model_files import read_model
from combutab.training import Callback, TimeLimit

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"x": RNG.normal(size=1200), "kind": RNG.choice(["a", "b"], 1200)})
QUICK = {"batch_size": 600, "embedding_dim": 4, "compress_dims": (8,), "decompress_dims": (8,)}


def make(**params):
    return TVAE(**{**QUICK, "epochs": 2, "random_state": 0, **params})


class Interrupt(Callback):
    def on_epoch_end(self, report):
        raise KeyboardInterrupt


def said(model):
    parameters, comment = repr(model).split("  # fitted: ")
    assert parameters == BaseEstimator.__repr__(model)
    return comment


def test_rows_columns_and_epochs():
    assert said(make().fit(TABLE)) == "1,200 rows x 2 columns, 2 epochs"
    assert said(make(early_stopping=True).fit(TABLE)) == "1,200 rows x 2 columns, 2 epochs"
    assert said(make(epochs=1).fit(TABLE[["x"]])) == "1,200 rows x 1 column, 1 epoch"
    assert said(make().fit(np.full((9, 2), 7))) == "9 rows x 2 columns, 0 epochs"


@pytest.mark.parametrize(
    ("params", "end"),
    [
        ({"max_time": 1e-9}, "1 epoch, ended by max_time"),
        ({"callbacks": [TimeLimit(0.0)]}, "1 epoch, ended by a callback"),
    ],
)
def test_an_end_before_the_last_epoch(params, end):
    assert said(make(**params).fit(TABLE)) == f"1,200 rows x 2 columns, {end}"


def test_an_end_by_ctrl_c():
    with pytest.warns(UserWarning, match="interrupted"):
        model = make(callbacks=[Interrupt()]).fit(TABLE)
    assert said(model).endswith("1 epoch, ended by Ctrl-C")


def test_members_that_stopped_early():
    params = {"early_stopping": True, "n_iter_no_change": 1, "n_members": 3, "learning_rate": 0.05}
    model = make(**params, epochs=200).fit(TABLE)
    epochs = model.history_["member"].value_counts()
    assert epochs.min() < epochs.max() < 200
    trained = f"{epochs.min()} to {epochs.max()} epochs, ended by early stopping"
    assert said(model) == f"1,200 rows x 2 columns, {trained}"
    some = make(**params, epochs=int(epochs.max()) - 1).fit(TABLE)
    assert said(some).endswith(f"{epochs.min()} to {epochs.max() - 1} epochs")


def test_files_and_pickles_say_the_same(tmp_path):
    model, path = make(max_time=1e-9).fit(TABLE), tmp_path / "model"
    model.save(path)
    assert said(combutab.load(path)) == said(pickle.loads(pickle.dumps(model))) == said(model)
    header, arrays = read_model(path)
    header["fitted"]["_ended"] = "diverged"
    _model_files.write_model(path, header, arrays)
    with pytest.raises(ValueError, match="_ended"):
        combutab.load(path)


def test_within_others_it_is_scikit_learns_alone():
    model = make().fit(TABLE)
    assert "fitted" not in repr(make_pipeline(model))
    assert eval(repr(model)).get_params() == model.get_params()
    assert "Not fitted" not in model._repr_html_()
