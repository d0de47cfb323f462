"""papers/proxynorm/training: its nets against torch, its numbers against synthetic rows."""

from __future__ import annotations

import argparse
import csv
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn import metrics
from torch import nn
from torch.nn import functional as F

from benchmarks.papers.common.claims import FAILS, HOLDS
from benchmarks.papers.proxynorm.training import __main__ as training
from benchmarks.papers.proxynorm.training.claims import (
    CLAIMS,
    Difference,
    adjust,
    below_zero,
    by_setting,
    contrasts,
    gaps,
    load_paper,
    matches,
    over,
    paired,
    paper_gains,
)
from benchmarks.papers.proxynorm.training.nets import NORMS, Block, ResidualNets, Shape
from benchmarks.papers.proxynorm.training.runs import (
    RECIPES,
    Program,
    Recipe,
    load_split,
    make_estimator,
    rate_factor,
)
from combutab.activations import ProxyNorm
from combutab.nn import Member, MLPSpec, StackedMLP
from tests.benchmarks.papers.test_papers_page import ROOT

DATA_HOME = ROOT.parent / "shared" / "data"
RESULTS = Path(training.__file__).parents[1] / "results"
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


def test_extra_regularisation_drops_branches_by_rows_and_keeps_means():
    torch.manual_seed(0)
    block = Block(Shape(5, 3, "LN", 1, 8, 2, extra=True))
    x = torch.ones(1, 8, 1, 1) + torch.arange(8.0).view(8, 1, 1)
    z = block.branch(x).detach()
    added = (block(x.expand(4000, -1, -1, -1)).detach() - x) / z
    np.testing.assert_allclose(added.std(1), 0, atol=1e-4)
    np.testing.assert_allclose(added.unique().round(decimals=3).unique(), [0, 1.111])
    assert (added == 0).float().mean() == pytest.approx(0.1, abs=0.02)
    block.eval()
    torch.testing.assert_close(block(x), x + z)
    assert network("table", "LN", extra=True)[-2].p == 0.25


@pytest.mark.parametrize("norm", NORMS)
def test_all_parameters_decay(norm):
    net = build("image", norm, [0, 1])
    assert net.n_decayed == sum(p.numel() for p in net.parameters() if p.requires_grad) / 2


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


@pytest.mark.parametrize("norm", training.ESTIMATOR_NORMS)
def test_the_estimators_networks(norm):
    own = program("plain MLP", norm=norm, recipe=RECIPES["plain MLP"])
    plain, extra = make_estimator(own, 3), make_estimator(replace(own, regularisation="extra"), 3)
    assert (plain.dropout, extra.dropout) == (0.0, 0.02)
    assert (plain.label_smoothing, extra.label_smoothing) == (0.0, 0.1)
    net = MLPSpec(4, plain.hidden_layer_sizes, 2, (), 8, plain.normalization, plain.proxy_norm)
    first = StackedMLP(net, [Member(0, "relu")])
    kind = {"BN": "batch", "LN": "layer", "GN": "group"}[norm[:2]]
    assert [step.kind for step in first.norms] == [kind] * 10
    assert (first.norms[0].gain is None) is norm.endswith("PN")


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


def test_training_learns():
    recipe = Recipe(8, 3, n_train=512, epochs=30)
    (row,) = train(program(norm="BN", batch_size=64, seeds=(0,), recipe=recipe))
    assert float(row["accuracy"]) > 0.85
    assert float(row["fit_accuracy"]) > 0.95


def test_split_of_digits():
    split = load_split("digits", RECIPES["CNN"])
    assert split.X_train.shape == (1024, 64)
    assert 500 < len(split.y_test) <= 1797 - 1024
    assert split.X_train.mean().abs() < 1e-5
    assert split.y_train.unique().tolist() == list(range(10))
    both = torch.cat([split.X_train, split.X_test])
    assert len(both.unique(dim=0)) == len(both)


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


def test_changes_of_synthetic_rows():
    rows = synthetic()
    by_size = over(gaps(rows, ("LN", "BN")), "batch_size").mean()
    assert by_size[8] - by_size[32] == pytest.approx(0.04, abs=0.002)
    by_kind = over(gaps(rows, ("LN+PN", "LN")), "regularisation").mean()
    assert by_kind["extra"] - by_kind["plain"] == pytest.approx(0.025, abs=0.002)


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


def test_quick_form(tmp_path, capsys, monkeypatch):
    if not DATA_HOME.is_dir():
        pytest.skip("needs ../shared/data")
    arguments = ["--quick", "--out", str(tmp_path), "--data-home", str(DATA_HOME)]
    monkeypatch.delitem(sys.modules, "benchmarks.papers.proxynorm.training.__main__")
    monkeypatch.setattr(sys, "argv", ["training", *arguments])
    runpy.run_module("benchmarks.papers.proxynorm.training", run_name="__main__")
    said = capsys.readouterr().out
    assert "84 of 84 to go" in said
    assert "torch" in said, "the machine is described"
    rows = pd.read_csv(tmp_path / "proxynorm_training.csv")
    assert rows.groupby("net").size().to_dict() == {"CNN": 64, "MLP": 64, "plain MLP": 40}
    assert rows["accuracy"].between(0, 1).all()
    page = (tmp_path / "proxynorm_training.md").read_text()
    assert "python -m benchmarks.papers.proxynorm.training --quick" in page
    assert "PN adds nothing to BN" in page
    assert str(tmp_path) not in page
    assert (tmp_path / "proxynorm_training_train.png").stat().st_size > 10_000
    (experiment,) = training.STUDY.experiments
    experiment.complete(argparse.Namespace(quick=True, out=tmp_path, data_home=DATA_HOME))
    assert "to go" not in capsys.readouterr().out, "nothing is trained twice"


def test_quick_results_have_a_folder_of_their_own():
    with pytest.raises(SystemExit, match="--out"):
        training.STUDY.main(["--quick"])


def test_the_results_that_are_kept_are_those_of_the_full_study():
    """Nothing is to go: the file has each row that a run would begin with."""
    (experiment,) = training.STUDY.experiments
    arguments = argparse.Namespace(quick=False, data_home=None)
    with open(RESULTS / "proxynorm_training.csv", newline="") as file:
        kept = [[row[n] for n in experiment.settings] for row in csv.DictReader(file)]
    wanted = [row for job in experiment.jobs(arguments) for row in job.wanted]
    assert kept == [[row[n] for n in experiment.settings] for row in wanted]
    assert len(experiment.store(RESULTS).read()) == len(wanted)
