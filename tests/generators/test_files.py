"""Generators as files: what comes back samples the same rows, and nothing is ever half there."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open

import combutab
from combutab import CTGAN, TVAE, MLPClassifier, TabFlow
from combutab.activations import CombU

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
QUICK = {"epochs": 1, "batch_size": 40, "embedding_dim": 8, "random_state": 0}
FLOW = {"epochs": 1, "batch_size": 40, "hidden_layer_sizes": (16,), "random_state": 0}
BOTH = pytest.mark.parametrize("cls", [CTGAN, TVAE, TabFlow])


@BOTH
@pytest.mark.parametrize("table", [TABLE, TABLE[["x"]].to_numpy(), TABLE.assign(x=1)[["x"]]])
def test_what_comes_back_samples_the_same(cls, table, tmp_path):
    model = cls(**(FLOW if cls is TabFlow else QUICK), n_members=2, activation="prelu").fit(table)
    first = model.sample(7)
    model.save(tmp_path / "model")
    for again in (cls.load(tmp_path / "model"), combutab.load(tmp_path / "model", device="cpu")):
        assert type(again) is cls
        expected, got = (m.sample(30, random_state=1) for m in (model, again))
        pd.testing.assert_frame_equal(pd.DataFrame(expected), pd.DataFrame(got))
        pd.testing.assert_frame_equal(again.history_, model.history_)
        assert again.get_params() | {"device": "auto"} == model.get_params()
    following = model.sample(7)
    pd.testing.assert_frame_equal(pd.DataFrame(again.sample(7)), pd.DataFrame(following))
    assert len(first) == 7
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@BOTH
def test_the_file_holds_no_row_and_no_code(cls, tmp_path):
    cls(**(FLOW if cls is TabFlow else QUICK)).fit(TABLE).save(tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    for value in np.sort(TABLE["x"].dropna().unique())[1:-1]:
        assert np.float64(value).tobytes() not in data
    with safe_open(tmp_path / "model", framework="numpy") as file:
        header = json.loads(file.metadata()["combutab"])
        assert all(file.get_tensor(name).dtype.kind in "fiu" for name in file.keys())  # noqa: SIM118
    assert header["class"] == cls.__name__


def test_errors_of_files(tmp_path):
    model = CTGAN(**QUICK).fit(TABLE)
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
    own = CTGAN(**QUICK, activation=lambda width: CombU(width)).fit(TABLE)
    with pytest.raises(ValueError, match=r"activation=.*without code"):
        own.save(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == data
    assert {path.name for path in tmp_path.iterdir()} == {"model", "cut"}


@pytest.mark.parametrize("name", ["member.0.linears.0.weight", "encoder.means.0"])
def test_a_file_that_lacks_an_array_is_refused(name, tmp_path):
    from safetensors.numpy import load_file, save_file

    CTGAN(**QUICK).fit(TABLE).save(tmp_path / "model")
    with safe_open(tmp_path / "model", framework="numpy") as file:
        metadata = file.metadata()
    arrays = load_file(tmp_path / "model")
    del arrays[name]
    save_file(arrays, tmp_path / "less", metadata)
    with pytest.raises(ValueError):
        CTGAN.load(tmp_path / "less")


def test_a_header_that_asks_for_a_giant_is_refused_before_it_is_built(tmp_path):
    from safetensors.numpy import load_file, save_file

    CTGAN(**QUICK).fit(TABLE).save(tmp_path / "model")
    with safe_open(tmp_path / "model", framework="numpy") as file:
        header = json.loads(file.metadata()["combutab"])
    arrays = load_file(tmp_path / "model")
    names = [name for name, _ in header["shape"]["dict"]]
    for name in ("embedding_dim", "n_members"):
        at = names.index(name)
        wrong = json.loads(json.dumps(header))
        wrong["shape"]["dict"][at][1] = 10**12
        save_file(arrays, tmp_path / "giant", {"combutab": json.dumps(wrong)})
        with pytest.raises(ValueError, match=r"giant is damaged: its header asks for .*0000"):
            CTGAN.load(tmp_path / "giant")


def test_where_a_model_is_written(tmp_path):
    model = CTGAN(**QUICK).fit(TABLE)
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
