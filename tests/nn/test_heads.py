"""What the seam must carry: embeddings of numbers, and heads of a member that share weights."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from combutab.core.device import Precision
from combutab.nn import Member, MLPSpec, NetworkSpec, StackedMLP
from combutab.training import (
    BinaryCrossEntropy,
    CrossEntropy,
    MemberPlan,
    OptimizerConfig,
    Rows,
    TrainConfig,
    make_regression_loss,
    train_lbfgs,
    train_stack,
)
from tests.heads_network import HeadsSpec

N, N_DENSE, CARDINALITIES = 90, 3, (4,)


SPEC = HeadsSpec(N_DENSE, (6, 5), 1, CARDINALITIES)
MEMBERS = [Member(3, "combu", 0.2), Member(4, "combu"), Member(5, "prelu", 0.5)]
CONFIG = TrainConfig(
    loss=make_regression_loss("squared_error", ()),
    optimizer=OptimizerConfig(),
    batch_size=32,
    max_epochs=6,
    n_iter_no_change=math.inf,
    precision=Precision("float64"),
)


def rows(weight=False, labels=0):
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(N, N_DENSE, generator=generator, dtype=torch.float64)
    codes = torch.randint(0, 4, (N, 1), generator=generator)
    y = dense[:, :1] * dense[:, 1:2] + codes
    if labels:
        y = torch.bucketize(y[:, 0], torch.linspace(-1, 2, labels - 1, dtype=torch.float64))
    w = torch.rand(N, generator=generator, dtype=torch.float64) + 0.1
    return Rows(dense, y, codes, w if weight else None)


def plan(seed, n=70, **more):
    return MemberPlan(seed=seed, rows=torch.arange(n), learning_rate=1e-2, **more)


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
def test_gradients_are_autograds_down_to_the_inputs(dropout, ragged):
    net, twin = (SPEC.build(MEMBERS, dtype=torch.float64) for _ in range(2))
    data, valid = rows(), None
    if ragged:
        valid = torch.arange(7) < torch.tensor([7, 3, 5]).unsqueeze(1)
    target = torch.randn(3, 7 * SPEC.n_heads, 1, dtype=torch.float64)

    def objective(raw):
        assert raw.shape == target.shape
        return (raw - target).square().sum()

    for keep in ([0, 1, 2], [0, 2]):
        if len(keep) < net.n_members:
            target, valid = target[keep], None if valid is None else valid[keep]
            net.select(keep)
            twin.select(keep)
        dense = data.dense[:7].expand(len(keep), -1, -1)
        codes = data.codes[:7].expand(len(keep), -1, -1)
        both = [n.mask_maker().draw(keep, 7) if dropout else None for n in (net, twin)]
        net.gradients(dense, objective, codes, both[0], valid)
        twin.flat.backward(objective(twin(dense, codes, both[1], valid)))
        torch.testing.assert_close(net.flat.grads, twin.flat.grads, rtol=1e-9, atol=1e-11)
        names = {name for name in net.member_state(0) if name.startswith("inputs.")}
        assert names == {
            *("inputs.weight", "inputs.bias", "inputs.scale.factor"),
            "inputs.codes.embeddings.0.weight",
        }
        for slot in net.flat.slots:  # all are reached
            assert net.flat.grads[slot.start : slot.stop, slot.columns].abs().max() > 0, slot.name


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("score", [None, "r2"])
def test_a_member_trains_as_if_alone(weight, score):
    config = replace(CONFIG, score=score)
    data, lengths = rows(weight), (70, 41, 33)
    val = torch.arange(70, N) if score else None
    plans = [
        plan(i, n, alpha=0.1 * i, val_rows=val) for i, n in zip((7, 8, 9), lengths, strict=True)
    ]
    together = train_stack(SPEC.build(MEMBERS, dtype=torch.float64), data, plans, config)
    for member, its_plan, result in zip(MEMBERS, plans, together, strict=True):
        net = SPEC.build([member], dtype=torch.float64)
        (alone,) = train_stack(net, data, [its_plan], config)
        np.testing.assert_allclose(result.train_loss, alone.train_loss, rtol=1e-9)
        np.testing.assert_allclose(result.validation_score, alone.validation_score, rtol=1e-9)
        for name, value in alone.state.items():
            torch.testing.assert_close(result.state[name], value, rtol=1e-7, atol=1e-9)
        assert result.train_loss[-1] < result.train_loss[0]


@pytest.mark.parametrize("weight", [False, True])
def test_the_loss_is_the_mean_over_heads_with_the_penalty_once(weight):
    member, alpha, rate = Member(0, "tanh"), 0.3, 0.1
    data = rows(weight)
    config = replace(
        CONFIG,
        batch_size=N,
        max_epochs=1,
        shuffle=False,
        optimizer=OptimizerConfig("sgd", momentum=0),
    )
    net = SPEC.build([member], dtype=torch.float64)
    leaf = SPEC.build([member], dtype=torch.float64)
    w = torch.ones(N, dtype=torch.float64) if data.weight is None else data.weight
    raw = leaf(data.dense[None], data.codes[None]).unflatten(1, (N, SPEC.n_heads))[0, ..., 0]
    mean = (0.5 * (raw - data.y).square().mean(1) * w).sum() / w.sum()
    decayed = leaf.flat.values[:, : leaf.n_decayed]
    leaf.flat.backward(mean)
    leaf.flat.grads[:, : leaf.n_decayed] += alpha * decayed / w.sum()
    expected = leaf.flat.values - rate * leaf.flat.grads
    its_plan = replace(plan(0, N, alpha=alpha), learning_rate=rate)
    (result,) = train_stack(net, data, [its_plan], config)
    torch.testing.assert_close(net.flat.values, expected)
    penalty = 0.5 * alpha * expected[:, : leaf.n_decayed].square().sum() / w.sum()
    assert result.train_loss[0] == pytest.approx(float(mean.detach() + penalty))


def test_lbfgs_lowers_the_mean_over_heads():
    data, alpha = rows(weight=True), 2.0
    config = replace(CONFIG, optimizer=OptimizerConfig("lbfgs"), max_epochs=30)
    results = []
    for max_fun in (1, 10_000):
        net = SPEC.build([Member(0, "tanh")], dtype=torch.float64)
        results.append(train_lbfgs(net, data, plan(0, N, alpha=alpha), config, max_fun))
        assert results[-1].reason == "max_iter"
        with torch.no_grad():
            raw = net(data.dense[None], data.codes[None]).unflatten(1, (N, SPEC.n_heads))[0, ..., 0]
        mass = data.weight.sum()
        loss = (0.5 * (raw - data.y).square().mean(1) * data.weight).sum() / mass
        penalty = 0.5 * alpha * net.flat.values[:, : net.n_decayed].square().sum() / mass
        assert results[-1].best_loss == pytest.approx(float(loss + penalty), rel=1e-9)
    assert results[1].best_loss < 0.5 * results[0].best_loss


def test_predictions_average_over_members_and_heads_and_scores_do():
    data = rows()
    net = SPEC.build(MEMBERS, dtype=torch.float64).eval()
    raw = net.predict(data.dense, data.codes, chunk=32)
    assert raw.shape == (3 * SPEC.n_heads, N, 1)
    whole = net(data.dense.expand(3, -1, -1), data.codes.expand(3, -1, -1))
    torch.testing.assert_close(raw.mean(0), whole.unflatten(1, (N, -1)).mean((0, 2)))
    one = whole.unflatten(1, (N, -1))[1, :, 2]
    torch.testing.assert_close(raw[SPEC.n_heads + 2], one)


@pytest.mark.parametrize("labels", [2, 3])
def test_a_classifier_is_scored_by_the_heads_mean_probabilities(labels):
    data = rows(labels=labels)
    loss = CrossEntropy() if labels > 2 else BinaryCrossEntropy()
    if labels == 2:
        data = replace(data, y=data.y.double()[:, None])
    spec = replace(SPEC, n_outputs=labels if labels > 2 else 1)
    config = replace(CONFIG, loss=loss, score="accuracy", max_epochs=1)
    net = spec.build([Member(1, "relu")], dtype=torch.float64)
    val = torch.arange(50, N)
    (result,) = train_stack(net, data, [plan(1, 50, val_rows=val)], config)
    raw = net.eval().predict(data.dense[val], data.codes[val], chunk=64)
    if labels > 2:
        predicted = torch.softmax(raw, -1).mean(0).argmax(-1)
    else:
        predicted = (torch.sigmoid(raw).mean(0) > 0.5).double()
    right = (predicted == data.y[val]).double().mean()
    assert result.validation_score == [pytest.approx(float(right))]


def test_a_spec_comes_back_from_json():
    record = SPEC.to_json()
    assert record["kind"] == "heads-of-a-test"
    assert NetworkSpec.from_json(record) == SPEC
    assert SPEC.peak_units == 4 * (3 * 3 + 2)
    for wrong, words in (
        ({**record, "n_heads": 0}, "n_heads in the shape must be a whole number"),
        ({**record, "kind": "mlp"}, "has .* that are unknown"),
        ({**record, "kind": "no-such"}, "unknown kind 'no-such'"),
        ([], "must be an object"),
    ):
        with pytest.raises(ValueError, match=words):
            NetworkSpec.from_json(wrong)


class Doubling(StackedMLP):
    """A chain whose own forward pass does more than the chain's."""

    def forward(self, dense, codes=None, masks=None, valid=None):
        return 2 * super().forward(dense, codes, masks, valid)


def test_a_networks_own_forward_is_trained_and_predicts():
    spec, members = MLPSpec(3, (8,), 2), [Member(0, "relu"), Member(1, "relu")]
    net, plain = (cls(spec, members, dtype=torch.float64) for cls in (Doubling, StackedMLP))
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    net.gradients(x, lambda raw: raw.square().sum())
    plain.gradients(x, lambda raw: 4 * raw.square().sum())
    torch.testing.assert_close(net.flat.grads, plain.flat.grads)
    torch.testing.assert_close(net.predict(x[0], None, 2), 2 * plain.predict(x[0], None, 2))


def test_a_kind_names_one_network():
    with pytest.raises(ValueError, match="of kind 'mlp' already: MLPSpec"):

        class Another(MLPSpec, kind="mlp"):
            pass

    assert NetworkSpec.kinds["mlp"] is MLPSpec
