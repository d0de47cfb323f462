"""A training that was stopped goes on to the model that it would have given in one go."""

from __future__ import annotations

import signal
import time

import numpy as np
import pandas as pd
import pytest

from combutab import CTGAN, TVAE, TabFlow, _model_files
from combutab.training import Callback, TimeLimit
from tests.trust.forked import Forked, needs_fork

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"x": RNG.normal(size=120), "kind": RNG.choice(["a", "b"], 120)})
QUICK = {"epochs": 6, "batch_size": 40, "embedding_dim": 8, "random_state": 0}
FLOW = {"epochs": 6, "batch_size": 40, "hidden_layer_sizes": (16,), "random_state": 0}
BOTH = pytest.mark.parametrize("cls", [CTGAN, TVAE, TabFlow])


class InterruptAt(Callback):
    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, report):
        if report.epoch == self.epoch:
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def every_epoch(monkeypatch):
    monkeypatch.setattr(_model_files, "SECONDS", 0.0)


def assert_same(model, other):
    for state, expected in zip(model._states, other._states, strict=True):
        for name, value in expected.items():
            np.testing.assert_array_equal(state[name], value)
    pd.testing.assert_frame_equal(model.history_, other.history_)
    pd.testing.assert_frame_equal(model.sample(20), other.sample(20))


@BOTH
@pytest.mark.parametrize("normalization", ["batch", "layer"])
def test_an_interrupted_training_goes_on(cls, normalization, tmp_path):
    params = {
        **(FLOW if cls is TabFlow else QUICK),
        "n_members": 2,
        "normalization": normalization,
        "activation": "prelu",
    }
    whole = cls(**params).fit(TABLE)
    path = tmp_path / "training"
    for epoch in (2, 5):
        with pytest.warns(UserWarning, match="interrupted"):
            cls(**params, callbacks=[InterruptAt(epoch)]).fit(TABLE, checkpoint=path)
        assert [file.name for file in tmp_path.iterdir()] == ["training"]
    resumed = cls(**params).fit(TABLE, checkpoint=path)
    assert resumed.n_iter_ == 6
    assert_same(resumed, whole)


@BOTH
def test_more_epochs_go_on_from_the_end(cls, tmp_path):
    cls(**(FLOW if cls is TabFlow else QUICK)).fit(TABLE, checkpoint=tmp_path / "training")
    before = (tmp_path / "training").read_bytes()
    cls(**(FLOW if cls is TabFlow else QUICK), callbacks=[InterruptAt(1)]).fit(
        TABLE, checkpoint=tmp_path / "training"
    )
    assert (tmp_path / "training").read_bytes() == before  # nothing was left to train
    longer = cls(**{**(FLOW if cls is TabFlow else QUICK), "epochs": 9}).fit(
        TABLE, checkpoint=tmp_path / "training"
    )
    assert_same(longer, cls(**{**(FLOW if cls is TabFlow else QUICK), "epochs": 9}).fit(TABLE))


def test_without_a_seed_it_is_the_files(tmp_path):
    params = {**QUICK, "random_state": None}
    first = TVAE(**params).fit(TABLE, checkpoint=tmp_path / "training")
    assert_same(TVAE(**params).fit(TABLE, checkpoint=tmp_path / "training"), first)


@needs_fork
def test_killed_at_any_moment(tmp_path):
    path = tmp_path / "training"
    params = {**QUICK, "epochs": 60, "generator_dim": (16,), "discriminator_dim": (16,)}

    def train():
        CTGAN(**params).fit(TABLE, checkpoint=path)

    process = Forked(train, tmp_path)
    while process.poll() is None:
        time.sleep(0.005)
        if path.exists():
            time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
            process.communicate()
    assert process.returncode in (-signal.SIGKILL, 0)
    resumed = CTGAN(**params).fit(TABLE, checkpoint=path)
    assert_same(resumed, CTGAN(**params).fit(TABLE))


def test_a_file_of_another_training_is_refused(tmp_path):
    path = tmp_path / "training"
    TVAE(**QUICK).fit(TABLE, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="embedding_dim=8, this one has embedding_dim=9"):
        TVAE(**{**QUICK, "embedding_dim": 9}).fit(TABLE, checkpoint=path)
    with pytest.raises(ValueError, match="another table"):
        TVAE(**QUICK).fit(TABLE[::-1].reset_index(drop=True), checkpoint=path)
    with pytest.raises(ValueError, match="class 'TVAE'"):
        CTGAN(**QUICK).fit(TABLE, checkpoint=path)
    with pytest.raises(ValueError, match="is a checkpoint of a training"):
        TVAE.load(path)
    with pytest.raises(FileNotFoundError, match="create it first"):
        TVAE(**QUICK).fit(TABLE, checkpoint=tmp_path / "no" / "training")
    assert path.read_bytes() == before
    TVAE(**QUICK).fit(TABLE).save(path)
    with pytest.raises(ValueError, match="is a model, not a checkpoint"):
        TVAE(**QUICK).fit(TABLE, checkpoint=path)


def test_a_callback_that_stops_leaves_a_file_to_go_on_from(tmp_path):
    path = tmp_path / "training"
    stopped = TVAE(**QUICK, callbacks=[TimeLimit(1e-9)]).fit(TABLE, checkpoint=path)
    assert stopped.n_iter_ == 1
    assert_same(TVAE(**QUICK).fit(TABLE, checkpoint=path), TVAE(**QUICK).fit(TABLE))


def test_the_first_epoch_is_written_and_widths_may_be_lists(tmp_path, monkeypatch):
    monkeypatch.setattr(_model_files, "SECONDS", 1e9)
    path = tmp_path / "training"
    params = {**QUICK, "compress_dims": [8], "decompress_dims": [8]}
    with pytest.warns(UserWarning, match="interrupted"):
        TVAE(**params, callbacks=[InterruptAt(2)]).fit(TABLE, checkpoint=path)
    params = {**QUICK, "compress_dims": (8,), "decompress_dims": (8,)}
    resumed = TVAE(**params).fit(TABLE, checkpoint=path)
    assert_same(resumed, TVAE(**params).fit(TABLE))


def test_a_file_that_cannot_be_written_does_not_end_the_training(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    path = tmp_path / "training"
    TVAE(**QUICK).fit(TABLE, checkpoint=path)
    before = path.read_bytes()
    monkeypatch.setattr(_model_files, "write_model", full)
    longer = {**QUICK, "epochs": 8}
    with pytest.warns(UserWarning, match="could not be written to .*No space left"):
        model = TVAE(**longer).fit(TABLE, checkpoint=path)
    assert_same(model, TVAE(**longer).fit(TABLE))
    assert path.read_bytes() == before


def test_a_folder_that_takes_no_file_is_found_before_any_work(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_model_files, "check_writable", refuse)
    with pytest.raises(OSError, match=f"no file can be written in {tmp_path}: Permission denied"):
        TVAE(**QUICK).fit(object(), checkpoint=tmp_path / "training")
