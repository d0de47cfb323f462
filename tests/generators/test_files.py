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
from combutab import CTGAN, TVAE, MLPClassifier, _model_files
from combutab._model_files import read_model
from combutab.activations import CombU
from combutab.core.files import write_tensors
from combutab.training import TimeLimit
from tests.generators.small import EVERY, InterruptAt, make

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


def test_errors_of_files(tmp_path):
    model = make(CTGAN, epochs=1).fit(TABLE)
    with pytest.raises(FileNotFoundError, match="create it first"):
        model.save(tmp_path / "no" / "model")
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="holds a CTGAN, not a TVAE"):
        TVAE.load(tmp_path / "model")
    with pytest.raises(ValueError, match="holds a CTGAN, not a MLPClassifier"):
        MLPClassifier.load(tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="cut short"):
        CTGAN.load(tmp_path / "cut")
    with pytest.raises(ValueError, match="not fitted"):
        CTGAN().save(tmp_path / "model")
    own = make(CTGAN, epochs=1, activation=lambda width: CombU(width)).fit(TABLE)
    with pytest.raises(ValueError, match=r"activation=.*without code"):
        own.save(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == data
    assert {path.name for path in tmp_path.iterdir()} == {"model", "cut"}


@pytest.mark.parametrize("name", ["member.0.linears.0.weight", "encoder.columns.0.mixture.means"])
def test_a_file_that_lacks_an_array_is_refused(name, tmp_path):
    from safetensors.numpy import load_file

    make(CTGAN, epochs=1).fit(TABLE).save(tmp_path / "model")
    with safe_open(tmp_path / "model", framework="numpy") as file:
        metadata = file.metadata()
    arrays = load_file(tmp_path / "model")
    del arrays[name]
    write_tensors(tmp_path / "less", "combutab", metadata["combutab"][64:], arrays)
    with pytest.raises(ValueError, match="less is damaged"):
        CTGAN.load(tmp_path / "less")


def test_a_header_that_asks_for_a_giant_is_refused_before_it_is_built(tmp_path):
    from safetensors.numpy import load_file

    make(CTGAN, epochs=1).fit(TABLE).save(tmp_path / "model")
    with safe_open(tmp_path / "model", framework="numpy") as file:
        header = json.loads(file.metadata()["combutab"][64:])
    arrays = load_file(tmp_path / "model")
    for name in ("embedding_dim", "n_members"):
        wrong = json.loads(json.dumps(header))
        wrong["as_fitted"][name] = 10**12
        write_tensors(tmp_path / "giant", "combutab", json.dumps(wrong), arrays)
        with pytest.raises(ValueError, match=r"giant is damaged: its header asks for .*0000"):
            CTGAN.load(tmp_path / "giant")


def test_where_a_model_is_written(tmp_path):
    model = make(CTGAN, epochs=1).fit(TABLE)
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "model")
    model.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "there" / "model").chmod(0o600)
    model.save(tmp_path / "link")
    assert (tmp_path / "there" / "model").stat().st_mode & 0o777 == 0o600
    for call in (model.save, CTGAN.load):
        with pytest.raises(IsADirectoryError, match="there' is a directory"):
            call(tmp_path / "there")


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
        model = small(callbacks=[InterruptAt(1)]).fit(LONG)
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
    _model_files.write_model(path, header, arrays)
    with pytest.raises(ValueError, match="_ended"):
        combutab.load(path)


def test_within_others_it_is_scikit_learns_alone():
    model = small().fit(LONG)
    assert "fitted" not in repr(make_pipeline(model))
    assert eval(repr(model)).get_params() == model.get_params()
    assert "Not fitted" not in model._repr_html_()
