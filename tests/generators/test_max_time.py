"""Training ends with the epoch in which the time is over, and leaves a model as any other end."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from combutab import TVAE
from combutab.generators import fit_stack
from combutab.generators._ctgan import GANTraining
from combutab.generators._tabflow import FlowTraining
from combutab.generators._tvae import VAETraining
from combutab.preprocessing import ModeEncoder
from combutab.training import Callback
from tests.generators.small import EVERY, assert_same
from tests.generators.small import make as make_small

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"x": RNG.normal(size=120), "kind": RNG.choice(["a", "b"], 120)})

make = partial(make_small, epochs=100, device="cpu")


@pytest.fixture
def progress(monkeypatch):
    """A clock by which encoding takes 5 s and an epoch 10; the progress before each epoch."""
    now, found, fit_encoder = [0.0], [], ModeEncoder.fit
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def encode(*args):
        now[0] += 5.0
        return fit_encoder(*args)

    monkeypatch.setattr(ModeEncoder, "fit", encode)

    def timed(epoch):
        def train(self, number):
            found.append(self.progress)
            now[0] += 10.0
            return epoch(self, number)

        return train

    for training in (GANTraining, VAETraining, FlowTraining):
        monkeypatch.setattr(training, "epoch", timed(training.epoch))
    return found


@EVERY
def test_training_ends_after_max_time(cls, progress):
    for max_time in (25.5, "35s", 35):
        progress.clear()
        model = make(cls, max_time=max_time).fit(TABLE)
        assert model.n_iter_ == len(model.history_) == len(progress) == 3
    np.testing.assert_allclose(progress, [0, 1 / 3, 2 / 3])  # of the 30 s after encoding
    assert_same(model, make(cls, epochs=3).fit(TABLE))
    assert repr(model).endswith("120 rows x 2 columns, 3 epochs, ended by max_time")
    assert len(model.sample(9)) == 9


def test_there_is_one_epoch_at_least(progress):
    model = make(TVAE, max_time=1e-9).fit(TABLE)  # over before the table is encoded
    assert model.n_iter_ == 1
    assert progress == [0.0]


def test_epochs_may_end_sooner(progress):
    model = make(TVAE, max_time="1h", epochs=4).fit(TABLE)
    assert model.n_iter_ == 4
    np.testing.assert_allclose(progress, [0, 0.25, 0.5, 0.75])
    progress.clear()
    make(TVAE, epochs=2).fit(TABLE)
    assert progress == [0, 0.5]


def test_best_epoch_is_kept_after_max_time(progress):
    stopping = {"early_stopping": True, "learning_rate": 0.2}
    model = make(TVAE, max_time=65, **stopping).fit(TABLE)
    losses = model.history_["validation_loss"].to_numpy()
    assert len(losses) == 6
    assert losses.argmin() < 5  # otherwise the test shows nothing
    best = make(TVAE, epochs=int(losses.argmin()) + 1, **stopping).fit(TABLE)
    for name, value in best._states[0].items():
        np.testing.assert_array_equal(model._states[0][name], value)


@EVERY
def test_continued_fit_has_its_own_time(cls, tmp_path, progress):
    path = tmp_path / "training"
    for n_epochs in (2, 4):
        model = make(cls, epochs=6, max_time=25).fit(TABLE, checkpoint=path)
        assert model.n_iter_ == n_epochs
    np.testing.assert_allclose(progress, [0, 0.5, 2 / 6, 0.5])
    whole = make(cls, epochs=6).fit(TABLE)
    assert_same(make(cls, epochs=6).fit(TABLE, checkpoint=path), whole)


def test_a_stack_has_one_time(progress):
    class CountMembers(Callback):
        def on_train_begin(self, n_members, max_epochs):
            stacks.append(n_members)

    times, stacks, callbacks = [15, 15, "25s"], [], [CountMembers()]
    models = [make(TVAE, max_time=time, callbacks=callbacks) for time in times]
    fit_stack(models, TABLE)
    assert stacks == [2, 1]
    assert [model.n_iter_ for model in models] == [1, 1, 2]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, r"'max_time'.*TVAE"),
        (-1.0, r"'max_time'.*TVAE"),
        (float("nan"), r"'max_time'.*TVAE"),
        ([60], r"'max_time'.*TVAE"),
        ("2 minutes", r"'90s'.*'2min'.*'1h'.*'2 minutes'"),
    ],
)
def test_bad_max_time_is_refused_before_training(value, words):
    with pytest.raises(ValueError, match=words):
        make(TVAE, max_time=value).fit(object())
