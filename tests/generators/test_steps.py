"""Steps in memory of their own against the same steps by the modules."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from combutab.core.device import Precision
from combutab.generators import CTGAN, TVAE, TabFlow
from combutab.generators._training import GeneratorPlan, TableRows, make_spans
from combutab.nn import Member
from combutab.preprocessing import ModeEncoder
from tests.tapes import tape_calls

RNG = np.random.default_rng(0)
TABLES = {
    "mixed": pd.DataFrame(
        {
            "amount": RNG.choice([0, 9], 200) + RNG.normal(0, 1, 200),
            "kind": RNG.choice(["a", "b", "c"], 200),
            "flag": RNG.random(200) < 0.3,
        }
    ),
    "numbers": pd.DataFrame(RNG.normal(size=(200, 2)), columns=["x", "y"]),
    "words": pd.DataFrame({"kind": RNG.choice(["a", "b", "c"], 200)}),
}
CASES = pytest.mark.parametrize(
    ("table", "activations"),
    [
        ("mixed", ["original", "original"]),
        ("mixed", ["combu", "combu"]),
        ("mixed", ["elu", "swish"]),
        ("numbers", ["combu", "combu"]),
        ("words", ["original", "original"]),
    ],
    ids=str,
)


def make(model, table, activations, decays=()):
    """A training with a member for each activation; ``decays`` replace those of the model."""
    rates = [{"decay": decay} for decay in decays] or [{} for _ in activations]
    encoder = ModeEncoder(random_state=0).fit(table)
    cpu, precision = torch.device("cpu"), Precision(model.precision)
    spans = make_spans(encoder.layout_, cpu, precision)
    rows = TableRows.on(cpu, encoder.encode(table), precision.dtype)
    plans = [
        GeneratorPlan(
            Member(5 + i, activation),
            {name: rate._replace(**each) for name, rate in model._rates().items()},
        )
        for i, (activation, each) in enumerate(zip(activations, rates, strict=True))
    ]
    return model._training(rows, spans, plans)


def assert_same_networks(first, second):
    for name, network in first.networks.items():
        other = second.networks[name]
        for a, b in ((network.flat, other.flat), (network.flat_buffers, other.flat_buffers)):
            torch.testing.assert_close(a.values, b.values, rtol=1e-8, atol=1e-10)


@CASES
def test_gans(table, activations):
    model = CTGAN(
        embedding_dim=6, generator_dim=(8, 8), discriminator_dim=(8, 8), batch_size=40, pac=5,
        precision="float64",
    )  # fmt: skip
    written, plain = (make(model, TABLES[table], activations) for _ in range(2))
    plain.generate, plain.judge = plain.generator.raw_outputs, plain.critic.raw_outputs
    for number in range(2):
        losses, expected = written.epoch(number), plain.epoch(number)
        for name, values in expected.items():
            torch.testing.assert_close(losses[name], values, rtol=1e-8, atol=1e-10)
    # the critic's last bias is in both means: autograd's gradient of it is rounding alone
    for training in (written, plain):
        training.critic.linears[-1].bias.data.zero_()
    assert_same_networks(written, plain)


@CASES
def test_vaes(table, activations):
    model = TVAE(
        embedding_dim=6, compress_dims=(8, 8), decompress_dims=(7,), batch_size=60,
        precision="float64",
    )  # fmt: skip
    written, plain = (make(model, TABLES[table], activations) for _ in range(2))
    plain.encode, plain.decode = plain.encoder.raw_outputs, plain.decoder.raw_outputs
    for number in range(2):
        torch.testing.assert_close(written.epoch(number), plain.epoch(number))
    assert_same_networks(written, plain)


# ---- How many operators of torch an epoch calls: one too many a step shows here ------------------


TABLE = pd.DataFrame({"amount": RNG.normal(size=200), "kind": RNG.choice(["a", "b", "c"], 200)})
# Where a number has to grow, say in the commit what for; where it shrank, write it down.
OPERATORS = {  # generator, steps in an epoch, operators in an epoch
    "gan": (CTGAN(batch_size=40, pac=5), 5, 2909),
    "vae": (TVAE(batch_size=40), 5, 1191),
}


@pytest.mark.parametrize("case", OPERATORS)
def test_an_epoch_calls_no_more_operators(case):
    model, n_steps, most = OPERATORS[case]
    training = make(model, TABLE, ["combu"])
    for epoch in range(2):  # memory is asked for at first
        training.epoch(epoch)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        training.epoch(2)
    events = [e for e in profiler.events() if e.cpu_parent is None and e.name.startswith("aten::")]
    assert len(events) <= most, f"{len(events)} operators in {n_steps} steps, at most {most}"


# ---- What steps ask of a device ------------------------------------------------------------------

MODELS = {
    CTGAN: (
        {"generator_dim": (8,), "discriminator_dim": (8,)},
        ["_critic_step", "_generator_step"],
    ),
    TVAE: ({"compress_dims": (8,), "decompress_dims": (8,)}, ["_step"]),
    TabFlow: ({"hidden_layer_sizes": (8,), "dropout": 0.1, "weight_decay": 0.1}, ["_step"]),
}


@pytest.mark.parametrize("model_type", MODELS)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("decays", [(0.1, 0.1), (0.1, 0.2)], ids=str)
def test_steps_differ_in_their_tensors_only(model_type, table, decays, monkeypatch):
    """A GPU can repeat them as one graph: none needs the host."""
    parameters, steps = MODELS[model_type]
    model = model_type(batch_size=50, device="cpu", **parameters)
    training = make(model, TABLES[table], ["original", "combu"], decays)
    training.epoch(0)  # allocates memory
    taped = [tape_calls(monkeypatch, type(training), name) for name in (*steps, "update")]
    training.epoch(1)
    for calls, n_kinds in zip(taped, [*(1 for _ in steps), len(training.optimizers)], strict=True):
        assert len(calls) == 4 * n_kinds
        assert all(calls[i] == calls[i % n_kinds] for i in range(len(calls)))
