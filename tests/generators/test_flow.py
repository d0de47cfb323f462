"""TabFlow: its gradients, the distribution that it draws by, and what it learns."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from combutab.evaluation import privacy
from combutab.generators import ShortfallError, TabFlow, _tabflow
from combutab.generators._tabflow import (
    FlowSteps,
    FlowTraining,
    ValueLayer,
    draw,
    draw_rows,
    to_normal,
)
from combutab.generators._training import TableRows
from combutab.generators.sampling import PointChoices, RowRequest
from combutab.nn import Member, RowSpans, StackedCascade, StackedLinear, time_inputs
from combutab.nn._cascade import SpanOutputs

RNG = np.random.default_rng(0)
SPANS = RowSpans(2, [2, 3, 4], categories=[0], dtype=torch.float64)
MEMBERS = [Member(1, "silu"), Member(2, "silu"), Member(3, "combu")]


def network(spans=SPANS):
    return StackedCascade(spans, (6, 5), MEMBERS)


def rows(n, spans=SPANS):
    generator = torch.Generator().manual_seed(0)
    shape = (len(MEMBERS), n)
    codes = [torch.randint(size, shape, generator=generator) for size in spans.sizes]
    values = 2 * torch.rand(*shape, spans.n_values, generator=generator, dtype=torch.float64) - 1
    values[:, ::3] = 0.0  # of atoms
    return TableRows(values, torch.stack(codes, -1))


# ---- training -----------------------------------------------------------------------------------


def test_losses_worked_by_hand():
    net, batch = network(), rows(20)
    drawn = draw([[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]], 20, SPANS)
    steps = FlowSteps(net, SPANS)
    of_codes, of_values = steps.losses(net, batch, drawn)
    # the hidden codes, given the others
    raw = steps.code_outputs(net, batch.codes.masked_fill(drawn.hidden, -1)).split(SPANS.sizes, -1)
    log_p = [part.log_softmax(-1) for part in raw]
    each = torch.stack(
        [p.gather(-1, batch.codes[..., i : i + 1])[..., 0] for i, p in enumerate(log_p)], -1
    )
    n_hidden = drawn.hidden.sum(-1)
    assert n_hidden.min() == 1
    expected = -((each * drawn.hidden).sum(-1) / n_hidden).mean(1)
    assert_allclose(of_codes.detach(), expected.detach())
    # the values' velocities, given all codes and the known values
    ends = to_normal(batch.values)
    velocity = ends - drawn.noise
    at = torch.where(drawn.is_known, ends, (1 - drawn.time) * drawn.noise + drawn.time * ends)
    found = ValueLayer(steps, net, batch.codes, drawn.is_known).velocity(at, drawn.time)
    counted = ~drawn.is_known & (batch.values != 0)
    assert drawn.is_known.any()
    expected = ((found - velocity).square() * counted).sum((1, 2)) / (20 * 2)
    assert_allclose(of_values.detach(), expected.detach())


def test_what_is_drawn_for_a_step():
    spans = RowSpans(3, [2] * 5)
    hidden, known, time, noise = draw([[1], [2], [3], [4]], 20_000, spans)
    n_hidden = np.bincount(hidden.sum(-1)[0], minlength=6) / 20_000
    assert_allclose(n_hidden, [0, *[1 / 6] * 4, 2 / 6], atol=0.012)  # none would be all
    assert_allclose(hidden.double().mean((0, 1)), (1 + 2 + 3 + 4 + 5 + 5) / 30, atol=0.01)
    n_known = np.bincount(known.sum(-1)[0], minlength=4) / 20_000
    assert_allclose(n_known, [0.5 + 0.125, *[0.125] * 3], atol=0.012)
    assert_allclose(torch.logit(time).std(), 1, atol=0.02)
    assert_allclose(noise.std(), 1, atol=0.02)


# ---- sampling -----------------------------------------------------------------------------------


JOINT = RNG.dirichlet(np.full(24, 0.7)).reshape(2, 3, 4)


class KnownCodes:
    """Finds codes by a joint distribution that is known; its first layer gives its inputs."""

    def __init__(self, n_members):
        self.table = torch.from_numpy(JOINT)
        self.first = StackedLinear(11, 11, [torch.Generator()] * n_members).double()
        torch.nn.init.zeros_(self.first.bias)
        self.first.weight.data.copy_(torch.eye(11))

    def linear(self, i):
        return self.first

    def hidden(self, x):
        start, weights = 0, torch.ones(*x.shape[:2], *JOINT.shape, dtype=torch.float64)
        for i, size in enumerate(JOINT.shape):
            part = x[..., start : start + size]
            start += size
            code = part.argmax(-1) if i == 0 else part.sum(-1).long() - 1
            fits = torch.arange(size) == code.unsqueeze(-1)
            fits |= ~part.any(-1, keepdim=True)
            weights = weights * fits.view(*x.shape[:2], *[size if j == i else 1 for j in range(3)])
        given = weights * self.table
        marginals = [given.sum([2 + j for j in range(3) if j != i]) for i in range(3)]
        return torch.cat(marginals, -1).log().nan_to_num(neginf=-99.0)

    def outputs_by_span(self, inputs):
        own = torch.eye(sum(JOINT.shape), dtype=torch.float64).split(JOINT.shape, 1)
        own = [columns.expand(len(self.first.weight), -1, -1) for columns in own]
        return [SpanOutputs(columns, 0 * columns[:, :1], None) for columns in own]


def asked(n, keys=(5,), allowed=None, **given):
    empty = torch.empty(len(keys), n, 0)
    return RowRequest(list(keys), n, empty, allowed or {}, **given)


@torch.no_grad()
def sample(n, monkeypatch, **options):
    request = asked(n, **options)
    known = SimpleNamespace(codes=KnownCodes(len(request.keys)), values=True)
    monkeypatch.setattr(_tabflow, "_flow", lambda steps, net, codes, at, known, n: at)
    return draw_rows(FlowSteps(known, SPANS), known, request, 4)


def frequencies(codes, weights=None):
    flat = np.ravel_multi_index(codes.reshape(-1, 3).T.numpy(), JOINT.shape)
    counts = np.bincount(flat, weights, minlength=24).reshape(JOINT.shape)
    return counts / counts.sum()


def test_rows_have_the_joint_distribution_whatever_the_order(monkeypatch):
    drawn = sample(4000, monkeypatch, keys=(5, 6, 7))
    for codes in drawn.codes:
        assert_allclose(frequencies(codes), JOINT, atol=0.03)
    assert (drawn.probability == 1).all()
    assert not torch.equal(drawn.codes[0], drawn.codes[1])


def test_given_codes_stay_and_condition_the_rest(monkeypatch):
    codes = torch.full((1, 4000, 3), -1)
    codes[..., 1] = 2
    codes[:, :2000, 0] = 1
    found = sample(4000, monkeypatch, codes=codes).codes[0]
    assert (found[:, 1] == 2).all()
    assert (found[:2000, 0] == 1).all()
    expected = JOINT[1, 2] / JOINT[1, 2].sum()
    assert_allclose(np.bincount(found[:2000, 2], minlength=4) / 2000, expected, atol=0.04)
    expected = JOINT[:, 2] / JOINT[:, 2].sum()
    both = frequencies(found[2000:])[:, 2]
    assert_allclose(both, expected, atol=0.04)


def test_excluding_a_frequent_code_costs_no_tries(monkeypatch):
    drawn = sample(500, monkeypatch, allowed={2: (1, 2, 3)})  # all but one, however frequent
    assert_allclose(drawn.probability, 1)


def test_allowed_codes_and_how_probable_they_were(monkeypatch):
    drawn = sample(9000, monkeypatch, allowed={1: (0, 2), 2: (1, 2)})
    codes, mass = drawn.codes[0], drawn.probability[0]
    assert set(codes[:, 1].tolist()) <= {0, 2}
    assert set(codes[:, 2].tolist()) <= {1, 2}
    expected = np.zeros_like(JOINT)
    expected[:, [0, 2], 1:3] = JOINT[:, [0, 2], 1:3]
    assert_allclose(frequencies(codes, mass.numpy()), expected / expected.sum(), atol=0.03)
    assert mass.max() <= 1


def test_values_that_are_asked_for(monkeypatch):
    values = torch.full((1, 600, 2), torch.nan)
    values[0, :300, 0] = 0.25
    points = {2: PointChoices(1, {0: (0.5,), 3: (-0.5, 0.75)})}
    drawn = sample(600, monkeypatch, values=values, points=points, allowed={2: (0, 3)})
    found, code = drawn.values[0], drawn.codes[0, :, 2]
    assert (found[:300, 0] == 0.25).all()
    assert found[300:, 0].unique().numel() == 300
    assert (found[code == 0, 1] == 0.5).all()
    assert set(found[code == 3, 1].tolist()) == {-0.5, 0.75}


@pytest.mark.parametrize("widths", [(6, 5), ()])
@torch.no_grad()
def test_effects_of_codes_equal_network_outputs(widths):
    spans = RowSpans(2, [2, 3, 4], categories=[0], missing=[2], dtype=torch.float64)
    net, batch = StackedCascade(spans, widths, MEMBERS), rows(30, spans)
    steps = FlowSteps(net, spans)
    codes = batch.codes.clone()
    codes[:, ::3, 1] = codes[:, 1::2, 2] = -1
    codes[:, 0] = -1
    part = net.codes
    part.direct.normal_(generator=torch.Generator().manual_seed(0))
    raw = steps.code_outputs(net, codes)
    effects = steps.inputs.effects(part.linears[0].weight)
    hidden = part.hidden(part.linears[0].bias + effects.sum(codes))
    eye = torch.eye(steps.inputs.n_inputs, dtype=torch.float64).expand(3, -1, -1)
    by_span = part.outputs_by_span(steps.inputs)
    for m in range(len(MEMBERS)):
        found = [span.of_member(m, hidden[m], codes[m]) for span in by_span]
        assert_allclose(torch.cat(found, -1), raw[m], atol=1e-12)
    some = torch.tensor([2, 0]).expand(3, 30, 2)
    one = effects.sum(codes.gather(2, some), some) + effects.sum(
        codes[..., 1:2], some[..., :1] * 0 + 1
    )
    assert_allclose(one, effects.sum(codes), atol=1e-12)
    # the same of the network of values, beside its other inputs
    known, at, time = batch.values < -0.2, to_normal(batch.values), drawn_times(30)
    dense = steps.inputs.effects(eye).sum(codes)
    x = torch.cat([dense, at, known.double(), time_inputs(time)], -1)
    part = net.values
    expected = part.outputs(part.hidden(part.linears[0](x)))
    found = ValueLayer(steps, net, codes, known).velocity(at, time)
    assert_allclose(found, expected, atol=1e-12)


def drawn_times(n):
    return torch.rand(3, n, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def test_the_flow_is_followed_by_heuns_method():
    net = StackedCascade(SPANS, (), MEMBERS[:1])
    first = net.values.linears[0]  # the only one: dy/dt = y + t
    for parameter in first.parameters():
        parameter.zero_()
    first.weight[0, [11, 12, 15, 15], [0, 1, 0, 1]] = 1.0
    steps = FlowSteps(net, SPANS)
    at = torch.tensor([[[0.3, -1.0]]], dtype=torch.float64)
    known = torch.tensor([[[False, True]]])
    codes = torch.zeros(1, 1, 3, dtype=torch.int64)
    exact = 1.3 * np.e - 2  # (y + 1) e^t - t - 1 at 1
    errors = []
    for n in (8, 16):
        found = _tabflow._flow(steps, net, codes, at, known, n)[0, 0]
        assert found[1] == -1.0
        errors.append(abs(float(found[0]) - exact))
    assert errors[1] < errors[0] / 3.5  # of second order
    assert errors[1] < 3e-3


# ---- what it learns -----------------------------------------------------------------------------

N = 1200


@pytest.fixture(scope="module")
def fitted():
    x = RNG.normal(size=N)
    kind = np.where(x + RNG.normal(size=N) > 0, "high", "low")
    table = pd.DataFrame(
        {
            "x": x,
            "kind": kind,
            "copy": kind,
            "mostly": np.where(RNG.random(N) < 0.92, 0.0, RNG.uniform(5, 9, N)),
            "gaps": np.where(x > 1, np.nan, x + RNG.normal(0, 0.1, N)),
        }
    )
    model = TabFlow(
        hidden_layer_sizes=(48, 48),
        n_bins=16,
        epochs=25,
        batch_size=64,
        learning_rate=8e-3,
        random_state=0,
    )
    return table, model.fit(table)


@pytest.mark.slow
def test_point_masses_copies_and_gaps_come_out(fitted):
    table, model = fitted
    made = model.sample(3000)
    assert (made["mostly"] == 0).mean() == pytest.approx(0.92, abs=0.03)
    assert not made["mostly"].between(0.01, 4).any()
    assert (made["kind"] == made["copy"]).mean() > 0.97
    assert made["gaps"].isna().mean() == pytest.approx(table["gaps"].isna().mean(), abs=0.04)
    assert made.loc[made["gaps"].isna(), "x"].mean() > 1
    there = made.dropna()
    assert np.corrcoef(there["x"], there["gaps"])[0, 1] > 0.9
    for q in (0.05, 0.5, 0.95):
        assert made["x"].quantile(q) == pytest.approx(table["x"].quantile(q), abs=0.2)


def test_conditions_are_met_and_carry_over(fitted):
    table, model = fitted
    made = model.sample(500, conditions={"kind": "high", "gaps": (0.2, 0.6)})
    assert (made["kind"] == "high").all()
    assert made["gaps"].between(0.2, 0.6).all()
    assert made["x"].mean() == pytest.approx(0.4, abs=0.15)
    assert (made["copy"] == "high").mean() > 0.95
    made = model.sample(300, conditions={"x": [table["x"][3], table["x"][5]]})
    assert made["x"].isin(table["x"][[3, 5]]).all()
    assert made["x"].nunique() == 2
    given = table[["x"]].iloc[:200]
    beside = model.sample_from(given)
    assert_array_equal(beside["x"], given["x"])
    assert np.corrcoef(beside["x"], beside["gaps"].fillna(1.5))[0, 1] > 0.8
    shares = beside["kind"].eq("high").groupby(given["x"] > 0).mean()
    assert shares[True] - shares[False] > 0.3


def test_unreachable_range_is_given_up_at_once():
    table = pd.DataFrame({"x": [0.0, 10.0] * 30, "kind": ["a", "b", "a"] * 20})
    model = TabFlow(hidden_layer_sizes=(4,), epochs=1, random_state=0).fit(table)
    with pytest.raises(ShortfallError, match="0 of 0 rows"):
        model.sample(3, conditions={"x": (3, 7)})
    assert model.sample(3, conditions={"x": (3, 12)})["x"].tolist() == [10.0] * 3


def test_missing_cells_are_drawn_beside_the_known(fitted):
    table, model = fitted
    encoded = model.encoder_.encode(table)
    codes = encoded.codes.astype(np.int64)
    known = np.ones(codes.shape, dtype=bool)
    of = {span.column: i for i, span in enumerate(model.encoder_.layout_.spans)}
    known[:, of[4]] = False
    values, found = model._draw_missing(encoded.values, codes, known, 7)
    made = model.encoder_.decode(values, found)
    pd.testing.assert_frame_equal(made.drop(columns="gaps"), table.drop(columns="gaps"))
    assert made["gaps"].notna().all()  # though some are missing in the table
    inner = table["x"].between(-1, 1)
    error = (made["gaps"] - table["x"])[inner]
    assert error.abs().median() < 0.25


@pytest.mark.slow
def test_small_tables_are_not_memorized():
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(360, 1)) + rng.normal(size=(360, 4))
    table = pd.DataFrame(numbers, columns=list("abcd"))
    train, held_out = table[:180], table[180:]
    made = {"made": TabFlow(random_state=0).fit(train).sample(1000, random_state=0)}
    found = privacy(real_train=train, holdout=held_out, synthetic=made, random_state=0)
    share = found.loc[found["measure"] == "share_closer_to_train", "mean"].item()
    assert share < 0.67  # of fresh rows one half; 0.73 after 300 epochs


def test_its_parameters_that_are_automatic():
    model = TabFlow()
    sizes = [model._n_batch(n) for n in (1, 20, 300, 1000, 5000, 10**6)]
    assert sizes == [1, 20, 32, 64, 256, 512]
    assert [model._n_epochs(n) for n in (20, 1000, 5000, 10**7)] == [50, 1334, 1053, 5]
    assert model._n_epochs(16_000) == 646
    assert TabFlow(epochs=7, batch_size=100)._n_epochs(10) == 7
    assert [model._stops_early(n) for n in (199, 200)] == [False, True]
    assert not TabFlow(early_stopping=False)._stops_early(10**6)
    assert [model._patience(n) for n in (1, 8000, 16_000, 10**7)] == [50, 50, 25, 5]
    assert TabFlow(n_iter_no_change=np.inf)._patience(10**7) == np.inf


def test_its_patience_is_a_number_of_rows_seen(monkeypatch):
    monkeypatch.setattr(_tabflow, "_PATIENCE", (1, 50, 1000))
    X = RNG.normal(size=(400, 2))
    few = {"epochs": 60, "learning_rate": 0.05, "hidden_layer_sizes": (8,), "random_state": 0}
    own, of_three = (
        TabFlow(**few, n_iter_no_change=patience).fit(X).history_ for patience in ("auto", 3)
    )  # 360 rows are trained on
    pd.testing.assert_frame_equal(own, of_three)
    assert len(own) < 60


def test_learning_rate_warms_up_and_decays(monkeypatch):
    monkeypatch.setattr(_tabflow, "_WARM_UP", 2)
    monkeypatch.setattr(_tabflow, "_CONSTANT", 1)
    factors = []

    def note(self, name, step, update=FlowTraining.update):
        highest = float(max(self.step_rates[name][step].rates))
        factors.append(highest / self.plans[0].rates[name].lr)
        update(self, name, step)

    monkeypatch.setattr(FlowTraining, "update", note)
    TabFlow(epochs=2, batch_size=10, random_state=0).fit(RNG.normal(size=(45, 2)))
    assert_allclose(factors, [0.5, 1, 1, 1, *(4 / np.array([5, 6, 7, 8])) ** 0.5])


@pytest.mark.parametrize("patience", [0, "soon", 1.5])
def test_a_patience_is_epochs_or_auto(patience):
    with pytest.raises(ValueError, match=f"n_iter_no_change.*{patience}"):
        TabFlow(n_iter_no_change=patience).fit(RNG.normal(size=(40, 2)))
