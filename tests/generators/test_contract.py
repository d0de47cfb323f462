"""A generator of one's own is a small class: here one that samples by an average of its weights."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

import combutab
from combutab import TVAE, _model_files
from combutab._model_files import loadable
from combutab.cli import main
from combutab.core.files import read_model, write_model
from combutab.core.parameters import COUNT, POSITIVE, parameter
from combutab.core.rng import normals, uniforms
from combutab.generators import find_generators
from combutab.generators._base import BaseGenerator
from combutab.generators._training import Rates, Training
from combutab.generators.sampling import Samples
from combutab.nn import StackedRowDecoder
from combutab.training import Callback, OptimizerConfig
from tests.generators.small import assert_same

RATE = 0.25  # of the average


class AveragedTraining(Training[StackedRowDecoder]):
    """Noise to the rows that it is paired with; the average follows the network."""

    def __init__(self, rows, spans, plans, build):
        members = [plan.member for plan in plans]
        self.decoder, average = (build(spans, members) for _ in range(2))
        networks = {"decoder": self.decoder, "average": average}
        super().__init__(rows, spans, plans, networks, average, OptimizerConfig())

    def epoch(self, number):
        keys = [plan.member.seed ^ number for plan in self.plans]
        noise = normals(keys, len(self.rows), self.decoder.n_inputs, device=self.spans.device)
        raw, _ = self.decoder.train()(noise.to(self.spans.dtype))
        error = raw[..., : self.spans.n_values].tanh() - self.rows.values
        codes = self.rows.codes.expand(len(keys), -1, -1)
        loss = error.square().sum(-1) + self.spans.cross_entropy_all(raw, codes)
        self.decoder.flat.backward(loss.mean(1).sum())
        self.update("decoder")
        self.sampled.flat.values.lerp_(self.decoder.flat.values, RATE)
        self.sampled.flat_buffers.values.copy_(self.decoder.flat_buffers.values)
        return {"loss": loss.mean(1).detach()}


@dataclass(eq=False, repr=False, kw_only=True)
class Averaged(BaseGenerator[StackedRowDecoder]):
    """All that it takes, beside its training."""

    embedding_dim: int = parameter(4, COUNT)
    width: int = parameter(8, COUNT)
    learning_rate: float = parameter(0.01, POSITIVE, concerns="rate")
    batch_size: int = parameter(500, COUNT)
    epochs: int = parameter(6, COUNT, concerns="run")
    verbose: bool = parameter(False, "verbose", concerns="run")
    enable_gpu: bool = parameter(True, "boolean", concerns="run")
    activation: Any = "relu"
    normalization: str = "batch"
    n_iter_no_change: float = 2
    device: str = "cpu"

    def _all_widths(self):
        return [(self.width,)]

    def _rates(self):
        return {"decoder": Rates(self.learning_rate)}

    def _linear_shapes(self, spans):
        return StackedRowDecoder.linear_shapes(self.embedding_dim, (self.width,), spans.width)

    def _build(self, spans, members):
        widths, options = (self.width,), {"normalization": self.normalization, "dtype": spans.dtype}
        return StackedRowDecoder(
            self.embedding_dim, widths, spans.width, members, n_values=spans.n_values, **options
        )

    def _training(self, rows, spans, plans):
        return AveragedTraining(rows, spans, plans, self._build)

    def _draw(self, network, spans, asked):
        noise = normals(asked.keys, asked.n_rows, network.n_inputs, device=spans.device)
        raw, mass = spans.restrict(network(noise.to(spans.dtype))[0], asked.allowed)
        keys = [key ^ 1 for key in asked.keys]
        uniform = uniforms(keys, asked.n_rows, spans.n_spans, device=spans.device)
        return Samples(*spans.sample(raw, uniform), mass)


RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"x": RNG.normal(size=120), "kind": RNG.choice(["a", "b"], 120)})


class InterruptAt(Callback):
    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, report):
        assert report.learning_rate.tolist() == [0.01] * 2
        if report.epoch == self.epoch:
            raise KeyboardInterrupt


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(_model_files, "_CLASSES", dict(_model_files._CLASSES))
    return loadable(Averaged)


def of(file, prefix):
    return _model_files.with_prefix(read_model(file)[1], prefix)


def test_a_checkpoint_has_a_network_without_an_optimiser(tmp_path):
    path = tmp_path / "training"
    model = Averaged(epochs=1, random_state=0).fit(TABLE, checkpoint=path)
    trained, average = of(path, "0.decoder.network."), of(path, "0.average.network.")
    assert of(path, "0.decoder.optimizer.")["steps"] == 1
    assert not of(path, "0.average.optimizer.")
    for name, value in average.items():
        np.testing.assert_array_equal(model._states[0][name], value)
    # Adam's first step is the learning rate, in the direction of the slope's sign
    weight = "linears.1.weight"
    moved = (trained[weight] - average[weight]) / (1 - RATE)
    np.testing.assert_allclose(np.abs(moved), 0.01, rtol=1e-2)


@pytest.mark.parametrize("early_stopping", [False, True])
def test_an_interrupted_training_goes_on(early_stopping, tmp_path, every_epoch):
    params = {"n_members": 2, "activation": "prelu", "random_state": 1}
    params |= {"early_stopping": early_stopping}
    whole = Averaged(**params).fit(TABLE)
    for epoch in (1, 3):
        with pytest.warns(UserWarning, match="interrupted"):
            Averaged(**params, callbacks=[InterruptAt(epoch)]).fit(
                TABLE, checkpoint=tmp_path / "training"
            )
    resumed = Averaged(**params).fit(TABLE, checkpoint=tmp_path / "training")
    assert resumed.n_iter_ > 3
    assert_same(resumed, whole)
    assert ("validation_distance" in resumed.history_) == early_stopping


def test_it_is_saved_and_loaded_and_meets_conditions(registered, tmp_path):
    model = registered(n_members=2, random_state=0).fit(TABLE)
    model.save(tmp_path / "model")
    again = combutab.load(tmp_path / "model", device="cpu")
    assert type(again) is Averaged
    assert_same(again, model)
    assert set(again.sample(30, conditions={"kind": "b"})["kind"]) == {"b"}
    assert list(model.loss_values) == ["Epoch", "Loss"]


def test_the_command_makes_and_reads_it(registered, tmp_path, monkeypatch, capsys):
    assert find_generators()["Averaged"] is Averaged
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("table.csv", index=False)
    options = ["--model", "averaged", "--epochs", "2", "--save", "model"]
    assert main(["synth", "table.csv", "-o", "made.csv", *options]) == 0
    assert main(["sample", "model", "-o", "again.csv", "--rows", "120"]) == 0
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "made.csv").read_bytes()
    assert type(combutab.load("model")) is Averaged
    monkeypatch.setattr(_model_files, "_CLASSES", {"CTGAN": combutab.CTGAN, "TVAE": TVAE})
    capsys.readouterr()
    assert main(["synth", "table.csv", "-o", "made.csv", *options]) == 2
    assert "'averaged' is not one of 'ctgan', 'tvae'" in capsys.readouterr().err
    assert main(["sample", "model", "-o", "again.csv"]) == 2
    assert "cannot make rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("more", 1, "fitted with the parameters"),
        ("width", 9, "weights linears.0.weight of shape"),
        ("width", 0, "'width' parameter"),
        ("n_members", 2, "asks for 2 networks, and for 1"),
    ],
)
def test_changed_parameters_are_refused_on_save(name, value, says, registered, tmp_path):
    registered(random_state=0).fit(TABLE).save(tmp_path / "model")
    header, arrays = read_model(tmp_path / "model")
    header["as_fitted"][name] = value
    write_model(tmp_path / "model", header, arrays)
    with pytest.raises(ValueError, match=says):
        combutab.load(tmp_path / "model")


def test_a_hook_that_lacks_is_named():
    class Lacking(BaseGenerator[StackedRowDecoder]):
        _all_widths = _rates = _linear_shapes = _build = _training = Averaged._rates

    with pytest.raises(TypeError, match=r"abstract method.*_draw"):
        Lacking()
