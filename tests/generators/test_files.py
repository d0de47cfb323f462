"""Generators as files: what comes back samples the same rows, and nothing is ever half there."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline

import combutab
from combutab import CTGAN, TVAE
from combutab.core.files import read_model, write_model
from combutab.training import TimeLimit
from tests.generators.small import EVERY, make
from tests.models import Told

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "x": RNG.normal(size=120).round(3),
        "kind": RNG.choice(["a", "b"], 120),
        "level": pd.Categorical(RNG.choice(["lo", "hi"], 120), ["lo", "hi"], ordered=True),
        "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 99, 120), unit="D"),
    }
)
TABLE.loc[::9, "x"] = np.nan


@EVERY
def test_the_file_holds_no_row_and_no_code(cls, tmp_path):
    make(cls, epochs=1).fit(TABLE).save(tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    for value in np.sort(TABLE["x"].dropna().unique())[1:-1]:
        assert np.float64(value).tobytes() not in data
    with safe_open(tmp_path / "model", framework="numpy") as file:
        header = json.loads(file.metadata()["combutab"][64:])
        assert all(file.get_tensor(name).dtype.kind in "fiu" for name in file.keys())  # noqa: SIM118
    assert header["class"] == cls.__name__


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda header, arrays: arrays.pop("member.0.linears.0.weight"), "model is damaged"),
        (lambda header, arrays: arrays.pop("encoder.columns.0.mixture.means"), "model is damaged"),
        *(
            (
                lambda header, arrays, name=name: header["as_fitted"].update({name: 10**12}),
                "model is damaged: its header asks for .*0000",
            )
            for name in ("embedding_dim", "n_members")
        ),
    ],
)
def test_a_file_that_lacks_an_array_is_refused(damage, says, tmp_path):
    make(CTGAN, epochs=1).fit(TABLE).save(tmp_path / "model")
    header, arrays = read_model(tmp_path / "model")
    damage(header, arrays)
    write_model(tmp_path / "model", header, arrays)
    with pytest.raises(ValueError, match=says):
        CTGAN.load(tmp_path / "model")


# ---- A fitted generator's repr says what was learned, behind scikit-learn's ----------------------


LONG_RNG = np.random.default_rng(0)
LONG = pd.DataFrame({"x": LONG_RNG.normal(size=1200), "kind": LONG_RNG.choice(["a", "b"], 1200)})


def small(**params):
    return make(TVAE, batch_size=600, **params)


def said(model):
    parameters, comment = repr(model).split("  # fitted: ")
    assert parameters == BaseEstimator.__repr__(model)
    return comment


def test_rows_columns_and_epochs():
    assert said(small().fit(LONG)) == "1,200 rows x 2 columns, 2 epochs"
    assert said(small(early_stopping=True).fit(LONG)) == "1,200 rows x 2 columns, 2 epochs"
    assert said(small(epochs=1).fit(LONG[["x"]])) == "1,200 rows x 1 column, 1 epoch"
    assert said(small().fit(np.full((9, 2), 7))) == "9 rows x 2 columns, 0 epochs"


@pytest.mark.parametrize(
    ("params", "end"),
    [
        ({"max_time": 1e-9}, "1 epoch, ended by max_time"),
        ({"callbacks": [TimeLimit(0.0)]}, "1 epoch, ended by a callback"),
    ],
)
def test_an_end_before_the_last_epoch(params, end):
    assert said(small(**params).fit(LONG)) == f"1,200 rows x 2 columns, {end}"


def test_an_end_by_ctrl_c():
    with pytest.warns(UserWarning, match="interrupted"):
        model = small(callbacks=[Told(KeyboardInterrupt(), 1)]).fit(LONG)
    assert said(model).endswith("1 epoch, ended by Ctrl-C")


def test_members_that_stopped_early():
    params = {"early_stopping": True, "n_iter_no_change": 1, "n_members": 3, "learning_rate": 0.05}
    model = small(**params, epochs=200).fit(LONG)
    epochs = model.history_["member"].value_counts()
    assert epochs.min() < epochs.max() < 200
    trained = f"{epochs.min()} to {epochs.max()} epochs, ended by early stopping"
    assert said(model) == f"1,200 rows x 2 columns, {trained}"
    some = small(**params, epochs=int(epochs.max()) - 1).fit(LONG)
    assert said(some).endswith(f"{epochs.min()} to {epochs.max() - 1} epochs")


def test_files_and_pickles_say_the_same(tmp_path):
    model, path = small(max_time=1e-9).fit(LONG), tmp_path / "model"
    model.save(path)
    assert said(combutab.load(path)) == said(pickle.loads(pickle.dumps(model))) == said(model)
    header, arrays = read_model(path)
    header["fitted"]["_ended"] = "diverged"
    write_model(path, header, arrays)
    with pytest.raises(ValueError, match="_ended"):
        combutab.load(path)


def test_within_others_it_is_scikit_learns_alone():
    model = small().fit(LONG)
    assert "fitted" not in repr(make_pipeline(model))
    assert eval(repr(model)).get_params() == model.get_params()
    assert "Not fitted" not in model._repr_html_()
