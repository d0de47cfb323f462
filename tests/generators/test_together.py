"""Generators fitted as one stack, and stopped early."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from combutab import CTGAN, TVAE, TabFlow
from combutab.generators import fit_stack
from combutab.training import Callback
from tests.generators.small import EVERY, RATES, assert_same
from tests.generators.small import make as make_small

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"x": RNG.normal(size=160).round(3), "kind": RNG.choice(["a", "b"], 160)})

NEAR = {"rtol": 1e-8, "atol": 1e-10}  # a stack adds up in another order
make = partial(make_small, precision="float64")


class CountMembers(Callback):
    def __init__(self):
        self.stacks = []

    def on_train_begin(self, n_members, max_epochs):
        self.stacks.append(n_members)


@EVERY
def test_stacked_fits_equal_single_fits(cls):
    counter = CountMembers()
    models = [
        make(cls, activation="relu"),
        make(cls, activation="combu", n_members=2),
        make(cls, activation="relu", **{RATES[cls]: 0.01}),
        make(cls, activation="prelu"),
        make(cls, activation="relu", random_state=1),
        make(cls, activation="relu", normalization="rms"),
    ]
    for model in models:
        model.set_params(callbacks=[counter])
    assert fit_stack(models, TABLE, ["kind"]) == models
    assert counter.stacks == [5, 1, 1]
    for model in models:
        assert_same(model, clone(model).fit(TABLE, ["kind"]), **NEAR)


def test_of_both_classes_and_without_seeds():
    counter = CountMembers()
    models = [make(CTGAN), make(TVAE), make(TVAE, random_state=None), make(TVAE, random_state=None)]
    for model in models:
        model.set_params(callbacks=[counter])
    fit_stack(models, TABLE)
    assert counter.stacks == [1, 1, 1, 1]
    assert not models[2].sample(9).equals(models[3].sample(9))


def test_what_cannot_be_fitted_together():
    model = make(TVAE)
    with pytest.raises(ValueError, match="same object twice"):
        fit_stack([model, model], TABLE)
    with pytest.raises(ValueError, match=r"CTGAN.*TabFlow.*TVAE.*'tvae'"):
        fit_stack(["tvae"], TABLE)
    with pytest.raises(ValueError, match="unknown activation 'relux'"):
        fit_stack([model, make(TVAE, activation="relux")], TABLE)
    assert not hasattr(model, "history_")
    assert fit_stack([], TABLE) == []


def test_diverged_model_does_not_affect_the_others():
    wild = make(TVAE, activation="elu", learning_rate=1e30, epochs=4)
    tame = make(TVAE, activation="relu", epochs=4)
    with pytest.raises(ValueError, match="diverged with activation='elu':"):
        fit_stack([wild, tame], TABLE)
    assert not hasattr(wild, "history_")
    assert_same(tame, clone(tame).fit(TABLE), **NEAR)


def test_changed_parameters_do_not_affect_sampling():
    model = make(CTGAN).fit(TABLE)
    expected = model.sample(20, random_state=0)
    model.set_params(embedding_dim=3, generator_dim=(5, 5), activation="selu", n_members=4)
    model.set_params(normalization="layer", precision="float32")
    pd.testing.assert_frame_equal(model.sample(20, random_state=0), expected)


# ---- early stopping -----------------------------------------------------------------------------


def stopping(cls, **params):
    defaults = {"early_stopping": True, "n_iter_no_change": 3, "epochs": 80, RATES[cls]: 0.02}
    return make(cls, **{**defaults, **params})


@EVERY
def test_member_stops_early_with_best_weights(cls):
    model = stopping(cls).fit(TABLE)
    measured = model.history_.filter(like="validation")
    assert len(measured.columns) == (2 if cls is TabFlow else 1)
    lengths = measured.notna().sum()  # TabFlow's two networks stop on their own
    assert model.n_iter_ == lengths.max() < 80
    assert lengths.nunique() == len(lengths)
    for name, values in measured.items():
        best = int(values.argmin())
        assert best == lengths[name] - 4  # the best, and three epochs after it
        # the weights are those of the best epoch: as if training had ended there
        ended = stopping(cls, epochs=best + 1).fit(TABLE)._states[0]
        part = name.split("_")[1] if cls is TabFlow else ""
        for key in (key for key in ended if key.startswith(part)):
            np.testing.assert_array_equal(model._states[0][key], ended[key])
    assert not any("Validation" in name for name in model.loss_values)


def test_checkpoint_keeps_an_ended_network(tmp_path):
    model = stopping(TabFlow).fit(TABLE)
    file, lengths = tmp_path / "fit", model.history_[["codes_loss", "values_loss"]].notna().sum()
    assert lengths.min() + 1 < lengths.max()
    stopping(TabFlow, epochs=int(lengths.min()) + 1).fit(TABLE, checkpoint=file)
    assert_same(stopping(TabFlow).fit(TABLE, checkpoint=file), model)
    model.save(tmp_path / "model")
    pd.testing.assert_frame_equal(TabFlow.load(tmp_path / "model").history_, model.history_)


@EVERY
def test_members_stop_on_their_own(cls):
    stack = stopping(cls, n_members=3, random_state=2).fit(TABLE)
    alone = stopping(cls, random_state=2).fit(TABLE)
    lengths = stack.history_.groupby("member").size()
    assert lengths[0] == alone.n_iter_
    assert lengths.nunique() > 1
    for name, value in alone._states[0].items():
        np.testing.assert_allclose(stack._states[0][name], value, rtol=1e-6, atol=1e-8)


def test_distance_is_small_for_equal_distributions():
    import torch

    from combutab.generators._training import _distances, _mean_distance

    rng = np.random.default_rng(1)

    def rows(shift, share):
        values = torch.from_numpy(rng.normal(shift, 0.3, (500, 2)))
        return values, torch.from_numpy(rng.random((500, 1)) < share).long()

    def energy(one, other):
        return float(
            2 * _distances(*one, *other).mean() - _mean_distance(*one) - _mean_distance(*other)
        )

    base = rows(0.0, 0.3)
    same, shifted, other = rows(0.0, 0.3), rows(0.4, 0.3), rows(0.0, 0.8)
    assert abs(energy(base, same)) < 0.02 < 0.1 < min(energy(base, shifted), energy(base, other))
    # by hand: two rows with different codes are sqrt(2) apart, and one unit in value
    by_hand = _distances(
        torch.tensor([[0.0]]), torch.tensor([[0]]), torch.tensor([[0.0], [1.0]]),
        torch.tensor([[1], [1]]),
    )  # fmt: skip
    np.testing.assert_allclose(by_hand, [[2**0.5, 3**0.5]])


def test_epoch_reports_have_the_validation_score():
    class Watch(Callback):
        scores = ()

        def on_epoch_end(self, report):
            self.scores += (report.validation_score[0],)

    watch = Watch()
    model = stopping(TVAE, callbacks=[watch]).fit(TABLE)
    np.testing.assert_array_equal(model.history_["validation_loss"], -np.array(watch.scores))
    with pytest.raises(ValueError, match=r"validation_fraction=0.1.*9.*8.*1"):
        stopping(TVAE, min_frequency=1).fit(TABLE[:9])
    with pytest.raises(ValueError, match="'validation_fraction' parameter"):
        stopping(TVAE, validation_fraction=1.0).fit(TABLE)


@EVERY
def test_an_early_stopped_model_of_constant_columns(cls):
    model = stopping(cls).fit(pd.DataFrame({"a": [1] * 5}))
    assert model.sample(2)["a"].tolist() == [1, 1]
