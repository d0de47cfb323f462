"""papers/proxynorm/training: its nets against torch, its numbers against synthetic rows."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn import metrics
from torch import nn
from torch.nn import functional as F

from benchmarks.papers.common.claims import FAILS, HOLDS, UNDECIDED
from benchmarks.papers.proxynorm.random_nets.claims import (
    RANDOM,
    RESIDUAL,
    Kind,
    bound,
    bound_table,
    comparisons,
    equality_table,
    power,
)
from benchmarks.papers.proxynorm.random_nets.claims import THEOREMS as THEOREM_CLAIMS
from benchmarks.papers.proxynorm.random_nets.nets import (
    EPS,
    RHO,
    Net,
    make_steps,
    nonlinearity,
)
from benchmarks.papers.proxynorm.random_nets.theorems import theorem2, theorem3
from benchmarks.papers.proxynorm.training import __main__ as training
from benchmarks.papers.proxynorm.training.claims import (
    CLAIMS,
    Difference,
    adjust,
    below_zero,
    by_setting,
    contrasts,
    load_paper,
    matches,
    paired,
    paper_gains,
)
from benchmarks.papers.proxynorm.training.nets import NORMS, ResidualNets, Shape
from benchmarks.papers.proxynorm.training.runs import (
    RECIPES,
    Program,
    Recipe,
    load_split,
    make_estimator,
    rate_factor,
)
from combutab.activations import ProxyNorm

SHAPES = {
    "table": {"n_inputs": 5},
    "image": {"n_inputs": 64, "image": True},
}

SMALL = Recipe(8, 3, n_train=64, n_test=50, epochs=2)


def build(kind, norm, seeds=(4,), **more):
    groups = 1 if norm.startswith("LN") else 2
    sizes = {"n_classes": 3, "norm": norm, "groups": groups, "width": 8, "n_blocks": 2}
    shape = Shape(**sizes, **SHAPES[kind], **more)
    return ResidualNets(shape, list(seeds))


def network(kind, norm, **more):
    """One member's own, which is not a stack."""
    return build(kind, norm, **more).nets.kinds[0].each[0]


def rows_of(kind, n_members=1):
    shape = (n_members, 6, SHAPES[kind]["n_inputs"])
    return torch.randn(*shape, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("kind", SHAPES)
def test_each_map_has_a_norm_and_an_activation_before_it(kind, name):
    net = network(kind, name)
    _, stem, *blocks, norm, activation, _, _, dropout, classifier = net
    assert stem.stride == ((2, 2) if kind == "image" else (1, 1))
    assert stem.standardise is ("WS" in name)
    steps = [[block.branch[i : i + 2] for i in (0, 3)] for block in blocks]
    for first, second in [*(pair for both in steps for pair in both), (norm, activation)]:
        assert isinstance(first, nn.BatchNorm2d if name.startswith("BN") else nn.GroupNorm)
        if not name.startswith("BN"):
            assert first.num_groups == (1 if name.startswith("LN") else 2)
        assert (first.eps, first.affine) == (1e-6, not name.endswith("+PN"))
        assert isinstance(second, ProxyNorm if name.endswith("+PN") else nn.ReLU)
    # the last one only centres, before the mean over the positions of an image
    assert getattr(activation, "scale", True) is not (kind == "image" and name.endswith("+PN"))
    x = rows_of(kind)[0]
    h = stem(x.view(6, 1, 8, 8) if kind == "image" else x.view(6, 5, 1, 1))
    for block in blocks:
        assert (block.gain is None) is ("WS" not in name)
        h = h + block.branch(h)
    expected = classifier(activation(norm(h)).mean((2, 3)))
    torch.testing.assert_close(net(x), expected)
    assert dropout.p == 0


def test_batch_norm_predicts_by_running_statistics():
    stack = build("table", "BN")
    norm = stack.nets.kinds[0].each[0][2].branch[0]
    x = rows_of("table")
    stack(x)
    seen = norm.running_mean.clone()
    stem = stack.nets.kinds[0].each[0][1]
    torch.testing.assert_close(seen, 0.03 * stem(x[0].view(6, 5, 1, 1)).mean((0, 2, 3)))
    stack.eval()
    torch.testing.assert_close(stack(x[:, :1]), stack(x)[:, :1])
    assert torch.equal(norm.running_mean, seen)


@pytest.mark.parametrize("name", ["BN", "GN+WS+PN"])
@pytest.mark.parametrize("kind", SHAPES)
def test_members_do_not_see_each_other(kind, name):
    x = rows_of(kind, 3)
    together = build(kind, name, [4, 5, 6], extra=True)(x)
    alone = build(kind, name, [5], extra=True)(x[1:2])
    torch.testing.assert_close(together[1:2], alone)


def test_equal_seeds_begin_with_equal_weights_whatever_the_norm():
    first, second, other = (
        network("table", name, seeds=[seed])
        for name, seed in (("BN", 7), ("GN+WS+PN", 7), ("BN", 8))
    )
    assert torch.equal(first[3].branch[2].weight, second[3].branch[2].weight)
    assert torch.equal(first[-1].weight, second[-1].weight)
    assert not torch.equal(first[-1].weight, other[-1].weight)


def program(net="CNN", data="digits", norm="LN+PN", batch_size=16, seeds=(0, 1), **more):
    return Program(net, data, norm, batch_size, "plain", seeds, **{"recipe": SMALL, **more})


def train(program):
    """The rows as they are kept."""
    job = training.job(program)
    return [own | found for own, found in zip(job.wanted, job.run(), strict=True)]


def test_the_sum_of_rates_does_not_depend_on_the_batch():
    programs = [program(batch_size=b, recipe=RECIPES["CNN"]) for b in (8, 32, 128, 512)]
    assert [p.epochs for p in programs] == [6, 12, 24, 48]
    assert [p.steps for p in programs] == [768, 384, 192, 96]
    sums = [p.learning_rate * p.steps for p in programs]
    np.testing.assert_allclose(sums, sums[0])
    rates = [rate_factor(step / 768) for step in range(768)]
    assert max(rates) == pytest.approx(1, abs=0.01)
    assert np.mean(rates) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("kind", ["plain", "extra"])
def test_the_recorded_loss_is_without_the_penalty(kind):
    """At a rate of next to nothing it is that of the first weights."""
    recipe = replace(SMALL, learning_rate=1e-12)
    own = replace(program(norm="LN", recipe=recipe, seeds=(3,)), regularisation=kind)
    row = train(own)[0]
    split = load_split("digits", recipe)
    net = ResidualNets(Shape(64, 10, "LN", 1, 8, 1, image=True), [3])
    net.train(False)
    logits = net.predict(split.X_train, None, 500)[0]
    smoothing, near = (0.1, 0.2) if kind == "extra" else (0.0, 1e-4)  # with dropout
    expected = F.cross_entropy(logits, split.y_train, label_smoothing=smoothing).item()
    assert float(row["train_loss"]) == pytest.approx(expected, rel=near)
    assert float(row["log_loss"]) == pytest.approx(
        F.cross_entropy(net.predict(split.X_test, None, 500)[0], split.y_test).item(), rel=1e-4
    )


def test_a_member_trains_as_if_alone():
    both = train(replace(program(norm="GN+PN"), regularisation="extra"))
    (one,) = train(replace(program(norm="GN+PN", seeds=(1,)), regularisation="extra"))
    for name in ("log_loss", "train_loss"):
        assert float(both[1][name]) == pytest.approx(float(one[name]), rel=1e-3)
        assert both[0][name] != one[name]


def test_the_estimators_scores():
    recipe = Recipe(8, 2, 4e-3, n_train=256, n_test=200, epochs=10)
    own = program("plain MLP", "digits", recipe=recipe, batch_size=32)
    rows = train(own)
    assert [(row["regularisation"], row["seed"]) for row in rows] == [
        ("plain", "0"),
        ("plain", "1"),
    ]
    split = load_split("digits", recipe)
    net = make_estimator(own, 1).fit(split.X_train.numpy(), split.y_train.numpy())
    probability = net.predict_proba(split.X_test.numpy())
    right = metrics.accuracy_score(split.y_test, probability.argmax(1))
    assert float(rows[1]["accuracy"]) == pytest.approx(right, abs=0.011)
    loss = metrics.log_loss(split.y_test, probability)
    assert float(rows[1]["log_loss"]) == pytest.approx(loss, rel=0.01)


def test_paired_differences():
    d = [0.01, 0.03, 0.02, 0.00]
    found = paired(d)
    expected = stats.ttest_rel(np.add(d, 0.5), np.full(4, 0.5))
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert (paired([0.0, 0.0]).p, paired([0.1, 0.1]).p) == (1.0, 0.0)


def test_outcomes_and_matching():
    def judged(mean, low, high, p):
        return Difference(mean, low, high, p)

    assert judged(0.01, 0.005, 0.02, 0.01).outcome == "higher"
    assert judged(-0.01, -0.02, -0.005, 0.01).outcome == "lower"
    assert judged(0.0, -0.009, 0.009, 0.5).outcome == "equal within a point"
    assert judged(0.0, -0.009, 0.011, 0.5).outcome == "not significantly different"
    assert matches(judged(-0.004, -0.009, 0.001, 0.5)) is True
    assert matches(judged(-0.02, -0.03, -0.01, 0.01)) is False
    assert matches(judged(-0.02, -0.05, 0.01, 0.2)) is None
    assert str(judged(-0.00001, -0.02, 0.0123, 0.0312)) == "+0.00 [-2.00, +1.23], p = 0.031"
    assert below_zero(judged(-0.01, -0.02, -0.005, 0.01)) is True
    assert below_zero(judged(0.0, -0.009, 0.009, 0.5)) is False
    found = adjust({"a": judged(0, 0, 0, 0.01), "b": judged(0, 0, 0, 0.04)})
    assert {name: d.p for name, d in found.items()} == {"a": 0.02, "b": 0.04}


# accuracy of each norm over that of LN, with extra regularisation, at batches 8 and 32
EFFECTS = {
    "BN": (0.00, 0.04),
    "BN+PN": (0.00, 0.04),
    "LN": (0.00, 0.00),
    "LN+PN": (0.05, 0.05),
    "GN": (0.01, 0.01),
    "GN+PN": (0.05, 0.05),
    "GN+WS": (0.03, 0.03),
    "GN+WS+PN": (0.05, 0.05),
}


def synthetic(noise=0.001):
    rng = np.random.default_rng(0)
    lines = []
    for seed in range(6):
        base = rng.normal(0.7, 0.05)  # shared by the norms: tests that are not paired see nothing
        for data in ("a", "b"):
            for kind in ("plain", "extra"):
                for norm, effects in EFFECTS.items():
                    for size, effect in zip((8, 32), effects, strict=True):
                        share = 0.5 if norm.endswith("PN") and kind == "plain" else 1.0
                        score = base + share * effect + rng.normal(0, noise)
                        values = (data, kind, norm, size, seed, score, score)
                        lines.append(("MLP", "relu", *values))
    names = ("net", "activation", "data", "regularisation", "norm", "batch_size", "seed")
    return pd.DataFrame(lines, columns=[*names, "accuracy", "train_accuracy"])


def test_contrasts_of_synthetic_rows():
    found = contrasts(synthetic(), [("LN+PN", "LN"), ("BN+PN", "BN"), ("IN", "BN")])
    assert list(dict.fromkeys(pair for pair, _ in found)) == ["LN+PN - LN", "BN+PN - BN"]
    assert {size for _, size in found} == {8, 32, "all"}
    assert found["LN+PN - LN", "all"].mean == pytest.approx(0.0375, abs=0.002)
    assert found["LN+PN - LN", 8].outcome == "higher"
    assert found["BN+PN - BN", 8].outcome == "equal within a point"
    own = by_setting(synthetic(), ("LN+PN", "LN"))
    assert len(own) == 8
    assert own["a", "extra", 8].mean == pytest.approx(0.05, abs=0.003)
    assert own["a", "plain", 8].mean == pytest.approx(0.025, abs=0.003)


def test_verdicts_of_synthetic_rows():
    rows = synthetic()
    judged = {claim.text: claim.judge(rows).verdict for claim in CLAIMS}
    expected = {
        "PN raises the accuracy of LN": HOLDS,
        "PN adds more to LN": HOLDS,
        "LN+PN and GN+PN match": HOLDS,
        "... where the batch": HOLDS,
        "BN loses": HOLDS,
        "PN adds most with extra": HOLDS,
        "PN raises training": HOLDS,
        "... but not that of BN": HOLDS,
        "LN and GN alone stay below": HOLDS,
    }
    for start, verdict in expected.items():
        assert [v for text, v in judged.items() if text.startswith(start)] == [verdict], start
    swap = {"LN": "LN+PN", "LN+PN": "LN", "GN": "GN+PN", "GN+PN": "GN"}
    reversed_rows = rows.assign(norm=rows["norm"].replace(swap))
    verdicts = [claim.judge(reversed_rows).verdict for claim in CLAIMS]
    assert verdicts[0] == verdicts[-2] == FAILS
    without = [claim.judge(rows[rows["norm"] != "BN"]) is None for claim in CLAIMS]
    assert without == [False] * 3 + [True] * 5 + [False] * 2 + [True]


def test_the_papers_cells():
    paper = load_paper()
    cell = paper.set_index(["table", "net", "norm", "groups", "regularisation"])["mean"]
    assert cell["2 and 6", "RN50", "LN+PN", 1, "extra"] == 76.5
    assert cell["9", "RN50", "GN+WS", 8, "plain"] == 80.1
    keys = ["net", "norm", "groups", "metric", "regularisation"]
    assert not paper.duplicated(keys).any()
    assert paper["mean"].isna().eq(paper["note"] == "lost in the text").all()
    for pair, cell, gain in (
        (("LN+PN", "LN"), ("RN50", "extra", 1), 1.9),
        (("GN+PN", "GN"), ("RN101", "extra", 32), 1.2),
    ):
        found = paper_gains("accuracy", pair).set_index(["net", "regularisation", "groups"])
        assert found.loc[cell, "gain"] == pytest.approx(gain)


# ---- papers/proxynorm/random_nets: its nets against numpy, its numbers against synthetic rows ---

EXACT = {"dtype": torch.float64, "eps": 1e-14}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def steps(norm, gamma, beta, groups=2, eps=EPS):
    return make_steps(norm, groups, eps, torch.as_tensor(gamma), torch.as_tensor(beta))


@pytest.mark.parametrize(
    ("norm", "axes"),
    [("BN", (0, 2, 3)), ("IN", (2, 3)), ("LN", (1, 2, 3)), ("LN+PN", (1, 2, 3))],
)
def test_norms_take_the_statistics_of_their_axes(norm, axes):
    x = torch.randn(5, 6, 3, 3, generator=generator(), dtype=torch.float64).numpy() * 3 + 1
    expected = (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)
    step = steps(norm, np.ones(6), np.zeros(6), eps=1e-14)[0]  # BN takes no 0
    np.testing.assert_allclose(step(torch.from_numpy(x)), expected, atol=1e-12)


@pytest.mark.parametrize("norm", ["LN", "LN+PN"])
def test_activation_step(norm):
    gamma, beta = torch.tensor([1.0, 0.5, -2.0]), torch.tensor([0.0, 1.0, 0.3])
    y = torch.randn(4, 3, 2, 2, generator=generator())
    with torch.no_grad():
        found = nn.Sequential(*steps(norm, gamma, beta)[1:])(y)
    expected = (y * gamma.view(-1, 1, 1) + beta.view(-1, 1, 1)).clamp_min(0)
    if norm == "LN+PN":  # Eq. (7), its moments by sampling
        proxy = gamma * torch.randn(400_000, 1, generator=generator()) + beta
        std, mean = torch.std_mean(proxy.clamp_min(0), dim=0)
        expected = (expected - mean.view(-1, 1, 1)) / (std**2 + 0.03).sqrt().view(-1, 1, 1)
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)


@torch.no_grad()
def test_a_random_net_is_the_network_of_numpy():
    """LN, dense: the third layer's output by plain numpy from the layers drawn."""
    network, X = Net("dense", 6, 3, n_inputs=20).build("LN", 5, **EXACT)
    z = X.flatten(1).numpy()
    for conv, _, affine, _ in network[1:]:
        x = z @ conv.weight.flatten(1).numpy().T
        y = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
        z = np.maximum(y * affine.gamma.flatten().numpy() + affine.beta.flatten().numpy(), 0)
    np.testing.assert_allclose(network(X).flatten(1), z, atol=1e-9)


@torch.no_grad()
def test_measured_powers_are_those_of_y():
    net = Net("conv", 4, 21, ("BN", "LN"), n_inputs=12)
    rows = net.measure(3)
    assert list(rows.index) == net.sites == [(n, d) for n in ("BN", "LN") for d in range(1, 21)]
    for norm, depth in itertools.product(("BN", "LN"), (1, 20)):
        network, X = net.build(norm, 3)
        y = network[depth][:2](network[:depth](X)).double().numpy().reshape(12, 4, 16)
        means, sds = y.mean(2), y.std(2)
        expected = [(means.mean(0) ** 2), means.var(0), (sds.mean(0) ** 2), sds.var(0)]
        for term, values in zip(("P1", "P2", "P3", "P4"), expected, strict=True):
            assert rows.loc[(norm, depth), term] == pytest.approx(values.mean(), abs=1e-9)


def test_nonlinearity_is_the_residual_of_least_squares_in_each_channel():
    net = Net("conv", 4, 2, ("BN",), n_inputs=12)
    network, X = net.build("BN", 3)
    residuals, powers = [], []
    for values in network[2][:3](network[:2](X)).detach().double().movedim(1, 0).flatten(1).numpy():
        z = np.maximum(values, 0)
        (slope,), *_ = np.linalg.lstsq(values[:, None], z, rcond=None)
        residuals.append(((z - values * slope) ** 2).mean())
        powers.append((z**2).mean())
    assert nonlinearity(network, X, 1)[2] == pytest.approx(sum(residuals) / sum(powers))


def test_linearity_of_relu():
    # symmetric: z = relu(y) has half of y's power, and half of its own is not explained
    y = torch.randn(100, 1, generator=torch.Generator().manual_seed(0)).double()
    y = torch.cat([y, -y])
    for channels, share in (([y], 0.5), ([y.abs()], 0.0), ([y, y.abs(), -y.abs(), 0 * y], 1 / 6)):
        (found,) = nonlinearity(nn.Sequential(nn.ReLU()), torch.cat(channels, 1), 1)
        assert found == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("norm", ["LN", "BN"])
def test_batch_norm_keeps_activations_nonlinear(norm):
    found = nonlinearity(*Net("dense", 64, 16).build(norm, 0), 1)
    assert (found.iloc[-1] < 0.15) == (norm == "LN")
    assert found.min() > 0.3 or norm == "LN"


def test_nets_of_a_draw_share_their_weights():
    first, second = (Net("dense", 8, 2).build(norm, 1)[0] for norm in ("LN", "GN+PN"))
    assert torch.equal(first[2][0].weight, second[2][0].weight)
    assert torch.equal(first[2][2].gamma.flatten(), second[2][2].gamma)
    other, _ = Net("dense", 8, 2).build("LN", 2)
    assert not torch.isclose(first[2][0].weight, other[2][0].weight, rtol=1e-3).any()


def test_theorem2_holds_to_rounding():
    net = Net("conv", 6, 4, n_inputs=16)
    numerics = {"dtype": torch.float64, "eps": 0.0}
    assert max(theorem2(net, 0, **numerics).values()) < 1e-12
    assert theorem2(net, 0, **numerics, norm="LN")["P3"] > 0.1, "the check can fail"


def test_theorem3_needs_its_conditions():
    usual = {"n_points": 4001, "n_proxy": 256, "draw": 0}
    normal = theorem3("relu", "normal", **usual)
    assert normal["P1"] < 1e-5
    assert normal["P"] < 0.01
    laplace = theorem3("relu", "Laplace", **usual)
    assert laplace["P1"] > 1e-3
    assert laplace["P"] > 0.1
    exact = theorem3("gelu", "normal", **{**usual, "n_proxy": 4001})
    assert exact["P"] < theorem3("gelu", "normal", **usual)["P"] / 3


def random_net_rows(p1, *, net="dense", width=8, draws=9, depth=20, phi="relu"):
    """Rows with ``p1[norm]`` at the last depth, rising from 0 at the first, and the rest in P2."""
    rows = []
    for (norm, last), draw, level in itertools.product(
        p1.items(), range(draws), range(1, depth + 1)
    ):
        at = last * (level - 1) / (depth - 1)
        at = at * (1 + 0.01 * draw) if at < 0.9 else at
        powers = {"P": 1.0, "P1": at, "P2": 1 - at, "P3": 0.0, "P4": 0.0}
        where = {"net": net, "width": width, "phi": phi, "norm": norm, "inputs": 4}
        share = {"nonlinearity": 0.4 * (1 - at) ** 3}
        rows.append({**where, "draw": draw, "depth": level, **powers, **share})
    return pd.DataFrame(rows)


PAPER = {"BN": 0.0, "LN": 0.95, "GN": 0.8, "LN+PN": 0.02, "GN+PN": 0.01, "LN+WS": 0.2}

THEOREMS = pd.DataFrame(
    [
        (2, "float64, eps 0", 0, "P1", 1e-30),
        (2, "float32, eps 1e-06", 0, "P1", 1e-6),
        (3, "relu, normal", 0, "P", 1e-3),
        (3, "relu, normal", 0, "P1", 1e-6),
        (3, "relu, Laplace", 0, "P", 0.3),
        (3, "relu, normal, proxy of 9", 0, "P", 1e-3),
    ],
    columns=["theorem", "case", "draw", "term", "error"],
)


def test_bound_table_counts_what_is_above():
    rows = random_net_rows({"LN": 0.0}, draws=2, depth=3)  # P - P1 = 1 throughout
    (line,) = bound_table(rows).to_dict("records")
    assert line["cells"] == 6
    assert line["above the bound"] == 4, "at l = 1 the bound is 1"
    assert line["worst excess"] == pytest.approx(1 - RHO**2)
    assert line["at depth"] == 3
    rows["P2"] = RHO ** (rows["depth"] - 1.0) - 1e-3
    (line,) = bound_table(rows).to_dict("records")
    assert (line["above the bound"], line["worst excess"]) == (0, 0.0)
    assert pytest.approx(1.04 / 1.08) == RHO


def test_equality_table():
    rows = random_net_rows({"LN": 0.0}, draws=2, depth=4, phi="identity")
    rows["P2"] = RHO ** (rows["depth"] - 1.0) + np.where(rows["draw"] == 0, 0.02, -0.01)
    (line,) = equality_table(rows).to_dict("records")
    assert line["largest error"] == pytest.approx(0.015)
    assert line["of all draws"] == pytest.approx(0.02)


def test_bound_is_judged_up_to_constants_and_says_what_is_above():
    def judged(**excess):
        others = random_net_rows({norm: p1 for norm, p1 in PAPER.items() if norm != "LN"}, width=16)
        parts = [random_net_rows({"LN": 0.0}, width=width) for width in (16, 8)]
        for part, by in zip(parts, excess.values(), strict=True):
            part["P2"] = RHO ** (part["depth"] - 1.0) + by
        return bound.judge(Kind(pd.concat([others, *parts], ignore_index=True)))

    strictly = judged(widest=-0.001, narrowest=0.1)
    assert strictly.verdict == HOLDS
    assert strictly.numbers.startswith("0 of 180")
    up_to_constants = judged(widest=0.005, narrowest=0.1)
    assert up_to_constants.verdict == HOLDS
    assert up_to_constants.numbers.startswith("180 of 180")
    assert judged(widest=0.05, narrowest=0.1).verdict == "holds in part"
    assert judged(widest=0.2, narrowest=0.1).verdict == FAILS


def test_equality_is_judged_over_widths():
    def of(width, error):
        rows = random_net_rows({"LN": 0.0}, width=width, phi="identity", depth=4)
        return rows.assign(P2=RHO ** (rows["depth"] - 1.0) + error)

    def judged(*parts):
        found = judge(pd.concat([random_net_rows(PAPER), *parts], ignore_index=True))
        return next(v for claim, v in found.items() if claim.startswith("Proposition 6"))

    assert judged(of(8, 0.1), of(16, 0.005)) == HOLDS
    assert judged(of(8, 0.1), of(16, 0.05)) == "holds in part"
    assert judged(of(8, 0.05), of(16, 0.1)) == FAILS


def test_comparisons_are_exact_and_adjusted():
    found = comparisons(random_net_rows(PAPER), 20).set_index(["higher", "lower"])
    assert len(found) == 5
    assert found.loc[("LN", "LN+PN"), "p (Holm)"] == pytest.approx(5 * 2 / 2**9)
    assert found["draws"].eq("9 of 9").all()
    upside_down = comparisons(random_net_rows({**PAPER, "LN+PN": 0.97}), 20)
    assert upside_down.set_index(["higher", "lower"])["draws"]["LN", "LN+PN"] == "0 of 9"


def judge(rows, theorems=THEOREMS):
    """The verdict on each claim of which the rows of some kind speak."""
    judged = [(claim, theorems) for claim in THEOREM_CLAIMS] + [(power, rows)]
    for kind, part in rows.groupby("net"):
        judged += [(claim, Kind(part)) for claim in (RESIDUAL if kind == "residual" else RANDOM)]
    found = {f"{claim.where}: {claim.text}": claim.judge(sample) for claim, sample in judged}
    return {name: finding.verdict for name, finding in found.items() if finding}


def test_verdicts_on_rows_as_the_paper_has_them():
    found = judge(random_net_rows(PAPER))
    # P - P1 falls more slowly than rho^(l-1) in these rows
    wrong = {claim for claim, verdict in found.items() if verdict != HOLDS}
    assert len(found) == 8
    assert all(claim.startswith("Theorem 1") for claim in wrong), wrong


def test_verdicts_on_rows_without_collapse():
    found = judge(random_net_rows({**PAPER, "LN": 0.01, "GN": 0.009, "LN+WS": 0.001}))
    cured = next(v for claim, v in found.items() if "resemble" in claim)
    lesser = next(v for claim, v in found.items() if "LN+WS" in claim)
    assert cured == lesser == FAILS
    collapse = next(v for claim, v in found.items() if "channels collapse" in claim)
    assert collapse == "holds in part", "BN keeps its power"


def test_verdicts_on_residual_rows():
    rows = random_net_rows({**PAPER, "LN": 0.6, "GN": 0.5, "LN+WS": 0.03}, net="residual", depth=16)
    rows = pd.concat([random_net_rows(PAPER), rows], ignore_index=True)
    assert [v for claim, v in judge(rows).items() if claim.startswith("Figure 6")] == [HOLDS, HOLDS]
    rows.loc[(rows["net"] == "residual") & (rows["norm"] == "LN+WS"), "P1"] = 0.5
    assert [v for claim, v in judge(rows).items() if "both keep" in claim] == ["holds in part"]


def test_few_draws_are_no_verdict():
    found = judge(random_net_rows(PAPER, draws=3))
    assert next(v for claim, v in found.items() if "resemble" in claim) == UNDECIDED


def test_theorems_may_fail():
    broken = THEOREMS.assign(error=0.5)
    found = judge(random_net_rows(PAPER), broken)
    assert {found[claim] for claim in found if claim.startswith(("Theorem 2", "Theorem 3"))} == {
        FAILS
    }


def test_proposition_3_catches_a_power_that_is_not_1():
    rows = random_net_rows(PAPER)
    rows.loc[7, "P"] = 0.9
    found = judge(rows)
    assert next(v for claim, v in found.items() if claim.startswith("Proposition 3")) == FAILS
